//! What sealing and opening cost beyond the cryptographic primitives themselves.
//!
//! `cargo bench -p bulla-seal` prints one line for each quality: the time of the whole operation
//! without its private-key operation (which a device does elsewhere), the primitives that it cannot do
//! without, measured in the same run, and the difference. Each figure is the median of many single runs, because the
//! machine has other work to do.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bulla_device::{CpuDevice, Device, Digest, Job, Output, Random, SystemRandom};
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::{ContentCipher, KeyReuse};
use bulla_seal::ring::Ring;
use bulla_seal::{Content, Opener, Packing, Policy, Sealer, Step};
use bytes::Bytes;
use common::*;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;

const PAYLOAD_BYTES: usize = 2048;

fn main() {
    let world = World::new();
    println!("{PAYLOAD_BYTES} bytes of payload, microseconds, private-key operations left out");
    println!("{:<38} {:>9} {:>11} {:>9}", "", "measured", "primitives", "beyond");
    for spec in [KeySpec::Rsa(2048), KeySpec::Ec(bulla_seal::certificate::Curve::P256)] {
        let alice = world.person(&format!("alice {spec}"), spec);
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[]);
        let primitives = Primitives::new(&alice);
        for (name, sign, encrypt, reuse) in [
            ("integrity", Some(Digest::Sha256), None, KeyReuse::Never),
            ("privacy", Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), KeyReuse::Never),
            ("confidentiality", None, Some(ContentCipher::Aes256Gcm), KeyReuse::Never),
            ("confidentiality, reused key", None, Some(ContentCipher::Aes256Gcm), KeyReuse::Unlimited),
        ] {
            let to: &[&Person] = if encrypt.is_some() { &[&alice] } else { &[] };
            let policy = Arc::new(Policy { key_reuse: reuse, ..policy_of(sign, encrypt, to) });
            let (seal, open) = measure(&policy, &ring);
            let (seal_floor, open_floor) = primitives.of(&policy);
            line(&format!("{spec} {name}: seal"), seal, seal_floor);
            line(&format!("{spec} {name}: open"), open, open_floor);
        }
    }
}

fn line(name: &str, measured: Duration, primitives: Duration) {
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    println!(
        "{name:<38} {:>9.2} {:>11.2} {:>9.2}",
        micros(measured),
        micros(primitives),
        micros(measured) - micros(primitives)
    );
}

/// Seal and open, without the time that a device spends.
fn measure(policy: &Arc<Policy>, ring: &Arc<Ring>) -> (Duration, Duration) {
    let count = if policy.sign.is_some() { 1000 } else { 10_000 };
    let mut sealer = Sealer::new(Arc::clone(policy), Arc::clone(ring), None, now()).unwrap();
    let opener = Opener::new();
    let mut device = CpuDevice::new("cpu");
    let content = Content { packing: Packing::Data, content_type: None, bytes: Bytes::from(vec![7; PAYLOAD_BYTES]) };
    let (bound, expect) = (bound(), expect());
    let (mut seals, mut opens) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let content = content.clone();
        let start = Instant::now();
        let step = sealer.seal(content, &bound, now(), &mut SystemRandom).unwrap();
        let mut spent = start.elapsed();
        let sealed = match step {
            Step::Done(sealed) => sealed,
            Step::Device(job, go_on) => {
                let result = run(&mut device, job);
                let start = Instant::now();
                let done = go_on(Ok(result)).unwrap().done().unwrap();
                spent += start.elapsed();
                done
            }
        };
        seals.push(spent);
        let expect = expect.clone();
        let start = Instant::now();
        let step = opener.open(policy, ring, sealed.der, expect, now(), now()).unwrap();
        let mut spent = start.elapsed();
        let opened = match step {
            Step::Done(opened) => opened,
            Step::Device(job, go_on) => {
                let result = run(&mut device, job);
                let start = Instant::now();
                let done = go_on(Ok(result)).unwrap().done().unwrap();
                spent += start.elapsed();
                done
            }
        };
        black_box(opened);
        opens.push(spent);
    }
    (median(seals), median(opens))
}

fn run(device: &mut CpuDevice, job: Job) -> Output {
    device.submit(&mut vec![job]).unwrap();
    let mut done = Vec::new();
    device.poll(&mut done).unwrap();
    done.remove(0).result.unwrap()
}

/// Each primitive alone, with everything that can be set up once set up beforehand.
struct Primitives {
    digest: Duration,
    attributes_digest: Duration,
    verify: Duration,
    wrap: Duration,
    gcm_seal: Duration,
    gcm_open: Duration,
    random: Duration,
    new_key: Duration,
}

