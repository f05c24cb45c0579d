//! The coprocessor with SoftHSM2 as its token, and with OpenSSL as the judge.

mod coprocessor_common;

use bulla_device::coprocessor::{Coprocessor, CoprocessorSettings, NewKey};
use bulla_device::{
    CpuDevice, Curve, DeviceError, Digest, Driver, Job, KeyKind, Output, PrivateKey, PublicKey, RsaPadding, RsaScheme,
    Work,
};
use coprocessor_common::{HELPER_VARIABLE, Token, engine, run};
use openssl::ec::{EcGroup, EcKey};
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;

const OAEP: RsaPadding = RsaPadding::Oaep { digest: Digest::Sha256 };

#[test]
#[ignore = "the helper process of the other tests"]
fn the_helper_process() {
    assert!(std::env::var_os(HELPER_VARIABLE).is_some(), "only the other tests start it");
    bulla_device::coprocessor::helper::run(std::io::stdin()).expect("a control socket");
    // Not what the test harness would print.
    std::process::exit(0);
}

fn rsa(bits: u32) -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(bits).expect("a key")).expect("a key")
}

fn ec(curve: Curve) -> PKey<Private> {
    let mut group = EcGroup::from_curve_name(curve.nid()).expect("a curve");
    group.set_asn1_flag(openssl::ec::Asn1Flag::NAMED_CURVE);
    PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key")
}

/// Puts the key on the token; returns it as one of the token's, and as a clear one.
fn imported(token: &Token, key: PKey<Private>, label: &str, id: &str) -> (PrivateKey, PrivateKey) {
    token.import(&key, label, id);
    let clear = PrivateKey::clear(key).expect("a key");
    let uri = format!("pkcs11:token=Bulla%20test;object={label};type=private");
    (PrivateKey::on_token(clear.public_key().clone(), uri), clear)
}

fn on_cpu(key: &PrivateKey, work: Work) -> Result<Output, DeviceError> {
    run(&mut CpuDevice::new("CPU"), key, work)
}

fn wrap(key: &PrivateKey, padding: RsaPadding, content_key: &[u8]) -> Vec<u8> {
    on_cpu(key, Work::RsaWrap { padding, content_key: Output::new(content_key.to_vec()) })
        .expect("an envelope")
        .to_vec()
}

#[test]
fn every_operation_on_the_token_gives_what_openssl_accepts() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    for (bits, id) in [(1024, "01"), (2048, "02"), (3072, "03"), (4096, "04")] {
        let (key, clear) = imported(&token, rsa(bits), &format!("rsa{bits}"), id);
        for digest in Digest::ALL.iter().copied() {
            let hash = digest.hash(b"content");
            for scheme in [RsaScheme::Pkcs1, RsaScheme::Pss] {
                let sign = Work::RsaSign { scheme, digest, hash };
                if bits == 1024 && scheme == RsaScheme::Pss && digest == Digest::Sha512 {
                    // It does not fit, and is refused as the processor refuses it.
                    assert!(matches!(run(&mut *engine, &key, sign.clone()), Err(DeviceError::Library { .. })));
                    assert!(matches!(on_cpu(&clear, sign), Err(DeviceError::Library { .. })));
                    continue;
                }
                let signature = run(&mut *engine, &key, sign).expect("a signature").to_vec();
                let verify = Work::RsaVerify { scheme, digest, hash, signature };
                assert_eq!(on_cpu(&clear, verify).expect("a good signature").len(), 0, "{bits} {scheme:?} {digest}");
            }
            for padding in [RsaPadding::Oaep { digest }, RsaPadding::Pkcs1] {
                if bits == 1024 && padding != OAEP && padding != RsaPadding::Pkcs1 {
                    continue;
                }
                let wrapped = wrap(&clear, padding, &[7; 32]);
                let unwrap = Work::RsaUnwrap { padding, wrapped, expected_len: 32 };
                assert_eq!(&*run(&mut *engine, &key, unwrap).expect("a key"), &[7; 32], "{bits} {padding:?}");
            }
        }
    }
    for curve in Curve::ALL.iter().copied() {
        // SoftHSM2's tool imports EC keys that may not derive.
        let (public, uri) = device.generate(NewKey::Ec(curve), "ec").expect("a key");
        let key = PrivateKey::on_token(public, uri.to_string());
        for digest in Digest::ALL {
            let hash = digest.hash(b"content");
            let signature = run(&mut *engine, &key, Work::EcdsaSign { hash }).expect("a signature").to_vec();
            on_cpu(&key, Work::EcdsaVerify { hash, signature }).expect("a good signature");
        }
        // Often enough for a secret that begins with a zero.
        for round in 0..300 {
            let out = on_cpu(&key, Work::EcdhEphemeral).expect("an agreement");
            let (point, secret) = out.split_at(curve.point_len());
            let derived = run(&mut *engine, &key, Work::EcdhDerive { peer: point.to_vec() });
            assert_eq!(derived.as_deref(), Ok(secret), "{curve}, round {round}");
        }
    }
}

