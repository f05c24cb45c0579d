//! The put journey of a publication: transfer → message → subscriptions that match → for each the policy of its queue →
//! [seal] → all queues and the journal in one step → synced → disposition.

use super::authority;
use super::local::Local;
use super::producer::{CopyOf, Pending, Producer, Receipt};
use super::publishing::{Publishing, Subscriber};
use super::put::{self, Putting, Treating, Unheard};
use super::sealing::{Sealings, Stage, Treatment, line_full, sealing_memory};
use super::unit_of_work;
use crate::adapter::Held;
use crate::asker::Who;
use crate::channel::transmission::TransmissionHeader;
use crate::envelope::Arrival;
use crate::front::Front;
use crate::front::outcome::MessageOutcome;
use crate::idempotency::{Answer, Claim};
use crate::manager::{Route, State};
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use crate::selector::{Facts, Scratch};
use crate::topics::{self, Publisher, Target};
use bulla_queue::{Message, MessageId, QueueId, StoreNumber};
use bulla_seal::Policy;
use std::sync::Arc;

/// What the selectors of all subscriptions may take to judge one publication beside looking at it, in messages looked
/// at: some tens of milliseconds under the queues' lock.
const SELECTION_COST_MAX: usize = 65_536;

/// A publication for one subscription, ready to be put.
struct Copy {
    queue: QueueId,
    policy: Option<Arc<Policy>>,
    transmission: Option<Arc<TransmissionHeader>>,
    message: Result<Message, Refusal>,
    whose: Subscriber,
}

/// The topic that a message is published on; none for one that goes to a queue. A compare for a link to a queue.
pub fn topic_of(producer: &Producer, arrival: &Arrival, state: &State) -> Result<Option<String>, Refusal> {
    let Some(publishing) = &producer.publishing else { return Ok(None) };
    match &publishing.topic {
        Some(topic) => Ok(Some(topic.clone())),
        None => {
            let topic = |to: String| state.address(&to, false).strip_prefix(topics::PREFIX).map(str::to_owned);
            Ok(arrival.to()?.and_then(topic))
        }
    }
}

/// The idempotency key of a publication, and whether that is persistent: then the key is noted in the journal.
type UnderKey = (Box<Claim>, bool);

/// A message has come for a topic: it is put on the queue of each subscription that it matches, or of none. With the
/// topic comes its idempotency key, where it has one.
pub fn publish(
    putting: Putting<'_>,
    local: &mut Local,
    state: &mut State,
    arrival: &Arrival,
    (topic, key): (&str, Option<&[u8]>),
) -> Result<(), Refusal> {
    let Putting { producer, front, identity, receipt } = putting;
    let who = Who::client(identity.user.as_deref(), local.index, receipt.generation);
    let address = || format!("{}{topic}", topics::PREFIX);
    if producer.opened.is_none() {
        authority::relayed(producer, state, who, &address())?;
    }
    if !arrival.is_by(who.user) {
        return Err(authority::no_identity_right(producer));
    }
    let claim = match key {
        None => None,
        Some(key) => match put::ask_key(key, receipt, arrival, &address(), who, local, state)? {
            Answer::Do(claim) => Some(claim),
            Answer::Done { ticket, message_id } => {
                front.put_before(receipt.link, receipt.id, message_id.as_deref());
                local.answer_put(Some(front), receipt, ticket, state);
                return Ok(());
            }
        },
    };
    put::check_reply_to(receipt, arrival, who, state)?;
    let Some(mut publishing) = producer.publishing.take() else { return Ok(()) };
    let mut putting = Putting { producer, front, identity, receipt };
    let result = current(&mut publishing, topic, state)
        .and_then(|()| to_each(&mut putting, local, state, &mut publishing, (arrival, claim)));
    putting.producer.publishing = Some(publishing);
    result
}

/// Looks up again where publications go, where that may have changed.
fn current(publishing: &mut Publishing, topic: &str, state: &State) -> Result<(), Refusal> {
    let holds =
        |known: &Publisher| known.topic == topic && known.is_current(state.generations.definitions, &state.topics);
    if !publishing.publisher.as_ref().is_some_and(holds) {
        publishing.publisher = None;
        publishing.publisher = Some(state.publisher(topic)?);
    }
    Ok(())
}

