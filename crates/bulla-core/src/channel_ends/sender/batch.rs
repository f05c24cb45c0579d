//! Messages of the transmission queue become batches: taken, opened where that is asked for, noted, and sent.

use super::opening::{Sealed, is_sealed};
use crate::channel::note::IN_DOUBT_MAX;
use crate::channel::transmission::{self, TransmissionHeader};
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::Link;
use crate::dispatcher::sending::{Noted, Outgoing, Sending, Stage, Way};
use crate::envelope;
use crate::front::{Front, LinkId};
use crate::manager::State;
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use bulla_amqp::{Header, Payload, Sections};
use bulla_queue::{Found, ReadError, Ticket};
use bulla_seal::policy::Toleration;
use std::sync::Arc;

/// Batches that may be under way at the same time.
const BATCHES_IN_FLIGHT: usize = 16;
/// Fewest messages that may be in doubt at the same time, however small the batches are.
const IN_DOUBT_MIN: usize = 256;

/// A turn of a channel, and what of its connection and its dispatcher that needs.
pub(super) struct Turn<'a> {
    pub(super) front: &'a mut Front,
    pub(super) links: &'a mut HashMap<LinkId, Link>,
    pub(super) local: &'a mut Local,
    pub(super) state: &'a mut State,
}

/// What an attempt to take a message came to.
pub(super) enum Taken {
    One,
    Nothing,
    Blocked,
}

/// A message to a partner that is not Bulla, or to be opened: where it goes, and how.
struct Addressed {
    link: LinkId,
    header: Arc<TransmissionHeader>,
}

impl Sending {
    /// Messages that are on their way and will need credit.
    fn reserved(&self) -> usize {
        let noted: usize = self.batches.noted.iter().map(|noted| noted.messages.len()).sum();
        self.opener.line.len() + self.batches.open.messages.len() + noted
    }

    fn has_room(&self, front: &Front) -> bool {
        let credit = match &self.way {
            Way::Numbered { link } => {
                if !front.can_send(*link) {
                    return false;
                }
                front.credit(*link) as usize
            }
            Way::Plain { waiting, .. } if waiting.is_some() => return false,
            Way::Plain { .. } => usize::MAX,
        };
        self.reserved() < credit && !self.opener.line.is_full() && self.stage.is_running() && self.retry_at.is_none()
    }

    /// Whether one more message may be in doubt.
    fn may_doubt(&self) -> bool {
        let most = (self.agreed.batch_size * BATCHES_IN_FLIGHT).clamp(IN_DOUBT_MIN, IN_DOUBT_MAX);
        self.numbers.messages.len() + self.batches.open.messages.len() + self.opener.line.len() < most
    }

    /// The next message of the transmission queue, locked, with its bytes.
    fn lock_next(&mut self, turn: &mut Turn<'_>) -> Result<(Found, Payload), Taken> {
        let Turn { front, local, state, .. } = turn;
        if !self.has_room(&**front) {
            return Err(Taken::Blocked);
        }
        let found = state.store.lock_next(self.queue, None, local.wall_ms).ok_or(Taken::Nothing)?;
        if !self.is_fast(&found) && !self.may_doubt() {
            state.store.release(found.id, false);
            return Err(Taken::Blocked);
        }
        self.watch_queue_time(&found, state);
        match state.store.body(found.id) {
            Ok(body) => Ok((found, envelope::payload_of(&body))),
            Err(ReadError::Away { .. }) => {
                // The queue is ready again when it is there.
                state.store.set_aside(found.id);
                Err(Taken::Nothing)
            }
            Err(error) => {
                // Damaged on disk: it is reported and stays, locked, for `journal check`.
                crate::alarm!(queue = self.queue_name, "{}: {error}", self.queue_name);
                Err(Taken::One)
            }
        }
    }

