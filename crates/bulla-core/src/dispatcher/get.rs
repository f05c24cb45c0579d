//! The get journey: link credit → queue (locked under the delivery) → [open] → transfer →
//! disposition → removed (journal).

use super::consumer::{
    Away, Consumer, Fault, LinkOpener, OUTSTANDING_MANY, Opening, RESCAN_EVERY, RESCAN_MANY_EVERY, Stage,
};
use super::consumers::{Looked, Seat};
use super::ending;
use super::local::{Confirmation, Confirmed, Local, Removal};
use super::passed_over::Why;
use super::peer::{Link, Login, Peer, Place};
use super::returns::{fail, give_back, is_passing, quarantine, reject, rejected_to, stay};
use super::sealing::OpeningKeys;
use super::unit_of_work;

use crate::accounting::Cost;
use crate::adapter::{Asker, Finished, Outcome as Done, Work};
use crate::catalog::status::Deed;
use crate::envelope::{self, Arrival, Readable};
use crate::front::outcome::MessageOutcome;
use crate::front::{Front, LinkId, UnitId};
use crate::limits::UserId;
use crate::manager::{State, Stays, Stuck};
use crate::maps::HashMap;
use crate::outgoing::Outgoing;
use crate::reason::Refusal;
use crate::reports;
use crate::sign_in::verdict::Identity;
use crate::wall_clock::from_wall_ms;
use bulla_amqp::Payload;
use bulla_device::role::{self, Role};
use bulla_queue::{Found, Keys, Look, MessageId, ReadError, Ticket};
use bulla_seal::policy::{OnDefect, Quality};
use bulla_seal::{Moments, OpenError, Opened, Opener, Outcome, Policy, Step, Tally, Verified};
use std::sync::Arc;

/// Confidential messages up to this many bytes are opened on the dispatcher when their key is cached:
/// waking an adapter costs more than the cipher does.
const OPEN_INLINE_BYTES_MAX: usize = 64 << 10;

/// Hot path, once per message that a client gets: the next message of its queue, if the link takes one.
pub fn deliver_next(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) -> Looked {
    let Peer { place: Place { key, generation }, front, links, login, turns, units, .. } = peer;
    let Login { identity, user, .. } = login;
    let (front, Some(Link::Consumer(consumer))) = (&mut **front, links.get_mut(&link)) else { return Looked::Gone };
    if let Err(refusal) = consumer.look_up_again(state) {
        ending::detach(peer, local, state, link, &refusal);
        return Looked::Gone;
    }
    if !front.can_send(link) {
        if front.credit(link) == 0 {
            return Looked::NoCredit;
        }
        turns.output_full = true;
        return Looked::Blocked;
    }
    if let Err(refusal) = consumer.may_acquire(local, state) {
        ending::detach(peer, local, state, link, &refusal);
        return Looked::Gone;
    }
    if consumer.waits_to_end() {
        local.serving.rescan.insert(consumer.route.queue);
        return Looked::Blocked;
    }
    let opening = consumer.opener.line.len();
    let is_opening_enough = opening > 0 && (consumer.opener.line.is_full() || opening >= front.credit(link) as usize);
    if is_opening_enough || consumer.has_enough(*user, local, state) {
        return Looked::Blocked;
    }
    if !state.store.may_send(consumer.route.queue) {
        return Looked::Blocked;
    }
    let locked = match lock(consumer, local, state) {
        Ok(locked) => locked,
        Err(looked) => return looked,
    };
    let stored = match read(consumer, local, state, &locked) {
        Ok(stored) => stored,
        Err(looked) => return looked,
    };
    let payload = match Outgoing::as_stored(stored, &consumer.route, consumer.opens_itself) {
        Ok(message) => {
            let sent = Delivering { consumer, front, staged_gets: &mut units.staged_gets, user: *user, link }
                .send(local, state, &locked, message);
            let Err(refusal) = sent else { return Looked::Sent };
            ending::detach(peer, local, state, link, &refusal);
            return Looked::Gone;
        }
        Err(payload) => payload,
    };
    let held = local.manager.workers.adapters.hold(consumer.opener.who.number(), payload.len().saturating_mul(2));
    let (Ok(room), Ok(held)) = (consumer.opener.line.room(), held) else {
        // No memory to open it in: it stays, and is tried again at the next tick.
        if !consumer.browses() {
            state.store.release(locked.id, false);
        }
        local.serving.rescan.insert(consumer.route.queue);
        return Looked::Blocked;
    };
    let slot = room.slot();
    let asker = Asker { dispatcher: local.index, peer: *key, generation: *generation, link, slot };
    let opens = Opens { asker, identity, put_at_ms: locked.put_at_ms };
    let stage = open(consumer, opens, local, state, &payload);
    consumer.opener.line.join(room, Opening { locked, _held: held }, payload.len(), stage);
    deliver_opened(peer, local, state, link);
    Looked::Sent
}

