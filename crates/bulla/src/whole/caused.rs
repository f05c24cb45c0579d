//! What the queue manager puts because of a message is put by the rights of the user who put that message: reports and
//! replays.

mod model;
mod rings;

use crate::authority::{ANONYMOUS, Authorities, Entity, ObjectType, Profile, RecordKey, Right, Rights, SIGNED_IN};
use crate::catalog::LocalQueue;
use crate::catalog::system_queues::DEAD_LETTER_QUEUE;
use crate::mqsc::reply::Outcome;
use crate::whole::harness::{Harness, PATIENCE, refused};
use crate::{admin, reason};
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::{Properties, Source, Target};
use bulla_amqp::{AttachRequest, DeliveryState, Header, MessageBody, MessageParts, Payload, SaslClient, Symbol, Value};
use bulla_client::{Client, Endpoint};
use bytes::Bytes;

const MESSAGE_ANNOTATIONS: u8 = 0x72;
const APPLICATION_PROPERTIES: u8 = 0x74;
const PASSWORD: &str = "only for tests";
const COA: (&str, i32) = ("JMS_IBM_Report_COA", 1792);
const COD: (&str, i32) = ("JMS_IBM_Report_COD", 14336);

/// A queue manager on which users have these rights and no others.
pub(crate) fn harness(queues: &[&str], users: &[&str], records: &[(&str, &str, Right)]) -> Harness {
    let queues: Vec<(&str, LocalQueue)> = queues.iter().map(|name| (*name, LocalQueue::default())).collect();
    let harness = Harness::new(&queues);
    for user in users {
        harness.running().manager().sign_ins.users.add(user, PASSWORD, crate::users::ITERATIONS_MIN).unwrap();
    }
    allow(&harness, records);
    harness
}

fn allow(harness: &Harness, records: &[(&str, &str, Right)]) {
    let records: Vec<_> = records.iter().map(|(user, name, right)| (*user, *name, right.alone())).collect();
    allow_records(harness, &records);
}

/// All users may connect, and these have rights on queues.
fn allow_records(harness: &Harness, records: &[(&str, &str, Rights)]) {
    let mut authorities = Authorities::default();
    let mut set = |object, profile, user: &str, rights: Rights| {
        let key = RecordKey { object, profile, entity: Entity::principal(user) };
        let rights = authorities.records.get(&key).unwrap_or(Rights::NONE).with(rights);
        authorities.records.set(key, rights);
    };
    for user in [SIGNED_IN, ANONYMOUS] {
        set(ObjectType::QueueManager, Profile::of_queue_manager(), user, Right::Connect.alone());
    }
    for (user, name, rights) in records {
        set(ObjectType::Queue, Profile::parse(name).unwrap(), user, *rights);
    }
    let state = &mut *harness.running().manager().lock();
    state.definitions.authorities = authorities;
    state.generations.definitions += 1;
    state.generations.authority += 1;
}

pub(crate) fn client(harness: &Harness, user: &str) -> Client {
    let address = harness.running().amqp.unwrap().to_string();
    let sasl = match user {
        ANONYMOUS => SaslClient::None,
        user => SaslClient::Scram { user: user.to_owned(), password: PASSWORD.to_owned() },
    };
    Client::connect(&Endpoint { address, authorities: None, certificate: None, sasl }).unwrap()
}

/// A persistent message with such annotations, that asks by such application properties.
pub(crate) fn message(reply_to: &str, annotations: &[(Value, Value)], asked: &[(Value, Value)]) -> Payload {
    let (mut properties, mut message_annotations, mut application_properties) = (Vec::new(), Vec::new(), Vec::new());
    Properties { reply_to: Some(reply_to.into()), ..Properties::default() }.encode_section(&mut properties);
    if !annotations.is_empty() {
        encode_map_section(MESSAGE_ANNOTATIONS, annotations, &mut message_annotations);
    }
    encode_map_section(APPLICATION_PROPERTIES, asked, &mut application_properties);
    MessageParts {
        header: Some(Header { durable: true, ..Header::default() }),
        message_annotations: message_annotations.into(),
        properties: properties.into(),
        application_properties: application_properties.into(),
        body: MessageBody::Data(Payload::from(Bytes::from_static(b"{\"applicid\": \"/bin/sh\"}"))),
        ..MessageParts::default()
    }
    .build()
}

fn symbol(name: &str) -> Value {
    Value::from(Symbol::new(name).unwrap())
}

fn by_string((name, value): (&str, i32)) -> (Value, Value) {
    (Value::from(name), Value::Int(value))
}

fn by_symbol((name, value): (&str, i32)) -> (Value, Value) {
    (symbol(name), Value::Int(value))
}

/// A key that a reader of plain keys finds behind a value that it does not know how to pass.
fn hidden(asked: (&str, i32)) -> [(Value, Value); 2] {
    let described = Value::Described(Box::new((Value::Ulong(1), Value::Bool(true))));
    [(Value::from("first"), described), by_string(asked)]
}

