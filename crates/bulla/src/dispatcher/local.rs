//! What one dispatcher's turns share, its connections aside; and what a turn does with a link that ends.

use super::attach;
use super::consumers::{Consumers, Seat};
use super::peer::{Link, Peer};
use super::put::{self, Producer, Receipt};
use super::sealing::Means;
use super::serve_list::ServeList;
use super::unit_of_work::{self, Discharged, Units};
use super::{authority, connections, get, resume, selection};
use crate::catalog::status::TaskKind;
use crate::channel::calling::Calling;
use crate::channel::registry::Place;
use crate::channel::{caller, receiver, sender, supervisor};
use crate::front::{LinkId, SessionId};
use crate::mailbox::{Mailbox, Notice};
use crate::manager::{Manager, State};
use crate::reason::{self, Refusal};
use crate::reports::{self, Moment};
use crate::resumable::Over;
use crate::sign_in::verdict::Identity;
use crate::task::TaskMeter;
use crate::wall_clock::wall_ms;
use crate::{adapter, triggering};
use bulla_queue::{QueueId, Ticket};
use bulla_seal::ring::{Ring, RingError};
use hashbrown::{HashMap, HashSet};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// How long a removal that no client waits for may wait for company on its way to the journal.
const REMOVAL_FLUSH_WITHIN: Duration = Duration::from_millis(1);
/// How long a ring that was read without its keys is good for.
const KEYLESS_FOR: Duration = Duration::from_secs(5);

/// What one dispatcher's turns share, its connections aside.
pub(crate) struct Local {
    pub(crate) index: usize,
    pub(crate) manager: Arc<Manager>,
    /// What this dispatcher does, and of it the TLS of its connections.
    pub(super) meter: Arc<TaskMeter>,
    pub(crate) tls_meter: Arc<TaskMeter>,
    pub(crate) now: Instant,
    pub(crate) wall: SystemTime,
    pub(crate) wall_ms: u64,
    pub(crate) random: crate::random::Random,
    pub(super) mailbox: Arc<Mailbox>,
    pub(crate) confirmations: VecDeque<Confirmation>,
    /// Links on which channels receive, and those of them that have something ready in this turn.
    pub(crate) receivers: HashSet<(usize, LinkId)>,
    pub(crate) receiving: Vec<(usize, LinkId)>,
    /// When a channel that pauses wants to be looked at again.
    pub(super) wake_at: Option<Instant>,
    pub(super) consumers: HashMap<QueueId, Box<Consumers>>,
    pub(super) waiting: HashMap<QueueId, HashSet<(usize, LinkId)>>,
    /// Queues with readers that wait for the next tick to look again.
    pub(crate) rescan: HashSet<QueueId>,
    /// Rings without their keys, to check clients' own seals by, and when they were read.
    pub(super) keyless: HashMap<String, (Instant, Arc<Ring>)>,
    pub(super) serve: ServeList,
    /// What consumers with selectors may still look at in this turn.
    pub(crate) looks: selection::Looks,
    pub(super) freed: Vec<QueueId>,
    pub(super) touched: Vec<usize>,
    pub(super) generation: u64,
    pub(super) definitions_seen: u64,
    pub(super) authority_seen: u64,
    /// Something in the open batch is waited for.
    pub(crate) urgent: bool,
    /// When the open batch goes to the journal at the latest.
    pub(super) flush_by: Option<Instant>,
    /// Which connection sends from a transmission queue.
    pub(crate) senders: HashMap<QueueId, usize>,
    /// Connections whose channels have something to do in this turn.
    pub(super) channels: Vec<usize>,
    /// Producers that get credit again when their user's rate has some, and when they ask.
    pub(super) paced: HashSet<(usize, LinkId)>,
    pub(super) pace_at: Option<Instant>,
    /// When queues are to be served again, whatever happens.
    pub(super) wakes: Vec<(Instant, QueueId)>,
    /// Producers that went while messages they had settled were being sealed.
    pub(super) departed: HashMap<(usize, u64, LinkId), Box<Producer>>,
    /// Units of work that are open.
    pub(crate) units: Units,
}

