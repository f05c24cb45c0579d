//! The file that a token's PIN is read from.

use std::fmt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::secret_file;

/// The longest PIN, in bytes.
pub const PIN_BYTES_MAX: usize = 256;

/// A PIN. Wiped when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pin(Zeroizing<Vec<u8>>);

impl Pin {
    /// The first line of a file that only its owner can read. The error is one lower-case line without the PIN.
    pub(super) fn read(path: &Path) -> Result<Pin, String> {
        secret_file::first_line("PIN file", path, PIN_BYTES_MAX).map(Pin)
    }

    pub(super) fn bytes(&self) -> Zeroizing<Vec<u8>> {
        self.0.clone()
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Pin(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_pin_is_the_first_line_of_a_file_that_only_its_owner_reads() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pin");
        let read = |content: &str, mode| {
            fs::write(&path, content).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
            Pin::read(&path)
        };
        let pin = read("s3cr3t\r\nsecond", 0o600).expect("a PIN");
        assert_eq!(*pin.bytes(), b"s3cr3t");
        assert_eq!(format!("{pin:?}"), "Pin(..)");
        for (content, mode, why) in [
            ("s3cr3t", 0o640, "can be read by others (mode 0640): only 0600 and less is used"),
            ("\n", 0o600, "the first line must have 1 to 256 bytes"),
            (&"s3cr3t".repeat(50), 0o400, "the first line must have 1 to 256 bytes"),
        ] {
            let error = read(content, mode).expect_err(why);
            assert!(error.ends_with(why) && !error.contains("s3cr3t"), "{error}");
        }
        assert!(Pin::read(dir.path()).expect_err("a directory").contains("is no file"));
        assert!(Pin::read(&dir.path().join("none")).expect_err("nothing").contains("No such file"));
    }
}
