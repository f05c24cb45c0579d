//! The table's attributes of clients' addresses.

use super::{Attribute, Key, Kind, attribute, words};
use bulla_catalog::names::NAME_CHARS_MAX;
use bulla_catalog::topic_names::TOPIC_BYTES_MAX;

static QUEUE: Attribute = attribute(
    Key::MappedQueue,
    "QUEUE",
    Kind::Text { chars_max: NAME_CHARS_MAX },
    "",
    "The queue, alias or remote queue that the address stands for; a * is what the address's * stands for.",
);
static TOPIC: Attribute = attribute(
    Key::MappedTopic,
    "TOPIC",
    Kind::Text { chars_max: TOPIC_BYTES_MAX },
    "",
    "The topic that the address stands for, instead of QUEUE.",
);
/// What SET ADDRMAP does with the entry.
pub(super) static ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["ADD", "REMOVE"]),
    "ADD",
    "ADD: a new entry, or another meaning of one. REMOVE: the entry goes.",
);

/// What an address stands for.
pub(super) const ADDRESS_MAP: &[&Attribute] = &[&QUEUE, &TOPIC];
