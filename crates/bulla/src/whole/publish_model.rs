//! Random publications, alone and in units of work, while subscriptions come and go, connections are lost and the queue
//! manager is started again or killed: after each step every subscription's queue is what a model says, so a
//! publication is on all queues that it matches or on none. What is published again under its idempotency key changes
//! nothing.
//!
//! A failure names the seed and the step. `BULLA_SEED=n` runs that seed alone, `BULLA_STEPS=n` so many steps.

use crate::authority::{ANONYMOUS, Entity, ObjectType, Profile, RecordKey};
use crate::catalog::system_queues::DEFAULT_MODEL;
use crate::catalog::{BASE_TOPIC, Change, Full, LocalQueue, Subscription};
use crate::reason;
use crate::topics::MANAGED_PREFIX;
use crate::whole::harness::{Harness, PATIENCE, Shown, keyed, message, number, refused, seeds_and_steps};
use bulla_amqp::types::{Source, Target};
use bulla_amqp::{AttachRequest, Delivery, DeliveryState, LinkId, Symbol, Value};
use bulla_client::{Client, Unit};
use hashbrown::HashSet;
use std::collections::BTreeMap;

const SEEDS: u64 = 4;
const STEPS: u64 = 2_000;
const CLIENTS: usize = 4;
const UNITS_MAX: usize = 2;
const TOPICS: [&str; 4] = ["a", "a/b", "a/c", "b/b"];
/// What can be subscribed to: a topic, and the one priority that is wanted, if not all.
const WANTS: [(&str, Option<u8>); 7] =
    [("a/b", None), ("a/+", None), ("a/#", None), ("#", None), ("#/b", Some(8)), ("b/b", None), ("a/#", Some(0))];
/// An administrator's subscription to everything, and the queue that it has.
const ALL: &str = "EVERYTHING";
const ALL_DEPTH: usize = 40;
/// Applications' subscriptions, by name where they have one.
const SLOTS: [Slot; 6] = [
    Slot { name: Some("first"), durable: true, shared: false },
    Slot { name: Some("second"), durable: true, shared: false },
    Slot { name: Some("pool"), durable: true, shared: true },
    Slot { name: Some("crowd"), durable: false, shared: true },
    Slot { name: None, durable: false, shared: false },
    Slot { name: None, durable: false, shared: false },
];
const DEPTH: usize = 10;

#[derive(Clone, Copy)]
struct Slot {
    name: Option<&'static str>,
    durable: bool,
    shared: bool,
}

struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }
}

/// Whether a pattern fits a topic, by its definition: every way to divide the levels.
fn fits(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern.split_first(), topic.split_first()) {
        (None, _) => topic.is_empty(),
        (Some((&"#", after)), _) => (0..=topic.len()).any(|skip| fits(after, &topic[skip..])),
        (Some((level, after)), Some((first, rest))) => (*level == "+" || level == first) && fits(after, rest),
        (Some(_), None) => false,
    }
}

/// Names a subscription: another one of the same name has another number.
type Id = u64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    priority: u8,
    persistent: bool,
    failures: u32,
    locked: bool,
}

#[derive(Clone, Debug)]
struct Sub {
    /// None of the administrator's.
    slot: Option<usize>,
    wants: usize,
    queue: String,
    depth_max: usize,
    /// Who gets from it: the seat, and its link.
    holders: Vec<(usize, LinkId)>,
    /// In order of delivery: by priority, then by arrival.
    entries: BTreeMap<(u8, u64), Entry>,
}

impl Sub {
    fn is_durable(&self) -> bool {
        self.slot.is_none_or(|slot| SLOTS[slot].durable)
    }

    fn is_wanted(&self, topic: &str, entry: &Entry) -> bool {
        let (pattern, priority) = if self.slot.is_none() { ("#", None) } else { WANTS[self.wants] };
        let levels = |text: &'static str| text.split('/').collect::<Vec<_>>();
        let topic: Vec<&str> = topic.split('/').collect();
        fits(&levels(pattern), &topic) && priority.is_none_or(|wanted| wanted == entry.priority)
    }

