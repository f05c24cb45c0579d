//! Definitions of objects: kept until they are replaced or removed, together with their queues.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::time::Instant;

use bulla_queue::sim::{Manner, SimDisk, SimEngine};
use bulla_queue::{
    DefineError, DefinitionUnit, Driver, FileLog, FileLogOptions, FileSpill, Keys, Limits, Message, OBJECT_BYTES_MAX,
    OBJECT_NAME_BYTES_MAX, QueueAttributes, QueueChange, Reserve, Store, check_storage,
};

fn store_on(engine: &SimEngine, limits: Limits) -> Store {
    let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
    Store::open(Box::new(engine.log(Manner::Prompt)), Box::new(spill), limits, Instant::now()).unwrap()
}

fn sync(store: &mut Store) {
    store.sync(Instant::now()).unwrap();
}

fn objects(store: &mut Store) -> Vec<(String, String)> {
    let mut found = Vec::new();
    store
        .read_objects(&mut |name, text| found.push((name.to_owned(), String::from_utf8(text.to_vec()).unwrap())))
        .unwrap();
    found.sort();
    found
}

fn define(store: &mut Store, objects: &[(&str, Option<&str>)]) -> Result<(), DefineError> {
    let objects: Vec<_> = objects.iter().map(|(name, text)| (*name, text.map(str::as_bytes))).collect();
    store.commit_definitions(&DefinitionUnit { objects: &objects, ..DefinitionUnit::default() }).map(drop)
}

fn queue(name: &str) -> QueueChange<'_> {
    QueueChange::Define { name, attributes: QueueAttributes::default() }
}

fn message(number: u64) -> Message {
    Message {
        priority: 4,
        persistent: true,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: number,
        user: None,
        keys: Keys::None,
        body: vec![7; 500].into(),
    }
}

/// Messages come and go, so that the log grows and nothing in it lives.
fn traffic(store: &mut Store, messages: u64) {
    let queue = store.define("TRAFFIC", QueueAttributes::default()).unwrap();
    for number in 0..messages {
        store.put(queue, message(number)).unwrap();
        sync(store);
        let id = store.lock_next(queue, None, 0).unwrap().id;
        store.acknowledge(id).unwrap();
        sync(store);
    }
}

#[test]
fn a_unit_of_definitions_is_there_with_its_queues_or_not_at_all() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let there = store.define("THERE", QueueAttributes::default()).unwrap();
    store.put(there, message(1)).unwrap();
    let text = |text: &'static str| Some(text.as_bytes());
    let unit = DefinitionUnit {
        queues: &[queue("A"), queue("B")],
        objects: &[("QLOCAL A", text("a")), ("QLOCAL B", text("b")), ("QMGR", text("first"))],
        notes: &[("changes", Some(b"1"))],
        reserve: Reserve::Untouched,
    };
    let ticket = store.commit_definitions(&unit).unwrap();
    assert!(!store.is_synced(ticket));
    let refused = store.commit_definitions(&DefinitionUnit {
        queues: &[QueueChange::Delete { name: "THERE", purge: false }, queue("C")],
        objects: &[("QLOCAL C", text("c")), ("QMGR", text("second"))],
        ..DefinitionUnit::default()
    });
    assert_eq!(refused, Err(DefineError::NotEmpty { depth: 1 }));
    let swapped = DefinitionUnit {
        queues: &[
            QueueChange::Delete { name: "A", purge: false },
            QueueChange::Delete { name: "THERE", purge: true },
            queue("THERE"),
        ],
        objects: &[("QLOCAL A", None), ("QLOCAL NONE", None), ("QMGR", text("third"))],
        ..DefinitionUnit::default()
    };
    store.commit_definitions(&swapped).unwrap();
    assert_eq!((store.has_object("QLOCAL A"), store.objects()), (false, 2));
    sync(&mut store);
    drop(store);
    let mut store = store_on(&engine, Limits::default());
    let found = objects(&mut store);
    assert_eq!(found, [("QLOCAL B".into(), "b".into()), ("QMGR".to_owned(), "third".to_owned())]);
    assert_eq!((store.queue("A"), store.queue("C"), store.note("changes")), (None, None, Some(&b"1"[..])));
    assert!(store.queue("B").is_some());
    let there = store.queue("THERE").unwrap();
    assert_eq!(store.status(there).unwrap().depth, 0);
}

