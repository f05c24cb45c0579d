//! Who may open what: a client's attach becomes a producer or a consumer, or is refused with a reason.

use super::authority;
use super::consumer::{Consumer, Mode, Terminus};
use super::ending;
use super::get;
use super::local::Local;
use super::peer::{Link, Peer};
use super::producer::{Producer, REJECTED_OUTCOME};
use super::publishing::Publishing;
use super::put;
use super::resume;
use super::selection::{self, Selection};
use super::subscribe;
use super::subscription::Subscription;
use super::unit_of_work;
use crate::asker::Who;
use crate::authority::{ObjectType, Right, Rights};
use crate::channel::protocol::SenderGreeting;
use crate::channel::receiver::attaching;
use crate::dynamic::{Deletes, Made, Wish};
use crate::events::Event;
use crate::front::Attach;
use crate::manager::{Route, State};
use crate::message_groups::Owner;
use crate::outgoing::{self, OpensItself, SEALED};
use crate::reason::{self, Refusal};
use crate::selector::Selector;
use crate::topics;
use bulla_amqp::types::{AnyTarget, Role, Source, Target};
use bulla_amqp::{AttachReply, DeliveryState, Symbol, Value};
use bulla_seal::Policy;
use bulla_seal::policy::{Quality, SealedAt};
use std::sync::Arc;

/// A container that offers this, and a link of it, puts messages for later (`x-opt-delivery-time`).
pub(crate) const DELAYED_DELIVERY: &str = "DELAYED_DELIVERY";
/// What a connection offers whose links may share subscriptions, as Qpid JMS looks for it.
pub(crate) const SHARED_SUBSCRIPTIONS: &str = "SHARED-SUBS";

/// A link that asks for this gets from its queue alone (MQOO_INPUT_EXCLUSIVE), or is refused with 2042.
pub(crate) const EXCLUSIVE: &str = "bulla:exclusive";
/// A link that asks for this gets with others (MQOO_INPUT_SHARED), unless the queue has NOSHARE.
pub(crate) const SHARED: &str = "bulla:shared";

/// A link that asks for this deletes its permanent dynamic queue on closing, where nothing is on it (MQCO_DELETE).
pub(crate) const DELETE_ON_CLOSE: &str = "bulla:delete-on-close";
/// A link that asks for this deletes its permanent dynamic queue on closing, with what is on it (MQCO_DELETE_PURGE).
pub(crate) const PURGE_ON_CLOSE: &str = "bulla:purge-on-close";

/// `terminus-durability`, what a link's end has of its own that outlives it: nothing.
const NOT_DURABLE: u32 = 0;
/// The outcomes that a client can give to what it gets.
const OUTCOMES: [&str; 4] = ["amqp:accepted:list", REJECTED_OUTCOME, "amqp:released:list", "amqp:modified:list"];
/// Temporary queues of one connection that live as long as it does; one more is refused with 2017.
const CONNECTION_QUEUES_MAX: usize = 256;

/// A client attaches a link.
pub(crate) fn attached(peer: &mut Peer, local: &mut Local, state: &mut State, attach: Attach) {
    let link = attach.link;
    let mut made = None;
    let result = match attach.role {
        Role::Receiver if matches!(attach.target, Some(AnyTarget::Coordinator(_))) => {
            authority::may_attach(peer, local, state).map(|()| unit_of_work::attached(peer, &attach))
        }
        Role::Receiver => producer(peer, local, state, &attach, &mut made),
        Role::Sender => consumer(peer, local, state, &attach, &mut made),
    };
    if let Some(user) = peer.user.filter(|_| peer.links.get(&link).is_some_and(Link::is_clients)) {
        state.users.attached(user);
    }
    if let (Ok(()), Some(Made { temporary: Some(queue), with_link: false, .. })) = (&result, &made) {
        peer.dynamic.push(*queue);
    }
    if let Err(refusal) = result {
        resume::refused(peer, local, state, &attach);
        match made {
            Some(Made { temporary: Some(queue), .. }) => state.end_dynamic(queue),
            Some(Made { name, temporary: None, .. }) => {
                ending::delete_closed(local, state, &name, Deletes::WithMessages)
            }
            None => {}
        }
        authority::tell_of(peer, local, &refusal);
        peer.front.refuse_link(link, refusal.to_amqp());
    }
}

