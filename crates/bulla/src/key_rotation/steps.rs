//! The steps of a change, with the files of a data directory alone. Each of them can be done again: what is there
//! already stays as it is.
//!
//! Their order keeps every message readable. The key is in its own user's ring before any other ring has its
//! certificate, and a running queue manager has said that it has read it. The old certificate is in no ring any more
//! before its key goes: messages can't be sealed for a key that is out of use, also where the new certificate is
//! revoked.

use super::record::{By, KeyFacts, OLD_KEYS_MAX, Rotation, Rotations, Step};
use super::{Needed, RotationError};
use crate::folders::{AUTHORITIES, RINGS};
use crate::random::Random;
use crate::whole_file;
use bulla_seal::certificate::authority::Authority;
use bulla_seal::certificate::bundle::Bundle;
use bulla_seal::certificate::create::{self, Profile};
use bulla_seal::certificate::{
    Certificate, KeyKind, KeySpec, KeyUse, Passphrase, PrivateKeyPem, Role, read_private_key,
};
use bulla_seal::policy::Revocation;
use bulla_seal::ring::{self, Own, PathQuestion, Person, Readable, Ring, RingError, Rings, Survey};
use openssl::pkey::{PKey, Private};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Days that a new certificate is valid, unless it is said; less where its authority ends before.
pub const DAYS: u32 = 365;
/// How long an old key is kept at least, unless it is said.
pub const OVERLAP: Duration = Duration::from_secs(7 * 24 * 3600);
/// How far in the future the old certificate may begin: the new one begins a second after it.
pub(crate) const AHEAD_MAX: Duration = Duration::from_secs(300);

/// Folder of a ring with new keys that have no certificate yet. It is no place of the ring: nothing is used of it.
pub(crate) const PENDING: &str = "pending";
/// Folder of a ring with what was taken out of it, so that it can be put back.
const RETIRED: &str = "retired";
const OWN: &str = "own";
const PEOPLE: &str = "people";

/// Called before and after each change of a file: a test ends it there.
pub type Pace<'a> = &'a mut dyn FnMut() -> Result<(), RotationError>;

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Serial number of the key to replace; without it the one that seals and opens.
    pub serial: Option<String>,
    /// The kind of the new key; without it that of the old one.
    pub kind: Option<KeySpec>,
    /// How long the old key is kept at least.
    pub overlap: Option<Duration>,
}

/// Where the new certificate comes from.
pub enum Signed<'a> {
    /// From an authority of this data directory, and for so many days.
    Here(Box<Authority>, u32),
    /// From elsewhere: PEM, DER or PKCS#12 without its key.
    Elsewhere(&'a [u8]),
}

/// The data directory in which keys are changed, while it is this process's turn.
pub struct Keys<'a> {
    data: &'a Path,
    /// The records.
    pub rotations: Rotations,
    passphrase: Option<&'a Passphrase>,
    now: SystemTime,
    by: Option<By>,
}

