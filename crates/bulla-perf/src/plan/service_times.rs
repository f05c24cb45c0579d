//! What operations with keys, and sealing and opening beside them, take on this machine.
//!
//! Everything is processor time of the measuring thread: operations one at a time on the processor, one and eight at a
//! time on the lanes of an accelerator, and [`bulla_seal`] with sixteen messages at a time, as an adapter does, without
//! the operations that it hands out. How fast the processor is changes meanwhile, so everything is measured in several
//! rounds, each time between two reference signatures, and what counts is the median of how many signatures long it
//! took.

use super::pace::Reference;
use super::profile::{KeyCosts, Operation, Operations, Pace, Protection, SealOpen, Times};
use crate::error::{Error, Result};
use bulla_device::{
    Accelerator, CpuDevice, Device, Driver, Finished, Job, Operation as DeviceOperation, SystemRandom, thread_cpu_ns,
};
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
use bulla_seal::policy::{ContentCipher, KeyReuse, Pqc};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{
    Batch, Bound, Content, Continuation, Dn, Expect, Leaf, Opener, Packing, Policy, Sealer, Step, WithProof,
};
use bytes::Bytes;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Jobs in one call of an accelerator.
pub(crate) const LANES: u32 = 8;
/// Messages that are sealed or opened together, as an adapter does.
const LOT: usize = 16;
/// However long that takes, so often something is measured in a round.
const SAMPLES_MIN: usize = 3;
/// How often all of it is measured.
const ROUNDS: u32 = 5;
/// The two payloads between which costs a byte are told, in bytes.
const PAYLOADS: [usize; 2] = [2048, 65_536];
/// How often two threads wake each other to tell how long that takes.
const WAKE_UPS: usize = 2000;
/// How long two threads on one core are watched, and from when on one of them was put aside for the other: an
/// interrupt takes less.
const SLICES_WATCHED: Duration = Duration::from_millis(400);
const ASIDE: Duration = Duration::from_micros(300);
/// An authority lives longer than the certificates of a day that it issues.
const AUTHORITY_DAYS: u32 = 2;
/// A thread that slept for so long may have to wait for its core to wake up, too.
pub(crate) const DEEP: Duration = Duration::from_micros(300);

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceTimes {
    /// On the processor, by key.
    pub(crate) cpu: BTreeMap<String, Operations>,
    /// On the lanes, by key; none where there is no accelerator.
    pub(crate) lanes: BTreeMap<String, Operations>,
    /// Sealing and opening beside the operations; what threads do with each other is left out.
    pub(crate) protection: Protection,
    /// How fast the cores were: what the reference signatures took.
    pub(crate) pace: Pace,
}

