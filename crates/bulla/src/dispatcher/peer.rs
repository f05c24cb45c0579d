//! One connection: its socket, its front end, who it is, and its links.

use super::consumer::Consumer;
use super::consumers::Seat;
use super::local::Local;
use super::offered;
use super::producer::Producer;
use super::socket::{Moved, Socket, Traffic};
use super::unit_of_work::units::{Coordinator, UnitId};
use crate::arriving::{Arriving, Share};
use crate::channel::calling::Calling;
use crate::channel::partner::Partner;
use crate::channel::receiver::receiving::Receiving;
use crate::channel::sender::sending::Sending;
use crate::dynamic::Deletes;
use crate::events::Event;
use crate::front::{Front, LinkId, SessionId};
use crate::limits::UserId;
use crate::maps::HashMap;
use crate::reason::Refusal;
use crate::resumable::Resumable;
use crate::sign_in::verdict::Identity;
use crate::sole_connection::Wish;
use crate::task::TaskMeter;
use crate::tls::TlsRefusal;
use crate::wall_clock::wall_ms;
use bulla_amqp::scram::ScramServer;
use bulla_amqp::types::Open;
use bulla_device::Role;
use bulla_queue::{MessageId, QueueId};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reads of one connection in one turn: after that the others have theirs.
const READS_PER_TURN: usize = 2;

/// How long a partner may take for its part of a renewal of the keys (SSLRKEYC).
const RENEWAL_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of output that may gather meanwhile before nothing more is read.
const RENEWAL_OUTPUT_BYTES_MAX: usize = 8 << 20;

/// Whether a connection may attach a client's links.
#[derive(Clone, Debug, Default)]
pub(crate) enum Admission {
    /// It was not asked: the partner is a queue manager, and has attached channels alone.
    #[default]
    Unasked,
    /// It may, as who it is.
    Open,
    /// It may not, and why.
    Closed(Refusal),
}

/// An exchange that takes more than one step.
pub(crate) enum Exchange {
    /// SCRAM: the challenge is out.
    Challenged(Box<ScramServer>),
    /// SCRAM: the proof was good and the server's own is out; the client's empty answer ends it.
    Proved(Identity),
    /// OAUTHBEARER: why the token is refused has been said; the client's answer ends it.
    Refused,
}

/// A link and what it is for.
pub(crate) enum Link {
    /// The client puts.
    Producer(Box<Producer>),
    /// The client gets or browses.
    Consumer(Box<Consumer>),
    /// A channel, or a broker that is not ours, sends.
    Receiving(Box<Receiving>),
    /// A channel's: this side sends, and `Peer::sending` knows the rest.
    Sending(SessionId),
    /// The client begins and ends units of work.
    Coordinator(Coordinator),
}

/// A suspended link of a connection that is still there.
pub(crate) struct Left {
    pub(super) session: SessionId,
    pub(super) link: Resumable,
}

/// The socket of a connection, and how it stands.
pub(crate) struct Transport {
    pub(crate) socket: Socket,
    /// Where it comes from, as long as it may be asked for: the system forgets it when the partner hangs up. None for a
    /// call that is still under way.
    pub(crate) from: Option<SocketAddr>,
    /// Since when output waits for the partner's part of a renewal of the keys.
    pub(crate) renewal_since: Option<Instant>,
    /// What went over the socket.
    pub(crate) traffic: Traffic,
    /// The socket may have bytes to read.
    pub(crate) readable: bool,
    /// The other side sends no more: behind the last bytes is the end, of which epoll tells only once.
    pub(crate) read_closed: bool,
    /// The socket may take bytes.
    pub(crate) writable: bool,
    /// A consumer found the output full: its queues are served again after the next write.
    pub(crate) output_full: bool,
    /// When a connection that is over must have taken what is still to be sent.
    pub(crate) flush_by: Option<Instant>,
}

/// How far a client has come with signing in.
#[derive(Default)]
pub(crate) struct SignIn {
    /// As whom it has signed in.
    pub(crate) identity: Identity,
    pub(crate) exchange: Option<Exchange>,
    /// Dropped with the connection: a check of its password is not begun any more then.
    pub(crate) alive: Arc<()>,
}

/// How a connection has ended, where it has.
#[derive(Default)]
pub(crate) struct Ended {
    /// Why it is over.
    pub(crate) broken: Option<String>,
    /// What the peer gave as the reason when it closed.
    pub(crate) closed_by: Option<String>,
    /// It was refused before it came to anything: what is to be told of that when it is gone.
    pub(crate) refused: Option<Event>,
}

