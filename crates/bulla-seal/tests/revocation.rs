//! Revocation lists of every kind in a ring, and the certificate policies of paths.

#![allow(missing_docs, clippy::unwrap_used)]

mod ring_common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bulla_seal::certificate::authority::Authority;
use bulla_seal::certificate::{Certificate, CertificateError, KeyUse, Usage};
use bulla_seal::policy::Revocation;
use bulla_seal::ring::{self, PathQuestion, Ring};
use ring_common::*;
use tempfile::TempDir;

/// An authority and a ring of today: the command dates its lists by the clock.
struct Today {
    dir: TempDir,
    authority: Authority,
    leaf: Certificate,
    now: SystemTime,
}

impl Today {
    fn new() -> Today {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = Authority::create(&dir.path().join("ca"), &NAME.parse().unwrap(), P256, 100, now).unwrap();
        let (leaf, _) = authority.issue(&request("CN=x", P256, &[KeyUse::DocSign], 10), now).unwrap();
        let today = Today { dir, authority, leaf, now };
        ring::install_trust(&today.ring(), "ca", today.authority.certificate()).unwrap();
        today
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn ring(&self) -> PathBuf {
        self.path("ring")
    }

    /// A list with this extension, signed by the authority in `signer`, that names these certificates.
    fn list(&self, signer: &str, extension: &str, revoked: &[&Certificate]) -> Vec<u8> {
        let config = "[ca]\ndefault_ca=d\n[d]\ndatabase=DIR/index.txt\ncrlnumber=DIR/number\ndefault_md=sha256\n\
            default_crl_days=30\n[e]\nEXTENSION\n[i]\nonlyuser=TRUE\n[o]\nonlyCA=TRUE\n"
            .replace("DIR", self.dir.path().to_str().unwrap())
            .replace("EXTENSION", extension);
        let config = write(&self.path("ca.cnf"), config);
        let index: String = revoked
            .iter()
            .map(|one| {
                format!("R\t491231235959Z\t250101000000Z\t{}\tunknown\t/CN=x\n", one.serial_hex().to_uppercase())
            })
            .collect();
        write(&self.path("index.txt"), index);
        write(&self.path("number"), "02\n");
        let [key, ca, out] = [format!("{signer}/key.pem"), format!("{signer}/ca.pem"), "list.pem".to_owned()]
            .map(|name| self.path(&name).display().to_string());
        let arguments = ["ca", "-gencrl", "-config", &config, "-keyfile", &key, "-cert", &ca, "-out", &out];
        let extensions: &[&str] = if extension.is_empty() { &[] } else { &["-crlexts", "e"] };
        openssl(&[&arguments[..], extensions].concat());
        fs::read(out).unwrap()
    }

    fn install(&self, label: &str, list: &[u8]) {
        ring::install_crl(&self.ring(), label, list).unwrap();
    }

    fn check(&self, leaf: &Certificate) -> Result<(), &'static str> {
        // Lists are made after everything else, in seconds.
        check(&self.ring(), leaf, SystemTime::now())
    }
}

const NAME: &str = "CN=Today";

fn check(ring: &Path, leaf: &Certificate, now: SystemTime) -> Result<(), &'static str> {
    let ring = Ring::load(ring, None).unwrap();
    ring.verify(leaf, &[], Usage::Sign, now, now).map(drop).map_err(|error| error.cause())
}

#[test]
fn a_partitioned_list_is_used_for_what_it_is_about() {
    let today = Today::new();
    today.install("users", &today.list("ca", "issuingDistributionPoint=critical,@i", &[]));
    assert_eq!(today.check(&today.leaf), Ok(()));
    today.install("users", &today.list("ca", "issuingDistributionPoint=critical,@i", &[&today.leaf]));
    assert_eq!(today.check(&today.leaf), Err("certificate-revoked"));
}

#[test]
fn a_list_about_other_certificates_is_passed_over() {
    let today = Today::new();
    today.install("authorities", &today.list("ca", "issuingDistributionPoint=critical,@o", &[]));
    assert_eq!(today.check(&today.leaf), Ok(()));
    // The complete list beside it counts.
    today.install("ca", &today.list("ca", "", &[&today.leaf]));
    assert_eq!(today.check(&today.leaf), Err("certificate-revoked"));
}

#[test]
fn a_delta_list_alone_revokes_what_it_names() {
    let today = Today::new();
    let delta = "2.5.29.27=critical,DER:020101";
    today.install("delta", &today.list("ca", delta, &[]));
    assert_eq!(today.check(&today.leaf), Ok(()));
    today.install("delta", &today.list("ca", delta, &[&today.leaf]));
    assert_eq!(today.check(&today.leaf), Err("certificate-revoked"));
}

#[test]
fn a_list_with_an_unknown_critical_extension_stops_its_authority_alone() {
    let today = Today::new();
    let other = Authority::create(&today.path("other"), &"CN=Other".parse().unwrap(), P256, 100, today.now).unwrap();
    ring::install_trust(&today.ring(), "other", other.certificate()).unwrap();
    let (theirs, _) = other.issue(&request("CN=y", P256, &[KeyUse::DocSign], 10), today.now).unwrap();
    today.install("odd", &today.list("ca", "1.2.3.4=critical,ASN1:NULL", &[]));
    assert_eq!(today.check(&today.leaf), Err("crl-stale"));
    assert_eq!(today.check(&theirs), Ok(()));
}

