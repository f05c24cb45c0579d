//! The queue manager's part: it knows which certificate is due, asks for it, and says what came of it.

use super::configuration::Configuration;
use super::ring_certificate::{Enrolled, Renewal, Site};
use super::source::Source;
use super::{EnrolError, due, signer_certificate, tls_certificate};
use crate::audit::{Entry, Kind, Who};
use crate::calendar;
use crate::catalog::status::{EnrolmentPlace, EnrolmentState, EnrolmentStatus};
use crate::events::Event;
use crate::folders::{RINGS, TLS};
use crate::key_rotation::{Rotation, keeper};
use crate::manager::Manager;
use crate::wall_clock::wall_ms;
use bulla_seal::certificate::{Certificate, Passphrase};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How often it is looked whether something is due.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the certificates are read again that nothing was done with.
pub const READ_EVERY: Duration = Duration::from_secs(60);
/// How long to wait where another process has its turn.
const PASSING: Duration = Duration::from_secs(2);

/// What an enroller takes from around it.
pub trait Host {
    /// The data directory.
    fn data(&self) -> &Path;
    /// The passphrase of rings that are locked.
    fn passphrase(&self) -> Option<&Passphrase>;
    /// What the time is.
    fn wall(&self) -> SystemTime;
    /// Whether no ring is given out any more that lacks the new key.
    fn has_read(&self, rotation: &Rotation, now: Instant) -> bool;
    /// Says what happened.
    fn raise(&self, event: &Event);
    /// Has the audit log told of it.
    fn audit(&self, entry: Entry);
    /// Whether the queue manager stops.
    fn is_stopping(&self) -> bool;
    /// Whoever is asked.
    ///
    /// # Errors
    /// It is not configured.
    fn source(&self, configuration: &Configuration, authority: &str) -> Result<Box<dyn Source>, EnrolError> {
        configuration.authority(authority)?.source()
    }
}

impl Host for Manager {
    fn data(&self) -> &Path {
        &self.data
    }

    fn passphrase(&self) -> Option<&Passphrase> {
        self.passphrase()
    }

    fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    fn has_read(&self, rotation: &Rotation, now: Instant) -> bool {
        keeper::is_read(self, rotation, now)
    }

    fn raise(&self, event: &Event) {
        let mut state = self.lock();
        let wall = wall_ms(state.clock.wall());
        state.raise(event, wall);
        drop(state);
        self.ring_all();
    }

