//! The rules of a queue, one sentence a test.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::time::Instant;

use bulla_queue::sim::{Manner, SimDisk, SimEngine};
use bulla_queue::{
    Backlog, CrossingKind, DefineError, DeliverySequence, DepthWatch, FileSpill, Keys, Limits, MESSAGE_BYTES_MAX,
    Message, MessageId, NOTE_NAME_BYTES_MAX, NOTE_VALUE_BYTES_MAX, NOTES_MAX, PutError, QueueAttributes, QueueId,
    RemoveError, Store, StoreNumber, Ticket, Totals, User, UserShare,
};

fn store_on(engine: &SimEngine, limits: Limits) -> Store {
    let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
    Store::open(Box::new(engine.log(Manner::Prompt)), Box::new(spill), limits, Instant::now()).unwrap()
}

fn store() -> Store {
    store_on(&SimEngine::default(), Limits::default())
}

fn queue(store: &mut Store) -> QueueId {
    store.define("ORDERS", QueueAttributes::default()).unwrap()
}

/// A message that is told by its time of put.
fn message(number: u64) -> Message {
    Message {
        priority: 4,
        persistent: false,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: number,
        user: None,
        keys: Keys::None,
        body: number.to_le_bytes().to_vec().into(),
    }
}

fn persistent(number: u64) -> Message {
    Message { persistent: true, ..message(number) }
}

fn sync(store: &mut Store) {
    store.flush(Instant::now()).unwrap();
    store.poll(Instant::now()).unwrap();
}

/// Locks the next message and tells which.
fn lock(store: &mut Store, queue: QueueId) -> Option<(MessageId, u64)> {
    store.lock_next(queue, None, 0).map(|found| (found.id, found.put_at_ms))
}

fn lock_all(store: &mut Store, queue: QueueId) -> Vec<u64> {
    std::iter::from_fn(|| lock(store, queue)).map(|(_, number)| number).collect()
}

fn ready(store: &mut Store) -> Vec<QueueId> {
    let mut queues = Vec::new();
    store.take_ready(&mut queues);
    queues
}

fn freed(store: &mut Store) -> Vec<QueueId> {
    let mut queues = Vec::new();
    store.take_freed(&mut queues);
    queues
}

#[test]
fn messages_come_by_priority_and_by_order_of_put_within_it() {
    let mut store = store();
    let queue = queue(&mut store);
    for (number, priority) in [(0, 4), (1, 9), (2, 4), (3, 0), (4, 9), (5, 200)] {
        store.put(queue, Message { priority, ..message(number) }).unwrap();
    }
    assert_eq!(lock_all(&mut store, queue), [1, 4, 5, 0, 2, 3]);
}

#[test]
fn totals_are_of_all_queues_those_that_are_gone_included() {
    let mut store = store();
    let first = queue(&mut store);
    let second = store.define("REPLIES", QueueAttributes::default()).unwrap();
    for (queue, number) in [(first, 1), (first, 2), (second, 3)] {
        store.put(queue, message(number)).unwrap();
    }
    let (id, _) = lock(&mut store, second).unwrap();
    store.acknowledge(id).unwrap();
    let (id, _) = lock(&mut store, first).unwrap();
    store.release(id, false);
    store.delete(second, false).unwrap();
    assert_eq!(store.totals(), Totals { puts: 3, gets: 1, ..Totals::default() });
}

#[test]
fn fifo_ignores_priority_and_a_change_of_order_deals_anew() {
    let mut store = store();
    let fifo = QueueAttributes { delivery_sequence: DeliverySequence::Fifo, ..QueueAttributes::default() };
    let queue = store.define("ORDERS", fifo).unwrap();
    for (number, priority) in [(0, 4), (1, 9), (2, 0), (3, 9)] {
        store.put(queue, Message { priority, ..message(number) }).unwrap();
    }
    let (first, number) = lock(&mut store, queue).unwrap();
    assert_eq!(number, 0);
    store.define("ORDERS", QueueAttributes::default()).unwrap();
    assert_eq!(lock(&mut store, queue).unwrap().1, 1);
    store.release(first, false);
    store.alter(queue, fifo).unwrap();
    assert_eq!(lock_all(&mut store, queue), [0, 2, 3]);
}

#[test]
fn a_persistent_message_is_there_only_once_it_is_synced_and_does_not_hold_up_others() {
    let mut store = store();
    let queue = queue(&mut store);
    let ticket = store.put(queue, persistent(0)).unwrap();
    assert_eq!(store.put(queue, message(1)), Ok(Ticket::NOW));
    assert!(!store.is_synced(ticket));
    let status = store.status(queue).unwrap();
    assert_eq!((status.depth, status.unsynced, status.available), (2, 1, 1));
    let (second, number) = lock(&mut store, queue).unwrap();
    assert_eq!(number, 1);
    assert_eq!(lock(&mut store, queue), None);
    ready(&mut store);
    sync(&mut store);
    assert!(store.is_synced(ticket));
    assert_eq!(ready(&mut store), [queue]);
    store.release(second, false);
    assert_eq!(lock_all(&mut store, queue), [0, 1]);
}

#[test]
fn a_released_message_is_back_at_its_place_with_its_failures_counted() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let queue = queue(&mut store);
    for number in 0..3 {
        store.put(queue, persistent(number)).unwrap();
    }
    sync(&mut store);
    let (first, _) = lock(&mut store, queue).unwrap();
    store.release(first, true);
    let found = store.lock_next(queue, None, 0).unwrap();
    assert_eq!((found.id, found.delivery_count), (first, 1));
    store.release(first, false);
    store.release(first, true); // not locked any more: nothing happens
    assert_eq!(store.lock_next(queue, None, 0).unwrap().delivery_count, 1);
    sync(&mut store);
    drop(store);
    let mut store = store_on(&engine, Limits::default());
    let queue = store.queue("ORDERS").unwrap();
    assert_eq!(store.lock_next(queue, None, 0).unwrap().delivery_count, 1, "the count survives a restart");
}