/// The next message for a link, locked unless it browses.
fn lock(consumer: &mut Consumer, local: &mut Local, state: &mut State) -> Result<Found, Looked> {
    if !consumer.browses() {
        look_again_at_resealed(consumer, state);
    }
    let locked = match &mut consumer.selection {
        _ if !consumer.resumes.first.is_empty() => {
            let id = consumer.resumes.first.pop_front();
            consumer.resumes.taken = id;
            return id.and_then(|id| state.store.find(id)).map(|(_, found)| found).ok_or(Looked::Sent);
        }
        _ if consumer.resumes.only => return Err(Looked::Nothing),
        None => next(consumer, local, state),
        Some(selection) => {
            match selection.next(&consumer.search.passed_over, &mut local.serving.looks, state, local.wall_ms) {
                Look::Found(found) => Some(*found),
                Look::End => None,
                Look::Unfinished | Look::Away => return Err(Looked::Blocked),
            }
        }
    };
    locked.ok_or(if consumer.takes_next() { Looked::Empty } else { Looked::Nothing })
}

/// What was passed over for others may have been sealed anew for this reader. One compare as a rule.
fn look_again_at_resealed(consumer: &mut Consumer, state: &mut State) {
    let resealed = state.use_of(consumer.route.queue).resealed;
    if consumer.search.resealed != resealed {
        consumer.search.passed_over.forget_others();
        (consumer.search.resealed, consumer.search.cursor) = (resealed, None);
    }
}

/// The bytes of a locked message.
fn read(consumer: &mut Consumer, local: &mut Local, state: &mut State, locked: &Found) -> Result<Payload, Looked> {
    match state.store.body(locked.id) {
        Ok(body) => Ok(envelope::into_payload(body)),
        Err(ReadError::Away { .. }) => {
            // Its queue is ready again when it is there; until then it and all behind it keep their places.
            consumer.wait_for(state, locked);
            Err(Looked::Blocked)
        }
        Err(error) if is_passing(&error) => {
            // The message may be well: it comes back when it can be read. A browser passes over it.
            let queue = &consumer.route.queue_name;
            if consumer.browses() {
                if local.manager.told.peer_lines.may_write(local.now) {
                    crate::warning!(queue, "{queue}: not shown to a browser: {error}");
                }
                return Err(Looked::Sent);
            }
            stay(queue, state, Stuck { id: locked.id, what: Stays::Return }, &error.to_string());
            // Those behind it can hardly be read either: they keep their places until the next tick.
            local.serving.rescan.insert(consumer.route.queue);
            Err(Looked::Blocked)
        }
        Err(error) => {
            // The message is damaged on disk: it is reported and stays, locked, for `journal check`.
            crate::alarm!(queue = consumer.route.queue_name, "{}: {error}", consumer.route.queue_name);
            Err(Looked::Sent)
        }
    }
}

