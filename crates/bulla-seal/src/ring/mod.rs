//! Key rings: whose keys there are, who is known, who is trusted, what was revoked.
//!
//! A ring is a directory, one a user:
//!
//! | place | holds | used for |
//! | --- | --- | --- |
//! | `own/*.pem` | one private key with its certificate, and the chain above it | signing (the newest), opening (all), paths of others |
//! | `own/rejection-secret` | a secret, where a key is on a token | what a failed PKCS#1 v1.5 unwrap goes on with |
//! | `people/*.pem` | another person's certificate, and the chain above it | recipients, signers, paths of others |
//! | `trust/*.pem` | self-signed certificates of authorities | where every path must end |
//! | `trust/spiffe.DOMAIN.pem` | those of a SPIFFE trust domain | where the paths of its SPIFFE IDs must end, and no others |
//! | `crl/*.pem`, `crl/*.crl` | revocation lists, PEM or DER | certificates of the authorities that issued them |
//! | `revocation` | NONE, IFPRESENT or REQUIRED | what is asked of revocation lists; IFPRESENT without the file |
//!
//! Files with other endings, and those whose name begins with a dot, are passed over. [`Ring`] is a snapshot that never
//! changes; [`Rings`] makes a new one when a file changed.

mod check;
mod crl;
mod error;
mod install;
mod key_files;
mod load;
mod readable;
mod rejection;
mod revocation;
mod rings;
mod single;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bulla_device::PrivateKey;

use crate::certificate::{Certificate, CertificateError, KeyKind, Passphrase, Usage};
use crate::dn::Dn;
use crate::policy::Revocation;

pub use check::{CHAIN_CERTIFICATES_MAX, PathQuestion, ProvenPath, Verdict};
pub use crl::Crl;
pub use error::RingError;
pub(crate) use install::write_private;
pub use install::{
    create, install_crl, install_domain, install_own, install_own_elsewhere, install_person, install_trust,
    set_revocation,
};
pub use key_files::{KeyFiles, RINGS_WATCHED_MAX};
pub use load::{
    CRL_BYTES_MAX, DOMAIN_CERTIFICATES_MAX, PEM_BYTES_MAX, PEM_CERTIFICATES_MAX, RING_FILES_MAX, Survey, survey,
};
pub use readable::{Readable, readable};
pub use rings::{CHECK_INTERVAL, OnChange, PEOPLE_CHECKED_MAX, Rings, USER_BYTES_MAX};
pub use single::{SINGLE_FILE_CERTIFICATES_MAX, SingleFiles};

/// A key of the ring's user with its certificate.
#[derive(Clone, Debug)]
pub struct Own {
    /// The name of its file without the ending.
    pub label: String,
    /// The certificate of the key.
    pub certificate: Certificate,
    /// What the file holds beside it: the authorities above.
    pub chain: Vec<Certificate>,
    /// The key.
    pub key: PrivateKey,
}

/// Another user's certificate.
#[derive(Clone, Debug)]
pub struct Person {
    /// The name of its file without the ending.
    pub label: String,
    /// The certificate, the first of its file.
    pub certificate: Certificate,
    /// The rest of the file.
    pub chain: Vec<Certificate>,
}

/// So many own keys are compared one after the other: that costs less than a hash.
const OWN_COMPARED_MAX: usize = 4;

/// One user's keys and the certificates this user believes: a snapshot.
pub struct Ring {
    user: String,
    generation: u64,
    own: Vec<Arc<Own>>,
    people: Vec<Arc<Person>>,
    trust: Vec<Certificate>,
    /// The authorities of trust domains, by their names: each is believed for that domain's SPIFFE IDs alone, and no
    /// other authority is believed for them.
    domains: BTreeMap<String, Vec<Certificate>>,
    /// Whether `trust` is believed for every name: of a ring that is made of what someone names for one question.
    trusts_for_all: bool,
    crls: Vec<Arc<Crl>>,
    /// Places in `people`, by name.
    people_by_dn: HashMap<Dn, Vec<usize>>,
    /// Places in `own`, by DER of issuer and serial.
    own_by_id: HashMap<Vec<u8>, usize>,
    /// What is asked of the revocation lists; a policy may ask for more.
    revocation: Revocation,
    /// The authorities that `people` and `own` hold, and others that sign revocation lists: what paths are built over.
    /// By OpenSSL's hash of their names, which knows no difference of case and spaces (RFC 5280, section 7.1).
    authorities: HashMap<u32, Vec<Certificate>>,
    /// Everyone's name by DER of issuer and serial, once it was asked for.
    names: OnceLock<HashMap<Vec<u8>, Dn>>,
}

impl Ring {
    /// Reads a ring. The user's name is the directory's.
    ///
    /// # Errors
    /// [`RingError`], naming the file: a ring is read whole or not at all.
    pub fn load(dir: &Path, passphrase: Option<&Passphrase>) -> Result<Ring, RingError> {
        let (ring, _) = load::load(dir, load::Keys::Open(passphrase), &load::Files::default())?;
        Ok(ring)
    }

