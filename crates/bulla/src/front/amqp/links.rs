//! AMQP's words for links, and the core's: sources, targets, capabilities and filters become [`Attach`], and
//! [`Granted`] becomes the answer.

use super::{core_delivery, core_link, core_session, outcomes};
use crate::catalog::topic_names;
use crate::front::link::{
    Attach, ChannelTerms, Get, Granted, KEPT_SECONDS_MAX, Keep, OnClose, Over, Place, Put, QueueWish, Wants,
};
use crate::front::outcome::Said;
use crate::front::{Event, UnitAsked, UnitStep};
use crate::outgoing::OpensItself;
use crate::reason::{self, Refusal};
use bulla_amqp::transaction::{self, Control};
use bulla_amqp::types::{AnyTarget, SenderSettleMode, Source, Target};
use bulla_amqp::{
    AttachReply, Coordinator, Delivery, DeliveryState, Error, IncomingAttach, Role, SessionId, Symbol, Value, condition,
};
use std::num::NonZeroU64;

/// A link that offers or asks for this puts and gets sealed bytes (SEAL.md, who may seal where).
const SEALED: &str = "bulla:sealed";
/// A link that asks for this gets from its queue alone (MQOO_INPUT_EXCLUSIVE), or is refused with 2042.
const EXCLUSIVE: &str = "bulla:exclusive";
/// A link that asks for this gets with others (MQOO_INPUT_SHARED), unless the queue has NOSHARE.
const SHARED_INPUT: &str = "bulla:shared";
/// A link that asks for this deletes its permanent dynamic queue on closing, where nothing is on it (MQCO_DELETE).
const DELETE_ON_CLOSE: &str = "bulla:delete-on-close";
/// A link that asks for this deletes its permanent dynamic queue on closing, with what is on it (MQCO_DELETE_PURGE).
const PURGE_ON_CLOSE: &str = "bulla:purge-on-close";
/// A link that offers or asks for this puts messages for later (`x-opt-delivery-time`).
pub(crate) const DELAYED_DELIVERY: &str = "DELAYED_DELIVERY";
/// A link that asks for this hears of a message which was put before under its idempotency key that it was, and what
/// message-id it had then: as an error of that name in *rejected*.
pub(crate) const PUT_BEFORE: &str = "bulla:put-before";
/// Under what such an error has the message-id.
const MESSAGE_ID: Symbol = Symbol::from_static("message-id");
/// What a connection and a link offer whose subscriptions may be shared, as Qpid JMS looks for it.
pub(crate) const SHARED_SUBSCRIPTIONS: &str = "SHARED-SUBS";

/// Capabilities of a terminus that is a topic, as JMS clients have them.
const TOPIC: &str = "topic";
const TEMPORARY_TOPIC: &str = "temporary-topic";
/// Capability of a subscription that several links get from.
const SHARED: &str = "shared";
/// Capability of one whose name is not its container's alone.
const GLOBAL: &str = "global";

/// `terminus-durability`: nothing of the terminus outlives its link.
const NOT_DURABLE: u32 = 0;
/// `unsettled-state`, which is what an answer says of a durable subscription.
const UNSETTLED_STATE: u32 = 2;
/// Terminus expiry policies: from when the time counts for which a link is kept.
const LINK_DETACH: &str = "link-detach";
const SESSION_END: &str = "session-end";
const CONNECTION_CLOSE: &str = "connection-close";
const NEVER: &str = "never";

/// The outcome *rejected*, among those that a link's source lists.
const REJECTED_OUTCOME: &str = "amqp:rejected:list";
/// The outcomes that a client can give to what it gets.
const OUTCOMES: [&str; 4] = ["amqp:accepted:list", REJECTED_OUTCOME, "amqp:released:list", "amqp:modified:list"];

