//! What a policy would do with the users, key rings and messages that are there. Asking changes nothing: what is sealed
//! for a trial and what is opened of a queue is dropped again.

use crate::audit::Purpose;
use crate::authority::{ObjectType, Right};
use crate::catalog::findings::{
    EXPIRY_NOTICE, Fate, Findings, MessagesFinding, NameFinding, PAYLOADS, Trial, Used, UserFinding, Why,
};
use crate::catalog::status::Stranded;
use crate::envelope::{self, Arrival};
use crate::folders::RINGS;
use crate::manager::{Manager, State};
use crate::random::Random;
use crate::trial_device::TrialDevice;
use crate::wall_clock::{from_wall_ms, wall_ms};
use bulla_amqp::Payload;
use bulla_device::{KeyUri, SystemRandom};
use bulla_queue::{Found, QueueId, ReadError};
use bulla_seal::certificate::{Certificate, CertificateError, KeyKind, Usage, utc};
use bulla_seal::policy::{KeyTransport, Quality, SealedAt};
use bulla_seal::ring::{Own, Ring};
use bulla_seal::{
    Bound, Content, Dn, Expect, OpenError, Opener, Outcome, Packing, Policy, SealError, Sealed, Sealer, drive,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Users whose rights and rings are looked at.
pub const USERS_MAX: usize = 1_000;
/// Users on either side of a trial: a trial takes a private-key operation at each.
pub const TRIAL_USERS_MAX: usize = 16;
/// How long messages are looked at: what is left then is said to be left.
pub const MESSAGES_TIME_MAX: Duration = Duration::from_secs(20);
/// Bytes of messages that are read at a time, while the queues are locked.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Messages that are read at a time.
const BATCH_MESSAGES_MAX: usize = 64;
/// The payload of a trial.
const TRIAL_PAYLOAD: &[u8] = b"trial";

/// For whom a policy is tried.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The user who puts or gets; none for all of them.
    pub(crate) user: Option<String>,
    /// Users on either side of the trials.
    pub(crate) trial_users_max: usize,
}

impl Default for Scope {
    fn default() -> Self {
        Self { user: None, trial_users_max: TRIAL_USERS_MAX }
    }
}

impl Scope {
    /// Whether what one user seals is to be opened by another one.
    fn has(&self, by: &str, for_whom: &str) -> bool {
        self.user.as_ref().is_none_or(|user| user == by || user == for_whom)
    }
}

/// What is asked about, as the definitions have it.
pub(crate) struct Subject {
    policy: Arc<Policy>,
    in_force: bool,
    scope: Scope,
    destination: String,
    /// The local queue, where messages of this name lie on one.
    queue: Option<QueueId>,
    no_queue: Option<String>,
    conflict: Option<String>,
    message_bytes_max: Option<usize>,
    /// (name, may put, may get)
    users: Vec<(String, bool, bool)>,
    left_out: Vec<String>,
}

impl Subject {
    /// Finds the queue and its users.
    pub(crate) fn new(manager: &Manager, state: &State, policy: Arc<Policy>, in_force: bool, scope: Scope) -> Self {
        let name = policy.name.clone();
        let route = state.put_route(&name);
        // From another queue manager's queue no one gets here.
        let is_remote = route.as_ref().is_ok_and(|route| route.transmission.is_some());
        let destination = match &route {
            Ok(route) => state.bound_to(route),
            Err(_) => state.destination(&name),
        };
        let mut names: BTreeSet<String> = manager.sign_ins.users.names().into_iter().collect();
        let with_ring: BTreeSet<String> = ring_users(manager).collect();
        names.extend(with_ring.iter().cloned());
        names.extend(scope.user.clone());
        let is_asked = |user: &String| scope.user.as_ref() == Some(user);
        let mut users: Vec<(String, bool, bool)> = names
            .into_iter()
            .map(|user| {
                let rights = state.definitions.authorities.rights(Some(&user), ObjectType::Queue, &name);
                (user, rights.has(Right::Put), rights.has(Right::Get) && !is_remote)
            })
            .filter(|(user, put, get)| *put || *get || with_ring.contains(user) || is_asked(user))
            .collect();
        // Who is asked about is looked at whatever is left out.
        users.sort_by_key(|(user, ..)| !is_asked(user));
        let mut left_out = Vec::new();
        if users.len() > USERS_MAX {
            left_out.push(format!("{} users beyond the first {USERS_MAX}", users.len() - USERS_MAX));
            users.truncate(USERS_MAX);
        }
        let mut others = state.definitions.policies.values();
        let conflict = others.find_map(|other| policy.check_beside(other).err());
        Self {
            conflict: conflict.map(|error| error.to_string()),
            in_force,
            scope,
            destination,
            queue: route.as_ref().ok().filter(|route| route.transmission.is_none()).map(|route| route.queue),
            message_bytes_max: route.as_ref().ok().map(|route| route.message_bytes_max),
            no_queue: route.err().map(|refusal| refusal.detail),
            policy,
            users,
            left_out,
        }
    }

