//! Units of work: transactions of AMQP part 4.
//!
//! A unit belongs to the connection that declared it and ends with the link to the coordinator on which it was
//! declared. What is put in it is routed, checked and sealed as ever and then *staged*: kept here, on no queue. What is
//! got in it stays locked, and the outcome is kept. A discharge waits for messages of the unit that are being sealed,
//! then everything happens in one [`Store::commit`](bulla_queue::Store::commit), one group of journal records, and is
//! answered when that is synced. Whatever else ends a unit backs it out: nothing was put, and what was got is back in
//! its place with a higher delivery count. A message may also be *acquired* in a unit: it is delivered by the credit of
//! a flow that names the unit, and is no longer its client's where that is backed out.
//!
//! Nothing of a unit is in the journal before its commit, so a restart finds all of it or nothing.

mod commit;
pub mod units;

use super::consumer::OUTSTANDING_MANY;
use super::ending;
use super::local::Local;
use super::peer::{Link, Peer};
use super::producer::Receipt;
use super::publishing::Subscriber;
use super::returns;
use crate::front::link::{Attach, Granted};
use crate::front::outcome::{Failure, MessageOutcome};
use crate::front::{Front, LinkId, UnitAsked, UnitId, UnitStep};
use crate::manager::State;
use crate::maps::HashSet;
use crate::reason::{self, Refusal};
use crate::refusals::store_refusal;
use bulla_queue::{Message, MessageId, QueueId};
use std::time::Duration;
use units::{Answer, Contents, Coordinator, Discharged, StagedGet, StagedPut, Unit, backed_out, limit};

/// Units that a connection may have open; one more is refused with 2024.
pub const UNITS_PER_CONNECTION_MAX: usize = 256;
/// Bytes of messages that a unit may have staged; one more message is refused with 2024. A unit of work is one group of
/// journal records, so this is what the journal must take at once: the longest message there can be fits.
pub const UNIT_BYTES_MAX: usize = 104 << 20;
/// Bytes of staged messages of all units of the queue manager; one more message is refused with 2071.
pub const STAGED_BYTES_MAX: usize = 512 << 20;
/// What a staged message counts beside its bytes.
const STAGED_OVERHEAD_BYTES: usize = 256;
/// Declares and discharges that a coordinator's link may have under way.
const COORDINATOR_CREDIT: u32 = 100;

const _: () = assert!(bulla_queue::MESSAGE_BYTES_MAX as usize + STAGED_OVERHEAD_BYTES <= UNIT_BYTES_MAX);

/// The sub-reason of a unit that took too long.
const AGE: &str = "age";

/// A client attaches a link to the coordinator.
pub fn attached(peer: &mut Peer, attach: &Attach) {
    peer.front.accept_link(attach.link, Granted::default());
    peer.front.set_credit(attach.link, COORDINATOR_CREDIT);
    let coordinator = Coordinator { session: attach.session, takes_rejected: attach.takes_rejected };
    peer.links.insert(attach.link, Link::Coordinator(coordinator));
}

/// A client declares or discharges.
pub fn asked(peer: &mut Peer, local: &mut Local, state: &mut State, asked: UnitAsked) {
    let UnitAsked { link, id, settled, beyond_credit, step } = asked;
    if !matches!(peer.links.get(&link), Some(Link::Coordinator(_))) {
        return;
    }
    let answer = Answer { link, id, settled };
    let credit = peer.front.credit(link);
    if credit <= COORDINATOR_CREDIT / 2 && !beyond_credit {
        peer.front.set_credit(link, COORDINATOR_CREDIT);
    }
    let result = match step {
        _ if beyond_credit => Err(Failure::BeyondCredit("sent to the coordinator beyond the credit granted".into())),
        Err(said) => Err(Failure::Said(said)),
        Ok(UnitStep::Declare) => declare(peer, local, answer).map(Done::Begun),
        Ok(UnitStep::Commit(unit)) => return discharge(peer, local, state, unit, false, answer),
        Ok(UnitStep::BackOut(unit)) => return discharge(peer, local, state, unit, true, answer),
    };
    say(peer, local, state, answer, result);
}

