//! `AuthEnvelopedData` (RFC 5083) and `EnvelopedData` (RFC 5652, section 6).

use bulla_device::{Digest, MlKem, RsaPadding};

use super::Name;
use super::algorithm::{
    AES_BLOCK_BYTES, GCM_TAG_BYTES, aes_wrap_identifier, check_hkdf, cipher_identifier_len, hkdf_identifier,
    kem_identifier, read_aes_wrap, read_agreement, read_cipher, read_kem, read_rsa_wrap, write_cipher,
};
use super::attributes::{Attributes, check_issuer_and_serial};
use super::reader::{Malformed, Reader, is_oid, read_der, strictly_ascending};
use super::writer::{
    BIT_STRING, INTEGER, NULL, OCTET_STRING, OID, SEQUENCE, SET, Writer, context, context_primitive, element,
    element_len,
};
use crate::error::OpenError;
use crate::oid;
use crate::policy::{ContentCipher, RECIPIENTS_MAX};

/// Everything of an envelope but the ciphertext, ready to be written.
pub(crate) struct EnvelopeLayout<'a> {
    /// The content cipher; it decides the container.
    pub(crate) cipher: ContentCipher,
    /// The recipient infos, in DER's order, header included.
    pub(crate) recipients: &'a [u8],
    /// What kinds of recipients there are: the version of `EnvelopedData` tells.
    pub(crate) kinds: RecipientKinds,
    /// Bytes of the attributes, without the header around them; 0: none.
    pub(crate) attributes_len: usize,
    /// Bytes of the plaintext.
    pub(crate) plaintext_len: usize,
}

impl EnvelopeLayout<'_> {
    /// Bytes of the ciphertext.
    pub(crate) fn ciphertext_len(&self) -> usize {
        if self.cipher.is_authenticated() {
            self.plaintext_len
        } else {
            // PKCS#7 padding: at least one byte, up to the next whole block.
            (self.plaintext_len / AES_BLOCK_BYTES + 1) * AES_BLOCK_BYTES
        }
    }

    fn content_len(&self) -> usize {
        element_len(oid::ID_DATA.len()) + cipher_identifier_len(self.cipher) + element_len(self.ciphertext_len())
    }

    fn attributes_element_len(&self) -> usize {
        if self.attributes_len == 0 { 0 } else { element_len(self.attributes_len) }
    }

    fn envelope_len(&self) -> usize {
        let mac = if self.cipher.is_authenticated() { element_len(GCM_TAG_BYTES) } else { 0 };
        3 + self.recipients.len() + element_len(self.content_len()) + self.attributes_element_len() + mac
    }

    fn oid(&self) -> &'static [u8] {
        if self.cipher.is_authenticated() { oid::AUTH_ENVELOPED_DATA } else { oid::ENVELOPED_DATA }
    }

    fn body_len(&self) -> usize {
        element_len(self.oid().len()) + element_len(element_len(self.envelope_len()))
    }

    /// Bytes of the whole `ContentInfo`.
    pub(crate) fn len(&self) -> usize {
        element_len(self.body_len())
    }

    /// Writes the whole `ContentInfo`. `encrypt` appends exactly the ciphertext and returns the tag
    /// (unused for CBC).
    pub(crate) fn write<E>(
        &self,
        out: &mut Writer,
        iv: &[u8],
        attributes: &[u8],
        encrypt: impl FnOnce(&mut Writer) -> Result<[u8; GCM_TAG_BYTES], E>,
    ) -> Result<(), E> {
        out.header(SEQUENCE, self.body_len());
        out.element(OID, self.oid());
        out.header(context(0), element_len(self.envelope_len()));
        out.header(SEQUENCE, self.envelope_len());
        out.small_integer(self.version());
        out.raw(self.recipients);
        out.header(SEQUENCE, self.content_len());
        out.element(OID, oid::ID_DATA);
        write_cipher(out, self.cipher, iv);
        out.header(context_primitive(0), self.ciphertext_len());
        let tag = encrypt(out)?;
        if self.attributes_len > 0 {
            out.element(context(1), attributes);
        }
        if self.cipher.is_authenticated() {
            out.element(OCTET_STRING, &tag);
        }
        Ok(())
    }

    fn version(&self) -> u8 {
        self.kinds.version(self.cipher.is_authenticated(), self.attributes_len > 0)
    }
}

