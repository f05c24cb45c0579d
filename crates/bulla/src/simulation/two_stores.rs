//! A queue manager with two stores: the local one, and one by name.

use super::late_log::Takes;
use super::node::{Node, open_to_all};
use super::plain::{CREDIT, Plain, step};
use super::protection::{Quality, protects};
use crate::catalog::{AliasQueue, Change, LocalQueue, Sort, Subscription};
use crate::clock::Clock;
use crate::envelope::payload_of;
use crate::mailbox::Mailbox;
use crate::stores::{NamedStore, Stores, StoresError};
use crate::whole::harness::number;
use bulla_amqp::transaction::{Control, Declare, Discharge};
use bulla_amqp::types::{SenderSettleMode, Source};
use bulla_amqp::{AttachRequest, DeliveryState, Error, Symbol};
use bulla_queue::sim::{Fate, Manner, SimDisk, SimEngine};
use bulla_queue::{DefineError, DefinitionUnit, FileSpill, Limits, Message, QueueAttributes, Store, StoreNumber};
use bulla_seal::Policy;
use bulla_seal::policy::SignatureDigest;
use bytes::Bytes;
use fastrand::Rng;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: &str = "GROUP";
const GROUP_NUMBER: StoreNumber = StoreNumber::new(1).unwrap();
/// What the log of the second store takes for a batch.
const BATCH_TAKES: Duration = Duration::from_secs(5);
/// Steps of a round trip: two turns, what is under way between them, and a batch of the local log.
const ROUND_TRIP_STEPS: u64 = 15;

/// A queue manager with the queues NEAR, in the local store, and SHARED.
fn node(clock: &Clock, takes: Takes) -> Node {
    let mut node = Node::new("QM1", clock).with_store(GROUP, &["SHARED"], takes);
    let mut changes = open_to_all();
    changes.push(Change::define("NEAR".to_owned(), LocalQueue::default()));
    node.start(1, &changes).unwrap();
    node
}

/// The reason code and the cause that a refusal's text begins with.
#[track_caller]
fn refused(state: &DeliveryState) -> (u16, String) {
    let outcome = match state {
        DeliveryState::Transactional { outcome: Some(outcome), .. } => outcome,
        other => other,
    };
    let DeliveryState::Rejected(Some(error)) = outcome else { panic!("{state:?}") };
    let text = error.description.clone().unwrap_or_default();
    let cause = text.split("cause=").nth(1).and_then(|cause| cause.split([' ', ':']).next()).unwrap_or_default();
    (text.split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(0), cause.to_owned())
}

#[test]
fn a_queue_is_found_in_its_store_and_its_definitions_lie_there() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    let policy = Policy { sign: Some(SignatureDigest::Sha256), ..Policy::new("SHARED") };
    {
        let state = &mut *node.running().unwrap().manager.lock();
        let [near, shared] = ["NEAR", "SHARED"].map(|name| state.store.queue(name).unwrap());
        assert_eq!([near.store(), shared.store()], [StoreNumber::LOCAL, GROUP_NUMBER]);
        assert_eq!(state.route("SHARED").unwrap().queue, shared);
        assert_eq!(state.store.store_name(shared.store()), GROUP);
        let altered = LocalQueue { max_depth: 7, ..LocalQueue::default() };
        let changes = [Change::alter("SHARED", altered.clone()), Change::define("SHARED", Arc::new(policy))];
        state.commit_definitions(&changes, &[]).unwrap();
        for (object, store) in [
            ("QLOCAL NEAR", StoreNumber::LOCAL),
            ("QLOCAL SHARED", GROUP_NUMBER),
            ("POLICY SHARED", GROUP_NUMBER),
            ("AUTHREC QUEUE \"SHARED\" PRINCIPAL ann", GROUP_NUMBER),
            ("AUTHREC QUEUE \"S*\" PRINCIPAL ann", StoreNumber::LOCAL),
            ("QLOCAL NEW", StoreNumber::LOCAL),
        ] {
            assert_eq!(state.store.store_of_object(object), store, "{object}");
        }
        let both = [Change::alter("SHARED", altered.clone()), Change::alter("NEAR", altered)];
        let changes_before = state.changes.noted.last;
        assert_eq!(state.commit_definitions(&both, &[]), Err(DefineError::OtherStore));
        assert_eq!((state.changes.noted.last, state.definitions.queues["NEAR"].max_depth), (changes_before, 5_000));
        state.store.sync(clock.now()).unwrap();
    }
    node.crash(Fate::Lost);
    node.start(2, &[]).unwrap();
    let state = &mut *node.running().unwrap().manager.lock();
    assert_eq!(state.definitions.queues["SHARED"].max_depth, 7);
    assert!(state.definitions.policies.contains_key("SHARED"));
    assert_eq!(state.store.attributes(state.store.queue("SHARED").unwrap()).unwrap().max_depth, 7);
    state.commit_definitions(&[Change::delete("SHARED", Sort::Local)], &[]).unwrap();
    assert!(state.store.queue("SHARED").is_none() && !state.store.has_object("QLOCAL SHARED"));
}

