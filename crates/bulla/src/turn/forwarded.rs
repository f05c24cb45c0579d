//! Connections to owners of shared groups, on which links of clients are forwarded. Each is its client's alone.

use super::socket::{Moved, Socket};
use super::tls_socket::TlsSocket;
use super::{Connection, Dispatcher, list};
use crate::catalog::reason::Forwarded;
use crate::catalog::{ChannelDefinition, ChannelKind};
use crate::front::Wire;
use crate::front::forwards::{OwnerCall, OwnerId};
use crate::mailbox::Notice;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::sign_in::tickets::{Holder, Ticket};
use crate::tls::{self, TlsRefusal};
use mio::net::TcpStream;
use mio::{Interest, Token};
use slab::Slab;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The tokens of these connections begin here: above those of clients, and below those of listeners.
const TOKENS: usize = usize::MAX / 2;
/// Reads of one connection in one turn.
const READS_PER_TURN: usize = 2;
/// How long a connection without its client may take to send what it still has.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// A client's connection, and which of its connections to owners.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    key: usize,
    generation: u64,
    owner: OwnerId,
}

/// An owner has answered, or has not, and where it is.
pub(super) struct OwnerAnswered {
    place: Place,
    call: OwnerCall,
    answer: Result<(Ticket, SocketAddr), Refusal>,
}

/// A connection to an owner.
struct Link {
    place: Place,
    socket: Socket,
    readable: bool,
    writable: bool,
    /// What its front end has left to say, since the client is gone, and until when.
    closing: Option<(Box<dyn Wire + Send>, Instant)>,
    is_listed: bool,
}

/// A dispatcher's connections to owners.
#[derive(Default)]
pub(super) struct ForwardedLinks {
    all: Slab<Link>,
    /// Those to be looked at.
    active: Vec<usize>,
}

impl ForwardedLinks {
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn list(&mut self, key: usize) {
        if let Some(link) = self.all.get_mut(key)
            && !std::mem::replace(&mut link.is_listed, true)
        {
            self.active.push(key);
        }
    }

    /// The system has told of one.
    pub(super) fn note_readiness(&mut self, token: Token, is_readable: bool, is_writable: bool) {
        let Some(key) = token.0.checked_sub(TOKENS) else { return };
        if let Some(link) = self.all.get_mut(key) {
            link.readable |= is_readable;
            link.writable |= is_writable;
            self.list(key);
        }
    }

    /// Whether that is the token of one.
    pub(super) fn has(token: Token) -> bool {
        (TOKENS..super::LISTEN_HTTPS.0).contains(&token.0)
    }
}

impl Dispatcher {
    /// Calls the owners that front ends want to be called.
    pub(super) fn call_owners(&mut self, state: &State) {
        for key in std::mem::take(&mut self.core.local.forwarding) {
            let Some(peer) = self.core.peers.get_mut(key) else { continue };
            let generation = peer.place.generation;
            while let Some(call) = peer.front.forwards().and_then(|forwards| forwards.take_call()) {
                let place = Place { key, generation, owner: call.owner };
                let (manager, index) = (self.core.local.manager.clone(), self.core.local.index);
                let Forwarded { group, user, ring, .. } = &call.forwarded;
                let Some(asker) = state.groups_elsewhere.asker(group) else {
                    let refusal = unavailable(&call, "how its owner is asked is not known");
                    post(&manager, index, OwnerAnswered { place, call, answer: Err(refusal) });
                    continue;
                };
                let holder = Holder { group: group.clone(), user: user.clone(), ring: *ring };
                asker.ask_for_ticket(
                    &holder,
                    Box::new(move |ticket| {
                        let Some(ticket) = ticket else {
                            let refusal = unavailable(&call, "its owner does not answer");
                            return post(&manager, index, OwnerAnswered { place, call, answer: Err(refusal) });
                        };
                        let host = call.host.trim_start_matches('[').trim_end_matches(']').to_owned();
                        if let Ok(address) = host.parse() {
                            let answer = Ok((ticket, SocketAddr::new(address, call.port)));
                            return post(&manager, index, OwnerAnswered { place, call, answer });
                        }
                        // A look-up may take seconds: not on the group's thread.
                        let workers = manager.clone();
                        let (again, found) = (call.clone(), manager.clone());
                        let taken = workers.workers.adapters.submit_aside(Box::new(move || {
                            let address =
                                (host.as_str(), call.port).to_socket_addrs().ok().and_then(|mut all| all.next());
                            let answer = address.map(|address| (ticket, address));
                            let answer = answer.ok_or_else(|| unavailable(&call, "its owner's host has no address"));
                            post(&found, index, OwnerAnswered { place, call, answer });
                        }));
                        if !taken {
                            let refusal = unavailable(&again, "too much is looked up");
                            post(&manager, index, OwnerAnswered { place, call: again, answer: Err(refusal) });
                        }
                    }),
                );
            }
        }
    }

