//! Writing into a ring: directories 0700, files 0600, each whole or not there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bulla_device::KeyUri;
use openssl::rand::rand_bytes;
use zeroize::Zeroizing;

use super::load::{DOMAIN_CERTIFICATES_MAX, DOMAIN_LABEL, Place, REVOCATION_FILE};
use super::{Crl, RingError, rings};
use crate::certificate::{Certificate, MalformedError, PrivateKeyPem};
use crate::policy::Revocation;
use crate::spiffe_id::is_trust_domain;

/// Makes an empty ring: the directory and its four places. One that exists stays as it is.
///
/// # Errors
/// [`RingError::Io`].
pub fn create(dir: &Path) -> Result<(), RingError> {
    make_private_dir(dir)?;
    Place::ALL.into_iter().try_for_each(|place| make_private_dir(&dir.join(place.name())))
}

/// Puts a key with its certificate and the authorities above it into `own/LABEL.pem`.
///
/// # Errors
/// [`RingError::Label`], [`RingError::Io`].
pub fn install_own(
    dir: &Path,
    label: &str,
    certificate: &Certificate,
    chain: &[Certificate],
    key: &PrivateKeyPem,
) -> Result<PathBuf, RingError> {
    let mut text = Zeroizing::new(certificates(certificate, chain));
    text.extend_from_slice(key.as_bytes());
    install(dir, Place::Own, label, &text)
}

/// As [`install_own`], for a key on a token or in a transit engine: its URI stands in the place of the key.
///
/// # Errors
/// [`RingError::Label`], [`RingError::Io`].
pub fn install_own_elsewhere(
    dir: &Path,
    label: &str,
    certificate: &Certificate,
    chain: &[Certificate],
    uri: &KeyUri,
) -> Result<PathBuf, RingError> {
    let mut text = certificates(certificate, chain);
    text.extend_from_slice(format!("{uri}\n").as_bytes());
    install(dir, Place::Own, label, &text)
}

/// Puts another user's certificate, and the authorities above it, into `people/LABEL.pem`.
///
/// # Errors
/// [`RingError::Label`], [`RingError::Io`].
pub fn install_person(
    dir: &Path,
    label: &str,
    certificate: &Certificate,
    chain: &[Certificate],
) -> Result<PathBuf, RingError> {
    install(dir, Place::People, label, &certificates(certificate, chain))
}

/// Puts an authority's certificate into `trust/LABEL.pem`.
///
/// # Errors
/// [`RingError::Label`], [`RingError::Io`].
pub fn install_trust(dir: &Path, label: &str, certificate: &Certificate) -> Result<PathBuf, RingError> {
    install(dir, Place::Trust, label, &certificate.to_pem())
}

/// Has `trust` hold these authorities of a SPIFFE trust domain. Of those before that are not among them the ones that
/// have ended stay, the latest first and so many as fit: messages that were sealed in their time are still to be
/// opened. One that is taken out before its end is not believed any more. A file that would not change is not written.
///
/// # Errors
/// [`RingError::Label`] where it is no name of a trust domain, [`RingError::Malformed`], [`RingError::Io`].
pub fn install_domain(
    dir: &Path,
    domain: &str,
    authorities: &[Certificate],
    now: SystemTime,
) -> Result<PathBuf, RingError> {
    let label = format!("{DOMAIN_LABEL}{domain}");
    if !is_trust_domain(domain) || authorities.is_empty() {
        return Err(RingError::Label { label });
    }
    let path = dir.join(Place::Trust.name()).join(format!("{label}.pem"));
    let before = match fs::read(&path) {
        Ok(before) => before,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(RingError::io(&path, &error)),
    };
    let malformed = |why| RingError::Malformed { path: path.clone(), why };
    let mut former = Certificate::all_from_pem(&before, DOMAIN_CERTIFICATES_MAX).map_err(malformed)?;
    former.retain(|one| one.not_after() <= now && !authorities.contains(one));
    former.sort_by_key(|one| std::cmp::Reverse(one.not_after()));
    let all = authorities.iter().chain(&former).take(DOMAIN_CERTIFICATES_MAX);
    let pem: Vec<u8> = all.flat_map(Certificate::to_pem).collect();
    if pem == before { Ok(path) } else { install(dir, Place::Trust, &label, &pem) }
}

/// Puts revocation lists (PEM, or one in DER) into `crl/LABEL.pem` or `crl/LABEL.crl`, after a look whether they are
/// any.
///
/// # Errors
/// [`RingError::Malformed`], [`RingError::Label`], [`RingError::Io`].
pub fn install_crl(dir: &Path, label: &str, crl: &[u8]) -> Result<PathBuf, RingError> {
    let malformed = |why: MalformedError| RingError::Malformed { path: dir.join(Place::Crl.name()), why };
    Crl::all_from(crl).map_err(malformed)?;
    let armoured = crl.windows(10).any(|window| window == b"-----BEGIN");
    let name = if armoured { format!("{label}.pem") } else { format!("{label}.crl") };
    install_file(dir, Place::Crl, label, &name, crl)
}

/// Writes what the ring asks of its revocation lists.
///
/// # Errors
/// [`RingError::Io`].
pub fn set_revocation(dir: &Path, asked: Revocation) -> Result<PathBuf, RingError> {
    create(dir)?;
    let path = dir.join(REVOCATION_FILE);
    write_private(&path, format!("{asked}\n").as_bytes()).map_err(|error| RingError::io(&path, &error))?;
    Ok(path)
}

fn certificates(first: &Certificate, chain: &[Certificate]) -> Vec<u8> {
    std::iter::once(first).chain(chain).flat_map(Certificate::to_pem).collect()
}

fn install(dir: &Path, place: Place, label: &str, bytes: &[u8]) -> Result<PathBuf, RingError> {
    install_file(dir, place, label, &format!("{label}.pem"), bytes)
}

fn install_file(dir: &Path, place: Place, label: &str, name: &str, bytes: &[u8]) -> Result<PathBuf, RingError> {
    if !rings::is_plain_name(label) {
        return Err(RingError::Label { label: label.to_owned() });
    }
    create(dir)?;
    let path = dir.join(place.name()).join(name);
    write_private(&path, bytes).map_err(|error| RingError::io(&path, &error))?;
    Ok(path)
}

fn make_private_dir(path: &Path) -> Result<(), RingError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| RingError::io(path, &error))
}

/// Writes a file of mode 0600 beside its place, syncs it and renames it there: readers see the old one or the new one.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_aside(path, bytes, |aside| fs::rename(aside, path))
}

/// The same for a file that is written once: one that is there stays, and is an error.
pub(super) fn write_private_once(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_aside(path, bytes, |aside| fs::hard_link(aside, path).and_then(|()| fs::remove_file(aside)))
}

fn write_aside(path: &Path, bytes: &[u8], put_there: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut suffix = [0; 8];
    rand_bytes(&mut suffix).map_err(io::Error::other)?;
    let suffix = u64::from_ne_bytes(suffix);
    let aside = parent.join(format!(".new-{suffix:016x}"));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| put_there(&aside));
    if written.is_err() {
        // The first error is the one to tell; what lies about begins with a dot and is never read.
        let _ = fs::remove_file(&aside);
        return written;
    }
    // Only syncing the directory makes the new name survive.
    File::open(parent)?.sync_all()
}
