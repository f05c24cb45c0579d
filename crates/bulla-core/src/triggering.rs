//! Triggering: a message on a queue without a consumer becomes a trigger message on its initiation queue, and the
//! monitor that waits there (`bulla trigger`) starts the application (inventory A2.12). `docs/operating/triggers.md` is
//! the page. Transmission queues start their channels themselves: `channel/supervisor.rs`.

use crate::calendar;
use crate::catalog::objects::Process;
use crate::catalog::{Change, Definitions, LocalQueue, TriggerType, Usage};
use crate::envelope::chunks_of;
use crate::events::json_message;
use crate::manager::State;
use crate::maps::{HashMap, HashSet};
use bulla_amqp::Value;
use bulla_queue::{Arrivals, Keys, Message, PutError, QueueId};
use std::time::{Duration, Instant};

/// Trigger messages of one queue at one moment with TRIGTYPE(EVERY): what comes in one turn beyond it is told of by
/// these.
const EVERY_AT_ONCE_MAX: u32 = 10_000;
/// Subject of a trigger message.
const SUBJECT: &str = "TRIGGER";

/// The queues that trigger.
#[derive(Debug, Default)]
pub struct Triggering {
    /// By queue: its initiation queue.
    triggered: HashMap<QueueId, QueueId>,
    initiation: HashSet<QueueId>,
    /// When a queue with TRIGTYPE(FIRST) was triggered last.
    last: HashMap<QueueId, Instant>,
    /// Queues on which something may lie that was not triggered for.
    due: Vec<QueueId>,
    /// Trigger messages, by queue, that found no room on the initiation queue, or that it took none: the ticks try them
    /// again.
    untold: HashMap<QueueId, u32>,
    /// The definitions' generation this was made from.
    generation: u64,
}

/// Whether a queue triggers an application, as far as its definition says.
pub fn counted_priority(local: &LocalQueue) -> Option<u8> {
    let triggers = local.trigger && local.usage == Usage::Normal && local.trigger_type != TriggerType::None;
    (triggers && local.initiation_queue.is_some() && local.process.is_some()).then_some(local.trigger_priority)
}

impl Triggering {
    /// A consumer opened a queue to take messages: if that is an initiation queue, what it was not told of is looked
    /// for.
    pub fn opened(&mut self, queue: QueueId) {
        if self.initiation.contains(&queue) {
            self.due.extend(self.triggered.iter().filter(|(_, initiation)| **initiation == queue).map(|(id, _)| *id));
        }
    }

    /// No consumer takes from a queue any more: what was left there may trigger.
    pub fn abandoned(&mut self, queue: QueueId) {
        if self.triggered.contains_key(&queue) {
            self.due.push(queue);
        }
    }

    /// After a change of definitions; queues that did not trigger before are looked at.
    fn follow(&mut self, definitions: &Definitions, generation: u64, id_of: impl Fn(&str) -> Option<QueueId>) {
        if self.generation == generation {
            return;
        }
        let of = |(name, local): (&String, &LocalQueue)| {
            counted_priority(local)?;
            Some((id_of(name)?, id_of(local.initiation_queue.as_deref()?)?))
        };
        let triggered: HashMap<QueueId, QueueId> = definitions.queues.iter().filter_map(of).collect();
        self.due.extend(triggered.keys().filter(|queue| !self.triggered.contains_key(*queue)));
        self.last.retain(|queue, _| triggered.contains_key(queue));
        self.untold.retain(|queue, _| triggered.contains_key(queue));
        self.initiation = triggered.values().copied().collect();
        (self.triggered, self.generation) = (triggered, generation);
    }
}

