//! A dispatcher: one thread that owns sockets and connection state.
//!
//! A turn has three parts. *Read*: bytes of ready sockets go into the front ends. *Work*, under the
//! queues' lock: their events become puts and removals, synced puts are confirmed, and queues are
//! served to consumers that have credit. *Write*: what the front ends have goes out.

mod active;
mod arrival;
mod calls;
mod connection;
mod forwarded;
#[cfg(test)]
pub(crate) mod pipe;
mod precedence;
mod signatures;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod socket;
pub mod tls_socket;
pub use socket::Moved;

use crate::arriving::Line;
use crate::clock::Clock;
use crate::connections::Question;
use crate::dispatcher::peer::{Link, Peer, Place};
use crate::dispatcher::{CONNECTIONS_MAX, authority, connections, ending, left_stores, sasl, sole};
use crate::front::http::Common;
use crate::front::{Answered, Front, Protocol, offered};
use crate::mailbox::{Mailbox, Notice};
use crate::manager::{Manager, State};
use crate::reason::{self, Refusal};
use crate::tls::Tls;
use active::{Active, list};
use arrival::WAKE_UP;
pub(crate) use arrival::{Arrival, Left};
use bulla_core::core::{Core, tick_of};
use bulla_device::role::{self, Role};
use bulla_device::scheduler::Answer;
use connection::{Connection, SocketTransport};
use forwarded::{ForwardedLinks, OwnerAnswered};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use precedence::Precedence;
use signatures::Signatures;
use socket::Socket;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Handshakes of unauthenticated clients that one turn signs for where a user may want something: as many as an
/// accelerator has lanes.
const SIGNATURES_MAX: usize = 8;
/// Looks at what is ready, before a turn, that find unauthenticated clients alone.
const LOOKS_MAX: usize = 8;
/// How often timers, expiry and messages that are stuck are looked at.
const TICK: Duration = Duration::from_millis(250);
/// Expired messages removed in each turn: those that live shorter than a tick do not pile up until it comes.
const EXPIRED_PER_TURN: usize = 64;
/// Bytes that one read may bring: room that all connections of a dispatcher read into, one after the other. It stays in
/// the processor's cache.
const READ_BYTES: usize = 256 << 10;
/// Connections that one turn hears of from the system. The others have the next turn: what a turn reads is written out
/// while it still is in the processor's cache, and a thousand busy connections do not have all that they read in memory
/// at once.
const READY_MAX: usize = 32;
/// How long a connection that is over may take to take what is still to be sent.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);
/// How long connections may take to close once the queue manager stops.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

const LISTEN_CLEAR: Token = Token(usize::MAX - 1);
const LISTEN_TLS: Token = Token(usize::MAX - 2);
const LISTEN_HTTP: Token = Token(usize::MAX - 3);
const LISTEN_HTTPS: Token = Token(usize::MAX - 4);

/// A dispatcher: the sockets it owns and everything its turns need.
pub(crate) struct Dispatcher {
    poll: Poll,
    /// The listeners; none once the queue manager stops.
    ports: Vec<ListenPort>,
    /// What channels call their partners with, and the second listener speaks.
    tls: Arc<Tls>,
    core: Core<SocketTransport>,
    active: Active,
    /// What is read, until its connection's front end has taken it.
    room: Box<[u8]>,
    notices: Vec<Notice>,
    /// Administrators that wait to be told of the connections; answered without the queues' lock.
    questions: Vec<Question>,
    /// Connections to owners of shared groups.
    forwarded: ForwardedLinks,
    signatures: Signatures,
    /// Connections that are not read, because too much is arriving on all of them.
    line: Line,
    /// Who has signed in goes before who has not.
    precedence: Precedence,
    /// Accepting failed for want of something: it is tried again at the next tick.
    accept_again: bool,
    next_tick: Instant,
    stop_by: Option<Instant>,
    #[cfg(test)]
    simulated: simulated::Network,
}