impl Primitives {
    fn new(person: &Person) -> Primitives {
        let payload = vec![7_u8; PAYLOAD_BYTES];
        let attributes = vec![7_u8; 450];
        let public = person.certificate.public_key();
        let private = openssl::pkey::PKey::private_key_from_pem(person.key.as_bytes()).unwrap();
        let is_rsa = public.id() == openssl::pkey::Id::RSA;
        let hash = Digest::Sha256.hash(&payload);

        let mut signer = PkeyCtx::new(&private).unwrap();
        signer.sign_init().unwrap();
        let mut verifier = PkeyCtx::new(public).unwrap();
        verifier.verify_init().unwrap();
        if is_rsa {
            signer.set_rsa_padding(Padding::PKCS1).unwrap();
            signer.set_signature_md(Digest::Sha256.md()).unwrap();
            verifier.set_rsa_padding(Padding::PKCS1).unwrap();
            verifier.set_signature_md(Digest::Sha256.md()).unwrap();
        }
        let mut signature = Vec::new();
        signer.sign_to_vec(&hash, &mut signature).unwrap();

        let wrap = if is_rsa {
            let mut wrapper = PkeyCtx::new(public).unwrap();
            wrapper.encrypt_init().unwrap();
            wrapper.set_rsa_padding(Padding::PKCS1_OAEP).unwrap();
            wrapper.set_rsa_oaep_md(Digest::Sha256.md()).unwrap();
            wrapper.set_rsa_mgf1_md(Digest::Sha256.md()).unwrap();
            let mut out = vec![0; public.size()];
            typical(1000, || {
                wrapper.encrypt(&[7; 32], Some(&mut out)).unwrap();
            })
        } else {
            let group = openssl::ec::EcGroup::from_curve_name(openssl::nid::Nid::X9_62_PRIME256V1).unwrap();
            let peer = public.ec_key().unwrap().public_key().to_owned(&group).unwrap();
            typical(1000, || {
                let ephemeral = openssl::ec::EcKey::generate(&group).unwrap();
                black_box(bulla_device::Curve::P256.agree(&ephemeral, &peer).unwrap());
            })
        };

        let key = [7; 32];
        let mut seal = CipherCtx::new().unwrap();
        seal.encrypt_init(Some(Cipher::aes_256_gcm()), Some(&key), None).unwrap();
        let mut open = CipherCtx::new().unwrap();
        open.decrypt_init(Some(Cipher::aes_256_gcm()), Some(&key), None).unwrap();
        let mut ciphertext = vec![0; PAYLOAD_BYTES];
        let mut tag = [0; 16];
        let mut plaintext = vec![0; PAYLOAD_BYTES];
        Primitives {
            digest: typical(10_000, || {
                black_box(Digest::Sha256.hash(&payload));
            }),
            attributes_digest: typical(10_000, || {
                black_box(Digest::Sha256.hash(&attributes));
            }),
            verify: typical(1000, || assert!(verifier.verify(&hash, &signature).unwrap())),
            wrap,
            gcm_seal: typical(10_000, || {
                seal.encrypt_init(None, None, Some(&[1; 12])).unwrap();
                seal.cipher_update(&attributes, None).unwrap();
                seal.cipher_update(&payload, Some(&mut ciphertext)).unwrap();
                seal.cipher_final(&mut []).unwrap();
                seal.tag(&mut tag).unwrap();
            }),
            gcm_open: typical(10_000, || {
                open.decrypt_init(None, None, Some(&[1; 12])).unwrap();
                open.set_tag(&tag).unwrap();
                open.cipher_update(&attributes, None).unwrap();
                open.cipher_update(&ciphertext, Some(&mut plaintext)).unwrap();
                open.cipher_final(&mut []).unwrap();
            }),
            random: typical(10_000, || SystemRandom.fill(&mut [0; 8]).unwrap()),
            new_key: typical(10_000, || {
                let mut context = CipherCtx::new().unwrap();
                context.encrypt_init(Some(Cipher::aes_256_gcm()), Some(&key), None).unwrap();
            }),
        }
    }

    /// What one seal and one open cannot do without.
    fn of(&self, policy: &Policy) -> (Duration, Duration) {
        let (mut seal, mut open) = (Duration::ZERO, Duration::ZERO);
        if policy.sign.is_some() {
            seal += self.digest + self.attributes_digest;
            open += self.digest + self.attributes_digest + self.verify;
        }
        if policy.encrypt.is_some() {
            seal += self.gcm_seal + self.random;
            open += self.gcm_open;
            if policy.key_reuse == KeyReuse::Never {
                seal += self.wrap + self.random + self.new_key;
                open += self.new_key;
            }
        }
        (seal, open)
    }
}

fn typical(count: usize, mut once: impl FnMut()) -> Duration {
    let mut sample = || {
        let start = Instant::now();
        once();
        start.elapsed()
    };
    median((0..count).map(|_| sample()).collect())
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}
