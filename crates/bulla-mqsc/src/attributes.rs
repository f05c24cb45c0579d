//! What attributes have in common.

use crate::parse::{Statement, Value};
use crate::reply::Cell;
use crate::table::Key;

/// What has attributes that DISPLAY shows.
pub(crate) trait Cells {
    /// The value of an attribute; none where there is no such attribute.
    fn cell(&self, key: Key) -> Option<Cell>;
}

/// What has attributes that DEFINE and ALTER set.
pub(crate) trait Set {
    /// Takes the values over that the command gives.
    fn set(&mut self, statement: &Statement);
}

/// The table's bounds are those of a share.
pub(crate) fn percent(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(100)
}

pub(crate) fn enabled(yes: bool) -> Cell {
    Cell::word(if yes { "ENABLED" } else { "DISABLED" })
}

/// A blank name is none.
pub(crate) fn unless_blank(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// None is shown blank.
pub(crate) fn blank(text: Option<&str>) -> Cell {
    Cell::word(text.unwrap_or_default())
}

/// A number, or none where the attribute's word stands.
pub(crate) fn number_of(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => Some(clamped(*number)),
        _ => None,
    }
}

/// The number, or the attribute's word where there is none.
pub(crate) fn number_or(number: Option<u32>, word: &str) -> Cell {
    number.map_or(Cell::word(word), |number| Cell::Number(number.into()))
}

/// The table's bounds are below `u32::MAX`.
pub(crate) fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
