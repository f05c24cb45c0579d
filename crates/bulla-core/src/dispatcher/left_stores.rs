//! Links to stores that have left: they end, and what can't be answered any more is not.

use super::local::{Confirmed, Local};
use super::peer::{Link, Peer};
use super::sending::over as sending_over;
use super::{ending, unit_of_work};
use crate::front::LinkId;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::transport::Transport;
use bulla_queue::StoreNumber;
use slab::Slab;

/// Ends this dispatcher's links to stores that have left. A compare as a rule.
pub fn end_links<T: Transport>(peers: &mut Slab<Peer<T>>, local: &mut Local, state: &mut State) {
    if local.seen.left_stores == state.left_stores.generation() {
        return;
    }
    local.seen.left_stores = state.left_stores.generation();
    let all = state.left_stores.all();
    let left: Vec<StoreNumber> = all.iter().map(|(number, _)| *number).collect();
    let closes = |store| all.contains(&(store, true));
    let refusal = owned_elsewhere();
    for (_, peer) in peers.iter_mut() {
        end_channel(peer, local, state, &left, &refusal);
    }
    let mut ending: Vec<(usize, u64, LinkId)> = Vec::new();
    for number in &left {
        for confirmed in local.journaling.confirmations.forget(*number) {
            if let Confirmed::Defined { key, generation } = confirmed
                && let Some(peer) = peers.get_mut(key).filter(|peer| peer.place.generation == generation)
            {
                peer.turns.held = peer.turns.held.saturating_sub(1);
            }
            // These can't be answered any more.
            ending.extend(link_of(&confirmed));
        }
    }
    for (key, peer) in peers.iter() {
        let links = peer.links.iter().filter(|(_, link)| store_of(link).is_some_and(|store| left.contains(&store)));
        ending.extend(links.map(|(link, _)| (key, peer.place.generation, *link)));
    }
    local.units.doom_of(&left, &refusal);
    for (key, generation, link) in ending {
        let Some(peer) = peers.get_mut(key).filter(|peer| peer.place.generation == generation) else { continue };
        match peer.links.get(&link).map(|ended| store_of(ended).is_some_and(closes)) {
            None => continue,
            // A client that reconnects by itself makes its links anew, where none of them was ended.
            Some(true) => {
                ending::forget(peer, local, state, link, false);
                if !peer.front.is_ending() {
                    peer.front.close(Some(refusal.clone().into()));
                }
                local.touched.push(key);
            }
            Some(false) => ending::detach(peer, local, state, link, &refusal),
        }
        unit_of_work::go_on(peer, local, state);
    }
    state.ended_links_to_left(local.index);
}

/// Ends the channel that sends from one of these stores over a connection, at once: what is in doubt is the next
/// owner's to settle.
fn end_channel<T: Transport>(
    peer: &mut Peer<T>,
    local: &mut Local,
    state: &mut State,
    left: &[StoreNumber],
    refusal: &Refusal,
) {
    let Some(sending) = peer.channel.sending.as_deref_mut().filter(|sending| left.contains(&sending.queue.store()))
    else {
        return;
    };
    sending.failed(refusal.clone());
    peer.channel.calling = None;
    if !peer.front.is_ending() {
        peer.front.close(Some(refusal.clone().into()));
    }
    local.touched.push(peer.place.key);
    sending_over::over(peer, local, state, None);
}

/// Where a client hears that a queue is another queue manager's now.
fn owned_elsewhere() -> Refusal {
    Refusal {
        cause: Some("group-left"),
        ..Refusal::new(reason::CONNECTION_BROKEN, "the queue's group is owned by another queue manager now")
    }
}

/// The link that an answer is for.
fn link_of(confirmed: &Confirmed) -> Option<(usize, u64, LinkId)> {
    match confirmed {
        Confirmed::Put(receipt) => Some((receipt.key, receipt.generation, receipt.link)),
        Confirmed::Removal(removal) => Some((removal.key, removal.generation, removal.link)),
        Confirmed::Channel { key, generation, link, .. } => Some((*key, *generation, *link)),
        Confirmed::Discharged(discharged) => Some((discharged.key, discharged.generation, discharged.link())),
        Confirmed::Noted { .. } | Confirmed::Defined { .. } => None,
    }
}

fn store_of(link: &Link) -> Option<StoreNumber> {
    match link {
        Link::Producer(producer) => producer.route.as_ref().map(|route| route.queue.store()),
        Link::Consumer(consumer) => Some(consumer.route.queue.store()),
        Link::Receiving(receiving) => Some(receiving.home),
        // A channel that sends ends by itself: see `end_channel`.
        Link::Sending(_) | Link::Coordinator(_) => None,
    }
}
