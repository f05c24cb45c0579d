//! Messages that a reader does not keep: given back, moved to the error queue or the dead-letter queue, or stuck.

use crate::accounting::Cost;
use crate::catalog::status::Deed;
use crate::catalog::{Backout, LocalQueue};
use crate::envelope::{self, Label};
use crate::front::outcome::Failure;
use crate::manager::{Manager, Route, State, Stays, Stuck};
use crate::maps::{HashMap, HashSet};
use crate::reason::{self, Refusal};
use crate::reports::Moment;
use crate::wall_clock::wall_ms;
use bulla_queue::log::LogError;
use bulla_queue::{Message, MessageId, PutError, QueueId, ReadError, RemoveError, SpillError};

/// Stuck messages looked at at one tick.
const STUCK_LOOKS_PER_TICK: usize = 10_000;
/// Of these, the ones that are tried again: each is read whole, under the queues' lock.
const RETRIES_PER_TICK: usize = 100;
/// Bytes of stuck messages after which a tick tries no more.
const RETRIED_BYTES_PER_TICK: u64 = 8 << 20;

/// Whether a body that could not be read may be read another time: it was the disk or the log that said no, not the
/// bytes.
pub fn is_passing(error: &ReadError) -> bool {
    matches!(
        error,
        ReadError::Away { .. } | ReadError::Log(LogError::Unavailable(_)) | ReadError::Spill(SpillError::Io(_))
    )
}

/// Counts why a message does not go to its reader.
pub fn fail(from: &Route, manager: &Manager, cause: &'static str) {
    if let Some(policy) = &from.policy {
        manager.counts.accounts.fail(&policy.name, cause);
    }
}

/// Moves a locked message, with a label, in one unit of work; where that fails it stays locked and is tried again.
/// False where it lies on that very queue: there it stays, and is given back.
fn move_away(to: &str, from: &Route, state: &mut State, id: MessageId, label: Label) -> bool {
    if state.route(to).is_ok_and(|route| route.queue == from.queue) {
        state.store.release(id, false);
        return false;
    }
    let moved = Stuck { id, what: Stays::Move { to: to.to_owned(), label } };
    match moved.try_again(state) {
        Ok(()) => {}
        Err(NotYet::Away) => state.unfinished.messages.push_back(moved),
        Err(NotYet::Refused(why)) => stay(&from.queue_name, state, moved, &why),
    }
    true
}

/// Moves a message whose seal is defective to the error queue (inventory B2.15).
pub fn quarantine(
    from: &Route,
    moment: &Moment<'_>,
    state: &mut State,
    id: MessageId,
    cause: &str,
    detail: &str,
) -> bool {
    let label = defective(from, moment, state, id, cause, detail);
    move_away(&state.error_queue_for(from.queue), from, state, id, label)
}

/// Counts a message whose seal is defective, and tells the operator of it.
fn defective(from: &Route, moment: &Moment<'_>, state: &mut State, id: MessageId, cause: &str, detail: &str) -> Label {
    if let Some(policy) = &from.policy {
        moment.manager.counts.accounts.note(&policy.name, Deed::Quarantined, &Cost::default());
    }
    if moment.manager.told.peer_lines.may_write(moment.now) {
        crate::warning!(
            queue = from.queue_name,
            cause,
            "{}: a message goes to {}: cause={cause} {detail}",
            from.queue_name,
            state.error_queue_for(from.queue)
        );
    }
    let message_id = state.store.body(id).ok().and_then(|body| envelope::message_id(&envelope::payload_of(&body)));
    moment.manager.told.audit.quarantined(&from.queue_name, id.0, message_id.as_deref(), cause, detail);
    Label::new(Some(reason::SECURITY_ERROR), cause, detail, &from.queue_name, moment.wall_ms)
}

/// Why something can't be done with a message now.
enum NotYet {
    /// Its body is being read back.
    Away,
    /// In words.
    Refused(String),
}

impl NotYet {
    fn read(error: &ReadError) -> Self {
        match error {
            ReadError::Away { .. } => NotYet::Away,
            error => NotYet::Refused(error.to_string()),
        }
    }
}

