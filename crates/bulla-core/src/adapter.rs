//! Adapters: the threads that seal, open and check messages, many at a time.
//!
//! An adapter takes what waits, starts each task, and hands the tasks' jobs to the scheduler in one call.
//! A task whose job is away is set aside; whichever adapter takes the answer goes on with it. Results go
//! to the dispatcher that asked, which puts them in order: messages of one link overlap, their order stays.

mod memory;
mod sharing;
mod turn;
mod unsigned;

use crate::accounting::Cost;
use crate::catalog::limits::UserLimits;
use crate::catalog::status::DeviceWait;
use crate::front::LinkId;
use crate::limits::{KeyTime, KeyWork};
use crate::mailbox::Mailboxes;
use crate::task::TaskMeter;
use bulla_device::scheduler::{Answer, Parcel, Run, Sink};
use bulla_device::{Inline, Job, RsaPadding, RsaScheme, Scheduler, scheduler::FairQueue};
use bulla_seal::policy::SIGN_BATCH_MAX;
use bulla_seal::{Batch, BatchKey, OpenError, Opened, Policy, SealError, Sealed, Step, Tally, Verified, WithProof};
use memory::Memory;
pub use memory::{Held, SEALING_BYTES_MAX, SealingMemoryFull};
use sharing::Sharing;
use slab::Slab;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use turn::Turn;
use unsigned::Unsigned;

/// Names of channels' partners that may wait to be looked up.
const ASIDES_MAX: usize = 64;
/// Tasks an adapter takes in one go: two calls of an accelerator.
const TASKS_PER_TURN: usize = 16;
/// An adapter that computes itself tells after so much processor time what is done, and looks whether others have
/// nothing to do: sixteen unwraps with RSA 4096 take some 35 ms, and the first of them may be all that a reader waits
/// for.
const SLICE: Duration = Duration::from_millis(1);
/// Work that takes less is not shared with an adapter that sleeps: to wake it takes some 15 µs.
const SHARED_MIN: Duration = Duration::from_micros(150);
/// How long messages that could be signed wait for others at most, while the processor has other work.
const HOLD_MAX: Duration = Duration::from_millis(10);
/// The same, in times of the signature before.
const HOLD_SIGNATURES: u32 = 4;
/// Tasks of one user, or of one channel's connection, that may be under way at once: enough for full lanes, and no
/// more, so that one whose token is away does not keep the others waiting.
const TASKS_OF_ASKER_MAX: usize = 128;
/// The same where messages may share a signature, or two batches of the policy where that is more: one is being signed,
/// and the other waits for the next signature.
const SHARING_OF_ASKER_MAX: usize = 512;
/// Tasks that may be under way at once, of 64 askers whose keys are away and whose policies have the largest batches;
/// more wait in line, where users and channels have their turns.
const TASKS_MAX: usize = 64 * 2 * SIGN_BATCH_MAX as usize;
/// Questions to private keys that are remembered as answered, the half of them at least: a message that was looked at
/// before such an answer came is under way for far less than so many unwraps take.
const ANSWERED_MAX: usize = 1024;
/// Users whose share of private-key time is remembered, connected or not; one whose share is whole may be forgotten.
const SHARES_MAX: usize = 1_000;
/// How long a message waits for a key service that is away (a token that was pulled, a device that was
/// stopped) before its put is refused or its reader's link ends with 2063.
pub const KEY_SERVICE_WAIT: Duration = Duration::from_secs(30);

/// What an adapter does to a message, once.
pub type Start<T, E> = Box<dyn FnOnce() -> Result<Step<T, E>, E> + Send>;
/// What an adapter does to a message, and may do again.
pub type Again<T, E> = Arc<dyn Fn() -> Result<Step<T, E>, E> + Send + Sync>;

/// The work of one task.
pub enum Work {
    /// Seal a clear message. Its signature may be one of many messages.
    Seal(Start<Sealed, SealError>, MaySign),
    /// Open a sealed message for a reader.
    Open(Again<Verified<Opened>, OpenError>),
    /// The same, begun already.
    GoOnOpening(Step<Verified<Opened>, OpenError>, Again<Verified<Opened>, OpenError>),
    /// Check a message that arrived sealed.
    Check(Again<(), OpenError>),
}

