//! A connection over a socket: bytes that come go into its front end, and what the front end has goes out.

use super::socket::{Moved, Socket};
use crate::catalog::ChannelDefinition;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::Peer;
use crate::events::Event;
use crate::front::Protocol;
use crate::reason::Refusal;
use crate::task::TaskMeter;
use crate::tls::{self, TlsRefusal};
use crate::transport::{Protected, Shown, Transport};
use crate::wall_clock::wall_ms;
use bulla_seal::dn::Dn;
use openssl::x509::X509VerifyResult;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Reads of one connection in one turn: after that the others have theirs.
const READS_PER_TURN: usize = 2;

/// How long a partner may take for its part of a renewal of the keys (SSLRKEYC).
const RENEWAL_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of output that may gather meanwhile before nothing more is read.
const RENEWAL_OUTPUT_BYTES_MAX: usize = 8 << 20;

/// A connection over a socket.
pub(super) type Connection = Peer<SocketTransport>;

/// The socket of a connection, and how it stands.
pub(crate) struct SocketTransport {
    pub(crate) socket: Socket,
    /// What is spoken on it.
    pub(crate) protocol: Protocol,
    /// Since when output waits for the partner's part of a renewal of the keys.
    pub(crate) renewal_since: Option<Instant>,
    /// The socket may have bytes to read.
    pub(crate) readable: bool,
    /// The other side sends no more: behind the last bytes is the end, of which epoll tells only once.
    pub(crate) read_closed: bool,
    /// The socket may take bytes.
    pub(crate) writable: bool,
    /// When a connection that is over must have taken what is still to be sent.
    pub(crate) flush_by: Option<Instant>,
}

impl SocketTransport {
    /// A socket that is connected, or about to be; one that is `ready` may be read and written.
    pub(crate) fn new(socket: Socket, protocol: Protocol, ready: bool) -> Self {
        Self {
            socket,
            protocol,
            renewal_since: None,
            readable: ready,
            read_closed: false,
            writable: ready,
            flush_by: None,
        }
    }
}

impl Transport for SocketTransport {
    fn partner_address(&mut self) -> Option<SocketAddr> {
        self.socket.peer_address().ok()
    }

    fn local_address(&mut self) -> Option<SocketAddr> {
        self.socket.local_address().ok()
    }

    fn is_tls(&self) -> bool {
        self.socket.is_tls()
    }

    fn cipher(&self) -> Option<String> {
        self.socket.established()?.current_cipher().map(|cipher| cipher.name().to_owned())
    }

    fn key_group(&self) -> Option<String> {
        tls::key_group(self.socket.established()?).map(str::to_owned)
    }

    fn certificate(&self) -> Option<Shown> {
        let ssl = self.socket.established()?;
        let shown = ssl.peer_certificate()?;
        Some(Shown {
            is_verified: ssl.verify_result() == X509VerifyResult::OK,
            subject: Dn::from_x509_name(shown.subject_name()).ok(),
            issuer: Dn::from_x509_name(shown.issuer_name()).ok(),
            user: tls::user_of(&shown),
        })
    }

    fn has_verified_certificate(&self) -> bool {
        self.socket.verified_certificate()
    }

    fn check_channel(&self, definition: &ChannelDefinition) -> Result<Protected, Refusal> {
        let ssl = self.socket.established();
        let certificate = tls::check_channel(ssl, definition).map_err(|refusal| refusal.refusal())?;
        let (protocol, cipher_spec) = tls::agreed(ssl);
        let (peer_name, peer_issuer) =
            certificate.map(|certificate| (certificate.subject, certificate.issuer)).unwrap_or_default();
        let key_group = ssl.and_then(tls::key_group).unwrap_or_default().to_owned();
        Ok(Protected { protocol, cipher_spec, key_group, peer_name, peer_issuer })
    }

    fn renew_keys(&mut self, bytes: u32, calls: bool) {
        if let Some(tls) = self.socket.tls_socket_mut() {
            if calls {
                tls.set_key_reset(bytes.into());
            } else {
                tls.allow_renegotiation(bytes > 0);
            }
        }
    }

    fn sends_after_heartbeat(&mut self) {
        if let Some(tls) = self.socket.tls_socket_mut() {
            tls.reset_before_data_after_heartbeat();
        }
    }

    fn stop(&mut self) {
        self.readable = false;
        self.writable = false;
    }
}

/// Whether a TLS handshake is under way.
pub(super) fn is_shaking_hands(connection: &Connection) -> bool {
    connection.transport.socket.is_tls() && connection.transport.socket.established().is_none()
}

/// Whether there may be input, and the front end takes it: one whose output waits takes none.
pub(super) fn wants_to_read(connection: &Connection) -> bool {
    // A renegotiation that the output waits for is driven by reading.
    let room = connection.front.output_len() < RENEWAL_OUTPUT_BYTES_MAX;
    connection.transport.readable
        && !connection.arriving.stopped
        && ((connection.front.wants_input() && connection.has_room())
            || (room && connection.transport.socket.write_waits_for_read()))
}

/// Ends a connection whose partner does not answer a renewal of the keys; asked at each tick.
pub(super) fn give_up_renewal(connection: &mut Connection, now: Instant) {
    if !connection.transport.socket.write_waits_for_read() {
        connection.transport.renewal_since = None;
    } else if now >= *connection.transport.renewal_since.get_or_insert(now) + RENEWAL_WITHIN {
        connection.end("the partner does not answer the renewal of the keys");
    }
}

/// Whether the socket may take bytes that there are.
pub(super) fn wants_to_write(connection: &Connection) -> bool {
    connection.transport.writable
        && ((connection.front.output_len() > 0 && connection.turns.held == 0)
            || connection.transport.socket.wants_to_send())
}

