//! Changes of what is defined.

use super::authority::{RecordKey, Rights, Rule, RuleKey};
use super::{Object, QueueManager, Sort};

/// What is to become true. Objects are whole: as they shall be, not what is different.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new object, or a replacement. A queue keeps its messages; a channel is not started.
    Define {
        /// Its name.
        name: String,
        /// As it shall be.
        object: Object,
    },
    /// An existing object; what runs goes on as it is until it is started anew.
    Alter {
        /// Its name.
        name: String,
        /// As it shall be.
        object: Object,
    },
    /// No such object any more, nor the queue that goes with it
    /// ([`Definitions::queue_of`](super::Definitions::queue_of)), nor a group's authority records. A queue or alias is
    /// refused with `AdminError::InUse` while it is open, a queue that holds messages with `AdminError::NotEmpty`
    /// unless `purge`.
    Delete {
        /// Its name.
        name: String,
        /// Which sort it is.
        sort: Sort,
        /// The messages of a queue go too.
        purge: bool,
    },
    /// Its messages go. Refused with `AdminError::InUse` while it is open.
    ClearLocal {
        /// Its name.
        name: String,
    },
    /// The queue manager.
    AlterManager(QueueManager),
    /// Authority records, new or as they shall be.
    SetAuthority(Vec<(RecordKey, Rights)>),
    /// No such authority records any more.
    DeleteAuthority(Vec<RecordKey>),
    /// A rule for connections, new or as it shall be.
    SetChannelRule(RuleKey, Rule),
    /// No such rule any more.
    DeleteChannelRule(RuleKey),
}

impl Change {
    /// An existing object.
    pub fn alter(name: impl Into<String>, object: impl Into<Object>) -> Self {
        Change::Alter { name: name.into(), object: object.into() }
    }

    /// A new object, or a replacement.
    pub fn define(name: impl Into<String>, object: impl Into<Object>) -> Self {
        Change::Define { name: name.into(), object: object.into() }
    }

    /// No such object any more; messages are not purged.
    pub fn delete(name: impl Into<String>, sort: Sort) -> Self {
        Change::Delete { name: name.into(), sort, purge: false }
    }

    /// The sort and the name of the object that it defines, alters or deletes, where that is in the list of sorts.
    pub fn object(&self) -> Option<(Sort, &str)> {
        match self {
            Change::Define { name, object } | Change::Alter { name, object } => Some((object.sort(), name)),
            Change::Delete { name, sort, .. } => Some((*sort, name)),
            _ => None,
        }
    }

    /// Whether it defines, alters or deletes an object of one of these sorts.
    pub fn is_of(&self, sorts: &[Sort]) -> bool {
        self.object().is_some_and(|(sort, _)| sorts.contains(&sort))
    }
}
