//! Key rings: what they believe, what they refuse and why, and how they follow their files.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod ring_common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant, SystemTime};

use bulla_device::RsaPadding;
use bulla_seal::Dn;
use bulla_seal::certificate::authority::{Authority, Founding};
use bulla_seal::certificate::{Certificate, CertificateError, KeyError, KeySpec, KeyUse, Usage, read_private_key};
use bulla_seal::policy::Revocation;
use bulla_seal::ring::{self, CHECK_INTERVAL, Ring, RingError, Rings};
use ring_common::*;

const SIGN: &[KeyUse] = &[KeyUse::DocSign];
const AGREE: &[KeyUse] = &[KeyUse::KeyAgree];

fn dn(text: &str) -> Dn {
    text.parse().unwrap()
}

/// Asks for a signature's sake, with one time for everything.
fn verify(ring: &Ring, certificate: &Certificate, at: u64) -> Result<(), CertificateError> {
    ring.verify(certificate, &[], Usage::Sign, day(at), day(at)).map(|_| ())
}

#[test]
fn a_good_certificate_is_good_for_as_long_as_all_dates_allow() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let (certificate, _) = world.issue("CN=x", P256, SIGN, 1, 100);
    let verdict = load(&dir).verify(&certificate, &[], Usage::Sign, day(5), day(5)).unwrap();
    assert_eq!((verdict.valid_from, verdict.valid_until), (day(1), day(101)));
    assert_eq!((verdict.fresh_from, verdict.fresh_until), (None, None));

    world.install_crl(&dir);
    let verdict = load(&dir).verify(&certificate, &[], Usage::Sign, day(5), day(5)).unwrap();
    assert_eq!((verdict.fresh_from, verdict.fresh_until), (Some(day(0)), Some(day(30))));
    assert!(verdict.holds(Revocation::IfPresent, day(1), day(0)));
    assert!(verdict.holds(Revocation::IfPresent, day(100), day(29)));
    assert!(!verdict.holds(Revocation::IfPresent, day(101), day(29)));
    assert!(!verdict.holds(Revocation::IfPresent, day(0), day(29)));
    assert!(!verdict.holds(Revocation::IfPresent, day(5), day(30)));
}

#[test]
fn expiry_is_judged_at_the_put_and_revocation_now() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let (certificate, _) = world.issue("CN=x", P256, SIGN, 0, 10);
    world.install_crl(&dir);
    let ring = load(&dir);
    // Put on day 5, got on day 20: the certificate has expired since, the message has not.
    ring.verify(&certificate, &[], Usage::Sign, day(5), day(20)).unwrap();
    assert_eq!(
        ring.verify(&certificate, &[], Usage::Sign, day(11), day(20)),
        Err(CertificateError::Expired { dn: dn("CN=x"), not_after: day(10) })
    );
    // Revoked on day 12: what was put before is no longer believed either.
    world.authority.revoke(&certificate.serial_hex(), day(12)).unwrap();
    world.install_crl(&dir);
    let error = load(&dir).verify(&certificate, &[], Usage::Sign, day(5), day(20)).unwrap_err();
    let serial = certificate.serial_hex();
    assert_eq!(error, CertificateError::Revoked { dn: dn("CN=x"), serial, since: Some(day(12)) });
    assert_eq!(error.cause(), "certificate-revoked");
}

#[test]
fn an_expired_authority_ends_what_it_signed() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let short = Authority::create(&world.path("short"), &dn("CN=Short"), P256, 10, day(0)).unwrap();
    ring::install_trust(&dir, "short", short.certificate()).unwrap();
    let (certificate, _) = short.issue(&request("CN=x", P256, SIGN, 10), day(0)).unwrap();
    let ring = load(&dir);
    verify(&ring, &certificate, 9).unwrap();
    let error = verify(&ring, &certificate, 10).unwrap_err();
    assert_eq!(error.cause(), "certificate-expired");
}

#[test]
fn a_clock_set_back_is_noticed() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let (certificate, _) = world.issue("CN=x", P256, SIGN, 5, 10);
    let ring = load(&dir);
    assert_eq!(
        verify(&ring, &certificate, 4),
        Err(CertificateError::NotYetValid { dn: dn("CN=x"), not_before: day(5) })
    );
    world.authority.write_crl(30, day(8)).unwrap();
    world.install_crl(&dir);
    let ring = load(&dir);
    verify(&ring, &certificate, 8).unwrap();
    let error = ring.verify(&certificate, &[], Usage::Sign, day(6), day(7)).unwrap_err();
    assert_eq!(error, CertificateError::CrlNotYetValid { issuer: dn("CN=Test CA,O=Demo"), this_update: day(8) });
    assert!(error.is_passing());
}

