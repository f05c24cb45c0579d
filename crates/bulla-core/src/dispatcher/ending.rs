//! What becomes of what links and connections held when they end.

use super::consumer::Terminus;
use super::consumers::Seat;
use super::local::{Local, queue_is_gone};
use super::peer::{Link, Peer};
use super::receiving::over as receiving_over;
use super::sending::over as sending_over;
use super::{resume, sole, unit_of_work};
use crate::channel::calling::Calling;
use crate::channel::registry::Place;
use crate::channel::supervisor;
use crate::dynamic::Deletes;
use crate::front::LinkId;
use crate::front::link::Over;
use crate::front::outcome::Failure;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::transport::Transport;
use bulla_queue::QueueId;
use slab::Slab;

/// Ends a link with an error.
pub fn detach(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, refusal: &Refusal) {
    detach_with(peer, local, state, link, refusal.clone().into());
}

/// Ends a link because of a failure.
pub fn detach_with(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, why: Failure) {
    forget(peer, local, state, link, false);
    peer.front.detach(link, why);
    local.touched.push(peer.place.key);
}

/// Gives back all that a link held; what was delivered and not settled counts as `failed` or not.
pub fn forget(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, failed: bool) {
    let gone = peer.links.remove(&link);
    if let Some(user) = peer.login.user.filter(|_| gone.as_ref().is_some_and(Link::is_clients)) {
        let granted = if let Some(Link::Producer(producer)) = &gone { producer.credit.granted } else { 0 };
        state.clients.users.detached(user, granted);
    }
    match gone {
        Some(Link::Producer(mut producer)) => {
            producer.resumable.iter().for_each(|link| state.clients.resumable.end(link));
            let has_lost = producer.leave(&mut local.units, state);
            if let Some(route) = &producer.route {
                local.freed(route.queue, state);
                state.left(route.queue);
            }
            producer.dynamic.iter().for_each(|queue| state.end_dynamic(*queue));
            if !producer.pending.is_empty() {
                // Their sender has settled them: they are put when their adapters are done.
                local.producers.departed.insert((peer.place.key, peer.place.generation, link), producer);
            }
            if has_lost {
                unit_of_work::go_on(peer, local, state);
            }
        }
        Some(Link::Consumer(mut consumer)) => {
            consumer.resumes.place.iter().for_each(|link| state.clients.resumable.end(link));
            consumer.leave(peer.login.user, local.wall_ms, state, failed);
            let queue = consumer.route.queue;
            if let Some(consumers) = local.serving.consumers.get_mut(&queue) {
                consumers.remove(peer.seat(link));
                if consumers.is_empty() {
                    local.serving.consumers.remove(&queue);
                    local.forget_interest(queue, state);
                }
            }
            if consumer.route.has_groups && !consumer.browses() {
                // Its groups are the others' now.
                local.serve_everywhere(queue, state);
            }
            match &consumer.terminus {
                Terminus::Queue { dynamic, .. } => dynamic.iter().for_each(|queue| state.end_dynamic(*queue)),
                Terminus::Subscription(subscription) => {
                    state.left_subscription(queue, subscription.durable.as_deref(), false);
                }
            }
            state.left(queue);
        }
        Some(Link::Receiving(receiving)) => receiving_over::forget(receiving, peer, local, state, link),
        Some(Link::Coordinator(_)) => unit_of_work::forget(peer, local, state, link),
        Some(Link::Sending(_)) | None => {}
    }
}

/// Gives back all that a connection's links held; what was delivered and not settled counts as `failed` or not: it
/// does not where it is the queue manager that ends the connection.
pub fn forget_all(peer: &mut Peer, local: &mut Local, state: &mut State, failed: bool) {
    if failed {
        suspend_all(peer, local, state);
    }
    resume::over(peer, local, state, None);
    let links: Vec<LinkId> = peer.links.keys().copied().collect();
    for link in links {
        forget(peer, local, state, link, failed);
    }
    for queue in std::mem::take(&mut peer.holds.dynamic) {
        state.end_dynamic(queue);
    }
    sole::leave(peer, local, state);
    let why = peer.ended.closed_by.clone().or_else(|| peer.ended.broken.clone());
    match peer.channel.calling.take() {
        Some(calling) if peer.channel.sending.is_none() => {
            let broken = || Refusal::new(reason::CONNECTION_BROKEN, why.unwrap_or_else(|| "the call ended".into()));
            let told = state.outbound.channels.get(&calling.id).is_some_and(|instance| instance.status.stop_requested);
            let Calling { id, failure, .. } = *calling;
            let refusal = (!told).then(|| failure.unwrap_or_else(broken));
            let place = Place { dispatcher: local.index, peer: peer.place.key, generation: peer.place.generation };
            supervisor::ended(&local.moment(), state, &id, Some(place), refusal);
        }
        // A channel that has not come to run yet ends once, for the reason that the call has.
        calling => {
            if let (Some(refusal), Some(sending)) =
                (calling.and_then(|calling| calling.failure), peer.channel.sending.as_deref_mut())
            {
                sending.failed(refusal);
            }
            sending_over::over(peer, local, state, why);
        }
    }
}

/// Keeps what is unsettled on links that may be resumed, of a connection that is over.
pub fn suspend_all(peer: &mut Peer, local: &Local, state: &mut State) {
    let links: Vec<LinkId> = peer.links.keys().copied().collect();
    for link in links {
        resume::suspend(peer, local, state, link, Over::Connection);
    }
}

/// A link closed that wanted its permanent dynamic queue to go with it. No answer is due: where the queue stays,
/// the log says why.
pub fn delete_closed(local: &Local, state: &mut State, queue: &str, how: Deletes) {
    let purge = how == Deletes::WithMessages;
    match state.delete_permanent(queue, purge) {
        Ok(()) => local.manager.ring_all(),
        Err(refusal) if state.notices.peer_lines.may_write(local.now) => {
            crate::note!(
                queue,
                reason = refusal.reason.code,
                cause = refusal.cause,
                "{queue} was to go with its link, and stays: {refusal}"
            );
        }
        Err(_) => {}
    }
}

/// Ends the links of this dispatcher that get from a queue which is gone.
pub fn end_consumers<T: Transport>(peers: &mut Slab<Peer<T>>, local: &mut Local, state: &mut State, queue: QueueId) {
    let Some(consumers) = local.serving.consumers.remove(&queue) else { return };
    for Seat { key, generation, link } in consumers.seats() {
        let Some(peer) = peers.get_mut(key).filter(|peer| peer.place.generation == generation) else { continue };
        let Some(Link::Consumer(consumer)) = peer.links.get(&link) else { continue };
        let refusal = queue_is_gone(&consumer.opened);
        detach(peer, local, state, link, &refusal);
    }
}