fn label_for(queue: &str) -> Vec<(Value, Value)> {
    let texts = [("queue", queue), ("cause", "undelivered"), ("details", "as it looks")];
    let texts = texts.map(|(name, text)| (symbol(&format!("x-opt-bulla-{name}")), Value::from(text)));
    texts.into_iter().chain([(symbol("x-opt-bulla-reason"), Value::Uint(2053))]).collect()
}

/// Messages moved by a REPLAY, and the warnings.
fn replay(harness: &Harness, words: &str) -> (String, Vec<String>) {
    let command = format!("REPLAY QLOCAL({DEAD_LETTER_QUEUE}) {words}");
    let replies = admin::request(harness.path(), &command).unwrap();
    let Outcome::Done { message, warnings, .. } = &replies[0].outcome else { panic!("{:?}", replies[0].outcome) };
    (message.clone(), warnings.clone())
}

fn reject_one(client: &mut Client, queue: &str) {
    let link = client.receiver(queue, false, false).unwrap().link;
    let delivery = client.get(link, Some(PATIENCE)).unwrap().unwrap();
    client.settle(&delivery, DeliveryState::Rejected(None)).unwrap();
    client.detach(link, true).unwrap();
}

pub(crate) fn get_one(client: &mut Client, queue: &str) {
    let link = client.receiver(queue, false, false).unwrap().link;
    let delivery = client.get(link, Some(PATIENCE)).unwrap().unwrap();
    client.settle(&delivery, DeliveryState::Accepted).unwrap();
}

#[test]
fn however_a_report_is_asked_for_the_right_on_its_queue_is_asked() {
    let harness = harness(&["A", "INIT"], &["mallory"], &[("mallory", "A", Right::Put)]);
    let mut client = client(&harness, "mallory");
    let to = client.sender("A", false).unwrap().link;
    for asked in [vec![by_string(COA)], vec![by_symbol(COA)], hidden(COA).to_vec()] {
        let (_, code) = refused(client.put(to, message("INIT", &[], &asked), PATIENCE));
        assert_eq!(code, reason::NOT_AUTHORIZED.code, "{asked:?}");
    }
    assert_eq!((harness.depth("A"), harness.depth("INIT")), (0, 0));
}

#[test]
fn after_a_restart_and_a_lost_right_no_report_goes_where_its_maker_may_not() {
    let mut harness = harness(&["A", "INIT"], &["mallory", "reader"], &[]);
    let before = [("mallory", "A", Right::Put), ("mallory", "INIT", Right::Put)];
    let after = [("mallory", "A", Right::Put), ("reader", "A", Right::Get)];
    allow(&harness, &before);
    let mut maker = client(&harness, "mallory");
    let to = maker.sender("A", false).unwrap().link;
    maker.put(to, message("INIT", &[], &[by_string(COD)]), PATIENCE).unwrap();
    maker.put(to, message("INIT", &[], &[by_symbol(COD)]), PATIENCE).unwrap();
    drop(maker);
    harness.start();
    allow(&harness, &after);
    get_one(&mut client(&harness, "reader"), "A");
    get_one(&mut client(&harness, "reader"), "A");
    harness.until("both are got", |harness| harness.depth("A") == 0);
    assert_eq!((harness.depth("INIT"), harness.depth(DEAD_LETTER_QUEUE)), (0, 0));
}

#[test]
fn a_label_that_a_client_wrote_sends_its_message_nowhere() {
    let harness = harness(&["SECRET"], &["mallory"], &[("mallory", DEAD_LETTER_QUEUE, Right::Put)]);
    let mut client = client(&harness, "mallory");
    let to = client.sender(DEAD_LETTER_QUEUE, false).unwrap().link;
    client.put(to, message("", &label_for("SECRET"), &[]), PATIENCE).unwrap();
    let replies = admin::request(harness.path(), &format!("DISPLAY DEADMSG({DEAD_LETTER_QUEUE}) DESTQ CAUSE")).unwrap();
    let text: Vec<String> = replies.iter().map(|reply| reply.text()).collect();
    assert!(!text.concat().contains("SECRET") && !text.concat().contains("undelivered"), "{text:?}");
    let (moved, _) = replay(&harness, "");
    assert!(moved.starts_with("0 "), "{moved}");
    assert_eq!((harness.depth("SECRET"), harness.depth(DEAD_LETTER_QUEUE)), (0, 1));
}

