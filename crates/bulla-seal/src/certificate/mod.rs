//! X.509 certificates: what the seal needs to know of one, parsed once.
//!
//! [`Certificate`] is read-only and cheap to clone. Making them is the work of [`authority`] and
//! [`create`]; deciding whether to believe one is the work of [`crate::ring::Ring::verify`].

pub mod authority;
pub mod bundle;
pub mod create;
mod error;
mod key;
pub mod signing_key;
mod strength;
pub(crate) mod time;
pub(crate) mod tlv;
mod usage;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use openssl::pkey::{PKey, Public};
use openssl::sha::sha256;
use openssl::x509::{X509, X509KeyUsage};

use bulla_device::{MlDsa, MlKem, PublicKey, RSA_BITS_MAX, RSA_BITS_MIN};

use crate::dn::Dn;
use crate::oid;
use crate::spiffe_id::{self, Named};

pub use bulla_device::Curve;
pub use error::{CertificateError, MalformedError};
pub use key::{
    KeyError, KeySource, KeySpec, PASSPHRASE_BYTES_MAX, PBKDF2_ROUNDS, Passphrase, PrivateKeyPem, read_key_source,
    read_private_key,
};
pub use strength::Strength;
pub use time::{BadTime, utc, utc_time};
pub use usage::{KeyUse, Role, Usage, UseError};

/// The longest encoding of one certificate accepted, in bytes.
pub const CERTIFICATE_BYTES_MAX: usize = 64 << 10;
/// What kind of key a certificate carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// rsaEncryption.
    Rsa,
    /// A named NIST curve.
    Ec(Curve),
    /// ML-DSA (RFC 9881), which signs.
    MlDsa(MlDsa),
    /// ML-KEM (RFC 9935), which content keys are sent to.
    MlKem(MlKem),
    /// Anything else (DSA, Edwards curves, explicit curve parameters, RSASSA-PSS keys): readable, listed, never used.
    Other,
}

impl KeyKind {
    /// The kind of a key that devices take.
    pub fn of_device(kind: bulla_device::KeyKind) -> KeyKind {
        match kind {
            bulla_device::KeyKind::Rsa => KeyKind::Rsa,
            bulla_device::KeyKind::Ec(curve) => KeyKind::Ec(curve),
            bulla_device::KeyKind::MlDsa(set) => KeyKind::MlDsa(set),
            bulla_device::KeyKind::MlKem(set) => KeyKind::MlKem(set),
        }
    }

    /// Whether a quantum computer is not known to break it (FIPS 203 and 204).
    pub fn is_post_quantum(self) -> bool {
        matches!(self, KeyKind::MlDsa(_) | KeyKind::MlKem(_))
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::Rsa => f.write_str("RSA"),
            KeyKind::Ec(_) => f.write_str("NISTECC"),
            KeyKind::MlDsa(_) => f.write_str("ML-DSA"),
            KeyKind::MlKem(_) => f.write_str("ML-KEM"),
            KeyKind::Other => f.write_str("OTHER"),
        }
    }
}

/// An X.509 certificate and what the seal reads in it. Cloning copies a pointer.
#[derive(Clone)]
pub struct Certificate {
    inner: Arc<Inner>,
}

struct Inner {
    x509: X509,
    public_key: PKey<Public>,
    /// Made when a device first needs it; `None` in it: no device takes this key.
    device_key: OnceLock<Option<PublicKey>>,
    der: Vec<u8>,
    subject: Dn,
    name: Dn,
    issuer: Dn,
    issuer_der: Vec<u8>,
    serial_der: Vec<u8>,
    issuer_and_serial: Vec<u8>,
    spki_sha256: [u8; 32],
    fingerprint: [u8; 32],
    not_before: SystemTime,
    not_after: SystemTime,
    key_kind: KeyKind,
    key_bits: u32,
    authority: bool,
}

