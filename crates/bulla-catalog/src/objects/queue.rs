//! Local queues.

use crate::limits::QueueLimit;

/// A local queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalQueue {
    /// DESCR
    pub description: String,
    /// MAXDEPTH in messages.
    pub max_depth: u32,
    /// MAXMSGL in bytes, as stored.
    pub max_message_bytes: u32,
    /// GET(ENABLED)
    pub get_enabled: bool,
    /// PUT(ENABLED)
    pub put_enabled: bool,
    /// DEFPRTY
    pub default_priority: u8,
    /// DEFPSIST(YES)
    pub default_persistent: bool,
    /// MSGDLVSQ
    pub delivery: Delivery,
    /// FULL
    pub full: Full,
    /// USAGE
    pub usage: Usage,
    /// TRIGGER: a message starts the channel of a transmission queue, or the application of another one.
    pub trigger: bool,
    /// TRIGDATA: of a transmission queue the channel that is started, none for the one whose XMITQ this is; of another
    /// one what the application is told.
    pub trigger_data: Option<String>,
    /// BOTHRESH: how often a message may be backed out; 0 for any number of times.
    pub backout_threshold: u32,
    /// BOQNAME: where it goes then; none for the dead-letter queue.
    pub backout_queue: Option<String>,
    /// HARDENBO
    pub harden_backout: bool,
    /// BACKOUT
    pub backout: Backout,
    /// QDEPTHHI in percent of MAXDEPTH.
    pub high_percent: u8,
    /// QDEPTHLO in percent of MAXDEPTH.
    pub low_percent: u8,
    /// QDPHIEV(ENABLED)
    pub high_event: bool,
    /// QDPLOEV(ENABLED)
    pub low_event: bool,
    /// QDPMAXEV(ENABLED)
    pub full_event: bool,
    /// SHARE: several links may get from it.
    pub share: bool,
    /// DEFSOPT(EXCL): a link that does not say gets alone.
    pub default_exclusive: bool,
    /// DEFTYPE(PERMDYN): made of a model, for an application.
    pub dynamic: bool,
    /// DYNUSER: for whom it was made of a model; none for other queues, and for those made before that was kept.
    pub maker: Option<String>,
    /// TRIGTYPE
    pub trigger_type: TriggerType,
    /// TRIGDPTH in messages.
    pub trigger_depth: u32,
    /// TRIGMPRI
    pub trigger_priority: u8,
    /// CAPEXPRY in tenths of a second; none for no limit.
    pub expiry_cap_tenths: Option<u32>,
    /// INITQ
    pub initiation_queue: Option<String>,
    /// PROCESS
    pub process: Option<String>,
    /// GROUPS(YES): messages of one group go to one link at a time.
    pub groups: bool,
    /// MAXHANDS, UNACKED and MSGRATE.
    pub limit: QueueLimit,
    /// QSGROUP, with QSGDISP(SHARED): the group of shared queues in whose log it lies; none for a queue of this queue
    /// manager alone.
    pub group: Option<String>,
}

/// BACKOUT: who heeds BOTHRESH.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Backout {
    /// Applications.
    None,
    /// The queue manager.
    Move,
}

/// TRIGTYPE: when a queue that is no transmission queue triggers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TriggerType {
    /// With the first message on it.
    First,
    /// With every message.
    Every,
    /// When it holds TRIGDPTH messages.
    Depth,
    /// Never.
    None,
}

/// USAGE: what a local queue is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Usage {
    /// For applications.
    Normal,
    /// XMITQ: messages wait on it for a channel.
    Transmission,
}

/// MSGDLVSQ: order of delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivery {
    /// By priority, then by arrival.
    Priority,
    /// By arrival.
    Fifo,
}

/// FULL: what happens at MAXDEPTH.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Full {
    /// No more credit is granted.
    Wait,
    /// Messages are refused with 2053.
    Reject,
}

/// The table's defaults; a test compares.
impl Default for LocalQueue {
    fn default() -> Self {
        Self {
            description: String::new(),
            max_depth: 5000,
            max_message_bytes: 4_194_304,
            get_enabled: true,
            put_enabled: true,
            default_priority: 4,
            default_persistent: false,
            delivery: Delivery::Priority,
            full: Full::Wait,
            usage: Usage::Normal,
            trigger: false,
            trigger_data: None,
            backout_threshold: 0,
            backout_queue: None,
            harden_backout: false,
            backout: Backout::None,
            high_percent: 80,
            low_percent: 20,
            high_event: false,
            low_event: false,
            full_event: true,
            share: true,
            default_exclusive: false,
            dynamic: false,
            maker: None,
            trigger_type: TriggerType::First,
            trigger_depth: 1,
            trigger_priority: 0,
            expiry_cap_tenths: None,
            initiation_queue: None,
            process: None,
            groups: false,
            limit: QueueLimit::default(),
            group: None,
        }
    }
}

/// Highest MAXDEPTH in messages, as MQ has it.
pub const DEPTH_MAX: u64 = 999_999_999;

/// Highest MAXMSGL in bytes, as MQ has it: 100 MiB.
pub const MESSAGE_BYTES_MAX: u64 = 104_857_600;