#[test]
fn who_skips_a_message_finds_those_behind_it_and_others_still_find_it() {
    let mut store = store();
    let queue = queue(&mut store);
    for (number, priority) in [(0, 9), (1, 9), (2, 1), (3, 1)] {
        store.put(queue, Message { priority, ..message(number) }).unwrap();
    }
    let mut after = None;
    for expected in 0..4 {
        let found = store.lock_next(queue, after, 0).unwrap();
        assert_eq!(found.put_at_ms, expected);
        store.release(found.id, false);
        after = Some(found.place);
    }
    assert_eq!(store.lock_next(queue, after, 0), None);
    assert_eq!(lock_all(&mut store, queue), [0, 1, 2, 3]);
}

#[test]
fn browsing_sees_what_is_free_and_locks_nothing() {
    let mut store = store();
    let queue = queue(&mut store);
    for number in 0..3 {
        store.put(queue, message(number)).unwrap();
    }
    let (locked, _) = lock(&mut store, queue).unwrap();
    let first = store.browse_next(queue, None, 0).unwrap();
    assert_eq!(first.put_at_ms, 1);
    store.release(locked, false);
    assert_eq!(store.browse_next(queue, Some(first.place), 0).unwrap().put_at_ms, 2);
    assert_eq!(store.browse_next(queue, None, 0).unwrap().put_at_ms, 0);
    assert_eq!(lock_all(&mut store, queue), [0, 1, 2]);
}

#[test]
fn an_expired_message_is_never_delivered_and_goes_when_it_is_met_or_swept() {
    let mut store = store();
    let queue = queue(&mut store);
    for (number, expires) in [(0, Some(100)), (1, None), (2, Some(100)), (3, Some(300)), (4, Some(100))] {
        store.put(queue, Message { expires_at_ms: expires, ..message(number) }).unwrap();
    }
    assert_eq!(store.browse_next(queue, None, 100).unwrap().put_at_ms, 1);
    let found = store.lock_next(queue, None, 100).unwrap();
    assert_eq!((found.put_at_ms, store.status(queue).unwrap().expired), (1, 1));
    store.sweep(100, 2); // it looks at the one that is gone already, too
    assert_eq!(store.status(queue).unwrap().expired, 2, "no more than asked for at once");
    store.sweep(100, 100);
    let status = store.status(queue).unwrap();
    assert_eq!((status.expired, status.depth, status.locked), (3, 2, 1));
    assert_eq!(store.lock_next(queue, None, 299).unwrap().put_at_ms, 3);
}

#[test]
fn what_has_expired_is_not_carried_forward() {
    let limits = Limits { checkpoint_bytes: 2_000, log_bytes_min: 4_000, ..Limits::default() };
    let mut store = store_on(&SimEngine::default(), limits);
    let (expires, busy) = (queue(&mut store), store.define("BUSY", QueueAttributes::default()).unwrap());
    for number in 0..20 {
        store.put(expires, Message { expires_at_ms: Some(100), ..persistent(number) }).unwrap();
    }
    store.put(expires, Message { expires_at_ms: Some(101), ..persistent(20) }).unwrap();
    sync(&mut store);
    // The time is told, by a clock that was wrong before, and none is removed.
    assert!(!store.expire_due(1_000, 0) && !store.expire_due(100, 0));
    assert_eq!(store.status(expires).unwrap().depth, 21);
    for number in 0..1_000 {
        store.put(busy, persistent(number)).unwrap();
        sync(&mut store);
        let (id, _) = lock(&mut store, busy).unwrap();
        store.acknowledge(id).unwrap();
    }
    let status = store.status(expires).unwrap();
    assert_eq!((status.expired, status.depth), (20, 1));
    assert!(store.expire_due(101, 100));
    assert!(!store.expire_due(101, 100));
    assert_eq!(store.status(expires).unwrap().depth, 0);
}

#[test]
fn what_is_locked_when_it_expires_is_delivered_in_time_or_goes_when_it_is_released() {
    let mut store = store();
    let queue = queue(&mut store);
    store.put(queue, Message { expires_at_ms: Some(100), ..message(0) }).unwrap();
    let (id, _) = lock(&mut store, queue).unwrap();
    store.sweep(200, 10);
    assert_eq!(store.status(queue).unwrap().locked, 1);
    store.release(id, false);
    store.sweep(200, 10);
    assert_eq!(store.status(queue).unwrap().depth, 0);
}

#[test]
fn a_put_that_is_refused_says_why_with_its_reason_code() {
    let mut store = store();
    let attributes = QueueAttributes { max_depth: 2, max_message_bytes: 8, ..QueueAttributes::default() };
    let queue = store.define("SMALL", attributes).unwrap();
    let refused = |store: &mut Store, message: Message, code: u16| {
        let error = store.put(queue, message).unwrap_err();
        assert_eq!(error.reason_code(), code, "{error}");
        error
    };
    let long = Message { body: vec![0; 9].into(), ..message(0) };
    assert_eq!(refused(&mut store, long, 2030), PutError::TooBig { bytes: 9, max_message_bytes: 8 });
    store.put(queue, persistent(0)).unwrap();
    assert_eq!(store.room(queue), 1);
    store.put(queue, message(1)).unwrap();
    assert_eq!(store.room(queue), 0);
    assert_eq!(refused(&mut store, message(2), 2053), PutError::QueueFull { max_depth: 2 });
    store.alter(queue, QueueAttributes { put_enabled: false, ..attributes }).unwrap();
    assert_eq!(refused(&mut store, message(2), 2051), PutError::PutInhibited);
    assert_eq!(store.put(QueueId::new(StoreNumber::LOCAL, 99), message(0)).unwrap_err().reason_code(), 2052);
    assert_eq!(store.status(queue).unwrap().depth, 2);
}

