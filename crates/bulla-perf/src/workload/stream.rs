//! `bulla perf stream`: messages one way, at a rate or as fast as it goes.

use super::clerk::Clerk;
use super::crossing::Crossings;
use super::fleet::BORDER_CIPHER;
use super::island::policy_is_needed;
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::load::flow::{Flow, Pace, Stream};
use crate::load::{Loads, Seat};
use crate::result::{Goal, Sample};
use crate::run::measure::Running;
use crate::run::options::{Common, Defaults, Protection, STREAM_WINDOW};
use crate::run::{Workload, carry_out, held};
use crate::site::{Place, Settings, Site};
use clap::{Args, ValueEnum};

/// Messages a second of the published shape.
const RATE: u64 = 10_000;
/// Bytes that messages may have together that are put and not yet confirmed.
const WINDOW_BYTES: u64 = 64 << 20;

/// Messages one way, at a rate or as fast as it goes: what is reached, what it costs, how much piles up
#[derive(Args, Debug)]
pub struct StreamArgs {
    /// Messages a second of all pairs together, comma separated; max for as fast as it goes. A rate is a goal: the exit
    /// code is 8 where it is not held
    #[arg(long, value_delimiter = ',', value_parser = target, default_values_t = [Rate(RATE)], help_heading = "Configurations")]
    rate: Vec<Rate>,
    /// Messages put and not yet confirmed, and the credit of the getter
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Configurations")]
    window: Option<u32>,
    /// With --self, messages a queue holds; the putter waits and puts again what is refused beyond (2053)
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=999_999_999), help_heading = "Configurations")]
    max_depth: u32,
    /// Which way messages go: through one queue manager, or through a channel that seals what arrives at the other one
    #[arg(long, value_enum, default_value = "local", help_heading = "Configurations")]
    topology: Topology,
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    common: Common,
}

/// Which way messages go.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Topology {
    /// Put, sealed, opened and got at one queue manager
    Local,
    /// Put in clear at one queue manager, sealed by the channel at another (SPLPROT(ASPOLICY)), got there
    Channel,
}

/// Messages a second; 0 for as fast as it goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Rate(pub(super) u64);

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("max"),
            rate => rate.fmt(f),
        }
    }
}

/// What `--rate` says.
pub(super) fn target(text: &str) -> std::result::Result<Rate, String> {
    match text {
        "max" => Ok(Rate(0)),
        text => {
            let rate = text.parse().ok().filter(|rate| (1..=100_000_000).contains(rate));
            rate.map(Rate).ok_or_else(|| "expected a rate a second, or max".to_owned())
        }
    }
}

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &StreamArgs, host: &dyn Host) -> Result<Verdict> {
    let defaults = Defaults {
        quality: &Quality::ALL,
        key: &["rsa2048"],
        reuse: &[Reuse::Times(32)],
        size: &[2048],
        pairs: &[1],
        devices: &["cpu"],
    };
    let mut configurations = Vec::new();
    let products = if args.common.is_self()? {
        args.protection.product(&defaults)?
    } else {
        // What the queue's policy asks for is the broker's affair; here it is only said.
        args.protection.product(&Defaults { quality: &[Quality::None], ..defaults })?
    };
    for configuration in products {
        for rate in &args.rate {
            let one = Configuration { target_rate: rate.0, ..configuration.clone() };
            // Results say what was under way, not what was asked for.
            let in_flight = match args.window {
                Some(window) => fitting(&one, window),
                None => in_flight(&one),
            };
            configurations.push(Configuration { in_flight, ..one });
        }
    }
    let settings = Settings { depth_max: args.max_depth, ..settings(&args.common) };
    if args.topology == Topology::Channel {
        args.common.only_self()?;
        configurations.iter_mut().for_each(|configuration| *configuration = crossing(configuration.clone()));
        let Protection { dispatchers, adapters, .. } = args.protection;
        let settings = Settings { dispatchers, adapters, ..settings };
        return Clerk::during(host, |clerk| {
            let mut crossings = Crossings::new(host, clerk, settings);
            carry_out(host, &args.common, configurations, &mut crossings)
        });
    }
    let configurations = placed(&args.common, configurations);
    let mut streams = Streams::new("stream", host, &args.common, settings);
    carry_out(host, &args.common, configurations, &mut streams)
}