/// Measures for every key, each figure for at least so long in all.
///
/// # Errors
/// [`Error::System`]: no scratch directory; [`Error::Device`]: a device or a key failed; whatever `progress` says.
pub(crate) fn measure(
    keys: &[KeySpec],
    lanes: Option<&Path>,
    each: Duration,
    progress: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<ServiceTimes> {
    progress("keys")?;
    let mut accelerator = lanes.map(Lanes::open).transpose()?;
    let mut cpu = CpuDevice::new("CPU");
    let world = World::new()?;
    let people = keys.iter().map(|key| Ok((key.to_string(), Person::new(&world, *key)?.jobs(&mut cpu)?)));
    let people = people.collect::<Result<Vec<(String, BTreeMap<Operation, Job>)>>>()?;
    // Beside the operations, sealing costs about the same with every RSA and EC key: attributes, digests, ciphers. With
    // ML-DSA and ML-KEM it costs more, so it is measured with each of them.
    let person = Person::new(&world, KeySpec::Rsa(2048))?;
    let long = keys.iter().filter(|key| key.kind().is_post_quantum());
    let long = long.map(|key| Ok((key.to_string(), Person::new(&world, *key)?))).collect::<Result<Vec<_>>>()?;
    let each = each / ROUNDS;
    let mut scale = Scale { reference: Reference::new()?, readings: Vec::new() };
    let mut found: BTreeMap<(&str, Operation, On), Vec<f64>> = BTreeMap::new();
    let mut sealing: Vec<[[f64; 4]; SEALING.len()]> = Vec::new();
    let mut by_key: Vec<Vec<[[f64; 4]; BY_KEY.len()]>> = vec![Vec::new(); long.len()];
    for round in 1..=ROUNDS {
        progress(&format!("operations and sealing, round {round} of {ROUNDS}"))?;
        for (name, jobs) in &people {
            for (operation, job) in jobs {
                let mut note = |on, times| found.entry((name, *operation, on)).or_default().push(times);
                let by = if Pace::is_of_curve(name) { By::Curve } else { By::Rsa };
                note(On::Processor, scale.of(by, || job_us(&mut cpu, job, 1, each))?);
                if let Some(lanes) = accelerator.as_mut().filter(|lanes| lanes.driver.takes(job)) {
                    let engine = lanes.engine.as_mut();
                    note(On::OneLane, scale.of(By::Rsa, || job_us(engine, job, 1, each))?);
                    note(On::AllLanes, scale.of(By::Rsa, || job_us(engine, job, LANES as usize, each))?);
                }
            }
        }
        sealing.push(sealing_of(&person, SEALING, &mut scale, &mut cpu, each)?);
        for ((_, person), rounds) in long.iter().zip(&mut by_key) {
            rounds.push(sealing_of(person, BY_KEY, &mut scale, &mut cpu, each)?);
        }
    }
    // A reference signature in the middle turns numbers of signatures into microseconds again.
    let pace = super::pace::middle(&scale.readings);
    let reference = pace.rsa_us;
    let mut times = ServiceTimes { pace, ..ServiceTimes::default() };
    for ((name, operation, on), ratios) in found {
        let by_curve = on == On::Processor && Pace::is_of_curve(name);
        let us = if by_curve { pace.curve_us } else { reference } * median(ratios);
        match on {
            On::Processor => times.cpu.entry(name.to_owned()).or_default().set(operation, us.into()),
            On::OneLane => times.lanes.entry(name.to_owned()).or_default().set(operation, us.into()),
            On::AllLanes => {
                let operations = times.lanes.entry(name.to_owned()).or_default();
                let alone = operations.get(operation).map_or(us, |times| times.alone);
                operations.set(operation, Times { alone, full: us });
            }
        }
    }
    let parts = middle_of(&sealing, reference);
    let protection = &mut times.protection;
    let [integrity, privacy, confidentiality, live, batch] = parts;
    // The tree has nothing to do with how long a message is.
    let shared = |batch: SealOpen, alone: SealOpen| {
        let bytes = PAYLOADS[0] as f64;
        SealOpen {
            seal_us: (batch.seal(bytes) - alone.seal(bytes)).max(0.0),
            open_us: (batch.open(bytes) - alone.open(bytes)).max(0.0),
            ..SealOpen::default()
        }
    };
    protection.batch = shared(batch, integrity);
    protection.keys = long
        .into_iter()
        .zip(&by_key)
        .map(|((name, _), rounds)| {
            let [signed, encrypted, batch] = middle_of(rounds, reference);
            let signer = signed.beyond(integrity);
            (name, KeyCosts { signer, batch: shared(batch, signed), recipient: encrypted.beyond(confidentiality) })
        })
        .collect();
    (protection.integrity, protection.privacy) = (integrity, privacy);
    (protection.confidentiality, protection.live) = (confidentiality, live);
    Ok(times)
}

/// One round of sealing and opening, in reference signatures.
fn sealing_of<const COUNT: usize>(
    person: &Person,
    hows: [How; COUNT],
    scale: &mut Scale,
    cpu: &mut CpuDevice,
    each: Duration,
) -> Result<[[f64; 4]; COUNT]> {
    let mut parts = [[0.0; 4]; COUNT];
    for (part, how) in parts.iter_mut().zip(hows) {
        *part = scale.each(By::Rsa, || person.seal_open(how, cpu, each))?;
    }
    Ok(parts)
}

/// The middle of all rounds, in microseconds.
fn middle_of<const COUNT: usize>(rounds: &[[[f64; 4]; COUNT]], reference_us: f64) -> [SealOpen; COUNT] {
    std::array::from_fn(|which| {
        let [seal_us, seal_byte_ns, open_us, open_byte_ns] = std::array::from_fn(|field| {
            reference_us * median(rounds.iter().map(|parts| parts[which][field]).collect())
        });
        SealOpen { seal_us, seal_byte_ns, open_us, open_byte_ns }
    })
}

/// Where an operation was measured.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum On {
    Processor,
    OneLane,
    AllLanes,
}

