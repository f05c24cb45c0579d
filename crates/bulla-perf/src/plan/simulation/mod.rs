//! A discrete-event simulation of messages on their way through threads that share cores, and devices.
//!
//! Threads take up work in turns: what has come until then, once the turn's cost, and everything that comes of it at
//! its end. Adapters place jobs as the program's scheduler does: inline, into a device's short line, or into the
//! backlog, wherever they are expected to be done first; a device takes what is of one shape, as many jobs as it has
//! lanes. Time is in microseconds.

pub(super) mod cores;
mod devices;
mod flow;
mod signatures;

use super::operations::Class;
use super::profile;
use super::random::Random;
use cores::{Cores, Turn};
use devices::{Device, Job};
use signatures::{Root, Unsigned};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Batches of which the confidence interval is made.
pub const BATCHES: usize = 20;
/// Student's t for [`BATCHES`] - 1 degrees of freedom, 95 % both sides.
const STUDENT_T: f64 = 2.093;
/// Most events of a run; one that needs more is ended, and says so.
const EVENTS_MAX: u64 = 40_000_000;
/// Items that a thread takes up in one turn, at most.
const TURN_ITEMS_MAX: usize = 128;
/// Tasks an adapter takes up in one turn, and that may be under way for a connection, as in the program.
const ADAPTER_TASKS_MAX: usize = 16;
const TASKS_OF_ASKER_MAX: u32 = 128;
/// The same where messages may share a signature: those that wait for nothing else are taken up beside the others, and
/// two batches at least may be under way.
const SHARING_PER_TURN: usize = 256;
const SHARING_OF_ASKER_MAX: u32 = 512;
/// An adapter that computes itself tells after so much of it what is done, and shares what is left and takes longer
/// than the second with one that has nothing to do, as in the program; microseconds.
const SLICE_US: f64 = 1000.0;
const SHARED_MIN_US: f64 = 150.0;
/// Live content keys that a link keeps, as in the program.
const POOLED_KEYS_MAX: usize = 64;
/// Messages of a getter that may be on their way through the adapters, as in the program.
const OPENING_MAX: u64 = 64;
/// Part of the window that must be free before a putter fills it up again.
const REFILL_PART: u64 = 8;
/// Windows that a putter may be ahead of its getter.
const AHEAD_WINDOWS: u64 = 4;
/// How long a putter with a rate to hold sleeps between its bursts, microseconds.
const NAP_US: f64 = 1000.0;

/// So often a link's content keys are made, and so many transactions are watched for that at most.
const KEY_CYCLES: u64 = 20;
const MEASURED_MAX: u64 = 200_000;

/// A moment or a span, microseconds, with an order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// How transactions begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As the window allows.
    Closed,
    /// So many a second and pair, in a burst each millisecond, within the window.
    Bursts(f64),
    /// So many a second and pair, at random (Poisson), within the window.
    Poisson(f64),
}

/// What a transaction is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A message from one thread to another.
    Stream,
    /// A request and its reply.
    RequestReply,
}

/// A system and what it is to do.
#[derive(Clone, Debug)]
pub struct System {
    /// The cores.
    pub cores: profile::Cores,
    /// Dispatchers of each queue manager.
    pub dispatchers: u32,
    /// Adapters of the one that seals.
    pub adapters: u32,
    /// What a message needs.
    pub class: Class,
    /// Devices beside the processor, each by itself.
    pub devices: Vec<(String, profile::Device)>,
    /// The journal.
    pub journal: profile::Journal,
    /// Microseconds from one end of a connection to the other.
    pub network_us: f64,
    /// Whether there are two queue managers with a channel between them.
    pub channel: bool,
    /// What a transaction is.
    pub shape: Shape,
    /// Pairs of threads.
    pub pairs: u32,
    /// Transactions of a pair that may be under way.
    pub window: u32,
    /// How they begin.
    pub pace: Pace,
}

