//! The embedded journal: a [`Log`] in preallocated, pre-written segment files.
//!
//! Four parties share [`Shared`]: the store's thread submits and polls; the writer (a thread named `journal`, or the
//! submitting thread) writes one batch at a time and syncs it before it looks at the next; the keeper (a thread named
//! `journal-space`, or the submitting thread) makes new segments ahead of need and recycles dead ones; the reader (a
//! thread named `journal-reader`) reads back what is not in the page cache. What is there is copied by who asks.

mod segment;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use segment::{FORMAT_VERSION, SEGMENT_HEADER_BYTES, SegmentHeader};
pub(crate) use segment::{Segment, Walked, segment_base, segment_name};

use crate::log::{Batch, Claim, Epoch, Event, Log, LogError, LogLimits, Position, Read, ReadDone, Replayed, Survives};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader};
use crate::storage::{Storage, StorageFile};

/// Bytes of a segment where nothing is said, header excluded.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Bytes of the first segment of a new log: small, so that an empty store starts at once.
pub const FIRST_SEGMENT_BYTES_DEFAULT: u64 = 16 << 20;
/// Bytes up to which an adaptive driver writes a batch on the submitting thread.
pub const ADAPTIVE_BYTES_DEFAULT: u64 = 16 << 10;

/// A batch above this part of a segment gets a segment of its own, so that the rest of a segment that it does not fit
/// into is never more than this.
const LARGE_BATCH_DIVISOR: u64 = 8;
/// Dead segments kept for reuse.
const SPARES_MAX: usize = 2;
/// Bytes written at once when a segment is made.
const ZEROS_BYTES: usize = 1 << 20;
/// How long a full disk is not asked again, unless a segment came free.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// Batches under way at once: one is written, the next waits, so that the disk never idles while the store hears of the
/// first.
const BATCHES_IN_FLIGHT_MAX: usize = 2;

/// Bytes of a body that the asking thread copies out of the page cache: some tens of microseconds.
const READ_AT_ONCE_BYTES_MAX: usize = 256 << 10;
/// Reads that wait for the reader, or for the store to collect them.
const READS_IN_FLIGHT_MAX: usize = 1_024;

const LOCK_NAME: &str = "lock";
const SPARE_PREFIX: &str = "spare-";
/// A segment in the making; removed at start.
const NEW_PREFIX: &str = "new-";

/// On whose time batches are written and synced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Driver {
    /// A thread of its own: the submitter never waits.
    Thread,
    /// The submitter: synced when `submit` returns. For tests, and for tools that have nothing else to do.
    Inline,
    /// The submitter, when nothing is under way, the batch is small and the disk is quick, because handing over and
    /// waking up cost half of what the sync costs; else the thread. The disk counts as slow once a new segment is
    /// begun, and after a batch that took longer than [`INLINE_WITHIN`], until a batch takes less.
    Adaptive {
        /// The largest batch, in bytes, that the submitter writes.
        bytes: u64,
    },
}

/// How long a batch may take for the next one still to be written by its submitter.
pub const INLINE_WITHIN: Duration = Duration::from_millis(2);

/// How a file log is kept.
#[derive(Clone)]
pub struct FileLogOptions {
    /// Bytes of a segment, header excluded.
    pub segment_bytes: u64,
    /// Bytes of the first segment of a new log.
    pub first_segment_bytes: u64,
    /// Who writes.
    pub driver: Driver,
    /// Called from the journal's thread when there is something to poll. Must not block.
    pub waker: Arc<dyn Fn() + Send + Sync>,
    /// Called on the journal's thread with each batch's work, which it must carry out, once: a hook for measuring.
    pub around_batch: Around,
    /// The same for a batch that the submitting thread writes itself.
    pub around_inline: Around,
    /// Called at the beginning of each thread of the log, on that thread.
    pub thread_begins: Arc<dyn Fn() + Send + Sync>,
    /// By which it is told how long batches take.
    pub clock: Arc<dyn Fn() -> Instant + Send + Sync>,
}

/// Something that carries out what it is given.
pub type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

impl Default for FileLogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            first_segment_bytes: FIRST_SEGMENT_BYTES_DEFAULT,
            driver: Driver::Inline,
            waker: Arc::new(|| {}),
            around_batch: Arc::new(|write| write()),
            around_inline: Arc::new(|write| write()),
            thread_begins: Arc::new(|| {}),
            clock: Arc::new(Instant::now),
        }
    }
}

impl fmt::Debug for FileLogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileLogOptions({} byte segments, {:?})", self.segment_bytes, self.driver)
    }
}

/// The name of the thread that writes batches.
pub const JOURNAL_THREAD: &str = "journal";

/// A log in a directory.
pub struct FileLog<S: Storage> {
    shared: Arc<Shared<S>>,
    options: FileLogOptions,
    threads: Vec<JoinHandle<()>>,
    /// Held for as long as the log is, from the opening on or from the claim.
    lock: Option<S::File>,
    claimed: bool,
    /// The last batch that was handed on while another owner writes.
    followed: Option<BatchHeader>,
}

