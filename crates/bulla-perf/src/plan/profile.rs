//! A profile: what a system is made of, and what each part of its work takes.
//!
//! The page is `docs/formats/profile.md`. `bulla plan calibrate` writes one of this machine; one of any other system is
//! written by hand. Times are in microseconds where a name ends in `us`, in nanoseconds where it ends in `ns`.

use super::https::costs::Https;
use super::trust::Trust;
use crate::configuration::{Quality, Reuse};
use crate::error::{Error, Result};
use crate::site::BOTH;
use bulla_seal::certificate::KeySpec;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The format that is written; those before it are read, too. Format 2 has [`Profile::https`].
pub const FORMAT: u32 = 2;
/// What sealing, and opening, of a message that shares its signature takes beside the rest where a profile does not
/// say, microseconds.
const BATCH_US: f64 = 5.0;
/// Largest file that is read, in bytes.
pub const PROFILE_BYTES_MAX: u64 = 1 << 20;
/// Most cores, threads, engines or lanes that a profile may have of a kind.
pub const COUNT_MAX: u32 = 1024;
/// Longest time that a profile may hold, in its own unit: a thousand seconds in microseconds.
pub const TIME_MAX: f64 = 1e9;

/// A system.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: u32,
    /// What it is called.
    pub name: String,
    /// Where the numbers come from: `bulla plan calibrate`, a publication, a guess.
    pub source: String,
    /// The machine in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The cores, shared by all threads.
    #[serde(default)]
    pub cores: Cores,
    /// How many threads of each kind there are where a configuration does not say.
    #[serde(default)]
    pub threads: Threads,
    /// Processor time by role.
    #[serde(default)]
    pub costs: Costs,
    /// Operations on a core, by key: `rsa2048`, `p256`; `alone` counts, and [`Cores::crowding`] beside it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu: BTreeMap<String, Operations>,
    /// The same without the processor's instructions (`devices: software`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub software: BTreeMap<String, Operations>,
    /// Devices that may be used, by name. One of each kind describes all of that kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, Device>,
    /// The journal.
    #[serde(default)]
    pub journal: Journal,
    /// What is between the application and the queue manager.
    #[serde(default)]
    pub network: Network,
    /// What HTTPS takes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https: Option<Https>,
    /// A channel that carries one message at a time, if the system has those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<SerialChannel>,
    /// How far to trust it, where calibration has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Trust>,
    /// Operations that others send to devices, whatever is planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<Load>,
}

/// The cores.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Cores {
    /// How many.
    pub count: u32,
    /// Cores that others use all the time.
    #[serde(default)]
    pub background: f64,
    /// By which part work takes longer while every core is busy than while one is: two threads of one core, shared
    /// caches and clock. 0.12 is twelve percent.
    #[serde(default)]
    pub crowding: f64,
    /// While so many bytes of messages wait, half of what is touched of them is no longer in a cache of the core's own:
    /// of `waiting` bytes, `waiting / (waiting + cache-bytes)` is. 0: caches make no difference.
    #[serde(default)]
    pub cache_bytes: f64,
    /// So long a thread keeps its core while others wait for one, microseconds; 0 is until it sleeps.
    #[serde(default)]
    pub slice_us: f64,
    /// Until a sleeping thread runs on an idle core, after it was woken, microseconds.
    #[serde(default)]
    pub wake_up_us: f64,
    /// The same after it slept for `deep-after-us` or longer, when the core and its caches had time to fall asleep too.
    #[serde(default)]
    pub deep_wake_up_us: f64,
    /// From which sleep on `deep-wake-up-us` counts, microseconds; 0 is never.
    #[serde(default)]
    pub deep_after_us: f64,
    /// Processor time that waking a sleeping thread takes the waker where a core sleeps too, microseconds.
    #[serde(default)]
    pub wake_us: f64,
    /// Processor time that going to sleep and being woken takes the sleeper, microseconds.
    #[serde(default)]
    pub sleep_us: f64,
    /// The same after a sleep of `deep-after-us` or longer: the caches have forgotten it.
    #[serde(default)]
    pub deep_sleep_us: f64,
    /// How fast the cores were when everything else here was measured: what an RSA 1024 signature took beside it,
    /// microseconds of processor time; 0 where that is not known.
    #[serde(default)]
    pub pace_us: f64,
    /// The same of an ECDSA signature with P-192: how fast the curves were that OpenSSL has no code of their own for,
    /// which is all but P-256; 0 where that is not known, and then `pace-us` holds for them too.
    #[serde(default)]
    pub curve_pace_us: f64,
}

/// How fast cores are: what two reference signatures take there, microseconds of processor time; 0 is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// RSA 1024: stands for everything but those curves. See [`Cores::pace_us`].
    pub rsa_us: f64,
    /// ECDSA with P-192. See [`Cores::curve_pace_us`].
    pub curve_us: f64,
}

impl Pace {
    /// By what all times are to be stretched, and by what those of curves in compiled arithmetic, from here to there; 1
    /// where one of the two is not known.
    pub(super) fn factors(self, to: Pace) -> (f64, f64) {
        let known = |from: f64, to: f64| (from > 0.0 && to > 0.0).then_some(to / from);
        let all = known(self.rsa_us, to.rsa_us).unwrap_or(1.0);
        (all, known(self.curve_us, to.curve_us).unwrap_or(all))
    }

