//! Checkpoints: what is live is carried forward, so that old segments can go.

use std::cmp::Reverse;
use std::time::Instant;

use super::bodies::{READ_AHEAD_MAX, ask_for, wanted_of};
use super::errors::JournalError;
use super::journal::{Mark, MarkKind};
use super::messages::State;
use super::reads::{Reading, Wanted, What};
use super::{Store, mark_freed, mark_ready};
use crate::message::MessageId;
use crate::record::Record;

impl Store {
    /// Takes what the log has to say, makes messages available, and writes a checkpoint when one is due.
    pub(super) fn collect(&mut self, now: Instant) -> Result<(), JournalError> {
        let synced_before = self.journal.synced;
        let mut marks = self.journal.poll(now)?;
        for mark in marks.drain(..) {
            if mark.kind == MarkKind::Object {
                self.objects.placed(mark.id, mark.at);
                continue;
            }
            let Some(entry) = self.messages.get_mut(mark.slot).filter(|entry| entry.id == mark.id) else {
                continue;
            };
            if mark.kind != MarkKind::Held {
                entry.at = mark.at;
            }
            if mark.kind == MarkKind::Moved {
                continue;
            }
            if mark.kind == MarkKind::Replaced {
                self.replaced_for_good(mark.id);
                continue;
            }
            let Some(queue) = self.queues.get_mut(&entry.queue()) else { continue };
            queue.status.unsynced -= 1;
            entry.state = if self.delays.holds(entry.id) { State::Delayed } else { State::Available };
            self.evictable.synced(entry);
            if entry.state == State::Delayed {
                continue;
            }
            if entry.expires_at_ms <= self.swept_ms {
                self.expiries.push(Reverse((entry.expires_at_ms, entry.id)));
            }
            queue.unlock(entry.lane, entry.index, entry.id);
            mark_ready(queue, &mut self.ready);
            if queue.arrived(entry.priority) {
                self.arrived.push(queue.id);
            }
        }
        self.journal.recycle(marks);
        self.journal.failure()?;
        if self.reads.is_waiting() {
            self.collect_reads(now)?;
        }
        let may_be_due = self.journal.synced > synced_before || self.journal.has_refused();
        if may_be_due && self.carrying.is_none() && self.journal.checkpoint_due(&self.messages, &self.limits) {
            self.checkpoint(false)?;
        }
        if self.journal.synced > synced_before
            && self.journal.backlog_bytes() <= self.limits.backlog_bytes_max / 2
            && std::mem::take(self.backlogged.get_mut())
        {
            for queue in self.queues.values_mut() {
                mark_freed(queue, &mut self.freed);
            }
        }
        Ok(())
    }

    /// Takes what the log has read, and goes on with what waited for it.
    pub(super) fn collect_reads(&mut self, now: Instant) -> Result<(), JournalError> {
        let mut ready = Vec::new();
        let any = self.reads.collect(now, &mut self.journal, &mut ready);
        for queue in ready {
            if let Some(queue) = self.queues.get_mut(&queue) {
                mark_ready(queue, &mut self.ready);
            }
        }
        if self.carrying.is_some() && (any || !self.reads.is_waiting()) { self.checkpoint(false) } else { Ok(()) }
    }

