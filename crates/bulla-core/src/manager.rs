//! What every thread of a queue manager shares: queues, definitions, rings and users.

mod held;

use crate::accounting::{Accounts, Traffic};
use crate::adapter::Adapters;
use crate::arriving::Arriving;
use crate::audit::Audit;
use crate::catalog::limits::QueueLimit;
use crate::catalog::status::{CostSnapshot, MissingRing, TaskSnapshot};
pub use crate::catalog::system_queues::ERROR_QUEUE;
use crate::catalog::system_queues::{dead_letter_queue_of, error_queue_of};
use crate::catalog::{
    ChannelDefinition, Definitions, Delivery, Destination, Full, LocalQueue, ResolveError, Resolved, Transmission,
};
use crate::channel::transmission::{self, TransmissionHeader};
use crate::clock::Clock;
use crate::connections::IDLE_TIMEOUT;
use crate::devices::Devices;
use crate::envelope::{Defaults, Label};
use crate::events;
use crate::groups_elsewhere::GroupsElsewhere;
use crate::idempotency::{self, Keys};
use crate::limits::{ConnectedUsers, QueueUses, UserId};
use crate::mailbox::{Mailboxes, Notice};
use crate::maps::HashMap;
use crate::message_groups::Groups;
use crate::noted::{Noted, Synced, Writer};
use crate::random::Random;
use crate::readiness::Readiness;
use crate::reason::{self, Refusal};
use crate::refusals::PeerLines;
use crate::report_options;
pub use crate::route::Route;
use crate::sign_in::checks::Checks;
use crate::sign_in::lockout::Lockouts;
use crate::sign_in::sessions::{Ended, LoginId, Sessions, Way};
use crate::sign_in::tickets::Tickets;
use crate::sign_in::tokens::Tokens;
use crate::stores::{LeftStores, Stores};
use crate::stranded_now::StrandedNow;
use crate::task::{Tasks, costs_now};
use crate::topics::Topics;
use crate::traffic_history::TrafficHistory;
use crate::triggering::{self, Triggering};
use crate::users::Users;
use crate::wall_clock::wall_ms;
use bulla_device::role;
use bulla_queue::{
    Backlog, DeliverySequence, DepthWatch, MessageId, QueueAttributes, QueueId, StoreNumber, Ticket, UserShare,
};
use bulla_seal::certificate::Passphrase;
use bulla_seal::ring::{Ring, RingError, Rings};
use bulla_seal::{Opener, Policy};
pub use held::{
    Changes, Clients, Counts, Generations, Listening, Notices, Outbound, Sealing, SignIns, TemporaryQueues, Told,
    Unfinished, UnitTotals, Workers,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

/// A queue manager.
pub struct Manager {
    /// The queue manager's name.
    pub name: String,
    /// The data directory.
    pub data: PathBuf,
    /// What the time is.
    pub clock: Clock,
    /// Where dispatchers' randomness comes from in a simulation.
    #[cfg(any(test, feature = "simulation"))]
    seed: Option<u64>,
    /// Keys, and what opens with them.
    pub sealing: Sealing,
    /// The threads that work.
    pub workers: Workers,
    /// Who may sign in.
    pub sign_ins: SignIns,
    /// How connections are taken in and kept.
    pub listening: Listening,
    /// What is counted.
    pub counts: Counts,
    /// What the operator is told.
    pub told: Told,
    /// Set to end the dispatchers after they have drained.
    pub stopping: AtomicBool,
    /// Writes `objects.mqsc`.
    pub definitions_writer: Arc<Writer>,
    /// Rung when the journal has written something.
    pub synced: Arc<Synced>,
    state: Mutex<State>,
}

/// What changes under the lock: the stores, the definitions, and who uses which queue.
pub struct State {
    /// The queues and their journals, by store.
    pub store: Stores,
    /// Idempotency keys of puts that were done.
    pub keys: Keys,
    /// What the time is.
    pub clock: Clock,
    /// Queues, aliases and policies as defined.
    pub definitions: Definitions,
    /// Changes of them that are under way.
    pub changes: Changes,
    /// Numbers that grow with changes.
    pub generations: Generations,
    /// Who uses which queue.
    pub uses: HashMap<QueueId, Use>,
    /// Queues that live as long as a link.
    pub temporary: TemporaryQueues,
    /// Messages with which something could not be done yet.
    pub unfinished: Unfinished,
    /// Who is connected.
    pub clients: Clients,
    /// All units of work together.
    pub unit_totals: UnitTotals,
    /// What goes out to partners.
    pub outbound: Outbound,
    /// Who has subscribed to what.
    pub topics: Topics,
    /// Queues that start applications.
    pub triggering: Triggering,
    /// Stores that have left, as long as dispatchers have links to them.
    pub left_stores: LeftStores,
    /// Groups of shared queues that other members own.
    pub groups_elsewhere: GroupsElsewhere,
    /// What the operator is told.
    pub notices: Notices,
}

/// Units of work that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitCounts {
    /// Committed.
    pub committed: u64,
    /// Backed out, for whatever reason.
    pub backed_out: u64,
}

