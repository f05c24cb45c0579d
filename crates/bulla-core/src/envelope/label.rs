//! Labels: what the error and dead-letter queues say about a message, and how one gets its label and loses it.

use super::{LABEL_PREFIX, annotations, chunks_of, relabelled, unlabelled};
use crate::catalog::DeadLetter;
use crate::reason::{Reason, Refusal};
use bulla_amqp::{MessageBody, MessageParts, Payload, Sections, Value};
use bulla_queue::{Chunks, Found, Keys, Message, User};

/// What the error and dead-letter queues say about a message (inventory A3.1, B2.15).
#[derive(Clone, Debug)]
pub struct Label {
    reason: Option<Reason>,
    cause: String,
    detail: String,
    queue: String,
    /// The queue manager that the message was for, where it may be another one.
    manager: Option<String>,
    at_ms: u64,
}

/// Bytes of a label's details: a client's own words are among them.
const DETAIL_BYTES_MAX: usize = 256;

/// The message with a label: it keeps all that it was, its annotations are joined by ours.
pub fn labelled(payload: &Payload, label: &Label, was: Was) -> Message {
    // Of what is damaged further back the front is enough: what stands there must not pass for a label.
    let sections = Sections::scan(payload).ok().or_else(|| Sections::front(payload));
    let body = match &sections {
        Some(sections) => {
            let mut annotations = unlabelled(annotations(payload, sections));
            annotations.extend(label.annotations());
            relabelled(payload, sections, annotations)
        }
        // What does not even begin as a message is kept as it is.
        None => payload.clone(),
    };
    Message {
        // A message that waits for an operator does not expire meanwhile.
        expires_at_ms: None,
        ..was.message(&body)
    }
}

/// Bytes that are no message, as the data of one.
pub fn wrapped(payload: &Payload) -> Chunks {
    chunks_of(MessageParts { body: MessageBody::Data(payload.clone()), ..MessageParts::default() }.build())
}

/// The queue that a message's label names.
pub fn labelled_queue(payload: &Payload) -> Option<String> {
    labelled_destination(payload).map(|(queue, _)| queue)
}

/// The queue that a message's label names, and the queue manager of it where the label says that.
pub fn labelled_destination(payload: &Payload) -> Option<(String, Option<String>)> {
    let sections = Sections::scan(payload).ok()?;
    let annotations = annotations(payload, &sections);
    let find = |name: &str| {
        let is_it = |key: &Value| key.as_str().and_then(|key| key.strip_prefix(LABEL_PREFIX)) == Some(name);
        let found = annotations.iter().find(|(key, _)| is_it(key));
        found.and_then(|(_, value)| value.as_str().map(str::to_owned))
    };
    Some((find("queue")?, find("manager")))
}

/// The message without its label, for a replay: put as it was when it was put first.
pub fn unlabelled_message(payload: &Payload, was: Was) -> Message {
    match Sections::scan(payload) {
        Ok(sections) => was.message(&relabelled(payload, &sections, unlabelled(annotations(payload, &sections)))),
        Err(_) => was.message(payload),
    }
}

/// The message with its label, for a queue that it is moved to.
pub fn moved_message(payload: &Payload, was: Was) -> Message {
    was.message(payload)
}

/// Bytes of one text of a label that are shown.
const LABEL_TEXT_BYTES_MAX: usize = 512;

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LABEL_TEXT_BYTES_MAX)]
}

/// What the label of a message on an error or dead-letter queue says, and the queue knows.
pub fn dead_letter(payload: &Payload, found: &Found) -> DeadLetter {
    with_label(payload, unread_letter(found))
}

fn with_label(payload: &Payload, letter: DeadLetter) -> DeadLetter {
    let sections = Sections::front(payload).or_else(|| Sections::scan(payload).ok());
    let annotations = sections.map(|sections| annotations(payload, &sections)).unwrap_or_default();
    let find = |name: &str| {
        let is_it = |key: &Value| key.as_str().and_then(|key| key.strip_prefix(LABEL_PREFIX)) == Some(name);
        annotations.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
    };
    // A message of before clients' labels were taken off may have one of its maker's.
    let text = |name: &str| cut(find(name).and_then(Value::as_str).unwrap_or_default()).to_owned();
    DeadLetter {
        reason: find("reason").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()),
        cause: text("cause"),
        details: text("details"),
        queue: text("queue"),
        manager: text("manager"),
        ..letter
    }
}

/// What is known of a message on an error or dead-letter queue without its label.
fn unread_letter(found: &Found) -> DeadLetter {
    DeadLetter {
        number: found.id.0,
        user: found.user.as_ref().map(|user| user.as_str().to_owned()).unwrap_or_default(),
        persistent: found.persistent,
        bytes: found.body_bytes.into(),
        put_ms: found.put_at_ms,
        ..DeadLetter::default()
    }
}

/// A message on an error or dead-letter queue whose body can't be read.
pub fn damaged_letter(found: &Found, why: &dyn std::fmt::Display) -> DeadLetter {
    DeadLetter { cause: "damaged".to_owned(), details: why.to_string(), ..unread_letter(found) }
}

/// What a queue knew of a message that moves, and knows of it afterwards.
#[derive(Clone, Debug)]
pub struct Was {
    priority: u8,
    persistent: bool,
    /// Certificates are judged by this moment (SEAL.md, opening): moving must not change a verdict.
    put_at_ms: u64,
    user: Option<User>,
    keys: Keys,
}

