//! SPLPROT(ASPOLICY), and what becomes of messages that can't be delivered (inventory B6.3, B6.7).

use super::*;
use crate::authority::{Rule, RuleKey, RuleKind, UserSource};
use crate::catalog::Protection;
use crate::envelope::Arrival;
use bulla_device::{CpuDevice, SystemRandom};
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
use bulla_seal::policy::{ContentCipher, KeyReuse, Quality, SealedAt, SignatureDigest, Toleration};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Bound, Content, Dn, OpenError, Opened, Opener, Packing, Policy, Sealer, drive};
use std::time::SystemTime;

const SECRET: &str = "three jars of oil";
const PASSWORD: &str = "long enough for a test";

/// A harness whose queue manager can seal for a reader, and the reader.
struct Island {
    harness: Harness,
    reader: Arc<Ring>,
    opener: Opener,
}

fn dn(name: &str) -> Dn {
    format!("CN={name},O=Bulla").parse().unwrap()
}

/// A policy of a quality, for the reader.
fn policy(name: &str, quality: Quality) -> Policy {
    let mut policy = Policy::new(name);
    if matches!(quality, Quality::Integrity | Quality::Privacy) {
        policy.sign = Some(SignatureDigest::Sha256);
    }
    if matches!(quality, Quality::Privacy | Quality::Confidentiality) {
        policy.encrypt = Some(ContentCipher::Aes256Gcm);
        policy.recipients = vec![dn("reader")];
    }
    assert_eq!(policy.quality(), quality);
    policy.check().unwrap();
    policy
}

impl Island {
    fn new(protection: Protection) -> Self {
        let harness = Harness::new();
        harness.channel(|channel| channel.protection = protection);
        let now = SystemTime::now();
        let p256 = KeySpec::Ec(Curve::P256);
        let authority = Authority::create(&harness.path().join("ca"), &dn("CA"), p256, 3650, now).unwrap();
        let issue = |name: &str, key, uses| {
            let request =
                Request { dn: dn(name), key, uses, days: 365, alternative_names: Vec::new(), passphrase: None };
            authority.issue(&request, now).unwrap()
        };
        let manager = issue("QM2", p256, vec![KeyUse::DocSign]);
        let reader = issue("reader", KeySpec::Rsa(2048), vec![KeyUse::DataEncrypt]);
        for (user, own, other) in [("QM2", &manager, &reader), ("reader", &reader, &manager)] {
            let folder = harness.path().join(crate::folders::RINGS).join(user);
            ring::create(&folder).unwrap();
            ring::install_own(&folder, "own", &own.0, &authority.chain(), &own.1).unwrap();
            ring::install_person(&folder, "other", &other.0, &authority.chain()).unwrap();
            ring::install_trust(&folder, "ca", authority.root()).unwrap();
        }
        let reader = Arc::new(Ring::load(&harness.path().join(crate::folders::RINGS).join("reader"), None).unwrap());
        Self { harness, reader, opener: Opener::new() }
    }

    fn policy(&self, policy: &Policy) {
        self.harness.queue(&policy.name, |_| {});
        self.harness.define(|definitions| {
            definitions.policies.insert(policy.name.clone(), Arc::new(policy.clone()));
        });
    }

    /// A partner that has signed in as the channel's user, and runs the channel.
    fn partner(&self) -> Partner {
        let mut partner = Partner::connect_as(&self.harness, self.scram("QM2"), Config::new("partner"));
        partner.greet(&greeting(0, 0)).unwrap();
        partner
    }

    /// SCRAM with that user's password; the user is made where there is none.
    fn scram(&self, user: &str) -> SaslClient {
        let users = &self.harness.running().manager().sign_ins.users;
        if !users.exists(user) {
            users.add(user, PASSWORD, crate::users::ITERATIONS_MIN).unwrap();
        }
        SaslClient::Scram { user: user.to_owned(), password: PASSWORD.to_owned() }
    }

    /// Has a rule name the channel's user; empty selectors fit every user.
    fn map(&self, kind: RuleKind, address: &str, user: &str) {
        let text = |text: &str| text.to_owned();
        let key = RuleKey {
            profile: text("*"),
            kind,
            address: text(address),
            user: text(user),
            peer: text(""),
            issuer: text(""),
        };
        self.harness.define(|definitions| {
            definitions.queue_manager.channel_authentication = true;
            definitions.channel_rules.set(key, Rule { source: UserSource::Map("QM2".into()), ..Rule::default() });
        });
    }

