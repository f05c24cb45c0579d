//! Between an AMQP message and what the seal knows: payload, what is bound to it, and back.
//!
//! The *properties* section keeps its bytes, save the two fields that sealing touches: a message-id
//! is made where there is none, and content-type says `application/pkcs7-mime` while the message is
//! sealed. What is bound is therefore the fields' encodings as they arrived, one after the other,
//! with content-type blanked (the original one stands in an attribute of its own) and absent fields
//! at the end left out. See `docs/formats/sealed-message.md`.

mod label;

use crate::channel::transmission::{self, Destination};
use crate::idempotency;
use crate::random::Random;
use crate::reason::{self, Refusal};
use crate::report_options;
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::MessageId;
use bulla_amqp::{BodyForm, Header, Payload, Sections, Symbol, Value, check_body, with_header};
use bulla_queue::{Chunks, Keys, Message};
use bulla_seal::{Bound, Content, Expect, OpenError, Opened, Packing, SealInfo, Sealed, Verified};
use bytes::Bytes;
pub use label::{
    Label, Was, damaged_letter, dead_letter, labelled, labelled_destination, labelled_queue, moved_message,
    unlabelled_message, wrapped,
};
use std::sync::OnceLock;

/// What a message without a header section gets: DEFPRTY and DEFPSIST; and how long any may lie there, CAPEXPRY.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    pub(crate) priority: u8,
    pub(crate) persistent: bool,
    /// CAPEXPRY in milliseconds: for messages with a header, too.
    pub expiry_cap_ms: Option<u64>,
}

impl Default for Defaults {
    /// The standard's own (AMQP part 3, section 3.2.1).
    fn default() -> Self {
        Self { priority: 4, persistent: false, expiry_cap_ms: None }
    }
}

/// What content-type of a sealed message starts with (RFC 8551, section 3.2).
const SEALED_CONTENT_TYPE: &str = "application/pkcs7-mime";
/// Prefix of the annotations that the error and dead-letter queues carry.
const LABEL_PREFIX: &str = "x-opt-bulla-";
/// The annotation with an idempotency key: a string, a symbol or bytes.
const IDEMPOTENCY_KEY: &str = "x-opt-bulla-idempotency-key";
/// The annotations of a message that was sealed anew: who signs it, and who had signed it before.
const SIGNER: Symbol = Symbol::from_static("x-opt-bulla-signer");
const ON_BEHALF_OF: Symbol = Symbol::from_static("x-opt-bulla-on-behalf-of");
/// Bytes of a body that are hashed to tell it from others: what is behind them has a CRC in the hash.
const BODY_HASHED_BYTES: usize = 256 << 10;
/// Fields of the properties section (AMQP part 3, section 3.2.4).
const PROPERTIES: usize = 13;
const MESSAGE_ID: usize = 0;
const USER_ID: usize = 1;
const TO: usize = 2;
const REPLY_TO: usize = 4;
const CONTENT_TYPE: usize = 6;
const ABSOLUTE_EXPIRY_TIME: usize = 8;
const NULL: u8 = 0x40;
/// Annotations by which a message is put for later, as Qpid JMS and others write them.
const DELIVERY_TIME: &[u8] = b"x-opt-delivery-time";
const DELIVERY_DELAY: &[u8] = b"x-opt-delivery-delay";
/// Message annotations by which clients decide how to read a body: these are bound, the others are not.
const BOUND_ANNOTATIONS: [&str; 2] = ["x-opt-jms-dest", "x-opt-jms-msg-type"];
/// What each of them begins with.
const BOUND_ANNOTATIONS_PREFIX: &[u8] = b"x-opt-jms-";
/// Descriptor of the message annotations (AMQP part 3, section 3.2.3).
const MESSAGE_ANNOTATIONS: u8 = 0x72;

/// A message as it arrived, its sections found.
pub struct Arrival {
    payload: Payload,
    sections: Sections,
    header: Option<Header>,
    fields: Fields,
    wall_ms: u64,
    /// Which keys open it, once that was asked for: a publication is copied for each subscription.
    keys: OnceLock<Keys>,
}

/// The encodings of the fields of a properties section, as they arrived; an absent one is empty or null.
#[derive(Default)]
struct Fields {
    section: Bytes,
    /// Where the first field begins.
    start: u32,
    /// Where each field ends; the next one begins there. An absent one has no bytes.
    ends: [u32; PROPERTIES],
}

impl Arrival {
    /// Finds the sections of a message that stays where it is, too.
    pub fn read(payload: &Payload, wall_ms: u64) -> Result<Self, Refusal> {
        Self::take(payload.clone(), wall_ms)
    }

    /// Finds the sections of a message; hot path, no body is looked into.
    pub fn take(payload: Payload, wall_ms: u64) -> Result<Self, Refusal> {
        let malformed = |what: &dyn std::fmt::Display| Refusal::new(reason::MD_ERROR, what.to_string());
        let sections = Sections::scan(&payload).map_err(|error| malformed(&error))?;
        let header = match &sections.header {
            Some(_) => Some(sections.decode_header(&payload).map_err(|error| malformed(&error))?),
            None => None,
        };
        let fields = match &sections.properties {
            Some(range) => Fields::read(payload.slice(range.clone()).to_contiguous())
                .ok_or_else(|| malformed(&"the properties section is malformed"))?,
            None => Fields::default(),
        };
        Ok(Self { payload, sections, header, fields, wall_ms, keys: OnceLock::new() })
    }

    /// Whether it has a section; delivery annotations alone, which are for one hop, are none.
    ///
    /// # Errors
    /// 2026 for a delivery that is no message (AMQP part 3, section 3.2).
    #[inline]
    pub fn check_sections(&self) -> Result<(), Refusal> {
        let Sections { header, message_annotations, footer, .. } = &self.sections;
        let is_there = header.is_some() || message_annotations.is_some() || footer.is_some();
        if is_there || !self.sections.bare().is_empty() {
            return Ok(());
        }
        Err(Refusal::new(reason::MD_ERROR, "a delivery without any section is no message"))
    }

