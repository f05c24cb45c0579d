//! A queue manager used through function calls alone, beside clients of AMQP.

use super::direct::{Direct, connect};
use crate::catalog::{Change, LocalQueue};
use crate::dispatcher::harness::{Harness, PATIENCE, message, number};
use crate::mailbox::Notice;
use crate::turn::Arrival;
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::MessageId;
use bulla_amqp::{
    AttachRequest, DeliveryState, Error, Header, MessageBody, MessageParts, Payload, Properties, Sections, Symbol,
    Value,
};
use bulla_seal::Policy;
use bulla_seal::policy::SignatureDigest;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection of function calls to a running queue manager.
fn join(harness: &Harness) -> Direct {
    let mailbox = harness.running().manager().mailboxes.get(0).unwrap().clone();
    let rings = mailbox.clone();
    let (direct, end) = connect(PATIENCE, move || rings.wake());
    mailbox.post(Notice::Arrived(Box::new(Arrival::Joined(end))));
    direct
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// The reason code that a refusal's text begins with.
fn code(error: &Error) -> u16 {
    error.description.as_deref().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn what_is_put_by_calls_is_got_by_calls_in_its_order() {
    let harness = Harness::new(&[("Q", LocalQueue::default())]);
    let direct = join(&harness);
    let (puts, gets) = (direct.open_to_put("Q").unwrap(), direct.open_to_get("Q").unwrap());
    for number in 1..=3 {
        direct.put(puts, message(number, 4, number == 2)).unwrap();
    }
    for expected in 1..=3 {
        let got = direct.get(gets, soon()).unwrap().unwrap();
        assert_eq!(number(&got.message), expected);
        direct.settle(&got, DeliveryState::Accepted);
    }
    harness.until("all are gone", |harness| harness.depth("Q") == 0);
}

#[test]
fn calls_and_amqp_reach_the_same_queue() {
    let harness = Harness::new(&[("Q", LocalQueue::default())]);
    let (direct, mut client) = (join(&harness), harness.client());
    direct.put(direct.open_to_put("Q").unwrap(), message(1, 4, true)).unwrap();
    let link = client.attach(AttachRequest::receiver("get", "Q")).unwrap().link;
    let got = client.get(link, Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(number(&got.payload), 1);
    client.settle(&got, DeliveryState::Accepted).unwrap();
    let link = client.attach(AttachRequest::sender("put", "Q")).unwrap().link;
    client.put(link, message(2, 4, false), PATIENCE).unwrap();
    drop(client);
    let got = direct.get(direct.open_to_get("Q").unwrap(), soon()).unwrap().unwrap();
    assert_eq!(number(&got.message), 2);
}

#[test]
fn a_refusal_reaches_the_caller_with_its_reason() {
    let closed = LocalQueue { put_enabled: false, ..LocalQueue::default() };
    let harness = Harness::new(&[("CLOSED", closed)]);
    let direct = join(&harness);
    assert_eq!(code(&direct.open_to_put("NOWHERE").unwrap_err()), 2085);
    assert_eq!(code(&direct.open_to_get("NOWHERE").unwrap_err()), 2085);
    assert_eq!(code(&direct.open_to_put("CLOSED").unwrap_err()), 2051);
}

#[test]
fn a_get_ends_at_its_deadline_when_cancelled_or_with_a_message() {
    let harness = Harness::new(&[("Q", LocalQueue::default())]);
    let direct = join(&harness);
    let (puts, gets) = (direct.open_to_put("Q").unwrap(), direct.open_to_get("Q").unwrap());
    assert!(direct.get(gets, Instant::now()).unwrap().is_none(), "its time is over");
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| direct.get(gets, soon()));
        direct.put(puts, message(7, 4, false)).unwrap();
        let got = waits.join().unwrap().unwrap().unwrap();
        assert_eq!(number(&got.message), 7);
        direct.settle(&got, DeliveryState::Accepted);
        let waits = threads.spawn(|| direct.get(gets, soon()));
        while !waits.is_finished() {
            direct.cancel(gets);
            std::thread::yield_now();
        }
        assert!(waits.join().unwrap().unwrap().is_none(), "it was given up");
    });
}

#[test]
fn a_browser_leaves_messages_where_they_are() {
    let harness = Harness::new(&[("Q", LocalQueue::default())]);
    let direct = join(&harness);
    direct.put(direct.open_to_put("Q").unwrap(), message(1, 4, false)).unwrap();
    let looks = direct.open_to_browse("Q").unwrap();
    assert_eq!(number(&direct.get(looks, soon()).unwrap().unwrap().message), 1);
    assert!(direct.get(looks, Instant::now() + Duration::from_millis(1)).unwrap().is_none());
    direct.close(looks);
    assert_eq!(harness.depth("Q"), 1);
}

#[test]
fn what_was_got_and_not_settled_is_back_when_the_caller_is_gone() {
    let harness = Harness::new(&[("Q", LocalQueue::default())]);
    let direct = join(&harness);
    direct.put(direct.open_to_put("Q").unwrap(), message(1, 4, false)).unwrap();
    let got = direct.get(direct.open_to_get("Q").unwrap(), soon()).unwrap().unwrap();
    assert_eq!(number(&got.message), 1);
    assert_eq!(harness.available("Q"), []);
    drop(direct);
    harness.until("it is back, its delivery failed once", |harness| harness.available("Q") == [(1, 1)]);
}