    /// An owner was asked.
    pub(super) fn owner_answered(&mut self, answered: OwnerAnswered) {
        let OwnerAnswered { place, call, answer } = answered;
        let made = answer.and_then(|(ticket, address)| Ok((ticket, self.connection_to(&call, address)?)));
        let now = self.core.local.now;
        let Some(peer) = self.core.peers.get_mut(place.key).filter(|peer| peer.place.generation == place.generation)
        else {
            return;
        };
        let Some(forwards) = peer.front.forwards() else { return };
        let failed = match made {
            Ok((ticket, mut socket)) => {
                let entry = self.forwarded.all.vacant_entry();
                let key = entry.key();
                let interest = Interest::READABLE | Interest::WRITABLE;
                let registered = match socket.tcp() {
                    Some(stream) => self.poll.registry().register(stream, Token(TOKENS + key), interest),
                    None => Ok(()),
                };
                match registered {
                    Ok(()) => {
                        let link =
                            Link { place, socket, readable: false, writable: false, closing: None, is_listed: false };
                        entry.insert(link);
                        forwards.called(place.owner, Ok(ticket), now);
                        self.forwarded.list(key);
                        None
                    }
                    Err(error) => Some(unavailable(&call, &error.to_string())),
                }
            }
            Err(refusal) => Some(refusal),
        };
        if let Some(refusal) = failed {
            forwards.called(place.owner, Err(refusal), now);
        }
        self.core.local.touched.push(place.key);
        list(&mut self.core.peers, &mut self.active, place.key);
    }

    /// A connection to an owner, under TLS where the group's definition asks for that.
    fn connection_to(&self, call: &OwnerCall, address: SocketAddr) -> Result<Socket, Refusal> {
        let failed = |error: io::Error| unavailable(call, &error.to_string());
        let definition = match &call.forwarded.cipher_spec {
            None if address.ip().to_canonical().is_loopback() => None,
            None => {
                let detail = format!(
                    "shared group {}: its owner is on another machine, and the group has no SSLCIPH",
                    call.forwarded.group
                );
                return Err(Refusal {
                    cause: Some("in-clear"),
                    ..Refusal::new(reason::SSL_INITIALIZATION_ERROR, detail)
                });
            }
            Some(spec) => {
                let as_a_sender = ChannelDefinition::new(ChannelKind::Sender);
                Some(ChannelDefinition { cipher_spec: Some(spec.clone()), ..as_a_sender })
            }
        };
        let stream = TcpStream::connect(address).map_err(failed)?;
        let _ = stream.set_nodelay(true);
        match definition {
            None => Ok(Socket::Plain(stream)),
            Some(definition) => {
                let ssl = tls::channel_client(&self.tls, &definition, &call.forwarded.group, &call.host);
                // Where its owner asks for a certificate, this thread signs: that is once for each client.
                let socket = TlsSocket::new(stream, ssl.map_err(|refusal| refusal.refusal())?).map_err(failed)?;
                Ok(Socket::Tls(Box::new(socket)))
            }
        }
    }

    /// Reads what owners have sent.
    pub(super) fn read_forwarded(&mut self) {
        for key in self.forwarded.active.clone() {
            self.read_link(key);
        }
    }

