//! Groups of shared queues that another member owns: clients that open one of their queues here are told where it is.

use crate::authority::Entity;
use crate::catalog::SharedGroup;
use crate::catalog::objects::Redirect;
use crate::group_rings::GroupRings;
use crate::mqsc::kept;
use crate::sign_in::tickets::{Holder, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A group that another member owns, as far as its log was read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupElsewhere {
    /// The member that owns it; empty where that is not known here.
    pub owner: String,
    /// Where clients reach that one; none where it has not said.
    pub address: Option<(String, u16)>,
    /// How clients get there.
    pub redirect: Redirect,
    /// SSLCIPH of the group, for links that are forwarded.
    pub cipher_spec: Option<String>,
    /// Users' key rings that the owner uses for it, as that one said last.
    pub rings: Arc<GroupRings>,
    /// Its queues.
    queues: BTreeSet<String>,
    /// Who has an authority record for which of them. What rights these give is known to the owner.
    records: BTreeSet<(String, Entity)>,
}

impl GroupElsewhere {
    /// A group that `owner` owns, whose clients get to that one as its definition here says; it has these queues and
    /// these objects of definitions.
    pub fn new<'a>(
        definition: &SharedGroup,
        owner: String,
        address: Option<(String, u16)>,
        queues: impl Iterator<Item = &'a str>,
        objects: impl Iterator<Item = &'a str>,
    ) -> Self {
        let records = objects.filter_map(kept::record_of).map(|(queue, entity)| (queue.to_owned(), entity));
        Self {
            owner,
            address: address.filter(|_| definition.redirect != Redirect::No),
            redirect: definition.redirect,
            cipher_spec: definition.cipher_spec.clone(),
            rings: Arc::default(),
            queues: queues.map(str::to_owned).collect(),
            records: records.collect(),
        }
    }

    /// The same, whose owner uses these users' key rings.
    #[must_use]
    pub fn with_rings(self, rings: GroupRings) -> Self {
        Self { rings: rings.into(), ..self }
    }

    /// Whether one of these has an authority record for a queue.
    pub fn has_record_of(&self, queue: &str, mut entities: impl Iterator<Item = Entity>) -> bool {
        entities.any(|entity| self.records.contains(&(queue.to_owned(), entity)))
    }
}

/// Asks the owner of a group for tickets, over the group's own engine.
pub trait AskOwner: Send + Sync {
    /// Asks for a ticket, and hands it to `then` on some thread; none where there was no answer. Does not wait.
    fn ask_for_ticket(&self, holder: &Holder, then: Box<dyn FnOnce(Option<Ticket>) + Send>);
}

/// The groups that other members own, by name.
#[derive(Default)]
pub struct GroupsElsewhere {
    groups: BTreeMap<String, GroupElsewhere>,
    askers: BTreeMap<String, Arc<dyn AskOwner>>,
}

impl GroupsElsewhere {
    /// Another member owns it.
    pub fn set(&mut self, group: &str, elsewhere: GroupElsewhere) {
        self.groups.insert(group.to_owned(), elsewhere);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// How its owner is asked.
    pub fn set_asker(&mut self, group: &str, asker: Arc<dyn AskOwner>) {
        self.askers.insert(group.to_owned(), asker);
    }

    /// The group of that name.
    pub fn named(&self, group: &str) -> Option<&GroupElsewhere> {
        self.groups.get(group)
    }

    /// The group that has a queue of that name, and its own name.
    pub fn with_queue(&self, queue: &str) -> Option<(&str, &GroupElsewhere)> {
        let mut all = self.groups.iter();
        all.find(|(_, group)| group.queues.contains(queue)).map(|(name, group)| (name.as_str(), group))
    }

    /// How the owner of a group is asked; none where it is owned here, or not known.
    pub fn asker(&self, group: &str) -> Option<Arc<dyn AskOwner>> {
        self.askers.get(group).cloned()
    }

    /// It is owned here, or this queue manager does not know who owns it.
    pub fn remove(&mut self, group: &str) {
        self.groups.remove(group);
        self.askers.remove(group);
    }
}
