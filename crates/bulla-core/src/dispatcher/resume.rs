//! Links that go on: how an attachment that is over leaves what was unsettled, and how the next one takes it up
//! (AMQP part 2, section 2.6.13). What is kept, and for how long, is in `resumable.rs`.

use super::consumer::Consumer;
use super::local::{Confirmation, Confirmed, Local};
use super::peer::{Left, Link, Peer, Place};
use super::returns;
use crate::asker::Who;
use crate::authority::Right;
use crate::front::link::{Attach, Granted, Over, Unsettled};
use crate::front::outcome::MessageOutcome;
use crate::front::{DeliveryId, LinkId, SessionId};
use crate::manager::State;
use crate::maps::{HashMap, HashSet};
use crate::reason::{self, Refusal};
use crate::resumable::{Kept, KeptGets, LinkName, PutOutcome, Resumable};
use crate::stores::Tickets;
use bulla_amqp::DeliveryTag;
use bulla_queue::{MessageId, Ticket};

/// What an attach is answered with.
#[derive(Default)]
pub struct Resumption {
    /// The link's place, where it may be suspended later.
    pub resumable: Option<Box<Resumable>>,
    unsettled: Option<Unsettled>,
    /// Tokens of deliveries that the client has, too.
    resumed: Vec<u64>,
    /// Outcomes that the client gave while it was not attached.
    outcomes: Vec<(u64, MessageOutcome)>,
}

impl Resumption {
    /// Fills in what the client has to know.
    pub fn fill(&mut self, granted: Granted) -> Granted {
        Granted {
            keep: self.resumable.as_ref().map(|link| link.keep),
            unsettled: self.unsettled.take(),
            resumed: std::mem::take(&mut self.resumed),
            ..granted
        }
    }
}

/// What a link is known by; none where its client has not signed in: then nothing tells it from another one.
fn name_of(peer: &Peer, attach: &Attach) -> Option<LinkName> {
    let (user, open) = (peer.login.identity.user.clone()?, peer.opened.as_ref()?);
    Some(LinkName { user, container: open.container.clone(), name: attach.name.clone(), direction: attach.direction() })
}

/// Whether a link of that name may be attached: no resumable one of the same client is, on whatever connection.
///
/// # Errors
/// 2042: one is. It is not taken from there.
pub fn may_attach(peer: &Peer, state: &State, attach: &Attach) -> Result<(), Refusal> {
    if state.clients.resumable.is_empty()
        || !name_of(peer, attach).is_some_and(|name| state.clients.resumable.is_attached(&name))
    {
        return Ok(());
    }
    let detail = format!(
        "link {:?} of this user and container-id is attached: end its connection first, or ask for \
         sole-connection-for-container with close-existing",
        attach.name
    );
    Err(Refusal::new(reason::OBJECT_IN_USE, detail))
}

/// An attach was refused: what was kept under its name is over.
pub fn refused(peer: &Peer, local: &Local, state: &mut State, attach: &Attach) {
    if !state.clients.resumable.is_empty()
        && let Some(kept) = name_of(peer, attach).and_then(|name| state.clients.resumable.take(&name))
    {
        give_up(kept, local.wall_ms, state);
    }
}

/// A client's link to put is attached: takes up what was kept of it, and has a place kept for the next time.
pub fn puts(peer: &mut Peer, local: &mut Local, state: &mut State, attach: &Attach, may_suspend: bool) -> Resumption {
    let keep = attach.keep.filter(|_| may_suspend);
    if keep.is_none() && state.clients.resumable.is_empty() {
        return Resumption::default();
    }
    let Some(name) = name_of(peer, attach) else { return Resumption::default() };
    let kept = match state.clients.resumable.take(&name) {
        Some(Kept::Puts(kept)) => Some(kept),
        Some(kept) => {
            give_up(kept, local.wall_ms, state);
            None
        }
        None => None,
    };
    let resumable = keep.and_then(|keep| state.clients.resumable.attach(name, keep)).map(Box::new);
    let mut unsettled = None;
    if let Some(theirs) = attach.unsettled.as_ref().filter(|_| kept.is_some() || resumable.is_some()) {
        let tags: HashSet<DeliveryTag> = theirs.iter().map(|(tag, _)| *tag).collect();
        // What is not in a whole map is settled.
        let has = |tag: &DeliveryTag| attach.incomplete_unsettled || tags.contains(tag);
        let mut newest = Tickets::default();
        let kept = kept.unwrap_or_default().into_iter().filter(|(tag, _)| has(tag));
        let entries = kept.map(|(tag, outcome)| match outcome {
            PutOutcome::Known(outcome) => (tag, Some(outcome)),
            PutOutcome::Put(ticket) => {
                newest.add(ticket);
                (tag, Some(MessageOutcome::Accepted))
            }
        });
        unsettled = Some(entries.collect());
        for ticket in newest.iter().filter(|ticket| !state.store.is_synced(*ticket)) {
            local.hold_until(peer, ticket);
        }
    }
    Resumption { resumable, unsettled, ..Resumption::default() }
}

