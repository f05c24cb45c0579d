//! Who may open what: a client's attach becomes a producer or a consumer, or is refused with a reason.

use super::authority;
use super::consumer::{Consumer, Mode, Terminus};
use super::ending;
use super::get;
use super::local::Local;
use super::peer::{Link, Peer};
use super::producer::{Producer, Putter};
use super::publishing::Publishing;
use super::put;
use super::resume;
use super::selection::{self, Selection};
use super::subscribe;
use super::subscription::Subscription;
use super::unit_of_work;
use crate::asker::Who;
use crate::authority::{ObjectType, Right, Rights};
use crate::catalog::reason::{Elsewhere, Way};
use crate::dynamic::{Deletes, Made};
use crate::front::link::{Attach, Get, Granted, OnClose, Place, Put, QueueWish, SealFacts};
use crate::front::link::{Subscribed, Wants};
use crate::manager::{Route, State};
use crate::message_groups::Owner;
use crate::outgoing;
use crate::reason::{self, Refusal};
use crate::selector::Selector;
use crate::sign_in::verdict::Identity;
use crate::topics;
use bulla_seal::Policy;
use bulla_seal::policy::{Quality, SealedAt};
use std::sync::Arc;

/// Temporary queues of one connection that live as long as it does; one more is refused with 2017.
const CONNECTION_QUEUES_MAX: usize = 256;

/// A client attaches a link.
pub fn attached(peer: &mut Peer, local: &mut Local, state: &mut State, attach: Attach) {
    let link = attach.link;
    let mut made = None;
    let result = match &attach.wants {
        Wants::Units => authority::may_attach(peer, local, state).map(|()| unit_of_work::attached(peer, &attach)),
        Wants::Put(put) => producer(peer, local, state, &attach, put, &mut made),
        Wants::Get(get) => consumer(peer, local, state, &attach, get, &mut made),
    };
    if let Some(user) = peer.login.user.filter(|_| peer.links.get(&link).is_some_and(Link::is_clients)) {
        state.clients.users.attached(user);
    }
    if let (Ok(()), Some(Made { temporary: Some(queue), with_link: false, .. })) = (&result, &made) {
        peer.holds.dynamic.push(*queue);
    }
    if let Err(refusal) = result {
        let opened = name_of(&attach).map(|(name, is_topic)| state.address(name, is_topic).into_owned());
        let who = &peer.login.identity;
        let refusal = opened.map_or(refusal.clone(), |opened| state.or_elsewhere(refusal, &opened, who));
        match made {
            Some(Made { temporary: Some(queue), .. }) => state.end_dynamic(queue),
            Some(Made { name, temporary: None, .. }) => {
                ending::delete_closed(local, state, &name, Deletes::WithMessages)
            }
            None => {}
        }
        match refusal.elsewhere.as_deref() {
            // A client that follows by itself takes a refused link for a failure.
            Some(Elsewhere { way: Way::Connection, .. }) => {
                resume::refused(peer, local, state, &attach);
                return peer.front.close(Some(refusal.into()));
            }
            Some(Elsewhere { way: Way::Forwarded(_), .. })
                if peer.front.forwards().is_some_and(|forwards| forwards.forward(attach.link, &refusal)) =>
            {
                resume::refused(peer, local, state, &attach);
                return local.forwarding.push(peer.place.key);
            }
            _ => {}
        }
        refuse(peer, local, state, &attach, &refusal);
    }
}

/// The name that a client opens, and whether it calls it a topic.
fn name_of(attach: &Attach) -> Option<(&str, bool)> {
    let place = match &attach.wants {
        Wants::Units => return None,
        Wants::Put(put) => &put.place,
        Wants::Get(get) => &get.place,
    };
    match place {
        Place::Named { name, is_topic } => Some((name, *is_topic)),
        _ => None,
    }
}

/// Refuses a link: nothing is kept of it.
pub fn refuse(peer: &mut Peer, local: &mut Local, state: &mut State, attach: &Attach, refusal: &Refusal) {
    resume::refused(peer, local, state, attach);
    authority::tell_of(peer, local, refusal);
    peer.front.refuse_link(attach.link, refusal.clone().into());
}

