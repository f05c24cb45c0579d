//! One connection: its front end, who it is, and its links.

use super::consumer::Consumer;
use super::consumers::Seat;
use super::local::Local;
use super::producer::Producer;
use super::receiving::Receiving;
use super::sending::Sending;
use super::unit_of_work::units::Coordinator;
use crate::arriving::{Arriving, Share};
use crate::channel::calling::Calling;
use crate::channel::partner::Partner;
use crate::dynamic::Deletes;
use crate::events::Event;
use crate::front::client::Introduction;
use crate::front::{Front, LinkId, SessionId, UnitId};
use crate::limits::UserId;
use crate::maps::HashMap;
use crate::reason::Refusal;
use crate::resumable::Resumable;
use crate::sign_in::verdict::Identity;
use crate::sole_connection::Wish;
use crate::transport::{Traffic, Transport};
use bulla_amqp::scram::ScramServer;
use bulla_device::Role;
use bulla_queue::{MessageId, QueueId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Whether a connection may attach a client's links.
#[derive(Clone, Debug, Default)]
pub enum Admission {
    /// It was not asked: the partner is a queue manager, and has attached channels alone.
    #[default]
    Unasked,
    /// It may, as who it is.
    Open,
    /// It may not, and why.
    Closed(Refusal),
}

/// An exchange that takes more than one step.
pub enum Exchange {
    /// SCRAM: the challenge is out.
    Challenged(Box<ScramServer>),
    /// SCRAM: the proof was good and the server's own is out; the client's empty answer ends it.
    Proved(Identity),
}

/// A link and what it is for.
pub enum Link {
    /// The client puts.
    Producer(Box<Producer>),
    /// The client gets or browses.
    Consumer(Box<Consumer>),
    /// A channel, or a broker that is not ours, sends.
    Receiving(Box<Receiving>),
    /// A channel's: this side sends, and `ChannelUse::sending` knows the rest.
    Sending(SessionId),
    /// The client begins and ends units of work.
    Coordinator(Coordinator),
}

/// A suspended link of a connection that is still there.
pub struct Left {
    pub(crate) session: SessionId,
    pub(crate) link: Resumable,
}

/// How far a client has come with signing in.
#[derive(Default)]
pub struct SignIn {
    /// As whom it has signed in.
    pub identity: Identity,
    pub(crate) exchange: Option<Exchange>,
    /// Dropped with the connection: a check of its password is not begun any more then.
    pub alive: Arc<()>,
}

/// How a connection has ended, where it has.
#[derive(Default)]
pub struct Ended {
    /// Why it is over.
    pub broken: Option<String>,
    /// What the peer gave as the reason when it closed.
    pub closed_by: Option<String>,
    /// It was refused before it came to anything: what is to be told of that when it is gone.
    pub refused: Option<Event>,
}

/// Where a dispatcher has a connection, and which of those it is that had that place.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The place.
    pub key: usize,
    /// Which connection it is.
    pub generation: u64,
}

/// A connection. What moves its bytes knows its transport by its own type; everything else does not.
pub struct Peer<T: ?Sized = dyn Transport> {
    /// Where the dispatcher has it.
    pub place: Place,
    /// Its front end.
    pub front: Box<Front>,
    /// Where it comes from, as long as it may be asked for: the system forgets it when the partner hangs up. None for a
    /// call that is still under way.
    pub from: Option<SocketAddr>,
    /// When it was accepted or made, milliseconds since 1970.
    pub since_ms: u64,
    /// What went over it.
    pub traffic: Traffic,
    /// Who it is, and whether it was let in.
    pub login: Login,
    /// What the other end said of itself.
    pub opened: Option<Box<Introduction>>,
    /// What the dispatcher's turns have to do with it.
    pub turns: Turns,
    /// What it has of all messages that are arriving.
    pub arriving: Share,
    /// Its links.
    pub links: HashMap<LinkId, Link>,
    /// Its units of work.
    pub units: Units,
    /// What is let go of with the connection, beside its links.
    pub holds: Holds,
    /// What it is to a channel.
    pub channel: ChannelUse,
    /// How it has ended, where it has.
    pub ended: Ended,
    /// What it runs over.
    pub transport: T,
}

/// Who a connection is, and whether it was let in.
#[derive(Default)]
pub struct Login {
    /// As whom it acts, once it was let in.
    pub identity: Identity,
    /// That user, as one who is limited.
    pub user: Option<UserId>,
    pub(crate) sign_in: SignIn,
    /// Whether it may attach a client's links.
    pub admission: Admission,
    /// Since when it has been open without being let in, and without a channel.
    pub idle_since: Option<Instant>,
}

/// What the dispatcher's turns have to do with a connection.
#[derive(Default)]
pub struct Turns {
    /// To be looked at or written to in this turn.
    pub listed: bool,
    /// On the list of connections to look at.
    pub active: bool,
    /// A consumer found the output full: its queues are served again after the next write.
    pub output_full: bool,
    /// Changes of definitions that the journal has not synced yet: nothing goes out meanwhile.
    pub held: u32,
}

/// Units of work of a connection.
#[derive(Default)]
pub struct Units {
    /// Those that are open.
    pub open: Vec<UnitId>,
    /// Where among the deliveries of which unit one is that has an outcome there.
    pub staged_gets: HashMap<(LinkId, MessageId), (UnitId, usize)>,
}

