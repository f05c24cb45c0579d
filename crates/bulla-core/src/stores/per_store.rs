//! What there is one of for each store, and tickets of several stores.

use bulla_queue::{StoreNumber, Ticket};

/// What there is one of for each store.
#[derive(Clone, Debug, Default)]
pub struct PerStore<T> {
    local: T,
    further: Vec<T>,
}

impl<T: Default> PerStore<T> {
    /// That of a store.
    pub fn of(&mut self, store: StoreNumber) -> &mut T {
        match store.place().checked_sub(1) {
            None => &mut self.local,
            Some(place) => self.further_at(place),
        }
    }

    #[cold]
    fn further_at(&mut self, place: usize) -> &mut T {
        if self.further.len() <= place {
            self.further.resize_with(place + 1, T::default);
        }
        &mut self.further[place]
    }

    /// Those of all stores that were asked for.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.local).chain(&self.further)
    }

    /// Those of all stores that were asked for.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.local).chain(&mut self.further)
    }
}

/// Tickets of several stores, one of each at most.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tickets(pub(super) Vec<Ticket>);

impl Tickets {
    /// Waits for that one, too, which was given out after those that are there.
    pub fn add(&mut self, ticket: Ticket) {
        self.0.retain(|known| known.store() != ticket.store());
        self.0.push(ticket);
    }

    /// The tickets.
    pub fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.0.iter().copied()
    }
}

impl From<Ticket> for Tickets {
    fn from(ticket: Ticket) -> Self {
        Self(vec![ticket])
    }
}

impl Extend<Ticket> for Tickets {
    fn extend<I: IntoIterator<Item = Ticket>>(&mut self, tickets: I) {
        tickets.into_iter().for_each(|ticket| self.add(ticket));
    }
}
