#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use super::*;
use bulla_amqp::message::encode_map_section;
use bulla_amqp::types::Timestamp;
use bulla_amqp::{Header, MessageId, Properties, Symbol, Value};

/// A message with some of everything, encoded.
struct Sample {
    header: Option<Header>,
    properties: Properties,
    application: Vec<(Value, Value)>,
    facts: Facts,
}

impl Sample {
    fn new() -> Self {
        let properties = Properties {
            message_id: Some(MessageId::String("ID:one".into())),
            correlation_id: Some(MessageId::String("order-7".into())),
            subject: Some("trade".into()),
            creation_time: Some(Timestamp(1_700_000_000_000)),
            group_id: Some("group".into()),
            group_sequence: Some(4),
            user_id: Some(Bytes::from_static(b"alice")),
            ..Properties::default()
        };
        let application = vec![
            (Value::from("colour"), Value::from("green")),
            (Value::from("weight"), Value::Long(2500)),
            (Value::from("small"), Value::Byte(-3)),
            (Value::from("price"), Value::Double(2.5)),
            (Value::from("ready"), Value::Bool(true)),
            (Value::from("late"), Value::Bool(false)),
            (Value::from("none"), Value::Null),
            (Value::from("größe"), Value::from("naïve 信封")),
            (Value::from("percent"), Value::from("50%_off")),
            (Value::from("huge"), Value::Ulong(u64::MAX)),
            (Value::from("zero"), Value::Int(0)),
        ];
        let header = Some(Header { durable: true, priority: 7, ttl_ms: Some(5000), ..Header::default() });
        Self { header, properties, application, facts: Facts { priority: 7, persistent: true, delivery_count: 2 } }
    }

    fn encoded(&self) -> Bytes {
        let mut bytes = Vec::new();
        if let Some(header) = &self.header {
            header.encode_section(&mut bytes);
        }
        let annotation = Value::from(Symbol::from_static("x-opt-note"));
        encode_map_section(0x72, &[(annotation, Value::from("colour"))], &mut bytes);
        self.properties.encode_section(&mut bytes);
        encode_map_section(0x74, &self.application, &mut bytes);
        bytes.extend_from_slice(&[0x00, 0x53, 0x75, 0xa0, 3, 0x00, 0x53, 0x74]);
        bytes.into()
    }
}

fn judge(text: &str, sample: &Sample) -> bool {
    let selector = Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let encoded = sample.encoded();
    let mut scratch = Scratch::default();
    let whole = selector.matches(&mut scratch, sample.facts, std::slice::from_ref(&encoded), true).unwrap();
    // The same in pieces, however they are cut.
    for size in [1, 7, 64] {
        let pieces: Vec<Bytes> = encoded.chunks(size).map(Bytes::copy_from_slice).collect();
        assert_eq!(selector.matches(&mut scratch, sample.facts, &pieces, true), Some(whole), "{text} by {size}");
    }
    // Of the front alone, either the same or that it is not enough.
    for front in [0, 40, encoded.len() - 4] {
        let front = [encoded.slice(..front)];
        let said = selector.matches(&mut scratch, sample.facts, &front, false);
        assert!(said.is_none() || said == Some(whole), "{text}: {said:?}");
    }
    whole
}

#[track_caller]
fn takes(text: &str) {
    assert!(judge(text, &Sample::new()), "{text}");
}

/// Neither the condition nor its opposite holds, or just the opposite.
#[track_caller]
fn leaves(text: &str) {
    assert!(!judge(text, &Sample::new()), "{text}");
}

/// The condition is unknown: neither it nor its opposite holds.
#[track_caller]
fn unknown(text: &str) {
    leaves(text);
    leaves(&format!("NOT ({text})"));
}

#[track_caller]
fn refused(text: &str, position: usize, what: &str) {
    let error = Selector::parse(text).expect_err(text);
    assert!(error.position == position && error.what.contains(what), "{text}: {error}");
}

#[test]
fn numbers_of_every_width_compare_with_each_other() {
    for text in [
        "weight = 2500",
        "weight = 2500.0",
        "weight = 2.5E3",
        "weight = 2500L",
        "weight = 0x9c4",
        "weight = 04704",
        "weight > 2499 AND weight < 2501 AND weight >= 2500 AND weight <= 2500 AND weight <> 2499",
        "small = -3",
        "small < 0",
        "-small = 3",
        "+small = -3",
        "price = 2.5",
        "price > 2",
        "price = .25e1",
        "price = 2.5f",
        "zero = 0.",
        "huge > 9223372036854775807",
        "-9223372036854775808 < small",
        "9223372036854775807 > weight",
        "amqp.ttl = 5000",
    ] {
        takes(text);
    }
}

