//! What a dispatcher tells an administrator of its connections (DISPLAY CONN), and how it ends one (STOP CONN).

use super::consumer::Mode;
use super::ending;
use super::local::Local;
use super::peer::{Link, Peer};
use crate::catalog::connections::{Connected, ConnectionId, Handle, Purpose};
use crate::channel::partner::Partner;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::sole_connection;

/// A connection as DISPLAY CONN shows it.
pub fn describe(peer: &Peer, local: &Local) -> Connected {
    let Partner { container, product, version, .. } = peer.partner();
    let product = if version.is_empty() { product } else { format!("{product} {version}") };
    Connected {
        id: ConnectionId::new(local.index, peer.place.generation),
        user: peer.login.identity.user.clone(),
        application: container,
        product,
        address: peer.from.map(|from| from.to_string()).unwrap_or_default(),
        cipher: peer.transport.cipher().unwrap_or_default(),
        key_group: peer.transport.key_group().unwrap_or_default(),
        since_ms: peer.since_ms,
        handles: peer.links.values().map(|link| handle(link, peer)).collect(),
    }
}

fn handle(link: &Link, peer: &Peer) -> Handle {
    let (object, purpose, unsettled) = match link {
        Link::Producer(producer) => {
            let topic = producer.publishing.as_ref().and_then(|publishing| publishing.topic());
            let purpose = if topic.is_some() { Purpose::Publish } else { Purpose::Output };
            (topic.map(str::to_owned).or_else(|| producer.opened.clone()).unwrap_or_default(), purpose, 0)
        }
        Link::Consumer(consumer) => {
            let purpose = match (consumer.subscription(), consumer.mode) {
                (Some(_), _) => Purpose::Subscribe,
                (None, Mode::Browses) => Purpose::Browse,
                (None, Mode::TakesAlone) => Purpose::InputExclusive,
                (None, Mode::Takes) => Purpose::Input,
            };
            let topic = consumer.subscription().map(|subscription| subscription.topic.clone());
            (topic.unwrap_or_else(|| consumer.opened.clone()), purpose, consumer.deliveries.outstanding.len() as u64)
        }
        Link::Receiving(receiving) => (receiving.channel().to_owned(), Purpose::Channel, 0),
        Link::Sending(_) => {
            let channel = peer.channel.sending.as_ref().map(|sending| sending.id.channel.clone());
            (channel.unwrap_or_default(), Purpose::Channel, 0)
        }
        Link::Coordinator(_) => (String::new(), Purpose::Units, 0),
    };
    Handle { object, purpose, unsettled }
}

/// Ends a connection because an administrator said so. What its links held goes back to the queues at once; its units
/// of work are backed out.
pub fn stop(peer: &mut Peer, local: &mut Local, state: &mut State) {
    if peer.opened.is_none() {
        // A partner that has not opened the connection can't be told.
        peer.end("stopped by an administrator");
    }
    let refusal = Refusal::new(reason::CONNECTION_BROKEN, "an administrator stopped this connection");
    ending::forget_all(peer, local, state, false);
    peer.front.close(Some(refusal.into()));
    local.touch(peer.place.key);
}

/// Ends a connection for a new one of its container.
pub fn displace(peer: &mut Peer, local: &mut Local, state: &mut State) {
    // It may have given the place up meanwhile.
    if peer.holds.sole.is_some() {
        ending::suspend_all(peer, local, state);
        ending::forget_all(peer, local, state, false);
        peer.front.close(Some(sole_connection::displaced()));
        local.touch(peer.place.key);
    }
}