    /// Whether the operations of a key follow the curve, on the processor.
    #[must_use]
    pub fn is_of_curve(key: &str) -> bool {
        matches!(key, "p192" | "p224" | "p384" | "p521")
    }
}

impl Default for Cores {
    fn default() -> Self {
        Self {
            count: 1,
            background: 0.0,
            crowding: 0.0,
            cache_bytes: 0.0,
            slice_us: 0.0,
            wake_up_us: 0.0,
            deep_wake_up_us: 0.0,
            deep_after_us: 0.0,
            wake_us: 0.0,
            sleep_us: 0.0,
            deep_sleep_us: 0.0,
            pace_us: 0.0,
            curve_pace_us: 0.0,
        }
    }
}

/// How many threads there are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Threads {
    /// Dispatchers (CHIDISPS); each is one thread.
    pub dispatchers: u32,
    /// Adapters (CHIADAPS).
    pub adapters: u32,
}

impl Default for Threads {
    fn default() -> Self {
        Self { dispatchers: 1, adapters: 1 }
    }
}

/// Processor time of a step that a thread takes for many messages at once.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Cost {
    /// Once a turn, however many messages it has: the system calls, the wake-up's own work.
    pub turn_us: f64,
    /// Each message.
    pub message_us: f64,
    /// Each byte of payload.
    pub byte_ns: f64,
    /// Each byte beyond the first [`COPIED_BYTES_MAX`], where it takes something else than those: none is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_byte_ns: Option<f64>,
    /// Each of the first [`COPIED_BYTES_MAX`] bytes beside that, when no cache holds any of what waits: see
    /// [`Cores::cache_bytes`].
    pub far_byte_ns: f64,
}

/// Bytes up to which the program copies a message out of what it has read; longer ones stay there.
pub const COPIED_BYTES_MAX: f64 = bulla_amqp::COPY_IN_BYTES_MAX as f64;

impl Cost {
    /// Of one message of that payload, microseconds; the turn is left out.
    #[must_use]
    pub fn message(&self, bytes: f64) -> f64 {
        let copied = bytes.min(COPIED_BYTES_MAX);
        let long_byte_ns = self.long_byte_ns.unwrap_or(self.byte_ns);
        self.message_us + (self.byte_ns * copied + long_byte_ns * (bytes - copied)) / 1000.0
    }

    /// What it takes beside that when no cache holds it, microseconds.
    #[must_use]
    pub fn far(&self, bytes: f64) -> f64 {
        self.far_byte_ns * bytes.min(COPIED_BYTES_MAX) / 1000.0
    }
}

/// Processor time by role.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Costs {
    /// The application, a thread that puts and one that gets.
    pub application: PutGet,
    /// The dispatcher: what it does for clients and queues.
    pub queue_manager: PutGet,
    /// What a dispatcher does beside that for a message that it hands to an adapter and gets back, microseconds: each
    /// seal, each open.
    pub hand_over_us: f64,
    /// What a dispatcher does beside that for a message that it seals or opens itself, under a live content key,
    /// microseconds: each seal, each open.
    pub live_us: f64,
    /// What a dispatcher does beside that for a persistent message, microseconds.
    pub persist_us: f64,
    /// Dispatchers' work for channels: what the sending and the receiving end do for a message.
    pub channel_initiator: SendReceive,
    /// TLS by CipherSpec, at each of the two ends of a connection.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tls: BTreeMap<String, Cost>,
    /// Sealing and opening, without operations with keys.
    pub protection: Protection,
    /// The journal's thread.
    pub journal: Cost,
}

/// A message in and out.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct PutGet {
    /// It is put.
    pub put: Cost,
    /// It is got.
    pub get: Cost,
}

/// The two ends of a channel.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SendReceive {
    /// The sending end.
    pub send: Cost,
    /// The receiving end.
    pub receive: Cost,
}

/// Sealing and opening without their operations with keys.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Protection {
    /// Once a turn of an adapter, microseconds.
    pub turn_us: f64,
    /// Each message that an adapter takes on and gives back, microseconds.
    pub task_us: f64,
    /// Each job that goes to another thread, and its answer, microseconds: what the adapter spends on the crossing.
    pub job_us: f64,
    /// Each job that the adapter computes itself, beyond the operation, microseconds.
    pub inline_us: f64,
    /// Signed.
    pub integrity: SealOpen,
    /// Signed and encrypted.
    pub privacy: SealOpen,
    /// Encrypted, with a new content key.
    pub confidentiality: SealOpen,
    /// Encrypted under a content key that is live: done where the message is, on the dispatcher.
    pub live: SealOpen,
    /// Beside that, a message that shares its signature: its part of the tree, and the way to the root. A profile that
    /// does not say takes what is [assumed](assumed_batch).
    #[serde(default = "assumed_batch")]
    pub batch: SealOpen,
    /// What ML-DSA and ML-KEM keys add, by kind. `ml-dsa-65` stands for the ML-KEM-768 that goes with it, too.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, KeyCosts>,
}

/// What keys of a kind add to sealing and opening: longer digests, signatures, certificates and recipients.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct KeyCosts {
    /// A message that is signed with one.
    pub signer: SealOpen,
    /// In place of [`Protection::batch`], where it shares that signature.
    pub batch: SealOpen,
    /// A message that is encrypted for one.
    pub recipient: SealOpen,
}

