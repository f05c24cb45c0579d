//! What needs the inside of the accelerator: broken results, several keys in a call, the checks by themselves. What
//! every device must refuse alike is in `tests/edge_cases.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};

use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;

use super::*;
use crate::cpu::CpuDevice;
use crate::digest::Digest;
use crate::key::Curve;
use crate::work::{RsaPadding, RsaScheme};

const RSA_1024: &[u8] = include_bytes!("known/rsa-1024.der");
const RSA_2048: &[u8] = include_bytes!("known/rsa-2048.der");
const RSA_3072: &[u8] = include_bytes!("known/rsa-3072.der");
const RSA_4096: &[u8] = include_bytes!("known/rsa-4096.der");

fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().join(LIBRARY_FILE)
}

/// The accelerator, or a word on why it isn't there.
fn accelerator() -> Option<Accelerator> {
    match Accelerator::open("lanes", &library()) {
        Ok(accelerator) => Some(accelerator),
        Err(DeviceError::Offline { why, .. }) if !Processor::this().has_lanes || !library().exists() => {
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| eprintln!("skipped: what needs the lanes: {why}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn rsa(der: &[u8]) -> PrivateKey {
    PrivateKey::clear(PKey::from_rsa(Rsa::private_key_from_der(der).unwrap()).unwrap()).unwrap()
}

fn generated(bits: u32) -> PrivateKey {
    PrivateKey::clear(PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()).unwrap()
}

fn without_primes(key: &PrivateKey) -> PrivateKey {
    let rsa = key.rsa().unwrap();
    let copy = |number: &openssl::bn::BigNumRef| number.to_owned().unwrap();
    let builder = openssl::rsa::RsaPrivateKeyBuilder::new(copy(rsa.n()), copy(rsa.e()), copy(rsa.d())).unwrap();
    PrivateKey::clear(PKey::from_rsa(builder.build()).unwrap()).unwrap()
}

fn ec(curve: Curve) -> PrivateKey {
    let group = EcGroup::from_curve_name(curve.nid()).unwrap();
    PrivateKey::clear(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()).unwrap()
}

fn run_all(device: &mut dyn Device, jobs: Vec<Job>) -> Vec<Result<Output, DeviceError>> {
    let count = jobs.len();
    let mut jobs: Vec<Job> = jobs.into_iter().enumerate().map(|(id, job)| Job { id: id as u64, ..job }).collect();
    let mut done = Vec::new();
    while !jobs.is_empty() {
        device.submit(&mut jobs).unwrap();
        device.poll(&mut done).unwrap();
    }
    assert_eq!(done.len(), count);
    done.sort_by_key(|finished| finished.id);
    done.into_iter().map(|finished| finished.result).collect()
}

fn cpu(job: Job) -> Result<Output, DeviceError> {
    run_all(&mut CpuDevice::new("cpu"), vec![job]).remove(0)
}

const OAEP: RsaPadding = RsaPadding::Oaep { digest: Digest::Sha256 };

/// A work that fits the key, and another one in the same shape.
fn signing(key: &PrivateKey, turn: usize) -> Work {
    let digest = Digest::ALL[turn % 3];
    let hash = digest.hash(&[turn as u8]);
    match key.kind() {
        KeyKind::Rsa if turn.is_multiple_of(2) => Work::RsaSign { scheme: RsaScheme::Pkcs1, digest, hash },
        KeyKind::Rsa => {
            Work::RsaSign { scheme: RsaScheme::Pss, digest: Digest::Sha256, hash: Digest::Sha256.hash(&[1]) }
        }
        KeyKind::Ec(_) => Work::EcdsaSign { hash },
        KeyKind::MlDsa(_) | KeyKind::MlKem(_) => panic!("{key:?} is no key for lanes"),
    }
}

fn verifying(work: &Work, signature: &Output) -> Work {
    let signature = signature.to_vec();
    match work {
        Work::RsaSign { scheme, digest, hash } => {
            Work::RsaVerify { scheme: *scheme, digest: *digest, hash: *hash, signature }
        }
        Work::EcdsaSign { hash } => Work::EcdsaVerify { hash: *hash, signature },
        other => panic!("{other:?} makes no signature"),
    }
}

#[test]
fn every_size_and_curve_signs_and_verifies_what_the_cpu_does_in_batches_of_one_to_eight() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let mut keys: Vec<PrivateKey> = [RSA_1024, RSA_2048, RSA_3072, RSA_4096].map(rsa).to_vec();
    keys.extend(keys.clone().iter().take(2).map(without_primes));
    keys.extend([Curve::P256, Curve::P384, Curve::P521].map(ec));
    for key in &keys {
        for batch in 1..=LANES {
            let works: Vec<Work> = (0..batch).map(|turn| signing(key, turn)).collect();
            let jobs = works.iter().map(|work| Job::new(key.clone(), work.clone())).collect();
            let signatures = run_all(&mut engine, jobs);
            let mut checks = Vec::new();
            for (work, signature) in works.iter().zip(signatures) {
                let check = verifying(work, &signature.unwrap());
                let job = Job::new(key.public_key().clone(), check.clone());
                assert!(cpu(job.clone()).is_ok(), "{key:?} {check:?}");
                checks.push(job);
            }
            assert!(run_all(&mut engine, checks).iter().all(Result::is_ok));
        }
    }
}

#[test]
fn a_padded_block_gives_what_the_cpu_gives_and_one_over_the_modulus_nothing() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    for key in [rsa(RSA_1024), rsa(RSA_2048), without_primes(&rsa(RSA_2048))] {
        let len = key.public().size();
        let job = |first: u8| {
            let block = [vec![first], vec![7; len - 1]].concat();
            Job::new(key.clone(), Work::RsaPrivate { block })
        };
        let [here, over] = [0, 0xff].map(|first| run_all(&mut engine, vec![job(first)]).remove(0));
        assert_eq!(&*here.unwrap(), &*cpu(job(0)).unwrap());
        assert!(over.is_err() && cpu(job(0xff)).is_err());
    }
}

#[test]
fn signatures_by_pkcs1_are_those_of_the_cpu_bit_for_bit() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    for bits in [1024, 2048] {
        let key = generated(bits);
        for key in [key.clone(), without_primes(&key)] {
            for digest in Digest::ALL {
                let hash = digest.hash(b"content");
                let job = Job::new(key.clone(), Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: *digest, hash });
                assert_eq!(run_all(&mut engine, vec![job.clone()]).remove(0), cpu(job));
            }
        }
    }
}

