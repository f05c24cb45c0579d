//! Servers of the engine for tests: real ones, on loopback, with ports and a folder of their own.

#![allow(dead_code, unreachable_pub, reason = "each test program uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::fmt::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, HeaderMap, Request};
use bulla_queue::log::{Claim, Epoch, LogError, Position};
use bulla_queue::{Log, OpenError};
use bulla_shared::{Durability, JetStreamLog, Options};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use network::Network;

pub mod network;

/// How long servers have to find each other, to elect, or to come back. Where other programs have the processors most
/// of the time, an election takes several tries.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// How often other ports are chosen.
const PORT_TRIES: usize = 5;

/// What each server of a cluster is told besides its name, its ports and its folder.
#[derive(Clone, Debug)]
pub struct Setup {
    pub servers: usize,
    /// The value of `sync_interval`; none leaves the server's default.
    pub sync_interval: Option<&'static str>,
    /// Further lines of the configuration.
    pub more: String,
    /// Whether servers reach each other by ways that can break: [`Cluster::isolate`].
    pub can_be_cut: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { servers: 3, sync_interval: Some("always"), more: String::new(), can_be_cut: false }
    }
}

/// Servers that form one cluster. They end with it.
pub struct Cluster {
    pub dir: TempDir,
    setup: Setup,
    ports: Vec<Ports>,
    /// From each server to all; empty where they can't be cut.
    ways: Vec<Network>,
    running: Mutex<Vec<Option<Child>>>,
}

#[derive(Clone, Copy)]
struct Ports {
    client: u16,
    cluster: u16,
    monitor: u16,
}

/// The server's program: `BULLA_NATS_SERVER`, what `make test` installs, or the one in PATH.
fn program() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/nats/nats-server");
    let named = std::env::var_os("BULLA_NATS_SERVER").map(PathBuf::from);
    let found = named.or_else(|| installed.exists().then_some(installed)).unwrap_or_else(|| "nats-server".into());
    let answered = Command::new(&found).arg("--version").output();
    let is_there = answered.is_ok_and(|output| output.status.success());
    assert!(is_there, "no nats-server: `make nats-server` installs it, or BULLA_NATS_SERVER names it");
    found
}

impl Cluster {
    pub fn start(setup: Setup) -> Self {
        // Another program may take a port between its choice and its use.
        for _ in 0..PORT_TRIES {
            let listeners: Vec<_> = (0..3 * setup.servers).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let mut free = listeners.iter().map(|listener| listener.local_addr().unwrap().port());
            let mut port = || free.next().unwrap();
            let ports: Vec<_> =
                (0..setup.servers).map(|_| Ports { client: port(), cluster: port(), monitor: port() }).collect();
            drop(listeners);
            let ends: Vec<_> = ports.iter().map(|ports| format!("127.0.0.1:{}", ports.cluster)).collect();
            let from = if setup.can_be_cut { setup.servers } else { 0 };
            let ways = (0..from).map(|_| Network::before(&ends)).collect();
            let running = Mutex::new((0..setup.servers).map(|_| None).collect());
            let cluster = Cluster { dir: tempfile::tempdir().unwrap(), setup: setup.clone(), ports, ways, running };
            match (0..cluster.setup.servers).try_for_each(|index| cluster.try_start(index)) {
                Ok(()) => return cluster,
                Err(log) => assert!(log.contains("address already in use"), "{log}"),
            }
        }
        panic!("no free ports");
    }