fn declare(peer: &mut Peer, local: &mut Local, answer: Answer) -> Result<UnitId, Failure> {
    if answer.settled {
        let text = "the answer to a declare is the transaction: it can't be settled";
        return Err(Failure::NotAllowed(text.into()));
    }
    if peer.units.open.len() >= UNITS_PER_CONNECTION_MAX {
        return Err(limit("units", format!("{UNITS_PER_CONNECTION_MAX} units of work are open")).into());
    }
    let id = local.units.next_id();
    let unit = Unit {
        key: peer.place.key,
        generation: peer.place.generation,
        coordinator: answer.link,
        declared_at: local.now,
        store: None,
        puts: Vec::new(),
        gets: Vec::new(),
        bytes: 0,
        pending: 0,
        doomed: None,
        discharge: None,
    };
    local.units.open.insert(id, unit);
    peer.units.open.push(id);
    Ok(id)
}

fn discharge(peer: &mut Peer, local: &mut Local, state: &mut State, unit: UnitId, backs_out: bool, answer: Answer) {
    let Some(id) = local.units.of(peer.place.key, peer.place.generation, unit) else {
        return say(peer, local, state, answer, Err(Failure::UnitUnknown));
    };
    if backs_out {
        if let Some(unit) = take(peer, local, id) {
            back_out(peer, local, state, unit);
        }
        return say(peer, local, state, answer, Ok(Done::Ended));
    }
    if let Some(unit) = local.units.open.get_mut(&id) {
        unit.discharge = Some(answer);
    }
    go_on(peer, local, state);
}

/// Ends the units of a connection whose discharge waited for messages that are ready now.
pub fn go_on(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let is_due = |unit: &Unit| unit.discharge.is_some() && unit.pending == 0;
    let due: Vec<UnitId> =
        peer.units.open.iter().copied().filter(|id| local.units.open.get(id).is_some_and(is_due)).collect();
    for id in due {
        let Some(mut unit) = take(peer, local, id) else { continue };
        let Some(answer) = unit.discharge.take() else { continue };
        match unit.doomed.take() {
            None => commit::commit(peer, local, state, unit, answer),
            Some(refusal) => {
                back_out(peer, local, state, unit);
                say(peer, local, state, answer, Err(rolled_back(refusal)));
            }
        }
    }
}

/// The journal has synced a commit.
pub fn confirmed(front: &mut Front, discharged: &Discharged) {
    for (link, token, outcome) in &discharged.deliveries {
        front.settle(*link, *token, outcome.clone());
    }
    if !discharged.answer.settled {
        front.answer(discharged.answer.link, discharged.answer.id, MessageOutcome::Accepted, None);
    }
}

/// What a committed unit does with a message beside removing it. One that was rejected goes `to` there, where it could
/// not go with the commit.
fn conclude(peer: &mut Peer, local: &mut Local, state: &mut State, get: &StagedGet, to: Option<returns::Destination>) {
    let mut pass_over = false;
    match &get.outcome {
        Some(MessageOutcome::Rejected(_)) => {
            pass_over = !returns::reject(&get.from, local.wall_ms, state, get.id, to, get.failures);
        }
        Some(MessageOutcome::Modified { failed, not_here }) => {
            pass_over = *not_here;
            let failures = get.failures.max(u32::from(*failed));
            returns::give_back(&get.from, local.wall_ms, state, get.id, failures);
        }
        _ => returns::give_back(&get.from, local.wall_ms, state, get.id, get.failures),
    }
    if let (true, Some(Link::Consumer(consumer))) = (pass_over, peer.links.get_mut(&get.link)) {
        consumer.will_not_have(get.id, local, state);
    }
    local.freed(get.from.queue, state);
}

