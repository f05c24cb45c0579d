//! What sealing and opening cost beyond the cryptographic primitives themselves.
//!
//! `cargo bench -p bulla-seal` prints one line for each quality: the time of the whole operation
//! without its private-key operations (which devices do elsewhere; its public-key operations are done here, by
//! the processor as a device), the primitives that it cannot do
//! without, and the difference. Primitives are: the digests of the payload, of the signed attributes, of
//! the properties section and of the recipient infos; the content cipher with its key set-up; RSA-OAEP, or
//! an ephemeral key in its encoded form, the agreement, its derivation and the AES key wrap; verification. Both are
//! measured in turns, in one run: where the operation comes after a private-key operation, which leaves nothing of it
//! in the processor's caches, so do the primitives. Each figure is the median of many single runs, because the machine
//! has other work to do.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bulla_device::{CpuDevice, Device, Digest, Job, Output, Random, RsaScheme, SystemRandom, Work};
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::{ContentCipher, KeyReuse};
use bulla_seal::ring::Ring;
use bulla_seal::{
    Batch, Bound, Content, Continuation, Expect, OpenError, Opened, Opener, Packing, Policy, SealError, Sealed, Sealer,
    Step, Verified,
};
use bytes::Bytes;
use common::*;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;

const PAYLOAD_BYTES: usize = 2048;

fn main() {
    let (filter, rounds) = arguments();
    let world = World::new();
    println!("{PAYLOAD_BYTES} bytes of payload, microseconds, private-key operations left out");
    println!("{:<38} {:>9} {:>11} {:>9}", "", "measured", "primitives", "beyond");
    for spec in [KeySpec::Rsa(2048), KeySpec::Ec(bulla_seal::certificate::Curve::P256)] {
        let alice = world.person(&format!("alice {spec}"), spec);
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[]);
        let mut primitives = Primitives::new(&alice);
        for (name, sign, encrypt, reuse) in [
            ("integrity", Some(Digest::Sha256), None, KeyReuse::Never),
            ("privacy", Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), KeyReuse::Never),
            ("confidentiality", None, Some(ContentCipher::Aes256Gcm), KeyReuse::Never),
            ("confidentiality, reused key", None, Some(ContentCipher::Aes256Gcm), KeyReuse::Unlimited),
        ] {
            let name = format!("{spec} {name}");
            if !filter.is_empty() && name != filter {
                continue;
            }
            let to: &[&Person] = if encrypt.is_some() { &[&alice] } else { &[] };
            let policy = Arc::new(Policy { key_reuse: reuse, ..policy_of(sign, encrypt, to) });
            let count = rounds.unwrap_or(if policy.sign.is_some() { 1000 } else { 5000 });
            let [seal, seal_floor, open, open_floor] = measure(&policy, &ring, &mut primitives, count);
            line(&format!("{name}: seal"), seal, seal_floor);
            line(&format!("{name}: open"), open, open_floor);
        }
    }
    batches(&world, &filter, rounds.unwrap_or(200));
}

/// Messages of one batch: their signature is left out of sealing, and verified before opening, as for all but one.
fn batches(world: &World, filter: &str, rounds: usize) {
    println!(
        "\n{PAYLOAD_BYTES} bytes of payload, microseconds a message, {BATCH} under one signature, which is left out"
    );
    for spec in [KeySpec::Rsa(4096), KeySpec::Ec(bulla_seal::certificate::Curve::P256)] {
        let name = format!("{spec} integrity, a batch");
        if !filter.is_empty() && name != filter {
            continue;
        }
        let alice = world.person(&format!("batches {spec}"), spec);
        let ring = world.ring(&format!("batches-{spec}"), &[&alice], &[]);
        let policy = Arc::new(Policy { sign_batch: BATCH as u32, ..policy_of(Some(Digest::Sha256), None, &[]) });
        let each = Arc::new(Policy { sign_batch: 1, ..(*policy).clone() });
        let (mut seals, mut opens, mut lonely, mut plain) = (vec![], vec![], vec![], vec![]);
        for _ in 0..rounds {
            let (seal, ders) = seal_batch(&policy, &ring);
            seals.push(seal / BATCH as u32);
            opens.push(open_batch(&policy, &ring, ders));
            lonely.push(seal_alone(&policy, &ring));
            plain.push(seal_alone(&each, &ring));
        }
        let micros = |samples| median(samples).as_nanos() as f64 / 1000.0;
        println!("{:<38} {:>9.2}", format!("{name}: seal"), micros(seals));
        println!("{:<38} {:>9.2}", format!("{name}: open, root known"), micros(opens));
        println!("{:<38} {:>9.2}", format!("{spec} alone under SIGNBATCH({BATCH})"), micros(lonely));
        println!("{:<38} {:>9.2}", format!("{spec} alone under SIGNBATCH(1)"), micros(plain));
    }
}

