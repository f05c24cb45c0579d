//! What the queue manager's tasks do: requests, and how long they take, of it on the processor.
//!
//! A task is a thread with a role (a dispatcher, an adapter, the journal), or a role within one (the TLS of a
//! dispatcher's connections). Its thread counts with plain stores in a [`TaskMeter`] and measures with the processor's
//! cycle counter; [`Tasks`] looks at all meters once a second, makes times of cycles, and keeps how it stood, minute
//! for minute, for a day.

use crate::catalog::status::{CostSnapshot, ScratchUse, Snapshot, TaskKind, TaskMeters, TaskSnapshot};
use bulla_device::{History, Peaks, ThreadClock, TickScale, role, thread_clock_cost_ns, thread_cpu_ns, ticks};
use bulla_queue::Totals;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the meters are looked at: the longest request is known for each such span.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of a task whose requests are short, the thread's own clock is read at one in 1 to 16 of them, drawn anew each time:
/// it costs a system call.
const SAMPLE_MASK: u64 = 15;

/// What one task counts. One thread writes, without locks and without read-modify-write instructions; any thread reads.
#[derive(Default, Debug)]
#[repr(align(128))] // a pair of cache lines of its own
pub struct TaskMeter {
    requests: AtomicU64,
    /// Ticks in requests.
    elapsed: AtomicU64,
    /// Turns, in each of which there were requests.
    turns: AtomicU64,
    /// Of them, those at whose ends the thread's clock was read.
    sampled: AtomicU64,
    /// What it said, nanoseconds.
    sampled_cpu_ns: AtomicU64,
    until_sample: AtomicU64,
    /// The longest request since the last look, in ticks, and when it ended.
    longest: AtomicU64,
    longest_at: AtomicU64,
    /// Looks so far; written by the looking thread.
    looks: AtomicU64,
    /// The look that `longest` follows.
    longest_since: AtomicU64,
    connections: AtomicU64,
    thread: Mutex<ThreadTime>,
}

/// The processor time of a task's threads, of which it has one at a time.
#[derive(Default, Debug)]
struct ThreadTime {
    clock: Option<ThreadClock>,
    /// Of threads that have ended.
    ended_ns: u64,
}

/// A request that has begun.
#[must_use]
pub struct Begun {
    at: u64,
    cpu_ns: Option<u64>,
    /// The thread's clock where it is read for the roles alone: after a long turn, so that it says nothing of turns as
    /// such.
    role_cpu_ns: Option<u64>,
}

/// While it lives, the calling thread is the task's.
pub struct OnThread<'a>(&'a TaskMeter);

impl TaskMeter {
    /// Something begins. 10 ns, and now and then, or after a long turn, 0.2 µs.
    pub fn begin(&self) -> Begun {
        let left = self.until_sample.load(Relaxed);
        if left > 0 {
            self.until_sample.store(left - 1, Relaxed);
            let role_cpu_ns = role::begin_turn();
            return Begun { at: ticks(), cpu_ns: None, role_cpu_ns };
        }
        // The last bits of the counter are as good as drawn.
        self.until_sample.store(ticks() & SAMPLE_MASK, Relaxed);
        self.begin_exactly()
    }

    /// Something begins that is long enough for the thread's clock to be read each time. 0.2 µs.
    pub fn begin_exactly(&self) -> Begun {
        role::begin_sample();
        let cpu_ns = Some(thread_cpu_ns());
        Begun { at: ticks(), cpu_ns, role_cpu_ns: None }
    }

    /// It ends; so many ticks it took.
    pub fn end(&self, begun: Begun) -> u64 {
        let took = ticks().saturating_sub(begun.at);
        add(&self.elapsed, took);
        add(&self.turns, 1);
        if let Some(before_ns) = begun.cpu_ns {
            let cpu_ns = thread_cpu_ns().saturating_sub(before_ns);
            add(&self.sampled, 1);
            add(&self.sampled_cpu_ns, cpu_ns);
            role::end_turn(took, Some(cpu_ns));
        } else {
            let cpu_ns = begun.role_cpu_ns.map(|before_ns| thread_cpu_ns().saturating_sub(before_ns));
            role::end_turn(took, cpu_ns);
        }
        took
    }