/// A channel attaches, or a broker that is not ours: then what came of it.
fn channel(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    target: &Target,
) -> Option<Result<(), Refusal>> {
    let greeting = SenderGreeting::from_properties(&attach.properties);
    let foreign = target.address.as_deref().and_then(attaching::foreign_target);
    let result = match (&greeting, foreign) {
        (Some(greeting), _) => attaching::greeted(peer, local, state, attach, greeting),
        (None, Some(target)) => attaching::foreign(peer, local, state, attach, target),
        (None, None) => return None,
    };
    Some(result.inspect_err(|refusal| {
        let partner = peer.address_text();
        if local.manager.peer_lines.may_write(local.now) {
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

/// The client sends: its target is a queue, a new dynamic queue, or left to each message.
fn producer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    made: &mut Option<Made>,
) -> Result<(), Refusal> {
    let Some(AnyTarget::Target(target)) = &attach.target else {
        return Err(Refusal::new(reason::UNKNOWN_OBJECT_NAME, "the attach has no target"));
    };
    if let Some(result) = channel(peer, local, state, attach, target) {
        return result;
    }
    let mut target: Target = target.clone();
    authority::may_attach(peer, local, state)?;
    resume::may_attach(peer, state, attach)?;
    if target.dynamic && subscribe::is_topic(&target.capabilities) {
        let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
        target.address = Some(format!("{}{}", topics::PREFIX, subscribe::temporary(state, who, local)?));
    }
    // The client reads the address that it named in the answer.
    let named = target.address.clone().filter(|_| !target.dynamic);
    if let Some(named) = &named {
        target.address = Some(state.address(named, subscribe::is_topic(&target.capabilities)).into_owned());
    }
    if let Some(topic) = subscribe::topic_of(target.address.as_deref(), &target.capabilities) {
        target.address = named.or(target.address);
        return publisher(peer, local, state, attach, target, topic);
    }
    let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
    let rights = match &target.address {
        _ if target.dynamic => {
            let made = make(peer, local, state, Right::Put, &target.dynamic_node_properties, made)?;
            (target.address, target.dynamic_node_properties) = (Some(made.name.clone()), made.properties());
            ObjectType::Queue.rights()
        }
        Some(name) => state.check(who, Right::Put, name)?,
        // Each message is asked about.
        None => Rights::NONE,
    };
    let deletes = deletes(attach, &target.capabilities)?;
    let mut producer = Producer {
        opened: target.address.clone(),
        sealed_by_client: wants_sealed(attach, &target.capabilities),
        dynamic: made.as_ref().and_then(Made::ends_with_link),
        deletes,
        any_user: rights.has(Right::SetIdentity),
        publishing: target.address.is_none().then(|| Publishing::new(peer.opened.as_deref(), None)),
        ..new_producer(attach, peer, local)
    };
    if let Some(name) = target.address.as_deref() {
        open_to_put(&mut producer, name, rights, peer, local, state)?;
    }
    let properties = producer.route.as_ref().map(|route| seal_properties(state, route, rights)).unwrap_or_default();
    target.address = named.or(target.address);
    accept_producer(peer, local, state, attach, target, producer, properties);
    Ok(())
}

/// The link's queue is looked up, counts it, and is known to take its messages.
fn open_to_put(
    producer: &mut Producer,
    name: &str,
    rights: Rights,
    peer: &Peer,
    local: &mut Local,
    state: &mut State,
) -> Result<(), Refusal> {
    let route = state.put_route(name)?;
    if !route.put_enabled {
        return Err(Refusal::new(reason::PUT_INHIBITED, format!("{name} has PUT(DISABLED)")));
    }
    may_delete(state, &route, producer.deletes, rights)?;
    let client_seals = |policy: &Policy| policy.quality() != Quality::None && policy.sealed_at == SealedAt::Client;
    if !producer.sealed_by_client && route.policy.as_deref().is_some_and(client_seals) {
        let detail = format!("{name}: the policy asks the application to seal");
        return Err(Refusal::security("sealed-at-client", detail));
    }
    state.may_open(&route)?;
    state.opened_to_put(route.queue);
    producer.route = Some(Arc::new(route));
    put::prepare(producer, local, state, &peer.identity).inspect_err(|_| {
        producer.leave(&mut local.units, state);
    })
}

/// Answers the attach of a link that puts or publishes, and grants its first credit.
fn accept_producer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    target: Target,
    mut producer: Producer,
    properties: Vec<(Symbol, Value)>,
) {
    let may_suspend = producer.dynamic.is_none() && producer.deletes.is_none() && !target.dynamic;
    let mut resumption = resume::puts(peer, local, state, attach, may_suspend);
    let (expiry_policy, timeout) = resumption.told();
    let reply = AttachReply {
        source: attach.source.clone(),
        target: Some(Target { durable: NOT_DURABLE, expiry_policy, timeout, ..target }),
        coordinator: None,
        offered_capabilities: offered(producer.sealed_by_client, delays(&producer, attach)),
        properties,
        max_message_size: u64::from(state.definitions.queue_manager.max_message_bytes),
        // What is longer all the same is refused with 2030.
        told_max_message_size: producer.route.as_ref().map(|route| route.message_bytes_max.max(1) as u64),
        // Its errors name the delivery (Anonymous Terminus, 2.2.2).
        keeps_tags: producer.opened.is_none(),
        ..AttachReply::default()
    };
    peer.front.accept_link(attach.link, resumption.fill(reply));
    producer.resumable = resumption.resumable;
    peer.links.insert(attach.link, Link::Producer(Box::new(producer)));
    put::replenish(peer, local, state, attach.link);
}

/// A link of that connection that puts, before it is known where and how.
fn new_producer(attach: &Attach, peer: &Peer, local: &Local) -> Producer {
    let name = peer.identity.user.clone();
    let who = local.client_asker(name.as_deref(), peer.generation);
    Producer::new(attach, peer.user, name, who)
}

/// Makes the queue that a dynamic terminus asks for.
fn make<'a>(
    peer: &Peer,
    local: &mut Local,
    state: &mut State,
    right: Right,
    properties: &[(Symbol, Value)],
    made: &'a mut Option<Made>,
) -> Result<&'a Made, Refusal> {
    let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
    let wish = Wish::read(state, who, right, properties)?;
    if peer.dynamic.len() >= CONNECTION_QUEUES_MAX {
        let detail = format!("the connection has its maximum of {CONNECTION_QUEUES_MAX} temporary queues");
        return Err(Refusal::new(reason::HANDLE_NOT_AVAILABLE, detail));
    }
    let made = made.insert(state.define_dynamic(who, &wish, &mut local.random)?);
    state.own_dynamic(who, made);
    Ok(made)
}

/// The client receives: its source is a queue, browsed or taken from, or a new dynamic queue.
fn consumer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    made: &mut Option<Made>,
) -> Result<(), Refusal> {
    authority::may_attach(peer, local, state)?;
    resume::may_attach(peer, state, attach)?;
    let Some(mut source) = attach.source.clone() else {
        let (source, subscription) = subscribe::recover(peer, local, state, attach)?;
        return subscriber(peer, local, state, attach, source, subscription, true);
    };
    let no_local = selection::take_no_local(&mut source);
    // Filters are echoed only where they are honoured.
    let selector = selection::filter(&mut source)?;
    if source.dynamic && subscribe::is_topic(&source.capabilities) {
        let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
        source.address = Some(format!("{}{}", topics::PREFIX, subscribe::temporary(state, who, local)?));
    }
    // The client reads the address that it named in the answer.
    let named = source.address.clone().filter(|_| !source.dynamic);
    if let Some(named) = &named {
        source.address = Some(state.address(named, subscribe::is_topic(&source.capabilities)).into_owned());
    }
    if subscribe::topic_of(source.address.as_deref(), &source.capabilities).is_some() {
        let leaves_out = no_local.is_some();
        let subscription = subscribe::open(peer, local, state, attach, &mut source, selector, leaves_out)?;
        source.address = named.or(source.address);
        source.filter.extend(no_local);
        let alone = !subscription.shared;
        return subscriber(peer, local, state, attach, source, subscription, alone);
    }
    get_queued(peer, local, state, attach, Asked { source, named, selector }, made)
}

