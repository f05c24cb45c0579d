//! Messages that are sealed anew: opened with a key that is here, sealed under the policy in force, and put back at
//! their own places.
//!
//! One [`Reseal`] is for one command, which takes two thousand messages at most, in steps of a hundred. The queues'
//! lock is held to choose a step's messages and to put them back, never while they are opened or sealed. While a step
//! is sealed a thread beside opens the next one, and the journal writes the one before. The command is answered when
//! all are on disk: rings are read, recipients proven and disks synced once for all steps. A message that a
//! consumer has locked or got in between is left alone; one that does not open stays as it is.

mod devices;

use crate::accounting::Cost;
use crate::adapter::Held;
use crate::audit::Purpose;
use crate::catalog::status::Deed;
use crate::envelope::{Arrival, Envelope, payload_of};
use crate::key_use::KnownKeys;
use crate::manager::{Manager, State};
use crate::mqsc::run::AdminError;
use crate::mqsc::{ResealQuestion, Resealed, Select};
use crate::reason;
use crate::wall_clock::{from_wall_ms, wall_ms};
use bulla_device::SystemRandom;
use bulla_device::role::{self, Role};
use bulla_queue::{Chunks, Found, KeyNames, Keys, Message, Place, PutError, QueueId, Replaced};
use bulla_seal::policy::{KeyReuse, Quality};
use bulla_seal::ring::Ring;
use bulla_seal::{
    Bound, Content, Dn, KeyName, Moments, OnBehalfOf, OpenError, Opened, Policy, SealError, Sealed, Sealer, Step,
    Tally, Verified,
};
use devices::carry_out;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Messages that one command looks at: part of a microsecond each, under the queues' lock.
const LOOKED_AT_MAX: u64 = 10_000;
/// Bytes of messages that one command takes; a longer message goes alone.
const BYTES_MAX: usize = 16 << 20;
/// Messages of a step. Two steps are with the devices at the same time, and no more is in memory in clear.
const STEP_MESSAGES: usize = 100;
/// After this no further step of a command begins: slow devices would keep other commands waiting.
const STEPS_TIME_MAX: Duration = Duration::from_millis(250);
/// Keys that an answer names.
const KEYS_NAMED_MAX: usize = 16;

/// One command's work.
pub struct Reseal {
    manager: Arc<Manager>,
    question: ResealQuestion,
    queue: QueueId,
    /// The policy in force, and the one by which messages are opened.
    policy: Arc<Policy>,
    opens_by: Arc<Policy>,
    /// Where messages may be bound to, by the policy that opens them and by the one in force.
    bound_by: [Vec<String>; 2],
    /// What they are bound to anew.
    destination: String,
    /// Behind which place the next step begins.
    after: Option<Place>,
    /// The next step's messages.
    chosen: Vec<Chosen>,
    /// Messages and bytes of all steps.
    taken: usize,
    bytes: usize,
    /// When the command began.
    began: Instant,
    /// Whether no further step begins.
    is_over: bool,
    /// Whether a message was opened as its readers would.
    is_tried: bool,
    done: Resealed,
    old_keys: BTreeSet<String>,
}

/// What opens and what seals, once rings were read.
pub struct ResealKeys {
    known: KnownKeys,
    /// The reader that was named, and its ring.
    reader: Option<(String, Arc<Ring>)>,
    ring: Arc<Ring>,
    sealer: Sealer,
}

/// A message on its way.
struct Chosen {
    found: Found,
    arrival: Arrival,
    /// Whose ring opens it.
    user: String,
    ring: Arc<Ring>,
    names: Option<KeyNames>,
    _held: Held,
}

/// A step's messages that are to be opened, by any thread.
pub struct Opening {
    manager: Arc<Manager>,
    policy: Arc<Policy>,
    bound_by: Vec<String>,
    destination: String,
    /// Who signs them anew.
    own: Option<Dn>,
    chosen: Vec<Chosen>,
    from: Option<Place>,
    now: SystemTime,
}

/// A step's messages that were opened.
pub struct OpenStep {
    open: Vec<Open>,
    /// Why others were not.
    failed: Vec<&'static str>,
    /// Behind which place the step began: there the next command goes on should it fail.
    from: Option<Place>,
}

