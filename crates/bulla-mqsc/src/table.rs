//! The table of commands: verbs, nouns, attributes, their values, defaults and words of explanation.
//!
//! Parser, `HELP`, the reference page and completion read this table and nothing else. An attribute stands here
//! only when something honours it.

mod address_map;
mod authority;
pub(crate) mod channel;
mod connection;
pub(crate) mod limit;
pub(crate) mod local;
mod lockout;
mod protection;
pub(crate) mod topic;

use crate::attributes::queue_manager;
use crate::nouns::{self, queues};
use bulla_catalog::authority::Role;
use bulla_catalog::names::is_name;
use bulla_catalog::{DEPTH_MAX, Sort, topic_names};
pub(super) use channel::STATUS_BRIEF as CHANNEL_STATUS_BRIEF;
pub(super) use protection::*;
use std::fmt::{self, Display};

/// Longest description in characters, as MQ has it.
pub const DESCR_CHARS_MAX: usize = 64;
/// Longest distinguished name in characters.
pub const DN_CHARS_MAX: usize = 1024;
/// Highest priority.
pub const PRIORITY_MAX: u64 = 9;
/// Most engines of a device.
pub const ENGINES_MAX: u64 = 16;
/// Highest PENDING in jobs.
pub const PENDING_MAX: u64 = 1024;
/// Shortest TIMEOUT in milliseconds.
pub const TIMEOUT_MS_MIN: u64 = 10;
/// Longest TIMEOUT in milliseconds.
pub const TIMEOUT_MS_MAX: u64 = 600_000;
/// Longest path, URI or list of service times in characters.
pub const DEVICE_TEXT_CHARS_MAX: usize = 1024;
/// Highest number of re-uses that KEYREUSE takes, as MQ has it.
pub const KEY_REUSE_MAX: u64 = 9_999_999;

/// What a command does and takes.
#[derive(Debug)]
pub struct Command {
    /// The command, for the code that carries it out.
    pub act: Act,
    /// First word.
    pub verb: &'static str,
    /// Second word; empty for `HELP`.
    pub noun: &'static str,
    /// What may stand in the parentheses after the noun.
    pub name: NameUse,
    /// What the name names, for messages: `queue`, `policy`, …
    pub object: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Words that steer the command and are not kept with the object.
    pub options: &'static [&'static Attribute],
    /// What DEFINE, ALTER and SET set, and what DISPLAY shows.
    pub attributes: &'static [&'static Attribute],
    /// At least one that works as it stands.
    pub examples: &'static [&'static str],
    /// First version that has it.
    pub since: &'static str,
}

/// The role that each verb needs.
pub const ROLES: [(&str, Role); 15] = [
    ("HELP", Role::Look),
    ("DISPLAY", Role::Look),
    // What it holds together is asked about by itself.
    ("BEGIN", Role::Look),
    ("START", Role::Operate),
    ("STOP", Role::Operate),
    ("PING", Role::Operate),
    ("RESET", Role::Operate),
    ("RESOLVE", Role::Operate),
    ("CLEAR", Role::Operate),
    ("REPLAY", Role::Operate),
    // It changes nothing, and works with the readers' keys. What it takes beyond that is `Statement::role`'s to say.
    ("CHECK", Role::Operate),
    ("DEFINE", Role::All),
    ("ALTER", Role::All),
    ("DELETE", Role::All),
    ("SET", Role::All),
];

impl Command {
    /// The role that it takes. A verb that the table does not know takes everything.
    pub fn role(&self) -> Role {
        ROLES.iter().find(|(verb, _)| *verb == self.verb).map_or(Role::All, |(_, role)| *role)
    }

    /// True for commands that show and change nothing.
    pub fn is_display(&self) -> bool {
        self.verb == "DISPLAY"
    }

    /// Finds an option or attribute by a word as typed, in upper case.
    pub fn attribute(&self, word: &str) -> Option<&'static Attribute> {
        self.options.iter().chain(self.attributes).copied().find(|attribute| attribute.answers_to(word))
    }

    /// Each word that may follow in this command, for suggestions and completion.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().chain(self.attributes).flat_map(|attribute| attribute.words())
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.noun {
            "" => f.write_str(self.verb),
            noun => write!(f, "{} {noun}", self.verb),
        }
    }
}

/// What a command does, for the code that carries it out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// It changes what is defined, and nothing else.
    Defines(Defining),
    /// It changes nothing that is defined.
    Does(Doing),
}

/// One for each command that changes what is defined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Defining {
    Define(Sort),
    Alter(Sort),
    Delete(Sort),
    AlterManager,
    SetPolicy,
    DeletePolicy,
    DefineDevice,
    AlterDevice,
    DeleteDevice,
    SetAuthority,
    DeleteAuthority,
    SetChannelRule,
    SetAddressMap,
    SetLimit,
    DeleteLimit,
}

/// One for each command that shows something, or works on what runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Doing {
    Display(Sort),
    ClearLocal,
    ReplayLocal,
    CheckPolicy,
    DisplayDeadLetters,
    DisplaySubscriptionStatus,
    DisplayTopicStatus,
    DisplayQueue,
    DisplayQueueStatus,
    DisplayManager,
    DisplayPolicy,
    DisplayPolicyStatus,
    StartDevice,
    StopDevice,
    DisplayDevice,
    DisplayDeviceStatus,
    StartChannel,
    StopChannel,
    PingChannel,
    ResetChannel,
    ResolveChannel,
    DisplayChannelStatus,
    DisplayInitiator,
    DisplayTaskStatus,
    DisplayCostStatus,
    DisplayAuthority,
    BeginUnit,
    DisplayChannelRule,
    DisplayAddressMap,
    DisplayLimit,
    DisplayLimitStatus,
    DisplayLockout,
    ResetLockout,
    DisplayConnection,
    StopConnection,
    PingManager,
    Help,
}

impl Command {
    /// Whether its objects can have that name, or names that begin so.
    pub(super) fn takes_name(&self, name: &str, is_beginning: bool) -> bool {
        match (self.noun, is_beginning) {
            ("SUB" | "SBSTATUS", false) => topic_names::is_subscription_name(name),
            ("SUB" | "SBSTATUS", true) => topic_names::may_begin_subscription_name(name),
            _ => is_name(name),
        }
    }
}

impl Act {
    /// True for commands that change what is defined, and nothing else.
    pub(super) fn is_definition(self) -> bool {
        matches!(self, Act::Defines(_))
    }
}

/// What may stand in the parentheses after the noun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameUse {
    /// There are no parentheses.
    None,
    /// Exactly one object.
    One,
    /// One object, or many by a `*` at the end.
    Generic,
    /// Channels, by a name in which `*` stands for any characters.
    Channels,
    /// A user's name, the beginning of one with a `*`, `*` alone, or `*ANONYMOUS`.
    Users,
    /// A client's address, with a `*` for any characters.
    Addresses,
    /// A topic, in which a level may be a wildcard.
    Topics,
}

/// A word with its values.
#[derive(Debug)]
pub struct Attribute {
    /// The attribute, for the code that carries it out.
    pub key: Key,
    /// How it is shown and written.
    pub keyword: &'static str,
    /// Other spellings that are taken.
    pub synonyms: &'static [&'static str],
    /// What it takes.
    pub kind: Kind,
    /// What holds when it is not given, as one would write it; empty when there is nothing to say.
    pub default: &'static str,
    /// One or two sentences.
    pub doc: &'static str,
    /// First version that has it.
    pub since: &'static str,
}

impl Attribute {
    /// True when `word`, in upper case, means this attribute.
    pub fn answers_to(&self, word: &str) -> bool {
        self.words().any(|own| own == word)
    }

    /// Every spelling.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        let states: &'static [&'static str] = match &self.kind {
            Kind::Switch(states) => states,
            _ => &[],
        };
        std::iter::once(self.keyword).chain(self.synonyms.iter().copied()).chain(states.iter().copied())
    }
}

