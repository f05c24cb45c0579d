//! The sections of anything: the same in one chunk and in many, and a new header leaves the rest alone.
#![no_main]

use bulla_amqp::{Header, Payload, Sections, Value, with_header};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = Payload::from(Bytes::copy_from_slice(data));
    let chunks = Payload::from(data.chunks(5).map(Bytes::copy_from_slice).collect::<Vec<_>>());
    let scanned = Sections::scan(&whole);
    assert_eq!(scanned, Sections::scan(&chunks));
    if let Ok(value) = Value::from_bytes(data) {
        let mut encoded = Vec::new();
        value.encode_to(&mut encoded);
        let again = Value::from_bytes(&encoded).expect("what was encoded can be decoded");
        assert_eq!(format!("{again:?}"), format!("{value:?}"));
    }
    let Ok(sections) = scanned else { return };
    let _ = sections.decode_properties(&chunks);
    let _ = Sections::decode_map(&chunks, sections.application_properties.as_ref());
    let _ = Sections::decode_map(&whole, sections.message_annotations.as_ref());
    assert!(sections.bare().end <= data.len());
    assert_eq!(sections.decode_header(&whole), sections.decode_header(&chunks));
    let header = Header { durable: true, delivery_count: 7, ..Header::default() };
    let again = with_header(&chunks, &sections, &header);
    let found = Sections::scan(&again).expect("the rest is as it was");
    assert_eq!(found.decode_header(&again), Ok(header));
    let rest = sections.header.map_or(0, |range| range.end);
    let new = found.header.map_or(0, |range| range.end);
    assert_eq!(again.slice(new..again.len()).to_contiguous(), data[rest..]);
});