/// The listeners of the first dispatcher, which accepts for all. Others have none.
#[derive(Default)]
pub(crate) struct Listeners {
    /// AMQP without TLS.
    pub(crate) clear: Option<TcpListener>,
    /// AMQP with TLS.
    pub(crate) tls: Option<TcpListener>,
    /// HTTP without TLS.
    pub(crate) http: Option<TcpListener>,
    /// HTTP with TLS.
    pub(crate) https: Option<TcpListener>,
    /// What connections over HTTP have in common; there where HTTP is.
    pub(crate) web: Option<Common>,
}

/// A listener.
struct ListenPort {
    listener: TcpListener,
    token: Token,
    protocol: Protocol,
    /// What connections are wrapped in, where they are.
    tls: Option<Arc<Tls>>,
    /// A connection may wait to be accepted.
    pending: bool,
}

impl Dispatcher {
    /// A dispatcher over its listeners.
    pub(crate) fn new(
        index: usize,
        manager: Arc<Manager>,
        Left { poll, generation }: Left,
        mailbox: Arc<Mailbox>,
        listeners: Listeners,
        tls: Arc<Tls>,
    ) -> io::Result<Self> {
        let Listeners { clear, tls: secured, http, https, web } = listeners;
        let web = web.map(Protocol::Http);
        let ports = [
            (clear, LISTEN_CLEAR, Some(Protocol::Amqp), None),
            (secured, LISTEN_TLS, Some(Protocol::Amqp), Some(&tls)),
            (http, LISTEN_HTTP, web.clone(), None),
            (https, LISTEN_HTTPS, web, Some(&tls)),
        ];
        let ports = ports.into_iter().filter_map(|(listener, token, protocol, tls)| {
            Some(ListenPort { listener: listener?, token, protocol: protocol?, tls: tls.cloned(), pending: false })
        });
        let mut ports: Vec<ListenPort> = ports.collect();
        for ListenPort { listener, token, .. } in &mut ports {
            poll.registry().register(listener, *token, Interest::READABLE)?;
        }
        let now = manager.clock.now();
        let signatures = Signatures::new(mailbox.clone());
        Ok(Self {
            poll,
            ports,
            active: Active::default(),
            room: vec![0; READ_BYTES].into(),
            tls,
            core: Core::new(index, manager, mailbox, generation, now),
            notices: Vec::new(),
            questions: Vec::new(),
            forwarded: ForwardedLinks::default(),
            signatures,
            line: Line::default(),
            precedence: Precedence::default(),
            accept_again: false,
            next_tick: now,
            stop_by: None,
            #[cfg(test)]
            simulated: simulated::Network::default(),
        })
    }

