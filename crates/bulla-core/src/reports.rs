//! Report messages: what became of a message, told to its reply-to (inventory A2.11). An application asks by the
//! application properties that IBM MQ's JMS classes use; `docs/operating/queues.md` has the table.
//!
//! A report is put by the rights of the user who put the message, which its record keeps, and they are asked when it is
//! put.

use crate::asker::Who;
use crate::authority::Right;
use crate::denials;
use crate::envelope::{self, Label, chunks_of, payload_of};
use crate::manager::{Manager, State};
use crate::random::Random;
use crate::reason::{self, Refusal};
use crate::report_options::asked_of;
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::{MessageId as AmqpId, Properties};
use bulla_amqp::{BodyForm, MessageBody, MessageParts, Payload, Sections, Symbol, Timestamp, Value};
use bulla_queue::{Expired, Found, Keys, Marker, Message, MessageId};
use bulla_seal::policy::Quality;
use std::time::Instant;

/// Now, and whose log and audit hear of what is not put.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    /// The queue manager.
    pub manager: &'a Manager,
    /// Now, for what is bounded in a second.
    pub now: Instant,
    /// Now, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// Bytes of the original's data in a report that asks for some, as MQ has it.
const DATA_BYTES: usize = 100;
/// Descriptor of the application properties (AMQP part 3, section 3.2.5).
const APPLICATION_PROPERTIES: u8 = 0x74;
/// MQMT_REPORT
const TYPE_REPORT: i32 = 4;

/// What a report is about, with MQ's bit for it; the next higher ones ask for 100 bytes of data and for all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fact {
    /// It arrived on its queue (COA).
    Arrived,
    /// It was got (COD).
    Delivered,
    /// It expired.
    Expired,
    /// It could not be delivered and went to the dead-letter queue.
    Undeliverable(u16),
}

impl Fact {
    /// The property that asks for it, without its prefix, and MQRO's lowest bit.
    fn asked_by(self) -> (&'static str, u64) {
        match self {
            Fact::Arrived => ("COA", 0x100),
            Fact::Delivered => ("COD", 0x800),
            Fact::Expired => ("Expiration", 0x20_0000),
            Fact::Undeliverable(_) => ("Exception", 0x100_0000),
        }
    }

    /// MQFB: what JMS_IBM_Feedback says.
    fn feedback(self) -> i32 {
        match self {
            Fact::Expired => 258,
            Fact::Arrived => 259,
            Fact::Delivered => 260,
            Fact::Undeliverable(reason) => reason.into(),
        }
    }
}

/// How much of the original's data a report repeats.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Data {
    None,
    Some,
    All,
}

/// A message that may ask for reports.
struct Asking {
    payload: Payload,
    sections: Sections,
    properties: Properties,
    asked: Vec<(String, Value)>,
}

