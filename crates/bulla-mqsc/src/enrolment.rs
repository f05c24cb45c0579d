//! DISPLAY ENROL: certificates that renew by themselves.

use super::parse::Statement;
use super::reply::{Cell, Failure, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{Administered, failure};
use super::table::Key;
use bulla_catalog::calendar;
use bulla_catalog::status::EnrolmentStatus;

/// DISPLAY ENROL.
///
/// # Errors
/// What is configured can't be used; WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let all = target.enrolments(&|name| statement.name.fits(name)).map_err(|error| failure(&error))?;
    let candidates = all.iter().map(|one| -> Candidate<'_> { (&one.name, None, Box::new(|key| cell(one, key))) });
    rows(statement, "ENROL", candidates.collect(), &wanted(statement, false))
}

fn cell(one: &EnrolmentStatus, key: Key) -> Option<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    let moment = |ms: Option<u64>| Cell::Text(ms.map(calendar::moment).unwrap_or_default());
    Some(match key {
        Key::Own("PLACE") => text(one.place.word()),
        Key::Own("AUTHORITY") => text(&one.authority),
        Key::Own("METHOD") => text(one.method),
        Key::Own("STATE") => text(one.state.word()),
        Key::Own("UNTIL") => moment(one.until_ms),
        Key::Own("RENEWAL") => moment(one.next_ms),
        Key::Own("TRIED") => moment(one.tried_ms),
        Key::Own("FAILURES") => Cell::Number(one.failures.into()),
        Key::Own("WHY") => text(&one.why),
        Key::Own("SUBJECT") => text(&one.subject),
        Key::Own("SERIAL") => text(&one.serial),
        _ => return None,
    })
}
