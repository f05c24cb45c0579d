//! What a message needs: the operations that its policy, key, reuse and recipients imply, and what each step of its way
//! takes by a profile.

use super::profile::{Cost, Operation, Profile, kind_of};
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result};
use bulla_seal::policy::SIGN_BATCH_MAX;
use std::collections::BTreeMap;

/// Messages up to this many bytes are sealed and opened on the dispatcher while their content key is live.
pub const LIVE_ON_DISPATCHER_BYTES_MAX: u64 = 64 << 10;
/// Uses after which a content key ends even where reuse is unlimited (`docs/formats/sealed-message.md`).
const CONTENT_KEY_USES_MAX: u64 = 1 << 20;

/// A step that a thread takes, microseconds of processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Once a turn.
    pub turn: f64,
    /// Each message.
    pub message: f64,
    /// Each message beside that, when no cache holds any of what waits.
    pub far: f64,
}

impl Step {
    fn of(cost: &Cost, bytes: f64) -> Self {
        Self { turn: cost.turn_us, message: cost.message(bytes), far: cost.far(bytes) }
    }
}

/// What every message of a configuration needs. Times are microseconds of processor time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// What its policy asks for.
    pub quality: Quality,
    /// The key of signer and recipient.
    pub key: String,
    /// Whether it is persistent.
    pub persistent: bool,
    /// Bytes of payload.
    pub bytes: f64,
    /// The application puts and gets.
    pub app_put: Step,
    /// The application gets.
    pub app_get: Step,
    /// A dispatcher takes it.
    pub qm_put: Step,
    /// A dispatcher gives it out.
    pub qm_get: Step,
    /// The two ends of a channel.
    pub send: Step,
    /// The receiving end.
    pub receive: Step,
    /// TLS between application and queue manager, at each end.
    pub tls_client: f64,
    /// TLS between queue managers, at each end.
    pub tls_channel: f64,
    /// A dispatcher hands it to an adapter and gets it back.
    pub hand_over: f64,
    /// A dispatcher seals or opens it itself.
    pub live: f64,
    /// A dispatcher gives it to the journal, where it is persistent.
    pub persist: f64,
    /// Sealing with a new content key, or with none.
    pub seal: f64,
    /// Opening one whose content key was not known.
    pub open: f64,
    /// Sealing under a live content key.
    pub seal_live: f64,
    /// Opening under a known content key.
    pub open_live: f64,
    /// Whether that is done on the dispatcher.
    pub live_on_dispatcher: bool,
    /// Messages that a content key serves; 1 where it is never used again.
    pub key_uses: u64,
    /// Messages that one signature may prove; 1 where each has its own.
    pub sign_batch: u32,
    /// Sealing beside the rest, of a message that shares its signature.
    pub leaf: f64,
    /// Opening one, beside the rest.
    pub branch: f64,
    /// An adapter's turn, task, job to another thread, and job of its own.
    pub adapter_turn: f64,
    /// A task.
    pub task: f64,
    /// A job that goes to another thread.
    pub job: f64,
    /// A job that an adapter computes itself.
    pub inline: f64,
    /// The journal's thread.
    pub journal: Step,
    /// Operations of sealing, one after the other, where the content key is new.
    pub seal_steps: Vec<Operation>,
    /// Operations of opening, where the content key is not known.
    pub open_steps: Vec<Operation>,
    /// What the processor takes for each of [`Operation::ALL`].
    pub cpu: [Option<f64>; 4],
}

