//! Groups of shared queues that another member owns: clients that open one of their queues here are told where it is.

use crate::authority::Entity;
use crate::mqsc::kept;
use std::collections::{BTreeMap, BTreeSet};

/// A group that another member owns, as far as its log was read here.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupElsewhere {
    /// The member that owns it; empty where that is not known here.
    pub owner: String,
    /// Where clients reach that one; none where it has not said.
    pub address: Option<(String, u16)>,
    /// Whether a client's whole connection is sent there, and not the link alone.
    pub connections: bool,
    /// Its queues.
    queues: BTreeSet<String>,
    /// Who has an authority record for which of them. What rights these give is known to the owner.
    records: BTreeSet<(String, Entity)>,
}

impl GroupElsewhere {
    /// A group with these queues and these objects of definitions.
    pub fn new<'a>(queues: impl Iterator<Item = &'a str>, objects: impl Iterator<Item = &'a str>) -> Self {
        let records = objects.filter_map(kept::record_of).map(|(queue, entity)| (queue.to_owned(), entity));
        Self { queues: queues.map(str::to_owned).collect(), records: records.collect(), ..Self::default() }
    }

    /// Whether one of these has an authority record for a queue.
    pub fn has_record_of(&self, queue: &str, mut entities: impl Iterator<Item = Entity>) -> bool {
        entities.any(|entity| self.records.contains(&(queue.to_owned(), entity)))
    }
}

/// The groups that other members own, by name.
#[derive(Debug, Default)]
pub struct GroupsElsewhere(BTreeMap<String, GroupElsewhere>);

impl GroupsElsewhere {
    /// Another member owns it.
    pub fn set(&mut self, group: &str, elsewhere: GroupElsewhere) {
        self.0.insert(group.to_owned(), elsewhere);
    }

    /// The group of that name.
    pub fn named(&self, group: &str) -> Option<&GroupElsewhere> {
        self.0.get(group)
    }

    /// The group that has a queue of that name, and its own name.
    pub fn with_queue(&self, queue: &str) -> Option<(&str, &GroupElsewhere)> {
        let mut all = self.0.iter();
        all.find(|(_, group)| group.queues.contains(queue)).map(|(name, group)| (name.as_str(), group))
    }

    /// It is owned here, or this queue manager does not know who owns it.
    pub fn remove(&mut self, group: &str) {
        self.0.remove(group);
    }
}