/// Which reference signature something is measured in.
#[derive(Clone, Copy, Debug)]
enum By {
    Rsa,
    Curve,
}

/// Measures in reference signatures.
struct Scale {
    reference: Reference,
    /// What signatures took.
    readings: Vec<Pace>,
}

impl Scale {
    /// How many signatures long it took.
    fn of(&mut self, by: By, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let [times] = self.each(by, || Ok([measure()?]))?;
        Ok(times)
    }

    /// The same of several numbers.
    fn each<const COUNT: usize>(
        &mut self,
        by: By,
        measure: impl FnOnce() -> Result<[f64; COUNT]>,
    ) -> Result<[f64; COUNT]> {
        let before = self.reference.pace()?;
        let measured = measure()?;
        let after = self.reference.pace()?;
        self.readings.extend([before, after]);
        let reference = match by {
            By::Rsa => f64::midpoint(before.rsa_us, after.rsa_us),
            By::Curve => f64::midpoint(before.curve_us, after.curve_us),
        };
        Ok(measured.map(|us| us / reference))
    }
}

/// By which part an RSA 2048 signature takes longer while every core computes some, the median over all cores.
///
/// # Errors
/// As [`measure`].
pub(crate) fn crowding(cores: usize, each: Duration) -> Result<f64> {
    let world = World::new()?;
    let person = Person::new(&world, KeySpec::Rsa(2048))?;
    let jobs = person.jobs(&mut CpuDevice::new("CPU"))?;
    let job = jobs.get(&Operation::Sign).ok_or_else(|| Error::Device("nothing was signed".to_owned()))?;
    let alone = job_us(&mut CpuDevice::new("CPU"), job, 1, each)?;
    let begin = Barrier::new(cores);
    let together = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    job_us(&mut CpuDevice::new("CPU"), job, 1, each)
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::Device("a thread that measured ended early".to_owned())))
        });
        results.collect::<Result<Vec<f64>>>()
    })?;
    Ok((median(together) / alone - 1.0).max(0.0))
}

/// What waking threads takes, microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeUp {
    /// Until a thread that has just gone to sleep runs.
    pub(crate) short: f64,
    /// Until one runs that has slept for [`DEEP`].
    pub(crate) deep: f64,
    /// Processor time of waking another thread and going to sleep.
    pub(crate) cpu: f64,
}

/// Lets two threads wake each other, at once and after a while.
pub(crate) fn wake_up() -> WakeUp {
    let (short, cpu) = round_trip(Duration::ZERO);
    let (slept, _) = round_trip(DEEP);
    // There, a thread has slept for long; back, for as long as the way there took.
    WakeUp { short: short / 2.0, deep: (slept - short / 2.0).max(short / 2.0), cpu }
}

