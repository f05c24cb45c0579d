//! What the admin language does to a running queue manager.

mod algorithms;
mod hold;
mod reseal;
mod snapshots;
mod unknown_names;
mod unused_groups;

use super::ping;
use super::pools::Threads;
use crate::accounting::Traffic;
use crate::authority::ANONYMOUS;
use crate::catalog::connections::{Connected, ConnectionId, Connections};
use crate::catalog::diagnosis::Diagnosis;
use crate::catalog::findings::Findings;
use crate::catalog::limits::UserStatus;
use crate::catalog::lockouts::InForce;
use crate::catalog::log_ins::LoggedIn;
use crate::catalog::status::{
    AlgorithmUse, ChannelState, ChannelStatus, CostSnapshot, DeviceStatus, EnrolmentStatus, GroupStatus,
    InitiatorStatus, KeyRotationStatus, KeyUseStatus, PolicyStatus, QueueStatus, Snapshot, StopChannel,
    SubscriptionStatus, TaskSnapshot, Tasks, TopicStatus,
};
use crate::catalog::{Change, DeadLetter, Definitions, Object, Sort};
use crate::channel::registry::{Instance, InstanceId};
use crate::channel::supervisor;
use crate::connections::{ANSWER_WITHIN, Survey};
use crate::doctor::{self, Doctor, Way};
use crate::envelope;
use crate::key_rotation::{Rotations, keeper};
use crate::key_use::{Elsewhere, KnownKeys};
use crate::mailbox::Notice;
use crate::manager::{Clients, Manager, State};
use crate::mqsc::run::{AdminError, Administered, Applied, Replay, Replayed, told};
use crate::mqsc::{DoctorQuestion, PolicyQuestion, ResealQuestion, Resealed};
use crate::policy_check::{MESSAGES_TIME_MAX, Scope, Subject};
use crate::reason::{self, Refusal};
use crate::task::costs_now;
use crate::wall_clock::{from_wall_ms, wall_ms};
use bulla_amqp::{Payload, Sections};
use bulla_queue::log::LogError;
use bulla_queue::{Chunks, Found, MessageId, QueueId, ReadError};
use bytes::Bytes;
use hold::Hold;
pub(super) use snapshots::{keep_traffic, limits, traffic};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use unknown_names::unknown_names;
use unused_groups::unused_groups;

/// One request's hold on the queue manager.
pub(super) struct Administrator<'a> {
    manager: &'a Arc<Manager>,
    threads: &'a Threads,
    state: Hold<'a>,
    /// Whether the log has a line for each change.
    is_logged: bool,
}

impl<'a> Administrator<'a> {
    pub(super) fn new(threads: &'a Threads) -> Self {
        let manager = &threads.manager;
        Self { manager, threads, state: Hold(Some(manager.lock())), is_logged: true }
    }

    /// For a user with a right and no role, who could fill the log: its changes are in the audit log alone.
    pub(super) fn unlogged(self) -> Self {
        Self { is_logged: false, ..self }
    }

    /// Lets go of the queues for something that needs none of them: others go on meanwhile.
    fn apart<T>(&mut self, what: impl FnOnce(&Arc<Manager>) -> T) -> T {
        self.state.0 = None;
        let done = what(self.manager);
        self.state.0 = Some(self.manager.lock());
        done
    }

    /// What was done so far is durable on return. Others go on meanwhile.
    fn sync(&mut self) -> Result<(), AdminError> {
        self.state.store.flush(Instant::now(), |_| true).map_err(failed)?;
        let tickets = self.state.store.written();
        self.apart(|manager| manager.wait_until_synced(&tickets)).map_err(failed)
    }

    /// A message's body. Others go on while it is read back: what is known of the message may be untrue afterwards.
    fn body(&mut self, id: MessageId) -> Result<Chunks, ReadError> {
        self.read_back(|state| state.store.body(id))
    }

    /// What `read` comes to once the journal has brought what it needs.
    fn read_back<T>(&mut self, mut read: impl FnMut(&mut State) -> Result<T, ReadError>) -> Result<T, ReadError> {
        loop {
            match read(&mut self.state) {
                Err(ReadError::Away { .. }) => {
                    let brought = self.apart(|manager| {
                        std::thread::sleep(LET_GO);
                        manager.lock().store.poll(Instant::now())
                    });
                    // A dispatcher meets the same error, and stops.
                    brought.map_err(|error| ReadError::Log(LogError::Failed { reason: error.to_string() }))?;
                }
                read => return read,
            }
        }
    }

    fn queue(&self, name: &str) -> Result<QueueId, AdminError> {
        self.state.store.queue(name).ok_or_else(|| AdminError::Unknown { name: name.to_owned() })
    }

    /// An instance's status, with what waits for it.
    fn shown(&self, instance: &Instance) -> ChannelStatus {
        let mut status = instance.shown();
        let queue = self.state.store.queue(&status.transmission_queue);
        let waiting = queue.and_then(|queue| self.state.store.status(queue));
        status.queue_messages = waiting.map_or(0, |queue| u64::from(queue.available));
        status
    }

    /// Refuses while links are open.
    fn unused(&self, name: &str, queue: QueueId) -> Result<(), AdminError> {
        let links = self.state.uses.get(&queue).map_or(0, |usage| usage.putters + usage.getters);
        if links > 0 {
            return Err(AdminError::InUse { name: name.to_owned(), links: links as usize });
        }
        Ok(())
    }

