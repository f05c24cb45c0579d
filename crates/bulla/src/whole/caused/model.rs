//! Random records, users, messages with every kind of report and label, dead letters, replays, channels and restarts,
//! against a model that answers one question: who caused this put on that queue, and might they?
//!
//! A failure names the seed and the step. `BULLA_SEED=n` runs that seed alone, `BULLA_STEPS=n` so many steps. Most of
//! the time goes into syncs of the journal: many steps end sooner with `TMPDIR=/dev/shm`.

use super::rings::Rings;
use super::{PASSWORD, allow_records, by_string, by_symbol, client, hidden, label_for};
use crate::authority::{ANONYMOUS, Rights, SIGNED_IN};
use crate::catalog::system_queues::DEAD_LETTER_QUEUE;
use crate::catalog::{AliasQueue, ChannelDefinition, ChannelKind, LocalQueue};
use crate::channel::transmission::{Destination, TransmissionHeader};
use crate::mqsc::reply::Outcome;
use crate::whole::harness::{Harness, PATIENCE, seeds_and_steps};
use crate::{admin, envelope};
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::{MessageId, Properties, Target};
use bulla_amqp::{
    AttachRequest, BodyForm, DeliveryState, Header, LinkId, MessageBody, MessageParts, Payload, Sections, Value,
};
use bulla_client::Client;
use bulla_queue::Message;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const SEEDS: u64 = 2;
const STEPS: u64 = 700;
/// How long the queues may take to show what the model says: nothing here takes longer, and a failure should not take a
/// minute.
const AGREES_WITHIN: Duration = Duration::from_secs(10);
/// Names that are put on: local queues, an alias of the first, and one that is nowhere.
const NAMES: [&str; 7] = ["A", "B", "INIT", "SECRET", DEAD_LETTER_QUEUE, ALIAS, "NOWHERE"];
const QUEUES: [&str; 5] = ["A", "B", "INIT", "SECRET", DEAD_LETTER_QUEUE];
const ALIAS: &str = "A.ALIAS";
const DEAD: usize = 4;
const CHANNEL: &str = "IN";
/// In whose name the channel puts.
const BORDER: &str = "border";
const CLIENTS: [&str; 3] = ["alice", "mallory", ANONYMOUS];
const ENTITIES: [&str; 5] = ["alice", "mallory", ANONYMOUS, BORDER, SIGNED_IN];
const EVERY_NAME: &str = "**";
/// The reader, who may get from every queue.
const READER: &str = "reader";
/// Where more than these lie, most steps get one from the longest queue.
const MESSAGES_MANY: usize = 40;

const NOT_AUTHORIZED: u64 = 2035;
const UNKNOWN_OBJECT: u64 = 2085;
const EXPIRED: u64 = 258;
const ARRIVED: u64 = 259;
const DELIVERED: u64 = 260;
/// The properties that ask for reports, with the values that ask for all data, so that a report shows what it is about.
const ASKS: [(&str, i32); 4] = [
    ("JMS_IBM_Report_COA", 1792),
    ("JMS_IBM_Report_COD", 14336),
    ("JMS_IBM_Report_Exception", 117_440_512),
    ("JMS_IBM_Report_Expiration", 14_680_064),
];
const COA: usize = 0;
const COD: usize = 1;
const EXCEPTION: usize = 2;
const EXPIRATION: usize = 3;

pub(super) struct Random(fastrand::Rng);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What a queue shows of a message: its number, what it reports (0 for a message itself), the queue that its label
/// names, and who put it.
type Shown = (u64, u64, Option<String>, Option<String>);

/// A message as the model knows it.
#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    feedback: u64,
    label: Option<String>,
    user: &'static str,
    reply_to: Option<&'static str>,
    asks: [bool; 4],
    /// The queue manager remembers that it may ask, or has to look.
    marked: bool,
}

impl Entry {
    fn shown(&self) -> Shown {
        let user = (self.user != ANONYMOUS).then(|| self.user.to_owned());
        (self.number, self.feedback, self.label.clone(), user)
    }

