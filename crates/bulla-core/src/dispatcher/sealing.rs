//! Sealing and checking what arrives, by a client's link or a channel. The messages of one link are with
//! the adapters at the same time; the link keeps them in their order.

use crate::accounting::Cost;
use crate::adapter::{Asker, Held, MaySign, Outcome, SealingMemoryFull, Work};
use crate::audit::{KeyUse, Purpose};
use crate::catalog::status::{Deed, ProtectionMeters};
use crate::envelope::{Arrival, Envelope};
use crate::manager::{Manager, Route, State};
use crate::maps::HashMap;
use crate::ordered_line::{self, LineFull, OrderedLine};
use crate::random::Random;
use crate::reason::{self, Refusal};
use bulla_device::SystemRandom;
use bulla_device::role::{self, Role};
use bulla_queue::Message;
use bulla_seal::policy::{Quality, SealedAt, Toleration};
use bulla_seal::ring::Ring;
use bulla_seal::{Bound, Content, Opened, Policy, SealError, Sealer, Step, Tally};
use bytes::Bytes;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Messages up to this many bytes are sealed with a live content key on the dispatcher itself: waking
/// an adapter costs more than the cipher does.
const SEAL_INLINE_BYTES_MAX: usize = 64 << 10;
/// Policies that one link keeps a sealer for; beyond it all sealers are made anew, and their content keys end.
const SEALINGS_MAX: usize = 1_024;

/// What a link seals with: valid for one policy and one state of the ring.
pub struct Sealing {
    pub(crate) policy: Arc<Policy>,
    ring: Arc<Ring>,
    sealer: LinkSealer,
}

/// A link's sealer, and the counter of the key that it signs with.
#[derive(Clone)]
pub struct LinkSealer {
    sealer: Arc<Mutex<Sealer>>,
    key: Option<Arc<KeyUse>>,
}

/// What a link to several queues seals with, by policy.
#[derive(Default)]
pub struct Sealings(HashMap<String, Option<Sealing>>);

/// How far a message has come on its way through the adapters.
pub type Stage = ordered_line::Stage<Away, Result<Message, Refusal>>;

/// The messages of a link that are being sealed or checked.
pub type SealingLine<T> = OrderedLine<T, Away, Result<Message, Refusal>>;

/// What an adapter does to a message: how to build the message once it is sealed, or the message as it arrived.
pub enum Away {
    /// It is sealed: how the message is built then, by which policy, and the counter of the key.
    Sealing(Box<Envelope>, Arc<Policy>, Option<Arc<KeyUse>>),
    /// A client's own seal is checked: the message as it arrived, and by which policy.
    Checking(Box<Message>, Arc<Policy>),
}

/// What is to be done with a message before it is put.
pub enum Treatment {
    /// It goes on the queue as it is.
    AsIs,
    /// It claims to be sealed: the claim is checked.
    Check(Arc<Policy>),
    /// The queue manager seals it.
    Seal(Arc<Policy>),
}

/// One message for the adapters: whose it is, as whom devices are asked, and where it goes.
pub struct Task<'a> {
    pub(crate) asker: Asker,
    pub(crate) who: &'a bulla_device::Asker,
    /// Its memory; none where it goes as it is.
    pub held: Option<Held>,
    pub(crate) route: &'a Route,
    /// What a seal is bound to, where that is not the destination of the route.
    pub bound_to: Option<String>,
    /// What the link seals with under the policy of the route.
    pub sealing: &'a mut Option<Sealing>,
    /// Whose name the message is put in.
    pub user: Option<&'a str>,
    /// Where it is counted beside its policy: at the channel that brought it.
    pub also: Option<&'a mut ProtectionMeters>,
}

/// What sealing takes of its dispatcher.
pub struct Means<'a> {
    /// Whose adapters, accounts and audit log.
    pub manager: &'a Arc<Manager>,
    /// Now, for certificates and content keys.
    pub wall: SystemTime,
    /// For what a message has of its own outside its seal.
    pub random: &'a mut Random,
}