    /// Refuses to remove what is in use, or a queue with messages, and a name that a temporary queue has, before
    /// anything is changed.
    fn removable(&self, change: &Change) -> Result<(), AdminError> {
        match change {
            // Clients that put by that name would go on reaching the temporary queue, and its creator would get their
            // messages.
            Change::Define { name, object }
                if object.sort().is_queue() && self.state.temporary.queues.contains_key(name) =>
            {
                let detail = format!("{name} is an application's temporary queue, until that closes it");
                Err(AdminError::Failed { reason: reason::OBJECT_IN_USE.code.into(), detail })
            }
            Change::Delete { name, sort: Sort::Local, purge } => {
                // One that is defined in the same unit is not there yet.
                let Some(queue) = self.state.store.queue(name) else { return Ok(()) };
                self.unused(name, queue)?;
                let depth = u64::from(self.state.store.status(queue).map_or(0, |status| status.depth));
                if depth > 0 && !purge {
                    return Err(AdminError::NotEmpty { name: name.clone(), depth });
                }
                Ok(())
            }
            Change::ClearLocal { name } => self.unused(name, self.queue(name)?),
            Change::Delete { name, sort: Sort::Alias, .. } => {
                let found = self.state.definitions.resolve(name).ok();
                match found.and_then(|found| self.state.store.queue(found.queue)) {
                    Some(queue) => self.unused(name, queue),
                    None => Ok(()),
                }
            }
            Change::Delete { name, sort, .. } => {
                let goes = self.state.definitions.queue_of(*sort, name);
                let goes = goes.and_then(|name| Some((name, self.state.store.queue(name)?)));
                goes.map_or(Ok(()), |(name, queue)| self.unused(name, queue))
            }
            _ => Ok(()),
        }
    }