    /// Looks at users, rings and certificates, and tries them. Takes private-key operations: the queues are not locked
    /// meanwhile.
    pub(crate) fn look(self, manager: &Manager, now: SystemTime, instant: Instant) -> Look {
        let Self { policy, in_force, scope, destination, queue, no_queue, conflict, message_bytes_max, users, .. } =
            self;
        let mut left_out = self.left_out;
        let rings: Vec<Result<Arc<Ring>, Why>> = users
            .iter()
            .map(|(user, ..)| {
                manager.ring(user, instant).map_err(|error| Why { cause: "no-ring".into(), details: error.to_string() })
            })
            .collect();
        let parties: Vec<Party> = users
            .into_iter()
            .zip(rings)
            .map(|((user, may_put, may_get), ring)| Party { user, may_put, may_get, ring })
            .collect();
        let found: Vec<UserFinding> = parties.iter().map(|party| party.finding(&policy, &manager.name, now)).collect();
        let mut trier = Trier {
            policy: &policy,
            manager: &manager.name,
            destination: &destination,
            now,
            device: device(manager, in_force),
        };
        let (trials, more) = trier.all(&parties, &found, &scope);
        left_out.extend(more);
        let sealer = (parties.iter().zip(&found)).filter(|(_, found)| found.seals.is_ok()).find_map(|(party, _)| {
            let ring = party.ring.as_ref().ok()?;
            Some((trier.sealer(ring).ok()?, ring))
        });
        let batch_bytes = sealer.as_ref().and_then(|(sealer, ring)| {
            let each = Arc::new(Policy { sign_batch: 1, ..(*policy).clone() });
            let by = sealed_by(&policy, &manager.name);
            let alone = Sealer::new(each, Arc::clone(*ring), by, now).ok()?;
            batch_bytes(sealer, &alone, &destination)
        });
        let (sizes, payload_max) =
            sealer.map_or_else(Default::default, |(sealer, _)| sizes(&sealer, &destination, message_bytes_max));
        let names = names(&policy, &parties, now);
        let readers = parties
            .into_iter()
            .filter(|party| party.may_get)
            .filter_map(|party| Some((party.user, party.ring.ok()?)))
            .take(TRIAL_USERS_MAX)
            .collect();
        let findings = Findings {
            policy,
            in_force,
            destination,
            no_queue,
            conflict,
            users: found,
            names,
            trials,
            sizes,
            payload_max,
            batch_bytes,
            messages: Vec::new(),
            looked_at: 0,
            left: 0,
            left_out,
            for_no_user: (0, 0),
            stranded: Stranded::default(),
            away: 0,
        };
        Look {
            findings,
            queue,
            readers,
            opener: Opener::new(),
            device: device(manager, in_force),
            counted: BTreeMap::new(),
        }
    }
}

/// A message as it was read, and where it may be bound to.
pub(crate) struct Taken {
    found: Found,
    payload: Payload,
    destinations: Vec<String>,
}

/// The look at the messages of the queue, a batch at a time.
pub(crate) struct Look {
    findings: Findings,
    queue: Option<QueueId>,
    readers: Vec<(String, Arc<Ring>)>,
    opener: Opener,
    device: TrialDevice,
    counted: BTreeMap<(Option<String>, Fate), (u64, u64)>,
}

