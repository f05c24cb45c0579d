//! The files under `tls/` of the data directory, and whether they have changed.
//!
//! ```text
//! server.pem, server.key   the queue manager's certificate with its chain, and its key
//! NAME.pem, NAME.key       those of CERTLABL(NAME)
//! NAME.ocsp                an OCSP answer about NAME.pem, DER: stapled while it is fresh
//! clients.pem              authorities whose certificates clients and calling channels may show
//! partners.pem             authorities of the servers that channels connect to; clients.pem where it is missing
//! crls/*.pem, crls/*.der   revocation lists
//! ```

use super::refusal::TlsRefusal;
use crate::catalog::names::is_label;
use bulla_device::tls::add_revocation_list;
use openssl::pkey::{PKey, Private};
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::X509VerifyFlags;
use openssl::x509::{X509, X509Crl};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Label of the queue manager's own certificate.
pub(super) const OWN_LABEL: &str = "server";
/// Largest file read, in bytes: revocation lists of large authorities have tens of megabytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most revocation lists.
const LISTS_MAX: usize = 1024;

/// A certificate with what it needs to be shown.
pub(super) struct Shown {
    pub(super) certificate: X509,
    pub(super) chain: Vec<X509>,
    pub(super) key: PKey<Private>,
    /// An OCSP answer as it is in its file.
    pub(super) staple: Option<Vec<u8>>,
}

/// Who is believed.
pub(super) struct Believed {
    /// The authorities, with the revocation lists.
    pub(super) store: X509Store,
    /// The authorities alone, for who signs OCSP answers.
    pub(super) authorities: X509Store,
    /// The issuers of the revocation lists, DER.
    pub(super) listed: Vec<Vec<u8>>,
}

/// Which files of authorities are meant.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Authorities {
    /// `clients.pem`.
    Clients,
    /// `partners.pem`, else `clients.pem`.
    Partners,
}

/// A number that changes when a file does: names, times, sizes and inodes, hashed. One `stat` a file.
pub(super) fn fingerprint(dir: &Path) -> u64 {
    let mut seen: Vec<(PathBuf, i64, i64, u64, u64)> = Vec::new();
    for folder in [dir.to_owned(), dir.join("crls")] {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if let Ok(facts) = fs::metadata(entry.path()) {
                seen.push((entry.path(), facts.mtime(), facts.mtime_nsec(), facts.size(), facts.ino()));
            }
        }
    }
    seen.sort();
    let mut hasher = DefaultHasher::new();
    seen.hash(&mut hasher);
    hasher.finish()
}

/// The certificate of that label.
pub(super) fn shown(dir: &Path, label: &str) -> Result<Shown, TlsRefusal> {
    let stem = |ending: &str| dir.join(format!("{label}.{ending}"));
    if !is_label(label) {
        return Err(TlsRefusal::File { path: dir.join(label), why: "not a label of a certificate".into() });
    }
    let path = stem("pem");
    let mut chain = certificates(&path)?;
    if chain.is_empty() {
        return Err(TlsRefusal::File { path, why: "holds no certificate".into() });
    }
    let certificate = chain.remove(0);
    let path = stem("key");
    let pem = Zeroizing::new(read(&path)?);
    // There is no terminal to ask for a passphrase.
    let key = PKey::private_key_from_pem_callback(&pem, |_| Ok(0)).map_err(|error| wrong(&path, &error))?;
    let fits = certificate.public_key().is_ok_and(|public| public.public_eq(&key));
    if !fits {
        return Err(TlsRefusal::File { path, why: "not the key of the certificate beside it".into() });
    }
    let staple = stem("ocsp");
    let staple = if staple.exists() { Some(read(&staple)?) } else { None };
    Ok(Shown { certificate, chain, key, staple })
}

/// The file of authorities, where there is one.
pub(super) fn authorities_file(dir: &Path, which: Authorities) -> Option<PathBuf> {
    let names: &[&str] = match which {
        Authorities::Clients => &["clients.pem"],
        Authorities::Partners => &["partners.pem", "clients.pem"],
    };
    names.iter().map(|name| dir.join(name)).find(|path| path.exists())
}

/// The trusted authorities. Without a file of authorities there are none.
pub(super) fn believed(dir: &Path, which: Authorities) -> Result<Believed, TlsRefusal> {
    let certificates = match authorities_file(dir, which) {
        Some(path) => certificates(&path)?,
        None => Vec::new(),
    };
    let (mut store, mut authorities) = (X509StoreBuilder::new()?, X509StoreBuilder::new()?);
    for certificate in certificates {
        authorities.add_cert(certificate.clone())?;
        store.add_cert(certificate)?;
    }
    let mut listed = Vec::new();
    for list in revocation_lists(&dir.join("crls"))? {
        listed.push(list.issuer_name().to_der()?);
        add_revocation_list(&mut store, &list)?;
    }
    if !listed.is_empty() {
        store.set_flags(X509VerifyFlags::CRL_CHECK | X509VerifyFlags::CRL_CHECK_ALL)?;
    }
    Ok(Believed { store: store.build(), authorities: authorities.build(), listed })
}

fn revocation_lists(folder: &Path) -> Result<Vec<X509Crl>, TlsRefusal> {
    const BEGIN: &str = "-----BEGIN X509 CRL-----";
    let mut lists = Vec::new();
    let unreadable = |error: std::io::Error| TlsRefusal::File { path: folder.to_owned(), why: error.to_string() };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(lists),
        // A list that can't be read must not be missed: what it revokes would pass.
        Err(error) => return Err(unreadable(error)),
    };
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !matches!(ending, "der" | "pem" | "crl") {
            let why = "neither .pem, .der nor .crl: it is not read as a revocation list".to_owned();
            return Err(TlsRefusal::File { path, why });
        }
        let bytes = read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        if text.contains(BEGIN) {
            // Each begins a list; what stands before the first is a remark.
            for list in text.split(BEGIN).skip(1) {
                let pem = format!("{BEGIN}{list}");
                lists.push(X509Crl::from_pem(pem.as_bytes()).map_err(|error| wrong(&path, &error))?);
            }
        } else {
            lists.push(X509Crl::from_der(&bytes).map_err(|error| wrong(&path, &error))?);
        }
        if lists.len() > LISTS_MAX {
            return Err(TlsRefusal::File { path, why: format!("more than {LISTS_MAX} revocation lists") });
        }
    }
    Ok(lists)
}

fn certificates(path: &Path) -> Result<Vec<X509>, TlsRefusal> {
    X509::stack_from_pem(&read(path)?).map_err(|error| wrong(path, &error))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsRefusal> {
    let bytes = || -> io::Result<Vec<u8>> {
        if fs::metadata(path)?.len() > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("over {FILE_BYTES_MAX} bytes")));
        }
        fs::read(path)
    };
    bytes().map_err(|error| wrong(path, &error))
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> TlsRefusal {
    TlsRefusal::File { path: path.to_owned(), why: why.to_string() }
}
