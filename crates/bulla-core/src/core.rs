//! The core of a dispatcher: its connections and what a turn does with them. No socket is read or written here.

use crate::adapter::Finished;
use crate::catalog::status::TaskKind;
use crate::channel::supervisor;
use crate::channel_ends::{attaching, caller, receiver, sender};
use crate::dispatcher::consumers::Looked;
use crate::dispatcher::deadlines::Deadlines;
use crate::dispatcher::local::{Confirmation, Confirmed, Local};
use crate::dispatcher::peer::{Link, Peer};
use crate::dispatcher::serve_list::Asked;
use crate::dispatcher::shares::Shares;
use crate::dispatcher::{attach, authority, ending, get, put, resume, returns, sasl, unit_of_work};
use crate::front::link::Over;
use crate::front::outcome::{MessageOutcome, Said};
use crate::front::{Delivery, Event, LinkId, SessionId};
use crate::mailbox::Mailbox;
use crate::manager::{Manager, SignIns, State};
use crate::readiness::Unready;
use crate::reason::{self, Refusal};
use crate::task::TaskMeter;
use crate::transport::Transport;
use crate::triggering;
use bulla_device::role::{self, Role};
use slab::Slab;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages sent to the consumers of one queue before the next queue has its turn.
const SERVE_MAX: usize = 512;
/// Expired messages removed at one tick.
const SWEEP_MAX: usize = 10_000;

/// The connections of a dispatcher, and what its turns need beside their sockets.
pub struct Core<T> {
    /// The connections, by their places.
    pub peers: Slab<Peer<T>>,
    /// Connections that there ever were.
    pub generation: u64,
    /// What its turns share, the connections aside.
    pub local: Local,
    /// None of those who have signed in takes much more of the time than another.
    pub shares: Shares,
    /// When front ends are told the time, beside the ticks.
    pub deadlines: Deadlines,
    /// The queues that are being served; empty between turns, kept for its memory.
    serving: Vec<Asked>,
    /// What the journal's thread does, and the processor time that it had taken when that was looked at last.
    journal_meter: Arc<TaskMeter>,
    journal_cpu_ns: u64,
}

impl<T: Transport> Core<T> {
    /// The core of dispatcher `index`, without connections.
    pub fn new(index: usize, manager: Arc<Manager>, mailbox: Arc<Mailbox>, generation: u64, now: Instant) -> Self {
        let journal_meter = manager.workers.tasks.meter(TaskKind::Journal, 0);
        Self {
            peers: Slab::new(),
            generation,
            local: Local::new(index, manager, mailbox, now),
            shares: Shares::default(),
            deadlines: Deadlines::default(),
            serving: Vec::new(),
            journal_meter,
            journal_cpu_ns: 0,
        }
    }

    /// Hands the journal what there is for it. The users whose messages those are pay for that, and for what the
    /// journal's thread has done meanwhile.
    pub fn journal(&mut self, state: &mut State) {
        let Self { local, shares, journal_meter, journal_cpu_ns, .. } = self;
        let began = shares.is_shared().then(|| local.manager.clock.now());
        local.journal(state);
        let cpu_ns = journal_meter.sampled_cpu_ns();
        let elsewhere = Duration::from_nanos(cpu_ns.saturating_sub(std::mem::replace(journal_cpu_ns, cpu_ns)));
        if let Some(began) = began {
            let users = &state.clients.users;
            let took = local.manager.clock.since(began) + elsewhere;
            shares.journal_took(took, users.put_bytes(), |user| users.put_bytes_of(user));
        }
    }

