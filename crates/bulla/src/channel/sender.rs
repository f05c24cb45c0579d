//! The sending end of a channel: transmission queue → [open] → batch, noted → link → confirmed → removed.
//!
//! A batch is what one turn took from the transmission queue. Its numbers and messages are noted in the journal, and it
//! goes out when the note is synced; the next batch does not wait for it. What is noted stays locked until the partner
//! has said what became of it, also when the connection goes meanwhile.

mod dead_letter;
mod opening;
pub(crate) mod over;
mod plain;
pub(crate) mod sending;

use super::note::{self, IN_DOUBT_MAX, SenderNote};
use super::protocol::{self, ReceiverGreeting, SenderGreeting};
use super::receiver::attaching;
use super::registry::InstanceId;
use super::supervisor;
use super::transmission::{self, TransmissionHeader};
use crate::catalog::ChannelDefinition;
use crate::catalog::status::ChannelState;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::{Link, Peer};
use crate::dispatcher::sealing::OpeningKeys;
use crate::envelope;
use crate::events::Event;
use crate::front::{Front, LinkId, LinkOpened, SessionId};
use crate::manager::State;
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use crate::refusals::store_refusal;
use bulla_amqp::types::SenderSettleMode;
use bulla_amqp::{AttachRequest, DeliveryState, Header, Payload, Sections, Value};
use bulla_queue::{Found, MessageId, Ticket};
use bulla_seal::policy::Toleration;
pub(crate) use opening::finished;
use opening::{Sealed, is_sealed};
use sending::{Counts, Noted, Numbered, OpeningLine, Outgoing, Sending, Stage, Way};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Messages taken from the transmission queue in one turn, before others have theirs.
const TAKEN_PER_TURN: usize = 512;
/// Batches that may be under way at the same time.
const BATCHES_IN_FLIGHT: usize = 16;
/// Fewest messages that may be in doubt at the same time, however small the batches are.
const IN_DOUBT_MIN: usize = 256;
/// Messages that may be with the adapters at the same time.
const OPENING_MAX: usize = 64;
/// Bytes of them with which no more are taken from the transmission queue.
const OPENING_BYTES_MAX: usize = 64 << 20;
/// How long messages rest that a partner gave back.
const RELEASED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The address of a channel's link, before the channel's name.
const ADDRESS_PREFIX: &str = "bulla.channel/";

enum Taken {
    One,
    Nothing,
    Blocked,
}

