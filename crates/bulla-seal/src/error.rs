//! Why a message was not sealed, or did not open, and what becomes of it.

use std::fmt;

use bulla_device::{DeviceError, Digest, MlDsa, RandomError};

use crate::certificate::{CertificateError, KeyKind};
use crate::dn::Dn;
use crate::policy::{PolicyError, Pqc, Quality};

/// MQRC_SECURITY_ERROR.
pub const MQRC_SECURITY_ERROR: u32 = 2063;
/// MQRC_MSG_TOO_BIG_FOR_Q.
pub const MQRC_MSG_TOO_BIG_FOR_Q: u32 = 2030;

/// Why a message was not sealed. Nothing is queued.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The administrator's turn: the policy can never be satisfied.
    Policy(PolicyError),
    /// The ring owner's turn: a certificate that is needed is missing or no good.
    Certificate(CertificateError),
    /// The administrator's turn: a recipient's key cannot be used as KEYWRAP says.
    RecipientKey {
        /// Whose key.
        dn: Dn,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The administrator's turn: RSA-PSS with this digest does not fit into the signer's key, or the digest is weaker
    /// than an ML-DSA signature (RFC 9882, table 1).
    SignatureDoesNotFit {
        /// The kind of the signer's key.
        kind: KeyKind,
        /// Bits of the signer's modulus, or the number in the name of its parameter set.
        bits: u32,
        /// The policy's digest.
        digest: Digest,
    },
    /// The ring owner's turn, or the administrator's: the signer's keys are all of kinds that PQC does not allow.
    SignerOfOtherKind {
        /// The name of one.
        dn: Dn,
        /// What the policy says.
        pqc: Pqc,
    },
    /// The application's turn: under SEALEDAT(CLIENT) the queue manager does not seal.
    ClientMustSeal,
    /// The policy asks for no protection: there is nothing to seal.
    NothingToSeal,
    /// The sender's turn: something that is to be bound is longer than its limit.
    TooLong {
        /// What.
        what: &'static str,
        /// Bytes it has.
        len: usize,
        /// Bytes it may have.
        max: usize,
    },
    /// The application's turn: the sealed message would be longer than the queue allows.
    MessageTooLong {
        /// Bytes that the sealed message would have.
        len: usize,
        /// Bytes that it may have.
        max: usize,
    },
    /// The operator's turn: the key's device is away or faulty.
    Key(DeviceError),
    /// The operator's turn: a device answered with more or fewer bytes than the operation has.
    AnswerLength {
        /// Bytes it answered with.
        len: usize,
    },
    /// The operator's turn: no random bytes.
    Random(RandomError),
    /// The library refused; its own words.
    Library {
        /// OpenSSL's error text.
        text: String,
    },
}

impl SealError {
    /// The stable word for the wire and the log.
    pub fn cause(&self) -> &'static str {
        match self {
            SealError::Policy(_) | SealError::NothingToSeal => "policy",
            SealError::Certificate(error) => error.cause(),
            SealError::RecipientKey { .. } => "recipient-key",
            SealError::SignatureDoesNotFit { .. } => "signature-does-not-fit",
            SealError::SignerOfOtherKind { .. } => "signer-key",
            SealError::ClientMustSeal => "sealed-at-client",
            SealError::TooLong { .. } => "binding-too-long",
            SealError::MessageTooLong { .. } => "too-long",
            SealError::Key(_) | SealError::AnswerLength { .. } | SealError::Random(_) | SealError::Library { .. } => {
                "key-unavailable"
            }
        }
    }

    /// MQ's reason code: 2030 for length, else 2063.
    pub fn reason_code(&self) -> u32 {
        match self {
            SealError::MessageTooLong { .. } => MQRC_MSG_TOO_BIG_FOR_Q,
            _ => MQRC_SECURITY_ERROR,
        }
    }
}

impl std::error::Error for SealError {}