    /// What the partners of channels have confirmed leaves the transmission queues.
    pub fn channel_turns(&mut self, state: &mut State) {
        for key in std::mem::take(&mut self.local.channels.due) {
            let _role = role::enter(Role::ChannelInitiator);
            if let Some(peer) = self.peers.get_mut(key) {
                sender::confirm(peer, &mut self.local, state);
            }
        }
        let now = self.local.now;
        for (_, queue) in self.local.serving.wakes.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.local.serve(queue);
        }
    }

    /// What channels brought goes on its queues, one unit of work a link.
    pub fn receive(&mut self, state: &mut State) {
        let Self { peers, local, .. } = self;
        if local.channels.wake_at.is_some_and(|at| at <= local.now) {
            local.channels.wake_at = None;
            let links: Vec<(usize, LinkId)> = local.channels.receivers.iter().copied().collect();
            for (key, link) in links {
                if let Some(peer) = peers.get_mut(key) {
                    receiver::wake(peer, local, link);
                }
            }
        }
        for (key, link) in std::mem::take(&mut local.channels.receiving) {
            let _role = role::enter(Role::ChannelInitiator);
            if let Some(peer) = peers.get_mut(key) {
                receiver::turn(peer, local, state, link);
                local.touched.push(key);
            }
        }
    }

    /// What happened on one connection, as its front end says.
    pub fn events_of(&mut self, key: usize, state: &mut State) {
        let Self { peers, local, shares, deadlines, .. } = self;
        let Some(peer) = peers.get_mut(key) else { return };
        let user = peer.sharing_user().filter(|_| shares.is_shared());
        let began = user.map(|_| local.manager.clock.now());
        let mut has_links = false;
        // One that becomes a channel in this turn is one from the next turn on.
        let _role = role::enter(peer.role());
        while let Some(event) = peer.front.poll_event() {
            has_links |= matches!(
                event,
                Event::Attached(_) | Event::Detached { .. } | Event::SessionEnded(..) | Event::Opened(_)
            );
            match event {
                Event::Delivery(mut delivery) => {
                    if !put::arrived(peer, local, state, &mut delivery) {
                        arrived_elsewhere(peer, local, state, delivery);
                    }
                }
                Event::Outcome { link, token, outcome, unit, settled } => {
                    if peer.channel.sending.is_some() && matches!(peer.links.get(&link), Some(Link::Sending(_))) {
                        sender::outcome(peer, local, state, link, token, outcome.as_ref(), settled);
                    } else {
                        get::settled(peer, local, state, get::Settling { link, token, outcome, unit, settled });
                    }
                }
                Event::Unit(asked) => unit_of_work::asked(peer, local, state, *asked),
                Event::OutcomeLost { unit } => unit_of_work::outcome_lost(peer, local, unit),
                Event::Credit { link, drain } => get::credit(peer, local, link, drain),
                Event::DueAt(at) => deadlines.set(key, at),
                Event::Acquires { link, unit } => unit_of_work::acquires(peer, local, state, link, unit),
                Event::Attached(attach) => {
                    if !attaching::attached(peer, local, state, &attach) {
                        attach::attached(peer, local, state, *attach);
                    }
                    caller::attached(peer, local, state);
                }
                Event::Opened(said) => caller::opened(peer, local, state, said),
                Event::LinkOpened(opened) => sender::attaching::opened(peer, local, state, &opened),
                Event::Detached { link, why, closed } => detached(peer, local, state, link, closed, why.as_ref()),
                Event::SessionEnded(session, why) => forget_session(peer, local, state, session, why.as_ref()),
                Event::SignIn(proof) => {
                    if peer.opened.is_some() {
                        authority::start_over(peer, local, state);
                    }
                    sasl::init(peer, local, proof);
                }
                Event::SignInGoesOn(response) => sasl::response(peer, local, &response),
                Event::Closed(why) => closed(peer, local, state, why),
            }
        }
        hold(peer, local, state);
        match (user, began) {
            (Some(user), Some(began)) if has_links => shares.took_for_links(user, local.manager.clock.since(began)),
            (Some(user), Some(began)) => shares.took(user, local.manager.clock.since(began)),
            _ => {}
        }
    }

    /// Answers what the journal has synced.
    pub fn confirm(&mut self, state: &mut State) {
        while let Some(what) = self.local.journaling.confirmations.take_synced(&state.store) {
            let (key, generation) = match &what {
                Confirmed::Put(receipt) => (receipt.key, receipt.generation),
                Confirmed::Removal(removal) => (removal.key, removal.generation),
                Confirmed::Channel { key, generation, .. } => (*key, *generation),
                Confirmed::Noted { key, generation } => (*key, *generation),
                Confirmed::Discharged(discharged) => (discharged.key, discharged.generation),
                Confirmed::Defined { key, generation } => (*key, *generation),
            };
            let Some(peer) = self.peers.get_mut(key).filter(|peer| peer.place.generation == generation) else {
                continue;
            };
            match what {
                Confirmed::Put(receipt) => {
                    peer.front.answer(receipt.link, receipt.id, MessageOutcome::Accepted, None);
                }
                Confirmed::Removal(removal) => {
                    peer.front.settle(removal.link, removal.token, MessageOutcome::Accepted);
                }
                Confirmed::Channel { link, through, .. } => {
                    let _role = role::enter(Role::ChannelInitiator);
                    receiver::confirmed(peer, &mut self.local, state, link, through);
                }
                Confirmed::Noted { .. } => {
                    if let Some(sending) = &peer.channel.sending {
                        self.local.serve(sending.queue);
                    }
                }
                Confirmed::Discharged(discharged) => unit_of_work::confirmed(&mut *peer.front, &discharged),
                Confirmed::Defined { .. } => peer.turns.held = peer.turns.held.saturating_sub(1),
            }
            // Before those that get: who waited for the disk waits no longer than that.
            if self.local.touched.last() != Some(&key) {
                self.local.touched.push(key);
            }
        }
    }

    /// Gives waiting producers the room there is, and consumers what is on their queues.
    pub fn serve(&mut self, state: &mut State) {
        self.pace(state);
        for queue in std::mem::take(&mut self.local.producers.freed) {
            let mut waiting = self.local.producers.waiting.remove(&queue).unwrap_or_default();
            let peers = &mut self.peers;
            waiting.retain(|(key, link)| {
                peers.get_mut(*key).is_some_and(|peer| put::may_wait(peer, &mut self.local, state, *link))
            });
            while state.free(queue) > 0 {
                let Some((key, link)) = waiting.iter().next().copied() else { break };
                waiting.remove(&(key, link));
                if let Some(peer) = self.peers.get_mut(key) {
                    put::replenish(peer, &mut self.local, state, link);
                    self.local.touched.push(key);
                }
            }
            self.local.keep_waiting(queue, waiting, state);
        }
        for seat in std::mem::take(&mut self.local.serving.held_back) {
            if let Some(peer) = self.peers.get_mut(seat.key).filter(|peer| peer.place.generation == seat.generation) {
                let _role = role::enter(peer.role());
                get::deliver_opened(peer, &mut self.local, state, seat.link);
                self.local.touched.push(seat.key);
            }
        }
        self.local.serving.looks.begin();
        let mut serving = std::mem::take(&mut self.serving);
        self.local.serving.list.take(&mut serving);
        for asked in serving.drain(..) {
            self.serve_queue(asked, state);
        }
        self.serving = serving;
        for queue in self.local.serving.looks.take_unfinished() {
            self.local.serve(queue);
        }
    }

    /// Producers that had no credit because of their user's rate are looked at again.
    fn pace(&mut self, state: &mut State) {
        if self.local.producers.pace_at.is_none_or(|at| at > self.local.now) {
            return;
        }
        self.local.producers.pace_at = None;
        for (key, link) in std::mem::take(&mut self.local.producers.paced) {
            if let Some(peer) = self.peers.get_mut(key) {
                put::replenish(peer, &mut self.local, state, link);
                self.local.touched.push(key);
            }
        }
    }

    /// One message to each consumer in turn, until the queue or their credit is used up.
    fn serve_queue(&mut self, Asked { queue, has_changed }: Asked, state: &mut State) {
        let Self { peers, local, shares, .. } = self;
        if let Some(key) = local.channels.senders.get(&queue).copied().filter(|_| has_changed)
            && let Some(peer) = peers.get_mut(key)
        {
            let _role = role::enter(Role::ChannelInitiator);
            sender::serve(peer, local, state);
            local.touched.push(key);
        }
        if state.store.attributes(queue).is_none() {
            return ending::end_consumers(peers, local, state, queue);
        }
        let Some(mut consumers) = local.serving.consumers.remove(&queue) else { return };
        let began = shares.is_shared().then(|| local.manager.clock.now());
        if has_changed {
            consumers.look_at_idle();
        }
        let mut last = None;
        let round = consumers.serve(SERVE_MAX, |seat| {
            let Some(peer) = peers.get_mut(seat.key).filter(|peer| peer.place.generation == seat.generation) else {
                return Looked::Gone;
            };
            last = Some(seat);
            let looked = get::deliver_next(peer, local, state, seat.link);
            let has_nothing = matches!(looked, Looked::Nothing | Looked::Empty);
            if has_nothing {
                get::nothing_more(peer, local, state, seat.link);
            }
            if (has_nothing || looked == Looked::Sent) && !peer.turns.listed {
                peer.turns.listed = true;
                local.touched.push(seat.key);
            }
            // To look at it may have ended it.
            if looked == Looked::Sent || peer.links.contains_key(&seat.link) { looked } else { Looked::Gone }
        });
        if round.is_empty {
            consumers.tell_draining(|seat| {
                let Some(peer) = peers.get_mut(seat.key).filter(|peer| peer.place.generation == seat.generation) else {
                    return false;
                };
                local.touched.push(seat.key);
                get::tell_drained(peer, local, state, seat.link)
            });
        }
        if let Some(began) = began
            && let Some(user) = last.and_then(|seat| peers.get(seat.key)).and_then(Peer::sharing_user)
        {
            // The queue's links take turns to be the last one, so over time each user pays for its own links.
            shares.took(user, local.manager.clock.since(began));
        }
        if round.sent >= SERVE_MAX {
            local.serve(queue);
        }
        if consumers.is_empty() {
            local.forget_interest(queue, state);
        } else {
            local.serving.consumers.insert(queue, consumers);
        }
    }

    /// An adapter is done with a message of one of the connections, which may be gone by now.
    pub fn finished(&mut self, done: Finished, state: &mut State) {
        let asker = done.asker;
        let peer = self.peers.get_mut(asker.peer).filter(|peer| peer.place.generation == asker.generation);
        let peer = match peer {
            Some(peer) if peer.links.contains_key(&asker.link) => peer,
            peer => {
                put::finished_late(&mut self.local, state, done);
                if let Some(peer) = peer {
                    unit_of_work::go_on(peer, &mut self.local, state);
                    self.local.touched.push(asker.peer);
                }
                return;
            }
        };
        let _role = role::enter(peer.role());
        match peer.links.get(&asker.link) {
            Some(Link::Producer(_)) => put::finished(peer, &mut self.local, state, done),
            Some(Link::Consumer(_)) => get::finished(peer, &mut self.local, state, done),
            Some(Link::Receiving(_)) => receiver::finished(peer, &mut self.local, done),
            Some(Link::Sending(_)) => sender::finished(peer, &mut self.local, state, done),
            Some(Link::Coordinator(_)) | None => {}
        }
        self.local.touched.push(asker.peer);
    }

    /// What comes due for all connections: room, looks again, expiry, and messages that are stuck.
    pub fn tick(&mut self, state: &mut State) {
        // Room can come about without a notice: expiry, a cleared queue.
        self.local.producers.freed.extend(self.local.producers.waiting.keys().copied());
        for queue in std::mem::take(&mut self.local.serving.rescan) {
            self.local.serve(queue);
        }
        for (key, link) in &self.local.channels.receivers {
            if let Some(Link::Receiving(receiving)) = self.peers.get_mut(*key).and_then(|peer| peer.links.get_mut(link))
            {
                receiving.tell();
            }
        }
        if self.local.index == 0 {
            let SignIns { sessions, users, .. } = &self.local.manager.sign_ins;
            sessions.sweep(users, self.local.now);
            state.store.sweep(self.local.wall_ms, SWEEP_MAX);
            let readiness = &self.local.manager.listening.readiness;
            readiness.set(Unready::Journal, !state.store.takes_persistent());
            returns::retry_stuck(state);
            resume::tick(&self.local, state);
            put::expire_keys(&mut self.local, state);
            triggering::tick(state, self.local.now, self.local.wall_ms);
            self.local.tell_of_dropped();
            state.raise_refused_tokens(self.local.manager.workers.devices.refused_tokens(), self.local.wall_ms);
            state.tell_of_lost_events();
            authority::tell_of_more(&self.local.manager, self.local.now);
            let _role = role::enter(Role::ChannelInitiator);
            supervisor::tick(&self.local.moment(), state);
        }
    }
}

