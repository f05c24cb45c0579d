//! The put journey: transfer → message → policy of the name opened → [seal] → queue and journal →
//! synced → disposition.

use super::authority;
use super::ending;
use super::local::{Confirmation, Confirmed, Local};
use super::peer::{Link, Login, Peer, Place};
use super::producer::{Pending, Producer, Receipt};
use super::publish;
use super::sealing::{Sealing, Stage, Task, Treatment, line_full, sealing_memory};
use super::unit_of_work;
use crate::adapter::{Asker, Finished, Held};
use crate::asker::Who;
use crate::authority::{ANONYMOUS, Right};
use crate::channel::transmission::TransmissionHeader;
use crate::envelope::Arrival;
use crate::front::outcome::{Failure, MessageOutcome};
use crate::front::{Delivery, Front, LinkId};
use crate::idempotency::{self, Answer, Claim, Keyed};
use crate::limits::QueueUses;
use crate::manager::{Route, State};
use crate::ordered_line::Slot;
use crate::reason::{self, Reason, Refusal};
use crate::reports;
use crate::sign_in::verdict::Identity;
use bulla_amqp::Payload;
use bulla_queue::{Message, MessageId, QueueId, Ticket};
use bulla_seal::Policy;
use bulla_seal::policy::Quality;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// When a link that waits for no room, and has no credit because too much waits for the disk, asks again.
const BACKLOG_LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// What stands for the queue in a line on a message of a link to none in particular, where it named none that is there.
const RELAY: &str = "an anonymous terminus";
/// The condition of reasons that say that a name leads nowhere.
const NOT_FOUND: &str = "amqp:not-found";
/// Hot path, once per message that a client puts. False, and nothing is done, where the link is none on which a client
/// puts.
pub fn arrived(peer: &mut Peer, local: &mut Local, state: &mut State, delivery: &mut Delivery) -> bool {
    let Peer { place: Place { key, generation }, front, links, login: Login { identity, .. }, .. } = peer;
    let (front, Some(Link::Producer(producer))) = (&mut **front, links.get_mut(&delivery.link)) else { return false };
    let unit = delivery.unit.map(|unit| local.units.of(*key, *generation, unit));
    let receipt = Receipt {
        key: *key,
        generation: *generation,
        link: delivery.link,
        id: delivery.id,
        settled: delivery.settled,
        is_single: producer.opened.is_none(),
        unit: unit.flatten(),
        asks: false,
        user: producer.putter.user,
    };
    if delivery.beyond_credit {
        beyond_credit(peer, local, state, receipt);
        return true;
    }
    let mut found = None;
    let may_go_on = receipt.is_single && !state.groups_elsewhere.is_empty();
    let whole = may_go_on.then(|| delivery.payload.clone());
    let result = if let Some(None) = unit {
        unknown_unit(producer, front, local, state, receipt);
        Ok(())
    } else {
        let payload = std::mem::take(&mut delivery.payload);
        put(Putting { producer, front, identity, receipt }, local, state, payload, &mut found)
    };
    if let (Err(refusal), Some(payload), None) = (&result, whole, &found)
        && let Some(elsewhere) = state.message_elsewhere(refusal, &payload, identity)
        && let Some(forwards) = front.forwards()
        && forwards.forward_message(Delivery { payload, tag: None, ..*delivery }, &elsewhere)
    {
        // The owner answers.
        local.forwarding.push(*key);
    } else if let Err(refusal) = result {
        let name = producer.opened.clone().or_else(|| found.as_ref().map(|route| route.queue_name.clone()));
        if let Some(route) = &found {
            count_refused(local, state, route.queue, route.policy.as_deref(), &refusal);
        }
        // A relay's link ends where its sender would not hear otherwise that an address leads nowhere (Anonymous
        // Terminus, 2.2.2).
        let is_told = !receipt.settled && producer.takes_rejected || receipt.unit.is_some();
        if receipt.is_single && !is_told && is_of_address(&refusal, found.is_some()) {
            authority::tell_of(peer, local, &refusal);
            let why = Failure::OfMessage(refusal, delivery.tag.take());
            ending::detach_with(peer, local, state, receipt.link, why);
            return true;
        }
        let unheard = Unheard { queue: name.as_deref().unwrap_or(RELAY), user: producer.putter.name.as_deref() };
        refuse(Some(front), local, receipt, &refusal, unheard);
        authority::tell_of(peer, local, &refusal);
    } else if producer.credit_wanted() == 0 {
        return true;
    }
    replenish(peer, local, state, receipt.link);
    true
}

