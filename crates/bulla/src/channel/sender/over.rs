//! The end of a connection on which a channel sends.

use super::sending::{Stage, Way};
use crate::channel::registry::Place;
use crate::channel::supervisor;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::Peer;
use crate::manager::State;
use crate::reason::{self, Refusal};

/// The connection is gone: what is in doubt stays locked, the rest goes back. `why` is what is known of the end.
pub(crate) fn over(peer: &mut Peer, local: &mut Local, state: &mut State, why: Option<String>) {
    let Some(mut sending) = peer.sending.take() else { return };
    sending.who.leave();
    for opening in sending.opening.cancel_all() {
        state.store.release(opening.found.id, false);
    }
    for message in sending.batch.drain(..) {
        state.store.release(message.id, false);
    }
    if let Way::Plain { waiting, .. } = &mut sending.way {
        if let Some((found, ..)) = waiting.take() {
            state.store.release(found.id, false);
        }
        for message in sending.numbered.drain(..).filter(|message| !message.given_back) {
            if message.confirmed {
                if let Err(error) = state.store.acknowledge(message.id) {
                    crate::warning!(queue = sending.queue_name, "{}: {error}", sending.queue_name);
                }
                continue;
            }
            state.store.release(message.id, false);
        }
    }
    local.senders.remove(&sending.queue);
    let usage = state.use_of(sending.queue);
    usage.sender = None;
    usage.getters = usage.getters.saturating_sub(1);
    local.forget_interest(sending.queue, state);
    sending.report(peer.transport.traffic, state);
    let in_doubt = !sending.numbered.is_empty();
    let ended_in_order = sending.stage == Stage::Ending && sending.failure.is_none();
    let why = match sending.failure.take() {
        Some(refusal) => Some(refusal),
        None if ended_in_order => None,
        None => Some(Refusal::new(reason::CONNECTION_BROKEN, why.unwrap_or_else(|| "the connection ended".to_owned()))),
    };
    if let Some(instance) = state.channels.get_mut(&sending.id) {
        instance.status.in_doubt = in_doubt;
        instance.status.substate = "";
    }
    let place = Place { dispatcher: local.index, peer: peer.key, generation: peer.generation };
    supervisor::ended(&local.moment(), state, &sending.id, Some(place), why);
}
