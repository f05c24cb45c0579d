//! Bytes of a message as they arrived.

use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a message, or of a part of one, as they arrived: never re-encoded, cheap to clone.
///
/// A message that came in one frame is one chunk; one that came in several frames is a list of them.
/// Cloning and slicing touch reference counts only.
#[derive(Clone)]
pub struct Payload(Chunks);

/// What a message says stays out of logs.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

#[derive(Clone)]
enum Chunks {
    One(Bytes),
    Many(Arc<Vec<Bytes>>),
}

impl Payload {
    /// An empty payload.
    pub const fn new() -> Self {
        Self(Chunks::One(Bytes::new()))
    }

    /// Length in bytes, all chunks together. Costs one addition a chunk.
    pub fn len(&self) -> usize {
        match &self.0 {
            Chunks::One(bytes) => bytes.len(),
            Chunks::Many(chunks) => chunks.iter().map(Bytes::len).sum(),
        }
    }

    /// Whether there is not a single byte.
    pub fn is_empty(&self) -> bool {
        self.chunks().iter().all(Bytes::is_empty)
    }

    /// The chunks, in order.
    pub fn chunks(&self) -> &[Bytes] {
        match &self.0 {
            Chunks::One(bytes) => std::slice::from_ref(bytes),
            Chunks::Many(chunks) => chunks,
        }
    }

    /// The chunk, where it is the only one.
    ///
    /// # Errors
    /// The payload again, where there are several.
    pub fn into_one(self) -> Result<Bytes, Payload> {
        match self.0 {
            Chunks::One(bytes) => Ok(bytes),
            many @ Chunks::Many(_) => Err(Self(many)),
        }
    }

    /// Gives each chunk away, in order.
    pub(crate) fn for_each_chunk(self, mut take: impl FnMut(Bytes)) {
        match self.0 {
            Chunks::One(bytes) => take(bytes),
            Chunks::Many(chunks) => chunks.iter().cloned().for_each(take),
        }
    }

    /// Appends a chunk; an empty one leaves no trace.
    pub fn push(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        match &mut self.0 {
            Chunks::One(first) if first.is_empty() => *first = chunk,
            Chunks::One(first) => {
                let first = std::mem::take(first);
                self.0 = Chunks::Many(Arc::new(vec![first, chunk]));
            }
            Chunks::Many(chunks) => Arc::make_mut(chunks).push(chunk),
        }
    }

    /// A part of the payload, without copying. A range that reaches past the end is cut there.
    pub fn slice(&self, range: Range<usize>) -> Payload {
        if let Chunks::One(bytes) = &self.0 {
            let end = range.end.min(bytes.len());
            let start = range.start.min(end);
            return Payload(Chunks::One(bytes.slice(start..end)));
        }
        let mut slice = Payload::new();
        let mut at = 0;
        for chunk in self.chunks() {
            let start = range.start.saturating_sub(at).min(chunk.len());
            let end = range.end.saturating_sub(at).min(chunk.len());
            if start < end {
                slice.push(chunk.slice(start..end));
            }
            at += chunk.len();
            if at >= range.end {
                break;
            }
        }
        slice
    }

    /// The payload as one run of bytes: free when it is one chunk, a copy otherwise.
    pub fn to_contiguous(&self) -> Bytes {
        match &self.0 {
            Chunks::One(bytes) => bytes.clone(),
            Chunks::Many(chunks) => {
                let mut all = BytesMut::with_capacity(self.len());
                for chunk in chunks.iter() {
                    all.extend_from_slice(chunk);
                }
                all.freeze()
            }
        }
    }

    /// The bytes of a range, borrowed where one chunk holds them. A range past the end is cut there.
    pub fn bytes_at(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        let mut at = 0;
        for chunk in self.chunks() {
            if range.start >= at && range.end <= at + chunk.len() {
                return Cow::Borrowed(chunk.get(range.start - at..range.end - at).unwrap_or_default());
            }
            at += chunk.len();
        }
        Cow::Owned(self.slice(range).to_contiguous().to_vec())
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(Chunks::One(bytes))
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(mut chunks: Vec<Bytes>) -> Self {
        chunks.retain(|chunk| !chunk.is_empty());
        match chunks.len() {
            0 => Self::new(),
            1 => Self(Chunks::One(chunks.swap_remove(0))),
            _ => Self(Chunks::Many(Arc::new(chunks))),
        }
    }
}

/// Equal when the bytes are equal, however they are cut into chunks.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |payload: &Payload| payload.chunks().to_vec().into_iter().flatten();
        self.len() == other.len() && bytes(self).eq(bytes(other))
    }
}

impl Eq for Payload {}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Payload {
        Payload::from(vec![Bytes::from_static(b"abc"), Bytes::from_static(b"de"), Bytes::from_static(b"fgh")])
    }

    #[test]
    fn slices_are_the_same_bytes_wherever_the_chunks_end() {
        let whole = b"abcdefgh";
        for start in 0..=8 {
            for end in start..=10 {
                let want = &whole[start..end.min(8)];
                assert_eq!(three().slice(start..end).to_contiguous(), want);
                assert_eq!(three().bytes_at(start..end).as_ref(), want);
                let one = Payload::from(Bytes::from_static(whole));
                assert_eq!(one.slice(start..end).to_contiguous(), want);
            }
        }
    }

    #[test]
    fn empty_chunks_leave_no_trace() {
        let mut payload = Payload::new();
        payload.push(Bytes::new());
        assert!(payload.is_empty());
        payload.push(Bytes::from_static(b"x"));
        payload.push(Bytes::new());
        assert_eq!(payload.chunks().len(), 1);
        payload.push(Bytes::from_static(b"y"));
        assert_eq!((payload.len(), payload.chunks().len()), (2, 2));
        assert_eq!(Payload::from(vec![Bytes::new(), Bytes::from_static(b"xy")]), payload);
    }
}
