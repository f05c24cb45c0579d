//! A dispatcher: one thread that owns sockets and connection state.
//!
//! A turn has three parts. *Read*: bytes of ready sockets go into the front ends. *Work*, under the
//! queues' lock: their events become puts and removals, synced puts are confirmed, and queues are
//! served to consumers that have credit. *Write*: what the front ends have goes out.

mod attach;
pub(crate) mod authority;
#[cfg(test)]
mod backlog_tests;
mod calls;
#[cfg(test)]
mod caused_tests;
pub(crate) mod connections;
mod consumers;
#[cfg(test)]
mod error_queue_tests;
pub(crate) mod get;
#[cfg(test)]
pub(crate) mod harness;
pub(crate) mod passed_over;
pub(crate) mod peer;
mod precedence;
pub(crate) mod publish;
#[cfg(test)]
mod publish_model;
pub(crate) mod put;
pub(crate) mod resume;
mod sasl;
pub(crate) mod sealing;
pub(crate) mod selection;
mod serve_list;
mod shares;
mod signatures;
mod socket;
pub(crate) mod subscribe;
pub mod tls_socket;
pub(crate) mod unit_of_work;
pub use socket::Moved;

use crate::arriving::{Line, Share};
use crate::catalog::status::TaskKind;
use crate::channel::caller::Calling;
use crate::channel::registry::Place;
use crate::channel::{caller, receiver, sender, supervisor};
use crate::connections::Question;
use crate::front::{Event, Front, LinkId, SessionId};
use crate::mailbox::{Left, Mailbox, Notice, WAKE_UP};
use crate::manager::{Manager, State};
use crate::reason::{self, Refusal};
use crate::resumable::Over;
use crate::sign_in::verdict::Identity;
use crate::task::TaskMeter;
use crate::tls::Tls;
use crate::wall_clock::wall_ms;
use crate::{adapter, reports, triggering};
use bulla_amqp::DeliveryState;
use bulla_device::role::{self, Role};
use bulla_device::scheduler::Answer;
use bulla_queue::{PutError, QueueId, Ticket};
use bulla_seal::ring::{Ring, RingError};
use consumers::{Consumers, Looked, Seat};
use hashbrown::{HashMap, HashSet};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use peer::{Link, Peer};
use precedence::Precedence;
use put::{Producer, Receipt};
use serve_list::{Asked, ServeList};
use shares::Shares;
use signatures::Signatures;
use slab::Slab;
use socket::Socket;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use unit_of_work::{Discharged, Units};

/// Connections of one dispatcher; more are refused with 2025.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Handshakes of unauthenticated clients that one turn signs for where a user may want something: as many as an
/// accelerator has lanes.
const SIGNATURES_MAX: usize = 8;
/// Looks at what is ready, before a turn, that find unauthenticated clients alone.
const LOOKS_MAX: usize = 8;
/// How often timers, expiry and messages that are stuck are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long a removal that no client waits for may wait for company on its way to the journal.
const REMOVAL_FLUSH_WITHIN: Duration = Duration::from_millis(1);
/// Expired messages removed at one tick.
const SWEEP_MAX: usize = 10_000;
/// Expired messages removed in each turn: those that live shorter than a tick do not pile up until it comes.
const EXPIRED_PER_TURN: usize = 64;
/// Bytes that one read may bring: room that all connections of a dispatcher read into, one after the other. It stays in
/// the processor's cache.
const READ_BYTES: usize = 256 << 10;
/// Connections that one turn hears of from the system. The others have the next turn: what a turn reads is written out
/// while it still is in the processor's cache, and a thousand busy connections do not have all that they read in memory
/// at once.
const READY_MAX: usize = 32;
/// Messages sent to the consumers of one queue before the next queue has its turn.
const SERVE_MAX: usize = 512;
/// How long a ring that was read without its keys is good for.
const KEYLESS_FOR: Duration = Duration::from_secs(5);
/// How long a connection that is over may take to take what is still to be sent.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);
/// How long connections may take to close once the queue manager stops.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

const LISTEN_CLEAR: Token = Token(usize::MAX - 1);
const LISTEN_TLS: Token = Token(usize::MAX - 2);

/// A dispatcher: the sockets it owns and everything its turns need.
pub(crate) struct Dispatcher {
    poll: Poll,
    /// The listeners; none once the queue manager stops.
    ports: Vec<ListenPort>,
    peers: Slab<Peer>,
    active: Vec<usize>,
    /// What is read, until its connection's front end has taken it.
    room: Box<[u8]>,
    local: Local,
    notices: Vec<Notice>,
    /// Administrators that wait to be told of the connections; answered without the queues' lock.
    questions: Vec<Question>,
    signatures: Signatures,
    /// Connections that are not read, because too much is arriving on all of them.
    line: Line,
    /// Who has signed in goes before who has not.
    precedence: Precedence,
    /// None of those who have signed in takes much more of the time than another.
    shares: Shares,
    /// What the journal's thread does, and the processor time that it had taken when that was looked at last.
    journal_meter: Arc<TaskMeter>,
    journal_cpu_ns: u64,
    /// Connections that were not read in this turn, because their users have had their share.
    not_read: Vec<usize>,
    /// Accepting failed for want of something: it is tried again at the next tick.
    accept_again: bool,
    next_tick: Instant,
    stop_by: Option<Instant>,
    /// Connections without a socket.
    #[cfg(test)]
    joined: Vec<usize>,
}

/// A listener.
struct ListenPort {
    listener: TcpListener,
    token: Token,
    /// What connections are wrapped in, where they are.
    tls: Option<Arc<Tls>>,
    /// A connection may wait to be accepted.
    pending: bool,
}