impl fmt::Display for SealError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SealError::Policy(error) => write!(out, "the policy cannot be satisfied: {error}"),
            SealError::Certificate(error) => error.fmt(out),
            SealError::RecipientKey { dn, why } => write!(out, "recipient dn=\"{dn}\": {why}"),
            SealError::SignatureDoesNotFit { kind: KeyKind::MlDsa(set), digest, .. } => {
                let takes = if *set == MlDsa::MlDsa65 { "SHA384 or SHA512" } else { "SHA512" };
                write!(out, "SIGNALG({digest}) is weaker than a signature with {set}; it takes {takes}")
            }
            SealError::SignatureDoesNotFit { bits, .. } => {
                write!(out, "SIGNPAD(PSS) with this SIGNALG does not fit into an RSA key of {bits} bits")
            }
            SealError::SignerOfOtherKind { dn, pqc } => {
                let wants = if *pqc == Pqc::Required { "an ML-DSA key" } else { "an RSA or EC key, or PQC(ALLOWED)" };
                write!(out, "no key of dn=\"{dn}\" signs under PQC({pqc}): it takes {wants}")
            }
            SealError::ClientMustSeal => {
                out.write_str("SEALEDAT(CLIENT): the application must seal this message itself")
            }
            SealError::NothingToSeal => out.write_str("the policy asks for no protection"),
            SealError::TooLong { what, len, max } => {
                write!(out, "{what} has {len} bytes, more than the {max} that can be bound")
            }
            SealError::MessageTooLong { len, max } => {
                write!(out, "the sealed message would have {len} bytes, more than the {max} allowed")
            }
            SealError::Key(error) => error.fmt(out),
            SealError::AnswerLength { len } => write!(out, "a device answered with {len} bytes, which cannot be right"),
            SealError::Random(error) => error.fmt(out),
            SealError::Library { text } => write!(out, "cryptographic library: {text}"),
        }
    }
}

impl From<PolicyError> for SealError {
    fn from(error: PolicyError) -> SealError {
        SealError::Policy(error)
    }
}

impl From<CertificateError> for SealError {
    fn from(error: CertificateError) -> SealError {
        SealError::Certificate(error)
    }
}

impl From<RandomError> for SealError {
    fn from(error: RandomError) -> SealError {
        SealError::Random(error)
    }
}

impl From<openssl::error::ErrorStack> for SealError {
    fn from(errors: openssl::error::ErrorStack) -> SealError {
        SealError::Library { text: errors.to_string() }
    }
}

/// What becomes of a message that did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is for other readers: this reader does not see it, the others do.
    NotMine,
    /// It goes to the error queue.
    Defective,
    /// It stays: what is missing may come back.
    Retry,
}

/// Why a message did not open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Not a sealed message at all.
    NotSealed,
    /// Not the CMS of this profile; nothing was believed or decrypted.
    Malformed {
        /// The first thing that was wrong.
        what: &'static str,
    },
    /// Well-formed, but another protection than the policy's.
    WeakerThanPolicy {
        /// What differs, the policy's wish included.
        what: &'static str,
    },
    /// The policy wants a signature and there is none.
    Unsigned,
    /// No key of this identity is among the recipients.
    NotARecipient,
    /// Unwrap, padding or tag failed, or what a CBC envelope held was unreadable: one cause, because
    /// telling them apart would help an attacker who probes.
    CannotDecrypt,
    /// A signature, a digest or a bound value does not fit.
    Tampered {
        /// What does not fit.
        what: &'static str,
    },
    /// The signature is good, but its signer is not on the policy's list.
    SignerNotAuthorised {
        /// Who signed.
        dn: Dn,
    },
    /// The signer's certificate is not good.
    Certificate(CertificateError),
    /// Sealed for another queue or another message id.
    Moved {
        /// Where the seal says that it belongs.
        destination: String,
    },
    /// It carries no binding attributes and the policy says BIND(REQUIRED).
    Unbound,
    /// The administrator's turn: nothing is opened by this policy with this ring.
    Policy(PolicyError),
    /// The operator's turn: the key's device is away or faulty.
    Key(DeviceError),
    /// The library refused; its own words.
    Library {
        /// OpenSSL's error text.
        text: String,
    },
}

