//! The part of the model that has key rings: channels that seal and open with a user's key, partners with and without a
//! proof of who they are, and rules for connections that name the channel's user.
//!
//! The model answers one question: has this partner proved enough for that user's ring? If it has not, it gets no link.

use super::PASSWORD;
use super::model::Random;
use crate::authority::{ANONYMOUS, Entity, ObjectType, Profile, RecordKey, Right, Rule, RuleKey, RuleKind, UserSource};
use crate::catalog::{ChannelDefinition, ChannelKind, LocalQueue, Protection, Usage};
use crate::channel::protocol::{self, SenderGreeting};
use crate::channel::registry::InstanceId;
use crate::envelope::{Arrival, payload_of};
use crate::folders::RINGS;
use crate::manager::attributes;
use crate::whole::channels::{self, Partner};
use crate::whole::harness::Harness;
use bulla_amqp::{AttachRequest, Config, DeliveryState, Event, SaslClient, SenderSettleMode, Symbol, Value};
use bulla_queue::StoreNumber;
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
use bulla_seal::policy::SignatureDigest;
use bulla_seal::{Dn, Policy, ring};
use std::sync::Arc;
use std::time::SystemTime;

/// In whose name both channels run, and with whose ring.
const BORDER: &str = "border";
/// Partners: by a user's password, or by nothing.
const PARTNERS: [&str; 3] = [ANONYMOUS, "alice", BORDER];
const QUEUE: &str = "VAULT";
const TRANSMISSION: &str = "VAULT.XMIT";
/// Seals what arrives (ASPOLICY).
const INCOMING: &str = "VAULT.IN";
/// Opens what it sends (REMOVE).
const OUTGOING: &str = "VAULT.OUT";

/// The rule for connections that is set.
#[derive(Clone, Copy, Debug)]
enum Map {
    None,
    /// A client of this machine runs the channel as its user.
    Address,
    /// That user does.
    User(&'static str),
}

pub(super) struct Rings {
    map: Map,
    sealed: u32,
}

impl Rings {
    /// Gives the channels' user a ring and a password.
    pub(super) fn new(harness: &Harness) -> Self {
        let now = SystemTime::now();
        let dn = |name: &str| -> Dn { format!("CN={name},O=Bulla").parse().unwrap() };
        let key = KeySpec::Ec(Curve::P256);
        let authority = Authority::create(&harness.path().join("ca"), &dn("CA"), key, 3650, now).unwrap();
        let (dn, uses, alternative_names) = (dn(BORDER), vec![KeyUse::DocSign], Vec::new());
        let request = Request { dn, key, uses, days: 365, alternative_names, passphrase: None };
        let own = authority.issue(&request, now).unwrap();
        let folder = harness.path().join(RINGS).join(BORDER);
        ring::create(&folder).unwrap();
        ring::install_own(&folder, "own", &own.0, &authority.chain(), &own.1).unwrap();
        ring::install_trust(&folder, "ca", authority.root()).unwrap();
        harness.running().manager().sign_ins.users.add(BORDER, PASSWORD, crate::users::ITERATIONS_MIN).unwrap();
        Self { map: Map::None, sealed: 0 }
    }

    /// Defines the channels, their queues with policies, and what their user may.
    pub(super) fn define(&self, harness: &Harness) {
        let state = &mut *harness.running().manager().lock();
        let definitions = &mut state.definitions;
        let xmit = LocalQueue { usage: Usage::Transmission, ..LocalQueue::default() };
        for (name, queue) in [(QUEUE, LocalQueue { max_depth: 100_000, ..LocalQueue::default() }), (TRANSMISSION, xmit)]
        {
            state.store.define(name, attributes(name, &queue, definitions)).unwrap();
            definitions.queues.insert(name.into(), queue);
            let policy = Policy { sign: Some(SignatureDigest::Sha256), ..Policy::new(name) };
            definitions.policies.insert(name.into(), Arc::new(policy));
        }
        let channel = |kind, protection| ChannelDefinition {
            user: Some(BORDER.into()),
            message_retries: 0,
            protection,
            ..ChannelDefinition::new(kind)
        };
        definitions.channels.insert(INCOMING.into(), channel(ChannelKind::Receiver, Protection::AsPolicy));
        let outgoing = ChannelDefinition {
            transmission_queue: Some(TRANSMISSION.into()),
            ..channel(ChannelKind::Server, Protection::Remove)
        };
        definitions.channels.insert(OUTGOING.into(), outgoing);
        state.generations.definitions += 1;
    }