impl Look {
    /// The next messages, under the queues' lock; none when all were looked at.
    ///
    /// # Errors
    /// The journal can't be read, or the next message is still being read back.
    pub(crate) fn take(
        &self,
        state: &mut State,
        after: &mut Option<bulla_queue::Place>,
        max: usize,
        now: SystemTime,
    ) -> Result<Vec<Taken>, ReadError> {
        let Some(queue) = self.queue else { return Ok(Vec::new()) };
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < max.min(BATCH_MESSAGES_MAX) && bytes < BATCH_BYTES_MAX {
            let Some(found) = state.store.browse_next(queue, *after, wall_ms(now)) else { break };
            let payload = match state.store.body(found.id) {
                Err(ReadError::Away { .. }) if !taken.is_empty() => break,
                body => envelope::payload_of(&body?),
            };
            *after = Some(found.place);
            bytes += payload.len();
            let labelled = envelope::labelled_queue(&payload);
            let policy = &self.findings.policy;
            let destinations = match state.route(&policy.name) {
                Ok(route) => state.destinations(&route, policy, labelled),
                Err(_) => vec![self.findings.destination.clone()],
            };
            taken.push(Taken { found, payload, destinations });
        }
        Ok(taken)
    }

    /// Says what becomes of them. Takes a private-key operation for each that is encrypted, and reader.
    pub(crate) fn judge(&mut self, taken: Vec<Taken>, now: SystemTime) {
        for Taken { found, payload, destinations } in taken {
            self.findings.looked_at += 1;
            let put_at = from_wall_ms(found.put_at_ms);
            let readers: Vec<Option<(String, Arc<Ring>)>> = match self.readers.is_empty() {
                true => vec![None],
                false => self.readers.iter().cloned().map(Some).collect(),
            };
            let mut is_for_no_user = true;
            for reader in readers {
                let (user, ring) = reader.unzip();
                let fate = self.fate(&payload, &destinations, ring.as_ref(), put_at, now);
                is_for_no_user &= fate == Fate::NotMine;
                let (count, _) = self.counted.entry((user, fate)).or_insert((0, found.id.0));
                *count += 1;
            }
            if is_for_no_user {
                let (count, first) = &mut self.findings.for_no_user;
                *first = if *count == 0 { found.id.0 } else { *first };
                *count += 1;
            }
        }
    }

    fn fate(
        &mut self,
        payload: &Payload,
        destinations: &[String],
        ring: Option<&Arc<Ring>>,
        put_at: SystemTime,
        now: SystemTime,
    ) -> Fate {
        let policy = &self.findings.policy;
        let malformed = |details: String| Fate::Defective(Why { cause: "malformed".into(), details });
        let arrival = match Arrival::read(payload, wall_ms(now)) {
            Ok(arrival) => arrival,
            Err(refusal) => return malformed(refusal.detail),
        };
        if !arrival.claims_seal() {
            return match Opener::tolerate(policy, arrival.clear_content()) {
                Ok(_) => Fate::Clear,
                Err(OpenError::NotSealed) => {
                    let details = "a clear message on a protected queue".into();
                    Fate::Defective(Why { cause: policy.cause_of_clear().into(), details })
                }
                Err(error) => Fate::Defective(why_not_open(&error)),
            };
        }
        let der = match arrival.sealed_body() {
            Ok(der) => der,
            Err(refusal) => return malformed(refusal.detail),
        };
        let expect = arrival.expect(destinations.to_vec());
        let opened = match ring {
            None => self.opener.check_form(policy, &der, &expect, now).map(|()| Fate::Form),
            Some(ring) => (self.opener.open(policy, ring, der, expect, put_at, now))
                .and_then(|step| drive(step, &mut self.device))
                .map(|_| Fate::Opens),
        };
        if let Some(ring) = ring {
            self.device.note(ring.user(), Purpose::Open);
        }
        opened.unwrap_or_else(|error| match error.outcome() {
            Outcome::NotMine => Fate::NotMine,
            Outcome::Defective => Fate::Defective(why_not_open(&error)),
            Outcome::Retry => Fate::Stays(why_not_open(&error)),
        })
    }

    /// Messages looked at until now.
    pub(crate) fn looked_at(&self) -> u64 {
        self.findings.looked_at
    }

    /// All that was found; `depth` messages were on the queue.
    pub(crate) fn done(self, depth: u64) -> Findings {
        let mut findings = self.findings;
        findings.left = depth.saturating_sub(findings.looked_at);
        let found = self.counted.into_iter();
        findings.messages =
            found.map(|((user, fate), (count, first))| MessagesFinding { user, fate, count, first }).collect();
        findings
    }

