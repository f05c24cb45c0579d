//! Channels and their instances, as they run.

use super::TwoAverages;
use super::protection::ProtectionMeters;
use std::fmt::{self, Display};

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
    /// It stays away until a command starts it.
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
    /// MODE(FORCE): the connection is cut, the batch under way is in doubt or comes again. Otherwise the batch is ended
    /// first.
    pub force: bool,
    /// STATUS(INACTIVE): it can be started by its transmission queue or its partner again. Otherwise it stays STOPPED
    /// until a command starts it.
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

/// What goes on at one instance of a channel: CHSTATUS, inventory C3.6 to C3.9. Counts run from the start of the
/// instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelStatus {
    /// STATUS
    pub state: ChannelState,
    /// SUBSTATE: what it waits for, in MQ's words (`MQGET`, `NETWORK`, `JOURNAL`, `ADAPTER`, …); empty while it does
    /// not run.
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
    /// SSLGROUP: by which the keys were agreed on; empty without TLS, and where the partner's RSA key opened them.
    pub key_group: String,
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
    /// NETTIME: microseconds from a message sent to its confirmation, the partner's own time and its journal's
    /// included.
    pub net_time_us: TwoAverages,
    /// XBATCHSZ: messages in a batch.
    pub batch_messages: TwoAverages,
    /// XQMSGSA: messages that wait on the transmission queue.
    pub queue_messages: u64,
    /// What SPLPROT did, from the start of the instance.
    pub protection: ProtectionMeters,
}

impl ChannelStatus {
    /// Whether there is something to say of it: it runs, ran, was stopped or failed, or has messages in doubt.
    pub fn is_worth_showing(&self) -> bool {
        self.state != ChannelState::Inactive || self.started_ms.is_some() || self.in_doubt || !self.reason.is_empty()
    }
}