    /// Reads a ring and leaves its private keys closed: enough to judge others by. The certificates of its own keys
    /// count among the people.
    ///
    /// # Errors
    /// As [`Ring::load`], but for the keys.
    pub fn load_without_keys(dir: &Path) -> Result<Ring, RingError> {
        let Survey { mut ring, own } = survey(dir)?;
        for person in own {
            ring.keep_authorities(std::iter::once(&person.certificate).chain(&person.chain));
            let places = ring.people_by_dn.entry(person.certificate.dn().clone()).or_default();
            places.push(ring.people.len());
            ring.people.push(Arc::new(person));
        }
        Ok(ring)
    }

    /// A ring that trusts these authorities and holds nothing else, to judge others by. It belongs to no user.
    pub fn trusting(trust: Vec<Certificate>) -> Ring {
        Ring { trust, trusts_for_all: true, ..Ring::empty() }
    }

    /// A ring that holds nothing and trusts no authority.
    pub(crate) fn empty() -> Ring {
        Ring {
            user: String::new(),
            generation: 0,
            own: Vec::new(),
            people: Vec::new(),
            trust: Vec::new(),
            domains: BTreeMap::new(),
            trusts_for_all: false,
            crls: Vec::new(),
            people_by_dn: HashMap::new(),
            own_by_id: HashMap::new(),
            revocation: Revocation::default(),
            authorities: HashMap::new(),
            names: OnceLock::new(),
        }
    }

