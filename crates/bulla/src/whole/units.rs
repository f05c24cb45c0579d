//! A queue manager with clients that put and get in units of work, and a model that says what must come of it.

mod model;
mod returned;

use crate::catalog::{Backout, Full, LocalQueue};
use crate::dispatcher::unit_of_work;
use crate::reason;
use crate::whole::harness::{Harness, PATIENCE, message, number, refused};
use bulla_amqp::{Delivery, DeliveryState, LinkId, MessageBody, MessageParts, Payload, Sections};
use bulla_client::{Client, ClientError, Unit};
use bytes::Bytes;

fn put_in(client: &mut Client, unit: &Unit, link: LinkId, number: u64) -> Result<(), ClientError> {
    client.put_in(unit, link, message(number, 4, true), PATIENCE)
}

#[track_caller]
fn get_in(client: &mut Client, unit: &Unit, link: LinkId, outcome: DeliveryState) -> Delivery {
    let delivery = client.get(link, Some(PATIENCE)).unwrap().expect("one is there");
    client.settle_in(unit, &delivery, outcome).unwrap();
    delivery
}

fn queue() -> LocalQueue {
    LocalQueue::default()
}

#[test]
fn nothing_of_a_unit_is_there_before_it_commits_and_all_of_it_then() {
    let harness = Harness::new(&[("A", queue()), ("B", queue())]);
    let mut client = harness.client();
    let (a, b) = (client.sender("A", false).unwrap().link, client.sender("B", false).unwrap().link);
    let from_a = client.receiver("A", false, false).unwrap().link;
    client.put(a, message(0, 4, true), PATIENCE).unwrap();
    let unit = client.begin().unwrap();
    for number in 1..=3 {
        put_in(&mut client, &unit, a, number).unwrap();
        put_in(&mut client, &unit, b, 10 + number).unwrap();
    }
    get_in(&mut client, &unit, from_a, DeliveryState::Accepted);
    assert_eq!((harness.available("A"), harness.available("B"), harness.depth("A")), (vec![], vec![], 1));
    client.end(unit, true, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(harness.available("B"), [(11, 0), (12, 0), (13, 0)]);
    assert_eq!((harness.depth("A"), harness.units()), (3, (1, 0, 0)));
}

#[test]
fn backing_out_drops_what_was_put_and_returns_what_was_got_to_its_place() {
    let harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    for number in 0..4 {
        client.put(to, message(number, 4, true), PATIENCE).unwrap();
    }
    let unit = client.begin().unwrap();
    put_in(&mut client, &unit, to, 9).unwrap();
    let outcomes = [DeliveryState::Accepted, DeliveryState::Released, DeliveryState::Rejected(None)];
    for outcome in outcomes {
        get_in(&mut client, &unit, from, outcome);
    }
    harness.until("three are locked", |harness| harness.available("A") == [(3, 0)]);
    client.end(unit, false, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(0, 1), (1, 1), (2, 1), (3, 0)]);
    assert_eq!(harness.units(), (0, 1, 0));
    let again = client.get(from, None).unwrap().unwrap();
    assert_eq!(Sections::scan(&again.payload).unwrap().decode_header(&again.payload).unwrap().delivery_count, 1);
}

