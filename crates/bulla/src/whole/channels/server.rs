//! The sending end, and who its partner is: a server channel, and requesters that say of themselves what they like.

use super::*;
use crate::catalog::Protection;
use crate::reason::Refusal;
use bulla_queue::Message;

const SERVER: &str = "ASKED";
const QUEUE: &str = "TO.QM1";
const OTHER: [u8; 16] = [8; 16];

/// A queue manager with a server channel, which waits on its transmission queue with a message.
fn harness() -> Harness {
    let harness = Harness::new();
    define(&harness);
    put(&harness, "one");
    harness
}

fn define(harness: &Harness) {
    harness.queue(QUEUE, |queue| queue.usage = Usage::Transmission);
    harness.define(|definitions| {
        let server =
            ChannelDefinition { transmission_queue: Some(QUEUE.into()), ..ChannelDefinition::new(ChannelKind::Server) };
        definitions.channels.insert(SERVER.into(), server);
    });
}

fn put(harness: &Harness, body: &str) {
    let body = envelope::chunks_of(message("Q@QM1", body, true));
    let state = &mut *harness.running().manager().lock();
    let queue = state.store.queue(QUEUE).unwrap();
    state.store.put(queue, Message::new(true, body)).unwrap();
    state.store.sync(Instant::now()).unwrap();
}

/// What a requester answers: who it is, the store that the number belongs to, the number, and its own store.
#[derive(Clone, Copy)]
struct Claim {
    manager: &'static str,
    store: [u8; 16],
    sequence: u64,
    own_store: Option<[u8; 16]>,
    /// A number that it has refused.
    refused: Option<u64>,
}

impl Claim {
    fn at(sequence: u64) -> Self {
        Self { manager: "QM1", store: [0; 16], sequence, own_store: Some(STORE), refused: None }
    }

    fn properties(self) -> protocol::Properties {
        let mut refused = Refused::default();
        self.refused.into_iter().for_each(|number| refused.note(number, 2063));
        let answer = ReceiverGreeting {
            refused,
            manager: self.manager.into(),
            store: self.store,
            sequence: self.sequence,
            sequence_wrap: 999_999_999,
            batch_size: 50,
            message_bytes_max: 4 << 20,
            ..ReceiverGreeting::default()
        };
        let mut properties = answer.to_properties();
        properties.retain(|(name, _)| name.as_str() != "bulla:receiver");
        properties.extend(self.own_store.map(|store| protocol::property("bulla:receiver", Value::Uuid(store))));
        properties
    }
}

/// A requester of ours, or a broker that asks in the same way.
fn requester(harness: &Harness, sign_in: SaslClient, is_bulla: bool) -> Partner {
    let capability = is_bulla.then(|| bulla_amqp::Symbol::from_static(protocol::CAPABILITY));
    let config = Config {
        offered_capabilities: capability.into_iter().collect(),
        properties: vec![protocol::property(protocol::REQUEST, Value::from(SERVER))],
        ..Config::new("partner")
    };
    // One that came before may not be gone yet.
    harness.until("the channel is free", |harness| {
        let state = harness.running().manager().lock();
        let is_free = state.outbound.channels.get(&InstanceId::of(SERVER)).is_none_or(|instance| !instance.is_active());
        is_free.then_some(())
    });
    Partner::connect_as(harness, sign_in, config)
}

/// Answers the server's attach. The first message that it sends, or why it closes.
fn ask(partner: &mut Partner, claim: Claim) -> Result<bulla_amqp::Delivery, String> {
    let attach = partner.wait("an attach", |event| match event {
        Event::Closed(error) => Some(Err(said(error))),
        Event::Attached(attach) => Some(Ok(attach.clone())),
        _ => None,
    })?;
    let reply = AttachReply {
        source: Some(attach.source.clone().unwrap_or_default()),
        target: Some(Target::default()),
        coordinator: None,
        offered_capabilities: Vec::new(),
        properties: claim.properties(),
        max_message_size: 4 << 20,
        ..AttachReply::default()
    };
    partner.engine.accept_link(attach.link, reply);
    partner.engine.set_credit(attach.link, 10);
    partner.wait("a message, or the end", |event| match event {
        Event::Closed(error) => Some(Err(said(error))),
        Event::Delivery(delivery) => Some(Ok(delivery.clone())),
        _ => None,
    })
}

fn said(error: &Option<Error>) -> String {
    error.as_ref().and_then(|error| error.description.clone()).unwrap_or_default()
}

fn next(partner: &mut Partner) -> bulla_amqp::Delivery {
    partner.wait("a message", |event| match event {
        Event::Delivery(delivery) => Some(delivery.clone()),
        _ => None,
    })
}

fn accept(partner: &mut Partner, delivery: &bulla_amqp::Delivery) {
    partner.engine.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
    partner.flush();
}

