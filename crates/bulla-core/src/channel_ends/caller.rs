//! How a channel gets its connection: a queue manager calls its partner, or is asked by a requester to send.

use super::{receiver, sender};
use crate::catalog::status::ChannelState;
use crate::catalog::{ChannelDefinition, ChannelKind};
use crate::channel::protocol::no_way_out;
use crate::channel::registry::{InstanceId, Place, Wanted};
use crate::channel::supervisor;
use crate::denials;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::{Link, Peer};
use crate::dispatcher::{authority, sole};
use crate::front::client::Introduction;
use crate::front::outcome::Said;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::transport::Protected;
use std::time::Duration;

/// How long a partner may take from the call until the channel runs.
pub const CALL_WITHIN: Duration = Duration::from_secs(20);
/// The partner has said who it is, on a connection that either side began.
pub fn opened(peer: &mut Peer, local: &mut Local, state: &mut State, said: Box<Introduction>) {
    let request = said.requests.clone();
    peer.opened = Some(said);
    if let Err(refusal) = authority::opened(peer, local, state) {
        peer.front.close(Some(refusal.clone().into()));
        return local.touch(peer.place.key);
    }
    sole::answer_open(peer, local, state);
    let result = if peer.channel.calling.is_some() {
        called(peer, local, state)
    } else if let Some(channel) = request {
        requested(peer, local, state, &channel)
    } else {
        Ok(())
    };
    if let Err(refusal) = result {
        hang_up(peer, local, refusal);
    }
}

/// The partner has taken the call.
fn called(peer: &mut Peer, local: &mut Local, state: &mut State) -> Result<(), Refusal> {
    let Some(calling) = &peer.channel.calling else { return Ok(()) };
    let (id, session) = (calling.id.clone(), calling.session);
    let definition = defined(state, &id.channel)?;
    check_tls(peer, state, &id, &definition)?;
    authority::prove_for_ring(peer, local, &id.channel, &definition, None)?;
    let is_bulla = peer.partner().is_bulla;
    match definition.kind {
        ChannelKind::Sender | ChannelKind::Server => {
            sender::attaching::begin(peer, local, state, id, definition, session)
        }
        // The partner, a server channel, attaches.
        ChannelKind::Requester if is_bulla => {
            state.outbound.channels.entry(id).status.state = ChannelState::Requesting;
            Ok(())
        }
        ChannelKind::Requester => {
            receiver::attaching::request(peer, local, state, &id, definition, session)?;
            attached(peer, local, state);
            Ok(())
        }
        ChannelKind::Receiver => Err(Refusal::new(reason::CHANNEL_CONFIG_ERROR, "a receiver makes no calls")),
    }
}

/// The partner has attached: where that was what a requester called for, the call has come to its end.
pub fn attached(peer: &mut Peer, local: &Local, state: &mut State) {
    let Some(calling) = peer.channel.calling.as_deref_mut().filter(|calling| calling.deadline.is_some()) else {
        return;
    };
    if !peer.links.values().any(|link| matches!(link, Link::Receiving(_))) {
        return;
    }
    calling.deadline = None;
    let Some(definition) = state.definitions.channels.get(&calling.id.channel) else { return };
    let instance = state.outbound.channels.entry(calling.id.clone());
    supervisor::refill_retries(instance, definition);
    instance.status.state = ChannelState::Running;
    instance.status.started_ms = Some(local.wall_ms);
}

/// A link has ended: where it was all that a requester called for, so has the call.
pub fn detached(peer: &mut Peer, local: &mut Local, why: Option<&Said>) {
    if peer.links.values().any(|link| matches!(link, Link::Receiving(_))) {
        return;
    }
    let Some(calling) = peer.channel.calling.as_deref_mut().filter(|calling| calling.deadline.is_none()) else {
        return;
    };
    let said = why.map_or_else(|| "the partner ended the link".to_owned(), sender::said);
    calling.failure.get_or_insert_with(|| Refusal::new(reason::CONNECTION_BROKEN, said));
    peer.front.close(None);
    local.touch(peer.place.key);
}

/// A requester asks this queue manager's server channel to send.
fn requested(peer: &mut Peer, local: &mut Local, state: &mut State, channel: &str) -> Result<(), Refusal> {
    let definition = defined(state, channel)?;
    if definition.kind != ChannelKind::Server {
        return Err(Refusal::new(reason::CHANNEL_CONFIG_ERROR, format!("{channel} is no server channel")));
    }
    let id = InstanceId::of(channel);
    check_tls(peer, state, &id, &definition)?;
    let definition = authority::mapped_channel(peer, local, state, channel, definition)?;
    let user = local.manager.channel_user(&definition).to_owned();
    state.check_start(&user, channel).inspect_err(|refusal| {
        let from = peer.address_text();
        denials::tell(&local.manager, local.now, &from, Some(&user), refusal);
    })?;
    supervisor::room(state, None)?;
    let place = Place { dispatcher: local.index, peer: peer.place.key, generation: peer.place.generation };
    let instance = state.outbound.channels.entry(id.clone());
    if instance.is_active() {
        return Err(Refusal::new(reason::OBJECT_IN_USE, format!("{channel} has a connection already")));
    }
    if instance.status.state == ChannelState::Stopped {
        return Err(Refusal::new(reason::CHANNEL_NOT_AVAILABLE, format!("{channel} is stopped")));
    }
    instance.place = Some(place);
    instance.wanted = Wanted::Nothing;
    instance.status.connection = peer.address_text();
    let session = peer.front.way_out().ok_or_else(no_way_out)?.begin();
    let begun = sender::attaching::begin(peer, local, state, id.clone(), definition, session);
    if begun.is_err() && peer.channel.sending.is_none() {
        state.outbound.channels.entry(id).ended(begun.as_ref().err());
    }
    begun
}

/// What the channel's definition asks of the connection's TLS; the partner's names go into the status.
fn check_tls(
    peer: &mut Peer,
    state: &mut State,
    id: &InstanceId,
    definition: &ChannelDefinition,
) -> Result<(), Refusal> {
    let Protected { protocol, cipher_spec, key_group, peer_name, peer_issuer } =
        peer.transport.check_channel(definition)?;
    let status = &mut state.outbound.channels.entry(id.clone()).status;
    (status.security_protocol, status.cipher_spec) = (protocol, cipher_spec);
    (status.key_group, status.peer_name, status.peer_issuer) = (key_group, peer_name, peer_issuer);
    let local = peer.transport.local_address();
    status.local_address = local.map(|address| address.to_string()).unwrap_or_default();
    status.job = format!("{:08X}.{}", std::process::id(), std::thread::current().name().unwrap_or_default());
    Ok(())
}

fn defined(state: &State, channel: &str) -> Result<ChannelDefinition, Refusal> {
    let unknown = || Refusal::new(reason::UNKNOWN_CHANNEL_NAME, format!("there is no channel {channel}"));
    state.definitions.channels.get(channel).cloned().ok_or_else(unknown)
}

/// Ends a connection that does not come to a channel.
fn hang_up(peer: &mut Peer, local: &mut Local, refusal: Refusal) {
    peer.front.close(Some(refusal.clone().into()));
    match &mut peer.channel.calling {
        Some(calling) => calling.failure = Some(refusal),
        None if local.manager.told.peer_lines.may_write(local.now) => {
            crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{}: {refusal}", peer.address_text());
        }
        None => {}
    }
    local.touch(peer.place.key);
}