#[test]
fn a_stale_list_stops_belief_and_a_missing_one_asks_nothing() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let (certificate, _) = world.issue("CN=x", P256, SIGN, 0, 100);
    verify(&load(&dir), &certificate, 50).unwrap(); // no list of this authority here
    world.install_crl(&dir);
    let ring = load(&dir);
    verify(&ring, &certificate, 29).unwrap();
    let error = verify(&ring, &certificate, 30).unwrap_err();
    assert_eq!(error, CertificateError::CrlStale { issuer: dn("CN=Test CA,O=Demo"), next_update: day(30) });
    assert_eq!((error.cause(), error.is_passing()), ("crl-stale", true));
    // A newer list beside the old one is what counts.
    world.authority.write_crl(30, day(40)).unwrap();
    ring::install_crl(&dir, "newer", &world.authority.crl().unwrap()).unwrap();
    verify(&load(&dir), &certificate, 50).unwrap();
}

#[test]
fn a_list_counts_in_der_and_only_when_its_authority_signed_it() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let (certificate, _) = world.issue("CN=x", P256, SIGN, 0, 100);
    world.authority.revoke(&certificate.serial_hex(), day(1)).unwrap();
    let pem = write(&world.path("crl.pem"), world.authority.crl().unwrap());
    let der = world.path("crl.der");
    openssl(&["crl", "-in", &pem, "-outform", "DER", "-out", der.to_str().unwrap()]);
    let path = ring::install_crl(&dir, "ca", &fs::read(der).unwrap()).unwrap();
    assert!(path.ends_with("crl/ca.crl"));
    assert_eq!(verify(&load(&dir), &certificate, 2).unwrap_err().cause(), "certificate-revoked");
    fs::remove_file(path).unwrap();

    // Another authority of the same name cannot speak for this one.
    let twin_dn = world.authority.certificate().dn().clone();
    let twin = Authority::create(&world.path("twin"), &twin_dn, P256, 100, day(0)).unwrap();
    ring::install_crl(&dir, "twin", &twin.crl().unwrap()).unwrap();
    let error = verify(&load(&dir), &certificate, 2).unwrap_err();
    assert_eq!(error, CertificateError::CrlUnverified { issuer: twin_dn });
}

