//! A certificate for a key ring: the first one, or another one with a new key, which is a change of the key.

use super::answer::{Trust, Wanted, judge};
use super::configuration::{AuthorityTable, Configuration, RingTable};
use super::source::{Former, Question, Source};
use super::{EnrolError, due};
use crate::key_rotation::record::Turn;
use crate::key_rotation::steps::{DAYS, Keys, PENDING, Signed, Wish, private_folder, synced};
use crate::key_rotation::{Rotation, RotationError, Step};
use crate::whole_file;
use bulla_seal::certificate::create::{self, Profile};
use bulla_seal::certificate::{
    Certificate, Curve, KeyKind, KeySpec, KeyUse, Passphrase, PrivateKeyPem, read_private_key,
};
use bulla_seal::policy::Revocation;
use bulla_seal::ring::{self, PathQuestion, Ring, RingError};
use openssl::pkey::{PKey, Private};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// The kind of a first key, unless it is said.
const FIRST_KEY: KeySpec = KeySpec::Ec(Curve::P256);

/// A data directory whose certificates are renewed.
pub struct Site<'a> {
    /// The directory.
    pub data: &'a Path,
    /// Opens the keys of rings that are locked, and locks first keys.
    pub passphrase: Option<&'a Passphrase>,
    /// What `enrolment.toml` says.
    pub configuration: &'a Configuration,
    /// Whether a command does it, and not the queue manager by itself.
    pub by_hand: bool,
    /// How long another process may have its turn.
    pub patience: Duration,
    /// What the time is.
    pub clock: &'a dyn Fn() -> SystemTime,
    /// Whether to give up because the queue manager stops.
    pub is_stopping: &'a dyn Fn() -> bool,
}

/// What came of it.
#[derive(Debug)]
pub enum Enrolled {
    /// The ring has its first key.
    First(Certificate),
    /// The new key is in its user's ring, and a queue manager that runs has to read it before it is shared.
    Installed(Box<Rotation>),
}

impl<'a> Site<'a> {
    pub(super) fn keys<'k>(&'k self, passphrase: Option<&'k Passphrase>) -> Keys<'k> {
        let now = (self.clock)();
        match self.by_hand {
            true => Keys::new(self.data, passphrase, now),
            false => Keys::of_queue_manager(self.data, passphrase, now),
        }
    }

    pub(super) fn turn(&self) -> Result<Turn, EnrolError> {
        Ok(self.keys(None).rotations.turn(self.patience)?)
    }

    /// The user's change of a key that is under way and whose certificate comes by enrolment.
    ///
    /// # Errors
    /// The records can't be read.
    pub fn under_way(&self, user: &str) -> Result<Option<Rotation>, EnrolError> {
        Ok(self.keys(None).under_way(user)?.filter(|rotation| rotation.enrols))
    }

    /// The certificate of the user's ring that is due first, of those in use; none of a ring without a key. That of an
    /// ML-KEM key is none: no server is asked for one, because such a key can't sign a request.
    ///
    /// # Errors
    /// The ring can't be read.
    pub fn first_due(&self, user: &str) -> Result<Option<Certificate>, EnrolError> {
        let can_ask = |certificate: &Certificate| !matches!(certificate.key_kind(), KeyKind::MlKem(_));
        Ok(self.keys(None).in_use(user)?.into_iter().filter(can_ask).min_by_key(due::due))
    }

    /// Gets a new key and its certificate into a user's ring.
    ///
    /// # Errors
    /// None came, or it is not what was asked for. What was done stays, and the next attempt goes on from there.
    pub fn enrol(&self, user: &str, source: &dyn Source) -> Result<Enrolled, EnrolError> {
        let table = self.configuration.ring(user)?;
        let authority = self.configuration.authority(&table.authority)?;
        let turn = self.turn()?;
        match self.first_due(user)? {
            None => self.first(user, table, authority, source, turn).map(Enrolled::First),
            Some(certificate) => {
                self.renew(user, table, authority, (source, &certificate), turn).map(Box::new).map(Enrolled::Installed)
            }
        }
    }