    /// What the reader makes of a message that is for one of these destinations.
    fn open(&self, policy: &Policy, message: &Payload, destinations: &[&str]) -> Result<Opened, OpenError> {
        let arrival = Arrival::read(message, 0).unwrap();
        assert!(arrival.claims_seal(), "{message:?}");
        let expect = arrival.expect(destinations.iter().map(|&name| name.to_owned()).collect());
        let der = arrival.sealed_body().unwrap();
        let now = SystemTime::now();
        let step = self.opener.open(&Arc::new(policy.clone()), &self.reader, der, expect, now, now)?;
        drive(step, &mut CpuDevice::new("tests")).map(bulla_seal::Verified::into_inner)
    }

    #[track_caller]
    fn opens(&self, policy: &Policy, message: &Payload, destination: &str) -> String {
        String::from_utf8(self.opens_bytes(policy, message, destination)).unwrap()
    }

    #[track_caller]
    fn opens_bytes(&self, policy: &Policy, message: &Payload, destination: &str) -> Vec<u8> {
        self.open(policy, message, &[destination]).unwrap().content.bytes.to_vec()
    }

    /// A message that was sealed on its way, for that destination.
    fn sealed(&self, policy: &Policy, destination: &str) -> Payload {
        let ring = Arc::new(Ring::load(&self.harness.path().join(crate::folders::RINGS).join("QM2"), None).unwrap());
        let mut sealer = Sealer::new(Arc::new(policy.clone()), ring, None, SystemTime::now()).unwrap();
        let arrival = Arrival::read(&data(SECRET), 0).unwrap();
        let random = &mut crate::random::Random::counting();
        let (envelope, content, bound): (_, Content, Bound) =
            arrival.into_envelope(Default::default(), destination.to_owned(), random, None).unwrap();
        assert_eq!(content.packing, Packing::Data);
        let step = sealer.seal(content, &bound, SystemTime::now(), &mut SystemRandom).unwrap();
        envelope::payload_of(&envelope.sealed(drive(step, &mut CpuDevice::new("tests")).unwrap()).body)
    }
}

