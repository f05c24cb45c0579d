//! Reading a ring's directory. Files that did not change since the last reading are not read again.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bulla_device::{DeviceError, KeyUri, PrivateKey, PublicKey};
use openssl::sha::sha256;
use zeroize::Zeroizing;

use super::{Crl, Own, Person, Ring, RingError, newness, rejection};
use crate::certificate::{Certificate, KeyError, KeySource, MalformedError, Passphrase, read_key_source};
use crate::dn::Dn;
use crate::policy::Revocation;
use crate::spiffe_id::is_trust_domain;

/// The largest PEM file with certificates, in bytes.
pub const PEM_BYTES_MAX: usize = 1 << 20;
/// The most certificates in one PEM file.
pub const PEM_CERTIFICATES_MAX: usize = 16;
/// The largest file with CRLs, in bytes: some half a million revoked certificates.
pub const CRL_BYTES_MAX: usize = 32 << 20;
/// The most files in one directory of a ring.
pub const RING_FILES_MAX: usize = 100_000;

/// The most authorities of one trust domain, with those that have ended: a year's where each lasts two days.
pub const DOMAIN_CERTIFICATES_MAX: usize = 200;
/// What the label of a file with the authorities of a trust domain begins with.
pub(super) const DOMAIN_LABEL: &str = "spiffe.";

/// The file of a ring that says what is asked of its revocation lists.
pub(super) const REVOCATION_FILE: &str = "revocation";

/// File systems date changes by the kernel's tick, so two within a tick, of one size, look like one. A file that was
/// read this soon after its last change is read once more at the next look.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// Counts the snapshots this process has read.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of one more snapshot.
pub(super) fn next_generation() -> u64 {
    GENERATION.fetch_add(1, Ordering::Relaxed) + 1
}

/// The directories of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Own,
    People,
    Trust,
    Crl,
}

impl Place {
    pub(super) const ALL: [Place; 4] = [Place::Own, Place::People, Place::Trust, Place::Crl];

    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Own => "own",
            Place::People => "people",
            Place::Trust => "trust",
            Place::Crl => "crl",
        }
    }

    fn holds(self, name: &str) -> bool {
        let ending = name.ends_with(".pem") || (self == Place::Crl && name.ends_with(".crl"));
        ending && !name.starts_with('.')
    }
}

/// What tells one state of a file from the next, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Stamp> {
        fs::metadata(path).map(|metadata| Stamp::from(&metadata))
    }

    /// A date in the future, as a clock that was set back leaves behind, counts as settled: it would never become so.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let changed =
            Duration::new(u64::try_from(self.changed.0).unwrap_or(0), u32::try_from(self.changed.1).unwrap_or(0));
        let age = now.duration_since(UNIX_EPOCH).ok().and_then(|now| now.checked_sub(changed));
        age.is_none_or(|age| age >= SETTLED_AFTER)
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
        }
    }
}

/// What a file held when it had this stamp.
#[derive(Clone)]
pub(super) struct Loaded {
    stamp: Stamp,
    /// Whether a later change must show in the stamp: see [`SETTLED_AFTER`].
    settled: bool,
    sha256: [u8; 32],
    content: Content,
}

impl Loaded {
    /// Whether the file is certain to hold what it held.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        self.settled && Stamp::of(path).is_ok_and(|stamp| stamp == self.stamp)
    }
}

#[derive(Clone)]
enum Content {
    Own(Arc<Own>),
    Person(Arc<Person>),
    Trust(Arc<[Certificate]>),
    Crl(Arc<[Arc<Crl>]>),
    Revocation(Revocation),
}

/// Every file of a snapshot, and the directories as they were.
#[derive(Default)]
pub(super) struct Files {
    directories: Vec<(PathBuf, Option<Stamp>)>,
    pub(super) files: HashMap<PathBuf, Loaded>,
    /// Files of `people`, in no particular order: they are many, and looked at in turns.
    pub(super) people: Vec<PathBuf>,
    /// Files of the other places.
    pub(super) others: Vec<PathBuf>,
    /// Whether any of them holds something else than in the reading before.
    pub(super) changed: bool,
    /// Whether the directories were at rest when they were listed: see [`SETTLED_AFTER`].
    settled: bool,
}

impl Files {
    /// Whether the same files are where they were. What is in them is another question.
    pub(super) fn are_listed(&self) -> bool {
        self.settled && self.directories.iter().all(|(path, stamp)| Stamp::of(path).ok() == *stamp)
    }

    fn list(&mut self, path: &Path, stamp: Option<Stamp>) {
        self.settled &= stamp.is_none_or(|stamp| stamp.is_settled(SystemTime::now()));
        self.directories.push((path.to_owned(), stamp));
    }
}

/// What to do with `own`.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    /// Open the keys, those that are encrypted with this.
    Open(Option<&'a Passphrase>),
    /// Leave them alone.
    Skip,
}

/// The files of a ring with its keys left closed: what can be listed without a passphrase.
#[derive(Debug)]
pub struct Survey {
    /// The ring, as if its `own` were empty.
    pub ring: Ring,
    /// What `own` holds, but for the keys.
    pub own: Vec<Person>,
}

