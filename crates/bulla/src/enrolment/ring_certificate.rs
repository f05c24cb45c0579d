//! A certificate for a key ring: the first one, or another one with a new key, which is a change of the key.

use super::answer::{Trust, Wanted, judge};
use super::configuration::{AuthorityTable, Configuration, RingTable};
use super::source::{Former, Question, Source};
use super::{EnrolError, due};
use crate::key_rotation::record::Turn;
use crate::key_rotation::steps::{DAYS, Keys, PENDING, Signed, Wish, private_folder, replaces, synced};
use crate::key_rotation::{KeyFacts, Rotation, RotationError, Step};
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

/// A key of a ring that renews.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// Its certificate. Once the next one is in the ring, that.
    pub certificate: Certificate,
    /// The change to the next key that is under way.
    pub change: Option<Rotation>,
}

impl Renewal {
    /// Whether its renewal was begun, and the next key is not in the ring yet.
    pub fn is_begun(&self) -> bool {
        self.change.as_ref().is_some_and(|change| change.enrols && change.step() < Step::Installed)
    }

    /// The change whose new key is in the ring, and is to be read and shared.
    pub fn to_share(&self) -> Option<&Rotation> {
        self.change.as_ref().filter(|change| change.enrols && change.step() == Step::Installed)
    }

    /// Whether a serial number that was typed is that of the certificate, or of the key that is replaced.
    fn has_serial(&self, typed: &str) -> bool {
        let old = self.change.as_ref().map(|change| &change.old);
        KeyFacts::of(&self.certificate).has_serial(typed) || old.is_some_and(|old| old.has_serial(typed))
    }
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

    /// The keys of the user's ring that renew, each on its own: those in use and those whose change is under way. The
    /// one that is due first comes first. None of a ring without a key. ML-KEM keys are left out: no authority is asked
    /// for one, because such a key can't sign a request.
    ///
    /// # Errors
    /// The ring or the records can't be read.
    pub fn renewals(&self, user: &str) -> Result<Vec<Renewal>, EnrolError> {
        let keys = self.keys(None);
        let in_use = keys.in_use(user)?;
        if in_use.is_empty() {
            return Ok(Vec::new());
        }
        let mut found: Vec<Renewal> = Vec::new();
        let own = ring::survey(&keys.ring_dir(user)?)?.own;
        for change in keys.all_under_way(user)? {
            let is_it = |certificate: &&Certificate| match &change.new {
                Some(new) => new.is(certificate),
                None => change.old.is(certificate),
            };
            if let Some(certificate) = own.iter().map(|own| &own.certificate).find(is_it) {
                found.push(Renewal { certificate: certificate.clone(), change: Some(change) });
            }
        }
        for certificate in in_use {
            let changes = found.iter().filter_map(|renewal| renewal.change.as_ref());
            let is_there = changes.clone().any(|change| change.old.is(&certificate))
                || found.iter().any(|renewal| renewal.certificate == certificate);
            if !is_there {
                found.push(Renewal { certificate, change: None });
            }
        }
        found.retain(|renewal| !matches!(renewal.certificate.key_kind(), KeyKind::MlKem(_)));
        found.sort_by_key(|renewal| due::due(&renewal.certificate));
        Ok(found)
    }

    /// Gets a new key and its certificate into a user's ring, in the place of that with the serial number. Without one:
    /// of the key whose renewal was begun, or that is due first.
    ///
    /// # Errors
    /// None came, or it is not what was asked for. What was done stays, and the next attempt goes on from there.
    pub fn enrol(&self, user: &str, serial: Option<&str>, source: &dyn Source) -> Result<Enrolled, EnrolError> {
        let table = self.configuration.ring(user)?;
        let authority = self.configuration.authority(&table.authority)?;
        let turn = self.turn()?;
        let renewals = self.renewals(user)?;
        if renewals.is_empty() && serial.is_none() {
            return self.first(user, table, authority, source, turn).map(Enrolled::First);
        }
        let is_meant = |renewal: &&Renewal| match serial {
            Some(serial) => renewal.has_serial(serial),
            None => renewal.change.is_some(),
        };
        let unasked = || renewals.first().filter(|_| serial.is_none());
        let unknown = || RotationError::UnknownKey {
            user: user.to_owned(),
            serial: serial.map(str::to_owned).unwrap_or_default(),
        };
        let renewal = renewals.iter().find(is_meant).or_else(unasked).ok_or_else(unknown)?;
        // Of a kind that can't take any key's place it is said, and a key of the other class renews as it is.
        let fits = |renewal: &Renewal, kind: KeySpec| replaces(renewal.certificate.key_kind(), kind.kind());
        let is_for_none = |kind: KeySpec| !renewals.iter().any(|renewal| fits(renewal, kind));
        let kind = table.key.filter(|kind| fits(renewal, *kind) || is_for_none(*kind));
        let wish = Wish { serial: Some(renewal.certificate.serial_hex()), kind, overlap: table.overlap };
        self.renew(user, authority, (source, renewal, &wish), turn).map(Box::new).map(Enrolled::Installed)
    }

    fn renew(
        &self,
        user: &str,
        authority: &AuthorityTable,
        (source, renewal, wish): (&dyn Source, &Renewal, &Wish),
        turn: Turn,
    ) -> Result<Rotation, EnrolError> {
        let passphrase = self.passphrase_of(user)?;
        let keys = self.keys(passphrase);
        let mut rotation = match &renewal.change {
            Some(rotation) if !rotation.enrols && !self.by_hand => {
                let with = "and its certificate is to come by a command".to_owned();
                return Err(RotationError::Begun { user: user.to_owned(), with }.into());
            }
            Some(rotation) => rotation.clone(),
            None => keys.begin(user, wish)?,
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
        let mut rotation = keys.all_under_way(user)?.into_iter().find(is_it).ok_or(EnrolError::Overtaken)?;
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
        let mut all = keys.all_under_way(&rotation.user)?.into_iter();
        *rotation = all.find(|now| now.label == rotation.label).ok_or(EnrolError::Overtaken)?;
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
        if !is_there || !self.renewals(user)?.is_empty() {
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
        if table.share.is_empty() || self.renewals(user)?.is_empty() {
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
