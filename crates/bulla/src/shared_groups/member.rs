//! One group, at one member: it looks for the log, reads what the owner writes, takes over when that one is gone, and
//! gives up what another one has taken over.
//!
//! What is written is safe by the log's fence alone: a member that takes itself for the owner and is not adds
//! nothing. What is sent is safe by [`Log::is_surely_owned`](bulla_queue::Log::is_surely_owned). How long a silence is
//! waited for only decides how soon there is an owner again.

use super::{Numbers, hold};
use crate::catalog::SharedGroup;
use crate::catalog::status::{GroupState, GroupStatus};
use crate::catalog::system_queues::{dead_letter_queue_of, error_queue_of};
use crate::catalog::{Change, LocalQueue, Sort};
use crate::further_stores::Joining;
use crate::group_rings;
use crate::groups_elsewhere::GroupElsewhere;
use crate::manager::Manager;
use crate::stores::NamedStore;
use crate::wall_clock::wall_ms;
use bulla_queue::log::{Claim, Epoch, LogError, Position, Survives};
use bulla_queue::{Limits, Log, OpenError, Spill, Standby, Store, StoreNumber};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// How often a member looks. A claim asks whether the owner is there, so this is how often an owner is asked, too.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long an owner that has gone by itself still answers: members have looked by then.
pub(crate) const ANSWERS_ON: Duration = Duration::from_millis(300);
/// The first pause after something failed; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest of these pauses.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The pause after a claim that came to nothing here: other members may have better luck.
const PAUSE_AFTER_CLAIM: Duration = Duration::from_secs(5);
/// Who is deposed sooner than this after a claim claims more slowly the next time, so that two members that don't see
/// each other do not go on taking the group from one another.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// How often a standby counts messages: it looks at each.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// How often clients are told anew which queues the group has: each time all names are copied.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The part of a queue manager's memory for messages that each group has besides.
const MEMORY_DIVISOR: usize = 4;
/// The part of a small log that is its reserve. What must be free for it to hold is eight times that
/// (`bulla_shared::SMALL_BATCH_FACTOR`).
const RESERVE_DIVISOR: u64 = 64;
/// The part of a small log that lies between two checkpoints.
const CHECKPOINT_DIVISOR: u64 = 64;
/// The part of a small log below which nothing is carried forward.
const CARRIED_DIVISOR: u64 = 4;
/// Longest host in an address that another member gives: that of a name (RFC 1035, section 2.3.4).
const HOST_CHARS_MAX: usize = 255;
/// The note with the address of the last owner, in the group's log.
const ADDRESS_NOTE: &str = "group.address";
/// The note of an owner that has gone by itself: its epoch.
const LEFT_NOTE: &str = "group.left";

/// What a member needs of the world: the rest of it is the queue manager's.
pub(crate) struct Outside {
    /// Connects to the group's log. Waits for the network.
    pub(crate) log: Box<dyn FnMut() -> Result<Box<dyn Log>, LogError> + Send>,
    /// Opens an empty scratch space for messages that leave memory, or says why there is none.
    pub(crate) scratch: Box<dyn FnMut() -> Result<Box<dyn Spill>, String> + Send>,
}

/// What a member is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    /// Own the group, also where another member owns it.
    TakeOver,
    /// Take no part any more.
    End,
}

/// How far it is.
enum Part {
    /// It has no log.
    Away {
        /// When it is looked for again.
        at: Instant,
    },
    /// It reads.
    Standing(Box<Standing>),
    /// The store is open.
    Owning { number: StoreNumber, since: Instant },
}

struct Standing {
    number: StoreNumber,
    standby: Standby,
    /// When messages were counted last.
    counted: Option<Instant>,
    /// How far the log was read when clients were told of it last, and when that was.
    told: Option<(Option<Position>, Instant)>,
}