/// The next message for this link, locked unless it browses.
fn next(consumer: &mut Consumer, local: &mut Local, state: &mut State) -> Option<Found> {
    let queue = consumer.route.queue;
    if consumer.browses() {
        let found = state.store.browse_next(queue, consumer.search.cursor, local.wall_ms)?;
        consumer.search.cursor = Some(found.place);
        return Some(found);
    }
    if consumer.takes_next() {
        return state.store.lock_next(queue, None, local.wall_ms);
    }
    if let Some(found) = next_of_mine(consumer, local, state) {
        return Some(found);
    }
    // Something may have become available before the cursor since: a higher priority, a message synced late, one
    // that another reader gave back. A look at everything again has its price, so not at every arrival;
    // a drain is to hear of all that is there.
    let arrivals = state.use_of(queue).arrivals;
    if consumer.search.arrivals == arrivals {
        return None;
    }
    if local.now < consumer.search.rescan_at && !consumer.draining {
        local.serving.rescan.insert(queue);
        return None;
    }
    consumer.search.passed_over.forget_gone(|id| state.store.put_at_ms(id).is_some());
    let every = if consumer.search.passed_over.is_full() { RESCAN_MANY_EVERY } else { RESCAN_EVERY };
    (consumer.search.arrivals, consumer.search.cursor, consumer.search.rescan_at) = (arrivals, None, local.now + every);
    next_of_mine(consumer, local, state)
}

/// The next message behind the cursor that is not known to be for others.
fn next_of_mine(consumer: &mut Consumer, local: &Local, state: &mut State) -> Option<Found> {
    let queue = consumer.route.queue;
    loop {
        let found = state.store.browse_next(queue, consumer.search.cursor, local.wall_ms)?;
        if !consumer.search.passed_over.contains(found.id) {
            return state.store.lock_next(queue, consumer.search.cursor, local.wall_ms);
        }
        consumer.search.cursor = Some(found.place);
    }
}

/// A link that is sent a message, and what of its connection that needs.
struct Delivering<'a> {
    consumer: &'a mut Consumer,
    front: &'a mut Front,
    staged_gets: &'a mut HashMap<(LinkId, MessageId), (UnitId, usize)>,
    user: Option<UserId>,
    link: LinkId,
}

impl Delivering<'_> {
    /// Sends a message as it is to go out; it stays locked until the client has settled it.
    ///
    /// # Errors
    /// It is longer than the client takes, who has nothing to settle: its link is to end. The message is where it was,
    /// for others to get.
    fn send(self, local: &mut Local, state: &mut State, locked: &Found, message: Outgoing) -> Result<(), Refusal> {
        let Self { consumer, front, staged_gets, user, link } = self;
        let message = message.with_delivery_count(locked.delivery_count);
        let (settled, queue, bytes) = (consumer.presettled, consumer.route.queue, message.bytes());
        if let Err(refusal) = consumer.takes(bytes) {
            if !consumer.browses() {
                state.store.release(locked.id, false);
                local.serve_everywhere(queue, state);
            }
            return if consumer.has_to_settle() { Ok(()) } else { Err(refusal) };
        }
        let unit = match consumer.acquires {
            None => None,
            Some(unit) => match local.units.may_acquire(unit, queue, state.definitions.queue_manager.max_uncommitted) {
                None => None,
                Some(Ok(())) => Some(unit),
                // The link ends when the next message is looked for.
                Some(Err(_)) => {
                    state.store.release(locked.id, false);
                    return Ok(());
                }
            },
        };
        let sent = front.send(link, locked.id.0, message, settled, unit);
        if consumer.browses() {
            state.use_of(queue).traffic.browses += u64::from(sent);
        } else if !sent {
            // The client took its credit back while the message was being opened.
            state.store.release(locked.id, false);
        } else if let Some(unit) = unit {
            if let Some(place) = local.units.acquired(unit, locked.id, link, &consumer.route, settled) {
                staged_gets.insert((link, locked.id), (unit, place));
            }
            if !settled {
                consumer.note_delivered(user, state, locked.id, bytes);
            }
        } else if settled {
            // At most once, as the client asked: gone when sent. A removal that fails leaves it locked until the
            // restart.
            state.note_got(queue, locked.id, local.wall_ms);
            let got = reports::about_to_be_got(state, locked.id, local.wall_ms, usize::MAX);
            match state.store.acknowledge(locked.id) {
                Ok(_) => reports::delivered(state, &local.moment(), got),
                Err(error) => {
                    crate::warning!(queue = consumer.route.queue_name, "{}: {error}", consumer.route.queue_name)
                }
            }
            local.freed(queue, state);
            local.flush_soon();
        } else {
            consumer.deliveries.outstanding.insert(locked.id);
            consumer.note_delivered(user, state, locked.id, bytes);
        }
        Ok(())
    }
}

