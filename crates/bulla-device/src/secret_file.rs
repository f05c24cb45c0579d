//! Files with a secret in their first line: a token's PIN, what a server knows this program by.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

/// Permissions that only the owner may have.
const OTHERS: u32 = 0o077;

/// Opens a file that only its owner can read. `what` names it in the error, which is one line.
pub(crate) fn open(what: &str, path: &Path) -> Result<File, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{what} {shown}: {error}");
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(format!("{what} {shown} is no file"));
    }
    if metadata.mode() & OTHERS != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(format!("{what} {shown} can be read by others (mode {mode:04o}): only 0600 and less is used"));
    }
    Ok(file)
}

/// The first line of a file that only its owner can read, 1 to `bytes_max` bytes of it. The error is one line without
/// any of the content.
pub(crate) fn first_line(what: &str, path: &Path, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let shown = path.display();
    let file = open(what, path)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 2));
    let limit = u64::try_from(bytes_max + 2).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut bytes).map_err(|error| format!("{what} {shown}: {error}"))?;
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    if end == 0 || end > bytes_max {
        return Err(format!("{what} {shown}: the first line must have 1 to {bytes_max} bytes"));
    }
    bytes.truncate(end);
    Ok(bytes)
}
