//! `bulla perf channel --drain`: a transmission queue that was filled while its channel was stopped goes into a local
//! queue. No client takes part, so the rate is that of the channel alone.

use super::clerk::Clerk;
use super::fleet::{Fleet, Kind};
use super::island::{At, Island};
use super::partners::{Partners, wait};
use super::stream::settings;
use crate::configuration::Configuration;
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::load::client::Client;
use crate::load::messages::Messages;
use crate::load::{Counts, Load};
use crate::result::Sample;
use crate::run::measure::Running;
use crate::run::meters::{number, text};
use crate::run::options::Common;
use crate::run::statistics::Spread;
use crate::run::{Workload, carry_out};
use crate::site::Settings;
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Payload of the published shape.
pub(super) const BYTES: u64 = 2 << 10;
/// Messages on the transmission queue: not persistent, and persistent.
const MESSAGES: u64 = 300_000;
const MESSAGES_PERSISTENT: u64 = 100_000;
/// Mebibytes of message bodies that each queue manager holds in memory: what is drained stays there.
const MEMORY_MIB: u32 = 4096;
/// How often the queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The rate is that of the messages between this share of all and the rest of it, so that start and end do not count.
const EDGE_SHARE: f64 = 0.05;
/// A queue that does not grow for so long gets no more.
const STALLED: Duration = Duration::from_secs(15);

/// How to drain.
#[derive(Args, Debug)]
pub(super) struct DrainArgs {
    /// Instead of round trips: fill a transmission queue, then let its channel empty it; --seconds is the longest that
    /// it may take
    #[arg(long, help_heading = "Configurations")]
    pub(super) drain: bool,
    /// With --drain, messages on the transmission queue; 300000 unless given, and 100000 persistent ones
    #[arg(long, requires = "drain", value_parser = clap::value_parser!(u64).range(10..=5_000_000), help_heading = "Configurations")]
    messages: Option<u64>,
    /// With --drain, BATCHSZ of the channels
    #[arg(long, requires = "drain", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=9_999), help_heading = "Configurations")]
    batch_size: u32,
}

/// What is drained, and how.
pub(super) struct Plan<'a> {
    pub(super) args: &'a DrainArgs,
    pub(super) configurations: Vec<Configuration>,
    /// The key of certificates for TLS.
    pub(super) key: &'a str,
    pub(super) common: &'a Common,
}

/// Does what the plan says.
///
/// # Errors
/// As [`carry_out`].
pub(super) fn run(plan: Plan<'_>, host: &dyn Host) -> Result<Verdict> {
    // Before the sample begins nothing moves.
    let common = Common { warm_up: 0.0, ..plan.common.clone() };
    Clerk::during(host, |clerk| {
        let (args, key) = (plan.args, plan.key);
        let mut drains = Drains { host, common: &common, args, key, clerk, partners: None, fleets: Vec::new() };
        carry_out(host, &common, plan.configurations, &mut drains)
    })
}

struct Drains<'h> {
    host: &'h dyn Host,
    common: &'h Common,
    args: &'h DrainArgs,
    key: &'h str,
    clerk: Clerk,
    partners: Option<Partners<'h>>,
    fleets: Vec<(Configuration, Fleet)>,
}

impl Drains<'_> {
    fn messages(&self, configuration: &Configuration) -> u64 {
        let usual = if configuration.persistent { MESSAGES_PERSISTENT } else { MESSAGES };
        self.args.messages.unwrap_or(usual)
    }
}

