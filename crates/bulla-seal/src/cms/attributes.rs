//! Attributes: the signed or authenticated statements that travel beside the payload.

use std::time::SystemTime;

use bulla_device::Digest;
use jiff::civil::DateTime;

use super::reader::{Malformed, Reader, is_der, is_integer, is_oid, strictly_ascending};
use super::writer::{
    ENUMERATED, GENERALIZED_TIME, INTEGER, OCTET_STRING, OID, SEQUENCE, SET, UTC_TIME, UTF8_STRING, Writer, context,
    context_primitive, element, element_len,
};
use crate::certificate::{Certificate, time};
use crate::error::OpenError;
use crate::message::{
    Bound, CONTENT_TYPE_BYTES_MAX, Content, DESTINATION_BYTES_MAX, Expect, MESSAGE_ID_BYTES_MAX, Packing,
    SEALED_BY_BYTES_MAX,
};
use crate::oid;
use crate::on_behalf::OnBehalfOf;
use crate::policy::Quality;

/// Attributes that one set may hold.
pub(crate) const ATTRIBUTES_MAX: usize = 32;
/// Bytes of all attributes of one set.
pub(crate) const ATTRIBUTES_BYTES_MAX: usize = 16 << 10;
/// The version of the binding that is written. It binds message annotations, which version 1 does not.
const BINDING_VERSION: u8 = 2;
/// The version before, which is still read.
const BINDING_VERSION_FORMER: u8 = 1;

/// Attributes on their way out. They share one buffer and are sorted by reference when written, as
/// DER wants a `SET OF`.
pub(crate) struct AttributeWriter {
    buffer: Writer,
    ranges: [(usize, usize); AttributeWriter::COUNT_MAX],
    count: usize,
}

impl AttributeWriter {
    /// Of everything that this crate writes into one set.
    const COUNT_MAX: usize = 9;

    pub(crate) fn new() -> AttributeWriter {
        AttributeWriter { buffer: Writer::with_capacity(512), ranges: [(0, 0); AttributeWriter::COUNT_MAX], count: 0 }
    }

    /// One attribute whose single value is an encoded element.
    pub(crate) fn push(&mut self, oid: &[u8], value_len: usize, write: impl FnOnce(&mut Writer)) {
        let start = self.buffer.len();
        self.buffer.header(SEQUENCE, element_len(oid.len()) + element_len(value_len));
        self.buffer.element(OID, oid);
        self.buffer.header(SET, value_len);
        write(&mut self.buffer);
        if let Some(range) = self.ranges.get_mut(self.count) {
            *range = (start, self.buffer.len());
            self.count += 1;
        }
    }

    /// One attribute from an encoded value.
    pub(crate) fn push_raw(&mut self, oid: &[u8], value: &[u8]) {
        self.push(oid, value.len(), |out| out.raw(value));
    }

    /// Bytes of all attributes, without the set's own header.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The contents of the set, in order.
    pub(crate) fn sorted(&self) -> Vec<u8> {
        let buffer = self.buffer.as_slice();
        let mut ranges = self.ranges;
        let ranges = ranges.get_mut(..self.count).unwrap_or_default();
        let part = |range: &(usize, usize)| buffer.get(range.0..range.1).unwrap_or_default();
        ranges.sort_unstable_by(|a, b| part(a).cmp(part(b)));
        let mut out = Vec::with_capacity(buffer.len());
        ranges.iter().for_each(|range| out.extend_from_slice(part(range)));
        out
    }
}

/// Bytes of one attribute around a value of that many bytes.
pub(crate) const fn attribute_len(oid: &[u8], value_len: usize) -> usize {
    element_len(element_len(oid.len()) + element_len(value_len))
}

/// What a set of attributes says. Each field is the whole encoding of the attribute's one value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes<'a> {
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) message_digest: Option<&'a [u8]>,
    pub(crate) signing_time: Option<&'a [u8]>,
    pub(crate) algorithm_protection: Option<&'a [u8]>,
    pub(crate) signing_certificate: Option<&'a [u8]>,
    pub(crate) ours: Ours<'a>,
}