/// How to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What the random numbers come from.
    pub seed: u64,
    /// Transactions that are passed over first.
    pub warm_up: u64,
    /// Transactions that count.
    pub measured: u64,
    /// Whether threads take up what waits together. Without, each message is a turn of its own.
    pub turns: bool,
    /// Whether every piece of work is exponentially distributed about its mean. Without, it takes its mean.
    pub exponential: bool,
}

impl Settings {
    /// Enough for a percent, in some tenths of a second.
    #[must_use]
    pub fn for_window(seed: u64, in_flight: u64) -> Self {
        let warm_up = ((AHEAD_WINDOWS + 2) * in_flight).max(2000);
        Self { seed, warm_up, measured: (12 * in_flight).max(20_000), turns: true, exponential: false }
    }

    /// The same, and long enough that content keys that serve so many messages are made many times: where many messages
    /// are sealed at once, keys are made at once, and end together.
    #[must_use]
    pub fn for_key_uses(self, uses: u64) -> Self {
        let cycles = uses.saturating_mul(POOLED_KEYS_MAX as u64).saturating_mul(KEY_CYCLES);
        // Keys that outlive the simulation whatever is done need no longer one.
        let measured = if cycles > KEY_CYCLES * MEASURED_MAX { 0 } else { cycles.min(MEASURED_MAX) };
        Self { measured: self.measured.max(measured), ..self }
    }
}

/// What a station did.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    /// Its name.
    pub name: String,
    /// How many threads or engines.
    pub servers: f64,
    /// Part of the time that one was busy, 0 to 1.
    pub utilisation: f64,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceUse {
    /// Its name.
    pub name: String,
    /// Part of the time that its engines were busy, 0 to 1.
    pub utilisation: f64,
    /// Jobs of a transaction.
    pub jobs: f64,
    /// Jobs of a call.
    pub lanes_filled: f64,
    /// Microseconds from a job's arrival to its answer, on average.
    pub response_us: f64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Transactions a second.
    pub rate: f64,
    /// Half of its 95 % confidence interval, by batch means.
    pub rate_within: f64,
    /// Microseconds that a transaction took, on average.
    pub response: f64,
    /// Half of its 95 % confidence interval.
    pub response_within: f64,
    /// Microseconds of each transaction, in ascending order.
    pub responses: Vec<f64>,
    /// Cores that were busy.
    pub cores_busy: f64,
    /// Microseconds of processor time a transaction, by role.
    pub cpu_us: BTreeMap<&'static str, f64>,
    /// Threads and the journal's disk.
    pub stations: Vec<Use>,
    /// Devices beside the processor.
    pub devices: Vec<DeviceUse>,
    /// Operations a transaction that adapters computed themselves.
    pub inline_jobs: f64,
    /// Messages that a signature proved, on average; 0 where nothing was signed.
    pub together: f64,
    /// Verifications a message that was opened; 0 where nothing was signed.
    pub verifications: f64,
    /// Whether it came to its end: all transactions that were asked for.
    pub complete: bool,
}

/// Roles of a thread's work, in the words of results.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Application,
    QueueManager,
    ChannelInitiator,
    Tls,
    Protection,
    Devices,
    Journal,
}

const ROLES: [(Role, &str); 7] = [
    (Role::Application, "application"),
    (Role::QueueManager, "queue-manager"),
    (Role::ChannelInitiator, "channel-initiator"),
    (Role::Tls, "tls"),
    (Role::Protection, "protection"),
    (Role::Devices, "devices"),
    (Role::Journal, "journal"),
];

/// Work by role.
#[derive(Clone, Copy, Debug, Default)]
struct Bill([f64; ROLES.len()]);

impl Bill {
    fn add(&mut self, role: Role, us: f64) {
        self.0[role as usize] += us;
    }

    fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// What a thread is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// The end of a pair that puts, or asks.
    First(usize),
    /// The end that gets, or answers.
    Second(usize),
    Dispatcher,
    Adapter,
    Engine(usize, usize),
    Journal,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Idle,
    Waking,
    Running,
    /// It waits for a disk.
    Blocked,
}

