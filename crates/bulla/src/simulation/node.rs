//! A simulated machine: a disk, and the queue manager that runs over it until it crashes.

use super::late_log::{LateLog, Outside, Takes};
use super::protection::{self, data};
use crate::arriving::{ARRIVING_BYTES_MAX, Arriving};
use crate::audit::Audit;
use crate::authority::Authorities;
use crate::catalog::exit_codes::EXIT_JOURNAL;
use crate::catalog::status::TaskKind;
use crate::catalog::{Change, Definitions, LocalQueue};
use crate::clock::Clock;
use crate::devices::Devices;
use crate::folders::RINGS;
use crate::further_stores::Joining;
use crate::log::Exit;
use crate::mailbox::Mailboxes;
use crate::manager::{Manager, Parts, attributes};
use crate::mqsc::kept;
use crate::noted::Noted;
use crate::objects_file::start::{Failed, Loaded, load};
use crate::random::Random;
use crate::serve;
use crate::stores::{NamedStore, Stores};
use crate::task::Tasks;
use crate::tls::Tls;
use crate::turn::{Dispatcher, Left, Listeners};
use crate::users::Users;
use bulla_device::{Kind, Scheduler};
use bulla_queue::sim::{Fate, Fault, SimDisk};
use bulla_queue::{
    DefinitionUnit, Driver, FileLog, FileLogOptions, FileSpill, Limits, QueueChange, Store, StoreNumber,
};
use bulla_seal::ring::Rings;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Small, so that segments are begun, carried forward from and given back within a seed.
const SEGMENT_BYTES: u64 = 64 << 10;
const LIMITS: Limits = Limits {
    memory_bytes_max: 32 << 10,
    batch_bytes_max: 4 << 10,
    reserve_bytes: 24 << 10,
    checkpoint_bytes: 30_000,
    log_bytes_min: 3 * SEGMENT_BYTES,
    backlog_bytes_max: 64 << 10,
};
const SPILL_BYTES_MAX: u64 = 64 << 20;

/// The number of the second store, the first time.
const FURTHER: StoreNumber = StoreNumber::new(1).unwrap();

/// A machine.
pub(super) struct Node {
    name: String,
    clock: Clock,
    disk: SimDisk,
    /// Room for what does not fit into memory; it goes with the process.
    spill: SimDisk,
    outside: Outside,
    further: Option<Further>,
    running: Option<Running>,
}

/// A second store of a machine.
struct Further {
    name: String,
    disk: SimDisk,
    outside: Outside,
    /// Queues that are defined there when it is new.
    queues: Vec<(String, LocalQueue)>,
}

/// A queue manager that runs.
pub(super) struct Running {
    pub(super) manager: Arc<Manager>,
    pub(super) dispatcher: Dispatcher,
    /// When it has something to do.
    pub(super) due: Instant,
}

/// The power is gone: the queue manager is not there any more.
#[derive(Debug)]
pub(super) struct Crashed;

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

impl Further {
    /// Defines what is there from the beginning.
    fn define(&self, store: &mut Store, now: Instant) -> Result<(), String> {
        let mut definitions = Definitions::empty("none");
        definitions.queues.extend(self.queues.iter().cloned());
        let records: Vec<(String, String)> = kept::records(&definitions).collect();
        let objects: Vec<(&str, Option<&[u8]>)> = records
            .iter()
            .filter(|(name, _)| kept::queue_of(name).is_some())
            .map(|(name, text)| (name.as_str(), Some(text.as_bytes())))
            .collect();
        let defined = |(name, queue): &'_ (String, LocalQueue)| attributes(name, queue, &definitions);
        let queues: Vec<QueueChange<'_>> = self
            .queues
            .iter()
            .map(|queue| QueueChange::Define { name: &queue.0, attributes: defined(queue) })
            .collect();
        let unit = DefinitionUnit { queues: &queues, objects: &objects, ..DefinitionUnit::default() };
        store.commit_definitions(&unit).map_err(|error| error.to_string())?;
        store.sync(now).map_err(|error| error.to_string())
    }
}

impl Node {
    /// A machine with an empty disk.
    pub(super) fn new(name: &str, clock: &Clock) -> Self {
        Self {
            name: name.to_owned(),
            clock: clock.clone(),
            disk: SimDisk::default(),
            spill: SimDisk::default(),
            outside: Outside::default(),
            further: None,
            running: None,
        }
    }

    /// Each read of its log takes so long.
    pub(super) fn with_reads_that_take(mut self, time: Duration) -> Self {
        self.outside.takes.read = Some(time);
        self
    }