/// A connection.
pub(crate) struct Peer {
    /// Its place in the dispatcher.
    pub(crate) key: usize,
    pub(crate) front: Box<Front>,
    pub(crate) transport: Transport,
    /// As whom it acts, once it was let in.
    pub(crate) identity: Identity,
    /// That user, as one who is limited.
    pub(crate) user: Option<UserId>,
    pub(crate) sign_in: SignIn,
    /// Whether it may attach a client's links.
    pub(crate) admission: Admission,
    /// Since when it has been open without being let in, and without a channel.
    pub(crate) idle_since: Option<Instant>,
    /// Changes of definitions that the journal has not synced yet: nothing goes out meanwhile.
    pub(crate) held: u32,
    pub(crate) links: HashMap<LinkId, Link>,
    /// What the other end said of itself.
    pub(crate) opened: Option<Box<Open>>,
    /// Which of the connections that had this place it is.
    pub(crate) generation: u64,
    /// When it was accepted or made, milliseconds since 1970.
    pub(crate) since_ms: u64,
    /// What it has of all messages that are arriving.
    pub(crate) arriving: Share,
    /// To be looked at or written to in this turn.
    pub(crate) listed: bool,
    /// On the list of connections to look at.
    pub(crate) active: bool,
    pub(crate) ended: Ended,
    /// The call that this connection is, where this side began it for a channel.
    pub(crate) calling: Option<Box<Calling>>,
    /// The sending end of a channel.
    pub(crate) sending: Option<Box<Sending>>,
    /// A channel, or a partner that is not ours, has sent on it.
    pub(crate) is_channel: bool,
    /// Its open units of work.
    pub(crate) units: Vec<UnitId>,
    /// Where among the deliveries of which unit one is that has an outcome there.
    pub(crate) staged_gets: HashMap<(LinkId, MessageId), (UnitId, usize)>,
    /// Temporary queues that end with the connection.
    pub(crate) dynamic: Vec<QueueId>,
    /// It is, or waits to be, the only connection of its container.
    pub(crate) sole: Option<Wish>,
    /// Its links that are suspended.
    pub(crate) left: Vec<Left>,
}

impl Transport {
    /// A socket that is connected, or about to be; one that is `ready` may be read and written.
    pub(crate) fn new(mut socket: Socket, ready: bool) -> Self {
        Self {
            from: socket.peer_address().ok(),
            socket,
            renewal_since: None,
            traffic: Traffic::default(),
            readable: ready,
            read_closed: false,
            writable: ready,
            output_full: false,
            flush_by: None,
        }
    }
}

impl Link {
    /// Whether it is a client's, and counts as one of its user's.
    pub(crate) fn is_clients(&self) -> bool {
        matches!(self, Self::Producer(_) | Self::Consumer(_) | Self::Coordinator(_))
    }

    /// The session that the link ends with.
    pub(crate) fn session(&self) -> SessionId {
        match self {
            Self::Producer(producer) => producer.session,
            Self::Consumer(consumer) => consumer.session,
            Self::Receiving(receiving) => receiving.session,
            Self::Sending(session) => *session,
            Self::Coordinator(coordinator) => coordinator.session,
        }
    }

    /// The queue and the name of the durable subscription that the link gets from.
    pub(crate) fn durable_subscription(&self) -> Option<(QueueId, String)> {
        let Self::Consumer(consumer) = self else { return None };
        let name = consumer.subscription()?.durable.clone()?;
        Some((consumer.route.queue, name))
    }

    /// The permanent dynamic queue that is to go when the link closes, and how.
    pub(crate) fn deletes(&self) -> Option<(String, Deletes)> {
        let (route, deletes) = match self {
            Self::Producer(producer) => (producer.route.as_ref(), producer.deletes),
            Self::Consumer(consumer) => (Some(&consumer.route), consumer.deletes()),
            Self::Receiving(_) | Self::Sending(_) | Self::Coordinator(_) => (None, None),
        };
        deletes.zip(route).map(|(deletes, route)| (route.queue_name.clone(), deletes))
    }
}

impl Peer {
    /// What is known of who is at the other end.
    pub(crate) fn partner(&self) -> Partner {
        self.opened.as_deref().map(Partner::said).unwrap_or_default()
    }

    /// Has the queues served that it gets from.
    pub(crate) fn serve_all(&self, local: &mut Local) {
        for link in self.links.values() {
            if let Link::Consumer(consumer) = link {
                local.serve(consumer.route.queue);
            }
        }
    }