/// What a thread finds in its line.
#[derive(Clone, Copy, Debug)]
enum Item {
    /// Look at the window.
    Go,
    /// A put was confirmed.
    Confirmed,
    /// It is time for so many more.
    Due(u64),
    /// A message came over the network, or over a channel.
    Arrive(usize),
    Forward(usize),
    /// An adapter is done.
    Sealed(usize),
    Opened(usize),
    /// The journal is done.
    Synced(usize),
    /// Another dispatcher has a message for a connection here.
    Deliver(usize),
    /// A getter took one: there is credit.
    Serve(usize),
    /// A message for the application.
    Get(usize),
    /// A message for the journal.
    Write(usize),
}

/// What a turn brings about at its end.
#[derive(Clone, Copy, Debug)]
enum Emission {
    To(usize, Item),
    /// The same over the network.
    Over(usize, Item),
    /// The same with the first message of a transaction, which begins now.
    Begin(usize, usize),
    Task(Task),
    /// A transaction is over.
    Done(f64),
    /// A message was got on that link.
    Got(usize),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Seal,
    Open,
}

/// A message with the adapters.
#[derive(Clone, Copy, Debug)]
struct Task {
    message: usize,
    side: Side,
    /// Its next operation.
    step: usize,
    /// Its only operation makes or finds a content key that others use too.
    shared_key: bool,
    /// A dispatcher has looked for its content key, in vain, and has done a part of its opening.
    looked: bool,
}

/// Where an adapter's turn stands.
#[derive(Debug, Default)]
struct Stage {
    jobs: Vec<Job>,
    /// What it is to compute itself, and what of that it computes now.
    inline: VecDeque<Job>,
    slice: Vec<Job>,
    done: Vec<Task>,
    /// Links of which a signature was made, one entry a signature, and how long the next one may wait, microseconds.
    made: Vec<(usize, f64)>,
    /// Links whose messages may have to be signed now.
    due: Vec<usize>,
    /// Signatures that messages may share, which this turn has asked for.
    signatures: usize,
    /// What the trees of batches that it has made take, microseconds.
    trees: f64,
}

#[derive(Debug)]
struct Thread {
    kind: Kind,
    state: State,
    items: VecDeque<Item>,
    emissions: Vec<Emission>,
    stage: Stage,
    /// Work that waking others has cost it and that it has not done yet.
    debt: f64,
    idle_since: f64,
    used: f64,
    /// Since when it runs, and how long it ran: while others share its core, longer than what it used.
    runs_since: f64,
    ran: f64,
    role: Role,
    /// A message that it writes and syncs itself at the end of this turn.
    sync: Option<usize>,
    /// Since when it has nothing to do but to sign what is held, and lets others have its core first.
    yields_since: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Wake(usize),
    Deliver(usize, Item),
    Tick(usize),
    Card(usize, usize),
    Synced(usize),
}

/// A message.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    link: usize,
    /// When its transaction began.
    began: f64,
    /// Its turn on the link, on either side.
    turn: u64,
    /// Its content key.
    key: usize,
    /// The batch of those that share its signature, counted from 1; 0 for a signature of its own.
    batch: usize,
}

/// How often signatures were made and verified.
#[derive(Clone, Copy, Debug, Default)]
struct Signatures {
    made: u64,
    /// Messages that they prove.
    proved: u64,
    verified: u64,
    /// Messages that were opened.
    opened: u64,
}

/// A content key, for those who open with it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct KeyState {
    /// It was unwrapped, once at least.
    known: bool,
    /// It is being unwrapped: who needs it now shares the answer.
    asked: bool,
}

