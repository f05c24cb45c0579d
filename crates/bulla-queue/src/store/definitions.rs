//! Queues that are made, altered and deleted, and the definitions of other objects.

use std::collections::HashSet;

use super::errors::{DefineError, ReadError};
use super::journal::{Mark, MarkKind};
use super::messages::{Kept, State};
use super::objects::{DefinitionUnit, QueueChange};
use super::{Store, mark_freed, mark_ready, notes};
use crate::log::Position;
use crate::message::{MessageId, QueueId, Ticket};
use crate::queue::{MESSAGE_BYTES_MAX, Queue, QueueAttributes};
use crate::record::{QUEUE_NAME_BYTES_MAX, Record};

impl Store {
    /// Creates a queue, or applies the attributes to the one of that name. Returns its number either way.
    ///
    /// # Errors
    /// [`DefineError::Name`], [`DefineError::MessageBytes`], [`DefineError::Temporary`], [`DefineError::Journal`].
    pub fn define(&mut self, name: &str, attributes: QueueAttributes) -> Result<QueueId, DefineError> {
        if let Some(&id) = self.names.get(name) {
            self.alter(id, attributes)?;
            return Ok(id);
        }
        check_attributes(&attributes)?;
        if name.is_empty() || name.len() > QUEUE_NAME_BYTES_MAX {
            return Err(DefineError::Name);
        }
        if !attributes.temporary {
            let record = Record::Defined { queue: QueueId::new(self.number, self.next_queue), name };
            self.journal.admit(record.head_bytes(), 0, self.limits.reserve_bytes)?;
        }
        Ok(self.create_admitted(name, attributes))
    }

    pub(super) fn create_admitted(&mut self, name: &str, attributes: QueueAttributes) -> QueueId {
        let id = QueueId::new(self.number, self.next_queue);
        if !attributes.temporary {
            self.journal.append(&Record::Defined { queue: id, name });
        }
        self.next_queue += 1;
        self.names.insert(name.to_owned(), id);
        self.queues.insert(id, Queue::new(id, name, attributes));
        id
    }

    /// Gives a queue other attributes. Messages on it stay, whatever their number and length.
    ///
    /// # Errors
    /// [`DefineError::Unknown`], [`DefineError::MessageBytes`], [`DefineError::Temporary`].
    pub fn alter(&mut self, queue: QueueId, attributes: QueueAttributes) -> Result<(), DefineError> {
        check_attributes(&attributes)?;
        let queue = self.queues.get_mut(&queue).ok_or(DefineError::Unknown)?;
        if queue.attributes.temporary != attributes.temporary {
            return Err(DefineError::Temporary);
        }
        let relane = queue.attributes.delivery_sequence != attributes.delivery_sequence;
        let before = std::mem::replace(&mut queue.attributes, attributes);
        if relane {
            self.messages.relane(queue);
            queue.forget_passed();
        }
        if (before.depth_watch, before.max_depth) != (attributes.depth_watch, attributes.max_depth) {
            queue.watch();
        }
        if before.counted_priority != attributes.counted_priority {
            let slots = queue.lanes.iter().flat_map(|lane| lane.slots(None)).map(|(slot, _)| &self.messages[slot]);
            let there = slots
                .filter(|entry| matches!(entry.state, State::Available | State::Locked))
                .map(|entry| entry.priority);
            let there: Vec<u8> = there.collect();
            queue.count_from(there.into_iter());
        }
        if before.user_share.is_some() != attributes.user_share.is_some() {
            let slots: Vec<_> = queue.lanes.iter().flat_map(|lane| lane.slots(None)).collect();
            let there = slots.into_iter().map(|(slot, _)| &self.messages[slot]);
            queue.count_users(there.map(|entry| (entry.user.as_ref(), entry.body_bytes)));
        }
        // Both may have changed: a higher MAXDEPTH is room, a new order is something to look at.
        let id = queue.id;
        mark_ready(queue, &mut self.ready);
        if queue.room() > 0 {
            mark_freed(queue, &mut self.freed);
        }
        debug_assert!(self.queues.contains_key(&id));
        Ok(())
    }