/// A thread is woken and wakes the other, which has kept its core busy for so long before: elapsed, and processor time
/// of the waker without that, microseconds.
fn round_trip(busy: Duration) -> (f64, f64) {
    let (there, arrived) = std::sync::mpsc::sync_channel::<()>(1);
    let (back, returned) = std::sync::mpsc::sync_channel::<()>(1);
    thread::scope(|scope| {
        scope.spawn(move || while arrived.recv().is_ok() && back.send(()).is_ok() {});
        let (mut waits, mut spent) = (Vec::with_capacity(WAKE_UPS), Vec::with_capacity(WAKE_UPS));
        for _ in 0..WAKE_UPS {
            let begun = Instant::now();
            while begun.elapsed() < busy {
                std::hint::spin_loop();
            }
            let (begun, cpu) = (Instant::now(), thread_cpu_ns());
            if there.send(()).is_err() || returned.recv().is_err() {
                break;
            }
            waits.push(begun.elapsed().as_nanos() as f64 / 1000.0);
            spent.push(thread_cpu_ns().saturating_sub(cpu) as f64 / 1000.0);
        }
        drop(there);
        (median(waits), median(spent))
    })
}

/// How long a thread keeps its core while another one waits for it, microseconds: two threads on one core compute, and
/// what counts is the median of how long one of them ran before the other did. 0 where the system lets no thread choose
/// its core.
pub(crate) fn slice_us() -> f64 {
    let Some(core) = sched_getaffinity(None).ok().and_then(|mine| (0..CpuSet::MAX_CPU).find(|core| mine.is_set(*core)))
    else {
        return 0.0;
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| runs(core, &over))).collect();
        thread::sleep(SLICES_WATCHED);
        over.store(true, Ordering::Relaxed);
        let runs: Vec<f64> = threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect();
        if runs.len() < SAMPLES_MIN { 0.0 } else { median(runs) }
    })
}

/// How long a thread on that core ran each time before it was put aside, microseconds.
fn runs(core: usize, over: &AtomicBool) -> Vec<f64> {
    let mut here = CpuSet::new();
    here.set(core);
    let mut runs = Vec::new();
    if sched_setaffinity(None, &here).is_err() {
        return runs;
    }
    let (mut begun, mut last) = (None, Instant::now());
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now.duration_since(last) >= ASIDE {
            // The first run began before this thread was watched.
            runs.extend(begun.map(|begun| last.duration_since(begun).as_nanos() as f64 / 1000.0));
            begun = Some(now);
        }
        last = now;
    }
    runs
}

/// An accelerator in this process.
struct Lanes {
    driver: Accelerator,
    engine: Box<dyn Device>,
}

impl Lanes {
    fn open(library: &Path) -> Result<Lanes> {
        let driver = Accelerator::open("ACCELERATOR", library).map_err(device)?;
        let engine = driver.start_engine().map_err(device)?;
        Ok(Lanes { driver, engine })
    }
}

/// Processor time of one job where so many go in a call, microseconds. It is the median, but of signatures with ML-DSA
/// the mean: such a signature is tried until it fits (FIPS 204, algorithm 7), so half of them take far less than the
/// others do.
fn job_us(engine: &mut dyn Device, job: &Job, count: usize, each: Duration) -> Result<f64> {
    let mut spent = Vec::new();
    let begun = Instant::now();
    while spent.len() < SAMPLES_MIN || begun.elapsed() < each {
        let mut jobs = vec![job.clone(); count];
        let before = thread_cpu_ns();
        let done = carry_out(engine, &mut jobs)?;
        spent.push(thread_cpu_ns().saturating_sub(before) as f64 / 1000.0 / count as f64);
        done.into_iter().try_for_each(|finished| finished.result.map(drop)).map_err(device)?;
    }
    Ok(if job.work.operation() == DeviceOperation::MlDsaSign { mean(&spent) } else { median(spent) })
}

