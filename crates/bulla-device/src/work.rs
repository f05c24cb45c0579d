//! What a device is asked to do, and what it answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::device::DeviceError;
use crate::digest::{Digest, Hash};
use crate::key::{Key, KeyKind};

/// One operation with a key. The first five need a private key, the others a public one.
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
    /// RSA's private operation on a block that is padded already (RSASP1, RFC 8017, 5.2.1): for those who have a
    /// padding of their own, as a TLS handshake has.
    RsaPrivate {
        /// As long as the modulus, and smaller.
        block: Vec<u8>,
    },
    /// An ECDSA signature over a finished hash; the output is the DER of `ECDSA-Sig-Value`.
    EcdsaSign {
        /// What is signed.
        hash: Hash,
    },
    /// The content key out of an RSA key transport. A wrong padding or length is *no error*: the
    /// output is then another key of the expected length, so that a sender can't learn which it was
    /// (RFC 3218). It is random with OAEP; with PKCS#1 v1.5 it is the same for the same ciphertext
    /// and private key, on every device ([`RejectionSecret`](crate::RejectionSecret)).
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
    /// Whether an RSA signature is the key's. The output is empty; one that is not is
    /// [`DeviceError::BadSignature`].
    RsaVerify {
        /// The padding.
        scheme: RsaScheme,
        /// The digest that made the hash; for PSS also MGF1's, and its length is the salt's.
        digest: Digest,
        /// What was signed.
        hash: Hash,
        /// As it arrived.
        signature: Vec<u8>,
    },
    /// Whether an ECDSA signature is the key's. The output is empty; one that is not is
    /// [`DeviceError::BadSignature`].
    EcdsaVerify {
        /// What was signed.
        hash: Hash,
        /// `ECDSA-Sig-Value` as it arrived.
        signature: Vec<u8>,
    },
    /// A content key for an RSA recipient; the output is as long as the modulus.
    RsaWrap {
        /// The padding.
        padding: RsaPadding,
        /// What is wrapped.
        content_key: Output,
    },
    /// A key agreement with a recipient by a key pair made for this once (RFC 5753). The output is the
    /// new key's point, uncompressed, and behind it the shared secret ([`Curve::point_len`] and
    /// [`Curve::coordinate_len`] bytes).
    ///
    /// [`Curve::point_len`]: crate::Curve::point_len
    /// [`Curve::coordinate_len`]: crate::Curve::coordinate_len
    EcdhEphemeral,
    /// An ML-DSA signature over a whole message, with an empty context (FIPS 204, algorithm 2).
    MlDsaSign {
        /// What is signed.
        message: Vec<u8>,
    },
    /// Whether an ML-DSA signature is the key's. The output is empty; one that is not is
    /// [`DeviceError::BadSignature`].
    MlDsaVerify {
        /// What was signed.
        message: Vec<u8>,
        /// As it arrived.
        signature: Vec<u8>,
    },
    /// A new secret for the owner of an ML-KEM key (FIPS 203, algorithm 20). The output is the ciphertext, and behind
    /// it the secret ([`MlKem::ciphertext_len`](crate::MlKem::ciphertext_len) and
    /// [`ML_KEM_SECRET_BYTES`](crate::ML_KEM_SECRET_BYTES) bytes).
    MlKemEncapsulate,
    /// The secret in an ML-KEM ciphertext (FIPS 203, algorithm 21). One that was changed gives another secret, always
    /// the same; one of another length is answered with random bytes.
    MlKemDecapsulate {
        /// The ciphertext as it arrived.
        ciphertext: Vec<u8>,
    },
}

