//! Dead letters: what lies on a dead-letter or error queue, what its labels say, and the rules by which `bulla dlq`
//! deals with it.

pub mod rules;
