//! Channels: messages cross from one queue manager to another.
//!
//! A channel is an AMQP 1.0 connection with one link, owned by one dispatcher. [`protocol`] is what the two ends say to
//! each other beside the messages, [`note`] what each keeps in its journal, [`transmission`] what a message carries on its
//! way. `docs/formats/channel.md` is the page.

pub(crate) mod note;
pub(crate) mod protocol;
pub(crate) mod registry;
pub(crate) mod transmission;
