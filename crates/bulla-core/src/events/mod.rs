//! Events: what an administrator's programs want to hear of. Each is a line of the log, and a message on one of three
//! queues where the queue manager's switch for it is on. `docs/formats/event.md` is the page.
//!
//! Raising one can't fail whatever caused it, and can't lead to another: a message that finds its queue full is counted
//! and dropped, and the depth of an event queue is not watched.

mod raised;

pub use crate::catalog::system_queues::{CHANNEL_QUEUE, MANAGER_QUEUE, PERFORMANCE_QUEUE, QUEUES};

use crate::catalog::status::{MissingKey, MissingRing, Stranded, listed_rings};
use crate::catalog::{LocalQueue, QueueManager};
use crate::reason::{self, Refusal};
use crate::{calendar, envelope};
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::Properties;
use bulla_amqp::{MessageBody, MessageParts, Payload, Symbol, Timestamp, Value};
use bulla_queue::{Crossing, CrossingKind, Keys, Message};
use serde_json::{Map, json};

/// Descriptor of the application properties (AMQP part 3, section 3.2.5).
const APPLICATION_PROPERTIES: u8 = 0x74;
/// Longest text in a field, in bytes: some of them come from unauthenticated clients.
const TEXT_BYTES_MAX: usize = 512;

/// Key rings that one event names.
const RINGS_NAMED_MAX: usize = 16;

/// Something that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A queue reached QDEPTHHI, fell to QDEPTHLO, or reached MAXDEPTH.
    Depth {
        /// The queue.
        queue: String,
        /// Which of them.
        kind: CrossingKind,
        /// Messages there now.
        depth: u32,
        /// MAXDEPTH.
        max_depth: u32,
    },
    /// A user asked for what it may not do (2035), or could not sign in.
    NotAuthorised {
        /// The user; none for a client that gave no name.
        user: Option<String>,
        /// The address of the connection.
        address: String,
        /// What was asked for: `connect`, `put`, `get`, …
        action: &'static str,
        /// On what; blank for the queue manager itself.
        object: String,
    },
    /// Too many attempts to sign in were wrong: further ones are refused for a time.
    LockedOut {
        /// As whom; none for a lockout of the address, and for a name that is none.
        user: Option<String>,
        /// From where; none for a user who is guarded, from wherever the attempts come.
        address: Option<String>,
        /// Wrong attempts that led to it.
        failures: u32,
        /// For how long.
        seconds: u64,
    },
    /// A channel runs.
    ChannelStarted {
        /// Its name.
        channel: String,
        /// The partner's name.
        partner: String,
    },
    /// A channel runs no more.
    ChannelStopped {
        /// Its name.
        channel: String,
        /// The partner's name.
        partner: String,
        /// Why; none for an end that was asked for.
        reason: Option<Refusal>,
    },
    /// A channel's connection was refused by TLS, on this side or the other.
    TlsRefused {
        /// The channel; blank where it is not known.
        channel: String,
        /// The partner's name or address.
        partner: String,
        /// Why.
        reason: Refusal,
    },
    /// A certificate is about to expire, or has.
    CertificateExpires {
        /// Where it is: `rings/orders/own/orders.pem`.
        place: String,
        /// Its subject.
        subject: String,
        /// Its serial number, hexadecimal.
        serial: String,
        /// End of its validity, seconds since 1970, UTC.
        not_after: u64,
        /// Whole days until then; negative afterwards.
        days: i64,
    },
    /// A certificate that renews by itself was not renewed.
    EnrolmentFailed {
        /// Where it is: `rings/orders`, `tls/server.pem`.
        place: String,
        /// The authority that was asked, by its name in `enrolment.toml`.
        authority: String,
        /// Serial number of the certificate that was to be renewed, hexadecimal; none where there is none yet.
        serial: Option<String>,
        /// Why.
        why: String,
        /// Failures in a row.
        failures: u32,
        /// End of the certificate's validity, seconds since 1970, UTC; none where there is none yet.
        not_after: Option<u64>,
        /// When it is tried again.
        retry_seconds: u64,
        /// Whether there is no certificate, or less than a tenth of its lifetime is left.
        is_pressing: bool,
    },
    /// Messages lie on a queue that no key ring here can open, and have for long.
    MessagesStranded {
        /// The queue.
        queue: String,
        /// How many no ring here has a key for, how many one that can't be read, and the age of the oldest.
        stranded: Stranded,
    },
    /// A server with keys refuses the token of a device.
    TokenRefused {
        /// The device.
        device: String,
        /// The server's words, and what to do.
        why: String,
    },
    /// A private key that messages need is in no key ring here any more.
    KeyMissing {
        /// The key, whose it was, and what needs it.
        key: MissingKey,
    },
    /// Users' key rings that a group of shared queues needs can't be used here, since now.
    RingsMissing {
        /// The group.
        group: String,
        /// Those of which it was not so before.
        rings: Vec<MissingRing>,
        /// All that are missing now.
        missing: usize,
    },
    /// Key rings that were missing can be used here, or are not needed any more.
    RingsFound {
        /// The group.
        group: String,
        /// Their users.
        users: Vec<String>,
        /// All that are still missing.
        missing: usize,
    },
}

