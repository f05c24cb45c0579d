//! QLOCAL: a queue of this queue manager.

use super::noun::{Family, Running, commands};
use super::queues::{MANY, QUEUES, makes_sense, used_by_the_manager};
use super::subscription::managing;
use super::{Field, ObjectNoun, Rules, Said, attributes, joined};
use crate::attributes::{blank, clamped, enabled, number_of, number_or, percent, unless_blank};
use crate::parse::Statement;
use crate::reply::{Cell, Failure, FailureKind};
use crate::run::{AdminError, Administered, failure, invalid};
use crate::table::messages::{CLEAR, DISPLAY_DEAD_LETTERS, REPLAY, RESEAL};
use crate::table::{
    Attribute, COUNT_MAX, CURDEPTH, Command, DEFPRTY, DEFPSIST, DESCR, ENABLED, GET, Key, Kind, PRIORITY_MAX, PUT,
    TYPE, UNACKNOWLEDGED_BYTES_MAX, attribute, words,
};
use bulla_catalog::authority::{ObjectType, RecordKey};
use bulla_catalog::limits::RATE_MAX;
use bulla_catalog::status::{GroupState, QueueStatus};
use bulla_catalog::system_queues::{DEAD_LETTER_QUEUE, SYSTEM_PREFIX, dead_letter_queue_of, error_queue_of};
use bulla_catalog::{
    Backout, DEPTH_MAX, Definitions, Delivery, Full, LocalQueue, MESSAGE_BYTES_MAX, Sort, TriggerType, Usage,
};

const WORD: &str = "QLOCAL";

/// Highest CAPEXPRY in tenths of a second, as MQ has it.
const EXPIRY_TENTHS_MAX: u64 = 999_999_999;
/// Highest BOTHRESH, as MQ has it.
const BACKOUT_THRESHOLD_MAX: u64 = 999_999_999;
/// Of a number that there is no limit to.
const NO_LIMIT: &str = "NOLIMIT";

pub(super) static LOCAL: ObjectNoun<LocalQueue> = ObjectNoun {
    word: WORD,
    short: &["QL"],
    many: MANY,
    place: 2,
    fields: &[MESSAGES, USE, BACKING_OUT, DEPTHS_AND_LIMITS, ORIGIN_AND_TRIGGER, SHARING],
    commands: &COMMANDS,
};

static DEFTYPE: Attribute = attribute(
    Key::DefinitionType,
    "DEFTYPE",
    words(&["PREDEFINED", "PERMDYN"]),
    "PREDEFINED",
    "How the queue came to be: by a command, or from a model, for an application that asked. A link that opens a \
     PERMDYN queue may delete it by closing it.",
);
static PURGE: Attribute = attribute(
    Key::Purge,
    "PURGE",
    Kind::Switch(&["NOPURGE", "PURGE"]),
    "NOPURGE",
    "Whether a queue that holds messages is deleted together with them; otherwise it is refused with 2055.",
);

