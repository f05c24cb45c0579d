//! The table's attributes of lockouts.

use super::{Attribute, Key, Kind, attribute, shown};

/// Longest address in characters: IPv6 written out.
const ADDRESS_CHARS_MAX: usize = 45;

static TYPE: Attribute = shown(
    Key::LockoutKind,
    "TYPE",
    "Which attempts are refused. USER: the user's, from the address. ADDRESS: all from the address, except those of \
     users known there. GUARD: none; the user has one attempt from each address where it is not known.",
);
static SHOWN_ADDRESS: Attribute =
    shown(Key::LockoutAddress, "ADDRESS", "The address, of IPv6 the first 64 bits; empty for GUARD.");
static SECONDS: Attribute = shown(Key::LockoutSeconds, "SECONDS", "Seconds until it ends by itself.");
static COUNT: Attribute =
    shown(Key::LockoutCount, "COUNT", "How many there were one after the other, this one included: each is longer.");
static ADDRESS: Attribute = attribute(
    Key::FromAddress,
    "ADDRESS",
    Kind::Text { chars_max: ADDRESS_CHARS_MAX },
    "",
    "Only those of this address, as DISPLAY LOCKOUT shows it.",
);

/// DISPLAY LOCKOUT: what it shows.
pub(super) const STATUS: &[&Attribute] = &[&TYPE, &SHOWN_ADDRESS, &SECONDS, &COUNT];
/// RESET LOCKOUT: what steers it.
pub(super) const OPTIONS: &[&Attribute] = &[&ADDRESS];
