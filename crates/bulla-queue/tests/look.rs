//! Readers that choose, indexes and messages put for later, one sentence a test.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::cell::RefCell;
use std::time::Instant;

use bulla_queue::sim::{Manner, SimDisk, SimEngine};
use bulla_queue::{
    Cursor, DeliverySequence, FileSpill, INDEX_ENTRIES_MAX, Keys, Limits, Look, Looked, Message, MessageId,
    QueueAttributes, QueueId, Seen, Store,
};
use bytes::Bytes;

fn store_on(engine: &SimEngine, limits: Limits) -> Store {
    let spill = FileSpill::open(SimDisk::default(), 1 << 30).unwrap();
    Store::open(Box::new(engine.log(Manner::Prompt)), Box::new(spill), limits, Instant::now()).unwrap()
}

fn store() -> (Store, QueueId) {
    let mut store = store_on(&SimEngine::default(), Limits::default());
    let queue = define(&mut store);
    (store, queue)
}

fn define(store: &mut Store) -> QueueId {
    let attributes = QueueAttributes { max_depth: 1_000_000, ..QueueAttributes::default() };
    store.define("ORDERS", attributes).unwrap()
}

/// A message whose body is its number and whether it is wanted.
fn message(number: u64, wanted: bool) -> Message {
    let mut body = number.to_be_bytes().to_vec();
    body.push(u8::from(wanted));
    Message {
        priority: 4,
        persistent: false,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: number,
        user: None,
        keys: Keys::None,
        body: body.into(),
    }
}

fn sync(store: &mut Store) {
    store.flush(Instant::now()).unwrap();
    store.poll(Instant::now()).unwrap();
}