impl Class {
    /// By that profile.
    ///
    /// # Errors
    /// [`Error::Usage`]: the configuration contradicts itself.
    pub fn new(profile: &Profile, configuration: &Configuration) -> Result<Class> {
        let quality = configuration.quality;
        if quality != Quality::None && configuration.key.is_empty() && profile.channel.is_none() {
            return Err(Error::Usage(format!("{quality} needs a key: --key rsa2048")));
        }
        if quality != Quality::Confidentiality && configuration.reuse != Reuse::Times(0) {
            return Err(Error::Usage(format!(
                "content keys are used again by confidentiality alone, not by {quality}"
            )));
        }
        let sign_batch = configuration.sign_batch;
        if !(1..=SIGN_BATCH_MAX).contains(&sign_batch) {
            return Err(Error::Usage(format!("one signature proves 1 to {SIGN_BATCH_MAX} messages, not {sign_batch}")));
        }
        if sign_batch > 1 && !quality.signs() {
            return Err(Error::Usage(format!(
                "messages share signatures by integrity and privacy alone, not by {quality}"
            )));
        }
        let bytes = configuration.bytes as f64;
        let costs = &profile.costs;
        let step = |cost: &Cost| Step::of(cost, bytes);
        let tls = tls_us(profile, &configuration.cipher, bytes)?;
        let channel = configuration.topology == "channel";
        let protection = &costs.protection;
        let (new, live) = (protection.of(quality, false), protection.of(quality, true));
        let (of_keys, shared) = protection.of_keys(quality, &configuration.key);
        let processor = if configuration.devices == "software" { &profile.software } else { &profile.cpu };
        let cpu = Operation::ALL.map(|operation| {
            let times = processor.get(&*kind_of(&configuration.key, operation))?.get(operation)?;
            Some(times.alone)
        });
        let (seal_steps, open_steps) = steps(quality, configuration.recipients);
        Ok(Class {
            quality,
            key: configuration.key.clone(),
            persistent: configuration.persistent,
            bytes,
            app_put: step(&costs.application.put),
            app_get: step(&costs.application.get),
            qm_put: step(&costs.queue_manager.put),
            qm_get: step(&costs.queue_manager.get),
            send: step(&costs.channel_initiator.send),
            receive: step(&costs.channel_initiator.receive),
            tls_client: if channel { 0.0 } else { tls },
            tls_channel: if channel { tls } else { 0.0 },
            hand_over: costs.hand_over_us,
            live: costs.live_us,
            persist: if configuration.persistent { costs.persist_us } else { 0.0 },
            seal: new.seal(bytes) + of_keys.seal(bytes),
            open: new.open(bytes) + of_keys.open(bytes),
            seal_live: live.seal(bytes),
            open_live: live.open(bytes),
            live_on_dispatcher: configuration.bytes <= LIVE_ON_DISPATCHER_BYTES_MAX,
            key_uses: match configuration.reuse {
                Reuse::Times(times) => u64::from(times) + 1,
                Reuse::Unlimited => CONTENT_KEY_USES_MAX,
            },
            sign_batch,
            leaf: shared.seal(bytes),
            branch: shared.open(bytes),
            adapter_turn: protection.turn_us,
            task: protection.task_us,
            job: protection.job_us,
            inline: protection.inline_us,
            journal: step(&costs.journal),
            seal_steps,
            open_steps,
            cpu,
        })
    }

    /// Whether a policy asks for anything.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.quality != Quality::None
    }

    /// The part of messages with a new content key, or with none: those that need their operations.
    #[must_use]
    pub fn new_key_share(&self) -> f64 {
        1.0 / self.key_uses as f64
    }

    /// Operations of a message from put to get, on average, where so many messages share a signature and a reader
    /// verifies it once.
    #[must_use]
    pub fn operations(&self, together: f64) -> BTreeMap<Operation, f64> {
        let mut counts = BTreeMap::new();
        for operation in self.seal_steps.iter().chain(&self.open_steps) {
            let shared = if matches!(operation, Operation::Sign | Operation::Verify) { together.max(1.0) } else { 1.0 };
            *counts.entry(*operation).or_insert(0.0) += self.new_key_share() / shared;
        }
        counts
    }

    /// Whether a dispatcher looks for the content key before it hands a message to an adapter to be opened.
    #[must_use]
    pub fn looks_first(&self) -> bool {
        self.quality == Quality::Confidentiality && self.live_on_dispatcher
    }

    /// What the processor takes for an operation.
    #[must_use]
    pub fn cpu_us(&self, operation: Operation) -> Option<f64> {
        self.cpu[operation as usize]
    }
}

/// Sealing's and opening's operations with keys. With privacy the content key is wrapped first, because the signature
/// covers the set of recipients.
fn steps(quality: Quality, recipients: u32) -> (Vec<Operation>, Vec<Operation>) {
    let wraps = (0..recipients.max(1)).map(|_| Operation::Wrap);
    match quality {
        Quality::None => (Vec::new(), Vec::new()),
        Quality::Integrity => (vec![Operation::Sign], vec![Operation::Verify]),
        Quality::Privacy => (wraps.chain([Operation::Sign]).collect(), vec![Operation::Unwrap, Operation::Verify]),
        Quality::Confidentiality => (wraps.collect(), vec![Operation::Unwrap]),
    }
}

