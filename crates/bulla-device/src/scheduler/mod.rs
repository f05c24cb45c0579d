//! Which device does which job, and when.
//!
//! A caller [`place`](Scheduler::place)s its jobs. Each goes where it is expected to be finished
//! first, by the times that were measured for its operation and size:
//!
//! - *inline*: the caller computes it at once, on its own thread. The processor and the accelerators are
//!   the same cores, so the work that is on its way to either counts for both: a lonely job is quickest
//!   inline, and once more work is there than a call with full lanes takes, calls with full lanes it is;
//! - a *device*, into its short waiting line. An engine takes from it, in one call, what is of one shape,
//!   as many jobs as it has lanes. It never waits for a call to fill up: while it computes, jobs arrive;
//! - the *backlog*, where all lines are full. Askers have their turns there.
//!
//! A job that fails by its device's fault is done by another one that its key allows; a token's key waits
//! for its token until the job's deadline. A verdict of any device but the processor that speaks against
//! a signature is computed again before the asker is told.

mod allowed;
mod engine;
mod estimate;
mod fair;
mod inline;
mod managed;
mod monitor;
pub mod rules;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::clock::thread_cpu_ns;
use crate::device::{DeviceError, Driver, Kind};
use crate::meter::Meters;
use crate::operations::Operations;
use crate::work::{Job, Output, Shape};

pub use crate::history::{HISTORY_INTERVAL, HISTORY_SNAPSHOTS_MAX};
pub use fair::FairQueue;
pub use inline::{Inline, Parcel};

use estimate::Estimates;
use managed::{InService, Managed};

/// The name of the device that is always there.
pub const CPU_NAME: &str = "CPU";
/// Most devices beside the processor.
pub const DEVICES_MAX: usize = 32;
/// Jobs that may wait in the backlog and for absent tokens together; more are refused as away.
pub const BACKLOG_MAX: usize = 65_536;
/// How often a job is tried on devices that fail before its asker hears of it.
pub const TRIES_MAX: u32 = 5;
/// A job that failed on the only device that can do it waits so long, twice as long each time.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(10);
/// It never waits longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);
/// How long [`Scheduler::shut_down`] waits for devices that are in the middle of a call.
pub const SHUT_DOWN_MAX: Duration = Duration::from_secs(3);

/// Which device it was. Zero is the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(u32);

impl DeviceId {
    /// The processor itself, whose verdicts are final.
    pub const CPU: DeviceId = DeviceId(0);
}

/// A device from one start to the next. What is found out about the results of one run is held against no other: an
/// administrator has started the device since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// The device.
    pub device: DeviceId,
    /// Which of its starts it was.
    start: u64,
}

impl Run {
    /// The processor's, which has one.
    pub const CPU: Run = Run { device: DeviceId::CPU, start: 0 };
}

/// The end of a job that was placed.
#[derive(Debug)]
pub struct Answer {
    /// The number given in [`Job`].
    pub id: u64,
    /// The result.
    pub result: Result<Output, DeviceError>,
    /// Who computed it.
    pub by: Run,
    /// Nanoseconds that an engine, or the processor, was busy with it: of a call with several jobs an equal part each.
    /// 0 where no device computed it.
    pub service_ns: u64,
}

/// Where answers go, in calls from the devices' threads.
pub trait Sink: Send + Sync {
    /// Takes answers over. Must not place jobs itself.
    fn finished(&self, answers: Vec<Answer>);
}

/// What a device is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It takes jobs.
    Running,
    /// It is being opened and tested.
    Starting,
    /// It was stopped, or was never started.
    Stopped,
    /// It can't be used now; it is tried again where that can help.
    Offline {
        /// One lower-case line.
        why: String,
    },
    /// It gave a wrong result; it is not used again before a command starts it.
    Failed {
        /// One lower-case line.
        why: String,
    },
}

impl State {
    /// The word in commands and reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            State::Running => "RUNNING",
            State::Starting => "STARTING",
            State::Stopped => "STOPPED",
            State::Offline { .. } => "OFFLINE",
            State::Failed { .. } => "FAILED",
        }
    }

    /// Why it is not running, where that is to be said.
    pub fn why(&self) -> Option<&str> {
        match self {
            State::Offline { why } | State::Failed { why } => Some(why),
            _ => None,
        }
    }
}