#[test]
fn arithmetic_binds_as_it_does_in_java() {
    for text in [
        "weight = 2000 + 250 * 2",
        "weight = (2000 + 250) * 2 - 2000",
        "weight / 1000 = 2",
        "weight / 1000.0 = 2.5",
        "10 - 4 - 3 = 3",
        "100 / 10 / 5 = 2",
        "price * 2 = 5",
        "9223372036854775807 + 1 = -9223372036854775808",
        "- - weight = 2500",
        "weight * -1 = -2500",
    ] {
        takes(text);
    }
    unknown("weight / zero = 1");
    leaves("price / zero = 1");
    unknown("colour + 1 = 2");
}

#[test]
fn what_is_not_there_is_unknown() {
    for text in [
        "absent = 1",
        "absent <> 1",
        "absent < 1",
        "none = 'x'",
        "absent + 1 > 0",
        "absent BETWEEN 1 AND 2",
        "absent IN ('x')",
        "absent LIKE '%'",
        "absent",
        "absent = absent",
        "weight BETWEEN absent AND 3000",
    ] {
        unknown(text);
    }
    takes("absent IS NULL");
    takes("none IS NULL");
    takes("weight IS NOT NULL");
    leaves("weight IS NULL");
    takes("NOT (weight IS NULL)");
}

#[test]
fn three_valued_logic_is_that_of_sql() {
    let (yes, no, maybe) = ("ready", "late", "absent");
    for (text, wanted) in [
        (format!("{yes} AND {yes}"), Some(true)),
        (format!("{yes} AND {no}"), Some(false)),
        (format!("{yes} AND {maybe}"), None),
        (format!("{maybe} AND {no}"), Some(false)),
        (format!("{maybe} AND {maybe}"), None),
        (format!("{yes} OR {maybe}"), Some(true)),
        (format!("{maybe} OR {yes}"), Some(true)),
        (format!("{no} OR {maybe}"), None),
        (format!("{no} OR {no}"), Some(false)),
        (format!("NOT {yes}"), Some(false)),
        (format!("NOT {no}"), Some(true)),
        (format!("NOT {maybe}"), None),
        (format!("NOT NOT {yes}"), Some(true)),
        (format!("{no} AND {no} OR {yes}"), Some(true)),
        (format!("{yes} OR {no} AND {no}"), Some(true)),
        (format!("({yes} OR {no}) AND {no}"), Some(false)),
        (format!("NOT {no} AND {yes}"), Some(true)),
        ("weight BETWEEN 3000 AND absent".to_owned(), Some(false)),
    ] {
        match wanted {
            Some(true) => takes(&text),
            Some(false) => takes(&format!("NOT ({text})")),
            None => unknown(&text),
        }
    }
}

#[test]
fn unlike_types_are_neither_equal_nor_unequal() {
    for text in ["colour = 1", "colour <> 1", "weight = 'green'", "weight <> 'green'", "ready = 'true'", "ready = 1"] {
        leaves(text);
    }
    leaves("colour > 1");
    leaves("colour BETWEEN 1 AND 2");
    leaves("weight IN ('2500')");
    leaves("weight LIKE '2%'");
}

#[test]
fn strings_and_booleans_are_equal_or_not() {
    for text in [
        "colour = 'green'",
        "'green' = colour",
        "colour <> 'Green'",
        "colour = colour",
        "ready = TRUE",
        "late = false",
        "ready <> FALSE",
        "ready",
        "NOT late",
        "größe = 'naïve 信封'",
        "TRUE",
        "(weight > 1) = TRUE",
    ] {
        takes(text);
    }
    leaves("FALSE");
    leaves("colour = 'gre''en'");
}

