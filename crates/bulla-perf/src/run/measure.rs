//! One sample: warm-up, then counters before and after, and looks between.

use super::meters::{Look, Used, Watched, busiest};
use super::processor::AllProcesses;
use super::{statistics, steady};
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::host::{Host, Row};
use crate::load::Load;
use crate::result::{Moment, ROLES, Sample};
use std::time::{Duration, Instant};

/// How often counts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether a lump of transactions was counted, and how long.
const LUMP_LOOK_EVERY: Duration = Duration::from_millis(1);
const LUMP_WITHIN: Duration = Duration::from_secs(15);
/// How far the moments of a course are apart at most.
const MOMENT: Duration = Duration::from_secs(1);
/// A course has so many moments at least, however short the sample is: fewer say nothing about a steady state.
const MOMENTS_MIN: u32 = 8;

/// Processor time of the threads that put, and of those that get, microseconds a transaction.
pub const PUTTER_US: &str = "putter-us";
/// Likewise, of those that get.
pub const GETTER_US: &str = "getter-us";
/// Processor time of protection for puts, and for gets, without operations with keys; microseconds a transaction.
pub const SEALING_US: &str = "sealing-us";
/// Likewise, for gets.
pub const OPENING_US: &str = "opening-us";
/// Messages that went to scratch files because memory was full, in the sample.
pub const SCRATCH_MESSAGES: &str = "scratch-messages";
/// Bytes of them.
pub const SCRATCH_BYTES: &str = "scratch-bytes";
/// How long it was waited for scratch files, writing and reading, microseconds a message that went there.
pub const SCRATCH_WAIT_US: &str = "scratch-wait-us";

/// A load at work, and what it is that it loads.
pub struct Running {
    /// The load.
    pub load: Box<dyn Load>,
    /// The queue managers that it uses.
    pub watched: Vec<Watched>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("watched", &self.watched).finish_non_exhaustive()
    }
}

/// How long.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Before the sample.
    pub warm_up: Duration,
    /// The sample itself.
    pub measured: Duration,
}

/// What is told while a sample is taken.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Of warm-up and sample, how much is over: 0 to 1.
    pub done: f64,
    /// Transactions a second, of the last moment.
    pub rate: f64,
    /// Messages on queues.
    pub depth: Option<u64>,
}

/// Takes one sample of a load and ends the load. `tell` is called about once a second, and ends the sample early by
/// `false`. The sample says nothing yet of its run, its workload and its repeat.
///
/// # Errors
/// What ended the load before its time, or a message that was not the one that was put.
pub fn measure(
    host: &dyn Host,
    mut running: Running,
    configuration: &Configuration,
    timing: Timing,
    tell: &mut dyn FnMut(Live) -> bool,
) -> Result<Sample> {
    let sample = watch(host, &mut running, configuration, timing, tell);
    // What ended a thread says more than that it ended.
    running.load.stop()?;
    sample
}

