//! Where each batch lies in the stream, and which messages of the stream count.
//!
//! A message of the stream that follows a newer epoch, or begins before the last batch ended, does not count: it is a
//! second copy, or one that a deposed owner sent. One that begins further on shows that something is missing.

use std::collections::VecDeque;
use std::sync::Arc;

use bulla_queue::log::Position;

use crate::frame::{FRAME_HEADER_BYTES, Frame, FrameError, Kind, Part, parts};

/// A batch in the stream.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) sequence: u64,
    pub(crate) head_bytes: u32,
    pub(crate) body_bytes: u32,
    /// Empty where the message has all of it.
    pub(crate) parts: Arc<[Part]>,
}

impl Entry {
    pub(crate) fn end(&self) -> u64 {
        self.at + u64::from(self.head_bytes) + u64::from(self.body_bytes)
    }

    /// The first message of the stream that belongs to it.
    pub(crate) fn first_sequence(&self) -> u64 {
        self.parts.iter().map(|part| part.sequence).min().unwrap_or(self.sequence).min(self.sequence)
    }
}

/// Why a message of the stream can't be taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Misfit {
    /// It is no frame.
    Frame(FrameError),
    /// An epoch record under the log's subject, or something else under the epoch's.
    Subject,
    /// Batches before it are missing: it begins there.
    Gap(u64),
}

/// What is known of a log.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: VecDeque<Entry>,
    /// Where the log ends.
    pub(crate) end: u64,
    /// The newest epoch that was seen.
    pub(crate) epoch: u64,
    /// Who claimed it.
    pub(crate) owner: String,
    /// The sequence of its record.
    pub(crate) epoch_sequence: u64,
    /// The first message of the stream that was not looked at.
    pub(crate) next_sequence: u64,
    /// A batch was seen: the log has a beginning.
    begun: bool,
}

impl Table {
    /// Where the oldest batch begins.
    pub(crate) fn start(&self) -> u64 {
        self.entries.front().map_or(self.end, |entry| entry.at)
    }

    /// Takes the next message of the stream. Returns the batch that it is, if it is one that counts.
    pub(crate) fn take(
        &mut self,
        sequence: u64,
        is_epoch: bool,
        message: &[u8],
        group: &str,
    ) -> Result<Option<Entry>, Misfit> {
        let (frame, payload) = Frame::decode(message, group).map_err(Misfit::Frame)?;
        if (frame.kind == Kind::Epoch) != is_epoch {
            return Err(Misfit::Subject);
        }
        if is_epoch {
            self.take_epoch(sequence, &frame, payload)?;
            return Ok(None);
        }
        if frame.epoch < self.epoch || (self.begun && frame.at < self.end) {
            self.next_sequence = sequence.saturating_add(1);
            return Ok(None);
        }
        if self.begun && frame.at > self.end {
            return Err(Misfit::Gap(frame.at));
        }
        let parts = if frame.kind == Kind::Parts { parts(payload).collect() } else { Arc::default() };
        let entry = Entry { at: frame.at, sequence, head_bytes: frame.head_bytes, body_bytes: frame.body_bytes, parts };
        self.epoch = frame.epoch;
        self.append(entry.clone());
        Ok(Some(entry))
    }

    fn take_epoch(&mut self, sequence: u64, frame: &Frame, payload: &[u8]) -> Result<(), Misfit> {
        // How far the claimer had read: what it saw must be there.
        if self.begun && frame.at > self.end {
            return Err(Misfit::Gap(frame.at));
        }
        if frame.epoch > self.epoch || self.epoch_sequence == 0 {
            self.epoch = self.epoch.max(frame.epoch);
            self.epoch_sequence = sequence;
            self.owner = String::from_utf8_lossy(payload).into_owned();
        }
        self.next_sequence = sequence.saturating_add(1);
        Ok(())
    }

    /// The owner's own batch is in the stream.
    pub(crate) fn append(&mut self, entry: Entry) {
        self.begun = true;
        self.end = entry.end();
        self.next_sequence = entry.sequence.saturating_add(1);
        self.entries.push_back(entry);
    }

    /// The batch that has a position, where that many bytes lie in it.
    pub(crate) fn find(&self, at: Position, bytes: usize) -> Option<Entry> {
        let index = self.entries.partition_point(|entry| entry.at <= at.0).checked_sub(1)?;
        let entry = self.entries.get(index)?;
        let is_behind_header = at.0 - entry.at >= FRAME_HEADER_BYTES as u64;
        let ends_inside = at.0.checked_add(bytes as u64).is_some_and(|end| end <= entry.end());
        (is_behind_header && ends_inside).then(|| entry.clone())
    }

