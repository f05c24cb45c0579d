//! A shared queue beside the bare log: persistent messages of 2 KB through AMQP at the owner of a group, and frames as
//! large as theirs through `JetStreamLog` alone; and a local queue beside a group whose engine answers late. Three real
//! servers on loopback, each write synced; the queue manager is a process of its own. What is compared takes turns.
//!
//! `make shared-rates`, which builds the program: `cargo bench -p bulla-shared --bench rates [-- ROUNDS]`. `BULLA`
//! names the program, `target/release/bulla` where it does not.

#![allow(clippy::unwrap_used, reason = "a measurement may stop at what it did not expect")]

#[path = "../tests/servers/mod.rs"]
mod servers;

use bulla_amqp::{DeliveryState, Event};
use bulla_perf::load::client::{Broker, Client};
use bulla_perf::load::messages::Messages;
use bulla_queue::Log;
use bulla_queue::log::{Batch, Claim, Event as LogEvent, LogError, Position};
use bulla_shared::JetStreamLog;
use bulla_shared::frame::FRAME_HEADER_BYTES;
use serde_json::json;
use servers::network::Network;
use servers::{Cluster, Raw, Setup, claim, open, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROUNDS_DEFAULT: usize = 5;
/// How long each thing is done.
const MEASURED: Duration = Duration::from_secs(2);
/// Things that are compared closely take turns: how long each is done, and how often in a round.
const SLICE: Duration = Duration::from_millis(400);
const SLICES: usize = 5;
const GROUP: &str = "RATES";
const QUEUE: &str = "RATES.Q";
/// Bytes of a payload.
const BYTES: usize = 2_048;
/// Bytes of a record before the message, about.
const RECORD_HEAD_BYTES: usize = 64;
/// Puts that are not confirmed, and the credit of who gets.
const IN_FLIGHT: u64 = 1_000;
/// Bytes of each stream.
const STREAM_BYTES: u64 = 3 << 30;
const SLOW_GROUP: &str = "SLOW";
const SLOW_QUEUE: &str = "SLOW.Q";
const LOCAL_QUEUE: &str = "LOCAL.Q";
/// How late the slow group's engine answers; none where nothing is done there.
const DELAYS: [Option<Duration>; 4] =
    [None, Some(Duration::ZERO), Some(Duration::from_millis(10)), Some(Duration::from_secs(5))];
/// All users may do everything.
const OPEN_TO_ALL: &str = "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHADD(CONNECT)\n\
    SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)\n";

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(ROUNDS_DEFAULT);
    let cluster = Cluster::start(Setup::default());
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path());
    manager.mqsc(OPEN_TO_ALL).unwrap();
    manager.owns(&cluster, &cluster.servers(), GROUP, QUEUE);
    let raw = cluster.raw();
    let mut bare = Bare::open(&cluster);
    let broker = Broker::anonymous(&manager.address);
    let messages = Messages::of(BYTES, true);
    let mut found = Found::default();
    for round in 0..rounds {
        let (before, used) = (written(&raw), manager.processor());
        let (put, rate) = puts(&broker, QUEUE, &messages, IN_FLIGHT, MEASURED);
        found.puts.push(rate);
        found.put_processor.push((manager.processor() - used) / put as f64 * 1e6);
        let messages_a_frame = put as f64 / (written(&raw) - before);
        let frame_bytes = messages_a_frame * (messages.put(0).len() + RECORD_HEAD_BYTES) as f64;
        found.frame_messages.push(messages_a_frame);
        found.frame_bytes.push(frame_bytes);
        let mut frames_alone = || found.bare.push(bare.frames(frame_bytes as usize) * messages_a_frame);
        if round % 2 == 0 {
            frames_alone();
        }
        let used = manager.processor();
        let rate = gets(&broker, QUEUE, put);
        found.get_processor.push((manager.processor() - used) / put as f64 * 1e6);
        if round % 2 == 1 {
            frames_alone();
        }
        found.gets.push(rate);
        for _ in 0..SLICES {
            let (one, rate) = puts(&broker, QUEUE, &messages, 1, SLICE);
            found.publish.push(1e3 / publishes(&raw));
            found.one.push(1e3 / rate);
            gets(&broker, QUEUE, one);
        }
    }
    found.show();
    println!();
    local(&manager, &cluster, rounds);
}

