//! Many connections, many links, many queues: what they hold in memory, what they cost a stream, how long a start
//! takes.
//!
//! The queue manager is a process of its own, so that its memory and its processor time are its own; the client is one
//! thread that looks after all connections. Every link's queue is its own, so that a message comes back to who put it.
//! `cargo bench -p bulla --bench crowd`, or one part of it with `-- crowd`, `-- alone` (its first case) or `-- queues`.
//! `BULLA` names another build's program to measure, with this client.

use bulla::users::Crypto;
use bulla_amqp::{
    AttachRequest, Config, Connection, DeliveryState, Event, LinkId, MessageBody, MessageParts, Payload, Role,
    SaslClient,
};
use bytes::{Bytes, BytesMut};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Connections of the crowd.
const CONNECTIONS: usize = 1_000;
/// Pairs of a link that puts and a link that gets, of each connection.
const PAIRS: usize = 5;
/// Bytes of a payload.
const BYTES: usize = 2_048;
/// Rounds, in which all cases take turns.
const ROUNDS: usize = 3;
/// How long each case flows before it is measured, and how long it is.
const WARM_UP: Duration = Duration::from_millis(700);
const MEASURED: Duration = Duration::from_secs(3);
/// How long nothing happens before what is resident then is asked for.
const REST: Duration = Duration::from_secs(3);
/// Idle queues of the second part: as many as there may be, less those that are there from the start.
const QUEUES: usize = 99_900;
const STARTS: usize = 5;
/// Nothing takes longer unless it is broken.
const WITHIN: Duration = Duration::from_secs(60);
/// All users may do everything.
const OPEN_TO_ALL: &str = "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHADD(CONNECT)\n\
    SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)\n";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // Cargo says `--bench` here.
    let parts: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|word| word == part);
    if wanted("crowd") {
        crowd(true)?;
    } else if wanted("alone") {
        crowd(false)?;
    }
    if wanted("queues") {
        queues()?;
    }
    Ok(())
}

/// Connections and links: memory, then streams through one of them and, where `all` is asked for, through all.
fn crowd(all: bool) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let manager = Manager::start(dir.path())?;
    let mut definitions = OPEN_TO_ALL.to_owned();
    for number in 0..CONNECTIONS * PAIRS {
        writeln!(definitions, "DEFINE QLOCAL(CROWD.{number})")?;
    }
    manager.apply(&definitions)?;
    let before = manager.memory("VmRSS")?;
    let mut crowd = Crowd::connect(manager.address, 1)?;
    let mut cases: Vec<Case> = Vec::new();
    let mut case = |name: &'static str, members: usize, window: u32, crowd: &mut Crowd| -> Result<()> {
        let Stream { rate, cost, own_cost } = crowd.stream(&manager, members, window)?;
        let flight = members * PAIRS * window as usize;
        let place = cases.iter().position(|known| known.name == name).unwrap_or_else(|| {
            cases.push(Case { name, flight, rates: Vec::new(), costs: Vec::new(), own_costs: Vec::new() });
            cases.len() - 1
        });
        cases[place].rates.push(rate);
        cases[place].costs.push(cost);
        cases[place].own_costs.push(own_cost);
        Ok(())
    };
    for _ in 0..ROUNDS {
        case("one connection, alone", 1, 200, &mut crowd)?;
    }
    if !all {
        report(&mut cases);
        return Ok(());
    }
    let alone = manager.memory("VmRSS")?;
    crowd.grow(manager.address, CONNECTIONS)?;
    let idle = manager.memory("VmRSS")?;
    println!("{CONNECTIONS} connections of {} links: resident MiB", 2 * PAIRS);
    println!("  {before:.1} with {} queues, {alone:.1} after one connection's streams", CONNECTIONS * PAIRS);
    println!("  {idle:.1} with all connections, {:.1} KiB a connection", (idle - alone) * 1024.0 / CONNECTIONS as f64);
    for _ in 0..ROUNDS {
        case("one connection, the others idle", 1, 200, &mut crowd)?;
        case("as much in flight as of all", 1, 1_000, &mut crowd)?;
        case("as much in flight as of each", 1, 1, &mut crowd)?;
        case("as much in flight as of each, more", 1, 8, &mut crowd)?;
        case("all connections", CONNECTIONS, 1, &mut crowd)?;
        case("all connections, more", CONNECTIONS, 8, &mut crowd)?;
    }
    print!("  {:.1} after all streams, ", manager.memory("VmRSS")?);
    crowd.flow_for(REST)?;
    println!("{:.1} after {REST:?} of rest, {:.1} at most", manager.memory("VmRSS")?, manager.memory("VmHWM")?);
    report(&mut cases);
    Ok(())
}

