//! What a protected message cannot do without, each component measured alone.
//!
//! - *unprotected*: client and queue manager for a message of the same client without protection;
//! - *seal* and *open*: `bulla-seal` on one thread, sixteen messages at a time, without the jobs it hands out;
//! - each *job* that a message hands out, on a device with its lanes full: eight jobs of one shape a call.
//!
//! All are processor time. The bound of a rate is the cores divided by their sum.

use super::cases::{Case, Quality, Reuse};
use super::client::{PAYLOAD_BYTES, properties};
use super::manager::{Manager, load_ring};
use super::{Result, processor};
use bulla_device::{Accelerator, CpuDevice, Device, Driver, Finished, Job, Operation, Output, SystemRandom};
use bulla_seal::ring::Ring;
use bulla_seal::{Bound, Content, Continuation, Expect, Opener, Packing, Policy, Sealer, Step};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Messages that are sealed or opened together, as an adapter does.
const LOT: usize = 16;
/// Jobs in one call.
pub(crate) const LANES: usize = 8;
/// How long one component is measured.
const MEASURE: Duration = Duration::from_millis(400);
/// However long that takes, so often it is measured.
const SAMPLES_MIN: usize = 5;

/// One component of one case.
#[derive(Clone, Debug)]
pub(crate) struct Price {
    /// What it is.
    pub(crate) what: String,
    /// Microseconds of processor time, each.
    pub(crate) us: f64,
    /// How many of them a message needs.
    pub(crate) times: f64,
    /// The device that does it so cheaply; empty for what is no job.
    pub(crate) device: String,
}

impl Price {
    /// Microseconds a message.
    pub(crate) fn share(&self) -> f64 {
        self.us * self.times
    }
}

/// What `bulla-seal` does for one message.
#[derive(Clone)]
struct Parts {
    seal_us: f64,
    open_us: f64,
    /// How many jobs of each operation a message hands out.
    jobs: BTreeMap<Operation, f64>,
}

/// Every component that was asked for so far.
pub(crate) struct Components<'a> {
    manager: &'a Manager,
    unprotected_us: f64,
    engines: Vec<Engine>,
    parts: Vec<(Case, Parts)>,
    /// By key and operation.
    jobs: BTreeMap<(String, Operation), (f64, String)>,
}

impl<'a> Components<'a> {
    /// None yet but an unprotected message, which costs so many microseconds.
    pub(crate) fn new(manager: &'a Manager, unprotected_us: f64) -> Result<Components<'a>> {
        Ok(Components { manager, unprotected_us, engines: engines(manager)?, parts: Vec::new(), jobs: BTreeMap::new() })
    }

    /// What one message of the case needs.
    pub(crate) fn of(&mut self, case: &Case) -> Result<Vec<Price>> {
        let price = |what: &str, us, times, device: &str| Price { what: what.into(), us, times, device: device.into() };
        let mut prices = vec![price("unprotected", self.unprotected_us, 1.0, "")];
        if case.quality == Quality::None {
            return Ok(prices);
        }
        let fresh_share = case.reuse.fresh_share();
        for (share, reuse) in [(fresh_share, Reuse::Times(0)), (1.0 - fresh_share, Reuse::Unlimited)] {
            if share == 0.0 {
                continue;
            }
            let parts = self.parts(&Case { reuse, ..case.clone() })?;
            let kind = if reuse == Reuse::Unlimited { ", live key" } else { "" };
            prices.push(price(&format!("seal{kind}"), parts.seal_us, share, ""));
            prices.push(price(&format!("open{kind}"), parts.open_us, share, ""));
            for (operation, count) in parts.jobs {
                if let Some((us, device)) = self.jobs.get(&(case.key.clone(), operation)) {
                    prices.push(price(operation.as_str(), *us, share * count, device));
                }
            }
        }
        Ok(prices)
    }

    /// Jobs by key and operation: microseconds with full lanes, and the device that did it.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (&str, Operation, f64, &str)> {
        self.jobs.iter().map(|((key, operation), (us, device))| (key.as_str(), *operation, *us, device.as_str()))
    }

    /// Sealing and opening by key, quality and whether the content key lives: microseconds each.
    pub(crate) fn seals(&self) -> impl Iterator<Item = (&Case, f64, f64)> {
        self.parts.iter().map(|(case, parts)| (case, parts.seal_us, parts.open_us))
    }

    /// Measured once for each case that differs.
    fn parts(&mut self, case: &Case) -> Result<Parts> {
        if let Some((_, parts)) = self.parts.iter().find(|(known, _)| known == case) {
            return Ok(parts.clone());
        }
        let bench = SealBench::new(self.manager, case)?;
        let (parts, samples) = bench.measure(&mut self.engines)?;
        for (operation, jobs) in samples {
            if self.jobs.contains_key(&(case.key.clone(), operation)) {
                continue;
            }
            let mut best: Option<(f64, String)> = None;
            for engine in self.engines.iter_mut().filter(|engine| engine.takes(&jobs)) {
                let us = full_lanes(engine, &jobs)?;
                if best.as_ref().is_none_or(|(least, _)| us < *least) {
                    best = Some((us, engine.device.name().to_owned()));
                }
            }
            if let Some(best) = best {
                self.jobs.insert((case.key.clone(), operation), best);
            }
        }
        self.parts.push((case.clone(), parts.clone()));
        Ok(parts)
    }
}