/// What is assumed of a message that shares its signature, where a profile of before SIGNBATCH says nothing of it.
fn assumed_batch() -> SealOpen {
    SealOpen { seal_us: BATCH_US, open_us: BATCH_US, ..SealOpen::default() }
}

/// Sealing and opening a message.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SealOpen {
    /// Sealing, microseconds a message.
    pub seal_us: f64,
    /// Sealing, nanoseconds a byte.
    pub seal_byte_ns: f64,
    /// Opening, microseconds a message.
    pub open_us: f64,
    /// Opening, nanoseconds a byte.
    pub open_byte_ns: f64,
}

impl SealOpen {
    /// Sealing a message of that payload, microseconds.
    #[must_use]
    pub fn seal(&self, bytes: f64) -> f64 {
        self.seal_us + self.seal_byte_ns * bytes / 1000.0
    }

    /// Opening it, microseconds.
    #[must_use]
    pub fn open(&self, bytes: f64) -> f64 {
        self.open_us + self.open_byte_ns * bytes / 1000.0
    }

    /// This and another.
    fn and(self, other: SealOpen) -> SealOpen {
        SealOpen {
            seal_us: self.seal_us + other.seal_us,
            seal_byte_ns: self.seal_byte_ns + other.seal_byte_ns,
            open_us: self.open_us + other.open_us,
            open_byte_ns: self.open_byte_ns + other.open_byte_ns,
        }
    }

    /// What this takes beyond another, a part at a time, where it does.
    pub(crate) fn beyond(self, other: SealOpen) -> SealOpen {
        SealOpen {
            seal_us: (self.seal_us - other.seal_us).max(0.0),
            seal_byte_ns: (self.seal_byte_ns - other.seal_byte_ns).max(0.0),
            open_us: (self.open_us - other.open_us).max(0.0),
            open_byte_ns: (self.open_byte_ns - other.open_byte_ns).max(0.0),
        }
    }

    fn stretch(&mut self, factor: f64) {
        let Self { seal_us, seal_byte_ns, open_us, open_byte_ns } = self;
        [seal_us, seal_byte_ns, open_us, open_byte_ns].into_iter().for_each(|cost| *cost *= factor);
    }
}

impl Cost {
    fn stretch(&mut self, factor: f64) {
        let Self { turn_us, message_us, byte_ns, long_byte_ns, far_byte_ns } = self;
        let costs = [turn_us, message_us, byte_ns, far_byte_ns].into_iter().chain(long_byte_ns);
        costs.for_each(|cost| *cost *= factor);
    }
}

impl Costs {
    /// All of them, so many times as much.
    fn stretch(&mut self, factor: f64) {
        let PutGet { put, get } = &mut self.application;
        let (qm, chinit) = (&mut self.queue_manager, &mut self.channel_initiator);
        let steps = [put, get, &mut qm.put, &mut qm.get, &mut chinit.send, &mut chinit.receive, &mut self.journal];
        steps.into_iter().chain(self.tls.values_mut()).for_each(|cost| cost.stretch(factor));
        let Protection { turn_us, task_us, job_us, inline_us, integrity, privacy, confidentiality, live, batch, keys } =
            &mut self.protection;
        let times =
            [&mut self.hand_over_us, &mut self.live_us, &mut self.persist_us, turn_us, task_us, job_us, inline_us];
        times.into_iter().for_each(|us| *us *= factor);
        let of_keys = keys.values_mut().flat_map(|KeyCosts { signer, batch, recipient }| [signer, batch, recipient]);
        let parts = [integrity, privacy, confidentiality, live, batch];
        parts.into_iter().chain(of_keys).for_each(|part| part.stretch(factor));
    }
}

impl Protection {
    /// By quality; `live` where a content key is used again.
    #[must_use]
    pub fn of(&self, quality: Quality, live: bool) -> SealOpen {
        match (quality, live) {
            (Quality::None, _) => SealOpen::default(),
            (Quality::Integrity, _) => self.integrity,
            (Quality::Privacy, _) => self.privacy,
            (Quality::Confidentiality, false) => self.confidentiality,
            (Quality::Confidentiality, true) => self.live,
        }
    }

    /// What the keys add, by quality, and what sharing a signature of that signer does: each with a new content key.
    #[must_use]
    pub fn of_keys(&self, quality: Quality, key: &str) -> (SealOpen, SealOpen) {
        let of = |operation| self.keys.get(&*kind_of(key, operation)).copied();
        let signer = of(Operation::Sign).filter(|_| quality.signs());
        let recipient = of(Operation::Wrap).filter(|_| matches!(quality, Quality::Privacy | Quality::Confidentiality));
        let added = signer.map_or_else(SealOpen::default, |costs| costs.signer);
        let added = recipient.map_or(added, |costs| added.and(costs.recipient));
        (added, signer.map_or(self.batch, |costs| costs.batch))
    }
}

/// What an operation takes, microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(from = "TimesText", into = "TimesText")]
pub struct Times {
    /// A call with one job.
    pub alone: f64,
    /// Each job of a call whose lanes are all filled.
    pub full: f64,
}

impl From<f64> for Times {
    fn from(us: f64) -> Self {
        Self { alone: us, full: us }
    }
}

impl Times {
    /// A call with so many jobs of so many lanes, microseconds: a straight line between one job and full lanes.
    #[must_use]
    pub fn call(&self, jobs: u32, lanes: u32) -> f64 {
        if lanes <= 1 {
            return self.alone * f64::from(jobs);
        }
        let full = self.full * f64::from(lanes);
        let filled = f64::from(jobs.clamp(1, lanes) - 1) / f64::from(lanes - 1);
        self.alone + (full - self.alone) * filled
    }
}

