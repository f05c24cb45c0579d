//! A queue manager whose channels receive, and a partner that speaks the protocol by hand.

mod sealing;
mod server;

use crate::authority::Authorities;
use crate::catalog::status::{ChannelState, ChannelStatus};
use crate::catalog::{ChannelDefinition, ChannelKind, Definitions, LocalQueue, RemoteQueue, Usage};
use crate::channel::ChannelNotice;
use crate::channel::note::{receiver_name, receiver_prefix};
use crate::channel::protocol::{self, ReceiverGreeting, SenderGreeting};
use crate::channel::refused::Refused;
use crate::channel::registry::{InstanceId, Place};
use crate::channel::transmission::{Destination, TransmissionHeader};
use crate::channel_ends::receiver::attaching::{OTHER_STORE, PARTNER_BYTES_MAX};
use crate::dispatcher::receiving::CREDIT_BYTES;
use crate::envelope;
use crate::mailbox::Notice;
use crate::serve::{Listen, Running, Settings, start};
use bulla_amqp::types::{Error, Target};
use bulla_amqp::{
    AttachReply, AttachRequest, Config, Connection, DeliveryState, Event, LinkId, Payload, SaslClient, Sections,
    SenderSettleMode, SessionId, Value,
};
use bulla_queue::Message;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No condition takes longer to come true.
const PATIENCE: Duration = Duration::from_secs(60);
const CHANNEL: &str = "QM1.QM2";
const STORE: [u8; 16] = [7; 16];

/// A queue manager, QM2, with a receiving channel and a queue Q.
struct Harness {
    dir: TempDir,
    running: Option<Running>,
}

impl Harness {
    fn new() -> Self {
        let mut harness = Self { dir: tempfile::tempdir().unwrap(), running: None };
        harness.start();
        harness
    }

    /// Starts it, or again on what is there.
    fn start(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().unwrap();
        }
        let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let settings = Settings {
            name: Some("QM2".into()),
            listen: Listen { amqp: any, ..Listen::default() },
            dispatchers: 2,
            adapters: 2,
            ..Settings::new(self.path().to_owned())
        };
        self.running = Some(start(&settings).unwrap());
        self.define(|_| {});
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    /// Changes the definitions, on top of the channel and its queue.
    fn define(&self, change: impl FnOnce(&mut Definitions)) {
        let state = &mut *self.running().manager().lock();
        let definitions = &mut state.definitions;
        definitions.queues.entry("Q".into()).or_default();
        definitions.channels.entry(CHANNEL.into()).or_insert_with(|| ChannelDefinition {
            message_retries: 0,
            ..ChannelDefinition::new(ChannelKind::Receiver)
        });
        definitions.authorities = Authorities::open_to_all();
        change(definitions);
        for (name, queue) in &state.definitions.queues {
            let attributes = crate::manager::attributes(name, queue, &state.definitions);
            state.store.define(name, attributes).unwrap();
        }
        state.generations.definitions += 1;
    }

    fn channel(&self, change: impl FnOnce(&mut ChannelDefinition)) {
        self.define(|definitions| change(definitions.channels.get_mut(CHANNEL).unwrap()));
    }

    fn queue(&self, name: &str, change: impl FnOnce(&mut LocalQueue)) {
        self.define(|definitions| change(definitions.queues.entry(name.into()).or_default()));
    }

    /// What lies on a queue, in order.
    fn messages(&self, queue: &str) -> Vec<Payload> {
        let state = &mut *self.running().manager().lock();
        let id = state.store.queue(queue).unwrap();
        let (mut found, mut after) = (Vec::new(), None);
        while let Some(next) = state.store.browse_next(id, after, 0) {
            found.push(envelope::payload_of(&state.store.body(next.id).unwrap()));
            after = Some(next.place);
        }
        found
    }

    /// The bodies that lie on a queue, in order.
    fn bodies(&self, queue: &str) -> Vec<String> {
        self.messages(queue).iter().map(text).collect()
    }

    fn status(&self, partner: &str) -> Option<ChannelStatus> {
        let state = self.running().manager().lock();
        state.outbound.channels.get(&InstanceId::with(CHANNEL, partner)).map(|instance| instance.status.clone())
    }

    #[track_caller]
    fn until<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }

    #[track_caller]
    fn until_state(&self, state: ChannelState) -> ChannelStatus {
        self.until(&format!("{state}"), |harness| harness.status("QM1").filter(|status| status.state == state))
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().unwrap();
        }
    }
}

/// The body of a message that is one data section.
fn text(payload: &Payload) -> String {
    let sections = Sections::scan(payload).unwrap();
    let bulla_amqp::BodyForm::Data(range) = sections.body else { panic!("{:?}", sections.body) };
    String::from_utf8(payload.bytes_at(range).into_owned()).unwrap()
}

/// An annotation of a message's label.
fn label(payload: &Payload, name: &str) -> Option<Value> {
    let sections = Sections::scan(payload).unwrap();
    let annotations = envelope::annotations(payload, &sections);
    let key = format!("x-opt-bulla-{name}");
    annotations.into_iter().find(|(found, _)| found.as_str() == Some(&key)).map(|(_, value)| value)
}

