//! Commands are audited: what was asked for before it is carried out, what came of it before it is answered.

use crate::admin::Peer;
use crate::audit::{Audit, Entry, Kind, Refused, Who};
use crate::authority::{OsIdentity, Role, role_of_user};
use crate::events::Event;
use crate::manager::Manager;
use crate::mqsc::parse::Statement;
use crate::mqsc::reply::{Outcome, Reply, Row};
use crate::mqsc::run::{AdminError, Oversight};
use crate::reason;
use crate::wall_clock::wall_ms;
use bulla_seal::ring::{Ring, RingError, Rings};
use serde_json::{Map, Value as Json, json};
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};

/// What a command is refused with whose entry can't be written: MQRC_RESOURCE_PROBLEM.
const RESOURCE_PROBLEM: u32 = 2102;

/// The commands of one request.
pub(super) struct Overseer<'a> {
    manager: &'a Manager,
    caller: Caller,
    who: Who,
    /// Whether each of the commands that were asked about last is written down.
    written: Vec<bool>,
    /// What came of commands, until that is synced.
    results: Vec<Entry>,
    /// Whether a user without any role has asked.
    is_stranger: bool,
}

/// Whose commands they are.
enum Caller {
    /// A user of the operating system, with every name and number that it has; none for one who may do everything.
    Os(Peer, Option<OsIdentity>),
    /// A user who has signed in over HTTP, and where from.
    User { name: String, address: String },
    /// A client that has the right to what it asks for: its right was asked for, and not its role.
    Holder,
}

impl<'a> Overseer<'a> {
    /// For a user on the admin socket.
    pub(super) fn new(manager: &'a Manager, peer: Peer) -> Self {
        let who = Who::Administrator { uid: peer.uid, gid: peer.gid, pid: peer.pid };
        let identity = (!is_owner(peer)).then(|| identity_of(peer));
        Self::of(manager, Caller::Os(peer, identity), who)
    }

    /// For a user who has signed in over HTTP.
    pub(super) fn for_user(manager: &'a Manager, name: String, address: String) -> Self {
        let who = Who::Connection { user: Some(name.clone()), address: address.clone() };
        Self::of(manager, Caller::User { name, address }, who)
    }

    /// For a client over HTTP that has the right to what it asks for.
    pub(super) fn for_holder(manager: &'a Manager, user: Option<String>, address: String) -> Self {
        Self::of(manager, Caller::Holder, Who::Connection { user, address })
    }

    /// Whether the commands are those of a user with a right and no role.
    pub(super) fn is_for_holder(&self) -> bool {
        matches!(self.caller, Caller::Holder)
    }

    fn of(manager: &'a Manager, caller: Caller, who: Who) -> Self {
        Self { manager, caller, who, written: Vec::new(), results: Vec::new(), is_stranger: false }
    }

    /// Has the results on disk before the command is answered. Where they can't be, what was done stays done, and the
    /// answers say so.
    pub(super) fn finish(&mut self, replies: &mut [Reply]) {
        let results = std::mem::take(&mut self.results);
        if results.is_empty() {
            return;
        }
        let Err(error) = self.manager.told.audit.record(results) else { return };
        let is_audited = |reply: &&mut Reply| reply.command.split(' ').next().is_some_and(changes);
        for reply in replies.iter_mut().filter(is_audited) {
            let warning = format!("what came of this is not known to be in the audit log: {error}");
            match &mut reply.outcome {
                Outcome::Done { warnings, .. } => warnings.push(warning),
                Outcome::Rows(_) | Outcome::Help(_) => reply.warnings.push(warning),
                Outcome::Failed(_) => {}
            }
        }
    }
}