/// Names an attribute to the code that honours it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs)]
pub enum Key {
    /// Of one noun of [`nouns`](crate::nouns) alone: its word.
    Own(&'static str),
    // What queues have.
    Description,
    MaxMessageBytes,
    Get,
    Put,
    DefaultPriority,
    DefaultPersistence,
    DefinitionType,
    QueueUnacknowledgedNow,
    QueueHeldBack,
    QueueRefused,
    // Topics and subscriptions.
    TopicString,
    Publish,
    Subscribe,
    DurableSubscriptions,
    PersistentDelivery,
    NonPersistentDelivery,
    DurableModel,
    NonDurableModel,
    Destination,
    SubscriptionUser,
    // Remote queues and channels.
    RemoteManager,
    TransmissionQueue,
    // What is only shown.
    Type,
    CurrentDepth,
    OpenInput,
    OpenOutput,
    Uncommitted,
    MessageAge,
    LastPutDate,
    LastPutTime,
    LastGetDate,
    LastGetTime,
    Bytes,
    Puts,
    Gets,
    Expired,
    NotMine,
    OutputOpens,
    InputOpens,
    SinglePuts,
    PersistentPuts,
    PersistentGets,
    Browses,
    BytesPut,
    BytesGot,
    ShortestMessage,
    LongestMessage,
    TimeOnQueue,
    LongestTimeOnQueue,
    Rejects,
    RejectsByReason,
    // The queue manager's.
    ManagerName,
    Version,
    Adapters,
    Dispatchers,
    ChannelsMax,
    ActiveChannelsMax,
    // Policies.
    SignatureDigest,
    ContentCipher,
    Signer,
    Recipient,
    KeyReuse,
    Toleration,
    BindName,
    Bind,
    Weak,
    OnDefect,
    SealedAt,
    SignaturePadding,
    KeyWrap,
    Revocation,
    Quality,
    // What protection did.
    Sealed,
    Opened,
    Checked,
    Tolerated,
    Quarantined,
    ContentKeys,
    Wraps,
    Unwraps,
    Signs,
    Verifies,
    KeyCacheHits,
    ClearBytesIn,
    SealedBytesOut,
    SealedBytesIn,
    ClearBytesOut,
    DeviceJobs,
    DeviceWait,
    DeviceWaitMax,
    Failures,
    FailuresByCause,
    // Devices.
    DeviceType,
    Engines,
    Pending,
    Module,
    Token,
    PinFile,
    Profile,
    Service,
    Timeout,
    AutoStart,
    DeviceState,
    Reason,
    Waiting,
    InService,
    Utilisation,
    Jobs,
    Errors,
    Taken,
    Since,
    WaitingSeen,
    CpuTime,
    ModelledCpuTime,
    Form,
    KeyBits,
    Operation,
    BusyTime,
    Calls,
    LanesFilled,
    ExecutionTimes,
    Latencies,
    // What roles cost.
    RoleCpuTime,
    // Tasks as they run.
    TaskType,
    TaskState,
    Connections,
    Requests,
    ElapsedTime,
    RequestCpuTime,
    BetweenCpuTime,
    LongestRequests,
    BusyAdapters,
    // Channels as defined.
    ChannelType,
    ConnectionName,
    BatchSize,
    NonPersistentSpeed,
    Heartbeat,
    ChannelUser,
    CipherSpec,
    PeerPattern,
    // Channels as they run.
    ChannelState,
    Substate,
    Guarantee,
    InDoubt,
    StopRequested,
    LocalAddress,
    RemoteApplication,
    RemoteProduct,
    RemoteVersion,
    Job,
    Messages,
    Batches,
    CurrentMessages,
    CurrentSequence,
    LastSequence,
    CurrentUnit,
    LastUnit,
    LastMessageDate,
    LastMessageTime,
    ChannelStartDate,
    ChannelStartTime,
    BuffersSent,
    BuffersReceived,
    BytesSent,
    BytesReceived,
    ShortRetriesLeft,
    LongRetriesLeft,
    SecurityProtocol,
    PeerIssuer,
    KeyResets,
    KeyResetDate,
    KeyResetTime,
    QueueTime,
    NetTime,
    BatchMessages,
    QueueMessages,
    // Channels together.
    AdaptersRequested,
    DispatchersRequested,
    TlsTasks,
    TlsTasksRequested,
    CurrentChannels,
    ActiveChannels,
    PausedChannels,
    StartingChannels,
    RetryingChannels,
    StoppedChannels,
    Listeners,
    // Authority.
    AuthorityProfile,
    AuthorityObject,
    Principal,
    Group,
    AuthorityAdd,
    AuthorityRemove,
    Entity,
    EntityType,
    AuthorityList,
    Match,
    // Rules for connections.
    RuleType,
    RuleAddress,
    AddressList,
    ClientUser,
    PeerIssuerPattern,
    UserList,
    UserSource,
    Warn,
    CheckClient,
    // Limits of users.
    UserConnections,
    UserLinks,
    UserUnacknowledged,
    UserRate,
    UserKeyTime,
    UserSubscriptions,
    UserDynamicQueues,
    UserTemporaryQueues,
    UserNonDurable,
    UserTemporaryQueuesNow,
    UserNonDurableNow,
    UserSubscriptionsNow,
    UserDynamicQueuesNow,
    UserKeyTimeTaken,
    UserKeyTimeUsedUp,
    UserLimit,
    UserConnectionsNow,
    UserLinksNow,
    UserUnacknowledgedNow,
    UserHeldBack,
    UserRefused,
    // What clients' addresses stand for.
    MappedQueue,
    MappedTopic,
    // Who has to wait for wrong attempts to sign in.
    LockoutKind,
    LockoutAddress,
    LockoutSeconds,
    LockoutCount,
    FromAddress,
    // What is shown of connections and their links.
    ConnectionType,
    ConnectionUser,
    ConnectionApplication,
    ConnectionAddress,
    ConnectionProduct,
    ConnectionCipher,
    ConnectionSeconds,
    ConnectionHandles,
    HandleObject,
    HandlePurpose,
    HandleUnsettled,
    // What is shown of topics and subscriptions.
    Durable,
    SubscriptionType,
    MessagesPublished,
    ResumeDate,
    ResumeTime,
    TopicAdmin,
    PublisherCount,
    SubscriberCount,
    // What steers a command.
    At,
    Replace,
    Like,
    Purge,
    StopMode,
    StopStatus,
    SequenceNumber,
    Action,
    OfType,
    Origin,
    Count,
    After,
    Looked,
    MessageNumber,
    To,
    KeepLabel,
    Discard,
    Cause,
    Details,
    OriginManager,
    PutUser,
    Persistence,
    PutDate,
    PutTime,
    Where,
    All,
}

/// What an attribute takes.
#[derive(Debug)]
pub enum Kind {
    /// A whole number, both ends included.
    Number {
        /// Lowest.
        min: u64,
        /// Highest.
        max: u64,
    },
    /// A whole number, both ends included, or one word that stands for something else.
    NumberOr {
        /// Lowest.
        min: u64,
        /// Highest.
        max: u64,
        /// The word.
        word: &'static str,
    },
    /// One word of several.
    Word {
        /// The words.
        choices: &'static [&'static str],
        /// Words that are known and refused, with the reason.
        refused: &'static [(&'static str, &'static str)],
    },
    /// A number of re-uses: 0 or DISABLED, a number, `*` or UNLIMITED.
    Reuse {
        /// Highest number.
        max: u64,
    },
    /// An object's name; an empty one (`' '`) where `optional`.
    Name {
        /// May be blank.
        optional: bool,
    },
    /// `QUEUE@QMGR`, comma separated.
    Destinations,
    /// Any characters, in quotes.
    Text {
        /// Longest in characters.
        chars_max: usize,
    },
    /// Distinguished names in quotes, comma separated; the attribute may be repeated.
    DistinguishedNames,
    /// Words of several, comma separated.
    Words {
        /// The words.
        choices: &'static [&'static str],
        /// Words that are known and refused, with the reason.
        refused: &'static [(&'static str, &'static str)],
    },
    /// Objects' names, comma separated.
    Names,
    /// A name, or a pattern for many by `?`, `*` and `**`.
    Profile,
    /// A pattern for addresses.
    Address,
    /// Patterns for addresses, comma separated.
    Addresses,
    /// Users' names, comma separated.
    Users {
        /// The names that stand for several users are taken too.
        special: bool,
        /// May be blank, for no user.
        blank: bool,
    },
    /// Stands alone; one of these words. The first is the default.
    Switch(&'static [&'static str]),
    /// `WHERE(attribute operator value)`.
    Filter,
    /// Shown only.
    Shown,
}

/// Verbs with the short forms that are taken.
pub const VERBS: &[(&str, &[&str])] = &[
    ("ALTER", &["ALT"]),
    ("BEGIN", &[]),
    ("CHECK", &[]),
    ("CLEAR", &[]),
    ("DEFINE", &["DEF"]),
    ("DELETE", &["DEL"]),
    ("DISPLAY", &["DIS"]),
    ("HELP", &[]),
    ("PING", &[]),
    ("REPLAY", &[]),
    ("RESET", &[]),
    ("RESOLVE", &["RES"]),
    ("SET", &[]),
    ("START", &["STA"]),
    ("STOP", &[]),
];