/// What messages the queue takes, and how it gives them.
static MESSAGES: &[Field<LocalQueue>] = &[
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::new(
        "MAXDEPTH",
        Kind::Number { min: 0, max: DEPTH_MAX },
        "5000",
        "Most messages on the queue. What happens to the next one is FULL's business.",
        |of| Cell::Number(of.max_depth.into()),
        |of, value| of.max_depth = clamped(value.number()),
    ),
    Field::new(
        "MAXMSGL",
        Kind::Number { min: 0, max: MESSAGE_BYTES_MAX },
        "4194304",
        "Longest message in bytes, measured as it is stored: on a protected queue, sealed. A longer one is refused \
         with 2030.",
        |of| Cell::Number(of.max_message_bytes.into()),
        |of, value| of.max_message_bytes = clamped(value.number()),
    ),
    Field::shared(&GET, |of| enabled(of.get_enabled), |of, value| of.get_enabled = value.word() == "ENABLED"),
    Field::shared(&PUT, |of| enabled(of.put_enabled), |of, value| of.put_enabled = value.word() == "ENABLED"),
    Field::shared(
        &DEFPRTY,
        |of| Cell::Number(of.default_priority.into()),
        |of, value| of.default_priority = u8::try_from(value.number()).unwrap_or(u8::MAX),
    ),
    Field::shared(
        &DEFPSIST,
        |of| Cell::word(if of.default_persistent { "YES" } else { "NO" }),
        |of, value| of.default_persistent = value.word() == "YES",
    ),
    Field::new(
        "MSGDLVSQ",
        words(&["PRIORITY", "FIFO"]),
        "PRIORITY",
        "Order of delivery: by priority and then by arrival, or by arrival alone.",
        |of| {
            Cell::word(match of.delivery {
                Delivery::Priority => "PRIORITY",
                Delivery::Fifo => "FIFO",
            })
        },
        |of, value| of.delivery = if value.word() == "FIFO" { Delivery::Fifo } else { Delivery::Priority },
    ),
    Field::new(
        "FULL",
        words(&["WAIT", "REJECT"]),
        "WAIT",
        "At MAXDEPTH: grant senders no more credit, so that they wait, or refuse their messages with 2053. A sender \
         beyond its credit is refused either way.",
        |of| {
            Cell::word(match of.full {
                Full::Wait => "WAIT",
                Full::Reject => "REJECT",
            })
        },
        |of, value| of.full = if value.word() == "REJECT" { Full::Reject } else { Full::Wait },
    ),
];

/// What the queue is for.
static USE: &[Field<LocalQueue>] = &[
    Field::new(
        "USAGE",
        words(&["NORMAL", "XMITQ"]),
        "NORMAL",
        "What the queue is for. NORMAL: applications. XMITQ: messages wait on it for a channel. It changes only while \
         the queue is empty and no link has it open.",
        |of| {
            Cell::word(match of.usage {
                Usage::Normal => "NORMAL",
                Usage::Transmission => "XMITQ",
            })
        },
        |of, value| of.usage = if value.word() == "XMITQ" { Usage::Transmission } else { Usage::Normal },
    ),
    Field::new(
        "TRIGGER",
        Kind::Switch(&["NOTRIGGER", "TRIGGER"]),
        "NOTRIGGER",
        "Whether a message starts something: on a transmission queue its channel, on another queue the application of \
         PROCESS, by a message on INITQ. Written as the bare word.",
        |of| Cell::word(if of.trigger { "TRIGGER" } else { "NOTRIGGER" }),
        |of, value| of.trigger = value.word() == "TRIGGER",
    ),
    Field::new(
        "TRIGDATA",
        Kind::Name { optional: true },
        "' '",
        "Of a transmission queue, the channel that TRIGGER starts; blank for the one whose XMITQ this queue is. Of \
         another one, what the application is told: a word like a name.",
        |of| blank(of.trigger_data.as_deref()),
        |of, value| of.trigger_data = unless_blank(&value.text()),
    ),
];

/// What becomes of messages that are backed out. DISPLAY QUEUE does not show it.
static BACKING_OUT: &[Field<LocalQueue>] = &[
    Field::new(
        "BOTHRESH",
        Kind::Number { min: 0, max: BACKOUT_THRESHOLD_MAX },
        "0",
        "How often a message may be backed out before it counts as one that can't be processed; 0 for any number of \
         times.",
        |of| Cell::Number(of.backout_threshold.into()),
        |of, value| of.backout_threshold = clamped(value.number()),
    ),
    Field::new(
        "BOQNAME",
        Kind::Name { optional: true },
        "' '",
        "Where messages go that were backed out BOTHRESH times; blank for DEADQ.",
        |of| blank(of.backout_queue.as_deref()),
        |of, value| of.backout_queue = unless_blank(&value.text()),
    ),
    Field::new(
        "HARDENBO",
        Kind::Switch(&["NOHARDENBO", "HARDENBO"]),
        "NOHARDENBO",
        "Accepted and shown. The journal keeps delivery counts of persistent messages either way. Written as the bare \
         word.",
        |of| Cell::word(if of.harden_backout { "HARDENBO" } else { "NOHARDENBO" }),
        |of, value| of.harden_backout = value.word() == "HARDENBO",
    ),
    Field::new(
        "BACKOUT",
        words(&["NONE", "MOVE"]),
        "NONE",
        "Who heeds BOTHRESH. NONE: applications. MOVE: the queue manager, which moves the message as it is backed out \
         for the BOTHRESHth time; where it can't, the message stays and the log says why.",
        |of| {
            Cell::word(match of.backout {
                Backout::None => "NONE",
                Backout::Move => "MOVE",
            })
        },
        |of, value| of.backout = if value.word() == "MOVE" { Backout::Move } else { Backout::None },
    ),
];

