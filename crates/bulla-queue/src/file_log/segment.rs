//! Segment files: their names, their header, and the walk over the batches in one.

use std::io;

use memchr::memmem;

use crate::log::{LogError, Position, Replayed};
use crate::record::{ALIGN_BYTES, BATCH_HEADER_BYTES, BATCH_MAGIC, BatchHeader, check_bodies};
use crate::storage::StorageFile;

/// The first eight bytes of a segment.
pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"BULLALOG";
/// The version of segments, batches and records that this program writes. It reads all from 1 on: in version 1 no
/// message says which keys open it.
pub const FORMAT_VERSION: u16 = 2;
/// Bytes before the first batch. One page, so that headers and batches never share a sector.
pub const SEGMENT_HEADER_BYTES: u64 = 4_096;
/// Bytes of the header that mean something.
pub(crate) const SEGMENT_FIELDS_BYTES: usize = 48;

/// Bytes read at once while walking.
const WALK_BYTES: usize = 256 << 10;

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentHeader {
    /// The format of what is in it, from 1 to [`FORMAT_VERSION`].
    pub version: u16,
    /// Whose segment it is.
    pub epoch: u64,
    /// Where in the log its first batch begins.
    pub base: u64,
    /// Bytes for batches behind the header.
    pub capacity: u64,
    /// Goes into the checksum of each batch header.
    pub salt: u64,
}

impl SegmentHeader {
    /// The header as bytes; the rest of the page is zero.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        for field in [self.epoch, self.base, self.capacity, self.salt] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out.resize(SEGMENT_HEADER_BYTES as usize, 0);
        out
    }

    /// Reads the header of the segment that is named for `named`.
    ///
    /// # Errors
    /// [`LogError::Newer`], or [`LogError::Damaged`] for anything else that is not such a header.
    pub fn decode(bytes: &[u8], named: u64) -> Result<Self, LogError> {
        let damaged = |reason: &str| LogError::Damaged { at: Position(named), reason: reason.to_owned() };
        let bytes: &[u8; SEGMENT_FIELDS_BYTES] =
            bytes.first_chunk().ok_or_else(|| damaged("the segment is shorter than its header"))?;
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(damaged("the file is no segment"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > FORMAT_VERSION {
            return Err(LogError::Newer { version });
        }
        let field = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let crc = u32::from_le_bytes(std::array::from_fn(|byte| bytes[44 + byte]));
        if crc != crc32c::crc32c(&bytes[..44]) || version == 0 {
            return Err(damaged("the segment's header has a wrong checksum"));
        }
        let header = Self { version, epoch: field(12), base: field(20), capacity: field(28), salt: field(36) };
        if header.base != named {
            return Err(damaged("the segment has the name of another"));
        }
        if !header.base.is_multiple_of(ALIGN_BYTES as u64) || header.base.checked_add(header.capacity).is_none() {
            return Err(damaged("the segment's header has impossible values"));
        }
        Ok(header)
    }
}

/// The name of the segment that begins at `base`.
#[must_use]
pub(crate) fn segment_name(base: u64) -> String {
    format!("{base:016x}.segment")
}

/// Where the segment of that name begins; `None` for a file that is no segment.
#[must_use]
pub(crate) fn segment_base(name: &str) -> Option<u64> {
    let base = u64::from_str_radix(name.strip_suffix(".segment")?, 16).ok()?;
    (segment_name(base) == name).then_some(base)
}

/// A segment that is open.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    /// Its file.
    pub(crate) file: F,
    /// Its header.
    pub(crate) header: SegmentHeader,
}

/// What follows the last good batch of a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The batch is good.
    Keep,
    /// The log ends here.
    End,
    /// The batch was cut short by a crash.
    Cut,
    /// Acknowledged data is damaged: stop, say where.
    Refuse,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Header {
    Good,
    /// Nothing that could ever have been a batch here: zeros, or left over from the segment's earlier life.
    Bad,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Contents {
    Good,
    Bad,
    /// Not looked at: a good batch follows, so this one was synced before that was written.
    Unread,
}

/// Whether a good batch follows, in this segment or a later one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Middle,
    Tail,
}

/// Record headers are always read. Bodies only at the tail: one batch is under way at a time, so the one before a good
/// one is whole, and rot in its bodies is found by the checksum when they are got.
pub(crate) fn verdict(header: Header, head: Contents, bodies: Contents, place: Place) -> Verdict {
    match (header, head, bodies, place) {
        (Header::Good, Contents::Good, Contents::Good | Contents::Unread, _) => Verdict::Keep,
        (Header::Bad, _, _, Place::Tail) => Verdict::End,
        (Header::Good, _, _, Place::Tail) => Verdict::Cut,
        (_, _, _, Place::Middle) => Verdict::Refuse,
    }
}