#[test]
fn one_user_has_no_more_of_a_queue_than_its_share() {
    let mut store = store();
    let share = UserShare { messages: 2, bytes: 100 };
    let shared = QueueAttributes { user_share: Some(share), ..QueueAttributes::default() };
    let open = store.define("OPEN", QueueAttributes::default()).unwrap();
    let queue = store.define("SHARED", shared).unwrap();
    let by =
        |user: Option<&str>, bytes| Message { user: user.map(Into::into), body: vec![0; bytes].into(), ..message(0) };
    let refused = Err(PutError::UserShare { share });
    assert_eq!(PutError::UserShare { share }.reason_code(), 2053);
    // A message longer than the share is taken alone.
    store.put(queue, by(Some("ann"), 101)).unwrap();
    assert_eq!(store.put(queue, by(Some("ann"), 1)), refused, "its bytes are used up");
    store.put(queue, by(Some("bob"), 50)).unwrap();
    store.put(queue, by(Some("bob"), 50)).unwrap();
    assert_eq!(store.put(queue, by(Some("bob"), 0)), refused, "its messages are used up");
    for _ in 0..2 {
        store.put(queue, by(None, 1)).unwrap();
    }
    assert_eq!(store.put(queue, by(None, 1)), refused, "who has no name is one user");
    // As one unit of work, and moved from another queue.
    let both = vec![(queue, by(Some("eve"), 1)), (queue, by(Some("eve"), 1)), (queue, by(Some("eve"), 1))];
    assert_eq!(store.commit(both, &[], &[]), refused);
    store.put(open, by(Some("bob"), 1)).unwrap();
    let moved = store.lock_next(open, None, 0).unwrap().id;
    assert_eq!(store.transfer(moved, queue, by(Some("bob"), 1)), refused);
    // What leaves makes room, for its user alone.
    let first = store.lock_next(queue, None, 0).unwrap();
    assert_eq!(first.user.as_ref().map(|user| user.as_str()), Some("ann"));
    store.acknowledge(first.id).unwrap();
    assert_eq!(store.put(queue, by(Some("bob"), 0)), refused);
    store.put(queue, by(Some("ann"), 100)).unwrap();
    // The share is taken away, and comes back: what is there counts.
    store.alter(queue, QueueAttributes::default()).unwrap();
    store.put(queue, by(Some("bob"), 1)).unwrap();
    store.alter(queue, shared).unwrap();
    assert_eq!(store.put(queue, by(Some("bob"), 0)), refused);
    store.clear(queue).unwrap();
    store.put(queue, by(Some("bob"), 0)).unwrap();
}

#[test]
fn a_queue_that_was_full_or_has_emptied_by_half_is_reported_once() {
    let mut store = store();
    let queue = store.define("SMALL", QueueAttributes { max_depth: 8, ..QueueAttributes::default() }).unwrap();
    freed(&mut store);
    for number in 0..8 {
        store.put(queue, message(number)).unwrap();
    }
    assert_eq!(freed(&mut store), []);
    let acknowledge = |store: &mut Store| {
        let (id, _) = lock(store, queue).unwrap();
        store.acknowledge(id).unwrap();
        freed(store)
    };
    assert_eq!(acknowledge(&mut store), [queue], "it was full");
    for _ in 0..2 {
        assert_eq!(acknowledge(&mut store), []);
    }
    assert_eq!(acknowledge(&mut store), [queue], "half of it is gone");
    assert_eq!(acknowledge(&mut store), []);
}

#[test]
fn only_what_is_locked_can_be_acknowledged_and_only_once() {
    let mut store = store();
    let queue = queue(&mut store);
    store.put(queue, message(0)).unwrap();
    let found = store.browse_next(queue, None, 0).unwrap();
    assert_eq!(store.acknowledge(found.id), Err(RemoveError::NotLocked { id: found.id }));
    let (id, _) = lock(&mut store, queue).unwrap();
    assert_eq!(store.acknowledge(id), Ok(Ticket::NOW));
    assert_eq!(store.acknowledge(id), Err(RemoveError::NotLocked { id }));
    assert!(store.body(id).is_err());
    let status = store.status(queue).unwrap();
    assert_eq!((status.puts, status.gets, status.depth, status.bytes), (1, 1, 0, 0));
}

#[test]
fn a_transfer_moves_one_message_for_another_or_leaves_all_as_it_was() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let orders = queue(&mut store);
    let errors = store.define("ERRORS", QueueAttributes { max_depth: 1, ..QueueAttributes::default() }).unwrap();
    store.put(orders, persistent(0)).unwrap();
    store.put(orders, persistent(1)).unwrap();
    sync(&mut store);
    let (first, _) = lock(&mut store, orders).unwrap();
    // What was persistent stays so, whatever the replacement says.
    let ticket = store.transfer(first, errors, message(10)).unwrap();
    assert!(!store.is_synced(ticket));
    let (second, _) = lock(&mut store, orders).unwrap();
    assert_eq!(store.transfer(second, errors, message(11)), Err(PutError::QueueFull { max_depth: 1 }));
    store.release(second, false);
    sync(&mut store);
    drop(store);
    let mut store = store_on(&engine, Limits::default());
    let (orders, errors) = (store.queue("ORDERS").unwrap(), store.queue("ERRORS").unwrap());
    assert_eq!((lock_all(&mut store, orders), lock_all(&mut store, errors)), (vec![1], vec![10]));
}