impl Event {
    /// The event of a depth that was crossed.
    pub fn depth(crossing: &Crossing, queue: &str, max_depth: u32) -> Self {
        Event::Depth { queue: queue.to_owned(), kind: crossing.kind, depth: crossing.depth, max_depth }
    }

    /// The end of a channel: an event of TLS where that is why.
    pub fn channel_ended(channel: &str, partner: &str, reason: Option<&Refusal>) -> Self {
        let (channel, partner) = (channel.to_owned(), partner.to_owned());
        match reason.filter(|refusal| is_tls(refusal)) {
            Some(refusal) => Event::TlsRefused { channel, partner, reason: refusal.clone() },
            None => Event::ChannelStopped { channel, partner, reason: reason.cloned() },
        }
    }

    /// Its name, as the message's subject has it.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Depth { kind: CrossingKind::High, .. } => "QUEUE.DEPTH.HIGH",
            Event::Depth { kind: CrossingKind::Low, .. } => "QUEUE.DEPTH.LOW",
            Event::Depth { kind: CrossingKind::Full, .. } => "QUEUE.FULL",
            Event::NotAuthorised { .. } => "NOT.AUTHORIZED",
            Event::LockedOut { .. } => "SIGNIN.LOCKOUT",
            Event::ChannelStarted { .. } => "CHANNEL.STARTED",
            Event::ChannelStopped { .. } => "CHANNEL.STOPPED",
            Event::TlsRefused { .. } => "CHANNEL.SSL.ERROR",
            Event::CertificateExpires { .. } => "CERTIFICATE.EXPIRES",
            Event::EnrolmentFailed { .. } => "ENROLMENT.FAILED",
            Event::MessagesStranded { .. } => "MESSAGES.STRANDED",
            Event::TokenRefused { .. } => "DEVICE.TOKEN.REFUSED",
            Event::KeyMissing { .. } => "KEY.MISSING",
            Event::RingsMissing { .. } => "GROUP.RINGS.MISSING",
            Event::RingsFound { .. } => "GROUP.RINGS.FOUND",
        }
    }

    /// MQ's reason code for the event; 0 where MQ has none.
    pub fn reason(&self) -> u16 {
        match self {
            Event::Depth { kind: CrossingKind::High, .. } => 2224,
            Event::Depth { kind: CrossingKind::Low, .. } => 2225,
            Event::Depth { kind: CrossingKind::Full, .. } => reason::Q_FULL.code,
            Event::NotAuthorised { .. } => reason::NOT_AUTHORIZED.code,
            Event::ChannelStarted { .. } => 2282,
            Event::ChannelStopped { .. } => 2283,
            Event::TlsRefused { .. } => 2371,
            Event::LockedOut { .. }
            | Event::CertificateExpires { .. }
            | Event::EnrolmentFailed { .. }
            | Event::MessagesStranded { .. }
            | Event::TokenRefused { .. }
            | Event::KeyMissing { .. }
            | Event::RingsMissing { .. }
            | Event::RingsFound { .. } => 0,
        }
    }

    /// The queue that its message goes to.
    pub fn queue(&self) -> &'static str {
        match self {
            Event::NotAuthorised { .. }
            | Event::LockedOut { .. }
            | Event::CertificateExpires { .. }
            | Event::EnrolmentFailed { .. }
            | Event::MessagesStranded { .. }
            | Event::TokenRefused { .. }
            | Event::KeyMissing { .. }
            | Event::RingsMissing { .. }
            | Event::RingsFound { .. } => MANAGER_QUEUE,
            Event::Depth { .. } => PERFORMANCE_QUEUE,
            Event::ChannelStarted { .. } | Event::ChannelStopped { .. } | Event::TlsRefused { .. } => CHANNEL_QUEUE,
        }
    }

    /// Whether the queue manager's switches let its message out. There is none for certificates and keys.
    pub(super) fn is_wanted(&self, manager: &QueueManager) -> bool {
        match self {
            Event::Depth { .. } => manager.performance_events,
            Event::NotAuthorised { .. } | Event::LockedOut { .. } => manager.authority_events,
            Event::ChannelStarted { .. } | Event::ChannelStopped { .. } | Event::TlsRefused { .. } => {
                manager.channel_events
            }
            Event::CertificateExpires { .. }
            | Event::EnrolmentFailed { .. }
            | Event::MessagesStranded { .. }
            | Event::TokenRefused { .. }
            | Event::KeyMissing { .. }
            | Event::RingsMissing { .. }
            | Event::RingsFound { .. } => true,
        }
    }

    /// The line of the log. What channels do and who is refused stands there already, from where it happens.
    pub(super) fn log(&self) {
        match self {
            Event::Depth { queue, kind, depth, max_depth } => {
                let what = match kind {
                    CrossingKind::High => "is deep",
                    CrossingKind::Low => "is deep no more",
                    CrossingKind::Full => "is full",
                };
                crate::note!(queue, depth, "{queue} {what}: {depth} messages of {max_depth}");
            }
            Event::LockedOut { user, address, failures, seconds } => {
                let user = user.as_deref().map_or_else(String::new, |user| format!(" as {user}"));
                match address {
                    Some(from) => crate::warning!(
                        "{failures} wrong attempts to sign in{user} from {from}: refused for {seconds} s"
                    ),
                    None => crate::warning!(
                        "{failures} wrong attempts to sign in{user}: one from each new address for {seconds} s"
                    ),
                }
            }
            Event::CertificateExpires { place, subject, not_after, days, .. } => {
                let at = calendar::rfc3339(*not_after);
                match days {
                    ..0 => crate::alarm!("{place}: the certificate of {subject} has expired, at {at}"),
                    _ => crate::warning!("{place}: the certificate of {subject} expires in {days} days, at {at}"),
                }
            }
            Event::EnrolmentFailed {
                place,
                authority,
                serial,
                why,
                failures,
                not_after,
                retry_seconds,
                is_pressing,
            } => {
                let serial = serial.as_deref().unwrap_or_default();
                let until = match not_after {
                    Some(not_after) => format!("the certificate {serial} ends at {}", calendar::rfc3339(*not_after)),
                    None => "there is none".to_owned(),
                };
                let what = format!(
                    "{place}: no certificate from {authority}: {why}; {until}; attempt {failures}, again in \
                     {retry_seconds} s"
                );
                match is_pressing {
                    true => crate::alarm!("{what}"),
                    false => crate::warning!("{what}"),
                }
            }
            Event::MessagesStranded { queue, stranded } => {
                let (messages, hours) = (stranded.messages(), stranded.oldest_seconds / 3_600);
                crate::warning!(
                    queue,
                    messages,
                    "{queue}: no key ring here can open {messages} messages, the oldest for {hours} h"
                );
            }
            Event::KeyMissing { key } => {
                let MissingKey { users, subject, serial, messages, queues, queue_count, .. } = key;
                let (whose, mut places) = (users.join(", "), queues.join(", "));
                if *queue_count > queues.len() {
                    places += &format!(" and {} more queues", queue_count - queues.len());
                }
                crate::alarm!(
                    serial,
                    messages,
                    "the key {serial} of {subject} is no longer in the key ring of {whose}, and {messages} messages need \
                     it, on {places}"
                );
            }
            Event::RingsMissing { group, rings, missing } => {
                let listed = listed_rings(rings, RINGS_NAMED_MAX, rings.len());
                crate::alarm!(
                    group,
                    missing,
                    "shared group {group}: while this queue manager owns it, nothing is sealed or opened with \
                     {missing} key rings that it lacks: {listed}"
                );
            }
            Event::RingsFound { group, users, missing } => {
                let more = users.len().saturating_sub(RINGS_NAMED_MAX);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let named = users.iter().take(RINGS_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
                crate::note!(
                    group,
                    missing,
                    "shared group {group}: these key rings were missing, and are here or not needed now: {named}{more}"
                );
            }
            _ => {}
        }
    }

    /// The fields that this event has beside those of every event.
    fn fields(&self) -> Map<String, serde_json::Value> {
        let fields = match self {
            Event::Depth { queue, depth, max_depth, .. } => {
                json!({ "queue": queue, "depth": depth, "maxdepth": max_depth })
            }
            Event::NotAuthorised { user, address, action, object } => {
                json!({ "user": user.as_deref().map(cut), "address": address, "action": action, "object": cut(object) })
            }
            Event::LockedOut { user, address, failures, seconds } => {
                json!({ "user": user.as_deref().map(cut), "address": address, "failures": failures, "seconds": seconds })
            }
            Event::ChannelStarted { channel, partner } => json!({ "channel": channel, "partner": cut(partner) }),
            Event::ChannelStopped { channel, partner, reason } => json!({
                "channel": channel,
                "partner": cut(partner),
                "code": reason.as_ref().map(|refusal| refusal.reason.code),
                "cause": reason.as_ref().map(|refusal| cut(&refusal.to_string()).to_owned()),
            }),
            Event::TlsRefused { channel, partner, reason } => json!({
                "channel": channel,
                "partner": cut(partner),
                "code": reason.reason.code,
                "cause": cut(&reason.to_string()),
            }),
            Event::CertificateExpires { place, subject, serial, not_after, days } => json!({
                "place": place,
                "subject": cut(subject),
                "serial": serial,
                "notafter": calendar::rfc3339(*not_after),
                "days": days,
            }),
            Event::EnrolmentFailed { place, authority, serial, why, failures, not_after, retry_seconds, .. } => json!({
                "place": place,
                "authority": authority,
                "serial": serial,
                "why": cut(why),
                "failures": failures,
                "notafter": not_after.map(calendar::rfc3339),
                "retry": retry_seconds,
            }),
            Event::MessagesStranded { queue, stranded } => json!({
                "queue": queue,
                "nokey": stranded.no_key,
                "locked": stranded.locked,
                "seconds": stranded.oldest_seconds,
            }),
            Event::TokenRefused { device, why } => json!({ "device": device, "why": cut(why) }),
            Event::KeyMissing { key } => json!({
                "users": key.users,
                "subject": cut(&key.subject),
                "serial": key.serial,
                "messages": key.messages,
                "queues": key.queues,
            }),
            Event::RingsMissing { group, rings, missing } => {
                let rings = rings.iter().take(RINGS_NAMED_MAX);
                let rings: Vec<_> = rings.map(|ring| json!({ "user": ring.user, "why": cut(&ring.why) })).collect();
                json!({ "group": group, "rings": rings, "missing": missing })
            }
            Event::RingsFound { group, users, missing } => {
                let users: Vec<_> = users.iter().take(RINGS_NAMED_MAX).collect();
                json!({ "group": group, "users": users, "missing": missing })
            }
        };
        match fields {
            serde_json::Value::Object(fields) => fields,
            _ => Map::new(), // every arm above is an object
        }
    }

    /// The message: JSON in a data section, with name and reason code where a selector can see them.
    pub(super) fn message(&self, manager: &str, queue: &LocalQueue, wall_ms: u64) -> Message {
        let mut content = Map::new();
        content.insert("event".into(), self.name().into());
        content.insert("reason".into(), self.reason().into());
        content.insert("qmgr".into(), manager.into());
        content.insert("time".into(), calendar::rfc3339(wall_ms / 1000).into());
        content.append(&mut self.fields());
        let content = serde_json::Value::Object(content).to_string();
        let selectable = [("event", Value::from(self.name())), ("reason", Value::Uint(self.reason().into()))];
        let body = json_message(self.name(), &selectable, content, wall_ms);
        Message {
            priority: queue.default_priority,
            persistent: queue.default_persistent,
            expires_at_ms: None,
            available_at_ms: None,
            put_at_ms: wall_ms,
            user: None,
            keys: Keys::None,
            body: envelope::chunks_of(body),
        }
    }
}

