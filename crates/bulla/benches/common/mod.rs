//! What the benchmarks of whole queue managers share: a queue manager of their own, a client that costs little, counts of
//! processor time, and the components that a message cannot do without.

pub(crate) mod cases;
pub(crate) mod client;
pub(crate) mod components;
pub(crate) mod flow;
pub(crate) mod manager;
pub(crate) mod pair;
pub(crate) mod processor;

/// Whatever ends a run.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
/// What may end a run.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The middle one; not a number where there is none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
