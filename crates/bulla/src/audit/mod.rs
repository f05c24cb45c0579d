//! The audit log: who changed what, who was refused, whose keys were used, in entries that are chained by their hashes.
//!
//! [`Audit`] is the handle that all threads have. [`Audit::note`] puts an entry into a bounded line and returns;
//! [`Audit::record`] waits until its entries are synced. A thread of its own, `audit`, gives entries their place in the
//! chain and writes them: at once where a caller waits, otherwise once a second. Nothing that is noted can fail or hold
//! up what it tells of.

pub mod chain;
pub mod entry;
pub mod files;
mod key_use;
mod refusals;
mod writer;

pub use entry::{Entry, EntryHash, Kind, Who, Written};
pub use files::FOLDER;
pub use key_use::{KeyUse, Purpose};

use crate::wall_clock::wall_ms;
use bulla_device::role::{self, Role};
use bulla_seal::certificate::Certificate;
use key_use::KeyUses;
use refusals::Refusals;
use serde_json::json;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use writer::Writer;

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
pub(crate) fn fingerprint(certificate: &Certificate) -> String {
    base16ct::lower::encode_string(certificate.fingerprint())
}

/// What a user was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refused<'a> {
    /// What was asked for: `connect`, `put`, `get`, …
    pub(crate) action: &'a str,
    /// On what; blank for the queue manager itself.
    pub(crate) object: &'a str,
    /// MQ's reason code.
    pub(crate) reason: u16,
    /// Why, as the operator reads it.
    pub(crate) detail: String,
    /// It was let in all the same: a rule only warns.
    pub(crate) let_in: bool,
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
    /// Opens the log of a data directory, which this process owns, and begins to write. What a crash left of an
    /// unfinished entry is cut off, and an entry tells so.
    ///
    /// # Errors
    /// The folder or its newest file can't be read or written, or no thread could be started.
    pub fn open(data: &Path) -> io::Result<Self> {
        let writer = Writer::open(data.join(FOLDER))?;
        let shared = Arc::new(Shared::new());
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || {
            role::begin(Role::Administration);
            own.run(writer);
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A log that keeps nothing, for simulations.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
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
    pub(crate) fn refused(&self, now: Instant, who: Who, refused: &Refused<'_>) {
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

    /// Too many attempts to sign in were wrong: as a user, or from an address, or both.
    pub(crate) fn locked_out(&self, user: Option<&str>, address: Option<&str>, failures: u32, seconds: u64) {
        let what =
            json!({ "user": user.map(entry::cut), "address": address, "failures": failures, "seconds": seconds });
        self.note(Entry::new(Kind::Lockout, Who::QueueManager, what));
    }

    /// A message was moved to the error queue.
    pub(crate) fn quarantined(&self, queue: &str, number: u64, message_id: Option<&str>, cause: &str, detail: &str) {
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
    pub(crate) fn key(&self, user: &str, key: Option<&Certificate>, purpose: Purpose) -> Arc<KeyUse> {
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
    pub(crate) fn close_with(&self, last: Entry) {
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

    fn run(&self, mut writer: Writer) {
        let mut synced_at: Option<Instant> = None;
        let mut fails = false;
        loop {
            let mut inner = self.lock();
            loop {
                let now = Instant::now();
                let since = synced_at.map_or(SYNC_EVERY, |at| now.saturating_duration_since(at));
                let is_urgent = inner.asked > inner.answered || inner.closed;
                let waits =
                    !inner.entries.is_empty() || inner.left_out > 0 || inner.refusals.has_more() || writer.has_more();
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
            let used = inner.keys.take_due(now, closed);
            let last = inner.last.take_if(|_| closed);
            let asked = inner.asked;
            drop(inner);
            let at_ms = wall_ms(SystemTime::now());
            entries.extend(more.into_iter().chain(used).map(|entry| (at_ms, entry)));
            entries.extend(last);
            self.write(&mut writer, entries, left_out, at_ms);
            synced_at = Some(now);
            let result = writer.sync().map_err(|error| self.failed(&error, fails));
            if fails && result.is_ok() {
                crate::note!("the audit log is written again");
            }
            fails = result.is_err();
            self.written.store(writer.synced_entries(), Ordering::Relaxed);
            let mut inner = self.lock();
            (inner.answered, inner.answer) = (asked, result);
            self.done.notify_all();
            if closed {
                return;
            }
        }
    }

    /// Gives entries their places; what the writer has no room for, because the disk takes nothing, is counted.
    fn write(&self, writer: &mut Writer, entries: Vec<(u64, Entry)>, left_out: u64, now_ms: u64) {
        writer.lose(left_out);
        for (at_ms, entry) in entries {
            if !writer.append(now_ms, at_ms, &entry) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        writer.tell_of_gap(now_ms);
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
    use std::os::unix::fs::PermissionsExt;

    fn command(text: &str) -> Entry {
        Entry::new(Kind::Command, Who::Administrator { uid: 0, gid: 0, pid: 1 }, json!({ "text": text }))
    }

    fn kinds(data: &Path) -> Vec<String> {
        let mut found = Vec::new();
        chain::read(&data.join(FOLDER), |written| {
            found.push(written.kind);
            true
        })
        .unwrap();
        found
    }

    #[test]
    fn what_is_recorded_is_on_disk_when_that_returns_and_the_chain_goes_on_after_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path()).unwrap();
        audit.record(vec![command("one"), command("two")]).unwrap();
        assert_eq!(kinds(data.path()), ["command", "command"]);
        audit.note(command("three"));
        audit.close();
        assert_eq!(audit.record(vec![command("four")]), Err(AuditError::Closed));
        let audit = Audit::open(data.path()).unwrap();
        audit.record(vec![command("five")]).unwrap();
        assert_eq!(audit.counts(), AuditCounts { written: 1, dropped: 0, failures: 0 });
        drop(audit);
        let verdict = chain::verify(&data.path().join(FOLDER), None).unwrap();
        assert_eq!((verdict.breaks.len(), verdict.entries), (0, 4));
        let folder = data.path().join(FOLDER);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(files::name(1)))), (0o700, 0o600));
    }

    #[test]
    fn an_entry_that_finds_no_room_is_counted_and_a_gap_tells_of_it() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(FOLDER);
        // No thread takes anything meanwhile.
        let audit = Audit { shared: Arc::new(Shared::new()), thread: Mutex::new(None) };
        for _ in 0..WAITING_MAX + 3 {
            audit.note(command("x"));
        }
        assert_eq!(audit.counts().dropped, 3);
        audit.shared.lock().closed = true;
        audit.shared.run(Writer::open(folder.clone()).unwrap());
        let kinds = kinds(data.path());
        assert_eq!(kinds.iter().filter(|kind| *kind == "command").count(), WAITING_MAX);
        let last = chain::head(&folder).unwrap().unwrap();
        assert_eq!((last.kind.as_str(), &last.what["lost"]), ("gap", &json!(3)));
        assert_eq!(chain::verify(&folder, None).unwrap().breaks, []);
    }

    #[test]
    fn a_flood_of_refusals_is_some_entries_and_a_number_for_each_address() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path()).unwrap();
        let now = Instant::now();
        for port in 0..1000 {
            let who = Who::Connection { user: Some("mallory".into()), address: format!("192.0.2.7:{port}") };
            let detail = "QM1: no CONNECT".to_owned();
            audit.refused(now, who, &Refused { action: "connect", object: "QM1", reason: 2035, detail, let_in: false });
        }
        audit.close();
        let (mut single, mut counted) = (0, 0);
        chain::read(&data.path().join(FOLDER), |written| {
            match written.kind.as_str() {
                "refusal" => single += 1,
                _ => counted += written.what["addresses"]["192.0.2.7"].as_u64().unwrap(),
            }
            true
        })
        .unwrap();
        let single_max = u64::from(refusals::OF_ONE.in_a_second);
        assert_eq!((single, counted), (single_max, 1000 - single_max));
    }

    #[test]
    fn a_key_is_told_of_at_its_first_use_and_then_with_what_was_counted() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path()).unwrap();
        let key = audit.key("orders", None, Purpose::Open);
        assert!(Arc::ptr_eq(&key, &audit.key("orders", None, Purpose::Open)));
        key.add(1, 1);
        key.add(1, 0);
        audit.close();
        let mut found = Vec::new();
        chain::read(&data.path().join(FOLDER), |written| {
            found.push((written.who["user"].clone(), written.what));
            true
        })
        .unwrap();
        let messages: u64 = found.iter().map(|(_, what)| what["messages"].as_u64().unwrap()).sum();
        let operations: u64 = found.iter().map(|(_, what)| what["operations"].as_u64().unwrap()).sum();
        assert_eq!((messages, operations), (2, 1));
        assert!(found.iter().all(|(user, what)| user == "orders" && what["purpose"] == "open"), "{found:?}");
    }
}
