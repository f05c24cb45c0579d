//! What a connection runs over, as far as the queue manager asks: where the partner is, what it has proved, keys.
//!
//! The bytes are no concern of this: a front end has them, and what owns the connection moves them.

use crate::catalog::ChannelDefinition;
use crate::reason::Refusal;
use bulla_seal::dn::Dn;
use std::net::SocketAddr;

/// Counts of one connection, for the status of its channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Writes.
    pub buffers_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Reads.
    pub buffers_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Keys renewed (SSLRKEYS).
    pub key_resets: u64,
    /// When last, milliseconds since 1970.
    pub last_key_reset_ms: Option<u64>,
}

/// The certificate that a partner has shown in its handshake.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// A trusted authority has signed it, and it is valid.
    pub is_verified: bool,
    /// The subject, where it can be read.
    pub subject: Option<Dn>,
    /// The issuer, where it can be read.
    pub issuer: Option<Dn>,
    /// The user that it stands for: the one common name of its subject.
    pub user: Option<String>,
}

/// What protects a channel's connection, for the channel's status. All is empty where nothing does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// SECPROT: `NONE`, `TLSV12` or `TLSV13`.
    pub protocol: &'static str,
    /// SSLCIPH.
    pub cipher_spec: String,
    /// SSLGROUP.
    pub key_group: String,
    /// SSLPEER.
    pub peer_name: String,
    /// SSLCERTI.
    pub peer_issuer: String,
}

/// What the queue manager asks of the transport of one connection.
pub trait Transport: Send + 'static {
    /// The partner's address. None for a connection without one, or whose partner has hung up.
    fn partner_address(&mut self) -> Option<SocketAddr>;

    /// This side's address.
    fn local_address(&mut self) -> Option<SocketAddr>;

    /// Whether what goes over it is protected by TLS.
    fn is_tls(&self) -> bool;

    /// The name of the cipher suite, once the handshake is complete.
    fn cipher(&self) -> Option<String>;

    /// The group by which its keys were agreed on, once the handshake is complete.
    fn key_group(&self) -> Option<String>;

    /// The certificate that the partner has shown, once the handshake is complete.
    fn certificate(&self) -> Option<Shown>;

    /// Whether the partner has shown a certificate that a trusted authority has signed.
    fn has_verified_certificate(&self) -> bool;

    /// Whether the partner may run this channel: SSLCIPH, SSLCAUTH and SSLPEER are looked at. The answer is what
    /// protects the connection.
    ///
    /// # Errors
    /// 2393, with the cause.
    fn check_channel(&self, definition: &ChannelDefinition) -> Result<Protected, Refusal>;

    /// SSLRKEYC of the channel on this connection, in bytes. The side that called (`calls`) renews the keys, the other
    /// one lets it.
    fn renew_keys(&mut self, bytes: u32, calls: bool);

    /// A channel sends again after its heartbeat: keys that are to be renewed are renewed first.
    fn sends_after_heartbeat(&mut self);

    /// The connection is given up: nothing more is read or written.
    fn stop(&mut self);
}