/// Whether the client may have that link at all.
///
/// # Errors
/// See [`authority::may_attach`] and [`resume::may_attach`]; why the attach makes no sense.
fn may_attach(peer: &mut Peer, local: &Local, state: &mut State, attach: &Attach) -> Result<(), Refusal> {
    authority::may_attach(peer, local, state)?;
    resume::may_attach(peer, state, attach)?;
    attach.unreadable.clone().map_or(Ok(()), Err)?;
    may_reach(&peer.login.identity, state, attach)
}

/// Whether a client that another member vouches for may have that link. Each message of one for any queue is asked
/// about.
fn may_reach(identity: &Identity, state: &State, attach: &Attach) -> Result<(), Refusal> {
    if identity.vouched_in.is_none() {
        return Ok(());
    }
    match (&attach.wants, name_of(attach)) {
        (_, Some((name, false))) => authority::may_reach(identity, state, &state.address(name, false)),
        (Wants::Put(Put { place: Place::Unnamed, .. }), _) => Ok(()),
        _ => Err(Refusal::new(reason::NOT_AUTHORIZED, "a link that is forwarded leads to a queue of its group")),
    }
}

/// Where a link leads, before a queue is made for it.
struct Found {
    /// The name that the client opened, as SET ADDRMAP has it, or that of a topic made for the link.
    name: Option<String>,
    /// The topic that this is.
    topic: Option<String>,
    /// What the client has to be told of the name.
    told: Option<String>,
}

/// Finds out where a link leads.
fn find(peer: &Peer, local: &mut Local, state: &State, place: &Place) -> Result<Found, Refusal> {
    let (name, is_topic) = match place {
        Place::Named { name, is_topic } => (Some(state.address(name, *is_topic).into_owned()), *is_topic),
        Place::NewTopic => {
            let who = Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation);
            let topic = subscribe::temporary(state, who, local)?;
            let name = format!("{}{topic}", topics::PREFIX);
            return Ok(Found { name: Some(name.clone()), topic: Some(topic), told: Some(name) });
        }
        Place::Unnamed | Place::NewQueue(_) | Place::Subscription { .. } => (None, false),
    };
    let topic = subscribe::topic_of(name.as_deref(), is_topic);
    Ok(Found { name, topic, told: None })
}

/// The client puts: on a queue, on one that is made for it, or where each message says.
fn producer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    put: &Put,
    made: &mut Option<Made>,
) -> Result<(), Refusal> {
    may_attach(peer, local, state, attach)?;
    let Found { name, topic, told } = find(peer, local, state, &put.place)?;
    if let Some(topic) = topic {
        return publisher(peer, local, state, attach, put, topic, told);
    }
    let who = Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation);
    let (name, rights) = match (&put.place, name) {
        (Place::NewQueue(wish), _) => {
            let made = make(peer, local, state, Right::Put, wish, made)?;
            (Some(made.name.clone()), ObjectType::Queue.rights())
        }
        (_, Some(name)) => {
            let rights = state.check(who, Right::Put, &name)?;
            (Some(name), rights)
        }
        // Each message is asked about.
        (_, None) => (None, Rights::NONE),
    };
    let deletes = deletes(put.on_close)?;
    let mut producer = Producer {
        opened: name.clone(),
        sealed_by_client: put.sealed,
        dynamic: made.as_ref().and_then(Made::ends_with_link),
        deletes,
        any_user: rights.has(Right::SetIdentity),
        publishing: name.is_none().then(|| Publishing::new(peer.opened.as_deref(), None)),
        ..new_producer(attach, peer, local)
    };
    if let Some(name) = name.as_deref() {
        open_to_put(&mut producer, name, rights, peer, local, state)?;
    }
    let granted = Granted {
        name: made.as_ref().map(|made| made.name.clone()),
        goes_with_link: producer.dynamic.is_some(),
        sealing: producer.route.as_ref().and_then(|route| seal_facts(state, route, rights)),
        ..Granted::default()
    };
    accept_producer(peer, local, state, attach, producer, granted);
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
    put::prepare(producer, local, state, &peer.login.identity).inspect_err(|_| {
        producer.leave(&mut local.units, state);
    })
}