/// Whether messages are signed with others.
#[derive(Clone, Debug)]
pub enum MaySign {
    /// Each has a signature of its own, or none.
    Alone,
    /// Those of a user that wait under this policy share one (SIGNBATCH).
    Together(Arc<Policy>),
    /// The same, after a device has wrapped a content key for each.
    OnceWrapped(Arc<Policy>),
}

impl MaySign {
    /// How many such tasks of one asker may be under way.
    fn under_way_max(&self) -> usize {
        match self {
            MaySign::Alone => TASKS_OF_ASKER_MAX,
            MaySign::Together(policy) | MaySign::OnceWrapped(policy) => {
                SHARING_OF_ASKER_MAX.max(2 * policy.sign_batch as usize)
            }
        }
    }
}

/// Who waits for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The dispatcher's index.
    pub dispatcher: usize,
    /// The connection's place in that dispatcher.
    pub peer: usize,
    /// Which connection it was that had that place.
    pub generation: u64,
    /// The link.
    pub link: LinkId,
    /// The message's turn on that link.
    pub slot: u64,
}

/// A task's result.
pub enum Outcome {
    /// Sealed, or why not.
    Sealed(Result<Sealed, SealError>),
    /// Opened, or why not.
    Opened(Result<Verified<Opened>, OpenError>),
    /// Checked, or what is wrong.
    Checked(Result<(), OpenError>),
}

/// A finished task, on its way to the dispatcher that asked.
pub struct Finished {
    /// Who asked.
    pub asker: Asker,
    /// What came of it.
    pub outcome: Outcome,
    /// What it took, by the tally that it was submitted with.
    pub cost: Cost,
}

impl std::fmt::Debug for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finished").field("asker", &self.asker).finish_non_exhaustive()
    }
}

/// The pool of adapters.
pub struct Adapters {
    scheduler: Arc<Scheduler>,
    inbox: Mutex<Inbox>,
    wake_up: Condvar,
    away: Mutex<Away>,
    memory: Arc<Memory>,
}

/// Tasks whose jobs are away.
#[derive(Default)]
struct Away {
    tasks: Slab<Aside>,
    /// Messages that wait for a signature, which they may share.
    unsigned: Unsigned,
    /// By what is asked of a private key: the tasks that wait for the same answer. Messages under one content key
    /// come together, and one unwrap serves them all.
    shared: HashMap<Question, Vec<(Job, Task)>>,
    /// What was answered lately, and the first asker has used.
    answered: Answered,
}

/// What waits for one answer.
enum Aside {
    Task(Box<Task>),
    /// A message that is signed alone, while others of its kind may come.
    Alone(BatchKey, Box<Task>),
    /// Messages that are signed together.
    Batch(BatchKey, Box<Batch>, Vec<Task>),
}

/// What is asked of a key, as a digest: see [`question`].
pub(crate) type Question = [u8; 32];

/// Questions whose answer an opener may remember. Two halves: when the recent one is full it becomes the older one, and
/// what was that is forgotten. No answer is kept here.
#[derive(Default)]
struct Answered {
    recent: HashSet<Question>,
    older: HashSet<Question>,
}

impl Answered {
    fn note(&mut self, question: Question) {
        if self.recent.len() >= ANSWERED_MAX / 2 {
            std::mem::swap(&mut self.recent, &mut self.older);
            self.recent.clear();
        }
        self.recent.insert(question);
    }

    fn has(&self, question: &Question) -> bool {
        self.recent.contains(question) || self.older.contains(question)
    }
}

/// What waits for an adapter.
#[derive(Default)]
struct Inbox {
    tasks: FairQueue<New>,
    answers: Vec<Answer>,
    /// What an adapter was to compute itself and left to others that had nothing to do.
    shared: Parcel,
    asides: VecDeque<Box<dyn FnOnce() + Send>>,
    /// Kinds of messages that are signed when there is nothing else to do, or at that time; without one, in the next
    /// turn.
    held: VecDeque<(BatchKey, Option<Instant>)>,
    /// Adapters with an index below this one go on; the others end after their turn.
    wanted: usize,
    /// Adapters that there are, by index.
    present: BTreeSet<usize>,
    /// Adapters with nothing to do.
    idle: usize,
    /// Tasks that were taken and are not done, by asker, and all together.
    under_way: HashMap<u64, usize>,
    under_way_total: usize,
    /// Users with a share of private-key time, by the number with which they ask.
    shares: HashMap<u64, Share>,
    /// How many adapters were busy at one moment, at most, since the last query.
    busy_peak: usize,
    stopping: bool,
}

