//! `rotations/`: how far the changes of keys are, a file each. A file is replaced whole and synced, so that it says
//! what is done, also after a loss of power.

use super::RotationError;
use crate::folders::ROTATIONS;
use crate::whole_file;
use bulla_seal::certificate::Certificate;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a command asks again for the lock that another one holds.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Most old keys of one user that wait for their last message.
pub const OLD_KEYS_MAX: usize = 16;
/// Largest file of a record that is read, in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Most files that are read.
const RECORDS_MAX: usize = 10_000;
const ENDING: &str = ".json";

/// A step of the change, in their order.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// It is known which key is to be replaced.
    Begun,
    /// The new private key is on disk, in `pending/` of the ring, and used for nothing.
    Keyed,
    /// It is in the ring with its certificate: it opens, and signs what its user seals.
    Installed,
    /// Its certificate is in every ring that has the old one: messages are sealed for it.
    Shared,
    /// The old certificate is in no other ring any more: no message can be sealed for it here.
    Withdrawn,
    /// The old key is out of use, and no message needed it.
    Retired,
    /// The old key is out of use although messages needed it.
    Stranded,
    /// It was called off before the new key was in the ring.
    Cancelled,
}

impl Step {
    /// In lower case.
    pub fn word(self) -> &'static str {
        match self {
            Step::Begun => "begun",
            Step::Keyed => "keyed",
            Step::Installed => "installed",
            Step::Shared => "shared",
            Step::Withdrawn => "withdrawn",
            Step::Retired => "retired",
            Step::Stranded => "stranded",
            Step::Cancelled => "cancelled",
        }
    }

    /// Whether nothing comes after it.
    pub fn is_end(self) -> bool {
        matches!(self, Step::Retired | Step::Stranded | Step::Cancelled)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A process that did a step, as it says itself: who can write here may say anything.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct By {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Process number.
    pub pid: u32,
}

impl By {
    /// This process.
    pub fn this_process() -> By {
        By { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw(), pid: std::process::id() }
    }
}

/// A step that was done.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// Which.
    pub step: Step,
    /// When, milliseconds since 1970, UTC.
    pub at_ms: u64,
    /// By which process; none for the queue manager.
    pub by: Option<By>,
}

/// A key, as its certificate says.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFacts {
    /// The subject.
    pub subject: String,
    /// Who issued the certificate.
    pub issuer: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// The key identifier, hexadecimal; empty without one.
    pub key_id: String,
    /// DER of issuer and serial number, by which messages name the key, hexadecimal.
    pub name: String,
    /// SHA-256 of the certificate, hexadecimal.
    pub fingerprint: String,
}

impl KeyFacts {
    /// Of a certificate.
    pub fn of(certificate: &Certificate) -> KeyFacts {
        let hex = |bytes: &[u8]| base16ct::lower::encode_string(bytes);
        KeyFacts {
            subject: certificate.dn().to_string(),
            issuer: certificate.issuer().to_string(),
            serial: certificate.serial_hex(),
            key_id: certificate.subject_key_id().map(hex).unwrap_or_default(),
            name: hex(certificate.issuer_and_serial()),
            fingerprint: hex(certificate.fingerprint()),
        }
    }

    /// Whether a message that names its recipient so is for this key: by issuer and serial number, or by key identifier
    /// (`[0]`, as [`bulla_seal::recipients`] says it).
    pub fn is_named(&self, name: &[u8]) -> bool {
        let hex = base16ct::lower::encode_string(name);
        let id = || format!("80{:02x}{}", self.key_id.len() / 2, self.key_id);
        hex == self.name || !self.key_id.is_empty() && hex == id()
    }

    /// Whether the certificate is this one.
    pub fn is(&self, certificate: &Certificate) -> bool {
        self.fingerprint == base16ct::lower::encode_string(certificate.fingerprint())
    }

    /// Whether a serial number that was typed is this one's.
    pub fn has_serial(&self, typed: &str) -> bool {
        let plain = |text: &str| text.to_ascii_lowercase().replace(':', "").trim_start_matches('0').to_owned();
        plain(&self.serial) == plain(typed)
    }
}

/// How many messages needed the old key when the change was first seen by a queue manager.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Messages, those in units of work and those of which it is not known included.
    pub messages: u64,
    /// Bytes of those on queues.
    pub bytes: u64,
}

/// A change of a key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Whose key.
    pub user: String,
    /// The key that is replaced.
    pub old: KeyFacts,
    /// The kind of the new key, as `bulla cert create --key` has it; empty where it was made by hand.
    pub kind: String,
    /// The file of the new key in the ring, without its ending.
    pub label: String,
    /// The new key, once there is a certificate.
    pub new: Option<KeyFacts>,
    /// How long the old key is kept at least once the new one is shared, in seconds.
    pub overlap_seconds: u64,
    /// Whether the new certificate comes by enrolment: the queue manager asks for it again until it has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enrols: bool,
    /// What was done, in order.
    pub steps: Vec<Done>,
    /// How many of these the audit log has.
    pub audited: usize,
    /// How many messages needed the old key when that was first counted.
    pub began: Option<Counted>,
    /// How many needed it when it was taken out of use.
    pub ended: Option<Counted>,
}

impl Rotation {
    /// The last step that was done.
    pub fn step(&self) -> Step {
        self.steps.last().map_or(Step::Begun, |done| done.step)
    }