/// The sending end: what it says, sends and hears.
pub(crate) struct Partner {
    stream: TcpStream,
    engine: Connection,
    session: SessionId,
    link: Option<LinkId>,
    input: BytesMut,
    events: VecDeque<Event>,
}

impl Partner {
    fn connect(harness: &Harness) -> Self {
        Self::connect_as(harness, SaslClient::None, Config::new("partner"))
    }

    /// Connects with a sign-in, and with what `open` says of it.
    fn connect_as(harness: &Harness, sign_in: SaslClient, config: Config) -> Self {
        Self::at(harness.running().amqp.unwrap(), sign_in, config)
    }

    /// Connects to a port.
    pub(crate) fn at(port: SocketAddr, sign_in: SaslClient, config: Config) -> Self {
        let stream = TcpStream::connect(port).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut engine = Connection::client(config, sign_in, Box::new(crate::users::Crypto), Instant::now());
        let session = engine.begin();
        Self { stream, engine, session, link: None, input: BytesMut::new(), events: VecDeque::new() }
    }

    /// Attaches as the sending end of QM1, or says why not.
    fn greet(&mut self, greeting: &SenderGreeting) -> Result<ReceiverGreeting, Error> {
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Mixed,
            properties: greeting.to_properties(),
            ..AttachRequest::sender(CHANNEL, CHANNEL)
        };
        let properties = self.attach(request)?;
        Ok(ReceiverGreeting::from_properties(&properties).unwrap())
    }

    pub(crate) fn attach(&mut self, request: AttachRequest) -> Result<protocol::Properties, Error> {
        let link = self.engine.attach(self.session, request);
        self.link = Some(link);
        self.wait("the answer to an attach", |event| match event {
            Event::LinkOpened(opened) if opened.target.is_some() => Some(Ok(opened.properties.clone())),
            Event::Detached { error: Some(error), .. } => Some(Err(error.clone())),
            _ => None,
        })
    }

    /// Sends one message, as soon as there is credit.
    fn send(&mut self, to: &str, body: &str, numbered: bool) {
        self.send_message(message(to, body, numbered), numbered);
    }

    pub(crate) fn send_message(&mut self, message: Payload, numbered: bool) {
        let link = self.link.unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !self.engine.can_send(link) {
            assert!(Instant::now() < deadline, "no credit");
            self.exchange();
        }
        assert!(self.engine.send(link, 0, message, !numbered));
        self.flush();
    }

    fn send_all<'a>(&mut self, bodies: impl IntoIterator<Item = &'a str>) {
        bodies.into_iter().for_each(|body| self.send("Q@QM2", body, true));
    }

    /// The next outcome.
    #[track_caller]
    pub(crate) fn outcome(&mut self) -> Option<DeliveryState> {
        self.wait("an outcome", |event| match event {
            Event::Outcome { state, .. } => Some(state.clone()),
            _ => None,
        })
    }

    #[track_caller]
    fn accepted(&mut self, count: usize) {
        for at in 0..count {
            assert_eq!(self.outcome(), Some(DeliveryState::Accepted), "number {at}");
        }
    }

    /// Why the link ended.
    #[track_caller]
    fn detached(&mut self) -> Error {
        self.wait("the end of the link", |event| match event {
            Event::Detached { error, .. } => Some(error.clone().expect("a reason")),
            Event::Outcome { state, .. } => panic!("an outcome: {state:?}"),
            _ => None,
        })
    }

    #[track_caller]
    pub(crate) fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(event) = self.engine.poll_event() {
                self.events.push_back(event);
            }
            if let Some((at, found)) = self.events.iter().enumerate().find_map(|(at, event)| Some((at, wanted(event)?)))
            {
                self.events.remove(at);
                return found;
            }
            assert!(Instant::now() < deadline, "{what}");
            self.exchange();
        }
    }

    fn flush(&mut self) {
        while self.engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.engine.output_slices(&mut slices);
            let written = self.stream.write_vectored(&slices).unwrap();
            drop(slices);
            self.engine.output_written(written);
        }
    }

    fn exchange(&mut self) {
        self.flush();
        let old = self.input.len();
        self.input.resize(old + 65_536, 0);
        self.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let read = self.stream.read(&mut self.input[old..]).unwrap_or(0);
        self.input.truncate(old + read);
        self.engine.receive(Instant::now(), &mut self.input);
        self.flush();
    }
}

/// A message for `to`, with the transmission header that a sending end puts on it.
pub(crate) fn message(to: &str, body: &str, persistent: bool) -> Payload {
    on_its_way(to, data(body), persistent, None)
}

fn data(body: &str) -> Payload {
    let mut bytes = Vec::new();
    envelope::data_section_head(body.len(), &mut bytes);
    bytes.extend_from_slice(body.as_bytes());
    Payload::from(Bytes::from(bytes))
}

