//! Subscriptions as they are defined: what their attributes mean together, and the commands for them.
//!
//! What goes on with them is in `topics/`; the page is `docs/operating/topics.md`.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure};
use super::run::{free_or_replaced, invalid, too_many, unknown};
use super::table::Key;
use crate::attributes::{Cells, Set};
use bulla_catalog::selector::Selector;
use bulla_catalog::{Change, Definitions, OBJECTS_MAX, Subscription, Topic, topic_names};

fn unless_blank(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Set for Subscription {
    fn set(&mut self, statement: &Statement) {
        for setting in &statement.settings {
            match (setting.attribute.key, &setting.value) {
                (Key::Description, Value::Text(text)) => self.description.clone_from(text),
                (Key::TopicString, Value::Text(text)) => self.string.clone_from(text),
                (Key::TopicObject, Value::Text(name)) => self.object = unless_blank(name),
                (Key::Destination, Value::Text(name)) => self.destination.clone_from(name),
                (Key::DestinationClass, Value::Word(word)) => self.managed = *word == "MANAGED",
                (Key::Selector, Value::Text(text)) => self.selector.clone_from(text),
                (Key::SubscriptionUser, Value::Text(name)) => self.user = unless_blank(name),
                (Key::SubscriptionShare, Value::Word(word)) => self.shared = *word == "YES",
                (Key::NotFrom, Value::Text(text)) => self.not_from = unless_blank(text),
                (Key::SubscriptionModel, Value::Text(name)) => self.model = unless_blank(name),
                _ => {}
            }
        }
    }
}

impl Cells for Subscription {
    fn cell(&self, key: Key) -> Option<Cell> {
        let blank = |text: &Option<String>| Cell::Text(text.clone().unwrap_or_default());
        Some(match key {
            Key::Description => Cell::Text(self.description.clone()),
            Key::TopicString => Cell::Text(self.string.clone()),
            Key::TopicObject => blank(&self.object),
            Key::Destination => Cell::Text(self.destination.clone()),
            Key::DestinationClass => Cell::word(if self.managed { "MANAGED" } else { "PROVIDED" }),
            Key::Selector => Cell::Text(self.selector.clone()),
            Key::SubscriptionUser => blank(&self.user),
            Key::SubscriptionShare => Cell::word(if self.shared { "YES" } else { "NO" }),
            Key::NotFrom => blank(&self.not_from),
            Key::SubscriptionModel => blank(&self.model),
            _ => return None,
        })
    }
}

pub(super) fn define_subscription(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let name = statement.name.stem.clone();
    let mut subscription = match statement.value(Key::Like) {
        Some(Value::Text(like)) => self::subscription(like, definitions)?.clone(),
        _ => Subscription::default(),
    };
    let exists = definitions.subscriptions.contains_key(&name);
    free_or_replaced(statement, exists)?;
    if !exists && definitions.subscriptions.len() >= OBJECTS_MAX {
        return Err(too_many(OBJECTS_MAX, "subscriptions"));
    }
    subscription.set(statement);
    queue_stays(definitions.subscriptions.get(&name), &subscription)?;
    sensible_subscription(&name, &subscription, definitions)?;
    Ok(Change::DefineSubscription { name, subscription })
}

pub(super) fn alter_subscription(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let name = statement.name.stem.clone();
    let before = subscription(&name, definitions)?;
    let mut subscription = before.clone();
    subscription.set(statement);
    queue_stays(Some(before), &subscription)?;
    sensible_subscription(&name, &subscription, definitions)?;
    Ok(Change::AlterSubscription { name, subscription })
}

pub(super) fn delete_subscription(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let name = statement.name.stem.clone();
    subscription(&name, definitions).map(|_| Change::DeleteSubscription { name })
}

/// What is sealed for one policy can't be read by another, and a queue without its subscription would stay for ever.
fn queue_stays(before: Option<&Subscription>, after: &Subscription) -> Result<(), Failure> {
    let moves = |before: &Subscription| before.destination != after.destination || before.model != after.model;
    match before.is_some_and(|before| before.managed && moves(before)) {
        true => Err(invalid("the queue of an application's subscription stays as it is", None)),
        false => Ok(()),
    }
}

fn sensible_subscription(name: &str, subscription: &Subscription, definitions: &Definitions) -> Result<(), Failure> {
    if let Some(object) = &subscription.object {
        topic(object, definitions)?;
    }
    let whole = subscription.topic(definitions).unwrap_or_default();
    if whole.is_empty() {
        return Err(invalid("a subscription needs TOPICSTR or TOPICOBJ", None));
    }
    topic_names::check_pattern(&whole).map_err(|why| invalid(format_args!("TOPICSTR {why}"), None))?;
    if subscription.destination.is_empty() {
        return Err(invalid("a subscription needs DEST", None));
    }
    let is_application_s = topic_names::is_of_application(name);
    if is_application_s != subscription.managed {
        let message = if is_application_s {
            "NAME|NAME is an application's subscription: it has DESTCLAS(MANAGED)"
        } else {
            "DESTCLAS(MANAGED) is for subscriptions that applications make"
        };
        return Err(invalid(message, None));
    }
    if subscription.managed && !subscription.destination.starts_with(topic_names::MANAGED_PREFIX) {
        let message = format!("the queue of a MANAGED subscription begins with {}", topic_names::MANAGED_PREFIX);
        return Err(invalid(message, None));
    }
    if !subscription.selector.is_empty() {
        Selector::parse(&subscription.selector).map_err(|error| invalid(error, None))?;
    }
    Ok(())
}

fn topic<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a Topic, Failure> {
    definitions.objects.topics.get(name).ok_or_else(|| unknown("topic", name))
}

fn subscription<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a Subscription, Failure> {
    /// MQRC_NO_SUBSCRIPTION
    const NO_SUBSCRIPTION: u32 = 2428;
    let found = definitions.subscriptions.get(name);
    found.ok_or_else(|| Failure { reason: Some(NO_SUBSCRIPTION), ..unknown("subscription", name) })
}

/// The application's subscription whose own queue that is. A look at every subscription, for names that can be one
/// alone.
pub(super) fn managing<'a>(queue: &str, definitions: &'a Definitions) -> Option<&'a str> {
    if !queue.starts_with(topic_names::MANAGED_PREFIX) {
        return None;
    }
    let is_its = |(_, of): &(&String, &Subscription)| of.managed && of.destination == queue;
    definitions.subscriptions.iter().find(is_its).map(|(name, _)| name.as_str())
}

/// What came of a change, for messages; none for changes of others.
pub(super) fn done(change: &Change, existed: bool) -> Option<String> {
    Some(match change {
        Change::DefineSubscription { name, .. } if existed => format!("subscription {name} replaced"),
        Change::DefineSubscription { name, .. } => format!("subscription {name} defined"),
        Change::AlterSubscription { name, .. } => format!("subscription {name} altered"),
        Change::DeleteSubscription { name } => format!("subscription {name} deleted"),
        _ => return None,
    })
}

/// What is allowed and will not work yet.
pub(super) fn forewarnings(change: &Change, definitions: &Definitions) -> Vec<String> {
    match change {
        Change::DefineSubscription { subscription, .. } | Change::AlterSubscription { subscription, .. } => {
            let destination = &subscription.destination;
            let missing = definitions.resolve_put(destination).is_err();
            missing.then(|| format!("queue {destination} does not exist yet")).into_iter().collect()
        }
        _ => Vec::new(),
    }
}