    fn asks_for_any(&self) -> bool {
        self.asks.contains(&true)
    }
}

#[derive(Debug, Default)]
struct Model {
    /// Whether an entity may put on a name, where a record says so or says that it may not.
    records: BTreeMap<(&'static str, &'static str), bool>,
    queues: [Vec<Entry>; QUEUES.len()],
    numbers: u64,
}

impl Model {
    /// The rule: a user's own most particular record, and that of all who have signed in.
    fn might(&self, user: &str, name: &str) -> bool {
        let own = |entity: &str| {
            let record = |profile: &str| self.records.iter().find(|((of, on), _)| *of == entity && *on == profile);
            record(name).or_else(|| record(EVERY_NAME)).is_some_and(|(_, may)| *may)
        };
        own(user) || user != ANONYMOUS && own(SIGNED_IN)
    }

    fn might_return(&self, user: &str, queue: &str) -> bool {
        self.might(user, queue) || queue == QUEUES[0] && self.might(user, ALIAS)
    }

    fn resolve(name: &str) -> Option<usize> {
        let name = if name == ALIAS { QUEUES[0] } else { name };
        QUEUES.iter().position(|queue| *queue == name)
    }

    /// How many messages there are.
    fn lie(&self) -> usize {
        self.queues.iter().map(Vec::len).sum()
    }

    /// The queue with the most of them.
    fn longest(&self) -> usize {
        (0..QUEUES.len()).max_by_key(|at| self.queues[*at].len()).unwrap()
    }

    fn place(&mut self, queue: usize, entry: Entry) {
        self.queues[queue].push(entry);
    }

    /// A report is put by the rights of the user who put the message, or it is not put.
    fn report(&mut self, about: &Entry, fact: usize, feedback: u64) {
        let Some(to) = about.reply_to.filter(|_| about.asks[fact]) else { return };
        if !self.might(about.user, to) {
            return;
        }
        let report = Entry { feedback, label: None, reply_to: None, asks: [false; 4], marked: false, ..about.clone() };
        match Self::resolve(to) {
            Some(queue) => self.place(queue, report),
            None => self.place(DEAD, Entry { label: Some(to.to_owned()), ..report }),
        }
    }

    /// A client puts. Whether it is accepted.
    fn put(&mut self, name: &str, entry: Entry) -> bool {
        let reports_too = |to: &str| self.might(entry.user, to);
        let asks = entry.asks_for_any();
        let may_ask = !asks || entry.reply_to.is_some_and(reports_too);
        let Some(queue) = Self::resolve(name).filter(|_| self.might(entry.user, name) && may_ask) else { return false };
        let entry = Entry { marked: asks, ..entry };
        self.place(queue, entry.clone());
        self.report(&entry, COA, ARRIVED);
        true
    }

    /// The channel brings a message: what it may not put is a dead letter.
    fn bring(&mut self, name: &str, entry: Entry) {
        let asks = entry.asks_for_any() && entry.reply_to.is_some();
        let way = match Self::resolve(name) {
            _ if !self.might(BORDER, name) => Err(NOT_AUTHORIZED),
            None => Err(UNKNOWN_OBJECT),
            Some(queue) => Ok(queue),
        };
        let told = way.and_then(|queue| match entry.reply_to.filter(|_| asks) {
            Some(to) if !self.might(BORDER, to) => Err(NOT_AUTHORIZED),
            _ => Ok(queue),
        });
        match told {
            Ok(queue) => {
                let entry = Entry { marked: asks, ..entry };
                self.place(queue, entry.clone());
                self.report(&entry, COA, ARRIVED);
            }
            Err(reason) => {
                let was_for = way.map_or(name, |queue| QUEUES[queue]);
                let entry = Entry { label: Some(was_for.to_owned()), marked: false, ..entry };
                self.place(DEAD, entry.clone());
                self.report(&entry, EXCEPTION, reason);
            }
        }
    }