/// Who uses a queue.
#[derive(Default, Debug)]
pub struct Use {
    /// Puts that producers have been promised: credit out, messages being sealed, and those of open units of work.
    pub granted: u32,
    /// Of these, messages that are put when their units of work commit.
    pub staged: u32,
    /// Open handles that put.
    pub putters: u32,
    /// Open handles that get or browse.
    pub getters: u32,
    /// Of them, those that take messages.
    pub takers: u32,
    /// One of them takes alone.
    pub exclusive: bool,
    /// The dispatcher on which a channel sends from this queue.
    pub sender: Option<usize>,
    /// Dispatchers with consumers of this queue, one bit each.
    pub consumers_on: u64,
    /// Dispatchers with producers that wait for room on this queue, one bit each.
    pub waiters_on: u64,
    /// How often something became available: a reader that passes messages over looks at all of them again.
    pub arrivals: u64,
    /// How often messages on it were sealed anew: a reader looks again at those that were for others.
    pub resealed: u64,
    /// Sealed messages passed over for a reader who is not a recipient.
    pub not_mine: u64,
    /// What its links have of what the queue limits.
    pub limited: QueueUses,
    /// Whose its message groups are.
    pub groups: Groups,
    /// What went on there, beside what the store counts.
    pub traffic: Traffic,
}

/// A locked message with which something could not be done yet.
pub struct Stuck {
    /// The message.
    pub id: MessageId,
    /// What is still to be done with it.
    pub what: Stays,
}

/// What is still to be done with a message that stays locked.
pub enum Stays {
    /// It was accepted: remove it.
    Remove,
    /// It could not be read: give it back when it can be.
    Return,
    /// Move it to this queue, by the name that is resolved at each try, with this label.
    Move {
        /// The queue's name.
        to: String,
        /// Why it is moved.
        label: Label,
    },
    /// Its delivery has failed that often: give it back to that queue, or move it where messages go that fail.
    GiveBack {
        /// The queue.
        from: Box<Route>,
        /// How often.
        failures: u32,
    },
}

impl State {
    fn new(
        mut store: Stores,
        (definitions, noted): (Definitions, Noted),
        definitions_writer: Arc<Writer>,
        peer_lines: Arc<PeerLines>,
    ) -> Self {
        let mut users = ConnectedUsers::default();
        users.follow_kept(definitions.kept());
        store.tell_marks_by(report_options::body_asks);
        store.tell_keys_by(crate::envelope::keys_of_body);
        Self {
            keys: Keys::read(store.notes_of_all(idempotency::PREFIX)),
            store,
            clock: Clock::default(),
            definitions,
            changes: Changes { noted, writer: definitions_writer },
            generations: Generations { definitions: 1, authority: 0 },
            uses: HashMap::default(),
            temporary: TemporaryQueues::default(),
            unfinished: Unfinished::default(),
            clients: Clients { users, ..Clients::default() },
            unit_totals: UnitTotals::default(),
            outbound: Outbound::default(),
            topics: Topics::default(),
            triggering: Triggering::default(),
            left_stores: LeftStores::default(),
            groups_elsewhere: GroupsElsewhere::default(),
            notices: Notices { peer_lines, events_lost: 0 },
        }
    }

    /// A state without a queue manager around it.
    #[cfg(any(test, feature = "simulation"))]
    pub fn alone(store: impl Into<Stores>, definitions: Definitions, noted: Noted) -> Self {
        Self::new(store.into(), (definitions, noted), Arc::default(), Arc::default())
    }
}

