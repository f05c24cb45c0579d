//! What came on a link of a channel goes on its queues: in order, numbered messages in units of work with their number.

use crate::adapter::Asker;
use crate::catalog::system_queues::dead_letter_queue_of;
use crate::channel::registry::Place;
use crate::channel::transmission::Destination;
use crate::dispatcher::local::{Confirmation, Confirmed, Local};
use crate::dispatcher::receiving::delivery::{Delivery, Prepared, Secret, Way};
use crate::dispatcher::receiving::{Receiving, Waiting};
use crate::dispatcher::sealing::Stage;
use crate::envelope::{self, Arrival, Label, Was};
use crate::front::outcome::MessageOutcome;
use crate::front::{DeliveryId, Front, LinkId};
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::refusals::store_refusal;
use crate::reports;
use bulla_queue::{Message, MessageId, QueueId, Ticket};
use bulla_seal::policy::SealedAt;
use std::sync::Arc;
use std::time::Duration;

/// Messages and bytes of one unit of work.
const UNIT_MESSAGES_MAX: usize = 1_024;
const UNIT_BYTES_MAX: usize = 8 << 20;
/// How long a message waits for memory to be sealed in before that is asked for again.
const MEMORY_WAIT: Duration = Duration::from_millis(50);
/// Sub-reasons of a message that can't be sealed now, and may be sealed later as it is. All others are the message's
/// own or its policy's, and waiting does not mend them.
const PASSING: [&str; 3] = ["key-unavailable", "crl-stale", "crl-missing"];

/// A turn of a link, and what of its dispatcher that needs.
pub(super) struct Turn<'a> {
    pub(super) front: &'a mut Front,
    pub(super) local: &'a mut Local,
    pub(super) state: &'a mut State,
    pub(super) link: LinkId,
}

/// What a turn has found.
enum Step {
    /// The head of the line is dealt with: on with the next.
    On,
    /// Nothing more can be done now.
    Wait,
    /// The link ends.
    End(Refusal),
}

/// What is committed at once.
#[derive(Default)]
struct Unit {
    messages: Vec<(QueueId, Message)>,
    bytes: usize,
    /// Places in the line that it reaches over: also those whose messages have expired.
    count: u64,
    /// Messages that ask for reports: their place in the line, and in the unit.
    asking: Vec<(usize, u64)>,
    /// Why the message behind them can't be put.
    refused: Option<Refusal>,
}

impl Unit {
    fn is_full(&self) -> bool {
        self.messages.len() >= UNIT_MESSAGES_MAX || self.bytes >= UNIT_BYTES_MAX
    }

    /// The next message; `asks` says that it asks for reports.
    fn push(&mut self, queue: QueueId, message: Message, asks: bool) {
        if asks {
            self.asking.push((usize::try_from(self.count).unwrap_or(usize::MAX), self.messages.len() as u64));
        }
        self.bytes += message.body.len();
        self.messages.push((queue, message));
    }
}