#[test]
fn a_unit_of_work_is_done_whole_or_not_at_all() {
    let mut store = store();
    let queue = queue(&mut store);
    let small = store.define("SMALL", QueueAttributes { max_depth: 1, ..QueueAttributes::default() }).unwrap();
    store.put(queue, message(0)).unwrap();
    let (locked, _) = lock(&mut store, queue).unwrap();
    let puts = vec![(queue, persistent(1)), (small, message(2)), (small, message(3))];
    assert_eq!(store.commit(puts, &[locked], &[]), Err(PutError::QueueFull { max_depth: 1 }));
    assert_eq!(store.commit(vec![], &[locked, locked], &[]), Err(PutError::NotLocked { id: locked }));
    assert_eq!((store.status(queue).unwrap().depth, store.status(small).unwrap().depth), (1, 0));
    let ticket = store.commit(vec![(queue, persistent(1)), (small, message(2))], &[locked], &[]).unwrap();
    assert!(!store.is_synced(ticket));
    assert_eq!(lock_all(&mut store, small), [], "what is not persistent waits for the unit too");
    sync(&mut store);
    assert_eq!((lock_all(&mut store, queue), lock_all(&mut store, small)), (vec![1], vec![2]));
}

#[test]
fn a_unit_that_scratch_space_refuses_leaves_nothing_behind() {
    let mut store = store_on(&SimEngine::default(), Limits { memory_bytes_max: 100, ..Limits::default() });
    let queue = queue(&mut store);
    let long = |bytes: usize| (queue, Message { body: vec![0; bytes].into(), ..message(0) });
    let refused = store.commit(vec![long(90), long(5_000), long(6_000)], &[], &[]);
    assert_eq!(refused.unwrap_err().reason_code(), 2056);
    let status = store.store_status();
    assert_eq!((status.messages, status.memory_bytes, status.spilled_bytes), (0, 0, 0));
}

#[test]
fn what_the_journal_has_leaves_memory_before_a_body_goes_to_scratch_space() {
    let mut store = store_on(&SimEngine::default(), Limits { memory_bytes_max: 10_000, ..Limits::default() });
    let queue = queue(&mut store);
    let long =
        |number: u64, persistent| Message { body: vec![number as u8; 1_000].into(), persistent, ..message(number) };
    let held = |store: &Store| (store.store_status().memory_bytes, store.store_status().spilled_bytes);
    for number in 0..9 {
        store.put(queue, long(number, true)).unwrap();
    }
    sync(&mut store);
    for number in 9..19 {
        store.put(queue, long(number, false)).unwrap();
    }
    assert_eq!(held(&store), (10_000, 0));
    store.put(queue, long(19, false)).unwrap();
    assert_eq!(held(&store), (10_000, 1_000), "nothing is left that could leave");
    for number in 0..20 {
        let (id, put_at_ms) = lock(&mut store, queue).unwrap();
        assert_eq!((put_at_ms, store.body(id).unwrap()), (number, vec![number as u8; 1_000].into()));
        store.acknowledge(id).unwrap();
    }
    assert_eq!(held(&store), (0, 0));
}

#[test]
fn what_the_journal_has_stays_in_memory_where_that_would_not_make_room() {
    let mut store = store_on(&SimEngine::default(), Limits { memory_bytes_max: 5_000, ..Limits::default() });
    let queue = queue(&mut store);
    let long = |bytes: usize, persistent| Message { body: vec![7; bytes].into(), persistent, ..message(0) };
    let held = |store: &Store| (store.store_status().memory_bytes, store.store_status().spilled_bytes);
    store.put(queue, long(1_000, true)).unwrap();
    sync(&mut store);
    store.put(queue, long(5_001, false)).unwrap();
    assert_eq!(held(&store), (1_000, 5_001));
    // Nor do those leave that the journal does not have yet.
    store.put(queue, long(4_000, true)).unwrap();
    store.put(queue, long(1_001, false)).unwrap();
    assert_eq!(held(&store), (5_000, 6_002));
    sync(&mut store);
    store.put(queue, long(1_000, true)).unwrap();
    store.put(queue, long(3_999, false)).unwrap();
    assert_eq!(held(&store), (4_999, 6_002));
    sync(&mut store);
    store.clear(queue).unwrap();
    assert_eq!(held(&store), (0, 0));
}

#[test]
fn a_deleted_queue_goes_with_its_messages_and_its_name_can_be_used_again() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let queue = queue(&mut store);
    store.put(queue, persistent(0)).unwrap();
    assert_eq!(store.delete(queue, false), Err(DefineError::NotEmpty { depth: 1 }));
    let ticket = store.delete(queue, true).unwrap();
    assert!(!store.is_synced(ticket));
    assert_eq!((store.queue("ORDERS"), store.store_status().messages), (None, 0));
    let again = store.define("ORDERS", QueueAttributes::default()).unwrap();
    assert_ne!(again, queue);
    sync(&mut store);
    drop(store);
    let store = store_on(&engine, Limits::default());
    assert_eq!((store.queue("ORDERS"), store.status(again).unwrap().depth), (Some(again), 0));
}

