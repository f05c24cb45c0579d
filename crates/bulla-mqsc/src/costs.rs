//! What each role has cost: the numbers that DISPLAY COSTSTATUS, `bulla report costs` and the metrics show.
//!
//! All counters but one are cumulative; two snapshots are subtracted to see what happened between them. A snapshot goes
//! over the admin socket as the rows of DISPLAY COSTSTATUS with ALL, and is read back from them.

use super::meters::FromRows;
use super::meters::{NotMeters, Reader};
use super::reply::{Cell, Row};
use super::table::{self, Key};
use bulla_catalog::status::{CostSnapshot, PROCESS, ScratchUse};
use bulla_device::role::Role;

/// A cell of the row of that name.
pub(super) fn cell(snapshot: &CostSnapshot, name: &str, cpu_ns: u64, key: Key) -> Option<Cell> {
    Some(match key {
        Key::RoleCpuTime => Cell::Number(cpu_ns),
        Key::Puts if name == PROCESS => Cell::Number(snapshot.puts),
        Key::Gets if name == PROCESS => Cell::Number(snapshot.gets),
        Key::SealingTime if name == Role::Protection.as_str() => Cell::Number(snapshot.costs.sealing_ns),
        Key::OpeningTime if name == Role::Protection.as_str() => Cell::Number(snapshot.costs.opening_ns),
        Key::ScratchMessages if name == PROCESS => Cell::Number(snapshot.scratch.messages),
        Key::ScratchBytes if name == PROCESS => Cell::Number(snapshot.scratch.bytes),
        Key::ScratchUsed if name == PROCESS => Cell::Number(snapshot.scratch.used),
        Key::ScratchWait if name == PROCESS => Cell::Number(snapshot.scratch.wait_ns),
        Key::Taken => Cell::Number(snapshot.taken_ms),
        Key::Since => Cell::Number(snapshot.since_ms),
        _ => return None,
    })
}

impl FromRows for CostSnapshot {
    fn from_rows(rows: &[Row]) -> Result<CostSnapshot, NotMeters> {
        let mut snapshot = CostSnapshot::default();
        let mut has_process = false;
        for row in rows {
            let row = Reader(row);
            let name = row.text(HEAD)?;
            let cpu_ns = row.number(&table::ROLE_CPUTIME)?;
            if let Some(role) = Role::ALL.into_iter().find(|role| role.as_str() == name) {
                snapshot.costs.roles_ns[role as usize] = cpu_ns;
                if role == Role::Protection {
                    snapshot.costs.sealing_ns = row.number(&table::SEALCPU)?;
                    snapshot.costs.opening_ns = row.number(&table::OPENCPU)?;
                }
            } else if name == PROCESS {
                has_process = true;
                snapshot.costs.process_ns = cpu_ns;
                snapshot.taken_ms = row.number(&table::TAKEN)?;
                snapshot.since_ms = row.number(&table::SINCE)?;
                snapshot.puts = row.number(&table::PUTS)?;
                snapshot.gets = row.number(&table::GETS)?;
                snapshot.scratch = ScratchUse {
                    messages: row.number(&table::SCRATCHMSGS)?,
                    bytes: row.number(&table::SCRATCHBYTES)?,
                    used: row.number(&table::SCRATCHUSED)?,
                    wait_ns: row.number(&table::SCRATCHWAIT)?,
                };
            }
        }
        if has_process { Ok(snapshot) } else { Err(NotMeters { keyword: HEAD }) }
    }
}

/// The keyword that heads each row.
pub(super) const HEAD: &str = "COSTSTATUS";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metered::Metered;
    use crate::reply::Outcome;
    use crate::run::execute;
    use bulla_catalog::status::UNATTRIBUTED;
    use bulla_device::role::Costs;

    fn snapshot() -> CostSnapshot {
        let roles_ns = [700, 60, 50, 400, 300, 20, 10];
        let costs = Costs { roles_ns, sealing_ns: 230, opening_ns: 140, process_ns: 1_600 };
        let scratch = ScratchUse { messages: 3, bytes: 6_144, used: 2_048, wait_ns: 9_500 };
        CostSnapshot { taken_ms: 9_000, since_ms: 500, costs, puts: 12, gets: 11, scratch }
    }

    fn busy() -> Metered {
        Metered { costs: snapshot(), ..Metered::default() }
    }

    #[test]
    fn a_snapshot_is_read_back_from_the_rows_that_show_it() {
        let all = busy().rows("DISPLAY COSTSTATUS(*) ALL");
        assert_eq!(all.len(), Role::ALL.len() + 2);
        assert_eq!(CostSnapshot::from_rows(&all), Ok(snapshot()));
        assert!(CostSnapshot::from_rows(&all[..Role::ALL.len()]).is_err(), "without the process's row");
    }

    #[test]
    fn rows_are_found_by_name_in_either_case() {
        for text in ["DIS COSTS(PROCESS)", "DIS COSTS('process')", "DIS COSTSTATUS(proc*)"] {
            assert_eq!(busy().rows(text).len(), 1, "{text}");
        }
        let replies = execute("DIS COSTS(ORDERS)", &mut busy());
        assert!(matches!(replies[0].outcome, Outcome::Failed(_)));
    }

    #[test]
    fn what_no_role_owns_has_a_row_of_its_own() {
        let found = snapshot().rows().find(|(name, _)| *name == UNATTRIBUTED);
        assert_eq!(found, Some((UNATTRIBUTED, 60)));
    }

    #[test]
    fn the_difference_of_two_snapshots_is_what_happened_between_them() {
        let mut later = snapshot();
        later.costs.roles_ns[Role::Tls as usize] += 5;
        later.costs.process_ns += 8;
        later.costs.opening_ns += 4;
        (later.puts, later.scratch.bytes) = (later.puts + 2, later.scratch.bytes + 7);
        let between = later.since(&snapshot());
        let mut costs = Costs { process_ns: 8, opening_ns: 4, ..Costs::default() };
        costs.roles_ns[Role::Tls as usize] = 5;
        assert_eq!((between.costs, between.puts, between.gets), (costs, 2, 0));
        assert_eq!(between.scratch, ScratchUse { bytes: 7, used: 2_048, ..ScratchUse::default() });
        let anew = CostSnapshot { since_ms: 600, ..later };
        assert_eq!(anew.since(&snapshot()), anew);
    }
}
