//! Processor time by role: what the process spends it on, so that the roles of a thread add up to that thread's own
//! clock.
//!
//! Every thread says once what its main role is ([`begin`]). Where it does something for another role it says so for as
//! long as that lasts: by the cycle counter ([`enter`]), or, where it may wait meanwhile or the time is known anyway,
//! by the thread's clock ([`exactly`], [`apart`]). Whatever is left of the thread's clock is its main role's: system
//! calls, waking up, going to sleep. While a thread sleeps its clock stands still, so no role is charged for that, nor
//! for what other programs took of a core.
//!
//! A thread counts with plain stores into a meter of its own. [`costs`] looks at all meters, makes times of them, and
//! compares their sum with the process's clock.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use crate::clock::{ThreadClock, TickScale, process_cpu_ns, thread_cpu_ns, ticks};

/// What processor time is spent on.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// Dispatchers, for clients and queues; the checks of passwords and tokens.
    QueueManager,
    /// Dispatchers, for channels and their partners; the look-up of a partner's name.
    ChannelInitiator,
    /// OpenSSL's work on connections: handshakes and records. Not the system calls under it.
    Tls,
    /// Sealing, opening and checking: adapters, and dispatchers where they do it themselves.
    Protection,
    /// Operations with private and public keys, on a device's thread or in place.
    Devices,
    /// Writing and syncing the journal, on its thread or in place.
    Journal,
    /// Commands, statistics, metrics, the look after devices, starting and stopping.
    Administration,
    /// Of [`Role::Protection`], what is for puts: sealing, and checking what comes sealed.
    Sealing,
    /// Of [`Role::Protection`], what is for gets: opening.
    Opening,
}

impl Role {
    /// All of them, in the order of reports. [`Role::Sealing`] and [`Role::Opening`] are parts of one of them.
    pub const ALL: [Role; 7] = [
        Role::QueueManager,
        Role::ChannelInitiator,
        Role::Tls,
        Role::Protection,
        Role::Devices,
        Role::Journal,
        Role::Administration,
    ];

    /// As it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::QueueManager => "queue-manager",
            Role::ChannelInitiator => "channel-initiator",
            Role::Tls => "tls",
            Role::Protection => "protection",
            Role::Devices => "devices",
            Role::Journal => "journal",
            Role::Administration => "administration",
            Role::Sealing => "sealing",
            Role::Opening => "opening",
        }
    }
}

/// How many roles are metered.
const ROLES: usize = Role::Opening as usize + 1;
/// A turn of more ticks than that, some 50 µs, is long: two readings of the thread's clock are less than a hundredth of
/// it.
const LONG_TURN_TICKS: u64 = 1 << 17;
/// Of the sampled turns, what one look leaves to the next: some four looks decide what a tick is worth.
const SAMPLES_KEPT: f64 = 0.75;

/// Processor time of a process by role.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Costs {
    /// Of each role in the order of [`Role::ALL`], nanoseconds.
    pub roles_ns: [u64; Role::ALL.len()],
    /// Of protection, what was for puts and what for gets; the rest of it is what adapters do for both: waking up,
    /// handing over. Nanoseconds.
    pub sealing_ns: u64,
    /// Likewise, for gets.
    pub opening_ns: u64,
    /// Of the process, by its own clock, nanoseconds.
    pub process_ns: u64,
}

impl Costs {
    /// What that role spent, nanoseconds.
    pub fn of(&self, role: Role) -> u64 {
        match role {
            Role::Sealing => self.sealing_ns,
            Role::Opening => self.opening_ns,
            role => self.roles_ns[role as usize],
        }
    }

    fn new(metered_ns: [u64; ROLES], process_ns: u64) -> Self {
        let [sealing_ns, opening_ns] = [Role::Sealing, Role::Opening].map(|part| metered_ns[part as usize]);
        let mut roles_ns = Role::ALL.map(|role| metered_ns[role as usize]);
        roles_ns[Role::Protection as usize] += sealing_ns + opening_ns;
        Self { roles_ns, sealing_ns, opening_ns, process_ns }
    }