/// A message that was opened, and what it is to be sealed with.
struct Open {
    found: Found,
    user: String,
    ring: Arc<Ring>,
    names: Option<KeyNames>,
    envelope: Envelope,
    bound: Bound,
    content: Content,
    on_behalf_of: OnBehalfOf,
    _held: Held,
}

/// A message that is sealed anew, and the names of the keys that opened it before.
pub struct Anew {
    found: Found,
    names: Option<KeyNames>,
    message: Message,
}

impl Reseal {
    /// Reads what is defined.
    ///
    /// # Errors
    /// Queue or policy went away, the policy does not allow it or is not that of the commands before, or the place to
    /// go on from is none.
    pub fn new(
        manager: &Arc<Manager>,
        state: &State,
        question: &ResealQuestion,
        now: Instant,
    ) -> Result<Self, AdminError> {
        let unknown = |name: &str| AdminError::Unknown { name: name.to_owned() };
        let queue = state.store.queue(&question.queue).ok_or_else(|| unknown(&question.queue))?;
        let policy = |name: &String| state.definitions.policies.get(name).cloned().ok_or_else(|| unknown(name));
        let no_policy = || unknown(&format!("policy {}", question.queue));
        let in_force = state.policy_on(&question.queue).ok_or_else(no_policy)?;
        if in_force.quality() == Quality::None {
            return Err(refused(format!("policy {} protects nothing: there is nothing to seal", question.queue)));
        }
        if in_force.encrypt.is_none() && question.reader.is_none() {
            let what = "needs no key to be read: READER says by whose ring signatures are verified";
            return Err(refused(format!("what policy {} seals {what}", question.queue)));
        }
        let opens_by = question.former.as_ref().map(policy).transpose()?.unwrap_or_else(|| in_force.clone());
        let bound_by = [&opens_by, &in_force].map(|policy| state.destinations_on(&question.queue, policy));
        let after = match question.after.as_deref().map(read_place).transpose()? {
            Some((_, begun_by)) if begun_by != print_of(&in_force, &opens_by) => return Err(changed(question)),
            after => after.map(|(place, _)| place),
        };
        Ok(Self {
            manager: manager.clone(),
            queue,
            after,
            destination: state.destination(&question.queue),
            policy: in_force,
            opens_by,
            bound_by,
            chosen: Vec::new(),
            taken: 0,
            bytes: 0,
            began: now,
            is_over: false,
            is_tried: false,
            done: Resealed::default(),
            old_keys: BTreeSet::new(),
            question: question.clone(),
        })
    }

    /// Reads rings, without the queues' lock.
    ///
    /// # Errors
    /// The queue manager has no ring that seals under the policy, its name may not sign, or the reader has no ring.
    pub fn find_keys(&self, now: SystemTime) -> Result<ResealKeys, AdminError> {
        let (manager, instant) = (&self.manager, self.began);
        if self.question.after.is_none() {
            // A key that was changed a moment before is the one that counts.
            manager.sealing.rings.look_again();
        }
        let name = &manager.name;
        let ring = manager.ring(name, instant).map_err(|error| {
            refused(format!("{name} seals what is sealed anew, and its ring can't be used: {error}"))
        })?;
        let sealer = Sealer::new(self.policy.clone(), ring.clone(), Some(name.clone()), now);
        let sealer = sealer.map_err(|error| refused(format!("the ring of {name}: {}: {error}", error.cause())))?;
        if let Some(signer) = sealer
            .signer()
            .filter(|signer| !self.policy.signers.is_empty() && !self.policy.signers.contains(signer.dn()))
        {
            let (policy, dn) = (&self.question.queue, signer.dn());
            return Err(refused(format!(
                "{dn} signs what is sealed anew, and SIGNER of policy {policy} does not name it"
            )));
        }
        let reader = self.question.reader.as_ref().map(|user| {
            let ring = manager.ring(user, instant).map_err(|error| refused(format!("the ring of {user}: {error}")))?;
            Ok((user.clone(), ring))
        });
        Ok(ResealKeys { known: KnownKeys::read(manager, instant), reader: reader.transpose()?, ring, sealer })
    }

