//! `bulla perf tasks`: how many dispatchers and adapters there should be.
//!
//! Request and reply through many pairs of channels, protected at the border of QM1 or as `--island` says, while
//! CHIDISPS and CHIADAPS of both queue managers change from one configuration to the next. A connection stays on its
//! dispatcher, so channels and clients connect anew for each sample.

use super::fleet::fits;
use super::island::Island;
use super::islands::{Islands, adapters, island};
use super::stream::settings;
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::result::Sample;
use crate::run::measure::Running;
use crate::run::options::{Common, bytes, key};
use crate::run::statistics::Spread;
use crate::run::{Workload, carry_out};
use clap::Args;

/// Most tasks of a kind that are asked for.
const TASKS_MAX: i64 = 64;

/// How many dispatchers and adapters: CHIDISPS by CHIADAPS while many pairs of channels are busy
#[derive(Args, Debug)]
pub struct TasksArgs {
    /// Dispatchers of both queue managers (CHIDISPS), comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,10", value_parser = clap::value_parser!(u32).range(1..=TASKS_MAX), help_heading = "Configurations")]
    dispatchers: Vec<u32>,
    /// Adapters of both queue managers (CHIADAPS), comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,10", value_parser = clap::value_parser!(u32).range(1..=TASKS_MAX), help_heading = "Configurations")]
    adapters: Vec<u32>,
    /// Pairs of channels
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200), help_heading = "Configurations")]
    pairs: u32,
    /// Who protects what: unprotected, end-to-end, one-side, two-authorities
    #[arg(long, default_value = "one-side", value_parser = island, help_heading = "Configurations")]
    island: Island,
    /// Quality of protection
    #[arg(long, value_enum, default_value = "privacy", help_heading = "Configurations")]
    quality: Quality,
    /// Keys of signers and recipients
    #[arg(long, default_value = "rsa2048", value_parser = key, help_heading = "Configurations")]
    key: String,
    /// How often a content key is used again under confidentiality: a number, or unlimited
    #[arg(long, default_value = "32", help_heading = "Configurations")]
    reuse: Reuse,
    /// Payload of a request and of its reply: bytes, or with k or m
    #[arg(long, default_value = "32k", value_parser = bytes, help_heading = "Configurations")]
    size: u64,
    /// Crypto devices of both queue managers: cpu, software, or cards as 1a, 2c, 1a+1c, modelled:1a
    #[arg(long, default_value = "cpu", help_heading = "Configurations")]
    devices: String,
    #[command(flatten)]
    common: Common,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &TasksArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.only_self()?;
    let configurations = configurations(args)?;
    let islands = Islands::new(host, settings(&args.common), &configurations);
    carry_out(host, &args.common, configurations, &mut Tasks { island: args.island, islands, now: None })
}

fn configurations(args: &TasksArgs) -> Result<Vec<Configuration>> {
    let reuse = if args.quality == Quality::Confidentiality { args.reuse } else { Reuse::default() };
    let base = Configuration {
        quality: args.quality,
        key: args.key.clone(),
        reuse,
        bytes: args.size,
        pairs: args.pairs,
        devices: args.devices.clone(),
        ..Configuration::default()
    };
    let base = fits(args.island, &base)
        .ok_or_else(|| Error::Usage("an island with protection needs a quality that protects".to_owned()))?;
    let each = |dispatchers: &u32| {
        let base = base.clone();
        let dispatchers = *dispatchers;
        args.adapters.iter().map(move |adapters| Configuration { dispatchers, adapters: *adapters, ..base.clone() })
    };
    Ok(args.dispatchers.iter().flat_map(each).collect())
}

struct Tasks<'h> {
    island: Island,
    islands: Islands<'h>,
    /// The dispatchers and adapters that there are.
    now: Option<(u32, u32)>,
}

impl Workload for Tasks<'_> {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn transactions(&self) -> &'static str {
        "round trips"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        self.islands.fleet(self.island, configuration).map(drop)
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        let (fleet, partners) = self.islands.fleet(self.island, configuration)?;
        let wanted = (configuration.dispatchers, configuration.adapters);
        if self.now != Some(wanted) {
            partners.halt(&fleet.forth, &fleet.back)?;
            partners.set_tasks(configuration.dispatchers, configuration.adapters)?;
            partners.run(&fleet.forth, &fleet.back)?;
            self.now = Some(wanted);
        }
        Ok(Running { load: Box::new(fleet.sail(partners, configuration)?), watched: partners.watched() })
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        vec![
            ("adapter µs a round trip: CPU, elapsed", adapters(samples)),
            ("busiest dispatcher, adapter %", busiest(samples)),
        ]
    }

    fn finish(&mut self) -> Result<()> {
        self.islands.stop()
    }
}

/// How busy the busiest dispatcher and the busiest adapter were, percent, of the middle sample.
fn busiest(samples: &[&Sample]) -> String {
    let most = |kind: &str| {
        let of = |sample: &&Sample| {
            let tasks = sample.tasks.iter().filter(|task| task.kind == kind);
            tasks.map(|task| task.busy_percent).fold(0.0, f64::max)
        };
        Spread::of(samples.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
    };
    format!("{:.0}, {:.0}", most("DISPATCHER"), most("ADAPTER"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TasksArgs,
    }

    fn plan(options: &[&str]) -> Result<Vec<Configuration>> {
        configurations(&Line::parse_from([&["tasks", "--self"], options].concat()).args)
    }

    #[test]
    fn every_number_of_dispatchers_meets_every_number_of_adapters() {
        let plan = plan(&["--dispatchers", "1,10", "--adapters", "1,2,3"]).unwrap();
        let numbers: Vec<(u32, u32)> = plan.iter().map(|one| (one.dispatchers, one.adapters)).collect();
        assert_eq!(numbers, [(1, 1), (1, 2), (1, 3), (10, 1), (10, 2), (10, 3)]);
        assert!(plan.iter().all(|one| one.pairs == 50 && one.topology == "one-side" && one.bytes == 32 << 10));
        assert!(plan.iter().all(|one| one.reuse == Reuse::default()), "privacy uses no key again");
    }

    #[test]
    fn an_unprotected_one_has_no_keys() {
        let one = &plan(&["--island", "unprotected"]).unwrap()[0];
        assert_eq!((one.quality, one.key.as_str()), (Quality::None, ""));
        assert!(plan(&["--quality", "none"]).is_err());
    }
}
