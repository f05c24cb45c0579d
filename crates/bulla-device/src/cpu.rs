//! The processor as a device: jobs run on the thread that polls.

use std::collections::VecDeque;
use std::sync::Arc;

use openssl::ec::{EcKey, EcPointRef};
use openssl::error::ErrorStack;
use openssl::pkey::{PKeyRef, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use zeroize::Zeroizing;

use crate::accelerator::{Stage, Tamper, Tampering};
use crate::agreement;
use crate::device::{Device, DeviceError, Kind};
use crate::digest::Digest;
use crate::key::{Curve, KeyKind, PrivateKey, PublicKey};
use crate::ml_dsa;
use crate::ml_kem::{self, ML_KEM_SECRET_BYTES};
use crate::padding;
use crate::prepared::{Purpose, set_rsa_scheme};
use crate::random::random_bytes;
use crate::work::{Finished, Job, Output, RsaPadding, RsaScheme, Work};

/// Jobs that may wait in one device; beyond, [`Device::submit`] takes no more.
pub const JOBS_WAITING_MAX: usize = 1024;

/// OpenSSL on the calling thread. Each private result is checked with the public key before it
/// leaves: a single faulty RSA result computed with the primes gives the key away. A shared secret is
/// computed a second way.
pub struct CpuDevice {
    name: String,
    tamper: Option<Arc<dyn Tamper>>,
    waiting: VecDeque<Job>,
}

impl CpuDevice {
    /// A device of that name; every thread has its own.
    pub fn new(name: impl Into<String>) -> CpuDevice {
        CpuDevice { name: name.into(), tamper: None, waiting: VecDeque::new() }
    }

    /// The same device with something that breaks its results, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn tampered(self, tamper: Arc<dyn Tamper>) -> CpuDevice {
        CpuDevice { tamper: Some(tamper), ..self }
    }

    fn touch(&self, stage: Stage, bytes: &mut [u8]) {
        Tampering(self.tamper.as_ref()).touch(stage, 0, bytes);
    }

    fn fault(&self) -> DeviceError {
        DeviceError::Fault { device: self.name.clone() }
    }

    /// Computes one job.
    pub(crate) fn compute(&self, job: &Job) -> Result<Output, DeviceError> {
        job.check_key()?;
        match (&*job.work, job.key.private()) {
            (Work::RsaVerify { scheme, digest, hash, signature }, _) => {
                rsa_verify(job.key.public(), *scheme, *digest, hash, signature)
            }
            (Work::EcdsaVerify { hash, signature }, _) => ecdsa_verify(job.key.public(), hash, signature),
            (Work::RsaWrap { padding, content_key }, _) => rsa_wrap(job.key.public(), *padding, content_key),
            (Work::EcdhEphemeral, _) => self.ecdh_ephemeral(job.key.public()),
            (Work::RsaSign { scheme, digest, hash }, Some(key)) => self.rsa_sign(key, *scheme, *digest, hash),
            (Work::RsaPrivate { block }, Some(key)) => self.rsa_private(key, block),
            (Work::EcdsaSign { hash }, Some(key)) => self.ecdsa_sign(key, hash),
            (Work::RsaUnwrap { padding, wrapped, expected_len }, Some(key)) => {
                self.rsa_unwrap(key, *padding, wrapped, *expected_len)
            }
            (Work::EcdhDerive { peer }, Some(key)) => self.ecdh_derive(key, peer),
            (Work::MlDsaVerify { message, signature }, _) => ml_dsa_verify(job.key.public(), message, signature),
            (Work::MlDsaSign { message }, Some(key)) => self.ml_dsa_sign(key, message),
            (Work::MlKemEncapsulate, _) => ml_kem_encapsulate(job.key.public()),
            (Work::MlKemDecapsulate { ciphertext }, Some(key)) => ml_kem_decapsulate(key, ciphertext),
            (_, None) => Err(DeviceError::WrongKey { why: "a private key is needed, this is a public one" }),
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
        let mut signer = PkeyCtx::new(private)?;
        signer.sign_init()?;
        set_rsa_scheme(&mut signer, scheme, digest)?;
        let mut signature = Vec::with_capacity(private.size());
        signer.sign_to_vec(hash, &mut signature)?;
        self.touch(Stage::Signature, &mut signature);
        let mut verifier = PkeyCtx::new(key.public())?;
        verifier.verify_init()?;
        set_rsa_scheme(&mut verifier, scheme, digest)?;
        self.checked(verified(verifier.verify(hash, &signature)), signature)
    }

    fn rsa_private(&self, key: &PrivateKey, block: &[u8]) -> Result<Output, DeviceError> {
        let rsa = key.rsa().ok_or(IN_ANOTHER_DEVICE)?;
        let mut result = vec![0; rsa.size() as usize];
        rsa.private_encrypt(block, &mut result, Padding::NONE)?;
        self.touch(Stage::RsaPrivate, &mut result);
        let mut again = vec![0; result.len()];
        // A wrong one may be too large for the modulus, with which the library does not begin.
        let good = rsa.public_decrypt(&result, &mut again, Padding::NONE).is_ok() && again == block;
        self.checked(good, result)
    }

    fn ecdsa_sign(&self, key: &PrivateKey, hash: &[u8]) -> Result<Output, DeviceError> {
        let private = clear(key)?;
        let mut signer = PkeyCtx::new(private)?;
        signer.sign_init()?;
        let mut signature = Vec::with_capacity(private.size());
        signer.sign_to_vec(hash, &mut signature)?;
        self.touch(Stage::Signature, &mut signature);
        let mut verifier = PkeyCtx::new(key.public())?;
        verifier.verify_init()?;
        self.checked(verified(verifier.verify(hash, &signature)), signature)
    }

    fn ml_dsa_sign(&self, key: &PrivateKey, message: &[u8]) -> Result<Output, DeviceError> {
        let mut signature = ml_dsa::sign(clear(key)?, message)?;
        self.touch(Stage::Signature, &mut signature);
        self.checked(ml_dsa::verify(key.public(), message, &signature)?, signature)
    }

    /// The raw private operation, its check, and only then the padding. After the check there is no
    /// branch on the padding's outcome: the key for a failed unwrap stands ready and is picked byte by byte.
    fn rsa_unwrap(
        &self,
        key: &PrivateKey,
        padding: RsaPadding,
        wrapped: &[u8],
        expected_len: usize,
    ) -> Result<Output, DeviceError> {
        let rsa = key.rsa().ok_or(IN_ANOTHER_DEVICE)?;
        let modulus_len = rsa.size() as usize;
        let mut rejected = key.rejected(padding, wrapped, expected_len)?;
        let mut raw = Zeroizing::new(vec![0; modulus_len]);
        // Public facts about the wrapped key; anyone can see them, so leaving early tells nothing.
        if wrapped.len() != modulus_len || rsa.private_decrypt(wrapped, &mut raw, Padding::NONE).is_err() {
            drop(ErrorStack::get());
            return Ok(Output::new(std::mem::take(&mut *rejected)));
        }
        self.touch(Stage::RsaPrivate, &mut raw);
        let mut again = vec![0; modulus_len];
        if rsa.public_encrypt(&raw, &mut again, Padding::NONE).is_err() || again != wrapped {
            return Err(self.fault());
        }
        Ok(padding::content_key(&raw, padding, rejected))
    }

    /// The X coordinate that both sides share. The peer's point is attacker's text: one that is not on the curve
    /// gives random bytes, which no key wrap accepts.
    fn ecdh_derive(&self, key: &PrivateKey, peer: &[u8]) -> Result<Output, DeviceError> {
        let (KeyKind::Ec(curve), Some(private)) = (key.kind(), key.ec()) else {
            return Err(IN_ANOTHER_DEVICE);
        };
        let Ok(peer) = curve.read_point(private.group(), peer) else {
            drop(ErrorStack::get());
            return Ok(Output::new(std::mem::take(&mut *random_bytes(curve.coordinate_len())?)));
        };
        let public = Curve::point_of(private)?;
        let mut secret = self.agreed(curve, private, &public, &peer)?;
        Ok(Output::new(std::mem::take(&mut *secret)))
    }

    fn ecdh_ephemeral(&self, key: &PublicKey) -> Result<Output, DeviceError> {
        let (KeyKind::Ec(curve), Some(recipient)) = (key.kind(), key.ec()) else {
            return Err(NOT_AN_EC_KEY);
        };
        let ephemeral = EcKey::generate(recipient.group())?;
        let mut out = Curve::point_of(&ephemeral)?;
        self.touch(Stage::EcdhPoint, &mut out);
        // The check of the secret looks at X alone.
        if curve.read_point(recipient.group(), &out).is_err() {
            drop(ErrorStack::get());
            return Err(self.fault());
        }
        let secret = self.agreed(curve, &ephemeral, &out, recipient.public_key())?;
        out.extend_from_slice(&secret);
        Ok(Output::new(out))
    }

    fn agreed(
        &self,
        curve: Curve,
        private: &EcKey<Private>,
        public: &[u8],
        peer: &EcPointRef,
    ) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        let tampering = Tampering(self.tamper.as_ref());
        agreement::agree(curve, private, public, peer, tampering)?.ok_or_else(|| self.fault())
    }

    fn checked(&self, good: bool, signature: Vec<u8>) -> Result<Output, DeviceError> {
        let signature = Output::new(signature);
        if good { Ok(signature) } else { Err(self.fault()) }
    }
}