    /// Chooses the messages of the next step, and says which bodies are to be read.
    pub fn choose(&mut self, state: &State, keys: &ResealKeys, now: SystemTime) -> Vec<Found> {
        let (mut chosen, now_ms) = (Vec::new(), wall_ms(now));
        let count = STEP_MESSAGES.min(self.question.count.saturating_sub(self.taken));
        let mut lying = state.store.lying(self.queue, self.after);
        while chosen.len() < count && self.done.looked < LOOKED_AT_MAX {
            let Some((found, is_free)) = lying.next() else {
                (self.after, self.is_over) = (None, true);
                return chosen;
            };
            self.done.looked += 1;
            self.after = Some(found.place);
            if found.expires_at_ms.is_some_and(|at| at <= now_ms)
                || !state.store.needed_keys(found.id).is_some_and(|needed| self.is_wanted(&needed, keys))
            {
                continue;
            }
            if is_free { chosen.push(found) } else { self.done.busy += 1 }
        }
        self.taken += chosen.len();
        self.is_over = self.taken == self.question.count || self.done.looked == LOOKED_AT_MAX;
        chosen
    }

    /// Whether another step is to begin.
    pub fn goes_on(&self, now: Instant) -> bool {
        !self.is_over && now.saturating_duration_since(self.began) < STEPS_TIME_MAX
    }

    /// Behind which place the next step begins.
    pub fn place(&self) -> Option<Place> {
        self.after
    }

    /// A step has failed. Where others are done the command ends with what they did, and the next one meets the
    /// failure.
    ///
    /// # Errors
    /// The failure, where nothing is done.
    pub fn fails(&mut self, error: AdminError, from: Option<Place>) -> Result<(), AdminError> {
        if self.done.sealed == 0 {
            return Err(error);
        }
        (self.after, self.is_over) = (from, true);
        Ok(())
    }

    /// Whether a message that these keys open is one to be sealed anew.
    fn is_wanted(&self, needed: &Keys, keys: &ResealKeys) -> bool {
        match (&self.question.select, needed) {
            (Select::All, _) | (_, Keys::Unknown) => true,
            (Select::NotCurrent, Keys::OneOf(names)) => names[..] != keys.sealer.recipients()[..],
            (Select::NotCurrent, Keys::None) => self.policy.encrypt.is_some(),
            (Select::Needs(_), Keys::None) => false,
            (Select::Needs(wanted), Keys::OneOf(names)) => names.iter().any(|name| match KeyName::read(name) {
                Some(KeyName::Certificate { serial, .. }) => serial == *wanted,
                Some(KeyName::Key(id)) => id == *wanted,
                None => false,
            }),
        }
    }

    /// Takes a chosen message. False where no more are taken by this command: the next command begins with it.
    pub fn take(&mut self, found: Found, body: &Chunks, keys: &ResealKeys) -> bool {
        let is_first = self.bytes == 0;
        let held = self.manager.workers.adapters.hold(devices::ASKER, body.len().saturating_mul(4));
        let (Ok(held), true) = (held, is_first || self.bytes + body.len() <= BYTES_MAX) else {
            (self.after, self.is_over) = (Some(found.place.before()), true);
            return false;
        };
        match self.read(found, body, keys, held) {
            Ok(Some(message)) => {
                self.bytes += body.len();
                self.chosen.push(message);
            }
            Ok(None) => {}
            Err(cause) => self.fail(cause),
        }
        true
    }

