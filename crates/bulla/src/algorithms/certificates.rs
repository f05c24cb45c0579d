//! The certificates of a data directory: TLS, key rings, authorities. No private key is loaded.

use super::dates::{Item, Used};
use crate::folders::{AUTHORITIES, RINGS, TLS};
use bulla_seal::Dn;
use bulla_seal::certificate::{Certificate, KeyKind, Usage};
use bulla_seal::policy::Pqc;
use bulla_seal::ring::{self, PEM_CERTIFICATES_MAX, Survey};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Largest file of certificates of TLS and of authorities that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Rings that are read.
const RINGS_MAX: usize = 1_000;

/// A certificate, and everywhere it lies.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) certificate: Certificate,
    /// As `rings/orders/own`, `tls/server.pem`.
    pub(crate) places: Vec<String>,
}

/// Something that could not be read.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct NotRead {
    pub(crate) place: String,
    pub(crate) why: String,
}

/// What a data directory holds.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    pub(crate) found: Vec<Found>,
    pub(crate) not_read: Vec<NotRead>,
    rings: Vec<Survey>,
    by_fingerprint: BTreeMap<[u8; 32], usize>,
}

/// A key as `bulla cert create --key` has it, or as near as there is.
pub(crate) fn key_name(certificate: &Certificate) -> String {
    let bits = certificate.key_bits();
    match certificate.key_kind() {
        KeyKind::Rsa => format!("rsa{bits}"),
        KeyKind::Ec(curve) => format!("p{}", curve.bits()),
        KeyKind::MlDsa(set) => format!("ml-dsa-{}", set.number()),
        KeyKind::MlKem(set) => format!("ml-kem-{}", set.number()),
        KeyKind::Other => {
            let id = certificate.public_key().id();
            openssl::nid::Nid::from_raw(id.as_raw()).long_name().unwrap_or("other").to_owned()
        }
    }
}

/// A certificate's key.
pub(crate) fn key_item(certificate: &Certificate) -> Item {
    Item::new(key_name(certificate), Used::key(certificate.key_kind(), certificate.key_bits()))
}

/// The name of the algorithm that a certificate is signed with, as OpenSSL has it.
pub(crate) fn signature_name(certificate: &Certificate) -> String {
    let object = certificate.x509().signature_algorithm().object();
    object.nid().long_name().map_or_else(|_| object.to_string(), str::to_owned)
}

/// What a certificate's signature stands on; nothing of one that signs itself, which proves nothing.
pub(crate) fn signature_items(certificate: &Certificate) -> Vec<Item> {
    if certificate.subject() == certificate.issuer() {
        return Vec::new();
    }
    signature_items_of(&signature_name(certificate))
}

fn signature_items_of(name: &str) -> Vec<Item> {
    let lower = name.to_ascii_lowercase();
    let key = match lower.strip_prefix("ml-dsa-").and_then(|set| set.parse().ok()) {
        Some(set) => Used::MlDsa(set),
        // The issuer's own certificate has the length of its key.
        None => Used::Classical,
    };
    let of_digest = [224, 256, 384, 512].into_iter().find(|bits| lower.contains(&format!("sha{bits}"))).map(Used::Sha2);
    let old = ["sha1", "md5"].iter().any(|word| lower.contains(word)).then_some(Used::OldDigest);
    [Some(key), of_digest.or(old)].into_iter().flatten().map(|used| Item::new(name, used)).collect()
}

impl Certificates {
    /// Reads all of them.
    pub(crate) fn read(data: &Path) -> Self {
        let mut all = Self::default();
        all.folder(data, &data.join(TLS));
        for folder in all.folders(data, AUTHORITIES) {
            all.folder(data, &folder);
        }
        let mut rings = all.folders(data, RINGS);
        let beyond = rings.len().saturating_sub(RINGS_MAX);
        if beyond > 0 {
            all.lacks(RINGS, format!("{beyond} rings beyond the first {RINGS_MAX} were not read"));
            rings.truncate(RINGS_MAX);
        }
        for folder in rings {
            all.ring(data, &folder);
        }
        all
    }

    fn lacks(&mut self, place: impl Into<String>, why: impl Into<String>) {
        self.not_read.push(NotRead { place: place.into(), why: why.into() });
    }

