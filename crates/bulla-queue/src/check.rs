//! Reads a whole journal and believes nothing: every header and every body against its checksum. Changes nothing.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use crate::file_log::{Segment, segment_base, segment_name};
use crate::log::{LogError, Position};
use crate::message::{MessageId, QueueId};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, Record, Records, check_bodies};
use crate::storage::{DirStorage, Storage, StorageFile};

/// Damages that are reported; the rest is counted.
pub const DAMAGES_REPORTED_MAX: usize = 100;

/// One thing that is not as it was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in the log.
    pub at: Position,
    /// What is wrong, in words.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at position {}: {}", self.file, self.at, self.what)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckReport {
    /// Segments that are in use.
    pub segments: u64,
    /// Whole batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bodies of messages and definitions in them, those of what is gone included.
    pub bodies: u64,
    /// Bytes of those bodies.
    pub body_bytes: u64,
    /// Queues that are there at the end.
    pub queues: u64,
    /// Messages that are there at the end.
    pub messages: u64,
    /// Notes that are there at the end.
    pub notes: u64,
    /// Objects that are defined at the end.
    pub objects: u64,
    /// Where the log begins and ends.
    pub extent: Option<(Position, Position)>,
    /// A batch lies at the end that a crash cut short. It was never confirmed, and the next start drops it.
    pub cut: bool,
    /// The store was closed in order.
    pub clean: bool,
    /// The first [`DAMAGES_REPORTED_MAX`] damages.
    pub damages: Vec<Damage>,
    /// All damages.
    pub damages_count: u64,
}

/// Checks the journal in a directory. Takes no lock: while a queue manager runs on it, the end may look cut.
///
/// # Errors
/// [`LogError::Unavailable`] when a file can't be read, [`LogError::Newer`].
pub fn check(dir: &Path) -> Result<CheckReport, LogError> {
    check_storage(&DirStorage::read_only(dir))
}

/// Checks the journal in a storage.
///
/// # Errors
/// As [`check`].
pub fn check_storage<S: Storage>(storage: &S) -> Result<CheckReport, LogError> {
    let names = storage.list().map_err(LogError::Unavailable)?;
    let mut bases: Vec<_> = names.iter().filter_map(|name| segment_base(name)).collect();
    bases.sort_unstable();
    let mut check = Check::default();
    let mut expected = None;
    for (index, &base) in bases.iter().enumerate() {
        check.file = segment_name(base);
        let file = storage.open(&check.file).map_err(LogError::Unavailable)?;
        let segment = match Segment::open(file, base) {
            Ok(segment) => segment,
            Err(LogError::Damaged { at, reason }) => {
                check.damage(at.0, reason);
                expected = None;
                continue;
            }
            Err(error) => return Err(error),
        };
        if expected.is_some_and(|expected| expected != base) {
            check.damage(base, "the segment does not begin where the one before ends".to_owned());
        }
        let end = check.segment(&segment, index + 1 == bases.len())?;
        let start = check.report.extent.map_or(Position(base), |(start, _)| start);
        check.report.extent = Some((start, Position(end)));
        expected = Some(end);
    }
    let mut report = check.report;
    let is_there = |queue: &&QueueId| check.queues.get(queue).is_some_and(|is_there| *is_there);
    report.queues = check.queues.keys().filter(is_there).count() as u64;
    report.messages = check.messages.values().filter(is_there).count() as u64;
    report.notes = check.notes.len() as u64;
    report.objects = check.objects.len() as u64;
    Ok(report)
}

#[derive(Default)]
struct Check {
    report: CheckReport,
    file: String,
    epoch: u64,
    /// Whether each queue is still there.
    queues: HashMap<QueueId, bool>,
    messages: HashMap<MessageId, QueueId>,
    notes: HashSet<String>,
    objects: HashSet<String>,
}

