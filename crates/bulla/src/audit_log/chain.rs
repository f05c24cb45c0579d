//! Reading a log back: entry by entry, and whether the chain holds over all files.

use super::files;
use crate::audit::entry::{EntryHash, LINE_BYTES_MAX, LineError, Written};
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Most places where the chain breaks that are told.
pub const BREAKS_MAX: usize = 100;

/// One line of a file.
#[derive(Debug)]
pub enum Line {
    /// A line with its newline, which is left out here.
    Whole(Vec<u8>),
    /// The file ends without a newline: so many bytes.
    Torn(usize),
    /// Longer than [`LINE_BYTES_MAX`]: nothing behind it can be read.
    TooLong,
}

/// The lines of one file. Memory is that of one line.
pub struct Lines(BufReader<File>);

impl Lines {
    /// From the file's begin.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(BufReader::with_capacity(64 << 10, File::open(path)?)))
    }

    /// The next line; none at the end.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn line(&mut self) -> io::Result<Option<Line>> {
        next_line(&mut self.0)
    }
}

fn next_line(from: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    from.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
    Ok(match line.pop() {
        None => None,
        Some(b'\n') => Some(Line::Whole(line)),
        Some(_) if line.len() + 1 == LINE_BYTES_MAX => Some(Line::TooLong),
        Some(_) => Some(Line::Torn(line.len() + 1)),
    })
}

/// Where a chain breaks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Break {
    /// The file's name; empty where the whole log is meant.
    pub file: String,
    /// The line in it, from 1; 0 where the whole file is meant.
    pub line: u64,
    /// What is wrong there.
    pub what: Fault,
}

/// What is wrong with a chain. The operator's turn.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// There is no entry at all.
    Nothing,
    /// A line is not what was written.
    Line(LineError),
    /// A line is longer than any entry.
    TooLong,
    /// The last line of the last file has no end: it is being written, or a crash or a person cut it.
    Torn {
        /// Bytes without an end.
        bytes: usize,
    },
    /// A file in the middle has an end without a newline.
    Cut {
        /// Bytes without an end.
        bytes: usize,
    },
    /// An entry has another number than the one after the entry before it.
    Sequence {
        /// The number that was due.
        expected: u64,
        /// The number that stands there.
        found: u64,
    },
    /// An entry names another one as the one before it.
    Previous,
    /// A file's name is not the number of its first entry.
    Name {
        /// That entry's number.
        found: u64,
    },
    /// The oldest file does not begin with the first entry, and it was not said from where the chain is to be checked.
    Begin {
        /// The first entry that is there.
        found: u64,
    },
    /// No entry has the hash that was kept elsewhere: the log was cut before it, or written anew.
    Unknown {
        /// That hash.
        hash: EntryHash,
    },
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Nothing => f.write_str("there is no entry"),
            Fault::Line(error) => error.fmt(f),
            Fault::TooLong => write!(f, "the line is longer than {LINE_BYTES_MAX} bytes: no entry"),
            Fault::Torn { bytes } => {
                write!(f, "the last line has no end ({bytes} bytes): it is being written, or was cut")
            }
            Fault::Cut { bytes } => write!(f, "the file ends in the middle of a line ({bytes} bytes)"),
            Fault::Sequence { expected, found } if found > expected => {
                write!(f, "entry {found} stands where {expected} is due: entries are missing before it")
            }
            Fault::Sequence { expected, found } => {
                write!(f, "entry {found} stands where {expected} is due: entries were moved or repeated")
            }
            Fault::Previous => f.write_str("the entry names another hash than that of the entry before it"),
            Fault::Name { found } => write!(f, "the file begins with entry {found}, and its name says otherwise"),
            Fault::Begin { found } => {
                write!(
                    f,
                    "the log begins with entry {found}: earlier files are missing, and no hash says where to begin"
                )
            }
            Fault::Unknown { hash } => {
                write!(f, "no entry has the hash {hash}: the log was cut before it, or written anew")
            }
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// Files read.
    pub files: u64,
    /// Entries whose own hash fits.
    pub entries: u64,
    /// Number and time of the first and of the last of them.
    pub extent: Option<((u64, String), (u64, String))>,
    /// The hash of the last one.
    pub head: Option<EntryHash>,
    /// Where the chain breaks, the first [`BREAKS_MAX`] places, in order.
    pub breaks: Vec<Break>,
}