#[test]
fn a_call_with_eight_keys_gives_each_its_own_result() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let rsa: Vec<PrivateKey> = (0..LANES).map(|_| generated(1024)).collect();
    let curve: Vec<PrivateKey> = (0..LANES).map(|_| ec(Curve::P384)).collect();
    for keys in [rsa, curve] {
        let works: Vec<Work> = (0..LANES).map(|turn| signing(&keys[turn], turn)).collect();
        let jobs = keys.iter().zip(&works).map(|(key, work)| Job::new(key.clone(), work.clone())).collect();
        for (lane, signature) in run_all(&mut engine, jobs).into_iter().enumerate() {
            let check = verifying(&works[lane], &signature.unwrap());
            assert!(cpu(Job::new(keys[lane].public_key().clone(), check.clone())).is_ok());
            let other = keys[(lane + 1) % LANES].public_key().clone();
            assert_eq!(cpu(Job::new(other, check)), Err(DeviceError::BadSignature));
        }
    }
}

#[test]
fn shapes_may_come_mixed_and_more_than_a_call_holds() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let keys = [rsa(RSA_1024), ec(Curve::P256), rsa(RSA_2048), without_primes(&rsa(RSA_1024)), ec(Curve::P521)];
    let works: Vec<(usize, Work)> = (0..21).map(|turn| (turn % 5, signing(&keys[turn % 5], turn))).collect();
    let jobs: Vec<Job> = works.iter().map(|(key, work)| Job::new(keys[*key].clone(), work.clone())).collect();
    let mut waiting = jobs.clone();
    assert_eq!(engine.submit(&mut waiting).unwrap(), LANES, "one call's worth");
    engine.waiting.clear();
    for ((key, work), signature) in works.iter().zip(run_all(&mut engine, jobs)) {
        let check = verifying(work, &signature.unwrap());
        assert!(cpu(Job::new(keys[*key].public_key().clone(), check)).is_ok());
    }
}

