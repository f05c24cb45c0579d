//! How a link comes to be one on which a channel receives: a partner attaches, or is asked to send.

use super::{end, replaced_by, replenish, running};
use crate::catalog::names::is_name;
use crate::catalog::status::{ChannelState, ChannelStatus};
use crate::catalog::{ChannelDefinition, MESSAGE_BYTES_MAX};
use crate::channel::ChannelNotice;
use crate::channel::home;
use crate::channel::note::{IN_DOUBT_MAX, PROOF_BYTES_MAX, ReceiverNote, receiver_name, receiver_prefix};
use crate::channel::protocol::{self, ReceiverGreeting, SenderGreeting};
use crate::channel::refused::Refused;
use crate::channel::registry::{InstanceId, PARTNERS_MAX, Place, Wanted};
use crate::channel::transmission::{DESTINATION_BYTES_MAX, Destination};
use crate::dispatcher::authority::mapped_channel;
use crate::dispatcher::local::{Confirmation, Confirmed, Local};
use crate::dispatcher::peer::{Link, Peer};
use crate::dispatcher::receiving::delivery::{Delivery, Way};
use crate::dispatcher::receiving::{Answer, CREDIT_BYTES, Confirming, Counts, Head, Numbers, Phase, Receiving, Room};
use crate::dispatcher::sealing::SealingLine;
use crate::front::client::Introduction;
use crate::front::link::Attach;
use crate::front::{LinkId, SessionId};
use crate::mailbox::Notice;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::refusals::store_refusal;
use crate::transport::Protected;
use bulla_amqp::AttachRequest;
use bulla_amqp::types::SenderSettleMode;
use bulla_queue::{StoreNumber, Ticket};

/// Messages that a link has room for, in batches: what is confirmed, on its way, being committed, and spare.
const CREDIT_BATCHES: u32 = 4;
/// The least and the most of it, in messages: a sender that fills small batches is kept busy, and its note stays small.
const CREDIT_MIN: u32 = 1_000;
const CREDIT_MAX: u32 = IN_DOUBT_MAX as u32;
/// Credit of a link whose messages may be sealed first: they wait in memory for that.
const CREDIT_PROTECTED: u32 = 512;
/// Bytes of messages that a link's line takes. A connection with [`CREDIT_BYTES`] in a line is not read; what one turn
/// has read before that joins: a message that may be long, and short ones behind it.
const LINE_BYTES_MAX: usize = 256 << 20;
const _: () = assert!(LINE_BYTES_MAX > CREDIT_BYTES + MESSAGE_BYTES_MAX as usize + (16 << 20));
/// What a message is taken to be long before any came, in bytes.
const MESSAGE_BYTES_ASSUMED: usize = 64 << 10;
/// Bytes that a transmission header may add to a message of MAXMSGL.
const HEADER_BYTES_MAX: u64 = 2 * DESTINATION_BYTES_MAX as u64;
/// Separates channel and queue in the target of a partner that is not ours: neither name may hold it.
const FOREIGN_TARGET: &str = "::";
/// Names that partners with one proof may have on one channel: each leaves a note, with the proof in it.
const NAMES_OF_ONE_PROOF_MAX: usize = 16;
/// What a partner is told of the store here where it is another than its own: whose store it is proves something.
pub const OTHER_STORE: [u8; 16] = [0xff; 16];
/// Longest text of a partner's own that is kept, in bytes; the rest of its container's name, say, is not shown.
pub const PARTNER_BYTES_MAX: usize = 128;
/// Connections of one container, a partner that is not ours, that may use a channel at the same time.
const CONTAINER_CONNECTIONS_MAX: usize = 64;