fn on_its_way(to: &str, body: Payload, persistent: bool, ttl_ms: Option<u32>) -> Payload {
    let header = bulla_amqp::Header { durable: persistent, ttl_ms, ..bulla_amqp::Header::default() };
    let parts = bulla_amqp::MessageParts {
        header: Some(header),
        body: bulla_amqp::MessageBody::Sections(body),
        ..bulla_amqp::MessageParts::default()
    };
    let body = envelope::chunks_of(parts.build());
    let message = Message::new(persistent, body);
    envelope::payload_of(&TransmissionHeader::new(Destination::parse(to).unwrap()).put_on(message).body)
}

fn greeting(sequence: u64, in_doubt: u32) -> SenderGreeting {
    SenderGreeting {
        channel: CHANNEL.into(),
        manager: "QM1".into(),
        store: STORE,
        sequence,
        in_doubt,
        reset: false,
        sequence_wrap: 999_999_999,
        batch_size: 50,
        message_bytes_max: 4 << 20,
        non_persistent_fast: true,
    }
}

#[test]
fn what_a_channel_brings_is_on_its_queue_once_it_is_confirmed() {
    let harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    let answer = partner.greet(&greeting(0, 0)).unwrap();
    assert_eq!((answer.manager.as_str(), answer.sequence, answer.store), ("QM2", 0, [0; 16]));
    partner.send_all(["one", "two", "three"]);
    partner.accepted(3);
    assert_eq!(harness.bodies("Q"), ["one", "two", "three"]);
    let arrived = &harness.messages("Q")[0];
    assert_eq!(Sections::scan(arrived).unwrap().delivery_annotations, None);
    let status = harness.until_state(ChannelState::Running);
    assert_eq!((status.messages, status.current_sequence, status.exactly_once), (3, 3, true));
    assert_eq!((status.remote_manager.as_str(), status.remote_application.as_str()), ("QM1", "partner"));
    assert_eq!(status.user, "QM2");
    harness
        .until("the last number confirmed", |harness| harness.status("QM1").filter(|status| status.last_sequence == 3));
}

#[test]
fn numbers_go_on_over_connections_and_restarts() {
    let mut harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send_all(["one", "two"]);
    partner.accepted(2);
    drop(partner);
    // The confirmations were lost: the sender says that both are in doubt.
    let mut partner = Partner::connect(&harness);
    let answer = partner.greet(&greeting(0, 2)).unwrap();
    assert_eq!((answer.sequence, answer.store), (2, STORE));
    partner.send_all(["three"]);
    partner.accepted(1);
    drop(partner);
    harness.start();
    let mut partner = Partner::connect(&harness);
    assert_eq!(partner.greet(&greeting(3, 0)).unwrap().sequence, 3);
    partner.send_all(["four"]);
    partner.accepted(1);
    assert_eq!(harness.bodies("Q"), ["one", "two", "three", "four"]);
}

#[test]
fn a_sender_whose_numbers_do_not_meet_is_told_and_gets_no_credit() {
    let harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send_all(["one", "two"]);
    partner.accepted(2);
    for (greeting, what) in
        [(greeting(0, 1), "less in doubt than has come"), (greeting(3, 5), "more confirmed than has come")]
    {
        let mut partner = Partner::connect(&harness);
        let answer = partner.greet(&greeting).unwrap();
        assert_eq!((answer.sequence, answer.store), (2, STORE), "{what}");
        // What would be credit comes with the answer or never: an echo shows that nothing is on its way.
        let link = partner.link.unwrap();
        partner.engine.detach(link, true, None);
        partner.wait("the answer to a detach", |event| matches!(event, Event::Detached { .. }).then_some(()));
        let credit = |event: &Event| matches!(event, Event::Credit { .. });
        assert!(!partner.events.iter().any(credit), "{what}");
    }
}

/// RESET CHANNEL at this end, once the channel has no connection.
fn reset_here(harness: &Harness, next: u64) {
    harness.until("the channel may be reset", |harness| {
        crate::channel::supervisor::reset(&mut harness.running().manager().lock(), CHANNEL, next).ok()
    });
}

fn signs_in(harness: &Harness, user: &str) -> SaslClient {
    let password = "long enough for a test";
    let users = &harness.running().manager().sign_ins.users;
    if !users.exists(user) {
        users.add(user, password, crate::users::ITERATIONS_MIN).unwrap();
    }
    SaslClient::Scram { user: user.to_owned(), password: password.to_owned() }
}