/// Nouns that [`nouns`](crate::nouns) has not, with the short forms that are taken.
const NOUNS: &[(&str, &[&str])] = &[
    ("QUEUE", &["Q"]),
    ("SBSTATUS", &[]),
    ("TPSTATUS", &["TPS"]),
    ("QSTATUS", &["QS"]),
    ("DEADMSG", &["DM"]),
    ("QMGR", &[]),
    ("POLICY", &[]),
    ("POLSTATUS", &["POLS"]),
    ("DEVICE", &["DEV"]),
    ("DEVSTATUS", &["DEVS"]),
    ("CHSTATUS", &["CHS"]),
    ("CHINIT", &["CHI"]),
    ("TASKSTATUS", &["TASKS"]),
    ("COSTSTATUS", &["COSTS"]),
    ("AUTHREC", &[]),
    ("UNIT", &[]),
    ("CHLAUTH", &[]),
    ("ADDRMAP", &[]),
    ("LIMIT", &[]),
    ("LIMITSTATUS", &["LIMS"]),
    ("LOCKOUT", &[]),
    ("CONN", &[]),
];

/// The long form of a verb as typed, in upper case.
pub fn verb(word: &str) -> Option<&'static str> {
    long_form(VERBS.iter().copied(), word)
}

/// The long form of a noun as typed, in upper case.
pub fn noun(word: &str) -> Option<&'static str> {
    long_form(nouns(), word)
}

fn long_form(
    mut known: impl Iterator<Item = (&'static str, &'static [&'static str])>,
    word: &str,
) -> Option<&'static str> {
    known.find(|(long, short)| *long == word || short.contains(&word)).map(|(long, _)| long)
}

/// Finds a command by the long forms of its words.
pub fn command(verb: &str, noun: &str) -> Option<&'static Command> {
    commands().find(|command| command.verb == verb && command.noun == noun)
}

/// Every command, in the order of the reference page.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    nouns::commands()
}

/// Every noun with its short forms.
pub fn nouns() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    NOUNS.iter().copied().chain(nouns::all().map(|noun| (noun.word(), noun.short())))
}

pub(crate) const V1: &str = "0.1";

pub(crate) const fn attribute(
    key: Key,
    keyword: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Attribute {
    Attribute { key, keyword, synonyms: &[], kind, default, doc, since: V1 }
}

const fn shown(key: Key, keyword: &'static str, doc: &'static str) -> Attribute {
    attribute(key, keyword, Kind::Shown, "", doc)
}

pub(crate) const fn words(choices: &'static [&'static str]) -> Kind {
    Kind::Word { choices, refused: &[] }
}

/// What steers DEFINE.
pub(crate) const DEFINE_OPTIONS: &[&Attribute] = &[&REPLACE, &LIKE];
/// What steers DISPLAY.
pub(crate) const DISPLAY_OPTIONS: &[&Attribute] = &[&WHERE, &ALL];

pub(crate) const ENABLED: Kind = words(&["ENABLED", "DISABLED"]);

pub(crate) static DESCR: Attribute = attribute(
    Key::Description,
    "DESCR",
    Kind::Text { chars_max: DESCR_CHARS_MAX },
    "' '",
    "What it is for, in plain words.",
);
pub(crate) static GET: Attribute =
    attribute(Key::Get, "GET", ENABLED, "ENABLED", "Whether applications may get. DISABLED answers 2016.");
pub(crate) static PUT: Attribute =
    attribute(Key::Put, "PUT", ENABLED, "ENABLED", "Whether applications may put. DISABLED answers 2051.");
pub(crate) static DEFPRTY: Attribute = attribute(
    Key::DefaultPriority,
    "DEFPRTY",
    Kind::Number { min: 0, max: PRIORITY_MAX },
    "4",
    "Priority of a message that comes without an AMQP header. The default is AMQP's own, 4.",
);
pub(crate) static DEFPSIST: Attribute = attribute(
    Key::DefaultPersistence,
    "DEFPSIST",
    words(&["YES", "NO"]),
    "NO",
    "Whether a message that comes without an AMQP header is persistent.",
);

pub(crate) static TYPE: Attribute = shown(Key::Type, "TYPE", "QLOCAL, QALIAS, QREMOTE or QMODEL.");
pub(crate) static CURDEPTH: Attribute =
    shown(Key::CurrentDepth, "CURDEPTH", "Messages on the queue, those under delivery included.");
pub(super) static IPPROCS: Attribute = shown(Key::OpenInput, "IPPROCS", "Links that get from the queue.");
pub(super) static OPPROCS: Attribute = shown(Key::OpenOutput, "OPPROCS", "Links that put on the queue.");
pub(super) static UNCOM: Attribute = shown(
    Key::Uncommitted,
    "UNCOM",
    "Messages put or got and not yet settled: under delivery, in an open unit of work, or not yet synced.",
);
pub(super) static MSGAGE: Attribute =
    shown(Key::MessageAge, "MSGAGE", "Age of the oldest message in seconds; blank on an empty queue.");
static LPUTDATE: Attribute = shown(Key::LastPutDate, "LPUTDATE", "Date of the last put since the start, UTC.");
static LPUTTIME: Attribute = shown(Key::LastPutTime, "LPUTTIME", "Time of the last put since the start, UTC.");
static LGETDATE: Attribute = shown(Key::LastGetDate, "LGETDATE", "Date of the last get since the start, UTC.");
static LGETTIME: Attribute = shown(Key::LastGetTime, "LGETTIME", "Time of the last get since the start, UTC.");
pub(super) static BYTES: Attribute = shown(Key::Bytes, "BYTES", "Bytes of all messages on the queue, as stored.");
pub(super) static PUTS: Attribute = shown(Key::Puts, "PUTS", "Messages put since the start.");
pub(super) static GETS: Attribute = shown(Key::Gets, "GETS", "Messages got since the start.");
pub(super) static EXPIRED: Attribute = shown(Key::Expired, "EXPIRED", "Messages that expired since the start.");
pub(super) static NOTMINE: Attribute = shown(
    Key::NotMine,
    "NOTMINE",
    "Times that a sealed message was passed over since the start, because it is addressed to another recipient.",
);
pub(super) static OPOPENS: Attribute = shown(
    Key::OutputOpens,
    "OPOPENS",
    "Times that the queue was opened to put since the start; less OPPROCS, times that it was closed.",
);
pub(super) static IPOPENS: Attribute = shown(
    Key::InputOpens,
    "IPOPENS",
    "Times that it was opened to get or browse since the start, by channels too; less IPPROCS, times that it was \
     closed.",
);
pub(super) static PUT1S: Attribute = shown(
    Key::SinglePuts,
    "PUT1S",
    "Of PUTS, messages that came on a link to no queue in particular (the anonymous terminus, MQPUT1).",
);
pub(super) static PPUTS: Attribute = shown(Key::PersistentPuts, "PPUTS", "Of PUTS, persistent messages.");
pub(super) static PGETS: Attribute = shown(Key::PersistentGets, "PGETS", "Of GETS, persistent messages.");
pub(super) static BROWSES: Attribute = shown(Key::Browses, "BROWSES", "Messages sent to links that browse.");
pub(super) static PUTBYTES: Attribute = shown(Key::BytesPut, "PUTBYTES", "Bytes of the messages put, as stored.");
pub(super) static GETBYTES: Attribute = shown(Key::BytesGot, "GETBYTES", "Bytes of the messages got, as stored.");
pub(super) static MINMSG: Attribute =
    shown(Key::ShortestMessage, "MINMSG", "Bytes of the shortest message put since the start; blank before the first.");
pub(super) static MAXMSG: Attribute =
    shown(Key::LongestMessage, "MAXMSG", "Bytes of the longest message put since the start; blank before the first.");
pub(super) static QTIME: Attribute = shown(
    Key::TimeOnQueue,
    "QTIME",
    "Microseconds between put and removal by a get: a short and a long average over messages that are watched, one at \
     a time. WHERE compares the short one.",
);
pub(super) static QTIMEMAX: Attribute = shown(
    Key::LongestTimeOnQueue,
    "QTIMEMAX",
    "The longest time between put and removal by a get since the start, over all messages, in microseconds, exact to a \
     millisecond.",
);
pub(super) static REJECTS: Attribute =
    shown(Key::Rejects, "REJECTS", "Puts that were refused since the start, those that channels brought included.");
pub(super) static REJBY: Attribute = shown(
    Key::RejectsByReason,
    "REJBY",
    "The same as REASON=NUMBER, by MQ's reason codes; under 0 those beyond the first 31 reasons.",
);

static QMNAME: Attribute = shown(Key::ManagerName, "QMNAME", "Name of the queue manager.");
pub(crate) static VERSION: Attribute = shown(Key::Version, "VERSION", "Version of the program that answers.");