    /// Bytes of the whole message.
    pub fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// The delivery annotations as they arrived; empty where there are none.
    pub fn delivery_annotations(&self) -> Bytes {
        self.section(self.sections.delivery_annotations.clone())
    }

    /// Where the transmission header says that the message goes.
    pub fn destination(&self) -> Option<Destination> {
        transmission::destination(&self.payload, &self.sections)
    }

    /// The message without its transmission header, and whatever else was for this hop alone.
    pub fn taken_off(self) -> Self {
        let (payload, sections) = transmission::taken_off(&self.payload, &self.sections);
        Self { payload, sections, ..self }
    }

    /// Takes off what looks like a label: a label is the queue manager's own record, so none comes from outside. With
    /// it goes the idempotency key, which is returned. One search in a message with annotations.
    #[inline]
    pub fn take_label_off(&mut self) -> Result<Option<Bytes>, Refusal> {
        if self.sections.message_annotations.is_none() { Ok(None) } else { self.take_label_off_annotations() }
    }

    fn take_label_off_annotations(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some(range) = self.sections.message_annotations.clone() else { return Ok(None) };
        if !report_options::holds(&self.payload.bytes_at(range), LABEL_PREFIX.as_bytes()) {
            return Ok(None);
        }
        let annotations = Sections::decode_map(&self.payload, self.sections.message_annotations.as_ref());
        let annotations = annotations.map_err(|error| Refusal::new(reason::MD_ERROR, error.to_string()))?;
        let key = annotations.iter().find(|(key, _)| key.as_str() == Some(IDEMPOTENCY_KEY));
        let key = key.map(|(_, value)| key_bytes(value)).transpose()?;
        let mut head = Vec::new();
        for section in [&self.sections.header, &self.sections.delivery_annotations] {
            head.extend_from_slice(&self.section(section.clone()));
        }
        let payload = with_front(head, &self.payload, &self.sections, &unlabelled(annotations));
        self.sections = Sections::scan(&payload).map_err(|error| Refusal::new(reason::MD_ERROR, error.to_string()))?;
        self.payload = payload;
        Ok(key)
    }

    /// What tells the message's body from others: SHA-256 over its length, its first [`BODY_HASHED_BYTES`] and the
    /// CRC-32C of what is behind them.
    pub fn body_digest(&self) -> [u8; 32] {
        let body = self.payload.slice(self.sections.body_range.start..self.payload.len());
        let mut hasher = openssl::sha::Sha256::new();
        hasher.update(&(body.len() as u64).to_be_bytes());
        body.slice(0..BODY_HASHED_BYTES).chunks().iter().for_each(|chunk| hasher.update(chunk));
        if body.len() > BODY_HASHED_BYTES {
            hasher.update(&chunks_of(body.slice(BODY_HASHED_BYTES..body.len())).crc().to_be_bytes());
        }
        hasher.finish()
    }

    /// Its message-id, as [`message_id`] tells it.
    pub fn message_id(&self) -> Option<String> {
        message_id(&self.payload)
    }

    /// The address in `to`.
    pub fn to(&self) -> Result<Option<String>, Refusal> {
        match self.fields.value(TO)? {
            Value::Null => Ok(None),
            Value::String(to) => Ok(Some(to)),
            _ => Err(Refusal::new(reason::MD_ERROR, "`to` is not a string")),
        }
    }

    /// Whether `user-id` is that user's name, or is not there. A look at one field.
    pub fn is_by(&self, user: Option<&str>) -> bool {
        let name = match self.fields.get(USER_ID) {
            [] | [NULL] => return true,
            [0xa0, _, name @ ..] | [0xb0, _, _, _, _, name @ ..] => name,
            _ => return false,
        };
        name.is_empty() || user.is_some_and(|user| user.as_bytes() == name)
    }

    /// The queue in `reply-to`.
    pub fn reply_to(&self) -> Result<Option<String>, Refusal> {
        Ok(self.fields.value(REPLY_TO)?.as_str().map(str::to_owned))
    }

    /// Whether the message asks to be told what becomes of it. One compare for a message without application
    /// properties; with them, a search.
    #[inline]
    pub fn asks_for_reports(&self) -> Result<bool, Refusal> {
        if !report_options::asks(&self.payload, &self.sections) {
            return Ok(false);
        }
        match self.fields.value(REPLY_TO)? {
            Value::String(_) => Ok(true),
            _ => Err(Refusal::new(reason::MISSING_REPLY_TO_Q, "a report is asked for, and `reply-to` names no queue")),
        }
    }

