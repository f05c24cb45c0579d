//! A link on which a channel receives: what it has of its own, and what is shown of it.

pub mod delivery;
pub mod over;

use crate::adapter::{Asker, Held};
use crate::catalog::ChannelDefinition;
use crate::catalog::status::ChannelState;
use crate::channel::note::ReceiverNote;
use crate::channel::protocol::{self, SenderGreeting};
use crate::channel::refused::Refused;
use crate::channel::registry::{InstanceId, Place};
use crate::dispatcher::local::Local;
use crate::dispatcher::sealing::{SealingLine, Stage};
use crate::front::{DeliveryId, LinkId, SessionId};
use crate::manager::State;
use crate::ordered_line::Slot;
use crate::reason::Refusal;
use crate::transport::Traffic;
use bulla_amqp::Payload;
use bulla_queue::StoreNumber;
use delivery::{Delivery, Way};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of messages that a link has room for, by the lengths of those that came last.
pub const CREDIT_BYTES: usize = 64 << 20;

/// A link on which a channel receives.
pub struct Receiving {
    pub(crate) session: SessionId,
    pub(crate) instance: InstanceId,
    pub(crate) place: Place,
    /// The store that its notes lie in; a group's channel puts on queues of that store alone.
    pub home: StoreNumber,
    pub(crate) definition: ChannelDefinition,
    pub(crate) phase: Phase,
    pub(crate) delivery: Delivery,
    /// What is received exactly once; none where the partner is not ours.
    pub(crate) numbers: Option<Numbers>,
    /// What came and is not on its queue, in the order in which it came.
    pub(crate) line: SealingLine<Waiting>,
    pub(crate) confirming: Confirming,
    pub(crate) head: Head,
    /// A message in the line found no memory to be sealed in: those behind it take none before it does.
    pub(crate) starved: bool,
    pub(crate) room: Room,
    /// It is on the list of those to look at in this turn.
    pub(crate) listed: bool,
    pub(crate) counts: Counts,
}

/// The numbers of a channel between two of ours.
pub(crate) struct Numbers {
    pub(crate) note_name: String,
    /// The partner's store.
    pub(crate) store: [u8; 16],
    /// How the partner proved who it is.
    pub(crate) proof: String,
    pub(crate) wrap: u32,
    /// The last number that came, the last that is committed, and the last that is confirmed.
    pub(crate) received: u64,
    pub(crate) committed: u64,
    pub(crate) confirmed: u64,
    /// Numbers up to the committed one whose messages were refused.
    pub(crate) refused: Refused,
    /// The partner takes back what is refused.
    pub(crate) takes_refusals: bool,
}

impl Numbers {
    /// Where a channel goes on with that partner, which has proved who it is by `proof`.
    pub(crate) fn new(
        note: ReceiverNote,
        note_name: String,
        proof: String,
        greeting: &SenderGreeting,
        takes_refusals: bool,
    ) -> Self {
        let ReceiverNote { sequence, refused, .. } = note;
        let (store, wrap) = (greeting.store, greeting.sequence_wrap);
        Self {
            note_name,
            store,
            proof,
            wrap,
            received: sequence,
            committed: sequence,
            confirmed: sequence,
            refused,
            takes_refusals,
        }
    }

    /// The note with so many numbers more.
    pub(crate) fn note(&self, more: u64) -> ReceiverNote {
        ReceiverNote {
            store: self.store,
            sequence: self.committed + more,
            proof: self.proof.clone(),
            reset_allowed: false,
            refused: self.refused.clone(),
        }
    }
}

/// What a partner's attach is answered with.
pub(crate) struct Answer {
    pub(crate) properties: protocol::Properties,
    pub(crate) message_bytes_max: u64,
}

/// How far a link has come.
pub(crate) enum Phase {
    /// The answer to the attach waits until what was committed before is synced.
    Greeting { answer: Box<Answer>, agreed: bool },
    /// The partner was told where this end stands, and can't go on from there.
    Disagreeing,
    /// Messages flow.
    Flowing,
    /// STOP CHANNEL(QUIESCE): the link ends, for that reason, when all that has come is dealt with.
    Stopping(Refusal),
    /// This side has ended the link, and why.
    Ended(Refusal),
}

/// What is committed and not confirmed yet.
#[derive(Default)]
pub(crate) struct Confirming {
    /// Deliveries, with the reason where a message was refused.
    pub(crate) waiting: VecDeque<(DeliveryId, Option<Refusal>)>,
    /// Committed and confirmed so far.
    pub(crate) committed: u64,
    pub(crate) confirmed: u64,
}

/// The head of a line that could not be put.
#[derive(Default)]
pub(crate) struct Head {
    /// How often it was tried.
    pub(crate) tries: u32,
    /// When it is tried again.
    pub(crate) retry_at: Option<Instant>,
}

/// What a link has room for.
pub(crate) struct Room {
    /// About how long the last messages were, in bytes.
    pub(crate) message_bytes: usize,
    /// Full credit where messages are short.
    pub(crate) credit_max: u32,
}

impl Room {
    /// Remembers a message's length, not for long: a few long messages are enough to grant less.
    pub(crate) fn note(&mut self, len: usize) {
        let known = self.message_bytes;
        self.message_bytes = if len > known { len } else { known - (known - len) / 64 };
    }

    /// Full credit, by the lengths of those that came last.
    pub(crate) fn full(&self) -> u32 {
        let by_bytes = u32::try_from(CREDIT_BYTES / self.message_bytes.max(1)).unwrap_or(u32::MAX);
        self.credit_max.min(by_bytes).max(1)
    }
}