fn is_clear(message: &Payload) -> bool {
    let bytes = message.to_contiguous();
    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

#[test]
fn what_arrives_is_sealed_as_the_policy_of_its_queue_says() {
    let island = Island::new(Protection::AsPolicy);
    let mut partner = island.partner();
    for (quality, queue) in
        [(Quality::Integrity, "SIGNED"), (Quality::Privacy, "PRIVATE"), (Quality::Confidentiality, "CONFIDENTIAL")]
    {
        let policy = policy(queue, quality);
        island.policy(&policy);
        for numbered in [true, false] {
            partner.send(&format!("{queue}@QM2"), SECRET, numbered);
        }
        partner.accepted(1);
        let lie = island.harness.until("both", |harness| Some(harness.messages(queue)).filter(|lie| lie.len() == 2));
        for message in &lie {
            assert_eq!(is_clear(message), quality == Quality::Integrity, "{queue}");
            assert_eq!(island.opens(&policy, message, &format!("{queue}@QM2")), SECRET);
            let elsewhere = island.open(&policy, message, &["OTHER@QM2"]);
            assert!(elsewhere.is_err(), "{queue} is bound to its queue");
        }
    }
    partner.send("Q@QM2", SECRET, true);
    partner.accepted(1);
    assert!(is_clear(&island.harness.messages("Q")[0]), "a queue without a policy");
}

/// Why a partner is refused; it would run the channel, or put on PRIVATE by way of it.
#[track_caller]
fn refused(island: &Island, sign_in: &SaslClient) -> String {
    let connect = || Partner::connect_as(&island.harness, sign_in.clone(), Config::new("partner"));
    let by_queue = connect().attach(AttachRequest::sender("by queue", "QM1.QM2::PRIVATE")).unwrap_err();
    let by_number = connect().greet(&greeting(0, 0)).unwrap_err();
    assert_eq!(by_queue.description, by_number.description);
    by_number.description.unwrap()
}

#[test]
fn a_channel_opens_no_ring_for_a_partner_that_proved_nothing() {
    let island = Island::new(Protection::AsPolicy);
    island.policy(&policy("PRIVATE", Quality::Privacy));
    let (right, wrong) = (island.scram("QM2"), island.scram("mallory"));
    let clear = SaslClient::Plain { user: "QM2".into(), password: PASSWORD.into() };
    let nobody = [SaslClient::None, SaslClient::Anonymous, clear, wrong.clone()];
    for sign_in in &nobody {
        let text = refused(&island, sign_in);
        assert!(text.starts_with("2063 MQRC_SECURITY_ERROR cause=partner-unproved"), "{sign_in:?}: {text}");
    }
    // A map by address authenticates no client.
    island.map(RuleKind::Address, "127.0.0.1", "");
    island.harness.channel(|channel| channel.user = Some("nobody".into()));
    for sign_in in nobody.iter().chain([&right]) {
        let text = refused(&island, sign_in);
        assert!(text.starts_with("2063 MQRC_SECURITY_ERROR cause=partner-unproved"), "{sign_in:?}: {text}");
    }
    assert_eq!(island.harness.messages("PRIVATE").len(), 0);
    // Who has signed in as a user whom a rule maps to the channel's has proved enough.
    island.map(RuleKind::User, "", "mallory");
    let mut partner = Partner::connect_as(&island.harness, wrong, Config::new("partner"));
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send("PRIVATE@QM2", SECRET, true);
    partner.accepted(1);
    assert_eq!(island.harness.messages("PRIVATE").len(), 1);
}

#[test]
fn a_server_channel_opens_nothing_for_a_requester_that_proved_nothing() {
    let island = Island::new(Protection::PassThrough);
    let policy = policy("TO.QM1", Quality::Integrity);
    island.harness.queue("TO.QM1", |queue| queue.usage = Usage::Transmission);
    island.policy(&policy);
    island.harness.define(|definitions| {
        let server = ChannelDefinition {
            protection: Protection::Remove,
            transmission_queue: Some("TO.QM1".into()),
            ..ChannelDefinition::new(ChannelKind::Server)
        };
        definitions.channels.insert("ASKED".into(), server);
    });
    let asking = || Config {
        offered_capabilities: vec![bulla_amqp::Symbol::from_static(protocol::CAPABILITY)],
        properties: vec![protocol::property(protocol::REQUEST, Value::from("ASKED"))],
        ..Config::new("partner")
    };
    let answer = |event: &Event| match event {
        Event::Closed(Some(error)) => Some(Err(error.description.clone().unwrap())),
        Event::Attached(_) => Some(Ok(())),
        _ => None,
    };
    for sign_in in [SaslClient::None, SaslClient::Anonymous, island.scram("mallory")] {
        let mut requester = Partner::connect_as(&island.harness, sign_in, asking());
        let text = requester.wait("the answer to a request", answer).unwrap_err();
        assert!(text.starts_with("2063 MQRC_SECURITY_ERROR cause=partner-unproved"), "{text}");
    }
    let mut requester = Partner::connect_as(&island.harness, island.scram("QM2"), asking());
    assert_eq!(requester.wait("the answer to a request", answer), Ok(()));
}

#[test]
fn messages_that_are_sealed_at_the_same_time_are_put_in_their_order() {
    const COUNT: usize = 400;
    let island = Island::new(Protection::AsPolicy);
    let (slow, quick) = (
        policy("SLOW", Quality::Privacy),
        Policy { key_reuse: KeyReuse::Count(5), ..policy("QUICK", Quality::Confidentiality) },
    );
    island.policy(&slow);
    island.policy(&quick);
    let mut partner = island.partner();
    for number in 0..COUNT {
        let queue = ["SLOW@QM2", "QUICK@QM2", "Q@QM2"][number % 3];
        // Long ones and short ones take different times.
        let body = format!("{number:04}{}", "x".repeat(number * 37 % 5_000));
        partner.send(queue, &body, number % 7 != 0);
    }
    partner.accepted(COUNT - COUNT.div_ceil(7));
    let number = |text: &str| text[..4].parse::<usize>().unwrap();
    for (at, policy, queue) in [(0, Some(&slow), "SLOW"), (1, Some(&quick), "QUICK"), (2, None, "Q")] {
        let wanted: Vec<usize> = (0..COUNT).filter(|number| number % 3 == at).collect();
        let lie = island
            .harness
            .until(queue, |harness| Some(harness.messages(queue)).filter(|lie| lie.len() == wanted.len()));
        let found = lie.iter().map(|message| match policy {
            Some(policy) => number(&island.opens(policy, message, &format!("{queue}@QM2"))),
            None => number(&text(message)),
        });
        assert_eq!(found.collect::<Vec<_>>(), wanted, "{queue}");
    }
}

#[test]
fn a_message_that_arrives_sealed_is_checked_and_not_sealed_again() {
    let island = Island::new(Protection::AsPolicy);
    // What is wrong with a seal is not tried again: that would never end.
    island.harness.channel(|channel| channel.message_retries = u32::MAX);
    let confidential = policy("CONFIDENTIAL", Quality::Confidentiality);
    let private = policy("PRIVATE", Quality::Privacy);
    island.policy(&confidential);
    island.policy(&private);
    let mut partner = island.partner();
    for policy in [&confidential, &private] {
        let queue = format!("{}@QM2", policy.name);
        for destination in [queue.as_str(), "OTHER@QM2"] {
            let sealed = island.sealed(policy, destination);
            partner.send_message(on_its_way(&queue, sealed, true, None), true);
        }
    }
    partner.accepted(4);
    let lie = island.harness.messages("CONFIDENTIAL");
    assert_eq!(lie.len(), 1);
    assert_eq!(island.opens(&confidential, &lie[0], "CONFIDENTIAL@QM2"), SECRET);
    let dead = island.harness.messages("SYSTEM.DEAD.LETTER.QUEUE");
    assert_eq!((dead.len(), label(&dead[0], "reason")), (1, Some(Value::Uint(2063))));
    assert_eq!(island.opens(&confidential, &dead[0], "OTHER@QM2"), SECRET, "as it came");
    // With privacy the binding is inside: only a reader sees that a message was moved.
    let lie = island.harness.messages("PRIVATE");
    assert_eq!(lie.len(), 2);
    assert_eq!(island.opens(&private, &lie[0], "PRIVATE@QM2"), SECRET);
    assert_eq!(island.opens(&private, &lie[1], "OTHER@QM2"), SECRET, "as it came");
}

#[test]
fn a_passthru_channel_changes_no_byte() {
    let island = Island::new(Protection::PassThrough);
    let policy = policy("PRIVATE", Quality::Privacy);
    island.policy(&policy);
    let mut partner = island.partner();
    let message = on_its_way("PRIVATE@QM2", island.sealed(&policy, "PRIVATE@QM1"), true, None);
    partner.send("PRIVATE@QM2", SECRET, true);
    partner.send_message(message.clone(), true);
    partner.accepted(2);
    let lie = island.harness.messages("PRIVATE");
    assert!(is_clear(&lie[0]));
    let sections = Sections::scan(&message).unwrap();
    let (off, _) = crate::channel::transmission::taken_off(&message, &sections);
    assert_eq!(lie[1], off);
}

#[test]
fn without_a_ring_nothing_is_put_in_clear_on_a_protected_queue() {
    let island = Island::new(Protection::AsPolicy);
    island.policy(&policy("PRIVATE", Quality::Privacy));
    island.harness.channel(|channel| {
        channel.user = Some("nobody".into());
        channel.use_dead_letter_queue = false;
    });
    let mut partner = Partner::connect_as(&island.harness, island.scram("nobody"), Config::new("partner"));
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send("PRIVATE@QM2", SECRET, true);
    let text = partner.detached().description.unwrap();
    assert!(text.starts_with("2063") && text.contains("key-ring"), "{text}");
    assert_eq!(island.harness.messages("PRIVATE").len(), 0);
    assert_eq!(island.harness.status("QM1").unwrap().user, "nobody");
}

/// Only CONNECT, and PUT on Q for the channel's user.
fn put_on_q_alone() -> Authorities {
    use crate::authority::{Entity, ObjectType, Profile, RecordKey, Right};
    let mut authorities = Authorities::default();
    let mut allow = |object, profile, user: &str, right: Right| {
        authorities.records.set(RecordKey { object, profile, entity: Entity::principal(user) }, right.alone());
    };
    allow(ObjectType::QueueManager, Profile::of_queue_manager(), crate::authority::SIGNED_IN, Right::Connect);
    allow(ObjectType::Queue, Profile::parse("Q").unwrap(), "QM2", Right::Put);
    authorities
}

/// Whether the data directory has the clear text in any file.
fn is_on_the_disk(island: &Island) -> bool {
    island.harness.running().manager().lock().store.sync(Instant::now()).unwrap();
    let mut folders = vec![island.harness.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => {
                    // A file that is being replaced has another name a moment later.
                    let bytes = match std::fs::read(entry.path()) {
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                        bytes => bytes.unwrap(),
                    };
                    if bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
                        return true;
                    }
                }
                _ => {}
            }
        }
    }
    false
}