    /// The notes that go with a change.
    fn notes_of(&self, change: &Change) -> Result<Vec<String>, AdminError> {
        match change {
            // One that is defined in the same unit has none.
            Change::Delete { name, sort: Sort::Channel, .. } if self.state.definitions.channels.contains_key(name) => {
                let notes = supervisor::notes_of(&self.state, name);
                notes.map_err(|refusal| self.channel_error(name, &refusal))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Devices come and go as the definitions say, once these are durable. Another command may have changed them again
    /// meanwhile: what is defined now counts.
    fn follow_devices(&mut self, changes: &[Change]) -> Vec<String> {
        let Self { manager, state, .. } = self;
        let mut warnings = Vec::new();
        for change in changes {
            if let Change::Delete { name, sort: Sort::Device, .. } = change
                && let Err(error) = manager.workers.devices.scheduler().remove(name)
            {
                crate::note!("device {name}: {error}");
            }
        }
        for change in changes {
            let (Change::Define { name, object: Object::Device(_) }
            | Change::Alter { name, object: Object::Device(_), .. }
            | Change::Delete { name, sort: Sort::Device, .. }) = change
            else {
                continue;
            };
            let Some(device) = state.definitions.devices.get(name) else { continue };
            if matches!(change, Change::Alter { .. }) {
                // What it may do holds at once; all else of a change waits for its next start.
                if let Err(error) = manager.workers.devices.scheduler().allow(name, device.operations) {
                    crate::note!("device {name}: {error}");
                }
                continue;
            }
            if let Err(error) = manager.workers.devices.define(name, device) {
                warnings.push(format!("device {name} is defined, and can't be started before the next start: {error}"));
            }
        }
        warnings
    }

    /// What runs follows the definitions, which the changes have made.
    fn follow(&mut self, changes: &[Change]) -> Vec<String> {
        let mut warnings = Vec::new();
        let any = |of: fn(&Change) -> bool| changes.iter().any(of);
        let State { definitions, .. } = &*self.state;
        if any(|change| change.is_of(&[Sort::Channel]) || matches!(change, Change::AlterManager(_))) {
            self.threads.tls.follow(definitions);
        }
        // By a queue-manager alias a queue may be open without a right on that.
        if any(|change| {
            matches!(
                change,
                Change::SetAuthority(_)
                    | Change::DeleteAuthority(_)
                    | Change::SetChannelRule(..)
                    | Change::DeleteChannelRule(_)
                    | Change::AlterManager(_)
            ) || change.is_of(&[Sort::Remote, Sort::Topic, Sort::Group, Sort::Administrators])
        }) {
            self.manager.follow_blocked_addresses(definitions);
            self.manager.sign_ins.tokens.follow(&definitions.queue_manager);
            self.manager.sign_ins.sessions.follow(&definitions.queue_manager, self.manager.clock.now());
            let required = definitions.queue_manager.sign_in_required;
            self.manager.sign_ins.required.store(required, Ordering::Relaxed);
            self.state.generations.authority += 1;
        }
        if any(|change| change.is_of(&[Sort::Limit])) {
            let State { clients: Clients { users, .. }, definitions, .. } = &mut *self.state;
            let now = Instant::now();
            users.follow(&definitions.user_limits, now);
            self.manager.workers.adapters.follow_limits(&definitions.user_limits, now);
            for (user, share) in users.key_shares() {
                self.manager.workers.adapters.share_keys(user, share, now);
            }
        }
        for change in changes {
            match change {
                Change::Delete { name, sort: Sort::Channel, .. } => self.state.outbound.channels.forget(name),
                Change::AlterManager(definition) => {
                    if let Err(error) = self.threads.resize_pools(definition) {
                        warnings.push(format!("not all adapters and dispatchers could be started: {error}"));
                    }
                }
                _ => {}
            }
        }
        warnings
    }

    /// A channel's refusal as an administrator reads it.
    fn channel_error(&self, name: &str, refusal: &Refusal) -> AdminError {
        let name = name.to_owned();
        match refusal.reason {
            reason::UNKNOWN_CHANNEL_NAME => AdminError::UnknownChannel { name },
            reason::OBJECT_IN_USE => {
                let states = self.state.outbound.channels.of(&name).map(|(_, instance)| instance.status.state);
                let state = states.filter(|state| *state != ChannelState::Inactive).last().unwrap_or_default();
                AdminError::ChannelInUse { name, state }
            }
            _ if refusal.cause == Some("in-doubt") => AdminError::ChannelInDoubt { name },
            reason => AdminError::Failed { reason: reason.code.into(), detail: refusal.detail.clone() },
        }
    }

    /// What is done about a channel is durable before it is answered.
    fn channel_done(&mut self, name: &str, done: Result<(), Refusal>) -> Result<(), AdminError> {
        done.map_err(|refusal| self.channel_error(name, &refusal))?;
        self.sync()?;
        self.manager.ring_all();
        Ok(())
    }

    /// One message is put back, moved or deleted, in one unit of work that is durable on return.
    fn replay_one(&mut self, replay: &Replay, from: QueueId, id: MessageId) -> Result<Replayed, AdminError> {
        let stays = |why: String| Replayed { moved: 0, left: 1, warnings: vec![format!("message {}: {why}", id.0)] };
        let body = match self.state.store.find(id) {
            // What is not moved need not be read: so a damaged one can go.
            Some((queue, _)) if queue == from && replay.discards => Chunks::from(Bytes::new()),
            Some((queue, _)) if queue == from => match self.body(id) {
                Ok(body) => body,
                Err(error) => return Ok(stays(error.to_string())),
            },
            _ => return Ok(stays(format!("it is not on {}", replay.from))),
        };
        let payload = envelope::payload_of(&body);
        let target = match &replay.to {
            _ if replay.discards => None,
            // The administrator has named the queue, and not the user who put the message.
            Some(to) => Some(self.queue(to)?),
            None => {
                let found = self.state.store.find(id).map(|(_, found)| found);
                match self.way_back(&payload, found.as_ref()) {
                    Ok(queue) => Some(queue),
                    Err(why) => return Ok(stays(why)),
                }
            }
        };
        let Some(locked) = self.state.store.lock(id) else { return Ok(stays("a consumer has it".to_owned())) };
        let done = match target {
            None => self.state.store.acknowledge(id).map(drop).map_err(|error| error.to_string()),
            Some(target) => {
                let was = (&locked).into();
                let message = match replay.keeps_label {
                    true => envelope::moved_message(&payload, was),
                    false => envelope::unlabelled_message(&payload, was),
                };
                self.state.store.transfer(id, target, message).map(drop).map_err(|error| error.to_string())
            }
        };
        if let Err(why) = done {
            self.state.store.release(id, false);
            return Ok(stays(why));
        }
        self.sync()?;
        self.manager.ring_all();
        Ok(Replayed { moved: 1, ..Replayed::default() })
    }

    /// The queue that a dead letter goes back to: where its label says that it was or was for, if the user who put it
    /// may put there.
    fn way_back(&self, payload: &Payload, found: Option<&Found>) -> Result<QueueId, String> {
        let Some((name, manager)) = envelope::labelled_destination(payload) else {
            return Err("its label names no queue".to_owned());
        };
        if let Some(manager) = manager.filter(|manager| *manager != self.state.definitions.queue_manager.name) {
            return Err(format!("it was for {name} of queue manager {manager}"));
        }
        let Some(queue) = self.state.store.queue(&name) else { return Err(format!("{name} does not exist any more")) };
        let user = found.and_then(|found| found.user.as_ref()).map(|user| user.as_str());
        self.state.check_return(user, &name).map_err(|refusal| {
            let user = user.unwrap_or(ANONYMOUS);
            format!("{refusal}, and {user} put it; TO names another queue")
        })?;
        Ok(queue)
    }

    /// Tries a policy, and looks at so many messages of its queue for so long.
    fn try_policy(&mut self, subject: Subject, max: usize, time_max: Duration) -> Result<Findings, AdminError> {
        let began = Instant::now();
        let mut look = self.apart(|manager| subject.look(manager, SystemTime::now(), began));
        let (looked_from, mut after) = (Instant::now(), None);
        while looked_from.elapsed() < time_max {
            let seen = usize::try_from(look.looked_at()).unwrap_or(usize::MAX);
            let now = SystemTime::now();
            let left = max.saturating_sub(seen);
            let taken = self.read_back(|state| look.take(state, &mut after, left, now)).map_err(failed)?;
            if taken.is_empty() {
                break;
            }
            self.apart(|_| look.judge(taken, now));
        }
        let queue = look.queue();
        let status = queue.and_then(|queue| self.state.store.status(queue));
        let mut findings = look.done(status.map_or(0, |status| u64::from(status.depth)));
        if let Some(name) = queue.and_then(|queue| self.state.store.name(queue)).map(str::to_owned) {
            let needs = self.state.needs(&|wanted| wanted == name);
            let elsewhere = Elsewhere::of(&self.state.definitions, Some(&findings.policy));
            let known = self.apart(|manager| KnownKeys::read(manager, Instant::now()));
            let stranded = known.stranded(&needs, &elsewhere, wall_ms(SystemTime::now()));
            findings.stranded = stranded.get(&name).copied().unwrap_or_default();
            findings.away = known.away(&needs, &elsewhere);
        }
        Ok(findings)
    }

    /// What the label of a message says, of which the front is read where that is enough.
    fn dead_letter(&mut self, found: &Found) -> Result<DeadLetter, ReadError> {
        let (head, is_whole) = self.read_back(|state| state.store.head(found.id, LABEL_BYTES))?;
        let mut payload = envelope::payload_of(&head);
        if !is_whole && Sections::front(&payload).is_none() {
            payload = envelope::payload_of(&self.body(found.id)?);
        }
        Ok(envelope::dead_letter(&payload, found))
    }

    /// Others have the queues for a moment, in the middle of something long that bears it.
    fn let_others_go_on(&mut self) {
        // A waiting thread needs time to wake up: a lock that is taken again at once is never handed over.
        self.apart(|_| std::thread::sleep(LET_GO));
    }
}

/// Messages that are passed by while the queues' lock is held once: a microsecond each.
const LOOKED_AT_ONCE: usize = 1_000;
/// Dead letters that are looked at or moved while the queues' lock is held once.
const LETTERS_AT_ONCE: usize = 64;
/// How long the lock is let go between them.
const LET_GO: Duration = Duration::from_micros(100);
/// Bytes of a body that is not in memory that are read for its label.
const LABEL_BYTES: usize = 4 << 10;
/// Messages that stayed where they were of which it is said why.
const REASONS_MAX: usize = 100;

/// A dispatcher has not answered in time: the administrator tries again.
fn no_answer() -> AdminError {
    let detail = format!("a dispatcher did not answer within {} s", ANSWER_WITHIN.as_secs());
    AdminError::Failed { reason: reason::RESOURCE_PROBLEM.code.into(), detail }
}

/// Why messages stayed where they were.
#[derive(Default)]
struct Stayed {
    count: u64,
    reasons: Vec<String>,
}

impl Stayed {
    fn push(&mut self, id: MessageId, why: &dyn std::fmt::Display) {
        self.count += 1;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(format!("message {}: {why}", id.0));
        }
    }

    /// How many, and why.
    fn told(mut self) -> (u64, Vec<String>) {
        let more = self.count - self.reasons.len() as u64;
        if more > 0 {
            self.reasons.push(format!("{more} more messages stayed"));
        }
        (self.count, self.reasons)
    }
}

impl Administered for Administrator<'_> {
    fn definitions(&self) -> &Definitions {
        &self.state.definitions
    }

    fn apply(&mut self, change: Change) -> Result<Applied, AdminError> {
        self.apply_all(vec![change]).map_err(|(_, error)| error)
    }

    fn apply_all(&mut self, changes: Vec<Change>) -> Result<Applied, (usize, AdminError)> {
        if self.manager.stopping.load(Ordering::Acquire) {
            let reason = u32::from(reason::Q_MGR_STOPPING.code);
            return Err((0, AdminError::Failed { reason, detail: "the queue manager is stopping".into() }));
        }
        for (at, change) in changes.iter().enumerate() {
            self.removable(change).map_err(|error| (at, error))?;
        }
        let mut notes = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            notes.extend(self.notes_of(change).map_err(|error| (at, error))?);
        }
        let last = changes.len().saturating_sub(1);
        let policies = |state: &State| -> HashSet<String> {
            let objects = changes.iter().filter_map(Change::object);
            let names = objects.filter(|(sort, _)| *sort == Sort::Policy).map(|(_, name)| name);
            names.filter(|name| !state.definitions.policies.contains_key(*name)).map(str::to_owned).collect()
        };
        let unknown_before = policies(&self.state);
        let gone_notes: Vec<(&str, Option<&[u8]>)> = notes.iter().map(|name| (name.as_str(), None)).collect();
        let committed = self.state.commit_definitions(&changes, &gone_notes);
        let tickets = committed.map_err(|error| (last, failed(error)))?;
        // They are waited for here, and not by the next turn of a dispatcher.
        self.state.changes.noted.take_tickets();
        let mut unknown = policies(&self.state);
        unknown.extend(unknown_before);
        if !unknown.is_empty() {
            self.manager.counts.accounts.keep(|name| !unknown.contains(name));
        }
        let mut warnings = self.follow(&changes);
        let submitted = self.state.store.flush(Instant::now(), |_| true);
        submitted.map_err(|error| (last, failed(error)))?;
        let synced = self.apart(|manager| manager.wait_until_synced(&tickets));
        synced.map_err(|error| (last, failed(error)))?;
        warnings.extend(self.follow_devices(&changes));
        for change in &changes {
            if self.is_logged {
                crate::note!("{}", told(change));
            }
        }
        self.manager.ring_all();
        // Rings are read, and unlocked, while others go on.
        warnings.extend(self.apart(|manager| unknown_names(manager, &changes)));
        warnings.extend(unused_groups(&changes));
        Ok(Applied { warnings })
    }

