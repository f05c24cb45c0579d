//! The audit log: who changed what, who was refused, whose keys were used, in entries that are chained by their hashes.
//!
//! [`Audit`] is the handle that all threads have. [`Audit::note`] puts an entry into a bounded line and returns;
//! [`Audit::record`] waits until its entries are synced. A thread of its own, `audit`, gives entries their place in the
//! chain and writes them: at once where a caller waits, otherwise once a second. Nothing that is noted can fail or hold
//! up what it tells of.

mod allowance;
pub mod entry;
mod key_use;
mod log_ins;
mod refusals;

pub use entry::{Entry, EntryHash, Kind, Who, Written};
pub use key_use::{KeyUse, Purpose};
pub use refusals::REFUSALS_OF_ONE_IN_A_SECOND;

use crate::wall_clock::wall_ms;
use bulla_device::role::{self, Role};
use bulla_seal::certificate::Certificate;
use key_use::KeyUses;
use log_ins::{Half, LogIns};
use refusals::Refusals;
use serde_json::json;
use std::fmt::{self, Display};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Most entries that wait for the thread; one that finds no room is counted and left out.
pub const WAITING_MAX: usize = 4096;
/// How long an entry may wait to be written and synced where no caller waits for it.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How long a command waits for its entry to be synced.
pub const RECORD_WITHIN: Duration = Duration::from_secs(10);

/// The audit log of a queue manager that runs. What is noted after [`Audit::close`] is lost.
pub struct Audit {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What keeps entries: it gives them their places in the chain, and brings them to disk.
pub trait Keeper: Send {
    /// Takes an entry that happened at `at_ms` into the chain; `now_ms` is now, both milliseconds since 1970. False
    /// where there is no room, because the disk takes nothing: the entry is lost.
    fn append(&mut self, now_ms: u64, at_ms: u64, entry: &Entry) -> bool;
    /// So many entries were lost before they came here.
    fn lose(&mut self, count: u64);
    /// Tells how many entries are missing here, once there is room for that.
    fn tell_of_gap(&mut self, now_ms: u64);
    /// Whether something is still to be written or told.
    fn has_more(&self) -> bool;
    /// Brings to disk what waits.
    ///
    /// # Errors
    /// It stays, and is written with the next call.
    fn sync(&mut self) -> io::Result<()>;
    /// Entries that are on disk, of this keeper.
    fn synced_entries(&self) -> u64;
}

/// Why entries were not written.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AuditError {
    /// They can't be written or synced; the operator's turn.
    Disk {
        /// What the system says.
        detail: String,
    },
    /// The log was closed: the queue manager stops.
    Closed,
}

impl Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuditError::Disk { detail } => write!(f, "the audit log can't be written: {detail}"),
            AuditError::Closed => f.write_str("the audit log is closed"),
        }
    }
}

impl std::error::Error for AuditError {}

/// The SHA-256 fingerprint of a certificate, as entries name keys by.
pub fn fingerprint(certificate: &Certificate) -> String {
    base16ct::lower::encode_string(certificate.fingerprint())
}

/// What a user was refused.
#[derive(Clone, Debug)]
pub struct Refused<'a> {
    /// What was asked for: `connect`, `put`, `get`, …
    pub action: &'a str,
    /// On what; blank for the queue manager itself.
    pub object: &'a str,
    /// MQ's reason code.
    pub reason: u16,
    /// Why, as the operator reads it.
    pub detail: String,
    /// It was let in all the same: a rule only warns.
    pub let_in: bool,
}

/// What became of entries since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AuditCounts {
    /// Written and synced.
    pub written: u64,
    /// Left out: the line was full, or the disk took nothing for too long.
    pub dropped: u64,
    /// Tries to write or sync that failed.
    pub failures: u64,
}

/// What the handle and the thread share.
struct Shared {
    inner: Mutex<Inner>,
    /// The thread has something to do.
    work: Condvar,
    /// Entries that a caller waits for are written, or can't be.
    done: Condvar,
    written: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
}

struct Inner {
    /// With when they happened.
    entries: Vec<(u64, Entry)>,
    refusals: Refusals,
    log_ins: LogIns,
    /// Entries that found no room since the last gap was told.
    left_out: u64,
    keys: KeyUses,
    /// Calls of `record` whose entries were handed in, and those that are answered.
    asked: u64,
    answered: u64,
    /// What the latest answers say.
    answer: Result<(), AuditError>,
    closed: bool,
    /// What is written last of all.
    last: Option<(u64, Entry)>,
}

impl Audit {
    /// Begins to have entries kept, on a thread of its own.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn begin(keeper: Box<dyn Keeper>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || {
            role::begin(Role::Administration);
            own.run(keeper);
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A log that keeps nothing, for simulations.
    #[cfg(any(test, feature = "simulation"))]
    pub fn nowhere() -> Self {
        let shared = Arc::new(Shared::new());
        shared.lock().closed = true;
        Self { shared, thread: Mutex::new(None) }
    }

