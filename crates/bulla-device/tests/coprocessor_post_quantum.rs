//! The coprocessor with a token that has ML-DSA and ML-KEM, kryoptic's, with OpenSSL as the judge; and with one that
//! has not, SoftHSM2's.

mod coprocessor_common;

use std::time::Instant;

use bulla_device::coprocessor::NewKey;
use bulla_device::coprocessor::protocol::SIGNED_BYTES_MAX;
use bulla_device::{
    CpuDevice, Curve, Device, DeviceError, Digest, Driver, Job, KeyKind, ML_KEM_SECRET_BYTES, MlDsa, MlKem, PrivateKey,
    Work,
};
use coprocessor_common::{HELPER_VARIABLE, Shim, Token, engine, made, run};

#[test]
#[ignore = "the helper process of the other tests"]
fn the_helper_process() {
    assert!(std::env::var_os(HELPER_VARIABLE).is_some(), "only the other tests start it");
    bulla_device::coprocessor::helper::run(std::io::stdin()).expect("a control socket");
    std::process::exit(0);
}

fn sign() -> Work {
    Work::MlDsaSign { message: b"content".to_vec() }
}

/// A ciphertext for the key, and the secret in it.
fn encapsulated(key: &PrivateKey) -> (Vec<u8>, Vec<u8>) {
    let out = run(&mut CpuDevice::new("CPU"), key, Work::MlKemEncapsulate).expect("a secret");
    let (ciphertext, secret) = out.split_at(out.len() - ML_KEM_SECRET_BYTES);
    (ciphertext.to_vec(), secret.to_vec())
}

/// A job of a message that did not open with the answer before.
fn in_doubt(engine: &mut dyn Device, key: &PrivateKey, work: Work) -> Result<Vec<u8>, DeviceError> {
    let mut jobs = vec![Job { is_in_doubt: true, ..Job::new(key.clone(), work) }];
    engine.submit(&mut jobs)?;
    let mut done = Vec::new();
    engine.poll(&mut done)?;
    done.remove(0).result.map(|output| output.to_vec())
}

#[track_caller]
fn refuses(got: Result<impl std::fmt::Debug, DeviceError>, why: &str) {
    let error = got.expect_err(why);
    assert!(matches!(&error, DeviceError::Refused { .. }) && error.to_string().contains(why), "{error}");
}

#[test]
fn every_parameter_set_signs_and_decapsulates_on_the_token_as_openssl_does() {
    let Some(token) = Token::kryoptic() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    for set in MlDsa::ALL.iter().copied() {
        let key = made(&device, NewKey::MlDsa(set));
        assert_eq!(key.kind(), KeyKind::MlDsa(set));
        for message in [Vec::new(), b"content".to_vec(), vec![7; 100_000], vec![7; SIGNED_BYTES_MAX]] {
            let signed = run(&mut *engine, &key, Work::MlDsaSign { message: message.clone() }).expect("a signature");
            assert_eq!(signed.len(), set.signature_len(), "{set}");
            let verify = |message| Work::MlDsaVerify { message, signature: signed.to_vec() };
            run(&mut CpuDevice::new("CPU"), &key, verify(message.clone())).expect("a good signature");
            let other = run(&mut CpuDevice::new("CPU"), &key, verify([&message[..], b"."].concat()));
            assert_eq!(other, Err(DeviceError::BadSignature));
        }
        let long = Work::MlDsaSign { message: vec![7; SIGNED_BYTES_MAX + 1] };
        refuses(run(&mut *engine, &key, long), "a token signs 1048576 bytes at most, and not 1048577");
    }
    for set in MlKem::ALL.iter().copied() {
        let key = made(&device, NewKey::MlKem(set));
        assert_eq!(key.kind(), KeyKind::MlKem(set));
        for _ in 0..20 {
            let (ciphertext, secret) = encapsulated(&key);
            let found = run(&mut *engine, &key, Work::MlKemDecapsulate { ciphertext: ciphertext.clone() });
            assert_eq!(found.as_deref(), Ok(&secret[..]), "{set}");
            assert_eq!(in_doubt(&mut *engine, &key, Work::MlKemDecapsulate { ciphertext }), Ok(secret));
        }
    }
}

