//! A partner that is not Bulla: one plain link an address, no transmission header on the wire, at least once.

use crate::channel::transmission;
use crate::dispatcher::peer::Link;
use crate::dispatcher::sending::{PlainLink, Sending, Way};
use crate::front::{Front, LinkId};
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use bulla_amqp::types::SenderSettleMode;
use bulla_amqp::{AttachRequest, Payload, Sections};

/// Links to one partner: one for each address.
const PLAIN_LINKS_MAX: usize = 256;

impl Sending {
    /// The link to an address at a partner that is not Bulla, and whether it can send.
    pub(super) fn plain_link(
        &mut self,
        address: &str,
        front: &mut Front,
        known: &mut HashMap<LinkId, Link>,
    ) -> Result<(LinkId, bool), Refusal> {
        let Way::Plain { session, links, .. } = &mut self.way else {
            return Err(Refusal::new(reason::CHANNEL_CONFIG_ERROR, "the partner takes all messages on one link"));
        };
        if let Some(found) = links.get(address) {
            return Ok((found.link, found.open && front.can_send(found.link)));
        }
        if links.len() >= PLAIN_LINKS_MAX {
            let detail = format!("{PLAIN_LINKS_MAX} addresses at the partner are open");
            return Err(Refusal::new(reason::RESOURCE_PROBLEM, detail));
        }
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Mixed,
            ..AttachRequest::sender(format!("{}/{address}", self.id.channel), address)
        };
        let link = front.way_out().ok_or_else(crate::channel::protocol::no_way_out)?.attach(*session, request);
        known.insert(link, Link::Sending(*session));
        links.insert(address.to_owned(), PlainLink { link, open: false });
        Ok((link, false))
    }

    /// A partner that is not Bulla gets the message without the transmission header.
    pub(super) fn on_the_wire(&self, payload: Payload) -> Payload {
        match (&self.way, Sections::scan(&payload)) {
            (Way::Plain { .. }, Ok(sections)) => transmission::taken_off(&payload, &sections).0,
            _ => payload,
        }
    }
}
