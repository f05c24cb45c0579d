//! Files that decide what is run or believed.

use super::EnrolError;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use zeroize::Zeroizing;

/// Of a mode: whether others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Largest file of a secret, in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// A file that decides what is run or believed: of root or of this process's user, and for nobody else to write.
///
/// # Errors
/// [`EnrolError::Unsafe`], [`EnrolError::File`].
pub fn check_safe(path: &Path) -> Result<(), EnrolError> {
    let facts = fs::symlink_metadata(path).map_err(EnrolError::file(path))?;
    let not_safe = |why: String| EnrolError::Unsafe { path: path.to_owned(), why };
    if !facts.is_file() {
        return Err(not_safe("it is not a file of its own".to_owned()));
    }
    if facts.mode() & OTHERS_WRITE != 0 {
        return Err(not_safe(format!("others may write it (mode {:o})", facts.mode() & 0o7777)));
    }
    if facts.uid() != 0 && facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(not_safe(format!("it belongs to user {}", facts.uid())));
    }
    Ok(())
}

/// A socket that others can't have put there: its folder may be written by no one but root, this process's user, or the
/// socket's.
///
/// # Errors
/// [`EnrolError::Unsafe`], [`EnrolError::File`].
pub fn check_safe_socket(path: &Path) -> Result<(), EnrolError> {
    let facts = fs::symlink_metadata(path).map_err(EnrolError::file(path))?;
    let not_safe = |path: &Path, why: String| EnrolError::Unsafe { path: path.to_owned(), why };
    if !facts.file_type().is_socket() {
        return Err(not_safe(path, "it is no socket".to_owned()));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let around = fs::metadata(folder).map_err(EnrolError::file(folder))?;
    if around.mode() & OTHERS_WRITE != 0 {
        return Err(not_safe(folder, format!("others may write it (mode {:o})", around.mode() & 0o7777)));
    }
    let (owner, own) = (around.uid(), rustix::process::geteuid().as_raw());
    if ![0, own, facts.uid()].contains(&owner) {
        return Err(not_safe(folder, format!("it belongs to user {owner}")));
    }
    Ok(())
}

/// A file with a secret: as [`check_safe`], short, and not readable by other users.
///
/// # Errors
/// [`EnrolError::Unsafe`], [`EnrolError::File`].
pub fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, EnrolError> {
    const OTHERS: u32 = 0o077;
    check_safe(path)?;
    let facts = fs::metadata(path).map_err(EnrolError::file(path))?;
    let bad = |why: &str| EnrolError::Unsafe { path: path.to_owned(), why: why.to_owned() };
    if facts.mode() & OTHERS != 0 {
        return Err(bad("others may read it"));
    }
    if facts.len() > SECRET_BYTES_MAX {
        return Err(bad("it is too long for a secret"));
    }
    Ok(Zeroizing::new(fs::read(path).map_err(EnrolError::file(path))?))
}

/// The first line of a file with a secret.
///
/// # Errors
/// As [`secret`]; the line is empty.
pub fn secret_line(path: &Path) -> Result<Zeroizing<Vec<u8>>, EnrolError> {
    let text = secret(path)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = Zeroizing::new(line.strip_suffix(b"\r").unwrap_or(line).to_vec());
    if line.is_empty() {
        return Err(EnrolError::Unsafe { path: path.to_owned(), why: "its first line is empty".to_owned() });
    }
    Ok(line)
}