impl OpenError {
    /// The stable word for the wire, the log and the header in the error queue.
    pub fn cause(&self) -> &'static str {
        match self {
            OpenError::NotSealed => "not-sealed",
            OpenError::Malformed { .. } => "malformed",
            OpenError::WeakerThanPolicy { .. } => "weaker-than-policy",
            OpenError::Unsigned => "unsigned",
            OpenError::NotARecipient => "not-a-recipient",
            OpenError::CannotDecrypt => "cannot-decrypt",
            OpenError::Tampered { .. } => "tampered",
            OpenError::SignerNotAuthorised { .. } => "signer-not-authorised",
            OpenError::Certificate(error) => error.cause(),
            OpenError::Moved { .. } => "moved",
            OpenError::Unbound => "unbound",
            OpenError::Policy(_) => "policy",
            OpenError::Key(_) | OpenError::Library { .. } => "key-unavailable",
        }
    }

    /// What becomes of the message.
    pub fn outcome(&self) -> Outcome {
        match self {
            OpenError::NotARecipient => Outcome::NotMine,
            OpenError::Key(_) | OpenError::Library { .. } | OpenError::Policy(_) => Outcome::Retry,
            OpenError::Certificate(error) if error.is_passing() => Outcome::Retry,
            _ => Outcome::Defective,
        }
    }

    /// MQ's reason code, always 2063.
    pub fn reason_code(&self) -> u32 {
        MQRC_SECURITY_ERROR
    }

    /// Whether a wrong answer of a device can have led to this verdict: a signature that it called bad, a
    /// content key or a shared secret that it got wrong. Such a verdict that came from any device but the
    /// CPU is computed again before the message is moved: [`Opener::open`](crate::Opener::open) is asked
    /// once more, and each of its jobs is given to the CPU (a token's key: to the token once more). If the
    /// second opening ends otherwise, the device was wrong.
    ///
    /// Everything else is found out without a device, or only behind a tag or a signature that was good.
    pub fn may_be_the_device(&self) -> bool {
        matches!(self, OpenError::CannotDecrypt | OpenError::Tampered { .. })
    }
}

impl std::error::Error for OpenError {}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotSealed => out.write_str("the message is not sealed"),
            OpenError::Malformed { what } => write!(out, "not a sealed message of this profile: {what}"),
            OpenError::WeakerThanPolicy { what } => {
                write!(out, "not protected as the policy asks: {what}")
            }
            OpenError::Unsigned => out.write_str("the policy asks for a signature and there is none"),
            OpenError::NotARecipient => out.write_str("no key of this identity is among the recipients"),
            OpenError::CannotDecrypt => out.write_str("the message cannot be decrypted"),
            OpenError::Tampered { what } => write!(out, "the message was changed: {what} does not fit"),
            OpenError::SignerNotAuthorised { dn } => {
                write!(out, "the policy does not list the signer dn=\"{dn}\"")
            }
            OpenError::Certificate(error) => error.fmt(out),
            OpenError::Moved { destination } => {
                write!(out, "the message was sealed for another place: destination=\"{destination}\"")
            }
            OpenError::Unbound => out.write_str("the message is bound to no place and the policy says BIND(REQUIRED)"),
            OpenError::Policy(error) => write!(out, "the policy cannot be satisfied: {error}"),
            OpenError::Key(error) => error.fmt(out),
            OpenError::Library { text } => write!(out, "cryptographic library: {text}"),
        }
    }
}

impl From<CertificateError> for OpenError {
    fn from(error: CertificateError) -> OpenError {
        OpenError::Certificate(error)
    }
}

impl From<openssl::error::ErrorStack> for OpenError {
    fn from(errors: openssl::error::ErrorStack) -> OpenError {
        OpenError::Library { text: errors.to_string() }
    }
}

/// Where a policy and a message disagree about the quality.
pub(crate) fn other_quality(wanted: Quality) -> OpenError {
    let what = match wanted {
        Quality::None => "the policy asks for no protection at all",
        Quality::Integrity => "the policy asks for integrity, a signature and no encryption",
        Quality::Privacy => "the policy asks for privacy, a signature inside an envelope",
        Quality::Confidentiality => "the policy asks for confidentiality, an envelope and no signature",
    };
    OpenError::WeakerThanPolicy { what }
}
