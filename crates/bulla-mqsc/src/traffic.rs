//! Snapshots of queues and policies as programs take them: the rows of DISPLAY QSTATUS and POLSTATUS with ALL, read
//! back.

use super::meters::FromRows;
use super::meters::{NotMeters, Reader};
use super::protection;
use super::reply::{Cell, Row};
use super::table;
use bulla_catalog::status::{PolicySnapshot, QueueSnapshot, QueueStatus, TwoAverages};

impl FromRows for QueueSnapshot {
    fn from_rows(rows: &[Row]) -> Result<QueueSnapshot, NotMeters> {
        let mut snapshot = QueueSnapshot::default();
        for row in rows {
            let row = Reader(row);
            (snapshot.taken_ms, snapshot.since_ms) = (row.number(&table::TAKEN)?, row.number(&table::SINCE)?);
            snapshot.queues.push((row.text("QUEUE")?, queue(&row)?));
        }
        Ok(snapshot)
    }
}

impl FromRows for PolicySnapshot {
    fn from_rows(rows: &[Row]) -> Result<PolicySnapshot, NotMeters> {
        let mut snapshot = PolicySnapshot::default();
        for whole in rows {
            let row = Reader(whole);
            (snapshot.taken_ms, snapshot.since_ms) = (row.number(&table::TAKEN)?, row.number(&table::SINCE)?);
            snapshot.policies.push((row.text("POLICY")?, protection::from_row(whole)?));
        }
        Ok(snapshot)
    }
}

