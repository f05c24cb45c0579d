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

/// OpenSSL takes passphrases of archives as C strings.
fn c_text(passphrase: Option<&Passphrase>) -> Result<&str, CreateError> {
    let text = passphrase.map_or("", Passphrase::expose);
    if text.contains('\0') {
        return Err(MalformedError("passphrase with a zero byte").into());
    }
    Ok(text)
}
