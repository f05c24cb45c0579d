//! What the two ends of a channel keep in their journals, so that each message arrives once.
//!
//! Little-endian; the first byte is the version. `docs/formats/channel.md` has the fields.

use super::protocol::SEQUENCE_MAX;
use super::refused::Refused;
use bulla_queue::MessageId;

/// The version that is written; another one is refused.
const VERSION: u8 = 1;
/// The version of a note that says who the partner is. Without that it is of version 1.
const VERSION_PROVED: u8 = 2;
/// The version of a receiving end's note that names refused messages.
const VERSION_REFUSED: u8 = 3;
/// In the flags of a receiving end's note: the partner may reset its numbers once.
const RESET_ALLOWED: u8 = 1;
/// Longest proof in a note, in bytes; a longer one is kept as its SHA-256.
pub const PROOF_BYTES_MAX: usize = 512;
/// Most messages that may be in doubt at a time, so that a note stays well below the journal's limit.
pub const IN_DOUBT_MAX: usize = 4_096;
/// Longest name of a partner in a note, in bytes.
pub const PARTNER_BYTES_MAX: usize = 255;
/// Longest encoding of a number in a note.
const VARINT_BYTES_MAX: u32 = 10;

/// The sending end's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SenderNote {
    /// The last number that the partner has confirmed, and whose message is gone here.
    pub base: u64,
    /// Batches begun so far: the unit of work's number.
    pub unit: u64,
    /// With which queue manager messages are in doubt, at most [`PARTNER_BYTES_MAX`]; empty where none ever was.
    pub partner: String,
    /// RESET CHANNEL: the partner is to take `base` for its own at the next start.
    pub reset: bool,
    /// Messages numbered `base + 1` and up, in that order: sent, or about to be.
    pub in_doubt: Vec<MessageId>,
    /// The partner's mark, which it says at each attach; zeros where it never said one.
    pub mark: [u8; 16],
    /// How the partner proved who it is, at most [`PROOF_BYTES_MAX`]; empty where it proved nothing. Another proof is
    /// refused, and another name with this one.
    pub proof: String,
}

/// The receiving end's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReceiverNote {
    /// Which store the messages came from; zeros after a RESET, when any will do.
    pub store: [u8; 16],
    /// The last number that is on a queue here.
    pub sequence: u64,
    /// How the partner proved who it is, at most [`PROOF_BYTES_MAX`]; empty where it proved nothing. Another proof
    /// under its name is refused.
    pub proof: String,
    /// RESET CHANNEL was given here: the partner may reset its numbers once.
    pub reset_allowed: bool,
    /// Numbers that are used, and whose messages are not here.
    pub refused: Refused,
}

/// The name of a sending end's note.
pub fn sender_name(channel: &str) -> String {
    format!("channel/send/{channel}")
}

/// The name of the note that is there while a channel is stopped. Its value is empty.
pub fn stopped_name(channel: &str) -> String {
    format!("channel/stopped/{channel}")
}

/// The name of the note that is there while a channel of a group is started: the next owner starts it, too. Its value
/// is empty.
pub fn started_name(channel: &str) -> String {
    format!("channel/started/{channel}")
}

/// What the names of all sending ends' notes begin with.
pub fn sender_prefix() -> String {
    sender_name("")
}

/// The name of a receiving end's note, one for each partner.
pub fn receiver_name(channel: &str, partner: &str) -> String {
    format!("{}{partner}", receiver_prefix(channel))
}

/// What all names of a receiving channel's notes begin with. Names may have a slash in them, but no `@`: so channel `A`
/// with partner `B/C` is not `A/B` with `C`, and `A` can go without `A/B`.
pub fn receiver_prefix(channel: &str) -> String {
    format!("channel/receive/{channel}@")
}

