use super::*;
use bulla_queue::sim::{Fate, Fault, SimDisk};
use bulla_queue::{Driver, FileLog, FileLogOptions, FileSpill, Limits, Message, QueueAttributes, QueueId, Store};
use bytes::Bytes;
use std::collections::HashMap as Map;
use std::time::Instant;

const SEGMENT_BYTES: u64 = 16 << 10;
const NOW_MS: u64 = 1_800_000_000_000;

fn keyed<'a>(user: &'a str, key: &'a [u8], body: u8) -> Keyed<'a> {
    Keyed { user, destination: "Q@QM1", key, body: [body; 32], message_id: Some(format!("id-{body}")) }
}

fn with_id<'a>(id: &str, user: &'a str, key: &'a [u8]) -> Keyed<'a> {
    Keyed { message_id: Some(id.to_owned()), ..keyed(user, key, 1) }
}

fn put(keys: &mut Keys, keyed: Keyed<'_>, wall_ms: u64) -> Notes {
    let Answer::Do(claim) = keys.ask(keyed, wall_ms).unwrap() else { panic!("it was put before") };
    let mut written = Notes::new();
    let put = keys.put(*claim, Some(StoreNumber::LOCAL), wall_ms, |notes| {
        written.clone_from(notes);
        Ok::<_, ()>(Ticket::NOW)
    });
    put.unwrap();
    written
}

fn is_done(keys: &mut Keys, keyed: Keyed<'_>, wall_ms: u64) -> bool {
    matches!(keys.ask(keyed, wall_ms), Ok(Answer::Done { .. }))
}

#[track_caller]
fn refused(keys: &mut Keys, keyed: Keyed<'_>) -> (u16, &'static str) {
    let refusal = keys.ask(keyed, NOW_MS).unwrap_err();
    (refusal.reason.code, refusal.cause.unwrap())
}

#[test]
fn a_key_stands_for_one_message_of_one_user_on_one_queue() {
    let mut keys = Keys::default();
    put(&mut keys, keyed("ann", b"k", 1), NOW_MS);
    let answer = keys.ask(keyed("ann", b"k", 1), NOW_MS + 1).unwrap();
    assert!(matches!(answer, Answer::Done { message_id: Some(id), .. } if &*id == "id-1"));
    assert_eq!(refused(&mut keys, keyed("ann", b"k", 2)), (2046, REUSED));
    for other in [keyed("bob", b"k", 2), keyed("", b"k", 2), keyed("ann", b"l", 2)] {
        assert!(matches!(keys.ask(other, NOW_MS), Ok(Answer::Do(_))));
    }
    let elsewhere = Keyed { destination: "R@QM1", ..keyed("ann", b"k", 2) };
    assert!(matches!(keys.ask(elsewhere, NOW_MS), Ok(Answer::Do(_))));
}

#[test]
fn a_key_is_taken_while_its_put_is_under_way_and_free_when_that_came_to_nothing() {
    let mut keys = Keys::default();
    let first = keys.ask(keyed("ann", b"k", 1), NOW_MS).unwrap();
    assert_eq!(refused(&mut keys, keyed("ann", b"k", 1)), (2042, UNDER_WAY));
    drop(first);
    let Answer::Do(claim) = keys.ask(keyed("ann", b"k", 1), NOW_MS).unwrap() else { panic!() };
    assert_eq!(
        keys.put(*claim, Some(StoreNumber::LOCAL), NOW_MS, |_| Err("the queue is full")),
        Err("the queue is full")
    );
    put(&mut keys, keyed("ann", b"k", 2), NOW_MS);
    assert!(is_done(&mut keys, keyed("ann", b"k", 2), NOW_MS));
}

#[test]
fn a_key_has_a_length() {
    let mut keys = Keys::default();
    assert_eq!(refused(&mut keys, keyed("ann", b"", 1)), (2046, UNUSABLE));
    assert_eq!(refused(&mut keys, keyed("ann", &[0; KEY_BYTES_MAX + 1], 1)), (2046, UNUSABLE));
    put(&mut keys, keyed("ann", &[0; KEY_BYTES_MAX], 1), NOW_MS);
}

