//! The algorithms of the profile as `AlgorithmIdentifier`s: exactly one encoding out, and in only what
//! the profile allows. What is readable but not allowed is *weaker than the policy*, never *malformed*.

use bulla_device::{Digest, MlDsa, MlKem, RsaPadding, RsaScheme};

use super::reader::{Malformed, Reader};
use super::writer::{INTEGER, NULL, OCTET_STRING, OID, SEQUENCE, Writer, context, element, element_len};
use crate::error::OpenError;
use crate::oid;
use crate::policy::ContentCipher;

/// Bytes of a GCM nonce.
pub(crate) const GCM_NONCE_BYTES: usize = 12;
/// Bytes of a GCM tag; shorter ones are refused.
pub(crate) const GCM_TAG_BYTES: usize = 16;
/// Bytes of an AES block, and so of a CBC initialisation vector.
pub(crate) const AES_BLOCK_BYTES: usize = 16;

/// A digest's identifier. Parameters are absent, as OpenSSL writes them; NULL is accepted too
/// (RFC 5754, section 2).
pub(crate) fn digest_identifier(digest: Digest) -> Vec<u8> {
    element(SEQUENCE, &[&element(OID, &[digest_oid(digest)])])
}

pub(crate) fn read_digest(identifier: &[u8]) -> Result<Digest, OpenError> {
    let mut fields = Reader::only(identifier, SEQUENCE, "a digest algorithm is unreadable")?;
    let found = fields.value(OID, "a digest algorithm has no identifier")?;
    null_or_absent(&mut fields)?;
    match found {
        oid::SHA256 => Ok(Digest::Sha256),
        oid::SHA384 => Ok(Digest::Sha384),
        oid::SHA512 => Ok(Digest::Sha512),
        _ => Err(OpenError::WeakerThanPolicy { what: "a digest outside SHA-256, SHA-384 and SHA-512" }),
    }
}

fn digest_oid(digest: Digest) -> &'static [u8] {
    match digest {
        Digest::Sha256 => oid::SHA256,
        Digest::Sha384 => oid::SHA384,
        Digest::Sha512 => oid::SHA512,
    }
}

fn null_or_absent(fields: &mut Reader<'_>) -> Result<(), Malformed> {
    const WHAT: &str = "an algorithm has parameters that it should not have";
    match fields.optional(NULL) {
        None | Some([]) => fields.end(WHAT),
        Some(_) => Err(Malformed(WHAT)),
    }
}

/// How a signature was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureKind {
    /// RSASSA-PKCS1-v1_5.
    RsaPkcs1,
    /// RSASSA-PSS with MGF1 by the signature digest.
    RsaPss {
        /// Bytes of the salt.
        salt_len: u8,
    },
    /// ECDSA.
    Ecdsa,
    /// ML-DSA over the attributes themselves.
    MlDsa(MlDsa),
}

pub(crate) fn rsa_signature_identifier(scheme: RsaScheme, digest: Digest) -> Vec<u8> {
    match scheme {
        // RFC 5754, 3.2: the plain identifier; the digest is named beside it.
        RsaScheme::Pkcs1 => element(SEQUENCE, &[&element(OID, &[oid::RSA_ENCRYPTION]), &[NULL, 0]]),
        RsaScheme::Pss => {
            let hash = digest_identifier(digest);
            let salt_len = digest.hash_len() as u8;
            let parameters = element(
                SEQUENCE,
                &[
                    &element(context(0), &[&hash]),
                    &element(context(1), &[&mgf1_identifier(&hash)]),
                    &element(context(2), &[&element(INTEGER, &[&[salt_len]])]),
                ],
            );
            element(SEQUENCE, &[&element(OID, &[oid::RSASSA_PSS]), &parameters])
        }
    }
}

pub(crate) fn ecdsa_identifier(digest: Digest) -> Vec<u8> {
    let oid = match digest {
        Digest::Sha256 => oid::ECDSA_WITH_SHA256,
        Digest::Sha384 => oid::ECDSA_WITH_SHA384,
        Digest::Sha512 => oid::ECDSA_WITH_SHA512,
    };
    element(SEQUENCE, &[&element(OID, &[oid])])
}

/// Parameters are absent (RFC 9882, section 2).
pub(crate) fn ml_dsa_identifier(set: MlDsa) -> Vec<u8> {
    let oid = match set {
        MlDsa::MlDsa44 => oid::ML_DSA_44,
        MlDsa::MlDsa65 => oid::ML_DSA_65,
        MlDsa::MlDsa87 => oid::ML_DSA_87,
    };
    element(SEQUENCE, &[&element(OID, &[oid])])
}

