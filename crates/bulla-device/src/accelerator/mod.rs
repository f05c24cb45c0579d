//! The processor's eight lanes as a device: RSA and elliptic curves, eight keys at a time.
//!
//! Where the processor has AVX-512 IFMA, Intel's Cryptography Primitives Library does eight operations of one size
//! in little more time than OpenSSL takes for one or two. The library is a shared object that `make lanes` builds;
//! an accelerator opens it, tests it against known answers and against OpenSSL, and is offline with a stated
//! reason where anything is amiss. Keys are in this process's memory, as they are for the CPU.
//!
//! # What is checked before a result leaves
//!
//! - *RSA, signatures and unwraps*: the input is blinded, and the unblinded result is raised to the public exponent
//!   and compared with the input. One faulty result computed with the primes gives the key away (Boneh, DeMillo,
//!   Lipton 1997), so there is no result without this check. It is another calculation on the same lanes.
//!   That the private exponent is the public one's is checked when the key is prepared: a key that came damaged is
//!   refused, and no fault of the lanes.
//! - *ECDSA signatures*: each is verified with the public key, by the lanes' own verification, in another lane than the
//!   one that made it. Before that, the nonce's point must be on the curve, and s·k = z + r·d modulo the order with a
//!   second copy of d in another form: a wrong d or a wrong 1/k in s would tell about d, and such an s is destroyed
//!   before anything else is done. (`limbs.rs` does the few products and the shared inversions, at a third of what they
//!   cost on the lanes.) That a private key belongs to its public one is checked when the key is first used.
//! - *ECDH*: a peer's point P must be on the curve. Beside the secret k·P a second product is computed, k·(G + P), with
//!   another point in another lane, and k·(G + P) = k·G + k·P must hold. For a lasting key k·G is its public key: this
//!   is a check with the public key, and a damaged copy of k fails it. For a key that is made for one agreement k·G is
//!   the point that goes into the message; it comes from another function of the library than the two products, so
//!   the check says of the point, too, that it is right. One wrong value among the three does not fit the other two,
//!   but with a chance of one in the order of the curve; two that are wrong by chance do not fit either.
//!   A secret that was made for sealing must be checked here: it is not looked at again before the message is
//!   acknowledged, and with a wrong one no recipient opens it. A secret for opening has one more proof, the AES key
//!   wrap (RFC 3394): a wrong secret unwraps to nothing, up to 2⁻⁶⁴, and the processor tries again before a message is
//!   moved. That alone is enough for the message. But a sender who chooses P could learn about k from the messages that
//!   make the lanes err, and a broken lane would stay in use; so these are checked alike.
//! - *Verifications*: nothing. A signature that is refused here is judged again by another device before
//!   anything is done about it; that is the scheduler's part.
//!
//! A result that fails its check is overwritten and the job ends with [`DeviceError::Fault`].
//!
//! # Secrets
//!
//! Prepared keys and all memory that a call works in are overwritten with zeros, the stack behind it included. Which
//! lane does what does not depend on secrets; the library's private operations take the same time for all keys of a
//! size. X25519 and Ed25519, which the library has, are not in the profile of keys.

mod bare;
mod cache;
mod ec;
mod encode;
mod library;
mod limbs;
mod rsa;
mod self_test;
mod sum;
mod tamper;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[doc(hidden)]
pub use self::bare::{BareEcdsa, BareRsa};
use self::cache::Cache;
use self::ec::{CurveData, EcUnit, PrivateEc, PublicEc};
use self::library::{LANES, LaneCurve, Lanes, Library, RsaSize};
use self::rsa::{Keys, PrivateRsa, PublicRsa, RsaUnit};
pub(crate) use self::sum::Sums;
pub(crate) use self::tamper::Tampering;
#[doc(hidden)]
pub use self::tamper::{Stage, Tamper};
use crate::device::{Device, DeviceError, Driver, Kind};
use crate::key::{Key, KeyKind, PrivateKey};
use crate::padding;
use crate::random::random_bytes;
use crate::work::{Finished, Form, Job, Output, Shape, Work};

/// The name of the shared object.
pub const LIBRARY_FILE: &str = "libbulla_lanes.so";
/// Where packages put it, from the folder above the program's.
const LIBRARY_FOLDER: &str = "lib/bulla";

