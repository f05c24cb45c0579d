//! What lies on queues, and what is left of clients that are gone.

use super::checker::Shown;
use super::client::shown;
use super::protection::{Quality, Reader, shown_as};
use crate::clock::Clock;
use crate::envelope;
use crate::manager::State;

/// What lies on a queue, free for the next reader, in its order. All that there is must be free. A queue that is
/// protected is so at that queue manager.
pub(super) fn lying_on(
    state: &mut State,
    (name, protected): (&str, Option<(&str, Quality)>),
    reader: &mut Reader,
    clock: &Clock,
) -> Result<Vec<Shown>, String> {
    let queue = state.store.queue(name).ok_or_else(|| format!("{name} is gone"))?;
    let (mut there, mut after) = (Vec::new(), None);
    while let Some(found) = state.store.browse_next(queue, after, 0) {
        let body = state.store.body_now(found.id).map_err(|error| format!("{name}: {error}"))?;
        let payload = envelope::payload_of(&body);
        there.push(match protected {
            None => shown(&payload)?,
            Some((manager, quality)) => shown_as(reader.number((name, manager, quality), &payload, clock)?, &found),
        });
        after = Some(found.place);
    }
    let status = state.store.status(queue).ok_or_else(|| format!("{name} has no status"))?;
    if status.depth as usize != there.len() {
        return Err(format!("{name} shows {} messages, and has {status:?}", there.len()));
    }
    Ok(there)
}

/// What clients leave behind that are gone must be nothing.
pub(super) fn left_over(state: &State) -> Result<(), String> {
    if let Some((queue, usage)) = state.uses.iter().find(|(queue, _)| state.store.attributes(**queue).is_none()) {
        return Err(format!("{queue:?} is gone, and its use is not forgotten: {usage:?}"));
    }
    if !state.temporary.queues.is_empty() || !state.temporary.owners.is_empty() {
        return Err(format!("temporary queues are left: {:?}", state.temporary.queues.keys()));
    }
    for (queue, usage) in &state.uses {
        let left = (usage.granted, usage.staged, usage.putters, usage.getters, usage.takers);
        if left != (0, 0, 0, 0, 0) {
            return Err(format!("{queue:?} is still used when no client is connected: {usage:?}"));
        }
    }
    if state.unit_totals.staged_bytes > 0 || !state.unfinished.messages.is_empty() {
        return Err(format!(
            "{} bytes are staged, {} messages are stuck",
            state.unit_totals.staged_bytes,
            state.unfinished.messages.len()
        ));
    }
    Ok(())
}