/// The way of messages from one thread to another.
#[derive(Debug)]
struct Link {
    pair: usize,
    /// The dispatcher where they arrive from the application, where they are sealed, and where they are delivered.
    arrives: usize,
    seals: usize,
    delivers: usize,
    getter: usize,
    seal_next: u64,
    seal_turn: u64,
    seal_ready: BTreeMap<u64, usize>,
    open_next: u64,
    open_turn: u64,
    open_ready: BTreeMap<u64, usize>,
    /// Content keys that may be used again, and how often.
    live: VecDeque<(usize, u64)>,
    keys: Vec<KeyState>,
    /// Tasks that wait for a key that another task has asked for.
    waiting_for_key: BTreeMap<usize, Vec<Task>>,
    unsigned: Unsigned,
    /// The signature of each batch, for this getter.
    roots: Vec<Root>,
    credit: u64,
    waiting: VecDeque<usize>,
    /// The last turns in which a dispatcher read from its putter's connection, and wrote to its getter's.
    read_in: u64,
    written_in: u64,
}

/// Where transactions begin.
#[derive(Debug, Default)]
struct Source {
    thread: usize,
    sent: u64,
    confirmed: u64,
    got: u64,
    due: u64,
    /// It sleeps because it is too far ahead of its getter.
    naps: bool,
    /// What Poisson's arrivals have in part.
    carried: f64,
}

/// What waits for adapters.
#[derive(Debug, Default)]
struct Pool {
    answers: VecDeque<Job>,
    /// What an adapter left to others.
    shared: VecDeque<Job>,
    tasks: Vec<VecDeque<Task>>,
    under_way: Vec<u32>,
    next_asker: usize,
    /// Links whose messages are signed once an adapter has nothing else to do, or at these times.
    held: VecDeque<(usize, f64)>,
}

pub(super) struct Simulation<'a> {
    system: &'a System,
    settings: Settings,
    random: Random,
    now: f64,
    order: u64,
    timers: BinaryHeap<Reverse<(Time, u64, usize)>>,
    /// By the number in `timers`; a free place is reused.
    events: Vec<Event>,
    free_events: Vec<usize>,
    cores: Cores,
    threads: Vec<Thread>,
    adapters: Vec<usize>,
    first_dispatcher: usize,
    journal: Option<usize>,
    messages: Vec<Message>,
    free_messages: Vec<usize>,
    links: Vec<Link>,
    sources: Vec<Source>,
    pool: Pool,
    devices: Vec<Device>,
    backlog: VecDeque<Job>,
    /// What the jobs on their way to the cores would take inline, microseconds.
    load: f64,
    waker: Option<usize>,
    /// Messages that were sealed without an adapter in this turn.
    sealed_here: VecDeque<usize>,
    /// Turns of threads of the application and of dispatchers so far.
    turn: u64,
    bill: Bill,
    inline_jobs: u64,
    signatures: Signatures,
    disk_busy: f64,
    completed: u64,
    responses: Vec<f64>,
    /// When each batch ended.
    batch_ends: Vec<f64>,
    began: f64,
}

/// Runs it.
#[must_use]
pub fn run(system: &System, settings: Settings) -> Outcome {
    let mut simulation = Simulation::new(system, settings);
    let complete = simulation.run();
    simulation.outcome(complete)
}

impl<'a> Simulation<'a> {
    fn new(system: &'a System, settings: Settings) -> Self {
        let capacity = f64::from(system.cores.count) - system.cores.background;
        let mut simulation = Self {
            system,
            settings,
            random: Random::new(settings.seed),
            now: 0.0,
            order: 0,
            timers: BinaryHeap::new(),
            events: Vec::new(),
            free_events: Vec::new(),
            cores: Cores::new(capacity, system.cores.crowding, system.cores.slice_us),
            threads: Vec::new(),
            adapters: Vec::new(),
            first_dispatcher: 0,
            journal: None,
            messages: Vec::new(),
            free_messages: Vec::new(),
            links: Vec::new(),
            sources: Vec::new(),
            pool: Pool::default(),
            devices: Vec::new(),
            backlog: VecDeque::new(),
            load: 0.0,
            waker: None,
            sealed_here: VecDeque::new(),
            turn: 0,
            bill: Bill::default(),
            inline_jobs: 0,
            signatures: Signatures::default(),
            disk_busy: 0.0,
            completed: 0,
            responses: Vec::new(),
            batch_ends: Vec::new(),
            began: 0.0,
        };
        simulation.set_up();
        simulation
    }

