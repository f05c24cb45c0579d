//! The commands that no noun of [`nouns`](crate::nouns) has, in the order of the reference page.

use super::*;
use crate::nouns::{queue_manager, queues};
use bulla_catalog::MESSAGE_BYTES_MAX;
use bulla_catalog::diagnosis::DAYS_MAX;

/// Longest name of a user in characters.
const USER_CHARS_MAX: usize = 128;

static CHECKED_USER: Attribute = attribute(
    Key::Own("CHECKED USER"),
    "USER",
    Kind::Text { chars_max: USER_CHARS_MAX },
    "",
    "Look at the way of this user's messages; what concerns other users alone is a warning without it.",
);
static CHECKED_DAYS: Attribute = attribute(
    Key::Own("CHECKED DAYS"),
    "DAYS",
    Kind::Number { min: 0, max: DAYS_MAX },
    "30",
    "Tell of certificates and revocation lists that end within so many days.",
);
static CHECKED_BYTES: Attribute = attribute(
    Key::Own("CHECKED BYTES"),
    "BYTES",
    Kind::Number { min: 0, max: MESSAGE_BYTES_MAX },
    "",
    "Whether a payload of so many bytes fits, once it is sealed.",
);

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
        attributes: queues::DISPLAYED,
        examples: &["DISPLAY QUEUE(*)", "DIS Q(*) TYPE(QLOCAL) CURDEPTH"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::CheckQueue),
        verb: "CHECK",
        noun: "QUEUE",
        name: NameUse::One,
        object: "queue",
        summary: "Walk the way of a message from its put by that name to its get, change nothing, and say what is \
         broken, why, and the command that mends it: names, rights, rules for connections, policy, keys and \
         certificates, lengths, devices, channel, disk. It seals and opens a message in memory. `bulla doctor` prints \
         it for people.",
        options: &[&CHECKED_USER, &CHECKED_BYTES, &CHECKED_DAYS],
        attributes: &[],
        examples: &["CHECK QUEUE(ORDERS)", "CHECK QUEUE(ORDERS) USER('billing') DAYS(90)"],
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
            &STRANDED,
            &STRANDBY,
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
            &QUEUE_CURUNACK,
            &QUEUE_HELDBACK,
            &QUEUE_REFUSED,
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
        attributes: queue_manager::ALTERED,
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
        attributes: queue_manager::SHOWN,
        examples: &["DISPLAY QMGR", "DIS QMGR DEADQ"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::CheckManager),
        verb: "CHECK",
        noun: "QMGR",
        name: NameUse::None,
        object: "queue manager",
        summary: "Look at the machine and the queue manager as a whole, and change nothing: cryptographic library, \
         processor, memory, core files, file modes, key rings, devices, channels, disk, dates ahead, clock. With USER \
         also whether that user can sign in and seal.",
        options: &[&CHECKED_USER, &CHECKED_DAYS],
        attributes: &[],
        examples: &["CHECK QMGR", "CHECK QMGR USER('orders')"],
        since: V1,
    },
];

/// The commands after those of devices.
pub(crate) static COMMANDS_OF_DEVICES: &[Command] = &[Command {
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
}];

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
        attributes: &[
            &ROLE_CPUTIME,
            &SEALCPU,
            &OPENCPU,
            &PUTS,
            &GETS,
            &SCRATCHMSGS,
            &SCRATCHBYTES,
            &SCRATCHUSED,
            &SCRATCHWAIT,
            &TAKEN,
            &SINCE,
        ],
        examples: &[
            "DISPLAY COSTSTATUS(*)",
            "DIS COSTS(*) AT('2026-11-22 06:30:00')",
            "DIS COSTS(PROCESS) CPUTIME PUTS GETS",
        ],
        since: V1,
    },
];

/// The commands after those of groups and administrators.
pub(crate) static COMMANDS_OF_UNITS: &[Command] = &[Command {
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
}];

