//! The receiving end of a channel: from the attach of a sending end to messages on their queues.
//!
//! A partner that is ours numbers the deliveries that it does not settle. What is ready at the head of a link's line is
//! committed in one unit of work with the note of the last number, and confirmed once that is synced; so a message is
//! on its queue if and only if its number is in the note. What the sender settles (NPMSPEED(FAST)) is put as it is
//! ready. A partner that is not ours has no numbers: what it has not heard of it sends again.

pub(crate) mod over;
pub(crate) mod receiving;

use super::ChannelNotice;
use super::delivery::{Delivery, Prepared, Secret, Way};
use super::note::{PROOF_BYTES_MAX, ReceiverNote, receiver_name, receiver_prefix};
use super::protocol::{self, ReceiverGreeting, SenderGreeting};
use super::refused::Refused;
use super::registry::{InstanceId, PARTNERS_MAX, Place, Wanted};
use super::transmission::{DESTINATION_BYTES_MAX, Destination};
use crate::adapter::{Asker, Finished, Outcome};
use crate::catalog::names::is_name;
use crate::catalog::status::{ChannelState, ChannelStatus};
use crate::catalog::{ChannelDefinition, MESSAGE_BYTES_MAX};
use crate::dispatcher::authority::mapped_channel;
use crate::dispatcher::ending;
use crate::dispatcher::local::{Confirmation, Confirmed, Local};
use crate::dispatcher::peer::{Link, Peer};
use crate::dispatcher::sealing::{SealingLine, Stage, line_full};
use crate::envelope::{self, Arrival, Label, Was};
use crate::events::Event;
use crate::front::{self, Attach, DeliveryId, Front, LinkId, SessionId};
use crate::mailbox::Notice;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::refusals::store_refusal;
use crate::{reports, tls};
use bulla_amqp::types::{AnyTarget, SenderSettleMode, Target};
use bulla_amqp::{AttachReply, AttachRequest, DeliveryState};
use bulla_queue::{Message, MessageId, QueueId, Ticket};
use bulla_seal::Outcome as Verdict;
use bulla_seal::policy::SealedAt;
use receiving::{CREDIT_BYTES, Counts, Numbers, Phase, Receiving, Waiting};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Messages that a link has room for, in batches: what is confirmed, on its way, being committed, and spare.
const CREDIT_BATCHES: u32 = 4;
/// The least and the most of it, in messages: a sender that fills small batches is kept busy, and its note stays small.
const CREDIT_MIN: u32 = 1_000;
const CREDIT_MAX: u32 = super::note::IN_DOUBT_MAX as u32;
/// Credit of a link whose messages may be sealed first: they wait in memory for that.
const CREDIT_PROTECTED: u32 = 512;
/// Bytes of messages that a link's line takes. A connection with [`CREDIT_BYTES`] in a line is not read; what one turn
/// has read before that joins: a message that may be long, and short ones behind it.
const LINE_BYTES_MAX: usize = 256 << 20;
const _: () = assert!(LINE_BYTES_MAX > CREDIT_BYTES + MESSAGE_BYTES_MAX as usize + (16 << 20));
/// What a message is taken to be long before any came, in bytes.
const MESSAGE_BYTES_ASSUMED: usize = 64 << 10;
/// Messages and bytes of one unit of work.
const UNIT_MESSAGES_MAX: usize = 1_024;
const UNIT_BYTES_MAX: usize = 8 << 20;
/// Bytes that a transmission header may add to a message of MAXMSGL.
const HEADER_BYTES_MAX: u64 = 2 * DESTINATION_BYTES_MAX as u64;
/// Separates channel and queue in the target of a partner that is not ours: neither name may hold it.
const FOREIGN_TARGET: &str = "::";
/// Names that partners with one proof may have on one channel: each leaves a note, with the proof in it.
const NAMES_OF_ONE_PROOF_MAX: usize = 16;
/// What a partner is told of the store here where it is another than its own: whose store it is proves something.
const OTHER_STORE: [u8; 16] = [0xff; 16];
/// How long a message waits for memory to be sealed in before that is asked for again.
const MEMORY_WAIT: Duration = Duration::from_millis(50);
/// Longest text of a partner's own that is kept, in bytes; the rest of its container's name, say, is not shown.
const PARTNER_BYTES_MAX: usize = 128;
/// Sub-reasons of a message that can't be sealed now, and may be sealed later as it is. All others are the message's
/// own or its policy's, and waiting does not mend them.
const PASSING: [&str; 3] = ["key-unavailable", "crl-stale", "crl-missing"];
/// Connections of one container, a partner that is not ours, that may use a channel at the same time.
const CONTAINER_CONNECTIONS_MAX: usize = 64;

/// What a turn has found.
enum Step {
    /// The head of the line is dealt with: on with the next.
    On,
    /// Nothing more can be done now.
    Wait,
    /// The link ends.
    End(Refusal),
}

