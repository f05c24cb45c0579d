//! The commands for what is on a local queue: CLEAR, REPLAY and DISPLAY DEADMSG.

use super::{ALL, Act, Attribute, BYTES, Command, Doing, Key, Kind, NameUse, V1, WHERE, attribute, shown, words};
use bulla_catalog::DEPTH_MAX;

static ORIGIN: Attribute =
    attribute(Key::Origin, "QUEUE", Kind::Name { optional: false }, "", "Only messages that came from this queue.");
static COUNT: Attribute =
    attribute(Key::Count, "COUNT", Kind::Number { min: 1, max: DEPTH_MAX }, "", "At most so many messages.");
static AFTER: Attribute = attribute(
    Key::After,
    "AFTER",
    Kind::Number { min: 1, max: u64::MAX },
    "",
    "Only messages of higher numbers: the last one that was shown leads to the next ones.",
);
static MSGNUM: Attribute = attribute(
    Key::MessageNumber,
    "MSGNUM",
    Kind::Number { min: 1, max: u64::MAX },
    "",
    "Only the message of this number, as DISPLAY DEADMSG shows it.",
);
static TO: Attribute = attribute(
    Key::To,
    "TO",
    Kind::Name { optional: false },
    "",
    "With MSGNUM, move the message to this local queue instead of the one it came from.",
);
static HEADER: Attribute =
    attribute(Key::KeepLabel, "HEADER", words(&["NO", "YES"]), "NO", "With TO, whether the message keeps its label.");
static DISCARD: Attribute = attribute(
    Key::Discard,
    "DISCARD",
    Kind::Switch(&["NODISCARD", "DISCARD"]),
    "NODISCARD",
    "With MSGNUM, delete the message instead of putting it back.",
);
static RESEAL_SELECT: Attribute = attribute(
    Key::Own("SELECT"),
    "SELECT",
    words(&["NOTCURRENT", "ALL"]),
    "NOTCURRENT",
    "Which messages: those that other keys open than those of the policy's recipients, or every sealed one.",
);
static RESEAL_NEEDS: Attribute = attribute(
    Key::Own("NEEDS"),
    "NEEDS",
    Kind::Text { chars_max: crate::reseal::TEXT_CHARS_MAX },
    "",
    "Instead, those that the key of this serial number, or key identifier, opens, as DISPLAY KEYUSE shows it.",
);
static RESEAL_READER: Attribute = attribute(
    Key::Own("READER"),
    "READER",
    Kind::Text { chars_max: crate::reseal::TEXT_CHARS_MAX },
    "",
    "The user whose ring opens them; without it any ring here that has the key. Needed where the policy only signs.",
);
static RESEAL_FORMER: Attribute = attribute(
    Key::Own("FORMER"),
    "FORMER",
    Kind::Name { optional: false },
    "",
    "The policy by which they are opened, where it is not the one in force: its algorithms and its SIGNER.",
);
static RESEAL_COUNT: Attribute = attribute(
    Key::Count,
    "COUNT",
    Kind::Number { min: 1, max: crate::reseal::RESEAL_MESSAGES_MAX },
    "100",
    "At most so many messages in one command.",
);
static RESEAL_AFTER: Attribute = attribute(
    Key::Own("AFTER"),
    "AFTER",
    Kind::Text { chars_max: crate::reseal::TEXT_CHARS_MAX },
    "",
    "Go on behind the place that the last answer named.",
);
static MSGNUM_SHOWN: Attribute = shown(Key::MessageNumber, "MSGNUM", "Number of the message in this queue manager.");
static DEAD_REASON: Attribute =
    shown(Key::Reason, "REASON", "Reason code of the label; blank for a message that a client rejected.");
static CAUSE: Attribute = shown(Key::Cause, "CAUSE", "Sub-reason of the label.");
static DETAILS: Attribute = shown(Key::Details, "DETAILS", "Detail of the label.");
static DEAD_QUEUE: Attribute = shown(Key::Origin, "DESTQ", "The queue that the message was on, or for.");
static DEAD_MANAGER: Attribute =
    shown(Key::OriginManager, "DESTQM", "The queue manager of that queue, where it may be another one.");
