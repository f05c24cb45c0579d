//! A body in chunks (RFC 9112, section 7.1), taken apart as it comes. Each byte is looked at once.

use crate::framing::is_token_byte;
use crate::limits::{CHUNK_EXTENSION_BYTES_MAX, CHUNK_LINE_BYTES_MAX, Limits};
use crate::refusal::{self, Refusal};

/// Where in a body the next byte lies.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    place: Place,
    /// Bytes of data in the chunks whose size is known.
    pub(crate) announced: u64,
    /// Bytes of extensions so far.
    extensions: usize,
    /// Bytes of trailers so far.
    trailers: usize,
}

#[derive(Debug)]
enum Place {
    /// In the size of a chunk, after so many digits.
    Size { size: u64, digits: usize },
    /// In what follows a size and a semicolon, after so many bytes of the line.
    Extension { size: u64, line: usize },
    /// Behind the carriage return of a size.
    SizeEnd { size: u64 },
    /// In a chunk, with so many bytes to come.
    Data { left: u64 },
    /// Behind a chunk.
    DataEnd { after_cr: bool },
    /// In the name of a trailer, after so many bytes.
    TrailerName { bytes: usize },
    /// In the value of a trailer.
    TrailerValue,
    /// Behind the carriage return of a trailer's line, the last of which is empty.
    TrailerEnd { is_last: bool },
    /// Behind the body.
    Done,
}

impl Default for Place {
    fn default() -> Self {
        Self::Size { size: 0, digits: 0 }
    }
}

/// What [`Chunks::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken<'a> {
    /// Bytes that were used up.
    pub(crate) used: usize,
    /// Data, at the end of those bytes.
    pub(crate) data: &'a [u8],
}

impl Chunks {
    /// Whether the body has ended.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.place, Place::Done)
    }

    /// Takes bytes up to the end of the next piece of data, or of the body, or all of them.
    pub(crate) fn take<'a>(&mut self, bytes: &'a [u8], limits: &Limits) -> Result<Taken<'a>, Refusal> {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            if let Place::Data { left } = &mut self.place {
                let rest = bytes.get(used..).unwrap_or_default();
                let length = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
                if *left == 0 {
                    self.place = Place::DataEnd { after_cr: false };
                }
                return Ok(Taken { used: used + length, data: rest.get(..length).unwrap_or_default() });
            }
            if self.is_done() {
                break;
            }
            self.step(byte, limits)?;
            used += 1;
        }
        Ok(Taken { used, data: &[] })
    }

    /// A byte that is no data.
    fn step(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        self.place = match (&self.place, byte) {
            (&Place::Size { size, digits }, _) => self.in_size(size, digits, byte)?,
            (&Place::Extension { size, .. }, b'\r') => Place::SizeEnd { size },
            (&Place::Extension { size, line }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extensions += 1;
                match () {
                    () if line >= CHUNK_LINE_BYTES_MAX => return Err(refusal::CHUNK_LINE),
                    () if self.extensions > CHUNK_EXTENSION_BYTES_MAX => return Err(refusal::CHUNK_EXTENSIONS),
                    () => Place::Extension { size, line: line + 1 },
                }
            }
            (&Place::SizeEnd { size: 0 }, b'\n') => Place::TrailerName { bytes: 0 },
            (&Place::SizeEnd { size }, b'\n') => {
                self.announced = self.announced.saturating_add(size);
                if self.announced > limits.body_bytes_max {
                    return Err(refusal::BODY_TOO_LARGE);
                }
                Place::Data { left: size }
            }
            (Place::Extension { .. } | Place::SizeEnd { .. }, _) => return Err(refusal::CHUNK_SIZE),
            (Place::DataEnd { after_cr: false }, b'\r') => Place::DataEnd { after_cr: true },
            (Place::DataEnd { after_cr: true }, b'\n') => Place::default(),
            (Place::DataEnd { .. }, _) => return Err(refusal::CHUNK_END),
            _ => self.in_trailers(byte, limits)?,
        };
        Ok(())
    }

    fn in_size(&self, size: u64, digits: usize, byte: u8) -> Result<Place, Refusal> {
        let digit = char::from(byte).to_digit(16);
        match (digit, byte) {
            (Some(_), _) if digits >= CHUNK_LINE_BYTES_MAX => Err(refusal::CHUNK_LINE),
            (Some(digit), _) => {
                let size = size.checked_mul(16).ok_or(refusal::CHUNK_SIZE)? | u64::from(digit);
                Ok(Place::Size { size, digits: digits + 1 })
            }
            (None, b'\r') if digits > 0 => Ok(Place::SizeEnd { size }),
            (None, b';') if digits > 0 => Ok(Place::Extension { size, line: digits + 1 }),
            (None, _) => Err(refusal::CHUNK_SIZE),
        }
    }

    /// Trailers are bounded, must look like headers, and are dropped.
    fn in_trailers(&mut self, byte: u8, limits: &Limits) -> Result<Place, Refusal> {
        self.trailers += 1;
        if self.trailers > limits.head_bytes_max {
            return Err(refusal::TRAILERS_TOO_LARGE);
        }
        match (&self.place, byte) {
            (Place::TrailerName { bytes: 0 }, b'\r') => Ok(Place::TrailerEnd { is_last: true }),
            (&Place::TrailerName { bytes: 1.. }, b':') => Ok(Place::TrailerValue),
            (&Place::TrailerName { bytes }, byte) if is_token_byte(byte) => Ok(Place::TrailerName { bytes: bytes + 1 }),
            (Place::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Ok(Place::TrailerValue),
            (Place::TrailerValue, b'\r') => Ok(Place::TrailerEnd { is_last: false }),
            (Place::TrailerEnd { is_last: true }, b'\n') => Ok(Place::Done),
            (Place::TrailerEnd { is_last: false }, b'\n') => Ok(Place::TrailerName { bytes: 0 }),
            _ => Err(refusal::TRAILER),
        }
    }
}