fn watch(
    host: &dyn Host,
    running: &mut Running,
    configuration: &Configuration,
    timing: Timing,
    tell: &mut dyn FnMut(Live) -> bool,
) -> Result<Sample> {
    let whole = (timing.warm_up + timing.measured).as_secs_f64();
    let mut goes_on = tell(Live { done: 0.0, rate: 0.0, depth: None });
    let begun = Instant::now();
    while goes_on && begun.elapsed() < timing.warm_up {
        let left = timing.warm_up.saturating_sub(begun.elapsed());
        std::thread::sleep(left.min(LOOK_EVERY));
        alive(running)?;
        goes_on = tell(Live { done: begun.elapsed().as_secs_f64() / whole, rate: 0.0, depth: None });
    }
    if goes_on {
        wait_for_lump(running)?;
    }
    let _ = running.load.found();
    let before = Look::take(host, &running.watched);
    let (counts, latencies) = (running.load.counts(), running.load.latencies());
    let begin = Instant::now();
    let end = begin + timing.measured;
    let mut course = Course::begin(host, running, begin, timing.measured);
    running.load.begin();
    while goes_on && !running.load.is_over() && Instant::now() < end {
        std::thread::sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now())));
        alive(running)?;
        let (rate, depth) = course.look(running, end);
        let done = (timing.warm_up + begin.elapsed()).as_secs_f64() / whole;
        goes_on = tell(Live { done: done.min(1.0), rate, depth });
    }
    if goes_on {
        wait_for_lump(running)?;
    }
    // In the order of the beginning: a look takes its time, and both spans are then of one length.
    let used = Look::take(host, &running.watched).since(&before);
    let (counts_after, latencies_after) = (running.load.counts(), running.load.latencies());
    let seconds = begin.elapsed().as_secs_f64();
    let transactions = counts_after.transactions.saturating_sub(counts.transactions);
    let each = |ns: u64| ns as f64 / 1e3 / transactions.max(1) as f64;
    let mut found = running.load.found();
    let refused = counts_after.refused.saturating_sub(counts.refused);
    if refused > 0 {
        found.insert("refused-2053".to_owned(), refused as f64);
    }
    let mut cpu_us: std::collections::BTreeMap<String, f64> =
        used.roles.iter().map(|(role, ns)| (role.clone(), each(*ns))).collect();
    if !running.watched.is_empty() {
        for role in ROLES {
            cpu_us.entry(role.to_owned()).or_default();
        }
    }
    if used.modelled > 0 {
        found.insert("modelled-cpu-us".to_owned(), each(used.modelled));
    }
    found.extend(ends(&used, transactions));
    let course = course.moments;
    let mut unsteady = steady::unsteady(&course, running.load.lump(), used.cores_elsewhere, used.cores_stolen);
    unsteady.extend(used.unread.iter().map(|name| format!("not all meters of {name} could be read")));
    if transactions == 0 {
        // There is nothing that the processor time could be divided by.
        unsteady.push("nothing arrived".to_owned());
        cpu_us.values_mut().for_each(|us| *us = 0.0);
    }
    Ok(Sample {
        configuration: configuration.clone(),
        seconds,
        messages: counts_after.messages.saturating_sub(counts.messages),
        transactions,
        rate: transactions as f64 / seconds,
        latency_us: statistics::latency(&latencies_after.since(&latencies)),
        cpu_us,
        process_cpu_us: if transactions == 0 { 0.0 } else { each(used.process) },
        devices: used.devices,
        tasks: used.tasks,
        cores_busy: used.cores_busy,
        cores_elsewhere: used.cores_elsewhere,
        cores_stolen: used.cores_stolen,
        unsteady,
        course,
        found,
        ..Sample::default()
    })
}

/// What putters and getters took each, and protection for each of them, microseconds a transaction; and what went to
/// scratch files.
fn ends(used: &Used, transactions: u64) -> Vec<(String, f64)> {
    let Used { ends: [put, get], beside, .. } = used;
    let each = |ns: u64| (transactions > 0).then(|| ns as f64 / 1e3 / transactions as f64);
    let of_scratch = |value: f64| (beside.scratch_messages > 0).then_some(value);
    let found = [
        (PUTTER_US, each(*put)),
        (GETTER_US, each(*get)),
        (SEALING_US, each(beside.sealing)),
        (OPENING_US, each(beside.opening)),
        (SCRATCH_MESSAGES, of_scratch(beside.scratch_messages as f64)),
        (SCRATCH_BYTES, of_scratch(beside.scratch_bytes as f64)),
        (SCRATCH_WAIT_US, of_scratch(beside.scratch_wait as f64 / 1e3 / beside.scratch_messages.max(1) as f64)),
    ];
    found.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.filter(|value| *value > 0.0)?))).collect()
}

/// Where transactions are counted many at a time, waits until the next of them are: a sample is then of whole lumps.
fn wait_for_lump(running: &Running) -> Result<()> {
    let counted = running.load.counts().transactions;
    let deadline = Instant::now() + LUMP_WITHIN;
    while running.load.lump() > 1 && running.load.counts().transactions == counted && Instant::now() < deadline {
        std::thread::sleep(LUMP_LOOK_EVERY);
        alive(running)?;
    }
    Ok(())
}