#[test]
fn a_failed_unwrap_gives_a_key_and_never_an_error() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    let (key, clear) = imported(&token, rsa(1024), "unwrap", "01");
    let good = wrap(&clear, OAEP, &[7; 32]);
    let mut flipped = good.clone();
    flipped[40] ^= 1;
    let cases: [(RsaPadding, Vec<u8>); 9] = [
        (OAEP, flipped.clone()),
        (RsaPadding::Pkcs1, flipped),
        (OAEP, wrap(&clear, OAEP, &[7; 16])),
        (RsaPadding::Pkcs1, wrap(&clear, RsaPadding::Pkcs1, &[7; 33])),
        (RsaPadding::Pkcs1, good.clone()),
        (OAEP, good[1..].to_vec()),
        (OAEP, Vec::new()),
        (OAEP, vec![0xff; 128]),
        (OAEP, vec![0; 128]),
    ];
    for (padding, wrapped) in cases {
        let work = Work::RsaUnwrap { padding, wrapped, expected_len: 32 };
        let first = run(&mut *engine, &key, work.clone()).expect("a key");
        let second = run(&mut *engine, &key, work).expect("a key");
        assert_eq!(first.len(), 32);
        assert_eq!(first == second, padding == RsaPadding::Pkcs1, "random with OAEP, derived with PKCS#1 v1.5");
        assert_ne!(&*first, &[7; 32]);
    }
}

#[test]
fn a_point_off_the_curve_gives_random_bytes() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    let (key, _) = imported(&token, ec(Curve::P256), "derive", "01");
    let mut point = Curve::point(&ec(Curve::P256)).expect("a point");
    point[64] ^= 1;
    let first = run(&mut *engine, &key, Work::EcdhDerive { peer: point.clone() }).expect("random bytes");
    let second = run(&mut *engine, &key, Work::EcdhDerive { peer: point }).expect("random bytes");
    assert_eq!(first.len(), 32);
    assert_ne!(first, second);
    for peer in [Curve::point(&ec(Curve::P384)).expect("a point"), vec![0], Vec::new()] {
        assert_eq!(run(&mut *engine, &key, Work::EcdhDerive { peer }).expect("random bytes").len(), 32);
    }
}