    /// Processor time of the turns at whose ends the thread's clock was read, nanoseconds. A task that always measures
    /// exactly has all that it used in it.
    pub fn sampled_cpu_ns(&self) -> u64 {
        self.sampled_cpu_ns.load(Relaxed)
    }

    /// Counts a request of so many ticks.
    pub fn request(&self, took: u64) {
        add(&self.requests, 1);
        let looks = self.looks.load(Relaxed);
        if looks != self.longest_since.load(Relaxed) {
            self.longest_since.store(looks, Relaxed);
            self.longest.store(0, Relaxed);
        }
        if took > self.longest.load(Relaxed) {
            self.longest_at.store(ticks(), Relaxed);
            self.longest.store(took, Relaxed);
        }
    }

    /// Carries out a call, as a request where it `counts`: of a role whose processor time is a share of its thread's.
    pub fn time<T>(&self, counts: bool, call: impl FnOnce() -> T) -> T {
        if !counts {
            return call();
        }
        let begun = ticks();
        let result = call();
        let took = ticks().saturating_sub(begun);
        add(&self.elapsed, took);
        self.request(took);
        result
    }

    /// Says how many connections a dispatcher has.
    pub fn set_connections(&self, count: usize) {
        self.connections.store(count as u64, Relaxed);
    }

    /// The calling thread is the task's from now on.
    pub fn on_this_thread(&self) -> OnThread<'_> {
        self.begin_thread();
        OnThread(self)
    }

    /// The same, for a thread that goes on for as long as the queue manager does; of no effect the second time.
    pub fn begin_thread(&self) {
        let mut thread = locked(&self.thread);
        if thread.clock.is_none() {
            thread.clock = ThreadClock::of_this_thread();
        }
    }

    /// Whether it has a thread now, and the processor time of all that it had, nanoseconds.
    fn thread(&self) -> (bool, u64) {
        let thread = locked(&self.thread);
        let now_ns = thread.clock.and_then(ThreadClock::ns);
        (thread.clock.is_some(), thread.ended_ns.saturating_add(now_ns.unwrap_or(0)))
    }
}

impl Drop for OnThread<'_> {
    fn drop(&mut self) {
        let mut thread = locked(&self.0.thread);
        thread.ended_ns = thread.ended_ns.saturating_add(thread_cpu_ns());
        thread.clock = None;
        drop(thread);
        self.0.set_connections(0);
    }
}

/// Adds to a counter that no other thread writes.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counts hold no invariant that a panic could break.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All tasks of a queue manager.
pub struct Tasks {
    scale: TickScale,
    /// What reading a thread's clock adds to what it says, nanoseconds.
    clock_cost_ns: u64,
    inside: Mutex<Inside>,
    wake_up: Condvar,
}

struct Inside {
    tasks: Vec<Task>,
    /// How many adapters were busy at one moment, at most.
    busy_adapters: Peaks,
    history: History<TaskSnapshot>,
    /// What roles had cost, minute for minute.
    costs: History<CostSnapshot>,
    stopping: bool,
}

/// A task as it was when it was last looked at.
struct Task {
    index: usize,
    meter: Arc<TaskMeter>,
    seen: Counters,
    /// Processor time of a turn, nanoseconds, as seen last.
    turn_cpu_ns: f64,
    /// How much of the time of its requests was on the processor, as seen last.
    cpu_share: f64,
    counted: TaskMeters,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    elapsed: u64,
    turns: u64,
    sampled: u64,
    sampled_cpu_ns: u64,
}

