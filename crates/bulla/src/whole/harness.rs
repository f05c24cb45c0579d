//! For tests: a queue manager of this process with clients of its own, which can be stopped, started again and killed.

use crate::catalog::{Change, LocalQueue, QueueManager};
use crate::serve::{Listen, Running, Settings, StartError, start};
use bulla_amqp::message::encode_map_section;
use bulla_amqp::{BodyForm, Header, MessageBody, MessageParts, Payload, SaslClient, Sections, Symbol, Value};
use bulla_client::{Client, ClientError, Endpoint};
use bytes::Bytes;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No condition takes longer to come true.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A queue manager and its data.
pub(crate) struct Harness {
    dir: TempDir,
    running: Option<Running>,
    queues: Vec<(String, LocalQueue)>,
    /// What of the settings is this test's own.
    sets: fn(&mut Settings),
}

/// What a queue shows of a message: its number, how often its delivery failed.
pub(crate) type Shown = (u64, u32);

impl Harness {
    pub(crate) fn new(queues: &[(&str, LocalQueue)]) -> Self {
        Self::with(queues, |_| {})
    }

    /// With settings of its own.
    pub(crate) fn with(queues: &[(&str, LocalQueue)], sets: fn(&mut Settings)) -> Self {
        let queues = queues.iter().map(|(name, queue)| ((*name).to_owned(), queue.clone())).collect();
        let mut harness = Self { dir: tempfile::tempdir().unwrap(), running: None, queues, sets };
        harness.start();
        harness
    }

    /// Starts it, or again on what is there.
    pub(crate) fn start(&mut self) {
        self.stop();
        let mut settings = Settings {
            name: Some("QM1".into()),
            listen: Listen { amqp: Some(SocketAddr::from(([127, 0, 0, 1], 0))), ..Listen::default() },
            dispatchers: 1,
            adapters: 1,
            ..Settings::new(self.dir.path().to_owned())
        };
        (self.sets)(&mut settings);
        // A process that another test starts just now has a copy of the data directory's lock between fork and exec.
        let deadline = Instant::now() + PATIENCE;
        self.running = loop {
            match start(&settings) {
                Err(StartError::DataInUse { .. }) if Instant::now() < deadline => std::thread::yield_now(),
                result => break Some(result.unwrap()),
            }
        };
        self.alter(|_| {});
    }

    /// Ends it in order.
    pub(crate) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().unwrap();
        }
    }

    /// Ends it as `kill -9` would, and starts it again: what was written by now is there, and nothing that waited to
    /// be. `gone` ends the clients, whose server is gone.
    pub(crate) fn kill(&mut self, gone: impl FnOnce()) {
        let found = tempfile::tempdir().unwrap();
        let manager = self.running().manager().clone();
        let state = manager.lock();
        // Nothing more is handed to the journal meanwhile; what it has still to write is written when two looks agree.
        let deadline = Instant::now() + PATIENCE;
        let mut before = files(self.dir.path());
        loop {
            let now = files(self.dir.path());
            if now == before {
                break;
            }
            assert!(Instant::now() < deadline, "the journal does not come to rest");
            before = now;
        }
        for (name, bytes) in before {
            let path = found.path().join(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, bytes).unwrap();
            // What others may read is refused at a start.
            let mode = std::fs::metadata(self.dir.path().join(name)).unwrap().permissions();
            std::fs::set_permissions(path, mode).unwrap();
        }
        drop(state);
        drop(manager);
        gone();
        self.stop();
        self.dir = found;
        self.start();
    }

    /// Changes the queue manager, and defines the queues.
    pub(crate) fn alter(&self, change: impl FnOnce(&mut QueueManager)) {
        let state = &mut *self.running().manager().lock();
        let mut manager = state.definitions.queue_manager.clone();
        change(&mut manager);
        let records = crate::authority::Authorities::open_to_all().records.iter().collect();
        let mut changes = vec![Change::AlterManager(manager), Change::SetAuthority(records)];
        let queues = self.queues.iter().map(|(name, queue)| (name.clone(), queue.clone()));
        changes.extend(queues.map(|(name, queue)| Change::define(name, queue)));
        state.commit_definitions(&changes, &[]).unwrap();
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    /// Its data directory.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn client(&self) -> Client {
        let address = self.running().amqp.unwrap().to_string();
        let endpoint = Endpoint { address, authorities: None, certificate: None, sasl: SaslClient::None };
        Client::connect(&endpoint).unwrap()
    }

    /// What can be got from a queue, in order.
    pub(crate) fn available(&self, queue: &str) -> Vec<Shown> {
        let state = &mut *self.running().manager().lock();
        let id = state.store.queue(queue).unwrap();
        let (mut shown, mut after) = (Vec::new(), None);
        while let Some(found) = state.store.browse_next(id, after, 0) {
            let payload = crate::envelope::payload_of(&state.store.body(found.id).unwrap());
            shown.push((number(&payload), found.delivery_count));
            after = Some(found.place);
        }
        shown
    }

    pub(crate) fn depth(&self, queue: &str) -> u32 {
        let state = self.running().manager().lock();
        state.store.status(state.store.queue(queue).unwrap()).unwrap().depth
    }

    /// Units committed and backed out, and the bytes that open ones have staged.
    pub(crate) fn units(&self) -> (u64, u64, usize) {
        let state = self.running().manager().lock();
        (state.unit_totals.counts.committed, state.unit_totals.counts.backed_out, state.unit_totals.staged_bytes)
    }

    /// Promises of puts for a queue, and those of them that are staged.
    pub(crate) fn promised(&self, queue: &str) -> (u32, u32) {
        let state = self.running().manager().lock();
        let usage = state.store.queue(queue).and_then(|id| state.uses.get(&id));
        usage.map_or((0, 0), |usage| (usage.granted, usage.staged))
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }
}