/// Where the shared object of this program is: beside it as it was built, in `../lib/bulla` as it was installed.
pub fn library_of(program: &Path) -> PathBuf {
    let beside = program.with_file_name(LIBRARY_FILE);
    let installed = program.ancestors().nth(2).map(|prefix| prefix.join(LIBRARY_FOLDER).join(LIBRARY_FILE));
    match installed {
        Some(installed) if !beside.exists() && installed.exists() => installed,
        _ => beside,
    }
}

/// What the processor can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    has_lanes: bool,
}

impl Processor {
    /// The one that this runs on.
    pub fn this() -> Processor {
        #[cfg(target_arch = "x86_64")]
        let has_lanes = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vbmi2")
            && std::is_x86_feature_detected!("avx512ifma")
            && std::is_x86_feature_detected!("bmi2");
        #[cfg(not(target_arch = "x86_64"))]
        let has_lanes = false;
        Processor { has_lanes }
    }

    /// One without AVX-512 IFMA.
    pub fn without_lanes() -> Processor {
        Processor { has_lanes: false }
    }
}

/// The lanes, opened and tested.
pub struct Accelerator {
    name: String,
    library: &'static Library,
    tamper: Option<Arc<dyn Tamper>>,
}

impl Accelerator {
    /// Opens the library of lanes and tests it, which takes a few hundred milliseconds the first time in a process.
    ///
    /// # Errors
    /// [`DeviceError::Offline`]: this processor has no AVX-512 IFMA, the library is not there, or its self-test
    /// fails.
    pub fn open(name: impl Into<String>, library: &Path) -> Result<Accelerator, DeviceError> {
        Accelerator::open_on(name, library, Processor::this())
    }

    /// The same, with the word of the caller on what the processor can do.
    ///
    /// # Errors
    /// As [`open`](Accelerator::open).
    pub fn open_on(name: impl Into<String>, library: &Path, processor: Processor) -> Result<Accelerator, DeviceError> {
        let name = name.into();
        let opened = if processor.has_lanes { tested(library) } else { Err(library::NO_IFMA.to_owned()) };
        match opened {
            Ok(library) => Ok(Accelerator { name, library, tamper: None }),
            Err(why) => Err(DeviceError::Offline { device: name, why }),
        }
    }

    /// The same accelerator with something that breaks its results, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn tampered(self, tamper: Arc<dyn Tamper>) -> Accelerator {
        Accelerator { tamper: Some(tamper), ..self }
    }

    /// An engine, for one thread.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when OpenSSL does not have the curves.
    pub fn engine(&self) -> Result<LaneEngine, DeviceError> {
        LaneEngine::new(self.name.clone(), self.library, self.tamper.clone())
    }
}

/// The library at this path, opened and tested, once a process. One that failed is tried again.
fn tested(path: &Path) -> Result<&'static Library, String> {
    static TESTED: Mutex<Vec<(PathBuf, &'static Library)>> = Mutex::new(Vec::new());
    let mut tested = TESTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = tested.iter().find(|(known, _)| known == path) {
        return Ok(library);
    }
    let library = Library::open(path)?;
    let library: &'static Library = Box::leak(Box::new(library));
    self_test::run(library).map_err(|why| format!("self-test: {why}"))?;
    tested.push((path.to_owned(), library));
    Ok(library)
}

impl Driver for Accelerator {
    fn kind(&self) -> Kind {
        Kind::Accelerator
    }

    fn engines(&self) -> usize {
        1
    }

    fn lanes(&self) -> usize {
        LANES
    }

    fn takes(&self, job: &Job) -> bool {
        takes(job)
    }

