//! A message as a request's headers and body, and as an answer's.

use super::answers::Refused;
use super::table::Version;
use super::text::{decoded, header};
use super::{ids, user_properties};
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::{Header, Properties};
use bulla_amqp::{BodyForm, MessageBody, MessageId, MessageParts, Payload, Sections, Symbol, Value};
use bulla_http::{Body, Head, HeaderValue, Response};
use bytes::Bytes;
use serde_json::json;

/// The annotation by which the core knows an idempotency key.
const IDEMPOTENCY_KEY: &str = "x-opt-bulla-idempotency-key";
/// Longest text of a message that stands in a header, in bytes: programs that get it have bounds of their own. A longer
/// one is left out.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Bytes of all user properties that stand in headers. The rest is left out.
const USER_BYTES_MAX: usize = 16 << 10;
/// Longest id in a list, in bytes.
const LISTED_BYTES_MAX: usize = 256;
/// A browser that is led to a message shows it without scripts, and as no part of this server's pages.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");
/// Longest media type, in bytes.
const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// Descriptors of sections (AMQP part 3, section 3.2).
const ANNOTATIONS: u8 = 0x72;
const APPLICATION_PROPERTIES: u8 = 0x74;
/// A body whose media type is not known.
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// A text.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain;charset=utf-8");
/// Sections of AMQP as they are encoded: a body that is neither bytes nor a text.
const SECTIONS: HeaderValue = HeaderValue::from_static("application/x-amqp-sections");

/// What a message that is put has beside its body.
#[derive(Debug)]
pub(super) struct Labels {
    header: Header,
    properties: Properties,
    /// Application properties, encoded.
    user: Bytes,
    /// Annotations, encoded.
    annotations: Bytes,
}

impl Labels {
    /// What a request's headers say. `id` is the message's, where the client names none.
    ///
    /// # Errors
    /// 400 with the header that can't be read; 415 for a media type that is none.
    pub(super) fn read(head: &Head, version: Version, id: MessageId) -> Result<Self, Refused> {
        let wrong = |name: &str, why: &str| Refused::new(400, "header", format!("the header {name} {why}"));
        let said = |name: &str| match head.headers.get(name) {
            None => Ok(None),
            Some(_) if head.headers.count(name) > 1 => Err(wrong(name, "stands twice")),
            Some(_) => {
                let text = head.headers.text(name).and_then(decoded);
                text.map(Some).ok_or_else(|| wrong(name, "is no UTF-8"))
            }
        };
        let durable = match said("ibm-mq-md-persistence")?.as_deref() {
            None | Some("nonPersistent") => false,
            Some("persistent") => true,
            Some(_) => return Err(wrong("ibm-mq-md-persistence", "is persistent or nonPersistent")),
        };
        let ttl_ms = match said("ibm-mq-md-expiry")?.as_deref() {
            None | Some("unlimited") => None,
            Some(ms) => {
                let ms = ms.parse().ok().filter(|ms| *ms > 0);
                Some(ms.ok_or_else(|| wrong("ibm-mq-md-expiry", "is unlimited, or milliseconds"))?)
            }
        };
        let newer = |name: &str| said(name).map(|said| said.filter(|_| version == Version::Three));
        let priority = match newer("ibm-mq-md-priority")? {
            None => Header::default().priority,
            Some(text) => {
                let priority = text.parse().ok().filter(|priority| *priority <= 9);
                priority.ok_or_else(|| wrong("ibm-mq-md-priority", "is a number from 0 to 9"))?
            }
        };
        let correlation_id = said("ibm-mq-md-correlationId")?.map(|text| ids::parse(&text));
        if version == Version::Two && matches!(correlation_id, Some(MessageId::String(_))) {
            return Err(wrong("ibm-mq-md-correlationId", "is 48 hexadecimal digits"));
        }
        let user = match version {
            Version::Two => Vec::new(),
            Version::Three => {
                let lines: Option<Vec<&str>> =
                    head.headers.all("ibm-mq-usr").map(|line| std::str::from_utf8(line).ok()).collect();
                let lines = lines.ok_or_else(|| wrong("ibm-mq-usr", "is no UTF-8"))?;
                user_properties::read(&lines).map_err(|why| wrong("ibm-mq-usr", why))?
            }
        };
        let key: Vec<_> =
            idempotency_key(head)?.into_iter().map(|key| (Value::from(IDEMPOTENCY_KEY), Value::Binary(key))).collect();
        Ok(Self {
            header: Header { durable, priority, ttl_ms, ..Header::default() },
            properties: Properties {
                message_id: Some(id),
                correlation_id,
                reply_to: said("ibm-mq-md-replyTo")?,
                content_type: content_type(head)?,
                ..Properties::default()
            },
            user: section(APPLICATION_PROPERTIES, &user),
            annotations: section(ANNOTATIONS, &key),
        })
    }

