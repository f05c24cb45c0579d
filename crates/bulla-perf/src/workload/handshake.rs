//! `bulla perf handshake`: how many TLS starts there are in a second, of clients and of channels, and what one costs.
//!
//! A client's start is a connection, a handshake and the broker's first word; then it hangs up. Channels start many at
//! a time by command, run, and are stopped again. A transaction is a start with the end that belongs to it.

use super::channel::is_tls13;
use super::clerk::Clerk;
use super::island::At;
use super::partners::{Partners, wait};
use super::route::Route;
use super::stream::settings;
use crate::configuration::Configuration;
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::load::starts::{Call, Starts};
use crate::load::{Counts, Load};
use crate::result::Sample;
use crate::run::measure::Running;
use crate::run::meters::{number, text};
use crate::run::options::{Common, key};
use crate::run::statistics::Spread;
use crate::run::{Workload, carry_out};
use crate::site::Settings;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// The suite under TLS 1.3.
const TLS13: &str = "TLS_AES_256_GCM_SHA384";
/// Most keys: each of the two listeners shows one.
const KEYS_MAX: usize = 2;

/// How many TLS starts a second: clients and channels, RSA and P-256, TLS 1.2 and 1.3, with and without client
/// certificates
#[derive(Args, Debug)]
pub struct HandshakeArgs {
    /// Who starts, comma separated
    #[arg(long, value_delimiter = ',', value_enum, default_value = "client,channel", help_heading = "Configurations")]
    who: Vec<Who>,
    /// Versions of TLS, comma separated: 1.3, 1.2, or none for channels without
    #[arg(long, value_delimiter = ',', value_enum, default_value = "none,1.3,1.2", help_heading = "Configurations")]
    tls_version: Vec<Version>,
    /// Keys of the certificates at both ends, comma separated, two at most: rsa2048, p256, …
    #[arg(long, value_delimiter = ',', default_value = "rsa2048,p256", value_parser = key, help_heading = "Configurations")]
    key: Vec<String>,
    /// Whether the end that calls shows a certificate, comma separated
    #[arg(long, value_delimiter = ',', default_value = "false,true", action = clap::ArgAction::Append, help_heading = "Configurations")]
    client_certificate: Vec<bool>,
    /// Clients that start at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Configurations")]
    clients: u32,
    /// Channels that are started together
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=2_000), help_heading = "Configurations")]
    channels: u32,
    /// Crypto devices of both queue managers: cpu, software, or cards as 1a, 2c, 1a+1c, modelled:1a
    #[arg(long, default_value = "cpu", help_heading = "Configurations")]
    devices: String,
    #[command(flatten)]
    common: Common,
}

/// Who starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Who {
    /// Clients that call the listener
    Client,
    /// Sending channels that call their partner
    Channel,
}

impl Who {
    /// As configurations have it.
    const fn topology(self) -> &'static str {
        match self {
            Who::Client => "local",
            Who::Channel => "channel",
        }
    }
}

/// A version of TLS, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Version {
    /// No TLS: what a start costs without
    None,
    /// TLS 1.3
    #[value(name = "1.3")]
    Tls13,
    /// TLS 1.2 with ephemeral keys
    #[value(name = "1.2")]
    Tls12,
}

impl Version {
    /// The CipherSpec for a key; empty for none.
    fn cipher(self, key: &str) -> String {
        match self {
            Version::None => String::new(),
            Version::Tls13 => TLS13.to_owned(),
            Version::Tls12 => {
                let kind = if key.starts_with("rsa") { "RSA" } else { "ECDSA" };
                format!("ECDHE_{kind}_AES_256_GCM_SHA384")
            }
        }
    }
}

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &HandshakeArgs, host: &dyn Host) -> Result<Verdict> {
    let own = args.common.is_self()?;
    let configurations = configurations(args, own)?;
    Clerk::during(host, |clerk| {
        let mut handshakes = Handshakes {
            host,
            common: &args.common,
            keys: args.key.clone(),
            own,
            without_certificate: configurations.iter().any(|one| is_channel(one) && !one.client_certificates),
            clerk,
            partners: None,
            routes: Vec::new(),
        };
        carry_out(host, &args.common, configurations, &mut handshakes)
    })
}