/// Who has a message opened, where the answer goes, and when the message was put.
struct Opens<'a> {
    asker: Asker,
    identity: &'a Identity,
    /// Milliseconds since 1970.
    put_at_ms: u64,
}

/// Starts to open a message, or says at once what it is.
fn open(consumer: &mut Consumer, opens: Opens<'_>, local: &Local, state: &State, payload: &Payload) -> Stage {
    let _protection = role::enter(Role::Opening);
    let Some(policy) = &consumer.route.policy.clone() else {
        return Stage::Ready(Err(Fault::Later {
            cause: "internal",
            detail: "a policy went while it was asked for".into(),
        }));
    };
    let arrival = match Arrival::read(payload, local.wall_ms) {
        Ok(arrival) => arrival,
        Err(refusal) => return Stage::Ready(Err(Fault::defective("malformed", refusal.detail))),
    };
    if !arrival.claims_seal() {
        return Stage::Ready(clear(policy, &arrival, local));
    }
    match open_sealed(policy, consumer, opens, local, state, arrival) {
        Ok(stage) => stage,
        Err(refusal) => Stage::Ready(Err(Fault::Later {
            cause: refusal.cause.unwrap_or("key-unavailable"),
            detail: refusal.detail,
        })),
    }
}

/// A message on a protected queue that does not say that it is sealed.
fn clear(policy: &Policy, arrival: &Arrival, local: &Local) -> Result<Readable, Fault> {
    match Opener::tolerate(policy, arrival.clear_content()) {
        Ok(verified) => {
            local.manager.counts.accounts.note(&policy.name, Deed::Tolerated, &Cost::default());
            Ok(arrival.tolerated(verified))
        }
        Err(OpenError::NotSealed) => {
            Err(Fault::defective(policy.cause_of_clear(), "a clear message on a protected queue"))
        }
        Err(error) => Err(Fault::defective(error.cause(), error.to_string())),
    }
}

fn open_sealed(
    policy: &Arc<Policy>,
    consumer: &mut Consumer,
    Opens { asker, identity, put_at_ms }: Opens<'_>,
    local: &Local,
    state: &State,
    arrival: Arrival,
) -> Result<Stage, Refusal> {
    let ring = local.ring(identity)?;
    let expect = arrival.expect(state.destinations(&consumer.route, policy, arrival.labelled_queue()));
    let der = match arrival.sealed_body() {
        Ok(der) => der,
        Err(refusal) => return Ok(Stage::Ready(Err(Fault::defective("malformed", refusal.detail)))),
    };
    let (moments, bytes) = (Moments { put_at: from_wall_ms(put_at_ms), now: local.wall() }, der.len());
    let at_once = bytes <= OPEN_INLINE_BYTES_MAX && policy.quality() == Quality::Confidentiality;
    let (manager, policy) = (local.manager.clone(), policy.clone());
    let tally = Tally::new();
    let (counted, under) = (tally.clone(), policy.clone());
    let open = move || {
        manager.sealing.opener.open_counting(&policy, &ring, der.clone(), expect.clone(), moments, counted.clone())
    };
    let work = if at_once {
        match open() {
            Ok(Step::Done(opened)) => {
                let cost = tally.effort().into();
                count_use(&mut consumer.opener.keys, local, identity, Some(&opened), &cost);
                return Ok(Stage::Ready(readable(local, &under, &arrival, opened, &cost)));
            }
            Err(error) => {
                let cost = tally.effort().into();
                count_use(&mut consumer.opener.keys, local, identity, None, &cost);
                return Ok(Stage::Ready(Err(fault(local, &under, &error, &cost))));
            }
            Ok(step) => Work::GoOnOpening(step, Arc::new(open)),
        }
    } else {
        Work::Open(Arc::new(open))
    };
    local.manager.workers.adapters.submit(asker, &consumer.opener.who, work, tally, None);
    Ok(Stage::Away(Away(Box::new(arrival), under)))
}

