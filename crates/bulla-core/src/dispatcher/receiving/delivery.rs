//! What becomes of a message that a channel brought: the way to its queue, and what SPLPROT asks on that way.

use crate::adapter::{Asker, Held};
use crate::asker::Who;
use crate::authority::Right;
use crate::catalog;
use crate::catalog::status::ProtectionMeters;
use crate::catalog::system_queues::SYSTEM_PREFIX;
use crate::catalog::{Protection, Transmission};
use crate::channel::transmission::{self, Destination};
use crate::denials;
use crate::dispatcher::local::{Local, no_ring};
use crate::dispatcher::sealing::{Sealings, Stage, Task, Treatment, sealing_memory};
use crate::envelope::{Arrival, Defaults, chunks_of, payload_of};
use crate::manager::{Route, State, not_resolved};
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use crate::refusals::stores_mixed;
use crate::rights::no_identity_right;
use bulla_amqp::{Payload, Sections};
use bulla_queue::{Keys, Message, StoreNumber, User};
use bulla_seal::Policy;
use bulla_seal::policy::{Quality, SealedAt, Toleration};
use bytes::Bytes;
use std::sync::Arc;

/// Ways that one link remembers; beyond it all are looked up again.
const WAYS_MAX: usize = 1_024;

/// Where a destination leads.
pub struct Way {
    /// The queue here: the destination's own, or a transmission queue.
    pub route: Route,
    /// The resolved destination: what a seal is bound to.
    pub destination: Destination,
    /// Messages on it may name any user.
    any_user: bool,
}

impl Way {
    /// The way to a queue, here or at another queue manager.
    pub fn find(state: &State, to: &Destination) -> Result<Self, Refusal> {
        let own = &state.definitions.queue_manager.name;
        let here = |route: Route| {
            // A shared queue's messages are bound to its group.
            let manager = match route.queue.store() {
                StoreNumber::LOCAL => own.clone(),
                group => state.store.store_name(group).to_owned(),
            };
            let destination = Destination { queue: route.queue_name.clone(), manager };
            Self { route, destination, any_user: true }
        };
        // A dynamic queue is in no definition; replies go to it.
        if to.manager == *own && state.temporary.queues.contains_key(&to.queue) {
            return state.route(&to.queue).map(here);
        }
        let name = to.to_string();
        match state.definitions.resolve_put(&name).map_err(|error| not_resolved(&name, error))? {
            catalog::Destination::Local(found) => state.route_resolved(&name, &found).map(here),
            catalog::Destination::Remote(found) => Self::onward(state, &name, &found),
        }
    }

    fn onward(state: &State, name: &str, found: &Transmission<'_>) -> Result<Self, Refusal> {
        let destination = Destination { queue: found.remote_name.clone(), manager: found.remote_manager.clone() };
        Ok(Self { route: state.route_remote(name, found)?, destination, any_user: true })
    }

    /// The message as it goes on the queue here.
    pub fn dressed(&self, message: Message) -> Message {
        match &self.route.transmission {
            Some(header) => header.put_on(message),
            None => message,
        }
    }
}

/// What a receiving link needs beside the messages: how it delivers them.
pub struct Delivery {
    /// SPLPROT
    protection: Protection,
    /// Whose ring it seals with, and in whose name messages are put: MCAUSER, or the queue manager.
    user: User,
    /// Where messages go that do not say where to; a partner that is not ours says nothing.
    target: Option<Destination>,
    /// The group that the channel belongs to, and its store: what comes goes on queues of that alone.
    group: Option<(String, StoreNumber)>,
    ways: HashMap<Destination, Arc<Way>>,
    /// The last transmission header and where it led: most messages go where the one before went.
    last: Option<(Bytes, Arc<Way>)>,
    sealings: Sealings,
    /// The last policy with SEALEDAT(CLIENT) of which a message was buried, and the one that seals such dead letters.
    stand_in: Option<(Arc<Policy>, Arc<Policy>)>,
    /// As whom it asks for devices.
    who: bulla_device::Asker,
    /// What protection did here since the status was last written.
    pub meters: ProtectionMeters,
}

/// A message on its way to a queue.
pub struct Prepared {
    pub(crate) way: Option<Arc<Way>>,
    pub(crate) stage: Stage,
    /// Its memory while it is sealed or checked.
    pub held: Option<Held>,
    /// It asks to be told what becomes of it.
    pub asks: bool,
}

impl Delivery {
    /// A channel's deliveries as SPLPROT says, by the rights of `user`; all to `target` where there is one. A channel
    /// of a group puts on queues of its store.
    pub fn new(
        protection: Protection,
        user: &str,
        target: Option<Destination>,
        group: Option<(String, StoreNumber)>,
        who: bulla_device::Asker,
    ) -> Self {
        let (ways, sealings) = (HashMap::default(), Sealings::default());
        let meters = ProtectionMeters::default();
        Self { protection, user: user.into(), target, group, ways, last: None, sealings, stand_in: None, who, meters }
    }

    /// Whether messages are sealed here as their queues' policies say: SPLPROT(ASPOLICY).
    pub fn seals(&self) -> bool {
        self.protection == Protection::AsPolicy
    }