    /// Measured with all lanes filled on a Xeon with AVX-512 IFMA; fewer take as long, but half of it where four key
    /// agreements or fewer share a call with their checks.
    fn expected(&self, shape: Shape) -> Duration {
        let micros = match (shape.form, shape.bits) {
            (Form::RsaCrt, ..=1024) => 170,
            (Form::RsaCrt, ..=2048) => 920,
            (Form::RsaCrt, ..=3072) => 11_000,
            (Form::RsaCrt, _) => 10_000,
            (Form::RsaMePrivate, ..=1024) => 440,
            (Form::RsaMePrivate, ..=2048) => 8_300,
            (Form::RsaMePrivate, ..=3072) => 25_000,
            (Form::RsaMePrivate, _) => 50_000,
            (Form::RsaMe, ..=1024) => 12,
            (Form::RsaMe, ..=2048) => 48,
            (Form::RsaMe, ..=3072) => 84,
            (Form::RsaMe, _) => 123,
            (Form::EcdsaSign, ..=256) => 200,
            (Form::EcdsaSign, ..=384) => 750,
            (Form::EcdsaSign, _) => 840,
            (Form::EcdsaVerify, ..=256) => 163,
            (Form::EcdsaVerify, ..=384) => 630,
            (Form::EcdsaVerify, _) => 690,
            (Form::Ecdh, ..=256) => 255,
            (Form::Ecdh, ..=384) => 970,
            (Form::Ecdh, _) => 1_010,
            (Form::EcdhEphemeral, ..=256) => 285,
            (Form::EcdhEphemeral, ..=384) => 1_100,
            (Form::EcdhEphemeral, _) => 1_150,
            // No job of these comes here.
            (Form::MlDsaSign | Form::MlDsaVerify | Form::MlKemEncapsulate | Form::MlKemDecapsulate, _) => 1_000,
        };
        Duration::from_micros(micros)
    }

    fn is_on_the_cores(&self) -> bool {
        true
    }

    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(self.engine()?))
    }
}

fn takes(job: &Job) -> bool {
    if job.check_key().is_err() {
        return false;
    }
    match (job.key.kind(), job.work.needs_private_key(), &job.key) {
        (_, true, Key::Public(_)) => false,
        (KeyKind::Rsa, true, Key::Private(key)) => rsa::fits(key),
        (KeyKind::Rsa, false, key) => RsaSize::from_bits(key.bits()).is_some() && key.public().has_common_exponent(),
        (KeyKind::Ec(curve), private, key) => {
            let clear = !private || key.private().is_some_and(|key| key.ec().is_some());
            clear && LaneCurve::of(curve).is_some()
        }
        (KeyKind::MlDsa(_) | KeyKind::MlKem(_), _, _) => false,
    }
}

/// The engine of an [`Accelerator`]. [`poll`](Device::poll) computes, on the calling thread.
pub struct LaneEngine {
    name: String,
    tamper: Option<Arc<dyn Tamper>>,
    waiting: Vec<Job>,
    group: Vec<Job>,
    curves: [CurveData; 3],
    rsa: RsaUnit,
    ec: EcUnit,
    private_rsa: Cache<([u8; 32], Form), PrivateRsa>,
    public_rsa: Cache<[u8; 32], PublicRsa>,
    private_ec: Cache<[u8; 32], PrivateEc>,
    public_ec: Cache<[u8; 32], PublicEc>,
}

impl LaneEngine {
    fn new(name: String, library: &'static Library, tamper: Option<Arc<dyn Tamper>>) -> Result<Self, DeviceError> {
        let curve = |curve| CurveData::new(curve).map_err(|unfit| unfit.private(&name));
        let curves = [curve(LaneCurve::P256)?, curve(LaneCurve::P384)?, curve(LaneCurve::P521)?];
        Ok(LaneEngine {
            name,
            tamper,
            waiting: Vec::with_capacity(LANES),
            group: Vec::with_capacity(LANES),
            curves,
            rsa: RsaUnit::new(library),
            ec: EcUnit::new(library),
            private_rsa: Cache::new(),
            public_rsa: Cache::new(),
            private_ec: Cache::new(),
            public_ec: Cache::new(),
        })
    }

    /// One call: jobs of one shape, all of which `takes` let in.
    fn call(&mut self, jobs: &[Job], done: &mut Vec<Finished>) {
        let Some(first) = jobs.first() else { return };
        match (first.shape().form, first.key.kind()) {
            (Form::RsaCrt | Form::RsaMePrivate, _) => self.rsa_private(jobs, done),
            (Form::RsaMe, _) => self.rsa_public(jobs, done),
            (form, KeyKind::Ec(curve)) => {
                let Some(curve) = LaneCurve::of(curve) else { return self.refuse_all(jobs, done) };
                match form {
                    Form::EcdsaSign => self.ecdsa_sign(curve, jobs, done),
                    Form::EcdsaVerify => self.ecdsa_verify(curve, jobs, done),
                    Form::Ecdh => self.ecdh_derive(curve, jobs, done),
                    _ => self.ecdh_ephemeral(curve, jobs, done),
                }
            }
            _ => self.refuse_all(jobs, done),
        }
    }

