//! What is defined survives: the same work over a disk that stops at every step, in several ways a disk can forget,
//! while the file is written now and then.
//!
//! What is found afterwards is what the first k changes leave, for some k that is at least the number of those that
//! were acknowledged. A failure names the seed, the step and the fate. `BULLA_SEED=n` runs that seed alone.

use super::copy;
use super::start::{Failed, Loaded, load};
use crate::asker::Who;
use crate::authority::{Entity, ObjectType, Profile, RecordKey, Right};
use crate::catalog::objects::device::CPU;
use crate::catalog::system_queues::DEFAULT_MODEL;
use crate::catalog::{AliasQueue, Change, Definitions, Object, Sort};
use crate::front::link::QueueWish;
use crate::manager::State;
use crate::mqsc::kept;
use crate::mqsc::objects::{AsText, FILE};
use crate::noted::{Noted, Origin, journal_name};
use crate::objects_file::DefinitionsFile;
use crate::random::Random;
use crate::stores::{Stores, Tickets};
use crate::topics::subscribe::Wanted;
use bulla_queue::sim::{Fate, Fault, SimDisk};
use bulla_queue::{Driver, FileLog, FileLogOptions, FileSpill, Keys, Limits, Message, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=1;
const OPERATIONS: usize = 30;
const SEGMENT_BYTES: u64 = 16 << 10;

/// What is defined beside what is there from the beginning: subscriptions by name with their queues; queues, whose
/// value is their own name; aliases with their targets.
type Defined = BTreeMap<String, String>;

/// What the work has done: what is defined after each change, and the ticket of its answer.
#[derive(Default)]
struct Done {
    after: Vec<(Defined, Tickets)>,
    acknowledged: usize,
}

impl Done {
    fn note(&mut self, state: &mut State) {
        let tickets = state.changes.noted.take_tickets().unwrap();
        self.after.push((defined(&state.definitions), tickets));
    }

    /// What is synced is acknowledged.
    fn acknowledge(&mut self, stores: &Stores) {
        self.acknowledged = self.after.iter().take_while(|(_, tickets)| stores.are_synced(tickets)).count();
    }

    fn explains(&self, found: &Defined) -> bool {
        let before = Defined::new();
        let at = |changes: usize| if changes == 0 { &before } else { &self.after[changes - 1].0 };
        (self.acknowledged..=self.after.len()).any(|changes| at(changes) == found)
    }
}

fn defined(definitions: &Definitions) -> Defined {
    let subscriptions = definitions.subscriptions.iter().map(|(name, of)| (name.clone(), of.destination.clone()));
    let managed: Vec<&String> = definitions.subscriptions.values().map(|of| &of.destination).collect();
    let queues = definitions.queues.keys().filter(|name| !managed.contains(name));
    let queues = queues.map(|name| (name.clone(), name.clone()));
    let aliases = definitions.aliases.iter().map(|(name, of)| (name.clone(), of.target.clone()));
    subscriptions.chain(queues).chain(aliases).collect()
}

fn initial() -> Definitions {
    let mut definitions = Definitions::initial("QM1");
    // What is in the file is read and written at every step.
    definitions.queues.clear();
    definitions.devices.retain(|name, _| name == CPU);
    let (object, profile) = (ObjectType::Topic, Profile::parse("**").unwrap());
    let key = RecordKey { object, profile, entity: Entity::principal("app") };
    definitions.authorities.records.set(key, Right::Subscribe.alone());
    definitions.models.get_mut(DEFAULT_MODEL).unwrap().permanent = true;
    definitions
}

/// Opens what is on a disk, with the file in a folder, as a start does.
fn open(disk: &SimDisk, folder: &Path) -> Result<State, String> {
    let mut stores = Stores::from(open_store(disk)?);
    let loaded = load(&mut stores, folder, initial, |_| Ok(()));
    let Loaded { definitions, last, written } = loaded.map_err(|error: Failed| format!("{error:?}"))?;
    let state = State::alone(stores, definitions, Noted::after(last));
    state.changes.writer.has(written);
    Ok(state)
}

fn open_store(disk: &SimDisk) -> Result<Store, String> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    let log = FileLog::open(disk.clone(), options).map_err(|error| error.to_string())?;
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).unwrap();
    let limits = Limits {
        batch_bytes_max: 4_000,
        reserve_bytes: 128_000,
        checkpoint_bytes: SEGMENT_BYTES / 2,
        log_bytes_min: 3 * SEGMENT_BYTES,
        ..Limits::default()
    };
    Store::open(Box::new(log), Box::new(spill), limits, Instant::now()).map_err(|error| error.to_string())
}

