//! Policies, key rings, and the seal itself: CMS messages bound to their place.
//!
//! The crate knows messages and identities, not queues. A [`Policy`] says what a message needs, a
//! [`ring::Ring`] whose keys there are. [`Sealer`] turns a payload into a sealed message, [`Opener`]
//! turns it back and hands it out as [`Verified`], which nothing else can make. Both stop where a
//! key is needed, a private one or a public one, and hand out a [`Step`]: keys live in devices.

mod batch;
pub mod certificate;
mod cms;
pub mod dn;
mod effort;
mod error;
mod hash_tree;
mod inspect;
mod message;
mod oid;
mod on_behalf;
mod open;
pub mod policy;
pub mod ring;
mod seal;
mod sealed_with;
mod signer;
pub mod spiffe_id;
mod step;
mod symmetric;

pub use batch::{Batch, BatchKey, Leaf, Proof};
pub use cms::looks_sealed;
pub use dn::Dn;
pub use effort::{Effort, Tally};
pub use error::{MQRC_MSG_TOO_BIG_FOR_Q, MQRC_SECURITY_ERROR, OpenError, Outcome, SealError};
pub use inspect::{InspectedBatch, Inspection, KeyName, batch_root, inspect, recipients};
pub use message::{
    Bound, CONTENT_TYPE_BYTES_MAX, Content, DESTINATION_BYTES_MAX, Expect, MESSAGE_ID_BYTES_MAX, Opened, Packing,
    SEALED_BY_BYTES_MAX, SealInfo, Sealed, SealedBinding, Verified,
};
pub use on_behalf::{FORMER_SIGNERS_MAX, FormerSigner, ON_BEHALF_BYTES_MAX, OnBehalfOf};
pub use open::{
    CACHED_KEY_AGE_MAX, CACHED_KEYS_MAX, CACHED_ROOTS_MAX, CACHED_SIGNERS_MAX, Moments, Opener, check_reader,
};
pub use policy::{Policy, PolicyError};
pub use seal::{
    CONTENT_KEY_AGE_MAX, CONTENT_KEY_BYTES_MAX, CONTENT_KEY_MESSAGES_MAX, POOLED_CONTENT_KEYS_MAX, Sealer,
    recipient_of, signer_of, weakest_recipient,
};
pub use sealed_with::{SealedWith, sealed_with};
pub use step::{Continuation, Step, WithProof, drive};
pub use symmetric::CONTENT_BYTES_MAX;