/// What kinds of recipients an envelope has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum RecipientKinds {
    /// Each has an RSA key and is named by issuer and serial number.
    #[default]
    Simple,
    /// One agrees on a key, or is named by its key.
    Further,
    /// One is sent a key by ML-KEM.
    Encapsulated,
}

impl RecipientKinds {
    /// The version of the envelope: RFC 5652, 6.1; always 0 for `AuthEnvelopedData` (RFC 5083, 2.1).
    pub(crate) fn version(self, is_authenticated: bool, has_attributes: bool) -> u8 {
        match self {
            _ if is_authenticated => 0,
            RecipientKinds::Encapsulated => 3,
            RecipientKinds::Simple if !has_attributes => 0,
            RecipientKinds::Simple | RecipientKinds::Further => 2,
        }
    }
}

/// Bytes of user keying material that a recipient info may have.
const UKM_BYTES_MAX: usize = 1 << 10;
/// Bytes of the key that wraps the content key for a recipient with an ML-KEM key.
pub(crate) const KEM_WRAPPING_KEY_BYTES: usize = 32;

/// A recipient with an ML-KEM key: `OtherRecipientInfo` with a `KEMRecipientInfo` (RFC 9629, section 3).
pub(crate) fn kem_info(name: &[u8], set: MlKem, ciphertext: &[u8], encrypted_key: &[u8]) -> Vec<u8> {
    let info = element(
        SEQUENCE,
        &[
            &[INTEGER, 1, 0],
            name,
            &kem_identifier(set),
            &element(OCTET_STRING, &[ciphertext]),
            &hkdf_identifier(),
            &[INTEGER, 1, KEM_WRAPPING_KEY_BYTES as u8],
            &aes_wrap_identifier(KEM_WRAPPING_KEY_BYTES),
            &element(OCTET_STRING, &[encrypted_key]),
        ],
    );
    element(context(4), &[&element(OID, &[oid::ORI_KEM]), &info])
}

/// `CMSORIforKEMOtherInfo` (RFC 9629, section 5): what the derivation mixes in.
pub(crate) fn kem_other_info(ukm: Option<&[u8]>) -> Vec<u8> {
    let ukm = ukm.map(|ukm| element(context(0), &[&element(OCTET_STRING, &[ukm])])).unwrap_or_default();
    element(
        SEQUENCE,
        &[&aes_wrap_identifier(KEM_WRAPPING_KEY_BYTES), &[INTEGER, 1, KEM_WRAPPING_KEY_BYTES as u8], &ukm],
    )
}

/// A recipient with an RSA key, ready to be put into the set.
pub(crate) fn transport_info(name: &[u8], algorithm: &[u8], encrypted_key: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&[0x02, 1, 0], name, algorithm, &element(OCTET_STRING, &[encrypted_key])])
}

/// A recipient with an EC key: one ephemeral key, one recipient.
pub(crate) fn agreement_info(name: &[u8], algorithm: &[u8], point: &[u8], encrypted_key: &[u8]) -> Vec<u8> {
    let key_algorithm = element(SEQUENCE, &[&element(OID, &[oid::EC_PUBLIC_KEY])]);
    let public_key = element(BIT_STRING, &[&[0], point]);
    let originator = element(context(0), &[&element(context(1), &[&key_algorithm, &public_key])]);
    let one = element(SEQUENCE, &[name, &element(OCTET_STRING, &[encrypted_key])]);
    element(context(1), &[&[0x02, 1, 3], &originator, algorithm, &element(SEQUENCE, &[&one])])
}