/// A user's share of private-key time.
struct Share {
    user: String,
    time: KeyTime,
}

/// A task that was not started yet.
struct New {
    asker: Asker,
    who: bulla_device::Asker,
    work: Work,
    tally: Tally,
    /// What it takes of its user's share.
    keys: KeyWork,
    held: Option<Held>,
}

/// A task that was started.
struct Task {
    asker: Asker,
    who: bulla_device::Asker,
    deadline: Instant,
    progress: Progress,
    /// Devices beside the processor whose answers nothing has proved yet, each in the run that it answered in. (A
    /// signature that they refused has been judged again by the processor before the asker was told.)
    devices: Vec<Run>,
    /// It is done for the second time, by the processor, because what a device said is in doubt.
    checking: bool,
    /// Nothing shows at once whether its job's answer is right: it is an unwrap or a derivation.
    unproved: bool,
    /// Ticks that adapters spent on it; what a device took for its job is the device's.
    spent: u64,
    /// What its job asks, where others may wait for the same.
    shared: Option<Question>,
    /// It has looked for its content key once more since another task had it unwrapped: it asks now, whatever was
    /// answered.
    looked_again: bool,
    /// What its steps count in.
    tally: Tally,
    /// What it takes of its user's share, and whether its job is for a private key.
    keys: KeyWork,
    is_private: bool,
    /// When its job was handed over, and how long earlier ones took.
    placed_at: Instant,
    wait: DeviceWait,
    /// Given back when it is done.
    held: Option<Held>,
}

/// How a task goes on when its job is done, and how it is started again.
enum Progress {
    Seal(bulla_seal::Continuation<Sealed, SealError>),
    Sign(WithProof<Sealed, SealError>),
    Open(bulla_seal::Continuation<Verified<Opened>, OpenError>, Again<Verified<Opened>, OpenError>),
    Check(bulla_seal::Continuation<(), OpenError>, Again<(), OpenError>),
}