    /// Keeps those of the certificates that can stand in the middle of a path or sign revocation lists, each once.
    fn keep_authorities<'a>(&mut self, certificates: impl IntoIterator<Item = &'a Certificate>) {
        for certificate in certificates.into_iter().filter(|one| one.is_authority() || one.signs_lists()) {
            let same_name = self.authorities.entry(certificate.x509().subject_name_hash()).or_default();
            if !same_name.contains(certificate) {
                same_name.push(certificate.clone());
            }
        }
    }

    /// Whose ring it is.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Tells this snapshot from every other one this process has read; a later one has a larger number.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All keys, old ones too: they no longer sign, but they still open. Newest first, as [`Ring::signing`] tries them.
    pub fn own(&self) -> &[Arc<Own>] {
        &self.own
    }

    /// All other people's certificates.
    pub fn people(&self) -> &[Arc<Person>] {
        &self.people
    }

    /// The authorities, but for those of trust domains.
    pub fn trust(&self) -> &[Certificate] {
        &self.trust
    }

    /// The authorities of SPIFFE trust domains, by their names.
    pub fn domains(&self) -> &BTreeMap<String, Vec<Certificate>> {
        &self.domains
    }

    /// The authorities at which a path from a certificate may end. Of a trust domain, which keeps those that have
    /// ended, they are the ones that were valid at that moment, where there are any.
    fn anchors_of(&self, leaf: &Certificate, at: SystemTime) -> Vec<&Certificate> {
        let valid = |all: &[Certificate]| -> Vec<bool> { all.iter().map(|one| one.check_dates(at).is_ok()).collect() };
        let of_domain = |domain: &str| {
            let all = self.domains.get(domain).map(Vec::as_slice).unwrap_or_default();
            let valid = valid(all);
            let any = valid.contains(&true);
            all.iter().zip(valid).filter(move |(_, is_valid)| *is_valid || !any).map(|(one, _)| one)
        };
        match leaf.dn().trust_domain() {
            _ if self.trusts_for_all => self.trust.iter().collect(),
            Some(domain) => of_domain(domain).collect(),
            None if leaf.dn().is_of_svid() => Vec::new(),
            // An authority goes by its subject too: one below a trust domain's can't give itself any.
            None => self.trust.iter().collect(),
        }
    }

    /// The revocation lists.
    pub fn crls(&self) -> &[Arc<Crl>] {
        &self.crls
    }

    /// What the ring asks of its revocation lists. A policy may ask for more.
    pub fn revocation(&self) -> Revocation {
        self.revocation
    }

    /// Every certificate of that subject among people and own keys, whatever it is good for.
    pub(crate) fn named(&self, dn: &Dn) -> impl Iterator<Item = &Certificate> {
        let people = self.people_by_dn.get(dn).into_iter().flatten().filter_map(|at| self.people.get(*at));
        let own = self.own.iter().map(|own| &own.certificate).filter(move |certificate| certificate.dn() == dn);
        people.map(|person| &person.certificate).chain(own)
    }

    /// The key that a recipient info names, by DER of its IssuerAndSerialNumber. A few compares, or one hash and one
    /// compare.
    pub fn find_own(&self, issuer_and_serial: &[u8]) -> Option<&Own> {
        if self.own.len() <= OWN_COMPARED_MAX {
            let mut own = self.own.iter();
            return own.find(|own| own.certificate.issuer_and_serial() == issuer_and_serial).map(Arc::as_ref);
        }
        self.own_by_id.get(issuer_and_serial).and_then(|at| self.own.get(*at)).map(Arc::as_ref)
    }

    /// Whom an IssuerAndSerialNumber names: people and the ring's own keys. The table is made once for a snapshot.
    pub(crate) fn name_of(&self, issuer_and_serial: &[u8]) -> Option<&Dn> {
        let names = self.names.get_or_init(|| {
            let people = self.people.iter().map(|person| &person.certificate);
            let own = self.own.iter().map(|own| &own.certificate);
            people.chain(own).map(|one| (one.issuer_and_serial().to_vec(), one.dn().clone())).collect()
        });
        names.get(issuer_and_serial)
    }

    /// The key to sign with: of those that are valid, trusted, not revoked and made for signatures, the
    /// one whose validity began last; between equals the one with the larger serial number.
    ///
    /// # Errors
    /// [`CertificateError::NoOwnKey`] in a ring without keys, else why the newest key may not sign.
    pub fn signing(&self, asked: Revocation, now: SystemTime) -> Result<&Own, CertificateError> {
        self.signing_where(asked, now, |_| true)
    }

    /// As [`Ring::signing`], among the keys that `fit`: RSA 1024, for one, cannot carry every digest.
    ///
    /// # Errors
    /// As [`Ring::signing`]; [`CertificateError::NoOwnKey`] when none fits.
    pub fn signing_where(
        &self,
        asked: Revocation,
        now: SystemTime,
        fit: impl Fn(&Own) -> bool,
    ) -> Result<&Own, CertificateError> {
        let question = PathQuestion { usage: Some(Usage::Sign), revocation: asked, at: now, now };
        let own = self.own.iter().map(Arc::as_ref).filter(|own| fit(own));
        let checked = own.map(|own| self.prove(&own.certificate, &own.chain, &question).map(|_| own));
        newest_good(checked).unwrap_or_else(|| Err(CertificateError::NoOwnKey { user: self.user.clone() }))
    }

    /// The certificate to encrypt for, by its subject's exact name, among people and the ring's own.
    /// Two with one name are the usual state while a key is being replaced: of those that are valid, trusted, not
    /// revoked and made for `usage` (an EC key: for agreement), the one whose validity began last is
    /// taken; between equals the one with the larger serial number, then the larger fingerprint.
    ///
    /// # Errors
    /// [`CertificateError::Unknown`], or why the newest of that name may not be used.
    pub fn recipient(
        &self,
        dn: &Dn,
        usage: Usage,
        asked: Revocation,
        now: SystemTime,
    ) -> Result<&Certificate, CertificateError> {
        self.recipient_where(dn, usage, asked, now, |_| true)
    }

    /// As [`Ring::recipient`], among the keys whose kinds `fit`.
    ///
    /// # Errors
    /// As [`Ring::recipient`].
    pub fn recipient_where(
        &self,
        dn: &Dn,
        usage: Usage,
        asked: Revocation,
        now: SystemTime,
        fit: impl Fn(KeyKind) -> bool,
    ) -> Result<&Certificate, CertificateError> {
        let people = self.people_by_dn.get(dn).into_iter().flatten();
        let people =
            people.filter_map(|at| self.people.get(*at)).map(|person| (&person.certificate, person.chain.as_slice()));
        let own = self
            .own
            .iter()
            .filter(|own| own.certificate.dn() == dn)
            .map(|own| (&own.certificate, own.chain.as_slice()));
        let mut candidates: Vec<_> = people.chain(own).filter(|(one, _)| fit(one.key_kind())).collect();
        candidates.sort_by_key(|(certificate, _)| std::cmp::Reverse(newness(certificate)));
        let checked = candidates.into_iter().map(|(certificate, chain)| {
            let usage = usage.for_recipient(certificate.key_kind());
            let question = PathQuestion { usage: Some(usage), revocation: asked, at: now, now };
            self.prove(certificate, chain, &question).map(|_| certificate)
        });
        newest_good(checked).unwrap_or_else(|| Err(CertificateError::Unknown { dn: dn.clone() }))
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("user", &self.user)
            .field("generation", &self.generation)
            .field("own", &self.own.len())
            .field("people", &self.people.len())
            .field("trust", &self.trust.len())
            .field("crls", &self.crls.len())
            .finish()
    }
}

/// What decides between certificates of one name.
fn newness(certificate: &Certificate) -> (SystemTime, usize, &[u8], &[u8; 32]) {
    let serial = certificate.serial_der(); // DER integers of one length compare as bytes
    (certificate.not_before(), serial.len(), serial, certificate.fingerprint())
}

/// The first that is good, or else the error of the first; candidates come newest first.
fn newest_good<T>(checked: impl Iterator<Item = Result<T, CertificateError>>) -> Option<Result<T, CertificateError>> {
    let mut first_error = None;
    for result in checked {
        match result {
            Ok(good) => return Some(Ok(good)),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map(Err)
}