#[test]
fn clearing_takes_what_is_free_and_leaves_what_is_locked_or_under_way() {
    let mut store = store();
    let queue = queue(&mut store);
    store.put(queue, message(0)).unwrap();
    let (locked, _) = lock(&mut store, queue).unwrap();
    store.put(queue, message(1)).unwrap();
    store.put(queue, persistent(2)).unwrap();
    store.clear(queue).unwrap();
    sync(&mut store);
    store.release(locked, false);
    assert_eq!(lock_all(&mut store, queue), [0, 2]);
}

#[test]
fn a_temporary_queue_and_what_is_on_it_never_touch_the_journal() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let temporary = QueueAttributes { temporary: true, ..QueueAttributes::default() };
    let queue = store.define("REPLY.1", temporary).unwrap();
    assert_eq!(store.put(queue, persistent(0)), Ok(Ticket::NOW));
    assert!(!store.lock_next(queue, None, 0).unwrap().persistent);
    assert_eq!(store.delete(queue, true), Ok(Ticket::NOW));
    sync(&mut store);
    assert_eq!(engine.bytes(), 0);
}

#[test]
fn names_and_attributes_out_of_bounds_are_refused() {
    let mut store = store();
    let attributes = QueueAttributes::default();
    assert_eq!(store.define("", attributes), Err(DefineError::Name));
    assert_eq!(store.define(&"Q".repeat(256), attributes), Err(DefineError::Name));
    let long = QueueAttributes { max_message_bytes: MESSAGE_BYTES_MAX + 1, ..attributes };
    assert_eq!(store.define("Q", long), Err(DefineError::MessageBytes { asked: MESSAGE_BYTES_MAX + 1 }));
    let queue = queue(&mut store);
    let temporary = QueueAttributes { temporary: true, ..attributes };
    assert_eq!(store.alter(queue, temporary), Err(DefineError::Temporary));
    assert_eq!(store.alter(QueueId::new(StoreNumber::LOCAL, 77), attributes), Err(DefineError::Unknown));
}

#[test]
fn message_numbers_are_never_used_twice_though_a_crash_forgets_messages() {
    let engine = SimEngine::default();
    let mut numbers = Vec::new();
    for round in 0..3 {
        let mut store = store_on(&engine, Limits::default());
        let queue = queue(&mut store);
        store.put(queue, message(round)).unwrap();
        numbers.push(lock(&mut store, queue).unwrap().0);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn while_too_much_waits_for_the_disk_there_is_no_room_and_afterwards_all_hear_of_it() {
    let mut store = store_on(&SimEngine::default(), Limits { backlog_bytes_max: 1_000, ..Limits::default() });
    let queue = queue(&mut store);
    sync(&mut store);
    freed(&mut store);
    for number in 0..20 {
        store.put(queue, persistent(number)).unwrap();
    }
    assert_eq!((store.room(queue), store.depth_room(queue)), (0, 4_980));
    assert_eq!(store.backlog(), Backlog::Much);
    for number in 20..60 {
        store.put(queue, persistent(number)).unwrap();
    }
    assert_eq!((store.room(queue), store.backlog()), (0, Backlog::TooMuch));
    sync(&mut store);
    sync(&mut store);
    assert_eq!(freed(&mut store), [queue]);
    assert_eq!((store.room(queue), store.backlog()), (4_940, Backlog::Usual));
}

#[test]
fn a_user_whose_name_is_too_long_for_a_record_is_cut_at_a_character() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let queue = queue(&mut store);
    let user = User::from(format!("{}é", "x".repeat(254)).as_str());
    store.put(queue, Message { user: Some(user), ..persistent(0) }).unwrap();
    sync(&mut store);
    drop(store);
    let store = store_on(&engine, Limits::default());
    let found = store.browse_next(store.queue("ORDERS").unwrap(), None, 0).unwrap();
    assert_eq!(found.user.unwrap().as_str(), "x".repeat(254));
}

#[test]
fn a_deep_queue_is_dealt_out_in_order_whatever_is_locked_and_released_meanwhile() {
    let mut store = store();
    let queue = store.define("DEEP", QueueAttributes { max_depth: 100_000, ..QueueAttributes::default() }).unwrap();
    for number in 0..50_000 {
        store.put(queue, Message { priority: (number % 3) as u8, ..message(number) }).unwrap();
    }
    let mut locked = Vec::new();
    let mut got = vec![Vec::new(); 3];
    let mut step = 0_u64;
    while let Some(found) = store.lock_next(queue, None, 0) {
        step += 1;
        if step.is_multiple_of(5) && locked.len() < 500 {
            locked.push(found.id);
        } else {
            store.acknowledge(found.id).unwrap();
            got[usize::from(found.priority)].push(found.put_at_ms);
        }
    }
    for id in locked.drain(..).rev() {
        store.release(id, false);
    }
    let late: Vec<_> = lock_all(&mut store, queue);
    assert_eq!(late.len(), 500);
    assert_eq!(got.iter().map(Vec::len).sum::<usize>() + late.len(), 50_000);
    for numbers in got {
        assert!(numbers.is_sorted());
    }
    assert!(late.is_sorted(), "all of them were of the highest priority");
}

fn notes(store: &Store) -> Vec<(String, Vec<u8>)> {
    store.notes("").map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
}

#[test]
fn a_note_changes_with_its_unit_of_work_or_not_at_all_and_is_there_after_a_restart() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let small = store.define("SMALL", QueueAttributes { max_depth: 1, ..QueueAttributes::default() }).unwrap();
    let ticket = store.commit(vec![(small, message(1))], &[], &[("a", Some(b"1")), ("b", Some(b""))]).unwrap();
    assert!(!store.is_synced(ticket), "a note is journaled though the message is not");
    assert_eq!(lock(&mut store, small), None, "and the message waits for it");
    let refused = store.commit(vec![(small, message(2))], &[], &[("a", Some(b"2"))]);
    assert_eq!(refused, Err(PutError::QueueFull { max_depth: 1 }));
    assert_eq!((store.note("a"), store.note("b"), store.note("c")), (Some(&b"1"[..]), Some(&b""[..]), None));
    sync(&mut store);
    let (locked, _) = lock(&mut store, small).unwrap();
    // Of two of one name the later counts, and what is not there may go.
    store.commit(vec![], &[locked], &[("a", Some(b"3")), ("a", Some(b"4")), ("b", None), ("c", None)]).unwrap();
    store.commit(vec![], &[], &[("ab", Some(b"5"))]).unwrap();
    sync(&mut store);
    drop(store);
    let store = store_on(&engine, Limits::default());
    assert_eq!(notes(&store), [("a".into(), b"4".to_vec()), ("ab".into(), b"5".to_vec())]);
    assert_eq!(store.notes("ab").count(), 1);
    assert_eq!(store.notes("b").count(), 0);
}

