//! The proof `tls-alpn-01` (RFC 8737): a certificate that says what the authority wants to read, shown by the TLS
//! listeners to whoever asks for the protocol `acme-tls/1` and for that name.
//!
//! The listeners find it in a file ([`proof`]), so that it need not be the process that asks that shows it.

use super::jws::failed;
use super::order::Proof;
use crate::enrolment::EnrolError;
use crate::key_rotation::steps::private_folder;
use crate::tls::proof;
use crate::whole_file;
use bulla_seal::certificate::{Curve, KeySpec, PrivateKeyPem};
use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::sha::sha256;
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509Builder, X509Extension, X509NameBuilder};
use std::fs;
use std::path::PathBuf;

/// id-pe-acmeIdentifier (RFC 8737, section 3).
const ACME_IDENTIFIER: &str = "1.3.6.1.5.5.7.1.31";
/// Tag and length of an OCTET STRING of 32 bytes.
const OCTETS: [u8; 2] = [4, 32];
/// For how many days such a certificate is valid. The authority does not look.
const DAYS: u32 = 1;

/// Certificates that are shown. They go with it.
#[derive(Debug)]
pub struct TlsAlpn01 {
    folder: PathBuf,
    made: Vec<PathBuf>,
}

impl Drop for TlsAlpn01 {
    fn drop(&mut self) {
        for path in &self.made {
            // What can't be removed is shown for longer: it proves no more than it did.
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

impl TlsAlpn01 {
    /// In that folder, which is made.
    ///
    /// # Errors
    /// It can't be made, or others may read it.
    pub fn new(folder: PathBuf) -> Result<TlsAlpn01, EnrolError> {
        folder.parent().map_or(Ok(()), private_folder)?;
        private_folder(&folder)?;
        Ok(TlsAlpn01 { folder, made: Vec::new() })
    }

    /// Shows a proof from now on.
    ///
    /// # Errors
    /// It can't be written.
    pub fn show(&mut self, shown: &Proof) -> Result<(), EnrolError> {
        let path = proof::file(&self.folder, &shown.server_name())
            .ok_or_else(|| EnrolError::Protocol { why: "the name is no host's".to_owned() })?;
        let key = KeySpec::Ec(Curve::P256).generate()?;
        let certificate = certificate(shown, &key).map_err(failed)?;
        let pem = PrivateKeyPem::write(&key, None)?;
        let text = [&certificate.to_pem().map_err(failed)?, pem.as_bytes()].concat();
        whole_file::replace(&path, &text, 0o600).map_err(EnrolError::file(&path))?;
        self.made.push(path);
        Ok(())
    }
}

fn certificate(proof: &Proof, key: &PKey<Private>) -> Result<X509, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_text("CN", "acme-tls/1")?;
    let name = name.build();
    let mut builder = X509Builder::new()?;
    builder.set_version(2)?;
    let mut serial = [1; 16];
    openssl::rand::rand_bytes(&mut serial[1..])?;
    let serial = Asn1Integer::from_bn(&*BigNum::from_slice(&serial)?)?;
    builder.set_serial_number(&serial)?;
    builder.set_subject_name(&name)?;
    builder.set_issuer_name(&name)?;
    builder.set_pubkey(key)?;
    builder.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    builder.set_not_after(&*Asn1Time::days_from_now(DAYS)?)?;
    let mut names = SubjectAlternativeName::new();
    match proof.identifier.kind.as_str() {
        "ip" => names.ip(&proof.identifier.value),
        _ => names.dns(&proof.identifier.value),
    };
    let names = names.build(&builder.x509v3_context(None, None))?;
    builder.append_extension(names)?;
    let digest = [&OCTETS[..], &sha256(proof.text.as_bytes())].concat();
    let kind = Asn1Object::from_str(ACME_IDENTIFIER)?;
    let digest = X509Extension::new_from_der(&kind, true, &*Asn1OctetString::new_from_bytes(&digest)?)?;
    builder.append_extension(digest)?;
    builder.sign(key, MessageDigest::sha256())?;
    Ok(builder.build())
}