    fn read(
        &mut self,
        found: Found,
        body: &Chunks,
        keys: &ResealKeys,
        held: Held,
    ) -> Result<Option<Chosen>, &'static str> {
        let arrival = Arrival::read(&payload_of(body), found.put_at_ms).map_err(|_| "malformed")?;
        if !arrival.claims_seal() {
            self.done.clear += 1;
            return Ok(None);
        }
        if arrival.labelled_queue().is_some() {
            // It was sealed for the queue that it came from, and may go back there.
            return Err("labelled");
        }
        let needed = arrival.needed_keys();
        if !self.is_wanted(&needed, keys) {
            return Ok(None);
        }
        let (user, ring) = self.opener_of(&needed, keys)?;
        let names = match needed {
            Keys::OneOf(names) => Some(names),
            Keys::None | Keys::Unknown => None,
        };
        Ok(Some(Chosen { found, arrival, user, ring, names, _held: held }))
    }

    /// Whose ring opens a message.
    fn opener_of(&self, needed: &Keys, keys: &ResealKeys) -> Result<(String, Arc<Ring>), &'static str> {
        if let Some((user, ring)) = &keys.reader {
            return Ok((user.clone(), ring.clone()));
        }
        match needed {
            Keys::Unknown => Err("malformed"),
            // It was signed and no more under the policy before.
            Keys::None => Ok((self.manager.name.clone(), keys.ring.clone())),
            Keys::OneOf(names) => {
                let mut users = names.iter().filter_map(|name| keys.known.get(name)?.users.first());
                let user = users.next().ok_or("no-key-here")?;
                let ring = self.manager.ring(user, self.began).map_err(|_| "no-key-here")?;
                Ok((user.clone(), ring))
            }
        }
    }

    /// The messages that were taken since the last step, which had begun behind the place `from`.
    pub fn step(&mut self, keys: &ResealKeys, from: Option<Place>, now: SystemTime) -> Opening {
        Opening {
            manager: self.manager.clone(),
            policy: self.opens_by.clone(),
            bound_by: self.bound_by[0].clone(),
            destination: self.destination.clone(),
            own: keys.sealer.signer().map(|signer| signer.dn().clone()),
            chosen: std::mem::take(&mut self.chosen),
            from,
            now,
        }
    }

    /// Seals a step's messages anew, without the queues' lock.
    ///
    /// # Errors
    /// What is sealed anew would not open for a reader whose ring is here: nothing is put back.
    pub fn seal_anew(
        &mut self,
        keys: &mut ResealKeys,
        step: OpenStep,
        now: SystemTime,
    ) -> Result<Vec<Anew>, AdminError> {
        let OpenStep { open, failed, .. } = step;
        failed.into_iter().for_each(|cause| self.fail(cause));
        let reader = open.first().map(|first| (first.user.clone(), first.ring.clone()));
        let anew = self.seal(keys, open, now);
        if let (Some(first), Some(reader), false) = (anew.first(), reader, self.is_tried) {
            self.try_readers(keys, first, reader, now)?;
            self.is_tried = true;
        }
        Ok(anew)
    }

    /// Opens one of the messages as each recipient would whose key is here: a reader that does not believe the queue
    /// manager's signature, say, would find all of them defective.
    fn try_readers(
        &self,
        keys: &ResealKeys,
        anew: &Anew,
        reader: (String, Arc<Ring>),
        now: SystemTime,
    ) -> Result<(), AdminError> {
        let _protection = role::enter(Role::Opening);
        let users = keys.sealer.recipients().iter().filter_map(|name| keys.known.get(name)?.users.first());
        let mut readers: Vec<(String, Arc<Ring>)> =
            users.filter_map(|user| Some((user.clone(), self.manager.ring(user, self.began).ok()?))).collect();
        if keys.sealer.recipients().is_empty() {
            readers.push(reader);
        }
        let unreadable = |_| refused("what is sealed anew can't be read".to_owned());
        let arrival = Arrival::read(&payload_of(&anew.message.body), anew.found.put_at_ms).map_err(unreadable)?;
        let (der, expect) = (arrival.sealed_body().map_err(unreadable)?, arrival.expect(self.bound_by[1].clone()));
        let moments = Moments { put_at: from_wall_ms(anew.found.put_at_ms), now };
        let opener = &self.manager.sealing.opener;
        let opened = carry_out(self.manager.workers.devices.scheduler(), readers.len(), readers.len(), |place| {
            let ring = &readers[place].1;
            opener.open_counting(&self.policy, ring, der.clone(), expect.clone(), moments, Tally::new())
        });
        for ((user, _), opened) in readers.iter().zip(opened) {
            if let Err(error) = opened {
                let why = format!("{}: {error}", error.cause());
                return Err(refused(format!(
                    "what is sealed anew would not open for {user}: {why}; nothing is changed"
                )));
            }
        }
        Ok(())
    }

    /// Gives the messages their new bodies, each only if it is still there and no user has it. They are to be synced
    /// before this is answered.
    ///
    /// # Errors
    /// A policy was changed meanwhile; nothing is changed.
    pub fn put_back(&mut self, state: &mut State, anew: Vec<Anew>) -> Result<(), AdminError> {
        let is_in_force = state.policy_on(&self.question.queue).as_ref() == Some(&self.policy);
        let former = self.question.former.as_ref();
        let is_kept = |name: &String| state.definitions.policies.get(name) == Some(&self.opens_by);
        if !is_in_force || !former.is_none_or(is_kept) {
            return Err(changed(&self.question));
        }
        for Anew { found, names, message } in anew {
            match state.store.replace(found.id, message.body, &message.keys) {
                Ok(Replaced::Done(_)) => {
                    self.done.sealed += 1;
                    self.old_keys.extend(names.iter().flat_map(|names| names.iter()).map(|name| key_text(name)));
                }
                Ok(Replaced::Busy) => self.done.busy += 1,
                Ok(Replaced::Gone) => self.done.gone += 1,
                Err(PutError::TooBig { .. }) => self.fail("too-long"),
                Err(_) => self.fail("journal"),
            }
        }
        if self.done.sealed > 0 {
            // Who has passed over one of them may be able to open it now.
            let usage = state.use_of(self.queue);
            (usage.resealed, usage.arrivals) = (usage.resealed + 1, usage.arrivals + 1);
        }
        Ok(())
    }

    /// A chosen message is gone.
    pub fn went(&mut self) {
        self.done.gone += 1;
    }

    /// A chosen message can't be read.
    pub fn is_unreadable(&mut self) {
        self.fail("unreadable");
    }

    /// What was done.
    pub fn done(self, keys: &ResealKeys) -> Resealed {
        let few = |keys: BTreeSet<String>| keys.into_iter().take(KEYS_NAMED_MAX).collect();
        Resealed {
            old_keys: few(self.old_keys),
            new_keys: few(keys.sealer.recipients().iter().map(|name| key_text(name)).collect()),
            signer: keys.sealer.signer().map(|signer| signer.dn().to_string()),
            after: self.after.map(|place| place_text(place, print_of(&self.policy, &self.opens_by))),
            ..self.done
        }
    }

    fn seal(&mut self, keys: &mut ResealKeys, open: Vec<Open>, now: SystemTime) -> Vec<Anew> {
        let _protection = role::enter(Role::Sealing);
        // One after the other they find the content key that the one before has left.
        let reuses = self.policy.quality() == Quality::Confidentiality && self.policy.key_reuse != KeyReuse::Never;
        let window = if reuses { 1 } else { open.len() };
        let mut tallies = Vec::with_capacity(open.len());
        let sealer = &mut keys.sealer;
        let start = |place: usize| -> Result<Step<Sealed, SealError>, SealError> {
            let Open { content, bound, on_behalf_of, .. } = &open[place];
            let tally = Tally::new();
            tallies.push(tally.clone());
            sealer.reseal_counting(content.clone(), bound, on_behalf_of, now, &mut SystemRandom, &tally)
        };
        let sealed = carry_out(self.manager.workers.devices.scheduler(), open.len(), window, start);
        let key = keys.sealer.signer();
        let key = key.map(|key| self.manager.told.audit.key(keys.ring.user(), Some(key), Purpose::Seal));
        let mut anew = Vec::with_capacity(open.len());
        for ((open, sealed), tally) in open.into_iter().zip(sealed).zip(tallies) {
            let cost = Cost::from(tally.effort());
            if let Some(key) = key.as_ref().filter(|_| cost.effort.signs > 0) {
                key.add(1, cost.effort.signs);
            }
            let deed = if sealed.is_ok() { Deed::Sealed } else { Deed::FailedToSeal };
            self.manager.counts.accounts.note(&self.policy.name, deed, &cost);
            match sealed {
                Ok(sealed) => {
                    let Open { found, names, envelope, .. } = open;
                    anew.push(Anew { found, names, message: envelope.sealed(sealed) });
                }
                Err(error) => self.fail(error.cause()),
            }
        }
        anew
    }

    fn fail(&mut self, cause: &'static str) {
        self.manager.counts.accounts.fail(&self.opens_by.name, cause);
        *self.done.failed.entry(cause.to_owned()).or_default() += 1;
    }
}

