//! What happens when the disk does not give back what was written.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::time::Instant;

use bulla_queue::log::LogError;
use bulla_queue::sim::SimDisk;
use bulla_queue::{
    CheckReport, Driver, FileLog, FileLogOptions, FileSpill, Keys, Limits, Message, OpenError, QueueAttributes,
    ReadError, SEGMENT_HEADER_BYTES, Store, check_storage,
};

const SEGMENT_BYTES: u64 = 64 << 10;
const BODY_BYTES: usize = 1_000;
const FIRST: &str = "0000000000000000.segment";

fn open(disk: &SimDisk) -> Result<Store, OpenError> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    let log = FileLog::open(disk.clone(), options)?;
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).map_err(OpenError::Spill)?;
    let limits = Limits { reserve_bytes: 1_000, memory_bytes_max: 0, ..Limits::default() };
    Store::open(Box::new(log), Box::new(spill), limits, Instant::now())
}

/// Ten messages, each a batch of its own.
fn ten_messages() -> SimDisk {
    let disk = SimDisk::default();
    let mut store = open(&disk).unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    for number in 0..10 {
        let body = vec![number; BODY_BYTES].into();
        let message = Message {
            priority: 0,
            persistent: true,
            expires_at_ms: None,
            available_at_ms: None,
            put_at_ms: number.into(),
            user: None,
            keys: Keys::None,
            body,
        };
        store.put(queue, message).unwrap();
        store.flush(Instant::now()).unwrap();
    }
    drop(store);
    disk
}

fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
}

fn flip(disk: &SimDisk, at: usize) {
    let mut bytes = disk.contents(FIRST).unwrap();
    bytes[at] ^= 0x10;
    disk.set_contents(FIRST, bytes);
}

/// Where message `number`'s body lies in the file.
fn body_at(disk: &SimDisk, number: u8) -> usize {
    find(&disk.contents(FIRST).unwrap(), &[number; BODY_BYTES])
}

fn report(disk: &SimDisk) -> CheckReport {
    check_storage(disk).unwrap()
}

#[test]
fn a_whole_journal_checks_out() {
    let report = report(&ten_messages());
    assert_eq!((report.segments, report.batches, report.bodies, report.messages, report.queues), (1, 10, 10, 10, 1));
    assert_eq!((report.records, report.body_bytes, report.damages_count), (11, 10_000, 0));
    assert!(!report.cut && !report.clean);
}

#[test]
fn a_store_closed_in_order_says_so() {
    let disk = ten_messages();
    open(&disk).unwrap().close(Instant::now()).unwrap();
    assert!(report(&disk).clean);
}

#[test]
fn a_flipped_bit_in_a_body_is_found_when_it_is_got_and_by_the_check_and_costs_only_that_message() {
    let disk = ten_messages();
    flip(&disk, body_at(&disk, 4) + 500);
    let report = report(&disk);
    assert_eq!(report.damages_count, 1);
    assert_eq!(report.damages[0].at.0, body_at(&ten_messages(), 4) as u64 - SEGMENT_HEADER_BYTES);
    let mut store = open(&disk).unwrap();
    let queue = store.queue("ORDERS").unwrap();
    for number in 0..10_u8 {
        let found = store.lock_next(queue, None, 0).unwrap();
        match store.body(found.id) {
            Ok(body) => assert_eq!(body.to_bytes(), vec![number; BODY_BYTES]),
            Err(ReadError::Damaged { id, .. }) => assert_eq!((id, number), (found.id, 4)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_flipped_bit_in_any_byte_of_a_header_in_the_middle_refuses_to_start_and_says_where() {
    let whole = ten_messages();
    let bytes = whole.contents(FIRST).unwrap();
    let body_at = body_at(&whole, 5);
    let batch_at = body_at - 88;
    assert_eq!(bytes[batch_at..batch_at + 4], *b"BATC");
    for at in batch_at..body_at {
        let disk = whole.after_crash(bulla_queue::sim::Fate::Kept);
        flip(&disk, at);
        match open(&disk) {
            Err(OpenError::Log(LogError::Damaged { at: found, .. })) => {
                assert_eq!(found.0, batch_at as u64 - SEGMENT_HEADER_BYTES, "byte {at}");
            }
            other => panic!("byte {at}: {:?}", other.err()),
        }
        assert!(report(&disk).damages_count > 0, "byte {at}");
    }
}

#[test]
fn a_last_batch_that_is_not_whole_is_cut_and_the_rest_is_there() {
    let whole = ten_messages();
    let end = body_at(&whole, 9) + BODY_BYTES;
    for at in (body_at(&whole, 9) - 88..end).step_by(7) {
        let disk = whole.after_crash(bulla_queue::sim::Fate::Kept);
        flip(&disk, at);
        assert_eq!(report(&disk).damages_count, 0, "byte {at}");
        let store = open(&disk).unwrap();
        assert_eq!(store.store_status().messages, 9, "byte {at}");
        drop(store);
        assert_eq!((report(&disk).batches, report(&disk).cut), (9, false), "byte {at}");
    }
}

#[test]
fn a_segment_from_a_newer_version_is_refused_with_its_version() {
    let disk = ten_messages();
    let mut bytes = disk.contents(FIRST).unwrap();
    bytes[8] = 3;
    disk.set_contents(FIRST, bytes);
    assert!(matches!(open(&disk), Err(OpenError::Log(LogError::Newer { version: 3 }))));
    assert!(matches!(check_storage(&disk), Err(LogError::Newer { version: 3 })));
}

#[test]
fn a_message_whose_body_is_a_batch_does_not_become_one() {
    // The bytes of a whole batch, header and all, put as a message: only the salt of its segment could make it pass.
    let whole = ten_messages();
    let bytes = whole.contents(FIRST).unwrap();
    let batch_at = body_at(&whole, 5) - 88;
    let disk = SimDisk::default();
    let mut store = open(&disk).unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    let body = bytes[batch_at..batch_at + 1_088].to_vec().into();
    let message = Message {
        priority: 0,
        persistent: true,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: 0,
        user: None,
        keys: Keys::None,
        body,
    };
    store.put(queue, message).unwrap();
    store.flush(Instant::now()).unwrap();
    drop(store);
    let at = find(&disk.contents(FIRST).unwrap(), &bytes[batch_at..batch_at + 1_088]);
    flip(&disk, at + 1_000);
    assert_eq!(open(&disk).unwrap().store_status().messages, 0, "the batch is torn, and nothing good follows");
}