    fn write_definitions(&mut self) -> Result<(), AdminError> {
        self.apart(|manager| manager.definitions_writer.finish()).map_err(failed)
    }

    fn check_policy(&mut self, question: &PolicyQuestion) -> Result<Findings, AdminError> {
        self.manager.sealing.rings.look_again();
        let (policy, in_force) = (question.policy.clone(), question.in_force);
        let subject = Subject::new(self.manager, &self.state, policy, in_force, Scope::default());
        self.try_policy(subject, question.messages_max, MESSAGES_TIME_MAX)
    }

    fn reseal(&mut self, question: &ResealQuestion) -> Result<Resealed, AdminError> {
        self.seal_anew(question)
    }

    fn diagnose(&mut self, question: &DoctorQuestion) -> Result<Vec<Diagnosis>, AdminError> {
        let manager = self.manager.clone();
        // The command before it may have brought a certificate.
        manager.sealing.rings.look_again();
        let mut doctor = Doctor::new(&manager, question);
        let now = SystemTime::now();
        match &question.queue {
            Some(name) => {
                let mut way = Way::look(&mut doctor, &self.state, name);
                let subject = way.subject.take();
                let tried = subject.map(|it| self.try_policy(it, doctor::MESSAGES_MAX, doctor::MESSAGES_TIME_MAX));
                let findings = tried.transpose()?;
                self.apart(|_| doctor::keys(&mut doctor, &way, findings.as_ref(), now));
            }
            None => {
                doctor.manager_as_a_whole(&self.state);
                let enrolments = self.threads.enrolments.known();
                self.apart(|_| doctor.machine(now, &enrolments));
            }
        }
        Ok(doctor.found.sorted())
    }

