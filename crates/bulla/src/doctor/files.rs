//! The data directory: who can read what, disk, clock, and whether rings and the listener's key can be used. It takes
//! no running queue manager.

use super::{dates, mend};
use crate::audit_log;
use crate::catalog::diagnosis::{CLOCK, Check, Condition, DISK, Diagnoses, Diagnosis, MODES, RING, TLS as LISTENER};
use crate::folders::{AUTHORITIES, JOURNAL, RINGS, TLS};
use crate::users;
use bulla_queue::SEGMENT_BYTES_DEFAULT;
use bulla_seal::certificate::Certificate;
use bulla_seal::ring::{self, PEM_CERTIFICATES_MAX, RingError};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files whose modes are looked at.
const FILES_MAX: usize = 20_000;
/// Things of one sort that are told of one by one.
const TOLD_MAX: usize = 20;
/// Rings that are looked at.
const RINGS_MAX: usize = 1_000;
/// Free space below which puts of persistent messages are about to be refused: the journal makes segments ahead.
const FREE_BYTES_MIN: u64 = 2 * SEGMENT_BYTES_DEFAULT;
/// Free space below which it is told of.
const FREE_BYTES_WARN: u64 = 16 * SEGMENT_BYTES_DEFAULT;
/// A file may be so much later than the clock: it is dated by the kernel's tick.
const LATER_MAX: Duration = Duration::from_secs(5);
/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

fn ill(
    found: &mut Diagnoses,
    check: &'static Check,
    condition: Condition,
    about: &Path,
    details: String,
    mend: Vec<String>,
) {
    let about = about.display().to_string();
    found.push(Diagnosis { check, condition, about, cause: String::new(), details, mend });
}

/// All of it. `uses_tls`: something is listened for over TLS.
pub(crate) fn look(data: &Path, found: &mut Diagnoses, now: SystemTime, ahead: Duration, uses_tls: bool) {
    modes(data, found);
    rings(data, found);
    listener(data, found, uses_tls);
    disk(data, found);
    dates::of_directory(data, found, now, ahead);
    clock(data, found, now);
}

/// Owners and modes. A directory that is not there is said to be none.
fn modes(data: &Path, found: &mut Diagnoses) {
    let facts = match fs::metadata(data) {
        Ok(facts) => facts,
        Err(error) => {
            let mend = vec![format!("bulla start --data {}", mend::shell(&data.display().to_string()))];
            return ill(found, &MODES, Condition::Broken, data, error.to_string(), mend);
        }
    };
    if facts.mode() & OTHERS != 0 {
        exposed(found, Condition::Broken, data, &facts);
    }
    let owner = facts.uid();
    let mut told = 0_usize;
    let mut looked = 0_usize;
    let mut folders: Vec<(PathBuf, bool)> = vec![(data.to_owned(), false)];
    while let Some((folder, is_secret)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(facts) = entry.metadata() else { continue };
            looked += 1;
            if looked > FILES_MAX || facts.is_symlink() {
                continue;
            }
            let path = entry.path();
            let secret = is_secret || keeps_secrets(data, &path);
            if facts.is_dir() {
                folders.push((path.clone(), secret));
            }
            let is_ill = if secret { facts.mode() & OTHERS != 0 } else { facts.mode() & 0o022 != 0 };
            if facts.uid() != owner && told < TOLD_MAX {
                told += 1;
                let details = format!("belongs to user {}, and the data directory to {owner}", facts.uid());
                let mend = vec![format!("chown {owner} {}", mend::shell(&path.display().to_string()))];
                ill(found, &MODES, Condition::Warning, &path, details, mend);
            } else if is_ill && told < TOLD_MAX {
                told += 1;
                let condition = if secret { Condition::Broken } else { Condition::Warning };
                exposed(found, condition, &path, &facts);
            }
        }
    }
    if looked > FILES_MAX {
        let details = format!("{} files beyond the first {FILES_MAX} were not looked at", looked - FILES_MAX);
        ill(found, &MODES, Condition::Unknown, data, details, Vec::new());
    }
    if !found.has(&MODES) {
        let details = "the data directory is its owner's alone, and so are keys, rings and passwords";
        found.well(&MODES, data.display().to_string(), details);
    }
}

/// Whether a file or folder holds what only its owner may read: keys, rings, verifiers of passwords, PINs.
fn keeps_secrets(data: &Path, path: &Path) -> bool {
    let Ok(name) = path.strip_prefix(data) else { return false };
    let is = |text: &str| name == Path::new(text);
    let is_key = path.extension().is_some_and(|ending| ["key", "password", "pin"].iter().any(|it| ending == *it));
    is(RINGS) || is(AUTHORITIES) || is(users::FILE) || is_key
}

fn exposed(found: &mut Diagnoses, condition: Condition, path: &Path, facts: &Metadata) {
    let (mode, wanted) = (facts.mode() & 0o7777, if facts.is_dir() { "700" } else { "600" });
    let details = format!("has mode {mode:04o}: others than its owner have access to it");
    let mend = vec![format!("chmod {wanted} {}", mend::shell(&path.display().to_string()))];
    ill(found, &MODES, condition, path, details, mend);
}