#[test]
fn a_name_stands_in_one_store() {
    let opened = |number, queue: &str| {
        let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
        let log = Box::new(SimEngine::default().log(Manner::Prompt));
        let mut store = Store::open_numbered(number, log, Box::new(spill), Limits::default(), Instant::now()).unwrap();
        store.define(queue, QueueAttributes::default()).unwrap();
        store
    };
    let stores = |name: &str, number, queue| {
        let further = vec![NamedStore { name: name.to_owned(), store: opened(number, queue) }];
        Stores::new(opened(StoreNumber::LOCAL, "ORDERS"), further).map(drop)
    };
    let in_both = StoresError::Queue { queue: "ORDERS".into(), stores: ["LOCAL".into(), "GROUP".into()] };
    assert_eq!(in_both.to_string(), "the queue ORDERS is in the stores LOCAL and GROUP: delete one of the two");
    assert_eq!(stores(GROUP, GROUP_NUMBER, "ORDERS"), Err(in_both));
    assert_eq!(stores("LOCAL", GROUP_NUMBER, "OTHERS"), Err(StoresError::Name { name: "LOCAL".into() }));
    let place = StoresError::Number { name: GROUP.into(), number: 0 };
    assert_eq!(stores(GROUP, StoreNumber::LOCAL, "OTHERS"), Err(place));
    assert_eq!(stores(GROUP, GROUP_NUMBER, "OTHERS"), Ok(()));
}

#[test]
fn messages_of_each_store_are_there_after_a_crash_and_are_got_in_their_order() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    let mut client = Plain::connect(&mut node, &clock);
    let links = ["NEAR", "SHARED"].map(|name| client.attach(AttachRequest::sender(name, name), 0));
    for number in 0..20 {
        let link = links[number as usize % 2];
        client.until(&mut node, &clock, |client| client.engine.can_send(link));
        let token = client.put(link, number, true);
        assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
    }
    node.crash(Fate::Lost);
    node.start(2, &[]).unwrap();
    let mut client = Plain::connect(&mut node, &clock);
    let links = ["NEAR", "SHARED"].map(|name| client.attach(AttachRequest::receiver(name, name), CREDIT));
    client.until(&mut node, &clock, |client| links.iter().all(|link| client.got(*link).len() == 10));
    let every_second = |first: u64| (first..20).step_by(2).collect::<Vec<_>>();
    assert_eq!(links.map(|link| client.got(link).to_vec()), [every_second(0), every_second(1)]);
}