    fn dead_letters(&mut self, queue: &str, after: Option<u64>, max: usize) -> Result<Vec<DeadLetter>, AdminError> {
        let queue = self.queue(queue)?;
        let now_ms = wall_ms(SystemTime::now());
        // By number, whatever their priorities: the oldest.
        let (mut oldest, mut cursor, mut seen) = (BTreeMap::new(), None, 0_usize);
        while let Some(found) = self.state.store.browse_next(queue, cursor, now_ms) {
            cursor = Some(found.place);
            if after.is_none_or(|after| found.id.0 > after) {
                oldest.insert(found.id.0, found);
            }
            if oldest.len() > max {
                oldest.pop_last();
            }
            seen += 1;
            if seen.is_multiple_of(LOOKED_AT_ONCE) {
                self.let_others_go_on();
            }
        }
        let mut notices = Vec::with_capacity(oldest.len());
        for found in oldest.into_values() {
            match self.dead_letter(&found) {
                Ok(notice) => notices.push(notice),
                // It went meanwhile.
                Err(ReadError::Unknown { .. }) => {}
                Err(why) => notices.push(envelope::damaged_letter(&found, &why)),
            }
            if notices.len() % LETTERS_AT_ONCE == 0 {
                self.let_others_go_on();
            }
        }
        Ok(notices)
    }

    fn replay(&mut self, replay: &Replay) -> Result<Replayed, AdminError> {
        let from = self.queue(&replay.from)?;
        if let Some(number) = replay.number {
            return self.replay_one(replay, from, MessageId(number));
        }
        let now_ms = wall_ms(SystemTime::now());
        // What comes back meanwhile, because it still does not open, say, is not moved again.
        let newest = self.state.store.newest(from.store());
        let (mut done, mut seen, mut cursor, mut stayed) = (0, 0, None, Stayed::default());
        while replay.count.is_none_or(|count| done < count) {
            if seen == LETTERS_AT_ONCE {
                seen = 0;
                self.let_others_go_on();
            }
            seen += 1;
            let Some(found) = self.state.store.browse_next(from, cursor, now_ms) else { break };
            cursor = Some(found.place);
            if found.id > newest {
                continue;
            }
            // One that can't be read stays, and those behind it go.
            let body = match self.body(found.id) {
                Ok(body) => body,
                Err(error) => {
                    stayed.push(found.id, &error);
                    continue;
                }
            };
            let payload = envelope::payload_of(&body);
            if let (Some(wanted), Some(origin)) = (&replay.origin, envelope::labelled_queue(&payload))
                && *wanted != origin
            {
                continue;
            }
            let target = match self.way_back(&payload, Some(&found)) {
                Ok(target) => target,
                Err(why) => {
                    stayed.push(found.id, &why);
                    continue;
                }
            };
            // Others may have taken it while it was read back.
            let Some(locked) = self.state.store.lock(found.id) else { continue };
            let message = envelope::unlabelled_message(&payload, (&locked).into());
            if let Err(error) = self.state.store.transfer(locked.id, target, message) {
                self.state.store.release(locked.id, false);
                stayed.push(found.id, &error);
                continue;
            }
            done += 1;
        }
        self.sync()?;
        self.manager.ring_all();
        let (left, warnings) = stayed.told();
        Ok(Replayed { moved: done, left, warnings })
    }

    fn start_device(&mut self, name: &str) -> Result<(), AdminError> {
        let unknown = || AdminError::Unknown { name: name.to_owned() };
        let device = self.state.definitions.devices.get(name).ok_or_else(unknown)?;
        self.manager.workers.devices.start(name, device).map_err(failed)?;
        crate::note!("device {name} started");
        Ok(())
    }