/// Whether the digest of what is signed is as strong as the signature (RFC 9882, table 1).
pub(crate) fn is_strong_enough(digest: Digest, set: MlDsa) -> bool {
    match set {
        MlDsa::MlDsa44 => true,
        MlDsa::MlDsa65 => digest != Digest::Sha256,
        MlDsa::MlDsa87 => digest == Digest::Sha512,
    }
}

fn read_ml_dsa(fields: &Reader<'_>, set: MlDsa, digest: Digest) -> Result<SignatureKind, OpenError> {
    fields.end("ML-DSA with parameters")?;
    if !is_strong_enough(digest, set) {
        return Err(OpenError::WeakerThanPolicy {
            what: "a digest that is weaker than the ML-DSA signature beside it",
        });
    }
    Ok(SignatureKind::MlDsa(set))
}

/// A signature algorithm, which must agree with the digest named beside it.
pub(crate) fn read_signature(identifier: &[u8], digest: Digest) -> Result<SignatureKind, OpenError> {
    let mut fields = Reader::only(identifier, SEQUENCE, "a signature algorithm is unreadable")?;
    let found = fields.value(OID, "a signature algorithm has no identifier")?;
    let (kind, own_digest) = match found {
        oid::RSA_ENCRYPTION => (SignatureKind::RsaPkcs1, digest),
        oid::SHA256_WITH_RSA => (SignatureKind::RsaPkcs1, Digest::Sha256),
        oid::SHA384_WITH_RSA => (SignatureKind::RsaPkcs1, Digest::Sha384),
        oid::SHA512_WITH_RSA => (SignatureKind::RsaPkcs1, Digest::Sha512),
        oid::ECDSA_WITH_SHA256 => (SignatureKind::Ecdsa, Digest::Sha256),
        oid::ECDSA_WITH_SHA384 => (SignatureKind::Ecdsa, Digest::Sha384),
        oid::ECDSA_WITH_SHA512 => (SignatureKind::Ecdsa, Digest::Sha512),
        oid::RSASSA_PSS => return read_pss(fields, digest),
        oid::ML_DSA_44 => return read_ml_dsa(&fields, MlDsa::MlDsa44, digest),
        oid::ML_DSA_65 => return read_ml_dsa(&fields, MlDsa::MlDsa65, digest),
        oid::ML_DSA_87 => return read_ml_dsa(&fields, MlDsa::MlDsa87, digest),
        _ => {
            return Err(OpenError::WeakerThanPolicy {
                what: "a signature algorithm outside RSA and ECDSA with SHA-2 and ML-DSA",
            });
        }
    };
    null_or_absent(&mut fields)?;
    if own_digest != digest {
        return Err(Malformed("digest and signature algorithm disagree").into());
    }
    Ok(kind)
}

fn read_pss(mut fields: Reader<'_>, digest: Digest) -> Result<SignatureKind, OpenError> {
    const WHAT: &str = "the parameters of RSASSA-PSS are unreadable";
    let mut parameters = fields.enter(SEQUENCE, WHAT)?;
    fields.end(WHAT)?;
    let hash = parameters.value(context(0), WHAT)?;
    let mask = parameters.value(context(1), WHAT)?;
    let mut salt = parameters.enter(context(2), WHAT)?;
    parameters.end(WHAT)?;
    let salt_len = salt.small_integer(WHAT)?;
    salt.end(WHAT)?;
    if read_digest(hash)? != digest || read_mgf1(mask)? != digest {
        return Err(Malformed("digest and parameters of RSASSA-PSS disagree").into());
    }
    Ok(SignatureKind::RsaPss { salt_len })
}

fn mgf1_identifier(hash: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&element(OID, &[oid::MGF1]), hash])
}

fn read_mgf1(identifier: &[u8]) -> Result<Digest, OpenError> {
    const WHAT: &str = "a mask generation function is unreadable";
    let mut fields = Reader::only(identifier, SEQUENCE, WHAT)?;
    if fields.value(OID, WHAT)? != oid::MGF1 {
        return Err(OpenError::WeakerThanPolicy { what: "a mask generation function outside MGF1" });
    }
    let hash = fields.whole(SEQUENCE, WHAT)?;
    fields.end(WHAT)?;
    read_digest(hash)
}