/// What a client asks to get from: its terminus, the address as the client named it, and its selector.
struct Asked {
    source: Source,
    named: Option<String>,
    selector: Option<Selector>,
}

/// The client gets from a queue, or browses it.
fn get_queued(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    Asked { mut source, named, selector }: Asked,
    made: &mut Option<Made>,
) -> Result<(), Refusal> {
    let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
    let browse = source.distribution_mode.as_ref().is_some_and(|mode| mode.as_str() == "copy");
    let right = if browse { Right::Browse } else { Right::Get };
    if source.dynamic {
        let made = make(peer, local, state, right, &source.dynamic_node_properties, made)?;
        (source.address, source.dynamic_node_properties) = (Some(made.name.clone()), made.properties());
    }
    let name =
        source.address.clone().ok_or_else(|| Refusal::new(reason::UNKNOWN_OBJECT_NAME, "the source names no queue"))?;
    let rights = state.check(who, right, &name)?;
    let route = state.route(&name)?;
    if !route.get_enabled {
        return Err(Refusal::new(reason::GET_INHIBITED, format!("{name} has GET(DISABLED)")));
    }
    let deletes = deletes(attach, &source.capabilities)?;
    may_delete(state, &route, deletes, rights)?;
    let opens_itself = OpensItself::asked(&attach.desired_capabilities, &source.capabilities);
    if opens_itself.is_none() && outgoing::is_protected(&route) {
        // Without a ring nothing on this queue could ever be opened for this user.
        local.ring(&peer.identity)?;
    }
    let queue = route.queue;
    let properties = seal_properties(state, &route, rights);
    let mode = match browse {
        true => Mode::Browses,
        false => taking(takes_alone(attach, &source, &route)?),
    };
    state.may_open(&route)?;
    match mode {
        Mode::Browses => state.opened_to_get(queue),
        Mode::Takes | Mode::TakesAlone => state.opened_to_take(&name, queue, mode == Mode::TakesAlone)?,
    }
    let owner = Owner { dispatcher: local.index, generation: peer.generation, link: attach.link };
    let selection = Selection::wanted(selector, owner, &route, state, browse);
    let consumer = Consumer {
        mode,
        selection,
        opens_itself,
        terminus: Terminus::Queue { dynamic: made.as_ref().and_then(Made::ends_with_link), deletes },
        ..new_consumer(attach, name, route, peer, local)
    };
    let capabilities = consumer_capabilities(opens_itself.is_some(), mode == Mode::TakesAlone);
    source.address = named.or(source.address);
    let reply = AttachReply { offered_capabilities: capabilities, properties, ..AttachReply::default() };
    accept_consumer(peer, local, state, attach, source, consumer, reply);
    Ok(())
}