    fn stop_device(&mut self, name: &str) -> Result<(), AdminError> {
        self.manager.workers.devices.scheduler().stop(name).map_err(failed)?;
        crate::note!("device {name} stopped");
        Ok(())
    }

    fn start_group(&mut self, name: &str) -> Result<(), AdminError> {
        let unknown = || AdminError::Unknown { name: name.to_owned() };
        let definition = self.state.definitions.shared_groups.get(name).ok_or_else(unknown)?;
        let scratch = self.manager.data.join(super::SPILL);
        self.threads.groups.start(self.manager, name, definition, &scratch).map_err(failed)
    }

    fn stop_group(&mut self, name: &str) -> Result<(), AdminError> {
        let threads = self.threads;
        self.apart(|_| threads.groups.stop(name)).map_err(failed)
    }

    fn take_group_over(&mut self, name: &str) -> Result<(), AdminError> {
        self.threads.groups.take_over(name).map_err(failed)
    }

    fn group_status(&self, name: &str) -> Option<GroupStatus> {
        self.state.definitions.shared_groups.get(name)?;
        let Some(status) = self.threads.groups.status(name) else { return Some(GroupStatus::default()) };
        let rings_missing = self.manager.rings_missing().get(name).cloned().unwrap_or_default();
        Some(GroupStatus { rings_missing, ..status })
    }

    fn device_status(&self, name: &str) -> Option<DeviceStatus> {
        self.manager.workers.devices.status(name)
    }

    fn device_meters(&mut self, at_ms: Option<u64>) -> Result<Snapshot, AdminError> {
        self.apart(|manager| {
            let Some(at_ms) = at_ms else { return Ok(manager.workers.devices.snapshot()) };
            manager.workers.devices.snapshot_at(from_wall_ms(at_ms)).map_err(not_kept(at_ms))
        })
    }

    fn task_meters(&mut self, at_ms: Option<u64>) -> Result<TaskSnapshot, AdminError> {
        self.apart(|manager| {
            let Some(at_ms) = at_ms else { return Ok(manager.task_snapshot()) };
            manager.workers.tasks.snapshot_at(from_wall_ms(at_ms)).map_err(not_kept(at_ms))
        })
    }

    fn cost_meters(&mut self, at_ms: Option<u64>) -> Result<CostSnapshot, AdminError> {
        let messages = self.state.store.totals();
        self.apart(|manager| {
            let Some(at_ms) = at_ms else { return Ok(costs_now(messages)) };
            manager.workers.tasks.costs_at(from_wall_ms(at_ms)).map_err(not_kept(at_ms))
        })
    }

    fn start_channel(&mut self, name: &str) -> Result<(), AdminError> {
        let done = supervisor::start(self.manager, &mut self.state, name);
        self.channel_done(name, done)?;
        crate::note!("channel {name} started");
        Ok(())
    }

    fn stop_channel(&mut self, name: &str, how: StopChannel) -> Result<(), AdminError> {
        if !self.state.definitions.channels.contains_key(name) {
            return Err(AdminError::UnknownChannel { name: name.to_owned() });
        }
        let rests = |instance: &Instance| !instance.is_active() && instance.status.state == ChannelState::Inactive;
        if how.inactive && self.state.outbound.channels.of(name).all(|(_, instance)| rests(instance)) {
            return Err(AdminError::ChannelNotActive { name: name.to_owned() });
        }
        let done = supervisor::stop(self.manager, &mut self.state, name, how.force, how.inactive);
        self.channel_done(name, done)?;
        crate::note!("channel {name} is to stop");
        Ok(())
    }

    fn ping_channel(&mut self, name: &str) -> Result<String, AdminError> {
        let unknown = || AdminError::UnknownChannel { name: name.to_owned() };
        let definition = self.state.definitions.channels.get(name).cloned().ok_or_else(unknown)?;
        let active = self.state.outbound.channels.of(name).find(|(_, instance)| instance.is_active());
        if let Some((_, instance)) = active {
            return Err(AdminError::ChannelInUse { name: name.to_owned(), state: instance.status.state });
        }
        // It waits for the network: no other thread shall.
        let tls = &self.threads.tls;
        let seen = self.apart(|manager| ping::ping(manager, tls, name, &definition));
        seen.map_err(|refusal| self.channel_error(name, &refusal))
    }

    fn reset_channel(&mut self, name: &str, sequence: u64) -> Result<String, AdminError> {
        let done = supervisor::reset(&mut self.state, name, sequence);
        let said = done.as_ref().cloned().unwrap_or_default();
        self.channel_done(name, done.map(drop))?;
        crate::note!("{said}");
        Ok(said)
    }

    fn resolve_channel(&mut self, name: &str, commit: bool) -> Result<(), AdminError> {
        let resolved = supervisor::resolve(&mut self.state, name, commit);
        let count = *resolved.as_ref().unwrap_or(&0);
        self.channel_done(name, resolved.map(drop))?;
        let what = if commit { "count as arrived" } else { "are sent again" };
        crate::note!("channel {name}: {count} messages that were in doubt {what}");
        Ok(())
    }

    fn channel_status(&self, name: &str) -> Vec<ChannelStatus> {
        let mut found: Vec<(&InstanceId, &Instance)> = self.state.outbound.channels.of(name).collect();
        found.sort_by(|(a, _), (b, _)| a.partner.cmp(&b.partner));
        // What waits for a partner, or called it, is shown only while there is none.
        let has_partner = found.iter().any(|(id, instance)| !id.partner.is_empty() && instance.is_active());
        found.retain(|(id, _)| !id.partner.is_empty() || !has_partner);
        found.into_iter().map(|(_, instance)| self.shown(instance)).collect()
    }

