//! The queue manager in the admin language: attributes to what is defined, and back.

use super::{Cells, Set, blank, clamped, enabled, number_of, number_or, unless_blank};
use crate::parse::{Statement, Value};
use crate::reply::Cell;
use crate::table::Key;
use bulla_catalog::QueueManager;

impl Set for QueueManager {
    fn set(&mut self, statement: &Statement) {
        for setting in &statement.settings {
            match (setting.attribute.key, &setting.value) {
                (Key::Description, Value::Text(text)) => self.description.clone_from(text),
                (Key::DeadLetterQueue, Value::Text(name)) => self.dead_letter_queue = unless_blank(name),
                (Key::MaxMessageBytes, Value::Number(number)) => self.max_message_bytes = clamped(*number),
                (Key::DefaultTransmissionQueue, Value::Text(name)) => {
                    self.default_transmission_queue = unless_blank(name);
                }
                (Key::KeyResetBytes, Value::Number(number)) => self.key_reset_bytes = clamped(*number),
                (Key::CertificateLabel, Value::Text(label)) => self.certificate_label = unless_blank(label),
                (Key::Adapters, value) => self.adapters = number_of(value),
                (Key::Dispatchers, value) => self.dispatchers = number_of(value),
                (Key::ChannelsMax, Value::Number(number)) => self.channels_max = clamped(*number),
                (Key::ActiveChannelsMax, Value::Number(number)) => self.active_channels_max = clamped(*number),
                (Key::MaxUncommitted, Value::Number(number)) => self.max_uncommitted = clamped(*number),
                (Key::MaxUnitAge, Value::Number(number)) => self.max_unit_age = clamped(*number),
                (Key::AuthorityEvents, Value::Word(word)) => self.authority_events = *word == "ENABLED",
                (Key::PerformanceEvents, Value::Word(word)) => self.performance_events = *word == "ENABLED",
                (Key::ChannelEvents, Value::Word(word)) => self.channel_events = *word == "ENABLED",
                (Key::TriggerInterval, Value::Number(number)) => self.trigger_interval_ms = clamped(*number),
                (Key::ChannelAuthentication, Value::Word(word)) => self.channel_authentication = *word == "ENABLED",
                (Key::CheckClient, Value::Word(word)) => self.sign_in_required = *word == "REQUIRED",
                (Key::TokenIssuer, Value::Text(issuer)) => self.token_issuer = unless_blank(issuer),
                (Key::TokenAudience, Value::Text(audience)) => self.token_audience = unless_blank(audience),
                (Key::TokenUserClaim, Value::Text(claim)) => self.token_user_claim.clone_from(claim),
                _ => {}
            }
        }
    }
}

impl Cells for QueueManager {
    fn cell(&self, key: Key) -> Option<Cell> {
        Some(match key {
            Key::ManagerName => Cell::Text(self.name.clone()),
            Key::Description => Cell::Text(self.description.clone()),
            Key::DeadLetterQueue => blank(self.dead_letter_queue.as_deref()),
            Key::MaxMessageBytes => Cell::Number(self.max_message_bytes.into()),
            Key::DefaultTransmissionQueue => blank(self.default_transmission_queue.as_deref()),
            Key::KeyResetBytes => Cell::Number(self.key_reset_bytes.into()),
            Key::CertificateLabel => blank(self.certificate_label.as_deref()),
            Key::Adapters => number_or(self.adapters, "AUTO"),
            Key::Dispatchers => number_or(self.dispatchers, "AUTO"),
            Key::ChannelsMax => Cell::Number(self.channels_max.into()),
            Key::ActiveChannelsMax => Cell::Number(self.active_channels_max.into()),
            Key::MaxUncommitted => Cell::Number(self.max_uncommitted.into()),
            Key::MaxUnitAge => Cell::Number(self.max_unit_age.into()),
            Key::AuthorityEvents => enabled(self.authority_events),
            Key::PerformanceEvents => enabled(self.performance_events),
            Key::ChannelEvents => enabled(self.channel_events),
            Key::TriggerInterval => Cell::Number(self.trigger_interval_ms.into()),
            Key::ChannelAuthentication => enabled(self.channel_authentication),
            Key::CheckClient => Cell::word(if self.sign_in_required { "REQUIRED" } else { "OPTIONAL" }),
            Key::TokenIssuer => blank(self.token_issuer.as_deref()),
            Key::TokenAudience => blank(self.token_audience.as_deref()),
            Key::TokenUserClaim => Cell::Text(self.token_user_claim.clone()),
            Key::Version => Cell::word(env!("CARGO_PKG_VERSION")),
            _ => return None,
        })
    }
}