    fn take(&mut self, queue: usize, number: u64, feedback: u64) -> Entry {
        let is_it = |entry: &Entry| (entry.number, entry.feedback) == (number, feedback);
        let place = self.queues[queue].iter().position(is_it);
        self.queues[queue].remove(place.unwrap_or_else(|| panic!("{} has no {number}, {feedback}", QUEUES[queue])))
    }

    fn accepted(&mut self, queue: usize, number: u64, feedback: u64) {
        let entry = self.take(queue, number, feedback);
        if entry.marked {
            self.report(&entry, COD, DELIVERED);
        }
    }

    fn rejected(&mut self, queue: usize, number: u64, feedback: u64) {
        let entry = self.take(queue, number, feedback);
        self.place(DEAD, Entry { label: Some(QUEUES[queue].to_owned()), marked: false, ..entry });
    }

    /// A dead letter goes back where its label says, for the user who put it.
    fn replay(&mut self, number: u64, feedback: u64) {
        let entry = self.take(DEAD, number, feedback);
        let back = entry.label.as_deref().and_then(|label| QUEUES.iter().position(|queue| *queue == label));
        match back.filter(|queue| self.might_return(entry.user, QUEUES[*queue])) {
            Some(queue) => self.place(queue, Entry { label: None, marked: false, ..entry }),
            None => self.place(DEAD, entry),
        }
    }

    fn replay_all(&mut self) {
        for entry in self.queues[DEAD].clone() {
            self.replay(entry.number, entry.feedback);
        }
    }

    fn restarted(&mut self) {
        // Of messages found in the journal it is not known whether they ask: each is looked at.
        self.queues.iter_mut().flatten().for_each(|entry| entry.marked = true);
    }

    fn shown(&self, queue: usize) -> Vec<Shown> {
        let mut shown: Vec<Shown> = self.queues[queue].iter().map(Entry::shown).collect();
        shown.sort();
        shown
    }
}

/// Number and feedback of a message that was got or lies on a queue.
fn told_by(payload: &Payload) -> (u64, u64) {
    let sections = Sections::scan(payload).unwrap();
    let BodyForm::Data(range) = sections.body.clone() else { panic!("{:?}", sections.body) };
    let number = String::from_utf8(payload.bytes_at(range).into_owned()).unwrap().parse().unwrap();
    let said = Sections::decode_map(payload, sections.application_properties.as_ref()).unwrap();
    let feedback = said.iter().find(|(key, _)| key.as_str() == Some("JMS_IBM_Feedback"));
    (number, feedback.and_then(|(_, value)| value.as_u64()).unwrap_or(0))
}

struct Run {
    harness: Harness,
    model: Model,
    random: Random,
    clients: Vec<(Client, LinkId)>,
    channel: Option<(Client, LinkId)>,
    reader: Option<(Client, Vec<LinkId>)>,
    rings: Rings,
}

impl Run {
    fn new(seed: u64) -> Self {
        let any = LocalQueue { max_depth: 100_000, ..LocalQueue::default() };
        let harness = Harness::new(&QUEUES.map(|name| (name, any.clone())));
        for user in ["alice", "mallory", READER] {
            harness.running().manager().sign_ins.users.add(user, PASSWORD, crate::users::ITERATIONS_MIN).unwrap();
        }
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let mut model = Model::default();
        for entity in ENTITIES {
            for profile in NAMES {
                model.records.insert((entity, profile), entity != SIGNED_IN && random.below(3) > 0);
            }
        }
        let rings = Rings::new(&harness);
        let mut run = Self { harness, model, random, clients: Vec::new(), channel: None, reader: None, rings };
        run.begin();
        run
    }