#[test]
fn a_client_that_claims_to_be_a_proved_partner_moves_no_number_and_replaces_nobody() {
    let mut harness = Harness::new();
    let connect = |harness: &Harness, sign_in| Partner::connect_as(harness, sign_in, Config::new("partner"));
    let mut partner = connect(&harness, signs_in(&harness, "qm1"));
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send_all(["one", "two"]);
    partner.accepted(2);
    let claims = |harness: &Harness| {
        for sign_in in [SaslClient::None, SaslClient::Anonymous, signs_in(harness, "mallory")] {
            for (number, reset) in [(2, false), (0, true), (1 << 40, true)] {
                let claim = SenderGreeting { reset, ..greeting(number, 0) };
                let text = connect(harness, sign_in.clone()).greet(&claim).unwrap_err().description.unwrap();
                assert!(text.starts_with("2539") && text.contains("cause=partner"), "{text}");
                assert!(!text.contains("user qm1"), "who the partner is, is not told: {text}");
            }
        }
    };
    claims(&harness);
    partner.send_all(["three"]);
    partner.accepted(1);
    drop(partner);
    // The proof is in the journal.
    harness.start();
    claims(&harness);
    let mut partner = connect(&harness, signs_in(&harness, "qm1"));
    assert_eq!(partner.greet(&greeting(3, 0)).unwrap().sequence, 3);
    drop(partner);
    // After a RESET here another proof is taken, and counts from then on.
    reset_here(&harness, 1);
    let mut other = connect(&harness, signs_in(&harness, "mallory"));
    other.greet(&greeting(0, 0)).unwrap();
    let text = connect(&harness, signs_in(&harness, "qm1")).greet(&greeting(0, 0)).unwrap_err().description.unwrap();
    assert!(text.contains("cause=partner"), "{text}");
}

#[test]
fn a_client_with_another_store_learns_nothing_and_does_not_end_the_partner_that_runs() {
    let harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send_all(["one"]);
    partner.accepted(1);
    for number in [0, 1, 5] {
        let claim = SenderGreeting { store: [8; 16], ..greeting(number, 0) };
        let text = Partner::connect(&harness).greet(&claim).unwrap_err().description.unwrap();
        assert!(text.starts_with("2539") && text.contains("cause=store"), "{text}");
    }
    partner.send_all(["two"]);
    partner.accepted(1);
    drop(partner);
    // Once the partner is gone it hears the number, and that the store is another one.
    let answer = harness.until("an answer", |harness| {
        let claim = SenderGreeting { store: [8; 16], ..greeting(2, 0) };
        Partner::connect(harness).greet(&claim).ok()
    });
    assert_eq!((answer.sequence, answer.store), (2, OTHER_STORE));
    assert_eq!(harness.bodies("Q"), ["one", "two"]);
}

#[test]
fn one_partner_does_not_fill_the_journal_with_notes_under_many_names() {
    const NAMES: usize = 16;
    let harness = Harness::new();
    let qm1 = signs_in(&harness, "qm1");
    let long = "x".repeat(60_000);
    let greet = |sign_in: &SaslClient, name: &str, reset| {
        let claim = SenderGreeting { manager: name.into(), reset, ..greeting(0, 0) };
        Partner::connect_as(&harness, sign_in.clone(), Config::new(long.as_str())).greet(&claim)
    };
    let notes = || harness.running().manager().lock().store.notes(&receiver_prefix(CHANNEL)).count();
    for number in 0..NAMES + 4 {
        // A reset is kept before any message came.
        let answer = greet(&qm1, &format!("QM.{number}"), true);
        match answer {
            Ok(_) => assert!(number < NAMES, "{number}"),
            Err(error) => {
                let text = error.description.unwrap();
                assert!(number >= NAMES && text.starts_with("2025"), "{number}: {text}");
            }
        }
    }
    assert_eq!(notes(), NAMES);
    let shown = harness.until("a status", |harness| harness.status("QM.0")).remote_application;
    assert!(shown.len() <= PARTNER_BYTES_MAX, "{} bytes of a name are kept", shown.len());
    // Its own names and other partners are let in as before.
    greet(&qm1, "QM.3", false).unwrap();
    greet(&signs_in(&harness, "qm2"), "OTHER", true).unwrap();
    assert_eq!(notes(), NAMES + 1);
}

#[test]
fn after_a_reset_the_senders_number_and_store_count() {
    let harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send_all(["one", "two"]);
    partner.accepted(2);
    drop(partner);
    let other = SenderGreeting { store: [8; 16], reset: true, ..greeting(40, 0) };
    // Not before this end has agreed.
    let answer = harness.until("an answer", |harness| Partner::connect(harness).greet(&other).ok());
    assert_eq!((answer.sequence, answer.store), (2, OTHER_STORE));
    reset_here(&harness, 1);
    let mut partner = Partner::connect(&harness);
    let answer = partner.greet(&other).unwrap();
    assert_eq!((answer.sequence, answer.store), (40, [8; 16]));
    partner.send_all(["forty-one"]);
    partner.accepted(1);
    drop(partner);
    let mut partner = Partner::connect(&harness);
    let other = SenderGreeting { reset: false, ..other };
    assert_eq!(partner.greet(&SenderGreeting { sequence: 41, ..other }).unwrap().sequence, 41);
}

