//! Bytes on their way out: performatives in one buffer, payloads as the slices they came in.

use bytes::Bytes;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Slices handed out at once: what one vectored write takes well.
pub(crate) const SLICES_MAX: usize = 256;
/// Payloads up to this size are copied next to their performative: that costs less than a slice.
const COPY_BYTES_MAX: usize = 512;
/// Written bytes at the front of the small buffer before the rest is moved down.
const COMPACT_BYTES_MIN: usize = 64 * 1024;
/// Bytes of a frame header without extension (part 2, section 2.3.1).
pub(crate) const FRAME_HEADER_BYTES: usize = 8;

/// The two kinds of frames (part 2, section 2.3.1; part 5, section 5.3.1).
#[derive(Clone, Copy)]
pub(crate) enum FrameKind {
    Amqp = 0,
    Sasl = 1,
}

#[derive(Debug, Default)]
pub(crate) struct Output {
    small: Vec<u8>,
    /// Bytes at the front of `small` that are written.
    taken: usize,
    pieces: VecDeque<Piece>,
    len: usize,
}

#[derive(Debug)]
enum Piece {
    /// So many bytes of `small`.
    Small(usize),
    Shared(Bytes),
}

impl Output {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Bytes that are no frame: protocol headers, and frames built elsewhere.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
        self.note_small(bytes.len());
    }

    /// A frame whose body `body` writes.
    pub(crate) fn frame(&mut self, kind: FrameKind, channel: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.small.len();
        let [high, low] = channel.to_be_bytes();
        self.small.extend_from_slice(&[0, 0, 0, 0, 2, kind as u8, high, low]);
        body(&mut self.small);
        let size = self.small.len() - start;
        if let Some(head) = self.small.get_mut(start..start + 4) {
            head.copy_from_slice(&crate::codec::clamp(size).to_be_bytes());
        }
        self.note_small(size);
    }

    /// Payload of the frame whose head was just written. A reference count, or a small copy.
    pub(crate) fn payload(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_BYTES_MAX {
            self.raw(&bytes);
        } else {
            self.len += bytes.len();
            self.pieces.push_back(Piece::Shared(bytes));
        }
    }

    fn note_small(&mut self, size: usize) {
        self.len += size;
        match self.pieces.back_mut() {
            Some(Piece::Small(length)) => *length += size,
            _ => self.pieces.push_back(Piece::Small(size)),
        }
    }

    /// Appends all of `other`, which holds small pieces only.
    pub(crate) fn append_small(&mut self, other: &mut Output) {
        let other = std::mem::take(other);
        self.raw(other.small.get(other.taken..).unwrap_or_default());
    }

    pub(crate) fn slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) -> usize {
        let mut at = self.taken;
        let mut total = 0;
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
            total += bytes.len();
            slices.push(IoSlice::new(bytes));
        }
        total
    }

    pub(crate) fn written(&mut self, count: usize) {
        let mut left = count.min(self.len);
        self.len -= left;
        while left > 0 {
            match self.pieces.front_mut() {
                None => break,
                Some(Piece::Small(length)) => {
                    let step = left.min(*length);
                    *length -= step;
                    self.taken += step;
                    left -= step;
                    if *length > 0 {
                        break;
                    }
                }
                Some(Piece::Shared(bytes)) => {
                    let step = left.min(bytes.len());
                    bytes::Buf::advance(bytes, step);
                    left -= step;
                    if !bytes.is_empty() {
                        break;
                    }
                }
            }
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() {
            self.small.clear();
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

    fn drain(output: &mut Output, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while output.len() > 0 {
            let mut slices = Vec::new();
            let total = output.slices(&mut slices);
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(bytes.len(), total);
            let count = step.min(total);
            all.extend_from_slice(&bytes[..count]);
            output.written(count);
        }
        all
    }

    #[test]
    fn bytes_come_out_in_order_however_they_are_taken() {
        for step in [1, 3, 7, 511, 513, 100_000] {
            let mut output = Output::default();
            let mut want = Vec::new();
            for n in 0..40u8 {
                output.frame(FrameKind::Amqp, 7, |out| out.push(n));
                want.extend_from_slice(&[0, 0, 0, 9, 2, 0, 0, 7, n]);
                let payload = vec![n; usize::from(n) * 50];
                want.extend_from_slice(&payload);
                output.payload(payload.into());
            }
            assert_eq!(output.len(), want.len());
            assert_eq!(drain(&mut output, step), want, "step {step}");
        }
    }
}
