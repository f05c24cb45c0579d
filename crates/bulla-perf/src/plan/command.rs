//! `bulla plan`: its commands and their options.

use super::calibrate::{self, CalibrateArgs};
use super::check::{self, CheckArgs};
use super::hardware;
use super::https::{self, Customers, Setup};
use super::page;
use super::predict::{Prediction, SEED, Workload, predict_workload};
use super::profile::Profile;
use super::target::{self, Target};
use super::text;
use super::trust::Trust;
use super::what_if::{WHAT_IFS, WhatIf, apply, what_if};
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::report;
use crate::run::options::{STREAM_WINDOW, bytes, key, one_key_or_two, rate, sign_batch};
use crate::spelling;
use crate::workload::trade::{Version, times};
use clap::{Args, Subcommand};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Plan capacity: what a setup would do, what a change would bring, what a rate needs
#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Subcommand, Debug)]
enum PlanCommand {
    Calibrate(CalibrateArgs),
    Predict(Box<PredictArgs>),
    Check(CheckArgs),
    Show(ShowArgs),
}

/// Does what the arguments say.
///
/// # Errors
/// [`Error`], each kind.
pub fn run(args: &PlanArgs, host: &dyn Host) -> Result<Verdict> {
    match &args.command {
        PlanCommand::Calibrate(args) => calibrate::run(args, host),
        PlanCommand::Predict(args) => predict(args),
        PlanCommand::Check(args) => check::run(args, host),
        PlanCommand::Show(args) => show(args),
    }
}

/// Compute what a setup would do
#[derive(Args, Debug)]
pub struct PredictArgs {
    /// The system, as docs/formats/profile.md has it; without it this machine, as `bulla plan calibrate` left it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// What a transaction is; by itself request-reply with --in-flight 1 and no rate to hold, else stream. https is the
    /// trading application of `bulla perf trade`
    #[arg(long, value_enum, help_heading = "Configuration")]
    workload: Option<Workload>,
    /// What the policy asks for
    #[arg(long, value_enum, default_value = "none", help_heading = "Configuration")]
    quality: Quality,
    /// The key of signer and recipient, or of the HTTPS listener: rsa1024, rsa2048, rsa4096, p256, p384, p521,
    /// ml-dsa-65 (which reads with ML-KEM). Two kinds with a plus between, as rsa4096+p256 or rsa4096+ml-kem-768: one
    /// to sign and one to read
    #[arg(long, default_value = "rsa2048", value_parser = one_key_or_two, help_heading = "Configuration")]
    key: String,
    /// How often a content key is used again: a number, or unlimited
    #[arg(long, default_value = "0", help_heading = "Configuration")]
    reuse: Reuse,
    /// How many messages one signature may prove (SIGNBATCH), 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = sign_batch(), help_heading = "Configuration")]
    sign_batch: u32,
    /// Recipients of each message
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Configuration")]
    recipients: u32,
    /// The payload: bytes, or with k or m, as 2k, 64k, 4m
    #[arg(long, alias = "bytes", default_value = "2k", value_parser = bytes, help_heading = "Configuration")]
    size: u64,
    /// Persistent messages
    #[arg(long, help_heading = "Configuration")]
    persistent: bool,
    /// Pairs at work
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Configuration")]
    pairs: u32,
    /// Messages of a pair under way at once; by itself 512 of a stream, 1 of request and reply
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Configuration")]
    in_flight: Option<u32>,
    /// Transactions a second to hold; 0 for as fast as it goes
    #[arg(long, default_value_t = 0, help_heading = "Configuration")]
    target_rate: u64,
    /// Crypto devices: cpu, software, or cards as 1a, 2c, 1a+1c, modelled:1a
    #[arg(long, default_value = "cpu", help_heading = "Configuration")]
    devices: String,
    /// CipherSpec of clients, or of the channel where there is one
    #[arg(long, default_value = "", help_heading = "Configuration")]
    cipher: String,
    /// The way: local, or channel for two queue managers
    #[arg(long, default_value = "local", help_heading = "Configuration")]
    topology: String,
    /// Dispatchers (CHIDISPS); the profile's unless given
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024), help_heading = "Configuration")]
    dispatchers: u32,
    /// Adapters (CHIADAPS); the profile's unless given
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024), help_heading = "Configuration")]
    adapters: u32,
    #[command(flatten)]
    https: HttpsArgs,
    #[arg(
        long,
        value_name = "CHANGE",
        help_heading = "Questions",
        help = format!("What would change with something else; may be given many times: {}", WHAT_IFS.join(", "))
    )]
    what_if: Vec<String>,
    /// The cheapest setup that holds so many transactions a second: 10000/s
    #[arg(long, value_name = "RATE", value_parser = target_rate, help_heading = "Questions")]
    target: Option<f64>,
    /// Where the simulation's random numbers come from
    #[arg(long, default_value_t = SEED, help_heading = "Output")]
    seed: u64,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Write a page with curves: rate by messages in flight, response by load
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
}

