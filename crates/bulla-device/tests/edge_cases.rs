//! What unauthenticated clients may send, and what every device must answer alike: one table, run against each device
//! there is.

#![allow(clippy::unwrap_used)]

mod coprocessor_common;

use std::collections::HashMap;
use std::path::PathBuf;

use bulla_device::{
    Accelerator, CpuDevice, Curve, Device, DeviceError, Digest, Finished, Job, Kind, LIBRARY_FILE, Output, PrivateKey,
    PublicKey, RsaPadding, RsaScheme, Work,
};
use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::md::Md;
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};
use openssl::sign::RsaPssSaltlen;

struct Case {
    name: String,
    job: Job,
    expect: Expect,
}

#[derive(Debug, Clone)]
enum Expect {
    /// These very bytes; none for a verification.
    Gives(Vec<u8>),
    /// Other bytes each time, this many.
    Random(usize),
    /// These bytes, derived from private key and ciphertext; with a token's key others, the same each time.
    Derived(Vec<u8>),
    BadSignature,
    /// An error that is not the device's fault.
    Error,
}

/// A token's key has a secret of its own.
fn is_derived(kind: Kind, output: &[u8], bytes: &[u8]) -> bool {
    output.len() == bytes.len() && (output == bytes) == (kind != Kind::Coprocessor)
}

/// Runs the whole table against a device.
fn every_case_is_answered_right(device: &mut dyn Device) {
    let cases = cases();
    let mut wrong = Vec::new();
    for case in &cases {
        let first = run(device, &case.job);
        let right = match (&case.expect, &first) {
            (Expect::Gives(bytes), Ok(output)) => **output == **bytes,
            (Expect::Random(len), Ok(output)) => {
                let second = run(device, &case.job);
                output.len() == *len && second.as_ref().is_ok_and(|second| second.len() == *len) && second != first
            }
            (Expect::Derived(bytes), Ok(output)) => {
                run(device, &case.job) == first && is_derived(device.kind(), output, bytes)
            }
            (Expect::BadSignature, Err(error)) => *error == DeviceError::BadSignature,
            (Expect::Error, Err(error)) => !error.is_the_devices() && *error != DeviceError::BadSignature,
            _ => false,
        };
        if !right {
            wrong.push(format!("{}: {first:?}, not {:?}", case.name, case.expect));
        }
    }
    assert!(wrong.is_empty(), "{} of {} on {}:\n{}", wrong.len(), cases.len(), device.name(), wrong.join("\n"));
    // And all at once, in calls with many different lanes.
    let mut jobs: Vec<Job> = cases.iter().zip(0..).map(|(case, id)| Job { id, ..case.job.clone() }).collect();
    let mut done = Vec::new();
    while !jobs.is_empty() {
        device.submit(&mut jobs).unwrap();
        device.poll(&mut done).unwrap();
    }
    assert_eq!(done.len(), cases.len());
    for finished in done {
        let case = &cases[finished.id as usize];
        let right = match (&case.expect, &finished.result) {
            (Expect::Gives(bytes), Ok(output)) => **output == **bytes,
            (Expect::Random(len), Ok(output)) => output.len() == *len,
            (Expect::Derived(bytes), Ok(output)) => is_derived(device.kind(), output, bytes),
            (Expect::BadSignature | Expect::Error, Err(error)) => !error.is_the_devices(),
            _ => false,
        };
        assert!(right, "among others: {}: {:?}", case.name, finished.result);
    }
}

fn run(device: &mut dyn Device, job: &Job) -> Result<Output, DeviceError> {
    let mut done = Vec::new();
    assert_eq!(device.submit(&mut vec![job.clone()]).unwrap(), 1);
    while done.is_empty() {
        device.poll(&mut done).unwrap();
    }
    done.remove(0).result
}

#[test]
fn the_cpu_answers_every_case_right() {
    every_case_is_answered_right(&mut CpuDevice::new("cpu"));
}

