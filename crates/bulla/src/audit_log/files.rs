//! The files of a log: one after another, each named by the number of its first entry.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The log's folder in the data directory.
pub const FOLDER: &str = "audit";
/// After so many bytes an entry begins a new file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

const ENDING: &str = ".jsonl";
/// Digits of a file's name: as many as make names sort as their numbers do.
const DIGITS: usize = 20;

/// A file's name, by the number of its first entry.
#[must_use]
pub fn name(first: u64) -> String {
    format!("{first:0width$}{ENDING}", width = DIGITS)
}

/// The number in a file's name; none for a name that no file of a log has.
#[must_use]
pub fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING).filter(|digits| digits.len() == DIGITS)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The files of a folder in the order of their numbers. What has another name is not looked at.
///
/// # Errors
/// Whatever the file system says.
pub fn all(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        if let Some(first) = file.file_name().to_str().and_then(first_of) {
            found.push((first, file.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Makes the folder, closed to other users.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// Makes a new file whose name survives a crash.
pub(super) fn create(folder: &Path, first: u64) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name(first)))?;
    File::open(folder)?.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_their_numbers_and_no_others_are_taken() {
        assert!(name(9) < name(10) && name(u64::MAX).len() == name(0).len());
        assert_eq!(first_of(&name(u64::MAX)), Some(u64::MAX));
        for other in ["1.jsonl", "0000000000000000000x.jsonl", "99999999999999999999.jsonl", ""] {
            assert_eq!(first_of(other), None, "{other}");
        }
    }
}
