//! Certificates, requests, revocation lists and archives, held against the `openssl` command.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod ring_common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bulla_seal::certificate::authority::{Authority, AuthorityError, Founding};
use bulla_seal::certificate::bundle::{Bundle, to_pkcs12};
use bulla_seal::certificate::create::{AlternativeName, CreateError, Profile, request as make_request};
use bulla_seal::certificate::{
    Certificate, Curve, KeyError, KeySpec, KeyUse, PrivateKeyPem, Usage, UseError, read_private_key,
};
use bulla_seal::ring::Crl;
use ring_common::*;

#[test]
fn every_key_gets_a_certificate_that_openssl_verifies() {
    let world = World::new();
    let ca = write(&world.path("ca.pem"), world.authority.certificate().to_pem());
    // The program that is installed may be too old for the others: `combinations` has those.
    for spec in KeySpec::classical() {
        let uses = KeyUse::usual(spec.kind());
        let (certificate, key) = world.issue(&format!("CN={spec},O=Demo"), spec, &uses, 0, 30);
        let file = write(&world.path("leaf.pem"), certificate.to_pem());
        let at = "1795305600"; // day 1
        openssl(&["verify", "-x509_strict", "-attime", at, "-CAfile", &ca, &file]);
        let text = openssl(&["x509", "-in", &file, "-noout", "-text", "-nameopt", "RFC2253"]);
        assert!(text.contains("X509v3 Key Usage: critical"), "{text}");
        assert!(text.contains("E-mail Protection"), "{text}");
        assert!(text.contains("Not Before: Nov 21 00:00:00 2026 GMT"), "{text}");
        assert!(text.contains("Not After : Dec 21 00:00:00 2026 GMT"), "{text}");
        assert_eq!((certificate.key_bits(), certificate.key_kind()), (spec.bits(), spec.kind()));
        let key_file = write(&world.path("leaf.key"), key.as_bytes());
        openssl(&["pkey", "-in", &key_file, "-check", "-noout"]);
    }
}

#[test]
fn what_a_certificate_says_is_what_openssl_reads_in_it() {
    let world = World::new();
    let (certificate, _) = world.issue("CN=orders,OU=a\\,b,O=Demo,C=DE", P256, &[KeyUse::DocSign], 0, 30);
    assert_eq!(certificate.dn().as_str(), "CN=orders,OU=a\\,b,O=Demo,C=DE");
    assert_eq!(certificate.issuer().as_str(), "CN=Test CA,O=Demo");
    assert_eq!(certificate.not_before(), day(0));
    assert_eq!(certificate.not_after(), day(30));
    let file = write(&world.path("leaf.pem"), certificate.to_pem());
    let said = openssl(&["x509", "-in", &file, "-noout", "-serial", "-fingerprint", "-sha256"]);
    assert!(said.contains(&format!("serial={}\n", certificate.serial_hex().to_uppercase())), "{said}");
    let fingerprint: Vec<String> = certificate.fingerprint().iter().map(|b| format!("{b:02X}")).collect();
    assert!(said.contains(&fingerprint.join(":")), "{said}");
    let spki = certificate.public_key().public_key_to_der().unwrap();
    assert_eq!(certificate.spki_sha256(), &openssl::sha::sha256(&spki));
    assert_eq!(Certificate::from_der(certificate.der()).unwrap(), certificate);
    // 0x30, length, issuer, serial: no byte of either is changed
    let joined = [certificate.issuer_der(), certificate.serial_der()].concat();
    assert!(certificate.issuer_and_serial().ends_with(&joined));
}

