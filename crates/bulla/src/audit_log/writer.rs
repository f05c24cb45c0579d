//! Gives entries their places in the chain, and brings them to disk.
//!
//! Lines gather in memory and are written and synced together. What could not be is written again at the next try, at
//! the same place, so that the chain stays whole over a full disk; where too much gathers, entries are left out before
//! they get a number, and a gap tells how many.

use super::chain;

use super::files::{self, FILE_BYTES_MAX};
use crate::audit::entry::{self, LineError};
use crate::audit::{Entry, EntryHash, Keeper, Kind, Who};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes of lines that may wait for a disk that takes nothing.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// Bytes of lines after which they are written, though more are to come.
const BATCH_BYTES: usize = 256 << 10;

/// Where lines go: a file, or what a test makes of it.
pub(super) trait Place: Send {
    /// Makes the bytes of the file from `at` on these, syncs them, and leaves nothing behind them.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Place for File {
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)?;
        // What an earlier try left behind them would be a torn line.
        let end = at + bytes.len() as u64;
        if self.metadata()?.len() > end {
            self.set_len(end)?;
        }
        self.sync_data()
    }
}

pub(super) struct Writer {
    folder: PathBuf,
    /// None before the first entry, and while a new file can't be made.
    place: Option<Box<dyn Place>>,
    /// Bytes of the file that are synced.
    synced_bytes: u64,
    /// Lines behind them, and how many.
    pending: Vec<u8>,
    pending_entries: u64,
    synced_entries: u64,
    /// Of the next entry.
    sequence: u64,
    previous: EntryHash,
    /// Entries that no gap tells of yet, and when the first was lost.
    lost: u64,
    lost_since_ms: Option<u64>,
    failed: Option<io::Error>,
}

impl Writer {
    /// Goes on where the newest file ends.
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        files::make_folder(&folder)?;
        let mut writer = Self::new(folder, None, 0, 1, EntryHash::none());
        let Some((first, path)) = files::all(&writer.folder)?.pop() else { return Ok(writer) };
        let end = chain::end_of(&path)?;
        let mut damaged = None;
        match end.last {
            Some(Ok(last)) => (writer.sequence, writer.previous) = (last.sequence + 1, last.hash),
            Some(Err(error)) => damaged = Some(error),
            // The file was made and nothing of its first entry is whole: it goes on from the file before.
            None => {
                writer.sequence = first;
                if let Some(before) = chain::head(&writer.folder).map_err(|(_, error)| error)? {
                    (writer.sequence, writer.previous) = (before.sequence + 1, before.hash);
                }
            }
        }
        writer.place = Some(Box::new(OpenOptions::new().write(true).open(&path)?));
        writer.synced_bytes = end.whole_bytes;
        writer.go_on(damaged, end.torn_bytes)?;
        Ok(writer)
    }

    fn new(folder: PathBuf, place: Option<Box<dyn Place>>, bytes: u64, sequence: u64, previous: EntryHash) -> Self {
        Self {
            folder,
            place,
            synced_bytes: bytes,
            pending: Vec::new(),
            pending_entries: 0,
            synced_entries: 0,
            sequence,
            previous,
            lost: 0,
            lost_since_ms: None,
            failed: None,
        }
    }

    /// Tells of what a start found that should not be there.
    fn go_on(&mut self, damaged: Option<LineError>, torn_bytes: u64) -> io::Result<()> {
        if let Some(error) = damaged {
            crate::alarm!("audit log: the last entry is damaged: {error}; `bulla audit verify` says more");
            // The chain can't go on from it: it goes on from what can be read, in a file of its own, and stays broken
            // there.
            let before = chain::head(&self.folder).map_err(|(_, error)| error)?;
            let files = files::all(&self.folder)?;
            let last = files.last().map_or(0, |(first, _)| *first);
            (self.sequence, self.previous) =
                before.map_or((1, EntryHash::none()), |before| (before.sequence + 1, before.hash));
            self.sequence = self.sequence.max(last + 1);
            (self.place, self.synced_bytes) = (None, 0);
        }
        if torn_bytes > 0 && self.place.is_some() {
            crate::warning!("audit log: {torn_bytes} bytes of an unfinished entry are cut off");
        }
        if torn_bytes > 0 || damaged.is_some() {
            let what = json!({ "torn_bytes": torn_bytes, "damaged": damaged.map(|error| error.to_string()) });
            let now_ms = crate::wall_clock::wall_ms(std::time::SystemTime::now());
            self.append(now_ms, now_ms, &Entry::new(Kind::Recovered, Who::QueueManager, what));
            self.sync()?;
            self.synced_entries = 0;
        }
        Ok(())
    }

    fn try_sync(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let place = match &mut self.place {
            Some(place) => place,
            empty => {
                let first = self.sequence - self.pending_entries;
                let file = files::create(&self.folder, first)?;
                self.synced_bytes = 0;
                empty.insert(Box::new(file))
            }
        };
        place.write(self.synced_bytes, &self.pending)?;
        self.synced_bytes += self.pending.len() as u64;
        self.synced_entries += std::mem::take(&mut self.pending_entries);
        self.pending.clear();
        Ok(())
    }
}

