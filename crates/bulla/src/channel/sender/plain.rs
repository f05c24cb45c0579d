//! A partner that is not Bulla: one plain link an address, no transmission header on the wire, at least once.

use super::{Sending, Taken, Way, still_to_live};
use crate::channel::transmission;
use crate::dispatcher::Local;
use crate::dispatcher::peer::Link;
use crate::manager::State;
use crate::reason::{self, Refusal};
use bulla_amqp::types::SenderSettleMode;
use bulla_amqp::{AttachRequest, Connection, LinkId, Payload, Sections};
use bulla_queue::Found;

/// Links to one partner: one for each address.
const PLAIN_LINKS_MAX: usize = 256;

pub(super) struct PlainLink {
    pub(super) link: LinkId,
    pub(super) open: bool,
}

impl Sending {
    /// The link to an address at a partner that is not Bulla, and whether it can send.
    pub(super) fn plain_link(
        &mut self,
        address: &str,
        engine: &mut Connection,
        known: &mut hashbrown::HashMap<LinkId, Link>,
    ) -> Result<(LinkId, bool), Refusal> {
        let Way::Plain { links, .. } = &mut self.way else {
            return Err(Refusal::new(reason::CHANNEL_CONFIG_ERROR, "the partner takes all messages on one link"));
        };
        if let Some(found) = links.get(address) {
            return Ok((found.link, found.open && engine.can_send(found.link)));
        }
        if links.len() >= PLAIN_LINKS_MAX {
            let detail = format!("{PLAIN_LINKS_MAX} addresses at the partner are open");
            return Err(Refusal::new(reason::RESOURCE_PROBLEM, detail));
        }
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Mixed,
            ..AttachRequest::sender(format!("{}/{address}", self.id.channel), address)
        };
        let link = engine.attach(self.session, request);
        known.insert(link, Link::Sending(self.session));
        links.insert(address.to_owned(), PlainLink { link, open: false });
        Ok((link, false))
    }

    /// The message that waited for its link.
    #[allow(clippy::too_many_arguments, reason = "a message with all that its way needs")]
    pub(super) fn go_on_plain(
        &mut self,
        found: Found,
        payload: Payload,
        address: String,
        engine: &mut Connection,
        links: &mut hashbrown::HashMap<LinkId, Link>,
        local: &mut Local,
        state: &mut State,
    ) -> Taken {
        match self.plain_link(&address, engine, links) {
            Ok((link, true)) => {
                let payload = self.on_the_wire(still_to_live(payload, &found, local.wall_ms));
                self.take(found, link, payload, engine, local, state)
            }
            Ok((_, false)) => {
                if let Way::Plain { waiting, .. } = &mut self.way {
                    *waiting = Some((found, payload, address));
                }
                Taken::Blocked
            }
            Err(refusal) => {
                self.undeliverable(&found, None, &refusal, local, state);
                Taken::One
            }
        }
    }

    /// A partner that is not Bulla gets the message without the transmission header.
    pub(super) fn on_the_wire(&self, payload: Payload) -> Payload {
        match (&self.way, Sections::scan(&payload)) {
            (Way::Plain { .. }, Ok(sections)) => transmission::taken_off(&payload, &sections).0,
            _ => payload,
        }
    }
}