/// As it is written: one number where it makes no difference.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "microseconds, or { alone = …, full = … }")]
enum TimesText {
    Same(f64),
    Both(Both),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Both {
    alone: f64,
    full: f64,
}

impl From<TimesText> for Times {
    fn from(text: TimesText) -> Self {
        match text {
            TimesText::Same(us) => us.into(),
            TimesText::Both(Both { alone, full }) => Self { alone, full },
        }
    }
}

impl From<Times> for TimesText {
    fn from(times: Times) -> Self {
        #[allow(clippy::float_cmp, reason = "one number was copied, or two were given")]
        match times.alone == times.full {
            true => TimesText::Same(times.alone),
            false => TimesText::Both(Both { alone: times.alone, full: times.full }),
        }
    }
}

/// An operation with a key, as messages need it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A signature.
    Sign,
    /// Its check.
    Verify,
    /// A content key for a recipient: an RSA wrap, or an agreement with a key pair made for it.
    Wrap,
    /// Its way back: an RSA unwrap, or the agreement with the recipient's own key.
    Unwrap,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 4] = [Operation::Sign, Operation::Verify, Operation::Wrap, Operation::Unwrap];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Sign => "sign",
            Operation::Verify => "verify",
            Operation::Wrap => "wrap",
            Operation::Unwrap => "unwrap",
        }
    }

    /// The arithmetic of it with an RSA key: CRT with the private one, ME with the public one.
    #[must_use]
    pub const fn format(self) -> Format {
        match self {
            Operation::Sign | Operation::Unwrap => Format::Crt,
            Operation::Verify | Operation::Wrap => Format::Me,
        }
    }
}

/// RSA's two formats of an operation, as reports on hardware tell them apart.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Modulus and exponent: the public key.
    Me,
    /// Chinese remainder: the private key.
    Crt,
}

/// Operations with one kind of key. One that is missing can't be done there.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Operations {
    /// A signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Times>,
    /// Its check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Times>,
    /// A wrap, or an agreement with a new key pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrap: Option<Times>,
    /// An unwrap, or an agreement with the recipient's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwrap: Option<Times>,
}

impl Operations {
    /// One of them.
    #[must_use]
    pub fn get(&self, operation: Operation) -> Option<Times> {
        match operation {
            Operation::Sign => self.sign,
            Operation::Verify => self.verify,
            Operation::Wrap => self.wrap,
            Operation::Unwrap => self.unwrap,
        }
    }

    /// Sets one of them.
    pub fn set(&mut self, operation: Operation, times: Times) {
        let place = match operation {
            Operation::Sign => &mut self.sign,
            Operation::Verify => &mut self.verify,
            Operation::Wrap => &mut self.wrap,
            Operation::Unwrap => &mut self.unwrap,
        };
        *place = Some(times);
    }

    /// All of them, so many times as long.
    pub(super) fn stretch(&mut self, factor: f64) {
        for operation in Operation::ALL {
            if let Some(times) = self.get(operation) {
                self.set(operation, Times { alone: times.alone * factor, full: times.full * factor });
            }
        }
    }
}

/// A device beside the processor.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Device {
    /// What it is: `a` and `c` of a configuration's `devices`.
    pub kind: DeviceKind,
    /// Whether it is a modelled one (`devices: modelled:…`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub modelled: bool,
    /// Whether it computes on the machine's cores, or is a card of its own.
    pub place: Place,
    /// Calls that it carries out side by side.
    #[serde(default = "one")]
    pub engines: u32,
    /// Jobs that one call takes.
    #[serde(default = "one")]
    pub lanes: u32,
    /// Jobs that may wait for it, those in service not counted; 0 for what the program gives it, see
    /// [`Device::waiting_max`].
    #[serde(default)]
    pub pending: u32,
    /// Processor time of its thread for each call, beyond the operations, microseconds.
    #[serde(default)]
    pub call_us: f64,
    /// Processor time of its thread for each job, beyond the operation, microseconds.
    #[serde(default)]
    pub job_us: f64,
    /// Operations by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operations: BTreeMap<String, Operations>,
    /// RSA operations with the public key by bits, microseconds, for keys that `operations` does not have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub me_us: BTreeMap<String, f64>,
    /// RSA operations with the private key by bits, microseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crt_us: BTreeMap<String, f64>,
}

fn one() -> u32 {
    1
}

/// Jobs that wait for an engine, where nothing else is said: what one port of a crypto card holds.
const PENDING_PER_ENGINE: u32 = 8;
/// Calls that wait for a device with lanes, where nothing else is said.
const PENDING_CALLS: u32 = 2;

impl Device {
    /// Jobs that may wait for it: as it says, else two calls' worth of a device with lanes, else eight for each engine.
    #[must_use]
    pub fn waiting_max(&self) -> u32 {
        match (self.pending, self.lanes) {
            (0, 0..=1) => PENDING_PER_ENGINE * self.engines,
            (0, lanes) => PENDING_CALLS * lanes,
            (pending, _) => pending,
        }
    }

    /// What an operation with that key takes; none where the device can't do it.
    #[must_use]
    pub fn times(&self, key: &str, operation: Operation) -> Option<Times> {
        let key = &*kind_of(key, operation);
        if let Some(times) = self.operations.get(key).and_then(|operations| operations.get(operation)) {
            return Some(times);
        }
        self.format_us(operation.format(), key.strip_prefix("rsa")?).map(Times::from)
    }