/// Begins to send over an open connection: a link to a Bulla partner, or the first of many to another. `definition`
/// names the user whom the rules give this partner.
pub(crate) fn begin(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    id: InstanceId,
    definition: ChannelDefinition,
    session: SessionId,
) -> Result<(), Refusal> {
    let channel = &id.channel;
    let queue_name = definition.transmission_queue.clone().unwrap_or_default();
    let queue = state.store.queue(&queue_name).ok_or_else(|| {
        Refusal::new(reason::UNKNOWN_XMIT_Q, format!("{channel}: the transmission queue {queue_name:?} does not exist"))
    })?;
    if local.senders.contains_key(&queue) || state.use_of(queue).sender.is_some() {
        return Err(Refusal::new(reason::OBJECT_IN_USE, format!("{queue_name}: another channel sends from it")));
    }
    let note_name = note::sender_name(channel);
    let note = supervisor::read_note(state, channel)?;
    let partner = peer.partner();
    let (subject, issuer) = state
        .channels
        .get(&id)
        .map_or(("", ""), |instance| (instance.status.peer_name.as_str(), instance.status.peer_issuer.as_str()));
    let proof = attaching::proof(peer, subject, issuer);
    if !partner.is_bulla {
        same_proof(channel, &note, &proof, &partner.container)?;
    }
    let who = local.device_asker(peer.generation);
    // MAXMSGL 0 is the queue manager's.
    let own_max = match definition.max_message_bytes {
        0 => u64::from(state.definitions.queue_manager.max_message_bytes),
        bytes => u64::from(bytes),
    };
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    let way = if partner.is_bulla {
        let greeting = SenderGreeting {
            channel: channel.clone(),
            manager: local.manager.name.clone(),
            store: state.store.identity().unwrap_or_default(),
            sequence: note.base,
            in_doubt: u32::try_from(note.in_doubt.len()).unwrap_or(u32::MAX),
            reset: note.reset,
            sequence_wrap: definition.sequence_wrap,
            batch_size: definition.batch_size,
            message_bytes_max: own_max,
            non_persistent_fast: definition.non_persistent_fast,
        };
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Mixed,
            properties: greeting.to_properties(),
            ..AttachRequest::sender(channel.clone(), format!("{ADDRESS_PREFIX}{channel}"))
        };
        let link = peer.front.way_out().ok_or_else(protocol::no_way_out)?.attach(session, request);
        peer.links.insert(link, Link::Sending(session));
        Way::Numbered { link }
    } else {
        Way::Plain { links: HashMap::default(), waiting: None }
    };
    state.use_of(queue).sender = Some(local.index);
    state.opened_to_get(queue);
    state.use_of(queue).consumers_on |= 1 << local.index;
    local.senders.insert(queue, peer.key);
    let numbered = note
        .in_doubt
        .iter()
        .map(|id| Numbered { id: *id, sent_at: None, confirmed: false, given_back: false })
        .collect();
    let plain = matches!(way, Way::Plain { .. });
    peer.sending = Some(Box::new(Sending {
        batch_size: definition.batch_size.max(1) as usize,
        definition: Arc::new(definition),
        id: id.clone(),
        queue,
        queue_name,
        session,
        partner,
        way,
        stage: if plain { Stage::Running } else { Stage::Greeting },
        note,
        note_name,
        proof,
        numbered,
        batch: Vec::new(),
        batch_bytes: 0,
        batch_since: None,
        noted: VecDeque::new(),
        units: VecDeque::new(),
        opening: OpeningLine::bounded(OPENING_MAX, OPENING_BYTES_MAX),
        who,
        failure: None,
        message_bytes_max: own_max,
        last_activity: local.now,
        retry_at: None,
        counts: Counts::default(),
        keys: OpeningKeys::default(),
    }));
    let instance = state.channels.entry(id);
    instance.status.state = ChannelState::Initializing;
    if plain {
        // What was in doubt with an earlier partner is the operator's to resolve: RESOLVE CHANNEL.
        let sending = peer.sending.as_deref_mut();
        if sending.is_some_and(|sending| !sending.numbered.is_empty()) {
            let detail = "messages are in doubt with an earlier partner: RESOLVE CHANNEL first";
            return Err(Refusal::in_doubt(detail));
        }
        running(peer, local, state);
    }
    Ok(())
}