/// What the sending end has in its note.
fn note(harness: &Harness) -> crate::channel::note::SenderNote {
    crate::channel::supervisor::read_note(&harness.running().manager().lock(), SERVER).unwrap()
}

fn reset_sender(harness: &Harness, next: u64) {
    harness.until("the channel may be reset", |harness| {
        let state = &mut *harness.running().manager().lock();
        crate::channel::supervisor::reset(state, SERVER, next).ok()
    });
}

/// START CHANNEL, once it is stopped.
fn start_again(harness: &Harness) {
    harness.until("it is stopped", |harness| {
        let manager = harness.running().manager();
        let state = &mut *manager.lock();
        let status = &state.outbound.channels.get(&InstanceId::of(SERVER))?.status;
        let is_stopped = status.state == ChannelState::Stopped;
        is_stopped.then(|| crate::channel::supervisor::start(manager, state, SERVER).unwrap())
    });
}

#[test]
fn another_partner_settles_nothing_that_is_in_doubt_and_gets_nothing() {
    let mut harness = harness();
    let mut partner = requester(&harness, signs_in(&harness, "qm1"), true);
    assert_eq!(text(&ask(&mut partner, Claim::at(0)).unwrap().payload), "one");
    drop(partner);
    let forged = |harness: &Harness| {
        for sign_in in [SaslClient::None, SaslClient::Anonymous, signs_in(harness, "mallory")] {
            for claim in [
                Claim::at(0),
                // All has arrived, it says.
                Claim::at(1),
                Claim { own_store: None, ..Claim::at(1) },
                Claim { store: OTHER, own_store: Some(OTHER), ..Claim::at(1) },
            ] {
                let text = ask(&mut requester(harness, sign_in.clone(), true), claim).unwrap_err();
                assert!(text.starts_with("2539") && text.contains("cause=partner"), "{text}");
                assert!(!text.contains("user qm1"), "who the partner is, is not told: {text}");
            }
            // Without the channel's protocol there would be no numbers at all.
            let text = ask(&mut requester(harness, sign_in, false), Claim::at(0)).unwrap_err();
            assert!(text.starts_with("2539"), "{text}");
        }
        // The same user under another queue manager's name is not the partner, either.
        let other_name = Claim { manager: "QM9", ..Claim::at(1) };
        let text = ask(&mut requester(harness, signs_in(harness, "qm1"), true), other_name).unwrap_err();
        assert!(text.starts_with("2539") && text.contains("cause=partner"), "{text}");
        let note = note(harness);
        assert_eq!((note.base, note.in_doubt.len()), (0, 1));
        assert!(harness.running().manager().lock().store.find(note.in_doubt[0]).is_some(), "it is still there");
    };
    forged(&harness);
    // The proof is in the journal.
    harness.start();
    define(&harness);
    forged(&harness);
    let mut partner = requester(&harness, signs_in(&harness, "qm1"), true);
    let delivery = ask(&mut partner, Claim { own_store: Some(OTHER), ..Claim::at(0) }).unwrap();
    assert_eq!(text(&delivery.payload), "one");
    accept(&mut partner, &delivery);
    harness.until("it is confirmed", |harness| (note(harness).base == 1).then_some(()));
    drop(partner);
    // A reset here is the operator's consent: the next proof counts from then on.
    reset_sender(&harness, 2);
    put(&harness, "two");
    let mut other = requester(&harness, signs_in(&harness, "mallory"), true);
    assert_eq!(text(&ask(&mut other, Claim::at(1)).unwrap().payload), "two");
    drop(other);
    let text = ask(&mut requester(&harness, signs_in(&harness, "qm1"), true), Claim::at(2)).unwrap_err();
    assert!(text.contains("cause=partner"), "{text}");
}

#[test]
fn partners_that_prove_nothing_are_told_apart_by_their_store() {
    let harness = harness();
    let mut partner = requester(&harness, SaslClient::None, true);
    assert_eq!(text(&ask(&mut partner, Claim::at(0)).unwrap().payload), "one");
    drop(partner);
    for claim in [
        Claim { own_store: Some(OTHER), ..Claim::at(1) },
        Claim { own_store: None, ..Claim::at(1) },
        Claim { own_store: Some(OTHER), store: OTHER, ..Claim::at(0) },
    ] {
        let text = ask(&mut requester(&harness, SaslClient::None, true), claim).unwrap_err();
        assert!(text.starts_with("2539") && text.contains("RESET CHANNEL"), "{text}");
        assert_eq!((note(&harness).base, note(&harness).in_doubt.len()), (0, 1));
        start_again(&harness);
    }
    // The partner is what it was, and proves it from now on.
    let mut partner = requester(&harness, signs_in(&harness, "qm1"), true);
    let delivery = ask(&mut partner, Claim::at(0)).unwrap();
    accept(&mut partner, &delivery);
    harness.until("it is confirmed", |harness| (note(harness).base == 1).then_some(()));
    drop(partner);
    let text = ask(&mut requester(&harness, SaslClient::None, true), Claim::at(1)).unwrap_err();
    assert!(text.contains("cause=partner"), "{text}");
}