/// A member of a group. Time and all that is outside come from its queue manager's clock and from [`Outside`], so that
/// it runs in a simulation as it does on its thread.
pub(crate) struct Member {
    manager: Arc<Manager>,
    group: String,
    definition: SharedGroup,
    outside: Outside,
    numbers: Arc<Numbers>,
    status: Arc<Mutex<GroupStatus>>,
    part: Part,
    pause: Duration,
    /// No claim before.
    patience: Duration,
    claims_at: Instant,
    /// The operator has said that it takes over.
    is_forced: bool,
}

/// Why a step came to nothing.
struct Failed {
    why: String,
    pause: Option<Duration>,
}

impl From<OpenError> for Failed {
    fn from(error: OpenError) -> Self {
        Self { why: error.to_string(), pause: None }
    }
}

impl Member {
    pub(crate) fn new(
        manager: Arc<Manager>,
        group: &str,
        definition: &SharedGroup,
        outside: Outside,
        numbers: Arc<Numbers>,
        status: Arc<Mutex<GroupStatus>>,
    ) -> Self {
        let now = manager.clock.now();
        Self {
            manager,
            group: group.to_owned(),
            definition: definition.clone(),
            outside,
            numbers,
            status,
            part: Part::Away { at: now },
            pause: PAUSE_FIRST,
            patience: Duration::ZERO,
            claims_at: now,
            is_forced: false,
        }
    }