/// A client's link to get is attached: takes up what was kept of it, and has a place kept for the next time.
pub fn gets(
    peer: &mut Peer,
    local: &mut Local,
    state: &mut State,
    attach: &Attach,
    consumer: &mut Consumer,
    may_suspend: bool,
) -> Resumption {
    let keep = attach.keep.filter(|_| may_suspend);
    if keep.is_none() && state.clients.resumable.is_empty() {
        return Resumption::default();
    }
    let Some(name) = name_of(peer, attach) else { return Resumption::default() };
    let kept = state.clients.resumable.take(&name);
    let resumable = keep.and_then(|keep| state.clients.resumable.attach(name, keep)).map(Box::new);
    let mut resumption = Resumption { resumable, ..Resumption::default() };
    let is_known = kept.is_some() || resumption.resumable.is_some();
    let Some(theirs) = attach.unsettled.as_ref().filter(|_| is_known) else {
        kept.into_iter().for_each(|kept| give_up(kept, local.wall_ms, state));
        return resumption;
    };
    let messages = match kept {
        Some(Kept::Gets(kept)) if kept.route.queue == consumer.route.queue && may_suspend => kept.messages,
        kept => {
            kept.into_iter().for_each(|kept| give_up(kept, local.wall_ms, state));
            Vec::new()
        }
    };
    let mut entries = Vec::new();
    let theirs: HashMap<DeliveryTag, Option<&MessageOutcome>> =
        theirs.iter().map(|(tag, outcome)| (*tag, outcome.as_ref())).collect();
    for (id, failures) in messages {
        if !state.store.is_locked(id) {
            continue; // its queue is gone
        }
        let tag = DeliveryTag::of_token(id.0);
        entries.push((tag, None));
        match theirs.get(&tag) {
            // The client has not had it, or has settled it and was not heard: it is as if the connection had been lost.
            None if !attach.incomplete_unsettled => {
                returns::give_back(&consumer.route, local.wall_ms, state, id, failures.max(1));
            }
            theirs => resumption.take_up(consumer, id, failures, theirs.copied()),
        }
    }
    for id in consumer.deliveries.outstanding.clone() {
        consumer.note_returned(peer.login.user, state, id);
    }
    resumption.unsettled = Some(entries);
    resumption
}

impl Resumption {
    /// A delivery goes on, whose last state the client says in its map, where it has one there.
    fn take_up(
        &mut self,
        consumer: &mut Consumer,
        id: MessageId,
        failures: u32,
        theirs: Option<Option<&MessageOutcome>>,
    ) {
        match theirs {
            None => drop(consumer.deliveries.outstanding.insert(id)),
            Some(Some(outcome)) => {
                consumer.deliveries.outstanding.insert(id);
                self.resumed.push(id.0);
                self.outcomes.push((id.0, outcome.clone()));
            }
            Some(None) => {
                consumer.resumes.first.push_back(id);
                self.resumed.push(id.0);
            }
        }
        if failures > 0 {
            consumer.deliveries.backed_out.insert(id, failures);
        }
    }
}

impl Resumption {
    /// Takes the outcomes that are to be applied once the link is there.
    pub fn take_outcomes(&mut self) -> Vec<(u64, MessageOutcome)> {
        std::mem::take(&mut self.outcomes)
    }
}

