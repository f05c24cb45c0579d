//! Workloads, as a report calls them.

const ROUND_TRIPS: &str = "round trips a second";

/// A workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload<'a>(pub(super) &'a str);

impl Workload<'_> {
    /// The heading over its results.
    pub(super) fn title(&self) -> String {
        let title = match self.0 {
            "request-reply" => "Request and reply",
            "stream" => "Streams",
            "channel" => "Round trips over channels",
            "handshake" => "TLS starts",
            "trade" => "A trading application over HTTPS",
            "key-size" => "Key sizes",
            "key-reuse" => "Key reuse",
            "tasks" => "Dispatchers and adapters",
            "islands" => "Islands",
            "devices" => "Crypto devices",
            "plan-check" => "Predictions",
            "" => "Unnamed workload",
            other => other,
        };
        title.to_owned()
    }

    /// Where its section comes; the one that answers most comes first.
    pub(super) fn rank(&self) -> usize {
        const ORDER: [&str; 11] = [
            "request-reply",
            "key-size",
            "key-reuse",
            "stream",
            "islands",
            "devices",
            "channel",
            "handshake",
            "trade",
            "tasks",
            "plan-check",
        ];
        ORDER.iter().position(|known| *known == self.0).unwrap_or(ORDER.len())
    }

    /// What it counts.
    pub(super) fn measure(&self) -> &'static str {
        match self.0 {
            "stream" | "key-size" | "key-reuse" | "devices" => "messages a second",
            "handshake" => "starts a second",
            "request-reply" | "channel" | "tasks" | "islands" => ROUND_TRIPS,
            _ => "transactions a second",
        }
    }

    /// Whether a transaction is a message and its answer.
    pub(super) fn counts_round_trips(&self) -> bool {
        self.measure() == ROUND_TRIPS
    }

    /// The name of one of its figures.
    pub(super) fn figure(&self, kind: &str) -> String {
        format!("{}/{kind}", if self.0.is_empty() { "unnamed" } else { self.0 })
    }
}