    /// The queue whose messages are looked at.
    pub(crate) fn queue(&self) -> Option<QueueId> {
        self.queue
    }
}

/// A user, and what it has.
struct Party {
    user: String,
    may_put: bool,
    may_get: bool,
    ring: Result<Arc<Ring>, Why>,
}

impl Party {
    fn finding(&self, policy: &Arc<Policy>, manager: &str, now: SystemTime) -> UserFinding {
        let (seals, opens) = match &self.ring {
            Err(why) => (Err(why.clone()), Err(why.clone())),
            Ok(ring) => (seals(policy, ring, manager, now), opens(policy, ring, now)),
        };
        UserFinding {
            user: self.user.clone(),
            may_put: self.may_put,
            may_get: self.may_get,
            ring: self.ring.as_ref().map(drop).map_err(Clone::clone),
            seals,
            opens,
        }
    }
}

/// Whether a ring could seal.
fn seals(policy: &Arc<Policy>, ring: &Arc<Ring>, manager: &str, now: SystemTime) -> Result<Option<Used>, Why> {
    if policy.quality() == Quality::None {
        return Ok(None);
    }
    let sealer = Sealer::new(policy.clone(), ring.clone(), sealed_by(policy, manager), now);
    let sealer = sealer.map_err(|error| why_not_seal(&error))?;
    let Some(signer) = sealer.signer() else { return Ok(None) };
    if !policy.signers.is_empty() && !policy.signers.contains(signer.dn()) {
        return Err(why_not_open(&OpenError::SignerNotAuthorised { dn: signer.dn().clone() }));
    }
    Ok(Some(used(signer, now)))
}

/// Who a message says that it was sealed by: no one else where applications seal, whose keys are tried as if they did.
fn sealed_by(policy: &Policy, manager: &str) -> Option<String> {
    (policy.sealed_at != SealedAt::Client).then(|| manager.to_owned())
}

/// Whether a ring holds what opening takes.
fn opens(policy: &Arc<Policy>, ring: &Arc<Ring>, now: SystemTime) -> Result<Option<Used>, Why> {
    if policy.encrypt.is_some() {
        let can_read = |kind| policy.pqc.allows(kind) && !matches!(kind, KeyKind::MlDsa(_));
        let mut own = ring.own().iter().filter(|own| can_read(own.certificate.key_kind()));
        let own = own.find(|own| policy.recipients.contains(own.certificate.dn()));
        let own = own.ok_or_else(|| why_not_open(&OpenError::NotARecipient))?;
        bulla_seal::check_reader(policy, ring).map_err(|error| why_not_open(&OpenError::Policy(error)))?;
        if let Some(lacks) = lacks(own, Some(policy)) {
            return Err(Why { cause: "key-unavailable".into(), details: lacks.to_owned() });
        }
        return Ok(Some(used(&own.certificate, now)));
    }
    if policy.sign.is_some() && ring.trust().is_empty() && ring.domains().is_empty() {
        let details = "its key ring believes no authority (trust/)".to_owned();
        return Err(Why { cause: "untrusted".into(), details });
    }
    Ok(None)
}

/// What a transit engine can't do with its key although others may seal for it; no policy: whatever policies say.
pub(crate) fn lacks(own: &Own, policy: Option<&Policy>) -> Option<&'static str> {
    let uri = own.key.token_uri().and_then(|uri| uri.parse::<KeyUri>().ok());
    let Some(KeyUri::Transit(_)) = uri else { return None };
    let is_meant = |usage| own.certificate.check_usage(usage).is_ok();
    if is_meant(Usage::KeyAgreement) {
        return Some(
            "others may seal for its certificate, and the key of a curve opens nothing in a transit engine: have a \
             certificate issued for signatures alone, or use an RSA key",
        );
    }
    let is_pkcs1 = policy.is_some_and(|policy| policy.key_transport == KeyTransport::Pkcs1);
    (is_pkcs1 && is_meant(Usage::KeyTransport)).then_some(
        "the policy has KEYWRAP(PKCS1), and a key in a transit engine opens RSA-OAEP alone: it needs KEYWRAP(OAEP)",
    )
}

