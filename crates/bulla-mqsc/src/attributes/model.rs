//! Models in the admin language: attributes to what is defined, and back.

use super::{Cells, Set};
use crate::parse::{Statement, Value};
use crate::reply::Cell;
use crate::table::Key;
use bulla_catalog::ModelQueue;

impl Set for ModelQueue {
    fn set(&mut self, statement: &Statement) {
        self.queue.set(statement);
        self.queue.dynamic = false;
        if let Some(Value::Word(word)) = statement.value(Key::DefinitionType) {
            self.permanent = *word == "PERMDYN";
        }
    }
}

impl Cells for ModelQueue {
    fn cell(&self, key: Key) -> Option<Cell> {
        match key {
            Key::Type => Some(Cell::word("QMODEL")),
            Key::DefinitionType => Some(Cell::word(if self.permanent { "PERMDYN" } else { "TEMPDYN" })),
            key => self.queue.cell(key),
        }
    }
}