/// What a local queue does beside a group whose engine answers late: two stores, and none waits for the other.
fn local(manager: &Manager, cluster: &Cluster, rounds: usize) {
    let network = Network::before(&cluster.servers());
    manager.owns(cluster, &network.addresses, SLOW_GROUP, SLOW_QUEUE);
    manager.mqsc(&format!("DEFINE QLOCAL({LOCAL_QUEUE}) MAXDEPTH(999999999)")).unwrap();
    let broker = Broker::anonymous(&manager.address);
    let messages = Messages::of(BYTES, true);
    let mut found: Vec<Vec<f64>> = DELAYS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds * SLICES {
        // Alone, or beside one client that puts on the slow group's queue and gets from it.
        for step in 0..DELAYS.len() {
            let case = (round + step) % DELAYS.len();
            let delay = DELAYS[case];
            let ends = AtomicBool::new(false);
            network.slows(delay.unwrap_or_default());
            std::thread::scope(|scope| {
                if delay.is_some() {
                    scope.spawn(|| keeps_on(&broker, &messages, &ends));
                }
                let (count, puts) = puts(&broker, LOCAL_QUEUE, &messages, IN_FLIGHT, SLICE);
                let gets = gets(&broker, LOCAL_QUEUE, count);
                found[case].push(1.0 / (1.0 / puts + 1.0 / gets));
                ends.store(true, Ordering::Relaxed);
            });
        }
    }
    println!("| put on a local queue, 1,000 in flight, and then got: messages/s | median [least–most] |");
    println!("| --- | --- |");
    for (delay, rates) in DELAYS.iter().zip(&found) {
        let beside = |delay| format!("beside a group whose engine answers {delay:?} later");
        show(&delay.map_or("alone".to_owned(), beside), rates, 0);
    }
    let parts: Vec<_> = found[1..].iter().map(|rates| format!("{:.2}", ratio(rates, &found[0]))).collect();
    println!("beside ÷ alone {} (medians of pairs)", parts.join(", "));
}