#[test]
fn what_a_protected_queue_does_not_take_is_buried_sealed() {
    let dead_letters = "SYSTEM.DEAD.LETTER.QUEUE";
    for (case, reason, bound_to) in [
        ("no right", 2035, dead_letters),
        ("sealed at client", 2063, dead_letters),
        ("too long", 2030, "PRIVATE"),
        ("no queue", 2085, "PRIVATE"),
        ("for a user it may not name", 2035, dead_letters),
    ] {
        let island = Island::new(Protection::AsPolicy);
        let mut private = policy("PRIVATE", Quality::Privacy);
        if case == "sealed at client" {
            private.sealed_at = SealedAt::Client;
        }
        let private = private;
        island.policy(&private);
        match case {
            "too long" => island.harness.queue("PRIVATE", |queue| queue.max_message_bytes = 100),
            "no queue" => island.harness.define(|definitions| drop(definitions.queues.remove("PRIVATE"))),
            "no right" => island.harness.define(|definitions| definitions.authorities = put_on_q_alone()),
            _ => {}
        }
        let mut body = data(SECRET);
        if case == "for a user it may not name" {
            let user_id = Some(Bytes::from_static(b"alice"));
            let mut section = Vec::new();
            bulla_amqp::types::Properties { user_id, ..Default::default() }.encode_section(&mut section);
            body = Payload::from(vec![Bytes::from(section), body.to_contiguous()]);
            let mut authorities = put_on_q_alone();
            let key = crate::authority::RecordKey {
                object: crate::authority::ObjectType::Queue,
                profile: crate::authority::Profile::parse("PRIVATE").unwrap(),
                entity: crate::authority::Entity::principal("QM2"),
            };
            authorities.records.set(key, crate::authority::Right::Put.alone());
            island.harness.define(|definitions| definitions.authorities = authorities);
        }
        let mut partner = island.partner();
        for numbered in [true, false] {
            partner.send_message(on_its_way("PRIVATE@QM2", body.clone(), true, None), numbered);
        }
        partner.send("Q@QM2", "after them", true);
        partner.accepted(2);
        let dead = island.harness.messages(dead_letters);
        assert_eq!(dead.len(), 2, "{case}");
        for message in &dead {
            assert_eq!(label(message, "reason"), Some(Value::Uint(reason)), "{case}");
            assert_eq!(label(message, "queue"), Some(Value::from("PRIVATE")), "{case}");
            assert!(!is_clear(message), "{case}: clear on the dead-letter queue");
            assert_eq!(island.opens(&private, message, &format!("{bound_to}@QM2")), SECRET, "{case}");
        }
        assert!(!is_on_the_disk(&island), "{case}");
    }
}