impl Default for Tasks {
    fn default() -> Self {
        let inside = Inside {
            tasks: Vec::new(),
            busy_adapters: Peaks::default(),
            history: History::default(),
            costs: History::default(),
            stopping: false,
        };
        Self {
            scale: TickScale::begin(),
            clock_cost_ns: thread_clock_cost_ns(),
            inside: Mutex::new(inside),
            wake_up: Condvar::new(),
        }
    }
}

impl Tasks {
    /// The meter of a task; made where there is none yet. A thread that takes the index of one that ended goes on
    /// counting there.
    pub fn meter(&self, kind: TaskKind, index: usize) -> Arc<TaskMeter> {
        let mut inside = locked(&self.inside);
        if let Some(known) = inside.tasks.iter().find(|task| task.counted.kind == kind && task.index == index) {
            return known.meter.clone();
        }
        let task = Task {
            index,
            meter: Arc::default(),
            seen: Counters::default(),
            turn_cpu_ns: 0.0,
            cpu_share: 1.0,
            counted: TaskMeters::new(kind, kind.name_of(index), unix_ms(SystemTime::now())),
        };
        let meter = task.meter.clone();
        inside.tasks.push(task);
        // Dispatchers come first: TLS has its share of what is found for them.
        inside.tasks.sort_by_key(|task| (task.counted.kind, task.index));
        meter
    }

    /// What all tasks did until now. `busy_adapters` is the most that were busy at one moment since the last time;
    /// `devices` are tasks, too.
    pub fn snapshot(&self, busy_adapters: usize, devices: &Snapshot) -> TaskSnapshot {
        let mut inside = locked(&self.inside);
        self.look(&mut inside, SystemTime::now(), busy_adapters);
        inside.snapshot(devices)
    }

    /// The same, as it was kept last before `at`.
    ///
    /// # Errors
    /// When the oldest that is kept was taken, if any is.
    pub fn snapshot_at(&self, at: SystemTime) -> Result<TaskSnapshot, Option<SystemTime>> {
        let inside = locked(&self.inside);
        let mut kept = inside.history.until(at).map(|(_, kept)| kept);
        let oldest = inside.history.oldest();
        let mut snapshot = kept.next().ok_or(oldest)?.clone();
        for later in kept {
            snapshot.go_on_to(later);
        }
        Ok(snapshot)
    }

    /// What all roles had cost, as it was kept last before `at`.
    ///
    /// # Errors
    /// When the oldest that is kept was taken, if any is.
    pub fn costs_at(&self, at: SystemTime) -> Result<CostSnapshot, Option<SystemTime>> {
        let inside = locked(&self.inside);
        inside.costs.at(at).map(|(_, kept)| kept.clone()).ok_or(inside.costs.oldest())
    }