#[test]
fn key_usage_goes_by_key_type() {
    let world = World::new();
    let refused = |key, usage| world.authority.issue(&request("CN=a", key, &[usage], 1), day(0)).unwrap_err();
    for (key, usage) in [(P256, KeyUse::DataEncrypt), (RSA, KeyUse::KeyAgree)] {
        let error = refused(key, usage);
        let kind = key.kind();
        let expected = CreateError::Use(UseError::Incompatible { usage, kind });
        assert_eq!(error, AuthorityError::Create(expected));
    }
    assert_eq!(
        refused(P256, KeyUse::DataEncrypt).to_string(),
        "key usage DATAENCRYPT is incompatible with a key of type NISTECC; an EC key encrypts with KEYAGREE"
    );
    for (key, uses, says) in [
        (RSA, &[KeyUse::Handshake][..], "Digital Signature, Key Encipherment"),
        (P256, &[KeyUse::Handshake], "Digital Signature"),
        (RSA, &[KeyUse::DocSign], "Digital Signature, Non Repudiation"),
        (RSA, &[KeyUse::DataEncrypt], "Key Encipherment, Data Encipherment"),
        (P256, &[KeyUse::KeyAgree], "Key Agreement"),
        (P256, &[KeyUse::CertSign], "Certificate Sign, CRL Sign"),
    ] {
        let (certificate, _) = world.issue("CN=a", key, uses, 0, 1);
        let file = write(&world.path("leaf.pem"), certificate.to_pem());
        let text = openssl(&["x509", "-in", &file, "-noout", "-text"]);
        assert!(text.contains(&format!("{says}\n")), "{uses:?}: {text}");
        let tls = text.contains("TLS Web Server Authentication, TLS Web Client Authentication");
        assert_eq!(tls, uses.contains(&KeyUse::Handshake), "{text}");
        assert_eq!(certificate.is_authority(), uses.contains(&KeyUse::CertSign));
    }
    let (rsa, _) = world.issue("CN=a", RSA, &[KeyUse::DocSign, KeyUse::DataEncrypt], 0, 1);
    for usage in [Usage::Sign, Usage::KeyTransport, Usage::DataEncipherment] {
        rsa.check_usage(usage).unwrap();
    }
    rsa.check_usage(Usage::KeyAgreement).unwrap_err();
}

#[test]
fn alternative_names_are_written_and_nothing_slips_in_with_them() {
    let world = World::new();
    let mut wanted = request("CN=a", P256, &[KeyUse::Handshake], 1);
    wanted.alternative_names = ["dns:host.example", "ip:192.0.2.1", "ip:2001:db8::1", "email:a@b.example"]
        .map(|name| name.parse().unwrap())
        .to_vec();
    let (certificate, _) = world.authority.issue(&wanted, day(0)).unwrap();
    let file = write(&world.path("leaf.pem"), certificate.to_pem());
    let text = openssl(&["x509", "-in", &file, "-noout", "-ext", "subjectAltName"]);
    assert!(
        text.contains("DNS:host.example, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1, email:a@b.example"),
        "{text}"
    );
    for bad in ["host", "dns:", "dns:a,DNS:b", "ip:300.1.1.1", "dns:a\nb", "x:y"] {
        assert!(bad.parse::<AlternativeName>().is_err(), "{bad}");
    }
}

#[test]
fn requests_are_signed_when_they_are_whole() {
    let world = World::new();
    let key = P256.generate().unwrap();
    let profile = Profile {
        dn: "CN=asks,O=Demo".parse().unwrap(),
        uses: vec![KeyUse::DocSign],
        days: 1,
        alternative_names: Vec::new(),
    };
    let csr = make_request(&profile, &key, P256.kind()).unwrap();
    let file = write(&world.path("csr.pem"), &csr);
    assert!(openssl(&["req", "-in", &file, "-verify", "-noout", "-subject"]).contains("verify OK"));
    let sign = |csr: &[u8]| world.authority.sign_request(csr, &[KeyUse::DocSign], 10, &[], day(0));
    let certificate = sign(&csr).unwrap();
    assert_eq!(certificate.dn().as_str(), "CN=asks,O=Demo");
    assert!(certificate.public_key().public_eq(&key));

    // One that openssl made, in DER, and the same with a byte of the signature changed.
    let key_file = world.path("foreign.key");
    let der = world.path("foreign.der");
    openssl(&[
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key_file.to_str().unwrap(),
        "-outform",
        "DER",
        "-out",
        der.to_str().unwrap(),
        "-subj",
        "/C=DE/O=Demo/CN=foreign",
    ]);
    let mut der = fs::read(der).unwrap();
    assert_eq!(sign(&der).unwrap().dn().as_str(), "C=DE,O=Demo,CN=foreign");
    *der.last_mut().unwrap() ^= 1;
    sign(&der).unwrap_err();
    sign(b"nonsense").unwrap_err();
}