/// `ECC-CMS-SharedInfo` (RFC 5753, 7.2): what the derivation mixes in.
pub(crate) fn shared_info(wrap: &[u8], ukm: Option<&[u8]>, wrap_len: usize) -> Vec<u8> {
    let bits = u32::try_from(wrap_len * 8).unwrap_or(u32::MAX).to_be_bytes();
    let explicit_len = |contents: &[u8]| element_len(element_len(contents.len()));
    let len = wrap.len() + ukm.map_or(0, explicit_len) + explicit_len(&bits);
    let mut out = Writer::with_capacity(element_len(len));
    let explicit = |out: &mut Writer, number, contents: &[u8]| {
        out.header(context(number), element_len(contents.len()));
        out.element(OCTET_STRING, contents);
    };
    out.header(SEQUENCE, len);
    out.raw(wrap);
    if let Some(ukm) = ukm {
        explicit(&mut out, 0, ukm);
    }
    explicit(&mut out, 2, &bits);
    out.finish()
}

/// ANSI X9.63's derivation: hash the secret with a counter and the shared information until there
/// are bytes enough.
pub(crate) fn derive_key(digest: Digest, secret: &[u8], shared: &[u8], len: usize) -> zeroize::Zeroizing<Vec<u8>> {
    let mut key = zeroize::Zeroizing::new(Vec::with_capacity(len + Digest::hash_len(digest)));
    let mut counter: u32 = 1;
    while key.len() < len {
        key.extend_from_slice(&digest.hash_parts(&[secret, &counter.to_be_bytes(), shared]));
        counter = counter.saturating_add(1);
    }
    key.truncate(len);
    key
}

/// Sorted into a DER `SET OF`, header included.
pub(crate) fn recipient_set(mut infos: Vec<Vec<u8>>) -> Vec<u8> {
    infos.sort_unstable();
    let parts: Vec<&[u8]> = infos.iter().map(Vec::as_slice).collect();
    element(SET, &parts)
}

/// An envelope as it arrived.
pub(crate) struct Enveloped<'a> {
    /// One entry for each recipient.
    pub(crate) recipients: Vec<Recipient<'a>>,
    /// The whole `RecipientInfos`, header included.
    pub(crate) recipients_whole: &'a [u8],
    /// The content cipher.
    pub(crate) cipher: ContentCipher,
    /// Its nonce or initialisation vector.
    pub(crate) iv: &'a [u8],
    /// Whether what is inside is a `SignedData` without a `ContentInfo` around it.
    pub(crate) bare_signed: bool,
    /// The ciphertext.
    pub(crate) ciphertext: &'a [u8],
    /// The attributes as they stand there, header and all; authenticated only with GCM.
    pub(crate) attributes_whole: Option<&'a [u8]>,
    /// What the attributes say.
    pub(crate) attributes: Attributes<'a>,
    /// GCM's tag.
    pub(crate) tag: Option<&'a [u8]>,
}

/// One recipient.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipient<'a> {
    /// Which certificate.
    pub(crate) name: Name<'a>,
    /// How the content key travels.
    pub(crate) transport: Transport<'a>,
    /// The content key, wrapped.
    pub(crate) encrypted_key: &'a [u8],
}

/// How a content key travels.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transport<'a> {
    /// RSA key transport.
    Rsa(RsaPadding),
    /// Ephemeral-static ECDH and a key wrap.
    Ecdh {
        /// The ephemeral key, an uncompressed point.
        point: &'a [u8],
        /// The derivation's digest.
        kdf: Digest,
        /// The key wrap's identifier.
        wrap: &'a [u8],
        /// Bytes of the wrapping key.
        wrap_len: usize,
        /// User keying material.
        ukm: Option<&'a [u8]>,
    },
    /// ML-KEM, HKDF with SHA-256 and an AES-256 key wrap.
    Kem {
        /// The parameter set.
        set: MlKem,
        /// What the secret travels in.
        ciphertext: &'a [u8],
        /// User keying material.
        ukm: Option<&'a [u8]>,
    },
}

