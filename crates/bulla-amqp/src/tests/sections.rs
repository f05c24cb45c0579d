//! The sections of a message.

use crate::message::{
    BodyForm, MessageBody, MessageParts, Sections, data_section_head, encode_map_section, with_header,
};
use crate::tests::{Random, Sample};
use crate::{DecodeError, Header, MessageId, Payload, Properties, Symbol, Timestamp, Value};
use bytes::Bytes;
use proptest::prelude::*;

const DATA: &[u8] = &[0, 0x53, 0x75, 0xa0, 3, 1, 2, 3];
const SEQUENCE: &[u8] = &[0, 0x53, 0x76, 0xc0, 2, 1, 0x41];
const VALUE: &[u8] = &[0, 0x53, 0x77, 0xa1, 2, b'h', b'i'];
const HEADER: &[u8] = &[0, 0x53, 0x70, 0xc0, 2, 1, 0x41];
const ANNOTATIONS: &[u8] = &[0, 0x53, 0x72, 0xc1, 1, 0];
const PROPERTIES: &[u8] = &[0, 0x53, 0x73, 0x45];
const FOOTER: &[u8] = &[0, 0x53, 0x78, 0xd1, 0, 0, 0, 4, 0, 0, 0, 0];

fn scan(parts: &[&[u8]]) -> Result<Sections, DecodeError> {
    Sections::scan(&Payload::from(Bytes::from(parts.concat())))
}

#[test]
fn each_section_is_found() {
    let application = [0, 0x53, 0x74, 0xc1, 5, 2, 0xa1, 1, b'a', 0x41];
    let delivery = [0, 0x53, 0x71, 0xc1, 1, 0];
    let found = scan(&[HEADER, &delivery, ANNOTATIONS, PROPERTIES, &application, DATA, FOOTER]).unwrap();
    let want = Sections {
        header: Some(0..7),
        delivery_annotations: Some(7..13),
        message_annotations: Some(13..19),
        properties: Some(19..23),
        application_properties: Some(23..33),
        body: BodyForm::Data(38..41),
        body_range: 33..41,
        footer: Some(41..53),
    };
    assert_eq!(found, want);
    assert_eq!(found.bare(), 19..41);
}

#[test]
fn the_front_of_a_message_is_enough_for_its_annotations() {
    let front = |parts: &[&[u8]]| Sections::front(&Payload::from(Bytes::from(parts.concat())));
    let whole = [HEADER, ANNOTATIONS, PROPERTIES, DATA].concat();
    for length in 0..=whole.len() {
        let found = front(&[&whole[..length]]);
        // Once the descriptor of what comes after them is there it is known that there are no more.
        assert_eq!(found.is_some(), length >= 7 + 6 + 3, "{length}");
        let annotations = found.and_then(|found| found.message_annotations);
        assert_eq!(annotations, (length >= 7 + 6 + 3).then_some(7..13), "{length}");
    }
    assert_eq!(front(&[DATA]), Some(Sections::default()));
    assert_eq!(front(&[&[0, 0x53, 0x01, 0x45]]), None);
    assert_eq!(front(&[b"no message"]), None);
}

#[test]
fn bodies_are_told_apart() {
    assert_eq!(scan(&[]).unwrap().body, BodyForm::Empty);
    assert_eq!(scan(&[HEADER]).unwrap().body, BodyForm::Empty);
    assert_eq!(scan(&[DATA]).unwrap().body, BodyForm::Data(5..8));
    assert_eq!(scan(&[DATA, DATA]).unwrap().body, BodyForm::Sections(0..16));
    assert_eq!(scan(&[SEQUENCE, SEQUENCE]).unwrap().body, BodyForm::Sections(0..14));
    assert_eq!(scan(&[HEADER, VALUE]).unwrap().body, BodyForm::Sections(7..14));
    let wide = [0, 0x53, 0x75, 0xb0, 0, 0, 0, 2, 8, 9];
    assert_eq!(scan(&[&wide]).unwrap().body, BodyForm::Data(8..10));
}

