//! What protection costs from end to end: 2 KB messages through a queue manager that seals and opens them.
//!
//! `cargo bench -p bulla --bench protection -- MODE [OPTIONS]`. A queue manager of its own is started on this
//! machine, with queues, policies, users and certificates, and stopped again. The client is this very process, with a
//! thread that puts and a thread that gets: client and queue manager share the same cores, and both are counted.
//!
//! - `stream`: as fast as it goes. Each rate is set beside its *bound*: what the cores could do if they did nothing but
//!   the components that such a message needs (see `components.rs`), each measured alone, in this same run.
//! - `paced`: whether a rate is held while the queue stays short.
//! - `rr`: one outstanding request and its reply; the time of a transaction beside the unprotected one.
//! - `components`: the components alone.
//!
//! Each run says how many of the busy cores other processes had. Where that is not near zero, rates say more about
//! those than about Bulla; processor time of a message is disturbed far less. With all cores busy, what a message needs
//! divided by what was spent on it is the ratio that a machine of one's own would show.
//!
//! ```text
//! … -- stream --quality integrity --key rsa2048 --devices accel2
//! … -- stream --all --devices accel1 --json stream.jsonl
//! … -- paced --quality privacy --key rsa1024 --rate 10000 --seconds 60
//! … -- rr --key rsa1024,rsa2048,rsa4096,p256,p521
//! ```

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "shared with other benchmarks, of which each uses a part")]
mod common;
mod paced;
mod request_reply;
mod stream;
mod table;

use cases::{Case, Quality, Reuse};
use clap::{Parser, ValueEnum};
use common::{Result, cases, client, components, flow, manager, pair, processor};
use manager::{Devices, Manager, Settings};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Stream,
    Paced,
    Rr,
    Components,
}

/// Measure what protection costs, through a queue manager of its own.
#[derive(Parser, Debug)]
pub(crate) struct Options {
    /// What to measure
    #[arg(value_enum, default_value = "stream")]
    mode: Mode,
    /// Qualities of protection
    #[arg(long, value_delimiter = ',', default_value = "none,integrity", value_enum)]
    quality: Vec<Quality>,
    /// Keys of signers and recipients: rsa1024, rsa2048, rsa3072, rsa4096, p256, p384, p521
    #[arg(long, value_delimiter = ',', default_value = "rsa2048")]
    key: Vec<String>,
    /// How often a content key is used again, where the quality honours it: numbers, or unlimited
    #[arg(long, value_delimiter = ',', default_value = "0")]
    reuse: Vec<Reuse>,
    /// Every quality, the keys and the reuses of the project's goals
    #[arg(long)]
    all: bool,
    /// Crypto devices of the queue manager beside the processor: none, or accel1, accel2, … for so many accelerators
    #[arg(long, default_value = "none")]
    devices: Devices,
    /// Seconds of one round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds of which the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds before the first round
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Messages put and not yet confirmed, and the credit of the getter
    #[arg(long, default_value_t = 512)]
    window: u64,
    /// Messages a second of the paced mode
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Further options of `bulla start`, as in --start=--adapters=1
    #[arg(long, allow_hyphen_values = true)]
    start: Vec<String>,
    /// Adds a JSON line with everything for each measurement to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn round(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 600.0))
    }

    fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up.clamp(0.0, 60.0))
    }

    fn cases(&self) -> Vec<Case> {
        if self.all {
            return cases::product(
                Quality::value_variants(),
                &cases::KEYS_OF_THE_GOALS.map(str::to_owned),
                &cases::REUSES_OF_THE_GOALS,
            );
        }
        cases::product(&self.quality, &self.key, &self.reuse)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("protection: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let cases = options.cases();
    let settings = Settings { name: "BENCH", options: &options.start, devices: options.devices, tls: false };
    let manager = Manager::start(&settings, &cases)?;
    let report = table::Report::new(options.json.as_deref())?;
    println!(
        "{}, {} cores for client and queue manager together; {} bytes of payload, not persistent, SCRAM over TCP on the loopback interface; devices: {}",
        processor::model(),
        processor::cores(),
        client::PAYLOAD_BYTES,
        manager.devices,
    );
    match options.mode {
        Mode::Stream => stream::all(options, &manager, &cases, report),
        Mode::Paced => paced::all(options, &manager, &cases, report),
        Mode::Rr => request_reply::all(options, &manager, &cases, report),
        Mode::Components => components_alone(&manager, &cases, &report),
    }?;
    manager.stop()
}

fn components_alone(manager: &Manager, cases: &[Case], report: &table::Report) -> Result<()> {
    let mut components = components::Components::new(manager, 0.0)?;
    for case in cases {
        components.of(case)?;
    }
    report.print_components(&components);
    Ok(())
}
