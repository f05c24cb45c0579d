//! How events are raised.

use super::Event;
use crate::manager::{Manager, State};
use crate::refused_tokens::RefusedTokens;

impl Manager {
    /// Raises events that a task of the queue manager found, and wakes the dispatchers: their clients may wait for
    /// them.
    pub fn raise(&self, events: &[Event], wall_ms: u64) {
        if events.is_empty() {
            return;
        }
        let mut state = self.lock();
        for event in events {
            state.raise(event, wall_ms);
        }
        drop(state);
        self.ring_all();
    }
}

impl State {
    /// Says what happened: in the log, and on its event queue where that is defined and its switch is on. It never
    /// fails and never raises another event; a message for which the event queue has no room is counted, and the next
    /// tick says so.
    pub fn raise(&mut self, event: &Event, wall_ms: u64) {
        event.log();
        let manager = &self.definitions.queue_manager;
        if !event.is_wanted(manager) {
            return;
        }
        let Some(local) = self.definitions.queues.get(event.queue()) else { return };
        let Some(queue) = self.store.queue(event.queue()) else { return };
        let message = event.message(&manager.name, local, wall_ms);
        if self.store.put(queue, message).is_err() {
            self.notices.events_lost += 1;
        }
    }

    /// Raises what the depths of queues have crossed since the last turn. One compare where they have not.
    pub fn raise_crossings(&mut self, wall_ms: u64) {
        let mut crossings = Vec::new();
        self.store.take_crossings(&mut crossings);
        for crossing in crossings {
            let Some(name) = self.store.name(crossing.queue) else { continue };
            let max_depth = self.store.attributes(crossing.queue).map_or(0, |attributes| attributes.max_depth);
            let event = Event::depth(&crossing, name, max_depth);
            self.raise(&event, wall_ms);
        }
    }

    /// Raises what servers with keys said of devices' tokens since the last tick. One compare where they said nothing.
    pub fn raise_refused_tokens(&mut self, tokens: &RefusedTokens, wall_ms: u64) {
        for (device, why) in tokens.take_news() {
            self.raise(&Event::TokenRefused { device, why }, wall_ms);
        }
    }

    /// Tells the operator of events that are in the log alone: a line a tick.
    pub fn tell_of_lost_events(&mut self) {
        let lost = std::mem::take(&mut self.notices.events_lost);
        if lost > 0 {
            crate::warning!("{lost} events are in this log alone: their event queue took no message");
        }
    }
}
