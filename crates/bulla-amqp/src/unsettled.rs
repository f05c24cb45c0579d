//! What outlives a link's attachment: unsettled maps, and the outcomes that a receiving end keeps (part 2, section
//! 2.6.13).

use crate::codec::{self, Decode, DecodeError, Encode, Reader, code};
use crate::event::DeliveryId;
use crate::types::{DeliveryState, DeliveryTag};
use std::collections::{HashMap, HashSet, VecDeque};

/// Entries of an unsettled map that are taken; a map with more is malformed.
pub const UNSETTLED_ENTRIES_MAX: u32 = 16_384;
/// Outcomes that a resumable receiving link keeps, because the sender may not have heard of them; the oldest ones go
/// first. A resumable sending link has as many unsettled deliveries, and waits then.
pub const OUTCOMES_KEPT_MAX: usize = 2_048;

/// Unsettled deliveries of one end of a link: their tags, and their states where they have one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnsettledMap(pub Vec<(DeliveryTag, Option<DeliveryState>)>);

impl UnsettledMap {
    /// Takes off the entries at the end that go over `bytes_max`, encoded. True where there were any.
    pub(crate) fn cut(&mut self, bytes_max: usize) -> bool {
        let (mut encoded, mut fits) = (Vec::new(), 0);
        for (tag, state) in &self.0 {
            encode_entry(tag, state.as_ref(), &mut encoded);
            if encoded.len() > bytes_max {
                break;
            }
            fits += 1;
        }
        let is_cut = fits < self.0.len();
        self.0.truncate(fits);
        is_cut
    }
}

fn encode_entry(tag: &DeliveryTag, state: Option<&DeliveryState>, out: &mut Vec<u8>) {
    tag.encode(out);
    match state {
        Some(state) => state.encode(out),
        None => out.push(code::NULL),
    }
}

impl Decode for UnsettledMap {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        let wide = match code {
            code::MAP8 => false,
            code::MAP32 => true,
            code => return Err(DecodeError::Type { wanted: "unsettled map", code }),
        };
        let (mut inner, count) = reader.compound(wide)?;
        if count % 2 != 0 || count / 2 > UNSETTLED_ENTRIES_MAX {
            return Err(DecodeError::Count);
        }
        inner.charge(count)?;
        let (mut entries, mut tags) = (Vec::new(), HashSet::new());
        for _ in 0..count / 2 {
            let code = inner.u8()?;
            let tag = DeliveryTag::decode(&mut inner, code)?;
            let state = match inner.u8()? {
                code::NULL => None,
                code => Some(DeliveryState::decode(&mut inner, code)?),
            };
            if !tags.insert(tag) {
                return Err(DecodeError::Value { of: "unsettled map" });
            }
            entries.push((tag, state));
        }
        reader.close(inner)?;
        Ok(Self(entries))
    }
}

impl Encode for UnsettledMap {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 3]);
        for (tag, state) in &self.0 {
            encode_entry(tag, state.as_ref(), out);
        }
        codec::widen(out, start, code::MAP32, self.0.len() * 2);
    }
}

/// A delivery that a receiving link knows, when its attachment is over.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptOutcome {
    /// The sender's name for it.
    pub tag: DeliveryTag,
    /// Its id, where it arrived on this attachment of the link.
    pub id: Option<DeliveryId>,
    /// Its outcome, where it has one.
    pub state: Option<DeliveryState>,
}

/// What a resumable receiving link knows of deliveries that the sender may take for unsettled.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// Of this attachment, by delivery id.
    current: HashMap<u32, (DeliveryTag, Option<DeliveryState>)>,
    /// Of these, the ones with an outcome, the oldest one first. Some may be settled, and gone.
    answered: VecDeque<u32>,
    /// Of earlier attachments.
    earlier: HashMap<DeliveryTag, DeliveryState>,
    /// Whether the host takes them when the link has ended.
    pub(crate) is_resumable: bool,
}

impl Outcomes {
    pub(crate) fn new(earlier: Option<&UnsettledMap>, is_resumable: bool) -> Self {
        let entries = earlier.map(|map| map.0.as_slice()).unwrap_or_default();
        let with_state = |(tag, state): &(DeliveryTag, Option<DeliveryState>)| Some((*tag, state.clone()?));
        Self { earlier: entries.iter().filter_map(with_state).collect(), is_resumable, ..Self::default() }
    }

    /// A delivery has arrived.
    pub(crate) fn arrived(&mut self, id: u32, tag: DeliveryTag) {
        self.current.insert(id, (tag, None));
    }

    /// It has an outcome.
    pub(crate) fn answered(&mut self, id: u32, state: &DeliveryState) {
        let Some((_, outcome)) = self.current.get_mut(&id) else { return };
        *outcome = Some(state.clone());
        self.answered.push_back(id);
        if self.current.len() > OUTCOMES_KEPT_MAX {
            while let Some(oldest) = self.answered.pop_front() {
                if self.current.remove(&oldest).is_some() {
                    break;
                }
            }
        }
        if self.answered.len() > 2 * OUTCOMES_KEPT_MAX {
            self.answered.retain(|id| self.current.contains_key(id));
        }
    }

    /// The sender has settled it.
    pub(crate) fn settled(&mut self, id: u32) {
        self.current.remove(&id);
    }

    /// A delivery of an earlier attachment is resumed, under a new id: its outcome. None where it is not known.
    pub(crate) fn resumed(&mut self, tag: &DeliveryTag) -> Option<DeliveryState> {
        self.earlier.remove(tag)
    }

    pub(crate) fn into_kept(self) -> Vec<KeptOutcome> {
        let earlier = self.earlier.into_iter().map(|(tag, state)| KeptOutcome { tag, id: None, state: Some(state) });
        let current = self.current.into_iter();
        let current = current.map(|(id, (tag, state))| KeptOutcome { tag, id: Some(DeliveryId(id)), state });
        earlier.chain(current).collect()
    }
}

/// What a resumable sending link has still to resume.
#[derive(Debug, Default)]
pub(crate) struct Resends {
    /// Tokens of deliveries of earlier attachments that the receiver has, too.
    pub(crate) tokens: HashSet<u64>,
    /// Of these, the ones that are settled and wait for credit to be resumed with their outcome.
    pub(crate) settled: VecDeque<(u64, DeliveryState)>,
}

impl Resends {
    pub(crate) fn new(tokens: Vec<u64>) -> Self {
        Self { tokens: tokens.into_iter().collect(), settled: VecDeque::new() }
    }
}

/// What makes a link resumable, by its role.
#[derive(Debug)]
pub(crate) enum Resumption {
    Receiving(Outcomes),
    Sending(Resends),
}

#[cfg(test)]
impl crate::tests::Sample for UnsettledMap {
    fn sample(random: &mut crate::tests::Random) -> Self {
        let mut entries: Vec<(DeliveryTag, Option<DeliveryState>)> = Vec::new();
        for _ in 0..random.below(4) {
            let tag = DeliveryTag::sample(random);
            if entries.iter().all(|(known, _)| *known != tag) {
                let state = random.often().then(|| DeliveryState::sample(random));
                entries.push((tag, state));
            }
        }
        Self(entries)
    }
}