#[test]
fn paths_lead_over_intermediates_to_a_root_in_trust() {
    let world = World::new();
    let founding = |dn, parent| Founding { dn, key: P256, days: 1000, passphrase: None, parent: Some(parent) };
    let issuing = dn("CN=Issuing");
    let issuing = Authority::found(&world.path("issuing"), &founding(&issuing, &world.authority), day(0)).unwrap();
    let (leaf, _) = issuing.issue(&request("CN=x", P256, SIGN, 10), day(0)).unwrap();
    let dir = world.ring_dir("orders");
    let ring = load(&dir);
    assert_eq!(verify(&ring, &leaf, 1).unwrap_err().cause(), "untrusted");
    let check = |ring: &Ring, leaf: &Certificate, chain: &[Certificate]| {
        ring.verify(leaf, chain, Usage::Sign, day(1), day(1)).map_err(|error| error.cause())
    };
    check(&ring, &leaf, &issuing.chain()).unwrap();

    // An authority below the root may not found another one.
    let third = dn("CN=Third");
    let third = Authority::found(&world.path("third"), &founding(&third, &issuing), day(0)).unwrap();
    let (deep, _) = third.issue(&request("CN=deep", P256, SIGN, 10), day(0)).unwrap();
    assert_eq!(check(&ring, &deep, &third.chain()), Err("untrusted"));
    // And no certificate can be issued with a key that is not an authority's.
    let (fake, key) = world.issue("CN=Fake", P256, SIGN, 0, 100);
    let fake_dir = world.path("fake");
    fs::create_dir(&fake_dir).unwrap();
    write(&fake_dir.join("ca.pem"), fake.to_pem());
    ring::create(&fake_dir.join("unused")).unwrap();
    fs::write(fake_dir.join("key.pem"), key.as_bytes()).unwrap();
    fs::set_permissions(fake_dir.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    let fake = Authority::open(&fake_dir).unwrap();
    let (forged, _) = fake.issue(&request("CN=forged", P256, SIGN, 10), day(0)).unwrap();
    assert_eq!(check(&ring, &forged, &[fake.certificate().clone()]), Err("untrusted"));

    // A revoked intermediate takes everything below it along.
    world.authority.revoke(&issuing.certificate().serial_hex(), day(1)).unwrap();
    world.install_crl(&dir);
    assert_eq!(check(&load(&dir), &leaf, &issuing.chain()), Err("certificate-revoked"));
    // An unknown root is no root, and too many certificates are not even looked at.
    let stranger = Authority::create(&world.path("stranger"), &dn("CN=Stranger"), P256, 10, day(0)).unwrap();
    let (theirs, _) = stranger.issue(&request("CN=x", P256, SIGN, 10), day(0)).unwrap();
    assert_eq!(check(&ring, &theirs, &[stranger.certificate().clone()]), Err("untrusted"));
    assert_eq!(check(&ring, &leaf, &vec![issuing.certificate().clone(); 33]), Err("untrusted"));
}

#[test]
fn weak_signatures_and_odd_keys_are_refused() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let make = |key: &str, digest: &str, days: &str| {
        let (key_file, out) = (world.path("odd.key"), world.path("odd.pem"));
        let mut options = key.split(' ');
        let algorithm = options.next().unwrap();
        let mut arguments = vec!["req", "-x509", "-newkey", algorithm, "-nodes", digest, "-days", days];
        arguments.extend(options.flat_map(|option| ["-pkeyopt", option]));
        arguments.extend(["-subj", "/CN=odd", "-keyout", key_file.to_str().unwrap()]);
        arguments.extend(["-out", out.to_str().unwrap()]);
        openssl(&arguments);
        let certificate = Certificate::all_from_pem(&fs::read(out).unwrap(), 1).unwrap().remove(0);
        fs::write(dir.join("trust/odd.pem"), certificate.to_pem()).unwrap();
        let now = certificate.not_before();
        load(&dir).verify(&certificate, &[], Usage::Sign, now, now).map_err(|error| error.cause())
    };
    assert!(make("rsa:2048", "-sha256", "1").is_ok());
    assert_eq!(make("rsa:512", "-sha256", "1"), Err("weak-key"));
    assert_eq!(make("rsa:4224 rsa_keygen_primes:4", "-sha256", "1"), Err("unsupported-key"));
    assert_eq!(make("ed25519", "-sha256", "1"), Err("unsupported-key"));
    assert_eq!(make("ec ec_paramgen_curve:secp256k1", "-sha256", "1"), Err("unsupported-key"));
    assert!(make("ec ec_paramgen_curve:P-256", "-sha256", "1").is_ok());
    assert_eq!(make("ec ec_paramgen_curve:P-256 ec_param_enc:explicit", "-sha256", "1"), Err("unsupported-key"));
}

#[test]
fn a_leaf_signed_with_sha1_is_refused() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    // The command dates what it makes by the clock, so this authority is of today.
    let today = Authority::create(&world.path("today"), &dn("CN=Today"), RSA, 10, SystemTime::now()).unwrap();
    ring::install_trust(&dir, "today", today.certificate()).unwrap();
    let [key, csr, out, ca, ca_key] = ["k.pem", "csr.pem", "leaf.pem", "today/ca.pem", "today/key.pem"]
        .map(|name| world.path(name).display().to_string());
    openssl(&["req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-subj", "/CN=old", "-out", &csr]);
    for (digest, expected) in [("-sha1", Err("weak-key")), ("-sha256", Ok(()))] {
        openssl(&[
            "x509",
            "-req",
            digest,
            "-in",
            &csr,
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-set_serial",
            "7",
            "-days",
            "1",
            "-out",
            &out,
        ]);
        let leaf = Certificate::all_from_pem(&fs::read(&out).unwrap(), 1).unwrap().remove(0);
        let at = leaf.not_before();
        let verdict = load(&dir).verify(&leaf, &[], Usage::Sign, at, at);
        assert_eq!(verdict.map(|_| ()).map_err(|error| error.cause()), expected);
    }
}

