//! Files that decide what is run or believed.

use super::EnrolError;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file that decides what is run or believed: of root or of this process's user, and for nobody else to write.
///
/// # Errors
/// [`EnrolError::Unsafe`], [`EnrolError::File`].
pub fn check_safe(path: &Path) -> Result<(), EnrolError> {
    const OTHERS_WRITE: u32 = 0o022;
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
