//! `bulla perf channel`: what TLS and the renewal of its keys cost on channels.
//!
//! A request goes from QM1 to QM2 through one channel, its reply comes back through another, one at a time; both
//! channels have the configuration's CipherSpec and SSLRKEYC. Beside each the time that its ciphers alone take for
//! those bytes. With `--drain` there is no client: what lies on a transmission queue goes into a local queue.

use super::ciphers::Records;
use super::clerk::{Clerk, SendingEnd};
use super::drain;
use super::fleet::{Fleet, Kind};
use super::island::Island;
use super::islands::TLS_KEY;
use super::partners::Partners;
use super::stream::settings;
use crate::configuration::Configuration;
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::load::pair::Pair;
use crate::load::{Counts, Load, Loads};
use crate::result::Sample;
use crate::run::measure::Running;
use crate::run::options::{Common, bytes, key};
use crate::run::statistics::Spread;
use crate::run::{self, Workload};
use bulla_device::Histogram;
use clap::Args;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Payloads of the published shape.
const BYTES: [u64; 2] = [8 << 10, 32 << 10];
/// SSLRKEYC of the published shape.
const RESET_BYTES: u64 = 1 << 20;
/// The least that a channel takes: under TLS 1.3 a renewal costs so little that it takes many of them to be seen.
const RESET_BYTES_MIN: u64 = 32 << 10;
/// How long the ciphers alone are measured.
const RAW_TIME: Duration = Duration::from_millis(200);

/// Two queue managers and a pair of channels: round trips by CipherSpec and renewal of keys, beside what the ciphers
/// alone take
#[derive(Args, Debug)]
pub struct ChannelArgs {
    /// CipherSpecs of both channels, comma separated; none for no TLS
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,ECDHE_RSA_AES_128_CBC_SHA256,ECDHE_RSA_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384",
        help_heading = "Configurations"
    )]
    cipher: Vec<String>,
    /// Keys are renewed after so many bytes (SSLRKEYC), comma separated: bytes, or with k or m; 0 for never; without it
    /// 0, 1m, and 32k under TLS 1.3
    #[arg(long, value_delimiter = ',', value_parser = reset_bytes, help_heading = "Configurations")]
    reset: Vec<u64>,
    /// Payloads, comma separated: bytes, or with k or m; without it 8k and 32k, and with --drain 2k
    #[arg(long, value_delimiter = ',', value_parser = bytes, help_heading = "Configurations")]
    size: Vec<u64>,
    /// Whether the end that calls shows a certificate, comma separated: matters to renewals under TLS 1.2 alone, so
    /// other configurations have the first alone
    #[arg(long, value_delimiter = ',', default_value = "true,false", action = clap::ArgAction::Append, help_heading = "Configurations")]
    client_certificate: Vec<bool>,
    /// The key of certificates for TLS; CipherSpecs of TLS 1.2 are for one kind
    #[arg(long, default_value = TLS_KEY, value_parser = key, help_heading = "Configurations")]
    key: String,
    /// Pairs of channels that are busy at once, each with a round trip of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=200), help_heading = "Configurations")]
    pairs: u32,
    /// Whether messages are persistent
    #[arg(long, help_heading = "Configurations")]
    persistent: bool,
    /// Crypto devices of both queue managers: cpu, software, or cards as 1a, 2c, 1a+1c, modelled:1a
    #[arg(long, default_value = "cpu", help_heading = "Configurations")]
    devices: String,
    #[command(flatten)]
    drain: drain::DrainArgs,
    #[command(flatten)]
    common: Common,
}

/// SSLRKEYC: 0, or a number of bytes.
pub(crate) fn reset_bytes(text: &str) -> std::result::Result<u64, String> {
    /// Most that SSLRKEYC takes.
    const RESET_BYTES_MAX: u64 = 999_999_999;
    match text {
        "0" => Ok(0),
        text => {
            let number = bytes(text).ok().filter(|number| *number <= RESET_BYTES_MAX);
            number.ok_or_else(|| "expected 0, or bytes as 32768, 32k or 1m".to_owned())
        }
    }
}

/// Does what the arguments say.
///
/// # Errors
/// As [`run::take`].
pub fn run(args: &ChannelArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.only_self()?;
    if args.drain.drain {
        let configurations = configurations(args);
        let plan = drain::Plan { args: &args.drain, configurations, key: &args.key, common: &args.common };
        return drain::run(plan, host);
    }
    take(&args.common, configurations(args), &args.key, host)?.verdict()
}