#[test]
fn what_a_certificate_must_not_ignore_refuses_it() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let names = ["key.pem", "csr.pem", "leaf.pem", "ext.cnf", "ca.key", "ca.pem"];
    let [key, csr, out, extensions, ca_key, ca] = names.map(|name| world.path(name).display().to_string());
    openssl(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        &ca_key,
        "-out",
        &ca,
        "-subj",
        "/CN=Narrow",
        "-addext",
        "nameConstraints=critical,permitted;dirName:n",
        "-config",
        &write(
            &world.path("req.cnf"),
            "[req]\ndistinguished_name=d\nx509_extensions=v\n[d]\n[v]\nbasicConstraints=critical,CA:TRUE\n[n]\nO=Demo\n",
        ),
    ]);
    fs::copy(&ca, dir.join("trust/narrow.pem")).unwrap();
    for (subject, extension, expected) in [
        ("/O=Demo/CN=in", "keyUsage=digitalSignature", Ok(())),
        ("/O=Other/CN=out", "keyUsage=digitalSignature", Err("untrusted")),
        ("/O=Demo/CN=odd", "1.2.3.4=critical,ASN1:NULL", Err("untrusted")),
        ("/O=Demo/CN=odd", "1.2.3.4=ASN1:NULL", Ok(())),
        ("/O=Demo/CN=tls", "extendedKeyUsage=serverAuth", Err("certificate-usage")),
        ("/O=Demo/CN=any", "extendedKeyUsage=anyExtendedKeyUsage", Ok(())),
    ] {
        openssl(&["req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-subj", subject, "-out", &csr]);
        write(&world.path("ext.cnf"), extension);
        openssl(&[
            "x509",
            "-req",
            "-in",
            &csr,
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-set_serial",
            "7",
            "-days",
            "1",
            "-extfile",
            &extensions,
            "-out",
            &out,
        ]);
        let leaf = Certificate::all_from_pem(&fs::read(&out).unwrap(), 1).unwrap().remove(0);
        let at = leaf.not_before();
        let verdict = load(&dir).verify(&leaf, &[], Usage::Sign, at, at);
        assert_eq!(verdict.map(|_| ()).map_err(|error| error.cause()), expected, "{subject} {extension}");
    }
}

#[test]
fn the_wrong_usage_is_refused_by_key_type() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let ring = load(&dir);
    let (signs, _) = world.issue("CN=s", RSA, SIGN, 0, 10);
    let (encrypts, _) = world.issue("CN=e", RSA, &[KeyUse::DataEncrypt], 0, 10);
    let (tls, _) = world.issue("CN=t", RSA, &[KeyUse::Handshake], 0, 10);
    let (agrees, _) = world.issue("CN=a", P256, AGREE, 0, 10);
    let check = |certificate: &Certificate, usage, good: bool| {
        let result = ring.verify(certificate, &[], usage, day(1), day(1));
        match result {
            Ok(_) => assert!(good, "{certificate:?} {usage:?}"),
            Err(error) => {
                assert!(!good, "{error}");
                assert_eq!(error.cause(), "certificate-usage");
            }
        }
    };
    for (certificate, sign, transport, agree, data) in [
        (&signs, true, false, false, false),
        (&encrypts, false, true, false, true),
        (&tls, true, true, false, true),
        (&agrees, false, false, true, false),
    ] {
        check(certificate, Usage::Sign, sign);
        check(certificate, Usage::KeyTransport, transport);
        check(certificate, Usage::KeyAgreement, agree);
        check(certificate, Usage::DataEncipherment, data);
    }
}

#[test]
fn of_two_certificates_with_one_name_the_newest_good_one_is_taken() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let name = dn("CN=billing,O=Demo");
    let people = |label: &str, from, days, uses| {
        let (certificate, _) = world.issue(name.as_str(), P256, uses, from, days);
        ring::install_person(&dir, label, &certificate, &[]).unwrap();
        certificate
    };
    let old = people("a", 0, 100, AGREE);
    let new = people("b", 10, 100, AGREE);
    people("c", 20, 100, SIGN); // newer still, but not for this
    let recipient = |at| load(&dir).recipient(&name, Usage::KeyTransport, Revocation::None, day(at)).cloned();
    assert_eq!(recipient(9), Ok(old.clone()));
    assert_eq!(recipient(11), Ok(new.clone()));
    assert_eq!(recipient(30), Ok(new.clone()));
    world.authority.revoke(&new.serial_hex(), day(31)).unwrap();
    world.install_crl(&dir);
    assert_eq!(recipient(32), Ok(old));
    // None is good: the reason of the newest is told.
    fs::remove_file(dir.join("people/c.pem")).unwrap();
    fs::remove_file(dir.join("people/a.pem")).unwrap();
    assert_eq!(recipient(32).unwrap_err().cause(), "certificate-revoked");
    let unknown = dn("CN=Billing,O=Demo");
    assert_eq!(
        load(&dir).recipient(&unknown, Usage::KeyTransport, Revocation::None, day(1)).unwrap_err(),
        CertificateError::Unknown { dn: unknown }
    );
}

