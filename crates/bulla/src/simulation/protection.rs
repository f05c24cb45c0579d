//! Protected queues: the user that all clients are, its keys, and a look at what lies on queues and disks.

use super::body::shown_body;
use super::checker::{Number, Shown};
use crate::authority::{Entity, ObjectType, Profile, RecordKey, SIGNED_IN};
use crate::catalog::{BASE_TOPIC, Change};
use crate::clock::Clock;
use crate::envelope::Arrival;
use crate::users::{ITERATIONS_MIN, Users};
use bulla_amqp::{Payload, SaslClient};
use bulla_device::CpuDevice;
use bulla_queue::sim::SimDisk;
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::{KeySpec, KeyUse};
use bulla_seal::policy::{ContentCipher, SignatureDigest};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Dn, Opener, Policy, drive};
use openssl::sha::sha256;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Who clients and channels are.
pub(super) const USER: &str = "app";
const PASSWORD: &str = "long enough for a test";
/// Signatures with RSA have one length, so that all sealed messages of one length lie alike on the disk.
const KEY: KeySpec = KeySpec::Rsa(2048);
const KEY_DAYS: u32 = 3_650;

/// The queue manager's name.
pub(super) const MANAGER: &str = "QM1";

/// The data directory of all simulations: a user with a key ring, which nothing changes.
pub(super) fn data() -> &'static Path {
    static DATA: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = DATA.get_or_init(|| {
        let data = tempfile::tempdir().unwrap();
        Users::open(data.path()).unwrap().add(USER, PASSWORD, ITERATIONS_MIN).unwrap();
        let now = Clock::simulated().wall();
        let authority = Authority::create(&data.path().join("ca"), &dn("CA"), KEY, KEY_DAYS, now).unwrap();
        let uses = vec![KeyUse::DocSign, KeyUse::DataEncrypt];
        let request =
            Request { dn: dn(USER), key: KEY, uses, days: KEY_DAYS, alternative_names: Vec::new(), passphrase: None };
        let own = authority.issue(&request, now).unwrap();
        let folder = data.path().join(crate::folders::RINGS).join(USER);
        ring::create(&folder).unwrap();
        ring::install_own(&folder, "own", &own.0, &authority.chain(), &own.1).unwrap();
        ring::install_trust(&folder, "ca", authority.root()).unwrap();
        data
    });
    made.path()
}

pub(super) fn dn(name: &str) -> Dn {
    format!("CN={name},O=Bulla").parse().unwrap()
}

/// As whom clients sign in.
pub(super) fn sign_in() -> SaslClient {
    SaslClient::Scram { user: USER.to_owned(), password: PASSWORD.to_owned() }
}

/// The right to publish.
pub(super) fn topics() -> (RecordKey, crate::authority::Rights) {
    let profile = Profile::parse(BASE_TOPIC).unwrap();
    let key = RecordKey { object: ObjectType::Topic, profile, entity: Entity::principal(SIGNED_IN) };
    (key, ObjectType::Topic.rights())
}

/// How a queue is protected.
#[derive(Clone, Copy)]
pub(super) enum Quality {
    /// Signed and encrypted.
    Privacy,
    /// Encrypted.
    Confidentiality,
}

pub(super) fn policy(queue: &str, quality: Quality) -> Policy {
    let sign = matches!(quality, Quality::Privacy).then_some(SignatureDigest::Sha256);
    let (encrypt, recipients) = (Some(ContentCipher::Aes256Gcm), vec![dn(USER)]);
    Policy { sign, encrypt, recipients, ..Policy::new(queue) }
}

/// Protects a queue.
pub(super) fn protects(queue: &str, quality: Quality) -> Change {
    Change::define(queue, Arc::new(policy(queue, quality)))
}

/// Opens what lies on protected queues.
pub(super) struct Reader {
    opener: Opener,
    ring: Arc<Ring>,
    device: CpuDevice,
    /// Numbers of messages that were opened, by the digest of what was sealed.
    known: BTreeMap<[u8; 32], Number>,
}

impl Reader {
    pub(super) fn new() -> Self {
        let ring = Ring::load(&data().join(crate::folders::RINGS).join(USER), None).unwrap();
        Self { opener: Opener::new(), ring: Arc::new(ring), device: CpuDevice::new("reader"), known: BTreeMap::new() }
    }

    /// The number in a sealed message's body.
    pub(super) fn number(
        &mut self,
        (queue, manager, quality): (&str, &str, Quality),
        sealed: &Payload,
        clock: &Clock,
    ) -> Result<Number, String> {
        let arrival = Arrival::read(sealed, 0).map_err(|refusal| format!("{queue}: {refusal}"))?;
        if !arrival.claims_seal() {
            return Err(format!("{queue}: a message in clear"));
        }
        let der = arrival.sealed_body().map_err(|refusal| format!("{queue}: {refusal}"))?;
        let digest = sha256(&der);
        if let Some(number) = self.known.get(&digest) {
            return Ok(*number);
        }
        let expect = arrival.expect(vec![format!("{queue}@{manager}")]);
        let (policy, wall) = (Arc::new(policy(queue, quality)), clock.wall());
        let step = self.opener.open(&policy, &self.ring, der, expect, wall, wall);
        let opened =
            step.and_then(|step| drive(step, &mut self.device)).map_err(|error| format!("{queue}: {error}"))?;
        let number = shown_body(&opened.into_inner().content.bytes)?;
        self.known.insert(digest, number);
        Ok(number)
    }
}

/// Nothing of what is protected stands on a disk in clear.
pub(super) fn look_for_secrets(disk: &SimDisk, secrets: &[&[u8]]) -> Result<(), String> {
    for (name, _) in disk.files() {
        let bytes = disk.contents(&name).unwrap_or_default();
        secrets.iter().try_for_each(|secret| look_for(&bytes, secret).map_err(|what| format!("{name} has {what}")))?;
    }
    Ok(())
}

/// A secret is not among these bytes.
pub(super) fn look_for(bytes: &[u8], secret: &[u8]) -> Result<(), String> {
    match bytes.windows(secret.len()).position(|window| window == secret) {
        None => Ok(()),
        Some(at) => Err(format!("a protected message in clear at byte {at}")),
    }
}

/// What a queue shows of a message, whose number is known.
pub(super) fn shown_as(number: Number, found: &bulla_queue::Found) -> Shown {
    Shown { number, priority: found.priority, persistent: found.persistent }
}
