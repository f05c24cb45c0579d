//! CMS (RFC 5652, RFC 5083), the part of it that the profile uses, in strict DER.
//!
//! Reading borrows from the message and refuses everything that has a second form: indefinite or long
//! lengths, strings in pieces, sets out of order, doubled or surplus fields. Writing computes every
//! length first, so a size predictor and the writer are the same code.

pub(crate) mod algorithm;
pub(crate) mod attributes;
pub(crate) mod batch;
pub(crate) mod enveloped;
pub(crate) mod reader;
pub(crate) mod signed;
pub(crate) mod writer;

use reader::Reader;
use writer::{OID, SEQUENCE, context};

use crate::error::OpenError;
use crate::oid;

/// How a signer or recipient is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// The whole `IssuerAndSerialNumber`.
    IssuerAndSerial(&'a [u8]),
    /// A subject key identifier; only foreign CMS uses it.
    Key(&'a [u8]),
}

/// The containers of the profile.
pub(crate) enum Container<'a> {
    /// A signed message.
    Signed(signed::SignedData<'a>),
    /// A message that shares its signature with others.
    Batch(batch::BatchSigned<'a>),
    /// An envelope, authenticated or not.
    Enveloped(enveloped::Enveloped<'a>),
}

/// Reads a whole message. The payload of an envelope stays closed.
pub(crate) fn read(der: &[u8]) -> Result<Container<'_>, OpenError> {
    let (content_type, content) = content_info(der)?;
    match content_type {
        oid::SIGNED_DATA => signed::SignedData::read(content, oid::ID_DATA).map(Container::Signed),
        oid::BATCH_SIGNED => batch::BatchSigned::read(content).map(Container::Batch),
        oid::AUTH_ENVELOPED_DATA => enveloped::Enveloped::read(content, true).map(Container::Enveloped),
        oid::ENVELOPED_DATA => enveloped::Enveloped::read(content, false).map(Container::Enveloped),
        _ => Err(OpenError::NotSealed),
    }
}

/// Reads a message that must be a `SignedData`.
pub(crate) fn read_signed(der: &[u8]) -> Result<signed::SignedData<'_>, OpenError> {
    match content_info(der)? {
        (oid::SIGNED_DATA, content) => signed::SignedData::read(content, oid::ID_DATA),
        _ => Err(OpenError::NotSealed),
    }
}

/// Reads the `ContentInfo` that is the root of a batch.
pub(crate) fn read_root(der: &[u8]) -> Result<signed::SignedData<'_>, OpenError> {
    const WHAT: OpenError = OpenError::Malformed { what: "the root of a batch is no SignedData" };
    match content_info(der) {
        Ok((oid::SIGNED_DATA, content)) => signed::SignedData::read(content, oid::BATCH_ROOT),
        Ok(_) | Err(OpenError::NotSealed) => Err(WHAT),
        Err(error) => Err(error),
    }
}

fn content_info(der: &[u8]) -> Result<(&[u8], &[u8]), OpenError> {
    if !looks_sealed(der) {
        return Err(OpenError::NotSealed);
    }
    const WHAT: &str = "a ContentInfo is unreadable, or something follows it";
    let mut fields = Reader::only(der, SEQUENCE, WHAT)?;
    let content_type = fields.value(OID, WHAT)?;
    let content = fields.value(context(0), WHAT)?;
    fields.end(WHAT)?;
    Ok((content_type, content))
}

/// Whether a body claims to be a sealed message: it begins like a CMS `ContentInfo` of a type that
/// the profile uses, be its length well written or not. A few compares; nothing is believed by it.
pub fn looks_sealed(body: &[u8]) -> bool {
    let after_length = match body {
        [SEQUENCE, length, rest @ ..] if *length <= 0x80 => rest,
        [SEQUENCE, length, rest @ ..] => match rest.get(usize::from(length & 0x7f)..) {
            Some(rest) if length & 0x7f <= 8 => rest,
            _ => return false,
        },
        _ => return false,
    };
    let [OID, len, rest @ ..] = after_length else { return false };
    let Some(found) = rest.get(..usize::from(*len)) else { return false };
    [oid::SIGNED_DATA, oid::AUTH_ENVELOPED_DATA, oid::ENVELOPED_DATA, oid::BATCH_SIGNED].contains(&found)
}