#[test]
fn between_equals_the_larger_serial_number_decides() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let mut all: Vec<Certificate> = (0..5)
        .map(|at| {
            let (certificate, _) = world.issue("CN=x", P256, AGREE, 0, 10);
            ring::install_person(&dir, &format!("p{at}"), &certificate, &[]).unwrap();
            certificate
        })
        .collect();
    all.sort_by_key(|certificate| certificate.serial_hex());
    let ring = load(&dir);
    assert_eq!(ring.recipient(&dn("CN=x"), Usage::KeyAgreement, Revocation::None, day(1)), Ok(&all[4]));
}

#[test]
fn the_newest_key_signs_and_old_ones_still_open() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let old = world.own(&dir, "old", "CN=orders", RSA, &[KeyUse::DocSign, KeyUse::DataEncrypt], (0, 10));
    let new = world.own(&dir, "new", "CN=orders", P256, &[KeyUse::DocSign, KeyUse::KeyAgree], (5, 100));
    let later = world.own(&dir, "later", "CN=orders", P256, &[KeyUse::DocSign], (50, 100));
    let ring = load(&dir);
    assert_eq!(ring.signing(Revocation::None, day(1)).unwrap().certificate, old);
    assert_eq!(ring.signing(Revocation::None, day(6)).unwrap().certificate, new);
    assert_eq!(ring.signing(Revocation::None, day(60)).unwrap().certificate, later);
    let rsa_only = |own: &bulla_seal::ring::Own| own.certificate.key_bits() == 2048;
    assert_eq!(ring.signing_where(Revocation::None, day(6), rsa_only).unwrap().certificate, old);
    assert_eq!(ring.signing_where(Revocation::None, day(20), rsa_only).unwrap_err().cause(), "certificate-expired");
    assert_eq!(ring.signing_where(Revocation::None, day(20), |_| false).unwrap_err().cause(), "no-key");
    // Expired long since, yet it opens what was put for it.
    assert_eq!(ring.find_own(old.issuer_and_serial()).unwrap().label, "old");
    assert!(ring.find_own(world.authority.certificate().issuer_and_serial()).is_none());
    assert_eq!(ring.own().len(), 3);
    // The ring's own certificates are recipients too.
    assert_eq!(ring.recipient(&dn("CN=orders"), Usage::KeyTransport, Revocation::None, day(6)), Ok(&new));
    assert_eq!(ring.recipient(&dn("CN=orders"), Usage::DataEncipherment, Revocation::None, day(3)), Ok(&old));
}

#[test]
fn encrypted_keys_want_the_right_passphrase() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let mut wanted = request("CN=orders", P256, SIGN, 10);
    wanted.passphrase = Some(phrase("right"));
    let (certificate, key) = world.authority.issue(&wanted, day(0)).unwrap();
    let file = ring::install_own(&dir, "orders", &certificate, &[], &key).unwrap();
    let refused = |passphrase| match Ring::load(&dir, passphrase) {
        Err(RingError::Key { path, why }) => {
            assert_eq!(path, file);
            why
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(None), KeyError::Locked);
    let wrong = phrase("wrong");
    assert_eq!(refused(Some(&wrong)), KeyError::WrongPassphrase);
    let ring = Ring::load(&dir, Some(&phrase("right"))).unwrap();
    assert_eq!(ring.signing(Revocation::None, day(1)).unwrap().certificate, certificate);

    let rings = Rings::new(world.path("rings"));
    let now = Instant::now();
    assert!(rings.get("orders", now).unwrap_err().is_locked());
    rings.unlock("orders", wrong.clone()).unwrap();
    assert!(matches!(rings.get("orders", now), Err(RingError::Key { why: KeyError::WrongPassphrase, .. })));
    rings.unlock("orders", phrase("right")).unwrap();
    rings.get("orders", now).unwrap();
    assert!(matches!(rings.unlock("nobody", wrong), Err(RingError::Missing { .. })));
}