/// Reads a ring without its private keys, to show what is there.
///
/// # Errors
/// As [`Ring::load`].
pub fn survey(dir: &Path) -> Result<Survey, RingError> {
    let (ring, _) = load(dir, Keys::Skip, &Files::default())?;
    let place = dir.join(Place::Own.name());
    let mut own = Vec::new();
    if directory(&place)?.is_some() {
        for path in list(&place, Place::Own)? {
            let (bytes, _) = bytes(&path, Place::Own)?;
            let mut chain = certificates(&path, &bytes)?;
            let certificate = chain.remove(0); // not empty
            own.push(Person { label: label(&path), certificate, chain });
        }
    }
    Ok(Survey { ring, own })
}

/// Reads a ring, except for the files that are as they were in `previous`.
pub(super) fn load(dir: &Path, keys: Keys<'_>, previous: &Files) -> Result<(Ring, Files), RingError> {
    let user = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let stamp = directory(dir)?.ok_or_else(|| RingError::Missing { path: dir.to_owned() })?;
    let mut files = Files { settled: true, ..Files::default() };
    files.list(dir, Some(stamp));
    let mut ring = Ring { user, ..Ring::empty() };
    for place in Place::ALL {
        let path = dir.join(place.name());
        // Stamped before it is listed: what comes later shows as a change.
        let stamp = directory(&path)?;
        files.list(&path, stamp);
        let passphrase = match (place, keys) {
            (Place::Own, Keys::Skip) => continue,
            (_, Keys::Open(passphrase)) => passphrase,
            (_, Keys::Skip) => None,
        };
        if stamp.is_none() {
            continue;
        }
        for file in list(&path, place)? {
            let known = previous.files.get(&file);
            let loaded = read(dir, &file, place, passphrase, known)?;
            files.changed |= known.is_none_or(|known| known.sha256 != loaded.sha256);
            match &loaded.content {
                Content::Own(own) => {
                    ring.keep_authorities(std::iter::once(&own.certificate).chain(&own.chain));
                    ring.own.push(own.clone());
                }
                Content::Person(person) => {
                    ring.keep_authorities(std::iter::once(&person.certificate).chain(&person.chain));
                    ring.people.push(person.clone());
                }
                Content::Trust(certificates) => match domain(&label(&file)) {
                    Some(domain) => {
                        let all = ring.domains.entry(domain.to_owned()).or_default();
                        all.extend(certificates.iter().cloned());
                    }
                    None => ring.trust.extend(certificates.iter().cloned()),
                },
                Content::Crl(lists) => ring.crls.extend(lists.iter().cloned()),
                Content::Revocation(_) => {}
            }
            match place {
                Place::People => files.people.push(file.clone()),
                _ => files.others.push(file.clone()),
            }
            files.files.insert(file, loaded);
        }
    }
    let file = dir.join(REVOCATION_FILE);
    if let Some(loaded) = read_revocation(&file)? {
        let known = previous.files.get(&file);
        files.changed |= known.is_none_or(|known| known.sha256 != loaded.sha256);
        if let Content::Revocation(asked) = loaded.content {
            ring.revocation = asked;
        }
        files.others.push(file.clone());
        files.files.insert(file, loaded);
    }
    ring.own.sort_by(|a, b| newness(&b.certificate).cmp(&newness(&a.certificate)));
    // Among copies of one certificate the first, which is as good as any.
    for (at, own) in ring.own.iter().enumerate() {
        ring.own_by_id.entry(own.certificate.issuer_and_serial().to_vec()).or_insert(at);
    }
    let mut people_by_dn: HashMap<Dn, Vec<usize>> = HashMap::with_capacity(ring.people.len());
    for (at, person) in ring.people.iter().enumerate() {
        people_by_dn.entry(person.certificate.dn().clone()).or_default().push(at);
    }
    ring.people_by_dn = people_by_dn;
    // With all that is there known, a different number means that some are gone.
    files.changed |= files.files.len() != previous.files.len();
    ring.generation = next_generation();
    Ok((ring, files))
}

/// The trust domain whose authorities a file of `trust` has; none for those that are believed for subjects.
fn domain(label: &str) -> Option<&str> {
    label.strip_prefix(DOMAIN_LABEL).filter(|domain| is_trust_domain(domain))
}

