//! The sending end of a channel: transmission queue → [open] → batch, noted → link → confirmed → removed.
//!
//! A batch is what one turn took from the transmission queue. Its numbers and messages are noted in the journal, and it
//! goes out when the note is synced; the next batch does not wait for it. What is noted stays locked until the partner
//! has said what became of it, also when the connection goes meanwhile.

pub mod attaching;
mod batch;
mod dead_letter;
mod opening;
mod plain;

use crate::channel::protocol;
use crate::dispatcher::local::Local;
use crate::dispatcher::peer::{ChannelUse, Peer, Place};
use crate::dispatcher::sending::{Became, Numbered, Stage, Way};
use crate::front::LinkId;
use crate::front::outcome::{Failure, MessageOutcome, Said};
use crate::manager::State;
use crate::reason::{self, Refusal};
use batch::{Taken, Turn};
use bulla_queue::MessageId;
pub use opening::finished;
use std::time::Duration;

/// Messages taken from the transmission queue in one turn, before others have theirs.
const TAKEN_PER_TURN: usize = 512;
/// How long messages rest that a partner gave back.
const RELEASED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Hot path, once a turn in which the transmission queue, the journal or the partner had something to say.
pub fn serve(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let Peer { front, links, channel: ChannelUse { sending, .. }, transport, turns, traffic, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    let mut turn = Turn { front: &mut **front, links, local, state };
    sending.retry_at = sending.retry_at.filter(|at| *at > turn.local.now);
    sending.send_noted(&mut turn);
    sending.opened_ones(&mut turn);
    let mut nothing_more = false;
    if sending.stage.is_running() && turn.state.store.may_send(sending.queue) {
        let mut taken = 0;
        while taken < TAKEN_PER_TURN {
            match sending.take_next(&mut turn) {
                Taken::One => taken += 1,
                Taken::Nothing => {
                    nothing_more = true;
                    break;
                }
                Taken::Blocked => {
                    turns.output_full |= sending.main_link().is_none_or(|link| turn.front.credit(link) > 0);
                    break;
                }
            }
        }
        if taken == TAKEN_PER_TURN {
            turn.local.serve(sending.queue);
        }
        if taken > 0 {
            let now = turn.local.now;
            let heartbeat = sending.definition.heartbeat;
            let idle = now.saturating_duration_since(sending.last_activity);
            if !heartbeat.is_zero() && idle >= heartbeat {
                transport.sends_after_heartbeat();
            }
            sending.last_activity = now;
            turn.local.freed(sending.queue, turn.state);
        }
    }
    sending.end_batch(&mut turn, nothing_more);
    if matches!(sending.stage, Stage::Quiescing) && sending.is_idle() {
        sending.stage.end();
        turn.front.close(None);
    }
    sending.report(*traffic, turn.state);
    if let Stage::Failing(why) = &sending.stage {
        let why = why.clone();
        fail(peer, local, why);
    }
}

/// Ends the connection, with a reason that stands in the status.
fn fail(peer: &mut Peer, local: &mut Local, refusal: Refusal) {
    let Some(sending) = peer.channel.sending.as_deref_mut() else { return };
    peer.front.close(Some(refusal.clone().into()));
    sending.stage.fail(refusal);
    sending.stage.end();
    local.channel_work(peer.place.key);
}

/// The partner has said what became of a message.
pub fn outcome(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    link: LinkId,
    number: u64,
    answer: Option<&MessageOutcome>,
    settled: bool,
) {
    let Peer { place: Place { key, .. }, front, channel: ChannelUse { sending, .. }, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    if !settled {
        front.settle(link, number, answer.cloned().unwrap_or(MessageOutcome::Accepted));
    }
    // The first outcome is acted upon at once, and another one changes nothing.
    let Some(message) = sending.numbers.of(number).filter(|message| message.became.is_none()) else { return };
    let id = message.id;
    match answer {
        Some(MessageOutcome::Accepted) => message.became = Some(Became::Arrived),
        Some(MessageOutcome::Released | MessageOutcome::Modified { .. })
            if matches!(sending.way, Way::Plain { .. }) =>
        {
            // It does not take it now: the message goes back, and comes again after a pause.
            let failed = matches!(answer, Some(MessageOutcome::Modified { failed: true, .. }));
            state.store.release(id, failed);
            message.became = Some(Became::GivenBack);
            let again = local.now + RELEASED_AGAIN_AFTER;
            sending.retry_at = Some(again);
            local.serve_at(again, sending.queue);
        }
        Some(MessageOutcome::Rejected(error)) => {
            message.became = Some(Became::GivenBack);
            let reason = match (&sending.way, error.as_deref().and_then(Failure::said).and_then(|said| said.reason)) {
                (Way::Numbered { .. }, Some(code)) => reason::of(code),
                _ => reason::UNEXPECTED_ERROR,
            };
            let detail = error.as_ref().map(ToString::to_string).unwrap_or_default();
            let refusal = Refusal::new(reason, format!("the partner rejects it: {}", protocol::printable(&detail)));
            sending.refused(id, &refusal, local, state);
        }
        other => {
            let detail = format!("the partner does not take message {number}: {other:?}");
            sending.failed(Refusal::new(reason::UNEXPECTED_ERROR, detail));
            local.serve(sending.queue);
        }
    }
    local.channel_work(*key);
}

/// Once a turn: removes what the partner has confirmed. One unit of work, whatever their number.
pub fn confirm(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let Peer { channel: ChannelUse { sending, .. }, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    let numbers = &mut sending.numbers;
    let count = numbers.messages.iter().take_while(|message| message.became.is_some()).count();
    if count > 0 {
        if let Some(sent) = numbers.messages.get(count - 1).and_then(|message| message.sent_at) {
            sending.counts.net_time.note(local.now.saturating_duration_since(sent).as_secs_f64() * 1e6);
        }
        let done: Vec<Numbered> = numbers.messages.drain(..count).collect();
        // What was given back may lie on the queue again.
        let arrived = done.iter().filter(|message| message.became == Some(Became::Arrived));
        let arrived: Vec<MessageId> = arrived.map(|message| message.id).collect();
        let base = numbers.note.base + count as u64;
        for id in &arrived {
            state.note_got(sending.queue, *id, local.wall_ms);
        }
        match sending.way {
            Way::Plain { .. } => {
                numbers.note.base = base;
                for id in arrived {
                    sending.remove(id, state);
                }
            }
            Way::Numbered { .. } => {
                if let Err(refusal) = numbers.settle(state, &arrived, base) {
                    // They are there; what is not removed yet is still noted, and the next start settles it.
                    for message in done.into_iter().rev() {
                        numbers.messages.push_front(message);
                    }
                    return fail(peer, local, refusal);
                }
            }
        }
        while let Some((_, messages)) = sending.numbers.units.front().copied().filter(|(last, _)| *last <= base) {
            sending.numbers.units.pop_front();
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
pub fn detached(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, why: Option<&Said>) {
    let Some(sending) = peer.channel.sending.as_deref_mut() else { return };
    let detail = why.map_or_else(|| "the partner ended the link".to_owned(), said);
    if let Way::Plain { links, waiting, .. } = &mut sending.way {
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

/// What the other end gave as the reason, in words.
pub fn said(why: &Said) -> String {
    protocol::printable(why.text())
}

/// STOP CHANNEL. QUIESCE ends after what is under way, FORCE at once.
pub fn stop(peer: &mut Peer, local: &mut Local, force: bool) {
    let Some(sending) = peer.channel.sending.as_deref_mut() else { return };
    match sending.stage {
        Stage::Running if !force => {
            sending.stage = Stage::Quiescing;
            return local.serve(sending.queue);
        }
        // It ends by itself, and says why.
        Stage::Failing(_) if !force => return local.serve(sending.queue),
        _ => sending.stage.end(),
    }
    peer.front.close(None);
    local.channel_work(peer.place.key);
}

/// At each tick: DISCINT.
pub fn tick(peer: &mut Peer, local: &mut Local, state: &State) {
    let Some(sending) = peer.channel.sending.as_deref_mut() else { return };
    let limit = sending.definition.disconnect_after;
    let over = !limit.is_zero() && local.now.saturating_duration_since(sending.last_activity) >= limit;
    let waits = state.store.status(sending.queue).is_some_and(|status| status.available > 0);
    if over && sending.stage.is_running() && sending.is_idle() && !waits {
        sending.stage.end();
        peer.front.close(None);
        local.touch(peer.place.key);
    }
}

/// How long after its last sign of life a partner is given up: twice the heartbeat, of which it is told one.
pub fn idle_timeout(heartbeat: Duration) -> Option<Duration> {
    (!heartbeat.is_zero()).then(|| heartbeat * 2)
}
