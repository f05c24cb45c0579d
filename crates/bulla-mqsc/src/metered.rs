//! What tests administer that are about meters: it has counted what they say, and does nothing.

use super::reply::{Outcome, Reply, Row};
use super::run::{AdminError, Administered, Applied, Replay, Replayed, execute};
use bulla_catalog::connections::{Connected, ConnectionId, Connections};
use bulla_catalog::log_ins::LoggedIn;
use bulla_catalog::status::{CostSnapshot, PolicyStatus, QueueStatus, Snapshot, TaskSnapshot};
use bulla_catalog::{Change, Definitions};

/// What was counted; each queue and each policy has the same.
pub(super) struct Metered {
    pub(super) definitions: Definitions,
    pub(super) devices: Snapshot,
    pub(super) tasks: TaskSnapshot,
    pub(super) costs: CostSnapshot,
    pub(super) queue: Option<QueueStatus>,
    pub(super) policy: PolicyStatus,
    pub(super) connections: Vec<Connected>,
    pub(super) log_ins: Vec<LoggedIn>,
}

impl Default for Metered {
    fn default() -> Self {
        Metered {
            definitions: Definitions::initial("Q"),
            devices: Snapshot::default(),
            tasks: TaskSnapshot::default(),
            costs: CostSnapshot::default(),
            queue: None,
            policy: PolicyStatus::default(),
            connections: Vec::new(),
            log_ins: Vec::new(),
        }
    }
}

impl Metered {
    /// The rows that a command shows, as they come out of the socket.
    pub(super) fn rows(&mut self, command: &str) -> Vec<Row> {
        let replies = execute(command, self);
        let carried = replies.first().and_then(|reply| Reply::from_json(&reply.to_json()));
        match carried.map(|reply| reply.outcome) {
            Some(Outcome::Rows(rows)) => rows,
            other => panic!("{command}: {other:?}"),
        }
    }
}

impl Administered for Metered {
    fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    fn apply(&mut self, change: Change) -> Result<Applied, AdminError> {
        self.definitions.apply(&change);
        Ok(Applied::default())
    }

    fn replay(&mut self, _: &Replay) -> Result<Replayed, AdminError> {
        unreachable!("nothing is replayed")
    }

    fn queue_status(&self, _: &str) -> Option<QueueStatus> {
        self.queue.clone()
    }

    fn policy_status(&self, _: &str) -> PolicyStatus {
        self.policy.clone()
    }

    fn connections(&mut self) -> Result<Connections, AdminError> {
        Ok(Connections { taken_ms: 5_000, connections: self.connections.clone() })
    }

    fn stop_connection(&mut self, id: ConnectionId) -> Result<Option<Connected>, AdminError> {
        let found = self.connections.iter().position(|connection| connection.id == id);
        Ok(found.map(|found| self.connections.remove(found)))
    }

    fn log_ins(&self) -> Vec<LoggedIn> {
        self.log_ins.clone()
    }

    fn end_log_ins(&mut self, ends: &dyn Fn(&str, u64) -> bool) -> usize {
        let before = self.log_ins.len();
        self.log_ins.retain(|one| !ends(&one.user, one.number));
        before - self.log_ins.len()
    }

    fn device_meters(&mut self, _: Option<u64>) -> Result<Snapshot, AdminError> {
        Ok(self.devices.clone())
    }

    fn task_meters(&mut self, _: Option<u64>) -> Result<TaskSnapshot, AdminError> {
        Ok(self.tasks.clone())
    }

    fn cost_meters(&mut self, _: Option<u64>) -> Result<CostSnapshot, AdminError> {
        Ok(self.costs.clone())
    }
}
