//! How a connection becomes the only one of its container.

use super::local::Local;
use super::peer::Peer;
use crate::catalog::connections::ConnectionId;
use crate::mailbox::Notice;
use crate::manager::State;
use crate::sole_connection::{self, Answer, Wish};

/// Answers a client's open, unless it was closed. A client that wants to be the only connection of its container is
/// refused, or waits until the other one is gone, where there is one.
pub fn answer_open(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let from = peer.address();
    peer.front.let_in(peer.login.identity.user.as_deref(), from, peer.place.generation);
    let wish =
        peer.opened.as_deref().map_or(Ok(None), |said| Wish::of(said, peer.login.sign_in.identity.user.as_deref()));
    let wish = match wish {
        Ok(Some(wish)) => wish,
        Ok(None) => return peer.front.accept_open(None),
        Err(why) => return peer.front.refuse_open(why),
    };
    match state.clients.sole_connections.claim(&wish, ConnectionId::new(local.index, peer.place.generation)) {
        Answer::Opens => {
            peer.front.accept_open(Some(wish.policy));
            peer.holds.sole = Some(wish);
        }
        Answer::Refused => peer.front.refuse_open(sole_connection::refused(&wish.container)),
        Answer::Waits { closes } => {
            peer.holds.sole = Some(wish);
            post(local, closes, Notice::Displaced { generation: closes.generation() });
        }
    }
}

fn post(local: &Local, to: ConnectionId, notice: Notice) {
    if let Some(mailbox) = local.manager.workers.mailboxes.get(to.dispatcher()) {
        mailbox.post(notice);
    }
}

/// Opens a connection that has waited to be the only one of its container.
pub fn open(peer: &mut Peer, local: &mut Local) {
    if let Some(wish) = &peer.holds.sole {
        peer.front.accept_open(Some(wish.policy));
        local.touch(peer.place.key);
    }
}

/// A connection has ended: the next one of its container is opened.
pub fn leave(peer: &mut Peer, local: &Local, state: &mut State) {
    let Some(wish) = peer.holds.sole.take() else { return };
    let id = ConnectionId::new(local.index, peer.place.generation);
    if let Some(next) = state.clients.sole_connections.leave(&wish.container, id) {
        post(local, next, Notice::Sole { generation: next.generation() });
    }
}
