//! SPLPROT(REMOVE): messages of a protected transmission queue are opened before they are sent (inventory B6.2), many
//! at the same time, and go out in their order.

use super::batch::{Turn, still_to_live};
use crate::accounting::Cost;
use crate::adapter::{Asker, Finished, Outcome, Work};
use crate::catalog::Protection;
use crate::catalog::status::Deed;
use crate::channel::registry::Place;
use crate::channel::transmission::TransmissionHeader;
use crate::dispatcher::local::{Local, no_ring};
use crate::dispatcher::peer::{ChannelUse, Peer};
use crate::dispatcher::sending::{Fault, Opener, Opening, Sending, Way};
use crate::envelope::{self, Arrival};
use crate::front::LinkId;
use crate::manager::State;
use crate::ordered_line::Stage;
use crate::reason::{self, Refusal};
use crate::wall_clock::from_wall_ms;
use bulla_amqp::Payload;
use bulla_device::role::{self, Role};
use bulla_queue::Found;
use bulla_seal::policy::Quality;
use bulla_seal::{Moments, OpenError, Outcome as Verdict, Policy, Tally, Verified};
use std::sync::Arc;
use std::time::Duration;

/// How long a message waits for memory to be opened in.
const MEMORY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A locked message of a transmission queue, and the link that it goes out on once it is opened.
pub(super) struct Sealed {
    pub(super) found: Found,
    pub(super) link: LinkId,
    pub(super) header: Arc<TransmissionHeader>,
    pub(super) payload: Payload,
}

impl Sending {
    /// SPLPROT(REMOVE), and the transmission queue has a policy (inventory B6.2).
    pub(super) fn opening_policy(&self, state: &State) -> Option<Arc<Policy>> {
        if self.definition.protection != Protection::Remove {
            return None;
        }
        state.definitions.policies.get(&self.queue_name).filter(|policy| policy.quality() != Quality::None).cloned()
    }

    /// Hands a sealed message to the adapters (SPLPROT(REMOVE)).
    pub(super) fn open(
        &mut self,
        Sealed { found, link, header, payload }: Sealed,
        policy: &Arc<Policy>,
        local: &mut Local,
        state: &mut State,
    ) {
        let held = local.manager.workers.adapters.hold(self.opener.who.number(), payload.len().saturating_mul(2));
        let (Ok(room), Ok(held)) = (self.opener.line.room(), held) else {
            // It goes back and comes again when others have given memory back.
            state.store.release(found.id, false);
            let again = local.now + MEMORY_AGAIN_AFTER;
            self.retry_at = Some(again);
            return local.serve_at(again, self.queue);
        };
        let destinations = state.destinations_of(&header, policy);
        let Place { dispatcher, peer, generation } = self.place;
        let asker = Asker { dispatcher, peer, generation, link, slot: room.slot() };
        let stage = match self.start_opening(&found, asker, destinations, &payload, policy, local) {
            Ok(arrival) => Stage::Away(Box::new(arrival)),
            Err(fault) => Stage::Ready(Err(fault)),
        };
        self.opener.line.join(room, Opening { found, link, header, _held: held }, payload.len(), stage);
    }

    fn start_opening(
        &self,
        found: &Found,
        asker: Asker,
        destinations: Vec<String>,
        payload: &Payload,
        policy: &Arc<Policy>,
        local: &Local,
    ) -> Result<Arrival, Fault> {
        let _protection = role::enter(Role::Opening);
        let malformed = |refusal: Refusal| Fault::Defective(Refusal::security("malformed", refusal.detail));
        let arrival = Arrival::read(payload, local.wall_ms).map_err(malformed)?;
        let der = arrival.sealed_body().map_err(malformed)?;
        let user = local.manager.channel_user(&self.definition);
        let ring = local.manager.ring(user, local.now).map_err(|error| {
            // The partner hears why the channel ends, and not where this machine keeps a ring: the log has that.
            crate::warning!(queue = self.queue_name, "{}: {user}: {error}", self.queue_name);
            Fault::Later(no_ring(user, &error))
        })?;
        let expect = arrival.expect(destinations);
        let moments = Moments { put_at: from_wall_ms(found.put_at_ms), now: local.wall() };
        let (manager, policy) = (local.manager.clone(), policy.clone());
        let tally = Tally::new();
        let counted = tally.clone();
        let open = move || {
            manager.sealing.opener.open_counting(&policy, &ring, der.clone(), expect.clone(), moments, counted.clone())
        };
        local.manager.workers.adapters.submit(asker, &self.opener.who, Work::Open(Arc::new(open)), tally, None);
        Ok(arrival)
    }