/// A partner of ours attaches the sending end of a channel. It is answered once all that was committed before is
/// synced.
pub(crate) fn greeted(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    greeting: &SenderGreeting,
) -> Result<(), Refusal> {
    let definition = definition(state, &greeting.channel)?;
    let tls = Tls::of(peer, &definition)?;
    let definition = mapped_channel(peer, local, state, &greeting.channel, definition)?;
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    if !is_name(&greeting.manager) {
        return Err(not_agreed(&greeting.channel, "manager", "the partner's name is not one"));
    }
    if greeting.store == [0; 16] {
        return Err(not_agreed(&greeting.channel, "store", "the partner's store has no identity"));
    }
    if greeting.sequence_wrap != definition.sequence_wrap {
        let detail = format!("SEQWRAP is {} here and {} there", definition.sequence_wrap, greeting.sequence_wrap);
        return Err(not_agreed(&greeting.channel, "sequence-wrap", detail));
    }
    let place = place(peer, local);
    let proof = proof(peer, &tls.peer_name, &tls.peer_issuer);
    let note_name = receiver_name(&greeting.channel, &greeting.manager);
    let known = known(state, greeting, &note_name, &proof, place)?;
    let own = InstanceId::of(&greeting.channel);
    let requested = state.channels.get(&own).is_some_and(|instance| instance.place == Some(place));
    // A requester that began has an instance of its own.
    let instance = if requested { own } else { InstanceId::with(&greeting.channel, &greeting.manager) };
    claim(peer, local, state, &instance, place, false)?;

    let (note, ticket) = take_up(state, greeting, &note_name, known, &proof)?;
    if let Some(old) = state.channels.take_numbers(&note_name, place) {
        tell_replaced(local, old, &greeting.channel);
    }
    let of_this_store = note.store == [0; 16] || note.store == greeting.store;
    let takes_refusals = peer.partner().takes_refusals;
    let in_doubt = note.refused.above(greeting.sequence).count();
    if of_this_store && in_doubt > 0 && !takes_refusals {
        // It would take them for messages that have arrived, and remove them.
        let detail = format!("{in_doubt} of its messages were refused here, and its version does not know of that");
        return Err(not_agreed(&greeting.channel, "refusals", detail));
    }
    let in_reach = note.sequence.checked_sub(greeting.sequence).is_some_and(|ahead| ahead <= greeting.in_doubt.into());
    let answer = ReceiverGreeting {
        manager: state.definitions.queue_manager.name.clone(),
        store: if of_this_store { note.store } else { OTHER_STORE },
        sequence: note.sequence,
        sequence_wrap: definition.sequence_wrap,
        batch_size: definition.batch_size,
        message_bytes_max: message_bytes_max(state, &definition),
        mark: protocol::mark_of(state.store.identity().unwrap_or_default(), &greeting.channel),
        refused: if of_this_store { note.refused.clone() } else { Refused::default() },
    };
    let numbers = Numbers {
        note_name,
        store: greeting.store,
        proof,
        wrap: definition.sequence_wrap,
        received: note.sequence,
        committed: note.sequence,
        confirmed: note.sequence,
        refused: note.refused,
        takes_refusals,
    };
    let batch_size = greeting.batch_size.min(definition.batch_size);
    let most = greeting.message_bytes_max.min(answer.message_bytes_max);
    let status = ChannelStatus {
        remote_manager: greeting.manager.clone(),
        batch_size,
        max_message_bytes: most,
        non_persistent_fast: greeting.non_persistent_fast,
        exactly_once: true,
        ..status(peer, local, state, &definition, tls)
    };
    begin(state, &instance, place, status);
    let reply = reply(attach, answer.to_properties(), most.saturating_add(HEADER_BYTES_MAX));
    let phase = Phase::Greeting { reply: Box::new(reply), agreed: of_this_store && in_reach };
    let receiving = Receiving {
        credit_max: credit_max(&definition, batch_size),
        phase,
        numbers: Some(numbers),
        ..receiving(peer, local, state, attach.session, instance, definition, None)
    };
    peer.is_channel = true;
    peer.links.insert(attach.link, Link::Receiving(Box::new(receiving)));
    local.receivers.insert((peer.key, attach.link));
    let confirmed = Confirmed::Channel { key: peer.key, generation: peer.generation, link: attach.link, through: 0 };
    local.confirmations.push_back(Confirmation { ticket, what: confirmed });
    Ok(())
}

/// A requester has reached a partner that is not ours: it takes from SOURCE there, at least once, and puts on TARGET
/// here.
pub(crate) fn request(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    id: &InstanceId,
    definition: ChannelDefinition,
    session: SessionId,
) -> Result<(), Refusal> {
    let tls = Tls::of(peer, &definition)?;
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    let missing = |what: &str| {
        let detail = format!("{}: the partner is not Bulla, and the channel has no {what}", id.channel);
        Refusal::new(reason::CHANNEL_CONFIG_ERROR, detail)
    };
    let source = definition.source.clone().ok_or_else(|| missing("SOURCE"))?;
    let queue = definition.target.clone().ok_or_else(|| missing("TARGET"))?;
    let target = Destination { queue, manager: state.definitions.queue_manager.name.clone() };
    Way::find(state, &target)?;
    let most = message_bytes_max(state, &definition);
    let status = ChannelStatus {
        batch_size: definition.batch_size,
        max_message_bytes: most,
        non_persistent_fast: definition.non_persistent_fast,
        ..status(peer, local, state, &definition, tls)
    };
    begin(state, id, place(peer, local), status);
    let request = AttachRequest {
        snd_settle_mode: SenderSettleMode::Mixed,
        max_message_size: most,
        ..AttachRequest::receiver(id.channel.clone(), source)
    };
    let link = peer.front.way_out().ok_or_else(protocol::no_way_out)?.attach(session, request);
    let receiving = receiving(peer, local, state, session, id.clone(), definition, Some(target));
    peer.is_channel = true;
    peer.links.insert(link, Link::Receiving(Box::new(receiving)));
    local.receivers.insert((peer.key, link));
    running(peer, local, state, link);
    replenish(peer, link);
    Ok(())
}

/// How a partner has proved who it is: by its certificate, or by a strong sign-in. Empty for neither.
pub(super) fn proof(peer: &Peer, subject: &str, issuer: &str) -> String {
    let said = match &peer.signed_in.user {
        _ if peer.transport.socket.verified_certificate() => format!("certificate {subject} of {issuer}"),
        Some(user) if peer.signed_in.ring => format!("user {user}"),
        _ => String::new(),
    };
    if said.len() <= PROOF_BYTES_MAX {
        return said;
    }
    format!("SHA-256 {}", base16ct::lower::encode_string(&openssl::sha::sha256(said.as_bytes())))
}

/// What is known of the partner that a greeting names, where the one that greets may be that partner. Nothing of an
/// earlier connection is touched.
fn known(
    state: &State,
    greeting: &SenderGreeting,
    note_name: &str,
    proof: &str,
    place: Place,
) -> Result<Option<ReceiverNote>, Refusal> {
    let SenderGreeting { channel, manager, .. } = greeting;
    let Some(bytes) = state.store.note(note_name) else {
        let (mut partners, mut of_this_proof) = (0, 0);
        for (_, note) in state.store.notes(&receiver_prefix(channel)) {
            partners += 1;
            let is_of_it = || ReceiverNote::decode(note).is_some_and(|note| note.proof == proof);
            of_this_proof += usize::from(!proof.is_empty() && is_of_it());
        }
        if partners >= PARTNERS_MAX || of_this_proof >= NAMES_OF_ONE_PROOF_MAX {
            let detail = match partners >= PARTNERS_MAX {
                true => format!("{PARTNERS_MAX} partners have used the channel"),
                false => format!("the partner has used the channel under {NAMES_OF_ONE_PROOF_MAX} names"),
            };
            return Err(Refusal::new(reason::MAX_CONNS_LIMIT_REACHED, format!("{channel}: {detail}")));
        }
        return Ok(None);
    };
    let note = ReceiverNote::decode(bytes)
        .ok_or_else(|| not_agreed(channel, "note", "the note of this channel is of a version that is not known"))?;
    if !note.proof.is_empty() && note.proof != proof {
        let shown = if proof.is_empty() { "nothing" } else { proof };
        crate::warning!(
            channel,
            partner = manager,
            "channel {channel} from {manager}: it proved itself by {} before, now by {shown}",
            note.proof
        );
        let detail = format!("{manager} proved itself otherwise before: RESET CHANNEL at the receiving end");
        return Err(not_agreed(channel, "partner", detail));
    }
    let is_held = state.channels.numbers_holder(note_name).is_some_and(|holder| holder != place);
    if is_held && !belongs(&note, greeting) {
        return Err(not_agreed(channel, "store", format!("{manager} runs the channel already, from another store")));
    }
    Ok(Some(note))
}