/// Checks every entry of a log. Without `from` it has to begin with its first entry. With `from`, the hash of an entry
/// that was kept elsewhere, it has to hold that entry, or to begin with the one behind it.
///
/// # Errors
/// A file can't be read.
pub fn verify(folder: &Path, from: Option<&EntryHash>) -> Result<Verdict, (PathBuf, io::Error)> {
    let files = files::all(folder).map_err(|error| (folder.to_owned(), error))?;
    let mut check = Check { verdict: Verdict::default(), before: None, known: from.is_none() };
    let count = files.len();
    for (place, (first, path)) in files.iter().enumerate() {
        let failed = |error| (path.clone(), error);
        check.verdict.files += 1;
        let file = files::name(*first);
        let mut lines = Lines::open(path).map_err(failed)?;
        let mut number = 0;
        while let Some(line) = lines.line().map_err(failed)? {
            number += 1;
            let is_last = place + 1 == count;
            match line {
                Line::Whole(line) => check.entry(&file, number, *first, &line, from),
                Line::Torn(bytes) if is_last => check.breaks(&file, number, Fault::Torn { bytes }),
                Line::Torn(bytes) => check.breaks(&file, number, Fault::Cut { bytes }),
                Line::TooLong => {
                    check.breaks(&file, number, Fault::TooLong);
                    break;
                }
            }
        }
    }
    if check.verdict.entries == 0 && check.verdict.breaks.is_empty() {
        check.breaks("", 0, Fault::Nothing);
    }
    if let Some(hash) = from.filter(|_| !check.known) {
        check.breaks("", 0, Fault::Unknown { hash: hash.clone() });
    }
    Ok(check.verdict)
}

struct Check {
    verdict: Verdict,
    /// Number and hash of the entry before, as far as it said.
    before: Option<(u64, EntryHash)>,
    /// The hash that was kept elsewhere was met.
    known: bool,
}

impl Check {
    fn entry(&mut self, file: &str, number: u64, first: u64, line: &[u8], from: Option<&EntryHash>) {
        let written = match Written::parse(line) {
            Ok(written) => written,
            Err(error) => {
                // The one behind it is judged by its own: one change is one break, or two where the chain shows it as
                // well.
                return self.breaks(file, number, Fault::Line(error));
            }
        };
        if number == 1 && written.sequence != first {
            self.breaks(file, number, Fault::Name { found: written.sequence });
        }
        self.known |=
            from.is_some_and(|from| written.hash == *from || self.before.is_none() && written.previous == *from);
        match &self.before {
            // With a hash the chain is good from there on; that it is met is asked at the end.
            None if (written.sequence != 1 || written.previous != EntryHash::none()) && from.is_none() => {
                self.breaks(file, number, Fault::Begin { found: written.sequence });
            }
            Some((sequence, _)) if sequence.checked_add(1) != Some(written.sequence) => {
                let expected = sequence.saturating_add(1);
                self.breaks(file, number, Fault::Sequence { expected, found: written.sequence });
            }
            Some((_, hash)) if *hash != written.previous => self.breaks(file, number, Fault::Previous),
            _ => {}
        }
        let place = (written.sequence, written.time);
        self.verdict.entries += 1;
        self.verdict.extent = Some(match self.verdict.extent.take() {
            Some((first, _)) => (first, place),
            None => (place.clone(), place),
        });
        self.verdict.head = Some(written.hash.clone());
        self.before = Some((written.sequence, written.hash));
    }

    fn breaks(&mut self, file: &str, line: u64, what: Fault) {
        if self.verdict.breaks.len() < BREAKS_MAX {
            self.verdict.breaks.push(Break { file: file.to_owned(), line, what });
        }
    }
}

