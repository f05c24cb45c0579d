//! What lies in the stream: frames. `docs/formats/shared-log.md` is the page.
//!
//! Little-endian. A frame's header takes the bytes that a batch keeps free for its engine, so a frame of a whole batch
//! is exactly as long as the batch, and a position means the same here and there.

use std::fmt;

use bulla_queue::record::BATCH_HEADER_BYTES;

/// The first four bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"BSHR";
/// The version that this program writes, and the newest that it reads.
pub const FRAME_VERSION: u16 = 1;
/// Bytes of a frame's header: those that a batch keeps free for its engine.
pub const FRAME_HEADER_BYTES: usize = BATCH_HEADER_BYTES;
/// Bytes of one part in the list of a commit.
pub const PART_ENTRY_BYTES: usize = 16;
/// Bytes of an owner's name in an epoch record.
pub const OWNER_BYTES_MAX: usize = 255;
/// Parts of the largest batch: 4 GiB, which is as much as a batch's lengths can say, in parts of 512 KiB.
pub const PARTS_MAX: usize = 16_384;

const CRC_AT: usize = FRAME_HEADER_BYTES - 4;

/// What a frame is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A batch: record headers, then bodies.
    Whole,
    /// A batch whose bytes lie in parts, which the payload lists.
    Parts,
    /// A claim: the payload is the owner's name.
    Epoch,
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Kind::Whole => 1,
            Kind::Parts => 2,
            Kind::Epoch => 3,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub epoch: u64,
    /// Where the batch begins. In an epoch record: how far the log reached, at least, when it was claimed.
    pub at: u64,
    /// Bytes of the batch's head, the frame's header included; 0 in an epoch record.
    pub head_bytes: u32,
    /// Bytes of the batch's bodies, padding included; in an epoch record those of the owner's name.
    pub body_bytes: u32,
    /// CRC-32C of what follows the header in this message of the stream.
    pub payload_crc: u32,
}

/// One of the messages that a large batch lies in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Part {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// How long it is.
    pub bytes: u32,
    /// CRC-32C of it.
    pub crc: u32,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrameError {
    /// Shorter than a header.
    Short,
    /// Other first bytes than a frame has.
    Magic,
    /// The checksum of the header is wrong: damaged, or of another group.
    HeaderChecksum,
    /// Written by a newer program.
    Newer {
        /// The version that was found.
        version: u16,
    },
    /// A kind that this version doesn't have.
    Kind {
        /// What was found.
        code: u16,
    },
    /// The checksum of what follows the header is wrong.
    PayloadChecksum,
    /// A length in the header doesn't fit the message.
    Length,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Short => write!(f, "it is shorter than a frame's header"),
            FrameError::Magic => write!(f, "it does not begin as a frame does"),
            FrameError::HeaderChecksum => write!(f, "the checksum of its header is wrong"),
            FrameError::Newer { version } => write!(f, "it has format version {version}"),
            FrameError::Kind { code } => write!(f, "it has the unknown kind {code}"),
            FrameError::PayloadChecksum => write!(f, "the checksum of its contents is wrong"),
            FrameError::Length => write!(f, "its length is not what its header says"),
        }
    }
}

impl std::error::Error for FrameError {}

impl Frame {
    /// Bytes of the batch.
    #[must_use]
    pub fn batch_bytes(&self) -> u64 {
        u64::from(self.head_bytes) + u64::from(self.body_bytes)
    }

    /// The header as bytes. The group's name goes into the checksum, so that no other group's frame can pose as one.
    #[must_use]
    pub fn encode(&self, group: &str) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[..4].copy_from_slice(&FRAME_MAGIC);
        out[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&self.kind.code().to_le_bytes());
        out[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        out[16..24].copy_from_slice(&self.at.to_le_bytes());
        out[24..28].copy_from_slice(&self.head_bytes.to_le_bytes());
        out[28..32].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[32..CRC_AT].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = header_crc(&out[..CRC_AT], group);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a message of the stream: the header, and what follows it.
    ///
    /// # Errors
    /// [`FrameError`]. Every version keeps the magic, the version and the place of the header's checksum.
    pub fn decode<'a>(message: &'a [u8], group: &str) -> Result<(Self, &'a [u8]), FrameError> {
        let (header, payload) = message.split_first_chunk::<FRAME_HEADER_BYTES>().ok_or(FrameError::Short)?;
        if header[..4] != FRAME_MAGIC {
            return Err(FrameError::Magic);
        }
        if u32_at(header, CRC_AT) != header_crc(&header[..CRC_AT], group) {
            return Err(FrameError::HeaderChecksum);
        }
        let version = u16_at(header, 4);
        if version > FRAME_VERSION {
            return Err(FrameError::Newer { version });
        }
        let kind = match u16_at(header, 6) {
            1 => Kind::Whole,
            2 => Kind::Parts,
            3 => Kind::Epoch,
            code => return Err(FrameError::Kind { code }),
        };
        let frame = Frame {
            kind,
            epoch: u64_at(header, 8),
            at: u64_at(header, 16),
            head_bytes: u32_at(header, 24),
            body_bytes: u32_at(header, 28),
            payload_crc: u32_at(header, 32),
        };
        if crc32c::crc32c(payload) != frame.payload_crc {
            return Err(FrameError::PayloadChecksum);
        }
        frame.check_lengths(message.len(), payload)?;
        Ok((frame, payload))
    }