impl Sealing {
    /// What a link seals with, made anew where the policy or the ring has changed.
    pub fn renewed(
        slot: &mut Option<Self>,
        policy: &Arc<Policy>,
        ring: Arc<Ring>,
        sealed_by: &str,
        (manager, wall): (&Manager, SystemTime),
    ) -> Result<LinkSealer, Refusal> {
        let valid = |sealing: &&Self| Arc::ptr_eq(&sealing.policy, policy) && Arc::ptr_eq(&sealing.ring, &ring);
        if let Some(sealing) = slot.as_ref().filter(valid) {
            return Ok(sealing.sealer.clone());
        }
        let _protection = role::enter(Role::Sealing);
        let sealer = Sealer::new(policy.clone(), ring.clone(), Some(sealed_by.to_owned()), wall);
        let sealer = sealer.map_err(|error| seal_refusal(&error))?;
        let key = sealer.signer().map(|key| manager.told.audit.key(ring.user(), Some(key), Purpose::Seal));
        let sealer = LinkSealer { sealer: Arc::new(Mutex::new(sealer)), key };
        *slot = Some(Self { policy: policy.clone(), ring, sealer: sealer.clone() });
        Ok(sealer)
    }
}

impl Sealings {
    /// What the link seals with under a policy. A policy of the same name takes the place of an older one.
    pub fn of(&mut self, policy: &Policy) -> &mut Option<Sealing> {
        if self.0.len() >= SEALINGS_MAX && !self.0.contains_key(&policy.name) {
            self.0.clear();
        }
        self.0.entry_ref(&policy.name).or_default()
    }
}

impl Treatment {
    /// The policy that it is done by; none where nothing is done.
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        match self {
            Self::AsIs => None,
            Self::Check(policy) | Self::Seal(policy) => Some(policy),
        }
    }

    /// What a queue's policy asks for. `seals_itself` says that the client seals its messages, `queue` is the name that
    /// a refusal has.
    pub fn of(
        policy: Option<&Arc<Policy>>,
        seals_itself: bool,
        queue: &dyn Display,
        arrival: &Arrival,
    ) -> Result<Self, Refusal> {
        let Some(policy) = policy else { return Ok(Self::AsIs) };
        if arrival.claims_seal() {
            return Ok(Self::Check(policy.clone()));
        }
        if policy.quality() == Quality::None {
            return Ok(Self::AsIs);
        }
        if !seals_itself {
            return match policy.sealed_at {
                SealedAt::Any => Ok(Self::Seal(policy.clone())),
                SealedAt::Client => Err(Refusal::security(
                    "sealed-at-client",
                    format!("{queue}: the policy asks the application to seal"),
                )),
            };
        }
        match policy.toleration {
            Toleration::Tolerate => Ok(Self::AsIs),
            Toleration::Enforce => {
                Err(Refusal::security(policy.cause_of_clear(), "a clear message on a link that seals for itself"))
            }
        }
    }
}