    fn is_full(&self, more: usize) -> bool {
        self.entries.len() + more >= self.depth_max
    }
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Accept,
    Release,
    Fail,
}

#[derive(Debug, Default)]
struct ModelUnit {
    /// Copies, and whether the others are put where this one can't be.
    puts: Vec<(Id, Entry, bool)>,
    gets: Vec<(Id, u64, Outcome)>,
}

impl ModelUnit {
    fn is_kept(&self) -> bool {
        self.puts.iter().any(|(_, entry, _)| entry.persistent)
    }
}

#[derive(Clone, Debug, Default)]
struct Model {
    subs: BTreeMap<Id, Sub>,
    last: Id,
    arrivals: u64,
    published: u64,
}

impl Model {
    fn entry(&mut self, random: &mut Random) -> Entry {
        self.published += 1;
        let (priority, persistent) = (random.below(3) as u8 * 4, random.below(4) > 0);
        Entry { number: self.published, priority, persistent, failures: 0, locked: false }
    }

    /// Where a publication goes, and whether the others get it where that one can't take it; none where no subscription
    /// may.
    fn copies(&self, topic: &str, entry: Entry, staged: impl Fn(Id) -> usize) -> Option<Vec<(Id, Entry, bool)>> {
        let mut copies = Vec::new();
        for (id, sub) in self.subs.iter().filter(|(_, sub)| sub.is_wanted(topic, &entry)) {
            // PMSGDLV(ALLDUR) and NPMSGDLV(ALLAVAIL).
            let is_spared = !(entry.persistent && sub.is_durable());
            match sub.is_full(staged(*id)) {
                false => copies.push((*id, entry, is_spared)),
                true if is_spared => {}
                true => return None,
            }
        }
        Some(copies)
    }

    fn put(&mut self, id: Id, entry: Entry) {
        self.arrivals += 1;
        let place = (9 - entry.priority, self.arrivals);
        self.subs.get_mut(&id).unwrap().entries.insert(place, entry);
    }

    fn place(&self, id: Id, number: u64) -> Option<(u8, u64)> {
        let entries = &self.subs.get(&id)?.entries;
        entries.iter().find(|(_, entry)| entry.number == number).map(|(place, _)| *place)
    }

    fn conclude(&mut self, id: Id, number: u64, outcome: Outcome) {
        // Its subscription may have ended.
        let Some(place) = self.place(id, number) else { return };
        let entries = &mut self.subs.get_mut(&id).unwrap().entries;
        match outcome {
            Outcome::Accept => drop(entries.remove(&place)),
            Outcome::Release | Outcome::Fail => {
                let entry = entries.get_mut(&place).unwrap();
                entry.locked = false;
                entry.failures += u32::from(matches!(outcome, Outcome::Fail));
            }
        }
    }

    /// Whether the commit takes place; otherwise the unit is backed out.
    fn commit(&mut self, unit: ModelUnit) -> bool {
        let mut taken: BTreeMap<Id, usize> = BTreeMap::new();
        let mut puts = Vec::new();
        for (id, entry, is_spared) in &unit.puts {
            let Some(sub) = self.subs.get(id) else { continue };
            let before = taken.entry(*id).or_default();
            if *is_spared && sub.is_full(*before) {
                continue;
            }
            *before += 1;
            puts.push((*id, *entry));
        }
        if taken.iter().any(|(id, count)| self.subs[id].entries.len() + count > self.subs[id].depth_max) {
            self.back_out(unit);
            return false;
        }
        puts.into_iter().for_each(|(id, entry)| self.put(id, entry));
        unit.gets.into_iter().for_each(|(id, number, outcome)| self.conclude(id, number, outcome));
        true
    }