/// The filter of selectors, as it is registered, by name and by number.
const SELECTOR: (&str, u64) = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004);
/// The filter of subscriptions that leave out what their own client publishes.
const NO_LOCAL: (&str, u64) = ("apache.org:no-local-filter:list", 0x0000_468C_0000_0003);

/// The node property that names the model.
const MODEL: &str = "bulla:model";
/// The node property that says what the name is, or begins with.
const NAME: &str = "bulla:name";
/// The node property with which a link says how long its queue lives (AMQP part 3, section 3.5.9).
const LIFETIME: &str = "lifetime-policy";
/// Descriptor of delete-on-close, an empty list.
const LIFETIME_CLOSE: u64 = 0x2b;
/// The standard's lifetime policies, each an empty list with one of these descriptors.
const LIFETIMES: [(u64, &str); 4] = [
    (LIFETIME_CLOSE, "amqp:delete-on-close:list"),
    (0x2c, "amqp:delete-on-no-links:list"),
    (0x2d, "amqp:delete-on-no-messages:list"),
    (0x2e, "amqp:delete-on-no-links-or-messages:list"),
];

/// What a link's attach said that its answer repeats.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: SessionId,
    /// The attach as it came, for a link that is forwarded.
    pub(super) wanted: Box<IncomingAttach>,
    role: Role,
    source: Option<Source>,
    target: Option<AnyTarget>,
    /// The filter that leaves out the client's own publications: repeated where it is honoured.
    no_local: Option<(Symbol, Value)>,
    /// The client wants to know whether messages for later wait until then.
    asks_for_delays: bool,
    /// The client wants to know which messages were put before.
    pub(super) asks_for_put_before: bool,
}

/// What a link hears that asked for [`PUT_BEFORE`].
pub(super) fn put_before(message_id: Option<String>) -> Error {
    let text = "a message was put before under this idempotency key";
    let info = message_id.map(|message_id| (MESSAGE_ID, Value::from(message_id.as_str()))).into_iter().collect();
    Error { info, ..Error::new(Symbol::from_static(PUT_BEFORE), text) }
}

/// Whether that is what a link has heard, and the message-id where the message had one.
pub(crate) fn was_put_before(error: &Error) -> Option<Option<&str>> {
    let message_id = || error.info.iter().find(|(key, _)| *key == MESSAGE_ID).and_then(|(_, value)| value.as_str());
    (error.condition.as_str() == PUT_BEFORE).then(message_id)
}

/// The filter of a source whose messages a selector chooses.
pub(crate) fn selected_by(selector: &str) -> (Symbol, Value) {
    let filter = Value::Described(Box::new((Value::Ulong(SELECTOR.1), Value::from(selector))));
    (Symbol::from_static(SELECTOR.0), filter)
}

