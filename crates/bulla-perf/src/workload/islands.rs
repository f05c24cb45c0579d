//! `bulla perf islands`: who protects what between two queue managers, and what that costs.
//!
//! Requests go from QM1 to QM2 through one channel, replies come back through another, in the four topologies of
//! `samples/islands`. Of a round trip, end to end and one side seal and open twice each: end to end the two queue
//! managers do it for their applications, at one side QM1 alone does it for its applications and at the border. Two
//! authorities seal and open four times each.

use super::fleet::{Fleet, Kind, fits};
use super::island::Island;
use super::partners::{Partners, Sites};
use super::stream::settings;
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::result::Sample;
use crate::run::measure::Running;
use crate::run::options::{Common, Defaults, Protection};
use crate::run::statistics::Spread;
use crate::run::{Workload, carry_out};
use crate::site::Settings;
use clap::Args;

/// Payload of a request, and of its reply.
const BYTES: u64 = 32 << 10;
/// The key of certificates for TLS.
pub(super) const TLS_KEY: &str = "rsa2048";

/// Who protects what between two queue managers: unprotected, end to end, one side, two authorities; 1, 10 and 50 pairs
/// of channels
#[derive(Args, Debug)]
pub struct IslandsArgs {
    /// Topologies, comma separated: unprotected, end-to-end, one-side, two-authorities
    #[arg(long, value_delimiter = ',', value_parser = island, default_value = "unprotected,end-to-end,one-side,two-authorities", help_heading = "Configurations")]
    island: Vec<Island>,
    /// CipherSpec of all channels, or none: those that open or seal (one side, two authorities) have TLS 1.3 without
    /// it, and with none
    #[arg(long, help_heading = "Configurations")]
    cipher: Option<String>,
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    common: Common,
}

/// The topology of that name.
pub(super) fn island(name: &str) -> std::result::Result<Island, String> {
    Island::named(name).ok_or_else(|| format!("expected one of {}", Island::ALL.map(Island::as_str).join(", ")))
}

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &IslandsArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.only_self()?;
    let configurations = configurations(args)?;
    let settings = Settings {
        dispatchers: args.protection.dispatchers,
        adapters: args.protection.adapters,
        ..settings(&args.common)
    };
    let mut islands = Islands::new(host, settings, &configurations);
    carry_out(host, &args.common, configurations, &mut islands)
}

fn configurations(args: &IslandsArgs) -> Result<Vec<Configuration>> {
    let products = args.protection.product(&Defaults {
        quality: &[Quality::Privacy, Quality::Confidentiality],
        key: &["rsa2048"],
        reuse: &[Reuse::Times(32)],
        size: &[BYTES],
        pairs: &[1, 10, 50],
        devices: &["cpu"],
    })?;
    let mut found: Vec<Configuration> = Vec::new();
    for configuration in products {
        for island in &args.island {
            let Some(mut fitting) = fits(*island, &configuration) else { continue };
            if let Some(cipher) = args.cipher.as_deref().filter(|cipher| *cipher != "none") {
                fitting.cipher = cipher.to_owned();
                fitting.client_certificates = true;
            }
            if !found.contains(&fitting) {
                found.push(fitting);
            }
        }
    }
    if found.is_empty() {
        return Err(Error::Usage("an island with protection needs a quality that protects".to_owned()));
    }
    Ok(found)
}

/// Two queue managers for each set of devices, and fleets of pairs between them.
pub(super) struct Islands<'h> {
    sites: Sites<'h>,
    /// What is defined, for which devices.
    fleets: Vec<(String, Kind, Fleet)>,
}

impl<'h> Islands<'h> {
    /// For these configurations: certificates are made where one of them speaks TLS.
    pub(super) fn new(host: &'h dyn Host, settings: Settings, configurations: &[Configuration]) -> Self {
        let speaks_tls = configurations.iter().any(|one| !one.cipher.is_empty());
        let keys = if speaks_tls { vec![TLS_KEY.to_owned()] } else { Vec::new() };
        Islands { sites: Sites::new(host, settings, keys), fleets: Vec::new() }
    }

    /// The fleet of a configuration with the queue managers that it belongs to, launched when it is first asked for
    /// with so many pairs.
    pub(super) fn fleet(&mut self, island: Island, configuration: &Configuration) -> Result<(&Fleet, &Partners<'h>)> {
        let (devices, kind) = (configuration.devices.clone(), Kind::of(island, configuration, TLS_KEY));
        let pairs = configuration.pairs as usize;
        let is_it =
            |(of, known, fleet): &&(String, Kind, Fleet)| *of == devices && *known == kind && fleet.pairs() >= pairs;
        if self.fleets.iter().find(is_it).is_none() {
            let number = self.fleets.len();
            let fleet = Fleet::launch(self.sites.site(&devices)?, &kind, number, configuration.pairs)?;
            self.fleets.push((devices.clone(), kind.clone(), fleet));
        }
        let fleet = self.fleets.iter().find(is_it).map(|(.., fleet)| fleet);
        let fleet = fleet.ok_or_else(|| Error::Usage("a configuration that was not prepared".to_owned()))?;
        Ok((fleet, self.sites.site(&devices)?))
    }