#[test]
fn a_ring_that_others_can_read_is_refused() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    world.own(&dir, "key", "CN=orders", P256, SIGN, (0, 10));
    load(&dir);
    for (place, mode) in [
        ("", 0o750),
        ("own", 0o705),
        ("people", 0o770),
        ("trust", 0o711),
        ("own/key.pem", 0o640),
        ("own/key.pem", 0o604),
    ] {
        let path = dir.join(place);
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Ring::load(&dir, None).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, RingError::Exposed { mode: found, .. } if found == mode), "{place}: {said}");
        assert!(said.contains(&format!("mode {mode:04o}")), "{said}");
        fs::set_permissions(&path, before).unwrap();
    }
    load(&dir);
}

#[test]
fn what_installs_writes_is_private_and_whole() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    world.own(&dir, "key", "CN=orders", P256, SIGN, (0, 10));
    for (path, mode) in [("", 0o700), ("own", 0o700), ("own/key.pem", 0o600), ("trust/ca.pem", 0o600)] {
        let found = fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path}");
    }
    let leftovers = fs::read_dir(dir.join("own")).unwrap().count();
    assert_eq!(leftovers, 1);
    let certificate = world.authority.certificate();
    for bad in ["", "../x", "a/b", ".x", "a b", "ä"] {
        let error = ring::install_trust(&dir, bad, certificate).unwrap_err();
        assert!(matches!(error, RingError::Label { .. }), "{bad}: {error}");
    }
}

#[test]
fn damaged_files_are_named() {
    let world = World::new();
    let (certificate, key) = world.issue("CN=x", P256, SIGN, 0, 10);
    let (other, _) = world.issue("CN=y", P256, SIGN, 0, 10);
    let other_pem = [other.to_pem(), key.as_bytes().to_vec()].concat();
    let twice = [certificate.to_pem(), key.as_bytes().to_vec(), key.as_bytes().to_vec()].concat();
    for (place, bytes, says) in [
        ("own/x.pem", certificate.to_pem(), "no private key"),
        ("own/x.pem", key.as_bytes().to_vec(), "no certificate that belongs there"),
        ("own/x.pem", other_pem, "no certificate that belongs there"),
        ("own/x.pem", twice, "more than one private key"),
        ("people/x.pem", b"hello".to_vec(), "no certificate that belongs there"),
        ("people/x.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(), "broken PEM"),
        ("trust/x.pem", Vec::new(), "no certificate that belongs there"),
        ("trust/x.pem", certificate.to_pem().repeat(17), "too many certificates"),
        ("trust/x.pem", vec![b' '; (1 << 20) + 1], "over its limit of 1048576"),
        ("crl/x.pem", b"hello".to_vec(), "no CRL in the file"),
        ("crl/x.crl", certificate.der().to_vec(), "CRL is not valid DER"),
    ] {
        let dir = world.ring_dir("orders");
        fs::write(dir.join(place), bytes).unwrap();
        fs::set_permissions(dir.join(place), fs::Permissions::from_mode(0o600)).unwrap();
        let error = Ring::load(&dir, None).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains(says), "{place}: {error}");
        fs::remove_file(dir.join(place)).unwrap();
    }
    let dir = world.ring_dir("orders");
    for passed_over in ["own/note.txt", "people/.new-0000.pem", "crl/readme"] {
        fs::write(dir.join(passed_over), "hello").unwrap();
    }
    load(&dir);
}