/// What a queue manager is made of that stands before it does.
pub struct Parts {
    /// One mailbox a dispatcher.
    pub mailboxes: Arc<Mailboxes>,
    /// What tasks do.
    pub tasks: Arc<Tasks>,
    /// The crypto devices.
    pub devices: Devices,
    /// Who changed what.
    pub audit: Arc<Audit>,
    /// Bytes of messages that are arriving.
    pub arriving: Arriving,
}

impl Manager {
    /// A queue manager over its opened stores: one, or several by name.
    pub fn new(
        data: PathBuf,
        rings: Rings,
        passphrase: Option<Passphrase>,
        users: Users,
        stores: impl Into<Stores>,
        (definitions, noted): (Definitions, Noted),
        Parts { mailboxes, tasks, devices, audit, arriving }: Parts,
    ) -> Self {
        let tokens = Tokens::new(&data);
        tokens.follow(&definitions.queue_manager);
        let sessions = Sessions::new(audit.clone());
        sessions.follow(&definitions.queue_manager, Instant::now());
        let peer_lines = Arc::<PeerLines>::default();
        let definitions_writer = Arc::<Writer>::default();
        Self {
            name: definitions.queue_manager.name.clone(),
            data,
            clock: Clock::default(),
            #[cfg(any(test, feature = "simulation"))]
            seed: None,
            sealing: Sealing { rings, passphrase, opener: Opener::new() },
            workers: Workers {
                adapters: Arc::new(Adapters::new(devices.scheduler().clone())),
                devices,
                mailboxes,
                tasks,
            },
            sign_ins: SignIns {
                users,
                tokens,
                checks: Checks::default(),
                sessions,
                tickets: Tickets::default(),
                required: AtomicBool::new(definitions.queue_manager.sign_in_required),
                lockouts: Mutex::default(),
            },
            listening: Listening {
                addresses: OnceLock::new(),
                blocked: RwLock::default(),
                idle_timeout: 2 * IDLE_TIMEOUT,
                arriving,
                readiness: Readiness::default(),
            },
            counts: Counts {
                since_ms: wall_ms(SystemTime::now()),
                accounts: Accounts::default(),
                history: Mutex::default(),
                stranded: Mutex::default(),
                rings_missing: Mutex::default(),
                dropped: AtomicU64::new(0),
            },
            told: Told {
                audit,
                refusals: Mutex::default(),
                refused: AtomicBool::new(false),
                peer_lines: peer_lines.clone(),
            },
            stopping: AtomicBool::new(false),
            definitions_writer: definitions_writer.clone(),
            synced: Arc::default(),
            state: Mutex::new(State::new(stores.into(), (definitions, noted), definitions_writer, peer_lines)),
        }
    }

    /// Tells partners to be heard of within that time, and gives them up after twice of it.
    pub fn with_idle_timeout(mut self, told: Duration) -> Self {
        self.listening.idle_timeout = told.saturating_mul(2);
        self
    }