impl Receiving {
    /// Puts what can be put, in order. The refusal where the link has to end.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) -> Option<Refusal> {
        if let Some(at) = self.head.retry_at {
            if at > turn.local.now {
                turn.local.wake_at(at);
                return None;
            }
            self.head.retry_at = None;
            self.prepare_again(turn.local, turn.state, turn.link);
        }
        loop {
            if self.line.front().is_some_and(|(head, _)| head.is_stale(turn.state)) {
                self.prepare(turn.local, turn.state, turn.link, 0);
            }
            let step = match self.line.front() {
                None => Step::Wait,
                Some((Waiting { id: None, .. }, _)) => self.put_one(turn),
                Some(_) => self.commit_some(turn),
            };
            match step {
                Step::On => {}
                Step::Wait => return None,
                Step::End(refusal) => return Some(refusal),
            }
        }
    }

    /// The head of the line is tried again: with what is defined now, if it found no way or that has changed. So are
    /// those that found no memory.
    fn prepare_again(&mut self, local: &mut Local, state: &State, link: LinkId) {
        let Some((head, answer)) = self.line.front().filter(|(head, _)| head.dead.is_none()) else { return };
        let changed = head.way.as_ref().is_none_or(|way| way.route.generation != state.generations.definitions);
        let starved = std::mem::take(&mut self.starved);
        if changed || answer.is_err() {
            self.prepare(local, state, link, 0);
        }
        for place in 1..self.line.len() {
            if !starved || self.starved {
                return;
            }
            if self.line.at(place).is_some_and(|(_, stage)| is_starved(stage)) {
                self.prepare(local, state, link, place);
            }
        }
    }

    /// Begins anew what is to be done with a message in the line before it is put.
    fn prepare(&mut self, local: &mut Local, state: &State, link: LinkId, place: usize) {
        let Some(asker) = self.line.slot_at(place).map(|slot| self.asker(link, slot)) else { return };
        let Self { line, delivery, starved, .. } = self;
        line.begin_again(place, |waiting, _| waiting.prepare(delivery, starved, local, state, asker));
    }

    /// Puts the head of the line, which its sender has settled.
    fn put_one(&mut self, turn: &mut Turn<'_>) -> Step {
        let Turn { local, state, .. } = turn;
        let mut put_on = None;
        let Some((head, answer)) = self.line.front() else { return Step::Wait };
        let put = match head.ready(answer, state, &[], local.wall_ms) {
            None => return Step::Wait,
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some((queue, message)))) => state
                .store
                .put(queue, message)
                .map(|ticket| {
                    put_on = Some(queue);
                    state.note_put(queue, state.store.newest(queue.store()), local.now);
                    if !state.store.is_synced(ticket) {
                        local.flush_soon();
                    }
                })
                .map_err(|error| store_refusal(&error)),
            Some(Err(refusal)) => Err(refusal),
        };
        match put {
            Ok(()) => {
                if let Some(queue) = put_on.filter(|_| head.asks) {
                    let id = state.store.newest(queue.store());
                    head.tell(state, local, id);
                }
                self.pop();
                Step::On
            }
            Err(refusal) => self.refused(turn, refusal),
        }
    }

    /// One unit of work: what is ready at the head of the line and not settled, and the number that it reaches.
    fn commit_some(&mut self, turn: &mut Turn<'_>) -> Step {
        let Unit { messages, asking, count, refused, .. } = self.gather(turn.local.wall_ms, turn.state);
        if count == 0 {
            return match refused {
                Some(refusal) => self.refused(turn, refusal),
                None => Step::Wait,
            };
        }
        let Turn { local, state, .. } = turn;
        let note = self.numbers.as_ref().map(|numbers| (numbers.note_name.as_str(), numbers.note(count).encode()));
        let note = note.as_ref().map(|(name, value)| (*name, Some(&value[..])));
        let last = messages.last().map(|(queue, _)| *queue);
        let first = state.store.newest(self.home).0 + 1;
        // The number that is reached is noted in the channel's own store.
        let ticket = match state.store.commit_from(self.home, messages, &[], note.as_slice()) {
            Ok(ticket) => ticket,
            // The journal's trouble, not the message's: there is no other queue for it.
            Err(error) if self.head.tries < self.definition.message_retries => {
                self.counts.why = Some(store_refusal(&error));
                return self.pause(local);
            }
            Err(error) => return Step::End(store_refusal(&error)),
        };
        if let Some(queue) = last {
            state.note_put(queue, state.store.newest(self.home), local.now);
        }
        if let Some(numbers) = &mut self.numbers {
            numbers.committed += count;
        }
        for (place, id) in asking {
            if let Some((waiting, _)) = self.line.at(place) {
                waiting.tell(state, local, MessageId(first + id));
            }
        }
        for _ in 0..count {
            let id = self.pop();
            self.confirming.waiting.extend(id.map(|id| (id, None)));
        }
        self.confirming.committed += count;
        self.counts.units += 1;
        self.confirm_when_synced(ticket, turn);
        Step::On
    }

    /// What is ready at the head of the line, not settled, and taken by its queues: as much as one unit of work holds.
    fn gather(&self, wall_ms: u64, state: &State) -> Unit {
        let mut unit = Unit::default();
        let mut before: Vec<(QueueId, usize)> = Vec::new();
        for (waiting, answer) in self.line.ready().take_while(|(waiting, _)| waiting.id.is_some()) {
            // Another definition holds by now: it is prepared again when it is the first.
            if unit.count > 0 && waiting.is_stale(state) || unit.is_full() {
                break;
            }
            match waiting.ready(answer, state, &before, wall_ms) {
                None => break,
                Some(Ok(None)) => {}
                Some(Ok(Some((queue, message)))) => {
                    match before.iter_mut().find(|(known, _)| *known == queue) {
                        Some((_, count)) => *count += 1,
                        None => before.push((queue, 1)),
                    }
                    unit.push(queue, message, waiting.asks);
                }
                Some(Err(refusal)) => {
                    unit.refused = Some(refusal);
                    break;
                }
            }
            unit.count += 1;
        }
        unit
    }

    /// What is committed by now is confirmed when that ticket is synced.
    fn confirm_when_synced(&self, ticket: Ticket, turn: &mut Turn<'_>) {
        let Place { peer: key, generation, .. } = self.place;
        let what = Confirmed::Channel { key, generation, link: turn.link, through: self.confirming.committed };
        turn.local.journaling.confirmations.push(Confirmation { ticket, what });
    }

    /// The head of the line is dealt with.
    fn pop(&mut self) -> Option<DeliveryId> {
        let (head, _) = self.line.take_front()?;
        self.head.tries = 0;
        self.counts.messages += 1;
        self.counts.last_message = true;
        if let Some(why) = head.dead {
            self.counts.dead += 1;
            self.counts.why = Some(why);
        }
        head.id
    }

    fn pause(&mut self, local: &mut Local) -> Step {
        self.head.tries += 1;
        self.pause_for(self.definition.message_retry_interval, local)
    }

    fn pause_for(&mut self, time: Duration, local: &mut Local) -> Step {
        let at = local.now + time;
        self.head.retry_at = Some(at);
        local.wake_at(at);
        Step::Wait
    }

    /// The head of the line can't be put: it is tried again, then it goes to the dead-letter queue, then the link ends
    /// (inventory C1.20). What the sender has settled can't come again: it is gone. What can be sealed for no queue
    /// here is refused, so that its sender buries it: the messages of others go on.
    fn refused(&mut self, turn: &mut Turn<'_>, refusal: Refusal) -> Step {
        let Turn { front, local, state, link } = turn;
        let Some((head, stage)) = self.line.at(0) else { return Step::Wait };
        if is_starved(stage) {
            // Nothing is wrong with it: it waits, however long that takes.
            return self.pause_for(MEMORY_WAIT, local);
        }
        let (refusal, why) = match &head.dead {
            None if head.may_pass(&refusal) && self.head.tries < self.definition.message_retries => {
                return self.pause(local);
            }
            None => {
                let way = head.way.clone();
                self.count_refused(way.as_deref(), &refusal, local, state);
                match self.bury(local, state, *link, &refusal) {
                    Ok(()) => return Step::On,
                    Err(None) => (refusal, None),
                    Err(Some(why)) => (not_buried(&refusal, &why), Some(why)),
                }
            }
            Some(first) => (not_buried(first, &refusal), Some(refusal)),
        };
        let is_unsealable = self.delivery.seals() && can_t_be_sealed(why.as_ref().unwrap_or(&refusal));
        match self.line.at(0).map(|(head, _)| head.id) {
            None => return Step::Wait,
            Some(Some(id)) if is_unsealable && self.numbers.as_ref().is_some_and(|numbers| numbers.takes_refusals) => {
                return self.give_back(turn, id, refusal);
            }
            Some(Some(_)) if self.numbers.is_some() => return Step::End(refusal),
            Some(Some(id)) => front.answer(*link, id, MessageOutcome::refused(refusal.clone()), None),
            Some(None) => self.counts.discarded += 1,
        }
        self.line.take_front();
        self.head.tries = 0;
        self.counts.last_message = true;
        self.counts.why = Some(refusal);
        Step::On
    }

    /// The head of the line goes back to its sender: its number is used, and the note says that it is not here. The
    /// sender hears of it once that is synced.
    fn give_back(&mut self, turn: &mut Turn<'_>, id: DeliveryId, refusal: Refusal) -> Step {
        let Some(numbers) = &mut self.numbers else { return Step::End(refusal) };
        let mut note = numbers.note(1);
        note.refused.note(note.sequence, refusal.reason.code);
        let notes = [(numbers.note_name.as_str(), Some(&note.encode()[..]))];
        let ticket = match turn.state.store.commit_notes(self.home, &notes) {
            Ok(ticket) => ticket,
            Err(error) => return Step::End(store_refusal(&error)),
        };
        (numbers.committed, numbers.refused) = (note.sequence, note.refused);
        self.line.take_front();
        self.head.tries = 0;
        self.counts.refused += 1;
        self.counts.last_message = true;
        self.counts.why = Some(refusal.clone());
        self.confirming.waiting.push_back((id, Some(refusal)));
        self.confirming.committed += 1;
        self.confirm_when_synced(ticket, turn);
        Step::On
    }

    /// A message can't be put where it was to go: by its reason with the queue, by its cause with policy and channel.
    fn count_refused(&mut self, way: Option<&Way>, refusal: &Refusal, local: &Local, state: &mut State) {
        if let Some(way) = way {
            state.use_of(way.route.queue).traffic.reject(refusal.reason.code);
        }
        let Some(cause) = refusal.cause else { return };
        self.delivery.meters.fail(cause);
        if let Some(policy) = way.and_then(|way| way.route.policy.as_ref()) {
            local.manager.counts.accounts.fail(&policy.name, cause);
        }
    }

    /// Sends the head of the line to the dead-letter queue. `None` where there is none to use.
    fn bury(
        &mut self,
        local: &mut Local,
        state: &State,
        link: LinkId,
        refusal: &Refusal,
    ) -> Result<(), Option<Refusal>> {
        let manager = &state.definitions.queue_manager;
        let dead_letters = match &self.definition.group {
            Some(group) => Some(dead_letter_queue_of(group)),
            None => manager.dead_letter_queue.clone(),
        };
        let queue = dead_letters.filter(|_| self.definition.use_dead_letter_queue).ok_or(None)?;
        let own = manager.name.clone();
        let way = Way::find(state, &Destination { queue, manager: own.clone() }).map_err(Some)?;
        let asker = self.asker(link, self.line.slot_at(0).ok_or(None)?);
        let (head, stage) = self.line.at(0).ok_or(None)?;
        let mut message = match stage {
            Stage::Ready(Ok(message)) => message.clone(),
            _ => self.delivery.as_it_came(&head.payload, head.id.is_some(), local.wall_ms),
        };
        let was_for = match &head.way {
            Some(way) => way.destination.clone(),
            None => self.delivery.wanted(&head.payload).unwrap_or(Destination { queue: String::new(), manager: own }),
        };
        let is_whole = Arrival::read(&envelope::payload_of(&message.body), local.wall_ms)
            .is_ok_and(|it| it.check_sections().is_ok());
        let secret = self.delivery.secrecy(state, &was_for, head.way.as_deref()).map(|policy| {
            // What its user might not put there is bound to the dead-letter queue: on its own it opens nowhere.
            let is_good = is_whole && refusal.reason != reason::NOT_AUTHORIZED && policy.sealed_at == SealedAt::Any;
            let bound_to = if is_good { was_for.to_string() } else { way.destination.to_string() };
            Secret { policy, bound_to }
        });
        if !is_whole && secret.is_some() {
            // What can't be read can't be sealed as it is: it becomes the data of a message.
            message.body = envelope::wrapped(&envelope::payload_of(&message.body));
        }
        let label = Label::undelivered(refusal, &was_for.queue, &was_for.manager, local.wall_ms);
        let labelled = envelope::labelled(&envelope::payload_of(&message.body), &label, Was::from(&message));
        let prepared = self.delivery.bury(local, state, asker, Arc::new(way), labelled, secret).map_err(Some)?;
        self.line.begin_again(0, |head, _| {
            (head.way, head._held) = (prepared.way, prepared.held);
            head.dead = Some(refusal.clone());
            prepared.stage
        });
        Ok(())
    }
}

