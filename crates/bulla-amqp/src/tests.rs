//! Tests of the engine as a whole, and what they share.

mod connecting;
mod links;
mod pair;
mod peer;
mod resuming;
mod sections;
mod transactions;
mod transfers;
mod values;

pub(crate) use values::{Random, Sample, check_composite, is_not_null};
