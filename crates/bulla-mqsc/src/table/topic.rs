//! The table's attributes of subscriptions, and of how topics and subscriptions stand.

use super::{Attribute, CURDEPTH, DESCR, IPPROCS, Key, Kind, attribute, shown, words};
use bulla_catalog::topic_names::{CONTAINER_CHARS_MAX, TOPIC_BYTES_MAX};

/// Longest SELECTOR in characters: a selector's bytes.
const SELECTOR_CHARS_MAX: usize = bulla_catalog::selector::SELECTOR_BYTES_MAX;
/// Longest SUBUSER in characters.
const USER_CHARS_MAX: usize = bulla_catalog::names::USER_NAME_BYTES_MAX;

static SUB_TOPICSTR: Attribute = attribute(
    Key::TopicString,
    "TOPICSTR",
    Kind::Text { chars_max: TOPIC_BYTES_MAX },
    "' '",
    "The topic, or, with TOPICOBJ, what is below its topic. A level + stands for any one level, a level # for any number of them.",
);
static TOPICOBJ: Attribute = attribute(
    Key::TopicObject,
    "TOPICOBJ",
    Kind::Name { optional: true },
    "' '",
    "A topic object, whose TOPICSTR is the beginning of the topic.",
);
static DEST: Attribute = attribute(
    Key::Destination,
    "DEST",
    Kind::Name { optional: true },
    "' '",
    "The queue that publications are put on: a local queue, an alias or a remote queue. Its policy protects them. Needed.",
);
static DESTCLAS: Attribute = attribute(
    Key::DestinationClass,
    "DESTCLAS",
    words(&["PROVIDED", "MANAGED"]),
    "PROVIDED",
    "MANAGED: the queue was made for this subscription, which is an application's, and goes with it.",
);
static SELECTOR: Attribute = attribute(
    Key::Selector,
    "SELECTOR",
    Kind::Text { chars_max: SELECTOR_CHARS_MAX },
    "' '",
    "Which publications are wanted; blank for all.",
);
static SUBUSER: Attribute = attribute(
    Key::SubscriptionUser,
    "SUBUSER",
    Kind::Text { chars_max: USER_CHARS_MAX },
    "' '",
    "The user who owns the subscription: no other user may get from it by its name. Blank for a client that has not signed in, and for a subscription that an administrator made.",
);
static SUBSHARE: Attribute = attribute(
    Key::SubscriptionShare,
    "SUBSHARE",
    words(&["NO", "YES"]),
    "NO",
    "Whether several links may get from an application's subscription at the same time.",
);
static NOTFROM: Attribute = attribute(
    Key::NotFrom,
    "NOTFROM",
    Kind::Text { chars_max: CONTAINER_CHARS_MAX },
    "' '",
    "The container id of a client whose own publications are left out (noLocal); blank for none.",
);
static SUBMODEL: Attribute = attribute(
    Key::SubscriptionModel,
    "SUBMODEL",
    Kind::Name { optional: true },
    "' '",
    "Of a MANAGED queue the model that it was made of, whose policy protects the publications.",
);

static STATUS_TOPICSTR: Attribute = shown(Key::TopicString, "TOPICSTR", "The topic, wildcards included.");
static DURABLE: Attribute = shown(Key::Durable, "DURABLE", "YES where it outlives its links.");
static SUBTYPE: Attribute =
    shown(Key::SubscriptionType, "SUBTYPE", "ADMIN of one that an administrator made, API of an application's.");
static STATUS_SUBUSER: Attribute =
    shown(Key::SubscriptionUser, "SUBUSER", "Whose it is; blank for one that has not signed in, and for ADMIN.");
static STATUS_DEST: Attribute = shown(Key::Destination, "DEST", "The queue that publications are put on.");
static NUMMSGS: Attribute =
    shown(Key::MessagesPublished, "NUMMSGS", "Publications put on its queue since the start of the queue manager.");
static LMSGDATE: Attribute = shown(Key::LastMessageDate, "LMSGDATE", "Date of the last of them, UTC.");
static LMSGTIME: Attribute = shown(Key::LastMessageTime, "LMSGTIME", "Time of the last of them, UTC.");
static RESMDATE: Attribute = shown(
    Key::ResumeDate,
    "RESMDATE",
    "Date on which a link last came to it since the start, UTC; blank for never, and for ADMIN.",
);
static RESMTIME: Attribute =
    shown(Key::ResumeTime, "RESMTIME", "Time at which a link last came to it since the start, UTC.");
static ADMIN: Attribute = shown(Key::TopicAdmin, "ADMIN", "The topic object of that very topic; blank for none.");
static PUBCOUNT: Attribute = shown(
    Key::PublisherCount,
    "PUBCOUNT",
    "Links on which it is published. Links to no address, whose messages each name theirs, are not counted.",
);
static SUBCOUNT: Attribute = shown(
    Key::SubscriberCount,
    "SUBCOUNT",
    "Subscriptions to it as it is written: one with wildcards counts for the topic with these wildcards.",
);
static STATUS_PUB: Attribute = shown(Key::Publish, "PUB", "Whether applications may publish.");
static STATUS_SUB: Attribute = shown(Key::Subscribe, "SUB", "Whether applications may subscribe.");
static STATUS_DURSUB: Attribute =
    shown(Key::DurableSubscriptions, "DURSUB", "Whether durable subscriptions may be made.");
static STATUS_DEFPRTY: Attribute =
    shown(Key::DefaultPriority, "DEFPRTY", "Priority of a publication that comes without an AMQP header.");
static STATUS_DEFPSIST: Attribute = shown(
    Key::DefaultPersistence,
    "DEFPSIST",
    "Whether a publication that comes without an AMQP header is persistent.",
);
static STATUS_PMSGDLV: Attribute =
    shown(Key::PersistentDelivery, "PMSGDLV", "Which subscriptions must take a persistent publication.");
static STATUS_NPMSGDLV: Attribute =
    shown(Key::NonPersistentDelivery, "NPMSGDLV", "Which must take one that is not persistent.");
static STATUS_MDURMDL: Attribute =
    shown(Key::DurableModel, "MDURMDL", "The model of the queues of durable subscriptions.");
static STATUS_MNDURMDL: Attribute = shown(Key::NonDurableModel, "MNDURMDL", "The model of the queues of others.");

/// Subscriptions.
pub(super) const SUBSCRIPTION: &[&Attribute] =
    &[&SUB_TOPICSTR, &TOPICOBJ, &DEST, &DESTCLAS, &SELECTOR, &DESCR, &SUBUSER, &SUBSHARE, &NOTFROM, &SUBMODEL];
/// DISPLAY SBSTATUS: what it shows.
pub(super) const SUBSCRIPTION_STATUS: &[&Attribute] = &[
    &STATUS_TOPICSTR,
    &DURABLE,
    &SUBTYPE,
    &STATUS_SUBUSER,
    &STATUS_DEST,
    &CURDEPTH,
    &IPPROCS,
    &NUMMSGS,
    &LMSGDATE,
    &LMSGTIME,
    &RESMDATE,
    &RESMTIME,
];
/// DISPLAY TPSTATUS: what it shows.
pub(super) const TOPIC_STATUS: &[&Attribute] = &[
    &ADMIN,
    &PUBCOUNT,
    &SUBCOUNT,
    &STATUS_PUB,
    &STATUS_SUB,
    &STATUS_DURSUB,
    &STATUS_DEFPRTY,
    &STATUS_DEFPSIST,
    &STATUS_PMSGDLV,
    &STATUS_NPMSGDLV,
    &STATUS_MDURMDL,
    &STATUS_MNDURMDL,
];