/// A device as commands and reports show it.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Its sort.
    pub kind: Kind,
    /// Engines that work side by side.
    pub engines: usize,
    /// Jobs that one call takes.
    pub lanes: usize,
    /// Jobs that may wait.
    pub waiting_max: usize,
    /// What it is doing.
    pub state: State,
    /// Part of the last second or so that its engines were busy, 0 to 1.
    pub utilisation: f64,
    /// Why it failed last, be it running again.
    pub last_error: Option<String>,
    /// Jobs that wait for it now.
    pub waiting: usize,
    /// Jobs that it computes now.
    pub in_service: usize,
    /// Since when it counts.
    pub since: SystemTime,
    /// What it counted.
    pub meters: Meters,
}

/// Opens a device; called at each start, on a thread of its own.
pub type Open = Arc<dyn Fn() -> Result<Arc<dyn Driver>, DeviceError> + Send + Sync>;

/// The commander's turn: a name that is taken, or that no device has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupError {
    /// A device of that name exists.
    Exists(String),
    /// No device has that name.
    Unknown(String),
    /// [`DEVICES_MAX`] are there.
    TooMany,
}

impl std::error::Error for SetupError {}

impl std::fmt::Display for SetupError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SetupError::Exists(name) => write!(out, "device {name} exists"),
            SetupError::Unknown(name) => write!(out, "no device is named {name}"),
            SetupError::TooMany => write!(out, "there are {DEVICES_MAX} devices, which is the most"),
        }
    }
}

/// The devices of a process and the jobs that wait for them.
pub struct Scheduler {
    inner: Mutex<Inner>,
    /// Rung when the monitor has something to look at.
    monitor: Condvar,
    /// Rung when a thread ends.
    ended: Condvar,
    /// Processor time, nanoseconds, that the jobs on their way to the cores would take inline.
    load_ns: AtomicU64,
    cores: u64,
    cpu: CpuCounters,
}

/// What the processor's own jobs are counted in.
struct CpuCounters {
    meters: Mutex<Meters>,
    estimates: Mutex<Estimates>,
    since: SystemTime,
}

struct Inner {
    devices: Vec<Managed>,
    next_device: u32,
    /// Tells jobs apart inside the devices: callers may use a number twice.
    next_key: u64,
    cpu_kind: Kind,
    cpu_running: bool,
    /// What the processor may do.
    cpu_operations: Operations,
    /// Jobs whose devices all have full lines.
    backlog: FairQueue<Waiting>,
    /// Jobs that no running device can do: a token is away.
    stranded: Vec<Waiting>,
    cpu_utilisation: f64,
    history: monitor::Reports,
    /// When utilisations were computed last, and what each device had been busy until then.
    measured: Option<monitor::Measured>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Threads that have not ended, the monitor's included.
    alive: usize,
    /// When the monitor looks again.
    next_look: Instant,
    stopping: bool,
}

/// A job on its way.
struct Waiting {
    job: Job,
    sink: Arc<dyn Sink>,
    submitted: Instant,
    shape: Shape,
    /// Part of the load of the cores.
    cost_ns: u64,
    /// Devices that failed with it.
    avoid: Vec<DeviceId>,
    tries: u32,
    /// A job that failed waits so long before it is tried again.
    not_before: Instant,
}

/// Where a job goes.
#[derive(Clone, Copy)]
enum Choice {
    Inline,
    /// Into the line of the device at this place.
    Device(usize),
    /// Into the backlog: the device at this place would be best, but its line is full.
    Backlog(usize),
    Stranded,
}

impl Scheduler {
    /// A scheduler that has the processor alone, as [`Kind::Cpu`] or [`Kind::Software`]. `cores` is how
    /// many of them share the work.
    pub fn new(cpu_kind: Kind, cores: usize) -> Arc<Scheduler> {
        let scheduler = Self::without_monitor(cpu_kind, cores);
        monitor::start(&scheduler);
        scheduler
    }