#[test]
fn a_protected_queue_is_for_who_opens_or_proves_who_it_is() {
    let harness = Harness::new(&[("SECRET", LocalQueue::default())]);
    let policy = Policy { sign: Some(SignatureDigest::Sha256), ..Policy::new("SECRET") };
    let changes = [Change::define(policy.name.clone(), Arc::new(policy))];
    harness.running().manager().lock().commit_definitions(&changes, &[]).unwrap();
    let direct = join(&harness);
    assert_eq!(code(&direct.open_to_get("SECRET").unwrap_err()), 2063, "it has no keys to open with");
    direct.open_to_get_sealed("SECRET").unwrap();
}

/// A message with a body under an idempotency key.
fn keyed(key: &str, body: u64, persistent: bool) -> Payload {
    let annotation = (Value::Symbol(Symbol::from_static("x-opt-bulla-idempotency-key")), Value::from(key));
    let (mut annotations, mut properties) = (Vec::new(), Vec::new());
    encode_map_section(0x72, &[annotation], &mut annotations);
    let message_id = Some(MessageId::String(format!("id-{key}")));
    Properties { message_id, ..Properties::default() }.encode_section(&mut properties);
    let parts = MessageParts {
        header: Some(Header { durable: persistent, ..Header::default() }),
        message_annotations: annotations.into(),
        properties: properties.into(),
        body: MessageBody::Data(Payload::from(Bytes::from(body.to_string()))),
        ..MessageParts::default()
    };
    parts.build()
}

#[test]
fn a_put_that_is_tried_again_under_its_key_is_done_once_also_after_a_crash() {
    let mut harness = Harness::new(&[("Q", LocalQueue::default())]);
    let direct = join(&harness);
    let puts = direct.open_to_put("Q").unwrap();
    assert_eq!(direct.put_once(puts, keyed("durable", 1, true)).unwrap(), None);
    assert_eq!(direct.put_once(puts, keyed("durable", 1, true)).unwrap().as_deref(), Some("id-durable"));
    assert_eq!(direct.put_once(puts, keyed("not", 2, false)).unwrap(), None);
    assert_eq!(direct.put_once(puts, keyed("not", 2, false)).unwrap().as_deref(), Some("id-not"));
    let refused = direct.put(puts, keyed("durable", 3, true)).unwrap_err().unwrap();
    assert_eq!(code(&refused), 2046);
    assert!(refused.description.unwrap().contains("cause=idempotency-key-reused"));
    assert_eq!(harness.depth("Q"), 2);
    harness.kill(|| drop(direct));
    harness.start();
    let direct = join(&harness);
    let puts = direct.open_to_put("Q").unwrap();
    assert_eq!(direct.put_once(puts, keyed("durable", 1, true)).unwrap().as_deref(), Some("id-durable"));
    assert_eq!(direct.put_once(puts, keyed("not", 2, false)).unwrap(), None, "it went with the queue manager");
    assert_eq!(harness.depth("Q"), 2);
    let got = direct.get(direct.open_to_get("Q").unwrap(), soon()).unwrap().unwrap();
    let sections = Sections::scan(&got.message).unwrap();
    assert!(sections.message_annotations.is_none(), "the key is the queue manager's alone");
}

#[test]
fn a_unit_of_work_is_done_whole_or_not_at_all() {
    let mut harness = Harness::new(&[("IN", LocalQueue::default()), ("OUT", LocalQueue::default())]);
    let direct = join(&harness);
    let (to_in, to_out) = (direct.open_to_put("IN").unwrap(), direct.open_to_put("OUT").unwrap());
    let gets = direct.open_to_get("IN").unwrap();
    let units = direct.open_for_units().unwrap();
    direct.put(to_in, message(1, 4, true)).unwrap();

    let unit = direct.declare(units).unwrap();
    let got = direct.get(gets, soon()).unwrap().unwrap();
    direct.settle_in(&unit, &got, DeliveryState::Accepted);
    direct.put_in(&unit, to_out, message(2, 4, true)).unwrap();
    assert_eq!((harness.depth("IN"), harness.depth("OUT")), (1, 0), "nothing is done yet");
    direct.back_out(units, &unit).unwrap();
    assert_eq!((harness.available("IN"), harness.depth("OUT")), (vec![(1, 1)], 0));
    assert!(direct.put_in(&unit, to_out, message(2, 4, true)).is_err(), "the unit is over");

    let unit = direct.declare(units).unwrap();
    let got = direct.get(gets, soon()).unwrap().unwrap();
    direct.settle_in(&unit, &got, DeliveryState::Accepted);
    direct.put_in(&unit, to_out, message(3, 4, true)).unwrap();
    let refused = direct.put_in(&unit, to_out, keyed("key", 4, true)).unwrap_err().unwrap();
    assert!(refused.description.unwrap().contains("2046 MQRC_OPTIONS_ERROR cause=idempotency-key"));
    direct.commit(units, &unit).unwrap();
    assert_eq!((harness.depth("IN"), harness.available("OUT")), (0, vec![(3, 0)]));

    let unit = direct.declare(units).unwrap();
    direct.put_in(&unit, to_out, message(5, 4, true)).unwrap();
    direct.close(units);
    harness.kill(|| drop(direct));
    assert_eq!((harness.depth("IN"), harness.available("OUT")), (0, vec![(3, 0)]));
}
