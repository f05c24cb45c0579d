//! What queues, policies, channels, crypto devices and tasks counted, for Prometheus: the numbers of `bulla report`, in
//! the text format 0.0.4, over HTTP/1.1.
//!
//! `GET /metrics` is the one request there is. Requests are parsed by `httparse`; what it sees is at most
//! [`REQUEST_BYTES_MAX`], and one connection is answered after another, each within [`CONNECTION_TIME_MAX`], so that an
//! unauthenticated client costs little.

mod ends;
mod enrolment;
mod health;
mod keys;
mod limits;
mod log_ins;
mod traffic;

use crate::audit::AuditCounts;
use crate::catalog::log_ins::LogInCounts;
use crate::catalog::status::{
    CostSnapshot, DeviceMeters, DeviceState, EnrolmentStatus, PROCESS, Snapshot, TaskKind, TaskMeters, TaskSnapshot,
};
use crate::manager::UnitCounts;
use bulla_device::role::{self, Role};
use bulla_device::{Histogram, Kind, OperationMeter};
pub use ends::{CertificateEnd, Ends, KnownEnds, ListEnd, ends_text};
pub use enrolment::enrolments_text;
pub use health::{HealthSnapshot, health_text};
pub use keys::{KeySnapshot, keys_text};
pub use limits::{LimitSnapshot, limits_text};
pub use log_ins::log_ins_text;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
pub(crate) use traffic::labelled;
pub use traffic::{OBJECTS_LABELLED_MAX, TrafficSnapshot, WithoutSeries, traffic_text};

/// Most bytes of a request: its line and its headers. A longer one is refused with 431.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most headers of a request.
pub const HEADERS_MAX: usize = 64;
/// How long a connection may take, request and answer together.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long stopping waits for its own connection to be taken.
const WAKE_TIME_MAX: Duration = Duration::from_secs(1);

/// The format's name on the wire.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bounds of histogram buckets: 2^12 - 1 ns, 4 µs, is the first one, 2^34 - 1 ns, 17 s, the last. They are bounds of
/// [`Histogram`]'s own buckets, so that the counts are exact.
const BOUNDS_LOG2: std::ops::RangeInclusive<u32> = 12..=34;

/// The answering side, while it runs.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What is shown.
#[derive(Debug, Default)]
pub struct Counts {
    /// What the devices counted.
    pub devices: Snapshot,
    /// What the tasks counted.
    pub tasks: TaskSnapshot,
    /// What the roles cost.
    pub costs: CostSnapshot,
    /// What queues, policies and channels counted.
    pub traffic: TrafficSnapshot,
    /// Units of work since the start.
    pub units: UnitCounts,
    /// Entries of the audit log since the start.
    pub audit: AuditCounts,
    /// What limits users, and what is arriving.
    pub limits: LimitSnapshot,
    /// Certificates that renew by themselves.
    pub enrolments: Vec<EnrolmentStatus>,
    /// When certificates and revocation lists end.
    pub ends: Ends,
    /// Keys that messages need.
    pub keys: KeySnapshot,
    /// Log-ins over HTTP.
    pub log_ins: LogInCounts,
    /// Whether the queue manager is well.
    pub health: HealthSnapshot,
}

impl Counts {
    /// All metrics as text.
    pub fn text(&self) -> String {
        text(&self.devices)
            + &task_text(&self.tasks)
            + &cost_text(&self.costs)
            + &units_text(&self.units)
            + &audit_text(&self.audit)
            + &limits_text(&self.limits)
            + &log_ins_text(&self.log_ins)
            + &enrolments_text(&self.enrolments)
            + &ends_text(&self.ends)
            + &health_text(&self.health)
            + &traffic_text(&self.traffic)
            + &keys_text(&self.keys)
    }
}

/// The audit log's metrics as text.
fn audit_text(counts: &AuditCounts) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    let families = [
        ("bulla_audit_entries_total", "Entries of the audit log that were written and synced.", counts.written),
        ("bulla_audit_dropped_total", "Entries that are missing in the audit log, as its gaps tell.", counts.dropped),
        ("bulla_audit_failures_total", "Tries to write or sync the audit log that failed.", counts.failures),
    ];
    for (name, help, count) in families {
        family.begin(name, "counter", help);
        family.sample("", "", count);
    }
    out
}

