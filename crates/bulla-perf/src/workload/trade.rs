//! `bulla perf trade`: a small trading application whose customers use the queue manager over HTTPS, as a client on a
//! browser's side would.
//!
//! What is bought and sold goes over sealed queues to a broker and back; prices go over a topic. Handshakes make most
//! of the work, so that what signs them decides: the processor with or without its instructions, or crypto devices.

mod cards;
mod customer;
mod floor;
mod market;
mod mix;
mod pace;
mod pin;
mod short;
mod staff;

use super::stream::{Rate, settings, target};
use crate::configuration::Configuration;
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::load::https::Site;
use crate::report::trade as told;
use crate::result::{Goal, Sample};
use crate::run::measure::{self, Running};
use crate::run::options::{Common, key};
use crate::run::statistics::Spread;
use crate::run::{self, Taken, Workload, held};
use crate::site::{Devices, Manager, Settings};
pub(crate) use mix::Act;
pub(crate) use short::Short;

use cards::Share;
use clap::{Args, ValueEnum};
use customer::Customer;
use floor::Floor;
use market::Market;
use pace::Pace;
use pin::Cores;

/// Most requests of a connection.
const REQUESTS_MAX: i64 = 1_000_000;

/// A trading application over HTTPS: what signs its handshakes decides about rate, cost and response time
#[derive(Args, Debug)]
pub struct TradeArgs {
    /// Keys of the listener's certificate, comma separated: rsa2048, rsa4096, p256, …
    #[arg(long, value_delimiter = ',', default_value = "rsa4096", value_parser = key, help_heading = "Configurations")]
    key: Vec<String>,
    /// Requests of each connection, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=REQUESTS_MAX), help_heading = "Configurations")]
    requests: Vec<u32>,
    /// Whether TLS sessions are resumed, comma separated
    #[arg(long, value_delimiter = ',', default_value = "false", action = clap::ArgAction::Append, help_heading = "Configurations")]
    resume: Vec<bool>,
    /// Versions of TLS, comma separated
    #[arg(long, value_delimiter = ',', value_enum, default_value = "1.2", help_heading = "Configurations")]
    tls_version: Vec<Version>,
    /// Crypto devices, comma separated: software, cpu, accelerators as 1a, or modelled cards as modelled:1a,
    /// modelled:2c
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "software,cpu,modelled:1a,modelled:1c,modelled:2a,modelled:2c,1a,2a",
        help_heading = "Configurations"
    )]
    devices: Vec<String>,
    /// Customers: each has one request under way, and the next one after its answer
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1_000), help_heading = "Configurations")]
    clients: u32,
    /// Transactions a second of all customers together, comma separated; max for the next one after each answer. A rate
    /// is a goal: the exit code is 8 where it is not held
    #[arg(long, value_delimiter = ',', value_parser = target, default_values_t = [Rate(0)], help_heading = "Configurations")]
    rate: Vec<Rate>,
    /// The key that orders and their confirmations are sealed with
    #[arg(long, default_value = "rsa2048", value_parser = key, help_heading = "Configurations")]
    order_key: String,
    /// Modelled accelerators are as fast as lets one of them carry so many times what software does, which is measured
    /// first: their time for the listener's RSA key follows from it
    #[arg(long, value_name = "TIMES", value_parser = times, help_heading = "Configurations")]
    card_carries: Option<f64>,
    /// The queue manager has so many cores, one by default, and the customers and the arithmetic of modelled cards
    /// have all others
    #[arg(long, value_name = "CORES", num_args = 0..=1, default_missing_value = "1", value_parser = pinned)]
    #[arg(help_heading = "How to measure")]
    pin: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Version {
    /// TLS 1.2 with ephemeral keys and AES-256
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3 with AES-256
    #[value(name = "1.3")]
    Tls13,
}

/// The suite under TLS 1.3.
pub(crate) const TLS13: &str = "TLS_AES_256_GCM_SHA384";

impl Version {
    /// The CipherSpec for a key.
    #[must_use]
    pub fn cipher(self, key: &str) -> String {
        match self {
            Version::Tls13 => TLS13.to_owned(),
            Version::Tls12 if key.starts_with("rsa") => "ECDHE_RSA_AES_256_GCM_SHA384".to_owned(),
            Version::Tls12 => "ECDHE_ECDSA_AES_256_GCM_SHA384".to_owned(),
        }
    }
}

/// A CipherSpec of TLS 1.2, as OpenSSL has it.
fn openssl_name(cipher: &str) -> String {
    cipher.replace("AES_256", "AES256").replace('_', "-")
}

fn pinned(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|cores| *cores > 0).ok_or_else(|| "expected a number of cores from 1".to_owned())
}

pub(crate) fn times(text: &str) -> std::result::Result<f64, String> {
    let times = text.parse().ok().filter(|times: &f64| (0.1..=1000.0).contains(times));
    times.ok_or_else(|| "expected a number from 0.1 to 1000".to_owned())
}

/// Does what the arguments say.
///
/// # Errors
/// As [`run::take`].
pub fn run(args: &TradeArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.only_self()?;
    measured(args, host)?.verdict()
}