    /// The next message of the transmission queue: sent, in the batch, or with the opener.
    pub(super) fn take_next(&mut self, turn: &mut Turn<'_>) -> Taken {
        // One that waited for its link goes the whole way: it may have to be opened still.
        let waited = match &mut self.way {
            Way::Plain { waiting, .. } => waiting.take(),
            Way::Numbered { .. } => None,
        };
        let (found, payload) = match waited {
            Some((found, payload, _)) => (found, payload),
            None => match self.lock_next(turn) {
                Ok(locked) => locked,
                Err(taken) => return taken,
            },
        };
        let policy = self.opening_policy(turn.state);
        if let (Way::Numbered { link }, None) = (&self.way, &policy) {
            // The usual case: no byte of the message is looked at.
            let link = *link;
            let payload = still_to_live(payload, &found, turn.local.wall_ms);
            return self.take(found, link, payload, turn);
        }
        let (found, payload, Addressed { link, header }) = match self.address(found, payload, turn) {
            Ok(addressed) => addressed,
            Err(taken) => return taken,
        };
        let is_clear = !is_sealed(&payload, turn.local.wall_ms);
        if is_clear && let Some(policy) = policy.as_ref().filter(|policy| policy.toleration == Toleration::Enforce) {
            // On a protected queue it can only be a forgery, here as for any reader.
            let refusal = Refusal::security(policy.cause_of_clear(), "a clear message on a protected queue");
            self.fail(&refusal, turn.local);
            self.quarantine(&found, &refusal, turn.local, turn.state);
            return Taken::One;
        }
        match policy.filter(|_| !is_clear) {
            None => {
                let payload = self.on_the_wire(still_to_live(payload, &found, turn.local.wall_ms));
                self.take(found, link, payload, turn)
            }
            Some(policy) => {
                self.open(Sealed { found, link, header, payload }, &policy, turn.local, turn.state);
                self.opened_ones(turn);
                Taken::One
            }
        }
    }

    /// Reads where a message goes, and finds the link for it. One that can't go there is dealt with, or waits.
    fn address(
        &mut self,
        found: Found,
        payload: Payload,
        turn: &mut Turn<'_>,
    ) -> Result<(Found, Payload, Addressed), Taken> {
        let destination = Sections::scan(&payload)
            .map_err(|_| Refusal::new(reason::XQH_ERROR, "no AMQP message"))
            .and_then(|sections| {
                let none = || Refusal::new(reason::XQH_ERROR, format!("{}: no transmission header", self.queue_name));
                transmission::destination(&payload, &sections).ok_or_else(none)
            });
        let addressed = destination.and_then(|destination| {
            let header = Arc::new(TransmissionHeader::new(destination));
            match &self.way {
                Way::Numbered { link } => Ok((*link, true, header)),
                Way::Plain { .. } => self
                    .plain_link(&header.destination.queue, turn.front, turn.links)
                    .map(|(link, can_send)| (link, can_send, header)),
            }
        });
        match addressed {
            Ok((link, true, header)) => Ok((found, payload, Addressed { link, header })),
            Ok((_, false, header)) => {
                if let Way::Plain { waiting, .. } = &mut self.way {
                    *waiting = Some((found, payload, header.destination.queue.clone()));
                }
                Err(Taken::Blocked)
            }
            Err(refusal) => {
                self.undeliverable(&found, &refusal, turn.local, turn.state);
                Err(Taken::One)
            }
        }
    }

    /// A message in the form in which it goes out.
    pub(super) fn take(&mut self, found: Found, link: LinkId, payload: Payload, turn: &mut Turn<'_>) -> Taken {
        let Turn { front, local, state, .. } = turn;
        let bytes_max = self.agreed.message_bytes_max;
        if payload.len() as u64 > bytes_max {
            // MAXMSGL is about the message without the transmission header.
            let length = bytes_of_message(&payload);
            if length > bytes_max {
                let detail = format!("{length} bytes are more than the channel's {bytes_max}");
                let refusal = Refusal::new(reason::MSG_TOO_BIG_FOR_CHANNEL, detail);
                self.undeliverable(&found, &refusal, local, state);
                return Taken::One;
            }
        }
        if self.is_fast(&found) {
            // Outside any batch: gone when sent.
            if !forward(&mut **front, link, 0, payload, true) {
                state.store.release(found.id, false);
                return Taken::Blocked;
            }
            state.note_got(self.queue, found.id, local.wall_ms);
            self.remove(found.id, state);
            self.counts.messages += 1;
            self.counts.last_message_ms = Some(local.wall_ms);
            local.flush_soon();
            return Taken::One;
        }
        self.batches.open.push(Outgoing { id: found.id, number: 0, link, payload }, local.now);
        Taken::One
    }