    /// What no role owns, nanoseconds: threads that have not said what they do, and the end of each thread.
    pub fn unattributed_ns(&self) -> u64 {
        self.process_ns.saturating_sub(self.roles_ns.iter().sum())
    }
}

/// What one thread counts: it writes with plain stores, [`costs`] reads.
#[repr(align(128))] // a pair of cache lines of its own
struct Meter {
    main: Role,
    /// Ticks in each role but the main one.
    ticks: [AtomicU64; ROLES],
    /// Nanoseconds that the thread's clock said of each role.
    exact_ns: [AtomicU64; ROLES],
    /// Of turns at whose ends the thread's clock was read: their ticks, and what the clock said.
    sampled_ticks: AtomicU64,
    sampled_ns: AtomicU64,
    life: Mutex<Life>,
}

#[derive(Clone, Copy)]
enum Life {
    Runs(Option<ThreadClock>),
    /// What the clock said at the end.
    Ended(u64),
}

impl Meter {
    fn new(main: Role, clock: Option<ThreadClock>) -> Self {
        Self {
            main,
            ticks: Default::default(),
            exact_ns: Default::default(),
            sampled_ticks: AtomicU64::new(0),
            sampled_ns: AtomicU64::new(0),
            life: Mutex::new(Life::Runs(clock)),
        }
    }

    fn counters(&self) -> Counters {
        Counters {
            ticks: std::array::from_fn(|role| self.ticks[role].load(Relaxed)),
            exact_ns: std::array::from_fn(|role| self.exact_ns[role].load(Relaxed)),
            sampled_ticks: self.sampled_ticks.load(Relaxed),
            sampled_ns: self.sampled_ns.load(Relaxed),
        }
    }
}

/// A meter at one moment.
#[derive(Clone, Copy, Default)]
struct Counters {
    ticks: [u64; ROLES],
    exact_ns: [u64; ROLES],
    sampled_ticks: u64,
    sampled_ns: u64,
}

/// The thread's own side of its meter.
struct Own {
    meter: Arc<Meter>,
    /// What it does now, and since which tick.
    role: Cell<Role>,
    since: Cell<u64>,
    /// Its own clock is what counts at the moment.
    is_apart: Cell<bool>,
    /// Ticks and nanoseconds that its own clock decided, all in all, and how much of them before the sampled turn.
    apart_ticks: Cell<u64>,
    apart_ns: Cell<u64>,
    sample_ticks: Cell<u64>,
    sample_ns: Cell<u64>,
    /// In a sampled turn: the ticks of its roles, which its own end makes times of.
    is_sampled: Cell<bool>,
    turn_ticks: [Cell<u64>; ROLES],
    /// The last turn was a long one.
    was_long: Cell<bool>,
}

impl Own {
    fn new(meter: Arc<Meter>) -> Self {
        let role = Cell::new(meter.main);
        let zero = || Cell::new(0);
        Self {
            meter,
            role,
            since: zero(),
            is_apart: Cell::new(false),
            apart_ticks: zero(),
            apart_ns: zero(),
            sample_ticks: zero(),
            sample_ns: zero(),
            is_sampled: Cell::new(false),
            turn_ticks: std::array::from_fn(|_| zero()),
            was_long: Cell::new(false),
        }
    }

    /// Goes on as `role`.
    fn switch(&self, role: Role, now: u64) {
        self.charge(now);
        self.role.set(role);
    }

    /// Charges the ticks until now to the role; the main one has what is left.
    fn charge(&self, now: u64) {
        let role = self.role.get();
        if role != self.meter.main {
            let ticks = now.saturating_sub(self.since.get());
            if self.is_sampled.get() {
                let of_turn = &self.turn_ticks[role as usize];
                of_turn.set(of_turn.get().wrapping_add(ticks));
            } else {
                add(&self.meter.ticks[role as usize], ticks);
            }
        }
        self.since.set(now);
    }

