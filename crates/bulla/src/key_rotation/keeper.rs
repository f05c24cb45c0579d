//! The queue manager's part in changes of keys: the audit log hears of each step, and the old key goes when nothing
//! needs it any more.

use super::record::{Counted, Done, Rotation, Rotations, Step};
use super::steps::Keys;
use super::{Needed, RotationError};
use crate::audit::{Entry, Kind, Who};
use crate::calendar;
use crate::catalog::status::{KeyOfRotation, KeyRotationStatus};
use crate::key_use::QueueNeeds;
use crate::manager::Manager;
use bulla_seal::certificate::Role;
use bulla_seal::policy::Revocation;
use bulla_seal::ring::PathQuestion;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

/// How often the records are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For how long nothing may need the old key before it goes: what was being sealed with the rings of a second ago is on
/// its queue by then.
pub const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub struct Keeper {
    /// Since when nothing needs an old key, by its fingerprint.
    unneeded: HashMap<String, Instant>,
    /// What was said in the log and still holds: once is enough.
    said: HashSet<String>,
    /// Steps that the audit log was told of, by the old key's fingerprint, while their record could not be written:
    /// told again with each look they would take what room a full disk has left.
    told: HashMap<String, Vec<Done>>,
}

impl Keeper {
    /// Looks at every record, and does what is due. Costs a look for a folder where no key was ever changed.
    pub fn look(&mut self, manager: &Manager, now: Instant, wall: SystemTime) {
        let mut said = HashSet::new();
        let rotations = Rotations::at(&manager.data);
        let done = if rotations.are_there() { self.advance_all(manager, now, wall, &mut said) } else { Ok(()) };
        if let Err(error) = done {
            said.insert(format!("changes of keys: {error}"));
        }
        said.difference(&self.said).for_each(|line| crate::warning!("{line}"));
        self.said = said;
    }

    fn advance_all(
        &mut self,
        manager: &Manager,
        now: Instant,
        wall: SystemTime,
        said: &mut HashSet<String>,
    ) -> Result<(), RotationError> {
        let keys = Keys::of_queue_manager(&manager.data, None, wall);
        if keys.rotations.all()?.is_empty() {
            self.unneeded.clear();
            self.told.clear();
            return Ok(());
        }
        let _turn = match keys.rotations.turn(Duration::ZERO) {
            // A command is at it; the next look comes soon.
            Err(RotationError::Busy) => return Ok(()),
            turn => turn?,
        };
        let mut needs = Needs::default();
        let mut there = HashSet::new();
        for rotation in keys.rotations.all()? {
            let mut rotation = match rotation {
                Ok(rotation) => rotation,
                Err(error) => {
                    said.insert(format!("changes of keys: {error}"));
                    continue;
                }
            };
            there.insert(rotation.old.fingerprint.clone());
            if let Err(error) = self.advance(manager, &keys, &mut rotation, &mut needs, (now, wall)) {
                said.insert(format!("the change of the key {} of {}: {error}", rotation.old.serial, rotation.user));
            }
        }
        self.unneeded.retain(|fingerprint, _| there.contains(fingerprint));
        self.told.retain(|fingerprint, _| there.contains(fingerprint));
        Ok(())
    }

    /// One change: what is due of it now.
    fn advance(
        &mut self,
        manager: &Manager,
        keys: &Keys<'_>,
        rotation: &mut Rotation,
        needs: &mut Needs,
        (now, wall): (Instant, SystemTime),
    ) -> Result<(), RotationError> {
        if matches!(rotation.step(), Step::Shared | Step::Withdrawn) && rotation.began.is_none() {
            rotation.began = Some(Needed::of(&rotation.old, needs.now(manager)).counted());
            keys.rotations.write(rotation)?;
        }
        if rotation.step() == Step::Shared && rotation.overlap_until_ms().is_none_or(|until| until <= millis(wall)) {
            keys.withdraw(rotation, &mut || Ok(()))?;
        }
        if rotation.step() == Step::Withdrawn {
            let needed = Needed::of(&rotation.old, needs.now(manager));
            if needed.total() > 0 {
                self.unneeded.remove(&rotation.old.fingerprint);
            } else {
                let since = *self.unneeded.entry(rotation.old.fingerprint.clone()).or_insert(now);
                if now.saturating_duration_since(since) >= SETTLED_AFTER {
                    check_new_key(manager, rotation, (now, wall))?;
                    keys.end(rotation, Some(&needed), &mut || Ok(()))?;
                }
            }
        }
        if matches!(rotation.step(), Step::Retired | Step::Stranded) {
            keys.take_out(rotation)?;
        }
        self.tell(manager, keys, rotation)
    }

    /// Has the audit log told of the steps that it has not. A record that is over goes then. A crash between the two
    /// tells of a step twice, and never of none.
    fn tell(&mut self, manager: &Manager, keys: &Keys<'_>, rotation: &mut Rotation) -> Result<(), RotationError> {
        let fingerprint = rotation.old.fingerprint.clone();
        // Times and processes tell the steps of this change from those of one before.
        let told = self.told.get(&fingerprint).filter(|told| rotation.steps.starts_with(told));
        let told = told.map_or(0, Vec::len);
        let new: Vec<Done> = rotation.steps.iter().skip(rotation.audited.max(told)).cloned().collect();
        if !new.is_empty() {
            let entries = new.iter().map(|done| entry(rotation, done)).collect();
            manager.told.audit.record(entries).map_err(RotationError::Audit)?;
            for done in &new {
                log(rotation, done);
            }
        }
        let is_written = rotation.audited == rotation.steps.len();
        rotation.audited = rotation.steps.len();
        let written = match rotation.step().is_end() {
            true => keys.rotations.remove(rotation),
            false if is_written => Ok(()),
            false => keys.rotations.write(rotation),
        };
        match written {
            Ok(()) => self.told.remove(&fingerprint),
            Err(_) => self.told.insert(fingerprint, rotation.steps.clone()),
        };
        written
    }
}