/// Prints what was measured.
fn report(cases: &mut [Case]) {
    println!("streams of {BYTES} bytes, not persistent, confirmed and accepted: median [least to most] of {ROUNDS}");
    for Case { name, flight, rates, costs, own_costs } in cases {
        for samples in [&mut *rates, &mut *costs, &mut *own_costs] {
            samples.sort_by(f64::total_cmp);
        }
        println!(
            "  {name:<35} {flight:>6} in flight {:>9.0}/s [{:.0} to {:.0}]  {:.2} µs of the queue manager's a message [{:.2} to {:.2}], {:.2} of the client's",
            rates[ROUNDS / 2],
            rates[0],
            rates[ROUNDS - 1],
            costs[ROUNDS / 2],
            costs[0],
            costs[ROUNDS - 1],
            own_costs[ROUNDS / 2],
        );
    }
}

/// Idle queues: how long a start takes, and what is resident then.
fn queues() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let manager = Manager::start(dir.path())?;
    let mut definitions = String::new();
    for number in 0..QUEUES {
        writeln!(definitions, "DEFINE QLOCAL(IDLE.{number})")?;
    }
    let begun = Instant::now();
    manager.apply(&definitions)?;
    let defined = begun.elapsed();
    let (defining, at_most) = (manager.memory("VmRSS")?, manager.memory("VmHWM")?);
    drop(manager);
    let (mut times, mut memories, mut peak) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..STARTS {
        let begun = Instant::now();
        let manager = Manager::start(dir.path())?;
        times.push(begun.elapsed().as_secs_f64());
        memories.push(manager.memory("VmRSS")?);
        peak = peak.max(manager.memory("VmHWM")?);
    }
    times.sort_by(f64::total_cmp);
    memories.sort_by(f64::total_cmp);
    println!(
        "{QUEUES} idle queues: defined as one unit in {:.1} s, {defining:.0} MiB then, {at_most:.0} at most",
        defined.as_secs_f64()
    );
    println!(
        "  start: median {:.2} s of {STARTS} [{:.2} to {:.2}]; resident {:.0} MiB, at most {peak:.0}",
        times[STARTS / 2],
        times[0],
        times[STARTS - 1],
        memories[STARTS / 2]
    );
    Ok(())
}

/// What was measured of one case, a round each.
struct Case {
    name: &'static str,
    /// Messages under way.
    flight: usize,
    rates: Vec<f64>,
    costs: Vec<f64>,
    own_costs: Vec<f64>,
}

/// What one stream came to.
struct Stream {
    /// Messages a second.
    rate: f64,
    /// Microseconds of processor time a message: the queue manager's, and the client's.
    cost: f64,
    own_cost: f64,
}

/// A queue manager in a process of its own, ended with this.
struct Manager {
    process: Child,
    data: PathBuf,
    address: SocketAddr,
}

/// The program that is measured.
fn program() -> OsString {
    std::env::var_os("BULLA").unwrap_or_else(|| env!("CARGO_BIN_EXE_bulla").into())
}

impl Manager {
    fn start(dir: &Path) -> Result<Self> {
        let (data, log) = (dir.join("qm"), dir.join("log"));
        let mut command = Command::new(program());
        command.arg("start").arg("--data").arg(&data).args(["--amqp", "127.0.0.1:0", "--amqps", "none"]);
        command.arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let mut process = command.spawn()?;
        let deadline = Instant::now() + WITHIN;
        while Instant::now() < deadline {
            let told = fs::read_to_string(&log)?;
            if let Some((_, address)) = told.split_once("amqp on ")
                && let Some((address, _)) = address.split_once('\n')
            {
                return Ok(Self { process, data, address: address.trim().parse()? });
            }
            // The log is a file, which can't be waited for; what is measured begins when the line is there.
            thread::sleep(Duration::from_millis(2));
        }
        process.kill()?;
        Err("it did not start".into())
    }

