//! AMQP's words for what becomes of a message and for what went wrong, and the core's.

use super::super::outcome::{Failure, MessageOutcome, Said};
use super::super::{UnitId, link::Unsettled};
use crate::reason::Refusal;
use bulla_amqp::{DeliveryState, Error, Symbol, UnsettledMap, Value, condition};
use bytes::Bytes;
use std::num::NonZeroU64;

/// Keys in an error's info.
const REASON: &str = "reason";
const CAUSE: &str = "cause";
/// The delivery that it is about (Anonymous Terminus, section 2.2.2).
const DELIVERY_TAG: Symbol = Symbol::from_static("delivery-tag");
/// The field of an `open` that can't be.
const INVALID_FIELD: Symbol = Symbol::from_static("invalid-field");
const CONTAINER_ID: Symbol = Symbol::from_static("container-id");
/// In the error of a connection that has to go for the only one of its container.
const ENFORCEMENT: Symbol = Symbol::from_static("sole-connection-enforcement");

/// The id of a unit of work on the wire.
pub(super) fn txn_id(unit: UnitId) -> Bytes {
    Bytes::copy_from_slice(&unit.0.get().to_be_bytes())
}

/// The unit of work that a client means by that id.
pub(super) fn unit(txn_id: &[u8]) -> UnitId {
    let number = txn_id.try_into().ok().and_then(|bytes| NonZeroU64::new(u64::from_be_bytes(bytes)));
    number.map_or(UnitId::UNKNOWN, UnitId)
}

/// Hot path: what a client says of a delivery, and in which unit of work. None where it says nothing, or a state that
/// is no outcome.
#[inline]
pub(crate) fn outcome(state: Option<DeliveryState>) -> (Option<MessageOutcome>, Option<UnitId>) {
    match state {
        None => (None, None),
        Some(DeliveryState::Accepted) => (Some(MessageOutcome::Accepted), None),
        Some(state) => seldom_outcome(state),
    }
}

fn seldom_outcome(state: DeliveryState) -> (Option<MessageOutcome>, Option<UnitId>) {
    match state {
        DeliveryState::Transactional { txn_id, outcome: said } => {
            (said.and_then(|said| outcome(Some(*said)).0), Some(unit(&txn_id)))
        }
        DeliveryState::Accepted => (Some(MessageOutcome::Accepted), None),
        DeliveryState::Released => (Some(MessageOutcome::Released), None),
        DeliveryState::Rejected(error) => {
            let why = error.map(|error| Box::new(Failure::Said(said(*error))));
            (Some(MessageOutcome::Rejected(why)), None)
        }
        DeliveryState::Modified { delivery_failed: failed, undeliverable_here: not_here, .. } => {
            (Some(MessageOutcome::Modified { failed, not_here }), None)
        }
        _ => (None, None),
    }
}

/// Hot path: the state of a delivery, within a unit of work where there is one.
#[inline]
pub(crate) fn state(outcome: MessageOutcome, unit: Option<UnitId>) -> DeliveryState {
    match (outcome, unit) {
        (MessageOutcome::Accepted, None) => DeliveryState::Accepted,
        (outcome, unit) => seldom_state(outcome, unit),
    }
}

fn seldom_state(outcome: MessageOutcome, unit: Option<UnitId>) -> DeliveryState {
    let state = match outcome {
        MessageOutcome::Accepted => DeliveryState::Accepted,
        MessageOutcome::Released => DeliveryState::Released,
        MessageOutcome::Rejected(why) => DeliveryState::Rejected(why.map(|why| Box::new(error(*why)))),
        MessageOutcome::Modified { failed, not_here } => DeliveryState::Modified {
            delivery_failed: failed,
            undeliverable_here: not_here,
            message_annotations: Vec::new(),
        },
    };
    match unit {
        None => state,
        Some(unit) => DeliveryState::Transactional { txn_id: txn_id(unit), outcome: Some(Box::new(state)) },
    }
}

/// Unsettled deliveries of a client. An outcome in a unit of work is none: the unit ended with its connection.
pub(super) fn unsettled(map: UnsettledMap) -> Unsettled {
    let entry = |(tag, state)| match outcome(state) {
        (known, None) => (tag, known),
        (_, Some(_)) => (tag, None),
    };
    map.0.into_iter().map(entry).collect()
}

/// Unsettled deliveries, as a client is told of them.
pub(super) fn unsettled_map(unsettled: Unsettled) -> UnsettledMap {
    let state = |outcome| state(outcome, None);
    UnsettledMap(unsettled.into_iter().map(|(tag, outcome)| (tag, outcome.map(state))).collect())
}

/// A client's error.
pub(crate) fn said(error: Error) -> Said {
    let info = |name| error.info.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value);
    Said {
        condition: error.condition.as_str().to_owned(),
        reason: match info(REASON) {
            Some(Value::Uint(code)) => u16::try_from(*code).ok(),
            _ => None,
        },
        cause: info(CAUSE).and_then(Value::as_str).map(str::to_owned),
        text: error.description,
    }
}