/// What a client wants of a link, and what its answer repeats.
pub(super) fn asked(wanted: IncomingAttach) -> (Attach, Asked) {
    let as_it_came = Box::new(wanted.clone());
    let IncomingAttach { link, session, name, role, source, target, desired_capabilities: desired, .. } = wanted;
    let asks_for_delays = has(&desired, DELAYED_DELIVERY);
    let on_target = matches!(&target, Some(AnyTarget::Target(target)) if has(&target.capabilities, PUT_BEFORE));
    let asks_for_put_before = role == Role::Receiver && (on_target || has(&desired, PUT_BEFORE));
    let mut asked = Asked {
        session,
        wanted: as_it_came,
        role,
        source,
        target,
        no_local: None,
        asks_for_delays,
        asks_for_put_before,
    };
    let outcomes = asked.source.as_ref().map(|source| source.outcomes.as_slice()).unwrap_or_default();
    let takes_rejected = outcomes.is_empty() || has(outcomes, REJECTED_OUTCOME);
    let mut unreadable = None;
    let (wants, keep) = match (role, &asked.target, &mut asked.source) {
        (Role::Receiver, Some(AnyTarget::Coordinator(_)), _) => (Wants::Units, None),
        (Role::Receiver, Some(AnyTarget::Target(target)), _) => {
            let put = put(target, &desired, wanted.properties, &mut unreadable);
            (Wants::Put(put), keep(&target.expiry_policy, target.timeout))
        }
        (Role::Receiver, None, _) => {
            unreadable = Some(Refusal::new(reason::UNKNOWN_OBJECT_NAME, "the attach has no target"));
            (Wants::Put(Put::default()), None)
        }
        (Role::Sender, _, source) => {
            asked.no_local = source.as_mut().and_then(take_no_local);
            let mut get = get(source.as_mut(), &desired, &mut unreadable);
            get.leaves_out_own = asked.no_local.is_some();
            get.presettled = wanted.snd_settle_mode == SenderSettleMode::Settled;
            get.message_bytes_max = NonZeroU64::new(wanted.max_message_size);
            let keep = source.as_ref().and_then(|source| keep(&source.expiry_policy, source.timeout));
            (Wants::Get(Box::new(get)), keep)
        }
    };
    let attach = Attach {
        link: core_link(link),
        session: core_session(session),
        name,
        wants,
        unreadable,
        takes_rejected,
        keep,
        unsettled: wanted.unsettled.map(outcomes::unsettled),
        incomplete_unsettled: wanted.incomplete_unsettled,
    };
    (attach, asked)
}

/// A link with that target, on which the client puts.
fn put(target: &Target, desired: &[Symbol], properties: Vec<(Symbol, Value)>, unreadable: &mut Option<Refusal>) -> Put {
    let asks = |wanted| has(desired, wanted) || has(&target.capabilities, wanted);
    Put {
        place: place(
            target.dynamic.then_some(&target.dynamic_node_properties),
            target.address.as_deref(),
            &target.capabilities,
            unreadable,
        ),
        sealed: asks(SEALED),
        on_close: OnClose { deletes: asks(DELETE_ON_CLOSE), purges: asks(PURGE_ON_CLOSE) },
        channel: Some(Box::new(ChannelTerms { properties, address: target.address.clone() })),
    }
}

/// A link with that source, from which the client gets. Of its filters those stay that are honoured.
fn get(source: Option<&mut Source>, desired: &[Symbol], unreadable: &mut Option<Refusal>) -> Get {
    let Some(source) = source else {
        return Get {
            place: Place::Subscription { is_global: has(desired, GLOBAL) },
            opens_itself: OpensItself::asked(has(desired, SEALED)),
            ..Get::default()
        };
    };
    let selector = filter(source).unwrap_or_else(|refusal| {
        *unreadable = Some(refusal);
        None
    });
    let is = |wanted| has(&source.capabilities, wanted);
    let asks = |wanted| has(desired, wanted) || is(wanted);
    Get {
        place: place(
            source.dynamic.then_some(&source.dynamic_node_properties),
            source.address.as_deref(),
            &source.capabilities,
            unreadable,
        ),
        browses: source.distribution_mode.as_ref().is_some_and(|mode| mode.as_str() == "copy"),
        selector,
        durable: source.durable != NOT_DURABLE || source.expiry_policy.as_str() == NEVER,
        shared: is(SHARED),
        is_global: is(GLOBAL),
        alone: asks(EXCLUSIVE),
        with_others: asks(SHARED_INPUT),
        opens_itself: OpensItself::asked(asks(SEALED)),
        on_close: OnClose { deletes: asks(DELETE_ON_CLOSE), purges: asks(PURGE_ON_CLOSE) },
        ..Get::default()
    }
}

