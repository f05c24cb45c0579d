//! Topics: who has subscribed to what, and where each publication goes.
//!
//! A subscription is a queue, and a publication is a message put on the queue of every subscription that it matches,
//! all in one step. So depth, limits, priorities, expiry, persistence and policies of a subscription are those of its
//! queue.
//!
//! Durable subscriptions are definitions (`DISPLAY SUB`) with a local queue; others live in memory, on a temporary
//! queue, and go with their last link. Topics need no definition: topic objects say what holds for a topic and those
//! below it. How links come to this is in `dispatcher/subscribe.rs` and `dispatcher/publish.rs`; the page is
//! `docs/operating/topics.md`.

mod index;
mod matching;
mod status;
pub mod subscribe;

pub use crate::catalog::topic_names::{MANAGED_PREFIX, PREFIX, SEPARATOR, SUBSCRIPTION_NAME_BYTES_MAX};
pub use crate::catalog::topic_names::{check_pattern, check_topic, is_subscription_name, literal_part};
pub use index::{Id, Index};

use crate::catalog::system_queues::DEFAULT_MODEL;
use crate::catalog::{Definitions, Needed, Subscription, Topic};
use crate::envelope::Defaults;
use crate::maps::HashMap;
use crate::reason::Refusal;
use crate::route::Route;
use crate::selector::Selector;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Most subscriptions that are not durable. Those that are count among the queues that may be defined.
pub const NON_DURABLE_MAX: usize = 10_000;
const DURABLE_PREFIX: &str = "SYSTEM.MANAGED.DURABLE.";
const NON_DURABLE_PREFIX: &str = "SYSTEM.MANAGED.NDURABLE.";

/// Whether a queue of that name was made for a subscription.
pub fn is_managed(queue: &str) -> bool {
    queue.starts_with(DURABLE_PREFIX) || queue.starts_with(NON_DURABLE_PREFIX)
}

/// Who has subscribed to what.
#[derive(Default)]
pub struct Topics {
    index: Index,
    live: HashMap<Id, Arc<Live>>,
    last: Id,
    /// Those that are defined, by name.
    defined: HashMap<String, Id>,
    /// Those that are not durable and shared, by name.
    shared: HashMap<String, Id>,
    /// Those whose queue was made for them, by its name.
    by_queue: HashMap<String, Id>,
    /// The topic object of each string that has one.
    objects: HashMap<String, String>,
    /// How many links publish on each topic.
    publishers: HashMap<String, u32>,
    /// Grows when a subscription comes or goes.
    version: u64,
}

/// A subscription as publications see it.
#[derive(Debug)]
pub struct Live {
    /// The topic, wildcards included.
    topic: String,
    /// The queue, as an application would open it to put.
    destination: String,
    selector: Option<Selector>,
    /// What the selector was read from.
    selector_text: String,
    /// A client whose publications are left out.
    not_from: Option<String>,
    durable: bool,
    /// Whose it is; none for a client that had not signed in, and for one that an administrator made.
    user: Option<String>,
    /// The model of its own queue, whose policy holds there.
    model: Option<String>,
    /// What has come to it; goes on where its definition changes.
    pub counts: Arc<Counts>,
}

/// What has come to a subscription since the start.
#[derive(Debug, Default)]
pub struct Counts {
    messages: AtomicU64,
    /// Milliseconds since 1970, UTC; 0 for never.
    last_message_ms: AtomicU64,
    resumed_ms: AtomicU64,
}

/// What holds for a topic: of each attribute what the nearest topic object above says.
#[derive(Clone, Debug)]
pub struct Standing {
    publish: bool,
    subscribe: bool,
    durable: bool,
    priority: u8,
    persistent: bool,
    persistent_delivery: Needed,
    non_persistent_delivery: Needed,
    durable_model: String,
    non_durable_model: String,
}

/// Where publications on a topic go, until a subscription, a definition or a policy changes.
pub struct Publisher {
    pub(crate) topic: String,
    pub(crate) targets: Vec<Target>,
    /// DEFPRTY and DEFPSIST of the topic.
    pub defaults: Defaults,
    persistent_delivery: Needed,
    non_persistent_delivery: Needed,
    generation: u64,
    version: u64,
}

/// One subscription to that topic.
pub struct Target {
    pub(crate) subscription: Arc<Live>,
    /// Its queue; why not, where that leads nowhere.
    pub route: Result<Arc<Route>, Refusal>,
}