#[test]
fn a_unit_of_work_over_two_stores_is_refused_at_the_second_one() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    let mut client = Plain::connect(&mut node, &clock);
    let [near, shared] = ["NEAR", "SHARED"].map(|name| client.attach(AttachRequest::sender(name, name), 0));
    let from_shared = client.attach_to_hold(AttachRequest::receiver("from", "SHARED"), CREDIT);
    let units = client.attach_coordinator();
    client.until(&mut node, &clock, |client| [near, shared, units].iter().all(|link| client.engine.can_send(*link)));
    let declare = |client: &mut Plain, node: &mut Node| -> Bytes {
        let token = client.control(units, &Control::Declare(Declare { global_id: None }));
        match client.answer(node, &clock, token) {
            DeliveryState::Declared { txn_id } => txn_id,
            other => panic!("{other:?}"),
        }
    };
    let commit = |client: &mut Plain, node: &mut Node, txn_id: &Bytes| {
        let token = client.control(units, &Control::Discharge(Discharge { txn_id: txn_id.clone(), fail: false }));
        client.answer(node, &clock, token)
    };
    let mixed = (2355, "stores".to_owned());

    // Put after put: the second is refused, and the unit goes on without it.
    let unit = declare(&mut client, &mut node);
    let first = client.put_in(shared, 1, &unit);
    assert!(matches!(client.answer(&mut node, &clock, first), DeliveryState::Transactional { .. }));
    let second = client.put_in(near, 2, &unit);
    assert_eq!(refused(&client.answer(&mut node, &clock, second)), mixed);
    assert_eq!(commit(&mut client, &mut node, &unit), DeliveryState::Accepted);
    client.until(&mut node, &clock, |client| client.got(from_shared) == [1]);

    // A get after a put: its outcome can't be refused by itself, so the unit is backed out for that reason.
    let unit = declare(&mut client, &mut node);
    let put = client.put_in(near, 3, &unit);
    assert!(matches!(client.answer(&mut node, &clock, put), DeliveryState::Transactional { .. }));
    client.accept(from_shared, Some(&unit));
    step(&mut node, &mut client, &clock); // the outcome goes out before the discharge
    assert_eq!(refused(&commit(&mut client, &mut node, &unit)), mixed);
    let depth = |node: &mut Node, name: &str| {
        let state = node.running().unwrap().manager.lock();
        state.store.status(state.store.queue(name).unwrap()).unwrap().depth
    };
    assert_eq!((depth(&mut node, "NEAR"), depth(&mut node, "SHARED")), (0, 1));
}

#[test]
fn while_the_log_of_one_store_takes_five_seconds_queues_of_the_other_keep_their_rate() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes { batch: Some(BATCH_TAKES), ..Takes::default() });
    let mut client = Plain::connect(&mut node, &clock);
    let [to_near, to_shared] = ["NEAR", "SHARED"].map(|name| client.attach(AttachRequest::sender(name, name), 0));
    let from_near = client.attach(AttachRequest::receiver("from near", "NEAR"), CREDIT);
    let from_shared = client.attach(AttachRequest::receiver("from shared", "SHARED"), CREDIT);
    client.until(&mut node, &clock, |client| [to_near, to_shared].iter().all(|link| client.engine.can_send(*link)));
    let (began, mut slowest, mut rounds) = (clock.now(), Duration::ZERO, 0);
    let slow = client.put(to_shared, 1, true);
    while client.got(from_shared).is_empty() {
        let sent_at = clock.now();
        let token = client.put(to_near, rounds, true);
        assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
        client.until(&mut node, &clock, |client| client.got(from_near).last() == Some(&rounds));
        slowest = slowest.max(clock.since(sent_at));
        rounds += 1;
    }
    let took = clock.since(began);
    assert_eq!(client.answer(&mut node, &clock, slow), DeliveryState::Accepted);
    assert!(took >= BATCH_TAKES, "the log answered after {took:?}");
    assert!(slowest <= Duration::from_millis(ROUND_TRIP_STEPS), "a message of the other store took {slowest:?}");
    assert!(rounds > 300, "{rounds} messages went by in {took:?}");
    step(&mut node, &mut client, &clock);
}

/// Publications with subscribers in both stores.
const PUBLICATIONS: u64 = 5;
/// Steps until all of it is over where nothing crashes.
const STEPS_MAX: u64 = 120;