    /// Goes by a simulated clock and by random numbers that follow from `seed`.
    #[cfg(any(test, feature = "simulation"))]
    pub fn with_clock(mut self, clock: &Clock, seed: u64) -> Self {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).clock = clock.clone();
        self.counts.since_ms = wall_ms(clock.wall());
        Self { clock: clock.clone(), seed: Some(seed), ..self }
    }

    /// A source of randomness.
    pub fn random(&self) -> Random {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(seed) = self.seed {
            return Random::seeded(seed);
        }
        Random::system()
    }

    /// Hears of the journal by this.
    pub fn with_synced(self, synced: Arc<Synced>) -> Self {
        Self { synced, ..self }
    }

    /// The state. A panic while it was held leaves queues that can't be trusted, so it ends the process.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        if let Ok(free) = self.state.try_lock() {
            return free;
        }
        role::waiting(|| self.state.lock()).unwrap_or_else(|poisoned: PoisonError<_>| {
            crate::alarm!("a thread died while it held the queues; stopping");
            drop(poisoned);
            crate::log::exit(crate::catalog::exit_codes::EXIT_INTERNAL)
        })
    }

    /// Who was wrong how often in signing in. Its counts hold no invariant that a panic elsewhere could break.
    pub fn lockouts(&self) -> MutexGuard<'_, Lockouts> {
        self.sign_ins.lockouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user of a session that is used now, from that address. None where it is over. An address from which the user
    /// is locked out ends it.
    pub fn session(&self, session: LoginId, tls: bool, address: IpAddr) -> Option<String> {
        let now = self.clock.now();
        let user =
            self.sign_ins.sessions.uses(session, Way { tls, address: Some(address) }, &self.sign_ins.users, now)?;
        if self.lockouts().is_locked(&user, address, now) {
            self.sign_ins.sessions.end(session, Ended::LockedOut, now);
            return None;
        }
        Some(user)
    }

    /// What the operator gave to unlock rings.
    pub fn passphrase(&self) -> Option<&Passphrase> {
        self.sealing.passphrase.as_ref()
    }

    /// A user's ring, unlocked where the operator gave a passphrase.
    pub fn ring(&self, user: &str, now: Instant) -> Result<Arc<Ring>, RingError> {
        match (self.sealing.rings.get(user, now), &self.sealing.passphrase) {
            (Err(error), Some(passphrase)) if error.is_locked() => {
                self.sealing.rings.unlock(user, passphrase.clone())?;
                self.sealing.rings.get(user, now)
            }
            (found, _) => found,
        }
    }

    /// Whose key ring a channel opens and seals with: MCAUSER, or the name under which it runs.
    pub fn channel_user<'a>(&'a self, definition: &'a ChannelDefinition) -> &'a str {
        definition.user.as_deref().unwrap_or(self.channel_manager(definition))
    }

    /// The queue manager that a channel's partner sees: this one, or the group that the channel belongs to, at
    /// whichever member it runs.
    pub fn channel_manager<'a>(&'a self, definition: &'a ChannelDefinition) -> &'a str {
        definition.group.as_deref().unwrap_or(&self.name)
    }

    /// Takes over whose addresses are not listened to. To be called when the rules change.
    pub fn follow_blocked_addresses(&self, definitions: &Definitions) {
        let blocked = match definitions.queue_manager.channel_authentication {
            true => definitions.channel_rules.blocked_addresses(),
            false => Vec::new(),
        };
        *self.listening.blocked.write().unwrap_or_else(PoisonError::into_inner) = blocked;
    }

    /// Whether an address is kept out, and whether that is only a warning.
    pub fn blocks(&self, address: IpAddr) -> Option<bool> {
        let blocked = self.listening.blocked.read().unwrap_or_else(PoisonError::into_inner);
        blocked.iter().find(|(pattern, _)| pattern.fits(address)).map(|(_, warn)| *warn)
    }

    /// Tells every dispatcher in `mask`, save `except`, about a queue.
    pub fn post(&self, mut mask: u64, except: usize, notice: impl Fn() -> Notice) {
        mask &= !(1 << except);
        while mask != 0 {
            let index = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            if let Some(mailbox) = self.workers.mailboxes.get(index) {
                mailbox.post(notice());
            }
        }
    }

    /// What all tasks did until now.
    pub fn task_snapshot(&self) -> TaskSnapshot {
        self.workers.tasks.snapshot(self.workers.adapters.busy_peak(), &self.workers.devices.snapshot())
    }

    /// How queues and policies stood in the minutes of the last day.
    pub fn traffic_history(&self) -> MutexGuard<'_, TrafficHistory> {
        // Counts hold no invariant that a panic could break.
        self.counts.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages that no key ring here can open, and keys that are gone, when it was looked for last.
    pub fn stranded(&self) -> MutexGuard<'_, StrandedNow> {
        // Counts hold no invariant that a panic could break.
        self.counts.stranded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Users' key rings that members of groups need and that can't be used here, by group, when it was looked for last.
    pub fn rings_missing(&self) -> MutexGuard<'_, BTreeMap<String, Vec<MissingRing>>> {
        // Counts hold no invariant that a panic could break.
        self.counts.rings_missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all roles have cost until now.
    pub fn cost_snapshot(&self) -> CostSnapshot {
        // In a statement of its own: every thread's clock is read afterwards, and no queue waits for that.
        let messages = self.lock().store.totals();
        costs_now(messages)
    }

    /// Wakes every dispatcher.
    pub fn ring_all(&self) {
        for mailbox in self.workers.mailboxes.iter() {
            mailbox.wake();
        }
    }

    /// Asks the queue manager to drain and stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring_all();
    }
}

