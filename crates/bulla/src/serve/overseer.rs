//! Whoever gives commands is written down: what was asked for before it is carried out, what came of it before it is answered.

use crate::audit::{Audit, Entry, Kind, Who};
use crate::mqsc::admin::Peer;
use crate::mqsc::parse::Statement;
use crate::mqsc::reply::{Outcome, Reply};
use crate::mqsc::run::{AdminError, Oversight};
use bulla_seal::ring::{Ring, RingError, Rings};
use serde_json::json;
use std::sync::Arc;

/// What a command is refused with whose entry can't be written: MQRC_RESOURCE_PROBLEM.
const RESOURCE_PROBLEM: u32 = 2102;

/// The commands of one request.
pub(super) struct Overseer<'a> {
    audit: &'a Audit,
    who: Who,
    /// Whether each of the commands that were asked about last is written down.
    written: Vec<bool>,
    /// What came of commands, until that is synced.
    results: Vec<Entry>,
}

impl<'a> Overseer<'a> {
    /// For somebody on the admin socket.
    pub(super) fn new(audit: &'a Audit, peer: Peer) -> Self {
        let who = Who::Administrator { uid: peer.uid, gid: peer.gid, pid: peer.pid };
        Self { audit, who, written: Vec::new(), results: Vec::new() }
    }

    /// Has the results on disk before anybody is answered. Where they can't be, what was done stays done, and the answers say so.
    pub(super) fn finish(&mut self, replies: &mut [Reply]) {
        let results = std::mem::take(&mut self.results);
        if results.is_empty() {
            return;
        }
        let Err(error) = self.audit.record(results) else { return };
        for reply in replies {
            if let Outcome::Done { warnings, .. } = &mut reply.outcome {
                warnings.push(format!("what came of this is not known to be in the audit log: {error}"));
            }
        }
    }
}

impl Oversight for Overseer<'_> {
    fn before(&mut self, statements: &[&Statement]) -> Result<(), AdminError> {
        self.written = statements.iter().map(|statement| changes_something(statement)).collect();
        let together = statements.len() > 1;
        let entry = |statement: &&&Statement| {
            let kind = if statement.command.noun == "POLICY" { Kind::Policy } else { Kind::Command };
            let mut what = json!({ "text": statement.without_secrets() });
            if let (true, Some(what)) = (together, what.as_object_mut()) {
                what.insert("unit".into(), true.into());
            }
            Entry::new(kind, self.who.clone(), what)
        };
        let entries: Vec<Entry> =
            statements.iter().filter(|statement| changes_something(statement)).map(|one| entry(&one)).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let refused = |error: crate::audit::AuditError| AdminError::Failed {
            reason: RESOURCE_PROBLEM,
            detail: error.to_string(),
        };
        self.audit.record(entries).map_err(refused)
    }

    fn after(&mut self, replies: &[&Reply]) {
        let written = std::mem::take(&mut self.written);
        for reply in replies.iter().zip(written).filter_map(|(reply, written)| written.then_some(reply)) {
            let mut what = json!({ "command": reply.command });
            let fields = match &reply.outcome {
                Outcome::Failed(failure) => json!({ "outcome": "refused", "reason": failure.reason }),
                Outcome::Done { message, .. } => json!({ "outcome": "done", "message": message }),
                Outcome::Rows(_) | Outcome::Help(_) => json!({ "outcome": "done" }),
            };
            if let (Some(what), Some(fields)) = (what.as_object_mut(), fields.as_object()) {
                what.extend(fields.clone());
            }
            self.results.push(Entry::new(Kind::Result, self.who.clone(), what));
        }
    }
}

/// Whether a command does more than show something.
fn changes_something(statement: &Statement) -> bool {
    !matches!(statement.command.verb, "DISPLAY" | "HELP" | "BEGIN")
}

/// Has the audit log told of each ring that is read, read anew, or can't be read any more.
pub(super) fn tell_of_rings(rings: Rings, audit: Arc<Audit>) -> Rings {
    rings.telling(Box::new(move |user, found: Result<&Ring, &RingError>| {
        let what = match found {
            Ok(ring) => {
                let keys: Vec<String> =
                    ring.own().iter().map(|own| crate::audit::fingerprint(&own.certificate)).collect();
                json!({ "outcome": "read", "keys": keys, "people": ring.people().len() })
            }
            Err(RingError::Missing { .. }) => return,
            Err(error) => json!({ "outcome": "refused", "detail": error.to_string() }),
        };
        audit.note(Entry::new(Kind::Ring, Who::User(user.to_owned()), what));
    }))
}
