//! What a channel costs between two queue managers on this machine.
//!
//! `cargo bench -p bulla --bench channel -- [PART …] [OPTIONS]`. Two queue managers of its own are started on free ports of
//! the loopback interface, with certificates, users, queues and channels, and stopped again. Clients are threads of this
//! very process. Everything shares the same cores.
//!
//! - `drain`: a transmission queue that was filled while its channel was stopped, into a local queue, without a client.
//! - `stream`: a client puts at the partner, the channel seals what arrives (SPLPROT(ASPOLICY)), a client gets and opens: at
//!   a rate that is to be held, and as fast as it goes beside its bound (see `common/components.rs`).
//! - `rr`: a request through one channel and its reply through another, one at a time, by CipherSpec, with and without
//!   renewal of keys, beside what the ciphers alone take for those bytes.
//! - `start`: how many channels start in a second under TLS.
//! - `pairs`: request and reply through 1, 10 and 50 pairs of channels that open and seal at the border, beside messages
//!   that stay sealed from client to client.
//!
//! JSON lines as things are measured and a Markdown table at the end of each part, both on standard output. What is
//! compared runs in turns, and counts by its median. `elsewhere` is how many cores other processes had meanwhile: where that
//! is not near zero, rates say little.
//!
//! ```text
//! … -- drain --rounds 5
//! … -- stream --key rsa2048 --reuse 0,32 --pace flat --devices accel1
//! … -- rr start pairs --seconds 5
//! ```

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "shared with other benchmarks, of which each uses a part")]
mod common;
mod drain;
mod pairs;
mod raw;
mod report;
mod request_reply;
mod site;
mod start;
mod stream;

use clap::{Parser, ValueEnum};
use common::Result;
use common::cases::{Quality, Reuse};
use common::manager::Devices;
use report::Report;
use site::Site;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Drain,
    Stream,
    Rr,
    Start,
    Pairs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaceOf {
    /// The rate of --rate, for --hold seconds
    Held,
    /// As fast as it goes
    Flat,
}

/// Measure what channels cost, between two queue managers of its own.
#[derive(Parser, Debug)]
pub(crate) struct Options {
    /// What to measure; everything unless given
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Seconds of one round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds of which the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Messages of 2 KB on the transmission queue before it is drained: not persistent
    #[arg(long, default_value_t = 300_000)]
    messages: u64,
    /// The same, persistent
    #[arg(long, default_value_t = 100_000)]
    persistent: u64,
    /// BATCHSZ of the channels that are drained
    #[arg(long, value_delimiter = ',', default_value = "50,1000")]
    batch_size: Vec<u32>,
    /// How fast messages stream
    #[arg(long, value_delimiter = ',', default_value = "held,flat", value_enum)]
    pace: Vec<PaceOf>,
    /// Messages a second that are to be held
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Seconds for which they are
    #[arg(long, default_value_t = 20)]
    hold: u64,
    /// Qualities of protection that are streamed; of pairs, the last one
    #[arg(long, value_delimiter = ',', default_value = "none,integrity,privacy,confidentiality", value_enum)]
    quality: Vec<Quality>,
    /// Keys of signers and recipients as fast as it goes
    #[arg(long, value_delimiter = ',', default_value = "rsa1024,rsa2048,p256,p521")]
    key: Vec<String>,
    /// Keys at the rate that is to be held, and of pairs
    #[arg(long, value_delimiter = ',', default_value = "rsa1024")]
    held_key: Vec<String>,
    /// How often a content key is used again under confidentiality: numbers, or unlimited
    #[arg(long, value_delimiter = ',', default_value = "0,1,32,64,unlimited")]
    reuse: Vec<Reuse>,
    /// Channels that are started together
    #[arg(long, default_value_t = 100)]
    channels: usize,
    /// Pairs of channels
    #[arg(long, value_delimiter = ',', default_value = "1,10,50")]
    pairs: Vec<usize>,
    /// Messages put and not yet confirmed, and the credit of the getter
    #[arg(long, default_value_t = 512)]
    window: u64,
    /// Crypto devices of both queue managers beside the processor: none, or accel1, accel2, … for so many accelerators
    #[arg(long, default_value = "none")]
    devices: Devices,
    /// Further options of `bulla start`, as in --start=--adapters=1
    #[arg(long, allow_hyphen_values = true)]
    start: Vec<String>,
    /// Cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    fn round(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 600.0))
    }

    fn rounds(&self) -> usize {
        self.rounds.clamp(1, 100)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("channel: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// What measures a part.
type Measure = fn(&Options, &Site, &mut Report) -> Result<()>;

fn run(options: &Options) -> Result<()> {
    println!(
        "{}, {} cores for clients and both queue managers together; TCP on the loopback interface; devices: {}; {} rounds",
        common::processor::model(),
        common::processor::cores(),
        options.devices,
        options.rounds(),
    );
    let mut report = Report::default();
    // Each part has queue managers of its own, so that none finds what another left behind.
    let parts: [(Part, Measure); 5] = [
        (Part::Drain, drain::all),
        (Part::Stream, stream::all),
        (Part::Rr, request_reply::all),
        (Part::Start, start::all),
        (Part::Pairs, pairs::all),
    ];
    for (part, measure) in parts {
        if options.wants(part) {
            let site = Site::start(options, &stream::cases(options, part == Part::Stream || part == Part::Pairs))?;
            measure(options, &site, &mut report)?;
            site.stop()?;
        }
    }
    Ok(())
}