    /// Carries the oldest definitions and live messages forward and names all queues and notes again, so that the log
    /// before can be let go once this is synced. What has expired is not carried. Where something that is to be carried
    /// has to be read back first, the checkpoint goes on when that has come.
    pub(super) fn checkpoint(&mut self, clean: bool) -> Result<(), JournalError> {
        if !clean && !self.carry()? {
            return Ok(());
        }
        let at = self.journal.open_at();
        for queue in self.queues.values().filter(|queue| !queue.attributes.temporary) {
            let record = Record::Defined { queue: queue.id, name: &queue.name };
            match self.journal.admit(record.head_bytes(), 0, 0) {
                Ok(()) => self.journal.append(&record),
                // What is there stays there; the next checkpoint tries again.
                Err(JournalError::Full | JournalError::Unavailable { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        let mut failed = None;
        let journal = &mut self.journal;
        let all = self.key_sets.write_used(|record| {
            failed = journal.admit(record.head_bytes(), 0, 0).err();
            if failed.is_none() {
                journal.append(record);
            }
            failed.is_none()
        });
        match failed {
            None => debug_assert!(all),
            Some(JournalError::Full | JournalError::Unavailable { .. }) => return Ok(()),
            Some(error) => return Err(error),
        }
        for (name, value) in self.notes.from("") {
            let record = Record::Noted { name, value };
            match self.journal.admit(record.head_bytes(), 0, 0) {
                Ok(()) => self.journal.append(&record),
                Err(JournalError::Full | JournalError::Unavailable { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        let record =
            Record::Checkpoint { next_id: MessageId(self.next_id).number(), next_queue: self.next_queue, clean };
        match self.journal.admit(record.head_bytes(), 0, 0) {
            Ok(()) => self.journal.append(&record),
            Err(JournalError::Full | JournalError::Unavailable { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let objects_at = self.objects.oldest().map(|(_, object)| object.batch_at);
        self.journal.checkpointed(at, &self.messages, objects_at);
        Ok(())
    }

    /// Carries definitions forward that are older than every live message, where the log has become much longer than
    /// all of them. False where one has to be read back first.
    pub(super) fn carry_objects(&mut self) -> Result<bool, JournalError> {
        let is_short = self.journal.is_short();
        if !self.objects.may_be_carried(self.journal.log_bytes(), is_short, &self.limits) {
            return Ok(true);
        }
        let keep = if is_short { self.limits.reserve_bytes / 2 } else { self.limits.reserve_bytes };
        let messages_at = self.journal.oldest(&self.messages).map_or(u64::MAX, |(_, at)| at);
        let begins = self.journal.open_at();
        while let Some((name, object)) = self.objects.oldest() {
            let (Some(at), true) = (object.at, object.batch_at < begins.min(messages_at)) else { break };
            let (name, bytes, crc) = (name.clone(), object.bytes as usize, object.crc);
            let what = What::Object(object.number());
            // What can't be read stays where it is, and the log behind it with it.
            let text = match self.reads.get(Wanted { what, at, bytes, queue: None }, &mut self.journal) {
                Ok(Reading::There(text)) if crc32c::crc32c(&text) == crc => text,
                Ok(Reading::Away) => {
                    let next = self.objects.in_order().skip(1).take(READ_AHEAD_MAX);
                    let wanted = next.filter_map(|(_, object)| {
                        let (what, bytes) = (What::Object(object.number()), object.bytes as usize);
                        Some(Wanted { what, at: object.at?, bytes, queue: None })
                    });
                    ask_for(wanted, &mut self.reads, &mut self.journal);
                    return Ok(false);
                }
                Ok(Reading::There(_)) | Err(_) => {
                    self.reads.forget(what);
                    break;
                }
            };
            match self.journal.admit(Record::ObjectGone { name: &name }.head_bytes(), bytes, keep) {
                Ok(()) => {}
                Err(JournalError::Full | JournalError::Unavailable { .. }) => break,
                Err(error) => return Err(error),
            }
            self.reads.forget(what);
            self.append_object(&name, &text);
        }
        Ok(true)
    }

    /// Carries the oldest forward. False where something has to be read back first.
    pub(super) fn carry(&mut self) -> Result<bool, JournalError> {
        let terms = self.carrying.take();
        let (mut budget, keep) = terms.unwrap_or_else(|| self.journal.carry_terms(&self.limits));
        if !self.carry_objects()? {
            self.carrying = Some((budget, keep));
            return Ok(false);
        }
        while budget > 0 {
            let Some((slot, _)) = self.journal.oldest(&self.messages) else {
                break;
            };
            let entry = &self.messages[slot];
            if entry.expires_at_ms <= self.looked_ms && matches!(entry.state, State::Available | State::Delayed) {
                match self.expire(slot) {
                    Ok(()) => continue,
                    Err(JournalError::Full | JournalError::Unavailable { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
            let body = match &entry.body {
                Some(body) => body.chunks().to_vec(),
                None => {
                    let wanted = Wanted { queue: None, ..wanted_of(entry, entry.body_bytes as usize) };
                    match self.reads.get(wanted, &mut self.journal) {
                        Ok(Reading::There(bytes)) => vec![bytes],
                        Ok(Reading::Away) => {
                            let messages = &self.messages;
                            let next = self.journal.next_oldest(messages, READ_AHEAD_MAX);
                            let next = next.into_iter().map(|slot| &messages[slot]);
                            let next = next.filter(|entry| entry.body.is_none());
                            let next = next.map(|entry| wanted_of(entry, entry.body_bytes as usize));
                            let next = next.map(|wanted| Wanted { queue: None, ..wanted }).collect::<Vec<_>>();
                            ask_for(next.into_iter(), &mut self.reads, &mut self.journal);
                            self.carrying = Some((budget, keep));
                            return Ok(false);
                        }
                        // A body that can't be read stays where it is, and the log behind it with it.
                        Err(_) => break,
                    }
                }
            };
            let entry = &self.messages[slot];
            let record = entry.moved_record();
            let delayed =
                self.delays.until(entry.id).map(|until_ms| Record::Delayed { id: MessageId(entry.id), until_ms });
            let keys = entry.keys;
            let heads = record.head_bytes()
                + self.key_sets.definition_bytes_of(keys)
                + delayed.as_ref().map_or(0, Record::head_bytes);
            match self.journal.admit(heads, entry.body_bytes as usize, keep) {
                Ok(()) => {}
                Err(JournalError::Full | JournalError::Unavailable { .. }) => break,
                Err(error) => return Err(error),
            }
            self.key_sets.define(keys, |record| _ = self.journal.append(record));
            let at = self.journal.append_body(&record, &body);
            if let Some(delayed) = &delayed {
                self.journal.append(delayed);
            }
            self.journal.mark(Mark { slot, id: entry.id, kind: MarkKind::Moved, at });
            self.journal.carried();
            budget = budget.saturating_sub(entry.journal_bytes());
        }
        Ok(true)
    }
}