/// How a content key was wrapped with RSA.
pub(crate) fn rsa_wrap_identifier(padding: RsaPadding) -> Vec<u8> {
    match padding {
        RsaPadding::Pkcs1 => element(SEQUENCE, &[&element(OID, &[oid::RSA_ENCRYPTION]), &[NULL, 0]]),
        RsaPadding::Oaep { digest } => {
            let hash = digest_identifier(digest);
            let parameters =
                element(SEQUENCE, &[&element(context(0), &[&hash]), &element(context(1), &[&mgf1_identifier(&hash)])]);
            element(SEQUENCE, &[&element(OID, &[oid::RSAES_OAEP]), &parameters])
        }
    }
}

pub(crate) fn read_rsa_wrap(identifier: &[u8]) -> Result<RsaPadding, OpenError> {
    const WHAT: &str = "a key transport algorithm is unreadable";
    const WEAK: OpenError =
        OpenError::WeakerThanPolicy { what: "a key transport outside RSA-OAEP with SHA-256 and PKCS#1" };
    let mut fields = Reader::only(identifier, SEQUENCE, WHAT)?;
    match fields.value(OID, WHAT)? {
        oid::RSA_ENCRYPTION => {
            null_or_absent(&mut fields)?;
            Ok(RsaPadding::Pkcs1)
        }
        oid::RSAES_OAEP => {
            let mut parameters = fields.enter(SEQUENCE, WHAT)?;
            fields.end(WHAT)?;
            // Absent fields mean SHA-1.
            let (Some(hash), Some(mask)) = (parameters.optional(context(0)), parameters.optional(context(1))) else {
                return Err(WEAK);
            };
            parameters.end("RSA-OAEP with a label")?;
            match (read_digest(hash)?, read_mgf1(mask)?) {
                (Digest::Sha256, Digest::Sha256) => Ok(RsaPadding::Oaep { digest: Digest::Sha256 }),
                _ => Err(WEAK),
            }
        }
        _ => Err(WEAK),
    }
}

/// The key wrap of an agreed key; as long as the content key that it protects.
pub(crate) fn aes_wrap_identifier(key_len: usize) -> Vec<u8> {
    let oid = if key_len == 16 { oid::AES128_WRAP } else { oid::AES256_WRAP };
    element(SEQUENCE, &[&element(OID, &[oid])])
}

/// The wrapping key's length in bytes.
pub(crate) fn read_aes_wrap(identifier: &[u8]) -> Result<usize, OpenError> {
    const WHAT: &str = "a key wrap algorithm is unreadable";
    let mut fields = Reader::only(identifier, SEQUENCE, WHAT)?;
    let found = fields.value(OID, WHAT)?;
    fields.end("a key wrap algorithm has parameters")?;
    match found {
        oid::AES128_WRAP => Ok(16),
        oid::AES256_WRAP => Ok(32),
        _ => Err(OpenError::WeakerThanPolicy { what: "a key wrap outside AES-128 and AES-256" }),
    }
}

/// A key agreement: the derivation's digest and, inside, the key wrap.
pub(crate) fn agreement_identifier(kdf: Digest, wrap: &[u8]) -> Vec<u8> {
    let oid = if kdf == Digest::Sha384 { oid::ECDH_SHA384_KDF } else { oid::ECDH_SHA256_KDF };
    element(SEQUENCE, &[&element(OID, &[oid]), wrap])
}

pub(crate) fn read_agreement(identifier: &[u8]) -> Result<(Digest, &[u8]), OpenError> {
    const WHAT: &str = "a key agreement algorithm is unreadable";
    let mut fields = Reader::only(identifier, SEQUENCE, WHAT)?;
    let kdf = match fields.value(OID, WHAT)? {
        oid::ECDH_SHA256_KDF => Digest::Sha256,
        oid::ECDH_SHA384_KDF => Digest::Sha384,
        _ => {
            return Err(OpenError::WeakerThanPolicy {
                what: "a key agreement outside ephemeral-static ECDH with SHA-256 or SHA-384",
            });
        }
    };
    let wrap = fields.whole(SEQUENCE, WHAT)?;
    fields.end(WHAT)?;
    Ok((kdf, wrap))
}

/// The key encapsulation of a recipient (RFC 9936, section 2); parameters are absent.
pub(crate) fn kem_identifier(set: MlKem) -> Vec<u8> {
    let oid = match set {
        MlKem::MlKem512 => oid::ML_KEM_512,
        MlKem::MlKem768 => oid::ML_KEM_768,
        MlKem::MlKem1024 => oid::ML_KEM_1024,
    };
    element(SEQUENCE, &[&element(OID, &[oid])])
}