    /// The same without a thread that looks after deadlines and the other devices: for a program of one thread, which
    /// has none of those.
    pub fn without_monitor(cpu_kind: Kind, cores: usize) -> Arc<Scheduler> {
        Arc::new(Scheduler {
            inner: Mutex::new(Inner {
                devices: Vec::new(),
                next_device: 1,
                next_key: 0,
                cpu_kind,
                cpu_running: true,
                cpu_operations: Operations::ALL,
                backlog: FairQueue::default(),
                stranded: Vec::new(),
                cpu_utilisation: 0.0,
                history: monitor::Reports::default(),
                measured: None,
                threads: Vec::new(),
                alive: 0,
                next_look: Instant::now(),
                stopping: false,
            }),
            monitor: Condvar::new(),
            ended: Condvar::new(),
            load_ns: AtomicU64::new(0),
            cores: cores.max(1) as u64,
            cpu: CpuCounters { meters: Mutex::default(), estimates: Mutex::default(), since: SystemTime::now() },
        })
    }

    /// Finds each job its place. Those that the caller is to compute itself are left in `inline`, for
    /// [`Inline::run`]; the answers to all others go to `sink`, now or later.
    ///
    /// One lock and some hundred nanoseconds a job.
    pub fn place(&self, jobs: &mut Vec<Job>, sink: &Arc<dyn Sink>, inline: &mut Inline) {
        if jobs.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut refused = Vec::new();
        let mut inner = self.lock();
        for job in jobs.drain(..) {
            let shape = job.shape();
            let waiting = Waiting {
                shape,
                sink: sink.clone(),
                submitted: now,
                cost_ns: 0,
                avoid: Vec::new(),
                tries: 0,
                not_before: now,
                job,
            };
            match self.settle_in(&mut inner, waiting, now) {
                Settled::Placed => {}
                Settled::Inline(waiting) => inline.push(waiting),
                Settled::Refused(answer) => refused.push(answer),
            }
        }
        drop(inner);
        if !refused.is_empty() {
            sink.finished(refused);
        }
    }

    /// Takes a job into the queue that it belongs to, or gives it back.
    fn settle_in(&self, inner: &mut Inner, mut waiting: Waiting, now: Instant) -> Settled {
        // Its own cost must not speak against a place.
        self.unload(&mut waiting);
        if let Some(error) = waiting.job.is_over(now).or_else(|| waiting.job.check_key().err()) {
            return Settled::Refused(waiting.answer(Err(error), Run::CPU));
        }
        let choice = self.choose(inner, &waiting, now);
        let device = match choice {
            Choice::Inline | Choice::Stranded => None,
            Choice::Device(place) | Choice::Backlog(place) => inner.devices.get_mut(place),
        };
        match (choice, device) {
            (Choice::Inline, _) => {
                self.load(&mut waiting);
                return Settled::Inline(waiting);
            }
            (Choice::Device(_), Some(device)) => {
                if device.is_on_the_cores() {
                    self.load(&mut waiting);
                }
                device.enqueue(waiting);
                return Settled::Placed;
            }
            (Choice::Backlog(_), Some(device)) => {
                if device.is_on_the_cores() {
                    self.load(&mut waiting);
                }
                if waiting.avoid.contains(&device.id) {
                    // All that can do it have failed with it: it may begin anew with any of them.
                    waiting.avoid.clear();
                }
            }
            _ => {}
        }
        let forbidden = if matches!(choice, Choice::Stranded) { inner.forbidden(&waiting.job) } else { None };
        let refused = if forbidden.is_some() {
            forbidden
        } else if inner.stopping {
            Some(stopping())
        } else if inner.backlog.len() + inner.stranded.len() >= BACKLOG_MAX {
            Some(DeviceError::Away { device: "of any kind (the backlog is full)".to_owned() })
        } else {
            None
        };
        if let Some(error) = refused {
            self.unload(&mut waiting);
            return Settled::Refused(waiting.answer(Err(error), Run::CPU));
        }
        match choice {
            Choice::Backlog(_) => {
                inner.backlog.push(waiting.job.asker.number(), waiting);
                self.ring(inner, now + monitor::LOOK_EVERY);
                Settled::Placed
            }
            _ if waiting.job.deadline.is_none() => {
                // Nothing would ever tell this job to stop waiting.
                let why = inner.why_stranded(&waiting.job);
                Settled::Refused(waiting.answer(Err(why), Run::CPU))
            }
            _ => {
                inner.stranded.push(waiting);
                self.ring(inner, now + monitor::LOOK_EVERY);
                Settled::Placed
            }
        }
    }