#[test]
fn a_second_connection_of_a_partner_ends_the_first() {
    let harness = Harness::new();
    let mut first = Partner::connect(&harness);
    first.greet(&greeting(0, 0)).unwrap();
    first.send_all(["one"]);
    first.accepted(1);
    let mut second = Partner::connect(&harness);
    assert_eq!(second.greet(&greeting(0, 1)).unwrap().sequence, 1);
    assert!(first.detached().description.unwrap().contains("connected again"));
    second.send_all(["two"]);
    second.accepted(1);
    assert_eq!(harness.bodies("Q"), ["one", "two"]);
    assert_eq!(harness.status("QM1").unwrap().state, ChannelState::Running);
}

#[test]
fn a_requester_that_was_called_before_takes_the_numbers_along() {
    let harness = Harness::new();
    let mut called = Partner::connect(&harness);
    called.greet(&greeting(0, 0)).unwrap();
    called.send_all(["one"]);
    called.accepted(1);
    // The second connection is one that this queue manager has begun: the channel's own instance is there.
    let second = Place { dispatcher: 1, peer: 0, generation: 1 };
    {
        let state = &mut *harness.running().manager().lock();
        state.outbound.channels.entry(InstanceId::of(CHANNEL)).place = Some(second);
    }
    let mut asked = Partner::connect(&harness);
    assert_eq!(asked.greet(&greeting(0, 1)).unwrap().sequence, 1);
    called.detached();
    asked.send_all(["two"]);
    asked.accepted(1);
    assert_eq!(harness.bodies("Q"), ["one", "two"]);
    let state = harness.running().manager().lock();
    let own = &state.outbound.channels.get(&InstanceId::of(CHANNEL)).unwrap().status;
    assert_eq!((own.state, own.messages), (ChannelState::Running, 1));
}

#[test]
fn a_channel_that_can_t_be_had_says_why() {
    let harness = Harness::new();
    harness.define(|definitions| {
        definitions.channels.insert("OTHER.WAY".into(), ChannelDefinition::new(ChannelKind::Sender));
    });
    let refused = |greeting: SenderGreeting| {
        Partner::connect(&harness).greet(&greeting).unwrap_err().description.unwrap_or_default()
    };
    for (greeting, says) in [
        (SenderGreeting { channel: "NONE".into(), ..greeting(0, 0) }, "2540 MQRC_UNKNOWN_CHANNEL_NAME"),
        (SenderGreeting { channel: "OTHER.WAY".into(), ..greeting(0, 0) }, "cause=channel-type"),
        (SenderGreeting { sequence_wrap: 100, ..greeting(0, 0) }, "cause=sequence-wrap"),
        (SenderGreeting { manager: "no name".into(), ..greeting(0, 0) }, "cause=manager"),
        (SenderGreeting { store: [0; 16], ..greeting(0, 0) }, "cause=store"),
    ] {
        let text = refused(greeting);
        assert!(text.contains(says), "{says}: {text}");
    }
    harness.define(|definitions| definitions.queue_manager.active_channels_max = 0);
    assert!(refused(greeting(0, 0)).contains("2025"));
    let state = &mut *harness.running().manager().lock();
    assert_eq!(state.outbound.channels.active(), 0);
    assert_eq!(state.store.note(&receiver_name(CHANNEL, "QM1")), None);
}

#[test]
fn what_the_sender_has_settled_has_no_number() {
    let harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send("Q@QM2", "fast", false);
    harness.until("the message", |harness| (harness.bodies("Q") == ["fast"]).then_some(()));
    let status = harness.until("it is counted", |harness| harness.status("QM1").filter(|status| status.messages == 1));
    assert_eq!((status.current_sequence, status.batches), (0, 0));
    partner.send_all(["one"]);
    partner.accepted(1);
    drop(partner);
    assert_eq!(Partner::connect(&harness).greet(&greeting(0, 1)).unwrap().sequence, 1);
}

#[test]
fn each_message_that_can_t_be_put_lies_on_the_dead_letter_queue_with_its_reason() {
    let harness = Harness::new();
    harness.queue("CLOSED", |queue| queue.put_enabled = false);
    harness.queue("FULL", |queue| queue.max_depth = 0);
    harness.queue("SHORT", |queue| queue.max_message_bytes = 10);
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    let cases = [("NOWHERE", 2085), ("CLOSED", 2051), ("FULL", 2053), ("SHORT", 2030)];
    for numbered in [true, false] {
        for (queue, _) in cases {
            partner.send(&format!("{queue}@QM2"), queue, numbered);
        }
    }
    partner.send("Q@QM2", "after them", true);
    partner.accepted(5);
    let dead = harness.messages("SYSTEM.DEAD.LETTER.QUEUE");
    assert_eq!(dead.len(), 8);
    for (message, (queue, reason)) in dead.iter().zip(cases.into_iter().chain(cases)) {
        assert_eq!(text(message), queue);
        assert_eq!(label(message, "reason"), Some(Value::Uint(reason)));
        assert_eq!(label(message, "queue"), Some(Value::from(queue)));
        assert_eq!(label(message, "manager"), Some(Value::from("QM2")));
        assert!(matches!(label(message, "time"), Some(Value::Timestamp(at)) if at > 0));
    }
    assert_eq!(harness.bodies("Q"), ["after them"]);
}