/// Whether a note's number is one of the store that greets; after a RESET here any store will do.
fn belongs(note: &ReceiverNote, greeting: &SenderGreeting) -> bool {
    note.store == [0; 16] || note.store == greeting.store
}

/// Where this end stands with a partner, and when that is durable. A reset that the partner asks for is done only where
/// this end has agreed to it by a RESET CHANNEL of its own, or where it changes nothing.
fn take_up(
    state: &mut State,
    greeting: &SenderGreeting,
    note_name: &str,
    known: Option<ReceiverNote>,
    proof: &str,
) -> Result<(ReceiverNote, Ticket), Refusal> {
    let (store, sequence, proof) = (greeting.store, greeting.sequence, proof.to_owned());
    let note = match known {
        None if !greeting.reset => return Ok((ReceiverNote::default(), Ticket::NOW)),
        Some(note) if !(greeting.reset && may_reset(&note, greeting)) => match belongs(&note, greeting) {
            true => ReceiverNote { proof, ..note },
            false => note,
        },
        _ => ReceiverNote { store, sequence, proof, ..ReceiverNote::default() },
    };
    // Written again as it is, the note comes to lie behind all that was committed with it before.
    let notes = [(note_name, Some(&note.encode()[..]))];
    let ticket = state.store.commit(Vec::new(), &[], &notes).map_err(|error| store_refusal(&error))?;
    Ok((note, ticket))
}

fn may_reset(note: &ReceiverNote, greeting: &SenderGreeting) -> bool {
    let changes_nothing = note.store == greeting.store && note.sequence == greeting.sequence;
    note.store == [0; 16] || note.reset_allowed || changes_nothing
}

/// The channel and the queue that a partner names that is not ours, where it does.
pub(crate) fn foreign_target(address: &str) -> Option<(&str, &str)> {
    address.split_once(FOREIGN_TARGET)
}

/// A partner that is not ours attaches to a receiving channel, with a queue for messages that do not say where to.
pub(crate) fn foreign(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    (channel, queue): (&str, &str),
) -> Result<(), Refusal> {
    let definition = definition(state, channel)?;
    let tls = Tls::of(peer, &definition)?;
    let definition = mapped_channel(peer, local, state, channel, definition)?;
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    let (queue, manager) = match queue.split_once('@') {
        Some((queue, manager)) => (queue, manager),
        None => (queue, state.definitions.queue_manager.name.as_str()),
    };
    let target = Destination { queue: queue.to_owned(), manager: manager.to_owned() };
    let container = peer.opened.as_ref().map_or("", |open| &open.container_id);
    let end = container.floor_char_boundary(PARTNER_BYTES_MAX);
    Way::find(state, &target)?;
    let place = place(peer, local);
    // A container may have several connections: each is an instance of its own.
    let named = |n: usize| match n {
        1 => InstanceId::with(channel, &container[..end]),
        n => InstanceId::with(channel, &format!("{} ({n})", &container[..end])),
    };
    let free =
        |id: &InstanceId| state.channels.get(id).and_then(|found| found.place).is_none_or(|other| other == place);
    let instance = (1..=CONTAINER_CONNECTIONS_MAX).map(named).find(free).ok_or_else(|| {
        let detail = format!("{channel}: {CONTAINER_CONNECTIONS_MAX} connections of one container");
        Refusal::new(reason::MAX_CONNS_LIMIT_REACHED, detail)
    })?;
    let status = ChannelStatus {
        batch_size: definition.batch_size,
        max_message_bytes: message_bytes_max(state, &definition),
        non_persistent_fast: definition.non_persistent_fast,
        ..status(peer, local, state, &definition, tls)
    };
    claim(peer, local, state, &instance, place, true)?;
    begin(state, &instance, place, status);
    let most = message_bytes_max(state, &definition);
    let receiving = receiving(peer, local, state, attach.session, instance, definition, Some(target));
    peer.front.accept_link(attach.link, reply(attach, Vec::new(), most));
    peer.is_channel = true;
    peer.links.insert(attach.link, Link::Receiving(Box::new(receiving)));
    local.receivers.insert((peer.key, attach.link));
    running(peer, local, state, attach.link);
    replenish(peer, attach.link);
    Ok(())
}

/// The receiving end of a link on which messages flow at once.
fn receiving(
    peer: &Peer,
    local: &Local,
    state: &State,
    session: SessionId,
    instance: InstanceId,
    definition: ChannelDefinition,
    target: Option<Destination>,
) -> Receiving {
    let user = definition.user.as_deref().unwrap_or(&state.definitions.queue_manager.name);
    Receiving {
        session,
        instance,
        place: place(peer, local),
        phase: Phase::Flowing,
        delivery: Delivery::new(definition.protection, user, target, local.device_asker(peer.generation)),
        numbers: None,
        line: SealingLine::bounded(CREDIT_MAX as usize, LINE_BYTES_MAX),
        unconfirmed: VecDeque::new(),
        committed: 0,
        confirmed: 0,
        tries: 0,
        retry_at: None,
        starved: false,
        message_bytes: MESSAGE_BYTES_ASSUMED,
        credit_max: credit_max(&definition, definition.batch_size),
        listed: false,
        stop: None,
        ended: None,
        counts: Counts::default(),
        definition,
    }
}

/// What a connection's TLS is, for the status of a channel that may use it.
struct Tls {
    protocol: &'static str,
    cipher_spec: String,
    peer_name: String,
    peer_issuer: String,
}

impl Tls {
    /// SSLCIPH, SSLCAUTH and SSLPEER are looked at before anything else.
    fn of(peer: &Peer, definition: &ChannelDefinition) -> Result<Self, Refusal> {
        let ssl = peer.transport.socket.established();
        let certificate = tls::check_channel(ssl, definition).map_err(|refusal| refusal.refusal())?;
        let (protocol, cipher_spec) = tls::agreed(ssl);
        let (peer_name, peer_issuer) =
            certificate.map(|certificate| (certificate.subject, certificate.issuer)).unwrap_or_default();
        Ok(Self { protocol, cipher_spec, peer_name, peer_issuer })
    }
}

