//! Topics as the other end of a link: which names they are, and how a link comes to a subscription.
//!
//! A name is a topic's where it begins with `topic://`, or where its client says so. A subscription's name is the
//! link's, up to the first `|`, and the client's container before it.

use super::local::Local;
use super::peer::Peer;
use super::subscription::Subscription;
use crate::asker::Who;
use crate::authority::Right;
use crate::catalog::topic_names::{CONTAINER_CHARS_MAX, OF, PREFIX, is_subscription_name};
use crate::front::link::{Attach, Get};
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::selector::Selector;
use crate::topics;
use crate::topics::subscribe::Wanted;

/// Where the topics are that are made for a link.
const TEMPORARY_TOPICS: &str = "BULLA.TEMPORARY";
/// The topic that a name is, where it is one.
pub fn topic_of(name: Option<&str>, is_topic: bool) -> Option<String> {
    let name = name?;
    match name.strip_prefix(PREFIX) {
        Some(topic) => Some(topic.to_owned()),
        None => is_topic.then(|| name.to_owned()),
    }
}

/// A link asks for a topic of its own: a name of its own. To make one takes both rights on it.
///
/// # Errors
/// 2035.
pub fn temporary(state: &State, who: Who<'_>, local: &mut Local) -> Result<String, Refusal> {
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

/// A link that gets from a topic comes to a subscription, made for it or there already.
///
/// # Errors
/// See [`State::subscribe`]; 2440 for a name that can't be.
pub fn open(
    peer: &Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    get: &Get,
    topic: String,
    selector: Option<Selector>,
) -> Result<Subscription, Refusal> {
    let who = Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation);
    let Get { durable, shared, leaves_out_own: is_local_left_out, .. } = *get;
    let selector_text = get.selector.as_deref().unwrap_or_default().trim_end().to_owned();
    if durable && selector_text.chars().any(char::is_control) {
        let detail = "the selector of a durable subscription has control characters";
        return Err(Refusal::new(reason::SELECTOR_ERROR, detail));
    }
    if durable && is_local_left_out && !is_kept_as_it_is(container(peer)) {
        let detail = "the container id of a client with a durable subscription is too long, or has what can't be kept";
        return Err(Refusal::new(reason::SUB_NAME_ERROR, detail));
    }
    let name = (durable || shared).then(|| name(peer, attach, get.is_global)).transpose()?;
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
    Ok(Subscription { topic, durable, shared, queue: found.queue, is_new: found.is_new })
}

/// A link looks for the durable subscription of its name, to go on with it or to end it. It has it alone.
///
/// # Errors
/// 2428 where there is none, or it is another user's.
pub fn recover(
    peer: &Peer,
    local: &Local,
    state: &State,
    attach: &Attach,
    is_global: bool,
) -> Result<Subscription, Refusal> {
    let who = Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation);
    let name = name(peer, attach, is_global)?;
    let none = || Refusal::new(reason::NO_SUBSCRIPTION, format!("there is no subscription {name}"));
    let (topic, queue) = state.durable_of(who, &name).ok_or_else(none)?;
    let (topic, queue) = (topic.to_owned(), queue.to_owned());
    Ok(Subscription { topic, durable: Some(name), shared: false, queue, is_new: false })
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
    peer.opened.as_deref().map_or("", |open| open.container.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_topic_s_by_its_beginning_or_where_its_client_says_so() {
        assert_eq!(topic_of(Some("topic://a/b"), false).as_deref(), Some("a/b"));
        assert_eq!(topic_of(Some("topic://a/b"), true).as_deref(), Some("a/b"));
        assert_eq!(topic_of(Some("a/b"), true).as_deref(), Some("a/b"));
        assert_eq!(topic_of(Some("a/b"), false), None);
        assert_eq!(topic_of(None, true), None);
    }
}