impl Waiting {
    /// Begins what is to be done with the message before it is put. While it is `starved`, it waits for memory behind
    /// those before it.
    pub(super) fn prepare(
        &mut self,
        delivery: &mut Delivery,
        starved: &mut bool,
        local: &mut Local,
        state: &State,
        asker: Asker,
    ) -> Stage {
        self._held = None;
        if *starved {
            return Stage::Ready(Err(Refusal::new(reason::STORAGE_NOT_AVAILABLE, "messages before it wait")));
        }
        let Prepared { way, stage, held, asks } = delivery.prepare(local, state, asker, &self.payload);
        (self.way, self._held, self.asks) = (way, held, asks);
        *starved = is_starved(&stage);
        stage
    }

    /// Whether definitions have changed since it was prepared: policy, queue or alias may be others.
    fn is_stale(&self, state: &State) -> bool {
        let other = |way: &Arc<Way>| way.route.generation != state.generations.definitions;
        self.dead.is_none() && self.way.as_ref().is_some_and(other)
    }

    /// Whether a refusal may be another one a little later: queues empty, keys come back. What is no message stays
    /// none, a defective seal stays defective, and a policy that can't be satisfied needs the administrator.
    fn may_pass(&self, refusal: &Refusal) -> bool {
        !self.defective && refusal.reason != reason::MD_ERROR && !can_t_be_sealed(refusal)
    }

