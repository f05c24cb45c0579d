//! An envelope while its content key is away at a device: where its parts are in the message, so that it
//! need not be read twice.

use bytes::Bytes;
use openssl::cipher_ctx::CipherCtx;

use super::cache::KeyPlace;
use crate::cms::Name;
use crate::cms::attributes::Ours;
use crate::cms::enveloped::Enveloped;
use crate::cms::writer::SET;
use crate::error::OpenError;
use crate::policy::ContentCipher;
use crate::symmetric;

/// The parts of an envelope that are needed once there is a content key.
pub(super) struct Letter {
    /// The whole message.
    der: Bytes,
    /// Where its content key is remembered; holds the digest of its recipients and its content cipher.
    pub(super) place: KeyPlace,
    /// Whether what is inside is a `SignedData` without a `ContentInfo` around it.
    pub(super) bare_signed: bool,
    iv: Part,
    ciphertext: Part,
    tag: Option<Part>,
    /// The attributes without their tag: as associated data they count as a `SET OF`.
    attributes: Option<Part>,
    binding: Option<Part>,
    content: Option<Part>,
    recipients: Option<Part>,
    on_behalf_of: Option<Part>,
    /// DER of each recipient's `IssuerAndSerialNumber`.
    pub(super) names: Vec<Bytes>,
}

/// A place in the message, which is no longer than 1 GiB.
#[derive(Clone, Copy)]
struct Part {
    start: u32,
    end: u32,
}

impl Part {
    /// Where `part`, which borrows from `whole`, begins and ends in it.
    fn of(whole: &[u8], part: &[u8]) -> Part {
        let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Part { start: place(start), end: place(start.saturating_add(part.len())) }
    }

    /// A few compares. What is not there is empty, and no tag fits to it.
    fn of_message(self, whole: &[u8]) -> &[u8] {
        whole.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

impl Letter {
    /// `envelope` was read from `der`.
    pub(super) fn new(der: Bytes, envelope: &Enveloped<'_>, place: KeyPlace) -> Letter {
        let part = |bytes| Part::of(&der, bytes);
        let ours = envelope.attributes.ours;
        let names = envelope.recipients.iter().filter_map(|recipient| match recipient.name {
            Name::IssuerAndSerial(name) => Some(der.slice_ref(name)),
            Name::Key(_) => None,
        });
        Letter {
            place,
            bare_signed: envelope.bare_signed,
            iv: part(envelope.iv),
            ciphertext: part(envelope.ciphertext),
            tag: envelope.tag.map(part),
            attributes: envelope.attributes_whole.map(|whole| part(whole.get(1..).unwrap_or_default())),
            binding: ours.binding.map(part),
            content: ours.content.map(part),
            recipients: ours.recipients.map(part),
            on_behalf_of: ours.on_behalf_of.map(part),
            names: names.collect(),
            der,
        }
    }

    /// Our attributes outside.
    pub(super) fn ours(&self) -> Ours<'_> {
        let bytes = |part: Option<Part>| part.map(|part| part.of_message(&self.der));
        Ours {
            binding: bytes(self.binding),
            content: bytes(self.content),
            recipients: bytes(self.recipients),
            on_behalf_of: bytes(self.on_behalf_of),
        }
    }

    /// Whether there are attributes outside, ours or others.
    pub(super) fn has_attributes(&self) -> bool {
        self.attributes.is_some()
    }

    /// The content cipher.
    pub(super) fn cipher(&self) -> ContentCipher {
        self.place.cipher
    }

    /// The digest of the recipient infos.
    pub(super) fn recipients_digest(&self) -> &[u8; 32] {
        &self.place.recipients
    }

    /// The ciphertext as it arrived.
    fn ciphertext(&self) -> &[u8] {
        self.ciphertext.of_message(&self.der)
    }

    /// The same, to be kept.
    pub(super) fn ciphertext_bytes(&self) -> Bytes {
        self.der.slice_ref(self.ciphertext())
    }

    /// The plaintext, `None` when padding or tag are wrong. The context has the key.
    pub(super) fn decrypt(&self, context: &mut CipherCtx) -> Result<Option<Vec<u8>>, OpenError> {
        symmetric::begin_decrypting(context, self.iv.of_message(&self.der))?;
        self.go_on_decrypting(context)
    }

    /// The same with a key that has no context yet.
    pub(super) fn decrypt_with(&self, key: &[u8]) -> Result<Option<Vec<u8>>, OpenError> {
        let mut context = symmetric::decryptor_of_one(self.cipher(), key, self.iv.of_message(&self.der))?;
        self.go_on_decrypting(&mut context)
    }

    fn go_on_decrypting(&self, context: &mut CipherCtx) -> Result<Option<Vec<u8>>, OpenError> {
        let Some(tag) = self.tag else {
            return Ok(symmetric::cbc_decrypt(context, self.ciphertext())?);
        };
        // Associated data are the attributes as a SET OF, not as the [1] they travel in (RFC 5083, 2.2).
        let attributes = self.attributes.map(|part| part.of_message(&self.der));
        let set = [SET];
        let associated: &[&[u8]] = match &attributes {
            Some(attributes) => &[&set, attributes],
            None => &[],
        };
        Ok(symmetric::gcm_decrypt(context, associated, self.ciphertext(), tag.of_message(&self.der))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_again_where_it_was() {
        let whole = b"seventeen cows";
        for (start, end) in [(0, 0), (0, 9), (10, 14), (14, 14), (0, 14)] {
            let part = Part::of(whole, &whole[start..end]);
            assert_eq!(part.of_message(whole), &whole[start..end]);
        }
        assert_eq!(Part::of(whole, &whole[10..]).of_message(b"seven"), b"");
    }
}
