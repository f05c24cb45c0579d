//! Scratch space, and how long it was waited for.

use bulla_queue::{Chunks, Spill, SpillError};
use std::time::{Duration, Instant};

/// Times each write and each read: two readings of the clock beside a system call.
pub(super) struct TimedSpill<S> {
    scratch: S,
    waited: Duration,
}

impl<S: Spill> TimedSpill<S> {
    pub(super) fn new(scratch: S) -> Self {
        Self { scratch, waited: Duration::ZERO }
    }

    fn timed<T>(&mut self, call: impl FnOnce(&mut S) -> T) -> T {
        let begun = Instant::now();
        let result = call(&mut self.scratch);
        self.waited += begun.elapsed();
        result
    }
}

impl<S: Spill> Spill for TimedSpill<S> {
    fn append(&mut self, body: &Chunks) -> Result<u64, SpillError> {
        self.timed(|scratch| scratch.append(body))
    }

    fn read(&mut self, at: u64, bytes: usize, into: &mut Vec<u8>) -> Result<(), SpillError> {
        self.timed(|scratch| scratch.read(at, bytes, into))
    }

    fn free(&mut self, at: u64, bytes: usize) {
        self.scratch.free(at, bytes);
    }

    fn bytes(&self) -> u64 {
        self.scratch.bytes()
    }

    fn waited(&self) -> Duration {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_queue::{DirStorage, FileSpill};

    #[test]
    fn what_was_written_is_read_back_and_both_take_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = FileSpill::open(DirStorage::new(folder.path().to_owned()), 1 << 20).unwrap();
        let mut timed = TimedSpill::new(scratch);
        let at = timed.append(&Chunks::from(b"two tons of barley".to_vec())).unwrap();
        let written = timed.waited();
        let mut read = Vec::new();
        timed.read(at, 18, &mut read).unwrap();
        assert_eq!((read.as_slice(), timed.bytes()), (&b"two tons of barley"[..], 18));
        assert!(timed.waited() > written && written > Duration::ZERO);
        timed.free(at, 18);
        assert_eq!(timed.bytes(), 0);
    }
}