/// Units of work as text.
fn units_text(units: &UnitCounts) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    family.begin("bulla_units_committed_total", "counter", "Units of work that were committed.");
    family.sample("", "", units.committed);
    family.begin("bulla_units_backed_out_total", "counter", "Units of work that were backed out.");
    family.sample("", "", units.backed_out);
    out
}

/// Answers requests on a thread named `metrics` until [`Server::stop`]; `source` says what to show.
///
/// # Errors
/// No thread could be started, or the listener has no address.
pub fn serve(listener: TcpListener, source: impl Fn() -> Counts + Send + 'static) -> io::Result<Server> {
    let address = listener.local_addr()?;
    let stopping = Arc::new(AtomicBool::new(false));
    let stop = stopping.clone();
    let thread = thread::Builder::new().name("metrics".into()).spawn(move || {
        role::begin(Role::Administration);
        for stream in listener.incoming() {
            if stop.load(Ordering::Acquire) {
                break;
            }
            match stream {
                // A connection that fails is its own misfortune: the other end sees it close.
                Ok(stream) => drop(answer(stream, Instant::now() + CONNECTION_TIME_MAX, &source)),
                // Out of descriptors, most likely: asking again at once would only burn the processor.
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    })?;
    Ok(Server { address, stopping, thread })
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends after the request in hand.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        // The thread waits for a connection: this is it. One that listens everywhere is reached here.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let here: std::net::IpAddr = match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            };
            address.set_ip(here);
        }
        if TcpStream::connect_timeout(&address, WAKE_TIME_MAX).is_ok() {
            let _ = self.thread.join();
        }
    }
}

/// What a request comes to.
#[derive(Debug, Eq, PartialEq)]
enum Request {
    /// More of it must arrive.
    Partial,
    /// The metrics, or only how long they are.
    Metrics { is_head: bool },
    /// Something else: the status to answer with.
    Refused(&'static str),
}

fn request(bytes: &[u8]) -> Request {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= REQUEST_BYTES_MAX => {
            return Request::Refused("431 Request Header Fields Too Large");
        }
        Ok(httparse::Status::Partial) => return Request::Partial,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Request::Refused("431 Request Header Fields Too Large"),
        Err(_) => return Request::Refused("400 Bad Request"),
    }
    let path = request.path.unwrap_or_default();
    match (request.method, path.split_once('?').map_or(path, |(path, _)| path)) {
        (Some(method @ ("GET" | "HEAD")), "/metrics") => Request::Metrics { is_head: method == "HEAD" },
        (Some("GET" | "HEAD"), _) => Request::Refused("404 Not Found"),
        _ => Request::Refused("405 Method Not Allowed"),
    }
}

fn answer(mut stream: TcpStream, deadline: Instant, source: &impl Fn() -> Counts) -> io::Result<()> {
    let mut bytes = vec![0; REQUEST_BYTES_MAX];
    let mut len = 0;
    let asked = loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let room = bytes.get_mut(len..).unwrap_or_default();
        match stream.read(room)? {
            0 => return Ok(()),
            more => len += more,
        }
        match request(bytes.get(..len).unwrap_or_default()) {
            Request::Partial => {}
            asked => break asked,
        }
    };
    let (status, kind, body, is_head) = match asked {
        Request::Metrics { is_head } => ("200 OK", CONTENT_TYPE, source().text(), is_head),
        Request::Refused(status) => (status, "text/plain", format!("{status}\n"), false),
        Request::Partial => return Ok(()),
    };
    let mut out =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    if status.starts_with("405") {
        out.push_str("Allow: GET, HEAD\r\n");
    }
    out.push_str("\r\n");
    if !is_head {
        out.push_str(&body);
    }
    let mut out = out.as_bytes();
    while !out.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = stream.write(out)?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        out = out.get(sent..).unwrap_or_default();
    }
    stream.shutdown(Shutdown::Write)
}