/// When it is deep, who gets from it with whom, and how much there may be at once.
static DEPTHS_AND_LIMITS: &[Field<LocalQueue>] = &[
    Field::new(
        "QDEPTHHI",
        Kind::Number { min: 0, max: 100 },
        "80",
        "From this share of MAXDEPTH on, in percent, the queue is deep. At least one message; not below QDEPTHLO.",
        |of| Cell::Number(of.high_percent.into()),
        |of, value| of.high_percent = percent(value.number()),
    ),
    Field::new(
        "QDEPTHLO",
        Kind::Number { min: 0, max: 100 },
        "20",
        "Down to this share of MAXDEPTH, in percent, a queue that was deep stays deep.",
        |of| Cell::Number(of.low_percent.into()),
        |of, value| of.low_percent = percent(value.number()),
    ),
    Field::new(
        "QDPHIEV",
        ENABLED,
        "DISABLED",
        "Whether a queue that becomes deep (QDEPTHHI) is an event, where PERFMEV is on. Once, until it is shallow \
         again.",
        |of| enabled(of.high_event),
        |of, value| of.high_event = value.word() == "ENABLED",
    ),
    Field::new(
        "QDPLOEV",
        ENABLED,
        "DISABLED",
        "Whether a deep queue that becomes shallow (QDEPTHLO) is an event, where PERFMEV is on.",
        |of| enabled(of.low_event),
        |of, value| of.low_event = value.word() == "ENABLED",
    ),
    Field::new(
        "QDPMAXEV",
        ENABLED,
        "ENABLED",
        "Whether a queue that reaches MAXDEPTH is an event, where PERFMEV is on. Once, until it is shallow again.",
        |of| enabled(of.full_event),
        |of, value| of.full_event = value.word() == "ENABLED",
    ),
    Field::new(
        "SHARE",
        Kind::Switch(&["SHARE", "NOSHARE"]),
        "SHARE",
        "Whether more than one link may get from the queue at a time. With NOSHARE the second one is refused with \
         2042; those that browse don't count. Written as the bare word.",
        |of| Cell::word(if of.share { "SHARE" } else { "NOSHARE" }),
        |of, value| of.share = value.word() == "SHARE",
    ),
    Field::new(
        "DEFSOPT",
        words(&["SHARED", "EXCL"]),
        "SHARED",
        "How a link gets from the queue that does not say: with others, or alone. A link asks by the capability \
         bulla:exclusive or bulla:shared.",
        |of| Cell::word(if of.default_exclusive { "EXCL" } else { "SHARED" }),
        |of, value| of.default_exclusive = value.word() == "EXCL",
    ),
    Field::new(
        "CAPEXPRY",
        Kind::NumberOr { min: 1, max: EXPIRY_TENTHS_MAX, word: NO_LIMIT },
        NO_LIMIT,
        "Longest that a message lies on the queue before it expires, in tenths of a second from its put; one that says \
         less expires sooner.",
        |of| number_or(of.expiry_cap_tenths, NO_LIMIT),
        |of, value| of.expiry_cap_tenths = number_of(value),
    ),
    Field::new(
        "GROUPS",
        words(&["NO", "YES"]),
        "NO",
        "Whether messages with the same group-id (JMSXGroupID) go to one link at a time, in their order, for as long \
         as it is there. A change is for links that come later.",
        |of| Cell::word(if of.groups { "YES" } else { "NO" }),
        |of, value| of.groups = value.word() == "YES",
    ),
    Field::new(
        "MAXHANDS",
        Kind::Number { min: 0, max: COUNT_MAX },
        "0",
        "Most links on the queue, IPPROCS and OPPROCS together; 0 for no limit. One more is refused with 2017 \
         queue-links.",
        |of| Cell::Number(of.limit.links.into()),
        |of, value| of.limit.links = clamped(value.number()),
    ),
    Field::new(
        "UNACKED",
        Kind::Number { min: 0, max: UNACKNOWLEDGED_BYTES_MAX },
        "0",
        "Bytes of its messages delivered and not settled, from which on no more are delivered until some are settled; \
         0 for no limit.",
        |of| Cell::Number(of.limit.unacknowledged_bytes),
        |of, value| of.limit.unacknowledged_bytes = value.number(),
    ),
    Field::new(
        "MSGRATE",
        Kind::Number { min: 0, max: RATE_MAX as u64 },
        "0",
        "Messages that all links together may put a second; 0 for no limit. Beyond it credit is held back; a link to \
         no queue in particular, which needs none, is refused with 2053 queue-rate.",
        |of| Cell::Number(of.limit.messages_a_second.into()),
        |of, value| of.limit.messages_a_second = clamped(value.number()),
    ),
];