/// Where a terminus leads. `made_with` has the node's properties of one that is to be made.
fn place(
    made_with: Option<&Vec<(Symbol, Value)>>,
    address: Option<&str>,
    capabilities: &[Symbol],
    unreadable: &mut Option<Refusal>,
) -> Place {
    match (made_with, address) {
        (Some(_), _) if is_topic(capabilities) => Place::NewTopic,
        (Some(properties), _) => Place::NewQueue(queue_wish(properties).unwrap_or_else(|refusal| {
            unreadable.get_or_insert(refusal);
            QueueWish::default()
        })),
        (None, Some(name)) => Place::Named { name: name.to_owned(), is_topic: is_topic(capabilities) },
        (None, None) => Place::Unnamed,
    }
}

fn has(capabilities: &[Symbol], wanted: &str) -> bool {
    capabilities.iter().any(|capability| capability.as_str() == wanted)
}

/// Whether a terminus is a topic by its capabilities.
fn is_topic(capabilities: &[Symbol]) -> bool {
    has(capabilities, TOPIC) || has(capabilities, TEMPORARY_TOPIC)
}

/// What the node's properties of a dynamic terminus say: the model, and the queue or how its name begins.
fn queue_wish(properties: &[(Symbol, Value)]) -> Result<QueueWish, Refusal> {
    let mut wish = QueueWish::default();
    for (key, value) in properties {
        let slot = match key.as_str() {
            MODEL => &mut wish.model,
            NAME => &mut wish.name,
            LIFETIME if is_lifetime(value) => {
                wish.with_link = true;
                continue;
            }
            LIFETIME if *value != Value::Null => {
                let detail = "the node property lifetime-policy is none of the standard's policies";
                return Err(Refusal::new(reason::OPTIONS_ERROR, detail));
            }
            _ => continue,
        };
        let text = value.as_str().ok_or_else(|| {
            Refusal::new(reason::OPTIONS_ERROR, format!("the node property {} is not a string", key.as_str()))
        })?;
        *slot = Some(text.to_owned());
    }
    Ok(wish)
}

/// Whether a value is one of the standard's lifetime policies, by either of its descriptors.
fn is_lifetime(value: &Value) -> bool {
    LIFETIMES.iter().any(|(code, name)| is_described(value, (name, *code)))
}

/// Whether a value has that descriptor, by name or by number.
fn is_described(value: &Value, (name, code): (&str, u64)) -> bool {
    let Value::Described(both) = value else { return false };
    match &both.0 {
        Value::Ulong(descriptor) => *descriptor == code,
        Value::Symbol(descriptor) => descriptor.as_str() == name,
        _ => false,
    }
}

/// Reads the filters of a source and leaves those there that are honoured: the first selector.
fn filter(source: &mut Source) -> Result<Option<String>, Refusal> {
    let mut selector = None;
    let mut refused = None;
    source.filter.retain(|(_, filter)| {
        let Value::Described(both) = filter else { return false };
        if !is_described(filter, SELECTOR) || selector.is_some() {
            return false;
        }
        match &both.1 {
            // A selector of blanks is none (JMS 3.1, section 3.8.1.1), and honoured as such.
            Value::String(text) if text.trim().is_empty() => {}
            Value::String(text) => selector = Some(text.to_string()),
            _ => {
                let detail = format!("the filter {} is no string", SELECTOR.0);
                refused = Some(Refusal::new(reason::SELECTOR_ERROR, detail));
            }
        }
        true
    });
    refused.map_or(Ok(selector), Err)
}

/// Takes the filter that leaves out the client's own publications from a source, where there is one. For a queue it is
/// not honoured, and not repeated.
fn take_no_local(source: &mut Source) -> Option<(Symbol, Value)> {
    let at = source.filter.iter().position(|(_, filter)| is_described(filter, NO_LOCAL))?;
    Some(source.filter.remove(at))
}

/// For how long a terminus is to be kept.
fn keep(policy: &Symbol, seconds: u32) -> Option<Keep> {
    match policy.as_str() {
        LINK_DETACH => Keep::asked(Over::Link, seconds),
        SESSION_END => Keep::asked(Over::Session, seconds),
        CONNECTION_CLOSE => Keep::asked(Over::Connection, seconds),
        NEVER => Keep::asked(Over::Connection, KEPT_SECONDS_MAX),
        _ => None,
    }
}