/// Answers the attach of a link that puts or publishes, and grants its first credit.
fn accept_producer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    mut producer: Producer,
    granted: Granted,
) {
    let may_suspend = producer.dynamic.is_none() && producer.deletes.is_none() && granted.name.is_none();
    let mut resumption = resume::puts(peer, local, state, attach, may_suspend);
    let granted = Granted {
        sealed: producer.sealed_by_client,
        // A message for another queue manager's queue waits there, if at all.
        delays: producer.route.as_ref().is_none_or(|route| route.transmission.is_none()),
        message_bytes_max: Some(state.definitions.queue_manager.max_message_bytes.into()),
        queue_message_bytes_max: producer.route.as_ref().map(|route| route.message_bytes_max.max(1) as u64),
        // Its errors name the delivery (Anonymous Terminus, 2.2.2).
        keeps_tags: producer.opened.is_none(),
        ..granted
    };
    peer.front.accept_link(attach.link, resumption.fill(granted));
    producer.resumable = resumption.resumable;
    peer.links.insert(attach.link, Link::Producer(Box::new(producer)));
    put::replenish(peer, local, state, attach.link);
}

/// A link of that connection that puts, before it is known where and how.
fn new_producer(attach: &Attach, peer: &Peer, local: &Local) -> Producer {
    let name = peer.login.identity.user.clone();
    let asks_as = local.client_asker(name.as_deref(), peer.place.generation);
    Producer::new(attach, Putter { user: peer.login.user, name, asks_as })
}

/// Makes the queue that a link asks for.
fn make<'a>(
    peer: &Peer,
    local: &mut Local,
    state: &mut State,
    right: Right,
    wish: &QueueWish,
    made: &'a mut Option<Made>,
) -> Result<&'a Made, Refusal> {
    let who = Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation);
    state.check_wish(who, right, wish)?;
    if peer.holds.dynamic.len() >= CONNECTION_QUEUES_MAX {
        let detail = format!("the connection has its maximum of {CONNECTION_QUEUES_MAX} temporary queues");
        return Err(Refusal::new(reason::HANDLE_NOT_AVAILABLE, detail));
    }
    let made = made.insert(state.define_dynamic(who, wish, &mut local.random)?);
    state.own_dynamic(who, made);
    Ok(made)
}

/// The client gets: from a queue, browsed or taken from, from one that is made for it, or from a subscription.
fn consumer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    get: &Get,
    made: &mut Option<Made>,
) -> Result<(), Refusal> {
    may_attach(peer, local, state, attach)?;
    if let Place::Subscription { is_global } = get.place {
        let subscription = subscribe::recover(peer, local, state, attach, is_global)?;
        let told = Some(format!("{}{}", topics::PREFIX, subscription.topic));
        return subscriber(peer, local, state, Subscriber { attach, get, subscription, alone: true, told });
    }
    let selector = get.selector.as_deref().map(selection::parse).transpose()?;
    let Found { name, topic, told } = find(peer, local, state, &get.place)?;
    if let Some(topic) = topic {
        let subscription = subscribe::open(peer, local, state, attach, get, topic, selector)?;
        let alone = !subscription.shared;
        return subscriber(peer, local, state, Subscriber { attach, get, subscription, alone, told });
    }
    get_queued(peer, local, state, Asked { attach, get, name, selector }, made)
}

/// What a client asks to get from: the name that it opened, and its selector.
struct Asked<'a> {
    attach: &'a Attach,
    get: &'a Get,
    name: Option<String>,
    selector: Option<Selector>,
}

