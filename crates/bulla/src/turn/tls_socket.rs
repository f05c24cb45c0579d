//! TLS over a socket: records in and out, and keys that are renewed while bytes flow.
//!
//! Two rules keep renewal from losing a byte. OpenSSL never waits for the socket to take bytes, because [`Wire`] takes
//! all of a record: so no record is half written when a handshake message must go out. And a renegotiation is driven by
//! reading alone, because only a read may meet the partner's data on the way to its answer: until it is done nothing is
//! written.

use super::socket::Moved;
use crate::tls::{self, TlsRefusal};
use bulla_device::role::{self, Role};
use bulla_device::tls::{self as device, Aside};
use bulla_device::{DeviceError, Job, Output};
use mio::net::TcpStream;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::ssl::{ErrorCode, Ssl, SslRef, SslStream};
use std::io::{self, IoSlice, Read, Write};
use std::time::{Duration, Instant, SystemTime};

/// Most bytes of one TLS record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// Bytes of records that go to the socket in one call.
const BATCH_BYTES: usize = 4 * RECORD_BYTES;
/// Bytes read from the socket in one call, where it has so many.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// Bytes that may wait for the socket before nothing more is read, either: a partner that takes no answers gets no
/// more of them. More than a batch and a handshake.
const WIRE_BYTES_MAX: usize = 256 << 10;
/// The smallest SSLRKEYC; 1 to this many bytes act as this many (inventory C2.1).
pub const KEY_RESET_BYTES_MIN: u64 = 32 << 10;
/// Key resets that a partner may begin in one go, beyond one for each [`KEY_RESET_BYTES_MIN`] bytes that were moved.
const PEER_RESETS_BURST: u32 = 10;
/// How often it may begin one, whatever was moved.
const PEER_RESET_EVERY: Duration = Duration::from_millis(100);

/// A TLS session over a socket.
pub struct TlsSocket {
    stream: SslStream<Wire>,
    /// Until the handshake is complete, where devices work with its key.
    aside: Option<Aside>,
    established: bool,
    is_tls13: bool,
    /// Plaintext gathered for the next record, where it lies in several pieces.
    gathered: Vec<u8>,
    /// The last read met the end of what the socket had.
    drained: bool,
    /// A write waits for a renegotiation, which only reading drives.
    write_waits: bool,
    /// A read waits until the partner has taken what it was sent.
    read_waits: bool,
    /// The end, or the error, that a read met behind bytes that went first.
    met: Option<io::Result<Moved>>,
    resets: Resets,
}

/// When keys are renewed, and how often they were.
struct Resets {
    /// SSLRKEYC in bytes, where this side renews keys; 0 for never.
    every: u64,
    /// Plaintext sent and received since the last reset, and ever.
    bytes: u64,
    total: u64,
    /// A reset must come before the next byte of data.
    due: bool,
    /// Key updates that this side asked for: the partner answers each with one of its own (TLS 1.3).
    asked: u32,
    /// A renegotiation is under way, by either side.
    under_way: bool,
    /// Resets done, by either side, and when the last one was.
    done: u64,
    last: Option<SystemTime>,
    /// SHA-256 of the certificate that the partner showed at first.
    certificate: Option<Vec<u8>>,
    peer: PeerLimit,
}

/// How many resets the partner may still begin.
struct PeerLimit {
    seen: u32,
    left: u32,
    /// When, and after how many bytes, `left` last grew.
    grew_at: Instant,
    grew_bytes: u64,
}