    /// What an RSA operation of that format and of so many bits takes, microseconds.
    #[must_use]
    pub fn format_us(&self, format: Format, bits: &str) -> Option<f64> {
        match format {
            Format::Me => self.me_us.get(bits).copied(),
            Format::Crt => self.crt_us.get(bits).copied(),
        }
    }
}

/// The kind of key under which a profile has an operation. Of two kinds, the one before the plus signs and the other is
/// written to; the times of ML-KEM stand beside those of the ML-DSA that goes with it.
#[must_use]
pub fn kind_of(key: &str, operation: Operation) -> Cow<'_, str> {
    let Some((signs, reads)) = key.split_once(BOTH) else { return key.into() };
    if matches!(operation, Operation::Sign | Operation::Verify) {
        return signs.into();
    }
    match reads.parse() {
        Ok(kem @ KeySpec::MlKem(_)) => kem.counterpart().unwrap_or(kem).to_string().into(),
        _ => reads.into(),
    }
}

/// Sorts of devices.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Clear keys, many at once.
    Accelerator,
    /// Keys that never leave it.
    Coprocessor,
}

impl DeviceKind {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            DeviceKind::Accelerator => "accelerator",
            DeviceKind::Coprocessor => "coprocessor",
        }
    }
}

/// Where a device computes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On the machine's cores, in a thread for each engine.
    Cores,
    /// On its own.
    Card,
}

/// The journal.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Journal {
    /// One write with its sync, microseconds.
    pub sync_us: f64,
    /// What the disk takes beyond that, bytes a second; 0 where that is no limit.
    pub bytes_per_second: f64,
    /// Whether all that waits is written with one sync.
    pub group_commit: bool,
}

/// Between application and queue manager.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Network {
    /// From one end to the other, microseconds.
    pub one_way_us: f64,
    /// In each direction, bytes a second; 0 where that is no limit.
    pub bytes_per_second: f64,
}

/// A channel that carries one message at a time: sealed, sent, then the next.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SerialChannel {
    /// What a message takes beside the adapter, elapsed microseconds.
    pub rest_us: f64,
    /// What the adapter takes, where that is known as a whole. Where it is not, its operations one after the other
    /// count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adapter: Vec<AdapterTime>,
}

/// An adapter's elapsed time for a message.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AdapterTime {
    /// What the policy asks for.
    pub quality: Quality,
    /// The key; empty for any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// How often a content key is used again; as text: `"32"`, `"unlimited"`.
    #[serde(default)]
    pub reuse: Reuse,
    /// Elapsed microseconds.
    pub elapsed_us: f64,
}

/// Operations that others send to a device.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Load {
    /// The device's name in the profile.
    pub device: String,
    /// Which arithmetic.
    pub format: Format,
    /// Bits of the key.
    pub bits: u32,
    /// Operations a second.
    pub rate: f64,
}

impl Profile {
    /// One that takes no time for anything yet, for a caller that fills it in.
    #[must_use]
    pub fn empty(name: &str, source: &str) -> Profile {
        Profile {
            format: FORMAT,
            name: name.to_owned(),
            source: source.to_owned(),
            machine: String::new(),
            cores: Cores::default(),
            threads: Threads::default(),
            costs: Costs::default(),
            cpu: BTreeMap::new(),
            software: BTreeMap::new(),
            devices: BTreeMap::new(),
            journal: Journal::default(),
            network: Network::default(),
            https: None,
            channel: None,
            trust: None,
            load: Vec::new(),
        }
    }