    /// Whether the message says that it is sealed.
    pub fn claims_seal(&self) -> bool {
        let kind = text(self.fields.get(CONTENT_TYPE)).and_then(|kind| kind.get(..SEALED_CONTENT_TYPE.len()));
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case(SEALED_CONTENT_TYPE))
    }

    /// The DER of a message that claims to be sealed: the bytes of its one data section.
    pub fn sealed_body(&self) -> Result<Bytes, Refusal> {
        match &self.sections.body {
            BodyForm::Data(range) => Ok(self.payload.slice(range.clone()).to_contiguous()),
            _ => Err(Refusal::security("malformed", "a sealed message has one data section")),
        }
    }

    /// Which keys open the message: of one that claims to be sealed its recipients. A compare for any other.
    pub fn needed_keys(&self) -> Keys {
        if !self.claims_seal() {
            return Keys::None;
        }
        self.keys.get_or_init(|| self.read_keys()).clone()
    }

    /// Reads the recipients of a message that claims to be sealed.
    fn read_keys(&self) -> Keys {
        // Its reader may read what this queue manager can't.
        let Ok(der) = self.sealed_body() else { return Keys::Unknown };
        match bulla_seal::recipients(&der) {
            Ok(names) if !names.is_empty() => Keys::OneOf(names.into()),
            Ok(_) | Err(OpenError::NotSealed) => Keys::None,
            Err(_) => Keys::Unknown,
        }
    }

    /// What the opener compares a sealed message's binding with.
    pub fn expect(&self, destinations: Vec<String>) -> Expect {
        Expect {
            destinations,
            message_id: Bytes::copy_from_slice(self.fields.get(MESSAGE_ID)),
            properties: self.fields.bound(self.fields.get(MESSAGE_ID)),
            application_properties: self.section(self.sections.application_properties.clone()),
            annotations: self.bound_annotations(),
        }
    }

    /// What is bound of the message annotations: name and value of each that steers how a body is read, encoded in one
    /// way and sorted. Nothing to do for a message without annotations; a search for most others.
    fn bound_annotations(&self) -> Bytes {
        let Some(range) = &self.sections.message_annotations else { return Bytes::new() };
        let section = self.section(Some(range.clone()));
        if !section.windows(BOUND_ANNOTATIONS_PREFIX.len()).any(|window| window == BOUND_ANNOTATIONS_PREFIX) {
            return Bytes::new();
        }
        // What can't be read is bound as it is: it fits nothing else.
        let Ok(pairs) = Sections::decode_map(&self.payload, Some(range)) else { return section };
        let is_bound = |key: &Value| key.as_str().is_some_and(|key| BOUND_ANNOTATIONS.contains(&key));
        let bound = pairs.iter().filter(|(key, _)| is_bound(key)).map(|(key, value)| {
            let mut pair = Vec::with_capacity(32);
            key.encode_to(&mut pair);
            value.encode_to(&mut pair);
            pair
        });
        let mut bound: Vec<Vec<u8>> = bound.collect();
        bound.sort_unstable();
        Bytes::from(bound.concat())
    }

    /// The queue that the label of an error or dead-letter queue names.
    pub fn labelled_queue(&self) -> Option<String> {
        labelled_queue(&self.payload)
    }

    /// The message for a queue, as it is.
    pub fn into_message(mut self, defaults: Defaults, user: Option<&str>) -> Message {
        self.take_message(defaults, user)
    }

    /// The message for a queue, as it is. The bytes leave with it: what is left says nothing more.
    pub fn take_message(&mut self, defaults: Defaults, user: Option<&str>) -> Message {
        let frame = self.message(defaults, user, Chunks::from(Bytes::new()));
        Message { body: chunks_of(std::mem::take(&mut self.payload)), ..frame }
    }

    /// The same message for one queue of several, as it is.
    pub fn copy(&self, defaults: Defaults, user: Option<&str>) -> Message {
        self.message(defaults, user, chunks_of(self.payload.clone()))
    }

    /// The same message once more, to be sealed for one queue of several.
    pub fn again(&self) -> Result<Self, Refusal> {
        Self::read(&self.payload, self.wall_ms)
    }

    /// The message as it arrived, in pieces.
    pub fn chunks(&self) -> &[Bytes] {
        self.payload.chunks()
    }

    /// Whether it must survive a restart.
    pub fn is_persistent(&self, defaults: Defaults) -> bool {
        self.header.as_ref().map_or(defaults.persistent, |header| header.durable)
    }

    /// 0 to 9.
    pub fn priority(&self, defaults: Defaults) -> u8 {
        self.header.as_ref().map_or(defaults.priority, |header| header.priority.min(9))
    }

    /// Takes the message apart into what is sealed, what is bound to it, and what stays around it.
    pub fn into_envelope(
        self,
        defaults: Defaults,
        destination: String,
        random: &mut Random,
        user: Option<&str>,
    ) -> Result<(Envelope, Content, Bound), Refusal> {
        let message_id = match self.fields.get(MESSAGE_ID) {
            [] | [NULL] => {
                let mut id = vec![0x98];
                id.extend_from_slice(&random.bytes::<16>());
                Bytes::from(id)
            }
            id => Bytes::copy_from_slice(id),
        };
        let content = self.content();
        if content.packing == Packing::Sections {
            // What would be refused when it is opened is refused before it is sealed.
            let malformed = |error| Refusal::new(reason::MD_ERROR, format!("the body is malformed: {error}"));
            check_body(&content.bytes).map_err(malformed)?;
        }
        let (bound, head) = self.bound_and_head(destination, &message_id);
        let application_properties = bound.application_properties.clone();
        let frame = self.message(defaults, user, Chunks::from(Bytes::new()));
        let fields = self.fields;
        Ok((Envelope { head, fields, message_id, application_properties, frame }, content, bound))
    }

    /// What is bound to the message, and its sections ahead of its properties as they stand.
    fn bound_and_head(&self, destination: String, message_id: &Bytes) -> (Bound, Vec<u8>) {
        let bound = Bound {
            destination,
            properties: self.fields.bound(message_id),
            application_properties: self.section(self.sections.application_properties.clone()),
            annotations: self.bound_annotations(),
            message_id: message_id.clone(),
        };
        let mut head = Vec::with_capacity(256);
        for section in [&self.sections.header, &self.sections.message_annotations] {
            head.extend_from_slice(&self.section(section.clone()));
        }
        (bound, head)
    }

    /// What stays around the body of a sealed message, and what is bound to it when it is sealed anew; none where it
    /// has no message-id, which sealing gives to each.
    pub fn into_former(self, destination: String) -> Option<(Envelope, Bound)> {
        let message_id = match self.fields.get(MESSAGE_ID) {
            [] | [NULL] => return None,
            id => Bytes::copy_from_slice(id),
        };
        let (bound, head) = self.bound_and_head(destination, &message_id);
        let application_properties = bound.application_properties.clone();
        let frame = self.message(Defaults::default(), None, Chunks::from(Bytes::new()));
        Some((Envelope { head, fields: self.fields, message_id, application_properties, frame }, bound))
    }

    /// The payload and how it is packed, as the seal sees it.
    pub fn content(&self) -> Content {
        let (packing, bytes) = match (&self.sections.body, &self.sections.footer) {
            (BodyForm::Data(range), None) => (Packing::Data, self.payload.slice(range.clone())),
            _ => (Packing::Sections, self.payload.slice(self.sections.body_range.start..self.payload.len())),
        };
        let content_type = text(self.fields.get(CONTENT_TYPE)).map(str::to_owned);
        Content { packing, content_type, bytes: bytes.to_contiguous() }
    }

    /// The body as a reader sees it: of a lone data section its bytes, whatever follows.
    pub fn clear_content(&self) -> Content {
        match &self.sections.body {
            BodyForm::Data(range) => Content {
                packing: Packing::Data,
                content_type: None,
                bytes: self.payload.slice(range.clone()).to_contiguous(),
            },
            _ => self.content(),
        }
    }

    /// A clear message that its policy lets through goes to its reader as it is.
    pub fn tolerated(&self, _: Verified<Opened>) -> Readable {
        Readable(self.payload.clone())
    }

    /// The message for its reader: the sealed body replaced by what was in it.
    ///
    /// # Errors
    /// What was sealed as sections is no message body: `malformed`. Confidentiality proves no origin, so anyone with
    /// the recipient's certificate may have made it.
    pub fn opened(&self, opened: Verified<Opened>) -> Result<Readable, Refusal> {
        let Opened { content, seal } = opened.into_inner();
        if content.packing == Packing::Sections {
            let malformed =
                |error| Refusal::security("malformed", format!("what is sealed is no message body: {error}"));
            check_body(&content.bytes).map_err(malformed)?;
        }
        let mut head = Vec::with_capacity(256);
        head.extend_from_slice(&self.section(self.sections.header.clone()));
        match on_behalf_of(&seal) {
            None => head.extend_from_slice(&self.section(self.sections.message_annotations.clone())),
            Some(said) => {
                let annotations = unlabelled(annotations(&self.payload, &self.sections));
                encode_map_section(MESSAGE_ANNOTATIONS, &[annotations, said.into()].concat(), &mut head);
            }
        }
        let content_type = content.content_type.as_deref().map(symbol).transpose()?.unwrap_or_default();
        self.fields.write(self.fields.get(MESSAGE_ID), &content_type, &mut head);
        head.extend_from_slice(&self.section(self.sections.application_properties.clone()));
        if content.packing == Packing::Data {
            data_section_head(content.bytes.len(), &mut head);
        }
        Ok(Readable(Payload::from(vec![Bytes::from(head), content.bytes])))
    }

    fn message(&self, defaults: Defaults, user: Option<&str>, body: Chunks) -> Message {
        Message {
            priority: self.priority(defaults),
            persistent: self.is_persistent(defaults),
            expires_at_ms: self.expires_at_ms(defaults.expiry_cap_ms),
            available_at_ms: self.available_at_ms(),
            put_at_ms: self.wall_ms,
            user: user.map(Into::into),
            keys: self.needed_keys(),
            body,
        }
    }

    /// The soonest of `ttl` from now, `absolute-expiry-time`, and what the queue allows.
    fn expires_at_ms(&self, cap_ms: Option<u64>) -> Option<u64> {
        let ttl =
            self.header.as_ref().and_then(|header| header.ttl_ms).map(|ttl| self.wall_ms.saturating_add(ttl.into()));
        let absolute = match self.fields.get(ABSOLUTE_EXPIRY_TIME) {
            [0x83, rest @ ..] => {
                <[u8; 8]>::try_from(rest).ok().map(|ms| u64::try_from(i64::from_be_bytes(ms)).unwrap_or(0))
            }
            _ => None,
        };
        let cap = cap_ms.map(|cap| self.wall_ms.saturating_add(cap));
        ttl.into_iter().chain(absolute).chain(cap).min()
    }

    /// Before when the message is not deliverable: the annotation `x-opt-delivery-time`, in milliseconds since 1970, or
    /// `x-opt-delivery-delay`, in milliseconds from now. `None` where there is neither, and where that is past. One
    /// compare for a message without annotations.
    fn available_at_ms(&self) -> Option<u64> {
        let section = self.section(self.sections.message_annotations.clone());
        let mut at = None;
        crate::selector::each_number(&section, |name, number| match name {
            DELIVERY_TIME => at = u64::try_from(number).ok(),
            DELIVERY_DELAY if at.is_none() => at = u64::try_from(number).ok().map(|ms| self.wall_ms.saturating_add(ms)),
            _ => {}
        });
        at.filter(|at| *at > self.wall_ms)
    }

    fn section(&self, range: Option<std::ops::Range<usize>>) -> Bytes {
        range.map(|range| self.payload.slice(range).to_contiguous()).unwrap_or_default()
    }
}

