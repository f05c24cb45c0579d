//! Processes in the admin language: attributes to what is defined, and back.

use super::{Cells, Set};
use crate::parse::{Statement, Value};
use crate::reply::Cell;
use crate::table::Key;
use bulla_catalog::Process;

impl Set for Process {
    fn set(&mut self, statement: &Statement) {
        for setting in &statement.settings {
            match (setting.attribute.key, &setting.value) {
                (Key::Description, Value::Text(text)) => self.description.clone_from(text),
                (Key::ApplicationId, Value::Text(text)) => self.application.clone_from(text),
                (Key::UserData, Value::Text(text)) => self.user_data.clone_from(text),
                (Key::EnvironmentData, Value::Text(text)) => self.environment_data.clone_from(text),
                _ => {}
            }
        }
    }
}

impl Cells for Process {
    fn cell(&self, key: Key) -> Option<Cell> {
        Some(match key {
            Key::Description => Cell::Text(self.description.clone()),
            Key::ApplicationId => Cell::Text(self.application.clone()),
            Key::UserData => Cell::Text(self.user_data.clone()),
            Key::EnvironmentData => Cell::Text(self.environment_data.clone()),
            _ => return None,
        })
    }
}