    /// Looks once a second until told to stop; `busy_adapters`, `devices` and `messages` are asked for what they
    /// counted, and `keep` is called when a minute is kept.
    pub fn look_until_stopped(
        &self,
        busy_adapters: impl Fn() -> usize,
        devices: impl Fn() -> Snapshot,
        messages: impl Fn() -> Totals,
        keep: impl Fn(SystemTime),
    ) {
        loop {
            let inside = locked(&self.inside);
            let waited = self.wake_up.wait_timeout_while(inside, LOOK_EVERY, |inside| !inside.stopping);
            let (inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if inside.stopping {
                return;
            }
            let now = SystemTime::now();
            let is_due = inside.history.is_due(now);
            drop(inside);
            let (busy_adapters, devices) = (busy_adapters(), is_due.then(&devices));
            // Also where nothing is kept of it: what a tick is worth is found once a second.
            let costs = costs_now(if is_due { messages() } else { Totals::default() });
            let mut inside = locked(&self.inside);
            self.look(&mut inside, now, busy_adapters);
            if let Some(devices) = devices {
                inside.keep(now, &devices);
                inside.costs.keep(now, costs, |_, _| false);
                drop(inside);
                keep(now);
            }
        }
    }

    /// Ends the looking.
    pub fn stop(&self) {
        locked(&self.inside).stopping = true;
        self.wake_up.notify_all();
    }

    /// Makes times of what was counted since the last look.
    fn look(&self, inside: &mut Inside, now: SystemTime, busy_adapters: usize) {
        let now_ms = unix_ms(now);
        inside.busy_adapters.note(now_ms, busy_adapters as u64);
        let (ns_per_tick, now_ticks) = (self.scale.ns_per_tick(), ticks());
        let mut dispatcher_shares: Vec<f64> = Vec::new();
        for task in &mut inside.tasks {
            let host_share = (task.counted.kind == TaskKind::Tls).then(|| dispatcher_shares.get(task.index).copied());
            task.look(ns_per_tick, self.clock_cost_ns, host_share.flatten());
            task.look_for_longest(ns_per_tick, now_ticks, now_ms);
            if task.counted.kind == TaskKind::Dispatcher {
                dispatcher_shares.push(task.cpu_share);
            }
        }
    }
}

impl Task {
    /// Processor times of turns are alike, while how long a turn takes has no bound: so the turns are counted, and not
    /// their time, to tell from a few of them what all of them cost.
    fn look(&mut self, ns_per_tick: f64, clock_cost_ns: u64, host_share: Option<f64>) {
        let (meter, counted) = (&self.meter, &mut self.counted);
        let now = Counters {
            elapsed: meter.elapsed.load(Relaxed),
            turns: meter.turns.load(Relaxed),
            sampled: meter.sampled.load(Relaxed),
            sampled_cpu_ns: meter.sampled_cpu_ns.load(Relaxed),
        };
        let elapsed_ns = now.elapsed.saturating_sub(self.seen.elapsed) as f64 * ns_per_tick;
        let sampled = now.sampled.saturating_sub(self.seen.sampled);
        if sampled > 0 {
            let said_ns = now.sampled_cpu_ns.saturating_sub(self.seen.sampled_cpu_ns);
            self.turn_cpu_ns = said_ns.saturating_sub(sampled.saturating_mul(clock_cost_ns)) as f64 / sampled as f64;
        }
        let (is_running, thread_ns) = meter.thread();
        let cpu_ns = match host_share {
            Some(share) => elapsed_ns * share,
            None => {
                let turns = now.turns.saturating_sub(self.seen.turns);
                // No more than the turns took, nor than the thread had.
                let thread_left_ns = thread_ns.saturating_sub(counted.cpu_ns) as f64;
                (turns as f64 * self.turn_cpu_ns).min(elapsed_ns).min(thread_left_ns)
            }
        };
        if elapsed_ns > 0.0 {
            self.cpu_share = cpu_ns / elapsed_ns;
        }
        self.seen = now;
        counted.requests = meter.requests.load(Relaxed);
        counted.elapsed_ns = counted.elapsed_ns.saturating_add(elapsed_ns as u64);
        counted.cpu_ns = counted.cpu_ns.saturating_add(cpu_ns as u64);
        counted.is_running = is_running || counted.kind == TaskKind::Tls;
        counted.connections = meter.connections.load(Relaxed);
        // What is not in requests is between them. A sample may have said a little too much.
        counted.between_ns = counted.between_ns.max(thread_ns.saturating_sub(counted.cpu_ns));
    }

