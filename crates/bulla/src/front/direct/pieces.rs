//! Messages in pieces: handed over piece by piece, as the core takes them, and read piece by piece.

use super::{Direct, Got, Inside, LinkState, delivery, lock, refused};
use crate::front::outcome::Failure;
use crate::front::{DeliveryId, Event, LinkId};
use crate::reason::{self, Refusal};
use bulla_amqp::Payload;
use bytes::Bytes;
use std::collections::VecDeque;

/// A message that the client hands over in pieces. Dropped before its end, nothing is put.
pub(crate) struct Pieces<'a> {
    direct: &'a Direct,
    link: LinkId,
    id: DeliveryId,
    len: u64,
    len_max: u64,
}

/// A message that is coming in pieces.
pub(super) struct Coming {
    pub(super) link: LinkId,
    /// What the core has not taken yet.
    pub(super) offered: VecDeque<Bytes>,
    pub(super) taken: Payload,
    pub(super) is_whole: bool,
}

impl Got {
    /// The next piece of the message, of so many bytes at most. None behind the last one. What was read is let go.
    pub(crate) fn piece(&mut self, bytes_max: usize) -> Option<Bytes> {
        self.rest.extend(std::mem::take(&mut self.message).chunks().iter().cloned());
        loop {
            let first = self.rest.front_mut()?;
            let piece = first.split_to(first.len().min(bytes_max));
            if first.is_empty() {
                self.rest.pop_front();
            }
            if !piece.is_empty() {
                return Some(piece);
            }
        }
    }
}

impl Direct {
    /// Begins a message that is handed over in pieces, whose length may be known.
    ///
    /// # Errors
    /// 2030 where it is longer than its queue takes; why the link ended.
    pub(crate) fn begin(&self, link: LinkId, len: Option<u64>) -> Result<Pieces<'_>, Option<Failure>> {
        let len_max = match lock(&self.shared).links.get(&link) {
            Some(LinkState::Open { len_max, .. }) => *len_max,
            _ => 0,
        };
        check_len(len.unwrap_or(0), len_max)?;
        self.take_credit(link)?;
        let mut inside = lock(&self.shared);
        let id = DeliveryId(inside.handle());
        let coming = Coming { link, offered: VecDeque::new(), taken: Payload::new(), is_whole: false };
        inside.coming.insert(id, coming);
        Ok(Pieces { direct: self, link, id, len: 0, len_max })
    }
}

impl Pieces<'_> {
    /// Hands over the next piece, once the core takes it.
    ///
    /// # Errors
    /// 2030 where the message has become longer than its queue takes: it is given up. Why the link ended.
    pub(crate) fn piece(&mut self, piece: Bytes) -> Result<(), Option<Failure>> {
        self.len += piece.len() as u64;
        check_len(self.len, self.len_max)?;
        if let Some(coming) = lock(&self.direct.shared).coming.get_mut(&self.id) {
            coming.offered.push_back(piece);
        }
        (self.direct.wake)();
        let (id, link) = (self.id, self.link);
        self.direct.wait("that the core takes a piece", |inside| {
            match (inside.coming.get(&id), inside.links.get(&link)) {
                (Some(coming), _) => coming.offered.is_empty().then_some(Ok(())),
                (None, Some(LinkState::Ended(error))) => Some(Err(Some(error.clone()))),
                (None, _) => Some(Err(None)),
            }
        })
    }

    /// The message is whole: says when it is on its queue and in the journal as it asks.
    ///
    /// # Errors
    /// The core's refusal.
    pub(crate) fn end(self) -> Result<(), Option<Failure>> {
        if let Some(coming) = lock(&self.direct.shared).coming.get_mut(&self.id) {
            coming.is_whole = true;
        }
        (self.direct.wake)();
        refused(self.direct.wait("an answer", |inside| inside.answers.remove(&self.id))).map(drop)
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        let inside = &mut *lock(&self.direct.shared);
        if inside.coming.remove(&self.id).is_none() {
            return;
        }
        inside.is_given_up = true;
        // The core has not heard of the message: its credit is there still.
        if let Some(LinkState::Open { credit, .. }) = inside.links.get_mut(&self.link) {
            *credit += 1;
        }
        (self.direct.wake)();
    }
}

impl Inside {
    /// The core takes up to so many bytes of what is offered, and hears of messages that are whole. Says how many.
    pub(super) fn take_offered(&mut self, bytes_max: usize) -> usize {
        let mut taken = 0;
        for coming in self.coming.values_mut() {
            while taken < bytes_max
                && let Some(piece) = coming.offered.front_mut()
            {
                let part = piece.split_to(piece.len().min(bytes_max - taken));
                if piece.is_empty() {
                    coming.offered.pop_front();
                }
                taken += part.len();
                coming.taken.push(part);
            }
        }
        self.is_given_up = false;
        let whole = |_: &DeliveryId, coming: &mut Coming| coming.is_whole && coming.offered.is_empty();
        for (id, Coming { link, taken, .. }) in self.coming.extract_if(.., whole) {
            self.arrived += 1;
            self.events.push_back(Event::Delivery(delivery(link, id, taken, None)));
        }
        taken
    }
}

/// Whether a message of that length may come.
fn check_len(len: u64, len_max: u64) -> Result<(), Option<Failure>> {
    if len <= len_max {
        return Ok(());
    }
    let detail = format!("a message is longer than the {len_max} bytes that may be");
    Err(Some(Refusal::new(reason::MSG_TOO_BIG_FOR_Q, detail).into()))
}