#[test]
fn notes_outlive_the_part_of_the_log_in_which_they_were_set() {
    let engine = SimEngine::default();
    let limits = Limits { checkpoint_bytes: 2_000, log_bytes_min: 4_000, ..Limits::default() };
    let mut store = store_on(&engine, limits);
    let queue = queue(&mut store);
    store.commit(vec![], &[], &[("kept", Some(b"7")), ("gone", Some(b"8"))]).unwrap();
    store.commit(vec![], &[], &[("gone", None)]).unwrap();
    for number in 0..1_000 {
        store.put(queue, persistent(number)).unwrap();
        sync(&mut store);
        let (id, _) = lock(&mut store, queue).unwrap();
        store.acknowledge(id).unwrap();
        sync(&mut store);
    }
    assert!(engine.bytes() < 12_000, "{} bytes are kept", engine.bytes());
    drop(store);
    assert_eq!(notes(&store_on(&engine, limits)), [("kept".into(), b"7".to_vec())]);
}

#[test]
fn a_note_has_its_limits_and_all_of_them_together_a_quarter_of_the_reserve() {
    let mut store = store_on(&SimEngine::default(), Limits { reserve_bytes: 4 * 100_000, ..Limits::default() });
    let too_big = |name_bytes, value_bytes| Err(PutError::NoteTooBig { name_bytes, value_bytes });
    let long = "n".repeat(NOTE_NAME_BYTES_MAX + 1);
    let value = vec![0; NOTE_VALUE_BYTES_MAX + 1];
    assert_eq!(store.commit(vec![], &[], &[("", None)]), too_big(0, 0));
    assert_eq!(store.commit(vec![], &[], &[(&long, Some(b""))]), too_big(long.len(), 0));
    assert_eq!(store.commit(vec![], &[], &[("a", Some(&value))]), too_big(1, value.len()));
    let longest = [(&long[1..], Some(&value[1..]))];
    store.commit(vec![], &[], &longest).unwrap();
    store.commit(vec![], &[], &[("b", Some(&value[1..]))]).unwrap();
    let bytes = 16 + 8 + value.len() as u64 - 1; // of the third
    let refused = store.commit(vec![], &[], &[("c", Some(&value[1..]))]);
    assert_eq!(refused, Err(PutError::NotesFull { notes: 3, bytes: 3 * bytes + 248 }));
    // One may take the place of another in the same unit.
    store.commit(vec![], &[], &[("b", None), ("c", Some(&value[1..]))]).unwrap();
    assert_eq!((store.note("b"), store.note("c").map(<[u8]>::len)), (None, Some(NOTE_VALUE_BYTES_MAX)));
}

#[test]
fn there_are_so_many_notes_and_no_more() {
    let reserve_bytes = 4 * NOTES_MAX as u64 * 24;
    let mut store = store_on(&SimEngine::default(), Limits { reserve_bytes, ..Limits::default() });
    for number in 0..NOTES_MAX {
        store.commit(vec![], &[], &[(&format!("{number}"), Some(b""))]).unwrap();
    }
    let bytes = NOTES_MAX as u64 * 24;
    let refused = store.commit(vec![], &[], &[("more", Some(b""))]);
    assert_eq!(refused, Err(PutError::NotesFull { notes: NOTES_MAX + 1, bytes: bytes + 24 }));
    store.commit(vec![], &[], &[("0", None), ("more", Some(b""))]).unwrap();
}

#[test]
fn a_store_keeps_its_first_identity() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    assert_eq!(store.identity(), None);
    assert_eq!(store.ensure_identity([1; 16], Instant::now()), Ok([1; 16]));
    drop(store); // without another sync: it is durable already
    let mut store = store_on(&engine, Limits::default());
    assert_eq!(store.identity(), Some([1; 16]));
    assert_eq!(store.ensure_identity([2; 16], Instant::now()), Ok([1; 16]));
    assert_eq!(store_on(&SimEngine::default(), Limits::default()).identity(), None, "another store has another");
}

