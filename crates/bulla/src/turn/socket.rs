//! A peer's socket, plain or under TLS.

#[cfg(test)]
use super::pipe::PipeEnd;
use super::tls_socket::TlsSocket;
use mio::net::TcpStream;
use openssl::ssl::{Ssl, SslRef};
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;

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
    /// None: the front end moves its messages without bytes.
    #[cfg(test)]
    Absent,
    /// The core's end of a simulated connection.
    #[cfg(test)]
    Pipe(PipeEnd),
}

impl Socket {
    /// A TLS socket whose handshake is yet to come; the session knows which side it is. Its private-key operation is
    /// asked for by [`TlsSocket::question`].
    pub(crate) fn tls(stream: TcpStream, ssl: Ssl) -> io::Result<Self> {
        let mut socket = TlsSocket::new(stream, ssl)?;
        socket.use_devices();
        Ok(Self::Tls(Box::new(socket)))
    }

    /// The TCP socket, for registration, where there is one.
    pub(crate) fn tcp(&mut self) -> Option<&mut TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(tls) => Some(tls.tcp()),
            #[cfg(test)]
            Self::Absent | Self::Pipe(_) => None,
        }
    }

    /// The partner's address.
    pub(crate) fn peer_address(&mut self) -> io::Result<SocketAddr> {
        #[cfg(test)]
        if let Self::Pipe(pipe) = self {
            return Ok(pipe.peer_address());
        }
        self.tcp().map_or_else(|| Err(io::ErrorKind::NotConnected.into()), |stream| stream.peer_addr())
    }

    /// This side's address.
    pub(crate) fn local_address(&mut self) -> io::Result<SocketAddr> {
        self.tcp().map_or_else(|| Err(io::ErrorKind::NotConnected.into()), |stream| stream.local_addr())
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
            Self::Tls(tls) => Some(tls),
            _ => None,
        }
    }

    /// As [`tls_socket`](Self::tls_socket), to set it up.
    pub(crate) fn tls_socket_mut(&mut self) -> Option<&mut TlsSocket> {
        match self {
            Self::Tls(tls) => Some(tls),
            _ => None,
        }
    }

    /// Whether the peer has shown a certificate that a trusted authority signed.
    pub(crate) fn verified_certificate(&self) -> bool {
        #[cfg(test)]
        if let Self::Pipe(pipe) = self {
            return pipe.pipe().is_proved();
        }
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
            #[cfg(test)]
            Self::Absent => Ok(Moved::Blocked),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.read(into),
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
            #[cfg(test)]
            Self::Absent => Ok(Moved::Blocked),
            #[cfg(test)]
            Self::Pipe(pipe) => pipe.write(slices),
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

    /// Tells the partner that nothing follows, where the protocol under the connection's own can say so.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = self.tls_socket_mut() {
            tls.close();
        }
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