fn queue(row: &Reader<'_>) -> Result<QueueStatus, NotMeters> {
    let optional =
        |attribute: &'static table::Attribute| match row.0.cells.iter().find(|(known, _)| known == attribute.keyword) {
            Some((_, Cell::Number(number))) => Ok(Some(*number)),
            Some((_, Cell::Text(text))) if text.is_empty() => Ok(None),
            _ => Err(NotMeters { keyword: attribute.keyword }),
        };
    let time_us = match row.0.cells.iter().find(|(known, _)| known == table::QTIME.keyword) {
        Some((_, Cell::Pair(short, long))) => TwoAverages { short: *short, long: *long },
        _ => return Err(NotMeters { keyword: table::QTIME.keyword }),
    };
    let rejects = row.list(&table::REJBY)?.iter().map(|text| {
        let (reason, count) = text.split_once('=')?;
        Some((reason.parse().ok()?, count.parse().ok()?))
    });
    Ok(QueueStatus {
        depth: row.number(&table::CURDEPTH)?,
        open_input: row.number(&table::IPPROCS)?,
        open_output: row.number(&table::OPPROCS)?,
        uncommitted: row.number(&table::UNCOM)?,
        oldest_seconds: optional(&table::MSGAGE)?,
        bytes: row.number(&table::BYTES)?,
        puts: row.number(&table::PUTS)?,
        gets: row.number(&table::GETS)?,
        expired: row.number(&table::EXPIRED)?,
        not_mine: row.number(&table::NOTMINE)?,
        since_ms: row.number(&table::SINCE)?,
        taken_ms: row.number(&table::TAKEN)?,
        output_opens: row.number(&table::OPOPENS)?,
        input_opens: row.number(&table::IPOPENS)?,
        single_puts: row.number(&table::PUT1S)?,
        persistent_puts: row.number(&table::PPUTS)?,
        persistent_gets: row.number(&table::PGETS)?,
        browses: row.number(&table::BROWSES)?,
        bytes_put: row.number(&table::PUTBYTES)?,
        bytes_got: row.number(&table::GETBYTES)?,
        shortest_bytes: optional(&table::MINMSG)?,
        longest_bytes: optional(&table::MAXMSG)?,
        time_us,
        longest_time_us: row.number(&table::QTIMEMAX)?,
        rejects: rejects.collect::<Option<_>>().ok_or(NotMeters { keyword: table::REJBY.keyword })?,
        ..QueueStatus::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metered::Metered;
    use crate::run::execute;
    use bulla_catalog::status::PolicyStatus;
    use bulla_catalog::status::ProtectionMeters;
    use bulla_catalog::status::{Deed, DeviceWait};
    use bulla_seal::Effort;

    /// Every counter has another number.
    fn status() -> QueueStatus {
        QueueStatus {
            depth: 1,
            open_input: 2,
            open_output: 3,
            uncommitted: 4,
            oldest_seconds: None,
            bytes: 5,
            puts: 60,
            gets: 50,
            expired: 7,
            not_mine: 8,
            since_ms: 5,
            taken_ms: 9,
            output_opens: 10,
            input_opens: 11,
            single_puts: 12,
            persistent_puts: 13,
            persistent_gets: 14,
            browses: 15,
            bytes_put: 16_000,
            bytes_got: 17_000,
            shortest_bytes: Some(18),
            longest_bytes: Some(1900),
            time_us: TwoAverages { short: 20, long: 21 },
            longest_time_us: 22_000,
            rejects: vec![(2030, 1), (2053, 23)],
            ..QueueStatus::default()
        }
    }

    fn meters() -> ProtectionMeters {
        let mut meters = ProtectionMeters::default();
        let sealing = Effort { content_keys: 2, wraps: 4, signs: 6, bytes_in: 8, bytes_out: 10, ..Effort::default() };
        let opening =
            Effort { unwraps: 3, verifies: 5, cache_hits: 7, bytes_in: 9, bytes_out: 11, ..Effort::default() };
        meters.note(Deed::Sealed, &sealing, &DeviceWait { jobs: 12, ns: 13_000, longest_ns: 14_000 });
        (0..2).for_each(|_| meters.note(Deed::Opened, &opening, &DeviceWait::default()));
        (0..3).for_each(|_| meters.note(Deed::Checked, &Effort::default(), &DeviceWait::default()));
        (0..4).for_each(|_| meters.note(Deed::Tolerated, &Effort::default(), &DeviceWait::default()));
        (0..5).for_each(|_| meters.note(Deed::NotMine, &Effort::default(), &DeviceWait::default()));
        (0..6).for_each(|_| meters.note(Deed::Quarantined, &Effort::default(), &DeviceWait::default()));
        meters.fail("tampered");
        (0..2).for_each(|_| meters.fail("not-a-recipient"));
        meters
    }

    fn rows(command: &str) -> Vec<Row> {
        let policy = PolicyStatus { since_ms: 5, taken_ms: 9, meters: meters() };
        let mut target = Metered { queue: Some(status()), policy, ..Metered::default() };
        let set = execute("DEFINE QLOCAL(ORDERS)\nSET POLICY(ORDERS) SIGNALG(SHA256)", &mut target);
        assert!(set.iter().all(|reply| reply.exit_code() == 0), "{set:?}");
        target.rows(command)
    }

    #[test]
    fn a_snapshot_comes_back_out_of_its_rows() {
        let queues = QueueSnapshot::from_rows(&rows("DISPLAY QSTATUS(ORDERS) ALL")).unwrap();
        assert_eq!(queues, QueueSnapshot { taken_ms: 9, since_ms: 5, queues: vec![("ORDERS".into(), status())] });
        let policies = PolicySnapshot::from_rows(&rows("DISPLAY POLSTATUS(*) ALL")).unwrap();
        assert_eq!(policies, PolicySnapshot { taken_ms: 9, since_ms: 5, policies: vec![("ORDERS".into(), meters())] });
        assert!(QueueSnapshot::from_rows(&rows("DISPLAY POLSTATUS(*) ALL")).is_err());
        assert!(PolicySnapshot::from_rows(&rows("DISPLAY QSTATUS(*) ALL")).is_err());
    }

    #[test]
    fn the_difference_of_two_copies_is_what_happened_in_between() {
        let now = status();
        let none = now.since(&now);
        assert_eq!((none.puts, none.bytes_put, none.rejects.len(), none.depth), (0, 0, 0, 1));
        let all = now.since(&QueueStatus::default());
        assert_eq!(all, now);
        let now = meters();
        assert_eq!(now.since(&ProtectionMeters::default()), now);
        let none = now.since(&now);
        assert_eq!((none.messages(), none.failed(), none.wait.jobs, none.wait.longest_ns), (0, 0, 0, 14_000));
        let mut twice = now.clone();
        twice.add(&now);
        assert_eq!(twice.since(&now), now);
    }

    #[test]
    fn a_filter_finds_policies_with_failures() {
        assert_eq!(rows("DIS POLS(*) FAILBY WHERE(FAILURES GT 0)").len(), 1);
        assert_eq!(rows("DIS POLS(*) FAILBY WHERE(FAILURES GT 3)").len(), 0);
        assert_eq!(rows("DIS QS(*) REJBY WHERE(REJECTS GT 23)").len(), rows("DIS QS(*)").len());
    }
}