/// Whether a relay's message is refused for the address in its `to`, as an attach to that address would be.
fn is_of_address(refusal: &Refusal, is_found: bool) -> bool {
    const OF_ADDRESS: [Reason; 3] = [reason::NOT_AUTHORIZED, reason::Q_TYPE_ERROR, reason::TOPIC_STRING_ERROR];
    let leads_nowhere = refusal.reason.condition == NOT_FOUND || OF_ADDRESS.contains(&refusal.reason);
    !is_found && leads_nowhere || refusal.reason == reason::PUT_INHIBITED
}

/// A client sends more than it may: its link ends (part 2, section 2.8.16), and a unit of work that the message was
/// part of can't commit.
fn beyond_credit(peer: &mut Peer, local: &mut Local, state: &mut State, receipt: Receipt) {
    let Some(Link::Producer(producer)) = peer.links.get(&receipt.link) else { return };
    let text = format!("{}: sent beyond the credit granted", producer.opened.as_deref().unwrap_or(RELAY));
    if let Some(unit) = receipt.unit {
        local.units.doom(unit, &Refusal::new(reason::BACKED_OUT, text.as_str()));
    }
    ending::detach_with(peer, local, state, receipt.link, Failure::BeyondCredit(text));
}

/// A message names a unit of work that this connection does not have.
fn unknown_unit(producer: &mut Producer, front: &mut Front, local: &Local, state: &mut State, receipt: Receipt) {
    take_grant(producer, state);
    if receipt.settled {
        let queue = producer.opened.as_deref().unwrap_or(RELAY);
        Unheard { queue, user: producer.putter.name.as_deref() }.tell(local, &Failure::UnitUnknown);
    } else {
        front.answer(receipt.link, receipt.id, Failure::UnitUnknown.rejects(), None);
    }
}

/// Whose message is gone without a word to its sender, and for where it was.
#[derive(Clone, Copy)]
pub struct Unheard<'a> {
    pub(crate) queue: &'a str,
    pub(crate) user: Option<&'a str>,
}

impl Unheard<'_> {
    /// Writes a line on it, no more than a few a second; each is counted, and told of at the next tick.
    fn tell(self, local: &Local, why: &dyn std::fmt::Display) {
        local.manager.counts.dropped.fetch_add(1, Ordering::Relaxed);
        if local.manager.told.peer_lines.may_write(local.now) {
            let Self { queue, user } = self;
            let user = user.unwrap_or(ANONYMOUS);
            crate::warning!(
                queue,
                user,
                "{queue}: a message of {user} is refused, and gone: its sender had settled it: {why}"
            );
        }
    }
}

/// A put that is under way: the link that the message came on, who puts it, and where the answer goes.
pub struct Putting<'a> {
    pub(crate) producer: &'a mut Producer,
    pub(crate) front: &'a mut Front,
    pub(crate) identity: &'a Identity,
    pub(crate) receipt: Receipt,
}