/// What its reader is told of a message that the queue manager has sealed anew: who signs it, and for whom. Nothing
/// where no signature vouches for that.
fn on_behalf_of(seal: &SealInfo) -> Option<[(Value, Value); 2]> {
    let (signer, said) = (seal.signer.as_ref()?, seal.on_behalf_of.as_ref()?);
    let former: Vec<&str> = said.signers.iter().map(|former| former.dn.as_str()).collect();
    Some([
        (Value::from(SIGNER), Value::from(signer.as_str())),
        (Value::from(ON_BEHALF_OF), Value::from(former.join("; ").as_str())),
    ])
}

/// A message of a protected queue that may go to its reader: only a [`Verified`] makes one.
pub struct Readable(Payload);

impl Readable {
    /// The message.
    pub fn into_payload(self) -> Payload {
        self.0
    }
}

/// What stays around a message's body while that is being sealed.
pub struct Envelope {
    /// Header and message annotations.
    head: Vec<u8>,
    fields: Fields,
    message_id: Bytes,
    application_properties: Bytes,
    frame: Message,
}

impl Envelope {
    /// Bytes around the sealed body, at most.
    pub fn overhead(&self) -> usize {
        const FRAMING_BYTES_MAX: usize = 128;
        self.head.len()
            + self.fields.section.len()
            + self.message_id.len()
            + self.application_properties.len()
            + FRAMING_BYTES_MAX
    }