impl Workload for Drains<'_> {
    fn name(&self) -> &'static str {
        "drain"
    }

    fn transactions(&self) -> &'static str {
        "messages"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        if self.partners.is_none() {
            let devices = configuration.devices.parse().map_err(Error::Usage)?;
            let mut options = vec![format!("--memory={MEMORY_MIB}")];
            options.extend(self.common.start.iter().cloned());
            let partners = Partners::start(self.host, &Settings { devices, options, ..settings(self.common) })?;
            partners.certify(&[self.key.to_owned()])?;
            self.partners = Some(partners);
        }
        let Some(partners) = &mut self.partners else { return Ok(()) };
        let kind = Kind {
            sender: format!("BATCHSZ({})", self.args.batch_size),
            receiver: format!("BATCHSZ({})", self.args.batch_size),
            ..Kind::of(Island::Unprotected, configuration, self.key)
        };
        // Started once, so that a channel that can't run is found here.
        let fleet = Fleet::launch(partners, &kind, self.fleets.len(), 1)?;
        partners.halt(&fleet.forth, &fleet.back)?;
        self.fleets.push((configuration.clone(), fleet));
        Ok(())
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        let prepared = self.fleets.iter().find(|(known, _)| known == configuration).map(|(_, fleet)| fleet);
        let (Some(fleet), Some(partners)) = (prepared, &self.partners) else {
            return Err(Error::Usage("a configuration that was not prepared".to_owned()));
        };
        let Some(route) = fleet.forth.first() else { return Err(Error::Usage("a fleet without a pair".to_owned())) };
        let count = self.messages(configuration);
        let seat = partners.seat(At::One, fleet.requester(), &route.queue, "");
        let mut client = Client::connect(&seat.broker, "fill")?;
        let mut link = client.sender(&seat.puts)?;
        let length = usize::try_from(configuration.bytes).unwrap_or(usize::MAX);
        client.fill(&mut link, &Messages::of(length, configuration.persistent), count)?;
        client.close()?;
        let way = Way {
            from: partners.one.data().to_owned(),
            to: partners.two.data().to_owned(),
            channel: route.channel.clone(),
            queue: route.queue.clone(),
            count,
        };
        let load = Drain {
            clerk: self.clerk.clone(),
            way,
            batch_size: self.args.batch_size,
            gauge: Arc::default(),
            outcome: None,
        };
        Ok(Running { load: Box::new(load), watched: partners.watched() })
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        let rates = samples.iter().filter_map(|sample| sample.found.get(EDGELESS_RATE).copied());
        let middle = Spread::of(rates).map_or("–".to_owned(), |spread| format!("{:.0}", spread.median));
        vec![("messages/s without start and end", middle), ("BATCHSZ", self.args.batch_size.to_string())]
    }

    fn finish(&mut self) -> Result<()> {
        self.fleets.clear();
        self.partners.take().map_or(Ok(()), Partners::stop)
    }
}

/// Messages a second between the first and the last twentieth.
pub(super) const EDGELESS_RATE: &str = "rate-between-edges";
/// BATCHSZ of the channel.
pub(super) const BATCH_SIZE: &str = "batch-size";

/// From where to where.
#[derive(Clone, Debug)]
struct Way {
    /// Data directory of the queue manager that sends.
    from: PathBuf,
    /// Data directory of the one that receives.
    to: PathBuf,
    /// The channel, and its transmission queue.
    channel: String,
    /// Where messages arrive.
    queue: String,
    /// How many there are.
    count: u64,
}

#[derive(Debug, Default)]
struct Gauge {
    arrived: AtomicU64,
    stop: AtomicBool,
    /// All have arrived, or something failed.
    over: AtomicBool,
}

/// A transmission queue that is drained from the moment when the sample begins.
struct Drain {
    clerk: Clerk,
    way: Way,
    batch_size: u32,
    gauge: Arc<Gauge>,
    /// Comes when all is drained: messages a second.
    outcome: Option<Receiver<Result<Option<f64>>>>,
}

impl Load for Drain {
    fn counts(&self) -> Counts {
        let arrived = self.gauge.arrived.load(Ordering::Acquire);
        let depth = Some(self.way.count.saturating_sub(arrived));
        Counts { transactions: arrived, messages: arrived, refused: 0, depth }
    }

    fn goes_on(&self) -> bool {
        true
    }

    fn is_over(&self) -> bool {
        self.gauge.over.load(Ordering::Acquire)
    }

    fn begin(&mut self) {
        let (way, gauge) = (self.way.clone(), Arc::clone(&self.gauge));
        self.outcome = Some(self.clerk.order(move |host| {
            let drained = drain(host, &way, &gauge);
            gauge.over.store(true, Ordering::Release);
            drained
        }));
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::from([(BATCH_SIZE.to_owned(), f64::from(self.batch_size))]);
        if let Some(outcome) = &self.outcome {
            self.gauge.stop.store(true, Ordering::Release);
            match outcome.recv() {
                Ok(Ok(Some(rate))) => drop(found.insert(EDGELESS_RATE.to_owned(), rate)),
                // What went wrong is said when it is stopped.
                Ok(Err(error)) => self.outcome = Some(failed(error)),
                Ok(Ok(None)) | Err(_) => {}
            }
        }
        found
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.gauge.stop.store(true, Ordering::Release);
        let drained = self.outcome.map_or(Ok(None), |outcome| outcome.recv().unwrap_or(Ok(None)));
        let way = self.way;
        let cleared = self.clerk.ask(move |host| clear(host, &way));
        drained.and(cleared)
    }
}

