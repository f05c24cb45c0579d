//! What the four sorts of queue have in common: no two of them have one name, and DISPLAY QUEUE shows them together.

use super::noun::{Family, wrong_type};
use super::{alias, joined, local, noun, remote};
use crate::parse::{Statement, Value};
use crate::reply::{Failure, FailureKind, Row};
use crate::rows::{Candidate, rows, wanted};
use crate::run::{Administered, invalid, unknown};
use crate::table::{Attribute, CURDEPTH, DESCR, Key};
use bulla_catalog::system_queues::{DEAD_LETTER_QUEUE, ERROR_QUEUE};
use bulla_catalog::{Definitions, LocalQueue, Sort, Usage};

/// What many of them are called in messages: they are counted together.
pub(super) const MANY: &str = "queues, aliases, remote queues and models";

/// The sorts of queue.
pub(super) static QUEUES: Family = Family {
    head: "QUEUE",
    members: &[
        (Sort::Local, "a local queue"),
        (Sort::Alias, "an alias"),
        (Sort::Remote, "a remote queue"),
        (Sort::Model, "a model queue"),
    ],
    has_room: Definitions::has_room_for_a_queue,
};

/// What DISPLAY QUEUE shows.
pub(crate) static DISPLAYED: &[&Attribute] = joined![
    &[&DESCR],
    alias::DEFINED.split_at(1).0,
    remote::DEFINED.split_at(4).0.split_at(1).1,
    &[&CURDEPTH],
    local::OF_MESSAGES.split_at(1).1,
    local::OF_USE,
    local::OF_DEPTHS_AND_LIMITS,
    local::OF_ORIGIN_AND_TRIGGER,
];

/// DISPLAY QUEUE.
///
/// # Errors
/// There is no such queue, or WHERE compares what can't be compared.
pub(crate) fn display(statement: &Statement, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
    let is_wanted = |word: &str| match statement.value(Key::OfType) {
        Some(Value::Word(only)) => *only == "ALL" || *only == word,
        _ => true,
    };
    let nouns = QUEUES.members.iter().map(|(sort, _)| noun(*sort)).filter(|noun| is_wanted(noun.word()));
    let mut candidates: Vec<Candidate<'_>> = nouns.flat_map(|noun| noun.candidates(&statement.name, target)).collect();
    if candidates.is_empty() && !statement.name.generic {
        return Err(unknown("queue", &statement.name.stem));
    }
    candidates.sort_by_key(|(name, ..)| *name);
    rows(statement, QUEUES.head, candidates, &wanted(statement, true))
}

/// What sort of queue has the name, and what such a one is called.
pub(crate) fn type_of(name: &str, definitions: &Definitions) -> Option<(Sort, &'static str)> {
    QUEUES.member_of(name, definitions)
}

/// The local queue of that name.
///
/// # Errors
/// There is none.
pub(crate) fn local<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a LocalQueue, Failure> {
    definitions.queues.get(name).ok_or_else(|| none_such(name, definitions))
}

/// The queue of that name is of another type, or there is none.
pub(crate) fn none_such(name: &str, definitions: &Definitions) -> Failure {
    type_of(name, definitions).map_or_else(|| unknown("queue", name), |(_, what)| wrong_type(name, what))
}

/// Why a name that stands for a transmission queue leads to none; none where it does.
pub(crate) fn no_transmission_queue(name: &str, definitions: &Definitions) -> Option<String> {
    match (definitions.queues.get(name), type_of(name, definitions)) {
        (Some(queue), _) if queue.usage == Usage::Transmission => None,
        (Some(_), _) => Some(format!("queue {name} is not of USAGE(XMITQ)")),
        (None, Some((_, what))) => Some(format!("{name} is {what}, not a transmission queue")),
        (None, None) => Some(format!("transmission queue {name} does not exist yet")),
    }
}

/// Attributes that contradict each other, or what the queue is for: where undeliverable and defective messages go, no
/// channel takes any from.
pub(super) fn makes_sense(name: &str, queue: &LocalQueue) -> Result<(), Failure> {
    if queue.low_percent > queue.high_percent {
        let message = format!("QDEPTHLO({}) is more than QDEPTHHI({})", queue.low_percent, queue.high_percent);
        return Err(invalid(message, None));
    }
    match queue.usage == Usage::Transmission && (name == ERROR_QUEUE || name == DEAD_LETTER_QUEUE) {
        true => Err(used_by_the_manager(name)),
        false => Ok(()),
    }
}

pub(super) fn used_by_the_manager(name: &str) -> Failure {
    let message = format!("{name} is used by the queue manager itself");
    Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint: None }
}
