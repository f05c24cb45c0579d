//! Topics and patterns of topics as text, and names of subscriptions.

use super::names::is_name;

/// A level of a pattern that stands for exactly one level, whatever it is.
pub const ANY_ONE: &str = "+";

/// A level of a pattern that stands for any number of levels, none included.
pub const ANY_MANY: &str = "#";

/// Between levels.
pub const SEPARATOR: char = '/';

/// Longest topic in bytes, as MQ has it.
pub const TOPIC_BYTES_MAX: usize = 10_240;

/// Most levels of a topic.
pub const LEVELS_MAX: usize = 128;

/// Most `#` of a pattern before its last level: with more, one topic would be looked for on as many ways as its levels
/// can be divided.
const INNER_MANY_MAX: usize = 1;

/// Longest name of a subscription in bytes, as MQ has it.
pub const SUBSCRIPTION_NAME_BYTES_MAX: usize = 10_240;

/// An address that begins so is a topic, whatever the capabilities of the terminus say.
pub const PREFIX: &str = "topic://";

/// What the queues that are made for subscriptions are called.
pub const MANAGED_PREFIX: &str = "SYSTEM.MANAGED.";

/// Between client and name in the name of an application's subscription.
pub const OF: char = '|';

/// Longest container id of a client with a durable subscription, in characters.
pub const CONTAINER_CHARS_MAX: usize = 1024;

/// Whether something can be published on that.
///
/// # Errors
/// What is wrong, to be read behind `TOPICSTR` or `the topic`.
pub fn check_topic(topic: &str) -> Result<(), &'static str> {
    check_pattern(topic)?;
    match topic.split(SEPARATOR).any(is_wildcard) {
        true => Err("has a wildcard: + or # for a level"),
        false => Ok(()),
    }
}

/// Whether that can be subscribed to: a topic, or one with wildcards.
///
/// # Errors
/// What is wrong, to be read behind `TOPICSTR` or `the topic`.
pub fn check_pattern(topic: &str) -> Result<(), &'static str> {
    if topic.is_empty() {
        return Err("is empty");
    }
    if topic.len() > TOPIC_BYTES_MAX {
        return Err("is longer than 10240 bytes");
    }
    if topic.split(SEPARATOR).count() > LEVELS_MAX {
        return Err("has more than 128 levels");
    }
    let many = topic.rsplit(SEPARATOR).skip(1).filter(|level| *level == ANY_MANY).count();
    if many > INNER_MANY_MAX {
        return Err("has more than one # before its last level");
    }
    // It is kept as text, a line for each attribute, and blanks at the end of a text mean nothing there.
    if topic.chars().any(char::is_control) || topic.trim_end() != topic {
        return Err("has control characters, or a blank at its end");
    }
    Ok(())
}

/// Whether a level of a pattern is a wildcard.
pub fn is_wildcard(level: &str) -> bool {
    level == ANY_ONE || level == ANY_MANY
}

/// The topic without its wildcards and what is behind them: what decides who may subscribe.
#[must_use]
pub fn literal_part(pattern: &str) -> &str {
    let mut end = 0;
    for level in pattern.split(SEPARATOR) {
        if is_wildcard(level) {
            return pattern.get(..end.max(1) - 1).unwrap_or_default();
        }
        end += level.len() + 1;
    }
    pattern
}

/// Whether a subscription can have that name: a queue's name, or `CLIENT|NAME` of an application's.
#[must_use]
pub fn is_subscription_name(name: &str) -> bool {
    is_name(name) || name.rsplit_once(OF).is_some_and(|(_, own)| !own.is_empty()) && may_begin_subscription_name(name)
}

/// Whether names of subscriptions can begin so.
pub fn may_begin_subscription_name(name: &str) -> bool {
    let is_plain = |letter: char| !letter.is_control() && letter != '*';
    name.len() <= SUBSCRIPTION_NAME_BYTES_MAX && name.chars().all(is_plain) && name.trim() == name
}

/// Whether a subscription was made by an application, by its name.
pub fn is_of_application(name: &str) -> bool {
    name.contains(OF)
}