/// A queue manager whose topic `t` has subscribers on NEAR and on SHARED.
fn with_subscribers(clock: &Clock, takes: Takes) -> Node {
    let mut node = Node::new("QM1", clock).with_store(GROUP, &["SHARED"], takes);
    let mut changes = open_to_all();
    changes.push(Change::define("NEAR".to_owned(), LocalQueue::default()));
    changes.extend(["NEAR", "SHARED"].map(|queue| {
        let subscription = Subscription { string: "t".into(), destination: queue.into(), ..Subscription::default() };
        Change::define(format!("TO.{queue}"), subscription)
    }));
    node.start(1, &changes).unwrap();
    node
}

/// What lies on a queue, in order.
fn lying_on(node: &mut Node, name: &str) -> Vec<u64> {
    let state = &mut *node.running().unwrap().manager.lock();
    let queue = state.store.queue(name).unwrap();
    let (mut numbers, mut after) = (Vec::new(), None);
    while let Some(found) = state.store.browse_next(queue, after, 0) {
        numbers.push(number(&payload_of(&state.store.body_now(found.id).unwrap())));
        after = Some(found.place);
    }
    numbers
}

#[test]
fn a_publication_over_two_stores_is_on_the_queues_of_each_once_wherever_a_crash_comes() {
    let mut came_late = 0;
    for crash_at in 0..STEPS_MAX {
        // The other log is slower than the local one, or faster.
        let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(9));
        let takes = Takes { batch: Some(if crash_at % 2 == 0 { slow } else { fast }), ..Takes::default() };
        let clock = Clock::simulated();
        let mut node = with_subscribers(&clock, takes);
        let mut client = Plain::connect(&mut node, &clock);
        let link = client.attach(AttachRequest::sender("publish", "topic://t"), 0);
        client.until(&mut node, &clock, |client| client.engine.can_send(link));
        for number in 0..PUBLICATIONS {
            client.put(link, number, true);
        }
        (0..crash_at).for_each(|_| step(&mut node, &mut client, &clock));
        let answered = client.answered as usize;
        came_late += usize::from(lying_on(&mut node, "SHARED").len() < answered);
        // What either disk had begun to write may or may not be there.
        node.crash(if crash_at % 3 == 0 { Fate::Kept } else { Fate::Lost });
        node.start(2, &[]).unwrap();
        let mut client = Plain::connect(&mut node, &clock);
        (0..STEPS_MAX).for_each(|_| step(&mut node, &mut client, &clock));
        let [near, shared] = ["NEAR", "SHARED"].map(|name| lying_on(&mut node, name));
        assert_eq!(near, shared, "crash at step {crash_at}");
        assert!(near.len() >= answered && near.iter().copied().eq(0..near.len() as u64), "{near:?}, {answered}");
        // Nothing is left on the way, and no note of it.
        let state = node.running().unwrap().manager.lock();
        assert_eq!(state.store.on_the_way(), 0, "crash at step {crash_at}");
    }
    assert!(came_late > 0, "no crash came between the two stores");
}

#[test]
fn a_publication_over_two_stores_does_not_wait_for_the_slower_one() {
    let clock = Clock::simulated();
    let mut node = with_subscribers(&clock, Takes { batch: Some(BATCH_TAKES), ..Takes::default() });
    let mut client = Plain::connect(&mut node, &clock);
    let link = client.attach(AttachRequest::sender("publish", "topic://t"), 0);
    let from_shared = client.attach(AttachRequest::receiver("from", "SHARED"), CREDIT);
    client.until(&mut node, &clock, |client| client.engine.can_send(link));
    let began = clock.now();
    let token = client.put(link, 1, true);
    assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
    assert!(clock.since(began) < BATCH_TAKES);
    client.until(&mut node, &clock, |client| client.got(from_shared) == [1]);
    assert!(clock.since(began) >= BATCH_TAKES);
}