#[test]
fn changes_on_disk_are_seen_without_a_restart() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let rings = Rings::new(world.path("rings"));
    let mut now = Instant::now();
    let first = rings.get("orders", now).unwrap();
    let mut see = |wait: Duration| {
        now += wait;
        rings.get("orders", now)
    };
    let same = see(CHECK_INTERVAL).unwrap();
    assert_eq!(same.generation(), first.generation());

    let (certificate, _) = world.issue("CN=x", P256, AGREE, 0, 10);
    let file = ring::install_person(&dir, "x", &certificate, &[]).unwrap();
    assert_eq!(see(Duration::ZERO).unwrap().generation(), first.generation(), "not before the interval is over");
    let second = see(CHECK_INTERVAL).unwrap();
    assert!(second.generation() > first.generation());
    assert_eq!((first.people().len(), second.people().len()), (0, 1), "a snapshot does not change");

    // Touched, but not changed: keys and verdicts that were kept for it stay good.
    fs::write(&file, certificate.to_pem()).unwrap();
    assert_eq!(see(CHECK_INTERVAL).unwrap().generation(), second.generation());
    // Changed within the file system's tick, to something of the same size.
    let same_size = world.authority.certificate().to_pem();
    let mut padded = certificate.to_pem();
    padded.resize(same_size.len().max(padded.len()), b'\n');
    let mut other = same_size;
    other.resize(padded.len(), b'\n');
    fs::write(&file, padded).unwrap();
    see(CHECK_INTERVAL).unwrap();
    fs::write(&file, other).unwrap();
    assert_eq!(&see(CHECK_INTERVAL).unwrap().people()[0].certificate, world.authority.certificate());

    // Changed in place, removed, damaged, mended.
    let (another, _) = world.issue("CN=another", P256, AGREE, 0, 10);
    fs::write(&file, [another.to_pem(), b"\n".to_vec()].concat()).unwrap();
    assert_eq!(see(CHECK_INTERVAL).unwrap().people()[0].certificate, another);
    fs::remove_file(&file).unwrap();
    assert_eq!(see(CHECK_INTERVAL).unwrap().people().len(), 0);
    fs::write(dir.join("trust/bad.pem"), "?").unwrap();
    assert!(matches!(see(CHECK_INTERVAL), Err(RingError::NoCertificate { .. })));
    assert!(see(Duration::ZERO).is_err(), "an unreadable ring is not given out in its old state");
    fs::remove_file(dir.join("trust/bad.pem")).unwrap();
    see(CHECK_INTERVAL).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(see(CHECK_INTERVAL), Err(RingError::Exposed { .. })));
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    see(CHECK_INTERVAL).unwrap();
    fs::rename(&dir, world.path("away")).unwrap();
    assert!(matches!(see(CHECK_INTERVAL), Err(RingError::Missing { .. })));
}

#[test]
fn names_do_not_lead_out_of_the_directory() {
    let world = World::new();
    world.ring_dir("orders");
    let rings = Rings::new(world.path("rings"));
    for bad in ["", ".", "..", "../orders", "a/b", "/etc", "a\0b", "ä", &"a".repeat(129)] {
        assert!(matches!(rings.get(bad, Instant::now()), Err(RingError::UserName { .. })), "{bad:?}");
    }
    assert!(matches!(rings.get("nobody", Instant::now()), Err(RingError::Missing { .. })));
}

#[test]
fn ten_thousand_people_stay_quick() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    // One key for all, so that making them does not outweigh what is looked at.
    let (first, key) = world.issue("CN=p0", P256, AGREE, 0, 100);
    let key = read_private_key(key.as_bytes(), None).unwrap();
    let signer = read_private_key(&fs::read(world.path("ca/key.pem")).unwrap(), None).unwrap();
    ring::create(&dir).unwrap();
    for at in 0..10_000 {
        let mut builder = openssl::x509::X509::builder().unwrap();
        builder.set_version(2).unwrap();
        builder.set_subject_name(&dn(&format!("CN=p{at}")).to_x509_name().unwrap()).unwrap();
        builder.set_issuer_name(world.authority.certificate().x509().subject_name()).unwrap();
        let serial = openssl::bn::BigNum::from_u32(at + 1).unwrap();
        builder.set_serial_number(&openssl::asn1::Asn1Integer::from_bn(&serial).unwrap()).unwrap();
        builder.set_not_before(first.x509().not_before()).unwrap();
        builder.set_not_after(first.x509().not_after()).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.sign(&signer, openssl::hash::MessageDigest::sha256()).unwrap();
        fs::write(dir.join(format!("people/p{at}.pem")), builder.build().to_pem().unwrap()).unwrap();
    }
    let rings = Rings::new(world.path("rings"));
    let mut now = Instant::now();
    let mut timed = |what: &str, wait: Duration| {
        now += wait;
        let start = Instant::now();
        let ring = rings.get("orders", now).unwrap();
        println!("{what}: {:?}", start.elapsed());
        ring
    };
    let ring = timed("first reading", Duration::ZERO);
    assert_eq!(ring.people().len(), 10_000);
    timed("between looks", Duration::ZERO);
    timed("a look", CHECK_INTERVAL);
    let start = Instant::now();
    ring.recipient(&dn("CN=p9876"), Usage::KeyAgreement, Revocation::None, day(1)).unwrap();
    println!("recipient: {:?}", start.elapsed());

    // A change in place far back is seen within ten looks, one that goes through the directory at once.
    let (changed, _) = world.issue("CN=changed", P256, AGREE, 0, 10);
    fs::write(dir.join("people/p9999.pem"), changed.to_pem()).unwrap();
    let seen = (0..=10).any(|_| !timed("a look", CHECK_INTERVAL).people().iter().all(|p| p.certificate != changed));
    assert!(seen);
    ring::install_person(&dir, "new", &changed, &[]).unwrap();
    assert_eq!(timed("reading what changed", CHECK_INTERVAL).people().len(), 10_001);
}

