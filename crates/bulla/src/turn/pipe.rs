//! Connections of a simulation: bytes on their way in memory, which is as slow as the simulation wants, and can be cut.

use super::socket::Moved;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that may be under way in one direction.
const ROOM_BYTES: usize = 64 << 10;

/// One end of a connection.
pub(crate) struct PipeEnd {
    pipe: Pipe,
    /// The way that this end writes to; the other one it reads from.
    out: usize,
}

/// A connection, for who carries its bytes. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Pipe(Arc<Mutex<Inside>>);

struct Inside {
    ways: [Way; 2],
    /// Where the calling end is.
    caller: SocketAddr,
    is_cut: bool,
    /// The ends for which it is broken, while the other one has not been told.
    broken: [bool; 2],
    /// An end for which it is broken refuses what comes, and so tells the other one.
    refuses: bool,
    /// Each end counts as having shown a certificate that the other one trusts.
    is_proved: bool,
}

/// One direction.
#[derive(Default)]
struct Way {
    /// Bytes that were written and are not carried yet.
    sent: VecDeque<u8>,
    /// Bytes that can be read.
    arrived: VecDeque<u8>,
    /// The writing end is gone.
    is_ended: bool,
}

impl Pipe {
    /// A connection that the end at `port` makes: that end, and the one that accepts.
    pub(crate) fn connect(port: u16) -> (Self, PipeEnd, PipeEnd) {
        let caller = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let inside = Inside {
            ways: Default::default(),
            caller,
            is_cut: false,
            broken: [false; 2],
            refuses: false,
            is_proved: false,
        };
        let pipe = Self(Arc::new(Mutex::new(inside)));
        let end = |out| PipeEnd { pipe: pipe.clone(), out };
        let (calls, accepts) = (end(0), end(1));
        (pipe, calls, accepts)
    }

    /// Bytes that wait to be carried: from the calling end, and to it.
    pub(crate) fn waiting(&self) -> [usize; 2] {
        self.lock().ways.each_ref().map(|way| way.sent.len())
    }

    /// Carries so many bytes of a direction: of 0 from the calling end, of 1 to it.
    pub(crate) fn carry(&self, way: usize, bytes: usize) {
        let mut inside = self.lock();
        let is_broken = inside.broken[1 - way];
        let to = &mut inside.ways[way];
        let bytes = bytes.min(to.sent.len());
        let carried = to.sent.drain(..bytes);
        if !is_broken {
            return to.arrived.extend(carried);
        }
        drop(carried);
        inside.is_cut |= inside.refuses && bytes > 0;
    }

    /// The next bytes of a direction that wait to be carried.
    pub(crate) fn peek(&self, way: usize, bytes: usize) -> Vec<u8> {
        self.lock().ways[way].sent.iter().take(bytes).copied().collect()
    }

    /// Whether all that was sent in a direction has been read.
    pub(crate) fn is_heard(&self, way: usize) -> bool {
        let way = &self.lock().ways[way];
        way.sent.is_empty() && way.arrived.is_empty()
    }

    /// As if TLS had shown each end who the other one is.
    pub(crate) fn prove(&self) {
        self.lock().is_proved = true;
    }

    /// As if it had not: what is at the other end proves nothing.
    pub(crate) fn disprove(&self) {
        self.lock().is_proved = false;
    }

    /// Whether it was [`prove`](Self::prove)d.
    pub(crate) fn is_proved(&self) -> bool {
        self.lock().is_proved
    }

    /// Whether it was [`cut`](Self::cut), or an end of it is gone.
    pub(crate) fn is_over(&self) -> bool {
        let inside = self.lock();
        inside.is_cut || inside.ways.iter().any(|way| way.is_ended && way.sent.is_empty())
    }

    /// Ends the connection: what is under way is lost.
    pub(crate) fn cut(&self) {
        self.lock().is_cut = true;
    }

    /// Breaks the connection for one end: 0 is the calling one. What that end has sent still arrives. The other end
    /// hears nothing more; where `refuses`, it is told once bytes of its come to the broken end.
    pub(crate) fn break_for(&self, end: usize, refuses: bool) {
        let mut inside = self.lock();
        (inside.broken[end], inside.refuses) = (true, refuses);
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PipeEnd {
    /// The connection.
    pub(crate) fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// The other end's address, where that called.
    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.pipe.lock().caller
    }

    /// Whether a read or a write comes to something.
    pub(crate) fn is_ready(&self) -> (bool, bool) {
        let inside = self.pipe.lock();
        let from = &inside.ways[1 - self.out];
        let is_at_end = from.is_ended && from.sent.is_empty();
        let has_room = inside.ways[self.out].room() > 0;
        let is_cut = inside.is_cut_for(self.out);
        (!from.arrived.is_empty() || is_at_end || is_cut, has_room || is_cut)
    }

    /// As a socket reads.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Moved> {
        let mut inside = self.pipe.lock();
        if inside.is_cut_for(self.out) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let from = &mut inside.ways[1 - self.out];
        if from.arrived.is_empty() {
            return Ok(if from.is_ended && from.sent.is_empty() { Moved::End } else { Moved::Blocked });
        }
        let bytes = into.len().min(from.arrived.len());
        for (to, byte) in into.iter_mut().zip(from.arrived.drain(..bytes)) {
            *to = byte;
        }
        Ok(Moved::Bytes(bytes))
    }

    /// As a socket writes.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        let mut inside = self.pipe.lock();
        if inside.is_cut_for(self.out) || inside.ways[1 - self.out].is_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let to = &mut inside.ways[self.out];
        let (room, mut written) = (to.room(), 0);
        for slice in slices {
            let bytes = slice.len().min(room - written);
            to.sent.extend(&slice[..bytes]);
            written += bytes;
        }
        Ok(if written == 0 { Moved::Blocked } else { Moved::Bytes(written) })
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let mut inside = self.pipe.lock();
        // The end of a connection that is broken tells the other one nothing.
        inside.ways[self.out].is_ended |= !inside.broken[self.out];
    }
}

impl Inside {
    /// Whether that end has been told that the connection is broken.
    fn is_cut_for(&self, end: usize) -> bool {
        self.is_cut || self.broken[end]
    }
}

impl Way {
    fn room(&self) -> usize {
        ROOM_BYTES.saturating_sub(self.sent.len() + self.arrived.len())
    }
}
