//! The table's attributes of what messages are sealed with.

use super::{Attribute, Key, Kind, WHERE, attribute, shown};
use crate::table::ALL;
use bulla_catalog::DEPTH_MAX;

static MESSAGES: Attribute = attribute(
    Key::Looked,
    "MESSAGES",
    Kind::Number { min: 0, max: DEPTH_MAX },
    "1000",
    "Look at so many messages of each queue, the first ones. No message is opened.",
);
static MSGS: Attribute = shown(Key::Own("MSGS"), "MSGS", "Messages that are protected so.");
static PROTECTED: Attribute = shown(
    Key::Own("PROTECTED"),
    "PROTECTED",
    "How they are protected, as far as it shows. CLEAR: not. INTEGRITY: signed. CONFIDENTIALITY: encrypted, by its own \
     word not signed. ENCRYPTED: encrypted, and whether a signature is inside does not show; so are messages of \
     privacy. OTHER: in more ways than are told apart. DEFECTIVE: they claim a seal and are damaged. UNREADABLE: the \
     journal can't read them. NOTLOOKED: not looked at.",
);
static SIGNKEYS: Attribute = shown(
    Key::Own("SIGNKEYS"),
    "SIGNKEYS",
    "Kinds of keys that signed, with their digest: 'rsa2048 SHA256'. A signature inside an envelope does not show.",
);
static RECIPKEYS: Attribute = shown(
    Key::Own("RECIPKEYS"),
    "RECIPKEYS",
    "Kinds of keys that open them: 'rsa2048 OAEP', 'p256', 'ml-kem-768'. Each opens them alone.",
);
static CIPHER: Attribute = shown(Key::Own("CIPHER"), "CIPHER", "The content cipher, as ENCALG of a policy has it.");
static CAUSE: Attribute = shown(Key::Own("CAUSE"), "CAUSE", "Why they are DEFECTIVE.");

/// DISPLAY ALGUSE: what steers it.
pub(super) const OPTIONS: &[&Attribute] = &[&MESSAGES, &WHERE, &ALL];
/// DISPLAY ALGUSE: what it shows.
pub(super) const STATUS: &[&Attribute] = &[&MSGS, &PROTECTED, &SIGNKEYS, &RECIPKEYS, &CIPHER, &CAUSE];