/// An answer that waits for the journal.
pub(crate) struct Confirmation {
    pub(crate) ticket: Ticket,
    pub(crate) what: Confirmed,
}

/// What is confirmed, and where that goes.
pub(crate) enum Confirmed {
    /// A put: accepted.
    Put(Receipt),
    /// A removal that the client wants confirmed before it forgets the delivery.
    Removal(Removal),
    /// What a channel's link has committed, up to that count; its attach, with none.
    Channel { key: usize, generation: u64, link: LinkId, through: u64 },
    /// A channel's batch is noted: it goes out.
    Noted { key: usize, generation: u64 },
    /// A unit of work is committed.
    Discharged(Box<Discharged>),
    /// What the connection caused to be defined or deleted: what it is told goes out.
    Defined { key: usize, generation: u64 },
}

/// Where the confirmation of a removal goes.
#[derive(Clone, Copy)]
pub(crate) struct Removal {
    pub(super) key: usize,
    pub(super) generation: u64,
    pub(super) link: LinkId,
    pub(super) token: u64,
}

impl Local {
    /// What the turns of dispatcher `index` begin with.
    pub(super) fn new(
        index: usize,
        manager: Arc<Manager>,
        mailbox: Arc<Mailbox>,
        generation: u64,
        now: Instant,
    ) -> Self {
        Self {
            index,
            meter: manager.tasks.meter(TaskKind::Dispatcher, index),
            tls_meter: manager.tasks.meter(TaskKind::Tls, index),
            manager,
            now,
            wall: SystemTime::now(),
            wall_ms: 0,
            random: crate::random::Random::system(),
            mailbox,
            confirmations: VecDeque::new(),
            receivers: HashSet::new(),
            receiving: Vec::new(),
            wake_at: None,
            consumers: HashMap::new(),
            waiting: HashMap::new(),
            rescan: HashSet::new(),
            keyless: HashMap::new(),
            serve: ServeList::default(),
            looks: selection::Looks::default(),
            freed: Vec::new(),
            touched: Vec::new(),
            generation,
            definitions_seen: 0,
            authority_seen: 0,
            urgent: false,
            flush_by: None,
            senders: HashMap::new(),
            channels: Vec::new(),
            paced: HashSet::new(),
            pace_at: None,
            wakes: Vec::new(),
            departed: HashMap::new(),
            units: Units::default(),
        }
    }

    pub(super) fn look_at_the_clock(&mut self) {
        self.now = Instant::now();
        self.wall = SystemTime::now();
        self.wall_ms = wall_ms(self.wall);
    }