    fn begin_apart(&self, now: u64) {
        if !self.is_apart.replace(true) {
            self.charge(now);
        }
    }

    /// What was apart took `ns`; `was_apart` says whether something else goes on to be.
    fn end_apart(&self, role: Role, ns: u64, was_apart: bool, now: u64) {
        add(&self.meter.exact_ns[role as usize], ns);
        self.apart_ns.set(self.apart_ns.get().wrapping_add(ns));
        self.is_apart.set(was_apart);
        if !was_apart {
            self.apart_ticks.set(self.apart_ticks.get().wrapping_add(now.saturating_sub(self.since.get())));
            self.since.set(now);
        }
    }

    fn begin_sample(&self) {
        self.sample_ticks.set(self.apart_ticks.get());
        self.sample_ns.set(self.apart_ns.get());
        self.drop_sample();
        self.is_sampled.set(true);
    }

    /// A sampled turn that had nothing to do and was not ended is as any other turn, and those after it are no part of
    /// it.
    fn drop_sample(&self) {
        if self.is_sampled.replace(false) {
            for (role, ticks) in self.turn_ticks.iter().enumerate() {
                add(&self.meter.ticks[role], ticks.take());
            }
        }
    }

    /// `ns` is what the thread's clock said, `clock_cost_ns` of it for asking.
    fn end_sample(&self, took: u64, ns: u64, clock_cost_ns: u64) {
        let apart_ticks = self.apart_ticks.get().wrapping_sub(self.sample_ticks.get());
        let apart_ns = self.apart_ns.get().wrapping_sub(self.sample_ns.get());
        let took = took.saturating_sub(apart_ticks);
        let ns = ns.saturating_sub(apart_ns).saturating_sub(clock_cost_ns);
        add(&self.meter.sampled_ticks, took);
        add(&self.meter.sampled_ns, ns);
        self.is_sampled.set(false);
        for (role, ticks) in self.turn_ticks.iter().enumerate() {
            let ticks = ticks.take();
            if ticks > 0 {
                // The turn's own share of the processor is known.
                let of_role = ns as f64 * (ticks as f64 / took.max(1) as f64).min(1.0);
                add(&self.meter.exact_ns[role], of_role as u64);
            }
        }
    }
}

impl Drop for Own {
    /// The thread ends: its time stays.
    fn drop(&mut self) {
        *locked(&self.meter.life) = Life::Ended(thread_cpu_ns());
    }
}

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

/// Does something with the calling thread's meter, if it has one.
#[inline]
fn own<T>(call: impl FnOnce(&Own) -> T) -> Option<T> {
    OWN.try_with(|own| own.get().map(call)).ok().flatten()
}

/// Says what the calling thread does unless it says something else. All its time counts, also what it spent until now.
/// Of no effect the second time.
pub fn begin(role: Role) {
    let _ = OWN.try_with(|own| {
        own.get_or_init(|| {
            let meter = Arc::new(Meter::new(role, ThreadClock::of_this_thread()));
            locked(&process().inside).threads.push(Thread { meter: meter.clone(), account: Account::default() });
            Own::new(meter)
        });
    });
}

/// For as long as it lives the calling thread plays another role.
#[derive(Debug)]
#[must_use]
pub struct Span {
    /// None where nothing changed.
    outer: Option<Role>,
    /// Threads have roles of their own.
    _here: std::marker::PhantomData<*const ()>,
}

/// The calling thread plays `role` from now on, until the span ends: two looks at the cycle counter, 20 ns; 2 ns where
/// it does already. Not for what waits for long: that is [`exactly`]'s.
#[inline]
pub fn enter(role: Role) -> Span {
    let outer = own(|own| {
        let outer = own.role.get();
        let changes = outer != role && !own.is_apart.get();
        changes.then(|| {
            own.switch(role, ticks());
            outer
        })
    });
    Span { outer: outer.flatten(), _here: std::marker::PhantomData }
}

/// What the calling thread does now; administration, where it has not said so.
#[inline]
pub fn current() -> Role {
    own(|own| own.role.get()).unwrap_or(Role::Administration)
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer {
            own(|own| own.switch(outer, ticks()));
        }
    }
}