/// Our own attributes, values as in [`Attributes`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ours<'a> {
    pub(crate) binding: Option<&'a [u8]>,
    pub(crate) content: Option<&'a [u8]>,
    pub(crate) recipients: Option<&'a [u8]>,
    pub(crate) on_behalf_of: Option<&'a [u8]>,
}

impl<'a> Attributes<'a> {
    /// Reads the contents of a set of attributes, strictly: in order, none doubled, each with exactly
    /// one value, which is DER to its innermost part. Attributes of others that are not known here are
    /// passed over; of ours none may be unknown.
    pub(crate) fn read(contents: &'a [u8]) -> Result<Attributes<'a>, Malformed> {
        const TWICE: Malformed = Malformed("an attribute stands there twice");
        const NOT_DER: Malformed = Malformed("attributes that are not DER inside");
        if contents.len() > ATTRIBUTES_BYTES_MAX {
            return Err(Malformed("more than 16 KiB of attributes"));
        }
        let mut set = Reader::new(contents);
        let mut found = Attributes::default();
        let mut previous: &[u8] = &[];
        let mut unknown: Vec<&[u8]> = Vec::new();
        let mut count = 0;
        while !set.is_empty() {
            let whole = set.whole(SEQUENCE, "an attribute is unreadable")?;
            if !strictly_ascending(previous, whole) {
                return Err(Malformed("attributes out of order or doubled"));
            }
            previous = whole;
            let mut attribute = Reader::only(whole, SEQUENCE, "an attribute is unreadable")?;
            let oid = attribute.value(OID, "an attribute has no identifier")?;
            let values = attribute.value(SET, "an attribute has no values")?;
            attribute.end("an attribute has surplus fields")?;
            // One look at the value, whatever it is: it must be there, alone, and in one piece.
            let mut alone = values;
            let one = crate::certificate::tlv::next(&mut alone).is_some() && alone.is_empty();
            if !one {
                return Err(Malformed("an attribute without exactly one value"));
            }
            if !is_der(values) {
                return Err(NOT_DER);
            }
            if count == ATTRIBUTES_MAX {
                return Err(Malformed("more than 32 attributes"));
            }
            count += 1;
            let field = match oid {
                oid::CONTENT_TYPE => &mut found.content_type,
                oid::MESSAGE_DIGEST => &mut found.message_digest,
                oid::SIGNING_TIME => &mut found.signing_time,
                oid::ALGORITHM_PROTECTION => &mut found.algorithm_protection,
                oid::SIGNING_CERTIFICATE_V2 => &mut found.signing_certificate,
                oid::BINDING => &mut found.ours.binding,
                oid::CONTENT => &mut found.ours.content,
                oid::RECIPIENTS => &mut found.ours.recipients,
                oid::ON_BEHALF_OF => &mut found.ours.on_behalf_of,
                _ if oid.starts_with(oid::OUR_ATTRIBUTES) => {
                    return Err(Malformed("an attribute of a newer version"));
                }
                _ if !is_oid(oid) => return Err(NOT_DER),
                _ if unknown.contains(&oid) => return Err(TWICE),
                _ => {
                    unknown.push(oid);
                    continue;
                }
            };
            if field.replace(values).is_some() {
                return Err(TWICE);
            }
        }
        if count == 0 {
            return Err(Malformed("an empty set of attributes"));
        }
        Ok(found)
    }

    /// The content-type attribute must be there and say what the container says.
    pub(crate) fn check_content_type(&self, expected: &[u8]) -> Result<(), Malformed> {
        const WHAT: &str = "the content type differs from its attribute";
        let mut value = Reader::new(self.content_type.ok_or(Malformed(WHAT))?);
        if value.value(OID, WHAT)? == expected { Ok(()) } else { Err(Malformed(WHAT)) }
    }

    /// The hash in the message-digest attribute.
    pub(crate) fn digest(&self) -> Result<&'a [u8], Malformed> {
        const WHAT: &str = "no message digest among the signed attributes";
        Reader::new(self.message_digest.ok_or(Malformed(WHAT))?).value(OCTET_STRING, WHAT)
    }

