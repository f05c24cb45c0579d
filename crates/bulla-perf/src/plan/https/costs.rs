//! What HTTPS takes, as a profile has it.

use serde::{Deserialize, Serialize};

/// Processor time at the two ends of a connection, microseconds, without operations with keys.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Ends {
    /// Of the queue manager.
    pub queue_manager_us: f64,
    /// Of the application.
    pub application_us: f64,
}

impl Ends {
    /// So many times as much at each end.
    #[must_use]
    pub fn times(self, queue_manager: f64, application: f64) -> Ends {
        Ends {
            queue_manager_us: self.queue_manager_us * queue_manager,
            application_us: self.application_us * application,
        }
    }

    fn stretch(&mut self, factor: f64) {
        *self = self.times(factor, factor);
    }
}

/// Handshakes of a version of TLS, a connection's begin and end included.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Handshakes {
    /// Full, beside the signature and its check.
    pub full: Ends,
    /// With the session of an earlier one.
    pub resumed: Ends,
}

/// An order: what its two requests, the broker and the price take together.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Order {
    /// Of the queue manager, without what adapters do.
    pub queue_manager_us: f64,
    /// Of customers, broker and watchers.
    pub application_us: f64,
    /// Of adapters, beside operations with keys: two seals and two opens.
    pub protection_us: f64,
}

/// By how much the queue manager takes longer without the processor's instructions for cryptography.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Software {
    /// For a handshake beside its signature: 1.5 is half as much again.
    pub handshake_times: f64,
    /// For a request.
    pub request_times: f64,
}

impl Default for Software {
    fn default() -> Self {
        Self { handshake_times: 1.0, request_times: 1.0 }
    }
}

/// What the trading workload needs to be known of HTTPS. Requests are on a connection that is kept.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Https {
    /// TLS 1.2, ECDHE.
    pub tls12: Handshakes,
    /// TLS 1.3.
    pub tls13: Handshakes,
    /// A message of 256 bytes is looked at.
    pub get: Ends,
    /// One of 4 KiB.
    pub get_4k: Ends,
    /// Five messages are listed.
    pub list: Ends,
    /// A message of 512 bytes is put, and got by another user over AMQP.
    pub put: Ends,
    /// The same, persistent.
    pub put_persistent: Ends,
    /// A message is published, and got by a subscriber.
    pub publish: Ends,
    /// A sealed order and its confirmation.
    pub order: Order,
    /// Without the processor's instructions.
    pub software: Software,
}

impl Https {
    /// All of it, so many times as long.
    pub(in crate::plan) fn stretch(&mut self, factor: f64) {
        let Https { tls12, tls13, get, get_4k, list, put, put_persistent, publish, order, software: _ } = self;
        for handshakes in [tls12, tls13] {
            handshakes.full.stretch(factor);
            handshakes.resumed.stretch(factor);
        }
        [get, get_4k, list, put, put_persistent, publish].into_iter().for_each(|ends| ends.stretch(factor));
        let Order { queue_manager_us, application_us, protection_us } = order;
        [queue_manager_us, application_us, protection_us].into_iter().for_each(|us| *us *= factor);
    }
}
