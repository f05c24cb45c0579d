//! What journal and scratch space need of a disk: one directory of flat names. A simulated one stands in for it in
//! tests.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

/// A directory. Names survive a power cut once `sync_dir` has returned, contents once `sync` of the file has.
pub trait Storage: Send + Sync + 'static {
    /// A file that is open.
    type File: StorageFile;

    /// All names, in no order.
    ///
    /// # Errors
    /// The directory can't be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that is there. A read-only storage opens it for reading.
    ///
    /// # Errors
    /// It is not there, or can't be opened.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Creates an empty file; one of that name is emptied.
    ///
    /// # Errors
    /// It can't be created.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, in place of the file that had it.
    ///
    /// # Errors
    /// It can't be renamed.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name.
    ///
    /// # Errors
    /// It is not there, or can't be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names survive a power cut.
    ///
    /// # Errors
    /// They may not.
    fn sync_dir(&self) -> io::Result<()>;

    /// Locks a file of that name against other processes for as long as the result lives; `None` when it is locked.
    ///
    /// # Errors
    /// It can't be created or locked at all.
    fn lock(&self, name: &str) -> io::Result<Option<Self::File>>;

    /// A number that can't be guessed.
    ///
    /// # Errors
    /// The system has no randomness.
    fn random(&self) -> io::Result<u64>;
}

/// A file of a [`Storage`], for one writer and any number of readers at a time.
pub trait StorageFile: Send + Sync + 'static {
    /// Bytes of the file.
    ///
    /// # Errors
    /// They are not known.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file is shorter; anything else when it can't be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// As [`StorageFile::read_at`] where that takes no longer than a copy; false where the disk has to be waited for.
    ///
    /// # Errors
    /// As [`StorageFile::read_at`].
    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> io::Result<bool>;

    /// Writes all of `bytes` from `offset` on. After an error any part may have been written.
    ///
    /// # Errors
    /// Not all could be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes an empty file so long, with space on the disk that is its own, and returns without writing that: it reads
    /// as zeros. False where the file system can't.
    ///
    /// # Errors
    /// `StorageFull` or `QuotaExceeded`, or anything else that failed.
    fn allocate(&self, bytes: u64) -> io::Result<bool>;

    /// Makes contents and length survive a power cut.
    ///
    /// # Errors
    /// They may not, and a later sync that succeeds proves nothing.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the file system.
#[derive(Clone, Debug)]
pub struct DirStorage {
    dir: PathBuf,
    read_only: bool,
}

impl DirStorage {
    /// The directory, which must be there.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), read_only: false }
    }

    /// The directory, for a reader that changes nothing.
    pub fn read_only(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), read_only: true }
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        // Messages are the business of the queue manager's own user alone.
        options.read(true).write(!self.read_only).mode(0o600);
        options
    }
}

impl Storage for DirStorage {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.dir)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        entries.filter_map(Result::transpose).collect()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        self.options().open(self.dir.join(name))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        self.options().create(true).truncate(true).open(self.dir.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn lock(&self, name: &str) -> io::Result<Option<File>> {
        let file = self.options().create(true).truncate(false).open(self.dir.join(name))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn random(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl StorageFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> io::Result<bool> {
        let wanted = into.len();
        let flags = ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(self, &mut [io::IoSliceMut::new(into)], offset, flags) {
            Ok(read) => Ok(read == wanted),
            // Not in the page cache, or a file system that can't tell.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