/// A message has come on a link that is no client's to put.
fn arrived_elsewhere(peer: &mut Peer, local: &mut Local, state: &mut State, delivery: Delivery) {
    match peer.links.get(&delivery.link) {
        Some(Link::Receiving(_)) if delivery.unit.is_some() => {
            let refusal = Refusal::new(reason::OPTIONS_ERROR, "channels take no part in units of work");
            ending::detach(peer, local, state, delivery.link, &refusal);
        }
        Some(Link::Receiving(_)) => receiver::arrived(peer, local, state, delivery),
        Some(Link::Producer(_) | Link::Consumer(_) | Link::Sending(_) | Link::Coordinator(_)) | None => {}
    }
}

/// A link has ended, for good where `closed`.
fn detached(peer: &mut Peer, local: &mut Local, state: &mut State, link: LinkId, closed: bool, why: Option<&Said>) {
    let deletes = peer.links.get(&link).filter(|_| closed).and_then(Link::deletes);
    let unsubscribes = peer.links.get(&link).filter(|_| closed).and_then(Link::durable_subscription);
    if let Some(Link::Sending(_)) = peer.links.get(&link) {
        sender::detached(peer, local, state, link, why);
    }
    if !closed {
        resume::suspend(peer, local, state, link, Over::Link);
    }
    ending::forget(peer, local, state, link, false);
    if let Some((queue, how)) = deletes {
        ending::delete_closed(local, state, &queue, how);
    }
    if let Some((queue, name)) = unsubscribes {
        let manager = local.manager.clone();
        state.left_subscription(queue, Some(&name), true);
        manager.ring_all();
    }
    caller::detached(peer, local, why);
}