/// Undoes a unit: what is staged is dropped, and what was got is back in its place, its delivery counted as failed.
fn back_out(peer: &mut Peer, local: &mut Local, state: &mut State, mut unit: Unit) {
    undo(peer, local, state, unit.take_contents());
    state.unit_totals.counts.backed_out += 1;
}

fn undo(peer: &mut Peer, local: &mut Local, state: &mut State, contents: Contents) {
    let Contents { puts, gets, bytes } = contents;
    unstage(local, state, puts.iter().map(|put| put.queue), bytes);
    let cut: HashSet<LinkId> =
        gets.iter().filter(|get| get.is_acquired && peer.front.is_sending(get.link)).map(|get| get.link).collect();
    for link in cut {
        // What is not sent as a whole yet is not to be sent any more (part 4, section 4.4.3).
        let text = "a unit of work was backed out while messages acquired in it were being sent";
        ending::detach_with(peer, local, state, link, Failure::UnitBackedOut(text.into()));
    }
    for get in gets {
        peer.units.staged_gets.remove(&(get.link, get.id));
        match get.is_acquired {
            true => return_acquired(peer, local, state, &get),
            false => return_delivery(peer, local, state, get),
        }
    }
}

/// What was acquired in a unit that is backed out is on its queue again, and the client's no more.
fn return_acquired(peer: &mut Peer, local: &mut Local, state: &mut State, get: &StagedGet) {
    if let Some(Link::Consumer(consumer)) = peer.links.get_mut(&get.link) {
        if !get.is_said {
            consumer.note_settled(peer.login.user, local, state, get.id);
        }
        if !get.settled {
            peer.front.settle(get.link, get.id.0, MessageOutcome::Released);
        }
    }
    returns::give_back(&get.from, local.wall_ms, state, get.id, get.failures.saturating_add(1));
    if let Some(Link::Consumer(consumer)) = peer.links.get_mut(&get.link) {
        consumer.give_up_groups(local, state);
    }
    local.freed(get.from.queue, state);
    local.flush_soon();
    local.touch(peer.place.key);
}

/// A delivery whose outcome was not applied: the client has it still, where it has not settled (part 4, section 4.4.2).
fn return_delivery(peer: &mut Peer, local: &mut Local, state: &mut State, get: StagedGet) {
    let StagedGet { link, id, from, settled, failures, .. } = get;
    let failures = failures.saturating_add(1);
    match peer.links.get_mut(&link) {
        Some(Link::Consumer(consumer)) if !settled => {
            consumer.deliveries.outstanding.insert(id);
            consumer.note_returned(peer.login.user, state, id);
            consumer.deliveries.backed_out.insert(id, failures);
        }
        _ => {
            returns::give_back(&from, local.wall_ms, state, id, failures);
            local.freed(from.queue, state);
            local.flush_soon();
        }
    }
}

/// Staged messages are put, or dropped: nothing is kept for them any more.
fn unstage(local: &mut Local, state: &mut State, queues: impl Iterator<Item = QueueId>, bytes: usize) {
    state.unit_totals.staged_bytes = state.unit_totals.staged_bytes.saturating_sub(bytes);
    let mut last = None;
    for queue in queues {
        if let Some(usage) = state.uses.get_mut(&queue) {
            usage.granted = usage.granted.saturating_sub(1);
            usage.staged = usage.staged.saturating_sub(1);
        }
        // A subscription's queue may be gone.
        if last.replace(queue) != Some(queue) && state.uses.contains_key(&queue) {
            local.freed(queue, state);
        }
    }
}