const BROKEN_DIGEST: &str = "its collisions are practical: a signature over it proves nothing";
const SHORT_BLOCK: &str = "its 64-bit blocks leak payload after a few gigabytes and its key is too short";

static SIGNALG: Attribute = attribute(
    Key::SignatureDigest,
    "SIGNALG",
    Kind::Word {
        choices: &["NONE", "SHA256", "SHA384", "SHA512"],
        refused: &[("MD5", BROKEN_DIGEST), ("SHA1", BROKEN_DIGEST)],
    },
    "NONE",
    "Digest of the signature; NONE for no signature.",
);
static ENCALG: Attribute = attribute(
    Key::ContentCipher,
    "ENCALG",
    Kind::Word {
        choices: &["NONE", "AES128", "AES256", "AES128CBC", "AES256CBC"],
        refused: &[
            ("RC2", "it is broken by related keys and offered at 40 bits"),
            ("DES", "its 56-bit key is searched in hours"),
            ("3DES", SHORT_BLOCK),
        ],
    },
    "NONE",
    "Cipher of the payload; NONE for none. AES128 and AES256 are GCM. The CBC forms are for partners that know nothing \
     newer, and want a signature with SIGNER too, or WEAK(YES). Signers under CBC have keys of one type and size, and \
     each reader's ring holds their certificates.",
);
static SIGNER: Attribute = Attribute {
    key: Key::Signer,
    keyword: "SIGNER",
    synonyms: &["SIGN"],
    kind: Kind::DistinguishedNames,
    default: "any",
    doc: "Who may sign, compared with the certificate's subject exactly: attribute names in upper case, the certificate's order. Repeatable. Without one, any signer whose chain is valid. Only with SIGNALG.",
    since: V1,
};
static RECIP: Attribute = attribute(
    Key::Recipient,
    "RECIP",
    Kind::DistinguishedNames,
    "none",
    "Who may open, written like SIGNER. Repeatable. ENCALG needs at least one.",
);
static KEYREUSE: Attribute = attribute(
    Key::KeyReuse,
    "KEYREUSE",
    Kind::Reuse { max: KEY_REUSE_MAX },
    "DISABLED",
    "How many more messages of one open handle use the same content key: 0 or DISABLED for none, a number, or * or \
     UNLIMITED until the handle closes. Only with ENCALG and without SIGNALG.",
);
static TOLERATION: Attribute = attribute(
    Key::Toleration,
    "TOLERATION",
    Kind::Switch(&["ENFORCE", "TOLERATE"]),
    "ENFORCE",
    "A clear message on the protected queue goes to the error queue, or, while protection is being rolled out, is \
     delivered and counted. A defective seal is never tolerated. Written as the bare word.",
);
static BINDNAME: Attribute = attribute(
    Key::BindName,
    "BINDNAME",
    Kind::Destinations,
    "none",
    "Further destinations that a message may be bound to, each written QUEUE@QMGR, beside the queue that the opened \
     name resolves to.",
);
static BIND: Attribute = attribute(
    Key::Bind,
    "BIND",
    words(&["REQUIRED", "NONE"]),
    "REQUIRED",
    "Whether a message must be bound to this queue. NONE opens other people's CMS, which can then be moved from queue \
     to queue unseen.",
);
static WEAK: Attribute = attribute(
    Key::Weak,
    "WEAK",
    words(&["YES", "NO"]),
    "NO",
    "YES allows a CBC cipher without a signature: a user who can write to the queue can then change messages. Its \
     recipients are in RECIP of no other policy.",
);
static ONDEFECT: Attribute = attribute(
    Key::OnDefect,
    "ONDEFECT",
    words(&["AUTO", "CONTINUE", "DETACH"]),
    "AUTO",
    "After a defective message was moved away: go on with the next one, or end the getter's link with 2063. AUTO goes \
     on for links with credit above one.",
);
static SEALEDAT: Attribute = attribute(
    Key::SealedAt,
    "SEALEDAT",
    words(&["ANY", "CLIENT"]),
    "ANY",
    "CLIENT: only applications seal and open, the queue manager does so for no user.",
);
static SIGNPAD: Attribute = attribute(
    Key::SignaturePadding,
    "SIGNPAD",
    words(&["PKCS1", "PSS"]),
    "PKCS1",
    "Padding of RSA signatures that are made.",
);
static KEYWRAP: Attribute = attribute(
    Key::KeyWrap,
    "KEYWRAP",
    words(&["AUTO", "OAEP", "PKCS1"]),
    "AUTO",
    "How the content key reaches a recipient. AUTO: by the recipient's key, RSA-OAEP or ECDH. OAEP: only that, so a \
     recipient with an EC key cannot be served. PKCS1 is for partners that know nothing newer.",
);
static REVOCATION: Attribute = attribute(
    Key::Revocation,
    "REVOCATION",
    words(&["NONE", "IFPRESENT", "REQUIRED"]),
    "IFPRESENT",
    "What is asked of revocation lists before a certificate is believed. IFPRESENT: what the lists in the key ring \
     say; an authority without a list is not asked. REQUIRED: a current list about each certificate of the path but \
     the root; without one a put is refused and a message stays, with cause crl-missing. NONE: nothing. A key ring has \
     the same setting (`bulla cert set`), and the stricter one counts.",
);
static QUALITY: Attribute = shown(
    Key::Quality,
    "QUALITY",
    "What it comes to: NONE, INTEGRITY, PRIVACY or CONFIDENTIALITY; UNBOUND is added where a cipher alone proves \
     nothing.",
);

pub(super) static DEVICE_TYPE: Attribute = attribute(
    Key::DeviceType,
    "TYPE",
    words(&["CPU", "SOFTWARE", "ACCELERATOR", "COPROCESSOR", "MODELLED"]),
    "",
    "What does the work. CPU: this machine's processor. SOFTWARE: the same without its instructions for cryptography, \
     from the next start of the queue manager on. ACCELERATOR: eight private-key operations at once on the processor's \
     wide registers, clear keys. COPROCESSOR: a PKCS#11 token, keys never leave it. MODELLED: a device that this \
     machine has not, with the service times of a profile. Only the device CPU is CPU or SOFTWARE, and ALTER changes a \
     TYPE between those two alone.",
);
pub(super) static ENGINES: Attribute = attribute(
    Key::Engines,
    "ENGINES",
    Kind::Number { min: 1, max: ENGINES_MAX },
    "1",
    "Engines that work side by side: sessions of a COPROCESSOR, engines of a MODELLED device.",
);
pub(super) static PENDING: Attribute = attribute(
    Key::Pending,
    "PENDING",
    Kind::Number { min: 0, max: PENDING_MAX },
    "0",
    "Most jobs that wait for the device, those in service not counted; further ones go to other devices, or wait in \
     front. 0 stands for 8 for each engine, and for 16, two batches, at an ACCELERATOR.",
);
static MODULE: Attribute = attribute(
    Key::Module,
    "MODULE",
    Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
    "",
    "The PKCS#11 library of a COPROCESSOR, by its absolute path. Needed. It runs with the rights of the queue \
     manager's account, so it must be in a library directory of the system or be named by `bulla start --modules`, and \
     only its owner may write it.",
);
static TOKEN: Attribute = attribute(
    Key::Token,
    "TOKEN",
    Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
    "",
    "Which token of the library, as a PKCS#11 URI (RFC 7512) without a PIN. Needed for a COPROCESSOR.",
);
static PINFILE: Attribute = attribute(
    Key::PinFile,
    "PINFILE",
    Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
    "' '",
    "A file whose first line is the token's user PIN, by its absolute path; blank for a token that asks by itself.",
);
static PROFILE: Attribute = attribute(
    Key::Profile,
    "PROFILE",
    words(&["COPROCESSOR", "ACCELERATOR"]),
    "COPROCESSOR",
    "Service times of a MODELLED device. COPROCESSOR: 0.596 ms. ACCELERATOR: with 2048 bits 0.046 ms for RSA ME and \
     0.507 ms for RSA CRT.",
);
static SERVICE: Attribute = attribute(
    Key::Service,
    "SERVICE",
    Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
    "' '",
    "Service times of a MODELLED device in microseconds, instead of the profile's: FORM-BITS=TIME, comma separated. \
     Forms: RSA-CRT, RSA-ME, RSA-MEPRIV, ECDSA-SIGN, ECDSA-VERIFY, ECDH, ECDH-EPHEMERAL.",
);
static TIMEOUT: Attribute = attribute(
    Key::Timeout,
    "TIMEOUT",
    Kind::Number { min: TIMEOUT_MS_MIN, max: TIMEOUT_MS_MAX },
    "5000",
    "How long a job on a COPROCESSOR may take, in milliseconds. The device has then failed it.",
);
static AUTOSTART: Attribute = attribute(
    Key::AutoStart,
    "AUTOSTART",
    words(&["YES", "NO"]),
    "YES",
    "Whether the device starts with the queue manager.",
);
pub(super) static DEVICE_STATE: Attribute = shown(
    Key::DeviceState,
    "STATUS",
    "RUNNING; STARTING; STOPPED by command; OFFLINE, it was started and can't work here or not now, and is tried \
     again; FAILED, it gave a wrong result or failed too often, and stays away until it is started again.",
);
pub(super) static REASON: Attribute =
    shown(Key::Reason, "REASON", "Why a device is OFFLINE or FAILED, or what failed last; blank when nothing did.");
