//! Scratch space for bodies of non-persistent messages beyond the memory limit. Nothing here outlives the process.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::message::Chunks;
use crate::storage::{Storage, StorageFile};

/// Bytes of a scratch file, unless one body is longer.
pub const SPILL_FILE_BYTES: u64 = 64 << 20;
/// Bytes of scratch space where nothing is said.
pub const SPILL_BYTES_MAX_DEFAULT: u64 = 16 << 30;

const PREFIX: &str = "spill-";
/// A place is a file's number and an offset.
const OFFSET_BITS: u32 = 32;

/// Why scratch space failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpillError {
    /// The application's turn: get messages. The limit is reached.
    Full {
        /// The limit.
        bytes_max: u64,
    },
    /// The operator's turn.
    Io(io::Error),
}

impl fmt::Display for SpillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpillError::Full { bytes_max } => {
                write!(f, "all {bytes_max} bytes of scratch space are in use")
            }
            SpillError::Io(error) => write!(f, "scratch space: {error}"),
        }
    }
}

impl std::error::Error for SpillError {}

impl From<io::Error> for SpillError {
    fn from(error: io::Error) -> Self {
        SpillError::Io(error)
    }
}

/// Keeps bodies until they are freed. Waits for the disk, as a rule for its cache only.
pub trait Spill: Send {
    /// Writes a body and returns its place.
    ///
    /// # Errors
    /// See [`SpillError`]; nothing is kept.
    fn append(&mut self, body: &Chunks) -> Result<u64, SpillError>;

    /// Reads back a body of `bytes` bytes.
    ///
    /// # Errors
    /// [`SpillError::Io`].
    fn read(&mut self, at: u64, bytes: usize, into: &mut Vec<u8>) -> Result<(), SpillError>;

    /// Gives back the space of a body.
    fn free(&mut self, at: u64, bytes: usize);

    /// Bytes of bodies that are kept.
    fn bytes(&self) -> u64;

    /// How long callers have waited to write and to read, where that is timed.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }
}

/// Scratch files in a directory of their own. A file goes when the last body in it is freed.
pub struct FileSpill<S: Storage> {
    storage: S,
    files: BTreeMap<u32, ScratchFile<S::File>>,
    /// The number of the file that is written.
    current: u32,
    bytes: u64,
    disk_bytes: u64,
    bytes_max: u64,
    file_bytes: u64,
}

struct ScratchFile<F> {
    file: F,
    used: u64,
    bodies: u32,
}

impl<S: Storage> FileSpill<S> {
    /// Removes what an earlier process left, and keeps at most `bytes_max` bytes of files.
    ///
    /// # Errors
    /// The directory can't be read or cleaned.
    pub fn open(storage: S, bytes_max: u64) -> Result<Self, SpillError> {
        for name in storage.list()?.iter().filter(|name| name.starts_with(PREFIX)) {
            storage.remove(name)?;
        }
        let file_bytes = SPILL_FILE_BYTES;
        Ok(Self { storage, files: BTreeMap::new(), current: 0, bytes: 0, disk_bytes: 0, bytes_max, file_bytes })
    }

    /// The file that has room for `bytes` more.
    fn writable(&mut self, bytes: u64) -> Result<(u32, &mut ScratchFile<S::File>), SpillError> {
        let fits = |file: &ScratchFile<_>| file.used == 0 || file.used + bytes <= self.file_bytes;
        if !self.files.get(&self.current).is_some_and(fits) {
            self.current = self.current.wrapping_add(1);
            let file = self.storage.create(&name(self.current))?;
            self.files.insert(self.current, ScratchFile { file, used: 0, bodies: 0 });
        }
        let file = self.files.get_mut(&self.current).expect("found or created above");
        Ok((self.current, file))
    }
}

impl<S: Storage> Spill for FileSpill<S> {
    fn append(&mut self, body: &Chunks) -> Result<u64, SpillError> {
        let bytes = body.len() as u64;
        if self.disk_bytes + bytes > self.bytes_max {
            return Err(SpillError::Full { bytes_max: self.bytes_max });
        }
        let (number, file) = self.writable(bytes)?;
        let at = u64::from(number) << OFFSET_BITS | file.used;
        let mut offset = file.used;
        for chunk in body.chunks() {
            file.file.write_at(offset, chunk)?;
            offset += chunk.len() as u64;
        }
        file.used = offset;
        file.bodies += 1;
        self.bytes += bytes;
        self.disk_bytes += bytes;
        Ok(at)
    }

    fn read(&mut self, at: u64, bytes: usize, into: &mut Vec<u8>) -> Result<(), SpillError> {
        let file =
            self.files.get(&((at >> OFFSET_BITS) as u32)).ok_or(io::ErrorKind::NotFound).map_err(io::Error::from)?;
        into.resize(bytes, 0);
        Ok(file.file.read_at(at & ((1 << OFFSET_BITS) - 1), into)?)
    }

    fn free(&mut self, at: u64, bytes: usize) {
        self.bytes -= bytes as u64;
        let number = (at >> OFFSET_BITS) as u32;
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        file.bodies -= 1;
        if file.bodies > 0 {
            return;
        }
        self.disk_bytes -= file.used;
        file.used = 0;
        if number != self.current {
            self.files.remove(&number);
            // A file that can't be removed wastes space until the next start, which is no reason to fail a get.
            let _ = self.storage.remove(&name(number));
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn name(number: u32) -> String {
    format!("{PREFIX}{number}")
}