    fn add_thread(&mut self, kind: Kind, role: Role) -> usize {
        self.threads.push(Thread {
            kind,
            state: State::Idle,
            items: VecDeque::new(),
            emissions: Vec::new(),
            stage: Stage::default(),
            debt: 0.0,
            idle_since: 0.0,
            used: 0.0,
            runs_since: 0.0,
            ran: 0.0,
            role,
            sync: None,
            yields_since: None,
        });
        self.threads.len() - 1
    }

    fn set_up(&mut self) {
        let system = self.system;
        let each = system.dispatchers.max(1) as usize;
        self.first_dispatcher = 0;
        for _ in 0..each * if system.channel { 2 } else { 1 } {
            self.add_thread(Kind::Dispatcher, Role::QueueManager);
        }
        for _ in 0..system.adapters.max(1) {
            let adapter = self.add_thread(Kind::Adapter, Role::Protection);
            self.adapters.push(adapter);
        }
        for (number, (_, device)) in system.devices.iter().enumerate() {
            let engines = (0..device.engines as usize)
                .map(|engine| match device.place {
                    profile::Place::Cores => Some(self.add_thread(Kind::Engine(number, engine), Role::Devices)),
                    profile::Place::Card => None,
                })
                .collect();
            self.devices.push(Device::new(device.clone(), &system.class, engines));
        }
        if system.class.persistent {
            self.journal = Some(self.add_thread(Kind::Journal, Role::Journal));
        }
        for pair in 0..system.pairs.max(1) as usize {
            let first = self.add_thread(Kind::First(pair), Role::Application);
            let second = self.add_thread(Kind::Second(pair), Role::Application);
            let (near, far) = (2 * pair % each, (2 * pair + 1) % each + if system.channel { each } else { 0 });
            let there_seals = if system.channel { far } else { near };
            let back_seals = if system.channel { near } else { far };
            self.add_link(pair, near, there_seals, far, second);
            if system.shape == Shape::RequestReply {
                self.add_link(pair, far, back_seals, near, first);
            }
            self.sources.push(Source { thread: first, ..Source::default() });
            match (system.pace, system.shape) {
                (Pace::Closed, Shape::Stream) => self.give(first, Item::Go),
                (Pace::Closed, Shape::RequestReply) => {
                    (0..system.window.max(1)).for_each(|_| self.give(first, Item::Go));
                }
                _ => self.at(self.now, Event::Tick(pair)),
            }
        }
    }

    fn add_link(&mut self, pair: usize, arrives: usize, seals: usize, delivers: usize, getter: usize) {
        self.links.push(Link {
            pair,
            arrives,
            seals,
            delivers,
            getter,
            seal_next: 0,
            seal_turn: 0,
            seal_ready: BTreeMap::new(),
            open_next: 0,
            open_turn: 0,
            open_ready: BTreeMap::new(),
            live: VecDeque::new(),
            keys: Vec::new(),
            waiting_for_key: BTreeMap::new(),
            unsigned: Unsigned::default(),
            roots: Vec::new(),
            credit: u64::from(self.system.window.max(64)),
            waiting: VecDeque::new(),
            read_in: 0,
            written_in: 0,
        });
        self.pool.tasks.extend([VecDeque::new(), VecDeque::new()]);
        self.pool.under_way.extend([0, 0]);
    }

    /// The first of the links on which that pair's transactions begin.
    fn link_of(&self, pair: usize) -> usize {
        if self.system.shape == Shape::RequestReply { 2 * pair } else { pair }
    }

    fn at(&mut self, time: f64, event: Event) {
        let place = match self.free_events.pop() {
            Some(place) => {
                self.events[place] = event;
                place
            }
            None => {
                self.events.push(event);
                self.events.len() - 1
            }
        };
        self.order += 1;
        self.timers.push(Reverse((Time(time), self.order, place)));
    }