/// Gives every entry whose own hash fits to `take`, oldest first, until that says that it is enough.
///
/// # Errors
/// A file can't be read.
pub fn read(folder: &Path, mut take: impl FnMut(Written) -> bool) -> Result<(), (PathBuf, io::Error)> {
    for (_, path) in files::all(folder).map_err(|error| (folder.to_owned(), error))? {
        let failed = |error| (path.clone(), error);
        let mut lines = Lines::open(&path).map_err(failed)?;
        while let Some(Line::Whole(line)) = lines.line().map_err(failed)? {
            if let Ok(written) = Written::parse(&line)
                && !take(written)
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// How a file ends: its last entry, and how many bytes it has up to the end of the last whole line.
pub(super) struct End {
    pub(super) last: Option<Result<Written, LineError>>,
    pub(super) whole_bytes: u64,
    pub(super) torn_bytes: u64,
}

/// Looks for the end of a file.
///
/// # Errors
/// It can't be read.
pub(super) fn end_of(path: &Path) -> io::Result<End> {
    let (mut last, mut whole_bytes, mut torn_bytes) = (None, 0, 0);
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.line()? {
        match line {
            Line::Whole(line) => {
                whole_bytes += line.len() as u64 + 1;
                last = Some(line);
            }
            Line::Torn(bytes) => torn_bytes = bytes as u64,
            // What follows is nothing that was written here.
            Line::TooLong => {
                torn_bytes = std::fs::metadata(path)?.len().saturating_sub(whole_bytes);
                break;
            }
        }
    }
    Ok(End { last: last.map(|line| Written::parse(&line)), whole_bytes, torn_bytes })
}

/// The newest entry that can be read; none in an empty log.
///
/// # Errors
/// A file can't be read.
pub fn head(folder: &Path) -> Result<Option<Written>, (PathBuf, io::Error)> {
    for (_, path) in files::all(folder).map_err(|error| (folder.to_owned(), error))?.into_iter().rev() {
        let failed = |error| (path.clone(), error);
        let end = end_of(&path).map_err(failed)?;
        if let Some(Ok(last)) = end.last {
            return Ok(Some(last));
        }
        // Its last line is damaged: the newest good one is somewhere before.
        let (mut good, mut lines) = (None, Lines::open(&path).map_err(failed)?);
        while let Some(Line::Whole(line)) = lines.line().map_err(failed)? {
            good = Written::parse(&line).ok().or(good);
        }
        if good.is_some() {
            return Ok(good);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Entry, Kind, Who};
    use serde_json::json;
    use std::fs;

    /// A log of two files with three entries each; the hash of each entry.
    fn log(folder: &Path) -> Vec<EntryHash> {
        let mut previous = EntryHash::none();
        let mut hashes = Vec::new();
        for file in [1, 4] {
            let mut text = String::new();
            for sequence in file..file + 3 {
                let entry =
                    Entry::new(Kind::Quarantine, Who::QueueManager, json!({ "queue": "Q", "number": sequence }));
                let (line, hash) = entry.line(sequence, 1_795_342_321_000 + sequence, &previous);
                text.push_str(&line);
                previous = hash.clone();
                hashes.push(hash);
            }
            fs::write(folder.join(files::name(file)), text).unwrap();
        }
        hashes
    }

    fn broken(folder: &Path, from: Option<&EntryHash>) -> Vec<(String, u64, Fault)> {
        let breaks = verify(folder, from).unwrap().breaks;
        breaks.into_iter().map(|found| (found.file, found.line, found.what)).collect()
    }

    #[test]
    fn a_chain_that_nobody_touched_holds_over_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let hashes = log(folder.path());
        let verdict = verify(folder.path(), None).unwrap();
        assert_eq!(verdict.breaks, []);
        assert_eq!((verdict.files, verdict.entries, verdict.head.as_ref()), (2, 6, hashes.last()));
        let ((first, from), (last, to)) = verdict.extent.unwrap();
        assert_eq!((first, last), (1, 6));
        assert_eq!((from.as_str(), to.as_str()), ("2026-11-22T10:12:01.001Z", "2026-11-22T10:12:01.006Z"));
        assert_eq!(head(folder.path()).unwrap().unwrap().hash, *hashes.last().unwrap());
        for hash in &hashes {
            assert_eq!(broken(folder.path(), Some(hash)), [], "each of its hashes can be kept elsewhere");
        }
    }

    #[test]
    fn every_byte_that_is_changed_is_found_in_its_line() {
        let folder = tempfile::tempdir().unwrap();
        log(folder.path());
        for first in [1, 4] {
            let path = folder.path().join(files::name(first));
            let good = fs::read(&path).unwrap();
            for at in 0..good.len() {
                let line = 1 + good[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
                for flip in [0x01, 0x20, 0x80] {
                    let mut bad = good.clone();
                    bad[at] ^= flip;
                    fs::write(&path, &bad).unwrap();
                    let found = broken(folder.path(), None);
                    let place = found.first().map(|(file, line, _)| (file.as_str(), *line));
                    assert_eq!(place, Some((files::name(first).as_str(), line)), "byte {at} ^ {flip:#x}");
                }
            }
            fs::write(&path, &good).unwrap();
        }
        assert_eq!(broken(folder.path(), None), []);
    }

    #[test]
    fn a_tail_cut_inside_a_line_is_found_and_one_between_lines_by_a_hash_that_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let hashes = log(folder.path());
        let path = folder.path().join(files::name(4));
        let good = fs::read(&path).unwrap();
        let lines: Vec<usize> = good.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
        for length in 1..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            let whole = lines.iter().filter(|end| **end < length).count() as u64;
            match lines.contains(&(length - 1)) {
                true => assert_eq!(broken(folder.path(), None), [], "cut behind entry {}", 3 + whole),
                false => {
                    let found = broken(folder.path(), None);
                    assert!(
                        matches!(found[..], [(_, line, Fault::Torn { .. })] if line == whole + 1),
                        "{length}: {found:?}"
                    );
                }
            }
            let last = hashes.last().unwrap();
            let unknown = (String::new(), 0, Fault::Unknown { hash: last.clone() });
            assert_eq!(broken(folder.path(), Some(last)).last(), Some(&unknown), "{length}");
        }
    }

    #[test]
    fn lines_and_files_that_are_missing_repeated_or_in_another_order_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let hashes = log(folder.path());
        let (first, second) = (folder.path().join(files::name(1)), folder.path().join(files::name(4)));
        let good = fs::read_to_string(&first).unwrap();
        let lines: Vec<&str> = good.lines().collect();
        let (one, two) = (files::name(1), files::name(4));
        for (order, line, fault) in [
            (&[0, 2][..], 2, Fault::Sequence { expected: 2, found: 3 }),
            (&[1, 0, 2], 1, Fault::Name { found: 2 }),
            (&[0, 1, 1, 2], 3, Fault::Sequence { expected: 3, found: 2 }),
            (&[1, 2], 1, Fault::Name { found: 2 }),
        ] {
            let text: String = order.iter().map(|at| format!("{}\n", lines[*at])).collect();
            fs::write(&first, text).unwrap();
            assert_eq!(broken(folder.path(), None)[0], (one.clone(), line, fault), "{order:?}");
        }
        // The end of a file in the middle.
        fs::write(&first, format!("{}\n{}\n", lines[0], lines[1])).unwrap();
        assert_eq!(broken(folder.path(), None), [(two.clone(), 1, Fault::Sequence { expected: 3, found: 4 })]);
        fs::write(&first, &good[..good.len() - 1]).unwrap();
        assert!(matches!(broken(folder.path(), None)[0], (_, 3, Fault::Cut { .. })));
        // A file in the middle, and the oldest one, which may go where its last hash is kept.
        fs::remove_file(&first).unwrap();
        assert_eq!(broken(folder.path(), None), [(two.clone(), 1, Fault::Begin { found: 4 })]);
        assert_eq!(broken(folder.path(), Some(&hashes[2])), []);
        assert_eq!(broken(folder.path(), Some(&hashes[4])), []);
        assert_eq!(broken(folder.path(), Some(&hashes[1])).len(), 1, "what came behind that one is missing");
        fs::rename(&second, folder.path().join(files::name(5))).unwrap();
        assert_eq!(broken(folder.path(), Some(&hashes[2])), [(files::name(5), 1, Fault::Name { found: 4 })]);
        fs::remove_file(folder.path().join(files::name(5))).unwrap();
        assert_eq!(broken(folder.path(), None), [(String::new(), 0, Fault::Nothing)]);
    }

    /// The owner of the machine can compute every hash anew: only a hash that was kept elsewhere shows it.
    #[test]
    fn a_log_that_was_written_anew_is_found_by_a_hash_that_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let hashes = log(folder.path());
        let mut previous = EntryHash::none();
        let mut text = String::new();
        for sequence in 1..=6 {
            let entry = Entry::new(Kind::Quarantine, Who::QueueManager, json!({ "queue": "OTHER" }));
            let (line, hash) = entry.line(sequence, 0, &previous);
            text.push_str(&line);
            previous = hash;
        }
        fs::write(folder.path().join(files::name(1)), text).unwrap();
        fs::remove_file(folder.path().join(files::name(4))).unwrap();
        assert_eq!(broken(folder.path(), None), []);
        assert_eq!(broken(folder.path(), Some(&hashes[5])).len(), 1);
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_the_longest_entry() {
        let mut endless = io::repeat(b'x');
        assert!(matches!(next_line(&mut BufReader::new(&mut endless)).unwrap(), Some(Line::TooLong)));
    }
}