/// What one dispatcher's turns share, its connections aside.
pub(crate) struct Local {
    pub(crate) index: usize,
    pub(crate) manager: Arc<Manager>,
    /// What this dispatcher does, and of it the TLS of its connections.
    meter: Arc<TaskMeter>,
    pub(crate) tls_meter: Arc<TaskMeter>,
    pub(crate) now: Instant,
    pub(crate) wall: SystemTime,
    pub(crate) wall_ms: u64,
    pub(crate) random: crate::random::Random,
    mailbox: Arc<Mailbox>,
    pub(crate) confirmations: VecDeque<Confirmation>,
    /// Links on which channels receive, and those of them that have something ready in this turn.
    pub(crate) receivers: HashSet<(usize, LinkId)>,
    pub(crate) receiving: Vec<(usize, LinkId)>,
    /// When a channel that pauses wants to be looked at again.
    wake_at: Option<Instant>,
    consumers: HashMap<QueueId, Box<Consumers>>,
    waiting: HashMap<QueueId, HashSet<(usize, LinkId)>>,
    /// Queues with readers that wait for the next tick to look again.
    pub(crate) rescan: HashSet<QueueId>,
    /// Rings without their keys, to check clients' own seals by, and when they were read.
    keyless: HashMap<String, (Instant, Arc<Ring>)>,
    serve: ServeList,
    /// What consumers with selectors may still look at in this turn.
    pub(crate) looks: selection::Looks,
    freed: Vec<QueueId>,
    touched: Vec<usize>,
    generation: u64,
    definitions_seen: u64,
    authority_seen: u64,
    /// Something in the open batch is waited for.
    pub(crate) urgent: bool,
    /// When the open batch goes to the journal at the latest.
    flush_by: Option<Instant>,
    /// Which connection sends from a transmission queue.
    pub(crate) senders: HashMap<QueueId, usize>,
    /// Connections whose channels have something to do in this turn.
    channels: Vec<usize>,
    /// Producers that get credit again when their user's rate has some, and when they ask.
    paced: HashSet<(usize, LinkId)>,
    pace_at: Option<Instant>,
    /// When queues are to be served again, whatever happens.
    wakes: Vec<(Instant, QueueId)>,
    /// Producers that went while messages they had settled were being sealed.
    departed: HashMap<(usize, u64, LinkId), Box<Producer>>,
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
    key: usize,
    generation: u64,
    link: LinkId,
    token: u64,
}

impl Dispatcher {
    /// A dispatcher over its listeners.
    pub(crate) fn new(
        index: usize,
        manager: Arc<Manager>,
        Left { poll, generation }: Left,
        mailbox: Arc<Mailbox>,
        clear: Option<TcpListener>,
        tls: Option<(TcpListener, Arc<Tls>)>,
    ) -> io::Result<Self> {
        let port = |token, tls| move |listener| ListenPort { listener, token, tls, pending: false };
        let clear = clear.map(port(LISTEN_CLEAR, None));
        let tls = tls.map(|(listener, tls)| port(LISTEN_TLS, Some(tls))(listener));
        let mut ports: Vec<ListenPort> = clear.into_iter().chain(tls).collect();
        for ListenPort { listener, token, .. } in &mut ports {
            poll.registry().register(listener, *token, Interest::READABLE)?;
        }
        let now = Instant::now();
        let signatures = Signatures::new(mailbox.clone());
        let journal_meter = manager.tasks.meter(TaskKind::Journal, 0);
        Ok(Self {
            poll,
            ports,
            peers: Slab::new(),
            active: Vec::new(),
            room: vec![0; READ_BYTES].into(),
            local: Local {
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
            },
            notices: Vec::new(),
            questions: Vec::new(),
            signatures,
            line: Line::default(),
            precedence: Precedence::default(),
            shares: Shares::default(),
            journal_meter,
            journal_cpu_ns: 0,
            not_read: Vec::new(),
            accept_again: false,
            next_tick: now,
            stop_by: None,
            #[cfg(test)]
            joined: Vec::new(),
        })
    }