impl Check {
    fn damage(&mut self, at: u64, what: String) {
        self.report.damages_count += 1;
        if self.report.damages.len() < DAMAGES_REPORTED_MAX {
            self.report.damages.push(Damage { file: self.file.clone(), at: Position(at), what });
        }
    }

    /// Returns where the segment's last batch ends.
    fn segment<F: StorageFile>(&mut self, segment: &Segment<F>, is_last: bool) -> Result<u64, LogError> {
        self.report.segments += 1;
        self.epoch = self.epoch.max(segment.header.epoch);
        let mut at = segment.header.base;
        loop {
            if let Some(header) = segment.header_at(at, self.epoch)? {
                let end = at + header.batch_bytes();
                let (head, problems) = read_batch(segment, at, &header)?;
                if !problems.is_empty() && is_last && segment.good_batch_behind(at, self.epoch)?.is_none() {
                    self.report.cut = true;
                    return Ok(at);
                }
                if problems.is_empty() {
                    self.report.batches += 1;
                }
                problems.into_iter().for_each(|(at, what)| self.damage(at, what));
                self.count(&head);
                self.epoch = header.epoch;
                at = end;
            } else if let Some(next) = segment.good_batch_behind(at, self.epoch)? {
                self.damage(at, format!("no batch begins here, and the next good one only {} bytes on", next - at));
                at = next;
            } else {
                return Ok(at);
            }
        }
    }

    fn count(&mut self, head: &[u8]) {
        for record in Records::new(head).map_while(Result::ok) {
            self.report.records += 1;
            self.report.clean = false;
            if let Some((bytes, _)) = record.body() {
                self.report.bodies += 1;
                self.report.body_bytes += u64::from(bytes);
            }
            match record {
                // As at a start: a queue that went does not come back, and a message does not change its queue.
                Record::Put(put) | Record::Moved(put) | Record::Replaced(put) => {
                    self.messages.entry(put.id).or_insert(put.queue);
                }
                Record::Removed(id) => {
                    self.messages.remove(&id);
                }
                Record::Defined { queue, .. } => {
                    self.queues.entry(queue).or_insert(true);
                }
                Record::Deleted(queue) => {
                    self.queues.insert(queue, false);
                }
                Record::Checkpoint { clean, .. } => self.report.clean = clean,
                Record::Noted { name, .. } => {
                    self.notes.insert(name.to_owned());
                }
                Record::Unnoted { name } => {
                    self.notes.remove(name);
                }
                Record::Object { name, .. } => {
                    self.objects.insert(name.to_owned());
                }
                Record::ObjectGone { name } => {
                    self.objects.remove(name);
                }
                Record::Failed { .. } | Record::Delayed { .. } | Record::Keys { .. } => {}
            }
        }
    }
}

/// Where something is wrong, and what.
type Problem = (u64, String);

/// Reads a whole batch: its record headers, none if their checksum is wrong, and what is wrong where.
fn read_batch<F: StorageFile>(
    segment: &Segment<F>,
    at: u64,
    header: &BatchHeader,
) -> Result<(Vec<u8>, Vec<Problem>), LogError> {
    let head_at = at + BATCH_HEADER_BYTES as u64;
    let mut head = vec![0; (header.batch_bytes() - BATCH_HEADER_BYTES as u64) as usize];
    segment.read_at(head_at, &mut head).map_err(LogError::Unavailable)?;
    let bodies = head.split_off(header.head_bytes as usize);
    if crc32c::crc32c(&head) != header.head_crc {
        let what = "the record headers of the batch have a wrong checksum".to_owned();
        return Ok((Vec::new(), vec![(head_at, what)]));
    }
    let mut problems = Vec::new();
    let bodies_at = head_at + head.len() as u64;
    let checked = check_bodies(&head, &bodies, &mut |wrong| {
        problems.push((bodies_at + wrong.offset, format!("the body of {} has a wrong checksum", wrong.of)));
    });
    if let Err(error) = checked {
        problems.push((head_at + error.offset as u64, error.to_string()));
    }
    Ok((head, problems))
}