#[test]
fn keys_wrapped_and_agreed_here_are_unwrapped_there_and_the_other_way_round() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    for der in [RSA_1024, RSA_2048, RSA_3072, RSA_4096] {
        let key = rsa(der);
        for padding in [OAEP, RsaPadding::Pkcs1] {
            let wrap =
                Job::new(key.public_key().clone(), Work::RsaWrap { padding, content_key: Output::new(vec![7; 32]) });
            let here = run_all(&mut engine, vec![wrap.clone(); 3]);
            let there = cpu(wrap);
            for wrapped in here.into_iter().chain([there]) {
                let work = Work::RsaUnwrap { padding, wrapped: wrapped.unwrap().to_vec(), expected_len: 32 };
                let job = Job::new(key.clone(), work);
                assert_eq!(&*cpu(job.clone()).unwrap(), &[7; 32]);
                assert_eq!(&*run_all(&mut engine, vec![job; 2]).remove(1).unwrap(), &[7; 32]);
            }
        }
    }
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        let key = ec(curve);
        let agree = Job::new(key.public_key().clone(), Work::EcdhEphemeral);
        let here = run_all(&mut engine, vec![agree.clone(); 5]);
        for out in here.into_iter().chain([cpu(agree)]) {
            let out = out.unwrap();
            let (point, secret) = out.split_at(curve.point_len());
            let job = Job::new(key.clone(), Work::EcdhDerive { peer: point.to_vec() });
            assert_eq!(&*cpu(job.clone()).unwrap(), secret);
            assert_eq!(&*run_all(&mut engine, vec![job; 2]).remove(1).unwrap(), secret);
        }
    }
}

#[test]
fn a_failed_unwrap_of_pkcs1_gives_the_processors_key() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let key = rsa(RSA_1024);
    let unwrap = |key: &PrivateKey, wrapped: Vec<u8>| {
        Job::new(key.clone(), Work::RsaUnwrap { padding: RsaPadding::Pkcs1, wrapped, expected_len: 32 })
    };
    // Bad padding in lanes that are filled; then what no lane sees: too long a number, too few bytes.
    for wrapped in [vec![1; 128], vec![0xff; 128], vec![1; 127]] {
        let job = unwrap(&key, wrapped.clone());
        let there = cpu(job.clone()).unwrap();
        for here in run_all(&mut engine, vec![job; 3]) {
            assert_eq!(here.unwrap(), there);
        }
        let other = run_all(&mut engine, vec![unwrap(&without_primes(&key), wrapped)]).remove(0).unwrap();
        assert_eq!(other, there, "the same key without its primes");
    }
}

#[test]
fn keys_with_the_lesser_prime_first_work() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let key = rsa(RSA_1024);
    let rsa = key.rsa().unwrap();
    let copy = |number: Option<&openssl::bn::BigNumRef>| number.unwrap().to_owned().unwrap();
    let (p, q) = (copy(rsa.p()), copy(rsa.q()));
    let mut inverse = BigNum::new().unwrap();
    inverse.mod_inverse(&p, &q, &mut openssl::bn::BigNumContext::new().unwrap()).unwrap();
    let swapped = Rsa::from_private_components(
        rsa.n().to_owned().unwrap(),
        rsa.e().to_owned().unwrap(),
        rsa.d().to_owned().unwrap(),
        q,
        p,
        copy(rsa.dmq1()),
        copy(rsa.dmp1()),
        inverse,
    )
    .unwrap();
    let swapped = PrivateKey::clear(PKey::from_rsa(swapped).unwrap()).unwrap();
    let hash = Digest::Sha256.hash(b"content");
    let work = Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash };
    let expected = cpu(Job::new(key, work.clone()));
    assert_eq!(run_all(&mut engine, vec![Job::new(swapped, work); 8]).remove(7), expected);
}