    /// True when all transactions came about.
    fn run(&mut self) -> bool {
        let wanted = self.settings.warm_up + self.settings.measured;
        for _ in 0..EVENTS_MAX {
            if self.completed >= wanted {
                return true;
            }
            let timer = self.timers.peek().map(|Reverse((time, ..))| time.0);
            let thread = self.cores.next();
            match (timer, thread) {
                (None, None) => return false,
                (Some(time), thread) if thread.is_none_or(|thread| time <= thread) => {
                    self.now = time.max(self.now);
                    if let Some(Reverse((.., place))) = self.timers.pop() {
                        let event = self.events[place];
                        self.free_events.push(place);
                        self.happen(event);
                    }
                }
                (_, Some(time)) => {
                    self.now = time.max(self.now);
                    match self.cores.happens(self.now) {
                        Some(Turn::Begins(thread)) => self.begin(thread),
                        Some(Turn::Ends(thread)) => self.chunk_ends(thread),
                        None => {}
                    }
                }
                (Some(_), None) => unreachable!("the arm before takes it"),
            }
        }
        false
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(thread) => {
                self.cores.keep_promise();
                self.cores.ready(self.now, thread);
            }
            Event::Deliver(thread, item) => self.give(thread, item),
            Event::Tick(pair) => self.tick(pair),
            Event::Card(device, engine) => self.engine_done(device, engine),
            Event::Synced(thread) => self.synced(thread),
        }
    }

    /// It is time for more transactions of a pair.
    fn tick(&mut self, pair: usize) {
        let first = self.first_of(pair);
        let (count, after) = match self.system.pace {
            Pace::Closed => return,
            Pace::Poisson(rate) => (1, self.random.exponential() * 1e6 / rate),
            Pace::Bursts(rate) => {
                // Slow ones come one at a time.
                let after = NAP_US.max(1e6 / rate);
                let source = &mut self.sources[pair];
                source.carried += rate * after / 1e6;
                let whole = source.carried.floor();
                source.carried -= whole;
                (whole as u64, after)
            }
        };
        self.give(first, Item::Due(count));
        self.at(self.now + after, Event::Tick(pair));
    }

    fn first_of(&self, pair: usize) -> usize {
        self.sources[pair].thread
    }

    /// Puts something into a thread's line, and wakes it where it sleeps.
    fn give(&mut self, thread: usize, item: Item) {
        self.threads[thread].items.push_back(item);
        self.wake(thread);
    }

    fn wake(&mut self, thread: usize) {
        if self.threads[thread].state != State::Idle {
            return;
        }
        let cores = self.system.cores;
        let slept = self.now - self.threads[thread].idle_since;
        let deep = cores.deep_after_us > 0.0 && slept >= cores.deep_after_us;
        let (latency, sleeper_us) =
            if deep { (cores.deep_wake_up_us, cores.deep_sleep_us) } else { (cores.wake_up_us, cores.sleep_us) };
        self.threads[thread].debt += sleeper_us;
        self.threads[thread].state = State::Waking;
        if !self.cores.has_idle() {
            // A core that runs something takes the woken thread up without being interrupted.
            self.cores.ready(self.now, thread);
            return;
        }
        if let Some(waker) = self.waker {
            self.threads[waker].debt += cores.wake_us;
        }
        self.cores.promise();
        self.at(self.now + latency, Event::Wake(thread));
    }

    /// A thread that has a core takes up a turn, or goes to sleep; after its slice others come first.
    fn begin(&mut self, thread: usize) {
        if self.cores.is_over_its_slice(thread) {
            self.threads[thread].state = State::Waking;
            return self.cores.ready(self.now, thread);
        }
        let mut bill = Bill::default();
        let works = match self.threads[thread].kind {
            Kind::Adapter => self.adapter_turn(thread, &mut bill),
            Kind::Engine(device, engine) => self.engine_turn(device, engine, &mut bill),
            Kind::Journal => self.journal_turn(thread, &mut bill),
            _ => self.flow_turn(thread, &mut bill),
        };
        let debt = std::mem::take(&mut self.threads[thread].debt);
        bill.add(self.threads[thread].role, debt);
        if !works && debt == 0.0 {
            if self.threads[thread].yields_since.is_some() {
                self.threads[thread].state = State::Waking;
                return self.cores.ready(self.now, thread);
            }
            let sleeper = &mut self.threads[thread];
            (sleeper.state, sleeper.idle_since) = (State::Idle, self.now);
            return;
        }
        self.work(thread, bill);
    }

    fn work(&mut self, thread: usize, mut bill: Bill) {
        if self.settings.exponential {
            let factor = self.random.exponential();
            bill.0.iter_mut().for_each(|us| *us *= factor);
        }
        for (sum, us) in self.bill.0.iter_mut().zip(bill.0) {
            *sum += us;
        }
        let total = bill.total();
        let running = &mut self.threads[thread];
        running.used += total;
        (running.state, running.runs_since) = (State::Running, self.now);
        self.cores.start(self.now, thread, total);
    }

    fn chunk_ends(&mut self, thread: usize) {
        self.waker = Some(thread);
        self.threads[thread].ran += self.now - self.threads[thread].runs_since;
        let goes_on = match self.threads[thread].kind {
            Kind::Adapter => self.stage_ends(thread),
            Kind::Journal => self.writes(thread),
            Kind::Engine(device, engine) => {
                self.engine_done(device, engine);
                false
            }
            _ => false,
        };
        if goes_on {
            self.waker = None;
            return;
        }
        if let Some(message) = self.threads[thread].sync {
            // It waits for the disk itself; what it has to say it says afterwards.
            self.threads[thread].sync = None;
            self.threads[thread].items.push_front(Item::Synced(message));
            self.threads[thread].state = State::Blocked;
            let time = self.sync_us(1);
            self.disk_busy += time;
            self.at(self.now + time, Event::Synced(thread));
        } else {
            self.say(thread);
            self.begin(thread);
        }
        self.waker = None;
    }

    /// What came of a turn.
    fn say(&mut self, thread: usize) {
        let mut emissions = std::mem::take(&mut self.threads[thread].emissions);
        for mut emission in emissions.drain(..) {
            if let Emission::Begin(to, message) = emission {
                self.messages[message].began = self.now;
                emission = Emission::Over(to, Item::Arrive(message));
            }
            match emission {
                Emission::Begin(..) => {}
                Emission::To(to, item) => self.give(to, item),
                Emission::Over(to, item) if self.system.network_us > 0.0 => {
                    self.at(self.now + self.system.network_us, Event::Deliver(to, item));
                }
                Emission::Over(to, item) => self.give(to, item),
                Emission::Task(task) => self.submit(task),
                Emission::Done(began) => self.completed(began),
                Emission::Got(link) => self.got(link),
            }
        }
        // The allocation is used again.
        self.threads[thread].emissions = emissions;
    }

    fn completed(&mut self, began: f64) {
        self.completed += 1;
        if self.completed == self.settings.warm_up {
            self.start_counting();
        }
        if self.completed > self.settings.warm_up {
            self.responses.push(self.now - began);
            let batch = (self.settings.measured / BATCHES as u64).max(1);
            if (self.responses.len() as u64).is_multiple_of(batch) {
                self.batch_ends.push(self.now);
            }
        }
    }

    fn start_counting(&mut self) {
        self.cores.advance(self.now);
        self.cores.busy = 0.0;
        self.bill = Bill::default();
        let now = self.now;
        self.threads.iter_mut().for_each(|thread| (thread.used, thread.ran, thread.runs_since) = (0.0, 0.0, now));
        self.devices.iter_mut().for_each(|device| device.reset(self.now));
        (self.inline_jobs, self.disk_busy, self.began) = (0, 0.0, self.now);
        self.signatures = Signatures::default();
    }

    fn outcome(mut self, complete: bool) -> Outcome {
        self.cores.advance(self.now);
        let time = (self.now - self.began).max(f64::MIN_POSITIVE);
        let count = (self.responses.len() as f64).max(1.0);
        let batch = (self.settings.measured / BATCHES as u64).max(1) as usize;
        let mut before = self.began;
        let times: Vec<f64> = self.batch_ends.iter().map(|end| end - std::mem::replace(&mut before, *end)).collect();
        let means: Vec<f64> =
            self.responses.chunks_exact(batch).map(|chunk| chunk.iter().sum::<f64>() / batch as f64).collect();
        let rate = count / time * 1e6;
        let (mean_time, time_within) = mean_within(&times);
        let response = self.responses.iter().sum::<f64>() / count;
        // Work takes longer in a crowd: roles share what the cores were busy.
        let stretch = if self.bill.total() > 0.0 { self.cores.busy / self.bill.total() } else { 1.0 };
        let cpu_us = ROLES.iter().map(|(role, name)| (*name, self.bill.0[*role as usize] * stretch / count)).collect();
        let part = |of: u64, all: u64| if all > 0 { of as f64 / all as f64 } else { 0.0 };
        let mut responses = std::mem::take(&mut self.responses);
        responses.sort_by(f64::total_cmp);
        Outcome {
            rate,
            rate_within: if mean_time > 0.0 { rate * time_within / mean_time } else { 0.0 },
            response,
            response_within: mean_within(&means).1,
            responses,
            cores_busy: self.cores.busy / time,
            cpu_us,
            stations: self.stations(time, stretch),
            devices: self
                .devices
                .iter()
                .zip(&self.system.devices)
                .map(|(device, (name, _))| device.used(name, self.now, time, count))
                .collect(),
            inline_jobs: self.inline_jobs as f64 / count,
            together: part(self.signatures.proved, self.signatures.made),
            verifications: part(self.signatures.verified, self.signatures.opened),
            complete,
        }
    }

    fn stations(&self, time: f64, stretch: f64) -> Vec<Use> {
        let group = |name: &str, of: &dyn Fn(Kind) -> bool| {
            let threads: Vec<f64> = self
                .threads
                .iter()
                .filter(|thread| of(thread.kind))
                .map(|thread| thread.used * stretch / time)
                .collect();
            // Where threads have parts of their own, the busiest of them is what limits.
            let most = threads.iter().fold(0.0_f64, |most, used| most.max(*used));
            Use { name: name.to_owned(), servers: threads.len() as f64, utilisation: most.min(1.0) }
        };
        let mut dispatcher = group("dispatcher", &|kind| kind == Kind::Dispatcher);
        // As its meter has it: a turn that waits for a core is not over either.
        let dispatchers = self.threads.iter().filter(|thread| thread.kind == Kind::Dispatcher);
        dispatcher.utilisation = dispatchers.fold(0.0_f64, |most, thread| most.max(thread.ran / time)).min(1.0);
        let application = group("application", &|kind| matches!(kind, Kind::First(_) | Kind::Second(_)));
        let mut stations = vec![application, dispatcher];
        if self.system.class.is_protected() {
            let mut adapters = group("adapters", &|kind| kind == Kind::Adapter);
            let used: f64 = self.adapters.iter().map(|adapter| self.threads[*adapter].used).sum();
            adapters.utilisation = (used * stretch / time / self.adapters.len().max(1) as f64).min(1.0);
            stations.push(adapters);
        }
        if self.journal.is_some() {
            stations.push(Use {
                name: "journal".to_owned(),
                servers: 1.0,
                utilisation: (self.disk_busy / time).min(1.0),
            });
        }
        stations
    }
}

/// The mean, and half of its 95 % confidence interval.
pub(super) fn mean_within(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    if values.len() < 2 {
        return (values.first().copied().unwrap_or(0.0), f64::INFINITY);
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (n - 1.0);
    (mean, STUDENT_T * (variance / n).sqrt())
}

#[cfg(test)]
mod tests;