#[test]
fn each_outcome_at_the_commit_is_what_it_is_without_a_unit() {
    let harness = Harness::new(&[("A", queue()), ("SYSTEM.DEAD.LETTER.QUEUE", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    for number in 0..5 {
        client.put(to, message(number, 4, true), PATIENCE).unwrap();
    }
    let unit = client.begin().unwrap();
    let modified = |delivery_failed| DeliveryState::Modified {
        delivery_failed,
        undeliverable_here: false,
        message_annotations: Vec::new(),
    };
    let outcomes = [
        DeliveryState::Accepted,
        DeliveryState::Released,
        modified(true),
        modified(false),
        DeliveryState::Rejected(None),
    ];
    for outcome in outcomes {
        get_in(&mut client, &unit, from, outcome);
    }
    client.end(unit, true, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(1, 0), (2, 1), (3, 0)]);
    assert_eq!(harness.available("SYSTEM.DEAD.LETTER.QUEUE"), [(4, 0)]);
}

#[test]
fn a_unit_that_goes_out_at_once_commits_or_backs_out_as_one_that_waits() {
    let harness = Harness::new(&[("A", LocalQueue { max_depth: 5, full: Full::Reject, ..queue() })]);
    let mut client = harness.client();
    let to = client.sender("A", false).unwrap().link;
    let messages = |numbers: std::ops::Range<u64>| numbers.map(|number| message(number, 4, true));
    let first = client.begin().unwrap();
    let second = client.commit_with(first, to, messages(0..3), PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(0, 0), (1, 0), (2, 0)]);
    let refusal = refused(client.commit_with(second, to, messages(3..6), PATIENCE));
    assert_eq!(refusal, ("amqp:transaction:rollback".to_owned(), reason::BACKED_OUT.code));
    assert_eq!((harness.depth("A"), harness.promised("A").1), (3, 0));
    let third = client.begin().unwrap();
    client.commit_with(third, to, messages(6..8), PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(0, 0), (1, 0), (2, 0), (6, 0), (7, 0)]);
}

#[test]
fn several_units_of_a_connection_end_each_for_itself() {
    let harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let to = client.sender("A", false).unwrap().link;
    let (one, two, three) = (client.begin().unwrap(), client.begin().unwrap(), client.begin().unwrap());
    for number in 0..9 {
        let unit = [&one, &two, &three][number as usize % 3];
        put_in(&mut client, unit, to, number).unwrap();
    }
    client.end(three, true, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(2, 0), (5, 0), (8, 0)]);
    client.end(two, false, PATIENCE).unwrap();
    client.end(one, true, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(2, 0), (5, 0), (8, 0), (0, 0), (3, 0), (6, 0)]);
    assert_eq!(harness.promised("A").1, 0);
}

#[test]
fn a_unit_is_its_connections_alone_and_known_until_it_ends() {
    let harness = Harness::new(&[("A", queue())]);
    let (mut owner, mut other) = (harness.client(), harness.client());
    let unit = owner.begin().unwrap();
    other.begin().unwrap();
    let to = other.sender("A", false).unwrap().link;
    let unknown = ("amqp:transaction:unknown-id".to_owned(), 0);
    assert_eq!(refused(put_in(&mut other, &unit, to, 1)), unknown);
    assert_eq!(refused(other.end(unit.clone(), true, PATIENCE)), unknown);
    owner.end(unit.clone(), true, PATIENCE).unwrap();
    assert_eq!(refused(owner.end(unit, true, PATIENCE)), unknown);
    assert_eq!(harness.available("A"), []);
}

#[test]
fn a_connection_that_dies_backs_out() {
    let harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    for number in 0..2 {
        client.put(to, message(number, 4, true), PATIENCE).unwrap();
    }
    let unit = client.begin().unwrap();
    put_in(&mut client, &unit, to, 2).unwrap();
    get_in(&mut client, &unit, from, DeliveryState::Accepted);
    harness.until("one is locked", |harness| harness.available("A") == [(1, 0)]);
    drop(client);
    harness.until("it is back", |harness| harness.available("A") == [(0, 1), (1, 0)]);
    harness.until("nothing is promised any more", |harness| harness.promised("A") == (0, 0));
    assert_eq!(harness.units(), (0, 1, 0));
}

#[test]
fn messages_beyond_maxumsgs_are_refused_and_gets_beyond_it_doom_the_unit() {
    let harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    client.put(to, message(0, 4, true), PATIENCE).unwrap();
    harness.alter(|manager| manager.max_uncommitted = 3);
    let unit = client.begin().unwrap();
    for number in 1..=3 {
        put_in(&mut client, &unit, to, number).unwrap();
    }
    let limit = ("amqp:resource-limit-exceeded".to_owned(), reason::SYNCPOINT_LIMIT_REACHED.code);
    assert_eq!(refused(put_in(&mut client, &unit, to, 4)), limit);
    client.end(unit, true, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(0, 0), (1, 0), (2, 0), (3, 0)]);

    let unit = client.begin().unwrap();
    for _ in 0..4 {
        get_in(&mut client, &unit, from, DeliveryState::Accepted);
    }
    let rolled_back = ("amqp:transaction:rollback".to_owned(), reason::BACKED_OUT.code);
    assert_eq!(refused(put_in(&mut client, &unit, to, 5)), rolled_back);
    assert_eq!(refused(client.end(unit, true, PATIENCE)), rolled_back);
    assert_eq!(harness.available("A"), [(0, 1), (1, 1), (2, 1), (3, 1)]);
}

