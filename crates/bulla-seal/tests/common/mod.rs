//! A small world for the tests: one authority, people with keys, rings on disk.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod batches;
pub mod damaged;
pub mod tree;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bulla_device::{CpuDevice, SystemRandom};
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::create;
use bulla_seal::certificate::{Certificate, Curve, KeySpec, KeyUse, PrivateKeyPem};
use bulla_seal::policy::{ContentCipher, SignatureDigest};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{
    Bound, Content, Dn, Expect, OpenError, Opened, Opener, Packing, Policy, SealError, Sealed, Sealer, Verified, drive,
};
use bytes::Bytes;

pub const RSA: KeySpec = KeySpec::Rsa(2048);
pub const RSA_SMALL: KeySpec = KeySpec::Rsa(1024);
pub const P256: KeySpec = KeySpec::Ec(Curve::P256);

/// A fixed moment, in 2026.
pub fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000)
}

pub fn later(secs: u64) -> SystemTime {
    now() + Duration::from_secs(secs)
}

pub const DAY: u64 = 86_400;

pub struct World {
    pub dir: tempfile::TempDir,
    pub authority: Authority,
}

#[derive(Clone)]
pub struct Person {
    pub dn: Dn,
    pub certificate: Certificate,
    pub chain: Vec<Certificate>,
    pub key: PrivateKeyPem,
}

pub fn dn(text: &str) -> Dn {
    text.parse().unwrap()
}

impl World {
    pub fn new() -> World {
        World::at(now())
    }

    pub fn at(now: SystemTime) -> World {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(&dir.path().join("ca"), &dn("CN=Test CA,O=Bulla"), P256, 3650, now).unwrap();
        World { dir, authority }
    }

    /// A user with a key for everything that its type allows.
    pub fn person(&self, name: &str, key: KeySpec) -> Person {
        self.person_for(name, key, KeyUse::usual(key.kind()), 365, now())
    }

    pub fn person_for(&self, name: &str, key: KeySpec, uses: Vec<KeyUse>, days: u32, now: SystemTime) -> Person {
        let dn = dn(&format!("CN={name},O=Bulla"));
        let request = Request { dn: dn.clone(), key, uses, days, alternative_names: Vec::new(), passphrase: None };
        let (certificate, key) = self.authority.issue(&request, now).unwrap();
        Person { dn, certificate, chain: self.authority.chain(), key }
    }

    /// A certificate with another name for a person's key.
    pub fn again(&self, name: &str, of: &Person) -> Person {
        let dn = dn(&format!("CN={name},O=Bulla"));
        let uses = vec![KeyUse::DocSign, KeyUse::DataEncrypt];
        let profile = create::Profile { dn: dn.clone(), uses, days: 365, alternative_names: Vec::new() };
        let key = bulla_seal::certificate::read_private_key(of.key.as_bytes(), None).unwrap();
        let request = create::request(&profile, &key, of.certificate.key_kind()).unwrap();
        let certificate = self.authority.sign_request(&request, &profile.uses, 365, &[], now()).unwrap();
        let key = bulla_seal::certificate::PrivateKeyPem::write(&key, None).unwrap();
        Person { dn, certificate, chain: self.authority.chain(), key }
    }

    pub fn ring(&self, user: &str, own: &[&Person], people: &[&Person]) -> Arc<Ring> {
        let dir = self.ring_dir(user);
        ring::create(&dir).unwrap();
        for (at, person) in own.iter().enumerate() {
            let label = format!("own{at}");
            ring::install_own(&dir, &label, &person.certificate, &person.chain, &person.key).unwrap();
        }
        for (at, person) in people.iter().enumerate() {
            ring::install_person(&dir, &format!("person{at}"), &person.certificate, &person.chain).unwrap();
        }
        ring::install_trust(&dir, "ca", self.authority.root()).unwrap();
        self.load(user)
    }

    pub fn load(&self, user: &str) -> Arc<Ring> {
        Arc::new(Ring::load(&self.ring_dir(user), None).unwrap())
    }

    pub fn ring_dir(&self, user: &str) -> PathBuf {
        self.dir.path().join("rings").join(user)
    }
}

pub fn policy(sign: Option<SignatureDigest>, encrypt: Option<ContentCipher>, to: &[&Person]) -> Arc<Policy> {
    Arc::new(policy_of(sign, encrypt, to))
}

pub fn policy_of(sign: Option<SignatureDigest>, encrypt: Option<ContentCipher>, to: &[&Person]) -> Policy {
    let mut policy = Policy::new("ORDERS");
    policy.sign = sign;
    policy.encrypt = encrypt;
    policy.weak = sign.is_none();
    policy.recipients = to.iter().map(|person| person.dn.clone()).collect();
    if sign.is_some() && matches!(encrypt, Some(ContentCipher::Aes128Cbc | ContentCipher::Aes256Cbc)) {
        policy.signers = policy.recipients.clone(); // it must name some
    }
    policy.check().unwrap();
    policy
}

pub fn payload() -> Content {
    Content {
        packing: Packing::Data,
        content_type: Some("text/plain".into()),
        bytes: Bytes::from_static(b"seventeen cows, two of them red"),
    }
}

pub fn bound() -> Bound {
    Bound {
        destination: "ORDERS@QM1".into(),
        message_id: Bytes::from_static(b"\xa1\x04id-1"),
        properties: Bytes::from_static(b"\x00\x53\x73\xc0\x01\x00"),
        application_properties: Bytes::new(),
        annotations: Bytes::new(),
    }
}

pub fn expect() -> Expect {
    let bound = bound();
    Expect {
        destinations: vec![bound.destination],
        message_id: bound.message_id,
        properties: bound.properties,
        application_properties: bound.application_properties,
        annotations: bound.annotations,
    }
}

pub fn sealer(policy: &Arc<Policy>, ring: &Arc<Ring>) -> Sealer {
    Sealer::new(Arc::clone(policy), Arc::clone(ring), None, now()).unwrap()
}

pub fn seal_with(sealer: &mut Sealer, content: Content) -> Result<Sealed, SealError> {
    let step = sealer.seal(content, &bound(), now(), &mut SystemRandom)?;
    drive(step, &mut CpuDevice::new("cpu"))
}

pub fn seal(policy: &Arc<Policy>, ring: &Arc<Ring>) -> Bytes {
    seal_with(&mut sealer(policy, ring), payload()).unwrap().der
}

pub fn open_at(
    opener: &Opener,
    policy: &Arc<Policy>,
    ring: &Arc<Ring>,
    der: Bytes,
    expect: Expect,
    put_at: SystemTime,
    now: SystemTime,
) -> Result<Opened, OpenError> {
    let step = opener.open(policy, ring, der, expect, put_at, now)?;
    drive(step, &mut CpuDevice::new("cpu")).map(Verified::into_inner)
}

pub fn open_with(opener: &Opener, policy: &Arc<Policy>, ring: &Arc<Ring>, der: Bytes) -> Result<Opened, OpenError> {
    open_at(opener, policy, ring, der, expect(), now(), now())
}

pub fn open(policy: &Arc<Policy>, ring: &Arc<Ring>, der: impl Into<Bytes>) -> Result<Opened, OpenError> {
    open_with(&Opener::new(), policy, ring, der.into())
}