/// What is let go of with a connection, beside its links.
#[derive(Default)]
pub struct Holds {
    /// Temporary queues that end with the connection.
    pub dynamic: Vec<QueueId>,
    /// It is, or waits to be, the only connection of its container.
    pub sole: Option<Wish>,
    /// Its links that are suspended.
    pub left: Vec<Left>,
}

/// What a connection is to a channel.
#[derive(Default)]
pub struct ChannelUse {
    /// The call that this connection is, where this side began it.
    pub calling: Option<Box<Calling>>,
    /// The sending end.
    pub sending: Option<Box<Sending>>,
    /// A channel, or a partner that is not ours, has sent on it.
    pub is_channel: bool,
}

impl<T: Transport> Peer<T> {
    /// A connection that has just come, or was just called for.
    pub fn new(place: Place, front: Box<Front>, mut transport: T, local: &Local) -> Self {
        Self {
            place,
            front,
            from: transport.partner_address(),
            since_ms: local.wall_ms,
            traffic: Traffic::default(),
            login: Login::default(),
            opened: None,
            turns: Turns::default(),
            arriving: Share::new(local.now),
            links: HashMap::default(),
            units: Units::default(),
            holds: Holds::default(),
            channel: ChannelUse::default(),
            ended: Ended::default(),
            transport,
        }
    }
}

impl Link {
    /// Whether it is a client's, and counts as one of its user's.
    pub fn is_clients(&self) -> bool {
        matches!(self, Self::Producer(_) | Self::Consumer(_) | Self::Coordinator(_))
    }

    /// The session that the link ends with.
    pub fn session(&self) -> SessionId {
        match self {
            Self::Producer(producer) => producer.session,
            Self::Consumer(consumer) => consumer.session,
            Self::Receiving(receiving) => receiving.session,
            Self::Sending(session) => *session,
            Self::Coordinator(coordinator) => coordinator.session,
        }
    }

    /// The queue and the name of the durable subscription that the link gets from.
    pub fn durable_subscription(&self) -> Option<(QueueId, String)> {
        let Self::Consumer(consumer) = self else { return None };
        let name = consumer.subscription()?.durable.clone()?;
        Some((consumer.route.queue, name))
    }

    /// The permanent dynamic queue that is to go when the link closes, and how.
    pub fn deletes(&self) -> Option<(String, Deletes)> {
        let (route, deletes) = match self {
            Self::Producer(producer) => (producer.route.as_ref(), producer.deletes),
            Self::Consumer(consumer) => (Some(&consumer.route), consumer.deletes()),
            Self::Receiving(_) | Self::Sending(_) | Self::Coordinator(_) => (None, None),
        };
        deletes.zip(route).map(|(deletes, route)| (route.queue_name.clone(), deletes))
    }
}

impl<T: Transport + ?Sized> Peer<T> {
    /// What is known of who is at the other end.
    pub fn partner(&self) -> Partner {
        self.opened.as_deref().map(Partner::said).unwrap_or_default()
    }

    /// Has the queues served that it gets from.
    pub fn serve_all(&self, local: &mut Local) {
        for link in self.links.values() {
            if let Link::Consumer(consumer) = link {
                local.serve(consumer.route.queue);
            }
        }
    }

    /// One of its links, among those that get from a queue.
    pub fn seat(&self, link: LinkId) -> Seat {
        Seat { key: self.place.key, generation: self.place.generation, link }
    }

    /// Whose processor time its turns are.
    pub fn role(&self) -> Role {
        if self.channel.is_channel || self.channel.calling.is_some() {
            Role::ChannelInitiator
        } else {
            Role::QueueManager
        }
    }

    /// Whether it is unauthenticated: it has not signed in, or as ANONYMOUS, and is no channel.
    pub fn is_unauthenticated(&self) -> bool {
        self.login.sign_in.identity.user.is_none()
            && self.login.identity.user.is_none()
            && self.role() != Role::ChannelInitiator
    }

    /// The user whose share of the dispatcher's time this connection uses. None for channels, and for unauthenticated
    /// clients, which have one share together.
    pub fn sharing_user(&self) -> Option<UserId> {
        self.login.user.filter(|_| !self.is_unauthenticated() && self.role() != Role::ChannelInitiator)
    }

    /// Whether what a channel sends on it has room in memory. Where it has not, nothing is read: what is in memory is
    /// put on its queues first.
    pub fn has_room(&self) -> bool {
        let is_full = |link: &Link| matches!(link, Link::Receiving(receiving) if !receiving.has_room());
        !self.channel.is_channel || !self.links.values().any(is_full)
    }

    /// Bytes that it holds of messages that are arriving, and of a frame that has begun.
    pub fn note_arriving(&mut self, all: &Arriving) {
        self.arriving.holds(self.front.in_progress(), self.front.arrived(), all);
    }

    /// SSLRKEYC of a channel on this connection, in bytes: the side that called renews the keys, the other one lets it.
    pub fn renew_keys(&mut self, bytes: u32) {
        let calls = self.channel.calling.is_some();
        self.transport.renew_keys(bytes, calls);
    }

    /// Where it comes from, or was called at. None where it has no address, or no longer.
    pub fn address(&mut self) -> Option<SocketAddr> {
        self.from.or_else(|| self.transport.partner_address())
    }

    /// That address for the log and for status, `unknown` where there is none.
    pub fn address_text(&mut self) -> String {
        self.address().map_or_else(|| "unknown".into(), |address| address.to_string())
    }

    /// Gives the connection up.
    pub fn end(&mut self, why: impl std::fmt::Display) {
        self.transport.stop();
        self.ended.broken.get_or_insert_with(|| why.to_string());
    }
}