struct Shared<S: Storage> {
    storage: S,
    segment_bytes: u64,
    waker: Arc<dyn Fn() + Send + Sync>,
    around_batch: Around,
    around_inline: Around,
    clock: Arc<dyn Fn() -> Instant + Send + Sync>,
    /// The last batch took longer than one may that its submitter writes, or the disk has a segment to write.
    is_slow: AtomicBool,
    /// Between the submitter and the journal's thread.
    inbox: Mutex<Inbox>,
    inbox_changed: Condvar,
    writer: Mutex<Writer<S>>,
    /// Segments in use, oldest first.
    segments: Mutex<VecDeque<Arc<Segment<S::File>>>>,
    space: Mutex<Space<S>>,
    space_changed: Condvar,
    /// Between the store's thread and the reader.
    reads: Mutex<Reads<S::File>>,
    reads_changed: Condvar,
}

struct Reads<F> {
    waiting: VecDeque<(Read, Arc<Segment<F>>)>,
    /// The reader has one in hand.
    reading: usize,
    done: Vec<ReadDone>,
    stop: bool,
}

#[derive(Default)]
struct Inbox {
    waiting: VecDeque<Batch>,
    /// The writer has one in hand.
    writing: bool,
    events: Vec<Event>,
    emptied: Vec<Batch>,
    failed: Option<String>,
    stop: bool,
    /// Bytes submitted and not yet written, batches with a segment of their own excluded.
    unwritten_bytes: u64,
}

struct Writer<S: Storage> {
    current: Option<Arc<Segment<S::File>>>,
    end: u64,
    epoch: u64,
}

/// A segment that is not in use: written full once, or only allocated; no batch is in it that its next header would let
/// pass.
struct Spare<F> {
    name: String,
    file: F,
    capacity: u64,
}

struct Space<S: Storage> {
    spares: Vec<Spare<S::File>>,
    /// Segments of one large batch each, reserved.
    dedicated: Vec<Spare<S::File>>,
    /// How many of them may still leave the rest of a spare unused: a batch that goes before one may begin a spare,
    /// and nothing is written there behind the segment of the large batch.
    cutting: usize,
    retired: VecDeque<Arc<Segment<S::File>>>,
    /// Bytes left in the segment that is written.
    current_left: u64,
    next_number: u64,
    /// A thread makes a segment.
    making: bool,
    /// Names of spares that were allocated, and need not survive a power cut yet.
    unsynced: Vec<String>,
    /// When the disk said that it is full.
    full: bool,
    full_since: Option<Instant>,
    failed: Option<String>,
    stop: bool,
}

impl<S: Storage> FileLog<S> {
    /// Takes the directory's lock. `claim` reads what is in it.
    ///
    /// # Errors
    /// [`LogError::Owned`], [`LogError::Unavailable`].
    pub fn open(storage: S, options: FileLogOptions) -> Result<Self, LogError> {
        let mut log = Self::follow(storage, options);
        log.lock = Some(log.take_lock()?);
        Ok(log)
    }

    fn take_lock(&self) -> Result<S::File, LogError> {
        let lock = self.shared.storage.lock(LOCK_NAME).map_err(LogError::Unavailable)?;
        lock.ok_or(LogError::Owned { epoch: None })
    }

    /// The log in a directory that another owner may have: to `replay` what that one writes, and to `claim` it when
    /// that one is gone.
    pub fn follow(storage: S, options: FileLogOptions) -> Self {
        let space = Space {
            spares: Vec::new(),
            dedicated: Vec::new(),
            cutting: 0,
            retired: VecDeque::new(),
            current_left: 0,
            next_number: 0,
            making: false,
            unsynced: Vec::new(),
            full: false,
            full_since: None,
            failed: None,
            stop: false,
        };
        let shared = Shared {
            storage,
            segment_bytes: options.segment_bytes,
            waker: options.waker.clone(),
            around_batch: options.around_batch.clone(),
            around_inline: options.around_inline.clone(),
            clock: options.clock.clone(),
            is_slow: AtomicBool::new(false),
            inbox: Mutex::default(),
            inbox_changed: Condvar::new(),
            writer: Mutex::new(Writer { current: None, end: 0, epoch: 0 }),
            segments: Mutex::default(),
            space: Mutex::new(space),
            space_changed: Condvar::new(),
            reads: Mutex::new(Reads { waiting: VecDeque::new(), reading: 0, done: Vec::new(), stop: false }),
            reads_changed: Condvar::new(),
        };
        Self { shared: Arc::new(shared), options, threads: Vec::new(), lock: None, claimed: false, followed: None }
    }