impl Asking {
    fn read(payload: Payload) -> Option<Self> {
        let sections = Sections::scan(&payload).ok()?;
        let asked = asked_of(&payload, &sections);
        let properties = if asked.is_empty() { None } else { sections.decode_properties(&payload).ok() };
        Some(Self { properties: properties?, payload, sections, asked })
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.asked.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn says(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
            || self.value(name).and_then(Value::as_u64).is_some_and(|n| n > 0)
    }

    /// Whether it asks for a report of this fact, and with how much data.
    fn wants(&self, fact: Fact) -> Option<Data> {
        let (name, bit) = fact.asked_by();
        let value = match self.value(name)? {
            Value::Bool(true) => bit,
            value => value.as_u64()?,
        };
        match (value & bit, value & (bit << 1), value & (bit << 2)) {
            (0, ..) => None,
            (_, _, 1..) => Some(Data::All),
            (_, 1.., 0) => Some(Data::Some),
            (_, 0, 0) => Some(Data::None),
        }
    }

    /// The report: correlated by the original's message id, unless it passes its own.
    fn report(&self, fact: Fact, data: Data, wall_ms: u64) -> Payload {
        let original = &self.properties;
        let fresh = AmqpId::Uuid(Random::system().bytes());
        let message_id = if self.says("Pass_Msg_ID") { original.message_id.clone() } else { Some(fresh) };
        let passes = self.says("Pass_Correl_ID");
        let correlation_id = if passes { original.correlation_id.clone() } else { original.message_id.clone() };
        let sealed = original.content_type.as_ref().is_some_and(|kind| kind.as_str().starts_with("application/pkcs7"));
        let body = match &self.sections.body {
            BodyForm::Data(range) if data != Data::None && !sealed => {
                let end = if data == Data::All { range.end } else { range.end.min(range.start + DATA_BYTES) };
                self.payload.slice(range.start..end)
            }
            _ => Payload::new(),
        };
        let content_type: Option<Symbol> = original.content_type.clone().filter(|_| !body.is_empty());
        let mut properties = Vec::new();
        Properties {
            message_id,
            to: original.reply_to.clone(),
            correlation_id,
            content_type,
            creation_time: Some(Timestamp(i64::try_from(wall_ms).unwrap_or(i64::MAX))),
            ..Properties::default()
        }
        .encode_section(&mut properties);
        let said = [
            (Value::from("JMS_IBM_MsgType"), Value::Int(TYPE_REPORT)),
            (Value::from("JMS_IBM_Feedback"), Value::Int(fact.feedback())),
        ];
        let mut application_properties = Vec::new();
        encode_map_section(APPLICATION_PROPERTIES, &said, &mut application_properties);
        let parts = MessageParts {
            properties: properties.into(),
            application_properties: application_properties.into(),
            body: MessageBody::Data(body),
            ..MessageParts::default()
        };
        Payload::from(parts.build().to_contiguous())
    }
}

/// A message that asks for reports is on its queue now. On a transmission queue (`is_remote`) it has not arrived.
/// `connection` is that of the client that put it: one that has not signed in may be told on a queue of its own.
pub fn arrived(state: &mut State, at: &Moment<'_>, id: MessageId, is_remote: bool, connection: Option<Marker>) {
    state.store.mark(id, connection);
    if !is_remote {
        tell_of(state, at, id, Fact::Arrived);
    }
}

/// A message went to the dead-letter queue instead of its own.
pub fn undeliverable(state: &mut State, at: &Moment<'_>, id: MessageId, why: &Refusal) {
    tell_of(state, at, id, Fact::Undeliverable(why.reason.code));
}

/// The report that a message asks for which is about to be got, where it does: to be given to [`delivered`] when it is
/// got. Of a message of more than `bytes_max` bytes a report repeats no more than the first hundred.
pub fn about_to_be_got(state: &mut State, id: MessageId, wall_ms: u64, bytes_max: usize) -> Option<Report> {
    if !state.store.is_marked(id) {
        return None;
    }
    let (_, found) = state.store.find(id)?;
    let payload = payload_of(&state.store.body(id).ok()?);
    let all = payload.len() <= bytes_max;
    let report = Report::of(found, payload, Fact::Delivered, all, wall_ms)?;
    Some(Report { connection: state.store.marker(id), ..report })
}

/// A message was got.
pub fn delivered(state: &mut State, at: &Moment<'_>, report: Option<Report>) {
    if let Some(report) = report {
        report.put(state, at);
    }
}

/// Once a turn: reports of what has expired. One compare where nothing marked has.
pub fn turn(state: &mut State, at: &Moment<'_>) {
    let mut expired = Vec::new();
    state.store.take_expired(&mut expired);
    for Expired { found, body, marker, .. } in expired {
        let report = body.and_then(|body| Report::of(found, payload_of(&body), Fact::Expired, true, at.wall_ms));
        if let Some(report) = report {
            Report { connection: marker, ..report }.put(state, at);
        }
    }
}

fn tell_of(state: &mut State, at: &Moment<'_>, id: MessageId, fact: Fact) {
    let Some((_, found)) = state.store.find(id) else { return };
    let Ok(body) = state.store.body(id) else { return };
    if let Some(report) = Report::of(found, payload_of(&body), fact, true, at.wall_ms) {
        Report { connection: state.store.marker(id), ..report }.put(state, at);
    }
}

/// A report that is to be put: all that is still needed of the message it is about.
pub struct Report {
    found: Found,
    /// The connection that put the message, where that is known.
    connection: Option<Marker>,
    to: String,
    report: Payload,
    wall_ms: u64,
}

impl Report {
    /// The report of a fact, where the message asks for it; with `all` of its data where it asks for that.
    fn of(found: Found, payload: Payload, fact: Fact, all: bool, wall_ms: u64) -> Option<Self> {
        let asking = Asking::read(payload)?;
        let data = match asking.wants(fact)? {
            Data::All if !all => Data::Some,
            data => data,
        };
        let to = asking.properties.reply_to.clone()?;
        Some(Self { found, connection: None, to, report: asking.report(fact, data, wall_ms), wall_ms })
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.report.len()
    }

