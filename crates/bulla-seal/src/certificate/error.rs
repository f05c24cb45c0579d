//! Why a certificate is not believed, or not one at all.

use std::fmt;
use std::time::SystemTime;

use super::{KeyKind, Usage, utc};
use crate::dn::Dn;

/// Bytes that are no certificate, CRL or key container. The sender's or writer's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedError(pub(crate) &'static str);

impl fmt::Display for MalformedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for MalformedError {}

/// Why a certificate may not be used for what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// The ring's owner's turn: put the certificate of this name into `people`.
    Unknown {
        /// The name looked for.
        dn: Dn,
    },
    /// The ring's owner's turn: put a certificate with its private key into `own`.
    NoOwnKey {
        /// The ring's user.
        user: String,
    },
    /// The certificate's owner's turn: renew it.
    Expired {
        /// Whose, possibly an authority on the path.
        dn: Dn,
        /// When it ended.
        not_after: SystemTime,
    },
    /// Too early, or a clock was set back.
    NotYetValid {
        /// Whose, possibly an authority on the path.
        dn: Dn,
        /// When it begins.
        not_before: SystemTime,
    },
    /// Its authority took it back.
    Revoked {
        /// Whose.
        dn: Dn,
        /// Its serial number in hexadecimal.
        serial: String,
        /// Since when, by the CRL.
        since: Option<SystemTime>,
    },
    /// The operator's turn: fetch the authority's new CRL. Until then nothing of this authority is believed.
    CrlStale {
        /// The authority.
        issuer: Dn,
        /// When the newest CRL ended.
        next_update: SystemTime,
    },
    /// The newest CRL begins in the future: a clock is wrong.
    CrlNotYetValid {
        /// The authority.
        issuer: Dn,
        /// When the newest CRL begins.
        this_update: SystemTime,
    },
    /// The operator's turn: the ring holds CRLs in this authority's name, none of them signed by it.
    CrlUnverified {
        /// The authority.
        issuer: Dn,
    },
    /// The operator's turn: a CRL about this authority's certificates has a critical extension that nothing here knows.
    CrlNotUnderstood {
        /// The authority.
        issuer: Dn,
    },
    /// The operator's turn: REVOCATION(REQUIRED), and no CRL in the ring is about this certificate.
    CrlMissing {
        /// Whose certificate.
        dn: Dn,
        /// Whose CRL would be asked.
        issuer: Dn,
    },
    /// No path leads to an authority in `trust`.
    Untrusted {
        /// Whose.
        dn: Dn,
        /// OpenSSL's reason.
        why: String,
    },
    /// Key usage, extended key usage or key type forbid it.
    Usage {
        /// Whose.
        dn: Dn,
        /// What was wanted.
        wanted: Usage,
        /// The kind of key it has.
        kind: KeyKind,
        /// Whether its extended key usage would have allowed it.
        purpose: bool,
    },
    /// An X.509-SVID was to be a recipient: it has ended before what is sealed for it is read.
    ShortLived {
        /// Whose.
        dn: Dn,
    },
    /// An RSA key under 1024 bits, or a signature on the path made with MD5 or SHA-1.
    WeakKey {
        /// Whose.
        dn: Dn,
        /// Size of its key.
        bits: u32,
    },
    /// A kind of key or a size that this program does not use.
    UnsupportedKey {
        /// Whose.
        dn: Dn,
        /// The kind.
        kind: KeyKind,
        /// The size in bits.
        bits: u32,
    },
    /// OpenSSL could not do its work at all (out of memory).
    Library {
        /// Its words.
        why: String,
    },
}

