//! Whose word a shared object is taken on: what is loaded runs where all keys are, so it is held to what key files are
//! held to.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Write access of the group.
const GROUP_WRITES: u32 = 0o020;
/// Write access of all users.
const OTHERS_WRITE: u32 = 0o002;
/// In such a directory a file is renamed or removed by its owner and the directory's alone.
const STICKY: u32 = 0o1000;

/// Why a shared object is not loaded. The turn of the machine's owner.
#[derive(Debug)]
#[non_exhaustive]
pub enum CodeFileError {
    /// It can't be looked at.
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is a directory, a device or the like.
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// It, or a directory on the way to it, belongs to another user than root, this process's and this program's owner.
    Owner {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may write it, or a directory on the way to it.
    Writable {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

impl fmt::Display for CodeFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NotAFile { path } => write!(f, "{} is not a file", path.display()),
            Self::Owner { path, uid } => {
                write!(f, "{} belongs to user {uid}, and not to root or the user of this process", path.display())
            }
            Self::Writable { path, mode } => {
                write!(f, "{} can be written by others (mode {mode:04o}): chmod go-w", path.display())
            }
        }
    }
}

impl std::error::Error for CodeFileError {}

/// Where the shared object really is, if no other user could have written it: the file and each directory on the way
/// belong to root, to this process's user or to the owner of this program, and no other user may write them.
///
/// # Errors
/// What speaks against it.
pub fn checked_code_file(path: &Path) -> Result<PathBuf, CodeFileError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error| CodeFileError::Unreadable { path, error }
    };
    // Links are followed here once: what is loaded is what was looked at.
    let file = path.canonicalize().map_err(unreadable(path))?;
    let program = fs::metadata("/proc/self/exe").ok().map(|metadata| metadata.uid());
    let trusted = |uid| uid == 0 || uid == rustix::process::geteuid().as_raw() || Some(uid) == program;
    for (depth, at) in file.ancestors().enumerate() {
        let metadata = fs::metadata(at).map_err(unreadable(at))?;
        if depth == 0 && !metadata.is_file() {
            return Err(CodeFileError::NotAFile { path: at.to_owned() });
        }
        if !trusted(metadata.uid()) {
            return Err(CodeFileError::Owner { path: at.to_owned(), uid: metadata.uid() });
        }
        if others_may_change(&metadata) {
            return Err(CodeFileError::Writable { path: at.to_owned(), mode: metadata.mode() & 0o7777 });
        }
    }
    Ok(file)
}

fn others_may_change(metadata: &Metadata) -> bool {
    let mode = metadata.mode();
    if metadata.is_dir() && mode & STICKY != 0 {
        return false;
    }
    // A group that is numbered like the owner is the owner's alone, which is why many systems let it write by default.
    mode & OTHERS_WRITE != 0 || mode & GROUP_WRITES != 0 && metadata.gid() != metadata.uid()
}

/// Whether `file` lies below one of `places`, or is one of them. Both are compared as they really are.
#[must_use]
pub fn is_below(file: &Path, places: &[PathBuf]) -> bool {
    places.iter().filter_map(|place| place.canonicalize().ok()).any(|place| file.starts_with(place))
}

/// The directories where a system keeps its libraries.
#[must_use]
pub fn system_libraries() -> Vec<PathBuf> {
    ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/usr/local/lib64"]
        .map(|place| PathBuf::from(OsStr::new(place)))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
    }

    #[test]
    fn code_that_others_may_change_is_refused_wherever_on_the_way() {
        let top = tempfile::tempdir().expect("a directory");
        let (folder, file) = (top.path().join("lib"), top.path().join("lib/module.so"));
        fs::create_dir(&folder).expect("a directory");
        fs::write(&file, b"code").expect("a file");
        mode(&folder, 0o755);
        mode(&file, 0o755);
        assert_eq!(checked_code_file(&file).expect("trusted"), file.canonicalize().expect("a path"));
        for at in [&file, &folder] {
            mode(at, 0o757);
            let refused = checked_code_file(&file).expect_err("others may write");
            assert!(
                matches!(&refused, CodeFileError::Writable { path, mode: 0o757 } if path.ends_with(at.file_name().expect("a name")))
            );
            mode(at, 0o755);
        }
        // The name of a link says nothing: what it leads to is looked at.
        let link = top.path().join("link.so");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        mode(&folder, 0o777);
        assert!(matches!(checked_code_file(&link), Err(CodeFileError::Writable { .. })));
        mode(&folder, 0o1777);
        assert!(checked_code_file(&link).is_ok(), "in a sticky directory only owners rename");
    }

    #[test]
    fn code_of_another_user_is_refused() {
        let top = tempfile::tempdir().expect("a directory");
        let file = top.path().join("module.so");
        fs::write(&file, b"code").expect("a file");
        mode(&file, 0o755);
        if std::os::unix::fs::chown(&file, Some(64001), None).is_err() {
            return; // only root gives files away
        }
        assert!(matches!(checked_code_file(&file), Err(CodeFileError::Owner { uid: 64001, .. })));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let top = tempfile::tempdir().expect("a directory");
        assert!(matches!(checked_code_file(top.path()), Err(CodeFileError::NotAFile { .. })));
        assert!(matches!(checked_code_file(&top.path().join("none")), Err(CodeFileError::Unreadable { .. })));
    }
}