    /// Notes the batch that is open, unless it may wait for more, and sends it once the note is synced.
    pub(super) fn end_batch(&mut self, turn: &mut Turn<'_>, nothing_more: bool) {
        if self.batches.open.messages.is_empty() || nothing_more && self.may_wait(turn.local) {
            return;
        }
        let batch = std::mem::take(&mut self.batches.open).messages;
        let units = self.numbers.units.len();
        let messages = self.numbers.number(batch, self.agreed.batch_size, self.definition.batch_bytes_max);
        self.numbers.note.unit += (self.numbers.units.len() - units) as u64;
        let ticket = match &self.way {
            Way::Plain { .. } => Ticket::NOW,
            Way::Numbered { .. } => match self.numbers.write(turn.state) {
                Ok(ticket) => ticket,
                Err(refusal) => {
                    // Nothing of it was sent: it is not in doubt.
                    self.numbers.units.truncate(units);
                    for message in messages {
                        self.numbers.messages.pop_back();
                        turn.state.store.release(message.id, false);
                    }
                    return self.failed(refusal);
                }
            },
        };
        let is_synced = turn.state.store.is_synced(ticket);
        self.batches.noted.push_back(Noted { ticket, messages });
        if is_synced {
            self.send_noted(turn);
        } else {
            turn.local.journaling.urgent = true;
            turn.local.confirm_channel(ticket, self.place.peer, self.place.generation);
        }
    }

    /// Whether the batch may wait for more messages (BATCHINT); it is looked at again then.
    fn may_wait(&self, local: &mut Local) -> bool {
        let (interval, limit) = (self.definition.batch_interval, self.definition.batch_bytes_max);
        let is_full = self.batches.open.messages.len() >= self.agreed.batch_size
            || (limit > 0 && self.batches.open.bytes >= limit);
        let until = self.batches.open.since.unwrap_or(local.now) + interval;
        let waits = !is_full
            && !interval.is_zero()
            && local.now < until
            && matches!(self.stage, Stage::Running | Stage::Failing(_));
        if waits {
            local.serve_at(until, self.queue);
        }
        waits
    }

    /// Sends batches whose notes are synced, as far as there is credit.
    pub(super) fn send_noted(&mut self, turn: &mut Turn<'_>) {
        let Turn { front, local, state, .. } = turn;
        if self.batches.noted.is_empty() || !state.store.may_send(self.queue) {
            return;
        }
        while let Some(noted) = self.batches.noted.front_mut().filter(|noted| state.store.is_synced(noted.ticket)) {
            while let Some(message) = noted.messages.front() {
                if !forward(&mut **front, message.link, message.number, message.payload.clone(), false) {
                    return;
                }
                if let Some(numbered) = self.numbers.of(message.number) {
                    numbered.sent_at = Some(local.now);
                }
                noted.messages.pop_front();
                self.counts.messages += 1;
                self.counts.last_message_ms = Some(local.wall_ms);
            }
            self.batches.noted.pop_front();
        }
    }

    /// How long the watched message lay on the transmission queue.
    fn watch_queue_time(&mut self, found: &Found, state: &mut State) {
        let Some((id, since)) = state.outbound.queue_time_probes.get(&self.queue) else { return };
        if found.id == *id {
            self.counts.queue_time.note(state.clock.since(*since).as_secs_f64() * 1e6);
        }
        if found.id >= *id {
            state.outbound.queue_time_probes.remove(&self.queue);
        }
    }
}

/// Sends a message to the partner. False where its link takes none now.
fn forward(front: &mut Front, link: LinkId, number: u64, payload: Payload, settled: bool) -> bool {
    front.way_out().is_some_and(|out| out.forward(link, number, payload, settled))
}

/// Bytes of a message without its transmission header.
fn bytes_of_message(payload: &Payload) -> u64 {
    let header = Sections::scan(payload).ok().and_then(|sections| sections.delivery_annotations);
    (payload.len() - header.map_or(0, |range| range.len())) as u64
}

/// The message with the time to live that is left of it.
pub(super) fn still_to_live(payload: Payload, found: &Found, now_ms: u64) -> Payload {
    let Some(expires_at_ms) = found.expires_at_ms else { return payload };
    let Ok(sections) = Sections::scan(&payload) else { return payload };
    let Ok(header) = sections.decode_header(&payload) else { return payload };
    let left = u32::try_from(expires_at_ms.saturating_sub(now_ms).max(1)).unwrap_or(u32::MAX);
    bulla_amqp::with_header(&payload, &sections, &Header { ttl_ms: Some(left), ..header })
}