    /// The channels' user may put on the queue, and be started; the rule that is set.
    pub(super) fn allow(&self, harness: &Harness) {
        let state = &mut *harness.running().manager().lock();
        let definitions = &mut state.definitions;
        for (object, name, right) in
            [(ObjectType::Queue, QUEUE, Right::Put), (ObjectType::Channel, OUTGOING, Right::Control)]
        {
            let key = RecordKey { object, profile: Profile::parse(name).unwrap(), entity: Entity::principal(BORDER) };
            definitions.authorities.records.set(key, right.alone());
        }
        definitions.queue_manager.channel_authentication = true;
        definitions.channel_rules = Default::default();
        let (kind, address, user) = match self.map {
            Map::None => return,
            Map::Address => (RuleKind::Address, "127.0.0.1", ""),
            Map::User(user) => (RuleKind::User, "", user),
        };
        let key = RuleKey {
            profile: "VAULT.*".into(),
            kind,
            address: address.into(),
            user: user.into(),
            peer: String::new(),
            issuer: String::new(),
        };
        definitions.channel_rules.set(key, Rule { source: UserSource::Map(BORDER.into()), ..Rule::default() });
    }

    /// The rule: a sign-in as the channel's user, or as one whom a rule maps to that one. An address proves nothing.
    fn has_proved(&self, user: &str) -> bool {
        match self.map {
            Map::None => user == BORDER,
            Map::Address => false,
            Map::User(mapped) => user == BORDER || user == mapped,
        }
    }

    /// A partner comes, with a rule set or none, and wants one of the two channels.
    pub(super) fn step(&mut self, harness: &Harness, random: &mut Random) {
        self.map = random.one_of(&[Map::None, Map::Address, Map::User("alice"), Map::User("mallory")]);
        self.allow(harness);
        let user = random.one_of(&PARTNERS);
        let sign_in = match user {
            ANONYMOUS if random.one_of(&[true, false]) => SaslClient::Anonymous,
            ANONYMOUS => SaslClient::None,
            user => SaslClient::Scram { user: user.to_owned(), password: PASSWORD.to_owned() },
        };
        let got_in = match random.below(3) {
            0 => self.asks(harness, sign_in),
            kind => self.brings(harness, sign_in, user, kind == 1),
        };
        match (&got_in, self.has_proved(user)) {
            (Ok(()), true) => {}
            (Err(text), false) if text.contains("cause=partner-unproved") => {}
            (_, proved) => panic!("{user} under {:?}, who has proved enough: {proved}, got {got_in:?}", self.map),
        }
        assert_eq!(harness.depth(QUEUE), self.sealed, "what was put by way of the ring of {BORDER}");
    }

    /// A partner attaches to the channel that seals, and sends a message in clear where it gets in.
    fn brings(&mut self, harness: &Harness, sign_in: SaslClient, user: &str, is_bulla: bool) -> Result<(), String> {
        let mut partner = Partner::at(harness.running().amqp.unwrap(), sign_in, Config::new("partner"));
        let request = match is_bulla {
            true => {
                let greeting = SenderGreeting {
                    channel: INCOMING.into(),
                    manager: format!("QM.{}", user.trim_start_matches('*').to_uppercase()),
                    store: [7; 16],
                    in_doubt: u32::MAX,
                    sequence_wrap: 999_999_999,
                    batch_size: 50,
                    message_bytes_max: 4 << 20,
                    ..SenderGreeting::default()
                };
                AttachRequest {
                    snd_settle_mode: SenderSettleMode::Mixed,
                    properties: greeting.to_properties(),
                    ..AttachRequest::sender(INCOMING, INCOMING)
                }
            }
            false => AttachRequest::sender("by queue", format!("{INCOMING}::{QUEUE}")),
        };
        partner.attach(request).map_err(|error| error.description.unwrap_or_default())?;
        let message = channels::message(&format!("{QUEUE}@QM1"), "clear", true);
        partner.send_message(message, true);
        assert_eq!(partner.outcome(), Some(DeliveryState::Accepted));
        self.sealed += 1;
        let state = &mut *harness.running().manager().lock();
        let found = state.store.find(state.store.newest(StoreNumber::LOCAL)).unwrap().1;
        let payload = payload_of(&state.store.body(found.id).unwrap());
        assert!(Arrival::read(&payload, 0).unwrap().claims_seal(), "it is put in clear");
        Ok(())
    }

    /// A requester asks for the channel that opens.
    fn asks(&self, harness: &Harness, sign_in: SaslClient) -> Result<(), String> {
        harness.until("the channel is free", |harness| {
            let state = harness.running().manager().lock();
            state.outbound.channels.get(&InstanceId::of(OUTGOING)).is_none_or(|instance| !instance.is_active())
        });
        let config = Config {
            offered_capabilities: vec![Symbol::from_static(protocol::CAPABILITY)],
            properties: vec![protocol::property(protocol::REQUEST, Value::from(OUTGOING))],
            ..Config::new("partner")
        };
        let mut partner = Partner::at(harness.running().amqp.unwrap(), sign_in, config);
        partner.wait("the answer to a request", |event| match event {
            Event::Closed(Some(error)) => Some(Err(error.description.clone().unwrap_or_default())),
            Event::Attached(_) => Some(Ok(())),
            _ => None,
        })
    }
}