impl Overseer<'_> {
    /// Whether the caller's role is enough for all of these. It is asked for each time: a role may have been taken away
    /// meanwhile.
    fn allowed(&mut self, statements: &[&Statement]) -> Result<(), AdminError> {
        let role = match &self.caller {
            Caller::Os(_, None) | Caller::Holder => Some(Role::All),
            Caller::Os(_, Some(identity)) => identity.role(&self.manager.lock().definitions.authorities.administrators),
            Caller::User { name, .. } => {
                role_of_user(name, &self.manager.lock().definitions.authorities.administrators)
            }
        };
        self.is_stranger = role.is_none();
        let beyond = statements.iter().find(|statement| role.is_none_or(|role| role < statement.role()));
        let Some(statement) = beyond else { return Ok(()) };
        let (command, needs) = (statement.command.to_string(), statement.role());
        let has = role.map_or("no role", Role::word);
        let (name, user, address, from) = match &self.caller {
            Caller::Os(Peer { uid, gid, pid }, _) => {
                let from = format!("admin socket: uid {uid} gid {gid} pid {pid}");
                (uid.to_string(), format!("uid {uid}"), "admin socket".to_owned(), from)
            }
            Caller::User { name, address } => {
                (name.clone(), name.clone(), address.clone(), format!("{address}: user {name}"))
            }
            // Its role is enough for each command.
            Caller::Holder => return Ok(()),
        };
        let detail = format!("{command} takes the role {needs}, and user {name} has {has}");
        let (now, object) = (Instant::now(), statement.without_secrets());
        let line = format!("{from}: 2035 MQRC_NOT_AUTHORIZED {detail}");
        let refused =
            Refused { action: ADMINISTER, object: &object, reason: reason::NOT_AUTHORIZED.code, detail, let_in: false };
        self.manager.told.audit.refused(now, self.who.clone(), &refused);
        // As of refusals over AMQP: a flood is a few lines and events, and a number.
        if self.manager.told.refusals.lock().unwrap_or_else(PoisonError::into_inner).may_write(now) {
            crate::warning!("{line}");
            let event = Event::NotAuthorised { user: Some(user), address, action: ADMINISTER, object };
            self.manager.lock().raise(&event, wall_ms(SystemTime::now()));
            self.manager.ring_all();
        }
        Err(AdminError::NotAuthorised { command, needs })
    }
}

/// What a refusal calls what was asked for.
const ADMINISTER: &str = "administer";

/// The files that say who is who, and most bytes of one that are read.
const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
const NAMES_BYTES_MAX: u64 = 16 << 20;

/// What a user on an admin socket may do: everything for the owner of this process, and for the machine's superuser,
/// who could become the owner; for others what ADMIN objects say.
pub(super) fn role_of(manager: &Manager, peer: Peer) -> Option<Role> {
    if is_owner(peer) {
        return Some(Role::All);
    }
    let all = manager.lock().definitions.authorities.administrators.clone();
    if all.is_empty() {
        return None;
    }
    identity_of(peer).role(&all)
}

fn is_owner(peer: Peer) -> bool {
    peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
}

/// Reads the files of names.
fn identity_of(peer: Peer) -> OsIdentity {
    OsIdentity::new(peer.uid, peer.gid, &names_in(PASSWD), &names_in(GROUP))
}

/// The text of such a file; nothing where it can't be read or is too long: then numbers count alone.
fn names_in(path: &str) -> String {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(NAMES_BYTES_MAX + 1).read_to_end(&mut text));
    match read {
        Ok(bytes) if bytes as u64 <= NAMES_BYTES_MAX => String::from_utf8_lossy(&text).into_owned(),
        _ => String::new(),
    }
}

impl Oversight for Overseer<'_> {
    fn before(&mut self, statements: &[&Statement]) -> Result<(), AdminError> {
        self.written.clear();
        self.allowed(statements)?;
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
        self.manager.told.audit.record(entries).map_err(refused)
    }

    /// An unknown client is refused once, whatever it asks for.
    fn goes_on(&self) -> bool {
        !self.is_stranger
    }

    fn after(&mut self, replies: &[&Reply]) {
        // Nothing is written of what was refused for want of a role: the refusal is.
        let written = std::mem::take(&mut self.written);
        for reply in replies.iter().zip(written).filter_map(|(reply, written)| written.then_some(reply)) {
            let mut what = json!({ "command": reply.command });
            let fields = match &reply.outcome {
                Outcome::Failed(failure) => json!({ "outcome": "refused", "reason": failure.reason }),
                Outcome::Done { message, .. } => json!({ "outcome": "done", "message": message }),
                // What was done to messages, with which keys, and for whom they are sealed now.
                Outcome::Rows(rows) if reply.command.starts_with("RESEAL ") => {
                    json!({ "outcome": "done", "resealed": rows.iter().map(resealed).next() })
                }
                Outcome::Rows(_) | Outcome::Help(_) => json!({ "outcome": "done" }),
            };
            if let (Some(what), Some(fields)) = (what.as_object_mut(), fields.as_object()) {
                what.extend(fields.clone());
            }
            self.results.push(Entry::new(Kind::Result, self.who.clone(), what));
        }
    }
}

