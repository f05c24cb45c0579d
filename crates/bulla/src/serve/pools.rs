//! The threads of dispatchers and adapters: made when the queue manager starts, and made and ended while it runs.

use crate::catalog::status::{TaskKind, Tasks};
use crate::catalog::{ADAPTERS_MAX, DISPATCHERS_MAX, QueueManager};
use crate::enrolment::enroller::Enrolments;
use crate::manager::Manager;
use crate::metrics::KnownEnds;
use crate::shared_groups::SharedGroups;
use crate::tls::Tls;
use crate::turn::{Dispatcher, Left, Listeners};
use bulla_device::role::{self, Role};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Most threads that check passwords and tokens: a quarter of the cores, but not more than that.
const CHECKERS_MAX: usize = 4;

/// By how much adapters are nicer than dispatchers (nice(2)): they compute for milliseconds at a time for one user, and
/// where processors are short all users need the dispatchers first. Where none are short it makes no difference.
pub(super) const ADAPTER_NICENESS: i32 = 5;

/// The threads that work for clients and channels, and the TLS that they speak.
pub struct Threads {
    pub(super) manager: Arc<Manager>,
    /// TLS of the listener and of channels.
    pub(super) tls: Arc<Tls>,
    /// Certificates that renew by themselves.
    pub(super) enrolments: Arc<Enrolments>,
    /// When certificates and revocation lists end.
    pub(super) ends: Arc<KnownEnds>,
    /// Groups of shared queues that this queue manager takes part in.
    pub(super) groups: SharedGroups,
    pools: Mutex<Pools>,
}

/// The threads that there are.
#[derive(Default)]
struct Pools {
    /// By index; none where the thread has been joined.
    dispatchers: Vec<Option<JoinHandle<io::Result<Left>>>>,
    adapters: Vec<JoinHandle<()>>,
    checkers: Vec<JoinHandle<()>>,
    /// Dispatchers and adapters where CHIDISPS and CHIADAPS are AUTO.
    started_with: (usize, usize),
    /// The queue manager ends: no thread is made any more.
    is_ending: bool,
}

impl Threads {
    /// No thread is there yet.
    pub(super) fn new(manager: Arc<Manager>, tls: Arc<Tls>) -> Self {
        let groups = SharedGroups::default();
        Self { manager, tls, enrolments: Arc::default(), ends: Arc::default(), groups, pools: Mutex::default() }
    }

    /// Makes the first threads: as many as CHIADAPS and CHIDISPS say, else as many as `started_with` (dispatchers,
    /// adapters). The first dispatcher gets the listeners.
    pub(super) fn make_pools(
        &self,
        definition: &QueueManager,
        started_with: (usize, usize),
        listeners: Listeners,
    ) -> io::Result<()> {
        self.pools().started_with = started_with;
        let (dispatchers, adapters) = wanted(definition, started_with);
        self.resize_adapters(adapters)?;
        self.make_dispatchers(dispatchers, listeners)
    }

    /// Makes the threads that check passwords and tokens, for a machine with so many cores.
    pub(super) fn make_checkers(&self, cores: usize) -> io::Result<()> {
        let mut pools = self.pools();
        for index in 0..(cores / 4).clamp(1, CHECKERS_MAX) {
            let manager = self.manager.clone();
            let thread = std::thread::Builder::new().name(format!("sign-in-{index}")).spawn(move || {
                let _ends = EndsTogether;
                role::begin(Role::QueueManager);
                manager.sign_ins.checks.run();
            })?;
            pools.checkers.push(thread);
        }
        Ok(())
    }

