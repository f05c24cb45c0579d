//! A peer's socket, plain or under TLS, and its read buffer.

use super::tls_socket::TlsSocket;
use bytes::BytesMut;
use mio::net::TcpStream;
use openssl::ssl::{Ssl, SslRef};
use std::io::{self, IoSlice, Read, Write};

/// Bytes of a read buffer when a connection is new: an idle connection holds no more.
pub(crate) const READ_BYTES_MIN: usize = 8 << 10;
/// Bytes of a read buffer when a connection is busy.
pub(crate) const READ_BYTES_MAX: usize = 256 << 10;
/// A read buffer is made smaller when a read brings less than this part of it.
const SHRINK_PART: usize = 8;
/// Room below which a read buffer is exchanged for a fresh one.
const SPARE_BYTES_MIN: usize = 2 << 10;

/// What one attempt to move bytes came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// This many bytes; more may follow at once.
    Bytes(usize),
    /// Nothing now: wait for readiness.
    Blocked,
    /// The peer has closed its side.
    End,
}

/// A connected socket.
pub(crate) enum Socket {
    /// TCP as it is.
    Plain(TcpStream),
    /// TLS, perhaps with its handshake still under way.
    Tls(Box<TlsSocket>),
}

impl Socket {
    /// A TLS socket whose handshake is yet to come; the session knows which side it is. Its private-key operation is asked
    /// for by [`TlsSocket::question`].
    pub(crate) fn tls(stream: TcpStream, ssl: Ssl) -> io::Result<Self> {
        let mut socket = TlsSocket::new(stream, ssl)?;
        socket.use_devices();
        Ok(Self::Tls(Box::new(socket)))
    }

    /// The TCP socket, for registration.
    pub(crate) fn tcp(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => tls.tcp(),
        }
    }

    /// Whether bytes are protected on the wire.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The TLS session, once its handshake is complete.
    pub(crate) fn established(&self) -> Option<&SslRef> {
        self.tls_socket().and_then(TlsSocket::established)
    }

    /// The TLS side of it, where it has one: key resets.
    pub(crate) fn tls_socket(&self) -> Option<&TlsSocket> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => Some(tls),
        }
    }

    /// As [`tls_socket`](Self::tls_socket), to set it up.
    pub(crate) fn tls_socket_mut(&mut self) -> Option<&mut TlsSocket> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => Some(tls),
        }
    }

    /// Whether the peer has shown a certificate that a trusted authority signed.
    pub(crate) fn verified_certificate(&self) -> bool {
        self.established().is_some_and(|ssl| {
            ssl.peer_certificate().is_some() && ssl.verify_result() == openssl::x509::X509VerifyResult::OK
        })
    }

    /// Drives the handshake, where one is under way: `Bytes(0)` means that it is complete.
    pub(crate) fn handshake(&mut self) -> io::Result<Moved> {
        self.tls_socket_mut().map_or(Ok(Moved::Bytes(0)), TlsSocket::handshake)
    }

    /// Reads into `into`: once, or the TLS records that are there.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Moved> {
        match self {
            Self::Plain(stream) => loop {
                match stream.read(into) {
                    Ok(0) => return Ok(Moved::End),
                    Ok(n) => return Ok(Moved::Bytes(n)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Blocked),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
            Self::Tls(tls) => tls.read(into),
        }
    }

    /// Writes once from `slices`; says how many of their bytes are taken care of.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        match self {
            Self::Plain(stream) => loop {
                match stream.write_vectored(slices) {
                    Ok(n) => return Ok(Moved::Bytes(n)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Blocked),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
            Self::Tls(tls) => tls.write(slices),
        }
    }

    /// Whether a read that did not fill its room has emptied the socket, so that the system tells of what comes next.
    pub(crate) fn is_drained(&self) -> bool {
        self.tls_socket().is_none_or(TlsSocket::is_drained)
    }

    /// Whether bytes that were written wait for the system to take them.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.tls_socket().is_some_and(TlsSocket::wants_to_send)
    }

    /// Sends bytes that wait; false where the system does not take them all.
    pub(crate) fn send(&mut self) -> io::Result<bool> {
        self.tls_socket_mut().map_or(Ok(true), TlsSocket::send)
    }

    /// Whether a read that waited for bytes to be taken can go on; asked once.
    pub(crate) fn read_goes_on(&mut self) -> bool {
        self.tls_socket_mut().is_some_and(TlsSocket::read_goes_on)
    }

    /// Whether a write waits for something that must be read: the answers of a renegotiation.
    pub(crate) fn write_waits_for_read(&self) -> bool {
        self.tls_socket().is_some_and(TlsSocket::write_waits_for_read)
    }

    /// Whether a write that waited for reading can go on; asked once.
    pub(crate) fn write_goes_on(&mut self) -> bool {
        self.tls_socket_mut().is_some_and(TlsSocket::write_goes_on)
    }
}