/// Round trips by these configurations; `key` is that of certificates where a configuration has none.
///
/// # Errors
/// As [`run::take`].
pub(crate) fn take(
    common: &Common,
    configurations: Vec<Configuration>,
    key: &str,
    host: &dyn Host,
) -> Result<run::Taken> {
    let mut keys = vec![key.to_owned()];
    for configuration in &configurations {
        if !configuration.key.is_empty() && !keys.contains(&configuration.key) {
            keys.push(configuration.key.clone());
        }
    }
    Clerk::during(host, |clerk| {
        let mut channels = Channels {
            host,
            common,
            keys,
            clerk,
            partners: None,
            fleets: Vec::new(),
            launched: 0,
            raw_us: Vec::new(),
            still: Arc::default(),
        };
        run::take(host, common, configurations, &mut channels)
    })
}

/// Those that keep their keys come first, so that the others can be compared with them.
fn configurations(args: &ChannelArgs) -> Vec<Configuration> {
    let mut found: Vec<Configuration> = Vec::new();
    let sizes = match (args.size.as_slice(), args.drain.drain) {
        ([], false) => &BYTES[..],
        ([], true) => &[drain::BYTES][..],
        (sizes, _) => sizes,
    };
    for size in sizes {
        for renews in [false, true] {
            for cipher in &args.cipher {
                let cipher = if cipher == "none" { String::new() } else { cipher.clone() };
                for reset_bytes in resets(args, &cipher).into_iter().filter(|reset| (*reset > 0) == renews) {
                    // Only a renegotiation sends certificates again.
                    let matters = reset_bytes > 0 && !is_tls13(&cipher);
                    let shown = if matters { args.client_certificate.len() } else { 1 };
                    for shows in args.client_certificate.iter().take(shown) {
                        let configuration = Configuration {
                            key: if cipher.is_empty() { String::new() } else { args.key.clone() },
                            bytes: *size,
                            persistent: args.persistent,
                            pairs: args.pairs,
                            devices: args.devices.clone(),
                            client_certificates: *shows && !cipher.is_empty(),
                            cipher: cipher.clone(),
                            reset_bytes,
                            topology: "channel".to_owned(),
                            ..Configuration::default()
                        };
                        if !found.contains(&configuration) {
                            found.push(configuration);
                        }
                    }
                }
            }
        }
    }
    found
}

/// SSLRKEYC for a CipherSpec.
fn resets(args: &ChannelArgs, cipher: &str) -> Vec<u64> {
    match (cipher.is_empty(), args.reset.is_empty()) {
        (true, _) => vec![0],
        // What drains a queue is not looked at for its renewals, unless it is asked for.
        (false, true) if args.drain.drain => vec![0],
        (false, false) => args.reset.clone(),
        (false, true) if is_tls13(cipher) => vec![0, RESET_BYTES, RESET_BYTES_MIN],
        (false, true) => vec![0, RESET_BYTES],
    }
}

/// Whether a CipherSpec is one of TLS 1.3 alone.
pub(super) fn is_tls13(cipher: &str) -> bool {
    let cipher = cipher.to_ascii_uppercase();
    cipher.contains("TLS13") || (cipher.starts_with("TLS_") && !cipher.contains("_WITH_"))
}

struct Channels<'h> {
    host: &'h dyn Host,
    common: &'h Common,
    /// Keys of certificates; the first for what names none.
    keys: Vec<String>,
    clerk: Clerk,
    partners: Option<Partners<'h>>,
    fleets: Vec<(Configuration, Fleet)>,
    /// How many fleets were launched, those that did not run included: it tells their names apart.
    launched: usize,
    /// What the ciphers alone take for a round trip.
    raw_us: Vec<((String, u64), f64)>,
    still: Arc<Mutex<Still>>,
}

/// The last round trip without TLS, and of each CipherSpec without renewal, by payload: microseconds.
#[derive(Debug, Default)]
struct Still(BTreeMap<(String, u64), f64>);

