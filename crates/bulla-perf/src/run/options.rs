//! What all workloads take on the command line, and how a configuration is told in a few words.

use super::measure::Timing;
use crate::configuration::{Configuration, Getting, Quality, Reuse};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::load::client::Broker;
use crate::run::meters::Watched;
use crate::site::BOTH;
use bulla_amqp::SaslClient;
use bulla_client::Endpoint;
use bulla_seal::certificate::{KeyError, KeySpec};
use bulla_seal::policy::SIGN_BATCH_MAX;
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shortest and longest sample, in seconds.
const SECONDS_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 86_400.0;
/// Messages under way in a stream that nothing slows down.
pub const STREAM_WINDOW: u32 = 512;
/// Most repeats.
const REPEATS_MAX: u32 = 1_000;

/// How to measure, and where results go.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Seconds of a sample
    #[arg(long, default_value_t = 3.0, value_parser = seconds, help_heading = "How to measure")]
    pub seconds: f64,
    /// Seconds before each sample that do not count
    #[arg(long, default_value_t = 1.0, value_parser = warm_up, help_heading = "How to measure")]
    pub warm_up: f64,
    /// Samples of each configuration; they take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPEATS_MAX)), help_heading = "How to measure")]
    pub repeats: u32,
    /// Each configuration is to reach this many transactions a second without a backlog that grows; the exit code is 8
    /// where one does not
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "How to measure")]
    pub hold: Option<f64>,
    /// Add the results to this file, a line of JSON each
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub out: Option<PathBuf>,
    /// Print the lines of JSON instead of a table
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Say nothing while measuring
    #[arg(long, short, help_heading = "Results")]
    pub quiet: bool,
    /// Start queue managers for the measurement in scratch directories, with users, certificates and policies
    #[arg(long = "self", conflicts_with = "amqp", help_heading = "What to measure")]
    pub own: bool,
    /// With --self, clients speak TLS
    #[arg(long, requires = "own", help_heading = "What to measure")]
    pub tls: bool,
    /// With --self, clients seal and open for themselves, with the policy that the queue manager serves; it sees no
    /// payload
    #[arg(long, requires = "own", help_heading = "What to measure")]
    pub client_seal: bool,
    /// With --self, a further option of `bulla start`, as in --start=--memory=4096
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, requires = "own", help_heading = "What to measure")]
    pub start: Vec<String>,
    /// Where that is a broker that runs already
    #[command(flatten)]
    pub target: Target,
}

/// A broker that runs already.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// A broker that speaks AMQP 1.0
    #[arg(long, value_name = "HOST:PORT", help_heading = "What to measure")]
    pub amqp: Option<String>,
    /// Its queues: one for each stream, two for each pair (requests, replies); they are to be empty
    #[arg(long, value_delimiter = ',', requires = "amqp", help_heading = "What to measure")]
    pub queue: Vec<String>,
    /// Speak TLS and believe the authorities in this PEM file
    #[arg(long, value_name = "FILE", requires = "amqp", help_heading = "What to measure")]
    pub ca: Option<PathBuf>,
    /// Show this certificate (PEM); the key is in the same file unless --cert-key names another
    #[arg(long, value_name = "FILE", requires = "ca", help_heading = "What to measure")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "What to measure")]
    pub cert_key: Option<PathBuf>,
    /// Sign in as this user
    #[arg(long, value_name = "NAME", requires = "password_file", requires = "amqp", help_heading = "What to measure")]
    pub user: Option<String>,
    /// The user's password, the first line of this file
    #[arg(long, value_name = "FILE", requires = "user", help_heading = "What to measure")]
    pub password_file: Option<PathBuf>,
    /// Who gets, or answers requests, where that is another user than --user
    #[arg(
        long,
        value_name = "NAME",
        requires = "getter_password_file",
        requires = "user",
        help_heading = "What to measure"
    )]
    pub getter: Option<String>,
    /// The password of --getter
    #[arg(long, value_name = "FILE", requires = "getter", help_heading = "What to measure")]
    pub getter_password_file: Option<PathBuf>,
    /// How to sign in; by itself SCRAM with a user, EXTERNAL with a certificate, else ANONYMOUS
    #[arg(long, value_enum, requires = "amqp", help_heading = "What to measure")]
    pub sasl: Option<Sasl>,
    /// Seal here with this key ring (a folder), by the policy that the queue manager serves
    #[arg(long, value_name = "DIR", requires = "amqp", help_heading = "What to measure")]
    pub ring: Option<PathBuf>,
    /// Open here with this key ring, where that is another than --ring
    #[arg(long, value_name = "DIR", requires = "ring", help_heading = "What to measure")]
    pub getter_ring: Option<PathBuf>,
    /// Data directory of the queue manager, where it is a Bulla on this machine: its meters are read there
    #[arg(long, value_name = "DIR", requires = "amqp", help_heading = "What to measure")]
    pub data: Option<PathBuf>,
    /// Process of the broker, where it runs on this machine: its processor time is counted
    #[arg(long, requires = "amqp", help_heading = "What to measure")]
    pub pid: Option<u32>,
}

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Sasl {
    /// User and password in clear.
    Plain,
    /// SCRAM-SHA-256.
    Scram,
    /// The TLS certificate.
    External,
    /// No user in particular.
    Anonymous,
    /// No SASL at all.
    None,
}