#[test]
fn a_message_that_moves_to_a_queue_of_another_store_is_there_once() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    let mut client = Plain::connect(&mut node, &clock);
    let link = client.attach(AttachRequest::sender("put", "SHARED"), 0);
    client.until(&mut node, &clock, |client| client.engine.can_send(link));
    let token = client.put(link, 7, true);
    assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
    {
        let state = &mut *node.running().unwrap().manager.lock();
        let [near, shared] = ["NEAR", "SHARED"].map(|name| state.store.queue(name).unwrap());
        let found = state.store.lock_next(shared, None, 0).unwrap();
        let body = state.store.body(found.id).unwrap();
        let moved = Message { expires_at_ms: Some(u64::MAX - 1), priority: 9, ..Message::new(false, body) };
        state.store.transfer(found.id, near, moved).unwrap();
        assert_eq!(state.store.status(shared).unwrap().depth, 0);
    }
    (0..50).for_each(|_| step(&mut node, &mut client, &clock));
    assert_eq!(lying_on(&mut node, "NEAR"), [7]);
    let state = &mut *node.running().unwrap().manager.lock();
    let found = state.store.browse_next(state.store.queue("NEAR").unwrap(), None, 0).unwrap();
    assert_eq!((found.priority, found.persistent, found.expires_at_ms), (9, true, Some(u64::MAX - 1)));
    assert_eq!(state.store.on_the_way(), 0);
}

/// The cause that a link was ended for.
fn cause(error: &Error) -> &str {
    let text = error.description.as_deref().unwrap_or_default();
    assert!(text.starts_with("2009 "), "{text}");
    text.split("cause=").nth(1).and_then(|cause| cause.split([' ', ':']).next()).unwrap_or_default()
}

#[test]
fn a_store_that_another_one_owns_ends_its_own_links_and_comes_back_with_what_was_confirmed() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes { batch: Some(Duration::from_millis(50)), ..Takes::default() });
    let mut client = Plain::connect(&mut node, &clock);
    let to_near = client.attach(AttachRequest::sender("to near", "NEAR"), 0);
    let to_shared = client.attach(AttachRequest::sender("to shared", "SHARED"), 0);
    client.may_end(to_shared);
    client.until(&mut node, &clock, |client| [to_near, to_shared].iter().all(|link| client.engine.can_send(*link)));
    for number in 0..5 {
        let token = client.put(to_shared, number, true);
        assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
    }
    let from_shared = client.attach_to_hold(AttachRequest::receiver("from shared", "SHARED"), 2);
    client.may_end(from_shared);
    client.until(&mut node, &clock, |client| client.got(from_shared) == [0, 1]);
    // One is on its way to the log when another queue manager becomes the owner.
    let lost = client.put(to_shared, 5, true);
    step(&mut node, &mut client, &clock);
    node.loses_its_store();
    client.until(&mut node, &clock, |client| [to_shared, from_shared].iter().all(|link| client.ended(*link).is_some()));
    for link in [to_shared, from_shared] {
        assert_eq!(cause(client.ended(link).unwrap()), "group-left");
    }
    let token = client.put(to_near, 6, true);
    assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted, "the other store's links go on");
    {
        let state = node.running().unwrap().manager.lock();
        assert!(state.store.queue("SHARED").is_none() && !state.definitions.queues.contains_key("SHARED"));
        assert!(state.definitions.queues.contains_key("NEAR"));
        assert!(state.uses.keys().all(|queue| queue.store() == StoreNumber::LOCAL), "nothing of it is kept");
    }
    node.gets_its_store(9).unwrap();
    let again = client.attach(AttachRequest::receiver("again", "SHARED"), CREDIT);
    client.until(&mut node, &clock, |client| client.got(again).len() == 5);
    assert_eq!(client.got(again), [0, 1, 2, 3, 4]);
    let to_shared = client.attach(AttachRequest::sender("to shared again", "SHARED"), 0);
    client.until(&mut node, &clock, |client| client.engine.can_send(to_shared));
    let token = client.put(to_shared, 7, true);
    assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
    client.until(&mut node, &clock, |client| client.got(again).last() == Some(&7));
    assert!(!client.is_answered(lost), "what was not in the log is never confirmed");
}