impl Keeper for Writer {
    fn append(&mut self, now_ms: u64, at_ms: u64, entry: &Entry) -> bool {
        if self.pending.len() >= BATCH_BYTES && self.failed.is_none() {
            // What comes of it is told by the sync that follows.
            let _ = self.sync();
        }
        if self.pending.len() >= PENDING_BYTES_MAX {
            self.lost += 1;
            self.lost_since_ms.get_or_insert(now_ms);
            return false;
        }
        let (line, hash) = entry.line(self.sequence, at_ms, &self.previous);
        if self.synced_bytes + self.pending.len() as u64 >= FILE_BYTES_MAX && self.failed.is_none() {
            // An entry begins a new file once all before it is on disk.
            if self.sync().is_ok() {
                (self.place, self.synced_bytes) = (None, 0);
            }
        }
        self.pending.extend_from_slice(line.as_bytes());
        self.pending_entries += 1;
        self.sequence += 1;
        self.previous = hash;
        true
    }

    fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    fn tell_of_gap(&mut self, now_ms: u64) {
        if self.lost == 0 || self.pending.len() >= PENDING_BYTES_MAX {
            return;
        }
        let since = self.lost_since_ms.take().unwrap_or(now_ms);
        let what = json!({ "lost": self.lost, "since": entry::time(since) });
        self.lost = 0;
        self.append(now_ms, now_ms, &Entry::new(Kind::Gap, Who::QueueManager, what));
    }

    fn has_more(&self) -> bool {
        !self.pending.is_empty() || self.lost > 0
    }

    fn sync(&mut self) -> io::Result<()> {
        let result = self.try_sync();
        self.failed = result.as_ref().err().map(|error| io::Error::new(error.kind(), error.to_string()));
        result
    }