    fn refuse_all(&self, jobs: &[Job], done: &mut Vec<Finished>) {
        done.extend(jobs.iter().map(|job| Finished::new(job.id, Err(self.refused("not a job for the lanes")))));
    }

    fn refused(&self, why: &str) -> DeviceError {
        DeviceError::Refused { device: self.name.clone(), why: why.to_owned() }
    }

    fn fault(&self) -> DeviceError {
        DeviceError::Fault { device: self.name.clone() }
    }

    fn rsa_private(&mut self, jobs: &[Job], done: &mut Vec<Finished>) {
        let mut lanes = Filled::new();
        for (index, job) in jobs.iter().enumerate() {
            match self.rsa_private_input(job, lanes.count) {
                Ok(Input::Ready(place)) => lanes.fill(index, place),
                Ok(Input::Answered(output)) => done.push(Finished::new(job.id, Ok(output))),
                Err(error) => done.push(Finished::new(job.id, Err(error))),
            }
        }
        let Some(size) = jobs.first().and_then(|job| RsaSize::from_bits(job.key.bits())) else { return };
        if lanes.count == 0 {
            return;
        }
        let tampering = Tampering(self.tamper.as_ref());
        let mut keys = LaneKeys { cache: &mut self.private_rsa, places: lanes.places };
        let stands = match self.rsa.private(size, &mut keys, lanes.count, tampering) {
            Ok(stands) => stands,
            Err(error) => {
                lanes.answer_all(jobs, &error, done);
                return self.rsa.clear_results();
            }
        };
        for lane in 0..lanes.count {
            let job = &jobs[lanes.jobs[lane]];
            let raw = &self.rsa.output[lane][..size.bytes()];
            let result = match &*job.work {
                _ if !stands[lane] => Err(self.fault()),
                Work::RsaUnwrap { padding, wrapped, expected_len } => {
                    let rejected = private_of(job).and_then(|key| key.rejected(*padding, wrapped, *expected_len));
                    rejected.map(|rejected| padding::content_key(raw, *padding, rejected))
                }
                _ => Ok(Output::new(raw.to_vec())),
            };
            done.push(Finished::new(job.id, result));
        }
        self.rsa.clear_results();
    }

    /// Puts what goes to the private exponent into a lane's input.
    fn rsa_private_input(&mut self, job: &Job, lane: usize) -> Result<Input, DeviceError> {
        let key = private_of(job)?;
        let form = job.shape().form;
        let made = self.private_rsa.place((key.id(), form), || PrivateRsa::new(key));
        let place = made.map_err(|unfit| unfit.private(&self.name))?;
        let public = &self.private_rsa.at(place).public;
        let input = &mut self.rsa.input[lane][..public.size.bytes()];
        match &*job.work {
            Work::RsaSign { scheme, digest, hash } => {
                encode::for_signature(input, &public.rsa, *scheme, *digest, hash)?;
                Ok(Input::Ready(place))
            }
            Work::RsaPrivate { block } => {
                if !public.is_input(block) {
                    return Err(DeviceError::WrongKey { why: "the block is not smaller than the modulus" });
                }
                input.copy_from_slice(block);
                Ok(Input::Ready(place))
            }
            Work::RsaUnwrap { padding, wrapped, expected_len } => {
                // Public facts about the wrapped key; anyone can see them, so leaving early tells nothing.
                if !public.is_input(wrapped) {
                    let mut rejected = key.rejected(*padding, wrapped, *expected_len)?;
                    return Ok(Input::Answered(Output::new(std::mem::take(&mut *rejected))));
                }
                input.copy_from_slice(wrapped);
                Ok(Input::Ready(place))
            }
            _ => Err(self.refused("not a job for the lanes")),
        }
    }