    /// The least expected finish time.
    fn choose(&self, inner: &Inner, waiting: &Waiting, now: Instant) -> Choice {
        let (job, shape) = (&waiting.job, waiting.shape);
        let devices = inner.devices.iter().enumerate();
        let able = devices.filter(|(_, device)| device.is_usable() && device.takes(job));
        let candidates = able.map(|(place, device)| device.candidate(place, waiting, now));
        let best = rules::soonest(candidates, inner.backlog.len());
        let private = job.work.needs_private_key();
        let clear = inner.cpu_may(job);
        // Public-key work is the processor's where nothing else does it, even while CPU is stopped.
        let inline_ns = (clear && (inner.cpu_running || (!private && best.is_none()))).then(|| {
            // As if there were one core: the others have messages to move.
            self.load_ns.load(Ordering::Relaxed).saturating_add(self.cpu_ns(shape))
        });
        if inline_ns.is_some_and(|inline_ns| rules::is_for_the_caller(inline_ns, best.as_ref())) {
            return Choice::Inline;
        }
        match best {
            Some(best) if best.has_room => Choice::Device(best.place),
            Some(best) => Choice::Backlog(best.place),
            None => Choice::Stranded,
        }
    }

    /// What a job of this shape takes on one core.
    fn cpu_ns(&self, shape: Shape) -> u64 {
        locked(&self.cpu.estimates).call_ns(shape, || estimate::cpu_ns(shape))
    }

    /// Counts a job as load of the cores; it is not counted yet.
    fn load(&self, waiting: &mut Waiting) {
        waiting.cost_ns = self.cpu_ns(waiting.shape);
        self.load_ns.fetch_add(waiting.cost_ns, Ordering::Relaxed);
    }

    /// Lets the monitor look at that time at the latest.
    fn ring(&self, inner: &mut Inner, at: Instant) {
        if at < inner.next_look {
            inner.next_look = at;
            self.monitor.notify_one();
        }
    }

    /// Takes a job out of the load of the cores.
    fn unload(&self, waiting: &mut Waiting) {
        let cost = std::mem::take(&mut waiting.cost_ns);
        self.load_ns.fetch_sub(cost, Ordering::Relaxed);
    }

    /// Adds a device for which `waiting_max` jobs may wait, those in service not counted; it is stopped
    /// until [`start`](Self::start).
    ///
    /// # Errors
    /// [`SetupError::Exists`], [`SetupError::TooMany`].
    pub fn define(&self, name: &str, kind: Kind, waiting_max: usize, open: Open) -> Result<(), SetupError> {
        let mut inner = self.lock();
        if name == CPU_NAME || inner.devices.iter().any(|device| device.name == name) {
            return Err(SetupError::Exists(name.to_owned()));
        }
        if inner.devices.len() >= DEVICES_MAX {
            return Err(SetupError::TooMany);
        }
        let id = DeviceId(inner.next_device);
        inner.next_device += 1;
        inner.devices.push(Managed::new(id, name, kind, waiting_max, open));
        Ok(())
    }

    /// Makes a device another one, from its next [`start`](Self::start) on; its meters go on.
    ///
    /// # Errors
    /// [`SetupError::Unknown`].
    pub fn redefine(&self, name: &str, kind: Kind, waiting_max: usize, open: Open) -> Result<(), SetupError> {
        self.lock().named(name)?.redefine(kind, waiting_max, open);
        Ok(())
    }

    /// Opens a device and lets it take jobs; what came of it is in its [`State`]. A device that runs goes on.
    ///
    /// # Errors
    /// [`SetupError::Unknown`].
    pub fn start(self: &Arc<Self>, name: &str) -> Result<(), SetupError> {
        let mut inner = self.lock();
        if name == CPU_NAME {
            inner.cpu_running = true;
        } else if !inner.named(name)?.is_wanted() && !inner.stopping {
            engine::start(self, &mut inner, name);
        }
        self.ring(&mut inner, Instant::now());
        Ok(())
    }