    fn renew(
        &self,
        user: &str,
        table: &RingTable,
        authority: &AuthorityTable,
        (source, certificate): (&dyn Source, &Certificate),
        turn: Turn,
    ) -> Result<Rotation, EnrolError> {
        let passphrase = self.passphrase_of(user)?;
        let keys = self.keys(passphrase);
        let mut rotation = match keys.under_way(user)? {
            Some(rotation) if !rotation.enrols && !self.by_hand => {
                let with = "and its certificate is to come by a command".to_owned();
                return Err(RotationError::Begun { user: user.to_owned(), with }.into());
            }
            Some(rotation) => rotation,
            None => {
                let serial = Some(certificate.serial_hex());
                keys.begin(user, &Wish { serial, kind: table.key, overlap: table.overlap })?
            }
        };
        keys.enrol(&mut rotation)?;
        if rotation.step() >= Step::Installed {
            return Ok(rotation);
        }
        let key = keys.make_key(&mut rotation, &mut || Ok(()))?;
        let request = keys.request(&rotation, &key)?;
        let (profile, old) = keys.profile(&rotation)?;
        // Others may change keys while the authority thinks.
        drop(turn);
        let former = old.key.exportable();
        let former = former.map(|key| Former { certificate: &old.certificate, chain: &old.chain, key });
        let wanted = || Wanted {
            key: &key,
            profile: &profile,
            any_subject: false,
            trust: Trust::File(&authority.trust),
            now: (self.clock)(),
        };
        let came = self.asked(source, &request, &key, former, &|came| judge(came, &wanted()).map(drop))?;
        let _turn = self.turn()?;
        let keys = self.keys(passphrase);
        let is_it = |now: &Rotation| now.label == rotation.label && now.step() < Step::Installed;
        let mut rotation = keys.under_way(user)?.filter(is_it).ok_or(EnrolError::Overtaken)?;
        let good = judge(came, &wanted())?;
        keys.install(&mut rotation, Signed::Elsewhere(&good.to_pem()), &mut || Ok(()))?;
        Ok(rotation)
    }

    /// Asks for a certificate, while others may change keys.
    pub(super) fn asked(
        &self,
        source: &dyn Source,
        request: &[u8],
        key: &PKey<Private>,
        former: Option<Former<'_>>,
        is_good: &dyn Fn(Vec<Certificate>) -> Result<(), EnrolError>,
    ) -> Result<Vec<Certificate>, EnrolError> {
        let now = (self.clock)();
        source.certify(&Question { request, key, former, now, is_good, is_stopping: self.is_stopping })
    }

    /// Shares a new key that the queue manager has read: it seals from then on.
    ///
    /// # Errors
    /// A ring can't be read or written.
    pub fn share(&self, rotation: &mut Rotation) -> Result<(), EnrolError> {
        let _turn = self.turn()?;
        let keys = self.keys(None);
        let Some(now) = keys.under_way(&rotation.user)?.filter(|now| now.label == rotation.label) else {
            return Err(EnrolError::Overtaken);
        };
        *rotation = now;
        Ok(keys.share(rotation, &mut || Ok(()))?)
    }

    fn first(
        &self,
        user: &str,
        table: &RingTable,
        authority: &AuthorityTable,
        source: &dyn Source,
        turn: Turn,
    ) -> Result<Certificate, EnrolError> {
        let Some(dn) = &table.dn else {
            return Err(EnrolError::NotConfigured { what: format!("rings.{user}.dn, and the ring has no key yet") });
        };
        let ring = self.keys(None).ring_dir(user)?;
        ring::create(&ring)?;
        let path = ring.join(PENDING).join(format!("{user}.pem"));
        let kind = table.key.unwrap_or(FIRST_KEY);
        let key = self.first_key(&path, kind)?;
        let uses = if table.usage.is_empty() { sign_and_encrypt(kind.kind()) } else { table.usage.clone() };
        let profile = Profile { dn: dn.clone(), uses, days: DAYS, alternative_names: Vec::new() };
        let request = create::request(&profile, &key, kind.kind())?;
        drop(turn);
        let wanted = || Wanted {
            key: &key,
            profile: &profile,
            any_subject: false,
            trust: Trust::File(&authority.trust),
            now: (self.clock)(),
        };
        let came = self.asked(source, &request, &key, None, &|came| judge(came, &wanted()).map(drop))?;
        let _turn = self.turn()?;
        let is_there = read_key(&path, self.passphrase)?.is_some_and(|now| now.public_eq(&key));
        if !is_there || self.first_due(user)?.is_some() {
            return Err(EnrolError::Overtaken);
        }
        let good = judge(came, &wanted())?;
        let pem = PrivateKeyPem::write(&key, self.passphrase)?;
        ring::install_trust(&ring, &table.authority, &good.root)?;
        ring::install_own(&ring, user, &good.certificate, &good.chain, &pem)?;
        fs::remove_file(&path).map_err(EnrolError::file(&path))?;
        self.give(user, table)?;
        Ok(good.certificate)
    }