/// The definition of a receiving channel.
fn definition(state: &State, channel: &str) -> Result<ChannelDefinition, Refusal> {
    let found = state.definitions.channels.get(channel);
    let found =
        found.ok_or_else(|| Refusal::new(reason::UNKNOWN_CHANNEL_NAME, format!("{channel}: no such channel")))?;
    if found.kind.sends() {
        let detail = format!("a {} channel sends; a receiver or requester was wanted", found.kind);
        return Err(not_agreed(channel, "channel-type", detail));
    }
    Ok(found.clone())
}

pub(super) fn not_agreed(channel: &str, cause: &'static str, detail: impl std::fmt::Display) -> Refusal {
    Refusal { cause: Some(cause), ..Refusal::new(reason::CHANNEL_CONFIG_ERROR, format!("{channel}: {detail}")) }
}

fn place(peer: &Peer, local: &Local) -> Place {
    Place { dispatcher: local.index, peer: peer.key, generation: peer.generation }
}

/// Makes room for an instance: one that is stopped stays so, an older connection of the same partner ends.
fn claim(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    id: &InstanceId,
    place: Place,
    shares: bool,
) -> Result<(), Refusal> {
    let stopped = |id: &InstanceId| {
        let instance = state.channels.get(id);
        instance.is_some_and(|instance| instance.place.is_none() && instance.status.state == ChannelState::Stopped)
    };
    if stopped(id) || stopped(&InstanceId::of(&id.channel)) {
        let detail = format!("{}: stopped until START CHANNEL", id.channel);
        return Err(Refusal { cause: Some("stopped"), ..Refusal::new(reason::CHANNEL_NOT_AVAILABLE, detail) });
    }
    let old = state.channels.get(id).and_then(|instance| instance.place);
    let most = state.definitions.queue_manager.active_channels_max as usize;
    if old.is_none() && state.channels.active() >= most {
        let detail = format!("{}: {most} channels are active", id.channel);
        return Err(Refusal::new(reason::MAX_CONNS_LIMIT_REACHED, detail));
    }
    match old {
        Some(old) if old == place && !shares => {
            let of_this = |link: &Link| matches!(link, Link::Receiving(receiving) if receiving.instance == *id);
            let older: Vec<LinkId> =
                peer.links.iter().filter(|(_, link)| of_this(link)).map(|(link, _)| *link).collect();
            for link in older {
                end(peer, local, state, link, replaced_by(&id.channel));
            }
        }
        Some(old) if old != place => tell_replaced(local, old, &id.channel),
        _ => {}
    }
    Ok(())
}

/// The instance or the numbers are not that connection's any more: it commits nothing more, and hears that it is over.
fn tell_replaced(local: &Local, old: Place, channel: &str) {
    let notice = ChannelNotice::Replaced { peer: old.peer, generation: old.generation, why: replaced_by(channel) };
    if let Some(mailbox) = local.manager.mailboxes.get(old.dispatcher) {
        mailbox.post(Notice::Channel(notice));
    }
}

fn replaced_by(channel: &str) -> Refusal {
    let detail = format!("{channel}: the partner has connected again");
    Refusal { cause: Some("replaced"), ..Refusal::new(reason::CONNECTION_BROKEN, detail) }
}

fn begin(state: &mut State, id: &InstanceId, place: Place, status: ChannelStatus) {
    let instance = state.channels.entry(id.clone());
    let same = instance.place == Some(place);
    if same && instance.status.state == ChannelState::Running && !status.exactly_once {
        // A further link of a partner that is not ours: one for each of its queues.
        return;
    }
    instance.place = Some(place);
    instance.wanted = Wanted::Nothing;
    instance.status = ChannelStatus { stop_requested: same && instance.status.stop_requested, ..status };
}

/// As much of a partner's own words as is kept of them: a status outlives the connection.
fn shown(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(PARTNER_BYTES_MAX));
    text.shrink_to_fit();
    text
}

/// What is known of an instance when it begins.
fn status(peer: &mut Peer, local: &Local, state: &State, definition: &ChannelDefinition, tls: Tls) -> ChannelStatus {
    let opened = peer.opened.as_deref();
    let told = |name| shown(opened.and_then(|open| protocol::text(&open.properties, name)).unwrap_or_default());
    ChannelStatus {
        state: ChannelState::Initializing,
        remote_application: opened.map(|open| shown(protocol::printable(&open.container_id))).unwrap_or_default(),
        remote_product: told(protocol::PRODUCT),
        remote_version: told(protocol::VERSION),
        connection: crate::dispatcher::peer::address(&mut peer.transport.socket),
        local_address: peer.transport.socket.local_address().map(|address| address.to_string()).unwrap_or_default(),
        job: format!("{:08X}.dispatcher-{}", std::process::id(), local.index),
        user: definition.user.clone().unwrap_or_else(|| state.definitions.queue_manager.name.clone()),
        started_ms: Some(local.wall_ms),
        heartbeat_seconds: u32::try_from(definition.heartbeat.as_secs()).unwrap_or(u32::MAX),
        security_protocol: tls.protocol,
        cipher_spec: tls.cipher_spec,
        peer_name: tls.peer_name,
        peer_issuer: tls.peer_issuer,
        ..ChannelStatus::default()
    }
}

/// MAXMSGL here; the sender's own may be lower.
fn message_bytes_max(state: &State, definition: &ChannelDefinition) -> u64 {
    match definition.max_message_bytes {
        0 => state.definitions.queue_manager.max_message_bytes.into(),
        most => most.min(state.definitions.queue_manager.max_message_bytes).into(),
    }
}

fn credit_max(definition: &ChannelDefinition, batch_size: u32) -> u32 {
    match definition.protection {
        crate::catalog::Protection::AsPolicy => CREDIT_PROTECTED,
        _ => batch_size.saturating_mul(CREDIT_BATCHES).clamp(CREDIT_MIN, CREDIT_MAX),
    }
}

fn reply(attach: &Attach, properties: protocol::Properties, message_bytes_max: u64) -> AttachReply {
    let target = match &attach.target {
        Some(AnyTarget::Target(target)) => target.clone(),
        _ => Target::default(),
    };
    AttachReply {
        source: Some(attach.source.clone().unwrap_or_default()),
        target: Some(target),
        coordinator: None,
        offered_capabilities: Vec::new(),
        properties,
        max_message_size: message_bytes_max,
        ..AttachReply::default()
    }
}

