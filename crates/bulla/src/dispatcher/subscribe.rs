//! Termini that are topics: which they are, and how a link comes to a subscription.
//!
//! An address is a topic where it begins with `topic://`, or where its terminus has the capability `topic` or
//! `temporary-topic`. A subscription's name is the link's, up to the first `|`, and the client's container before it.

use super::local::Local;
use super::peer::Peer;
use super::selection;
use super::subscription::Subscription;
use crate::asker::Who;
use crate::authority::Right;
use crate::catalog::topic_names::{CONTAINER_CHARS_MAX, OF, PREFIX, is_subscription_name};
use crate::front::Attach;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::selector::Selector;
use crate::topics;
use crate::topics::subscribe::Wanted;
use bulla_amqp::Symbol;
use bulla_amqp::types::Source;

/// Capabilities of a terminus that is a topic, as JMS clients have them.
const TOPIC: &str = "topic";
const TEMPORARY_TOPIC: &str = "temporary-topic";
/// Capability of a subscription that several links get from.
const SHARED: &str = "shared";
/// Capability of one whose name is not its container's alone.
const GLOBAL: &str = "global";
/// Where the topics are that are made for a link.
const TEMPORARY_TOPICS: &str = "BULLA.TEMPORARY";
/// `terminus-durability`: the terminus goes with its link.
const NOT_DURABLE: u32 = 0;
/// `unsettled-state`, which is what an answer says of a durable subscription.
const UNSETTLED_STATE: u32 = 2;
const NEVER: &str = "never";

fn has(capabilities: &[Symbol], wanted: &str) -> bool {
    capabilities.iter().any(|capability| capability.as_str() == wanted)
}

/// Whether a terminus is a topic by its capabilities.
pub(super) fn is_topic(capabilities: &[Symbol]) -> bool {
    has(capabilities, TOPIC) || has(capabilities, TEMPORARY_TOPIC)
}

/// The topic that an address is, where it is one.
pub(super) fn topic_of(address: Option<&str>, capabilities: &[Symbol]) -> Option<String> {
    let address = address?;
    match address.strip_prefix(PREFIX) {
        Some(topic) => Some(topic.to_owned()),
        None => is_topic(capabilities).then(|| address.to_owned()),
    }
}

/// A link asks for a topic of its own: a name of its own. To make one takes both rights on it.
///
/// # Errors
/// 2035.
pub(super) fn temporary(state: &State, who: Who<'_>, local: &mut Local) -> Result<String, Refusal> {
    let topic = format!("{TEMPORARY_TOPICS}/{}", local.random.name::<16>());
    for right in [Right::Publish, Right::Subscribe] {
        state.check_topic(who, right, &topic).map_err(|refusal| Refusal {
            // The name tells nothing to a user who may not have it.
            detail: refusal.detail.replace(&topic, TEMPORARY_TOPICS),
            ..refusal
        })?;
    }
    Ok(topic)
}

/// A link with a topic for its source comes to a subscription, made for it or there already.
///
/// # Errors
/// See [`State::subscribe`]; 2440 for a name that can't be.
pub(super) fn open(
    peer: &Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    source: &mut Source,
    selector: Option<Selector>,
    is_local_left_out: bool,
) -> Result<Subscription, Refusal> {
    let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
    let topic = topic_of(source.address.as_deref(), &source.capabilities);
    let topic = topic.ok_or_else(|| Refusal::new(reason::UNKNOWN_OBJECT_NAME, "the source names no topic"))?;
    let durable = source.durable != NOT_DURABLE || source.expiry_policy.as_str() == NEVER;
    let shared = has(&source.capabilities, SHARED);
    let selector_text = selection::text(source).unwrap_or_default().trim_end().to_owned();
    if durable && selector_text.chars().any(char::is_control) {
        let detail = "the selector of a durable subscription has control characters";
        return Err(Refusal::new(reason::SELECTOR_ERROR, detail));
    }
    if durable && is_local_left_out && !is_kept_as_it_is(container(peer)) {
        let detail = "the container id of a client with a durable subscription is too long, or has what can't be kept";
        return Err(Refusal::new(reason::SUB_NAME_ERROR, detail));
    }
    let name = (durable || shared).then(|| name(peer, attach, has(&source.capabilities, GLOBAL))).transpose()?;
    let wanted = Wanted {
        topic: topic.clone(),
        name: name.clone(),
        durable,
        shared,
        selector,
        selector_text,
        not_from: is_local_left_out.then(|| container(peer).to_owned()),
    };
    let found = state.subscribe(who, wanted, &mut local.random)?;
    let durable = name.filter(|_| durable);
    if durable.is_some() {
        (source.durable, source.expiry_policy) = (UNSETTLED_STATE, Symbol::from_static(NEVER));
    }
    Ok(Subscription { topic, durable, shared, queue: found.queue, is_new: found.is_new })
}