impl Common {
    /// How long each sample is.
    #[must_use]
    pub fn timing(&self) -> Timing {
        Timing { warm_up: Duration::from_secs_f64(self.warm_up), measured: Duration::from_secs_f64(self.seconds) }
    }

    /// What is measured, as results say it.
    #[must_use]
    pub fn target(&self) -> String {
        self.target.amqp.clone().unwrap_or_else(|| "self".to_owned())
    }

    /// Whether queue managers of our own are to be started; else the broker that was named.
    ///
    /// # Errors
    /// [`Error::Usage`]: neither was asked for.
    pub fn is_self(&self) -> Result<bool> {
        match (self.own, &self.target.amqp) {
            (true, _) => Ok(true),
            (false, Some(_)) => Ok(false),
            (false, None) => Err(Error::Usage(
                "what to measure? --self starts a queue manager, --amqp names one that runs".to_owned(),
            )),
        }
    }

    /// As [`is_self`](Self::is_self), for workloads that define what they need.
    ///
    /// # Errors
    /// [`Error::Usage`]: it is not `--self`.
    pub fn only_self(&self) -> Result<()> {
        if self.is_self()? {
            return Ok(());
        }
        Err(Error::Usage("this workload defines certificates, policies and devices: it takes --self alone".to_owned()))
    }

    /// For studies, which start queue managers of their own without being asked to.
    ///
    /// # Errors
    /// [`Error::Usage`]: a broker was named.
    pub fn no_broker(&self) -> Result<()> {
        if self.target.amqp.is_none() {
            return Ok(());
        }
        Err(Error::Usage("a published study is measured at queue managers of its own: it takes no --amqp".to_owned()))
    }

    /// About how long so many configurations take, without what is prepared before.
    #[must_use]
    pub fn duration(&self, configurations: usize) -> Duration {
        let samples = u32::try_from(configurations).unwrap_or(u32::MAX).saturating_mul(self.repeats);
        Duration::from_secs_f64((self.seconds + self.warm_up) * f64::from(samples))
    }
}

impl Target {
    /// How the putting (or asking) side connects, and the getting (or answering) side.
    ///
    /// # Errors
    /// [`Error::Usage`]: credentials that don't go together; [`Error::File`]: a password that can't be read; what
    /// [`Host::sealing`] refuses.
    pub fn brokers(&self, host: &dyn Host) -> Result<(Broker, Broker)> {
        let address = self.address()?;
        let user = credentials(self.user.as_ref(), self.password_file.as_deref())?;
        let getter = credentials(self.getter.as_ref(), self.getter_password_file.as_deref())?.or_else(|| user.clone());
        let certificate =
            self.cert.as_ref().map(|cert| (cert.clone(), self.cert_key.clone().unwrap_or_else(|| cert.clone())));
        let broker = |who, ring: Option<&PathBuf>| -> Result<Broker> {
            let endpoint = Endpoint {
                address: address.clone(),
                authorities: self.ca.clone(),
                certificate: certificate.clone(),
                sasl: self.sasl(who)?,
            };
            Ok(Broker { endpoint, sealing: ring.map(|ring| host.sealing(ring)).transpose()? })
        };
        Ok((broker(user, self.ring.as_ref())?, broker(getter, self.getter_ring.as_ref().or(self.ring.as_ref()))?))
    }

