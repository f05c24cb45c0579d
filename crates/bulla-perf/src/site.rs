//! Queue managers of our own, in scratch directories: started by the program that this belongs to, with users,
//! certificates, queues, policies and devices as a configuration asks for, and gone at the end.

mod devices;
pub(crate) mod listener;
mod manager;

pub use devices::{Card, Devices};
pub use manager::{Manager, PASSWORD, Settings};

use crate::configuration::{Configuration, Quality};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::load::Seat;
use crate::load::client::Broker;
use crate::run::meters::Watched;
use bulla_seal::certificate::KeySpec;
use std::fmt::Write;

/// A putter, a getter, and the queue between them.
#[derive(Clone, Debug)]
pub struct Place {
    /// The queue.
    pub queue: String,
    /// As whom to put.
    pub putter: Broker,
    /// As whom to get.
    pub getter: Broker,
    /// The queue manager, for the meters.
    pub watched: Watched,
}

impl Place {
    /// Where the putter sits.
    #[must_use]
    pub fn putting(&self) -> Seat {
        Seat::at(&self.putter, &self.queue)
    }

    /// Where the getter sits.
    #[must_use]
    pub fn getting(&self) -> Seat {
        Seat::at(&self.getter, &self.queue)
    }
}

/// A queue manager for each setup that configurations ask for, started when it is first asked for. An idle one costs
/// some microseconds a second, so that configurations with different devices can take turns.
pub struct Site<'h> {
    host: &'h dyn Host,
    /// What holds for all of them; name and devices are each one's own.
    settings: Settings,
    managers: Vec<(Setup, Manager<'h>)>,
}

/// What can't be changed while messages flow.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Setup {
    devices: Devices,
    dispatchers: u32,
    adapters: u32,
    /// Keys on curves, with which accelerators of the published kind can do nothing.
    curves: bool,
}

impl<'h> Site<'h> {
    /// Nothing is started yet. Of the settings, what a configuration says is passed over.
    #[must_use]
    pub fn new(host: &'h dyn Host, settings: Settings) -> Site<'h> {
        Site { host, settings, managers: Vec::new() }
    }

    /// The queue manager for a configuration.
    ///
    /// # Errors
    /// [`Error::Usage`]: devices that are none; [`Error::Device`]: this machine has no such device;
    /// [`Error::Manager`]: it did not start.
    pub fn manager(&mut self, configuration: &Configuration) -> Result<&mut Manager<'h>> {
        let setup = Setup {
            devices: configuration.devices.parse().map_err(Error::Usage)?,
            dispatchers: configuration.dispatchers,
            adapters: configuration.adapters,
            curves: configuration.key.split(BOTH).any(|key| key.starts_with('p')),
        };
        if setup.devices.modelled && configuration.key.split(BOTH).any(is_post_quantum) {
            let why = format!("cards that are modelled as the published ones do nothing with {}", configuration.key);
            return Err(Error::Device(why));
        }
        // Only then does it matter which keys there are.
        let setup = Setup { curves: setup.curves && setup.devices.modelled && setup.devices.accelerators > 0, ..setup };
        let at = match self.managers.iter().position(|(known, _)| *known == setup) {
            Some(at) => at,
            None => {
                let settings = Settings {
                    name: format!("{}{}", self.settings.name, self.managers.len() + 1),
                    devices: setup.devices.clone(),
                    dispatchers: setup.dispatchers,
                    adapters: setup.adapters,
                    curves: setup.curves,
                    ..self.settings.clone()
                };
                let manager = Manager::start(self.host, &settings)?;
                self.managers.push((setup, manager));
                self.managers.len() - 1
            }
        };
        Ok(&mut self.managers[at].1)
    }

    /// A queue for the configuration on its queue manager, with users, certificates and policy; `number` tells queues
    /// of one configuration apart.
    ///
    /// # Errors
    /// As [`manager`](Self::manager), and what [`Manager::define`] refuses.
    pub fn define(&mut self, configuration: &Configuration, number: u32) -> Result<Place> {
        self.manager(configuration)?.define(configuration, number)
    }