/// A link of that connection that gets whatever comes next from that queue, which it opened by that name.
fn new_consumer(attach: &Attach, name: String, route: Route, peer: &Peer, local: &Local) -> Consumer {
    let who = local.client_asker(peer.identity.user.as_deref(), peer.generation);
    Consumer::new(attach, name, route, who, local.now)
}

/// Answers the attach of a link that gets, from a queue or a subscription, and has its queue served. `reply` has the
/// capabilities and properties that it is answered with.
fn accept_consumer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    source: Source,
    mut consumer: Consumer,
    reply: AttachReply,
) {
    let durable = consumer.subscription().is_some_and(|subscription| subscription.durable.is_some());
    let may_suspend = matches!(consumer.terminus, Terminus::Queue { dynamic: None, deletes: None })
        && !(source.dynamic || consumer.browses() || consumer.presettled || consumer.route.has_groups);
    let mut resumption = resume::gets(peer, local, state, attach, &mut consumer, may_suspend);
    let (expiry_policy, timeout) = resumption.told();
    let source = match durable {
        true => source,
        false => Source { durable: NOT_DURABLE, expiry_policy, timeout, ..source },
    };
    let source = Source {
        // What is settled without an outcome, or not at all, is as if it had never been sent.
        default_outcome: Some(DeliveryState::Released),
        outcomes: OUTCOMES.map(Symbol::from_static).to_vec(),
        ..source
    };
    let reply = AttachReply {
        source: Some(source),
        target: match &attach.target {
            Some(AnyTarget::Target(target)) => Some(target.clone()),
            _ => None,
        },
        ..reply
    };
    let queue = consumer.route.queue;
    let outcomes = resumption.take_outcomes();
    peer.front.accept_link(attach.link, resumption.fill(reply));
    consumer.resumes.place = resumption.resumable;
    consumer.resumes.only = peer.front.resumes_only(attach.link);
    peer.links.insert(attach.link, Link::Consumer(Box::new(consumer)));
    local.add_consumer(queue, peer.seat(attach.link), state);
    // What the client said while it was not attached; each delivery is settled when that is synced.
    for (token, outcome) in outcomes {
        get::settled(peer, local, state, attach.link, token, Some(outcome), false);
    }
}

