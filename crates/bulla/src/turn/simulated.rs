//! A dispatcher without a thread: a simulation connects clients to it and calls its turns.

use super::connection::SocketTransport;
use super::pipe::{Pipe, PipeEnd};
use super::socket::Socket;
use super::{Dispatcher, list};
use crate::front::Protocol;
use crate::front::call::Target;
use crate::front::http::Common;
use crate::front::offered;
use std::net::SocketAddr;
use std::time::Instant;

/// What stands in for the system's network.
#[derive(Default)]
pub(super) struct Network {
    /// Connections without a socket.
    pub(super) joined: Vec<usize>,
    /// The calls that were made, for the simulation to connect; none where calls go to the system's network.
    calls: Option<Calls>,
}

/// Calls that were made in a simulation.
#[derive(Default)]
pub(crate) struct Calls {
    made: Vec<Call>,
    last_port: u16,
}

/// A call: the address that is called, and the end of the connection for who is there.
pub(crate) struct Call {
    pub(crate) to: SocketAddr,
    pub(crate) accepts: PipeEnd,
}

impl Dispatcher {
    /// Takes in a client that connects.
    pub(crate) fn accept_pipe(&mut self, pipe: PipeEnd) {
        let front = offered::front(&self.core.local, false, true);
        self.add(SocketTransport::new(Socket::Pipe(pipe), Protocol::Amqp, true), front).expect("nothing is registered");
    }

    /// Takes in a client on this machine that speaks HTTP in clear.
    pub(crate) fn accept_http(&mut self, pipe: PipeEnd, common: Common) {
        let protocol = Protocol::Http(common);
        let front = protocol.front(&self.core.local, false, false, true);
        self.add(SocketTransport::new(Socket::Pipe(pipe), protocol, true), front).expect("nothing is registered");
    }

    /// From now on calls to partners are the simulation's.
    pub(crate) fn simulate_calls(&mut self) {
        self.simulated.calls = Some(Calls::default());
    }

    /// The calls that were made since this was asked last.
    pub(crate) fn calls_made(&mut self) -> Vec<Call> {
        self.simulated.calls.as_mut().map(|calls| std::mem::take(&mut calls.made)).unwrap_or_default()
    }

    /// A call, where a simulation connects them.
    pub(super) fn simulated_call(&mut self, target: &Target) -> Option<Socket> {
        let calls = self.simulated.calls.as_mut()?;
        calls.last_port = calls.last_port.wrapping_add(1);
        let (pipe, own, accepts) = Pipe::connect(calls.last_port);
        pipe.prove();
        calls.made.push(Call { to: target.address, accepts });
        Some(Socket::Pipe(own))
    }

    /// Looks at connections without a socket in each turn: the system does not report them.
    pub(super) fn look_at_joined(&mut self) {
        self.simulated.joined.retain(|key| self.core.peers.contains(*key));
        for key in self.simulated.joined.clone() {
            if let Some(peer) = self.core.peers.get_mut(key) {
                peer.transport.readable |= peer.front.wants_input();
            }
            list(&mut self.core.peers, &mut self.active, key);
        }
    }

    /// One turn, with what has come by now. Says when the next one is due at the latest.
    pub(crate) fn turn_now(&mut self) -> Instant {
        self.core.local.look_at_the_clock();
        for key in 0..self.core.peers.capacity() {
            let Some(peer) = self.core.peers.get_mut(key) else { continue };
            let Socket::Pipe(pipe) = &peer.transport.socket else { continue };
            let (readable, writable) = pipe.is_ready();
            let is_new = readable && !peer.transport.readable || writable && !peer.transport.writable;
            if is_new && peer.ended.broken.is_none() {
                peer.transport.readable |= readable;
                peer.transport.writable |= writable;
                list(&mut self.core.peers, &mut self.active, key);
            }
        }
        self.turn(false);
        if self.has_work() {
            return self.core.local.now;
        }
        self.work_due().map_or(self.next_tick, |at| at.min(self.next_tick))
    }

    /// Connections that there are.
    pub(crate) fn connections(&self) -> usize {
        self.core.peers.len()
    }
}