impl Certificate {
    /// A certificate from its DER, which must be exactly one certificate.
    ///
    /// # Errors
    /// [`MalformedError`] when OpenSSL, the strict walk over its fields, or a limit refuses it.
    pub fn from_der(der: &[u8]) -> Result<Certificate, MalformedError> {
        if der.len() > CERTIFICATE_BYTES_MAX {
            return Err(MalformedError("certificate over 64 KiB"));
        }
        let x509 = X509::from_der(der).map_err(|_| MalformedError("not an X.509 certificate"))?;
        Certificate::new(x509, der.to_vec())
    }

    /// A certificate that OpenSSL holds.
    ///
    /// # Errors
    /// As [`Certificate::from_der`].
    pub fn from_x509(x509: &openssl::x509::X509Ref) -> Result<Certificate, MalformedError> {
        let der = x509.to_der().map_err(|_| MalformedError("certificate that cannot be encoded"))?;
        Certificate::new(x509.to_owned(), der)
    }

    /// Every certificate of a PEM text, in its order; other blocks are passed over.
    ///
    /// # Errors
    /// [`MalformedError`] for a broken block, for more than `max` certificates, and for OpenSSL's `TRUSTED
    /// CERTIFICATE`, which carries trust settings of its own.
    pub fn all_from_pem(pem: &[u8], max: usize) -> Result<Vec<Certificate>, MalformedError> {
        const TRUSTED: &[u8] = b"-----BEGIN TRUSTED CERTIFICATE";
        if pem.windows(TRUSTED.len()).any(|window| window == TRUSTED) {
            return Err(MalformedError("certificate with OpenSSL's trust settings"));
        }
        let stack = X509::stack_from_pem(pem).map_err(|_| MalformedError("broken PEM certificate"))?;
        if stack.len() > max {
            return Err(MalformedError("too many certificates in one file"));
        }
        stack.iter().map(|x509| Certificate::from_x509(x509)).collect()
    }

    /// Certificates in DER, one after the other with nothing between.
    ///
    /// # Errors
    /// [`MalformedError`] for what is no certificate, and for more than `max` of them.
    pub fn all_from_der(mut der: &[u8], max: usize) -> Result<Vec<Certificate>, MalformedError> {
        let mut all = Vec::new();
        while !der.is_empty() {
            if all.len() >= max {
                return Err(MalformedError("too many certificates"));
            }
            let one = tlv::expect(&mut der, tlv::SEQUENCE).ok_or(MalformedError("no certificates in DER"))?;
            all.push(Certificate::from_der(one.whole)?);
        }
        Ok(all)
    }

    fn new(x509: X509, der: Vec<u8>) -> Result<Certificate, MalformedError> {
        if der.len() > CERTIFICATE_BYTES_MAX {
            return Err(MalformedError("certificate over 64 KiB"));
        }
        let fields = Fields::read(&der).ok_or(MalformedError("certificate is not valid DER"))?;
        let public_key = x509.public_key().map_err(|_| MalformedError("certificate without a readable public key"))?;
        let dn = |name| Dn::from_der(name).map_err(|_| MalformedError("certificate with an unreadable name"));
        let date = |date| time::from_asn1(date).map_err(|_| MalformedError("certificate with an unreadable date"));
        let subject = dn(fields.subject)?;
        let name = match fields.named {
            // Authorities are found by their subjects, and those of a trust domain may have its name.
            _ if fields.authority => subject.clone(),
            Named::BySubject => subject.clone(),
            Named::Process(id) => {
                Dn::of_signer(id).map_err(|_| MalformedError("certificate with an unreadable name"))?
            }
            Named::NoName => Dn::of_no_name(),
        };
        let inner = Inner {
            subject,
            name,
            issuer: dn(fields.issuer)?,
            issuer_der: fields.issuer.to_vec(),
            serial_der: fields.serial.to_vec(),
            issuer_and_serial: tlv::element(tlv::SEQUENCE, &[fields.issuer, fields.serial]),
            spki_sha256: sha256(fields.spki),
            fingerprint: sha256(&der),
            not_before: date(x509.not_before())?,
            not_after: date(x509.not_after())?,
            authority: fields.authority,
            key_kind: fields.key_kind,
            key_bits: match fields.key_kind {
                KeyKind::MlDsa(set) => set.number(),
                KeyKind::MlKem(set) => set.number(),
                KeyKind::Rsa | KeyKind::Ec(_) | KeyKind::Other => public_key.bits(),
            },
            public_key,
            device_key: OnceLock::new(),
            x509,
            der,
        };
        Ok(Certificate { inner: Arc::new(inner) })
    }