impl Device for CpuDevice {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        let room = JOBS_WAITING_MAX.saturating_sub(self.waiting.len()).min(jobs.len());
        self.waiting.extend(jobs.drain(..room));
        Ok(room)
    }

    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        while let Some(job) = self.waiting.pop_front() {
            done.push(Finished::new(job.id, self.compute(&job)));
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Cpu
    }
}

const NOT_AN_ML_KEM_KEY: DeviceError = DeviceError::WrongKey { why: "an encapsulated secret needs an ML-KEM key" };
const NOT_AN_EC_KEY: DeviceError = DeviceError::WrongKey { why: "a key agreement needs an EC key" };
const IN_ANOTHER_DEVICE: DeviceError = DeviceError::WrongKey { why: "the key is in another device" };

fn clear(key: &PrivateKey) -> Result<&PKeyRef<openssl::pkey::Private>, DeviceError> {
    key.exportable().ok_or(IN_ANOTHER_DEVICE)
}

pub(crate) fn rsa_verify(
    key: &PublicKey,
    scheme: RsaScheme,
    digest: Digest,
    hash: &[u8],
    signature: &[u8],
) -> Result<Output, DeviceError> {
    // RFC 8017, 8.1.2 and 8.2.2, step 1. The library takes a PSS signature without the zero in front that one in 256
    // has, and a PKCS#1 v1.5 signature over a hash that is too short for its digest.
    if signature.len() != key.key().size() || hash.len() != digest.hash_len() {
        return Err(DeviceError::BadSignature);
    }
    let purpose = Purpose::RsaVerify(scheme, digest);
    verdict(key.prepared().with(key.key(), purpose, |context| verified(context.verify(hash, signature)))?)
}