#[cfg(test)]
mod tests {
    use bulla_device::{Digest, RsaPadding, RsaScheme};

    use super::algorithm::{
        aes_wrap_identifier, agreement_identifier, digest_identifier, rsa_signature_identifier, rsa_wrap_identifier,
    };
    use super::attributes::{AttributeWriter, write_binding, write_content_type, write_message_digest};
    use super::enveloped::{EnvelopeLayout, RecipientKinds, agreement_info, recipient_set, transport_info};
    use super::reader::is_der;
    use super::signed::SignedLayout;
    use super::writer::{INTEGER, SET, Writer, element};
    use super::*;
    use crate::message::Bound;
    use crate::policy::{ContentCipher, Quality};

    /// An issuer of one attribute, and a serial number.
    fn name() -> Vec<u8> {
        let attribute = element(SEQUENCE, &[&element(OID, &[&[0x55, 4, 3]]), &element(0x0c, &[b"a"])]);
        element(SEQUENCE, &[&element(SEQUENCE, &[&element(SET, &[&attribute])]), &element(INTEGER, &[&[7]])])
    }

    fn attributes() -> AttributeWriter {
        let mut set = AttributeWriter::new();
        write_content_type(&mut set);
        let bound = Bound {
            destination: "Q@QM".into(),
            message_id: Default::default(),
            properties: Default::default(),
            application_properties: Default::default(),
            annotations: Default::default(),
        };
        write_binding(&mut set, Quality::Confidentiality, &bound, None);
        set
    }

    fn envelope() -> Vec<u8> {
        let oaep = rsa_wrap_identifier(RsaPadding::Oaep { digest: Digest::Sha256 });
        let agreement = agreement_identifier(Digest::Sha256, &aes_wrap_identifier(32));
        let recipients = recipient_set(vec![
            transport_info(&name(), &oaep, &[5; 8]),
            agreement_info(&name(), &agreement, &[4; 9], &[6; 8]),
        ]);
        let attributes = attributes().sorted();
        let layout = EnvelopeLayout {
            cipher: ContentCipher::Aes256Gcm,
            recipients: &recipients,
            kinds: RecipientKinds::Further,
            attributes_len: attributes.len(),
            plaintext_len: 1,
        };
        let mut out = Writer::default();
        let written = layout.write(&mut out, &[1; 12], &attributes, |out| {
            out.raw(&[1]);
            Ok::<_, ()>([0; 16])
        });
        assert!(written.is_ok());
        out.finish()
    }

    fn signed() -> Vec<u8> {
        let mut set = attributes();
        write_message_digest(&mut set, &[8; 32]);
        let (digest, attributes) = (digest_identifier(Digest::Sha256), set.sorted());
        let layout = SignedLayout {
            content_type: oid::ID_DATA,
            digest: &digest,
            certificates: &element(SEQUENCE, &[]),
            signer: &name(),
            attributes_len: attributes.len(),
            algorithm: &rsa_signature_identifier(RsaScheme::Pss, Digest::Sha256),
            signature_len: 8,
            payload_len: 1,
        };
        let mut out = Writer::default();
        layout.write(&mut out, &[1], &attributes, &[9; 8]);
        out.finish()
    }

    #[test]
    fn what_reads_is_der_to_its_innermost_part_whichever_byte_was_changed() {
        for message in [envelope(), signed()] {
            assert!(read(&message).is_ok());
            let mut read_so = 0;
            for at in 0..message.len() {
                for value in 0..=u8::MAX {
                    let mut changed = message.clone();
                    changed[at] = value;
                    // There is nothing in them but lists, names and short strings: all of it is looked at.
                    if read(&changed).is_ok() {
                        assert!(is_der(&changed), "byte {at} as {value:#x}");
                        read_so += 1;
                    }
                }
            }
            assert!(read_so > message.len(), "some changes are within what strings say");
        }
    }
}