/// Time until the deadline, never nothing.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The tasks' metrics as text.
pub fn task_text(snapshot: &TaskSnapshot) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    let labels = |task: &TaskMeters| format!("type=\"{}\",task=\"{}\"", task.kind, escaped(&task.name));
    type Value = fn(&TaskMeters) -> u64;
    family.begin("bulla_task_up", "gauge", "1 while the task is there.");
    for task in &snapshot.tasks {
        family.sample("", &labels(task), u64::from(task.is_running));
    }
    family.begin("bulla_task_connections", "gauge", "Connections of a dispatcher.");
    for task in snapshot.tasks.iter().filter(|task| task.kind == TaskKind::Dispatcher) {
        family.sample("", &labels(task), task.connections);
    }
    family.begin("bulla_task_requests_total", "counter", "Requests that ended.");
    for task in &snapshot.tasks {
        family.sample("", &labels(task), task.requests);
    }
    let times: [(&str, &str, Value); 3] = [
        ("bulla_task_elapsed_seconds_total", "Time in requests.", |task| task.elapsed_ns),
        ("bulla_task_cpu_seconds_total", "Processor time in requests.", |task| task.cpu_ns),
        ("bulla_task_between_cpu_seconds_total", "Processor time of the task's thread between requests.", |task| {
            task.between_ns
        }),
    ];
    for (name, help, value) in times {
        family.begin(name, "counter", help);
        for task in &snapshot.tasks {
            family.sample("", &labels(task), Seconds(value(task)));
        }
    }
    out
}

/// The roles' metrics as text.
pub fn cost_text(snapshot: &CostSnapshot) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    family.begin(
        "bulla_cpu_seconds_total",
        "counter",
        "Processor time by role. With what is unattributed it adds up to process_cpu_seconds_total.",
    );
    for (role, ns) in snapshot.rows().filter(|(role, _)| *role != PROCESS) {
        family.sample("", &format!("role=\"{role}\""), Seconds(ns));
    }
    family.begin(
        "bulla_protection_cpu_seconds_total",
        "counter",
        "Of the processor time of protection, what was for puts: sealing, and checking what comes sealed; and for gets: \
         opening. The rest of it is the adapters' own.",
    );
    family.sample("", "direction=\"put\"", Seconds(snapshot.costs.sealing_ns));
    family.sample("", "direction=\"get\"", Seconds(snapshot.costs.opening_ns));
    family.begin("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.");
    family.sample("", "", Seconds(snapshot.costs.process_ns));
    family.begin("bulla_messages_put_total", "counter", "Messages put on all queues together.");
    family.sample("", "", snapshot.puts);
    family.begin("bulla_messages_got_total", "counter", "Messages got from all queues together.");
    family.sample("", "", snapshot.gets);
    let scratch = &snapshot.scratch;
    family.begin(
        "bulla_scratch_messages_total",
        "counter",
        "Messages that are not persistent and were written to scratch files, because the memory for messages was full.",
    );
    family.sample("", "", scratch.messages);
    family.begin("bulla_scratch_bytes_total", "counter", "Bytes of the messages that were written to scratch files.");
    family.sample("", "", scratch.bytes);
    family.begin("bulla_scratch_used_bytes", "gauge", "Bytes of the messages that lie in scratch files.");
    family.sample("", "", scratch.used);
    family.begin(
        "bulla_scratch_wait_seconds_total",
        "counter",
        "How long it was waited for scratch files, to write messages and to read them back.",
    );
    family.sample("", "", Seconds(scratch.wait_ns));
    out
}