#[test]
fn no_report_of_a_dead_letter_goes_where_the_channel_s_user_may_not_put() {
    use crate::authority::{Entity, ObjectType, Profile, RecordKey, Right};
    let harness = Harness::new();
    harness.queue("INIT", |_| {});
    harness.queue("SECRET", |_| {});
    let mut authorities = Authorities::default();
    let mut allow = |object, profile, user: &str, right: Right| {
        authorities.records.set(RecordKey { object, profile, entity: Entity::principal(user) }, right.alone());
    };
    let connect = Profile::of_queue_manager();
    allow(ObjectType::QueueManager, connect, crate::authority::ANONYMOUS, Right::Connect);
    allow(ObjectType::Queue, Profile::parse("Q").unwrap(), "QM2", Right::Put);
    harness.define(|definitions| definitions.authorities = authorities);
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    let asked = |key: Value| {
        let properties = bulla_amqp::types::Properties { reply_to: Some("INIT".into()), ..Default::default() };
        let (mut section, mut application_properties) = (Vec::new(), Vec::new());
        properties.encode_section(&mut section);
        let asked = [(key, Value::Int(117_440_512))];
        bulla_amqp::message::encode_map_section(0x74, &asked, &mut application_properties);
        section.extend_from_slice(&application_properties);
        let body = Payload::from(vec![Bytes::from(section), data("the whole body").to_contiguous()]);
        on_its_way("SECRET@QM2", body, true, None)
    };
    let name = "JMS_IBM_Report_Exception";
    partner.send_message(asked(Value::from(name)), true);
    partner.send_message(asked(Value::from(bulla_amqp::Symbol::new(name).unwrap())), true);
    partner.accepted(2);
    assert_eq!(harness.bodies("INIT"), [""; 0]);
    assert_eq!(harness.bodies("SYSTEM.DEAD.LETTER.QUEUE"), ["the whole body"; 2]);
}

#[test]
fn a_message_without_a_way_or_a_form_goes_to_the_dead_letter_queue_as_it_came() {
    let harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send_message(data("no header"), true);
    partner.send_message(Payload::from(Bytes::from_static(b"no message")), true);
    partner.accepted(2);
    let dead = harness.messages("SYSTEM.DEAD.LETTER.QUEUE");
    assert_eq!(text(&dead[0]), "no header");
    assert_eq!(label(&dead[0], "reason"), Some(Value::Uint(2085)));
    assert_eq!(dead[1].to_contiguous(), "no message");
}

#[test]
fn a_channel_pauses_between_tries_and_what_came_later_waits() {
    let harness = Harness::new();
    harness.channel(|channel| {
        channel.message_retries = u32::MAX;
        channel.message_retry_interval = Duration::from_millis(1);
    });
    harness.queue("FULL", |queue| queue.max_depth = 0);
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send("FULL@QM2", "first", true);
    partner.send("NOT.YET@QM2", "second", true);
    partner.send("Q@QM2", "third", true);
    harness.until_state(ChannelState::Paused);
    assert_eq!(harness.bodies("Q"), [""; 0]);
    harness.queue("FULL", |queue| queue.max_depth = 5);
    partner.accepted(1);
    assert_eq!(harness.bodies("FULL"), ["first"]);
    harness.until_state(ChannelState::Paused);
    harness.queue("NOT.YET", |_| {});
    partner.accepted(2);
    assert_eq!((harness.bodies("NOT.YET"), harness.bodies("Q")), (vec!["second".to_owned()], vec!["third".to_owned()]));
    assert_eq!(harness.bodies("SYSTEM.DEAD.LETTER.QUEUE"), [""; 0]);
}

#[test]
fn a_partner_whose_messages_can_t_be_put_is_not_read_beyond_what_may_lie_in_memory() {
    const COUNT: usize = 40;
    const BYTES: usize = 3 << 20;
    let harness = Harness::new();
    harness.queue("OTHER", |_| {});
    harness.queue("Q", |queue| queue.max_depth = 0);
    harness.channel(|channel| {
        channel.message_retries = u32::MAX;
        channel.message_retry_interval = Duration::from_millis(1);
    });
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    let sending = std::thread::spawn(move || {
        let body = "x".repeat(BYTES);
        (0..COUNT).for_each(|_| partner.send("Q@QM2", &body, true));
        partner
    });
    let is_full = |status: &ChannelStatus| status.current_messages as usize * BYTES >= CREDIT_BYTES;
    harness.until("the line is full", |harness| harness.status("QM1").filter(is_full));
    // Each dispatcher has many turns in which it could read more.
    for manager in ["QM3", "QM4"] {
        let mut other = Partner::connect(&harness);
        other.greet(&SenderGreeting { manager: manager.into(), ..greeting(0, 0) }).unwrap();
        for _ in 0..200 {
            other.send("OTHER@QM2", "", true);
            other.accepted(1);
        }
    }
    let held = harness.status("QM1").unwrap().current_messages as usize * BYTES;
    assert!(held < CREDIT_BYTES + 2 * BYTES, "{held} bytes lie in memory");
    harness.queue("Q", |queue| queue.max_depth = COUNT as u32);
    let mut partner = sending.join().unwrap();
    partner.accepted(COUNT);
    assert_eq!(harness.messages("Q").len(), COUNT);
}