/// A session has ended, and its links with it.
fn forget_session(peer: &mut Peer, local: &mut Local, state: &mut State, session: SessionId, why: Option<&Said>) {
    let links: Vec<LinkId> =
        peer.links.iter().filter(|(_, link)| link.session() == session).map(|(id, _)| *id).collect();
    resume::over(peer, local, state, Some(session));
    for link in links {
        if let Some(Link::Sending(_)) = peer.links.get(&link) {
            sender::detached(peer, local, state, link, why);
        }
        resume::suspend(peer, local, state, link, Over::Session);
        ending::forget(peer, local, state, link, false);
    }
    caller::detached(peer, local, why);
}

/// The connection has ended. Nothing may follow: what its links held goes back at once.
fn closed(peer: &mut Peer, local: &mut Local, state: &mut State, why: Option<Said>) {
    peer.ended.closed_by = why.as_ref().map(sender::said);
    ending::forget_all(peer, local, state, true);
    if let Some(why) = why.filter(|_| local.manager.told.peer_lines.may_write(local.now)) {
        crate::note!("{}: connection closed: {why}", peer.address_text());
    }
}

/// Where this connection has caused something to be defined or deleted, holds what it is told until the journals have
/// synced that.
fn hold(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let Some(tickets) = state.changes.noted.take_tickets() else { return };
    for ticket in tickets.iter().filter(|ticket| !state.store.is_synced(*ticket)) {
        peer.turns.held += 1;
        let what = Confirmed::Defined { key: peer.place.key, generation: peer.place.generation };
        local.journaling.confirmations.push(Confirmation { ticket, what });
    }
}

/// What comes due for one connection.
pub fn tick_of(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let now = local.now;
    if peer.channel.calling.as_ref().is_some_and(|calling| calling.deadline.is_some_and(|at| at <= now)) {
        peer.end("no answer to the call in time");
    }
    put::tick(peer, state);
    authority::end_with_token(peer, local, state);
    authority::end_with_session(peer, local, state);
    authority::end_without_channel(peer, local, state);
    if !peer.units.open.is_empty() {
        unit_of_work::tick(peer, local, state);
    }
    sender::tick(peer, local, state);
}