/// The expiry policy and the time that a terminus is answered with.
fn kept(keep: Option<Keep>) -> (Symbol, u32) {
    let Some(Keep { from, seconds }) = keep else { return (Symbol::from_static(LINK_DETACH), 0) };
    let policy = match from {
        Over::Link => LINK_DETACH,
        Over::Session => SESSION_END,
        Over::Connection => CONNECTION_CLOSE,
    };
    (Symbol::from_static(policy), seconds)
}

/// What the answer says of a queue that was made: that it goes with the link, or nothing.
fn node_properties(goes_with_link: bool) -> Vec<(Symbol, Value)> {
    let policy = || Value::Described(Box::new((Value::Ulong(LIFETIME_CLOSE), Value::List(Vec::new()))));
    goes_with_link.then(|| (Symbol::from_static(LIFETIME), policy())).into_iter().collect()
}

/// What a message to the coordinator asks.
pub(super) fn unit_asked(delivery: &Delivery) -> Event {
    let step = match Control::read(&delivery.payload) {
        Err(error) => Err(Said::new(condition::DECODE_ERROR.as_str(), error.to_string())),
        Ok(Control::Declare(declare)) if declare.global_id.is_some() => {
            Err(Said::new(condition::NOT_IMPLEMENTED.as_str(), "distributed transactions are not offered"))
        }
        Ok(Control::Declare(_)) => Ok(UnitStep::Declare),
        Ok(Control::Discharge(discharge)) if discharge.fail => Ok(UnitStep::BackOut(outcomes::unit(&discharge.txn_id))),
        Ok(Control::Discharge(discharge)) => Ok(UnitStep::Commit(outcomes::unit(&discharge.txn_id))),
    };
    let Delivery { link, id, settled, beyond_credit, .. } = *delivery;
    Event::Unit(Box::new(UnitAsked { link: core_link(link), id: core_delivery(id), settled, beyond_credit, step }))
}

impl Asked {
    /// Whether the link is for units of work.
    pub(super) fn is_for_units(&self) -> bool {
        matches!((self.role, &self.target), (Role::Receiver, Some(AnyTarget::Coordinator(_))))
    }

    /// The answer to an attach that is granted.
    pub(super) fn granted(self, granted: Granted) -> AttachReply {
        let offers = [
            (granted.sealed, SEALED),
            (granted.delays && self.asks_for_delays, DELAYED_DELIVERY),
            (self.asks_for_put_before, PUT_BEFORE),
            (granted.alone, EXCLUSIVE),
            (granted.subscribed.is_some_and(|how| how.shared), SHARED_SUBSCRIPTIONS),
        ];
        let offered_capabilities = offers.into_iter().filter(|(is, _)| *is).map(|(_, name)| Symbol::from_static(name));
        let facts = granted.sealing.as_ref().map(|facts| {
            let text = |text: &String| Value::from(text.as_str());
            [("bulla:destination", text(&facts.destination)), ("bulla:policy", text(&facts.policy))]
        });
        let properties = facts.into_iter().flatten().map(|(key, value)| (Symbol::from_static(key), value));
        let reply = AttachReply {
            offered_capabilities: offered_capabilities.collect(),
            properties: properties.collect(),
            max_message_size: granted.message_bytes_max.unwrap_or(0),
            told_max_message_size: granted.queue_message_bytes_max,
            keeps_tags: granted.keeps_tags,
            resumable: granted.keep.is_some(),
            ..AttachReply::default()
        };
        match (self.role, self.target) {
            (Role::Receiver, Some(AnyTarget::Coordinator(_))) => {
                let capabilities = vec![
                    transaction::LOCAL_TRANSACTIONS,
                    transaction::MULTI_TXNS_PER_SSN,
                    transaction::MULTI_SSNS_PER_TXN,
                ];
                AttachReply { source: self.source, coordinator: Some(Coordinator { capabilities }), ..reply }
            }
            (Role::Receiver, target) => {
                let target = match target {
                    Some(AnyTarget::Target(target)) => put_on(target, &granted),
                    _ => Target::default(),
                };
                let unsettled = granted.unsettled.map(outcomes::unsettled_map);
                AttachReply { source: self.source, target: Some(target), unsettled, ..reply }
            }
            (Role::Sender, target) => {
                let target = match target {
                    Some(AnyTarget::Target(target)) => Some(target),
                    _ => None,
                };
                let source = got_from(self.source, self.no_local, &granted);
                let Granted { unsettled, resumed, .. } = granted;
                let unsettled = unsettled.map(outcomes::unsettled_map);
                AttachReply { source: Some(source), target, unsettled, resumed, ..reply }
            }
        }
    }