#[test]
fn what_the_lanes_do_not_have_is_not_taken() {
    let hash = Digest::Sha256.hash(b"content");
    let sign = Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash };
    let exponent_3 = Rsa::generate_with_e(1024, &BigNum::from_u32(3).unwrap()).unwrap();
    let exponent_3 = PrivateKey::clear(PKey::from_rsa(exponent_3).unwrap()).unwrap();
    let token = PrivateKey::on_token(rsa(RSA_1024).public_key().clone(), "pkcs11:object=key");
    let verify = Work::RsaVerify { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash, signature: vec![0; 128] };
    for job in [
        Job::new(generated(1536), sign.clone()),
        Job::new(exponent_3.clone(), sign.clone()),
        Job::new(exponent_3.public_key().clone(), verify.clone()),
        Job::new(token.clone(), sign.clone()),
        Job::new(ec(Curve::P192), Work::EcdsaSign { hash }),
        Job::new(ec(Curve::P224), Work::EcdhEphemeral),
        Job::new(ec(Curve::P256), sign.clone()),
    ] {
        assert!(!takes(&job), "{job:?}");
        let Some(accelerator) = accelerator() else { return };
        let result = run_all(&mut accelerator.engine().unwrap(), vec![job]).remove(0);
        assert!(matches!(result, Err(DeviceError::Refused { .. } | DeviceError::WrongKey { .. })));
    }
    for job in [
        Job::new(token, verify),
        Job::new(rsa(RSA_3072), sign.clone()),
        Job::new(without_primes(&rsa(RSA_2048)), sign),
        Job::new(ec(Curve::P521).public_key().clone(), Work::EcdhEphemeral),
    ] {
        assert!(takes(&job), "{job:?}");
    }
}

#[test]
fn where_there_are_no_lanes_the_accelerator_is_offline_and_says_why() {
    let offline = |opened: Result<Accelerator, DeviceError>| match opened.err() {
        Some(DeviceError::Offline { device, why }) => (device, why),
        other => panic!("{other:?}"),
    };
    let (device, why) = offline(Accelerator::open_on("lanes", &library(), Processor::without_lanes()));
    assert_eq!((device.as_str(), why.as_str()), ("lanes", "this processor has no AVX-512 IFMA"));
    let program = std::env::current_exe().unwrap();
    for path in [Path::new("/nowhere/libbulla_lanes.so"), &program] {
        let (_, why) = offline(Accelerator::open("lanes", path));
        assert!(!why.is_empty() && !why.contains('\n'), "{why}");
    }
}

#[test]
fn a_second_accelerator_shares_the_tested_library() {
    let (Some(first), Some(second)) = (accelerator(), accelerator()) else { return };
    assert!(std::ptr::eq(first.library, second.library));
}

/// Breaks one lane's result at one stage.
struct Break<F> {
    stage: Stage,
    lane: usize,
    how: F,
    touched: AtomicUsize,
}