/// How a walk over a segment ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Walked {
    /// Behind the last good batch.
    pub(crate) end: u64,
    /// The epoch of the last good batch; that of the segment when there is none.
    pub(crate) epoch: u64,
    /// Where the last good batch begins, if there is one.
    pub(crate) last: Option<u64>,
    /// A batch lies at `end` whose header is good and whose contents are not.
    pub(crate) cut: bool,
}

impl<F: StorageFile> Segment<F> {
    /// Opens the segment that is named for `base`.
    ///
    /// # Errors
    /// [`LogError::Newer`], [`LogError::Damaged`], [`LogError::Unavailable`].
    pub(crate) fn open(file: F, base: u64) -> Result<Self, LogError> {
        let bytes = file.bytes().map_err(LogError::Unavailable)?;
        let mut page = vec![0; bytes.min(SEGMENT_FIELDS_BYTES as u64) as usize];
        file.read_at(0, &mut page).map_err(LogError::Unavailable)?;
        let header = SegmentHeader::decode(&page, base)?;
        // Segments are written full of zeros before they get their name, so a shorter one has lost something.
        if header.capacity.checked_add(SEGMENT_HEADER_BYTES).is_none_or(|needed| needed > bytes) {
            let reason = "the segment is shorter than its header says".to_owned();
            return Err(LogError::Damaged { at: Position(base), reason });
        }
        Ok(Self { file, header })
    }

    /// Where the segment's space ends.
    #[must_use]
    pub(crate) fn space_end(&self) -> u64 {
        self.header.base + self.header.capacity
    }

