//! What the tests of rings and certificates share: an authority, a ring, and the `openssl` command.

#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part; all of it is tests

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::{Certificate, Curve, KeySpec, KeyUse, Passphrase, PrivateKeyPem};
use bulla_seal::ring::{self, Ring};
use tempfile::TempDir;

pub(crate) const P256: KeySpec = KeySpec::Ec(Curve::P256);
pub(crate) const RSA: KeySpec = KeySpec::Rsa(2048);

/// 2026-11-21T00:00:00Z, when these tests begin, plus days.
pub(crate) fn day(day: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_219_200 + day * 86_400)
}

/// A data directory with one authority, founded on day 0 for ten years.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) authority: Authority,
}

impl World {
    pub(crate) fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let dn = "CN=Test CA,O=Demo".parse().unwrap();
        let authority = Authority::create(&dir.path().join("ca"), &dn, P256, 3650, day(0)).unwrap();
        World { dir, authority }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the ring of `user` is; it exists and trusts the authority.
    pub(crate) fn ring_dir(&self, user: &str) -> PathBuf {
        let path = self.path("rings").join(user);
        ring::install_trust(&path, "ca", self.authority.certificate()).unwrap();
        path
    }

    pub(crate) fn issue(
        &self,
        dn: &str,
        key: KeySpec,
        uses: &[KeyUse],
        from: u64,
        days: u32,
    ) -> (Certificate, PrivateKeyPem) {
        self.authority.issue(&request(dn, key, uses, days), day(from)).unwrap()
    }

    /// A certificate with its key in the ring.
    pub(crate) fn own(
        &self,
        dir: &Path,
        label: &str,
        dn: &str,
        key: KeySpec,
        uses: &[KeyUse],
        (from, days): (u64, u32),
    ) -> Certificate {
        let (certificate, key) = self.issue(dn, key, uses, from, days);
        ring::install_own(dir, label, &certificate, &[], &key).unwrap();
        certificate
    }

    pub(crate) fn install_crl(&self, dir: &Path) {
        ring::install_crl(dir, "ca", &self.authority.crl().unwrap()).unwrap();
    }
}

pub(crate) fn request(dn: &str, key: KeySpec, uses: &[KeyUse], days: u32) -> Request {
    Request { dn: dn.parse().unwrap(), key, uses: uses.to_vec(), days, alternative_names: Vec::new(), passphrase: None }
}

pub(crate) fn load(dir: &Path) -> Ring {
    Ring::load(dir, None).unwrap()
}

pub(crate) fn phrase(text: &str) -> Passphrase {
    Passphrase::new(text.to_owned())
}

/// Runs `openssl` and returns what it said; panics with it when it fails.
pub(crate) fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "openssl {arguments:?}: {said}");
    said
}

pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> String {
    std::fs::write(path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}