/// Submits all jobs and waits for all results.
fn carry_out(engine: &mut dyn Device, jobs: &mut Vec<Job>) -> Result<Vec<Finished>> {
    let wanted = jobs.len();
    let mut done = Vec::with_capacity(wanted);
    while done.len() < wanted {
        if !jobs.is_empty() {
            engine.submit(jobs).map_err(device)?;
        }
        engine.poll(&mut done).map_err(device)?;
    }
    Ok(done)
}

/// An authority of one's own in a directory that goes with it.
struct World {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl World {
    fn new() -> Result<World> {
        let directory = tempfile::tempdir()?;
        let authority = directory.path().join("ca");
        let dn = dn("CN=Authority,O=Calibration")?;
        let authority = Authority::create(&authority, &dn, KeySpec::Ec(Curve::P256), AUTHORITY_DAYS, SystemTime::now())
            .map_err(device)?;
        Ok(World { directory, authority })
    }
}

/// A peer that writes to itself.
struct Person {
    dn: Dn,
    ring: Arc<Ring>,
    is_post_quantum: bool,
}

/// What is measured of sealing.
#[derive(Clone, Copy, Debug)]
enum How {
    Integrity,
    Privacy,
    Confidentiality,
    /// Confidentiality under a content key that is live.
    Live,
    /// Integrity, one signature for the lot.
    Batch,
}

/// What is measured, in the order of a round.
const SEALING: [How; 5] = [How::Integrity, How::Privacy, How::Confidentiality, How::Live, How::Batch];
/// The same, with each kind of key whose signatures and certificates are long.
const BY_KEY: [How; 3] = [How::Integrity, How::Confidentiality, How::Batch];

/// Time for sealing, for opening, and the jobs that were handed out.
struct Lot {
    seal_us: f64,
    open_us: f64,
    jobs: Vec<Job>,
}

impl Person {
    fn new(world: &World, key: KeySpec) -> Result<Person> {
        let dn = dn(&format!("CN={key},O=Calibration"))?;
        let directory = world.directory.path().join(format!("ring-{key}"));
        ring::create(&directory).map_err(device)?;
        let chain = world.authority.chain();
        for key in [Some(key), key.counterpart()].into_iter().flatten() {
            let uses = KeyUse::usual(key.kind());
            let names = Vec::new();
            let request = Request { dn: dn.clone(), key, uses, days: 1, alternative_names: names, passphrase: None };
            let (certificate, private) = world.authority.issue(&request, SystemTime::now()).map_err(device)?;
            let label = key.to_string();
            ring::install_own(&directory, &label, &certificate, &chain, &private).map_err(device)?;
            ring::install_person(&directory, &label, &certificate, &chain).map_err(device)?;
        }
        ring::install_trust(&directory, "authority", world.authority.root()).map_err(device)?;
        let ring = Arc::new(Ring::load(&directory, None).map_err(device)?);
        Ok(Person { dn, ring, is_post_quantum: key.kind().is_post_quantum() })
    }

    fn policy(&self, how: How) -> Policy {
        let signed = matches!(how, How::Integrity | How::Privacy | How::Batch);
        let mut policy = Policy::new("CALIBRATION");
        let digest = if self.is_post_quantum { bulla_device::Digest::Sha512 } else { bulla_device::Digest::Sha256 };
        policy.sign = signed.then_some(digest);
        policy.pqc = if self.is_post_quantum { Pqc::Required } else { Pqc::None };
        policy.encrypt = (!matches!(how, How::Integrity | How::Batch)).then_some(ContentCipher::Aes256Gcm);
        if signed {
            policy.signers = vec![self.dn.clone()];
        }
        if policy.encrypt.is_some() {
            policy.recipients = vec![self.dn.clone()];
        }
        if matches!(how, How::Batch) {
            policy.sign_batch = LOT as u32;
        }
        if matches!(how, How::Live) {
            policy.key_reuse = KeyReuse::Unlimited;
        }
        policy
    }

