//! What the TLS listeners of our own queue managers show.

use super::Manager;
use crate::error::{Error, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How long a queue manager believes that files of certificates have not changed, and a little more.
const FILES_SEEN: Duration = Duration::from_millis(1_200);
/// The authority that signs what listeners show.
const AUTHORITY: &str = "tls";

/// A listener's certificate.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The certificate and its key, PEM, in one file.
    pub(crate) own: Vec<u8>,
    /// The authorities to believe for it, PEM.
    pub(crate) authorities: Vec<u8>,
}

impl Manager<'_> {
    /// Makes the authority that signs what listeners show.
    ///
    /// # Errors
    /// [`Error::Manager`].
    pub(crate) fn make_tls_authority(&self) -> Result<()> {
        self.bulla(&["cert", "create", "--ca", AUTHORITY, "--dn", "CN=TLS,O=Perf", "--key", "rsa2048"], "")
    }

    /// Makes a certificate with that key for the listener of the queue manager `of`.
    ///
    /// # Errors
    /// [`Error::Manager`]: the key is none that certificates are made for.
    pub(crate) fn sign_listener(&self, of: &Manager<'_>, key: &str) -> Result<Shown> {
        let ring = self.data().join(format!("tls-{}-{key}", of.name()));
        let (ring_text, dn) = (utf8(&ring)?, format!("CN={},O=Perf", of.name()));
        let what = ["cert", "create", "--ring", ring_text, "--dn", &dn, "--key", key, "--signer", AUTHORITY];
        // Channels call the address, clients the name.
        let names = ["--san", "ip:127.0.0.1", "--san", "dns:localhost"];
        self.bulla(&[&what[..], &names, &["--label", "server", "--usage", "handshake"]].concat(), "")?;
        let mut authorities = Vec::new();
        let trust = ring.join("trust");
        for entry in fs::read_dir(&trust).map_err(|error| Error::file(&trust, error))? {
            authorities.extend(read(&entry?.path())?);
        }
        Ok(Shown { own: read(&ring.join("own/server.pem"))?, authorities })
    }

    /// Has its listeners show a certificate with that key, and waits until they do. The authorities that a client is
    /// to believe.
    ///
    /// # Errors
    /// [`Error::Manager`]: the key is none that certificates are made for.
    pub(crate) fn show(&self, key: &str) -> Result<Vec<u8>> {
        self.make_tls_authority()?;
        let (shown, tls) = (self.sign_listener(self, key)?, self.data().join("tls"));
        for ending in ["key", "pem"] {
            write(&tls.join(format!("server.{ending}")), &shown.own)?;
        }
        wait_until_seen();
        Ok(shown.authorities)
    }
}

/// Waits until queue managers have seen new files of certificates.
pub(crate) fn wait_until_seen() {
    std::thread::sleep(FILES_SEEN);
}

pub(crate) fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::Usage(format!("{}: a folder's name that is not UTF-8", path.display())))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Error::file(path, error))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|error| Error::file(path, error))
}