impl Work {
    /// Whether only the private half of a key can do it.
    pub fn needs_private_key(&self) -> bool {
        match self {
            Work::RsaSign { .. }
            | Work::RsaPrivate { .. }
            | Work::EcdsaSign { .. }
            | Work::RsaUnwrap { .. }
            | Work::EcdhDerive { .. }
            | Work::MlDsaSign { .. }
            | Work::MlKemDecapsulate { .. } => true,
            Work::RsaVerify { .. }
            | Work::EcdsaVerify { .. }
            | Work::RsaWrap { .. }
            | Work::EcdhEphemeral
            | Work::MlDsaVerify { .. }
            | Work::MlKemEncapsulate => false,
        }
    }

    /// Which operation it is.
    pub fn operation(&self) -> Operation {
        match self {
            // What it is for is a signature, and so it is counted.
            Work::RsaSign { .. } | Work::RsaPrivate { .. } => Operation::RsaSign,
            Work::EcdsaSign { .. } => Operation::EcdsaSign,
            Work::RsaUnwrap { .. } => Operation::RsaUnwrap,
            Work::EcdhDerive { .. } => Operation::EcdhDerive,
            Work::RsaVerify { .. } => Operation::RsaVerify,
            Work::EcdsaVerify { .. } => Operation::EcdsaVerify,
            Work::RsaWrap { .. } => Operation::RsaWrap,
            Work::EcdhEphemeral => Operation::EcdhEphemeral,
            Work::MlDsaSign { .. } => Operation::MlDsaSign,
            Work::MlDsaVerify { .. } => Operation::MlDsaVerify,
            Work::MlKemEncapsulate => Operation::MlKemEncapsulate,
            Work::MlKemDecapsulate { .. } => Operation::MlKemDecapsulate,
        }
    }
}

/// The operations that are told apart in meters and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// An RSA signature.
    RsaSign,
    /// An RSA key unwrap.
    RsaUnwrap,
    /// The check of an RSA signature.
    RsaVerify,
    /// An RSA key wrap.
    RsaWrap,
    /// An ECDSA signature.
    EcdsaSign,
    /// The check of an ECDSA signature.
    EcdsaVerify,
    /// An ECDH derivation with a long-lived key.
    EcdhDerive,
    /// A new key pair and an ECDH derivation with it.
    EcdhEphemeral,
    /// An ML-DSA signature.
    MlDsaSign,
    /// The check of an ML-DSA signature.
    MlDsaVerify,
    /// An ML-KEM secret for the owner of a key.
    MlKemEncapsulate,
    /// The secret in an ML-KEM ciphertext.
    MlKemDecapsulate,
}

impl Operation {
    /// Every operation.
    pub const ALL: &'static [Operation] = &[
        Operation::RsaSign,
        Operation::RsaUnwrap,
        Operation::RsaVerify,
        Operation::RsaWrap,
        Operation::EcdsaSign,
        Operation::EcdsaVerify,
        Operation::EcdhDerive,
        Operation::EcdhEphemeral,
        Operation::MlDsaSign,
        Operation::MlDsaVerify,
        Operation::MlKemEncapsulate,
        Operation::MlKemDecapsulate,
    ];

    /// The name in meters and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::RsaSign => "RSA-SIGN",
            Operation::RsaUnwrap => "RSA-UNWRAP",
            Operation::RsaVerify => "RSA-VERIFY",
            Operation::RsaWrap => "RSA-WRAP",
            Operation::EcdsaSign => "ECDSA-SIGN",
            Operation::EcdsaVerify => "ECDSA-VERIFY",
            Operation::EcdhDerive => "ECDH-DERIVE",
            Operation::EcdhEphemeral => "ECDH-EPHEMERAL",
            Operation::MlDsaSign => "ML-DSA-SIGN",
            Operation::MlDsaVerify => "ML-DSA-VERIFY",
            Operation::MlKemEncapsulate => "ML-KEM-ENCAPSULATE",
            Operation::MlKemDecapsulate => "ML-KEM-DECAPSULATE",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// What decides how long a job takes, and which jobs can share a call of a device with lanes: two
/// signatures and an unwrap with keys of one size are one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// The arithmetic.
    pub form: Form,
    /// Bits of the modulus or of the curve's field; the number in the name of an ML-DSA or ML-KEM parameter set.
    pub bits: u32,
}

