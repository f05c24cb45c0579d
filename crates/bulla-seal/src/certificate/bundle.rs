//! Certificates and keys as other programs hand them over: PEM, DER and PKCS#12, in and out.

use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkcs12::Pkcs12;
use openssl::pkey::{PKey, PKeyRef, Private};
use openssl::stack::Stack;
use zeroize::Zeroizing;

use super::create::CreateError;
use super::key::PBKDF2_ROUNDS;
use super::{Certificate, KeyError, MalformedError, Passphrase, read_private_key, tlv};

/// The most certificates taken from one file.
pub const BUNDLE_CERTIFICATES_MAX: usize = 1000;

/// What a file held.
pub struct Bundle {
    /// The certificates: where there is a key, its own comes first.
    pub certificates: Vec<Certificate>,
    /// The private key, if there was one.
    pub key: Option<PKey<Private>>,
}

impl Bundle {
    /// Reads PEM (certificates, at most one private key), a certificate in DER, or PKCS#12, whichever it is.
    ///
    /// # Errors
    /// [`CreateError::Malformed`] when it is none of them or holds no certificate; [`CreateError::Key`] when the
    /// passphrase is missing or wrong, or when the key belongs to none of the certificates.
    pub fn read(bytes: &[u8], passphrase: Option<&Passphrase>) -> Result<Bundle, CreateError> {
        if bytes.first() != Some(&tlv::SEQUENCE) {
            return Bundle::from_pem(bytes, passphrase);
        }
        if let Ok(certificate) = Certificate::from_der(bytes) {
            return Ok(Bundle { certificates: vec![certificate], key: None });
        }
        Bundle::from_pkcs12(bytes, passphrase)
    }

    fn from_pem(bytes: &[u8], passphrase: Option<&Passphrase>) -> Result<Bundle, CreateError> {
        let certificates = Certificate::all_from_pem(bytes, BUNDLE_CERTIFICATES_MAX)?;
        let key = match read_private_key(bytes, passphrase) {
            Ok(key) => Some(key),
            Err(KeyError::Missing) => None,
            Err(error) => return Err(error.into()),
        };
        Bundle::ordered(certificates, key)
    }

    fn from_pkcs12(bytes: &[u8], passphrase: Option<&Passphrase>) -> Result<Bundle, CreateError> {
        let archive = Pkcs12::from_der(bytes).map_err(|_| MalformedError("neither a certificate nor PKCS#12"))?;
        let refused = match passphrase {
            Some(_) => KeyError::WrongPassphrase,
            None => KeyError::Locked,
        };
        let parsed = archive.parse2(c_text(passphrase)?).map_err(|_| refused)?;
        let mut certificates = Vec::new();
        for x509 in parsed.cert.iter().map(AsRef::as_ref).chain(parsed.ca.iter().flatten()) {
            if certificates.len() >= BUNDLE_CERTIFICATES_MAX {
                return Err(MalformedError("too many certificates in one file").into());
            }
            certificates.push(Certificate::from_x509(x509)?);
        }
        Bundle::ordered(certificates, parsed.pkey)
    }

    fn ordered(mut certificates: Vec<Certificate>, key: Option<PKey<Private>>) -> Result<Bundle, CreateError> {
        if certificates.is_empty() {
            return Err(MalformedError("no certificate in the file").into());
        }
        if let Some(key) = &key {
            let at = certificates
                .iter()
                .position(|certificate| certificate.public_key().public_eq(key))
                .ok_or(MalformedError("private key belongs to none of the certificates"))?;
            certificates.get_mut(..=at).unwrap_or_default().rotate_right(1);
        }
        Ok(Bundle { certificates, key })
    }
}

/// A PKCS#12 archive (RFC 7292): AES-256-CBC and HMAC-SHA-256, [`PBKDF2_ROUNDS`] rounds. Without a key it holds
/// certificates only.
///
/// # Errors
/// [`CreateError`] from OpenSSL, or for a label or passphrase with a zero byte.
pub fn to_pkcs12(
    label: &str,
    certificate: &Certificate,
    chain: &[Certificate],
    key: Option<&PKeyRef<Private>>,
    passphrase: &Passphrase,
) -> Result<Zeroizing<Vec<u8>>, CreateError> {
    if label.contains('\0') {
        return Err(MalformedError("label with a zero byte").into());
    }
    let mut others = Stack::new()?;
    for certificate in chain {
        others.push(certificate.x509().clone())?;
    }
    let mut builder = Pkcs12::builder();
    builder
        .name(label)
        .cert(certificate.x509())
        .ca(others)
        .key_algorithm(Nid::AES_256_CBC)
        .cert_algorithm(Nid::AES_256_CBC)
        .key_iter(PBKDF2_ROUNDS)
        .mac_iter(PBKDF2_ROUNDS)
        .mac_md(MessageDigest::sha256());
    if let Some(key) = key {
        builder.pkey(key);
    }
    Ok(Zeroizing::new(builder.build2(c_text(Some(passphrase))?)?.to_der()?))
}