    fn rsa_public(&mut self, jobs: &[Job], done: &mut Vec<Finished>) {
        let mut lanes = Filled::new();
        for (index, job) in jobs.iter().enumerate() {
            match self.rsa_public_input(job, lanes.count) {
                Ok(place) => lanes.fill(index, place),
                Err(error) => done.push(Finished::new(job.id, Err(error))),
            }
        }
        let Some(size) = jobs.first().and_then(|job| RsaSize::from_bits(job.key.bits())) else { return };
        if lanes.count == 0 {
            return;
        }
        let key_of = |lane| self.public_rsa.at(lanes.places[lanes.used(lane)]);
        let moduli: Lanes<&[u64]> = std::array::from_fn(|lane| key_of(lane).modulus.words());
        let tampering = Tampering(self.tamper.as_ref());
        let computed = self.rsa.public(size, &moduli, lanes.count, tampering);
        for lane in 0..lanes.count {
            let job = &jobs[lanes.jobs[lane]];
            let output = &self.rsa.output[lane][..size.bytes()];
            let result = match &*job.work {
                _ if !computed[lane] => Err(self.fault()),
                Work::RsaVerify { scheme, digest, hash, .. } => {
                    let good = encode::is_signature(output, &key_of(lane).rsa, *scheme, *digest, hash);
                    if good { Ok(Output::none()) } else { Err(DeviceError::BadSignature) }
                }
                _ => Ok(Output::new(output.to_vec())),
            };
            done.push(Finished::new(job.id, result));
        }
        if jobs.iter().any(|job| matches!(&*job.work, Work::RsaWrap { .. })) {
            // The padded content key went through all that; a signature to verify is no secret.
            self.rsa.clear_secrets();
        }
        self.rsa.clear_results();
    }

    /// Puts what goes to the public exponent into a lane's input.
    fn rsa_public_input(&mut self, job: &Job, lane: usize) -> Result<usize, DeviceError> {
        let key = job.key.public();
        let made = self.public_rsa.place(key.id(), || PublicRsa::new(key));
        let place = made.map_err(|unfit| unfit.public(&self.name))?;
        let public = self.public_rsa.at(place);
        let input = &mut self.rsa.input[lane][..public.size.bytes()];
        match &*job.work {
            Work::RsaVerify { signature, .. } if !public.is_input(signature) => Err(DeviceError::BadSignature),
            Work::RsaVerify { signature, .. } => {
                input.copy_from_slice(signature);
                Ok(place)
            }
            Work::RsaWrap { padding, content_key } => {
                encode::for_wrap(input, *padding, content_key)?;
                Ok(place)
            }
            _ => Err(self.refused("not a job for the lanes")),
        }
    }

    fn ecdsa_sign(&mut self, curve: LaneCurve, jobs: &[Job], done: &mut Vec<Finished>) {
        let data = &self.curves[curve as usize];
        let mut lanes = Filled::new();
        for (index, job) in jobs.iter().enumerate() {
            let made = private_of(job).and_then(|key| {
                let made = self.private_ec.place(key.id(), || PrivateEc::new(key, data));
                made.map_err(|unfit| unfit.private(&self.name))
            });
            match made {
                Ok(place) => lanes.fill(index, place),
                Err(error) => done.push(Finished::new(job.id, Err(error))),
            }
        }
        if lanes.count == 0 {
            return;
        }
        let keys: Lanes<&PrivateEc> = std::array::from_fn(|lane| self.private_ec.at(lanes.places[lanes.used(lane)]));
        let hashes: Lanes<&[u8]> = std::array::from_fn(|lane| hash_of(&jobs[lanes.jobs[lanes.used(lane)]]));
        let tampering = Tampering(self.tamper.as_ref());
        let stands = match self.ec.sign(data, &keys[..lanes.count], &hashes[..lanes.count], tampering) {
            Ok(stands) => stands,
            Err(error) => return lanes.answer_all(jobs, &error, done),
        };
        for lane in 0..lanes.count {
            let job = &jobs[lanes.jobs[lane]];
            let len = data.bytes();
            let (r, s) = (&self.ec.bytes.r[lane][..len], &self.ec.bytes.s[lane][..len]);
            let result = if stands[lane] { Ok(Output::new(ec::write_signature(r, s))) } else { Err(self.fault()) };
            done.push(Finished::new(job.id, result));
        }
    }

