//! The end of a connection on which a channel sends.

use super::{Became, Stage, Way};
use crate::channel::supervisor;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::Peer;
use crate::manager::State;
use crate::reason::{self, Refusal};

/// The connection is gone: what is in doubt stays locked, the rest goes back. `why` is what is known of the end.
pub fn over(peer: &mut Peer, local: &mut Local, state: &mut State, why: Option<String>) {
    let Some(mut sending) = peer.channel.sending.take() else { return };
    sending.opener.who.leave();
    for opening in sending.opener.line.cancel_all() {
        state.store.release(opening.found.id, false);
    }
    for message in sending.batches.open.messages.drain(..) {
        state.store.release(message.id, false);
    }
    if let Way::Plain { waiting, .. } = &mut sending.way {
        if let Some((found, ..)) = waiting.take() {
            state.store.release(found.id, false);
        }
        for message in std::mem::take(&mut sending.numbers.messages) {
            match message.became {
                None => state.store.release(message.id, false),
                Some(Became::Arrived) => sending.remove(message.id, state),
                Some(Became::GivenBack) => {}
            }
        }
    }
    local.channels.senders.remove(&sending.queue);
    let usage = state.use_of(sending.queue);
    usage.sender = None;
    usage.getters = usage.getters.saturating_sub(1);
    local.forget_interest(sending.queue, state);
    sending.report(peer.traffic, state);
    let in_doubt = !sending.numbers.messages.is_empty();
    let why = match std::mem::replace(&mut sending.stage, Stage::Ending(None)) {
        Stage::Failing(refusal) => Some(refusal),
        Stage::Ending(refusal) => refusal,
        Stage::Greeting | Stage::Running | Stage::Quiescing => {
            let detail = why.unwrap_or_else(|| "the connection ended".to_owned());
            Some(Refusal::new(reason::CONNECTION_BROKEN, detail))
        }
    };
    if let Some(instance) = state.outbound.channels.get_mut(&sending.id) {
        instance.status.in_doubt = in_doubt;
        instance.status.substate = "";
    }
    supervisor::ended(&local.moment(), state, &sending.id, Some(sending.place), why);
}