#[test]
fn a_revoked_certificate_is_on_the_list_and_openssl_agrees() {
    let world = World::new();
    let (good, _) = world.issue("CN=good", P256, &[KeyUse::DocSign], 0, 300);
    let (bad, _) = world.issue("CN=bad", P256, &[KeyUse::DocSign], 0, 300);
    world.authority.revoke(&bad.serial_hex().to_uppercase(), day(2)).unwrap();
    world.authority.revoke(&bad.serial_hex(), day(3)).unwrap();
    let crl = world.authority.crl().unwrap();
    let ca = write(&world.path("ca.pem"), world.authority.certificate().to_pem());
    let crl_file = write(&world.path("crl.pem"), &crl);
    let text = openssl(&["crl", "-in", &crl_file, "-noout", "-text", "-CAfile", &ca]);
    assert!(text.contains("verify OK"), "{text}");
    assert!(text.contains("Last Update: Nov 24 00:00:00 2026 GMT"), "{text}");
    assert!(text.contains("Next Update: Dec 24 00:00:00 2026 GMT"), "{text}");
    assert!(text.contains("X509v3 CRL Number: \n                3"), "{text}");
    assert!(text.contains("Revocation Date: Nov 23 00:00:00 2026 GMT"), "{text}");
    assert_eq!(text.matches("Serial Number").count(), 1);

    let both = write(&world.path("both.pem"), [world.authority.certificate().to_pem(), crl.clone()].concat());
    let file = write(&world.path("good.pem"), good.to_pem());
    let at = "1795564800"; // day 4
    openssl(&["verify", "-crl_check", "-attime", at, "-CAfile", &both, &file]);
    let lists = Crl::all_from(&crl).unwrap();
    assert_eq!(lists.len(), 1);
    assert_eq!(lists[0].len(), 1);
    assert!(matches!(world.authority.revoke("00ff", day(3)), Err(AuthorityError::UnknownSerial { .. })));
    let records = world.authority.records().unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].revoked_at(), None);
    assert_eq!(records[1].revoked_at(), Some(day(2)));
}

#[test]
fn an_authority_opens_again_with_its_passphrase_only() {
    let world = World::new();
    let dir = world.path("locked");
    let right = phrase("right");
    let founding =
        Founding { dn: &"CN=Locked".parse().unwrap(), key: P256, days: 100, passphrase: Some(&right), parent: None };
    Authority::found(&dir, &founding, day(0)).unwrap();
    assert!(matches!(Authority::found(&dir, &founding, day(0)), Err(AuthorityError::Exists { .. })));
    assert!(Authority::open(&dir).unwrap_err().is_locked());
    assert!(Authority::unlock(&dir, Some(&phrase("wrong"))).unwrap_err().is_locked());
    let authority = Authority::unlock(&dir, Some(&right)).unwrap();
    let (certificate, _) = authority.issue(&request("CN=x", P256, &[KeyUse::DocSign], 10), day(1)).unwrap();
    assert_eq!(certificate.issuer().as_str(), "CN=Locked");

    let key = dir.join("key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Authority::unlock(&dir, Some(&right)).unwrap_err();
    assert!(error.to_string().ends_with("key.pem has mode 0640: others must not have access to it"), "{error}");
    assert!(matches!(Authority::open(&world.path("none")), Err(AuthorityError::Missing { .. })));
}

#[test]
fn an_authority_below_another_issues_certificates_that_verify() {
    let world = World::new();
    let founding = Founding {
        dn: &"CN=Issuing CA".parse().unwrap(),
        key: RSA,
        days: 1000,
        passphrase: None,
        parent: Some(&world.authority),
    };
    let issuing = Authority::found(&world.path("issuing"), &founding, day(0)).unwrap();
    let (leaf, _) = issuing.issue(&request("CN=x", P256, &[KeyUse::DocSign], 10), day(0)).unwrap();
    assert_eq!(issuing.root(), world.authority.certificate());
    let root = write(&world.path("root.pem"), issuing.root().to_pem());
    let between = write(&world.path("between.pem"), issuing.certificate().to_pem());
    let file = write(&world.path("leaf.pem"), leaf.to_pem());
    openssl(&["verify", "-x509_strict", "-attime", "1795305600", "-CAfile", &root, "-untrusted", &between, &file]);
    let again = Authority::open(&world.path("issuing")).unwrap();
    assert_eq!(again.path(), issuing.path());
    assert_eq!(again.chain(), [issuing.certificate().clone()]);
}

#[test]
fn a_certificate_does_not_outlive_its_signer() {
    let world = World::new();
    let error = world.authority.issue(&request("CN=x", P256, &[KeyUse::DocSign], 3651), day(0)).unwrap_err();
    assert!(matches!(error, AuthorityError::Create(CreateError::OutlivesSigner { .. })), "{error}");
    for days in [0, 40_000] {
        let error = world.authority.issue(&request("CN=x", P256, &[KeyUse::DocSign], days), day(0)).unwrap_err();
        assert_eq!(error, AuthorityError::Create(CreateError::Days { days }));
    }
}

#[test]
fn archives_go_to_openssl_and_come_back() {
    let world = World::new();
    for spec in [RSA, KeySpec::Ec(Curve::P521)] {
        let (certificate, pem) = world.issue("CN=x,O=Demo", spec, &[KeyUse::DocSign], 0, 10);
        let key = read_private_key(pem.as_bytes(), None).unwrap();
        let secret = phrase("secret");
        let chain = world.authority.path();
        let ours = to_pkcs12("my label", &certificate, &chain, Some(&key), &secret).unwrap();
        let file = write(&world.path("ours.p12"), &*ours);
        let text = openssl(&["pkcs12", "-in", &file, "-passin", "pass:secret", "-nodes", "-info"]);
        assert!(text.contains("friendlyName: my label"), "{text}");
        assert!(text.contains("AES-256-CBC, Iteration 100000, PRF hmacWithSHA256"), "{text}");
        assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2);

        let back = Bundle::read(&ours, Some(&secret)).unwrap();
        assert_eq!(back.certificates, [certificate.clone(), world.authority.certificate().clone()]);
        assert!(back.key.unwrap().public_eq(&key));
        let wrong = phrase("Secret");
        let locked = |passphrase| match Bundle::read(&ours, passphrase) {
            Err(CreateError::Key(why)) => why,
            _ => panic!("it must not open"),
        };
        assert_eq!(locked(Some(&wrong)), KeyError::WrongPassphrase);
        assert_eq!(locked(None), KeyError::Locked);

        let pem_file = write(&world.path("all.pem"), [&certificate.to_pem(), pem.as_bytes()].concat());
        let theirs = world.path("theirs.p12");
        let theirs_path = theirs.to_str().unwrap();
        openssl(&["pkcs12", "-export", "-in", &pem_file, "-passout", "pass:other", "-out", theirs_path]);
        let back = Bundle::read(&fs::read(theirs).unwrap(), Some(&phrase("other"))).unwrap();
        assert_eq!(back.certificates, [certificate]);
        assert!(back.key.is_some());
    }
}