/// What messages need, counted once in a look, and only where it is asked for.
#[derive(Default)]
struct Needs(Option<Vec<QueueNeeds>>);

impl Needs {
    fn now(&mut self, manager: &Manager) -> &[QueueNeeds] {
        self.0.get_or_insert_with(|| manager.lock().needs(&|_| true))
    }
}

/// The old key goes only where the new one can be sealed for: else nothing could be.
fn check_new_key(
    manager: &Manager,
    rotation: &Rotation,
    (now, wall): (Instant, SystemTime),
) -> Result<(), RotationError> {
    let ring = manager.ring(&rotation.user, now)?;
    let is_new = |own: &&std::sync::Arc<bulla_seal::ring::Own>| {
        rotation.new.as_ref().is_some_and(|new| new.is(&own.certificate))
    };
    // One that was replaced meanwhile is out of the ring itself, and its change went well.
    let Some(own) = ring.own().iter().find(is_new) else { return Ok(()) };
    for role in own.certificate.roles().into_iter().filter(|role| *role != Role::Tls) {
        let usage = Some(role.usage(own.certificate.key_kind()));
        let question = PathQuestion { usage, revocation: Revocation::None, at: wall, now: wall };
        ring.prove(&own.certificate, &own.chain, &question)
            .map_err(|error| RotationError::NotBelieved { user: rotation.user.clone(), error })?;
    }
    Ok(())
}

fn log(rotation: &Rotation, done: &Done) {
    let Rotation { user, old, new, .. } = rotation;
    let of = new.as_ref().map(|new| format!(" by {}", new.serial)).unwrap_or_default();
    let what = format!("the key {} of {user} is replaced{of}: {}", old.serial, done.step);
    match (done.step, &rotation.ended) {
        (Step::Stranded, Some(ended)) => crate::warning!("{what}; {} messages can't be opened with it", ended.messages),
        (Step::Stranded, None) => crate::warning!("{what}; it was not known how many messages need it"),
        _ => crate::note!("{what}"),
    }
}

fn entry(rotation: &Rotation, done: &Done) -> Entry {
    let who = match done.by {
        Some(by) => Who::Administrator { uid: by.uid, gid: by.gid, pid: by.pid },
        None => Who::QueueManager,
    };
    let mut what = json!({
        "user": rotation.user,
        "step": done.step.word(),
        "at": calendar::rfc3339(done.at_ms / 1000),
        "subject": rotation.old.subject,
        "key": rotation.old.fingerprint,
        "new_key": rotation.new.as_ref().map(|new| &new.fingerprint),
    });
    if matches!(done.step, Step::Retired | Step::Stranded)
        && let Some(what) = what.as_object_mut()
    {
        let count = |counted: &Option<Counted>| json!(counted.map(|counted| counted.messages));
        what.insert("began_messages".into(), count(&rotation.began));
        what.insert("ended_messages".into(), count(&rotation.ended));
    }
    Entry::new(Kind::KeyRotation, who, what)
}

fn millis(time: SystemTime) -> u64 {
    crate::wall_clock::wall_ms(time)
}

/// Whether the queue manager gives out no ring any more that lacks the new key. Reads the ring.
pub fn is_read(manager: &Manager, rotation: &Rotation, now: Instant) -> bool {
    rotation.new.as_ref().is_some_and(|new| match manager.ring(&rotation.user, now) {
        Ok(ring) => ring.own().iter().any(|own| new.is(&own.certificate)),
        // No older ring is given out, and the next one is read from the files.
        Err(_) => true,
    })
}

/// The changes of keys whose user is wanted, for DISPLAY KEYROTATE. Reads their rings, so that what is said of a new
/// key holds from then on.
///
/// # Errors
/// A record can't be read.
pub fn shown(
    manager: &Manager,
    needs: &[QueueNeeds],
    rotations: Vec<Rotation>,
    now: Instant,
) -> Vec<KeyRotationStatus> {
    let of = |rotation: Rotation| {
        let needed = Needed::of(&rotation.old, needs);
        let is_read = is_read(manager, &rotation, now);
        let key =
            |facts: super::KeyFacts| KeyOfRotation { issuer: facts.issuer, serial: facts.serial, key_id: facts.key_id };
        KeyRotationStatus {
            step: rotation.step().word(),
            since_ms: rotation.since_ms(),
            overlap_until_ms: rotation.overlap_until_ms(),
            subject: rotation.old.subject.clone(),
            messages: needed.messages,
            staged: needed.staged,
            unknown: needed.unknown,
            bytes: needed.bytes,
            queues: needed.queues,
            began_messages: rotation.began.map(|began| began.messages),
            is_read,
            user: rotation.user,
            old: key(rotation.old),
            new: rotation.new.map(key),
        }
    };
    rotations.into_iter().map(of).collect()
}