/// Counts the use of the reader's key.
fn count_use(
    keys: &mut OpeningKeys,
    local: &Local,
    identity: &Identity,
    opened: Option<&Verified<Opened>>,
    cost: &Cost,
) {
    let user = identity.user.as_deref().unwrap_or_default();
    keys.note(&local.manager, user, opened.map(Verified::get), cost, || local.ring(identity).ok());
}

/// The message as its reader gets it.
fn readable(
    local: &Local,
    policy: &Policy,
    arrival: &Arrival,
    opened: Verified<Opened>,
    cost: &Cost,
) -> Result<Readable, Fault> {
    local.manager.counts.accounts.note(&policy.name, Deed::Opened, cost);
    arrival.opened(opened).map_err(|refusal| Fault::defective("malformed", refusal.detail))
}

/// Counts what it took to find out; what is wrong is counted when the message has its turn.
fn fault(local: &Local, policy: &Policy, error: &OpenError, cost: &Cost) -> Fault {
    let outcome = error.outcome();
    let deed = if outcome == Outcome::NotMine { Deed::NotMine } else { Deed::FailedToOpen };
    local.manager.counts.accounts.note(&policy.name, deed, cost);
    match outcome {
        Outcome::NotMine => Fault::NotMine,
        Outcome::Defective => Fault::defective(error.cause(), error.to_string()),
        Outcome::Retry => Fault::Later { cause: error.cause(), detail: error.to_string() },
    }
}

/// An adapter is done with a message of this link.
pub fn finished(peer: &mut Peer, local: &mut Local, state: &mut State, done: Finished) {
    let Finished { asker, outcome, cost } = done;
    let Peer { links, login: Login { identity, .. }, .. } = &mut *peer;
    let Some(Link::Consumer(consumer)) = links.get_mut(&asker.link) else { return };
    let LinkOpener { line, keys, .. } = &mut consumer.opener;
    let is_waited_for = line.fill(asker.slot, |_, Away(arrival, policy)| {
        let _protection = role::enter(Role::Opening);
        if let Done::Opened(opened) = &outcome {
            count_use(keys, local, identity, opened.as_ref().ok(), &cost);
        }
        match outcome {
            Done::Opened(Ok(opened)) => readable(local, &policy, &arrival, opened, &cost),
            Done::Opened(Err(error)) => Err(fault(local, &policy, &error, &cost)),
            _ => Err(Fault::Later { cause: "internal", detail: "an adapter answered another question".into() }),
        }
    });
    if is_waited_for {
        deliver_opened(peer, local, state, asker.link);
    }
}

/// Sends what is opened at the head of the link's openings, and deals with what did not open.
pub fn deliver_opened(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) {
    loop {
        let Peer { place: Place { key, generation }, front, links, login: Login { user, .. }, units, .. } = peer;
        let (front, Some(Link::Consumer(consumer))) = (&mut **front, links.get_mut(&link)) else { return };
        let queue = consumer.route.queue;
        if consumer.opener.line.front().is_some() && !state.store.may_send(queue) {
            // They keep their places until they may be sent.
            local.serving.held_back.insert(Seat { key: *key, generation: *generation, link });
            return;
        }
        let Some((Opening { locked, _held }, ready)) = consumer.opener.line.take_front() else { return };
        local.serve(queue);
        if let Err(Fault::Later { cause, .. } | Fault::Defective { cause, .. }) = &ready {
            fail(&consumer.route, &local.manager, cause);
        }
        match ready {
            Ok(readable) => {
                let message = Outgoing::opened(readable);
                let sent = Delivering { consumer, front, staged_gets: &mut units.staged_gets, user: *user, link }
                    .send(local, state, &locked, message);
                if let Err(refusal) = sent {
                    ending::detach(peer, local, state, link, &refusal);
                    return;
                }
            }
            Err(Fault::NotMine) => not_mine(consumer, local, state, locked.id),
            Err(Fault::Later { cause, detail }) => {
                if !consumer.browses() {
                    state.store.release(locked.id, false);
                }
                ending::detach(peer, local, state, link, &Refusal::security(cause, detail));
                return;
            }
            Err(Fault::Defective { cause, detail }) => {
                let detach = match consumer.route.policy.as_ref().map(|policy| policy.on_defect) {
                    Some(OnDefect::Continue) => false,
                    Some(OnDefect::Detach) => true,
                    _ => front.credit(link) <= 1,
                };
                if consumer.browses() {
                    // Looking does not move: a browser passes over what it could not show.
                    if local.manager.told.peer_lines.may_write(local.now) {
                        crate::warning!(
                            queue = consumer.route.queue_name,
                            cause,
                            "{}: not shown to a browser: cause={cause} {detail}",
                            consumer.route.queue_name
                        );
                    }
                    continue;
                }
                let from = consumer.route.clone();
                if !quarantine(&from, &local.moment(), state, locked.id, cause, &detail) {
                    consumer.will_not_have(locked.id, local, state);
                }
                if detach {
                    ending::detach(peer, local, state, link, &Refusal::security(cause, detail));
                    return;
                }
            }
        }
    }
}