    /// What a reader may miss in it; nothing where it has all that this version calibrates.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let lacks = self.https.is_none() && self.channel.is_none();
        lacks.then(|| {
            "it has no [https]: the https workload can't be predicted from it; `bulla plan calibrate` measures that"
                .to_owned()
        })
    }

    /// Where `bulla plan calibrate` leaves the profile of this machine, and where it is looked for: `BULLA_PROFILE`, or
    /// `bulla/profile.toml` in the user's data directory (`XDG_DATA_HOME`, else `~/.local/share`). None where the
    /// environment says neither.
    #[must_use]
    pub fn default_path() -> Option<PathBuf> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("BULLA_PROFILE").or_else(|| {
            let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")))?;
            Some(data.join("bulla/profile.toml"))
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Content`] with the line of a field that is unknown, missing or of another type, and
    /// with the name of a number that can't be.
    pub fn read(path: &Path) -> Result<Profile> {
        let file_error = |error| Error::file(path, error);
        if fs::metadata(path).map_err(file_error)?.len() > PROFILE_BYTES_MAX {
            let wrong = format!("more than {PROFILE_BYTES_MAX} bytes");
            return Err(Error::Content { path: path.to_owned(), line: 0, wrong });
        }
        Self::parse(&fs::read_to_string(path).map_err(file_error)?, path)
    }

    /// Reads a text that came from that file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(text: &str, path: &Path) -> Result<Profile> {
        let content = |line, wrong| Error::Content { path: path.to_owned(), line, wrong };
        let profile: Profile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| line_of(text, span.start));
            content(line, error.message().replace('\n', " "))
        })?;
        profile.check().map_err(|wrong| content(0, wrong))?;
        Ok(profile)
    }

    /// The text of a file.
    ///
    /// # Errors
    /// [`Error::Usage`]: a number is none (NaN).
    pub fn to_toml(&self) -> Result<String> {
        self.check().map_err(Error::Usage)?;
        let whole = toml::to_string(self).map_err(|error| Error::Usage(error.to_string()))?;
        Ok(without_zeros(&whole))
    }

    /// Writes a file; its directory is made where it is missing.
    ///
    /// # Errors
    /// [`Error::File`], and as [`to_toml`](Self::to_toml).
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.to_toml()?;
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory).map_err(|error| Error::file(directory, error))?;
        }
        // Written aside, then renamed: a reader sees the old one or the new one.
        let mut aside = path.as_os_str().to_owned();
        aside.push(".new");
        let aside = PathBuf::from(aside);
        fs::write(&aside, text).map_err(|error| Error::file(&aside, error))?;
        fs::rename(&aside, path).map_err(|error| Error::file(path, error))
    }

    /// How fast the cores were when everything else was measured.
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace { rsa_us: self.cores.pace_us, curve_us: self.cores.curve_pace_us }
    }

    /// The same system while its cores are so fast that signatures beside the load take so long (see
    /// [`Cores::pace_us`]): all that cores do takes as much longer, operations of each key by the signature that they
    /// follow. Cards, disks and the network stay as they are, and so does everything where one of the two paces is not
    /// known.
    #[must_use]
    pub fn at_pace(&self, pace: Pace) -> Profile {
        let mut paced = self.clone();
        let (factor, of_curve) = self.pace().factors(pace);
        for device in paced.devices.values_mut().filter(|device| device.place == Place::Cores) {
            device.operations.values_mut().for_each(|operations| operations.stretch(factor));
            let times = device.me_us.values_mut().chain(device.crt_us.values_mut());
            times.chain([&mut device.call_us, &mut device.job_us]).for_each(|us| *us *= factor);
        }
        for (key, operations) in paced.cpu.iter_mut().chain(&mut paced.software) {
            operations.stretch(if Pace::is_of_curve(key) { of_curve } else { factor });
        }
        paced.costs.stretch(factor);
        if let Some(https) = &mut paced.https {
            https.stretch(factor);
        }
        let Cores { wake_up_us, deep_wake_up_us, wake_us, sleep_us, deep_sleep_us, .. } = &mut paced.cores;
        [wake_up_us, deep_wake_up_us, wake_us, sleep_us, deep_sleep_us].into_iter().for_each(|us| *us *= factor);
        if pace.rsa_us > 0.0 && self.cores.pace_us > 0.0 {
            (paced.cores.pace_us, paced.cores.curve_pace_us) = (pace.rsa_us, self.cores.curve_pace_us * of_curve);
        }
        paced
    }

    /// Says at which pace the short runs were, to which the fit brings everything; what the operations of curves took
    /// alone is brought there by what their own signature says beyond the other one.
    pub(super) fn fitted_at(&mut self, pace: Pace) {
        let (factor, of_curve) = self.pace().factors(pace);
        for (_, operations) in self.cpu.iter_mut().filter(|(key, _)| Pace::is_of_curve(key)) {
            operations.stretch(of_curve / factor);
        }
        (self.cores.pace_us, self.cores.curve_pace_us) = (pace.rsa_us, pace.curve_us);
    }

    /// The device that stands for that kind; none where the profile has none.
    #[must_use]
    pub fn device(&self, kind: DeviceKind, modelled: bool) -> Option<(&str, &Device)> {
        let mut devices = self.devices.iter();
        let found = devices.find(|(_, device)| device.kind == kind && device.modelled == modelled);
        found.map(|(name, device)| (name.as_str(), device))
    }

    /// What is wrong with the numbers.
    fn check(&self) -> std::result::Result<(), String> {
        if !(1..=FORMAT).contains(&self.format) {
            return Err(format!("a profile of format {}; this version reads 1 to {FORMAT}", self.format));
        }
        if self.format < 2 && self.https.is_some() {
            return Err("https is there since format 2".to_owned());
        }
        for (count, what, least) in [
            (self.cores.count, "cores.count", 1),
            (self.threads.dispatchers, "threads.dispatchers", 1),
            (self.threads.adapters, "threads.adapters", 1),
        ] {
            count_in_range(count, what, least)?;
        }
        for (name, device) in &self.devices {
            count_in_range(device.engines, &format!("devices.{name}.engines"), 1)?;
            count_in_range(device.lanes, &format!("devices.{name}.lanes"), 1)?;
            count_in_range(device.pending, &format!("devices.{name}.pending"), 0)?;
        }
        if self.cores.background >= f64::from(self.cores.count) {
            return Err("cores.background leaves no core".to_owned());
        }
        if let Some(load) = self.load.iter().find(|load| !self.devices.contains_key(&load.device)) {
            return Err(format!("load on device {}, which the profile does not have", load.device));
        }
        let value = toml::Value::try_from(self).map_err(|error| error.to_string())?;
        values_in_range(&value, "")
    }
}

/// Tables in which what is left out is zero.
const ZEROS_LEFT_OUT: [&str; 4] = ["cores", "costs", "journal", "network"];

/// A text of our own without what need not be said: zeros, and tables of which nothing is left.
fn without_zeros(whole: &str) -> String {
    let mut text = String::new();
    // The last heading, until something stands below it.
    let mut heading: Option<&str> = None;
    let mut leaves_out = false;
    for line in whole.lines() {
        if let Some(name) = line.strip_prefix('[') {
            let table = name.trim_start_matches('[').split(['.', ']']).next().unwrap_or_default();
            // That a cipher is there says something, even where it costs nothing.
            leaves_out = ZEROS_LEFT_OUT.contains(&table) && !name.starts_with("costs.tls.");
            heading = Some(line);
        } else if !line.is_empty() && !(leaves_out && (line.ends_with("= 0.0") || line.ends_with("= false"))) {
            if let Some(heading) = heading.take() {
                text.push('\n');
                text.push_str(heading);
                text.push('\n');
            }
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn count_in_range(count: u32, what: &str, least: u32) -> std::result::Result<(), String> {
    match (least..=COUNT_MAX).contains(&count) {
        true => Ok(()),
        false => Err(format!("{what} is {count}: {least} to {COUNT_MAX}")),
    }
}

/// Bytes a second may be larger than any time.
const RATE_MAX: f64 = 1e15;

/// No number may be negative, none, or beyond reason, and every text is a line: it is shown as one, and written as one.
fn values_in_range(value: &toml::Value, name: &str) -> std::result::Result<(), String> {
    match value {
        toml::Value::Float(number) => {
            let most = if name.ends_with("per-second") { RATE_MAX } else { TIME_MAX };
            match (0.0..=most).contains(number) {
                true => Ok(()),
                false => Err(format!("{name} is {number}: 0 to {most}")),
            }
        }
        toml::Value::String(text) if text.contains(char::is_control) => {
            Err(format!("{name} holds a line break or another control character"))
        }
        toml::Value::Array(values) => values.iter().try_for_each(|value| values_in_range(value, name)),
        toml::Value::Table(values) => values.iter().try_for_each(|(key, value)| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            values_in_range(value, &name)
        }),
        _ => Ok(()),
    }
}

/// The line, from 1, in which that byte is.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::trust::Unexplained;

    const SMALL: &str = "format = 1\nname = 'small'\nsource = 'a test'\n\n[cores]\ncount = 2\n";

    fn parse(text: &str) -> Result<Profile> {
        Profile::parse(text, Path::new("profile.toml"))
    }

    #[test]
    fn a_profile_comes_back_from_its_own_text() {
        let mut profile = Profile::empty("all", "a test");
        profile.cores = Cores {
            count: 2,
            background: 0.1,
            crowding: 0.12,
            cache_bytes: 2e6,
            slice_us: 1400.0,
            wake_up_us: 25.0,
            deep_wake_up_us: 60.0,
            deep_after_us: 200.0,
            wake_us: 2.0,
            sleep_us: 3.0,
            deep_sleep_us: 9.0,
            pace_us: 104.5,
            curve_pace_us: 380.25,
        };
        let mut operations = Operations::default();
        for operation in Operation::ALL {
            operations.set(operation, Times { alone: 440.0, full: 108.5 });
        }
        operations.set(Operation::Verify, 20.25.into());
        profile.cpu.insert("rsa2048".into(), operations);
        let device = Device {
            kind: DeviceKind::Accelerator,
            modelled: true,
            place: Place::Card,
            engines: 2,
            lanes: 8,
            pending: 8,
            call_us: 1.0,
            job_us: 0.5,
            operations: BTreeMap::from([("p256".into(), operations)]),
            me_us: BTreeMap::from([("2048".into(), 46.0)]),
            crt_us: BTreeMap::from([("2048".into(), 507.0)]),
        };
        profile.devices.insert("A".into(), device);
        profile.costs.tls.insert(
            "TLS_AES_256_GCM_SHA384".into(),
            Cost { turn_us: 1.0, message_us: 2.0, byte_ns: 0.3, long_byte_ns: Some(0.2), far_byte_ns: 0.1 },
        );
        let costs = SealOpen { seal_us: 9.0, seal_byte_ns: 1.5, open_us: 7.0, open_byte_ns: 1.25 };
        profile.costs.protection.batch = costs;
        profile
            .costs
            .protection
            .keys
            .insert("ml-dsa-65".into(), KeyCosts { signer: costs, batch: costs, recipient: costs });
        profile.journal = Journal { sync_us: 70.0, bytes_per_second: 9.7e8, group_commit: true };
        let row = AdapterTime {
            quality: Quality::Confidentiality,
            key: String::new(),
            reuse: Reuse::Times(32),
            elapsed_us: 17.0,
        };
        profile.channel = Some(SerialChannel { rest_us: 33.0, adapter: vec![row] });
        profile.trust = Some(Trust {
            runs: 24,
            fitted_median: 0.02,
            fitted_worst: 0.09,
            left_out_median: 0.05,
            left_out_worst: 0.3,
            warnings: vec!["2 of 72 short runs were not steady".to_owned()],
            unexplained: vec![Unexplained { run: "stream none 64 KB".to_owned(), measured: 100.0, predicted: 130.0 }],
        });
        profile.load.push(Load { device: "A".into(), format: Format::Me, bits: 2048, rate: 2706.0 });
        let text = profile.to_toml().unwrap();
        assert_eq!(parse(&text).unwrap(), profile, "{text}");
        assert!(text.starts_with("format = 2\nname = \"all\"\n") && !text.contains("turn-us = 0.0"), "{text}");
    }

    #[test]
    fn a_cipher_that_costs_nothing_is_not_lost() {
        let mut profile = Profile::empty("free", "a test");
        profile.cores.count = 1;
        profile.costs.tls.insert("TLS_AES_256_GCM_SHA384".into(), Cost::default());
        assert_eq!(parse(&profile.to_toml().unwrap()).unwrap(), profile);
    }

    #[test]
    fn a_text_of_several_lines_is_refused() {
        for text in ["name = \"a\\nb\"", "name = \"\"\"\na\n[costs]\nb = 0.0\"\"\"", "name = \"\\u001b[2J\""] {
            let refused = parse(&SMALL.replace("name = 'small'", text)).unwrap_err().to_string();
            assert_eq!(refused, "profile.toml: name holds a line break or another control character");
        }
        let several = Profile { source: "a\n[costs]\nb = 0.0".into(), ..parse(SMALL).unwrap() };
        assert!(several.to_toml().is_err());
    }

    #[test]
    fn a_written_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/profile.toml");
        let profile = Profile::empty("here", "a test");
        profile.write(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), profile);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert!(parse(SMALL).is_ok());
        for (text, says) in [
            (format!("{SMALL}speed = 3\n"), "profile.toml:7: unknown field `speed`"),
            (
                format!("{SMALL}[costs.queue-manager.put]\nmesage-us = 3.0\n"),
                "profile.toml:8: unknown field `mesage-us`",
            ),
            (format!("{SMALL}[cpu.rsa2048]\nsing = 3.0\n"), "profile.toml:8: unknown field `sing`"),
            (format!("{SMALL}[cpu.rsa2048]\nsign = 'fast'\n"), "profile.toml:8: microseconds, or"),
            (SMALL.replace("count = 2", "count = 'two'"), "profile.toml:6: invalid type"),
            (SMALL.replace("count = 2", "count = 0"), "profile.toml: cores.count is 0"),
            (SMALL.replace("format = 1", "format = 9"), "profile.toml: a profile of format 9"),
            (format!("{SMALL}crowding = -0.5\n"), "profile.toml: cores.crowding is -0.5"),
            (format!("{SMALL}crowding = nan\n"), "profile.toml: cores.crowding is NaN"),
            (format!("{SMALL}background = 2.0\n"), "profile.toml: cores.background leaves no core"),
            (
                format!("{SMALL}[[load]]\ndevice = 'X'\nformat = 'me'\nbits = 2048\nrate = 1.0\n"),
                "profile.toml: load on device X",
            ),
        ] {
            let said = parse(&text).unwrap_err().to_string();
            assert!(said.starts_with(says), "{said:?} does not begin with {says:?}");
        }
    }

    #[test]
    fn the_profiles_of_the_documentation_can_be_read() {
        let page = include_str!("../../../../docs/formats/profile.md");
        let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(parse(example).unwrap().cpu["rsa2048"].sign, Some(355.0.into()));
        let channel = parse(include_str!("../../../../docs/operating/profiles/serial-channel-published.toml")).unwrap();
        assert_eq!(channel.channel.unwrap().rest_us, 33.0);
        let card = parse(include_str!("../../../../docs/operating/profiles/accelerator-published.toml")).unwrap();
        assert_eq!(card.load.len(), 2);
    }

    #[test]
    fn a_call_costs_more_with_each_lane_that_is_filled() {
        let times = Times { alone: 440.0, full: 110.0 };
        assert_eq!(times.call(1, 8), 440.0);
        assert_eq!(times.call(8, 8), 880.0);
        assert!((times.call(4, 8) - (440.0 + 440.0 * 3.0 / 7.0)).abs() < 1e-9);
        assert_eq!(Times::from(500.0).call(3, 1), 1500.0, "without lanes, one after the other");
    }

    #[test]
    fn a_long_message_costs_what_its_copied_part_and_the_rest_of_it_cost() {
        let cost = Cost { message_us: 1.0, byte_ns: 0.5, ..Cost::default() };
        let long = Cost { long_byte_ns: Some(0.25), far_byte_ns: 1.0, ..cost };
        assert_eq!((cost.message(2000.0), long.message(2000.0)), (2.0, 2.0));
        assert_eq!((cost.message(8192.0), long.message(8192.0)), (1.0 + 4.096, 1.0 + 2.048 + 1.024));
        assert_eq!((cost.far(2000.0), long.far(2000.0), long.far(8192.0)), (0.0, 2.0, 4.096));
    }

    #[test]
    fn a_card_is_described_by_formats_and_bits() {
        let text = format!(
            "{SMALL}[devices.A]\nkind = 'accelerator'\nplace = 'card'\nme-us = {{ 2048 = 46.0 }}\ncrt-us = {{ 2048 = 507.0 }}\n"
        );
        let profile = parse(&text).unwrap();
        let (name, card) = profile.device(DeviceKind::Accelerator, false).unwrap();
        assert_eq!((name, card.waiting_max(), card.lanes), ("A", 8, 1));
        let lanes = Device { lanes: 8, ..card.clone() };
        assert_eq!((lanes.waiting_max(), Device { pending: 3, ..lanes }.waiting_max()), (16, 3));
        assert_eq!(card.times("rsa2048", Operation::Verify).unwrap().alone, 46.0);
        assert_eq!(card.times("rsa2048", Operation::Unwrap).unwrap().alone, 507.0);
        assert_eq!(card.times("rsa4096", Operation::Sign), None);
        assert_eq!(card.times("p256", Operation::Sign), None);
    }
}