/// As a study: always with queue managers of its own.
///
/// # Errors
/// [`Error::Usage`]: a broker was named; else as [`run::take`].
pub(crate) fn take(args: &TradeArgs, host: &dyn Host) -> Result<Taken> {
    args.common.no_broker()?;
    measured(args, host)
}

impl TradeArgs {
    /// Whether nothing but lines of JSON is to be printed.
    pub(crate) fn is_silent(&self) -> bool {
        self.common.json
    }
}

fn measured(args: &TradeArgs, host: &dyn Host) -> Result<Taken> {
    let configurations = configurations(args)?;
    let cores = args.pin.map(Cores::take).transpose()?;
    let mut trade = Trade { host, args, cores, markets: Vec::new(), card: None, samples: 0 };
    run::take(host, &args.common, configurations, &mut trade)
}

fn configurations(args: &TradeArgs) -> Result<Vec<Configuration>> {
    let mut found: Vec<Configuration> = Vec::new();
    for devices in &args.devices {
        let setup: Devices = devices.parse().map_err(Error::Usage)?;
        if setup.keeps_keys() {
            let why = "the listener's key is in a file: a token is of no use to it; modelled:1c stands for a card";
            return Err(Error::Usage(format!("{devices}: {why}")));
        }
        for key in &args.key {
            for requests in &args.requests {
                for version in &args.tls_version {
                    for resumed in &args.resume {
                        let configuration = Configuration {
                            key: key.clone(),
                            bytes: 0,
                            in_flight: args.clients,
                            devices: setup.to_string(),
                            cipher: version.cipher(key),
                            requests: *requests,
                            resumed: *resumed,
                            ..Configuration::default()
                        };
                        let at_a_rate = |rate: &Rate| Configuration { target_rate: rate.0, ..configuration.clone() };
                        found.extend(args.rate.iter().map(at_a_rate));
                    }
                }
            }
        }
    }
    let mut seen: Vec<Configuration> = Vec::new();
    found.retain(|one| {
        !seen.contains(one) && {
            seen.push(one.clone());
            true
        }
    });
    Ok(found)
}

struct Trade<'h> {
    host: &'h dyn Host,
    args: &'h TradeArgs,
    cores: Option<Cores>,
    /// A market for each of the devices and listener's keys that were asked for.
    markets: Vec<(Configuration, Market<'h>)>,
    /// What `--card-carries` came to, for a listener's key.
    card: Option<(String, String)>,
    /// How many were taken.
    samples: u64,
}

/// What makes a market another one.
fn setup(configuration: &Configuration) -> Configuration {
    Configuration {
        key: configuration.key.clone(),
        devices: configuration.devices.clone(),
        resumed: configuration.resumed,
        ..Configuration::default()
    }
}

impl<'h> Trade<'h> {
    /// The market of a configuration, opened when it is first asked for.
    fn market(&mut self, configuration: &Configuration) -> Result<&Market<'h>> {
        let setup = setup(configuration);
        let at = match self.markets.iter().position(|(known, _)| *known == setup) {
            Some(at) => at,
            None => {
                let market = self.open(&setup)?;
                self.markets.push((setup, market));
                self.markets.len() - 1
            }
        };
        Ok(&self.markets[at].1)
    }

    fn open(&mut self, setup: &Configuration) -> Result<Market<'h>> {
        let devices: Devices = setup.devices.parse().map_err(Error::Usage)?;
        let card = self.card_for(setup, &devices)?;
        let own = settings(&self.args.common);
        let mut options = own.options.clone();
        if setup.resumed {
            options.push("--https-resume".to_owned());
        }
        // Modelled accelerators can do nothing with keys on curves.
        let is_curve = [&setup.key, &self.args.order_key].into_iter().any(|key| key.starts_with('p'));
        let curves = devices.modelled && devices.accelerators > 0 && is_curve;
        let name = format!("TRADE{}", self.markets.len() + 1);
        let settings = Settings { name, devices: devices.clone(), https: true, curves, options, ..own };
        let manager = Manager::start(self.host, &settings)?;
        if let Some(times) = card {
            manager.set_service_times(&devices, &times)?;
        }
        let market = Market::open(manager, &setup.key, &self.args.order_key, self.args.clients)?;
        if let Some(cores) = &self.cores {
            cores.give(market.pid())?;
        }
        Ok(market)
    }

    /// Service times of modelled accelerators for a listener's key, where they follow from what software does.
    fn card_for(&mut self, setup: &Configuration, devices: &Devices) -> Result<Option<String>> {
        let Some(times) = self.args.card_carries else { return Ok(None) };
        if !devices.modelled || devices.accelerators == 0 || !setup.key.starts_with("rsa") {
            return Ok(None);
        }
        if let Some((key, card)) = &self.card
            && *key == setup.key
        {
            return Ok(Some(card.clone()));
        }
        let software = Configuration {
            key: setup.key.clone(),
            bytes: 0,
            in_flight: self.args.clients,
            devices: "software".to_owned(),
            cipher: Version::Tls12.cipher(&setup.key),
            requests: 1,
            ..Configuration::default()
        };
        let running = self.start(&software)?;
        let sample = measure::measure(self.host, running, &software, self.args.common.timing(), &mut |_| true)?;
        let share = Share::of(&sample, &setup.key)?;
        let card = share.carrying(times)?;
        eprintln!(
            "derived: {card} µs, so that one modelled accelerator carries {times} times what software does: {:.1} transactions a second",
            sample.rate
        );
        self.card = Some((setup.key.clone(), card.clone()));
        Ok(Some(card))
    }
}