#[test]
fn a_store_whose_log_fails_leaves_and_the_queue_manager_goes_on() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    let mut client = Plain::connect(&mut node, &clock);
    let [to_near, to_shared] = ["NEAR", "SHARED"].map(|name| client.attach(AttachRequest::sender(name, name), 0));
    client.may_end(to_shared);
    client.until(&mut node, &clock, |client| [to_near, to_shared].iter().all(|link| client.engine.can_send(*link)));
    node.breaks_its_store();
    let lost = client.put(to_shared, 1, true);
    client.until(&mut node, &clock, |client| client.ended(to_shared).is_some());
    let token = client.put(to_near, 2, true);
    assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
    assert!(!client.is_answered(lost));
    node.mends_its_store();
    node.gets_its_store(9).unwrap();
    let again = client.attach(AttachRequest::sender("again", "SHARED"), 0);
    client.until(&mut node, &clock, |client| client.engine.can_send(again));
    let token = client.put(again, 3, true);
    assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted);
}

#[test]
fn a_unit_of_work_of_a_store_that_leaves_is_backed_out() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    let mut client = Plain::connect(&mut node, &clock);
    let shared = client.attach(AttachRequest::sender("shared", "SHARED"), 0);
    client.may_end(shared);
    let units = client.attach_coordinator();
    client.until(&mut node, &clock, |client| [shared, units].iter().all(|link| client.engine.can_send(*link)));
    let token = client.control(units, &Control::Declare(Declare { global_id: None }));
    let DeliveryState::Declared { txn_id } = client.answer(&mut node, &clock, token) else { panic!("no unit") };
    let put = client.put_in(shared, 1, &txn_id);
    assert!(matches!(client.answer(&mut node, &clock, put), DeliveryState::Transactional { .. }));
    node.loses_its_store();
    client.until(&mut node, &clock, |client| client.ended(shared).is_some());
    node.gets_its_store(9).unwrap();
    let token = client.control(units, &Control::Discharge(Discharge { txn_id, fail: false }));
    let answer = client.answer(&mut node, &clock, token);
    assert_eq!(refused(&answer).0, 2003, "{answer:?}");
    let state = node.running().unwrap().manager.lock();
    assert_eq!(state.store.status(state.store.queue("SHARED").unwrap()).unwrap().depth, 0);
}

#[test]
fn a_store_with_a_queue_that_is_here_does_not_join() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    node.loses_its_store();
    let mut client = Plain::connect(&mut node, &clock);
    step(&mut node, &mut client, &clock);
    for change in [
        Change::define("SHARED".to_owned(), LocalQueue::default()),
        Change::define("SHARED".to_owned(), AliasQueue { target: "NEAR".into(), ..AliasQueue::default() }),
    ] {
        let deletes = Change::delete("SHARED", change.object().unwrap().0);
        let commit = |node: &mut Node, change| {
            node.running().unwrap().manager.lock().commit_definitions(&[change], &[]).unwrap();
        };
        commit(&mut node, change);
        let refused = node.gets_its_store(9).unwrap_err();
        assert!(refused.contains("SHARED"), "{refused}");
        commit(&mut node, deletes);
    }
    node.gets_its_store(9).unwrap();
}

#[test]
fn a_log_that_defines_more_than_its_queues_does_not_join() {
    for (object, text) in [
        (
            "AUTHREC QUEUE \"**\" PRINCIPAL mallory",
            "SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('mallory') AUTHADD(GET)\n",
        ),
        ("QALIAS OWN", "DEFINE QALIAS('OWN') +\n   TARGET('NEAR')\n"),
        // The name says less than the text.
        ("POLICY SHARED", "DEFINE PROCESS('P') +\n   APPLICID('/bin/sh')\n"),
        ("POLICY SHARED", "ALTER QLOCAL('NEAR') MAXDEPTH(0)\n"),
        ("POLICY NEAR", "SET POLICY('NEAR') SIGNALG(NONE) ENCALG(AES256) RECIP('CN=mallory')\n"),
    ] {
        let clock = Clock::simulated();
        let mut node = node(&clock, Takes::default());
        let mut client = Plain::connect(&mut node, &clock);
        {
            let state = &mut *node.running().unwrap().manager.lock();
            let objects = [(object, Some(text.as_bytes()))];
            let unit = DefinitionUnit { objects: &objects, ..DefinitionUnit::default() };
            state.store.commit_definitions(GROUP_NUMBER, &unit).unwrap();
            state.store.sync(clock.now()).unwrap();
        }
        node.loses_its_store();
        step(&mut node, &mut client, &clock);
        let refused = node.gets_its_store(9).unwrap_err();
        assert!(refused.starts_with("Foreign") || refused.starts_with("Definitions("), "{object}: {refused}");
        let state = node.running().unwrap().manager.lock();
        assert!(state.store.queue("SHARED").is_none() && state.definitions.queues["NEAR"].max_depth == 5_000);
        assert!(state.definitions.policies.is_empty() && state.definitions.aliases.is_empty(), "{object}");
    }
}