#[test]
fn a_ciphertext_that_was_changed_gives_another_secret_and_never_an_error() {
    let Some(token) = Token::kryoptic() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    let key = made(&device, NewKey::MlKem(MlKem::MlKem768));
    let (good, secret) = encapsulated(&key);
    let mut decapsulate = |ciphertext: &[u8]| {
        let work = Work::MlKemDecapsulate { ciphertext: ciphertext.to_vec() };
        let first = run(&mut *engine, &key, work.clone()).expect("a secret");
        (first, in_doubt(&mut *engine, &key, work).expect("a secret"))
    };
    for at in [0, 500, 1087] {
        let mut changed = good.clone();
        changed[at] ^= 1;
        let (first, second) = decapsulate(&changed);
        assert_eq!((first.len(), *first == second[..]), (ML_KEM_SECRET_BYTES, true), "byte {at}");
        assert_ne!(*first, secret, "byte {at}");
    }
    for cut in [&good[1..], &[], &[&good[..], &[0]].concat()] {
        let (first, second) = decapsulate(cut);
        assert_eq!((first.len(), second.len(), *first == second), (ML_KEM_SECRET_BYTES, ML_KEM_SECRET_BYTES, false));
    }
}

#[test]
fn a_key_that_is_not_the_certificates_is_refused_by_name() {
    let Some(token) = Token::kryoptic() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    let (dsa, kem) = (NewKey::MlDsa(MlDsa::MlDsa65), NewKey::MlKem(MlKem::MlKem768));
    let keys = [(made(&device, dsa), made(&device, dsa)), (made(&device, kem), made(&device, kem))];
    let other_sets = [made(&device, NewKey::MlDsa(MlDsa::MlDsa44)), made(&device, NewKey::MlKem(MlKem::MlKem512))];
    let rsa = made(&device, NewKey::Rsa(2048));
    let work = |key: &PrivateKey| match key.kind() {
        KeyKind::MlKem(_) => Work::MlKemDecapsulate { ciphertext: encapsulated(key).0 },
        _ => sign(),
    };
    let mut with = |key: &PrivateKey, uri: &str| {
        let key = PrivateKey::on_token(key.public_key().clone(), uri);
        run(&mut *engine, &key, work(&key))
    };
    for ((one, two), other_set) in keys.iter().zip(&other_sets) {
        let uri = |key: &PrivateKey| key.token_uri().expect("a URI").to_owned();
        for wrong in [two, other_set, &rsa] {
            refuses(with(one, &uri(wrong)), "is not the one of the certificate");
        }
        refuses(with(one, "pkcs11:token=Bulla%20test;object=none"), "no private key on token \"Bulla test\" fits");
        // The right one of all that have the name.
        with(one, "pkcs11:object=key").expect("the key");
        with(two, &uri(two)).expect("the key");
    }
}

#[test]
fn a_wrong_signature_does_not_leave_and_a_wrong_secret_is_found_out_in_doubt() {
    let Some(shim) = Token::kryoptic().and_then(Shim::before) else { return };
    let device = shim.coprocessor(|_| {});
    let (dsa, kem) = (made(&device, NewKey::MlDsa(MlDsa::MlDsa65)), made(&device, NewKey::MlKem(MlKem::MlKem768)));
    let mut engine = engine(&device);
    let (ciphertext, secret) = encapsulated(&kem);
    let open = || Work::MlKemDecapsulate { ciphertext: ciphertext.clone() };
    let fault = DeviceError::Fault { device: "HSM".to_owned() };
    run(&mut *engine, &dsa, sign()).expect("a signature");
    assert_eq!(run(&mut *engine, &kem, open()).as_deref(), Ok(&secret[..]));
    shim.play("faulty\n");
    assert_eq!(run(&mut *engine, &dsa, sign()), Err(fault.clone()));
    // Nothing tells that it is wrong but the message, which does not open with it.
    let wrong = run(&mut *engine, &kem, open()).expect("a secret");
    assert!(wrong.len() == ML_KEM_SECRET_BYTES && *wrong != secret);
    assert_eq!(in_doubt(&mut *engine, &kem, open()), Err(fault));
    // A token that is wrong from the beginning is not taken for the key's.
    drop(engine);
    let mut engine = device.start_engine().expect("an engine");
    for (key, work) in [(&dsa, sign()), (&kem, open())] {
        refuses(run(&mut *engine, key, work), "is not the one of the certificate");
    }
    shim.play("");
    run(&mut *engine, &dsa, sign()).expect("a signature");
    assert_eq!(in_doubt(&mut *engine, &kem, open()), Ok(secret));
}