    /// The id of the message, as a header has it.
    pub(super) fn id(&self) -> HeaderValue {
        let text = self.properties.message_id.as_ref().map(ids::text).unwrap_or_default();
        header(&text)
    }

    /// The message with that body, of which no byte is copied.
    pub(super) fn message(&self, body: Payload) -> Payload {
        let mut properties = Vec::new();
        self.properties.encode_section(&mut properties);
        let parts = MessageParts {
            header: Some(self.header.clone()),
            message_annotations: self.annotations.clone(),
            properties: properties.into(),
            application_properties: self.user.clone(),
            body: MessageBody::Data(body),
            ..MessageParts::default()
        };
        parts.build()
    }
}

/// The idempotency key of a request. How long it may be is asked where it is used.
///
/// # Errors
/// 400: it stands twice.
pub(super) fn idempotency_key(head: &Head) -> Result<Option<Bytes>, Refused> {
    if head.headers.count("idempotency-key") > 1 {
        return Err(Refused::new(400, "header", "the header Idempotency-Key stands twice"));
    }
    Ok(head.headers.get("idempotency-key").map(Bytes::copy_from_slice))
}

fn section(descriptor: u8, pairs: &[(Value, Value)]) -> Bytes {
    let mut bytes = Vec::new();
    if !pairs.is_empty() {
        encode_map_section(descriptor, pairs, &mut bytes);
    }
    bytes.into()
}

/// The media type of a request's body. Any is taken; a text has to be UTF-8, for no other says of itself what it is.
fn content_type(head: &Head) -> Result<Option<Symbol>, Refused> {
    let wrong = |why: &str| Refused::new(415, "content-type", format!("the header Content-Type {why}"));
    let Some(bytes) = head.headers.get("content-type") else { return Ok(None) };
    if head.headers.count("content-type") > 1 || bytes.len() > CONTENT_TYPE_BYTES_MAX {
        return Err(wrong("stands twice, or is too long"));
    }
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii() && text.contains('/'));
    let text = text.ok_or_else(|| wrong("is no media type"))?;
    let charset = text.split(';').skip(1).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    if charset.is_some_and(|charset| !charset.eq_ignore_ascii_case("utf-8")) {
        return Err(wrong("names another charset than utf-8"));
    }
    Symbol::new(text).map(Some).ok_or_else(|| wrong("is no media type"))
}

/// A message as an answer: 200 with its body, and headers that say the rest.
pub(super) fn response(message: &Payload, version: Version) -> Result<Response, bulla_amqp::DecodeError> {
    let sections = Sections::scan(message)?;
    let amqp = sections.decode_header(message)?;
    let properties = sections.decode_properties(message)?;
    let (body, natural) = body(message, &sections);
    let named = properties
        .content_type
        .as_ref()
        .map(Symbol::as_str)
        .filter(|name| natural == BYTES && name.len() <= CONTENT_TYPE_BYTES_MAX);
    let content_type = named.and_then(|name| HeaderValue::new(name.to_owned()).ok()).unwrap_or(natural);
    let persistence = if amqp.durable { "persistent" } else { "nonPersistent" };
    let expiry = amqp.ttl_ms.map_or(HeaderValue::from_static("unlimited"), |ms| u64::from(ms).into());
    let mut response = Response::new(200)
        .with("content-type", content_type)
        // What a queue brought is no page of this server.
        .with("x-content-type-options", HeaderValue::from_static("nosniff"))
        .with("content-security-policy", SANDBOX)
        .with("cache-control", HeaderValue::from_static("no-store"))
        .with("ibm-mq-md-persistence", HeaderValue::from_static(persistence))
        .with("ibm-mq-md-expiry", expiry);
    let texts = [
        ("ibm-mq-md-messageId", properties.message_id.as_ref().map(ids::text)),
        ("ibm-mq-md-correlationId", properties.correlation_id.as_ref().map(ids::text)),
        ("ibm-mq-md-replyTo", properties.reply_to),
    ];
    for (name, text) in texts {
        if let Some(text) = text.filter(|text| text.len() <= TEXT_BYTES_MAX) {
            response = response.with(name, header(&text));
        }
    }
    if version == Version::Three {
        response = response.with("ibm-mq-md-priority", u64::from(amqp.priority).into());
        let user = Sections::decode_map(message, sections.application_properties.as_ref())?;
        let mut left = USER_BYTES_MAX;
        for line in user_properties::lines(&user) {
            let Some(less) = left.checked_sub(line.as_bytes().len()) else { break };
            left = less;
            response = response.with("ibm-mq-usr", line);
        }
    }
    Ok(response.body(body))
}