    /// Ends all of them in order.
    ///
    /// # Errors
    /// [`Error::Manager`]: one did not end well.
    pub fn stop(self) -> Result<()> {
        let ends: Vec<Result<()>> = self.managers.into_iter().map(|(_, manager)| manager.stop()).collect();
        ends.into_iter().collect()
    }
}

impl std::fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("managers", &self.managers.len()).finish_non_exhaustive()
    }
}

/// The name of a configuration's queue: what tells its policy from others.
#[must_use]
pub fn queue_name(configuration: &Configuration, number: u32) -> String {
    let key = if configuration.key.is_empty() { "ANY" } else { &configuration.key };
    // 48 characters at most: the longest is CONFIDENTIALITY.RSA4096.UNLIMITED.R99.9999.
    let mut name = format!("{}.{key}.{}", configuration.quality, configuration.reuse);
    if configuration.recipients != 1 {
        let _ = write!(name, ".R{}", configuration.recipients);
    }
    if configuration.sign_batch != 1 {
        let _ = write!(name, ".B{}", configuration.sign_batch);
    }
    let _ = write!(name, ".{number}");
    // No name of a queue has a hyphen or a plus.
    name.to_uppercase().replace('-', "").replace(BOTH, "_")
}

/// The policy of a queue on which `putter` puts for the `recipients`, as MQSC; none for an unprotected one.
#[must_use]
pub fn policy(configuration: &Configuration, queue: &str, putter: &str, recipients: &[String]) -> Option<String> {
    let batch = match configuration.sign_batch {
        1 => String::new(),
        most => format!(" SIGNBATCH({most})"),
    };
    let (digest, pqc) = algorithms(configuration);
    let sign = format!("SIGNALG({digest}) SIGNER('{}'){batch}", dn(putter));
    let names: Vec<String> = recipients.iter().map(|user| format!("'{}'", dn(user))).collect();
    let encrypt = format!("ENCALG(AES256) RECIP({})", names.join(", "));
    let reuse = match configuration.reuse.to_string().as_str() {
        "0" => String::new(),
        times => format!(" KEYREUSE({})", times.to_uppercase()),
    };
    match configuration.quality {
        Quality::None => None,
        Quality::Integrity => Some(format!("SET POLICY('{queue}') {sign}{pqc}")),
        Quality::Privacy => Some(format!("SET POLICY('{queue}') {sign} {encrypt}{pqc}")),
        Quality::Confidentiality => Some(format!("SET POLICY('{queue}') {encrypt}{reuse}{pqc}")),
    }
}

/// The digest of signatures with the configuration's key, and what a policy says of post-quantum keys: each of ML-DSA's
/// sizes takes SHA-512 (RFC 9882).
#[must_use]
pub fn algorithms(configuration: &Configuration) -> (&'static str, &'static str) {
    let key = configuration.key.as_str();
    let digest = if key.starts_with("ml-") { "SHA512" } else { "SHA256" };
    let are_modern = |part: &str| part.starts_with("ml-");
    let pqc = match key.split(BOTH).filter(|part| are_modern(part)).count() {
        0 => "",
        modern if modern == key.split(BOTH).count() => " PQC(REQUIRED)",
        _ => " PQC(ALLOWED)",
    };
    (digest, pqc)
}

/// What stands between the key that signs and the one that is written to, where they are of two kinds.
pub const BOTH: char = '+';