/// The client publishes on a topic.
fn publisher(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    target: Target,
    topic: String,
) -> Result<(), Refusal> {
    let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
    state.check_topic(who, Right::Publish, &topic)?;
    if wants_sealed(attach, &target.capabilities) {
        // Each subscription's queue has a binding of its own.
        let detail = "what is published is sealed for each subscription, which an application can't do";
        return Err(Refusal::new(reason::OPTIONS_ERROR, detail));
    }
    // Whether it can be published on is known before the first message.
    state.publisher(&topic)?;
    state.topics.publisher_came(&topic);
    let producer = Producer {
        opened: Some(format!("{}{topic}", topics::PREFIX)),
        publishing: Some(Publishing::new(peer.opened.as_deref(), Some(topic))),
        ..new_producer(attach, peer, local)
    };
    accept_producer(peer, local, state, attach, target, producer, Vec::new());
    Ok(())
}

/// The client gets from a subscription; one that was made for this link goes again where that does not come to be.
fn subscriber(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    source: Source,
    subscription: Subscription,
    exclusive: bool,
) -> Result<(), Refusal> {
    let made = subscription.is_new.then(|| (subscription.queue.clone(), subscription.durable.clone()));
    let result = get_subscribed(peer, local, state, attach, source, subscription, exclusive);
    if let (Err(_), Some((queue, durable))) = (&result, made)
        && let Some(queue) = state.store.queue(&queue)
    {
        state.left_subscription(queue, durable.as_deref(), true);
    }
    result
}

fn get_subscribed(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    source: Source,
    subscription: Subscription,
    exclusive: bool,
) -> Result<(), Refusal> {
    let opens_itself = OpensItself::asked(&attach.desired_capabilities, &source.capabilities);
    let route = state.route(&subscription.queue)?;
    if !route.get_enabled {
        return Err(Refusal::new(reason::GET_INHIBITED, "the subscription's queue has GET(DISABLED)"));
    }
    if opens_itself.is_none() && outgoing::is_protected(&route) {
        local.ring(&peer.identity)?;
    }
    let queue = route.queue;
    state.may_open(&route)?;
    state.opened_to_take(&subscription.queue, queue, exclusive).map_err(|_| {
        let name = subscription.durable.as_deref().unwrap_or(&subscription.topic);
        Refusal::new(reason::SUBSCRIPTION_IN_USE, format!("{name}: others get from it"))
    })?;
    state.topics.resumed(&subscription.queue, local.wall_ms);
    // Who may subscribe may know what it takes to open what comes.
    let properties = seal_properties(state, &route, Right::Inquire.alone());
    let owner = Owner { dispatcher: local.index, generation: peer.generation, link: attach.link };
    let selection = Selection::wanted(None, owner, &route, state, false);
    let name = subscription.queue.clone();
    let consumer = Consumer {
        mode: taking(exclusive),
        selection,
        opens_itself,
        terminus: Terminus::Subscription(Box::new(subscription)),
        ..new_consumer(attach, name, route, peer, local)
    };
    let capabilities = subscriber_capabilities(opens_itself.is_some(), !exclusive);
    let reply = AttachReply { offered_capabilities: capabilities, properties, ..AttachReply::default() };
    accept_consumer(peer, local, state, attach, source, consumer, reply);
    Ok(())
}

fn subscriber_capabilities(sealed: bool, shared: bool) -> Vec<Symbol> {
    let shared = shared.then_some(Symbol::from_static(SHARED_SUBSCRIPTIONS));
    offered(sealed, false).into_iter().chain(shared).collect()
}