    fn read_link(&mut self, key: usize) {
        let Self { forwarded, core, active, room, .. } = self;
        let Some(link) = forwarded.all.get_mut(key) else { return };
        if !link.readable && !link.writable {
            return;
        }
        let tls = &core.local.meters.tls;
        match tls.time(link.socket.is_tls(), || link.socket.handshake()) {
            Ok(Moved::Bytes(_)) => {}
            Ok(Moved::Blocked) => {
                link.readable = false;
                return;
            }
            Ok(Moved::End) => return self.lose(key, Some(broken("the owner hung up in the handshake"))),
            Err(error) => return self.lose(key, Some(failed(&error))),
        }
        let now = core.local.now;
        let mut ended = None;
        let mut has_read = false;
        for _ in 0..READS_PER_TURN {
            let wire: Option<&mut dyn Wire> = match &mut link.closing {
                Some((wire, _)) => Some(wire.as_mut()),
                None => wire_of(&mut core.peers, link.place),
            };
            let Some(wire) = wire.filter(|wire| wire.wants_input()) else { break };
            if !link.readable {
                break;
            }
            match tls.time(link.socket.is_tls(), || link.socket.read(room)) {
                Ok(Moved::Bytes(count)) => {
                    wire.receive(now, &room[..count]);
                    has_read = true;
                    if count < room.len() && link.socket.is_drained() {
                        link.readable = false;
                    }
                }
                Ok(Moved::Blocked) => link.readable = false,
                Ok(Moved::End) => {
                    ended = Some(broken("the owner hung up"));
                    break;
                }
                Err(error) => {
                    ended = Some(failed(&error));
                    break;
                }
            }
        }
        let place = link.place;
        if has_read && link.closing.is_none() {
            look(&mut core.peers, place);
            core.local.touched.push(place.key);
            list(&mut core.peers, active, place.key);
        }
        if let Some(why) = ended {
            self.lose(key, Some(why));
        }
    }

    /// Writes what there is for owners.
    pub(super) fn write_forwarded(&mut self) {
        if self.forwarded.is_empty() {
            return;
        }
        // A client that was looked at may have something for its owners, or take more of them.
        let keys: Vec<usize> = self.forwarded.all.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(link) = self.forwarded.all.get(key) else { continue };
            let is_looked_at = self.core.peers.get(link.place.key).is_some_and(|peer| peer.turns.listed);
            if link.is_listed || is_looked_at || link.closing.is_some() {
                self.write_link(key);
                if self.forwarded.all.contains(key) {
                    self.forwarded.list(key);
                }
            }
        }
        let Self { forwarded, core, .. } = self;
        let ForwardedLinks { all, active } = forwarded;
        active.retain(|key| {
            let Some(link) = all.get_mut(*key) else { return false };
            let wire: Option<&mut dyn Wire> = match &mut link.closing {
                Some((wire, _)) => Some(wire.as_mut()),
                None => wire_of(&mut core.peers, link.place),
            };
            let goes_on = wire
                .is_some_and(|wire| (link.readable && wire.wants_input()) || (link.writable && wire.output_len() > 0));
            link.is_listed = goes_on;
            goes_on
        });
    }

    fn write_link(&mut self, key: usize) {
        let Self { forwarded, core, active, .. } = self;
        let Some(link) = forwarded.all.get_mut(key) else { return };
        let tls = &core.local.meters.tls;
        let mut ended = None;
        match tls.time(link.socket.wants_to_send(), || link.socket.send()) {
            Ok(true) => {}
            Ok(false) => link.writable = false,
            Err(error) => ended = Some(failed(&error)),
        }
        if link.socket.is_tls() && link.socket.established().is_none() {
            return;
        }
        link.readable |= link.socket.read_goes_on();
        let wire: Option<&mut dyn Wire> = match &mut link.closing {
            Some((wire, _)) => Some(wire.as_mut()),
            None => wire_of(&mut core.peers, link.place),
        };
        let Some(wire) = wire else { return self.lose(key, None) };
        let mut wrote = false;
        while ended.is_none() && link.writable && wire.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            wire.output_slices(&mut slices);
            let written = tls.time(link.socket.is_tls(), || link.socket.write(&slices));
            drop(slices);
            match written {
                Ok(Moved::Bytes(count)) => {
                    wire.output_written(count);
                    wrote = true;
                }
                Ok(Moved::Blocked) => link.writable = false,
                Ok(Moved::End) => ended = Some(broken("the owner hung up")),
                Err(error) => ended = Some(failed(&error)),
            }
        }
        let is_done = link.closing.as_ref().is_some_and(|(wire, by)| {
            core.local.now >= *by || (wire.output_len() == 0 && !link.socket.wants_to_send())
        });
        let place = link.place;
        if wrote && link.closing.is_none() {
            // The client may be read again, and what waited for room on the way goes on.
            look(&mut core.peers, place);
            list(&mut core.peers, active, place.key);
        }
        if ended.is_some() || is_done {
            self.lose(key, ended);
        }
    }

    /// A connection to an owner is gone. The client is told why, where it has links there.
    fn lose(&mut self, key: usize, why: Option<Refusal>) {
        let Some(mut link) = self.forwarded.all.try_remove(key) else { return };
        self.forwarded.active.retain(|active| *active != key);
        // Deregistering a socket that is about to close can only fail where there is nothing to deregister.
        let _ = link.socket.tcp().map(|stream| self.poll.registry().deregister(stream));
        if link.closing.is_some() {
            return;
        }
        let refusal = why.unwrap_or_else(|| broken("it is not needed any more"));
        if let Some(peer) = peer(&mut self.core.peers, link.place)
            && let Some(forwards) = peer.front.forwards()
        {
            forwards.lost(link.place.owner, &refusal);
            self.core.local.touched.push(link.place.key);
            list(&mut self.core.peers, &mut self.active, link.place.key);
        }
    }

    /// A client is gone: its owners hear what it has said last.
    pub(super) fn leave_owners(&mut self, client: &mut Connection) {
        if self.forwarded.is_empty() {
            return;
        }
        let by = self.core.local.now + FLUSH_WITHIN;
        let its = |link: &Link| link.place.key == client.place.key && link.place.generation == client.place.generation;
        let keys: Vec<usize> = self
            .forwarded
            .all
            .iter()
            .filter(|(_, link)| link.closing.is_none() && its(link))
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            let Some(link) = self.forwarded.all.get_mut(key) else { continue };
            let taken = client.front.forwards().and_then(|forwards| forwards.take_over(link.place.owner));
            match taken {
                Some(wire) => {
                    link.closing = Some((wire, by));
                    self.forwarded.list(key);
                }
                None => self.lose(key, None),
            }
        }
    }

    /// Timers of these connections.
    pub(super) fn tick_forwarded(&mut self) {
        let now = self.core.local.now;
        let keys: Vec<usize> = self.forwarded.all.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(link) = self.forwarded.all.get_mut(key) else { continue };
            let place = link.place;
            let wire: Option<&mut dyn Wire> = match &mut link.closing {
                Some((wire, _)) => Some(wire.as_mut()),
                None => wire_of(&mut self.core.peers, place),
            };
            match wire {
                Some(wire) => {
                    if !wire.wants_input() {
                        wire.not_read(now);
                    }
                    if wire.poll_timeout().is_some_and(|due| due <= now) {
                        wire.handle_timeout(now);
                        look(&mut self.core.peers, place);
                        list(&mut self.core.peers, &mut self.active, place.key);
                    }
                    self.forwarded.list(key);
                }
                None => self.lose(key, None),
            }
        }
    }
}