    /// What is in a folder, by name. One that is not there holds nothing.
    fn entries(&mut self, data: &Path, folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).and_then(|entries| {
            let paths = entries.map(|entry| entry.map(|entry| entry.path()));
            paths.collect::<Result<Vec<_>, _>>()
        });
        match entries {
            Ok(mut paths) => {
                paths.sort();
                paths
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                self.lacks(name_of(data, folder), error.to_string());
                Vec::new()
            }
        }
    }

    fn folders(&mut self, data: &Path, name: &str) -> Vec<PathBuf> {
        self.entries(data, &data.join(name)).into_iter().filter(|path| path.is_dir()).collect()
    }

    /// The PEM files right in a folder.
    fn folder(&mut self, data: &Path, folder: &Path) {
        for path in self.entries(data, folder) {
            if path.extension().is_none_or(|extension| extension != "pem") {
                continue;
            }
            let place = name_of(data, &path);
            match certificates(&path) {
                Ok(certificates) => certificates.iter().for_each(|one| self.note(one, &place)),
                // A list of revoked certificates, an enrolment's request.
                Err(why) => self.lacks(place, why),
            }
        }
    }

    fn ring(&mut self, data: &Path, folder: &Path) {
        let place = name_of(data, folder);
        let survey = match ring::survey(folder) {
            Ok(survey) => survey,
            Err(error) => return self.lacks(place, error.to_string()),
        };
        let own = survey.own.iter().map(|person| ("own", person));
        let people = survey.ring.people().iter().map(|person| ("people", person.as_ref()));
        for (name, person) in own.chain(people) {
            let place = format!("{place}/{name}");
            std::iter::once(&person.certificate).chain(&person.chain).for_each(|one| self.note(one, &place));
        }
        let domains = survey.ring.domains().values().flatten();
        let trust = format!("{place}/trust");
        survey.ring.trust().iter().chain(domains).for_each(|one| self.note(one, &trust));
        self.rings.push(survey);
    }

    fn note(&mut self, certificate: &Certificate, place: &str) {
        let next = self.found.len();
        let at = *self.by_fingerprint.entry(*certificate.fingerprint()).or_insert(next);
        match self.found.get_mut(at) {
            Some(found) if found.places.iter().any(|known| known == place) => {}
            Some(found) => found.places.push(place.to_owned()),
            None => self.found.push(Found { certificate: certificate.clone(), places: vec![place.to_owned()] }),
        }
    }

    /// The keys that a name has here for a use, under what a policy says of post-quantum ones: of each ring that knows
    /// it the newest, a post-quantum one before others, as sealing takes it. Each kind once, the weakest first.
    pub(crate) fn keys_of(&self, dn: &Dn, usage: Usage, pqc: Pqc, now: SystemTime) -> Vec<Item> {
        let mut keys: Vec<Item> = Vec::new();
        for survey in &self.rings {
            let own = survey.own.iter().map(|person| &person.certificate);
            let people = survey.ring.people().iter().map(|person| &person.certificate);
            let fits = |one: &&Certificate| {
                one.dn() == dn
                    && pqc.allows(one.key_kind())
                    && one.not_after() > now
                    && one.check_usage(usage.for_recipient(one.key_kind())).is_ok()
            };
            let order = |one: &&Certificate| (one.key_kind().is_post_quantum(), one.not_before());
            // A ring's own certificate and another one of the same name in it are the same user's.
            let Some(newest) = own.chain(people).filter(fits).max_by_key(order) else { continue };
            let item = key_item(newest);
            if !keys.contains(&item) {
                keys.push(item);
            }
        }
        keys.sort_by_key(|key| key.used.rank());
        keys
    }
}

/// A path as it stands in the data directory.
fn name_of(data: &Path, path: &Path) -> String {
    path.strip_prefix(data).unwrap_or(path).display().to_string()
}

/// The certificates of a file; none where it holds something else.
fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    let facts = std::fs::metadata(path).map_err(|error| error.to_string())?;
    // A pipe is never read to its end.
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return Err(format!("is no file of at most {FILE_BYTES_MAX} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    Certificate::all_from_pem(&bytes, PEM_CERTIFICATES_MAX).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_told_by_its_name() {
        let used = |name| signature_items_of(name).into_iter().map(|item| item.used).collect::<Vec<_>>();
        assert_eq!(used("sha256WithRSAEncryption"), [Used::Classical, Used::Sha2(256)]);
        assert_eq!(used("ecdsa-with-SHA384"), [Used::Classical, Used::Sha2(384)]);
        assert_eq!(used("sha1WithRSAEncryption"), [Used::Classical, Used::OldDigest]);
        assert_eq!(used("ecdsa-with-SHA224"), [Used::Classical, Used::Sha2(224)]);
        assert_eq!(used("rsassaPss"), [Used::Classical]);
        assert_eq!(used("ML-DSA-87"), [Used::MlDsa(87)]);
        assert_eq!(used("2.999.1"), [Used::Classical]);
    }

    #[test]
    fn a_directory_without_anything_holds_nothing_and_lacks_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let all = Certificates::read(directory.path());
        assert!(all.found.is_empty() && all.not_read.is_empty());
        std::fs::create_dir_all(directory.path().join("tls")).unwrap();
        std::fs::write(directory.path().join("tls/server.pem"), "-----BEGIN CERTIFICATE-----\n!").unwrap();
        let all = Certificates::read(directory.path());
        assert_eq!(all.not_read[0].place, "tls/server.pem");
    }
}