    /// Defines what there is, and connects all users.
    fn begin(&mut self) {
        {
            let state = &mut *self.harness.running().manager().lock();
            let channel = ChannelDefinition {
                user: Some(BORDER.into()),
                message_retries: 0,
                ..ChannelDefinition::new(ChannelKind::Receiver)
            };
            state.definitions.channels.insert(CHANNEL.into(), channel);
            let alias = AliasQueue { target: QUEUES[0].into(), ..AliasQueue::default() };
            state.definitions.aliases.insert(ALIAS.into(), alias);
        }
        self.rings.define(&self.harness);
        self.set_records();
        let relay = || AttachRequest { target: Some(Target::default()), ..AttachRequest::sender("relay", "") };
        let connect = |harness: &Harness, user: &str| client(harness, user);
        self.clients = CLIENTS
            .iter()
            .map(|user| {
                let mut client = connect(&self.harness, user);
                let link = client.open(relay()).unwrap().link;
                (client, link)
            })
            .collect();
        let mut partner = client(&self.harness, ANONYMOUS);
        let link = partner.sender(&format!("{CHANNEL}::{}", QUEUES[0]), false).unwrap().link;
        self.channel = Some((partner, link));
        let mut reader = client(&self.harness, READER);
        let links = QUEUES.iter().map(|queue| reader.receiver(queue, false, false).unwrap().link).collect();
        self.reader = Some((reader, links));
    }

    fn set_records(&self) {
        let put = crate::authority::Right::Put.alone();
        let records = self.model.records.iter();
        let records: Vec<_> = records
            .map(|((entity, profile), may)| (*entity, *profile, if *may { put } else { Rights::NONE }))
            .chain([(READER, EVERY_NAME, crate::authority::Right::Get.alone())])
            .collect();
        allow_records(&self.harness, &records);
        self.rings.allow(&self.harness);
    }

    fn fresh(&mut self, user: &'static str) -> Entry {
        self.model.numbers += 1;
        let reply_to = (self.random.below(8) > 0).then(|| self.random.one_of(&NAMES));
        let is_asking = self.random.below(4) > 0;
        let asks = [0; 4].map(|_| is_asking && self.random.below(2) > 0);
        Entry { number: self.model.numbers, feedback: 0, label: None, user, reply_to, asks, marked: false }
    }

    /// The message, with a forged label as often as not, and one of the ways to ask.
    fn message(&mut self, entry: &Entry, to: &str, ttl_ms: Option<u32>) -> Payload {
        let (mut properties, mut annotations, mut application_properties) = (Vec::new(), Vec::new(), Vec::new());
        Properties {
            message_id: Some(MessageId::Ulong(entry.number)),
            to: Some(to.into()),
            reply_to: entry.reply_to.map(str::to_owned),
            ..Properties::default()
        }
        .encode_section(&mut properties);
        let mut asked: Vec<(Value, Value)> = Vec::new();
        for (at, ask) in ASKS.into_iter().enumerate().filter(|(at, _)| entry.asks[*at]) {
            match self.random.below(3) {
                0 => asked.push(by_string(ask)),
                1 => asked.push(by_symbol(ask)),
                // Only once: a map has no two keys that are the same.
                _ if at == COA => asked.extend(hidden(ask)),
                _ => asked.push(by_string(ask)),
            }
        }
        encode_map_section(0x74, &asked, &mut application_properties);
        if self.random.below(2) > 0 {
            encode_map_section(0x72, &label_for(self.random.one_of(&QUEUES)), &mut annotations);
        }
        MessageParts {
            header: Some(Header { durable: true, ttl_ms, ..Header::default() }),
            message_annotations: annotations.into(),
            properties: properties.into(),
            application_properties: application_properties.into(),
            body: MessageBody::Data(Payload::from(Bytes::from(entry.number.to_string()))),
            ..MessageParts::default()
        }
        .build()
    }

    fn step(&mut self) {
        // Each step looks at all that lies there: so the queues are kept short, whatever reports and dead letters add.
        match self.random.below(if self.model.lie() > MESSAGES_MANY { 400 } else { 100 }) {
            0..=39 => self.put(),
            40..=57 => self.bring(),
            58..=77 | 100.. => self.get(),
            78..=86 => self.replay(),
            87..=89 => self.rings.step(&self.harness, &mut self.random),
            90..=98 => {
                let entity = self.random.one_of(&ENTITIES);
                let profile = if self.random.below(8) == 0 { EVERY_NAME } else { self.random.one_of(&NAMES) };
                match self.random.below(4) {
                    0 => drop(self.model.records.remove(&(entity, profile))),
                    more => drop(self.model.records.insert((entity, profile), more > 1)),
                }
                self.set_records();
            }
            _ => match self.random.below(8) {
                0 => self.restart(),
                1 | 2 => self.expire(),
                _ => {}
            },
        }
    }