    /// Reads at a position of the log.
    ///
    /// # Errors
    /// As the file says.
    pub(crate) fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_at(at - self.header.base + SEGMENT_HEADER_BYTES, into)
    }

    /// Reads at a position of the log, unless the disk has to be waited for.
    ///
    /// # Errors
    /// As the file says.
    pub(crate) fn read_at_once(&self, at: u64, into: &mut [u8]) -> io::Result<bool> {
        self.file.read_at_once(at - self.header.base + SEGMENT_HEADER_BYTES, into)
    }

    /// Writes at a position of the log.
    ///
    /// # Errors
    /// As the file says.
    pub(crate) fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(at - self.header.base + SEGMENT_HEADER_BYTES, bytes)
    }

    /// Hands `each` the whole batches from `from` on while another owner writes them, and returns the last of them and
    /// where it ends. `follows`: a later segment begins there. What is not whole yet is left for the next time.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub(crate) fn follow(
        &self,
        from: u64,
        follows: Option<u64>,
        each: &mut dyn FnMut(Replayed<'_>),
    ) -> Result<(u64, Option<BatchHeader>), LogError> {
        let (mut at, mut last) = (from, None);
        let mut next = self.header_at(at, self.header.epoch)?;
        while let Some(header) = next {
            let end = at + header.batch_bytes();
            let mut head = vec![0; header.head_bytes as usize];
            self.read_at(at + BATCH_HEADER_BYTES as u64, &mut head).map_err(LogError::Unavailable)?;
            next = self.header_at(end, header.epoch)?;
            // The bodies of one that was synced before the next was written are whole.
            let is_whole = next.is_some() || follows.is_some_and(|base| base >= end);
            if crc32c::crc32c(&head) != header.head_crc || (!is_whole && self.bodies(at, &header)? != Contents::Good) {
                break;
            }
            let bodies_at = Position(at + BATCH_HEADER_BYTES as u64 + u64::from(header.head_bytes));
            each(Replayed { at: Position(at), head: &head, bodies_at, bodies_bytes: header.body_bytes.into() });
            (at, last) = (end, Some(header));
        }
        Ok((at, last))
    }

    /// Hands `each` every good batch in order. `follows`: a later segment is there, which begins where this one must
    /// end. `from`: where a batch begins, none before the first.
    ///
    /// # Errors
    /// [`LogError::Damaged`] where a good batch follows a bad one, [`LogError::Unavailable`].
    pub(crate) fn walk(
        &self,
        from: u64,
        follows: Option<u64>,
        each: &mut dyn FnMut(Replayed<'_>),
    ) -> Result<Walked, LogError> {
        let mut window = Window::new(self);
        let mut walked = Walked { end: self.header.base.max(from), epoch: self.header.epoch, last: None, cut: false };
        let mut next = window.header(walked.end, walked.epoch)?;
        let mut head = Vec::new();
        loop {
            let at = walked.end;
            let (header_state, mut head_state, mut bodies_state) = match next {
                Some(_) => (Header::Good, Contents::Good, Contents::Unread),
                None => (Header::Bad, Contents::Unread, Contents::Unread),
            };
            let mut after = None;
            let mut place = if follows.is_some_and(|base| base > at) { Place::Middle } else { Place::Tail };
            if let Some(header) = next {
                let end = at + header.batch_bytes();
                head.clear();
                head.extend_from_slice(window.bytes(at + BATCH_HEADER_BYTES as u64, header.head_bytes as usize)?);
                let head_good = crc32c::crc32c(&head) == header.head_crc;
                if follows.is_none_or(|base| base > end) {
                    after = window.header(end, header.epoch)?;
                }
                if after.is_some() || follows.is_some_and(|base| base >= end) {
                    place = Place::Middle;
                }
                if !head_good {
                    head_state = Contents::Bad;
                } else if place == Place::Tail {
                    bodies_state = self.bodies(at, &header)?;
                }
            }
            if place == Place::Tail
                && (header_state == Header::Bad || head_state == Contents::Bad || bodies_state == Contents::Bad)
                && self.good_batch_behind(at, walked.epoch)?.is_some()
            {
                place = Place::Middle;
            }
            match (verdict(header_state, head_state, bodies_state, place), next) {
                (Verdict::Keep, Some(header)) => {
                    let bodies_at = Position(at + BATCH_HEADER_BYTES as u64 + u64::from(header.head_bytes));
                    each(Replayed { at: Position(at), head: &head, bodies_at, bodies_bytes: header.body_bytes.into() });
                    walked = Walked { end: at + header.batch_bytes(), epoch: header.epoch, last: Some(at), cut: false };
                    if follows == Some(walked.end) {
                        return Ok(walked);
                    }
                    next = after;
                }
                (Verdict::Keep | Verdict::End, None) | (Verdict::End, Some(_)) => {
                    return Ok(walked);
                }
                (Verdict::Cut, _) => {
                    return Ok(Walked { cut: true, ..walked });
                }
                (Verdict::Refuse, _) => {
                    let reason = "a batch is not what was written, and good ones follow".to_owned();
                    return Err(LogError::Damaged { at: Position(at), reason });
                }
            }
        }
    }

    /// The batch header at `at`, if a good one is there.
    pub(crate) fn header_at(&self, at: u64, epoch: u64) -> Result<Option<BatchHeader>, LogError> {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        if at.saturating_add(BATCH_HEADER_BYTES as u64) > self.space_end() {
            return Ok(None);
        }
        self.read_at(at, &mut bytes).map_err(LogError::Unavailable)?;
        Ok(self.fits(&bytes, at, epoch))
    }

    /// Whether all bodies of a batch, whose record headers are good, are good.
    fn bodies(&self, at: u64, header: &BatchHeader) -> Result<Contents, LogError> {
        let mut batch = vec![0; (header.batch_bytes() - BATCH_HEADER_BYTES as u64) as usize];
        self.read_at(at + BATCH_HEADER_BYTES as u64, &mut batch).map_err(LogError::Unavailable)?;
        let (head, bodies) = batch.split_at(header.head_bytes as usize);
        let mut good = true;
        // Headers that carry the right checksum and make no sense are for the replay to refuse.
        let _ = check_bodies(head, bodies, &mut |_| good = false);
        Ok(if good { Contents::Good } else { Contents::Bad })
    }

    /// Where the next good batch header behind `at` is.
    pub(crate) fn good_batch_behind(&self, at: u64, epoch: u64) -> Result<Option<u64>, LogError> {
        let magic = memmem::Finder::new(&BATCH_MAGIC);
        let mut chunk = vec![0; WALK_BYTES + BATCH_HEADER_BYTES];
        let mut from = at + ALIGN_BYTES as u64;
        while from + (BATCH_HEADER_BYTES as u64) <= self.space_end() {
            let bytes = (self.space_end() - from).min(chunk.len() as u64) as usize;
            let chunk = &mut chunk[..bytes];
            self.read_at(from, chunk).map_err(LogError::Unavailable)?;
            let starts = chunk.len().saturating_sub(BATCH_HEADER_BYTES - 1).min(WALK_BYTES);
            let found = magic.find_iter(chunk).filter(|offset| *offset < starts && offset % ALIGN_BYTES == 0);
            for offset in found {
                if self.fits(&chunk[offset..], from + offset as u64, epoch).is_some() {
                    return Ok(Some(from + offset as u64));
                }
            }
            from += WALK_BYTES as u64;
        }
        Ok(None)
    }

    /// The batch header in `bytes`, if it is one that belongs at `at`.
    fn fits(&self, bytes: &[u8], at: u64, epoch: u64) -> Option<BatchHeader> {
        let header = BatchHeader::decode(bytes, self.header.salt)?;
        let inside = at.checked_add(header.batch_bytes()).is_some_and(|end| end <= self.space_end());
        (header.at == at && header.epoch >= epoch && inside).then_some(header)
    }
}