/// An engine in this process, beside those of the queue manager.
pub(crate) struct Engine {
    device: Box<dyn Device>,
    /// None for the processor, which takes everything.
    driver: Option<Accelerator>,
}

impl Engine {
    fn takes(&self, jobs: &[Job]) -> bool {
        self.driver.as_ref().is_none_or(|driver| jobs.iter().all(|job| driver.takes(job)))
    }
}

/// One engine of each kind of device that the queue manager has; the processor is the first.
pub(crate) fn engines(manager: &Manager) -> Result<Vec<Engine>> {
    let mut engines = vec![Engine { device: Box::new(CpuDevice::new("CPU")), driver: None }];
    if manager.devices.accelerators > 0 {
        let driver = Accelerator::open("ACCELERATOR", &manager.lanes())?;
        engines.push(Engine { device: driver.start_engine()?, driver: Some(driver) });
    }
    Ok(engines)
}

/// The last one that takes these jobs: the processor is there when no other does.
fn engine_for<'a>(engines: &'a mut [Engine], jobs: &[Job]) -> Result<&'a mut Engine> {
    engines.iter_mut().rev().find(|engine| engine.takes(jobs)).ok_or_else(|| "no device".into())
}

/// Microseconds of processor time a job, eight of one shape a call: the median of many calls.
fn full_lanes(engine: &mut Engine, samples: &[Job]) -> Result<f64> {
    let mut spent = Vec::new();
    let begun = Instant::now();
    while spent.len() < SAMPLES_MIN || begun.elapsed() < MEASURE {
        let mut jobs: Vec<Job> = samples.iter().cycle().take(LANES).cloned().collect();
        let mut done = Vec::with_capacity(LANES);
        let before = processor::of_this_thread();
        carry_out(engine, &mut jobs, &mut done)?;
        spent.push(processor::of_this_thread() - before);
        if let Some(Err(error)) = done.into_iter().map(|finished| finished.result).find(std::result::Result::is_err) {
            return Err(error.into());
        }
    }
    Ok(median(spent) / LANES as f64)
}

/// Submits all jobs and waits for all results.
fn carry_out(engine: &mut Engine, jobs: &mut Vec<Job>, done: &mut Vec<Finished>) -> Result<()> {
    let wanted = done.len() + jobs.len();
    while done.len() < wanted {
        if !jobs.is_empty() {
            engine.device.submit(jobs)?;
        }
        engine.device.poll(done)?;
    }
    Ok(())
}

/// In microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default().as_nanos() as f64 / 1000.0
}

/// Jobs of some messages, by what they ask for.
type Samples = BTreeMap<Operation, Vec<Job>>;

/// Seals and opens as the queue manager does for the users of a case, with their very keys.
struct SealBench {
    policy: Arc<Policy>,
    putter: Arc<Ring>,
    getter: Arc<Ring>,
    content: Content,
    bound: Bound,
}

impl SealBench {
    fn new(manager: &Manager, case: &Case) -> Result<SealBench> {
        let (putter, getter) = case.users();
        let queue = case.queue();
        let text = case.policy(&format!("'{queue}'"), &putter, &getter).ok_or("nothing to seal")?;
        let policy = bulla::mqsc::policies_from_text(&text)?.pop().ok_or("no policy")?;
        let properties = properties(1);
        Ok(SealBench {
            policy: Arc::new(policy),
            putter: load_ring(&manager.ring(&putter))?,
            getter: load_ring(&manager.ring(&getter))?,
            content: Content { packing: Packing::Data, content_type: None, bytes: vec![7; PAYLOAD_BYTES].into() },
            bound: Bound {
                destination: format!("{queue}@BENCH"),
                message_id: Bytes::copy_from_slice(&properties[6..]),
                properties: properties.into(),
                application_properties: Bytes::new(),
            },
        })
    }

    fn measure(&self, engines: &mut [Engine]) -> Result<(Parts, Samples)> {
        let mut sealer =
            Sealer::new(Arc::clone(&self.policy), Arc::clone(&self.putter), Some("BENCH".into()), SystemTime::now())?;
        let opener = Opener::new();
        let (mut seals, mut opens) = (Vec::new(), Vec::new());
        let mut jobs: Vec<Job> = Vec::new();
        let begun = Instant::now();
        // The first lot finds the parties, makes a key that lives, and the like.
        let mut first = true;
        while seals.len() < SAMPLES_MIN || begun.elapsed() < MEASURE {
            jobs.clear();
            let (sealed, seal_time) = self.seal(&mut sealer, engines, &mut jobs)?;
            let open_time = self.open(&opener, sealed, engines, &mut jobs)?;
            if !std::mem::take(&mut first) {
                seals.push(seal_time);
                opens.push(open_time);
            }
        }
        let mut samples = Samples::new();
        for job in jobs {
            samples.entry(job.work.operation()).or_default().push(job);
        }
        let parts = Parts {
            seal_us: median(seals) / LOT as f64,
            open_us: median(opens) / LOT as f64,
            jobs: samples.iter().map(|(operation, jobs)| (*operation, jobs.len() as f64 / LOT as f64)).collect(),
        };
        Ok((parts, samples))
    }