#[test]
fn a_key_is_forgotten_after_its_time_and_its_note_with_it() {
    let mut keys = Keys::default();
    put(&mut keys, keyed("ann", b"k", 1), NOW_MS);
    put(&mut keys, keyed("ann", b"later", 1), NOW_MS + 1);
    assert!(keys.expire(NOW_MS + KEPT_MS - 1).is_empty());
    assert!(is_done(&mut keys, keyed("ann", b"k", 1), NOW_MS + KEPT_MS - 1));
    assert!(!is_done(&mut keys, keyed("ann", b"k", 1), NOW_MS + KEPT_MS), "before its note goes, too");
    let gone = keys.expire(NOW_MS + KEPT_MS);
    assert!(matches!(&gone[..], [(StoreNumber::LOCAL, notes)] if matches!(&notes[..], [(_, None)])));
    assert!(!keys.is_empty());
    assert_eq!(keys.expire(NOW_MS + KEPT_MS + 1).len(), 1);
    assert!(keys.is_empty() && keys.users.is_empty() && keys.bytes == 0);
}

#[test]
fn a_key_that_is_put_again_after_its_time_is_kept_anew() {
    let mut keys = Keys::default();
    put(&mut keys, keyed("ann", b"k", 1), NOW_MS);
    put(&mut keys, keyed("ann", b"k", 2), NOW_MS + KEPT_MS);
    assert_eq!((keys.entries.len(), keys.users["ann"].order.len()), (1, 1));
    assert!(is_done(&mut keys, keyed("ann", b"k", 2), NOW_MS + KEPT_MS));
}

#[test]
fn a_user_has_so_many_keys_and_the_oldest_goes_for_one_more() {
    let mut keys = Keys::default();
    for number in 0..=USER_KEYS_MAX {
        let notes = put(&mut keys, keyed("ann", &number.to_be_bytes(), 1), NOW_MS + number as u64);
        let gone = notes.iter().filter(|(_, note)| note.is_none()).count();
        assert_eq!(gone, usize::from(number == USER_KEYS_MAX), "in the unit of the put");
    }
    assert_eq!(keys.entries.len(), USER_KEYS_MAX);
    assert!(!is_done(&mut keys, keyed("ann", &0_usize.to_be_bytes(), 1), NOW_MS));
    assert!(is_done(&mut keys, keyed("ann", &1_usize.to_be_bytes(), 1), NOW_MS));
}

#[test]
fn all_keys_are_so_many_bytes_and_the_user_with_the_most_gives_way() {
    let mut keys = Keys::default();
    let long = "x".repeat(MESSAGE_ID_BYTES_MAX);
    put(&mut keys, with_id(&long, "zoe", b"k"), NOW_MS);
    for user in ["ann", "bob", "cay"] {
        for number in 0..2 * USER_BYTES_MAX / 350 {
            let key = number.to_be_bytes();
            put(&mut keys, with_id(&long, user, &key), NOW_MS + 1);
            assert!(keys.bytes <= ALL_BYTES_MAX && keys.users[user].bytes <= USER_BYTES_MAX);
            assert_eq!(keys.bytes, keys.users.values().map(|of_user| of_user.bytes).sum::<usize>());
        }
    }
    assert!(is_done(&mut keys, with_id(&long, "zoe", b"k"), NOW_MS), "one with little keeps it");
    assert!(keys.bytes > ALL_BYTES_MAX - 1000 && keys.entries.len() <= ALL_KEYS_MAX);
}

fn open(disk: &SimDisk) -> Result<Store, String> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    let log = FileLog::open(disk.clone(), options).map_err(|error| error.to_string())?;
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).unwrap();
    let limits = Limits {
        batch_bytes_max: 4_000,
        reserve_bytes: 128_000,
        checkpoint_bytes: SEGMENT_BYTES / 2,
        log_bytes_min: 3 * SEGMENT_BYTES,
        ..Limits::default()
    };
    Store::open(Box::new(log), Box::new(spill), limits, Instant::now()).map_err(|error| error.to_string())
}