/// Writes the file as its thread does.
fn write_file(state: &mut State, folder: &Path) {
    let journal = journal_name(state.store.identity());
    copy::write(folder, &state.definitions, &Origin { journal, change: state.changes.noted.last }).unwrap();
    state.note_written(state.changes.noted.last);
}

/// A command's unit: two queues and an alias at once, or all three at once away again.
fn unit(state: &mut State, number: usize) -> Vec<Change> {
    let name = format!("ALIAS{number}");
    if state.definitions.aliases.contains_key(&name) {
        let queues = ["FIRST", "SECOND"].map(|name| format!("{name}{number}"));
        let gone = queues.map(|name| Change::Delete { name, sort: Sort::Local, purge: true });
        return gone.into_iter().chain([Change::delete(name, Sort::Alias)]).collect();
    }
    let queue = Definitions::initial("QM1").queues.into_values().next().unwrap();
    let target = format!("FIRST{number}");
    let names = [target.clone(), format!("SECOND{number}")];
    let alias = AliasQueue { target, description: String::new(), get_enabled: true, put_enabled: true };
    let made = names.map(|name| Change::define(name, queue.clone()));
    made.into_iter().chain([Change::define(name, alias)]).collect()
}

/// Clients define and delete, until the disk stops. Each puts a message on its new queue.
fn work(disk: &SimDisk, folder: &Path, seed: u64) -> Done {
    let mut done = Done::default();
    let Ok(mut state) = open(disk, folder) else { return done };
    state.topics.follow(&state.definitions);
    let (mut random, mut names) = (fastrand::Rng::with_seed(seed), Random::counting());
    let mut below = move |bound: u64| random.u64(..bound);
    for number in 0..OPERATIONS {
        if disk.crashed() {
            return done;
        }
        let who = Who::channel("app");
        let known: Vec<(String, String)> = defined(&state.definitions).into_iter().collect();
        let changed = match below(9) {
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
            3 => state.define_dynamic(who, &QueueWish::default(), &mut names).map(|made| Some(made.name)),
            4 if !known.is_empty() => {
                let (name, queue) = &known[below(known.len() as u64) as usize];
                match state.definitions.subscriptions.contains_key(name) {
                    true => state.unsubscribe(name).map(|()| None),
                    false if state.definitions.queues.get(name).is_some_and(|queue| queue.dynamic) => {
                        state.delete_permanent(queue, true).map(|()| None)
                    }
                    false => continue,
                }
            }
            5 | 6 => {
                let changes = unit(&mut state, below(3) as usize);
                let queue = match &changes[0] {
                    Change::Define { name, object: Object::Local(_) } => Some(name.clone()),
                    _ => None,
                };
                state.commit_definitions(&changes, &[]).map(|_| queue).map_err(crate::dynamic::problem)
            }
            7 => {
                // As the thread that writes the file does: what is in it is synced.
                if state.store.sync(Instant::now()).is_ok() {
                    write_file(&mut state, folder);
                }
                continue;
            }
            _ => {
                let _ = state.store.sync(Instant::now());
                done.acknowledge(&state.store);
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
            let message = Message {
                priority,
                persistent,
                expires_at_ms,
                available_at_ms,
                put_at_ms,
                user,
                keys: Keys::None,
                body,
            };
            let _ = state.store.put(queue, message);
        }
    }
    let _ = state.store.sync(Instant::now());
    done.acknowledge(&state.store);
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
            for fate in [Fate::Lost, Fate::Torn, Fate::Kept, Fate::Mixed(step)] {
                let at = format!("seed {seed}, step {step}, {fate:?}");
                let file = std::fs::read(folder.path().join(FILE)).ok();
                let state = open(&disk.after_crash(fate), folder.path()).expect(&at);
                let found = defined(&state.definitions);
                let told = done.acknowledged;
                assert!(done.explains(&found), "{at}: {told} changes are acknowledged, and found is {found:?}");
                let in_store: BTreeMap<&str, ()> = state.store.queues().map(|(_, name)| (name, ())).collect();
                let names: Vec<&str> = state.definitions.queues.keys().map(String::as_str).collect();
                assert_eq!(in_store.into_keys().collect::<Vec<_>>(), names, "{at}: queues and definitions differ");
                assert_eq!(Definitions::load(folder.path()).unwrap().as_ref(), Some(&state.definitions), "{at}");
                assert!(!is_set_aside(folder.path()), "{at}: a file that was not edited was kept aside");
                // The next fate finds what the crash has left.
                match file {
                    Some(file) => std::fs::write(folder.path().join(FILE), file).unwrap(),
                    None => std::fs::remove_file(folder.path().join(FILE)).unwrap(),
                }
            }
        }
    }
}