    fn look_for_longest(&mut self, ns_per_tick: f64, now_ticks: u64, now_ms: u64) {
        let (meter, counted) = (&self.meter, &mut self.counted);
        // Read until no write came in between; a writer that outruns this has a longer one the next time.
        let longest = loop {
            let (longest, at) = (meter.longest.load(Relaxed), meter.longest_at.load(Relaxed));
            if longest == meter.longest.load(Relaxed) {
                break (longest, at);
            }
        };
        let looks = meter.looks.load(Relaxed);
        if meter.longest_since.load(Relaxed) == looks && longest.0 > 0 {
            let ago_ms = now_ticks.saturating_sub(longest.1) as f64 * ns_per_tick / 1e6;
            counted.longest.note(now_ms.saturating_sub(ago_ms as u64), (longest.0 as f64 * ns_per_tick) as u64);
        }
        meter.looks.store(looks.wrapping_add(1), Relaxed);
    }
}

impl Inside {
    fn snapshot(&self, devices: &Snapshot) -> TaskSnapshot {
        let tasks = self.tasks.iter().map(|task| task.counted.clone());
        TaskSnapshot {
            taken_ms: unix_ms(SystemTime::now()),
            busy_adapters: self.busy_adapters.clone(),
            tasks: tasks.chain(devices.devices.iter().map(TaskMeters::from)).collect(),
        }
    }