impl<F: Fn(&mut [u8]) + Send + Sync> Tamper for Break<F> {
    fn touch(&self, stage: Stage, lane: usize, bytes: &mut [u8]) {
        if (stage, lane) == (self.stage, self.lane) {
            (self.how)(bytes);
            self.touched.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs eight of the same job with lane 3 broken, and returns the results of lanes 2 and 3.
fn broken(
    stage: Stage,
    job: &Job,
    how: impl Fn(&mut [u8]) + Send + Sync + 'static,
) -> Option<(Result<Output, DeviceError>, Result<Output, DeviceError>)> {
    let tamper = Arc::new(Break { stage, lane: 3, how, touched: AtomicUsize::new(0) });
    let mut engine = accelerator()?.tampered(tamper.clone()).engine().unwrap();
    let mut results = run_all(&mut engine, vec![job.clone(); LANES]);
    assert_eq!(tamper.touched.load(Ordering::Relaxed), 1);
    let broken = results.swap_remove(3);
    Some((results.swap_remove(2), broken))
}

fn flip(bytes: &mut [u8]) {
    *bytes.last_mut().unwrap() ^= 1;
}

fn fault() -> Result<Output, DeviceError> {
    Err(DeviceError::Fault { device: "lanes".to_owned() })
}

/// A result that is right modulo one prime and wrong modulo the other, as a fault in one half gives it.
fn fault_in_a_half(key: &PrivateKey, prime: fn(&Rsa<Private>) -> BigNum) -> impl Fn(&mut [u8]) + Send + Sync + 'static {
    let rsa = key.rsa().unwrap();
    let (prime, n) = (prime(rsa).to_vec(), rsa.n().to_vec());
    move |bytes: &mut [u8]| {
        let mut context = openssl::bn::BigNumContext::new().unwrap();
        let number = |bytes: &[u8]| BigNum::from_slice(bytes).unwrap();
        let mut wrong = BigNum::new().unwrap();
        wrong.mod_add(&number(bytes), &number(&prime), &number(&n), &mut context).unwrap();
        bytes.copy_from_slice(&wrong.to_vec_padded(bytes.len() as i32).unwrap());
    }
}

#[test]
fn a_fault_in_either_half_of_an_rsa_signature_is_caught_and_the_other_lanes_stand() {
    for der in [RSA_1024, RSA_2048, RSA_3072, RSA_4096] {
        let key = rsa(der);
        let hash = Digest::Sha256.hash(b"content");
        for scheme in [RsaScheme::Pkcs1, RsaScheme::Pss] {
            let job = Job::new(key.clone(), Work::RsaSign { scheme, digest: Digest::Sha256, hash });
            let p = |rsa: &Rsa<Private>| rsa.p().unwrap().to_owned().unwrap();
            let q = |rsa: &Rsa<Private>| rsa.q().unwrap().to_owned().unwrap();
            for half in [p, q] {
                let Some((stands, broken)) = broken(Stage::RsaPrivate, &job, fault_in_a_half(&key, half)) else {
                    return;
                };
                assert_eq!(broken, fault());
                let check = verifying(&job.work, &stands.unwrap());
                assert!(cpu(Job::new(key.public_key().clone(), check)).is_ok());
            }
        }
    }
}

#[test]
fn a_fault_in_an_unwrap_is_caught_whatever_the_padding() {
    for key in [rsa(RSA_2048), without_primes(&rsa(RSA_2048))] {
        for padding in [OAEP, RsaPadding::Pkcs1] {
            let content_key = Output::new(vec![7; 32]);
            let wrapped = cpu(Job::new(key.public_key().clone(), Work::RsaWrap { padding, content_key })).unwrap();
            let work = Work::RsaUnwrap { padding, wrapped: wrapped.to_vec(), expected_len: 32 };
            let Some((stands, broken)) = broken(Stage::RsaPrivate, &Job::new(key.clone(), work), flip) else { return };
            assert_eq!((&*stands.unwrap(), broken), (&[7; 32][..], fault()));
        }
    }
}

#[test]
fn a_fault_in_a_verification_is_a_wrong_verdict_that_another_device_refutes() {
    for (key, stage) in [
        (rsa(RSA_1024), Stage::RsaPublic),
        (ec(Curve::P256), Stage::EcdsaVerdict),
        (ec(Curve::P521), Stage::EcdsaVerdict),
    ] {
        let work = signing(&key, 0);
        let signature = cpu(Job::new(key.clone(), work.clone())).unwrap();
        let job = Job::new(key.public_key().clone(), verifying(&work, &signature));
        let Some((stands, broken)) = broken(stage, &job, flip) else { return };
        assert!(stands.is_ok());
        assert_eq!(broken, Err(DeviceError::BadSignature));
        assert!(cpu(job).is_ok());
    }
}

#[test]
fn a_fault_in_an_ecdsa_signature_is_caught_and_the_other_lanes_stand() {
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        let key = ec(curve);
        let job = Job::new(key.clone(), signing(&key, 0));
        for stage in [Stage::EcdsaPoint, Stage::EcdsaR, Stage::EcdsaS] {
            let zero = |bytes: &mut [u8]| bytes.fill(0);
            let full = |bytes: &mut [u8]| bytes.fill(0xff);
            for how in [flip as fn(&mut [u8]), zero, full] {
                let Some((stands, broken)) = broken(stage, &job, how) else { return };
                assert_eq!(broken, fault());
                let check = verifying(&job.work, &stands.unwrap());
                assert!(cpu(Job::new(key.public_key().clone(), check)).is_ok());
            }
        }
    }
}

/// Puts the point of another scalar in the place of X and Y: a multiplication that went wrong, whose result is on the
/// curve all the same.
fn another_point(curve: Curve) -> impl Fn(&mut [u8]) + Send + Sync + 'static {
    let point = Curve::point(ec(curve).public()).unwrap();
    move |bytes: &mut [u8]| bytes.copy_from_slice(&point[1..])
}

#[test]
fn a_signature_with_another_point_of_the_curve_never_leaves() {
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        let key = ec(curve);
        let job = Job::new(key.clone(), signing(&key, 0));
        let Some((stands, broken)) = broken(Stage::EcdsaPoint, &job, another_point(curve)) else { return };
        assert_eq!(broken, fault(), "{curve}");
        let check = verifying(&job.work, &stands.unwrap());
        assert!(cpu(Job::new(key.public_key().clone(), check)).is_ok());
    }
}