    /// The name that it goes by: its subject, or the SPIFFE ID of an X.509-SVID, which then never goes by its subject.
    pub fn dn(&self) -> &Dn {
        &self.inner.name
    }

    /// The subject's name, whatever it goes by.
    pub fn subject(&self) -> &Dn {
        &self.inner.subject
    }

    /// The issuer's name.
    pub fn issuer(&self) -> &Dn {
        &self.inner.issuer
    }

    /// DER of the issuer's Name, as it stands in the certificate.
    pub fn issuer_der(&self) -> &[u8] {
        &self.inner.issuer_der
    }

    /// DER of the serial number, a whole INTEGER.
    pub fn serial_der(&self) -> &[u8] {
        &self.inner.serial_der
    }

    /// The serial number in lower-case hexadecimal, as `openssl x509 -serial` shows it but for the case.
    pub fn serial_hex(&self) -> String {
        let value = tlv::only(&self.inner.serial_der, tlv::INTEGER).map_or(&[][..], |tlv| tlv.value);
        let unpadded = match value {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        base16ct::lower::encode_string(unpadded)
    }

    /// DER of IssuerAndSerialNumber (RFC 5652 section 10.2.4), by which a recipient or signer is named.
    pub fn issuer_and_serial(&self) -> &[u8] {
        &self.inner.issuer_and_serial
    }

    /// SHA-256 of the SubjectPublicKeyInfo as it stands in the certificate: the identity of the key.
    pub fn spki_sha256(&self) -> &[u8; 32] {
        &self.inner.spki_sha256
    }

    /// SHA-256 of the whole certificate.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.inner.fingerprint
    }

    /// Start of validity.
    pub fn not_before(&self) -> SystemTime {
        self.inner.not_before
    }

    /// End of validity: the first moment at which it is no longer believed.
    pub fn not_after(&self) -> SystemTime {
        self.inner.not_after
    }

    /// The kind of its key.
    pub fn key_kind(&self) -> KeyKind {
        self.inner.key_kind
    }

    /// The size of its key in bits; the number in the name of an ML-DSA or ML-KEM parameter set.
    pub fn key_bits(&self) -> u32 {
        self.inner.key_bits
    }

    /// The subjectKeyIdentifier extension, if there is one.
    pub fn subject_key_id(&self) -> Option<&[u8]> {
        self.inner.x509.subject_key_id().map(|id| id.as_slice())
    }

    /// The bits of the keyUsage extension; `None` when there is none, which allows everything.
    pub fn key_usage(&self) -> Option<X509KeyUsage> {
        self.inner.x509.key_usage()
    }

    /// Whether basicConstraints makes this an authority.
    pub fn is_authority(&self) -> bool {
        self.inner.authority
    }

    /// Whether keyUsage names the signing of revocation lists.
    pub fn signs_lists(&self) -> bool {
        self.key_usage().is_some_and(|bits| bits.contains(X509KeyUsage::CRL_SIGN))
    }

    /// The certificate's encoding.
    pub fn der(&self) -> &[u8] {
        &self.inner.der
    }

    /// The certificate as PEM.
    pub fn to_pem(&self) -> Vec<u8> {
        pem("CERTIFICATE", &self.inner.der)
    }