impl SenderNote {
    /// As bytes: version, flags, base, unit, partner, count, then the ids, the first whole and the others as steps.
    /// Mark and proof follow where there is one of them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.in_doubt.len() * 2);
        let is_plain = self.proof.is_empty() && self.mark == [0; 16];
        out.extend_from_slice(&[if is_plain { VERSION } else { VERSION_PROVED }, u8::from(self.reset)]);
        out.extend_from_slice(&self.base.to_le_bytes());
        out.extend_from_slice(&self.unit.to_le_bytes());
        let partner = &self.partner.as_bytes()[..self.partner.floor_char_boundary(PARTNER_BYTES_MAX)];
        put_varint(partner.len() as u64, &mut out);
        out.extend_from_slice(partner);
        put_varint(self.in_doubt.len() as u64, &mut out);
        let mut last = 0u64;
        for id in &self.in_doubt {
            // Higher priorities overtake, so a step may go back: zigzag.
            let step = id.0.wrapping_sub(last) as i64;
            put_varint(((step << 1) ^ (step >> 63)) as u64, &mut out);
            last = id.0;
        }
        if !is_plain {
            out.extend_from_slice(&self.mark);
            put_proof(&self.proof, &mut out);
        }
        out
    }

    /// From bytes; none where they are not a note of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, reset], rest) = bytes.split_first_chunk::<2>()?;
        let (base, rest) = rest.split_first_chunk::<8>()?;
        let (unit, mut rest) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(take_varint(&mut rest)?).ok().filter(|length| *length <= PARTNER_BYTES_MAX)?;
        let (partner, after) = rest.split_at_checked(length)?;
        let partner = std::str::from_utf8(partner).ok()?.to_owned();
        rest = after;
        let count = usize::try_from(take_varint(&mut rest)?).ok()?;
        if !matches!(version, VERSION | VERSION_PROVED) || reset > 1 || count > IN_DOUBT_MAX {
            return None;
        }
        let mut in_doubt = Vec::with_capacity(count);
        let mut last = 0u64;
        for _ in 0..count {
            let zigzag = take_varint(&mut rest)?;
            last = last.wrapping_add((zigzag >> 1) ^ 0u64.wrapping_sub(zigzag & 1));
            in_doubt.push(MessageId(last));
        }
        let (mut mark, mut proof) = ([0; 16], String::new());
        if version == VERSION_PROVED {
            let (said, after) = rest.split_first_chunk::<16>()?;
            (mark, rest) = (*said, after);
            proof = take_proof(&mut rest)?;
        }
        let (base, unit) = (u64::from_le_bytes(*base), u64::from_le_bytes(*unit));
        let note = Self { base, unit, partner, reset: reset == 1, in_doubt, mark, proof };
        (rest.is_empty() && base <= SEQUENCE_MAX && unit <= SEQUENCE_MAX).then_some(note)
    }
}

impl ReceiverNote {
    /// As bytes: version, store, number; then flags and proof, where there is one of them; then what is refused.
    pub fn encode(&self) -> Vec<u8> {
        let version = match &self.refused {
            refused if !refused.is_empty() => VERSION_REFUSED,
            _ if self.proof.is_empty() && !self.reset_allowed => VERSION,
            _ => VERSION_PROVED,
        };
        let mut out = vec![version];
        out.extend_from_slice(&self.store);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        if version >= VERSION_PROVED {
            out.push(if self.reset_allowed { RESET_ALLOWED } else { 0 });
            put_proof(&self.proof, &mut out);
        }
        if version >= VERSION_REFUSED {
            self.refused.encode(&mut out);
        }
        out
    }

    /// From bytes; none where they are not a note of a known version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version], rest) = bytes.split_first_chunk::<1>()?;
        let (store, rest) = rest.split_first_chunk::<16>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let sequence = u64::from_le_bytes(*sequence);
        let mut note = Self { store: *store, sequence, ..Self::default() };
        let mut rest = rest;
        match version {
            VERSION => {}
            VERSION_PROVED | VERSION_REFUSED => {
                let (&[flags], after) = rest.split_first_chunk::<1>()?;
                if flags > RESET_ALLOWED {
                    return None;
                }
                rest = after;
                (note.reset_allowed, note.proof) = (flags == RESET_ALLOWED, take_proof(&mut rest)?);
            }
            _ => return None,
        }
        if version == VERSION_REFUSED {
            note.refused = Refused::decode(std::mem::take(&mut rest)).filter(|refused| !refused.is_empty())?;
        }
        // One note has one encoding.
        (rest.is_empty() && sequence <= SEQUENCE_MAX && note.encode() == bytes).then_some(note)
    }
}