#[test]
fn a_dispatcher_that_has_ended_keeps_no_number() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    let over = Arc::new(Mailbox::new(|| {}));
    assert!(node.running().unwrap().manager.workers.mailboxes.add(over.clone()));
    over.close();
    let mut client = Plain::connect(&mut node, &clock);
    node.loses_its_store();
    let kept = |node: &mut Node| {
        let manager = &node.running().unwrap().manager;
        manager.lock().left_stores.numbers(manager.live_dispatchers())
    };
    assert_eq!(kept(&mut node), [GROUP_NUMBER], "the other one has not had its turn");
    step(&mut node, &mut client, &clock);
    assert_eq!(kept(&mut node), []);
}

/// Steps in which there is a tick for certain.
const LONG: usize = 2_000;

#[test]
fn while_a_store_may_be_anothers_nothing_of_it_is_sent_and_afterwards_it_is_without_a_put() {
    let get = || AttachRequest::receiver("from", "SHARED");
    let copy = Source { distribution_mode: Some(Symbol::from_static("copy")), ..Source::at("SHARED") };
    let browse = AttachRequest { source: Some(copy), ..get() };
    let settled = AttachRequest { snd_settle_mode: SenderSettleMode::Settled, ..get() };
    let ways = [(get(), false), (get(), true), (browse, false), (settled, false)];
    for ((request, drains), is_early) in ways.into_iter().flat_map(|way| [(way.clone(), false), (way, true)]) {
        let what = format!("{request:?}, drains {drains}, early {is_early}");
        let clock = Clock::simulated();
        let mut node = node(&clock, Takes::default());
        let mut client = Plain::connect(&mut node, &clock);
        let [to_near, to_shared] = ["NEAR", "SHARED"].map(|name| client.attach(AttachRequest::sender(name, name), 0));
        client.until(&mut node, &clock, |client| [to_near, to_shared].iter().all(|link| client.engine.can_send(*link)));
        let from_near = client.attach(AttachRequest::receiver("near", "NEAR"), CREDIT);
        let early = is_early.then(|| client.attach(request.clone(), CREDIT));
        step(&mut node, &mut client, &clock);
        node.answer_looks(false);
        let from_shared = early.unwrap_or_else(|| client.attach(request, CREDIT));
        if drains {
            client.engine.drain(from_shared);
        }
        for number in 0..3 {
            for link in [to_shared, to_near] {
                let token = client.put(link, number, true);
                assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted, "{what}");
            }
        }
        client.until(&mut node, &clock, |client| client.got(from_near) == [0, 1, 2]);
        (0..LONG).for_each(|_| step(&mut node, &mut client, &clock));
        assert_eq!(client.got(from_shared), [0; 0], "{what}");
        node.answer_looks(true);
        client.until(&mut node, &clock, |client| client.got(from_shared) == [0, 1, 2]);
    }
}

