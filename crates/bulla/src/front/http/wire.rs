//! The bytes of a connection, and its time.

use super::answers::Refused;
use super::exchange::Stage;
use super::{Event, Http};
use crate::front::Wire;
use crate::reason::{self, Refusal};
use std::io::IoSlice;
use std::time::Instant;

impl Wire for Http {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.now = now;
        self.server.receive(now, bytes);
        self.pump();
    }

    fn wants_input(&self) -> bool {
        self.server.wants_input()
    }

    fn in_progress(&self) -> u64 {
        let waiting = match self.exchange.as_ref().map(|exchange| &exchange.stage) {
            Some(Stage::Putting(putting)) if putting.is_whole => putting.body.len() as u64,
            Some(Stage::Reading(reading)) => reading.body.len() as u64,
            _ => 0,
        };
        self.server.in_progress() + waiting
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn not_read(&mut self, now: Instant) {
        self.server.not_read(now);
    }

    fn output_len(&self) -> usize {
        self.server.output_len()
    }

    fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.server.output_slices(slices);
    }

    fn output_written(&mut self, count: usize) {
        self.server.output_written(count);
        self.pump();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = match self.exchange.as_ref().map(|exchange| &exchange.stage) {
            Some(Stage::Getting(getting)) if getting.waits() => Some(getting.until),
            Some(Stage::Putting(putting)) if putting.is_whole && putting.delivery.is_none() => Some(putting.give_up_at),
            _ => None,
        };
        own.into_iter().chain(self.server.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.server.handle_timeout(now);
        match self.exchange.as_mut().map(|exchange| &mut exchange.stage) {
            Some(Stage::Getting(getting)) if getting.until <= now && getting.waits() => {
                getting.is_late = true;
                let link = getting.link;
                self.events.push_back(Event::Credit { link, drain: true });
            }
            Some(Stage::Putting(putting))
                if putting.is_whole && putting.delivery.is_none() && putting.give_up_at <= now =>
            {
                let link = putting.link;
                let refusal = match self.waits_for_owner(link) {
                    false => Refusal::new(reason::Q_FULL, "the queue takes no more messages now"),
                    true => Refusal::new(reason::CF_NOT_AVAILABLE, "the owner of the queue does not answer"),
                };
                self.refuse(Refused::of_refusal(&refusal));
            }
            _ => {}
        }
        self.pump();
    }
}
