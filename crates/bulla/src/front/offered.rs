//! What a new AMQP connection is offered: its front end, with the mechanisms and the capabilities of this side.

use super::Front;
use super::amqp::Amqp;
use super::amqp::links::{DELAYED_DELIVERY, SHARED_SUBSCRIPTIONS, topic_prefix};
use crate::channel::protocol::{self, CAPABILITY, REFUSALS};
use crate::dispatcher::local::Local;
use bulla_amqp::{Config, Connection, Mechanism, SaslOffer, Symbol};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// Largest frame accepted, in bytes: a message of 4 MB comes in four.
const MAX_FRAME_BYTES: u32 = 1 << 20;
/// Highest channel: sessions of a connection, less one.
const CHANNEL_MAX: u16 = 255;

/// The front end of a new AMQP connection. `certificate` says that the client has shown a verified one, and `private`
/// that no one can read along.
pub(crate) fn front(local: &Local, certificate: bool, private: bool) -> Box<Front> {
    let config = Config {
        max_frame_size: MAX_FRAME_BYTES,
        channel_max: CHANNEL_MAX,
        idle_timeout: Some(local.manager.listening.idle_timeout),
        offered_capabilities: ["ANONYMOUS-RELAY", DELAYED_DELIVERY, SHARED_SUBSCRIPTIONS, CAPABILITY, REFUSALS]
            .map(Symbol::from_static)
            .to_vec(),
        properties: protocol::identity().into_iter().chain([topic_prefix()]).collect(),
        host_opens: true,
        ..Config::new(&*local.manager.name)
    };
    let bare = !local.manager.sign_ins.required.load(Ordering::Relaxed);
    let offer = offer(certificate, private && local.manager.sign_ins.tokens.are_taken(), bare);
    Box::new(Amqp::new(Connection::server(config, offer, local.now)))
}

/// Whether a connection in clear can't be read by others: the client is on this machine.
pub(crate) fn is_private(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// EXTERNAL stands first, and only where a certificate was verified: some clients pick it wherever it is offered. SASL
/// may be left out where `bare`: queue managers that call do not.
fn offer(certificate: bool, tokens: bool, bare: bool) -> SaslOffer {
    let external = certificate.then_some(Mechanism::External);
    let bearer = tokens.then_some(Mechanism::OAuthBearer);
    let strong = external.into_iter().chain([Mechanism::ScramSha256]).chain(bearer);
    let mechanisms = strong.chain([Mechanism::Plain, Mechanism::Anonymous, Mechanism::Ticket]).collect();
    SaslOffer { mechanisms, allow_bare_amqp: bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_asked_for_where_nobody_reads_along() {
        let bearer = |tokens| offer(false, tokens, true).mechanisms.contains(&Mechanism::OAuthBearer);
        assert!(bearer(true) && !bearer(false));
        for (address, here) in [
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("10.0.0.1", false),
            ("2001:db8::1", false),
            ("::ffff:192.0.2.1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_private(address.parse().unwrap()), here, "{address}");
        }
    }
}
