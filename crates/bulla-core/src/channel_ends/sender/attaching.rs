//! How a channel begins to send: both ends say where they stand, and what was in doubt is settled.

use super::fail;
use crate::catalog::ChannelDefinition;
use crate::catalog::status::ChannelState;
use crate::channel::home;
use crate::channel::note::{self, SenderNote};
use crate::channel::protocol::{self, ReceiverGreeting, SenderGreeting};
use crate::channel::registry::{InstanceId, Place};
use crate::channel::supervisor;
use crate::channel_ends::receiver::attaching::{is_one_partner, not_agreed, proof};
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::{ChannelUse, Link, Peer};
use crate::dispatcher::sealing::OpeningKeys;
use crate::dispatcher::sending::{Agreed, Batches, Counts, Numbers, Opener, OpeningLine, Proved, Sending, Stage, Way};
use crate::events::Event;
use crate::front::{LinkId, LinkOpened, SessionId};
use crate::manager::State;
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use crate::refusals::stores_mixed;
use bulla_amqp::types::SenderSettleMode;
use bulla_amqp::{AttachRequest, Symbol, Value};
use bulla_queue::{MessageId, QueueId, StoreNumber};
use std::sync::Arc;

/// Messages that may be with the adapters at the same time.
const OPENING_MAX: usize = 64;
/// Bytes of them with which no more are taken from the transmission queue.
const OPENING_BYTES_MAX: usize = 64 << 20;
/// The address of a channel's link, before the channel's name.
const ADDRESS_PREFIX: &str = "bulla.channel/";

/// Begins to send over an open connection: a link to a Bulla partner, or the first of many to another. `definition`
/// names the user whom the rules give this partner.
pub fn begin(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    id: InstanceId,
    definition: ChannelDefinition,
    session: SessionId,
) -> Result<(), Refusal> {
    let channel = &id.channel;
    let home = home::of(state, channel, &definition)?;
    let (queue, queue_name) = transmission_queue(local, state, channel, &definition, home)?;
    let numbers = Numbers::new(supervisor::read_note(state, channel)?, note::sender_name(channel), home);
    let partner = peer.partner();
    let proof = proof_of(peer, state, &id);
    if !partner.is_bulla {
        same_proof(state, (&id, &definition), &numbers.note, &proof, &partner.container)?;
    }
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    let line = OpeningLine::bounded(OPENING_MAX, OPENING_BYTES_MAX);
    let mut sending = Sending {
        agreed: Agreed::of(state, &definition),
        id: id.clone(),
        definition: Arc::new(definition),
        queue,
        queue_name,
        place: Place { dispatcher: local.index, peer: peer.place.key, generation: peer.place.generation },
        partner: Proved { said: partner, proof },
        way: Way::Plain { session, links: HashMap::default(), waiting: None },
        stage: Stage::Running,
        numbers,
        batches: Batches::default(),
        opener: Opener { line, who: local.device_asker(peer.place.generation), keys: OpeningKeys::default() },
        last_activity: local.now,
        retry_at: None,
        counts: Counts::default(),
    };
    let greets = sending.partner.said.is_bulla;
    if greets {
        let link = greet(&sending, peer, local, state, session)?;
        (sending.way, sending.stage) = (Way::Numbered { link }, Stage::Greeting);
    }
    state.use_of(queue).sender = Some(local.index);
    state.opened_to_get(queue);
    state.use_of(queue).consumers_on |= 1 << local.index;
    local.channels.senders.insert(queue, peer.place.key);
    let is_in_doubt = !sending.numbers.messages.is_empty();
    peer.channel.sending = Some(Box::new(sending));
    state.outbound.channels.entry(id).status.state = ChannelState::Initializing;
    if greets {
        return Ok(());
    }
    if is_in_doubt {
        // What was in doubt with an earlier partner is the operator's to resolve.
        return Err(Refusal::in_doubt("messages are in doubt with an earlier partner: RESOLVE CHANNEL first"));
    }
    running(peer, local, state);
    Ok(())
}

/// The transmission queue of a channel, which no other channel sends from.
fn transmission_queue(
    local: &Local,
    state: &mut State,
    channel: &str,
    definition: &ChannelDefinition,
    home: StoreNumber,
) -> Result<(QueueId, String), Refusal> {
    let name = definition.transmission_queue.clone().unwrap_or_default();
    let queue = state.store.queue(&name).ok_or_else(|| {
        Refusal::new(reason::UNKNOWN_XMIT_Q, format!("{channel}: the transmission queue {name:?} does not exist"))
    })?;
    if queue.store() != home {
        // Batches are noted in one unit with what becomes of their messages.
        let [its, own] = [queue.store(), home].map(|store| state.store.store_name(store));
        let detail = format!("{channel} belongs to the store {own}, and the transmission queue {name} to {its}");
        return Err(stores_mixed(detail));
    }
    if local.channels.senders.contains_key(&queue) || state.use_of(queue).sender.is_some() {
        return Err(Refusal::new(reason::OBJECT_IN_USE, format!("{name}: another channel sends from it")));
    }
    Ok((queue, name))
}

