//! The list of the sorts of objects that are defined by name, and what is made of it: [`Definitions`] with a map for
//! each sort, and what all sorts have in common.

use super::QueueManager;
use crate::addresses::{self, AddressMaps};
use crate::authority::{self, Authorities, ChannelRules};
use crate::limits::{self, UserLimits};
use bulla_seal::Policy;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;

/// A sort of object, each of which has a name.
pub trait Named: Clone + Into<Object> + PartialEq {
    /// Which sort it is.
    const SORT: Sort;

    /// All objects of the sort by name.
    fn all(definitions: &Definitions) -> &BTreeMap<String, Self>;

    /// An object, if it is of this sort.
    fn of(object: &Object) -> Option<&Self>;
}

/// Makes [`Definitions`], [`Object`] and [`Sort`] of one line for each sort: its type, the word for it in messages, and
/// the field that its objects are kept in; then those whose maps are parts of other fields.
macro_rules! sorts {
    (
        { $($(#[$doc:meta])* $sort:ident: $type:ty, $word:literal, $objects:ident;)* }
        within { $($(#[$in_doc:meta])* $in:ident: $in_type:ty, $in_word:literal, $field:ident.$map:ident;)* }
    ) => {
        /// Everything that is defined.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Definitions {
            /// The queue manager itself.
            pub queue_manager: QueueManager,
            $($(#[$doc])* pub $objects: BTreeMap<String, $type>,)*
            /// Who may do what.
            pub authorities: Authorities,
            /// Who may use which channel, and as whom.
            pub channel_rules: ChannelRules,
            /// What users may have at once.
            pub user_limits: UserLimits,
            /// What clients' addresses stand for.
            pub address_maps: AddressMaps,
        }

        /// An object as it is defined.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "a change has one, and is not kept")]
        pub enum Object {
            $($(#[$doc])* $sort($type),)*
            $($(#[$in_doc])* $in($in_type),)*
        }

        /// A sort of object.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Sort {
            $($(#[$doc])* $sort,)*
            $($(#[$in_doc])* $in,)*
        }

        impl Sort {
            /// Every sort.
            pub const ALL: &[Sort] = &[$(Sort::$sort,)* $(Sort::$in,)*];
        }

        impl Display for Sort {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Sort::$sort => $word,)*
                    $(Sort::$in => $in_word,)*
                })
            }
        }

        impl Object {
            /// Which sort it is.
            pub fn sort(&self) -> Sort {
                match self {
                    $(Object::$sort(_) => Sort::$sort,)*
                    $(Object::$in(_) => Sort::$in,)*
                }
            }
        }

        impl Definitions {
            /// A queue manager, and nothing else.
            pub(crate) fn of(queue_manager: QueueManager) -> Self {
                Self {
                    queue_manager,
                    $($objects: BTreeMap::new(),)*
                    authorities: Authorities::default(),
                    channel_rules: ChannelRules::default(),
                    user_limits: UserLimits::default(),
                    address_maps: AddressMaps::default(),
                }
            }

            /// Whether an object of the sort has the name.
            pub fn has(&self, sort: Sort, name: &str) -> bool {
                match sort {
                    $(Sort::$sort => self.$objects.contains_key(name),)*
                    $(Sort::$in => self.$field.$map.contains_key(name),)*
                }
            }

            /// Defines an object, in the place of what has the name among those of its sort.
            pub(crate) fn set(&mut self, name: &str, object: Object) {
                match object {
                    $(Object::$sort(object) => drop(self.$objects.insert(name.to_owned(), object)),)*
                    $(Object::$in(object) => drop(self.$field.$map.insert(name.to_owned(), object)),)*
                }
            }

            /// Takes an object away.
            pub(crate) fn remove(&mut self, sort: Sort, name: &str) {
                match sort {
                    $(Sort::$sort => drop(self.$objects.remove(name)),)*
                    $(Sort::$in => drop(self.$field.$map.remove(name)),)*
                }
            }
        }

        $(
            impl From<$type> for Object {
                fn from(object: $type) -> Self {
                    Object::$sort(object)
                }
            }

            impl Named for $type {
                const SORT: Sort = Sort::$sort;

                fn all(definitions: &Definitions) -> &BTreeMap<String, Self> {
                    &definitions.$objects
                }

                fn of(object: &Object) -> Option<&Self> {
                    match object {
                        Object::$sort(object) => Some(object),
                        _ => None,
                    }
                }
            }
        )*
        $(
            impl From<$in_type> for Object {
                fn from(object: $in_type) -> Self {
                    Object::$in(object)
                }
            }

            impl Named for $in_type {
                const SORT: Sort = Sort::$in;

                fn all(definitions: &Definitions) -> &BTreeMap<String, Self> {
                    &definitions.$field.$map
                }

                fn of(object: &Object) -> Option<&Self> {
                    match object {
                        Object::$in(object) => Some(object),
                        _ => None,
                    }
                }
            }
        )*
    };
}

sorts! {
    {
        /// Queues of this queue manager.
        Local: super::LocalQueue, "queue", queues;
        /// Other names for queues; no name is that of two sorts of queue.
        Alias: super::AliasQueue, "queue", aliases;
        /// Names for queues of other queue managers, and aliases of queue managers.
        Remote: super::RemoteQueue, "queue", remotes;
        /// What dynamic queues are made of.
        Model: super::ModelQueue, "queue", models;
        /// What queues with TRIGGER start.
        Process: super::Process, "process", processes;
        /// What holds for a topic and those below it; [`BASE_TOPIC`](super::BASE_TOPIC) is always there.
        Topic: super::Topic, "topic", topics;
        /// Subscriptions that outlive their links.
        Subscription: super::Subscription, "subscription", subscriptions;
        /// Policies by the name that is opened.
        Policy: Arc<Policy>, "policy", policies;
        /// Crypto devices; [`CPU`](super::device::CPU) is always there.
        Device: super::DeviceDefinition, "device", devices;
        /// Ways to and from other queue managers.
        Channel: super::ChannelDefinition, "channel", channels;
        /// Groups of shared queues that this queue manager is a member of.
        SharedGroup: super::SharedGroup, "shared group", shared_groups;
    } within {
        /// Users who share rights.
        Group: authority::Group, "group", authorities.groups;
        /// Who may administer beside the process's owner.
        Administrators: authority::Administrators, "administrators", authorities.administrators;
        /// What addresses of clients stand for, by the address or a pattern of addresses.
        AddressMap: addresses::MappedTo, "address map", address_maps.all;
        /// What users may have at once, by the user or the beginning of names.
        Limit: limits::Limit, "limit", user_limits.all;
    }
}

impl Sort {
    /// Whether it is a sort of queue: no two queues have one name.
    pub fn is_queue(self) -> bool {
        matches!(self, Sort::Local | Sort::Alias | Sort::Remote | Sort::Model)
    }
}