    /// Ends all of them in order.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.sites.stop()
    }
}

impl Workload for Islands<'_> {
    fn name(&self) -> &'static str {
        "islands"
    }

    fn transactions(&self) -> &'static str {
        "round trips"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        let island = Island::named(&configuration.topology).unwrap_or(Island::Unprotected);
        self.fleet(island, configuration).map(drop)
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        let island = Island::named(&configuration.topology).unwrap_or(Island::Unprotected);
        let (fleet, partners) = self.fleet(island, configuration)?;
        Ok(Running { load: Box::new(fleet.sail(partners, configuration)?), watched: partners.watched() })
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        let island = samples.first().and_then(|sample| Island::named(&sample.configuration.topology));
        let seals = island.map_or(0, Island::seals).to_string();
        vec![("seals", seals), ("adapter µs a round trip: CPU, elapsed", adapters(samples))]
    }

    fn finish(&mut self) -> Result<()> {
        self.stop()
    }
}

/// What the adapters of all queue managers took for a transaction: CPU and elapsed time in microseconds, of the middle
/// sample.
pub(super) fn adapters(samples: &[&Sample]) -> String {
    let each = |of: &dyn Fn(&crate::result::TaskUse) -> f64| {
        let sum = |sample: &&Sample| {
            let tasks = sample.tasks.iter().filter(|task| task.kind == "ADAPTER");
            tasks.map(|task| of(task) * task.requests as f64).fold(0.0, |sum, us| sum + us)
                / sample.transactions.max(1) as f64
        };
        Spread::of(samples.iter().map(sum)).map_or(f64::NAN, |spread| spread.median)
    };
    format!("{:.1}, {:.1}", each(&|task| task.cpu_us), each(&|task| task.elapsed_us))
}

#[cfg(test)]
mod tests {
    use super::super::fleet::BORDER_CIPHER;
    use super::*;
    use crate::result::TaskUse;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: IslandsArgs,
    }

    fn plan(options: &[&str]) -> Result<Vec<Configuration>> {
        configurations(&Line::parse_from([&["islands", "--self"], options].concat()).args)
    }

    #[test]
    fn four_topologies_with_two_qualities_and_three_numbers_of_pairs() {
        let plan = plan(&[]).unwrap();
        // Unprotected once for each number of pairs, the three others with each quality.
        assert_eq!(plan.len(), 3 + 3 * 3 * 2);
        let of = |topology: &str| plan.iter().filter(|one| one.topology == topology).collect::<Vec<_>>();
        assert!(of("unprotected").iter().all(|one| one.quality == Quality::None && one.key.is_empty()));
        assert!(of("two-authorities").iter().all(|one| one.cipher == BORDER_CIPHER && one.client_certificates));
        assert!(of("one-side").iter().all(|one| one.cipher == BORDER_CIPHER && one.bytes == BYTES));
        assert!(of("end-to-end").iter().all(|one| one.cipher.is_empty()));
    }

    #[test]
    fn one_cipher_spec_is_for_all_and_none_for_those_that_pass_bytes_on() {
        for (asked, passing, border) in [("none", "", BORDER_CIPHER), ("ANY_TLS12", "ANY_TLS12", "ANY_TLS12")] {
            let plan = plan(&["--cipher", asked, "--pairs", "1", "--quality", "integrity"]).unwrap();
            let ciphers: Vec<&str> = plan.iter().map(|one| one.cipher.as_str()).collect();
            assert_eq!(ciphers, [passing, passing, border, border], "{asked}");
        }
    }

    #[test]
    fn protection_without_a_quality_is_a_contradiction() {
        let wrong = plan(&["--island", "end-to-end", "--quality", "none"]);
        assert!(matches!(wrong, Err(Error::Usage(_))));
        assert_eq!(plan(&["--quality", "none", "--pairs", "2"]).unwrap().len(), 1);
    }

    #[test]
    fn adapters_of_both_queue_managers_count_for_a_transaction() {
        let task = |name: &str, requests, cpu_us, elapsed_us| TaskUse {
            kind: "ADAPTER".into(),
            name: name.into(),
            requests,
            cpu_us,
            elapsed_us,
            ..TaskUse::default()
        };
        let dispatcher = TaskUse { kind: "DISPATCHER".into(), ..task("QM1 dispatcher-0", 9, 9.0, 9.0) };
        let tasks = vec![task("QM1 adapter-0", 30, 10.0, 20.0), task("QM2 adapter-0", 10, 30.0, 40.0), dispatcher];
        let sample = Sample { transactions: 10, tasks, ..Sample::default() };
        assert_eq!(adapters(&[&sample]), "60.0, 100.0");
    }
}
