//! The table's attributes of changes of keys.

use super::{Attribute, BYTES, Key, shown};

static STEP: Attribute = shown(
    Key::Own("STEP"),
    "STEP",
    "The last step that was done. BEGUN, KEYED: the new key is not in use. INSTALLED: it opens. SHARED: it seals, and the \
     old one opens. WITHDRAWN: the overlap is over, and the old key goes when nothing needs it. RETIRED, STRANDED, \
     CANCELLED: it is over, and the audit log is about to have it.",
);
static STEPTIME: Attribute = shown(Key::Own("STEPTIME"), "STEPTIME", "When that was, UTC.");
static OVERLAP: Attribute = shown(
    Key::Own("OVERLAP"),
    "OVERLAP",
    "Until when the old key is kept in any case, UTC; blank while the new one is not shared.",
);
static MSGS: Attribute =
    shown(Key::Own("MSGS"), "MSGS", "Messages on queues that the old key opens, those under delivery included.");
static INUOW: Attribute =
    shown(Key::Own("INUOW"), "INUOW", "Messages that need the old key in units of work that are not committed.");
static UNKNOWN: Attribute = shown(
    Key::Own("UNKNOWN"),
    "UNKNOWN",
    "Messages of which it is not known what opens them. Any of them may need the old key, so it stays.",
);
static ATBEGIN: Attribute = shown(
    Key::Own("ATBEGIN"),
    "ATBEGIN",
    "How many messages needed the old key when the new one was shared, or when a queue manager first saw that it was.",
);
static QUEUES: Attribute = shown(Key::Own("QUEUES"), "QUEUES", "The queues that these messages are on, or are put on.");
static SUBJECT: Attribute = shown(Key::Own("SUBJECT"), "SUBJECT", "The subject of the user's certificates.");
static OLDISSUER: Attribute = shown(Key::Own("OLDISSUER"), "OLDISSUER", "Who issued the old certificate.");
static OLDSERIAL: Attribute = shown(Key::Own("OLDSERIAL"), "OLDSERIAL", "Its serial number, hexadecimal.");
static OLDKEYID: Attribute = shown(Key::Own("OLDKEYID"), "OLDKEYID", "The old key's identifier, hexadecimal.");
static NEWISSUER: Attribute =
    shown(Key::Own("NEWISSUER"), "NEWISSUER", "Who issued the new certificate; blank while there is none.");
static NEWSERIAL: Attribute = shown(Key::Own("NEWSERIAL"), "NEWSERIAL", "Its serial number, hexadecimal.");
static NEWKEYID: Attribute = shown(Key::Own("NEWKEYID"), "NEWKEYID", "The new key's identifier, hexadecimal.");
static NEWREAD: Attribute = shown(
    Key::Own("NEWREAD"),
    "NEWREAD",
    "Whether the queue manager opens with the new key from now on. `bulla key rotate` shares its certificate only \
     then.",
);

/// DISPLAY KEYROTATE: what it shows.
pub(super) const STATUS: &[&Attribute] = &[
    &STEP, &STEPTIME, &OVERLAP, &MSGS, &INUOW, &UNKNOWN, &BYTES, &QUEUES, &ATBEGIN, &SUBJECT, &OLDISSUER, &OLDSERIAL,
    &OLDKEYID, &NEWISSUER, &NEWSERIAL, &NEWKEYID, &NEWREAD,
];