/// What the ring asks of its revocation lists, if it says so.
fn read_revocation(path: &Path) -> Result<Option<Loaded>, RingError> {
    let (bytes, stamp) = match bytes(path, Place::People) {
        Ok(read) => read,
        Err(RingError::Io { kind: io::ErrorKind::NotFound, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let word = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
    let malformed = || RingError::Malformed {
        path: path.to_owned(),
        why: MalformedError("holds none of the words NONE, IFPRESENT and REQUIRED"),
    };
    let content = Content::Revocation(word.ok_or_else(malformed)?);
    let settled = stamp.is_settled(SystemTime::now());
    Ok(Some(Loaded { stamp, settled, sha256: sha256(&bytes), content }))
}

/// A directory's stamp, if it exists; an error if others may look into it.
fn directory(path: &Path) -> Result<Option<Stamp>, RingError> {
    match fs::metadata(path) {
        Ok(metadata) => {
            private(path, &metadata)?;
            Ok(Some(Stamp::from(&metadata)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RingError::io(path, &error)),
    }
}

fn private(path: &Path, metadata: &Metadata) -> Result<(), RingError> {
    const OTHERS: u32 = 0o077;
    if metadata.mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(RingError::Exposed { path: path.to_owned(), mode: metadata.mode() & 0o7777 })
}

pub(super) fn list(path: &Path, place: Place) -> Result<Vec<PathBuf>, RingError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| RingError::io(path, &error))? {
        let entry = entry.map_err(|error| RingError::io(path, &error))?;
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| place.holds(name)) {
            continue;
        }
        if files.len() >= RING_FILES_MAX {
            return Err(RingError::TooLarge { path: path.to_owned(), max: RING_FILES_MAX });
        }
        files.push(entry.path());
    }
    files.sort();
    Ok(files)
}

fn read(
    ring: &Path,
    path: &Path,
    place: Place,
    passphrase: Option<&Passphrase>,
    known: Option<&Loaded>,
) -> Result<Loaded, RingError> {
    if let Some(known) = known.filter(|known| known.is_current(path)) {
        return Ok(known.clone());
    }
    let (bytes, stamp) = bytes(path, place)?;
    let sha256 = sha256(&bytes);
    let settled = stamp.is_settled(SystemTime::now());
    if let Some(known) = known.filter(|known| known.sha256 == sha256) {
        return Ok(Loaded { stamp, settled, ..known.clone() });
    }
    let label = label(path);
    let content = match place {
        Place::Own => {
            let bad = |why| RingError::Key { path: path.to_owned(), why };
            let source = read_key_source(&bytes, passphrase).map_err(bad)?;
            let mut chain = certificates(path, &bytes)?;
            let unusable = |error: DeviceError| bad(KeyError::Library { why: error.to_string() });
            let (certificate, key) = match source {
                KeySource::Clear(key) => {
                    let at = chain
                        .iter()
                        .position(|certificate| certificate.public_key().public_eq(&key))
                        .ok_or_else(|| RingError::NoCertificate { path: path.to_owned() })?;
                    (chain.remove(at), PrivateKey::clear(key).map_err(unusable)?)
                }
                // Token and server are not asked: that the key is the certificate's shows when it is first used.
                KeySource::Elsewhere(uri) => {
                    let certificate = chain.remove(0); // not empty
                    let public = PublicKey::new(certificate.public_key()).map_err(unusable)?;
                    let key = match uri {
                        KeyUri::Token(_) => {
                            PrivateKey::on_token_with(public, uri.to_string(), &rejection::of_ring(ring)?)
                        }
                        // It opens no PKCS#1 v1.5, so nothing is to be kept for that.
                        KeyUri::Transit(_) => PrivateKey::on_token(public, uri.to_string()),
                    };
                    (certificate, key)
                }
            };
            Content::Own(Arc::new(Own { label, certificate, chain, key }))
        }
        Place::People => {
            let mut chain = certificates(path, &bytes)?;
            let certificate = chain.remove(0); // not empty
            Content::Person(Arc::new(Person { label, certificate, chain }))
        }
        Place::Trust if domain(&label).is_some() => {
            Content::Trust(certificates_within(path, &bytes, DOMAIN_CERTIFICATES_MAX)?.into())
        }
        Place::Trust => Content::Trust(certificates(path, &bytes)?.into()),
        Place::Crl => {
            let malformed = |why| RingError::Malformed { path: path.to_owned(), why };
            let lists = Crl::all_from(&bytes).map_err(malformed)?;
            Content::Crl(lists.into_iter().map(Arc::new).collect())
        }
    };
    Ok(Loaded { stamp, settled, sha256, content })
}

/// What a file holds, within limits, and the stamp it had: both through one open file, so that they belong together.
pub(super) fn bytes(path: &Path, place: Place) -> Result<(Zeroizing<Vec<u8>>, Stamp), RingError> {
    let failed = |error: io::Error| RingError::io(path, &error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if place == Place::Own {
        private(path, &metadata)?;
    }
    let max = if place == Place::Crl { CRL_BYTES_MAX } else { PEM_BYTES_MAX };
    let expected = usize::try_from(metadata.len()).unwrap_or(0).min(max).saturating_add(1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(expected));
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > max {
        return Err(RingError::TooLarge { path: path.to_owned(), max });
    }
    Ok((bytes, Stamp::from(&metadata)))
}

/// The certificates of a file, of which there is at least one.
pub(super) fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<Certificate>, RingError> {
    certificates_within(path, bytes, PEM_CERTIFICATES_MAX)
}

fn certificates_within(path: &Path, bytes: &[u8], max: usize) -> Result<Vec<Certificate>, RingError> {
    let all =
        Certificate::all_from_pem(bytes, max).map_err(|why| RingError::Malformed { path: path.to_owned(), why })?;
    if all.is_empty() { Err(RingError::NoCertificate { path: path.to_owned() }) } else { Ok(all) }
}

pub(super) fn label(path: &Path) -> String {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned()
}
