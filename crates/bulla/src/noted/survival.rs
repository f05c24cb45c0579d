//! What clients define survives: the same work over a disk that stops at every step, in several ways a disk can forget,
//! while the file is written now and then.
//!
//! What is found afterwards is what the first k changes leave, for some k that is at least the number of those that
//! were acknowledged. A failure names the seed, the step and the fate. `BULLA_SEED=n` runs that seed alone.

use super::*;
use crate::asker::Who;
use crate::authority::{Entity, ObjectType, Profile, RecordKey, Right};
use crate::catalog::system_queues::DEFAULT_MODEL;
use crate::definitions_file::DefinitionsFile;
use crate::dynamic::Wish;
use crate::manager::{State, attributes};
use crate::mqsc::objects::FILE;
use crate::random::Random;
use crate::topics::Wanted;
use bulla_queue::sim::{Fate, Fault, SimDisk};
use bulla_queue::{Driver, FileLog, FileLogOptions, FileSpill, Limits, Message};
use std::collections::BTreeMap;
use std::time::Instant;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=1;
const OPERATIONS: usize = 30;
const SEGMENT_BYTES: u64 = 16 << 10;

/// Subscriptions by name with their queues, and permanent dynamic queues, whose value is their own name.
type Defined = BTreeMap<String, String>;

/// What the work has done: what is defined after each change, and the ticket of its answer.
#[derive(Default)]
struct Done {
    after: Vec<(Defined, Ticket)>,
    acknowledged: usize,
}

impl Done {
    fn note(&mut self, state: &mut State) {
        let ticket = state.noted.take_ticket().unwrap();
        self.after.push((defined(&state.definitions), ticket));
    }

    /// What is synced is acknowledged.
    fn acknowledge(&mut self, synced: Ticket) {
        self.acknowledged = self.after.iter().take_while(|(_, ticket)| *ticket <= synced).count();
    }

    fn explains(&self, found: &Defined) -> bool {
        let before = Defined::new();
        let at = |changes: usize| if changes == 0 { &before } else { &self.after[changes - 1].0 };
        (self.acknowledged..=self.after.len()).any(|changes| at(changes) == found)
    }
}

fn defined(definitions: &Definitions) -> Defined {
    let subscriptions = definitions.subscriptions.iter().map(|(name, of)| (name.clone(), of.destination.clone()));
    let dynamic = definitions.queues.iter().filter(|(_, queue)| queue.dynamic);
    subscriptions.chain(dynamic.map(|(name, _)| (name.clone(), name.clone()))).collect()
}

fn initial() -> Definitions {
    let mut definitions = Definitions::initial("QM1");
    // What is in the file is read and written at every step.
    definitions.queues.clear();
    definitions.devices.clear();
    let (object, profile) = (ObjectType::Topic, Profile::parse("**").unwrap());
    let key = RecordKey { object, profile, entity: Entity::principal("app") };
    definitions.authorities.records.set(key, Right::Subscribe.alone());
    definitions.models.get_mut(DEFAULT_MODEL).unwrap().permanent = true;
    definitions
}

/// What the file has, and up to which change.
fn in_the_file(folder: &Path) -> (Definitions, u64) {
    Definitions::load_through(folder).unwrap().unwrap()
}

/// Opens what is on a disk and in the file, as a start does; none where the disk has stopped.
fn open(disk: &SimDisk, (mut definitions, through): (Definitions, u64)) -> Option<State> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    let log = FileLog::open(disk.clone(), options).ok()?;
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).unwrap();
    let limits = Limits {
        batch_bytes_max: 4_000,
        reserve_bytes: 128_000,
        checkpoint_bytes: SEGMENT_BYTES / 2,
        log_bytes_min: 3 * SEGMENT_BYTES,
        ..Limits::default()
    };
    let mut store = Store::open(Box::new(log), Box::new(spill), limits, Instant::now()).ok()?;
    let (last, _) = recover(&store, &mut definitions, through, Path::new(FILE)).unwrap();
    for (name, queue) in &definitions.queues {
        store.define(name, attributes(name, queue, &definitions)).ok()?;
    }
    Some(State::alone(store, definitions, Noted::after(last)))
}