/// A PKCS#12 archive (RFC 7292) of authorities to trust, without passphrase and MAC: it holds nothing secret. Each
/// has the attribute by which Java's key stores know a certificate that is trusted; without it, they pass it over.
pub fn to_trust_store(label: &str, authorities: &[Certificate]) -> Vec<u8> {
    /// 1.2.840.113549.1.7.1, RFC 5652.
    const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];
    const CONTENT: u8 = 0xa0;
    const VERSION: u8 = 3;
    let data = |content: &[u8]| {
        let content = tlv::element(CONTENT, &[&tlv::element(tlv::OCTET_STRING, &[content])]);
        tlv::element(tlv::SEQUENCE, &[&tlv::element(tlv::OID, &[DATA]), &content])
    };
    let bags: Vec<Vec<u8>> = authorities
        .iter()
        .enumerate()
        .map(|(at, authority)| match at {
            0 => trusted_bag(label, authority),
            _ => trusted_bag(&format!("{label}-{}", at + 1), authority),
        })
        .collect();
    let bags: Vec<&[u8]> = bags.iter().map(Vec::as_slice).collect();
    let safe = tlv::element(tlv::SEQUENCE, &[&data(&tlv::element(tlv::SEQUENCE, &bags))]);
    tlv::element(tlv::SEQUENCE, &[&tlv::element(tlv::INTEGER, &[&[VERSION]]), &data(&safe)])
}

/// A `SafeBag` with a certificate (RFC 7292, section 4.2.3), its name, and that it is trusted for any use.
fn trusted_bag(label: &str, authority: &Certificate) -> Vec<u8> {
    /// 1.2.840.113549.1.12.10.1.3.
    const CERTIFICATE_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x0a, 0x01, 0x03];
    /// 1.2.840.113549.1.9.22.1.
    const X509_CERTIFICATE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x16, 0x01];
    /// 1.2.840.113549.1.9.20.
    const FRIENDLY_NAME: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x14];
    /// 2.16.840.1.113894.746875.1.1, `ORACLE_TrustedKeyUsage` of the JDK.
    const TRUSTED_KEY_USAGE: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf9, 0x66, 0xad, 0xca, 0x7b, 0x01, 0x01];
    /// 2.5.29.37.0, anyExtendedKeyUsage.
    const ANY_USE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
    const EXPLICIT: u8 = 0xa0;
    const BMP_STRING: u8 = 0x1e;
    let oid = |value: &[u8]| tlv::element(tlv::OID, &[value]);
    let attribute =
        |kind: &[u8], value: &[u8]| tlv::element(tlv::SEQUENCE, &[&oid(kind), &tlv::element(tlv::SET, &[value])]);
    let certificate = tlv::element(tlv::OCTET_STRING, &[authority.der()]);
    let certificate = tlv::element(tlv::SEQUENCE, &[&oid(X509_CERTIFICATE), &tlv::element(EXPLICIT, &[&certificate])]);
    let name: Vec<u8> = label.encode_utf16().flat_map(u16::to_be_bytes).collect();
    // DER sorts the members of a set by their encoding.
    let mut attributes =
        [attribute(FRIENDLY_NAME, &tlv::element(BMP_STRING, &[&name])), attribute(TRUSTED_KEY_USAGE, &oid(ANY_USE))];
    attributes.sort();
    let attributes = tlv::element(tlv::SET, &attributes.each_ref().map(Vec::as_slice));
    tlv::element(tlv::SEQUENCE, &[&oid(CERTIFICATE_BAG), &tlv::element(EXPLICIT, &[&certificate]), &attributes])
}

/// OpenSSL takes passphrases of archives as C strings.
fn c_text(passphrase: Option<&Passphrase>) -> Result<&str, CreateError> {
    let text = passphrase.map_or("", Passphrase::expose);
    if text.contains('\0') {
        return Err(MalformedError("passphrase with a zero byte").into());
    }
    Ok(text)
}
