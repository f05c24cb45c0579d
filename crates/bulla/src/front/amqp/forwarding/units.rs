//! Units of work at an owner: each that a client begins here is begun there with its first message, and ends there.

use super::super::outcomes;
use super::Answers;
use crate::front::{DeliveryId, Event, LinkId, UnitAsked, UnitId, UnitStep};
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use bulla_amqp::transaction::{Control, Declare, Discharge, LOCAL_TRANSACTIONS};
use bulla_amqp::{AttachRequest, Connection, Coordinator, DeliveryState, Error, Payload, condition};
use bytes::Bytes;
use std::collections::VecDeque;

/// The name of the link to the owner's coordinator.
const COORDINATOR: &str = "units";

/// A client has asked for the end of a unit.
#[derive(Clone, Debug)]
pub(in super::super) struct Asked {
    /// The unit.
    pub(in super::super) unit: UnitId,
    /// The link to this side's coordinator.
    pub(in super::super) link: LinkId,
    /// The handle of the answer.
    pub(in super::super) id: DeliveryId,
    /// Whether the client wants no answer.
    pub(in super::super) settled: bool,
    /// Whether the client had no credit for it.
    pub(in super::super) beyond_credit: bool,
}

/// What waits for the owner's word on a unit.
pub(super) enum Waiting {
    /// A message that the client puts.
    Put { link: LinkId, id: bulla_amqp::DeliveryId, payload: Payload, settled: bool },
    /// What the client says of a message that it got.
    Outcome { link: LinkId, id: bulla_amqp::DeliveryId, state: DeliveryState, settled: bool },
    /// The unit's end.
    End { asked: Option<Asked>, commits: bool },
}

/// A unit.
#[derive(Default)]
pub(super) struct Unit {
    /// The owner's name for it, once it has begun there.
    pub(super) txn_id: Option<Bytes>,
    /// What waits until then.
    pub(super) waiting: Vec<Waiting>,
    /// The links that messages of it were put on.
    pub(super) puts_on: Vec<LinkId>,
    /// Why it can't commit.
    pub(super) failed: Option<Error>,
}

/// What the owner's coordinator is asked.
enum Step {
    Declare(UnitId),
    /// The end of a unit: who wants to know, and what that one hears whatever the owner says.
    End {
        asked: Option<Asked>,
        commits: bool,
        failed: Option<Error>,
    },
}

/// What has become of a unit.
pub(super) enum Become {
    /// It has begun, or can't: what waits for it goes on.
    Begun(UnitId),
    /// It has ended.
    Ended,
    /// It has begun at the owner, and is gone here: the owner's name for it.
    Stray(Bytes),
}

/// The units of one connection at an owner.
#[derive(Default)]
pub(super) struct Units {
    pub(super) all: HashMap<UnitId, Unit>,
    coordinator: Option<bulla_amqp::LinkId>,
    unsent: VecDeque<(u64, Payload)>,
    asked: HashMap<u64, Step>,
    last: u64,
}

impl Units {
    /// The unit, begun at the owner where it was not.
    pub(super) fn unit(&mut self, engine: &mut Connection, unit: UnitId) -> &mut Unit {
        if !self.all.contains_key(&unit) {
            self.ask(engine, Step::Declare(unit), &Control::Declare(Declare { global_id: None }));
        }
        self.all.entry(unit).or_default()
    }

    /// Whether a link of the owner's is the coordinator's.
    pub(super) fn is_coordinator(&self, link: bulla_amqp::LinkId) -> bool {
        self.coordinator == Some(link)
    }

    /// Ends a unit that has begun at the owner. Nothing of it waits any more.
    pub(super) fn end(
        &mut self,
        engine: &mut Connection,
        txn_id: Bytes,
        asked: Option<Asked>,
        end: (bool, Option<Error>),
    ) {
        let (commits, failed) = end;
        let fail = !commits || failed.is_some();
        let step = Step::End { asked, commits, failed };
        self.ask(engine, step, &Control::Discharge(Discharge { txn_id, fail }));
    }

    fn ask(&mut self, engine: &mut Connection, step: Step, control: &Control) {
        if self.coordinator.is_none() {
            let session = engine.begin();
            let wanted = Coordinator { capabilities: vec![LOCAL_TRANSACTIONS] };
            self.coordinator = Some(engine.attach(session, AttachRequest::coordinator(COORDINATOR, wanted)));
        }
        self.last += 1;
        self.asked.insert(self.last, step);
        self.unsent.push_back((self.last, control.to_message()));
        self.send(engine);
    }