pub(crate) fn ecdsa_verify(key: &PublicKey, hash: &[u8], signature: &[u8]) -> Result<Output, DeviceError> {
    let verify = |context: &mut PkeyCtx<_>| verified(context.verify(hash, signature));
    verdict(key.prepared().with(key.key(), Purpose::EcdsaVerify, verify)?)
}

pub(crate) fn ml_dsa_verify(key: &PublicKey, message: &[u8], signature: &[u8]) -> Result<Output, DeviceError> {
    verdict(ml_dsa::verify(key.key(), message, signature)?)
}

pub(crate) fn ml_kem_encapsulate(key: &PublicKey) -> Result<Output, DeviceError> {
    let KeyKind::MlKem(set) = key.kind() else { return Err(NOT_AN_ML_KEM_KEY) };
    Ok(Output::new(ml_kem::encapsulate(key.key(), set)?))
}

/// The ciphertext is attacker's text. There is no public check of the result: the operation encapsulates again itself
/// and compares (FIPS 203, algorithm 18).
fn ml_kem_decapsulate(key: &PrivateKey, ciphertext: &[u8]) -> Result<Output, DeviceError> {
    let KeyKind::MlKem(set) = key.kind() else { return Err(NOT_AN_ML_KEM_KEY) };
    if ciphertext.len() != set.ciphertext_len() {
        return Ok(Output::new(std::mem::take(&mut *random_bytes(ML_KEM_SECRET_BYTES)?)));
    }
    let mut secret = ml_kem::decapsulate(clear(key)?, ciphertext)?;
    Ok(Output::new(std::mem::take(&mut *secret)))
}