    /// `HOST:PORT` out of --amqp.
    fn address(&self) -> Result<String> {
        let text = self.amqp.as_deref().unwrap_or_default().trim_end_matches('/');
        if let Some(address) = text.strip_prefix("amqps://") {
            // TLS without a trusted authority would be none; and in clear is not what was asked for.
            return match self.ca {
                Some(_) => Ok(address.to_owned()),
                None => Err(Error::Usage("amqps:// needs --ca: the authorities to believe".to_owned())),
            };
        }
        Ok(text.strip_prefix("amqp://").unwrap_or(text).to_owned())
    }

    /// Whether what goes there stays on this machine.
    fn is_loopback(&self) -> bool {
        let address = self.address().unwrap_or_default();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    fn sasl(&self, who: Option<(String, String)>) -> Result<SaslClient> {
        let by_itself = match (&who, &self.cert) {
            (Some(_), _) => Sasl::Scram,
            (None, Some(_)) => Sasl::External,
            (None, None) => Sasl::Anonymous,
        };
        match (self.sasl.unwrap_or(by_itself), who) {
            (Sasl::Plain, Some(_)) if self.ca.is_none() && !self.is_loopback() => Err(Error::Usage(
                "--sasl plain sends the password in clear: it needs --ca, or a broker on this machine".to_owned(),
            )),
            (Sasl::Plain, Some((user, password))) => Ok(SaslClient::Plain { user, password }),
            (Sasl::Scram, Some((user, password))) => Ok(SaslClient::Scram { user, password }),
            (Sasl::Plain | Sasl::Scram, None) => Err(Error::Usage("--sasl plain and scram need --user".to_owned())),
            (Sasl::External, _) => Ok(SaslClient::External),
            (Sasl::Anonymous, _) => Ok(SaslClient::Anonymous),
            (Sasl::None, _) => Ok(SaslClient::None),
        }
    }

    /// The queues for so many loads of so many queues each.
    ///
    /// # Errors
    /// [`Error::Usage`]: they are too few.
    pub fn queues(&self, needed: usize) -> Result<&[String]> {
        self.queue
            .get(..needed)
            .ok_or_else(|| Error::Usage(format!("--queue names {} queues, and {needed} are needed", self.queue.len())))
    }

    /// What a sample looks at.
    #[must_use]
    pub fn watched(&self) -> Vec<Watched> {
        if self.pid.is_none() && self.data.is_none() {
            return Vec::new();
        }
        vec![Watched { name: self.amqp.clone().unwrap_or_default(), pid: self.pid, data: self.data.clone() }]
    }
}

fn credentials(user: Option<&String>, file: Option<&Path>) -> Result<Option<(String, String)>> {
    let (Some(user), Some(file)) = (user, file) else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|error| Error::file(file, error))?;
    Ok(Some((user.clone(), text.lines().next().unwrap_or_default().to_owned())))
}