    /// The signing-time attribute, if there is one.
    pub(crate) fn time(&self) -> Result<Option<SystemTime>, Malformed> {
        self.signing_time.map(read_time).transpose()
    }
}

impl Ours<'_> {
    /// Whether the message carries any attribute of ours. Then all rules for ours hold.
    pub(crate) fn any(&self) -> bool {
        let Ours { binding, content, recipients, on_behalf_of } = self;
        [binding, content, recipients, on_behalf_of].iter().any(|value| value.is_some())
    }
}

/// content-type: data, as the value of its attribute.
pub(crate) fn write_content_type(out: &mut AttributeWriter) {
    write_content_type_of(out, oid::ID_DATA);
}

/// content-type, of any type.
pub(crate) fn write_content_type_of(out: &mut AttributeWriter, content_type: &[u8]) {
    out.push(oid::CONTENT_TYPE, element_len(content_type.len()), |w| w.element(OID, content_type));
}

pub(crate) const CONTENT_TYPE_ATTRIBUTE_BYTES: usize = content_type_len(oid::ID_DATA);

pub(crate) const fn content_type_len(content_type: &[u8]) -> usize {
    attribute_len(oid::CONTENT_TYPE, element_len(content_type.len()))
}

pub(crate) fn write_message_digest(out: &mut AttributeWriter, hash: &[u8]) {
    out.push(oid::MESSAGE_DIGEST, element_len(hash.len()), |w| w.element(OCTET_STRING, hash));
}

/// signing-time (RFC 5652, 11.3): UTCTime until 2049, then GeneralizedTime. Out of its range the
/// nearest date that can be written is taken: nothing is decided by this attribute.
pub(crate) fn write_signing_time(out: &mut AttributeWriter, now: SystemTime) {
    let (tag, text, len) = encode_time(now);
    let digits = text.get(..len).unwrap_or_default();
    out.push(oid::SIGNING_TIME, element_len(len), |w| w.element(tag, digits));
}

pub(crate) fn signing_time_len(now: SystemTime) -> usize {
    attribute_len(oid::SIGNING_TIME, element_len(encode_time(now).2))
}

/// 1950-01-01 and 2050-01-01, between which UTCTime is used (RFC 5280, 4.1.2.5.1), and the last
/// second of the year 9999.
const UTC_TIME_FIRST_SECS: i64 = -631_152_000;
const UTC_TIME_END_SECS: i64 = 2_524_608_000;
const LAST_SECS: i64 = 253_402_300_799;

fn encode_time(now: SystemTime) -> (u8, [u8; 15], usize) {
    let seconds = time::unix(now).clamp(UTC_TIME_FIRST_SECS, LAST_SECS);
    let utc = seconds < UTC_TIME_END_SECS;
    let at = time::civil(seconds);
    let century = (!utc).then_some(at.year() / 100);
    let rest = [at.month(), at.day(), at.hour(), at.minute(), at.second()].map(i16::from);
    let pairs = century.into_iter().chain([at.year() % 100]).chain(rest);
    let mut text = [b'Z'; 15];
    let mut len = 1;
    for (slot, pair) in text.chunks_exact_mut(2).zip(pairs) {
        // Each is below 100.
        slot.copy_from_slice(&[b'0' + (pair / 10 % 10) as u8, b'0' + (pair % 10) as u8]);
        len += 2;
    }
    (if utc { UTC_TIME } else { GENERALIZED_TIME }, text, len)
}

/// A time as the signing-time attribute has it.
pub(crate) fn time_element(time: SystemTime) -> Vec<u8> {
    let (tag, text, len) = encode_time(time);
    element(tag, &[text.get(..len).unwrap_or_default()])
}