#[test]
fn the_accelerator_answers_every_case_right() {
    let library: PathBuf = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join(LIBRARY_FILE);
    match Accelerator::open("lanes", &library) {
        Ok(accelerator) => every_case_is_answered_right(&mut accelerator.engine().unwrap()),
        Err(error) => eprintln!("skipped: edge cases on the accelerator: {error}"),
    }
}

#[test]
fn the_coprocessor_answers_every_private_rsa_case_right() {
    let Some(token) = coprocessor_common::Token::softhsm() else { return };
    let device = token.coprocessor();
    let engine = coprocessor_common::engine(&device);
    let mut device = OnToken { token, engine, keys: HashMap::new(), others: CpuDevice::new("cpu"), count: 0 };
    every_case_is_answered_right(&mut device);
    assert!(device.count > 20, "{} cases were the token's", device.count);
}

#[test]
fn a_public_key_at_infinity_reaches_no_device() {
    for curve in Curve::ALL {
        let (group, _, key) = ec(*curve);
        // SubjectPublicKeyInfo: the algorithm and a bit string. OpenSSL reads one byte 00 as a point (SEC 1, 2.3.4).
        let spki = key.public().public_key_to_der().unwrap();
        let content = if spki[1] == 0x81 { &spki[3..] } else { &spki[2..] };
        let algorithm = &content[..2 + usize::from(content[1])];
        let infinity = [&[0x30, algorithm.len() as u8 + 4][..], algorithm, &[0x03, 2, 0, 0][..]].concat();
        let read = PKey::public_key_from_der(&infinity).unwrap();
        let made = PKey::from_ec_key(EcKey::from_public_key(&group, &EcPoint::new(&group).unwrap()).unwrap()).unwrap();
        for key in [read, made] {
            let refused = PublicKey::new(&key);
            assert!(matches!(refused, Err(DeviceError::Library { .. })), "{curve}: {refused:?}");
        }
        assert!(PublicKey::new(key.public()).is_ok(), "{curve}");
    }
}

#[test]
#[ignore = "the helper process of the coprocessor's test"]
fn the_helper_process() {
    assert!(std::env::var_os(coprocessor_common::HELPER_VARIABLE).is_some(), "only the other test starts it");
    bulla_device::coprocessor::helper::run(std::io::stdin()).expect("a control socket");
    std::process::exit(0);
}

/// Puts the RSA keys of jobs on a token and has their private operations done there; the processor does the rest.
/// SoftHSM2's tool imports EC keys that may not derive, so those are tested with keys made on the token, elsewhere.
struct OnToken {
    token: coprocessor_common::Token,
    engine: Box<dyn Device>,
    keys: HashMap<[u8; 32], PrivateKey>,
    others: CpuDevice,
    count: usize,
}

impl Device for OnToken {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        let Some(job) = jobs.first().cloned() else { return Ok(0) };
        let is_the_tokens = matches!(&*job.work, Work::RsaSign { .. } | Work::RsaUnwrap { .. });
        match job.key.private().and_then(PrivateKey::exportable).filter(|key| is_the_tokens && key.rsa().is_ok()) {
            None => {
                jobs.remove(0);
                self.others.submit(&mut vec![job])
            }
            Some(clear) => {
                let number = self.keys.len() + 1;
                let key = self.keys.entry(job.key.id()).or_insert_with(|| {
                    self.token.import(clear, "edge", &format!("{number:04x}"));
                    PrivateKey::on_token(job.key.public().clone(), "pkcs11:object=edge")
                });
                let taken = self.engine.submit(&mut vec![Job { key: key.clone().into(), ..job }])?;
                jobs.drain(..taken);
                self.count += taken;
                Ok(taken)
            }
        }
    }

    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        self.engine.poll(done)?;
        self.others.poll(done)
    }

    fn name(&self) -> &str {
        self.engine.name()
    }

    fn kind(&self) -> Kind {
        self.engine.kind()
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bits in [1024, 2048] {
        rsa_cases(&mut cases, bits);
    }
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        ecdsa_cases(&mut cases, curve);
        ecdh_cases(&mut cases, curve);
    }
    cases
}