/// Carries out `call` as `role`, by the thread's own clock: 0.5 µs, and exact also where it waits.
pub fn exactly<T>(role: Role, call: impl FnOnce() -> T) -> T {
    let apart = apart();
    let inner_ns = || own(|own| own.apart_ns.get()).unwrap_or(0);
    let (before_ns, inner_before_ns) = (thread_cpu_ns(), inner_ns());
    let result = call();
    let inner_ns = inner_ns().wrapping_sub(inner_before_ns);
    apart.took(role, thread_cpu_ns().saturating_sub(before_ns).saturating_sub(inner_ns));
    result
}

/// Something that the thread's own clock is read for.
#[derive(Debug)]
#[must_use]
pub struct Apart {
    was_apart: bool,
    _here: std::marker::PhantomData<*const ()>,
}

/// Something begins whose processor time the caller knows: [`Apart::took`] says it.
#[inline]
pub fn apart() -> Apart {
    let was_apart = own(|own| {
        let was_apart = own.is_apart.get();
        own.begin_apart(ticks());
        was_apart
    });
    Apart { was_apart: was_apart.unwrap_or(false), _here: std::marker::PhantomData }
}

/// Waits for something that other threads have: not a tick of it counts, so that time on the processor is not taken for
/// less than it is. 20 ns.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let apart = apart();
    let result = wait();
    apart.took(current(), 0);
    result
}

impl Apart {
    /// It is over, and took so many nanoseconds of the thread's own clock.
    #[inline]
    pub fn took(self, role: Role, ns: u64) {
        own(|own| own.end_apart(role, ns, self.was_apart, ticks()));
    }
}

/// A turn begins for which the thread's clock is read: turns tell how much of a tick is time on the processor, and how
/// much the thread was kept from it.
#[inline]
pub fn begin_sample() {
    own(Own::begin_sample);
}

/// A turn begins for which no other code reads the thread's clock: gives what it says where the last turn was long, so
/// that reading it costs little of this one. Under heavy load there are few turns, and each counts.
#[inline]
pub fn begin_turn() -> Option<u64> {
    let was_long = own(|own| {
        let was_long = own.was_long.get();
        if was_long {
            own.begin_sample();
        } else {
            own.drop_sample();
        }
        was_long
    });
    (was_long == Some(true)).then(thread_cpu_ns)
}

/// A turn ends; so many ticks it took, and, where it was sampled, so many nanoseconds by the thread's clock, one
/// reading of it included.
#[inline]
pub fn end_turn(took: u64, ns: Option<u64>) {
    own(|own| {
        own.was_long.set(took > LONG_TURN_TICKS);
        if let Some(ns) = ns {
            own.end_sample(took, ns, process().clock_cost_ns);
        }
    });
}

/// What every role has cost since the process began. Some microseconds: the clock of every thread is read.
pub fn costs() -> Costs {
    process().look()
}

/// Since when roles are told apart; what was before is the main thread's.
pub fn since() -> SystemTime {
    process().since
}

/// All threads of the process.
struct Process {
    since: SystemTime,
    scale: TickScale,
    /// What reading a thread's clock adds to what it says, nanoseconds.
    clock_cost_ns: u64,
    inside: Mutex<Threads>,
}

fn process() -> &'static Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    PROCESS.get_or_init(|| Process {
        since: SystemTime::now(),
        scale: TickScale::begin(),
        clock_cost_ns: crate::clock::thread_clock_cost_ns(),
        inside: Mutex::default(),
    })
}

impl Process {
    fn look(&self) -> Costs {
        let ns_per_tick = self.scale.ns_per_tick();
        let mut threads = locked(&self.inside);
        let roles_ns = threads.look(ns_per_tick, |clock| clock.and_then(ThreadClock::ns));
        // Last: it is never behind what the threads' clocks said.
        Costs::new(roles_ns, process_cpu_ns())
    }
}