    /// Nothing more is asked of devices.
    pub fn leave(&self) {
        self.who.leave();
    }

    /// Hot path, once per message: finds its queue, and begins what SPLPROT asks for.
    pub fn prepare(&mut self, local: &mut Local, state: &State, asker: Asker, payload: &Payload) -> Prepared {
        let (mut way, mut asks) = (None, false);
        let result = Arrival::read(payload, local.wall_ms).and_then(|mut arrival| {
            // A key was the first queue manager's to heed.
            drop(arrival.take_label_off()?);
            // One that asks, and names no queue for the answer, is not told.
            asks = arrival.asks_for_reports().unwrap_or(false);
            let way = &*way.insert(self.way(state, &arrival)?);
            if !way.any_user && !arrival.is_by(Some(self.user.as_str())) {
                return Err(no_identity_right(&way.destination.to_string()));
            }
            if asks && let Some(reply_to) = arrival.reply_to()? {
                let reply_to = state.queue_address(&reply_to);
                state.check(Who::channel(self.user.as_str()), Right::Put, &reply_to)?;
            }
            let arrival = arrival.taken_off();
            arrival.check_sections()?;
            self.treat(local, state, asker, way, arrival)
        });
        let (stage, held) = result.unwrap_or_else(|refusal| {
            denials::tell(&local.manager, local.now, "a channel's", Some(self.user.as_str()), &refusal);
            (Stage::Ready(Err(refusal)), None)
        });
        Prepared { way, stage, held, asks }
    }

    /// A message as it came, without its transmission header, for the dead-letter queue; one that is no message at all
    /// is kept as it is.
    pub fn as_it_came(&self, payload: &Payload, persistent: bool, wall_ms: u64) -> Message {
        let message = match Arrival::read(payload, wall_ms) {
            Ok(arrival) => arrival.taken_off().into_message(Defaults::default(), None),
            Err(_) => Message {
                priority: Defaults::default().priority,
                persistent,
                expires_at_ms: None,
                available_at_ms: None,
                put_at_ms: wall_ms,
                user: None,
                keys: Keys::None,
                body: chunks_of(payload.clone()),
            },
        };
        Message { user: Some(self.user.clone()), ..message }
    }

    /// Where a message says that it goes, or where all go that say nothing. Of a damaged one the front is enough.
    pub fn wanted(&self, payload: &Payload) -> Option<Destination> {
        let sections = Sections::scan(payload).ok().or_else(|| Sections::front(payload));
        let said = sections.and_then(|sections| transmission::destination(payload, &sections));
        said.or_else(|| self.target.clone())
    }

    /// The policy that encrypts what goes to a destination, where this channel seals: what is for it comes to no disk
    /// in clear. `way` is the way there, where one was found.
    pub fn secrecy(&self, state: &State, to: &Destination, way: Option<&Way>) -> Option<Arc<Policy>> {
        let to = self.here(state, to.clone());
        let found = || match Way::find(state, &to) {
            Ok(way) => way.route.policy,
            Err(_) => state.definitions.policies.get(&to.queue).cloned(),
        };
        let policy = way.map_or_else(found, |way| way.route.policy.clone());
        policy.filter(|policy| self.protection == Protection::AsPolicy && policy.encrypt.is_some())
    }

    fn way(&mut self, state: &State, arrival: &Arrival) -> Result<Arc<Way>, Refusal> {
        let header = arrival.delivery_annotations();
        if let Some((last, way)) = &self.last
            && *last == header
            && way.route.generation == state.generations.definitions
        {
            return Ok(way.clone());
        }
        let to = arrival.destination().or_else(|| self.target.clone()).ok_or_else(|| {
            Refusal::new(reason::UNKNOWN_OBJECT_NAME, "the message has no transmission header that says where to")
        })?;
        let to = self.here(state, to);
        let way = match self.ways.get(&to).filter(|way| way.route.generation == state.generations.definitions) {
            Some(way) => way.clone(),
            None => {
                let rights = state.check(Who::channel(self.user.as_str()), Right::Put, &to.to_string())?;
                let any_user = rights.has(Right::SetIdentity);
                let way = Arc::new(Way { any_user, ..Way::find(state, &to)? });
                if let Some((group, store)) = &self.group
                    && way.route.queue.store() != *store
                {
                    // The number is noted where the message lies, or it would not be there once after a takeover.
                    let queue = &way.route.queue_name;
                    return Err(stores_mixed(format!("{to}: {queue} is no queue of {group}, as its channel is")));
                }
                if self.ways.len() >= WAYS_MAX {
                    self.ways.clear();
                }
                self.ways.insert(to, way.clone());
                way
            }
        };
        self.last = Some((header, way.clone()));
        Ok(way)
    }

    /// A partner knows the group, and not which queue manager owns it: `QUEUE@GROUP` is a queue here.
    fn here(&self, state: &State, to: Destination) -> Destination {
        match &self.group {
            Some((group, _)) if to.manager == *group => {
                Destination { manager: state.definitions.queue_manager.name.clone(), ..to }
            }
            _ => to,
        }
    }

