//! The three digests of the profile.

use std::fmt;
use std::str::FromStr;

use openssl::hash::MessageDigest;
use openssl::md::{Md, MdRef};
use openssl::sha::{Sha256, Sha384, Sha512};

/// A digest algorithm; the text form is MQSC's (`SHA256`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Digest {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Digest {
    /// Every digest, weakest first.
    pub const ALL: &'static [Digest] = &[Digest::Sha256, Digest::Sha384, Digest::Sha512];

    /// Bytes of a hash.
    pub const fn hash_len(self) -> usize {
        match self {
            Digest::Sha256 => 32,
            Digest::Sha384 => 48,
            Digest::Sha512 => 64,
        }
    }

    /// MQSC's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Digest::Sha256 => "SHA256",
            Digest::Sha384 => "SHA384",
            Digest::Sha512 => "SHA512",
        }
    }

    /// The hash of `data`. The direct functions are used: fetching an algorithm by name costs more
    /// than hashing two kilobytes.
    pub fn hash(self, data: &[u8]) -> Hash {
        self.hash_parts(&[data])
    }

    /// The hash of several parts, as if they were one.
    pub fn hash_parts(self, parts: &[&[u8]]) -> Hash {
        let mut hash = Hash { bytes: [0; Hash::LEN_MAX], len: self.hash_len() };
        match self {
            Digest::Sha256 => {
                let mut hasher = Sha256::new();
                parts.iter().for_each(|part| hasher.update(part));
                hash.bytes[..32].copy_from_slice(&hasher.finish());
            }
            Digest::Sha384 => {
                let mut hasher = Sha384::new();
                parts.iter().for_each(|part| hasher.update(part));
                hash.bytes[..48].copy_from_slice(&hasher.finish());
            }
            Digest::Sha512 => {
                let mut hasher = Sha512::new();
                parts.iter().for_each(|part| hasher.update(part));
                hash.bytes.copy_from_slice(&hasher.finish());
            }
        }
        hash
    }

    /// The DER of `DigestInfo` up to the hash: what stands in front of it in a PKCS#1 v1.5 signature (RFC 8017, 9.2,
    /// note 1).
    pub(crate) fn info(self) -> &'static [u8; 19] {
        match self {
            Digest::Sha256 => b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20",
            Digest::Sha384 => b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30",
            Digest::Sha512 => b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40",
        }
    }

    /// OpenSSL's handle for `Signer`-like interfaces.
    pub fn message_digest(self) -> MessageDigest {
        match self {
            Digest::Sha256 => MessageDigest::sha256(),
            Digest::Sha384 => MessageDigest::sha384(),
            Digest::Sha512 => MessageDigest::sha512(),
        }
    }

    /// OpenSSL's handle for key contexts.
    pub fn md(self) -> &'static MdRef {
        match self {
            Digest::Sha256 => Md::sha256(),
            Digest::Sha384 => Md::sha384(),
            Digest::Sha512 => Md::sha512(),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The word was no digest of the profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDigest(pub String);

impl std::error::Error for UnknownDigest {}

impl fmt::Display for UnknownDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SIGNALG has no value {}", self.0)
    }
}

impl FromStr for Digest {
    type Err = UnknownDigest;

    fn from_str(text: &str) -> Result<Digest, UnknownDigest> {
        Digest::ALL
            .iter()
            .copied()
            .find(|digest| digest.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownDigest(text.to_owned()))
    }
}

/// A hash of any of the digests, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash {
    bytes: [u8; Hash::LEN_MAX],
    len: usize,
}

impl Hash {
    /// Bytes of the longest hash.
    pub const LEN_MAX: usize = 64;

    /// A hash that the caller computed; nothing where it has not the length of one of the digests.
    pub fn from_bytes(bytes: &[u8]) -> Option<Hash> {
        let len = bytes.len();
        Digest::ALL.iter().find(|digest| digest.hash_len() == len)?;
        let mut hash = Hash { bytes: [0; Hash::LEN_MAX], len };
        hash.bytes[..len].copy_from_slice(bytes);
        Some(hash)
    }
}

impl std::ops::Deref for Hash {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // Invariant of this file: `len` is `Digest::hash_len`, which is at most `LEN_MAX`.
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashing_in_parts_equals_hashing_at_once_and_equals_openssl() {
        for digest in Digest::ALL {
            let whole = digest.hash(b"to the queue");
            assert_eq!(whole, digest.hash_parts(&[b"to ", b"the ", b"queue"]));
            let reference = openssl::hash::hash(digest.message_digest(), b"to the queue").unwrap();
            assert_eq!(&*whole, &*reference);
            assert_eq!(digest.to_string().parse::<Digest>().unwrap(), *digest);
        }
    }

    #[test]
    fn a_deprecated_digest_is_unknown() {
        assert_eq!("MD5".parse::<Digest>().unwrap_err().to_string(), "SIGNALG has no value MD5");
    }
}