    /// One job of each operation: privacy has them all.
    fn jobs(&self, cpu: &mut CpuDevice) -> Result<BTreeMap<Operation, Job>> {
        let mut bench = Bench::new(self, How::Privacy, PAYLOADS[0])?;
        let jobs = bench.lot(cpu)?.jobs;
        Ok(jobs.into_iter().map(|job| (operation(job.work.operation()), job)).collect())
    }

    /// Sealing and opening: seal, microseconds a message and nanoseconds a byte, and open.
    fn seal_open(&self, how: How, cpu: &mut CpuDevice, each: Duration) -> Result<[f64; 4]> {
        let mut found = Vec::with_capacity(PAYLOADS.len());
        for bytes in PAYLOADS {
            let mut bench = Bench::new(self, how, bytes)?;
            // The first lot finds the parties, makes a key that lives, and the like.
            bench.lot(cpu)?;
            let (mut seals, mut opens) = (Vec::new(), Vec::new());
            let begun = Instant::now();
            while seals.len() < SAMPLES_MIN || begun.elapsed() < each {
                let lot = bench.lot(cpu)?;
                seals.push(lot.seal_us);
                opens.push(lot.open_us);
            }
            found.push((bytes as f64, median(seals), median(opens)));
        }
        let [(small, seal_small, open_small), (large, seal_large, open_large)] = found[..] else {
            return Err(Error::Device("sealing was not measured".to_owned()));
        };
        let line = |at_small: f64, at_large: f64| {
            let byte_us = ((at_large - at_small) / (large - small)).max(0.0);
            ((at_small - byte_us * small).max(0.0), byte_us * 1000.0)
        };
        let ((seal_us, seal_byte_ns), (open_us, open_byte_ns)) =
            (line(seal_small, seal_large), line(open_small, open_large));
        Ok([seal_us, seal_byte_ns, open_us, open_byte_ns])
    }
}

/// Seals and opens lots of messages.
struct Bench {
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    sealer: Sealer,
    opener: Opener,
    content: Content,
    bound: Bound,
}

impl Bench {
    fn new(person: &Person, how: How, bytes: usize) -> Result<Bench> {
        let policy = Arc::new(person.policy(how));
        let ring = Arc::clone(&person.ring);
        let sealer = Sealer::new(Arc::clone(&policy), Arc::clone(&ring), None, SystemTime::now()).map_err(device)?;
        Ok(Bench {
            policy,
            ring,
            sealer,
            opener: Opener::new(),
            content: Content { packing: Packing::Data, content_type: None, bytes: vec![7; bytes].into() },
            bound: Bound {
                destination: "CALIBRATION@HERE".to_owned(),
                // A message-id of eight bytes (AMQP part 3, section 3.2.4), alone in its section.
                message_id: Bytes::from_static(b"\x80\x00\x00\x00\x00\x00\x00\x00\x01"),
                properties: Bytes::from_static(b"\x00\x53\x73\xc0\x0a\x01\x80\x00\x00\x00\x00\x00\x00\x00\x01"),
                application_properties: Bytes::new(),
                annotations: Bytes::new(),
            },
        })
    }

