//! Certificates and revocation lists in the files of a data directory. Files are read again where they have changed.

use crate::folders::{AUTHORITIES, RINGS, TLS};
use bulla_seal::certificate::{Certificate, Role};
use bulla_seal::ring::{self, Crl, PEM_CERTIFICATES_MAX};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Largest file of certificates of TLS and of authorities that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Largest revocation list that is read, in bytes, as of TLS itself.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Folders of a ring in which each file is looked at for changes. Of the certificates of others the folder alone is:
/// they may be thousands, and files that come, go or are renamed into place show there.
const RING_FOLDERS: [&str; 3] = ["own", "trust", "crl"];

/// Whose a certificate is. One that is in several places counts where it comes first in this order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Holder {
    /// The listener's or a channel's, with those of its authorities, and authorities of TLS.
    Tls,
    /// The user's whose ring it is.
    Own,
    /// An authority of the data directory's own.
    Authority,
    /// Of others, in a ring.
    Other,
}

/// A certificate in a file.
#[derive(Clone, Debug)]
pub(super) struct FoundCertificate {
    pub(super) holder: Holder,
    /// The file, in the data directory, as `rings/orders/own/key`.
    pub(super) place: String,
    /// The file of TLS, or the folder of the ring, as `rings/orders/own`: certificates of one subject there replace one
    /// another.
    pub(super) around: String,
    /// It is the file's first one, and not one of its issuers.
    pub(super) is_first: bool,
    /// What it is for: `tls`, `sign`, `encrypt`, `authority`.
    pub(super) uses: Vec<&'static str>,
    pub(super) subject: String,
    pub(super) serial: String,
    pub(super) fingerprint: [u8; 32],
    pub(super) lifetime: Duration,
    pub(super) not_after: SystemTime,
}

/// A revocation list in a file.
#[derive(Clone, Debug)]
pub(super) struct FoundList {
    /// Its folder, as `rings/orders/crl`.
    pub(super) around: String,
    pub(super) issuer: String,
    pub(super) this_update: SystemTime,
    pub(super) next_update: SystemTime,
}

/// What is in the files of one ring, of one authority, or of TLS.
#[derive(Default)]
pub(super) struct Found {
    pub(super) certificates: Vec<FoundCertificate>,
    pub(super) lists: Vec<FoundList>,
}

/// What is in all of them, by folder: TLS, rings, authorities.
#[derive(Default)]
pub(super) struct Survey {
    folders: BTreeMap<(Holder, PathBuf), (u64, Found)>,
}

impl Survey {
    /// Reads what has changed since the last time, or everything. False where nothing has.
    pub(super) fn look(&mut self, data: &Path, everything: bool) -> bool {
        let mut kept = std::mem::take(&mut self.folders);
        let before = kept.len();
        let mut changed = false;
        for (holder, folder) in folders(data) {
            let stamp = stamp(holder, &folder);
            let known = kept.remove(&(holder, folder.clone())).filter(|(known, _)| *known == stamp && !everything);
            let entry = known.unwrap_or_else(|| {
                changed = true;
                (stamp, read(data, holder, &folder))
            });
            self.folders.insert((holder, folder), entry);
        }
        changed || self.folders.len() != before
    }

    /// A survey that has found these.
    #[cfg(test)]
    pub(super) fn of(certificates: Vec<FoundCertificate>) -> Survey {
        let found = Found { certificates, lists: Vec::new() };
        Survey { folders: BTreeMap::from([((Holder::Own, PathBuf::new()), (0, found))]) }
    }

    pub(super) fn certificates(&self) -> impl Iterator<Item = &FoundCertificate> {
        self.folders.values().flat_map(|(_, found)| &found.certificates)
    }

    pub(super) fn lists(&self) -> impl Iterator<Item = &FoundList> {
        self.folders.values().flat_map(|(_, found)| &found.lists)
    }
}

fn folders(data: &Path) -> Vec<(Holder, PathBuf)> {
    let below = |holder: Holder, folder: &str| -> Vec<(Holder, PathBuf)> {
        files(&data.join(folder)).into_iter().filter(|path| path.is_dir()).map(|path| (holder, path)).collect()
    };
    let tls = vec![(Holder::Tls, data.join(TLS))];
    [tls, below(Holder::Own, RINGS), below(Holder::Authority, AUTHORITIES)].concat()
}

/// A number that changes when a file does: names, times, sizes and inodes, hashed. One `stat` a file.
fn stamp(holder: Holder, folder: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut note = |path: &Path| {
        if let Ok(facts) = std::fs::metadata(path) {
            (path, facts.mtime(), facts.mtime_nsec(), facts.size(), facts.ino()).hash(&mut hasher);
        }
    };
    let below: Vec<PathBuf> = match holder {
        Holder::Own | Holder::Other => {
            note(&folder.join("people"));
            RING_FOLDERS.iter().map(|name| folder.join(name)).collect()
        }
        Holder::Tls => vec![folder.to_owned(), folder.join("crls")],
        Holder::Authority => vec![folder.to_owned()],
    };
    for folder in below {
        note(&folder);
        files(&folder).iter().for_each(|path| note(path));
    }
    hasher.finish()
}

