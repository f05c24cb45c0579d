//! What queues, policies and channels counted, for Prometheus.

use super::{Family, Seconds, escaped};
use crate::catalog::limits::QueueLimit;
use crate::catalog::status::{ChannelState, ChannelStatus, ProtectionMeters, QueueStatus};

/// Queues that have series, the first ones by name; so many policies, and so many instances of channels. What is beyond
/// has none, because every series costs the collector, and no sum either: a queue that is defined or deleted would move
/// others into it or out of it, and a counter that jumps or falls is none.
pub const OBJECTS_LABELLED_MAX: usize = 500;

const NS_PER_US: u64 = 1000;

/// Queues, policies and channels at one moment.
#[derive(Clone, Debug, Default)]
pub struct TrafficSnapshot {
    /// Local queues by name, [`OBJECTS_LABELLED_MAX`] at most; of policies and channels, too.
    pub queues: Vec<(String, QueueStatus)>,
    /// Policies by name.
    pub policies: Vec<(String, ProtectionMeters)>,
    /// Instances of channels, by channel and partner.
    pub channels: Vec<((String, String), ChannelStatus)>,
    /// How many are beyond.
    pub without_series: WithoutSeries,
}

/// How many objects have no series, because they are beyond [`OBJECTS_LABELLED_MAX`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WithoutSeries {
    /// Local queues.
    pub queues: usize,
    /// Policies.
    pub policies: usize,
    /// Instances of channels.
    pub channels: usize,
    /// Certificates.
    pub certificates: usize,
    /// Revocation lists.
    pub lists: usize,
    /// Keys that messages need.
    pub keys: usize,
}

/// Those that have series, of names in order, and how many are beyond them.
pub(crate) fn labelled<N>(names: impl ExactSizeIterator<Item = N>) -> (Vec<N>, usize) {
    let beyond = names.len().saturating_sub(OBJECTS_LABELLED_MAX);
    (names.take(OBJECTS_LABELLED_MAX).collect(), beyond)
}

/// Their metrics as text. Families without a sample are left out.
pub fn traffic_text(snapshot: &TrafficSnapshot) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    queues(&mut family, &snapshot.queues);
    policies(&mut family, &snapshot.policies);
    channels(&mut family, &snapshot.channels);
    family.begin("bulla_objects_without_series", "gauge", "Objects beyond the limit on series: they have none.");
    let WithoutSeries { queues, policies, channels, certificates, lists, keys } = snapshot.without_series;
    for (object, count) in [
        ("queue", queues),
        ("policy", policies),
        ("channel", channels),
        ("certificate", certificates),
        ("revocation-list", lists),
        ("key", keys),
    ] {
        family.sample("", &format!("object=\"{object}\""), count);
    }
    out
}

fn microseconds(us: u64) -> Seconds {
    Seconds(us.saturating_mul(NS_PER_US))
}