    /// OpenSSL's object.
    pub fn x509(&self) -> &X509 {
        &self.inner.x509
    }

    /// The public key, decoded once.
    pub fn public_key(&self) -> &PKey<Public> {
        &self.inner.public_key
    }

    /// The public key as devices take it, made once and shared by all clones; `None` for a kind, curve or size that
    /// they do not support.
    pub fn device_key(&self) -> Option<&PublicKey> {
        self.inner.device_key.get_or_init(|| PublicKey::new(&self.inner.public_key).ok()).as_ref()
    }

    /// Whether the key is of a kind and size that seals and opens: RSA of 1024 to 4096 bits, a NIST curve,
    /// ML-DSA or ML-KEM.
    ///
    /// # Errors
    /// [`CertificateError::WeakKey`] or [`CertificateError::UnsupportedKey`].
    pub fn check_key(&self) -> Result<(), CertificateError> {
        match self.key_kind() {
            KeyKind::Ec(_) | KeyKind::MlDsa(_) | KeyKind::MlKem(_) => Ok(()),
            KeyKind::Rsa if self.key_bits() < RSA_BITS_MIN => {
                Err(CertificateError::WeakKey { dn: self.dn().clone(), bits: self.key_bits() })
            }
            KeyKind::Rsa if self.key_bits() <= RSA_BITS_MAX => Ok(()),
            KeyKind::Rsa | KeyKind::Other => Err(CertificateError::UnsupportedKey {
                dn: self.dn().clone(),
                kind: self.key_kind(),
                bits: self.key_bits(),
            }),
        }
    }

    /// Whether `at` lies within the validity: from its first moment on, and before its last one, which is
    /// where OpenSSL draws the line.
    ///
    /// # Errors
    /// [`CertificateError::NotYetValid`] or [`CertificateError::Expired`].
    pub fn check_dates(&self, at: SystemTime) -> Result<(), CertificateError> {
        if at < self.not_before() {
            Err(CertificateError::NotYetValid { dn: self.dn().clone(), not_before: self.not_before() })
        } else if at >= self.not_after() {
            Err(CertificateError::Expired { dn: self.dn().clone(), not_after: self.not_after() })
        } else {
            Ok(())
        }
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        self.inner.fingerprint == other.inner.fingerprint
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({}, serial {})", self.dn(), self.serial_hex())
    }
}

/// PEM armour (RFC 7468) around an encoding.
pub(crate) fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let mut out = format!("-----BEGIN {label}-----\n").into_bytes();
    for line in openssl::base64::encode_block(der).as_bytes().chunks(64) {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
    out
}

/// The kind of key by the identifiers in a SubjectPublicKeyInfo. A curve that is spelled out in parameters could be
/// one of ours with another generator, so only a named one counts. ML-DSA and ML-KEM have no parameters (RFC 9881,
/// section 2; RFC 9935, section 3).
fn kind_of(algorithm: &[u8], parameters: &[u8]) -> KeyKind {
    const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    let mut rest = parameters;
    let curve = tlv::expect(&mut rest, tlv::OID).map(|curve| curve.value);
    let curve = curve.and_then(|oid| match oid {
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x01] => Some(Curve::P192),
        [0x2b, 0x81, 0x04, 0x00, 0x21] => Some(Curve::P224),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07] => Some(Curve::P256),
        [0x2b, 0x81, 0x04, 0x00, 0x22] => Some(Curve::P384),
        [0x2b, 0x81, 0x04, 0x00, 0x23] => Some(Curve::P521),
        _ => None,
    });
    match (algorithm, curve) {
        (RSA_ENCRYPTION, _) => KeyKind::Rsa,
        (EC_PUBLIC_KEY, Some(curve)) => KeyKind::Ec(curve),
        _ if !parameters.is_empty() => KeyKind::Other,
        (oid::ML_DSA_44, _) => KeyKind::MlDsa(MlDsa::MlDsa44),
        (oid::ML_DSA_65, _) => KeyKind::MlDsa(MlDsa::MlDsa65),
        (oid::ML_DSA_87, _) => KeyKind::MlDsa(MlDsa::MlDsa87),
        (oid::ML_KEM_512, _) => KeyKind::MlKem(MlKem::MlKem512),
        (oid::ML_KEM_768, _) => KeyKind::MlKem(MlKem::MlKem768),
        (oid::ML_KEM_1024, _) => KeyKind::MlKem(MlKem::MlKem1024),
        _ => KeyKind::Other,
    }
}