    /// The sealed message.
    pub fn sealed(self, sealed: Sealed) -> Message {
        let mut head = self.head;
        let parts = [SEALED_CONTENT_TYPE, "; smime-type=", sealed.smime_type];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut encoded = Vec::with_capacity(2 + len);
        encoded.extend_from_slice(&[0xa3, u8::try_from(len).unwrap_or(u8::MAX)]);
        parts.iter().for_each(|part| encoded.extend_from_slice(part.as_bytes()));
        self.fields.write(&self.message_id, &encoded, &mut head);
        head.extend_from_slice(&self.application_properties);
        data_section_head(sealed.der.len(), &mut head);
        let keys = sealed.recipients.map_or(Keys::None, Keys::OneOf);
        Message { keys, body: Chunks::from(vec![Bytes::from(head), sealed.der]), ..self.frame }
    }
}

impl Fields {
    /// Finds the fields of a section; none where it is malformed.
    fn read(section: Bytes) -> Option<Self> {
        let list = after_descriptor(&section)?;
        let (count, mut at) = match *section.get(list)? {
            0x45 => (0, list + 1),
            0xc0 => (usize::from(*section.get(list + 2)?), list + 3),
            0xd0 => (u32::from_be_bytes(section.get(list + 5..list + 9)?.try_into().ok()?) as usize, list + 9),
            _ => return None,
        };
        let start = u32::try_from(at).ok()?;
        let mut ends = [start; PROPERTIES];
        for (field, end) in ends.iter_mut().enumerate() {
            if field < count {
                at += crate::selector::value_len(section.get(at..)?)?;
            }
            *end = u32::try_from(at).ok()?;
        }
        (at <= section.len() && count <= PROPERTIES).then_some(Self { section, start, ends })
    }

    fn get(&self, field: usize) -> &[u8] {
        let start = if field == 0 { self.start } else { self.ends[field - 1] };
        self.section.get(start as usize..self.ends[field] as usize).unwrap_or_default()
    }

    fn value(&self, field: usize) -> Result<Value, Refusal> {
        match self.get(field) {
            [] => Ok(Value::Null),
            bytes => Value::from_bytes(bytes).map_err(|error| Refusal::new(reason::MD_ERROR, error.to_string())),
        }
    }

    /// What is bound of the section: see the module's page.
    fn bound(&self, message_id: &[u8]) -> Bytes {
        let mut bytes = Vec::with_capacity(self.section.len() + message_id.len());
        self.each(message_id, &[], |field| bytes.extend_from_slice(field));
        Bytes::from(bytes)
    }

    /// Writes the section with another message-id and content-type; nothing where every field is absent.
    fn write(&self, message_id: &[u8], content_type: &[u8], out: &mut Vec<u8>) {
        let (mut count, mut fields) = (0u32, Vec::with_capacity(self.section.len() + 96));
        self.each(message_id, content_type, |field| {
            count += 1;
            fields.extend_from_slice(field);
        });
        if count == 0 {
            return;
        }
        out.extend_from_slice(&[0x00, 0x53, 0x73, 0xd0]);
        let size = u32::try_from(fields.len() + 4).unwrap_or(u32::MAX);
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&fields);
    }

    /// Each field up to the last that is there, an absent one as null.
    fn each<'a>(&'a self, message_id: &'a [u8], content_type: &'a [u8], mut emit: impl FnMut(&'a [u8])) {
        let field = |index| match index {
            MESSAGE_ID => message_id,
            CONTENT_TYPE => content_type,
            _ => self.get(index),
        };
        let is_there = |index: &usize| !matches!(field(*index), [] | [NULL]);
        let Some(last) = (0..PROPERTIES).rev().find(is_there) else { return };
        for index in 0..=last {
            emit(if is_there(&index) { field(index) } else { &[NULL] });
        }
    }
}

/// The message annotations; none where they do not parse.
pub fn annotations(payload: &Payload, sections: &Sections) -> Vec<(Value, Value)> {
    Sections::decode_map(payload, sections.message_annotations.as_ref()).unwrap_or_default()
}

fn unlabelled(mut annotations: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    annotations.retain(|(key, _)| !key.as_str().is_some_and(|key| key.starts_with(LABEL_PREFIX)));
    annotations
}