    /// It has a second store, with these queues.
    pub(super) fn with_store(self, name: &str, queues: &[&str], takes: Takes) -> Self {
        let queues = queues.iter().map(|queue| ((*queue).to_owned(), LocalQueue::default())).collect();
        let outside = Outside { takes, ..Outside::default() };
        Self { further: Some(Further { name: name.to_owned(), disk: SimDisk::default(), outside, queues }), ..self }
    }

    /// Whether it is answered when it looks whether another machine owns the second store.
    pub(super) fn answer_looks(&self, answers: bool) {
        if let Some(further) = &self.further {
            further.outside.looks.answer(answers);
        }
    }

    pub(super) fn disk(&self) -> &SimDisk {
        &self.disk
    }

    pub(super) fn spill(&self) -> &SimDisk {
        &self.spill
    }

    pub(super) fn running(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    /// Has the power go after so many more steps of the disk.
    pub(super) fn crash_after(&self, steps: u64) {
        self.disk.set_fault(self.disk.steps() + steps, Fault::Crash);
    }

    /// The power goes; what the disk finds of what was not synced is left to `fate`.
    pub(super) fn crash(&mut self, fate: Fate) {
        self.disk.set_fault(self.disk.steps(), Fault::Crash);
        self.running = None;
        (self.disk, self.spill) = (self.disk.after_crash(fate), SimDisk::default());
        if let Some(further) = &mut self.further {
            further.disk.set_fault(further.disk.steps(), Fault::Crash);
            further.disk = further.disk.after_crash(fate);
        }
    }

    /// Starts the queue manager over what the disk has. `changes` are made once it runs.
    pub(super) fn start(&mut self, seed: u64, changes: &[Change]) -> Result<(), Crashed> {
        match self.try_start(seed, changes) {
            Ok(running) => self.running = Some(running),
            Err(error) if self.disk.crashed() => drop(error),
            Err(error) => panic!("the queue manager does not start: {error}"),
        }
        if self.running.is_some() { Ok(()) } else { Err(Crashed) }
    }

    fn open(
        &self,
        number: StoreNumber,
        disk: &SimDisk,
        spill: &SimDisk,
        seed: u64,
        outside: &Outside,
    ) -> Result<Store, String> {
        let (clock, now) = (self.clock.clone(), self.clock.now());
        let options = FileLogOptions {
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: SEGMENT_BYTES,
            driver: Driver::Inline,
            clock: Arc::new(move || clock.now()),
            ..FileLogOptions::default()
        };
        let log = FileLog::open(disk.clone(), options).map_err(text)?;
        let log = LateLog::new(log, self.clock.clone(), seed, outside.clone());
        let spill = FileSpill::open(spill.clone(), SPILL_BYTES_MAX).map_err(text)?;
        let mut store = Store::open_numbered(number, Box::new(log), Box::new(spill), LIMITS, now).map_err(text)?;
        store.ensure_identity(Random::seeded(seed + number.place() as u64).bytes(), now).map_err(text)?;
        Ok(store)
    }

    fn try_start(&self, seed: u64, changes: &[Change]) -> Result<Running, String> {
        let now = self.clock.now();
        let store = self.open(StoreNumber::LOCAL, &self.disk, &self.spill, seed, &self.outside)?;
        let mut further = Vec::new();
        if let Some(one) = &self.further {
            let mut store = self.open(FURTHER, &one.disk, &SimDisk::default(), seed, &one.outside)?;
            if store.objects() == 0 {
                one.define(&mut store, now)?;
            }
            further.push(NamedStore { name: one.name.clone(), store });
        }
        // `objects.mqsc` is no part of the simulation: there is no folder for it.
        let nowhere = data().join("none");
        let initial = || Definitions::initial(&self.name);
        let mut stores = Stores::new(store, further).map_err(text)?;
        let loaded = load(&mut stores, &nowhere, initial, |_| Ok::<_, Failed>(()));
        let Loaded { definitions, last, .. } = loaded.map_err(text)?;
        let manager = self.manager(stores, (definitions, Noted::after(last)), seed);
        serve::define_queues(&manager, &manager.data).map_err(text)?;
        {
            let state = &mut *manager.lock();
            state.commit_definitions(changes, &[]).map_err(text)?;
            state.store.sync(now).map_err(text)?;
        }
        let (left, mailbox) = Left::fresh().map_err(text)?;
        let tls = Arc::new(Tls::new(nowhere));
        assert!(manager.workers.mailboxes.add(mailbox.clone()));
        let mut dispatcher =
            Dispatcher::new(0, manager.clone(), left, mailbox, Listeners::default(), tls).map_err(text)?;
        dispatcher.simulate_calls();
        Ok(Running { manager, dispatcher, due: now })
    }

    fn manager(&self, stores: Stores, defined: (Definitions, Noted), seed: u64) -> Arc<Manager> {
        static SCHEDULER: OnceLock<Arc<Scheduler>> = OnceLock::new();
        let scheduler = SCHEDULER.get_or_init(|| Scheduler::without_monitor(Kind::Cpu, 1)).clone();
        let data = data();
        let devices = Devices::new(scheduler, PathBuf::new(), &[]);
        let parts = Parts {
            mailboxes: Arc::new(Mailboxes::default()),
            tasks: Arc::new(Tasks::default()),
            devices,
            audit: Arc::new(Audit::nowhere()),
            arriving: Arriving::new(ARRIVING_BYTES_MAX),
        };
        let (rings, users) = (Rings::new(data.join(RINGS)), Users::open(data).unwrap());
        let manager = Manager::new(data.to_owned(), rings, None, users, stores, defined, parts);
        Arc::new(manager.with_clock(&self.clock, seed))
    }

    /// Another machine owns the second store from now on.
    pub(super) fn loses_its_store(&mut self) {
        let (Some(Running { manager, .. }), Some(further)) = (&self.running, &mut self.further) else { return };
        let left = manager.lock().leave_store(FURTHER, manager.live_dispatchers());
        assert!(left.is_some(), "it was there");
        further.disk.set_fault(further.disk.steps(), Fault::Crash);
        drop(left);
        further.disk = further.disk.after_crash(Fate::Lost);
        manager.ring_all();
    }

    /// The log of the second store takes nothing more: the next that is written fails.
    pub(super) fn breaks_its_store(&mut self) {
        let Some(further) = &mut self.further else { return };
        further.disk.set_fault(further.disk.steps(), Fault::Crash);
    }

    /// The second store's disk works again, with what it had synced.
    pub(super) fn mends_its_store(&mut self) {
        let Some(further) = &mut self.further else { return };
        further.disk = further.disk.after_crash(Fate::Lost);
    }

    /// It owns the second store again.
    ///
    /// # Errors
    /// What speaks against it.
    pub(super) fn gets_its_store(&mut self, seed: u64) -> Result<(), String> {
        let (Some(Running { manager, .. }), Some(further)) = (&self.running, &self.further) else {
            return Err("it does not run".to_owned());
        };
        let left = manager.lock().left_stores.numbers(manager.live_dispatchers());
        let number = manager.lock().store.free_number(&left).ok_or("no number is free")?;
        let store = self.open(number, &further.disk, &SimDisk::default(), seed, &further.outside)?;
        let joining = Joining::read(NamedStore { name: further.name.clone(), store }).map_err(text)?;
        manager.lock().join_store(joining, &data().join("none")).map_err(text)?;
        manager.ring_all();
        Ok(())
    }

    /// Whether no client is connected and nothing waits for the disk.
    pub(super) fn is_quiet(&self) -> bool {
        let Some(running) = &self.running else { return true };
        let state = running.manager.lock();
        let is_synced = |queue| state.store.status(queue).is_none_or(|status| status.unsynced == 0);
        let is_stuck =
            !state.unfinished.messages.is_empty() || !state.store.queues().all(|(queue, _)| is_synced(queue));
        // Its links to a store that has left end in its next turn.
        let is_leaving = !state.left_stores.numbers(running.manager.live_dispatchers()).is_empty();
        drop(state);
        let adapters_rest = !running.manager.workers.adapters.has_tasks();
        !is_stuck
            && !is_leaving
            && adapters_rest
            && running.dispatcher.connections() == 0
            && self.outside.due.get().is_none()
    }

    /// Does what waits for an adapter.
    pub(super) fn adapt(&self) {
        if let Some(Running { manager, .. }) = &self.running {
            manager
                .workers
                .adapters
                .run_dry(&manager.workers.mailboxes, &manager.workers.tasks.meter(TaskKind::Adapter, 0));
        }
    }

    /// One turn of the queue manager. A crash of its disk ends it.
    pub(super) fn turn(&mut self) -> Result<(), Crashed> {
        let Some(running) = &mut self.running else { return Err(Crashed) };
        match catch_unwind(AssertUnwindSafe(|| running.dispatcher.turn_now())) {
            // The power went while space was made, which the queue manager goes on without, but not its machine.
            Ok(_) if self.disk.crashed() => Err(Crashed),
            Ok(due) => {
                running.due = self.outside.due.get().map_or(due, |disk| due.min(disk));
                Ok(())
            }
            Err(what) if what.downcast_ref() == Some(&Exit(EXIT_JOURNAL)) && self.disk.crashed() => Err(Crashed),
            Err(what) => resume_unwind(what),
        }
    }
}

/// Who may do what: everyone everything.
pub(super) fn open_to_all() -> Vec<Change> {
    let records = Authorities::open_to_all().records.iter().chain([protection::topics()]).collect();
    vec![Change::SetAuthority(records)]
}
