//! Files that are replaced whole: a reader sees the old text or the new, after a crash too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes `bytes` beside `path` with the permissions `mode`, syncs, renames over `path`, and syncs the directory.
/// One writer at a time.
///
/// # Errors
/// Whatever the file system says; `path` is then the old one, and what was written of the new one is gone: it may be
/// part of a private key, and where the disk is full it takes room.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = Path::new(&aside);
    // What a crash left behind may have other permissions: it goes first.
    match fs::remove_file(aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(aside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(aside, path));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(aside);
        return written;
    }
    // Renaming publishes the file, but only syncing the directory makes its new name survive.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_left_over_from_a_crash_does_not_lend_its_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        fs::write(directory.path().join("users.new"), "half").unwrap();
        replace(&path, b"whole", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        replace(&path, b"again", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"again");
    }

    #[test]
    fn what_can_t_take_its_place_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        fs::create_dir_all(path.join("a folder")).unwrap();
        assert!(replace(&path, b"whole", 0o600).is_err());
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["users"]);
    }
}
