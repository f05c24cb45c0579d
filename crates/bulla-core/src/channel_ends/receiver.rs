//! The receiving end of a channel: from the attach of a sending end to messages on their queues.
//!
//! A partner that is ours numbers the deliveries that it does not settle. What is ready at the head of a link's line is
//! committed in one unit of work with the note of the last number, and confirmed once that is synced; so a message is
//! on its queue if and only if its number is in the note. What the sender settles (NPMSPEED(FAST)) is put as it is
//! ready. A partner that is not ours has no numbers: what it has not heard of it sends again.

pub mod attaching;
mod putting;

use crate::adapter::{Finished, Outcome};
use crate::catalog::status::ChannelState;
use crate::channel::registry::InstanceId;
use crate::dispatcher::ending;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::{Link, Peer};
use crate::dispatcher::receiving::{Phase, Receiving, Waiting};
use crate::dispatcher::sealing::line_full;
use crate::events::Event;
use crate::front::outcome::MessageOutcome;
use crate::front::{self, LinkId};
use crate::manager::State;
use crate::reason::{self, Refusal};
use bulla_seal::Outcome as Verdict;
use putting::Turn;

fn replaced_by(channel: &str) -> Refusal {
    let detail = format!("{channel}: the partner has connected again");
    Refusal { cause: Some("replaced"), ..Refusal::new(reason::CONNECTION_BROKEN, detail) }
}

/// Messages may come.
fn running(peer: &mut Peer, local: &Local, state: &mut State, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    let Some(instance) = state.outbound.channels.get_mut(&receiving.instance) else { return };
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
pub fn arrived(peer: &mut Peer, local: &mut Local, state: &mut State, delivery: front::Delivery) {
    let link = delivery.link;
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    if !receiving.takes(delivery.beyond_credit) {
        let detail = format!("{}: a message came beyond the credit granted", receiving.instance.channel);
        return end(peer, local, state, link, Refusal::new(reason::Q_FULL, detail));
    }
    let len = delivery.payload.len();
    receiving.room.note(len);
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
        local.channels.receiving.push((receiving.place.peer, link));
    }
}

/// An adapter is done with a message of this link.
pub fn finished(peer: &mut Peer, local: &mut Local, done: Finished) {
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
pub fn wake(peer: &mut Peer, local: &mut Local, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    match receiving.head.retry_at {
        Some(at) if at <= local.now => look_at(receiving, local, link),
        Some(at) => local.wake_at(at),
        None => {}
    }
}

/// Once a turn: what is ready at the head of the line goes on its queues.
pub fn turn(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    receiving.listed = false;
    let refusal = if receiving.owns(state) {
        receiving.advance(&mut Turn { front: &mut *peer.front, local, state, link })
    } else {
        Some(replaced_by(&receiving.instance.channel))
    };
    let refusal = refusal.or_else(|| receiving.stopped());
    receiving.show(peer.traffic, local, state);
    match refusal {
        Some(refusal) => end(peer, local, state, link, refusal),
        None => replenish(peer, link),
    }
}

/// What was committed up to `through` is synced: the partner hears of it.
pub fn confirmed(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, through: u64) {
    let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { return };
    if matches!(receiving.phase, Phase::Greeting { .. }) {
        return answer(peer, local, state, link);
    }
    while receiving.confirming.confirmed < through {
        let Some((id, refusal)) = receiving.confirming.waiting.pop_front() else { break };
        receiving.confirming.confirmed += 1;
        let outcome = match refusal {
            None => MessageOutcome::Accepted,
            Some(refusal) => MessageOutcome::refused(refusal),
        };
        peer.front.answer(link, id, outcome, None);
        if let Some(numbers) = &mut receiving.numbers {
            numbers.confirmed += 1;
        }
    }
    receiving.show(peer.traffic, local, state);
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
    let Phase::Greeting { answer, agreed } = std::mem::replace(&mut receiving.phase, Phase::Disagreeing) else {
        return;
    };
    if let Some(way) = peer.front.way_out() {
        way.accept_channel(link, answer.properties, answer.message_bytes_max);
    }
    if agreed {
        receiving.phase = Phase::Flowing;
        running(peer, local, state, link);
        replenish(peer, link);
        return;
    }
    let InstanceId { channel, partner } = &receiving.instance;
    let here = receiving.numbers.as_ref().map_or(0, |numbers| numbers.committed);
    if state.notices.peer_lines.may_write(local.now) {
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
    if !matches!(receiving.phase, Phase::Flowing) || !receiving.has_room() {
        return;
    }
    let full = receiving.room.full();
    let held = u32::try_from(receiving.line.len() + receiving.confirming.waiting.len()).unwrap_or(u32::MAX);
    if held.saturating_add(peer.front.credit(link)) <= full / 2 {
        peer.front.set_credit(link, full - held);
    }
}

/// STOP CHANNEL on this connection's receiving links: at once, or when what has come is on its queues.
pub fn stop(peer: &mut Peer, local: &mut Local, state: &mut State, force: bool) {
    for link in links(peer) {
        let Some(Link::Receiving(receiving)) = peer.links.get_mut(&link) else { continue };
        let detail = format!("{}: STOP CHANNEL", receiving.instance.channel);
        let refusal = Refusal { cause: Some("stopped"), ..Refusal::new(reason::CHANNEL_NOT_AVAILABLE, detail) };
        if let Some(instance) = state.outbound.channels.get_mut(&receiving.instance) {
            instance.status.stop_requested = true;
        }
        if matches!(receiving.phase, Phase::Flowing) {
            receiving.phase = Phase::Stopping(refusal.clone());
        }
        let waits = matches!(receiving.phase, Phase::Stopping(_)) && receiving.stopped().is_none();
        let done = force || !waits;
        receiving.show(peer.traffic, local, state);
        if done {
            end(peer, local, state, link, refusal);
        } else {
            peer.front.set_credit(link, 0);
        }
    }
}

/// A younger connection has taken the channel over.
pub fn replaced(peer: &mut Peer, local: &mut Local, state: &mut State, why: &Refusal) {
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
        receiving.phase = Phase::Ended(refusal.clone());
    }
    ending::detach(peer, local, state, link, &refusal);
}
