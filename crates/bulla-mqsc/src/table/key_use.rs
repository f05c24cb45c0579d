//! The table's attributes of what messages need.

use super::{Attribute, Key, shown};

static MSGS: Attribute = shown(
    Key::Own("MSGS"),
    "MSGS",
    "Messages on the queue that the key opens, those under delivery included. One with several recipients counts with \
     each of their keys.",
);
static INUOW: Attribute =
    shown(Key::Own("INUOW"), "INUOW", "Messages put for the queue in units of work that are not committed.");
static BYTES: Attribute = shown(Key::Bytes, "BYTES", "Bytes of the messages that MSGS counts, as stored.");
static MSGAGE: Attribute = shown(
    Key::MessageAge,
    "MSGAGE",
    "Age of the oldest of them in seconds; blank where none is on the queue. Where more than ten thousand others lie \
     before it, a first answer is older than that; asking again comes nearer.",
);
static USER: Attribute = shown(Key::Own("USER"), "USER", "Users whose rings here have the private key.");
static KEYHERE: Attribute = shown(
    Key::Own("KEYHERE"),
    "KEYHERE",
    "YES: a ring here has the private key. LOCKED: one has it that can't be read, for want of a passphrase or because \
     a file is damaged. NO: none has it. UNKNOWN: it is not known which key the messages need, so each key may be \
     needed: an earlier version put them and they were not read yet, their seal can't be read here, or they have more \
     sets of recipients than are counted.",
);
static SUBJECT: Attribute =
    shown(Key::Own("SUBJECT"), "SUBJECT", "The subject of the key's certificate; blank where no ring here has that.");
static ISSUER: Attribute = shown(Key::Own("ISSUER"), "ISSUER", "Who issued the certificate.");
static SERIAL: Attribute = shown(Key::Own("SERIAL"), "SERIAL", "Its serial number, hexadecimal.");
static KEYID: Attribute = shown(
    Key::Own("KEYID"),
    "KEYID",
    "The key identifier, hexadecimal, where messages name the key by that and not by its certificate.",
);
static VALIDTO: Attribute =
    shown(Key::Own("VALIDTO"), "VALIDTO", "Until when the certificate is valid, UTC; blank where no ring here has it.");

/// DISPLAY KEYUSE: what it shows.
pub(super) const STATUS: &[&Attribute] =
    &[&MSGS, &INUOW, &BYTES, &MSGAGE, &USER, &KEYHERE, &SUBJECT, &ISSUER, &SERIAL, &KEYID, &VALIDTO];
