//! The audit log on disk: files of entries that are chained by their hashes.

pub mod chain;
pub mod files;
mod writer;

pub use files::FOLDER;

use crate::audit::Audit;
use std::io;
use std::path::Path;
use writer::Writer;

/// Opens the log of a data directory, which this process owns, and begins to write. What a crash left of an unfinished
/// entry is cut off, and an entry tells so.
///
/// # Errors
/// The folder or its newest file can't be read or written, or no thread could be started.
pub fn open(data: &Path) -> io::Result<Audit> {
    Audit::begin(Box::new(Writer::open(data.join(FOLDER))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditCounts, AuditError, Entry, Kind, Purpose, REFUSALS_OF_ONE_IN_A_SECOND, Refused, Who};
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;
    use std::time::Instant;

    fn command(text: &str) -> Entry {
        Entry::new(Kind::Command, Who::Administrator { uid: 0, gid: 0, pid: 1 }, json!({ "text": text }))
    }

    fn kinds(data: &Path) -> Vec<String> {
        let mut found = Vec::new();
        chain::read(&data.join(FOLDER), |written| {
            found.push(written.kind);
            true
        })
        .unwrap();
        found
    }

    #[test]
    fn what_is_recorded_is_on_disk_when_that_returns_and_the_chain_goes_on_after_a_restart() {
        let data = tempfile::tempdir().unwrap();
        let audit = open(data.path()).unwrap();
        audit.record(vec![command("one"), command("two")]).unwrap();
        assert_eq!(kinds(data.path()), ["command", "command"]);
        audit.note(command("three"));
        audit.close();
        assert_eq!(audit.record(vec![command("four")]), Err(AuditError::Closed));
        let audit = open(data.path()).unwrap();
        audit.record(vec![command("five")]).unwrap();
        assert_eq!(audit.counts(), AuditCounts { written: 1, dropped: 0, failures: 0 });
        drop(audit);
        let verdict = chain::verify(&data.path().join(FOLDER), None).unwrap();
        assert_eq!((verdict.breaks.len(), verdict.entries), (0, 4));
        let folder = data.path().join(FOLDER);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(files::name(1)))), (0o700, 0o600));
    }

    #[test]
    fn a_flood_of_refusals_is_some_entries_and_a_number_for_each_address() {
        let data = tempfile::tempdir().unwrap();
        let audit = open(data.path()).unwrap();
        let now = Instant::now();
        for port in 0..1000 {
            let who = Who::Connection { user: Some("mallory".into()), address: format!("192.0.2.7:{port}") };
            let detail = "QM1: no CONNECT".to_owned();
            audit.refused(now, who, &Refused { action: "connect", object: "QM1", reason: 2035, detail, let_in: false });
        }
        audit.close();
        let (mut single, mut counted) = (0, 0);
        chain::read(&data.path().join(FOLDER), |written| {
            match written.kind.as_str() {
                "refusal" => single += 1,
                _ => counted += written.what["addresses"]["192.0.2.7"].as_u64().unwrap(),
            }
            true
        })
        .unwrap();
        let single_max = u64::from(REFUSALS_OF_ONE_IN_A_SECOND);
        assert_eq!((single, counted), (single_max, 1000 - single_max));
    }

    #[test]
    fn a_key_is_told_of_at_its_first_use_and_then_with_what_was_counted() {
        let data = tempfile::tempdir().unwrap();
        let audit = open(data.path()).unwrap();
        let key = audit.key("orders", None, Purpose::Open);
        assert!(Arc::ptr_eq(&key, &audit.key("orders", None, Purpose::Open)));
        key.add(1, 1);
        key.add(1, 0);
        audit.close();
        let mut found = Vec::new();
        chain::read(&data.path().join(FOLDER), |written| {
            found.push((written.who["user"].clone(), written.what));
            true
        })
        .unwrap();
        let messages: u64 = found.iter().map(|(_, what)| what["messages"].as_u64().unwrap()).sum();
        let operations: u64 = found.iter().map(|(_, what)| what["operations"].as_u64().unwrap()).sum();
        assert_eq!((messages, operations), (2, 1));
        assert!(found.iter().all(|(user, what)| user == "orders" && what["purpose"] == "open"), "{found:?}");
    }
}