#[test]
fn a_queue_says_beforehand_what_it_would_take() {
    let mut store = store();
    let attributes = QueueAttributes { max_depth: 2, max_message_bytes: 100, ..QueueAttributes::default() };
    let queue = store.define("ORDERS", attributes).unwrap();
    store.put(queue, message(0)).unwrap();
    assert_eq!(store.admits(queue, &message(1), 0), Ok(()));
    assert_eq!(store.admits(queue, &message(1), 1), Err(PutError::QueueFull { max_depth: 2 }));
    let long = Message { body: vec![0; 101].into(), ..message(1) };
    assert_eq!(store.admits(queue, &long, 0), Err(PutError::TooBig { bytes: 101, max_message_bytes: 100 }));
    store.alter(queue, QueueAttributes { put_enabled: false, ..attributes }).unwrap();
    assert_eq!(store.admits(queue, &message(1), 0), Err(PutError::PutInhibited));
    assert_eq!(store.admits(QueueId::new(StoreNumber::LOCAL, 99), &message(1), 0), Err(PutError::Unknown));
    assert_eq!(store.status(queue).unwrap().depth, 1, "and takes nothing by it");
}

#[test]
fn puts_and_gets_are_counted_with_their_bytes_and_what_is_read_back_is_not() {
    let engine = SimEngine::default();
    let mut store = store_on(&engine, Limits::default());
    let queue = queue(&mut store);
    assert_eq!(store.status(queue).unwrap().shortest_bytes, None);
    for (bytes, is_persistent) in [(100, false), (7, true), (50, true)] {
        let body = vec![0; bytes].into();
        store.put(queue, Message { persistent: is_persistent, body, ..message(0) }).unwrap();
    }
    sync(&mut store);
    let status = store.status(queue).unwrap();
    assert_eq!((status.puts, status.persistent_puts, status.bytes_put), (3, 2, 157));
    assert_eq!((status.shortest_bytes, status.longest_bytes), (Some(7), 100));
    for _ in 0..2 {
        let found = store.lock_next(queue, None, 0).unwrap();
        assert_eq!(store.put_at_ms(found.id), Some(found.put_at_ms));
        store.acknowledge(found.id).unwrap();
        assert_eq!(store.put_at_ms(found.id), None);
    }
    sync(&mut store);
    let status = store.status(queue).unwrap();
    assert_eq!((status.gets, status.persistent_gets, status.bytes_got), (2, 1, 107));
    drop(store);
    let store = store_on(&engine, Limits::default());
    let status = store.status(store.queue("ORDERS").unwrap()).unwrap();
    assert_eq!((status.depth, status.puts, status.bytes_put, status.shortest_bytes), (1, 0, 0, None));
}

/// A queue whose depth is watched: high at 4, low at 2, full at 6.
fn watched(store: &mut Store) -> QueueId {
    let watch = DepthWatch { high: 4, low: 2, tells_high: true, tells_low: true, tells_full: true };
    let attributes = QueueAttributes { max_depth: 6, depth_watch: Some(watch), ..QueueAttributes::default() };
    store.define("WATCHED", attributes).unwrap()
}

fn put_all(store: &mut Store, queue: QueueId, numbers: std::ops::Range<u64>) {
    for number in numbers {
        store.put(queue, message(number)).unwrap();
    }
}

fn crossings(store: &mut Store) -> Vec<(CrossingKind, u32)> {
    let mut crossings = Vec::new();
    store.take_crossings(&mut crossings);
    crossings.into_iter().map(|crossing| (crossing.kind, crossing.depth)).collect()
}

#[test]
fn each_crossing_of_a_depth_is_told_once_until_the_queue_is_low_again() {
    use CrossingKind::{Full, High, Low};
    let mut store = store();
    let queue = watched(&mut store);
    for _ in 0..2 {
        put_all(&mut store, queue, 0..3);
        assert_eq!(crossings(&mut store), []);
        put_all(&mut store, queue, 3..6);
        assert!(store.put(queue, message(6)).is_err());
        assert_eq!(crossings(&mut store), [(High, 4), (Full, 6)]);
        // Up and down between low and full there is nothing new to tell.
        for _ in 0..3 {
            let (id, _) = lock(&mut store, queue).unwrap();
            store.acknowledge(id).unwrap();
        }
        put_all(&mut store, queue, 0..3);
        assert_eq!(crossings(&mut store), []);
        store.clear(queue).unwrap();
        assert_eq!(crossings(&mut store), [(Low, 2)]);
    }
}

#[test]
fn a_queue_that_is_deep_when_it_begins_to_be_watched_is_told_of_when_it_is_low() {
    let mut store = store();
    let queue = store.define("WATCHED", QueueAttributes::default()).unwrap();
    put_all(&mut store, queue, 0..5);
    assert_eq!(watched(&mut store), queue);
    store.put(queue, message(5)).unwrap();
    // It was high already; that it is full is new.
    assert_eq!(crossings(&mut store), [(CrossingKind::Full, 6)]);
    store.clear(queue).unwrap();
    assert_eq!(crossings(&mut store), [(CrossingKind::Low, 2)]);
}

fn arrivals(store: &mut Store) -> Vec<(u32, bool)> {
    let mut arrivals = Vec::new();
    store.take_arrivals(&mut arrivals);
    arrivals.into_iter().map(|(_, arrivals)| (arrivals.count, arrivals.first)).collect()
}