fn verdict(good: bool) -> Result<Output, DeviceError> {
    if good {
        return Ok(Output::none());
    }
    drop(ErrorStack::get());
    Err(DeviceError::BadSignature)
}

pub(crate) fn rsa_wrap(key: &PublicKey, padding: RsaPadding, content_key: &[u8]) -> Result<Output, DeviceError> {
    let mut wrapped = Vec::with_capacity(key.key().size());
    let wrap = |context: &mut PkeyCtx<_>| context.encrypt_to_vec(content_key, &mut wrapped);
    key.prepared().with(key.key(), Purpose::RsaWrap(padding), wrap)??;
    Ok(Output::new(wrapped))
}

/// A refused signature and an unreadable one are the same here; the library's words are dropped.
fn verified(answer: Result<bool, ErrorStack>) -> bool {
    matches!(answer, Ok(true))
}

#[cfg(test)]
mod tests {
    use openssl::ec::EcGroup;
    use openssl::encrypt::Encrypter;
    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;

    use super::*;
    use crate::ml_dsa::MlDsa;
    use crate::ml_kem::MlKem;

    fn rsa(bits: u32) -> PrivateKey {
        PrivateKey::clear(PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()).unwrap()
    }

    fn ec(curve: Curve) -> PrivateKey {
        let group = EcGroup::from_curve_name(curve.nid()).unwrap();
        PrivateKey::clear(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()).unwrap()
    }