    fn back_out(&mut self, unit: ModelUnit) {
        unit.gets.into_iter().for_each(|(id, number, _)| self.conclude(id, number, Outcome::Fail));
    }

    /// A seat's links are gone.
    fn leave(&mut self, seat: usize) {
        self.subs.values_mut().for_each(|sub| sub.holders.retain(|(holder, _)| *holder != seat));
        self.subs.retain(|_, sub| sub.is_durable() || !sub.holders.is_empty());
    }

    /// What is found again: durable subscriptions, and on them persistent messages, none of them delivered.
    fn after_the_end(&self) -> Self {
        let mut after = self.clone();
        after.subs.retain(|_, sub| sub.is_durable());
        for sub in after.subs.values_mut() {
            sub.holders.clear();
            sub.entries.retain(|_, entry| entry.persistent);
            sub.entries.values_mut().for_each(|entry| entry.locked = false);
        }
        after
    }
}

/// A client, the links on which it publishes, and its open units.
struct Seat {
    client: Client,
    publishers: Vec<LinkId>,
    units: Vec<(Unit, ModelUnit)>,
    links: u64,
}

impl Seat {
    fn new(harness: &Harness) -> Self {
        let mut client = harness.client();
        let mut publisher = |topic: &&str| client.sender(&format!("topic://{topic}"), false).unwrap().link;
        let publishers = TOPICS.iter().map(&mut publisher).collect();
        Self { client, publishers, units: Vec::new(), links: 0 }
    }

    /// A link of a name of its own to the subscription in a slot: to that topic, or whatever it is, which only its name
    /// says.
    fn attach(&mut self, slot: usize, wants: Option<usize>) -> Result<LinkId, (String, u16)> {
        let Slot { name, durable, shared } = SLOTS[slot];
        self.links += 1;
        let link = format!("{}|{}", name.unwrap_or("own"), self.links);
        let capabilities = [("topic", true), ("global", name.is_some()), ("shared", shared)];
        let capabilities = capabilities.into_iter().filter(|(_, is)| *is).map(|(name, _)| Symbol::from_static(name));
        let source = wants.map(|wants| {
            let (topic, priority) = WANTS[wants];
            let selector = priority.map(|priority| {
                let text = Value::from(format!("JMSPriority = {priority}").as_str());
                let kind = Value::Symbol(Symbol::from_static("apache.org:selector-filter:string"));
                (Symbol::from_static("jms-selector"), Value::Described(Box::new((kind, text))))
            });
            Source {
                durable: if durable { 2 } else { 0 },
                filter: selector.into_iter().collect(),
                capabilities: capabilities.clone().collect(),
                ..Source::at(topic)
            }
        });
        let desired_capabilities = if wants.is_some() { Vec::new() } else { capabilities.collect() };
        let target = Some(Target::default());
        let request = AttachRequest { source, target, desired_capabilities, ..AttachRequest::receiver(link, "") };
        self.client.open(request).map(|attached| attached.link).map_err(|error| refused(Err::<(), _>(error)))
    }
}