/// How it came to be, and what a message on it starts.
static ORIGIN_AND_TRIGGER: &[Field<LocalQueue>] = &[
    Field::shared(
        &DEFTYPE,
        |of| Cell::word(if of.dynamic { "PERMDYN" } else { "PREDEFINED" }),
        |of, value| of.dynamic = value.word() == "PERMDYN",
    ),
    Field::new(
        "DYNUSER",
        Kind::Text { chars_max: bulla_catalog::names::USER_NAME_BYTES_MAX },
        "' '",
        "The user for whom a PERMDYN queue was made, whose limit MAXDYNQ counts it; *ANONYMOUS for those who have not \
         signed in.",
        |of| blank(of.maker.as_deref()),
        |of, value| of.maker = unless_blank(&value.text()),
    ),
    Field::new(
        "TRIGTYPE",
        words(&["FIRST", "EVERY", "DEPTH", "NONE"]),
        "FIRST",
        "When a queue that is no transmission queue triggers: with the first message on it, with every one, or when it \
         holds TRIGDPTH of them, which also sets NOTRIGGER. FIRST and DEPTH only while no link gets from it.",
        |of| {
            Cell::word(match of.trigger_type {
                TriggerType::First => "FIRST",
                TriggerType::Every => "EVERY",
                TriggerType::Depth => "DEPTH",
                TriggerType::None => "NONE",
            })
        },
        |of, value| {
            of.trigger_type = match value.word() {
                "EVERY" => TriggerType::Every,
                "DEPTH" => TriggerType::Depth,
                "NONE" => TriggerType::None,
                _ => TriggerType::First,
            }
        },
    ),
    Field::new(
        "TRIGDPTH",
        Kind::Number { min: 1, max: DEPTH_MAX },
        "1",
        "How many messages TRIGTYPE(DEPTH) waits for.",
        |of| Cell::Number(of.trigger_depth.into()),
        |of, value| of.trigger_depth = clamped(value.number()),
    ),
    Field::new(
        "TRIGMPRI",
        Kind::Number { min: 0, max: PRIORITY_MAX },
        "0",
        "Messages of a lower priority do not count for triggering.",
        |of| Cell::Number(of.trigger_priority.into()),
        |of, value| of.trigger_priority = u8::try_from(value.number()).unwrap_or(u8::MAX),
    ),
    Field::new(
        "INITQ",
        Kind::Name { optional: true },
        "' '",
        "The local queue for trigger messages, while a link gets from it; bulla trigger does.",
        |of| blank(of.initiation_queue.as_deref()),
        |of, value| of.initiation_queue = unless_blank(&value.text()),
    ),
    Field::new(
        "PROCESS",
        Kind::Name { optional: true },
        "' '",
        "The process definition that says what is started.",
        |of| blank(of.process.as_deref()),
        |of, value| of.process = unless_blank(&value.text()),
    ),
];