    /// One of its links, among those that get from a queue.
    pub(super) fn seat(&self, link: LinkId) -> Seat {
        Seat { key: self.key, generation: self.generation, link }
    }

    /// Whose processor time its turns are.
    pub(crate) fn role(&self) -> Role {
        if self.is_channel || self.calling.is_some() { Role::ChannelInitiator } else { Role::QueueManager }
    }

    /// Whether it is unauthenticated: it has not signed in, or as ANONYMOUS, and is no channel.
    pub(super) fn is_unauthenticated(&self) -> bool {
        self.sign_in.identity.user.is_none() && self.identity.user.is_none() && self.role() != Role::ChannelInitiator
    }

    /// The user whose share of the dispatcher's time this connection uses. None for channels, and for unauthenticated
    /// clients, which have one share together.
    pub(super) fn sharing_user(&self) -> Option<UserId> {
        self.user.filter(|_| !self.is_unauthenticated() && self.role() != Role::ChannelInitiator)
    }

    /// Whether a TLS handshake is under way.
    pub(crate) fn is_shaking_hands(&self) -> bool {
        self.transport.socket.is_tls() && self.transport.socket.established().is_none()
    }

    /// Whether there may be input, and the front end takes it: one whose output waits takes none.
    pub(crate) fn wants_to_read(&self) -> bool {
        // A renegotiation that the output waits for is driven by reading.
        let room = self.front.output_len() < RENEWAL_OUTPUT_BYTES_MAX;
        self.transport.readable
            && !self.arriving.stopped
            && ((self.front.wants_input() && self.has_room()) || (room && self.transport.socket.write_waits_for_read()))
    }

    /// Whether what a channel sends on it has room in memory. Where it has not, nothing is read: what is in memory is
    /// put on its queues first.
    pub(crate) fn has_room(&self) -> bool {
        let is_full = |link: &Link| matches!(link, Link::Receiving(receiving) if !receiving.has_room());
        !self.is_channel || !self.links.values().any(is_full)
    }

    /// Ends a connection whose partner does not answer a renewal of the keys; asked at each tick.
    pub(crate) fn give_up_renewal(&mut self, now: Instant) {
        if !self.transport.socket.write_waits_for_read() {
            self.transport.renewal_since = None;
        } else if now >= *self.transport.renewal_since.get_or_insert(now) + RENEWAL_WITHIN {
            self.end("the partner does not answer the renewal of the keys");
        }
    }

    /// Whether the socket may take bytes that there are.
    pub(crate) fn wants_to_write(&self) -> bool {
        self.transport.writable
            && ((self.front.output_len() > 0 && self.held == 0) || self.transport.socket.wants_to_send())
    }

    /// Bytes that it holds of messages that are arriving, and of a frame that has begun.
    pub(crate) fn note_arriving(&mut self, all: &Arriving) {
        self.arriving.holds(self.front.in_progress(), self.front.arrived(), all);
    }

    /// Reads what is there into `room`, within this turn's share, no more than `bytes_max` at a time, and feeds it to
    /// the front end, which copies what it keeps out of it.
    pub(crate) fn read(&mut self, room: &mut [u8], local: &Local, bytes_max: Option<usize>) {
        let shaking_hands = self.is_shaking_hands();
        match local.tls_meter.time(shaking_hands, || self.transport.socket.handshake()) {
            Ok(Moved::Bytes(_)) if shaking_hands && self.calling.is_none() => {
                // Only now is it known whether EXTERNAL may be offered; no byte of AMQP has been seen yet.
                self.front = offered::front(local, self.transport.socket.verified_certificate(), true);
            }
            Ok(Moved::Bytes(_)) => {}
            Ok(Moved::Blocked) => {
                self.transport.readable = false;
                return;
            }
            Ok(Moved::End) => return self.end("closed during the handshake"),
            Err(error) => return self.failed(&error),
        }
        let room_len = bytes_max.map_or(room.len(), |max| max.min(room.len()));
        self.read_input(&mut room[..room_len], local);
        self.note_arriving(&local.manager.arriving);
        self.count_key_resets();
        if self.transport.socket.write_goes_on() {
            self.transport.writable = true;
        }
    }

