//! Local queues in the admin language: attributes to what is defined, and back.

use super::{Cells, Set, blank, clamped, enabled, number_of, number_or, percent, unless_blank};
use crate::parse::{Statement, Value};
use crate::reply::Cell;
use crate::table::Key;
use bulla_catalog::{Backout, Delivery, Full, LocalQueue, TriggerType, Usage};

impl Set for LocalQueue {
    fn set(&mut self, statement: &Statement) {
        for setting in &statement.settings {
            match (setting.attribute.key, &setting.value) {
                (Key::Description, Value::Text(text)) => self.description.clone_from(text),
                (Key::MaxDepth, Value::Number(number)) => self.max_depth = clamped(*number),
                (Key::MaxMessageBytes, Value::Number(number)) => self.max_message_bytes = clamped(*number),
                (Key::Get, Value::Word(word)) => self.get_enabled = *word == "ENABLED",
                (Key::Put, Value::Word(word)) => self.put_enabled = *word == "ENABLED",
                (Key::DefaultPriority, Value::Number(number)) => {
                    self.default_priority = u8::try_from(*number).unwrap_or(u8::MAX);
                }
                (Key::DefaultPersistence, Value::Word(word)) => self.default_persistent = *word == "YES",
                (Key::DeliverySequence, Value::Word(word)) => {
                    self.delivery = if *word == "FIFO" { Delivery::Fifo } else { Delivery::Priority };
                }
                (Key::Full, Value::Word(word)) => {
                    self.full = if *word == "REJECT" { Full::Reject } else { Full::Wait };
                }
                (Key::Usage, Value::Word(word)) => {
                    self.usage = if *word == "XMITQ" { Usage::Transmission } else { Usage::Normal };
                }
                (Key::Trigger, Value::Word(word)) => self.trigger = *word == "TRIGGER",
                (Key::TriggerData, Value::Text(name)) => self.trigger_data = unless_blank(name),
                (Key::BackoutThreshold, Value::Number(number)) => self.backout_threshold = clamped(*number),
                (Key::BackoutQueue, Value::Text(name)) => self.backout_queue = unless_blank(name),
                (Key::HardenBackout, Value::Word(word)) => self.harden_backout = *word == "HARDENBO",
                (Key::Backout, Value::Word(word)) => {
                    self.backout = if *word == "MOVE" { Backout::Move } else { Backout::None };
                }
                (Key::HighPercent, Value::Number(number)) => self.high_percent = percent(*number),
                (Key::LowPercent, Value::Number(number)) => self.low_percent = percent(*number),
                (Key::HighEvent, Value::Word(word)) => self.high_event = *word == "ENABLED",
                (Key::LowEvent, Value::Word(word)) => self.low_event = *word == "ENABLED",
                (Key::FullEvent, Value::Word(word)) => self.full_event = *word == "ENABLED",
                (Key::Share, Value::Word(word)) => self.share = *word == "SHARE",
                (Key::Groups, Value::Word(word)) => self.groups = *word == "YES",
                (Key::QueueLinks, Value::Number(number)) => self.limit.links = clamped(*number),
                (Key::QueueUnacknowledged, Value::Number(number)) => self.limit.unacknowledged_bytes = *number,
                (Key::QueueRate, Value::Number(number)) => self.limit.messages_a_second = clamped(*number),
                (Key::DefaultShare, Value::Word(word)) => self.default_exclusive = *word == "EXCL",
                (Key::DefinitionType, Value::Word(word)) => self.dynamic = *word == "PERMDYN",
                (Key::QueueMaker, Value::Text(user)) => self.maker = unless_blank(user),
                (Key::TriggerType, Value::Word(word)) => {
                    self.trigger_type = match *word {
                        "EVERY" => TriggerType::Every,
                        "DEPTH" => TriggerType::Depth,
                        "NONE" => TriggerType::None,
                        _ => TriggerType::First,
                    };
                }
                (Key::TriggerDepth, Value::Number(number)) => self.trigger_depth = clamped(*number),
                (Key::TriggerPriority, Value::Number(number)) => {
                    self.trigger_priority = u8::try_from(*number).unwrap_or(u8::MAX);
                }
                (Key::ExpiryCap, value) => self.expiry_cap_tenths = number_of(value),
                (Key::InitiationQueue, Value::Text(name)) => self.initiation_queue = unless_blank(name),
                (Key::ProcessName, Value::Text(name)) => self.process = unless_blank(name),
                _ => {}
            }
        }
    }
}