    fn put(&mut self) {
        let seat = self.random.below(CLIENTS.len());
        let name = self.random.one_of(&NAMES);
        let entry = self.fresh(CLIENTS[seat]);
        let message = self.message(&entry, name, None);
        let (client, relay) = &mut self.clients[seat];
        let result = match self.random.below(3) {
            // A link of its own, whose right is asked when it is attached.
            0 => client.open(AttachRequest::sender("one", name)).and_then(|attached| {
                let result = client.put(attached.link, message, PATIENCE);
                client.detach(attached.link, true).and(result)
            }),
            1 => {
                let unit = client.begin().unwrap();
                let result = client.put_in(&unit, *relay, message, PATIENCE);
                client.end(unit, true, PATIENCE).and(result)
            }
            _ => client.put(*relay, message, PATIENCE),
        };
        let accepted = self.model.put(name, entry.clone());
        assert_eq!(result.is_ok(), accepted, "{entry:?} on {name}: {result:?}");
    }

    fn bring(&mut self) {
        let name = self.random.one_of(&NAMES);
        let entry = self.fresh(BORDER);
        let body = envelope::chunks_of(self.message(&entry, name, None));
        let message = Message::new(true, body);
        let header = TransmissionHeader::new(Destination { queue: name.into(), manager: "QM1".into() });
        let (partner, link) = self.channel.as_mut().unwrap();
        partner.put(*link, envelope::payload_of(&header.put_on(message).body), PATIENCE).unwrap();
        self.model.bring(name, entry);
    }

    fn get(&mut self) {
        let queue = match self.model.lie() > MESSAGES_MANY {
            true => self.model.longest(),
            false => self.random.below(QUEUES.len()),
        };
        let (reader, links) = self.reader.as_mut().unwrap();
        let delivery = reader.get(links[queue], None).unwrap();
        let Some(delivery) = delivery else {
            assert!(self.model.queues[queue].is_empty(), "{} has {:?}", QUEUES[queue], self.model.queues[queue]);
            return;
        };
        let (number, feedback) = told_by(&delivery.payload);
        // What lies on the dead-letter queue already goes nowhere when it is rejected.
        let rejects = queue != DEAD && self.random.below(2) > 0;
        let outcome = if rejects { DeliveryState::Rejected(None) } else { DeliveryState::Accepted };
        if self.random.below(3) == 0 {
            let unit = reader.begin().unwrap();
            reader.settle_in(&unit, &delivery, outcome).unwrap();
            reader.end(unit, true, PATIENCE).unwrap();
        } else {
            reader.settle(&delivery, outcome).unwrap();
        }
        match rejects {
            true => self.model.rejected(queue, number, feedback),
            false => self.model.accepted(queue, number, feedback),
        }
    }

    fn replay(&mut self) {
        let command = |words: &str| format!("REPLAY QLOCAL({DEAD_LETTER_QUEUE}) {words}");
        let dead = self.found(DEAD);
        let text = match self.random.below(4) {
            0 => {
                self.model.replay_all();
                command("")
            }
            _ if dead.is_empty() => return,
            kind => {
                let (id, (number, feedback, ..)) = dead[self.random.below(dead.len())].clone();
                let to = self.random.below(QUEUES.len());
                match kind {
                    1 => {
                        self.model.replay(number, feedback);
                        command(&format!("MSGNUM({id})"))
                    }
                    2 if to != DEAD => {
                        let keeps = self.random.below(2) > 0;
                        let mut entry = self.model.take(DEAD, number, feedback);
                        entry.label = entry.label.filter(|_| keeps);
                        self.model.place(to, Entry { marked: false, ..entry });
                        let header = if keeps { "YES" } else { "NO" };
                        command(&format!("MSGNUM({id}) TO({}) HEADER({header})", QUEUES[to]))
                    }
                    _ => {
                        drop(self.model.take(DEAD, number, feedback));
                        command(&format!("MSGNUM({id}) DISCARD"))
                    }
                }
            }
        };
        let replies = admin::request(self.harness.path(), &text).unwrap();
        assert!(matches!(replies[0].outcome, Outcome::Done { .. }), "{text}: {:?}", replies[0].outcome);
    }