impl Workload for Channels<'_> {
    fn name(&self) -> &'static str {
        "channel"
    }

    fn transactions(&self) -> &'static str {
        "round trips"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        let Configuration { cipher, bytes, devices, .. } = configuration;
        if self.partners.is_none() {
            let devices = devices.parse().map_err(Error::Usage)?;
            let partners = Partners::start(self.host, &crate::site::Settings { devices, ..settings(self.common) })?;
            partners.certify(&self.keys)?;
            // From here on the caller's certificate is the one of its label, or none.
            partners.take_certificates_away()?;
            self.partners = Some(partners);
        }
        let key = (cipher.clone(), *bytes);
        if !cipher.is_empty() && !self.raw_us.iter().any(|(known, _)| *known == key) {
            let records = Records::of(cipher);
            let length = usize::try_from(*bytes).unwrap_or(usize::MAX);
            // A request and its reply.
            let us = records.map_or(Ok(f64::NAN), |records| records.microseconds(length, RAW_TIME))? * 2.0;
            self.raw_us.push((key, us));
        }
        let Some(partners) = &mut self.partners else { return Ok(()) };
        // A fleet for each configuration: their pairs rest while others are measured.
        let own = Some(&configuration.key).filter(|key| !key.is_empty()).or(self.keys.first());
        let kind = Kind::of(Island::Unprotected, configuration, own.map_or(TLS_KEY, String::as_str));
        self.launched += 1;
        // A CipherSpec that does not go with the key is the end of its own channels, and of no others.
        let fleet =
            Fleet::launch(partners, &kind, self.launched, configuration.pairs).map_err(|error| match error {
                Error::Manager(why) => Error::Channel(why),
                error => error,
            })?;
        self.fleets.push((configuration.clone(), fleet));
        Ok(())
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        let prepared = self.fleets.iter().find(|(known, _)| known == configuration).map(|(_, fleet)| fleet);
        let (Some(fleet), Some(partners)) = (prepared, &self.partners) else {
            return Err(Error::Usage("a configuration that was not prepared".to_owned()));
        };
        let watched = partners.watched();
        let end = |at: usize, channel: &str| -> Result<SendingEnd> {
            watched.get(at).map_or_else(
                || Err(Error::Usage("two queue managers are needed".to_owned())),
                |watched| SendingEnd::of(watched, channel),
            )
        };
        let mut ends = Vec::new();
        if configuration.reset_bytes > 0 {
            for (forth, back) in fleet.forth.iter().zip(&fleet.back) {
                ends.extend([end(0, &forth.channel)?, end(1, &back.channel)?]);
            }
        }
        let raw_us = self
            .raw_us
            .iter()
            .find(|((cipher, bytes), _)| *cipher == configuration.cipher && *bytes == configuration.bytes);
        let load = RoundTrips {
            pairs: fleet.sail(partners, configuration)?,
            configuration: configuration.clone(),
            clerk: self.clerk.clone(),
            ends,
            raw_us: raw_us.map(|(_, us)| *us),
            still: Arc::clone(&self.still),
            since: None,
        };
        Ok(Running { load: Box::new(load), watched })
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        let found = |name: &str, decimals: usize| {
            let values = samples.iter().filter_map(|sample| sample.found.get(name).copied());
            Spread::of(values).map_or("–".to_owned(), |spread| format!("{:.decimals$}", spread.median))
        };
        vec![
            ("TLS adds µs", found(ADDED_US, 1)),
            ("ciphers alone µs", found(RAW_US, 1)),
            ("renewals", found(RESETS, 0)),
            ("µs a renewal", found(RESET_US, 0)),
        ]
    }

    fn finish(&mut self) -> Result<()> {
        self.fleets.clear();
        self.partners.take().map_or(Ok(()), Partners::stop)
    }
}

/// Renewals of keys in the sample, of both channels of all pairs.
pub const RESETS: &str = "resets";
/// Of them, those that belong to a round trip.
pub const RESETS_PER_TRIP: &str = "resets-per-round-trip";
/// What one of them takes, as a round trip waits for it.
pub const RESET_US: &str = "reset-us";
/// What TLS adds to a round trip.
pub const ADDED_US: &str = "added-us";
/// What its ciphers alone take.
pub const RAW_US: &str = "raw-us";

/// Round trips, and the renewals that belong to them.
struct RoundTrips {
    pairs: Loads<Pair>,
    configuration: Configuration,
    clerk: Clerk,
    /// The channels whose renewals are counted.
    ends: Vec<SendingEnd>,
    raw_us: Option<f64>,
    still: Arc<Mutex<Still>>,
    /// When the sample began: renewals until then, and round trips.
    since: Option<(u64, Histogram)>,
}

impl Load for RoundTrips {
    fn counts(&self) -> Counts {
        self.pairs.counts()
    }

    fn latencies(&self) -> Histogram {
        self.pairs.latencies()
    }