const BATCH: usize = 64;

fn large() -> Content {
    Content { packing: Packing::Data, content_type: None, bytes: Bytes::from(vec![7; PAYLOAD_BYTES]) }
}

fn seal_batch(policy: &Arc<Policy>, ring: &Arc<Ring>) -> (Duration, Vec<Bytes>) {
    let mut sealer = sealer(policy, ring);
    let (contents, bound) = (vec![large(); BATCH], bound());
    let start = Instant::now();
    let (mut leaves, mut go_on) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    for content in contents {
        let Step::Leaf(leaf, then) = sealer.seal(content, &bound, now(), &mut SystemRandom).unwrap() else {
            panic!("it is signed")
        };
        leaves.push(*leaf);
        go_on.push(then);
    }
    let (batch, job) = Batch::of(leaves, &mut SystemRandom).unwrap().unwrap();
    let before = start.elapsed();
    let signature = run(&mut CpuDevice::new("cpu"), job);
    let start = Instant::now();
    let sealed = go_on.into_iter().zip(batch.proofs(&signature));
    let ders = sealed.map(|(go_on, proof)| go_on(Ok(proof)).unwrap().done().unwrap().der).collect();
    (before + start.elapsed(), ders)
}

fn open_batch(policy: &Arc<Policy>, ring: &Arc<Ring>, mut ders: Vec<Bytes>) -> Duration {
    let opener = Opener::new();
    open_with(&opener, policy, ring, ders.swap_remove(0)).unwrap();
    let expects = vec![expect(); ders.len()];
    let count = ders.len() as u32;
    let start = Instant::now();
    for (der, expect) in ders.into_iter().zip(expects) {
        black_box(opener.open(policy, ring, der, expect, now(), now()).unwrap().done().unwrap());
    }
    start.elapsed() / count
}

/// Sealing one, its signature left out.
fn seal_alone(policy: &Arc<Policy>, ring: &Arc<Ring>) -> Duration {
    let mut sealer = sealer(policy, ring);
    let (content, bound) = (large(), bound());
    let start = Instant::now();
    let step = sealer.seal(content, &bound, now(), &mut SystemRandom).unwrap();
    let Step::Device(job, go_on) = step.alone() else { panic!("it is signed") };
    let before = start.elapsed();
    let signature = run(&mut CpuDevice::new("cpu"), job);
    let start = Instant::now();
    black_box(go_on(Ok(signature)).unwrap().done().unwrap());
    before + start.elapsed()
}