const DIGEST: Digest = Digest::Sha256;
/// The DER of a SHA-256 `DigestInfo` up to the hash (RFC 8017, 9.2, note 1).
const INFO: &[u8] = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";

fn rsa_cases(cases: &mut Vec<Case>, bits: u32) {
    let rsa = Rsa::generate(bits).unwrap();
    let key = PrivateKey::clear(PKey::from_rsa(rsa.clone()).unwrap()).unwrap();
    let len = rsa.size() as usize;
    let numbers = numbers_around(rsa.n(), len);
    rsa_signature_cases(cases, &rsa, &key, &numbers);
    unwrap_cases(cases, &rsa, &key, &numbers);
    let mut add = |name: &str, work, expect| {
        cases.push(Case { name: format!("RSA {bits} {name}"), job: Job::new(key.clone(), work), expect });
    };
    let hash = DIGEST.hash(b"content");
    let sign = |scheme, digest| Work::RsaSign { scheme, digest, hash };
    add("sign: a hash of another digest", sign(RsaScheme::Pkcs1, Digest::Sha384), Expect::Error);
    add("sign: a hash of another digest, PSS", sign(RsaScheme::Pss, Digest::Sha512), Expect::Error);
    if bits == 1024 {
        let hash = Digest::Sha512.hash(b"content");
        let work = Work::RsaSign { scheme: RsaScheme::Pss, digest: Digest::Sha512, hash };
        add("sign: PSS with SHA-512 does not fit", work, Expect::Error);
    }
    let wrap = |padding, len| Work::RsaWrap { padding, content_key: Output::new(vec![7; len]) };
    add("wrap: one byte too many for OAEP", wrap(RsaPadding::Oaep { digest: DIGEST }, len - 65), Expect::Error);
    add("wrap: one byte too many for PKCS#1", wrap(RsaPadding::Pkcs1, len - 10), Expect::Error);
    add("an EC operation", Work::EcdsaSign { hash }, Expect::Error);
    add("an EC agreement", Work::EcdhEphemeral, Expect::Error);
}

/// Numbers at the edges of a modulus, as many bytes as it has.
fn numbers_around(n: &BigNumRef, len: usize) -> Vec<(&'static str, Vec<u8>)> {
    let padded = |number: &BigNumRef| number.to_vec_padded(len as i32).unwrap();
    let mut before = n.to_owned().unwrap();
    before.sub_word(1).unwrap();
    let mut after = n.to_owned().unwrap();
    after.add_word(1).unwrap();
    vec![
        ("0", vec![0; len]),
        ("1", padded(&BigNum::from_u32(1).unwrap())),
        ("2", padded(&BigNum::from_u32(2).unwrap())),
        ("n - 1", padded(&before)),
        ("n", padded(n)),
        ("n + 1", padded(&after)),
        ("all bits", vec![0xff; len]),
    ]
}