    fn ecdsa_verify(&mut self, curve: LaneCurve, jobs: &[Job], done: &mut Vec<Finished>) {
        let data = &self.curves[curve as usize];
        let len = data.bytes();
        let mut lanes = Filled::new();
        for (index, job) in jobs.iter().enumerate() {
            let Work::EcdsaVerify { signature, .. } = &*job.work else { continue };
            let numbers = ec::read_signature(signature, len);
            let (r, s) = (&mut self.ec.bytes.r[lanes.count], &mut self.ec.bytes.s[lanes.count]);
            let in_range = numbers.is_some_and(|(r_read, s_read)| {
                for (to, from) in [(r, r_read), (s, s_read)] {
                    to.fill(0);
                    to[len - from.len()..len].copy_from_slice(from);
                }
                data.is_scalar(r_read) && data.is_scalar(s_read)
            });
            if !in_range {
                done.push(Finished::new(job.id, Err(DeviceError::BadSignature)));
                continue;
            }
            let key = job.key.public();
            match self.public_ec.place(key.id(), || PublicEc::new(key, data)) {
                Ok(place) => lanes.fill(index, place),
                Err(unfit) => done.push(Finished::new(job.id, Err(unfit.public(&self.name)))),
            }
        }
        if lanes.count == 0 {
            return;
        }
        let keys: Lanes<&PublicEc> = std::array::from_fn(|lane| self.public_ec.at(lanes.places[lanes.used(lane)]));
        let hashes: Lanes<&[u8]> = std::array::from_fn(|lane| hash_of(&jobs[lanes.jobs[lanes.used(lane)]]));
        let tampering = Tampering(self.tamper.as_ref());
        let good = self.ec.verify(data, &keys[..lanes.count], &hashes[..lanes.count], tampering);
        for lane in 0..lanes.count {
            let result = if good[lane] { Ok(Output::none()) } else { Err(DeviceError::BadSignature) };
            done.push(Finished::new(jobs[lanes.jobs[lane]].id, result));
        }
    }

    fn ecdh_derive(&mut self, curve: LaneCurve, jobs: &[Job], done: &mut Vec<Finished>) {
        let data = &self.curves[curve as usize];
        let mut lanes = Filled::new();
        let mut peers = Vec::with_capacity(LANES);
        for (index, job) in jobs.iter().enumerate() {
            let Work::EcdhDerive { peer } = &*job.work else { continue };
            let made = private_of(job).and_then(|key| {
                let made = self.private_ec.place(key.id(), || PrivateEc::new(key, data));
                made.map_err(|unfit| unfit.private(&self.name))
            });
            match (made, PublicEc::read(peer, data)) {
                (Ok(place), Some(peer)) => {
                    lanes.fill(index, place);
                    peers.push(peer);
                }
                // The peer's point is attacker's text: one that is not on the curve gives random bytes, which no
                // key wrap accepts.
                (Ok(_), None) => done.push(Finished::new(job.id, random_output(data.bytes()))),
                (Err(error), _) => done.push(Finished::new(job.id, Err(error))),
            }
        }
        if lanes.count == 0 {
            return;
        }
        let keys: Lanes<&PrivateEc> = std::array::from_fn(|lane| self.private_ec.at(lanes.places[lanes.used(lane)]));
        let peers: Vec<&PublicEc> = peers.iter().collect();
        let stands = self.ec.derive(data, &keys[..lanes.count], &peers, Tampering(self.tamper.as_ref()));
        for lane in 0..lanes.count {
            let job = &jobs[lanes.jobs[lane]];
            let secret = &self.ec.bytes.shared[lane][..data.bytes()];
            let result = if stands[lane] { Ok(Output::new(secret.to_vec())) } else { Err(self.fault()) };
            done.push(Finished::new(job.id, result));
        }
        self.ec.clear_results();
    }

