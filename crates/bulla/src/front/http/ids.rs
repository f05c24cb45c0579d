//! Ids of messages as texts: 48 hexadecimal digits for 24 bytes, and the forms of Qpid JMS for the rest.

use bulla_amqp::MessageId;
use bytes::Bytes;

/// Bytes of an id as queue managers make them.
pub(super) const ID_BYTES: usize = 24;
/// What stands before an id that is no text, or a text that does not begin with `ID:` itself.
const BINARY: &str = "ID:AMQP_BINARY:";
const UUID: &str = "ID:AMQP_UUID:";
const ULONG: &str = "ID:AMQP_ULONG:";

/// The text of an id.
pub(super) fn text(id: &MessageId) -> String {
    match id {
        MessageId::Binary(bytes) if bytes.len() == ID_BYTES => base16ct::lower::encode_string(bytes),
        MessageId::String(text) => text.clone(),
        other => jms(other),
    }
}

/// The id of a text. Each text is one: what has none of the forms is a text itself.
pub(super) fn parse(text: &str) -> MessageId {
    let hex = |text: &str| base16ct::mixed::decode_vec(text).ok();
    let bare = text.strip_prefix("ID:").unwrap_or(text);
    if bare.len() == 2 * ID_BYTES
        && let Some(bytes) = hex(bare)
    {
        return MessageId::Binary(bytes.into());
    }
    let binary = || Some(MessageId::Binary(hex(text.strip_prefix(BINARY)?)?.into()));
    let uuid = || Some(MessageId::Uuid(hex(&text.strip_prefix(UUID)?.replace('-', ""))?.try_into().ok()?));
    let ulong = || Some(MessageId::Ulong(text.strip_prefix(ULONG)?.parse().ok()?));
    binary().or_else(uuid).or_else(ulong).unwrap_or_else(|| MessageId::String(text.to_owned()))
}

/// The id in a selector, between quotes.
pub(super) fn in_selector(id: &MessageId) -> String {
    jms(id).replace('\'', "''")
}

/// The id as Qpid JMS has it.
fn jms(id: &MessageId) -> String {
    match id {
        MessageId::String(text) => text.clone(),
        MessageId::Binary(bytes) => format!("{BINARY}{}", base16ct::upper::encode_string(bytes)),
        MessageId::Ulong(number) => format!("{ULONG}{number}"),
        MessageId::Uuid(bytes) => {
            let digits = base16ct::lower::encode_string(bytes);
            let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range).unwrap_or_default());
            format!("{UUID}{}", parts.join("-"))
        }
    }
}

/// An id of random bytes.
pub(super) fn of_bytes(bytes: [u8; ID_BYTES]) -> MessageId {
    MessageId::Binary(Bytes::copy_from_slice(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_a_text_that_leads_back() {
        let uuid = [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8];
        for (id, expected) in [
            (MessageId::Binary(Bytes::from_static(&[0xab; ID_BYTES])), "ab".repeat(ID_BYTES)),
            (MessageId::Binary(Bytes::from_static(&[0xab, 1])), "ID:AMQP_BINARY:AB01".into()),
            (MessageId::Ulong(7), "ID:AMQP_ULONG:7".into()),
            (MessageId::Uuid(uuid), "ID:AMQP_UUID:01234567-89ab-cdef-0102-030405060708".into()),
            (MessageId::String("ID:one".into()), "ID:one".into()),
            (MessageId::String("order 7".into()), "order 7".into()),
        ] {
            assert_eq!(text(&id), expected);
            assert_eq!(parse(&expected), id);
        }
        assert_eq!(parse(&format!("ID:{}", "AB".repeat(ID_BYTES))), of_bytes([0xab; ID_BYTES]));
        for odd in ["ID:AMQP_BINARY:xyz", "ID:AMQP_UUID:01", "ID:AMQP_ULONG:-1", &"xy".repeat(ID_BYTES), ""] {
            assert_eq!(parse(odd), MessageId::String(odd.into()), "{odd}");
        }
    }
}