/// Whether a message is wanted, with a note that it was looked at.
fn judge<'a>(looked_at: &'a RefCell<Vec<u64>>) -> impl FnMut(&Seen<'_>) -> Looked + 'a {
    |seen| {
        let body = seen.body[0].as_ref();
        looked_at.borrow_mut().push(u64::from_be_bytes(body[..8].try_into().unwrap()));
        if body[8] == 1 { Looked::Take } else { Looked::Pass }
    }
}

/// What a look gave, and what it looked at.
fn look(store: &mut Store, queue: QueueId, cursor: &mut Cursor, budget: usize) -> (Look, Vec<u64>) {
    let looked_at = RefCell::new(Vec::new());
    let found = store.look(queue, cursor, 0, true, &mut budget.clone(), judge(&looked_at));
    (found, looked_at.into_inner())
}

fn number(found: &Look) -> Option<(MessageId, u64)> {
    match found {
        Look::Found(found) => Some((found.id, found.put_at_ms)),
        _ => None,
    }
}

#[test]
fn a_reader_looks_at_each_message_once_and_goes_on_where_it_was() {
    let (mut store, queue) = store();
    for number in 0..10 {
        store.put(queue, message(number, number == 3)).unwrap();
    }
    let mut cursor = store.watch(queue);
    let (found, looked_at) = look(&mut store, queue, &mut cursor, 100);
    assert_eq!((number(&found).unwrap().1, looked_at), (3, vec![0, 1, 2, 3]));
    let (found, looked_at) = look(&mut store, queue, &mut cursor, 4);
    assert_eq!((found, looked_at), (Look::Unfinished, vec![4, 5, 6, 7]));
    let (found, looked_at) = look(&mut store, queue, &mut cursor, 100);
    assert_eq!((found, looked_at), (Look::End, vec![8, 9]));
    assert_eq!(look(&mut store, queue, &mut cursor, 100), (Look::End, vec![]));
    store.put(queue, message(10, true)).unwrap();
    let (found, looked_at) = look(&mut store, queue, &mut cursor, 100);
    assert_eq!((number(&found).unwrap().1, looked_at), (10, vec![10]));
}

#[test]
fn the_more_urgent_come_first_and_later_ones_are_not_missed() {
    let (mut store, queue) = store();
    for (number, priority) in [(0, 1), (1, 9), (2, 5)] {
        store.put(queue, Message { priority, ..message(number, false) }).unwrap();
    }
    let mut cursor = store.watch(queue);
    assert_eq!(look(&mut store, queue, &mut cursor, 100).1, [1, 2, 0]);
    for (number, priority) in [(3, 1), (4, 9), (5, 5)] {
        store.put(queue, Message { priority, ..message(number, true) }).unwrap();
    }
    let numbers: Vec<u64> = (0..3).map(|_| number(&look(&mut store, queue, &mut cursor, 100).0).unwrap().1).collect();
    assert_eq!(numbers, [4, 5, 3]);
}

#[test]
fn what_another_gives_back_behind_the_cursor_is_looked_at_again_and_nothing_else() {
    let (mut store, queue) = store();
    for number in 0..5 {
        store.put(queue, message(number, number == 1)).unwrap();
    }
    let first = store.lock_next(queue, None, 0).unwrap();
    let second = store.lock_next(queue, None, 0).unwrap();
    let mut cursor = store.watch(queue);
    assert_eq!(look(&mut store, queue, &mut cursor, 100), (Look::End, vec![2, 3, 4]));
    store.release(second.id, false);
    store.release(first.id, true);
    let (found, looked_at) = look(&mut store, queue, &mut cursor, 100);
    assert_eq!((number(&found), looked_at), (Some((second.id, 1)), vec![0, 1]));
    assert_eq!(look(&mut store, queue, &mut cursor, 100), (Look::End, vec![]));
    // Its own, too.
    store.release(second.id, false);
    assert_eq!(look(&mut store, queue, &mut cursor, 100).1, [1]);
    store.release_unheard(second.id, &mut cursor);
    assert_eq!(look(&mut store, queue, &mut cursor, 100), (Look::End, vec![]));
}

#[test]
fn a_persistent_message_synced_late_is_not_missed() {
    let (mut store, queue) = store();
    store.put(queue, Message { persistent: true, ..message(0, true) }).unwrap();
    store.put(queue, message(1, false)).unwrap();
    let mut cursor = store.watch(queue);
    assert_eq!(look(&mut store, queue, &mut cursor, 100), (Look::End, vec![1]));
    sync(&mut store);
    assert_eq!(number(&look(&mut store, queue, &mut cursor, 100).0).unwrap().1, 0);
}

#[test]
fn many_locked_messages_do_not_keep_a_reader_in_place() {
    let (mut store, queue) = store();
    for number in 0..100 {
        store.put(queue, message(number, false)).unwrap();
    }
    store.put(queue, message(100, true)).unwrap();
    let locked: Vec<_> = (0..100).map(|_| store.lock_next(queue, None, 0).unwrap().id).collect();
    let mut cursor = store.watch(queue);
    let looks = (0..20).map(|_| look(&mut store, queue, &mut cursor, 10).0);
    assert!(looks.into_iter().any(|found| number(&found).is_some()));
    locked.iter().for_each(|id| store.release(*id, false));
    let mut again = Vec::new();
    loop {
        let (found, mut looked_at) = look(&mut store, queue, &mut cursor, 10);
        again.append(&mut looked_at);
        if found == Look::End {
            break;
        }
    }
    assert_eq!(again.len(), 100);
}

#[test]
fn a_reader_that_was_away_too_long_begins_from_the_front() {
    let (mut store, queue) = store();
    for number in 0..10 {
        store.put(queue, message(number, false)).unwrap();
    }
    let mut cursor = store.watch(queue);
    look(&mut store, queue, &mut cursor, 100);
    for _ in 0..20_000 {
        let found = store.lock_next(queue, None, 0).unwrap();
        store.release(found.id, false);
    }
    assert_eq!(look(&mut store, queue, &mut cursor, 100).1, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_change_of_order_hides_nothing_from_a_reader() {
    let (mut store, queue) = store();
    store.put(queue, Message { priority: 0, ..message(0, true) }).unwrap();
    for number in 1..5 {
        store.put(queue, Message { priority: 9, ..message(number, false) }).unwrap();
    }
    let mut cursor = store.watch(queue);
    assert_eq!(look(&mut store, queue, &mut cursor, 4).0, Look::Unfinished);
    let attributes = *store.attributes(queue).unwrap();
    let fifo = QueueAttributes { delivery_sequence: DeliverySequence::Fifo, ..attributes };
    store.alter(queue, fifo).unwrap();
    assert_eq!(number(&look(&mut store, queue, &mut cursor, 100).0).unwrap().1, 0);
}

#[test]
fn a_browsing_reader_locks_nothing_and_sees_each_message_once() {
    let (mut store, queue) = store();
    for number in 0..4 {
        store.put(queue, message(number, number % 2 == 1)).unwrap();
    }
    let mut cursor = Cursor::default();
    let looked_at = RefCell::new(Vec::new());
    let mut seen = Vec::new();
    while let Look::Found(found) = store.look(queue, &mut cursor, 0, false, &mut 100, judge(&looked_at)) {
        seen.push(found.put_at_ms);
    }
    assert_eq!((seen, store.status(queue).unwrap().available), (vec![1, 3], 4));
}

#[test]
fn bodies_that_are_not_in_memory_are_read_back_as_far_as_it_takes() {
    let engine = SimEngine::default();
    let limits = Limits { memory_bytes_max: 0, ..Limits::default() };
    let mut store = store_on(&engine, limits);
    let queue = define(&mut store);
    let long = |number: u64| {
        let mut body = vec![0; 10_000];
        body[..8].copy_from_slice(&number.to_be_bytes());
        body[9_999] = 1;
        Message { persistent: number.is_multiple_of(2), body: body.into(), ..message(number, true) }
    };
    for number in 0..4 {
        store.put(queue, long(number)).unwrap();
    }
    sync(&mut store);
    let mut cursor = store.watch(queue);
    let mut fronts = 0;
    let mut last = |seen: &Seen<'_>| {
        fronts += usize::from(!seen.is_whole);
        match seen.body[0].get(9_999) {
            None => Looked::More,
            Some(1) => Looked::Take,
            Some(_) => Looked::Pass,
        }
    };
    let mut budget = 10_000;
    for wanted in 0..4 {
        let found = store.look(queue, &mut cursor, 0, true, &mut budget, &mut last);
        assert_eq!(number(&found).unwrap().1, wanted);
    }
    assert_eq!(fronts, 4);
    assert!(budget < 10_000 - 4 * 64, "a read counts for more than a look: {budget}");
}

/// The key of a test message is its number, the second one the same for all.
fn keys_of(body: &[Bytes]) -> Option<[u64; 2]> {
    Some([u64::from_be_bytes(body[0][..8].try_into().unwrap()) + 1, u64::MAX])
}

fn look_up(store: &mut Store, queue: QueueId, key: u64, budget: usize) -> Option<Look> {
    let looked_at = RefCell::new(Vec::new());
    store.look_up(queue, key, 0, true, &mut budget.clone(), judge(&looked_at))
}

#[test]
fn an_index_finds_what_was_there_before_it_and_what_came_after() {
    let (mut store, queue) = store();
    for number in 0..1_000 {
        store.put(queue, message(number, true)).unwrap();
    }
    assert_eq!(look_up(&mut store, queue, 501, 1), None, "no index was asked for");
    store.index(queue, keys_of, 0);
    assert_eq!(look_up(&mut store, queue, 501, 100), Some(Look::Unfinished));
    store.put(queue, message(1_000, true)).unwrap();
    while look_up(&mut store, queue, 0, 100) == Some(Look::Unfinished) {}
    for wanted in [500, 1_000, 0] {
        let found = look_up(&mut store, queue, wanted + 1, 100).unwrap();
        let (id, found) = number(&found).unwrap();
        assert_eq!(found, wanted);
        assert_eq!(look_up(&mut store, queue, wanted + 1, 100), Some(Look::End), "it is locked");
        store.release(id, false);
        let (id, _) = number(&look_up(&mut store, queue, wanted + 1, 100).unwrap()).unwrap();
        store.acknowledge(id).unwrap();
        assert_eq!(look_up(&mut store, queue, wanted + 1, 100), Some(Look::End), "it is gone");
    }
    assert_eq!(look_up(&mut store, queue, 5_000, 100), Some(Look::End));
}

#[test]
fn of_several_messages_with_a_key_the_most_urgent_comes_first_and_only_if_wanted() {
    let (mut store, queue) = store();
    store.index(queue, keys_of, 0);
    for (priority, wanted) in [(4, true), (9, false), (5, true)] {
        store.put(queue, Message { priority, put_at_ms: u64::from(priority), ..message(7, wanted) }).unwrap();
    }
    let mut next = || number(&look_up(&mut store, queue, 8, 100)?).map(|(_, priority)| priority);
    assert_eq!([next(), next(), next()], [Some(5), Some(4), None]);
}

#[test]
fn an_index_is_let_go_a_while_after_its_last_reader() {
    let (mut store, queue) = store();
    store.index(queue, keys_of, 0);
    store.index(queue, keys_of, 0);
    store.unindex(queue);
    store.sweep(1_000, 10);
    store.sweep(100_000, 10);
    assert!(look_up(&mut store, queue, 1, 100).is_some(), "one reader is left");
    store.unindex(queue);
    store.sweep(100_000, 10);
    store.sweep(129_999, 10);
    assert!(look_up(&mut store, queue, 1, 100).is_some(), "it may come again");
    store.sweep(130_000, 10);
    assert_eq!(look_up(&mut store, queue, 1, 100), None);
}

#[test]
fn a_look_by_key_ends_with_its_budget_of_which_judging_takes_what_it_costs() {
    let (mut store, queue) = store();
    store.index(queue, keys_of, 0);
    for _ in 0..20 {
        store.put(queue, message(7, false)).unwrap();
    }
    let mut look_up = |mut budget: usize| {
        let mut judged = 0;
        let found = store.look_up(queue, 8, 0, true, &mut budget, |_| {
            judged += 1;
            Looked::PassAt { cost: 9 }
        });
        (found, budget, judged)
    };
    assert_eq!(look_up(100), (None, 0, 10));
    assert_eq!(look_up(95), (None, 0, 10), "the last one may cost more than is left");
    assert_eq!(look_up(1_000), (Some(Look::End), 800, 20));
}

#[test]
fn too_many_messages_with_one_key_are_left_to_a_scan() {
    let (mut store, queue) = store();
    store.index(queue, keys_of, 1);
    for number in 0..3_000 {
        store.put(queue, message(number, true)).unwrap();
    }
    assert_eq!(look_up(&mut store, queue, u64::MAX, 100), None);
    const { assert!(INDEX_ENTRIES_MAX >= 1_000_000) };
}

fn delayed(number: u64, until_ms: u64) -> Message {
    Message { available_at_ms: Some(until_ms), ..message(number, true) }
}

fn lock(store: &mut Store, queue: QueueId, now_ms: u64) -> Option<u64> {
    store.sweep(now_ms, 100);
    store.lock_next(queue, None, now_ms).map(|found| found.put_at_ms)
}

#[test]
fn a_message_put_for_later_counts_at_once_and_comes_at_its_time_at_its_own_place() {
    let (mut store, queue) = store();
    store.put(queue, delayed(0, 50)).unwrap();
    store.put(queue, Message { persistent: true, ..delayed(1, 100) }).unwrap();
    store.put(queue, message(2, true)).unwrap();
    sync(&mut store);
    let status = store.status(queue).unwrap();
    assert_eq!((status.depth, status.available, status.unsynced), (3, 1, 0));
    assert!(store.browse_next(queue, None, 49).is_some_and(|found| found.put_at_ms == 2));
    let mut cursor = store.watch(queue);
    assert_eq!(number(&look(&mut store, queue, &mut cursor, 100).0).unwrap().1, 2);
    assert_eq!(lock(&mut store, queue, 49), None);
    let mut ready = Vec::new();
    store.take_ready(&mut ready);
    ready.clear();
    store.sweep(50, 10);
    store.take_ready(&mut ready);
    assert_eq!(ready, [queue]);
    assert_eq!(number(&look(&mut store, queue, &mut cursor, 100).0).unwrap().1, 0);
    assert_eq!((lock(&mut store, queue, 99), lock(&mut store, queue, 100)), (None, Some(1)));
}

#[test]
fn a_message_that_is_due_before_it_is_synced_is_there_when_it_is() {
    let (mut store, queue) = store();
    store.put(queue, Message { persistent: true, ..delayed(0, 50) }).unwrap();
    assert_eq!(lock(&mut store, queue, 60), None);
    sync(&mut store);
    assert_eq!(lock(&mut store, queue, 60), Some(0));
}

#[test]
fn a_delay_outlives_a_restart_and_being_carried_forward() {
    let engine = SimEngine::default();
    let limits = Limits { checkpoint_bytes: 2_000, log_bytes_min: 4_000, ..Limits::default() };
    let mut store = store_on(&engine, limits);
    let queue = define(&mut store);
    store.put(queue, Message { persistent: true, ..delayed(7, 1_000) }).unwrap();
    sync(&mut store);
    // Enough checkpoints for the message to be moved, more than once.
    for number in 0..200 {
        store.put(queue, Message { persistent: true, ..message(number, true) }).unwrap();
        sync(&mut store);
        let found = store.lock_next(queue, None, 0).unwrap();
        assert_ne!(found.put_at_ms, 7 + 1_000_000);
        store.acknowledge(found.id).unwrap();
        sync(&mut store);
    }
    store.close(Instant::now()).unwrap();
    let mut store = store_on(&engine, limits);
    let queue = define(&mut store);
    assert_eq!(store.status(queue).unwrap().depth, 1);
    assert_eq!((lock(&mut store, queue, 999), lock(&mut store, queue, 1_000)), (None, Some(7)));
}

#[test]
fn what_waits_for_its_time_expires_and_is_cleared_like_the_rest() {
    let (mut store, queue) = store();
    store.put(queue, Message { expires_at_ms: Some(20), ..delayed(0, 50) }).unwrap();
    store.sweep(20, 10);
    assert_eq!(store.status(queue).unwrap().depth, 0);
    for number in 0..10_000 {
        store.put(queue, delayed(number, 50)).unwrap();
        store.clear(queue).unwrap();
    }
    assert_eq!(store.status(queue).unwrap().depth, 0);
    assert_eq!(lock(&mut store, queue, 100), None);
}

#[test]
fn a_unit_of_work_may_put_for_later() {
    let (mut store, queue) = store();
    store.put(queue, message(0, true)).unwrap();
    let locked = store.lock_next(queue, None, 0).unwrap();
    let puts = vec![(queue, Message { persistent: true, ..delayed(1, 50) }), (queue, delayed(2, 60))];
    let ticket = store.commit(puts, &[locked.id], &[]).unwrap();
    sync(&mut store);
    assert!(store.is_synced(ticket));
    assert_eq!(
        [lock(&mut store, queue, 49), lock(&mut store, queue, 50), lock(&mut store, queue, 60)],
        [None, Some(1), Some(2)]
    );
}
