//! The ring's secret for keys on tokens: what a failed PKCS#1 v1.5 unwrap goes on with is derived from it.

use std::io;
use std::path::Path;

use bulla_device::RejectionSecret;
use zeroize::Zeroizing;

use super::RingError;
use super::install::write_private_once;
use super::load::{self, Place};
use crate::certificate::MalformedError;

/// Its file in `own`.
pub(super) const FILE: &str = "rejection-secret";

/// The secret that is kept in this ring. It is made when it is first asked for; where the ring can't be written, or the
/// file not be read, it is one of this process.
///
/// # Errors
/// [`RingError::Malformed`], and [`RingError::Exposed`] where others may read it.
pub(super) fn of_ring(dir: &Path) -> Result<RejectionSecret, RingError> {
    let path = dir.join(Place::Own.name()).join(FILE);
    let no_randomness = |error| RingError::io(&path, &io::Error::other(error));
    if !path.exists() {
        let secret = RejectionSecret::random().map_err(no_randomness)?;
        let mut line = Zeroizing::new([b'\n'; 2 * RejectionSecret::LEN + 1]);
        let _ = base16ct::lower::encode(secret.as_bytes(), &mut *line); // the line has room for it
        // Another process may have been quicker; what counts is what can be read.
        let _ = write_private_once(&path, &*line);
    }
    match load::bytes(&path, Place::Own) {
        Ok((bytes, _)) => read(&bytes)
            .ok_or(RingError::Malformed { path, why: MalformedError("not 64 hexadecimal digits and a line feed") }),
        Err(RingError::Io { .. }) => RejectionSecret::of_this_process().map_err(no_randomness),
        Err(error) => Err(error),
    }
}

fn read(text: &[u8]) -> Option<RejectionSecret> {
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    let mut secret = Zeroizing::new([0; RejectionSecret::LEN]);
    if digits.len() != 2 * secret.len() {
        return None;
    }
    base16ct::lower::decode(digits, &mut *secret).ok()?;
    Some(RejectionSecret::new(secret))
}