#[derive(Default)]
struct Threads {
    threads: Vec<Thread>,
    /// Of threads that have ended.
    ended_ns: [u64; ROLES],
}

struct Thread {
    meter: Arc<Meter>,
    account: Account,
}

impl Threads {
    /// Brings every thread's account up to date; `clock` reads a thread's clock.
    fn look(&mut self, ns_per_tick: f64, clock: impl Fn(Option<ThreadClock>) -> Option<u64>) -> [u64; ROLES] {
        let mut sum_ns = self.ended_ns;
        let ended_ns = &mut self.ended_ns;
        self.threads.retain_mut(|Thread { meter, account }| {
            let life = *locked(&meter.life);
            // Counted first: what was counted is in the clock.
            let counters = meter.counters();
            let cpu_ns = match life {
                Life::Runs(thread) => clock(thread).unwrap_or(account.seen_ns),
                Life::Ended(ns) => ns,
            };
            account.look(meter.main, &counters, cpu_ns, ns_per_tick);
            let has_ended = matches!(life, Life::Ended(_));
            for (role, ns) in account.roles_ns.iter().enumerate() {
                sum_ns[role] += ns;
                ended_ns[role] += if has_ended { *ns } else { 0 };
            }
            !has_ended
        });
        sum_ns
    }
}

/// What one thread's roles have cost. Invariant: their sum is the thread's clock as it was seen last.
#[derive(Default)]
struct Account {
    roles_ns: [u64; ROLES],
    seen: Counters,
    seen_ns: u64,
    /// Exact time that the clock had not said by the last look, or that went to the main role then because it was not
    /// over.
    owed_ns: [u64; ROLES],
    /// Ticks and nanoseconds of sampled turns, older ones counting less.
    sampled_ticks: f64,
    sampled_ns: f64,
}

impl Account {
    /// Shares out what the thread's clock has gone on.
    fn look(&mut self, main: Role, now: &Counters, cpu_ns: u64, ns_per_tick: f64) {
        let mut left_ns = cpu_ns.saturating_sub(self.seen_ns);
        self.seen_ns = self.seen_ns.max(cpu_ns);
        // What the clock itself has said comes first.
        for role in 0..ROLES {
            self.owed_ns[role] += now.exact_ns[role].saturating_sub(self.seen.exact_ns[role]);
            let paid_ns = self.owed_ns[role].min(left_ns);
            self.roles_ns[role] += paid_ns;
            self.owed_ns[role] -= paid_ns;
            left_ns -= paid_ns;
        }
        let ticks: [u64; ROLES] = std::array::from_fn(|role| now.ticks[role].saturating_sub(self.seen.ticks[role]));
        let ns_per_tick = self.worth(now, ns_per_tick);
        let wanted_ns = ticks.iter().sum::<u64>() as f64 * ns_per_tick;
        // Never more than there is.
        let share = if wanted_ns > left_ns as f64 { left_ns as f64 / wanted_ns } else { 1.0 };
        let mut main_ns = left_ns;
        for (role, ticks) in ticks.into_iter().enumerate() {
            let ns = ((ticks as f64 * ns_per_tick * share) as u64).min(main_ns);
            self.roles_ns[role] += ns;
            main_ns -= ns;
        }
        self.roles_ns[main as usize] += main_ns;
        self.seen = *now;
    }