    /// The cluster that tests share which break nothing. It ends with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return cluster;
        }
        let cluster = Arc::new(Cluster::start(Setup::default()));
        *shared = Arc::downgrade(&cluster);
        cluster
    }

    fn configuration(&self, index: usize) -> String {
        let (ports, dir) = (self.ports[index], self.dir.path());
        let mut text = format!(
            "server_name: n{index}\nlisten: 127.0.0.1:{}\nhttp: 127.0.0.1:{}\n{}\n",
            ports.client, ports.monitor, self.setup.more
        );
        let sync = self.setup.sync_interval.map_or(String::new(), |value| format!("sync_interval: {value}"));
        let store = dir.join(format!("n{index}"));
        writeln!(text, "jetstream {{ store_dir: {:?}, max_file_store: 16GB\n{sync} }}", store).unwrap();
        if self.setup.servers > 1 {
            let others = (0..self.setup.servers).filter(|other| *other != index);
            let routes: Vec<_> = others.map(|other| format!("nats://{}", self.way(index, other))).collect();
            let (listen, routes) = (ports.cluster, routes.join(", "));
            // A server that hears of another one from a third connects to where that one says it is, past the ways that
            // can be cut: where they are, it says a place where nothing is.
            let advertised = if self.setup.can_be_cut { "advertise: \"127.0.0.1:1\", " } else { "" };
            writeln!(
                text,
                "cluster {{ name: bulla, listen: 127.0.0.1:{listen}, {advertised}no_advertise: true, \
                 routes: [{routes}] }}"
            )
            .unwrap();
        }
        text
    }

    /// Where a server reaches another one.
    fn way(&self, from: usize, to: usize) -> String {
        let straight = || format!("127.0.0.1:{}", self.ports[to].cluster);
        self.ways.get(from).map_or_else(straight, |way| way.addresses[to].clone())
    }

    /// Cuts a server off from all others, not from its clients.
    pub fn isolate(&self, server: usize) {
        for (from, way) in self.ways.iter().enumerate() {
            (0..self.setup.servers).filter(|to| (from == server) != (*to == server)).for_each(|to| way.breaks(to));
        }
    }

    /// Cuts two servers off from each other, not from the third.
    pub fn cut(&self, one: usize, other: usize) {
        self.ways[one].breaks(other);
        self.ways[other].breaks(one);
    }

    /// All servers reach each other again.
    pub fn rejoin(&self) {
        self.ways.iter().for_each(Network::heals);
    }

    /// Starts a server that does not run, and waits until its port is open.
    pub fn start_server(&self, index: usize) {
        self.try_start(index).unwrap();
    }

    /// The same; what the server logged, if it ends.
    fn try_start(&self, index: usize) -> Result<(), String> {
        let path = self.dir.path().join(format!("n{index}.conf"));
        std::fs::write(&path, self.configuration(index)).unwrap();
        let log = std::fs::File::options().create(true).append(true).open(path.with_extension("log")).unwrap();
        let mut command = Command::new(program());
        command.arg("-c").arg(&path).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        until("a server's port opens", || {
            if child.try_wait().unwrap().is_some() {
                return Some(Err(std::fs::read_to_string(path.with_extension("log")).unwrap()));
            }
            TcpStream::connect(("127.0.0.1", self.ports[index].client)).ok().map(|_| Ok(()))
        })?;
        self.running.lock().unwrap()[index] = Some(child);
        Ok(())
    }

    /// Ends a server as `kill -9` does.
    pub fn kill_server(&self, index: usize) {
        if let Some(mut child) = self.running.lock().unwrap()[index].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends a server as its administrator does: by TERM.
    pub fn end_server(&self, index: usize) {
        if let Some(mut child) = self.running.lock().unwrap()[index].take() {
            assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
            child.wait().unwrap();
        }
    }

    /// Copies the store of a server that has ended; or puts the copy into its place.
    pub fn copy_store(&self, index: usize, restores: bool) {
        let store = self.dir.path().join(format!("n{index}"));
        let (from, to) = (store.clone(), store.with_extension("saved"));
        let (from, to) = if restores { (to, from) } else { (from, to) };
        if restores {
            std::fs::remove_dir_all(&to).unwrap();
        }
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    }

    pub fn servers(&self) -> Vec<String> {
        self.ports.iter().map(|ports| format!("127.0.0.1:{}", ports.client)).collect()
    }

    pub fn monitors(&self) -> Vec<String> {
        self.ports.iter().map(|ports| format!("127.0.0.1:{}", ports.monitor)).collect()
    }

    /// Options for a group on this cluster; each call is another instance.
    pub fn options(&self, group: &str, owner: &str) -> Options {
        let mut options = Options::new(group, owner, fastrand::u64(..), self.servers());
        options.replicas = self.setup.servers;
        options.stream_bytes = 256 << 20;
        options.monitors = self.monitors();
        options.durability = Durability::Required;
        options
    }

    /// The index of the server that leads a group's stream.
    pub fn leader(&self, group: &str) -> usize {
        leader(&self.servers(), group)
    }

    /// The same, as servers besides one say.
    pub fn leader_by_others(&self, group: &str, than: usize) -> usize {
        let mut servers = self.servers();
        servers.remove(than);
        leader(&servers, group)
    }

    pub fn raw(&self) -> Raw {
        Raw::connect(&self.servers())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.setup.servers {
            self.kill_server(index);
        }
    }
}