/// The devices' metrics as text. Families without a sample are left out.
pub fn text(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let devices = &snapshot.devices;
    let rows = || devices.iter().flat_map(|device| device.meters.operations.iter().map(move |row| (device, row)));
    let shapes = || devices.iter().flat_map(|device| device.meters.shapes.iter().map(move |row| (device, row)));

    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    family.begin("bulla_device_up", "gauge", "1 while the device takes work.");
    for device in devices {
        family.sample("", &labels(device), u64::from(device.state == DeviceState::Running));
    }
    family.begin("bulla_device_engines", "gauge", "Engines that work side by side.");
    for device in devices {
        family.sample("", &labels(device), device.engines);
    }
    family.begin("bulla_device_waiting", "gauge", "Jobs that wait for the device, those in service not counted.");
    for device in devices {
        family.sample("", &labels(device), device.waiting);
    }
    family.begin("bulla_device_waiting_limit", "gauge", "Jobs that may wait for the device.");
    for device in devices.iter().filter(|device| device.pending > 0) {
        family.sample("", &labels(device), device.pending);
    }
    family.begin("bulla_device_in_service", "gauge", "Jobs that the device's engines are working on.");
    for device in devices {
        family.sample("", &labels(device), device.in_service);
    }
    family.begin("bulla_device_cpu_seconds_total", "counter", "Processor time of the device's threads.");
    for device in devices {
        family.sample("", &labels(device), Seconds(device.meters.cpu_ns));
    }
    family.begin(
        "bulla_device_modelled_cpu_seconds_total",
        "counter",
        "Processor time of the device's threads that the real results of a modelled device took.",
    );
    for device in devices.iter().filter(|device| device.kind == Kind::Modelled) {
        family.sample("", &labels(device), Seconds(device.meters.modelled_cpu_ns));
    }
    family.begin(
        "bulla_device_calls_total",
        "counter",
        "Calls of the device, which take jobs of one form and key size.",
    );
    for (device, row) in shapes() {
        family.sample("", &shape_labels(device, row.shape), row.calls);
    }
    family.begin("bulla_device_lanes_filled_total", "counter", "Jobs that went in these calls.");
    for (device, row) in shapes() {
        family.sample("", &shape_labels(device, row.shape), row.lanes_filled);
    }
    family.begin("bulla_device_jobs_total", "counter", "Jobs finished, those included that the device failed.");
    for (device, row) in rows() {
        family.sample("", &operation_labels(device, row), row.count);
    }
    family.begin("bulla_device_errors_total", "counter", "Jobs that the device failed.");
    for (device, row) in rows() {
        family.sample("", &operation_labels(device, row), row.errors);
    }
    family.begin(
        "bulla_device_busy_seconds_total",
        "counter",
        "Execution time of all jobs: of each the time of its call, divided by the lanes filled. Its rate divided by the engines is the utilisation.",
    );
    for (device, row) in rows() {
        family.sample("", &operation_labels(device, row), Seconds(row.busy_ns));
    }
    family.begin("bulla_device_execution_seconds", "histogram", "Execution times.");
    for (device, row) in rows() {
        family.histogram(&operation_labels(device, row), &row.execution);
    }
    family.begin("bulla_device_latency_seconds", "histogram", "Times from submission to result.");
    for (device, row) in rows() {
        family.histogram(&operation_labels(device, row), &row.latency);
    }
    out
}

fn labels(device: &DeviceMeters) -> String {
    let mut labels = format!("device=\"{}\",type=\"{}\"", escaped(&device.name), device.kind);
    if device.kind == Kind::Modelled {
        labels.push_str(",modelled=\"yes\"");
    }
    labels
}

fn shape_labels(device: &DeviceMeters, shape: bulla_device::Shape) -> String {
    format!("{},form=\"{}\",bits=\"{}\"", labels(device), shape.form, shape.bits)
}

fn operation_labels(device: &DeviceMeters, row: &OperationMeter) -> String {
    format!("{},operation=\"{}\"", shape_labels(device, row.shape), row.operation)
}

/// A label's value: backslash, quote and line feed are written with a backslash.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Nanoseconds, written as seconds and exactly.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Writes one family after another.
struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    is_begun: bool,
}