/// The client gets from a queue, or browses it.
fn get_queued(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    Asked { attach, get, name, selector }: Asked<'_>,
    made: &mut Option<Made>,
) -> Result<(), Refusal> {
    let who = Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation);
    let right = if get.browses { Right::Browse } else { Right::Get };
    let name = match &get.place {
        Place::NewQueue(wish) => Some(make(peer, local, state, right, wish, made)?.name.clone()),
        _ => name,
    };
    let name = name.ok_or_else(|| Refusal::new(reason::UNKNOWN_OBJECT_NAME, "the source names no queue"))?;
    let rights = state.check(who, right, &name)?;
    let route = state.route(&name)?;
    if !route.get_enabled {
        return Err(Refusal::new(reason::GET_INHIBITED, format!("{name} has GET(DISABLED)")));
    }
    let deletes = deletes(get.on_close)?;
    may_delete(state, &route, deletes, rights)?;
    if get.opens_itself.is_none() && outgoing::is_protected(&route) {
        // Without a ring nothing on this queue could ever be opened for this user.
        local.ring(&peer.login.identity)?;
    }
    let queue = route.queue;
    let sealing = seal_facts(state, &route, rights);
    let mode = match get.browses {
        true => Mode::Browses,
        false => taking(takes_alone(get, &route)?),
    };
    state.may_open(&route)?;
    match mode {
        Mode::Browses => state.opened_to_get(queue),
        Mode::Takes | Mode::TakesAlone => state.opened_to_take(&name, queue, mode == Mode::TakesAlone)?,
    }
    let owner = Owner { dispatcher: local.index, generation: peer.place.generation, link: attach.link };
    let selection = Selection::wanted(selector, owner, &route, state, get.browses);
    let dynamic = made.as_ref().and_then(Made::ends_with_link);
    let consumer = Consumer {
        mode,
        selection,
        terminus: Terminus::Queue { dynamic, deletes },
        ..new_consumer((attach, get), name, route, peer, local)
    };
    let granted = Granted {
        name: made.as_ref().map(|made| made.name.clone()),
        goes_with_link: dynamic.is_some(),
        alone: mode == Mode::TakesAlone,
        sealing,
        ..Granted::default()
    };
    accept_consumer(peer, local, state, attach, consumer, granted);
    Ok(())
}

/// A link of that connection that gets whatever comes next from that queue, which it opened by that name.
fn new_consumer((attach, get): (&Attach, &Get), name: String, route: Route, peer: &Peer, local: &Local) -> Consumer {
    let who = local.client_asker(peer.login.identity.user.as_deref(), peer.place.generation);
    Consumer::new(attach, get, name, route, who, local.now)
}

/// Answers the attach of a link that gets, from a queue or a subscription, and has its queue served.
fn accept_consumer(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    mut consumer: Consumer,
    granted: Granted,
) {
    let may_suspend = matches!(consumer.terminus, Terminus::Queue { dynamic: None, deletes: None })
        && !(granted.name.is_some() || consumer.browses() || consumer.presettled || consumer.route.has_groups);
    let mut resumption = resume::gets(peer, local, state, attach, &mut consumer, may_suspend);
    let granted = Granted { sealed: consumer.opens_itself.is_some(), ..granted };
    let queue = consumer.route.queue;
    let outcomes = resumption.take_outcomes();
    peer.front.accept_link(attach.link, resumption.fill(granted));
    consumer.resumes.place = resumption.resumable;
    consumer.resumes.only = peer.front.resumes_only(attach.link);
    peer.links.insert(attach.link, Link::Consumer(Box::new(consumer)));
    local.add_consumer(queue, peer.seat(attach.link), state);
    // What the client said while it was not attached; each delivery is settled when that is synced.
    for (token, outcome) in outcomes {
        let said = get::Settling { link: attach.link, token, outcome: Some(outcome), unit: None, settled: false };
        get::settled(peer, local, state, said);
    }
}

/// The client publishes on a topic, of whose name it is `told` where that was made for it.
fn publisher(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    put: &Put,
    topic: String,
    told: Option<String>,
) -> Result<(), Refusal> {
    let who = Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation);
    state.check_topic(who, Right::Publish, &topic)?;
    if put.sealed {
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
    accept_producer(peer, local, state, attach, producer, Granted { name: told, ..Granted::default() });
    Ok(())
}