/// The commands after those of limits.
pub(crate) static OTHER_COMMANDS: &[Command] = &[
    Command {
        act: Act::Does(Doing::DisplayKeyUse),
        verb: "DISPLAY",
        noun: "KEYUSE",
        name: NameUse::Generic,
        object: "queue",
        summary: "Show which keys the sealed messages of queues need, one line for each queue and key: how many \
         messages, since when, who has the private key here, and until when its certificate is valid. Queues without \
         sealed messages are not shown. Transmission, dead-letter and error queues and subscriptions' are queues like \
         others.",
        options: DISPLAY_OPTIONS,
        attributes: key_use::STATUS,
        examples: &[
            "DISPLAY KEYUSE(*)",
            "DIS KU(*) WHERE(USER EQ 'billing')",
            "DIS KU(ORDERS) MSGS MSGAGE WHERE(KEYHERE EQ NO)",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayAlgorithmUse),
        verb: "DISPLAY",
        noun: "ALGUSE",
        name: NameUse::Generic,
        object: "queue",
        summary: "Show what the messages of queues are sealed with, one line for each queue and way: kinds of keys \
         that signed and that open, digest, cipher. No message is opened, and no key is used. Queues without messages \
         are not shown. `bulla report algorithms` says which of it is due by when.",
        options: algorithm_use::OPTIONS,
        attributes: algorithm_use::STATUS,
        examples: &[
            "DISPLAY ALGUSE(*)",
            "DIS AU(ORDERS) MESSAGES(100000)",
            "DIS AU(*) MSGS WHERE(RECIPKEYS EQ 'rsa2048 OAEP')",
        ],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayKeyRotation),
        verb: "DISPLAY",
        noun: "KEYROTATE",
        name: NameUse::Users,
        object: "change of a key",
        summary: "Show the changes of users' keys that are under way (`bulla key rotate`), one line for each old key: how \
         far it is, until when the old key is kept in any case, and how many messages still need it, on which queues. \
         It ends by itself with the last of them.",
        options: DISPLAY_OPTIONS,
        attributes: key_rotation::STATUS,
        examples: &["DISPLAY KEYROTATE('*')", "DIS KR('billing') STEP MSGS QUEUES"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::DisplayEnrolment),
        verb: "DISPLAY",
        noun: "ENROL",
        name: NameUse::Users,
        object: "certificate that renews by itself",
        summary: "Show the certificates that come and renew by themselves (enrolment.toml of the data directory), of \
         users' rings and of TLS: when each is renewed, and what the last attempt failed of.",
        options: DISPLAY_OPTIONS,
        attributes: enrolment::STATUS,
        examples: &["DISPLAY ENROL('*')", "DIS ENROL('*') WHERE(STATE EQ FAILING)"],
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
        options: DISPLAY_OPTIONS,
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
        act: Act::Does(Doing::DisplayLogIn),
        verb: "DISPLAY",
        noun: "LOGIN",
        name: NameUse::Users,
        object: "log-in",
        summary: "Show who has logged in over HTTP for a cookie: since when, when and from where it was used last, and \
         when it ends. Nothing of a cookie is shown.",
        options: DISPLAY_OPTIONS,
        attributes: log_in::STATUS,
        examples: &["DISPLAY LOGIN('*')", "DIS LOGIN('orders') NUMBER USED CONNAME"],
        since: V1,
    },
    Command {
        act: Act::Does(Doing::StopLogIn),
        verb: "STOP",
        noun: "LOGIN",
        name: NameUse::Users,
        object: "log-in",
        summary: "End log-ins over HTTP before their time: those that DISPLAY LOGIN shows for the same name, or one of \
         them by its number. Their cookies are worth nothing from then on; the user may log in again.",
        options: log_in::OPTIONS,
        attributes: &[],
        examples: &["STOP LOGIN('orders')", "STOP LOGIN('orders') NUMBER(7)"],
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