/// The body's bytes, and the media type that follows from its form.
fn body(message: &Payload, sections: &Sections) -> (Body, HeaderValue) {
    let pieces = |payload: Payload| Body::Several(payload.chunks().to_vec());
    match &sections.body {
        BodyForm::Empty => (Body::Empty, BYTES),
        BodyForm::Data(range) => (pieces(message.slice(range.clone())), BYTES),
        BodyForm::Sections(range) => {
            let encoded = message.slice(range.clone());
            match Value::from_bytes(&encoded.to_contiguous()) {
                Ok(Value::Described(described)) => match described.1 {
                    Value::String(text) => (text.into(), TEXT),
                    Value::Binary(bytes) => (bytes.into(), BYTES),
                    Value::Null => (Body::Empty, BYTES),
                    _ => (pieces(encoded), SECTIONS),
                },
                _ => (pieces(encoded), SECTIONS),
            }
        }
    }
}

/// A row of a list of messages, in the spelling of the published interface.
pub(super) fn row(message: &Payload) -> Result<serde_json::Value, bulla_amqp::DecodeError> {
    let sections = Sections::scan(message)?;
    let properties = sections.decode_properties(message)?;
    let short = |text: String| Some(text).filter(|text| text.len() <= LISTED_BYTES_MAX);
    let text = |id: &Option<MessageId>| id.as_ref().map(ids::text).and_then(short);
    Ok(json!({
        "messageId": text(&properties.message_id),
        "correlationId": text(&properties.correlation_id),
        "format": properties.content_type.as_ref().map(|name| name.as_str().to_owned()).and_then(short),
    }))
}

