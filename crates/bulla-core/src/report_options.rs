//! What reports a message asks for.

use crate::envelope::payload_of;
use bulla_amqp::{Payload, Sections, Value};
use bulla_queue::Chunks;

/// What the properties begin with that ask for a report.
pub const PREFIX: &str = "JMS_IBM_Report_";

/// What a message asks for: properties by their names without the prefix, as strings or as symbols; nothing where they
/// can't be read. One search for a message that asks for nothing.
pub fn asked_of(payload: &Payload, sections: &Sections) -> Vec<(String, Value)> {
    let Some(range) = &sections.application_properties else { return Vec::new() };
    if !holds(&payload.bytes_at(range.clone()), PREFIX.as_bytes()) {
        return Vec::new();
    }
    let known = Sections::decode_map(payload, Some(range)).unwrap_or_default();
    let asked =
        known.into_iter().filter_map(|(key, value)| Some((key.as_str()?.strip_prefix(PREFIX)?.to_owned(), value)));
    asked.collect()
}

/// Whether bytes hold others. A search that costs no allocation, for sections of some hundred bytes.
pub fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Whether a message asks for any report. One compare for a message without application properties.
#[inline]
pub fn asks(payload: &Payload, sections: &Sections) -> bool {
    sections.application_properties.is_some() && !asked_of(payload, sections).is_empty()
}

/// Whether a message that was found in the journal asks for reports of what becomes of it.
pub fn body_asks(body: &Chunks) -> bool {
    let payload = payload_of(body);
    let Ok(sections) = Sections::scan(&payload) else { return false };
    asks(&payload, &sections) && sections.decode_properties(&payload).is_ok()
}
