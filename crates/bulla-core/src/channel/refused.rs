//! Numbered messages that the receiving end has refused: their numbers are used, and the messages are not there.
//!
//! The sending end puts such a message on its own dead-letter queue. Until that is certain, the receiving end keeps the
//! number in its note, so that a sending end which has not heard of the refusal does not take it for an arrival.

use super::note::{IN_DOUBT_MAX, put_varint, take_varint};
use super::protocol::SEQUENCE_MAX;
use std::collections::BTreeMap;

/// Refused numbers, each with its reason code.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Refused(BTreeMap<u64, u16>);

impl Refused {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A message is refused.
    pub fn note(&mut self, number: u64, reason: u16) {
        self.0.insert(number, reason);
    }

    /// The refused numbers above `base`, in ascending order, and why.
    pub fn above(&self, base: u64) -> impl Iterator<Item = (u64, u16)> {
        self.0.range(base.saturating_add(1)..).map(|(number, reason)| (*number, *reason))
    }

    /// A message of that number has come: the sending end has settled all numbers that are further back than messages
    /// can be in doubt, and that is durable there.
    pub fn received(&mut self, number: u64) {
        if !self.0.is_empty() {
            self.0 = self.0.split_off(&(number.saturating_sub(IN_DOUBT_MAX as u64) + 1));
        }
    }

    /// As bytes: the count, then for each the step from the number before (from 0 for the first) and the reason.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.0.len() as u64, out);
        let mut last = 0;
        for (number, reason) in &self.0 {
            put_varint(number - last, out);
            put_varint(u64::from(*reason), out);
            last = *number;
        }
    }

    /// From all of these bytes; none where they are no such list.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let count = usize::try_from(take_varint(&mut bytes)?).ok().filter(|count| *count <= IN_DOUBT_MAX)?;
        let (mut refused, mut last) = (BTreeMap::new(), 0u64);
        for _ in 0..count {
            let step = take_varint(&mut bytes)?;
            last = last.checked_add(step).filter(|number| step > 0 && *number <= SEQUENCE_MAX)?;
            refused.insert(last, u16::try_from(take_varint(&mut bytes)?).ok()?);
        }
        bytes.is_empty().then_some(Self(refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(numbers: impl IntoIterator<Item = u64>) -> Refused {
        Refused(numbers.into_iter().map(|number| (number, 2063)).collect())
    }

    fn encoded(refused: &Refused) -> Vec<u8> {
        let mut bytes = Vec::new();
        refused.encode(&mut bytes);
        bytes
    }

    #[test]
    fn refused_numbers_read_back() {
        for refused in [refused([]), refused([1]), refused([7, 8, 1 << 40, SEQUENCE_MAX])] {
            let bytes = encoded(&refused);
            assert_eq!(Refused::decode(&bytes), Some(refused));
            assert_eq!(Refused::decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Refused::decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(Refused::decode(&[1, 0, 1]), None, "two of one number, or number 0");
        assert_eq!(Refused::decode(&encoded(&refused(1..=IN_DOUBT_MAX as u64 + 1))), None, "more than can be in doubt");
    }

    #[test]
    fn as_many_as_can_be_in_doubt_fit_a_note() {
        let first = SEQUENCE_MAX - IN_DOUBT_MAX as u64;
        assert!(encoded(&refused(first..SEQUENCE_MAX)).len() < 16 << 10);
    }

    #[test]
    fn a_number_is_kept_for_as_long_as_it_can_be_in_doubt() {
        let mut all = refused([1, 2]);
        all.received(IN_DOUBT_MAX as u64);
        assert_eq!(all, refused([1, 2]));
        all.received(IN_DOUBT_MAX as u64 + 1);
        assert_eq!(all, refused([2]));
        assert_eq!(refused([1, 2, 5]).above(1).collect::<Vec<_>>(), [(2, 2063), (5, 2063)]);
    }
}