/// What only the workload https has.
#[derive(Args, Debug)]
struct HttpsArgs {
    /// Requests of each connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Workload https")]
    requests: u32,
    /// TLS sessions are resumed
    #[arg(long, help_heading = "Workload https")]
    resume: bool,
    /// The version of TLS
    #[arg(long, value_enum, default_value = "1.2", help_heading = "Workload https")]
    tls_version: Version,
    /// Customers: each has one request under way, and the next one after its answer
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000), help_heading = "Workload https")]
    clients: u32,
    /// The key that orders are sealed with
    #[arg(long, default_value = "rsa2048", value_parser = key, help_heading = "Workload https")]
    order_key: String,
    /// So many cores instead of the profile's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Workload https")]
    cores: Option<u32>,
    /// Customers and broker are on another machine: all cores are the queue manager's
    #[arg(long, help_heading = "Workload https")]
    customers_elsewhere: bool,
    /// Modelled accelerators are as fast as lets one of them carry so many times what software does
    #[arg(long, value_name = "TIMES", value_parser = times, help_heading = "Workload https")]
    card_carries: Option<f64>,
}

impl HttpsArgs {
    fn setup(&self) -> Setup {
        Setup {
            order_key: self.order_key.clone(),
            customers: if self.customers_elsewhere { Customers::Elsewhere } else { Customers::Here },
            cores: self.cores,
            card_carries: self.card_carries,
        }
    }
}

impl PredictArgs {
    /// What is planned.
    fn planned(&self) -> (Configuration, Workload) {
        let workload = self.workload.unwrap_or(match (self.in_flight, self.target_rate) {
            (Some(1), 0) => Workload::RequestReply,
            _ => Workload::Stream,
        });
        if workload == Workload::Https {
            return (self.https(), workload);
        }
        let usual = if workload == Workload::Stream { STREAM_WINDOW } else { 1 };
        let configuration = Configuration {
            quality: self.quality,
            key: if self.quality == Quality::None { String::new() } else { self.key.clone() },
            reuse: self.reuse,
            sign_batch: self.sign_batch,
            recipients: self.recipients,
            bytes: self.size,
            persistent: self.persistent,
            pairs: self.pairs,
            in_flight: self.in_flight.unwrap_or(usual),
            target_rate: self.target_rate,
            devices: self.devices.clone(),
            cipher: self.cipher.clone(),
            topology: self.topology.clone(),
            dispatchers: self.dispatchers,
            adapters: self.adapters,
            ..Configuration::default()
        };
        (configuration, workload)
    }

    /// The same of the trading workload; what it does not have is left as it was said, and refused.
    fn https(&self) -> Configuration {
        Configuration {
            quality: self.quality,
            key: self.key.clone(),
            bytes: 0,
            persistent: self.persistent,
            in_flight: self.in_flight.unwrap_or(self.https.clients),
            target_rate: self.target_rate,
            devices: self.devices.clone(),
            cipher: self.https.tls_version.cipher(&self.key),
            requests: self.https.requests,
            resumed: self.https.resume,
            topology: self.topology.clone(),
            dispatchers: self.dispatchers,
            adapters: self.adapters,
            ..Configuration::default()
        }
    }

    /// Predicts it.
    fn predicted(&self, profile: &Profile, configuration: &Configuration, workload: Workload) -> Result<Prediction> {
        match workload {
            Workload::Https => https::predict(profile, configuration, &self.https.setup(), self.seed),
            _ => predict_workload(profile, configuration, workload, self.seed),
        }
    }
}

/// Transactions a second, with or without the unit.
fn target_rate(text: &str) -> std::result::Result<f64, String> {
    rate(text.strip_suffix("/s").unwrap_or(text))
}