/// The partner has answered an attach.
pub(crate) fn opened(peer: &mut Peer, local: &mut Local, state: &mut State, opened: &LinkOpened) {
    let Peer { sending, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    match &mut sending.way {
        Way::Plain { links, .. } => {
            // A refusal comes as an answer without a target, and then a detach with the reason.
            if opened.target.is_some()
                && let Some(link) = links.values_mut().find(|link| link.link == opened.link)
            {
                link.open = true;
                local.serve(sending.queue);
            }
        }
        Way::Numbered { .. } if opened.target.is_none() => {}
        Way::Numbered { .. } => match agree(sending, local, state, &opened.properties) {
            Ok(()) => {
                let limit = opened.max_message_size;
                if limit > 0 {
                    sending.message_bytes_max = sending.message_bytes_max.min(limit);
                }
                running(peer, local, state);
            }
            Err(refusal) => fail(peer, local, refusal),
        },
    }
}

/// Settles what was in doubt by what the partner has (inventory C1.18).
fn agree(
    sending: &mut Sending,
    local: &Local,
    state: &mut State,
    properties: &[(bulla_amqp::Symbol, bulla_amqp::Value)],
) -> Result<(), Refusal> {
    let greeting = ReceiverGreeting::from_properties(properties)
        .ok_or_else(|| Refusal::new(reason::CHANNEL_CONFIG_ERROR, "the partner's answer lacks what a channel needs"))?;
    if greeting.sequence_wrap != sending.definition.sequence_wrap {
        let detail =
            format!("SEQWRAP is {} here and {} there", sending.definition.sequence_wrap, greeting.sequence_wrap);
        return Err(Refusal::new(reason::CHANNEL_CONFIG_ERROR, detail));
    }
    same_proof(&sending.id.channel, &sending.note, &sending.proof, &greeting.manager)?;
    let own = state.store.identity().unwrap_or_default();
    let (base, last) = (sending.note.base, sending.note.base + sending.numbered.len() as u64);
    let ours = greeting.store == own || greeting.store == [0; 16];
    if !ours || !(base..=last).contains(&greeting.sequence) {
        let wrap = sending.definition.sequence_wrap;
        let shown = |number| protocol::shown(number, wrap);
        let where_to = match sending.note.reset {
            true => "the receiving end, which has not agreed to a reset",
            false => "the sending end, and at the receiving end, which has to agree",
        };
        let whose = if ours { "" } else { ", of another queue manager of this name" };
        let detail = format!(
            "the partner has number {}{whose}, here {} to {} are possible: RESET CHANNEL at {where_to}",
            shown(greeting.sequence),
            shown(base),
            shown(last)
        );
        return Err(Refusal::sequence(detail));
    }
    let arrived = usize::try_from(greeting.sequence - base).unwrap_or(0);
    if !sending.numbered.is_empty() && sending.note.partner != greeting.manager {
        let detail = format!(
            "{} messages are in doubt with {}, and this is {}: RESOLVE CHANNEL first",
            sending.numbered.len(),
            sending.note.partner,
            greeting.manager
        );
        return Err(Refusal::sequence(detail));
    }
    let note = &sending.note;
    if note.proof.is_empty() && note.mark != [0; 16] && note.mark != greeting.mark {
        let detail = format!(
            "{} is another queue manager of this name, or has another store: RESET CHANNEL at the sending end",
            greeting.manager
        );
        return Err(Refusal::sequence(detail));
    }
    sending.note.partner.clone_from(&greeting.manager);
    (sending.note.mark, sending.note.proof) = (greeting.mark, sending.proof.clone());
    let numbered = std::mem::take(&mut sending.numbered);
    let mut there: Vec<MessageId> = numbered.iter().take(arrived).map(|message| message.id).collect();
    for (number, reason) in greeting.refused.above(base).take_while(|(number, _)| *number <= greeting.sequence) {
        // Its outcome was lost with the last connection.
        let place = usize::try_from(number - base - 1).unwrap_or(usize::MAX);
        let Some(id) = numbered.get(place).map(|message| message.id) else { continue };
        let refusal = Refusal::new(reason::of(reason), format!("{} has refused it", greeting.manager));
        sending.refused(id, &refusal, local, state);
        there.retain(|arrived| *arrived != id);
    }
    if let Err(refusal) = settle(sending, state, &there, greeting.sequence) {
        sending.numbered = numbered;
        return Err(refusal);
    }
    for message in numbered.iter().skip(arrived) {
        state.store.release(message.id, false);
    }
    sending.batch_size = sending.batch_size.min(greeting.batch_size.max(1) as usize);
    sending.message_bytes_max = sending.message_bytes_max.min(greeting.message_bytes_max);
    sending.partner.container.clone_from(&greeting.manager);
    // A message that was refused has no dead-letter queue to go to.
    sending.failure.take().map_or(Ok(()), Err)
}

/// Whether a partner may be the one whose numbers the note has: one that proved who it is has to prove it again, and
/// under the same name.
fn same_proof(channel: &str, note: &SenderNote, proof: &str, manager: &str) -> Result<(), Refusal> {
    if note.proof.is_empty() || (note.proof == proof && note.partner == manager) {
        return Ok(());
    }
    let shown = if proof.is_empty() { "nothing" } else { proof };
    crate::warning!(
        channel,
        "channel {channel}: its partner {} proved itself by {} before, now {manager} by {shown}",
        note.partner,
        note.proof
    );
    let detail = format!("{manager} is not the partner that proved itself before: RESET CHANNEL at the sending end");
    Err(attaching::not_agreed(channel, "partner", detail))
}

/// Removes messages that have arrived, and moves the base, in one unit of work.
fn settle(sending: &mut Sending, state: &mut State, there: &[MessageId], base: u64) -> Result<Ticket, Refusal> {
    // One that is gone (a non-persistent message of before a restart) needs no removal.
    let removals: Vec<MessageId> = there.iter().copied().filter(|id| state.store.find(*id).is_some()).collect();
    sending.note.in_doubt = sending.numbered.iter().map(|message| message.id).collect();
    let note = SenderNote { base, reset: false, ..sending.note.clone() };
    let commit = state.store.commit(Vec::new(), &removals, &[(&sending.note_name, Some(&note.encode()))]);
    let ticket = commit.map_err(|error| store_refusal(&error))?;
    sending.note = note;
    Ok(ticket)
}

/// Both ends agree, and messages may flow.
fn running(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let Peer { sending, calling, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    sending.stage = Stage::Running;
    *calling = None;
    let definition = sending.definition.clone();
    let instance = state.channels.entry(sending.id.clone());
    let status = &mut instance.status;
    status.state = ChannelState::Running;
    status.exactly_once = matches!(sending.way, Way::Numbered { .. });
    status.remote_manager.clone_from(&sending.partner.container);
    status.remote_application.clone_from(&sending.partner.container);
    status.remote_product.clone_from(&sending.partner.product);
    status.remote_version.clone_from(&sending.partner.version);
    status.transmission_queue.clone_from(&sending.queue_name);
    status.user = local.manager.channel_user(&definition).to_owned();
    status.batch_size = u32::try_from(sending.batch_size).unwrap_or(u32::MAX);
    status.heartbeat_seconds = u32::try_from(definition.heartbeat.as_secs()).unwrap_or(u32::MAX);
    status.max_message_bytes = sending.message_bytes_max;
    status.non_persistent_fast = definition.non_persistent_fast;
    status.started_ms = Some(local.wall_ms);
    status.reason = String::new();
    status.in_doubt = false;
    supervisor::refill_retries(instance, &definition);
    if instance.status.stop_requested {
        sending.stage = Stage::Quiescing;
    }
    if state.peer_lines.may_write(local.now) {
        crate::note!(
            channel = sending.id.channel,
            "channel {}: running, to {}",
            sending.id.channel,
            sending.partner.container
        );
    }
    let (channel, partner) = (sending.id.channel.clone(), sending.partner.container.clone());
    state.raise(&Event::ChannelStarted { channel, partner }, local.wall_ms);
    local.serve(sending.queue);
    local.channel_work(peer.key);
}

/// Hot path, once a turn in which the transmission queue, the journal or the partner had something to say.
pub(crate) fn serve(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let Peer { key, generation, front, links, sending, transport, .. } = peer;
    let (front, Some(sending)) = (&mut **front, sending.as_deref_mut()) else { return };
    sending.retry_at = sending.retry_at.filter(|at| *at > local.now);
    sending.send_noted(front, local, state);
    sending.opened_ones(front, local, state);
    let mut nothing_more = false;
    if sending.stage == Stage::Running {
        let mut taken = 0;
        while taken < TAKEN_PER_TURN {
            match sending.take_next(*key, *generation, front, links, local, state) {
                Taken::One => taken += 1,
                Taken::Nothing => {
                    nothing_more = true;
                    break;
                }
                Taken::Blocked => {
                    transport.output_full |= sending.main_link().is_none_or(|link| front.credit(link) > 0);
                    break;
                }
            }
        }
        if taken == TAKEN_PER_TURN {
            local.serve(sending.queue);
        }
        if taken > 0 {
            let heartbeat = sending.definition.heartbeat;
            let idle = local.now.saturating_duration_since(sending.last_activity);
            if !heartbeat.is_zero()
                && idle >= heartbeat
                && let Some(tls) = transport.socket.tls_socket_mut()
            {
                tls.reset_before_data_after_heartbeat();
            }
            sending.last_activity = local.now;
            local.freed(sending.queue, state);
        }
    }
    sending.end_batch(*key, *generation, front, local, state, nothing_more);
    if sending.stage == Stage::Quiescing && sending.is_idle() {
        sending.stage = Stage::Ending;
        front.close(None);
    }
    sending.report(transport.traffic, state);
    if let Some(refusal) = sending.failure.clone().filter(|_| sending.stage != Stage::Ending) {
        fail(peer, local, refusal);
    }
}

/// Ends the connection, with a reason that stands in the status.
fn fail(peer: &mut Peer, local: &mut Local, refusal: Refusal) {
    let Some(sending) = peer.sending.as_deref_mut() else { return };
    sending.stage = Stage::Ending;
    peer.front.close(Some(refusal.to_amqp()));
    sending.failure.get_or_insert(refusal);
    local.channel_work(peer.key);
}

impl Sending {
    fn main_link(&self) -> Option<LinkId> {
        match &self.way {
            Way::Numbered { link } => Some(*link),
            Way::Plain { .. } => None,
        }
    }

    fn is_idle(&self) -> bool {
        self.numbered.is_empty() && self.batch.is_empty() && self.opening.is_empty()
    }

    /// Messages that are on their way and will need credit.
    fn reserved(&self) -> usize {
        self.opening.len() + self.batch.len() + self.noted.iter().map(|noted| noted.messages.len()).sum::<usize>()
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
        self.reserved() < credit && !self.opening.is_full() && self.failure.is_none() && self.retry_at.is_none()
    }

    /// Whether one more message may be in doubt.
    fn may_doubt(&self) -> bool {
        let most = (self.batch_size * BATCHES_IN_FLIGHT).clamp(IN_DOUBT_MIN, IN_DOUBT_MAX);
        self.numbered.len() + self.batch.len() + self.opening.len() < most
    }

    /// Whether a message goes out of any batch, and may be lost.
    fn is_fast(&self, found: &Found) -> bool {
        !found.persistent && self.definition.non_persistent_fast
    }

    /// The next message of the transmission queue, locked, with its bytes.
    fn lock_next(&mut self, front: &Front, local: &Local, state: &mut State) -> Result<(Found, Payload), Taken> {
        if !self.has_room(front) {
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
            Err(error) => {
                // Damaged on disk: it is reported and stays, locked, for `journal check`.
                crate::alarm!(queue = self.queue_name, "{}: {error}", self.queue_name);
                Err(Taken::One)
            }
        }
    }

    /// The next message of the transmission queue: sent, in the batch, or with the opener.
    fn take_next(
        &mut self,
        key: usize,
        generation: u64,
        front: &mut Front,
        links: &mut HashMap<LinkId, Link>,
        local: &mut Local,
        state: &mut State,
    ) -> Taken {
        // One that waited for its link goes the whole way: it may have to be opened still.
        let waited = match &mut self.way {
            Way::Plain { waiting, .. } => waiting.take(),
            Way::Numbered { .. } => None,
        };
        let (found, payload) = match waited {
            Some((found, payload, _)) => (found, payload),
            None => match self.lock_next(front, local, state) {
                Ok(locked) => locked,
                Err(taken) => return taken,
            },
        };
        let policy = self.opening_policy(state);
        if let (Way::Numbered { link }, None) = (&self.way, &policy) {
            // The usual case: no byte of the message is looked at.
            let link = *link;
            let payload = still_to_live(payload, &found, local.wall_ms);
            return self.take(found, link, payload, front, local, state);
        }
        let Ok(sections) = Sections::scan(&payload) else {
            let refusal = Refusal::new(reason::XQH_ERROR, "no AMQP message");
            self.undeliverable(&found, &refusal, local, state);
            return Taken::One;
        };
        let Some(destination) = transmission::destination(&payload, &sections) else {
            let refusal = Refusal::new(reason::XQH_ERROR, format!("{}: no transmission header", self.queue_name));
            self.undeliverable(&found, &refusal, local, state);
            return Taken::One;
        };
        let header = Arc::new(TransmissionHeader::new(destination));
        let link = match &self.way {
            Way::Numbered { link } => *link,
            Way::Plain { .. } => match self.plain_link(&header.destination.queue, front, links) {
                Ok((link, true)) => link,
                Ok((_, false)) => {
                    let address = header.destination.queue.clone();
                    if let Way::Plain { waiting, .. } = &mut self.way {
                        *waiting = Some((found, payload, address));
                    }
                    return Taken::Blocked;
                }
                Err(refusal) => {
                    self.undeliverable(&found, &refusal, local, state);
                    return Taken::One;
                }
            },
        };
        let is_clear = !is_sealed(&payload, local.wall_ms);
        if is_clear && let Some(policy) = policy.as_ref().filter(|policy| policy.toleration == Toleration::Enforce) {
            // On a protected queue it can only be a forgery, here as for any reader.
            let refusal = Refusal::security(policy.cause_of_clear(), "a clear message on a protected queue");
            self.fail(&refusal, local);
            self.quarantine(&found, &refusal, local, state);
            return Taken::One;
        }
        match policy.filter(|_| !is_clear) {
            None => {
                let payload = self.on_the_wire(still_to_live(payload, &found, local.wall_ms));
                self.take(found, link, payload, front, local, state)
            }
            Some(policy) => {
                self.open(Sealed { found, link, header, payload }, &policy, (key, generation), local, state);
                self.opened_ones(front, local, state);
                Taken::One
            }
        }
    }

    /// A message in the form in which it goes out.
    fn take(
        &mut self,
        found: Found,
        link: LinkId,
        payload: Payload,
        front: &mut Front,
        local: &mut Local,
        state: &mut State,
    ) -> Taken {
        if payload.len() as u64 > self.message_bytes_max {
            // MAXMSGL is about the message without the transmission header.
            let length = bytes_of_message(&payload);
            if length > self.message_bytes_max {
                let detail = format!("{length} bytes are more than the channel's {}", self.message_bytes_max);
                let refusal = Refusal::new(reason::MSG_TOO_BIG_FOR_CHANNEL, detail);
                self.undeliverable(&found, &refusal, local, state);
                return Taken::One;
            }
        }
        if self.is_fast(&found) {
            // Outside any batch: gone when sent.
            if !forward(front, link, 0, payload, true) {
                state.store.release(found.id, false);
                return Taken::Blocked;
            }
            state.note_got(self.queue, found.id, local.wall_ms);
            if let Err(error) = state.store.acknowledge(found.id) {
                crate::warning!(queue = self.queue_name, "{}: {error}", self.queue_name);
            }
            self.counts.messages += 1;
            self.counts.last_message_ms = Some(local.wall_ms);
            local.flush_soon();
            return Taken::One;
        }
        self.batch_since.get_or_insert(local.now);
        self.batch_bytes += payload.len() as u64;
        self.batch.push(Outgoing { id: found.id, number: 0, link, payload });
        Taken::One
    }

    /// Notes the batch that is open, unless it may wait for more, and sends it once the note is synced.
    fn end_batch(
        &mut self,
        key: usize,
        generation: u64,
        front: &mut Front,
        local: &mut Local,
        state: &mut State,
        nothing_more: bool,
    ) {
        if self.batch.is_empty() {
            return;
        }
        let interval = self.definition.batch_interval;
        let limit = self.definition.batch_bytes_max;
        let full = self.batch.len() >= self.batch_size || (limit > 0 && self.batch_bytes >= limit);
        let since = self.batch_since.unwrap_or(local.now);
        if nothing_more && !full && !interval.is_zero() && local.now < since + interval && self.stage == Stage::Running
        {
            return local.serve_at(since + interval, self.queue);
        }
        let batch = std::mem::take(&mut self.batch);
        (self.batch_bytes, self.batch_since) = (0, None);
        let mut messages = VecDeque::with_capacity(batch.len());
        let units = self.units.len();
        let (mut count, mut bytes) = (0, 0);
        for mut message in batch {
            let id = message.id;
            self.numbered.push_back(Numbered { id, sent_at: None, confirmed: false, given_back: false });
            message.number = self.note.base + self.numbered.len() as u64;
            (count, bytes) = (count + 1, bytes + message.payload.len() as u64);
            if count == self.batch_size || (limit > 0 && bytes >= limit) {
                self.units.push_back((message.number, count));
                (count, bytes) = (0, 0);
            }
            messages.push_back(message);
        }
        if count > 0 {
            self.units.push_back((self.note.base + self.numbered.len() as u64, count));
        }
        self.note.unit += (self.units.len() - units) as u64;
        let ticket = match &self.way {
            Way::Plain { .. } => Ticket::NOW,
            Way::Numbered { .. } => match self.write_note(state) {
                Ok(ticket) => ticket,
                Err(refusal) => {
                    // Nothing of it was sent: it is not in doubt.
                    self.units.truncate(units);
                    for message in messages {
                        self.numbered.pop_back();
                        state.store.release(message.id, false);
                    }
                    self.failure.get_or_insert(refusal);
                    return;
                }
            },
        };
        let is_synced = ticket <= state.store.synced();
        self.noted.push_back(Noted { ticket, messages });
        if is_synced {
            self.send_noted(front, local, state);
        } else {
            local.urgent = true;
            local.confirm_channel(ticket, key, generation);
        }
    }

    fn write_note(&mut self, state: &mut State) -> Result<Ticket, Refusal> {
        self.note.in_doubt = self.numbered.iter().map(|message| message.id).collect();
        let bytes = self.note.encode();
        state.store.commit(Vec::new(), &[], &[(&self.note_name, Some(&bytes))]).map_err(|error| store_refusal(&error))
    }

    /// Sends batches whose notes are synced, as far as there is credit.
    fn send_noted(&mut self, front: &mut Front, local: &Local, state: &State) {
        let synced = state.store.synced();
        while let Some(noted) = self.noted.front_mut().filter(|noted| noted.ticket <= synced) {
            while let Some(message) = noted.messages.front() {
                if !forward(front, message.link, message.number, message.payload.clone(), false) {
                    return;
                }
                let place = usize::try_from(message.number - self.note.base - 1).unwrap_or(usize::MAX);
                if let Some(numbered) = self.numbered.get_mut(place) {
                    numbered.sent_at = Some(local.now);
                }
                noted.messages.pop_front();
                self.counts.messages += 1;
                self.counts.last_message_ms = Some(local.wall_ms);
            }
            self.noted.pop_front();
        }
    }

    /// How long the watched message lay on the transmission queue.
    fn watch_queue_time(&mut self, found: &Found, state: &mut State) {
        let Some((id, since)) = state.queue_time_probes.get(&self.queue) else { return };
        if found.id == *id {
            self.counts.queue_time.note(state.clock.since(*since).as_secs_f64() * 1e6);
        }
        if found.id >= *id {
            state.queue_time_probes.remove(&self.queue);
        }
    }
}

/// Sends a message to the partner. False where its link takes none now.
fn forward(front: &mut Front, link: LinkId, number: u64, payload: Payload, settled: bool) -> bool {
    front.way_out().is_some_and(|out| out.forward(link, number, payload, settled))
}

/// The partner has said what became of a message.
pub(crate) fn outcome(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    link: LinkId,
    number: u64,
    answer: Option<&DeliveryState>,
    settled: bool,
) {
    let Peer { key, front, sending, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    if !settled {
        front.settle(link, number, answer.cloned().unwrap_or(DeliveryState::Accepted));
    }
    let place = number.checked_sub(sending.note.base + 1).and_then(|place| usize::try_from(place).ok());
    // The first outcome is acted upon at once, and another one changes nothing.
    let waits = place.and_then(|place| sending.numbered.get(place)).filter(|message| !message.confirmed);
    let Some(id) = waits.map(|message| message.id) else { return };
    match answer {
        Some(DeliveryState::Accepted) => {
            if let Some(message) = place.and_then(|place| sending.numbered.get_mut(place)) {
                message.confirmed = true;
            }
        }
        Some(DeliveryState::Released | DeliveryState::Modified { .. }) if matches!(sending.way, Way::Plain { .. }) => {
            // It does not take it now: the message goes back, and comes again after a pause.
            let failed = matches!(answer, Some(DeliveryState::Modified { delivery_failed: true, .. }));
            state.store.release(id, failed);
            if let Some(message) = place.and_then(|place| sending.numbered.get_mut(place)) {
                (message.confirmed, message.given_back) = (true, true);
            }
            let again = local.now + RELEASED_AGAIN_AFTER;
            sending.retry_at = Some(again);
            local.serve_at(again, sending.queue);
        }
        Some(DeliveryState::Rejected(error)) => {
            let reason = match (&sending.way, error.as_deref().and_then(reason_in)) {
                (Way::Numbered { .. }, Some(code)) => reason::of(code),
                _ => reason::UNEXPECTED_ERROR,
            };
            let detail = error.as_ref().map(ToString::to_string).unwrap_or_default();
            let refusal = Refusal::new(reason, format!("the partner rejects it: {}", protocol::printable(&detail)));
            sending.refused(id, &refusal, local, state);
            if let Some(message) = place.and_then(|place| sending.numbered.get_mut(place)) {
                (message.confirmed, message.given_back) = (true, true);
            }
        }
        other => {
            let detail = format!("the partner does not take message {number}: {other:?}");
            sending.failure.get_or_insert_with(|| Refusal::new(reason::UNEXPECTED_ERROR, detail));
            local.serve(sending.queue);
        }
    }
    local.channel_work(*key);
}

/// Once a turn: removes what the partner has confirmed. One unit of work, whatever their number.
pub(crate) fn confirm(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let Peer { sending, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    let count = sending.numbered.iter().take_while(|message| message.confirmed).count();
    if count > 0 {
        if let Some(sent) = sending.numbered.get(count - 1).and_then(|message| message.sent_at) {
            sending.counts.net_time.note(local.now.saturating_duration_since(sent).as_secs_f64() * 1e6);
        }
        let done: Vec<Numbered> = sending.numbered.drain(..count).collect();
        // What was given back may lie on the queue again.
        let arrived = done.iter().filter(|message| !message.given_back);
        let ids: Vec<MessageId> = arrived.map(|message| message.id).collect();
        let base = sending.note.base + count as u64;
        for message in done.iter().filter(|message| !message.given_back) {
            state.note_got(sending.queue, message.id, local.wall_ms);
        }
        match sending.way {
            Way::Plain { .. } => {
                sending.note.base = base;
                for message in done.iter().filter(|message| !message.given_back) {
                    if let Err(error) = state.store.acknowledge(message.id) {
                        crate::warning!(queue = sending.queue_name, "{}: {error}", sending.queue_name);
                    }
                }
            }
            Way::Numbered { .. } => {
                if let Err(refusal) = settle(sending, state, &ids, base) {
                    // They are there; what is not removed yet is still noted, and the next start settles it.
                    for message in done.into_iter().rev() {
                        sending.numbered.push_front(message);
                    }
                    return fail(peer, local, refusal);
                }
            }
        }
        while let Some((_, messages)) = sending.units.front().copied().filter(|(last, _)| *last <= base) {
            sending.units.pop_front();
            sending.counts.batches += 1;
            sending.counts.batch_messages.note(messages as f64);
        }
        sending.last_activity = local.now;
        local.flush_soon();
        local.freed(sending.queue, state);
    }
    let queue = sending.queue;
    local.serve(queue);
}

/// A link of the channel ended: the channel's own, or one of many to a partner that is not Bulla.
pub(crate) fn detached(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    link: LinkId,
    error: Option<&bulla_amqp::Error>,
) {
    let Some(sending) = peer.sending.as_deref_mut() else { return };
    let detail = error.map_or_else(|| "the partner ended the link".to_owned(), said);
    if let Way::Plain { links, waiting } = &mut sending.way {
        let gone: Vec<String> =
            links.iter().filter(|(_, known)| known.link == link).map(|(name, _)| name.clone()).collect();
        let refused = gone.first().filter(|name| waiting.as_ref().is_some_and(|(_, _, address)| address == *name));
        if let (Some(name), Some((found, ..))) = (refused, waiting.take_if(|(_, _, address)| gone.contains(address))) {
            let refusal = Refusal::new(reason::UNKNOWN_OBJECT_NAME, format!("{name}: the partner says: {detail}"));
            links.retain(|_, known| known.link != link);
            sending.undeliverable(&found, &refusal, local, state);
            local.serve(sending.queue);
            return;
        }
        links.retain(|_, known| known.link != link);
    }
    let refusal = Refusal::new(reason::CONNECTION_BROKEN, detail);
    fail(peer, local, refusal);
}

/// The reason code that a partner of ours puts into an error.
fn reason_in(error: &bulla_amqp::Error) -> Option<u16> {
    error.info.iter().find_map(|(name, value)| match value {
        Value::Uint(code) if name.as_str() == "reason" => u16::try_from(*code).ok(),
        _ => None,
    })
}

/// An AMQP error in words.
pub(crate) fn said(error: &bulla_amqp::Error) -> String {
    protocol::printable(error.description.as_deref().unwrap_or(error.condition.as_str()))
}

/// STOP CHANNEL. QUIESCE ends after what is under way, FORCE at once.
pub(crate) fn stop(peer: &mut Peer, local: &mut Local, force: bool) {
    let Some(sending) = peer.sending.as_deref_mut() else { return };
    if sending.stage == Stage::Running && !force {
        sending.stage = Stage::Quiescing;
        return local.serve(sending.queue);
    }
    sending.stage = Stage::Ending;
    peer.front.close(None);
    local.channel_work(peer.key);
}

/// At each tick: DISCINT.
pub(crate) fn tick(peer: &mut Peer, local: &mut Local, state: &State) {
    let Some(sending) = peer.sending.as_deref_mut() else { return };
    let limit = sending.definition.disconnect_after;
    let over = !limit.is_zero() && local.now.saturating_duration_since(sending.last_activity) >= limit;
    let waits = state.store.status(sending.queue).is_some_and(|status| status.available > 0);
    if over && sending.stage == Stage::Running && sending.is_idle() && !waits {
        sending.stage = Stage::Ending;
        peer.front.close(None);
        local.touch(peer.key);
    }
}

/// Bytes of a message without its transmission header.
fn bytes_of_message(payload: &Payload) -> u64 {
    let header = Sections::scan(payload).ok().and_then(|sections| sections.delivery_annotations);
    (payload.len() - header.map_or(0, |range| range.len())) as u64
}

/// The message with the time to live that is left of it.
fn still_to_live(payload: Payload, found: &Found, now_ms: u64) -> Payload {
    let Some(expires_at_ms) = found.expires_at_ms else { return payload };
    let Ok(sections) = Sections::scan(&payload) else { return payload };
    let Ok(header) = sections.decode_header(&payload) else { return payload };
    let left = u32::try_from(expires_at_ms.saturating_sub(now_ms).max(1)).unwrap_or(u32::MAX);
    bulla_amqp::with_header(&payload, &sections, &Header { ttl_ms: Some(left), ..header })
}

/// How long after its last sign of life a partner is given up: twice the heartbeat, of which it is told one.
pub(crate) fn idle_timeout(heartbeat: Duration) -> Option<Duration> {
    (!heartbeat.is_zero()).then(|| heartbeat * 2)
}