    fn check_lengths(&self, message_bytes: usize, payload: &[u8]) -> Result<(), FrameError> {
        let fits = match self.kind {
            Kind::Whole => self.batch_bytes() == message_bytes as u64 && self.has_head(),
            Kind::Parts => {
                let listed = parts(payload).map(|part| u64::from(part.bytes)).sum::<u64>();
                let count = payload.len() / PART_ENTRY_BYTES;
                let is_list = payload.len().is_multiple_of(PART_ENTRY_BYTES) && (1..=PARTS_MAX).contains(&count);
                is_list && self.has_head() && listed + FRAME_HEADER_BYTES as u64 == self.batch_bytes()
            }
            Kind::Epoch => {
                self.head_bytes == 0 && self.body_bytes as usize == payload.len() && payload.len() <= OWNER_BYTES_MAX
            }
        };
        // A position that does not go on is no place in a log.
        if fits && self.at.checked_add(self.batch_bytes()).is_some() { Ok(()) } else { Err(FrameError::Length) }
    }

    fn has_head(&self) -> bool {
        self.head_bytes as usize >= FRAME_HEADER_BYTES
    }
}

/// The parts that the payload of a commit lists.
pub fn parts(payload: &[u8]) -> impl Iterator<Item = Part> {
    payload.chunks_exact(PART_ENTRY_BYTES).map(|entry| Part {
        sequence: u64_at(entry, 0),
        bytes: u32_at(entry, 8),
        crc: u32_at(entry, 12),
    })
}

/// The list of parts as the payload of a commit.
#[must_use]
pub fn encode_parts(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.len() * PART_ENTRY_BYTES);
    for part in parts {
        out.extend_from_slice(&part.sequence.to_le_bytes());
        out.extend_from_slice(&part.bytes.to_le_bytes());
        out.extend_from_slice(&part.crc.to_le_bytes());
    }
    out
}

fn header_crc(header: &[u8], group: &str) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(group.as_bytes()), header)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "ORDERS";

    fn message(kind: Kind, head_bytes: u32, body_bytes: u32, payload: &[u8]) -> Vec<u8> {
        let payload_crc = crc32c::crc32c(payload);
        let frame = Frame { kind, epoch: 7, at: 4_096, head_bytes, body_bytes, payload_crc };
        [&frame.encode(GROUP)[..], payload].concat()
    }

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let payload = [9; 88];
        let bytes = message(Kind::Whole, 48, 80, &payload);
        let (frame, behind) = Frame::decode(&bytes, GROUP).unwrap();
        assert_eq!((frame.kind, frame.epoch, frame.at, frame.batch_bytes()), (Kind::Whole, 7, 4_096, 128));
        assert_eq!(behind, payload);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = message(Kind::Whole, 48, 24, &[5; 32]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&damaged, GROUP).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Frame::decode(&bytes[..length], GROUP).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_frame_of_another_group_is_none() {
        let bytes = message(Kind::Epoch, 0, 3, b"QM1");
        assert!(Frame::decode(&bytes, GROUP).is_ok());
        assert_eq!(Frame::decode(&bytes, "BILLS"), Err(FrameError::HeaderChecksum));
    }

    #[test]
    fn a_newer_version_is_told_as_such() {
        let mut bytes = message(Kind::Epoch, 0, 3, b"QM1");
        bytes[4..6].copy_from_slice(&2_u16.to_le_bytes());
        let crc = header_crc(&bytes[..CRC_AT], GROUP);
        bytes[CRC_AT..FRAME_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Frame::decode(&bytes, GROUP), Err(FrameError::Newer { version: 2 }));
    }

    #[test]
    fn a_list_of_parts_must_come_to_the_batch() {
        let listed = [Part { sequence: 3, bytes: 100, crc: 1 }, Part { sequence: 4, bytes: 20, crc: 2 }];
        let payload = encode_parts(&listed);
        let bytes = message(Kind::Parts, 64, 96, &payload);
        let (_, behind) = Frame::decode(&bytes, GROUP).unwrap();
        assert_eq!(parts(behind).collect::<Vec<_>>(), listed);
        for (head, body) in [(64, 95), (64, 97), (39, 121), (0, 160)] {
            let bytes = message(Kind::Parts, head, body, &payload);
            assert_eq!(Frame::decode(&bytes, GROUP), Err(FrameError::Length), "{head} {body}");
        }
        assert_eq!(Frame::decode(&message(Kind::Parts, 64, 96, &payload[..31]), GROUP), Err(FrameError::Length));
    }
}