struct Run {
    harness: Harness,
    model: Model,
    random: Random,
    seats: Vec<Seat>,
    /// What was published last under an idempotency key, and on which topic.
    keyed: Option<(usize, Entry)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let all = LocalQueue { max_depth: ALL_DEPTH as u32, full: Full::Reject, ..LocalQueue::default() };
        let harness = Harness::new(&[(ALL, all)]);
        let sub = Sub {
            slot: None,
            wants: 0,
            queue: ALL.to_owned(),
            depth_max: ALL_DEPTH,
            holders: Vec::new(),
            entries: BTreeMap::new(),
        };
        let model = Model { subs: BTreeMap::from([(0, sub)]), ..Model::default() };
        let random = Random(fastrand::Rng::with_seed(seed));
        let mut run = Self { harness, model, random, seats: Vec::new(), keyed: None };
        run.open();
        run
    }

    /// What is there after a start, and new clients.
    fn open(&mut self) {
        {
            let state = &mut *self.harness.running().manager().lock();
            let mut model = state.definitions.models[DEFAULT_MODEL].clone();
            model.queue.max_depth = DEPTH as u32;
            let subscription =
                Subscription { string: "#".into(), destination: ALL.to_owned(), ..Subscription::default() };
            let key = RecordKey {
                object: ObjectType::Topic,
                profile: Profile::parse(BASE_TOPIC).unwrap(),
                entity: Entity::principal(ANONYMOUS),
            };
            let changes = [
                Change::alter(DEFAULT_MODEL, model),
                Change::define(ALL, subscription),
                Change::SetAuthority(vec![(key, ObjectType::Topic.rights())]),
            ];
            state.commit_definitions(&changes, &[]).unwrap();
        }
        self.seats.clear();
        (0..CLIENTS).for_each(|at| self.sit(at));
    }

    fn sit(&mut self, at: usize) {
        let mut seat = Seat::new(&self.harness);
        let reader = seat.client.receiver(ALL, false, false).unwrap().link;
        self.model.subs.get_mut(&0).unwrap().holders.push((at, reader));
        self.seats.insert(at, seat);
    }

    fn step(&mut self) {
        let seat = self.random.below(CLIENTS);
        let open = self.seats[seat].units.len();
        let unit = self.random.below(open.max(1));
        match self.random.below(100) {
            0..=7 if open < UNITS_MAX => {
                let unit = self.seats[seat].client.begin().unwrap();
                self.seats[seat].units.push((unit, ModelUnit::default()));
            }
            8..=22 => drop(self.publish(seat)),
            23 | 24 => self.publish_again(seat),
            25..=39 if open > 0 => self.publish_in(seat, unit),
            40..=58 => self.get(None),
            59..=69 => self.get(Some(seat)),
            70..=75 if open > 0 => drop(self.commit(seat, unit)),
            76..=78 if open > 0 => {
                let (unit, said) = self.seats[seat].units.remove(unit);
                self.model.back_out(said);
                self.seats[seat].client.end(unit, false, PATIENCE).unwrap();
            }
            79..=88 => self.subscribe(seat),
            89..=94 => self.leave(),
            95 | 96 => self.recover(seat),
            97 | 98 => self.lose(seat),
            99 => match self.random.below(8) {
                0 => self.restart(),
                1 => self.kill(),
                _ => {}
            },
            _ => {}
        }
    }

    /// Copies that open units have staged for a subscription.
    fn staged(&self, id: Id) -> usize {
        let units = self.seats.iter().flat_map(|seat| &seat.units);
        units.flat_map(|(_, unit)| &unit.puts).filter(|(to, ..)| *to == id).count()
    }

    /// Whether something was published that is there after a kill.
    fn publish(&mut self, seat: usize) -> bool {
        let (topic, entry) = (self.random.below(TOPICS.len()), self.model.entry(&mut self.random));
        let copies = self.model.copies(TOPICS[topic], entry, |_| 0);
        let Seat { client, publishers, .. } = &mut self.seats[seat];
        let under_key = self.random.below(3) == 0;
        let message = if under_key { keyed } else { message };
        let message = message(entry.number, entry.priority, entry.persistent);
        match (client.put(publishers[topic], message, PATIENCE), copies) {
            (Ok(()), Some(copies)) => {
                copies.into_iter().for_each(|(id, entry, _)| self.model.put(id, entry));
                self.keyed = Some((topic, entry)).filter(|_| under_key).or(self.keyed);
            }
            (result @ Err(_), None) => {
                assert_eq!(refused(result).1, reason::PUBLICATION_FAILURE.code);
                return false;
            }
            (result, copies) => panic!("{result:?} for {copies:?}"),
        }
        entry.persistent
    }

    /// What was published under a key is published again, as if its answer were lost: it is there already.
    fn publish_again(&mut self, seat: usize) {
        let Some((topic, Entry { number, priority, persistent, .. })) = self.keyed else { return };
        let Seat { client, publishers, .. } = &mut self.seats[seat];
        client.put(publishers[topic], keyed(number, priority, persistent), PATIENCE).unwrap();
    }

    /// Its keys are those of persistent publications now.
    fn forget(&mut self) {
        self.keyed = self.keyed.filter(|(_, entry)| entry.persistent);
    }

    fn publish_in(&mut self, seat: usize, unit: usize) {
        let (topic, entry) = (self.random.below(TOPICS.len()), self.model.entry(&mut self.random));
        let copies = self.model.copies(TOPICS[topic], entry, |id| self.staged(id));
        let Seat { client, publishers, units, .. } = &mut self.seats[seat];
        let (unit, said) = &mut units[unit];
        let message = message(entry.number, entry.priority, entry.persistent);
        match (client.put_in(unit, publishers[topic], message, PATIENCE), copies) {
            (Ok(()), Some(copies)) => said.puts.extend(copies),
            (result @ Err(_), None) => assert_eq!(refused(result).1, reason::PUBLICATION_FAILURE.code),
            (result, copies) => panic!("{result:?} for {copies:?}"),
        }
    }

    /// Whether something was committed that is there after a kill.
    fn commit(&mut self, seat: usize, unit: usize) -> bool {
        let (unit, said) = self.seats[seat].units.remove(unit);
        let is_kept = said.is_kept();
        let committed = self.model.commit(said);
        let result = self.seats[seat].client.end(unit, true, PATIENCE);
        assert_eq!(result.is_ok(), committed, "{result:?}");
        committed && is_kept
    }

    /// Gets what comes first on some subscription, which the model must agree on; in a unit of that seat's, if it has
    /// one.
    fn get(&mut self, in_unit_of: Option<usize>) {
        let is_open =
            |seat: usize| in_unit_of.is_none_or(|wanted| wanted == seat && !self.seats[seat].units.is_empty());
        let mut links: Vec<(Id, usize, LinkId)> = Vec::new();
        for (id, sub) in &self.model.subs {
            links.extend(sub.holders.iter().filter(|(seat, _)| is_open(*seat)).map(|(seat, link)| (*id, *seat, *link)));
        }
        if links.is_empty() {
            return;
        }
        let (id, seat, link) = links[self.random.below(links.len())];
        let delivery = self.seats[seat].client.get(link, None).unwrap();
        let first = self.model.subs.get_mut(&id).unwrap().entries.values_mut().find(|entry| !entry.locked);
        let found = |delivery: &Delivery| number(&delivery.payload);
        assert_eq!(delivery.as_ref().map(found), first.as_ref().map(|first| first.number));
        let (Some(delivery), Some(first)) = (delivery, first) else { return };
        first.locked = true;
        let number = first.number;
        let (outcome, state) = self.outcome();
        let Seat { client, units, .. } = &mut self.seats[seat];
        if in_unit_of.is_some() {
            let at = self.random.below(units.len());
            let (unit, said) = &mut units[at];
            client.settle_in(unit, &delivery, state).unwrap();
            said.gets.push((id, number, outcome));
        } else {
            client.settle(&delivery, state).unwrap();
            self.model.conclude(id, number, outcome);
        }
    }

    fn outcome(&mut self) -> (Outcome, DeliveryState) {
        match self.random.below(10) {
            0 => (Outcome::Release, DeliveryState::Released),
            1 => {
                let (delivery_failed, undeliverable_here) = (true, false);
                let message_annotations = Vec::new();
                let state = DeliveryState::Modified { delivery_failed, undeliverable_here, message_annotations };
                (Outcome::Fail, state)
            }
            _ => (Outcome::Accept, DeliveryState::Accepted),
        }
    }

    /// The subscription that a slot's name means.
    fn named(&self, slot: usize) -> Option<Id> {
        SLOTS[slot].name?;
        self.model.subs.iter().find(|(_, sub)| sub.slot == Some(slot)).map(|(id, _)| *id)
    }

    fn subscribe(&mut self, seat: usize) {
        let (slot, mut wants) = (self.random.below(SLOTS.len()), self.random.below(WANTS.len()));
        let known = self.named(slot);
        if let (Some(id), true) = (known, self.random.below(2) == 0) {
            wants = self.model.subs[&id].wants;
        }
        let before = self.managed();
        let result = self.seats[seat].attach(slot, Some(wants));
        if let Some(id) = known {
            let sub = self.model.subs.get_mut(&id).unwrap();
            if sub.wants != wants && sub.holders.is_empty() {
                // Another subscription by the same name.
                self.model.subs.remove(&id);
            } else if sub.wants != wants || !SLOTS[slot].shared && !sub.holders.is_empty() {
                assert_eq!(result.unwrap_err().1, reason::SUBSCRIPTION_IN_USE.code);
                return;
            } else {
                sub.holders.push((seat, result.unwrap()));
                return;
            }
        }
        let holders = vec![(seat, result.unwrap())];
        let after = self.managed();
        let mut new = after.difference(&before);
        let queue = new.next().expect("it has a queue of its own").clone();
        assert_eq!(new.next(), None);
        self.model.last += 1;
        let sub = Sub { slot: Some(slot), wants, queue, depth_max: DEPTH, holders, entries: BTreeMap::new() };
        self.model.subs.insert(self.model.last, sub);
    }

    /// A link goes: for good, or to come back.
    fn leave(&mut self) {
        let is_application_s = |sub: &&Sub| sub.slot.is_some();
        let holders: Vec<(Id, usize, LinkId)> = self
            .model
            .subs
            .iter()
            .filter(|(_, sub)| is_application_s(sub))
            .flat_map(|(id, sub)| sub.holders.iter().map(|(seat, link)| (*id, *seat, *link)))
            .collect();
        if holders.is_empty() {
            return;
        }
        let (id, seat, link) = holders[self.random.below(holders.len())];
        let closed = self.random.below(3) == 0;
        self.seats[seat].client.detach(link, closed).unwrap();
        let sub = self.model.subs.get_mut(&id).unwrap();
        sub.holders.retain(|held| *held != (seat, link));
        if sub.holders.is_empty() && (closed || !sub.is_durable()) {
            self.model.subs.remove(&id);
        }
    }

    /// A link that has only a name looks for the durable subscription of that name, and mostly ends it.
    fn recover(&mut self, seat: usize) {
        let slot = self.random.below(SLOTS.iter().filter(|slot| slot.durable).count());
        let result = self.seats[seat].attach(slot, None);
        let Some(id) = self.named(slot) else {
            return assert_eq!(result.unwrap_err().1, reason::NO_SUBSCRIPTION.code);
        };
        if !self.model.subs[&id].holders.is_empty() {
            return assert_eq!(result.unwrap_err().1, reason::SUBSCRIPTION_IN_USE.code);
        }
        let closed = self.random.below(4) > 0;
        self.seats[seat].client.detach(result.unwrap(), closed).unwrap();
        if closed {
            self.model.subs.remove(&id);
        }
    }

    /// A connection is gone, and comes again.
    fn lose(&mut self, seat: usize) {
        let Seat { client, units, .. } = self.seats.remove(seat);
        drop(client);
        units.into_iter().for_each(|(_, unit)| self.model.back_out(unit));
        self.model.leave(seat);
        self.agree("a connection was lost");
        self.sit(seat);
    }

    fn restart(&mut self) {
        for seat in (0..CLIENTS).rev() {
            let Seat { client, units, .. } = self.seats.remove(seat);
            drop(client);
            units.into_iter().for_each(|(_, unit)| self.model.back_out(unit));
            self.model.leave(seat);
            self.agree("a connection was lost");
        }
        assert_eq!(self.harness.units().2, 0, "bytes of units that are over");
        self.harness.start();
        self.model = self.model.after_the_end();
        self.forget();
        self.agree("it was started again");
        self.open();
    }

    /// The process is killed with units and links open, a moment after some more was done. What was answered is there;
    /// what was not may be, but nothing of it without what was done before.
    fn kill(&mut self) {
        {
            let manager = self.harness.running().manager().clone();
            manager.lock().store.sync(std::time::Instant::now()).unwrap();
        }
        let mut possible = vec![self.model.after_the_end()];
        for _ in 0..self.random.below(6) {
            let seat = self.random.below(CLIENTS);
            let open = self.seats[seat].units.len();
            let is_kept = match self.random.below(4) {
                0 => self.publish(seat),
                1 if open > 0 => self.commit(seat, open - 1),
                2 if open > 0 => {
                    self.publish_in(seat, open - 1);
                    false
                }
                _ => {
                    self.get(None);
                    false
                }
            };
            if is_kept {
                // It was answered, and a journal keeps what came before.
                possible.clear();
            }
            possible.push(self.model.after_the_end());
        }
        let seats = &mut self.seats;
        self.harness.kill(|| seats.clear());
        let agrees =
            |model: &Model| model.subs.values().all(|sub| self.harness.available(&sub.queue) == available(sub));
        let found = possible.into_iter().rev().find(agrees);
        self.model =
            found.expect("what is found after a kill is not what was there at any moment since the last answer");
        self.forget();
        self.agree("it was killed");
        self.open();
    }

    /// The queues that are there for applications' subscriptions.
    fn managed(&self) -> HashSet<String> {
        let state = self.harness.running().manager().lock();
        let names = state.temporary.queues.keys().chain(state.definitions.queues.keys());
        names.filter(|name| name.starts_with(MANAGED_PREFIX)).cloned().collect()
    }

    /// What the queue manager shows of a subscription: what can be got, what there is, and how many get from it.
    fn shown(&self, queue: &str) -> (Vec<Shown>, u32, u32) {
        let getters = {
            let state = self.harness.running().manager().lock();
            let id = state.store.queue(queue);
            id.and_then(|id| state.uses.get(&id)).map_or(0, |usage| usage.getters)
        };
        (self.harness.available(queue), self.harness.depth(queue), getters)
    }

    /// Every subscription is as the model says, and no others are there. What is not confirmed may take a moment.
    #[track_caller]
    fn agree(&self, what: &str) {
        let wanted: HashSet<String> =
            self.model.subs.values().filter(|sub| sub.slot.is_some()).map(|sub| sub.queue.clone()).collect();
        if self.managed() != wanted {
            let text = format!("{what}: there are {:?}, not {wanted:?}", self.managed());
            self.harness.until(&text, |_| self.managed() == wanted);
        }
        for sub in self.model.subs.values() {
            let wanted = (available(sub), sub.entries.len() as u32, sub.holders.len() as u32);
            if self.shown(&sub.queue) != wanted {
                let text = format!("{what}: {} shows {:?}, not {wanted:?}", sub.queue, self.shown(&sub.queue));
                self.harness.until(&text, |_| self.shown(&sub.queue) == wanted);
            }
        }
    }
}

fn available(sub: &Sub) -> Vec<Shown> {
    let free = sub.entries.values().filter(|entry| !entry.locked);
    free.map(|entry| (entry.number, entry.failures)).collect()
}

#[test]
fn subscriptions_are_what_a_model_says_after_every_step() {
    let (seeds, steps) = seeds_and_steps(SEEDS, STEPS);
    for seed in seeds {
        let mut run = Run::new(seed);
        for step in 0..steps {
            run.step();
            run.agree(&format!("seed {seed}, step {step}"));
        }
        run.restart();
        // Before the queue manager, which would wait for them.
        run.seats.clear();
    }
}
