//! Addresses that clients name, and the queues or topics they stand for: SET ADDRMAP.
//!
//! A client's own names (`test-queue`, `queue://orders`) lead to queues and topics here, so that it need not change. An
//! address is looked up once; what it stands for is not looked up again, so there are no loops.

use super::names::is_name;
use super::topic_names::{self, check_pattern};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Most entries: an address is compared with each pattern.
pub const ADDRESS_MAPS_MAX: usize = 1_000;
/// Longest address of an entry, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;
/// Stands for any characters of an address, and for the same characters in the name.
const ANY: char = '*';
/// Objects of the queue manager's own: no pattern leads away from them.
const OWN_PREFIX: &str = "SYSTEM.";

/// What an address stands for; a `*` in it is what the pattern's `*` stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MappedTo {
    /// A queue, an alias or a remote queue.
    Queue(String),
    /// A topic.
    Topic(String),
}

/// Whether an entry can have that address: a `*` at most, no control characters, and no `@`, which names a queue
/// manager.
#[must_use]
pub fn is_address_pattern(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= ADDRESS_BYTES_MAX
        && text.matches(ANY).count() <= 1
        && !text.contains(|character: char| character == '@' || character.is_control())
}

/// Whether a name can be a queue's; with `*` where `pattern` has one.
pub fn is_queue_for(name: &str, pattern: &str) -> bool {
    is_name(&name.replacen(ANY, "", 1)) && (pattern.contains(ANY) || !name.contains(ANY))
        || name == "*" && pattern.contains(ANY)
}

/// Whether a name can be a topic's; with `*` where `pattern` has one.
pub fn is_topic_for(name: &str, pattern: &str) -> bool {
    let stars = name.matches(ANY).count();
    let has_wildcard = name.split('/').any(|level| level == "+" || level == "#");
    check_pattern(name).is_ok() && !has_wildcard && stars <= usize::from(pattern.contains(ANY))
}

/// All entries, by their addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AddressMaps {
    pub(crate) all: BTreeMap<String, MappedTo>,
}

impl AddressMaps {
    /// The entry of that very address.
    #[must_use]
    pub fn get(&self, address: &str) -> Option<&MappedTo> {
        self.all.get(address)
    }

    /// A new entry, or another meaning of one.
    pub fn set(&mut self, address: &str, to: MappedTo) {
        self.all.insert(address.to_owned(), to);
    }

    /// Another pattern that fits some address as well as this one does: none may, because neither would come first.
    pub fn ambiguous_with(&self, pattern: &str) -> Option<&str> {
        let (beginning, end) = pattern.split_once(ANY)?;
        let others = self.all.keys().map(String::as_str);
        let fits_too = |other: &&str| {
            let Some((other_beginning, other_end)) = other.split_once(ANY) else { return false };
            let one_begins = beginning.starts_with(other_beginning) || other_beginning.starts_with(beginning);
            one_begins && (end.ends_with(other_end) || other_end.ends_with(end))
        };
        others.filter(|other| other.len() == pattern.len() && *other != pattern).find(fits_too)
    }