#[test]
fn definitions_outlive_the_log_and_are_not_written_again_at_each_checkpoint() {
    let engine = SimEngine::default();
    let limits = Limits { checkpoint_bytes: 2_000, log_bytes_min: 120_000, ..Limits::default() };
    let mut store = store_on(&engine, limits);
    let names: Vec<String> = (0..20).map(|number| format!("QLOCAL {number}")).collect();
    let text = "x".repeat(100);
    names.iter().for_each(|name| define(&mut store, &[(name, Some(&text))]).unwrap());
    let bytes = store.store_status().journal_object_bytes;
    assert!((2_000..4_000).contains(&bytes), "{bytes} bytes");
    // Nine checkpoints: the log stays whole, and nothing is carried.
    traffic(&mut store, 30);
    assert!(engine.bytes() > 18_000, "{} bytes are kept", engine.bytes());
    traffic(&mut store, 500);
    assert!(engine.bytes() < 40_000, "{} bytes are kept", engine.bytes());
    assert_eq!(store.store_status().journal_object_bytes, bytes);
    drop(store);
    let found = objects(&mut store_on(&engine, limits));
    assert_eq!(found.len(), 20);
    assert!(found.iter().all(|(_, found)| *found == text));
}

#[test]
fn a_definition_has_its_limits() {
    let mut store = store_on(&SimEngine::default(), Limits::default());
    let (long, text) = ("o".repeat(OBJECT_NAME_BYTES_MAX + 1), "x".repeat(OBJECT_BYTES_MAX + 1));
    let too_big = |name_bytes, bytes| Err(DefineError::ObjectTooBig { name_bytes, bytes });
    assert_eq!(define(&mut store, &[("", None)]), too_big(0, 0));
    assert_eq!(define(&mut store, &[(&long, None)]), too_big(long.len(), 0));
    assert_eq!(define(&mut store, &[("a", Some(&text))]), too_big(1, text.len()));
    let longest = &text[1..];
    for number in 0..255 {
        define(&mut store, &[(&number.to_string(), Some(longest))]).unwrap();
        sync(&mut store);
    }
    let refused = define(&mut store, &[("more", Some("x"))]);
    assert_eq!(refused, Err(DefineError::ObjectsFull { objects: 256, bytes: (255 << 20) + 1 }));
    define(&mut store, &[("0", Some("less"))]).unwrap();
    define(&mut store, &[("more", Some("x"))]).unwrap();
}

/// A log on a disk that is small, and how full it is told by its refusals.
fn small(disk: &SimDisk) -> Store {
    let options = FileLogOptions {
        segment_bytes: 16 << 10,
        first_segment_bytes: 16 << 10,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    let log = FileLog::open(disk.clone(), options).unwrap();
    let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
    let limits = Limits {
        batch_bytes_max: 1_000,
        reserve_bytes: 32 << 10,
        checkpoint_bytes: 8 << 10,
        log_bytes_min: 64 << 10,
        ..Limits::default()
    };
    Store::open(Box::new(log), Box::new(spill), limits, Instant::now()).unwrap()
}

#[test]
fn on_a_full_disk_nothing_new_is_defined_and_what_is_there_is_altered_and_removed() {
    let disk = SimDisk::default();
    let mut store = small(&disk);
    define(&mut store, &[("QMGR", Some("text")), ("QLOCAL A", Some("text"))]).unwrap();
    sync(&mut store);
    let queue = store.define("ORDERS", QueueAttributes { max_depth: 10_000, ..QueueAttributes::default() }).unwrap();
    let mut number = 0;
    while store.put(queue, message(number)).is_ok() {
        number += 1;
        sync(&mut store);
        disk.set_full(number > 100);
    }
    let text = "y".repeat(500);
    let mut unit = |reserve, text| {
        let done = store.commit_definitions(&DefinitionUnit {
            objects: &[("QLOCAL A", text)],
            reserve,
            ..DefinitionUnit::default()
        });
        sync(&mut store);
        done.map(drop)
    };
    let full = Err(DefineError::Journal(bulla_queue::JournalError::Full));
    assert_eq!(unit(Reserve::Untouched, Some(text.as_bytes())), full);
    assert_eq!(unit(Reserve::Half, Some(text.as_bytes())), Ok(()));
    assert_eq!(unit(Reserve::Whole, None), Ok(()));
    drop(store);
    assert_eq!(objects(&mut small(&disk)), [("QMGR".to_owned(), "text".to_owned())]);
    let report = check_storage(&disk).unwrap();
    assert_eq!((report.objects, report.damages_count), (1, 0));
}
