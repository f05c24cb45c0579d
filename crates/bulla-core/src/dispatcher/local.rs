//! What one dispatcher's turns share, its connections aside.

use super::consumers::{Consumers, Seat};
use super::producer::{Producer, Receipt};
use super::sealing::Means;
use super::selection;
use super::serve_list::ServeList;
use super::unit_of_work::units::{Discharged, Units};
use crate::catalog::status::TaskKind;
use crate::channel::supervisor;
use crate::front::LinkId;
use crate::mailbox::{Mailbox, Notice};
use crate::manager::{Manager, State};
use crate::maps::{HashMap, HashSet};
use crate::reason::{self, Refusal};
use crate::reports::{self, Moment};
use crate::sign_in::verdict::Identity;
use crate::stores::{PerStore, Stores};
use crate::task::TaskMeter;
use crate::wall_clock::{from_wall_ms, wall_ms};
use crate::{adapter, denials, triggering};
use bulla_queue::{QueueId, StoreNumber, Ticket};
use bulla_seal::ring::{Ring, RingError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// How long a removal that no client waits for may wait for company on its way to the journal.
const REMOVAL_FLUSH_WITHIN: Duration = Duration::from_millis(1);
/// How long a ring that was read without its keys is good for.
const KEYLESS_FOR: Duration = Duration::from_secs(5);

/// What one dispatcher's turns share, its connections aside.
pub struct Local {
    /// Which dispatcher it is.
    pub index: usize,
    /// The queue manager.
    pub manager: Arc<Manager>,
    /// What this dispatcher's time goes to.
    pub meters: Meters,
    /// When this turn began.
    pub now: Instant,
    /// The same, in milliseconds since 1970, UTC.
    pub wall_ms: u64,
    pub(crate) random: crate::random::Random,
    /// What other threads tell it.
    pub mailbox: Arc<Mailbox>,
    /// What waits for the journal, and what is to go there.
    pub journaling: Journaling,
    /// Channels with something to do.
    pub channels: ChannelWork,
    /// Queues to serve, and the links that get from them.
    pub serving: Serving,
    /// Links that put, and wait.
    pub producers: WaitingProducers,
    /// Rings without their keys, to check clients' own seals by, and when they were read.
    pub keyless: HashMap<String, (Instant, Arc<Ring>)>,
    /// Connections that have something to be written, in the order in which it came.
    pub touched: Vec<usize>,
    /// Connections with links that are to be forwarded.
    pub forwarding: Vec<usize>,
    /// The changes that this dispatcher has looked at.
    pub seen: Seen,
    /// Units of work that are open.
    pub units: Units,
}

/// What a dispatcher's time goes to.
pub struct Meters {
    /// What it does.
    pub work: Arc<TaskMeter>,
    /// Of that, the TLS of its connections.
    pub tls: Arc<TaskMeter>,
}

/// What waits for the journal, and what is to go there.
#[derive(Default)]
pub struct Journaling {
    /// Answers that wait for the journals, those of each store in the order of their tickets.
    pub confirmations: Confirmations,
    /// Something in the open batch is waited for.
    pub urgent: bool,
    /// When the open batch goes to the journal at the latest.
    pub flush_by: Option<Instant>,
}

/// The channels of a dispatcher's connections.
#[derive(Default)]
pub struct ChannelWork {
    /// Links on which channels receive, and those of them that have something ready in this turn.
    pub receivers: HashSet<(usize, LinkId)>,
    pub(crate) receiving: Vec<(usize, LinkId)>,
    /// When a channel that pauses wants to be looked at again.
    pub wake_at: Option<Instant>,
    /// Which connection sends from a transmission queue.
    pub senders: HashMap<QueueId, usize>,
    /// Connections whose channels have something to do in this turn.
    pub due: Vec<usize>,
}

/// Queues to serve, and the links that get from them.
#[derive(Default)]
pub struct Serving {
    pub(crate) consumers: HashMap<QueueId, Consumers>,
    /// Queues whose readers are to be looked at.
    pub list: ServeList,
    /// Queues with readers that wait for the next tick to look again.
    pub rescan: HashSet<QueueId>,
    /// What consumers with selectors may still look at in this turn.
    pub looks: selection::Looks,
    /// When queues are to be served again, whatever happens.
    pub wakes: Vec<(Instant, QueueId)>,
    /// Links with opened messages that may not be sent before their store is surely owned.
    pub(crate) held_back: HashSet<Seat>,
}

/// Links that put, and wait.
#[derive(Default)]
pub struct WaitingProducers {
    /// For room on their queue.
    pub(crate) waiting: HashMap<QueueId, HashSet<(usize, LinkId)>>,
    /// Queues that got room for them.
    pub freed: Vec<QueueId>,
    /// For their user's rate.
    pub paced: HashSet<(usize, LinkId)>,
    /// When those ask again.
    pub pace_at: Option<Instant>,
    /// For nothing any more: they went while messages they had settled were being sealed.
    pub departed: HashMap<(usize, u64, LinkId), Box<Producer>>,
}

/// The changes that a dispatcher has looked at.
#[derive(Default)]
pub struct Seen {
    pub(crate) definitions: u64,
    /// The generation of rights that its links were asked about last.
    pub authority: u64,
    /// The stores that have left, by their count, when its links to them were ended last.
    pub left_stores: u64,
}

/// An answer that waits for the journal.
pub struct Confirmation {
    pub(crate) ticket: Ticket,
    pub(crate) what: Confirmed,
}

/// Answers that wait for the journals, those of each store in the order of their tickets.
#[derive(Default)]
pub struct Confirmations(PerStore<VecDeque<Confirmation>>);

impl Confirmations {
    /// One more waits, for its store.
    pub fn push(&mut self, confirmation: Confirmation) {
        self.0.of(confirmation.ticket.store()).push_back(confirmation);
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.all().all(VecDeque::is_empty)
    }

    /// Whether one waits for that store.
    fn wait_for(&mut self, store: StoreNumber) -> bool {
        !self.0.of(store).is_empty()
    }

    /// Takes the next one that need wait no more.
    pub fn take_synced(&mut self, stores: &Stores) -> Option<Confirmed> {
        let is_synced = |first: &mut Confirmation| stores.is_synced(first.ticket);
        self.0.all_mut().find_map(|waiting| waiting.pop_front_if(is_synced)).map(|synced| synced.what)
    }

    /// Takes all that wait for a store, which will never sync them.
    pub fn forget(&mut self, store: StoreNumber) -> impl Iterator<Item = Confirmed> {
        std::mem::take(self.0.of(store)).into_iter().map(|confirmation| confirmation.what)
    }

    /// All that wait.
    pub fn iter(&self) -> impl Iterator<Item = &Confirmation> {
        self.0.all().flatten()
    }

    /// What the last one that waits for a store waits for.
    pub fn last_of(&mut self, store: StoreNumber) -> Option<Ticket> {
        self.0.of(store).back().map(|last| last.ticket)
    }
}

/// What is confirmed, and where that goes.
pub enum Confirmed {
    /// A put: accepted.
    Put(Receipt),
    /// A removal that the client wants confirmed before it forgets the delivery.
    Removal(Removal),
    /// What a channel's link has committed, up to that count; its attach, with none.
    Channel {
        /// The connection's place.
        key: usize,
        /// Which connection it was that had that place.
        generation: u64,
        /// The link.
        link: LinkId,
        /// The count.
        through: u64,
    },
    /// A channel's batch is noted: it goes out.
    Noted {
        /// The connection's place.
        key: usize,
        /// Which connection it was that had that place.
        generation: u64,
    },
    /// A unit of work is committed.
    Discharged(Box<Discharged>),
    /// What the connection caused to be defined or deleted: what it is told goes out.
    Defined {
        /// The connection's place.
        key: usize,
        /// Which connection it was that had that place.
        generation: u64,
    },
}

/// Where the confirmation of a removal goes.
#[derive(Clone, Copy)]
pub struct Removal {
    pub(crate) key: usize,
    pub(crate) generation: u64,
    pub(crate) link: LinkId,
    pub(crate) token: u64,
}

impl Local {
    /// What the turns of dispatcher `index` begin with.
    pub fn new(index: usize, manager: Arc<Manager>, mailbox: Arc<Mailbox>, now: Instant) -> Self {
        let meter = |kind| manager.workers.tasks.meter(kind, index);
        Self {
            index,
            meters: Meters { work: meter(TaskKind::Dispatcher), tls: meter(TaskKind::Tls) },
            now,
            wall_ms: wall_ms(manager.clock.wall()),
            random: manager.random(),
            manager,
            mailbox,
            journaling: Journaling::default(),
            channels: ChannelWork::default(),
            serving: Serving::default(),
            producers: WaitingProducers::default(),
            keyless: HashMap::default(),
            touched: Vec::new(),
            forwarding: Vec::new(),
            seen: Seen::default(),
            units: Units::default(),
        }
    }

    /// A turn begins: what the time is.
    pub fn look_at_the_clock(&mut self) {
        let clock = &self.manager.clock;
        (self.now, self.wall_ms) = (clock.now(), wall_ms(clock.wall()));
    }

    /// What a calendar says when this turn began.
    pub fn wall(&self) -> SystemTime {
        from_wall_ms(self.wall_ms)
    }

    /// Now, for what the queue manager puts by itself.
    pub fn moment(&self) -> Moment<'_> {
        Moment { manager: &self.manager, now: self.now, wall_ms: self.wall_ms }
    }

    /// What sealing takes.
    pub fn means(&mut self) -> Means<'_> {
        Means { manager: &self.manager, wall: self.wall(), random: &mut self.random }
    }

    /// As whom a connection that is no client's asks for devices: a number of its own for each.
    pub fn device_asker(&self, generation: u64) -> bulla_device::Asker {
        bulla_device::Asker::new((self.index as u64) << 48 | generation)
    }

    /// As whom a client's link asks for devices: a number for each user, so that users have their turns there, however
    /// many connections each of them has. A client that has not signed in has no keys here, and is one by connection.
    pub fn client_asker(&self, user: Option<&str>, generation: u64) -> bulla_device::Asker {
        match user {
            None => self.device_asker(generation),
            Some(user) => bulla_device::Asker::new(adapter::asker_of(user)),
        }
    }

    /// Has a producer that its user's rate leaves without credit looked at again then.
    pub fn pace(&mut self, at: Instant, key: usize, link: LinkId) {
        self.producers.paced.insert((key, link));
        self.producers.pace_at = Some(self.producers.pace_at.map_or(at, |other| other.min(at)));
    }

    /// Tells the operator of messages whose senders will never hear that they were refused: a line a tick, not a
    /// message.
    pub fn tell_of_dropped(&self) {
        let dropped = self.manager.counts.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            crate::warning!("{dropped} refused messages were settled by their senders: they are gone");
        }
    }

    /// After a change of definitions, who waits may wait no longer.
    pub fn notice_changes(&mut self, state: &mut State) {
        if self.seen.definitions == state.generations.definitions {
            return;
        }
        self.seen.definitions = state.generations.definitions;
        for (queue, consumers) in &mut self.serving.consumers {
            consumers.look_at_all();
            self.serving.list.add(*queue);
        }
        self.producers.freed.extend(self.producers.waiting.keys().copied());
    }

    /// Has `queue` served in this turn.
    pub fn serve(&mut self, queue: QueueId) {
        self.serving.list.add(queue);
    }

    /// Has `queue` served by all dispatchers with consumers of it.
    pub fn serve_everywhere(&mut self, queue: QueueId, state: &State) {
        self.serve(queue);
        let on = state.uses.get(&queue).map_or(0, |usage| usage.consumers_on);
        self.manager.post(on, self.index, || Notice::Ready(queue));
    }

    /// A message left `queue`: links that wait for room there are looked at.
    pub fn freed(&mut self, queue: QueueId, state: &mut State) {
        // None where the queue is gone.
        let waiters = state.uses.get_mut(&queue).map_or(0, |usage| std::mem::take(&mut usage.waiters_on));
        if waiters == 0 {
            return;
        }
        if waiters & (1 << self.index) != 0 {
            self.producers.freed.push(queue);
        }
        self.manager.post(waiters, self.index, || Notice::Freed(queue));
    }

    /// Has channels that pause looked at then.
    pub fn wake_at(&mut self, at: Instant) {
        self.channels.wake_at = Some(self.channels.wake_at.map_or(at, |other| other.min(at)));
    }

    /// Something was written that no client waits for: it goes to the journal soon.
    pub fn flush_soon(&mut self) {
        self.journaling.flush_by.get_or_insert(self.now + REMOVAL_FLUSH_WITHIN);
    }

    /// Remembers a producer that has no credit because its queue has no room.
    pub fn wait_for_room(&mut self, queue: QueueId, key: usize, link: LinkId, state: &mut State) {
        state.use_of(queue).waiters_on |= 1 << self.index;
        self.producers.waiting.entry(queue).or_default().insert((key, link));
    }

    pub(crate) fn keep_waiting(&mut self, queue: QueueId, waiting: HashSet<(usize, LinkId)>, state: &mut State) {
        if !waiting.is_empty() {
            state.use_of(queue).waiters_on |= 1 << self.index;
            self.producers.waiting.entry(queue).or_default().extend(waiting);
        }
    }

    /// Hands the open batch to the journal, collects what it has synced, and learns what became available.
    pub fn journal(&mut self, state: &mut State) {
        // A removal that no client waits for rides with the next put: a sync of its own would keep that put waiting.
        let due = self.journaling.flush_by.is_some_and(|by| by <= self.now);
        let all = due || self.journaling.urgent;
        if all {
            (self.journaling.flush_by, self.journaling.urgent) = (None, false);
        }
        let flushed = state.store.flush(self.now, |store| all || self.journaling.confirmations.wait_for(store));
        let result = flushed.and_then(|()| state.store.poll(self.now));
        if let Err(error) = result {
            // Nothing that is not synced will ever be confirmed: stopping is what keeps the promise.
            crate::alarm!("journal: {error}; stopping");
            crate::log::exit(crate::catalog::exit_codes::EXIT_JOURNAL);
        }
        self.manager.clone().let_failed_stores_go(state);
        state.raise_crossings(self.wall_ms);
        denials::raise_refused(&self.manager.clone(), state, self.wall_ms);
        reports::turn(state, &self.moment());
        triggering::turn(state, self.now, self.wall_ms);
        let mut ready = Vec::new();
        state.store.take_ready(&mut ready);
        for queue in ready {
            let usage = state.use_of(queue);
            usage.arrivals += 1;
            let on = usage.consumers_on;
            if on & (1 << self.index) != 0 {
                self.serve(queue);
            }
            if on == 0 {
                let manager = self.manager.clone();
                supervisor::trigger(&manager, state, queue);
            }
            self.manager.post(on, self.index, || Notice::Ready(queue));
        }
        let mut freed = Vec::new();
        state.store.take_freed(&mut freed);
        for queue in freed {
            self.freed(queue, state);
        }
        self.tell_of_gone(state);
    }

    /// Queues are gone that others get from or wait for: every dispatcher with such links looks at them, and ends them.
    pub fn tell_of_gone(&mut self, state: &mut State) {
        for (queue, on) in state.temporary.gone.drain(..) {
            if on & (1 << self.index) != 0 {
                self.serve(queue);
                self.producers.freed.push(queue);
            }
            self.manager.post(on, self.index, || Notice::Ready(queue));
            self.manager.post(on, self.index, || Notice::Freed(queue));
        }
    }

    /// The ring that the queue manager may use for this client.
    pub fn ring(&self, identity: &Identity) -> Result<Arc<Ring>, Refusal> {
        let user = identity.user.as_deref().filter(|_| identity.ring).ok_or_else(no_identity)?;
        self.manager.ring(user, self.now).map_err(|error| no_ring(user, &error))
    }

    /// What a client's own seals are judged by: its ring, without the keys where these are locked. A client that
    /// seals for itself need not have a ring here; then the form is checked, and the reader judges the rest.
    pub fn ring_without_keys(&mut self, identity: &Identity) -> Result<Option<Arc<Ring>>, Refusal> {
        let user = identity.user.as_deref().filter(|_| identity.ring).ok_or_else(no_identity)?;
        let refused = |error: &RingError| no_ring(user, error);
        match self.manager.ring(user, self.now) {
            Ok(ring) => Ok(Some(ring)),
            Err(RingError::Missing { .. }) => Ok(None),
            Err(error) if error.is_locked() => {
                let fresh = |(read_at, _): &&(Instant, _)| self.now.saturating_duration_since(*read_at) < KEYLESS_FOR;
                if let Some((_, ring)) = self.keyless.get(user).filter(fresh) {
                    return Ok(Some(ring.clone()));
                }
                let folder = self.manager.sealing.rings.path(user).map_err(|error| refused(&error))?;
                let ring = Arc::new(Ring::load_without_keys(&folder).map_err(|error| refused(&error))?);
                self.keyless.insert(user.to_owned(), (self.now, ring.clone()));
                Ok(Some(ring))
            }
            Err(error) => Err(refused(&error)),
        }
    }

    /// This dispatcher is no longer told of `queue`, unless another of its links needs it.
    pub fn forget_interest(&mut self, queue: QueueId, state: &mut State) {
        let is_wanted = self.channels.senders.contains_key(&queue) || self.serving.consumers.contains_key(&queue);
        if let Some(usage) = state.uses.get_mut(&queue).filter(|_| !is_wanted) {
            usage.consumers_on &= !(1 << self.index);
        }
    }

    /// A connection whose channel has something to do in this turn.
    pub fn channel_work(&mut self, key: usize) {
        if self.channels.due.last() != Some(&key) {
            self.channels.due.push(key);
        }
    }

    /// What a connection has to say goes out in this turn.
    pub fn touch(&mut self, key: usize) {
        self.touched.push(key);
    }

    /// Has a channel's batch sent once `ticket` is synced.
    pub fn confirm_channel(&mut self, ticket: Ticket, key: usize, generation: u64) {
        self.journaling.confirmations.push(Confirmation { ticket, what: Confirmed::Noted { key, generation } });
    }

    /// Has `queue` served then, whatever happens.
    pub fn serve_at(&mut self, at: Instant, queue: QueueId) {
        match self.serving.wakes.iter_mut().find(|(_, known)| *known == queue) {
            Some((known, _)) => *known = at.min(*known),
            None => self.serving.wakes.push((at, queue)),
        }
    }

    pub(crate) fn add_consumer(&mut self, queue: QueueId, seat: Seat, state: &mut State) {
        state.use_of(queue).consumers_on |= 1 << self.index;
        self.serving.consumers.entry(queue).or_default().add(seat);
        self.serving.list.add_for_credit(queue);
    }
}

/// The refusal of a client whose ring can't be used: it is not told where this machine keeps it.
pub fn no_ring(user: &str, error: &RingError) -> Refusal {
    Refusal::security("key-ring", format!("{user}: {}", error.without_directories()))
}

fn no_identity() -> Refusal {
    Refusal::security("no-identity", "a protected queue asks for a user proved by certificate, SCRAM or TLS")
}

/// A queue went while a link had it open: a temporary one, with the link that it was made for.
pub fn queue_is_gone(opened: &str) -> Refusal {
    Refusal::new(reason::Q_DELETED, format!("{opened} is gone"))
}