#[test]
fn tries_come_before_the_dead_letter_queue_and_that_before_the_end() {
    let harness = Harness::new();
    harness.channel(|channel| {
        channel.message_retries = 2;
        channel.message_retry_interval = Duration::from_millis(1);
    });
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send("NOWHERE@QM2", "buried", true);
    partner.accepted(1);
    assert_eq!(harness.bodies("SYSTEM.DEAD.LETTER.QUEUE"), ["buried"]);
    harness.queue("SYSTEM.DEAD.LETTER.QUEUE", |queue| queue.put_enabled = false);
    partner.send("NOWHERE@QM2", "unburied", true);
    let text = partner.detached().description.unwrap();
    assert!(text.starts_with("2085") && text.contains("dead-letter queue: 2051"), "{text}");
    assert_eq!(harness.status("QM1").unwrap().reason, text);
}

#[test]
fn the_dead_letters_of_one_channel_s_user_leave_room_for_those_of_another() {
    const DEAD_LETTERS: &str = "SYSTEM.DEAD.LETTER.QUEUE";
    let harness = Harness::new();
    harness.queue(DEAD_LETTERS, |queue| queue.max_depth = 80);
    harness.channel(|channel| channel.user = Some("ann".into()));
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    for number in 0..20 {
        partner.send("NOWHERE@QM2", &number.to_string(), true);
    }
    partner.accepted(20);
    partner.send("NOWHERE@QM2", "beyond", true);
    let text = partner.detached().description.unwrap();
    assert!(
        text.starts_with("2085") && text.contains("dead-letter queue: 2053 MQRC_Q_FULL cause=user-share"),
        "{text}"
    );
    assert_eq!(harness.messages(DEAD_LETTERS).len(), 20);
    // It stays with its sender, which goes on once another user's messages are brought, or there is room.
    harness.channel(|channel| channel.user = Some("bob".into()));
    let mut partner = Partner::connect(&harness);
    assert_eq!(partner.greet(&greeting(20, 1)).unwrap().sequence, 20);
    partner.send("NOWHERE@QM2", "beyond", true);
    partner.accepted(1);
    assert_eq!(harness.messages(DEAD_LETTERS).len(), 21);
}

#[test]
fn without_a_dead_letter_queue_the_link_ends_and_the_message_stays_with_its_sender() {
    let harness = Harness::new();
    harness.channel(|channel| channel.use_dead_letter_queue = false);
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send("NOWHERE@QM2", "gone", false);
    partner.send_all(["one", "two"]);
    partner.accepted(2);
    partner.send("NOWHERE@QM2", "three", true);
    partner.send_all(["four"]);
    assert!(partner.detached().description.unwrap().starts_with("2085"));
    assert_eq!(harness.status("QM1").unwrap().state, ChannelState::Inactive);
    let mut partner = Partner::connect(&harness);
    assert_eq!(partner.greet(&greeting(2, 2)).unwrap().sequence, 2);
    harness.queue("NOWHERE", |_| {});
    partner.send("NOWHERE@QM2", "three", true);
    partner.send_all(["four"]);
    partner.accepted(2);
    assert_eq!((harness.bodies("NOWHERE"), harness.bodies("Q")), (strings(["three"]), strings(["one", "two", "four"])));
    assert_eq!(harness.bodies("SYSTEM.DEAD.LETTER.QUEUE"), [""; 0]);
}

fn strings<const N: usize>(all: [&str; N]) -> Vec<String> {
    all.map(str::to_owned).to_vec()
}

#[test]
fn what_has_expired_is_counted_and_put_nowhere() {
    let harness = Harness::new();
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send_message(on_its_way("Q@QM2", data("late"), true, Some(0)), true);
    partner.send_all(["one"]);
    partner.accepted(2);
    assert_eq!((harness.bodies("Q"), harness.bodies("SYSTEM.DEAD.LETTER.QUEUE")), (strings(["one"]), strings([])));
}

