//! The processor as a device: jobs run on the thread that polls.

use std::collections::VecDeque;
use std::time::Instant;

use openssl::error::ErrorStack;
use openssl::pkey::PKeyRef;
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::sign::RsaPssSaltlen;
use rustix::time::{ClockId, clock_gettime};
use zeroize::Zeroizing;

use crate::device::{Device, DeviceError, Kind};
use crate::digest::Digest;
use crate::key::{KeyKind, PrivateKey};
use crate::meter::{Meters, Operation};
use crate::padding;
use crate::random::{Random, SystemRandom};
use crate::work::{Finished, Job, Output, RsaPadding, RsaScheme, Work};

/// Jobs that may wait in one device; beyond, [`Device::submit`] takes no more.
pub const JOBS_WAITING_MAX: usize = 1024;

/// OpenSSL on the calling thread. Each private result is checked with the public key before it
/// leaves: a single faulty RSA result computed with the primes gives the key away.
pub struct CpuDevice {
    name: String,
    waiting: VecDeque<(Instant, Job)>,
    meters: Meters,
}

impl CpuDevice {
    /// A device of that name; every thread has its own.
    pub fn new(name: impl Into<String>) -> CpuDevice {
        CpuDevice { name: name.into(), waiting: VecDeque::new(), meters: Meters::default() }
    }

    fn fault(&self) -> DeviceError {
        DeviceError::Fault { device: self.name.clone() }
    }

    fn run(&mut self, job: &Job, started: Instant) -> Result<Output, DeviceError> {
        if job.deadline.is_some_and(|deadline| deadline < started) {
            return Err(DeviceError::Deadline);
        }
        match &job.work {
            Work::RsaSign { scheme, digest, hash } => self.rsa_sign(&job.key, *scheme, *digest, hash),
            Work::EcdsaSign { hash } => self.ecdsa_sign(&job.key, hash),
            Work::RsaUnwrap { padding, wrapped, expected_len } => {
                self.rsa_unwrap(&job.key, *padding, wrapped, *expected_len)
            }
            Work::EcdhDerive { peer } => ecdh_derive(&job.key, peer),
        }
    }

    fn rsa_sign(
        &self,
        key: &PrivateKey,
        scheme: RsaScheme,
        digest: Digest,
        hash: &[u8],
    ) -> Result<Output, DeviceError> {
        let private = clear(key)?;
        if key.kind() != KeyKind::Rsa {
            return Err(DeviceError::WrongKey { why: "an RSA signature needs an RSA key" });
        }
        let mut signer = PkeyCtx::new(private)?;
        signer.sign_init()?;
        set_rsa_scheme(&mut signer, scheme, digest)?;
        let mut signature = Vec::with_capacity(private.size());
        signer.sign_to_vec(hash, &mut signature)?;
        let mut verifier = PkeyCtx::new(key.public())?;
        verifier.verify_init()?;
        set_rsa_scheme(&mut verifier, scheme, digest)?;
        self.checked(verified(verifier.verify(hash, &signature)), signature)
    }

    fn ecdsa_sign(&self, key: &PrivateKey, hash: &[u8]) -> Result<Output, DeviceError> {
        let private = clear(key)?;
        if !matches!(key.kind(), KeyKind::Ec(_)) {
            return Err(DeviceError::WrongKey { why: "an ECDSA signature needs an EC key" });
        }
        let mut signer = PkeyCtx::new(private)?;
        signer.sign_init()?;
        let mut signature = Vec::with_capacity(private.size());
        signer.sign_to_vec(hash, &mut signature)?;
        let mut verifier = PkeyCtx::new(key.public())?;
        verifier.verify_init()?;
        self.checked(verified(verifier.verify(hash, &signature)), signature)
    }