#[test]
fn what_was_opened_while_a_store_may_be_anothers_is_sent_afterwards_in_its_order() {
    let clock = Clock::simulated();
    let mut node = node(&clock, Takes::default());
    node.running().unwrap().manager.lock().commit_definitions(&[protects("SHARED", Quality::Privacy)], &[]).unwrap();
    let mut client = Plain::connect(&mut node, &clock);
    let to_shared = client.attach(AttachRequest::sender("to", "SHARED"), 0);
    client.until(&mut node, &clock, |client| client.engine.can_send(to_shared));
    let tokens = [0, 1, 2].map(|number| client.put(to_shared, number, true));
    let go_on = |node: &mut Node, client: &mut Plain| {
        node.adapt();
        step(node, client, &clock);
    };
    (0..LONG).for_each(|_| go_on(&mut node, &mut client));
    assert!(tokens.iter().all(|token| is_accepted(&client, *token)));
    let from_shared = client.attach(AttachRequest::receiver("from", "SHARED"), CREDIT);
    while !node.running().unwrap().manager.workers.adapters.has_tasks() {
        step(&mut node, &mut client, &clock);
    }
    node.answer_looks(false);
    (0..LONG).for_each(|_| go_on(&mut node, &mut client));
    assert!(!node.running().unwrap().manager.workers.adapters.has_tasks(), "they are open");
    assert_eq!(client.got(from_shared), [0; 0]);
    node.answer_looks(true);
    (0..LONG).for_each(|_| go_on(&mut node, &mut client));
    assert_eq!(client.got(from_shared), [0, 1, 2]);
}

/// Owners that the second store has in one seed.
const OWNERS: u64 = 6;
/// Steps of one owner, at most.
const OWNER_STEPS_MAX: u64 = 120;

#[test]
fn whenever_a_store_leaves_nothing_that_was_confirmed_is_lost_and_nothing_else_is_confirmed() {
    let (mut confirmed, mut unanswered) = (0, 0);
    for seed in 0..30 {
        let mut random = Rng::with_seed(seed);
        let clock = Clock::simulated();
        let takes = Takes { batch: Some(Duration::from_millis(random.u64(..20))), ..Takes::default() };
        let mut node = node(&clock, takes);
        let mut client = Plain::connect(&mut node, &clock);
        let near = client.attach(AttachRequest::sender("near", "NEAR"), 0);
        client.until(&mut node, &clock, |client| client.engine.can_send(near));
        let mut got = HashSet::new();
        let (mut accepted, mut number) = (HashSet::new(), 0);
        for owner in 0..OWNERS {
            let name = |what: &str| format!("{what} {owner}");
            let sender = client.attach(AttachRequest::sender(name("to"), "SHARED"), 0);
            let receiver = client.attach(AttachRequest::receiver(name("from"), "SHARED"), CREDIT);
            client.may_end(sender);
            client.may_end(receiver);
            let mut puts = Vec::new();
            for _ in 0..random.u64(..OWNER_STEPS_MAX) {
                if client.engine.can_send(sender) && random.bool() {
                    puts.push((client.put(sender, number, true), number));
                    number += 1;
                }
                step(&mut node, &mut client, &clock);
            }
            node.loses_its_store();
            client.until(&mut node, &clock, |client| client.ended(sender).and(client.ended(receiver)).is_some());
            unanswered += puts.iter().filter(|(token, _)| !client.is_answered(*token)).count();
            accepted.extend(puts.iter().filter(|(token, _)| is_accepted(&client, *token)).map(|(_, number)| *number));
            got.extend(client.got(receiver));
            let token = client.put(near, number, true);
            assert_eq!(client.answer(&mut node, &clock, token), DeliveryState::Accepted, "seed {seed}");
            number += 1;
            node.gets_its_store(seed + owner).unwrap();
            // What was not confirmed is not confirmed later either.
            (0..30).for_each(|_| step(&mut node, &mut client, &clock));
            let late = puts.iter().filter(|(token, number)| is_accepted(&client, *token) && !accepted.contains(number));
            assert_eq!(late.count(), 0, "seed {seed}, owner {owner}");
        }
        got.extend(lying_on(&mut node, "SHARED"));
        assert!(accepted.is_subset(&got), "seed {seed}: lost {:?}", accepted.difference(&got));
        confirmed += accepted.len();
    }
    assert!(confirmed > 1_000 && unanswered > 30, "{confirmed} confirmed, {unanswered} unanswered");
}

fn is_accepted(client: &Plain, token: u64) -> bool {
    client.state(token) == Some(&DeliveryState::Accepted)
}