    /// When that was.
    pub fn since_ms(&self) -> u64 {
        self.steps.last().map_or(0, |done| done.at_ms)
    }

    /// Until when the old key is kept in any case, milliseconds since 1970; none while the new one is not shared.
    pub fn overlap_until_ms(&self) -> Option<u64> {
        let shared = self.steps.iter().find(|done| done.step == Step::Shared)?;
        Some(shared.at_ms.saturating_add(self.overlap_seconds.saturating_mul(1000)))
    }

    /// Whether the new key does not seal yet.
    pub fn is_being_made(&self) -> bool {
        self.step() < Step::Shared
    }

    /// Notes a step.
    pub fn did(&mut self, step: Step, by: Option<By>, now: SystemTime) {
        self.steps.push(Done { step, at_ms: millis(now), by });
    }

    fn file(&self) -> String {
        // Fingerprints tell keys of several authorities with one serial number apart. No user's name has a `+`.
        let fingerprint = self.old.fingerprint.get(..16).unwrap_or(&self.old.fingerprint);
        format!("{}+{fingerprint}{ENDING}", self.user)
    }
}

fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The records of a data directory.
#[derive(Clone, Debug)]
pub struct Rotations {
    folder: PathBuf,
}

/// The right to change keys and records, for one process at a time; it ends when this is dropped.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "the lock ends with the file")] File);

impl Rotations {
    /// Those of a data directory. Nothing is read.
    pub fn at(data: &Path) -> Rotations {
        Rotations { folder: data.join(ROTATIONS) }
    }

    /// Whether there is any record, or was.
    pub fn are_there(&self) -> bool {
        self.folder.is_dir()
    }

    /// Takes the turn, and makes the folder. It waits for another process for as long as `patience`.
    ///
    /// # Errors
    /// [`RotationError::Busy`], [`RotationError::File`].
    pub fn turn(&self, patience: Duration) -> Result<Turn, RotationError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(RotationError::file(&self.folder))?;
        let file = File::open(&self.folder).map_err(RotationError::file(&self.folder))?;
        let until = std::time::Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Turn(file)),
                Err(TryLockError::Error(error)) => return Err(RotationError::file(&self.folder)(error)),
                Err(TryLockError::WouldBlock) if std::time::Instant::now() >= until => return Err(RotationError::Busy),
                Err(TryLockError::WouldBlock) => std::thread::sleep(TRY_EVERY),
            }
        }
    }

    /// Every record, by file; of one that can't be read, why.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn all(&self) -> Result<Vec<Result<Rotation, RotationError>>, RotationError> {
        Ok(self.paths()?.iter().filter_map(|path| read(path).transpose()).collect())
    }

    fn paths(&self) -> Result<Vec<PathBuf>, RotationError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(RotationError::file(&self.folder)(error)),
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
            .take(RECORDS_MAX)
            .collect();
        paths.sort();
        Ok(paths)
    }

    /// The records of one user.
    ///
    /// # Errors
    /// One of them, or the folder, can't be read.
    pub fn of(&self, user: &str) -> Result<Vec<Rotation>, RotationError> {
        self.of_users(&|other| other == user)
    }

    /// The records of those users who are wanted. Others' records that can't be read are no error.
    ///
    /// # Errors
    /// As [`Rotations::of`].
    pub fn of_users(&self, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Rotation>, RotationError> {
        let is_theirs = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            is_wanted(name.split_once('+').map_or(name, |(user, _)| user))
        };
        self.paths()?.iter().filter(|path| is_theirs(path)).filter_map(|path| read(path).transpose()).collect()
    }

    /// Writes a record; it is durable on return.
    ///
    /// # Errors
    /// [`RotationError::File`]; the record is then the former one.
    pub fn write(&self, rotation: &Rotation) -> Result<(), RotationError> {
        let path = self.folder.join(rotation.file());
        let text = serde_json::to_vec_pretty(rotation)
            .map_err(|error| RotationError::Record { path: path.clone(), why: error.to_string() })?;
        whole_file::replace(&path, &text, 0o600).map_err(RotationError::file(&path))
    }

    /// Takes a record away.
    ///
    /// # Errors
    /// [`RotationError::File`].
    pub fn remove(&self, rotation: &Rotation) -> Result<(), RotationError> {
        let path = self.folder.join(rotation.file());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RotationError::file(&path)(error)),
            _ => {
                File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(RotationError::file(&self.folder))
            }
        }
    }
}

/// None where the file went away meanwhile.
fn read(path: &Path) -> Result<Option<Rotation>, RotationError> {
    let bad = |why: String| RotationError::Record { path: path.to_owned(), why };
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RotationError::file(path)(error)),
    };
    if !facts.is_file() {
        return Err(RotationError::NotAFile { path: path.to_owned() });
    }
    if facts.len() > RECORD_BYTES_MAX {
        return Err(bad(format!("over {RECORD_BYTES_MAX} bytes")));
    }
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RotationError::file(path)(error)),
    };
    let rotation: Rotation = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_its_own = path.file_name().is_some_and(|name| name.to_str() == Some(&rotation.file()));
    if !is_hex(&rotation.old.fingerprint) || !is_its_own {
        return Err(bad("it is not the record that its name says".to_owned()));
    }
    if rotation.steps.is_empty() || rotation.audited > rotation.steps.len() {
        return Err(bad("its steps are not those of a change".to_owned()));
    }
    Ok(Some(rotation))
}