    /// Gives a user's certificate to the rings that are to have it and have none of that name. To be done again where
    /// the first certificate may have come and a crash after it.
    ///
    /// # Errors
    /// A ring can't be read or written.
    pub fn complete(&self, user: &str) -> Result<(), EnrolError> {
        let table = self.configuration.ring(user)?;
        if table.share.is_empty() || self.first_due(user)?.is_none() {
            return Ok(());
        }
        let _turn = self.turn()?;
        self.give(user, table)
    }

    fn give(&self, user: &str, table: &RingTable) -> Result<(), EnrolError> {
        let keys = self.keys(None);
        let survey = ring::survey(&keys.ring_dir(user)?)?;
        let lasting = survey.own.iter().filter(|own| !own.certificate.dn().is_spiffe_id());
        let Some(own) = lasting.max_by_key(|own| own.certificate.not_before()) else { return Ok(()) };
        let at = own.certificate.not_before();
        let question = PathQuestion { usage: None, revocation: Revocation::None, at, now: (self.clock)() };
        let proof = survey.ring.prove(&own.certificate, &own.chain, &question);
        let proof = proof.map_err(|error| RotationError::NotBelieved { user: user.to_owned(), error })?;
        for other in &table.share {
            let dir = keys.ring_dir(other)?;
            let knows = match ring::survey(&dir) {
                Err(RingError::Missing { .. }) => false,
                survey => survey?.ring.people().iter().any(|person| person.certificate.dn() == own.certificate.dn()),
            };
            if !knows {
                if let Some(root) = proof.path.last() {
                    ring::install_trust(&dir, &table.authority, root)?;
                }
                ring::install_person(&dir, user, &own.certificate, &own.chain)?;
            }
        }
        Ok(())
    }

    fn first_key(&self, path: &Path, kind: KeySpec) -> Result<PKey<Private>, EnrolError> {
        if let Some(key) = read_key(path, self.passphrase)?.filter(|key| is_of_kind(key, kind)) {
            return Ok(key);
        }
        let key = kind.generate()?;
        let pem = PrivateKeyPem::write(&key, self.passphrase)?;
        path.parent().map_or(Ok(()), private_folder)?;
        whole_file::replace(path, pem.as_bytes(), 0o600).map_err(EnrolError::file(path))?;
        path.parent().map_or(Ok(()), synced)?;
        Ok(key)
    }

    /// The passphrase, where this ring's keys have one.
    fn passphrase_of(&self, user: &str) -> Result<Option<&'a Passphrase>, EnrolError> {
        match Ring::load(&self.keys(None).ring_dir(user)?, None) {
            Ok(_) => Ok(None),
            Err(error) if error.is_locked() => Ok(self.passphrase),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a key that waits is of the kind that is wanted now: the configuration may have changed.
pub(super) fn is_of_kind(key: &PKey<Private>, kind: KeySpec) -> bool {
    let found = bulla_device::KeyKind::of(key).ok();
    found.and_then(|found| KeySpec::like(KeyKind::of_device(found), key.bits())) == Some(kind)
}

fn sign_and_encrypt(kind: KeyKind) -> Vec<KeyUse> {
    KeyUse::usual(kind)
}

/// A private key that waits for its certificate; none where there is no file.
pub(super) fn read_key(path: &Path, passphrase: Option<&Passphrase>) -> Result<Option<PKey<Private>>, EnrolError> {
    match fs::read(path) {
        Ok(pem) => Ok(Some(read_private_key(&Zeroizing::new(pem), passphrase)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EnrolError::file(path)(error)),
    }
}