fn configurations(args: &HandshakeArgs, own: bool) -> Result<Vec<Configuration>> {
    if args.key.len() > KEYS_MAX {
        return Err(Error::Usage(format!("--key takes {KEYS_MAX} keys at most")));
    }
    if !own && args.common.target.ca.is_none() {
        return Err(Error::Usage("the authorities of the broker are to be known: --ca".to_owned()));
    }
    // What another broker shows is its affair; here it is only said what the client shows.
    let keys = if own { args.key.clone() } else { vec![String::new()] };
    let shown = if own { args.client_certificate.clone() } else { vec![args.common.target.cert.is_some()] };
    let mut found: Vec<Configuration> = Vec::new();
    for who in args.who.iter().copied().filter(|who| own || *who == Who::Client) {
        for version in args.tls_version.iter().copied() {
            for key in &keys {
                for shows in &shown {
                    let cipher = version.cipher(key);
                    if cipher.is_empty() && who == Who::Client {
                        continue;
                    }
                    let configuration = Configuration {
                        key: if cipher.is_empty() { String::new() } else { key.clone() },
                        bytes: 0,
                        in_flight: if who == Who::Client { args.clients } else { args.channels },
                        devices: args.devices.clone(),
                        client_certificates: *shows && !cipher.is_empty(),
                        // Whatever suite of that version an unknown broker takes.
                        cipher: if own { cipher } else { version.any().to_owned() },
                        topology: who.topology().to_owned(),
                        ..Configuration::default()
                    };
                    if !found.contains(&configuration) {
                        found.push(configuration);
                    }
                }
            }
        }
    }
    if found.is_empty() {
        return Err(Error::Usage("clients start with TLS; channels are measured with --self".to_owned()));
    }
    Ok(found)
}

impl Version {
    const fn any(self) -> &'static str {
        match self {
            Version::None => "",
            Version::Tls13 => "ANY_TLS13",
            Version::Tls12 => "ANY_TLS12",
        }
    }
}

fn is_channel(configuration: &Configuration) -> bool {
    configuration.topology == Who::Channel.topology()
}

struct Handshakes<'h> {
    host: &'h dyn Host,
    common: &'h Common,
    keys: Vec<String>,
    /// Whether the queue managers are ours.
    own: bool,
    /// Some channels have no certificate to show.
    without_certificate: bool,
    clerk: Clerk,
    partners: Option<Partners<'h>>,
    routes: Vec<(Configuration, Vec<Route>)>,
}

impl Handshakes<'_> {
    /// Whom a client calls, and how.
    fn call(&self, configuration: &Configuration) -> Result<Call> {
        let Some(partners) = &self.partners else {
            let target = &self.common.target;
            let broker = target.brokers(self.host)?.0;
            return Ok(Call {
                address: broker.endpoint.address,
                authorities: broker.endpoint.authorities.unwrap_or_default(),
                certificate: broker.endpoint.certificate,
                tls13: is_tls13(&configuration.cipher),
            });
        };
        let label = configuration.client_certificates.then_some(configuration.key.as_str());
        Ok(partners.call(self.shows(&configuration.key), label, is_tls13(&configuration.cipher)))
    }

    /// Whose listener shows a certificate with that key.
    fn shows(&self, key: &str) -> At {
        if self.keys.first().is_some_and(|first| first == key) { At::One } else { At::Two }
    }
}

impl Workload for Handshakes<'_> {
    fn name(&self) -> &'static str {
        "handshake"
    }

    fn transactions(&self) -> &'static str {
        "starts"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        if !self.own {
            return Starts::try_once(&self.call(configuration)?);
        }
        if self.partners.is_none() {
            let devices = configuration.devices.parse().map_err(Error::Usage)?;
            let partners = Partners::start(self.host, &Settings { devices, ..settings(self.common) })?;
            partners.certify(&self.keys)?;
            if self.without_certificate {
                partners.take_certificates_away()?;
            }
            self.partners = Some(partners);
        }
        if !is_channel(configuration) {
            return Starts::try_once(&self.call(configuration)?);
        }
        let Some(partners) = &self.partners else { return Ok(()) };
        let set = self.routes.len();
        let label = |is_shown: bool| if is_shown { configuration.key.clone() } else { String::new() };
        let route = |channel| Route {
            channel: format!("S{set}.{channel}"),
            cipher: configuration.cipher.clone(),
            caller: label(configuration.client_certificates),
            called: label(!configuration.cipher.is_empty()),
            ..Route::default()
        };
        let routes: Vec<Route> = (1..=configuration.in_flight).map(route).collect();
        partners.define(&routes, &[], "", "")?;
        // Once, for what is made at the first start of all, and to see that they can run.
        let (one, two) = (partners.one.data().to_owned(), partners.two.data().to_owned());
        let (batch, stop) = (Batch::new(one, two, &routes), Arc::new(AtomicBool::new(false)));
        self.clerk.ask(move |host| batch.cycle(host, &stop).map(drop))?;
        self.routes.push((configuration.clone(), routes));
        Ok(())
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        if !is_channel(configuration) {
            let starts = Starts::start(&self.call(configuration)?, configuration.in_flight)?;
            let watched = match &self.partners {
                Some(partners) => vec![partners.manager(self.shows(&configuration.key)).watched()],
                None => self.common.target.watched(),
            };
            return Ok(Running { load: Box::new(starts), watched });
        }
        let prepared = self.routes.iter().find(|(known, _)| known == configuration).map(|(_, routes)| routes);
        let (Some(routes), Some(partners)) = (prepared, &self.partners) else {
            return Err(Error::Usage("a configuration that was not prepared".to_owned()));
        };
        let batch = Batch::new(partners.one.data().to_owned(), partners.two.data().to_owned(), routes);
        Ok(Running { load: Box::new(ChannelStarts::begin(&self.clerk, batch)), watched: partners.watched() })
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        let rates = samples.iter().filter_map(|sample| sample.found.get(PHASE_RATE).copied());
        let middle = Spread::of(rates).map_or("–".to_owned(), |spread| format!("{:.0}", spread.median));
        vec![("starts/s without ends", middle)]
    }

    fn finish(&mut self) -> Result<()> {
        self.partners.take().map_or(Ok(()), Partners::stop)
    }
}