    fn seal(&self, sealer: &mut Sealer, engines: &mut [Engine], jobs: &mut Vec<Job>) -> Result<(Vec<Bytes>, Duration)> {
        let now = SystemTime::now();
        let start = || sealer.seal(self.content.clone(), &self.bound, now, &mut SystemRandom);
        let (sealed, time) = work_off(start, engines, jobs)?;
        Ok((sealed.into_iter().map(|sealed| sealed.der).collect(), time))
    }

    fn open(
        &self,
        opener: &Opener,
        sealed: Vec<Bytes>,
        engines: &mut [Engine],
        jobs: &mut Vec<Job>,
    ) -> Result<Duration> {
        let now = SystemTime::now();
        let mut sealed = sealed.into_iter();
        let start = || {
            let expect = Expect {
                destinations: vec![self.bound.destination.clone()],
                message_id: self.bound.message_id.clone(),
                properties: self.bound.properties.clone(),
                application_properties: Bytes::new(),
            };
            opener.open(&self.policy, &self.getter, sealed.next().unwrap_or_default(), expect, now, now)
        };
        let (opened, time) = work_off(start, engines, jobs)?;
        match opened.iter().all(|opened| opened.get().content.bytes == self.content.bytes) {
            true => Ok(time),
            false => Err("what was opened is not what was sealed".into()),
        }
    }
}

/// A lot of messages, all to their ends. Returns the results, and the processor time beside the jobs; copies of those are
/// added to `handed_out`.
fn work_off<T, E: std::error::Error + Send + Sync + 'static>(
    mut start: impl FnMut() -> std::result::Result<Step<T, E>, E>,
    engines: &mut [Engine],
    handed_out: &mut Vec<Job>,
) -> Result<(Vec<T>, Duration)> {
    let mut results = Vec::with_capacity(LOT);
    let mut waiting: Vec<Option<Continuation<T, E>>> = Vec::with_capacity(LOT);
    let mut jobs: Vec<Job> = Vec::with_capacity(LOT);
    let mut take = |step: Step<T, E>, waiting: &mut Vec<Option<Continuation<T, E>>>, jobs: &mut Vec<Job>| match step {
        Step::Done(result) => results.push(result),
        Step::Device(mut job, go_on) => {
            job.id = waiting.len() as u64;
            jobs.push(job);
            waiting.push(Some(go_on));
        }
    };
    let begun = processor::of_this_thread();
    for _ in 0..LOT {
        take(start()?, &mut waiting, &mut jobs);
    }
    let mut time = processor::of_this_thread() - begun;
    while !jobs.is_empty() {
        handed_out.extend_from_slice(&jobs);
        let mut done: Vec<Finished> = Vec::with_capacity(jobs.len());
        carry_out(engine_for(engines, &jobs)?, &mut jobs, &mut done)?;
        let mut continuations = std::mem::take(&mut waiting);
        let begun = processor::of_this_thread();
        for Finished { id, result, .. } in done {
            let go_on = usize::try_from(id).ok().and_then(|at| continuations.get_mut(at)).and_then(Option::take);
            take(go_on.ok_or("an answer to no question")?(result)?, &mut waiting, &mut jobs);
        }
        time += processor::of_this_thread() - begun;
    }
    Ok((results, time))
}

/// What one job takes when it is alone, wall time in microseconds, on the device that is quickest: the median of many.
pub(crate) fn lonely(engines: &mut [Engine], job: &Job) -> Result<(f64, String, Output)> {
    let mut best: Option<(f64, String, Output)> = None;
    for engine in engines.iter_mut().filter(|engine| engine.takes(std::slice::from_ref(job))) {
        let mut spent = Vec::new();
        let mut result = None;
        let begun = Instant::now();
        while spent.len() < SAMPLES_MIN || begun.elapsed() < MEASURE {
            let mut done = Vec::with_capacity(1);
            let mut jobs = vec![job.clone()];
            let start = Instant::now();
            carry_out(engine, &mut jobs, &mut done)?;
            spent.push(start.elapsed());
            result = done.pop();
        }
        let us = median(spent);
        let output = result.ok_or("a device without an answer")?.result?;
        if best.as_ref().is_none_or(|(least, ..)| us < *least) {
            best = Some((us, engine.device.name().to_owned(), output));
        }
    }
    best.ok_or_else(|| "no device".into())
}
