//! A dispatcher without a thread: a simulation connects clients to it and calls its turns.

use super::pipe::PipeEnd;
use super::socket::Socket;
use super::{Dispatcher, list, offered};
use std::time::Instant;

impl Dispatcher {
    /// Takes in a client that connects.
    pub(crate) fn accept_pipe(&mut self, pipe: PipeEnd) {
        let front = offered::front(&self.core.local, false, true);
        self.add(Socket::Pipe(pipe), front, true).expect("nothing is registered");
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
