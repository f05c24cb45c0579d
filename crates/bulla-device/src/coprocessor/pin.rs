//! The file that a token's PIN is read from.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

/// The longest PIN, in bytes.
pub const PIN_BYTES_MAX: usize = 256;
/// Permissions that only the owner may have.
const OTHERS: u32 = 0o077;

/// A PIN. Wiped when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pin(Zeroizing<Vec<u8>>);

impl Pin {
    /// The first line of a file that only its owner can read. The error is one lower-case line without the PIN.
    pub(super) fn read(path: &Path) -> Result<Pin, String> {
        let shown = path.display();
        let failed = |error: std::io::Error| format!("PIN file {shown}: {error}");
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(format!("PIN file {shown} is no file"));
        }
        if metadata.mode() & OTHERS != 0 {
            let mode = metadata.mode() & 0o7777;
            return Err(format!(
                "PIN file {shown} can be read by others (mode {mode:04o}): only 0600 and less is used"
            ));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(PIN_BYTES_MAX + 2));
        let limit = u64::try_from(PIN_BYTES_MAX + 2).unwrap_or(u64::MAX);
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
        if end == 0 || end > PIN_BYTES_MAX {
            return Err(format!("PIN file {shown}: the first line must have 1 to {PIN_BYTES_MAX} bytes"));
        }
        bytes.truncate(end);
        Ok(Pin(bytes))
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
