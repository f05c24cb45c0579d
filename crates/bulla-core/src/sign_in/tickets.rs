//! Tickets: what an owner of a shared group gives another member, so that this one may forward a user's links.
//!
//! A ticket is good once, for a short time, for one user, and for the queues of the group. Who may ask for one is a
//! member of the group: it can write the group's log, in which rights on these queues are.

use crate::maps::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a [`Ticket`]: too many to be guessed.
pub const TICKET_BYTES: usize = 32;

/// What an owner gives a member, so that one connection may be a user's.
pub type Ticket = [u8; TICKET_BYTES];

/// How long a ticket is good: a connection is made meanwhile.
pub const TICKET_LASTS: Duration = Duration::from_secs(15);
/// Tickets that are out at the same time. Who asks for one more gets none.
pub const TICKETS_MAX: usize = 8_192;

/// Whose a ticket is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// The group in which it is good.
    pub group: String,
    /// The user; none for a client that has not signed in.
    pub user: Option<String>,
    /// Whether the proof that the other member has seen is good enough for that user's ring.
    pub ring: bool,
}

/// The tickets that are out.
#[derive(Default)]
pub struct Tickets(Mutex<HashMap<Ticket, (Holder, Instant)>>);

impl Tickets {
    /// Gives a ticket out: `ticket`, which is random. False where too many are out.
    pub fn give(&self, ticket: &Ticket, holder: Holder, now: Instant) -> bool {
        let mut out = self.hold();
        if out.len() >= TICKETS_MAX {
            out.retain(|_, (_, until)| *until > now);
        }
        let has_room = out.len() < TICKETS_MAX;
        if has_room {
            out.insert(*ticket, (holder, now + TICKET_LASTS));
        }
        has_room
    }

    /// Takes a ticket back, and says whose it was. None where there is none like it, or no more.
    pub fn take(&self, ticket: &[u8], now: Instant) -> Option<Holder> {
        let ticket = <Ticket>::try_from(ticket).ok()?;
        self.hold().remove(&ticket).filter(|(_, until)| *until > now).map(|(holder, _)| holder)
    }

    /// Each ticket stands for itself: a panic elsewhere breaks none.
    fn hold(&self) -> MutexGuard<'_, HashMap<Ticket, (Holder, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(user: &str) -> Holder {
        Holder { group: "G".to_owned(), user: Some(user.to_owned()), ring: false }
    }

    #[test]
    fn a_ticket_is_good_once_and_for_a_while() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        assert!(tickets.give(&[1; TICKET_BYTES], holder("ann"), now));
        assert!(tickets.give(&[2; TICKET_BYTES], holder("bob"), now));
        assert_eq!(tickets.take(&[3; TICKET_BYTES], now), None);
        assert_eq!(tickets.take(&[1; TICKET_BYTES - 1], now), None);
        assert_eq!(tickets.take(&[1; TICKET_BYTES], now), Some(holder("ann")));
        assert_eq!(tickets.take(&[1; TICKET_BYTES], now), None, "once");
        assert_eq!(tickets.take(&[2; TICKET_BYTES], now + TICKET_LASTS), None, "for a while");
    }

    #[test]
    fn only_so_many_are_out_until_they_are_too_old() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let numbered = |number: usize| {
            let mut ticket = [0; TICKET_BYTES];
            ticket[..8].copy_from_slice(&number.to_be_bytes());
            ticket
        };
        for number in 0..TICKETS_MAX {
            assert!(tickets.give(&numbered(number), holder("ann"), now));
        }
        assert!(!tickets.give(&numbered(TICKETS_MAX), holder("ann"), now));
        assert!(tickets.give(&numbered(TICKETS_MAX), holder("ann"), now + TICKET_LASTS));
    }
}