/// What to measure, by its name, and how many times.
fn arguments() -> (String, Option<usize>) {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    (arguments.next().unwrap_or_default(), arguments.next().map(|count| count.parse().unwrap()))
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

/// Seal, its primitives, open, its primitives; without the time that a device spends.
fn measure(policy: &Arc<Policy>, ring: &Arc<Ring>, primitives: &mut Primitives, count: usize) -> [Duration; 4] {
    let mut sealer = Sealer::new(Arc::clone(policy), Arc::clone(ring), None, now()).unwrap();
    let opener = Opener::new();
    let mut device = CpuDevice::new("cpu");
    let content = Content { packing: Packing::Data, content_type: None, bytes: Bytes::from(vec![7; PAYLOAD_BYTES]) };
    let (bound, expect) = (bound(), expect());
    let mut samples: [Vec<Duration>; 4] = Default::default();
    // The device's work before each part, the same for both sides: what it leaves in the processor's
    // caches is then the same, too.
    let (mut before_seal, mut before_open) = (primitives.signature_work(), primitives.signature_work());
    let disturbed = policy.key_reuse == KeyReuse::Never;
    for _ in 0..count {
        let content = content.clone();
        primitives.disturb(disturbed, &mut device, &before_seal);
        let mut start = Instant::now();
        let mut step = measured_seal(&mut sealer, content, &bound);
        let mut spent = Duration::ZERO;
        let sealed = loop {
            match step {
                Step::Done(sealed) => break sealed,
                leaf @ Step::Leaf(..) => step = leaf.alone(),
                Step::Device(job, go_on) if job.work.needs_private_key() => {
                    spent += start.elapsed();
                    before_seal = Work::clone(&job.work);
                    let result = run(&mut device, job);
                    start = Instant::now();
                    step = measured_seal_rest(go_on, result);
                }
                Step::Device(job, go_on) => step = measured_seal_rest(go_on, measured_public(&mut device, job)),
            }
        };
        spent += start.elapsed();
        samples[0].push(spent);
        primitives.disturb(disturbed, &mut device, &before_seal);
        let start = Instant::now();
        primitives.primitive_seal(policy);
        samples[1].push(start.elapsed());

        let expect = expect.clone();
        primitives.disturb(disturbed, &mut device, &before_open);
        let mut start = Instant::now();
        let mut step = measured_open(&opener, policy, ring, sealed.der, expect);
        let mut spent = Duration::ZERO;
        let opened = loop {
            match step {
                Step::Done(opened) => break opened,
                leaf @ Step::Leaf(..) => step = leaf.alone(),
                Step::Device(job, go_on) if job.work.needs_private_key() => {
                    spent += start.elapsed();
                    before_open = Work::clone(&job.work);
                    let result = run(&mut device, job);
                    start = Instant::now();
                    step = measured_open_rest(go_on, result);
                }
                Step::Device(job, go_on) => step = measured_open_rest(go_on, measured_public(&mut device, job)),
            }
        };
        spent += start.elapsed();
        black_box(opened);
        samples[2].push(spent);
        primitives.disturb(disturbed, &mut device, &before_open);
        let start = Instant::now();
        primitives.primitive_open(policy);
        samples[3].push(start.elapsed());
    }
    samples.map(median)
}

// Functions of their own, so that a profiler can count in them alone, as with
// `valgrind --tool=callgrind --toggle-collect='seal::measured_*' BENCH 'p256 privacy' 20`.

#[inline(never)]
fn measured_seal(sealer: &mut Sealer, content: Content, bound: &Bound) -> Step<Sealed, SealError> {
    sealer.seal(content, bound, now(), &mut SystemRandom).unwrap()
}

#[inline(never)]
fn measured_seal_rest(go_on: Continuation<Sealed, SealError>, result: Output) -> Step<Sealed, SealError> {
    go_on(Ok(result)).unwrap()
}

#[inline(never)]
fn measured_open(
    opener: &Opener,
    policy: &Arc<Policy>,
    ring: &Arc<Ring>,
    der: Bytes,
    expect: Expect,
) -> Step<Verified<Opened>, OpenError> {
    opener.open(policy, ring, der, expect, now(), now()).unwrap()
}

#[inline(never)]
fn measured_open_rest(
    go_on: Continuation<Verified<Opened>, OpenError>,
    result: Output,
) -> Step<Verified<Opened>, OpenError> {
    go_on(Ok(result)).unwrap()
}

/// A public-key operation, which the processor does in turn.
#[inline(never)]
fn measured_public(device: &mut CpuDevice, job: Job) -> Output {
    run(device, job)
}

fn run(device: &mut CpuDevice, job: Job) -> Output {
    device.submit(&mut vec![job]).unwrap();
    let mut done = Vec::new();
    device.poll(&mut done).unwrap();
    done.remove(0).result.unwrap()
}

/// The primitives alone, with everything that can be set up once set up beforehand.
struct Primitives {
    key: bulla_device::PrivateKey,
    verifier: PkeyCtx<openssl::pkey::Public>,
    wrapper: Wrapper,
    sealing: CipherCtx,
    opening: CipherCtx,
    ciphers: Ciphers,
    hash: bulla_device::Hash,
    signature: Vec<u8>,
    payload: Vec<u8>,
    attributes: Vec<u8>,
    /// A letter: payload, certificate and signature, as privacy encrypts it.
    letter: Vec<u8>,
    ciphertext: Vec<u8>,
    tags: [[u8; 16]; 2],
}

/// Fetched once, as sealing does: looking one up by its name costs more than using it.
struct Ciphers {
    gcm: Cipher,
    block: Cipher,
}

enum Wrapper {
    Rsa(PkeyCtx<openssl::pkey::Public>),
    Ec(openssl::ec::EcGroup, openssl::ec::EcPoint),
}

const KEY: [u8; 32] = [7; 32];
const LETTER_BYTES: usize = PAYLOAD_BYTES + 1600;
const ATTRIBUTES_BYTES: usize = 450;
const RSA_RECIPIENT_BYTES: usize = 390;
const EC_RECIPIENT_BYTES: usize = 250;

impl Primitives {
    fn new(person: &Person) -> Primitives {
        let public = person.certificate.public_key();
        let private = openssl::pkey::PKey::private_key_from_pem(person.key.as_bytes()).unwrap();
        let is_rsa = public.id() == openssl::pkey::Id::RSA;
        let payload = vec![7; PAYLOAD_BYTES];
        let hash = Digest::Sha256.hash(&payload);
        let mut signer = PkeyCtx::new(&private).unwrap();
        signer.sign_init().unwrap();
        let mut verifier = PkeyCtx::new(public).unwrap();
        verifier.verify_init().unwrap();
        let wrapper = if is_rsa {
            signer.set_rsa_padding(Padding::PKCS1).unwrap();
            signer.set_signature_md(Digest::Sha256.md()).unwrap();
            verifier.set_rsa_padding(Padding::PKCS1).unwrap();
            verifier.set_signature_md(Digest::Sha256.md()).unwrap();
            let mut wrapper = PkeyCtx::new(public).unwrap();
            wrapper.encrypt_init().unwrap();
            wrapper.set_rsa_padding(Padding::PKCS1_OAEP).unwrap();
            wrapper.set_rsa_oaep_md(Digest::Sha256.md()).unwrap();
            wrapper.set_rsa_mgf1_md(Digest::Sha256.md()).unwrap();
            Wrapper::Rsa(wrapper)
        } else {
            let group = openssl::ec::EcGroup::from_curve_name(openssl::nid::Nid::X9_62_PRIME256V1).unwrap();
            let peer = public.ec_key().unwrap().public_key().to_owned(&group).unwrap();
            Wrapper::Ec(group, peer)
        };
        let mut signature = Vec::new();
        signer.sign_to_vec(&hash, &mut signature).unwrap();
        let mut sealing = CipherCtx::new().unwrap();
        sealing.encrypt_init(Some(Cipher::aes_256_gcm()), Some(&KEY), None).unwrap();
        let mut opening = CipherCtx::new().unwrap();
        opening.decrypt_init(Some(Cipher::aes_256_gcm()), Some(&KEY), None).unwrap();
        let mut primitives = Primitives {
            key: bulla_device::PrivateKey::clear(private).unwrap(),
            verifier,
            wrapper,
            sealing,
            opening,
            ciphers: Ciphers {
                gcm: Cipher::fetch(None, "AES-256-GCM", None).unwrap(),
                block: Cipher::fetch(None, "AES-256-ECB", None).unwrap(),
            },
            hash,
            signature,
            payload,
            attributes: vec![7; ATTRIBUTES_BYTES],
            letter: vec![7; LETTER_BYTES],
            ciphertext: vec![0; LETTER_BYTES],
            tags: [[0; 16]; 2],
        };
        primitives.wrap();
        for (at, len) in [PAYLOAD_BYTES, LETTER_BYTES].into_iter().enumerate() {
            let tag = primitives.gcm_seal(len, None);
            primitives.tags[at] = tag;
        }
        primitives
    }

    /// A private-key operation, as a device does one between the parts of an operation.
    fn disturb(&self, disturbed: bool, device: &mut CpuDevice, work: &Work) {
        if disturbed {
            black_box(run(device, Job::new(self.key.clone(), work.clone())));
        }
    }

    fn signature_work(&self) -> Work {
        let hash = self.hash;
        match self.wrapper {
            Wrapper::Rsa(_) => Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash },
            Wrapper::Ec(..) => Work::EcdsaSign { hash },
        }
    }

    /// What one seal cannot do without.
    #[inline(never)]
    fn primitive_seal(&mut self, policy: &Policy) {
        let len = if policy.sign.is_some() { LETTER_BYTES } else { PAYLOAD_BYTES };
        if policy.sign.is_some() {
            black_box(Digest::Sha256.hash(&self.payload));
            black_box(Digest::Sha256.hash(&self.attributes));
        }
        self.digest_sections();
        if policy.encrypt.is_some() {
            SystemRandom.fill(&mut [0; 8]).unwrap();
            if policy.key_reuse == KeyReuse::Never {
                SystemRandom.fill(&mut [0; 32]).unwrap();
                self.wrap();
                self.digest_recipients();
                let mut fresh = CipherCtx::new().unwrap();
                fresh.encrypt_init(Some(&self.ciphers.gcm), Some(&KEY), None).unwrap();
                self.gcm_seal(len, Some(fresh));
            } else {
                self.gcm_seal(len, None);
            }
        }
    }

    /// What one open cannot do without.
    #[inline(never)]
    fn primitive_open(&mut self, policy: &Policy) {
        let len = if policy.sign.is_some() { LETTER_BYTES } else { PAYLOAD_BYTES };
        self.digest_sections();
        if policy.encrypt.is_some() {
            self.digest_recipients();
            if policy.key_reuse == KeyReuse::Never {
                self.unwrap();
            }
            let fresh = (policy.key_reuse == KeyReuse::Never).then(|| {
                let mut fresh = CipherCtx::new().unwrap();
                fresh.decrypt_init(Some(&self.ciphers.gcm), Some(&KEY), None).unwrap();
                fresh
            });
            self.gcm_open(len, fresh);
        }
        if policy.sign.is_some() {
            black_box(Digest::Sha256.hash(&self.payload));
            black_box(Digest::Sha256.hash(&self.attributes));
            assert!(self.verifier.verify(&self.hash, &self.signature).unwrap());
        }
    }

    /// The profile binds a message to its properties section by SHA-256 …
    fn digest_sections(&self) {
        black_box(Digest::Sha256.hash(&bound().properties));
    }

    /// … and to its set of recipients.
    fn digest_recipients(&self) {
        let bytes = match self.wrapper {
            Wrapper::Rsa(_) => RSA_RECIPIENT_BYTES,
            Wrapper::Ec(..) => EC_RECIPIENT_BYTES,
        };
        black_box(Digest::Sha256.hash(&self.letter[..bytes]));
    }

    fn wrap(&mut self) {
        match &mut self.wrapper {
            Wrapper::Rsa(wrapper) => {
                let mut out = vec![0; 256];
                wrapper.encrypt(&KEY, Some(&mut out)).unwrap();
                black_box(out);
            }
            Wrapper::Ec(group, peer) => {
                let ephemeral = openssl::ec::EcKey::generate(group).unwrap();
                // What travels is the affine point, and that costs an inversion in the field.
                black_box(bulla_device::Curve::point_of(&ephemeral).unwrap());
                black_box(bulla_device::Curve::P256.agree(&ephemeral, peer).unwrap());
                black_box(Digest::Sha256.hash(&self.attributes[..64]));
                let mut wrapping = CipherCtx::new().unwrap();
                wrapping.encrypt_init(Some(&self.ciphers.block), Some(&KEY), None).unwrap();
                wrap_blocks(&mut wrapping);
            }
        }
    }

    /// What is left of an agreement when the device has multiplied: derivation and key unwrap.
    fn unwrap(&self) {
        if let Wrapper::Ec(..) = self.wrapper {
            black_box(Digest::Sha256.hash(&self.attributes[..64]));
            let mut unwrapping = CipherCtx::new().unwrap();
            unwrapping.decrypt_init(Some(&self.ciphers.block), Some(&KEY), None).unwrap();
            unwrapping.set_padding(false);
            wrap_blocks(&mut unwrapping);
        }
    }

    fn gcm_seal(&mut self, len: usize, mut fresh: Option<CipherCtx>) -> [u8; 16] {
        let context = fresh.as_mut().unwrap_or(&mut self.sealing);
        context.encrypt_init(None, None, Some(&[1; 12])).unwrap();
        context.cipher_update(&self.attributes, None).unwrap();
        context.cipher_update(&self.letter[..len], Some(&mut self.ciphertext[..len])).unwrap();
        context.cipher_final(&mut []).unwrap();
        let mut tag = [0; 16];
        context.tag(&mut tag).unwrap();
        tag
    }

    fn gcm_open(&mut self, len: usize, mut fresh: Option<CipherCtx>) {
        let context = fresh.as_mut().unwrap_or(&mut self.opening);
        context.decrypt_init(None, None, Some(&[1; 12])).unwrap();
        context.set_tag(&self.tags[usize::from(len == LETTER_BYTES)]).unwrap();
        context.cipher_update(&self.attributes, None).unwrap();
        let mut plaintext = vec![0; len];
        context.cipher_update(&self.ciphertext[..len], Some(&mut plaintext)).unwrap();
        context.cipher_final(&mut []).unwrap();
        black_box(plaintext);
    }
}

/// The block cipher's part of AES key wrap: six times each eight bytes of a key, one after the other.
fn wrap_blocks(cipher: &mut CipherCtx) {
    let mut block = [7; 32];
    for _ in 0..6 * KEY.len() / 8 {
        cipher.cipher_update_inplace(&mut block, 16).unwrap();
    }
    black_box(block);
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}