    fn audit(&self, entry: Entry) {
        self.told.audit.note(entry);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// What is shown of all certificates that renew by themselves.
#[derive(Debug, Default)]
pub struct Enrolments(Mutex<Shown>);

/// Why there is nothing to show, and what there is.
#[derive(Clone, Debug, Default)]
struct Shown {
    rows: Vec<EnrolmentStatus>,
    unusable: Option<String>,
}

impl Enrolments {
    /// As they stand.
    ///
    /// # Errors
    /// Why `enrolment.toml` can't be used, in words.
    pub fn rows(&self) -> Result<Vec<EnrolmentStatus>, String> {
        let shown = self.lock();
        shown.unusable.clone().map_or_else(|| Ok(shown.rows.clone()), Err)
    }

    /// As they stood last, whatever the file says now.
    pub fn known(&self) -> Vec<EnrolmentStatus> {
        self.lock().rows.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        // What is shown holds no invariant that a panic could break.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A certificate that renews by itself.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Name {
    /// Of a user's ring.
    Ring(String),
    /// Of a user's ring, to sign alone.
    Signer(String),
    /// Of TLS, by its label.
    Tls(String),
}

impl Name {
    /// What changes when its key does: one `stat`.
    fn stamp(&self, data: &Path) -> Option<SystemTime> {
        let path = match self {
            Name::Ring(user) => data.join(RINGS).join(user).join("own"),
            Name::Signer(user) => signer_certificate::path(data, user),
            Name::Tls(label) => data.join(TLS).join(format!("{label}.pem")),
        };
        path.metadata().and_then(|facts| facts.modified()).ok()
    }

    /// Where it is in the data directory.
    fn place(&self) -> String {
        match self {
            Name::Ring(user) => format!("rings/{user}"),
            Name::Signer(user) => format!("rings/{user}/own/{}.pem", signer_certificate::LABEL),
            Name::Tls(label) => format!("tls/{label}.pem"),
        }
    }
}

/// What is remembered of one name.
#[derive(Debug)]
struct Tracked {
    /// Its [`Name::stamp`] at the last look.
    stamp: Option<SystemTime>,
    /// When it is looked at again.
    next: Option<Instant>,
    /// Its certificates: those of a ring's keys, one otherwise. Never empty.
    slots: Vec<Slot>,
    /// The rings that are to have a first certificate have it.
    is_complete: bool,
}

impl Default for Tracked {
    fn default() -> Tracked {
        Tracked { stamp: None, next: None, slots: vec![Slot::default()], is_complete: false }
    }
}

/// What is remembered of one certificate. Each of a ring fails and waits on its own, and holds up no other.
#[derive(Debug, Default)]
struct Slot {
    /// None while there is none.
    certificate: Option<Certificate>,
    /// The wait after a failure, until then.
    waits_until: Option<(Instant, SystemTime)>,
    failures: u32,
    /// What the last attempt failed of; none after one that went well.
    why: Option<String>,
    /// The authority has not decided.
    is_undecided: bool,
    tried: Option<SystemTime>,
    /// The ring's new key waits to be read and shared.
    is_sharing: bool,
}

/// Renews certificates, one at a time.
#[derive(Debug, Default)]
pub struct Enroller {
    tracked: BTreeMap<Name, Tracked>,
    /// What was configured at the last look.
    configuration: Configuration,
    shown: Arc<Enrolments>,
    /// What was said in the log of the file and still holds.
    said: Option<String>,
}

impl Enroller {
    /// One that shows what it does there.
    pub fn new(shown: Arc<Enrolments>) -> Enroller {
        Enroller { shown, ..Enroller::default() }
    }

    /// Looks at what is configured, and does what is due: at most one attempt with each authority, so that one that
    /// does not answer holds up nobody else for longer than its time.
    pub fn look(&mut self, host: &dyn Host, now: Instant) {
        let configuration = match Configuration::read(host.data()) {
            Ok(configuration) => configuration.unwrap_or_default(),
            Err(error) => return self.unusable(&error),
        };
        self.said = None;
        let rings = configuration.rings.iter().map(|(user, table)| (Name::Ring(user.clone()), &table.authority));
        let certificates = configuration.certificates.iter();
        let certificates = certificates.map(|(label, table)| (Name::Tls(label.clone()), &table.authority));
        let signers = configuration.signers.iter();
        let signers = signers.map(|(user, table)| (Name::Signer(user.clone()), &table.authority));
        let all: BTreeMap<Name, &String> = rings.chain(signers).chain(certificates).collect();
        self.tracked.retain(|name, _| all.contains_key(name));
        if self.configuration != configuration {
            // What failed may go well now.
            for tracked in self.tracked.values_mut() {
                tracked.next = None;
                tracked.slots.iter_mut().for_each(|slot| slot.waits_until = None);
            }
            self.configuration = configuration.clone();
        }
        let mut asked = HashSet::new();
        for (name, authority) in &all {
            if host.is_stopping() {
                return;
            }
            let tracked = self.tracked.entry(name.clone()).or_default();
            let stamp = name.stamp(host.data());
            if tracked.stamp != stamp {
                // A command was at it.
                (tracked.next, tracked.stamp) = (None, stamp);
            }
            if tracked.next.is_none_or(|next| next <= now) {
                let task = Task { host, configuration: &configuration, name, authority };
                task.advance(tracked, &mut asked, now);
                self.show(&configuration, &all, host.wall());
            }
        }
        self.show(&configuration, &all, host.wall());
    }

    fn unusable(&mut self, error: &EnrolError) {
        let why = error.to_string();
        if self.said.as_ref() != Some(&why) {
            crate::warning!("no certificate is renewed: {why}");
        }
        self.shown.lock().unusable = Some(why.clone());
        self.said = Some(why);
    }

    fn show(&self, configuration: &Configuration, all: &BTreeMap<Name, &String>, wall: SystemTime) {
        let mut rows = Vec::new();
        for (name, authority) in all {
            let method = configuration.authorities.get(*authority).map_or("", |authority| authority.method());
            let slots = self.tracked.get(name).into_iter().flat_map(|tracked| &tracked.slots);
            rows.extend(slots.map(|slot| slot.status(name, authority, method, wall)));
        }
        *self.shown.lock() = Shown { rows, unusable: None };
    }
}

impl Tracked {
    /// Takes over which keys of the ring renew, in that order; what is known of a certificate that stays is kept.
    fn take(&mut self, renewals: &[Renewal]) {
        let mut before = std::mem::take(&mut self.slots);
        let mut slot = |certificate: Option<&Certificate>| {
            let at = before.iter().position(|slot| slot.certificate.as_ref() == certificate);
            let new = || Slot { certificate: certificate.cloned(), ..Slot::default() };
            at.map_or_else(new, |at| before.swap_remove(at))
        };
        self.slots = match renewals {
            [] => vec![slot(None)],
            renewals => renewals.iter().map(|renewal| slot(Some(&renewal.certificate))).collect(),
        };
    }
}

impl Slot {
    /// Nothing of what failed before holds any more.
    fn went_well(&mut self) {
        (self.failures, self.why, self.waits_until, self.is_undecided) = (0, None, None, false);
    }

    fn status(&self, name: &Name, authority: &str, method: &'static str, wall: SystemTime) -> EnrolmentStatus {
        let (name, place) = match name {
            Name::Ring(user) => (user.clone(), EnrolmentPlace::Ring),
            Name::Signer(user) => (user.clone(), EnrolmentPlace::Signer),
            Name::Tls(label) => (label.clone(), EnrolmentPlace::Tls),
        };
        let due = self.certificate.as_ref().map(due::due);
        let state = match &self.certificate {
            _ if self.is_sharing => EnrolmentState::Sharing,
            _ if self.is_undecided => EnrolmentState::Undecided,
            _ if self.failures > 0 => EnrolmentState::Failing,
            None => EnrolmentState::Missing,
            Some(_) if due.is_some_and(|due| due <= wall) => EnrolmentState::Due,
            Some(_) => EnrolmentState::Valid,
        };
        EnrolmentStatus {
            name,
            place,
            authority: authority.to_owned(),
            method,
            state,
            subject: self.certificate.as_ref().map(|one| one.dn().to_string()).unwrap_or_default(),
            serial: self.certificate.as_ref().map(Certificate::serial_hex).unwrap_or_default(),
            until_ms: self.certificate.as_ref().map(|one| wall_ms(one.not_after())),
            next_ms: self.waits_until.map(|(_, wall)| wall).or(due).map(wall_ms),
            tried_ms: self.tried.map(wall_ms),
            failures: self.failures,
            why: self.why.clone().unwrap_or_default(),
        }
    }
}

/// One certificate, while it is looked at.
struct Task<'a> {
    host: &'a dyn Host,
    configuration: &'a Configuration,
    name: &'a Name,
    authority: &'a str,
}

impl Task<'_> {
    fn advance(&self, tracked: &mut Tracked, asked: &mut HashSet<String>, now: Instant) {
        let clock = || self.host.wall();
        let is_stopping = || self.host.is_stopping();
        let site = Site {
            data: self.host.data(),
            passphrase: self.host.passphrase(),
            configuration: self.configuration,
            by_hand: false,
            patience: Duration::ZERO,
            clock: &clock,
            is_stopping: &is_stopping,
        };
        tracked.next = Some(match self.name {
            Name::Ring(user) => self.ring(&site, user, tracked, asked, now),
            Name::Signer(_) | Name::Tls(_) => {
                let slot = &mut tracked.slots[0];
                let done = self.alone(&site, slot, asked, now);
                self.done(slot, done, now)
            }
        });
    }

    /// When to look again at a certificate with which that was done.
    fn done(&self, slot: &mut Slot, done: Result<Instant, EnrolError>, now: Instant) -> Instant {
        match done {
            Ok(next) => next,
            Err(error) if error.is_passing() => now + PASSING,
            Err(error) => self.failed(slot, error, now),
        }
    }

    /// What is due of a ring now. When to look again.
    fn ring(
        &self,
        site: &Site<'_>,
        user: &str,
        tracked: &mut Tracked,
        asked: &mut HashSet<String>,
        now: Instant,
    ) -> Instant {
        let renewals = match self.ready(site, user, tracked) {
            Ok(renewals) => renewals,
            // It is told of the one that is due first.
            Err(error) => return self.done(&mut tracked.slots[0], Err(error), now),
        };
        tracked.take(&renewals);
        let mut next = now + READ_EVERY;
        let renewals = renewals.iter().map(Some).chain(renewals.is_empty().then_some(None));
        for (slot, renewal) in tracked.slots.iter_mut().zip(renewals) {
            let done = self.of_ring(site, user, (slot, renewal), asked, now);
            next = next.min(self.done(slot, done, now));
        }
        next
    }

    /// The keys of a ring that renew, once the rings that are to have its first certificate have it.
    fn ready(&self, site: &Site<'_>, user: &str, tracked: &mut Tracked) -> Result<Vec<Renewal>, EnrolError> {
        if !tracked.is_complete {
            site.complete(user)?;
            tracked.is_complete = true;
        }
        site.renewals(user)
    }

    fn of_ring(
        &self,
        site: &Site<'_>,
        user: &str,
        (slot, renewal): (&mut Slot, Option<&Renewal>),
        asked: &mut HashSet<String>,
        now: Instant,
    ) -> Result<Instant, EnrolError> {
        slot.is_sharing = false;
        if let Some(rotation) = renewal.and_then(Renewal::to_share) {
            return self.share(site, slot, rotation.clone(), now);
        }
        if let Some(later) = self.is_not_now(slot, renewal.is_some_and(Renewal::is_begun), asked, now) {
            return Ok(later);
        }
        let source = self.host.source(self.configuration, self.authority)?;
        let serial = renewal.map(|renewal| renewal.certificate.serial_hex());
        let enrolled = site.enrol(user, serial.as_deref(), source.as_ref())?;
        slot.went_well();
        let new = match enrolled {
            Enrolled::First(certificate) => Some(certificate),
            Enrolled::Installed(rotation) => {
                let is_it = |renewal: &Renewal| renewal.to_share().is_some_and(|change| change.label == rotation.label);
                site.renewals(user)?.into_iter().find(is_it).map(|renewal| renewal.certificate)
            }
        };
        self.say_that_it_came(new.as_ref());
        Ok(now)
    }

    fn say_that_it_came(&self, certificate: Option<&Certificate>) {
        if let Some(certificate) = certificate {
            let until = calendar::rfc3339(wall_ms(certificate.not_after()) / 1000);
            crate::note!("{}: a certificate came from {}, valid until {until}", self.name.place(), self.authority);
        }
    }

    /// What is due of a certificate of TLS, or of one that signs alone. When to look again.
    fn alone(
        &self,
        site: &Site<'_>,
        slot: &mut Slot,
        asked: &mut HashSet<String>,
        now: Instant,
    ) -> Result<Instant, EnrolError> {
        let certificate = self.present(site)?;
        self.noticed(slot, certificate);
        if let Some(later) = self.is_not_now(slot, false, asked, now) {
            return Ok(later);
        }
        let source = self.host.source(self.configuration, self.authority)?;
        match self.name {
            Name::Signer(user) => drop(site.take_signer(user, source.as_ref())?),
            Name::Tls(label) => drop(site.renew_tls(label, source.as_ref())?),
            Name::Ring(_) => return Ok(now),
        }
        slot.went_well();
        let certificate = self.present(site)?;
        let is_as_before = slot.certificate == certificate;
        self.noticed(slot, certificate);
        if self.has_agent() && is_as_before {
            return Ok(now + slot.certificate.as_ref().map_or(PASSING, due::look_after));
        }
        self.say_that_it_came(slot.certificate.as_ref());
        Ok(now)
    }

    /// When to look again at a certificate that the authority is not asked for now; none where it is.
    fn is_not_now(
        &self,
        slot: &mut Slot,
        is_begun: bool,
        asked: &mut HashSet<String>,
        now: Instant,
    ) -> Option<Instant> {
        let wall = self.host.wall();
        let due = slot.certificate.as_ref().map_or(wall, due::due);
        // Who shows what is in force is asked whether it is still that.
        if due > wall && !is_begun && !self.has_agent() {
            // By hand, perhaps.
            slot.went_well();
            let left = due.duration_since(wall).unwrap_or_default();
            return Some(now + left.min(READ_EVERY));
        }
        if let Some((until, _)) = slot.waits_until.filter(|(until, _)| *until > now) {
            return Some(until.min(now + READ_EVERY));
        }
        if !asked.insert(self.authority.to_owned()) {
            return Some(now);
        }
        slot.tried = Some(wall);
        None
    }

    /// Whether an agent on this machine shows what is in force.
    fn has_agent(&self) -> bool {
        self.configuration.authorities.get(self.authority).is_some_and(|authority| authority.spiffe.is_some())
    }

    fn share(
        &self,
        site: &Site<'_>,
        slot: &mut Slot,
        mut rotation: Rotation,
        now: Instant,
    ) -> Result<Instant, EnrolError> {
        slot.is_sharing = true;
        if self.host.has_read(&rotation, now) {
            site.share(&mut rotation)?;
            slot.is_sharing = false;
            let new = rotation.new.as_ref().map_or("", |new| new.serial.as_str());
            crate::note!("{} seals with the key {new} from now on; {} opens", rotation.user, rotation.old.serial);
        }
        Ok(now)
    }

    fn present(&self, site: &Site<'_>) -> Result<Option<Certificate>, EnrolError> {
        match self.name {
            Name::Ring(_) => Ok(None),
            Name::Signer(user) => signer_certificate::present(site.data, user),
            Name::Tls(label) => Ok(tls_certificate::present(site.data, label)?.map(|(certificate, _)| certificate)),
        }
    }

    /// Takes over which certificate there is. Of another one of TLS or of a signer the audit log is told, by whomever
    /// it came: other changes of rings are there already.
    fn noticed(&self, slot: &mut Slot, certificate: Option<Certificate>) {
        let key = match self.name {
            Name::Ring(_) => None,
            Name::Signer(user) => Some(("user", user)),
            Name::Tls(label) => Some(("label", label)),
        };
        if let (Some((key, name)), Some(new), Some(before)) = (key, &certificate, &slot.certificate)
            && new != before
        {
            let what = json!({
                key: name,
                "authority": self.authority,
                "subject": new.dn().to_string(),
                "serial": new.serial_hex(),
                "until": calendar::rfc3339(wall_ms(new.not_after()) / 1000),
                "certificate": crate::audit::fingerprint(new),
                "former_certificate": crate::audit::fingerprint(before),
            });
            self.host.audit(Entry::new(Kind::Certificate, Who::QueueManager, what));
        }
        slot.certificate = certificate;
    }

    /// Says of what it failed. When to look again.
    fn failed(&self, slot: &mut Slot, error: EnrolError, now: Instant) -> Instant {
        let wall = self.host.wall();
        slot.is_undecided = matches!(error, EnrolError::NotYet { .. });
        slot.failures += 1;
        let wait = match self.has_agent() {
            true => due::agent_retry_after(slot.failures),
            false => due::retry_after(slot.failures, slot.certificate.as_ref(), wall),
        };
        slot.waits_until = Some((now + wait, wall + wait));
        let why = error.to_string();
        let is_pressing = slot.certificate.as_ref().is_none_or(|certificate| due::is_nearly_over(certificate, wall));
        let is_said = self.has_agent() && !slot.failures.is_power_of_two() && slot.why.as_ref() == Some(&why);
        if is_said {
            // An agent that is away for a day is told of eleven times, and not each minute.
        } else if slot.is_undecided && !is_pressing {
            crate::note!("{}: {} has not decided: {why}", self.name.place(), self.authority);
        } else {
            self.host.raise(&Event::EnrolmentFailed {
                place: self.name.place(),
                authority: self.authority.to_owned(),
                serial: slot.certificate.as_ref().map(Certificate::serial_hex),
                why: why.clone(),
                failures: slot.failures,
                not_after: slot.certificate.as_ref().map(|certificate| wall_ms(certificate.not_after()) / 1000),
                retry_seconds: wait.as_secs(),
                is_pressing,
            });
        }
        slot.why = Some(why);
        now + wait.min(READ_EVERY)
    }
}