/// An outcome that is there already.
fn failed(error: Error) -> Receiver<Result<Option<f64>>> {
    let (send, receive) = std::sync::mpsc::channel();
    let _ = send.send(Err(error));
    receive
}

/// Starts the channel and watches the queue: messages a second between the edges, where it came so far.
fn drain(host: &dyn Host, way: &Way, gauge: &Gauge) -> Result<Option<f64>> {
    host.command(&way.from, &format!("START CHANNEL('{}')", way.channel))?;
    let mut edges = Edges::new(way.count);
    let mut last = (Instant::now(), 0);
    while !gauge.stop.load(Ordering::Acquire) {
        let rows = host.display(&way.to, &format!("DISPLAY QSTATUS('{}')", way.queue))?;
        let (now, depth) = (Instant::now(), rows.first().map_or(0, |row| number(row, "CURDEPTH")));
        gauge.arrived.store(depth, Ordering::Release);
        edges.saw(now, depth);
        if depth >= way.count {
            return Ok(edges.rate());
        }
        if depth > last.1 {
            last = (now, depth);
        } else if last.0.elapsed() > STALLED {
            return Err(Error::Manager(format!("{}: {depth} messages of {} came", way.queue, way.count)));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(edges.rate())
}

/// Stops the channel, and takes away what is left at both ends.
fn clear(host: &dyn Host, way: &Way) -> Result<()> {
    host.command(&way.from, &format!("STOP CHANNEL('{}') MODE(FORCE) STATUS(INACTIVE)", way.channel))?;
    wait(|| {
        let rows = host.display(&way.from, &format!("DISPLAY CHSTATUS('{}') STATUS", way.channel))?;
        Ok(rows.first().is_none_or(|row| text(row, "STATUS") == "INACTIVE"))
    })?;
    // What is in doubt would stay locked: the partner has it or not, and it is not counted any more.
    let rows = host.display(&way.from, &format!("DISPLAY CHSTATUS('{}') INDOUBT", way.channel))?;
    if rows.first().is_some_and(|row| text(row, "INDOUBT") == "YES") {
        host.command(&way.from, &format!("RESOLVE CHANNEL('{}') ACTION(COMMIT)", way.channel))?;
    }
    host.command(&way.from, &format!("CLEAR QLOCAL('{}')", way.channel))?;
    host.command(&way.to, &format!("CLEAR QLOCAL('{}')", way.queue))
}

/// Messages a second without the first and the last of them.
#[derive(Debug)]
struct Edges {
    low: u64,
    high: u64,
    first: Option<(Instant, u64)>,
    rate: Option<f64>,
}

impl Edges {
    fn new(count: u64) -> Self {
        let low = (count as f64 * EDGE_SHARE) as u64;
        Edges { low, high: count - low, first: None, rate: None }
    }

    fn saw(&mut self, now: Instant, depth: u64) {
        match self.first {
            None if depth > self.low => self.first = Some((now, depth)),
            Some((at, from)) if depth > from && (depth <= self.high || self.rate.is_none()) => {
                self.rate = Some((depth - from) as f64 / (now - at).as_secs_f64());
            }
            _ => {}
        }
    }

    fn rate(&self) -> Option<f64> {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_end_of_a_drain_do_not_count() {
        let begin = Instant::now();
        let mut edges = Edges::new(1000);
        // A slow start, a steady middle of 100 messages each 10 ms, a slow end.
        for (ms, depth) in [(0, 0), (500, 10), (600, 100), (610, 200), (680, 900), (900, 990), (1500, 1000)] {
            edges.saw(begin + Duration::from_millis(ms), depth);
        }
        let rate = edges.rate().unwrap();
        assert!((rate - 10_000.0).abs() < 1.0, "{rate}");
    }

    #[test]
    fn one_look_makes_no_rate() {
        let mut edges = Edges::new(10);
        edges.saw(Instant::now(), 10);
        assert_eq!(edges.rate(), None);
    }
}