impl Opening {
    /// Opens the messages.
    pub fn open(self) -> OpenStep {
        let _protection = role::enter(Role::Opening);
        let Opening { manager, policy, bound_by, destination, own, chosen, from, now } = self;
        let mut tallies = Vec::with_capacity(chosen.len());
        let opened: Vec<Result<Verified<Opened>, OpenError>> =
            carry_out(manager.workers.devices.scheduler(), chosen.len(), chosen.len(), |place| {
                let tally = Tally::new();
                tallies.push(tally.clone());
                let Chosen { found, arrival, ring, .. } = &chosen[place];
                let malformed = |_| OpenError::Malformed { what: "a sealed message has one data section" };
                let der = arrival.sealed_body().map_err(malformed)?;
                let expect = arrival.expect(bound_by.clone());
                let moments = Moments { put_at: from_wall_ms(found.put_at_ms), now };
                manager.sealing.opener.open_counting(&policy, ring, der, expect, moments, tally)
            });
        let mut step = OpenStep { open: Vec::with_capacity(chosen.len()), failed: Vec::new(), from };
        for ((message, opened), tally) in chosen.into_iter().zip(opened).zip(tallies) {
            let cost = Cost::from(tally.effort());
            if cost.effort.unwraps > 0 {
                manager.told.audit.key(&message.user, None, Purpose::Open).add(1, cost.effort.unwraps);
            }
            let deed = if opened.is_ok() { Deed::Opened } else { Deed::FailedToOpen };
            manager.counts.accounts.note(&policy.name, deed, &cost);
            let unfolded = opened.map_err(|error| error.cause());
            match unfolded.and_then(|opened| unfold(message, opened, own.as_ref(), &destination, now)) {
                Ok(message) => step.open.push(message),
                Err(cause) => step.failed.push(cause),
            }
        }
        step
    }
}