impl PeerLimit {
    /// One more was begun. False where it was one too many.
    fn take(&mut self, now: Instant, total: u64) -> bool {
        let by_time = now.saturating_duration_since(self.grew_at).as_millis() / PEER_RESET_EVERY.as_millis();
        let by_bytes = (total - self.grew_bytes) / KEY_RESET_BYTES_MIN;
        if by_time > 0 {
            self.grew_at = now;
        }
        self.grew_bytes += by_bytes * KEY_RESET_BYTES_MIN;
        let grown = u128::from(self.left) + by_time + u128::from(by_bytes);
        self.left = u32::try_from(grown).unwrap_or(u32::MAX).min(PEER_RESETS_BURST);
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

impl TlsSocket {
    /// A socket whose handshake is yet to come; the session knows which side it is.
    ///
    /// # Errors
    /// The library's, which is out of memory.
    pub fn new(stream: TcpStream, mut ssl: Ssl) -> io::Result<Self> {
        device::watch(&mut ssl)?;
        device::set_read_buffer(&mut ssl, READ_AHEAD_BYTES);
        let stream = SslStream::new(ssl, Wire::new(stream)).map_err(io::Error::other)?;
        let peer = PeerLimit { seen: 0, left: PEER_RESETS_BURST, grew_at: Instant::now(), grew_bytes: 0 };
        Ok(Self {
            stream,
            aside: None,
            established: false,
            is_tls13: false,
            gathered: Vec::new(),
            drained: false,
            write_waits: false,
            read_waits: false,
            met: None,
            resets: Resets {
                every: 0,
                bytes: 0,
                total: 0,
                due: false,
                asked: 0,
                under_way: false,
                done: 0,
                last: None,
                certificate: None,
                peer,
            },
        })
    }

    /// The TCP socket, for registration.
    pub fn tcp(&mut self) -> &mut TcpStream {
        &mut self.stream.get_mut().tcp
    }

    /// The session, once its handshake is complete.
    pub fn established(&self) -> Option<&SslRef> {
        self.established.then(|| self.stream.ssl())
    }

    /// Drives the handshake: `Bytes(0)` means that it is complete.
    ///
    /// # Errors
    /// A [`TlsRefusal`] inside, or the socket's error.
    pub fn handshake(&mut self) -> io::Result<Moved> {
        if self.established {
            return Ok(Moved::Bytes(0));
        }
        let _tls = self.enter_tls();
        let stream = &mut self.stream;
        let step = match &self.aside {
            Some(aside) if aside.is_waiting() => return Ok(Moved::Blocked),
            Some(aside) => aside.drive(|| stream.do_handshake()),
            None => stream.do_handshake(),
        };
        match step {
            // An authority has seen what it came for, and nothing else is spoken with it.
            Ok(()) if self.stream.ssl().selected_alpn_protocol() == Some(tls::proof::PROTOCOL) => Ok(Moved::End),
            Ok(()) => {
                self.established = true;
                if let Some(aside) = self.aside.take() {
                    aside.end(self.stream.ssl());
                }
                self.is_tls13 = self.stream.ssl().version_str() == "TLSv1.3";
                if self.is_tls13 && self.stream.ssl().is_server() {
                    self.acknowledge();
                }
                self.resets.certificate = fingerprint(self.stream.ssl())?;
                self.resets.peer.seen = self.resets_by_peer();
                Ok(Moved::Bytes(0))
            }
            Err(error) if Aside::is_set_aside(error.code()) => Ok(Moved::Blocked),
            Err(error) => self.outcome(error),
        }
    }

    /// Has the system acknowledge at once what the client sent last. With TLS 1.3 nothing goes back to it that would do
    /// so, and a client that gathers small pieces (RFC 896) holds its first request back until then: the system would
    /// wait 40 ms for an answer to send along.
    fn acknowledge(&self) {
        let _ = rustix::net::sockopt::set_tcp_quickack(&self.stream.get_ref().tcp, true);
    }

    /// Lets devices do the handshake's private-key operation; to be called before it begins. The caller gives each
    /// [`question`](Self::question) its answer.
    pub fn use_devices(&mut self) {
        self.aside = Aside::begin(self.stream.ssl());
    }

    /// What a handshake that is blocked waits for; given out once.
    pub fn question(&self) -> Option<Job> {
        self.aside.as_ref().and_then(Aside::take_question)
    }

    /// The answer; the handshake is to be driven again.
    pub fn answer(&mut self, result: Result<Output, DeviceError>) {
        if let Some(aside) = &self.aside {
            aside.answer(result);
        }
    }

    /// Reads what there is into `into`, record by record.
    ///
    /// # Errors
    /// A [`TlsRefusal`] inside, or the socket's error.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Moved> {
        self.drained = false;
        if let Some(met) = self.met.take() {
            return met;
        }
        if self.stream.get_ref().waiting() > WIRE_BYTES_MAX {
            self.read_waits = true;
            return Ok(Moved::Blocked);
        }
        let _tls = self.enter_tls();
        let mut read = 0;
        while read < into.len() {
            self.begin_reset()?;
            match self.stream.ssl_read(&mut into[read..]) {
                Ok(n) => {
                    read += n;
                    self.count(n)?;
                }
                Err(error) => match self.outcome(error) {
                    Ok(Moved::Blocked) => {
                        self.watch_resets()?;
                        if self.can_begin() {
                            continue;
                        }
                        self.drained = true;
                        break;
                    }
                    met if read > 0 => {
                        self.met = Some(met);
                        break;
                    }
                    met => return met,
                },
            }
        }
        Ok(if read > 0 { Moved::Bytes(read) } else { Moved::Blocked })
    }

    /// Writes from `slices`; says how many of their bytes are taken care of.
    ///
    /// # Errors
    /// A [`TlsRefusal`] inside, or the socket's error.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        let _tls = self.enter_tls();
        if !self.stream.get_mut().send()? {
            return Ok(Moved::Blocked);
        }
        let mut source = Slices { slices, at: 0 };
        let mut taken = 0;
        self.stream.get_mut().hold = true;
        let outcome = loop {
            if let Err(error) = self.reset_before_write() {
                break Err(error);
            }
            if self.write_waits || self.stream.get_ref().waiting() >= BATCH_BYTES {
                break Ok(());
            }
            let Self { stream, gathered, .. } = self;
            let record = source.next(gathered);
            if record.is_empty() {
                break Ok(());
            }
            match stream.ssl_write(record) {
                Ok(n) => {
                    source.advance(n);
                    taken += n;
                    if let Err(error) = self.count(n) {
                        break Err(error);
                    }
                }
                Err(error) => break self.outcome(error).map(drop),
            }
        };
        self.stream.get_mut().hold = false;
        self.stream.get_mut().send()?;
        outcome?;
        Ok(if taken > 0 { Moved::Bytes(taken) } else { Moved::Blocked })
    }

