//! DISPLAY ALGUSE: what messages are sealed with.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{Administered, failure};
use super::table::Key;
use bulla_catalog::status::{ALGORITHM_MESSAGES_DEFAULT, AlgorithmUse, SealedAs};

/// DISPLAY ALGUSE.
///
/// # Errors
/// WHERE compares what can't be compared, or the journal can't be read.
pub(super) fn display(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let messages_max = match statement.value(Key::Looked) {
        Some(Value::Number(count)) => *count,
        _ => ALGORITHM_MESSAGES_DEFAULT,
    };
    let uses = target.algorithm_use(&|queue| statement.name.fits(queue), messages_max);
    let uses = uses.map_err(|error| failure(&error))?;
    let candidates = uses.iter().map(|one| -> Candidate<'_> { (&one.queue, None, Box::new(|key| cell(one, key))) });
    rows(statement, "ALGUSE", candidates.collect(), &wanted(statement, false))
}

fn cell(one: &AlgorithmUse, key: Key) -> Option<Cell> {
    let sealed = match &one.sealed {
        SealedAs::Sealed { signers, recipients, cipher, .. } => Some((signers, recipients, *cipher)),
        _ => None,
    };
    Some(match key {
        Key::Own("MSGS") => Cell::Number(one.messages),
        Key::Own("PROTECTED") => Cell::word(one.sealed.word()),
        Key::Own("SIGNKEYS") => Cell::List(sealed.map(|(signers, ..)| signers.clone()).unwrap_or_default()),
        Key::Own("RECIPKEYS") => Cell::List(sealed.map(|(_, recipients, _)| recipients.clone()).unwrap_or_default()),
        Key::Own("CIPHER") => Cell::word(sealed.map(|(.., cipher)| cipher).unwrap_or_default()),
        Key::Own("CAUSE") => match one.sealed {
            SealedAs::Defective { cause } => Cell::word(cause),
            _ => Cell::word(""),
        },
        _ => return None,
    })
}