/// Reads a time as the signing-time attribute has it.
pub(crate) fn read_time(value: &[u8]) -> Result<SystemTime, Malformed> {
    const BAD: Malformed = Malformed("the signing time is unreadable");
    let mut reader = Reader::new(value);
    let (digits, utc) = match reader.peek() {
        Some(UTC_TIME) => (reader.value(UTC_TIME, BAD.0)?, true),
        _ => (reader.value(GENERALIZED_TIME, BAD.0)?, false),
    };
    let digits = digits.strip_suffix(b"Z").ok_or(BAD)?;
    if digits.len() != if utc { 12 } else { 14 } || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BAD);
    }
    let mut fields = digits.chunks_exact(2).map(|two| match two {
        [tens, ones] => ((tens - b'0') * 10 + (ones - b'0')).cast_signed(),
        _ => 0,
    });
    let mut next = || fields.next().ok_or(BAD);
    let first = i16::from(next()?);
    let year = match utc {
        true if first < 50 => 2000 + first,
        true => 1900 + first,
        false => first * 100 + i16::from(next()?),
    };
    let at = DateTime::new(year, next()?, next()?, next()?, next()?, next()?, 0).map_err(|_| BAD)?;
    time::from_unix(time::from_civil(at)).ok_or(BAD)
}

/// CMSAlgorithmProtection (RFC 6211): the algorithms of the signer, under its signature.
pub(crate) fn algorithm_protection(digest: &[u8], signature: &[u8]) -> Vec<u8> {
    // The signature algorithm is [1] IMPLICIT: the same contents under another tag.
    let mut renamed = signature.to_vec();
    if let Some(tag) = renamed.first_mut() {
        *tag = context(1);
    }
    element(SEQUENCE, &[digest, &renamed])
}

/// signingCertificateV2 (RFC 5035): SHA-256 of the signer's certificate, then of each other
/// certificate that travels along, so that none of them can be exchanged.
pub(crate) fn signing_certificate(leaf: &Certificate, others: &[&Certificate]) -> Vec<u8> {
    let one = |certificate: &Certificate| element(SEQUENCE, &[&element(OCTET_STRING, &[certificate.fingerprint()])]);
    let mut list = one(leaf);
    for other in others {
        list.extend_from_slice(&one(other));
    }
    element(SEQUENCE, &[&element(SEQUENCE, &[&list])])
}

/// Whether a signingCertificateV2 names this signer first. With `all` every other certificate of the
/// message must be named too.
pub(crate) fn check_signing_certificate(
    value: &[u8],
    leaf: &Certificate,
    all: Option<&[&[u8]]>,
) -> Result<(), OpenError> {
    const WHAT: &str = "the signing certificate attribute is unreadable";
    const OTHER: OpenError = OpenError::Tampered { what: "the signing certificate attribute" };
    let mut fields = Reader::only(value, SEQUENCE, WHAT)?;
    let mut certificates = fields.enter(SEQUENCE, WHAT)?;
    // Policies may follow (RFC 5035, 3); they say nothing here.
    let _policies = fields.optional(SEQUENCE);
    fields.end(WHAT)?;
    let mut first = true;
    let mut rest: Vec<&[u8]> = match all {
        Some(all) => all.iter().copied().filter(|der| *der != leaf.der()).collect(),
        None => Vec::new(),
    };
    while !certificates.is_empty() {
        let mut identifier = certificates.enter(SEQUENCE, WHAT)?;
        let digest = match identifier.peek() {
            Some(SEQUENCE) => super::algorithm::read_digest(identifier.whole(SEQUENCE, WHAT)?)?,
            _ => Digest::Sha256,
        };
        let hash = identifier.value(OCTET_STRING, WHAT)?;
        let issuer_serial = identifier.optional(SEQUENCE);
        identifier.end(WHAT)?;
        if first {
            // The SHA-256 of a certificate is known from when it was read.
            let fits = match digest {
                Digest::Sha256 => leaf.fingerprint() == hash,
                _ => *digest.hash(leaf.der()) == *hash,
            };
            if !fits {
                return Err(OTHER);
            }
            if let Some(issuer_serial) = issuer_serial {
                check_issuer_serial(issuer_serial, leaf)?;
            }
            first = false;
        } else if let Some(at) = rest.iter().position(|der| *digest.hash(der) == *hash) {
            rest.swap_remove(at);
        }
    }
    if first || !rest.is_empty() { Err(OTHER) } else { Ok(()) }
}