    /// Now, for what the queue manager puts by itself.
    pub(crate) fn moment(&self) -> Moment<'_> {
        Moment { manager: &self.manager, now: self.now, wall_ms: self.wall_ms }
    }

    /// What sealing takes.
    pub(crate) fn means(&mut self) -> Means<'_> {
        Means { manager: &self.manager, wall: self.wall, random: &mut self.random }
    }

    /// As whom a connection that is no client's asks for devices: a number of its own for each.
    pub(crate) fn device_asker(&self, generation: u64) -> bulla_device::Asker {
        bulla_device::Asker::new((self.index as u64) << 48 | generation)
    }

    /// As whom a client's link asks for devices: a number for each user, so that users have their turns there, however
    /// many connections each of them has. A client that has not signed in has no keys here, and is one by connection.
    pub(crate) fn client_asker(&self, peer: &Peer) -> bulla_device::Asker {
        match &peer.identity.user {
            None => self.device_asker(peer.generation),
            Some(user) => bulla_device::Asker::new(adapter::asker_of(user)),
        }
    }

    /// Has a producer that its user's rate leaves without credit looked at again then.
    pub(crate) fn pace(&mut self, at: Instant, key: usize, link: LinkId) {
        self.paced.insert((key, link));
        self.pace_at = Some(self.pace_at.map_or(at, |other| other.min(at)));
    }

    /// Tells the operator of messages whose senders will never hear that they were refused: a line a tick, not a
    /// message.
    pub(super) fn tell_of_dropped(&self) {
        let dropped = self.manager.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            crate::warning!("{dropped} refused messages were settled by their senders: they are gone");
        }
    }

    /// After a change of definitions, who waits may wait no longer.
    pub(super) fn notice_changes(&mut self, state: &mut State) {
        if self.definitions_seen == state.generation {
            return;
        }
        self.definitions_seen = state.generation;
        for (queue, consumers) in &mut self.consumers {
            consumers.look_at_all();
            self.serve.add(*queue);
        }
        self.freed.extend(self.waiting.keys().copied());
    }

    /// Has `queue` served in this turn.
    pub(crate) fn serve(&mut self, queue: QueueId) {
        self.serve.add(queue);
    }

    /// Has `queue` served by all dispatchers with consumers of it.
    pub(crate) fn serve_everywhere(&mut self, queue: QueueId, state: &State) {
        self.serve(queue);
        let on = state.uses.get(&queue).map_or(0, |usage| usage.consumers_on);
        self.manager.post(on, self.index, || Notice::Ready(queue));
    }

    /// Has the queues served that a connection gets from.
    pub(crate) fn serve_all_of(&mut self, peer: &Peer) {
        for link in peer.links.values() {
            if let Link::Consumer(consumer) = link {
                self.serve(consumer.route.queue);
            }
        }
    }

    /// A message left `queue`: links that wait for room there are looked at.
    pub(crate) fn freed(&mut self, queue: QueueId, state: &mut State) {
        // None where the queue is gone.
        let waiters = state.uses.get_mut(&queue).map_or(0, |usage| std::mem::take(&mut usage.waiters_on));
        if waiters == 0 {
            return;
        }
        if waiters & (1 << self.index) != 0 {
            self.freed.push(queue);
        }
        self.manager.post(waiters, self.index, || Notice::Freed(queue));
    }

    /// Has channels that pause looked at then.
    pub(crate) fn wake_at(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |other| other.min(at)));
    }

    /// Something was written that no client waits for: it goes to the journal soon.
    pub(crate) fn flush_soon(&mut self) {
        self.flush_by.get_or_insert(self.now + REMOVAL_FLUSH_WITHIN);
    }

    /// Remembers a producer that has no credit because its queue has no room.
    pub(crate) fn wait_for_room(&mut self, queue: QueueId, key: usize, link: LinkId, state: &mut State) {
        state.use_of(queue).waiters_on |= 1 << self.index;
        self.waiting.entry(queue).or_default().insert((key, link));
    }

    pub(super) fn keep_waiting(&mut self, queue: QueueId, waiting: HashSet<(usize, LinkId)>, state: &mut State) {
        if !waiting.is_empty() {
            state.use_of(queue).waiters_on |= 1 << self.index;
            self.waiting.entry(queue).or_default().extend(waiting);
        }
    }

    /// Hands the open batch to the journal, collects what it has synced, and learns what became available.
    pub(super) fn journal(&mut self, state: &mut State) {
        // A removal that no client waits for rides with the next put: a sync of its own would keep that put waiting.
        let due = self.flush_by.is_some_and(|by| by <= self.now);
        let flushed = if due || self.urgent || !self.confirmations.is_empty() {
            (self.flush_by, self.urgent) = (None, false);
            state.store.flush(self.now)
        } else {
            Ok(())
        };
        let result = flushed.and_then(|()| state.store.poll(self.now));
        if let Err(error) = result {
            // Nothing that is not synced will ever be confirmed: stopping is what keeps the promise.
            crate::alarm!("journal: {error}; stopping");
            crate::log::exit(crate::catalog::exit_codes::EXIT_JOURNAL);
        }
        state.raise_crossings(self.wall_ms);
        authority::raise_refused(&self.manager.clone(), state, self.wall_ms);
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
    pub(super) fn tell_of_gone(&mut self, state: &mut State) {
        for (queue, on) in state.gone.drain(..) {
            if on & (1 << self.index) != 0 {
                self.serve(queue);
                self.freed.push(queue);
            }
            self.manager.post(on, self.index, || Notice::Ready(queue));
            self.manager.post(on, self.index, || Notice::Freed(queue));
        }
    }

    /// Ends the links of this dispatcher that get from a queue which is gone.
    pub(super) fn end_consumers(&mut self, peers: &mut Slab<Peer>, state: &mut State, queue: QueueId) {
        let Some(consumers) = self.consumers.remove(&queue) else { return };
        for Seat { key, generation, link } in consumers.seats() {
            let Some(peer) = peers.get_mut(key).filter(|peer| peer.generation == generation) else { continue };
            let Some(Link::Consumer(consumer)) = peer.links.get(&link) else { continue };
            let refusal = queue_is_gone(&consumer.opened);
            self.detach(peer, state, link, &refusal);
        }
    }

    pub(super) fn credit(&mut self, peer: &mut Peer, link: LinkId, drain: bool) {
        if let Some(Link::Consumer(consumer)) = peer.links.get_mut(&link) {
            let has_credit = peer.front.credit(link) > 0;
            consumer.draining = drain && has_credit;
            if drain && !has_credit {
                peer.front.drained(link);
            }
            let (queue, takes_next, drains) = (consumer.route.queue, consumer.takes_next(), consumer.draining);
            if let Some(consumers) = self.consumers.get_mut(&queue).filter(|_| has_credit) {
                consumers.has_credit(peer.seat(link), takes_next, drains);
                self.serve.add_for_credit(queue);
            }
        } else if let Some(sending) = &peer.sending {
            self.serve(sending.queue);
        }
    }

    /// The ring that the queue manager may use for this client.
    pub(crate) fn ring(&self, identity: &Identity) -> Result<Arc<Ring>, Refusal> {
        let user = identity.user.as_deref().filter(|_| identity.ring).ok_or_else(no_identity)?;
        self.manager.ring(user, self.now).map_err(|error| no_ring(user, &error))
    }

    /// What a client's own seals are judged by: its ring, without the keys where these are locked. A client that
    /// seals for itself need not have a ring here; then the form is checked, and the reader judges the rest.
    pub(crate) fn ring_without_keys(&mut self, identity: &Identity) -> Result<Option<Arc<Ring>>, Refusal> {
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
                let folder = self.manager.rings.path(user).map_err(|error| refused(&error))?;
                let ring = Arc::new(Ring::load_without_keys(&folder).map_err(|error| refused(&error))?);
                self.keyless.insert(user.to_owned(), (self.now, ring.clone()));
                Ok(Some(ring))
            }
            Err(error) => Err(refused(&error)),
        }
    }

    /// Ends a link with an error.
    pub(crate) fn detach(&mut self, peer: &mut Peer, state: &mut State, link: LinkId, refusal: &Refusal) {
        self.detach_with(peer, state, link, refusal.to_amqp());
    }

    pub(crate) fn detach_with(&mut self, peer: &mut Peer, state: &mut State, link: LinkId, error: bulla_amqp::Error) {
        self.forget(peer, state, link, false);
        peer.front.detach(link, error);
        self.touched.push(peer.key);
    }

    /// Gives back all that a link held; what was delivered and not settled counts as `failed` or not.
    pub(super) fn forget(&mut self, peer: &mut Peer, state: &mut State, link: LinkId, failed: bool) {
        let gone = peer.links.remove(&link);
        if let Some(user) = peer.user.filter(|_| gone.as_ref().is_some_and(Link::is_clients)) {
            let granted = if let Some(Link::Producer(producer)) = &gone { producer.granted } else { 0 };
            state.users.detached(user, granted);
        }
        match gone {
            Some(Link::Producer(mut producer)) => {
                producer.resumable.iter().for_each(|link| state.resumable.end(link));
                let has_lost = put::forget(&mut producer, self, state);
                if let Some(route) = &producer.route {
                    self.freed(route.queue, state);
                    state.left(route.queue);
                }
                self.end_dynamic(producer.dynamic, state);
                if !producer.pending.is_empty() {
                    // Their sender has settled them: they are put when their adapters are done.
                    self.departed.insert((peer.key, peer.generation, link), producer);
                }
                if has_lost {
                    unit_of_work::go_on(peer, self, state);
                }
            }
            Some(Link::Consumer(mut consumer)) => {
                consumer.resumable.iter().for_each(|link| state.resumable.end(link));
                get::forget(&mut consumer, peer.user, self.wall_ms, state, failed);
                let queue = consumer.route.queue;
                if let Some(consumers) = self.consumers.get_mut(&queue) {
                    consumers.remove(peer.seat(link));
                    if consumers.is_empty() {
                        self.consumers.remove(&queue);
                        self.forget_interest(queue, state);
                    }
                }
                if consumer.route.has_groups && !consumer.browse {
                    // Its groups are the others' now.
                    self.serve_everywhere(queue, state);
                }
                self.end_dynamic(consumer.dynamic, state);
                if let Some(subscription) = &consumer.subscription {
                    state.left_subscription(queue, subscription.durable.as_deref(), false);
                }
                state.left(queue);
            }
            Some(Link::Receiving(receiving)) => receiver::forget(receiving, peer, self, state, link),
            Some(Link::Coordinator(_)) => unit_of_work::forget(peer, self, state, link),
            Some(Link::Sending(_)) | None => {}
        }
    }

    /// Gives back all that a connection's links held; what was delivered and not settled counts as `failed` or not: it
    /// does not where it is the queue manager that ends the connection.
    pub(super) fn forget_all(&mut self, peer: &mut Peer, state: &mut State, failed: bool) {
        if failed {
            self.suspend_all(peer, state);
        }
        resume::over(peer, self, state, None);
        let links: Vec<LinkId> = peer.links.keys().copied().collect();
        for link in links {
            self.forget(peer, state, link, failed);
        }
        for queue in std::mem::take(&mut peer.dynamic) {
            state.end_dynamic(queue);
        }
        connections::leave_sole(peer, self, state);
        let why = peer.closed_by.clone().or_else(|| peer.broken.clone());
        match peer.calling.take() {
            Some(calling) if peer.sending.is_none() => {
                let broken = || Refusal::new(reason::CONNECTION_BROKEN, why.unwrap_or_else(|| "the call ended".into()));
                let told = state.channels.get(&calling.id).is_some_and(|instance| instance.status.stop_requested);
                let Calling { id, failure, .. } = *calling;
                let refusal = (!told).then(|| failure.unwrap_or_else(broken));
                let place = Place { dispatcher: self.index, peer: peer.key, generation: peer.generation };
                supervisor::ended(&self.moment(), state, &id, Some(place), refusal);
            }
            // A channel that has not come to run yet ends once, for the reason that the call has.
            calling => {
                if let Some(refusal) = calling.and_then(|calling| calling.failure) {
                    sender::failed(peer, refusal);
                }
                sender::over(peer, self, state, why);
            }
        }
    }

    /// Keeps what is unsettled on links that may be resumed, of a connection that is over.
    pub(super) fn suspend_all(&self, peer: &mut Peer, state: &mut State) {
        let links: Vec<LinkId> = peer.links.keys().copied().collect();
        for link in links {
            resume::suspend(peer, self, state, link, Over::Connection);
        }
    }

    pub(super) fn forget_session(
        &mut self,
        peer: &mut Peer,
        state: &mut State,
        session: SessionId,
        error: Option<&bulla_amqp::Error>,
    ) {
        let links: Vec<LinkId> =
            peer.links.iter().filter(|(_, link)| link.session() == session).map(|(id, _)| *id).collect();
        resume::over(peer, self, state, Some(session));
        for link in links {
            if let Some(Link::Sending(_)) = peer.links.get(&link) {
                sender::detached(peer, self, state, link, error);
            }
            resume::suspend(peer, self, state, link, Over::Session);
            self.forget(peer, state, link, false);
        }
        caller::detached(peer, self, error);
    }

    pub(super) fn end_dynamic(&mut self, queue: Option<QueueId>, state: &mut State) {
        if let Some(queue) = queue {
            state.end_dynamic(queue);
        }
    }

    /// A link closed that wanted its permanent dynamic queue to go with it. No answer is due: where the queue stays,
    /// the log says why.
    pub(super) fn delete_closed(&mut self, state: &mut State, queue: &str, how: attach::Deletes) {
        let purge = how == attach::Deletes::WithMessages;
        match state.delete_permanent(queue, purge) {
            Ok(()) => self.manager.ring_all(),
            Err(refusal) if state.peer_lines.may_write(self.now) => {
                crate::note!(
                    queue,
                    reason = refusal.reason.code,
                    cause = refusal.cause,
                    "{queue} was to go with its link, and stays: {refusal}"
                );
            }
            Err(_) => {}
        }
    }

    /// This dispatcher is no longer told of `queue`, unless another of its links needs it.
    pub(crate) fn forget_interest(&mut self, queue: QueueId, state: &mut State) {
        let is_wanted = self.senders.contains_key(&queue) || self.consumers.contains_key(&queue);
        if let Some(usage) = state.uses.get_mut(&queue).filter(|_| !is_wanted) {
            usage.consumers_on &= !(1 << self.index);
        }
    }

    /// A connection whose channel has something to do in this turn.
    pub(crate) fn channel_work(&mut self, key: usize) {
        if self.channels.last() != Some(&key) {
            self.channels.push(key);
        }
    }

    /// What a connection has to say goes out in this turn.
    pub(crate) fn touch(&mut self, key: usize) {
        self.touched.push(key);
    }

    /// Where this connection has caused something to be defined or deleted, holds what it is told until the journal has
    /// synced that.
    pub(super) fn hold(&mut self, peer: &mut Peer, state: &mut State) {
        let Some(ticket) = state.noted.take_ticket().filter(|ticket| *ticket > state.store.synced()) else { return };
        peer.held += 1;
        let what = Confirmed::Defined { key: peer.key, generation: peer.generation };
        self.confirmations.push_back(Confirmation { ticket, what });
    }

    /// Has a channel's batch sent once `ticket` is synced.
    pub(crate) fn confirm_channel(&mut self, ticket: Ticket, key: usize, generation: u64) {
        self.confirmations.push_back(Confirmation { ticket, what: Confirmed::Noted { key, generation } });
    }

    /// Has `queue` served then, whatever happens.
    pub(crate) fn serve_at(&mut self, at: Instant, queue: QueueId) {
        match self.wakes.iter_mut().find(|(_, known)| *known == queue) {
            Some((known, _)) => *known = at.min(*known),
            None => self.wakes.push((at, queue)),
        }
    }

    pub(super) fn add_consumer(&mut self, queue: QueueId, seat: Seat, state: &mut State) {
        state.use_of(queue).consumers_on |= 1 << self.index;
        self.consumers.entry(queue).or_default().add(seat);
        self.serve.add_for_credit(queue);
    }
}

/// The refusal of a client whose ring can't be used: it is not told where this machine keeps it.
pub(crate) fn no_ring(user: &str, error: &RingError) -> Refusal {
    Refusal::security("key-ring", format!("{user}: {}", error.without_directories()))
}

fn no_identity() -> Refusal {
    Refusal::security("no-identity", "a protected queue asks for a user proved by certificate, SCRAM or TLS")
}

/// A queue went while a link had it open: a temporary one, with the link that it was made for.
pub(super) fn queue_is_gone(opened: &str) -> Refusal {
    Refusal::new(reason::Q_DELETED, format!("{opened} is gone"))
}