    /// Puts the report where the message wants it, if the user who put that message may put there; else there is none,
    /// and the operator reads why. Where it can't be put it goes to the dead-letter queue; else it is lost, and the log
    /// says so.
    fn put(self, state: &mut State, at: &Moment<'_>) {
        let Self { found, connection, to, report, wall_ms } = &self;
        let to = &*state.queue_address(to).into_owned();
        let user = found.user.as_ref().map(|user| user.as_str());
        if let Err(refusal) = state.check(Who::of_message(user, *connection), Right::Put, to) {
            denials::tell(at.manager, at.now, "a report for", user, &refusal);
            return;
        }
        let body = chunks_of(report.clone());
        // It may carry a sealed message.
        let keys = envelope::keys_of_body(&body);
        let message = Message { keys: keys.clone(), body, ..of_the_queue_manager(found, *wall_ms) };
        let Err(refusal) = put(state, to, message) else { return };
        let label = Label::new(Some(refusal.reason), "report", &refusal.detail, to, *wall_ms);
        let labelled = Message {
            keys,
            body: envelope::labelled(report, &label, found.into()).body,
            ..of_the_queue_manager(found, *wall_ms)
        };
        let dead_letters = state.definitions.queue_manager.dead_letter_queue.clone();
        let buried = dead_letters.map(|queue| put(state, &queue, labelled));
        if !matches!(buried, Some(Ok(()))) && state.notices.peer_lines.may_write(at.now) {
            crate::warning!("a report is lost: {refusal}");
        }
    }
}

/// A report is as urgent and as durable as what it is about, and does not expire. Its record names the user whose
/// rights it was put by: a replay asks them again.
fn of_the_queue_manager(found: &Found, wall_ms: u64) -> Message {
    Message {
        priority: found.priority,
        persistent: found.persistent,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: wall_ms,
        user: found.user.clone(),
        keys: Keys::None,
        body: bytes::Bytes::new().into(),
    }
}

fn put(state: &mut State, to: &str, message: Message) -> Result<(), Refusal> {
    let route = state.put_route(to)?;
    if !route.put_enabled {
        return Err(Refusal::new(reason::PUT_INHIBITED, format!("{to} has PUT(DISABLED)")));
    }
    if route.policy.as_ref().is_some_and(|policy| policy.quality() != Quality::None) {
        return Err(Refusal::security(
            "unsigned",
            format!("{to}: reports are not sealed, and its policy asks for a seal"),
        ));
    }
    let message = match &route.transmission {
        Some(header) => header.put_on(message),
        None => message,
    };
    state.store.put(route.queue, message).map(drop).map_err(|error| crate::refusals::store_refusal(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_options::PREFIX;

    fn asking(properties: &Properties, asked: &[(&str, Value)], body: &[u8]) -> Asking {
        let (mut encoded, mut application) = (Vec::new(), Vec::new());
        properties.encode_section(&mut encoded);
        let asked: Vec<_> = asked.iter().map(|(key, value)| (Value::from(*key), value.clone())).collect();
        encode_map_section(APPLICATION_PROPERTIES, &asked, &mut application);
        let parts = MessageParts {
            properties: encoded.into(),
            application_properties: application.into(),
            body: MessageBody::Data(Payload::from(bytes::Bytes::copy_from_slice(body))),
            ..MessageParts::default()
        };
        Asking::read(parts.build()).unwrap()
    }

    fn original() -> Properties {
        Properties {
            message_id: Some(AmqpId::String("ID:1".into())),
            correlation_id: Some(AmqpId::String("own".into())),
            reply_to: Some("REPORTS".into()),
            ..Properties::default()
        }
    }

    #[test]
    fn what_is_asked_for_is_read_from_mq_s_bits() {
        for (value, fact, expected) in [
            (Value::Int(0x100), Fact::Arrived, Some(Data::None)),
            (Value::Int(0x300), Fact::Arrived, Some(Data::Some)),
            (Value::Int(0x700), Fact::Arrived, Some(Data::All)),
            (Value::Int(0x3800), Fact::Delivered, Some(Data::All)),
            (Value::Long(0x60_0000), Fact::Expired, Some(Data::Some)),
            (Value::Int(117_440_512), Fact::Undeliverable(2053), Some(Data::All)),
            (Value::Int(0), Fact::Arrived, None),
            (Value::Int(-1), Fact::Arrived, None),
            (Value::Bool(true), Fact::Arrived, Some(Data::None)),
            (Value::from("yes"), Fact::Arrived, None),
        ] {
            let name = format!("{PREFIX}{}", fact.asked_by().0);
            let asking = asking(&original(), &[(&name, value.clone())], b"");
            assert_eq!(asking.wants(fact), expected, "{value:?}");
            assert_eq!(
                asking.wants(Fact::Undeliverable(0)),
                expected.filter(|_| matches!(fact, Fact::Undeliverable(_)))
            );
        }
    }

    fn read(report: &Payload) -> (Properties, Vec<(Value, Value)>, Vec<u8>) {
        let sections = Sections::scan(report).unwrap();
        let BodyForm::Data(range) = sections.body.clone() else { panic!("one data section") };
        let said = Sections::decode_map(report, sections.application_properties.as_ref()).unwrap();
        (sections.decode_properties(report).unwrap(), said, report.slice(range).to_contiguous().to_vec())
    }

    #[test]
    fn a_report_is_correlated_by_the_message_id_and_says_what_happened() {
        let asking_coa = asking(&original(), &[("JMS_IBM_Report_COA", Value::Int(0x300))], &[7; 200]);
        let (properties, said, body) = read(&asking_coa.report(Fact::Arrived, Data::Some, 5));
        assert_eq!(properties.correlation_id, original().message_id);
        assert!(matches!(properties.message_id, Some(AmqpId::Uuid(_))));
        assert_eq!((properties.to.as_deref(), body.len()), (Some("REPORTS"), DATA_BYTES));
        assert_eq!(said[1], (Value::from("JMS_IBM_Feedback"), Value::Int(259)));
        let passing =
            [("Pass_Msg_ID", 0x80), ("Pass_Correl_ID", 0x40)].map(|(name, bit)| (format!("{PREFIX}{name}"), bit));
        let passing: Vec<(&str, Value)> = passing.iter().map(|(name, bit)| (name.as_str(), Value::Int(*bit))).collect();
        let (properties, said, body) =
            read(&asking(&original(), &passing, b"x").report(Fact::Undeliverable(2053), Data::None, 5));
        assert_eq!(properties.correlation_id, original().correlation_id);
        assert_eq!(properties.message_id, original().message_id);
        assert_eq!((said[1].1.clone(), body.len()), (Value::Int(2053), 0));
    }

    #[test]
    fn a_report_repeats_nothing_of_a_sealed_message() {
        let sealed = Properties { content_type: Symbol::new("application/pkcs7-mime; smime-type=x"), ..original() };
        let asking = asking(&sealed, &[("JMS_IBM_Report_COA", Value::Int(0x700))], b"DER");
        let (properties, _, body) = read(&asking.report(Fact::Arrived, Data::All, 5));
        assert_eq!((body.len(), properties.content_type), (0, None));
    }
}
