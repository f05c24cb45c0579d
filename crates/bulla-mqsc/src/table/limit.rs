//! The table's attributes of users' limits.

use super::{ALL, Attribute, Key, Kind, WHERE, attribute, shown};
use bulla_catalog::limits::{
    CONNECTIONS_DEFAULT, KEPT_OBJECTS_DEFAULT, KEY_TIME_MAX, LINKS_DEFAULT, RATE_MAX, TEMPORARY_DEFAULT,
};

/// Highest counts, as MQ has them.
pub(crate) const COUNT_MAX: u64 = 999_999_999;
/// Highest UNACKED: a tebibyte.
pub(crate) const BYTES_MAX: u64 = 1 << 40;

static MAXCONNS: Attribute = attribute(
    Key::UserConnections,
    "MAXCONNS",
    Kind::Number { min: 0, max: COUNT_MAX },
    "5000",
    "Most connections of one user; 0 for no limit. One more is refused with 2025 user-connections.",
);
static MAXHANDS: Attribute = attribute(
    Key::UserLinks,
    "MAXHANDS",
    Kind::Number { min: 0, max: COUNT_MAX },
    "20000",
    "Most links of one user, on all its connections together; 0 for no limit. One more is refused with 2017 user-links.",
);
static UNACKED: Attribute = attribute(
    Key::UserUnacknowledged,
    "UNACKED",
    Kind::Number { min: 0, max: BYTES_MAX },
    "0",
    "Bytes of messages delivered to one user and not settled, from which on it is sent no more until it settles some; 0 for no limit.",
);
static MSGRATE: Attribute = attribute(
    Key::UserRate,
    "MSGRATE",
    Kind::Number { min: 0, max: RATE_MAX as u64 },
    "0",
    "Messages that one user may put a second, by all its links; 0 for no limit. Beyond it credit is held back: nothing is refused, nothing lost.",
);
static SEALTIME: Attribute = attribute(
    Key::UserKeyTime,
    "SEALTIME",
    Kind::Number { min: 0, max: KEY_TIME_MAX as u64 },
    "0",
    "Milliseconds a second that devices and the processor may spend on private keys to seal and open one user's messages; 0 for turns with the others alone. Beyond it its messages wait.",
);
static MAXSUBS: Attribute = attribute(
    Key::UserSubscriptions,
    "MAXSUBS",
    Kind::Number { min: 0, max: COUNT_MAX },
    KEPT_TEXT,
    "Most durable subscriptions that one user's applications may have; 0 for no limit. One more is refused with 2017 user-subscriptions.",
);
static MAXDYNQ: Attribute = attribute(
    Key::UserDynamicQueues,
    "MAXDYNQ",
    Kind::Number { min: 0, max: COUNT_MAX },
    KEPT_TEXT,
    "Most permanent dynamic queues that one user's applications may have; 0 for no limit. One more is refused with 2017 user-dynamic-queues.",
);
static MAXTMPQ: Attribute = attribute(
    Key::UserTemporaryQueues,
    "MAXTMPQ",
    Kind::Number { min: 0, max: COUNT_MAX },
    KEPT_TEXT,
    "Most temporary queues that one user's links may have; 0 for no limit. One more is refused with 2017 user-temporary-queues.",
);
static MAXNDSUB: Attribute = attribute(
    Key::UserNonDurable,
    "MAXNDSUB",
    Kind::Number { min: 0, max: COUNT_MAX },
    KEPT_TEXT,
    "Most subscriptions that are not durable of one user's links; 0 for no limit. One more is refused with 2017 user-non-durable-subscriptions.",
);
/// What MAXSUBS, MAXDYNQ, MAXTMPQ and MAXNDSUB are by themselves.
const KEPT_TEXT: &str = "1000";
const _: () = assert!(KEPT_OBJECTS_DEFAULT == 1_000 && TEMPORARY_DEFAULT == 1_000, "the text says the number");
const _: () = assert!(CONNECTIONS_DEFAULT == 5_000 && LINKS_DEFAULT == 20_000, "the texts say the numbers");
static LIMIT: Attribute = shown(Key::UserLimit, "LIMIT", "The limit that holds for the user; empty for none.");
static CURCONNS: Attribute = shown(Key::UserConnectionsNow, "CURCONNS", "Connections of the user.");
static CURHANDS: Attribute = shown(Key::UserLinksNow, "CURHANDS", "Links on them that put, get, browse or coordinate.");
static CURUNACK: Attribute = shown(
    Key::UserUnacknowledgedNow,
    "CURUNACK",
    "Bytes delivered and not settled; counted from when UNACKED limits them.",
);
static CURSUBS: Attribute =
    shown(Key::UserSubscriptionsNow, "CURSUBS", "Durable subscriptions that the user's applications have.");
static CURDYNQ: Attribute =
    shown(Key::UserDynamicQueuesNow, "CURDYNQ", "Permanent dynamic queues that the user's applications have.");
static CURTMPQ: Attribute =
    shown(Key::UserTemporaryQueuesNow, "CURTMPQ", "Temporary queues that the user's links have.");
static CURNDSUB: Attribute =
    shown(Key::UserNonDurableNow, "CURNDSUB", "Subscriptions of the user's links that are not durable.");
static HELDBACK: Attribute =
    shown(Key::UserHeldBack, "HELDBACK", "How often MSGRATE left a link less credit than it could have had.");
static REFUSED: Attribute =
    shown(Key::UserRefused, "REFUSED", "Connections, links, subscriptions and queues refused because of the limit.");

pub(super) static QUEUE_CURUNACK: Attribute = shown(
    Key::QueueUnacknowledgedNow,
    "CURUNACK",
    "Bytes delivered to clients and not settled; counted from when UNACKED limits them.",
);
pub(super) static QUEUE_HELDBACK: Attribute = shown(
    Key::QueueHeldBack,
    "HELDBACK",
    "How often MSGRATE of the queue left a link less credit than it could have had, since the start.",
);
pub(super) static QUEUE_REFUSED: Attribute = shown(
    Key::QueueRefused,
    "REFUSED",
    "Links refused because of the queue's MAXHANDS, and messages because of its MSGRATE, since the start.",
);

static SEALUSED: Attribute = shown(
    Key::UserKeyTimeTaken,
    "SEALUSED",
    "Milliseconds that private keys took for the user's messages; counted from when SEALTIME limits them.",
);
static SEALHELD: Attribute =
    shown(Key::UserKeyTimeUsedUp, "SEALHELD", "How often SEALTIME was used up, so that the user's messages waited.");

/// SET LIMIT, and what DISPLAY LIMIT shows.
pub(super) const LIMITS: &[&Attribute] =
    &[&MAXCONNS, &MAXHANDS, &UNACKED, &MSGRATE, &SEALTIME, &MAXSUBS, &MAXDYNQ, &MAXTMPQ, &MAXNDSUB];
/// DISPLAY: what steers it.
pub(super) const OPTIONS: &[&Attribute] = &[&WHERE, &ALL];
/// DISPLAY LIMITSTATUS: what it shows.
pub(super) const STATUS: &[&Attribute] = &[
    &LIMIT, &CURCONNS, &CURHANDS, &CURUNACK, &HELDBACK, &REFUSED, &SEALUSED, &SEALHELD, &CURSUBS, &CURDYNQ, &CURTMPQ,
    &CURNDSUB,
];
