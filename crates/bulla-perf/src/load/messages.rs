//! The messages that are put, and how one that comes is known.

use bulla_amqp::Payload;
use bytes::Bytes;
use std::sync::Arc;

/// Messages that differ from each other, one after another.
pub const MESSAGES: usize = 64;
/// A header section that says durable and nothing else (part 3, section 3.2.1).
const DURABLE: [u8; 7] = [0, 0x53, 0x70, 0xc0, 2, 1, 0x41];

/// The messages that are put, one after another: properties with a message id, and a data section. Made once, shared by
/// all puts: a put costs the client a reference count.
#[derive(Clone, Debug)]
pub struct Messages {
    whole: Arc<[Payload]>,
    payloads: Arc<[Bytes]>,
    bytes: usize,
}

impl Messages {
    /// Messages of so many bytes of payload, of which there is one at least.
    #[must_use]
    pub fn of(bytes: usize, persistent: bool) -> Messages {
        let bytes = bytes.max(1);
        let payloads: Vec<Bytes> =
            (0..MESSAGES).map(|n| Bytes::from((0..bytes).map(|at| (at * 7 + n) as u8).collect::<Vec<u8>>())).collect();
        let whole = payloads.iter().enumerate().map(|(n, payload)| {
            let mut message = if persistent { DURABLE.to_vec() } else { Vec::new() };
            message.extend(properties(n as u64));
            message.extend(bulla_amqp::message::data_section_head(bytes));
            message.extend_from_slice(payload);
            Payload::from(Bytes::from(message))
        });
        Messages { whole: whole.collect(), payloads: payloads.into(), bytes }
    }

    /// The `number`th message.
    #[inline]
    #[must_use]
    pub fn put(&self, number: u64) -> Payload {
        self.whole[(number % MESSAGES as u64) as usize].clone()
    }

    /// Whether a message that came is the `number`th, payload and all. What the queue manager put before the payload is its business.
    #[inline]
    #[must_use]
    pub fn is(&self, number: u64, message: &Payload) -> bool {
        let Some(mut before) = message.len().checked_sub(self.bytes) else { return false };
        let mut left: &[u8] = &self.payloads[(number % MESSAGES as u64) as usize];
        // A long message comes in many chunks, which are compared where they lie.
        for chunk in message.chunks() {
            let skipped = before.min(chunk.len());
            before -= skipped;
            let (Some(part), Some(expected)) = (chunk.get(skipped..), left.get(..chunk.len() - skipped)) else {
                return false;
            };
            if part != expected {
                return false;
            }
            left = left.get(part.len()..).unwrap_or_default();
        }
        left.is_empty()
    }

    /// Which of the [`MESSAGES`] one is that came out of its turn; none where it is none of them.
    #[must_use]
    pub fn which(&self, message: &Payload) -> Option<u64> {
        let at = message.len().checked_sub(self.bytes)?;
        // The first byte of a payload is its number.
        let number = message.bytes_at(at..at + 1).first().copied().map(u64::from)?;
        (number < MESSAGES as u64 && self.is(number, message)).then_some(number)
    }
}

/// A properties section with a message id and nothing else (part 3, section 3.2.4).
#[must_use]
pub fn properties(message_id: u64) -> Vec<u8> {
    let mut section = vec![0, 0x53, 0x73, 0xc0, 10, 1, 0x80];
    section.extend(message_id.to_be_bytes());
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_every_byte_of_its_payload() {
        let messages = Messages::of(300, true);
        assert!(messages.is(65, &messages.put(65)) && messages.is(1, &messages.put(65)));
        assert!(!messages.is(2, &messages.put(1)));
        assert_eq!(messages.which(&messages.put(130)), Some(2));
        let whole = messages.put(7).to_contiguous();
        for damage in [whole.len() - 300, whole.len() - 1] {
            let mut bytes = whole.to_vec();
            bytes[damage] ^= 0x80;
            let damaged = Payload::from(Bytes::from(bytes));
            assert!(!messages.is(7, &damaged) && messages.which(&damaged).is_none(), "byte {damage}");
        }
        assert_eq!(messages.which(&Payload::from(Bytes::from_static(b"short"))), None);
        // However it is cut into chunks.
        for cut in [1, whole.len() - 301, whole.len() - 300, whole.len() - 299, whole.len() - 1] {
            let chunks = |whole: &Bytes| Payload::from(vec![whole.slice(..cut), whole.slice(cut..)]);
            assert!(messages.is(7, &chunks(&whole)) && !messages.is(8, &chunks(&whole)), "cut at {cut}");
        }
    }
}