impl State {
    pub(crate) fn use_of(&mut self, queue: QueueId) -> &mut Use {
        self.uses.entry(queue).or_default()
    }

    /// The limits of the queue of that name now.
    pub fn queue_limit(&self, name: &str) -> QueueLimit {
        let defined = self.definitions.queues.get(name);
        let local = defined.or_else(|| self.temporary.queues.get(name).map(|(_, local)| local));
        local.map(|local| local.limit).unwrap_or_default()
    }

    /// Whether a client's link may open that queue.
    ///
    /// # Errors
    /// 2017 where MAXHANDS are open.
    pub fn may_open(&mut self, route: &Route) -> Result<(), Refusal> {
        if route.limit.links == 0 {
            return Ok(());
        }
        let usage = self.use_of(route.queue);
        let links = usage.putters.saturating_add(usage.getters);
        usage.limited.may_open(route.limit, &route.queue_name, links)
    }

    /// A link is gone. Of a queue that went before it, nothing is kept.
    pub fn left(&mut self, queue: QueueId) {
        if self.store.attributes(queue).is_none() {
            self.uses.remove(&queue);
        }
    }

    /// A handle is opened that puts.
    pub fn opened_to_put(&mut self, queue: QueueId) {
        let usage = self.use_of(queue);
        usage.putters += 1;
        usage.traffic.opens_to_put += 1;
    }

    /// A handle is opened that gets or browses.
    pub fn opened_to_get(&mut self, queue: QueueId) {
        let usage = self.use_of(queue);
        usage.getters += 1;
        usage.traffic.opens_to_get += 1;
    }

    /// A handle is opened that takes messages, alone where `exclusive`.
    pub fn opened_to_take(&mut self, name: &str, queue: QueueId, exclusive: bool) -> Result<(), Refusal> {
        let usage = self.use_of(queue);
        let others = usage.takers > 0 || usage.sender.is_some();
        if usage.exclusive || exclusive && others {
            let how = if usage.exclusive { "a consumer has it exclusively" } else { "a consumer has it open" };
            return Err(Refusal::new(reason::OBJECT_IN_USE, format!("{name}: {how}")));
        }
        (usage.takers, usage.exclusive) = (usage.takers + 1, exclusive);
        self.triggering.opened(queue);
        self.opened_to_get(queue);
        Ok(())
    }

    /// A message was put on that queue, in a turn that began at `now`. One look-up; once a millisecond a reading of the
    /// clock.
    pub fn note_put(&mut self, queue: QueueId, id: MessageId, now: Instant) {
        let store = &self.store;
        let usage = self.uses.entry(queue).or_default();
        usage.traffic.put(id, now, |watched| store.put_at_ms(watched).is_some());
    }

    /// A message is about to be removed because it was got.
    pub fn note_got(&mut self, queue: QueueId, id: MessageId, wall_ms: u64) {
        let Some(put_at) = self.store.put_at_ms(id) else { return };
        self.use_of(queue).traffic.got(id, wall_ms.saturating_sub(put_at));
    }

    /// Messages that may still be promised for a queue, whatever waits for the disk: which user gets credit meanwhile
    /// is for [`State::promise`] to say.
    pub fn free(&self, queue: QueueId) -> u32 {
        let granted = self.uses.get(&queue).map_or(0, |usage| usage.granted);
        self.store.depth_room(queue).saturating_sub(granted)
    }

