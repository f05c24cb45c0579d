//! What the queue manager's tasks did: the numbers that DISPLAY TASKSTATUS, `bulla report chinit` and the metrics show.
//!
//! All counters are cumulative since [`TaskMeters::since_ms`]; two snapshots are subtracted to see what happened
//! between them. A snapshot goes over the admin socket as the rows of DISPLAY TASKSTATUS with ALL, and is read back
//! from them.

use super::meters::FromRows;
use super::meters::{NotMeters, Reader};
use super::reply::{Cell, Row};
use super::table::{self, Key};
use bulla_catalog::status::{TaskKind, TaskMeters, TaskSnapshot};
use bulla_device::Peaks;

fn task_cell(task: &TaskMeters, snapshot: &TaskSnapshot, key: Key) -> Option<Cell> {
    Some(match key {
        Key::TaskType => Cell::word(task.kind.as_str()),
        Key::Taken => Cell::Number(snapshot.taken_ms),
        Key::Since => Cell::Number(task.since_ms),
        Key::TaskState => Cell::word(if task.is_running { "RUNNING" } else { "ENDED" }),
        Key::Connections if task.kind == TaskKind::Dispatcher => Cell::Number(task.connections),
        Key::Requests => Cell::Number(task.requests),
        Key::ElapsedTime => Cell::Number(task.elapsed_ns),
        Key::RequestCpuTime => Cell::Number(task.cpu_ns),
        Key::BetweenCpuTime => Cell::Number(task.between_ns),
        Key::LongestRequests => Cell::Text(task.longest.to_string()),
        Key::BusyAdapters if task.kind == TaskKind::Adapter => Cell::Text(snapshot.busy_adapters.to_string()),
        _ => return None,
    })
}

/// A cell of a task's row.
pub(super) fn cell(snapshot: &TaskSnapshot, task: &TaskMeters, key: Key) -> Option<Cell> {
    task_cell(task, snapshot, key)
}

impl FromRows for TaskSnapshot {
    fn from_rows(rows: &[Row]) -> Result<TaskSnapshot, NotMeters> {
        let mut snapshot = TaskSnapshot::default();
        for row in rows {
            let row = Reader(row);
            let kind = |word: &str| TaskKind::ALL.into_iter().find(|kind| kind.as_str() == word);
            let kind = row.known(&table::TASK_TYPE, kind)?;
            snapshot.taken_ms = row.number(&table::TAKEN)?;
            if kind == TaskKind::Adapter {
                snapshot.busy_adapters = row.known(&table::ADAPBUSY, Peaks::from_text)?;
            }
            let state = |word: &str| ["ENDED", "RUNNING"].iter().position(|known| *known == word);
            snapshot.tasks.push(TaskMeters {
                kind,
                name: row.text("TASK")?,
                since_ms: row.number(&table::SINCE)?,
                is_running: row.known(&table::TASK_STATE, state)? == 1,
                connections: if kind == TaskKind::Dispatcher { row.number(&table::CONNS)? } else { 0 },
                requests: row.number(&table::REQUESTS)?,
                elapsed_ns: row.number(&table::ELAPSED)?,
                cpu_ns: row.number(&table::REQCPU)?,
                between_ns: row.number(&table::BETWCPU)?,
                longest: row.known(&table::LONGEST, Peaks::from_text)?,
            });
        }
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metered::Metered;

    fn peaks(records: &[(u64, u64)]) -> Peaks {
        let mut peaks = Peaks::default();
        records.iter().for_each(|(at_ms, value)| peaks.note(*at_ms, *value));
        peaks
    }

    fn task(kind: TaskKind, index: usize, requests: u64) -> TaskMeters {
        TaskMeters {
            is_running: index < 2,
            connections: if kind == TaskKind::Dispatcher { 3 } else { 0 },
            requests,
            elapsed_ns: 70 * requests,
            cpu_ns: 50 * requests,
            between_ns: 11 * requests,
            longest: peaks(&[(1_000, 99), (2_000, 80)]),
            ..TaskMeters::new(kind, kind.name_of(index), 500)
        }
    }

    #[test]
    fn a_snapshot_is_read_back_from_the_rows_that_show_it() {
        let tasks = vec![
            task(TaskKind::Dispatcher, 0, 5),
            task(TaskKind::Adapter, 0, 7),
            task(TaskKind::Adapter, 2, 0),
            task(TaskKind::Tls, 0, 1),
            task(TaskKind::Journal, 0, 2),
            TaskMeters { name: "CARD".into(), ..task(TaskKind::Device, 0, 9) },
        ];
        let snapshot = TaskSnapshot { taken_ms: 3_000, busy_adapters: peaks(&[(1_000, 2), (3_000, 1)]), tasks };
        let mut target = Metered { tasks: snapshot.clone(), ..Metered::default() };
        assert_eq!(TaskSnapshot::from_rows(&target.rows("DISPLAY TASKSTATUS ALL")), Ok(snapshot));
        // People see numbers; the lists are for programs.
        let shown = target.rows("DIS TASKS WHERE(TASKTYPE EQ ADAPTER)");
        assert_eq!(shown.len(), 2);
        assert!(TaskSnapshot::from_rows(&shown).is_err());
    }

    #[test]
    fn the_difference_of_two_snapshots_is_what_happened_between_them() {
        let (earlier, later) = (task(TaskKind::Adapter, 0, 4), task(TaskKind::Adapter, 0, 7));
        let between = later.since(&earlier, 1_500);
        assert_eq!((between.requests, between.elapsed_ns, between.cpu_ns, between.between_ns), (3, 210, 150, 33));
        assert_eq!(between.longest, peaks(&[(2_000, 80)]));
        let anew = TaskMeters { since_ms: 600, ..later.clone() };
        assert_eq!(anew.since(&earlier, 1_500), anew);
    }
}