impl Adapters {
    /// An empty pool over these devices; `run` on a thread each makes the adapters.
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self {
            scheduler,
            inbox: Mutex::default(),
            wake_up: Condvar::new(),
            away: Mutex::default(),
            memory: Arc::default(),
        }
    }

    /// Takes memory for a message of that asker. A lone one passes whatever its size; beyond the limit others are
    /// refused, those of askers who hold little later than those of others.
    ///
    /// # Errors
    /// All that this asker may have is taken.
    pub fn hold(&self, asker: u64, bytes: usize) -> Result<Held, SealingMemoryFull> {
        self.memory.hold(asker, bytes)
    }

    /// Hands a task over, whose steps count in `tally`. Once `who` has left nothing is done for it any more. `held` is
    /// the memory of what the task alone keeps.
    pub fn submit(&self, asker: Asker, who: &bulla_device::Asker, work: Work, tally: Tally, held: Option<Held>) {
        let keys = KeyWork::default();
        let mut inbox = self.lock();
        inbox.tasks.push(who.number(), New { asker, who: who.clone(), work, tally, keys, held });
        self.wake(inbox);
    }

    /// Gives a user that share of private-key time, milliseconds a second; 0 for none: then it has its turns with the
    /// others.
    pub fn share_keys(&self, user: &str, ms_a_second: u32, now: Instant) {
        let number = asker_of(user);
        let mut inbox = self.lock();
        let Inbox { shares, under_way, .. } = &mut *inbox;
        if ms_a_second == 0 {
            shares.remove(&number);
        } else if let Some(share) = shares.get_mut(&number) {
            share.time.resize(ms_a_second, now);
        } else {
            if shares.len() >= SHARES_MAX {
                // A share that is whole is as good as a new one.
                shares.retain(|number, share| under_way.contains_key(number) || !share.time.is_full(now));
            }
            shares.insert(number, Share { user: user.to_owned(), time: KeyTime::new(ms_a_second, now) });
        }
        drop(inbox);
        self.wake_up.notify_all();
    }

    /// The limits have changed: who has a share has another one now, or none.
    pub fn follow_limits(&self, limits: &UserLimits, now: Instant) {
        self.lock().shares.retain(|_, share| {
            let ms_a_second = limits.of(&share.user).map_or(0, |(_, limit)| limit.key_ms_a_second);
            share.time.resize(ms_a_second, now);
            ms_a_second > 0
        });
        self.wake_up.notify_all();
    }

    /// Private-key time that a user has taken, nanoseconds, and how often its share was used up; none without one.
    pub fn key_time_of(&self, user: &str) -> Option<(u64, u64)> {
        self.lock().shares.get(&asker_of(user)).map(|share| share.time.counts())
    }

    /// Hands over something else, done in the order in which it came: false where `ASIDES_MAX` wait already.
    pub fn submit_aside(&self, run: Box<dyn FnOnce() + Send>) -> bool {
        let mut inbox = self.lock();
        if inbox.asides.len() >= ASIDES_MAX {
            return false;
        }
        inbox.asides.push_back(run);
        self.wake(inbox);
        true
    }

    /// Says how many adapters there are to be: surplus ones end after their turn. Gives the indexes of those that the
    /// caller has to [`run`](Self::run) now.
    pub fn want(&self, count: usize) -> Vec<usize> {
        let mut inbox = self.lock();
        inbox.wanted = count;
        let missing: Vec<usize> = (0..count).filter(|index| !inbox.present.contains(index)).collect();
        inbox.present.extend(&missing);
        drop(inbox);
        self.wake_up.notify_all();
        missing
    }

    /// The adapter of that index is not run after all.
    pub fn not_run(&self, index: usize) {
        self.lock().present.remove(&index);
    }

    /// How many adapters there are, those included that end after their turn; and how many there are to be.
    pub fn counts(&self) -> (usize, usize) {
        let inbox = self.lock();
        (inbox.present.len(), inbox.wanted)
    }

    /// How many adapters were busy at one moment, at most, since this was called last.
    pub fn busy_peak(&self) -> usize {
        let mut inbox = self.lock();
        let busy_now = inbox.present.len() - inbox.idle;
        std::mem::replace(&mut inbox.busy_peak, busy_now).max(busy_now)
    }

    /// An adapter's life: ends when it is surplus, or when the pool stops and nothing is left to do.
    pub fn run(self: &Arc<Self>, index: usize, mailboxes: &Mailboxes, meter: &TaskMeter) {
        let mut turn = Turn::new(self, mailboxes, meter);
        while let Some(taken) = self.take(index) {
            let begun = meter.begin_exactly();
            turn.carry_out(taken);
            turn.tell_all();
            meter.end(begun);
        }
    }

    /// Does all that waits, on the calling thread and in its order: for simulations, which have no adapters beside.
    #[cfg(any(test, feature = "simulation"))]
    pub fn run_dry(self: &Arc<Self>, mailboxes: &Mailboxes, meter: &TaskMeter) {
        let mut turn = Turn::new(self, mailboxes, meter);
        while self.has_tasks() {
            // What waits is there: taking it takes no time.
            self.lock().wanted = 1;
            let Some(taken) = self.take(0) else { return };
            turn.carry_out(taken);
            turn.tell_all();
        }
    }

    /// Whether something waits for an adapter.
    #[cfg(any(test, feature = "simulation"))]
    pub fn has_tasks(&self) -> bool {
        self.lock().has_work()
    }

    /// Ends every adapter once nothing waits.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.wake_up.notify_all();
    }

    /// Waits for something to do; nothing when the pool stops, or has no place for that adapter any more.
    fn take(&self, index: usize) -> Option<Taken> {
        let mut inbox = self.lock();
        let mut has_yielded = false;
        loop {
            if index >= inbox.wanted && !inbox.stopping {
                inbox.present.remove(&index);
                if inbox.has_work() {
                    // The wake-up may have been for this one.
                    self.wake(inbox);
                }
                return None;
            }
            let mut taken = Taken {
                answers: std::mem::take(&mut inbox.answers),
                aside: inbox.asides.pop_front(),
                shared: std::mem::take(&mut inbox.shared),
                tasks: Vec::new(),
                due: None,
            };
            let now = inbox.looks_at_time().then(Instant::now);
            // A helper has enough to do.
            let mut sharing = Sharing::default();
            let shares_at = now.filter(|_| inbox.looks_at_shares());
            while taken.shared.is_empty() && taken.tasks.len() - sharing.beside() < TASKS_PER_TURN {
                let Some(task) = inbox.next_task(shares_at) else { break };
                sharing.note(&task);
                taken.tasks.push(task);
            }
            let is_late = inbox
                .held
                .front()
                .is_some_and(|(_, until)| until.is_none_or(|until| now.is_some_and(|now| until <= now)));
            if is_late || taken.is_empty() && has_yielded {
                taken.due = inbox.held.pop_front().map(|(key, _)| key);
            } else if taken.is_empty() && !inbox.held.is_empty() {
                // A dispatcher that brings more messages may be waiting for this core.
                drop(inbox);
                std::thread::yield_now();
                has_yielded = true;
                inbox = self.lock();
                continue;
            }
            if !taken.is_empty() {
                inbox.busy_peak = inbox.busy_peak.max(inbox.present.len() - inbox.idle);
                if inbox.has_work() {
                    // More than one turn's worth: another adapter may help.
                    self.wake(inbox);
                }
                return Some(taken);
            }
            if inbox.is_over() {
                // Others may sleep since before the last task was done.
                self.wake_up.notify_all();
                return None;
            }
            inbox.idle += 1;
            inbox = match shares_at.and_then(|now| inbox.share_in(now)) {
                None => self.wake_up.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => self.wake_up.wait_timeout(inbox, wait).unwrap_or_else(PoisonError::into_inner).0,
            };
            inbox.idle -= 1;
        }
    }

    /// Tasks of these askers are done.
    fn done(&self, askers: &mut Vec<(u64, KeyWork)>) {
        if askers.is_empty() {
            return;
        }
        let mut inbox = self.lock();
        inbox.under_way_total -= askers.len();
        for (asker, keys) in askers.drain(..) {
            if let Some(share) = inbox.shares.get_mut(&asker) {
                share.time.end(keys);
            }
            let left = inbox.under_way.get_mut(&asker).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                inbox.under_way.remove(&asker);
            }
        }
    }

    /// Leaves the half of what an adapter is to compute itself to one that has nothing to do, if there is one.
    fn share(&self, inline: &mut Inline) {
        let mut inbox = self.lock();
        if inbox.idle == 0 || !inbox.shared.is_empty() {
            return;
        }
        let half = inline.give_half(SHARED_MIN);
        if !half.is_empty() {
            inbox.shared.append(half);
            self.wake(inbox);
        }
    }

    /// These kinds' messages are signed once an adapter has nothing else to do, or at these times: those of the next
    /// turn come first.
    fn hold_signatures(&self, kinds: Vec<(BatchKey, Option<Instant>)>) {
        if kinds.is_empty() {
            return;
        }
        let mut inbox = self.lock();
        for (key, until) in kinds {
            match until {
                None => {
                    inbox.held.retain(|(held, _)| *held != key);
                    inbox.held.push_front((key, None));
                }
                // One that is there already is looked at sooner.
                Some(_) if inbox.held.iter().any(|(held, _)| *held == key) => {}
                Some(_) => inbox.held.push_back((key, until)),
            }
        }
        self.wake(inbox);
    }

    /// Wakes an adapter where tasks wait: this one goes on with what it has.
    fn wake_for_tasks(&self) {
        let inbox = self.lock();
        if inbox.has_work() {
            self.wake(inbox);
        }
    }

    /// Wakes an adapter if one sleeps.
    fn wake(&self, inbox: MutexGuard<'_, Inbox>) {
        let idle = inbox.idle > 0;
        drop(inbox);
        if idle {
            self.wake_up.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self) -> MutexGuard<'_, Away> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Adapters {
    fn finished(&self, mut answers: Vec<Answer>) {
        let mut inbox = self.lock();
        inbox.answers.append(&mut answers);
        self.wake(inbox);
    }
}