/// Once a turn: trigger messages for what has come since the last one. Two compares where nothing triggers.
pub fn turn(state: &mut State, now: Instant, wall_ms: u64) {
    if state.triggering.generation != state.generations.definitions {
        let State { triggering, store, definitions, generations, .. } = state;
        triggering.follow(definitions, generations.definitions, |name| store.queue(name));
    }
    let mut arrivals = Vec::new();
    state.store.take_arrivals(&mut arrivals);
    for (queue, arrived) in arrivals {
        consider(state, queue, Some(arrived), now, wall_ms, false);
    }
    for queue in std::mem::take(&mut state.triggering.due) {
        consider(state, queue, None, now, wall_ms, false);
    }
}

/// Once a tick: what could not be told is told now, where it can be. One compare where there is nothing of the kind.
pub fn tick(state: &mut State, now: Instant, wall_ms: u64) {
    for (queue, count) in std::mem::take(&mut state.triggering.untold) {
        consider(state, queue, Some(Arrivals { count, first: true }), now, wall_ms, true);
    }
}

/// Whether what arrived, or lies there, is a trigger event.
fn is_event(kind: TriggerType, counted: u32, depth: u32, arrived: Option<Arrivals>, waited_long: bool) -> u32 {
    match (kind, arrived) {
        (TriggerType::First, Some(arrived)) => u32::from(counted > 0 && (arrived.first || waited_long)),
        (TriggerType::First, None) => u32::from(counted > 0),
        (TriggerType::Every, Some(arrived)) => arrived.count.min(EVERY_AT_ONCE_MAX),
        (TriggerType::Depth, _) => u32::from(counted >= depth.max(1)),
        (TriggerType::Every, None) | (TriggerType::None, _) => 0,
    }
}

fn consider(
    state: &mut State,
    queue: QueueId,
    arrived: Option<Arrivals>,
    now: Instant,
    wall_ms: u64,
    is_again: bool,
) -> Option<()> {
    let initiation = *state.triggering.triggered.get(&queue)?;
    let name = state.store.name(queue)?.to_owned();
    let local = state.definitions.queues.get(&name)?.clone();
    let takers = |queue| state.uses.get(&queue).map_or(0, |usage| usage.takers);
    // A consumer serves the queue already; EVERY counts messages, not servers.
    if local.trigger_type != TriggerType::Every && takers(queue) > 0 {
        return None;
    }
    let to = state.definitions.queues.get(state.store.name(initiation)?)?;
    if takers(initiation) == 0 || !to.get_enabled || to.usage != Usage::Normal {
        return None;
    }
    let process = state.definitions.processes.get(local.process.as_deref()?)?;
    let interval = Duration::from_millis(state.definitions.queue_manager.trigger_interval_ms.into());
    let last = state.triggering.last.get(&queue);
    let waited_long = last.is_some_and(|last| now.saturating_duration_since(*last) >= interval);
    let counted = state.store.counted(queue);
    let times = is_event(local.trigger_type, counted, local.trigger_depth, arrived, waited_long);
    if times == 0 {
        return None;
    }
    let message = message(&state.definitions.queue_manager.name, &name, &local, process, to, wall_ms);
    for done in 0..times {
        let Err(error) = state.store.put(initiation, message.clone()) else { continue };
        // One that is too long for it never goes there.
        let later = !matches!(error, PutError::TooBig { .. } | PutError::Unknown);
        let untold = &mut state.triggering.untold;
        if later {
            let count = untold.entry(queue).or_default();
            *count = count.saturating_add(times - done).min(EVERY_AT_ONCE_MAX);
        }
        if !(later && is_again) {
            crate::warning!("{name}: a trigger message did not go on {}: {error}", to_name(state, initiation));
        }
        return None;
    }
    state.triggering.last.insert(queue, now);
    if local.trigger_type != TriggerType::Every {
        // What could not be told before is told with this.
        state.triggering.untold.remove(&queue);
    }
    if local.trigger_type == TriggerType::Depth {
        // Once, as MQ has it: the started application turns it on again.
        switch_off(state, name, local);
    }
    Some(())
}