#[test]
fn a_message_for_another_queue_manager_goes_on_with_a_header_again() {
    let harness = Harness::new();
    harness.queue("QM3", |queue| queue.usage = Usage::Transmission);
    harness.define(|definitions| {
        let remote = |name: Option<&str>, manager: &str| RemoteQueue {
            remote_name: name.map(str::to_owned),
            remote_manager: Some(manager.into()),
            transmission_queue: Some("QM3".into()),
            ..RemoteQueue::default()
        };
        definitions.remotes.insert("FAR".into(), remote(Some("THERE"), "QM4"));
        definitions.remotes.insert("ALIAS".into(), remote(None, "QM5"));
        definitions.remotes.insert("ME".into(), RemoteQueue { transmission_queue: None, ..remote(None, "QM2") });
    });
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    for to in ["R@QM3", "FAR@QM2", "R@ALIAS", "Q@ME"] {
        partner.send(to, to, true);
    }
    partner.accepted(4);
    let onward = harness.messages("QM3");
    let to = |payload: &Payload| {
        let sections = Sections::scan(payload).unwrap();
        crate::channel::transmission::destination(payload, &sections).unwrap().to_string()
    };
    assert_eq!(onward.iter().map(to).collect::<Vec<_>>(), ["R@QM3", "THERE@QM4", "R@QM5"]);
    assert_eq!(onward.iter().map(text).collect::<Vec<_>>(), ["R@QM3", "FAR@QM2", "R@ALIAS"]);
    assert_eq!(harness.bodies("Q"), ["Q@ME"]);
}

#[test]
fn a_reply_finds_a_dynamic_queue() {
    let harness = Harness::new();
    let name = {
        let state = &mut *harness.running().manager().lock();
        let wish = crate::front::link::QueueWish::default();
        let who = crate::asker::Who::channel("app");
        state.define_dynamic(who, &wish, &mut crate::random::Random::counting()).unwrap().name
    };
    let mut partner = Partner::connect(&harness);
    partner.greet(&greeting(0, 0)).unwrap();
    partner.send(&format!("{name}@QM2"), "reply", true);
    partner.accepted(1);
    assert_eq!(harness.bodies(&name), ["reply"]);
}

#[test]
fn a_stopped_channel_ends_after_what_has_come_and_takes_nobody_until_it_is_started() {
    for force in [false, true] {
        let harness = Harness::new();
        let mut partner = Partner::connect(&harness);
        partner.greet(&greeting(0, 0)).unwrap();
        partner.send_all(["one"]);
        partner.accepted(1);
        let place = {
            let state = harness.running().manager().lock();
            state.outbound.channels.get(&InstanceId::with(CHANNEL, "QM1")).unwrap().place.unwrap()
        };
        let notice = ChannelNotice::Stop { peer: place.peer, generation: place.generation, force };
        harness.running().manager().workers.mailboxes.get(place.dispatcher).unwrap().post(Notice::Channel(notice));
        assert!(partner.detached().description.unwrap().contains("cause=stopped"));
        assert_eq!(harness.status("QM1").unwrap().state, ChannelState::Stopped);
        let refused = Partner::connect(&harness).greet(&greeting(1, 0)).unwrap_err();
        assert!(refused.description.unwrap().contains("2537"));
        {
            // START CHANNEL
            let state = &mut *harness.running().manager().lock();
            let instance = state.outbound.channels.get_mut(&InstanceId::with(CHANNEL, "QM1")).unwrap();
            (instance.status.stop_requested, instance.status.state) = (false, ChannelState::Inactive);
        }
        assert_eq!(Partner::connect(&harness).greet(&greeting(1, 0)).unwrap().sequence, 1);
    }
}

#[test]
fn a_partner_that_is_not_ours_names_channel_and_queue_and_hears_of_each_message() {
    let harness = Harness::new();
    harness.channel(|channel| channel.use_dead_letter_queue = false);
    let mut partner = Partner::connect(&harness);
    partner.attach(AttachRequest::sender("to Q", format!("{CHANNEL}::Q"))).unwrap();
    partner.send_message(data("plain"), true);
    partner.send("NOWHERE@QM2", "with a header", true);
    partner.send_message(data("after"), true);
    // A refusal waits for no disk, so it may overtake.
    let (accepted, refused): (Vec<_>, Vec<_>) =
        (0..3).map(|_| partner.outcome()).partition(|outcome| *outcome == Some(DeliveryState::Accepted));
    let (2, [Some(DeliveryState::Rejected(Some(error)))]) = (accepted.len(), &refused[..]) else {
        panic!("{refused:?}")
    };
    assert!(error.description.as_ref().unwrap().starts_with("2085"));
    assert_eq!(harness.bodies("Q"), ["plain", "after"]);
    let status = harness.status("partner").unwrap();
    assert_eq!((status.exactly_once, status.state), (false, ChannelState::Running));
    drop(partner);
    harness.until("it is forgotten", |harness| harness.status("partner").is_none().then_some(()));
    let mut partner = Partner::connect(&harness);
    let refused = partner.attach(AttachRequest::sender("to none", format!("{CHANNEL}::NONE"))).unwrap_err();
    assert!(refused.description.unwrap().starts_with("2085"));
}

#[test]
fn a_channel_with_a_cipher_spec_is_not_for_connections_without_tls() {
    let harness = Harness::new();
    harness.channel(|channel| channel.cipher_spec = Some("TLS_AES_256_GCM_SHA384".into()));
    let refused = Partner::connect(&harness).greet(&greeting(0, 0)).unwrap_err();
    assert!(refused.description.as_ref().unwrap().contains("2400"), "{refused:?}");
}
