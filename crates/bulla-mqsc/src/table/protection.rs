//! What protection did: the counters of DISPLAY POLSTATUS, which DISPLAY CHSTATUS shows of a channel.

use super::{Attribute, Key, NOTMINE, SINCE, TAKEN, shown};

macro_rules! counters {
    ($($name:ident $key:ident $keyword:literal $doc:literal;)*) => {
        $(pub(in super::super) static $name: Attribute = shown(Key::$key, $keyword, $doc);)*
    };
}

counters! {
    SEALED Sealed "SEALED" "Messages that the queue manager sealed.";
    OPENED Opened "OPENED" "Messages that the queue manager opened for readers, browsed ones included.";
    CHECKED Checked "CHECKED" "Messages that arrived sealed, were looked at and found good.";
    TOLERATED Tolerated "TOLERATED" "Clear messages that TOLERATE(YES) let through to readers.";
    QUARANT Quarantined "QUARANT" "Messages moved to the error queue.";
    KEYGENS ContentKeys "KEYGENS" "Content keys made.";
    WRAPS Wraps "WRAPS" "Content keys wrapped, once for each recipient; ephemeral keys agreed on included.";
    UNWRAPS Unwraps "UNWRAPS" "Content keys unwrapped, derivations (ECDH) included.";
    SIGNS Signs "SIGNS" "Signatures made.";
    VERIFIES Verifies "VERIFIES" "Signatures verified, good and bad ones.";
    KEYHITS KeyCacheHits "KEYHITS" "Messages opened without an unwrap of their own: another message's had their content key.";
    CLEARIN ClearBytesIn "CLEARIN" "Bytes of payload given to be sealed.";
    SEALOUT SealedBytesOut "SEALOUT" "Bytes of sealed messages made of it.";
    SEALIN SealedBytesIn "SEALIN" "Bytes of sealed messages given to be opened or checked.";
    CLEAROUT ClearBytesOut "CLEAROUT" "Bytes of payload found in them. One that is encrypted and only checked has none.";
    DEVJOBS DeviceJobs "DEVJOBS" "Times that a message waited for an operation with a key, on whatever device.";
    DEVWAIT DeviceWait "DEVWAIT" "Microseconds from there to the answer, in line and in service, all together.";
    DEVWMAX DeviceWaitMax "DEVWMAX" "The longest of them, in microseconds.";
    FAILURES Failures "FAILURES" "Messages refused or not opened for their seal, keys or policy; counted at each attempt.";
    FAILBY FailuresByCause "FAILBY" "The same as CAUSE=NUMBER, by the causes that the refusals give.";
}

/// What DISPLAY POLSTATUS shows.
pub(super) const POLICY_STATUS: &[&Attribute] = &[
    &SINCE, &TAKEN, &SEALED, &OPENED, &CHECKED, &TOLERATED, &NOTMINE, &QUARANT, &KEYGENS, &WRAPS, &UNWRAPS, &SIGNS,
    &VERIFIES, &KEYHITS, &CLEARIN, &SEALOUT, &SEALIN, &CLEAROUT, &DEVJOBS, &DEVWAIT, &DEVWMAX, &FAILURES, &FAILBY,
];