#[test]
fn a_partner_is_not_told_where_this_machine_keeps_a_ring() {
    let harness = Harness::new();
    harness.queue(QUEUE, |queue| queue.usage = Usage::Transmission);
    harness.define(|definitions| {
        let server = ChannelDefinition {
            transmission_queue: Some(QUEUE.into()),
            protection: Protection::Remove,
            user: Some("ringless".into()),
            ..ChannelDefinition::new(ChannelKind::Server)
        };
        definitions.channels.insert(SERVER.into(), server);
        let mut policy = bulla_seal::Policy::new(QUEUE);
        policy.sign = Some(bulla_seal::policy::SignatureDigest::Sha256);
        definitions.policies.insert(QUEUE.into(), Arc::new(policy));
    });
    let mut properties = Vec::new();
    bulla_amqp::Properties {
        content_type: Some(bulla_amqp::Symbol::from_static("application/pkcs7-mime")),
        ..bulla_amqp::Properties::default()
    }
    .encode_section(&mut properties);
    let parts = bulla_amqp::MessageParts {
        properties: properties.into(),
        body: bulla_amqp::MessageBody::Sections(data("sealed")),
        ..bulla_amqp::MessageParts::default()
    };
    let message = Message::new(true, envelope::chunks_of(parts.build()));
    {
        let header = TransmissionHeader::new(Destination::parse("Q@QM1").unwrap());
        let state = &mut *harness.running().manager().lock();
        let queue = state.store.queue(QUEUE).unwrap();
        state.store.put(queue, header.put_on(message)).unwrap();
        state.store.sync(Instant::now()).unwrap();
    }
    let sign_in = signs_in(&harness, "ringless");
    let text = ask(&mut requester(&harness, sign_in, true), Claim::at(0)).unwrap_err();
    assert!(text.contains("cause=key-ring ringless: no key ring at ringless"), "{text}");
    assert!(!text.contains('/'), "{text}");
}

#[test]
fn a_message_that_the_partner_refuses_is_buried_here_and_those_behind_it_go_on() {
    for is_heard in [true, false] {
        let mut harness = harness();
        put(&harness, "two");
        let sign_in = || signs_in(&harness, "qm1");
        let mut partner = requester(&harness, sign_in(), true);
        let (first, second) = (ask(&mut partner, Claim::at(0)).unwrap(), next(&mut partner));
        assert_eq!((text(&first.payload), text(&second.payload)), ("one".into(), "two".into()));
        if is_heard {
            let refusal = Refusal::security("unknown-dn", "no certificate");
            partner.engine.dispose(first.link, first.id, DeliveryState::Rejected(Some(Box::new(refusal.to_amqp()))));
            accept(&mut partner, &second);
        } else {
            // What it says is lost, here with the whole queue manager.
            drop(partner);
            harness.start();
            define(&harness);
            crate::channel::supervisor::recover(&mut harness.running().manager().lock());
            put(&harness, "three");
            let mut partner = requester(&harness, signs_in(&harness, "qm1"), true);
            let third = ask(&mut partner, Claim { refused: Some(1), ..Claim::at(2) }).unwrap();
            assert_eq!(text(&third.payload), "three");
        }
        harness.until("both are settled", |harness| (note(harness).base == 2).then_some(()));
        // It is there to be seen once it is synced.
        let buried = |harness: &Harness| Some(harness.messages("SYSTEM.DEAD.LETTER.QUEUE"));
        let dead = harness.until("it is buried", |harness| buried(harness).filter(|dead| !dead.is_empty()));
        assert_eq!(dead.iter().map(text).collect::<Vec<_>>(), ["one"], "{is_heard}");
        assert_eq!(label(&dead[0], "reason"), Some(Value::Uint(2063)));
        assert_eq!(label(&dead[0], "queue"), Some(Value::from("Q")));
    }
}

#[test]
fn a_message_that_the_partner_refuses_stays_where_there_is_no_dead_letter_queue() {
    let harness = harness();
    harness.define(|definitions| definitions.queue_manager.dead_letter_queue = None);
    let mut partner = requester(&harness, signs_in(&harness, "qm1"), true);
    let first = ask(&mut partner, Claim::at(0)).unwrap();
    let refusal = Refusal::security("unknown-dn", "no certificate");
    partner.engine.dispose(first.link, first.id, DeliveryState::Rejected(Some(Box::new(refusal.to_amqp()))));
    partner.flush();
    partner.wait("the end", |event| matches!(event, Event::Closed(_)).then_some(()));
    harness.until("it lies there again", |harness| {
        let lie = harness.bodies(QUEUE);
        (note(harness).base == 1 && lie == ["one"]).then_some(())
    });
}