    fn initiator_status(&self) -> InitiatorStatus {
        let state = &*self.state;
        let states = || state.outbound.channels.all().map(|(_, instance)| instance.status.state);
        let count = |which: &dyn Fn(ChannelState) -> bool| {
            u32::try_from(states().filter(|state| which(*state)).count()).unwrap_or(u32::MAX)
        };
        InitiatorStatus {
            adapters: self.threads.adapter_tasks(),
            dispatchers: self.threads.dispatcher_tasks(),
            // Each dispatcher does the TLS of its own connections.
            tls_tasks: Tasks::default(),
            current: count(&|state| state != ChannelState::Inactive),
            active: count(&ChannelState::is_active),
            paused: count(&|state| state == ChannelState::Paused),
            starting: count(&|state| state == ChannelState::Starting),
            retrying: count(&|state| state == ChannelState::Retrying),
            stopped: count(&|state| state == ChannelState::Stopped),
            channels_max: state.definitions.queue_manager.channels_max,
            active_channels_max: state.definitions.queue_manager.active_channels_max,
            listeners: self.manager.listening.addresses.get().cloned().unwrap_or_default(),
        }
    }

    fn subscription_status(&self) -> Vec<SubscriptionStatus> {
        self.state.subscription_status()
    }

    fn topic_status(&self, pattern: &str) -> Vec<TopicStatus> {
        self.state.topic_status(pattern)
    }

    fn users(&self) -> Vec<UserStatus> {
        users_of(self.manager, &self.state)
    }

    fn connections(&mut self) -> Result<Connections, AdminError> {
        let survey = Arc::new(Survey::default());
        for mailbox in self.manager.workers.mailboxes.iter() {
            mailbox.post(Notice::Survey(survey.ask()));
        }
        let answered = self.apart(|_| survey.wait(ANSWER_WITHIN));
        let mut connections = answered.ok_or_else(no_answer)?;
        connections.sort_unstable_by_key(|connection| connection.id);
        Ok(Connections { taken_ms: wall_ms(SystemTime::now()), connections })
    }

    fn stop_connection(&mut self, id: ConnectionId) -> Result<Option<Connected>, AdminError> {
        let Some(mailbox) = self.manager.workers.mailboxes.get(id.dispatcher()) else { return Ok(None) };
        let survey = Arc::new(Survey::default());
        mailbox.post(Notice::Stop { generation: id.generation(), question: survey.ask() });
        let answered = self.apart(|_| survey.wait(ANSWER_WITHIN));
        Ok(answered.ok_or_else(no_answer)?.pop())
    }