impl Inbox {
    /// The next task whose asker has not too many under way and has something left of its share. `now` where shares are
    /// looked at.
    fn next_task(&mut self, now: Option<Instant>) -> Option<New> {
        if self.under_way_total >= TASKS_MAX {
            return None;
        }
        let Self { tasks, under_way, shares, .. } = self;
        let few = |new: &New| {
            let most = match &new.work {
                Work::Seal(_, may_sign) => may_sign.under_way_max(),
                _ => TASKS_OF_ASKER_MAX,
            };
            under_way.get(&new.who.number()).is_none_or(|count| *count < most)
        };
        let may = |number| match now {
            None => true,
            // One that has gone is done at once, whatever is left of its share.
            Some(now) => shares.get(&number).is_none_or(|share| share.time.may_begin(now)),
        };
        let mut task = tasks.pop_if(|new| few(new) && (new.who.is_gone() || may(new.who.number())))?;
        if let Some(now) = now
            && let Some(share) = shares.get_mut(&task.who.number())
            && !task.who.is_gone()
        {
            task.keys = share.time.begin(now);
        }
        *self.under_way.entry(task.who.number()).or_default() += 1;
        self.under_way_total += 1;
        Some(task)
    }

    /// Whether it matters what time it is.
    fn looks_at_time(&self) -> bool {
        self.looks_at_shares() || !self.held.is_empty()
    }