/// Reads a segment forward in large pieces; skips what is not asked for.
struct Window<'a, F> {
    segment: &'a Segment<F>,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a, F: StorageFile> Window<'a, F> {
    fn new(segment: &'a Segment<F>) -> Self {
        Self { segment, at: segment.header.base, bytes: Vec::new() }
    }

    fn bytes(&mut self, at: u64, bytes: usize) -> Result<&[u8], LogError> {
        let end = at + bytes as u64;
        if at < self.at || end > self.at + self.bytes.len() as u64 {
            let wanted = (WALK_BYTES.max(bytes) as u64).min(self.segment.space_end() - at) as usize;
            self.bytes.resize(wanted, 0);
            self.at = at;
            if let Err(error) = self.segment.read_at(at, &mut self.bytes) {
                self.bytes.clear();
                return Err(LogError::Unavailable(error));
            }
        }
        let from = (at - self.at) as usize;
        self.bytes.get(from..from + bytes).ok_or_else(|| LogError::Unavailable(io::ErrorKind::UnexpectedEof.into()))
    }

    /// The good batch header at `at`, if there is one.
    fn header(&mut self, at: u64, epoch: u64) -> Result<Option<BatchHeader>, LogError> {
        if at + BATCH_HEADER_BYTES as u64 > self.segment.space_end() {
            return Ok(None);
        }
        let segment = self.segment;
        Ok(segment.fits(self.bytes(at, BATCH_HEADER_BYTES)?, at, epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_on_a_batch_is_this_table() {
        use Verdict::{Cut, End, Keep, Refuse};
        // Batch header, record headers, bodies; at the tail; where a good batch follows.
        const TABLE: [(Header, Contents, Contents, Verdict, Verdict); 18] = [
            (Header::Good, Contents::Good, Contents::Good, Keep, Keep),
            (Header::Good, Contents::Good, Contents::Bad, Cut, Refuse),
            (Header::Good, Contents::Good, Contents::Unread, Keep, Keep),
            (Header::Good, Contents::Bad, Contents::Good, Cut, Refuse),
            (Header::Good, Contents::Bad, Contents::Bad, Cut, Refuse),
            (Header::Good, Contents::Bad, Contents::Unread, Cut, Refuse),
            (Header::Good, Contents::Unread, Contents::Good, Cut, Refuse),
            (Header::Good, Contents::Unread, Contents::Bad, Cut, Refuse),
            (Header::Good, Contents::Unread, Contents::Unread, Cut, Refuse),
            (Header::Bad, Contents::Good, Contents::Good, End, Refuse),
            (Header::Bad, Contents::Good, Contents::Bad, End, Refuse),
            (Header::Bad, Contents::Good, Contents::Unread, End, Refuse),
            (Header::Bad, Contents::Bad, Contents::Good, End, Refuse),
            (Header::Bad, Contents::Bad, Contents::Bad, End, Refuse),
            (Header::Bad, Contents::Bad, Contents::Unread, End, Refuse),
            (Header::Bad, Contents::Unread, Contents::Good, End, Refuse),
            (Header::Bad, Contents::Unread, Contents::Bad, End, Refuse),
            (Header::Bad, Contents::Unread, Contents::Unread, End, Refuse),
        ];
        for (header, head, bodies, at_the_tail, in_the_middle) in TABLE {
            let row = format!("{header:?}, {head:?}, {bodies:?}");
            assert_eq!(verdict(header, head, bodies, Place::Tail), at_the_tail, "{row}, tail");
            assert_eq!(verdict(header, head, bodies, Place::Middle), in_the_middle, "{row}, middle");
        }
    }
}