/// Puts on the slow group's queue, one in flight, with a reader there, until it is told to end.
fn keeps_on(broker: &Broker, messages: &Messages, ends: &AtomicBool) {
    let mut client = Client::connect(broker, "slow").unwrap();
    let to = client.sender(SLOW_QUEUE).unwrap();
    let from = client.receiver(SLOW_QUEUE, 1).unwrap();
    let mut in_flight = 0;
    for number in 0.. {
        if in_flight == 0 && client.engine.can_send(to.id) {
            client.engine.send(to.id, number, messages.put(number), false);
            in_flight += 1;
        }
        client.flush().unwrap();
        client.read(None).unwrap();
        while let Some(event) = client.event().unwrap() {
            match event {
                Event::Outcome { .. } => in_flight -= 1,
                Event::Delivery(delivery) => {
                    client.engine.dispose(from.id, delivery.id, DeliveryState::Accepted);
                    client.engine.set_credit(from.id, 1);
                }
                _ => {}
            }
        }
        if ends.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn ratio(over: &[f64], under: &[f64]) -> f64 {
    median(over.iter().zip(under).map(|(over, under)| over / under))
}

/// What was found, of each round.
#[derive(Default)]
struct Found {
    puts: Vec<f64>,
    bare: Vec<f64>,
    gets: Vec<f64>,
    frame_bytes: Vec<f64>,
    frame_messages: Vec<f64>,
    put_processor: Vec<f64>,
    get_processor: Vec<f64>,
    one: Vec<f64>,
    publish: Vec<f64>,
}

impl Found {
    fn show(&self) {
        println!("| what | median [least–most] |\n| --- | --- |");
        show("puts with 1,000 in flight, messages/s", &self.puts, 0);
        show("the bare log with frames as large, messages/s", &self.bare, 0);
        show("gets with a credit of 1,000, messages/s", &self.gets, 0);
        show("messages of a frame", &self.frame_messages, 0);
        show("bytes of a frame", &self.frame_bytes, 0);
        show("processor time of the queue manager, µs a put", &self.put_processor, 1);
        show("the same, µs a get", &self.get_processor, 1);
        show("one put in flight, ms", &self.one, 2);
        show("the engine's own publish of as much, ms", &self.publish, 2);
        println!(
            "puts ÷ bare log {:.2}, gets ÷ puts {:.2}, ",
            ratio(&self.puts, &self.bare),
            ratio(&self.gets, &self.puts)
        );
        println!("one put in flight ÷ publish {:.2} (medians of rounds)", ratio(&self.one, &self.publish));
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn show(what: &str, values: &[f64], digits: usize) {
    let (least, most) = (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max));
    let middle = median(values.iter().copied());
    println!("| {what} | {middle:.digits$} [{least:.digits$}–{most:.digits$}] |");
}

/// How many were put and confirmed, and how many a second.
fn puts(broker: &Broker, queue: &str, messages: &Messages, in_flight: u64, time: Duration) -> (u64, f64) {
    let mut client = Client::connect(broker, "put").unwrap();
    let link = client.sender(queue).unwrap();
    let (mut sent, mut confirmed, began) = (0, 0, Instant::now());
    while confirmed < sent || began.elapsed() < time {
        while began.elapsed() < time && sent - confirmed < in_flight && client.engine.can_send(link.id) {
            client.engine.send(link.id, sent, messages.put(sent), false);
            sent += 1;
        }
        client.flush().unwrap();
        client.read(None).unwrap();
        while let Some(event) = client.event().unwrap() {
            if let Event::Outcome { state, .. } = event {
                assert!(matches!(state, Some(DeliveryState::Accepted)), "{state:?}");
                confirmed += 1;
            }
        }
        client.check_alive().unwrap();
    }
    let rate = confirmed as f64 / began.elapsed().as_secs_f64();
    client.close().unwrap();
    (confirmed, rate)
}

/// Gets so many, each accepted; how many a second, until the queue is empty in the log as well.
fn gets(broker: &Broker, queue: &str, count: u64) -> f64 {
    let mut client = Client::connect(broker, "get").unwrap();
    let began = Instant::now();
    let link = client.receiver(queue, IN_FLIGHT as u32).unwrap();
    let mut got = 0;
    while got < count {
        client.read(None).unwrap();
        while let Some(event) = client.event().unwrap() {
            if let Event::Delivery(delivery) = event {
                client.engine.dispose(link.id, delivery.id, DeliveryState::Accepted);
                got += 1;
            }
        }
        if client.engine.credit(link.id) <= IN_FLIGHT as u32 / 2 {
            client.engine.set_credit(link.id, IN_FLIGHT as u32);
        }
        client.flush().unwrap();
        client.check_alive().unwrap();
    }
    let rate = got as f64 / began.elapsed().as_secs_f64();
    client.close().unwrap();
    rate
}

/// Publishes of one message, each when the last was confirmed: how many a second.
fn publishes(raw: &Raw) -> f64 {
    let body = vec![7; BYTES];
    let (mut count, began) = (0, Instant::now());
    while began.elapsed() < SLICE {
        raw.publish("BARE.part.0.0.0", &body);
        count += 1;
    }
    let rate = f64::from(count) / began.elapsed().as_secs_f64();
    raw.purge("BARE", "BARE.part.>");
    rate
}

/// How many messages the group's stream has had.
fn written(raw: &Raw) -> f64 {
    until("the stream tells what it has", || {
        raw.api(&format!("STREAM.INFO.{GROUP}"), json!({}))?["state"]["last_seq"].as_f64()
    })
}

/// A log of its own in the same servers.
struct Bare {
    log: JetStreamLog,
    end: Position,
}

impl Bare {
    fn open(cluster: &Cluster) -> Self {
        let mut options = cluster.options("BARE", "BENCH");
        options.stream_bytes = STREAM_BYTES;
        let waiting = std::thread::current();
        options.waker = Arc::new(move || waiting.unpark());
        let mut log = open(options);
        let (_, end) = claim(&mut log, Claim::Force);
        Bare { log, end }
    }

    /// Frames of so many bytes, each when the last is in: how many a second.
    fn frames(&mut self, bytes: usize) -> f64 {
        let (head, body) = (vec![0; FRAME_HEADER_BYTES], vec![7; bytes.saturating_sub(FRAME_HEADER_BYTES)]);
        let (mut events, mut spare) = (Vec::new(), vec![Batch { at: 0, head, body, patient: false }]);
        let (mut count, began) = (0, Instant::now());
        while began.elapsed() < MEASURED {
            let mut batch = spare.pop().unwrap();
            batch.at = self.end.0;
            self.end = batch.end();
            self.log.submit(batch).unwrap();
            loop {
                match self.log.poll(Instant::now(), &mut events, &mut spare) {
                    // What is wrong for now is tried again.
                    Ok(()) | Err(LogError::Unavailable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                match events.pop() {
                    Some(LogEvent::Synced(at)) => break assert_eq!(at, self.end),
                    Some(other) => panic!("{other:?}"),
                    None => std::thread::park(),
                }
            }
            count += 1;
        }
        let rate = f64::from(count) / began.elapsed().as_secs_f64();
        self.log.release(self.end).unwrap();
        rate
    }
}

/// A queue manager in a process of its own, ended with this.
struct Manager {
    process: Child,
    data: PathBuf,
    address: String,
}

/// The program that is measured.
fn program() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/bulla");
    std::env::var_os("BULLA").map_or(built, PathBuf::from)
}

impl Manager {
    fn start(dir: &Path) -> Self {
        let (data, log) = (dir.join("qm"), dir.join("log"));
        let mut command = Command::new(program());
        command.arg("start").arg("--data").arg(&data).args(["--amqp", "127.0.0.1:0", "--amqps", "none"]);
        command.arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(Stdio::null());
        let process = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let address = until("it listens", || {
            let told = std::fs::read_to_string(&log).unwrap();
            let (_, address) = told.split_once("amqp on ")?;
            Some(address.split_once('\n')?.0.trim().to_owned())
        });
        Manager { process, data, address }
    }

    fn mqsc(&self, commands: &str) -> Result<(), String> {
        let mut command = Command::new(program());
        let done = command.args(["mqsc", "--data"]).arg(&self.data).args(["-c", commands]).output().unwrap();
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into()) }
    }

    /// Makes it the owner of a group with one queue, whose servers it reaches there.
    fn owns(&self, cluster: &Cluster, servers: &[String], group: &str, queue: &str) {
        let (servers, monitors) = (servers.join(","), cluster.monitors().join(","));
        let made = format!("SERVERS('{servers}') MONITORS('{monitors}') MAXBYTES({STREAM_BYTES})");
        self.mqsc(&format!("DEFINE QSGROUP({group}) {made}\nSTART QSGROUP({group})")).unwrap();
        let queue = format!("DEFINE QLOCAL({queue}) QSGDISP(SHARED) QSGROUP({group}) MAXDEPTH(999999999)");
        until("it owns the group", || self.mqsc(&queue).ok());
    }

    /// Seconds of processor time so far, user and system.
    fn processor(&self) -> f64 {
        const TICKS_A_SECOND: f64 = 100.0;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>()
            / TICKS_A_SECOND
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends by itself when its input does; what is left of it otherwise has no owner.
        let _ = self.process.wait();
    }
}