impl CertificateError {
    /// The cause that goes on the wire and into the log: kebab-case, stable.
    pub fn cause(&self) -> &'static str {
        match self {
            CertificateError::Unknown { .. } => "unknown-dn",
            CertificateError::NoOwnKey { .. } => "no-key",
            CertificateError::Expired { .. } => "certificate-expired",
            CertificateError::NotYetValid { .. } => "certificate-not-yet-valid",
            CertificateError::Revoked { .. } => "certificate-revoked",
            CertificateError::CrlStale { .. }
            | CertificateError::CrlNotYetValid { .. }
            | CertificateError::CrlUnverified { .. }
            | CertificateError::CrlNotUnderstood { .. } => "crl-stale",
            CertificateError::CrlMissing { .. } => "crl-missing",
            CertificateError::Untrusted { .. } => "untrusted",
            CertificateError::Usage { .. } | CertificateError::ShortLived { .. } => "certificate-usage",
            CertificateError::WeakKey { .. } => "weak-key",
            CertificateError::UnsupportedKey { .. } => "unsupported-key",
            CertificateError::Library { .. } => "key-unavailable",
        }
    }

    /// Whether waiting may mend it with the message as it is: then the message stays.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            CertificateError::CrlStale { .. }
                | CertificateError::CrlNotYetValid { .. }
                | CertificateError::CrlUnverified { .. }
                | CertificateError::CrlNotUnderstood { .. }
                | CertificateError::CrlMissing { .. }
                | CertificateError::Library { .. }
        )
    }
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateError::Unknown { dn } => {
                write!(f, "no certificate for dn={:?}", dn.as_str())
            }
            CertificateError::NoOwnKey { user } => {
                write!(f, "no private key in the ring of {user}")
            }
            CertificateError::Expired { dn, not_after } => {
                write!(f, "certificate of dn={:?} expired at {}", dn.as_str(), utc(*not_after))
            }
            CertificateError::NotYetValid { dn, not_before } => {
                write!(f, "certificate of dn={:?} is not valid before {}", dn.as_str(), utc(*not_before))
            }
            CertificateError::Revoked { dn, serial, since } => {
                write!(f, "certificate of dn={:?} serial={serial} is revoked", dn.as_str())?;
                since.map_or(Ok(()), |since| write!(f, " since {}", utc(since)))
            }
            CertificateError::CrlStale { issuer, next_update } => {
                write!(f, "newest CRL of dn={:?} ended at {}", issuer.as_str(), utc(*next_update))
            }
            CertificateError::CrlNotYetValid { issuer, this_update } => {
                write!(f, "newest CRL of dn={:?} begins at {}, in the future", issuer.as_str(), utc(*this_update))
            }
            CertificateError::CrlUnverified { issuer } => {
                write!(f, "no CRL of dn={:?} is signed by it", issuer.as_str())
            }
            CertificateError::CrlNotUnderstood { issuer } => {
                write!(f, "a CRL about certificates of dn={:?} has an unknown critical extension", issuer.as_str())
            }
            CertificateError::CrlMissing { dn, issuer } => write!(
                f,
                "REVOCATION(REQUIRED): no CRL about the certificate of dn={:?}, which dn={:?} issued",
                dn.as_str(),
                issuer.as_str()
            ),
            CertificateError::Untrusted { dn, why } => {
                write!(f, "no trusted path for dn={:?}: {why}", dn.as_str())
            }
            CertificateError::Usage { dn, wanted, kind, purpose } => {
                write!(f, "certificate of dn={:?} ({kind}) does not allow {wanted}", dn.as_str())?;
                if *purpose { Ok(()) } else { write!(f, ": extended key usage lacks {}", wanted.purpose_names()) }
            }
            CertificateError::ShortLived { dn } => {
                write!(f, "an SVID can't be a recipient of stored messages: dn={:?}", dn.as_str())
            }
            CertificateError::WeakKey { dn, bits } => {
                write!(f, "key ({bits} bits) or signature of dn={:?} is too weak", dn.as_str())
            }
            CertificateError::UnsupportedKey { dn, kind, bits } => {
                write!(f, "key of dn={:?} is not supported: {kind}, {bits} bits", dn.as_str())
            }
            CertificateError::Library { why } => write!(f, "certificate check failed: {why}"),
        }
    }
}

impl std::error::Error for CertificateError {}