/// A copy of a publication before it is treated: for which subscription, where to, and what it needs.
type Wanted<'a> = (&'a Target, &'a Arc<Route>, Result<Treatment, Refusal>);

/// The subscriptions that a message goes to, and what each copy needs.
fn wanted<'a>(
    producer: &Producer,
    publisher: &'a Publisher,
    container: Option<&str>,
    scratch: &mut Scratch,
    arrival: &Arrival,
) -> Result<Vec<Wanted<'a>>, Refusal> {
    let persistent = arrival.is_persistent(publisher.defaults);
    let facts = Facts { priority: arrival.priority(publisher.defaults), persistent, delivery_count: 0 };
    let mut cost = 0;
    let mut is_wanted = |target: &&Target| {
        // It is refused below: nothing more is judged.
        if cost > SELECTION_COST_MAX {
            return false;
        }
        let mut selects = |selector: &crate::selector::Selector, scratch: &mut Scratch| {
            let is_wanted = selector.matches(scratch, facts, arrival.chunks(), true) == Some(true);
            cost += scratch.cost();
            is_wanted
        };
        let live = &target.subscription;
        !live.leaves_out(container) && live.selector().is_none_or(|selector| selects(selector, scratch))
    };
    let mut copies: Vec<Wanted<'a>> = Vec::new();
    for target in publisher.targets.iter().filter(&mut is_wanted) {
        match &target.route {
            Ok(route) => copies.push((target, route, put::treatment(producer, route, arrival))),
            Err(refusal) if publisher.needs(target, persistent) => return Err(not_published(refusal)),
            Err(_) => {}
        }
    }
    if cost > SELECTION_COST_MAX {
        let detail =
            format!("the selectors of the subscriptions of {} take too long to judge the message", publisher.topic);
        return Err(Refusal::new(reason::STORAGE_NOT_AVAILABLE, detail));
    }
    Ok(copies)
}

/// Puts a copy for each subscription that wants the message, or has the copies sealed first.
fn to_each(
    putting: &mut Putting<'_>,
    local: &mut Local,
    state: &mut State,
    publishing: &mut Publishing,
    (arrival, mut claim): (&Arrival, Option<Box<Claim>>),
) -> Result<(), Refusal> {
    let Putting { producer, front, identity, receipt } = putting;
    let Publishing { container, publisher: Some(publisher), sealings, scratch, .. } = publishing else {
        return Ok(());
    };
    let persistent = arrival.is_persistent(publisher.defaults);
    let copies = wanted(producer, publisher, container.as_deref(), scratch, arrival)?;
    let goes_as_it_is = |treatment: &Result<Treatment, Refusal>| matches!(treatment, Ok(Treatment::AsIs) | Err(_));
    let is_first = producer.pending.is_empty() || copies.is_empty();
    if is_first && copies.iter().all(|(.., treatment)| goes_as_it_is(treatment)) {
        let ready = copies.into_iter().map(|(target, route, treatment)| Copy {
            queue: route.queue,
            policy: route.policy.clone(),
            transmission: route.transmission.clone(),
            message: treatment.map(|_| arrival.copy(route.defaults, identity.user.as_deref())),
            whose: Subscriber::of(target, publisher, persistent),
        });
        let under = claim.map(|claim| (claim, persistent));
        return put_copies(Some(&mut **front), *receipt, local, state, ready.collect(), under);
    }
    let last = copies.len() - 1;
    let rooms = producer.pending.rooms(copies.len()).map_err(line_full)?;
    for ((at, (target, route, treatment)), room) in copies.into_iter().enumerate().zip(rooms) {
        let treating = Treating { producer, identity, receipt: *receipt, slot: room.slot(), route };
        let (stage, held) = match begin(treating, treatment, sealings, local, state, arrival) {
            Ok((stage, held)) => (stage, Some(held)),
            // Decided with the others, when these are ready: some may be with the adapters already.
            Err(refusal) => (Stage::Ready(Err(refusal)), None),
        };
        state.use_of(route.queue).granted += 1;
        if let Some(unit) = receipt.unit {
            local.units.begun(unit);
        }
        let whose = Subscriber::of(target, publisher, persistent);
        let pending = Pending {
            claim: claim.take(),
            receipt: *receipt,
            queue: route.queue,
            policy: route.policy.clone(),
            transmission: route.transmission.clone(),
            copy: Some(CopyOf { is_last: at == last, persistent, whose }),
            _counted: receipt.user.filter(|_| held.is_some()).and_then(|user| state.clients.users.begins_to_seal(user)),
            _held: held,
        };
        producer.pending.join(room, pending, arrival.bytes(), stage);
    }
    put::put_ready(producer, Some(&mut **front), local, state);
    Ok(())
}