/// Starts a second of channels while they start, without the time in which they are stopped again.
pub const PHASE_RATE: &str = "start-phase-rate";

/// Channels that are started together.
#[derive(Clone, Debug)]
struct Batch {
    /// Data directory of the queue manager that calls.
    one: PathBuf,
    /// Data directory of the one that is called.
    two: PathBuf,
    count: u64,
    /// A name for all.
    generic: String,
    starts: String,
    stops: String,
}

impl Batch {
    fn new(one: PathBuf, two: PathBuf, routes: &[Route]) -> Self {
        let each = |verb: &str, rest: &str| {
            routes.iter().map(|route| format!("{verb} CHANNEL('{}'){rest}\n", route.channel)).collect::<String>()
        };
        let stem = routes.first().and_then(|route| route.channel.split('.').next()).unwrap_or_default();
        Batch {
            one,
            two,
            count: routes.len() as u64,
            generic: format!("{stem}.*"),
            starts: each("START", ""),
            stops: each("STOP", " MODE(FORCE) STATUS(INACTIVE)"),
        }
    }

    /// Starts them, waits until all run, and stops them again. How long the start took.
    fn cycle(&self, host: &dyn Host, stop: &AtomicBool) -> Result<Option<u64>> {
        let begun = Instant::now();
        host.command(&self.one, &self.starts)?;
        let initiator = |data: &Path, keyword| -> Result<u64> {
            Ok(host.display(data, "DISPLAY CHINIT ALL")?.first().map_or(0, |row| number(row, keyword)))
        };
        let all_run = wait(|| {
            if initiator(&self.one, "RETRYING")? > 0 {
                return Err(Error::Manager("a channel does not start".to_owned()));
            }
            // Far cheaper than a row for each channel; those are looked at once, when none starts any more.
            let started = initiator(&self.one, "ACTIVE")? >= self.count && initiator(&self.one, "STARTING")? == 0;
            Ok(started && self.running(host)? >= self.count)
        });
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Err(error) = all_run {
            return Err(Error::Manager(format!("{error}: {}", self.why(host))));
        }
        if stop.load(Ordering::Acquire) {
            self.end(host)?;
            return Ok(None);
        }
        self.end(host)?;
        Ok(Some(took))
    }

    fn end(&self, host: &dyn Host) -> Result<()> {
        host.command(&self.one, &self.stops)?;
        for data in [&self.one, &self.two] {
            wait(|| Ok(host.display(data, "DISPLAY CHINIT ALL")?.first().map(|row| number(row, "ACTIVE")) == Some(0)))?;
        }
        Ok(())
    }

    fn running(&self, host: &dyn Host) -> Result<u64> {
        let rows = host.display(&self.one, &format!("DISPLAY CHSTATUS('{}') STATUS", self.generic))?;
        Ok(rows.iter().filter(|row| text(row, "STATUS") == "RUNNING").count() as u64)
    }