    fn expire(&mut self) {
        let name = QUEUES[self.random.below(2)];
        let entry = self.fresh(CLIENTS[0]);
        let message = self.message(&entry, name, Some(1));
        let (client, relay) = &mut self.clients[0];
        let result = client.put(*relay, message, PATIENCE);
        let accepted = self.model.put(name, entry.clone());
        assert_eq!(result.is_ok(), accepted, "{entry:?} on {name}: {result:?}");
        if accepted {
            let queue = Model::resolve(name).unwrap();
            let gone = self.model.take(queue, entry.number, 0);
            if gone.marked {
                self.model.report(&gone, EXPIRATION, EXPIRED);
            }
        }
    }

    fn restart(&mut self) {
        (self.channel, self.reader) = (None, None);
        self.clients.clear();
        self.harness.start();
        self.model.restarted();
        self.begin();
    }

    /// What lies on a queue, with its numbers there.
    fn found(&self, queue: usize) -> Vec<(u64, Shown)> {
        let state = &mut *self.harness.running().manager().lock();
        let id = state.store.queue(QUEUES[queue]).unwrap();
        let (mut shown, mut after) = (Vec::new(), None);
        while let Some(found) = state.store.browse_next(id, after, 0) {
            let payload = envelope::payload_of(&state.store.body(found.id).unwrap());
            let (number, feedback) = told_by(&payload);
            let user = found.user.as_ref().map(|user| user.as_str().to_owned());
            shown.push((found.id.0, (number, feedback, envelope::labelled_queue(&payload), user)));
            after = Some(found.place);
        }
        shown
    }

    /// The queues hold what the model says. What should not be there is told with who caused it, and whether they
    /// might.
    #[track_caller]
    fn agree(&self, what: &str) {
        let deadline = Instant::now() + AGREES_WITHIN;
        for (at, queue) in QUEUES.iter().enumerate() {
            loop {
                let mut shown: Vec<Shown> = self.found(at).into_iter().map(|(_, shown)| shown).collect();
                shown.sort();
                let wanted = self.model.shown(at);
                let depth = self.harness.depth(queue) as usize;
                if shown == wanted && depth == wanted.len() {
                    break;
                }
                if Instant::now() < deadline {
                    std::thread::yield_now();
                    continue;
                }
                let extra: Vec<String> = (shown.iter().filter(|shown| !wanted.contains(shown)))
                    .map(|shown| {
                        let user = shown.3.as_deref().unwrap_or(ANONYMOUS);
                        let might = if self.model.might_return(user, queue) { "might" } else { "might not" };
                        format!("{user} caused {shown:?} and {might}")
                    })
                    .collect();
                let missing: Vec<_> = wanted.iter().filter(|wanted| !shown.contains(wanted)).collect();
                panic!("{what}: on {queue} is too much {extra:#?}, and is missing {missing:#?}");
            }
        }
    }
}

#[test]
fn nothing_is_put_that_its_causer_might_not_put() {
    let (seeds, steps) = seeds_and_steps(SEEDS, STEPS);
    for seed in seeds {
        eprintln!("seed {seed}, {steps} steps");
        let mut run = Run::new(seed);
        for step in 0..steps {
            run.step();
            run.agree(&format!("seed {seed}, step {step}"));
        }
        run.restart();
        run.agree(&format!("seed {seed}, started again"));
        // Before the queue manager, which would wait for them.
        (run.channel, run.reader) = (None, None);
        run.clients.clear();
    }
}