/// A message is ready to be put, in a unit: it is kept for the commit.
pub fn stage(
    local: &mut Local,
    state: &mut State,
    id: UnitId,
    receipt: &Receipt,
    queue: QueueId,
    is_remote: bool,
    message: Message,
) -> Result<(), Refusal> {
    let messages_max = state.definitions.queue_manager.max_uncommitted;
    let unit = local.units.open.get_mut(&id).ok_or_else(|| Refusal::new(reason::BACKED_OUT, "the unit is over"))?;
    if let Some(doomed) = &unit.doomed {
        return Err(doomed.clone());
    }
    let bytes = message.body.len().saturating_add(STAGED_OVERHEAD_BYTES);
    unit.admits_store(queue.store())?;
    unit.admits(messages_max)?;
    if unit.bytes.saturating_add(bytes) > UNIT_BYTES_MAX {
        return Err(limit("bytes", format!("the unit of work would be longer than {UNIT_BYTES_MAX} bytes")));
    }
    if state.unit_totals.staged_bytes.saturating_add(bytes) > STAGED_BYTES_MAX {
        let detail =
            format!("{} of {STAGED_BYTES_MAX} bytes for units of work are taken", state.unit_totals.staged_bytes);
        return Err(Refusal::new(reason::STORAGE_NOT_AVAILABLE, detail));
    }
    let before = state.uses.get(&queue).map_or(0, |usage| usage.staged as usize);
    state.store.admits(queue, &message, before).map_err(|error| store_refusal(&error))?;
    let (is_single, asks) = (receipt.is_single, receipt.asks);
    unit.store = Some(queue.store());
    let need = state.unit_totals.needs.staged(queue, &message.keys);
    unit.puts.push(StagedPut { queue, message, is_single, is_remote, asks, need, whose: None });
    unit.bytes += bytes;
    state.unit_totals.staged_bytes += bytes;
    let usage = state.use_of(queue);
    usage.granted = usage.granted.saturating_add(1);
    usage.staged += 1;
    Ok(())
}

/// A publication is ready to be put, in a unit: its copies are kept for the commit, all or none. Each counts against
/// the limits. Whether the queues have room for them is the caller's to have asked.
pub fn stage_copies(
    local: &mut Local,
    state: &mut State,
    id: UnitId,
    receipt: &Receipt,
    copies: Vec<(QueueId, Message, bool, Subscriber)>,
) -> Result<(), Refusal> {
    let messages_max = state.definitions.queue_manager.max_uncommitted;
    let unit = local.units.open.get_mut(&id).ok_or_else(|| Refusal::new(reason::BACKED_OUT, "the unit is over"))?;
    if let Some(doomed) = &unit.doomed {
        return Err(doomed.clone());
    }
    let each = copies.iter().map(|(_, message, ..)| message.body.len().saturating_add(STAGED_OVERHEAD_BYTES));
    let bytes = each.fold(0_usize, usize::saturating_add);
    unit.admits_more(copies.len(), messages_max)?;
    if unit.bytes.saturating_add(bytes) > UNIT_BYTES_MAX {
        return Err(limit("bytes", format!("the unit of work would be longer than {UNIT_BYTES_MAX} bytes")));
    }
    if state.unit_totals.staged_bytes.saturating_add(bytes) > STAGED_BYTES_MAX {
        let detail =
            format!("{} of {STAGED_BYTES_MAX} bytes for units of work are taken", state.unit_totals.staged_bytes);
        return Err(Refusal::new(reason::STORAGE_NOT_AVAILABLE, detail));
    }
    unit.bytes += bytes;
    state.unit_totals.staged_bytes += bytes;
    for (queue, message, is_remote, whose) in copies {
        let (is_single, asks) = (receipt.is_single, receipt.asks);
        let need = state.unit_totals.needs.staged(queue, &message.keys);
        unit.puts.push(StagedPut { queue, message, is_single, is_remote, asks, need, whose: Some(whose) });
        let usage = state.use_of(queue);
        usage.granted = usage.granted.saturating_add(1);
        usage.staged += 1;
    }
    Ok(())
}

/// A delivery had gone with its link, or with its session, when the client said what is to become of it: the unit can't
/// commit without that.
pub fn outcome_lost(peer: &Peer, local: &mut Local, unit: UnitId) {
    if let Some(id) = local.units.of(peer.place.key, peer.place.generation, unit) {
        let gone =
            Refusal::new(reason::BACKED_OUT, "the link of a message got in the unit had ended before its outcome came");
        local.units.doom(id, &gone);
    }
}