/// Puts a message, or has it sealed or checked first. `found` is where it goes, once that is known.
fn put(
    mut putting: Putting<'_>,
    local: &mut Local,
    state: &mut State,
    payload: Payload,
    found: &mut Option<Arc<Route>>,
) -> Result<(), Refusal> {
    take_grant(putting.producer, state);
    // An arrival is long: it stays where it was read, unless it has to be sealed or checked.
    let mut read = Arrival::take(payload, local.wall_ms);
    let Ok(arrival) = &mut read else { return read.map(drop) };
    let key = arrival.take_label_off()?;
    arrival.check_sections()?;
    putting.receipt.asks = arrival.asks_for_reports()?;
    if putting.identity.vouched_in.is_some() {
        may_reach(&putting, arrival, state)?;
    }
    if let Some(topic) = publish::topic_of(putting.producer, arrival, state)? {
        return publish::publish(putting, local, state, arrival, (&topic, key.as_deref()));
    }
    let Putting { producer, front, identity, receipt } = putting;
    let who = Who::client(identity.user.as_deref(), local.index, receipt.generation);
    let route = &*found.insert(route(producer, arrival, state, who)?);
    if !producer.any_user && !arrival.is_by(who.user) {
        return Err(authority::no_identity_right(producer));
    }
    let claim = match &key {
        None => None,
        Some(key) => match ask_key(key, receipt, arrival, &state.bound_to(route), who, local, state)? {
            Answer::Do(claim) => Some(claim),
            Answer::Done { ticket, message_id } => {
                front.put_before(receipt.link, receipt.id, message_id.as_deref());
                local.answer_put(Some(front), receipt, ticket, state);
                return Ok(());
            }
        },
    };
    check_reply_to(receipt, arrival, who, state)?;
    let route = &**writable(route)?;
    if producer.opened.is_none() && route.limit.messages_a_second > 0 {
        state.use_of(route.queue).limited.admit(route.limit, &route.queue_name, local.now)?;
    }
    let treatment = treatment(producer, route, arrival)?;
    if let (Treatment::AsIs, true) = (&treatment, producer.pending.is_empty()) {
        let message = arrival.take_message(route.defaults, identity.user.as_deref());
        if let Some(claim) = claim {
            let under = (route.transmission.as_deref(), *claim);
            return local.put_keyed(Some(front), receipt, route.queue, under, message, state);
        }
        return local.put(Some(front), receipt, route.queue, route.transmission.as_deref(), message, state);
    }
    let to = (route, claim);
    put_treated(Putting { producer, front, identity, receipt }, local, state, treatment, to, read?)
}

/// Whether a message that another member forwards stays within its group: where it goes, and where its reports go.
fn may_reach(putting: &Putting<'_>, arrival: &Arrival, state: &State) -> Result<(), Refusal> {
    if putting.producer.opened.is_none()
        && let Some(to) = arrival.to()?
    {
        authority::may_reach(putting.identity, state, &state.address(&to, false))?;
    }
    match arrival.reply_to()?.filter(|_| putting.receipt.asks) {
        Some(reply_to) => authority::may_reach(putting.identity, state, &state.queue_address(&reply_to)),
        None => Ok(()),
    }
}

/// Asks whether a put under an idempotency key is to be done.
pub(super) fn ask_key(
    key: &[u8],
    receipt: Receipt,
    arrival: &Arrival,
    destination: &str,
    who: Who<'_>,
    local: &Local,
    state: &mut State,
) -> Result<Answer, Refusal> {
    if receipt.unit.is_some() {
        return Err(idempotency::unusable("a message that is put in a unit of work has no idempotency key"));
    }
    let keyed = Keyed {
        user: who.user.unwrap_or_default(),
        destination,
        key,
        body: arrival.body_digest(),
        message_id: arrival.message_id(),
    };
    state.keys.ask(keyed, local.wall_ms)
}

/// Forgets idempotency keys whose time is over. The notes of any that the journal does not take now go after a restart.
pub fn expire_keys(local: &mut Local, state: &mut State) {
    if state.keys.is_empty() {
        return;
    }
    for (store, notes) in state.keys.expire(local.wall_ms) {
        let notes: Vec<_> = notes.iter().map(|(name, note)| (name.as_str(), note.as_deref())).collect();
        if state.store.commit_notes(store, &notes).is_ok() {
            local.flush_soon();
        }
    }
}