/// Clients define and delete, until the disk stops. Each puts a message on its new queue.
fn work(disk: &SimDisk, folder: &Path, seed: u64) -> Done {
    let mut done = Done::default();
    let Some(mut state) = open(disk, (initial(), 0)) else { return done };
    state.topics.follow(&state.definitions);
    let (mut random, mut names) = (fastrand::Rng::with_seed(seed), Random::counting());
    let mut below = move |bound: u64| random.u64(..bound);
    for number in 0..OPERATIONS {
        if disk.crashed() {
            return done;
        }
        let who = Who::channel("app");
        let known: Vec<(String, String)> = defined(&state.definitions).into_iter().collect();
        let changed = match below(8) {
            0..=2 => {
                let wanted = Wanted {
                    topic: format!("t/{number}"),
                    name: Some(format!("c|s{number}")),
                    durable: true,
                    shared: false,
                    selector: None,
                    selector_text: String::new(),
                    not_from: None,
                };
                state.subscribe(who, wanted, &mut names).map(|subscribed| Some(subscribed.queue))
            }
            3 => state.define_dynamic(who, &Wish::default(), &mut names).map(|made| Some(made.name)),
            4 if !known.is_empty() => {
                let (name, queue) = &known[below(known.len() as u64) as usize];
                match name == queue {
                    true => state.delete_permanent(name, true),
                    false => state.unsubscribe(name),
                }
                .map(|()| None)
            }
            5 => {
                // As the thread that writes the file does, before what is in it is synced or after it.
                let (through, definitions) = (state.noted.last(), state.definitions.clone());
                definitions.save_through(folder, through).unwrap();
                if below(2) == 0 {
                    forget(&mut state.store, through);
                }
                continue;
            }
            _ => {
                let _ = state.store.sync(Instant::now());
                done.acknowledge(state.store.synced());
                continue;
            }
        };
        let queue = match changed {
            Ok(queue) => queue,
            Err(_) if disk.crashed() => return done,
            Err(refusal) => panic!("seed {seed}, operation {number}: {refusal}"),
        };
        done.note(&mut state);
        if let Some(queue) = queue.and_then(|name| state.store.queue(&name)) {
            let body = bytes::Bytes::from_static(b"a publication").into();
            let (priority, persistent, put_at_ms) = (4, true, 0);
            let (expires_at_ms, available_at_ms, user) = (None, None, None);
            let message = Message { priority, persistent, expires_at_ms, available_at_ms, put_at_ms, user, body };
            let _ = state.store.put(queue, message);
        }
    }
    let _ = state.store.sync(Instant::now());
    done.acknowledge(state.store.synced());
    done
}

#[test]
fn every_crash_point_keeps_what_clients_were_told_is_defined() {
    let seeds = match std::env::var("BULLA_SEED") {
        Ok(seed) => vec![seed.parse().expect("BULLA_SEED is a number")],
        Err(_) => SEEDS.collect::<Vec<_>>(),
    };
    let run = |disk: &SimDisk, seed| {
        let folder = tempfile::tempdir().unwrap();
        initial().save_through(folder.path(), 0).unwrap();
        let done = work(disk, folder.path(), seed);
        (folder, done)
    };
    for seed in seeds {
        let disk = SimDisk::default();
        let (_, whole) = run(&disk, seed);
        assert_eq!(whole.acknowledged, whole.after.len(), "seed {seed}");
        assert!(whole.acknowledged > 12, "seed {seed}: {} changes", whole.acknowledged);
        for step in 0..=disk.steps() {
            let disk = SimDisk::with_fault(step, Fault::Crash);
            let (folder, done) = run(&disk, seed);
            let file = in_the_file(folder.path());
            for fate in [Fate::Lost, Fate::Torn, Fate::Kept, Fate::Mixed(step)] {
                let at = format!("seed {seed}, step {step}, {fate:?}");
                let state = open(&disk.after_crash(fate), file.clone()).expect(&at);
                let found = defined(&state.definitions);
                let told = done.acknowledged;
                assert!(done.explains(&found), "{at}: {told} changes are acknowledged, and found is {found:?}");
                for queue in found.values() {
                    assert!(state.definitions.queues.contains_key(queue), "{at}: {queue} is half there");
                    assert!(state.store.queue(queue).is_some(), "{at}: {queue} is not in the store");
                }
            }
        }
    }
}