#[test]
fn bytes_beyond_a_unit_s_limit_and_beyond_that_of_all_units_are_refused() {
    let harness = Harness::new(&[("A", LocalQueue { max_message_bytes: 100 << 20, ..queue() })]);
    let mut client = harness.client();
    let to = client.sender("A", false).unwrap().link;
    let unit = client.begin().unwrap();
    let half = MessageParts {
        body: MessageBody::Data(Payload::from(Bytes::from(vec![7; unit_of_work::UNIT_BYTES_MAX / 2]))),
        ..MessageParts::default()
    };
    client.put_in(&unit, to, half.build(), PATIENCE).unwrap();
    let limit = |reason: reason::Reason| ("amqp:resource-limit-exceeded".to_owned(), reason.code);
    let second = client.put_in(&unit, to, half.build(), PATIENCE);
    assert_eq!(refused(second), limit(reason::SYNCPOINT_LIMIT_REACHED));
    client.end(unit, false, PATIENCE).unwrap();
    assert_eq!(harness.units(), (0, 1, 0));

    let unit = client.begin().unwrap();
    harness.running().manager().lock().unit_totals.staged_bytes = unit_of_work::STAGED_BYTES_MAX;
    assert_eq!(refused(put_in(&mut client, &unit, to, 1)), limit(reason::STORAGE_NOT_AVAILABLE));
    harness.running().manager().lock().unit_totals.staged_bytes = 0;
    put_in(&mut client, &unit, to, 2).unwrap();
    client.end(unit, true, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(2, 0)]);
}

#[test]
fn units_beyond_the_connections_limit_are_refused() {
    let harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let units: Vec<Unit> = (0..unit_of_work::UNITS_PER_CONNECTION_MAX).map(|_| client.begin().unwrap()).collect();
    let limit = ("amqp:resource-limit-exceeded".to_owned(), reason::SYNCPOINT_LIMIT_REACHED.code);
    assert_eq!(refused(client.begin()), limit);
    for unit in units {
        client.end(unit, true, PATIENCE).unwrap();
    }
    client.begin().unwrap();
}