/// Which protection, for workloads that vary it.
#[derive(Args, Clone, Debug)]
pub struct Protection {
    /// Qualities of protection, comma separated
    #[arg(long, value_delimiter = ',', value_enum, help_heading = "Configurations")]
    pub quality: Vec<Quality>,
    /// Keys of signers and recipients, comma separated: rsa1024, rsa2048, rsa3072, rsa4096, p192, p224, p256, p384,
    /// p521; with ml-dsa-44, ml-dsa-65 or ml-dsa-87 they sign with that and read with ML-KEM. Two kinds with a plus
    /// between, as rsa4096+p256 or rsa4096+ml-kem-768: one to sign and one to read
    #[arg(long, value_delimiter = ',', value_parser = one_key_or_two, help_heading = "Configurations")]
    pub key: Vec<String>,
    /// How often a content key is used again, where the quality honours it, comma separated: numbers, or unlimited
    #[arg(long, value_delimiter = ',', help_heading = "Configurations")]
    pub reuse: Vec<Reuse>,
    /// How many messages one signature may prove (SIGNBATCH), where messages are signed, comma separated: 1 to 1024
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_values_t = [1],
        value_parser = sign_batch(),
        help_heading = "Configurations"
    )]
    pub sign_batch: Vec<u32>,
    /// Payloads, comma separated: bytes, or with k or m, as 2k, 64k, 4m
    #[arg(long, value_delimiter = ',', value_parser = bytes, help_heading = "Configurations")]
    pub size: Vec<u64>,
    /// Recipients of each message, comma separated
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Configurations")]
    pub recipients: Vec<u32>,
    /// Pairs at work, comma separated; each has queues of its own
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200), help_heading = "Configurations")]
    pub pairs: Vec<u32>,
    /// Whether messages are persistent
    #[arg(long, help_heading = "Configurations")]
    pub persistent: bool,
    /// Crypto devices of the queue manager, comma separated: cpu, software, or cards as 1a, 2c, 1a+1c, modelled:1a
    #[arg(long, value_delimiter = ',', help_heading = "Configurations")]
    pub devices: Vec<String>,
    /// Dispatchers of the queue manager (CHIDISPS); its own choice unless given
    #[arg(long, default_value_t = 0, help_heading = "Configurations")]
    pub dispatchers: u32,
    /// Adapters of the queue manager (CHIADAPS); its own choice unless given
    #[arg(long, default_value_t = 0, help_heading = "Configurations")]
    pub adapters: u32,
}

/// What a workload takes where the command line says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Defaults<'a> {
    /// Qualities.
    pub quality: &'a [Quality],
    /// Keys.
    pub key: &'a [&'a str],
    /// Reuses.
    pub reuse: &'a [Reuse],
    /// Payloads, bytes.
    pub size: &'a [u64],
    /// Pairs.
    pub pairs: &'a [u32],
    /// Devices.
    pub devices: &'a [&'a str],
}