/// Begins what one copy needs, and holds memory for the message and its sealed form until it is on its queue.
fn begin(
    treating: Treating<'_>,
    treatment: Result<Treatment, Refusal>,
    sealings: &mut Sealings,
    local: &mut Local,
    state: &State,
    arrival: &Arrival,
) -> Result<(Stage, Held), Refusal> {
    let held = local
        .manager
        .workers
        .adapters
        .hold(treating.producer.putter.asks_as.number(), arrival.bytes().saturating_mul(2))
        .map_err(sealing_memory)?;
    let mut unkept = None;
    let sealing = treating.route.policy.as_ref().map(|policy| sealings.of(policy)).unwrap_or(&mut unkept);
    let stage = match treatment? {
        Treatment::AsIs => {
            let user = treating.identity.user.as_deref();
            Stage::Ready(Ok(arrival.copy(treating.route.defaults, user)))
        }
        treatment => treating.begin(treatment, sealing, local, state, arrival.again()?, &held)?,
    };
    Ok((stage, held))
}

/// Puts the publication at the head of a link's pending messages, once all its copies are ready. False where they are
/// not.
pub fn put_ready(producer: &mut Producer, mut front: Option<&mut Front>, local: &mut Local, state: &mut State) -> bool {
    let is_last = |pending: &Pending| pending.copy.as_ref().is_none_or(|copy| copy.is_last);
    let Some(group) = producer.pending.take_through(is_last) else { return false };
    let Some(receipt) = group.first().map(|(pending, _)| pending.receipt) else { return false };
    let (mut copies, mut under) = (Vec::with_capacity(group.len()), None);
    for (Pending { queue, policy, transmission, copy, receipt, claim, .. }, message) in group {
        if let Some(unit) = receipt.unit {
            local.units.ended(unit);
        }
        if let Some(usage) = state.uses.get_mut(&queue).filter(|_| front.is_some()) {
            usage.granted = usage.granted.saturating_sub(1);
        }
        if let Some(CopyOf { whose, persistent, .. }) = copy {
            // The first copy has it.
            under = under.or_else(|| claim.map(|claim| (claim, persistent)));
            copies.push(Copy { queue, policy, transmission, message, whose });
        }
    }
    if let Err(refusal) = put_copies(front.as_deref_mut(), receipt, local, state, copies, under) {
        let topic = producer.publishing.as_ref().and_then(|publishing| publishing.published());
        let unheard = Unheard { queue: topic.unwrap_or_default(), user: producer.putter.name.as_deref() };
        put::refuse(front, local, receipt, &refusal, unheard);
    }
    true
}

/// Copies that their queues take, and what is noted of each: its queue, whether that is a transmission queue, and whose
/// the copy is.
type Admitted = (Vec<(QueueId, Message)>, Vec<(QueueId, bool, Subscriber)>);