pub(crate) fn read_kem(identifier: &[u8]) -> Result<MlKem, OpenError> {
    const WHAT: &str = "a key encapsulation is unreadable";
    let mut fields = Reader::only(identifier, SEQUENCE, WHAT)?;
    let found = fields.value(OID, WHAT)?;
    fields.end("a key encapsulation with parameters")?;
    match found {
        oid::ML_KEM_512 => Ok(MlKem::MlKem512),
        oid::ML_KEM_768 => Ok(MlKem::MlKem768),
        oid::ML_KEM_1024 => Ok(MlKem::MlKem1024),
        _ => Err(OpenError::WeakerThanPolicy { what: "a key encapsulation outside ML-KEM" }),
    }
}

/// How the wrapping key comes from an encapsulated secret: HKDF with SHA-256 (RFC 8619), the one that every
/// implementation has (RFC 9936, section 2.2.1).
pub(crate) fn hkdf_identifier() -> Vec<u8> {
    element(SEQUENCE, &[&element(OID, &[oid::HKDF_SHA256])])
}

pub(crate) fn check_hkdf(identifier: &[u8]) -> Result<(), OpenError> {
    const WHAT: &str = "a key derivation is unreadable";
    let mut fields = Reader::only(identifier, SEQUENCE, WHAT)?;
    let found = fields.value(OID, WHAT)?;
    fields.end("a key derivation with parameters")?;
    if found == oid::HKDF_SHA256 {
        Ok(())
    } else {
        Err(OpenError::WeakerThanPolicy { what: "a key derivation outside HKDF with SHA-256" })
    }
}

/// Bytes that [`write_cipher`] writes.
pub(crate) fn cipher_identifier_len(cipher: ContentCipher) -> usize {
    match cipher.is_authenticated() {
        true => CIPHER_GCM_HEAD + GCM_NONCE_BYTES + 3,
        false => CIPHER_CBC_HEAD + AES_BLOCK_BYTES,
    }
}

/// Bytes before the nonce: SEQUENCE, OID (11), SEQUENCE, OCTET STRING headers.
const CIPHER_GCM_HEAD: usize = 2 + 11 + 2 + 2;
const CIPHER_CBC_HEAD: usize = 2 + 11 + 2;

/// A content cipher with its nonce or initialisation vector. GCM says its tag's length, because
/// absent means 12, and then OpenSSL 3.0 and BouncyCastle fail.
pub(crate) fn write_cipher(out: &mut Writer, cipher: ContentCipher, iv: &[u8]) {
    let oid = cipher_oid(cipher);
    let iv_len = element_len(iv.len());
    if cipher.is_authenticated() {
        out.header(SEQUENCE, element_len(oid.len()) + element_len(iv_len + 3));
        out.element(OID, oid);
        out.header(SEQUENCE, iv_len + 3);
        out.element(OCTET_STRING, iv);
        out.small_integer(GCM_TAG_BYTES as u8);
    } else {
        out.header(SEQUENCE, element_len(oid.len()) + iv_len);
        out.element(OID, oid);
        out.element(OCTET_STRING, iv);
    }
}

fn cipher_oid(cipher: ContentCipher) -> &'static [u8] {
    match cipher {
        ContentCipher::Aes128Gcm => oid::AES128_GCM,
        ContentCipher::Aes256Gcm => oid::AES256_GCM,
        ContentCipher::Aes128Cbc => oid::AES128_CBC,
        ContentCipher::Aes256Cbc => oid::AES256_CBC,
    }
}

