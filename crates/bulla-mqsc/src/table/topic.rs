//! The table's attributes of how topics and subscriptions stand.

use super::{Attribute, CURDEPTH, IPPROCS, Key, shown};

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