/// The files below a folder, and what is in them.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let (kind, name) = (entry.file_type().unwrap(), below.join(entry.file_name()));
            if kind.is_dir() {
                folders.push(name);
            } else if kind.is_file() {
                match std::fs::read(entry.path()) {
                    Ok(bytes) => found.push((name, bytes)),
                    // A file that was made aside has its name by now.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => panic!("{}: {error}", name.display()),
                }
            }
        }
    }
    found.sort();
    found
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where the walks of a model begin and how long each is, unless BULLA_SEED and BULLA_STEPS ask for one of their own.
pub(crate) fn seeds_and_steps(seeds: u64, steps: u64) -> (Range<u64>, u64) {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    (asked("BULLA_SEED").map_or(0..seeds, |seed| seed..seed + 1), asked("BULLA_STEPS").unwrap_or(steps))
}

pub(crate) fn message(number: u64, priority: u8, persistent: bool) -> Payload {
    parts(number, priority, persistent).build()
}

/// The same under an idempotency key, which is its number.
pub(crate) fn keyed(number: u64, priority: u8, persistent: bool) -> Payload {
    let key = Value::Symbol(Symbol::from_static("x-opt-bulla-idempotency-key"));
    let mut annotations = Vec::new();
    encode_map_section(0x72, &[(key, Value::from(&*number.to_string()))], &mut annotations);
    MessageParts { message_annotations: annotations.into(), ..parts(number, priority, persistent) }.build()
}

fn parts(number: u64, priority: u8, persistent: bool) -> MessageParts {
    MessageParts {
        header: Some(Header { durable: persistent, priority, ..Header::default() }),
        body: MessageBody::Data(Payload::from(Bytes::from(number.to_string()))),
        ..MessageParts::default()
    }
}

pub(crate) fn number(payload: &Payload) -> u64 {
    let sections = Sections::scan(payload).unwrap();
    let BodyForm::Data(range) = sections.body else { panic!("{:?}", sections.body) };
    String::from_utf8(payload.bytes_at(range).into_owned()).unwrap().parse().unwrap()
}

/// The refusal's condition, and the reason code that its text begins with.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (String, u16) {
    match result {
        Err(ClientError::Refused(error)) => {
            let text = error.description.clone().unwrap_or_default();
            let code = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
            (error.condition.as_str().to_owned(), code)
        }
        other => panic!("{other:?}"),
    }
}