impl<'a> Enveloped<'a> {
    /// Reads the content of a `ContentInfo`: `AuthEnvelopedData` where `authenticated`, else
    /// `EnvelopedData`.
    pub(crate) fn read(encoded: &'a [u8], authenticated: bool) -> Result<Enveloped<'a>, OpenError> {
        const WHAT: &str = "an envelope is unreadable";
        let mut fields = Reader::only(encoded, SEQUENCE, WHAT)?;
        let version = fields.small_integer(WHAT)?;
        if fields.peek() == Some(context(0)) {
            return Err(Malformed("originator certificates inside the envelope").into());
        }
        let recipients_whole = fields.whole(SET, WHAT)?;
        let recipients = read_recipients(Reader::only(recipients_whole, SET, WHAT)?)?;
        let mut content = fields.enter(SEQUENCE, WHAT)?;
        let content_type = content.value(OID, WHAT)?;
        let bare_signed = match content_type {
            oid::ID_DATA => false,
            oid::SIGNED_DATA => true,
            _ => return Err(Malformed("an envelope holds something other than data").into()),
        };
        let algorithm = content.whole(SEQUENCE, WHAT)?;
        let (cipher, iv) = read_der(algorithm, "a content cipher that is not DER inside", read_cipher(algorithm))?;
        let ciphertext = content.value(context_primitive(0), "the ciphertext is not in one piece")?;
        content.end(WHAT)?;
        let attributes_whole = match fields.peek() {
            Some(tag) if tag == context(1) => Some(fields.whole(context(1), WHAT)?),
            _ => None,
        };
        let attributes = match attributes_whole {
            Some(whole) => Attributes::read(Reader::new(whole).value(context(1), WHAT)?)?,
            None => Attributes::default(),
        };
        let tag = if authenticated {
            let tag = fields.value(OCTET_STRING, "an envelope without its tag")?;
            if tag.len() != GCM_TAG_BYTES {
                return Err(Malformed("GCM with a tag other than 16 bytes").into());
            }
            Some(tag)
        } else {
            None
        };
        fields.end("an envelope with surplus fields")?;
        if cipher.is_authenticated() != authenticated {
            return Err(Malformed("container and content cipher disagree").into());
        }
        // It belongs to a signature; here it would be compared with nothing (RFC 5083, 2.1).
        if attributes.message_digest.is_some() {
            return Err(Malformed("a message digest among the attributes of an envelope").into());
        }
        if authenticated {
            match attributes_whole {
                Some(_) => attributes.check_content_type(content_type)?,
                None if bare_signed => {
                    return Err(Malformed("an envelope of other content than data, without attributes").into());
                }
                None => {}
            }
        }
        let kinds = recipients.iter().map(|recipient| match (recipient.name, recipient.transport) {
            (_, Transport::Kem { .. }) => RecipientKinds::Encapsulated,
            (Name::IssuerAndSerial(_), Transport::Rsa(_)) => RecipientKinds::Simple,
            _ => RecipientKinds::Further,
        });
        let kinds = kinds.max().unwrap_or_default();
        if version != kinds.version(authenticated, attributes_whole.is_some()) {
            return Err(Malformed("an envelope of another version").into());
        }
        Ok(Enveloped {
            recipients,
            recipients_whole,
            cipher,
            iv,
            bare_signed,
            ciphertext,
            attributes_whole,
            attributes,
            tag,
        })
    }
}

fn read_recipients(mut set: Reader<'_>) -> Result<Vec<Recipient<'_>>, OpenError> {
    let mut recipients = Vec::with_capacity(4);
    let mut previous: &[u8] = &[];
    while !set.is_empty() {
        let tag = match set.peek() {
            Some(tag) if tag == SEQUENCE || tag == context(1) || tag == context(4) => tag,
            _ => {
                return Err(OpenError::WeakerThanPolicy {
                    what: "a recipient reached by something other than RSA, ECDH or ML-KEM",
                });
            }
        };
        let whole = set.whole(tag, "a recipient is unreadable")?;
        if !strictly_ascending(previous, whole) {
            return Err(Malformed("recipients out of order or doubled").into());
        }
        previous = whole;
        let read = if tag == SEQUENCE {
            read_transport(whole).and_then(|one| Ok(push(&mut recipients, one)?))
        } else if tag == context(4) {
            read_encapsulated(whole).and_then(|one| Ok(push(&mut recipients, one)?))
        } else {
            read_agreements(whole, &mut recipients)
        };
        read_der(whole, "a recipient that is not DER inside", read)?;
    }
    if recipients.is_empty() { Err(Malformed("an envelope without recipients").into()) } else { Ok(recipients) }
}

fn push<'a>(recipients: &mut Vec<Recipient<'a>>, one: Recipient<'a>) -> Result<(), Malformed> {
    if recipients.len() == RECIPIENTS_MAX {
        return Err(Malformed("more than 256 recipients"));
    }
    recipients.push(one);
    Ok(())
}

fn read_transport(whole: &[u8]) -> Result<Recipient<'_>, OpenError> {
    const WHAT: &str = "a recipient is unreadable";
    let mut fields = Reader::only(whole, SEQUENCE, WHAT)?;
    let version = fields.small_integer(WHAT)?;
    let name = match fields.peek() {
        Some(SEQUENCE) => read_issuer_and_serial(&mut fields)?,
        _ => Name::Key(fields.value(context_primitive(0), WHAT)?),
    };
    let expected = if matches!(name, Name::Key(_)) { 2 } else { 0 };
    if version != expected {
        return Err(Malformed("a recipient of another version").into());
    }
    let padding = read_rsa_wrap(fields.whole(SEQUENCE, WHAT)?)?;
    let encrypted_key = fields.value(OCTET_STRING, WHAT)?;
    fields.end("a recipient with surplus fields")?;
    Ok(Recipient { name, transport: Transport::Rsa(padding), encrypted_key })
}