    fn key_use(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<KeyUseStatus>, AdminError> {
        let needs = self.state.needs(is_wanted);
        // Rings are read while others go on.
        Ok(self.apart(|manager| KnownKeys::read(manager, Instant::now()).rows(&needs, wall_ms(SystemTime::now()))))
    }

    fn algorithm_use(
        &mut self,
        is_wanted: &dyn Fn(&str) -> bool,
        messages_max: u64,
    ) -> Result<Vec<AlgorithmUse>, AdminError> {
        self.look_at_algorithms(is_wanted, messages_max)
    }

    fn key_rotations(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<KeyRotationStatus>, AdminError> {
        let wanted = self.apart(|manager| Rotations::at(&manager.data).of_users(is_wanted)).map_err(failed)?;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let needs = self.state.needs(&|_| true);
        Ok(self.apart(|manager| keeper::shown(manager, &needs, wanted, Instant::now())))
    }

    fn enrolments(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<EnrolmentStatus>, AdminError> {
        let rows = self.threads.enrolments.rows().map_err(failed)?;
        Ok(rows.into_iter().filter(|row| is_wanted(&row.name)).collect())
    }

    fn lockouts(&self) -> Vec<InForce> {
        self.manager.lockouts().in_force(Instant::now())
    }

    fn end_lockouts(&mut self, ends: &dyn Fn(&InForce) -> bool) -> usize {
        self.manager.lockouts().end(Instant::now(), ends)
    }

    fn log_ins(&self) -> Vec<LoggedIn> {
        let clock = &self.manager.clock;
        self.manager.sign_ins.sessions.known(clock.now(), clock.wall())
    }

    fn end_log_ins(&mut self, ends: &dyn Fn(&str, u64) -> bool) -> usize {
        self.manager.sign_ins.sessions.stop(ends, self.manager.clock.now())
    }

    fn weakest_recipient(&self, policy: &str) -> String {
        self.manager.stranded().weakest.get(policy).cloned().unwrap_or_default()
    }

    fn policy_status(&self, name: &str) -> PolicyStatus {
        PolicyStatus {
            since_ms: self.manager.counts.since_ms,
            taken_ms: wall_ms(SystemTime::now()),
            meters: self.manager.counts.accounts.of(name),
        }
    }

    fn queues_at(&mut self, at_ms: u64) -> Result<Vec<(String, QueueStatus)>, AdminError> {
        self.apart(|manager| manager.traffic_history().queues.at(from_wall_ms(at_ms)).map_err(not_kept(at_ms)))
    }

    fn policies_at(&mut self, at_ms: u64) -> Result<Vec<(String, PolicyStatus)>, AdminError> {
        self.apart(|manager| manager.traffic_history().policies.at(from_wall_ms(at_ms)).map_err(not_kept(at_ms)))
    }

    fn queue_status(&self, name: &str) -> Option<QueueStatus> {
        let queue = self.state.store.queue(name)?;
        let status = self.state.store.status(queue)?;
        let usage = self.state.uses.get(&queue);
        let traffic = usage.map(|usage| &usage.traffic);
        let count = |of: fn(&Traffic) -> u64| traffic.map_or(0, of);
        Some(QueueStatus {
            depth: u64::from(status.depth),
            open_input: u64::from(usage.map_or(0, |usage| usage.getters)),
            open_output: u64::from(usage.map_or(0, |usage| usage.putters)),
            uncommitted: u64::from(status.locked)
                + u64::from(status.unsynced)
                + u64::from(usage.map_or(0, |usage| usage.staged)),
            oldest_seconds: status.oldest_put_ms.map(|put| wall_ms(SystemTime::now()).saturating_sub(put) / 1000),
            last_put_ms: status.last_put_ms,
            last_get_ms: status.last_get_ms,
            bytes: status.bytes,
            puts: status.puts,
            gets: status.gets,
            expired: status.expired,
            not_mine: usage.map_or(0, |usage| usage.not_mine),
            stranded: self.manager.stranded().by_queue.get(name).copied().unwrap_or_default(),
            since_ms: self.manager.counts.since_ms,
            taken_ms: wall_ms(SystemTime::now()),
            output_opens: count(|traffic| traffic.opens_to_put),
            input_opens: count(|traffic| traffic.opens_to_get),
            single_puts: count(|traffic| traffic.single_puts),
            persistent_puts: status.persistent_puts,
            persistent_gets: status.persistent_gets,
            browses: count(|traffic| traffic.browses),
            bytes_put: status.bytes_put,
            bytes_got: status.bytes_got,
            shortest_bytes: status.shortest_bytes.map(u64::from),
            longest_bytes: status.shortest_bytes.map(|_| u64::from(status.longest_bytes)),
            time_us: traffic.map(|traffic| traffic.time.shown()).unwrap_or_default(),
            longest_time_us: count(|traffic| traffic.longest_ms.saturating_mul(1000)),
            rejects: traffic.map(Traffic::rejects).unwrap_or_default(),
            unacknowledged_bytes: usage.map_or(0, |usage| usage.limited.unacknowledged_bytes),
            held_back: usage.map_or(0, |usage| usage.limited.held_back),
            limit: self.state.queue_limit(name),
            limit_refused: usage.map_or(0, |usage| usage.limited.refused),
        })
    }
}

/// What users that are connected have of what limits them.
fn users_of(manager: &Manager, state: &State) -> Vec<UserStatus> {
    let mut users = state.clients.users.status();
    for user in &mut users {
        (user.key_ns, user.key_used_up) = manager.workers.adapters.key_time_of(&user.name).unwrap_or_default();
    }
    users
}

/// Nothing of that moment is kept; what is begins with `oldest`.
fn not_kept(at_ms: u64) -> impl FnOnce(Option<SystemTime>) -> AdminError {
    move |oldest| AdminError::NotKept { at_ms, oldest_ms: oldest.map(wall_ms) }
}

fn failed(error: impl std::fmt::Display) -> AdminError {
    AdminError::Failed { reason: u32::from(reason::RESOURCE_PROBLEM.code), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{DeviceDefinition, LocalQueue};
    use crate::serve::{Listen, Settings, start};
    use bulla_queue::Message;

    #[test]
    fn a_unit_that_fails_clears_no_queue_and_takes_no_device_away() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            name: Some("QM1".into()),
            listen: Listen::default(),
            dispatchers: 1,
            adapters: 1,
            ..Settings::new(directory.path().to_owned())
        };
        let running = start(&settings).unwrap();
        let manager = running.manager().clone();
        let apply = |changes: Vec<Change>| Administrator::new(running.threads()).apply_all(changes).map(drop);
        let local = |name: &str| Change::Define { name: name.into(), object: Object::Local(LocalQueue::default()) };
        let device = DeviceDefinition { autostart: false, ..DeviceDefinition::accelerator() };
        apply(vec![local("Q"), Change::define("LANES", device)]).unwrap();
        {
            let state = &mut *manager.lock();
            let queue = state.store.queue("Q").unwrap();
            state.store.put(queue, Message::new(true, Bytes::from_static(b"a message").into())).unwrap();
            state.store.sync(Instant::now()).unwrap();
        }
        let found = || {
            let state = manager.lock();
            let depth = state.store.status(state.store.queue("Q").unwrap()).unwrap().depth;
            (depth, manager.workers.devices.scheduler().report_of("LANES").is_some())
        };
        let with = |queue: &str| {
            let gone = Change::delete("LANES", Sort::Device);
            vec![Change::ClearLocal { name: "Q".into() }, gone, local(queue)]
        };
        assert_eq!(found(), (1, true));
        apply(with(&"N".repeat(1_000))).unwrap_err();
        assert_eq!(found(), (1, true), "nothing is changed");
        apply(with("OTHER")).unwrap();
        assert_eq!(found(), (0, false));
        running.stop().unwrap();
    }
}