fn queues(family: &mut Family<'_>, queues: &[(String, QueueStatus)]) {
    let label = |name: &str| format!("queue=\"{}\"", escaped(name));
    type Value = fn(&QueueStatus) -> u64;
    let gauges: [(&str, &str, Value); 4] = [
        ("bulla_queue_depth", "Messages on the queue, those under delivery included.", |queue| queue.depth),
        ("bulla_queue_uncommitted", "Messages under delivery, in an open unit of work, or not yet synced.", |queue| {
            queue.uncommitted
        }),
        ("bulla_queue_bytes", "Bytes of all messages on the queue, as stored.", |queue| queue.bytes),
        (
            "bulla_queue_unacknowledged_bytes",
            "Bytes delivered and not settled, counted where UNACKED limits them.",
            |queue| queue.unacknowledged_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        family.begin(name, "gauge", help);
        queues.iter().for_each(|(queue, of)| family.sample("", &label(queue), value(of)));
    }
    family.begin("bulla_queue_oldest_message_seconds", "gauge", "Age of the oldest message; 0 on an empty queue.");
    for (queue, of) in queues {
        family.sample("", &label(queue), of.oldest_seconds.unwrap_or(0));
    }
    family.begin(
        "bulla_queue_stranded_messages",
        "gauge",
        "Messages that no key ring here can open, by why: no ring has a key, or one that can't be read has it.",
    );
    for (queue, of) in queues {
        for (cause, count) in of.stranded.by_cause() {
            family.sample("", &format!("{},cause=\"{cause}\"", label(queue)), count);
        }
    }
    family.begin("bulla_queue_time_seconds", "gauge", "Time between put and get, the short average of QTIME.");
    for (queue, of) in queues {
        family.sample("", &label(queue), microseconds(of.time_us.short));
    }
    family.begin("bulla_queue_links", "gauge", "Links that put on the queue, and that get from it.");
    for (queue, of) in queues {
        family.sample("", &format!("{},direction=\"put\"", label(queue)), of.open_output);
        family.sample("", &format!("{},direction=\"get\"", label(queue)), of.open_input);
    }
    family.begin(
        "bulla_queue_limit",
        "gauge",
        "The limits in force, by what they limit; none where there is no limit.",
    );
    for (queue, of) in queues {
        let QueueLimit { links, unacknowledged_bytes, messages_a_second } = of.limit;
        let limits = [
            ("links", links.into()),
            ("unacknowledged_bytes", unacknowledged_bytes),
            ("messages_per_second", u64::from(messages_a_second)),
        ];
        for (what, limit) in limits.into_iter().filter(|(_, limit)| *limit > 0) {
            family.sample("", &format!("{},limit=\"{what}\"", label(queue)), limit);
        }
    }
    let counters: [(&str, &str, Value); 11] = [
        ("bulla_queue_puts_total", "Messages put.", |queue| queue.puts),
        ("bulla_queue_persistent_puts_total", "Of them, persistent ones.", |queue| queue.persistent_puts),
        ("bulla_queue_gets_total", "Messages got.", |queue| queue.gets),
        ("bulla_queue_persistent_gets_total", "Of them, persistent ones.", |queue| queue.persistent_gets),
        ("bulla_queue_browses_total", "Messages sent to links that browse.", |queue| queue.browses),
        ("bulla_queue_put_bytes_total", "Bytes of the messages put, as stored.", |queue| queue.bytes_put),
        ("bulla_queue_got_bytes_total", "Bytes of the messages got, as stored.", |queue| queue.bytes_got),
        ("bulla_queue_expired_total", "Messages that expired.", |queue| queue.expired),
        (
            "bulla_queue_held_back_total",
            "Times that MSGRATE left a link less credit than it could have had.",
            |queue| queue.held_back,
        ),
        ("bulla_queue_limit_refused_total", "Links and messages refused because of the queue's limits.", |queue| {
            queue.limit_refused
        }),
        (
            "bulla_queue_not_mine_total",
            "Times that a message was passed over for a reader who is not a recipient.",
            |queue| queue.not_mine,
        ),
    ];
    for (name, help, value) in counters {
        family.begin(name, "counter", help);
        queues.iter().for_each(|(queue, of)| family.sample("", &label(queue), value(of)));
    }
    family.begin("bulla_queue_rejects_total", "counter", "Puts that were refused, by MQ's reason code.");
    for (queue, of) in queues {
        for (reason, count) in &of.rejects {
            family.sample("", &format!("{},reason=\"{reason}\"", label(queue)), count);
        }
    }
}

fn policies(family: &mut Family<'_>, policies: &[(String, ProtectionMeters)]) {
    let label = |name: &str| format!("policy=\"{}\"", escaped(name));
    type Value = fn(&ProtectionMeters) -> u64;
    let counters: [(&str, &str, Value); 17] = [
        ("bulla_policy_sealed_total", "Messages sealed.", |of| of.sealed),
        ("bulla_policy_opened_total", "Messages opened for readers.", |of| of.opened),
        ("bulla_policy_checked_total", "Messages that arrived sealed and were found good.", |of| of.checked),
        ("bulla_policy_tolerated_total", "Clear messages let through to readers.", |of| of.tolerated),
        (
            "bulla_policy_not_mine_total",
            "Times that a message was passed over for a reader who is not a recipient.",
            |of| of.not_mine,
        ),
        ("bulla_policy_quarantined_total", "Messages moved to the error queue.", |of| of.quarantined),
        ("bulla_policy_content_keys_total", "Content keys made.", |of| of.sealing.content_keys),
        ("bulla_policy_wraps_total", "Content keys wrapped, once for each recipient.", |of| of.sealing.wraps),
        ("bulla_policy_unwraps_total", "Content keys unwrapped.", |of| of.opening.unwraps),
        ("bulla_policy_signs_total", "Signatures made.", |of| of.sealing.signs),
        ("bulla_policy_verifies_total", "Signatures verified.", |of| of.opening.verifies),
        ("bulla_policy_key_cache_hits_total", "Messages opened without an unwrap of their own.", |of| {
            of.opening.cache_hits
        }),
        ("bulla_policy_clear_in_bytes_total", "Bytes of payload given to be sealed.", |of| of.sealing.bytes_in),
        ("bulla_policy_sealed_out_bytes_total", "Bytes of sealed messages made of it.", |of| of.sealing.bytes_out),
        ("bulla_policy_sealed_in_bytes_total", "Bytes of sealed messages given to be opened or checked.", |of| {
            of.opening.bytes_in
        }),
        ("bulla_policy_clear_out_bytes_total", "Bytes of payload found in them.", |of| of.opening.bytes_out),
        ("bulla_policy_device_jobs_total", "Times that a message was set aside for an operation with a key.", |of| {
            of.wait.jobs
        }),
    ];
    for (name, help, value) in counters {
        family.begin(name, "counter", help);
        policies.iter().for_each(|(policy, of)| family.sample("", &label(policy), value(of)));
    }
    family.begin(
        "bulla_policy_device_wait_seconds_total",
        "counter",
        "Time of these messages from the submission of a job to its answer.",
    );
    for (policy, of) in policies {
        family.sample("", &label(policy), Seconds(of.wait.ns));
    }
    family.begin("bulla_policy_failures_total", "counter", "Messages refused, set aside or not opened, by cause.");
    for (policy, of) in policies {
        for (cause, count) in &of.failures {
            family.sample("", &format!("{},cause=\"{}\"", label(policy), escaped(cause)), count);
        }
    }
}

fn channels(family: &mut Family<'_>, channels: &[((String, String), ChannelStatus)]) {
    let label = |(channel, partner): &(String, String)| {
        format!("channel=\"{}\",partner=\"{}\"", escaped(channel), escaped(partner))
    };
    type Value = fn(&ChannelStatus) -> u64;
    let gauges: [(&str, &str, Value); 3] = [
        ("bulla_channel_running", "1 while the instance runs.", |of| u64::from(of.state == ChannelState::Running)),
        ("bulla_channel_unconfirmed_messages", "Messages sent or received and not confirmed.", |of| {
            of.current_messages
        }),
        ("bulla_channel_waiting_messages", "Messages that wait on the transmission queue.", |of| of.queue_messages),
    ];
    for (name, help, value) in gauges {
        family.begin(name, "gauge", help);
        channels.iter().for_each(|(id, of)| family.sample("", &label(id), value(of)));
    }
    family.begin(
        "bulla_channel_queue_time_seconds",
        "gauge",
        "Time on the transmission queue, the short average of XQTIME.",
    );
    for (id, of) in channels {
        family.sample("", &label(id), microseconds(of.queue_time_us.short));
    }
    family.begin(
        "bulla_channel_net_time_seconds",
        "gauge",
        "From sending to confirmation, the short average of NETTIME.",
    );
    for (id, of) in channels {
        family.sample("", &label(id), microseconds(of.net_time_us.short));
    }
    let counters: [(&str, &str, Value); 8] = [
        ("bulla_channel_messages_total", "Messages sent or received, since the start of the instance.", |of| {
            of.messages
        }),
        ("bulla_channel_batches_total", "Batches completed.", |of| of.batches),
        ("bulla_channel_sent_bytes_total", "Bytes sent.", |of| of.bytes_sent),
        ("bulla_channel_received_bytes_total", "Bytes received.", |of| of.bytes_received),
        ("bulla_channel_key_resets_total", "Times that the keys of TLS were renewed.", |of| of.key_resets),
        ("bulla_channel_sealed_total", "Messages sealed on their way in (SPLPROT).", |of| of.protection.sealed),
        ("bulla_channel_opened_total", "Messages opened on their way out (SPLPROT).", |of| of.protection.opened),
        ("bulla_channel_checked_total", "Messages that came in sealed and were found good.", |of| {
            of.protection.checked
        }),
    ];
    for (name, help, value) in counters {
        family.begin(name, "counter", help);
        channels.iter().for_each(|(id, of)| family.sample("", &label(id), value(of)));
    }
    family.begin(
        "bulla_channel_failures_total",
        "counter",
        "Messages that SPLPROT could not seal, open or check, by cause.",
    );
    for (id, of) in channels {
        for (cause, count) in &of.protection.failures {
            family.sample("", &format!("{},cause=\"{}\"", label(id), escaped(cause)), count);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{Labels, read};
    use super::*;
    use crate::catalog::status::{Deed, DeviceWait};
    use bulla_seal::Effort;

    fn queue(puts: u64) -> QueueStatus {
        QueueStatus {
            depth: 2,
            puts,
            oldest_seconds: Some(puts),
            rejects: vec![(2030, 1), (2053, puts)],
            limit: QueueLimit { links: 4, ..QueueLimit::default() },
            ..QueueStatus::default()
        }
    }

    fn meters() -> ProtectionMeters {
        let mut meters = ProtectionMeters::default();
        let effort = Effort { signs: 3, bytes_out: 7, ..Effort::default() };
        meters.note(Deed::Sealed, &effort, &DeviceWait { jobs: 1, ns: 1_500_000_001, longest_ns: 1 });
        meters.fail("tampered");
        meters
    }

    /// Something of everything.
    pub(crate) fn busy() -> TrafficSnapshot {
        let channel = ChannelStatus {
            state: ChannelState::Running,
            messages: 9,
            protection: meters(),
            ..ChannelStatus::default()
        };
        TrafficSnapshot {
            queues: vec![("A/%.b_".into(), queue(5)), ("B".into(), QueueStatus::default())],
            policies: vec![("B".into(), meters())],
            channels: vec![(("C".into(), "a \"container\"".into()), channel)],
            without_series: WithoutSeries::default(),
        }
    }

    fn value(samples: &[(String, Labels, f64)], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        samples.iter().find(|(known, labels, _)| known == name && *labels == wanted).map(|(.., value)| *value)
    }

    #[test]
    fn the_text_is_well_formed_and_says_what_was_counted() {
        let samples = read(&traffic_text(&busy())).unwrap();
        for (name, labels, wanted) in [
            ("bulla_queue_puts_total", &[("queue", "A/%.b_")][..], 5.0),
            ("bulla_queue_depth", &[("queue", "B")], 0.0),
            ("bulla_queue_rejects_total", &[("queue", "A/%.b_"), ("reason", "2053")], 5.0),
            ("bulla_policy_signs_total", &[("policy", "B")], 3.0),
            ("bulla_policy_device_wait_seconds_total", &[("policy", "B")], 1.500_000_001),
            ("bulla_policy_failures_total", &[("policy", "B"), ("cause", "tampered")], 1.0),
            ("bulla_channel_messages_total", &[("channel", "C"), ("partner", "a \"container\"")], 9.0),
            ("bulla_objects_without_series", &[("object", "queue")], 0.0),
        ] {
            assert_eq!(value(&samples, name, labels), Some(wanted), "{name}");
        }
    }

    #[test]
    fn beyond_the_limit_objects_have_no_series_and_their_number_is_said() {
        let names = |count: usize| (0..count).map(|number| format!("Q{number:04}"));
        assert_eq!(labelled(names(OBJECTS_LABELLED_MAX)), (names(OBJECTS_LABELLED_MAX).collect(), 0));
        let (first, beyond) = labelled(names(OBJECTS_LABELLED_MAX + 3));
        assert_eq!((first.last().map(String::as_str), beyond), (Some("Q0499"), 3));
        let snapshot = TrafficSnapshot {
            queues: first.into_iter().zip(0..).map(|(name, number)| (name, queue(number))).collect(),
            without_series: WithoutSeries { queues: beyond, channels: 7, keys: 2, ..WithoutSeries::default() },
            ..TrafficSnapshot::default()
        };
        let samples = read(&traffic_text(&snapshot)).unwrap();
        let puts = samples.iter().filter(|(name, ..)| name == "bulla_queue_puts_total");
        assert_eq!(puts.count(), OBJECTS_LABELLED_MAX);
        assert_eq!(value(&samples, "bulla_queue_puts_total", &[("queue", "Q0499")]), Some(499.0));
        for (object, count) in [("queue", 3.0), ("policy", 0.0), ("channel", 7.0), ("certificate", 0.0), ("key", 2.0)] {
            assert_eq!(value(&samples, "bulla_objects_without_series", &[("object", object)]), Some(count));
        }
    }
}