/// A link that gets from a subscription.
struct Subscriber<'a> {
    attach: &'a Attach,
    get: &'a Get,
    subscription: Subscription,
    /// No other link gets from it.
    alone: bool,
    /// What the client has to be told of the topic's name.
    told: Option<String>,
}

/// The client gets from a subscription; one that was made for this link goes again where that does not come to be.
fn subscriber(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    subscriber: Subscriber<'_>,
) -> Result<(), Refusal> {
    let Subscriber { subscription, .. } = &subscriber;
    let made = subscription.is_new.then(|| (subscription.queue.clone(), subscription.durable.clone()));
    let result = get_subscribed(peer, local, state, subscriber);
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
    Subscriber { attach, get, subscription, alone, told }: Subscriber<'_>,
) -> Result<(), Refusal> {
    let route = state.route(&subscription.queue)?;
    if !route.get_enabled {
        return Err(Refusal::new(reason::GET_INHIBITED, "the subscription's queue has GET(DISABLED)"));
    }
    if get.opens_itself.is_none() && outgoing::is_protected(&route) {
        local.ring(&peer.login.identity)?;
    }
    let queue = route.queue;
    state.may_open(&route)?;
    state.opened_to_take(&subscription.queue, queue, alone).map_err(|_| {
        let name = subscription.durable.as_deref().unwrap_or(&subscription.topic);
        Refusal::new(reason::SUBSCRIPTION_IN_USE, format!("{name}: others get from it"))
    })?;
    state.topics.resumed(&subscription.queue, local.wall_ms);
    // Who may subscribe may know what it takes to open what comes.
    let sealing = seal_facts(state, &route, Right::Inquire.alone());
    let owner = Owner { dispatcher: local.index, generation: peer.place.generation, link: attach.link };
    let selection = Selection::wanted(None, owner, &route, state, false);
    let name = subscription.queue.clone();
    let subscribed = Subscribed { durable: subscription.durable.is_some(), shared: !alone };
    let consumer = Consumer {
        mode: taking(alone),
        selection,
        terminus: Terminus::Subscription(Box::new(subscription)),
        ..new_consumer((attach, get), name, route, peer, local)
    };
    let granted = Granted { name: told, subscribed: Some(subscribed), sealing, ..Granted::default() };
    accept_consumer(peer, local, state, attach, consumer, granted);
    Ok(())
}

/// How a link takes messages: alone, or as others may.
fn taking(alone: bool) -> Mode {
    if alone { Mode::TakesAlone } else { Mode::Takes }
}

/// Whether this link gets alone: it asks to, the queue says so of links that don't, or of all.
fn takes_alone(get: &Get, route: &Route) -> Result<bool, Refusal> {
    match (get.alone, get.with_others) {
        (true, true) => Err(Refusal::new(reason::OPTIONS_ERROR, "to get alone and with others is asked for at once")),
        (true, false) => Ok(true),
        (false, true) => Ok(route.takes_alone),
        (false, false) => Ok(route.takes_alone || route.default_exclusive),
    }
}

/// What a link asks to be done with its permanent dynamic queue when it closes.
fn deletes(on_close: OnClose) -> Result<Option<Deletes>, Refusal> {
    match (on_close.deletes, on_close.purges) {
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
    if is_dynamic() || state.temporary.queues.contains_key(&route.queue_name) {
        return if rights.has(Right::Delete) {
            Ok(())
        } else {
            Err(crate::rights::no_right(Right::Delete, &route.queue_name))
        };
    }
    let detail = format!("{} is no dynamic queue: closing does not delete it", route.queue_name);
    Err(Refusal::new(reason::OPTION_NOT_VALID_FOR_TYPE, detail))
}

/// What a client that seals for itself has to know: where its messages will be, and under which policy. None for a
/// client without INQ.
fn seal_facts(state: &State, route: &Route, rights: Rights) -> Option<SealFacts> {
    let policy = route.policy.as_ref().filter(|_| rights.has(Right::Inquire))?;
    Some(SealFacts { destination: state.bound_to(route), policy: crate::mqsc::policy::text(policy) })
}