impl Stuck {
    /// Does what could not be done; says why where it still can't be. A message that is gone needs nothing.
    fn try_again(&self, state: &mut State) -> Result<(), NotYet> {
        match &self.what {
            Stays::Return => match state.store.body(self.id) {
                Err(error) if is_passing(&error) => Err(NotYet::read(&error)),
                // A consumer that gets a damaged one finds that out.
                _ => {
                    state.store.release(self.id, false);
                    Ok(())
                }
            },
            Stays::Remove => match state.store.acknowledge(self.id) {
                Ok(_) | Err(RemoveError::NotLocked { .. }) => Ok(()),
                Err(error) => Err(NotYet::Refused(error.to_string())),
            },
            Stays::Move { to, label } => match replacement(state, self.id, to, label)? {
                Some((queue, replacement)) => match state.store.transfer(self.id, queue, replacement) {
                    Ok(_) | Err(PutError::NotLocked { .. }) => Ok(()),
                    Err(error) => Err(NotYet::Refused(crate::refusals::store_refusal(&error).to_string())),
                },
                None => Ok(()),
            },
            Stays::GiveBack { from, failures } => {
                let wall_ms = wall_ms(state.clock.wall());
                give_back(from, wall_ms, state, self.id, *failures);
                Ok(())
            }
        }
    }
}

/// What is put in the stead of a message that moves to another queue, and where; none where it is gone.
fn replacement(
    state: &mut State,
    id: MessageId,
    to: &str,
    label: &Label,
) -> Result<Option<(QueueId, Message)>, NotYet> {
    let Some((_, found)) = state.store.find(id) else { return Ok(None) };
    let queue = taking(state, to).map_err(|refusal| NotYet::Refused(refusal.to_string()))?;
    let body = state.store.body(id).map_err(|error| NotYet::read(&error))?;
    Ok(Some((queue, envelope::labelled(&envelope::payload_of(&body), label, (&found).into()))))
}

/// The queue of that name, where messages may be moved to it now. Asked before a body is read.
fn taking(state: &State, to: &str) -> Result<QueueId, Refusal> {
    let queue = state.route(to)?.queue;
    if state.store.attributes(queue).is_some_and(|attributes| !attributes.put_enabled) {
        return Err(Refusal::new(reason::PUT_INHIBITED, format!("{to} has PUT(DISABLED)")));
    }
    // None either while the journal is behind: what moves must not pile up before it.
    if state.store.room(queue) == 0 {
        return Err(Refusal::new(reason::Q_FULL, format!("{to} has no room now")));
    }
    Ok(queue)
}

/// Leaves a message with which something could not be done locked, for the ticks to try again. The operator is told of
/// one between two ticks.
pub fn stay(queue: &str, state: &mut State, stuck: Stuck, why: &str) {
    state.unfinished.messages.push_back(stuck);
    if !std::mem::replace(&mut state.unfinished.told, true) {
        let count = state.unfinished.messages.len();
        crate::alarm!(queue, "{queue}: {why}; the message stays locked where it is and is tried again, {count} in all");
    }
}

/// Tries again what could not be done: the error queue was full, the journal away. To be called at each tick.
pub fn retry_stuck(state: &mut State) {
    state.unfinished.told = false;
    let (mut tries, mut bytes) = (RETRIES_PER_TICK, RETRIED_BYTES_PER_TICK);
    // One look at a queue that takes nothing is enough for all that wait for it.
    let mut closed: HashSet<String> = HashSet::default();
    for _ in 0..state.unfinished.messages.len().min(STUCK_LOOKS_PER_TICK) {
        if tries == 0 || bytes == 0 {
            return;
        }
        let Some(stuck) = state.unfinished.messages.pop_front() else { return };
        if let Stays::Move { to, .. } = &stuck.what
            && (closed.contains(to) || taking(state, to).is_err())
        {
            closed.insert(to.clone());
            state.unfinished.messages.push_back(stuck);
            continue;
        }
        let length = state.store.find(stuck.id).map_or(0, |(_, found)| u64::from(found.body_bytes));
        (tries, bytes) = (tries - 1, bytes.saturating_sub(length));
        if stuck.try_again(state).is_err() {
            state.unfinished.messages.push_back(stuck);
        }
    }
}

/// What a client calls the failure of a message whose seal it found defective.
pub const DEFECTIVE: &str = "bulla:defective";

/// A queue by its name, and the label of a message that goes there.
pub type Destination = (String, Label);

/// Where a rejected message goes: to the dead-letter queue, or where the client found its seal defective, to the error
/// queue. None where there is no dead-letter queue. Counts it.
pub fn rejected_to(
    from: &Route,
    moment: &Moment<'_>,
    state: &mut State,
    id: MessageId,
    why: Option<&Failure>,
) -> Option<Destination> {
    let said = why.and_then(Failure::said);
    let detail = said.and_then(|said| said.text.as_deref()).unwrap_or_default();
    if said.is_some_and(|said| said.condition == DEFECTIVE) {
        fail(from, moment.manager, "reported-by-client");
        let errors = state.error_queue_for(from.queue).into_owned();
        return Some((errors, defective(from, moment, state, id, "reported-by-client", detail)));
    }
    let to = state.dead_letter_queue_for(from.queue)?;
    Some((to, Label::new(None, "rejected", detail, &from.queue_name, moment.wall_ms)))
}

