//! Revocation lists (RFC 5280 section 5).

use std::fmt;
use std::sync::Mutex;
use std::time::SystemTime;

use openssl::x509::{CrlStatus, X509Crl, X509KeyUsage};

use super::Ring;
use crate::certificate::{Certificate, CertificateError, MalformedError, time, tlv};
use crate::dn::Dn;

/// Keys for which a list remembers whether they signed it.
const SIGNERS_REMEMBERED_MAX: usize = 8;

/// A complete revocation list of one authority.
pub struct Crl {
    crl: X509Crl,
    issuer: Dn,
    this_update: SystemTime,
    next_update: SystemTime,
    /// Public keys that were tried, and whether the signature is theirs: a large list is hashed once, not at each question.
    signers: Mutex<Vec<([u8; 32], bool)>>,
}

impl Crl {
    /// A list from its DER.
    ///
    /// # Errors
    /// [`MalformedError`]; also for lists without nextUpdate, and for delta, indirect and partitioned lists: any
    /// critical extension means that the list does not simply hold all that its authority revoked.
    pub fn from_der(der: &[u8]) -> Result<Crl, MalformedError> {
        let critical = has_critical_extension(der).ok_or(MalformedError("CRL is not valid DER"))?;
        if critical {
            return Err(MalformedError("CRL with a critical extension: delta, indirect or partitioned"));
        }
        let crl = X509Crl::from_der(der).map_err(|_| MalformedError("not a CRL"))?;
        let unreadable = |_| MalformedError("CRL with an unreadable date");
        let next = crl.next_update().ok_or(MalformedError("CRL without nextUpdate"))?;
        Ok(Crl {
            issuer: Dn::from_x509_name(crl.issuer_name())
                .map_err(|_| MalformedError("CRL with an unreadable issuer"))?,
            this_update: time::from_asn1(crl.last_update()).map_err(unreadable)?,
            next_update: time::from_asn1(next).map_err(unreadable)?,
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

    /// Whether it names this certificate, whose issuer must be the list's.
    ///
    /// # Errors
    /// [`CertificateError::Revoked`].
    pub(crate) fn check(&self, certificate: &Certificate) -> Result<(), CertificateError> {
        match self.crl.get_by_serial(certificate.x509().serial_number()) {
            CrlStatus::NotRevoked => Ok(()),
            // `removeFromCRL` belongs into delta lists only: in a complete one it is a doubt, and doubt refuses.
            CrlStatus::Revoked(entry) | CrlStatus::RemoveFromCrl(entry) => Err(CertificateError::Revoked {
                dn: certificate.dn().clone(),
                serial: certificate.serial_hex(),
                since: time::from_asn1(entry.revocation_date()).ok(),
            }),
        }
    }

    fn signed_by(&self, issuer: &Certificate) -> bool {
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

impl Ring {
    /// The newest list that `issuer` signed, if the ring has lists in its name at all.
    ///
    /// # Errors
    /// Lists in its name of which none is signed by it, or the newest of which is not current: doubt refuses.
    pub(super) fn list_of(&self, issuer: &Certificate, now: SystemTime) -> Result<Option<&Crl>, CertificateError> {
        let mut named = self.crls.iter().filter(|list| list.issuer == *issuer.dn()).peekable();
        if named.peek().is_none() {
            return Ok(None);
        }
        let newest = named
            .filter(|list| list.signed_by(issuer))
            .max_by_key(|list| list.this_update)
            .ok_or_else(|| CertificateError::CrlUnverified { issuer: issuer.dn().clone() })?;
        if now < newest.this_update {
            return Err(CertificateError::CrlNotYetValid {
                issuer: issuer.dn().clone(),
                this_update: newest.this_update,
            });
        }
        if now >= newest.next_update {
            return Err(CertificateError::CrlStale { issuer: issuer.dn().clone(), next_update: newest.next_update });
        }
        Ok(Some(newest))
    }
}

/// Whether the list or one of its entries has a critical extension. `None`: not a CertificateList.
fn has_critical_extension(der: &[u8]) -> Option<bool> {
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
    let mut critical = false;
    if let Some(entries) = tlv::expect(&mut tbs, tlv::SEQUENCE) {
        let mut entries = entries.value;
        while !entries.is_empty() {
            let mut entry = tlv::expect(&mut entries, tlv::SEQUENCE)?.value;
            tlv::expect(&mut entry, tlv::INTEGER)?;
            time(&mut entry).then_some(())?;
            if let Some(extensions) = tlv::expect(&mut entry, tlv::SEQUENCE) {
                critical |= any_critical(extensions.value)?;
            }
        }
    }
    if let Some(explicit) = tlv::expect(&mut tbs, 0xa0) {
        critical |= any_critical(tlv::only(explicit.value, tlv::SEQUENCE)?.value)?;
    }
    tbs.is_empty().then_some(critical)
}

fn any_critical(mut extensions: &[u8]) -> Option<bool> {
    const BOOLEAN: u8 = 0x01;
    let mut critical = false;
    while !extensions.is_empty() {
        let mut extension = tlv::expect(&mut extensions, tlv::SEQUENCE)?.value;
        tlv::expect(&mut extension, tlv::OID)?;
        critical |= tlv::expect(&mut extension, BOOLEAN).is_some_and(|flag| flag.value != [0]);
    }
    Some(critical)
}