static PUTUSER: Attribute = shown(Key::PutUser, "USERID", "Who put it.");
static PERSIST: Attribute = shown(Key::Persistence, "PERSIST", "Whether it is persistent: YES or NO.");
static PUTDATE: Attribute = shown(Key::PutDate, "PUTDATE", "Date of its first put, UTC.");
static PUTTIME: Attribute = shown(Key::PutTime, "PUTTIME", "Time of its first put, UTC.");

/// Messages go.
pub(crate) const CLEAR: Command = Command {
    act: Act::Does(Doing::ClearLocal),
    verb: "CLEAR",
    noun: "QLOCAL",
    name: NameUse::One,
    object: "queue",
    summary: "Remove every message from a local queue that no link has open.",
    options: &[],
    attributes: &[],
    examples: &["CLEAR QLOCAL(ORDERS)"],
    since: V1,
};

/// Messages go back where they came from.
pub(crate) const REPLAY: Command = Command {
    act: Act::Does(Doing::ReplayLocal),
    verb: "REPLAY",
    noun: "QLOCAL",
    name: NameUse::One,
    object: "queue",
    summary: "Put messages back on the queues that they were moved from because they were defective or \
     undeliverable, each exactly once.",
    options: &[&ORIGIN, &COUNT, &MSGNUM, &TO, &HEADER, &DISCARD],
    attributes: &[],
    examples: &[
        "REPLAY QLOCAL(SYSTEM.PROTECTION.ERROR.QUEUE)",
        "REPLAY QL(SYSTEM.DEAD.LETTER.QUEUE) QUEUE(ORDERS) COUNT(10)",
        "REPLAY QL(SYSTEM.DEAD.LETTER.QUEUE) MSGNUM(1099511627778) TO(REJECTED) HEADER(YES)",
    ],
    since: V1,
};

/// Messages are opened and sealed anew.
pub(crate) const RESEAL: Command = Command {
    act: Act::Does(Doing::ResealLocal),
    verb: "RESEAL",
    noun: "QLOCAL",
    name: NameUse::One,
    object: "queue",
    summary: "Open sealed messages of a local queue with keys that are here, and seal them anew under the policy in \
     force, each at its own place: names, order, times and properties stay. The row says how many were sealed \
     (SEALED), looked at, locked (BUSY), got meanwhile (GONE), CLEAR, or stay as they are (FAILED, by CAUSES), with \
     which keys, and where the next command goes on (AFTER). `bulla reseal` gives these commands for a whole queue.",
    options: &[&RESEAL_SELECT, &RESEAL_NEEDS, &RESEAL_READER, &RESEAL_FORMER, &RESEAL_COUNT, &RESEAL_AFTER],
    attributes: &[],
    examples: &[
        "RESEAL QLOCAL(ORDERS)",
        "RESEAL QL(ORDERS) NEEDS('3839fb284694bbb2c380aa6d0c33ebec') READER('billing')",
        "RESEAL QL(ORDERS) SELECT(ALL) FORMER(ORDERS.FORMER) COUNT(50)",
    ],
    since: V1,
};

/// What the labels of messages say.
pub(crate) const DISPLAY_DEAD_LETTERS: Command = Command {
    act: Act::Does(Doing::DisplayDeadLetters),
    verb: "DISPLAY",
    noun: "DEADMSG",
    name: NameUse::One,
    object: "queue",
    summary: "Show what lies on an error or dead-letter queue and can be got, oldest first: what its labels say. \
     `bulla dlq` deals with it by rules.",
    options: &[&COUNT, &AFTER, &WHERE, &ALL],
    attributes: &[
        &MSGNUM_SHOWN,
        &DEAD_REASON,
        &CAUSE,
        &DETAILS,
        &DEAD_QUEUE,
        &DEAD_MANAGER,
        &PUTUSER,
        &PERSIST,
        &BYTES,
        &PUTDATE,
        &PUTTIME,
    ],
    examples: &[
        "DISPLAY DEADMSG(SYSTEM.DEAD.LETTER.QUEUE)",
        "DIS DM(SYSTEM.DEAD.LETTER.QUEUE) WHERE(REASON EQ 2053) COUNT(10)",
        "DIS DM(SYSTEM.DEAD.LETTER.QUEUE) AFTER(1099511627778)",
    ],
    since: V1,
};