/// Moves a rejected message, or gives it back; that is a failure, where it had none. False where it lies on the very
/// queue that it would go to: it stays there.
pub fn reject(
    from: &Route,
    wall_ms: u64,
    state: &mut State,
    id: MessageId,
    to: Option<Destination>,
    failures: u32,
) -> bool {
    match to {
        Some((to, label)) => move_away(&to, from, state, id, label),
        None => {
            give_back(from, wall_ms, state, id, failures.max(1));
            true
        }
    }
}

/// What a commit that puts `puts` puts in the stead of a message that moves. None where it can't go there now: then it
/// is not part of the commit. `before` counts what is put on a queue, by queue, where that was asked; `left` is what
/// the commit may still take in bytes, and a longer message is not read.
pub fn moved_with(
    from: &Route,
    state: &mut State,
    id: MessageId,
    (to, label): &Destination,
    puts: &[(QueueId, Message)],
    before: &mut HashMap<QueueId, usize>,
    left: &mut usize,
) -> Option<(QueueId, Message)> {
    let bytes = state.store.find(id)?.1.body_bytes as usize;
    let rest = left.checked_sub(bytes)?;
    let (queue, message) = replacement(state, id, to, label).ok()??;
    let before = before.entry(queue).or_insert_with(|| puts.iter().filter(|(other, _)| *other == queue).count());
    (queue != from.queue && state.store.admits(queue, &message, *before).is_ok()).then(|| {
        (*before, *left) = (*before + 1, rest);
        (queue, message)
    })
}

/// Unlocks a message whose delivery has failed that often, or not at all, and counts that. Of a queue with
/// BACKOUT(MOVE), one that comes to BOTHRESH so is moved to BOQNAME, or else to DEADQ; where that can't be, it stays.
pub fn give_back(from: &Route, wall_ms: u64, state: &mut State, id: MessageId, failures: u32) {
    if failures == 0 {
        return state.store.release(id, false);
    }
    let moves = |local: &&LocalQueue| local.backout == Backout::Move && local.backout_threshold > 0;
    if let Some(local) = state.definitions.queues.get(&from.queue_name).filter(moves)
        && let Some((_, found)) = state.store.find(id)
        && found.delivery_count.saturating_add(failures) >= local.backout_threshold
    {
        let to = local.backout_queue.clone().or_else(|| state.dead_letter_queue_for(from.queue));
        let detail = format!("backed out {} times", found.delivery_count.saturating_add(failures));
        match move_backed_out(from, to.as_deref(), &detail, wall_ms, state, id) {
            Ok(()) => return,
            Err(NotYet::Away) => {
                let what = Stays::GiveBack { from: Box::new(from.clone()), failures };
                return state.unfinished.messages.push_back(Stuck { id, what });
            }
            Err(NotYet::Refused(why)) if state.notices.peer_lines.may_write(state.clock.now()) => {
                crate::warning!(
                    queue = from.queue_name,
                    "{}: a message was {detail} and stays: {why}",
                    from.queue_name
                );
            }
            Err(NotYet::Refused(_)) => {}
        }
    }
    state.store.release_failed(id, failures);
}

fn move_backed_out(
    from: &Route,
    to: Option<&str>,
    detail: &str,
    wall_ms: u64,
    state: &mut State,
    id: MessageId,
) -> Result<(), NotYet> {
    let refused = |why: String| Err(NotYet::Refused(why));
    let Some(to) = to else { return refused("neither BOQNAME nor DEADQ names a queue".to_owned()) };
    let reason = reason::BACKOUT_THRESHOLD_REACHED;
    let label = Label::new(Some(reason), "backout-threshold", detail, &from.queue_name, wall_ms);
    if state.route(to).is_ok_and(|route| route.queue == from.queue) {
        return refused(format!("{to} is the queue it is on"));
    }
    Stuck { id, what: Stays::Move { to: to.to_owned(), label } }.try_again(state)?;
    if state.notices.peer_lines.may_write(state.clock.now()) {
        crate::note!(queue = from.queue_name, "{}: a message was {detail} and goes to {to}", from.queue_name);
    }
    Ok(())
}
