//! Whether a link that a partner wants is a channel's, or that of a broker that is not ours.

use super::receiver::attaching;
use crate::channel::protocol::SenderGreeting;
use crate::dispatcher::attach;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::Peer;
use crate::events::Event;
use crate::front::link::{Attach, ChannelTerms, Put, Wants};
use crate::manager::State;
use crate::reason::Refusal;

/// Attaches a channel's link, or refuses it. False where the link is a client's.
pub fn attached(peer: &mut Peer, local: &mut Local, state: &mut State, attach: &Attach) -> bool {
    let Wants::Put(Put { channel: Some(terms), .. }) = &attach.wants else { return false };
    match channel(peer, local, state, attach, terms) {
        None => return false,
        Some(Ok(())) => {}
        Some(Err(refusal)) => attach::refuse(peer, local, state, attach, &refusal),
    }
    true
}

/// A channel attaches, or a broker that is not ours: then what came of it.
fn channel(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    terms: &ChannelTerms,
) -> Option<Result<(), Refusal>> {
    let greeting = SenderGreeting::from_properties(&terms.properties);
    let foreign = terms.address.as_deref().and_then(attaching::foreign_target);
    let result = match (&greeting, foreign) {
        (Some(greeting), _) => attaching::greeted(peer, local, state, attach, greeting),
        (None, Some(target)) => attaching::foreign(peer, local, state, attach, target),
        (None, None) => return None,
    };
    Some(result.inspect_err(|refusal| {
        let partner = peer.address_text();
        if local.manager.told.peer_lines.may_write(local.now) {
            crate::warning!(
                reason = refusal.reason.code,
                cause = refusal.cause,
                "{partner}: a channel did not start: {refusal}"
            );
        }
        let name = greeting.as_ref().map(|greeting| greeting.channel.as_str());
        let name = name.or(foreign.map(|(channel, _)| channel)).unwrap_or_default();
        let event = Event::channel_ended(name, &partner, Some(refusal));
        if matches!(event, Event::TlsRefused { .. }) {
            state.raise(&event, local.wall_ms);
        }
    }))
}
