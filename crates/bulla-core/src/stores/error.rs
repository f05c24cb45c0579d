//! Why stores can't be used together.

use bulla_queue::JournalError;
use std::fmt;

/// Why stores can't be used together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoresError {
    /// The administrator's turn: two stores have one name.
    Name {
        /// The name.
        name: String,
    },
    /// The program's turn: another store has its number.
    Number {
        /// The store.
        name: String,
        /// The number.
        number: usize,
    },
    /// The administrator's turn: a queue is in two stores.
    Queue {
        /// The queue.
        queue: String,
        /// The stores.
        stores: [String; 2],
    },
    /// The operator's turn: a store's journal takes nothing.
    Journal {
        /// Why.
        error: JournalError,
    },
    /// The administrator's turn: something is defined in two stores.
    Object {
        /// The object: `POLICY ORDERS`.
        object: String,
        /// The stores.
        stores: [String; 2],
    },
}

impl fmt::Display for StoresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoresError::Name { name } => write!(f, "two stores have the name {name}"),
            StoresError::Number { name, number } => {
                write!(f, "the store {name} is opened under number {number}, which another one has")
            }
            StoresError::Journal { error } => error.fmt(f),
            StoresError::Queue { queue, stores: [first, second] } => {
                write!(f, "the queue {queue} is in the stores {first} and {second}: delete one of the two")
            }
            StoresError::Object { object, stores: [first, second] } => {
                write!(f, "{object} is defined in the stores {first} and {second}: delete one of the two")
            }
        }
    }
}

impl std::error::Error for StoresError {}