    /// How many of `wanted` messages of credit this user may have now for a queue, or for any queue. While too much
    /// waits for the disk, only users who have put little of that get credit; while much of a user's is being sealed,
    /// it gets none for what may have to be sealed. 0 means: ask again when there is room.
    pub fn promise(&mut self, queue: Option<&Route>, user: Option<UserId>, wanted: u32) -> u32 {
        let may_write = match self.store.backlog(queue.map(|route| route.queue)) {
            Backlog::Usual => true,
            Backlog::Much => user.is_some_and(|user| {
                !self.clients.users.waits_for_disk(user, queue.map(|route| route.queue.store()), &self.store)
            }),
            Backlog::TooMuch => false,
        };
        let is_sealed = queue.is_none_or(|route| route.policy.is_some());
        let seals_much = is_sealed && user.is_some_and(|user| self.clients.users.seals_much(user));
        match queue {
            _ if !may_write || seals_much => 0,
            Some(route) if route.waits_when_full => {
                let free = self.free(route.queue);
                // Half of what is free, so that the next producer finds some, too.
                wanted.min((free / 2).max(free.min(1)))
            }
            _ => wanted,
        }
    }

    /// A user's messages of so many bytes are on their way to the disk.
    pub fn wrote(&mut self, user: Option<UserId>, bytes: usize, ticket: Ticket) {
        if let Some(user) = user.filter(|_| !self.store.is_synced(ticket)) {
            self.clients.users.wrote(user, bytes, ticket, &self.store);
        }
    }