/// Puts a message that has to be sealed or checked first, or waits for those before it.
fn put_treated(
    Putting { producer, front, identity, receipt }: Putting<'_>,
    local: &mut Local,
    state: &mut State,
    treatment: Treatment,
    (route, claim): (&Route, Option<Box<Claim>>),
    arrival: Arrival,
) -> Result<(), Refusal> {
    let room = producer.pending.room().map_err(line_full)?;
    // The message and its sealed form, until it is on the queue.
    let bytes = arrival.bytes();
    producer.note_length(bytes);
    let held = local
        .manager
        .workers
        .adapters
        .hold(producer.putter.asks_as.number(), bytes.saturating_mul(2))
        .map_err(sealing_memory)?;
    let mut sealing = producer.sealing.take();
    let treating = Treating { producer, identity, receipt, slot: room.slot(), route };
    let stage = treating.begin(treatment, &mut sealing, local, state, arrival, &held);
    producer.sealing = sealing;
    let stage = match stage? {
        Stage::Ready(Ok(message)) if producer.pending.is_empty() => {
            let transmission = route.transmission.as_deref();
            return match claim {
                None => local.put(Some(front), receipt, route.queue, transmission, message, state),
                Some(claim) => {
                    local.put_keyed(Some(front), receipt, route.queue, (transmission, *claim), message, state)
                }
            };
        }
        stage => stage,
    };
    state.use_of(route.queue).granted += 1;
    if let Some(unit) = receipt.unit {
        local.units.begun(unit);
    }
    let pending = Pending {
        receipt,
        queue: route.queue,
        policy: route.policy.clone(),
        transmission: route.transmission.clone(),
        copy: None,
        claim,
        _held: Some(held),
        _counted: receipt.user.and_then(|user| state.clients.users.begins_to_seal(user)),
    };
    producer.pending.join(room, pending, bytes, stage);
    Ok(())
}

/// A message that asks for reports has them put in its user's name: that user must be allowed to put there.
pub fn check_reply_to(receipt: Receipt, arrival: &Arrival, who: Who<'_>, state: &mut State) -> Result<(), Refusal> {
    if receipt.asks
        && let Some(reply_to) = arrival.reply_to()?
    {
        state.check(who, Right::Put, &state.queue_address(&reply_to))?;
    }
    Ok(())
}

pub(crate) fn refuse(
    front: Option<&mut Front>,
    local: &mut Local,
    receipt: Receipt,
    refusal: &Refusal,
    unheard: Unheard<'_>,
) {
    match front {
        Some(front) if !receipt.settled => {
            front.answer(receipt.link, receipt.id, MessageOutcome::refused(refusal.clone()), receipt.unit);
        }
        // Its client hears of it at the discharge.
        _ if receipt.unit.is_some() => receipt.unit.into_iter().for_each(|unit| local.units.doom(unit, refusal)),
        // At most once, as the client asked: only the operator hears of it.
        _ => unheard.tell(local, refusal),
    }
}

/// A put is refused: by its reason with the queue, where that is still there, by its cause with the policy.
pub fn count_refused(local: &Local, state: &mut State, queue: QueueId, policy: Option<&Policy>, refusal: &Refusal) {
    if state.store.attributes(queue).is_some() {
        state.use_of(queue).traffic.reject(refusal.reason.code);
    }
    if let (Some(policy), Some(cause)) = (policy, refusal.cause) {
        local.manager.counts.accounts.fail(&policy.name, cause);
    }
}

/// One promised put has arrived.
fn take_grant(producer: &mut Producer, state: &mut State) {
    if producer.credit.granted == 0 {
        return;
    }
    producer.promise_again(state);
    producer.credit.granted -= 1;
    if let Some(user) = producer.putter.user {
        state.clients.users.put(user);
    }
    if let (Some(route), Some(_)) = (&producer.route, &producer.opened)
        && let Some(usage) = state.uses.get_mut(&route.queue)
    {
        usage.granted = usage.granted.saturating_sub(1);
        usage.limited.put();
    }
}

/// Lets credit lapse that links do not use while others wait for room on the same queue: it can't be taken back, and
/// the link that holds it in a row would keep them waiting for ever.
pub fn tick(peer: &mut Peer, state: &mut State) {
    for link in peer.links.values_mut() {
        let Link::Producer(producer) = link else { continue };
        if producer.credit.granted == 0 || producer.has_lapsed() {
            continue;
        }
        let (Some(route), Some(_)) = (&producer.route, &producer.opened) else { continue };
        let Some(usage) = state.uses.get_mut(&route.queue).filter(|usage| usage.waiters_on != 0) else { continue };
        producer.credit.unused_ticks += 1;
        if producer.has_lapsed() {
            usage.granted = usage.granted.saturating_sub(producer.credit.granted);
        }
    }
}

