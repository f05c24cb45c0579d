//! Channels: messages cross from one queue manager to another.
//!
//! A channel is an AMQP 1.0 connection with one link, owned by one dispatcher. [`protocol`] is what the two ends say to
//! each other beside the messages, [`note`] what each keeps in its journal, [`transmission`] what a message carries on its
//! way. `docs/formats/channel.md` is the page.

pub(crate) mod delivery;
pub(crate) mod note;
pub(crate) mod protocol;
pub(crate) mod receiver;
pub(crate) mod registry;
pub(crate) mod transmission;

use crate::reason::Refusal;

/// What a channel's connection is told.
pub(crate) enum ChannelLetter {
    /// STOP CHANNEL.
    Stop {
        /// The connection's place.
        peer: usize,
        /// Which connection it was that had that place.
        generation: u64,
        /// MODE(FORCE): at once.
        force: bool,
    },
    /// The partner has connected again: that connection is the channel's now.
    Replaced {
        /// The connection's place.
        peer: usize,
        /// Which connection it was that had that place.
        generation: u64,
        /// As the old one hears it.
        why: Refusal,
    },
}
