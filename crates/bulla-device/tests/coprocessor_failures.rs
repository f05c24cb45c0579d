//! What comes of a coprocessor whose token is pulled out, slow, wrong or crashing.

mod coprocessor_common;

use std::time::{Duration, Instant};

use bulla_device::coprocessor::NewKey;
use bulla_device::{
    CpuDevice, Curve, Device, DeviceError, Digest, Driver, Output, PrivateKey, RsaPadding, RsaScheme, Work,
};
use coprocessor_common::{HELPER_VARIABLE, Shim, engine, made, run};

const OAEP: RsaPadding = RsaPadding::Oaep { digest: Digest::Sha256 };

#[test]
#[ignore = "the helper process of the other tests"]
fn the_helper_process() {
    assert!(std::env::var_os(HELPER_VARIABLE).is_some(), "only the other tests start it");
    bulla_device::coprocessor::helper::run(std::io::stdin()).expect("a control socket");
    std::process::exit(0);
}

fn sign() -> Work {
    Work::EcdsaSign { hash: Digest::Sha256.hash(b"content") }
}

fn sign_rsa() -> Work {
    Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash: Digest::Sha256.hash(b"content") }
}

fn unwrap(key: &PrivateKey, padding: RsaPadding) -> Work {
    let wrap = Work::RsaWrap { padding, content_key: Output::new(vec![7; 32]) };
    let wrapped = run(&mut CpuDevice::new("CPU"), key, wrap).expect("an envelope").to_vec();
    Work::RsaUnwrap { padding, wrapped, expected_len: 32 }
}

#[track_caller]
fn check(error: &DeviceError, says: &str) {
    let shown = format!("{error} {error:?}");
    assert!(shown.contains(says) && !shown.contains("s3cr3t"), "{shown}");
}

/// An engine that is gone takes nothing more.
fn is_gone(engine: &mut dyn Device, key: &PrivateKey) {
    assert!(matches!(run(engine, key, sign()), Err(DeviceError::Away { .. })));
}

#[test]
fn a_token_that_is_removed_and_comes_back_is_used_again() {
    let Some(shim) = Shim::new() else { return };
    let device = shim.coprocessor(|_| {});
    let key = made(&device, NewKey::Ec(Curve::P256));
    let mut first = engine(&device);
    run(&mut *first, &key, sign()).expect("a signature");
    for _ in 0..3 {
        shim.play("removed\n");
        let error = run(&mut *first, &key, sign()).expect_err("no token");
        assert!(matches!(error, DeviceError::Offline { .. }));
        check(&error, "no token fits pkcs11:token=Bulla%20test");
        is_gone(&mut *first, &key);
        for _ in 0..2 {
            check(&device.start_engine().err().expect("no token"), "no token fits pkcs11:token=Bulla%20test");
        }
        shim.play("");
        first = engine(&device);
        run(&mut *first, &key, sign()).expect("a signature");
    }
}

#[test]
fn a_job_that_takes_too_long_ends_the_helper_and_not_this_process() {
    let Some(shim) = Shim::new() else { return };
    let device = shim.coprocessor(|settings| settings.job_timeout = Duration::from_millis(500));
    let key = made(&device, NewKey::Ec(Curve::P256));
    let (mut slow, mut other) = (engine(&device), engine(&device));
    run(&mut *slow, &key, sign()).expect("a signature");
    shim.play("slow 5\n");
    run(&mut *slow, &key, sign()).expect("slow, but in time");
    shim.play("slow 600000\n");
    let began = Instant::now();
    assert_eq!(run(&mut *slow, &key, sign()), Err(DeviceError::Away { device: "HSM".to_owned() }));
    assert!(began.elapsed() < Duration::from_secs(300), "it did not wait for the token");
    is_gone(&mut *slow, &key);
    // The helper is gone for all.
    assert!(matches!(run(&mut *other, &key, sign()), Err(DeviceError::Away { .. })));
    shim.play("");
    run(&mut *engine(&device), &key, sign()).expect("a signature");
}

#[test]
fn a_crash_in_the_module_is_a_device_that_is_away() {
    let Some(shim) = Shim::new() else { return };
    let device = shim.coprocessor(|_| {});
    let key = made(&device, NewKey::Ec(Curve::P256));
    for _ in 0..3 {
        let mut engine = engine(&device);
        run(&mut *engine, &key, sign()).expect("a signature");
        shim.play("crash\n");
        assert_eq!(run(&mut *engine, &key, sign()), Err(DeviceError::Away { device: "HSM".to_owned() }));
        is_gone(&mut *engine, &key);
    }
    run(&mut *engine(&device), &key, sign()).expect("a signature");
}

#[test]
fn a_lost_session_is_opened_again_and_the_job_done() {
    let Some(shim) = Shim::new() else { return };
    let device = shim.coprocessor(|_| {});
    let key = made(&device, NewKey::Ec(Curve::P256));
    let (mut one, mut two) = (engine(&device), engine(&device));
    for _ in 0..3 {
        run(&mut *one, &key, sign()).expect("a signature");
        run(&mut *two, &key, sign()).expect("a signature");
        shim.play("lost\n");
        run(&mut *one, &key, sign()).expect("a signature by a new session");
        // The other one's session went too.
        run(&mut *two, &key, sign()).expect("a signature by a new session");
    }
}