fn leader(servers: &[String], group: &str) -> usize {
    let raw = Raw::connect(servers);
    until("the stream has a leader", || {
        let info = raw.api(&format!("STREAM.INFO.{group}"), json!({}))?;
        info["cluster"]["leader"].as_str()?.strip_prefix('n')?.parse().ok()
    })
}

/// Asks again until there is an answer.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {READY_WITHIN:?}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Does again what the engine could not do for now, as the program does: a stream that was just made, or whose leader
/// is gone, has no leader for a while.
pub fn tried<T, E: Into<OpenError>>(what: &str, attempt: impl FnMut() -> Result<T, E>) -> T {
    answered(attempt).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// The same, for what may be refused.
pub fn answered<T, E: Into<OpenError>>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, OpenError> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        match attempt().map_err(Into::into) {
            Err(OpenError::Log(LogError::Unavailable(_))) if Instant::now() < deadline => {}
            done => return done,
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Opens a log. A server that is slow to say how it keeps its files is asked again, too.
pub fn open(options: Options) -> JetStreamLog {
    tried("a log is opened", || JetStreamLog::open(options.clone()))
}

/// Why a log does not open, once it is for a reason with these words.
pub fn refused(options: &Options, words: &str) {
    until(words, || JetStreamLog::open(options.clone()).err().filter(|error| error.to_string().contains(words)));
}

/// Claims a log. The epoch may have grown by more than one: of a claim without an answer it is not known whether it is
/// in.
pub fn claim(log: &mut dyn Log, how: Claim) -> (Epoch, Position) {
    tried("a log is claimed", || log.claim(Instant::now(), how))
}

/// A client of the engine, for what a log does not do.
pub struct Raw {
    pub runtime: Runtime,
    pub client: Client,
}

impl Raw {
    pub fn connect(servers: &[String]) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = ConnectOptions::new().request_timeout(Some(Duration::from_secs(2)));
        let client = until("a server lets a client in", || runtime.block_on(options.clone().connect(servers)).ok());
        Raw { runtime, client }
    }

    pub fn api(&self, what: &str, body: Value) -> Option<Value> {
        let request = Request::new().payload(body.to_string().into());
        let answer = self.runtime.block_on(self.client.send_request(format!("$JS.API.{what}"), request)).ok()?;
        serde_json::from_slice(&answer.payload).ok()
    }

    /// Publishes into a stream, once: the message's sequence.
    pub fn publish(&self, subject: &str, payload: &[u8]) -> u64 {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", fastrand::u64(..).to_string());
        until("the stream takes a message", || {
            let request = Request::new().headers(headers.clone()).payload(payload.to_vec().into());
            let answer = self.runtime.block_on(self.client.send_request(subject.to_owned(), request)).ok()?;
            serde_json::from_slice::<Value>(&answer.payload).ok()?["seq"].as_u64()
        })
    }

    /// Removes what a stream has of some subjects.
    pub fn purge(&self, stream: &str, subjects: &str) {
        until("the stream is purged", || {
            let purged = self.api(&format!("STREAM.PURGE.{stream}"), json!({ "filter": subjects }))?;
            (purged["success"] == true).then_some(())
        });
    }

    /// How many messages each subject of a group's stream has.
    pub fn subjects(&self, group: &str) -> Value {
        until("the stream tells its subjects", || {
            let info = self.api(&format!("STREAM.INFO.{group}"), json!({ "subjects_filter": ">" }))?;
            info["state"].is_object().then(|| info["state"]["subjects"].clone())
        })
    }
}