/// A partner of ours attaches the sending end of a channel. It is answered once all that was committed before is
/// synced.
pub fn greeted(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    greeting: &SenderGreeting,
) -> Result<(), Refusal> {
    let definition = definition(state, &greeting.channel)?;
    let tls = peer.transport.check_channel(&definition)?;
    let definition = mapped_channel(peer, local, state, &greeting.channel, definition)?;
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    check(greeting, &definition)?;
    let home = home::of(state, &greeting.channel, &definition)?;
    let place = place(peer, local);
    let proof = proof(peer, &tls.peer_name, &tls.peer_issuer);
    let note_name = receiver_name(&greeting.channel, &greeting.manager);
    let known = known(state, (&definition, home), greeting, &note_name, (&proof, &tls.peer_issuer), place)?;
    let own = InstanceId::of(&greeting.channel);
    let requested = state.outbound.channels.get(&own).is_some_and(|instance| instance.place == Some(place));
    // A requester that began has an instance of its own.
    let instance = if requested { own } else { InstanceId::with(&greeting.channel, &greeting.manager) };
    claim(peer, local, state, &instance, place, false)?;

    let (note, ticket) = take_up(state, home, greeting, &note_name, known, &proof)?;
    if let Some(old) = state.outbound.channels.take_numbers(&note_name, place) {
        tell_replaced(local, old, &greeting.channel);
    }
    let of_this_store = belongs(&note, greeting);
    let takes_refusals = peer.partner().takes_refusals;
    if of_this_store && !takes_refusals {
        check_refused(&note, greeting)?;
    }
    let in_reach = note.sequence.checked_sub(greeting.sequence).is_some_and(|ahead| ahead <= greeting.in_doubt.into());
    let answer = answer(local, state, (&definition, home), greeting, &note);
    let numbers = Numbers::new(note, note_name, proof, greeting, takes_refusals);
    let batch_size = greeting.batch_size.min(definition.batch_size);
    let most = greeting.message_bytes_max.min(answer.message_bytes_max);
    let status = ChannelStatus {
        remote_manager: greeting.manager.clone(),
        batch_size,
        max_message_bytes: most,
        non_persistent_fast: greeting.non_persistent_fast,
        exactly_once: true,
        ..status(peer, local, &definition, tls)
    };
    begin(state, &instance, place, status);
    let message_bytes_max = most.saturating_add(HEADER_BYTES_MAX);
    let answer = Box::new(Answer { properties: answer.to_properties(), message_bytes_max });
    let phase = Phase::Greeting { answer, agreed: of_this_store && in_reach };
    let receiving = Receiving {
        room: room(&definition, batch_size),
        phase,
        numbers: Some(numbers),
        ..receiving(peer, local, attach.session, instance, (definition, home), None)
    };
    add(peer, local, attach.link, receiving);
    let confirmed =
        Confirmed::Channel { key: peer.place.key, generation: peer.place.generation, link: attach.link, through: 0 };
    local.journaling.confirmations.push(Confirmation { ticket, what: confirmed });
    Ok(())
}

/// Whether a partner's greeting is one that this channel can go on from.
fn check(greeting: &SenderGreeting, definition: &ChannelDefinition) -> Result<(), Refusal> {
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
    Ok(())
}

/// Whether none of the messages that a partner has in doubt was refused here: one whose version does not know of that
/// would take them for messages that have arrived, and remove them.
fn check_refused(note: &ReceiverNote, greeting: &SenderGreeting) -> Result<(), Refusal> {
    let in_doubt = note.refused.above(greeting.sequence).count();
    if in_doubt > 0 {
        let detail = format!("{in_doubt} of its messages were refused here, and its version does not know of that");
        return Err(not_agreed(&greeting.channel, "refusals", detail));
    }
    Ok(())
}