#[test]
fn a_wrong_shared_secret_and_a_wrong_new_key_never_leave() {
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        let (key, other) = (ec(curve), ec(curve));
        let derive = Job::new(key.clone(), Work::EcdhDerive { peer: Curve::point(other.public()).unwrap() });
        let agree = Job::new(key.public_key().clone(), Work::EcdhEphemeral);
        let zero = |bytes: &mut [u8]| bytes.fill(0);
        for how in [flip as fn(&mut [u8]), zero] {
            let Some((stands, broken)) = self::broken(Stage::EcdhShared, &derive, how) else { return };
            assert_eq!((stands, broken), (cpu(derive.clone()), fault()), "{curve}");
            let Some((stands, broken)) = self::broken(Stage::EcdhShared, &agree, how) else { return };
            assert!(stands.is_ok());
            assert_eq!(broken, fault(), "{curve}");
        }
        let Some((stands, broken)) = broken(Stage::EcdhPoint, &agree, another_point(curve)) else { return };
        assert!(stands.is_ok());
        assert_eq!(broken, fault(), "{curve}");
    }
}

#[test]
fn a_flipped_bit_in_either_copy_of_a_private_key_spoils_its_signatures() {
    let Some(accelerator) = accelerator() else { return };
    for curve in [LaneCurve::P256, LaneCurve::P384, LaneCurve::P521] {
        let data = CurveData::new(curve).unwrap();
        let key = ec(curve.curve());
        let hash = Digest::Sha256.hash(b"content");
        let mut unit = EcUnit::new(accelerator.library);
        for copy in [None, Some(false), Some(true)] {
            let mut prepared = PrivateEc::new(&key, &data).unwrap();
            if let Some(formed) = copy {
                prepared.flip_bit(formed);
            }
            let stands = unit.sign(&data, &[&prepared], &[&hash], Tampering(None)).unwrap();
            assert_eq!(stands[0], copy.is_none());
        }
    }
}

#[test]
fn a_new_key_whose_point_is_off_the_curve_leaves_nothing() {
    let key = ec(Curve::P256);
    let job = Job::new(key.public_key().clone(), Work::EcdhEphemeral);
    let Some((stands, broken)) = broken(Stage::EcdhPoint, &job, flip) else { return };
    assert!(stands.is_ok());
    assert_eq!(broken, fault());
}

/// One lane that gives wrong results: every one, or the first `left` ones. What it computes is another point of the
/// curve where a point is asked for, and it finds every signature good.
struct BrokenLane {
    lane: usize,
    curve: Curve,
    left: AtomicUsize,
}

impl Tamper for BrokenLane {
    fn touch(&self, stage: Stage, lane: usize, bytes: &mut [u8]) {
        let less = |left: usize| left.checked_sub(1);
        if lane != self.lane || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
            return;
        }
        match stage {
            Stage::EcdsaPoint | Stage::EcdhPoint => another_point(self.curve)(bytes),
            Stage::EcdsaVerdict | Stage::EcdsaCheck => bytes.fill(1),
            _ => flip(bytes),
        }
    }
}

#[test]
fn whatever_one_lane_gets_wrong_once_or_always_no_wrong_result_leaves() {
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        let (key, other) = (ec(curve), ec(curve));
        let sign = signing(&key, 0);
        let derive = Work::EcdhDerive { peer: Curve::point(other.public()).unwrap() };
        let secret = cpu(Job::new(key.clone(), derive.clone())).unwrap();
        let is_right = |work: &Work, output: &Output| match work {
            Work::EcdsaSign { .. } => cpu(Job::new(key.public_key().clone(), verifying(work, output))).is_ok(),
            Work::EcdhDerive { .. } => *output == secret,
            _ => {
                let (point, secret) = output.split_at(curve.point_len());
                cpu(Job::new(key.clone(), Work::EcdhDerive { peer: point.to_vec() }))
                    .is_ok_and(|right| *right == *secret)
            }
        };
        for work in [sign, derive, Work::EcdhEphemeral] {
            for (batch, lane, times) in [(1, 0, 1), (1, 0, 9), (4, 5, 9), (5, 2, 9), (7, 6, 1), (8, 0, 9), (8, 7, 9)] {
                let tamper = Arc::new(BrokenLane { lane, curve, left: AtomicUsize::new(times) });
                let Some(accelerator) = accelerator() else { return };
                let mut engine = accelerator.tampered(tamper.clone()).engine().unwrap();
                let results = run_all(&mut engine, vec![Job::new(key.clone(), work.clone()); batch]);
                let refused = results.iter().filter(|result| **result == fault()).count();
                let touched = times - tamper.left.load(Ordering::Relaxed);
                let expected = if touched == 0 { 0..=0 } else { 1..=2 };
                assert!(expected.contains(&refused), "{curve} {work:?}: {refused} of {batch}, lane {lane}");
                for output in results.into_iter().flatten() {
                    assert!(is_right(&work, &output), "{curve} {work:?}");
                }
            }
        }
    }
}