/// Where it lies.
static SHARING: &[Field<LocalQueue>] = &[
    Field::new(
        QSGDISP,
        words(&["QMGR", "SHARED"]),
        "QMGR",
        "QMGR: a queue of this queue manager alone. SHARED: one of the group in QSGROUP, which lies in the group's \
         log and is open at the member that owns the group. It is defined at that member, for good.",
        |of| Cell::word(if of.group.is_some() { "SHARED" } else { "QMGR" }),
        |_, _| {},
    ),
    Field::new(
        QSGROUP,
        Kind::Name { optional: true },
        "' '",
        "The group of a SHARED queue, which DEFINE QSGROUP has made this queue manager a member of; blank for one of \
         this queue manager alone.",
        |of| blank(of.group.as_deref()),
        |of, value| of.group = unless_blank(&value.text()),
    ),
];
const QSGDISP: &str = "QSGDISP";
const QSGROUP: &str = "QSGROUP";

pub(super) const OF_MESSAGES: &[&Attribute] = attributes!(MESSAGES);
pub(super) const OF_USE: &[&Attribute] = attributes!(USE);
const OF_BACKING_OUT: &[&Attribute] = attributes!(BACKING_OUT);
pub(super) const OF_DEPTHS_AND_LIMITS: &[&Attribute] = attributes!(DEPTHS_AND_LIMITS);
pub(super) const OF_ORIGIN_AND_TRIGGER: &[&Attribute] = attributes!(ORIGIN_AND_TRIGGER);

const OF_SHARING: &[&Attribute] = attributes!(SHARING);

static DEFINED: &[&Attribute] =
    joined![OF_MESSAGES, OF_USE, OF_BACKING_OUT, OF_DEPTHS_AND_LIMITS, OF_ORIGIN_AND_TRIGGER, OF_SHARING];
static DISPLAYED: &[&Attribute] = joined![&[&TYPE, &DESCR, &CURDEPTH], DEFINED.split_at(1).1];

static COMMANDS: [Command; 8] = {
    let [define, alter, delete, display] = commands(
        Sort::Local,
        "queue",
        WORD,
        DEFINED,
        DISPLAYED,
        [
            Said {
                summary: "Create a local queue.",
                examples: &[
                    "DEFINE QLOCAL(ORDERS) MAXDEPTH(5000)",
                    "DEF QL('orders.eu') DESCR('Bo''s orders') LIKE(ORDERS) MSGDLVSQ(FIFO) FULL(REJECT) REPLACE",
                    "DEFINE QLOCAL(PAYMENTS.IN) QSGDISP(SHARED) QSGROUP(PAYMENTS)",
                    "DEFINE QLOCAL(QM2) USAGE(XMITQ) TRIGGER DESCR('To queue manager QM2')",
                ],
            },
            Said {
                summary: "Change attributes of a local queue; the others stay.",
                examples: &["ALTER QLOCAL(ORDERS) PUT(DISABLED)"],
            },
            Said {
                summary: "Delete a local queue that no link has open.",
                examples: &["DELETE QLOCAL(ORDERS)", "DELETE QL(ORDERS) PURGE"],
            },
            Said {
                summary: "Show local queues. A generic name shows names only, unless attributes or ALL are asked for.",
                examples: &["DISPLAY QLOCAL(ORDERS)", "DIS QL(OR*) CURDEPTH MAXDEPTH WHERE(CURDEPTH GT 0)"],
            },
        ],
    );
    let delete = Command { options: &[&PURGE], ..delete };
    [define, alter, delete, CLEAR, REPLAY, RESEAL, DISPLAY_DEAD_LETTERS, display]
};

