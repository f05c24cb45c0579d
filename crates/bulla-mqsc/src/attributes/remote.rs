//! Remote queues in the admin language: attributes to what is defined, and back.

use super::{Cells, Set, blank, enabled, unless_blank};
use crate::parse::{Statement, Value};
use crate::reply::Cell;
use crate::table::Key;
use bulla_catalog::RemoteQueue;

impl Set for RemoteQueue {
    fn set(&mut self, statement: &Statement) {
        for setting in &statement.settings {
            match (setting.attribute.key, &setting.value) {
                (Key::Description, Value::Text(text)) => self.description.clone_from(text),
                (Key::RemoteName, Value::Text(name)) => self.remote_name = unless_blank(name),
                (Key::RemoteManager, Value::Text(name)) => self.remote_manager = unless_blank(name),
                (Key::TransmissionQueue, Value::Text(name)) => self.transmission_queue = unless_blank(name),
                (Key::Put, Value::Word(word)) => self.put_enabled = *word == "ENABLED",
                (Key::DefaultPriority, Value::Number(number)) => {
                    self.default_priority = u8::try_from(*number).unwrap_or(u8::MAX);
                }
                (Key::DefaultPersistence, Value::Word(word)) => self.default_persistent = *word == "YES",
                _ => {}
            }
        }
    }
}

impl Cells for RemoteQueue {
    fn cell(&self, key: Key) -> Option<Cell> {
        Some(match key {
            Key::Description => Cell::Text(self.description.clone()),
            Key::RemoteName => blank(self.remote_name.as_deref()),
            Key::RemoteManager => blank(self.remote_manager.as_deref()),
            Key::TransmissionQueue => blank(self.transmission_queue.as_deref()),
            Key::Put => enabled(self.put_enabled),
            Key::DefaultPriority => Cell::Number(self.default_priority.into()),
            Key::DefaultPersistence => Cell::word(if self.default_persistent { "YES" } else { "NO" }),
            Key::Type => Cell::word("QREMOTE"),
            _ => return None,
        })
    }
}