#[test]
fn a_lane_that_refuses_another_ones_good_result_costs_that_result_and_no_more() {
    let (key, other) = (ec(Curve::P256), ec(Curve::P256));
    let derive = Job::new(key.clone(), Work::EcdhDerive { peer: Curve::point(other.public()).unwrap() });
    let agree = Job::new(key.public_key().clone(), Work::EcdhEphemeral);
    let sign = Job::new(key.clone(), signing(&key, 0));
    for (stage, job) in [(Stage::EcdsaCheck, sign), (Stage::EcdhSum, derive), (Stage::EcdhSum, agree)] {
        // Lane 3 checks what lane 2 computed.
        let Some((checked, own)) = broken(stage, &job, flip) else { return };
        assert_eq!(checked, fault(), "{stage:?}");
        assert!(own.is_ok(), "{stage:?}");
    }
}

#[test]
fn an_agreement_with_the_generator_or_its_opposite_is_the_public_key_itself() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        let key = ec(curve);
        let mut order = BigNum::new().unwrap();
        let mut context = openssl::bn::BigNumContext::new().unwrap();
        let group = EcGroup::from_curve_name(curve.nid()).unwrap();
        group.order(&mut order, &mut context).unwrap();
        order.sub_word(1).unwrap();
        for scalar in [BigNum::from_u32(1).unwrap(), order] {
            let mut point = openssl::ec::EcPoint::new(&group).unwrap();
            point.mul_generator2(&group, &scalar, &mut context).unwrap();
            let peer = EcKey::from_private_components(&group, &scalar, &point).unwrap();
            let peer = PrivateKey::clear(PKey::from_ec_key(peer).unwrap()).unwrap();
            let derive = Job::new(key.clone(), Work::EcdhDerive { peer: Curve::point(peer.public()).unwrap() });
            let agree = Job::new(peer.public_key().clone(), Work::EcdhEphemeral);
            for batch in [1, 4, 5, LANES] {
                let secrets = run_all(&mut engine, vec![derive.clone(); batch]);
                assert!(secrets.into_iter().all(|secret| secret == cpu(derive.clone())), "{curve}");
                for output in run_all(&mut engine, vec![agree.clone(); batch]) {
                    let output = output.unwrap();
                    let (point, secret) = output.split_at(curve.point_len());
                    assert_eq!(&point[1..=curve.coordinate_len()], secret, "{curve}");
                }
            }
            let wrong = broken(Stage::EcdhShared, &derive, flip).unwrap().1;
            assert_eq!(wrong, fault(), "{curve}");
        }
    }
}

/// The key with a private exponent that is not the public one's; its primes' exponents are right.
fn damaged(key: &PrivateKey) -> PrivateKey {
    let rsa = key.rsa().unwrap();
    let copy = |number: &openssl::bn::BigNumRef| number.to_owned().unwrap();
    let mut d = copy(rsa.d());
    d.add_word(2).unwrap();
    let damaged = match (rsa.p(), rsa.q(), rsa.dmp1(), rsa.dmq1(), rsa.iqmp()) {
        (Some(p), Some(q), Some(dp), Some(dq), Some(iq)) => {
            let (p, q, dp, dq, iq) = (copy(p), copy(q), copy(dp), copy(dq), copy(iq));
            Rsa::from_private_components(copy(rsa.n()), copy(rsa.e()), d, p, q, dp, dq, iq).unwrap()
        }
        _ => openssl::rsa::RsaPrivateKeyBuilder::new(copy(rsa.n()), copy(rsa.e()), d).unwrap().build(),
    };
    PrivateKey::clear(PKey::from_rsa(damaged).unwrap()).unwrap()
}