    /// Finds the segments, the spares and the end; makes sure that what was found stays.
    fn recover(&mut self) -> Result<(Epoch, Position), LogError> {
        let shared = &self.shared;
        let storage = &shared.storage;
        let mut bases = Vec::new();
        let mut space = hold(&shared.space);
        for name in storage.list().map_err(LogError::Unavailable)? {
            if let Some(base) = segment_base(&name) {
                bases.push(base);
            } else if name.starts_with(NEW_PREFIX) {
                storage.remove(&name).map_err(LogError::Unavailable)?;
            } else if let Some(number) = name.strip_prefix(SPARE_PREFIX).and_then(|number| number.parse::<u64>().ok()) {
                let file = storage.open(&name).map_err(LogError::Unavailable)?;
                let bytes = file.bytes().map_err(LogError::Unavailable)?;
                space.next_number = space.next_number.max(number.saturating_add(1));
                if bytes == SEGMENT_HEADER_BYTES + shared.segment_bytes {
                    space.spares.push(Spare { name, file, capacity: shared.segment_bytes });
                } else {
                    storage.remove(&name).map_err(LogError::Unavailable)?;
                }
            }
        }
        bases.sort_unstable();
        let mut segments = VecDeque::with_capacity(bases.len());
        for base in bases {
            let file = storage.open(&segment_name(base)).map_err(LogError::Unavailable)?;
            segments.push_back(Arc::new(Segment::open(file, base)?));
        }
        // What a crash left of names and contents is what we go on from, so it must not change any more.
        storage.sync_dir().map_err(LogError::Unavailable)?;
        let mut writer = hold(&shared.writer);
        if let Some(last) = segments.back() {
            let walked = last.walk(0, None, &mut |_| {})?;
            settle_tail(last, &walked).map_err(LogError::Unavailable)?;
            writer.end = walked.end;
            writer.epoch = walked.epoch;
            space.current_left = last.space_end() - walked.end;
        }
        for segment in &segments {
            writer.epoch = writer.epoch.max(segment.header.epoch);
        }
        writer.epoch += 1;
        // What this program writes is told from what an older one wrote: that one refuses the segment, and says why.
        let is_older = segments.back().is_some_and(|last| last.header.version < FORMAT_VERSION);
        let is_empty = segments.back().is_some_and(|last| last.header.base == writer.end);
        if is_older
            && is_empty
            && let Some(last) = segments.pop_back()
        {
            // The next one begins where it does, and has its name.
            storage.remove(&segment_name(last.header.base)).map_err(LogError::Unavailable)?;
            storage.sync_dir().map_err(LogError::Unavailable)?;
        }
        writer.current = segments.back().filter(|_| !is_older).cloned();
        *hold(&shared.segments) = segments;
        Ok((Epoch(writer.epoch), Position(writer.end)))
    }

    /// Hands on what another owner has written since.
    fn follow_on(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        let storage = &self.shared.storage;
        let names = storage.list().map_err(LogError::Unavailable)?;
        let mut bases: Vec<u64> = names.iter().filter_map(|name| segment_base(name)).collect();
        bases.sort_unstable();
        let oldest = bases.first().copied();
        let from = from.or(oldest.map(Position)).unwrap_or(Position(0));
        if oldest.is_some_and(|oldest| oldest > from.0) || (oldest.is_none() && self.followed.is_some()) {
            self.followed = None;
            return Err(LogError::Released { from });
        }
        let needed = bases.partition_point(|base| *base <= from.0).saturating_sub(1);
        let mut segments = Vec::with_capacity(bases.len() - needed.min(bases.len()));
        for base in bases.into_iter().skip(needed) {
            match storage.open(&segment_name(base)) {
                Ok(file) => match Segment::open(file, base) {
                    Ok(segment) => segments.push(Arc::new(segment)),
                    // Its owner uses the file for another segment by now. What is really damaged is told at a claim.
                    Err(LogError::Damaged { .. }) => return Ok(from),
                    Err(error) => return Err(error),
                },
                // Its owner has let it go meanwhile: the next call finds the others.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(from),
                Err(error) => return Err(LogError::Unavailable(error)),
            }
        }
        if !self.is_still_there(&segments)? {
            self.followed = None;
            return Err(LogError::Released { from });
        }
        let mut end = from.0;
        for (index, segment) in segments.iter().enumerate() {
            let follows = segments.get(index + 1).map(|next| next.header.base);
            let last;
            (end, last) = segment.follow(end.max(segment.header.base), follows, each)?;
            self.followed = last.or(self.followed);
            if follows != Some(end) {
                break;
            }
        }
        Ok(Position(end))
    }

    /// Whether the last batch that was handed on is what it was: a power cut may have taken it from the one who wrote
    /// it, and another may be in its place. One that has been let go was.
    fn is_still_there(&self, segments: &[Arc<Segment<S::File>>]) -> Result<bool, LogError> {
        let Some(last) = &self.followed else { return Ok(true) };
        let index = segments.partition_point(|segment| segment.header.base <= last.at);
        let Some(segment) = index.checked_sub(1).and_then(|index| segments.get(index)) else { return Ok(true) };
        Ok(segment.header_at(last.at, 0)?.is_some_and(|there| there == *last))
    }