    /// Keeps how it stands, with the peaks of its own minute alone.
    fn keep(&mut self, now: SystemTime, devices: &Snapshot) {
        let mut snapshot = self.snapshot(devices);
        if let Some((taken, _)) = self.history.latest() {
            snapshot.leave_peaks_until(unix_ms(*taken));
        }
        let requests = |kept: &TaskSnapshot| kept.tasks.iter().map(|task| task.requests).collect::<Vec<_>>();
        self.history.keep(now, snapshot, |old, new| requests(old) == requests(new));
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// How it stands now, with what went through the queues.
pub fn costs_now(messages: Totals) -> CostSnapshot {
    let unix_ms = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    };
    let costs = role::costs();
    let Totals { puts, gets, scratch } = messages;
    let wait_ns = u64::try_from(scratch.wait.as_nanos()).unwrap_or(u64::MAX);
    let scratch = ScratchUse { messages: scratch.messages, bytes: scratch.bytes, used: scratch.used, wait_ns };
    CostSnapshot { taken_ms: unix_ms(SystemTime::now()), since_ms: unix_ms(role::since()), costs, puts, gets, scratch }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(snapshot: &TaskSnapshot, kind: TaskKind, index: usize) -> TaskMeters {
        let name = kind.name_of(index);
        snapshot.tasks.iter().find(|task| task.kind == kind && task.name == name).unwrap().clone()
    }

    /// Works for that long by the thread's own clock.
    fn work(ns: u64) {
        let end = thread_cpu_ns() + ns;
        while thread_cpu_ns() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn requests_their_time_and_their_longest_are_counted() {
        let tasks = Tasks::default();
        let meter = tasks.meter(TaskKind::Adapter, 2);
        assert!(Arc::ptr_eq(&meter, &tasks.meter(TaskKind::Adapter, 2)));
        let on_thread = meter.on_this_thread();
        for ns in [1_000_000, 6_000_000, 2_000_000] {
            let begun = meter.begin_exactly();
            work(ns);
            let took = meter.end(begun);
            meter.request(took);
        }
        work(3_000_000);
        let first = row(&tasks.snapshot(2, &Snapshot::default()), TaskKind::Adapter, 2);
        assert_eq!((first.requests, first.is_running), (3, true));
        assert!(first.cpu_ns >= 8_900_000 && first.elapsed_ns >= first.cpu_ns, "{first:?}");
        assert!(first.between_ns >= 2_900_000, "{first:?}");
        let longest = first.longest.after(0).unwrap();
        assert!(longest.value >= 5_900_000 && longest.value <= first.elapsed_ns, "{first:?}");

        // A second look has nothing new, and a shorter request afterwards is the longest since.
        let again = tasks.snapshot(0, &Snapshot::default());
        assert_eq!(row(&again, TaskKind::Adapter, 2).longest, first.longest);
        assert_eq!(again.busy_adapters.after(0).map(|peak| peak.value), Some(2));
        meter.request(1 + (1e6 / tasks.scale.ns_per_tick()) as u64);
        drop(on_thread);
        let last = row(&tasks.snapshot(0, &Snapshot::default()), TaskKind::Adapter, 2);
        assert_eq!((last.requests, last.is_running), (4, false));
        let since = last.longest.after(longest.at_ms).unwrap().value;
        assert!((990_000..1_010_000).contains(&since), "{since} ns");
        assert!(last.between_ns >= first.between_ns && last.cpu_ns == first.cpu_ns, "{last:?}");
    }

    #[test]
    fn tls_has_the_share_of_the_processor_that_its_dispatcher_has() {
        let tasks = Tasks::default();
        let (tls, dispatcher) = (tasks.meter(TaskKind::Tls, 0), tasks.meter(TaskKind::Dispatcher, 0));
        let _on_thread = dispatcher.on_this_thread();
        let begun = dispatcher.begin_exactly();
        tls.time(true, || work(2_000_000));
        tls.time(false, || work(2_000_000));
        // Half of the time it waits: this is what the thread's clock does not count.
        std::thread::park_timeout(Duration::from_millis(4));
        let took = dispatcher.end(begun);
        dispatcher.request(took);
        let snapshot = tasks.snapshot(0, &Snapshot::default());
        let (tls, dispatcher) = (row(&snapshot, TaskKind::Tls, 0), row(&snapshot, TaskKind::Dispatcher, 0));
        assert_eq!((tls.requests, dispatcher.requests), (1, 1));
        assert!(dispatcher.elapsed_ns > dispatcher.cpu_ns && dispatcher.cpu_ns >= 3_900_000, "{dispatcher:?}");
        let share = dispatcher.cpu_ns as f64 / dispatcher.elapsed_ns as f64;
        let of_tls = tls.cpu_ns as f64 / tls.elapsed_ns as f64;
        assert!((share - of_tls).abs() < 1e-3, "{share} {of_tls}");
    }

    #[test]
    fn what_roles_had_cost_is_kept_minute_for_minute() {
        let tasks = Tasks::default();
        let minute = |minute: u64| SystemTime::now() + Duration::from_secs(60 * minute);
        assert_eq!(tasks.costs_at(minute(1)), Err(None));
        let snapshot = |puts| CostSnapshot { puts, ..CostSnapshot::default() };
        for at in [1, 2] {
            locked(&tasks.inside).costs.keep(minute(at), snapshot(at), |_, _| false);
        }
        assert!(tasks.costs_at(minute(0)).is_err_and(|oldest| oldest.is_some()));
        assert_eq!(tasks.costs_at(minute(1) + Duration::from_secs(30)), Ok(snapshot(1)));
        assert_eq!(tasks.costs_at(minute(9)), Ok(snapshot(2)));
    }

    #[test]
    fn what_was_kept_has_the_peaks_of_all_minutes_before() {
        let tasks = Tasks::default();
        let meter = tasks.meter(TaskKind::Dispatcher, 0);
        let minute = |minute: u64| SystemTime::now() + Duration::from_secs(60 * minute);
        for (at, requests) in [(1, 1), (2, 0), (3, 2)] {
            (0..requests).for_each(|_| meter.request(1_000 * (10 - at)));
            let mut inside = locked(&tasks.inside);
            tasks.look(&mut inside, minute(at), 4 - at as usize);
            inside.keep(minute(at), &Snapshot::default());
        }
        let oldest = tasks.snapshot_at(minute(0)).unwrap_err();
        assert!(oldest.is_some_and(|oldest| oldest > minute(0)));
        let first = tasks.snapshot_at(minute(2) + Duration::from_secs(1)).unwrap();
        assert_eq!(row(&first, TaskKind::Dispatcher, 0).requests, 1, "the minute without work kept nothing");
        let both = tasks.snapshot_at(minute(4)).unwrap();
        assert_eq!(row(&both, TaskKind::Dispatcher, 0).requests, 3);
        assert_eq!(both.busy_adapters.after(0).map(|peak| peak.value), Some(3));
        assert_eq!(both.busy_adapters.to_string().split(',').count(), 3, "{}", both.busy_adapters);
    }
}