#[test]
fn a_unit_that_is_too_old_is_backed_out_and_its_discharge_says_so() {
    let harness = Harness::new(&[("A", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    client.put(to, message(0, 4, true), PATIENCE).unwrap();
    let unit = client.begin().unwrap();
    put_in(&mut client, &unit, to, 1).unwrap();
    get_in(&mut client, &unit, from, DeliveryState::Accepted);
    harness.until("it is locked", |harness| harness.available("A").is_empty());
    harness.alter(|manager| manager.max_unit_age = 1);
    harness.until("it is back", |harness| harness.available("A") == [(0, 1)]);
    assert_eq!(harness.units().2, 0);
    let refusal = refused(put_in(&mut client, &unit, to, 2));
    assert_eq!(refusal, ("amqp:transaction:rollback".to_owned(), reason::BACKED_OUT.code));
    let refusal = refused(client.end(unit, true, PATIENCE));
    assert_eq!(refusal, ("amqp:transaction:timeout".to_owned(), reason::BACKED_OUT.code));
    assert_eq!(harness.available("A"), [(0, 1)]);
}

#[test]
fn a_unit_that_fills_the_queue_is_refused_and_does_not_wait_for_itself() {
    let harness = Harness::new(&[("A", LocalQueue { max_depth: 4, full: Full::Wait, ..queue() })]);
    let mut client = harness.client();
    let to = client.sender("A", false).unwrap().link;
    let unit = client.begin().unwrap();
    for number in 0..4 {
        put_in(&mut client, &unit, to, number).unwrap();
    }
    let full = ("amqp:resource-limit-exceeded".to_owned(), reason::Q_FULL.code);
    assert_eq!(refused(put_in(&mut client, &unit, to, 4)), full);
    client.end(unit, true, PATIENCE).unwrap();
    assert_eq!(harness.available("A"), [(0, 0), (1, 0), (2, 0), (3, 0)]);
}

#[test]
fn a_commit_that_the_store_refuses_backs_out_everything() {
    let harness = Harness::new(&[("A", queue()), ("B", queue())]);
    let mut client = harness.client();
    let (a, b) = (client.sender("A", false).unwrap().link, client.sender("B", false).unwrap().link);
    let from = client.receiver("A", false, false).unwrap().link;
    client.put(a, message(0, 4, true), PATIENCE).unwrap();
    let unit = client.begin().unwrap();
    put_in(&mut client, &unit, a, 1).unwrap();
    put_in(&mut client, &unit, b, 2).unwrap();
    get_in(&mut client, &unit, from, DeliveryState::Accepted);
    {
        let state = &mut *harness.running().manager().lock();
        let id = state.store.queue("B").unwrap();
        let inhibited = bulla_queue::QueueAttributes { put_enabled: false, ..*state.store.attributes(id).unwrap() };
        state.store.alter(id, inhibited).unwrap();
    }
    let result = client.end(unit, true, PATIENCE);
    let Err(ClientError::Refused(error)) = &result else { panic!("{result:?}") };
    let text = error.description.as_deref().unwrap();
    assert!(text.starts_with("2003 MQRC_BACKED_OUT 2051 MQRC_PUT_INHIBITED"), "{text}");
    assert_eq!(refused(result), ("amqp:transaction:rollback".to_owned(), reason::BACKED_OUT.code));
    assert_eq!((harness.available("A"), harness.available("B")), (vec![(0, 1)], vec![]));
    assert_eq!((harness.units(), harness.promised("B").1), ((0, 1, 0), 0));
}

#[test]
fn a_message_backed_out_too_often_is_moved_by_a_queue_that_says_so() {
    let moving =
        LocalQueue { backout: Backout::Move, backout_threshold: 3, backout_queue: Some("BACK".into()), ..queue() };
    let harness = Harness::new(&[("A", moving.clone()), ("BACK", queue()), ("SYSTEM.DEAD.LETTER.QUEUE", queue())]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    client.put(to, message(0, 4, true), PATIENCE).unwrap();
    client.put(to, message(1, 4, true), PATIENCE).unwrap();
    for failures in 1..=3 {
        let unit = client.begin().unwrap();
        assert_eq!(number(&get_in(&mut client, &unit, from, DeliveryState::Accepted).payload), 0);
        client.end(unit, false, PATIENCE).unwrap();
        if failures < 3 {
            assert_eq!(harness.available("A"), [(0, failures), (1, 0)]);
        }
    }
    // The discharge is answered before the move is synced.
    harness.until("it is moved", |harness| harness.available("BACK") == [(0, 0)]);
    assert_eq!(harness.available("A"), [(1, 0)]);
    // Without a unit it is the same: a delivery that failed.
    let failed =
        DeliveryState::Modified { delivery_failed: true, undeliverable_here: false, message_annotations: Vec::new() };
    for failures in 1..=3 {
        let delivery = client.get(from, Some(PATIENCE)).unwrap().unwrap();
        client.settle(&delivery, failed.clone()).unwrap();
        if failures < 3 {
            harness.until("it is back", |harness| harness.available("A") == [(1, failures)]);
        }
    }
    harness.until("it is moved", |harness| harness.available("BACK") == [(0, 0), (1, 0)]);
    assert_eq!(harness.depth("A"), 0);
}

#[test]
fn a_message_that_can_not_be_moved_stays() {
    let moving =
        LocalQueue { backout: Backout::Move, backout_threshold: 1, backout_queue: Some("NOWHERE".into()), ..queue() };
    let harness = Harness::new(&[("A", moving)]);
    let mut client = harness.client();
    let (to, from) = (client.sender("A", false).unwrap().link, client.receiver("A", false, false).unwrap().link);
    client.put(to, message(0, 4, true), PATIENCE).unwrap();
    for failures in 1..=2 {
        let unit = client.begin().unwrap();
        get_in(&mut client, &unit, from, DeliveryState::Accepted);
        client.end(unit, false, PATIENCE).unwrap();
        assert_eq!(harness.available("A"), [(0, failures)]);
    }
}
