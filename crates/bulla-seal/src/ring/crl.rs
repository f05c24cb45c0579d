//! Revocation lists (RFC 5280 section 5).

use std::fmt;
use std::sync::Mutex;
use std::time::SystemTime;

use openssl::x509::{CrlStatus, X509Crl, X509KeyUsage};

use crate::certificate::{Certificate, CertificateError, MalformedError, time, tlv};
use crate::dn::Dn;

/// Keys for which a list remembers whether they signed it.
const SIGNERS_REMEMBERED_MAX: usize = 8;

/// A revocation list.
pub struct Crl {
    crl: X509Crl,
    issuer: Dn,
    kind: Kind,
    this_update: SystemTime,
    next_update: SystemTime,
    /// Public keys that were tried, and whether the signature is theirs: a large list is hashed once, not at each
    /// question.
    signers: Mutex<Vec<([u8; 32], bool)>>,
}

impl Crl {
    /// A list from its DER.
    ///
    /// # Errors
    /// [`MalformedError`]; also for lists without nextUpdate.
    pub fn from_der(der: &[u8]) -> Result<Crl, MalformedError> {
        let kind = Kind::of(der).ok_or(MalformedError("CRL is not valid DER"))?;
        let crl = X509Crl::from_der(der).map_err(|_| MalformedError("not a CRL"))?;
        let unreadable = |_| MalformedError("CRL with an unreadable date");
        let next = crl.next_update().ok_or(MalformedError("CRL without nextUpdate"))?;
        Ok(Crl {
            issuer: Dn::from_x509_name(crl.issuer_name())
                .map_err(|_| MalformedError("CRL with an unreadable issuer"))?,
            this_update: time::from_asn1(crl.last_update()).map_err(unreadable)?,
            next_update: time::from_asn1(next).map_err(unreadable)?,
            kind,
            crl,
            signers: Mutex::new(Vec::new()),
        })
    }

    /// The lists of a file: DER, or PEM with one or more.
    ///
    /// # Errors
    /// As [`Crl::from_der`].
    pub fn all_from(bytes: &[u8]) -> Result<Vec<Crl>, MalformedError> {
        const BEGIN: &[u8] = b"-----BEGIN X509 CRL-----";
        if bytes.first() == Some(&tlv::SEQUENCE) {
            return Ok(vec![Crl::from_der(bytes)?]);
        }
        let mut lists = Vec::new();
        let mut rest = bytes;
        while let Some(at) = rest.windows(BEGIN.len()).position(|window| window == BEGIN) {
            let block = rest.get(at..).unwrap_or_default();
            let list = X509Crl::from_pem(block).map_err(|_| MalformedError("broken PEM CRL"))?;
            let der = list.to_der().map_err(|_| MalformedError("CRL that cannot be encoded"))?;
            lists.push(Crl::from_der(&der)?);
            rest = block.get(BEGIN.len()..).unwrap_or_default();
        }
        if lists.is_empty() { Err(MalformedError("no CRL in the file")) } else { Ok(lists) }
    }

    /// The authority in whose name it is.
    pub fn issuer(&self) -> &Dn {
        &self.issuer
    }

    /// When it was made.
    pub fn this_update(&self) -> SystemTime {
        self.this_update
    }

    /// When it must have been replaced: the first moment at which it no longer counts.
    pub fn next_update(&self) -> SystemTime {
        self.next_update
    }