    /// A device takes no more jobs. Those in service are finished, those that wait go elsewhere: none is
    /// computed in this call.
    ///
    /// # Errors
    /// [`SetupError::Unknown`].
    pub fn stop(&self, name: &str) -> Result<(), SetupError> {
        let mut inner = self.lock();
        if name == CPU_NAME {
            inner.cpu_running = false;
            return Ok(());
        }
        let moved = inner.named(name)?.stop(State::Stopped);
        let answers = self.leave_to_others(&mut inner, moved);
        drop(inner);
        deliver(answers.into_iter());
        Ok(())
    }

    /// Stops a device and forgets it, its meters too; see [`stop`](Self::stop).
    ///
    /// # Errors
    /// [`SetupError::Unknown`].
    pub fn remove(&self, name: &str) -> Result<(), SetupError> {
        let mut inner = self.lock();
        let device = inner.named(name)?;
        let id = device.id;
        let mut moved = device.stop(State::Stopped);
        // Answers of its engines are dropped from now on: what they have in service is done by others.
        moved.extend(device.take_in_service(|_| true));
        inner.devices.retain(|device| device.id != id);
        let answers = self.leave_to_others(&mut inner, moved);
        drop(inner);
        deliver(answers.into_iter());
        Ok(())
    }

    /// What a device said in that run proved wrong: it is not used again before a command starts it. False where the
    /// run is over: the device is out of use already, or was started since.
    pub fn distrust(&self, run: Run, why: &str) -> bool {
        let mut inner = self.lock();
        let of_the_run = |device: &&mut Managed| device.id == run.device && device.is_in_run(run.start);
        let Some(device) = inner.devices.iter_mut().find(of_the_run) else {
            return false;
        };
        let moved = device.stop(State::Failed { why: why.to_owned() });
        let late = self.move_on(&mut inner, moved);
        drop(inner);
        late.carry_out(self);
        true
    }

    /// The name of a device.
    pub fn name_of(&self, id: DeviceId) -> Option<String> {
        if id == DeviceId::CPU {
            return Some(CPU_NAME.to_owned());
        }
        self.lock().devices.iter().find(|device| device.id == id).map(|device| device.name.clone())
    }

    /// Every device as it is now, the processor first, then in the order of their definition.
    pub fn report(&self) -> Vec<Report> {
        self.reports(&self.lock())
    }

    /// One device as it is now: the meters of the others are not copied.
    pub fn report_of(&self, name: &str) -> Option<Report> {
        let inner = self.lock();
        if name == CPU_NAME {
            return Some(self.cpu_report(&inner));
        }
        inner.devices.iter().find(|device| device.name == name).map(Managed::report)
    }

    fn reports(&self, inner: &Inner) -> Vec<Report> {
        std::iter::once(self.cpu_report(inner)).chain(inner.devices.iter().map(Managed::report)).collect()
    }

    fn cpu_report(&self, inner: &Inner) -> Report {
        Report {
            name: CPU_NAME.to_owned(),
            kind: inner.cpu_kind,
            engines: usize::try_from(self.cores).unwrap_or(usize::MAX),
            lanes: 1,
            waiting_max: 0,
            state: if inner.cpu_running { State::Running } else { State::Stopped },
            utilisation: inner.cpu_utilisation,
            last_error: None,
            waiting: 0,
            in_service: 0,
            since: self.cpu.since,
            meters: locked(&self.cpu.meters).clone(),
        }
    }

    /// What [`report`](Self::report) said at the last look before `at`, and when that was; looks are
    /// [`HISTORY_INTERVAL`] apart.
    pub fn report_at(&self, at: SystemTime) -> Option<(SystemTime, Arc<[Report]>)> {
        self.lock().history.at(at).cloned()
    }

    /// When the oldest report was taken that is kept.
    pub fn oldest_report(&self) -> Option<SystemTime> {
        self.lock().history.oldest()
    }

    /// Jobs that wait for a device to have room, or for a token to come back.
    pub fn backlog(&self) -> usize {
        let inner = self.lock();
        inner.backlog.len() + inner.stranded.len()
    }