    fn run(key: &PrivateKey, work: Work) -> Result<Output, DeviceError> {
        let mut device = CpuDevice::new("cpu");
        let mut jobs = vec![Job { id: 7, ..Job::new(key.clone(), work) }];
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
    fn a_failed_unwrap_gives_a_key_and_never_an_error() {
        let key = rsa(1024);
        let good = wrap(&key, Padding::PKCS1_OAEP, &[7; 32]);
        let short = wrap(&key, Padding::PKCS1_OAEP, &[7; 16]);
        let long = wrap(&key, Padding::PKCS1, &[7; 33]);
        let mut flipped = good.clone();
        flipped[40] ^= 1;
        let cases: [(RsaPadding, Vec<u8>); 12] = [
            (OAEP, flipped.clone()),
            (OAEP, short),
            (OAEP, good[1..].to_vec()),
            (OAEP, Vec::new()),
            (OAEP, vec![0xff; 128]),
            (OAEP, vec![0; 128]),
            (RsaPadding::Pkcs1, flipped),
            (RsaPadding::Pkcs1, long),
            (RsaPadding::Pkcs1, good.clone()),
            (RsaPadding::Pkcs1, good[1..].to_vec()),
            (RsaPadding::Pkcs1, vec![0xff; 128]),
            (RsaPadding::Pkcs1, vec![0; 128]),
        ];
        for (padding, wrapped) in cases {
            let work = Work::RsaUnwrap { padding, wrapped, expected_len: 32 };
            let first = run(&key, work.clone()).unwrap();
            let second = run(&key, work).unwrap();
            assert_eq!(first.len(), 32);
            assert_eq!(first == second, padding == RsaPadding::Pkcs1, "random with OAEP, derived with PKCS#1 v1.5");
            assert_ne!(&*first, &[7; 32]);
        }
    }

    #[test]
    fn a_key_that_failed_to_unwrap_is_replaced_by_one_of_private_key_ciphertext_and_length() {
        let (key, other) = (rsa(1024), rsa(1024));
        let long = wrap(&key, Padding::PKCS1, &[7; 33]);
        let mut flipped = long.clone();
        flipped[127] ^= 1;
        let of = |key: &PrivateKey, wrapped: &[u8], expected_len| {
            let padding = RsaPadding::Pkcs1;
            run(key, Work::RsaUnwrap { padding, wrapped: wrapped.to_vec(), expected_len }).unwrap()
        };
        let first = of(&key, &long, 32);
        let again = PrivateKey::clear(key.exportable().unwrap().to_owned()).unwrap();
        assert_eq!(of(&again, &long, 32), first, "the same key, loaded again");
        let without_primes = {
            let rsa = key.rsa().unwrap();
            let copy = |number: &openssl::bn::BigNumRef| number.to_owned().unwrap();
            let builder = openssl::rsa::RsaPrivateKeyBuilder::new(copy(rsa.n()), copy(rsa.e()), copy(rsa.d())).unwrap();
            PrivateKey::clear(PKey::from_rsa(builder.build()).unwrap()).unwrap()
        };
        assert_eq!(of(&without_primes, &long, 32), first);
        assert_ne!(of(&other, &long, 32), first, "another private key");
        assert_ne!(of(&key, &flipped, 32), first, "another ciphertext");
        let short = of(&key, &long, 16);
        assert_eq!(short.len(), 16);
        assert_ne!(*short, first[..16], "another length");
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
    fn a_device_takes_what_it_has_room_for() {
        let key = ec(Curve::P256);
        let hash = Digest::Sha256.hash(b"content");
        let mut jobs: Vec<Job> = (0..JOBS_WAITING_MAX as u64 + 3)
            .map(|id| Job { id, ..Job::new(key.clone(), Work::EcdsaSign { hash }) })
            .collect();
        let mut device = CpuDevice::new("cpu");
        assert_eq!(device.submit(&mut jobs).unwrap(), JOBS_WAITING_MAX);
        assert_eq!(jobs.first().map(|job| job.id), Some(JOBS_WAITING_MAX as u64));
    }

    #[test]
    fn public_operations_undo_private_ones_and_see_what_is_wrong() {
        for bits in [1024, 2048] {
            let key = rsa(bits);
            let hash = Digest::Sha256.hash(b"content");
            for scheme in [RsaScheme::Pkcs1, RsaScheme::Pss] {
                let signature = run(&key, Work::RsaSign { scheme, digest: Digest::Sha256, hash }).unwrap().to_vec();
                let verify = |hash, signature| Work::RsaVerify { scheme, digest: Digest::Sha256, hash, signature };
                assert_eq!(run(&key, verify(hash, signature.clone())).unwrap().len(), 0);
                let other = Digest::Sha256.hash(b"other content");
                assert_eq!(run(&key, verify(other, signature)), Err(DeviceError::BadSignature));
                assert_eq!(run(&key, verify(hash, vec![0; 3])), Err(DeviceError::BadSignature));
            }
            for padding in [OAEP, RsaPadding::Pkcs1] {
                let wrapped = run(&key, Work::RsaWrap { padding, content_key: Output::new(vec![7; 32]) }).unwrap();
                let unwrap = Work::RsaUnwrap { padding, wrapped: wrapped.to_vec(), expected_len: 32 };
                assert_eq!(&*run(&key, unwrap).unwrap(), &[7; 32]);
            }
        }
        for curve in Curve::ALL {
            let key = ec(*curve);
            let hash = Digest::Sha256.hash(b"content");
            let mut signature = run(&key, Work::EcdsaSign { hash }).unwrap().to_vec();
            let verify = |signature| Work::EcdsaVerify { hash, signature };
            assert_eq!(run(&key, verify(signature.clone())).unwrap().len(), 0);
            *signature.last_mut().unwrap() ^= 1;
            assert_eq!(run(&key, verify(signature)), Err(DeviceError::BadSignature));
            let out = run(&key, Work::EcdhEphemeral).unwrap();
            let (point, secret) = out.split_at(curve.point_len());
            assert_eq!(&*run(&key, Work::EcdhDerive { peer: point.to_vec() }).unwrap(), secret);
        }
    }

    #[test]
    fn a_pss_signature_without_the_zero_in_front_of_it_is_none() {
        let key = rsa(1024);
        let (scheme, digest) = (RsaScheme::Pss, Digest::Sha256);
        let signed = (0_u32..100_000).map(|number| {
            let hash = digest.hash(&number.to_be_bytes());
            (hash, run(&key, Work::RsaSign { scheme, digest, hash }).unwrap())
        });
        let (hash, signature) = signed.into_iter().find(|(_, signature)| signature[0] == 0).unwrap();
        let verify = |signature: &[u8]| Work::RsaVerify { scheme, digest, hash, signature: signature.to_vec() };
        assert!(run(&key, verify(&signature)).is_ok());
        assert_eq!(run(&key, verify(&signature[1..])), Err(DeviceError::BadSignature));
    }

    /// Breaks every result of one stage.
    struct Break<F>(Stage, F);

    impl<F: Fn(&mut [u8]) + Send + Sync> Tamper for Break<F> {
        fn touch(&self, stage: Stage, _: usize, bytes: &mut [u8]) {
            if stage == self.0 {
                (self.1)(bytes);
            }
        }
    }

    #[test]
    fn a_wrong_result_does_not_leave() {
        let (rsa_key, hash) = (rsa(1024), Digest::Sha256.hash(b"content"));
        let wrapped = wrap(&rsa_key, Padding::PKCS1_OAEP, &[7; 32]);
        let (scheme, digest) = (RsaScheme::Pss, Digest::Sha256);
        let mut cases = vec![
            (rsa_key.clone(), Work::RsaSign { scheme, digest, hash }, Stage::Signature),
            (rsa_key.clone(), Work::RsaPrivate { block: vec![1; 128] }, Stage::RsaPrivate),
            (rsa_key, Work::RsaUnwrap { padding: OAEP, wrapped, expected_len: 32 }, Stage::RsaPrivate),
        ];
        for curve in Curve::ALL {
            let (key, other) = (ec(*curve), ec(*curve));
            let derive = Work::EcdhDerive { peer: Curve::point(other.public()).unwrap() };
            cases.extend([
                (key.clone(), Work::EcdsaSign { hash }, Stage::Signature),
                (key.clone(), derive.clone(), Stage::EcdhShared),
                (key.clone(), derive, Stage::EcdhSum),
                (key.clone(), Work::EcdhEphemeral, Stage::EcdhPoint),
                (key.clone(), Work::EcdhEphemeral, Stage::EcdhShared),
                (key, Work::EcdhEphemeral, Stage::EcdhSum),
            ]);
        }
        let fault = Err(DeviceError::Fault { device: "cpu".to_owned() });
        let too_large = |bytes: &mut [u8]| bytes[0] = 0xff;
        for (key, work, stage) in cases.iter().take(3) {
            let device = CpuDevice::new("cpu").tampered(Arc::new(Break(*stage, too_large)));
            assert_eq!(device.compute(&Job::new(key.clone(), work.clone())), fault, "{stage:?} beyond the modulus");
        }
        for (key, work, stage) in cases {
            for at in [Some(0), Some(9), Some(20), None] {
                let bit = move |bytes: &mut [u8]| bytes[at.unwrap_or(bytes.len() - 1)] ^= 1;
                let device = CpuDevice::new("cpu").tampered(Arc::new(Break(stage, bit)));
                let result = device.compute(&Job::new(key.clone(), work.clone()));
                assert_eq!(result, fault, "{:?} {stage:?}, byte {at:?}", key.kind());
            }
        }
    }

    #[test]
    fn another_key_s_secret_does_not_leave() {
        for curve in Curve::ALL {
            let (key, wrong, peer) = (ec(*curve), ec(*curve), ec(*curve));
            // Both products of the wrong number: what a damaged copy of the key gives.
            let point = peer.ec().unwrap().public_key();
            let products = [point.to_owned(peer.ec().unwrap().group()).unwrap(), {
                let group = peer.ec().unwrap().group();
                let mut sum = openssl::ec::EcPoint::new(group).unwrap();
                let mut context = openssl::bn::BigNumContext::new().unwrap();
                sum.add(group, group.generator_opt().unwrap(), point, &mut context).unwrap();
                sum
            }]
            .map(|point| curve.agree(wrong.ec().unwrap(), &point).unwrap());
            struct Both([Zeroizing<Vec<u8>>; 2]);
            impl Tamper for Both {
                fn touch(&self, stage: Stage, _: usize, bytes: &mut [u8]) {
                    match stage {
                        Stage::EcdhShared => bytes.copy_from_slice(&self.0[0]),
                        Stage::EcdhSum => bytes.copy_from_slice(&self.0[1]),
                        _ => {}
                    }
                }
            }
            let device = CpuDevice::new("cpu").tampered(Arc::new(Both(products)));
            let derive = Work::EcdhDerive { peer: Curve::point(peer.public()).unwrap() };
            let result = device.compute(&Job::new(key, derive));
            assert_eq!(result, Err(DeviceError::Fault { device: "cpu".to_owned() }));
        }
    }

    #[test]
    fn points_whose_sum_with_the_generator_is_special_agree() {
        for curve in Curve::ALL {
            let key = ec(*curve);
            let group = key.ec().unwrap().group();
            let mut context = openssl::bn::BigNumContext::new().unwrap();
            let generator = group.generator_opt().unwrap();
            let mut opposite = generator.to_owned(group).unwrap();
            opposite.invert2(group, &mut context).unwrap();
            let own = Curve::point(key.public()).unwrap()[1..=curve.coordinate_len()].to_vec();
            for point in [generator, &*opposite] {
                let form = openssl::ec::PointConversionForm::UNCOMPRESSED;
                let peer = point.to_bytes(group, form, &mut context).unwrap();
                assert_eq!(*run(&key, Work::EcdhDerive { peer }).unwrap(), own);
            }
        }
    }

    #[test]
    fn ml_dsa_signs_messages_and_refuses_every_other() {
        for set in MlDsa::ALL.iter().copied() {
            let (key, other) =
                [set.generate().unwrap(), set.generate().unwrap()].map(|key| PrivateKey::clear(key).unwrap()).into();
            assert_eq!((key.kind(), key.bits()), (KeyKind::MlDsa(set), set.number()));
            let message = b"attributes".to_vec();
            let signature = run(&key, Work::MlDsaSign { message: message.clone() }).unwrap().to_vec();
            assert_eq!(signature.len(), set.signature_len());
            let verify = |key: &PrivateKey, message: &[u8], signature: &[u8]| {
                let work = Work::MlDsaVerify { message: message.to_vec(), signature: signature.to_vec() };
                CpuDevice::new("cpu").compute(&Job::new(key.public_key().clone(), work))
            };
            assert_eq!(verify(&key, &message, &signature), Ok(Output::none()));
            assert_eq!(verify(&other, &message, &signature), Err(DeviceError::BadSignature));
            assert_eq!(verify(&key, b"attribute", &signature), Err(DeviceError::BadSignature));
            assert_eq!(verify(&key, &message, &signature[1..]), Err(DeviceError::BadSignature));
            for at in [0, 100, signature.len() - 1] {
                let mut bent = signature.clone();
                bent[at] ^= 1;
                assert_eq!(verify(&key, &message, &bent), Err(DeviceError::BadSignature), "{at}");
            }
            let wrong = run(&key, Work::EcdsaSign { hash: Digest::Sha256.hash(b"x") });
            assert!(matches!(wrong, Err(DeviceError::WrongKey { .. })));
        }
    }

    #[test]
    fn ml_kem_gives_its_secret_to_the_owner_alone_and_another_for_a_changed_ciphertext() {
        for set in MlKem::ALL.iter().copied() {
            let (key, other) =
                [set.generate().unwrap(), set.generate().unwrap()].map(|key| PrivateKey::clear(key).unwrap()).into();
            assert_eq!((key.kind(), key.bits()), (KeyKind::MlKem(set), set.number()));
            let sent =
                CpuDevice::new("cpu").compute(&Job::new(key.public_key().clone(), Work::MlKemEncapsulate)).unwrap();
            let (ciphertext, secret) = sent.split_at(set.ciphertext_len());
            assert_eq!(secret.len(), ML_KEM_SECRET_BYTES);
            let open = |key: &PrivateKey, ciphertext: &[u8]| {
                run(key, Work::MlKemDecapsulate { ciphertext: ciphertext.to_vec() }).unwrap().to_vec()
            };
            assert_eq!(open(&key, ciphertext), secret);
            assert_ne!(open(&other, ciphertext), secret);
            let mut bent = ciphertext.to_vec();
            bent[7] ^= 1;
            let implicit = open(&key, &bent);
            assert_ne!(implicit, secret);
            assert_eq!(open(&key, &bent), implicit, "always the same");
            let short = open(&key, &ciphertext[1..]);
            assert_eq!(short.len(), ML_KEM_SECRET_BYTES);
            assert_ne!(open(&key, &ciphertext[1..]), short, "random");
        }
    }

    /// RFC 9935, section 8: a private key that has both forms is refused where they differ.
    #[test]
    fn a_seed_that_is_not_of_its_expanded_key_is_refused() {
        for key in [MlKem::MlKem768.generate().unwrap(), MlDsa::MlDsa65.generate().unwrap()] {
            let good = key.private_key_to_pkcs8().unwrap();
            assert!(PKey::private_key_from_pkcs8(&good).is_ok());
            // The seed stands in front, the expanded key behind it.
            for at in [40, good.len() - 8, good.len() / 2] {
                let mut bent = good.clone();
                bent[at] ^= 1;
                assert!(PKey::private_key_from_pkcs8(&bent).is_err(), "{at} of {}", good.len());
            }
            drop(ErrorStack::get());
        }
    }

    #[test]
    fn a_faulty_ml_dsa_signature_does_not_leave() {
        struct Bend;
        impl Tamper for Bend {
            fn touch(&self, stage: Stage, _: usize, bytes: &mut [u8]) {
                if matches!(stage, Stage::Signature) {
                    bytes[5] ^= 1;
                }
            }
        }
        let key = PrivateKey::clear(MlDsa::MlDsa44.generate().unwrap()).unwrap();
        let device = CpuDevice::new("cpu").tampered(Arc::new(Bend));
        let result = device.compute(&Job::new(key, Work::MlDsaSign { message: vec![1; 64] }));
        assert_eq!(result, Err(DeviceError::Fault { device: "cpu".to_owned() }));
    }

    #[test]
    fn nothing_secret_is_shown() {
        let key = ec(Curve::P256);
        let shown = format!("{key:?} {:?}", Output::new(vec![1, 2, 3]));
        assert!(shown.starts_with("PrivateKey(P-256, 256 bits, ") && shown.ends_with("Output(3 bytes)"));
    }
}