    /// Forgets batches that end at or before a position, but not the last one, which says where the log ends. Returns
    /// the oldest batch that is left.
    pub(crate) fn release(&mut self, before: Position) -> Option<Entry> {
        while self.entries.len() > 1 && self.entries.front().is_some_and(|entry| entry.end() <= before.0) {
            self.entries.pop_front();
        }
        self.entries.front().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "G";

    fn frame(kind: Kind, epoch: u64, at: u64, payload: &[u8]) -> Vec<u8> {
        let (head_bytes, body_bytes) = match kind {
            Kind::Epoch => (0, payload.len() as u32),
            Kind::Whole | Kind::Parts => (40, payload.len() as u32),
        };
        let payload_crc = crc32c::crc32c(payload);
        let frame = Frame { kind, epoch, at, head_bytes, body_bytes, payload_crc };
        [&frame.encode(GROUP)[..], payload].concat()
    }

    fn whole(epoch: u64, at: u64) -> Vec<u8> {
        frame(Kind::Whole, epoch, at, &[1; 60])
    }

    fn claim(epoch: u64, at: u64) -> Vec<u8> {
        frame(Kind::Epoch, epoch, at, b"QM")
    }

    fn take(table: &mut Table, sequence: u64, message: &[u8]) -> Result<Option<Entry>, Misfit> {
        let is_epoch = message[6] == 3;
        table.take(sequence, is_epoch, message, GROUP)
    }

    /// Positions of the batches that count.
    fn taken(messages: &[Vec<u8>]) -> Result<Vec<u64>, Misfit> {
        let mut table = Table::default();
        let mut found = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            found.extend(take(&mut table, index as u64 + 1, message)?.map(|entry| entry.at));
        }
        Ok(found)
    }

    #[test]
    fn a_second_copy_does_not_count() {
        assert_eq!(
            taken(&[claim(1, 0), whole(1, 0), whole(1, 100), whole(1, 0), whole(1, 200)]),
            Ok(vec![0, 100, 200])
        );
    }

    #[test]
    fn a_batch_behind_a_newer_epoch_does_not_count() {
        let messages = [claim(1, 0), whole(1, 0), claim(2, 100), whole(1, 100), whole(2, 100)];
        assert_eq!(taken(&messages), Ok(vec![0, 100]));
        let mut table = Table::default();
        for (index, message) in messages.iter().enumerate() {
            take(&mut table, index as u64 + 1, message).unwrap();
        }
        assert_eq!(table.entries.back().map(|entry| entry.sequence), Some(5), "the newer owner's is the one");
    }

    #[test]
    fn a_claim_is_one_only_under_its_subject() {
        let mut table = Table::default();
        assert_eq!(table.take(1, false, &claim(1, 0), GROUP).map(|_| ()), Err(Misfit::Subject));
        assert_eq!(table.take(1, true, &whole(1, 0), GROUP).map(|_| ()), Err(Misfit::Subject));
    }

    #[test]
    fn a_missing_batch_is_a_gap() {
        assert_eq!(taken(&[claim(1, 0), whole(1, 0), whole(1, 200)]), Err(Misfit::Gap(200)));
        assert_eq!(taken(&[claim(1, 0), whole(1, 0), claim(2, 200)]), Err(Misfit::Gap(200)));
    }

    #[test]
    fn a_log_may_begin_anywhere_and_a_claim_may_know_less_than_there_is() {
        assert_eq!(taken(&[whole(3, 500), claim(4, 500), whole(4, 600)]), Ok(vec![500, 600]));
    }

    #[test]
    fn what_is_read_lies_in_one_batch() {
        let mut table = Table::default();
        take(&mut table, 1, &whole(1, 0)).unwrap();
        take(&mut table, 2, &whole(1, 100)).unwrap();
        assert!(table.find(Position(40), 60).is_some());
        assert!(table.find(Position(40), 61).is_none(), "goes on into the next batch");
        assert!(table.find(Position(39), 1).is_none(), "a header is nothing to read");
        assert!(table.find(Position(100), 40).is_none());
        assert!(table.find(Position(u64::MAX), 1).is_none());
        assert_eq!(table.release(Position(u64::MAX)).map(|entry| entry.at), Some(100), "the last one stays");
        assert!(table.find(Position(40), 60).is_none());
    }
}