impl Workload for Trade<'_> {
    fn name(&self) -> &'static str {
        "trade"
    }

    fn transactions(&self) -> &'static str {
        "transactions"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        let requests = configuration.requests;
        let (resumes, market) = (configuration.resumed, self.market(configuration)?);
        let visit = market.visit(configuration.cipher == TLS13, openssl_name(&configuration.cipher), resumes);
        // One of each kind, to see that it can be done.
        let staff = staff::Staff::start(&market.broker())?;
        let mut customer = Customer::new(&Site::new(&visit)?, market.paths(), 0, requests, 0);
        let acted = mix::Act::MIX.iter().try_for_each(|(act, _)| customer.act(*act));
        customer.leave();
        staff.stop().and(acted)
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        self.samples += 1;
        let (run, clients) = (self.samples, self.args.clients);
        let market = self.market(configuration)?;
        let tls13 = configuration.cipher == TLS13;
        let visit = market.visit(tls13, openssl_name(&configuration.cipher), configuration.resumed);
        let site = Site::new(&visit)?;
        let customers = (0..clients)
            .map(|number| Customer::new(&site, market.paths(), number, configuration.requests, run))
            .collect();
        let floor = Floor::open(&market.broker(), customers, Pace::of(configuration))?;
        Ok(Running { load: Box::new(floor), watched: vec![market.watched()] })
    }

    fn goal(&self, sample: &Sample) -> Option<Goal> {
        let rate = sample.configuration.target_rate;
        (rate != 0).then(|| held(rate as f64, sample, self.transactions()))
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        let middle = |of: &dyn Fn(&Sample) -> Option<f64>, digits: usize| {
            let spread = Spread::of(samples.iter().filter_map(|sample| of(sample)));
            spread.map_or("–".to_owned(), |spread| format!("{:.digits$}", spread.median))
        };
        vec![
            ("mean ms", middle(&|sample| Some(sample.latency_us?.mean / 1e3), 2)),
            ("handshakes", middle(&|sample| sample.found.get(floor::HANDSHAKES).copied(), 2)),
            ("queue manager: µs", middle(&|sample| Some(told::cost_us(sample)), 0)),
            ("its cores", middle(&|sample| Some(told::cores(sample)), 2)),
            ("with devices", middle(&|sample| Some(told::pending(sample)), 2)),
        ]
    }

    fn conclusion(&self, samples: &[Vec<Sample>]) -> String {
        told::normalised(samples)
    }

    fn finish(&mut self) -> Result<()> {
        let ends: Vec<Result<()>> = self.markets.drain(..).map(|(_, market)| market.close()).collect();
        ends.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TradeArgs,
    }

    fn plan(options: &[&str]) -> Result<Vec<Configuration>> {
        configurations(&Line::parse_from([&["trade", "--self"], options].concat()).args)
    }

    #[test]
    fn every_setup_meets_every_key_and_every_length_of_a_connection() {
        assert_eq!(plan(&[]).unwrap().len(), 8);
        let options = ["--key", "rsa4096,p256", "--requests", "1,10,100", "--resume", "false,true"];
        let plan = plan(&[&options[..], &["--tls-version", "1.2,1.3", "--devices", "cpu,1a"]].concat()).unwrap();
        assert_eq!(plan.len(), 2 * 2 * 3 * 2 * 2);
        assert!(plan.iter().all(|one| one.in_flight == 24 && one.bytes == 0));
        let suites: Vec<&str> = plan.iter().map(|one| one.cipher.as_str()).collect();
        for suite in ["ECDHE_RSA_AES_256_GCM_SHA384", "ECDHE_ECDSA_AES_256_GCM_SHA384", TLS13] {
            assert!(suites.contains(&suite), "{suite}");
        }
        let rates: Vec<u64> = self::plan(&["--devices", "cpu,cpu", "--rate", "max,250"])
            .unwrap()
            .iter()
            .map(|one| one.target_rate)
            .collect();
        assert_eq!(rates, [0, 250]);
        assert_eq!(openssl_name("ECDHE_RSA_AES_256_GCM_SHA384"), "ECDHE-RSA-AES256-GCM-SHA384");
    }

    #[test]
    fn a_token_can_not_have_the_key_of_a_listener() {
        let error = plan(&["--devices", "1c"]).unwrap_err().to_string();
        assert!(error.contains("modelled:1c"), "{error}");
        assert!(plan(&["--devices", "modelled:1c"]).is_ok());
    }
}