/// The queue that a message goes to: the link's, looked up again after a change of definitions.
fn route(producer: &mut Producer, arrival: &Arrival, state: &mut State, who: Who<'_>) -> Result<Arc<Route>, Refusal> {
    let Some(opened) = &producer.opened else { return relay_route(producer, arrival, state, who).map(Arc::new) };
    let old = match &producer.route {
        Some(route) if route.generation == state.generations.definitions => return Ok(route.clone()),
        old => old.as_ref().map(|route| route.queue),
    };
    let route = Arc::new(state.put_route(opened)?);
    if let Some(old) = old.filter(|old| *old != route.queue) {
        turn(producer, old, &route, state, who)?;
    }
    producer.route = Some(route.clone());
    Ok(route)
}

/// The name that a link opened leads elsewhere now: what was promised on the `old` queue is promised on the other. The
/// rights are asked for again: those of a dynamic queue's maker end with it, whatever has its name now.
fn turn(producer: &mut Producer, old: QueueId, route: &Route, state: &mut State, who: Who<'_>) -> Result<(), Refusal> {
    let opened = producer.opened.as_deref().unwrap_or_default();
    producer.any_user = state.check(who, Right::Put, opened)?.has(Right::SetIdentity);
    if let Some(usage) = state.uses.get_mut(&old) {
        usage.granted = usage.granted.saturating_sub(producer.promised());
        usage.putters = usage.putters.saturating_sub(1);
    }
    let usage = state.use_of(route.queue);
    usage.granted = usage.granted.saturating_add(producer.promised());
    usage.putters += 1;
    Ok(())
}

fn writable(route: &Arc<Route>) -> Result<&Arc<Route>, Refusal> {
    if route.put_enabled {
        return Ok(route);
    }
    Err(Refusal::new(reason::PUT_INHIBITED, format!("{} has PUT(DISABLED)", route.queue_name)))
}

/// An anonymous relay's message names its queue in `to`.
fn relay_route(producer: &mut Producer, arrival: &Arrival, state: &State, who: Who<'_>) -> Result<Route, Refusal> {
    let to = arrival.to()?.ok_or_else(|| {
        Refusal::new(reason::UNKNOWN_OBJECT_NAME, "a message for an anonymous target names its queue in `to`")
    })?;
    let to = state.address(&to, false);
    authority::relayed(producer, state, who, &to)?;
    state.put_route(&to)
}

/// What a message of this link needs before it is put there.
pub fn treatment(producer: &Producer, route: &Route, arrival: &Arrival) -> Result<Treatment, Refusal> {
    Treatment::of(route.policy.as_ref(), producer.sealed_by_client, &route.queue_name, arrival)
}

/// A message of a link that is sealed or checked before it is put.
pub struct Treating<'a> {
    pub(crate) producer: &'a Producer,
    pub(crate) identity: &'a Identity,
    pub(crate) receipt: Receipt,
    /// Its slot in the link's line.
    pub slot: Slot,
    pub(crate) route: &'a Route,
}

impl Treating<'_> {
    /// Begins what the message needs. `sealing` is what seals for its queue.
    pub fn begin(
        self,
        treatment: Treatment,
        sealing: &mut Option<Sealing>,
        local: &mut Local,
        state: &State,
        arrival: Arrival,
        held: &Held,
    ) -> Result<Stage, Refusal> {
        let Self { producer, identity, receipt: Receipt { key, generation, link, .. }, slot, route } = self;
        let asker = Asker { dispatcher: local.index, peer: key, generation, link, slot };
        let user = identity.user.as_deref();
        let held = Some(held.clone());
        let task =
            Task { asker, who: &producer.putter.asks_as, held, route, bound_to: None, sealing, user, also: None };
        let ring = match treatment {
            Treatment::AsIs => None,
            _ if producer.sealed_by_client => local.ring_without_keys(identity)?,
            _ => Some(local.ring(identity)?),
        };
        task.begin(treatment, local.means(), state, ring, arrival)
    }
}