    /// Ends all threads; what waits is answered as away. Devices in the middle of a call finish it; one that
    /// has not after [`SHUT_DOWN_MAX`] is left to itself, and its jobs are answered as away, too. Without
    /// this call the engines' threads keep the scheduler alive. Not to be called from a [`Sink`].
    pub fn shut_down(&self) {
        let mut inner = self.lock();
        inner.stopping = true;
        let mut left = std::mem::take(&mut inner.stranded);
        left.extend(std::iter::from_fn(|| inner.backlog.pop()));
        for device in &mut inner.devices {
            left.extend(device.stop(State::Stopped));
        }
        self.monitor.notify_all();
        drop(inner);
        self.answer_as_stopping(left);
        let inner = self.lock();
        let waited = self.ended.wait_timeout_while(inner, SHUT_DOWN_MAX, |inner| inner.alive > 0);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let threads = std::mem::take(&mut inner.threads);
        let all_ended = inner.alive == 0;
        let left = inner.devices.iter_mut().flat_map(|device| device.take_in_service(|_| true)).collect();
        drop(inner);
        self.answer_as_stopping(left);
        if all_ended {
            for thread in threads {
                // A thread that panicked has ended, too.
                let _ = thread.join();
            }
        }
    }

    fn answer_as_stopping(&self, left: Vec<Waiting>) {
        deliver(left.into_iter().map(|mut waiting| {
            self.unload(&mut waiting);
            waiting.answered(Err(stopping()), Run::CPU)
        }));
    }

    /// The calling thread's last words.
    fn thread_ends(&self) {
        self.lock().alive -= 1;
        self.ended.notify_all();
    }

    /// What becomes of a job that failed by its device's fault: another device's turn, this one's after a
    /// pause, or the error.
    fn try_again(&self, inner: &mut Inner, mut waiting: Waiting, error: DeviceError, by: Run) -> Late {
        waiting.tries += 1;
        if !waiting.avoid.contains(&by.device) {
            waiting.avoid.push(by.device);
        }
        let now = Instant::now();
        let others = match self.choose(inner, &waiting, now) {
            Choice::Inline => true,
            Choice::Device(place) | Choice::Backlog(place) => {
                inner.devices.get(place).is_some_and(|device| !waiting.avoid.contains(&device.id))
            }
            Choice::Stranded => false,
        };
        let refused = matches!(error, DeviceError::Refused { .. });
        let enough = waiting.tries >= TRIES_MAX && (refused || waiting.job.deadline.is_none());
        if enough || (inner.stopping && !others) {
            self.unload(&mut waiting);
            let sink = waiting.sink.clone();
            return Late { rescued: Vec::new(), answers: vec![(sink, waiting.answer(Err(error), by))] };
        }
        if others {
            return self.move_on(inner, vec![waiting]);
        }
        self.unload(&mut waiting);
        waiting.not_before = now + (RETRY_AFTER_MIN * (1 << waiting.tries.min(8))).min(RETRY_AFTER_MAX);
        let again = waiting.not_before;
        inner.stranded.push(waiting);
        self.ring(inner, again);
        Late::default()
    }

    /// Finds new places for jobs that lost theirs.
    fn move_on(&self, inner: &mut Inner, jobs: Vec<Waiting>) -> Late {
        let (now, mut late) = (Instant::now(), Late::default());
        for waiting in jobs {
            let sink = waiting.sink.clone();
            match self.settle_in(inner, waiting, now) {
                Settled::Placed => {}
                Settled::Inline(waiting) => late.rescued.push(waiting),
                Settled::Refused(answer) => late.answers.push((sink, answer)),
            }
        }
        late
    }

    /// As [`move_on`](Self::move_on), for a thread that has no time to compute: what the processor is to do
    /// goes to the backlog, where the monitor finds it, and a device with room may come first. Returns the
    /// answers of the jobs that no device takes.
    fn leave_to_others(&self, inner: &mut Inner, jobs: Vec<Waiting>) -> Vec<(Arc<dyn Sink>, Answer)> {
        let Late { rescued, mut answers } = self.move_on(inner, jobs);
        for mut waiting in rescued {
            if inner.stopping {
                self.unload(&mut waiting);
                answers.push(waiting.answered(Err(stopping()), Run::CPU));
            } else {
                // A line's length at most: no more than was let in already, so BACKLOG_MAX is not asked.
                inner.backlog.push(waiting.job.asker.number(), waiting);
            }
        }
        self.ring(inner, Instant::now());
        answers
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Scheduler")
    }
}

