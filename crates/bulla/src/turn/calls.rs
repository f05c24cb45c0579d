//! Calls to the partners of channels: a name becomes an address, an address a connection.

use super::Dispatcher;
use super::connection::SocketTransport;
use super::socket::Socket;
use crate::catalog::ChannelDefinition;
use crate::catalog::status::ChannelState;
use crate::channel::registry::{InstanceId, Place, Wanted};
use crate::channel::{ChannelNotice, supervisor};
use crate::channel_ends::{receiver, sender};
use crate::front::Protocol;
use crate::front::call::{self, Target};
use crate::mailbox::Notice;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::tls;
use mio::net::TcpStream;
use std::io;
use std::net::ToSocketAddrs;

impl Dispatcher {
    /// Calls a channel's partner.
    fn call(&mut self, id: InstanceId, state: &mut State) {
        let Some(definition) = state.definitions.channels.get(&id.channel) else { return };
        let instance = state.outbound.channels.entry(id.clone());
        // A stop meanwhile wants nothing any more.
        if instance.is_active() || instance.wanted != Wanted::Now || self.stop_by.is_some() {
            return;
        }
        instance.wanted = Wanted::Nothing;
        let names = &definition.connections;
        let Some(name) = names.get(instance.next_address % names.len().max(1)).cloned() else {
            let refusal = Refusal::new(reason::CHANNEL_CONFIG_ERROR, "the channel has no CONNAME");
            return supervisor::ended(&self.core.local.moment(), state, &id, None, Some(refusal));
        };
        if let Ok(address) = name.parse() {
            return self.dial(id, &Target { name, address }, state);
        }
        // A look-up may take seconds: not on this thread.
        let (manager, index) = (self.core.local.manager.clone(), self.core.local.index);
        let (caller, wanted) = (id.clone(), name.clone());
        let taken = self.core.local.manager.workers.adapters.submit_aside(Box::new(move || {
            let found = wanted.to_socket_addrs().map(|mut found| found.next());
            let notice = ChannelNotice::Resolved { id: caller, name: wanted, found };
            supervisor::bring(&manager, index, Notice::Channel(notice));
        }));
        if !taken {
            let refusal = Refusal::new(reason::RESOURCE_PROBLEM, format!("{name}: too busy to look it up"));
            supervisor::ended(&self.core.local.moment(), state, &id, None, Some(refusal));
        }
    }

    fn dial(&mut self, id: InstanceId, target: &Target, state: &mut State) {
        let instance = state.outbound.channels.entry(id.clone());
        if instance.is_active() || instance.status.stop_requested {
            return;
        }
        let Some(definition) = state.definitions.channels.get(&id.channel).cloned() else { return };
        let dialled = self.dialled(&id, &definition, target);
        match dialled {
            Ok(place) => {
                let instance = state.outbound.channels.entry(id);
                instance.place = Some(place);
                instance.status.state = ChannelState::Binding;
                instance.status.connection = target.address.to_string();
            }
            Err(refusal) => supervisor::ended(&self.core.local.moment(), state, &id, None, Some(refusal)),
        }
    }

    fn dialled(&mut self, id: &InstanceId, definition: &ChannelDefinition, target: &Target) -> Result<Place, Refusal> {
        let failed = |error: io::Error| Refusal::new(reason::HOST_NOT_AVAILABLE, format!("{}: {error}", target.name));
        supervisor::may_call(&id.channel, definition)?;
        let (front, calling) = call::front(&self.core.local, id, definition, target)?;
        let socket = match self.simulated_call(target) {
            Some(socket) => socket,
            None => self.socket_to(id, definition, target)?,
        };
        let peer = self.add(SocketTransport::new(socket, Protocol::Amqp, false), front).map_err(failed)?;
        peer.channel.calling = Some(Box::new(calling));
        let (peer, generation) = (peer.place.key, peer.place.generation);
        Ok(Place { dispatcher: self.core.local.index, peer, generation })
    }

    /// A connection to that address, under TLS where the channel asks for it.
    fn socket_to(&self, id: &InstanceId, definition: &ChannelDefinition, target: &Target) -> Result<Socket, Refusal> {
        let failed = |error: io::Error| Refusal::new(reason::HOST_NOT_AVAILABLE, format!("{}: {error}", target.name));
        let stream = TcpStream::connect(target.address).map_err(failed)?;
        let _ = stream.set_nodelay(true);
        match &definition.cipher_spec {
            None => Ok(Socket::Plain(stream)),
            Some(_) => {
                let ssl = tls::channel_client(&self.tls, definition, &id.channel, target.host());
                Socket::tls(stream, ssl.map_err(|refusal| refusal.refusal())?).map_err(failed)
            }
        }
    }

    /// A call in a simulation; the program makes none.
    #[cfg(not(test))]
    fn simulated_call(&mut self, _: &Target) -> Option<Socket> {
        None
    }

    pub(super) fn channel_letter(&mut self, notice: ChannelNotice, state: &mut State) {
        match notice {
            ChannelNotice::Call(id) => self.call(id, state),
            ChannelNotice::Resolved { id, name, found } => match found {
                Ok(Some(address)) => self.dial(id, &Target { name, address }, state),
                other => {
                    let why = other.err().map_or_else(|| "it has no address".to_owned(), |error| error.to_string());
                    let refusal = Refusal::new(reason::HOST_NOT_AVAILABLE, format!("{name}: {why}"));
                    supervisor::ended(&self.core.local.moment(), state, &id, None, Some(refusal));
                }
            },
            ChannelNotice::Stop { peer: key, generation, force } => {
                let Some(peer) = self.core.peers.get_mut(key).filter(|peer| peer.place.generation == generation) else {
                    return;
                };
                match (&peer.channel.sending, &peer.channel.calling) {
                    (Some(_), _) => sender::stop(peer, &mut self.core.local, force),
                    // It has not come to a channel yet.
                    (None, Some(calling)) if calling.deadline.is_some() => peer.end("stopped by the operator"),
                    (None, _) => receiver::stop(peer, &mut self.core.local, state, force),
                }
                self.core.local.touched.push(key);
            }
            ChannelNotice::Replaced { peer: key, generation, why } => {
                let Some(peer) = self.core.peers.get_mut(key).filter(|peer| peer.place.generation == generation) else {
                    return;
                };
                receiver::replaced(peer, &mut self.core.local, state, &why);
                self.core.local.touched.push(key);
            }
        }
    }
}