/// Whether a file was kept aside.
fn is_set_aside(folder: &Path) -> bool {
    folder.join("objects.mqsc.edited-1").exists()
}

/// A directory as it was before the journal had records of definitions: a file, up to the note of that number, and
/// notes of two changes. Returns what is defined there.
fn older(disk: &SimDisk, folder: &Path, through: u64) -> Definitions {
    let mut store = open_store(disk).unwrap();
    let mut definitions = initial();
    let mut file = definitions.text();
    for number in 1..=2 {
        let queue = Definitions::initial("QM1").queues.into_values().next().unwrap();
        let changes = [Change::define(format!("CLIENT{number}"), queue)];
        let text = Definitions::commands(&changes).unwrap();
        store.commit(Vec::new(), &[], &[(&format!("definitions.{number:016x}"), Some(text.as_bytes()))]).unwrap();
        definitions.apply(&changes[0]);
        if number == through {
            file = format!("{}* with the changes noted in the journal up to {number:016x}\n", definitions.text());
        }
    }
    store.sync(Instant::now()).unwrap();
    std::fs::write(folder.join(FILE), file).unwrap();
    definitions
}

#[test]
fn an_older_directory_comes_into_the_journal_in_one_commit_at_whatever_step_it_stops() {
    for through in 0..=2 {
        let disk = SimDisk::default();
        let folder = tempfile::tempdir().unwrap();
        let wanted = older(&disk, folder.path(), through);
        let file = std::fs::read(folder.path().join(FILE)).unwrap();
        let before = disk.after_crash(Fate::Kept);
        let steps = {
            let disk = before.after_crash(Fate::Kept);
            let began = disk.steps();
            assert_eq!(open(&disk, folder.path()).unwrap().definitions, wanted);
            began..=disk.steps()
        };
        for step in steps {
            for fate in [Fate::Lost, Fate::Torn, Fate::Kept, Fate::Mixed(step)] {
                let at = format!("file up to {through}, step {step}, {fate:?}");
                // The file is written after the commit: a crash leaves the old one or the new one.
                std::fs::write(folder.path().join(FILE), &file).unwrap();
                let disk = before.after_crash(Fate::Kept);
                disk.set_fault(step, Fault::Crash);
                drop(open(&disk, folder.path()));
                let disk = disk.after_crash(fate);
                let state = open(&disk, folder.path()).expect(&at);
                assert_eq!(state.definitions, wanted, "{at}");
                assert_eq!(state.store.notes("definitions.").count(), 0, "{at}: old notes are left");
                assert_eq!(state.store.objects(), kept::records(&wanted).count(), "{at}");
                assert!(wanted.queues.keys().all(|name| state.store.queue(name).is_some()), "{at}");
                assert!(!is_set_aside(folder.path()), "{at}");
            }
        }
    }
}

/// A directory in which QUEUE is defined, once started and stopped.
fn stopped() -> (SimDisk, tempfile::TempDir) {
    let (disk, folder) = (SimDisk::default(), tempfile::tempdir().unwrap());
    let mut state = open(&disk, folder.path()).unwrap();
    let queue = Definitions::initial("QM1").queues.into_values().next().unwrap();
    state.commit_definitions(&[Change::define("QUEUE", queue)], &[]).unwrap();
    state.store.shut_down(Instant::now()).unwrap();
    drop(state);
    drop(open(&disk, folder.path()).unwrap());
    (disk, folder)
}