    /// What an address stands for that a client named: SET ADDRMAP is asked once. A dynamic queue's name is itself.
    pub fn address<'a>(&self, named: &'a str, is_topic: bool) -> Cow<'a, str> {
        let is_dynamic = || {
            self.temporary.queues.contains_key(named)
                || self.definitions.queues.get(named).is_some_and(|local| local.dynamic)
        };
        let found = self.definitions.address_maps.resolve(named, is_topic);
        if matches!(found, Cow::Owned(_)) && is_dynamic() { Cow::Borrowed(named) } else { found }
    }

    /// The queue that an address stands for where only a queue is of use: `reply-to` of a report.
    pub fn queue_address<'a>(&self, named: &'a str) -> Cow<'a, str> {
        self.address(named, false)
    }

    /// Where the name that a client opens leads (inventory A1.3: the policy is that of the opened name).
    pub fn route(&self, name: &str) -> Result<Route, Refusal> {
        if let Some((queue, local)) = self.temporary.queues.get(name) {
            let policy = self.definitions.policies.get(name).cloned();
            return Ok(self.route_to(*queue, name, local, policy, local.get_enabled, local.put_enabled));
        }
        let found = self.definitions.resolve(name).map_err(|error| not_resolved(name, error))?;
        self.route_resolved(name, &found)
    }

    /// The route to a queue that `name` was resolved to.
    pub fn route_resolved(&self, name: &str, found: &Resolved<'_>) -> Result<Route, Refusal> {
        let queue = self.queue_in_store(name, found.queue)?;
        let policy = found.policy.cloned();
        Ok(self.route_to(queue, found.queue, found.local, policy, found.get_enabled, found.put_enabled))
    }

    /// Where messages go that a client puts by `object`: a name, or `QUEUE@QMGR`.
    pub fn put_route(&self, object: &str) -> Result<Route, Refusal> {
        if self.temporary.queues.contains_key(object) {
            return self.route(object);
        }
        match self.definitions.resolve_put(object).map_err(|error| not_resolved(object, error))? {
            Destination::Local(found) => self.route_resolved(object, &found),
            Destination::Remote(found) => self.route_remote(object, &found),
        }
    }

    /// The route to another queue manager's queue, by a transmission queue.
    pub fn route_remote(&self, name: &str, found: &Transmission<'_>) -> Result<Route, Refusal> {
        let queue = self.queue_in_store(name, found.queue)?;
        let destination =
            transmission::Destination { queue: found.remote_name.clone(), manager: found.remote_manager.clone() };
        let header = TransmissionHeader::new(destination);
        let route = self.route_to(queue, found.queue, found.local, found.policy.cloned(), false, found.put_enabled);
        Ok(Route {
            message_bytes_max: route.message_bytes_max.saturating_sub(header.overhead()),
            defaults: Defaults {
                priority: found.default_priority,
                persistent: found.default_persistent,
                ..route.defaults
            },
            transmission: Some(Arc::new(header)),
            ..route
        })
    }

    /// A queue's number.
    pub fn queue_in_store(&self, name: &str, queue: &str) -> Result<QueueId, Refusal> {
        let found = self.store.queue(queue);
        found.ok_or_else(|| Refusal::new(reason::UNKNOWN_OBJECT_NAME, format!("{name}: not in the store")))
    }

    fn route_to(
        &self,
        queue: QueueId,
        name: &str,
        local: &LocalQueue,
        policy: Option<Arc<Policy>>,
        get_enabled: bool,
        put_enabled: bool,
    ) -> Route {
        let policy = policy.or_else(|| self.policy_of_managed(name));
        Route {
            queue,
            queue_name: name.to_owned(),
            policy,
            get_enabled,
            put_enabled,
            waits_when_full: local.full == Full::Wait,
            message_bytes_max: local.max_message_bytes.min(self.definitions.queue_manager.max_message_bytes) as usize,
            takes_alone: !local.share,
            has_groups: local.groups,
            default_exclusive: local.default_exclusive,
            limit: local.limit,
            defaults: Defaults {
                priority: local.default_priority,
                persistent: local.default_persistent,
                expiry_cap_ms: local.expiry_cap_tenths.map(|tenths| u64::from(tenths) * 100),
            },
            transmission: None,
            generation: self.generations.definitions,
        }
    }

    /// What a message for `queue` is bound to: `QUEUE@QMGR` (SEAL.md, what is bound), and for a shared queue
    /// `QUEUE@GROUP`, at whichever member it lies.
    pub fn destination(&self, queue: &str) -> String {
        let group = self.definitions.queues.get(queue).and_then(|local| local.group.as_deref());
        format!("{queue}@{}", group.unwrap_or(&self.definitions.queue_manager.name))
    }

    /// What a message on this route is bound to: its queue, or where it goes from a transmission queue.
    pub fn bound_to(&self, route: &Route) -> String {
        match &route.transmission {
            Some(header) => header.destination.to_string(),
            None if route.queue.store() == StoreNumber::LOCAL => {
                format!("{}@{}", route.queue_name, self.definitions.queue_manager.name)
            }
            None => format!("{}@{}", route.queue_name, self.store.store_name(route.queue.store())),
        }
    }

    /// Where messages of a queue go whose seal is defective: each group has a queue of its own for them, so that they
    /// move in one unit.
    pub fn error_queue_for(&self, queue: QueueId) -> Cow<'static, str> {
        match queue.store() {
            StoreNumber::LOCAL => Cow::Borrowed(ERROR_QUEUE),
            group => Cow::Owned(error_queue_of(self.store.store_name(group))),
        }
    }

    /// Where messages of a queue go that can't be processed or delivered; none where there is no such queue.
    pub fn dead_letter_queue_for(&self, queue: QueueId) -> Option<String> {
        match queue.store() {
            StoreNumber::LOCAL => self.definitions.queue_manager.dead_letter_queue.clone(),
            group => Some(dead_letter_queue_of(self.store.store_name(group))),
        }
    }

    /// The destinations that a message on this route may be bound to: its queue, the policy's BINDNAMEs, and the name
    /// in the message's label on the error and dead-letter queues, and on the BOQNAME of the queue of that name.
    pub fn destinations(&self, route: &Route, policy: &Policy, labelled: Option<String>) -> Vec<String> {
        let mut names = vec![self.bound_to(route)];
        names.extend(self.bind_names(policy));
        let dead_letters = self.definitions.queue_manager.dead_letter_queue.as_deref();
        let is_backout_of = |queue: &String| {
            let local = self.definitions.queues.get(queue);
            local.is_some_and(|local| local.backout_queue.as_deref() == Some(route.queue_name.as_str()))
        };
        // The error queue may be an alias of another one.
        let errors = self.definitions.resolve(ERROR_QUEUE).ok().map(|found| found.queue);
        let lies_on = Some(route.queue_name.as_str());
        let of_group = || {
            let [errors, dead_letters] =
                [Some(self.error_queue_for(route.queue)), self.dead_letter_queue_for(route.queue).map(Cow::Owned)];
            lies_on == errors.as_deref() || lies_on == dead_letters.as_deref()
        };
        let any =
            lies_on == errors || lies_on == dead_letters || (route.queue.store() != StoreNumber::LOCAL && of_group());
        names.extend(labelled.filter(|queue| any || is_backout_of(queue)).map(|queue| self.destination(&queue)));
        names
    }

    /// The destinations that a message on a local queue may be bound to: the queue, and the policy's BINDNAMEs.
    pub fn destinations_on(&self, queue: &str, policy: &Policy) -> Vec<String> {
        std::iter::once(self.destination(queue)).chain(self.bind_names(policy)).collect()
    }

    /// A message was put on a transmission queue: where no other of that queue is watched, this one is.
    pub fn probe_queue_time(&mut self, queue: QueueId, id: MessageId) {
        // The clock of the turn would show nothing of what is sent in the same turn.
        self.outbound.queue_time_probes.entry(queue).or_insert_with(|| (id, self.clock.now()));
    }

    /// The destinations that a message on a transmission queue may be bound to, for the channel that opens it.
    pub fn destinations_of(&self, header: &TransmissionHeader, policy: &Policy) -> Vec<String> {
        std::iter::once(header.destination.to_string()).chain(self.bind_names(policy)).collect()
    }

    fn bind_names<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = String> + 'a {
        let whole = |name: &String| if name.contains('@') { name.clone() } else { self.destination(name) };
        policy.bind_names.iter().map(whole)
    }
}