#[test]
fn between_in_and_like_work_with_and_without_not() {
    for text in [
        "weight BETWEEN 2500 AND 2500",
        "weight NOT BETWEEN 1 AND 2",
        "weight between 2000 + 1 and 3000 and ready",
        "NOT weight BETWEEN 1 AND 2",
        "colour IN ('red', 'green')",
        "colour NOT IN ('red', 'blue')",
        "colour LIKE 'green'",
        "colour LIKE 'gr%'",
        "colour LIKE '%een'",
        "colour LIKE '%r%e%'",
        "colour LIKE 'g___n'",
        "colour LIKE '%'",
        "colour NOT LIKE '_'",
        "colour NOT LIKE 'g%d'",
        "größe LIKE 'na_ve __'",
        "größe LIKE '%信_'",
        "percent LIKE '50!%!_off' ESCAPE '!'",
        "percent LIKE '%!%%' ESCAPE '!'",
        "percent NOT LIKE '50!_%' ESCAPE '!'",
        "percent LIKE '50\\%\\_off' ESCAPE '\\'",
        "(colour) LIKE 'green'",
    ] {
        takes(text);
    }
    leaves("weight NOT BETWEEN 1 AND 3000");
    leaves("colour NOT IN ('green')");
    leaves("colour NOT LIKE 'gr%'");
}

#[test]
fn header_fields_have_their_jms_names_and_amqp_ones() {
    for text in [
        "JMSMessageID = 'ID:one'",
        "JMSCorrelationID = 'order-7'",
        "JMSPriority = 7",
        "JMSPriority BETWEEN 5 AND 9",
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSTimestamp = 1700000000000",
        "JMSType = 'trade'",
        "JMSType LIKE 'tr%'",
        "JMSXGroupID = 'group' AND JMSXGroupSeq = 4",
        "JMSXUserID = 'alice'",
        "JMSXDeliveryCount = 3",
        "amqp.delivery_count = 2",
        "amqp.durable = TRUE",
        "amqp.priority = 7",
        "amqp.message_id = 'ID:one'",
        "amqp.subject = 'trade' AND amqp.correlation_id LIKE 'order-_' AND amqp.user_id = 'alice'",
        "amqp.creation_time >= 1700000000000",
        "amqp.to IS NULL",
    ] {
        takes(text);
    }
    let mut bare = Sample::new();
    bare.header = None;
    assert!(judge("JMSDeliveryMode = 'PERSISTENT'", &bare));
    bare.facts.persistent = false;
    assert!(judge("JMSDeliveryMode = 'NON_PERSISTENT' AND amqp.durable = FALSE AND JMSPriority = 7", &bare));
    bare.properties = Properties::default();
    assert!(judge("JMSMessageID IS NULL AND JMSCorrelationID IS NULL AND JMSType IS NULL", &bare));
}

#[test]
fn ids_of_every_type_are_strings_as_qpid_jms_makes_them() {
    let uuid = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8];
    for (id, message, correlation) in [
        (MessageId::String("ID:x".into()), "ID:x", "ID:x"),
        (MessageId::String("x".into()), "ID:AMQP_NO_PREFIX:x", "x"),
        (MessageId::String("x".into()), "x", "x"),
        (
            MessageId::String("ID:AMQP_ULONG:5".into()),
            "ID:AMQP_STRING:ID:AMQP_ULONG:5",
            "ID:AMQP_STRING:ID:AMQP_ULONG:5",
        ),
        (MessageId::Ulong(0), "ID:AMQP_ULONG:0", "ID:AMQP_ULONG:0"),
        (MessageId::Ulong(u64::MAX), "ID:AMQP_ULONG:18446744073709551615", "ID:AMQP_ULONG:18446744073709551615"),
        (
            MessageId::Uuid(uuid),
            "ID:AMQP_UUID:01234567-89ab-cdef-0102-030405060708",
            "ID:AMQP_UUID:01234567-89ab-cdef-0102-030405060708",
        ),
        (MessageId::Binary(Bytes::from_static(&[0xab, 0x01])), "ID:AMQP_BINARY:AB01", "ID:AMQP_BINARY:AB01"),
    ] {
        let mut sample = Sample::new();
        sample.properties.message_id = Some(id.clone());
        sample.properties.correlation_id = Some(id);
        let keys = keys_of(&[sample.encoded()]).unwrap();
        let pieces: Vec<Bytes> = sample.encoded().chunks(5).map(Bytes::copy_from_slice).collect();
        assert_eq!(keys_of(&pieces), Some(keys));
        for (kind, text) in
            [(0, format!("JMSMessageID = '{message}'")), (1, format!("'{correlation}' = JMSCorrelationID"))]
        {
            assert!(judge(&text, &sample), "{text}");
            let alone = Selector::parse(&text).unwrap().key();
            assert_eq!(alone, Some(Key { kind, value: keys[kind] }), "{text}");
            let term = Selector::parse(&format!("weight > 1 AND ({text} AND ready)")).unwrap().key();
            assert_eq!(term, alone);
        }
    }
}

