//! Bytes on their way out: heads and small bodies in one buffer, large bodies as the slices they came in.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Slices handed out at once: what one vectored write takes well.
const SLICES_MAX: usize = 256;
/// Bodies up to this size are copied next to their head: that costs less than a slice.
const COPY_BYTES_MAX: usize = 1 << 10;
/// Written bytes at the front of the small buffer before the rest is moved down.
const COMPACT_BYTES_MIN: usize = 64 << 10;
/// Room that the small buffer keeps while nothing is in it: an idle connection is cheap.
const KEPT_BYTES_MAX: usize = 1 << 10;

/// Output that waits.
#[derive(Debug, Default)]
pub(crate) struct Output {
    small: Vec<u8>,
    /// Bytes at the front of `small` that are written.
    taken: usize,
    pieces: VecDeque<Piece>,
    len: usize,
    /// Bytes that were written since the beginning.
    written: u64,
}

#[derive(Debug)]
enum Piece {
    /// So many bytes of `small`.
    Small(usize),
    Shared(Bytes),
}

impl Output {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that were written since the beginning.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written
    }

    /// The same once all that waits is written.
    pub(crate) fn end(&self) -> u64 {
        self.written + self.len as u64
    }

    /// Bytes of memory that it keeps.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.small.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { written: self.written, ..Self::default() };
    }

    /// Adds what `write` writes.
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.small.len();
        write(&mut self.small);
        let size = self.small.len().saturating_sub(before);
        if size == 0 {
            return;
        }
        self.len += size;
        match self.pieces.back_mut() {
            Some(Piece::Small(length)) => *length += size,
            _ => self.pieces.push_back(Piece::Small(size)),
        }
    }

    /// Adds a piece of a body. A reference count, or a small copy.
    pub(crate) fn add_shared(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_BYTES_MAX {
            self.add(|small| small.extend_from_slice(&bytes));
        } else {
            self.len += bytes.len();
            self.pieces.push_back(Piece::Shared(bytes));
        }
    }

    pub(crate) fn slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let mut at = self.taken;
        slices.reserve(self.pieces.len().min(SLICES_MAX));
        for piece in self.pieces.iter().take(SLICES_MAX) {
            let bytes = match piece {
                Piece::Small(length) => {
                    let bytes = self.small.get(at..at + length).unwrap_or_default();
                    at += length;
                    bytes
                }
                Piece::Shared(bytes) => bytes,
            };
            slices.push(IoSlice::new(bytes));
        }
    }

    pub(crate) fn take(&mut self, count: usize) {
        let mut left = count.min(self.len);
        self.len -= left;
        self.written += left as u64;
        while left > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let is_gone = match piece {
                Piece::Small(length) => {
                    let step = left.min(*length);
                    *length -= step;
                    self.taken += step;
                    left -= step;
                    *length == 0
                }
                Piece::Shared(bytes) => {
                    let step = left.min(bytes.len());
                    bytes.advance(step);
                    left -= step;
                    bytes.is_empty()
                }
            };
            if !is_gone {
                break;
            }
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() {
            self.small.clear();
            self.small.shrink_to(KEPT_BYTES_MAX);
            self.taken = 0;
        } else if self.taken >= COMPACT_BYTES_MIN && self.taken * 2 >= self.small.len() {
            self.small.drain(..self.taken);
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_however_they_are_taken() {
        for step in [1, 7, 1023, 1025, 100_000] {
            let mut output = Output::default();
            let (mut want, mut found) = (Vec::new(), Vec::<u8>::new());
            for n in 0..40u8 {
                output.add(|small| small.extend_from_slice(&[n; 9]));
                want.extend_from_slice(&[n; 9]);
                let body = vec![n; usize::from(n) * 100];
                want.extend_from_slice(&body);
                output.add_shared(body.into());
            }
            assert_eq!((output.len(), output.end()), (want.len(), want.len() as u64));
            while output.len() > 0 {
                let mut slices = Vec::new();
                output.slices(&mut slices);
                let before = found.len();
                found.extend(slices.iter().flat_map(|slice| slice.iter()).take(step));
                output.take(found.len() - before);
            }
            assert!(found == want, "step {step}");
            assert_eq!(output.written_bytes(), want.len() as u64);
            assert!(output.small.capacity() <= KEPT_BYTES_MAX);
        }
    }
}