/// The parts of a TBSCertificate (RFC 5280 section 4.1) that are used as the bytes they arrived in.
struct Fields<'a> {
    serial: &'a [u8],
    issuer: &'a [u8],
    subject: &'a [u8],
    spki: &'a [u8],
    key_kind: KeyKind,
    authority: bool,
    named: Named<'a>,
}

impl<'a> Fields<'a> {
    fn read(der: &'a [u8]) -> Option<Fields<'a>> {
        let mut certificate = tlv::only(der, tlv::SEQUENCE)?.value;
        let mut tbs = tlv::expect(&mut certificate, tlv::SEQUENCE)?.value;
        let _version = tlv::expect(&mut tbs, 0xa0);
        let serial = tlv::expect(&mut tbs, tlv::INTEGER)?.whole;
        let _signature = tlv::expect(&mut tbs, tlv::SEQUENCE)?;
        let issuer = tlv::expect(&mut tbs, tlv::SEQUENCE)?.whole;
        let _validity = tlv::expect(&mut tbs, tlv::SEQUENCE)?;
        let subject = tlv::expect(&mut tbs, tlv::SEQUENCE)?.whole;
        let spki = tlv::expect(&mut tbs, tlv::SEQUENCE)?;
        let mut key = spki.value;
        let mut algorithm = tlv::expect(&mut key, tlv::SEQUENCE)?.value;
        let identifier = tlv::expect(&mut algorithm, tlv::OID)?.value;
        let key_kind = kind_of(identifier, algorithm);
        while tbs.first().is_some_and(|tag| *tag != 0xa3) {
            tlv::next(&mut tbs)?;
        }
        let (authority, named) = match tlv::expect(&mut tbs, 0xa3) {
            Some(explicit) => extensions_of(tlv::only(explicit.value, tlv::SEQUENCE)?.value)?,
            None => (false, Named::BySubject),
        };
        Some(Fields { serial, issuer, subject, spki: spki.whole, key_kind, authority, named })
    }
}

/// The `cA` of basicConstraints among extensions, and what subjectAltName says. OpenSSL takes some certificates without
/// the first for authorities.
fn extensions_of(mut extensions: &[u8]) -> Option<(bool, Named<'_>)> {
    const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
    const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    const BOOLEAN: u8 = 0x01;
    let mut authority = false;
    let mut named = None;
    while !extensions.is_empty() {
        let mut extension = tlv::expect(&mut extensions, tlv::SEQUENCE)?.value;
        let oid = tlv::expect(&mut extension, tlv::OID)?.value;
        let _critical = tlv::expect(&mut extension, BOOLEAN);
        let value = tlv::expect(&mut extension, tlv::OCTET_STRING)?.value;
        if oid == BASIC_CONSTRAINTS {
            let mut constraints = tlv::only(value, tlv::SEQUENCE)?.value;
            authority = tlv::expect(&mut constraints, BOOLEAN).is_some_and(|ca| ca.value == [0xff]);
        }
        if oid == SUBJECT_ALT_NAME && named.replace(spiffe_id::named(value)?).is_some() {
            // An extension stands once (RFC 5280, section 4.2).
            named = Some(Named::NoName);
        }
    }
    Some((authority, named.unwrap_or(Named::BySubject)))
}