/// What the rings have of the policy's names.
fn names(policy: &Policy, parties: &[Party], now: SystemTime) -> Vec<NameFinding> {
    let recipients = policy
        .recipients
        .iter()
        .map(|dn| name(false, dn, parties, |ring| bulla_seal::recipient_of(policy, ring, dn, now), now));
    let signers = policy.signers.iter().map(|dn| {
        // Where no key fits, the newest that might sign by what the policy says of kinds.
        let might = |own: &Own| {
            let kind = own.certificate.key_kind();
            own.certificate.dn() == dn && policy.pqc.allows(kind) && !matches!(kind, KeyKind::MlKem(_))
        };
        name(
            true,
            dn,
            parties,
            |ring| match bulla_seal::signer_of(policy, ring, dn, now) {
                Ok(certificate) => Ok(certificate),
                Err(_) => Ok(&ring.signing_where(policy.revocation, now, might)?.certificate),
            },
            now,
        )
    });
    recipients.chain(signers).collect()
}

/// What the rings have of one name. A recipient has to be in the putting user's ring; a signer signs with a ring of its
/// own.
fn name(
    signs: bool,
    dn: &Dn,
    parties: &[Party],
    find: impl for<'a> Fn(&'a Ring) -> Result<&'a Certificate, SealError>,
    now: SystemTime,
) -> NameFinding {
    let (mut newest, mut whose, mut missing) = (None::<&Certificate>, Vec::new(), Vec::new());
    for party in parties {
        let Ok(ring) = &party.ring else { continue };
        match find(ring) {
            Ok(certificate) => {
                whose.push(party.user.clone());
                if newest.is_none_or(|newest| newest.not_before() < certificate.not_before()) {
                    newest = Some(certificate);
                }
            }
            Err(SealError::Certificate(CertificateError::NoOwnKey { .. })) if signs => {}
            Err(error) if signs || party.may_put => missing.push((party.user.clone(), why_not_seal(&error))),
            Err(_) => {}
        }
    }
    NameFinding { signs, dn: dn.to_string(), found: newest.map(|newest| (used(newest, now), whose)), missing }
}

/// Seals and opens to see.
struct Trier<'a> {
    policy: &'a Arc<Policy>,
    manager: &'a str,
    destination: &'a str,
    now: SystemTime,
    device: TrialDevice,
}

impl Trier<'_> {
    /// All users who may put and can seal, with all users who may get and have a ring.
    fn all(&mut self, parties: &[Party], found: &[UserFinding], scope: &Scope) -> (Vec<Trial>, Option<String>) {
        let max = scope.trial_users_max;
        let both = || parties.iter().zip(found);
        let putters: Vec<_> = both().filter(|(party, found)| party.may_put && found.seals.is_ok()).collect();
        let getters: Vec<_> = both().filter(|(party, _)| party.may_get && party.ring.is_ok()).collect();
        if self.policy.quality() == Quality::None {
            return (Vec::new(), None);
        }
        let most = putters.len().max(getters.len());
        let more = (most > max).then(|| format!("trials with more than {max} users on a side"));
        let mut trials = Vec::new();
        for (putter, _) in putters.iter().take(max) {
            let readers: Vec<_> =
                getters.iter().take(max).filter(|(getter, _)| scope.has(&putter.user, &getter.user)).collect();
            let Ok(ring) = &putter.ring else { continue };
            if readers.is_empty() && !scope.has(&putter.user, "") {
                continue;
            }
            let sealed = self.seal(ring);
            for (getter, _) in readers {
                let Ok(ring) = &getter.ring else { continue };
                let result = sealed.clone().and_then(|(sealed, bound)| self.open(ring, sealed, bound));
                trials.push(Trial { by: putter.user.clone(), for_whom: getter.user.clone(), result });
            }
        }
        (trials, more)
    }

    fn sealer(&self, ring: &Arc<Ring>) -> Result<Sealer, Why> {
        let sealer = Sealer::new(self.policy.clone(), ring.clone(), sealed_by(self.policy, self.manager), self.now);
        sealer.map_err(|error| why_not_seal(&error))
    }

    fn seal(&mut self, ring: &Arc<Ring>) -> Result<(Sealed, Bound), Why> {
        let bound = bound(self.destination);
        let content = content(Bytes::from_static(TRIAL_PAYLOAD));
        let sealed = (self.sealer(ring)?.seal(content, &bound, self.now, &mut SystemRandom))
            .and_then(|step| drive(step, &mut self.device))
            .map_err(|error| why_not_seal(&error));
        self.device.note(ring.user(), Purpose::Seal);
        Ok((sealed?, bound))
    }

    fn open(&mut self, ring: &Arc<Ring>, sealed: Sealed, bound: Bound) -> Result<(), Why> {
        let expect = Expect {
            destinations: vec![bound.destination],
            message_id: bound.message_id,
            properties: bound.properties,
            application_properties: bound.application_properties,
            annotations: bound.annotations,
        };
        let step = Opener::new().open(self.policy, ring, sealed.der, expect, self.now, self.now);
        let opened = step.and_then(|step| drive(step, &mut self.device)).map_err(|error| why_not_open(&error));
        self.device.note(ring.user(), Purpose::Open);
        match opened?.get().content.bytes == TRIAL_PAYLOAD {
            true => Ok(()),
            false => Err(Why { cause: "tampered".into(), details: "other bytes came out than went in".into() }),
        }
    }
}