/// `[4] OtherRecipientInfo` with a `KEMRecipientInfo`, and no other.
fn read_encapsulated(whole: &[u8]) -> Result<Recipient<'_>, OpenError> {
    const WHAT: &str = "a recipient is unreadable";
    let mut other = Reader::only(whole, context(4), WHAT)?;
    if other.value(OID, WHAT)? != oid::ORI_KEM {
        return Err(OpenError::WeakerThanPolicy {
            what: "a recipient reached by something other than RSA, ECDH or ML-KEM",
        });
    }
    let mut fields = other.enter(SEQUENCE, WHAT)?;
    other.end("a recipient with surplus fields")?;
    if fields.small_integer(WHAT)? != 0 {
        return Err(Malformed("a recipient of another version").into());
    }
    let name = match fields.peek() {
        Some(SEQUENCE) => read_issuer_and_serial(&mut fields)?,
        _ => Name::Key(fields.value(context_primitive(0), WHAT)?),
    };
    let set = read_kem(fields.whole(SEQUENCE, WHAT)?)?;
    let ciphertext = fields.value(OCTET_STRING, WHAT)?;
    if ciphertext.len() != set.ciphertext_len() {
        return Err(Malformed("an ML-KEM ciphertext of another length").into());
    }
    check_hkdf(fields.whole(SEQUENCE, WHAT)?)?;
    let wrapping_len = usize::from(fields.small_integer(WHAT)?);
    let ukm = read_ukm(&mut fields, context(0))?;
    let wrap_len = read_aes_wrap(fields.whole(SEQUENCE, WHAT)?)?;
    let encrypted_key = fields.value(OCTET_STRING, WHAT)?;
    fields.end("a recipient with surplus fields")?;
    if wrap_len != wrapping_len {
        return Err(Malformed("a wrapping key whose length is not its cipher's").into());
    }
    if wrap_len != KEM_WRAPPING_KEY_BYTES {
        return Err(OpenError::WeakerThanPolicy { what: "a key wrap other than AES-256 beside ML-KEM" });
    }
    Ok(Recipient { name, transport: Transport::Kem { set, ciphertext, ukm }, encrypted_key })
}