fn put_proof(proof: &str, out: &mut Vec<u8>) {
    let proof = &proof.as_bytes()[..proof.floor_char_boundary(PROOF_BYTES_MAX)];
    put_varint(proof.len() as u64, out);
    out.extend_from_slice(proof);
}

/// The proof that these bytes begin with.
fn take_proof(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(take_varint(bytes)?).ok().filter(|length| *length <= PROOF_BYTES_MAX)?;
    let (proof, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    std::str::from_utf8(proof).ok().map(str::to_owned)
}

pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for place in 0..VARINT_BYTES_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(place * 7)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senders_note_reads_back() {
        for ids in [vec![], vec![1], vec![u64::MAX, 0, 7, 6], (1 << 40..(1 << 40) + 4_096).collect()] {
            let in_doubt: Vec<_> = ids.into_iter().map(MessageId).collect();
            let reset = in_doubt.is_empty();
            let plain =
                SenderNote { base: 41, unit: 3, partner: "QM2".into(), reset, in_doubt, ..SenderNote::default() };
            assert_eq!(plain.encode()[0], VERSION);
            let marked = SenderNote { mark: [9; 16], ..plain.clone() };
            let proved = SenderNote { proof: "user qm2".into(), ..plain.clone() };
            for note in [plain, marked.clone(), proved, SenderNote { proof: "certificate".into(), ..marked }] {
                let bytes = note.encode();
                assert_eq!(SenderNote::decode(&bytes), Some(note));
                assert_eq!(SenderNote::decode(&bytes[..bytes.len() - 1]), None);
                assert_eq!(SenderNote::decode(&[&bytes[..], &[0]].concat()), None);
            }
        }
    }

    #[test]
    fn a_full_note_of_neighbours_takes_a_byte_a_message() {
        let in_doubt = (1 << 40..(1 << 40) + 4_096).map(MessageId).collect();
        assert!(SenderNote { in_doubt, ..SenderNote::default() }.encode().len() < 4_096 + 32);
    }

    #[test]
    fn no_two_channels_share_a_note() {
        assert_ne!(receiver_name("A", "B/C"), receiver_name("A/B", "C"));
        assert!(!receiver_name("A/B", "C").starts_with(&receiver_prefix("A")));
    }

    #[test]
    fn a_receivers_note_reads_back() {
        let plain = ReceiverNote { store: [9; 16], sequence: 1 << 50, ..ReceiverNote::default() };
        assert_eq!(plain.encode().len(), 25);
        let proved = ReceiverNote { proof: "user qm1".into(), ..plain.clone() };
        let allowed = ReceiverNote { reset_allowed: true, ..plain.clone() };
        let mut refused = Refused::default();
        refused.note(9, 2063);
        let refusing = ReceiverNote { refused: refused.clone(), ..plain.clone() };
        assert_eq!(refusing.encode()[0], VERSION_REFUSED);
        let all = ReceiverNote { reset_allowed: true, refused, ..proved.clone() };
        for note in [plain, proved.clone(), allowed, refusing, all, ReceiverNote { reset_allowed: true, ..proved }] {
            let bytes = note.encode();
            assert_eq!(ReceiverNote::decode(&bytes), Some(note));
            assert_eq!(ReceiverNote::decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(ReceiverNote::decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(ReceiverNote::decode(&[2; 25]), None);
        assert_eq!(ReceiverNote::decode(&[3; 25]), None);
        assert_eq!(ReceiverNote::decode(&[4; 25]), None);
    }
}