/// An error that `stop` explains.
fn alive(running: &Running) -> Result<()> {
    if running.load.goes_on() { Ok(()) } else { Err(Error::Broker("the load ended before its time".to_owned())) }
}

/// The moments of a sample.
struct Course<'a> {
    host: &'a dyn Host,
    begin: Instant,
    moments: Vec<Moment>,
    /// The last moment: when, transactions, processors, devices of each queue manager.
    at: Instant,
    transactions: u64,
    all_processes: AllProcesses,
    devices: Vec<Vec<Row>>,
    /// Depths since then: sum and number.
    depths: (f64, u32),
    /// How far moments are apart. A last one shorter than half of it belongs to the one before.
    every: Duration,
}

impl<'a> Course<'a> {
    fn begin(host: &'a dyn Host, running: &Running, begin: Instant, measured: Duration) -> Self {
        let every = MOMENT.min(measured / MOMENTS_MIN);
        let transactions = running.load.counts().transactions;
        let devices = running.watched.iter().map(|watched| devices(host, watched)).collect();
        let all_processes = AllProcesses::now();
        Course {
            host,
            begin,
            moments: Vec::new(),
            at: begin,
            transactions,
            all_processes,
            devices,
            depths: (0.0, 0),
            every,
        }
    }

    /// Counts, and makes a moment of it when it is time. The rate and the depth as they are.
    fn look(&mut self, running: &mut Running, end: Instant) -> (f64, Option<u64>) {
        let now = Instant::now();
        let counts = running.load.counts();
        if let Some(depth) = counts.depth {
            self.depths = (self.depths.0 + depth as f64, self.depths.1 + 1);
        }
        let time = now.duration_since(self.at);
        let rate = counts.transactions.saturating_sub(self.transactions) as f64 / time.as_secs_f64();
        let (is_last, least) = (now >= end, self.every / 2);
        if (time >= self.every && end.saturating_duration_since(now) >= least) || (is_last && time >= least) {
            self.moment(running, now, rate, counts.transactions);
            return (rate, counts.depth);
        }
        // Of a moment that has only begun there is no rate worth telling.
        let known = self.moments.last().map(|moment| moment.rate).filter(|_| time < least);
        (known.unwrap_or(rate), counts.depth)
    }

    fn moment(&mut self, running: &mut Running, now: Instant, rate: f64, transactions: u64) {
        let time = now.duration_since(self.at);
        let all_processes = AllProcesses::now();
        let devices: Vec<Vec<Row>> = running.watched.iter().map(|watched| devices(self.host, watched)).collect();
        let busy =
            devices.iter().zip(&self.devices).filter_map(|(now, before)| busiest(now, before, time.as_secs_f64()));
        self.moments.push(Moment {
            at: now.duration_since(self.begin).as_secs_f64(),
            rate,
            depth: (self.depths.1 > 0).then(|| self.depths.0 / f64::from(self.depths.1)),
            xqtime_us: running.load.xqtime_us(),
            qtime_us: running.load.qtime_us(),
            scratch_used_bytes: running.load.scratch_used_bytes(),
            cores_busy: Some(
                all_processes.busy.saturating_sub(self.all_processes.busy) as f64 / time.as_nanos().max(1) as f64,
            ),
            device_busy_percent: busy.max_by(f64::total_cmp),
        });
        (self.at, self.transactions, self.all_processes) = (now, transactions, all_processes);
        (self.devices, self.depths) = (devices, (0.0, 0));
    }
}

fn devices(host: &dyn Host, watched: &Watched) -> Vec<Row> {
    let rows = watched.data.as_ref().and_then(|data| host.display(data, "DISPLAY DEVSTATUS(*) ALL").ok());
    rows.unwrap_or_default()
}