    /// Counts what was done with a message, at the channel and with the transmission queue's policy.
    pub(super) fn note(&mut self, deed: Deed, cost: &Cost, local: &Local) {
        self.counts.protection.note(deed, &cost.effort, &cost.wait);
        local.manager.counts.accounts.note(&self.queue_name, deed, cost);
    }

    /// Counts why a message could not be opened, likewise.
    pub(super) fn fail(&mut self, refusal: &Refusal, local: &Local) {
        let Some(cause) = refusal.cause else { return };
        self.counts.protection.fail(cause);
        local.manager.counts.accounts.fail(&self.queue_name, cause);
    }

    /// Goes on with opened messages at the head of the line, in their order.
    pub(super) fn opened_ones(&mut self, turn: &mut Turn<'_>) {
        loop {
            if let Some((Opening { found, link, .. }, Ok(_))) = self.opener.line.front()
                && self.is_fast(found)
                && (!turn.front.can_send(*link) || !turn.state.store.may_send(self.queue))
            {
                // Those behind it wait, too.
                return;
            }
            let Some((Opening { found, link, header, _held }, ready)) = self.opener.line.take_front() else { return };
            if let Err(Fault::Defective(refusal) | Fault::Undeliverable(refusal) | Fault::Later(refusal)) = &ready {
                self.fail(refusal, turn.local);
            }
            match ready {
                Ok(payload) => {
                    let payload = match &self.way {
                        Way::Numbered { .. } => header.put_before(&payload),
                        Way::Plain { .. } => payload,
                    };
                    let payload = still_to_live(payload, &found, turn.local.wall_ms);
                    self.take(found, link, payload, turn);
                }
                Err(Fault::Defective(refusal)) => self.quarantine(&found, &refusal, turn.local, turn.state),
                Err(Fault::Undeliverable(refusal)) => {
                    self.undeliverable(&found, &refusal, turn.local, turn.state);
                }
                Err(Fault::Later(refusal)) => {
                    turn.state.store.release(found.id, false);
                    self.failed(refusal);
                }
            }
        }
    }
}

/// An adapter is done with a message of this channel.
pub fn finished(peer: &mut Peer, local: &mut Local, state: &mut State, done: Finished) {
    let Finished { asker, outcome, cost } = done;
    let Peer { front, links, channel: ChannelUse { sending, .. }, .. } = peer;
    let Some(sending) = sending.as_deref_mut() else { return };
    let is_open = matches!(outcome, Outcome::Opened(Ok(_)));
    let Sending { opener: Opener { line, keys, .. }, definition, .. } = &mut *sending;
    let is_waited_for = line.fill(asker.slot, |_, arrival| {
        let _protection = role::enter(Role::Opening);
        if let Outcome::Opened(opened) = &outcome {
            let user = local.manager.channel_user(definition);
            let ring = || local.manager.ring(user, local.now).ok();
            keys.note(&local.manager, user, opened.as_ref().ok().map(Verified::get), &cost, ring);
        }
        match outcome {
            Outcome::Opened(Ok(opened)) => {
                let malformed = |refusal: Refusal| Fault::Defective(Refusal::security("malformed", refusal.detail));
                arrival.opened(opened).map(envelope::Readable::into_payload).map_err(malformed)
            }
            Outcome::Opened(Err(error)) => Err(fault(&error)),
            _ => Err(Fault::Later(Refusal::new(reason::UNEXPECTED_ERROR, "an adapter answered another question"))),
        }
    });
    if !is_waited_for {
        return;
    }
    sending.note(if is_open { Deed::Opened } else { Deed::FailedToOpen }, &cost, local);
    sending.opened_ones(&mut Turn { front: &mut **front, links, local, state });
    local.serve(sending.queue);
}

fn fault(error: &OpenError) -> Fault {
    let refusal = Refusal::security(error.cause(), error.to_string());
    match error.outcome() {
        // Nothing else reads a transmission queue: it would lie there for ever.
        Verdict::NotMine => Fault::Undeliverable(refusal),
        Verdict::Defective => Fault::Defective(refusal),
        Verdict::Retry => Fault::Later(refusal),
    }
}

pub(super) fn is_sealed(payload: &Payload, now_ms: u64) -> bool {
    Arrival::read(payload, now_ms).is_ok_and(|arrival| arrival.claims_seal())
}