#[test]
fn a_list_of_another_key_of_one_name_says_nothing_of_the_first() {
    let today = Today::new();
    let twin = Authority::create(&today.path("twin"), &NAME.parse().unwrap(), P256, 100, today.now).unwrap();
    let list = twin.crl().unwrap();
    today.install("twin", &list);
    // The list's issuer is not known, so the list may concern this certificate.
    assert_eq!(today.check(&today.leaf), Err("crl-stale"));
    ring::install_trust(&today.ring(), "twin", twin.certificate()).unwrap();
    assert_eq!(today.check(&today.leaf), Ok(()));
    let (theirs, _) = twin.issue(&request("CN=y", P256, &[KeyUse::DocSign], 10), today.now).unwrap();
    assert_eq!(today.check(&theirs), Ok(()));
    // Revoked all the same where the other key names it.
    today.install("twin", &today.list("twin", "", &[&today.leaf]));
    assert_eq!(today.check(&today.leaf), Err("certificate-revoked"));
}

#[test]
fn the_stricter_of_policy_and_ring_counts() {
    let today = Today::new();
    let verdict = |asked: Revocation| {
        let now = SystemTime::now();
        let question = PathQuestion { usage: Some(Usage::Sign), revocation: asked, at: now, now };
        let ring = Ring::load(&today.ring(), None).unwrap();
        ring.prove(&today.leaf, &[], &question).map(|proof| proof.unknown).map_err(|error| error.cause())
    };
    assert_eq!(verdict(Revocation::None), Ok(vec![0]));
    assert_eq!(verdict(Revocation::Required), Err("crl-missing"));
    ring::set_revocation(&today.ring(), Revocation::Required).unwrap();
    assert_eq!(verdict(Revocation::None), Err("crl-missing"));
    today.install("ca", &today.list("ca", "", &[]));
    assert_eq!(verdict(Revocation::None), Ok(vec![]));
    today.install("ca", &today.list("ca", "", &[&today.leaf]));
    ring::set_revocation(&today.ring(), Revocation::None).unwrap();
    assert_eq!(verdict(Revocation::IfPresent), Err("certificate-revoked"));
    assert_eq!(verdict(Revocation::None), Ok(vec![]));
}

#[test]
fn a_partitioned_list_that_is_over_fails_closed() {
    let today = Today::new();
    today.install("users", &today.list("ca", "issuingDistributionPoint=critical,@i", &[]));
    let later = SystemTime::now() + Duration::from_secs(31 * 86_400);
    let ring = Ring::load(&today.ring(), None).unwrap();
    let error = ring.verify(&today.leaf, &[], Usage::Sign, today.now, later).unwrap_err();
    assert!(matches!(error, CertificateError::CrlStale { .. }), "{error}");
    // One that is not about it may be over.
    today.install("users", &today.list("ca", "issuingDistributionPoint=critical,@o", &[]));
    let ring = Ring::load(&today.ring(), None).unwrap();
    ring.verify(&today.leaf, &[], Usage::Sign, today.now, later).unwrap();
}

/// A leaf that says this, below an authority that says that.
fn with_policies(of_authority: &str, of_leaf: &str) -> Result<(), &'static str> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let certificates = [
        ("root", "root", "basicConstraints=critical,CA:TRUE"),
        ("issuing", "root", of_authority),
        ("leaf", "issuing", of_leaf),
    ];
    for (name, issuer, extensions) in certificates {
        let [key, csr, out, file] = ["key", "csr", "pem", "ext"].map(|ending| path(&format!("{name}.{ending}")));
        let subject = format!("/CN={name}");
        let [ca, ca_key] = ["pem", "key"].map(|ending| path(&format!("{issuer}.{ending}")));
        write(Path::new(&file), extensions);
        let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let new = [&["req", "-new"][..], &kind, &["-keyout", &key, "-subj", &subject, "-out", &csr]].concat();
        openssl(&new);
        let sign = ["x509", "-req", "-in", &csr, "-days", "1", "-set_serial", "7", "-extfile", &file, "-out", &out];
        let by = if name == issuer { vec!["-signkey", &key] } else { vec!["-CA", &ca, "-CAkey", &ca_key] };
        openssl(&[&sign[..], &by].concat());
    }
    let read = |name: &str| Certificate::all_from_pem(&fs::read(path(name)).unwrap(), 1).unwrap().remove(0);
    let ring = dir.path().join("ring");
    ring::install_trust(&ring, "root", &read("root.pem")).unwrap();
    ring::install_person(&ring, "issuing", &read("issuing.pem"), &[]).unwrap();
    check(&ring, &read("leaf.pem"), SystemTime::now())
}

#[test]
fn certificate_policies_are_processed() {
    const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE\n";
    let strict = format!("{AUTHORITY}certificatePolicies=1.2.3.4\npolicyConstraints=critical,requireExplicitPolicy:0");
    assert_eq!(with_policies(&strict, "certificatePolicies=1.2.3.4"), Ok(()));
    assert_eq!(with_policies(&strict, "certificatePolicies=1.2.3.5"), Err("untrusted"));
    assert_eq!(with_policies(&strict, "keyUsage=digitalSignature"), Err("untrusted"));
    assert_eq!(with_policies(AUTHORITY, "keyUsage=digitalSignature"), Ok(()));
}
