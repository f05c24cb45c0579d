//! The sending end of a channel, on its connection: what it has of its own, and what is shown of it.

pub mod over;

use crate::adapter::Held;
use crate::average::Averages;
use crate::catalog::ChannelDefinition;
use crate::catalog::status::{ChannelState, ProtectionMeters};
use crate::channel::note::SenderNote;
use crate::channel::partner::Partner;
use crate::channel::registry::{InstanceId, Place};
use crate::channel::transmission::TransmissionHeader;
use crate::dispatcher::sealing::OpeningKeys;
use crate::envelope::Arrival;
use crate::front::{LinkId, SessionId};
use crate::manager::State;
use crate::maps::HashMap;
use crate::ordered_line::OrderedLine;
use crate::reason::Refusal;
use crate::refusals::store_refusal;
use crate::transport::Traffic;
use bulla_amqp::Payload;
use bulla_queue::{Found, MessageId, QueueId, StoreNumber, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The sending end of a channel, on its connection.
pub struct Sending {
    pub(crate) id: InstanceId,
    pub(crate) definition: Arc<ChannelDefinition>,
    /// The transmission queue.
    pub queue: QueueId,
    pub(crate) queue_name: String,
    pub(crate) place: Place,
    pub(crate) partner: Proved,
    pub(crate) way: Way,
    pub(crate) stage: Stage,
    pub(crate) agreed: Agreed,
    pub(crate) numbers: Numbers,
    pub(crate) batches: Batches,
    pub(crate) opener: Opener,
    pub(crate) last_activity: Instant,
    /// When messages are taken again that the partner gave back.
    pub(crate) retry_at: Option<Instant>,
    pub(crate) counts: Counts,
}

/// The partner, and how it has proved who it is.
pub(crate) struct Proved {
    pub(crate) said: Partner,
    /// Here and now; empty where it proved nothing.
    pub(crate) proof: String,
}

/// Messages on their way to the link.
#[derive(Default)]
pub(crate) struct Batches {
    /// The batch that is being filled.
    pub(crate) open: Batch,
    /// Batches whose notes wait for the journal, and batches that wait for credit.
    pub(crate) noted: VecDeque<Noted>,
}

/// How the partner takes messages.
pub(crate) enum Way {
    /// Bulla: one link, exactly once.
    Numbered { link: LinkId },
    /// Any other broker: a link an address, at least once.
    Plain {
        session: SessionId,
        links: HashMap<String, PlainLink>,
        /// The message whose link is not open yet.
        waiting: Option<(Found, Payload, String)>,
    },
}

/// A link to one address at a partner that is not Bulla.
pub(crate) struct PlainLink {
    pub(crate) link: LinkId,
    pub(crate) open: bool,
}

/// How far the channel has come.
pub(crate) enum Stage {
    /// The partner has not said where it stands.
    Greeting,
    /// Messages flow.
    Running,
    /// Nothing more is taken; it ends when nothing is under way.
    Quiescing,
    /// Nothing more is taken, for that reason: the connection is closed at the end of the turn.
    Failing(Refusal),
    /// The connection is being closed: in order, or for that reason.
    Ending(Option<Refusal>),
}

/// What one end or both ends set a limit to.
pub(crate) struct Agreed {
    pub(crate) message_bytes_max: u64,
    pub(crate) batch_size: usize,
}

/// The messages that have numbers, and what the journal knows of them.
pub(crate) struct Numbers {
    /// What is in the journal, but for `in_doubt`, which is written from `messages`.
    pub(crate) note: SenderNote,
    pub(crate) note_name: String,
    /// The store that note and messages lie in.
    pub(crate) home: StoreNumber,
    /// Numbered messages, from `note.base + 1`: noted, sent or both.
    pub(crate) messages: VecDeque<Numbered>,
    /// Where the batches end: last number, messages.
    pub(crate) units: VecDeque<(u64, usize)>,
}

/// A message that has a number.
pub(crate) struct Numbered {
    pub(crate) id: MessageId,
    pub(crate) sent_at: Option<Instant>,
    /// What the partner has said; nothing as long as it is in doubt.
    pub(crate) became: Option<Became>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Became {
    /// It has arrived.
    Arrived,
    /// It is not this channel's any more: released, or on the dead-letter queue.
    GivenBack,
}

/// Messages that are taken, and not noted yet.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) messages: Vec<Outgoing>,
    pub(crate) bytes: u64,
    /// Since when there is one.
    pub(crate) since: Option<Instant>,
}

/// A message with its number, once it has one.
pub(crate) struct Outgoing {
    pub(crate) id: MessageId,
    pub(crate) number: u64,
    pub(crate) link: LinkId,
    pub(crate) payload: Payload,
}

/// A batch whose note is written.
pub(crate) struct Noted {
    pub(crate) ticket: Ticket,
    pub(crate) messages: VecDeque<Outgoing>,
}

/// SPLPROT(REMOVE): what opens messages before they are sent.
pub(crate) struct Opener {
    /// Messages on their way through it, in order.
    pub(crate) line: OpeningLine,
    /// As whom it asks for devices.
    pub(crate) who: bulla_device::Asker,
    /// What it does with the keys of the channel user's ring.
    pub(crate) keys: OpeningKeys,
}

/// A message that is being opened.
pub(crate) struct Opening {
    pub(crate) found: Found,
    pub(crate) link: LinkId,
    pub(crate) header: Arc<TransmissionHeader>,
    pub(crate) _held: Held,
}

/// The messages of a channel that are being opened. With an adapter: the message as it lay on the transmission queue.
pub(crate) type OpeningLine = OrderedLine<Opening, Box<Arrival>, Result<Payload, Fault>>;

/// Why a message can't be opened.
pub(crate) enum Fault {
    /// It goes to the error queue.
    Defective(Refusal),
    /// It goes to the dead-letter queue.
    Undeliverable(Refusal),
    /// The channel is tried again later.
    Later(Refusal),
}

/// Counts for the status, from the start of the instance.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) messages: u64,
    pub(crate) batches: u64,
    pub(crate) last_message_ms: Option<u64>,
    pub(crate) queue_time: Averages,
    pub(crate) net_time: Averages,
    pub(crate) batch_messages: Averages,
    pub(crate) protection: ProtectionMeters,
}