#[test]
fn values_of_any_type_are_bodies() {
    let nested = [0, 0x53, 0x77, 0, 0xa3, 1, b'x', 0, 0x53, 9, 0xd0, 0, 0, 0, 5, 0, 0, 0, 1, 0x40];
    assert_eq!(scan(&[&nested]).unwrap().body_range, 0..20);
    for value in [&[0x40][..], &[0x43], &[0x80, 1, 2, 3, 4, 5, 6, 7, 8], &[0xe0, 3, 1, 0x50, 7], &[0x56, 1]] {
        let body = [&[0, 0x53, 0x77][..], value].concat();
        assert_eq!(scan(&[&body]).unwrap().body_range, 0..body.len());
    }
}

#[test]
fn sections_out_of_order_or_doubled_are_refused() {
    let cases: [&[&[u8]]; 8] = [
        &[HEADER, HEADER],
        &[PROPERTIES, HEADER],
        &[ANNOTATIONS, ANNOTATIONS],
        &[DATA, PROPERTIES],
        &[DATA, SEQUENCE],
        &[VALUE, VALUE],
        &[DATA, VALUE],
        &[FOOTER, DATA],
    ];
    for case in cases {
        assert!(matches!(scan(case), Err(DecodeError::Section { .. })), "{case:?}");
    }
    assert!(matches!(scan(&[&[0, 0x53, 0x79, 0x45]]), Err(DecodeError::Section { code: 0x79 })));
    assert!(matches!(scan(&[&[0, 0x53, 0x24, 0x45]]), Err(DecodeError::Section { code: 0x24 })));
}

#[test]
fn malformed_messages_have_their_errors() {
    let cases: [(&[u8], DecodeError); 7] = [
        (&[0xa0, 1, 1], DecodeError::Type { wanted: "message section", code: 0xa0 }),
        (&[0, 0x53, 0x75, 0xa1, 1, 1], DecodeError::Type { wanted: "binary", code: 0xa1 }),
        (&[0, 0x53, 0x70, 0xc1, 1, 0], DecodeError::Type { wanted: "list", code: 0xc1 }),
        (&[0, 0x53, 0x74, 0xc0, 1, 0], DecodeError::Type { wanted: "map", code: 0xc0 }),
        (&[0, 0x53, 0x75, 0xb0, 0xff, 0xff, 0xff, 0xff, 1], DecodeError::Truncated),
        (&[0, 0x53, 0x77, 0x3f], DecodeError::Type { wanted: "any", code: 0x3f }),
        (&[0, 0xa3, 200], DecodeError::Section { code: u64::MAX }),
    ];
    for (bytes, error) in cases {
        assert_eq!(scan(&[bytes]), Err(error), "{bytes:?}");
    }
    let deep = [&[0, 0x53, 0x77][..], &[0; 10_000]].concat();
    assert_eq!(scan(&[&deep]), Err(DecodeError::Depth));
    let many = DATA.repeat(crate::message::BODY_SECTIONS_MAX as usize + 1);
    assert_eq!(scan(&[&many]), Err(DecodeError::Count));
}

#[test]
fn symbolic_and_long_descriptors_are_understood() {
    let symbolic = [&[0, 0xa3, 16][..], b"amqp:data:binary", &[0xa0, 1, 7]].concat();
    assert_eq!(scan(&[&symbolic]).unwrap().body, BodyForm::Data(21..22));
    let long = [0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x75, 0xa0, 1, 7];
    assert_eq!(scan(&[&long]).unwrap().body, BodyForm::Data(12..13));
}

#[test]
fn header_and_properties_are_decoded_when_asked() {
    let header = Header { durable: true, priority: 9, ttl_ms: Some(1_000), first_acquirer: false, delivery_count: 3 };
    let properties = Properties {
        message_id: Some(MessageId::Uuid([7; 16])),
        to: Some("queue".into()),
        content_type: Some(Symbol::from_static("text/plain")),
        creation_time: Some(Timestamp(1_700_000_000_000)),
        ..Properties::default()
    };
    let mut encoded = Vec::new();
    properties.encode_section(&mut encoded);
    let parts = MessageParts {
        header: Some(header.clone()),
        properties: Bytes::from(encoded),
        body: MessageBody::Data(Payload::from(Bytes::from_static(b"body"))),
        ..MessageParts::default()
    };
    let message = parts.build();
    let sections = Sections::scan(&message).unwrap();
    assert_eq!(sections.decode_header(&message), Ok(header));
    assert_eq!(sections.decode_properties(&message), Ok(properties));
    let BodyForm::Data(range) = sections.body else { panic!() };
    assert_eq!(message.slice(range).to_contiguous(), "body");
    // Absent ones are defaults.
    let message = Payload::from(Bytes::from_static(DATA));
    let sections = Sections::scan(&message).unwrap();
    assert_eq!(sections.decode_header(&message).unwrap().priority, 4);
    assert_eq!(sections.decode_properties(&message), Ok(Properties::default()));
}

