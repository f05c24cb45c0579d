//! What limits users, what they have of it and what was held back or refused, for Prometheus; and the bytes that are
//! arriving.

use super::{Family, Seconds, escaped};
use crate::arriving::ArrivingCounts;
use crate::catalog::limits::{Limit, UserStatus};

const NS_PER_MS: u64 = 1_000_000;

/// Users that are connected, and what is arriving, at one moment.
#[derive(Clone, Debug, Default)]
pub struct LimitSnapshot {
    /// Users by name, [`OBJECTS_LABELLED_MAX`](super::OBJECTS_LABELLED_MAX) at most.
    pub users: Vec<UserStatus>,
    /// How many are beyond.
    pub users_without_series: usize,
    /// What is arriving on all connections.
    pub arriving: ArrivingCounts,
}

/// Their metrics as text. Families without a sample are left out.
pub fn limits_text(snapshot: &LimitSnapshot) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    users(&mut family, &snapshot.users);
    family.begin("bulla_users_without_series", "gauge", "Connected users beyond the limit on series: they have none.");
    family.sample("", "", snapshot.users_without_series);
    let ArrivingCounts { bytes, bytes_max, stopped, closed } = snapshot.arriving;
    family.begin("bulla_arriving_bytes", "gauge", "Bytes of messages that are arriving, on all connections.");
    family.sample("", "", bytes);
    family.begin("bulla_arriving_bytes_limit", "gauge", "Bytes beyond which those that hold much take turns.");
    family.sample("", "", bytes_max);
    family.begin(
        "bulla_arriving_stopped_total",
        "counter",
        "Times that a connection was not read any more because of that.",
    );
    family.sample("", "", stopped);
    family.begin(
        "bulla_arriving_closed_total",
        "counter",
        "Connections closed because they held much and brought no message to its end.",
    );
    family.sample("", "", closed);
    out
}

fn users(family: &mut Family<'_>, users: &[UserStatus]) {
    let label = |user: &UserStatus| format!("user=\"{}\"", escaped(&user.name));
    type OfLimit = fn(&Limit) -> u64;
    let limits: [(&str, OfLimit); 8] = [
        ("connections", |limit| limit.connections.into()),
        ("links", |limit| limit.links.into()),
        ("unacknowledged_bytes", |limit| limit.unacknowledged_bytes),
        ("messages_per_second", |limit| limit.messages_a_second.into()),
        ("durable_subscriptions", |limit| limit.subscriptions.into()),
        ("dynamic_queues", |limit| limit.dynamic_queues.into()),
        ("temporary_queues", |limit| limit.temporary_queues.into()),
        ("non_durable_subscriptions", |limit| limit.non_durable_subscriptions.into()),
    ];
    family.begin("bulla_user_limit", "gauge", "The limits in force, by what they limit; none where there is no limit.");
    for user in users {
        for (what, of) in limits.iter().filter(|(_, of)| of(&user.limit) > 0) {
            family.sample("", &format!("{},limit=\"{what}\"", label(user)), of(&user.limit));
        }
        if user.limit.key_ms_a_second > 0 {
            let share = Seconds(u64::from(user.limit.key_ms_a_second) * NS_PER_MS);
            family.sample("", &format!("{},limit=\"sealing_seconds_per_second\"", label(user)), share);
        }
    }
    type Value = fn(&UserStatus) -> u64;
    let gauges: [(&str, &str, Value); 7] = [
        ("bulla_user_connections", "Connections of the user.", |user| user.connections.into()),
        ("bulla_user_links", "Links on them that put, get, browse or coordinate.", |user| user.links.into()),
        (
            "bulla_user_unacknowledged_bytes",
            "Bytes delivered and not settled, counted where UNACKED limits them.",
            |user| user.unacknowledged_bytes,
        ),
        ("bulla_user_durable_subscriptions", "Durable subscriptions that the user's applications have.", |user| {
            user.subscriptions.into()
        }),
        ("bulla_user_dynamic_queues", "Permanent dynamic queues that the user's applications have.", |user| {
            user.dynamic_queues.into()
        }),
        ("bulla_user_temporary_queues", "Temporary queues that the user's links have.", |user| {
            user.temporary_queues.into()
        }),
        ("bulla_user_non_durable_subscriptions", "Subscriptions of the user's links that are not durable.", |user| {
            user.non_durable_subscriptions.into()
        }),
    ];
    let counters: [(&str, &str, Value); 3] = [
        ("bulla_user_held_back_total", "Times that MSGRATE left a link less credit than it could have had.", |user| {
            user.held_back
        }),
        (
            "bulla_user_refused_total",
            "Connections, links, subscriptions and queues refused because of the limit.",
            |user| user.refused,
        ),
        ("bulla_user_sealing_used_up_total", "Times that SEALTIME was used up.", |user| user.key_used_up),
    ];
    for (kind, families) in [("gauge", &gauges[..]), ("counter", &counters[..])] {
        for (name, help, value) in families {
            family.begin(name, kind, help);
            users.iter().for_each(|user| family.sample("", &label(user), value(user)));
        }
    }
    family.begin(
        "bulla_user_sealing_seconds_total",
        "counter",
        "Private-key time for the user's messages, counted where SEALTIME limits it.",
    );
    users.iter().for_each(|user| family.sample("", &label(user), Seconds(user.key_ns)));
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::read;
    use super::*;

    /// Something of everything.
    pub(crate) fn busy() -> LimitSnapshot {
        let limit = Limit {
            connections: 5,
            links: 0,
            messages_a_second: 100,
            key_ms_a_second: 250,
            subscriptions: 7,
            dynamic_queues: 0,
            ..Limit::default()
        };
        let app = UserStatus {
            name: "app".into(),
            limit,
            connections: 2,
            held_back: 7,
            subscriptions: 3,
            refused: 3,
            key_ns: 1_500_000_000,
            ..UserStatus::default()
        };
        let anonymous = UserStatus { name: "*ANONYMOUS".into(), ..UserStatus::default() };
        let arriving = ArrivingCounts { bytes: 10, bytes_max: 1000, stopped: 4, closed: 1 };
        LimitSnapshot { users: vec![anonymous, app], users_without_series: 1, arriving }
    }

    #[test]
    fn each_user_has_its_limits_in_force_and_no_series_for_those_that_it_has_not() {
        let samples = read(&limits_text(&busy())).unwrap();
        let of = |name: &str, user: &str| -> Vec<f64> {
            let fits = |labels: &super::super::tests::Labels| labels.get("user").is_some_and(|known| known == user);
            samples
                .iter()
                .filter(|(known, labels, _)| known == name && fits(labels))
                .map(|(.., value)| *value)
                .collect()
        };
        assert_eq!(of("bulla_user_limit", "app"), [5.0, 100.0, 7.0, 1000.0, 1000.0, 0.25]);
        let all_users = [5000.0, 20_000.0, 1000.0, 1000.0, 1000.0, 1000.0];
        assert_eq!(of("bulla_user_limit", "*ANONYMOUS"), all_users, "those of all users");
        assert_eq!(of("bulla_user_durable_subscriptions", "app"), [3.0]);
        assert_eq!(of("bulla_user_connections", "app"), [2.0]);
        assert_eq!(of("bulla_user_held_back_total", "app"), [7.0]);
        assert_eq!(of("bulla_user_refused_total", "app"), [3.0]);
        assert_eq!(of("bulla_user_sealing_seconds_total", "app"), [1.5]);
        assert_eq!(of("bulla_user_refused_total", "*ANONYMOUS"), [0.0]);
    }
}