#[test]
fn a_replay_asks_the_rights_of_whoever_put_the_message() {
    let records = [("alice", "A", Right::Put), ("reader", "A", Right::Get)];
    let harness = harness(&["A", "ELSEWHERE"], &["alice", "reader"], &records);
    let mut maker = client(&harness, "alice");
    let to = maker.sender("A", false).unwrap().link;
    let mut reader = client(&harness, "reader");
    for _ in 0..3 {
        maker.put(to, message("", &label_for("ELSEWHERE"), &[]), PATIENCE).unwrap();
        reject_one(&mut reader, "A");
    }
    harness.until("all are dead letters", |harness| harness.depth(DEAD_LETTER_QUEUE) == 3);
    // She may put there: it goes back.
    assert!(replay(&harness, "COUNT(1)").0.starts_with("1 "));
    assert_eq!((harness.depth("A"), harness.depth("ELSEWHERE"), harness.depth(DEAD_LETTER_QUEUE)), (1, 0, 2));
    // She may not any more: it stays, and says why. The administrator may name a queue.
    allow(&harness, &records[1..]);
    let (moved, warnings) = replay(&harness, "");
    assert!(moved.starts_with("0 "), "{moved}");
    assert!(warnings.iter().any(|line| line.contains("2035") && line.contains("alice")), "{warnings:?}");
    assert_eq!((harness.depth("A"), harness.depth(DEAD_LETTER_QUEUE)), (1, 2));
}

/// The definition of a dynamic queue that a client asks for by such node properties, to put on it or to get from it.
fn made(harness: &Harness, client: &mut Client, right: Right, said: &[(&str, &str)]) -> Result<LocalQueue, u16> {
    let dynamic_node_properties =
        said.iter().map(|(name, text)| (Symbol::new(name).unwrap(), Value::from(*text))).collect();
    let request = match right {
        Right::Put => AttachRequest {
            target: Some(Target { dynamic: true, dynamic_node_properties, ..Target::default() }),
            ..AttachRequest::sender("own", "")
        },
        _ => AttachRequest {
            source: Some(Source { dynamic: true, dynamic_node_properties, ..Source::default() }),
            ..AttachRequest::receiver("own", "")
        },
    };
    match client.open(request) {
        Ok(_) => {
            let state = harness.running().manager().lock();
            let (_, queue) = state.temporary.queues.values().last().unwrap();
            Ok(queue.clone())
        }
        Err(error) => Err(refused::<()>(Err(error)).1),
    }
}

/// A harness with a queue whose definition names others that do not exist yet, and a user with these rights on them and
/// all that is needed to make a dynamic queue.
fn desk_with_targets(rights: &[Right]) -> Harness {
    let model = crate::catalog::system_queues::DEFAULT_MODEL;
    let mut records: Vec<_> = rights.iter().map(|right| ("mallory", "APP.*", *right)).collect();
    records.extend([Right::Display, Right::Put, Right::Get].map(|right| ("mallory", model, right)));
    let harness = harness(&["A"], &["mallory"], &records);
    {
        let state = &mut *harness.running().manager().lock();
        let queue = state.definitions.queues.get_mut("A").unwrap();
        queue.backout_queue = Some("APP.REJECTS".into());
        queue.initiation_queue = Some("APP.INIT".into());
        state.definitions.queue_manager.dead_letter_queue = Some("APP.DEAD".into());
    }
    harness
}

#[test]
fn one_right_on_a_name_does_not_make_its_user_the_owner_of_it() {
    let targets = ["APP.REJECTS", "APP.INIT", "APP.DEAD"];
    for rights in [&[][..], &[Right::Put], &[Right::Get]] {
        let harness = desk_with_targets(rights);
        let mut client = client(&harness, "mallory");
        for name in targets {
            for link in [Right::Put, Right::Get] {
                let refused = made(&harness, &mut client, link, &[("bulla:name", name)]);
                assert_eq!(refused.err(), Some(reason::NOT_AUTHORIZED.code), "{name} by {link:?} with {rights:?}");
            }
        }
    }
    // Who may put and get there anyway gains nothing.
    let harness = desk_with_targets(&[Right::Put, Right::Get]);
    for name in targets {
        made(&harness, &mut client(&harness, "mallory"), Right::Get, &[("bulla:name", name)]).unwrap();
    }
}

#[test]
fn nothing_that_a_client_says_of_its_queue_chooses_where_messages_go() {
    let harness = desk_with_targets(&[]);
    let model = {
        let state = harness.running().manager().lock();
        state.definitions.models[crate::catalog::system_queues::DEFAULT_MODEL].queue.clone()
    };
    let mut client = client(&harness, "mallory");
    let words = ["BOQNAME", "INITQ", "PROCESS", "TRIGGER", "TRIGDATA", "BOTHRESH", "BACKOUT", "DEADQ", "USAGE"];
    let said: Vec<String> = words
        .iter()
        .flat_map(|word| [(*word).to_owned(), word.to_lowercase(), format!("bulla:{}", word.to_lowercase())])
        .collect();
    let said: Vec<(&str, &str)> = said.iter().map(|name| (name.as_str(), "A")).collect();
    for link in [Right::Put, Right::Get] {
        let made = made(&harness, &mut client, link, &said).unwrap();
        let as_the_model = LocalQueue { dynamic: true, maker: made.maker.clone(), usage: made.usage, ..model.clone() };
        assert_eq!(made, as_the_model);
        assert_eq!(made.usage, crate::catalog::Usage::Normal);
    }
}
