//! The queue manager.

use super::MESSAGE_BYTES_MAX;
use crate::system_queues::DEAD_LETTER_QUEUE;
use crate::tls_group::TlsGroup;

/// The queue manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueueManager {
    /// QMNAME; given once, when the data directory is made.
    pub name: String,
    /// DESCR
    pub description: String,
    /// DEADQ; none when blank.
    pub dead_letter_queue: Option<String>,
    /// MAXMSGL in bytes.
    pub max_message_bytes: u32,
    /// DEFXMITQ: the way to queue managers to which no other way leads.
    pub default_transmission_queue: Option<String>,
    /// SSLRKEYC: bytes sent and received on a TLS channel before its keys are renewed; 0 for never.
    pub key_reset_bytes: u32,
    /// SSLGROUPS: the groups that keys of TLS may be agreed on by; none for all that there are.
    pub key_groups: Vec<&'static TlsGroup>,
    /// CERTLABL: the label of the certificate that channels show unless they name one; none for the key ring's own.
    pub certificate_label: Option<String>,
    /// CHIADAPS: adapters; none for as many as the queue manager was started with.
    pub adapters: Option<u32>,
    /// CHIDISPS: dispatchers; none for as many as the queue manager was started with.
    pub dispatchers: Option<u32>,
    /// MAXCHL: most channels that are current, those that are stopped or tried again included.
    pub channels_max: u32,
    /// ACTCHL: most channels that are active.
    pub active_channels_max: u32,
    /// MAXUMSGS: most messages of a unit of work.
    pub max_uncommitted: u32,
    /// MAXUAGE: seconds after which a unit of work is backed out; 0 for never.
    pub max_unit_age: u32,
    /// AUTHOREV(ENABLED)
    pub authority_events: bool,
    /// PERFMEV(ENABLED)
    pub performance_events: bool,
    /// CHLEV(ENABLED)
    pub channel_events: bool,
    /// TRIGINT in milliseconds.
    pub trigger_interval_ms: u32,
    /// CHLAUTH(ENABLED): the rules for connections are asked.
    pub channel_authentication: bool,
    /// CHCKCLNT(REQUIRED): clients must sign in.
    pub sign_in_required: bool,
    /// LOGINIDLE: seconds without a request after which a log-in over HTTP is over.
    pub log_in_idle_seconds: u32,
    /// LOGINLIFE: seconds after which a log-in over HTTP is over, however much it is used.
    pub log_in_life_seconds: u32,
    /// OAUTHISS: whose tokens are accepted; none where no tokens are.
    pub token_issuer: Option<String>,
    /// OAUTHAUD: for whom they must be; none for the queue manager by its name.
    pub token_audience: Option<String>,
    /// OAUTHUSR: the claim that is the user's name.
    pub token_user_claim: String,
}

impl QueueManager {
    /// The defaults, for a queue manager of that name.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            dead_letter_queue: Some(DEAD_LETTER_QUEUE.into()),
            max_message_bytes: u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(u32::MAX),
            default_transmission_queue: None,
            key_reset_bytes: 0,
            key_groups: Vec::new(),
            certificate_label: None,
            adapters: None,
            dispatchers: None,
            channels_max: 200,
            active_channels_max: 200,
            max_uncommitted: 10_000,
            max_unit_age: 600,
            authority_events: false,
            performance_events: false,
            channel_events: false,
            trigger_interval_ms: 999_999_999,
            channel_authentication: true,
            sign_in_required: false,
            log_in_idle_seconds: LOG_IN_IDLE_SECONDS,
            log_in_life_seconds: LOG_IN_LIFE_SECONDS,
            token_issuer: None,
            token_audience: None,
            token_user_claim: "sub".into(),
        }
    }
}

/// LOGINIDLE unless another time is set: half an hour.
pub const LOG_IN_IDLE_SECONDS: u32 = 1_800;
/// LOGINLIFE unless another time is set: a working day.
pub const LOG_IN_LIFE_SECONDS: u32 = 28_800;

/// Most dispatchers: a set of them is one word.
pub const DISPATCHERS_MAX: usize = 64;

/// Most adapters: each is a thread, and more of them than that wait for each other.
pub const ADAPTERS_MAX: usize = 256;