/// What a shared queue can't be: what only this queue manager's own log can do.
fn can_be_shared(name: &str, queue: &LocalQueue, definitions: &Definitions) -> Result<(), Failure> {
    let Some(group) = &queue.group else { return Ok(()) };
    let refused = |message: String| Failure { kind: FailureKind::Refused, reason: Some(2085), message, hint: None };
    if !definitions.shared_groups.contains_key(group) {
        let hint = Some(format!("DEFINE QSGROUP({group}) SERVERS('HOST:PORT')"));
        return Err(Failure { hint, ..refused(format!("shared group {group} does not exist")) });
    }
    // On a transmission queue it starts a channel of the group, and no program.
    if queue.trigger && queue.usage != Usage::Transmission {
        return Err(invalid(
            "a shared queue does not trigger: the owner would start programs of its own machine",
            None,
        ));
    }
    if name.starts_with(SYSTEM_PREFIX)
        && ![error_queue_of(group), dead_letter_queue_of(group)].contains(&name.to_owned())
    {
        return Err(invalid(format!("{name} is no name for a shared queue: the queue manager has those"), None));
    }
    Ok(())
}

/// A queue is defined where its group is owned, and stays in the log that it was defined in.
fn stays_in_its_group(
    name: &str,
    queue: &LocalQueue,
    before: Option<&LocalQueue>,
    target: &dyn Administered,
) -> Result<(), Failure> {
    let definitions = target.definitions();
    if before.is_none() && queue.group.is_some() {
        let policy = definitions.policies.contains_key(name).then(|| format!("DELETE POLICY({name})"));
        let is_about = |key: &RecordKey| key.object == ObjectType::Queue && key.profile.as_str() == name;
        let records = definitions.authorities.records.iter().any(|(key, _)| is_about(&key));
        let records = records.then(|| format!("DELETE AUTHREC PROFILE({name}) OBJTYPE(QUEUE) for each user and group"));
        if let Some(command) = policy.or(records) {
            let message = format!("what is defined for {name} is this queue manager's, and not the group's");
            let hint = Some(format!("{command}; then define the queue, and set it again"));
            return Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint });
        }
    }
    if let Some(before) = before.filter(|before| before.group != queue.group) {
        let place = |group: &Option<String>| group.clone().unwrap_or_else(|| "none".to_owned());
        let message = format!("{name} is in group {}, and not in {}", place(&before.group), place(&queue.group));
        let hint = Some("move its messages to a queue of another name, then delete it".to_owned());
        return Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint });
    }
    let Some(group) = &queue.group else { return Ok(()) };
    let Some(status) = target.group_status(group).filter(|status| status.state != GroupState::Owner) else {
        return Ok(());
    };
    let hint = match (status.state, status.owner.as_str()) {
        (GroupState::Standby, owner) if !owner.is_empty() => format!("define it at {owner}, which owns the group now"),
        (GroupState::Stopped, _) => format!("START QSGROUP({group}) first"),
        _ => format!("DISPLAY QSGSTATUS({group}) says what keeps it away"),
    };
    let message = format!("shared group {group} is {} here: its owner defines its queues", status.state.word());
    Err(Failure { kind: FailureKind::Refused, reason: Some(2345), message, hint: Some(hint) })
}

impl Rules for LocalQueue {
    const FAMILY: Option<&Family> = Some(&QUEUES);
    const EXISTS: (u32, &str) = (4001, "ALTER changes it, REPLACE defines it anew and keeps its messages");

    /// A copy is made by a command, and for no user.
    fn begin(_statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        Ok(like.map(|like| LocalQueue { maker: None, ..like.clone() }).unwrap_or_default())
    }