    /// Wakes those who wait for the queue that the message is on: its own, one on the way, or the dead-letter queue.
    fn tell(&self, state: &mut State, local: &Local, id: MessageId) {
        match &self.dead {
            Some(why) => reports::undeliverable(state, &local.moment(), id, why),
            None => {
                let is_remote = self.way.as_ref().is_some_and(|way| way.route.transmission.is_some());
                reports::arrived(state, &local.moment(), id, is_remote, None);
            }
        }
    }

    /// The message for its queue, where the queue takes it behind `before`; nothing where it has expired.
    #[allow(clippy::type_complexity, reason = "ready or not, refused or not, expired or not")]
    fn ready(
        &self,
        answer: &Result<Message, Refusal>,
        state: &State,
        before: &[(QueueId, usize)],
        wall_ms: u64,
    ) -> Option<Result<Option<(QueueId, Message)>, Refusal>> {
        let message = match answer {
            Ok(message) => message,
            Err(refusal) => return Some(Err(refusal.clone())),
        };
        let way = self.way.as_ref()?;
        if self.dead.is_none() && message.expires_at_ms.is_some_and(|at| at <= wall_ms) {
            return Some(Ok(None));
        }
        if !way.route.put_enabled {
            let detail = format!("{} has PUT(DISABLED)", way.route.queue_name);
            return Some(Err(Refusal::new(reason::PUT_INHIBITED, detail)));
        }
        let queue = way.route.queue;
        let mut message = way.dressed(message.clone());
        if self.dead.is_some() {
            // What waits for an operator does not expire meanwhile.
            message.expires_at_ms = None;
        }
        let ahead = before.iter().find(|(known, _)| *known == queue).map_or(0, |(_, count)| *count);
        Some(match state.store.admits(queue, &message, ahead) {
            Ok(()) => Ok(Some((queue, message))),
            Err(error) => Err(named(store_refusal(&error), &way.route.queue_name)),
        })
    }
}

/// Whether a message found no memory to be sealed in.
fn is_starved(stage: &Stage) -> bool {
    matches!(stage, Stage::Ready(Err(refusal)) if refusal.reason == reason::STORAGE_NOT_AVAILABLE)
}

/// Whether a message can't be sealed, and not because keys are away for a while.
fn can_t_be_sealed(refusal: &Refusal) -> bool {
    refusal.reason == reason::SECURITY_ERROR && !refusal.cause.is_some_and(|cause| PASSING.contains(&cause))
}

fn named(refusal: Refusal, queue: &str) -> Refusal {
    Refusal { detail: format!("{queue}: {}", refusal.detail), ..refusal }
}

fn not_buried(first: &Refusal, why: &Refusal) -> Refusal {
    Refusal { detail: format!("{}; dead-letter queue: {why}", first.detail), ..first.clone() }
}