#[test]
fn only_an_id_without_which_nothing_is_wanted_is_a_key() {
    for text in [
        "JMSCorrelationID <> 'x'",
        "JMSCorrelationID = 'x' OR ready",
        "NOT JMSCorrelationID = 'x'",
        "JMSCorrelationID LIKE 'x'",
        "JMSCorrelationID = JMSMessageID",
        "colour = 'x'",
    ] {
        assert_eq!(Selector::parse(text).unwrap().key(), None, "{text}");
    }
    assert_eq!(keys_of(&[Bytes::from_static(&[0x00, 0x53, 0x75, 0xa0, 0])]), Some([0, 0]));
    let encoded = Sample::new().encoded();
    assert_eq!(keys_of(&[encoded.slice(..30)]), None, "the front of a message is not enough");
}

#[test]
fn what_is_no_selector_is_refused_with_its_place() {
    for (text, position, what) in [
        ("", 1, "expected a value, found the end"),
        ("colour =", 9, "expected a value"),
        ("colour = 'green", 10, "without its closing quote"),
        ("= 1", 1, "expected a value"),
        ("colour = 'a' colour", 14, "expected the end or an operator"),
        ("(weight = 1", 12, "expected ')'"),
        ("weight = 1)", 11, "expected the end"),
        ("weight BETWEEN 1", 17, "expected AND"),
        ("weight IN ('a'", 15, "expected ')'"),
        ("weight IN (1)", 12, "expected a string"),
        ("weight IN ()", 12, "expected a string"),
        ("colour LIKE 1", 13, "expected a string"),
        ("colour LIKE 'a' ESCAPE 'ab'", 24, "one character"),
        ("colour LIKE 'a!b' ESCAPE '!'", 19, "escape character"),
        ("colour LIKE 'a!' ESCAPE '!'", 18, "escape character"),
        ("'a' LIKE 'a'", 1, "only the name of a property"),
        ("1 IS NULL", 1, "only the name of a property"),
        ("weight IS 1", 11, "expected NULL"),
        ("weight NOT 1", 12, "expected BETWEEN, IN or LIKE"),
        ("weight", 0, ""),
        ("5", 1, "a value where a condition is wanted"),
        ("'yes'", 1, "a value where a condition is wanted"),
        ("weight + 1", 1, "a value where a condition is wanted"),
        ("NOT 5", 5, "a value where a condition is wanted"),
        ("ready AND 5", 11, "a value where a condition is wanted"),
        ("colour > 'a'", 10, "only numbers are less or greater"),
        ("TRUE < 1", 1, "only numbers are less or greater"),
        ("'a' + 1 = 2", 1, "only numbers can be computed with"),
        ("-TRUE = 1", 2, "only numbers can be computed with"),
        ("weight = 9223372036854775808", 10, "too large"),
        ("weight = 99999999999999999999", 10, "too large"),
        ("weight = 089", 10, "octal"),
        ("weight = 0x", 10, "a number that is none"),
        ("weight = 1e", 10, "exponent"),
        ("weight = 1abc", 11, "does not end there"),
        ("weight # 1", 8, "a character that no selector has"),
        ("größe = größe größe", 15, "expected the end"),
        ("JMSReplyTo = 'x'", 1, "may not stand in a selector"),
        ("amqp.nothing = 'x'", 1, "no field amqp.nothing"),
        ("NULL = weight", 1, "expected a value, found NULL"),
        ("weight == 1", 9, "expected a value"),
        ("weight != 1", 8, "a character that no selector has"),
    ] {
        if position > 0 {
            refused(text, position, what);
        }
    }
}

#[test]
fn a_selector_has_limits() {
    let nested = |levels: usize| format!("{}ready{}", "(".repeat(levels), ")".repeat(levels));
    takes(&nested(DEPTH_MAX));
    assert!(Selector::parse(&nested(DEPTH_MAX + 1)).unwrap_err().what.contains("levels"));
    assert!(Selector::parse(&format!("{} ready", "NOT ".repeat(100))).unwrap_err().what.contains("levels"));
    assert!(Selector::parse(&format!("{}weight = 1", "-".repeat(100))).unwrap_err().what.contains("levels"));
    let chain = |links: usize| format!("weight{} > 0", "+1".repeat(links));
    takes(&chain(CHAIN_MAX - 1));
    assert!(Selector::parse(&chain(CHAIN_MAX + 1)).unwrap_err().what.contains("operations"));
    let terms = "ready OR ".repeat(SELECTOR_BYTES_MAX / 9 - 1) + "ready";
    takes(&terms);
    assert!(Selector::parse(&"x".repeat(SELECTOR_BYTES_MAX + 1)).unwrap_err().what.contains("bytes"));
}