/// An idempotency key as bytes.
fn key_bytes(value: &Value) -> Result<Bytes, Refusal> {
    match value {
        Value::String(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        Value::Symbol(text) => Ok(Bytes::copy_from_slice(text.as_str().as_bytes())),
        Value::Binary(bytes) => Ok(Bytes::copy_from_slice(bytes)),
        _ => Err(idempotency::unusable("an idempotency key is a string, a symbol or bytes")),
    }
}

fn relabelled(payload: &Payload, sections: &Sections, annotations: Vec<(Value, Value)>) -> Payload {
    let mut head = Vec::new();
    if let Some(range) = sections.header.clone() {
        head.extend_from_slice(&payload.bytes_at(range));
    }
    with_front(head, payload, sections, &annotations)
}

/// The message with other sections before its properties: `head`, and these annotations.
fn with_front(mut head: Vec<u8>, payload: &Payload, sections: &Sections, annotations: &[(Value, Value)]) -> Payload {
    if !annotations.is_empty() {
        encode_map_section(MESSAGE_ANNOTATIONS, annotations, &mut head);
    }
    let before = [&sections.header, &sections.delivery_annotations, &sections.message_annotations];
    let rest = before.into_iter().flatten().map(|range| range.end).max().unwrap_or(0);
    let mut chunks = vec![Bytes::from(head)];
    chunks.extend(payload.slice(rest..payload.len()).chunks().iter().cloned());
    Payload::from(chunks)
}

/// The message as it goes out: after a failed delivery its header says how many there were.
pub fn with_delivery_count(payload: Payload, count: u32) -> Payload {
    if count == 0 {
        return payload;
    }
    let Ok(sections) = Sections::scan(&payload) else { return payload };
    let Ok(header) = sections.decode_header(&payload) else { return payload };
    let header = Header { delivery_count: count, first_acquirer: false, ..header };
    with_header(&payload, &sections, &header)
}

/// A message's id as its sender gave it; numbers in digits, bytes in hexadecimal digits. None where there is none, or
/// the message can't be read.
pub fn message_id(payload: &Payload) -> Option<String> {
    let properties = Sections::scan(payload).ok()?.decode_properties(payload).ok()?;
    Some(match properties.message_id? {
        MessageId::Ulong(number) => number.to_string(),
        MessageId::Uuid(bytes) => base16ct::lower::encode_string(&bytes),
        MessageId::Binary(bytes) => {
            base16ct::lower::encode_string(bytes.get(..MESSAGE_ID_BYTES_SHOWN).unwrap_or(&bytes))
        }
        MessageId::String(text) => text,
    })
}

/// Bytes of a binary message id that are told.
const MESSAGE_ID_BYTES_SHOWN: usize = 128;

/// Which keys open a message, by its body as it lies on a queue.
pub fn keys_of_body(body: &Chunks) -> Keys {
    Arrival::read(&payload_of(body), 0).map_or(Keys::Unknown, |arrival| arrival.needed_keys())
}

/// A queue's body as the engine's payload: no byte is copied.
pub fn payload_of(body: &Chunks) -> Payload {
    into_payload(body.clone())
}

/// As [`payload_of`], of a body that is not needed any more.
pub fn into_payload(body: Chunks) -> Payload {
    match body {
        Chunks::One(bytes) => Payload::from(bytes),
        Chunks::Many(chunks) => Payload::from(chunks.to_vec()),
    }
}

/// The engine's payload as a queue's body: no byte is copied.
pub fn chunks_of(payload: Payload) -> Chunks {
    match payload.into_one() {
        Ok(one) => Chunks::from(one),
        Err(many) => Chunks::from(many.chunks().to_vec()),
    }
}

/// The head of a data section of `len` bytes (AMQP part 3, section 3.2.6).
pub fn data_section_head(len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x00, 0x53, 0x75, 0xb0]);
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
}

/// A symbol's encoding.
fn symbol(text: &str) -> Result<Vec<u8>, Refusal> {
    let symbol = bulla_amqp::Symbol::new(text)
        .ok_or_else(|| Refusal::security("malformed", "the content-type under the seal is no symbol"))?;
    let mut out = Vec::new();
    Value::from(symbol).encode_to(&mut out);
    Ok(out)
}

/// The text of an encoded symbol.
fn text(encoded: &[u8]) -> Option<&str> {
    let bytes = match encoded {
        [0xa3, _, text @ ..] => text,
        [0xb3, _, _, _, _, text @ ..] => text,
        _ => return None,
    };
    std::str::from_utf8(bytes).ok()
}