    fn synced_entries(&self) -> u64 {
        self.synced_entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    fn entry(text: &str) -> Entry {
        Entry::new(Kind::Command, Who::QueueManager, json!({ "text": text }))
    }

    fn kinds(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        chain::read(folder, |written| {
            found.push(written.kind);
            true
        })
        .unwrap();
        found
    }

    /// A disk that takes nothing while it is full, but some bytes of each try.
    struct Disk {
        file: File,
        full: Arc<Mutex<bool>>,
    }

    impl Place for Disk {
        fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            if *self.full.lock().unwrap() {
                self.file.write_all_at(&bytes[..bytes.len().min(100)], at)?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            Place::write(&mut self.file, at, bytes)
        }
    }

    #[test]
    fn a_full_disk_costs_what_finds_no_room_and_a_gap_says_how_much() {
        let folder = tempfile::tempdir().unwrap();
        let full = Arc::new(Mutex::new(false));
        let file = files::create(folder.path(), 1).unwrap();
        let disk = Disk { file, full: full.clone() };
        let mut writer = Writer::new(folder.path().into(), Some(Box::new(disk)), 0, 1, EntryHash::none());
        assert!(writer.append(0, 0, &entry("first")));
        writer.sync().unwrap();
        *full.lock().unwrap() = true;
        let long = entry(&"x".repeat(100_000));
        let taken = (0..100).filter(|_| writer.append(1_000, 1_000, &long)).count();
        assert!(taken * 100_000 >= PENDING_BYTES_MAX && taken < 50, "{taken}");
        writer.tell_of_gap(1_000);
        assert!(writer.sync().is_err() && writer.has_more());
        assert_eq!(kinds(folder.path()), ["command"], "and the begin of what was tried");
        *full.lock().unwrap() = false;
        writer.sync().unwrap();
        writer.tell_of_gap(2_000);
        writer.sync().unwrap();
        assert!(!writer.has_more());
        assert_eq!(kinds(folder.path()).len(), 1 + taken + 1);
        let verdict = chain::verify(folder.path(), None).unwrap();
        assert_eq!(verdict.breaks, []);
        let gap = chain::head(folder.path()).unwrap().unwrap();
        assert_eq!((gap.kind.as_str(), &gap.what["lost"]), ("gap", &json!(100 - taken)));
    }

    #[test]
    fn a_file_that_is_long_enough_is_followed_by_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(folder.path().into()).unwrap();
        let long = entry(&"x".repeat(1 << 20));
        for _ in 0..20 {
            assert!(writer.append(0, 0, &long));
        }
        writer.sync().unwrap();
        let found = files::all(folder.path()).unwrap();
        assert_eq!(found.len(), 2);
        assert!(fs::metadata(&found[0].1).unwrap().len() < FILE_BYTES_MAX + (2 << 20));
        assert_eq!(writer.synced_entries(), 20);
        drop(writer);
        let mut writer = Writer::open(folder.path().into()).unwrap();
        assert!(writer.append(0, 0, &entry("after a restart")));
        writer.sync().unwrap();
        let verdict = chain::verify(folder.path(), None).unwrap();
        assert_eq!((verdict.breaks.len(), verdict.entries, verdict.files), (0, 21, 2));
    }

    #[test]
    fn a_crash_within_an_entry_loses_that_one_and_an_entry_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(folder.path().into()).unwrap();
        for text in ["one", "two"] {
            writer.append(0, 0, &entry(text));
        }
        writer.sync().unwrap();
        drop(writer);
        let path = folder.path().join(files::name(1));
        let good = fs::read(&path).unwrap();
        let first = good.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in [0, 1, first - 1, first, first + 1, good.len() - 1] {
            fs::write(&path, &good[..length]).unwrap();
            let mut writer = Writer::open(folder.path().into()).unwrap();
            writer.append(0, 0, &entry("three"));
            writer.sync().unwrap();
            drop(writer);
            let whole = if length < first { 0 } else { 1 };
            let torn = !matches!(length, 0) && length != first;
            let kinds = kinds(folder.path());
            assert_eq!(kinds.len(), whole + usize::from(torn) + 1, "{length}: {kinds:?}");
            assert_eq!(kinds.iter().any(|kind| kind == "recovered"), torn, "{length}");
            assert_eq!(chain::verify(folder.path(), None).unwrap().breaks, [], "{length}");
        }
    }

    #[test]
    fn a_damaged_end_stays_as_it_is_and_the_log_goes_on_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(folder.path().into()).unwrap();
        for text in ["one", "two"] {
            writer.append(0, 0, &entry(text));
        }
        writer.sync().unwrap();
        drop(writer);
        let path = folder.path().join(files::name(1));
        let mut bad = fs::read(&path).unwrap();
        let place = bad.len() - 100;
        bad[place] ^= 1;
        fs::write(&path, &bad).unwrap();
        let mut writer = Writer::open(folder.path().into()).unwrap();
        writer.append(0, 0, &entry("three"));
        writer.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), bad);
        assert_eq!(kinds(folder.path()).last().map(String::as_str), Some("command"));
        let breaks = chain::verify(folder.path(), None).unwrap().breaks;
        assert_eq!((breaks[0].file.as_str(), breaks[0].line), (files::name(1).as_str(), 2));
    }
}