    /// What a client's address stands for: `topic://…` or the name of a queue; itself where no entry fits. The entry of
    /// the very address comes before patterns, and the longest pattern first. Of a terminus that is a topic by its
    /// capabilities, or by `topic://`, entries with a topic alone count.
    #[must_use]
    pub fn resolve<'a>(&self, address: &'a str, is_topic: bool) -> Cow<'a, str> {
        if self.all.is_empty() || address.contains('@') {
            return Cow::Borrowed(address);
        }
        let is_topic = is_topic || address.starts_with(topic_names::PREFIX);
        let counts = |to: &MappedTo| matches!(to, MappedTo::Topic(_)) || !is_topic;
        let named = self.all.get(address).filter(|_| !address.contains(ANY)).map(|to| (to, ""));
        let found = named.filter(|(to, _)| counts(to)).or_else(|| self.by_pattern(address, counts));
        match found {
            None => Cow::Borrowed(address),
            Some((MappedTo::Queue(name), any)) => Cow::Owned(name.replacen(ANY, any, 1)),
            Some((MappedTo::Topic(name), any)) => {
                Cow::Owned(format!("{}{}", topic_names::PREFIX, name.replacen(ANY, any, 1)))
            }
        }
    }

    fn by_pattern<'a>(&self, address: &'a str, counts: impl Fn(&MappedTo) -> bool) -> Option<(&MappedTo, &'a str)> {
        if address.starts_with(OWN_PREFIX) {
            return None;
        }
        let fitting = self.all.iter().filter_map(|(pattern, to)| {
            let (beginning, end) = pattern.split_once(ANY)?;
            let any = address.strip_prefix(beginning)?.strip_suffix(end)?;
            counts(to).then_some((pattern.len(), to, any))
        });
        fitting.max_by_key(|(length, ..)| *length).map(|(_, to, any)| (to, any))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps() -> AddressMaps {
        let mut maps = AddressMaps::default();
        for (address, queue) in [
            ("test-queue", "TEST.QUEUE"),
            ("queue://*", "*"),
            ("queue://eu.*", "EU.*"),
            ("a*z", "AZ"),
            ("TEST.QUEUE", "NOT.TWICE"),
        ] {
            maps.set(address, MappedTo::Queue(queue.into()));
        }
        maps.set("prices/*", MappedTo::Topic("market/*/now".into()));
        maps
    }

    #[test]
    fn an_address_stands_for_what_fits_it_best_and_is_looked_up_once() {
        let maps = maps();
        let resolve = |address| maps.resolve(address, false).into_owned();
        assert_eq!(resolve("test-queue"), "TEST.QUEUE", "and not NOT.TWICE");
        assert_eq!(resolve("queue://ORDERS"), "ORDERS");
        assert_eq!(resolve("queue://eu.ORDERS"), "EU.ORDERS", "the longer pattern");
        assert_eq!(resolve("queue://test-queue"), "test-queue", "once");
        assert_eq!(resolve("az"), "AZ");
        assert_eq!(resolve("a"), "a", "beginning and end do not overlap");
        assert_eq!(resolve("prices/tin"), "topic://market/tin/now");
        assert_eq!(resolve("other"), "other");
        assert_eq!(resolve("queue://ORDERS@QM2"), "queue://ORDERS@QM2");
        assert_eq!(resolve("queue://*"), "*", "a * of the client's is no pattern");
    }

    #[test]
    fn entries_for_queues_are_not_for_topics_and_no_pattern_leads_away_from_system_objects() {
        let mut maps = maps();
        assert_eq!(maps.resolve("test-queue", true), "test-queue");
        assert_eq!(maps.resolve("prices/tin", true), "topic://market/tin/now");
        maps.set("*", MappedTo::Queue("ALL.*".into()));
        assert_eq!(maps.resolve("topic://x", false), "topic://x");
        assert_eq!(maps.resolve("x", false), "ALL.x");
        assert_eq!(maps.resolve("SYSTEM.DEAD.LETTER.QUEUE", false), "SYSTEM.DEAD.LETTER.QUEUE");
    }

    #[test]
    fn patterns_of_which_neither_comes_first_are_found() {
        let maps = maps();
        for (pattern, other) in [("*a-z", None), ("az*", Some("a*z")), ("*az", Some("a*z")), ("b*z", None)] {
            assert_eq!(maps.ambiguous_with(pattern), other, "{pattern}");
        }
        assert_eq!(maps.ambiguous_with("a-*"), Some("a*z"));
        assert_eq!(maps.ambiguous_with("a*z"), None, "itself");
    }

    #[test]
    fn an_address_has_a_star_at_most_and_its_name_too() {
        for good in ["test-queue", "queue://*", "*", "/queues/a b", "Ünı"] {
            assert!(is_address_pattern(good), "{good}");
        }
        for bad in ["", "a*b*", "a@QM", "a\nb"] {
            assert!(!is_address_pattern(bad), "{bad}");
        }
        assert!(is_queue_for("A.*", "a*") && is_queue_for("*", "a*") && is_queue_for("A", "a*"));
        assert!(!is_queue_for("A.*", "a") && !is_queue_for("A-B", "a") && !is_queue_for("A.*.*", "a*"));
        assert!(is_topic_for("a/*", "a*") && !is_topic_for("a/*", "a") && !is_topic_for("a/#", "a"));
    }
}