#[test]
fn an_error_of_the_token_refuses_one_job_and_never_looks_like_a_bad_message() {
    let Some(shim) = Shim::new() else { return };
    let device = shim.coprocessor(|_| {});
    let (ec, rsa) = (made(&device, NewKey::Ec(Curve::P256)), made(&device, NewKey::Rsa(2048)));
    for oaep in ["", "oaep\n"] {
        shim.play(oaep);
        let mut engine = engine(&device);
        // One good one of each first: what the token can do is found out at the first.
        let derive = Work::EcdhDerive { peer: Curve::point(ec.public()).expect("a point") };
        let works = [
            (&ec, sign()),
            (&rsa, sign_rsa()),
            (&rsa, unwrap(&rsa, OAEP)),
            (&rsa, unwrap(&rsa, RsaPadding::Pkcs1)),
            (&ec, derive),
        ];
        for (key, work) in works {
            run(&mut *engine, key, work.clone()).expect("a result");
            // CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR, CKR_ENCRYPTED_DATA_INVALID, a vendor's own.
            for (code, name) in [
                (5, "CKR_GENERAL_ERROR"),
                (6, "CKR_FUNCTION_FAILED"),
                (0x30, "CKR_DEVICE_ERROR"),
                (0x40, "CKR_ENCRYPTED_DATA_INVALID"),
                (0x8000_0001_u64, "0x80000001"),
            ] {
                shim.play(&format!("{oaep}error {code}\n"));
                let error = run(&mut *engine, key, work.clone()).expect_err("an error");
                assert!(matches!(error, DeviceError::Refused { .. }), "{error:?}");
                check(&error, name);
            }
            shim.play(oaep);
            run(&mut *engine, key, work).expect("a result");
        }
    }
}

#[test]
fn a_faulty_result_does_not_leave() {
    let Some(shim) = Shim::new() else { return };
    let device = shim.coprocessor(|_| {});
    let (ec, rsa) = (made(&device, NewKey::Ec(Curve::P256)), made(&device, NewKey::Rsa(2048)));
    let mut engine = engine(&device);
    let derive = Work::EcdhDerive { peer: Curve::point(ec.public()).expect("a point") };
    let works = [
        (&ec, sign()),
        (&ec, derive),
        (&rsa, sign_rsa()),
        (&rsa, unwrap(&rsa, OAEP)),
        (&rsa, unwrap(&rsa, RsaPadding::Pkcs1)),
    ];
    for (key, work) in works {
        run(&mut *engine, key, work.clone()).expect("a result");
        shim.play("faulty\n");
        assert_eq!(run(&mut *engine, key, work), Err(DeviceError::Fault { device: "HSM".to_owned() }));
        shim.play("");
    }
}

#[test]
fn a_token_that_does_oaep_itself_is_let_to_and_its_refusal_gives_a_random_key() {
    let Some(shim) = Shim::new() else { return };
    shim.play("oaep\n");
    let device = shim.coprocessor(|_| {});
    for bits in [1024, 2048, 4096] {
        let key = made(&device, NewKey::Rsa(bits));
        let mut engine = engine(&device);
        let good = unwrap(&key, OAEP);
        assert_eq!(&*run(&mut *engine, &key, good.clone()).expect("a key"), &[7; 32]);
        let Work::RsaUnwrap { wrapped, padding, .. } = good else { panic!("an unwrap") };
        let mut flipped = wrapped.clone();
        flipped[40] ^= 1;
        for (wrapped, expected_len) in [(flipped, 32), (wrapped, 16)] {
            let bad = Work::RsaUnwrap { padding, wrapped, expected_len };
            let first = run(&mut *engine, &key, bad.clone()).expect("a random key");
            let second = run(&mut *engine, &key, bad).expect("a random key");
            assert_eq!(first.len(), expected_len);
            assert_ne!(first, second);
        }
        // What the token can't do any more is not the message's fault.
        shim.play("oaep\nfaulty\n");
        let error = run(&mut *engine, &key, unwrap(&key, OAEP)).expect_err("a faulty token");
        assert!(matches!(error, DeviceError::Refused { .. }), "{error:?}");
        shim.play("oaep\n");
    }
}

#[test]
fn a_pin_that_is_refused_is_tried_once_however_many_engines_there_are() {
    let Some(shim) = Shim::new() else { return };
    shim.play("pin\n");
    let device = shim.coprocessor(|_| {});
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| check(&device.start_engine().err().expect("no login"), "refused the PIN"));
        }
    });
    assert_eq!(shim.logins(), 1);
    device.forget_failed_pin();
    check(&device.start_engine().err().expect("no login"), "refused the PIN");
    assert_eq!(shim.logins(), 2);
    // Right again, and the operator says so.
    shim.play("");
    check(&device.start_engine().err().expect("no login"), "it is not tried again until");
    device.forget_failed_pin();
    let mut one = engine(&device);
    let key = made(&device, NewKey::Ec(Curve::P256));
    let mut two = engine(&device);
    run(&mut *one, &key, sign()).expect("a signature");
    run(&mut *two, &key, sign()).expect("a signature");
    assert_eq!(shim.logins(), 3, "one login for all sessions");
    // The PIN is changed while sessions stand. When they are lost, it is tried once and never again.
    shim.play("removed\n");
    assert!(run(&mut *one, &key, sign()).is_err() && run(&mut *two, &key, sign()).is_err());
    let before = shim.logins();
    shim.play("pin\n");
    for _ in 0..4 {
        check(&device.start_engine().err().expect("no login"), "refused the PIN");
    }
    assert_eq!(shim.logins(), before + 1);
}