/// Where this end stands, as the partner is told.
fn answer(
    local: &Local,
    state: &State,
    (definition, home): (&ChannelDefinition, StoreNumber),
    greeting: &SenderGreeting,
    note: &ReceiverNote,
) -> ReceiverGreeting {
    let of_this_store = belongs(note, greeting);
    ReceiverGreeting {
        manager: local.manager.channel_manager(definition).to_owned(),
        store: if of_this_store { note.store } else { OTHER_STORE },
        sequence: note.sequence,
        sequence_wrap: definition.sequence_wrap,
        batch_size: definition.batch_size,
        message_bytes_max: message_bytes_max(state, definition),
        mark: protocol::mark_of(state.store.identity_of(home).unwrap_or_default(), &greeting.channel),
        refused: if of_this_store { note.refused.clone() } else { Refused::default() },
    }
}

/// A requester has reached a partner that is not ours: it takes from SOURCE there, at least once, and puts on TARGET
/// here.
pub fn request(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    id: &InstanceId,
    definition: ChannelDefinition,
    session: SessionId,
) -> Result<(), Refusal> {
    let tls = peer.transport.check_channel(&definition)?;
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    let missing = |what: &str| {
        let detail = format!("{}: the partner is not Bulla, and the channel has no {what}", id.channel);
        Refusal::new(reason::CHANNEL_CONFIG_ERROR, detail)
    };
    let source = definition.source.clone().ok_or_else(|| missing("SOURCE"))?;
    let queue = definition.target.clone().ok_or_else(|| missing("TARGET"))?;
    let target = Destination { queue, manager: state.definitions.queue_manager.name.clone() };
    let home = home::of(state, &id.channel, &definition)?;
    Way::find(state, &target)?;
    let most = message_bytes_max(state, &definition);
    let status = ChannelStatus {
        batch_size: definition.batch_size,
        max_message_bytes: most,
        non_persistent_fast: definition.non_persistent_fast,
        ..status(peer, local, &definition, tls)
    };
    begin(state, id, place(peer, local), status);
    let request = AttachRequest {
        snd_settle_mode: SenderSettleMode::Mixed,
        max_message_size: most,
        ..AttachRequest::receiver(id.channel.clone(), source)
    };
    let link = peer.front.way_out().ok_or_else(protocol::no_way_out)?.attach(session, request);
    let receiving = receiving(peer, local, session, id.clone(), (definition, home), Some(target));
    add(peer, local, link, receiving);
    running(peer, local, state, link);
    replenish(peer, link);
    Ok(())
}

/// How a partner has proved who it is: by its certificate, or by a strong sign-in. Empty for neither.
pub(in crate::channel_ends) fn proof(peer: &Peer, subject: &str, issuer: &str) -> String {
    match &peer.login.sign_in.identity.user {
        _ if peer.transport.has_verified_certificate() => by_certificate(subject, issuer),
        Some(user) if peer.login.sign_in.identity.ring => kept(format!("user {user}")),
        _ => String::new(),
    }
}

/// Whether who shows a proof may be the partner that is known by another one: both by certificates of one issuer, with
/// subjects that are one partner's by SAMEPEER.
pub(in crate::channel_ends) fn is_one_partner(
    definition: &ChannelDefinition,
    known: &str,
    shown: &str,
    issuer: &str,
) -> bool {
    let is_listed =
        |proof: &&str| definition.same_peers.iter().any(|subject| by_certificate(subject, issuer) == **proof);
    known == shown || [known, shown].iter().all(is_listed)
}

/// The proof by a certificate.
fn by_certificate(subject: &str, issuer: &str) -> String {
    kept(format!("certificate {subject} of {issuer}"))
}

/// A proof as it is kept.
fn kept(said: String) -> String {
    if said.len() <= PROOF_BYTES_MAX {
        return said;
    }
    format!("SHA-256 {}", base16ct::lower::encode_string(&openssl::sha::sha256(said.as_bytes())))
}