/// What TLS takes for a message at one end.
fn tls_us(profile: &Profile, cipher: &str, bytes: f64) -> Result<f64> {
    if cipher.is_empty() {
        return Ok(0.0);
    }
    let mut known = profile.costs.tls.iter();
    match known.find(|(name, _)| name.eq_ignore_ascii_case(cipher)) {
        Some((_, cost)) => Ok(cost.turn_us + cost.message(bytes)),
        None => Err(Error::Usage(format!("profile {} does not say what TLS with {cipher} costs", profile.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::profile::{KeyCosts, Operations, SealOpen};

    fn class(configuration: Configuration) -> Class {
        Class::new(&Profile::empty("test", "a test"), &configuration).unwrap()
    }

    #[test]
    fn a_policy_implies_its_operations() {
        let of = |quality, recipients, reuse| {
            let key = "rsa2048".into();
            let class = class(Configuration { quality, key, recipients, reuse, ..Configuration::default() });
            Operation::ALL.map(|operation| class.operations(1.0).get(&operation).copied().unwrap_or(0.0))
        };
        // Signatures, verifications, wraps, unwraps.
        assert_eq!(of(Quality::None, 1, Reuse::Times(0)), [0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(Quality::Integrity, 3, Reuse::Times(0)), [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(of(Quality::Privacy, 3, Reuse::Times(0)), [1.0, 1.0, 3.0, 1.0]);
        assert_eq!(of(Quality::Confidentiality, 1, Reuse::Times(0)), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(of(Quality::Confidentiality, 2, Reuse::Times(3)), [0.0, 0.0, 0.5, 0.25]);
        assert!(of(Quality::Confidentiality, 1, Reuse::Unlimited)[2] < 1e-5);
        let batched = Configuration {
            quality: Quality::Privacy,
            key: "rsa2048".into(),
            recipients: 3,
            sign_batch: 8,
            ..Configuration::default()
        };
        let operations = class(batched).operations(8.0);
        let counts = Operation::ALL.map(|operation| operations.get(&operation).copied());
        assert_eq!(counts, [Some(0.125), Some(0.125), Some(3.0), Some(1.0)]);
    }

    #[test]
    fn long_signatures_and_recipients_cost_what_the_profile_says() {
        let costs = |us: f64| SealOpen { seal_us: us, open_us: 10.0 * us, ..SealOpen::default() };
        let mut profile = Profile::empty("test", "a test");
        profile.costs.protection.batch = costs(1.0);
        let keys = KeyCosts { signer: costs(2.0), batch: costs(3.0), recipient: costs(4.0) };
        profile.costs.protection.keys.insert("ml-dsa-65".into(), keys);
        let of = |quality, key: &str| {
            let class = Class::new(&profile, &Configuration { quality, key: key.into(), ..Configuration::default() });
            let class = class.unwrap();
            [class.seal, class.open, class.leaf, class.branch]
        };
        assert_eq!(of(Quality::Integrity, "rsa2048"), [0.0, 0.0, 1.0, 10.0]);
        assert_eq!(of(Quality::Integrity, "ml-dsa-65"), [2.0, 20.0, 3.0, 30.0]);
        assert_eq!(of(Quality::Privacy, "ml-dsa-65"), [6.0, 60.0, 3.0, 30.0]);
        assert_eq!(of(Quality::Privacy, "rsa4096+ml-kem-768"), [4.0, 40.0, 1.0, 10.0]);
        assert_eq!(of(Quality::Privacy, "ml-dsa-65+p256"), [2.0, 20.0, 3.0, 30.0]);
        assert_eq!(of(Quality::Confidentiality, "ml-dsa-65"), [4.0, 40.0, 1.0, 10.0]);
    }

    #[test]
    fn one_kind_of_key_signs_and_another_is_written_to() {
        let times = |us: f64| Operations {
            sign: Some(us.into()),
            verify: Some((us + 1.0).into()),
            wrap: Some((us + 2.0).into()),
            unwrap: Some((us + 3.0).into()),
        };
        let mut profile = Profile::empty("test", "a test");
        for (key, us) in [("rsa4096", 100.0), ("p256", 200.0), ("ml-dsa-65", 300.0)] {
            profile.cpu.insert(key.to_owned(), times(us));
        }
        let cpu = |key: &str| {
            let configuration =
                Configuration { quality: Quality::Privacy, key: key.into(), ..Configuration::default() };
            Class::new(&profile, &configuration).unwrap().cpu.map(|us| us.unwrap_or_default())
        };
        assert_eq!(cpu("rsa4096"), [100.0, 101.0, 102.0, 103.0]);
        assert_eq!(cpu("rsa4096+p256"), [100.0, 101.0, 202.0, 203.0]);
        assert_eq!(cpu("rsa4096+ml-kem-768"), [100.0, 101.0, 302.0, 303.0]);
        assert_eq!(cpu("ml-dsa-65+p256"), [300.0, 301.0, 202.0, 203.0]);
        assert_eq!(cpu("rsa4096+ml-kem-512"), [100.0, 101.0, 0.0, 0.0], "its times are not in the profile");
    }

    #[test]
    fn a_configuration_that_contradicts_itself_is_refused() {
        let profile = Profile::empty("test", "a test");
        for (configuration, says) in [
            (Configuration { quality: Quality::Privacy, ..Configuration::default() }, "privacy needs a key"),
            (
                Configuration { reuse: Reuse::Times(3), ..Configuration::default() },
                "content keys are used again by confidentiality alone",
            ),
            (
                Configuration { sign_batch: 64, ..Configuration::default() },
                "messages share signatures by integrity and privacy alone",
            ),
            (Configuration { sign_batch: 0, ..Configuration::default() }, "1 to 1024 messages, not 0"),
            (Configuration { sign_batch: 1025, ..Configuration::default() }, "1 to 1024 messages, not 1025"),
            (Configuration { cipher: "ROT13".into(), ..Configuration::default() }, "what TLS with ROT13 costs"),
        ] {
            let said = Class::new(&profile, &configuration).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }
}