    /// How many certificates it names.
    pub fn len(&self) -> usize {
        self.crl.get_revoked().map_or(0, |revoked| revoked.len())
    }

    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// OpenSSL's object.
    pub(super) fn x509(&self) -> &X509Crl {
        &self.crl
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn is_current(&self, now: SystemTime) -> bool {
        self.this_update <= now && now < self.next_update
    }

    /// Whether it is in the name of the authority that issued this certificate. Names compare as RFC 5280 has it,
    /// without regard to case and spaces.
    pub(super) fn is_of_issuer(&self, certificate: &Certificate) -> bool {
        let name = certificate.x509().issuer_name();
        self.crl.issuer_name().try_cmp(name).is_ok_and(|order| order.is_eq())
    }

    /// Whether it is in the name of this certificate's holder.
    pub(super) fn is_named_as(&self, certificate: &Certificate) -> bool {
        let name = certificate.x509().subject_name();
        self.crl.issuer_name().try_cmp(name).is_ok_and(|order| order.is_eq())
    }

    /// Since when the certificate is revoked, if this list names it.
    pub(super) fn entry(&self, certificate: &Certificate) -> Option<Option<SystemTime>> {
        match self.crl.get_by_cert(certificate.x509()) {
            // `removeFromCRL` belongs into delta lists only: elsewhere it is a doubt, and doubt refuses.
            CrlStatus::RemoveFromCrl(_) if self.kind == Kind::Special => None,
            CrlStatus::Revoked(entry) | CrlStatus::RemoveFromCrl(entry) => {
                Some(time::from_asn1(entry.revocation_date()).ok())
            }
            CrlStatus::NotRevoked => None,
        }
    }

    /// Whether it names this certificate.
    ///
    /// # Errors
    /// [`CertificateError::Revoked`].
    pub(super) fn check(&self, certificate: &Certificate) -> Result<(), CertificateError> {
        match self.entry(certificate) {
            None => Ok(()),
            Some(since) => {
                Err(CertificateError::Revoked { dn: certificate.dn().clone(), serial: certificate.serial_hex(), since })
            }
        }
    }

    pub(super) fn signed_by(&self, issuer: &Certificate) -> bool {
        let may_sign = issuer.key_usage().is_none_or(|bits| bits.contains(X509KeyUsage::CRL_SIGN));
        if !may_sign {
            return false;
        }
        let Ok(mut signers) = self.signers.lock() else {
            return false;
        };
        if let Some((_, good)) = signers.iter().find(|(key, _)| key == issuer.spki_sha256()) {
            return *good;
        }
        let good = self.crl.verify(issuer.public_key()).unwrap_or(false);
        if signers.len() < SIGNERS_REMEMBERED_MAX {
            signers.push((*issuer.spki_sha256(), good));
        }
        good
    }
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crl({}, {} revoked)", self.issuer, self.len())
    }
}

/// What a list tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All that its authority revoked.
    Complete,
    /// It has a critical extension: a part of it, changes since another list, or something unknown.
    Special,
    /// Certificates of other authorities too.
    Indirect,
}

impl Kind {
    /// `None`: not a CertificateList.
    fn of(der: &[u8]) -> Option<Kind> {
        const UTC_TIME: u8 = 0x17;
        const GENERALIZED_TIME: u8 = 0x18;
        let time =
            |input: &mut &[u8]| tlv::expect(input, UTC_TIME).or_else(|| tlv::expect(input, GENERALIZED_TIME)).is_some();
        let mut list = tlv::only(der, tlv::SEQUENCE)?.value;
        let mut tbs = tlv::expect(&mut list, tlv::SEQUENCE)?.value;
        let _version = tlv::expect(&mut tbs, tlv::INTEGER);
        tlv::expect(&mut tbs, tlv::SEQUENCE)?; // signature
        tlv::expect(&mut tbs, tlv::SEQUENCE)?; // issuer
        time(&mut tbs).then_some(())?;
        time(&mut tbs); // nextUpdate
        let mut kind = Kind::Complete;
        if let Some(entries) = tlv::expect(&mut tbs, tlv::SEQUENCE) {
            let mut entries = entries.value;
            while !entries.is_empty() {
                let mut entry = tlv::expect(&mut entries, tlv::SEQUENCE)?.value;
                tlv::expect(&mut entry, tlv::INTEGER)?;
                time(&mut entry).then_some(())?;
                if let Some(extensions) = tlv::expect(&mut entry, tlv::SEQUENCE) {
                    kind = kind.with(extensions.value)?;
                }
            }
        }
        if let Some(explicit) = tlv::expect(&mut tbs, 0xa0) {
            kind = kind.with(tlv::only(explicit.value, tlv::SEQUENCE)?.value)?;
        }
        tbs.is_empty().then_some(kind)
    }

    /// What it is with these extensions.
    fn with(mut self, mut extensions: &[u8]) -> Option<Kind> {
        const BOOLEAN: u8 = 0x01;
        const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 0x1c];
        while !extensions.is_empty() {
            let mut extension = tlv::expect(&mut extensions, tlv::SEQUENCE)?.value;
            let oid = tlv::expect(&mut extension, tlv::OID)?.value;
            let critical = tlv::expect(&mut extension, BOOLEAN).is_some_and(|flag| flag.value != [0]);
            let point = oid == ISSUING_DISTRIBUTION_POINT;
            if point && is_indirect(tlv::expect(&mut extension, tlv::OCTET_STRING)?.value)? {
                self = Kind::Indirect;
            } else if (point || critical) && self == Kind::Complete {
                self = Kind::Special;
            }
        }
        Some(self)
    }
}

/// Whether an IssuingDistributionPoint says `indirectCRL`.
fn is_indirect(point: &[u8]) -> Option<bool> {
    const INDIRECT: u8 = 0x84;
    let mut fields = tlv::only(point, tlv::SEQUENCE)?.value;
    let mut indirect = false;
    while !fields.is_empty() {
        let field = tlv::next(&mut fields)?;
        indirect |= field.tag == INDIRECT && field.value != [0];
    }
    Some(indirect)
}