    /// What a tick of this thread is worth: less than a tick's time by as much as the thread was kept from the
    /// processor.
    fn worth(&mut self, now: &Counters, ns_per_tick: f64) -> f64 {
        let sampled_ns = now.sampled_ns.saturating_sub(self.seen.sampled_ns);
        let sampled_ticks = now.sampled_ticks.saturating_sub(self.seen.sampled_ticks);
        self.sampled_ticks = SAMPLES_KEPT * self.sampled_ticks + sampled_ticks as f64;
        self.sampled_ns = SAMPLES_KEPT * self.sampled_ns + sampled_ns as f64;
        if self.sampled_ticks < 1.0 {
            return ns_per_tick;
        }
        (self.sampled_ns / self.sampled_ticks).min(ns_per_tick)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ticks a nanosecond.
    const NS_PER_TICK: f64 = 0.5;

    /// A thread whose clocks are the test's.
    struct Hands {
        own: Own,
        threads: Threads,
        now: u64,
        cpu_ns: u64,
    }

    impl Hands {
        fn new(main: Role) -> Self {
            let meter = Arc::new(Meter::new(main, None));
            let thread = Thread { meter: meter.clone(), account: Account::default() };
            let threads = Threads { threads: vec![thread], ..Threads::default() };
            Self { own: Own::new(meter), threads, now: 1_000, cpu_ns: 70 }
        }

        /// Works for that long as whatever it is.
        fn works(&mut self, ns: u64) {
            self.cpu_ns += ns;
            self.now += 2 * ns;
        }

        /// Time passes and the thread's clock stands still: it sleeps, or others have its core.
        fn waits(&mut self, ns: u64) {
            self.now += 2 * ns;
        }

        fn as_role(&mut self, role: Role, ns: u64) {
            let outer = self.own.role.get();
            self.own.switch(role, self.now);
            self.works(ns);
            self.own.switch(outer, self.now);
        }

        /// What the roles have, which is the clock, whatever happened.
        fn look(&mut self) -> Vec<(Role, u64)> {
            let cpu_ns = self.cpu_ns;
            let roles_ns = self.threads.look(NS_PER_TICK, |_| Some(cpu_ns));
            assert_eq!(roles_ns.iter().sum::<u64>(), cpu_ns);
            let costs = Costs::new(roles_ns, cpu_ns);
            assert_eq!(costs.unattributed_ns(), 0);
            let roles = Role::ALL.into_iter().chain([Role::Sealing, Role::Opening]);
            roles.map(|role| (role, costs.of(role))).filter(|(_, ns)| *ns > 0).collect()
        }
    }

    #[test]
    fn each_role_has_its_own_time_and_the_main_one_has_the_rest() {
        let mut thread = Hands::new(Role::QueueManager);
        thread.works(1_000);
        thread.as_role(Role::Tls, 300);
        thread.works(200);
        thread.as_role(Role::Protection, 500);
        assert_eq!(thread.look(), [(Role::QueueManager, 1_270), (Role::Tls, 300), (Role::Protection, 500)]);
        thread.as_role(Role::Tls, 40);
        thread.works(60);
        assert_eq!(thread.look(), [(Role::QueueManager, 1_330), (Role::Tls, 340), (Role::Protection, 500)]);
    }

    #[test]
    fn a_role_within_a_role_is_not_charged_twice() {
        let mut thread = Hands::new(Role::QueueManager);
        thread.own.switch(Role::ChannelInitiator, thread.now);
        thread.works(100);
        thread.as_role(Role::Tls, 30);
        thread.works(20);
        thread.own.switch(Role::QueueManager, thread.now);
        assert_eq!(thread.look(), [(Role::QueueManager, 70), (Role::ChannelInitiator, 120), (Role::Tls, 30)]);
    }

    #[test]
    fn idle_time_is_charged_to_nobody() {
        let mut thread = Hands::new(Role::QueueManager);
        thread.as_role(Role::Protection, 100);
        let before = thread.look();
        thread.waits(60_000_000_000);
        assert_eq!(thread.look(), before);
    }

    #[test]
    fn what_others_took_of_the_core_in_the_middle_of_a_role_is_not_that_role_s() {
        let mut thread = Hands::new(Role::QueueManager);
        // In each sampled turn the core is taken away for as long as the turn works, in either role.
        for _ in 0..100 {
            let (begin, cpu_ns) = (thread.now, thread.cpu_ns);
            thread.own.begin_sample();
            thread.works(500);
            thread.waits(500);
            thread.own.switch(Role::Protection, thread.now);
            thread.works(300);
            thread.waits(300);
            thread.own.switch(Role::QueueManager, thread.now);
            thread.own.end_sample(thread.now - begin, thread.cpu_ns - cpu_ns, 0);
        }
        assert_eq!(thread.look(), [(Role::QueueManager, 50_070), (Role::Protection, 30_000)]);
    }

    #[test]
    fn a_turn_that_was_not_sampled_is_taken_to_be_as_those_that_were() {
        let mut thread = Hands::new(Role::QueueManager);
        for is_sampled in [true, false, false, true] {
            let (begin, cpu_ns) = (thread.now, thread.cpu_ns);
            if is_sampled {
                thread.own.begin_sample();
            }
            thread.works(600);
            thread.waits(1_800);
            thread.own.switch(Role::Protection, thread.now);
            thread.works(300);
            thread.waits(900);
            thread.own.switch(Role::QueueManager, thread.now);
            if is_sampled {
                thread.own.end_sample(thread.now - begin, thread.cpu_ns - cpu_ns, 0);
            }
        }
        assert_eq!(thread.look(), [(Role::QueueManager, 2_470), (Role::Protection, 1_200)]);
    }

    #[test]
    fn a_sampled_turn_that_did_not_end_is_charged_as_any_other() {
        let mut thread = Hands::new(Role::QueueManager);
        thread.own.begin_sample();
        thread.as_role(Role::Tls, 200);
        let (begin, cpu_ns) = (thread.now, thread.cpu_ns);
        thread.own.begin_sample();
        thread.as_role(Role::Tls, 100);
        thread.own.end_sample(thread.now - begin, thread.cpu_ns - cpu_ns + 30, 30);
        assert_eq!(thread.look(), [(Role::QueueManager, 70), (Role::Tls, 300)]);
    }

    #[test]
    fn turns_after_a_sampled_one_that_did_not_end_are_charged_at_once() {
        let mut thread = Hands::new(Role::QueueManager);
        thread.own.begin_sample();
        thread.as_role(Role::Tls, 200);
        thread.own.drop_sample();
        thread.as_role(Role::Tls, 100);
        assert_eq!(thread.look(), [(Role::QueueManager, 70), (Role::Tls, 300)]);
        assert!(thread.own.turn_ticks.iter().all(|ticks| ticks.get() == 0));
    }

    #[test]
    fn a_wait_in_the_middle_of_a_role_takes_no_more_than_the_thread_has() {
        let mut thread = Hands::new(Role::QueueManager);
        thread.own.switch(Role::Tls, thread.now);
        thread.works(10);
        thread.waits(1_000_000);
        thread.own.switch(Role::QueueManager, thread.now);
        assert_eq!(thread.look(), [(Role::Tls, 80)]);
    }

    #[test]
    fn what_the_thread_s_clock_has_measured_is_exact_and_no_sample_of_anything_else() {
        let mut thread = Hands::new(Role::QueueManager);
        let (begin, cpu_ns) = (thread.now, thread.cpu_ns);
        thread.own.begin_sample();
        thread.works(100);
        thread.own.switch(Role::Tls, thread.now);
        thread.works(40);
        thread.own.begin_apart(thread.now);
        thread.works(25);
        thread.waits(90_000);
        thread.own.end_apart(Role::Journal, 25, false, thread.now);
        thread.works(60);
        thread.own.switch(Role::QueueManager, thread.now);
        thread.own.end_sample(thread.now - begin, thread.cpu_ns - cpu_ns, 0);
        assert_eq!(thread.look(), [(Role::QueueManager, 170), (Role::Tls, 100), (Role::Journal, 25)]);
    }

    #[test]
    fn a_wait_for_a_lock_does_not_make_a_tick_worth_less() {
        let mut thread = Hands::new(Role::QueueManager);
        let (begin, cpu_ns) = (thread.now, thread.cpu_ns);
        thread.own.begin_sample();
        thread.works(100);
        thread.own.begin_apart(thread.now);
        thread.waits(5_000);
        thread.own.end_apart(Role::QueueManager, 0, false, thread.now);
        thread.as_role(Role::Protection, 400);
        thread.own.end_sample(thread.now - begin, thread.cpu_ns - cpu_ns, 0);
        assert_eq!(thread.look(), [(Role::QueueManager, 170), (Role::Protection, 400)]);
    }

    #[test]
    fn a_measurement_that_a_look_cuts_through_is_charged_once_it_is_over() {
        let mut thread = Hands::new(Role::Protection);
        thread.own.begin_apart(thread.now);
        thread.works(900);
        assert_eq!(thread.look(), [(Role::Protection, 970)]);
        thread.works(100);
        thread.own.end_apart(Role::Devices, 1_000, false, thread.now);
        assert_eq!(thread.look(), [(Role::Protection, 970), (Role::Devices, 100)]);
        thread.works(1_500);
        assert_eq!(thread.look(), [(Role::Protection, 1_570), (Role::Devices, 1_000)]);
    }

    #[test]
    fn a_thread_that_ends_keeps_its_time() {
        let mut thread = Hands::new(Role::Devices);
        thread.works(400);
        thread.as_role(Role::Journal, 30);
        thread.look();
        thread.works(100);
        *locked(&thread.own.meter.life) = Life::Ended(thread.cpu_ns);
        let found = [(Role::Devices, 570), (Role::Journal, 30)];
        assert_eq!(thread.look(), found);
        assert!(thread.threads.threads.is_empty());
        assert_eq!(thread.look(), found);
    }

    #[test]
    fn sealing_and_opening_are_parts_of_protection() {
        let mut thread = Hands::new(Role::Protection);
        thread.works(100);
        thread.as_role(Role::Sealing, 300);
        thread.as_role(Role::Opening, 200);
        assert_eq!(thread.look(), [(Role::Protection, 670), (Role::Sealing, 300), (Role::Opening, 200)]);
        let mut dispatcher = Hands::new(Role::QueueManager);
        dispatcher.as_role(Role::Opening, 50);
        assert_eq!(dispatcher.look(), [(Role::QueueManager, 70), (Role::Protection, 50), (Role::Opening, 50)]);
    }

    #[test]
    fn what_no_thread_owns_is_unattributed() {
        let mut costs = Costs { process_ns: 1_000, ..Costs::default() };
        costs.roles_ns[Role::Tls as usize] = 300;
        costs.roles_ns[Role::Journal as usize] = 500;
        assert_eq!((costs.of(Role::Tls), costs.unattributed_ns()), (300, 200));
        costs.process_ns = 799;
        assert_eq!(costs.unattributed_ns(), 0);
    }

    fn burn(ns: u64) {
        let end = thread_cpu_ns() + ns;
        while thread_cpu_ns() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_thread_of_this_process_is_counted_while_it_runs_and_after_it_has_ended() {
        const NS: u64 = 20_000_000;
        let before = costs();
        let thread = std::thread::spawn(|| {
            burn(NS);
            begin(Role::ChannelInitiator);
            {
                let _span = enter(Role::Tls);
                burn(NS);
                exactly(Role::Journal, || burn(NS));
            }
            exactly(Role::Devices, || {
                let _nothing = enter(Role::Tls);
                burn(NS);
                exactly(Role::Protection, || burn(NS));
            });
            let now = costs();
            for role in [Role::Tls, Role::Journal, Role::Protection] {
                assert!(now.of(role) > 0, "{role:?}");
            }
        });
        thread.join().unwrap();
        let after = costs();
        let spent = |role: Role| after.of(role) - before.of(role);
        // Other tests' threads play other roles, so these are this one's alone.
        for role in [Role::Journal, Role::Protection] {
            assert!((NS..2 * NS).contains(&spent(role)), "{role:?}: {}", spent(role));
        }
        // Ticks go on while others have the core: how the two share what they have together is not to be tested here.
        let together = spent(Role::ChannelInitiator) + spent(Role::Tls);
        assert!((2 * NS..3 * NS).contains(&together), "{together}");
        assert!(spent(Role::Devices) >= NS);
        assert!(after.roles_ns.iter().sum::<u64>() <= after.process_ns);
    }
}
