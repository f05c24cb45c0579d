//! What a dispatcher tells an administrator of its connections (DISPLAY CONN), and how it ends one (STOP CONN); and how
//! one connection becomes the only one of its container.

use super::local::Local;
use super::peer::{Link, Partner, Peer};
use crate::catalog::connections::{Connected, ConnectionId, Handle, Purpose};
use crate::mailbox::Notice;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::sole_connection::{self, Answer, Wish};

/// A connection as DISPLAY CONN shows it.
pub(super) fn describe(peer: &Peer, local: &Local) -> Connected {
    let Partner { container, product, version, .. } = Partner::of(peer);
    let product = if version.is_empty() { product } else { format!("{product} {version}") };
    let cipher =
        peer.transport.socket.established().and_then(|ssl| ssl.current_cipher()).map(|cipher| cipher.name().to_owned());
    Connected {
        id: ConnectionId::new(local.index, peer.generation),
        user: peer.identity.user.clone(),
        application: container,
        product,
        address: peer.transport.from.map(|from| from.to_string()).unwrap_or_default(),
        cipher: cipher.unwrap_or_default(),
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
            let purpose = match &consumer.subscription {
                Some(_) => Purpose::Subscribe,
                None if consumer.browse => Purpose::Browse,
                None if consumer.exclusive => Purpose::InputExclusive,
                None => Purpose::Input,
            };
            let topic = consumer.subscription.as_ref().map(|subscription| subscription.topic.clone());
            (topic.unwrap_or_else(|| consumer.opened.clone()), purpose, consumer.outstanding.len() as u64)
        }
        Link::Receiving(receiving) => (receiving.channel().to_owned(), Purpose::Channel, 0),
        Link::Sending(_) => {
            let channel = peer.sending.as_ref().map(|sending| sending.id.channel.clone());
            (channel.unwrap_or_default(), Purpose::Channel, 0)
        }
        Link::Coordinator(_) => (String::new(), Purpose::Units, 0),
    };
    Handle { object, purpose, unsettled }
}

/// Ends a connection because an administrator said so. What its links held goes back to the queues at once; its units
/// of work are backed out.
pub(super) fn stop(peer: &mut Peer, local: &mut Local, state: &mut State) {
    if peer.opened.is_none() {
        // A partner that has not opened the connection can't be told.
        peer.end("stopped by an administrator");
    }
    let refusal = Refusal::new(reason::CONNECTION_BROKEN, "an administrator stopped this connection");
    local.forget_all(peer, state, false);
    peer.front.close(Some(refusal.to_amqp()));
    local.touch(peer.key);
}

/// Answers a client's open, unless it was closed. A client that wants to be the only connection of its container is
/// refused, or waits until the other one is gone, where there is one.
pub(crate) fn answer_open(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let wish = peer.opened.as_deref().map_or(Ok(None), |open| Wish::of(open, peer.signed_in.user.as_deref()));
    let wish = match wish {
        Ok(Some(wish)) => wish,
        Ok(None) => return peer.front.accept_open(Vec::new(), Vec::new()),
        Err(error) => return peer.front.refuse_open(sole_connection::refused_properties(), Some(error)),
    };
    match state.sole_connections.claim(&wish, ConnectionId::new(local.index, peer.generation)) {
        Answer::Opens => {
            let (capabilities, properties) = wish.granted();
            peer.front.accept_open(capabilities, properties);
            peer.sole = Some(wish);
        }
        Answer::Refused => {
            let error = sole_connection::refused(&wish.container);
            peer.front.refuse_open(sole_connection::refused_properties(), Some(error));
        }
        Answer::Waits { closes } => {
            peer.sole = Some(wish);
            post(local, closes, Notice::Displaced { generation: closes.generation() });
        }
    }
}

fn post(local: &Local, to: ConnectionId, notice: Notice) {
    if let Some(mailbox) = local.manager.mailboxes.get(to.dispatcher()) {
        mailbox.post(notice);
    }
}

/// Ends a connection for a new one of its container.
pub(super) fn displace(peer: &mut Peer, local: &mut Local, state: &mut State) {
    // It may have given the place up meanwhile.
    if peer.sole.is_some() {
        local.suspend_all(peer, state);
        local.forget_all(peer, state, false);
        peer.front.close(Some(sole_connection::displaced()));
        local.touch(peer.key);
    }
}

/// Opens a connection that has waited to be the only one of its container.
pub(super) fn open_sole(peer: &mut Peer, local: &mut Local) {
    if let Some(wish) = &peer.sole {
        let (capabilities, properties) = wish.granted();
        peer.front.accept_open(capabilities, properties);
        local.touch(peer.key);
    }
}

/// A connection has ended: the next one of its container is opened.
pub(super) fn leave_sole(peer: &mut Peer, local: &Local, state: &mut State) {
    let Some(wish) = peer.sole.take() else { return };
    let id = ConnectionId::new(local.index, peer.generation);
    if let Some(next) = state.sole_connections.leave(&wish.container, id) {
        post(local, next, Notice::Sole { generation: next.generation() });
    }
}