    /// A lot sealed and opened again.
    fn lot(&mut self, cpu: &mut CpuDevice) -> Result<Lot> {
        let now = SystemTime::now();
        let mut jobs = Vec::new();
        let Self { policy, ring, sealer, opener, content, bound } = self;
        let seal = || sealer.seal(content.clone(), bound, now, &mut SystemRandom);
        let (sealed, seal_us) = work_off(seal, cpu, &mut jobs)?;
        let sealed: Vec<Bytes> = sealed.into_iter().map(|sealed| sealed.der).collect();
        let mut next = sealed.iter().cycle().cloned();
        let mut open = || {
            let expect = Expect {
                destinations: vec![bound.destination.clone()],
                message_id: bound.message_id.clone(),
                properties: bound.properties.clone(),
                application_properties: Bytes::new(),
                annotations: Bytes::new(),
            };
            opener.open(policy, ring, next.next().unwrap_or_default(), expect, now, now)
        };
        if policy.sign_batch > 1 {
            // Of a batch it is the rule that others of its messages were opened before.
            work_off(&mut open, cpu, &mut jobs)?;
        }
        let (opened, open_us) = work_off(open, cpu, &mut jobs)?;
        match opened.iter().all(|opened| opened.get().content.bytes == content.bytes) {
            true => Ok(Lot { seal_us, open_us, jobs }),
            false => Err(Error::Wrong("what was opened is not what was sealed".to_owned())),
        }
    }
}

/// A lot of messages, all to their ends. Returns the results, and the processor time of a message beside the jobs;
/// copies of those are added to `handed_out`.
fn work_off<T, E: Display>(
    mut start: impl FnMut() -> std::result::Result<Step<T, E>, E>,
    cpu: &mut CpuDevice,
    handed_out: &mut Vec<Job>,
) -> Result<(Vec<T>, f64)> {
    let mut work = UnderWay::default();
    let begun = thread_cpu_ns();
    for _ in 0..LOT {
        work.take(start().map_err(device)?);
    }
    let mut time_ns = thread_cpu_ns().saturating_sub(begun);
    if !work.leaves.is_empty() {
        let begun = thread_cpu_ns();
        let made = Batch::of(std::mem::take(&mut work.leaves), &mut SystemRandom).map_err(device)?;
        let (batch, job) = made.ok_or_else(|| Error::Device("a lot that is no batch".to_owned()))?;
        time_ns += thread_cpu_ns().saturating_sub(begun);
        handed_out.push(job.clone());
        let signed = carry_out(cpu, &mut vec![job])?.pop();
        let signed = signed.ok_or_else(|| Error::Device("a signature without an answer".to_owned()))?;
        let signature = signed.result.map_err(device)?;
        let begun = thread_cpu_ns();
        for (go_on, proof) in std::mem::take(&mut work.unsigned).into_iter().zip(batch.proofs(&signature)) {
            work.take(go_on(Ok(proof)).map_err(device)?);
        }
        time_ns += thread_cpu_ns().saturating_sub(begun);
    }
    while !work.jobs.is_empty() {
        handed_out.extend_from_slice(&work.jobs);
        let done = carry_out(cpu, &mut work.jobs)?;
        let mut continuations = std::mem::take(&mut work.waiting);
        let begun = thread_cpu_ns();
        for Finished { id, result, .. } in done {
            let go_on = usize::try_from(id).ok().and_then(|at| continuations.get_mut(at)).and_then(Option::take);
            let go_on = go_on.ok_or_else(|| Error::Device("an answer to no question".to_owned()))?;
            work.take(go_on(result).map_err(device)?);
        }
        time_ns += thread_cpu_ns().saturating_sub(begun);
    }
    Ok((work.results, time_ns as f64 / 1000.0 / LOT as f64))
}

/// Messages of a lot, as far as they have come.
struct UnderWay<T, E> {
    results: Vec<T>,
    waiting: Vec<Option<Continuation<T, E>>>,
    jobs: Vec<Job>,
    leaves: Vec<Leaf>,
    unsigned: Vec<WithProof<T, E>>,
}

impl<T, E> Default for UnderWay<T, E> {
    fn default() -> Self {
        Self {
            results: Vec::with_capacity(LOT),
            waiting: Vec::with_capacity(LOT),
            jobs: Vec::with_capacity(LOT),
            leaves: Vec::with_capacity(LOT),
            unsigned: Vec::with_capacity(LOT),
        }
    }
}

impl<T, E> UnderWay<T, E> {
    fn take(&mut self, step: Step<T, E>) {
        match step {
            Step::Done(result) => self.results.push(result),
            Step::Device(mut job, go_on) => {
                job.id = self.waiting.len() as u64;
                self.jobs.push(job);
                self.waiting.push(Some(go_on));
            }
            Step::Leaf(leaf, go_on) => {
                self.leaves.push(*leaf);
                self.unsigned.push(go_on);
            }
        }
    }
}

/// What the planner calls it.
fn operation(operation: DeviceOperation) -> Operation {
    match operation {
        DeviceOperation::RsaSign | DeviceOperation::EcdsaSign | DeviceOperation::MlDsaSign => Operation::Sign,
        DeviceOperation::RsaVerify | DeviceOperation::EcdsaVerify | DeviceOperation::MlDsaVerify => Operation::Verify,
        DeviceOperation::RsaWrap | DeviceOperation::EcdhEphemeral | DeviceOperation::MlKemEncapsulate => {
            Operation::Wrap
        }
        DeviceOperation::RsaUnwrap | DeviceOperation::EcdhDerive | DeviceOperation::MlKemDecapsulate => {
            Operation::Unwrap
        }
    }
}

fn dn(text: &str) -> Result<Dn> {
    text.parse().map_err(|error| Error::Usage(format!("{text}: {error}")))
}

fn device(error: impl Display) -> Error {
    Error::Device(error.to_string())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The middle one; not a number where there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_a_key_is_measured_and_signing_takes_longer_than_verifying() {
        let keys = [KeySpec::Rsa(2048), KeySpec::Ec(Curve::P256)];
        let times = measure(&keys, None, Duration::ZERO, &mut |_| Ok(())).unwrap();
        assert_eq!(times.cpu.keys().collect::<Vec<_>>(), ["p256", "rsa2048"]);
        for operations in times.cpu.values() {
            assert!(Operation::ALL.iter().all(|operation| operations.get(*operation).is_some_and(|us| us.alone > 0.0)));
        }
        let rsa = times.cpu["rsa2048"];
        assert!(rsa.sign.unwrap().alone > rsa.verify.unwrap().alone, "{rsa:?}");
        assert!(times.lanes.is_empty());
        let protection = &times.protection;
        for sealing in [protection.integrity, protection.privacy, protection.confidentiality, protection.live] {
            assert!(sealing.seal(2048.0) > 0.0 && sealing.open(2048.0) > 0.0, "{sealing:?}");
        }
    }

    #[test]
    fn what_long_keys_add_is_measured_by_kind() {
        let keys = [KeySpec::Rsa(2048), "ml-dsa-65".parse().unwrap()];
        let protection = measure(&keys, None, Duration::ZERO, &mut |_| Ok(())).unwrap().protection;
        assert_eq!(protection.keys.keys().collect::<Vec<_>>(), ["ml-dsa-65"]);
        let KeyCosts { signer, recipient, .. } = protection.keys["ml-dsa-65"];
        for costs in [signer, recipient] {
            assert!(costs.seal(2048.0) >= 0.0 && costs.open(2048.0) >= 0.0, "{costs:?}");
        }
        // A digest of twice the length over 64 KB.
        assert!(signer.seal(65_536.0) > 0.0, "{signer:?}");
    }

    #[test]
    fn a_lot_that_shares_a_signature_is_signed_once_and_opens() {
        let world = World::new().unwrap();
        let person = Person::new(&world, KeySpec::Ec(Curve::P256)).unwrap();
        let mut cpu = CpuDevice::new("CPU");
        let signatures = |how, cpu: &mut CpuDevice| {
            let jobs = Bench::new(&person, how, PAYLOADS[0]).unwrap().lot(cpu).unwrap().jobs;
            jobs.iter().filter(|job| operation(job.work.operation()) == Operation::Sign).count()
        };
        assert_eq!((signatures(How::Integrity, &mut cpu), signatures(How::Batch, &mut cpu)), (LOT, 1));
    }

    #[test]
    fn two_threads_wake_each_other() {
        let found = wake_up();
        assert!(found.short > 0.0 && found.deep >= found.short && found.cpu > 0.0, "{found:?}");
    }
}