/// Makes the sealer of a link at attach, so that a policy that can't be satisfied is known before the first put.
pub fn prepare(producer: &mut Producer, local: &Local, state: &State, identity: &Identity) -> Result<(), Refusal> {
    let Some(policy) = producer.route.as_ref().and_then(|route| route.policy.clone()) else { return Ok(()) };
    if producer.sealed_by_client || policy.quality() == Quality::None {
        return Ok(());
    }
    let ring = local.ring(identity)?;
    Sealing::renewed(
        &mut producer.sealing,
        &policy,
        ring,
        &state.definitions.queue_manager.name,
        (&local.manager, local.wall()),
    )
    .map(drop)
}

/// An adapter is done with a message of this link.
pub fn finished(peer: &mut Peer, local: &mut Local, state: &mut State, done: Finished) {
    let asker = done.asker;
    let Some(Link::Producer(producer)) = peer.links.get_mut(&asker.link) else { return };
    note(producer, local, done);
    put_ready(producer, Some(&mut *peer.front), local, state);
    if !peer.units.open.is_empty() {
        unit_of_work::go_on(peer, local, state);
    }
    replenish(peer, local, state, asker.link);
}

/// An adapter is done with a message of a link that is gone: it is put where its sender had settled it.
pub fn finished_late(local: &mut Local, state: &mut State, done: Finished) {
    let asker = done.asker;
    let id = (asker.peer, asker.generation, asker.link);
    let Some(mut producer) = local.producers.departed.remove(&id) else { return };
    note(&mut producer, local, done);
    put_ready(&mut producer, None, local, state);
    if !producer.pending.is_empty() {
        local.producers.departed.insert(id, producer);
    }
}

/// Writes down what an adapter made of a pending message.
fn note(producer: &mut Producer, local: &Local, done: Finished) {
    let Finished { asker, outcome, cost } = done;
    producer.pending.fill(asker.slot, |_, away| away.answered(&local.manager, outcome, &cost, None));
}

/// Puts what is ready at the head of a link's pending messages, in the order they came.
pub fn put_ready(producer: &mut Producer, mut front: Option<&mut Front>, local: &mut Local, state: &mut State) {
    while let Some((Pending { copy, .. }, _)) = producer.pending.front() {
        if copy.is_some() {
            match publish::put_ready(producer, front.as_deref_mut(), local, state) {
                true => continue,
                false => return,
            }
        }
        let Some((pending, ready)) = producer.pending.take_front() else { return };
        let Pending { receipt, queue, policy, transmission, claim, .. } = pending;
        if let Some(unit) = receipt.unit {
            local.units.ended(unit);
        }
        if let Some(usage) = state.uses.get_mut(&queue).filter(|_| front.is_some()) {
            usage.granted = usage.granted.saturating_sub(1);
        }
        let (to, transmission) = (front.as_deref_mut(), transmission.as_deref());
        let put = ready.and_then(|message| match claim {
            None => local.put(to, receipt, queue, transmission, message, state),
            Some(claim) => local.put_keyed(to, receipt, queue, (transmission, *claim), message, state),
        });
        if let Err(refusal) = put {
            count_refused(local, state, queue, policy.as_deref(), &refusal);
            let queue = state.store.name(queue).unwrap_or("a queue that is gone");
            let unheard = Unheard { queue, user: producer.putter.name.as_deref() };
            refuse(front.as_deref_mut(), local, receipt, &refusal, unheard);
        }
    }
}

impl Local {
    /// Puts a finished message; it is confirmed once the journal has synced past it.
    fn put(
        &mut self,
        front: Option<&mut Front>,
        receipt: Receipt,
        queue: QueueId,
        transmission: Option<&TransmissionHeader>,
        message: Message,
        state: &mut State,
    ) -> Result<(), Refusal> {
        let is_remote = transmission.is_some();
        let message = match transmission {
            Some(header) => header.put_on(message),
            None => message,
        };
        if let Some(unit) = receipt.unit {
            unit_of_work::stage(self, state, unit, &receipt, queue, is_remote, message)?;
            if let Some(front) = front.filter(|_| !receipt.settled) {
                front.answer(receipt.link, receipt.id, MessageOutcome::Accepted, receipt.unit);
            }
            return Ok(());
        }
        let bytes = message.body.len();
        let ticket = state.store.put(queue, message).map_err(|error| crate::refusals::store_refusal(&error))?;
        state.wrote(receipt.user, bytes, ticket);
        let newest = state.store.newest(queue.store());
        self.note_put(state, receipt, queue, newest, is_remote);
        self.answer_put(front, receipt, ticket, state);
        Ok(())
    }