    fn ecdh_ephemeral(&mut self, curve: LaneCurve, jobs: &[Job], done: &mut Vec<Finished>) {
        let data = &self.curves[curve as usize];
        let mut lanes = Filled::new();
        for (index, job) in jobs.iter().enumerate() {
            let key = job.key.public();
            match self.public_ec.place(key.id(), || PublicEc::new(key, data)) {
                Ok(place) => lanes.fill(index, place),
                Err(unfit) => done.push(Finished::new(job.id, Err(unfit.public(&self.name)))),
            }
        }
        if lanes.count == 0 {
            return;
        }
        let peers: Lanes<&PublicEc> = std::array::from_fn(|lane| self.public_ec.at(lanes.places[lanes.used(lane)]));
        let tampering = Tampering(self.tamper.as_ref());
        let stands = match self.ec.agree_once(data, &peers[..lanes.count], tampering) {
            Ok(stands) => stands,
            Err(error) => {
                lanes.answer_all(jobs, &error, done);
                return self.ec.clear_results();
            }
        };
        let len = data.bytes();
        for lane in 0..lanes.count {
            let job = &jobs[lanes.jobs[lane]];
            let result = if stands[lane] {
                let bytes = &self.ec.bytes;
                let mut out = Vec::with_capacity(1 + 3 * len);
                out.push(4);
                out.extend_from_slice(&bytes.r[lane][..len]);
                out.extend_from_slice(&bytes.s[lane][..len]);
                out.extend_from_slice(&bytes.shared[lane][..len]);
                Ok(Output::new(out))
            } else {
                Err(self.fault())
            };
            done.push(Finished::new(job.id, result));
        }
        self.ec.clear_results();
    }
}

/// What became of a job on its way into a lane.
enum Input {
    /// It is there; the key is in this place of its cache.
    Ready(usize),
    /// It needs no lane.
    Answered(Output),
}

/// Which job and which key are in which lane.
struct Filled {
    count: usize,
    jobs: [usize; LANES],
    places: [usize; LANES],
}

impl Filled {
    fn new() -> Filled {
        Filled { count: 0, jobs: [0; LANES], places: [0; LANES] }
    }

    fn fill(&mut self, job: usize, place: usize) {
        self.jobs[self.count] = job;
        self.places[self.count] = place;
        self.count += 1;
    }

    /// The lane itself, or the first one for a lane that is not filled.
    fn used(&self, lane: usize) -> usize {
        if lane < self.count { lane } else { 0 }
    }

    fn answer_all(&self, jobs: &[Job], error: &DeviceError, done: &mut Vec<Finished>) {
        done.extend(self.jobs[..self.count].iter().map(|job| Finished::new(jobs[*job].id, Err(error.clone()))));
    }
}

struct LaneKeys<'a> {
    cache: &'a mut Cache<([u8; 32], Form), PrivateRsa>,
    places: [usize; LANES],
}

impl Keys for LaneKeys<'_> {
    fn key(&self, lane: usize) -> &PrivateRsa {
        self.cache.at(self.places[lane])
    }

    fn key_mut(&mut self, lane: usize) -> &mut PrivateRsa {
        self.cache.at_mut(self.places[lane])
    }
}

impl Device for LaneEngine {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        let room = (LANES - self.waiting.len()).min(jobs.len());
        self.waiting.extend(jobs.drain(..room));
        Ok(room)
    }

    /// Computes all that was submitted, one call for each [`Shape`] among the jobs.
    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        while let Some(first) = self.waiting.first() {
            let shape = first.shape();
            let mut group = std::mem::take(&mut self.group);
            for job in self.waiting.extract_if(.., |job| job.shape() == shape) {
                if let Err(error) = job.check_key() {
                    done.push(Finished::new(job.id, Err(error)));
                } else if takes(&job) {
                    group.push(job);
                } else {
                    let why = "the lanes do not do keys of this kind, size or exponent".to_owned();
                    let error = DeviceError::Refused { device: self.name.clone(), why };
                    done.push(Finished::new(job.id, Err(error)));
                }
            }
            self.call(&group, done);
            group.clear();
            self.group = group;
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Accelerator
    }
}

fn private_of(job: &Job) -> Result<&PrivateKey, DeviceError> {
    job.key.private().ok_or(DeviceError::WrongKey { why: "a private key is needed, this is a public one" })
}

fn hash_of(job: &Job) -> &[u8] {
    match &*job.work {
        Work::EcdsaSign { hash } | Work::EcdsaVerify { hash, .. } => hash,
        _ => &[],
    }
}

fn random_output(len: usize) -> Result<Output, DeviceError> {
    Ok(Output::new(std::mem::take(&mut *random_bytes(len)?)))
}

#[cfg(test)]
mod tests;
