//! The table's attributes of log-ins over HTTP.

use super::{Attribute, Key, Kind, attribute, shown};

static NUMBER: Attribute =
    shown(Key::Own("NUMBER"), "NUMBER", "Which log-in: they are numbered from the start of the queue manager on.");
static SINCE: Attribute = shown(Key::Own("SINCE"), "SINCE", "When it began, UTC.");
static USED: Attribute = shown(Key::Own("USED"), "USED", "When it was used last, UTC.");
static UNTIL: Attribute = shown(Key::Own("UNTIL"), "UNTIL", "When it ends unless it is used before, UTC.");
static CONNAME: Attribute = shown(Key::ConnectionAddress, "CONNAME", "The address from which it was used last.");
static TLS: Attribute =
    shown(Key::Own("TLS"), "TLS", "YES: it began over TLS, and is taken over TLS alone. NO: without TLS.");
static WHICH: Attribute = attribute(
    Key::Own("NUMBER"),
    "NUMBER",
    Kind::Number { min: 1, max: u64::MAX },
    "",
    "Only that one, by its number in DISPLAY LOGIN.",
);

/// DISPLAY LOGIN: what it shows.
pub(super) const STATUS: &[&Attribute] = &[&NUMBER, &SINCE, &USED, &UNTIL, &CONNAME, &TLS];
/// STOP LOGIN: what steers it.
pub(super) const OPTIONS: &[&Attribute] = &[&WHICH];