/// Keys on tokens are used where a policy in force uses them anyway.
fn device(manager: &Manager, in_force: bool) -> TrialDevice {
    TrialDevice::new(&manager.told.audit, in_force.then(|| manager.workers.devices.scheduler()))
}

/// Users that have a key ring.
pub(crate) fn ring_users(manager: &Manager) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(manager.data.join(RINGS)).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok())
}

fn bound(destination: &str) -> Bound {
    // As long as the one that is made for a message that has none.
    let mut message_id = vec![0x98];
    message_id.extend_from_slice(&Random::system().bytes::<16>());
    Bound {
        destination: destination.to_owned(),
        message_id: message_id.into(),
        properties: Bytes::new(),
        application_properties: Bytes::new(),
        annotations: Bytes::new(),
    }
}

fn content(bytes: Bytes) -> Content {
    Content { packing: Packing::Data, content_type: None, bytes }
}

/// Lengths of sealed messages, and the longest payload that fits.
fn sizes(sealer: &Sealer, destination: &str, max: Option<usize>) -> (Vec<(usize, usize)>, Option<usize>) {
    let longest = PAYLOADS.into_iter().chain(max).max().unwrap_or_default();
    // These pages are never written: they take no memory.
    let zeroes = Bytes::from(vec![0; longest]);
    let bound = bound(destination);
    let sealed = |payload: usize| sealer.sealed_len(&content(zeroes.slice(..payload)), &bound);
    let lengths = PAYLOADS.iter().map(|payload| (*payload, sealed(*payload))).collect();
    let payload_max = max.filter(|max| sealed(0) <= *max).map(|max| {
        let (mut fits, mut beyond) = (0, max + 1);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if sealed(middle) <= max { fits = middle } else { beyond = middle }
        }
        fits
    });
    (lengths, payload_max)
}

/// By how many bytes a message of a full batch is longer than one with a signature of its own; none where it is not.
fn batch_bytes(shared: &Sealer, alone: &Sealer, destination: &str) -> Option<usize> {
    let (content, bound) = (content(Bytes::from_static(TRIAL_PAYLOAD)), bound(destination));
    let more = shared.sealed_len(&content, &bound).saturating_sub(alone.sealed_len(&content, &bound));
    (more > 0).then_some(more)
}

fn used(certificate: &Certificate, now: SystemTime) -> Used {
    let left = certificate.not_after().duration_since(now).unwrap_or_default();
    Used {
        dn: certificate.dn().to_string(),
        key: key_name(certificate),
        not_after: utc(certificate.not_after()),
        ends_soon: left < EXPIRY_NOTICE,
        ended: now >= certificate.not_after(),
    }
}

/// As `bulla cert create --key` has it.
fn key_name(certificate: &Certificate) -> String {
    match certificate.key_kind() {
        KeyKind::Rsa => format!("rsa{}", certificate.key_bits()),
        KeyKind::MlDsa(set) => format!("ml-dsa-{}", set.number()),
        KeyKind::MlKem(set) => format!("ml-kem-{}", set.number()),
        KeyKind::Ec(_) | KeyKind::Other => format!("p{}", certificate.key_bits()),
    }
}

fn why_not_seal(error: &SealError) -> Why {
    Why { cause: error.cause().to_owned(), details: error.to_string() }
}

fn why_not_open(error: &OpenError) -> Why {
    Why { cause: error.cause().to_owned(), details: error.to_string() }
}