/// Asks the queues of a publication's copies for room: those that can't take theirs and may be passed over are left
/// out.
///
/// # Errors
/// 2502: a queue that must take its copy can't.
fn admit(receipt: Receipt, local: &Local, state: &mut State, copies: Vec<Copy>) -> Result<Admitted, Refusal> {
    let mut puts: Vec<(QueueId, Message)> = Vec::with_capacity(copies.len());
    let mut traces = Vec::with_capacity(copies.len());
    let mut before: HashMap<QueueId, usize> = HashMap::with_capacity_and_hasher(copies.len(), Default::default());
    let mut failed = None;
    for Copy { queue, policy, transmission, message, whose } in copies {
        if state.store.attributes(queue).is_none() {
            continue; // the subscription has ended while its copy was being sealed
        }
        let staged = |state: &State| state.uses.get(&queue).map_or(0, |usage| usage.staged as usize);
        let first = if receipt.unit.is_some() { staged(state) } else { 0 };
        let before = before.entry(queue).or_insert(first);
        let admitted = message.and_then(|message| {
            let message = match &transmission {
                Some(header) => header.put_on(message),
                None => message,
            };
            let admitted = state.store.admits(queue, &message, *before);
            admitted.map(|()| message).map_err(|error| crate::refusals::store_refusal(&error))
        });
        match admitted {
            Ok(message) => {
                *before += 1;
                traces.push((queue, transmission.is_some(), whose));
                puts.push((queue, message));
            }
            Err(refusal) => {
                put::count_refused(local, state, queue, policy.as_deref(), &refusal);
                if !whose.is_spared {
                    failed.get_or_insert(refusal);
                }
            }
        }
    }
    match failed {
        Some(refusal) => Err(not_published(&refusal)),
        None => Ok((puts, traces)),
    }
}

/// Puts a publication's copies, all in one step, and with them its idempotency key, also where there is no copy; it is
/// confirmed once the journal has synced past them.
fn put_copies(
    front: Option<&mut Front>,
    receipt: Receipt,
    local: &mut Local,
    state: &mut State,
    copies: Vec<Copy>,
    under: Option<UnderKey>,
) -> Result<(), Refusal> {
    let (puts, traces) = admit(receipt, local, state, copies)?;
    if let Some(unit) = receipt.unit {
        let staged = puts.into_iter().zip(traces);
        let staged = staged.map(|((queue, message), (_, is_remote, whose))| (queue, message, is_remote, whose));
        unit_of_work::stage_copies(local, state, unit, &receipt, staged.collect())?;
        if let Some(front) = front.filter(|_| !receipt.settled) {
            front.answer(receipt.link, receipt.id, MessageOutcome::Accepted, Some(unit));
        }
        return Ok(());
    }
    // One store's is one unit there; otherwise what is for others goes on from the local one.
    let mut stores = puts.iter().map(|(queue, _)| queue.store());
    let first = stores.next().unwrap_or_default();
    let store = if stores.all(|store| store == first) { first } else { StoreNumber::LOCAL };
    let first = state.store.newest(store).0 + 1;
    let bytes = puts.iter().map(|(_, message)| message.body.len()).sum();
    let State { keys, store: stores, .. } = state;
    let ticket = match under {
        None => stores.commit_from(store, puts, &[], &[]),
        Some((claim, persistent)) => keys.put(*claim, persistent.then_some(store), local.wall_ms, |notes| {
            let notes: Vec<_> = notes.iter().map(|(name, note)| (name.as_str(), note.as_deref())).collect();
            stores.commit_from(store, puts, &[], &notes)
        }),
    };
    let ticket = ticket.map_err(|error| crate::refusals::store_refusal(&error))?;
    state.wrote(receipt.user, bytes, ticket);
    for (id, (queue, is_remote, whose)) in (first..).map(MessageId).zip(traces) {
        whose.counts.note_put(local.wall_ms);
        local.note_put(state, receipt, queue, id, is_remote);
        state.use_of(queue).limited.put();
    }
    local.answer_put(front, receipt, ticket, state);
    Ok(())
}

/// A subscription that must get the publication can't: no subscription gets it. Whose that is, and on which queue, is
/// not the publisher's to know.
fn not_published(why: &Refusal) -> Refusal {
    let detail = format!("a subscription can't take it: {} MQRC_{}", why.reason.code, why.reason.name);
    Refusal { cause: why.cause, ..Refusal::new(reason::PUBLICATION_FAILURE, detail) }
}