    /// Runs until every connection is gone, and the queue manager stops or has no place for this dispatcher any more.
    pub(crate) fn run(mut self) -> io::Result<Left> {
        let mut events = Events::with_capacity(READY_MAX);
        loop {
            let wakes = self.local.wakes.iter().map(|(at, _)| *at).chain(self.local.wake_at).chain(self.local.pace_at);
            let work_due = self.local.flush_by.into_iter().chain(wakes).min();
            let due = work_due.map_or(self.next_tick, |at| at.min(self.next_tick));
            let had_work = self.has_work();
            let timeout = if had_work { Duration::ZERO } else { due.saturating_duration_since(Instant::now()) };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let begun = self.local.meter.begin();
            self.local.look_at_the_clock();
            let has_come_due = work_due.is_some_and(|at| at <= self.local.now);
            let is_ready = !events.is_empty();
            let mut more_ready = self.note_readiness(&events);
            for _ in 1..LOOKS_MAX {
                if !more_ready || !self.precedence.is_somebody_known() || self.hears_of_somebody_known(&events) {
                    break;
                }
                match self.poll.poll(&mut events, Some(Duration::ZERO)) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                    result => result?,
                }
                more_ready = self.note_readiness(&events);
            }
            self.turn(more_ready);
            // One that only looks after timers is no request.
            if had_work || has_come_due || is_ready {
                let took = self.local.meter.end(begun);
                self.local.meter.request(took);
                self.local.meter.set_connections(self.peers.len());
            }
            if self.is_done() || self.may_leave() {
                return Ok(Left { poll: self.poll, generation: self.local.generation });
            }
        }
    }

    /// Whether this one is surplus and nothing ties it to its place: then its mailbox is closed.
    fn may_leave(&self) -> bool {
        let local = &self.local;
        let is_surplus = || local.index >= local.manager.mailboxes.wanted();
        is_surplus()
            && self.peers.is_empty()
            && local.departed.is_empty()
            && local.confirmations.is_empty()
            && local.serve.is_empty()
            && local.flush_by.is_none()
            && local.mailbox.close_if(is_surplus)
    }

    fn has_work(&self) -> bool {
        !self.active.is_empty() || !self.local.serve.is_empty() || self.any_pending()
    }

    fn any_pending(&self) -> bool {
        self.ports.iter().any(|port| port.pending)
    }

    /// One turn; `more_ready` where the system may know of more connections than it has told.
    fn turn(&mut self, more_ready: bool) {
        self.read(more_ready);
        self.work();
        self.write();
        self.precedence.end(|| self.local.now.elapsed());
        self.resume();
        self.active.retain(|&key| {
            let Some(peer) = self.peers.get_mut(key) else { return false };
            let goes_on = peer.wants_to_read() || peer.wants_to_write() || peer.is_over();
            (peer.listed, peer.active) = (goes_on, goes_on);
            goes_on
        });
    }

    fn read(&mut self, more_ready: bool) {
        self.resume();
        let (mut known, mut unauthenticated) = (0, 0);
        for key in &self.active {
            if let Some(peer) = self.peers.get(*key).filter(|peer| peer.wants_to_read()) {
                *(if peer.is_unauthenticated() { &mut unauthenticated } else { &mut known }) += 1;
            }
        }
        let accepts = if self.any_pending() { self.precedence.accepts(unauthenticated, self.local.now) } else { 0 };
        self.precedence.begin(known > 0, unauthenticated > 0 || accepts > 0, more_ready);
        if known > 0 {
            self.read_known();
        }
        if self.precedence.admits_strangers() {
            self.let_strangers_in(accepts);
        }
        if !self.signatures.is_empty() {
            let began = Instant::now();
            for answer in self.signatures.place(&self.local.manager) {
                self.signed(answer);
            }
            // Who shakes hands has not signed in yet.
            self.precedence.took(began.elapsed());
        }
    }

    /// Reads connections that have signed in, and channels. Users that were passed over are read first in the next
    /// turn.
    fn read_known(&mut self) {
        let Self { active, peers, shares, local, .. } = self;
        let known = active.iter().filter_map(|key| peers.get(*key));
        let wanting = known.filter(|peer| peer.wants_to_read()).filter_map(Peer::sharing_user);
        shares.begin(local.now, wanting);
        for place in 0..self.active.len() {
            self.read_from(self.active[place], false, None);
        }
        if !self.not_read.is_empty() {
            let mut at = 0;
            self.active.retain(|key| {
                // Both have the same order.
                let is_next = self.not_read.get(at) == Some(key);
                at += usize::from(is_next);
                !is_next
            });
            self.active.splice(0..0, self.not_read.drain(..));
        }
    }

    /// Accepts pending connections, and reads as many unauthenticated clients as may be; the rest come first in the
    /// next turn.
    fn let_strangers_in(&mut self, accepts: usize) {
        let began = Instant::now();
        if accepts > 0 {
            self.accept(accepts);
            self.precedence.accepted(began);
        }
        let bytes_max = self.precedence.read_bytes_max();
        for place in 0..self.active.len() {
            // A signature takes longer than reading what asks for it.
            let signs_enough = bytes_max.is_some() && self.signatures.len() >= SIGNATURES_MAX;
            if signs_enough || !self.precedence.reads_another(|| began.elapsed()) {
                self.active.rotate_left(place);
                break;
            }
            self.read_from(self.active[place], true, bytes_max);
        }
        self.precedence.took(began.elapsed());
    }

    /// Reads a connection that wants to be read, and is unauthenticated or not.
    fn read_from(&mut self, key: usize, unauthenticated: bool, bytes_max: Option<usize>) {
        let Some(peer) =
            self.peers.get_mut(key).filter(|peer| peer.wants_to_read() && peer.is_unauthenticated() == unauthenticated)
        else {
            return;
        };
        let user = peer.sharing_user().filter(|_| self.shares.is_shared());
        let share = user.and_then(|user| self.shares.may_read(user));
        if share == Some(0) {
            self.not_read.push(key);
            return;
        }
        let _role = role::enter(peer.role());
        let all = &self.local.manager.arriving;
        let Some(arriving_max) = self.line.may_read((key, peer.generation), &mut peer.arriving, all) else { return };
        let (began, before) = (user.map(|_| Instant::now()), peer.traffic.bytes_received);
        peer.read(&mut self.room, &self.local, bytes_max.into_iter().chain(arriving_max).chain(share).min());
        if let (Some(user), Some(began)) = (user, began) {
            self.shares.read(user, peer.traffic.bytes_received - before);
            self.shares.took(user, began.elapsed());
        }
        self.signatures.ask(peer);
    }

    /// Those who wait because too much is arriving are read again, as far as they may be. A compare where none waits.
    fn resume(&mut self) {
        if !self.line.is_empty() {
            let Self { line, peers, local, .. } = self;
            let place = line.resume(&local.manager.arriving, local.now, |(key, generation)| {
                peers.get(key).filter(|peer| peer.generation == generation).map(|peer| peer.arriving)
            });
            let Some((key, _)) = place else { return };
            if let Some(peer) = peers.get_mut(key) {
                peer.arriving.resume(local.now);
            }
            list(&mut self.peers, &mut self.active, key);
        }
    }

    /// A handshake goes on, where its connection is still there.
    fn signed(&mut self, answer: Answer) {
        let (key, generation) = signatures::asker(answer.id);
        let Some(peer) = self.peers.get_mut(key).filter(|peer| peer.generation == generation) else { return };
        if let Some(socket) = peer.socket.tls_socket_mut() {
            socket.answer(answer.result);
            peer.readable = true;
            list(&mut self.peers, &mut self.active, key);
        }
    }

    /// Everything that needs the queues.
    fn work(&mut self) {
        let manager = self.local.manager.clone();
        let state = &mut *manager.lock();
        self.local.mailbox.take(&mut self.notices);
        for notice in std::mem::take(&mut self.notices) {
            self.open_letter(notice, state);
        }
        #[cfg(test)]
        self.look_at_joined();
        // Before anything more is done for them.
        if self.local.authority_seen != state.authority_generation {
            self.local.authority_seen = state.authority_generation;
            authority::recheck(&mut self.peers, &mut self.local, state);
        }
        self.for_active(|dispatcher, key| dispatcher.events_of(key, state));
        self.channel_turns(state);
        self.local.notice_changes(state);
        if self.local.now >= self.next_tick {
            self.tick(state);
        }
        self.receive(state);
        self.journal(state);
        self.confirm(state);
        self.serve(state);
        if state.store.expire_due(self.local.wall_ms, EXPIRED_PER_TURN) {
            self.local.flush_soon();
        }
        // Removals made while serving (pre-settled deliveries) go to the journal in this turn, too.
        self.journal(state);
        self.reap(state);
    }

    /// Hands the journal what there is for it. The users whose messages those are pay for that, and for what the
    /// journal's thread has done meanwhile.
    fn journal(&mut self, state: &mut State) {
        let Self { local, shares, journal_meter, journal_cpu_ns, .. } = self;
        let began = shares.is_shared().then(Instant::now);
        local.journal(state);
        let cpu_ns = journal_meter.sampled_cpu_ns();
        let elsewhere = Duration::from_nanos(cpu_ns.saturating_sub(std::mem::replace(journal_cpu_ns, cpu_ns)));
        if let Some(began) = began {
            let users = &state.users;
            shares.journal_took(began.elapsed() + elsewhere, users.put_bytes(), |user| users.put_bytes_of(user));
        }
    }

    /// What the partners of channels have confirmed leaves the transmission queues.
    fn channel_turns(&mut self, state: &mut State) {
        for key in std::mem::take(&mut self.local.channels) {
            let _role = role::enter(Role::ChannelInitiator);
            if let Some(peer) = self.peers.get_mut(key) {
                sender::confirm(peer, &mut self.local, state);
            }
        }
        let now = self.local.now;
        for (_, queue) in self.local.wakes.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.local.serve(queue);
        }
    }

    fn write(&mut self) {
        for question in std::mem::take(&mut self.questions) {
            let open = self.peers.iter().filter(|(_, peer)| !peer.front.is_ending());
            question.answer(open.map(|(_, peer)| connections::describe(peer, &self.local)));
        }
        // Those whose put was synced come first, then those that get: clients wait for either, while the
        // disposition of a put that needs no disk can follow.
        // What unauthenticated clients are sent costs time, too: it waits where they do.
        let (shared, admits_strangers) = (self.precedence.is_shared(), self.precedence.admits_strangers());
        for key in std::mem::take(&mut self.local.touched) {
            list(&mut self.peers, &mut self.active, key);
            if (!shared && admits_strangers) || !self.is_unauthenticated(key) {
                self.write_to(key);
            }
        }
        self.for_active(|dispatcher, key| {
            if admits_strangers || !dispatcher.is_unauthenticated(key) {
                dispatcher.write_to(key);
            }
        });
    }

    /// Does something for each connection that is to be looked at, and takes the time of unauthenticated clients' part,
    /// where that counts.
    fn for_active(&mut self, mut does: impl FnMut(&mut Self, usize)) {
        if !self.precedence.is_shared() {
            for place in 0..self.active.len() {
                does(self, self.active[place]);
            }
            return;
        }
        for unauthenticated in [false, true] {
            let began = Instant::now();
            for place in 0..self.active.len() {
                let key = self.active[place];
                if self.is_unauthenticated(key) == unauthenticated {
                    does(self, key);
                }
            }
            if unauthenticated {
                self.precedence.took(began.elapsed());
            }
        }
    }

    fn is_unauthenticated(&self, key: usize) -> bool {
        self.peers.get(key).is_some_and(Peer::is_unauthenticated)
    }

    fn write_to(&mut self, key: usize) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let _role = role::enter(peer.role());
        let user = peer.sharing_user().filter(|_| self.shares.is_shared());
        let began = user.map(|_| Instant::now());
        let has_written = peer.write(&self.local.tls_meter);
        if let (Some(user), Some(began)) = (user, began) {
            self.shares.took(user, began.elapsed());
        }
        if has_written && std::mem::take(&mut peer.output_full) {
            for link in peer.links.values() {
                if let Link::Consumer(consumer) = link {
                    self.local.serve(consumer.route.queue);
                }
            }
            if let Some(sending) = &peer.sending {
                self.local.serve(sending.queue);
            }
        }
    }

    /// Accepts so many at each port, for all dispatchers, each in turn.
    fn accept(&mut self, most: usize) {
        for number in 0..self.ports.len() {
            for _ in 0..most {
                let Some(port) = self.ports.get_mut(number).filter(|port| port.pending) else { break };
                let tls = port.tls.clone();
                match port.listener.accept() {
                    Ok((stream, _)) => self.hand_out(stream, tls),
                    Err(error) if is_passing(&error) => {}
                    Err(error) => {
                        port.pending = false;
                        if error.kind() != io::ErrorKind::WouldBlock {
                            self.accept_again = true;
                            crate::warning!("accept: {error}");
                        }
                    }
                }
            }
        }
    }

    fn hand_out(&mut self, stream: TcpStream, tls: Option<Arc<Tls>>) {
        let mailboxes = &self.local.manager.mailboxes;
        let index = mailboxes.next();
        let notice = Notice::Adopt(stream, tls);
        let notice = match mailboxes.get(index).filter(|_| index != self.local.index) {
            Some(mailbox) => mailbox.bring(notice),
            None => Err(notice),
        };
        // This one's own, or of one that has ended meanwhile.
        if let Err(Notice::Adopt(stream, tls)) = notice {
            self.adopt(stream, tls.as_deref());
        }
    }

    fn adopt(&mut self, stream: TcpStream, tls: Option<&Tls>) {
        if self.peers.len() >= CONNECTIONS_MAX || self.stop_by.is_some() {
            let refusal = Refusal::new(reason::MAX_CONNS_LIMIT_REACHED, format!("{} connections", self.peers.len()));
            if self.local.manager.peer_lines.may_write(Instant::now()) {
                crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}");
            }
            return;
        }
        if let Ok(address) = stream.peer_addr()
            && authority::is_blocked(&self.local, address)
        {
            return;
        }
        // A reply that waits for the acknowledgement of the last one would cost 40 ms.
        let _ = stream.set_nodelay(true);
        // Of a TLS connection it is said anew after the handshake.
        let here = stream.peer_addr().is_ok_and(|address| sasl::is_private(address.ip()));
        let front = sasl::front(&self.local, false, here && tls.is_none());
        let socket = match tls {
            None => Ok(Socket::Plain(stream)),
            Some(tls) => tls.session().map_err(io::Error::other).and_then(|ssl| Socket::tls(stream, ssl)),
        };
        match socket.and_then(|socket| self.add(socket, front, true)) {
            Ok(_) => {}
            Err(error) => crate::warning!("accept: {error}"),
        }
    }

    /// Takes a connection in. One that is `ready` may be read and written; another one says so first.
    fn add(&mut self, mut socket: Socket, front: Box<Front>, ready: bool) -> io::Result<&mut Peer> {
        let entry = self.peers.vacant_entry();
        let key = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Some(stream) = socket.tcp() {
            self.poll.registry().register(stream, Token(key), interest)?;
        }
        self.local.generation += 1;
        entry.insert(Peer {
            key,
            generation: self.local.generation,
            since_ms: self.local.wall_ms,
            front,
            from: socket.peer_address().ok(),
            socket,
            identity: Identity::default(),
            user: None,
            signed_in: Identity::default(),
            admission: peer::Admission::default(),
            sasl: None,
            alive: Arc::default(),
            held: 0,
            links: HashMap::new(),
            opened: None,
            traffic: peer::Traffic::default(),
            arriving: Share::new(self.local.now),
            readable: ready,
            read_closed: false,
            writable: ready,
            output_full: false,
            listed: false,
            active: false,
            broken: None,
            flush_by: None,
            closed_by: None,
            refused: None,
            renewal_since: None,
            idle_since: None,
            calling: None,
            sending: None,
            is_channel: false,
            units: Vec::new(),
            staged_gets: HashMap::new(),
            dynamic: Vec::new(),
            sole: None,
            left: Vec::new(),
        });
        list(&mut self.peers, &mut self.active, key);
        self.peers.get_mut(key).ok_or_else(|| io::Error::other("a connection that was taken in is not there"))
    }

    /// Looks at connections without a socket in each turn: no system tells of them.
    #[cfg(test)]
    fn look_at_joined(&mut self) {
        self.joined.retain(|key| self.peers.contains(*key));
        for key in self.joined.clone() {
            list(&mut self.peers, &mut self.active, key);
        }
    }

    /// What the system has told; whether it may know of more.
    fn note_readiness(&mut self, events: &Events) -> bool {
        for event in events {
            match event.token() {
                WAKE_UP => {}
                token @ (LISTEN_CLEAR | LISTEN_TLS) => {
                    self.ports.iter_mut().filter(|port| port.token == token).for_each(|port| port.pending = true);
                }
                Token(key) => {
                    let Some(peer) = self.peers.get_mut(key) else { continue };
                    peer.read_closed |= event.is_read_closed();
                    // A handshake goes on by reading, also where it waited to write.
                    peer.readable |= event.is_readable() || (event.is_writable() && peer.is_shaking_hands());
                    peer.writable |= event.is_writable();
                    list(&mut self.peers, &mut self.active, key);
                }
            }
        }
        events.iter().count() == READY_MAX
    }

    /// Whether the system has told of a connection that has signed in.
    fn hears_of_somebody_known(&self, events: &Events) -> bool {
        events.iter().any(|event| self.peers.get(event.token().0).is_some_and(|peer| !peer.is_unauthenticated()))
    }

    fn open_letter(&mut self, notice: Notice, state: &mut State) {
        match notice {
            Notice::SignedIn { peer, generation, verdict } => {
                if let Some(found) = self.peers.get_mut(peer).filter(|peer| peer.generation == generation) {
                    sasl::signed_in(found, &self.local, verdict);
                    // What it said behind its proof are events now.
                    list(&mut self.peers, &mut self.active, peer);
                }
            }
            Notice::Survey(question) => self.questions.push(question),
            Notice::Stop { generation, question } => {
                let is_meant = |peer: &Peer| peer.generation == generation && !peer.front.is_ending();
                let found = self.peers.iter_mut().find(|(_, peer)| is_meant(peer));
                question.answer(found.map(|(_, peer)| {
                    let was = connections::describe(peer, &self.local);
                    connections::stop(peer, &mut self.local, state);
                    was
                }));
            }
            Notice::Displaced { generation } => {
                if let Some((_, peer)) = self.peers.iter_mut().find(|(_, peer)| peer.generation == generation) {
                    connections::displace(peer, &mut self.local, state);
                }
            }
            Notice::Sole { generation } => {
                if let Some((_, peer)) = self.peers.iter_mut().find(|(_, peer)| peer.generation == generation) {
                    connections::open_sole(peer, &mut self.local);
                }
            }
            Notice::Adopt(stream, tls) => {
                let began = Instant::now();
                self.adopt(stream, tls.as_deref());
                self.precedence.took(began.elapsed());
            }
            #[cfg(test)]
            Notice::Join(front) => match self.add(Socket::Absent, front, false).map(|peer| peer.key) {
                Ok(key) => self.joined.push(key),
                Err(error) => crate::warning!("join: {error}"),
            },
            Notice::Ready(queue) => self.local.serve(queue),
            Notice::Freed(queue) => self.local.freed.push(queue),
            Notice::Signed(answers) => answers.into_iter().for_each(|answer| self.signed(answer)),
            Notice::Channel(notice) => {
                let _role = role::enter(Role::ChannelInitiator);
                self.channel_letter(notice, state);
            }
            Notice::Finished(finished) => {
                let done = *finished;
                let asker = done.asker;
                let peer = self.peers.get_mut(asker.peer).filter(|peer| peer.generation == asker.generation);
                let peer = match peer {
                    Some(peer) if peer.links.contains_key(&asker.link) => peer,
                    peer => {
                        put::finished_late(&mut self.local, state, done);
                        if let Some(peer) = peer {
                            unit_of_work::go_on(peer, &mut self.local, state);
                            self.local.touched.push(asker.peer);
                        }
                        return;
                    }
                };
                let _role = role::enter(peer.role());
                match peer.links.get(&asker.link) {
                    Some(Link::Producer(_)) => put::finished(peer, &mut self.local, state, done),
                    Some(Link::Consumer(_)) => get::finished(peer, &mut self.local, state, done),
                    Some(Link::Receiving(_)) => receiver::finished(peer, &mut self.local, done),
                    Some(Link::Sending(_)) => sender::finished(peer, &mut self.local, state, done),
                    Some(Link::Coordinator(_)) | None => {}
                }
                self.local.touched.push(asker.peer);
            }
        }
    }

    /// What channels brought goes on its queues, one unit of work a link.
    fn receive(&mut self, state: &mut State) {
        let Self { peers, local, .. } = self;
        if local.wake_at.is_some_and(|at| at <= local.now) {
            local.wake_at = None;
            let links: Vec<(usize, LinkId)> = local.receivers.iter().copied().collect();
            for (key, link) in links {
                if let Some(peer) = peers.get_mut(key) {
                    receiver::wake(peer, local, link);
                }
            }
        }
        for (key, link) in std::mem::take(&mut local.receiving) {
            let _role = role::enter(Role::ChannelInitiator);
            if let Some(peer) = peers.get_mut(key) {
                receiver::turn(peer, local, state, link);
                local.touched.push(key);
            }
        }
    }

    /// What happened on one connection, as its front end says.
    fn events_of(&mut self, key: usize, state: &mut State) {
        let Self { peers, local, shares, .. } = self;
        let Some(peer) = peers.get_mut(key) else { return };
        let user = peer.sharing_user().filter(|_| shares.is_shared());
        let began = user.map(|_| Instant::now());
        let mut has_links = false;
        // One that becomes a channel in this turn is one from the next turn on.
        let _role = role::enter(peer.role());
        while let Some(event) = peer.front.poll_event() {
            has_links |= matches!(
                event,
                Event::Attached(_) | Event::Detached { .. } | Event::SessionEnded(..) | Event::Opened(_)
            );
            match event {
                Event::Delivery(delivery) => match peer.links.get(&delivery.link) {
                    Some(Link::Receiving(_)) if matches!(delivery.state, Some(DeliveryState::Transactional { .. })) => {
                        let refusal = Refusal::new(reason::OPTIONS_ERROR, "channels take no part in units of work");
                        local.detach(peer, state, delivery.link, &refusal);
                    }
                    Some(Link::Receiving(_)) => receiver::arrived(peer, local, state, delivery),
                    Some(Link::Coordinator(_)) => unit_of_work::arrived(peer, local, state, &delivery),
                    _ => put::arrived(peer, local, state, delivery),
                },
                Event::Outcome { link, token, state: outcome, settled } => match peer.links.get(&link) {
                    Some(Link::Sending(_)) => {
                        sender::outcome(peer, local, state, link, token, outcome.as_ref(), settled);
                    }
                    _ => get::settled(peer, local, state, link, token, outcome, settled),
                },
                Event::OutcomeLost { txn_id } => unit_of_work::outcome_lost(peer, local, &txn_id),
                Event::Credit { link, drain } => local.credit(peer, link, drain),
                Event::Acquires { link, txn_id } => {
                    unit_of_work::acquires(peer, local, state, link, txn_id.as_deref());
                }
                Event::Attached(attach) => {
                    attach::attached(peer, local, state, *attach);
                    caller::attached(peer, local, state);
                }
                Event::Opened(open) => caller::opened(peer, local, state, open),
                Event::LinkOpened(opened) => sender::opened(peer, local, state, &opened),
                Event::Detached { link, error, closed } => {
                    let deletes = peer.links.get(&link).filter(|_| closed).and_then(Link::deletes);
                    let unsubscribes = peer.links.get(&link).filter(|_| closed).and_then(Link::durable_subscription);
                    if let Some(Link::Sending(_)) = peer.links.get(&link) {
                        sender::detached(peer, local, state, link, error.as_ref());
                    }
                    if !closed {
                        resume::suspend(peer, local, state, link, Over::Link);
                    }
                    local.forget(peer, state, link, false);
                    if let Some((queue, how)) = deletes {
                        local.delete_closed(state, &queue, how);
                    }
                    if let Some((queue, name)) = unsubscribes {
                        let manager = local.manager.clone();
                        state.left_subscription(queue, Some(&name), true);
                        manager.ring_all();
                    }
                    caller::detached(peer, local, error.as_ref());
                }
                Event::SessionEnded(session, error) => local.forget_session(peer, state, session, error.as_ref()),
                Event::SignIn { mechanism, response } => sasl::init(peer, local, mechanism, &response),
                Event::SignInGoesOn(response) => sasl::response(peer, local, &response),
                Event::Closed(error) => {
                    peer.closed_by = error.as_ref().map(sender::said);
                    // Nothing may follow a close: what the links held goes back at once.
                    local.forget_all(peer, state, true);
                    if let Some(error) = error.filter(|_| local.manager.peer_lines.may_write(local.now)) {
                        crate::note!("{}: connection closed: {error}", peer::address(&mut peer.socket));
                    }
                }
            }
        }
        local.hold(peer, state);
        match (user, began) {
            (Some(user), Some(began)) if has_links => shares.took_for_links(user, began.elapsed()),
            (Some(user), Some(began)) => shares.took(user, began.elapsed()),
            _ => {}
        }
    }

    /// Answers what the journal has synced.
    fn confirm(&mut self, state: &mut State) {
        let synced = state.store.synced();
        while self.local.confirmations.front().is_some_and(|first| first.ticket <= synced) {
            let Some(Confirmation { what, .. }) = self.local.confirmations.pop_front() else { return };
            let (key, generation) = match &what {
                Confirmed::Put(receipt) => (receipt.key, receipt.generation),
                Confirmed::Removal(removal) => (removal.key, removal.generation),
                Confirmed::Channel { key, generation, .. } => (*key, *generation),
                Confirmed::Noted { key, generation } => (*key, *generation),
                Confirmed::Discharged(discharged) => (discharged.key, discharged.generation),
                Confirmed::Defined { key, generation } => (*key, *generation),
            };
            let Some(peer) = self.peers.get_mut(key).filter(|peer| peer.generation == generation) else { continue };
            match what {
                Confirmed::Put(receipt) => peer.front.answer(receipt.link, receipt.id, DeliveryState::Accepted),
                Confirmed::Removal(removal) => peer.front.settle(removal.link, removal.token, DeliveryState::Accepted),
                Confirmed::Channel { link, through, .. } => {
                    let _role = role::enter(Role::ChannelInitiator);
                    receiver::confirmed(peer, &mut self.local, state, link, through);
                }
                Confirmed::Noted { .. } => {
                    if let Some(sending) = &peer.sending {
                        self.local.serve(sending.queue);
                    }
                }
                Confirmed::Discharged(discharged) => unit_of_work::confirmed(&mut *peer.front, &discharged),
                Confirmed::Defined { .. } => peer.held = peer.held.saturating_sub(1),
            }
            // Before those that get: who waited for the disk waits no longer than that.
            if self.local.touched.last() != Some(&key) {
                self.local.touched.push(key);
            }
        }
    }

    /// Gives waiting producers the room there is, and consumers what is on their queues.
    fn serve(&mut self, state: &mut State) {
        self.pace(state);
        for queue in std::mem::take(&mut self.local.freed) {
            let mut waiting = self.local.waiting.remove(&queue).unwrap_or_default();
            let peers = &mut self.peers;
            waiting.retain(|(key, link)| {
                peers.get_mut(*key).is_some_and(|peer| put::may_wait(peer, &mut self.local, state, *link))
            });
            while state.free(queue) > 0 {
                let Some((key, link)) = waiting.iter().next().copied() else { break };
                waiting.remove(&(key, link));
                if let Some(peer) = self.peers.get_mut(key) {
                    put::replenish(peer, &mut self.local, state, link);
                    self.local.touched.push(key);
                }
            }
            self.local.keep_waiting(queue, waiting, state);
        }
        self.local.looks.begin();
        for asked in self.local.serve.take() {
            self.serve_queue(asked, state);
        }
        for queue in self.local.looks.take_unfinished() {
            self.local.serve(queue);
        }
    }

    /// Producers that had no credit because of their user's rate are looked at again.
    fn pace(&mut self, state: &mut State) {
        if self.local.pace_at.is_none_or(|at| at > self.local.now) {
            return;
        }
        self.local.pace_at = None;
        for (key, link) in std::mem::take(&mut self.local.paced) {
            if let Some(peer) = self.peers.get_mut(key) {
                put::replenish(peer, &mut self.local, state, link);
                self.local.touched.push(key);
            }
        }
    }

    /// One message to each consumer in turn, until the queue or their credit is used up.
    fn serve_queue(&mut self, Asked { queue, has_changed }: Asked, state: &mut State) {
        let Self { peers, local, shares, .. } = self;
        if let Some(key) = local.senders.get(&queue).copied().filter(|_| has_changed)
            && let Some(peer) = peers.get_mut(key)
        {
            let _role = role::enter(Role::ChannelInitiator);
            sender::serve(peer, local, state);
            local.touched.push(key);
        }
        if state.store.attributes(queue).is_none() {
            return local.end_consumers(peers, state, queue);
        }
        let Some(mut consumers) = local.consumers.remove(&queue) else { return };
        let began = shares.is_shared().then(Instant::now);
        if has_changed {
            consumers.look_at_idle();
        }
        let mut last = None;
        let round = consumers.serve(SERVE_MAX, |seat| {
            let Some(peer) = peers.get_mut(seat.key).filter(|peer| peer.generation == seat.generation) else {
                return Looked::Gone;
            };
            last = Some(seat);
            let looked = get::deliver_next(peer, local, state, seat.link);
            let has_nothing = matches!(looked, Looked::Nothing | Looked::Empty);
            if has_nothing {
                get::nothing_more(peer, local, state, seat.link);
            }
            if (has_nothing || looked == Looked::Sent) && !peer.listed {
                peer.listed = true;
                local.touched.push(seat.key);
            }
            // To look at it may have ended it.
            if looked == Looked::Sent || peer.links.contains_key(&seat.link) { looked } else { Looked::Gone }
        });
        if round.is_empty {
            consumers.tell_draining(|seat| {
                let Some(peer) = peers.get_mut(seat.key).filter(|peer| peer.generation == seat.generation) else {
                    return false;
                };
                local.touched.push(seat.key);
                get::tell_drained(peer, local, state, seat.link)
            });
        }
        if let Some(began) = began
            && let Some(user) = last.and_then(|seat| peers.get(seat.key)).and_then(Peer::sharing_user)
        {
            // The queue's links take turns to be the last one, so over time each user pays for its own links.
            shares.took(user, began.elapsed());
        }
        if round.sent >= SERVE_MAX {
            local.serve(queue);
        }
        if consumers.is_empty() {
            local.forget_interest(queue, state);
        } else {
            local.consumers.insert(queue, consumers);
        }
    }

    /// Timers, expiry, and messages that are stuck.
    fn tick(&mut self, state: &mut State) {
        self.next_tick = self.local.now + TICK;
        // What is expired, moved or tried again below goes to the journal now.
        self.local.urgent = true;
        let now = self.local.now;
        let arriving = self.local.manager.clone();
        let arriving = &arriving.arriving;
        self.precedence.set_any_known(self.peers.iter().any(|(_, peer)| !peer.is_unauthenticated()));
        for (key, peer) in &mut self.peers {
            peer.note_arriving(arriving);
            if peer.arriving.stopped {
                peer.front.not_read(now);
            }
            if !peer.front.is_closed()
                && let Some(refusal) = self.line.gives_up((key, peer.generation), &peer.arriving, arriving, now)
            {
                crate::warning!(
                    reason = refusal.reason.code,
                    cause = refusal.cause,
                    "{}: {refusal}",
                    peer::address(&mut peer.socket)
                );
                self.local.forget_all(peer, state, false);
                peer.front.close(Some(refusal.to_amqp()));
                self.local.touched.push(key);
            }
            if peer.front.poll_timeout().is_some_and(|due| due <= now) {
                peer.front.handle_timeout(now);
                self.local.touched.push(key);
            }
            if peer.front.is_closed() && now >= *peer.flush_by.get_or_insert(now + FLUSH_WITHIN) {
                peer.broken.get_or_insert_with(|| "did not take the last words".into());
                self.local.touched.push(key);
            }
            if peer.calling.as_ref().is_some_and(|calling| calling.deadline.is_some_and(|at| at <= now)) {
                peer.end("no answer to the call in time");
            }
            peer.give_up_renewal(now);
            put::tick(peer, state);
            authority::end_with_token(peer, &mut self.local, state);
            authority::end_without_channel(peer, &mut self.local, state);
            if !peer.units.is_empty() {
                unit_of_work::tick(peer, &mut self.local, state);
            }
            sender::tick(peer, &mut self.local, state);
            if peer.broken.is_some() {
                self.local.touched.push(key);
            }
        }
        // Room can come about without a notice: expiry, a cleared queue.
        self.local.freed.extend(self.local.waiting.keys().copied());
        for queue in std::mem::take(&mut self.local.rescan) {
            self.local.serve(queue);
        }
        for (key, link) in &self.local.receivers {
            if let Some(Link::Receiving(receiving)) = self.peers.get_mut(*key).and_then(|peer| peer.links.get_mut(link))
            {
                receiving.tell();
            }
        }
        if std::mem::take(&mut self.accept_again) {
            self.ports.iter_mut().for_each(|port| port.pending = true);
        }
        if self.local.index == 0 {
            state.store.sweep(self.local.wall_ms, SWEEP_MAX);
            get::retry_stuck(state);
            resume::tick(&self.local, state);
            triggering::tick(state, self.local.now, self.local.wall_ms);
            self.local.tell_of_dropped();
            state.tell_of_lost_events();
            authority::tell_of_more(&self.local.manager, self.local.now);
            let _role = role::enter(Role::ChannelInitiator);
            supervisor::tick(&self.local, state);
        }
        if self.local.manager.stopping.load(Ordering::Acquire) && self.stop_by.is_none() {
            self.begin_to_stop(state);
        }
    }

    /// Takes no more connections and says goodbye to those there are.
    fn begin_to_stop(&mut self, state: &mut State) {
        self.stop_by = Some(self.local.now + DRAIN_WITHIN);
        self.ports.clear();
        let goodbye = Refusal::new(reason::Q_MGR_STOPPING, "the queue manager is stopping");
        for (key, peer) in &mut self.peers {
            self.local.forget_all(peer, state, false);
            peer.front.close(Some(goodbye.to_amqp()));
            self.local.touched.push(key);
        }
    }

    fn is_done(&self) -> bool {
        let drained = self.peers.is_empty() && self.local.departed.is_empty();
        self.stop_by.is_some_and(|by| drained || self.local.now >= by)
    }

    /// Takes leave of connections that are over.
    fn reap(&mut self, state: &mut State) {
        for index in 0..self.active.len() {
            let key = self.active[index];
            if !self.peers.get(key).is_some_and(Peer::is_over) {
                continue;
            }
            let began = Instant::now();
            let mut peer = self.peers.remove(key);
            peer.arriving.holds(0, 0, &self.local.manager.arriving);
            // Deregistering a socket that is about to close can only fail where there is nothing to deregister.
            let _ = peer.socket.tcp().map(|stream| self.poll.registry().deregister(stream));
            if let Some(event) = peer.refused.take() {
                authority::tell_of_tls(&self.local, state, &event);
            }
            self.local.forget_all(&mut peer, state, true);
            if let Some(user) = peer.user.take() {
                state.users.disconnect(user, self.local.now);
            }
            let is_unauthenticated = peer.is_unauthenticated();
            // Closing the socket is most of the work.
            drop(peer);
            if is_unauthenticated {
                self.precedence.took(began.elapsed());
            }
        }
        self.local.tell_of_gone(state);
    }
}