#[test]
fn what_no_dead_letter_can_be_sealed_from_stays_with_its_sender() {
    for case in ["no ring", "unknown recipient"] {
        let island = Island::new(Protection::AsPolicy);
        let mut private = policy("PRIVATE", Quality::Privacy);
        let (user, cause) = match case {
            "no ring" => ("nobody", "key-ring"),
            _ => ("QM2", "unknown-dn"),
        };
        if case == "unknown recipient" {
            private.recipients = vec![dn("unknown")];
        }
        island.policy(&private);
        island.harness.channel(|channel| channel.user = Some(user.into()));
        let connect = || {
            let mut partner = Partner::connect_as(&island.harness, island.scram(user), Config::new("partner"));
            partner.greet(&greeting(0, 0)).unwrap();
            partner
        };
        let mut partner = connect();
        // What its sender has settled can't stay there: it is gone.
        partner.send("PRIVATE@QM2", SECRET, false);
        partner.send("PRIVATE@QM2", SECRET, true);
        let text = partner.detached().description.unwrap();
        assert!(text.starts_with("2063") && text.contains(cause), "{case}: {text}");
        let container = || Config::new("another broker");
        let mut foreign = Partner::connect_as(&island.harness, island.scram(user), container());
        foreign.attach(AttachRequest::sender("by queue", format!("{CHANNEL}::PRIVATE"))).unwrap();
        foreign.send_message(data(SECRET), true);
        let outcome = foreign.outcome();
        assert!(matches!(outcome, Some(DeliveryState::Rejected(Some(_)))), "{case}: {outcome:?}");
        assert_eq!(island.harness.messages("SYSTEM.DEAD.LETTER.QUEUE").len(), 0, "{case}");
        assert!(!is_on_the_disk(&island), "{case}");
    }
}