impl OpenStep {
    /// Behind which place the step began.
    pub fn from(&self) -> Option<Place> {
        self.from
    }
}

/// What is sealed anew of an opened message, and what is said of it.
fn unfold(
    message: Chosen,
    opened: Verified<Opened>,
    own: Option<&Dn>,
    destination: &str,
    now: SystemTime,
) -> Result<Open, &'static str> {
    let Chosen { found, arrival, user, ring, names, _held } = message;
    let Opened { content, seal } = opened.into_inner();
    let on_behalf_of = OnBehalfOf::after(&seal, own, now).ok_or("too-many-signers")?;
    let (envelope, bound) = arrival.into_former(destination.to_owned()).ok_or("no-message-id")?;
    Ok(Open { found, user, ring, names, envelope, bound, content, on_behalf_of, _held })
}

/// A key as messages name it, in words.
fn key_text(name: &[u8]) -> String {
    match KeyName::read(name) {
        Some(KeyName::Certificate { issuer, serial }) => format!("{serial} of {issuer}"),
        Some(KeyName::Key(id)) => id,
        None => String::new(),
    }
}

/// What tells the policies of one reseal from those that a change would leave: the next command is refused then.
fn print_of(in_force: &Policy, opens_by: &Policy) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{in_force:?}{opens_by:?}").hash(&mut hasher);
    hasher.finish()
}

/// A place, and by which policies it was reached, as the answer has them.
fn place_text(place: Place, print: u64) -> String {
    let (lane, id) = place.parts();
    format!("{lane}.{id}.{print:016x}")
}

fn read_place(text: &str) -> Result<(Place, u64), AdminError> {
    let mut parts = text.split('.');
    let mut next = || parts.next().filter(|part| !part.starts_with('+'));
    let place = next().zip(next()).and_then(|(lane, id)| Place::of_parts(lane.parse().ok()?, id.parse().ok()?));
    let print = next().and_then(|print| u64::from_str_radix(print, 16).ok());
    let read = place.zip(print).filter(|_| parts.next().is_none());
    read.ok_or_else(|| refused(format!("{text} is no place that an answer has named")))
}

/// The messages before were sealed under another policy, or opened by another one.
fn changed(question: &ResealQuestion) -> AdminError {
    let former = question.former.as_ref().map_or_else(String::new, |former| format!(" or {former}"));
    refused(format!("policy {}{former} was changed while messages were sealed anew: begin again", question.queue))
}

/// 2063, as of all that concerns protection.
fn refused(detail: String) -> AdminError {
    AdminError::Failed { reason: reason::SECURITY_ERROR.code.into(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_and_read_back_and_what_is_none_is_refused() {
        let place = Place::of_parts(9, u64::MAX).unwrap();
        for print in [0, 0xf00, u64::MAX] {
            assert_eq!(read_place(&place_text(place, print)).ok(), Some((place, print)));
        }
        for bad in [
            "",
            ".",
            "1",
            "1.5",
            "10.5.0",
            "-1.5.0",
            "256.1.0",
            "1.-1.0",
            "1.2.3.4",
            "1.2.",
            "1.2.x",
            "1.2.+3",
            "1.2.10000000000000000",
            "1.99999999999999999999.0",
        ] {
            assert!(read_place(bad).is_err(), "{bad}");
        }
    }
}
