//! The list of the sorts of objects that are defined by name, and what all of them have in common.

use super::{Process, Topic};
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// A sort of object, each of which has a name: what [`Objects`] keeps.
pub trait Named: Clone + Default + Into<Object> + PartialEq {
    /// Which sort it is.
    const SORT: Sort;

    /// All objects of the sort by name.
    fn all(objects: &Objects) -> &BTreeMap<String, Self>;

    /// An object, if it is of this sort.
    fn of(object: &Object) -> Option<&Self>;
}

/// Makes [`Objects`], [`Object`] and [`Sort`] of one line for each sort: its type, the word for it in messages, and the
/// field that its objects are kept in.
macro_rules! sorts {
    ($($(#[$doc:meta])* $sort:ident, $word:literal, $objects:ident;)*) => {
        /// Objects by name, those of each sort apart.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Objects {
            $($(#[$doc])* pub $objects: BTreeMap<String, $sort>,)*
        }

        /// An object as it is defined.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $($(#[$doc])* $sort($sort),)*
        }

        /// A sort of object.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Sort {
            $($(#[$doc])* $sort,)*
        }

        impl Sort {
            /// Every sort.
            pub const ALL: &[Sort] = &[$(Sort::$sort,)*];
        }

        impl Display for Sort {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Sort::$sort => $word,)*
                })
            }
        }

        impl Object {
            /// Which sort it is.
            pub fn sort(&self) -> Sort {
                match self {
                    $(Object::$sort(_) => Sort::$sort,)*
                }
            }
        }

        impl Objects {
            /// Whether an object of the sort has the name.
            pub fn contains(&self, sort: Sort, name: &str) -> bool {
                match sort {
                    $(Sort::$sort => self.$objects.contains_key(name),)*
                }
            }

            /// Defines an object, in the place of what has the name among those of its sort.
            pub fn set(&mut self, name: &str, object: Object) {
                match object {
                    $(Object::$sort(object) => drop(self.$objects.insert(name.to_owned(), object)),)*
                }
            }

            /// Takes an object away.
            pub fn remove(&mut self, sort: Sort, name: &str) {
                match sort {
                    $(Sort::$sort => drop(self.$objects.remove(name)),)*
                }
            }
        }

        $(
            impl From<$sort> for Object {
                fn from(object: $sort) -> Self {
                    Object::$sort(object)
                }
            }

            impl Named for $sort {
                const SORT: Sort = Sort::$sort;

                fn all(objects: &Objects) -> &BTreeMap<String, Self> {
                    &objects.$objects
                }

                fn of(object: &Object) -> Option<&Self> {
                    match object {
                        Object::$sort(object) => Some(object),
                        _ => None,
                    }
                }
            }
        )*
    };
}

sorts! {
    /// What queues with TRIGGER start.
    Process, "process", processes;
    /// What holds for a topic and those below it; [`BASE_TOPIC`](super::BASE_TOPIC) is always there.
    Topic, "topic", topics;
}