impl Protection {
    /// Every combination that means something: an unprotected message has neither key nor recipient, only
    /// confidentiality uses content keys again, and only integrity and privacy sign.
    ///
    /// # Errors
    /// [`Error::Usage`]: devices that are none.
    pub fn product(&self, defaults: &Defaults<'_>) -> Result<Vec<Configuration>> {
        fn or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
            if given.is_empty() { default.to_vec() } else { given.to_vec() }
        }
        let texts = |given: &[String], default: &[&str]| -> Vec<String> {
            if given.is_empty() { default.iter().map(ToString::to_string).collect() } else { given.to_vec() }
        };
        let (keys, devices) = (texts(&self.key, defaults.key), texts(&self.devices, defaults.devices));
        for text in &devices {
            text.parse::<crate::site::Devices>().map_err(Error::Usage)?;
        }
        let reuses = or(&self.reuse, defaults.reuse);
        let batches = or(&self.sign_batch, &[1]);
        let shared: Vec<(Reuse, u32)> =
            reuses.iter().flat_map(|reuse| batches.iter().map(move |batch| (*reuse, *batch))).collect();
        let mut found: Vec<Configuration> = Vec::new();
        for device in &devices {
            for size in or(&self.size, defaults.size) {
                for pairs in or(&self.pairs, defaults.pairs) {
                    for quality in or(&self.quality, defaults.quality) {
                        for key in &keys {
                            for recipients in or(&self.recipients, &[1]) {
                                for (reuse, sign_batch) in shared.iter().copied() {
                                    let plain = quality == Quality::None;
                                    let encrypts = matches!(quality, Quality::Privacy | Quality::Confidentiality);
                                    let reuses = quality == Quality::Confidentiality;
                                    let configuration = Configuration {
                                        quality,
                                        key: if plain { String::new() } else { key.clone() },
                                        reuse: if reuses { reuse } else { Reuse::default() },
                                        sign_batch: if quality.signs() { sign_batch } else { 1 },
                                        recipients: if encrypts { recipients } else { 1 },
                                        bytes: size,
                                        persistent: self.persistent,
                                        pairs,
                                        devices: device.clone(),
                                        dispatchers: self.dispatchers,
                                        adapters: self.adapters,
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
            }
        }
        Ok(found)
    }
}

/// A configuration in a few words: what differs from a plain 2 KB message on a plain queue manager.
#[must_use]
pub fn describe(configuration: &Configuration) -> String {
    let mut words = vec![configuration.quality.to_string()];
    if !configuration.key.is_empty() {
        words.push(configuration.key.clone());
    }
    if configuration.quality == Quality::Confidentiality {
        words.push(format!("reuse {}", configuration.reuse));
    }
    if configuration.sign_batch != 1 {
        words.push(format!("batch {}", configuration.sign_batch));
    }
    if configuration.recipients != 1 {
        words.push(format!("{} recipients", configuration.recipients));
    }
    if configuration.bytes != 0 {
        words.push(size(configuration.bytes));
    }
    if configuration.persistent {
        words.push("persistent".to_owned());
    }
    if configuration.pairs != 1 {
        words.push(format!("{} pairs", configuration.pairs));
    }
    // The windows that streams have by themselves are not worth telling.
    if !matches!(configuration.in_flight, 1 | 64 | 128 | STREAM_WINDOW) {
        words.push(format!("{} in flight", configuration.in_flight));
    }
    if configuration.target_rate != 0 {
        words.push(format!("at {}/s", configuration.target_rate));
    }
    if configuration.devices != "cpu" {
        words.push(configuration.devices.clone());
    }
    if !configuration.cipher.is_empty() {
        words.push(configuration.cipher.clone());
    }
    if configuration.client_certificates {
        words.push("both show certificates".to_owned());
    }
    if configuration.reset_bytes != 0 {
        words.push(format!("reset {}", size(configuration.reset_bytes)));
    }
    if configuration.requests != 0 {
        words.push(format!("{} a connection", configuration.requests));
    }
    if configuration.resumed {
        words.push("resumed".to_owned());
    }
    if configuration.dispatchers != 0 {
        words.push(format!("{} dispatchers", configuration.dispatchers));
    }
    if configuration.adapters != 0 {
        words.push(format!("{} adapters", configuration.adapters));
    }
    if configuration.topology != "local" {
        words.push(configuration.topology.clone());
    }
    let Getting { getter_rate, receiver_bytes, max_depth, memory_mib } = configuration.getting;
    if getter_rate != 0 {
        words.push(format!("got at {getter_rate}/s"));
    }
    if receiver_bytes != 0 {
        words.push(format!("receiver takes {}", size(receiver_bytes)));
    }
    if max_depth != 0 {
        words.push(format!("MAXDEPTH {max_depth}"));
    }
    if memory_mib != 0 {
        words.push(format!("memory {memory_mib} MiB"));
    }
    words.join(" ")
}

/// A size in the unit that suits it.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// A number of bytes, or of kibibytes (k) or mebibytes (m).
///
/// # Errors
/// It is none, or more than a queue takes.
pub fn bytes(text: &str) -> std::result::Result<u64, String> {
    /// Longest payload: a queue takes 100 MiB, and the sections before the payload want room.
    const PAYLOAD_BYTES_MAX: u64 = 96 << 20;
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, unit) = match (digits.strip_suffix('k'), digits.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1 << 10),
        (_, Some(digits)) => (digits, 1 << 20),
        _ => (digits, 1),
    };
    let number = digits.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let allowed = number.filter(|number| (1..=PAYLOAD_BYTES_MAX).contains(number));
    allowed.ok_or_else(|| format!("expected bytes, 1 to {}m, as 2048, 2k or 4m", PAYLOAD_BYTES_MAX >> 20))
}

/// A kind of key, in the one spelling that results have.
///
/// # Errors
/// There is no such kind.
pub fn key(text: &str) -> std::result::Result<String, String> {
    let spec: KeySpec = text.parse().map_err(|error: KeyError| error.to_string())?;
    Ok(spec.to_string())
}

/// A kind of key, or one to sign and one to read with a plus between.
///
/// # Errors
/// There is no such kind, or the first one signs nothing or the second one is nothing to write to.
pub fn one_key_or_two(text: &str) -> std::result::Result<String, String> {
    let Some((signs, reads)) = text.split_once(BOTH) else { return key(text) };
    let (signs, reads) = (key(signs)?, key(reads)?);
    if signs.starts_with("ml-kem") || reads.starts_with("ml-dsa") {
        return Err("the key before the plus signs, the one behind it is written to".to_owned());
    }
    Ok(format!("{signs}{BOTH}{reads}"))
}

/// How many messages one signature may prove.
#[must_use]
pub fn sign_batch() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=u64::from(SIGN_BATCH_MAX))
}

/// A rate that can be reached.
///
/// # Errors
/// It is none.
pub fn rate(text: &str) -> std::result::Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected a number above 0".to_owned())
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (SECONDS_MIN..=SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| format!("expected seconds, {SECONDS_MIN} to {SECONDS_MAX}"))
}