/// A message in the line.
pub(crate) struct Waiting {
    /// None where its sender has settled it.
    pub(crate) id: Option<DeliveryId>,
    /// As it came, for another try.
    pub(crate) payload: Payload,
    pub(crate) way: Option<Arc<Way>>,
    /// It is on its way to the dead-letter queue, and why.
    pub(crate) dead: Option<Refusal>,
    /// It came sealed, and its seal is defective.
    pub(crate) defective: bool,
    /// It asks to be told what becomes of it.
    pub(crate) asks: bool,
    pub(crate) _held: Option<Held>,
}

/// What happened since the status was last written, and what the operator was not told yet.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) messages: u64,
    pub(crate) units: u64,
    pub(crate) last_message: bool,
    pub(crate) dead: u64,
    pub(crate) discarded: u64,
    pub(crate) refused: u64,
    pub(crate) why: Option<Refusal>,
}

impl Receiving {
    /// The channel's name.
    pub fn channel(&self) -> &str {
        &self.instance.channel
    }

    /// Whether the instance is this connection's still, and the numbers: a younger connection takes them over.
    pub(crate) fn owns(&self, state: &State) -> bool {
        let channels = &state.outbound.channels;
        channels.get(&self.instance).is_some_and(|instance| instance.place == Some(self.place))
            && self.numbers.as_ref().is_none_or(|numbers| channels.has_numbers(&numbers.note_name, self.place))
    }

    /// Whether a message may come now, within the credit or `beyond_credit`.
    pub(crate) fn takes(&self, beyond_credit: bool) -> bool {
        match self.phase {
            Phase::Flowing => !beyond_credit,
            // Its sender may not have heard yet that it has none.
            Phase::Stopping(_) => !beyond_credit || self.line.bytes() <= CREDIT_BYTES,
            Phase::Greeting { .. } | Phase::Disagreeing | Phase::Ended(_) => false,
        }
    }

    /// STOP CHANNEL(QUIESCE): whether all that has come is dealt with.
    pub(crate) fn stopped(&self) -> Option<Refusal> {
        match &self.phase {
            Phase::Stopping(why) if self.line.is_empty() && self.confirming.waiting.is_empty() => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether more messages may be read from its connection.
    pub fn has_room(&self) -> bool {
        self.line.bytes() < CREDIT_BYTES
    }

    /// Who asks the adapters for the message of that slot.
    pub(crate) fn asker(&self, link: LinkId, slot: Slot) -> Asker {
        let Place { dispatcher, peer, generation } = self.place;
        Asker { dispatcher, peer, generation, link, slot }
    }

    /// Copies what is shown into the instance.
    pub(crate) fn show(&mut self, traffic: Traffic, local: &Local, state: &mut State) {
        if !self.owns(state) {
            return;
        }
        let Some(instance) = state.outbound.channels.get_mut(&self.instance) else { return };
        let status = &mut instance.status;
        match &self.phase {
            Phase::Stopping(_) => status.state = ChannelState::Stopping,
            Phase::Flowing if self.head.retry_at.is_some() => status.state = ChannelState::Paused,
            Phase::Flowing => status.state = ChannelState::Running,
            Phase::Greeting { .. } | Phase::Disagreeing | Phase::Ended(_) => {}
        }
        status.substate = match self.line.at(0) {
            Some(_) if self.head.retry_at.is_some() => "MQPUT",
            Some((_, Stage::Away(_))) => "ADAPTER",
            _ if !self.confirming.waiting.is_empty() => "JOURNAL",
            _ => "RECEIVE",
        };
        status.buffers_received = traffic.buffers_received;
        status.buffers_sent = traffic.buffers_sent;
        status.bytes_received = traffic.bytes_received;
        status.bytes_sent = traffic.bytes_sent;
        status.key_resets = traffic.key_resets;
        status.last_key_reset_ms = traffic.last_key_reset_ms;
        status.messages += std::mem::take(&mut self.counts.messages);
        status.batches += std::mem::take(&mut self.counts.units);
        status.protection.add(&std::mem::take(&mut self.delivery.meters));
        if std::mem::take(&mut self.counts.last_message) {
            status.last_message_ms = Some(local.wall_ms);
        }
        status.current_messages = (self.line.len() + self.confirming.waiting.len()) as u64;
        if let Some(why) = &self.counts.why {
            status.reason = why.to_string();
        }
        instance.last_unit = status.batches;
        if let Some(numbers) = &self.numbers {
            instance.note_sequence(numbers.received, numbers.confirmed, numbers.wrap);
        }
    }

    /// Tells the operator what went elsewhere: a line a tick, not a message.
    pub fn tell(&mut self) {
        let (dead, gone) = (std::mem::take(&mut self.counts.dead), std::mem::take(&mut self.counts.discarded));
        let refused = std::mem::take(&mut self.counts.refused);
        if dead == 0 && gone == 0 && refused == 0 {
            return;
        }
        let InstanceId { channel, partner } = &self.instance;
        let why = self.counts.why.take().map(|why| why.to_string()).unwrap_or_default();
        if dead > 0 {
            crate::warning!(
                channel,
                partner,
                "channel {channel} from {partner}: {dead} messages went to the dead-letter queue: {why}"
            );
        }
        if refused > 0 {
            crate::warning!(
                channel,
                partner,
                "channel {channel} from {partner}: {refused} messages are refused, and go to the dead-letter queue of \
                 {partner}: {why}"
            );
        }
        if gone > 0 {
            crate::warning!(
                channel,
                partner,
                "channel {channel} from {partner}: {gone} messages are gone (NPMSPEED(FAST)): {why}"
            );
        }
    }
}
