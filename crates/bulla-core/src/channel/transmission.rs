//! The transmission header: where a message on a transmission queue wants to go.
//!
//! It stands in the delivery annotations, which are for the next hop alone (AMQP part 3, section 3.2.2), so nothing
//! that a client bound, signed or reads is touched. What a client itself put into that section ends here, as the
//! standard lets it.

use bulla_amqp::message::encode_map_section;
use bulla_amqp::{BodyForm, Header, MessageBody, MessageParts, Payload, Sections, Symbol, Value};
use bulla_queue::{Chunks, Message};
use bytes::Bytes;
use std::ops::Range;

/// The one annotation: `QUEUE@QMGR`.
const DESTINATION: &str = "x-opt-bulla-destination";
/// Descriptor of the delivery annotations (AMQP part 3, section 3.2.2).
const DELIVERY_ANNOTATIONS: u8 = 0x71;
/// Longest destination in bytes that is taken from a partner: two names of MQ's length would be 97.
pub const DESTINATION_BYTES_MAX: usize = 511;

/// A queue at a queue manager.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct Destination {
    /// RNAME
    pub queue: String,
    /// RQMNAME
    pub manager: String,
}

impl Destination {
    /// From `QUEUE@QMGR`; none where either is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (queue, manager) = text.rsplit_once('@').filter(|_| text.len() <= DESTINATION_BYTES_MAX)?;
        (!queue.is_empty() && !manager.is_empty()).then(|| Self { queue: queue.into(), manager: manager.into() })
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.queue, self.manager)
    }
}

/// The header of all messages on one route, encoded once.
#[derive(Clone, Debug)]
pub struct TransmissionHeader {
    /// Where they go.
    pub destination: Destination,
    section: Bytes,
}

impl TransmissionHeader {
    /// The header for that destination.
    pub fn new(destination: Destination) -> Self {
        let mut section = Vec::new();
        let key = Value::from(Symbol::from_static(DESTINATION));
        encode_map_section(DELIVERY_ANNOTATIONS, &[(key, Value::from(destination.to_string().as_str()))], &mut section);
        Self { destination, section: section.into() }
    }

    /// The message as it lies on the transmission queue. One scan; no byte of it is copied but of the header section,
    /// which is made where there is none, because the partner's defaults are not this queue manager's.
    pub fn put_on(&self, message: Message) -> Message {
        let payload = crate::envelope::payload_of(&message.body);
        let Ok(sections) = Sections::scan(&payload) else { return message };
        let head = match &sections.header {
            Some(range) => payload.slice(range.clone()).to_contiguous(),
            None => header_section(message.persistent, message.priority),
        };
        let mut chunks = vec![head, self.section.clone()];
        chunks.extend(rest(&payload, &sections).chunks().iter().cloned());
        // What is put for later waits where it is got, not on its way.
        Message { body: Chunks::from(chunks), available_at_ms: None, ..message }
    }

    /// A payload that was opened, with the header again.
    pub fn put_before(&self, payload: &Payload) -> Payload {
        let Ok(sections) = Sections::scan(payload) else { return payload.clone() };
        let mut chunks: Vec<Bytes> = Vec::with_capacity(4);
        if let Some(range) = &sections.header {
            chunks.push(payload.slice(range.clone()).to_contiguous());
        }
        chunks.push(self.section.clone());
        chunks.extend(rest(payload, &sections).chunks().iter().cloned());
        Payload::from(chunks)
    }

    /// Bytes that the header adds to a message, at most.
    pub fn overhead(&self) -> usize {
        const HEADER_SECTION_BYTES_MAX: usize = 32;
        self.section.len() + HEADER_SECTION_BYTES_MAX
    }
}

/// Where a message wants to go; none where it does not say so in a way that is understood.
pub fn destination(payload: &Payload, sections: &Sections) -> Option<Destination> {
    let annotations = Sections::decode_map(payload, Some(sections.delivery_annotations.as_ref()?)).ok()?;
    let (_, value) = annotations.iter().find(|(key, _)| key.as_str() == Some(DESTINATION))?;
    Destination::parse(value.as_str()?)
}

