//! A queue manager used through function calls alone, beside clients of AMQP.

use crate::arriving::HELD_BYTES_SMALL;
use crate::authority::{ANONYMOUS, Entity, ObjectType, Profile, RecordKey};
use crate::catalog::{BASE_TOPIC, Change, LocalQueue, Subscription};
use crate::dispatcher::producer::CREDIT_CLEAR;
use crate::front::direct::{Direct, connect};
use crate::front::outcome::{Failure, MessageOutcome};
use crate::mailbox::Notice;
use crate::turn::Arrival;
use crate::whole::harness::{Harness, PATIENCE, message, number};
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::MessageId;
use bulla_amqp::{
    AttachRequest, DeliveryState, Header, MessageBody, MessageParts, Payload, Properties, Sections, Symbol, Value,
};
use bulla_seal::Policy;
use bulla_seal::policy::SignatureDigest;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A connection of function calls to a running queue manager.
fn join(harness: &Harness) -> Direct {
    let mailbox = harness.running().manager().workers.mailboxes.get(0).unwrap().clone();
    let rings = mailbox.clone();
    let (direct, end) = connect(PATIENCE, move || rings.wake());
    mailbox.post(Notice::Arrived(Box::new(Arrival::Joined(end))));
    direct
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// The reason code that a refusal's text begins with.
fn code(why: &Failure) -> u16 {
    why.to_string().split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(0)
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
        direct.settle(&got, MessageOutcome::Accepted);
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
        direct.settle(&got, MessageOutcome::Accepted);
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
    assert!(refused.to_string().contains("cause=idempotency-key-reused"));
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

/// An administrator's subscription, which has that queue's name, to a topic that everyone may publish on.
fn subscribe(harness: &Harness, queue: &str, topic: &str) {
    let subscription = Subscription { string: topic.into(), destination: queue.to_owned(), ..Subscription::default() };
    let key = RecordKey {
        object: ObjectType::Topic,
        profile: Profile::parse(BASE_TOPIC).unwrap(),
        entity: Entity::principal(ANONYMOUS),
    };
    let changes = [Change::define(queue, subscription), Change::SetAuthority(vec![(key, ObjectType::Topic.rights())])];
    harness.running().manager().lock().commit_definitions(&changes, &[]).unwrap();
}

#[test]
fn a_publication_that_is_tried_again_under_its_key_is_done_once_also_after_a_crash() {
    let queues = ["A", "B", "LATER", "NOBODY"].map(|name| (name, LocalQueue::default()));
    let mut harness = Harness::new(&queues);
    subscribe(&harness, "A", "prices/gold");
    subscribe(&harness, "B", "prices/#");
    let depths = |harness: &Harness| ["A", "B", "LATER", "NOBODY"].map(|queue| harness.depth(queue));
    let direct = join(&harness);
    let prices = direct.open_to_put("topic://prices/gold").unwrap();
    assert_eq!(direct.put_once(prices, keyed("durable", 1, true)).unwrap(), None);
    assert_eq!(direct.put_once(prices, keyed("durable", 1, true)).unwrap().as_deref(), Some("id-durable"));
    assert_eq!(direct.put_once(prices, keyed("not", 2, false)).unwrap(), None);
    assert_eq!(direct.put_once(prices, keyed("not", 2, false)).unwrap().as_deref(), Some("id-not"));
    let refused = direct.put(prices, keyed("durable", 3, true)).unwrap_err().unwrap();
    assert_eq!(code(&refused), 2046);
    assert!(refused.to_string().contains("cause=idempotency-key-reused"));
    let nobody = direct.open_to_put("topic://nobody").unwrap();
    assert_eq!(direct.put_once(nobody, keyed("durable", 4, true)).unwrap(), None, "the key is that topic's");
    // Who has subscribed since then does not get it.
    subscribe(&harness, "LATER", "prices/gold");
    assert_eq!(direct.put_once(prices, keyed("durable", 1, true)).unwrap().as_deref(), Some("id-durable"));
    assert_eq!(depths(&harness), [2, 2, 0, 0]);

    harness.kill(|| drop(direct));
    subscribe(&harness, "NOBODY", "nobody");
    let direct = join(&harness);
    let prices = direct.open_to_put("topic://prices/gold").unwrap();
    let nobody = direct.open_to_put("topic://nobody").unwrap();
    assert_eq!(direct.put_once(prices, keyed("durable", 1, true)).unwrap().as_deref(), Some("id-durable"));
    assert_eq!(direct.put_once(nobody, keyed("durable", 4, true)).unwrap().as_deref(), Some("id-durable"));
    assert_eq!(depths(&harness), [1, 1, 0, 0]);
    assert_eq!(direct.put_once(prices, keyed("not", 2, false)).unwrap(), None, "it went with the queue manager");
    assert_eq!(depths(&harness), [2, 2, 1, 0]);

    let units = direct.open_for_units().unwrap();
    let unit = direct.declare(units).unwrap();
    let refused = direct.put_in(unit, prices, keyed("unit", 5, true)).unwrap_err().unwrap();
    assert!(refused.to_string().contains("2046 MQRC_OPTIONS_ERROR cause=idempotency-key"));
}

#[test]
fn a_publication_that_a_subscription_can_not_take_leaves_its_key_free() {
    let full = LocalQueue { max_depth: 1, ..LocalQueue::default() };
    let harness = Harness::new(&[("A", LocalQueue::default()), ("FULL", full)]);
    subscribe(&harness, "A", "t");
    subscribe(&harness, "FULL", "t");
    let direct = join(&harness);
    let topic = direct.open_to_put("topic://t").unwrap();
    direct.put(topic, message(1, 4, true)).unwrap();
    let refused = direct.put(topic, keyed("k", 2, true)).unwrap_err().unwrap();
    assert_eq!(code(&refused), 2502);
    let got = direct.get(direct.open_to_get("FULL").unwrap(), soon()).unwrap().unwrap();
    direct.settle(&got, MessageOutcome::Accepted);
    harness.until("there is room", |harness| harness.depth("FULL") == 0);
    assert_eq!(direct.put_once(topic, keyed("k", 2, true)).unwrap(), None);
    assert_eq!((harness.depth("A"), harness.depth("FULL")), (2, 1));
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
    direct.settle_in(unit, &got, MessageOutcome::Accepted);
    direct.put_in(unit, to_out, message(2, 4, true)).unwrap();
    assert_eq!((harness.depth("IN"), harness.depth("OUT")), (1, 0), "nothing is done yet");
    direct.back_out(units, unit).unwrap();
    assert_eq!((harness.available("IN"), harness.depth("OUT")), (vec![(1, 1)], 0));
    assert!(direct.put_in(unit, to_out, message(2, 4, true)).is_err(), "the unit is over");

    let unit = direct.declare(units).unwrap();
    let got = direct.get(gets, soon()).unwrap().unwrap();
    direct.settle_in(unit, &got, MessageOutcome::Accepted);
    direct.put_in(unit, to_out, message(3, 4, true)).unwrap();
    let refused = direct.put_in(unit, to_out, keyed("key", 4, true)).unwrap_err().unwrap();
    assert!(refused.to_string().contains("2046 MQRC_OPTIONS_ERROR cause=idempotency-key"));
    direct.commit(units, unit).unwrap();
    assert_eq!((harness.depth("IN"), harness.available("OUT")), (0, vec![(3, 0)]));

    let unit = direct.declare(units).unwrap();
    direct.put_in(unit, to_out, message(5, 4, true)).unwrap();
    direct.close(units);
    harness.kill(|| drop(direct));
    assert_eq!((harness.depth("IN"), harness.available("OUT")), (0, vec![(3, 0)]));
}

/// Bytes of a message that are counted while they are held, wherever that is.
struct Counted {
    bytes: Vec<u8>,
    held: Arc<AtomicUsize>,
}

impl Counted {
    fn piece(fill: u8, len: usize, held: &Arc<AtomicUsize>, most: &AtomicUsize) -> Bytes {
        most.fetch_max(held.fetch_add(len, Ordering::SeqCst) + len, Ordering::SeqCst);
        Bytes::from_owner(Self { bytes: vec![fill; len], held: held.clone() })
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

const PIECE: usize = 64 << 10;

/// The head of a message with one data section of so many bytes.
fn head(len: usize) -> Bytes {
    let mut head = vec![0x00, 0x53, 0x75, 0xb0];
    head.extend_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
    head.into()
}

fn long() -> LocalQueue {
    LocalQueue { max_message_bytes: bulla_queue::MESSAGE_BYTES_MAX, ..LocalQueue::default() }
}

#[test]
fn a_message_of_100_mib_comes_and_goes_in_pieces_and_is_held_once() {
    let harness = Harness::new(&[("Q", long())]);
    let direct = join(&harness);
    let (held, most) = (Arc::<AtomicUsize>::default(), AtomicUsize::default());
    let len = bulla_queue::MESSAGE_BYTES_MAX as usize - PIECE;
    let puts = direct.open_to_put("Q").unwrap();
    let mut message = direct.begin(puts, Some(len as u64 + 8)).unwrap();
    message.piece(head(len)).unwrap();
    for number in 0..len / PIECE {
        message.piece(Counted::piece(number as u8, PIECE, &held, &most)).unwrap();
    }
    assert_eq!(harness.depth("Q"), 0);
    message.end().unwrap();
    assert_eq!(held.load(Ordering::SeqCst), len, "the queue holds what was handed over");

    let mut got = direct.get(direct.open_to_get("Q").unwrap(), soon()).unwrap().unwrap();
    let mut at = 0;
    while let Some(piece) = got.piece(PIECE) {
        let skip = 8_usize.saturating_sub(at).min(piece.len());
        let numbers = (at + skip - 8) / PIECE..;
        assert!(piece[skip..].chunks(PIECE).zip(numbers).all(|(part, number)| part[0] == number as u8));
        assert!(piece.len() <= PIECE);
        at += piece.len();
    }
    assert_eq!(at, len + 8);
    assert_eq!(most.load(Ordering::SeqCst), len, "no more was ever held");
    direct.settle(&got, MessageOutcome::Accepted);
    harness.until("all is let go", |_| held.load(Ordering::SeqCst) == 0);
}

#[test]
fn pieces_wait_while_as_much_is_arriving_as_may_and_all_come_to_their_end() {
    const BOUND: u64 = 1 << 20;
    let harness = Harness::with(&[("Q", long())], |settings| settings.arriving_bytes_max = BOUND);
    let manager = harness.running().manager().clone();
    let clients: Vec<Direct> = (0..3).map(|_| join(&harness)).collect();
    let len = 3 << 20;
    let most = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for direct in &clients {
            threads.spawn(|| {
                let puts = direct.open_to_put("Q").unwrap();
                let mut message = direct.begin(puts, None).unwrap();
                message.piece(head(len)).unwrap();
                for _ in 0..len / PIECE {
                    message.piece(Bytes::from(vec![0; PIECE])).unwrap();
                    most.fetch_max(manager.listening.arriving.counts().bytes, Ordering::SeqCst);
                }
                message.end().unwrap();
            });
        }
    });
    assert_eq!(harness.depth("Q"), 3);
    let counts = manager.listening.arriving.counts();
    assert!(counts.stopped > 0, "one had to wait");
    // The bound, what each may hold beyond it, and the one message that has its turn.
    let bound = BOUND + 3 * (HELD_BYTES_SMALL + PIECE as u64) + len as u64;
    assert!(most.load(Ordering::SeqCst) <= bound, "{most:?} of {bound}");
    harness.until("nothing is arriving", |_| manager.listening.arriving.counts().bytes == 0);
}

#[test]
fn maxmsgl_ends_a_message_as_soon_as_its_length_is_known_or_passed() {
    let short = LocalQueue { max_message_bytes: PIECE as u32, ..LocalQueue::default() };
    let harness = Harness::new(&[("Q", short)]);
    let manager = harness.running().manager().clone();
    let direct = join(&harness);
    let puts = direct.open_to_put("Q").unwrap();
    let known = direct.begin(puts, Some(PIECE as u64 + 1)).err().unwrap().unwrap();
    assert_eq!(code(&known), 2030);
    for _ in 0..2 * CREDIT_CLEAR {
        let mut message = direct.begin(puts, None).unwrap();
        message.piece(head(PIECE)).unwrap();
        let passed = message.piece(Bytes::from(vec![0; PIECE])).unwrap_err().unwrap();
        assert_eq!(code(&passed), 2030);
    }
    harness.until("what was given up is let go", |_| manager.listening.arriving.counts().bytes == 0);
    direct.put(puts, message(1, 4, true)).unwrap();
    assert_eq!(harness.available("Q"), [(1, 0)]);
}