fn read(data: &Path, holder: Holder, folder: &Path) -> Found {
    let mut reader = Reader { data, found: Found::default() };
    match holder {
        Holder::Tls => {
            reader.files_of(Holder::Tls, folder);
            reader.lists_of(&folder.join("crls"));
        }
        // Its list counts where it was put into rings or below TLS, and not here.
        Holder::Authority => reader.files_of(Holder::Authority, folder),
        Holder::Own | Holder::Other => reader.ring(folder),
    }
    reader.found
}

struct Reader<'a> {
    data: &'a Path,
    found: Found,
}

impl Reader<'_> {
    /// Files of certificates right in a folder.
    fn files_of(&mut self, holder: Holder, folder: &Path) {
        for path in files(folder) {
            if path.extension().is_none_or(|extension| extension != "pem") {
                continue;
            }
            let Some(bytes) = bytes(&path, FILE_BYTES_MAX) else { continue };
            let certificates = Certificate::all_from_pem(&bytes, PEM_CERTIFICATES_MAX).unwrap_or_default();
            let place = self.name_of(&path);
            for (at, certificate) in certificates.iter().enumerate() {
                self.note(holder, (&place, &place), at == 0, certificate);
            }
        }
    }

    fn lists_of(&mut self, folder: &Path) {
        let around = self.name_of(folder);
        for path in files(folder) {
            let lists = bytes(&path, LIST_BYTES_MAX).and_then(|bytes| Crl::all_from(&bytes).ok()).unwrap_or_default();
            lists.iter().for_each(|list| self.note_list(&around, list));
        }
    }

    fn ring(&mut self, folder: &Path) {
        // A ring that does not load is reported when it is needed.
        let Ok(survey) = ring::survey(folder) else { return };
        let ring = self.name_of(folder);
        let own = survey.own.iter().map(|person| (Holder::Own, "own", person));
        let people = survey.ring.people().iter().map(|person| (Holder::Other, "people", person.as_ref()));
        for (holder, name, person) in own.chain(people) {
            let around = format!("{ring}/{name}");
            let place = format!("{around}/{}", person.label);
            self.note(holder, (&place, &around), true, &person.certificate);
            person.chain.iter().for_each(|issuer| self.note(Holder::Other, (&place, &around), false, issuer));
        }
        let around = format!("{ring}/trust");
        survey.ring.trust().iter().for_each(|it| self.note(Holder::Other, (&around, &around), true, it));
        let around = format!("{ring}/crl");
        survey.ring.crls().iter().for_each(|list| self.note_list(&around, list));
    }

    fn note(&mut self, holder: Holder, (place, around): (&str, &str), is_first: bool, certificate: &Certificate) {
        let lifetime = certificate.not_after().duration_since(certificate.not_before());
        self.found.certificates.push(FoundCertificate {
            holder,
            place: place.to_owned(),
            around: around.to_owned(),
            is_first,
            uses: uses(holder, certificate),
            subject: certificate.dn().to_string(),
            serial: certificate.serial_hex(),
            fingerprint: *certificate.fingerprint(),
            lifetime: lifetime.unwrap_or_default(),
            not_after: certificate.not_after(),
        });
    }

    fn note_list(&mut self, around: &str, list: &Crl) {
        self.found.lists.push(FoundList {
            around: around.to_owned(),
            issuer: list.issuer().to_string(),
            this_update: list.this_update(),
            next_update: list.next_update(),
        });
    }

    /// A path as it stands in the data directory.
    fn name_of(&self, path: &Path) -> String {
        path.strip_prefix(self.data).unwrap_or(path).display().to_string()
    }
}

/// What a certificate is for where it is.
fn uses(holder: Holder, certificate: &Certificate) -> Vec<&'static str> {
    if certificate.is_authority() {
        return vec!["authority"];
    }
    let roles = certificate.roles();
    let of_messages = [(Role::Sign, "sign"), (Role::Encrypt, "encrypt")];
    let uses: Vec<_> = of_messages.iter().filter(|(role, _)| roles.contains(role)).map(|(_, word)| *word).collect();
    // A certificate of neither is of TLS: an administrator's, say, or one that can be used for nothing here.
    if holder == Holder::Tls || uses.is_empty() { vec!["tls"] } else { uses }
}

/// A file's bytes, unless it is too long or none.
fn bytes(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let is_fit = std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() <= bytes_max);
    is_fit.then(|| std::fs::read(path).ok()).flatten()
}

/// What is in a folder, by name; nothing where there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()).collect();
    paths.sort();
    paths
}