/// What a client has said of a delivery in a unit of work.
pub struct Said {
    pub(crate) link: LinkId,
    pub(crate) id: MessageId,
    pub(crate) outcome: Option<MessageOutcome>,
    /// The client has forgotten the delivery.
    pub settled: bool,
}

/// The client has said what is to become of a delivery when its unit commits.
pub fn retire(peer: &mut Peer, local: &mut Local, state: &mut State, named: UnitId, said: Said) {
    let Said { link, id, outcome, settled } = said;
    let Some(unit_id) = local.units.of(peer.place.key, peer.place.generation, named) else {
        // The link gives back all that it has, this one too: whatever the client takes for done, it is not.
        return ending::detach_with(peer, local, state, link, Failure::UnitUnknown);
    };
    let Some(Link::Consumer(consumer)) = peer.links.get_mut(&link) else {
        return outcome_lost(peer, local, named);
    };
    let Some(failures) = consumer.deliveries.take(id) else {
        again(peer, local, state, link, id, Some((unit_id, outcome)), settled);
        return;
    };
    let has_room = consumer.note_settled(peer.login.user, local, state, id);
    let (from, many) = (consumer.route.clone(), consumer.deliveries.outstanding.len() >= OUTSTANDING_MANY);
    if many {
        local.serve(from.queue);
    }
    if has_room {
        peer.serve_all(local);
    }
    let messages_max = state.definitions.queue_manager.max_uncommitted;
    let Some(unit) = local.units.open.get_mut(&unit_id) else { return };
    let get = StagedGet { id, link, from, outcome, failures, settled, is_acquired: false, is_said: true };
    match (unit.admits_store(id.store()).and_then(|()| unit.admits(messages_max)), &unit.doomed) {
        (Ok(()), None) => {
            unit.store = Some(id.store());
            peer.units.staged_gets.insert((link, id), (unit_id, unit.gets.len()));
            unit.gets.push(get);
        }
        (Err(refusal), None) => {
            unit.doomed = Some(backed_out(&refusal));
            return_delivery(peer, local, state, get);
        }
        (_, Some(_)) => return_delivery(peer, local, state, get),
    }
}

/// A delivery that is in a unit already is settled, or its outcome changed. False where it is in none.
pub fn again(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    link: LinkId,
    id: MessageId,
    said: Option<(UnitId, Option<MessageOutcome>)>,
    settled: bool,
) -> bool {
    let Some((unit_id, at)) = peer.units.staged_gets.get(&(link, id)).copied() else { return false };
    let Some(get) = local.units.open.get_mut(&unit_id).and_then(|unit| unit.gets.get_mut(at)) else { return false };
    get.settled |= settled;
    let is_first = get.is_acquired && !get.is_said;
    match said {
        Some((said_in, outcome)) if said_in == unit_id => (get.outcome, get.is_said) = (outcome, true),
        // Its outcome can be part of one unit alone (part 4, section 4.4.2).
        Some((other, _)) => {
            let refusal = Refusal::new(reason::OPTIONS_ERROR, "a delivery's outcome in two units of work");
            local.units.doom(other, &refusal);
            if is_first {
                local.units.doom(unit_id, &refusal);
            }
            return true;
        }
        None if is_first => {
            let text = "the outcome of a delivery outside of the unit of work that it was acquired in";
            local.units.doom(unit_id, &Refusal::new(reason::OPTIONS_ERROR, text));
            return true;
        }
        None => {}
    }
    if let (true, Some(Link::Consumer(consumer))) = (is_first, peer.links.get_mut(&link))
        && consumer.note_settled(peer.login.user, local, state, id)
    {
        peer.serve_all(local);
    }
    true
}

