//! The end of a link on which a channel receives.

use super::{Phase, Receiving};
use crate::catalog::status::ChannelState;
use crate::channel::registry::{InstanceId, PARTNERS_MAX};
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::{Link, Peer};
use crate::events::Event;
use crate::front::LinkId;
use crate::manager::State;
use crate::reason::{self, Refusal};

/// A link is gone: nothing of what is in its line was promised. The last one of its instance ends that.
pub fn forget(mut receiving: Box<Receiving>, peer: &Peer, local: &mut Local, state: &mut State, link: LinkId) {
    receiving.delivery.leave();
    receiving.line.cancel_all().for_each(drop);
    receiving.tell();
    local.channels.receivers.remove(&(peer.place.key, link));
    receiving.show(peer.traffic, local, state);
    if let Some(numbers) = &receiving.numbers {
        state.outbound.channels.leave_numbers(&numbers.note_name, receiving.place);
    }
    let same = |other: &Link| matches!(other, Link::Receiving(other) if other.instance == receiving.instance);
    let mine =
        state.outbound.channels.get(&receiving.instance).is_some_and(|known| known.place == Some(receiving.place));
    if !mine || peer.links.values().any(same) {
        return;
    }
    let broken = peer.ended.broken.as_ref().filter(|_| !peer.front.is_closed());
    let ended_here = matches!(receiving.phase, Phase::Ended(_));
    let reason = match receiving.phase {
        Phase::Ended(why) => Some(why),
        _ => broken.map(|why| Refusal::new(reason::CONNECTION_BROKEN, why.as_str())),
    };
    let InstanceId { channel, partner } = &receiving.instance;
    match &reason {
        _ if !state.notices.peer_lines.may_write(local.now) => {}
        Some(reason) => crate::warning!(channel, partner, "channel {channel} from {partner} has ended: {reason}"),
        None => crate::note!(channel, partner, "channel {channel} from {partner} has ended"),
    }
    state.raise(&Event::channel_ended(channel, partner, reason.as_ref()), local.wall_ms);
    let Some(instance) = state.outbound.channels.get_mut(&receiving.instance) else { return };
    instance.ended(reason.as_ref());
    let inactive = instance.status.state == ChannelState::Inactive;
    let has_numbers = receiving
        .numbers
        .as_ref()
        .is_some_and(|numbers| state.store.note_in(receiving.home, &numbers.note_name).is_some());
    let tells_why = ended_here && state.outbound.channels.of(channel).count() <= PARTNERS_MAX;
    if inactive && !has_numbers && !tells_why && !partner.is_empty() {
        // Partners have whatever names they like: one that is gone and left nothing is not kept.
        state.outbound.channels.remove(&receiving.instance);
    }
}