    fn treat(
        &mut self,
        local: &mut Local,
        state: &State,
        asker: Asker,
        way: &Way,
        arrival: Arrival,
    ) -> Result<(Stage, Option<Held>), Refusal> {
        let policy = way.route.policy.as_ref().filter(|_| self.protection == Protection::AsPolicy);
        let treatment = Treatment::of(policy, false, &way.destination, &arrival)?;
        if let Treatment::AsIs = treatment {
            // The usual case: the name of the user is shared by all messages of the link.
            let message = Message { user: Some(self.user.clone()), ..arrival.into_message(way.route.defaults, None) };
            return Ok((Stage::Ready(Ok(message)), None));
        }
        self.begin(local, state, asker, way, (treatment, None), arrival)
    }

    /// Begins what a message needs before it is put. A seal is bound to `bound_to`, or to where the way leads.
    fn begin(
        &mut self,
        local: &mut Local,
        state: &State,
        asker: Asker,
        way: &Way,
        (treatment, bound_to): (Treatment, Option<String>),
        arrival: Arrival,
    ) -> Result<(Stage, Option<Held>), Refusal> {
        let Self { user, who, sealings, meters, .. } = self;
        let user = user.as_str();
        let mut unkept = None;
        let (sealing, held) = match treatment.policy() {
            None => (&mut unkept, None),
            // The message and its sealed form, until it is on the queue.
            Some(policy) => {
                let held = local
                    .manager
                    .workers
                    .adapters
                    .hold(who.number(), arrival.bytes().saturating_mul(2))
                    .map_err(sealing_memory)?;
                (sealings.of(policy), Some(held))
            }
        };
        let route = &way.route;
        let task =
            Task { asker, who, held: held.clone(), route, bound_to, sealing, user: Some(user), also: Some(meters) };
        let ring = match treatment {
            Treatment::AsIs => None,
            _ => Some(local.manager.ring(user, local.now).map_err(|error| no_ring(user, &error))?),
        };
        Ok((task.begin(treatment, local.means(), state, ring, arrival)?, held))
    }

    /// A message with its label, on its way to the dead-letter queue (inventory B6.7): as it is where that queue is a
    /// SYSTEM queue, has no policy, or the message is sealed already; otherwise the queue's own policy counts. A clear
    /// message that its own queue would have had encrypted is sealed in any case, or it is refused.
    pub fn bury(
        &mut self,
        local: &mut Local,
        state: &State,
        asker: Asker,
        way: Arc<Way>,
        labelled: Message,
        secret: Option<Secret>,
    ) -> Result<Prepared, Refusal> {
        let as_it_is =
            |way, labelled| Prepared { way: Some(way), stage: Stage::Ready(Ok(labelled)), held: None, asks: false };
        let own = way
            .route
            .policy
            .clone()
            .filter(|policy| policy.quality() != Quality::None && !way.route.queue_name.starts_with(SYSTEM_PREFIX));
        let arrival = Arrival::read(&payload_of(&labelled.body), local.wall_ms);
        let arrival = match arrival {
            Ok(arrival) if !arrival.claims_seal() => arrival,
            _ => return Ok(as_it_is(way, labelled)),
        };
        let is_kept = own.as_ref().is_some_and(|policy| policy.encrypt.is_some());
        let (policy, bound_to) = match (own, secret.filter(|_| !is_kept)) {
            (_, Some(secret)) => (self.sealing_here(&secret.policy), secret.bound_to),
            (None, None) => return Ok(as_it_is(way, labelled)),
            (Some(policy), None) if self.protection == Protection::AsPolicy => (policy, way.destination.to_string()),
            (Some(policy), None) => {
                return match policy.toleration {
                    Toleration::Tolerate => Ok(as_it_is(way, labelled)),
                    Toleration::Enforce => {
                        let detail = format!("{}: the policy takes no clear messages", way.route.queue_name);
                        Err(Refusal::security(policy.cause_of_clear(), detail))
                    }
                };
            }
        };
        let (stage, held) =
            self.begin(local, state, asker, &way, (Treatment::Seal(policy), Some(bound_to)), arrival)?;
        Ok(Prepared { way: Some(way), stage, held, asks: false })
    }

    /// A policy by which dead letters are sealed here, also where its own messages come sealed from their clients. What
    /// is sealed by that is bound to the dead-letter queue, and opens on no other.
    fn sealing_here(&mut self, policy: &Arc<Policy>) -> Arc<Policy> {
        if policy.sealed_at == SealedAt::Any {
            return policy.clone();
        }
        match &self.stand_in {
            Some((known, stand_in)) if Arc::ptr_eq(known, policy) => stand_in.clone(),
            _ => {
                let stand_in = Arc::new(Policy { sealed_at: SealedAt::Any, ..(**policy).clone() });
                self.stand_in = Some((policy.clone(), stand_in.clone()));
                stand_in
            }
        }
    }
}

/// How a dead letter is sealed whose own queue would have had it encrypted.
pub struct Secret {
    pub(crate) policy: Arc<Policy>,
    /// What the seal is bound to.
    pub bound_to: String,
}