/// A buffer that is written once per allocation and then cut into payloads.
///
/// All of `bytes` is initialised; the first `filled` of them are input that waits for the rest of
/// its frame. Cutting payloads off the front costs no copy; the tail is rejoined for the next read.
pub(crate) struct ReadBuffer {
    bytes: BytesMut,
    filled: usize,
    size: usize,
    /// Something was read since the last look.
    used: bool,
}

impl ReadBuffer {
    /// An empty buffer of the smallest size.
    pub(crate) fn new() -> Self {
        Self { bytes: BytesMut::new(), filled: 0, size: READ_BYTES_MIN, used: false }
    }

    /// Room for the next read; at least `wanted` bytes beyond what waits, where a frame's size is known.
    pub(crate) fn spare(&mut self, wanted: usize) -> &mut [u8] {
        let spare_min = wanted.max(SPARE_BYTES_MIN);
        if self.bytes.len() - self.filled < spare_min {
            let mut fresh = BytesMut::zeroed(self.size.max(self.filled + spare_min));
            fresh[..self.filled].copy_from_slice(&self.bytes[..self.filled]);
            self.bytes = fresh;
        }
        &mut self.bytes[self.filled..]
    }

    /// Hands the input, `read` bytes longer now, to `take`, which leaves what it can't use yet.
    pub(crate) fn received(&mut self, read: usize, take: impl FnOnce(&mut BytesMut)) {
        self.used = true;
        if read == self.bytes.len() - self.filled {
            self.size = (self.size * 2).min(READ_BYTES_MAX);
        } else if read < self.size / SHRINK_PART {
            self.size = (self.size / 2).max(READ_BYTES_MIN);
        }
        let mut input = self.bytes.split_to(self.filled + read);
        take(&mut input);
        self.filled = input.len();
        if self.filled == 0 {
            if self.bytes.len() > 2 * self.size {
                // One that was busy is not any more.
                self.bytes = BytesMut::new();
            }
            return;
        }
        // Joins without a copy: what is left of the input ends where the tail begins.
        input.unsplit(std::mem::take(&mut self.bytes));
        self.bytes = input;
    }

    /// Gives its memory back where nothing was read since the last call; to be called now and then.
    pub(crate) fn rest(&mut self) {
        if !std::mem::take(&mut self.used) && self.filled == 0 && !self.bytes.is_empty() {
            *self = Self::new();
        }
    }

    /// The input that waits for more.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;

    #[test]
    fn input_left_over_is_the_head_of_the_next_read() {
        let mut buffer = ReadBuffer::new();
        buffer.spare(0)[..5].copy_from_slice(b"abcde");
        buffer.received(5, |input| input.advance(3));
        assert_eq!(buffer.waiting(), b"de");
        buffer.spare(0)[..2].copy_from_slice(b"fg");
        buffer.received(2, |input| assert_eq!(&input[..], b"defg"));
        assert_eq!(buffer.waiting(), b"defg");
    }

    #[test]
    fn a_connection_that_is_busy_no_more_holds_no_more_than_a_new_one() {
        let mut buffer = ReadBuffer::new();
        for _ in 0..10 {
            let room = buffer.spare(0).len();
            buffer.received(room, BytesMut::clear);
        }
        assert!(buffer.spare(0).len() > READ_BYTES_MAX / 2);
        for _ in 0..10 {
            buffer.spare(0);
            buffer.received(100, BytesMut::clear);
        }
        assert!(buffer.bytes.len() <= 2 * READ_BYTES_MIN, "{}", buffer.bytes.len());
        assert_eq!(buffer.size, READ_BYTES_MIN);
    }

    #[test]
    fn an_idle_connection_holds_nothing_and_one_with_half_a_frame_keeps_it() {
        let mut buffer = ReadBuffer::new();
        buffer.spare(0)[..4].copy_from_slice(b"head");
        buffer.received(4, |_| {});
        buffer.rest();
        buffer.rest();
        assert_eq!(buffer.waiting(), b"head");
        buffer.spare(0);
        buffer.received(1, BytesMut::clear);
        buffer.rest();
        assert!(!buffer.bytes.is_empty(), "it was used a moment ago");
        buffer.rest();
        assert!(buffer.bytes.is_empty());
    }

    #[test]
    fn a_frame_larger_than_the_buffer_finds_room() {
        let mut buffer = ReadBuffer::new();
        buffer.spare(0)[..4].copy_from_slice(b"head");
        buffer.received(4, |_| {});
        assert!(buffer.spare(1 << 20).len() >= 1 << 20);
        assert_eq!(buffer.waiting(), b"head");
    }

    #[test]
    fn payloads_cut_from_the_buffer_survive_it() {
        let mut buffer = ReadBuffer::new();
        let mut kept = None;
        buffer.spare(0)[..6].copy_from_slice(b"abcdef");
        buffer.received(6, |input| kept = Some(input.split_to(6).freeze()));
        buffer.spare(READ_BYTES_MAX).fill(0);
        assert_eq!(&kept.unwrap()[..], b"abcdef");
    }
}