impl From<&Found> for Was {
    fn from(found: &Found) -> Self {
        let Found { priority, persistent, put_at_ms, .. } = *found;
        // The store knows which keys it needs, and keeps that where it is transferred.
        Self { priority, persistent, put_at_ms, user: found.user.clone(), keys: Keys::None }
    }
}

impl From<&Message> for Was {
    fn from(message: &Message) -> Self {
        let Message { priority, persistent, put_at_ms, .. } = *message;
        Self { priority, persistent, put_at_ms, user: message.user.clone(), keys: message.keys.clone() }
    }
}

impl Was {
    fn message(self, body: &Payload) -> Message {
        Message {
            priority: self.priority,
            persistent: self.persistent,
            expires_at_ms: None,
            available_at_ms: None,
            put_at_ms: self.put_at_ms,
            user: self.user,
            keys: self.keys,
            body: chunks_of(body.clone()),
        }
    }
}

impl Label {
    /// A label of now (`at_ms`, milliseconds since 1970) for a message that was meant for `queue`.
    pub fn new(reason: Option<Reason>, cause: &str, detail: &str, queue: &str, at_ms: u64) -> Self {
        let end = (0..=DETAIL_BYTES_MAX.min(detail.len())).rev().find(|end| detail.is_char_boundary(*end)).unwrap_or(0);
        Self {
            reason,
            cause: cause.to_owned(),
            detail: detail[..end].to_owned(),
            queue: queue.to_owned(),
            manager: None,
            at_ms,
        }
    }

    /// The label of a message that was for `queue` at `manager`, for the dead-letter queue.
    pub fn undelivered(refusal: &Refusal, queue: &str, manager: &str, at_ms: u64) -> Self {
        let cause = refusal.cause.unwrap_or("undelivered");
        let label = Self::new(Some(refusal.reason), cause, &refusal.detail, queue, at_ms);
        Self { manager: Some(manager.to_owned()), ..label }
    }

    fn annotations(&self) -> impl Iterator<Item = (Value, Value)> {
        let at = i64::try_from(self.at_ms).unwrap_or(i64::MAX);
        let reason = self.reason.map(|reason| ("reason", Value::Uint(reason.code.into())));
        let manager = self.manager.as_deref().map(|manager| ("manager", Value::from(manager)));
        reason
            .into_iter()
            .chain(manager)
            .chain([
                ("cause", Value::from(self.cause.as_str())),
                ("details", Value::from(self.detail.as_str())),
                ("queue", Value::from(self.queue.as_str())),
                ("time", Value::Timestamp(at)),
            ])
            .filter_map(|(name, value)| {
                bulla_amqp::Symbol::new(&format!("{LABEL_PREFIX}{name}")).map(|key| (Value::from(key), value))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::tests::{ID, NOW_MS, contiguous, message};
    use crate::envelope::{MESSAGE_ANNOTATIONS, data_section_head};
    use crate::reason;
    use bulla_amqp::message::encode_map_section;
    use bytes::Bytes;

    #[test]
    fn a_label_comes_off_as_it_was_put_on() {
        let user = Some("orders".into());
        let was = Was { priority: 7, persistent: true, put_at_ms: 5, user, keys: Keys::None };
        let payload = message(&[ID], b"body");
        let label = Label::new(Some(reason::SECURITY_ERROR), "tampered", &"é".repeat(400), "Q", NOW_MS);
        assert!(label.detail.len() <= DETAIL_BYTES_MAX);
        let labelled = labelled(&payload, &label, was.clone());
        assert_eq!((labelled.priority, labelled.persistent, labelled.put_at_ms), (7, true, 5));
        let labelled = contiguous(&labelled);
        assert_eq!(labelled_queue(&labelled).as_deref(), Some("Q"));
        let again = Label::new(None, "rejected", "", "R", NOW_MS);
        let twice = contiguous(&super::labelled(&labelled, &again, was.clone()));
        assert_eq!(labelled_queue(&twice).as_deref(), Some("R"));
        let sections = Sections::scan(&twice).unwrap();
        assert_eq!(annotations(&twice, &sections).len(), 4);
        let replayed = unlabelled_message(&twice, was);
        assert_eq!(contiguous(&replayed).to_contiguous(), payload.to_contiguous());
        assert_eq!((replayed.priority, replayed.put_at_ms), (7, 5));
    }

    #[test]
    fn a_label_that_somebody_else_wrote_is_cut_and_the_front_of_a_message_is_enough() {
        let key = |name: &str| Value::from(bulla_amqp::Symbol::new(&format!("{LABEL_PREFIX}{name}")).unwrap());
        let mut bytes = Vec::new();
        let label =
            [(key("cause"), Value::from("rejected")), (key("details"), Value::from("é".repeat(2_000).as_str()))];
        encode_map_section(MESSAGE_ANNOTATIONS, &label, &mut bytes);
        data_section_head(1_000_000, &mut bytes);
        let found = DeadLetter { number: 7, ..DeadLetter::default() };
        let letter = with_label(&Payload::from(Bytes::from(bytes)), found);
        assert_eq!((letter.number, letter.cause.as_str()), (7, "rejected"));
        assert_eq!(letter.details.len(), LABEL_TEXT_BYTES_MAX);
    }
}
