//! The page on the format and the code agree.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use bulla_queue::record::{
    BATCH_HEADER_BYTES, BatchHeader, KEYS_NONE, PutRecord, Record, Records, check_bodies, encode_key_names,
};
use bulla_queue::{
    FORMAT_VERSION, KEY_NAMES_BYTES_MAX, MessageId, NOTE_VALUE_BYTES_MAX, OBJECT_BYTES_MAX, OBJECT_NAME_BYTES_MAX,
    QueueId, SegmentHeader, StoreNumber,
};
use bytes::Bytes;

const PAGE: &str = include_str!("../../../docs/formats/journal.md");
const SALT: u64 = 0x5eed;
const SEGMENT: SegmentHeader =
    SegmentHeader { version: FORMAT_VERSION, epoch: 1, base: 0, capacity: 16 << 20, salt: SALT };

fn records() -> [Record<'static>; 2] {
    let put = PutRecord {
        id: MessageId(1 << 40),
        queue: QueueId::new(StoreNumber::LOCAL, 1),
        priority: 4,
        body_bytes: 5,
        body_crc: crc32c::crc32c(b"hello"),
        put_at_ms: 1_700_000_000_000,
        expires_at_ms: None,
        delivery_count: 0,
        user: Some("alice"),
        keys: KEYS_NONE,
    };
    [Record::Defined { queue: QueueId::new(StoreNumber::LOCAL, 1), name: "ORDERS" }, Record::Put(put)]
}

fn example() -> Vec<u8> {
    let mut head = Vec::new();
    for record in records() {
        record.encode(&mut head);
    }
    let header =
        BatchHeader { head_bytes: head.len() as u32, body_bytes: 8, at: 0, epoch: 1, head_crc: crc32c::crc32c(&head) };
    [&SEGMENT.encode()[..48], &header.encode(SALT), &head, b"hello\0\0\0"].concat()
}

fn on_the_page() -> Vec<u8> {
    hex_block(1)
}