    fn read_input(&mut self, room: &mut [u8], local: &Local) {
        for _ in 0..READS_PER_TURN {
            match local.tls_meter.time(self.transport.socket.is_tls(), || self.transport.socket.read(room)) {
                Ok(Moved::Bytes(n)) => {
                    self.arriving.heard(local.now);
                    self.transport.traffic.buffers_received += 1;
                    self.transport.traffic.bytes_received += n as u64;
                    self.front.receive(local.now, &room[..n]);
                    if n < room.len() && self.transport.socket.is_drained() && !self.transport.read_closed {
                        // A short read emptied the socket; epoll tells of what comes after it.
                        self.transport.readable = false;
                        return;
                    }
                    // What comes after an open, or a sign-in, is read when that is answered.
                    if !self.front.wants_input() {
                        return;
                    }
                }
                Ok(Moved::Blocked) => {
                    self.transport.readable = false;
                    return;
                }
                Ok(Moved::End) => return self.end("closed by the peer"),
                Err(error) => return self.failed(&error),
            }
        }
    }

    /// Writes what the front end has, until it or the socket has enough. True when bytes went out.
    pub(crate) fn write(&mut self, tls: &TaskMeter) -> bool {
        let mut wrote = false;
        match tls.time(self.transport.socket.wants_to_send(), || self.transport.socket.send()) {
            Ok(true) => {}
            Ok(false) => self.transport.writable = false,
            Err(error) => self.failed(&error),
        }
        if self.is_shaking_hands() {
            return false;
        }
        self.transport.readable |= self.transport.socket.read_goes_on();
        while self.transport.writable && self.held == 0 && self.front.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.front.output_slices(&mut slices);
            let written = match tls.time(self.transport.socket.is_tls(), || self.transport.socket.write(&slices)) {
                Ok(Moved::Bytes(n)) => n,
                Ok(Moved::Blocked) => {
                    self.transport.writable = false;
                    self.transport.readable |= self.transport.socket.write_waits_for_read();
                    break;
                }
                Ok(Moved::End) => {
                    self.end("closed by the peer");
                    break;
                }
                Err(error) => {
                    self.failed(&error);
                    break;
                }
            };
            drop(slices);
            self.transport.traffic.buffers_sent += 1;
            self.transport.traffic.bytes_sent += written as u64;
            self.front.output_written(written);
            wrote = true;
        }
        self.count_key_resets();
        wrote
    }

    /// SSLRKEYC of a channel on this connection, in bytes: the side that called renews the keys, the other one lets it.
    pub(crate) fn renew_keys(&mut self, bytes: u32) {
        let calls = self.calling.is_some();
        if let Some(tls) = self.transport.socket.tls_socket_mut() {
            if calls {
                tls.set_key_reset(bytes.into());
            } else {
                tls.allow_renegotiation(bytes > 0);
            }
        }
    }

    fn count_key_resets(&mut self) {
        let Some(tls) = self.transport.socket.tls_socket() else { return };
        if tls.key_resets() != self.transport.traffic.key_resets {
            self.transport.traffic.key_resets = tls.key_resets();
            self.transport.traffic.last_key_reset_ms = tls.last_key_reset().map(wall_ms);
        }
    }

    /// Whether nothing more can come of this connection.
    pub(crate) fn is_over(&self) -> bool {
        let all_sent = self.front.output_len() == 0 && !self.transport.socket.wants_to_send();
        self.ended.broken.is_some() || (self.front.is_closed() && all_sent)
    }

    /// The socket failed. What TLS says of it is a channel's failure, or told of when the connection goes, and nowhere
    /// else.
    fn failed(&mut self, error: &io::Error) {
        match (TlsRefusal::of_io(error), &mut self.calling) {
            (Some(refusal), Some(calling)) => drop(calling.failure.get_or_insert(refusal.refusal())),
            // Callers that are no TLS, or hang up, are not worth a line.
            (Some(TlsRefusal::Library { .. }), None) | (None, _) => {}
            // Behind the last words, how the partner hangs up says nothing of TLS.
            (Some(_), None) if self.front.is_closed() => {}
            (Some(refusal), None) => {
                let address =
                    self.transport.from.map_or_else(|| address(&mut self.transport.socket), |from| from.to_string());
                let (channel, reason) = (String::new(), refusal.refusal());
                self.ended.refused = Some(Event::TlsRefused { channel, partner: address, reason });
            }
        }
        self.end(error);
    }

    /// Gives the connection up.
    pub(crate) fn end(&mut self, why: impl std::fmt::Display) {
        self.transport.readable = false;
        self.transport.writable = false;
        self.ended.broken.get_or_insert_with(|| why.to_string());
    }
}

/// The address of a peer, for the log.
pub(crate) fn address(socket: &mut Socket) -> String {
    socket.peer_address().map_or_else(|_| "unknown".into(), |address| address.to_string())
}