#[test]
fn what_is_no_message_is_buried_sealed_where_it_was_for_a_protected_queue() {
    let island = Island::new(Protection::AsPolicy);
    let private = policy("PRIVATE", Quality::Privacy);
    island.policy(&private);
    let mut partner = island.partner();
    // An AMQP value that ends too early, behind a header that says where to.
    let damaged = Payload::from(Bytes::from([&[0x00, 0x53, 0x77, 0xa1, 0xff], SECRET.as_bytes()].concat()));
    let header = on_its_way("PRIVATE@QM2", data(""), true, None);
    let front = header.slice(0..header.len() - 5).to_contiguous();
    partner.send_message(Payload::from(vec![front, damaged.to_contiguous()]), true);
    partner.accepted(1);
    let dead = &island.harness.messages("SYSTEM.DEAD.LETTER.QUEUE")[0];
    assert_eq!(label(dead, "queue"), Some(Value::from("PRIVATE")));
    assert!(!is_clear(dead) && !is_on_the_disk(&island));
    assert!(island.opens_bytes(&private, dead, "SYSTEM.DEAD.LETTER.QUEUE@QM2").ends_with(SECRET.as_bytes()));
}

/// What is to be found on the dead-letter queue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dead {
    Clear,
    /// Sealed by this queue's own policy.
    Sealed,
    /// As it was sealed before.
    AsItWas,
    /// It was not taken: the link ended.
    Refused,
}

#[test]
fn the_dead_letter_queue_has_its_own_policy() {
    use Protection::{AsPolicy, PassThrough};
    let (enforce, tolerate) = (Toleration::Enforce, Toleration::Tolerate);
    for (protection, queue, toleration, arrives_sealed, wanted) in [
        (AsPolicy, "SYSTEM.DEAD.LETTER.QUEUE", enforce, false, Dead::Clear),
        (AsPolicy, "MY.DEAD", enforce, false, Dead::Sealed),
        (AsPolicy, "MY.DEAD", tolerate, false, Dead::Sealed),
        (AsPolicy, "MY.DEAD", enforce, true, Dead::AsItWas),
        (PassThrough, "SYSTEM.DEAD.LETTER.QUEUE", enforce, false, Dead::Clear),
        (PassThrough, "MY.DEAD", enforce, false, Dead::Refused),
        (PassThrough, "MY.DEAD", tolerate, false, Dead::Clear),
        (PassThrough, "MY.DEAD", enforce, true, Dead::AsItWas),
    ] {
        let case = format!("{protection:?} {queue} {toleration:?} {arrives_sealed}");
        let island = Island::new(protection);
        let dead = Policy { toleration, ..policy(queue, Quality::Privacy) };
        island.policy(&dead);
        island.harness.define(|definitions| definitions.queue_manager.dead_letter_queue = Some(queue.into()));
        let mut partner = island.partner();
        let body = if arrives_sealed { island.sealed(&dead, "NOWHERE@QM2") } else { data(SECRET) };
        partner.send_message(on_its_way("NOWHERE@QM2", body, true, None), true);
        if wanted == Dead::Refused {
            let text = partner.detached().description.unwrap();
            assert!(text.starts_with("2085") && text.contains("cause=unsigned"), "{case}: {text}");
            assert_eq!(island.harness.messages(queue).len(), 0, "{case}");
            continue;
        }
        partner.accepted(1);
        let message = &island.harness.messages(queue)[0];
        assert_eq!(label(message, "queue"), Some(Value::from("NOWHERE")), "{case}");
        assert_eq!(is_clear(message), wanted == Dead::Clear, "{case}");
        match wanted {
            Dead::Sealed => assert_eq!(island.opens(&dead, message, &format!("{queue}@QM2")), SECRET, "{case}"),
            Dead::AsItWas => assert_eq!(island.opens(&dead, message, "NOWHERE@QM2"), SECRET, "{case}"),
            Dead::Clear | Dead::Refused => {}
        }
    }
}

