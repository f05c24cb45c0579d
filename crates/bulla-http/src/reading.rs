//! A body while it is read: out of its framing, in pieces of a useful size.

use crate::chunks::Chunks;
use crate::event::{Event, RequestId};
use crate::limits::{DROPPED_BYTES_MAX, Limits};
use crate::lines::Scan;
use crate::refusal::Refusal;
use bytes::Bytes;
use std::collections::VecDeque;

/// Pieces below this size are gathered: a body that comes byte by byte is not held as an allocation for each.
const PIECE_BYTES_MIN: usize = 16 << 10;

/// What is read next.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The head of a request.
    Head(Scan),
    /// The body of one.
    Body(BodyReading),
    /// Nothing any more: the connection closes behind the last answer.
    Nothing {
        /// Whether bytes came nevertheless.
        unread: bool,
    },
}

/// A body that has not ended.
#[derive(Debug)]
pub(crate) struct BodyReading {
    pub(crate) id: RequestId,
    framing: Framing,
    pub(crate) gate: Gate,
    /// Bytes of it that have come.
    pub(crate) bytes: u64,
    /// Those of them that are no event yet.
    gathered: Vec<u8>,
}

#[derive(Debug)]
enum Framing {
    /// So many bytes are to come.
    Counted(u64),
    Chunked(Chunks),
}

/// What becomes of the bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// They wait until the host wants them. `100 Continue` is asked for, or not.
    Shut { expects_continue: bool },
    /// They are handed out.
    Open,
    /// The request is answered: so many may be thrown away.
    Dropped { left: u64 },
}

/// How far [`BodyReading::take`] has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The body ends behind so many bytes.
    Ended(usize),
    /// All bytes were taken, and more must come.
    NeedsMore,
    /// More came than is thrown away for the sake of the connection.
    TooMuchDropped,
}

impl BodyReading {
    /// Of a length that is known.
    pub(crate) fn counted(id: RequestId, bytes: u64, gate: Gate) -> Self {
        Self { id, framing: Framing::Counted(bytes), gate, bytes: 0, gathered: Vec::new() }
    }

    /// In chunks.
    pub(crate) fn chunked(id: RequestId, gate: Gate) -> Self {
        Self { id, framing: Framing::Chunked(Chunks::default()), gate, bytes: 0, gathered: Vec::new() }
    }

    /// The request is answered before its end: what comes of it is thrown away. False where more than a little is to
    /// come, or may never come.
    pub(crate) fn drop_rest(&mut self) -> bool {
        let may_never_come = self.gate == Gate::Shut { expects_continue: true };
        self.gate = Gate::Dropped { left: DROPPED_BYTES_MAX };
        self.gathered = Vec::new();
        !may_never_come && !matches!(self.framing, Framing::Counted(left) if left > DROPPED_BYTES_MAX)
    }

    /// Takes bytes out of the framing. Hot path for large bodies: one copy, out of the room that was read into.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        events: &mut VecDeque<Event>,
    ) -> Result<Progress, Refusal> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let (used, data, ended) = match &mut self.framing {
                Framing::Counted(left) => {
                    let length = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= length as u64;
                    (length, rest.get(..length).unwrap_or_default(), *left == 0)
                }
                Framing::Chunked(chunks) => {
                    let taken = chunks.take(rest, limits)?;
                    (taken.used, taken.data, chunks.is_done())
                }
            };
            at += used;
            if !self.keep(data, ended, events) {
                return Ok(Progress::TooMuchDropped);
            }
            if ended {
                return Ok(Progress::Ended(at));
            }
            if at == bytes.len() {
                return Ok(Progress::NeedsMore);
            }
        }
    }

    /// Hands data out, gathers it or throws it away. False where that was too much to throw away.
    fn keep(&mut self, data: &[u8], ended: bool, events: &mut VecDeque<Event>) -> bool {
        self.bytes += data.len() as u64;
        if let Gate::Dropped { left } = &mut self.gate {
            return left.checked_sub(data.len() as u64).map(|rest| *left = rest).is_some();
        }
        let id = self.id;
        if self.gathered.is_empty() && (data.len() >= PIECE_BYTES_MIN || (ended && !data.is_empty())) {
            events.push_back(Event::Body { id, bytes: Bytes::copy_from_slice(data) });
            return true;
        }
        self.gathered.extend_from_slice(data);
        if self.gathered.len() >= PIECE_BYTES_MIN || (ended && !self.gathered.is_empty()) {
            // In a room of its size, for as long as the host keeps it.
            let bytes = std::mem::take(&mut self.gathered).into_boxed_slice();
            events.push_back(Event::Body { id, bytes: bytes.into() });
        }
        true
    }
}