fn rsa_signature_cases(
    cases: &mut Vec<Case>,
    rsa: &Rsa<Private>,
    key: &PrivateKey,
    numbers: &[(&'static str, Vec<u8>)],
) {
    let (hash, len) = (DIGEST.hash(b"content"), rsa.size() as usize);
    let mut add = |name: &str, scheme, signature: Vec<u8>, good: bool| {
        let expect = if good { Expect::Gives(Vec::new()) } else { Expect::BadSignature };
        let name = format!("RSA {} verify {scheme:?}: {name}", 8 * len);
        let work = Work::RsaVerify { scheme, digest: DIGEST, hash, signature };
        cases.push(Case { name, job: Job::new(key.public_key().clone(), work), expect });
    };
    let raw = |encoded: &[u8]| {
        let mut signature = vec![0; len];
        rsa.private_encrypt(encoded, &mut signature, Padding::NONE).unwrap();
        signature
    };
    // 00 01 ff … ff 00 and what follows.
    let encoded = |info: &[u8]| {
        let mut encoded = vec![0xff; len - info.len()];
        encoded[0] = 0;
        encoded[1] = 1;
        *encoded.last_mut().unwrap() = 0;
        encoded.extend_from_slice(info);
        encoded
    };
    let info = [INFO, &hash].concat();
    let good = encoded(&info);
    add("right", RsaScheme::Pkcs1, raw(&good), true);
    let changed = |at: usize, to: u8| {
        let mut changed = good.clone();
        changed[at] = to;
        changed
    };
    let mut without_null = info.clone();
    without_null.drain(15..17);
    without_null[1] -= 2;
    without_null[3] -= 2;
    let long_form = [&[0x30, 0x81, 0x31], &info[2..]].concat();
    let other_oid = [&info[..14], &[2], &info[15..]].concat();
    // The hash is not at the end, and few bytes of padding are in front (Bleichenbacher 2006).
    let mut forged = vec![0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
    forged.extend_from_slice(&info);
    forged.resize(len, 0);
    for (name, encoded) in [
        ("block type 2", changed(1, 2)),
        ("block type 0", changed(1, 0)),
        ("a hole in the padding", changed(20, 0xfe)),
        ("a zero in the padding", changed(20, 0)),
        ("no separator", changed(len - info.len() - 1, 0xff)),
        ("another hash", changed(len - 1, !good[len - 1])),
        ("parameters absent", encoded(&without_null)),
        ("a length in long form", encoded(&long_form)),
        ("another digest's identifier", encoded(&other_oid)),
        ("bytes behind the hash", encoded(&[&info[..], &[0, 0]].concat())),
        ("a hash cut short", encoded(&info[..info.len() - 1])),
        ("nothing but the hash", encoded(&hash)),
        ("garbage where padding should be", forged),
        ("no padding at all", vec![0; len]),
    ] {
        add(name, RsaScheme::Pkcs1, raw(&encoded), false);
    }
    let pss = |salt, mgf1: Digest| {
        let private = PKey::from_rsa(rsa.clone()).unwrap();
        let mut context = PkeyCtx::new(&private).unwrap();
        context.sign_init().unwrap();
        context.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
        context.set_signature_md(Md::sha256()).unwrap();
        context.set_rsa_mgf1_md(mgf1.md()).unwrap();
        context.set_rsa_pss_saltlen(salt).unwrap();
        let mut signature = Vec::new();
        context.sign_to_vec(&hash, &mut signature).unwrap();
        signature
    };
    let right = pss(RsaPssSaltlen::DIGEST_LENGTH, DIGEST);
    add("right", RsaScheme::Pss, right.clone(), true);
    add("without salt", RsaScheme::Pss, pss(RsaPssSaltlen::custom(0), DIGEST), false);
    add("with a short salt", RsaScheme::Pss, pss(RsaPssSaltlen::custom(20), DIGEST), false);
    add("with a long salt", RsaScheme::Pss, pss(RsaPssSaltlen::custom(40), DIGEST), false);
    add("another digest for its mask", RsaScheme::Pss, pss(RsaPssSaltlen::DIGEST_LENGTH, Digest::Sha384), false);
    let mut plain = vec![0; len];
    rsa.public_decrypt(&right, &mut plain, Padding::NONE).unwrap();
    for (name, at, to) in [("another trailer", len - 1, 0xcc), ("a changed hash", len - 9, !plain[len - 9])] {
        let mut encoded = plain.clone();
        encoded[at] = to;
        add(name, RsaScheme::Pss, raw(&encoded), false);
    }
    add("PKCS#1 in place of PSS", RsaScheme::Pss, raw(&good), false);
    add("PSS in place of PKCS#1", RsaScheme::Pkcs1, right.clone(), false);
    for scheme in [RsaScheme::Pkcs1, RsaScheme::Pss] {
        let right = if scheme == RsaScheme::Pss { right.clone() } else { raw(&good) };
        add("empty", scheme, Vec::new(), false);
        add("a byte short", scheme, right[1..].to_vec(), false);
        add("cut at the end", scheme, right[..len - 1].to_vec(), false);
        add("a zero in front", scheme, [&[0], &right[..]].concat(), false);
        add("a zero behind", scheme, [&right[..], &[0]].concat(), false);
        for (name, number) in numbers {
            add(name, scheme, number.clone(), false);
        }
    }
    let other = Digest::Sha384.hash(b"content");
    let signature = raw(&good);
    let work = Work::RsaVerify { scheme: RsaScheme::Pkcs1, digest: DIGEST, hash: other, signature };
    let name = "RSA verify: a hash of another digest".to_owned();
    cases.push(Case { name, job: Job::new(key.public_key().clone(), work), expect: Expect::BadSignature });
}

fn unwrap_cases(cases: &mut Vec<Case>, rsa: &Rsa<Private>, key: &PrivateKey, numbers: &[(&'static str, Vec<u8>)]) {
    let len = rsa.size() as usize;
    let (oaep, pkcs1) = (RsaPadding::Oaep { digest: DIGEST }, RsaPadding::Pkcs1);
    let mut add = |name: &str, padding, wrapped: Vec<u8>, expect| {
        let name = format!("RSA {} unwrap {padding:?}: {name}", 8 * len);
        let expect = match (padding, expect) {
            (RsaPadding::Pkcs1, Expect::Random(len)) => {
                Expect::Derived(key.rejected(padding, &wrapped, len).unwrap().to_vec())
            }
            (_, expect) => expect,
        };
        let work = Work::RsaUnwrap { padding, wrapped, expected_len: 32 };
        cases.push(Case { name, job: Job::new(key.clone(), work), expect });
    };
    let raw = |encoded: &[u8]| {
        let mut wrapped = vec![0; len];
        rsa.public_encrypt(encoded, &mut wrapped, Padding::NONE).unwrap();
        wrapped
    };
    let content_key = [7u8; 32];
    let block = |padding: usize, key: &[u8]| {
        let mut block = vec![0xaa; len - key.len()];
        block[..2].copy_from_slice(&[0, 2]);
        block[2 + padding] = 0;
        block.extend_from_slice(key);
        block
    };
    let whole = len - 32 - 3;
    let good = block(whole, &content_key);
    add("right", pkcs1, raw(&good), Expect::Gives(content_key.to_vec()));
    let changed = |at: usize, to: u8| {
        let mut changed = good.clone();
        changed[at] = to;
        changed
    };
    for (name, encoded) in [
        ("block type 1", changed(1, 1)),
        ("block type 0", changed(1, 0)),
        ("a first byte that is not 0", changed(0, 1)),
        ("no separator", changed(2 + whole, 0xaa)),
        ("a separator at once", changed(2, 0)),
        ("seven bytes of padding", changed(2 + 7, 0)),
        ("a separator earlier on", changed(2 + whole - 1, 0)),
        ("a key too short", block(len - 31 - 3, &content_key[..31])),
        ("a key too long", block(len - 33 - 3, &[7; 33])),
        ("an empty key", block(len - 3, &[])),
        ("all zero but the type", {
            let mut block = vec![0; len];
            block[1] = 2;
            block
        }),
    ] {
        add(name, pkcs1, raw(&encoded), Expect::Random(32));
    }
    let wrapped = |digest: Digest, mgf1: Digest, label: &[u8], key: &[u8]| {
        let public = PKey::from_rsa(rsa.clone()).unwrap();
        let mut context = PkeyCtx::new(&public).unwrap();
        context.encrypt_init().unwrap();
        context.set_rsa_padding(Padding::PKCS1_OAEP).unwrap();
        context.set_rsa_oaep_md(digest.md()).unwrap();
        context.set_rsa_mgf1_md(mgf1.md()).unwrap();
        if !label.is_empty() {
            context.set_rsa_oaep_label(label).unwrap();
        }
        let mut wrapped = Vec::new();
        context.encrypt_to_vec(key, &mut wrapped).unwrap();
        wrapped
    };
    let right = wrapped(DIGEST, DIGEST, &[], &content_key);
    add("right", oaep, right.clone(), Expect::Gives(content_key.to_vec()));
    let mut plain = vec![0; len];
    rsa.private_decrypt(&right, &mut plain, Padding::NONE).unwrap();
    let changed = |at: usize, bit: u8| {
        let mut changed = plain.clone();
        changed[at] ^= bit;
        changed
    };
    add("another label", oaep, wrapped(DIGEST, DIGEST, b"label", &content_key), Expect::Random(32));
    add("another digest for the mask", oaep, wrapped(DIGEST, Digest::Sha384, &[], &content_key), Expect::Random(32));
    add("a key too short", oaep, wrapped(DIGEST, DIGEST, &[], &content_key[..31]), Expect::Random(32));
    add("a key too long", oaep, wrapped(DIGEST, DIGEST, &[], &[7; 33]), Expect::Random(32));
    add("an empty key", oaep, wrapped(DIGEST, DIGEST, &[], &[]), Expect::Random(32));
    for (name, encoded) in [
        ("a first byte that is not 0", changed(0, 1)),
        ("a changed seed", changed(5, 1)),
        ("a changed label hash", changed(40, 1)),
        ("a changed separator", changed(len - 33, 1)),
        ("a changed fill", changed(len - 34, 1)),
    ] {
        add(name, oaep, raw(&encoded), Expect::Random(32));
    }
    add("PKCS#1 in place of OAEP", oaep, raw(&good), Expect::Random(32));
    add("OAEP in place of PKCS#1", pkcs1, right.clone(), Expect::Random(32));
    for padding in [oaep, pkcs1] {
        let right = if padding == oaep { right.clone() } else { raw(&good) };
        add("empty", padding, Vec::new(), Expect::Random(32));
        add("a byte short", padding, right[1..].to_vec(), Expect::Random(32));
        add("a zero in front", padding, [&[0], &right[..]].concat(), Expect::Random(32));
        add("a zero behind", padding, [&right[..], &[0]].concat(), Expect::Random(32));
        for (name, number) in numbers {
            add(name, padding, number.clone(), Expect::Random(32));
        }
    }
}

fn ec(curve: Curve) -> (EcGroup, EcKey<Private>, PrivateKey) {
    let group = EcGroup::from_curve_name(curve.nid()).unwrap();
    let ec = EcKey::generate(&group).unwrap();
    let key = PrivateKey::clear(PKey::from_ec_key(ec.clone()).unwrap()).unwrap();
    (group, ec, key)
}

fn ecdsa_cases(cases: &mut Vec<Case>, curve: Curve) {
    let (group, ec, key) = ec(curve);
    let mut n = BigNum::new().unwrap();
    let mut context = BigNumContext::new().unwrap();
    group.order(&mut n, &mut context).unwrap();
    let mut add = |name: &str, digest: Digest, signature: Vec<u8>, good: bool| {
        let expect = if good { Expect::Gives(Vec::new()) } else { Expect::BadSignature };
        let work = Work::EcdsaVerify { hash: digest.hash(b"content"), signature };
        let name = format!("{curve} verify: {name}");
        cases.push(Case { name, job: Job::new(key.public_key().clone(), work), expect });
    };
    for digest in Digest::ALL {
        let signature = EcdsaSig::sign(&digest.hash(b"content"), &ec).unwrap();
        add(&format!("right, {digest}"), *digest, signature.to_der().unwrap(), true);
    }
    let right = EcdsaSig::sign(&DIGEST.hash(b"content"), &ec).unwrap();
    let (r, s) = (right.r(), right.s());
    let sum = |a: &BigNumRef, b: &BigNumRef| {
        let mut sum = BigNum::new().unwrap();
        sum.checked_add(a, b).unwrap();
        sum
    };
    let less = |a: &BigNumRef, b: &BigNumRef| {
        let mut difference = BigNum::new().unwrap();
        difference.checked_sub(a, b).unwrap();
        difference
    };
    let small = |number| BigNum::from_u32(number).unwrap();
    let der = |r: &BigNumRef, s: &BigNumRef| {
        let (r, s) = (r.to_owned().unwrap(), s.to_owned().unwrap());
        EcdsaSig::from_private_components(r, s).unwrap().to_der().unwrap()
    };
    // Both s and n - s are signatures; no test here needs them to be one only.
    add("n - s", DIGEST, der(r, &less(&n, s)), true);
    let one = small(1);
    for (name, r, s) in [
        ("r = 0", &*small(0), s),
        ("s = 0", r, &*small(0)),
        ("both 0", &*small(0), &*small(0)),
        ("r = 1", &*one, s),
        ("s = 1", r, &*one),
        ("both 1", &*one, &*one),
        ("r = n", &*n, s),
        ("s = n", r, &*n),
        ("r = n - 1", &*less(&n, &one), s),
        ("s = n - 1", r, &*less(&n, &one)),
        ("r = n + 1", &*sum(&n, &one), s),
        ("r + n", &*sum(r, &n), s),
        ("s + n", r, &*sum(s, &n)),
        ("r and s exchanged", s, r),
        (
            "r too long by far",
            &*{
                let mut long = BigNum::new().unwrap();
                long.set_bit(700).unwrap();
                long
            },
            s,
        ),
    ] {
        add(name, DIGEST, der(r, s), false);
    }
    add("of another hash", Digest::Sha384, der(r, s), false);
    let good = der(r, s);
    let body = if good[1] == 0x81 { 3 } else { 2 };
    let with_body = |content: &[u8]| {
        let mut der = vec![0x30];
        if content.len() >= 0x80 {
            der.push(0x81);
        }
        der.push(content.len() as u8);
        der.extend_from_slice(content);
        der
    };
    let content = &good[body..];
    let r_len = usize::from(content[1]);
    let (r_der, s_der) = content.split_at(2 + r_len);
    let padded_r = [&[0x02, content[1] + 1, 0], &r_der[2..]].concat();
    let negative_r = [&[0x02, content[1], r_der[2] | 0x80], &r_der[3..]].concat();
    let long_r = [&[0x02, 0x81, content[1]], &r_der[2..]].concat();
    let mut wrong_tag = good.clone();
    wrong_tag[0] = 0x31;
    for (name, signature) in [
        ("empty", Vec::new()),
        ("a zero behind", [&good[..], &[0]].concat()),
        ("a byte short", good[..good.len() - 1].to_vec()),
        ("nothing in it", vec![0x30, 0]),
        ("another tag", wrong_tag),
        ("something third in it", with_body(&[content, &[0x05, 0x00]].concat())),
        ("r with a zero in front", with_body(&[&padded_r[..], s_der].concat())),
        ("a negative r", with_body(&[&negative_r[..], s_der].concat())),
        ("r's length in long form", with_body(&[&long_r[..], s_der].concat())),
        ("no s", with_body(r_der)),
        ("an empty r", with_body(&[&[0x02, 0x00], s_der].concat())),
        ("indefinite length", [&[0x30, 0x80], content, &[0, 0]].concat()),
        ("a length in three bytes", [&[0x30, 0x82, 0, content.len() as u8], content].concat()),
        ("r as an octet string", with_body(&[&[0x04], &r_der[1..], s_der].concat())),
        ("plain r and s", [r.to_vec(), s.to_vec()].concat()),
    ] {
        add(name, DIGEST, signature, false);
    }
    let hash = DIGEST.hash(b"content");
    for (name, work) in [
        ("an RSA signature", Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: DIGEST, hash }),
        ("an unwrap", Work::RsaUnwrap { padding: RsaPadding::Pkcs1, wrapped: vec![0; 256], expected_len: 32 }),
    ] {
        let name = format!("{curve} {name}");
        cases.push(Case { name, job: Job::new(key.clone(), work), expect: Expect::Error });
    }
}

fn ecdh_cases(cases: &mut Vec<Case>, curve: Curve) {
    let (group, own, key) = ec(curve);
    let len = curve.coordinate_len();
    let mut context = BigNumContext::new().unwrap();
    let mut add = |name: &str, peer: Vec<u8>, expect| {
        let name = format!("{curve} derive: {name}");
        cases.push(Case { name, job: Job::new(key.clone(), Work::EcdhDerive { peer }), expect });
    };
    let other = EcKey::generate(&group).unwrap();
    let bytes = |point: &EcPoint, form| point.to_bytes(&group, form, &mut BigNumContext::new().unwrap()).unwrap();
    let whole = |point: &EcPoint| bytes(point, PointConversionForm::UNCOMPRESSED);
    let shared = |point: &EcPoint| curve.agree(&own, point).unwrap().to_vec();
    let peer = other.public_key().to_owned(&group).unwrap();
    let generator = group.generator_opt().unwrap().to_owned(&group).unwrap();
    let mut opposite = own.public_key().to_owned(&group).unwrap();
    opposite.invert2(&group, &mut context).unwrap();
    for (name, point) in [("right", &peer), ("the generator", &generator), ("our own point, negated", &opposite)] {
        add(name, whole(point), Expect::Gives(shared(point)));
    }
    let right = whole(&peer);
    let changed = |at: usize, bit: u8| {
        let mut changed = right.clone();
        changed[at] ^= bit;
        changed
    };
    let (mut p, mut a, mut b) = (BigNum::new().unwrap(), BigNum::new().unwrap(), BigNum::new().unwrap());
    group.components_gfp(&mut p, &mut a, &mut b, &mut context).unwrap();
    // A coordinate at or above the prime, where it still has room.
    let mut x = BigNum::from_slice(&right[1..=len]).unwrap();
    x = {
        let mut sum = BigNum::new().unwrap();
        sum.checked_add(&x, &p).unwrap();
        sum
    };
    let prime = p.to_vec_padded(len as i32).unwrap();
    let mut points = vec![
        ("x off the curve", changed(len, 1)),
        ("y off the curve", changed(2 * len, 1)),
        ("compressed", bytes(&peer, PointConversionForm::COMPRESSED)),
        ("hybrid", bytes(&peer, PointConversionForm::HYBRID)),
        ("infinity", vec![0]),
        ("infinity, at full length", vec![0; 1 + 2 * len]),
        ("(0, 0)", [&[4][..], &vec![0; 2 * len]].concat()),
        ("(p, p)", [&[4][..], &prime, &prime].concat()),
        ("all bits", [&[4][..], &vec![0xff; 2 * len]].concat()),
        ("coordinates exchanged", [&[4], &right[1 + len..], &right[1..=len]].concat()),
        ("empty", Vec::new()),
        ("a byte short", right[..2 * len].to_vec()),
        ("a byte more", [&right[..], &[0]].concat()),
        ("another first byte", changed(0, 1)),
        ("a point of P-224", {
            let group = EcGroup::from_curve_name(Curve::P224.nid()).unwrap();
            let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
            Curve::point(&key).unwrap()
        }),
    ];
    if let Ok(x) = x.to_vec_padded(len as i32) {
        points.push(("x + p", [&[4], &x[..], &right[1 + len..]].concat()));
    }
    // Points of curves with another b, whose orders have small factors: what an invalid-curve attack sends.
    for x in 2..6u8 {
        let mut point = vec![0; 1 + 2 * len];
        (point[0], point[len], point[2 * len]) = (4, x, 1);
        points.push(("a point of another curve", point));
    }
    for (name, point) in points {
        add(name, point, Expect::Random(len));
    }
}