fn to_name(state: &State, queue: QueueId) -> String {
    state.store.name(queue).unwrap_or_default().to_owned()
}

fn switch_off(state: &mut State, name: String, local: LocalQueue) {
    let queue = LocalQueue { trigger: false, ..local };
    let change = Change::alter(&name, queue);
    if let Err(why) = state.change_definitions(std::slice::from_ref(&change)) {
        crate::alarm!("{name}: NOTRIGGER after TRIGTYPE(DEPTH) is not kept: {why}");
    }
}

/// The trigger message: JSON, `docs/operating/triggers.md`.
fn message(
    manager: &str,
    queue: &str,
    local: &LocalQueue,
    process: &Process,
    initiation: &LocalQueue,
    wall_ms: u64,
) -> Message {
    let content = serde_json::json!({
        "qmgr": manager,
        "queue": queue,
        "process": local.process.as_deref().unwrap_or_default(),
        "trigdata": local.trigger_data.as_deref().unwrap_or_default(),
        "applicid": process.application,
        "userdata": process.user_data,
        "envrdata": process.environment_data,
        "time": calendar::rfc3339(wall_ms / 1000),
    });
    let body = json_message(SUBJECT, &[("queue", Value::from(queue))], content.to_string(), wall_ms);
    Message {
        priority: initiation.default_priority,
        persistent: initiation.default_persistent,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: wall_ms,
        user: None,
        keys: Keys::None,
        body: chunks_of(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_trigger_event_is_a_table() {
        let came = |count, first| Some(Arrivals { count, first });
        for (kind, counted, depth, arrived, waited_long, times) in [
            (TriggerType::First, 1, 1, came(1, true), false, 1),
            (TriggerType::First, 3, 1, came(3, true), false, 1),
            // There were some already.
            (TriggerType::First, 2, 1, came(1, false), false, 0),
            // TRIGINT is over: the one that was told may have died.
            (TriggerType::First, 2, 1, came(1, false), true, 1),
            // It is got already.
            (TriggerType::First, 0, 1, came(1, true), false, 0),
            // The last consumer has gone, or a monitor waits for trigger messages again.
            (TriggerType::First, 2, 1, None, false, 1),
            (TriggerType::First, 0, 1, None, true, 0),
            (TriggerType::Every, 2, 1, came(2, false), false, 2),
            (TriggerType::Every, 0, 1, came(2, false), false, 2),
            (TriggerType::Every, 2, 1, None, true, 0),
            (TriggerType::Every, 9, 1, came(u32::MAX, true), false, EVERY_AT_ONCE_MAX),
            (TriggerType::Depth, 4, 5, came(4, true), true, 0),
            (TriggerType::Depth, 5, 5, came(1, false), false, 1),
            (TriggerType::Depth, 6, 5, None, false, 1),
            (TriggerType::Depth, 0, 0, None, false, 0),
            (TriggerType::None, 5, 1, came(5, true), true, 0),
        ] {
            let found = is_event(kind, counted, depth, arrived, waited_long);
            assert_eq!(found, times, "{kind:?} {counted} of {depth}, {arrived:?}, {waited_long}");
        }
    }

    #[test]
    fn a_queue_triggers_only_with_everything_that_it_takes() {
        let whole = LocalQueue {
            trigger: true,
            initiation_queue: Some("INIT".into()),
            process: Some("P".into()),
            trigger_priority: 3,
            ..LocalQueue::default()
        };
        assert_eq!(counted_priority(&whole), Some(3));
        for less in [
            LocalQueue { trigger: false, ..whole.clone() },
            LocalQueue { initiation_queue: None, ..whole.clone() },
            LocalQueue { process: None, ..whole.clone() },
            LocalQueue { usage: Usage::Transmission, ..whole.clone() },
            LocalQueue { trigger_type: TriggerType::None, ..whole },
        ] {
            assert_eq!(counted_priority(&less), None, "{less:?}");
        }
    }
}