#[test]
fn map_sections_are_decoded_when_asked() {
    let pairs = vec![(Value::Symbol(Symbol::from_static("x-opt-a")), Value::Uint(7))];
    let mut bytes = Vec::new();
    encode_map_section(0x72, &pairs, &mut bytes);
    let message = Payload::from(Bytes::from(bytes));
    let sections = Sections::scan(&message).unwrap();
    assert_eq!(Sections::decode_map(&message, sections.message_annotations.as_ref()), Ok(pairs));
    assert_eq!(Sections::decode_map(&message, sections.footer.as_ref()), Ok(vec![]));
}

#[test]
fn another_header_leaves_the_rest_as_it_arrived() {
    let body: Bytes = vec![5; 1_000].into();
    let parts = MessageParts {
        header: Some(Header { durable: true, ..Header::default() }),
        message_annotations: Bytes::from_static(ANNOTATIONS),
        body: MessageBody::Data(Payload::from(body.clone())),
        footer: Bytes::from_static(FOOTER),
        ..MessageParts::default()
    };
    let message = parts.build();
    let sections = Sections::scan(&message).unwrap();
    let header = Header { durable: true, delivery_count: 1, ..Header::default() };
    let again = with_header(&message, &sections, &header);
    let found = Sections::scan(&again).unwrap();
    assert_eq!(found.decode_header(&again), Ok(header.clone()));
    let rest = |payload: &Payload, sections: &Sections| {
        payload.slice(sections.header.clone().unwrap().end..payload.len()).to_contiguous()
    };
    assert_eq!(rest(&again, &found), rest(&message, &sections));
    assert!(again.chunks().iter().any(|chunk| chunk.as_ptr() == body.as_ptr()), "the body is not copied");
    // A message without one gets one.
    let bare = Payload::from(Bytes::from_static(DATA));
    let with = with_header(&bare, &Sections::scan(&bare).unwrap(), &header);
    let found = Sections::scan(&with).unwrap();
    assert_eq!(found.decode_header(&with), Ok(header));
    assert!(matches!(found.body, BodyForm::Data(_)));
}

#[test]
fn the_head_of_a_data_section_fits_its_length() {
    for length in [0, 1, 255, 256, 70_000] {
        let bytes = [data_section_head(length), vec![1; length]].concat();
        let sections = scan(&[&bytes]).unwrap();
        assert_eq!(sections.body, BodyForm::Data(bytes.len() - length..bytes.len()));
    }
}

/// A message of random sections.
fn message(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    if random.often() {
        Header::sample(random).encode_section(&mut bytes);
    }
    if random.often() {
        encode_map_section(0x72, &Vec::<(Value, Value)>::sample(random), &mut bytes);
    }
    if random.often() {
        Properties::sample(random).encode_section(&mut bytes);
    }
    if random.often() {
        encode_map_section(0x74, &Vec::<(Value, Value)>::sample(random), &mut bytes);
    }
    match random.below(3) {
        0 => {
            let body = random.bytes();
            bytes.extend(data_section_head(body.len()));
            bytes.extend(body);
        }
        1 => {
            bytes.extend_from_slice(&[0, 0x53, 0x77]);
            Value::sample(random).encode_to(&mut bytes);
        }
        _ => {}
    }
    bytes
}

/// The same bytes in chunks.
fn cut(bytes: &[u8], random: &mut Random) -> Payload {
    let mut payload = Payload::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (head, tail) = rest.split_at((1 + random.below(9) as usize).min(rest.len()));
        payload.push(Bytes::copy_from_slice(head));
        rest = tail;
    }
    payload
}

