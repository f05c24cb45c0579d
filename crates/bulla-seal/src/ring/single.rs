//! A ring made of single files, to open one message without a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulla_device::{DeviceError, PrivateKey};

use super::load::{self, Place};
use super::{Crl, Own, Ring, RingError};
use crate::certificate::{Certificate, KeyError, KeySource, Passphrase, read_key_source, tlv};

/// The most certificates in one file of authorities: a system's whole collection has some 150.
pub const SINGLE_FILE_CERTIFICATES_MAX: usize = 1024;

/// The files of a ring that is no directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleFiles<'a> {
    /// A private key that others can't read, and the PEM file with its certificate.
    pub own: Option<(&'a Path, &'a Path)>,
    /// Files with the authorities to believe.
    pub trust: &'a [PathBuf],
    /// Files with certificates of authorities between, and of others that sign revocation lists.
    pub untrusted: &'a [PathBuf],
    /// Files with revocation lists.
    pub crls: &'a [PathBuf],
}

impl Ring {
    /// A ring out of single files. It belongs to no named user.
    ///
    /// # Errors
    /// As [`Ring::load`]: the first file that can't be used.
    pub fn from_files(files: &SingleFiles<'_>, passphrase: Option<&Passphrase>) -> Result<Ring, RingError> {
        let mut ring = Ring { generation: load::next_generation(), trusts_for_all: true, ..Ring::empty() };
        for path in files.trust {
            let (bytes, _) = load::bytes(path, Place::Trust)?;
            ring.trust.extend(certificates(path, &bytes)?);
        }
        for path in files.untrusted {
            let (bytes, _) = load::bytes(path, Place::Trust)?;
            ring.keep_authorities(&certificates(path, &bytes)?);
        }
        for path in files.crls {
            let (bytes, _) = load::bytes(path, Place::Crl)?;
            let malformed = |why| RingError::Malformed { path: path.clone(), why };
            ring.crls.extend(Crl::all_from(&bytes).map_err(malformed)?.into_iter().map(Arc::new));
        }
        if let Some((key, certificate)) = files.own {
            let own = own(key, certificate, passphrase)?;
            ring.keep_authorities(&own.chain);
            ring.own_by_id.insert(own.certificate.issuer_and_serial().to_vec(), 0);
            ring.own.push(Arc::new(own));
        }
        Ok(ring)
    }
}

/// The certificates of a file: PEM, or one in DER.
fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<Certificate>, RingError> {
    let malformed = |why| RingError::Malformed { path: path.to_owned(), why };
    if bytes.first() == Some(&tlv::SEQUENCE) {
        return Ok(vec![Certificate::from_der(bytes).map_err(malformed)?]);
    }
    let all = Certificate::all_from_pem(bytes, SINGLE_FILE_CERTIFICATES_MAX).map_err(malformed)?;
    if all.is_empty() { Err(RingError::NoCertificate { path: path.to_owned() }) } else { Ok(all) }
}

fn own(path: &Path, certificate: &Path, passphrase: Option<&Passphrase>) -> Result<Own, RingError> {
    let bad = |why| RingError::Key { path: path.to_owned(), why };
    let (bytes, _) = load::bytes(path, Place::Own)?;
    let KeySource::Clear(key) = read_key_source(&bytes, passphrase).map_err(bad)? else {
        return Err(bad(KeyError::Library {
            why: "the key is not in the file, and a ring names such keys".to_owned(),
        }));
    };
    let (bytes, _) = load::bytes(certificate, Place::People)?;
    let mut chain = load::certificates(certificate, &bytes)?;
    let at = chain
        .iter()
        .position(|one| one.public_key().public_eq(&key))
        .ok_or_else(|| RingError::NoCertificate { path: path.to_owned() })?;
    let certificate = chain.remove(at);
    let unusable = |error: DeviceError| bad(KeyError::Library { why: error.to_string() });
    let key = PrivateKey::clear(key).map_err(unusable)?;
    Ok(Own { label: load::label(path), certificate, chain, key })
}