    /// Puts a finished message under its idempotency key, which is noted in the same unit where the message is durable.
    fn put_keyed(
        &mut self,
        front: Option<&mut Front>,
        receipt: Receipt,
        queue: QueueId,
        (transmission, claim): (Option<&TransmissionHeader>, Claim),
        message: Message,
        state: &mut State,
    ) -> Result<(), Refusal> {
        let message = match transmission {
            Some(header) => header.put_on(message),
            None => message,
        };
        let bytes = message.body.len();
        let State { keys, store, .. } = state;
        let is_durable = message.persistent && store.attributes(queue).is_some_and(|queue| !queue.temporary);
        let ticket = keys.put(claim, is_durable.then_some(queue.store()), self.wall_ms, |notes| {
            let notes: Vec<_> = notes.iter().map(|(name, note)| (name.as_str(), note.as_deref())).collect();
            store.commit(vec![(queue, message)], &[], &notes).map_err(|error| crate::refusals::store_refusal(&error))
        })?;
        state.wrote(receipt.user, bytes, ticket);
        let newest = state.store.newest(queue.store());
        self.note_put(state, receipt, queue, newest, transmission.is_some());
        self.answer_put(front, receipt, ticket, state);
        Ok(())
    }

    /// A message is on its queue: it is counted, and reported where its sender asks for that.
    pub fn note_put(&self, state: &mut State, receipt: Receipt, queue: QueueId, id: MessageId, is_remote: bool) {
        if is_remote {
            state.probe_queue_time(queue, id);
        }
        state.note_put(queue, id, self.now);
        if receipt.asks {
            reports::arrived(state, &self.moment(), id, is_remote, Some((self.index, receipt.generation)));
        }
        if receipt.is_single {
            state.use_of(queue).traffic.single_puts += 1;
        }
    }

    /// Answers a put: now where the journal has synced past it, otherwise when it has.
    pub fn answer_put(&mut self, front: Option<&mut Front>, receipt: Receipt, ticket: Ticket, state: &State) {
        self.journaling.urgent |= !state.store.is_synced(ticket);
        match front {
            Some(_) if receipt.settled => {}
            Some(front) if state.store.is_synced(ticket) => {
                front.answer(receipt.link, receipt.id, MessageOutcome::Accepted, None);
            }
            Some(_) => self.journaling.confirmations.push(Confirmation { ticket, what: Confirmed::Put(receipt) }),
            None => {}
        }
    }
}

/// Brings a link's credit back to full where its queue has room; otherwise it waits for room.
pub fn replenish(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) {
    let Some(Link::Producer(producer)) = peer.links.get_mut(&link) else { return };
    let wanted = match wanted(producer, local, state) {
        Ok(wanted) => wanted,
        Err(again) => return again.into_iter().for_each(|at| local.pace(at, peer.place.key, link)),
    };
    let user = producer.putter.user;
    let Some(route) = producer.route.as_ref().filter(|_| producer.opened.is_some()) else {
        let wanted = state.promise(None, user, wanted);
        match (wanted, producer.credit.granted) {
            (0, 0) => local.pace(local.now + BACKLOG_LOOK_AGAIN_AFTER, peer.place.key, link),
            (0, _) => {}
            _ => grant(producer, &mut *peer.front, state, link, wanted),
        }
        return;
    };
    let (queue, waits_when_full) = (route.queue, route.waits_when_full);
    let granted = state.promise(Some(route), user, wanted);
    // What fills the queue is this client's own unit of work: it would wait for itself. Its next message is refused.
    let fills_it = || local.units.has_staged(&peer.units.open, queue);
    let granted = if granted == 0 && producer.credit.granted == 0 && !peer.units.open.is_empty() && fills_it() {
        1
    } else {
        granted
    };
    if granted == 0 {
        match producer.credit.granted {
            0 if waits_when_full => local.wait_for_room(queue, peer.place.key, link, state),
            // It hears of a full queue by its messages' being refused.
            0 => local.pace(local.now + BACKLOG_LOOK_AGAIN_AFTER, peer.place.key, link),
            _ => {}
        }
        return;
    }
    producer.promise_again(state);
    let usage = state.use_of(queue);
    usage.granted = usage.granted.saturating_add(granted);
    grant(producer, &mut *peer.front, state, link, granted);
}