impl Live {
    /// Which publications are wanted; none for all.
    pub fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// Whether publications of that client are left out.
    pub fn leaves_out(&self, container: Option<&str>) -> bool {
        self.not_from.is_some() && self.not_from.as_deref() == container
    }

    fn of(subscription: &Subscription, definitions: &Definitions) -> Option<Self> {
        Some(Self {
            topic: subscription.topic(definitions).filter(|topic| !topic.is_empty())?,
            destination: subscription.destination.clone(),
            selector: Selector::parse(&subscription.selector).ok().filter(|_| !subscription.selector.is_empty()),
            selector_text: subscription.selector.clone(),
            not_from: subscription.not_from.clone(),
            durable: true,
            user: subscription.user.clone(),
            model: subscription.managed.then(|| subscription.model.clone()).flatten(),
            counts: Arc::default(),
        })
    }
}

impl Publisher {
    /// Whether it still holds, with definitions of that generation.
    pub fn is_current(&self, generation: u64, topics: &Topics) -> bool {
        self.generation == generation && self.version == topics.version
    }

    /// Whether a subscription must take a publication, or none gets it.
    pub fn needs(&self, target: &Target, persistent: bool) -> bool {
        let needed = if persistent { self.persistent_delivery } else { self.non_persistent_delivery };
        needed.needs(target.subscription.durable)
    }
}

impl Topics {
    /// Takes over what is defined.
    pub fn follow(&mut self, definitions: &Definitions) {
        self.objects = definitions.topics.iter().map(|(name, topic)| (topic.string.clone(), name.clone())).collect();
        let defined = std::mem::take(&mut self.defined).into_iter();
        let before: HashMap<String, Arc<Live>> =
            defined.filter_map(|(name, id)| self.take_out(id).map(|live| (name, live))).collect();
        for (name, subscription) in &definitions.subscriptions {
            let Some(mut live) = Live::of(subscription, definitions) else { continue };
            if let Some(before) = before.get(name).filter(|before| before.destination == live.destination) {
                live.counts = before.counts.clone();
            }
            let id = self.take_in(live, subscription.managed);
            self.defined.insert(name.clone(), id);
        }
        self.version += 1;
    }

    /// A subscription has been defined, changed or deleted.
    pub fn follow_one(&mut self, name: &str, definitions: &Definitions) {
        let before = self.defined.remove(name).and_then(|id| self.take_out(id));
        self.version += 1;
        let Some(subscription) = definitions.subscriptions.get(name) else { return };
        let Some(mut live) = Live::of(subscription, definitions) else { return };
        if let Some(before) = before.filter(|before| before.destination == live.destination) {
            live.counts = before.counts.clone();
        }
        let id = self.take_in(live, subscription.managed);
        self.defined.insert(name.to_owned(), id);
    }

    /// The number of subscriptions that are not durable.
    pub fn non_durable(&self) -> usize {
        self.live.len() - self.defined.len()
    }

    fn take_in(&mut self, live: Live, has_own_queue: bool) -> Id {
        self.last += 1;
        self.index.insert(&live.topic, self.last);
        if has_own_queue {
            self.by_queue.insert(live.destination.clone(), self.last);
        }
        self.live.insert(self.last, Arc::new(live));
        self.version += 1;
        self.last
    }

    fn take_out(&mut self, id: Id) -> Option<Arc<Live>> {
        let live = self.live.remove(&id)?;
        self.index.remove(&live.topic, id);
        self.by_queue.remove(&live.destination);
        self.version += 1;
        Some(live)
    }

    /// A queue is gone, and with it the subscription that it was made for; whether there was one.
    pub fn queue_is_gone(&mut self, queue: &str) -> bool {
        let Some(id) = self.by_queue.get(queue).copied() else { return false };
        self.shared.retain(|_, known| *known != id);
        self.take_out(id).is_some()
    }

    /// The topics, wildcards included, of the subscriptions that deliver to a queue.
    pub fn that_lead_to<'a>(&'a self, queue: &'a str) -> impl Iterator<Item = &'a str> {
        self.live.values().filter(move |live| live.destination == queue).map(|live| live.topic.as_str())
    }

    /// The subscription that a queue was made for.
    fn of_queue(&self, queue: &str) -> Option<&Live> {
        self.by_queue.get(queue).and_then(|id| self.live.get(id)).map(AsRef::as_ref)
    }
}