#[test]
fn a_file_that_was_edited_is_kept_aside_and_the_journal_wins() {
    let (disk, folder) = stopped();
    let path = folder.path().join(FILE);
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.contains("DEFINE QLOCAL('QUEUE')"));
    let (_, elsewhere) = stopped();
    let foreign = std::fs::read_to_string(elsewhere.path().join(FILE)).unwrap();
    let foreign = foreign.replacen("'QUEUE'", "'OTHER'", 1);
    let edits = [written.replace("'QUEUE'", "'EDITED'"), "DEFINE OOPS\n".to_owned(), String::new(), foreign];
    for (number, edited) in edits.iter().enumerate() {
        std::fs::write(&path, edited).unwrap();
        let state = open(&disk, folder.path()).unwrap();
        assert!(state.definitions.queues.contains_key("QUEUE") && state.definitions.queues.len() == 1, "{edited}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
        let aside = folder.path().join(format!("objects.mqsc.edited-{}", number + 1));
        assert_eq!(std::fs::read_to_string(aside).unwrap(), *edited);
    }
}

#[test]
fn a_file_that_differs_in_nothing_that_counts_or_is_missing_is_only_written_again() {
    let (disk, folder) = stopped();
    let path = folder.path().join(FILE);
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, written.replace(" +\n       ", " ")).unwrap();
    drop(open(&disk, folder.path()).unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
    std::fs::remove_file(&path).unwrap();
    drop(open(&disk, folder.path()).unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
    assert!(!is_set_aside(folder.path()));
}

#[test]
fn an_older_copy_of_the_file_that_is_put_back_is_kept_aside() {
    let (disk, folder) = stopped();
    let path = folder.path().join(FILE);
    let mut state = open(&disk, folder.path()).unwrap();
    let mut copies = vec![std::fs::read_to_string(&path).unwrap()];
    for name in ["SECOND", "THIRD"] {
        let queue = Definitions::initial("QM1").queues.into_values().next().unwrap();
        state.commit_definitions(&[Change::Define { name: name.into(), object: Object::Local(queue) }], &[]).unwrap();
        state.store.sync(Instant::now()).unwrap();
        write_file(&mut state, folder.path());
        copies.push(std::fs::read_to_string(&path).unwrap());
    }
    state.store.shut_down(Instant::now()).unwrap();
    drop(state);
    let written = copies.pop().unwrap();
    for (number, older) in copies.iter().enumerate() {
        std::fs::write(&path, older).unwrap();
        let state = open(&disk, folder.path()).unwrap();
        assert!(state.definitions.queues.contains_key("THIRD"), "the journal wins");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
        let aside = folder.path().join(format!("objects.mqsc.edited-{}", number + 1));
        assert_eq!(std::fs::read_to_string(aside).ok().as_ref(), Some(older), "copy {number}");
    }
}

#[test]
fn a_unit_that_clears_a_queue_is_there_whole_or_not_at_all() {
    const MESSAGES: u32 = 300;
    let (disk, folder) = stopped();
    let depth = |state: &State| state.store.status(state.store.queue("QUEUE").unwrap()).unwrap().depth;
    let mut state = open(&disk, folder.path()).unwrap();
    let queue = state.store.queue("QUEUE").unwrap();
    for _ in 0..MESSAGES {
        state.store.put(queue, Message::new(true, bytes::Bytes::from_static(b"a message").into())).unwrap();
    }
    state.store.shut_down(Instant::now()).unwrap();
    drop(state);
    let clear = |disk: &SimDisk| {
        let Ok(mut state) = open(disk, folder.path()) else { return };
        let alias =
            AliasQueue { target: "QUEUE".into(), description: String::new(), get_enabled: true, put_enabled: true };
        let clear = Change::ClearLocal { name: "QUEUE".into() };
        let _ = state
            .commit_definitions(&[clear, Change::Define { name: "ALIAS".into(), object: Object::Alias(alias) }], &[]);
        let _ = state.store.sync(Instant::now());
    };
    let steps = {
        let disk = disk.after_crash(Fate::Kept);
        let began = disk.steps();
        clear(&disk);
        began..=disk.steps()
    };
    let mut seen = std::collections::BTreeSet::new();
    for step in steps {
        for fate in [Fate::Lost, Fate::Torn, Fate::Kept, Fate::Mixed(step)] {
            let disk = disk.after_crash(Fate::Kept);
            disk.set_fault(step, Fault::Crash);
            clear(&disk);
            let at = format!("step {step}, {fate:?}");
            let state = open(&disk.after_crash(fate), folder.path()).expect(&at);
            let is_defined = state.definitions.aliases.contains_key("ALIAS");
            assert_eq!(depth(&state), if is_defined { 0 } else { MESSAGES }, "{at}: defined {is_defined}");
            seen.insert(is_defined);
        }
    }
    assert_eq!(seen.len(), 2, "both have been seen");
}
