//! Several puts and removals as one.

use std::collections::{HashMap, HashSet};

use super::errors::PutError;
use super::messages::{IdBuildHasher, Kept};
use super::{Store, admit, notes, put_head_bytes};
use crate::message::{Keys, Message, MessageId, QueueId, Ticket};
use crate::record::{Record, padded};

impl Store {
    /// One unit of work: takes `id`, which is locked, from its queue and puts `replacement` on `to`. What was
    /// persistent stays persistent, and what a key opens is opened by that still. PUT(DISABLED) on `to` refuses it like
    /// any other put.
    ///
    /// # Errors
    /// See [`PutError`]; `id` stays locked where it is.
    pub fn transfer(&mut self, id: MessageId, to: QueueId, mut replacement: Message) -> Result<Ticket, PutError> {
        let slot = self.locked(id).ok_or_else(|| self.not_locked(id))?;
        replacement.persistent |= self.messages[slot].kept == Kept::Journal;
        if replacement.keys == Keys::None {
            replacement.keys = self.key_sets.keys(self.messages[slot].keys);
        }
        self.commit(vec![(to, replacement)], &[id], &[])
    }

    /// One unit of work: all puts, all removals and all notes, or none. If anything in it is journaled, the puts become
    /// available, and the unit is to be confirmed, once synced past the ticket. Notes always are: `Some` sets one,
    /// `None` takes it away; of two of one name in a unit the later counts. A unit without puts may use the reserve.
    ///
    /// # Errors
    /// See [`PutError`]; nothing is put, every message stays locked, and the notes are as they were.
    pub fn commit(
        &mut self,
        puts: Vec<(QueueId, Message)>,
        removals: &[MessageId],
        notes: &[(&str, Option<&[u8]>)],
    ) -> Result<Ticket, PutError> {
        self.key_sets.tidy();
        let mut heads = self.notes.admit(notes, &self.limits)?;
        let mut bodies = 0;
        let mut journaled = !notes.is_empty();
        let mut slots = Vec::with_capacity(removals.len());
        let mut seen = HashSet::with_capacity_and_hasher(removals.len(), IdBuildHasher::default());
        for &id in removals {
            let slot = self.locked(id).filter(|_| seen.insert(id.0)).ok_or_else(|| self.not_locked(id))?;
            slots.push(slot);
            if self.messages[slot].kept == Kept::Journal {
                heads += Record::Removed(id).head_bytes();
                journaled = true;
            }
        }
        let mut sizes = Vec::with_capacity(puts.len());
        let mut before: HashMap<QueueId, usize, IdBuildHasher> = HashMap::default();
        for (queue, message) in &puts {
            let found = self.queues.get(queue).ok_or_else(|| self.unknown(*queue))?;
            let before = before.entry(*queue).or_default();
            let bytes = admit(found, message, *before)?;
            *before += 1;
            let persistent = message.persistent && !found.attributes.temporary;
            if persistent {
                heads += put_head_bytes(message) + self.key_sets.definition_bytes(&message.keys);
                bodies += padded(bytes as usize);
                journaled = true;
            }
            sizes.push((bytes, persistent));
        }
        let mut ready = Vec::with_capacity(puts.len());
        let mut refused = None;
        for ((queue, message), (bytes, persistent)) in puts.into_iter().zip(sizes) {
            match self.keep(&message.body, bytes, persistent) {
                Ok(kept) => ready.push((queue, message, bytes, kept)),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if refused.is_none() && journaled {
            let keep = if ready.is_empty() { 0 } else { self.limits.reserve_bytes };
            refused = self.journal.admit(heads, bodies, keep).err().map(PutError::from);
        }
        // From here on nothing refuses any more; up to here nothing but scratch space has been changed.
        if let Some(error) = refused {
            for (_, _, bytes, kept) in ready {
                self.unkeep(&kept, bytes);
            }
            return Err(error);
        }
        let mut ticket = Ticket::NOW;
        for (queue, message, bytes, kept) in ready {
            ticket = ticket.max(self.enter(queue, message, bytes, kept, journaled));
        }
        for slot in slots {
            ticket = ticket.max(self.remove_admitted(slot));
        }
        for &(name, value) in notes {
            self.notes.set(name, value);
            ticket = ticket.max(self.journal.append(&notes::record(name, value)));
        }
        Ok(ticket)
    }
}