    /// Goes on until it is told to end.
    pub(super) fn run(mut self, orders: &mpsc::Receiver<Order>) {
        loop {
            self.step(self.manager.clock.now());
            match orders.recv_timeout(LOOK_EVERY) {
                Ok(Order::TakeOver) => self.take_over(),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(Order::End) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let left = self.end();
        if left.is_some() {
            // The log stays open meanwhile, and its thread answers members that ask.
            std::thread::sleep(ANSWERS_ON);
        }
    }

    /// The operator's word: it owns the group from its next step on, also where another member does.
    pub(crate) fn take_over(&mut self) {
        // An owner has what is asked for, and must not take it back when it is deposed later.
        self.is_forced = !matches!(self.part, Part::Owning { .. });
        if let Part::Away { at } = &mut self.part {
            *at = self.manager.clock.now();
        }
    }

    /// Takes no part any more. What it owned is to stay for [`ANSWERS_ON`]: a member that asks just now gets its
    /// answer, and reads on. Else it would wait out a silence.
    pub(crate) fn end(&mut self) -> Option<NamedStore> {
        let left = self.leave();
        self.enter(GroupState::Stopped);
        left
    }

    /// Looks, and does what is due. To be called each [`LOOK_EVERY`].
    pub(crate) fn step(&mut self, now: Instant) {
        let stepped = match std::mem::replace(&mut self.part, Part::Away { at: now }) {
            Part::Away { at } if now < at => Ok(Part::Away { at }),
            Part::Away { .. } => self.look_for_the_log(),
            Part::Standing(standing) => self.stand_by(standing, now),
            Part::Owning { number, since } => Ok(self.own(number, since, now)),
        };
        match stepped {
            Ok(part) => self.part = part,
            Err(Failed { why, pause }) => {
                self.part = Part::Away { at: now + pause.unwrap_or(self.pause) };
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                if hold(&self.status).why != why {
                    crate::warning!("shared group {}: {why}", self.group);
                }
                self.enter(GroupState::Connecting);
                hold(&self.status).why = why;
            }
        }
    }

    fn look_for_the_log(&mut self) -> Result<Part, Failed> {
        let full = || Failed { why: "there are as many groups here as there may be".to_owned(), pause: None };
        let number = self.numbers.take(&self.manager).ok_or_else(full)?;
        match (self.outside.log)() {
            Ok(log) => {
                let standby = Standby::numbered(number, log);
                Ok(Part::Standing(Box::new(Standing { number, standby, counted: None, told: None })))
            }
            Err(error) => {
                self.numbers.give_back(number);
                Err(OpenError::from(error).into())
            }
        }
    }

    /// Reads on, and claims what no owner has.
    fn stand_by(&mut self, mut standing: Box<Standing>, now: Instant) -> Result<Part, Failed> {
        let number = standing.number;
        let claimed = self.read_and_claim(&mut standing, now);
        match claimed {
            Ok(false) => {
                self.pause = PAUSE_FIRST;
                Ok(Part::Standing(standing))
            }
            Ok(true) => {
                let joined = self.join(standing.standby, number);
                self.numbers.give_back(number);
                let () = joined.inspect_err(|_| self.claims_at = now + PAUSE_AFTER_CLAIM)?;
                self.pause = PAUSE_FIRST;
                Ok(Part::Owning { number, since: now })
            }
            // What clients were told of the group is told on while its log is away.
            Err(failed) => {
                self.numbers.give_back(number);
                Err(failed)
            }
        }
    }

    fn read_and_claim(&mut self, standing: &mut Standing, now: Instant) -> Result<bool, Failed> {
        standing.standby.follow()?;
        self.learn(standing, now);
        if now < self.claims_at && !self.is_forced {
            return Ok(false);
        }
        // The operator's word is for now: what comes of it or not is not tried again later.
        let is_forced = std::mem::take(&mut self.is_forced);
        if let Some(conflict) = self.conflict(&standing.standby) {
            // Another member can own it.
            let mut status = hold(&self.status);
            if status.why != conflict {
                crate::warning!("shared group {}: it can't be owned here: {conflict}", self.group);
            }
            status.why = conflict;
            drop(status);
            self.enter(GroupState::Standby);
            return Ok(false);
        }
        let how = match standing.standby.owner() {
            _ if is_forced => Claim::Force,
            Some((_, epoch)) if standing.standby.note(LEFT_NOTE) == Some(&epoch.0.to_le_bytes()[..]) => {
                Claim::After(epoch)
            }
            _ => Claim::IfFree,
        };
        match standing.standby.claim(now, how) {
            Ok(()) => Ok(true),
            Err(OpenError::Log(LogError::Owned { .. })) => {
                hold(&self.status).why.clear();
                self.enter(GroupState::Standby);
                let at = standing.standby.position();
                let is_old = |(told, when): &(Option<Position>, Instant)| {
                    *told != at && now.saturating_duration_since(*when) >= TELL_EVERY
                };
                if standing.told.as_ref().is_none_or(is_old) {
                    standing.told = Some((at, now));
                    self.tell_clients(&standing.standby);
                }
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the log says of its owner.
    fn learn(&self, standing: &mut Standing, now: Instant) {
        let standby = &standing.standby;
        let is_due = standing.counted.is_none_or(|counted| now.saturating_duration_since(counted) >= COUNT_EVERY);
        let messages = is_due.then(|| standby.messages());
        let mut status = hold(&self.status);
        if let Some(messages) = messages {
            status.messages = messages as u64;
            standing.counted = Some(now);
        }
        if let Some((owner, Epoch(epoch))) = standby.owner() {
            (status.owner, status.epoch) = (owner, epoch);
        }
        status.owner_address = standby.note(ADDRESS_NOTE).map(text).unwrap_or_default();
        status.position = standby.position().map_or(0, |position| position.0);
    }

    /// Clients that open the group's queues here are told where they are.
    fn tell_clients(&self, standby: &Standby) {
        let address = standby.note(ADDRESS_NOTE).map(text);
        let address = address.as_deref().and_then(|address| address.rsplit_once(':'));
        let address = address.and_then(|(host, port)| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            (host.len() <= HOST_CHARS_MAX).then_some((host.to_owned(), port.parse().ok()?))
        });
        let owner = standby.owner().map(|(owner, _)| owner).unwrap_or_default();
        let (queues, objects) = (standby.queue_names(), standby.object_names());
        let rings = group_rings::read(standby.notes(group_rings::PREFIX));
        let elsewhere = GroupElsewhere::new(&self.definition, owner, address, queues, objects).with_rings(rings);
        self.manager.lock().groups_elsewhere.set(&self.group, elsewhere);
    }

    /// A queue or an object that is defined both here and in the group's log. While there is one, this member can't own
    /// the group.
    fn conflict(&self, standby: &Standby) -> Option<String> {
        let state = self.manager.lock();
        let known = |name: &&str| Sort::ALL.iter().any(|sort| sort.is_queue() && state.definitions.has(*sort, name));
        if let Some(queue) = standby.queue_names().find(known) {
            return Some(format!("{queue} is a queue of the group and one of this queue manager: delete that one"));
        }
        let object = standby.object_names().find(|object| state.store.has_object(object))?;
        Some(format!("{object} is defined in the group and here: delete the one that is here"))
    }

    /// The log is claimed: its queues are open here from now on.
    fn join(&mut self, standby: Standby, number: StoreNumber) -> Result<(), Failed> {
        self.enter(GroupState::Claiming);
        let failed = |why: String| Failed { why, pause: Some(PAUSE_AFTER_CLAIM) };
        let scratch = (self.outside.scratch)().map_err(failed)?;
        let limits = limits(self.definition.log_bytes);
        let now = self.manager.clock.now();
        let mut store: Store = standby.into_store(scratch, limits, now)?;
        let identity = self.manager.random().bytes();
        store.ensure_identity(identity, now).map_err(|error| failed(error.to_string()))?;
        let epoch = store.log_status().owner.map_or(0, |(_, Epoch(epoch))| epoch);
        let joining = Joining::read(NamedStore { name: self.group.clone(), store });
        let joining = joining.map_err(|error| failed(error.to_string()))?;
        {
            let state = &mut *self.manager.lock();
            state.groups_elsewhere.remove(&self.group);
            state.join_store(joining, Path::new(&self.group)).map_err(|error| failed(error.to_string()))?;
            let address = self.definition.address.clone().unwrap_or_default();
            let own = [
                (error_queue_of(&self.group), "Messages of the group whose seal is defective"),
                (dead_letter_queue_of(&self.group), "Messages of the group that can't be processed or delivered"),
            ];
            let missing = own.into_iter().filter(|(name, _)| state.store.queue(name).is_none());
            let missing: Vec<Change> = missing
                .map(|(name, description)| {
                    let (group, description) = (Some(self.group.clone()), description.to_owned());
                    Change::define(name, LocalQueue { description, group, ..LocalQueue::default() })
                })
                .collect();
            let noted = state.store.commit_notes(number, &[(ADDRESS_NOTE, Some(address.as_bytes()))]);
            let done = noted.map(drop).map_err(|error| error.to_string()).and_then(|()| match missing.is_empty() {
                true => Ok(()),
                false => state.commit_definitions(&missing, &[]).map(drop).map_err(|error| error.to_string()),
            });
            if let Err(why) = done {
                state.leave_store(number, self.manager.live_dispatchers());
                self.manager.ring_all();
                return Err(failed(why));
            }
            let mut status = hold(&self.status);
            (status.owner, status.epoch) = (state.definitions.queue_manager.name.clone(), epoch);
            status.owner_address = address;
            status.why.clear();
        }
        self.manager.ring_all();
        crate::note!("shared group {}: owned here, epoch {epoch}", self.group);
        self.enter(GroupState::Owner);
        Ok(())
    }

    /// It goes on, unless the store has left.
    fn own(&mut self, number: StoreNumber, since: Instant, now: Instant) -> Part {
        // In a turn of a dispatcher it may have left, and another one may have its number.
        let state = self.manager.lock();
        let store = state.store.store_named(&self.group).filter(|known| *known == number);
        let Some(store) = store.and_then(|number| state.store.store(number)) else {
            drop(state);
            let is_steady = now.saturating_duration_since(since) >= STEADY_AFTER;
            self.patience = match self.patience {
                _ if is_steady => Duration::ZERO,
                Duration::ZERO => PAUSE_FIRST,
                patience => (patience * 2).min(PAUSE_MAX),
            };
            self.claims_at = now + self.patience;
            self.enter(GroupState::Connecting);
            return Part::Away { at: now };
        };
        let (sums, log) = (store.store_status(), store.log_status());
        let crossing = state.store.waiting_for_others(number);
        drop(state);
        let mut status = hold(&self.status);
        status.messages = sums.messages as u64;
        status.crossing = crossing;
        status.log_bytes = sums.journal_bytes;
        status.waiting_bytes = sums.backlog_bytes;
        status.position = log.end.0;
        status.survives = match log.survives {
            Survives::Process => "PROCESS",
            Survives::Power => "POWER",
            Survives::MinorityPower => "MINORITYPOWER",
            _ => "UNKNOWN",
        };
        status.why =
            if log.is_surely_owned { String::new() } else { "the engine does not answer: nothing is sent".into() };
        Part::Owning { number, since }
    }

    /// It closes what is open here, and says so in the log: another member needs no silence to take over.
    fn leave(&mut self) -> Option<NamedStore> {
        let now = self.manager.clock.now();
        let number = match std::mem::replace(&mut self.part, Part::Away { at: now }) {
            Part::Away { .. } => {
                self.manager.lock().groups_elsewhere.remove(&self.group);
                return None;
            }
            Part::Standing(standing) => {
                self.manager.lock().groups_elsewhere.remove(&self.group);
                self.numbers.give_back(standing.number);
                return None;
            }
            Part::Owning { number, .. } => number,
        };
        let left = {
            let state = &mut *self.manager.lock();
            let is_here = state.store.store_named(&self.group) == Some(number);
            let left = is_here.then(|| state.leave_store(number, self.manager.live_dispatchers())).flatten();
            // It takes no part any more, and does not know its queues.
            state.groups_elsewhere.remove(&self.group);
            left
        };
        self.manager.ring_all();
        let mut left = left?;
        if !left.store.log_status().is_surely_owned {
            // An owner before this one may still send, and who takes over from one that has gone does not wait for it.
            crate::note!("shared group {}: given up before anything of it might be sent", self.group);
            return None;
        }
        let epoch = left.store.log_status().owner.map_or(0, |(_, Epoch(epoch))| epoch);
        let noted = left.store.commit(Vec::new(), &[], &[(LEFT_NOTE, Some(&epoch.to_le_bytes()[..]))]);
        let closed = noted.map(drop).map_err(|error| error.to_string());
        let closed = closed.and_then(|()| left.store.sync(now).map_err(|error| error.to_string()));
        match closed {
            Ok(()) => {
                crate::note!("shared group {}: given up", self.group);
                Some(left)
            }
            // Others take it over once this one is silent.
            Err(why) => {
                crate::warning!("shared group {}: given up, which its log does not say: {why}", self.group);
                None
            }
        }
    }

    fn enter(&self, state: GroupState) {
        let mut status = hold(&self.status);
        if status.state == state && status.since_ms > 0 {
            return;
        }
        (status.state, status.since_ms) = (state, wall_ms(self.manager.clock.wall()));
        if state == GroupState::Standby {
            crate::note!("shared group {}: owned by {}", self.group, status.owner);
        }
    }
}

/// Limits of a store in a log of so many bytes: a small one is let go sooner, and keeps a smaller reserve.
fn limits(log_bytes: u64) -> Limits {
    let usual = Limits::default();
    Limits {
        memory_bytes_max: usual.memory_bytes_max / MEMORY_DIVISOR,
        reserve_bytes: usual.reserve_bytes.min(log_bytes / RESERVE_DIVISOR),
        checkpoint_bytes: usual.checkpoint_bytes.min(log_bytes / CHECKPOINT_DIVISOR),
        log_bytes_min: usual.log_bytes_min.min(log_bytes / CARRIED_DIVISOR),
        ..usual
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