#[test]
fn arrivals_are_counted_from_a_priority_on_and_a_persistent_one_when_it_is_synced() {
    let mut store = store();
    let counted = QueueAttributes { counted_priority: Some(5), ..QueueAttributes::default() };
    let queue = store.define("COUNTED", counted).unwrap();
    let urgent = |number| Message { priority: 9, ..message(number) };
    store.put(queue, message(0)).unwrap();
    assert_eq!((arrivals(&mut store), store.counted(queue)), (vec![], 0));
    store.put(queue, Message { persistent: true, ..urgent(1) }).unwrap();
    assert_eq!((arrivals(&mut store), store.counted(queue)), (vec![], 0));
    sync(&mut store);
    store.put(queue, urgent(2)).unwrap();
    assert_eq!((arrivals(&mut store), store.counted(queue)), (vec![(2, true)], 2));
    store.put(queue, urgent(3)).unwrap();
    assert_eq!(arrivals(&mut store), [(1, false)]);
    // What is given back has not come, and what is got is gone.
    let (id, _) = lock(&mut store, queue).unwrap();
    store.release(id, false);
    assert_eq!((arrivals(&mut store), store.counted(queue)), (vec![], 3));
    for _ in 0..3 {
        let (id, _) = lock(&mut store, queue).unwrap();
        store.acknowledge(id).unwrap();
    }
    assert_eq!(store.counted(queue), 0);
    store.put(queue, urgent(4)).unwrap();
    assert_eq!(arrivals(&mut store), [(1, true)]);
    store.define("COUNTED", QueueAttributes { counted_priority: Some(0), ..counted }).unwrap();
    assert_eq!(store.counted(queue), 2);
    store.define("COUNTED", QueueAttributes::default()).unwrap();
    store.put(queue, urgent(5)).unwrap();
    assert_eq!((arrivals(&mut store), store.counted(queue)), (vec![], 0));
}

#[test]
fn a_marked_message_that_expires_is_handed_over_and_a_mark_goes_with_its_message() {
    let mut store = store();
    let queue = queue(&mut store);
    let expiring = |number| Message { expires_at_ms: Some(10), ..message(number) };
    let mut marked = Vec::new();
    for number in 0..3 {
        store.put(queue, expiring(number)).unwrap();
        marked.push(store.newest());
    }
    store.mark(marked[0], Some((3, 4)));
    store.mark(marked[2], None);
    assert_eq!(marked.iter().map(|id| store.marker(*id)).collect::<Vec<_>>(), [Some((3, 4)), None, None]);
    assert_eq!(marked.iter().map(|id| store.is_marked(*id)).collect::<Vec<_>>(), [true, false, true]);
    let (id, _) = lock(&mut store, queue).unwrap();
    store.acknowledge(id).unwrap();
    assert!(!store.is_marked(marked[0]));
    store.mark(marked[0], None);
    assert!(!store.is_marked(marked[0]), "it is gone");
    store.sweep(10, 100);
    let mut expired = Vec::new();
    store.take_expired(&mut expired);
    let told: Vec<_> = expired.iter().map(|told| (told.queue, told.found.id, told.body.clone())).collect();
    assert_eq!(told, [(queue, marked[2], Some(message(2).body))]);
    store.take_expired(&mut expired);
    assert_eq!(expired.len(), 1);
}

#[test]
fn of_messages_found_in_the_journal_it_is_not_known_whether_they_are_marked() {
    let engine = SimEngine::default();
    let mut before = store_on(&engine, Limits::default());
    let queue = before.define("ORDERS", QueueAttributes::default()).unwrap();
    before.put(queue, persistent(0)).unwrap();
    let old = before.newest();
    assert!(!before.is_marked(old));
    before.close(Instant::now()).unwrap();
    let mut after = store_on(&engine, Limits::default());
    after.put(queue, message(1)).unwrap();
    assert!(after.is_marked(old) && !after.is_marked(after.newest()));
}

#[test]
fn ids_and_tickets_say_which_store_they_are_of_and_the_journal_does_not() {
    let engine = SimEngine::default();
    let numbered = |number| {
        let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
        let log = Box::new(engine.log(Manner::Prompt));
        Store::open_numbered(number, log, Box::new(spill), Limits::default(), Instant::now()).unwrap()
    };
    let (third, other) = (StoreNumber::new(3).unwrap(), StoreNumber::new(15).unwrap());
    let mut store = numbered(third);
    let orders = queue(&mut store);
    let ticket = store.put(orders, persistent(7)).unwrap();
    let id = store.newest();
    assert_eq!((orders.store(), id.store(), ticket.store(), store.number()), (third, third, third, third));
    assert!(!store.is_synced(ticket) && store.is_synced(Ticket::NOW));
    store.sync(Instant::now()).unwrap();
    assert!(store.is_synced(ticket));
    store.close(Instant::now()).unwrap();

    let mut again = numbered(other);
    let found = again.lock_next(again.queue("ORDERS").unwrap(), None, 0).unwrap();
    assert_eq!((found.id.store(), found.id.number()), (other, id.number()));
    assert_eq!(again.queue("ORDERS").unwrap().number(), orders.number());
    assert!(!again.is_synced(ticket), "that is the other store's to know");
    // What is of another store is in none of this one's units.
    assert_eq!(again.put(orders, message(0)), Err(PutError::OtherStore));
    assert_eq!(again.transfer(found.id, orders, message(0)).map_err(|error| error.reason_code()), Err(2355));
    assert_eq!(again.commit(vec![], &[found.id, id], &[]), Err(PutError::OtherStore));
    assert_eq!(again.acknowledge(id), Err(RemoveError::NotLocked { id }));
    assert!(again.acknowledge(found.id).is_ok());
    let (next, last) = (again.newest().number(), id.number());
    again.put(again.queue("ORDERS").unwrap(), message(1)).unwrap();
    assert!(again.newest().number() > next && next > last);
    assert_eq!(StoreNumber::new(bulla_queue::STORES_MAX), None);
}