/// Messages may come.
fn running(peer: &mut Peer, local: &Local, state: &mut State, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    let Some(instance) = state.channels.get_mut(&receiving.instance) else { return };
    let was = std::mem::replace(&mut instance.status.state, ChannelState::Running);
    instance.status.substate = "RECEIVE";
    if let Some(numbers) = &receiving.numbers {
        instance.note_sequence(numbers.received, numbers.confirmed, numbers.wrap);
    }
    if !matches!(was, ChannelState::Running | ChannelState::Paused) {
        let InstanceId { channel, partner } = receiving.instance.clone();
        state.raise(&Event::ChannelStarted { channel, partner }, local.wall_ms);
    }
}

/// Hot path, once per message that a channel brings.
pub(crate) fn arrived(peer: &mut Peer, local: &mut Local, state: &mut State, delivery: front::Delivery) {
    let link = delivery.link;
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    if !matches!(receiving.phase, Phase::Flowing)
        || delivery.beyond_credit && (receiving.stop.is_none() || receiving.line.bytes() > CREDIT_BYTES)
    {
        let detail = format!("{}: a message came beyond the credit granted", receiving.instance.channel);
        return end(peer, local, state, link, Refusal::new(reason::Q_FULL, detail));
    }
    let len = delivery.payload.len();
    // A short memory of lengths: a few long messages are enough to grant less.
    receiving.message_bytes = if len > receiving.message_bytes {
        len
    } else {
        receiving.message_bytes - (receiving.message_bytes - len) / 64
    };
    if let Some(numbers) = receiving.numbers.as_mut().filter(|_| !delivery.settled) {
        numbers.received += 1;
        numbers.refused.received(numbers.received);
    }
    let id = (!delivery.settled).then_some(delivery.id);
    let payload = delivery.payload;
    let mut waiting = Waiting { id, payload, way: None, dead: None, defective: false, asks: false, _held: None };
    let room = match receiving.line.room() {
        Ok(room) => room,
        Err(full) => return end(peer, local, state, link, line_full(full)),
    };
    let asker = receiving.asker(link, room.slot());
    let stage = waiting.prepare(&mut receiving.delivery, &mut receiving.starved, local, state, asker);
    receiving.line.join(room, waiting, len, stage);
    look_at(receiving, local, link);
}

/// Has a link looked at in this turn.
fn look_at(receiving: &mut Receiving, local: &mut Local, link: LinkId) {
    if !std::mem::replace(&mut receiving.listed, true) {
        local.receiving.push((receiving.place.peer, link));
    }
}

/// An adapter is done with a message of this link.
pub(crate) fn finished(peer: &mut Peer, local: &mut Local, done: Finished) {
    let Finished { asker, outcome, cost } = done;
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&asker.link) else { return };
    let Receiving { line, delivery, .. } = &mut **receiving;
    let is_waited_for = line.fill(asker.slot, |waiting, away| {
        waiting.defective = matches!(&outcome, Outcome::Checked(Err(error)) if error.outcome() == Verdict::Defective);
        away.answered(&local.manager, outcome, &cost, Some(&mut delivery.meters))
    });
    if is_waited_for {
        look_at(receiving, local, asker.link);
    }
}

/// A pause is over: the link is looked at again.
pub(crate) fn wake(peer: &mut Peer, local: &mut Local, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    match receiving.retry_at {
        Some(at) if at <= local.now => look_at(receiving, local, link),
        Some(at) => local.wake_at(at),
        None => {}
    }
}

/// Once a turn: what is ready at the head of the line goes on its queues.
pub(crate) fn turn(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    receiving.listed = false;
    let refusal = if receiving.owns(state) {
        receiving.advance(&mut *peer.front, peer.generation, local, state, link)
    } else {
        Some(replaced_by(&receiving.instance.channel))
    };
    let refusal = refusal.or_else(|| receiving.stopped());
    receiving.show(peer.transport.traffic, local, state);
    match refusal {
        Some(refusal) => end(peer, local, state, link, refusal),
        None => replenish(peer, link),
    }
}

impl Receiving {
    /// Puts what can be put, in order. The refusal where the link has to end.
    fn advance(
        &mut self,
        front: &mut Front,
        generation: u64,
        local: &mut Local,
        state: &mut State,
        link: LinkId,
    ) -> Option<Refusal> {
        if let Some(at) = self.retry_at {
            if at > local.now {
                local.wake_at(at);
                return None;
            }
            self.retry_at = None;
            self.prepare_again(local, state, link);
        }
        loop {
            if self.line.front().is_some_and(|(head, _)| head.is_stale(state)) {
                self.prepare(local, state, link, 0);
            }
            let step = match self.line.front() {
                None => Step::Wait,
                Some((Waiting { id: None, .. }, _)) => self.put_one(front, generation, local, state, link),
                Some(_) => self.commit_some(front, generation, local, state, link),
            };
            match step {
                Step::On => {}
                Step::Wait => return None,
                Step::End(refusal) => return Some(refusal),
            }
        }
    }

    /// The head of the line is tried again: with what is defined now, if it found no way or that has changed. So are
    /// those that found no memory.
    fn prepare_again(&mut self, local: &mut Local, state: &State, link: LinkId) {
        let Some((head, answer)) = self.line.front().filter(|(head, _)| head.dead.is_none()) else { return };
        let changed = head.way.as_ref().is_none_or(|way| way.route.generation != state.generation);
        let starved = std::mem::take(&mut self.starved);
        if changed || answer.is_err() {
            self.prepare(local, state, link, 0);
        }
        for place in 1..self.line.len() {
            if !starved || self.starved {
                return;
            }
            if self.line.at(place).is_some_and(|(_, stage)| is_starved(stage)) {
                self.prepare(local, state, link, place);
            }
        }
    }

    /// Begins anew what is to be done with a message in the line before it is put.
    fn prepare(&mut self, local: &mut Local, state: &State, link: LinkId, place: usize) {
        let Some(asker) = self.line.slot_at(place).map(|slot| self.asker(link, slot)) else { return };
        let Self { line, delivery, starved, .. } = self;
        line.begin_again(place, |waiting, _| waiting.prepare(delivery, starved, local, state, asker));
    }

