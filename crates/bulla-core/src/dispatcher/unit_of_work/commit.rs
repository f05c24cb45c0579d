//! The end of a unit of work that commits: what goes in, the commit, and what follows from it.

use super::units::{Answer, Discharged, StagedGet, StagedPut, Unit, backed_out};
use super::{UNIT_BYTES_MAX, back_out, conclude, confirmed, rolled_back, say, unstage};
use crate::dispatcher::local::{Confirmation, Confirmed, Local};
use crate::dispatcher::peer::{Link, Peer};
use crate::dispatcher::publishing::Subscriber;
use crate::dispatcher::returns;
use crate::front::outcome::MessageOutcome;
use crate::manager::State;
use crate::maps::HashMap;
use crate::refusals::store_refusal;
use crate::reports::{self, Report};
use bulla_queue::{Message, MessageId, QueueId};

/// What a commit does, as far as it can be known before.
struct Prepared<'a> {
    puts: Vec<(QueueId, Message)>,
    /// Of the first of `puts`, the ones that were staged: what is noted of each when it is on its queue.
    traces: Vec<Trace>,
    removals: Vec<MessageId>,
    got: Vec<Got>,
    /// Messages of which something else becomes than to be removed; one that was rejected goes there.
    later: Vec<(&'a StagedGet, Option<returns::Destination>)>,
    /// Messages that were acquired in the unit, and of which the client has said nothing.
    kept: Vec<&'a StagedGet>,
}

/// What is noted of a message that was staged.
struct Trace {
    queue: QueueId,
    is_single: bool,
    is_remote: bool,
    asks: bool,
    whose: Option<Subscriber>,
}

/// A message that is removed, and what its sender is told.
struct Got {
    queue: QueueId,
    id: MessageId,
    age_ms: u64,
    asking: Option<Report>,
}

/// How many messages a commit puts on each queue, counted where that was asked.
type Before = HashMap<QueueId, usize>;

/// One group of journal records for everything, or nothing of it.
pub(super) fn commit(peer: &mut Peer, local: &mut Local, state: &mut State, mut unit: Unit, answer: Answer) {
    let staged = std::mem::take(&mut unit.puts);
    let queues: Vec<QueueId> = staged.iter().map(|put| put.queue).collect();
    let mut prepared = Prepared::of(staged, unit.gets.len(), state);
    for get in &unit.gets {
        peer.units.staged_gets.remove(&(get.link, get.id));
    }
    prepared.retire(&unit, local, state);
    // Copies of publications for other stores go on from there.
    let store = unit.store.unwrap_or_default();
    let first = state.store.newest(store).0 + 1;
    let ticket = match state.store.commit_from(store, std::mem::take(&mut prepared.puts), &prepared.removals, &[]) {
        Ok(ticket) => ticket,
        Err(error) => {
            drop(prepared);
            unstage(local, state, queues.into_iter(), unit.bytes);
            unit.bytes = 0;
            back_out(peer, local, state, unit);
            let refusal = backed_out(&store_refusal(&error));
            return say(peer, local, state, answer, Err(rolled_back(refusal)));
        }
    };
    unstage(local, state, queues.into_iter(), unit.bytes);
    state.wrote(peer.login.user, unit.bytes, ticket);
    prepared.conclude(first, peer, local, state);
    for get in &unit.gets {
        if let Some(Link::Consumer(consumer)) = peer.links.get_mut(&get.link) {
            consumer.give_up_groups(local, state);
        }
    }
    state.unit_totals.counts.committed += 1;
    local.flush_soon();
    let outcome_of = |get: &StagedGet| get.outcome.clone().unwrap_or(MessageOutcome::Released);
    let deliveries =
        unit.gets.iter().filter(|get| get.is_said && !get.settled).map(|get| (get.link, get.id.0, outcome_of(get)));
    let discharged =
        Discharged { key: peer.place.key, generation: peer.place.generation, answer, deliveries: deliveries.collect() };
    if !state.store.is_synced(ticket) {
        local.journaling.urgent = true;
        local.journaling.confirmations.push(Confirmation { ticket, what: Confirmed::Discharged(Box::new(discharged)) });
    } else {
        confirmed(&mut *peer.front, &discharged);
    }
}

