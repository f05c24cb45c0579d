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

/// So many times as long something takes at each end where customers do all that the mix has, beside where they all do
/// one thing alone.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct MixTimes {
    /// At the queue manager.
    pub queue_manager_times: f64,
    /// At the application.
    pub application_times: f64,
}

impl Default for MixTimes {
    fn default() -> Self {
        Self { queue_manager_times: 1.0, application_times: 1.0 }
    }
}

/// So many times as long; 1 where one of the two is not known.
pub(super) fn times(measured: f64, parts: f64) -> f64 {
    if measured > 0.0 && parts > 0.0 { measured / parts } else { 1.0 }
}

impl MixTimes {
    /// From what was measured in the mix, and what its parts come to.
    #[must_use]
    pub fn of(measured: Ends, parts: Ends) -> Self {
        Self {
            queue_manager_times: times(measured.queue_manager_us, parts.queue_manager_us),
            application_times: times(measured.application_us, parts.application_us),
        }
    }

    fn on(self, ends: Ends) -> Ends {
        ends.times(self.queue_manager_times, self.application_times)
    }
}

/// What the mix does to its parts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Mix {
    /// What adapters do for an order: where orders come now and then, each wakes adapters by itself.
    pub protection_times: f64,
    /// Requests on a connection that is kept, orders among them.
    pub request: MixTimes,
    /// Handshakes.
    pub handshake: MixTimes,
}

impl Default for Mix {
    fn default() -> Self {
        Self { protection_times: 1.0, request: MixTimes::default(), handshake: MixTimes::default() }
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
    /// What the mix does to all that.
    pub mix: Mix,
    /// Without the processor's instructions.
    pub software: Software,
}

impl Https {
    /// The same as customers with the mix find it.
    #[must_use]
    pub fn mixed(mut self) -> Https {
        let Mix { protection_times, request, handshake } = self.mix;
        let Https { tls12, tls13, get, get_4k, list, put, put_persistent, publish, order, .. } = &mut self;
        for ends in [get, get_4k, list, put, put_persistent, publish] {
            *ends = request.on(*ends);
        }
        order.queue_manager_us *= request.queue_manager_times;
        order.application_us *= request.application_times;
        order.protection_us *= protection_times;
        for ends in [&mut tls12.full, &mut tls12.resumed, &mut tls13.full, &mut tls13.resumed] {
            *ends = handshake.on(*ends);
        }
        self
    }

    /// All of it, so many times as long.
    pub(in crate::plan) fn stretch(&mut self, factor: f64) {
        let Https { tls12, tls13, get, get_4k, list, put, put_persistent, publish, order, mix: _, software: _ } = self;
        for handshakes in [tls12, tls13] {
            handshakes.full.stretch(factor);
            handshakes.resumed.stretch(factor);
        }
        [get, get_4k, list, put, put_persistent, publish].into_iter().for_each(|ends| ends.stretch(factor));
        let Order { queue_manager_us, application_us, protection_us } = order;
        [queue_manager_us, application_us, protection_us].into_iter().for_each(|us| *us *= factor);
    }
}
