//! The sending end of a channel, on its connection: what it has of its own, and what is shown of it.

use crate::adapter::Held;
use crate::average::Averages;
use crate::catalog::ChannelDefinition;
use crate::catalog::status::{ChannelState, ProtectionMeters};
use crate::channel::note::SenderNote;
use crate::channel::partner::Partner;
use crate::channel::registry::InstanceId;
use crate::channel::transmission::TransmissionHeader;
use crate::dispatcher::sealing::OpeningKeys;
use crate::dispatcher::socket::Traffic;
use crate::envelope::Arrival;
use crate::front::{LinkId, SessionId};
use crate::manager::State;
use crate::maps::HashMap;
use crate::ordered_line::OrderedLine;
use crate::reason::Refusal;
use bulla_amqp::Payload;
use bulla_queue::{Found, MessageId, QueueId, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The sending end of a channel, on its connection.
pub(crate) struct Sending {
    pub(crate) id: InstanceId,
    pub(crate) definition: Arc<ChannelDefinition>,
    /// The transmission queue.
    pub(crate) queue: QueueId,
    pub(super) queue_name: String,
    pub(super) session: SessionId,
    pub(super) partner: Partner,
    pub(super) way: Way,
    pub(super) stage: Stage,
    /// What is in the journal, but for `in_doubt`, which is written from `numbered`.
    pub(super) note: SenderNote,
    pub(super) note_name: String,
    /// How the partner has proved who it is, here and now; empty where it proved nothing.
    pub(super) proof: String,
    /// Numbered messages, from `note.base + 1`: noted, sent or both.
    pub(super) numbered: VecDeque<Numbered>,
    /// Taken, and not noted yet.
    pub(super) batch: Vec<Outgoing>,
    pub(super) batch_bytes: u64,
    pub(super) batch_since: Option<Instant>,
    /// Batches whose notes wait for the journal, and batches that wait for credit.
    pub(super) noted: VecDeque<Noted>,
    /// Where the batches end: last number, messages.
    pub(super) units: VecDeque<(u64, usize)>,
    /// Messages on their way through the opener, in order.
    pub(super) opening: OpeningLine,
    pub(super) who: bulla_device::Asker,
    /// Why this side ended it.
    pub(super) failure: Option<Refusal>,
    pub(super) message_bytes_max: u64,
    pub(super) batch_size: usize,
    pub(super) last_activity: Instant,
    /// When messages are taken again that the partner gave back.
    pub(super) retry_at: Option<Instant>,
    pub(super) counts: Counts,
    /// What opening does with the keys of the channel user's ring.
    pub(super) keys: OpeningKeys,
}

/// How the partner takes messages.
pub(super) enum Way {
    /// Bulla: one link, exactly once.
    Numbered { link: LinkId },
    /// Any other broker: a link an address, at least once.
    Plain {
        links: HashMap<String, PlainLink>,
        /// The message whose link is not open yet.
        waiting: Option<(Found, Payload, String)>,
    },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// The partner has not said where it stands.
    Greeting,
    Running,
    /// Nothing more is taken; it ends when nothing is under way.
    Quiescing,
    /// The connection is being closed.
    Ending,
}

pub(super) struct Numbered {
    pub(super) id: MessageId,
    pub(super) sent_at: Option<Instant>,
    pub(super) confirmed: bool,
    /// It is not this channel's any more: released, or on the dead-letter queue.
    pub(super) given_back: bool,
}

/// A message with its number, once it has one.
pub(super) struct Outgoing {
    pub(super) id: MessageId,
    pub(super) number: u64,
    pub(super) link: LinkId,
    pub(super) payload: Payload,
}

pub(super) struct Noted {
    pub(super) ticket: Ticket,
    pub(super) messages: VecDeque<Outgoing>,
}

/// Counts for the status, from the start of the instance.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) batches: u64,
    pub(super) last_message_ms: Option<u64>,
    pub(super) queue_time: Averages,
    pub(super) net_time: Averages,
    pub(super) batch_messages: Averages,
    pub(super) protection: ProtectionMeters,
}

/// A link to one address at a partner that is not Bulla.
pub(super) struct PlainLink {
    pub(super) link: LinkId,
    pub(super) open: bool,
}

/// A message that is being opened.
pub(super) struct Opening {
    pub(super) found: Found,
    pub(super) link: LinkId,
    pub(super) header: Arc<TransmissionHeader>,
    pub(super) _held: Held,
}

/// The messages of a channel that are being opened. With an adapter: the message as it lay on the transmission queue.
pub(super) type OpeningLine = OrderedLine<Opening, Box<Arrival>, Result<Payload, Fault>>;

/// Why a message can't be opened.
pub(super) enum Fault {
    /// It goes to the error queue.
    Defective(Refusal),
    /// It goes to the dead-letter queue.
    Undeliverable(Refusal),
    /// The channel is tried again later.
    Later(Refusal),
}

impl Sending {
    /// This side ends it, for that reason unless it has one already.
    pub(crate) fn failed(&mut self, refusal: Refusal) {
        self.failure.get_or_insert(refusal);
    }

    /// Copies what is counted into the status.
    pub(super) fn report(&self, traffic: Traffic, state: &mut State) {
        let Some(instance) = state.channels.get_mut(&self.id) else { return };
        let wrap = self.definition.sequence_wrap;
        instance.note_sequence(self.note.base + self.numbered.len() as u64, self.note.base, wrap);
        instance.current_unit = self.note.unit;
        instance.last_unit = self.note.unit.saturating_sub(self.units.len() as u64);
        let status = &mut instance.status;
        status.messages = self.counts.messages;
        status.batches = self.counts.batches;
        status.last_message_ms = self.counts.last_message_ms;
        status.buffers_sent = traffic.buffers_sent;
        status.buffers_received = traffic.buffers_received;
        status.bytes_sent = traffic.bytes_sent;
        status.bytes_received = traffic.bytes_received;
        status.key_resets = traffic.key_resets;
        status.last_key_reset_ms = traffic.last_key_reset_ms;
        status.current_messages = self.numbered.len() as u64;
        status.in_doubt = self.numbered.front().is_some_and(|message| message.sent_at.is_some());
        status.queue_time_us = self.counts.queue_time.shown();
        status.net_time_us = self.counts.net_time.shown();
        status.batch_messages = self.counts.batch_messages.shown();
        status.protection.clone_from(&self.counts.protection);
        status.substate = match (self.stage, self.numbered.is_empty(), self.noted.is_empty()) {
            (Stage::Running, true, _) => "MQGET",
            (Stage::Running | Stage::Quiescing, false, false) => "JOURNAL",
            (Stage::Running | Stage::Quiescing, false, true) => "RECEIVE",
            (Stage::Quiescing, true, _) => "ADAPTER",
            (Stage::Greeting, ..) => "RESYNCH",
            (Stage::Ending, ..) => "NETWORK",
        };
        if self.stage == Stage::Quiescing {
            status.state = ChannelState::Stopping;
        }
    }
}