fn hex_block(number: usize) -> Vec<u8> {
    let hex = PAGE.split("```hex\n").nth(number).unwrap().split("```").next().unwrap();
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn the_example_on_the_page_is_what_is_written_and_reads_as_what_the_page_says() {
    let written = example();
    let lines: Vec<String> = written
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
        .collect();
    let page = on_the_page();
    assert_eq!(page, written, "the page should have:\n{}", lines.join("\n"));

    assert_eq!(SegmentHeader::decode(&page, 0).unwrap(), SEGMENT);
    let batch = &page[48..];
    let header = BatchHeader::decode(batch, SALT).unwrap();
    assert_eq!((header.at, header.epoch, header.batch_bytes()), (0, 1, batch.len() as u64));
    let (head, bodies) = batch[BATCH_HEADER_BYTES..].split_at(header.head_bytes as usize);
    assert_eq!(crc32c::crc32c(head), header.head_crc);
    assert_eq!(Records::new(head).collect::<Result<Vec<_>, _>>().unwrap(), records());
    assert_eq!(check_bodies(head, bodies, &mut |wrong| panic!("{wrong:?}")), Ok(()));
}

#[test]
fn the_definition_on_the_page_is_what_is_written() {
    let (name, text) = ("QLOCAL ORDERS", b"DEFINE QLOCAL('ORDERS')\n");
    let record = Record::Object { name, body_bytes: text.len() as u32, body_crc: crc32c::crc32c(text) };
    let mut written = Vec::new();
    record.encode(&mut written);
    let page = hex_block(2);
    assert_eq!(Records::new(&page[..written.len()]).collect::<Result<Vec<_>, _>>().unwrap(), [record]);
    written.extend_from_slice(text);
    assert_eq!(page, written);
}

#[test]
fn a_flipped_bit_anywhere_in_either_header_is_rejected() {
    let page = on_the_page();
    for at in 0..44 {
        let mut bytes = page.clone();
        bytes[at] ^= 1;
        assert!(SegmentHeader::decode(&bytes, 0).is_err(), "byte {at} of the segment header");
    }
    for at in 48..48 + BATCH_HEADER_BYTES {
        let mut bytes = page.clone();
        bytes[at] ^= 1;
        assert_eq!(BatchHeader::decode(&bytes[48..], SALT), None, "byte {at} of the batch header");
    }
    assert_eq!(BatchHeader::decode(&page[48..], SALT + 1), None, "another segment's salt");
}

#[test]
fn every_kind_of_record_reads_as_it_was_written() {
    let put = PutRecord { user: None, expires_at_ms: Some(7), delivery_count: 3, ..put() };
    let (long, longest) = ("q".repeat(255), "o".repeat(OBJECT_NAME_BYTES_MAX));
    let few = encode_key_names(&[Bytes::from_static(b"one"), Bytes::from_static(b"other")]).unwrap();
    let many = encode_key_names(&[Bytes::from(vec![7; KEY_NAMES_BYTES_MAX - 2])]).unwrap();
    assert_eq!(encode_key_names(&[Bytes::from(vec![7; KEY_NAMES_BYTES_MAX - 1])]), None);
    assert!(encode_key_names(&[]).is_none() && encode_key_names(&[Bytes::new()]).is_none());
    let records = [
        Record::Put(put),
        Record::Moved(PutRecord { user: Some(&long), ..put }),
        Record::Replaced(PutRecord { user: Some(&long), ..put }),
        Record::Removed(MessageId(9)),
        Record::Failed { id: MessageId(10), delivery_count: 4 },
        Record::Defined { queue: QueueId::new(StoreNumber::LOCAL, 3), name: &long },
        Record::Deleted(QueueId::new(StoreNumber::LOCAL, 3)),
        Record::Delayed { id: MessageId(11), until_ms: 1_700_000_000_000 },
        Record::Checkpoint { next_id: 12, next_queue: 5, clean: true },
        Record::Checkpoint { next_id: 12, next_queue: 5, clean: false },
        Record::Noted { name: &long, value: &[7; NOTE_VALUE_BYTES_MAX] },
        Record::Noted { name: "n", value: b"" },
        Record::Unnoted { name: &long },
        Record::Object { name: &longest, body_bytes: OBJECT_BYTES_MAX as u32, body_crc: 7 },
        Record::Object { name: "QLOCAL A", body_bytes: 0, body_crc: 0 },
        Record::ObjectGone { name: &longest },
        Record::Keys { number: 2, names: &few },
        Record::Keys { number: u16::MAX, names: &many },
    ];
    let mut head = Vec::new();
    for record in &records {
        let before = head.len();
        record.encode(&mut head);
        assert_eq!(head.len() - before, record.head_bytes());
    }
    assert_eq!(Records::new(&head).collect::<Result<Vec<_>, _>>().unwrap(), records);
}

fn put() -> PutRecord<'static> {
    match records()[1] {
        Record::Put(put) => put,
        _ => unreachable!("the second record of the example is a put"),
    }
}

#[test]
fn a_record_that_is_none_is_rejected_with_its_place() {
    let rejected = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut head = Vec::new();
        Record::Removed(MessageId(1)).encode(&mut head);
        Record::Put(put()).encode(&mut head);
        change(&mut head);
        let error = Records::new(&head).find_map(Result::err).unwrap();
        (error.offset, error.what)
    };
    assert_eq!(rejected(&|head| head[0] = 99), (0, "a kind that this version does not know"));
    assert_eq!(rejected(&|head| head[2] = 8), (0, "a length that no record has"));
    assert_eq!(rejected(&|head| head[2] = 24), (0, "a length that its kind does not have"));
    assert_eq!(rejected(&|head| head[15] = 0x10), (0, "a message number that can't be"), "it has a store in it");
    assert_eq!(rejected(&|head| head[17] = 10), (16, "a priority above nine"));
    assert_eq!(rejected(&|head| head[31] = 0x1b), (16, "a message number that can't be"));
    assert_eq!(rejected(&|head| head[18] = 0xf0), (16, "longer than its batch"));
    assert_eq!(rejected(&|head| head[60..64].fill(0xff)), (16, "a name that is too long"));
    assert_eq!(rejected(&|head| head[60] = 200), (16, "a name longer than its record"));
    assert_eq!(rejected(&|head| head[60] = 0), (16, "a length that its kind does not have"));
    assert_eq!(rejected(&|head| head[64] = 0xff), (16, "a name that is not UTF-8"));
    assert_eq!(rejected(&|head| head.truncate(20)), (16, "shorter than eight bytes"));
}