/// How the partner of that instance has proved who it is.
fn proof_of(peer: &Peer, state: &State, id: &InstanceId) -> String {
    let status = state.outbound.channels.get(id).map(|instance| &instance.status);
    let (subject, issuer) = status.map_or(("", ""), |status| (status.peer_name.as_str(), status.peer_issuer.as_str()));
    proof(peer, subject, issuer)
}

impl Agreed {
    /// What this end sets a limit to.
    fn of(state: &State, definition: &ChannelDefinition) -> Self {
        // MAXMSGL 0 is the queue manager's.
        let message_bytes_max = match definition.max_message_bytes {
            0 => u64::from(state.definitions.queue_manager.max_message_bytes),
            bytes => u64::from(bytes),
        };
        Self { message_bytes_max, batch_size: definition.batch_size.max(1) as usize }
    }
}

/// Attaches to a partner of ours, and says where this end stands.
fn greet(
    sending: &Sending,
    peer: &mut Peer,
    local: &Local,
    state: &State,
    session: SessionId,
) -> Result<LinkId, Refusal> {
    let Sending { id: InstanceId { channel, .. }, definition, numbers: Numbers { note, home, .. }, .. } = sending;
    let greeting = SenderGreeting {
        channel: channel.clone(),
        manager: local.manager.channel_manager(definition).to_owned(),
        store: state.store.identity_of(*home).unwrap_or_default(),
        sequence: note.base,
        in_doubt: u32::try_from(note.in_doubt.len()).unwrap_or(u32::MAX),
        reset: note.reset,
        sequence_wrap: definition.sequence_wrap,
        batch_size: definition.batch_size,
        message_bytes_max: sending.agreed.message_bytes_max,
        non_persistent_fast: definition.non_persistent_fast,
    };
    let request = AttachRequest {
        snd_settle_mode: SenderSettleMode::Mixed,
        properties: greeting.to_properties(),
        ..AttachRequest::sender(channel.clone(), format!("{ADDRESS_PREFIX}{channel}"))
    };
    let link = peer.front.way_out().ok_or_else(protocol::no_way_out)?.attach(session, request);
    peer.links.insert(link, Link::Sending(session));
    Ok(link)
}

/// The partner has answered an attach.
pub fn opened(peer: &mut Peer, local: &mut Local, state: &mut State, opened: &LinkOpened) {
    let Peer { channel: ChannelUse { sending, .. }, .. } = peer;
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
                    sending.agreed.message_bytes_max = sending.agreed.message_bytes_max.min(limit);
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
    properties: &[(Symbol, Value)],
) -> Result<(), Refusal> {
    let greeting = ReceiverGreeting::from_properties(properties)
        .ok_or_else(|| Refusal::new(reason::CHANNEL_CONFIG_ERROR, "the partner's answer lacks what a channel needs"))?;
    check(sending, state, &greeting)?;
    let base = sending.numbers.note.base;
    let arrived = usize::try_from(greeting.sequence - base).unwrap_or(0);
    let note = &mut sending.numbers.note;
    note.partner.clone_from(&greeting.manager);
    (note.mark, note.proof) = (greeting.mark, sending.partner.proof.clone());
    let numbered = std::mem::take(&mut sending.numbers.messages);
    let mut there: Vec<MessageId> = numbered.iter().take(arrived).map(|message| message.id).collect();
    for (number, reason) in greeting.refused.above(base).take_while(|(number, _)| *number <= greeting.sequence) {
        // Its outcome was lost with the last connection.
        let place = usize::try_from(number - base - 1).unwrap_or(usize::MAX);
        let Some(id) = numbered.get(place).map(|message| message.id) else { continue };
        let refusal = Refusal::new(reason::of(reason), format!("{} has refused it", greeting.manager));
        sending.refused(id, &refusal, local, state);
        there.retain(|arrived| *arrived != id);
    }
    if let Err(refusal) = sending.numbers.settle(state, &there, greeting.sequence) {
        sending.numbers.messages = numbered;
        return Err(refusal);
    }
    for message in numbered.iter().skip(arrived) {
        state.store.release(message.id, false);
    }
    let agreed = &mut sending.agreed;
    agreed.batch_size = agreed.batch_size.min(greeting.batch_size.max(1) as usize);
    agreed.message_bytes_max = agreed.message_bytes_max.min(greeting.message_bytes_max);
    sending.partner.said.container.clone_from(&greeting.manager);
    match &sending.stage {
        // A message that was refused has no dead-letter queue to go to.
        Stage::Failing(why) => Err(why.clone()),
        _ => Ok(()),
    }
}

