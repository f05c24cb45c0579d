//! The table's attributes of what goes on at local queues.

use super::{Attribute, Key, shown};

pub(crate) static IPPROCS: Attribute = shown(Key::OpenInput, "IPPROCS", "Links that get from the queue.");
pub(crate) static OPPROCS: Attribute = shown(Key::OpenOutput, "OPPROCS", "Links that put on the queue.");
pub(crate) static UNCOM: Attribute = shown(
    Key::Uncommitted,
    "UNCOM",
    "Messages put or got and not yet settled: under delivery, in an open unit of work, or not yet synced.",
);
pub(crate) static MSGAGE: Attribute =
    shown(Key::MessageAge, "MSGAGE", "Age of the oldest message in seconds; blank on an empty queue.");
pub(crate) static LPUTDATE: Attribute =
    shown(Key::LastPutDate, "LPUTDATE", "Date of the last put since the start, UTC.");
pub(crate) static LPUTTIME: Attribute =
    shown(Key::LastPutTime, "LPUTTIME", "Time of the last put since the start, UTC.");
pub(crate) static LGETDATE: Attribute =
    shown(Key::LastGetDate, "LGETDATE", "Date of the last get since the start, UTC.");
pub(crate) static LGETTIME: Attribute =
    shown(Key::LastGetTime, "LGETTIME", "Time of the last get since the start, UTC.");
pub(crate) static BYTES: Attribute = shown(Key::Bytes, "BYTES", "Bytes of all messages on the queue, as stored.");
pub(crate) static PUTS: Attribute = shown(Key::Puts, "PUTS", "Messages put since the start.");
pub(crate) static GETS: Attribute = shown(Key::Gets, "GETS", "Messages got since the start.");
pub(crate) static EXPIRED: Attribute = shown(Key::Expired, "EXPIRED", "Messages that expired since the start.");
pub(crate) static NOTMINE: Attribute = shown(
    Key::NotMine,
    "NOTMINE",
    "Times that a sealed message was passed over since the start, because it is addressed to another recipient.",
);
pub(crate) static STRANDED: Attribute = shown(
    Key::Own("STRANDED"),
    "STRANDED",
    "Messages that no key ring here can open, as it was found within the last minute; DISPLAY KEYUSE says by which key. \
     Those are left out whose recipients keep their keys elsewhere (KEYAWAY and SEALEDAT(CLIENT) of policies), and \
     those on transmission queues.",
);
pub(crate) static STRANDBY: Attribute = shown(
    Key::Own("STRANDBY"),
    "STRANDBY",
    "The same as CAUSE=NUMBER: no-key, no key ring has a key; locked, one has it and can't be read.",
);
pub(crate) static OPOPENS: Attribute = shown(
    Key::OutputOpens,
    "OPOPENS",
    "Times that the queue was opened to put since the start; less OPPROCS, times that it was closed.",
);
pub(crate) static IPOPENS: Attribute = shown(
    Key::InputOpens,
    "IPOPENS",
    "Times that it was opened to get or browse since the start, by channels too; less IPPROCS, times that it was \
     closed.",
);
pub(crate) static PUT1S: Attribute = shown(
    Key::SinglePuts,
    "PUT1S",
    "Of PUTS, messages that came on a link to no queue in particular (the anonymous terminus, MQPUT1).",
);
pub(crate) static PPUTS: Attribute = shown(Key::PersistentPuts, "PPUTS", "Of PUTS, persistent messages.");
pub(crate) static PGETS: Attribute = shown(Key::PersistentGets, "PGETS", "Of GETS, persistent messages.");
pub(crate) static BROWSES: Attribute = shown(Key::Browses, "BROWSES", "Messages sent to links that browse.");
pub(crate) static PUTBYTES: Attribute = shown(Key::BytesPut, "PUTBYTES", "Bytes of the messages put, as stored.");
pub(crate) static GETBYTES: Attribute = shown(Key::BytesGot, "GETBYTES", "Bytes of the messages got, as stored.");
pub(crate) static MINMSG: Attribute =
    shown(Key::ShortestMessage, "MINMSG", "Bytes of the shortest message put since the start; blank before the first.");
pub(crate) static MAXMSG: Attribute =
    shown(Key::LongestMessage, "MAXMSG", "Bytes of the longest message put since the start; blank before the first.");
pub(crate) static QTIME: Attribute = shown(
    Key::TimeOnQueue,
    "QTIME",
    "Microseconds between put and removal by a get: a short and a long average over messages that are watched, one at \
     a time. WHERE compares the short one.",
);
pub(crate) static QTIMEMAX: Attribute = shown(
    Key::LongestTimeOnQueue,
    "QTIMEMAX",
    "The longest time between put and removal by a get since the start, over all messages, in microseconds, exact to a \
     millisecond.",
);
pub(crate) static REJECTS: Attribute =
    shown(Key::Rejects, "REJECTS", "Puts that were refused since the start, those that channels brought included.");
pub(crate) static REJBY: Attribute = shown(
    Key::RejectsByReason,
    "REJBY",
    "The same as REASON=NUMBER, by MQ's reason codes; under 0 those beyond the first 31 reasons.",
);
pub(crate) static QUEUE_CURUNACK: Attribute = shown(
    Key::QueueUnacknowledgedNow,
    "CURUNACK",
    "Bytes delivered to clients and not settled; counted from when UNACKED limits them.",
);
pub(crate) static QUEUE_HELDBACK: Attribute = shown(
    Key::QueueHeldBack,
    "HELDBACK",
    "How often MSGRATE of the queue left a link less credit than it could have had, since the start.",
);
pub(crate) static QUEUE_REFUSED: Attribute = shown(
    Key::QueueRefused,
    "REFUSED",
    "Links refused because of the queue's MAXHANDS, and messages because of its MSGRATE, since the start.",
);