proptest! {
    #[test]
    fn sections_are_the_same_wherever_the_chunks_end(seed: u64) {
        let random = &mut Random::new(seed);
        let bytes = message(random);
        let whole = Payload::from(Bytes::from(bytes.clone()));
        let chunks = cut(&bytes, random);
        let sections = Sections::scan(&whole);
        prop_assert!(sections.is_ok());
        prop_assert_eq!(&Sections::scan(&chunks), &sections);
        let sections = sections.unwrap();
        prop_assert_eq!(sections.decode_header(&chunks), sections.decode_header(&whole));
        prop_assert_eq!(sections.decode_properties(&chunks), sections.decode_properties(&whole));
        // Cut short or changed it is something else or an error, but never a panic.
        let end = random.below(bytes.len() as u64 + 1) as usize;
        let _ = Sections::scan(&cut(&bytes[..end], random));
        let mut changed = bytes.clone();
        if let Some(byte) = changed.get_mut(end) {
            *byte = random.next() as u8;
        }
        prop_assert_eq!(
            Sections::scan(&cut(&changed, random)),
            Sections::scan(&Payload::from(Bytes::from(changed)))
        );
    }
}

#[test]
fn a_body_alone_is_whole_sections_in_order_and_nothing_else() {
    const VALUE: &[u8] = &[0x00, 0x53, 0x77];
    const DATA_HI: &[u8] = &[0x00, 0x53, 0x75, 0xa0, 2, b'h', b'i'];
    const SEQUENCE: &[u8] = &[0x00, 0x53, 0x76, 0xc0, 3, 1, 0x54, 7];
    const FOOTER: &[u8] = &[0x00, 0x53, 0x78, 0xc1, 1, 0];
    let value = |encoded: &[u8]| [VALUE, encoded].concat();
    for (what, good) in [
        ("data", DATA_HI.to_vec()),
        ("data twice", [DATA_HI, DATA_HI].concat()),
        ("sequences and a footer", [SEQUENCE, SEQUENCE, FOOTER].concat()),
        ("null", value(&[0x40])),
        ("a map", value(&[0xc1, 6, 2, 0xa1, 1, b'k', 0x54, 1])),
        ("an array of described strings", value(&[0xe0, 8, 2, 0x00, 0x53, 9, 0xa1, 1, b'a', 0])),
        ("a described list", value(&[0x00, 0xa3, 1, b'd', 0xc0, 2, 1, 0x41])),
    ] {
        assert_eq!(crate::check_body(&good), Ok(()), "{what}");
    }
    let properties = [0x00, 0x53, 0x73, 0xc0, 1, 0];
    for (what, bad) in [
        ("nothing", Vec::new()),
        ("no AMQP", b"hello".to_vec()),
        ("a footer alone", FOOTER.to_vec()),
        ("two footers", [DATA_HI, FOOTER, FOOTER].concat()),
        ("data behind the footer", [DATA_HI, FOOTER, DATA_HI].concat()),
        ("two values", [value(&[0x40]), value(&[0x40])].concat()),
        ("data and a sequence", [DATA_HI, SEQUENCE].concat()),
        ("properties", [&properties, DATA_HI].concat()),
        ("properties behind", [DATA_HI, &properties].concat()),
        ("a section of no standard", [&[0x00, 0x53, 0x79, 0x40], DATA_HI].concat()),
        ("bytes behind", [DATA_HI, &[1]].concat()),
        ("cut", DATA_HI[..6].to_vec()),
        ("data that is a string", [0x00, 0x53, 0x75, 0xa1, 1, b'a'].to_vec()),
        ("a string that is no text", value(&[0xa1, 1, 0xff])),
        ("an unknown format code", value(&[0x3f])),
        ("a list of more than it has", value(&[0xc0, 2, 2, 0x41])),
        ("a list of less than it has", value(&[0xc0, 3, 1, 0x41, 0x41])),
        ("a map of one", value(&[0xc1, 2, 1, 0x41])),
        ("an array of cut elements", value(&[0xe0, 3, 2, 0x54, 1])),
        ("a list inside whose text is none", value(&[0xc0, 4, 1, 0xa1, 1, 0xff])),
    ] {
        assert!(crate::check_body(&bad).is_err(), "{what}");
    }
    let deep: Vec<u8> = value(&[0x00, 0x40].repeat(40));
    assert_eq!(crate::check_body(&deep), Err(crate::DecodeError::Depth));
}