impl Stage {
    /// The channel fails, for that reason unless it has one already.
    pub(crate) fn fail(&mut self, refusal: Refusal) {
        match self {
            Self::Failing(_) | Self::Ending(Some(_)) => {}
            Self::Ending(failure @ None) => *failure = Some(refusal),
            Self::Greeting | Self::Running | Self::Quiescing => *self = Self::Failing(refusal),
        }
    }

    /// The connection is being closed, for the reason that there is already.
    pub(crate) fn end(&mut self) {
        let failure = match std::mem::replace(self, Self::Ending(None)) {
            Self::Failing(why) => Some(why),
            Self::Ending(failure) => failure,
            Self::Greeting | Self::Running | Self::Quiescing => None,
        };
        *self = Self::Ending(failure);
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self, Self::Running)
    }
}

impl Numbers {
    /// What the note of a channel says, that has it under that name in the store `home`. Its messages are in doubt.
    pub(crate) fn new(note: SenderNote, note_name: String, home: StoreNumber) -> Self {
        let messages = note.in_doubt.iter().map(|id| Numbered { id: *id, sent_at: None, became: None }).collect();
        Self { note, note_name, home, messages, units: VecDeque::new() }
    }

    /// The last number.
    pub(crate) fn last(&self) -> u64 {
        self.note.base + self.messages.len() as u64
    }

    /// The message with that number.
    pub(crate) fn of(&mut self, number: u64) -> Option<&mut Numbered> {
        let place = number.checked_sub(self.note.base + 1).and_then(|place| usize::try_from(place).ok())?;
        self.messages.get_mut(place)
    }

    /// The next message's number.
    fn next(&mut self, id: MessageId) -> u64 {
        self.messages.push_back(Numbered { id, sent_at: None, became: None });
        self.last()
    }

    /// Gives the messages of a batch their numbers, in units of `batch_size` messages and as many bytes as `bytes_max`
    /// says, where that is not zero.
    pub(crate) fn number(&mut self, batch: Vec<Outgoing>, batch_size: usize, bytes_max: u64) -> VecDeque<Outgoing> {
        let mut messages = VecDeque::with_capacity(batch.len());
        let (mut count, mut bytes) = (0, 0);
        for mut message in batch {
            message.number = self.next(message.id);
            (count, bytes) = (count + 1, bytes + message.payload.len() as u64);
            if count == batch_size || (bytes_max > 0 && bytes >= bytes_max) {
                self.units.push_back((message.number, count));
                (count, bytes) = (0, 0);
            }
            messages.push_back(message);
        }
        if count > 0 {
            self.units.push_back((self.last(), count));
        }
        messages
    }