/// Where the value of a described section starts.
fn after_descriptor(section: &[u8]) -> Option<usize> {
    (section.first() == Some(&0)).then(|| Some(1 + crate::selector::value_len(section.get(1..)?)?))?
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const NOW_MS: u64 = 1_800_000_000_000;

    /// A message with these encoded properties fields and a data section.
    pub(super) fn message(fields: &[&[u8]], body: &[u8]) -> Payload {
        let mut bytes = vec![0x00, 0x53, 0x70, 0xc0, 4, 2, 0x41, 0x50, 7];
        let joined = fields.concat();
        bytes.extend_from_slice(&[
            0x00,
            0x53,
            0x73,
            0xc0,
            u8::try_from(joined.len() + 1).unwrap(),
            u8::try_from(fields.len()).unwrap(),
        ]);
        bytes.extend_from_slice(&joined);
        bytes.extend_from_slice(&[0x00, 0x53, 0x74, 0xc1, 0x01, 0x00]);
        data_section_head(body.len(), &mut bytes);
        bytes.extend_from_slice(body);
        Payload::from(Bytes::from(bytes))
    }

    pub(super) fn contiguous(message: &Message) -> Payload {
        Payload::from(message.body.to_bytes())
    }

    fn sealed(der: &'static [u8], payload: &Payload) -> (Payload, Content, Bound) {
        let arrival = Arrival::read(payload, NOW_MS).unwrap();
        let (envelope, content, bound) =
            arrival.into_envelope(Defaults::default(), "Q@QM".into(), &mut Random::counting(), None).unwrap();
        let most = envelope.overhead() + der.len();
        let sealed = Sealed { der: Bytes::from_static(der), smime_type: "signed-data", recipients: None };
        let message = envelope.sealed(sealed);
        assert!(message.body.len() <= most, "{} bytes, predicted at most {most}", message.body.len());
        (contiguous(&message), content, bound)
    }

    pub(super) const ID: &[u8] = &[0xa1, 2, b'i', b'd'];
    const TYPE: &[u8] = &[0xa3, 10, b't', b'e', b'x', b't', b'/', b'p', b'l', b'a', b'i', b'n'];

    #[test]
    fn a_message_is_read_without_its_body() {
        let arrival = Arrival::read(&message(&[ID], b"body"), NOW_MS).unwrap();
        assert!(!arrival.claims_seal());
        let message = arrival.into_message(Defaults::default(), Some("orders"));
        assert!(message.persistent);
        assert_eq!((message.priority, message.expires_at_ms), (7, None));
    }

    #[test]
    fn a_body_s_digest_tells_it_from_others_and_looks_at_nothing_else() {
        let digest = |id: &[u8], body: &[u8]| Arrival::read(&message(&[id], body), NOW_MS).unwrap().body_digest();
        let body = vec![7; BODY_HASHED_BYTES + 1000];
        let expected = digest(ID, &body);
        assert_eq!(expected, digest(&[0xa1, 1, b'x'], &body));
        for at in [0, BODY_HASHED_BYTES - 10, BODY_HASHED_BYTES, body.len() - 1] {
            let mut other = body.clone();
            other[at] = 8;
            assert_ne!(expected, digest(ID, &other), "at {at}");
        }
        assert_ne!(expected, digest(ID, &body[1..]));
        let (whole, mut pieces) = (message(&[ID], &body), Payload::new());
        (0..whole.len()).step_by(1000).for_each(|at| pieces.push(whole.slice(at..at + 1000).to_contiguous()));
        assert_eq!(expected, Arrival::read(&pieces, NOW_MS).unwrap().body_digest());
    }

    #[test]
    fn an_idempotency_key_is_text_or_bytes_and_is_taken_off() {
        let with = |value: Value| {
            let mut bytes = Vec::new();
            encode_map_section(0x72, &[(Value::from(IDEMPOTENCY_KEY), value)], &mut bytes);
            data_section_head(1, &mut bytes);
            bytes.push(b'x');
            let mut arrival = Arrival::read(&Payload::from(Bytes::from(bytes)), NOW_MS).unwrap();
            arrival.take_label_off().map(|key| (key, arrival.sections.message_annotations.is_some()))
        };
        for value in
            [Value::from("k"), Value::Symbol(Symbol::from_static("k")), Value::Binary(Bytes::from_static(b"k"))]
        {
            assert_eq!(with(value).unwrap(), (Some(Bytes::from_static(b"k")), false));
        }
        assert_eq!(with(Value::Uint(7)).unwrap_err().cause, Some(idempotency::UNUSABLE));
    }

    #[test]
    fn the_soonest_of_what_the_message_and_its_queue_say_is_when_it_expires() {
        let cap = |ms| Defaults { expiry_cap_ms: ms, ..Defaults::default() };
        let header = [0x00, 0x53, 0x70, 0xc0, 9, 3, 0x41, 0x50, 4, 0x70, 0x00, 0x00, 0x03, 0xe8]; // a ttl of 1000 ms
        let with_ttl = Payload::from(Bytes::from([&header[..], &[0x00, 0x53, 0x75, 0xa0, 0]].concat()));
        let without = message(&[ID], b"");
        for (payload, cap_ms, expected) in [
            (&without, None, None),
            (&without, Some(500), Some(500)),
            (&with_ttl, None, Some(1000)),
            (&with_ttl, Some(500), Some(500)),
            (&with_ttl, Some(5000), Some(1000)),
        ] {
            let message = Arrival::read(payload, NOW_MS).unwrap().into_message(cap(cap_ms), None);
            assert_eq!(message.expires_at_ms, expected.map(|ms| NOW_MS + ms), "{cap_ms:?}");
        }
    }

    #[test]
    fn what_is_bound_is_the_same_before_and_after_the_seal() {
        for fields in [&[ID, &[0x40], &[0x40], &[0x40], &[0x40], &[0x40], TYPE][..], &[ID], &[&[0x40], &[0x40], ID]] {
            let (sealed, content, bound) = sealed(b"DER", &message(fields, b"body"));
            let arrival = Arrival::read(&sealed, NOW_MS).unwrap();
            assert!(arrival.claims_seal());
            assert_eq!(arrival.sealed_body().unwrap(), &b"DER"[..]);
            let expect = arrival.expect(vec!["Q@QM".into()]);
            assert_eq!(expect.message_id, bound.message_id);
            assert_eq!(expect.properties, bound.properties);
            assert_eq!(expect.application_properties, bound.application_properties);
            assert_eq!((content.packing, &content.bytes[..]), (Packing::Data, &b"body"[..]));
        }
    }

    #[test]
    fn annotations_that_say_how_a_body_is_read_are_bound_and_others_are_not() {
        let key = |name: &str| Value::from(bulla_amqp::Symbol::new(name).unwrap());
        let bound = |pairs: &[(&str, Value)]| {
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| (key(name), value.clone())).collect();
            let mut bytes = Vec::new();
            encode_map_section(MESSAGE_ANNOTATIONS, &pairs, &mut bytes);
            bytes.extend_from_slice(&message(&[ID], b"body").to_contiguous()[9..]);
            let (sealed, _, bound) = sealed(b"DER", &Payload::from(Bytes::from(bytes)));
            // They survive sealing.
            assert_eq!(Arrival::read(&sealed, NOW_MS).unwrap().expect(Vec::new()).annotations, bound.annotations);
            bound.annotations
        };
        let (kind, place) = (("x-opt-jms-msg-type", Value::Byte(5)), ("x-opt-jms-dest", Value::Byte(0)));
        let other = ("x-opt-other", Value::from("x-opt-jms-msg-type"));
        let both = bound(&[kind.clone(), place.clone()]);
        assert!(!both.is_empty());
        assert_eq!(bound(&[place.clone(), other.clone(), kind.clone()]), both);
        for changed in [vec![kind.clone()], vec![("x-opt-jms-msg-type", Value::Byte(3)), place.clone()], vec![]] {
            assert_ne!(bound(&changed), both, "{changed:?}");
        }
        assert!(bound(&[other]).is_empty() && bound(&[]).is_empty());
        let wide = bound(&[("x-opt-jms-dest", Value::from("text"))]);
        assert_eq!(wide[..], [&[0xa3, 14][..], b"x-opt-jms-dest", &[0xa1, 4], b"text"].concat());
    }

    #[test]
    fn a_content_type_says_that_a_message_is_sealed_in_any_case() {
        for (kind, sealed) in [
            ("application/pkcs7-mime; smime-type=signed-data", true),
            ("Application/PKCS7-MIME", true),
            ("application/pkcs7", false),
            ("text/plain", false),
        ] {
            let encoded = [&[0xa3, u8::try_from(kind.len()).unwrap()][..], kind.as_bytes()].concat();
            let fields = [&[0x40][..], &[0x40], &[0x40], &[0x40], &[0x40], &[0x40], &encoded];
            assert_eq!(Arrival::read(&message(&fields, b""), NOW_MS).unwrap().claims_seal(), sealed, "{kind}");
        }
    }

    #[test]
    fn a_message_id_is_made_where_there_is_none() {
        let (sealed, _, bound) = sealed(b"DER", &message(&[], b""));
        assert_eq!(bound.message_id[0], 0x98);
        assert_eq!(Arrival::read(&sealed, NOW_MS).unwrap().expect(Vec::new()).message_id, bound.message_id);
    }

    #[test]
    fn a_changed_property_is_not_what_was_bound() {
        let (_, _, bound) = sealed(b"DER", &message(&[ID, &[0xa0, 1, b'u']], b""));
        let (_, _, other) = sealed(b"DER", &message(&[ID, &[0xa0, 1, b'v']], b""));
        assert_ne!(bound.properties, other.properties);
    }

    #[test]
    fn a_body_that_is_no_data_section_is_sealed_as_it_is_encoded() {
        let value = Payload::from(Bytes::from_static(&[0x00, 0x53, 0x77, 0xa1, 2, b'h', b'i']));
        let (_, content, _) = sealed(b"DER", &value);
        assert_eq!(
            (content.packing, &content.bytes[..]),
            (Packing::Sections, &[0x00, 0x53, 0x77, 0xa1, 2, b'h', b'i'][..])
        );
    }

    /// A message that opened with this content, made by any sender.
    fn opened(bytes: &[u8]) -> Result<Payload, Refusal> {
        let (sealed, ..) = sealed(b"DER", &message(&[ID], b"body"));
        let content = Content { packing: Packing::Sections, content_type: None, bytes: Bytes::copy_from_slice(bytes) };
        let verified = bulla_seal::Opener::tolerate(&bulla_seal::Policy::new("Q"), content).unwrap();
        Arrival::read(&sealed, NOW_MS).unwrap().opened(verified).map(Readable::into_payload)
    }

    #[test]
    fn what_was_sealed_as_sections_is_a_body_and_nothing_else() {
        const VALUE: &[u8] = &[0x00, 0x53, 0x77, 0xa1, 2, b'h', b'i'];
        const PROPERTIES: &[u8] = &[0x00, 0x53, 0x73, 0xc0, 4, 1, 0xa1, 1, b'x'];
        const APPLICATION_PROPERTIES: &[u8] = &[0x00, 0x53, 0x74, 0xc1, 1, 0];
        let message = opened(VALUE).unwrap();
        assert!(matches!(Sections::scan(&message).unwrap().body, BodyForm::Sections(_)));
        for (what, bytes) in [
            ("no AMQP", b"no AMQP at all".to_vec()),
            ("second properties", [PROPERTIES, VALUE].concat()),
            ("second application-properties", [APPLICATION_PROPERTIES, VALUE].concat()),
            ("properties behind the body", [VALUE, PROPERTIES].concat()),
            ("no body section", Vec::new()),
        ] {
            let refusal = opened(&bytes).map(drop).unwrap_err();
            assert_eq!(refusal.cause, Some("malformed"), "{what}: {refusal:?}");
        }
    }

    #[test]
    fn a_body_that_would_not_open_is_not_sealed() {
        for body in [&[0x00, 0x53, 0x77, 0xc0, 2, 2, 0x41][..], &[0x00, 0x53, 0x77, 0xa1, 1, 0xff], &[]] {
            let arrival = Arrival::read(&Payload::from(Bytes::copy_from_slice(body)), NOW_MS).unwrap();
            let refused = arrival.into_envelope(Defaults::default(), "Q@QM".into(), &mut Random::counting(), None);
            assert_eq!(refused.map(drop).unwrap_err().reason, reason::MD_ERROR, "{body:?}");
        }
    }

    #[test]
    fn a_message_put_for_later_says_when_and_one_for_the_past_does_not() {
        let key = |name: &str| Value::from(bulla_amqp::Symbol::new(name).unwrap());
        let later = i64::try_from(NOW_MS).unwrap() + 5_000;
        for (pairs, wanted) in [
            (vec![(key("x-opt-delivery-time"), Value::Long(later))], Some(NOW_MS + 5_000)),
            (vec![(key("x-opt-delivery-time"), Value::Timestamp(later))], Some(NOW_MS + 5_000)),
            (vec![(key("x-opt-delivery-delay"), Value::Uint(7))], Some(NOW_MS + 7)),
            (
                vec![(key("x-opt-delivery-delay"), Value::Uint(7)), (key("x-opt-delivery-time"), Value::Long(later))],
                Some(NOW_MS + 5_000),
            ),
            (vec![(key("x-opt-delivery-time"), Value::Long(1))], None),
            (vec![(key("x-opt-delivery-time"), Value::Long(-1))], None),
            (vec![(key("x-opt-delivery-delay"), Value::from("soon"))], None),
            (vec![], None),
        ] {
            let mut bytes = Vec::new();
            encode_map_section(MESSAGE_ANNOTATIONS, &pairs, &mut bytes);
            data_section_head(0, &mut bytes);
            let arrival = Arrival::read(&Payload::from(Bytes::from(bytes)), NOW_MS).unwrap();
            assert_eq!(arrival.into_message(Defaults::default(), None).available_at_ms, wanted, "{pairs:?}");
        }
    }

    #[test]
    fn a_failed_delivery_shows_in_the_header() {
        let out = with_delivery_count(message(&[ID], b"body"), 3);
        let header = Sections::scan(&out).unwrap().decode_header(&out).unwrap();
        assert_eq!((header.delivery_count, header.durable, header.priority), (3, true, 7));
    }

    #[test]
    fn malformed_properties_are_a_refusal() {
        for section in
            [&[0x00, 0x53, 0x73, 0xc0, 2, 1][..], &[0x00, 0x53, 0x73, 0xc0, 3, 1, 0xa1], &[0x00, 0x53, 0x73, 0x40]]
        {
            assert!(Arrival::read(&Payload::from(Bytes::copy_from_slice(section)), NOW_MS).is_err());
        }
    }
}