    /// Runs until every connection is gone, and the queue manager stops or has no place for this dispatcher any more.
    pub(crate) fn run(mut self) -> io::Result<Left> {
        let mut events = Events::with_capacity(READY_MAX);
        loop {
            let work_due = self.work_due();
            let due = work_due.map_or(self.next_tick, |at| at.min(self.next_tick));
            let had_work = self.has_work();
            let timeout = if had_work { Duration::ZERO } else { due.saturating_duration_since(self.clock().now()) };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let begun = self.core.local.meters.work.begin();
            self.core.local.look_at_the_clock();
            let has_come_due = work_due.is_some_and(|at| at <= self.core.local.now);
            let is_ready = !events.is_empty();
            let mut more_ready = self.note_readiness(&events);
            for _ in 1..LOOKS_MAX {
                if !more_ready || !self.precedence.is_any_known() || self.hears_of_known(&events) {
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
                let took = self.core.local.meters.work.end(begun);
                self.core.local.meters.work.request(took);
                self.core.local.meters.work.set_connections(self.core.peers.len());
            }
            if self.is_done() || self.may_leave() {
                return Ok(Left { poll: self.poll, generation: self.core.generation });
            }
        }
    }

    /// Whether this one is surplus and nothing ties it to its place: then its mailbox is closed.
    fn may_leave(&self) -> bool {
        let local = &self.core.local;
        let is_surplus = || local.index >= local.manager.workers.mailboxes.wanted();
        is_surplus()
            && self.core.peers.is_empty()
            && local.producers.departed.is_empty()
            && local.journaling.confirmations.is_empty()
            && local.serving.list.is_empty()
            && local.journaling.flush_by.is_none()
            && local.mailbox.close_if(is_surplus)
    }

    /// When there is something to do, whatever happens until then, the tick aside.
    fn work_due(&self) -> Option<Instant> {
        let local = &self.core.local;
        let wakes =
            local.serving.wakes.iter().map(|(at, _)| *at).chain(local.channels.wake_at).chain(local.producers.pace_at);
        local.journaling.flush_by.into_iter().chain(wakes).chain(self.core.deadlines.next()).min()
    }

    fn clock(&self) -> &Clock {
        &self.core.local.manager.clock
    }

    fn has_work(&self) -> bool {
        let has_links = !self.active.is_empty() || !self.forwarded.is_idle();
        has_links || !self.core.local.serving.list.is_empty() || self.any_pending()
    }

    fn any_pending(&self) -> bool {
        self.ports.iter().any(|port| port.pending)
    }

    /// One turn; `more_ready` where the system may know of more connections than it has told.
    fn turn(&mut self, more_ready: bool) {
        self.read(more_ready);
        self.read_forwarded();
        self.work();
        self.write();
        self.write_forwarded();
        self.precedence.end(|| self.core.local.manager.clock.since(self.core.local.now));
        self.resume();
        self.active.retain(|key| {
            let Some(peer) = self.core.peers.get_mut(key) else { return false };
            let goes_on = connection::wants_to_read(peer)
                || connection::wants_to_write(peer)
                || connection::is_over(peer)
                || peer.front.has_events();
            (peer.turns.listed, peer.turns.active) = (goes_on, goes_on);
            goes_on
        });
    }

    fn read(&mut self, more_ready: bool) {
        self.resume();
        let (mut known, mut unauthenticated) = (0, 0);
        for key in self.active.iter() {
            if let Some(peer) = self.core.peers.get(key).filter(|peer| connection::wants_to_read(peer)) {
                *(if peer.is_unauthenticated() { &mut unauthenticated } else { &mut known }) += 1;
            }
        }
        let accepts =
            if self.any_pending() { self.precedence.accepts(unauthenticated, self.core.local.now) } else { 0 };
        self.precedence.begin(known > 0, unauthenticated > 0 || accepts > 0, more_ready);
        if known > 0 {
            self.read_known();
        }
        if self.precedence.admits_unauthenticated() {
            self.read_unauthenticated(accepts);
        }
        if !self.signatures.is_empty() {
            let began = self.clock().now();
            for answer in self.signatures.place(&self.core.local.manager) {
                self.signed(answer);
            }
            // Who shakes hands has not signed in yet.
            self.precedence.took(self.core.local.manager.clock.since(began));
        }
    }

    /// Reads connections that have signed in, and channels. Users that were passed over are read first in the next
    /// turn.
    fn read_known(&mut self) {
        let Self { active, core: Core { peers, shares, local, .. }, .. } = self;
        let known = active.iter().filter_map(|key| peers.get(key));
        let wanting = known.filter(|peer| connection::wants_to_read(peer)).filter_map(Peer::sharing_user);
        shares.begin(local.now, wanting);
        for place in 0..self.active.len() {
            self.read_from(self.active.at(place), false, None);
        }
        self.active.passed_over_first();
    }

    /// Accepts pending connections, and reads as many unauthenticated clients as may be; the rest come first in the
    /// next turn.
    fn read_unauthenticated(&mut self, accepts: usize) {
        let began = self.clock().now();
        if accepts > 0 {
            self.accept(accepts);
            self.precedence.accepted(began);
        }
        let bytes_max = self.precedence.read_bytes_max();
        for place in 0..self.active.len() {
            // A signature takes longer than reading what asks for it.
            let signs_enough = bytes_max.is_some() && self.signatures.len() >= SIGNATURES_MAX;
            if signs_enough || !self.precedence.reads_another(|| self.core.local.manager.clock.since(began)) {
                self.active.continue_from(place);
                break;
            }
            self.read_from(self.active.at(place), true, bytes_max);
        }
        self.precedence.took(self.core.local.manager.clock.since(began));
    }

    /// Reads a connection that wants to be read, and is unauthenticated or not.
    fn read_from(&mut self, key: usize, unauthenticated: bool, bytes_max: Option<usize>) {
        let Some(peer) = self
            .core
            .peers
            .get_mut(key)
            .filter(|peer| connection::wants_to_read(peer) && peer.is_unauthenticated() == unauthenticated)
        else {
            return;
        };
        let user = peer.sharing_user().filter(|_| self.core.shares.is_shared());
        let share = user.and_then(|user| self.core.shares.may_read(user));
        if share == Some(0) {
            self.active.pass_over(key);
            return;
        }
        let _role = role::enter(peer.role());
        let all = &self.core.local.manager.listening.arriving;
        let Some(arriving_max) = self.line.may_read((key, peer.place.generation), &mut peer.arriving, all) else {
            return;
        };
        let (began, before) = (user.map(|_| self.core.local.manager.clock.now()), peer.traffic.bytes_received);
        connection::read(
            peer,
            &mut self.room,
            &self.core.local,
            bytes_max.into_iter().chain(arriving_max).chain(share).min(),
        );
        if let (Some(user), Some(began)) = (user, began) {
            self.core.shares.read(user, peer.traffic.bytes_received - before);
            self.core.shares.took(user, self.core.local.manager.clock.since(began));
        }
        self.signatures.ask(peer);
    }

    /// Those who wait because too much is arriving are read again, as far as they may be. A compare where none waits.
    fn resume(&mut self) {
        if !self.line.is_empty() {
            let Self { line, core: Core { peers, local, .. }, .. } = self;
            let place = line.resume(&local.manager.listening.arriving, local.now, |(key, generation)| {
                peers.get(key).filter(|peer| peer.place.generation == generation).map(|peer| peer.arriving)
            });
            let Some((key, _)) = place else { return };
            if let Some(peer) = peers.get_mut(key) {
                peer.arriving.resume(local.now);
            }
            list(&mut self.core.peers, &mut self.active, key);
        }
    }

    /// A handshake goes on, where its connection is still there.
    fn signed(&mut self, answer: Answer) {
        let (key, generation) = signatures::asker(answer.id);
        let Some(peer) = self.core.peers.get_mut(key).filter(|peer| peer.place.generation == generation) else {
            return;
        };
        if let Some(socket) = peer.transport.socket.tls_socket_mut() {
            socket.answer(answer.result);
            peer.transport.readable = true;
            list(&mut self.core.peers, &mut self.active, key);
        }
    }

    /// Everything that needs the queues.
    fn work(&mut self) {
        let manager = self.core.local.manager.clone();
        let state = &mut *manager.lock();
        self.core.local.mailbox.take(&mut self.notices);
        for notice in std::mem::take(&mut self.notices) {
            self.open_letter(notice, state);
        }
        #[cfg(test)]
        self.look_at_joined();
        // Before anything more is done for them.
        if self.core.local.seen.authority != state.generations.authority {
            self.core.local.seen.authority = state.generations.authority;
            authority::recheck(&mut self.core.peers, &mut self.core.local, state);
        }
        left_stores::end_links(&mut self.core.peers, &mut self.core.local, state);
        self.tell_of_deadlines();
        self.for_active(|dispatcher, key| dispatcher.core.events_of(key, state));
        self.call_owners(state);
        self.core.channel_turns(state);
        self.core.local.notice_changes(state);
        if self.core.local.now >= self.next_tick {
            self.tick(state);
        }
        self.core.receive(state);
        self.core.journal(state);
        self.core.confirm(state);
        self.core.serve(state);
        if state.store.expire_due(self.core.local.wall_ms, EXPIRED_PER_TURN) {
            self.core.local.flush_soon();
        }
        // Removals made while serving (pre-settled deliveries) go to the journal in this turn, too.
        self.core.journal(state);
        self.reap(state);
    }

    /// Tells front ends the time that wanted to know it now.
    fn tell_of_deadlines(&mut self) {
        let now = self.core.local.now;
        while let Some(key) = self.core.deadlines.take_due(now) {
            if let Some(peer) = self.core.peers.get_mut(key) {
                peer.front.handle_timeout(now);
                list(&mut self.core.peers, &mut self.active, key);
            }
        }
    }

    fn write(&mut self) {
        for question in std::mem::take(&mut self.questions) {
            let open = self.core.peers.iter().filter(|(_, peer)| !peer.front.is_ending());
            question.answer(open.map(|(_, peer)| connections::describe(peer, &self.core.local)));
        }
        // Those whose put was synced come first, then those that get: clients wait for either, while the
        // disposition of a put that needs no disk can follow.
        // What unauthenticated clients are sent costs time, too: it waits where they do.
        let (shared, admits_unauthenticated) = (self.precedence.is_shared(), self.precedence.admits_unauthenticated());
        for key in std::mem::take(&mut self.core.local.touched) {
            list(&mut self.core.peers, &mut self.active, key);
            if (!shared && admits_unauthenticated) || !self.is_unauthenticated(key) {
                self.write_to(key);
            }
        }
        self.for_active(|dispatcher, key| {
            if admits_unauthenticated || !dispatcher.is_unauthenticated(key) {
                dispatcher.write_to(key);
            }
        });
    }

    /// Does something for each connection that is to be looked at, and takes the time of unauthenticated clients' part,
    /// where that counts.
    fn for_active(&mut self, mut does: impl FnMut(&mut Self, usize)) {
        if !self.precedence.is_shared() {
            for place in 0..self.active.len() {
                does(self, self.active.at(place));
            }
            return;
        }
        for unauthenticated in [false, true] {
            let began = self.clock().now();
            for place in 0..self.active.len() {
                let key = self.active.at(place);
                if self.is_unauthenticated(key) == unauthenticated {
                    does(self, key);
                }
            }
            if unauthenticated {
                self.precedence.took(self.core.local.manager.clock.since(began));
            }
        }
    }

    fn is_unauthenticated(&self, key: usize) -> bool {
        self.core.peers.get(key).is_some_and(Peer::is_unauthenticated)
    }

    fn write_to(&mut self, key: usize) {
        let Some(peer) = self.core.peers.get_mut(key) else { return };
        let _role = role::enter(peer.role());
        let user = peer.sharing_user().filter(|_| self.core.shares.is_shared());
        let began = user.map(|_| self.core.local.manager.clock.now());
        let has_written = connection::write(peer, &self.core.local.meters.tls);
        if let (Some(user), Some(began)) = (user, began) {
            self.core.shares.took(user, self.core.local.manager.clock.since(began));
        }
        if has_written && std::mem::take(&mut peer.turns.output_full) {
            for link in peer.links.values() {
                if let Link::Consumer(consumer) = link {
                    self.core.local.serve(consumer.route.queue);
                }
            }
            if let Some(sending) = &peer.channel.sending {
                self.core.local.serve(sending.queue);
            }
        }
    }

    /// Accepts so many at each port, for all dispatchers, each in turn.
    fn accept(&mut self, most: usize) {
        for number in 0..self.ports.len() {
            for _ in 0..most {
                let Some(port) = self.ports.get_mut(number).filter(|port| port.pending) else { break };
                let (protocol, tls) = (port.protocol.clone(), port.tls.clone());
                match port.listener.accept() {
                    Ok((stream, _)) => self.hand_out(stream, protocol, tls),
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

    fn hand_out(&mut self, stream: TcpStream, protocol: Protocol, tls: Option<Arc<Tls>>) {
        let mailboxes = &self.core.local.manager.workers.mailboxes;
        let index = mailboxes.next();
        let mailbox = mailboxes.get(index).filter(|_| index != self.core.local.index).cloned();
        let arrival = Arrival::Accepted(stream, protocol, tls);
        let Some(mailbox) = mailbox else { return self.arrived(arrival) };
        // One that has ended meanwhile gives it back.
        if let Err(Notice::Arrived(arrival)) = mailbox.bring(Notice::Arrived(Box::new(arrival)))
            && let Ok(arrival) = arrival.downcast::<Arrival>()
        {
            self.arrived(*arrival);
        }
    }

    /// Has a connection looked at whose front end was answered by another thread.
    fn answered(&mut self, answered: &Answered) {
        let found = self.core.peers.iter().find(|(_, peer)| peer.place.generation == answered.generation);
        if let Some(key) = found.map(|(key, _)| key) {
            list(&mut self.core.peers, &mut self.active, key);
        }
    }

    /// Takes in a connection that this dispatcher was handed.
    fn arrived(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Accepted(stream, protocol, tls) => self.adopt(stream, protocol, tls.as_deref()),
            #[cfg(test)]
            Arrival::Joined(front) => {
                match self
                    .add(SocketTransport::new(Socket::Absent, Protocol::Amqp, false), front)
                    .map(|peer| peer.place.key)
                {
                    Ok(key) => self.simulated.joined.push(key),
                    Err(error) => crate::warning!("join: {error}"),
                }
            }
        }
    }

    fn adopt(&mut self, stream: TcpStream, protocol: Protocol, tls: Option<&Tls>) {
        if self.core.peers.len() >= CONNECTIONS_MAX || self.stop_by.is_some() {
            let refusal =
                Refusal::new(reason::MAX_CONNS_LIMIT_REACHED, format!("{} connections", self.core.peers.len()));
            if self.core.local.manager.told.peer_lines.may_write(self.clock().now()) {
                crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}");
            }
            return;
        }
        if let Ok(address) = stream.peer_addr()
            && authority::is_blocked(&self.core.local, address)
        {
            return;
        }
        // A reply that waits for the acknowledgement of the last one would cost 40 ms.
        let _ = stream.set_nodelay(true);
        // Of a TLS connection it is said anew after the handshake.
        let here = stream.peer_addr().is_ok_and(|address| offered::is_private(address.ip()));
        let front = protocol.front(&self.core.local, false, false, here && tls.is_none());
        let socket = match tls {
            None => Ok(Socket::Plain(stream)),
            Some(tls) => protocol.session(tls).map_err(io::Error::other).and_then(|ssl| Socket::tls(stream, ssl)),
        };
        match socket.and_then(|socket| self.add(SocketTransport::new(socket, protocol, true), front)) {
            Ok(_) => {}
            Err(error) => crate::warning!("accept: {error}"),
        }
    }

    /// Takes a connection in.
    fn add(&mut self, mut transport: SocketTransport, front: Box<Front>) -> io::Result<&mut Connection> {
        let entry = self.core.peers.vacant_entry();
        let key = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Some(stream) = transport.socket.tcp() {
            self.poll.registry().register(stream, Token(key), interest)?;
        }
        self.core.generation += 1;
        let place = Place { key, generation: self.core.generation };
        entry.insert(Peer::new(place, front, transport, &self.core.local));
        list(&mut self.core.peers, &mut self.active, key);
        self.core.peers.get_mut(key).ok_or_else(|| io::Error::other("a connection that was taken in is not there"))
    }

    /// What the system has told; whether it may know of more.
    fn note_readiness(&mut self, events: &Events) -> bool {
        for event in events {
            match event.token() {
                WAKE_UP => {}
                token @ (LISTEN_CLEAR | LISTEN_TLS | LISTEN_HTTP | LISTEN_HTTPS) => {
                    self.ports.iter_mut().filter(|port| port.token == token).for_each(|port| port.pending = true);
                }
                token if ForwardedLinks::has(token) => {
                    let is_readable = event.is_readable() || event.is_read_closed();
                    self.forwarded.note_readiness(token, is_readable, event.is_writable());
                }
                Token(key) => {
                    let Some(peer) = self.core.peers.get_mut(key) else { continue };
                    peer.transport.read_closed |= event.is_read_closed();
                    // A handshake goes on by reading, also where it waited to write.
                    peer.transport.readable |=
                        event.is_readable() || (event.is_writable() && connection::is_shaking_hands(peer));
                    peer.transport.writable |= event.is_writable();
                    list(&mut self.core.peers, &mut self.active, key);
                }
            }
        }
        events.iter().count() == READY_MAX
    }

    /// Whether the system has told of a connection that has signed in.
    fn hears_of_known(&self, events: &Events) -> bool {
        events.iter().any(|event| self.core.peers.get(event.token().0).is_some_and(|peer| !peer.is_unauthenticated()))
    }

    fn open_letter(&mut self, notice: Notice, state: &mut State) {
        match notice {
            Notice::SignedIn { peer, generation, verdict } => {
                if let Some(found) = self.core.peers.get_mut(peer).filter(|peer| peer.place.generation == generation) {
                    sasl::signed_in(found, &self.core.local, verdict);
                    // What it said behind its proof are events now.
                    list(&mut self.core.peers, &mut self.active, peer);
                }
            }
            Notice::Survey(question) => self.questions.push(question),
            Notice::Stop { generation, question } => {
                let is_meant = |peer: &Connection| peer.place.generation == generation && !peer.front.is_ending();
                let found = self.core.peers.iter_mut().find(|(_, peer)| is_meant(peer));
                question.answer(found.map(|(_, peer)| {
                    let was = connections::describe(peer, &self.core.local);
                    connections::stop(peer, &mut self.core.local, state);
                    was
                }));
            }
            Notice::Displaced { generation } => {
                if let Some((_, peer)) =
                    self.core.peers.iter_mut().find(|(_, peer)| peer.place.generation == generation)
                {
                    connections::displace(peer, &mut self.core.local, state);
                }
            }
            Notice::Sole { generation } => {
                if let Some((_, peer)) =
                    self.core.peers.iter_mut().find(|(_, peer)| peer.place.generation == generation)
                {
                    sole::open(peer, &mut self.core.local);
                }
            }
            Notice::Arrived(arrival) => {
                let began = self.clock().now();
                match arrival.downcast::<Arrival>() {
                    Ok(arrival) => self.arrived(*arrival),
                    Err(other) => match other.downcast::<Answered>() {
                        Ok(answered) => self.answered(&answered),
                        Err(other) => {
                            if let Ok(answered) = other.downcast::<OwnerAnswered>() {
                                self.owner_answered(*answered);
                            }
                        }
                    },
                }
                self.precedence.took(self.core.local.manager.clock.since(began));
            }
            Notice::Ready(queue) => self.core.local.serve(queue),
            Notice::Freed(queue) => self.core.local.producers.freed.push(queue),
            Notice::Signed(answers) => answers.into_iter().for_each(|answer| self.signed(answer)),
            Notice::Channel(notice) => {
                let _role = role::enter(Role::ChannelInitiator);
                self.channel_letter(notice, state);
            }
            Notice::Finished(done) => self.core.finished(*done, state),
        }
    }

    /// Timers, expiry, and messages that are stuck.
    fn tick(&mut self, state: &mut State) {
        self.next_tick = self.core.local.now + TICK;
        // What is expired, moved or tried again below goes to the journal now.
        self.core.local.journaling.urgent = true;
        let now = self.core.local.now;
        let arriving = self.core.local.manager.clone();
        let arriving = &arriving.listening.arriving;
        self.precedence.set_any_known(self.core.peers.iter().any(|(_, peer)| !peer.is_unauthenticated()));
        for (key, peer) in &mut self.core.peers {
            peer.note_arriving(arriving);
            if peer.arriving.stopped || !peer.has_room() {
                peer.front.not_read(now);
            }
            if !peer.front.is_closed()
                && let Some(refusal) = self.line.gives_up((key, peer.place.generation), &peer.arriving, arriving, now)
            {
                crate::warning!(
                    reason = refusal.reason.code,
                    cause = refusal.cause,
                    "{}: {refusal}",
                    peer.address_text()
                );
                ending::forget_all(peer, &mut self.core.local, state, false);
                peer.front.close(Some(refusal.into()));
                self.core.local.touched.push(key);
            }
            if peer.front.poll_timeout().is_some_and(|due| due <= now) {
                peer.front.handle_timeout(now);
                self.core.local.touched.push(key);
            }
            if peer.front.is_closed() && now >= *peer.transport.flush_by.get_or_insert(now + FLUSH_WITHIN) {
                peer.ended.broken.get_or_insert_with(|| "did not take the last words".into());
                self.core.local.touched.push(key);
            }
            connection::give_up_renewal(peer, now);
            tick_of(peer, &mut self.core.local, state);
            if peer.ended.broken.is_some() {
                self.core.local.touched.push(key);
            }
        }
        if std::mem::take(&mut self.accept_again) {
            self.ports.iter_mut().for_each(|port| port.pending = true);
        }
        self.core.tick(state);
        self.tick_forwarded();
        if self.core.local.manager.stopping.load(Ordering::Acquire) && self.stop_by.is_none() {
            self.begin_to_stop(state);
        }
    }

    /// Takes no more connections and says goodbye to those there are.
    fn begin_to_stop(&mut self, state: &mut State) {
        self.stop_by = Some(self.core.local.now + DRAIN_WITHIN);
        self.ports.clear();
        let goodbye = Refusal::new(reason::Q_MGR_STOPPING, "the queue manager is stopping");
        for (key, peer) in &mut self.core.peers {
            ending::forget_all(peer, &mut self.core.local, state, false);
            peer.front.close(Some(goodbye.clone().into()));
            self.core.local.touched.push(key);
        }
    }

    fn is_done(&self) -> bool {
        let drained = self.core.peers.is_empty() && self.core.local.producers.departed.is_empty();
        self.stop_by.is_some_and(|by| drained || self.core.local.now >= by)
    }

    /// Takes leave of connections that are over.
    fn reap(&mut self, state: &mut State) {
        for index in 0..self.active.len() {
            let key = self.active.at(index);
            if !self.core.peers.get(key).is_some_and(connection::is_over) {
                continue;
            }
            let began = self.clock().now();
            let mut peer = self.core.peers.remove(key);
            self.leave_owners(&mut peer);
            self.core.deadlines.forget(key);
            peer.arriving.holds(0, 0, &self.core.local.manager.listening.arriving);
            // Deregistering a socket that is about to close can only fail where there is nothing to deregister.
            let _ = peer.transport.socket.tcp().map(|stream| self.poll.registry().deregister(stream));
            if let Some(event) = peer.ended.refused.take() {
                authority::tell_of_tls(&self.core.local, state, &event);
            }
            ending::forget_all(&mut peer, &mut self.core.local, state, true);
            if let Some(user) = peer.login.user.take() {
                state.clients.users.disconnect(user, self.core.local.now);
            }
            let is_unauthenticated = peer.is_unauthenticated();
            if peer.ended.broken.is_none() {
                peer.transport.socket.close();
            }
            // Closing the socket is most of the work.
            drop(peer);
            if is_unauthenticated {
                self.precedence.took(self.core.local.manager.clock.since(began));
            }
        }
        self.core.local.tell_of_gone(state);
    }
}

/// Whether the one that was to be accepted is gone, and the next may be looked at.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}