/// The message without its delivery annotations, and where its sections are then: as it goes on a queue at its
/// destination. No byte is copied.
pub fn taken_off(payload: &Payload, sections: &Sections) -> (Payload, Sections) {
    let Some(annotations) = &sections.delivery_annotations else { return (payload.clone(), sections.clone()) };
    let less = annotations.len();
    let mut chunks = match &sections.header {
        Some(range) => payload.slice(range.clone()).chunks().to_vec(),
        None => Vec::new(),
    };
    chunks.extend(rest(payload, sections).chunks().iter().cloned());
    let moved = |range: &Range<usize>| range.start - less..range.end - less;
    let sections = Sections {
        header: sections.header.clone(),
        delivery_annotations: None,
        message_annotations: sections.message_annotations.as_ref().map(moved),
        properties: sections.properties.as_ref().map(moved),
        application_properties: sections.application_properties.as_ref().map(moved),
        body: match &sections.body {
            BodyForm::Data(range) => BodyForm::Data(moved(range)),
            BodyForm::Sections(range) => BodyForm::Sections(moved(range)),
            BodyForm::Empty => BodyForm::Empty,
        },
        body_range: if sections.body == BodyForm::Empty { 0..0 } else { moved(&sections.body_range) },
        footer: sections.footer.as_ref().map(moved),
    };
    (Payload::from(chunks), sections)
}

/// What follows header and delivery annotations.
fn rest(payload: &Payload, sections: &Sections) -> Payload {
    let before = [&sections.header, &sections.delivery_annotations];
    let start = before.into_iter().flatten().map(|range| range.end).max().unwrap_or(0);
    payload.slice(start..payload.len())
}

fn header_section(durable: bool, priority: u8) -> Bytes {
    let header = Header { durable, priority, ..Header::default() };
    MessageParts { header: Some(header), body: MessageBody::Sections(Payload::default()), ..Default::default() }
        .build()
        .to_contiguous()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &'static [u8]) -> Message {
        Message { priority: 7, ..Message::new(true, Bytes::from_static(body).into()) }
    }

    const DATA: &[u8] = &[0x00, 0x53, 0x75, 0xa0, 2, b'h', b'i'];
    const ANNOTATED: &[u8] = &[0x00, 0x53, 0x71, 0xc1, 1, 0, 0x00, 0x53, 0x75, 0xa0, 2, b'h', b'i'];

    #[test]
    fn a_destination_is_read_as_it_was_written() {
        let header = TransmissionHeader::new(Destination::parse("ORDERS@QM2").unwrap());
        for body in [DATA, ANNOTATED] {
            let sent = header.put_on(message(body));
            let payload = crate::envelope::payload_of(&sent.body);
            let sections = Sections::scan(&payload).unwrap();
            assert_eq!(destination(&payload, &sections), Some(header.destination.clone()));
            let decoded = sections.decode_header(&payload).unwrap();
            assert_eq!((decoded.durable, decoded.priority), (true, 7));
            assert!(sent.body.len() <= body.len() + header.overhead());
            let (arrived, moved) = taken_off(&payload, &sections);
            assert!(arrived.to_contiguous().ends_with(DATA), "{arrived:?}");
            assert_eq!(moved.delivery_annotations, None);
            assert_eq!(Sections::scan(&arrived).unwrap(), moved);
        }
    }

    #[test]
    fn what_is_no_destination_is_none() {
        for text in ["", "@", "Q@", "@QM", "Q"] {
            assert_eq!(Destination::parse(text), None, "{text}");
        }
        assert_eq!(Destination::parse(&format!("{}@QM", "Q".repeat(DESTINATION_BYTES_MAX))), None);
        let payload = Payload::from(Bytes::from_static(ANNOTATED));
        assert_eq!(destination(&payload, &Sections::scan(&payload).unwrap()), None);
    }
}