/// How much credit a link wants, within the rates of its user and its queue. None where it needs none yet, or the rates
/// leave it none: then with the time to ask again, where it has no credit.
#[inline]
fn wanted(producer: &Producer, local: &Local, state: &mut State) -> Result<u32, Option<Instant>> {
    let mut wanted = producer.credit_wanted();
    if wanted == 0 {
        return Err(None);
    }
    let has_none = producer.credit.granted == 0;
    if let Some(user) = producer.putter.user {
        wanted = state.clients.users.allowed(user, producer.credit.granted, wanted, local.now);
        if wanted == 0 {
            return Err(has_none.then(|| state.clients.users.look_again_at(user, local.now)));
        }
    }
    if let (Some(route), Some(_)) = (&producer.route, &producer.opened)
        && route.limit.messages_a_second > 0
    {
        // Not what it was when the last message came: two rates in turns would begin anew each time.
        let limit = if route.generation == state.generations.definitions {
            route.limit
        } else {
            state.queue_limit(&route.queue_name)
        };
        let usage = state.use_of(route.queue);
        wanted = usage.limited.allowed(limit, wanted, has_none, usage.granted, local.now);
        if wanted == 0 {
            return Err(has_none.then(|| QueueUses::look_again_at(limit, usage.putters, local.now)));
        }
    }
    Ok(wanted)
}

/// Grants a link more credit. Deliveries that wait in the front end are counted in `granted` still, and there no more.
#[inline]
fn grant(producer: &mut Producer, front: &mut Front, state: &mut State, link: LinkId, more: u32) {
    producer.credit.granted += more;
    producer.putter.user.into_iter().for_each(|user| state.clients.users.granted(user, more));
    front.set_credit(link, front.credit(link).saturating_add(more));
}

/// Whether a producer without credit may go on waiting for room there. After a change of definitions its name is looked
/// up again, and leads it to room elsewhere where it leads elsewhere now. Where nothing may be put any more, or the
/// queue is gone, it would wait for ever, so its link ends with the reason.
pub fn may_wait(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId) -> bool {
    let Peer { place: Place { generation, .. }, links, login: Login { identity, .. }, .. } = peer;
    let Some(Link::Producer(producer)) = links.get_mut(&link) else { return false };
    let (Some(opened), Some(known)) = (&producer.opened, &producer.route) else { return true };
    let known_queue = known.queue;
    let is_gone = state.store.attributes(known_queue).is_none();
    if known.generation == state.generations.definitions && !is_gone {
        return true;
    }
    let refusal = {
        let now = state.put_route(opened).map(Arc::new);
        match now.and_then(|now| writable(&now).cloned()) {
            Err(_) if is_gone => super::local::queue_is_gone(opened),
            Ok(now) if now.queue == known_queue => {
                producer.route = Some(now);
                return true;
            }
            Ok(now) => {
                let who = Who::client(identity.user.as_deref(), local.index, *generation);
                match turn(producer, known_queue, &now, state, who) {
                    Ok(()) => {
                        producer.route = Some(now);
                        replenish(peer, local, state, link);
                        local.touch(peer.place.key);
                        return false;
                    }
                    Err(refusal) => {
                        authority::tell_of(peer, local, &refusal);
                        refusal
                    }
                }
            }
            Err(refusal) => refusal,
        }
    };
    ending::detach(peer, local, state, link, &refusal);
    false
}