impl Standing {
    fn of<'a>(objects: impl Iterator<Item = &'a Topic> + Clone) -> Self {
        let model = |of: fn(&Topic) -> Option<&String>| {
            objects.clone().find_map(of).cloned().unwrap_or_else(|| DEFAULT_MODEL.to_owned())
        };
        Self {
            publish: objects.clone().find_map(|topic| topic.publish).unwrap_or(true),
            subscribe: objects.clone().find_map(|topic| topic.subscribe).unwrap_or(true),
            durable: objects.clone().find_map(|topic| topic.durable).unwrap_or(true),
            priority: objects.clone().find_map(|topic| topic.default_priority).unwrap_or(4),
            persistent: objects.clone().find_map(|topic| topic.default_persistent).unwrap_or(false),
            persistent_delivery: objects.clone().find_map(|topic| topic.persistent_delivery).unwrap_or(Needed::Durable),
            non_persistent_delivery: objects
                .clone()
                .find_map(|topic| topic.non_persistent_delivery)
                .unwrap_or(Needed::None),
            durable_model: model(|topic| topic.durable_model.as_ref()),
            non_durable_model: model(|topic| topic.non_durable_model.as_ref()),
        }
    }
}

/// A topic and those above it, nearest first; the root is the empty one.
fn upwards(topic: &str) -> impl Iterator<Item = &str> + Clone {
    fn above<'a>(of: &&'a str) -> Option<&'a str> {
        (!of.is_empty()).then_some(of.rsplit_once(SEPARATOR).map_or("", |(above, _)| above))
    }
    std::iter::successors(Some(topic), above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::topic_names::{LEVELS_MAX, TOPIC_BYTES_MAX, is_of_application};

    #[test]
    fn a_topic_has_levels_without_wildcards() {
        for good in ["a", "a/b", "/a", "a//b", "a+/b#", "é/x y"] {
            assert_eq!(check_topic(good), Ok(()), "{good}");
        }
        for bad in ["", "a/+", "#", "a/#/b", "a\nb", "a ", &"x".repeat(TOPIC_BYTES_MAX + 1), &"/".repeat(LEVELS_MAX)] {
            assert!(check_topic(bad).is_err(), "{bad}");
        }
        for good in ["a/+", "#", "a/#/b", "#/a/#"] {
            assert_eq!(check_pattern(good), Ok(()), "{good}");
        }
        for bad in ["", "a/+\0", "# ", "#/a/#/b", "#/#/#"] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wildcard_subscription_is_judged_by_what_is_before_its_first_wildcard() {
        for (pattern, literal) in
            [("a/b", "a/b"), ("a/+/b", "a"), ("a/b/#", "a/b"), ("#", ""), ("/#", ""), ("//+", "/"), ("a+/#", "a+")]
        {
            assert_eq!(literal_part(pattern), literal, "{pattern}");
        }
    }

    #[test]
    fn the_way_up_ends_at_the_root() {
        let all = |topic| upwards(topic).collect::<Vec<_>>();
        assert_eq!(all("a/b/c"), ["a/b/c", "a/b", "a", ""]);
        assert_eq!(all("/a"), ["/a", ""]);
        assert_eq!(all(""), [""]);
    }

    #[test]
    fn names_of_subscriptions_are_those_of_objects_or_of_applications() {
        for good in ["AUDIT", "client|sub", "|global", "ID:é x:1|my sub", "a|b|c"] {
            assert!(is_subscription_name(good), "{good}");
        }
        for bad in ["", "a b", "client|", "a|b*", "a|\n", " a|b", "a|b "] {
            assert!(!is_subscription_name(bad), "{bad}");
        }
        assert!(is_of_application("|x") && !is_of_application("AUDIT"));
    }

    #[test]
    fn what_the_nearest_object_leaves_open_the_one_above_says() {
        let near = Topic { publish: Some(false), durable_model: Some("M".into()), ..Topic::default() };
        let far = Topic { publish: Some(true), persistent_delivery: Some(Needed::All), ..Topic::default() };
        let standing = Standing::of([&near, &far].into_iter());
        assert!(!standing.publish && standing.subscribe && standing.durable);
        assert_eq!((standing.priority, standing.persistent), (4, false));
        assert_eq!((standing.persistent_delivery, standing.non_persistent_delivery), (Needed::All, Needed::None));
        assert_eq!((standing.durable_model.as_str(), standing.non_durable_model.as_str()), ("M", DEFAULT_MODEL));
    }
}