    /// Puts the head of the line, which its sender has settled.
    fn put_one(
        &mut self,
        front: &mut Front,
        generation: u64,
        local: &mut Local,
        state: &mut State,
        link: LinkId,
    ) -> Step {
        let mut is_put = false;
        let Some((head, answer)) = self.line.front() else { return Step::Wait };
        let put = match head.ready(answer, state, &[], local.wall_ms) {
            None => return Step::Wait,
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some((queue, message)))) => state
                .store
                .put(queue, message)
                .map(|ticket| {
                    is_put = true;
                    state.note_put(queue, state.store.newest(), local.now);
                    if ticket > state.store.synced() {
                        local.flush_soon();
                    }
                })
                .map_err(|error| store_refusal(&error)),
            Some(Err(refusal)) => Err(refusal),
        };
        match put {
            Ok(()) => {
                if head.asks && is_put {
                    let id = state.store.newest();
                    head.tell(state, local, id);
                }
                self.pop();
                Step::On
            }
            Err(refusal) => self.refused(front, generation, local, state, link, refusal),
        }
    }

    /// One unit of work: what is ready at the head of the line and not settled, and the number that it reaches.
    fn commit_some(
        &mut self,
        front: &mut Front,
        generation: u64,
        local: &mut Local,
        state: &mut State,
        link: LinkId,
    ) -> Step {
        let (mut unit, mut bytes, mut count) = (Vec::new(), 0, 0u64);
        let mut before: Vec<(QueueId, usize)> = Vec::new();
        let mut refused = None;
        // Those that ask for reports: their place in the line, and in the unit.
        let mut asking: Vec<(usize, u64)> = Vec::new();
        for (waiting, answer) in self.line.ready().take_while(|(waiting, _)| waiting.id.is_some()) {
            // Another definition holds by now: it is prepared again when it is the first.
            if count > 0 && waiting.is_stale(state) {
                break;
            }
            if unit.len() >= UNIT_MESSAGES_MAX || bytes >= UNIT_BYTES_MAX {
                break;
            }
            match waiting.ready(answer, state, &before, local.wall_ms) {
                None => break,
                Some(Ok(None)) => {}
                Some(Ok(Some((queue, message)))) => {
                    match before.iter_mut().find(|(known, _)| *known == queue) {
                        Some((_, count)) => *count += 1,
                        None => before.push((queue, 1)),
                    }
                    bytes += message.body.len();
                    if waiting.asks {
                        asking.push((usize::try_from(count).unwrap_or(usize::MAX), unit.len() as u64));
                    }
                    unit.push((queue, message));
                }
                Some(Err(refusal)) => {
                    refused = Some(refusal);
                    break;
                }
            }
            count += 1;
        }
        if count == 0 {
            return match refused {
                Some(refusal) => self.refused(front, generation, local, state, link, refusal),
                None => Step::Wait,
            };
        }
        let note = self.numbers.as_ref().map(|numbers| (numbers.note_name.as_str(), numbers.note(count).encode()));
        let note = note.as_ref().map(|(name, value)| (*name, Some(&value[..])));
        let last = unit.last().map(|(queue, _)| *queue);
        let first = state.store.newest().0 + 1;
        match state.store.commit(unit, &[], note.as_slice()) {
            Ok(ticket) => {
                if let Some(queue) = last {
                    state.note_put(queue, state.store.newest(), local.now);
                }
                if let Some(numbers) = &mut self.numbers {
                    numbers.committed += count;
                }
                for (place, id) in asking {
                    if let Some((waiting, _)) = self.line.at(place) {
                        waiting.tell(state, local, MessageId(first + id));
                    }
                }
                for _ in 0..count {
                    let id = self.pop();
                    self.unconfirmed.extend(id.map(|id| (id, None)));
                }
                self.committed += count;
                self.counts.units += 1;
                let (key, through) = (self.place.peer, self.committed);
                let what = Confirmed::Channel { key, generation, link, through };
                local.confirmations.push_back(Confirmation { ticket, what });
                Step::On
            }
            // The journal's trouble, not the message's: there is no other queue for it.
            Err(error) if self.tries < self.definition.message_retries => {
                self.counts.why = Some(store_refusal(&error));
                self.pause(local)
            }
            Err(error) => Step::End(store_refusal(&error)),
        }
    }

    /// The head of the line is dealt with.
    fn pop(&mut self) -> Option<DeliveryId> {
        let (head, _) = self.line.take_front()?;
        self.tries = 0;
        self.counts.messages += 1;
        self.counts.last_message = true;
        if let Some(why) = head.dead {
            self.counts.dead += 1;
            self.counts.why = Some(why);
        }
        head.id
    }

    fn pause(&mut self, local: &mut Local) -> Step {
        self.tries += 1;
        self.pause_for(self.definition.message_retry_interval, local)
    }

    fn pause_for(&mut self, time: Duration, local: &mut Local) -> Step {
        let at = local.now + time;
        self.retry_at = Some(at);
        local.wake_at(at);
        Step::Wait
    }

    /// The head of the line can't be put: it is tried again, then it goes to the dead-letter queue, then the link ends
    /// (inventory C1.20). What the sender has settled can't come again: it is gone. What can be sealed for no queue
    /// here is refused, so that its sender buries it: the messages of others go on.
    fn refused(
        &mut self,
        front: &mut Front,
        generation: u64,
        local: &mut Local,
        state: &mut State,
        link: LinkId,
        refusal: Refusal,
    ) -> Step {
        let Some((head, stage)) = self.line.at(0) else { return Step::Wait };
        if is_starved(stage) {
            // Nothing is wrong with it: it waits, however long that takes.
            return self.pause_for(MEMORY_WAIT, local);
        }
        let (refusal, why) = match &head.dead {
            None if head.may_pass(&refusal) && self.tries < self.definition.message_retries => {
                return self.pause(local);
            }
            None => {
                let way = head.way.clone();
                self.count_refused(way.as_deref(), &refusal, local, state);
                match self.bury(local, state, link, &refusal) {
                    Ok(()) => return Step::On,
                    Err(None) => (refusal, None),
                    Err(Some(why)) => (not_buried(&refusal, &why), Some(why)),
                }
            }
            Some(first) => (not_buried(first, &refusal), Some(refusal)),
        };
        let is_unsealable = self.delivery.seals() && can_t_be_sealed(why.as_ref().unwrap_or(&refusal));
        match self.line.at(0).map(|(head, _)| head.id) {
            None => return Step::Wait,
            Some(Some(id)) if is_unsealable && self.numbers.as_ref().is_some_and(|numbers| numbers.takes_refusals) => {
                return self.give_back(generation, local, state, link, id, refusal);
            }
            Some(Some(_)) if self.numbers.is_some() => return Step::End(refusal),
            Some(Some(id)) => front.answer(link, id, DeliveryState::Rejected(Some(Box::new(refusal.to_amqp())))),
            Some(None) => self.counts.discarded += 1,
        }
        self.line.take_front();
        self.tries = 0;
        self.counts.last_message = true;
        self.counts.why = Some(refusal);
        Step::On
    }

    /// The head of the line goes back to its sender: its number is used, and the note says that it is not here. The
    /// sender hears of it once that is synced.
    fn give_back(
        &mut self,
        generation: u64,
        local: &mut Local,
        state: &mut State,
        link: LinkId,
        id: DeliveryId,
        refusal: Refusal,
    ) -> Step {
        let Some(numbers) = &mut self.numbers else { return Step::End(refusal) };
        let mut note = numbers.note(1);
        note.refused.note(note.sequence, refusal.reason.code);
        let ticket = match state.store.commit(Vec::new(), &[], &[(&numbers.note_name, Some(&note.encode()))]) {
            Ok(ticket) => ticket,
            Err(error) => return Step::End(store_refusal(&error)),
        };
        (numbers.committed, numbers.refused) = (note.sequence, note.refused);
        self.line.take_front();
        self.tries = 0;
        self.counts.refused += 1;
        self.counts.last_message = true;
        self.counts.why = Some(refusal.clone());
        self.unconfirmed.push_back((id, Some(refusal)));
        self.committed += 1;
        let what = Confirmed::Channel { key: self.place.peer, generation, link, through: self.committed };
        local.confirmations.push_back(Confirmation { ticket, what });
        Step::On
    }

    /// A message can't be put where it was to go: by its reason with the queue, by its cause with policy and channel.
    fn count_refused(&mut self, way: Option<&Way>, refusal: &Refusal, local: &Local, state: &mut State) {
        if let Some(way) = way {
            state.use_of(way.route.queue).traffic.reject(refusal.reason.code);
        }
        let Some(cause) = refusal.cause else { return };
        self.delivery.meters.fail(cause);
        if let Some(policy) = way.and_then(|way| way.route.policy.as_ref()) {
            local.manager.accounts.fail(&policy.name, cause);
        }
    }

    /// Sends the head of the line to the dead-letter queue. `None` where there is none to use.
    fn bury(
        &mut self,
        local: &mut Local,
        state: &State,
        link: LinkId,
        refusal: &Refusal,
    ) -> Result<(), Option<Refusal>> {
        let manager = &state.definitions.queue_manager;
        let queue = manager.dead_letter_queue.clone().filter(|_| self.definition.use_dead_letter_queue).ok_or(None)?;
        let own = manager.name.clone();
        let way = Way::find(state, &Destination { queue, manager: own.clone() }).map_err(Some)?;
        let asker = self.asker(link, self.line.slot_at(0).ok_or(None)?);
        let (head, stage) = self.line.at(0).ok_or(None)?;
        let mut message = match stage {
            Stage::Ready(Ok(message)) => message.clone(),
            _ => self.delivery.as_it_came(&head.payload, head.id.is_some(), local.wall_ms),
        };
        let was_for = match &head.way {
            Some(way) => way.destination.clone(),
            None => self.delivery.wanted(&head.payload).unwrap_or(Destination { queue: String::new(), manager: own }),
        };
        let is_whole = Arrival::read(&envelope::payload_of(&message.body), local.wall_ms)
            .is_ok_and(|it| it.check_sections().is_ok());
        let secret = self.delivery.secrecy(state, &was_for, head.way.as_deref()).map(|policy| {
            // What its user might not put there is bound to the dead-letter queue: on its own it opens nowhere.
            let is_good = is_whole && refusal.reason != reason::NOT_AUTHORIZED && policy.sealed_at == SealedAt::Any;
            let bound_to = if is_good { was_for.to_string() } else { way.destination.to_string() };
            Secret { policy, bound_to }
        });
        if !is_whole && secret.is_some() {
            // What can't be read can't be sealed as it is: it becomes the data of a message.
            message.body = envelope::wrapped(&envelope::payload_of(&message.body));
        }
        let label = Label::undelivered(refusal, &was_for.queue, &was_for.manager, local.wall_ms);
        let labelled = envelope::labelled(&envelope::payload_of(&message.body), &label, Was::from(&message));
        let prepared = self.delivery.bury(local, state, asker, Arc::new(way), labelled, secret).map_err(Some)?;
        self.line.begin_again(0, |head, _| {
            (head.way, head._held) = (prepared.way, prepared.held);
            head.dead = Some(refusal.clone());
            prepared.stage
        });
        Ok(())
    }

    /// STOP CHANNEL(QUIESCE): whether all that has come is dealt with.
    fn stopped(&self) -> Option<Refusal> {
        self.stop.clone().filter(|_| self.line.is_empty() && self.unconfirmed.is_empty())
    }
}