impl<'a> Prepared<'a> {
    /// What was staged, less copies for subscriptions that are gone meanwhile, or may be passed over and have no room.
    fn of(staged: Vec<StagedPut>, gets: usize, state: &State) -> Self {
        let mut traces = Vec::with_capacity(staged.len());
        let mut puts = Vec::with_capacity(staged.len());
        let mut before = Before::default();
        for StagedPut { queue, message, is_single, is_remote, asks, need: _, whose } in staged {
            if let Some(Subscriber { is_spared, .. }) = whose {
                let before = on_queue(&mut before, queue, &puts);
                let is_gone = state.store.attributes(queue).is_none();
                if is_gone || is_spared && state.store.admits(queue, &message, *before).is_err() {
                    continue;
                }
            }
            if let Some(before) = before.get_mut(&queue) {
                *before += 1;
            }
            traces.push(Trace { queue, is_single, is_remote, asks, whose });
            puts.push((queue, message));
        }
        let removals = Vec::with_capacity(gets);
        Self { puts, traces, removals, got: Vec::new(), later: Vec::new(), kept: Vec::new() }
    }

    /// What becomes of the messages that were got. What is moved and what is reported is read here: as much of it as
    /// may be staged.
    fn retire(&mut self, unit: &'a Unit, local: &Local, state: &mut State) {
        let (mut moved_left, mut told_left) = (UNIT_BYTES_MAX.saturating_sub(unit.bytes), UNIT_BYTES_MAX);
        let mut before = Before::default();
        for get in &unit.gets {
            match &get.outcome {
                _ if !get.is_said => self.kept.push(get),
                // A temporary queue has gone with its link, and what was on it.
                Some(MessageOutcome::Accepted) if state.store.attributes(get.from.queue).is_none() => {}
                Some(MessageOutcome::Accepted) => {
                    let put_at_ms = state.store.put_at_ms(get.id).unwrap_or(local.wall_ms);
                    let asking = reports::about_to_be_got(state, get.id, local.wall_ms, told_left);
                    told_left = told_left.saturating_sub(asking.as_ref().map_or(0, Report::bytes));
                    let age_ms = local.wall_ms.saturating_sub(put_at_ms);
                    self.got.push(Got { queue: get.from.queue, id: get.id, age_ms, asking });
                    self.removals.push(get.id);
                }
                Some(MessageOutcome::Rejected(why)) => {
                    let to = returns::rejected_to(&get.from, &local.moment(), state, get.id, why.as_deref());
                    let moved = to.as_ref().and_then(|to| {
                        returns::moved_with(&get.from, state, get.id, to, &self.puts, &mut before, &mut moved_left)
                    });
                    match moved {
                        Some(moved) => {
                            self.puts.push(moved);
                            self.removals.push(get.id);
                        }
                        None => self.later.push((get, to)),
                    }
                }
                _ => self.later.push((get, None)),
            }
        }
    }

    /// The journal has taken it: counts, reports, and what is done beside removing messages. The messages that were
    /// staged have the numbers from `first`.
    fn conclude(self, first: u64, peer: &mut Peer, local: &mut Local, state: &mut State) {
        for (id, Trace { queue, is_single, is_remote, asks, whose }) in (first..).map(MessageId).zip(self.traces) {
            if let Some(whose) = whose {
                whose.counts.note_put(local.wall_ms);
            }
            if asks {
                reports::arrived(state, &local.moment(), id, is_remote, Some((local.index, peer.place.generation)));
            }
            if is_remote {
                state.probe_queue_time(queue, id);
            }
            state.note_put(queue, id, local.now);
            state.use_of(queue).traffic.single_puts += u64::from(is_single);
        }
        for Got { queue, id, age_ms, asking } in self.got {
            reports::delivered(state, &local.moment(), asking);
            state.use_of(queue).traffic.got(id, age_ms);
            local.freed(queue, state);
        }
        for (get, to) in self.later {
            conclude(peer, local, state, get, to);
        }
        for get in self.kept {
            // The client has it now, as any other delivery.
            match peer.links.get_mut(&get.link) {
                Some(Link::Consumer(consumer)) => drop(consumer.deliveries.outstanding.insert(get.id)),
                _ => {
                    returns::give_back(&get.from, local.wall_ms, state, get.id, 0);
                    local.freed(get.from.queue, state);
                }
            }
        }
    }
}

/// How many of `puts` are for that queue.
fn on_queue<'a>(before: &'a mut Before, queue: QueueId, puts: &[(QueueId, Message)]) -> &'a mut usize {
    before.entry(queue).or_insert_with(|| puts.iter().filter(|(other, _)| *other == queue).count())
}