#[test]
fn an_encrypted_key_is_read_by_openssl() {
    let world = World::new();
    let key = RSA.generate().unwrap();
    let pem = PrivateKeyPem::write(&key, Some(&phrase("secret"))).unwrap();
    let file = write(&world.path("key.pem"), pem.as_bytes());
    openssl(&["pkey", "-in", &file, "-passin", "pass:secret", "-check", "-noout"]);
    // and the other way round, in the forms that are about
    for form in [&["genpkey", "-algorithm", "RSA", "-aes-128-cbc"][..], &["genrsa", "-traditional", "-aes128"]] {
        let file = world.path("theirs.pem");
        let mut arguments = form.to_vec();
        arguments.extend(["-out", file.to_str().unwrap()]);
        arguments.extend(match form[0] {
            "genpkey" => ["-pass", "pass:secret"],
            _ => ["-passout", "pass:secret"],
        });
        openssl(&arguments);
        let bytes = fs::read(&file).unwrap();
        read_private_key(&bytes, Some(&phrase("secret"))).unwrap();
        assert_eq!(read_private_key(&bytes, Some(&phrase("no"))).err(), Some(KeyError::WrongPassphrase));
    }
}

#[test]
fn damaged_certificates_are_errors_never_panics() {
    let world = World::new();
    let (certificate, _) = world.issue("CN=x,O=Demo", P256, &[KeyUse::DocSign], 0, 10);
    let der = certificate.der();
    for at in 0..der.len() {
        let mut damaged = der.to_vec();
        damaged[at] ^= 0xff;
        let _ = Certificate::from_der(&damaged);
        assert!(Certificate::from_der(&der[..at]).is_err(), "cut at {at}");
    }
    assert!(Certificate::from_der(&[der, &[0]].concat()).is_err(), "trailing byte");
    let crl = Crl::all_from(&world.authority.crl().unwrap()).unwrap();
    assert!(crl[0].is_empty());
    let file = write(&world.path("crl.pem"), world.authority.crl().unwrap());
    let out = world.path("crl.der");
    openssl(&["crl", "-in", &file, "-outform", "DER", "-out", out.to_str().unwrap()]);
    let list = fs::read(out).unwrap();
    for at in 0..list.len() {
        let mut damaged = list.clone();
        damaged[at] ^= 0xff;
        let _ = Crl::from_der(&damaged);
        assert!(Crl::from_der(&list[..at]).is_err(), "cut at {at}");
    }
    for damaged in [&b""[..], b"0", &[0x30, 0x80], &der[..40], b"-----BEGIN X509 CRL-----\nAAAA\n"] {
        assert!(Crl::all_from(damaged).is_err());
        assert!(Bundle::read(damaged, None).is_err());
    }
}