    /// Makes all of it at once.
    fn apply(&self, definitions: &str) -> Result<()> {
        let file = self.data.with_extension("mqsc");
        fs::write(&file, definitions)?;
        let mut command = Command::new(program());
        let done = command.args(["mqsc", "--data"]).arg(&self.data).arg("--apply").arg(&file).output()?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into()) }
    }

    fn of_proc(&self, file: &str) -> Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/{file}", self.process.id()))?)
    }

    fn processor(&self) -> Result<f64> {
        processor(&self.of_proc("stat")?)
    }

    /// Mebibytes: VmRSS now, VmHWM at most.
    fn memory(&self, which: &str) -> Result<f64> {
        let status = self.of_proc("status")?;
        let line = status.lines().find(|line| line.starts_with(which)).ok_or("no such line")?;
        let kib: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
        Ok(kib / 1024.0)
    }
}

/// Seconds of processor time, user and system, of the process that this is `/proc/PID/stat` of.
fn processor(stat: &str) -> Result<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<std::result::Result<f64, _>>()? / TICKS_A_SECOND)
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends by itself when its input does; what is left of it otherwise has no owner.
        let _ = self.process.wait();
    }
}

/// All connections, and the one thread's means to look after them.
struct Crowd {
    poll: Poll,
    events: Events,
    members: Vec<Member>,
    room: Vec<u8>,
    message: Payload,
}

/// One connection.
struct Member {
    stream: TcpStream,
    engine: Connection,
    input: BytesMut,
    pairs: Vec<Pair>,
    open_links: usize,
    /// Messages that came.
    got: u64,
    /// Messages in flight wanted of each pair.
    window: u32,
    wants_to_read: bool,
    can_write: bool,
}

/// A link that puts and one that gets what it put.
struct Pair {
    puts: LinkId,
    gets: LinkId,
    /// Put and not yet come back, or not yet confirmed.
    away: u32,
    unconfirmed: u32,
}

/// Credit of each link that gets.
const CREDIT: u32 = 2_000;