    /// The answer to a partner's channel, with what this end says.
    pub(super) fn granted_to_channel(self, properties: Vec<(Symbol, Value)>, message_bytes_max: u64) -> AttachReply {
        let target = match self.target {
            Some(AnyTarget::Target(target)) => target,
            _ => Target::default(),
        };
        AttachReply {
            source: Some(self.source.unwrap_or_default()),
            target: Some(target),
            properties,
            max_message_size: message_bytes_max,
            ..AttachReply::default()
        }
    }
}

/// The target of a link that puts, as it is.
fn put_on(target: Target, granted: &Granted) -> Target {
    let (expiry_policy, timeout) = kept(granted.keep);
    let is_made = target.dynamic && !is_topic(&target.capabilities);
    Target {
        address: granted.name.clone().or(target.address),
        durable: NOT_DURABLE,
        expiry_policy,
        timeout,
        dynamic_node_properties: match is_made {
            true => node_properties(granted.goes_with_link),
            false => target.dynamic_node_properties,
        },
        ..target
    }
}

/// The source of a link that gets, as it is.
fn got_from(source: Option<Source>, no_local: Option<(Symbol, Value)>, granted: &Granted) -> Source {
    let found = || Source { capabilities: vec![Symbol::from_static(TOPIC)], ..Source::default() };
    let mut source = source.unwrap_or_else(found);
    let (expiry_policy, timeout) = kept(granted.keep);
    match granted.subscribed {
        Some(how) if how.durable => {
            (source.durable, source.expiry_policy) = (UNSETTLED_STATE, Symbol::from_static(NEVER));
        }
        _ => (source.durable, source.expiry_policy, source.timeout) = (NOT_DURABLE, expiry_policy, timeout),
    }
    source.filter.extend(no_local.filter(|_| granted.subscribed.is_some()));
    let is_made = source.dynamic && !is_topic(&source.capabilities);
    Source {
        address: granted.name.clone().or(source.address),
        dynamic_node_properties: match is_made {
            true => node_properties(granted.goes_with_link),
            false => source.dynamic_node_properties,
        },
        // What is settled without an outcome, or not at all, is as if it had never been sent.
        default_outcome: Some(DeliveryState::Released),
        outcomes: OUTCOMES.map(Symbol::from_static).to_vec(),
        ..source
    }
}

