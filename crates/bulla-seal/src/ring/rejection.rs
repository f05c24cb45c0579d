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
        let digits: Zeroizing<String> = Zeroizing::new(hex(secret.as_bytes()));
        // Another process may have been quicker; what counts is what can be read.
        let _ = write_private_once(&path, digits.as_bytes());
    }
    match load::bytes(&path, Place::Own) {
        Ok((bytes, _)) => read(&bytes)
            .ok_or(RingError::Malformed { path, why: MalformedError("not 64 hexadecimal digits and a line feed") }),
        Err(RingError::Io { .. }) => RejectionSecret::of_this_process().map_err(no_randomness),
        Err(error) => Err(error),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.chain(['\n']).collect()
}

fn read(text: &[u8]) -> Option<RejectionSecret> {
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    let mut secret = Zeroizing::new([0; RejectionSecret::LEN]);
    if digits.len() != 2 * secret.len() {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let (Some(high), Some(low)) = (pair.first().copied().and_then(value), pair.last().copied().and_then(value))
        else {
            return None;
        };
        *byte = high << 4 | low;
    }
    Some(RejectionSecret::new(secret))
}