/// What [`Scheduler::settle_in`] did with a job.
enum Settled {
    Placed,
    Inline(Waiting),
    Refused(Answer),
}

/// What is left to do once the lock is gone.
#[derive(Default)]
struct Late {
    /// Jobs for the processor, on this very thread.
    rescued: Vec<Waiting>,
    answers: Vec<(Arc<dyn Sink>, Answer)>,
}

impl Late {
    /// Returns what it cost of the calling thread's processor time, nanoseconds, that was counted as the
    /// processor's work.
    fn carry_out(self, scheduler: &Scheduler) -> u64 {
        let mut answers = self.answers;
        let mut cpu_ns = 0;
        if !self.rescued.is_empty() {
            let before = thread_cpu_ns();
            let mut inline = Inline::new();
            for waiting in self.rescued {
                let sink = waiting.sink.clone();
                inline.push(waiting);
                answers.extend(inline.run(scheduler).into_iter().map(|answer| (sink.clone(), answer)));
            }
            cpu_ns = thread_cpu_ns().saturating_sub(before);
        }
        deliver(answers.into_iter());
        cpu_ns
    }
}

/// A sink for tests in which no thread waits.
struct Ignored;

impl Sink for Ignored {
    fn finished(&self, _answers: Vec<Answer>) {}
}

impl Waiting {
    /// A job that its caller computes, and hears of, itself.
    fn nowhere(job: Job) -> Waiting {
        let now = Instant::now();
        let (shape, sink) = (job.shape(), Arc::new(Ignored));
        Waiting { job, sink, submitted: now, shape, cost_ns: 0, avoid: Vec::new(), tries: 0, not_before: now }
    }

    fn answer(&self, result: Result<Output, DeviceError>, by: Run) -> Answer {
        Answer { id: self.job.id, result, by, service_ns: 0 }
    }

    fn answered(self, result: Result<Output, DeviceError>, by: Run) -> (Arc<dyn Sink>, Answer) {
        let answer = self.answer(result, by);
        (self.sink, answer)
    }
}

impl Inner {
    fn named(&mut self, name: &str) -> Result<&mut Managed, SetupError> {
        let found = self.devices.iter_mut().find(|device| device.name == name);
        found.ok_or_else(|| SetupError::Unknown(name.to_owned()))
    }

    /// Why no device does a job: the state of one that could.
    fn why_stranded(&self, job: &Job) -> DeviceError {
        let able = self.devices.iter().find(|device| device.would_take(job));
        match able {
            Some(device) => {
                let state = device.state();
                // One that runs has failed with the job, or another one has.
                let error = device.last_error.as_deref().filter(|_| state == State::Running);
                let why = state.why().or(error).unwrap_or_else(|| state.as_str());
                let why = if why == state.as_str() { why.to_lowercase() } else { why.to_owned() };
                DeviceError::Offline { device: device.name.clone(), why }
            }
            None if self.cpu_may(job) => {
                DeviceError::Offline { device: CPU_NAME.to_owned(), why: State::Stopped.as_str().to_lowercase() }
            }
            None => DeviceError::Away { device: "for this key".to_owned() },
        }
    }
}

fn stopping() -> DeviceError {
    DeviceError::Away { device: "of any kind (the program is stopping)".to_owned() }
}

/// Hands answers to their askers, those for one asker in one call.
fn deliver(answers: impl Iterator<Item = (Arc<dyn Sink>, Answer)>) {
    let mut sorted: Vec<(Arc<dyn Sink>, Vec<Answer>)> = Vec::new();
    for (sink, answer) in answers {
        match sorted.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &sink)) {
            Some((_, answers)) => answers.push(answer),
            None => sorted.push((sink, vec![answer])),
        }
    }
    for (sink, answers) in sorted {
        sink.finished(answers);
    }
}

/// Locks, also after a panic elsewhere: counters and queues stay usable.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