#[test]
fn every_key_type_signs_and_agrees_through_a_ring() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    for spec in KeySpec::ALL {
        let name = format!("CN={spec}");
        let certificate = world.own(&dir, &spec.to_string(), &name, spec, &KeyUse::usual(spec.kind()), (0, 10));
        let ring = load(&dir);
        let own = ring.find_own(certificate.issuer_and_serial()).unwrap();
        assert_eq!(own.key.id(), *certificate.spki_sha256());
        if !matches!(spec, KeySpec::MlKem(_)) {
            verify(&ring, &certificate, 1).unwrap();
        }
        let recipient = ring.recipient(&dn(&name), Usage::DataEncipherment, Revocation::None, day(1));
        assert_eq!(recipient.ok(), (!matches!(spec, KeySpec::MlDsa(_))).then_some(&certificate), "{spec}");
    }
}

#[test]
fn a_ring_with_a_key_on_a_token_keeps_what_failed_unwraps_go_on_with() {
    let world = World::new();
    let uri = "pkcs11:token=t;object=x".parse().unwrap();
    let (certificate, _) = world.issue("CN=x", RSA, &[KeyUse::DataEncrypt], 0, 100);
    let rejected = |dir: &std::path::Path| {
        let ring = load(dir);
        ring.own()[0].key.rejected(RsaPadding::Pkcs1, &[1; 256], 32).unwrap()
    };
    let [orders, other] = ["orders", "other"].map(|user| {
        let dir = world.ring_dir(user);
        ring::install_own_elsewhere(&dir, "x", &certificate, &[], &uri).unwrap();
        dir
    });
    let first = rejected(&orders);
    let path = orders.join("own/rejection-secret");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(rejected(&orders), first, "the same after each reading");
    assert_ne!(rejected(&other), first, "each ring has its own");
    assert_eq!(fs::read_dir(orders.join("own")).unwrap().count(), 2, "nothing is left beside it");

    fs::copy(&path, other.join("own/rejection-secret")).unwrap();
    assert_eq!(rejected(&other), first, "it is in the file");
    fs::write(&path, "0123").unwrap();
    let error = Ring::load(&orders, None).unwrap_err().to_string();
    assert!(error.ends_with("own/rejection-secret: not 64 hexadecimal digits and a line feed"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Ring::load(&orders, None), Err(RingError::Exposed { .. })));
    // A ring that can't be written keeps nothing; its keys are used all the same.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(rejected(&orders), rejected(&orders), "the same in this process");
}

#[test]
fn a_key_on_a_token_is_loaded_without_the_token() {
    let world = World::new();
    let dir = world.ring_dir("orders");
    let (certificate, key) = world.issue("CN=x", P256, SIGN, 0, 100);
    let page = include_str!("../../../docs/formats/key-ring.md");
    let shown = page.split("```uri\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let uri = shown.parse().unwrap();
    let chain = [world.authority.certificate().clone()];
    let path = ring::install_own_elsewhere(&dir, "x", &certificate, &chain, &uri).unwrap();
    let ring = load(&dir);
    let own = &ring.own()[0];
    assert_eq!((&own.certificate, own.chain.len(), own.key.token_uri()), (&certificate, 1, Some(shown)));
    assert!(own.key.exportable().is_none());
    assert!(own.key.public().public_eq(certificate.public_key()));

    let text = fs::read_to_string(&path).unwrap();
    let check = |text: &str, says: &str| {
        fs::write(&path, text).unwrap();
        let error = Ring::load(&dir, None).unwrap_err().to_string();
        assert!(error.starts_with(path.to_str().unwrap()) && error.ends_with(says), "{error}");
    };
    check(&format!("{text}pkcs11:object=other\n"), "more than one private key");
    check(
        &[text.as_bytes(), key.as_bytes()].concat().iter().map(|b| char::from(*b)).collect::<String>(),
        "private key",
    );
    check(shown, "no certificate that belongs there");
    check(&text.replace("token=", "tokem="), "unknown attribute \"tokem\"");
    check(&text.replace("type=private", "type=private?pin-value=1234"), "name a file for it");
}