impl Crowd {
    fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        let body = MessageBody::Data(Payload::from(Bytes::from_static(&[7; BYTES])));
        let message = MessageParts { body, ..MessageParts::default() }.build();
        let (poll, events) = (Poll::new()?, Events::with_capacity(1024));
        let mut crowd = Self { poll, events, members: Vec::new(), room: vec![0; 256 << 10], message };
        crowd.grow(address, count)?;
        Ok(crowd)
    }

    /// Until there are so many, all links open.
    fn grow(&mut self, address: SocketAddr, count: usize) -> Result<()> {
        for number in self.members.len()..count {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(number), interest)?;
            let config = Config::new(format!("crowd-{number}"));
            let engine = Connection::client(config, SaslClient::None, Box::new(Crypto), Instant::now());
            let (input, pairs) = (BytesMut::new(), Vec::new());
            self.members.push(Member {
                stream,
                engine,
                input,
                pairs,
                open_links: 0,
                got: 0,
                window: 0,
                wants_to_read: false,
                can_write: true,
            });
        }
        for number in 0..self.members.len() {
            self.members[number].turn(number, &mut self.room, &self.message)?;
        }
        let all_open = |crowd: &Self| crowd.members.iter().all(|member| member.open_links == 2 * PAIRS);
        self.go_on_until(all_open)
    }

    fn go_on_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + WITHIN;
        while !done(self) {
            if Instant::now() > deadline {
                return Err("nothing happens any more".into());
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Looks after every connection on which something happened.
    fn turn(&mut self) -> Result<()> {
        self.poll.poll(&mut self.events, Some(Duration::from_millis(10)))?;
        for event in &self.events {
            let Token(number) = event.token();
            let member = &mut self.members[number];
            member.wants_to_read |= event.is_readable();
            member.can_write |= event.is_writable();
            member.turn(number, &mut self.room, &self.message)?;
        }
        Ok(())
    }

    /// Messages through the first `members` connections with `window` of each pair in flight.
    fn stream(&mut self, manager: &Manager, members: usize, window: u32) -> Result<Stream> {
        for number in 0..members {
            self.members[number].window = window;
            self.members[number].turn(number, &mut self.room, &self.message)?;
        }
        self.flow_for(WARM_UP)?;
        let own = || processor(&fs::read_to_string("/proc/self/stat")?);
        let (begun, had, spent, own_spent) = (Instant::now(), self.got(), manager.processor()?, own()?);
        self.flow_for(MEASURED)?;
        let (took, count) = (begun.elapsed().as_secs_f64(), (self.got() - had) as f64);
        let (spent, own_spent) = (manager.processor()? - spent, own()? - own_spent);
        self.members.iter_mut().for_each(|member| member.window = 0);
        self.go_on_until(|crowd| crowd.members.iter().all(Member::is_still))?;
        Ok(Stream { rate: count / took, cost: spent * 1e6 / count, own_cost: own_spent * 1e6 / count })
    }

    fn flow_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    fn got(&self) -> u64 {
        self.members.iter().map(|member| member.got).sum()
    }
}

impl Member {
    fn is_still(&self) -> bool {
        self.pairs.iter().all(|pair| pair.away == 0 && pair.unconfirmed == 0)
    }

    fn turn(&mut self, number: usize, room: &mut [u8], message: &Payload) -> Result<()> {
        while self.wants_to_read {
            match self.stream.read(room) {
                Ok(0) => return Err("the queue manager hung up".into()),
                Ok(count) => {
                    self.input.extend_from_slice(&room[..count]);
                    self.engine.receive(Instant::now(), &mut self.input);
                    self.wants_to_read = count == room.len();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wants_to_read = false,
                Err(error) => return Err(error.into()),
            }
        }
        self.hear(number)?;
        for pair in &mut self.pairs {
            while pair.away.max(pair.unconfirmed) < self.window && self.engine.can_send(pair.puts) {
                self.engine.send(pair.puts, 0, message.clone(), false);
                pair.away += 1;
                pair.unconfirmed += 1;
            }
        }
        while self.can_write && self.engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.engine.output_slices(&mut slices);
            match self.stream.write_vectored(&slices) {
                Ok(count) => {
                    drop(slices);
                    self.engine.output_written(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_write = false,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What the queue manager said.
    fn hear(&mut self, number: usize) -> Result<()> {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Opened(_) => {
                    let session = self.engine.begin();
                    for pair in 0..PAIRS {
                        let queue = format!("CROWD.{}", number * PAIRS + pair);
                        let puts = AttachRequest::sender(format!("put-{pair}"), &queue);
                        let gets = AttachRequest::receiver(format!("get-{pair}"), &queue);
                        let (puts, gets) = (self.engine.attach(session, puts), self.engine.attach(session, gets));
                        self.pairs.push(Pair { puts, gets, away: 0, unconfirmed: 0 });
                    }
                }
                Event::LinkOpened(opened) => {
                    self.open_links += 1;
                    if self.engine.link(opened.link).is_some_and(|link| link.role == Role::Receiver) {
                        self.engine.set_credit(opened.link, CREDIT);
                    }
                }
                Event::Delivery(delivery) => {
                    let pair = self.pairs.iter_mut().find(|pair| pair.gets == delivery.link).ok_or("whose is it?")?;
                    (pair.away, self.got) = (pair.away - 1, self.got + 1);
                    self.engine.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
                    if self.engine.credit(delivery.link) < CREDIT / 2 {
                        self.engine.set_credit(delivery.link, CREDIT);
                    }
                }
                Event::Outcome { link, state, .. } => {
                    if !matches!(state, Some(DeliveryState::Accepted)) {
                        return Err(format!("not accepted: {state:?}").into());
                    }
                    let pair = self.pairs.iter_mut().find(|pair| pair.puts == link).ok_or("whose is it?")?;
                    pair.unconfirmed -= 1;
                }
                Event::Detached { error, .. } | Event::SessionEnded(_, error) | Event::Closed(error) => {
                    return Err(format!("ended: {error:?}").into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}