/// The arithmetic of an operation. *ME* (modulus and exponent) and *CRT* (Chinese remainder theorem)
/// are what reports of crypto hardware call the two ways of RSA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// RSA with the primes: signatures and unwraps with the usual private key.
    RsaCrt,
    /// RSA with the private exponent, for keys that come without their primes.
    RsaMePrivate,
    /// RSA with the public exponent.
    RsaMe,
    /// An ECDSA signature.
    EcdsaSign,
    /// The check of an ECDSA signature.
    EcdsaVerify,
    /// A multiplication of another party's point.
    Ecdh,
    /// That, and a new key pair.
    EcdhEphemeral,
    /// An ML-DSA signature.
    MlDsaSign,
    /// The check of an ML-DSA signature.
    MlDsaVerify,
    /// An ML-KEM encapsulation.
    MlKemEncapsulate,
    /// An ML-KEM decapsulation.
    MlKemDecapsulate,
}

impl Form {
    /// The name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Form::RsaCrt => "RSA CRT",
            Form::RsaMePrivate => "RSA ME PRIVATE",
            Form::RsaMe => "RSA ME",
            Form::EcdsaSign => "ECDSA SIGN",
            Form::EcdsaVerify => "ECDSA VERIFY",
            Form::Ecdh => "ECDH",
            Form::EcdhEphemeral => "ECDH EPHEMERAL",
            Form::MlDsaSign => "ML-DSA SIGN",
            Form::MlDsaVerify => "ML-DSA VERIFY",
            Form::MlKemEncapsulate => "ML-KEM ENCAPSULATE",
            Form::MlKemDecapsulate => "ML-KEM DECAPSULATE",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
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

/// Work together with the key that it needs. A clone shares the work.
#[derive(Debug, Clone)]
pub struct Job {
    /// The caller's number; comes back in [`Finished`].
    pub id: u64,
    /// The key.
    pub key: Key,
    /// The operation.
    pub work: Arc<Work>,
    /// When the result is of no use any more.
    pub deadline: Option<Instant>,
    /// Who asks: a connection, say. Askers get their turns, whatever each of them has waiting.
    pub asker: Asker,
    /// Others are likely to ask the very same now: who hands jobs out may have it done once for all of them. To a
    /// device it says nothing.
    pub is_common: bool,
    /// What an answer to it gave before did not open. A device whose answers can't be checked shows first that it is
    /// well, because this answer decides what becomes of the message.
    pub is_in_doubt: bool,
}

impl Job {
    /// A job without an asker and without a deadline; its number is 0.
    pub fn new(key: impl Into<Key>, work: Work) -> Job {
        let (key, work) = (key.into(), Arc::new(work));
        Job { id: 0, key, work, deadline: None, asker: Asker::default(), is_common: false, is_in_doubt: false }
    }

    /// The same job, that others are likely to ask for, too.
    #[must_use]
    pub fn common(self) -> Job {
        Job { is_common: true, ..self }
    }

    /// What decides how long it takes and what it can share a call with.
    pub fn shape(&self) -> Shape {
        let form = match &*self.work {
            Work::RsaSign { .. } | Work::RsaPrivate { .. } | Work::RsaUnwrap { .. } => {
                if self.key.has_primes() {
                    Form::RsaCrt
                } else {
                    Form::RsaMePrivate
                }
            }
            Work::RsaVerify { .. } | Work::RsaWrap { .. } => Form::RsaMe,
            Work::EcdsaSign { .. } => Form::EcdsaSign,
            Work::EcdsaVerify { .. } => Form::EcdsaVerify,
            Work::EcdhDerive { .. } => Form::Ecdh,
            Work::EcdhEphemeral => Form::EcdhEphemeral,
            Work::MlDsaSign { .. } => Form::MlDsaSign,
            Work::MlDsaVerify { .. } => Form::MlDsaVerify,
            Work::MlKemEncapsulate => Form::MlKemEncapsulate,
            Work::MlKemDecapsulate { .. } => Form::MlKemDecapsulate,
        };
        Shape { form, bits: self.key.bits() }
    }