#[test]
fn a_note_that_is_none_is_rejected() {
    let rejected = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut head = Vec::new();
        Record::Noted { name: "channel", value: b"123456789" }.encode(&mut head);
        change(&mut head);
        Records::new(&head).find_map(Result::err).unwrap().what
    };
    assert_eq!(rejected(&|head| head[8] = 0), "a note without a name");
    assert_eq!(rejected(&|head| head[9] = 1), "a name that is too long");
    assert_eq!(rejected(&|head| head[8] = 17), "a name longer than its record");
    assert_eq!(rejected(&|head| head[16] = 0xff), "a name that is not UTF-8");
    assert_eq!(rejected(&|head| head[12..16].fill(0xff)), "a value that is too long");
    assert_eq!(rejected(&|head| head[12] = 10), "a value longer than its record");
    assert_eq!(rejected(&|head| head[12] = 1), "a length that its kind does not have");
    assert_eq!(rejected(&|head| head[0] = 9), "a length that its kind does not have");
}

#[test]
fn an_object_that_is_none_is_rejected() {
    let rejected = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut head = Vec::new();
        Record::Object { name: "QMGR", body_bytes: 9, body_crc: 7 }.encode(&mut head);
        change(&mut head);
        Records::new(&head).find_map(Result::err).unwrap().what
    };
    assert_eq!(rejected(&|head| head[8] = 0), "an object without a name");
    assert_eq!(rejected(&|head| head[10] = 1), "a name that is too long");
    assert_eq!(rejected(&|head| head[8] = 17), "a name longer than its record");
    assert_eq!(rejected(&|head| head[16] = 0xff), "a name that is not UTF-8");
    assert_eq!(rejected(&|head| head[14] = 0xff), "a definition that is too long");
}

#[test]
fn a_definition_s_body_is_checked_like_a_message_s() {
    let mut head = Vec::new();
    Record::Object { name: "QMGR", body_bytes: 5, body_crc: crc32c::crc32c(b"hello") }.encode(&mut head);
    Record::Put(put()).encode(&mut head);
    let mut wrong = Vec::new();
    check_bodies(&head, b"hello\0\0\0hello\0\0\0", &mut |body| wrong.push(body)).unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    check_bodies(&head, b"hullo\0\0\0hello\0\0\0", &mut |body| wrong.push(body)).unwrap();
    assert_eq!(wrong.iter().map(|body| (body.of.as_str(), body.offset)).collect::<Vec<_>>(), [("object QMGR", 0)]);
}

#[test]
fn the_keys_on_the_page_are_what_is_written() {
    let names = encode_key_names(&[Bytes::from_static(b"first key"), Bytes::from_static(b"other")]).unwrap();
    let keys = Record::Keys { number: 2, names: &names };
    let put = Record::Put(PutRecord { keys: 2, ..put() });
    let mut written = Vec::new();
    keys.encode(&mut written);
    put.encode(&mut written);
    let lines: Vec<String> = written
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
        .collect();
    let page = hex_block(3);
    assert_eq!(page, written, "the page should have:\n{}", lines.join("\n"));
    assert_eq!(Records::new(&page).collect::<Result<Vec<_>, _>>().unwrap(), [keys, put]);
}

#[test]
fn keys_that_are_none_are_rejected() {
    let names = encode_key_names(&[Bytes::from_static(b"first key"), Bytes::from_static(b"other")]).unwrap();
    let rejected = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut head = Vec::new();
        Record::Keys { number: 2, names: &names }.encode(&mut head);
        change(&mut head);
        Records::new(&head).find_map(Result::err).unwrap().what
    };
    assert_eq!(rejected(&|head| head[8] = 1), "a number that no set of keys has");
    assert_eq!(rejected(&|head| head[10] = 1), "a number that no set of keys has");
    assert_eq!(rejected(&|head| head[12] = 0xff), "names longer than their record");
    assert_eq!(rejected(&|head| head[12] = 0), "names of keys that are none");
    assert_eq!(rejected(&|head| head[12] = 17), "names of keys that are none");
    assert_eq!(rejected(&|head| head[16] = 0), "names of keys that are none");
    assert_eq!(rejected(&|head| head[16] = 10), "names of keys that are none");
}