/// Why links of a group can't be forwarded.
fn unavailable(call: &OwnerCall, why: &str) -> Refusal {
    let detail = format!("shared group {}: {why}", call.forwarded.group);
    Refusal { cause: Some("group-elsewhere"), ..Refusal::new(reason::CF_NOT_AVAILABLE, detail) }
}

/// The connection to an owner is gone.
fn broken(why: &str) -> Refusal {
    Refusal::new(reason::CONNECTION_BROKEN, format!("the connection to the queue's owner is gone: {why}"))
}

/// The socket failed.
fn failed(error: &io::Error) -> Refusal {
    TlsRefusal::of_io(error).map_or_else(|| broken(&error.to_string()), |refusal| refusal.refusal())
}

fn post(manager: &crate::manager::Manager, index: usize, answered: OwnerAnswered) {
    if let Some(mailbox) = manager.workers.mailboxes.get(index) {
        mailbox.post(Notice::Arrived(Box::new(answered)));
    }
}

fn peer(peers: &mut Slab<Connection>, place: Place) -> Option<&mut Connection> {
    peers.get_mut(place.key).filter(|peer| peer.place.generation == place.generation)
}

fn wire_of(peers: &mut Slab<Connection>, place: Place) -> Option<&mut dyn Wire> {
    peer(peers, place)?.front.forwards()?.wire(place.owner)
}

/// The front end takes in what has come.
fn look(peers: &mut Slab<Connection>, place: Place) {
    if let Some(forwards) = peer(peers, place).and_then(|peer| peer.front.forwards()) {
        forwards.look(place.owner);
    }
}