#[test]
fn a_ciphertext_that_a_token_refuses_is_a_wrong_one_and_a_token_that_refuses_all_is_at_fault() {
    let Some(shim) = Token::kryoptic().and_then(Shim::before) else { return };
    let device = shim.coprocessor(|_| {});
    let key = made(&device, NewKey::MlKem(MlKem::MlKem768));
    let mut engine = engine(&device);
    let (good, secret) = encapsulated(&key);
    let mut refused = good.clone();
    refused.truncate(1084);
    refused.extend([0; 4]);
    let open = |ciphertext: &[u8]| Work::MlKemDecapsulate { ciphertext: ciphertext.to_vec() };
    shim.play("picky\n");
    let first = run(&mut *engine, &key, open(&refused)).expect("a secret");
    let second = in_doubt(&mut *engine, &key, open(&refused)).expect("a secret");
    assert!(first.len() == ML_KEM_SECRET_BYTES && *first != second && *first != secret);
    assert_eq!(run(&mut *engine, &key, open(&good)).as_deref(), Ok(&secret[..]));
    for (code, name) in [(5, "CKR_GENERAL_ERROR"), (0x40, "CKR_ENCRYPTED_DATA_INVALID")] {
        shim.play(&format!("error {code}\n"));
        refuses(run(&mut *engine, &key, open(&good)), name);
        refuses(in_doubt(&mut *engine, &key, open(&good)), name);
    }
    shim.play("");
    assert_eq!(run(&mut *engine, &key, open(&good)).as_deref(), Ok(&secret[..]));
}

#[test]
fn a_token_that_fails_once_gives_the_secret_when_it_is_asked_again() {
    let Some(shim) = Token::kryoptic().and_then(Shim::before) else { return };
    let device = shim.coprocessor(|_| {});
    let key = made(&device, NewKey::MlKem(MlKem::MlKem768));
    let mut engine = engine(&device);
    let (ciphertext, secret) = encapsulated(&key);
    let open = || Work::MlKemDecapsulate { ciphertext: ciphertext.clone() };
    run(&mut *engine, &key, open()).expect("a secret: the key is known");
    // CKR_GENERAL_ERROR, and CKR_ENCRYPTED_DATA_INVALID.
    for code in [5, 0x40] {
        shim.play(&format!("passing {code}\n"));
        assert_eq!(run(&mut *engine, &key, open()).as_deref(), Ok(&secret[..]), "{code}");
        assert!(shim.has_played(), "{code}");
    }
}

#[test]
fn a_token_that_goes_away_and_comes_back_is_used_again() {
    let Some(shim) = Token::kryoptic().and_then(Shim::before) else { return };
    let device = shim.coprocessor(|_| {});
    let (dsa, kem) = (made(&device, NewKey::MlDsa(MlDsa::MlDsa65)), made(&device, NewKey::MlKem(MlKem::MlKem768)));
    let (ciphertext, secret) = encapsulated(&kem);
    let open = || Work::MlKemDecapsulate { ciphertext: ciphertext.clone() };
    for (key, work) in [(&dsa, sign()), (&kem, open())] {
        let mut engine = engine(&device);
        run(&mut *engine, key, work.clone()).expect("an answer");
        shim.play("lost\n");
        run(&mut *engine, key, work.clone()).expect("an answer by a new session");
        shim.play("error 5\n");
        refuses(run(&mut *engine, key, work.clone()), "CKR_GENERAL_ERROR");
        shim.play("removed\n");
        let error = run(&mut *engine, key, work.clone()).expect_err("no token");
        assert!(matches!(error, DeviceError::Offline { .. }), "{error:?}");
        shim.play("");
        engine = device.start_engine().expect("an engine");
        run(&mut *engine, key, work.clone()).expect("an answer");
        shim.play("crash\n");
        assert_eq!(run(&mut *engine, key, work.clone()), Err(DeviceError::Away { device: "HSM".to_owned() }));
        engine = device.start_engine().expect("an engine");
        run(&mut *engine, key, work).expect("an answer");
    }
    assert_eq!(run(&mut *engine(&device), &kem, open()).as_deref(), Ok(&secret[..]));
}