impl Waiting {
    /// Begins what is to be done with the message before it is put. While it is `starved`, it waits for memory behind
    /// those before it.
    fn prepare(
        &mut self,
        delivery: &mut Delivery,
        starved: &mut bool,
        local: &mut Local,
        state: &State,
        asker: Asker,
    ) -> Stage {
        self._held = None;
        if *starved {
            return Stage::Ready(Err(Refusal::new(reason::STORAGE_NOT_AVAILABLE, "messages before it wait")));
        }
        let Prepared { way, stage, held, asks } = delivery.prepare(local, state, asker, &self.payload);
        (self.way, self._held, self.asks) = (way, held, asks);
        *starved = is_starved(&stage);
        stage
    }

    /// Whether definitions have changed since it was prepared: policy, queue or alias may be others.
    fn is_stale(&self, state: &State) -> bool {
        let other = |way: &Arc<Way>| way.route.generation != state.generation;
        self.dead.is_none() && self.way.as_ref().is_some_and(other)
    }

    /// Whether a refusal may be another one a little later: queues empty, keys come back. What is no message stays
    /// none, a defective seal stays defective, and a policy that can't be satisfied needs the administrator.
    fn may_pass(&self, refusal: &Refusal) -> bool {
        !self.defective && refusal.reason != reason::MD_ERROR && !can_t_be_sealed(refusal)
    }

    /// Wakes those who wait for the queue that the message is on: its own, one on the way, or the dead-letter queue.
    fn tell(&self, state: &mut State, local: &Local, id: MessageId) {
        match &self.dead {
            Some(why) => reports::undeliverable(state, &local.moment(), id, why),
            None => {
                let is_remote = self.way.as_ref().is_some_and(|way| way.route.transmission.is_some());
                reports::arrived(state, &local.moment(), id, is_remote, None);
            }
        }
    }