fn read_ukm<'a>(fields: &mut Reader<'a>, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
    const WHAT: &str = "a recipient is unreadable";
    let Some(explicit) = fields.optional(tag) else { return Ok(None) };
    let mut explicit = Reader::new(explicit);
    let ukm = explicit.value(OCTET_STRING, WHAT)?;
    explicit.end(WHAT)?;
    if ukm.len() > UKM_BYTES_MAX {
        return Err(Malformed("more than 1 KiB of user keying material"));
    }
    Ok(Some(ukm))
}

fn read_agreements<'a>(whole: &'a [u8], recipients: &mut Vec<Recipient<'a>>) -> Result<(), OpenError> {
    const WHAT: &str = "a recipient is unreadable";
    let mut fields = Reader::only(whole, context(1), WHAT)?;
    if fields.small_integer(WHAT)? != 3 {
        return Err(Malformed("a recipient of another version").into());
    }
    let point = read_originator(fields.enter(context(0), WHAT)?)?;
    let ukm = read_ukm(&mut fields, context(1))?;
    let (kdf, wrap) = read_agreement(fields.whole(SEQUENCE, WHAT)?)?;
    let wrap_len = read_aes_wrap(wrap)?;
    let mut keys = fields.enter(SEQUENCE, WHAT)?;
    fields.end("a recipient with surplus fields")?;
    if keys.is_empty() {
        return Err(Malformed(WHAT).into());
    }
    while !keys.is_empty() {
        let mut one = keys.enter(SEQUENCE, WHAT)?;
        let name = match one.peek() {
            Some(SEQUENCE) => read_issuer_and_serial(&mut one)?,
            _ => {
                let mut key = one.enter(context(0), WHAT)?;
                let identifier = key.value(OCTET_STRING, WHAT)?;
                key.end("a recipient with surplus fields")?;
                Name::Key(identifier)
            }
        };
        let encrypted_key = one.value(OCTET_STRING, WHAT)?;
        one.end("a recipient with surplus fields")?;
        let transport = Transport::Ecdh { point, kdf, wrap, wrap_len, ukm };
        push(recipients, Recipient { name, transport, encrypted_key })?;
    }
    Ok(())
}

fn read_issuer_and_serial<'a>(fields: &mut Reader<'a>) -> Result<Name<'a>, Malformed> {
    let whole = fields.whole(SEQUENCE, "a recipient is unreadable")?;
    check_issuer_and_serial(whole)?;
    Ok(Name::IssuerAndSerial(whole))
}

/// The originator's ephemeral key. Its parameters may be absent, NULL or a curve's name; the point
/// must be on the recipient's curve in any case.
fn read_originator(mut choice: Reader<'_>) -> Result<&[u8], Malformed> {
    const WHAT: &str = "an ephemeral key is unreadable";
    let mut key = choice.enter(context(1), "a key agreement without an ephemeral key")?;
    choice.end(WHAT)?;
    let mut algorithm = key.enter(SEQUENCE, WHAT)?;
    if algorithm.value(OID, WHAT)? != oid::EC_PUBLIC_KEY {
        return Err(Malformed(WHAT));
    }
    let named = match algorithm.peek() {
        Some(NULL) => algorithm.value(NULL, WHAT)?.is_empty(),
        Some(_) => is_oid(algorithm.value(OID, WHAT)?),
        None => true,
    };
    algorithm.end(WHAT)?;
    if !named {
        return Err(Malformed(WHAT));
    }
    let bits = key.value(BIT_STRING, WHAT)?;
    key.end(WHAT)?;
    match bits {
        [0, point @ ..] => Ok(point),
        _ => Err(Malformed(WHAT)),
    }
}
