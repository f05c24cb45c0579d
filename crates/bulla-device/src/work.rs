//! What a device is asked to do, and what it answers.

use std::fmt;
use std::time::Instant;

use zeroize::Zeroizing;

use crate::device::DeviceError;
use crate::digest::{Digest, Hash};
use crate::key::PrivateKey;

/// One private-key operation.
#[derive(Debug, Clone)]
pub enum Work {
    /// An RSA signature over a finished hash (RFC 8017, 8.1 and 8.2).
    RsaSign {
        /// The padding.
        scheme: RsaScheme,
        /// The digest that made the hash; for PSS also MGF1's, and its length is the salt's.
        digest: Digest,
        /// What is signed.
        hash: Hash,
    },
    /// An ECDSA signature over a finished hash; the output is the DER of `ECDSA-Sig-Value`.
    EcdsaSign {
        /// What is signed.
        hash: Hash,
    },
    /// The content key out of an RSA key transport. A wrong padding or length is *no error*: the
    /// output is then a random key of the expected length, so that nobody learns which it was
    /// (RFC 3218).
    RsaUnwrap {
        /// The padding.
        padding: RsaPadding,
        /// The wrapped key as it arrived.
        wrapped: Vec<u8>,
        /// Bytes that the key must have.
        expected_len: usize,
    },
    /// The shared secret with an ephemeral public key (X coordinate, RFC 5753).
    EcdhDerive {
        /// The peer's point, uncompressed, on this key's curve. A point that is not on the curve is
        /// answered like a failed unwrap: with random bytes.
        peer: Vec<u8>,
    },
}

/// The padding of an RSA signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RsaScheme {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
    /// RSASSA-PSS.
    Pss,
}

/// The padding of an RSA key transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RsaPadding {
    /// RSAES-OAEP with an empty label; the digest is also MGF1's.
    Oaep {
        /// The digest.
        digest: Digest,
    },
    /// RSAES-PKCS1-v1_5.
    Pkcs1,
}

/// Work together with the key that it needs.
#[derive(Debug)]
pub struct Job {
    /// The caller's number; comes back in [`Finished`].
    pub id: u64,
    /// The key.
    pub key: PrivateKey,
    /// The operation.
    pub work: Work,
    /// When nobody will want the result any more.
    pub deadline: Option<Instant>,
}

/// The end of a job.
#[derive(Debug)]
pub struct Finished {
    /// The number given in [`Job`].
    pub id: u64,
    /// The result.
    pub result: Result<Output, DeviceError>,
}

/// The bytes that an operation gave: a signature or a secret. Zeroized when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Output(Zeroizing<Vec<u8>>);

impl Output {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Output {
        Output(Zeroizing::new(bytes))
    }
}

impl std::ops::Deref for Output {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Shows the length only: the bytes may be a secret.
impl fmt::Debug for Output {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Output({} bytes)", self.0.len())
    }
}
