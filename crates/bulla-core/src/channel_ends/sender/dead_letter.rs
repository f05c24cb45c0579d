//! Messages that can't be sent: to the dead-letter queue, or the channel ends (inventory B6.7, C1.20); and those whose
//! seal is defective: to the error queue (B2.15).

use super::opening::is_sealed;
use crate::accounting::Cost;
use crate::catalog::status::Deed;
use crate::catalog::system_queues::SYSTEM_PREFIX;
use crate::channel::transmission;
use crate::dispatcher::local::Local;
use crate::dispatcher::returns;
use crate::dispatcher::sending::Sending;
use crate::envelope::{self, Label};
use crate::manager::{State, Stays, Stuck};
use crate::reason::Refusal;
use bulla_amqp::{Payload, Sections};
use bulla_queue::{Found, MessageId, QueueId, ReadError};
use bulla_seal::policy::{Quality, Toleration};

impl Sending {
    /// A message that can't be sent: to the dead-letter queue with the reason (inventory B6.7, C1.20). Where that
    /// fails, too, the channel ends and tries again later; a non-persistent one under NPMSPEED(FAST) is lost. It goes
    /// as it lay here: what SPLPROT(REMOVE) has opened never comes to a disk.
    pub(super) fn undeliverable(&mut self, found: &Found, refusal: &Refusal, local: &Local, state: &mut State) {
        let Err(why) = self.bury(found, refusal, local, state) else { return };
        if self.is_fast(found) {
            crate::warning!(
                channel = self.id.channel,
                reason = refusal.reason.code,
                cause = refusal.cause,
                "channel {}: a message is lost: {refusal}; {why}",
                self.id.channel
            );
            return self.remove(found.id, state);
        }
        state.store.release(found.id, false);
        self.failed(Refusal { detail: format!("{}; {why}", refusal.detail), ..refusal.clone() });
    }

    /// The partner has refused a message: it is dealt with as one that can't be sent.
    pub(super) fn refused(&mut self, id: MessageId, refusal: &Refusal, local: &Local, state: &mut State) {
        if let Some((_, found)) = state.store.find(id) {
            self.undeliverable(&found, refusal, local, state);
        }
    }

    fn bury(&self, found: &Found, refusal: &Refusal, local: &Local, state: &mut State) -> Result<(), String> {
        let dead_letters = state.dead_letter_queue_for(self.queue);
        let to =
            dead_letters.filter(|_| self.definition.use_dead_letter_queue).ok_or("there is no dead-letter queue")?;
        let route = state.route(&to).map_err(|refusal| refusal.to_string())?;
        let body = state.store.body(found.id).map_err(|error| error.to_string())?;
        let stored = envelope::payload_of(&body);
        let policy = route.policy.as_ref().filter(|policy| policy.quality() != Quality::None);
        let policy = policy.filter(|_| !route.queue_name.starts_with(SYSTEM_PREFIX));
        let is_clear = !is_sealed(&stored, local.wall_ms);
        if is_clear && policy.is_some_and(|policy| policy.toleration == Toleration::Enforce) {
            return Err(format!("{to}: the policy takes no clear messages"));
        }
        self.move_to(route.queue, found, &stored, refusal, local, state)?;
        crate::warning!(
            channel = self.id.channel,
            reason = refusal.reason.code,
            cause = refusal.cause,
            "channel {}: a message goes to {to}: {refusal}",
            self.id.channel
        );
        Ok(())
    }

    /// Moves a message in one unit of work, with a label that says where it was to go.
    fn move_to(
        &self,
        queue: QueueId,
        found: &Found,
        stored: &Payload,
        refusal: &Refusal,
        local: &Local,
        state: &mut State,
    ) -> Result<(), String> {
        let wanted = Sections::scan(stored).ok().and_then(|sections| transmission::destination(stored, &sections));
        let label = match &wanted {
            Some(to) => Label::undelivered(refusal, &to.queue, &to.manager, local.wall_ms),
            None => Label::undelivered(refusal, &self.queue_name, &local.manager.name, local.wall_ms),
        };
        let message = envelope::labelled(stored, &label, found.into());
        state.store.transfer(found.id, queue, message).map(drop).map_err(|error| error.to_string())
    }

    /// A message whose seal is defective goes to the error queue; where that fails it stays locked and is tried again.
    pub(super) fn quarantine(&mut self, found: &Found, refusal: &Refusal, local: &Local, state: &mut State) {
        let errors = state.error_queue_for(self.queue).into_owned();
        self.note(Deed::Quarantined, &Cost::default(), local);
        crate::warning!(
            channel = self.id.channel,
            reason = refusal.reason.code,
            cause = refusal.cause,
            "channel {}: a message goes to {errors}: {refusal}",
            self.id.channel
        );
        let read = state.store.body(found.id);
        let is_away = matches!(read, Err(ReadError::Away { .. }));
        let body = read.map_err(|error| error.to_string());
        let message_id = body.as_ref().ok().and_then(|body| envelope::message_id(&envelope::payload_of(body)));
        let cause = refusal.cause.unwrap_or_default();
        let (number, id) = (found.id.0, message_id.as_deref());
        local.manager.told.audit.quarantined(&self.queue_name, number, id, cause, &refusal.detail);
        let moved = body.and_then(|body| {
            let stored = envelope::payload_of(&body);
            let route = state.route(&errors).map_err(|refusal| refusal.to_string())?;
            self.move_to(route.queue, found, &stored, refusal, local, state)
        });
        if let Err(why) = moved {
            let label = Label::undelivered(refusal, &self.queue_name, &local.manager.name, local.wall_ms);
            let stuck = Stuck { id: found.id, what: Stays::Move { to: errors, label } };
            match is_away {
                true => state.unfinished.messages.push_back(stuck),
                false => returns::stay(&self.queue_name, state, stuck, &why),
            }
        }
    }
}