impl Cells for LocalQueue {
    fn cell(&self, key: Key) -> Option<Cell> {
        Some(match key {
            Key::Description => Cell::Text(self.description.clone()),
            Key::MaxDepth => Cell::Number(self.max_depth.into()),
            Key::MaxMessageBytes => Cell::Number(self.max_message_bytes.into()),
            Key::Get => enabled(self.get_enabled),
            Key::Put => enabled(self.put_enabled),
            Key::DefaultPriority => Cell::Number(self.default_priority.into()),
            Key::DefaultPersistence => Cell::word(if self.default_persistent { "YES" } else { "NO" }),
            Key::DeliverySequence => Cell::word(match self.delivery {
                Delivery::Priority => "PRIORITY",
                Delivery::Fifo => "FIFO",
            }),
            Key::Full => Cell::word(match self.full {
                Full::Wait => "WAIT",
                Full::Reject => "REJECT",
            }),
            Key::Usage => Cell::word(match self.usage {
                Usage::Normal => "NORMAL",
                Usage::Transmission => "XMITQ",
            }),
            Key::Trigger => Cell::word(if self.trigger { "TRIGGER" } else { "NOTRIGGER" }),
            Key::TriggerData => blank(self.trigger_data.as_deref()),
            Key::BackoutThreshold => Cell::Number(self.backout_threshold.into()),
            Key::BackoutQueue => blank(self.backout_queue.as_deref()),
            Key::HardenBackout => Cell::word(if self.harden_backout { "HARDENBO" } else { "NOHARDENBO" }),
            Key::Backout => Cell::word(match self.backout {
                Backout::None => "NONE",
                Backout::Move => "MOVE",
            }),
            Key::HighPercent => Cell::Number(self.high_percent.into()),
            Key::LowPercent => Cell::Number(self.low_percent.into()),
            Key::HighEvent => enabled(self.high_event),
            Key::LowEvent => enabled(self.low_event),
            Key::FullEvent => enabled(self.full_event),
            Key::Share => Cell::word(if self.share { "SHARE" } else { "NOSHARE" }),
            Key::Groups => Cell::word(if self.groups { "YES" } else { "NO" }),
            Key::QueueLinks => Cell::Number(self.limit.links.into()),
            Key::QueueUnacknowledged => Cell::Number(self.limit.unacknowledged_bytes),
            Key::QueueRate => Cell::Number(self.limit.messages_a_second.into()),
            Key::DefaultShare => Cell::word(if self.default_exclusive { "EXCL" } else { "SHARED" }),
            Key::DefinitionType => Cell::word(if self.dynamic { "PERMDYN" } else { "PREDEFINED" }),
            Key::QueueMaker => blank(self.maker.as_deref()),
            Key::TriggerType => Cell::word(match self.trigger_type {
                TriggerType::First => "FIRST",
                TriggerType::Every => "EVERY",
                TriggerType::Depth => "DEPTH",
                TriggerType::None => "NONE",
            }),
            Key::TriggerDepth => Cell::Number(self.trigger_depth.into()),
            Key::TriggerPriority => Cell::Number(self.trigger_priority.into()),
            Key::ExpiryCap => number_or(self.expiry_cap_tenths, "NOLIMIT"),
            Key::InitiationQueue => blank(self.initiation_queue.as_deref()),
            Key::ProcessName => blank(self.process.as_deref()),
            Key::Type => Cell::word("QLOCAL"),
            _ => return None,
        })
    }
}
