//! What each role has cost. All counters but one are cumulative; two snapshots are subtracted to see what happened
//! between them.

use bulla_device::role::{Costs, Role};

/// The row of what no role owns.
pub const UNATTRIBUTED: &str = "unattributed";

/// The row of the process.
pub const PROCESS: &str = "process";

/// What every role has cost, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostSnapshot {
    /// Milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// Where the counters begin: milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// Processor time of each role, and of the process by its own clock.
    pub costs: Costs,
    /// Messages put.
    pub puts: u64,
    /// Messages got.
    pub gets: u64,
    /// Messages that went to scratch space because memory was full.
    pub scratch: ScratchUse,
}

/// What went to scratch space: bodies of messages that are not persistent, beyond the memory that there is for them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScratchUse {
    /// Messages written there.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes of messages that lie there now.
    pub used: u64,
    /// How long it was waited for that: writing them, and reading them back, nanoseconds.
    pub wait_ns: u64,
}

impl CostSnapshot {
    /// What happened after `earlier`, an older snapshot. Where the counters began anew, all of it did.
    #[must_use]
    pub fn since(&self, earlier: &CostSnapshot) -> CostSnapshot {
        if earlier.since_ms != self.since_ms {
            return self.clone();
        }
        let mut costs = self.costs;
        for (ns, before_ns) in costs.roles_ns.iter_mut().zip(earlier.costs.roles_ns) {
            *ns = ns.saturating_sub(before_ns);
        }
        costs.process_ns = costs.process_ns.saturating_sub(earlier.costs.process_ns);
        costs.sealing_ns = costs.sealing_ns.saturating_sub(earlier.costs.sealing_ns);
        costs.opening_ns = costs.opening_ns.saturating_sub(earlier.costs.opening_ns);
        let (scratch, before) = (self.scratch, earlier.scratch);
        CostSnapshot {
            costs,
            puts: self.puts.saturating_sub(earlier.puts),
            gets: self.gets.saturating_sub(earlier.gets),
            scratch: ScratchUse {
                messages: scratch.messages.saturating_sub(before.messages),
                bytes: scratch.bytes.saturating_sub(before.bytes),
                used: scratch.used,
                wait_ns: scratch.wait_ns.saturating_sub(before.wait_ns),
            },
            ..self.clone()
        }
    }

    /// Names and processor times of all rows, nanoseconds: the roles, what none of them owns, the process.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let roles = Role::ALL.into_iter().map(|role| (role.as_str(), self.costs.of(role)));
        roles.chain([(UNATTRIBUTED, self.costs.unattributed_ns()), (PROCESS, self.costs.process_ns)])
    }
}