/// Why a name leads nowhere, in reason codes.
pub fn not_resolved(name: &str, error: ResolveError) -> Refusal {
    Refusal::new(reason::of(u16::try_from(error.reason()).unwrap_or_default()), format!("{name}: {error}"))
}

/// A queue's definition as the store wants it.
pub fn attributes(name: &str, local: &LocalQueue, definitions: &Definitions) -> QueueAttributes {
    QueueAttributes {
        max_depth: local.max_depth,
        max_message_bytes: local.max_message_bytes.min(definitions.queue_manager.max_message_bytes),
        get_enabled: local.get_enabled,
        put_enabled: local.put_enabled,
        delivery_sequence: match local.delivery {
            Delivery::Priority => DeliverySequence::Priority,
            Delivery::Fifo => DeliverySequence::Fifo,
        },
        depth_watch: depth_watch(name, local, definitions),
        counted_priority: triggering::counted_priority(local),
        user_share: user_share(name, local, definitions),
        ..QueueAttributes::default()
    }
}

/// The part of the dead-letter queue's MAXDEPTH that one user's messages may take.
const DEAD_LETTERS_OF_USER_DIVISOR: u32 = 4;
/// So many they may be on a short queue, too.
const DEAD_LETTERS_OF_USER_MIN: u32 = 10;
/// Bytes that they may take.
const DEAD_LETTERS_OF_USER_BYTES_MAX: u64 = 64 << 20;

/// What one user's messages may take of a queue: of the dead-letter queue a part, so that one channel or application
/// whose messages can't go where they are for leaves room for those of others.
fn user_share(name: &str, local: &LocalQueue, definitions: &Definitions) -> Option<UserShare> {
    let leads_here = match (&local.group, definitions.queue_manager.dead_letter_queue.as_deref()) {
        (Some(group), _) => name == dead_letter_queue_of(group),
        (None, Some(dead_letters)) => {
            name == dead_letters || definitions.resolve(dead_letters).is_ok_and(|found| found.queue == name)
        }
        (None, None) => false,
    };
    leads_here.then(|| UserShare {
        messages: (local.max_depth / DEAD_LETTERS_OF_USER_DIVISOR).max(DEAD_LETTERS_OF_USER_MIN),
        bytes: DEAD_LETTERS_OF_USER_BYTES_MAX,
    })
}

/// What is to be told of a queue's depth: nothing where no event could come of it, and nothing of the queues that
/// events go to.
fn depth_watch(name: &str, local: &LocalQueue, definitions: &Definitions) -> Option<DepthWatch> {
    let (tells_high, tells_low, tells_full) = (local.high_event, local.low_event, local.full_event);
    let wanted = definitions.queue_manager.performance_events && (tells_high || tells_low || tells_full);
    if !wanted || events::is_event_queue(name) {
        return None;
    }
    let share = |percent: u8| u64::from(local.max_depth) * u64::from(percent) / 100;
    let high = u32::try_from(share(local.high_percent)).unwrap_or(u32::MAX).max(1);
    let low = u32::try_from(share(local.low_percent)).unwrap_or(u32::MAX).min(high - 1);
    Some(DepthWatch { high, low, tells_high, tells_low, tells_full })
}