/// A message is addressed to others: the link passes it over from now on.
fn not_mine(consumer: &mut Consumer, local: &mut Local, state: &mut State, id: MessageId) {
    consumer.search.passed_over.remember(id, Why::NotMine);
    let browses = consumer.browses();
    match &mut consumer.selection {
        _ if browses => {}
        Some(selection) => {
            selection.give_back(state, id);
            if selection.give_up_group(state, id) {
                local.serve_everywhere(consumer.route.queue, state);
            }
        }
        None => state.store.release(id, false),
    }
    state.use_of(consumer.route.queue).not_mine += 1;
}

/// What a client has said of a delivery.
pub struct Settling {
    pub(crate) link: LinkId,
    pub(crate) token: u64,
    pub(crate) outcome: Option<MessageOutcome>,
    /// The unit of work with which that is done.
    pub(crate) unit: Option<UnitId>,
    /// The client has forgotten the delivery.
    pub(crate) settled: bool,
}

/// The client has said what became of a delivery.
pub fn settled(peer: &mut Peer, local: &mut Local, state: &mut State, said: Settling) {
    let Settling { link, token, outcome, unit, settled } = said;
    if let Some(unit) = unit {
        let said = unit_of_work::Said { link, id: MessageId(token), outcome, settled };
        return unit_of_work::retire(peer, local, state, unit, said);
    }
    let Some(Link::Consumer(consumer)) = peer.links.get_mut(&link) else { return };
    let id = MessageId(token);
    let mut applied = Applied::default();
    if let Some(failures) = consumer.deliveries.take(id) {
        match apply(consumer, peer.login.user, local, state, (id, failures), outcome.as_ref()) {
            Some(done) => applied = done,
            None => return,
        }
    } else if !consumer.browses() {
        // In a unit of work, or done already and settled when that is synced: another outcome changes nothing.
        unit_of_work::again(peer, local, state, link, id, None, settled);
        return;
    }
    if applied.has_room {
        peer.serve_all(local);
    }
    if !settled {
        let state_out = outcome.unwrap_or(MessageOutcome::Released);
        match applied.ticket {
            Some(ticket) if !state.store.is_synced(ticket) => local.journaling.confirmations.push(Confirmation {
                ticket,
                what: Confirmed::Removal(Removal {
                    key: peer.place.key,
                    generation: peer.place.generation,
                    link,
                    token,
                }),
            }),
            _ => peer.front.settle(link, token, state_out),
        }
    }
}

/// What came of an outcome.
#[derive(Default)]
struct Applied {
    /// When the removal is durable, where there is one.
    ticket: Option<Ticket>,
    /// Its user may be sent more again.
    has_room: bool,
}

