//! Aliases in the admin language: attributes to what is defined, and back.

use super::{Cells, Set, enabled};
use crate::parse::{Statement, Value};
use crate::reply::Cell;
use crate::table::Key;
use bulla_catalog::AliasQueue;

impl Set for AliasQueue {
    fn set(&mut self, statement: &Statement) {
        for setting in &statement.settings {
            match (setting.attribute.key, &setting.value) {
                (Key::Target, Value::Text(text)) => self.target.clone_from(text),
                (Key::Description, Value::Text(text)) => self.description.clone_from(text),
                (Key::Get, Value::Word(word)) => self.get_enabled = *word == "ENABLED",
                (Key::Put, Value::Word(word)) => self.put_enabled = *word == "ENABLED",
                _ => {}
            }
        }
    }
}

impl Cells for AliasQueue {
    fn cell(&self, key: Key) -> Option<Cell> {
        Some(match key {
            Key::Target => Cell::Text(self.target.clone()),
            Key::Description => Cell::Text(self.description.clone()),
            Key::Get => enabled(self.get_enabled),
            Key::Put => enabled(self.put_enabled),
            Key::Type => Cell::word("QALIAS"),
            _ => return None,
        })
    }
}