/// The row of RESEAL, its names as the audit log has them.
fn resealed(row: &Row) -> Map<String, Json> {
    let name = |keyword: String| match keyword.as_str() {
        "RESEAL" => "queue".to_owned(),
        "OLDKEYS" => "old_keys".to_owned(),
        "NEWKEYS" => "new_keys".to_owned(),
        keyword => keyword.to_ascii_lowercase(),
    };
    row.to_map().into_iter().map(|(keyword, value)| (name(keyword), value)).collect()
}

/// Whether a command does more than show something.
fn changes_something(statement: &Statement) -> bool {
    changes(statement.command.verb)
}

fn changes(verb: &str) -> bool {
    !matches!(verb, "DISPLAY" | "HELP" | "BEGIN" | "")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin;
    use crate::mqsc::parse::statements;
    use crate::serve::{Listen, Settings, start};

    /// No user's number on any machine that runs tests.
    const OPERATOR: u32 = 4_711_471;

    #[test]
    fn whoever_may_only_operate_checks_the_policy_that_is_set_and_proposes_none() {
        let data = tempfile::tempdir().unwrap();
        let amqp = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let name = Some("QM1".into());
        let settings =
            Settings { name, listen: Listen { amqp, ..Listen::default() }, ..Settings::new(data.path().to_owned()) };
        let running = start(&settings).unwrap();
        let defined = format!("DEFINE ADMIN(OPERATORS) OSUSER('{OPERATOR}') ROLE(OPERATE)");
        assert!(matches!(admin::request(data.path(), &defined).unwrap()[0].outcome, Outcome::Done { .. }));
        let needs = |text: &str| {
            let statement = statements(text).remove(0).unwrap();
            let peer = Peer { uid: OPERATOR, gid: OPERATOR, pid: 1 };
            match Overseer::new(running.manager(), peer).before(&[&statement]) {
                Ok(()) => None,
                Err(AdminError::NotAuthorised { needs, .. }) => Some(needs),
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(needs("CHECK POLICY(ORDERS)"), None);
        assert_eq!(needs("CHECK POLICY(ORDERS) MESSAGES(5)"), None);
        assert_eq!(needs("CHECK QUEUE(ORDERS) USER('billing')"), None);
        assert_eq!(needs("CHECK QMGR"), None);
        for proposed in ["ENCALG(AES256CBC) WEAK(YES) RECIP('CN=b')", "SIGNALG(SHA256)", "MESSAGES(5) KEYWRAP(PKCS1)"] {
            assert_eq!(needs(&format!("CHECK POLICY(ORDERS) {proposed}")), Some(Role::All), "{proposed}");
        }
        // An administrator who may only look learns nothing of users, rings and files, and no key is used for it.
        let looks = format!("ALTER ADMIN(OPERATORS) OSUSER('{OPERATOR}') ROLE(LOOK)");
        assert!(matches!(admin::request(data.path(), &looks).unwrap()[0].outcome, Outcome::Done { .. }));
        for check in
            ["CHECK QUEUE(ORDERS)", "CHECK QUEUE(NO.SUCH) USER('billing')", "CHECK QMGR", "CHECK POLICY(ORDERS)"]
        {
            assert_eq!(needs(check), Some(Role::Operate), "{check}");
        }
        running.stop().unwrap();
    }
}