/// A link without a source looks for the durable subscription of its name, to go on with it or to end it (AMQP part 2,
/// section 2.6.3: a terminus is recovered by the name of its link). It has it alone.
///
/// # Errors
/// 2428 where there is none, or it is another user's.
pub(super) fn recover(
    peer: &Peer,
    local: &Local,
    state: &State,
    attach: &Attach,
) -> Result<(Source, Subscription), Refusal> {
    let who = Who::client(peer.identity.user.as_deref(), local.index, peer.generation);
    let is_global = has(&attach.desired_capabilities, GLOBAL);
    let name = name(peer, attach, is_global)?;
    let none = || Refusal::new(reason::NO_SUBSCRIPTION, format!("there is no subscription {name}"));
    let (topic, queue) = state.durable_of(who, &name).ok_or_else(none)?;
    let source = Source {
        address: Some(format!("{PREFIX}{topic}")),
        durable: UNSETTLED_STATE,
        expiry_policy: Symbol::from_static(NEVER),
        capabilities: vec![Symbol::from_static(TOPIC)],
        ..Source::default()
    };
    let (topic, queue) = (topic.to_owned(), queue.to_owned());
    Ok((source, Subscription { topic, durable: Some(name), shared: false, queue, is_new: false }))
}

/// The name of the subscription that a link means: `CONTAINER|NAME`, or `|NAME` of one that is no container's. The
/// link's name is the subscription's up to a `|`: behind that a client tells its links to one subscription apart.
fn name(peer: &Peer, attach: &Attach, is_global: bool) -> Result<String, Refusal> {
    let own = attach.name.split(OF).next().unwrap_or_default();
    let name = format!("{}{OF}{own}", if is_global { "" } else { container(peer) });
    match is_subscription_name(&name) && name.len() <= topics::SUBSCRIPTION_NAME_BYTES_MAX {
        true => Ok(name),
        false => {
            let detail = "the name of a subscription has no control characters, no '*' and no blanks at its ends";
            Err(Refusal::new(reason::SUB_NAME_ERROR, detail))
        }
    }
}

/// Whether a container id is read back as it was written.
fn is_kept_as_it_is(container: &str) -> bool {
    let is_short = container.chars().count() <= CONTAINER_CHARS_MAX;
    is_short && !container.is_empty() && container.trim_end() == container && !container.chars().any(char::is_control)
}

fn container(peer: &Peer) -> &str {
    peer.opened.as_deref().map_or("", |open| open.container_id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_topic_by_its_beginning_or_by_its_capability() {
        let topic = [Symbol::from_static(TOPIC)];
        assert_eq!(topic_of(Some("topic://a/b"), &[]).as_deref(), Some("a/b"));
        assert_eq!(topic_of(Some("topic://a/b"), &topic).as_deref(), Some("a/b"));
        assert_eq!(topic_of(Some("a/b"), &topic).as_deref(), Some("a/b"));
        assert_eq!(topic_of(Some("a/b"), &[Symbol::from_static(TEMPORARY_TOPIC)]).as_deref(), Some("a/b"));
        assert_eq!(topic_of(Some("a/b"), &[Symbol::from_static("queue")]), None);
        assert_eq!(topic_of(None, &topic), None);
    }
}