/// IssuerSerial (RFC 5035, 5): the issuer as the one directoryName of a GeneralNames, and the serial.
fn check_issuer_serial(contents: &[u8], leaf: &Certificate) -> Result<(), OpenError> {
    const WHAT: &str = "the signing certificate attribute is unreadable";
    let mut fields = Reader::new(contents);
    let names = fields.value(SEQUENCE, WHAT)?;
    let serial = fields.whole(INTEGER, WHAT)?;
    fields.end(WHAT)?;
    if names == element(context(4), &[leaf.issuer_der()]) && serial == leaf.serial_der() {
        Ok(())
    } else {
        Err(OpenError::Tampered { what: "the signing certificate attribute" })
    }
}

/// What the binding attribute says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding<'a> {
    pub(crate) quality: Quality,
    pub(crate) destination: &'a str,
    pub(crate) message_id: &'a [u8],
    pub(crate) properties: &'a [u8; 32],
    pub(crate) application_properties: &'a [u8; 32],
    pub(crate) sealed_by: Option<&'a str>,
    /// Only version 1 has none.
    pub(crate) annotations: Option<&'a [u8; 32]>,
}

fn binding_value_len(bound: &Bound, sealed_by: Option<&str>) -> usize {
    3 + 3
        + element_len(bound.destination.len())
        + element_len(bound.message_id.len())
        + 3 * element_len(32)
        + sealed_by.map_or(0, |name| element_len(name.len()))
}

/// The binding attribute, see `docs/formats/sealed-message.md`.
pub(crate) fn write_binding(out: &mut AttributeWriter, quality: Quality, bound: &Bound, sealed_by: Option<&str>) {
    let len = binding_value_len(bound, sealed_by);
    out.push(oid::BINDING, element_len(len), |w| {
        w.header(SEQUENCE, len);
        w.small_integer(BINDING_VERSION);
        w.element(ENUMERATED, &[quality_number(quality)]);
        w.element(UTF8_STRING, bound.destination.as_bytes());
        w.element(OCTET_STRING, &bound.message_id);
        w.element(OCTET_STRING, &section_digest(&bound.properties));
        w.element(OCTET_STRING, &section_digest(&bound.application_properties));
        if let Some(name) = sealed_by {
            w.element(context_primitive(0), name.as_bytes());
        }
        w.element(context_primitive(1), &section_digest(&bound.annotations));
    });
}

pub(crate) fn binding_len(bound: &Bound, sealed_by: Option<&str>) -> usize {
    attribute_len(oid::BINDING, element_len(binding_value_len(bound, sealed_by)))
}

fn quality_number(quality: Quality) -> u8 {
    match quality {
        Quality::None => 0,
        Quality::Integrity => 1,
        Quality::Privacy => 2,
        Quality::Confidentiality => 3,
    }
}

/// SHA-256 of a section; of nothing when it is absent, which is common enough to know by heart.
pub(crate) fn section_digest(section: &[u8]) -> [u8; 32] {
    if section.is_empty() {
        return SHA256_OF_NOTHING;
    }
    sha256(section)
}

const SHA256_OF_NOTHING: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// By the direct functions: fetching the algorithm would cost more than hashing.
pub(crate) fn sha256(data: &[u8]) -> [u8; 32] {
    let mut hasher = openssl::sha::Sha256::new();
    hasher.update(data);
    hasher.finish()
}