fn warm_up(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| format!("expected seconds, 0 to {SECONDS_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, number) in
            [("2048", 2048), ("2k", 2048), ("64K", 65_536), ("4m", 4 << 20), ("4MiB", 4 << 20), ("1b", 1)]
        {
            assert_eq!(bytes(text), Ok(number), "{text}");
        }
        for text in ["", "0", "k", "-1", "97m", "99999999999999999999m", "2x"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!((size(2048), size(4 << 20), size(1500)), ("2 KB".into(), "4 MB".into(), "1500 B".into()));
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        target: Target,
    }

    fn target(options: &[&str]) -> Target {
        <Line as clap::Parser>::parse_from([&["perf"], options].concat()).target
    }

    #[test]
    fn tls_that_was_asked_for_is_not_left_out() {
        let wrong = target(&["--amqp", "amqps://broker:5671"]).address();
        assert!(matches!(wrong, Err(Error::Usage(_))), "{wrong:?}");
        for text in ["amqps://broker:5671/", "amqp://broker:5671", "broker:5671"] {
            assert_eq!(target(&["--amqp", text, "--ca", "ca.pem"]).address().unwrap(), "broker:5671");
        }
    }

    #[test]
    fn a_password_goes_in_clear_only_where_nobody_else_hears_it() {
        let sign_in = |options: &[&str]| {
            let rest = ["--sasl", "plain", "--user", "orders", "--password-file", "file"];
            target(&[options, &rest].concat()).sasl(Some(("orders".into(), "secret".into())))
        };
        assert!(matches!(sign_in(&["--amqp", "broker:5672"]), Err(Error::Usage(_))));
        assert!(sign_in(&["--amqp", "broker:5671", "--ca", "ca.pem"]).is_ok());
        for address in ["127.0.0.1:5672", "localhost:5672", "amqp://[::1]:5672"] {
            assert!(sign_in(&["--amqp", address]).is_ok(), "{address}");
        }
    }

    #[test]
    fn only_combinations_that_mean_something_are_measured() {
        let protection = Protection {
            quality: vec![],
            key: vec![],
            reuse: vec![Reuse::Times(0), Reuse::Times(32)],
            sign_batch: vec![],
            size: vec![],
            recipients: vec![1, 2],
            pairs: vec![],
            persistent: false,
            devices: vec![],
            dispatchers: 0,
            adapters: 0,
        };
        let defaults = Defaults {
            quality: &Quality::ALL,
            key: &["rsa1024", "rsa2048"],
            reuse: &[Reuse::Times(0)],
            size: &[2048],
            pairs: &[1],
            devices: &["cpu"],
        };
        let told: Vec<String> = protection.product(&defaults).unwrap().iter().map(describe).collect();
        // One unprotected, two signed, two keys × two recipients, two keys × two recipients × two reuses.
        assert_eq!(told.len(), 1 + 2 + 4 + 8, "{told:?}");
        assert_eq!(told[0], "none 2 KB");
        assert_eq!(told[1], "integrity rsa1024 2 KB");
        assert!(told.contains(&"confidentiality rsa2048 reuse 32 2 recipients 2 KB".to_owned()), "{told:?}");
        // Only what is signed shares signatures: four more, and two keys × two recipients more.
        let batched = Protection { sign_batch: vec![1, 64], ..protection.clone() };
        let told: Vec<String> = batched.product(&defaults).unwrap().iter().map(describe).collect();
        assert_eq!(told.len(), 1 + 2 * 2 + 2 * 4 + 8, "{told:?}");
        for one in
            ["integrity rsa1024 2 KB", "integrity rsa1024 batch 64 2 KB", "privacy rsa2048 batch 64 2 recipients 2 KB"]
        {
            assert!(told.contains(&one.to_owned()), "{told:?}");
        }
        let wrong = Protection { devices: vec!["card".into()], ..protection };
        assert!(matches!(wrong.product(&defaults), Err(Error::Usage(_))));
    }
}
