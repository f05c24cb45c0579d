//! DISPLAY KEYUSE: which keys messages need.

use super::parse::Statement;
use super::reply::{Cell, Failure, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{Administered, failure};
use super::table::Key;
use bulla_catalog::calendar;
use bulla_catalog::status::KeyUseStatus;

/// DISPLAY KEYUSE.
///
/// # Errors
/// WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let uses = target.key_use(&|queue| statement.name.fits(queue)).map_err(|error| failure(&error))?;
    let candidates = uses.iter().map(|one| -> Candidate<'_> { (&one.queue, None, Box::new(|key| cell(one, key))) });
    rows(statement, "KEYUSE", candidates.collect(), &wanted(statement, false))
}

fn cell(one: &KeyUseStatus, key: Key) -> Option<Cell> {
    Some(match key {
        Key::Own("MSGS") => Cell::Number(one.messages),
        Key::Own("INUOW") => Cell::Number(one.staged),
        Key::Bytes => Cell::Number(one.bytes),
        Key::MessageAge => one.oldest_seconds.map_or_else(|| Cell::word(""), Cell::Number),
        Key::Own("USER") => Cell::List(one.users.clone()),
        Key::Own("KEYHERE") => Cell::word(match (one.is_known, one.users.is_empty(), one.locked.is_empty()) {
            (false, ..) => "UNKNOWN",
            (true, false, _) => "YES",
            (true, true, false) => "LOCKED",
            (true, true, true) => "NO",
        }),
        Key::Own("SUBJECT") => Cell::word(&one.subject),
        Key::Own("ISSUER") => Cell::word(&one.issuer),
        Key::Own("SERIAL") => Cell::word(&one.serial),
        Key::Own("KEYID") => Cell::word(&one.key_id),
        Key::Own("VALIDTO") => Cell::Text(one.valid_to_ms.map(calendar::moment).unwrap_or_default()),
        _ => return None,
    })
}