#[test]
fn bytes_that_are_no_message_match_nothing_but_what_is_null() {
    let selector = Selector::parse("colour = 'green' OR JMSMessageID = 'x'").unwrap();
    let null = Selector::parse("colour IS NULL").unwrap();
    let mut scratch = Scratch::default();
    for bytes in [&[][..], &[0x00], &[0x00, 0x53, 0x74, 0xd1, 0xff, 0xff, 0xff, 0xff], &[7; 40]] {
        let body = [Bytes::copy_from_slice(bytes)];
        assert_eq!(selector.matches(&mut scratch, Facts::default(), &body, true), Some(false));
        assert_eq!(null.matches(&mut scratch, Facts::default(), &body, true), Some(true));
    }
}

#[test]
fn an_item_that_runs_on_behind_its_list_is_none() {
    // The string says 9 bytes, the map has room for 2; behind it follows a body that looks like the rest.
    let bytes = Bytes::from_static(&[
        0x00, 0x53, 0x74, 0xc1, 0x07, 0x02, 0xa1, 0x01, b'a', 0xa1, 0x09, b'x', 0x00, 0x53, 0x75, 0xa0, 0x06, b'x',
        b'x', b'x', b'x', b'x', b'x',
    ]);
    let selector = Selector::parse("a IS NULL").unwrap();
    let mut scratch = Scratch::default();
    assert_eq!(selector.matches(&mut scratch, Facts::default(), std::slice::from_ref(&bytes), true), Some(true));
    let pieces: Vec<Bytes> = bytes.chunks(4).map(Bytes::copy_from_slice).collect();
    assert_eq!(selector.matches(&mut scratch, Facts::default(), &pieces, true), Some(true));
}

#[test]
fn delivery_times_are_found_among_annotations() {
    let mut section = Vec::new();
    let key = |name: &str| Value::from(Symbol::new(name).unwrap());
    let pairs = [(key("x-opt-a"), Value::from("text")), (key("x-opt-delivery-time"), Value::Long(77))];
    encode_map_section(0x72, &pairs, &mut section);
    let mut found = Vec::new();
    each_number(&section, |name, number| found.push((name.to_vec(), number)));
    assert_eq!(found, [(b"x-opt-delivery-time".to_vec(), 77)]);
    each_number(&section[..9], |_, _| panic!("a section cut short has no numbers"));
}

/// Words of a selector and what does not belong into one, put together at random: an answer or an error, the same for a
/// message in one piece and in many, and no panic.
#[test]
fn any_words_in_any_order_are_a_selector_or_an_error() {
    const WORDS: &[&str] = &[
        "colour",
        "weight",
        "absent",
        "ready",
        "JMSPriority",
        "JMSMessageID",
        "amqp.to",
        "größe",
        "'green'",
        "'gr%'",
        "''",
        "'",
        "1",
        "2.5",
        "0x1F",
        "9223372036854775808",
        "1e",
        "TRUE",
        "FALSE",
        "NULL",
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "LIKE",
        "IS",
        "ESCAPE",
        "(",
        ")",
        "(",
        ")",
        ",",
        "+",
        "-",
        "*",
        "/",
        "=",
        "<>",
        "<",
        ">=",
        "#",
        "\u{0}",
        "$",
        "_",
        ".",
    ];
    let mut random = fastrand::Rng::with_seed(1);
    let mut next = |below: usize| random.usize(..below);
    let encoded = Sample::new().encoded();
    let pieces: Vec<Bytes> = encoded.chunks(9).map(Bytes::copy_from_slice).collect();
    let mut scratch = Scratch::default();
    let mut parsed = 0;
    for _ in 0..200_000 {
        let words: Vec<&str> = (0..1 + next(9)).map(|_| WORDS[next(WORDS.len())]).collect();
        let text = words.join(if next(4) == 0 { "" } else { " " });
        match Selector::parse(&text) {
            Ok(selector) => {
                parsed += 1;
                let whole = selector.matches(&mut scratch, Facts::default(), std::slice::from_ref(&encoded), true);
                assert!(whole.is_some(), "{text}");
                assert_eq!(selector.matches(&mut scratch, Facts::default(), &pieces, true), whole, "{text}");
            }
            Err(error) => assert!((1..=text.chars().count() + 1).contains(&error.position), "{text}: {error}"),
        }
    }
    assert!(parsed > 1_000, "only {parsed} were selectors");
}

