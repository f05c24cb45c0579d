//! What protection did under a policy or at a channel: the numbers that DISPLAY POLSTATUS and CHSTATUS, `bulla report
//! policies` and the metrics show. All are cumulative; two copies are subtracted to see what happened in between.

use super::meters::{NotMeters, Reader};
use super::reply::{Cell, Row};
use super::table::{self, Key};
use crate::attributes::Cells;
use bulla_catalog::status::{DeviceWait, ProtectionMeters};
use bulla_seal::Effort;
use std::borrow::Cow;

impl Cells for ProtectionMeters {
    fn cell(&self, key: Key) -> Option<Cell> {
        let (sealing, opening) = (&self.sealing, &self.opening);
        let list = || self.failures.iter().map(|(cause, count)| format!("{cause}={count}")).collect();
        Some(match key {
            Key::Sealed => Cell::Number(self.sealed),
            Key::Opened => Cell::Number(self.opened),
            Key::Checked => Cell::Number(self.checked),
            Key::Tolerated => Cell::Number(self.tolerated),
            Key::NotMine => Cell::Number(self.not_mine),
            Key::Quarantined => Cell::Number(self.quarantined),
            Key::ContentKeys => Cell::Number(sealing.content_keys + opening.content_keys),
            Key::Wraps => Cell::Number(sealing.wraps + opening.wraps),
            Key::Unwraps => Cell::Number(sealing.unwraps + opening.unwraps),
            Key::Signs => Cell::Number(sealing.signs + opening.signs),
            Key::Verifies => Cell::Number(sealing.verifies + opening.verifies),
            Key::KeyCacheHits => Cell::Number(sealing.cache_hits + opening.cache_hits),
            Key::ClearBytesIn => Cell::Number(sealing.bytes_in),
            Key::SealedBytesOut => Cell::Number(sealing.bytes_out),
            Key::SealedBytesIn => Cell::Number(opening.bytes_in),
            Key::ClearBytesOut => Cell::Number(opening.bytes_out),
            Key::DeviceJobs => Cell::Number(self.wait.jobs),
            Key::DeviceWait => Cell::Number(self.wait.ns / 1000),
            Key::DeviceWaitMax => Cell::Number(self.wait.longest_ns / 1000),
            Key::Failures => Cell::Number(self.failed()),
            Key::FailuresByCause => Cell::List(list()),
            _ => return None,
        })
    }
}

/// Out of a row of DISPLAY POLSTATUS with ALL. Times are as exact as the row: whole microseconds.
pub(super) fn from_row(row: &Row) -> Result<ProtectionMeters, NotMeters> {
    let row = Reader(row);
    let failures = row.list(&table::FAILBY)?.iter().map(|text| {
        let (cause, count) = text.rsplit_once('=')?;
        Some((Cow::Owned(cause.to_owned()), count.parse().ok()?))
    });
    let failures = failures.collect::<Option<_>>().ok_or(NotMeters { keyword: table::FAILBY.keyword })?;
    Ok(ProtectionMeters {
        sealed: row.number(&table::SEALED)?,
        opened: row.number(&table::OPENED)?,
        checked: row.number(&table::CHECKED)?,
        tolerated: row.number(&table::TOLERATED)?,
        not_mine: row.number(&table::NOTMINE)?,
        quarantined: row.number(&table::QUARANT)?,
        sealing: Effort {
            content_keys: row.number(&table::KEYGENS)?,
            wraps: row.number(&table::WRAPS)?,
            signs: row.number(&table::SIGNS)?,
            bytes_in: row.number(&table::CLEARIN)?,
            bytes_out: row.number(&table::SEALOUT)?,
            ..Effort::default()
        },
        opening: Effort {
            unwraps: row.number(&table::UNWRAPS)?,
            verifies: row.number(&table::VERIFIES)?,
            cache_hits: row.number(&table::KEYHITS)?,
            bytes_in: row.number(&table::SEALIN)?,
            bytes_out: row.number(&table::CLEAROUT)?,
            ..Effort::default()
        },
        wait: DeviceWait {
            jobs: row.number(&table::DEVJOBS)?,
            ns: row.number(&table::DEVWAIT)?.saturating_mul(1000),
            longest_ns: row.number(&table::DEVWMAX)?.saturating_mul(1000),
        },
        failures,
    })
}