impl<'a> Binding<'a> {
    /// Reads the value of the binding attribute.
    pub(crate) fn read(value: &'a [u8]) -> Result<Binding<'a>, Malformed> {
        const WHAT: &str = "the binding attribute is unreadable";
        let mut fields = Reader::only(value, SEQUENCE, WHAT)?;
        let version = fields.small_integer(WHAT)?;
        if version != BINDING_VERSION && version != BINDING_VERSION_FORMER {
            return Err(Malformed("the binding attribute is of another version"));
        }
        let quality = match fields.value(ENUMERATED, WHAT)? {
            [1] => Quality::Integrity,
            [2] => Quality::Privacy,
            [3] => Quality::Confidentiality,
            _ => return Err(Malformed(WHAT)),
        };
        let destination = text(fields.value(UTF8_STRING, WHAT)?, DESTINATION_BYTES_MAX)?;
        let message_id = fields.value(OCTET_STRING, WHAT)?;
        if message_id.len() > MESSAGE_ID_BYTES_MAX {
            return Err(Malformed("a bound message id of more than 1 KiB"));
        }
        let properties = hash(fields.value(OCTET_STRING, WHAT)?)?;
        let application_properties = hash(fields.value(OCTET_STRING, WHAT)?)?;
        let sealed_by =
            fields.optional(context_primitive(0)).map(|name| text(name, SEALED_BY_BYTES_MAX)).transpose()?;
        let annotations = match version {
            BINDING_VERSION => Some(hash(fields.value(context_primitive(1), WHAT)?)?),
            _ => None,
        };
        fields.end(WHAT)?;
        Ok(Binding { quality, destination, message_id, properties, application_properties, sealed_by, annotations })
    }

    /// Whether the message is where, and beside what, it was sealed.
    pub(crate) fn check(&self, expect: &Expect, bind_names: &[String]) -> Result<(), OpenError> {
        let mut places = expect.destinations.iter().chain(bind_names);
        if !places.any(|place| place == self.destination) {
            return Err(OpenError::Moved { destination: self.destination.to_owned() });
        }
        if self.message_id != expect.message_id {
            return Err(OpenError::Tampered { what: "the message id" });
        }
        if *self.properties != section_digest(&expect.properties) {
            return Err(OpenError::Tampered { what: "the properties section" });
        }
        if *self.application_properties != section_digest(&expect.application_properties) {
            return Err(OpenError::Tampered { what: "the application-properties section" });
        }
        // A message of the former version bound no annotations.
        if self.annotations.is_some_and(|annotations| *annotations != section_digest(&expect.annotations)) {
            return Err(OpenError::Tampered { what: "a message annotation that says how the body is read" });
        }
        Ok(())
    }
}

fn text(bytes: &[u8], max: usize) -> Result<&str, Malformed> {
    if bytes.len() > max {
        return Err(Malformed("a bound name is too long"));
    }
    std::str::from_utf8(bytes).map_err(|_| Malformed("a bound name is not UTF-8"))
}

fn hash(bytes: &[u8]) -> Result<&[u8; 32], Malformed> {
    bytes.try_into().map_err(|_| Malformed("a bound digest has not 32 bytes"))
}

fn content_value_len(content_type: Option<&str>) -> usize {
    3 + content_type.map_or(0, |text| element_len(text.len()))
}

/// The content attribute: how the body was packed, and its content-type.
pub(crate) fn write_content(out: &mut AttributeWriter, content: &Content) {
    let content_type = content.content_type.as_deref();
    let len = content_value_len(content_type);
    out.push(oid::CONTENT, element_len(len), |w| {
        w.header(SEQUENCE, len);
        let packing = match content.packing {
            Packing::Data => 0,
            Packing::Sections => 1,
        };
        w.element(ENUMERATED, &[packing]);
        if let Some(text) = content_type {
            w.element(UTF8_STRING, text.as_bytes());
        }
    });
}

pub(crate) fn content_len(content: &Content) -> usize {
    attribute_len(oid::CONTENT, element_len(content_value_len(content.content_type.as_deref())))
}

/// Reads the value of the content attribute.
pub(crate) fn read_content(value: &[u8]) -> Result<(Packing, Option<&str>), Malformed> {
    const WHAT: &str = "the content attribute is unreadable";
    let mut fields = Reader::only(value, SEQUENCE, WHAT)?;
    let packing = match fields.value(ENUMERATED, WHAT)? {
        [0] => Packing::Data,
        [1] => Packing::Sections,
        _ => return Err(Malformed(WHAT)),
    };
    let content_type = fields.optional(UTF8_STRING).map(|bytes| text(bytes, CONTENT_TYPE_BYTES_MAX)).transpose()?;
    fields.end(WHAT)?;
    Ok((packing, content_type))
}

/// The attribute of former signers.
pub(crate) fn write_on_behalf_of(out: &mut AttributeWriter, said: Option<&OnBehalfOf>) {
    if let Some(said) = said {
        out.push_raw(oid::ON_BEHALF_OF, &said.to_der());
    }
}

/// The recipients attribute: SHA-256 of the whole `RecipientInfos`.
pub(crate) fn write_recipients(out: &mut AttributeWriter, digest: &[u8; 32]) {
    out.push(oid::RECIPIENTS, element_len(32), |w| w.element(OCTET_STRING, digest));
}

pub(crate) const RECIPIENTS_ATTRIBUTE_BYTES: usize = attribute_len(oid::RECIPIENTS, element_len(32));

pub(crate) fn read_recipients(value: &[u8]) -> Result<&[u8; 32], Malformed> {
    const WHAT: &str = "the recipients attribute is unreadable";
    hash(Reader::new(value).value(OCTET_STRING, WHAT)?)
}

/// A certificate's or recipient's serial must be a proper INTEGER, and the name before it DER; it is taken as it
/// stands, because it is only ever compared byte for byte.
pub(crate) fn check_issuer_and_serial(whole: &[u8]) -> Result<(), Malformed> {
    const WHAT: &str = "an issuer and serial number is unreadable";
    let mut fields = Reader::only(whole, SEQUENCE, WHAT)?;
    let name = fields.value(SEQUENCE, WHAT)?;
    let serial = fields.value(INTEGER, WHAT)?;
    fields.end(WHAT)?;
    if is_integer(serial) && is_der(name) { Ok(()) } else { Err(Malformed(WHAT)) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use bytes::Bytes;

    use super::*;

    fn bound() -> Bound {
        Bound {
            destination: "ORDERS@QM1".into(),
            message_id: Bytes::from_static(b"\xa1\x02id"),
            properties: Bytes::from_static(b"props"),
            application_properties: Bytes::new(),
            annotations: Bytes::from_static(b"annotations"),
        }
    }

    fn attribute(oid: &[u8], values: &[u8]) -> Vec<u8> {
        element(SEQUENCE, &[&element(OID, &[oid]), &element(SET, &[values])])
    }

    #[test]
    fn our_attributes_read_back_and_are_as_long_as_predicted() {
        let content =
            Content { packing: Packing::Sections, content_type: Some("text/plain".into()), bytes: Bytes::new() };
        let mut writer = AttributeWriter::new();
        write_content_type(&mut writer);
        write_binding(&mut writer, Quality::Privacy, &bound(), Some("QM1"));
        write_content(&mut writer, &content);
        write_recipients(&mut writer, &[9; 32]);
        let predicted = CONTENT_TYPE_ATTRIBUTE_BYTES
            + binding_len(&bound(), Some("QM1"))
            + content_len(&content)
            + RECIPIENTS_ATTRIBUTE_BYTES;
        assert_eq!(writer.len(), predicted);
        let set = writer.sorted();
        let read = Attributes::read(&set).unwrap();
        read.check_content_type(oid::ID_DATA).unwrap();
        let binding = Binding::read(read.ours.binding.unwrap()).unwrap();
        assert_eq!((binding.destination, binding.sealed_by), ("ORDERS@QM1", Some("QM1")));
        assert_eq!(binding.quality, Quality::Privacy);
        assert_eq!(read_content(read.ours.content.unwrap()).unwrap(), (Packing::Sections, Some("text/plain")));
        assert_eq!(read_recipients(read.ours.recipients.unwrap()).unwrap(), &[9; 32]);
    }

    #[test]
    fn doubled_empty_many_valued_unordered_and_newer_attributes_are_refused() {
        let one = attribute(oid::MESSAGE_DIGEST, &element(OCTET_STRING, &[&[1; 32]]));
        let two = attribute(oid::MESSAGE_DIGEST, &element(OCTET_STRING, &[&[2; 32]]));
        let mut wrong_order = two.clone();
        wrong_order.extend_from_slice(&one);
        let mut doubled = one.clone();
        doubled.extend_from_slice(&two);
        let many = attribute(oid::MESSAGE_DIGEST, &[OCTET_STRING, 0, OCTET_STRING, 0]);
        let foreign = attribute(&[0x2a, 3], &[NULL_VALUE, 0]);
        let foreign_again = attribute(&[0x2a, 3], &[OCTET_STRING, 0]);
        let foreign_doubled = [foreign_again, foreign].concat();
        let mut newer = oid::OUR_ATTRIBUTES.to_vec();
        newer.push(9);
        let long = attribute(oid::MESSAGE_DIGEST, &element(OCTET_STRING, &[&[0; ATTRIBUTES_BYTES_MAX]]));
        for (bad, what) in [
            (wrong_order, "attributes out of order or doubled"),
            (doubled, "an attribute stands there twice"),
            (foreign_doubled, "an attribute stands there twice"),
            (attribute(oid::MESSAGE_DIGEST, &[]), "an attribute without exactly one value"),
            (many, "an attribute without exactly one value"),
            (attribute(&newer, &[NULL_VALUE, 0]), "an attribute of a newer version"),
            (attribute(&[0x2a, 0x80, 3], &[NULL_VALUE, 0]), "attributes that are not DER inside"),
            (attribute(oid::BINDING, &[SEQUENCE, 3, INTEGER, 0x81, 0]), "attributes that are not DER inside"),
            (Vec::new(), "an empty set of attributes"),
            (long, "more than 16 KiB of attributes"),
            (vec![SEQUENCE, 0x80, 0, 0], "an attribute is unreadable"),
        ] {
            assert_eq!(Attributes::read(&bad), Err(Malformed(what)));
        }
    }

    const NULL_VALUE: u8 = 5;

    #[test]
    fn a_bound_value_that_differs_is_named() {
        let mut writer = AttributeWriter::new();
        write_binding(&mut writer, Quality::Integrity, &bound(), None);
        let set = writer.sorted();
        let binding = Binding::read(Attributes::read(&set).unwrap().ours.binding.unwrap()).unwrap();
        let right = Expect {
            destinations: vec!["ORDERS@QM1".into()],
            message_id: bound().message_id,
            properties: bound().properties,
            application_properties: Bytes::new(),
            annotations: bound().annotations,
        };
        assert_eq!(binding.check(&right, &[]), Ok(()));
        let elsewhere = Expect { destinations: vec!["OTHER@QM1".into()], ..right.clone() };
        assert_eq!(binding.check(&elsewhere, &[]).unwrap_err().cause(), "moved");
        assert_eq!(binding.check(&elsewhere, &["ORDERS@QM1".to_owned()]), Ok(()));
        for changed in [
            Expect { message_id: Bytes::from_static(b"x"), ..right.clone() },
            Expect { properties: Bytes::new(), ..right.clone() },
            Expect { annotations: Bytes::new(), ..right.clone() },
            Expect { application_properties: Bytes::from_static(b"x"), ..right.clone() },
        ] {
            assert_eq!(binding.check(&changed, &[]).unwrap_err().cause(), "tampered");
        }
        // The former version: another number, and nothing of annotations.
        let value = Attributes::read(&set).unwrap().ours.binding.unwrap();
        let mut former = value[..value.len() - 34].to_vec();
        former[1] -= 34;
        assert_eq!(former[4], 2, "a sequence whose length takes one byte, and its version");
        former[4] = 1;
        let former = Binding::read(&former).unwrap();
        assert_eq!(former.check(&Expect { annotations: Bytes::new(), ..right.clone() }, &[]), Ok(()));
        assert_eq!(former.check(&right, &[]), Ok(()));
        // Neither half of a version.
        let mut short = value[..value.len() - 34].to_vec();
        short[1] -= 34;
        assert!(Binding::read(&short).is_err());
    }

    #[test]
    fn signing_times_read_back_on_both_sides_of_2050() {
        for seconds in [0, 951_782_400, 1_795_296_885, 2_524_607_999, 2_524_608_000, 253_402_300_799] {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            let mut writer = AttributeWriter::new();
            write_signing_time(&mut writer, now);
            assert_eq!(writer.len(), signing_time_len(now));
            let set = writer.sorted();
            assert_eq!(Attributes::read(&set).unwrap().time(), Ok(Some(now)), "{seconds}");
        }
        for bad in
            [&b"\x17\x0d260231000000Z"[..], b"\x17\x0d260101000060Z", b"\x17\x0b2601010000Z", b"\x17\x0d26010100000aZ"]
        {
            assert!(read_time(bad).is_err());
        }
    }
}