/// The answer with a list of messages.
pub(super) fn list(rows: Vec<serde_json::Value>) -> Response {
    let json = HeaderValue::from_static("application/json;charset=utf-8");
    Response::new(200)
        .with("content-type", json)
        .with("cache-control", HeaderValue::from_static("no-store"))
        .body(json!({ "messages": rows }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::http::tests::head;

    fn labels(headers: &str, version: Version) -> Result<Labels, (u16, &'static str)> {
        let head = head(&format!("POST /q HTTP/1.1\r\nHost: h\r\n{headers}\r\n"));
        Labels::read(&head, version, ids::of_bytes([7; 24])).map_err(|refused| (refused.status, refused.cause))
    }

    fn value(response: &Response, name: &str) -> Option<String> {
        let found = response.headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| String::from_utf8(value.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn what_a_request_says_of_a_message_comes_back_with_it() {
        let said = "Content-Type: text/plain;charset=utf-8\r\nibm-mq-md-persistence: persistent\r\n\
            ibm-mq-md-expiry: 60000\r\nibm-mq-md-replyTo: REPLIES\r\nibm-mq-md-priority: 7\r\n\
            ibm-mq-md-correlationId: order 7\r\nibm-mq-usr: size;5;integer, colour;\"light; blue\";string\r\n";
        let pieces: Vec<Bytes> = vec![Bytes::from_static(b"an "), Bytes::from_static(b"order")];
        let message = labels(said, Version::Three).unwrap().message(Payload::from(pieces));
        let back = response(&message, Version::Three).unwrap();
        for (name, expected) in [
            ("content-type", "text/plain;charset=utf-8"),
            ("ibm-mq-md-persistence", "persistent"),
            ("ibm-mq-md-expiry", "60000"),
            ("ibm-mq-md-replyTo", "REPLIES"),
            ("ibm-mq-md-priority", "7"),
            ("ibm-mq-md-correlationId", "order%207"),
            ("ibm-mq-md-messageId", &"07".repeat(24)),
        ] {
            assert_eq!(value(&back, name).as_deref(), Some(expected), "{name}");
        }
        let usr: Vec<_> = back.headers.iter().filter(|(name, _)| *name == "ibm-mq-usr").collect();
        assert_eq!(usr.len(), 2);
        assert_eq!(back.body.len(), 8);
        assert_eq!(value(&response(&message, Version::Two).unwrap(), "ibm-mq-md-priority"), None);
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_its_header() {
        for (headers, refused) in [
            ("ibm-mq-md-persistence: yes\r\n", (400, "header")),
            ("ibm-mq-md-expiry: 0\r\n", (400, "header")),
            ("ibm-mq-md-expiry: 99999999999999\r\n", (400, "header")),
            ("ibm-mq-md-priority: 10\r\n", (400, "header")),
            ("ibm-mq-usr: nothing\r\n", (400, "header")),
            ("ibm-mq-md-replyTo: a\r\nibm-mq-md-replyTo: b\r\n", (400, "header")),
            ("ibm-mq-md-replyTo: %ff\r\n", (400, "header")),
            ("Content-Type: text\r\n", (415, "content-type")),
            ("Content-Type: text/plain;charset=latin1\r\n", (415, "content-type")),
        ] {
            assert_eq!(labels(headers, Version::Three).err(), Some(refused), "{headers}");
        }
        let text = labels("ibm-mq-md-correlationId: order 7\r\n", Version::Two);
        assert_eq!(text.err(), Some((400, "header")));
    }

    #[test]
    fn a_body_of_any_form_is_shown() {
        let message = |body: &Value, descriptor: u8| {
            let mut bytes = vec![0, 0x53, descriptor];
            body.encode_to(&mut bytes);
            let body = MessageBody::Sections(Payload::from(Bytes::from(bytes)));
            response(&MessageParts { body, ..MessageParts::default() }.build(), Version::Three).unwrap()
        };
        let text = message(&Value::from("gr\u{fc}n"), 0x77);
        assert_eq!((value(&text, "content-type").as_deref(), text.body.len()), (Some("text/plain;charset=utf-8"), 5));
        let bytes = message(&Value::Binary(Bytes::from_static(b"\0\x01")), 0x77);
        assert_eq!((value(&bytes, "content-type").as_deref(), bytes.body.len()), (Some("application/octet-stream"), 2));
        let map = message(&Value::Map(vec![(Value::from("a"), Value::Uint(1))]), 0x77);
        assert_eq!(value(&map, "content-type").as_deref(), Some("application/x-amqp-sections"));
        let empty = response(&MessageParts::default().build(), Version::Three).unwrap();
        assert!(empty.body.is_empty());
    }

    #[test]
    fn what_is_too_long_for_a_header_is_left_out() {
        let long = || "x".repeat(1 << 20);
        let id = || Some(MessageId::String(long()));
        let properties = Properties {
            message_id: id(),
            correlation_id: id(),
            reply_to: Some(long()),
            content_type: Symbol::new(&format!("text/{}", long())),
            ..Properties::default()
        };
        let mut encoded = Vec::new();
        properties.encode_section(&mut encoded);
        let user: Vec<_> =
            (0..200).map(|n| (Value::from(&*format!("k{n}")), Value::from(&*"v".repeat(1000)))).collect();
        let application_properties = section(APPLICATION_PROPERTIES, &user);
        let message =
            MessageParts { properties: encoded.into(), application_properties, ..MessageParts::default() }.build();
        let back = response(&message, Version::Three).unwrap();
        let bytes: usize = back.headers.iter().map(|(_, value)| value.as_bytes().len()).sum();
        assert!((10 << 10..20 << 10).contains(&bytes), "{bytes}");
        assert!(row(&message).unwrap().to_string().len() < 100);
    }

    #[test]
    fn no_message_begins_another_header() {
        let properties = Properties {
            message_id: Some(MessageId::String("a\r\nSet-Cookie: b".into())),
            reply_to: Some("c\r\nd".into()),
            content_type: Symbol::new("text/html\r\nx: y"),
            ..Properties::default()
        };
        let mut encoded = Vec::new();
        properties.encode_section(&mut encoded);
        let user = section(APPLICATION_PROPERTIES, &[(Value::from("k\r\n"), Value::from("v\r\n\u{7f}"))]);
        let parts =
            MessageParts { properties: encoded.into(), application_properties: user, ..MessageParts::default() };
        let back = response(&parts.build(), Version::Three).unwrap();
        for (name, value) in &back.headers {
            assert!(value.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte)), "{name}");
        }
        assert_eq!(value(&back, "content-type").as_deref(), Some("application/octet-stream"));
    }
}
