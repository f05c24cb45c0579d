//! The change of a user's key as one act: a new key seals, the old one opens until no message needs it.
//!
//! [`steps`] does it with the files of a data directory, whether a queue manager runs there or not; `bulla key` calls
//! it. Each step is in [`record`] before the next one begins, so that whatever was interrupted is gone on with.
//! [`keeper`] is the queue manager's part: it tells the audit log of each step, and takes the old key out of use at the
//! end.

mod error;
pub mod keeper;
mod needed;
pub mod record;
mod span;
pub mod steps;

pub use error::RotationError;
pub use needed::Needed;
pub use record::{By, KeyFacts, Rotation, Rotations, Step};
pub use span::span;