    /// Whether shares are looked at: not any more when the pool stops.
    fn looks_at_shares(&self) -> bool {
        !self.shares.is_empty() && !self.tasks.is_empty() && !self.stopping
    }

    /// In what time one of the shares that are used up has something again; none where tasks wait for no share.
    fn share_in(&self, now: Instant) -> Option<Duration> {
        if self.tasks.is_empty() {
            return None;
        }
        self.shares.values().filter_map(|share| share.time.wait(now)).min()
    }

    fn has_work(&self) -> bool {
        !self.answers.is_empty()
            || !self.shared.is_empty()
            || !self.asides.is_empty()
            || !self.held.is_empty()
            || (!self.tasks.is_empty() && self.under_way_total < TASKS_MAX)
            || self.is_over()
    }

    fn is_over(&self) -> bool {
        self.stopping && self.under_way_total == 0 && self.tasks.is_empty()
    }
}

/// What an adapter takes in one turn.
struct Taken {
    answers: Vec<Answer>,
    aside: Option<Box<dyn FnOnce() + Send>>,
    shared: Parcel,
    tasks: Vec<New>,
    /// A kind of messages whose signature is due.
    due: Option<BatchKey>,
}

impl Taken {
    fn is_empty(&self) -> bool {
        self.answers.is_empty()
            && self.shared.is_empty()
            && self.tasks.is_empty()
            && self.aside.is_none()
            && self.due.is_none()
    }
}

/// The number with which a user's links ask for devices, so that users have their turns there, however many connections
/// each of them has.
pub fn asker_of(user: &str) -> u64 {
    const OF_USERS: u64 = 1 << 63;
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish() | OF_USERS
}

/// What a job asks of a key, where the answer is the same for every asker and several are likely to ask: an unwrap, and
/// the verification of a signature that messages share.
pub(crate) fn question(job: &Job) -> Option<Question> {
    let (kind, asked, expected_len) = match &*job.work {
        bulla_device::Work::RsaVerify { scheme, digest, hash, signature } if job.is_common => {
            let padding = u8::from(*scheme == RsaScheme::Pss);
            return Some(of_signature(job, &[2, padding, digest.hash_len() as u8], hash, signature));
        }
        bulla_device::Work::EcdsaVerify { hash, signature } if job.is_common => {
            return Some(of_signature(job, &[3], hash, signature));
        }
        bulla_device::Work::RsaUnwrap { padding: RsaPadding::Pkcs1, wrapped, expected_len } => {
            (0, wrapped, *expected_len)
        }
        bulla_device::Work::RsaUnwrap { padding: RsaPadding::Oaep { digest }, wrapped, expected_len } => {
            (digest.hash_len() as u8, wrapped, *expected_len)
        }
        bulla_device::Work::EcdhDerive { peer } => (1, peer, 0),
        bulla_device::Work::MlDsaVerify { message, signature } if job.is_common => {
            return Some(of_signature(job, &[4], message, signature));
        }
        bulla_device::Work::MlKemDecapsulate { ciphertext } => (5, ciphertext, 0),
        _ => return None,
    };
    let mut hasher = openssl::sha::Sha256::new();
    hasher.update(&job.key.id());
    hasher.update(&[kind]);
    hasher.update(&expected_len.to_be_bytes());
    hasher.update(asked);
    Some(hasher.finish())
}

fn of_signature(job: &Job, kind: &[u8], hash: &[u8], signature: &[u8]) -> Question {
    let mut hasher = openssl::sha::Sha256::new();
    hasher.update(&job.key.id());
    hasher.update(kind);
    hasher.update(&(hash.len() as u64).to_be_bytes());
    hasher.update(hash);
    hasher.update(signature);
    hasher.finish()
}

#[cfg(test)]
mod tests;