    fn goes_on(&self) -> bool {
        self.pairs.goes_on()
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        // A queue manager that does not answer is found by those who measure.
        let resets = self.clerk.channel_numbers(&self.ends, "SSLRKEYS").unwrap_or(0);
        let latencies = self.pairs.latencies();
        let mut found = BTreeMap::new();
        let Some((resets_before, before)) = self.since.replace((resets, latencies.clone())) else { return found };
        let trips = latencies.since(&before);
        if trips.count() == 0 {
            return found;
        }
        let resets = resets.saturating_sub(resets_before);
        let us = trips.mean() / 1e3;
        let Configuration { cipher, bytes, reset_bytes, .. } = &self.configuration;
        let mut still = self.still.lock().unwrap_or_else(PoisonError::into_inner);
        if *reset_bytes == 0 {
            still.0.insert((cipher.clone(), *bytes), us);
        } else {
            found.insert(RESETS.to_owned(), resets as f64);
            found.insert(RESETS_PER_TRIP.to_owned(), resets as f64 / trips.count() as f64);
            let still_us = still.0.get(&(cipher.clone(), *bytes)).copied();
            if let Some(us) = still_us.and_then(|still_us| reset_us(us, still_us, trips.count(), resets)) {
                found.insert(RESET_US.to_owned(), us);
            }
        }
        if let (false, Some(plain_us)) = (cipher.is_empty(), still.0.get(&(String::new(), *bytes))) {
            found.insert(ADDED_US.to_owned(), us - plain_us);
        }
        if let Some(raw_us) = self.raw_us.filter(|us| us.is_finite()) {
            found.insert(RAW_US.to_owned(), raw_us);
        }
        found
    }

    fn stop(self: Box<Self>) -> Result<()> {
        Box::new(self.pairs).stop()
    }
}

/// What one renewal takes: what round trips take longer than without, shared out among them. None without one.
/// Where noise is greater than that it may be below 0: only so is the median of many right.
fn reset_us(us: f64, still_us: f64, trips: u64, resets: u64) -> Option<f64> {
    let us = (us - still_us) * trips as f64 / resets.max(1) as f64;
    (resets > 0).then_some(us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ChannelArgs,
    }

    fn plan(options: &[&str]) -> Vec<Configuration> {
        configurations(&Line::parse_from([&["channel", "--self"], options].concat()).args)
    }

    #[test]
    fn each_cipher_keeps_its_keys_and_renews_them() {
        let plan = plan(&["--size", "8k"]);
        let told: Vec<(&str, u64, bool)> =
            plan.iter().map(|one| (one.cipher.as_str(), one.reset_bytes, one.client_certificates)).collect();
        let (cbc, gcm, tls13) =
            ("ECDHE_RSA_AES_128_CBC_SHA256", "ECDHE_RSA_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384");
        assert_eq!(
            told,
            [
                ("", 0, false),
                (cbc, 0, true),
                (gcm, 0, true),
                (tls13, 0, true),
                (cbc, RESET_BYTES, true),
                (cbc, RESET_BYTES, false),
                (gcm, RESET_BYTES, true),
                (gcm, RESET_BYTES, false),
                (tls13, RESET_BYTES, true),
                (tls13, RESET_BYTES_MIN, true),
            ]
        );
        assert!(plan.iter().all(|one| one.topology == "channel" && one.bytes == 8192));
    }

    #[test]
    fn what_was_asked_for_is_measured_and_no_more() {
        let plan = plan(&[
            "--cipher",
            "TLS_AES_256_GCM_SHA384",
            "--reset",
            "0,32k",
            "--size",
            "1k,2k",
            "--client-certificate",
            "false",
        ]);
        let told: Vec<(u64, u64)> = plan.iter().map(|one| (one.bytes, one.reset_bytes)).collect();
        assert_eq!(told, [(1024, 0), (1024, 32_768), (2048, 0), (2048, 32_768)]);
        assert!(plan.iter().all(|one| !one.client_certificates && one.key == "rsa2048"));
    }

    #[test]
    fn a_drain_has_messages_of_2_kb_and_renews_no_keys() {
        let plan = plan(&["--drain"]);
        assert_eq!(plan.len(), 4);
        assert!(plan.iter().all(|one| one.bytes == 2048 && one.reset_bytes == 0));
    }

    #[test]
    fn a_renewal_takes_what_round_trips_take_longer() {
        // 1000 round trips of 120 instead of 100 µs had 10 renewals among them.
        assert_eq!(reset_us(120.0, 100.0, 1000, 10), Some(2000.0));
        assert_eq!(reset_us(120.0, 100.0, 1000, 0), None);
        assert_eq!(reset_us(99.0, 100.0, 1000, 10), Some(-100.0));
    }

    #[test]
    fn names_tell_tls_1_3_from_1_2() {
        for name in ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "ANY_TLS13"] {
            assert!(is_tls13(name), "{name}");
        }
        for name in ["ECDHE_RSA_AES_256_GCM_SHA384", "TLS_RSA_WITH_AES_256_CBC_SHA256", "ANY_TLS12", ""] {
            assert!(!is_tls13(name), "{name}");
        }
        assert_eq!((reset_bytes("0"), reset_bytes("32k")), (Ok(0), Ok(32_768)));
        assert!(reset_bytes("-1").is_err());
    }
}