    /// The raw private operation, its check, and only then the padding. After the check there is no
    /// branch on the padding's outcome: the random key stands ready and is picked byte by byte.
    fn rsa_unwrap(
        &self,
        key: &PrivateKey,
        padding: RsaPadding,
        wrapped: &[u8],
        expected_len: usize,
    ) -> Result<Output, DeviceError> {
        let rsa = key.rsa().ok_or(DeviceError::WrongKey { why: "an unwrap needs an RSA key" })?;
        let modulus_len = rsa.size() as usize;
        let mut random = Zeroizing::new(vec![0; expected_len]);
        SystemRandom.fill(&mut random).map_err(|error| DeviceError::Library { text: error.to_string() })?;
        let mut raw = Zeroizing::new(vec![0; modulus_len]);
        // Public facts about the wrapped key; anyone can see them, so leaving early tells nothing.
        if wrapped.len() != modulus_len || rsa.private_decrypt(wrapped, &mut raw, Padding::NONE).is_err() {
            drop(ErrorStack::get());
            return Ok(Output::new(std::mem::take(&mut *random)));
        }
        let mut again = vec![0; modulus_len];
        rsa.public_encrypt(&raw, &mut again, Padding::NONE)?;
        if again != wrapped {
            return Err(self.fault());
        }
        let mut key_bytes = Zeroizing::new(vec![0; modulus_len]);
        let len = match padding {
            RsaPadding::Oaep { digest } => padding::check_oaep(&raw, digest, &mut key_bytes),
            RsaPadding::Pkcs1 => padding::check_pkcs1(&raw, &mut key_bytes),
        };
        let good = equal_mask(len, expected_len);
        for (random, real) in random.iter_mut().zip(key_bytes.iter()) {
            *random = (*real & good) | (*random & !good);
        }
        Ok(Output::new(std::mem::take(&mut *random)))
    }

    fn checked(&self, good: bool, signature: Vec<u8>) -> Result<Output, DeviceError> {
        let signature = Output::new(signature);
        if good { Ok(signature) } else { Err(self.fault()) }
    }
}

impl Device for CpuDevice {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        let room = JOBS_WAITING_MAX.saturating_sub(self.waiting.len()).min(jobs.len());
        if room > 0 {
            let now = Instant::now();
            self.waiting.extend(jobs.drain(..room).map(|job| (now, job)));
        }
        Ok(room)
    }

    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        while let Some((submitted, job)) = self.waiting.pop_front() {
            let started = Instant::now();
            let cpu_before = thread_cpu_ns();
            let result = self.run(&job, started);
            let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
            let wait_ns = u64::try_from((started - submitted).as_nanos()).unwrap_or(u64::MAX);
            let operation = match job.work {
                Work::RsaSign { .. } => Operation::RsaSign,
                Work::EcdsaSign { .. } => Operation::EcdsaSign,
                Work::RsaUnwrap { .. } => Operation::RsaUnwrap,
                Work::EcdhDerive { .. } => Operation::EcdhDerive,
            };
            self.meters.record(operation, job.key.bits(), cpu_ns, wait_ns, result.is_err());
            done.push(Finished { id: job.id, result });
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Cpu
    }

    fn meters(&self) -> Meters {
        self.meters.clone()
    }
}

/// The X coordinate that both sides share. The peer's point is attacker's text: one that is not on
/// the curve gives random bytes, which no key wrap accepts.
fn ecdh_derive(key: &PrivateKey, peer: &[u8]) -> Result<Output, DeviceError> {
    let (KeyKind::Ec(curve), Some(private)) = (key.kind(), key.ec()) else {
        return Err(DeviceError::WrongKey { why: "a key agreement needs an EC key" });
    };
    let derived = curve.read_point(private.group(), peer).and_then(|peer| curve.agree(private, &peer));
    match derived {
        Ok(mut secret) => Ok(Output::new(std::mem::take(&mut *secret))),
        Err(_) => {
            drop(ErrorStack::get());
            let mut random = vec![0; curve.coordinate_len()];
            SystemRandom.fill(&mut random).map_err(|error| DeviceError::Library { text: error.to_string() })?;
            Ok(Output::new(random))
        }
    }
}

fn clear(key: &PrivateKey) -> Result<&PKeyRef<openssl::pkey::Private>, DeviceError> {
    key.exportable().ok_or(DeviceError::WrongKey { why: "the key is in another device" })
}

fn set_rsa_scheme<T>(context: &mut PkeyCtx<T>, scheme: RsaScheme, digest: Digest) -> Result<(), DeviceError> {
    match scheme {
        RsaScheme::Pkcs1 => context.set_rsa_padding(Padding::PKCS1)?,
        RsaScheme::Pss => {
            context.set_rsa_padding(Padding::PKCS1_PSS)?;
            context.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
        }
    }
    context.set_signature_md(digest.md())?;
    Ok(())
}

/// A refused signature and an unreadable one are the same here; the library's words are dropped.
fn verified(answer: Result<bool, ErrorStack>) -> bool {
    matches!(answer, Ok(true))
}

