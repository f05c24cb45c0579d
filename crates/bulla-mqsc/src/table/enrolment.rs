//! The table's attributes of certificates that renew by themselves.

use super::{Attribute, Key, shown};

static PLACE: Attribute = shown(
    Key::Own("PLACE"),
    "PLACE",
    "RING: in the ring of that user. SIGNER: there, for signatures alone. TLS: under tls/, of that label.",
);
static AUTHORITY: Attribute =
    shown(Key::Own("AUTHORITY"), "AUTHORITY", "The authority in enrolment.toml that is asked.");
static METHOD: Attribute = shown(
    Key::Own("METHOD"),
    "METHOD",
    "How it is asked. COMMAND: by a program. CMP: by the Certificate Management Protocol. ACME: by that protocol. SPIFFE: an agent on this machine.",
);
static STATE: Attribute = shown(
    Key::Own("STATE"),
    "STATE",
    "VALID: it is not due. DUE, MISSING: it is about to be asked for. FAILING: the last attempt failed, and WHY says of \
     what. UNDECIDED: the authority has not decided, and is asked again. SHARING: it came, and is about to be shared.",
);
static UNTIL: Attribute = shown(Key::Own("UNTIL"), "UNTIL", "Until when the certificate is valid, UTC.");
static RENEWAL: Attribute =
    shown(Key::Own("RENEWAL"), "RENEWAL", "When it is renewed, UTC; after a failure, when it is tried again.");
static TRIED: Attribute =
    shown(Key::Own("TRIED"), "TRIED", "When that was tried last since the queue manager started, UTC.");
static FAILURES: Attribute =
    shown(Key::Own("FAILURES"), "FAILURES", "Attempts that failed since the last one that went well.");
static WHY: Attribute = shown(Key::Own("WHY"), "WHY", "Why the last attempt failed.");
static SUBJECT: Attribute = shown(Key::Own("SUBJECT"), "SUBJECT", "The certificate's subject.");
static SERIAL: Attribute = shown(Key::Own("SERIAL"), "SERIAL", "Its serial number, hexadecimal.");

/// DISPLAY ENROL: what it shows.
pub(super) const STATUS: &[&Attribute] =
    &[&PLACE, &STATE, &RENEWAL, &UNTIL, &AUTHORITY, &METHOD, &TRIED, &FAILURES, &WHY, &SUBJECT, &SERIAL];
