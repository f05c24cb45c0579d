//! The request that an order ends with.

use super::jws::failed;
use crate::enrolment::EnrolError;
use bulla_device::{KeyKind, x509};
use bulla_seal::certificate::create::AlternativeName;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::stack::Stack;
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509NameBuilder, X509ReqBuilder};

/// A request for these names, PKCS#10 in DER. It has no subject: an authority takes none but the names that were
/// ordered (RFC 8555, section 7.4).
pub(super) fn der(key: &PKey<Private>, names: &[AlternativeName]) -> Result<Vec<u8>, EnrolError> {
    let made = || -> Result<Vec<u8>, ErrorStack> {
        let mut builder = X509ReqBuilder::new()?;
        builder.set_version(0)?;
        builder.set_subject_name(&X509NameBuilder::new()?.build())?;
        builder.set_pubkey(key)?;
        let mut all = SubjectAlternativeName::new();
        for name in names {
            match name {
                AlternativeName::Dns(host) => drop(all.dns(host)),
                AlternativeName::Ip(address) => drop(all.ip(&address.to_string())),
                AlternativeName::Email(_) | AlternativeName::Uri(_) => {}
            }
        }
        let mut extensions = Stack::new()?;
        extensions.push(all.build(&builder.x509v3_context(None))?)?;
        builder.add_extensions(&extensions)?;
        // An ML-DSA key signs all of it, without a digest before.
        let signs_all = matches!(KeyKind::of(key), Ok(KeyKind::MlDsa(_)));
        x509::sign_request(&mut builder, key, (!signs_all).then(MessageDigest::sha256))?;
        builder.build().to_der()
    };
    made().map_err(failed)
}