/// A client puts each of some messages under a key until it hears that it is put, over a disk that stops. Some are
/// publications, with a copy on a second queue. Returns what it has heard of.
fn work(disk: &SimDisk, heard: &mut Map<u8, bool>) -> Option<()> {
    let mut store = open(disk).ok()?;
    let mut keys = Keys::read(store.notes(PREFIX).map(|(name, note)| (StoreNumber::LOCAL, name, note)));
    let mut queue = |name| match store.queue(name) {
        Some(queue) => Some(queue),
        None => store.define(name, QueueAttributes::default()).ok(),
    };
    let (queue, second) = (queue("Q")?, queue("R")?);
    for number in 0..40 {
        let is_durable = number % 4 != 3;
        let ticket = match keys.ask(keyed("ann", &[number], number), NOW_MS).unwrap() {
            Answer::Done { ticket, message_id } => {
                assert_eq!(message_id.as_deref(), Some(&*format!("id-{number}")));
                ticket
            }
            Answer::Do(claim) => {
                let copy = |queue| (queue, Message::new(is_durable, Bytes::from(vec![number; 700]).into()));
                let copies = [queue, second].into_iter().take(if is_published(number) { 2 } else { 1 }).map(copy);
                let put = keys.put(*claim, is_durable.then_some(StoreNumber::LOCAL), NOW_MS, |notes| {
                    let notes: Vec<_> = notes.iter().map(|(name, note)| (name.as_str(), note.as_deref())).collect();
                    store.commit(copies.collect(), &[], &notes)
                });
                put.ok()?
            }
        };
        store.flush(Instant::now()).and_then(|()| store.poll(Instant::now())).ok()?;
        if store.is_synced(ticket) {
            heard.insert(number, is_durable);
        }
    }
    Some(())
}

fn is_published(number: u8) -> bool {
    number.is_multiple_of(5)
}

/// The messages of the queue, by number.
fn found(store: &mut Store, queue: QueueId) -> Map<u8, usize> {
    let mut found = Map::new();
    while let Some(message) = store.lock_next(queue, None, NOW_MS) {
        *found.entry(store.body(message.id).unwrap().chunks()[0][0]).or_default() += 1;
    }
    found
}

#[test]
fn a_put_under_a_key_is_done_once_whatever_step_the_disk_stops_at() {
    let disk = SimDisk::default();
    work(&disk, &mut Map::new()).unwrap();
    for step in 0..=disk.steps() {
        let disk = SimDisk::with_fault(step, Fault::Crash);
        let mut heard = Map::new();
        work(&disk, &mut heard);
        for fate in [Fate::Lost, Fate::Torn, Fate::Kept, Fate::Mixed(step)] {
            let at = format!("step {step}, {fate:?}");
            let disk = disk.after_crash(fate);
            let mut store = open(&disk).expect(&at);
            let known = Keys::read(store.notes(PREFIX).map(|(name, note)| (StoreNumber::LOCAL, name, note)));
            let is_known = |number: u8| known.entries.contains_key(&KeyId::of(&keyed("ann", &[number], number)));
            let noted: Map<u8, usize> = (0..40).filter(|number| is_known(*number)).map(|number| (number, 1)).collect();
            let published = |all: &Map<u8, usize>| -> Map<u8, usize> {
                all.iter()
                    .map(|(number, count)| (*number, *count))
                    .filter(|(number, _)| is_published(*number))
                    .collect()
            };
            for (queue, wanted) in [("Q", noted.clone()), ("R", published(&noted))] {
                let there = store.queue(queue).map(|queue| found(&mut store, queue)).unwrap_or_default();
                assert_eq!(there, wanted, "{at}: a message and its key are both there, or neither");
            }
            for (number, _) in heard.iter().filter(|(_, is_durable)| **is_durable) {
                assert!(noted.contains_key(number), "{at}: {number} was acknowledged");
            }
            drop(store);
            // The client tries all of them again.
            work(&disk, &mut Map::new()).expect(&at);
            let mut store = open(&disk).expect(&at);
            let durable: Map<u8, usize> = (0..40).filter(|number| number % 4 != 3).map(|number| (number, 1)).collect();
            for (queue, wanted) in [("R", published(&durable)), ("Q", durable)] {
                let queue = store.queue(queue).unwrap();
                assert_eq!(found(&mut store, queue), wanted, "{at}");
            }
        }
    }
}