    /// Whether the last read took all that the socket had.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// Whether records wait for the socket to take them.
    pub fn wants_to_send(&self) -> bool {
        self.stream.get_ref().waiting() > 0
    }

    /// Sends records that wait; false where the socket does not take them all.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self) -> io::Result<bool> {
        let wire = self.stream.get_mut();
        wire.system = role::current();
        wire.send()
    }

    /// Tells the partner that nothing follows (close_notify; RFC 8446, section 6.1): without it what was sent could
    /// have been cut off by another. To be called once everything is sent. Where the system does not take it, it is
    /// left out.
    pub fn close(&mut self) {
        if self.established {
            let _tls = self.enter_tls();
            // What is wrong with a connection that ends is no one's loss.
            let _ = self.stream.shutdown();
            drop(ErrorStack::get());
        }
    }

    /// What follows is the library's work, but for the system calls under it.
    fn enter_tls(&mut self) -> role::Span {
        self.stream.get_mut().system = role::current();
        role::enter(Role::Tls)
    }

    /// Whether reading is what a write waits for: a renegotiation is due or under way.
    pub fn write_waits_for_read(&self) -> bool {
        self.write_waits
    }

    /// Whether a read that waited for the partner to take what it was sent can go on; asked once.
    pub fn read_goes_on(&mut self) -> bool {
        let goes_on = self.read_waits && self.stream.get_ref().waiting() <= WIRE_BYTES_MAX;
        if goes_on {
            self.read_waits = false;
        }
        goes_on
    }

    /// Whether a write that waited for reading can go on; asked once.
    pub fn write_goes_on(&mut self) -> bool {
        let goes_on = self.write_waits && !self.resets.due && !self.resets.under_way;
        if goes_on {
            self.write_waits = false;
        }
        goes_on
    }

    /// SSLRKEYC: from now on this side renews the keys whenever so many bytes were sent and received.
    pub fn set_key_reset(&mut self, bytes: u64) {
        self.resets.every = if bytes == 0 { 0 } else { bytes.max(KEY_RESET_BYTES_MIN) };
    }

    /// Whether the partner may renegotiate (TLS 1.2).
    pub fn allow_renegotiation(&mut self, allowed: bool) {
        // The callbacks and the state machine read the option when a hello arrives.
        device::allow_renegotiation(self.stream.ssl(), allowed);
    }

    /// Data is about to be sent after a heartbeat: with SSLRKEYC the keys are renewed first (inventory C2.2).
    pub fn reset_before_data_after_heartbeat(&mut self) {
        if self.resets.every > 0 && self.established {
            self.resets.due = true;
        }
    }

    /// SSLRKEYS: resets so far.
    pub fn key_resets(&self) -> u64 {
        self.resets.done
    }

    /// SSLKEYDA and SSLKEYTI: when the last one was.
    pub fn last_key_reset(&self) -> Option<SystemTime> {
        self.resets.last
    }

    fn count(&mut self, bytes: usize) -> io::Result<()> {
        let resets = &mut self.resets;
        resets.bytes += bytes as u64;
        resets.total += bytes as u64;
        resets.due |= resets.every > 0 && resets.bytes >= resets.every;
        self.watch_resets()
    }

    /// Before data is written: a reset that is due is done (TLS 1.3), or waited for (TLS 1.2).
    fn reset_before_write(&mut self) -> io::Result<()> {
        if self.resets.due && self.is_tls13 {
            device::request_key_update(self.stream.ssl())?;
            self.resets.asked += 1;
            // It takes no answer: the message goes to the wire, and what follows is under the new key.
            self.stream.do_handshake().or_else(|error| self.outcome(error).map(drop))?;
            self.reset_done();
        }
        self.watch_resets()?;
        self.write_waits = self.resets.due || self.resets.under_way;
        Ok(())
    }

    /// TLS 1.2: what a read needs to begin a renegotiation is that all data read so far was taken.
    fn can_begin(&self) -> bool {
        self.resets.due && !self.is_tls13 && !self.resets.under_way && self.stream.ssl().pending() == 0
    }

    fn begin_reset(&mut self) -> io::Result<()> {
        if self.can_begin() {
            device::renegotiate(self.stream.ssl())?;
            (self.resets.due, self.resets.under_way) = (false, true);
        }
        Ok(())
    }

    /// Notices what the last call of the library came to: a renegotiation that ended, and one that the partner began.
    fn watch_resets(&mut self) -> io::Result<()> {
        let seen = self.resets_by_peer();
        if seen != self.resets.peer.seen && self.established {
            let (now, total) = (Instant::now(), self.resets.total);
            for _ in self.resets.peer.seen..seen {
                if !self.resets.peer.take(now, total) {
                    return Err(io::Error::other(TlsRefusal::TooManyResets));
                }
                if self.is_tls13 {
                    self.reset_done();
                }
            }
            self.resets.peer.seen = seen;
        }
        if self.is_tls13 {
            return Ok(());
        }
        let was = self.resets.under_way;
        self.resets.under_way = self.established && device::is_renegotiating(self.stream.ssl());
        if was && !self.resets.under_way {
            if fingerprint(self.stream.ssl())? != self.resets.certificate {
                return Err(io::Error::other(TlsRefusal::Changed));
            }
            self.reset_done();
        }
        Ok(())
    }

    /// Resets that the partner began: what it sent less what it answered.
    fn resets_by_peer(&self) -> u32 {
        let heard = device::messages(self.stream.ssl());
        heard.resets.saturating_add(heard.answers.saturating_sub(self.resets.asked))
    }

    fn reset_done(&mut self) {
        let resets = &mut self.resets;
        (resets.bytes, resets.due) = (0, false);
        resets.done += 1;
        resets.last = Some(SystemTime::now());
    }

    fn outcome(&self, error: openssl::ssl::Error) -> io::Result<Moved> {
        match error.code() {
            ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Ok(Moved::Blocked),
            ErrorCode::ZERO_RETURN => Ok(Moved::End),
            ErrorCode::SSL => Err(io::Error::other(tls::of_failure(self.stream.ssl(), &error))),
            _ => Err(error.into_io_error().unwrap_or_else(io::Error::other)),
        }
    }
}