/// The configuration with a channel that seals on the way.
pub(super) fn crossing(configuration: Configuration) -> Configuration {
    let topology = "channel".to_owned();
    if !policy_is_needed(&configuration) {
        return Configuration { topology, ..configuration };
    }
    // The channel seals only for a partner with a certificate.
    Configuration { topology, cipher: BORDER_CIPHER.to_owned(), client_certificates: true, ..configuration }
}

/// How the queue managers of a run are started.
pub(super) fn settings(common: &Common) -> Settings {
    Settings { tls: common.tls, client_seal: common.client_seal, options: common.start.clone(), ..Settings::default() }
}

/// Streams through one queue manager, a queue and two threads for each pair; what several subcommands are made of.
pub(super) struct Streams<'h> {
    name: &'static str,
    common: &'h Common,
    host: &'h dyn Host,
    site: Option<Site<'h>>,
}

impl<'h> Streams<'h> {
    pub(super) fn new(name: &'static str, host: &'h dyn Host, common: &'h Common, settings: Settings) -> Streams<'h> {
        Streams { name, common, host, site: common.own.then(|| Site::new(host, settings)) }
    }

    /// Where each pair puts and gets.
    fn seats(&mut self, configuration: &Configuration) -> Result<Vec<(Seat, Seat)>> {
        match &mut self.site {
            Some(site) => own_seats(site, configuration),
            None => {
                let target = &self.common.target;
                let (putter, getter) = target.brokers(self.host)?;
                let queues = target.queues(configuration.pairs as usize)?;
                Ok(queues.iter().map(|queue| (Seat::at(&putter, queue), Seat::at(&getter, queue))).collect())
            }
        }
    }
}

impl Workload for Streams<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn transactions(&self) -> &'static str {
        "messages"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        self.seats(configuration).map(drop)
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        let streams = streams(&self.seats(configuration)?, configuration)?;
        let watched = match &mut self.site {
            Some(site) => vec![site.manager(configuration)?.watched()],
            None => self.common.target.watched(),
        };
        Ok(Running { load: Box::new(streams), watched })
    }

    fn goal(&self, sample: &Sample) -> Option<Goal> {
        let rate = sample.configuration.target_rate;
        (rate != 0).then(|| held(rate as f64, sample, self.transactions()))
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        let depths = samples.iter().flat_map(|sample| &sample.course).filter_map(|moment| moment.depth);
        let most = depths.max_by(f64::total_cmp);
        most.map(|most| ("most queued", format!("{most:.0}"))).into_iter().collect()
    }

    fn finish(&mut self) -> Result<()> {
        self.site.take().map_or(Ok(()), Site::stop)
    }
}

/// Messages under way where the command line says nothing: enough to keep every device's lanes full, and so few that a
/// slow key's are soon through; as [`fitting`] has it. Where messages share a signature, as many as two batches: one
/// gathers while the other one is signed.
pub(crate) fn in_flight(configuration: &Configuration) -> u32 {
    let usual = match (configuration.quality, configuration.key.as_str()) {
        (Quality::None | Quality::Confidentiality, _) => STREAM_WINDOW,
        (_, "rsa1024" | "rsa2048" | "p256") => 128,
        _ => 64,
    };
    let batches = if configuration.sign_batch > 1 { 2 * configuration.sign_batch } else { 0 };
    fitting(configuration, usual.max(batches))
}

/// The configurations with that many messages under way.
pub(super) fn streamed(common: &Common, configurations: Vec<Configuration>) -> Vec<Configuration> {
    let one = |configuration| Configuration { in_flight: in_flight(&configuration), ..configuration };
    placed(common, configurations.into_iter().map(one).collect())
}