/// How a link takes messages: alone, or as others may.
fn taking(alone: bool) -> Mode {
    if alone { Mode::TakesAlone } else { Mode::Takes }
}

/// Whether this link gets alone: it asks to, the queue says so of links that don't, or of all.
fn takes_alone(attach: &Attach, source: &Source, route: &Route) -> Result<bool, Refusal> {
    let asks = |word| asks_for(attach, &source.capabilities, word);
    match (asks(EXCLUSIVE), asks(SHARED)) {
        (true, true) => Err(Refusal::new(reason::OPTIONS_ERROR, "to get alone and with others is asked for at once")),
        (true, false) => Ok(true),
        (false, true) => Ok(route.takes_alone),
        (false, false) => Ok(route.takes_alone || route.default_exclusive),
    }
}

/// What a link asks to be done with its permanent dynamic queue when it closes.
fn deletes(attach: &Attach, terminus: &[Symbol]) -> Result<Option<Deletes>, Refusal> {
    match (asks_for(attach, terminus, DELETE_ON_CLOSE), asks_for(attach, terminus, PURGE_ON_CLOSE)) {
        (true, true) => Err(Refusal::new(reason::OPTIONS_ERROR, "to delete with and without messages is asked for")),
        (true, false) => Ok(Some(Deletes::Empty)),
        (false, true) => Ok(Some(Deletes::WithMessages)),
        (false, false) => Ok(None),
    }
}

/// Only a queue that was made for an application is an application's to delete: its creator's, and that of a user who
/// has DLT on it.
fn may_delete(state: &State, route: &Route, deletes: Option<Deletes>, rights: Rights) -> Result<(), Refusal> {
    let is_dynamic = || state.definitions.queues.get(&route.queue_name).is_some_and(|local| local.dynamic);
    if deletes.is_none() {
        return Ok(());
    }
    if is_dynamic() || state.dynamic.contains_key(&route.queue_name) {
        return if rights.has(Right::Delete) {
            Ok(())
        } else {
            Err(crate::rights::no_right(Right::Delete, &route.queue_name))
        };
    }
    let detail = format!("{} is no dynamic queue: closing does not delete it", route.queue_name);
    Err(Refusal::new(reason::OPTION_NOT_VALID_FOR_TYPE, detail))
}

/// What a client that seals for itself has to know, and who has INQ is told: where its messages will be, and under
/// which policy.
fn seal_properties(state: &State, route: &Route, rights: Rights) -> Vec<(Symbol, Value)> {
    let Some(policy) = route.policy.as_ref().filter(|_| rights.has(Right::Inquire)) else { return Vec::new() };
    let destination = state.bound_to(route);
    vec![
        (Symbol::from_static("bulla:destination"), Value::from(destination.as_str())),
        (Symbol::from_static("bulla:policy"), Value::from(crate::mqsc::policy::text(policy).as_str())),
    ]
}

fn wants_sealed(attach: &Attach, terminus: &[Symbol]) -> bool {
    asks_for(attach, terminus, SEALED)
}

fn asks_for(attach: &Attach, terminus: &[Symbol], wanted: &str) -> bool {
    attach.desired_capabilities.iter().chain(terminus).any(|capability| capability.as_str() == wanted)
}

fn consumer_capabilities(sealed: bool, exclusive: bool) -> Vec<Symbol> {
    let exclusive = exclusive.then_some(Symbol::from_static(EXCLUSIVE));
    offered(sealed, false).into_iter().chain(exclusive).collect()
}

/// Whether a message put for later waits until then, and the client wants to know. One for another queue manager's
/// queue waits there, if at all.
fn delays(producer: &Producer, attach: &Attach) -> bool {
    let is_remote = producer.route.as_ref().is_some_and(|route| route.transmission.is_some());
    !is_remote && attach.desired_capabilities.iter().any(|capability| capability.as_str() == DELAYED_DELIVERY)
}

fn offered(sealed: bool, delays: bool) -> Vec<Symbol> {
    let all = [(sealed, SEALED), (delays, DELAYED_DELIVERY)];
    all.into_iter().filter(|(is, _)| *is).map(|(_, name)| Symbol::from_static(name)).collect()
}