/// All that was asked, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The configuration as it was given.
    pub prediction: Prediction,
    /// Each change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<WhatIf>,
    /// The cheapest setup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// How far to trust the profile, where it says so.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "respelled")]
    pub trust: Option<Trust>,
}

/// What a profile has by the names of JSON.
fn respelled<S: Serializer>(trust: &Option<Trust>, to: S) -> std::result::Result<S::Ok, S::Error> {
    let value = serde_json::to_value(trust).map_err(S::Error::custom)?;
    spelling::respelled(value).serialize(to)
}

fn predict(args: &PredictArgs) -> Result<Verdict> {
    let profile = read(args.profile.as_deref())?;
    let (configuration, workload) = args.planned();
    let is_https = workload == Workload::Https;
    if is_https && (args.target.is_some() || args.output.is_some()) {
        return Err(Error::Usage(
            "https has no --target and no page: ask by --what-if what a change brings".to_owned(),
        ));
    }
    let prediction = args.predicted(&profile, &configuration, workload)?;
    let changes = args.what_if.iter();
    let changed = changes.map(|change| {
        let mut from = configuration.clone();
        if from.key.is_empty() {
            // A change of quality asks for the key that was said, or meant.
            from.key.clone_from(&args.key);
        }
        if !is_https {
            return what_if(&profile, &from, workload, args.seed, change);
        }
        let mut changed = profile.clone();
        apply(&mut changed, &mut from, change)?;
        if change.contains('=') && from.key != configuration.key {
            from.cipher = args.https.tls_version.cipher(&from.key);
        }
        let mut setup = args.https.setup();
        setup.cores = setup.cores.filter(|_| !change.starts_with("cores="));
        let prediction = https::predict(&changed, &from, &setup, args.seed)?;
        Ok(WhatIf { change: change.clone(), prediction })
    });
    let what_if = changed.collect::<Result<Vec<_>>>()?;
    let wanted = args.target.map(|rate| rate.ceil() as u64);
    let found = wanted.map(|wanted| target::cheapest(&profile, &configuration, workload, args.seed, wanted));
    let answer = Answer { prediction, what_if, target: found.transpose()?, trust: profile.trust.clone() };
    if let Some(path) = &args.output {
        let document = page::document(&profile, &configuration, workload, args.seed, &answer)?;
        fs::write(path, report::page::html(&document)).map_err(|error| Error::file(path, error))?;
    }
    if args.json {
        let json = serde_json::to_string_pretty(&answer).map_err(|error| Error::System(error.into()))?;
        print(&format!("{json}\n"));
    } else {
        print(&text::answer(&answer));
    }
    let missed =
        answer.prediction.held == Some(false) || answer.target.as_ref().is_some_and(|target| target.setup.is_none());
    Ok(if missed { Verdict::Missed } else { Verdict::Done })
}

/// Show a profile, and how full devices are by the load that it states
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The file; without it this machine, as `bulla plan calibrate` left it
    profile: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn show(args: &ShowArgs) -> Result<Verdict> {
    let profile = read(args.profile.as_deref())?;
    let devices = hardware::utilisation(&profile)?;
    if args.json {
        let value = serde_json::json!({ "profile": profile, "utilisation": devices });
        let value = spelling::respelled(value);
        let json = serde_json::to_string_pretty(&value).map_err(|error| Error::System(error.into()))?;
        print(&format!("{json}\n"));
    } else {
        print(&profile.to_toml()?);
        print(&text::devices(&devices));
        for line in profile.trust.iter().flat_map(Trust::lines) {
            print(&format!("\n# {line}"));
        }
        if profile.trust.is_some() {
            print("\n");
        }
        if let Some(lacks) = profile.lacks() {
            print(&format!("\n# {lacks}\n"));
        }
    }
    Ok(Verdict::Done)
}

/// The profile of that file, or of this machine.
///
/// # Errors
/// [`Error::Usage`] where none was made of this machine yet; as [`Profile::read`].
pub fn read(path: Option<&Path>) -> Result<Profile> {
    if let Some(path) = path {
        return Profile::read(path);
    }
    let Some(path) = Profile::default_path() else {
        return Err(Error::Usage("no home directory: say --profile FILE, or set BULLA_PROFILE".to_owned()));
    };
    if !path.exists() {
        return Err(Error::Usage(format!(
            "this machine has no profile at {}: make one with `bulla plan calibrate`, or say --profile FILE",
            path.display()
        )));
    }
    Profile::read(&path)
}

/// A reader that goes away (`| head`) is no failure.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