    /// Removes a queue, with `purge` together with everything on it. Whether it is open (2042) is the caller's to know.
    ///
    /// # Errors
    /// [`DefineError::Unknown`], [`DefineError::NotEmpty`], [`DefineError::Journal`].
    pub fn delete(&mut self, queue: QueueId, purge: bool) -> Result<Ticket, DefineError> {
        let found = self.queues.get(&queue).ok_or(DefineError::Unknown)?;
        if found.status.depth > 0 && !purge {
            return Err(DefineError::NotEmpty { depth: found.status.depth });
        }
        if !found.attributes.temporary {
            self.journal.admit(Record::Deleted(queue).head_bytes(), 0, 0)?;
        }
        Ok(self.delete_admitted(queue))
    }

    pub(super) fn delete_admitted(&mut self, queue: QueueId) -> Ticket {
        let mut ticket = Ticket::NOW;
        if let Some(found) = self.queues.remove(&queue) {
            if !found.attributes.temporary {
                ticket = self.journal.append(&Record::Deleted(queue));
            }
            self.names.remove(&found.name);
            let slots: Vec<_> = found.lanes.iter().flat_map(|lane| lane.slots(None)).collect();
            for (slot, _) in slots {
                let entry = self.messages.remove(slot);
                self.forget(&entry);
            }
            self.index_entries -= found.index.map_or(0, |index| index.entries());
            self.indexed.retain(|known| *known != queue);
        }
        ticket
    }

    /// One unit of definitions: queues come, change and go together with the definitions of objects, or nothing
    /// happens. It is to be confirmed once synced past the ticket. No dispatcher's turn waits for its batch: a thread
    /// of the log writes it, where the log has one.
    ///
    /// # Errors
    /// See [`DefineError`]; nothing is changed.
    pub fn commit_definitions(&mut self, unit: &DefinitionUnit<'_>) -> Result<Ticket, DefineError> {
        let (mut heads, bodies) = self.objects.admit(unit.objects)?;
        heads += self.notes.admit(unit.notes, &self.limits)?;
        let mut gone = HashSet::new();
        for change in unit.queues {
            match change {
                QueueChange::Delete { name, purge } => {
                    let queue = self.names.get(*name).ok_or(DefineError::Unknown)?;
                    let found = self.queues.get(queue).ok_or(DefineError::Unknown)?;
                    if found.status.depth > 0 && !purge {
                        return Err(DefineError::NotEmpty { depth: found.status.depth });
                    }
                    heads += Record::Deleted(*queue).head_bytes();
                    gone.insert(*name);
                }
                QueueChange::Clear { name } => {
                    let queue = self.names.get(*name).ok_or(DefineError::Unknown)?;
                    let journaled = |slot: &crate::lane::Slot| self.messages[*slot].kept == Kept::Journal;
                    let removals = self.clearable(*queue)?.into_iter().filter(journaled).count();
                    heads += removals * Record::Removed(MessageId(0)).head_bytes();
                }
                QueueChange::Define { name, attributes } => {
                    check_attributes(attributes)?;
                    let there = self.names.get(*name).filter(|_| !gone.contains(name));
                    if let Some(found) = there.and_then(|queue| self.queues.get(queue)) {
                        if found.attributes.temporary != attributes.temporary {
                            return Err(DefineError::Temporary);
                        }
                        continue;
                    }
                    if name.is_empty() || name.len() > QUEUE_NAME_BYTES_MAX {
                        return Err(DefineError::Name);
                    }
                    heads += Record::Defined { queue: QueueId::new(self.number, 0), name }.head_bytes();
                }
            }
        }
        self.journal.admit(heads, bodies, unit.reserve.keep(&self.limits))?;
        // From here on nothing refuses any more.
        let mut ticket = Ticket::NOW;
        for change in unit.queues {
            match change {
                QueueChange::Delete { name, .. } => {
                    if let Some(&queue) = self.names.get(*name) {
                        ticket = ticket.max(self.delete_admitted(queue));
                    }
                }
                QueueChange::Clear { name } => {
                    // The queue may have gone in the same unit, with its messages.
                    let slots = self.names.get(*name).map(|queue| self.clearable(*queue)).transpose()?;
                    for slot in slots.into_iter().flatten() {
                        ticket = ticket.max(self.remove_admitted(slot));
                    }
                }
                QueueChange::Define { name, attributes } => match self.names.get(*name) {
                    Some(&queue) => self.alter(queue, *attributes)?,
                    None => drop(self.create_admitted(name, *attributes)),
                },
            }
        }
        for &(name, text) in unit.objects {
            ticket = ticket.max(match text {
                Some(text) => self.append_object(name, &bytes::Bytes::copy_from_slice(text)),
                None => {
                    self.objects.remove(name);
                    self.journal.append(&Record::ObjectGone { name })
                }
            });
        }
        for &(name, value) in unit.notes {
            self.notes.set(name, value);
            ticket = ticket.max(self.journal.append(&notes::record(name, value)));
        }
        self.journal.set_patient();
        Ok(ticket)
    }