#[test]
fn a_damaged_key_is_refused_for_what_it_is_and_is_no_fault_of_the_lanes() {
    for der in [RSA_1024, RSA_2048] {
        let good = rsa(der);
        let bad = damaged(&good);
        let sign = signing(&good, 0);
        let expected = cpu(Job::new(good.clone(), sign.clone()));
        assert_eq!(cpu(Job::new(bad.clone(), sign.clone())), expected, "the processor has the primes' exponents");
        let Some(accelerator) = accelerator() else { return };
        let mut engine = accelerator.engine().unwrap();
        for bad in [bad, damaged(&without_primes(&good))] {
            for key in [&bad, &good] {
                let result = run_all(&mut engine, vec![Job::new(key.clone(), sign.clone())]).remove(0);
                if std::ptr::eq(key, &bad) {
                    let why = "the key's private exponent is not that of its public one".to_owned();
                    assert_eq!(result, Err(DeviceError::Refused { device: "lanes".to_owned(), why }));
                } else {
                    assert_eq!(result, expected);
                }
            }
        }
    }
}

#[test]
fn nothing_of_a_wrapped_key_is_left_when_the_call_ends() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let key = rsa(RSA_2048);
    for padding in [OAEP, RsaPadding::Pkcs1] {
        let work = Work::RsaWrap { padding, content_key: Output::new(vec![7; 32]) };
        let wrapped = run_all(&mut engine, vec![Job::new(key.public_key().clone(), work); 3]).remove(2).unwrap();
        assert!(engine.rsa.is_clear());
        let work = Work::RsaUnwrap { padding, wrapped: wrapped.to_vec(), expected_len: 32 };
        assert_eq!(&*run_all(&mut engine, vec![Job::new(key.clone(), work)]).remove(0).unwrap(), &[7; 32]);
        assert!(engine.rsa.is_clear());
    }
}

#[test]
fn nothing_of_an_agreement_is_left_and_a_damaged_public_key_gives_none() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let key = ec(Curve::P256);
    // Prepared as a point that is not on the curve, as a memory cell that went wrong leaves it.
    let (mut x, mut y) = ([0; limbs::EC_LIMBS_MAX], [0; limbs::EC_LIMBS_MAX]);
    (x[0], y[0]) = (1, 1);
    engine.public_ec.place(key.id(), || Ok::<_, DeviceError>(PublicEc { x, y })).unwrap();
    let agree = [ec(Curve::P256), key].map(|key| Job::new(key.public_key().clone(), Work::EcdhEphemeral));
    for batch in [1, 3] {
        let results = run_all(&mut engine, (0..batch).flat_map(|_| agree.clone()).collect());
        assert!(engine.ec.is_clear());
        for (lane, result) in results.into_iter().enumerate() {
            assert!(if lane % 2 == 0 { result.is_ok() } else { result == fault() }, "lane {lane}: {result:?}");
        }
    }
}

#[test]
fn a_foreign_public_key_that_can_not_be_made_ready_is_for_another_device_to_judge() {
    let errors = || BigNum::from_dec_str("no number").unwrap_err();
    let refused = rsa::Unfit::Library(errors()).public("lanes");
    assert!(matches!(refused, DeviceError::Refused { .. }) && refused.is_the_devices(), "{refused}");
    assert!(!refused.to_string().contains('\n'), "{refused}");
    assert!(matches!(rsa::Unfit::Library(errors()).private("lanes"), DeviceError::Library { .. }));
}

#[test]
fn blinding_factors_are_made_anew_after_their_uses() {
    let Some(accelerator) = accelerator() else { return };
    let mut engine = accelerator.engine().unwrap();
    let key = rsa(RSA_1024);
    let hash = Digest::Sha256.hash(b"content");
    let job = Job::new(key, Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash });
    let expected = cpu(job.clone());
    for _ in 0..3 * rsa::BLINDING_USES_MAX as usize / LANES {
        assert!(run_all(&mut engine, vec![job.clone(); LANES]).iter().all(|result| *result == expected));
    }
}