pub(super) static WAITING: Attribute =
    shown(Key::Waiting, "WAITING", "Jobs that wait for the device now, those in service not counted.");
pub(super) static INSERV: Attribute =
    shown(Key::InService, "INSERV", "Jobs that the device's engines are working on now.");
static UTIL: Attribute =
    shown(Key::Utilisation, "UTIL", "Share of the last seconds that the device's engines were busy, in percent.");
pub(super) static JOBS: Attribute =
    shown(Key::Jobs, "JOBS", "Jobs that the device has finished, those included that it failed.");
pub(super) static ERRORS: Attribute = shown(Key::Errors, "ERRORS", "Jobs that the device has failed.");
pub(super) static TAKEN: Attribute =
    shown(Key::Taken, "TAKEN", "When the numbers were taken, in milliseconds since 1970, UTC.");
pub(super) static SINCE: Attribute =
    shown(Key::Since, "SINCE", "Since when it is counted, in milliseconds since 1970, UTC.");
pub(super) static WAITHIST: Attribute = shown(
    Key::WaitingSeen,
    "WAITHIST",
    "How many jobs were waiting each time that one came: a count for 0, for 1, and so on. Shown with ALL or when asked \
     for.",
);
pub(super) static CPUTIME: Attribute =
    shown(Key::CpuTime, "CPUTIME", "Processor time of the device's threads in nanoseconds, MODELCPU included.");
pub(super) static MODELCPU: Attribute = shown(
    Key::ModelledCpuTime,
    "MODELCPU",
    "Processor time in nanoseconds that a modelled device's real results took; a real device would not take it.",
);
pub(super) static ROLE_CPUTIME: Attribute = shown(
    Key::RoleCpuTime,
    "CPUTIME",
    "Processor time of the role in nanoseconds, by the clocks of the threads that play it; of the process, by its own \
     clock.",
);
pub(super) static TASK_TYPE: Attribute = shown(
    Key::TaskType,
    "TASKTYPE",
    "DISPATCHER, owns connections; ADAPTER, seals and opens; TLS, of a dispatcher's connections and on its thread; \
     JOURNAL; DEVICE, for cryptography.",
);
pub(super) static TASK_STATE: Attribute =
    shown(Key::TaskState, "STATUS", "RUNNING; ENDED, because fewer are wanted, or because the device does not run.");
pub(super) static CONNS: Attribute = shown(Key::Connections, "CONNS", "Connections that a dispatcher has now.");
pub(super) static REQUESTS: Attribute = shown(
    Key::Requests,
    "REQUESTS",
    "Requests that ended. Of a dispatcher, turns with something to do; of an adapter, messages and names looked up; of \
     TLS, calls of OpenSSL; of the journal, batches; of a device, jobs.",
);
pub(super) static ELAPSED: Attribute =
    shown(Key::ElapsedTime, "ELAPSED", "Time that the task spent in requests, in nanoseconds.");
pub(super) static REQCPU: Attribute =
    shown(Key::RequestCpuTime, "REQCPU", "Of it, processor time, in nanoseconds; the rest was waiting.");
pub(super) static BETWCPU: Attribute = shown(
    Key::BetweenCpuTime,
    "BETWCPU",
    "Processor time of the task's thread between requests, in nanoseconds: to look for work, to wake up and to go to \
     sleep.",
);
pub(super) static LONGEST: Attribute = shown(
    Key::LongestRequests,
    "LONGEST",
    "The longest requests as MILLISECONDS:NANOSECONDS, when each ended, UTC since 1970, and how long it took, for \
     `bulla report chinit`. Shown with ALL or when asked for.",
);
pub(super) static ADAPBUSY: Attribute = shown(
    Key::BusyAdapters,
    "ADAPBUSY",
    "How many adapters were busy at one moment as MILLISECONDS:NUMBER, for `bulla report chinit`. Shown with ALL or \
     when asked for.",
);
pub(super) static FORM: Attribute = shown(
    Key::Form,
    "FORM",
    "The arithmetic. RSA CRT: with the primes; RSA ME: with the public exponent; RSA ME PRIVATE: with the private one, \
     of a key without its primes; ECDSA SIGN and VERIFY; ECDH; ECDH EPHEMERAL: with a new key pair.",
);
pub(super) static BITS: Attribute = shown(Key::KeyBits, "BITS", "Bits of the RSA modulus or of the curve's field.");
pub(super) static OPERATION: Attribute = shown(
    Key::Operation,
    "OPERATION",
    "RSA-SIGN, RSA-UNWRAP, RSA-VERIFY, RSA-WRAP, ECDSA-SIGN, ECDSA-VERIFY, ECDH-DERIVE or ECDH-EPHEMERAL.",
);
pub(super) static BUSYTIME: Attribute = shown(
    Key::BusyTime,
    "BUSYTIME",
    "Execution time of all jobs in nanoseconds: of each one the time of its call, divided by the lanes filled.",
);
pub(super) static CALLS: Attribute = shown(
    Key::Calls,
    "CALLS",
    "Calls of the device with jobs of this form and key size, whatever the operation: one number for all rows of them.",
);
pub(super) static LANES: Attribute = shown(
    Key::LanesFilled,
    "LANES",
    "Lanes that were filled in those calls; divided by CALLS, the jobs that went together.",
);
pub(super) static EXECHIST: Attribute = shown(
    Key::ExecutionTimes,
    "EXECHIST",
    "Histogram of the execution times, for `bulla report crypto`. Shown with ALL or when asked for.",
);
pub(super) static LATHIST: Attribute = shown(
    Key::Latencies,
    "LATHIST",
    "Histogram of the times from submission to result, for `bulla report crypto`. Shown with ALL or when asked for.",
);
static AT: Attribute = attribute(
    Key::At,
    "AT",
    Kind::Text { chars_max: "YYYY-MM-DD HH:MM:SS".len() },
    "now",
    "As it was at this time, UTC, written 'YYYY-MM-DD HH:MM:SS'. The queue manager keeps the numbers of every minute \
     of the last day in which something was done, and shows the last ones that were kept by then.",
);

static REPLACE: Attribute = attribute(
    Key::Replace,
    "REPLACE",
    Kind::Switch(&["NOREPLACE", "REPLACE"]),
    "NOREPLACE",
    "Whether an object of that name is replaced; attributes that are not given fall back to their defaults. A queue's \
     messages stay.",
);
static LIKE: Attribute = attribute(
    Key::Like,
    "LIKE",
    Kind::Name { optional: false },
    "",
    "Take what is not given here from this object instead of the defaults.",
);
static ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["REPLACE", "ADD", "REMOVE"]),
    "REPLACE",
    "REPLACE writes the policy anew. ADD and REMOVE change the lists of signers and recipients of an existing one, and \
     nothing else.",
);
static LOOKED: Attribute = attribute(
    Key::Looked,
    "MESSAGES",
    Kind::Number { min: 0, max: DEPTH_MAX },
    "1000",
    "Look at so many messages of the queue, which takes a private-key operation for each encrypted one and reader.",
);
static OF_TYPE: Attribute = attribute(
    Key::OfType,
    "TYPE",
    words(&["ALL", "QLOCAL", "QALIAS", "QREMOTE", "QMODEL"]),
    "ALL",
    "Which queues to show.",
);
static WHERE: Attribute = attribute(
    Key::Where,
    "WHERE",
    Kind::Filter,
    "",
    "Show only what fits: WHERE(attribute operator value). Operators: LT GT EQ NE LE GE; LK and NL, like and not like \
     a value that ends in *; CT and EX, a list contains or excludes the value.",
);
static ALL: Attribute = attribute(Key::All, "ALL", Kind::Switch(&["ALL"]), "", "Show every attribute.");