impl Task<'_> {
    /// Begins what a message needs before it is put. `ring` is what the link checks and seals with; none where it may
    /// check the form of a seal alone, or the message goes as it is.
    pub fn begin(
        self,
        treatment: Treatment,
        means: Means<'_>,
        state: &State,
        ring: Option<Arc<Ring>>,
        arrival: Arrival,
    ) -> Result<Stage, Refusal> {
        match treatment {
            Treatment::AsIs => Ok(Stage::Ready(Ok(arrival.into_message(self.route.defaults, self.user)))),
            Treatment::Check(policy) => {
                let destinations = state.destinations(self.route, &policy, None);
                self.check(&means, &policy, ring, destinations, arrival)
            }
            Treatment::Seal(policy) => {
                let none = || Refusal::security("key-ring", "the link has no key ring to seal with");
                let ring = ring.ok_or_else(none)?;
                let sealed_by = &state.definitions.queue_manager.name;
                let sealer = Sealing::renewed(self.sealing, &policy, ring, sealed_by, (means.manager, means.wall))?;
                let bound_to = self.bound_to.clone().unwrap_or_else(|| state.bound_to(self.route));
                self.seal(means, &policy, sealer, bound_to, arrival)
            }
        }
    }

    /// Has a message checked that claims to be sealed; without a ring its form alone.
    fn check(
        self,
        means: &Means<'_>,
        policy: &Arc<Policy>,
        ring: Option<Arc<Ring>>,
        destinations: Vec<String>,
        arrival: Arrival,
    ) -> Result<Stage, Refusal> {
        let _protection = role::enter(Role::Sealing);
        let expect = arrival.expect(destinations);
        let der = arrival.sealed_body()?;
        let (manager, under, now) = (means.manager.clone(), policy.clone(), means.wall);
        let tally = Tally::new();
        let counted = tally.clone();
        let work = Work::Check(Arc::new(move || match &ring {
            Some(ring) => {
                manager.sealing.opener.check_arrived_counting(&under, ring, &der, &expect, now, counted.clone())
            }
            None => {
                manager.sealing.opener.check_form_counting(&under, &der, &expect, now, counted.clone()).map(Step::Done)
            }
        }));
        means.manager.workers.adapters.submit(self.asker, self.who, work, tally, self.held);
        let message = Box::new(arrival.into_message(self.route.defaults, self.user));
        Ok(Stage::Away(Away::Checking(message, policy.clone())))
    }

    /// Has a clear message sealed for `destination`, or seals it here where that takes no device.
    fn seal(
        self,
        means: Means<'_>,
        policy: &Arc<Policy>,
        LinkSealer { sealer, key }: LinkSealer,
        destination: String,
        arrival: Arrival,
    ) -> Result<Stage, Refusal> {
        let _protection = role::enter(Role::Sealing);
        let (envelope, content, bound) =
            arrival.into_envelope(self.route.defaults, destination, means.random, self.user)?;
        let room = self.route.message_bytes_max.saturating_sub(envelope.overhead());
        let now = means.wall;
        if content.bytes.len() <= SEAL_INLINE_BYTES_MAX && policy.quality() == Quality::Confidentiality {
            // Never waits: an adapter that is sealing the link's last message keeps the sealer.
            if let Ok(mut free) = sealer.try_lock()
                && free.has_live_key(now)
            {
                free.check_len(&content, &bound, room).map_err(|error| seal_refusal(&error))?;
                return self.seal_here(policy, (&mut free, key), &means, envelope, content, &bound);
            }
        }
        let tally = Tally::new();
        let counted = tally.clone();
        let start = Box::new(move || {
            let mut sealer = sealer.lock().unwrap_or_else(PoisonError::into_inner);
            sealer.check_len(&content, &bound, room)?;
            sealer.seal_counting(content, &bound, now, &mut SystemRandom, &counted)
        });
        let may_sign = match policy.sign_batch {
            0 | 1 => MaySign::Alone,
            _ if policy.encrypt.is_some() => MaySign::OnceWrapped(policy.clone()),
            _ => MaySign::Together(policy.clone()),
        };
        let work = Work::Seal(start, may_sign);
        means.manager.workers.adapters.submit(self.asker, self.who, work, tally, self.held);
        Ok(Stage::Away(Away::Sealing(Box::new(envelope), policy.clone(), key)))
    }

    /// With a live content key sealing is a cipher's work alone.
    fn seal_here(
        self,
        policy: &Arc<Policy>,
        (sealer, key): (&mut Sealer, Option<Arc<KeyUse>>),
        means: &Means<'_>,
        envelope: Envelope,
        content: Content,
        bound: &Bound,
    ) -> Result<Stage, Refusal> {
        let tally = Tally::new();
        match sealer.seal_counting(content, bound, means.wall, &mut SystemRandom, &tally) {
            Ok(Step::Done(sealed)) => {
                let cost = tally.effort().into();
                count_use(key.as_deref(), &cost);
                note(means.manager, policy, self.also, Deed::Sealed, &cost);
                Ok(Stage::Ready(Ok(envelope.sealed(sealed))))
            }
            Ok(step @ (Step::Device(..) | Step::Leaf(..))) => {
                means.manager.workers.adapters.submit(
                    self.asker,
                    self.who,
                    Work::Seal(Box::new(move || Ok(step)), MaySign::Alone),
                    tally,
                    self.held,
                );
                Ok(Stage::Away(Away::Sealing(Box::new(envelope), policy.clone(), key)))
            }
            Err(error) => {
                let cost = tally.effort().into();
                note(means.manager, policy, self.also, Deed::FailedToSeal, &cost);
                Err(seal_refusal(&error))
            }
        }
    }
}