/// A client says in which unit a link's messages are acquired from now on, or in none.
pub fn acquires(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, named: Option<UnitId>) {
    let unit = named.map(|unit| local.units.of(peer.place.key, peer.place.generation, unit));
    match (peer.links.get_mut(&link), unit) {
        (None, _) => {}
        (Some(Link::Consumer(consumer)), None) => consumer.acquires = None,
        (Some(Link::Consumer(consumer)), Some(Some(unit))) if !consumer.browses() => consumer.acquires = Some(unit),
        (Some(Link::Consumer(consumer)), Some(None)) if !consumer.browses() => {
            ending::detach_with(peer, local, state, link, Failure::UnitUnknown);
        }
        (Some(Link::Sending(_)), _) => peer.end("the partner wants a channel's messages in a unit of work"),
        (Some(_), _) => {
            let text = "messages on this link are not acquired, in a unit of work or without one";
            ending::detach_with(peer, local, state, link, Failure::NotOffered(text.into()));
        }
    }
}

/// A coordinator's link ends: what it has declared and not discharged is backed out.
pub fn forget(peer: &mut Peer, local: &mut Local, state: &mut State, coordinator: LinkId) {
    let is_its = |unit: &Unit| unit.coordinator == coordinator;
    let ids: Vec<UnitId> =
        peer.units.open.iter().copied().filter(|id| local.units.open.get(id).is_some_and(is_its)).collect();
    for id in ids {
        if let Some(unit) = take(peer, local, id) {
            back_out(peer, local, state, unit);
        }
    }
}

/// Backs out what is older than MAXUAGE; it stays known until it is discharged, which is answered with the reason.
pub fn tick(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let seconds = state.definitions.queue_manager.max_unit_age;
    if seconds == 0 {
        return;
    }
    let age_max = Duration::from_secs(seconds.into());
    for id in peer.units.open.clone() {
        let now = local.now;
        let is_old = |unit: &&mut Unit| {
            let age = now.saturating_duration_since(unit.declared_at);
            age > age_max && unit.discharge.is_none() && unit.doomed.as_ref().is_none_or(|why| why.cause != Some(AGE))
        };
        let Some(unit) = local.units.open.get_mut(&id).filter(is_old) else { continue };
        let detail = format!("the unit of work is older than {seconds} s (MAXUAGE)");
        unit.doomed = Some(Refusal { cause: Some(AGE), ..Refusal::new(reason::BACKED_OUT, detail) });
        let contents = unit.take_contents();
        let address = peer.address_text();
        crate::warning!("{address}: a unit of work is backed out: it is older than {seconds} s");
        undo(peer, local, state, contents);
        local.touch(peer.place.key);
    }
}

/// Takes a unit out of the books.
fn take(peer: &mut Peer, local: &mut Local, id: UnitId) -> Option<Unit> {
    peer.units.open.retain(|known| *known != id);
    local.units.open.remove(&id)
}

/// What has become of what a client asked of the coordinator.
enum Done {
    /// The unit has begun.
    Begun(UnitId),
    /// It has ended.
    Ended,
}

/// Answers a declare or a discharge. A client that does not take *rejected*, or no answer at all, loses the link.
fn say(peer: &mut Peer, local: &mut Local, state: &mut State, answer: Answer, result: Result<Done, Failure>) {
    let takes_rejected = match peer.links.get(&answer.link) {
        Some(Link::Coordinator(coordinator)) => coordinator.takes_rejected,
        _ => return,
    };
    let Answer { link, id, settled } = answer;
    match result {
        Ok(_) if settled => {}
        Ok(Done::Begun(unit)) => peer.front.declared(link, id, unit),
        Ok(Done::Ended) => peer.front.answer(link, id, MessageOutcome::Accepted, None),
        Err(why) if takes_rejected && !settled => peer.front.answer(link, id, why.rejects(), None),
        Err(why) => ending::detach_with(peer, local, state, link, why),
    }
}

/// What a discharge is answered with.
fn rolled_back(refusal: Refusal) -> Failure {
    match refusal.cause {
        Some(AGE) => Failure::UnitTooOld(refusal),
        _ => Failure::Refused(refusal),
    }
}