/// What is known of the partner that a greeting names, where the one that greets may be that partner. Nothing of an
/// earlier connection is touched.
fn known(
    state: &State,
    (definition, home): (&ChannelDefinition, StoreNumber),
    greeting: &SenderGreeting,
    note_name: &str,
    (proof, issuer): (&str, &str),
    place: Place,
) -> Result<Option<ReceiverNote>, Refusal> {
    let SenderGreeting { channel, manager, .. } = greeting;
    let Some(bytes) = state.store.note_in(home, note_name) else {
        let (mut partners, mut of_this_proof) = (0, 0);
        for (_, note) in state.store.notes_in(home, &receiver_prefix(channel)) {
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
    if !note.proof.is_empty() && !is_one_partner(definition, &note.proof, proof, issuer) {
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
    let is_held = state.outbound.channels.numbers_holder(note_name).is_some_and(|holder| holder != place);
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
    home: StoreNumber,
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
    let ticket = state.store.commit_notes(home, &notes).map_err(|error| store_refusal(&error))?;
    Ok((note, ticket))
}

fn may_reset(note: &ReceiverNote, greeting: &SenderGreeting) -> bool {
    let changes_nothing = note.store == greeting.store && note.sequence == greeting.sequence;
    note.store == [0; 16] || note.reset_allowed || changes_nothing
}

/// The channel and the queue that a partner names that is not ours, where it does.
pub fn foreign_target(address: &str) -> Option<(&str, &str)> {
    address.split_once(FOREIGN_TARGET)
}

/// A partner that is not ours attaches to a receiving channel, with a queue for messages that do not say where to.
pub fn foreign(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    (channel, queue): (&str, &str),
) -> Result<(), Refusal> {
    let definition = definition(state, channel)?;
    let tls = peer.transport.check_channel(&definition)?;
    let definition = mapped_channel(peer, local, state, channel, definition)?;
    peer.renew_keys(state.definitions.key_reset_bytes(&definition));
    let (queue, manager) = match queue.split_once('@') {
        Some((queue, manager)) => (queue, manager),
        None => (queue, state.definitions.queue_manager.name.as_str()),
    };
    let target = Destination { queue: queue.to_owned(), manager: manager.to_owned() };
    let home = home::of(state, channel, &definition)?;
    let container = peer.opened.as_ref().map_or("", |said| &said.container);
    let end = container.floor_char_boundary(PARTNER_BYTES_MAX);
    Way::find(state, &target)?;
    let place = place(peer, local);
    // A container may have several connections: each is an instance of its own.
    let named = |n: usize| match n {
        1 => InstanceId::with(channel, &container[..end]),
        n => InstanceId::with(channel, &format!("{} ({n})", &container[..end])),
    };
    let free = |id: &InstanceId| {
        state.outbound.channels.get(id).and_then(|found| found.place).is_none_or(|other| other == place)
    };
    let instance = (1..=CONTAINER_CONNECTIONS_MAX).map(named).find(free).ok_or_else(|| {
        let detail = format!("{channel}: {CONTAINER_CONNECTIONS_MAX} connections of one container");
        Refusal::new(reason::MAX_CONNS_LIMIT_REACHED, detail)
    })?;
    let status = ChannelStatus {
        batch_size: definition.batch_size,
        max_message_bytes: message_bytes_max(state, &definition),
        non_persistent_fast: definition.non_persistent_fast,
        ..status(peer, local, &definition, tls)
    };
    claim(peer, local, state, &instance, place, true)?;
    begin(state, &instance, place, status);
    let most = message_bytes_max(state, &definition);
    let receiving = receiving(peer, local, attach.session, instance, (definition, home), Some(target));
    peer.front.way_out().ok_or_else(protocol::no_way_out)?.accept_channel(attach.link, Vec::new(), most);
    add(peer, local, attach.link, receiving);
    running(peer, local, state, attach.link);
    replenish(peer, attach.link);
    Ok(())
}

/// A link of a connection is a channel's from now on.
fn add(peer: &mut Peer, local: &mut Local, link: LinkId, receiving: Receiving) {
    peer.channel.is_channel = true;
    peer.links.insert(link, Link::Receiving(Box::new(receiving)));
    local.channels.receivers.insert((peer.place.key, link));
}

/// The receiving end of a link on which messages flow at once.
fn receiving(
    peer: &Peer,
    local: &Local,
    session: SessionId,
    instance: InstanceId,
    (definition, home): (ChannelDefinition, StoreNumber),
    target: Option<Destination>,
) -> Receiving {
    let user = local.manager.channel_user(&definition);
    let who = local.device_asker(peer.place.generation);
    let group = definition.group.clone().map(|group| (group, home));
    Receiving {
        session,
        instance,
        place: place(peer, local),
        home,
        phase: Phase::Flowing,
        delivery: Delivery::new(definition.protection, user, target, group, who),
        numbers: None,
        line: SealingLine::bounded(CREDIT_MAX as usize, LINE_BYTES_MAX),
        confirming: Confirming::default(),
        head: Head::default(),
        starved: false,
        room: room(&definition, definition.batch_size),
        listed: false,
        counts: Counts::default(),
        definition,
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

pub(in crate::channel_ends) fn not_agreed(
    channel: &str,
    cause: &'static str,
    detail: impl std::fmt::Display,
) -> Refusal {
    Refusal { cause: Some(cause), ..Refusal::new(reason::CHANNEL_CONFIG_ERROR, format!("{channel}: {detail}")) }
}

fn place(peer: &Peer, local: &Local) -> Place {
    Place { dispatcher: local.index, peer: peer.place.key, generation: peer.place.generation }
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
        let instance = state.outbound.channels.get(id);
        instance.is_some_and(|instance| instance.place.is_none() && instance.status.state == ChannelState::Stopped)
    };
    if stopped(id) || stopped(&InstanceId::of(&id.channel)) {
        let detail = format!("{}: stopped until START CHANNEL", id.channel);
        return Err(Refusal { cause: Some("stopped"), ..Refusal::new(reason::CHANNEL_NOT_AVAILABLE, detail) });
    }
    let old = state.outbound.channels.get(id).and_then(|instance| instance.place);
    let most = state.definitions.queue_manager.active_channels_max as usize;
    if old.is_none() && state.outbound.channels.active() >= most {
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
    if let Some(mailbox) = local.manager.workers.mailboxes.get(old.dispatcher) {
        mailbox.post(Notice::Channel(notice));
    }
}

fn begin(state: &mut State, id: &InstanceId, place: Place, status: ChannelStatus) {
    let instance = state.outbound.channels.entry(id.clone());
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
fn status(peer: &mut Peer, local: &Local, definition: &ChannelDefinition, tls: Protected) -> ChannelStatus {
    let opened = peer.opened.as_deref();
    let told = |what: fn(&Introduction) -> &String| shown(opened.map(what).cloned().unwrap_or_default());
    ChannelStatus {
        state: ChannelState::Initializing,
        remote_application: opened.map(|said| shown(protocol::printable(&said.container))).unwrap_or_default(),
        remote_product: told(|said| &said.product),
        remote_version: told(|said| &said.version),
        connection: peer.address_text(),
        local_address: peer.transport.local_address().map(|address| address.to_string()).unwrap_or_default(),
        job: format!("{:08X}.dispatcher-{}", std::process::id(), local.index),
        user: local.manager.channel_user(definition).to_owned(),
        started_ms: Some(local.wall_ms),
        heartbeat_seconds: u32::try_from(definition.heartbeat.as_secs()).unwrap_or(u32::MAX),
        security_protocol: tls.protocol,
        cipher_spec: tls.cipher_spec,
        key_group: tls.key_group,
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

/// What a link has room for before any message came.
fn room(definition: &ChannelDefinition, batch_size: u32) -> Room {
    let credit_max = match definition.protection {
        crate::catalog::Protection::AsPolicy => CREDIT_PROTECTED,
        _ => batch_size.saturating_mul(CREDIT_BATCHES).clamp(CREDIT_MIN, CREDIT_MAX),
    };
    Room { message_bytes: MESSAGE_BYTES_ASSUMED, credit_max }
}
