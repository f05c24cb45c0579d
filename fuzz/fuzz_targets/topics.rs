//! Any topics and patterns: an answer or an error, and of many patterns the index finds those that the definition of
//! wildcards says, and has nothing left of them at the end.
//!
//! A line each: patterns, an empty line, topics.

#![no_main]

use bulla::topics::Index;
use bulla::catalog::topic_names::{check_pattern, check_topic, is_subscription_name, literal_part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let mut index = Index::default();
    let mut patterns: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        assert!(!is_subscription_name(line) || !line.contains(['*', '\0', '\r']));
        if check_pattern(line).is_err() {
            assert!(check_topic(line).is_err(), "a topic can be subscribed to");
            continue;
        }
        let (literal, levels) = (literal_part(line), line.split('/').collect::<Vec<_>>());
        let is_wildcard = |level: &str| level == "+" || level == "#";
        assert!(line.starts_with(literal) && !literal.split('/').any(is_wildcard));
        assert_eq!(check_topic(line).is_ok(), !levels.iter().any(|level| is_wildcard(level)));
        index.insert(line, patterns.len() as u64);
        patterns.push((line, levels));
    }
    for topic in lines.filter(|topic| check_topic(topic).is_ok()) {
        let levels: Vec<&str> = topic.split('/').collect();
        let wanted = patterns.iter().enumerate().filter(|(_, (_, pattern))| fits(pattern, &levels));
        assert_eq!(index.matching(topic), wanted.map(|(id, _)| id as u64).collect::<Vec<_>>());
        assert_eq!(literal_part(topic), topic);
    }
    for (id, (pattern, _)) in patterns.iter().enumerate() {
        assert!(!index.is_empty());
        index.remove(pattern, id as u64);
    }
    assert!(index.is_empty());
});

/// Whether a pattern fits, by the definition of wildcards: which numbers of the topic's levels each of its beginnings
/// can stand for.
fn fits(pattern: &[&str], topic: &[&str]) -> bool {
    let mut reached = vec![false; topic.len() + 1];
    reached[0] = true;
    for level in pattern {
        let mut next = vec![false; topic.len() + 1];
        for at in 0..=topic.len() {
            next[at] = match *level {
                "#" => reached[..=at].contains(&true),
                level => at > 0 && reached[at - 1] && (level == "+" || level == topic[at - 1]),
            };
        }
        reached = next;
    }
    reached[topic.len()]
}
