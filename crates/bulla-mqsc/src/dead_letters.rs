//! Messages that came to nothing in the admin language: DISPLAY DEADMSG and REPLAY.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Outcome, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{Administered, Replay, Replayed, failure, invalid, messages};
use super::table::Key;
use crate::nouns::queues::local;
use bulla_catalog::calendar::{date, time};
use bulla_catalog::system_queues::ERROR_QUEUE;
use bulla_catalog::{DeadLetter, Definitions};

/// REPLAY.
///
/// # Errors
/// It contradicts itself or what is defined, or the target refuses.
pub(super) fn replay(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let from = labelled_queue(&statement.name.stem, target.definitions())?;
    let origin = match statement.value(Key::Origin) {
        Some(Value::Text(name)) => Some(name.clone()),
        _ => None,
    };
    let count = match statement.value(Key::Count) {
        Some(Value::Number(count)) => Some(*count),
        _ => None,
    };
    let replay = Replay { from, origin, count, ..one_message(statement, target.definitions())? };
    let Replayed { moved, left, warnings } = target.replay(&replay).map_err(|error| failure(&error))?;
    let left = if left > 0 { format!(", {left} left") } else { String::new() };
    let done = if replay.discards { "discarded" } else { "replayed" };
    Ok(Outcome::Done { message: format!("{} {done}{left}", messages(moved)), warnings })
}

/// Of REPLAY, what is about one message.
fn one_message(statement: &Statement, definitions: &Definitions) -> Result<Replay, Failure> {
    let number = match statement.value(Key::MessageNumber) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let to = match statement.value(Key::To) {
        Some(Value::Text(name)) => Some(name.clone()),
        _ => None,
    };
    let (keeps_label, discards) = (statement.says(Key::KeepLabel, "YES"), statement.says(Key::Discard, "DISCARD"));
    if number.is_none() && (to.is_some() || keeps_label || discards) {
        return Err(invalid("TO, HEADER and DISCARD are for one message: MSGNUM says which", None));
    }
    if number.is_some() && (statement.value(Key::Origin).is_some() || statement.value(Key::Count).is_some()) {
        return Err(invalid("QUEUE and COUNT are for many messages: MSGNUM is one", None));
    }
    if discards && to.is_some() || keeps_label && to.is_none() {
        return Err(invalid("DISCARD goes without TO, and HEADER with it", None));
    }
    if let Some(to) = &to {
        local(to, definitions)?;
    }
    Ok(Replay { number, to, keeps_label, discards, ..Replay::default() })
}

/// Most messages that DISPLAY DEADMSG shows at once; the answer has to fit the socket's frame.
pub const DEAD_LETTERS_MAX: usize = 1_000;

/// The local queue that is named; the error queue may be an alias of one.
fn labelled_queue(name: &str, definitions: &Definitions) -> Result<String, Failure> {
    let alias = definitions.aliases.get(name).filter(|_| name == ERROR_QUEUE);
    let name = alias.map_or(name, |alias| &alias.target);
    local(name, definitions).map(|_| name.to_owned())
}

/// DISPLAY DEADMSG.
///
/// # Errors
/// There is no such queue; WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let name = &labelled_queue(&statement.name.stem, target.definitions())?;
    let max = match statement.value(Key::Count) {
        Some(Value::Number(count)) => usize::try_from(*count).unwrap_or(usize::MAX).min(DEAD_LETTERS_MAX),
        _ => DEAD_LETTERS_MAX,
    };
    let after = match statement.value(Key::After) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let letters = target.dead_letters(name, after, max).map_err(|error| failure(&error))?;
    let candidates: Vec<Candidate<'_>> =
        letters.iter().map(|letter| -> Candidate<'_> { (name, None, Box::new(|key| cell(letter, key))) }).collect();
    rows(statement, "QUEUE", candidates, &wanted(statement, false))
}

fn cell(letter: &DeadLetter, key: Key) -> Option<Cell> {
    Some(match key {
        Key::MessageNumber => Cell::Number(letter.number),
        Key::Reason => letter.reason.map_or(Cell::word(""), |reason| Cell::Number(reason.into())),
        Key::Cause => Cell::Text(letter.cause.clone()),
        Key::Details => Cell::Text(letter.details.clone()),
        Key::Origin => Cell::Text(letter.queue.clone()),
        Key::OriginManager => Cell::Text(letter.manager.clone()),
        Key::PutUser => Cell::Text(letter.user.clone()),
        Key::Persistence => Cell::word(if letter.persistent { "YES" } else { "NO" }),
        Key::Bytes => Cell::Number(letter.bytes),
        Key::PutDate => Cell::Text(date(letter.put_ms)),
        Key::PutTime => Cell::Text(time(letter.put_ms)),
        _ => return None,
    })
}