    /// The message for its queue, where the queue takes it behind `before`; nothing where it has expired.
    #[allow(clippy::type_complexity, reason = "ready or not, refused or not, expired or not")]
    fn ready(
        &self,
        answer: &Result<Message, Refusal>,
        state: &State,
        before: &[(QueueId, usize)],
        wall_ms: u64,
    ) -> Option<Result<Option<(QueueId, Message)>, Refusal>> {
        let message = match answer {
            Ok(message) => message,
            Err(refusal) => return Some(Err(refusal.clone())),
        };
        let way = self.way.as_ref()?;
        if self.dead.is_none() && message.expires_at_ms.is_some_and(|at| at <= wall_ms) {
            return Some(Ok(None));
        }
        if !way.route.put_enabled {
            let detail = format!("{} has PUT(DISABLED)", way.route.queue_name);
            return Some(Err(Refusal::new(reason::PUT_INHIBITED, detail)));
        }
        let queue = way.route.queue;
        let mut message = way.dressed(message.clone());
        if self.dead.is_some() {
            // What waits for an operator does not expire meanwhile.
            message.expires_at_ms = None;
        }
        let ahead = before.iter().find(|(known, _)| *known == queue).map_or(0, |(_, count)| *count);
        Some(match state.store.admits(queue, &message, ahead) {
            Ok(()) => Ok(Some((queue, message))),
            Err(error) => Err(named(store_refusal(&error), &way.route.queue_name)),
        })
    }
}

/// Whether a message found no memory to be sealed in.
fn is_starved(stage: &Stage) -> bool {
    matches!(stage, Stage::Ready(Err(refusal)) if refusal.reason == reason::STORAGE_NOT_AVAILABLE)
}

/// Whether a message can't be sealed, and not because keys are away for a while.
fn can_t_be_sealed(refusal: &Refusal) -> bool {
    refusal.reason == reason::SECURITY_ERROR && !refusal.cause.is_some_and(|cause| PASSING.contains(&cause))
}

fn named(refusal: Refusal, queue: &str) -> Refusal {
    Refusal { detail: format!("{queue}: {}", refusal.detail), ..refusal }
}

fn not_buried(first: &Refusal, why: &Refusal) -> Refusal {
    Refusal { detail: format!("{}; dead-letter queue: {why}", first.detail), ..first.clone() }
}

/// What was committed up to `through` is synced: the partner hears of it.
pub(crate) fn confirmed(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, through: u64) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    if matches!(receiving.phase, Phase::Greeting { .. }) {
        return answer(peer, local, state, link);
    }
    while receiving.confirmed < through {
        let Some((id, refusal)) = receiving.unconfirmed.pop_front() else { break };
        receiving.confirmed += 1;
        let outcome = match refusal {
            None => DeliveryState::Accepted,
            Some(refusal) => DeliveryState::Rejected(Some(Box::new(refusal.to_amqp()))),
        };
        peer.front.answer(link, id, outcome);
        if let Some(numbers) = &mut receiving.numbers {
            numbers.confirmed += 1;
        }
    }
    receiving.show(peer.transport.traffic, local, state);
    match receiving.stopped() {
        Some(refusal) => end(peer, local, state, link, refusal),
        None => replenish(peer, link),
    }
}

/// Answers the attach of a partner of ours: all that it is told is synced.
fn answer(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    if !receiving.owns(state) {
        let why = replaced_by(&receiving.instance.channel);
        return end(peer, local, state, link, why);
    }
    let Phase::Greeting { reply, agreed } = std::mem::replace(&mut receiving.phase, Phase::Disagreeing) else { return };
    peer.front.accept_link(link, *reply);
    if agreed {
        receiving.phase = Phase::Flowing;
        running(peer, local, state, link);
        replenish(peer, link);
        return;
    }
    let InstanceId { channel, partner } = &receiving.instance;
    let here = receiving.numbers.as_ref().map_or(0, |numbers| numbers.committed);
    if state.peer_lines.may_write(local.now) {
        crate::warning!(
            channel,
            partner,
            "channel {channel} from {partner}: its numbers do not go on from {here}: RESET CHANNEL is needed"
        );
    }
}

/// Brings a link's credit back to full, when half of it is used up.
fn replenish(peer: &mut Peer, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    if !matches!(receiving.phase, Phase::Flowing) || receiving.stop.is_some() || !receiving.has_room() {
        return;
    }
    let by_bytes = u32::try_from(CREDIT_BYTES / receiving.message_bytes.max(1)).unwrap_or(u32::MAX);
    let full = receiving.credit_max.min(by_bytes).max(1);
    let held = u32::try_from(receiving.line.len() + receiving.unconfirmed.len()).unwrap_or(u32::MAX);
    if held.saturating_add(peer.front.credit(link)) <= full / 2 {
        peer.front.set_credit(link, full - held);
    }
}

/// STOP CHANNEL on this connection's receiving links: at once, or when what has come is on its queues.
pub(crate) fn stop(peer: &mut Peer, local: &mut Local, state: &mut State, force: bool) {
    for link in links(peer) {
        let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { continue };
        let detail = format!("{}: STOP CHANNEL", receiving.instance.channel);
        let refusal = Refusal { cause: Some("stopped"), ..Refusal::new(reason::CHANNEL_NOT_AVAILABLE, detail) };
        if let Some(instance) = state.channels.get_mut(&receiving.instance) {
            instance.status.stop_requested = true;
        }
        receiving.stop = Some(refusal.clone());
        let done = force || !matches!(receiving.phase, Phase::Flowing) || receiving.stopped().is_some();
        receiving.show(peer.transport.traffic, local, state);
        if done {
            end(peer, local, state, link, refusal);
        } else {
            peer.front.set_credit(link, 0);
        }
    }
}

/// A younger connection has taken the channel over.
pub(crate) fn replaced(peer: &mut Peer, local: &mut Local, state: &mut State, why: &Refusal) {
    for link in links(peer) {
        let Some(Link::Receiving(receiving)) = peer.links.get(&link) else { continue };
        if !receiving.owns(state) {
            end(peer, local, state, link, why.clone());
        }
    }
}

fn links(peer: &Peer) -> Vec<LinkId> {
    let receiving = |(link, what): (&LinkId, &Link)| matches!(what, Link::Receiving(_)).then_some(*link);
    peer.links.iter().filter_map(receiving).collect()
}

/// Ends a link with a reason.
fn end(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, refusal: Refusal) {
    if let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) {
        receiving.ended = Some(refusal.clone());
    }
    ending::detach(peer, local, state, link, &refusal);
}

#[cfg(test)]
pub(crate) mod tests;
