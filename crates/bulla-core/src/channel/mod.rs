//! Channels: messages cross from one queue manager to another.
//!
//! A channel is an AMQP 1.0 connection with one link, owned by one dispatcher. [`protocol`] is what the two ends say to
//! each other beside the messages, [`note`] what each keeps in its journal, [`transmission`] what a message carries on
//! its way. `docs/formats/channel.md` is the page.
//!
//! Here is what all of the queue manager knows of channels. Their ends on a connection are `channel_ends/`.

pub mod calling;
pub mod home;
pub mod note;
pub mod partner;
pub mod protocol;
pub mod refused;
pub mod registry;
pub mod supervisor;
pub mod transmission;
pub mod triggers;

use crate::reason::Refusal;
use registry::InstanceId;
use std::io;
use std::net::SocketAddr;

/// What a dispatcher is told about a channel.
pub enum ChannelNotice {
    /// Call its partner.
    Call(InstanceId),
    /// The partner's address was looked up, or why it could not be.
    Resolved {
        /// For whom.
        id: InstanceId,
        /// CONNAME's entry.
        name: String,
        /// The first of its addresses, if it has any.
        found: io::Result<Option<SocketAddr>>,
    },
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

#[cfg(test)]
mod tests {
    use super::note::{ReceiverNote, SenderNote};
    use super::transmission::{Destination, TransmissionHeader};
    use bulla_queue::{Message, MessageId};

    const PAGE: &str = include_str!("../../../../docs/formats/channel.md");

    /// An example of the page, by its place.
    fn on_the_page(place: usize) -> Vec<u8> {
        let hex = PAGE.split("```hex\n").nth(place + 1).unwrap().split("```").next().unwrap();
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_examples_on_the_page_are_what_is_written() {
        let receiver =
            ReceiverNote { store: std::array::from_fn(|byte| byte as u8), sequence: 41, ..ReceiverNote::default() };
        assert_eq!(hex(&on_the_page(0)), hex(&receiver.encode()));
        let in_doubt = [0, 1, -1].map(|step| MessageId((1u64 << 40).wrapping_add_signed(step))).to_vec();
        let sender =
            SenderNote { base: 41, unit: 3, partner: "QM2".into(), reset: false, in_doubt, ..SenderNote::default() };
        assert_eq!(hex(&on_the_page(1)), hex(&sender.encode()));
        let header = TransmissionHeader::new(Destination::parse("ORDERS@QM2").unwrap());
        let empty = Message::new(false, bytes::Bytes::new().into());
        let written = header.put_on(empty).body.to_bytes();
        assert!(written.ends_with(&on_the_page(2)), "{}", hex(&written));
    }
}
