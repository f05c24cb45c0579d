//! Channels as they are defined, and what goes on at one.

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
            peer_pattern: None,
            client_certificate_required: true,
            certificate_label: None,
            key_reset_bytes: None,
            sasl_user: None,
            password_file: None,
            source: None,
            target: None,
        }
    }
}

/// STATUS of a channel (inventory C3.6).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ChannelState {
    /// It was never started, or ended in order.
    #[default]
    Inactive,
    /// It has been told to start.
    Starting,
    /// It connects and shakes hands.
    Binding,
    /// A requester asks its server.
    Requesting,
    /// It agrees with the partner on where they stand.
    Initializing,
    /// Messages flow.
    Running,
    /// A receiver waits for MRTMR to put a message again.
    Paused,
    /// It ends after the batch.
    Stopping,
    /// It failed, and is tried again.
    Retrying,
    /// It stays away until somebody starts it.
    Stopped,
}

impl ChannelState {
    /// MQ's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Inactive => "INACTIVE",
            Self::Starting => "STARTING",
            Self::Binding => "BINDING",
            Self::Requesting => "REQUESTING",
            Self::Initializing => "INITIALIZING",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Stopping => "STOPPING",
            Self::Retrying => "RETRYING",
            Self::Stopped => "STOPPED",
        }
    }
}

impl Display for ChannelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl ChannelState {
    /// Whether an instance in this state has, or is about to have, a connection: it counts against ACTCHL.
    #[must_use]
    pub fn is_active(self) -> bool {
        !matches!(self, Self::Inactive | Self::Retrying | Self::Stopped)
    }
}

/// STOP CHANNEL: how, and what becomes of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StopChannel {
    /// MODE(FORCE): the connection is cut, the batch under way is in doubt or comes again. Otherwise the batch is ended first.
    pub force: bool,
    /// STATUS(INACTIVE): it can be started by its transmission queue or its partner again. Otherwise it stays STOPPED until
    /// somebody starts it.
    pub inactive: bool,
}

/// Threads of one role.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tasks {
    /// Running now.
    pub started: u32,
    /// Asked for: by CHIADAPS, by CHIDISPS, or at the start of the queue manager.
    pub requested: u32,
}

/// What goes on at the channels together: CHINIT, inventory C3.5.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct InitiatorStatus {
    /// Adapters: they seal, open and put.
    pub adapters: Tasks,
    /// Dispatchers: they own the connections.
    pub dispatchers: Tasks,
    /// Threads that do nothing but TLS; none where dispatchers do it.
    pub tls_tasks: Tasks,
    /// Instances that are not INACTIVE.
    pub current: u32,
    /// Of them, those that are active, paused and starting ones included.
    pub active: u32,
    /// Of the active ones, those that are PAUSED.
    pub paused: u32,
    /// Of the active ones, those that are STARTING.
    pub starting: u32,
    /// Instances that are RETRYING.
    pub retrying: u32,
    /// Instances that are STOPPED.
    pub stopped: u32,
    /// MAXCHL: most that may be current.
    pub channels_max: u32,
    /// ACTCHL: most that may be active.
    pub active_channels_max: u32,
    /// Where partners and applications are listened for: `amqp://127.0.0.1:5672`.
    pub listeners: Vec<String>,
}

/// A short and a long average, as MQ shows them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TwoAverages {
    /// Over the last few.
    pub short: u64,
    /// Over many.
    pub long: u64,
}

/// What goes on at one instance of a channel: CHSTATUS, inventory C3.6 to C3.9. Counts run from the start of the instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelStatus {
    /// STATUS
    pub state: ChannelState,
    /// SUBSTATE: what it waits for, in MQ's words (`MQGET`, `NETWORK`, `JOURNAL`, `ADAPTER`, …); empty while it does not run.
    pub substate: &'static str,
    /// CONNAME: the partner's address; empty where there is none.
    pub connection: String,
    /// LOCLADDR
    pub local_address: String,
    /// XMITQ
    pub transmission_queue: String,
    /// RQMNAME: the partner's queue manager.
    pub remote_manager: String,
    /// RAPPLTAG: the partner's container id.
    pub remote_application: String,
    /// RPRODUCT
    pub remote_product: String,
    /// RVERSION
    pub remote_version: String,
    /// JOBNAME: process and thread.
    pub job: String,
    /// MCAUSER in force.
    pub user: String,
    /// STOPREQ(YES): it has been told to stop.
    pub stop_requested: bool,
    /// DELIVERY(EXACTLYONCE), or ATLEASTONCE where the partner is not Bulla.
    pub exactly_once: bool,
    /// REASON: why it failed last; empty where it did not.
    pub reason: String,
    /// MSGS
    pub messages: u64,
    /// BATCHES
    pub batches: u64,
    /// BUFSSENT: writes to the socket.
    pub buffers_sent: u64,
    /// BUFSRCVD: reads of the socket.
    pub buffers_received: u64,
    /// BYTSSENT
    pub bytes_sent: u64,
    /// BYTSRCVD
    pub bytes_received: u64,
    /// CURMSGS: messages sent or received and not confirmed.
    pub current_messages: u64,
    /// CURSEQNO: the last sent or received.
    pub current_sequence: u64,
    /// LSTSEQNO: the last confirmed.
    pub last_sequence: u64,
    /// CURLUWID: the unit of work under way.
    pub current_unit: String,
    /// LSTLUWID: the last one confirmed.
    pub last_unit: String,
    /// INDOUBT(YES): messages were sent, and the partner has not said what became of them.
    pub in_doubt: bool,
    /// LSTMSGDA, LSTMSGTI: milliseconds since 1970, UTC.
    pub last_message_ms: Option<u64>,
    /// CHSTADA, CHSTATI: milliseconds since 1970, UTC.
    pub started_ms: Option<u64>,
    /// SHORTRTS: short retries left.
    pub short_retries_left: u32,
    /// LONGRTS: long retries left.
    pub long_retries_left: u32,
    /// BATCHSZ in force.
    pub batch_size: u32,
    /// HBINT in force, seconds.
    pub heartbeat_seconds: u32,
    /// MAXMSGL in force, bytes.
    pub max_message_bytes: u64,
    /// NPMSPEED in force.
    pub non_persistent_fast: bool,
    /// SECPROT: `NONE`, `TLSV12`, `TLSV13`.
    pub security_protocol: &'static str,
    /// SSLCIPH in force, IBM name; empty without TLS.
    pub cipher_spec: String,
    /// SSLPEER: the subject of the partner's certificate.
    pub peer_name: String,
    /// SSLCERTI: its issuer.
    pub peer_issuer: String,
    /// SSLRKEYS: keys reset since the start.
    pub key_resets: u64,
    /// SSLKEYDA, SSLKEYTI: the last reset, milliseconds since 1970, UTC.
    pub last_key_reset_ms: Option<u64>,
    /// XQTIME: microseconds that messages spent on the transmission queue.
    pub queue_time_us: TwoAverages,
    /// NETTIME: microseconds from a message sent to its confirmation, less the partner's own time where it tells that.
    pub net_time_us: TwoAverages,
    /// XBATCHSZ: messages in a batch.
    pub batch_messages: TwoAverages,
    /// XQMSGSA: messages that wait on the transmission queue.
    pub queue_messages: u64,
}