/// Bytes changed at random: judged without a panic, whatever they have become.
#[test]
fn damaged_messages_are_judged_like_any_other() {
    let selector =
        Selector::parse("weight > 1 AND (colour LIKE 'g%' OR JMSCorrelationID = 'order-7') AND amqp.durable").unwrap();
    let encoded = Sample::new().encoded();
    let mut scratch = Scratch::default();
    for at in 0..encoded.len() {
        for byte in [0x00, 0x01, 0x40, 0x7f, 0xa1, 0xb1, 0xd1, 0xff] {
            let mut damaged = encoded.to_vec();
            damaged[at] = byte;
            let damaged = Bytes::from(damaged);
            assert!(selector.matches(&mut scratch, Facts::default(), std::slice::from_ref(&damaged), true).is_some());
            let pieces: Vec<Bytes> = damaged.chunks(11).map(Bytes::copy_from_slice).collect();
            assert!(selector.matches(&mut scratch, Facts::default(), &pieces, true).is_some());
            let _ = selector.matches(&mut scratch, Facts::default(), &[damaged.slice(..at)], false);
            let _ = keys_of(&pieces);
        }
    }
}

/// A message with these application properties alone.
fn with_properties(properties: &[(Value, Value)]) -> Bytes {
    let mut bytes = Vec::new();
    encode_map_section(0x74, properties, &mut bytes);
    bytes.extend_from_slice(&[0x00, 0x53, 0x75, 0xa0, 0]);
    bytes.into()
}

fn judge_bytes(text: &str, bytes: &Bytes, scratch: &mut Scratch) -> bool {
    let selector = Selector::parse(text).unwrap();
    selector.matches(scratch, Facts::default(), std::slice::from_ref(bytes), true).unwrap()
}

#[test]
fn what_would_take_too_long_is_unknown_and_its_cost_is_told() {
    let mut scratch = Scratch::default();
    let text = "a".repeat(1 << 20);
    let message =
        with_properties(&[(Value::from("x"), Value::from(text.as_str())), (Value::from("y"), Value::from("b"))]);
    let never = format!("x LIKE '%{}b'", "a".repeat(5_000));
    for (selector, wanted) in [
        (never.clone(), false),
        (format!("NOT ({never})"), false),
        (format!("y = 'b' OR {never}"), true),
        ("x LIKE 'a%'".into(), true),
        ("y LIKE '%b'".into(), true),
        (vec!["x = x"; 900].join(" AND "), false),
        ("x = x".into(), true),
    ] {
        assert_eq!(judge_bytes(&selector, &message, &mut scratch), wanted, "{:.40}", selector);
    }
    judge_bytes(&never, &message, &mut scratch);
    assert!(scratch.cost() > 100, "{}", scratch.cost());
    judge_bytes("y = 'b'", &message, &mut scratch);
    assert_eq!(scratch.cost(), 0);
}

#[test]
fn a_word_is_found_in_a_long_text() {
    let mut text = "lorem ipsum ".repeat(4_000);
    text.push_str("needle");
    let message = with_properties(&[(Value::from("x"), Value::from(text.as_str()))]);
    assert!(judge_bytes("x LIKE '%needle%'", &message, &mut Scratch::default()));
}

#[test]
fn of_very_many_properties_the_first_thousands_are_looked_at() {
    let named = |number: usize| (Value::from(format!("p{number}").as_str()), Value::Long(1));
    let message = with_properties(&(0..10_000).map(named).collect::<Vec<_>>());
    for (name, wanted) in [("p0", true), ("p4000", true), ("p9999", false)] {
        assert_eq!(judge_bytes(&format!("{name} = 1"), &message, &mut Scratch::default()), wanted, "{name}");
    }
    let some = (0..500).rev().map(|number| format!("p{number} = 1")).collect::<Vec<_>>().join(" AND ");
    assert!(judge_bytes(&some, &message, &mut Scratch::default()));
}