/// How the addresses of topics begin, in the properties of a connection: as Qpid JMS looks for it.
pub(crate) fn topic_prefix() -> (Symbol, Value) {
    (Symbol::from_static("topic-prefix"), Value::from(topic_names::PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_properties_name_the_model_and_begin_the_name() {
        let property = |key: &'static str, text: &str| (Symbol::from_static(key), Value::from(text));
        assert_eq!(queue_wish(&[]), Ok(QueueWish::default()));
        let said = queue_wish(&[property("bulla:name", "REPLIES.*"), property("bulla:model", "SMALL")]);
        let wanted = QueueWish { model: Some("SMALL".into()), name: Some("REPLIES.*".into()), with_link: false };
        assert_eq!(said, Ok(wanted));
        let wrong = queue_wish(&[(Symbol::from_static("bulla:name"), Value::Uint(1))]);
        assert_eq!(wrong.unwrap_err().reason, reason::OPTIONS_ERROR);
    }

    #[test]
    fn a_lifetime_policy_has_two_descriptors() {
        let said = |value: Value| queue_wish(&[(Symbol::from_static(LIFETIME), value)]);
        let described = |descriptor: Value| Value::Described(Box::new((descriptor, Value::List(Vec::new()))));
        for (code, name) in LIFETIMES {
            for descriptor in [Value::Ulong(code), Value::Symbol(Symbol::from_static(name))] {
                assert!(said(described(descriptor)).unwrap().with_link, "{name}");
            }
        }
        assert_eq!(said(Value::Null), Ok(QueueWish::default()));
        for wrong in [Value::Ulong(LIFETIME_CLOSE), Value::from("delete-on-close"), described(Value::Ulong(0x2f))] {
            assert_eq!(said(wrong).unwrap_err().reason, reason::OPTIONS_ERROR);
        }
    }

    #[test]
    fn what_is_asked_for_is_answered_as_it_is_done() {
        let told = |policy: &'static str, seconds| {
            let (policy, seconds) = kept(keep(&Symbol::from_static(policy), seconds));
            (policy.as_str().to_owned(), seconds)
        };
        assert_eq!(told("session-end", 0), ("link-detach".into(), 0));
        assert_eq!(told("session-end", 7), ("session-end".into(), 7));
        assert_eq!(told("connection-close", 7_000), ("connection-close".into(), KEPT_SECONDS_MAX));
        assert_eq!(told("link-detach", 7), ("link-detach".into(), 7));
        assert_eq!(told("never", 0), ("connection-close".into(), KEPT_SECONDS_MAX));
        assert_eq!(told("x-other", 7), ("link-detach".into(), 0));
    }

    #[test]
    fn a_terminus_is_a_topic_by_its_capability() {
        for (capability, expected) in [(TOPIC, true), (TEMPORARY_TOPIC, true), ("queue", false)] {
            let place = place(None, Some("a/b"), &[Symbol::from_static(capability)], &mut None);
            assert_eq!(place, Place::Named { name: "a/b".into(), is_topic: expected });
        }
    }

    #[test]
    fn a_link_hears_what_was_put_before_and_reads_a_selector_as_it_is_written() {
        for message_id in [None, Some("id")] {
            let error = put_before(message_id.map(str::to_owned));
            assert_eq!(was_put_before(&error), Some(message_id));
        }
        assert_eq!(was_put_before(&Error::new(condition::NOT_ALLOWED, "no")), None);
        let mut source = Source { filter: vec![selected_by("a = 1")], ..Source::default() };
        assert_eq!(filter(&mut source), Ok(Some("a = 1".to_owned())));
    }

    #[test]
    fn the_first_selector_that_says_something_is_honoured() {
        let selector = |text: &str| {
            let both = (Value::Symbol(Symbol::from_static(SELECTOR.0)), Value::from(text));
            (Symbol::from_static("s"), Value::Described(Box::new(both)))
        };
        let mut source = Source {
            filter: vec![selector("  "), selector("a = 1"), selector("b = 2"), (Symbol::from_static("x"), Value::Null)],
            ..Source::default()
        };
        assert_eq!(filter(&mut source).unwrap().as_deref(), Some("a = 1"));
        assert_eq!(source.filter, [selector("  "), selector("a = 1")]);
        let number = Value::Described(Box::new((Value::Ulong(SELECTOR.1), Value::Uint(1))));
        let mut source = Source { filter: vec![(Symbol::from_static("s"), number)], ..Source::default() };
        assert_eq!(filter(&mut source).unwrap_err().reason, reason::SELECTOR_ERROR);
    }
}