/// A message of this queue manager's own: JSON in a data section.
pub fn json_message(subject: &str, selectable: &[(&str, Value)], content: String, wall_ms: u64) -> Payload {
    let mut properties = Vec::new();
    let creation_time = Some(Timestamp(i64::try_from(wall_ms).unwrap_or(i64::MAX)));
    let content_type = Some(Symbol::from_static("application/json"));
    let subject = Some(subject.to_owned());
    Properties { subject, content_type, creation_time, ..Properties::default() }.encode_section(&mut properties);
    let selectable: Vec<(Value, Value)> =
        selectable.iter().map(|(key, value)| (Value::from(*key), value.clone())).collect();
    let mut application_properties = Vec::new();
    encode_map_section(APPLICATION_PROPERTIES, &selectable, &mut application_properties);
    let parts = MessageParts {
        properties: properties.into(),
        application_properties: application_properties.into(),
        body: MessageBody::Data(Payload::from(bytes::Bytes::from(content))),
        ..MessageParts::default()
    };
    Payload::from(parts.build().to_contiguous())
}

/// Whether a refusal is TLS's.
fn is_tls(refusal: &Refusal) -> bool {
    let codes = [
        reason::SSL_INITIALIZATION_ERROR,
        reason::SSL_PEER_NAME_MISMATCH,
        reason::SSL_PEER_NAME_ERROR,
        reason::UNSUPPORTED_CIPHER_SUITE,
        reason::SSL_CERTIFICATE_REVOKED,
        reason::SSL_CERT_STORE_ERROR,
    ];
    codes.contains(&refusal.reason)
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Whether a queue is one of those that events go to.
pub fn is_event_queue(name: &str) -> bool {
    QUEUES.iter().any(|(queue, _)| *queue == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_amqp::{BodyForm, Sections};

    fn read(message: &Message) -> (serde_json::Value, Vec<(Value, Value)>, Properties) {
        let payload = envelope::payload_of(&message.body);
        let sections = Sections::scan(&payload).unwrap();
        let BodyForm::Data(range) = sections.body.clone() else { panic!("one data section") };
        let content = serde_json::from_slice(&payload.slice(range).to_contiguous()).unwrap();
        let selectable = Sections::decode_map(&payload, sections.application_properties.as_ref()).unwrap();
        (content, selectable, sections.decode_properties(&payload).unwrap())
    }

    /// The very message of `docs/formats/event.md`.
    #[test]
    fn an_event_is_a_json_text_with_its_name_where_a_selector_sees_it() {
        let crossing = Crossing {
            queue: bulla_queue::QueueId::new(bulla_queue::StoreNumber::LOCAL, 1),
            kind: CrossingKind::High,
            depth: 80,
        };
        let event = Event::depth(&crossing, "ORDERS", 100);
        let queue = LocalQueue { default_persistent: true, default_priority: 7, ..LocalQueue::default() };
        let message = event.message("QM1", &queue, 1_795_296_295_123);
        assert_eq!((message.priority, message.persistent, message.expires_at_ms), (7, true, None));
        let (content, selectable, properties) = read(&message);
        let expected = json!({
            "event": "QUEUE.DEPTH.HIGH", "reason": 2224, "qmgr": "QM1", "time": "2026-11-21T21:24:55Z",
            "queue": "ORDERS", "depth": 80, "maxdepth": 100,
        });
        assert_eq!(content, expected);
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/event.md");
        let page = std::fs::read_to_string(page).unwrap();
        let shown = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(shown).unwrap(), expected, "the page's own message");
        assert_eq!(selectable[0], (Value::from("event"), Value::from("QUEUE.DEPTH.HIGH")));
        assert_eq!(selectable[1], (Value::from("reason"), Value::Uint(2224)));
        assert_eq!(properties.subject.as_deref(), Some("QUEUE.DEPTH.HIGH"));
        assert_eq!(properties.content_type, Some(Symbol::from_static("application/json")));
    }

    #[test]
    fn a_stranger_s_words_are_cut() {
        let event = Event::NotAuthorised {
            user: Some("é".repeat(10_000)),
            address: "127.0.0.1:9".into(),
            action: "put",
            object: "x".repeat(10_000),
        };
        assert!(event.message("QM1", &LocalQueue::default(), 0).body.len() < 2 * TEXT_BYTES_MAX + 500);
        let (content, ..) = read(&event.message("QM1", &LocalQueue::default(), 0));
        assert_eq!((&content["action"], &content["reason"]), (&json!("put"), &json!(2035)));
    }

    #[test]
    fn of_many_key_rings_that_are_missing_some_are_named() {
        let ring = |number: usize| MissingRing { user: format!("user{number}"), why: "x".repeat(10_000) };
        let rings: Vec<MissingRing> = (0..RINGS_NAMED_MAX + 9).map(ring).collect();
        let event = Event::RingsMissing { group: "G".into(), rings, missing: 30 };
        let message = event.message("QM1", &LocalQueue::default(), 0);
        let (content, ..) = read(&message);
        let (named, last) = (content["rings"].as_array().unwrap(), &content["rings"][RINGS_NAMED_MAX - 1]);
        assert_eq!((named.len(), &last["user"], &content["missing"]), (RINGS_NAMED_MAX, &json!("user15"), &json!(30)));
        assert_eq!(last["why"].as_str().unwrap().len(), TEXT_BYTES_MAX);
        let users = (0..RINGS_NAMED_MAX + 9).map(|number| number.to_string()).collect();
        let event = Event::RingsFound { group: "G".into(), users, missing: 0 };
        let (content, ..) = read(&event.message("QM1", &LocalQueue::default(), 0));
        assert_eq!((&content["event"], content["users"].as_array().unwrap().len()), (&json!("GROUP.RINGS.FOUND"), 16));
    }

    #[test]
    fn a_channel_that_ends_in_tls_says_so() {
        let tls = Refusal::new(reason::SSL_CERTIFICATE_REVOKED, "CN=x");
        let event = Event::channel_ended("QM1.QM2", "QM2", Some(&tls));
        assert_eq!((event.name(), event.reason(), event.queue()), ("CHANNEL.SSL.ERROR", 2371, CHANNEL_QUEUE));
        let broken = Refusal::new(reason::CONNECTION_BROKEN, "reset");
        let (content, ..) =
            read(&Event::channel_ended("QM1.QM2", "QM2", Some(&broken)).message("QM1", &LocalQueue::default(), 0));
        assert_eq!((&content["event"], &content["code"]), (&json!("CHANNEL.STOPPED"), &json!(2009)));
        let (content, ..) =
            read(&Event::channel_ended("QM1.QM2", "QM2", None).message("QM1", &LocalQueue::default(), 0));
        assert!(content["code"].is_null());
    }
}