/// The configurations with where their messages are sealed. One that is not sealed is the same either way.
pub(super) fn placed(common: &Common, configurations: Vec<Configuration>) -> Vec<Configuration> {
    let seals = common.client_seal || common.target.ring.is_some();
    let topology = |one: &Configuration| match seals && one.quality != Quality::None {
        true => "end-to-end".to_owned(),
        false => one.topology.clone(),
    };
    configurations.into_iter().map(|one| Configuration { topology: topology(&one), ..one }).collect()
}

/// Where each pair puts and gets at a queue manager of our own.
fn own_seats(site: &mut Site<'_>, configuration: &Configuration) -> Result<Vec<(Seat, Seat)>> {
    let places = (0..configuration.pairs).map(|number| site.define(configuration, number));
    let places: Vec<Place> = places.collect::<Result<_>>()?;
    Ok(places.iter().map(|place| (place.putting(), place.getting())).collect())
}

/// Starts the streams of a configuration at a queue manager of our own.
///
/// # Errors
/// As [`Site::define`], and what the queue manager refuses.
pub(crate) fn start(site: &mut Site<'_>, configuration: &Configuration) -> Result<Running> {
    let streams = streams(&own_seats(site, configuration)?, configuration)?;
    Ok(Running { load: Box::new(streams), watched: vec![site.manager(configuration)?.watched()] })
}

fn streams(seats: &[(Seat, Seat)], configuration: &Configuration) -> Result<Loads<Stream>> {
    let flow = flow(configuration);
    let mut streams = Loads(Vec::new());
    for (number, (putter, getter)) in seats.iter().enumerate() {
        streams.0.push(Stream::start(putter, getter, flow, number)?);
    }
    Ok(streams)
}

/// What flows under a configuration, through each of its pairs.
pub(super) fn flow(configuration: &Configuration) -> Flow {
    let getting = configuration.getting;
    let pace = match configuration.target_rate {
        0 => Pace::Flat,
        rate => Pace::Rate(rate as f64 / f64::from(configuration.pairs)),
    };
    Flow {
        bytes: configuration.bytes as usize,
        persistent: configuration.persistent,
        pace,
        window: fitting(configuration, configuration.in_flight),
        getter_rate: (getting.getter_rate > 0).then(|| getting.getter_rate as f64 / f64::from(configuration.pairs)),
        receiver_bytes: getting.receiver_bytes,
    }
}

/// So many messages under way, or as many as a rate needs, and no more than fit into memory. What fits stays as it is.
fn fitting(configuration: &Configuration, wanted: u32) -> u32 {
    let fit = (WINDOW_BYTES / configuration.bytes.max(1)).clamp(2, u64::from(u32::MAX));
    // A rate must be held back by its schedule: room for a tenth of a second in flight.
    let of_rate = configuration.target_rate / u64::from(configuration.pairs.max(1)) / 10;
    u64::from(wanted).max(of_rate).min(fit).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_room_for_the_schedule_and_fits_into_memory() {
        let of = |bytes, target_rate, in_flight| {
            let configuration = Configuration { bytes, target_rate, ..Configuration::default() };
            let fits = fitting(&configuration, in_flight);
            assert_eq!(fitting(&configuration, fits), fits);
            fits
        };
        assert_eq!(of(2048, 0, 512), 512);
        assert_eq!(of(2048, 10_000, 512), 1000);
        assert_eq!(of(4 << 20, 10_000, 512), 16);
        assert_eq!(of(96 << 20, 0, 1), 1);
    }

    #[test]
    fn two_batches_are_in_flight_where_messages_share_a_signature() {
        let of = |sign_batch| {
            let key = "rsa4096".to_owned();
            in_flight(&Configuration { quality: Quality::Integrity, key, sign_batch, ..Configuration::default() })
        };
        assert_eq!([1, 16, 64, 1024].map(of), [64, 64, 128, 2048]);
    }

    #[test]
    fn a_rate_is_a_number_or_max() {
        assert_eq!((target("max"), target("10000")), (Ok(Rate(0)), Ok(Rate(10_000))));
        for text in ["0", "-1", "", "fast", "1e9"] {
            assert!(target(text).is_err(), "{text}");
        }
    }
}
