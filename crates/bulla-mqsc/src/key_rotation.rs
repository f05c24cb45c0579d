//! DISPLAY KEYROTATE: changes of keys that are under way.

use super::parse::Statement;
use super::reply::{Cell, Failure, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{Administered, failure};
use super::table::Key;
use bulla_catalog::calendar;
use bulla_catalog::status::{KeyOfRotation, KeyRotationStatus};

/// DISPLAY KEYROTATE.
///
/// # Errors
/// WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let all = target.key_rotations(&|user| statement.name.fits(user)).map_err(|error| failure(&error))?;
    let candidates = all.iter().map(|one| -> Candidate<'_> { (&one.user, None, Box::new(|key| cell(one, key))) });
    rows(statement, "KEYROTATE", candidates.collect(), &wanted(statement, false))
}

fn cell(one: &KeyRotationStatus, key: Key) -> Option<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    let new = |of: fn(&KeyOfRotation) -> &String| text(one.new.as_ref().map_or("", |key| of(key).as_str()));
    Some(match key {
        Key::Own("STEP") => Cell::Text(one.step.to_ascii_uppercase()),
        Key::Own("STEPTIME") => Cell::Text(calendar::moment(one.since_ms)),
        Key::Own("OVERLAP") => Cell::Text(one.overlap_until_ms.map(calendar::moment).unwrap_or_default()),
        Key::Own("MSGS") => Cell::Number(one.messages),
        Key::Own("INUOW") => Cell::Number(one.staged),
        Key::Own("UNKNOWN") => Cell::Number(one.unknown),
        Key::Own("ATBEGIN") => one.began_messages.map_or_else(|| text(""), Cell::Number),
        Key::Bytes => Cell::Number(one.bytes),
        Key::Own("QUEUES") => Cell::List(one.queues.clone()),
        Key::Own("SUBJECT") => text(&one.subject),
        Key::Own("OLDISSUER") => text(&one.old.issuer),
        Key::Own("OLDSERIAL") => text(&one.old.serial),
        Key::Own("OLDKEYID") => text(&one.old.key_id),
        Key::Own("NEWISSUER") => new(|key| &key.issuer),
        Key::Own("NEWSERIAL") => new(|key| &key.serial),
        Key::Own("NEWKEYID") => new(|key| &key.key_id),
        Key::Own("NEWREAD") => text(if one.is_read { "YES" } else { "NO" }),
        _ => return None,
    })
}