impl Local {
    fn look_at_the_clock(&mut self) {
        self.now = Instant::now();
        self.wall = SystemTime::now();
        self.wall_ms = wall_ms(self.wall);
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
    fn tell_of_dropped(&self) {
        let dropped = self.manager.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            crate::warning!("{dropped} refused messages were settled by their senders: they are gone");
        }
    }

    /// After a change of definitions, who waits may wait no longer.
    fn notice_changes(&mut self, state: &mut State) {
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

    fn keep_waiting(&mut self, queue: QueueId, waiting: HashSet<(usize, LinkId)>, state: &mut State) {
        if !waiting.is_empty() {
            state.use_of(queue).waiters_on |= 1 << self.index;
            self.waiting.entry(queue).or_default().extend(waiting);
        }
    }

    /// Hands the open batch to the journal, collects what it has synced, and learns what became available.
    fn journal(&mut self, state: &mut State) {
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
        reports::turn(state, self);
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
    fn tell_of_gone(&mut self, state: &mut State) {
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
    fn end_consumers(&mut self, peers: &mut Slab<Peer>, state: &mut State, queue: QueueId) {
        let Some(consumers) = self.consumers.remove(&queue) else { return };
        for Seat { key, generation, link } in consumers.seats() {
            let Some(peer) = peers.get_mut(key).filter(|peer| peer.generation == generation) else { continue };
            let Some(Link::Consumer(consumer)) = peer.links.get(&link) else { continue };
            let refusal = queue_is_gone(&consumer.opened);
            self.detach(peer, state, link, &refusal);
        }
    }

    fn credit(&mut self, peer: &mut Peer, link: LinkId, drain: bool) {
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
    fn forget(&mut self, peer: &mut Peer, state: &mut State, link: LinkId, failed: bool) {
        let gone = peer.links.remove(&link);
        if let Some(user) = peer.user.filter(|_| gone.as_ref().is_some_and(Link::is_clients)) {
            let granted = if let Some(Link::Producer(producer)) = &gone { producer.granted } else { 0 };
            state.users.detached(user, granted);
        }
        match gone {
            Some(Link::Producer(producer)) => {
                producer.resumable.iter().for_each(|link| state.resumable.end(link));
                put::forget(&producer, state);
                if let Some(route) = &producer.route {
                    self.freed(route.queue, state);
                    state.left(route.queue);
                }
                self.end_dynamic(producer.dynamic, state);
                if producer.has_presettled() {
                    // Those will not be sent again: they are put when their adapters are done.
                    self.departed.insert((peer.key, peer.generation, link), producer);
                } else if put::lose_units(&producer, self) {
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
    fn forget_all(&mut self, peer: &mut Peer, state: &mut State, failed: bool) {
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
                supervisor::ended(self, state, &id, Some(place), refusal);
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
    fn suspend_all(&self, peer: &mut Peer, state: &mut State) {
        let links: Vec<LinkId> = peer.links.keys().copied().collect();
        for link in links {
            resume::suspend(peer, self, state, link, Over::Connection);
        }
    }

    fn forget_session(
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

    fn end_dynamic(&mut self, queue: Option<QueueId>, state: &mut State) {
        if let Some(queue) = queue {
            state.end_dynamic(queue);
        }
    }

    /// A link closed that wanted its permanent dynamic queue to go with it. No answer is due: where the queue stays,
    /// the log says why.
    fn delete_closed(&mut self, state: &mut State, queue: &str, how: attach::Deletes) {
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
    fn hold(&mut self, peer: &mut Peer, state: &mut State) {
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

    fn add_consumer(&mut self, queue: QueueId, seat: Seat, state: &mut State) {
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
fn queue_is_gone(opened: &str) -> Refusal {
    Refusal::new(reason::Q_DELETED, format!("{opened} is gone"))
}

/// Whether the one that was to be accepted is gone, and the next may be looked at.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Puts a connection on the list of those to look at.
fn list(peers: &mut Slab<Peer>, active: &mut Vec<usize>, key: usize) {
    if let Some(peer) = peers.get_mut(key) {
        if !peer.active {
            active.push(key);
        }
        (peer.listed, peer.active) = (true, true);
    }
}

/// A store's refusal in reason codes.
pub(crate) fn store_refusal(error: &PutError) -> Refusal {
    let cause = matches!(error, PutError::UserShare { .. }).then_some("user-share");
    Refusal { cause, ..Refusal::new(reason::of(error.reason_code()), error.to_string()) }
}