/// Hot path, once per message that a client settles: what it says becomes of a delivery that is outstanding, and has
/// failed so often. None where that could not be done: it is tried again.
#[inline]
fn apply(
    consumer: &mut Consumer,
    user: Option<UserId>,
    local: &mut Local,
    state: &mut State,
    (id, failures): (MessageId, u32),
    outcome: Option<&MessageOutcome>,
) -> Option<Applied> {
    let queue = consumer.route.queue;
    let mut ticket = None;
    let has_room = consumer.note_settled(user, local, state, id);
    match outcome {
        Some(MessageOutcome::Accepted) => {
            state.note_got(queue, id, local.wall_ms);
            let got = reports::about_to_be_got(state, id, local.wall_ms, usize::MAX);
            match state.store.acknowledge(id) {
                Ok(synced_at) => {
                    ticket = Some(synced_at);
                    reports::delivered(state, &local.moment(), got);
                }
                Err(error) => {
                    stay(&consumer.opened, state, Stuck { id, what: Stays::Remove }, &error.to_string());
                    return None;
                }
            }
        }
        Some(MessageOutcome::Rejected(why)) => {
            let from = consumer.route.clone();
            let to = rejected_to(&from, &local.moment(), state, id, why.as_deref());
            if !reject(&from, local.wall_ms, state, id, to, failures) {
                consumer.will_not_have(id, local, state);
            }
        }
        Some(MessageOutcome::Modified { failed, not_here }) => {
            let failures = failures.max(u32::from(*failed));
            give_back(&consumer.route, local.wall_ms, state, id, failures);
            if *not_here {
                consumer.will_not_have(id, local, state);
            }
        }
        // Settled without an outcome, released, or a state that is none: nothing was said to be done with it.
        _ => give_back(&consumer.route, local.wall_ms, state, id, failures),
    }
    consumer.give_up_groups(local, state);
    local.freed(queue, state);
    local.flush_soon();
    if consumer.deliveries.outstanding.len() >= OUTSTANDING_MANY {
        local.serve(queue);
    }
    Some(Applied { ticket, has_room })
}

/// A client grants credit, or asks for what is there.
pub fn credit(peer: &mut Peer, local: &mut Local, link: LinkId, drain: bool) {
    if let Some(Link::Consumer(consumer)) = peer.links.get_mut(&link) {
        let has_credit = peer.front.credit(link) > 0;
        consumer.draining = drain && has_credit;
        if drain && !has_credit {
            peer.front.drained(link);
        }
        let (queue, takes_next, drains) = (consumer.route.queue, consumer.takes_next(), consumer.draining);
        if let Some(consumers) = local.serving.consumers.get_mut(&queue).filter(|_| has_credit) {
            consumers.has_credit(peer.seat(link), takes_next, drains);
            local.serving.list.add_for_credit(queue);
        }
    } else if let Some(sending) = &peer.channel.sending {
        local.serve(sending.queue);
    }
}

/// After a queue was served: a draining link is told that nothing more is there; one for which all that is
/// there is addressed to others is told so.
pub fn nothing_more(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) {
    let Peer { front, links, login, .. } = peer;
    let Some(Link::Consumer(consumer)) = links.get_mut(&link) else { return };
    if !consumer.opener.line.is_empty() {
        return;
    }
    // Whether all that a selector wants is addressed to others is not known without looking at all of it.
    let may_be_others = consumer.opens() && consumer.selection.is_none() && !consumer.search.passed_over.is_empty();
    let first = may_be_others.then(|| state.store.browse_next(consumer.route.queue, None, local.wall_ms)).flatten();
    let others = first.filter(|first| consumer.search.passed_over.is_others(first.id));
    if let Some(others) = others
        && !consumer.browses()
        && (consumer.draining || front.credit(link) == 1)
    {
        let keys = state.store.needed_keys(others.id).unwrap_or(Keys::Unknown);
        let why = local.manager.stranded().why_not(login.identity.user.as_deref(), &keys);
        let detail = format!("{}: {why}", consumer.route.queue_name);
        ending::detach(peer, local, state, link, &Refusal::security("not-a-recipient", detail));
        return;
    }
    if consumer.draining {
        consumer.draining = false;
        front.drained(link);
    }
}

/// The queue has nothing for links that take whatever comes next: one of them that drains is told so. Whether it is to
/// be told again, because its last messages are still being opened.
pub fn tell_drained(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) -> bool {
    let drains = |peer: &Peer| matches!(peer.links.get(&link), Some(Link::Consumer(consumer)) if consumer.draining);
    if !drains(peer) || peer.front.credit(link) == 0 {
        return false;
    }
    nothing_more(peer, local, state, link);
    drains(peer)
}
