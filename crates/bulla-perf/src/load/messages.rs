//! The messages that are put, and how one that comes is known.

use bulla_amqp::Payload;
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Messages that differ from each other, one after another; fewer where they are long.
pub const MESSAGES: usize = 64;
/// Room for the sections before a payload.
const HEAD_BYTES_MAX: usize = 64;
/// Bytes that different messages may have together.
const TOGETHER_BYTES: usize = 16 << 20;
/// From this payload on all pairs put the same messages. Shorter ones each pair has for itself, so that pairs do not
/// wait for each other's reference counts.
const SHARED_BYTES_MIN: usize = 64 << 10;
/// What was made last, for the next pair.
static LAST: Mutex<Weak<Set>> = Mutex::new(Weak::new());
/// A header section that says durable and nothing else (part 3, section 3.2.1).
const DURABLE: [u8; 7] = [0, 0x53, 0x70, 0xc0, 2, 1, 0x41];

/// The messages that are put, one after another: properties with a message id, and a data section. Made once, shared by
/// all puts: a put costs the client a reference count.
#[derive(Clone, Debug)]
pub struct Messages(Arc<Set>);

#[derive(Debug)]
struct Set {
    whole: Vec<Payload>,
    /// Of each, the part that is compared; it lies in the whole.
    payloads: Vec<Bytes>,
    bytes: usize,
    persistent: bool,
}

impl Messages {
    /// Messages of so many bytes of payload, of which there is one at least.
    #[must_use]
    pub fn of(bytes: usize, persistent: bool) -> Messages {
        let bytes = bytes.max(1);
        if bytes < SHARED_BYTES_MIN {
            return Messages(Arc::new(Set::of(bytes, persistent)));
        }
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(set) = last.upgrade().filter(|set| set.bytes == bytes && set.persistent == persistent) {
            return Messages(set);
        }
        let set = Arc::new(Set::of(bytes, persistent));
        *last = Arc::downgrade(&set);
        Messages(set)
    }

    /// How many differ from each other: message n is the same as message n + kinds.
    #[must_use]
    pub fn kinds(&self) -> u64 {
        self.0.whole.len() as u64
    }

    /// The `number`th message.
    #[inline]
    #[must_use]
    pub fn put(&self, number: u64) -> Payload {
        self.0.whole[(number % self.kinds()) as usize].clone()
    }

    /// Whether a message that came is the `number`th, payload and all. What the queue manager put before the payload is
    /// its business.
    #[inline]
    #[must_use]
    pub fn is(&self, number: u64, message: &Payload) -> bool {
        let Some(mut before) = message.len().checked_sub(self.0.bytes) else { return false };
        let mut left: &[u8] = &self.0.payloads[(number % self.kinds()) as usize];
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

    /// Which of the [`kinds`](Self::kinds) one is that came out of its turn; none where it is none of them.
    #[must_use]
    pub fn which(&self, message: &Payload) -> Option<u64> {
        let at = message.len().checked_sub(self.0.bytes)?;
        // The first byte of a payload is its number.
        let number = message.bytes_at(at..at + 1).first().copied().map(u64::from)?;
        (number < self.kinds() && self.is(number, message)).then_some(number)
    }
}

impl Set {
    fn of(bytes: usize, persistent: bool) -> Set {
        let kinds = (TOGETHER_BYTES / bytes).clamp(2, MESSAGES);
        let whole: Vec<Bytes> = (0..kinds)
            .map(|n| {
                let mut message = Vec::with_capacity(bytes + HEAD_BYTES_MAX);
                message.extend(if persistent { &DURABLE[..] } else { &[] });
                message.extend(properties(n as u64));
                message.extend(bulla_amqp::message::data_section_head(bytes));
                message.extend((0..bytes).map(|at| (at * 7 + n) as u8));
                Bytes::from(message)
            })
            .collect();
        let payloads = whole.iter().map(|message| message.slice(message.len() - bytes..)).collect();
        Set { whole: whole.into_iter().map(Payload::from).collect(), payloads, bytes, persistent }
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
    fn long_messages_are_few_and_all_pairs_have_the_same() {
        let (one, two) = (Messages::of(4 << 20, false), Messages::of(4 << 20, false));
        assert_eq!(one.kinds(), 4);
        assert!(Arc::ptr_eq(&one.0, &two.0) && one.is(5, &two.put(1)) && !one.is(2, &two.put(1)));
        assert!(!Arc::ptr_eq(&one.0, &Messages::of(4 << 20, true).0));
        assert_eq!((Messages::of(96 << 20, false).kinds(), Messages::of(2048, false).kinds()), (2, 64));
    }

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