#[test]
fn a_module_of_before_3_2_says_what_it_lacks_and_signs() {
    let Some(shim) = Token::kryoptic().and_then(Shim::before) else { return };
    let (dsa, kem) = {
        let device = shim.coprocessor(|_| {});
        (made(&device, NewKey::MlDsa(MlDsa::MlDsa65)), made(&device, NewKey::MlKem(MlKem::MlKem768)))
    };
    let device = shim.old_coprocessor();
    let mut engine = engine(&device);
    let lacks =
        "token \"Bulla test\" has no CKM_ML_KEM (its module has no C_DecapsulateKey, a function of PKCS#11 3.2)";
    refuses(run(&mut *engine, &kem, Work::MlKemDecapsulate { ciphertext: encapsulated(&kem).0 }), lacks);
    refuses(device.generate(NewKey::MlKem(MlKem::MlKem768), "none"), lacks);
    run(&mut *engine, &dsa, sign()).expect("a signature: ML-DSA needs no new function");
}

#[test]
fn a_token_without_ml_dsa_and_ml_kem_says_so_and_does_its_other_work() {
    let Some(token) = Token::softhsm() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    refuses(
        device.generate(NewKey::MlDsa(MlDsa::MlDsa65), "none"),
        "token \"Bulla test\" has no CKM_ML_DSA_KEY_PAIR_GEN (C_GenerateKeyPair: CKR_MECHANISM_INVALID)",
    );
    refuses(device.generate(NewKey::MlKem(MlKem::MlKem768), "none"), "token \"Bulla test\" has no CKM_ML_KEM (");
    for (key, name) in [
        (MlDsa::MlDsa65.generate().expect("a key"), "CKM_ML_DSA"),
        (MlKem::MlKem768.generate().expect("a key"), "CKM_ML_KEM"),
    ] {
        let key = PrivateKey::clear(key).expect("a key");
        let key = PrivateKey::on_token(key.public_key().clone(), "pkcs11:object=none");
        let work = match key.kind() {
            KeyKind::MlKem(_) => Work::MlKemDecapsulate { ciphertext: encapsulated(&key).0 },
            _ => sign(),
        };
        let why = format!("token \"Bulla test\" has no {name}, and so no key of this kind");
        refuses(run(&mut *engine, &key, work), &why);
    }
    let ec = made(&device, NewKey::Ec(Curve::P256));
    run(&mut *engine, &ec, Work::EcdsaSign { hash: Digest::Sha256.hash(b"content") }).expect("a signature");
}

/// How long one takes through the helper process, one after another; `-- --ignored --nocapture rate`.
#[test]
#[ignore = "it measures"]
fn the_rate_of_a_token_in_software() {
    const TIMES: u32 = 300;
    let Some(token) = Token::kryoptic() else { return };
    let device = token.coprocessor();
    let mut engine = engine(&device);
    let (dsa, kem) = (made(&device, NewKey::MlDsa(MlDsa::MlDsa65)), made(&device, NewKey::MlKem(MlKem::MlKem768)));
    let ciphertext = encapsulated(&kem).0;
    for (key, work) in [(&dsa, sign()), (&kem, Work::MlKemDecapsulate { ciphertext })] {
        run(&mut *engine, key, work.clone()).expect("an answer");
        let begun = Instant::now();
        for _ in 0..TIMES {
            run(&mut *engine, key, work.clone()).expect("an answer");
        }
        println!("{}: {:?} each", work.operation(), begun.elapsed() / TIMES);
    }
}