    /// Sends what the coordinator has credit for. It has a session of its own, and an end comes behind the outcomes
    /// that it ends.
    pub(super) fn send(&mut self, engine: &mut Connection) {
        let Some(coordinator) = self.coordinator else { return };
        engine.write_outcomes();
        while engine.credit(coordinator) > 0
            && let Some((token, message)) = self.unsent.pop_front()
        {
            engine.send(coordinator, token, message, false);
        }
    }

    /// The coordinator has answered.
    pub(super) fn answered(
        &mut self,
        answers: &mut Answers,
        token: u64,
        state: Option<DeliveryState>,
    ) -> Option<Become> {
        match self.asked.remove(&token)? {
            Step::Declare(id) => {
                let Some(unit) = self.all.get_mut(&id) else {
                    let DeliveryState::Declared { txn_id } = state? else { return None };
                    return Some(Become::Stray(txn_id));
                };
                match state {
                    Some(DeliveryState::Declared { txn_id }) => unit.txn_id = Some(txn_id),
                    other => unit.failed = Some(error_of(other)),
                }
                Some(Become::Begun(id))
            }
            Step::End { asked, commits, failed } => {
                let verdict = match (failed, state) {
                    (Some(error), _) if commits => DeliveryState::Rejected(Some(Box::new(error))),
                    (_, Some(DeliveryState::Accepted)) => DeliveryState::Accepted,
                    (_, other) => DeliveryState::Rejected(Some(Box::new(error_of(other)))),
                };
                if let Some(asked) = asked {
                    answers.ended(asked, verdict);
                }
                Some(Become::Ended)
            }
        }
    }

    /// The connection is gone: what was asked and not answered. Each commit among it may have been done or not.
    pub(super) fn lost(&mut self, answers: &mut Answers, error: &Error) -> Vec<Asked> {
        let was_sent = |token: &u64| !self.unsent.iter().any(|(unsent, _)| unsent == token);
        let mut unknown = Vec::new();
        for (token, step) in std::mem::take(&mut self.asked) {
            match step {
                Step::End { asked: Some(asked), commits, failed } => match commits && failed.is_none() {
                    true if was_sent(&token) => unknown.push(asked),
                    true => answers.ended(asked, backed_out(error)),
                    false if commits => answers.ended(asked, backed_out(&failed.unwrap_or_else(|| error.clone()))),
                    // It is backed out with its connection.
                    false => answers.ended(asked, DeliveryState::Accepted),
                },
                Step::End { asked: None, .. } | Step::Declare(_) => {}
            }
        }
        for unit in self.all.values_mut() {
            unit.txn_id = None;
            unit.failed.get_or_insert_with(|| error.clone());
        }
        (self.coordinator, self.unsent) = (None, VecDeque::new());
        unknown
    }
}

impl Answers {
    /// A unit has ended at the owner. What the core has of it is nothing, and is backed out.
    pub(super) fn ended(&mut self, asked: Asked, verdict: DeliveryState) {
        let Asked { unit, link, id, settled, beyond_credit } = asked;
        if !settled {
            self.verdicts.insert((link, id), verdict);
        }
        let step = Ok(UnitStep::BackOut(unit));
        self.events.push_back(Event::Unit(Box::new(UnitAsked { link, id, settled, beyond_credit, step })));
    }

    /// What became of a unit is not known. The core's part is backed out; the client gets no answer.
    pub(super) fn is_unknown(&mut self, asked: Asked) {
        let Asked { unit, link, id, beyond_credit, .. } = asked;
        let step = Ok(UnitStep::BackOut(unit));
        self.events.push_back(Event::Unit(Box::new(UnitAsked { link, id, settled: true, beyond_credit, step })));
    }
}

/// A message of a unit is not where its outcome could be applied.
pub(super) fn outcome_lost() -> Error {
    let refusal =
        Refusal::new(reason::BACKED_OUT, "the link of a message got in the unit had ended before its outcome came");
    Error { condition: condition::TRANSACTION_ROLLBACK, ..refusal.to_amqp() }
}

/// What a client hears of a unit that was backed out because of an error.
pub(super) fn backed_out(error: &Error) -> DeliveryState {
    let condition = condition::TRANSACTION_ROLLBACK;
    DeliveryState::Rejected(Some(Box::new(Error { condition, ..error.clone() })))
}

/// What an owner says that does not do what it was asked.
fn error_of(state: Option<DeliveryState>) -> Error {
    match state {
        Some(DeliveryState::Rejected(Some(error))) => *error,
        _ => Error::new(condition::TRANSACTION_ROLLBACK, "the owner of the queue did not do it"),
    }
}

/// A state of this side's, as part of a unit.
pub(super) fn within(unit: UnitId, state: DeliveryState) -> DeliveryState {
    DeliveryState::Transactional { txn_id: outcomes::txn_id(unit), outcome: Some(Box::new(state)) }
}
