//! Channels.

use crate::tls_group::TlsGroup;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

/// Most channels.
pub const CHANNELS_MAX: usize = 10_000;

/// Longest name of a channel in characters, as MQ has it.
pub const CHANNEL_NAME_CHARS_MAX: usize = 20;

/// CHLTYPE: who begins, and which way messages go.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ChannelKind {
    /// SDR: begins, and sends.
    Sender,
    /// RCVR: waits for a sender or server, and receives.
    Receiver,
    /// SVR: sends; a requester can ask it to, and with CONNAME it begins like a sender.
    Server,
    /// RQSTR: receives; begins by asking a server, or is called like a receiver.
    Requester,
}

impl ChannelKind {
    /// Whether it takes messages from a transmission queue.
    #[must_use]
    pub fn sends(self) -> bool {
        matches!(self, Self::Sender | Self::Server)
    }

    /// MQ's word: SDR, RCVR, SVR, RQSTR.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Sender => "SDR",
            Self::Receiver => "RCVR",
            Self::Server => "SVR",
            Self::Requester => "RQSTR",
        }
    }
}

impl Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// SPLPROT: what a channel does about seals (inventory B6).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protection {
    /// Bytes pass unchanged.
    #[default]
    PassThrough,
    /// A sending channel opens, where the transmission queue has a policy.
    Remove,
    /// A receiving channel seals, where the target queue has a policy.
    AsPolicy,
}

impl Protection {
    /// As MQSC has it: PASSTHRU, REMOVE, ASPOLICY.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::PassThrough => "PASSTHRU",
            Self::Remove => "REMOVE",
            Self::AsPolicy => "ASPOLICY",
        }
    }
}

/// A channel. Attributes that its type does not have stand at their defaults.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChannelDefinition {
    /// CHLTYPE
    pub kind: ChannelKind,
    /// DESCR
    pub description: String,
    /// CONNAME: `host:port` each, tried in turn; empty where the partner begins.
    pub connections: Vec<String>,
    /// XMITQ of SDR and SVR.
    pub transmission_queue: Option<String>,
    /// BATCHSZ: most messages between two confirmations.
    pub batch_size: u32,
    /// BATCHINT: how long a batch waits for more once the transmission queue is empty.
    pub batch_interval: Duration,
    /// BATCHLIM: bytes of messages that end a batch (written in kilobytes); 0 is no limit.
    pub batch_bytes_max: u64,
    /// NPMSPEED(FAST): non-persistent messages do not wait for a batch, and may be lost with the connection.
    pub non_persistent_fast: bool,
    /// HBINT; zero for none.
    pub heartbeat: Duration,
    /// DISCINT: how long an idle channel stays; zero for ever.
    pub disconnect_after: Duration,
    /// SHORTRTY
    pub short_retries: u32,
    /// SHORTTMR
    pub short_retry_interval: Duration,
    /// LONGRTY
    pub long_retries: u32,
    /// LONGTMR
    pub long_retry_interval: Duration,
    /// SEQWRAP: the highest sequence number before 1 follows.
    pub sequence_wrap: u32,
    /// MAXMSGL in bytes; 0 is the queue manager's.
    pub max_message_bytes: u32,
    /// MRRTY: how often a message is tried again that can't be put.
    pub message_retries: u32,
    /// MRTMR
    pub message_retry_interval: Duration,
    /// USEDLQ(YES): what can't be delivered goes to the dead-letter queue.
    pub use_dead_letter_queue: bool,
    /// MCAUSER: whose key ring the channel opens and seals with; none for the queue manager's own name.
    pub user: Option<String>,
    /// SPLPROT
    pub protection: Protection,
    /// SSLCIPH: an IBM or IANA name of the CipherSpec table; none for no TLS.
    pub cipher_spec: Option<String>,
    /// SSLGROUPS: the groups that keys may be agreed on by, the first one preferred; none for the queue manager's.
    pub key_groups: Vec<&'static TlsGroup>,
    /// SSLPEER: a pattern for the subject of the partner's certificate.
    pub peer_pattern: Option<String>,
    /// SSLCAUTH(REQUIRED): the partner that begins must show a certificate.
    pub client_certificate_required: bool,
    /// CERTLABL: the label of the certificate shown; none for the queue manager's.
    pub certificate_label: Option<String>,
    /// SSLRKEYC of this channel in bytes; none for the queue manager's, 0 for never.
    pub key_reset_bytes: Option<u32>,
    /// USERID, by which a partner that asks for a password knows this queue manager.
    pub sasl_user: Option<String>,
    /// PASSFILE: its first line is the password.
    pub password_file: Option<PathBuf>,
    /// SOURCE of a requester: the address at a partner that is not Bulla.
    pub source: Option<String>,
    /// TARGET of a requester: the queue for messages of a partner that is not Bulla.
    pub target: Option<String>,
    /// QSGROUP: the group of shared queues that it belongs to; none for this queue manager's own.
    pub group: Option<String>,
    /// SAMEPEER: subjects of certificates that are one partner's, the members of a group; canonical.
    pub same_peers: Vec<String>,
}

impl ChannelDefinition {
    /// The defaults, for a channel of that type (inventory C1).
    #[must_use]
    pub fn new(kind: ChannelKind) -> Self {
        Self {
            kind,
            description: String::new(),
            connections: Vec::new(),
            transmission_queue: None,
            batch_size: 50,
            batch_interval: Duration::ZERO,
            batch_bytes_max: 5_000 * 1024,
            non_persistent_fast: true,
            heartbeat: Duration::from_secs(300),
            disconnect_after: Duration::from_secs(6_000),
            short_retries: 10,
            short_retry_interval: Duration::from_secs(60),
            long_retries: 999_999_999,
            long_retry_interval: Duration::from_secs(1_200),
            sequence_wrap: 999_999_999,
            max_message_bytes: 4 << 20,
            message_retries: 10,
            message_retry_interval: Duration::from_millis(1_000),
            use_dead_letter_queue: true,
            user: None,
            protection: Protection::PassThrough,
            cipher_spec: None,
            key_groups: Vec::new(),
            peer_pattern: None,
            client_certificate_required: true,
            certificate_label: None,
            key_reset_bytes: None,
            sasl_user: None,
            password_file: None,
            source: None,
            target: None,
            group: None,
            same_peers: Vec::new(),
        }
    }
}