    /// Whether its result has no taker any more, and which error says so.
    pub fn is_over(&self, now: Instant) -> Option<DeviceError> {
        if self.asker.is_gone() {
            return Some(DeviceError::Cancelled);
        }
        self.deadline.is_some_and(|deadline| deadline < now).then_some(DeviceError::Deadline)
    }

    /// Whether the key fits the operation at all.
    ///
    /// # Errors
    /// [`DeviceError::WrongKey`].
    pub fn check_key(&self) -> Result<(), DeviceError> {
        let (fits, why) = match (&*self.work, self.key.kind()) {
            (Work::RsaSign { .. } | Work::RsaPrivate { .. } | Work::RsaVerify { .. }, kind) => {
                (kind == KeyKind::Rsa, "an RSA signature needs an RSA key")
            }
            (Work::RsaUnwrap { .. } | Work::RsaWrap { .. }, kind) => {
                (kind == KeyKind::Rsa, "an unwrap needs an RSA key")
            }
            (Work::EcdsaSign { .. } | Work::EcdsaVerify { .. }, kind) => {
                (matches!(kind, KeyKind::Ec(_)), "an ECDSA signature needs an EC key")
            }
            (Work::EcdhDerive { .. } | Work::EcdhEphemeral, kind) => {
                (matches!(kind, KeyKind::Ec(_)), "a key agreement needs an EC key")
            }
            (Work::MlDsaSign { .. } | Work::MlDsaVerify { .. }, kind) => {
                (matches!(kind, KeyKind::MlDsa(_)), "an ML-DSA signature needs an ML-DSA key")
            }
            (Work::MlKemEncapsulate | Work::MlKemDecapsulate { .. }, kind) => {
                (matches!(kind, KeyKind::MlKem(_)), "an encapsulated secret needs an ML-KEM key")
            }
        };
        if !fits {
            return Err(DeviceError::WrongKey { why });
        }
        if self.work.needs_private_key() && self.key.private().is_none() {
            return Err(DeviceError::WrongKey { why: "a private key is needed, this is a public one" });
        }
        Ok(())
    }
}

/// Who asks. Once it is gone, nothing is computed for it any more.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    number: u64,
    gone: Option<Arc<AtomicBool>>,
}

impl Asker {
    /// An asker of this number that is there.
    pub fn new(number: u64) -> Asker {
        Asker { number, gone: Some(Arc::default()) }
    }

    /// Tells one asker from the next; 0 means none in particular.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// From now on its jobs, the waiting ones too, end with [`DeviceError::Cancelled`].
    pub fn leave(&self) {
        if let Some(gone) = &self.gone {
            gone.store(true, Ordering::Release);
        }
    }

    /// Whether [`leave`](Self::leave) was called, on any clone.
    pub fn is_gone(&self) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.load(Ordering::Acquire))
    }
}

/// The end of a job.
#[derive(Debug)]
pub struct Finished {
    /// The number given in [`Job`].
    pub id: u64,
    /// The result.
    pub result: Result<Output, DeviceError>,
    /// How long an engine was busy with it, where the device knows better than a clock beside it: a
    /// modelled one does.
    pub service: Option<Duration>,
}

impl Finished {
    /// An end without a service time of its own.
    pub fn new(id: u64, result: Result<Output, DeviceError>) -> Finished {
        Finished { id, result, service: None }
    }
}

/// The bytes that an operation gave: a signature or a secret. Zeroized when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Output(Zeroizing<Vec<u8>>);

impl Output {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Output {
        Output(Zeroizing::new(bytes))
    }

    /// Of an operation that gives no bytes: a verification.
    pub fn none() -> Output {
        Output::new(Vec::new())
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