impl Family<'_> {
    fn begin(&mut self, name: &'static str, kind: &'static str, help: &'static str) {
        (self.name, self.kind, self.help, self.is_begun) = (name, kind, help, false);
    }

    fn sample(&mut self, suffix: &str, labels: &str, value: impl std::fmt::Display) {
        let (name, kind, help) = (self.name, self.kind, self.help);
        // Into a string: cannot fail.
        if !self.is_begun {
            let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            self.is_begun = true;
        }
        let _ = if labels.is_empty() {
            writeln!(self.out, "{name}{suffix} {value}")
        } else {
            writeln!(self.out, "{name}{suffix}{{{labels}}} {value}")
        };
    }

    fn histogram(&mut self, labels: &str, histogram: &Histogram) {
        let mut buckets = histogram.buckets().peekable();
        let mut below = 0_u64;
        for power in BOUNDS_LOG2 {
            let bound = (1_u64 << power) - 1;
            while let Some((_, count)) = buckets.next_if(|(upper, _)| *upper <= bound) {
                below = below.saturating_add(count);
            }
            self.sample("_bucket", &format!("{labels},le=\"{}\"", Seconds(bound)), below);
        }
        self.sample("_bucket", &format!("{labels},le=\"+Inf\""), histogram.count());
        self.sample("_sum", labels, Seconds(histogram.sum()));
        self.sample("_count", labels, histogram.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Activity;
    use crate::catalog::status::ScratchUse;
    use bulla_device::{Costs, Form, Meters, Operation, Shape};
    use std::collections::{BTreeMap, BTreeSet};

    const RSA: Shape = Shape { form: Form::RsaCrt, bits: 2048 };

    fn device(name: &str, kind: Kind) -> DeviceMeters {
        let mut meters = Meters { cpu_ns: 1_500_000_007, modelled_cpu_ns: 1_000_000_000, ..Meters::default() };
        for at in 0..100 {
            let jobs = [(Operation::RsaSign, 5000 + at, false), (Operation::RsaUnwrap, 700_000_000_000, at == 7)];
            meters.call(RSA, 8_000 * at, jobs.into_iter());
        }
        meters.call(Shape { form: Form::Ecdh, bits: 256 }, 17, [(Operation::EcdhDerive, 18, false)].into_iter());
        DeviceMeters {
            name: name.into(),
            kind,
            engines: 2,
            pending: 16,
            state: DeviceState::Running,
            reason: None,
            since_ms: 0,
            waiting: 3,
            in_service: 2,
            meters,
        }
    }

    fn snapshot() -> Snapshot {
        let idle = DeviceMeters {
            state: DeviceState::Offline,
            meters: Meters::default(),
            ..device("A/%.b_", Kind::Coprocessor)
        };
        let devices = vec![device("CPU", Kind::Cpu), idle, device("CARD", Kind::Modelled)];
        Snapshot { taken_ms: 10_000, devices }
    }

    fn tasks() -> TaskSnapshot {
        let task = |kind, name: &str, requests| TaskMeters {
            is_running: true,
            connections: 2,
            requests,
            elapsed_ns: 1_500_000_000,
            cpu_ns: 1_000_000_007,
            between_ns: 3,
            ..TaskMeters::new(kind, name.into(), 0)
        };
        let tasks = vec![task(TaskKind::Dispatcher, "dispatcher-0", 5), task(TaskKind::Device, "A/%.b_", 7)];
        TaskSnapshot { tasks, ..TaskSnapshot::default() }
    }

    fn costs() -> CostSnapshot {
        let roles_ns = [700, 60, 50, 400, 300, 20, 10];
        let costs = Costs { roles_ns, process_ns: 1_500_001_600, sealing_ns: 1_000_000_030, opening_ns: 20 };
        let scratch = ScratchUse { messages: 3, bytes: 6_144, used: 2_048, wait_ns: 2_000_000_001 };
        CostSnapshot { costs, puts: 12, gets: 11, scratch, ..CostSnapshot::default() }
    }

    fn counts() -> Counts {
        Counts {
            devices: snapshot(),
            tasks: tasks(),
            costs: costs(),
            traffic: traffic::tests::busy(),
            units: UnitCounts { committed: 3, backed_out: 1 },
            audit: AuditCounts { written: 9, dropped: 2, failures: 1 },
            limits: limits::tests::busy(),
            enrolments: enrolment::tests::two(),
            ends: ends::tests::two(),
            keys: keys::tests::busy(),
            log_ins: log_ins::tests::some(),
            health: health::tests::busy(),
        }
    }

    #[test]
    fn the_roles_of_the_metrics_add_up_to_the_process() {
        let samples = read(&counts().text()).unwrap();
        let of = |wanted: &str| -> Vec<f64> {
            samples.iter().filter(|(name, ..)| name == wanted).map(|(.., value)| *value).collect()
        };
        let roles = of("bulla_cpu_seconds_total");
        assert_eq!(roles.len(), Role::ALL.len() + 1);
        let process = of("process_cpu_seconds_total");
        assert!(process.len() == 1 && (roles.iter().sum::<f64>() - process[0]).abs() < 1e-9, "{roles:?} {process:?}");
        assert_eq!((of("bulla_messages_put_total"), of("bulla_messages_got_total")), (vec![12.0], vec![11.0]));
        assert_eq!(of("bulla_protection_cpu_seconds_total"), [1.000_000_03, 0.000_000_02], "for puts, for gets");
        assert_eq!((of("bulla_scratch_messages_total"), of("bulla_scratch_bytes_total")), (vec![3.0], vec![6_144.0]));
        assert_eq!(of("bulla_scratch_used_bytes"), [2_048.0]);
        assert_eq!(of("bulla_scratch_wait_seconds_total"), [2.000_000_001]);
    }

    /// Metrics in a text: `bulla_` and what belongs to a name.
    fn names(text: &str) -> BTreeSet<&str> {
        let belongs = |character: char| character.is_ascii_lowercase() || character == '_';
        let words = text.split(|character: char| !belongs(character));
        words.filter(|word| word.starts_with("bulla_")).collect()
    }

    #[test]
    fn the_page_and_the_dashboard_name_the_series_that_there_are() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating");
        let given = counts().text();
        let families: BTreeSet<&str> =
            given.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let families: BTreeSet<&str> = families.into_iter().filter(|name| name.starts_with("bulla_")).collect();
        let page = std::fs::read_to_string(docs.join("metrics.md")).unwrap();
        assert_eq!(names(&page), families, "docs/operating/metrics.md");
        let dashboard = std::fs::read_to_string(docs.join("grafana-bulla.json")).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
        assert!(expressions.len() > 20, "{expressions:?}");
        for expression in expressions {
            let used = names(expression);
            assert!(!used.is_empty() && used.is_subset(&families), "{expression}");
        }
        // Chosen when it is imported, and in no configuration.
        let inputs: Vec<_> = dashboard["__inputs"].as_array().unwrap().iter().map(|input| &input["type"]).collect();
        assert_eq!(inputs, ["datasource"]);
        let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
        let queries = variables.filter_map(|variable| variable["definition"].as_str());
        assert!(queries.clone().count() == 4 && queries.clone().all(|query| names(query).is_subset(&families)));
    }

    #[test]
    fn the_tasks_text_is_well_formed_beside_the_devices() {
        let samples = read(&(text(&snapshot()) + &task_text(&tasks()))).unwrap();
        let value = |name: &str, task: &str| {
            let of = |(known, labels, _): &&(String, Labels, f64)| {
                known == name && labels.get("task").is_some_and(|known| known == task)
            };
            let found: Vec<f64> = samples.iter().filter(of).map(|(.., value)| *value).collect();
            found.first().copied().filter(|_| found.len() == 1)
        };
        assert_eq!(value("bulla_task_requests_total", "dispatcher-0"), Some(5.0));
        assert_eq!(value("bulla_task_requests_total", "A/%.b_"), Some(7.0));
        assert_eq!(value("bulla_task_cpu_seconds_total", "A/%.b_"), Some(1.000_000_007));
        assert_eq!(value("bulla_task_elapsed_seconds_total", "A/%.b_"), Some(1.5));
        assert_eq!(value("bulla_task_connections", "dispatcher-0"), Some(2.0));
        assert_eq!(value("bulla_task_connections", "A/%.b_"), None);
    }

    pub(super) type Labels = BTreeMap<String, String>;

    /// A strict reader of the text format 0.0.4: samples in order, or what is wrong in which line.
    pub(super) fn read(text: &str) -> Result<Vec<(String, Labels, f64)>, String> {
        fn is_name(name: &str, more: &str) -> bool {
            let fits = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || more.as_bytes().contains(&byte);
            name.bytes().next().is_some_and(fits) && name.bytes().all(|byte| fits(byte) || byte.is_ascii_digit())
        }
        fn labels(mut rest: &str) -> Result<(Labels, &str), &'static str> {
            let mut labels = Labels::new();
            loop {
                let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
                if !is_name(name, "") {
                    return Err("not a label's name");
                }
                let (mut value, mut chars) = (String::new(), after.char_indices());
                let end = loop {
                    match chars.next().ok_or("a value without an end")? {
                        (at, '"') => break at,
                        (_, '\\') => match chars.next() {
                            Some((_, 'n')) => value.push('\n'),
                            Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                            _ => return Err("not an escape"),
                        },
                        (_, other) => value.push(other),
                    }
                };
                if labels.insert(name.into(), value).is_some() {
                    return Err("a label twice");
                }
                rest = &after[end + 1..];
                if let Some(after) = rest.strip_prefix('}') {
                    return Ok((labels, after));
                }
                rest = rest.strip_prefix(',').ok_or("expected , or }")?;
            }
        }
        if !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        let mut samples: Vec<(String, Labels, f64)> = Vec::new();
        let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let (mut helped, mut family, mut kind) = ("", "", "");
        for line in text.lines() {
            let wrong = |why: &str| Err(format!("{why}: {line}"));
            if let Some(help) = line.strip_prefix("# HELP ") {
                helped = help.split(' ').next().unwrap_or_default();
                if !is_name(helped, ":") || help.len() == helped.len() {
                    return wrong("no help");
                }
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                (family, kind) = rest.split_once(' ').unwrap_or((rest, ""));
                if family != helped || !["counter", "gauge", "histogram"].contains(&kind) {
                    return wrong("no type of the family that was explained");
                }
                if !families.insert(family) {
                    return wrong("a family twice");
                }
                if (kind == "counter") != family.ends_with("_total") {
                    return wrong("a counter ends in _total, and nothing else does");
                }
            } else {
                let (name, labels, value) = match line.split_once('{') {
                    Some((name, rest)) => {
                        let (labels, value) = labels(rest).map_err(|why| format!("{why}: {line}"))?;
                        (name, labels, value)
                    }
                    None => {
                        let at = line.find(' ').ok_or_else(|| format!("no value: {line}"))?;
                        (&line[..at], Labels::new(), &line[at..])
                    }
                };
                let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                if !name.strip_prefix(family).is_some_and(|suffix| suffixes.contains(&suffix)) {
                    return wrong("not of the family");
                }
                let value = value.strip_prefix(' ').and_then(|value| value.parse::<f64>().ok());
                let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) else {
                    return wrong("no value");
                };
                if !seen.insert((name.to_owned(), labels.clone())) {
                    return wrong("a sample twice");
                }
                samples.push((name.into(), labels, value));
            }
        }
        // Histograms: bounds rise, counts never fall, the last bound is infinite and has the whole count.
        let mut last: BTreeMap<(String, Labels), (f64, f64)> = BTreeMap::new();
        for (name, labels, value) in &samples {
            let mut labels = labels.clone();
            if let Some(name) = name.strip_suffix("_bucket") {
                let bound =
                    labels.remove("le").and_then(|bound| bound.parse::<f64>().ok()).ok_or("a bucket without le")?;
                let before = last.insert((name.into(), labels), (bound, *value));
                if before.is_some_and(|(lower, count)| lower >= bound || count > *value) {
                    return Err(format!("buckets of {name} in disorder"));
                }
            } else if let Some(name) = name.strip_suffix("_count")
                && last.get(&(name.to_owned(), labels)) != Some(&(f64::INFINITY, *value))
            {
                return Err(format!("the last bucket of {name} is not all"));
            }
        }
        Ok(samples)
    }

    #[test]
    fn the_text_is_well_formed_and_its_counts_are_the_report_s() {
        let snapshot = snapshot();
        let samples = read(&text(&snapshot)).unwrap();
        let sum = |name: &str, device: &str| -> f64 {
            let of = |(known, labels, _): &&(String, Labels, f64)| known == name && labels["device"] == device;
            samples.iter().filter(of).map(|(.., value)| value).sum()
        };
        for device in Activity::since_start(&snapshot).devices {
            let (name, total) = (device.device.name.as_str(), &device.total);
            assert_eq!(sum("bulla_device_jobs_total", name), total.jobs as f64);
            assert_eq!(sum("bulla_device_errors_total", name), total.errors as f64);
            assert_eq!(sum("bulla_device_execution_seconds_count", name), total.jobs as f64);
            assert_eq!(sum("bulla_device_latency_seconds_count", name), total.jobs as f64);
            assert_eq!(sum("bulla_device_calls_total", name), total.calls.unwrap() as f64);
            assert_eq!(sum("bulla_device_lanes_filled_total", name), total.lanes_filled as f64);
            assert!((sum("bulla_device_busy_seconds_total", name) * 1e9 - total.busy_ns as f64).abs() < 1.0);
        }
        assert_eq!((sum("bulla_device_up", "CPU"), sum("bulla_device_up", "A/%.b_")), (1.0, 0.0));
        assert_eq!(sum("bulla_device_cpu_seconds_total", "CPU"), 1.500_000_007);
        for (name, labels, _) in &samples {
            assert_eq!(
                labels.get("modelled").map(String::as_str),
                (labels["device"] == "CARD").then_some("yes"),
                "{name}"
            );
        }
        assert!(!text(&Snapshot::default()).contains('\n'));
    }

    #[test]
    fn a_bucket_counts_exactly_what_is_not_longer_than_its_bound() {
        let snapshot = snapshot();
        let samples = read(&text(&snapshot)).unwrap();
        let bucket = |bound: &str| {
            let of = |(name, labels, _): &&(String, Labels, f64)| {
                let is_row =
                    labels["device"] == "CPU" && labels.get("operation").is_some_and(|known| known == "RSA-SIGN");
                name == "bulla_device_execution_seconds_bucket" && is_row && labels["le"] == bound
            };
            samples.iter().find(of).unwrap().2
        };
        // Calls of 0, 8, 16, … µs with two lanes each.
        assert_eq!((bucket("0.000004095"), bucket("0.000008191")), (2.0, 3.0));
        assert_eq!((bucket("0.000262143"), bucket("+Inf")), (66.0, 100.0));
    }

    #[test]
    fn the_reader_of_these_tests_refuses_what_prometheus_would() {
        let good = "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\\\\\\\"\\n\"} 1\n";
        assert_eq!(read(good).unwrap()[0].1["b"], "c\\\"\n");
        for (from, to) in [
            ("} 1\n", "} 1"),
            ("# HELP a_total x\n", ""),
            ("counter", "count"),
            ("a_total", "a"),
            ("b=", "1b="),
            (" 1\n", " x\n"),
            (" 1\n", " -1\n"),
            ("\"} 1", "\",b=\"d\"} 1"),
            ("\\n", "\\t"),
            ("a_total{b=", "b_total{b="),
        ] {
            assert!(read(&good.replace(from, to)).is_err(), "{from} {to}");
        }
        assert!(read(&format!("{good}{good}")).is_err());
        let histogram = text(&snapshot());
        assert!(read(&histogram.replace("le=\"+Inf\"", "le=\"20\"")).is_err());
        assert!(read(&histogram.replacen("le=\"0.000004095\"} 2", "le=\"0.000004095\"} 50", 1)).is_err());
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // A client that is refused early may not take it all.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn one_page_is_served_and_everything_else_is_refused() {
        let server = serve(TcpListener::bind("127.0.0.1:0").unwrap(), counts).unwrap();
        let address = server.address();
        let whole = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
        let (head, body) = whole.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())) && head.ends_with("Connection: close"));
        assert_eq!(body, counts().text());
        let short = ask(address, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert_eq!(short, format!("{head}\r\n\r\n"));
        let status = |request: &[u8]| ask(address, request).lines().next().unwrap_or_default().to_owned();
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status(b"GET /metrics/ HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status(b"\x16\x03\x01\x02\x00\x01"), "HTTP/1.1 400 Bad Request");
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(status(many.as_bytes()), "HTTP/1.1 431 Request Header Fields Too Large");
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(REQUEST_BYTES_MAX - 15));
        assert_eq!(
            request(&long.as_bytes()[..REQUEST_BYTES_MAX]),
            Request::Refused("431 Request Header Fields Too Large")
        );
        assert_eq!(request(b"GET /met"), Request::Partial);
        server.stop();
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn one_that_says_nothing_is_left_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let error = answer(stream, Instant::now() + Duration::from_millis(20), &counts).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    }
}