    /// QSGDISP, which says no more than QSGROUP does.
    fn complete(&mut self, statement: &Statement) -> Result<(), Failure> {
        let said = statement.value(Key::Own(QSGDISP)).map(|value| value.word() == "SHARED");
        match (said, &self.group) {
            (Some(true), None) => Err(invalid("QSGDISP(SHARED) needs QSGROUP", Some("write QSGROUP(GROUP)"))),
            (Some(false), Some(_)) if statement.value(Key::Own(QSGROUP)).is_none() => {
                self.group = None;
                Ok(())
            }
            (Some(false), Some(group)) => {
                Err(invalid(format!("a queue with QSGDISP(QMGR) is in no group, {group} neither"), None))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, name: &str, definitions: &Definitions) -> Result<(), Failure> {
        makes_sense(name, self)?;
        can_be_shared(name, self, definitions)
    }

    /// One that an application has made is its user's.
    fn stays(&self, name: &str) -> bool {
        self.dynamic || name.starts_with(SYSTEM_PREFIX)
    }

    fn check_delete(name: &str, definitions: &Definitions) -> Result<(), Failure> {
        if name == DEAD_LETTER_QUEUE {
            return Err(used_by_the_manager(name));
        }
        let Some(subscription) = managing(name, definitions) else { return Ok(()) };
        let message = format!("{name} belongs to subscription {subscription}");
        let hint = Some(format!("DELETE SUB('{subscription}') deletes both"));
        Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint })
    }

    /// USAGE changes while no client could mean the queue by the other one.
    fn running(name: &str, change: Running<'_, Self>, target: &dyn Administered) -> Result<Option<String>, Failure> {
        let (Running::Defined(queue) | Running::Altered(queue)) = change else { return Ok(None) };
        let before = target.definitions().queues.get(name);
        stays_in_its_group(name, queue, before, target)?;
        if before.is_none_or(|before| before.usage == queue.usage) {
            return Ok(None);
        }
        let QueueStatus { depth, open_input, open_output, .. } = target.queue_status(name).unwrap_or_default();
        let links = usize::try_from(open_input + open_output).unwrap_or(usize::MAX);
        let name = name.to_owned();
        let error = match (depth, links) {
            (0, 0) => return Ok(None),
            (0, links) => AdminError::InUse { name, links },
            (depth, _) => AdminError::NotEmpty { name, depth },
        };
        let hint = Some("USAGE changes while the queue is empty and not open".to_owned());
        Err(Failure { hint, ..failure(&error) })
    }

    /// Why a queue with TRIGGER will start nothing yet, or messages of a shared queue will not stay with its group.
    fn forewarnings(&self, _name: &str, definitions: &Definitions) -> Vec<String> {
        let backout = self.backout_queue.as_ref().filter(|_| self.group.is_some());
        if let Some(backout) = backout
            && definitions.queues.get(backout).is_some_and(|queue| queue.group != self.group)
        {
            let why = "what goes there stays behind when another member owns the group";
            return vec![format!("BOQNAME({backout}) is no queue of the group: {why}")];
        }
        if !self.trigger || self.usage == Usage::Transmission {
            return Vec::new();
        }
        let initiation = match &self.initiation_queue {
            None => Some("TRIGGER starts nothing without INITQ".to_owned()),
            Some(name) if !definitions.queues.contains_key(name) => {
                Some(format!("INITQ({name}) is no local queue yet"))
            }
            Some(_) => None,
        };
        let process = match &self.process {
            None => Some("TRIGGER starts nothing without PROCESS".to_owned()),
            Some(name) if !definitions.processes.contains_key(name) => {
                Some(format!("PROCESS({name}) does not exist yet"))
            }
            Some(_) => None,
        };
        initiation.into_iter().chain(process).collect()
    }

    fn status<'a>(name: &'a str, target: &'a dyn Administered) -> Box<dyn Fn(Key) -> Option<Cell> + 'a> {
        Box::new(move |key| match key {
            Key::CurrentDepth => target.queue_status(name).map(|status| Cell::Number(status.depth)),
            _ => None,
        })
    }
}