/// The keys that a user has who is to have this one, and for what each is where that has to be said. ML-DSA signs and
/// ML-KEM is written to, so a user with one has both.
#[must_use]
pub fn keys(key: &str) -> Vec<(String, Option<&'static str>)> {
    if let Some((signs, reads)) = key.split_once(BOTH) {
        let encrypts = if reads.starts_with('p') { "keyagree" } else { "dataencrypt" };
        return vec![(signs.to_owned(), Some("docsign")), (reads.to_owned(), Some(encrypts))];
    }
    let counterpart = key.parse().ok().and_then(KeySpec::counterpart).map(|other| other.to_string());
    [Some(key.to_owned()), counterpart].into_iter().flatten().map(|key| (key, None)).collect()
}

/// Whether a key of that name is ML-DSA's or ML-KEM's.
fn is_post_quantum(key: &str) -> bool {
    matches!(key.parse(), Ok(KeySpec::MlDsa(_) | KeySpec::MlKem(_)))
}

/// A user's name in certificates.
#[must_use]
pub fn dn(user: &str) -> String {
    format!("CN={user},O=Perf")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Reuse;

    #[test]
    fn each_quality_has_its_policy() {
        let configuration = |quality, reuse| Configuration { quality, reuse, ..Configuration::default() };
        let of = |quality, reuse| policy(&configuration(quality, reuse), "Q", "a", &["b".to_owned(), "c".to_owned()]);
        assert_eq!(of(Quality::None, Reuse::default()), None);
        assert_eq!(
            of(Quality::Integrity, Reuse::Times(3)).unwrap(),
            "SET POLICY('Q') SIGNALG(SHA256) SIGNER('CN=a,O=Perf')"
        );
        assert_eq!(
            of(Quality::Confidentiality, Reuse::Unlimited).unwrap(),
            "SET POLICY('Q') ENCALG(AES256) RECIP('CN=b,O=Perf', 'CN=c,O=Perf') KEYREUSE(UNLIMITED)"
        );
        assert!(of(Quality::Privacy, Reuse::default()).unwrap().contains("SIGNALG(SHA256)"));
        let modern = Configuration { quality: Quality::Privacy, key: "ml-dsa-65".into(), ..Configuration::default() };
        assert_eq!(
            policy(&modern, "Q", "a", &["b".to_owned()]).unwrap(),
            "SET POLICY('Q') SIGNALG(SHA512) SIGNER('CN=a,O=Perf') ENCALG(AES256) RECIP('CN=b,O=Perf') PQC(REQUIRED)"
        );
        let named = |key| keys(key).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(named("ml-dsa-65"), ["ml-dsa-65", "ml-kem-768"]);
        assert_eq!(named("p256"), ["p256"]);
        let both = [("rsa4096".to_owned(), Some("docsign")), ("p256".to_owned(), Some("keyagree"))];
        assert_eq!(keys("rsa4096+p256"), both);
        let mixed = Configuration { key: "rsa4096+ml-kem-768".into(), ..modern.clone() };
        assert_eq!(algorithms(&mixed), ("SHA256", " PQC(ALLOWED)"));
        let shared = Configuration { quality: Quality::Privacy, sign_batch: 64, ..Configuration::default() };
        assert_eq!(
            policy(&shared, "Q", "a", &["b".to_owned()]).unwrap(),
            "SET POLICY('Q') SIGNALG(SHA256) SIGNER('CN=a,O=Perf') SIGNBATCH(64) ENCALG(AES256) RECIP('CN=b,O=Perf')"
        );
    }

    #[test]
    fn a_queue_is_named_for_what_tells_it_from_others() {
        let configuration = Configuration {
            quality: Quality::Confidentiality,
            key: "rsa4096".into(),
            reuse: Reuse::Unlimited,
            recipients: 99,
            ..Configuration::default()
        };
        let name = queue_name(&configuration, 9999);
        assert_eq!(name, "CONFIDENTIALITY.RSA4096.UNLIMITED.R99.9999");
        assert!(name.len() <= 48);
        let modern = Configuration { key: "ml-dsa-65".into(), ..configuration };
        assert_eq!(queue_name(&modern, 1), "CONFIDENTIALITY.MLDSA65.UNLIMITED.R99.1");
    }
}