impl<'a> Keys<'a> {
    /// Of a data directory, by this process; `passphrase` opens the user's keys and encrypts the new one.
    pub fn new(data: &'a Path, passphrase: Option<&'a Passphrase>, now: SystemTime) -> Keys<'a> {
        Keys { data, rotations: Rotations::at(data), passphrase, now, by: Some(By::this_process()) }
    }

    /// The same, by the queue manager.
    pub fn of_queue_manager(data: &'a Path, passphrase: Option<&'a Passphrase>, now: SystemTime) -> Keys<'a> {
        Keys { by: None, ..Keys::new(data, passphrase, now) }
    }

    /// The certificates of the user's keys that sign and open new messages; the newest where none is good any more.
    /// None of a user without a key.
    ///
    /// # Errors
    /// The ring can't be read.
    pub fn in_use(&self, user: &str) -> Result<Vec<Certificate>, RotationError> {
        match ring::survey(&self.ring_dir(user)?) {
            Ok(survey) => Ok(in_use(&survey, self.now)),
            Err(RingError::Missing { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that the new certificate comes by enrolment.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn enrol(&self, rotation: &mut Rotation) -> Result<(), RotationError> {
        if rotation.enrols {
            return Ok(());
        }
        let marked = Rotation { enrols: true, ..rotation.clone() };
        self.rotations.write(&marked)?;
        *rotation = marked;
        Ok(())
    }

    /// The user's changes that are under way: one of a key at most.
    ///
    /// # Errors
    /// A record can't be read.
    pub fn all_under_way(&self, user: &str) -> Result<Vec<Rotation>, RotationError> {
        Ok(self.rotations.of(user)?.into_iter().filter(Rotation::is_being_made).collect())
    }

    /// The user's change that is under way, or none: that of the key with the serial number, where it is given.
    ///
    /// # Errors
    /// A record can't be read; several are under way, and it is not said which is meant.
    pub fn under_way(&self, user: &str, serial: Option<&str>) -> Result<Option<Rotation>, RotationError> {
        let mut all = self.all_under_way(user)?;
        all.retain(|rotation| serial.is_none_or(|serial| rotation.old.has_serial(serial)));
        match all.len() {
            0 | 1 => Ok(all.pop()),
            _ => {
                let serials = all.into_iter().map(|rotation| rotation.old.serial).collect();
                Err(RotationError::SeveralChanges { user: user.to_owned(), serials })
            }
        }
    }

    /// Begins a change, or finds the one that is under way: with a serial number that of its key, and others may be
    /// under way beside it.
    ///
    /// # Errors
    /// The user has no such key, or it can't be replaced here; a change that was begun otherwise is under way.
    pub fn begin(&self, user: &str, wish: &Wish) -> Result<Rotation, RotationError> {
        if let Some(rotation) = self.under_way(user, wish.serial.as_deref())? {
            let same_kind = wish.kind.is_none_or(|kind| kind.to_string() == rotation.kind);
            let same_overlap = wish.overlap.is_none_or(|overlap| overlap.as_secs() == rotation.overlap_seconds);
            if same_kind && same_overlap {
                return Ok(rotation);
            }
            let Rotation { old, kind, overlap_seconds, .. } = &rotation;
            let with = format!("of {}, with --key {kind} --overlap {overlap_seconds}s", old.serial);
            return Err(RotationError::Begun { user: user.to_owned(), with });
        }
        let ring = self.own_ring(user)?;
        let own = self.key_to_replace(&ring, wish.serial.as_deref())?;
        let old = KeyFacts::of(&own.certificate);
        if own.key.token_uri().is_some() {
            return Err(RotationError::OnToken { user: user.to_owned(), serial: old.serial });
        }
        self.check_alone(user, &old)?;
        let mut others = self.rotations.of(user)?;
        // One that was called off, of which the audit log has not heard yet, is gone on with.
        let called_off = others.iter().position(|other| other.old == old && other.step() == Step::Cancelled);
        let before = called_off.map(|at| others.remove(at));
        if others.iter().any(|other| other.old == old) {
            return Err(RotationError::Replaced { serial: old.serial });
        }
        if others.len() >= OLD_KEYS_MAX {
            return Err(RotationError::TooMany { user: user.to_owned(), max: OLD_KEYS_MAX });
        }
        let kind = match wish.kind {
            Some(kind) => kind,
            None => same_kind(&own.certificate)?,
        };
        if !replaces(own.certificate.key_kind(), kind.kind()) {
            let why = format!(
                "a key of kind {kind} does not take the place of one of type {}; `bulla cert create` makes one beside \
                 it",
                own.certificate.key_kind()
            );
            return Err(RotationError::Unfit { why });
        }
        let mut rotation = Rotation {
            user: user.to_owned(),
            old,
            kind: kind.to_string(),
            label: format!("{user}-{}", Random::system().name::<4>()),
            new: None,
            overlap_seconds: wish.overlap.unwrap_or(OVERLAP).as_secs(),
            enrols: false,
            audited: before.as_ref().map_or(0, |before| before.audited),
            steps: before.map(|before| before.steps).unwrap_or_default(),
            began: None,
            ended: None,
        };
        self.did(&mut rotation, Step::Begun)?;
        Ok(rotation)
    }

    /// Makes the new private key, and returns it.
    ///
    /// # Errors
    /// It can't be made or written.
    pub fn make_key(&self, rotation: &mut Rotation, pace: Pace<'_>) -> Result<PKey<Private>, RotationError> {
        let path = self.pending(rotation)?;
        match self.read_key(&path) {
            Ok(key) => {
                if rotation.step() < Step::Keyed {
                    self.did(rotation, Step::Keyed)?;
                }
                return Ok(key);
            }
            Err(RotationError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let kind: KeySpec = rotation.kind.parse()?;
        let key = kind.generate()?;
        let pem = PrivateKeyPem::write(&key, self.passphrase)?;
        private_folder(&self.ring_dir(&rotation.user)?.join(PENDING))?;
        pace()?;
        whole_file::replace(&path, pem.as_bytes(), 0o600).map_err(RotationError::file(&path))?;
        pace()?;
        if rotation.step() < Step::Keyed {
            self.did(rotation, Step::Keyed)?;
        }
        Ok(key)
    }

    /// A request for the new key's certificate, PKCS#10 in PEM.
    ///
    /// # Errors
    /// The old certificate is gone, or the new kind of key can't be used so.
    pub fn request(&self, rotation: &Rotation, key: &PKey<Private>) -> Result<Vec<u8>, RotationError> {
        let (profile, _) = self.profile(rotation)?;
        Ok(create::request(&profile, key, rotation.kind.parse::<KeySpec>()?.kind())?)
    }

    /// What the new certificate shall say, and the key that is replaced.
    ///
    /// # Errors
    /// The old certificate is gone.
    pub fn profile(&self, rotation: &Rotation) -> Result<(Profile, std::sync::Arc<Own>), RotationError> {
        let kind: KeySpec = rotation.kind.parse()?;
        let old = self.old(&self.own_ring(&rotation.user)?, rotation)?;
        let profile = Profile {
            dn: old.certificate.dn().clone(),
            uses: uses(&old.certificate, kind.kind()),
            days: DAYS,
            alternative_names: Vec::new(),
        };
        Ok((profile, old))
    }

    /// Puts the new key with its certificate into the user's ring.
    ///
    /// # Errors
    /// The certificate can't be had, can't take the old one's place, or is not believed by a ring that needs it.
    pub fn install(&self, rotation: &mut Rotation, signed: Signed<'_>, pace: Pace<'_>) -> Result<(), RotationError> {
        let dir = self.ring_dir(&rotation.user)?;
        let ring = self.own_ring(&rotation.user)?;
        if !ring.own().iter().any(|own| own.label == rotation.label) {
            let key = self.read_key(&self.pending(rotation)?)?;
            let old = self.old(&ring, rotation)?;
            let (certificate, chain) = match signed {
                Signed::Here(authority, days) => {
                    let from = self.begins(&old.certificate)?;
                    let (profile, _) = self.profile(rotation)?;
                    let profile = Profile { days: days.min(authority.days_left(from)), ..profile };
                    (authority.certify(&profile, &key, from)?, authority.chain())
                }
                Signed::Elsewhere(bytes) => picked(bytes, &key)?,
            };
            self.check(rotation, &old, &certificate, &chain)?;
            let pem = PrivateKeyPem::write(&key, self.passphrase)?;
            pace()?;
            ring::install_own(&dir, &rotation.label, &certificate, &chain, &pem)?;
            pace()?;
        }
        let survey = ring::survey(&dir)?;
        let own = survey.own.iter().find(|own| own.label == rotation.label);
        rotation.new = own.map(|own| KeyFacts::of(&own.certificate));
        self.did(rotation, Step::Installed)?;
        pace()?;
        self.forget_pending(rotation)
    }

    /// Puts the new certificate into every other ring that has the old one. A ring that can't be listed is left for
    /// [`Keys::withdraw`]: nothing can be sealed with it meanwhile.
    ///
    /// # Errors
    /// A ring can't be written: the others may have it already, and all of them are asked again.
    pub fn share(&self, rotation: &mut Rotation, pace: Pace<'_>) -> Result<(), RotationError> {
        let ring = ring::survey(&self.ring_dir(&rotation.user)?)?;
        let gone = || RotationError::UnknownKey {
            user: rotation.user.clone(),
            serial: rotation.new.as_ref().map(|new| new.serial.clone()).unwrap_or_default(),
        };
        let new = ring.own.iter().find(|own| own.label == rotation.label).ok_or_else(gone)?;
        for (user, readable) in self.rings() {
            if let Ok(readable) = readable {
                self.share_with(&user, &readable, rotation, new, pace)?;
            }
        }
        pace()?;
        self.forget_pending(rotation)?;
        self.did(rotation, Step::Shared)
    }

    fn share_with(
        &self,
        user: &str,
        ring: &Readable,
        rotation: &Rotation,
        new: &Person,
        pace: Pace<'_>,
    ) -> Result<(), RotationError> {
        let has = |key: &dyn Fn(&Certificate) -> bool| ring.people.iter().any(|person| key(&person.certificate));
        if has(&|certificate| rotation.old.is(certificate)) && !has(&|certificate| *certificate == new.certificate) {
            pace()?;
            ring::install_person(&self.ring_dir(user)?, &rotation.label, &new.certificate, &new.chain)?;
        }
        Ok(())
    }

    /// Takes the old certificate out of the rings of others, into their folder `retired`. One that has not got the new
    /// one gets it before.
    ///
    /// # Errors
    /// A ring can't be listed or written: once it is mended it could be sealed for the old key with it.
    pub fn withdraw(&self, rotation: &mut Rotation, pace: Pace<'_>) -> Result<(), RotationError> {
        let own = match ring::survey(&self.ring_dir(&rotation.user)?) {
            Err(RingError::Missing { .. }) => Vec::new(),
            survey => survey?.own,
        };
        let new = own.iter().find(|own| own.label == rotation.label);
        for (user, readable) in self.rings() {
            let (dir, readable) = (self.ring_dir(&user)?, readable?);
            if let Some(new) = new {
                self.share_with(&user, &readable, rotation, new, pace)?;
            }
            for person in readable.people.iter().filter(|person| rotation.old.is(&person.certificate)) {
                pace()?;
                set_aside(&dir, PEOPLE, &person.label, &rotation.old)?;
            }
        }
        pace()?;
        self.did(rotation, Step::Withdrawn)
    }

    /// Decides that the old key goes, and takes it out of use.
    ///
    /// # Errors
    /// As [`Keys::take_out`]. What was decided is gone on with.
    pub fn end(&self, rotation: &mut Rotation, needed: Option<&Needed>, pace: Pace<'_>) -> Result<(), RotationError> {
        let step = if needed.is_none_or(|needed| needed.total() > 0) { Step::Stranded } else { Step::Retired };
        rotation.ended = needed.map(Needed::counted);
        self.did(rotation, step)?;
        pace()?;
        self.take_out(rotation)
    }

    /// Moves the old key into the folder `retired` of its ring, where it is used for nothing and can be put back.
    ///
    /// # Errors
    /// The ring can't be read or written.
    pub fn take_out(&self, rotation: &Rotation) -> Result<(), RotationError> {
        let dir = self.ring_dir(&rotation.user)?;
        let survey = match ring::survey(&dir) {
            Err(RingError::Missing { .. }) => return Ok(()),
            survey => survey?,
        };
        let old = survey.own.iter().filter(|own| rotation.old.is(&own.certificate));
        old.map(|own| &own.label).try_for_each(|label| set_aside(&dir, OWN, label, &rotation.old))
    }

    /// Calls a change off whose key no ring has yet.
    ///
    /// # Errors
    /// [`RotationError::NotBegun`], [`RotationError::TooFar`], [`RotationError::SeveralChanges`]; a file can't be
    /// removed.
    pub fn cancel(&self, user: &str, serial: Option<&str>) -> Result<Rotation, RotationError> {
        let mut rotation =
            self.under_way(user, serial)?.ok_or_else(|| RotationError::NotBegun { user: user.to_owned() })?;
        let survey = ring::survey(&self.ring_dir(user)?)?;
        if rotation.step() >= Step::Installed || survey.own.iter().any(|own| own.label == rotation.label) {
            return Err(RotationError::TooFar { user: user.to_owned() });
        }
        self.forget_pending(&rotation)?;
        self.did(&mut rotation, Step::Cancelled)?;
        Ok(rotation)
    }

    /// The records of the user's old keys that are meant, one that does not exist yet included: of a key that was
    /// replaced by hand. Such a one is not written.
    ///
    /// # Errors
    /// There is no such key, or it is the one that seals.
    pub fn old_keys(&self, user: &str, serial: Option<&str>) -> Result<Vec<Rotation>, RotationError> {
        let is_meant = |key: &KeyFacts| serial.is_none_or(|serial| key.has_serial(serial));
        let mut found: Vec<Rotation> = self.rotations.of(user)?;
        let being_made: Vec<KeyFacts> =
            found.iter().filter(|rotation| rotation.is_being_made()).map(|rotation| rotation.old.clone()).collect();
        found.retain(|rotation| {
            !rotation.is_being_made() && rotation.step() != Step::Cancelled && is_meant(&rotation.old)
        });
        let survey = ring::survey(&self.ring_dir(user)?)?;
        let in_use = in_use(&survey, self.now);
        let unknown = |serial: &str| RotationError::UnknownKey { user: user.to_owned(), serial: serial.to_owned() };
        // What an agent gives is replaced by the next that it gives.
        for own in survey.own.iter().filter(|own| !own.certificate.dn().is_spiffe_id()) {
            let old = KeyFacts::of(&own.certificate);
            if !is_meant(&old) || found.iter().any(|rotation| rotation.old == old) {
                continue;
            }
            let is_in_use = in_use.contains(&own.certificate) || being_made.contains(&old);
            match (is_in_use, serial) {
                (true, Some(_)) => return Err(RotationError::InUse { user: user.to_owned(), serial: old.serial }),
                (true, None) => continue,
                (false, _) => {}
            }
            // Others would have no certificate of the user any more.
            for (other, readable) in self.rings() {
                let readable = readable?;
                let has = |key: &Certificate| readable.people.iter().any(|person| person.certificate == *key);
                if has(&own.certificate) && !in_use.iter().all(has) {
                    return Err(RotationError::NotShared { user: user.to_owned(), other });
                }
            }
            found.push(Rotation {
                user: user.to_owned(),
                old,
                kind: String::new(),
                label: String::new(),
                new: in_use.first().map(KeyFacts::of),
                overlap_seconds: 0,
                enrols: false,
                steps: Vec::new(),
                audited: 0,
                began: None,
                ended: None,
            });
        }
        match serial {
            Some(serial) if found.is_empty() => Err(unknown(serial)),
            _ => Ok(found),
        }
    }

    /// Notes that a step was done; it is durable on return.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn did(&self, rotation: &mut Rotation, step: Step) -> Result<(), RotationError> {
        let before = rotation.clone();
        rotation.did(step, self.by, self.now);
        self.rotations.write(rotation).inspect_err(|_| *rotation = before)
    }

    /// The authority of this data directory that issued the old certificate: its name and its folder.
    ///
    /// # Errors
    /// [`RotationError::NoAuthority`].
    pub fn issuer(&self, rotation: &Rotation) -> Result<PathBuf, RotationError> {
        let ring = self.own_ring(&rotation.user)?;
        let old = self.old(&ring, rotation)?;
        let mut folders: Vec<PathBuf> = fs::read_dir(self.data.join(AUTHORITIES))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        folders.sort();
        let has_issued = |folder: &PathBuf| {
            let bytes = fs::read(folder.join("ca.pem")).unwrap_or_default();
            let all = Certificate::all_from_pem(&bytes, ring::PEM_CERTIFICATES_MAX).unwrap_or_default();
            all.first().is_some_and(|authority| {
                let is_signer = old.certificate.x509().verify(authority.public_key()).unwrap_or(false);
                authority.dn() == old.certificate.issuer() && is_signer
            })
        };
        let found = folders.into_iter().find(has_issued);
        found.ok_or_else(|| RotationError::NoAuthority { issuer: rotation.old.issuer.clone() })
    }

    pub(crate) fn ring_dir(&self, user: &str) -> Result<PathBuf, RotationError> {
        Ok(Rings::new(self.data.join(RINGS)).path(user)?)
    }

    /// The user's ring with its keys, for which the passphrase must be the right one, and given only if there is one.
    fn own_ring(&self, user: &str) -> Result<Ring, RotationError> {
        let dir = self.ring_dir(user)?;
        let is_needed = match Ring::load(&dir, None) {
            Ok(ring) if self.passphrase.is_none() => return Ok(ring),
            // A key with a passphrase would lock the ring for a queue manager that was given none.
            Ok(_) => false,
            Err(error) if error.is_locked() && self.passphrase.is_some() => {
                return Ok(Ring::load(&dir, self.passphrase)?);
            }
            Err(error) if error.is_locked() => true,
            Err(RingError::Missing { .. }) => return Err(RotationError::NoKey { user: user.to_owned() }),
            Err(error) => return Err(error.into()),
        };
        Err(RotationError::Passphrase { user: user.to_owned(), is_needed })
    }

    /// The certificates in the rings of all users. Of a ring of which some file can't be read, what can be: it stops no
    /// other user's change.
    fn rings(&self) -> Vec<(String, Result<Readable, RingError>)> {
        let rings = Rings::new(self.data.join(RINGS));
        let read = |user: &String| rings.path(user).and_then(|path| ring::readable(&path));
        rings.users().into_iter().map(|user| (user.clone(), read(&user))).collect()
    }

    /// The rings that can't be used, and why: whoever changes another user's key is to know.
    pub fn unusable_rings(&self) -> Vec<(String, RingError)> {
        let rings = Rings::new(self.data.join(RINGS));
        let survey = |user: &String| rings.path(user).and_then(|path| ring::survey(&path));
        let unusable = rings.users().into_iter().filter_map(|user| survey(&user).err().map(|error| (user, error)));
        unusable.collect()
    }

    fn key_to_replace(&self, ring: &Ring, serial: Option<&str>) -> Result<std::sync::Arc<Own>, RotationError> {
        let user = || ring.user().to_owned();
        // What an agent of SPIFFE gives is not changed here.
        let mut own = ring.own().iter().filter(|own| !own.certificate.dn().is_spiffe_id());
        if let Some(serial) = serial {
            let own = own.find(|own| KeyFacts::of(&own.certificate).has_serial(serial));
            return own.cloned().ok_or_else(|| RotationError::UnknownKey { user: user(), serial: serial.to_owned() });
        }
        let newest: Vec<&std::sync::Arc<Own>> = own.clone().collect();
        let of = |role| {
            newest_of_each_class(
                &newest,
                |own| own.certificate.key_kind(),
                |own| believes(ring, own, role, self.now).is_ok(),
            )
        };
        let (signs, opens) = (of(Role::Sign), of(Role::Encrypt));
        let one = opens.first().or(signs.first()).copied();
        if opens.iter().chain(&signs).any(|other| one.is_some_and(|one| one.certificate != other.certificate)) {
            let serials = |all: Vec<&std::sync::Arc<Own>>| all.iter().map(|own| own.certificate.serial_hex()).collect();
            return Err(RotationError::SeveralKeys { user: user(), signs: serials(signs), opens: serials(opens) });
        }
        // Where none is good any more, the one that was good last.
        one.or(own.next()).cloned().ok_or_else(|| RotationError::NoKey { user: user() })
    }

    /// Another user with the same private key could not open what is sealed for the new one.
    fn check_alone(&self, user: &str, old: &KeyFacts) -> Result<(), RotationError> {
        let has_it = |ring: &Readable| ring.own.iter().any(|own| old.is(&own.certificate));
        let others = self.rings().into_iter().filter(|(other, _)| other != user);
        match others.filter_map(|(other, ring)| Some((other, ring.ok()?))).find(|(_, ring)| has_it(ring)) {
            Some((other, _)) => Err(RotationError::SharedKey { other, serial: old.serial.clone() }),
            None => Ok(()),
        }
    }

    fn old(&self, ring: &Ring, rotation: &Rotation) -> Result<std::sync::Arc<Own>, RotationError> {
        let found = ring.own().iter().find(|own| rotation.old.is(&own.certificate));
        found.cloned().ok_or_else(|| RotationError::UnknownKey {
            user: rotation.user.clone(),
            serial: rotation.old.serial.clone(),
        })
    }

    /// When the new certificate begins: now, or a second after the old one, whatever is later, because of two the one
    /// that began last seals. Until then the old one does.
    fn begins(&self, old: &Certificate) -> Result<SystemTime, RotationError> {
        let after = old.not_before() + Duration::from_secs(1);
        if after > self.now + AHEAD_MAX {
            let why = format!("the old one begins only in {} s", waits(self.now, after).as_secs());
            return Err(RotationError::Unfit { why });
        }
        Ok(after.max(self.now))
    }

    /// Whether a certificate can take the old one's place in all rings.
    fn check(
        &self,
        rotation: &Rotation,
        old: &Own,
        certificate: &Certificate,
        chain: &[Certificate],
    ) -> Result<(), RotationError> {
        let unfit = |why: String| Err(RotationError::Unfit { why });
        if certificate.dn() != old.certificate.dn() {
            return unfit(format!("it is for {}, and the old one for {}", certificate.dn(), old.certificate.dn()));
        }
        let (new_roles, old_roles) = (certificate.roles(), old.certificate.roles());
        let is_missing = |role: &&Role| matches!(role, Role::Sign | Role::Encrypt) && !new_roles.contains(role);
        if let Some(role) = old_roles.iter().find(is_missing) {
            return unfit(format!("it is not good for {role}"));
        }
        if certificate.not_before() <= old.certificate.not_before() {
            return unfit("it begins no later, so that it would not seal".to_owned());
        }
        if certificate.not_before() > self.now + AHEAD_MAX {
            return unfit("it is not valid yet".to_owned());
        }
        if let Err(error) = certificate.check_dates(self.now.max(certificate.not_before())) {
            return unfit(error.to_string());
        }
        for (user, readable) in self.rings() {
            let is_own = user == rotation.user;
            let has_old = |ring: &Readable| ring.people.iter().any(|person| rotation.old.is(&person.certificate));
            if !is_own && !readable.is_ok_and(|ring| has_old(&ring)) {
                continue;
            }
            let ring = match Ring::load_without_keys(&self.ring_dir(&user)?) {
                // It seals nothing and believes nobody until it is mended; what it believes then shows in its puts.
                Err(_) if !is_own => continue,
                ring => ring?,
            };
            for role in old_roles.iter().filter(|role| **role != Role::Tls) {
                let question = |certificate: &Certificate| PathQuestion {
                    usage: Some(role.usage(certificate.key_kind())),
                    revocation: Revocation::None,
                    at: certificate.not_before(),
                    now: self.now,
                };
                let was = ring.prove(&old.certificate, &old.chain, &question(&old.certificate));
                match ring.prove(certificate, chain, &question(certificate)) {
                    Err(error) if was.is_ok() => return Err(RotationError::NotBelieved { user, error }),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn pending(&self, rotation: &Rotation) -> Result<PathBuf, RotationError> {
        Ok(self.ring_dir(&rotation.user)?.join(PENDING).join(format!("{}.pem", rotation.label)))
    }

    fn forget_pending(&self, rotation: &Rotation) -> Result<(), RotationError> {
        let path = self.pending(rotation)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RotationError::file(&path)(error)),
            Err(_) => Ok(()),
            Ok(()) => path.parent().map_or(Ok(()), synced),
        }
    }

    fn read_key(&self, path: &Path) -> Result<PKey<Private>, RotationError> {
        let pem = Zeroizing::new(fs::read(path).map_err(RotationError::file(path))?);
        Ok(read_private_key(&pem, self.passphrase)?)
    }
}

/// The first good one that is post-quantum, and the first that is not: policies decide which of them they use.
fn newest_of_each_class<T: Copy>(newest: &[T], kind: impl Fn(T) -> KeyKind, is_good: impl Fn(&T) -> bool) -> Vec<T> {
    let of = |class| newest.iter().copied().filter(|own| kind(*own).is_post_quantum() == class).find(&is_good);
    [false, true].into_iter().filter_map(of).collect()
}

/// The certificates of the keys that sign and open new messages; the newest of the ring where none is good.
fn in_use(survey: &Survey, now: SystemTime) -> Vec<Certificate> {
    // What an agent of SPIFFE gives is not changed here.
    let mut newest: Vec<_> = survey.own.iter().filter(|own| !own.certificate.dn().is_spiffe_id()).collect();
    newest.sort_by_key(|own| {
        let serial = own.certificate.serial_der().to_vec();
        std::cmp::Reverse((own.certificate.not_before(), serial.len(), serial))
    });
    let good = |role: Role| {
        let is_good = |own: &&Person| {
            let usage = role.usage(own.certificate.key_kind());
            let at = current(&own.certificate, now);
            let question = PathQuestion { usage: Some(usage), revocation: Revocation::None, at, now };
            survey.ring.prove(&own.certificate, &own.chain, &question).is_ok()
        };
        newest_of_each_class(&newest, |own| own.certificate.key_kind(), is_good)
    };
    let good = [good(Role::Encrypt), good(Role::Sign)].concat();
    let mut found: Vec<Certificate> = good.into_iter().map(|own| own.certificate.clone()).collect();
    if found.is_empty() {
        found.extend(newest.first().map(|own| own.certificate.clone()));
    }
    found
}

fn believes(
    ring: &Ring,
    own: &Own,
    role: Role,
    now: SystemTime,
) -> Result<(), bulla_seal::certificate::CertificateError> {
    let usage = role.usage(own.certificate.key_kind());
    let at = current(&own.certificate, now);
    let question = PathQuestion { usage: Some(usage), revocation: Revocation::None, at, now };
    ring.prove(&own.certificate, &own.chain, &question).map(drop)
}

/// When to judge a certificate: now, or at its begin where that is a moment ahead, as of a key that was just made.
fn current(certificate: &Certificate, now: SystemTime) -> SystemTime {
    let begins = certificate.not_before();
    if begins <= now + AHEAD_MAX { begins.max(now) } else { now }
}

fn waits(now: SystemTime, until: SystemTime) -> Duration {
    until.duration_since(now).unwrap_or_default()
}

fn same_kind(certificate: &Certificate) -> Result<KeySpec, RotationError> {
    let kind = KeySpec::like(certificate.key_kind(), certificate.key_bits());
    kind.ok_or_else(|| RotationError::Unfit { why: "--key must say of what kind it is".to_owned() })
}

/// Whether a key of one kind may take the place of one of another: post-quantum ones sign or encrypt, not both, and
/// policies choose between those and others.
pub(crate) fn replaces(old: KeyKind, new: KeyKind) -> bool {
    match (old, new) {
        (KeyKind::MlDsa(_), KeyKind::MlDsa(_)) | (KeyKind::MlKem(_), KeyKind::MlKem(_)) => true,
        _ => !old.is_post_quantum() && !new.is_post_quantum(),
    }
}

/// What the new key may do: what the old one may, as its kind can.
fn uses(old: &Certificate, kind: KeyKind) -> Vec<KeyUse> {
    let encrypt = KeyUse::to_encrypt(kind);
    let roles = old.roles();
    // A certificate that does not say for what it is may be used for TLS, too; the new one says it.
    let is_for_tls = roles.contains(&Role::Tls) && old.x509().extended_key_usage().is_some();
    let found = [
        roles.contains(&Role::Sign).then_some(KeyUse::DocSign),
        roles.contains(&Role::Encrypt).then_some(encrypt),
        is_for_tls.then_some(KeyUse::Handshake),
    ];
    let found: Vec<KeyUse> = found.into_iter().flatten().collect();
    // A key that signs alone, or encrypts alone, takes what it can of that.
    let found: Vec<KeyUse> = found.into_iter().filter(|usage| KeyUse::bits(&[*usage], kind).is_ok()).collect();
    if found.is_empty() { KeyUse::usual(kind) } else { found }
}

/// The key's certificate out of a file, and those above it.
fn picked(bytes: &[u8], key: &PKey<Private>) -> Result<(Certificate, Vec<Certificate>), RotationError> {
    let mut all = Bundle::read(bytes, None)?.certificates;
    let at = all.iter().position(|certificate| certificate.public_key().public_eq(key));
    let unfit = || RotationError::Unfit { why: "none of the file's certificates is the new key's".to_owned() };
    let certificate = all.remove(at.ok_or_else(unfit)?);
    // The root is not a part of the chain.
    all.retain(|one| one.issuer() != one.dn());
    Ok((certificate, all))
}

/// Moves a file of a ring's place into the ring's folder `retired`.
fn set_aside(ring: &Path, place: &str, label: &str, key: &KeyFacts) -> Result<(), RotationError> {
    let folder = ring.join(RETIRED);
    private_folder(&folder)?;
    let from = ring.join(place).join(format!("{label}.pem"));
    // A label may come again, and no key is written over.
    let fingerprint = key.fingerprint.get(..8).unwrap_or(&key.fingerprint);
    let to = folder.join(format!("{place}-{label}-{fingerprint}.pem"));
    match fs::symlink_metadata(&from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(RotationError::file(&from)(error)),
        // What a link leads to would stay where it is, and the link in `retired` might lead nowhere.
        Ok(facts) if !facts.is_file() => return Err(RotationError::NotAFile { path: from }),
        Ok(_) => {}
    }
    fs::rename(&from, &to).map_err(RotationError::file(&from))?;
    synced(&folder)?;
    synced(&ring.join(place))
}

/// Makes a folder for its owner alone. One that is there must be so.
pub(crate) fn private_folder(path: &Path) -> Result<(), RotationError> {
    const OTHERS: u32 = 0o077;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(RotationError::file(path)(error)),
        _ => {}
    }
    let facts = fs::symlink_metadata(path).map_err(RotationError::file(path))?;
    if !facts.is_dir() {
        return Err(RotationError::NotAFile { path: path.to_owned() });
    }
    let mode = facts.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(RingError::Exposed { path: path.to_owned(), mode: mode & 0o7777 }.into());
    }
    path.parent().map_or(Ok(()), synced)
}

/// Only syncing the folder makes new names in it survive.
pub(crate) fn synced(folder: &Path) -> Result<(), RotationError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(RotationError::file(folder))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