/// Whether this end can go on from where the partner says that it stands.
fn check(sending: &Sending, state: &State, greeting: &ReceiverGreeting) -> Result<(), Refusal> {
    let (wrap, note) = (sending.definition.sequence_wrap, &sending.numbers.note);
    if greeting.sequence_wrap != wrap {
        let detail = format!("SEQWRAP is {wrap} here and {} there", greeting.sequence_wrap);
        return Err(Refusal::new(reason::CHANNEL_CONFIG_ERROR, detail));
    }
    same_proof(state, (&sending.id, &sending.definition), note, &sending.partner.proof, &greeting.manager)?;
    let own = state.store.identity_of(sending.numbers.home).unwrap_or_default();
    let (base, last) = (note.base, sending.numbers.last());
    let ours = greeting.store == own || greeting.store == [0; 16];
    if !ours || !(base..=last).contains(&greeting.sequence) {
        let shown = |number| protocol::shown(number, wrap);
        let where_to = match note.reset {
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
    let in_doubt = sending.numbers.messages.len();
    if in_doubt > 0 && note.partner != greeting.manager {
        let detail = format!(
            "{in_doubt} messages are in doubt with {}, and this is {}: RESOLVE CHANNEL first",
            note.partner, greeting.manager
        );
        return Err(Refusal::sequence(detail));
    }
    if note.proof.is_empty() && note.mark != [0; 16] && note.mark != greeting.mark {
        let detail = format!(
            "{} is another queue manager of this name, or has another store: RESET CHANNEL at the sending end",
            greeting.manager
        );
        return Err(Refusal::sequence(detail));
    }
    Ok(())
}

/// Whether a partner may be the one whose numbers the note has: one that proved who it is has to prove it again, and
/// under the same name.
fn same_proof(
    state: &State,
    (id, definition): (&InstanceId, &ChannelDefinition),
    note: &SenderNote,
    proof: &str,
    manager: &str,
) -> Result<(), Refusal> {
    let issuer = state.outbound.channels.get(id).map_or("", |instance| instance.status.peer_issuer.as_str());
    let is_same = || is_one_partner(definition, &note.proof, proof, issuer) && note.partner == manager;
    if note.proof.is_empty() || is_same() {
        return Ok(());
    }
    let channel = &id.channel;
    let shown = if proof.is_empty() { "nothing" } else { proof };
    crate::warning!(
        channel,
        "channel {channel}: its partner {} proved itself by {} before, now {manager} by {shown}",
        note.partner,
        note.proof
    );
    let detail = format!("{manager} is not the partner that proved itself before: RESET CHANNEL at the sending end");
    Err(not_agreed(channel, "partner", detail))
}

/// Both ends agree, and messages may flow.
fn running(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let ChannelUse { sending, calling, .. } = &mut peer.channel;
    let Some(sending) = sending.as_deref_mut() else { return };
    sending.stage = Stage::Running;
    *calling = None;
    let definition = sending.definition.clone();
    let instance = state.outbound.channels.entry(sending.id.clone());
    let status = &mut instance.status;
    status.state = ChannelState::Running;
    status.exactly_once = matches!(sending.way, Way::Numbered { .. });
    status.remote_manager.clone_from(&sending.partner.said.container);
    status.remote_application.clone_from(&sending.partner.said.container);
    status.remote_product.clone_from(&sending.partner.said.product);
    status.remote_version.clone_from(&sending.partner.said.version);
    status.transmission_queue.clone_from(&sending.queue_name);
    status.user = local.manager.channel_user(&definition).to_owned();
    status.batch_size = u32::try_from(sending.agreed.batch_size).unwrap_or(u32::MAX);
    status.heartbeat_seconds = u32::try_from(definition.heartbeat.as_secs()).unwrap_or(u32::MAX);
    status.max_message_bytes = sending.agreed.message_bytes_max;
    status.non_persistent_fast = definition.non_persistent_fast;
    status.started_ms = Some(local.wall_ms);
    status.reason = String::new();
    status.in_doubt = false;
    supervisor::refill_retries(instance, &definition);
    if instance.status.stop_requested {
        sending.stage = Stage::Quiescing;
    }
    if state.notices.peer_lines.may_write(local.now) {
        crate::note!(
            channel = sending.id.channel,
            "channel {}: running, to {}",
            sending.id.channel,
            sending.partner.said.container
        );
    }
    let (channel, partner) = (sending.id.channel.clone(), sending.partner.said.container.clone());
    state.raise(&Event::ChannelStarted { channel, partner }, local.wall_ms);
    local.serve(sending.queue);
    local.channel_work(peer.place.key);
}