    /// Ends the threads that check passwords and tokens, and waits for them.
    pub(super) fn end_checkers(&self) -> io::Result<()> {
        self.manager.sign_ins.checks.stop();
        let threads = std::mem::take(&mut self.pools().checkers);
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread that checks passwords died"))?;
        }
        Ok(())
    }

    /// Has as many dispatchers and adapters from now on as CHIDISPS and CHIADAPS say.
    ///
    /// # Errors
    /// The system gives no more threads: there are fewer then.
    pub(super) fn resize_pools(&self, definition: &QueueManager) -> io::Result<()> {
        let (dispatchers, adapters) = wanted(definition, self.pools().started_with);
        self.resize_adapters(adapters).and(self.resize_dispatchers(dispatchers))
    }

    /// Adapters, and how many are wanted.
    pub(super) fn adapter_tasks(&self) -> Tasks {
        let (started, requested) = self.manager.workers.adapters.counts();
        tasks(started, requested)
    }

    /// Dispatchers, surplus ones that still have connections included, and how many are wanted.
    pub(super) fn dispatcher_tasks(&self) -> Tasks {
        let started = self.manager.workers.mailboxes.iter().filter(|mailbox| !mailbox.is_closed()).count();
        tasks(started, self.manager.workers.mailboxes.wanted())
    }

    /// Has `count` adapters from now on, 1 to [`ADAPTERS_MAX`] of them. New ones begin at once; surplus ones end after
    /// their turn, and what they would have done the others do.
    ///
    /// # Errors
    /// The system gives no more threads: there are fewer than `count` then.
    pub fn resize_adapters(&self, count: usize) -> io::Result<()> {
        let mut pools = self.pools();
        if pools.is_ending {
            return Ok(());
        }
        // Those that ended some time ago.
        pools.adapters.retain(|thread| !thread.is_finished());
        let mut failed = None;
        for index in self.manager.workers.adapters.want(count.clamp(1, ADAPTERS_MAX)) {
            let manager = self.manager.clone();
            let thread = std::thread::Builder::new().name(format!("adapter-{index}")).spawn(move || {
                let _ends = EndsTogether;
                role::begin(Role::Protection);
                // Of this thread alone. Where the system refuses, adapters compete with dispatchers as any thread does.
                let _ = rustix::process::nice(ADAPTER_NICENESS);
                let meter = manager.workers.tasks.meter(TaskKind::Adapter, index);
                let _counted = meter.on_this_thread();
                manager.workers.adapters.run(index, &manager.workers.mailboxes, &meter);
            });
            match thread {
                Ok(thread) => pools.adapters.push(thread),
                Err(error) => {
                    self.manager.workers.adapters.not_run(index);
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Has connections handed to `count` dispatchers from now on, 1 to [`DISPATCHERS_MAX`] of them. New ones begin at
    /// once; surplus ones get no more connections, and end when their last one has gone. Listeners stay with the first.
    ///
    /// # Errors
    /// The system gives no more threads or no more polls: there are fewer than `count` then.
    pub fn resize_dispatchers(&self, count: usize) -> io::Result<()> {
        self.make_dispatchers(count, Listeners::default())
    }

    fn make_dispatchers(&self, count: usize, listeners: Listeners) -> io::Result<()> {
        let count = count.clamp(1, DISPATCHERS_MAX);
        let mut pools = self.pools();
        if pools.is_ending {
            return Ok(());
        }
        // First: one that is about to end and is wanted now stays, and a new one does not find itself surplus.
        self.manager.workers.mailboxes.want(count);
        let mut listeners = Some(listeners);
        for index in 0..count {
            let listeners = listeners.take().unwrap_or_default();
            if let Err(error) = self.make_dispatcher(&mut pools, index, listeners) {
                self.manager.workers.mailboxes.want(index);
                if let Some(mailbox) = self.manager.workers.mailboxes.get(index) {
                    mailbox.close();
                }
                return Err(error);
            }
        }
        drop(pools);
        // Surplus ones that have nothing to do leave at once.
        self.manager.ring_all();
        Ok(())
    }

    /// Sees to it that there is a dispatcher of that index; those below it are there.
    fn make_dispatcher(&self, pools: &mut Pools, index: usize, listeners: Listeners) -> io::Result<()> {
        let left = match (self.manager.workers.mailboxes.get(index), pools.dispatchers.get_mut(index)) {
            (Some(mailbox), Some(thread)) => {
                if !mailbox.reopen() {
                    return Ok(());
                }
                // It has closed its mailbox, which was the last that it did.
                match thread.take().map(JoinHandle::join) {
                    Some(Ok(left)) => left?,
                    _ => return Err(io::Error::other(format!("dispatcher {index} could not be started before"))),
                }
            }
            _ => {
                let (left, mailbox) = Left::fresh()?;
                self.manager.workers.mailboxes.add(mailbox);
                pools.dispatchers.push(None);
                left
            }
        };
        let Some(mailbox) = self.manager.workers.mailboxes.get(index).cloned() else { return Ok(()) };
        let dispatcher = Dispatcher::new(index, self.manager.clone(), left, mailbox, listeners, self.tls.clone())?;
        let manager = self.manager.clone();
        let thread = std::thread::Builder::new().name(format!("dispatcher-{index}")).spawn(move || {
            let _ends = EndsTogether;
            role::begin(Role::QueueManager);
            let meter = manager.workers.tasks.meter(TaskKind::Dispatcher, index);
            let counted = meter.on_this_thread();
            let result = dispatcher.run();
            drop(counted);
            if result.is_err() && !manager.stopping.swap(true, Ordering::AcqRel) {
                manager.ring_all();
            }
            result
        })?;
        if let Some(place) = pools.dispatchers.get_mut(index) {
            *place = Some(thread);
        }
        Ok(())
    }

    /// Waits for the dispatchers: until the queue manager stops and they have drained. No thread is made afterwards.
    pub(super) fn join_dispatchers(&self) -> io::Result<()> {
        let join = |thread: JoinHandle<io::Result<Left>>| {
            thread.join().map_err(|_| io::Error::other("a dispatcher died")).and_then(|ended| ended.map(drop))
        };
        // The first one never is surplus: while it runs, others may come and go.
        let first = self.pools().dispatchers.first_mut().and_then(Option::take);
        let mut result = first.map_or(Ok(()), join);
        let others = {
            let mut pools = self.pools();
            pools.is_ending = true;
            std::mem::take(&mut pools.dispatchers)
        };
        for thread in others.into_iter().flatten() {
            result = result.and(join(thread));
        }
        result
    }

    /// Waits for the adapters, which were told to stop.
    pub(super) fn join_adapters(&self) -> io::Result<()> {
        let threads = std::mem::take(&mut self.pools().adapters);
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("an adapter died"))?;
        }
        Ok(())
    }

    fn pools(&self) -> MutexGuard<'_, Pools> {
        // Handles of threads hold no invariant that a panic could break.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dispatchers and adapters as a definition wants them.
fn wanted(definition: &QueueManager, started_with: (usize, usize)) -> (usize, usize) {
    let count = |defined: Option<u32>, started: usize| defined.map_or(started, |count| count as usize);
    (count(definition.dispatchers, started_with.0), count(definition.adapters, started_with.1))
}

fn tasks(started: usize, requested: usize) -> Tasks {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Tasks { started: count(started), requested: count(requested) }
}

/// On the stack of each thread: one that dies takes the process along, because what it held would stay held.
struct EndsTogether;

impl Drop for EndsTogether {
    fn drop(&mut self) {
        if std::thread::panicking() {
            crate::alarm!("a thread died; stopping. what was confirmed is in the journal");
            crate::log::exit(crate::catalog::exit_codes::EXIT_INTERNAL);
        }
    }
}