/// The attachment of a link is over and was not closed: what is unsettled on it is kept, where it may be resumed. To be
/// called before the link is forgotten.
pub fn suspend(peer: &mut Peer, local: &Local, state: &mut State, link: LinkId, over: Over) {
    let Peer { place: Place { key, generation }, front, links, .. } = peer;
    let (resumable, session, kept) = match links.get_mut(&link) {
        Some(Link::Producer(producer)) => {
            let Some(resumable) = producer.resumable.take() else { return };
            let tickets: HashMap<DeliveryId, Ticket> = local.tickets_of(*key, *generation, link);
            let kept = front.take_outcomes(link).into_iter().filter_map(|outcome| {
                let known = match (outcome.outcome, outcome.id) {
                    (Some(known), _) => PutOutcome::Known(known),
                    // What is not on its queue yet will not come there.
                    (None, id) => PutOutcome::Put(*tickets.get(&id?)?),
                };
                Some((outcome.tag, known))
            });
            (resumable, producer.session, Kept::Puts(kept.collect()))
        }
        Some(Link::Consumer(consumer)) => {
            let Some(resumable) = consumer.resumes.place.take() else { return };
            let messages = consumer.take_locked();
            let kept = KeptGets { opened: consumer.opened.clone(), route: consumer.route.clone(), messages };
            (resumable, consumer.session, Kept::Gets(kept))
        }
        _ => return,
    };
    state.clients.resumable.suspend(&resumable, kept, over, local.now);
    if over < Over::Connection {
        peer.holds.left.retain(|left| state.clients.resumable.is_kept(&left.link));
        peer.holds.left.push(Left { session, link: *resumable });
    }
}

/// A session, or with none the connection, is over: the time of links that were suspended before may count now.
pub fn over(peer: &mut Peer, local: &Local, state: &mut State, session: Option<SessionId>) {
    let over = if session.is_some() { Over::Session } else { Over::Connection };
    for left in peer.holds.left.iter().filter(|left| session.is_none_or(|session| left.session == session)) {
        state.clients.resumable.over(&left.link, over, local.now);
    }
    if session.is_none() {
        peer.holds.left.clear();
    }
}

/// Ends suspended links whose time is over, whose queue is gone, or whose user may not get from it any more.
pub fn tick(local: &Local, state: &mut State) {
    if state.clients.resumable.is_empty() {
        return;
    }
    let generation = state.generations.authority;
    let mut resumable = std::mem::take(&mut state.clients.resumable);
    let over = resumable.take_over(local.now, generation, |name, kept| match kept {
        Kept::Puts(_) => false,
        Kept::Gets(kept) => state.check(Who::of_message(Some(&name.user), None), Right::Get, &kept.opened).is_err(),
    });
    state.clients.resumable = resumable;
    over.into_iter().for_each(|kept| give_up(kept, local.wall_ms, state));
}

/// What is kept of a link is given up. Messages go back to their queue, as from a connection that was lost.
fn give_up(kept: Kept, wall_ms: u64, state: &mut State) {
    if let Kept::Gets(KeptGets { route, messages, .. }) = kept {
        for (id, failures) in messages {
            returns::give_back(&route, wall_ms, state, id, failures.max(1));
        }
    }
}

impl Local {
    /// The tickets of puts on a link that wait for the journal.
    fn tickets_of(&self, key: usize, generation: u64, link: LinkId) -> HashMap<DeliveryId, Ticket> {
        let waits = self.journaling.confirmations.iter().filter_map(|confirmation| match &confirmation.what {
            Confirmed::Put(receipt) => Some((receipt, confirmation.ticket)),
            _ => None,
        });
        waits
            .filter(|(receipt, _)| receipt.key == key && receipt.generation == generation && receipt.link == link)
            .map(|(receipt, ticket)| (receipt.id, ticket))
            .collect()
    }

    /// Holds what a connection is told until the journal has synced that ticket.
    fn hold_until(&mut self, peer: &mut Peer, ticket: Ticket) {
        peer.turns.held += 1;
        self.journaling.urgent = true;
        // They are in the order of their tickets: behind the last one that waits.
        let ticket = self.journaling.confirmations.last_of(ticket.store()).unwrap_or(ticket);
        let what = Confirmed::Defined { key: peer.place.key, generation: peer.place.generation };
        self.journaling.confirmations.push(Confirmation { ticket, what });
    }
}