const POLICY: &[&Attribute] = &[
    &SIGNALG,
    &ENCALG,
    &SIGNER,
    &RECIP,
    &KEYREUSE,
    &TOLERATION,
    &BINDNAME,
    &BIND,
    &WEAK,
    &ONDEFECT,
    &SEALEDAT,
    &SIGNPAD,
    &KEYWRAP,
    &REVOCATION,
];
const DEVICE: &[&Attribute] =
    &[&DEVICE_TYPE, &DESCR, &ENGINES, &PENDING, &MODULE, &TOKEN, &PINFILE, &TIMEOUT, &PROFILE, &SERVICE, &AUTOSTART];

/// The commands after those of queues and topics.
pub(crate) static COMMANDS_OF_PROTECTION: &[Command] = &[
    Command {
        act: Act::Does(Doing::DisplaySubscriptionStatus),
        verb: "DISPLAY",
        noun: "SBSTATUS",
        name: NameUse::Generic,
        object: "subscription",
        summary: "Show how subscriptions stand, those that are not durable included. One that has no name is shown by \
         that of its queue.",
        options: &[&WHERE, &ALL],
        attributes: topic::SUBSCRIPTION_STATUS,
        examples: &["DISPLAY SBSTATUS(*)", "DIS SBSTATUS(*) NUMMSGS LMSGTIME WHERE(DURABLE EQ NO)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayTopicStatus),
        verb: "DISPLAY",
        noun: "TPSTATUS",
        name: NameUse::Topics,
        object: "topic",
        summary: "Show topics that are defined, published on or subscribed to, and what holds for each by the topic \
         objects at it and above. A topic without wildcards is shown in any case.",
        options: &[&WHERE, &ALL],
        attributes: topic::TOPIC_STATUS,
        examples: &["DISPLAY TPSTATUS('#') PUBCOUNT SUBCOUNT", "DIS TPS('prices/ibm')"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayQueue),
        verb: "DISPLAY",
        noun: "QUEUE",
        name: NameUse::Generic,
        object: "queue",
        summary: "Show queues of every type. A generic name shows names and types only, unless attributes or ALL are \
         asked for.",
        options: &[&OF_TYPE, &WHERE, &ALL],
        attributes: &queues::DISPLAYED,
        examples: &["DISPLAY QUEUE(*)", "DIS Q(*) TYPE(QLOCAL) CURDEPTH"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayQueueStatus),
        verb: "DISPLAY",
        noun: "QSTATUS",
        name: NameUse::Generic,
        object: "queue",
        summary: "Show what goes on at local queues now, or as it was within the last day. `bulla report queues` makes \
         rates of it.",
        options: &[&AT, &WHERE, &ALL],
        attributes: &[
            &CURDEPTH,
            &IPPROCS,
            &OPPROCS,
            &UNCOM,
            &MSGAGE,
            &LPUTDATE,
            &LPUTTIME,
            &LGETDATE,
            &LGETTIME,
            &BYTES,
            &PUTS,
            &GETS,
            &EXPIRED,
            &NOTMINE,
            &SINCE,
            &TAKEN,
            &OPOPENS,
            &IPOPENS,
            &PUT1S,
            &PPUTS,
            &PGETS,
            &BROWSES,
            &PUTBYTES,
            &GETBYTES,
            &MINMSG,
            &MAXMSG,
            &QTIME,
            &QTIMEMAX,
            &REJECTS,
            &REJBY,
            &limit::QUEUE_CURUNACK,
            &limit::QUEUE_HELDBACK,
            &limit::QUEUE_REFUSED,
        ],
        examples: &[
            "DISPLAY QSTATUS(ORDERS)",
            "DIS QS(*) CURDEPTH MSGAGE WHERE(IPPROCS EQ 0)",
            "DIS QS(*) PUTS GETS QTIME REJBY WHERE(REJECTS GT 0)",
            "DIS QS(ORDERS) AT('2026-11-22 06:30:00')",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayPolicyStatus),
        verb: "DISPLAY",
        noun: "POLSTATUS",
        name: NameUse::Generic,
        object: "policy",
        summary: "Show what the queue manager did under policies since it started: messages, keys, operations, bytes, \
         time with devices, failures. `bulla report policies` makes rates of it.",
        options: &[&AT, &WHERE, &ALL],
        attributes: protection::POLICY_STATUS,
        examples: &[
            "DISPLAY POLSTATUS(ORDERS)",
            "DIS POLS(*) SEALED OPENED FAILBY WHERE(FAILURES GT 0)",
            "DIS POLS(*) AT('2026-11-22 06:30:00')",
        ],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::AlterManager),
        verb: "ALTER",
        noun: "QMGR",
        name: NameUse::None,
        object: "queue manager",
        summary: "Change attributes of the queue manager.",
        options: &[],
        attributes: &queue_manager::ALTERED,
        examples: &[
            "ALTER QMGR DEADQ(SYSTEM.DEAD.LETTER.QUEUE) DESCR('Orders, Frankfurt')",
            "ALTER QMGR DEFXMITQ(HUB) SSLRKEYC(1048576) CHIADAPS(8) MAXCHL(500) ACTCHL(300)",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayManager),
        verb: "DISPLAY",
        noun: "QMGR",
        name: NameUse::None,
        object: "queue manager",
        summary: "Show the queue manager.",
        options: &[&ALL],
        attributes: &queue_manager::SHOWN,
        examples: &["DISPLAY QMGR", "DIS QMGR DEADQ"],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::SetPolicy),
        verb: "SET",
        noun: "POLICY",
        name: NameUse::One,
        object: "policy",
        summary: "Set the policy of the queue or alias of that name: how messages put by that name are sealed, and \
         what is taken for sealed when they are got.",
        options: &[&ACTION],
        attributes: POLICY,
        examples: &[
            "SET POLICY(ORDERS) SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Demo') RECIP('CN=billing,O=Demo')",
            "SET POLICY(FAST) ENCALG(AES256) KEYREUSE(64) RECIP('CN=billing,O=Demo', 'CN=audit,O=Demo') TOLERATE",
            "SET POLICY(ORDERS) ACTION(ADD) RECIP('CN=archive,O=Demo')",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::CheckPolicy),
        verb: "CHECK",
        noun: "POLICY",
        name: NameUse::One,
        object: "policy",
        summary: "Try a policy and change nothing: whose keys and certificates fit, lengths of sealed messages, and \
         what becomes of the messages now on the queue. Without attributes the policy that is set, with them such a \
         one, which takes the role ALL. `bulla policy check` prints it for people, with its cost.",
        options: &[&LOOKED],
        attributes: POLICY,
        examples: &[
            "CHECK POLICY(ORDERS)",
            "CHECK POLICY(ORDERS) MESSAGES(0) SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=billing,O=Demo')",
        ],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::DeletePolicy),
        verb: "DELETE",
        noun: "POLICY",
        name: NameUse::One,
        object: "policy",
        summary: "Delete a policy. Messages sealed under it stay sealed.",
        options: &[],
        attributes: &[],
        examples: &["DELETE POLICY(ORDERS)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayPolicy),
        verb: "DISPLAY",
        noun: "POLICY",
        name: NameUse::Generic,
        object: "policy",
        summary: "Show policies.",
        options: &[&WHERE, &ALL],
        attributes: &[
            &QUALITY,
            &SIGNALG,
            &ENCALG,
            &SIGNER,
            &RECIP,
            &KEYREUSE,
            &TOLERATION,
            &BINDNAME,
            &BIND,
            &WEAK,
            &ONDEFECT,
            &SEALEDAT,
            &SIGNPAD,
            &KEYWRAP,
            &REVOCATION,
        ],
        examples: &["DISPLAY POLICY(ORDERS)", "DIS POLICY(*) WHERE(RECIP CT 'CN=billing,O=Demo')"],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::DefineDevice),
        verb: "DEFINE",
        noun: "DEVICE",
        name: NameUse::One,
        object: "device",
        summary: "Create a crypto device. It works once it is started, or at the next start of the queue manager.",
        options: &[&REPLACE, &LIKE],
        attributes: DEVICE,
        examples: &[
            "DEFINE DEVICE(ACCEL2) TYPE(ACCELERATOR)",
            "DEFINE DEVICE(HSM) TYPE(COPROCESSOR) MODULE('/usr/lib/softhsm/libsofthsm2.so') \
             TOKEN('pkcs11:token=bulla') PINFILE('/etc/bulla/hsm.pin') ENGINES(4)",
            "DEF DEV(CARD) TYPE(MODELLED) PROFILE(ACCELERATOR) SERVICE('RSA-CRT-4096=3100') ENGINES(2) AUTOSTART(NO)",
        ],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::AlterDevice),
        verb: "ALTER",
        noun: "DEVICE",
        name: NameUse::One,
        object: "device",
        summary: "Change attributes of a crypto device; the others stay. A running device takes most of them at its \
         next start.",
        options: &[],
        attributes: DEVICE,
        examples: &["ALTER DEVICE(HSM) ENGINES(8)", "ALTER DEVICE(CPU) TYPE(SOFTWARE)"],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::DeleteDevice),
        verb: "DELETE",
        noun: "DEVICE",
        name: NameUse::One,
        object: "device",
        summary: "Delete a crypto device that is stopped. The device CPU stays.",
        options: &[],
        attributes: &[],
        examples: &["DELETE DEVICE(ACCEL2)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::StartDevice),
        verb: "START",
        noun: "DEVICE",
        name: NameUse::One,
        object: "device",
        summary: "Start a crypto device, as it is defined now. One that can't work is OFFLINE and is tried again until \
         it is stopped.",
        options: &[],
        attributes: &[],
        examples: &["START DEVICE(ACCEL2)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::StopDevice),
        verb: "STOP",
        noun: "DEVICE",
        name: NameUse::One,
        object: "device",
        summary: "Stop a crypto device: jobs in service end, waiting ones go to other devices where their keys allow \
         it. It stays stopped until it is started, or until the next start of the queue manager with AUTOSTART(YES).",
        options: &[],
        attributes: &[],
        examples: &["STOP DEVICE(ACCEL2)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayDevice),
        verb: "DISPLAY",
        noun: "DEVICE",
        name: NameUse::Generic,
        object: "device",
        summary: "Show crypto devices and what goes on at them now. A generic name shows names, types and states only, \
         unless attributes or ALL are asked for.",
        options: &[&WHERE, &ALL],
        attributes: &[
            &DEVICE_TYPE,
            &DEVICE_STATE,
            &REASON,
            &DESCR,
            &ENGINES,
            &PENDING,
            &MODULE,
            &TOKEN,
            &PINFILE,
            &TIMEOUT,
            &PROFILE,
            &SERVICE,
            &AUTOSTART,
            &WAITING,
            &INSERV,
            &UTIL,
            &JOBS,
            &ERRORS,
        ],
        examples: &["DISPLAY DEVICE(*)", "DIS DEV(ACCEL1)", "DIS DEV(*) REASON WHERE(STATUS NE RUNNING)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayDeviceStatus),
        verb: "DISPLAY",
        noun: "DEVSTATUS",
        name: NameUse::Generic,
        object: "device",
        summary: "Show what crypto devices have done since they count: first each device, then each form, key size and \
         operation of it. `bulla report crypto` makes rates and percentages of it.",
        options: &[&AT, &WHERE, &ALL],
        attributes: &[
            &DEVICE_TYPE,
            &DEVICE_STATE,
            &REASON,
            &TAKEN,
            &SINCE,
            &ENGINES,
            &PENDING,
            &WAITING,
            &INSERV,
            &FORM,
            &BITS,
            &OPERATION,
            &JOBS,
            &ERRORS,
            &BUSYTIME,
            &CALLS,
            &LANES,
            &CPUTIME,
            &MODELCPU,
            &WAITHIST,
            &EXECHIST,
            &LATHIST,
        ],
        examples: &[
            "DISPLAY DEVSTATUS(*)",
            "DIS DEVS(ACCEL*) AT('2026-11-22 06:30:00')",
            "DIS DEVS(*) JOBS WHERE(OPERATION EQ RSA-SIGN)",
        ],
        since: V1,
    },
];

/// The commands after those of channels.
pub(crate) static COMMANDS_OF_TASKS: &[Command] = &[
    Command {
        act: Act::Does(Doing::DisplayChannelStatus),
        verb: "DISPLAY",
        noun: "CHSTATUS",
        name: NameUse::Generic,
        object: "channel",
        summary: "Show what goes on at channels now, one row for each instance: a receiving channel has one for each \
         partner. A generic name leaves out channels of which there is nothing to say.",
        options: &[&WHERE, &ALL],
        attributes: channel::CHANNEL_STATUS,
        examples: &[
            "DISPLAY CHSTATUS(*)",
            "DIS CHS(QM1.QM2) ALL",
            "DIS CHS(*) MSGS XQTIME REASON WHERE(STATUS NE RUNNING)",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayInitiator),
        verb: "DISPLAY",
        noun: "CHINIT",
        name: NameUse::None,
        object: "channel initiator",
        summary: "Show what goes on at all channels together: threads, instances and their limits, listeners.",
        options: &[&ALL],
        attributes: channel::INITIATOR,
        examples: &["DISPLAY CHINIT", "DIS CHI ACTIVE ACTCHL"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayTaskStatus),
        verb: "DISPLAY",
        noun: "TASKSTATUS",
        name: NameUse::None,
        object: "task",
        summary: "Show what each task of the queue manager has done since it counts. `bulla report chinit` makes \
         percentages and averages of it.",
        options: &[&AT, &WHERE, &ALL],
        attributes: &[
            &TASK_TYPE,
            &TASK_STATE,
            &CONNS,
            &TAKEN,
            &SINCE,
            &REQUESTS,
            &ELAPSED,
            &REQCPU,
            &BETWCPU,
            &LONGEST,
            &ADAPBUSY,
        ],
        examples: &[
            "DISPLAY TASKSTATUS",
            "DIS TASKS AT('2026-11-22 06:30:00')",
            "DIS TASKS REQUESTS ELAPSED WHERE(TASKTYPE EQ ADAPTER)",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayCostStatus),
        verb: "DISPLAY",
        noun: "COSTSTATUS",
        name: NameUse::Generic,
        object: "role",
        summary: "Show the processor time that each role of the queue manager has cost, what no role owns \
         (`unattributed`), and the process's own with the messages put and got. `bulla report costs` makes \
         microseconds a message of it.",
        options: &[&AT, &WHERE, &ALL],
        attributes: &[&ROLE_CPUTIME, &PUTS, &GETS, &TAKEN, &SINCE],
        examples: &[
            "DISPLAY COSTSTATUS(*)",
            "DIS COSTS(*) AT('2026-11-22 06:30:00')",
            "DIS COSTS(PROCESS) CPUTIME PUTS GETS",
        ],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::SetAuthority),
        verb: "SET",
        noun: "AUTHREC",
        name: NameUse::None,
        object: "authority record",
        summary: "Give users and groups rights on objects, or take rights away from them. Without a record that \
         matches, nothing is allowed. Of the profiles of one user or group that match a name, the most specific one \
         counts.",
        options: &[],
        attributes: authority::RECORD,
        examples: &[
            "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders', 'billing') AUTHADD(CONNECT)",
            "SET AUTHREC PROFILE(ORDERS.**) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT, INQ)",
            "SET AUTHREC PROFILE(ORDERS.SECRET) OBJTYPE(QUEUE) GROUP(CLERKS) AUTHRMV(ALL)",
        ],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::DeleteAuthority),
        verb: "DELETE",
        noun: "AUTHREC",
        name: NameUse::None,
        object: "authority record",
        summary: "Delete an authority record: from then on a more general profile counts, where one fits.",
        options: authority::RECORD_KEY,
        attributes: &[],
        examples: &["DELETE AUTHREC PROFILE(ORDERS.SECRET) OBJTYPE(QUEUE) GROUP(CLERKS)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayAuthority),
        verb: "DISPLAY",
        noun: "AUTHREC",
        name: NameUse::None,
        object: "authority record",
        summary: "Show authority records: all, or those of a profile, a type of object, a user or a group.",
        options: authority::RECORD_OPTIONS,
        attributes: authority::RECORD_SHOWN,
        examples: &[
            "DISPLAY AUTHREC",
            "DIS AUTHREC PROFILE(ORDERS.EU) OBJTYPE(QUEUE) PRINCIPAL('orders') MATCH(MEMBER)",
            "DIS AUTHREC WHERE(AUTHLIST CT PUT)",
        ],
        since: V1,
    },
];

/// The commands after those of groups and administrators.
pub(crate) static OTHER_COMMANDS: &[Command] = &[
    Command {
        act: Act::Does(Doing::BeginUnit),
        verb: "BEGIN",
        noun: "UNIT",
        name: NameUse::None,
        object: "",
        summary: "First in a text: its other commands, which define, alter, set or delete, are carried out together or \
         not at all.",
        options: &[],
        attributes: &[],
        examples: &["BEGIN UNIT"],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::SetChannelRule),
        verb: "SET",
        noun: "CHLAUTH",
        name: NameUse::Channels,
        object: "rule",
        summary: "Say which addresses, users and certificates may use a channel, and as which user. Of the rules that \
         match, the most specific one decides: by the channel's name, then certificate before user before address. \
         Clients are on the channel SYSTEM.DEF.SVRCONN.",
        options: &[&authority::RULE_ACTION],
        attributes: authority::RULE,
        examples: &[
            "SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS) DESCR('Addresses without a rule are \
             refused')",
            "SET CHLAUTH(QM2.QM1) TYPE(SSLPEERMAP) SSLPEER('CN=QM2,O=Demo') SSLCERTI('CN=Authority,O=Demo') \
             MCAUSER('border')",
            "SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(USERMAP) CLNTUSER('orders') ADDRESS('192.0.2.*') USERSRC(CHANNEL)",
            "SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('*ANONYMOUS')",
            "SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('198.51.100.7', '2001:db8:*')",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayChannelRule),
        verb: "DISPLAY",
        noun: "CHLAUTH",
        name: NameUse::Channels,
        object: "rule",
        summary: "Show the rules for connections, or, with MATCH(RUNCHECK), those that would apply to a partner.",
        options: authority::RULE_OPTIONS,
        attributes: authority::RULE_SHOWN,
        examples: &[
            "DISPLAY CHLAUTH(*)",
            "DIS CHLAUTH(QM2.QM1) MATCH(RUNCHECK) ADDRESS('192.0.2.1') SSLPEER('CN=QM2,O=Demo')",
        ],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::SetAddressMap),
        verb: "SET",
        noun: "ADDRMAP",
        name: NameUse::Addresses,
        object: "address map",
        summary: "Say what an address stands for that clients name: a queue or a topic. A * in it is for any \
         characters, and a * in the name for the same ones. The address itself comes before patterns, the longest \
         pattern first. What it stands for is not looked up again.",
        options: &[&address_map::ACTION],
        attributes: address_map::ADDRESS_MAP,
        examples: &[
            "SET ADDRMAP('test-queue') QUEUE('TEST.QUEUE')",
            "SET ADDRMAP('queue://*') QUEUE('*')",
            "SET ADDRMAP('prices/*') TOPIC('market/*')",
            "SET ADDRMAP('test-queue') ACTION(REMOVE)",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayAddressMap),
        verb: "DISPLAY",
        noun: "ADDRMAP",
        name: NameUse::Addresses,
        object: "address map",
        summary: "Show what clients' addresses stand for; a * at the end is for all that begin so.",
        options: limit::OPTIONS,
        attributes: address_map::ADDRESS_MAP,
        examples: &["DISPLAY ADDRMAP('*')", "DIS ADDRMAP('*') WHERE(QUEUE EQ 'TEST.QUEUE')"],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::SetLimit),
        verb: "SET",
        noun: "LIMIT",
        name: NameUse::Users,
        object: "limit",
        summary: "Limit what one user may have at once. The name may end in *: then the limit is each one's whose name \
         begins so. The name itself comes before the longest beginning. What is not given stays.",
        options: &[],
        attributes: limit::LIMITS,
        examples: &[
            "SET LIMIT('app*') MAXCONNS(100) MAXHANDS(1000)",
            "SET LIMIT('*ANONYMOUS') MSGRATE(500) UNACKED(1048576)",
        ],
        since: V1,
    },
    Command {
        act: Act::Defines(Defining::DeleteLimit),
        verb: "DELETE",
        noun: "LIMIT",
        name: NameUse::Users,
        object: "limit",
        summary: "Delete a limit; its users have that of another pattern that fits them, or none.",
        options: &[],
        attributes: &[],
        examples: &["DELETE LIMIT('app*')"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayLimit),
        verb: "DISPLAY",
        noun: "LIMIT",
        name: NameUse::Users,
        object: "limit",
        summary: "Show limits of users.",
        options: limit::OPTIONS,
        attributes: limit::LIMITS,
        examples: &["DISPLAY LIMIT('*')", "DIS LIMIT('*') WHERE(MSGRATE GT 0)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayLimitStatus),
        verb: "DISPLAY",
        noun: "LIMITSTATUS",
        name: NameUse::Users,
        object: "user",
        summary: "Show users that are connected, what they have, and which limit holds for them.",
        options: limit::OPTIONS,
        attributes: limit::STATUS,
        examples: &["DISPLAY LIMITSTATUS('*')", "DIS LIMS('*') WHERE(HELDBACK GT 0)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayLockout),
        verb: "DISPLAY",
        noun: "LOCKOUT",
        name: NameUse::Users,
        object: "lockout",
        summary: "Show which users and addresses are not let in at the moment because too many attempts to sign in \
         were wrong. A lockout of an address is for all users there, and is shown for '*' only.",
        options: limit::OPTIONS,
        attributes: lockout::STATUS,
        examples: &["DISPLAY LOCKOUT('*')", "DIS LOCKOUT('*') WHERE(ADDRESS EQ '192.0.2.1')"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::ResetLockout),
        verb: "RESET",
        noun: "LOCKOUT",
        name: NameUse::Users,
        object: "lockout",
        summary: "End lockouts before their time: those that DISPLAY LOCKOUT shows for the same name, of one address \
         where it is given. Attempts count from nothing again.",
        options: lockout::OPTIONS,
        attributes: &[],
        examples: &["RESET LOCKOUT('orders')", "RESET LOCKOUT('*') ADDRESS('192.0.2.1')"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayConnection),
        verb: "DISPLAY",
        noun: "CONN",
        name: NameUse::Generic,
        object: "connection",
        summary: "Show connections and their links: which user and application has which queue open.",
        options: connection::OPTIONS,
        attributes: connection::STATUS,
        examples: &["DISPLAY CONN(*)", "DIS CONN(*) TYPE(HANDLE) WHERE(OBJNAME EQ ORDERS)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::StopConnection),
        verb: "STOP",
        noun: "CONN",
        name: NameUse::One,
        object: "connection",
        summary: "End a connection, by its number in DISPLAY CONN. Messages that it holds go back to their queues, and \
         its units of work are backed out. The client may connect again: SET CHLAUTH or DELETE AUTHREC keeps it out.",
        options: &[],
        attributes: &[],
        examples: &["STOP CONN(000000000000002A)"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::PingManager),
        verb: "PING",
        noun: "QMGR",
        name: NameUse::None,
        object: "queue manager",
        summary: "Ask the queue manager for an answer: it gives one while it carries out commands, and when \
         objects.mqsc has what was defined before.",
        options: &[],
        attributes: &[],
        examples: &["PING QMGR"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::Help),
        verb: "HELP",
        noun: "",
        name: NameUse::None,
        object: "",
        summary: "Explain the language, a command, or an attribute.",
        options: &[],
        attributes: &[],
        examples: &["HELP", "HELP DEFINE QLOCAL", "HELP KEYREUSE"],
        since: V1,
    },
];

/// What DISPLAY DEVSTATUS and TASKSTATUS show to programs that ask for everything, and to no other.
pub(super) const FOR_PROGRAMS: [Key; 5] =
    [Key::WaitingSeen, Key::ExecutionTimes, Key::Latencies, Key::LongestRequests, Key::BusyAdapters];

/// `QMNAME` heads what DISPLAY QMGR shows, as a queue's name heads its own.
pub static NAME_OF_MANAGER: &Attribute = &QMNAME;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_command_stands_twice() {
        let mut seen = HashSet::new();
        for command in commands() {
            assert!(seen.insert((command.verb, command.noun)), "{command}");
            assert!(VERBS.iter().any(|(verb, _)| *verb == command.verb));
            assert!(ROLES.iter().any(|(verb, _)| *verb == command.verb), "{command} asks for no role");
            assert!(command.noun.is_empty() || nouns().any(|(noun, _)| noun == command.noun));
        }
    }

    #[test]
    fn no_word_means_two_things_in_one_command() {
        for command in commands() {
            let mut seen = HashSet::new();
            for attribute in command.options.iter().chain(command.attributes) {
                let own: HashSet<_> = attribute.words().collect(); // a switch may be named like one of its states
                for word in own {
                    assert!(seen.insert(word), "{command} knows {word} twice");
                }
            }
        }
        for table in [VERBS.to_vec(), nouns().collect()] {
            let mut seen = HashSet::new();
            for word in table.iter().flat_map(|(long, short)| std::iter::once(long).chain(*short)) {
                assert!(seen.insert(word), "{word}");
            }
        }
    }

    #[test]
    fn every_entry_explains_itself() {
        for command in commands() {
            assert!(command.summary.ends_with('.') && !command.examples.is_empty(), "{command}");
            for attribute in command.options.iter().chain(command.attributes) {
                assert!(attribute.doc.ends_with('.'), "{}", attribute.keyword);
            }
        }
    }
}