    /// The reason of the first that does not run.
    fn why(&self, host: &dyn Host) -> String {
        let rows = host.display(&self.one, &format!("DISPLAY CHSTATUS('{}') STATUS REASON", self.generic));
        let rows = rows.unwrap_or_default();
        let one = rows.iter().find(|row| text(row, "STATUS") != "RUNNING");
        one.map(|row| format!("{} {} {}", text(row, "CHANNEL"), text(row, "STATUS"), text(row, "REASON")))
            .unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Gauge {
    starts: AtomicU64,
    /// Nanoseconds in which they were started.
    phase: AtomicU64,
    stop: AtomicBool,
    failed: AtomicBool,
}

/// Channels that start and stop, again and again.
struct ChannelStarts {
    gauge: Arc<Gauge>,
    outcome: Receiver<Result<()>>,
    since: Option<(u64, u64)>,
    /// Channels that start together, and are counted when they have been stopped again.
    lump: u64,
}

impl ChannelStarts {
    fn begin(clerk: &Clerk, batch: Batch) -> Self {
        let (gauge, lump) = (Arc::new(Gauge::default()), batch.count);
        let shared = Arc::clone(&gauge);
        let outcome = clerk.order(move |host| {
            let work = || {
                while !shared.stop.load(Ordering::Acquire) {
                    if let Some(took) = batch.cycle(host, &shared.stop)? {
                        shared.phase.fetch_add(took, Ordering::AcqRel);
                        shared.starts.fetch_add(batch.count, Ordering::AcqRel);
                    }
                }
                Ok(())
            };
            let worked = work();
            shared.failed.store(worked.is_err(), Ordering::Release);
            worked
        });
        ChannelStarts { gauge, outcome, since: None, lump }
    }
}

impl Load for ChannelStarts {
    fn counts(&self) -> Counts {
        Counts { transactions: self.gauge.starts.load(Ordering::Acquire), ..Counts::default() }
    }

    fn lump(&self) -> u64 {
        self.lump
    }

    fn goes_on(&self) -> bool {
        !self.gauge.failed.load(Ordering::Acquire)
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        let now = (self.gauge.starts.load(Ordering::Acquire), self.gauge.phase.load(Ordering::Acquire));
        let before = self.since.replace(now);
        let rate = before.and_then(|before| {
            let seconds = now.1.saturating_sub(before.1) as f64 / 1e9;
            (seconds > 0.0).then(|| now.0.saturating_sub(before.0) as f64 / seconds)
        });
        rate.map(|rate| (PHASE_RATE.to_owned(), rate)).into_iter().collect()
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.gauge.stop.store(true, Ordering::Release);
        self.outcome.recv().unwrap_or_else(|_| Err(Error::Wrong("a thread of the load panicked".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: HandshakeArgs,
    }

    fn plan(options: &[&str]) -> Result<Vec<Configuration>> {
        let args = Line::parse_from([&["handshake"], options].concat()).args;
        configurations(&args, args.common.own)
    }

    #[test]
    fn clients_and_channels_with_two_keys_and_versions_and_with_certificates_or_without() {
        let plan = plan(&["--self"]).unwrap();
        let of = |topology: &str| plan.iter().filter(|one| one.topology == topology).collect::<Vec<_>>();
        assert_eq!(of("local").len(), 8);
        // The same and one without TLS.
        assert_eq!(of("channel").len(), 9);
        assert_eq!(of("channel").iter().filter(|one| one.cipher.is_empty()).count(), 1);
        for one in plan.iter().filter(|one| one.cipher.starts_with("ECDHE")) {
            assert_eq!(one.cipher.contains("ECDSA"), one.key == "p256", "{one:?}");
        }
        assert!(
            of("local").iter().all(|one| one.in_flight == 4) && of("channel").iter().all(|one| one.in_flight == 50)
        );
    }

    #[test]
    fn of_another_broker_only_its_listener_is_measured() {
        let plan = plan(&["--amqp", "broker:5671", "--ca", "ca.pem"]).unwrap();
        let told: Vec<(&str, &str, bool)> =
            plan.iter().map(|one| (one.topology.as_str(), one.cipher.as_str(), one.client_certificates)).collect();
        assert_eq!(told, [("local", "ANY_TLS13", false), ("local", "ANY_TLS12", false)]);
    }

    #[test]
    fn what_can_not_be_measured_is_said() {
        for wrong in [
            &["--self", "--key", "rsa2048,p256,p521"][..],
            &["--self", "--who", "client", "--tls-version", "none"],
            &["--amqp", "broker:5671"],
            &["--amqp", "broker:5671", "--ca", "ca.pem", "--who", "channel"],
        ] {
            assert!(matches!(plan(wrong), Err(Error::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn channels_of_a_batch_are_started_by_one_request() {
        let route = |channel: &str| Route { channel: channel.into(), ..Route::default() };
        let batch = Batch::new("a".into(), "b".into(), &[route("S1.1"), route("S1.2")]);
        assert_eq!(batch.starts, "START CHANNEL('S1.1')\nSTART CHANNEL('S1.2')\n");
        assert_eq!((batch.count, batch.generic.as_str()), (2, "S1.*"));
    }

    #[test]
    fn the_rate_of_starts_leaves_out_the_time_of_stops() {
        let (_, outcome) = std::sync::mpsc::channel();
        let mut starts = ChannelStarts { gauge: Arc::default(), outcome, since: None, lump: 50 };
        assert!(starts.found().is_empty());
        starts.gauge.starts.store(100, Ordering::Relaxed);
        starts.gauge.phase.store(200_000_000, Ordering::Relaxed);
        assert_eq!(starts.found()[PHASE_RATE], 500.0);
    }
}