    fn start_threads(&mut self) -> io::Result<()> {
        if self.options.driver == Driver::Inline {
            return Ok(());
        }
        let mut start = |name: &str, run: fn(&Shared<S>)| {
            let (shared, begins) = (self.shared.clone(), self.options.thread_begins.clone());
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
                begins();
                run(&shared);
            });
            thread.map(|thread| self.threads.push(thread))
        };
        start(JOURNAL_THREAD, Shared::write_until_stopped)?;
        start("journal-reader", Shared::read_until_stopped)?;
        start("journal-space", Shared::keep_space_until_stopped)
    }

    /// The keeper has something to do.
    fn have_space_kept(&self) {
        match self.options.driver {
            Driver::Inline => self.shared.keep_space(),
            Driver::Thread | Driver::Adaptive { .. } => self.shared.space_changed.notify_all(),
        }
    }

    fn is_inline(&self, batch: &Batch, inbox: &Inbox) -> bool {
        match self.options.driver {
            Driver::Thread => false,
            Driver::Inline => true,
            Driver::Adaptive { bytes } => {
                // It guards nothing: a batch that is written elsewhere than it might be is written all the same.
                let is_quick = || !self.shared.is_slow.load(Ordering::Relaxed);
                let is_small = !batch.patient && batch.bytes() <= bytes;
                is_small && inbox.waiting.is_empty() && !inbox.writing && is_quick()
            }
        }
    }
}

/// Writes the last batch again and syncs it: a crash, or a sync that failed, may have left it in the cache alone, and
/// from now on it counts as durable. Wipes the header of a batch that was cut, so that no later crash finds it again.
fn settle_tail<F: StorageFile>(segment: &Segment<F>, walked: &Walked) -> io::Result<()> {
    if let Some(last) = walked.last {
        let mut batch = vec![0; usize::try_from(walked.end - last).unwrap_or(0)];
        segment.read_at(last, &mut batch)?;
        segment.write_at(last, &batch)?;
    }
    if walked.end + BATCH_HEADER_BYTES as u64 <= segment.space_end() {
        segment.write_at(walked.end, &[0; BATCH_HEADER_BYTES])?;
    }
    segment.file.sync()
}

impl<S: Storage> Log for FileLog<S> {
    fn claim(&mut self, _now: Instant, _how: Claim) -> Result<(Epoch, Position), LogError> {
        if self.lock.is_none() {
            self.lock = Some(self.take_lock()?);
        }
        let claimed = self.recover()?;
        let mut writer = hold(&self.shared.writer);
        if writer.current.is_none() {
            let is_first = hold(&self.shared.segments).is_empty();
            let spare = if is_first { None } else { hold(&self.shared.space).spares.pop() };
            let bytes = if is_first { self.options.first_segment_bytes } else { self.shared.segment_bytes };
            let spare = spare.map_or_else(|| self.shared.make(bytes), Ok)?;
            self.shared.start_segment(&mut writer, spare)?;
        }
        drop(writer);
        if !self.claimed {
            self.claimed = true;
            self.start_threads().map_err(LogError::Unavailable)?;
        }
        self.shared.space_changed.notify_all();
        Ok(claimed)
    }