#[test]
fn a_key_made_on_the_token_is_found_by_its_uri_and_does_everything() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    let kinds = [NewKey::Rsa(2048), NewKey::Ec(Curve::P256), NewKey::Ec(Curve::P521), NewKey::Ec(Curve::P192)];
    for kind in kinds {
        let (public, uri) = device.generate(kind, "made here").expect("a key");
        let key = PrivateKey::on_token(public.clone(), uri.to_string());
        let hash = Digest::Sha256.hash(b"content");
        let judge = |work| run(&mut CpuDevice::new("CPU"), &key, work);
        match public.kind() {
            KeyKind::Rsa => {
                let (scheme, digest) = (RsaScheme::Pss, Digest::Sha256);
                let signature = run(&mut *engine, &key, Work::RsaSign { scheme, digest, hash }).expect("one").to_vec();
                judge(Work::RsaVerify { scheme, digest, hash, signature }).expect("a good signature");
                let wrap = Work::RsaWrap { padding: OAEP, content_key: Output::new(vec![9; 32]) };
                let wrapped = judge(wrap).expect("an envelope").to_vec();
                let unwrap = Work::RsaUnwrap { padding: OAEP, wrapped, expected_len: 32 };
                assert_eq!(&*run(&mut *engine, &key, unwrap).expect("a key"), &[9; 32]);
            }
            KeyKind::Ec(curve) => {
                let signature = run(&mut *engine, &key, Work::EcdsaSign { hash }).expect("a signature").to_vec();
                judge(Work::EcdsaVerify { hash, signature }).expect("a good signature");
                let out = judge(Work::EcdhEphemeral).expect("an agreement");
                let (point, secret) = out.split_at(curve.point_len());
                let derived = run(&mut *engine, &key, Work::EcdhDerive { peer: point.to_vec() }).expect("a secret");
                assert_eq!(&*derived, secret);
            }
            other => panic!("a token made {other}"),
        }
    }
}

#[test]
fn a_key_that_is_not_there_or_not_the_certificates_is_refused_by_name() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    let hash = Digest::Sha256.hash(b"content");
    let sign_rsa = Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash };
    let (rsa_key, _) = imported(&token, rsa(2048), "rsa", "01");
    let (ec_key, _) = imported(&token, ec(Curve::P256), "ec", "02");
    let mut refused = |key: &PrivateKey, uri: &str, work: &Work, why: &str| {
        let key = PrivateKey::on_token(key.public_key().clone(), uri);
        let error = run(&mut *engine, &key, work.clone()).expect_err(why);
        assert!(matches!(&error, DeviceError::Refused { .. }) && error.to_string().contains(why), "{error}");
    };
    let uri = |rest: &str| format!("pkcs11:token=Bulla%20test;{rest}");
    refused(&rsa_key, &uri("object=none"), &sign_rsa, "no private key on token \"Bulla test\" fits pkcs11:");
    refused(&rsa_key, &uri("object=rsa;id=%02"), &sign_rsa, "no private key on token");
    refused(&rsa_key, &uri("object=rsa;type=public"), &sign_rsa, "does not name a private key");
    refused(&rsa_key, "pkcs11:token=other;object=rsa", &sign_rsa, "is not on token \"Bulla test\"");
    refused(&rsa_key, &uri("colour=red"), &sign_rsa, "unknown attribute");
    let other_rsa = PrivateKey::clear(rsa(2048)).expect("a key");
    refused(&other_rsa, &uri("object=rsa"), &sign_rsa, "is not the one of the certificate");
    let other_ec = PrivateKey::clear(ec(Curve::P256)).expect("a key");
    refused(&other_ec, &uri("object=ec"), &Work::EcdsaSign { hash }, "is not the one of the certificate");
    refused(&other_ec, &uri("object=rsa"), &Work::EcdsaSign { hash }, "is not the one of the certificate");
    // The engine goes on, and finds the right one among several.
    let any = PrivateKey::on_token(ec_key.public_key().clone(), "pkcs11:");
    assert!(run(&mut *engine, &any, Work::EcdsaSign { hash }).is_ok());
    assert!(run(&mut *engine, &rsa_key, sign_rsa).is_ok());
}