/// The error of a refusal, under another condition, and with one more fact.
fn refused(refusal: &Refusal, condition: Symbol, fact: Option<(Symbol, Value)>) -> Error {
    let mut error = Error { condition, ..refusal.to_amqp() };
    error.info.extend(fact);
    error
}

/// A failure as an error.
pub(super) fn error(failure: Failure) -> Error {
    match failure {
        Failure::Refused(refusal) => refusal.to_amqp(),
        Failure::OfMessage(refusal, tag) => {
            let mut error = refusal.to_amqp();
            error.info.extend(tag.map(|tag| (DELIVERY_TAG, Value::Binary(Bytes::copy_from_slice(tag.as_bytes())))));
            error
        }
        Failure::BeyondCredit(text) => Error::new(condition::TRANSFER_LIMIT_EXCEEDED, text),
        Failure::NotAllowed(text) => Error::new(condition::NOT_ALLOWED, text),
        Failure::NotOffered(text) => Error::new(condition::NOT_IMPLEMENTED, text),
        Failure::UnitUnknown => Error::new(condition::TRANSACTION_UNKNOWN_ID, Failure::UnitUnknown.to_string()),
        Failure::UnitBackedOut(text) => Error::new(condition::TRANSACTION_ROLLBACK, text),
        Failure::UnitTooOld(refusal) => refused(&refusal, condition::TRANSACTION_TIMEOUT, None),
        Failure::ContainerInUse(refusal) => {
            refused(&refusal, condition::INVALID_FIELD, Some((INVALID_FIELD, Value::Symbol(CONTAINER_ID))))
        }
        Failure::ContainerTaken(refusal) => {
            refused(&refusal, condition::RESOURCE_LOCKED, Some((ENFORCEMENT, Value::Bool(true))))
        }
        Failure::Said(Said { condition, text, reason, cause }) => {
            let reason = reason.map(|code| (Symbol::from_static(REASON), Value::Uint(code.into())));
            let cause = cause.map(|cause| (Symbol::from_static(CAUSE), Value::from(cause.as_str())));
            let condition = Symbol::new(&condition).unwrap_or(condition::INTERNAL_ERROR);
            Error { condition, description: text, info: reason.into_iter().chain(cause).collect() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason;

    #[test]
    fn an_outcome_is_the_same_in_either_s_words() {
        let refusal = Refusal::security("malformed", "no");
        let of_the_client = Error { info: Vec::new(), ..Error::new(condition::NOT_ALLOWED, "no") };
        for state_said in [
            DeliveryState::Accepted,
            DeliveryState::Released,
            DeliveryState::Rejected(None),
            DeliveryState::Rejected(Some(Box::new(refusal.to_amqp()))),
            DeliveryState::Rejected(Some(Box::new(of_the_client))),
            DeliveryState::Modified {
                delivery_failed: true,
                undeliverable_here: false,
                message_annotations: Vec::new(),
            },
        ] {
            let (said, None) = outcome(Some(state_said.clone())) else { panic!("{state_said:?}") };
            assert_eq!(state(said.unwrap(), None), state_said);
        }
    }

    #[test]
    fn what_a_client_says_in_a_unit_of_work_is_of_that_unit() {
        let within = |txn_id: &'static [u8], outcome: Option<DeliveryState>| DeliveryState::Transactional {
            txn_id: Bytes::from_static(txn_id),
            outcome: outcome.map(Box::new),
        };
        let seven = UnitId(NonZeroU64::new(7).unwrap());
        let said = outcome(Some(within(&[0, 0, 0, 0, 0, 0, 0, 7], Some(DeliveryState::Accepted))));
        assert_eq!(said, (Some(MessageOutcome::Accepted), Some(seven)));
        assert_eq!(
            state(MessageOutcome::Accepted, Some(seven)),
            within(&[0, 0, 0, 0, 0, 0, 0, 7], Some(DeliveryState::Accepted))
        );
        for odd in [&[][..], &[0; 8], &[1; 7], &[1; 9]] {
            assert_eq!(unit(odd), UnitId::UNKNOWN, "{odd:?}");
        }
        let of_a_unit = UnsettledMap(vec![(
            bulla_amqp::DeliveryTag::of_token(1),
            Some(within(&[0, 0, 0, 0, 0, 0, 0, 7], Some(DeliveryState::Accepted))),
        )]);
        assert_eq!(unsettled(of_a_unit), [(bulla_amqp::DeliveryTag::of_token(1), None)]);
    }

    #[test]
    fn what_the_core_refuses_keeps_its_reason_over_a_resumed_link() {
        let refusal = Refusal::new(reason::Q_FULL, "full");
        let sent = state(MessageOutcome::refused(refusal.clone()), None);
        let again = state(outcome(Some(sent.clone())).0.unwrap(), None);
        assert_eq!((&again, sent), (&DeliveryState::Rejected(Some(Box::new(refusal.to_amqp()))), again.clone()));
    }
}