impl Away {
    /// What an adapter made of the message; what it took is counted with the policy, and in `also`.
    pub fn answered(
        self,
        manager: &Manager,
        outcome: Outcome,
        cost: &Cost,
        also: Option<&mut ProtectionMeters>,
    ) -> Result<Message, Refusal> {
        let _protection = role::enter(Role::Sealing);
        let (deed, policy) = match (&self, &outcome) {
            (Self::Sealing(_, policy, _), Outcome::Sealed(Ok(_))) => (Deed::Sealed, policy),
            (Self::Sealing(_, policy, _), _) => (Deed::FailedToSeal, policy),
            (Self::Checking(_, policy), Outcome::Checked(Ok(()))) => (Deed::Checked, policy),
            (Self::Checking(_, policy), _) => (Deed::FailedToOpen, policy),
        };
        note(manager, policy, also, deed, cost);
        if let Self::Sealing(_, _, key) = &self {
            // Of a batch only one message took a signature.
            let is_signed = cost.effort.signs > 0 || matches!(outcome, Outcome::Sealed(Ok(_)));
            count_use(key.as_deref().filter(|_| is_signed), cost);
        }
        match (self, outcome) {
            (Self::Sealing(envelope, ..), Outcome::Sealed(Ok(sealed))) => Ok(envelope.sealed(sealed)),
            (Self::Sealing(..), Outcome::Sealed(Err(error))) => Err(seal_refusal(&error)),
            (Self::Checking(message, _), Outcome::Checked(Ok(()))) => Ok(*message),
            (Self::Checking(..), Outcome::Checked(Err(error))) => {
                Err(Refusal::security(error.cause(), error.to_string()))
            }
            _ => Err(Refusal::new(reason::RESOURCE_PROBLEM, "an adapter answered another question")),
        }
    }
}

/// Counts a message that the key signed, alone or with others.
fn count_use(key: Option<&KeyUse>, cost: &Cost) {
    if let Some(key) = key {
        key.add(1, cost.effort.signs);
    }
}

/// What links that open count of the keys in the ring they open with.
#[derive(Default)]
pub struct OpeningKeys {
    /// Keys that were used last, by the name that messages have for them.
    known: Vec<(Bytes, Arc<KeyUse>)>,
    /// For what could not be opened: it is not said with which of the keys that was tried.
    unknown: Option<Arc<KeyUse>>,
}

/// Keys of one ring that a link knows at a time.
const KEYS_KNOWN_MAX: usize = 8;

impl OpeningKeys {
    /// A message was opened, or not. For one under a key that the link knows: a compare and an addition, or two.
    pub fn note(
        &mut self,
        manager: &Manager,
        user: &str,
        opened: Option<&Opened>,
        cost: &Cost,
        ring: impl FnOnce() -> Option<Arc<Ring>>,
    ) {
        let unwraps = cost.effort.unwraps;
        let audit = &manager.told.audit;
        let Some(opened) = opened else {
            if unwraps > 0 {
                self.unknown.get_or_insert_with(|| audit.key(user, None, Purpose::Open)).add(1, unwraps);
            }
            return;
        };
        let recipients = &opened.seal.recipients;
        if recipients.is_empty() {
            return; // signed only: no key of the reader's
        }
        if let Some((_, key)) = self.known.iter().find(|(name, _)| recipients.contains(name)) {
            return key.add(1, unwraps);
        }
        let ring = ring();
        let own = |name: &Bytes| Some((name.clone(), ring.as_ref()?.find_own(name)?.certificate.clone()));
        let Some((name, certificate)) = recipients.iter().find_map(own) else {
            // The ring was replaced meanwhile, or the message names its recipients by their keys alone.
            return self.unknown.get_or_insert_with(|| audit.key(user, None, Purpose::Open)).add(1, unwraps);
        };
        let key = audit.key(user, Some(&certificate), Purpose::Open);
        key.add(1, unwraps);
        if self.known.len() >= KEYS_KNOWN_MAX {
            self.known.clear();
        }
        self.known.push((name, key));
    }
}

/// Counts what a message took, with its policy and at its channel.
fn note(manager: &Manager, policy: &Policy, also: Option<&mut ProtectionMeters>, deed: Deed, cost: &Cost) {
    manager.counts.accounts.note(&policy.name, deed, cost);
    if let Some(meters) = also {
        meters.note(deed, &cost.effort, &cost.wait);
    }
}

pub(crate) fn sealing_memory(full: SealingMemoryFull) -> Refusal {
    Refusal::new(
        reason::STORAGE_NOT_AVAILABLE,
        format!("{} of {} bytes for sealing are taken; put again later", full.held, full.limit),
    )
}

/// A message finds no room in its link's line.
pub fn line_full(full: LineFull) -> Refusal {
    Refusal::new(reason::STORAGE_NOT_AVAILABLE, format!("{full}; put again later"))
}

fn seal_refusal(error: &SealError) -> Refusal {
    if error.reason_code() == u32::from(reason::MSG_TOO_BIG_FOR_Q.code) {
        return Refusal::new(reason::MSG_TOO_BIG_FOR_Q, error.to_string());
    }
    Refusal::security(error.cause(), error.to_string())
}