    /// Writes the note as the numbers are now.
    pub(crate) fn write(&mut self, state: &mut State) -> Result<Ticket, Refusal> {
        self.note.in_doubt = self.in_doubt();
        let bytes = self.note.encode();
        let notes = [(self.note_name.as_str(), Some(&bytes[..]))];
        state.store.commit_notes(self.home, &notes).map_err(|error| store_refusal(&error))
    }

    /// The messages as the note has them: by their numbers in their store, which another member knows under another
    /// number.
    fn in_doubt(&self) -> Vec<MessageId> {
        self.messages.iter().map(|message| MessageId(message.id.number())).collect()
    }

    /// Removes messages that have arrived, and moves the base, in one unit of work.
    pub(crate) fn settle(&mut self, state: &mut State, there: &[MessageId], base: u64) -> Result<Ticket, Refusal> {
        // One that is gone (a non-persistent message of before a restart) needs no removal.
        let removals: Vec<MessageId> = there.iter().copied().filter(|id| state.store.find(*id).is_some()).collect();
        self.note.in_doubt = self.in_doubt();
        let note = SenderNote { base, reset: false, ..self.note.clone() };
        let notes = [(self.note_name.as_str(), Some(&note.encode()[..]))];
        let commit = state.store.commit_from(self.home, Vec::new(), &removals, &notes);
        let ticket = commit.map_err(|error| store_refusal(&error))?;
        self.note = note;
        Ok(ticket)
    }
}

impl Batch {
    /// One more message; `now` is when the batch began, where it is the first.
    pub(crate) fn push(&mut self, message: Outgoing, now: Instant) {
        self.since.get_or_insert(now);
        self.bytes += message.payload.len() as u64;
        self.messages.push(message);
    }
}

impl Sending {
    /// This side ends it, for that reason unless it has one already.
    pub fn failed(&mut self, refusal: Refusal) {
        self.stage.fail(refusal);
    }

    /// The one link to a partner of ours.
    pub(crate) fn main_link(&self) -> Option<LinkId> {
        match &self.way {
            Way::Numbered { link } => Some(*link),
            Way::Plain { .. } => None,
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.numbers.messages.is_empty() && self.batches.open.messages.is_empty() && self.opener.line.is_empty()
    }

    /// Whether a message goes out of any batch, and may be lost.
    pub(crate) fn is_fast(&self, found: &Found) -> bool {
        !found.persistent && self.definition.non_persistent_fast
    }

    /// Removes a message from the transmission queue; where that fails it stays locked until the next start.
    pub(crate) fn remove(&self, id: MessageId, state: &mut State) {
        if let Err(error) = state.store.acknowledge(id) {
            crate::warning!(queue = self.queue_name, "{}: {error}", self.queue_name);
        }
    }

    /// Copies what is counted into the status.
    pub(crate) fn report(&self, traffic: Traffic, state: &mut State) {
        let Some(instance) = state.outbound.channels.get_mut(&self.id) else { return };
        let Numbers { note, messages, units, .. } = &self.numbers;
        instance.note_sequence(self.numbers.last(), note.base, self.definition.sequence_wrap);
        instance.current_unit = note.unit;
        instance.last_unit = note.unit.saturating_sub(units.len() as u64);
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
        status.current_messages = messages.len() as u64;
        status.in_doubt = messages.front().is_some_and(|message| message.sent_at.is_some());
        status.queue_time_us = self.counts.queue_time.shown();
        status.net_time_us = self.counts.net_time.shown();
        status.batch_messages = self.counts.batch_messages.shown();
        status.protection.clone_from(&self.counts.protection);
        status.substate = match (&self.stage, messages.is_empty(), self.batches.noted.is_empty()) {
            (Stage::Greeting, ..) => "RESYNCH",
            (Stage::Ending(_), ..) => "NETWORK",
            (Stage::Quiescing, true, _) => "ADAPTER",
            (Stage::Running | Stage::Failing(_), true, _) => "MQGET",
            (Stage::Running | Stage::Quiescing | Stage::Failing(_), false, false) => "JOURNAL",
            (Stage::Running | Stage::Quiescing | Stage::Failing(_), false, true) => "RECEIVE",
        };
        if matches!(self.stage, Stage::Quiescing) {
            status.state = ChannelState::Stopping;
        }
    }
}