/// The content cipher and its nonce or initialisation vector.
pub(crate) fn read_cipher(identifier: &[u8]) -> Result<(ContentCipher, &[u8]), OpenError> {
    const WHAT: &str = "a content cipher is unreadable";
    let mut fields = Reader::only(identifier, SEQUENCE, WHAT)?;
    let cipher = match fields.value(OID, WHAT)? {
        oid::AES128_GCM => ContentCipher::Aes128Gcm,
        oid::AES256_GCM => ContentCipher::Aes256Gcm,
        oid::AES128_CBC => ContentCipher::Aes128Cbc,
        oid::AES256_CBC => ContentCipher::Aes256Cbc,
        _ => {
            return Err(OpenError::WeakerThanPolicy {
                what: "a content cipher outside AES-128 and AES-256 in GCM and CBC",
            });
        }
    };
    let iv = if cipher.is_authenticated() {
        let mut parameters = fields.enter(SEQUENCE, WHAT)?;
        let nonce = parameters.value(OCTET_STRING, WHAT)?;
        let tag_len = parameters.small_integer("GCM without the length of its tag")?;
        parameters.end(WHAT)?;
        if usize::from(tag_len) != GCM_TAG_BYTES || nonce.len() != GCM_NONCE_BYTES {
            return Err(Malformed("GCM with a tag other than 16 or a nonce other than 12 bytes").into());
        }
        nonce
    } else {
        let iv = fields.value(OCTET_STRING, WHAT)?;
        if iv.len() != AES_BLOCK_BYTES {
            return Err(Malformed("CBC with an initialisation vector other than 16 bytes").into());
        }
        iv
    };
    fields.end(WHAT)?;
    Ok((cipher, iv))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_identifier_that_is_written_reads_back() {
        for digest in Digest::ALL.iter().copied() {
            assert_eq!(read_digest(&digest_identifier(digest)), Ok(digest));
            let pkcs1 = rsa_signature_identifier(RsaScheme::Pkcs1, digest);
            assert_eq!(read_signature(&pkcs1, digest), Ok(SignatureKind::RsaPkcs1));
            let pss = rsa_signature_identifier(RsaScheme::Pss, digest);
            let salt_len = digest.hash_len() as u8;
            assert_eq!(read_signature(&pss, digest), Ok(SignatureKind::RsaPss { salt_len }));
            assert_eq!(read_signature(&ecdsa_identifier(digest), digest), Ok(SignatureKind::Ecdsa));
            for set in MlDsa::ALL.iter().copied().filter(|set| is_strong_enough(digest, *set)) {
                assert_eq!(read_signature(&ml_dsa_identifier(set), digest), Ok(SignatureKind::MlDsa(set)));
            }
        }
        for set in MlKem::ALL.iter().copied() {
            assert_eq!(read_kem(&kem_identifier(set)), Ok(set));
        }
        assert_eq!(check_hkdf(&hkdf_identifier()), Ok(()));
        for padding in [RsaPadding::Pkcs1, RsaPadding::Oaep { digest: Digest::Sha256 }] {
            assert_eq!(read_rsa_wrap(&rsa_wrap_identifier(padding)), Ok(padding));
        }
        for len in [16, 32] {
            let wrap = aes_wrap_identifier(len);
            assert_eq!(read_aes_wrap(&wrap), Ok(len));
            for kdf in [Digest::Sha256, Digest::Sha384] {
                assert_eq!(read_agreement(&agreement_identifier(kdf, &wrap)), Ok((kdf, &*wrap)));
            }
        }
        for cipher in ContentCipher::ALL.iter().copied() {
            let iv = [7; 16];
            let iv = if cipher.is_authenticated() { &iv[..12] } else { &iv };
            let mut writer = Writer::default();
            write_cipher(&mut writer, cipher, iv);
            let identifier = writer.finish();
            assert_eq!(identifier.len(), cipher_identifier_len(cipher));
            assert_eq!(read_cipher(&identifier), Ok((cipher, iv)));
        }
    }

    #[test]
    fn ml_dsa_and_ml_kem_have_no_parameters_and_no_weaker_digest() {
        let with_null = |oid: &[u8]| element(SEQUENCE, &[&element(OID, &[oid]), &[NULL, 0]]);
        let malformed = |found| matches!(found, Err(OpenError::Malformed { .. }));
        assert!(malformed(read_signature(&with_null(oid::ML_DSA_44), Digest::Sha256).map(drop)));
        assert!(malformed(read_kem(&with_null(oid::ML_KEM_768)).map(drop)));
        assert!(malformed(check_hkdf(&with_null(oid::HKDF_SHA256))));
        for (set, digest) in
            [(MlDsa::MlDsa65, Digest::Sha256), (MlDsa::MlDsa87, Digest::Sha256), (MlDsa::MlDsa87, Digest::Sha384)]
        {
            let read = read_signature(&ml_dsa_identifier(set), digest);
            assert!(matches!(read, Err(OpenError::WeakerThanPolicy { .. })), "{set} {digest}");
        }
    }

    #[test]
    fn digests_that_disagree_are_refused() {
        let pss = rsa_signature_identifier(RsaScheme::Pss, Digest::Sha256);
        assert!(read_signature(&pss, Digest::Sha384).is_err());
        assert!(read_signature(&ecdsa_identifier(Digest::Sha512), Digest::Sha256).is_err());
    }
}