/// 0xff when both are equal, else 0; the first one is secret.
fn equal_mask(secret: i32, expected: usize) -> u8 {
    let expected = i64::try_from(expected).unwrap_or(i64::MAX);
    let difference = i64::from(secret) ^ expected;
    // The top bit of `d | -d` is set exactly when d is not zero.
    let differs = (difference | difference.wrapping_neg()) >> 63;
    !(differs as u8)
}

fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::key::Curve;

    use openssl::ec::{EcGroup, EcKey};
    use openssl::encrypt::Encrypter;
    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;

    use super::*;

    fn rsa(bits: u32) -> PrivateKey {
        PrivateKey::clear(PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()).unwrap()
    }

    fn ec(curve: Curve) -> PrivateKey {
        let group = EcGroup::from_curve_name(curve.nid()).unwrap();
        PrivateKey::clear(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()).unwrap()
    }

    fn run(key: &PrivateKey, work: Work) -> Result<Output, DeviceError> {
        let mut device = CpuDevice::new("cpu");
        let mut jobs = vec![Job { id: 7, key: key.clone(), work, deadline: None }];
        assert_eq!(device.submit(&mut jobs).unwrap(), 1);
        let mut done = Vec::new();
        device.poll(&mut done).unwrap();
        assert_eq!((done.len(), done[0].id), (1, 7));
        done.remove(0).result
    }

    fn wrap(key: &PrivateKey, padding: Padding, content_key: &[u8]) -> Vec<u8> {
        let mut encrypter = Encrypter::new(key.public()).unwrap();
        encrypter.set_rsa_padding(padding).unwrap();
        if padding == Padding::PKCS1_OAEP {
            encrypter.set_rsa_oaep_md(Digest::Sha256.message_digest()).unwrap();
            encrypter.set_rsa_mgf1_md(Digest::Sha256.message_digest()).unwrap();
        }
        let mut wrapped = vec![0; encrypter.encrypt_len(content_key).unwrap()];
        let len = encrypter.encrypt(content_key, &mut wrapped).unwrap();
        wrapped.truncate(len);
        wrapped
    }

    const OAEP: RsaPadding = RsaPadding::Oaep { digest: Digest::Sha256 };

    #[test]
    fn rsa_signatures_of_every_scheme_and_digest_verify() {
        let key = rsa(2048);
        for digest in Digest::ALL {
            let hash = digest.hash(b"content");
            for scheme in [RsaScheme::Pkcs1, RsaScheme::Pss] {
                let work = Work::RsaSign { scheme, digest: *digest, hash };
                let signature = run(&key, work).unwrap();
                let mut verifier = PkeyCtx::new(key.public()).unwrap();
                verifier.verify_init().unwrap();
                set_rsa_scheme(&mut verifier, scheme, *digest).unwrap();
                assert!(verifier.verify(&hash, &signature).unwrap());
            }
        }
    }

    #[test]
    fn pss_with_sha_512_does_not_fit_rsa_1024() {
        let hash = Digest::Sha512.hash(b"content");
        let work = Work::RsaSign { scheme: RsaScheme::Pss, digest: Digest::Sha512, hash };
        assert!(matches!(run(&rsa(1024), work), Err(DeviceError::Library { .. })));
    }

    #[test]
    fn every_curve_signs_and_agrees() {
        for curve in Curve::ALL {
            let (key, ephemeral) = (ec(*curve), ec(*curve));
            assert_eq!(key.kind(), KeyKind::Ec(*curve));
            let hash = Digest::Sha256.hash(b"content");
            assert!(run(&key, Work::EcdsaSign { hash }).unwrap().len() > curve.coordinate_len());
            let here = run(&key, Work::EcdhDerive { peer: Curve::point(ephemeral.public()).unwrap() });
            let there = run(&ephemeral, Work::EcdhDerive { peer: Curve::point(key.public()).unwrap() });
            assert_eq!(here.unwrap(), there.unwrap());
        }
    }

    #[test]
    fn both_paddings_unwrap() {
        let key = rsa(1024);
        let content_key = [7; 32];
        for (padding, ours) in [(Padding::PKCS1_OAEP, OAEP), (Padding::PKCS1, RsaPadding::Pkcs1)] {
            let wrapped = wrap(&key, padding, &content_key);
            let work = Work::RsaUnwrap { padding: ours, wrapped, expected_len: 32 };
            assert_eq!(&*run(&key, work).unwrap(), &content_key);
        }
    }

    #[test]
    fn a_failed_unwrap_gives_a_random_key_and_never_an_error() {
        let key = rsa(1024);
        let good = wrap(&key, Padding::PKCS1_OAEP, &[7; 32]);
        let short = wrap(&key, Padding::PKCS1_OAEP, &[7; 16]);
        let long = wrap(&key, Padding::PKCS1, &[7; 33]);
        let mut flipped = good.clone();
        flipped[40] ^= 1;
        let cases: [(RsaPadding, Vec<u8>); 8] = [
            (OAEP, flipped),
            (OAEP, short),
            (RsaPadding::Pkcs1, long),
            (RsaPadding::Pkcs1, good.clone()),
            (OAEP, good[1..].to_vec()),
            (OAEP, Vec::new()),
            (OAEP, vec![0xff; 128]),
            (OAEP, vec![0; 128]),
        ];
        for (padding, wrapped) in cases {
            let work = Work::RsaUnwrap { padding, wrapped, expected_len: 32 };
            let first = run(&key, work.clone()).unwrap();
            let second = run(&key, work).unwrap();
            assert_eq!(first.len(), 32);
            assert_ne!(first, second, "a random key each time");
            assert_ne!(&*first, &[7; 32]);
        }
    }

    #[test]
    fn a_point_off_the_curve_gives_random_bytes() {
        let key = ec(Curve::P256);
        let mut point = Curve::point(ec(Curve::P256).public()).unwrap();
        point[64] ^= 1;
        let first = run(&key, Work::EcdhDerive { peer: point.clone() }).unwrap();
        let second = run(&key, Work::EcdhDerive { peer: point }).unwrap();
        assert_eq!(first.len(), 32);
        assert_ne!(first, second);
        let other_curve = Curve::point(ec(Curve::P384).public()).unwrap();
        assert_eq!(run(&key, Work::EcdhDerive { peer: other_curve }).unwrap().len(), 32);
        assert_eq!(run(&key, Work::EcdhDerive { peer: vec![0] }).unwrap().len(), 32);
    }

    #[test]
    fn a_key_is_not_asked_for_what_it_cannot_do() {
        let hash = Digest::Sha256.hash(b"content");
        let unwrap = Work::RsaUnwrap { padding: OAEP, wrapped: vec![0; 128], expected_len: 32 };
        for (key, work) in [
            (ec(Curve::P256), unwrap),
            (ec(Curve::P256), Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash }),
            (rsa(1024), Work::EcdsaSign { hash }),
            (rsa(1024), Work::EcdhDerive { peer: vec![4; 65] }),
        ] {
            assert!(matches!(run(&key, work), Err(DeviceError::WrongKey { .. })));
        }
    }

    #[test]
    fn keys_outside_the_profile_are_refused() {
        let small = PKey::from_rsa(Rsa::generate(512).unwrap()).unwrap();
        assert_eq!(PrivateKey::clear(small).unwrap_err().to_string(), "unsupported private key: RSA with 512 bits");
        let ed25519 = PKey::generate_ed25519().unwrap();
        assert!(matches!(PrivateKey::clear(ed25519), Err(DeviceError::UnsupportedKey { .. })));
    }

    #[test]
    fn a_device_takes_what_it_has_room_for_and_drops_what_is_too_late() {
        let key = ec(Curve::P256);
        let hash = Digest::Sha256.hash(b"content");
        let late = Instant::now() - Duration::from_secs(1);
        let mut jobs: Vec<Job> = (0..JOBS_WAITING_MAX as u64 + 3)
            .map(|id| Job { id, key: key.clone(), work: Work::EcdsaSign { hash }, deadline: Some(late) })
            .collect();
        let mut device = CpuDevice::new("cpu");
        assert_eq!(device.submit(&mut jobs).unwrap(), JOBS_WAITING_MAX);
        assert_eq!(jobs.first().map(|job| job.id), Some(JOBS_WAITING_MAX as u64));
        let mut done = Vec::new();
        device.poll(&mut done).unwrap();
        assert!(done.iter().all(|finished| finished.result == Err(DeviceError::Deadline)));
        let meters = device.meters();
        assert_eq!(meters.entries()[0].failures, JOBS_WAITING_MAX as u64);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let key = ec(Curve::P256);
        let shown = format!("{key:?} {:?}", Output::new(vec![1, 2, 3]));
        assert!(shown.starts_with("PrivateKey(P-256, 256 bits, ") && shown.ends_with("Output(3 bytes)"));
    }
}