#[test]
fn a_device_takes_private_work_with_keys_that_can_be_on_its_token() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let public = PublicKey::new(&ec(Curve::P256)).expect("a key");
    let job = |uri: &str, work| Job::new(PrivateKey::on_token(public.clone(), uri), work);
    let hash = Digest::Sha256.hash(b"content");
    let sign = || Work::EcdsaSign { hash };
    for opened in [false, true] {
        assert!(device.takes(&job("pkcs11:object=a", sign())));
        assert!(device.takes(&job("pkcs11:token=Bulla%20test;object=a", sign())));
        assert!(!device.takes(&job("pkcs11:token=other;object=a", sign())));
        // Which serial number it is shows when it is open.
        assert_eq!(device.takes(&job("pkcs11:serial=nonsense;object=a", sign())), !opened);
        assert!(!device.takes(&job("pkcs11:object=a?pin-value=1234", sign())));
        assert!(!device.takes(&job("pkcs11:object=a", Work::EcdhEphemeral)));
        assert!(!device.takes(&Job::new(PrivateKey::clear(ec(Curve::P256)).expect("a key"), sign())));
        assert!(!device.takes(&Job::new(public.clone(), sign())));
        drop(engine(&device));
    }
    assert_eq!((device.engines(), device.lanes()), (2, 1));
}

fn offline(device: &Coprocessor, why: &str) {
    let error = device.start_engine().err().expect("no engine");
    let shown = format!("{error} {error:?} {device:?}");
    assert!(matches!(error, DeviceError::Offline { .. }) && shown.contains(why), "{shown}");
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

#[test]
fn what_is_wrong_with_a_definition_is_said() {
    let Some(token) = Token::softhsm() else { return };
    let with = |change: &dyn Fn(&mut CoprocessorSettings)| {
        let mut settings = token.settings();
        change(&mut settings);
        Coprocessor::new(settings, token.command())
    };
    offline(&with(&|it| it.module = "/nowhere/module.so".into()), "module /nowhere/module.so can't be loaded");
    offline(&with(&|it| it.module = "/usr/lib/x86_64-linux-gnu/libc.so.6".into()), "it has no C_GetFunctionList");
    offline(&with(&|it| it.token = "pkcs11:token=other".parse().expect("a URI")), "no token fits pkcs11:token=other");
    offline(&with(&|it| it.pin_file = Some("/nowhere/pin".into())), "PIN file /nowhere/pin: No such file");
    // Without a PIN the token opens, but shows no private key.
    let (key, _) = imported(&token, ec(Curve::P256), "hidden", "01");
    let device = with(&|it| it.pin_file = None);
    let error = run(&mut *engine(&device), &key, Work::EcdsaSign { hash: Digest::Sha256.hash(b"") }).expect_err("none");
    assert!(error.to_string().ends_with("without a PIN file, private keys may be hidden"), "{error}");
    // The URI can name the file.
    let uri = format!("pkcs11:token=Bulla%20test?pin-source=file:{}", token.pin_file().display());
    let device = with(&|it| (it.pin_file, it.token) = (None, uri.parse().expect("a URI")));
    assert!(run(&mut *engine(&device), &key, Work::EcdsaSign { hash: Digest::Sha256.hash(b"") }).is_ok());
}

#[test]
fn a_wrong_pin_is_tried_once_until_the_file_changes_or_the_operator_says_so() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    token.write_pin("s3cr3t-wrong");
    offline(&device, "token \"Bulla test\" refused the PIN");
    for _ in 0..3 {
        offline(&device, "it is not tried again until");
    }
    device.forget_failed_pin();
    let error = device.start_engine().err().expect("still wrong").to_string();
    assert!(error.ends_with("refused the PIN"), "{error}");
    token.write_pin("s3cr3t-pin\n");
    assert!(device.start_engine().is_ok());
}

#[test]
fn engines_work_side_by_side() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let (key, clear) = imported(&token, ec(Curve::P256), "shared", "01");
    std::thread::scope(|scope| {
        for engine_number in 0..4_u8 {
            let (device, key, clear) = (&device, &key, &clear);
            scope.spawn(move || {
                let mut engine = engine(device);
                for round in 0..50_u8 {
                    let hash = Digest::Sha256.hash(&[engine_number, round]);
                    let signature = run(&mut *engine, key, Work::EcdsaSign { hash }).expect("a signature").to_vec();
                    on_cpu(clear, Work::EcdsaVerify { hash, signature }).expect("of this very hash");
                }
            });
        }
    });
}