/// Reads what is there into `room`, within this turn's share, no more than `bytes_max` at a time, and feeds it to
/// the front end, which copies what it keeps out of it.
pub(super) fn read(connection: &mut Connection, room: &mut [u8], local: &Local, bytes_max: Option<usize>) {
    let shaking_hands = is_shaking_hands(connection);
    match local.meters.tls.time(shaking_hands, || connection.transport.socket.handshake()) {
        Ok(Moved::Bytes(_)) if shaking_hands && connection.channel.calling.is_none() => {
            // Only now is it known whether there is a certificate; no byte of the protocol has been seen yet.
            let certificate = connection.transport.socket.verified_certificate();
            connection.front = connection.transport.protocol.front(local, certificate, true, false);
        }
        Ok(Moved::Bytes(_)) => {}
        Ok(Moved::Blocked) => {
            connection.transport.readable = false;
            return;
        }
        Ok(Moved::End) => return connection.end("closed during the handshake"),
        Err(error) => return failed(connection, &error),
    }
    let room_len = bytes_max.map_or(room.len(), |max| max.min(room.len()));
    read_input(connection, &mut room[..room_len], local);
    connection.note_arriving(&local.manager.listening.arriving);
    count_key_resets(connection);
    if connection.transport.socket.write_goes_on() {
        connection.transport.writable = true;
    }
}

fn read_input(connection: &mut Connection, room: &mut [u8], local: &Local) {
    #[cfg(test)]
    if matches!(connection.transport.socket, Socket::Absent) {
        if connection.front.take_offered(room.len()) > 0 {
            connection.arriving.heard(local.now);
        }
        connection.transport.readable = connection.front.wants_input();
        return;
    }
    for _ in 0..READS_PER_TURN {
        match local.meters.tls.time(connection.transport.socket.is_tls(), || connection.transport.socket.read(room)) {
            Ok(Moved::Bytes(n)) => {
                connection.arriving.heard(local.now);
                connection.traffic.buffers_received += 1;
                connection.traffic.bytes_received += n as u64;
                connection.front.receive(local.now, &room[..n]);
                if n < room.len() && connection.transport.socket.is_drained() && !connection.transport.read_closed {
                    // A short read emptied the socket; epoll tells of what comes after it.
                    connection.transport.readable = false;
                    return;
                }
                // What comes after an open, or a sign-in, is read when that is answered.
                if !connection.front.wants_input() {
                    return;
                }
            }
            Ok(Moved::Blocked) => {
                connection.transport.readable = false;
                return;
            }
            Ok(Moved::End) => return connection.end("closed by the peer"),
            Err(error) => return failed(connection, &error),
        }
    }
}

/// Writes what the front end has, until it or the socket has enough. True when bytes went out.
pub(super) fn write(connection: &mut Connection, tls: &TaskMeter) -> bool {
    let mut wrote = false;
    match tls.time(connection.transport.socket.wants_to_send(), || connection.transport.socket.send()) {
        Ok(true) => {}
        Ok(false) => connection.transport.writable = false,
        Err(error) => failed(connection, &error),
    }
    if is_shaking_hands(connection) {
        return false;
    }
    connection.transport.readable |= connection.transport.socket.read_goes_on();
    while connection.transport.writable && connection.turns.held == 0 && connection.front.output_len() > 0 {
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        connection.front.output_slices(&mut slices);
        let written =
            match tls.time(connection.transport.socket.is_tls(), || connection.transport.socket.write(&slices)) {
                Ok(Moved::Bytes(n)) => n,
                Ok(Moved::Blocked) => {
                    connection.transport.writable = false;
                    connection.transport.readable |= connection.transport.socket.write_waits_for_read();
                    break;
                }
                Ok(Moved::End) => {
                    connection.end("closed by the peer");
                    break;
                }
                Err(error) => {
                    failed(connection, &error);
                    break;
                }
            };
        drop(slices);
        connection.traffic.buffers_sent += 1;
        connection.traffic.bytes_sent += written as u64;
        connection.front.output_written(written);
        wrote = true;
    }
    count_key_resets(connection);
    wrote
}

fn count_key_resets(connection: &mut Connection) {
    let Some(tls) = connection.transport.socket.tls_socket() else { return };
    if tls.key_resets() != connection.traffic.key_resets {
        connection.traffic.key_resets = tls.key_resets();
        connection.traffic.last_key_reset_ms = tls.last_key_reset().map(wall_ms);
    }
}

/// Whether nothing more can come of this connection.
pub(super) fn is_over(connection: &Connection) -> bool {
    let all_sent = connection.front.output_len() == 0 && !connection.transport.socket.wants_to_send();
    connection.ended.broken.is_some() || (connection.front.is_closed() && all_sent)
}

/// The socket failed. What TLS says of it is a channel's failure, or told of when the connection goes, and nowhere
/// else.
fn failed(connection: &mut Connection, error: &io::Error) {
    match (TlsRefusal::of_io(error), &mut connection.channel.calling) {
        (Some(refusal), Some(calling)) => drop(calling.failure.get_or_insert(refusal.refusal())),
        // Callers that are no TLS, or hang up, are not worth a line.
        (Some(TlsRefusal::Library { .. }), None) | (None, _) => {}
        // Behind the last words, how the partner hangs up says nothing of TLS.
        (Some(_), None) if connection.front.is_closed() => {}
        (Some(refusal), None) => {
            let (channel, reason) = (String::new(), refusal.refusal());
            connection.ended.refused = Some(Event::TlsRefused { channel, partner: connection.address_text(), reason });
        }
    }
    connection.end(error);
}