impl Drop for TlsSocket {
    /// A handshake that stands still in the middle of a call is told that nothing comes any more, so that the call
    /// ends.
    fn drop(&mut self) {
        let Self { aside, stream, .. } = self;
        if let Some(aside) = aside
            && aside.is_paused()
        {
            aside.answer(Err(DeviceError::Cancelled));
            let _: Result<(), _> = aside.drive(|| stream.do_handshake());
        }
    }
}

fn fingerprint(ssl: &SslRef) -> io::Result<Option<Vec<u8>>> {
    let certificate = ssl.peer_certificate();
    Ok(certificate
        .map(|certificate| certificate.digest(MessageDigest::sha256()))
        .transpose()?
        .map(|hash| hash.to_vec()))
}

/// What is still to be written of some slices.
struct Slices<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes of the first slice that were written.
    at: usize,
}

impl<'a> Slices<'a> {
    /// The plaintext of the next record: a slice as it lies where that fills the record or is all there is, gathered
    /// pieces otherwise.
    fn next<'b>(&mut self, gathered: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        while self.slices.first().is_some_and(|slice| slice.len() == self.at) {
            (self.slices, self.at) = (&self.slices[1..], 0);
        }
        let Some((first, rest)) = self.slices.split_first() else { return &[] };
        let first = &first[self.at..];
        if first.len() >= RECORD_BYTES || rest.is_empty() {
            return &first[..first.len().min(RECORD_BYTES)];
        }
        gathered.clear();
        for slice in std::iter::once(first).chain(rest.iter().map(|slice| &**slice)) {
            let room = RECORD_BYTES - gathered.len();
            gathered.extend_from_slice(&slice[..slice.len().min(room)]);
            if gathered.len() == RECORD_BYTES {
                break;
            }
        }
        gathered
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.slices.first() {
            let left = first.len() - self.at;
            if written < left {
                self.at += written;
                return;
            }
            written -= left;
            (self.slices, self.at) = (&self.slices[1..], 0);
        }
    }
}

/// The socket under the records. It takes every write whole, and keeps what the socket does not take.
struct Wire {
    tcp: TcpStream,
    /// Records that wait, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    /// Records are kept until [`send`](Self::send): several go in one call.
    hold: bool,
    /// Whose the system calls are.
    system: Role,
}

impl Wire {
    fn new(tcp: TcpStream) -> Self {
        Self { tcp, out: Vec::new(), sent: 0, hold: false, system: Role::QueueManager }
    }

    fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what waits; false where the socket does not take it all.
    fn send(&mut self) -> io::Result<bool> {
        while self.sent < self.out.len() {
            let _system = role::enter(self.system);
            match self.tcp.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > BATCH_BYTES + 2 * RECORD_BYTES {
            self.out = Vec::new();
        }
        Ok(true)
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let _system = role::enter(self.system);
        self.tcp.read(into)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut left = bytes;
        while !self.hold && self.out.is_empty() && !left.is_empty() {
            let _system = role::enter(self.system);
            match self.tcp.write(left) {
                Ok(n) => left = &left[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.extend_from_slice(left);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "tls_socket_tests.rs"]
mod tests;