    fn start(&self) -> Position {
        Position(hold(&self.shared.segments).front().map_or(0, |segment| segment.header.base))
    }

    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        if !self.claimed {
            return self.follow_on(from, each);
        }
        let segments: Vec<_> = hold(&self.shared.segments).iter().cloned().collect();
        let oldest = segments.first().map_or(0, |segment| segment.header.base);
        let from = from.unwrap_or(Position(oldest));
        if from.0 < oldest || from.0 > hold(&self.shared.writer).end || !self.is_still_there(&segments)? {
            return Err(LogError::Released { from });
        }
        let mut end = from.0;
        for (index, segment) in segments.iter().enumerate() {
            let follows = segments.get(index + 1).map(|next| next.header.base);
            if follows.is_some_and(|base| base <= from.0) {
                continue;
            }
            let walked = segment.walk(from.0, follows, each)?;
            if follows.is_some_and(|base| base != walked.end) {
                let reason = "the next segment does not begin where this batch ends".to_owned();
                return Err(LogError::Damaged { at: Position(walked.end), reason });
            }
            end = walked.end;
        }
        Ok(Position(end))
    }

    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)> {
        let mut inbox = hold(&self.shared.inbox);
        if let Some(reason) = &inbox.failed {
            let reason = reason.clone();
            return Err((batch, LogError::Failed { reason }));
        }
        if inbox.waiting.len() + usize::from(inbox.writing) >= BATCHES_IN_FLIGHT_MAX {
            return Err((batch, LogError::Busy));
        }
        if batch.bytes() <= self.limits().batch_bytes_max {
            inbox.unwritten_bytes += batch.bytes();
        }
        if !self.is_inline(&batch, &inbox) {
            inbox.waiting.push_back(batch);
            drop(inbox);
            self.shared.inbox_changed.notify_all();
            return Ok(());
        }
        inbox.writing = true;
        drop(inbox);
        self.shared.write_within(&self.shared.around_inline, batch);
        if self.options.driver == Driver::Inline {
            self.shared.keep_space();
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>, spare: &mut Vec<Batch>) -> Result<(), LogError> {
        {
            let mut space = hold(&self.shared.space);
            if space.full && now.saturating_duration_since(*space.full_since.get_or_insert(now)) >= FULL_RETRY {
                space.full = false;
                space.full_since = None;
                self.shared.space_changed.notify_all();
            }
            if let Some(reason) = &space.failed {
                return Err(LogError::Failed { reason: reason.clone() });
            }
        }
        let mut inbox = hold(&self.shared.inbox);
        events.append(&mut inbox.events);
        spare.append(&mut inbox.emptied);
        match &inbox.failed {
            Some(reason) => Err(LogError::Failed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn settle(&mut self) {
        let mut inbox = hold(&self.shared.inbox);
        while (inbox.writing || !inbox.waiting.is_empty()) && inbox.failed.is_none() {
            inbox = self.shared.inbox_changed.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        let segment = self.shared.segment_of(read.at, read.bytes)?;
        let mut bytes = Vec::new();
        if self.options.driver == Driver::Inline {
            bytes.resize(read.bytes, 0);
            segment.read_at(read.at.0, &mut bytes).map_err(LogError::Unavailable)?;
            return Ok(Some(bytes));
        }
        if read.bytes <= READ_AT_ONCE_BYTES_MAX {
            bytes.resize(read.bytes, 0);
            if segment.read_at_once(read.at.0, &mut bytes).map_err(LogError::Unavailable)? {
                return Ok(Some(bytes));
            }
        }
        let mut reads = hold(&self.shared.reads);
        if reads.waiting.len() + reads.reading + reads.done.len() >= READS_IN_FLIGHT_MAX {
            return Err(LogError::Busy);
        }
        reads.waiting.push_back((read, segment));
        drop(reads);
        self.shared.reads_changed.notify_one();
        Ok(None)
    }

    fn poll_reads(&mut self, _now: Instant, done: &mut Vec<ReadDone>) {
        done.append(&mut hold(&self.shared.reads).done);
    }

    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        let segment = self.shared.segment_of(at, bytes)?;
        into.resize(bytes, 0);
        segment.read_at(at.0, into).map_err(LogError::Unavailable)
    }

    fn release(&mut self, before: Position) -> Result<(), LogError> {
        let mut segments = hold(&self.shared.segments);
        let mut space = hold(&self.shared.space);
        while segments.get(1).is_some_and(|next| next.header.base <= before.0) {
            if let Some(dead) = segments.pop_front() {
                space.retired.push_back(dead);
            }
        }
        drop((segments, space));
        self.have_space_kept();
        Ok(())
    }

    fn space(&self) -> u64 {
        let unwritten = hold(&self.shared.inbox).unwritten_bytes;
        hold(&self.shared.space).bytes(self.limits().batch_bytes_max).saturating_sub(unwritten)
    }

    fn reserve(&mut self, batch_bytes: u64, besides: u64) -> Result<(), LogError> {
        let batch_bytes_max = self.limits().batch_bytes_max;
        if batch_bytes <= batch_bytes_max {
            let added = self.shared.add_spare();
            self.have_space_kept();
            return added;
        }
        // Behind a segment of its own nothing goes into the segment before, however much is left there.
        let needed = besides.saturating_add(hold(&self.shared.inbox).unwritten_bytes);
        loop {
            let space = hold(&self.shared.space);
            if space.spare_bytes(batch_bytes_max, space.cutting + 1) >= needed {
                break;
            }
            drop(space);
            self.shared.add_spare()?;
        }
        let made = self.shared.allocate(batch_bytes)?;
        let mut space = hold(&self.shared.space);
        space.dedicated.push(made);
        space.cutting += 1;
        drop(space);
        self.have_space_kept();
        Ok(())
    }

    fn limits(&self) -> LogLimits {
        LogLimits {
            batches_in_flight_max: BATCHES_IN_FLIGHT_MAX,
            batch_bytes_max: self.options.segment_bytes / LARGE_BATCH_DIVISOR,
            survives: Survives::Power,
        }
    }
}

impl<S: Storage> Drop for FileLog<S> {
    fn drop(&mut self) {
        hold(&self.shared.inbox).stop = true;
        hold(&self.shared.space).stop = true;
        hold(&self.shared.reads).stop = true;
        self.shared.inbox_changed.notify_all();
        self.shared.reads_changed.notify_all();
        self.shared.space_changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on stderr; there is nothing left to save here.
            let _ = thread.join();
        }
    }
}

impl<S: Storage> Space<S> {
    /// Bytes that batches may take without a new segment: whatever does not fit into the rest of one goes to the next.
    fn bytes(&self, batch_bytes_max: u64) -> u64 {
        let rest = if self.dedicated.is_empty() { self.current_left.saturating_sub(batch_bytes_max) } else { 0 };
        self.spare_bytes(batch_bytes_max, self.cutting) + rest
    }

    /// Bytes that batches may take in spares, of which so many may be left before they are full.
    fn spare_bytes(&self, batch_bytes_max: u64, cutting: usize) -> u64 {
        self.spares.iter().rev().skip(cutting).map(|spare| spare.capacity.saturating_sub(batch_bytes_max)).sum()
    }
}

impl<S: Storage> Shared<S> {
    // ---- the writer

    fn write_until_stopped(&self) {
        let mut inbox = hold(&self.inbox);
        loop {
            // A batch that the submitter has in hand goes first.
            if inbox.writing || inbox.waiting.is_empty() || inbox.failed.is_some() {
                if inbox.stop && !inbox.writing {
                    return;
                }
                inbox = self.inbox_changed.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if let Some(batch) = inbox.waiting.pop_front() {
                inbox.writing = true;
                drop(inbox);
                self.write_within(&self.around_batch, batch);
                (self.waker)();
                inbox = hold(&self.inbox);
            }
        }
    }

    fn write_within(&self, around: &Around, batch: Batch) {
        let began = (self.clock)();
        let mut batch = Some(batch);
        around(&mut || {
            if let Some(batch) = batch.take() {
                self.write(batch, began);
            }
        });
        // One that was not carried out would keep all waiting.
        if let Some(batch) = batch.take() {
            self.write(batch, began);
        }
    }

    /// Writes and syncs one batch and tells the inbox. `inbox.writing` is set, so no other is under way.
    fn write(&self, mut batch: Batch, began: Instant) {
        let written = self.write_batch(&mut hold(&self.writer), &mut batch);
        let took = (self.clock)().saturating_duration_since(began);
        self.is_slow.store(took > INLINE_WITHIN, Ordering::Relaxed);
        let mut inbox = hold(&self.inbox);
        inbox.writing = false;
        match written {
            Ok(end) => inbox.events.push(Event::Synced(end)),
            // After a failed write or sync it is unknown what the disk has: nothing more is written, nothing more
            // answered.
            Err(error) => inbox.failed = Some(error.to_string()),
        }
        if batch.bytes() <= self.segment_bytes / LARGE_BATCH_DIVISOR {
            inbox.unwritten_bytes = inbox.unwritten_bytes.saturating_sub(batch.bytes());
        }
        inbox.emptied.push(batch);
        drop(inbox);
        self.inbox_changed.notify_all();
    }

    fn write_batch(&self, writer: &mut Writer<S>, batch: &mut Batch) -> Result<Position, LogError> {
        let failed = |what: &str, error: io::Error| LogError::Failed { reason: format!("{what}: {error}") };
        let bytes = batch.bytes();
        if batch.at != writer.end || batch.head.len() < BATCH_HEADER_BYTES {
            let reason = format!("a batch for {} came where {:#x} is the end", Position(batch.at), writer.end);
            return Err(LogError::Failed { reason });
        }
        let segment = match &writer.current {
            Some(segment) if writer.end + bytes <= segment.space_end() => segment.clone(),
            _ => self.roll(writer, bytes)?,
        };
        let head_bytes = batch.head.len() - BATCH_HEADER_BYTES;
        let fits = |bytes: usize| {
            u32::try_from(bytes).map_err(|_| LogError::Failed { reason: "a batch of over 4 GiB".to_owned() })
        };
        let header = BatchHeader {
            head_bytes: fits(head_bytes)?,
            body_bytes: fits(batch.body.len())?,
            at: batch.at,
            epoch: writer.epoch,
            head_crc: crc32c::crc32c(&batch.head[BATCH_HEADER_BYTES..]),
        };
        batch.head[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode(segment.header.salt));
        let head_bytes = batch.head.len() as u64;
        if batch.body.len() <= ONE_WRITE_BYTES_MAX {
            batch.head.extend_from_slice(&batch.body);
            let written = segment.write_at(batch.at, &batch.head);
            batch.head.truncate(head_bytes as usize);
            written.map_err(|error| failed("writing a batch", error))?;
        } else {
            segment.write_at(batch.at, &batch.head).map_err(|error| failed("writing a batch", error))?;
            segment.write_at(batch.at + head_bytes, &batch.body).map_err(|error| failed("writing a batch", error))?;
        }
        segment.file.sync().map_err(|error| failed("syncing a batch", error))?;
        writer.end += bytes;
        hold(&self.space).current_left = segment.space_end() - writer.end;
        Ok(Position(writer.end))
    }

    /// Goes on in a new segment that has room for `bytes`.
    fn roll(&self, writer: &mut Writer<S>, bytes: u64) -> Result<Arc<Segment<S::File>>, LogError> {
        let spare = loop {
            let mut space = hold(&self.space);
            if let Some(reason) = &space.failed {
                return Err(LogError::Failed { reason: reason.clone() });
            }
            if bytes > self.segment_bytes / LARGE_BATCH_DIVISOR {
                let fitting = space.dedicated.iter().enumerate().filter(|(_, spare)| spare.capacity >= bytes);
                // The smallest, so that a larger batch still finds its own.
                if let Some((index, _)) = fitting.min_by_key(|(_, spare)| spare.capacity) {
                    let segment = space.dedicated.swap_remove(index);
                    space.cutting = space.cutting.min(space.dedicated.len());
                    break segment;
                }
                drop(space);
                break self.make(bytes)?;
            }
            if let Some(spare) = space.spares.pop() {
                space.cutting = space.cutting.saturating_sub(1);
                break spare;
            }
            drop(space);
            self.make_spare(true)?;
        };
        self.space_changed.notify_all();
        self.start_segment(writer, spare)
    }

    /// Makes a spare the segment that is written.
    fn start_segment(&self, writer: &mut Writer<S>, spare: Spare<S::File>) -> Result<Arc<Segment<S::File>>, LogError> {
        let failed = |error: io::Error| LogError::Failed { reason: format!("beginning a segment: {error}") };
        let salt = self.storage.random().map_err(failed)?;
        let (version, epoch, base) = (FORMAT_VERSION, writer.epoch, writer.end);
        let header = SegmentHeader { version, epoch, base, capacity: spare.capacity, salt };
        spare.file.write_at(0, &header.encode()).map_err(failed)?;
        spare.file.sync().map_err(failed)?;
        // Renaming publishes the segment, but only syncing the directory makes its new name survive.
        self.storage.rename(&spare.name, &segment_name(header.base)).map_err(failed)?;
        self.storage.sync_dir().map_err(failed)?;
        let segment = Arc::new(Segment { file: spare.file, header });
        hold(&self.segments).push_back(segment.clone());
        hold(&self.space).current_left = header.capacity;
        writer.current = Some(segment.clone());
        Ok(segment)
    }

    // ---- the reader

    /// The segment in which so many bytes at a position lie.
    fn segment_of(&self, at: Position, bytes: usize) -> Result<Arc<Segment<S::File>>, LogError> {
        let segments = hold(&self.segments);
        let index = segments.partition_point(|segment| segment.header.base <= at.0);
        let segment = index.checked_sub(1).and_then(|index| segments.get(index));
        let ends_inside = |segment: &&Arc<Segment<S::File>>| {
            at.0.checked_add(bytes as u64).is_some_and(|end| end <= segment.space_end())
        };
        let missing = || LogError::Damaged { at, reason: "no segment has this position".to_owned() };
        segment.filter(ends_inside).cloned().ok_or_else(missing)
    }

    fn read_until_stopped(&self) {
        let mut reads = hold(&self.reads);
        while !reads.stop {
            let Some((Read { number, at, bytes }, segment)) = reads.waiting.pop_front() else {
                reads = self.reads_changed.wait(reads).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            reads.reading = 1;
            drop(reads);
            let mut read = vec![0; bytes];
            let done = segment.read_at(at.0, &mut read).map_err(LogError::Unavailable);
            drop(segment);
            reads = hold(&self.reads);
            reads.reading = 0;
            reads.done.push(ReadDone { number, bytes: done.map(|()| read) });
            drop(reads);
            (self.waker)();
            reads = hold(&self.reads);
        }
    }

    // ---- the keeper of space

    fn keep_space_until_stopped(&self) {
        loop {
            self.keep_space();
            let mut space = hold(&self.space);
            loop {
                if space.stop {
                    return;
                }
                let has_work = !space.retired.is_empty() || !space.unsynced.is_empty();
                let idle = !has_work && (!space.spares.is_empty() || space.full || space.making);
                if !idle && space.failed.is_none() {
                    break;
                }
                space = self.space_changed.wait(space).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Recycles what is retired, then makes a spare if there is none.
    fn keep_space(&self) {
        loop {
            let retired = {
                let mut space = hold(&self.space);
                if space.failed.is_some() {
                    return;
                }
                space.retired.pop_front()
            };
            let Some(dead) = retired else { break };
            if let Err(error) = self.recycle(&dead) {
                hold(&self.space).failed = Some(format!("retiring a segment: {error}"));
                (self.waker)();
                return;
            }
        }
        if let Err(error) = self.sync_allocated() {
            // A later sync of them would prove nothing.
            hold(&self.space).failed = Some(format!("syncing a new segment: {error}"));
            (self.waker)();
            return;
        }
        if hold(&self.space).spares.is_empty() {
            // A full disk is reported to those who put.
            let _ = self.make_spare(false);
        }
    }

    /// Makes allocated spares durable. One that is in use by now was synced before it was begun; one that is lost in a
    /// power cut is space that is free again.
    fn sync_allocated(&self) -> io::Result<()> {
        let unsynced = std::mem::take(&mut hold(&self.space).unsynced);
        if unsynced.is_empty() {
            return Ok(());
        }
        for file in unsynced.iter().filter_map(|name| self.storage.open(name).ok()) {
            file.sync()?;
        }
        self.storage.sync_dir()
    }

    /// Oldest first, and each name gone for good before the next is touched: a crash must not leave a gap.
    fn recycle(&self, dead: &Segment<S::File>) -> io::Result<()> {
        let name = segment_name(dead.header.base);
        let number = self.next_number();
        if dead.header.capacity == self.segment_bytes && hold(&self.space).spares.len() < SPARES_MAX {
            let spare = format!("{SPARE_PREFIX}{number}");
            self.storage.rename(&name, &spare)?;
            self.storage.sync_dir()?;
            let file = self.storage.open(&spare)?;
            let mut space = hold(&self.space);
            space.spares.push(Spare { name: spare, file, capacity: self.segment_bytes });
            space.full = false;
        } else {
            self.storage.remove(&name)?;
            self.storage.sync_dir()?;
            hold(&self.space).full = false;
        }
        self.space_changed.notify_all();
        Ok(())
    }

    /// Adds a spare. One at a time: who comes while one is made waits for that one, or leaves at once.
    fn make_spare(&self, wait: bool) -> Result<(), LogError> {
        let mut space = hold(&self.space);
        if space.making {
            while space.making && wait {
                space = self.space_changed.wait(space).unwrap_or_else(PoisonError::into_inner);
            }
            if !space.spares.is_empty() || !wait {
                return Ok(());
            }
        }
        if space.full {
            return Err(LogError::Full);
        }
        space.making = true;
        drop(space);
        let made = self.make(self.segment_bytes);
        let mut space = hold(&self.space);
        space.making = false;
        let result = made.map(|spare| space.spares.push(spare));
        space.full |= result.is_err();
        drop(space);
        self.space_changed.notify_all();
        result
    }

    /// Adds a spare without waiting for one that is being written, and without writing one.
    fn add_spare(&self) -> Result<(), LogError> {
        if hold(&self.space).full {
            return Err(LogError::Full);
        }
        let made = self.allocate(self.segment_bytes);
        let mut space = hold(&self.space);
        let result = made.map(|spare| space.spares.push(spare));
        space.full |= result.is_err();
        drop(space);
        self.space_changed.notify_all();
        result
    }

    /// Makes a file of which nothing is written yet: its blocks are its own. The keeper makes that durable, or who
    /// begins the segment before. Where the file system can't do that, it is written full of zeros.
    fn allocate(&self, capacity: u64) -> Result<Spare<S::File>, LogError> {
        let number = self.next_number();
        let (new, name) = (format!("{NEW_PREFIX}{number}"), format!("{SPARE_PREFIX}{number}"));
        let allocated = self.storage.create(&new).and_then(|file| {
            let is_allocated = file.allocate(SEGMENT_HEADER_BYTES + capacity)?;
            if is_allocated {
                self.storage.rename(&new, &name)?;
            }
            Ok(is_allocated.then_some(file))
        });
        match allocated {
            Ok(Some(file)) => {
                hold(&self.space).unsynced.push(name.clone());
                Ok(Spare { name, file, capacity })
            }
            Ok(None) => {
                let _ = self.storage.remove(&new);
                self.make(capacity)
            }
            Err(error) => Err(self.not_made(&new, error)),
        }
    }

    fn next_number(&self) -> u64 {
        let mut space = hold(&self.space);
        space.next_number += 1;
        space.next_number
    }

    fn not_made(&self, name: &str, error: io::Error) -> LogError {
        let _ = self.storage.remove(name); // what is left of it goes at the next start
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => LogError::Full,
            _ => LogError::Unavailable(error),
        }
    }

    /// Makes a file full of zeros: an overwrite then needs no new block, and its sync no second journal.
    fn make(&self, capacity: u64) -> Result<Spare<S::File>, LogError> {
        let number = self.next_number();
        let new = format!("{NEW_PREFIX}{number}");
        self.is_slow.store(true, Ordering::Relaxed);
        let made = self.fill(&new, &format!("{SPARE_PREFIX}{number}"), capacity);
        made.map_err(|error| self.not_made(&new, error))
    }

    fn fill(&self, new: &str, name: &str, capacity: u64) -> io::Result<Spare<S::File>> {
        let file = self.storage.create(new)?;
        let bytes = SEGMENT_HEADER_BYTES + capacity;
        let zeros = vec![0; ZEROS_BYTES.min(usize::try_from(bytes).unwrap_or(ZEROS_BYTES))];
        let mut at = 0;
        while at < bytes {
            let now = (bytes - at).min(zeros.len() as u64);
            file.write_at(at, &zeros[..now as usize])?;
            at += now;
        }
        file.sync()?;
        self.storage.rename(new, name)?;
        self.storage.sync_dir()?;
        Ok(Spare { name: name.to_owned(), file, capacity })
    }
}

/// Bodies up to this many bytes are copied behind their headers to be written at once; above, a second write is
/// cheaper.
const ONE_WRITE_BYTES_MAX: usize = 64 << 10;

/// A panic elsewhere does not make these structures wrong: each is changed in one step, and a writer that panicked
/// leaves `writing` set, so that nothing is written after it.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