/// Whether the rings of the data directory can be read, their keys left closed.
fn rings(data: &Path, found: &mut Diagnoses) {
    let entries = fs::read_dir(data.join(RINGS)).into_iter().flatten().flatten();
    let mut count = 0_usize;
    for entry in entries.filter(|entry| entry.path().is_dir()).take(RINGS_MAX) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        count += 1;
        if let Err(error) = ring::survey(&path) {
            let mend = match &error {
                RingError::Exposed { path, .. } => {
                    let mode = if path.is_dir() { "700" } else { "600" };
                    vec![format!("chmod {mode} {}", mend::shell(&path.display().to_string()))]
                }
                _ => vec![format!("bulla cert list --ring {}", mend::shell(&name))],
            };
            let (about, cause, details) = (super::user(&name), "no-ring".to_owned(), error.to_string());
            found.push(Diagnosis { check: &RING, condition: Condition::Broken, about, cause, details, mend });
        }
    }
    if !found.has(&RING) {
        found.well(&RING, "", format!("{count} rings, all of which can be read"));
    }
}

/// The listener's certificate and key, which a start with a listener for TLS makes where there are none.
fn listener(data: &Path, found: &mut Diagnoses, is_needed: bool) {
    let (path, key) = (data.join(TLS).join("server.pem"), data.join(TLS).join("server.key"));
    if !is_needed && !path.exists() {
        return found.well(&LISTENER, "", "there is no certificate, and nothing is listened for over TLS");
    }
    let read = |path: &Path| match fs::metadata(path) {
        Ok(facts) if !facts.is_file() => Err("is no file".to_owned()),
        Ok(_) => fs::read(path).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let certificates = read(&path)
        .and_then(|pem| Certificate::all_from_pem(&pem, PEM_CERTIFICATES_MAX).map_err(|error| error.to_string()));
    let look = vec![format!("ls -l {}", mend::shell(&data.join(TLS).display().to_string()))];
    let shown = match certificates.as_deref() {
        Ok([own, ..]) => own,
        Ok([]) => return ill(found, &LISTENER, Condition::Broken, &path, "holds no certificate".to_owned(), look),
        Err(error) => return ill(found, &LISTENER, Condition::Broken, &path, error.clone(), look),
    };
    match read(&key).map(zeroize::Zeroizing::new) {
        Ok(pem) if !fits(shown, &pem) => {
            let details = "is not the key of the certificate beside it".to_owned();
            ill(found, &LISTENER, Condition::Broken, &key, details, look);
        }
        Ok(_) => found.well(&LISTENER, "", format!("shows {}", shown.dn())),
        Err(error) => ill(found, &LISTENER, Condition::Broken, &key, error, look),
    }
}

/// Whether a private key is that of a certificate. There is no terminal to ask for a passphrase.
fn fits(certificate: &Certificate, key: &[u8]) -> bool {
    let key = openssl::pkey::PKey::private_key_from_pem_callback(key, |_| Ok(0));
    key.is_ok_and(|key| certificate.public_key().public_eq(&key))
}

/// Space of the data directory's disk. The journal keeps segments ready, so that gets and deletes work on a full one.
pub(super) fn disk(data: &Path, found: &mut Diagnoses) {
    let space = match rustix::fs::statvfs(data) {
        Ok(space) => space,
        Err(error) => return found.say(&DISK, Condition::Unknown, "", format!("{}: {error}", data.display())),
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let said = format!("{} MiB free", free >> 20);
    let look = || vec![format!("df -h {}", mend::shell(&data.display().to_string()))];
    match free {
        free if free < FREE_BYTES_MIN => {
            let details = format!("{said}: the journal finds no room for its next segments, and puts are refused");
            ill(found, &DISK, Condition::Broken, data, details, look());
        }
        free if free < FREE_BYTES_WARN => ill(found, &DISK, Condition::Warning, data, said, look()),
        _ => found.well(&DISK, "", said),
    }
    if space.f_files > 0 && space.f_favail == 0 {
        ill(found, &DISK, Condition::Broken, data, "no file can be made any more: no inodes".to_owned(), look());
    }
}

/// The clock against what was written: a file that is later than now was written before the clock was set back.
pub(super) fn clock(data: &Path, found: &mut Diagnoses, now: SystemTime) {
    let written = [data.to_owned(), data.join(JOURNAL), data.join(audit_log::FOLDER)];
    let files = written.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let newest = files.filter_map(|entry| entry.metadata().ok()?.modified().ok()).max();
    let ahead = newest.and_then(|newest| newest.duration_since(now).ok()).filter(|ahead| *ahead > LATER_MAX);
    match ahead {
        Some(ahead) => {
            let details =
                format!("a file of the data directory is {} s later than the clock: it was set back", ahead.as_secs());
            ill(found, &CLOCK, Condition::Warning, data, details, vec!["date -u".to_owned()]);
        }
        None => {
            let said = bulla_seal::certificate::utc(now);
            found.well(
                &CLOCK,
                "",
                format!("{said}, not before what was written; whether it is right can't be seen from here"),
            );
        }
    }
}