    /// Has an entry written within [`SYNC_EVERY`]. Costs a lock and no wait; where [`WAITING_MAX`] entries wait it is
    /// counted and left out.
    pub fn note(&self, entry: Entry) {
        let at_ms = wall_ms(SystemTime::now());
        let mut inner = self.shared.lock();
        if inner.closed || inner.entries.len() >= WAITING_MAX {
            inner.left_out += 1;
            drop(inner);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let wakes = inner.entries.is_empty();
        inner.entries.push((at_ms, entry));
        drop(inner);
        if wakes {
            self.shared.work.notify_one();
        }
    }

    /// Has entries written and synced before it returns. They stay in the log also where this fails, once the disk
    /// takes them.
    ///
    /// # Errors
    /// They are not known to be on disk.
    pub fn record(&self, entries: Vec<Entry>) -> Result<(), AuditError> {
        let at_ms = wall_ms(SystemTime::now());
        let mut inner = self.shared.lock();
        if inner.closed {
            return Err(AuditError::Closed);
        }
        inner.entries.extend(entries.into_iter().map(|entry| (at_ms, entry)));
        inner.asked += 1;
        let ticket = inner.asked;
        self.shared.work.notify_one();
        let late = |inner: &mut Inner| inner.answered < ticket;
        let (inner, waited) =
            self.shared.done.wait_timeout_while(inner, RECORD_WITHIN, late).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && inner.answered < ticket {
            return Err(AuditError::Disk { detail: format!("no answer within {} s", RECORD_WITHIN.as_secs()) });
        }
        inner.answer.clone()
    }

    /// A user was refused (2035): an entry each, and of a flood of them some of each second and how many there were
    /// from where.
    pub fn refused(&self, now: Instant, who: Who, refused: &Refused<'_>) {
        let Refused { action, object, reason, detail, let_in } = refused;
        let at_ms = wall_ms(SystemTime::now());
        let mut inner = self.shared.lock();
        let room = inner.entries.len() < WAITING_MAX && !inner.closed;
        if !inner.refusals.may_write(now, &who) {
            // Counted there; the thread has something of this second already.
            return;
        }
        if !room {
            inner.left_out += 1;
            drop(inner);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut what = json!({
            "action": action,
            "object": entry::cut(object),
            "reason": reason,
            "detail": entry::cut(detail),
        });
        if let (true, Some(what)) = (*let_in, what.as_object_mut()) {
            what.insert("let_in".into(), true.into());
        }
        inner.entries.push((at_ms, Entry::new(Kind::Refusal, who, what)));
        drop(inner);
        self.shared.work.notify_one();
    }

    /// A user has logged in over HTTP: an entry each, and of a flood of them some and how many more there were.
    pub fn logged_in(&self, now: Instant, user: &str, address: String, number: u64, tls: bool) {
        let who = Who::Connection { user: Some(user.to_owned()), address };
        let what = json!({ "step": "begun", "number": number, "tls": tls });
        self.log_in(now, (user, Half::Begun), Entry::new(Kind::LogIn, who, what));
    }

    /// A log-in over HTTP is over, because of `cause`; the same.
    pub fn logged_out(&self, now: Instant, who: Who, user: &str, number: u64, cause: &str, lasted: Duration) {
        let what = json!({
            "step": "ended",
            "user": entry::cut(user),
            "number": number,
            "cause": cause,
            "seconds": lasted.as_secs(),
        });
        self.log_in(now, (user, Half::Ended), Entry::new(Kind::LogIn, who, what));
    }

    fn log_in(&self, now: Instant, (user, half): (&str, Half), entry: Entry) {
        if self.shared.lock().log_ins.may_write(now, user, half) {
            self.note(entry);
        } else {
            self.shared.work.notify_one();
        }
    }

    /// Too many attempts to sign in were wrong: as a user, or from an address, or both.
    pub fn locked_out(&self, user: Option<&str>, address: Option<&str>, failures: u32, seconds: u64) {
        let what =
            json!({ "user": user.map(entry::cut), "address": address, "failures": failures, "seconds": seconds });
        self.note(Entry::new(Kind::Lockout, Who::QueueManager, what));
    }

    /// A message was moved to the error queue.
    pub fn quarantined(&self, queue: &str, number: u64, message_id: Option<&str>, cause: &str, detail: &str) {
        let what = json!({
            "queue": queue,
            "number": number,
            "message_id": message_id.map(entry::cut),
            "cause": cause,
            "detail": entry::cut(detail),
        });
        self.note(Entry::new(Kind::Quarantine, Who::QueueManager, what));
    }

    /// The counter of a key of a user's ring. To be asked for once a link, not once a message.
    pub fn key(&self, user: &str, key: Option<&Certificate>, purpose: Purpose) -> Arc<KeyUse> {
        let mut inner = self.shared.lock();
        let found = inner.keys.of(user, key, purpose);
        drop(inner);
        // From now on it looks at the counts.
        self.shared.work.notify_one();
        found
    }

    /// What became of entries since the start.
    #[must_use]
    pub fn counts(&self) -> AuditCounts {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AuditCounts {
            written: count(&self.shared.written),
            dropped: count(&self.shared.dropped),
            failures: count(&self.shared.failures),
        }
    }

    /// The same as [`Audit::close`], and this is the last entry of all.
    pub fn close_with(&self, last: Entry) {
        self.shared.lock().last = Some((wall_ms(SystemTime::now()), last));
        self.close();
    }

    /// Writes and syncs what waits, with what keys were used since it was told last, and ends the thread.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            crate::alarm!("the thread of the audit log died");
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                entries: Vec::new(),
                refusals: Refusals::default(),
                log_ins: LogIns::default(),
                left_out: 0,
                keys: KeyUses::default(),
                asked: 0,
                answered: 0,
                answer: Ok(()),
                closed: false,
                last: None,
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Entries and counts hold nothing that a panic elsewhere could leave half changed.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut keeper: Box<dyn Keeper>) {
        let mut synced_at: Option<Instant> = None;
        let mut fails = false;
        loop {
            let mut inner = self.lock();
            loop {
                let now = Instant::now();
                let since = synced_at.map_or(SYNC_EVERY, |at| now.saturating_duration_since(at));
                let is_urgent = inner.asked > inner.answered || inner.closed;
                let waits = !inner.entries.is_empty()
                    || inner.left_out > 0
                    || inner.refusals.has_more()
                    || inner.log_ins.has_more()
                    || keeper.has_more();
                if is_urgent || since >= SYNC_EVERY && (waits || inner.keys.are_due(now)) {
                    break;
                }
                let idle = !waits && !inner.keys.any();
                inner = if idle {
                    self.work.wait(inner).unwrap_or_else(PoisonError::into_inner)
                } else {
                    // Where keys are known their counts are looked at once a second.
                    let pause = SYNC_EVERY.saturating_sub(since);
                    let pause = if pause.is_zero() { SYNC_EVERY } else { pause };
                    self.work.wait_timeout(inner, pause).unwrap_or_else(PoisonError::into_inner).0
                };
            }
            let now = Instant::now();
            let closed = inner.closed;
            let mut entries = std::mem::take(&mut inner.entries);
            let left_out = std::mem::take(&mut inner.left_out);
            let more = inner.refusals.take_more(now, closed);
            let more_log_ins = inner.log_ins.take_more(now, closed);
            let used = inner.keys.take_due(now, closed);
            let last = inner.last.take_if(|_| closed);
            let asked = inner.asked;
            drop(inner);
            let at_ms = wall_ms(SystemTime::now());
            entries.extend(more.into_iter().chain(more_log_ins).chain(used).map(|entry| (at_ms, entry)));
            entries.extend(last);
            self.write(&mut *keeper, entries, left_out, at_ms);
            synced_at = Some(now);
            let result = keeper.sync().map_err(|error| self.failed(&error, fails));
            if fails && result.is_ok() {
                crate::note!("the audit log is written again");
            }
            fails = result.is_err();
            self.written.store(keeper.synced_entries(), Ordering::Relaxed);
            let mut inner = self.lock();
            (inner.answered, inner.answer) = (asked, result);
            self.done.notify_all();
            if closed {
                return;
            }
        }
    }

    /// Gives entries their places; what the writer has no room for, because the disk takes nothing, is counted.
    fn write(&self, keeper: &mut dyn Keeper, entries: Vec<(u64, Entry)>, left_out: u64, now_ms: u64) {
        keeper.lose(left_out);
        for (at_ms, entry) in entries {
            if !keeper.append(now_ms, at_ms, &entry) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        keeper.tell_of_gap(now_ms);
    }

    /// Tells the operator, where the try before did not fail already.
    fn failed(&self, error: &io::Error, again: bool) -> AuditError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !again {
            crate::alarm!(
                "the audit log can't be written: {error}; commands that change something are refused until it can"
            );
        }
        AuditError::Disk { detail: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was appended, and how many entries were said to be lost.
    #[derive(Clone, Default)]
    struct Kept(Arc<(AtomicU64, AtomicU64)>);

    impl Keeper for Kept {
        fn append(&mut self, _: u64, _: u64, _: &Entry) -> bool {
            self.0.0.fetch_add(1, Ordering::Relaxed);
            true
        }

        fn lose(&mut self, count: u64) {
            self.0.1.fetch_add(count, Ordering::Relaxed);
        }

        fn tell_of_gap(&mut self, _: u64) {}

        fn has_more(&self) -> bool {
            false
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn synced_entries(&self) -> u64 {
            self.0.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn an_entry_that_finds_no_room_is_counted_and_its_keeper_is_told() {
        // No thread takes anything meanwhile.
        let audit = Audit { shared: Arc::new(Shared::new()), thread: Mutex::new(None) };
        for _ in 0..WAITING_MAX + 3 {
            audit.note(Entry::new(Kind::Command, Who::QueueManager, json!({})));
        }
        assert_eq!(audit.counts().dropped, 3);
        audit.shared.lock().closed = true;
        let kept = Kept::default();
        audit.shared.run(Box::new(kept.clone()));
        let (appended, lost) = &*kept.0;
        let found = (appended.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
        assert_eq!(found, (WAITING_MAX as u64, 3));
    }
}
