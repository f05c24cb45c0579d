//! Hash maps whose order of iteration a simulation can repeat.
//!
//! The program's maps have hashes of their own in each process, so that no client can choose names that collide. In
//! unit tests a map's order follows from what is in it.

#[cfg(not(any(test, feature = "simulation")))]
pub use hashbrown::{HashMap, HashSet};

/// A hash that is the same in each run.
#[cfg(any(test, feature = "simulation"))]
type Repeatable = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
/// As [`hashbrown::HashMap`].
#[cfg(any(test, feature = "simulation"))]
pub type HashMap<K, V> = hashbrown::HashMap<K, V, Repeatable>;
/// As [`hashbrown::HashSet`].
#[cfg(any(test, feature = "simulation"))]
pub type HashSet<T> = hashbrown::HashSet<T, Repeatable>;
