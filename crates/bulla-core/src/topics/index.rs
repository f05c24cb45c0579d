//! Which subscriptions a topic matches: a tree of levels, so that a look-up costs by what matches and not by what there
//! is.

use crate::catalog::topic_names::{ANY_MANY, ANY_ONE, SEPARATOR};
use crate::maps::HashMap;
use slab::Slab;

/// Names a subscription in the index; never used again.
pub type Id = u64;

/// Patterns by their levels: topics, in which a level may be a wildcard.
pub struct Index {
    nodes: Slab<Node>,
    root: usize,
}

/// What patterns have in common up to here.
#[derive(Default)]
struct Node {
    levels: HashMap<Box<str>, usize>,
    any_one: Option<usize>,
    any_many: Option<usize>,
    /// Patterns that end here.
    here: Vec<Id>,
    /// Reached by [`ANY_MANY`]: it stays reached by whatever level follows.
    stays: bool,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.here.is_empty() && self.levels.is_empty() && self.any_one.is_none() && self.any_many.is_none()
    }

    fn next(&self, level: &str) -> Option<usize> {
        match level {
            ANY_ONE => self.any_one,
            ANY_MANY => self.any_many,
            level => self.levels.get(level).copied(),
        }
    }
}

impl Default for Index {
    fn default() -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(Node::default());
        Self { nodes, root }
    }
}

impl Index {
    /// Whether there is no pattern in it, nor anything left of one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Takes a pattern in. One step a level.
    pub fn insert(&mut self, pattern: &str, id: Id) {
        let mut at = self.root;
        for level in pattern.split(SEPARATOR) {
            at = match self.nodes[at].next(level) {
                Some(next) => next,
                None => {
                    let next = self.nodes.insert(Node { stays: level == ANY_MANY, ..Node::default() });
                    let node = &mut self.nodes[at];
                    match level {
                        ANY_ONE => node.any_one = Some(next),
                        ANY_MANY => node.any_many = Some(next),
                        level => drop(node.levels.insert(level.into(), next)),
                    }
                    next
                }
            };
        }
        self.nodes[at].here.push(id);
    }

    /// Forgets a pattern, and what led to it alone.
    pub fn remove(&mut self, pattern: &str, id: Id) {
        let mut path = vec![(self.root, "")];
        for level in pattern.split(SEPARATOR) {
            let (at, _) = path[path.len() - 1];
            let Some(next) = self.nodes[at].next(level) else { return };
            path.push((next, level));
        }
        let (last, _) = path[path.len() - 1];
        self.nodes[last].here.retain(|known| *known != id);
        while let Some((at, level)) = path.pop() {
            let Some((above, _)) = path.last().copied() else { return };
            if !self.nodes[at].is_empty() {
                return;
            }
            self.nodes.remove(at);
            let node = &mut self.nodes[above];
            match level {
                ANY_ONE => node.any_one = None,
                ANY_MANY => node.any_many = None,
                level => drop(node.levels.remove(level)),
            }
        }
    }

    /// Every pattern that fits a topic, each once, in the order they were taken in.
    #[must_use]
    pub fn matching(&self, topic: &str) -> Vec<Id> {
        let mut reached = Vec::new();
        self.reach(self.root, &mut reached);
        for level in topic.split(SEPARATOR) {
            let mut next = Vec::with_capacity(reached.len());
            for at in reached {
                let node = &self.nodes[at];
                if node.stays {
                    self.reach(at, &mut next);
                }
                // A topic has no wildcards: what looks like one is found by the names alone.
                let named = node.levels.get(level).copied();
                named.into_iter().chain(node.any_one).for_each(|found| self.reach(found, &mut next));
            }
            next.sort_unstable();
            next.dedup();
            reached = next;
        }
        let mut found: Vec<Id> = reached.into_iter().flat_map(|at| self.nodes[at].here.iter().copied()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// A node, and those that it reaches without a level.
    fn reach(&self, at: usize, reached: &mut Vec<usize>) {
        let mut next = Some(at);
        while let Some(at) = next {
            reached.push(at);
            next = self.nodes[at].any_many;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, topic: &str) -> bool {
        let mut index = Index::default();
        index.insert(pattern, 1);
        let found = index.matching(topic);
        index.remove(pattern, 1);
        assert!(index.is_empty(), "{pattern} leaves something behind");
        found == [1]
    }

    /// The same by its definition: every way to divide the levels.
    fn fits_by_trying(pattern: &[&str], topic: &[&str]) -> bool {
        match (pattern.split_first(), topic.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((&ANY_MANY, after)), _) => (0..=topic.len()).any(|skip| fits_by_trying(after, &topic[skip..])),
            (Some(_), None) => false,
            (Some((&level, after)), Some((first, rest))) => {
                (level == ANY_ONE || level == *first) && fits_by_trying(after, rest)
            }
        }
    }

    #[test]
    fn wildcards_stand_for_whole_levels() {
        for (pattern, topic, wanted) in [
            ("a/b", "a/b", true),
            ("a/b", "a/B", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("a/+", "a/", true),
            ("a/+", "a/b/c", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "ab", false),
            ("#", "a", true),
            ("#", "/a/b", true),
            ("+", "/a", false),
            ("+/a", "/a", true),
            ("a/#/z", "a/z", true),
            ("a/#/z", "a/b/c/z", true),
            ("a/#/z", "a/b/c", false),
            ("a+/b", "a+/b", true),
            ("a+/b", "ax/b", false),
            ("#/+", "a", true),
        ] {
            assert_eq!(fits(pattern, topic), wanted, "{pattern} {topic}");
        }
    }

    #[test]
    fn what_matches_is_what_the_definition_says_for_every_short_pattern_and_topic() {
        let combinations = |letters: &[&str]| {
            let mut all: Vec<Vec<String>> = Vec::new();
            let mut last: Vec<Vec<String>> = vec![Vec::new()];
            for _ in 0..4 {
                last = last
                    .iter()
                    .flat_map(|head| letters.iter().map(|letter| [head.as_slice(), &[(*letter).to_owned()]].concat()))
                    .collect();
                all.extend(last.iter().cloned());
            }
            all
        };
        let patterns = combinations(&["a", "b", ANY_ONE, ANY_MANY]);
        let mut index = Index::default();
        for (id, pattern) in patterns.iter().enumerate() {
            index.insert(&pattern.join("/"), id as Id);
        }
        for topic in combinations(&["a", "b", ""]) {
            let levels: Vec<&str> = topic.iter().map(String::as_str).collect();
            let wanted = patterns.iter().enumerate().filter(|(_, pattern)| {
                let pattern: Vec<&str> = pattern.iter().map(String::as_str).collect();
                fits_by_trying(&pattern, &levels)
            });
            let wanted: Vec<Id> = wanted.map(|(id, _)| id as Id).collect();
            assert_eq!(index.matching(&topic.join("/")), wanted, "{topic:?}");
        }
        for (id, pattern) in patterns.iter().enumerate() {
            index.remove(&pattern.join("/"), id as Id);
        }
        assert!(index.is_empty());
    }

    #[test]
    fn two_subscriptions_to_one_pattern_are_two() {
        let mut index = Index::default();
        index.insert("a/#", 1);
        index.insert("a/#", 2);
        index.insert("a/b", 3);
        assert_eq!(index.matching("a/b"), [1, 2, 3]);
        index.remove("a/#", 1);
        index.remove("x/y", 3);
        assert_eq!(index.matching("a/b"), [2, 3]);
    }
}