    /// Writes a definition, which has been admitted, into the open batch.
    pub(super) fn append_object(&mut self, name: &str, text: &bytes::Bytes) -> Ticket {
        let body_bytes = u32::try_from(text.len()).expect("OBJECT_BYTES_MAX is far below 4 GiB");
        let body_crc = crc32c::crc32c(text);
        let number = self.objects.set(name, body_bytes, body_crc, self.journal.open_at());
        let record = Record::Object { name, body_bytes, body_crc };
        let at = self.journal.append_body(&record, std::slice::from_ref(text));
        self.journal.mark(Mark { slot: 0, id: number, kind: MarkKind::Object, at })
    }

    /// How many objects are defined.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// The names of all objects that are defined.
    pub fn object_names(&self) -> impl Iterator<Item = &str> {
        self.objects.names()
    }

    /// Whether an object is defined.
    #[must_use]
    pub fn has_object(&self, name: &str) -> bool {
        self.objects.contains(name)
    }

    /// Reads the definitions of all objects, in the order in which they were written. Waits for the disk; for the
    /// start, when everything is durable.
    ///
    /// # Errors
    /// The log can't be read, or a definition is not what was written: with the name of the object.
    pub fn read_objects(&mut self, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), (String, ReadError)> {
        let mut text = Vec::new();
        for (name, object) in self.objects.in_order() {
            let Some(at) = object.at.map(Position) else { continue };
            let read = self.journal.read_now(at, object.bytes as usize, &mut text).map_err(ReadError::Log);
            read.map_err(|error| (name.to_owned(), error))?;
            if crc32c::crc32c(&text) != object.crc {
                return Err((name.to_owned(), ReadError::DamagedObject { at }));
            }
            each(name, &text);
        }
        Ok(())
    }

    /// Removes every message that is not locked and not under way.
    ///
    /// # Errors
    /// [`DefineError::Unknown`]; [`DefineError::Journal`], when only a part of them is gone.
    pub fn clear(&mut self, queue: QueueId) -> Result<Ticket, DefineError> {
        let mut ticket = Ticket::NOW;
        for slot in self.clearable(queue)? {
            ticket = ticket.max(self.remove(slot)?);
        }
        Ok(ticket)
    }

    /// The messages of a queue that are not locked and not under way.
    pub(super) fn clearable(&self, queue: QueueId) -> Result<Vec<crate::lane::Slot>, DefineError> {
        let found = self.queues.get(&queue).ok_or(DefineError::Unknown)?;
        let slots = found.lanes.iter().flat_map(|lane| lane.slots(None));
        let is_clearable =
            |(slot, free): &(crate::lane::Slot, bool)| *free || self.messages[*slot].state == State::Delayed;
        Ok(slots.filter(is_clearable).map(|(slot, _)| slot).collect())
    }
}

pub(super) fn check_attributes(attributes: &QueueAttributes) -> Result<(), DefineError> {
    if attributes.max_message_bytes > MESSAGE_BYTES_MAX {
        return Err(DefineError::MessageBytes { asked: attributes.max_message_bytes });
    }
    Ok(())
}