#[test]
fn a_sealed_message_that_its_queue_does_not_take_is_not_sealed_again() {
    let island = Island::new(Protection::AsPolicy);
    let full = policy("FULL", Quality::Privacy);
    island.policy(&full);
    island.policy(&policy("MY.DEAD", Quality::Privacy));
    island.harness.queue("FULL", |queue| queue.max_depth = 0);
    island.harness.define(|definitions| definitions.queue_manager.dead_letter_queue = Some("MY.DEAD".into()));
    let mut partner = island.partner();
    partner.send("FULL@QM2", SECRET, true);
    partner.accepted(1);
    let message = &island.harness.messages("MY.DEAD")[0];
    assert_eq!(label(message, "reason"), Some(Value::Uint(2053)));
    assert_eq!(island.opens(&full, message, "FULL@QM2"), SECRET, "bound to the queue that its label names");
}

#[test]
fn a_message_that_can_t_be_sealed_goes_back_to_its_sender_and_the_next_ones_go_on() {
    let mut island = Island::new(Protection::AsPolicy);
    // A policy that can't be satisfied is not tried again: others would wait for that.
    let define = |island: &Island| {
        island.harness.channel(|channel| {
            (channel.protection, channel.message_retries) = (Protection::AsPolicy, u32::MAX);
        });
        island.policy(&Policy { recipients: vec![dn("unknown")], ..policy("PRIVATE", Quality::Privacy) });
    };
    define(&island);
    let connect = |island: &Island, takes_refusals: bool| {
        let capability = takes_refusals.then(|| bulla_amqp::Symbol::from_static(protocol::REFUSALS));
        let config = Config { offered_capabilities: capability.into_iter().collect(), ..Config::new("partner") };
        Partner::connect_as(&island.harness, island.scram("QM2"), config)
    };
    // An older partner would take any answer but an end for an arrival.
    let mut older = connect(&island, false);
    older.greet(&greeting(0, 0)).unwrap();
    older.send("PRIVATE@QM2", SECRET, true);
    let text = older.detached().description.unwrap();
    assert!(text.starts_with("2063") && text.contains("unknown-dn"), "{text}");
    let mut partner = connect(&island, true);
    assert_eq!(partner.greet(&greeting(0, 1)).unwrap().sequence, 0);
    for (queue, body) in [("Q@QM2", "before"), ("PRIVATE@QM2", SECRET), ("Q@QM2", "after")] {
        partner.send(queue, body, true);
    }
    partner.accepted(1);
    let outcome = partner.outcome();
    let Some(DeliveryState::Rejected(Some(error))) = outcome else { panic!("{outcome:?}") };
    assert!(error.info.iter().any(|(name, value)| name.as_str() == "reason" && *value == Value::Uint(2063)));
    partner.accepted(1);
    drop(partner);
    assert_eq!(island.harness.bodies("Q"), ["before", "after"]);
    // A partner that has not heard of it is told again, also after a restart.
    for restart in [false, true] {
        if restart {
            island.harness.start();
            define(&island);
        }
        let mut partner = connect(&island, true);
        let answer = partner.greet(&greeting(0, 3)).unwrap();
        assert_eq!((answer.sequence, answer.refused.above(0).collect::<Vec<_>>()), (3, vec![(2, 2063)]));
        drop(partner);
        // It must not take number 2 for an arrival, and remove the message.
        let text = connect(&island, false).greet(&greeting(0, 3)).unwrap_err().description.unwrap();
        assert!(text.starts_with("2539") && text.contains("cause=refusals"), "{text}");
    }
    connect(&island, false).greet(&greeting(3, 0)).unwrap();
    assert_eq!(island.harness.messages("SYSTEM.DEAD.LETTER.QUEUE").len(), 0);
    assert!(!is_on_the_disk(&island));
}
