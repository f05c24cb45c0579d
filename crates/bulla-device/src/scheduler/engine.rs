//! An engine: the thread that has one end of a device.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::managed::Managed;
use super::{
    Answer, DeviceId, FairQueue, InService, Inner, Late, Run, Scheduler, Sink, State, Waiting, deliver, locked, ns,
};
use crate::clock::{thread_cpu_ns, wall_ms};
use crate::cpu::CpuDevice;
use crate::device::{Device, DeviceError, Driver};
use crate::meter::Meters;
use crate::role::{self, Role};
use crate::work::{Finished, Job, Operation, Shape};

/// After a failed start, and after too many failures, an engine waits so long, and then twice as long
/// each time.
const RESTART_AFTER_MIN: Duration = Duration::from_millis(100);
/// It never waits longer.
const RESTART_AFTER_MAX: Duration = Duration::from_secs(2);
/// Characters of a thread's name, as Linux has it.
const THREAD_NAME_CHARS_MAX: usize = 15;

/// Opens a device on a thread of its own, which becomes its first engine.
pub(super) fn start(scheduler: &Arc<Scheduler>, inner: &mut Inner, name: &str) {
    let Ok(device) = inner.named(name) else { return };
    device.state = State::Starting;
    device.wanted = true;
    device.generation += 1;
    let engine = Engine { id: device.id, generation: device.generation, number: 0, name: name.into() };
    let open = device.open.clone();
    let spawned = engine.spawn(scheduler, inner, move |engine, scheduler| match guarded(&engine.name, &*open) {
        Ok(driver) => {
            if let Some(driver) = engine.opened(scheduler, driver) {
                engine.run(scheduler, &*driver);
            }
        }
        Err(error) => engine.cannot_open(scheduler, &error),
    });
    if !spawned && let Ok(device) = inner.named(name) {
        device.stop(State::Offline { why: "the system gives it no thread".to_owned() });
    }
}

/// Foreign code: a panic in it is a failure of its device, and its jobs are not lost.
fn guarded<T>(name: &str, call: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(DeviceError::Offline { device: name.to_owned(), why: "its driver panicked".to_owned() })
    })
}

/// Says that a thread has ended, however it did.
struct Ending(Arc<Scheduler>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.thread_ends();
    }
}

fn thread_name(device: &str) -> String {
    format!("device-{device}").chars().take(THREAD_NAME_CHARS_MAX).collect()
}

#[derive(Clone)]
struct Engine {
    id: DeviceId,
    generation: u64,
    number: usize,
    name: Arc<str>,
}

/// What an engine is to do next.
enum Next {
    Compute(Vec<Job>),
    End,
}

impl Engine {
    /// Which run of the device its answers are of.
    fn run_of_device(&self) -> Run {
        Run { device: self.id, start: self.generation }
    }

    /// Starts the engine's thread; false where the system has none for it.
    fn spawn(
        &self,
        scheduler: &Arc<Scheduler>,
        inner: &mut Inner,
        run: impl FnOnce(&Engine, &Arc<Scheduler>) + Send + 'static,
    ) -> bool {
        inner.threads.retain(|thread| !thread.is_finished());
        let (engine, scheduler) = (self.clone(), scheduler.clone());
        let spawned = std::thread::Builder::new().name(thread_name(&self.name)).spawn(move || {
            role::begin(Role::Devices);
            let ending = Ending(scheduler);
            run(&engine, &ending.0);
        });
        let Ok(thread) = spawned else { return false };
        inner.alive += 1;
        inner.threads.push(thread);
        true
    }

    fn of<'a>(&self, inner: &'a mut Inner) -> Option<&'a mut Managed> {
        let stopping = inner.stopping;
        let found = inner.devices.iter_mut().find(|device| device.id == self.id);
        found.filter(|device| device.generation == self.generation && !stopping)
    }

    /// The device is open: its other engines are started.
    fn opened(&self, scheduler: &Arc<Scheduler>, driver: Arc<dyn Driver>) -> Option<Arc<dyn Driver>> {
        let mut inner = scheduler.lock();
        let device = self.of(&mut inner)?;
        device.driver = Some(driver.clone());
        for number in 1..driver.threads() {
            let driver = driver.clone();
            let other = Engine { number, ..self.clone() };
            // Without a thread for it there is an engine less.
            other.spawn(scheduler, &mut inner, move |engine, scheduler| engine.run(scheduler, &*driver));
        }
        Some(driver)
    }

    /// An engine's life: it starts its end of the device, computes until that fails or a command stops the
    /// device, and starts again.
    fn run(&self, scheduler: &Arc<Scheduler>, driver: &dyn Driver) {
        let mut pause = RESTART_AFTER_MIN;
        loop {
            match guarded(&self.name, || driver.start_engine()) {
                Ok(mut device) => {
                    if !self.up(scheduler) {
                        return;
                    }
                    match self.compute_until_failure(scheduler, driver, &mut *device, &mut pause) {
                        Some(error) => self.goes_offline(scheduler, &error, true),
                        None => return,
                    }
                }
                Err(error) => self.goes_offline(scheduler, &error, false),
            }
            if !self.wait(scheduler, pause) {
                return;
            }
            pause = (pause * 2).min(RESTART_AFTER_MAX);
        }
    }

    /// Takes jobs from now on; false when the device was stopped meanwhile.
    fn up(&self, scheduler: &Scheduler) -> bool {
        let mut inner = scheduler.lock();
        let Some(device) = self.of(&mut inner) else { return false };
        device.engines_up += 1;
        device.state = State::Running;
        // Those who waited for this device are looked at.
        scheduler.ring(&mut inner, Instant::now());
        true
    }

    /// The device can't be opened; an administrator has to start it again.
    fn cannot_open(&self, scheduler: &Scheduler, error: &DeviceError) {
        let mut inner = scheduler.lock();
        let Some(device) = self.of(&mut inner) else { return };
        let moved = device.stop(State::Offline { why: why(error) });
        let late = scheduler.move_on(&mut inner, moved);
        drop(inner);
        late.carry_out(scheduler);
    }

    /// This end of the device is gone, or did not come `up`; the device with it, unless another engine is up.
    fn goes_offline(&self, scheduler: &Scheduler, error: &DeviceError, up: bool) {
        let mut inner = scheduler.lock();
        let Some(device) = self.of(&mut inner) else { return };
        let why = why(error);
        device.engines_up -= usize::from(up);
        let moved = if device.engines_up > 0 {
            device.last_error = Some(why);
            // Those that are left may have hung.
            device.drain_if_stalled()
        } else {
            device.rest(why)
        };
        let late = scheduler.move_on(&mut inner, moved);
        drop(inner);
        late.carry_out(scheduler);
    }

    /// Waits before another start; false when the device is stopped.
    fn wait(&self, scheduler: &Scheduler, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut inner = scheduler.lock();
        loop {
            let Some(device) = self.of(&mut inner) else { return false };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let end = device.end.clone();
            inner = end.wait_timeout(inner, left).map_or_else(|e| e.into_inner().0, |(inner, _)| inner);
        }
    }

    /// Hot path: takes what waits, computes it, says what came of it. Returns why the device is gone, or
    /// nothing when it was stopped.
    fn compute_until_failure(
        &self,
        scheduler: &Arc<Scheduler>,
        driver: &dyn Driver,
        device: &mut dyn Device,
        pause: &mut Duration,
    ) -> Option<DeviceError> {
        let mut check = CpuDevice::new(super::CPU_NAME);
        let mut cpu_mark = thread_cpu_ns();
        let mut done: Vec<Finished> = Vec::new();
        loop {
            let Next::Compute(mut jobs) = self.next(scheduler) else { return None };
            let shape = jobs.first().map(Job::shape)?;
            let keys: Vec<u64> = jobs.iter().map(|job| job.id).collect();
            let began = Instant::now();
            let called = guarded(&self.name, || {
                while done.len() < keys.len() {
                    if !jobs.is_empty() {
                        device.submit(&mut jobs)?;
                    }
                    device.poll(&mut done)?;
                }
                Ok(())
            });
            let gone = called.err();
            let wall_ns = ns(began.elapsed());
            let cpu_now = thread_cpu_ns();
            let cpu_ns = cpu_now.saturating_sub(std::mem::replace(&mut cpu_mark, cpu_now));
            // What a device on the cores takes is processor time, its thread's bookkeeping included.
            let call_ns = if driver.is_on_the_cores() { cpu_ns } else { wall_ns };
            let modelled = driver.kind() == crate::Kind::Modelled;
            let call = Call { keys, shape, call_ns, cpu_ns, modelled, gone: gone.clone() };
            let (tired, rescue_ns) = self.settle(scheduler, &call, &mut done, &mut check);
            cpu_mark += rescue_ns;
            if gone.is_some() {
                return gone;
            }
            match tired {
                None => *pause = RESTART_AFTER_MIN,
                Some(error) => return Some(error),
            }
        }
    }

    fn next(&self, scheduler: &Scheduler) -> Next {
        let mut inner = scheduler.lock();
        loop {
            let now = Instant::now();
            let Inner { backlog, devices, next_key, stopping, .. } = &mut *inner;
            let found = devices.iter_mut().find(|device| device.id == self.id);
            let Some(device) = found.filter(|device| device.generation == self.generation && !*stopping) else {
                return Next::End;
            };
            let refill = |device: &mut Managed, backlog: &mut FairQueue<Waiting>| {
                while device.is_usable() && device.has_room() {
                    let fits = |waiting: &Waiting| device.takes(&waiting.job) && !waiting.avoid.contains(&device.id);
                    let Some(mut waiting) = backlog.pop_if(fits) else { break };
                    scheduler.unload(&mut waiting);
                    if device.is_on_the_cores() {
                        scheduler.load(&mut waiting);
                    }
                    device.enqueue(waiting);
                }
            };
            refill(device, backlog);
            let over = device.take_over(now);
            let jobs = if over.is_empty() { device.take_batch(self.number, next_key, now) } else { Vec::new() };
            // The places that are free now belong to the backlog, not to the next caller.
            refill(device, backlog);
            if !over.is_empty() {
                drop(inner);
                deliver(over.into_iter().map(|mut waiting| {
                    scheduler.unload(&mut waiting);
                    let error = waiting.job.is_over(now).unwrap_or(DeviceError::Deadline);
                    waiting.answered(Err(error), Run::CPU)
                }));
                inner = scheduler.lock();
                continue;
            }
            if !jobs.is_empty() {
                if device.waiting() > 0 {
                    // There is more: another engine may be asleep.
                    device.wake_up.notify_one();
                }
                return Next::Compute(jobs);
            }
            let wake_up = device.wake_up.clone();
            inner = wake_up.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Gives the results to those who asked, and finds other places for what failed by the device's fault.
    /// Returns an error when the device needs a rest, and how many nanoseconds of this thread were spent on
    /// what the processor had to do instead.
    fn settle(
        &self,
        scheduler: &Scheduler,
        call: &Call,
        done: &mut Vec<Finished>,
        check: &mut CpuDevice,
    ) -> (Option<DeviceError>, u64) {
        let Some(Ended { jobs: ended, meters }) = self.take_answered(scheduler, call, done) else {
            return (None, 0);
        };
        let mut wrong = None;
        let mut answers: Vec<(Arc<dyn Sink>, Answer)> = Vec::with_capacity(ended.len());
        let mut failed: Vec<(Waiting, DeviceError)> = Vec::new();
        let mut counted: Vec<(Operation, u64, bool)> = Vec::with_capacity(ended.len());
        let mut service_ns = 0;
        let each_ns = call.call_ns / (ended.len() as u64).max(1);
        for (mut serviced, finished) in ended {
            let Finished { mut result, service, .. } = finished;
            service_ns += service.map_or(0, ns);
            if result == Err(DeviceError::BadSignature) && serviced.waiting.job.work.needs_private_key() {
                result = Err(DeviceError::Fault { device: self.name.to_string() });
            }
            if result == Err(DeviceError::BadSignature) {
                // A verdict against a message: the processor says whether it is right.
                result = check.compute(&serviced.waiting.job);
                if result.is_ok() {
                    wrong = Some("it refused a signature that is good");
                }
            }
            let mut by = self.run_of_device();
            if matches!(result, Err(DeviceError::Fault { .. })) {
                // The device's fault, or the key's: what the processor's result comes to tells, if it can have one.
                let job = &serviced.waiting.job;
                let clear = job.key.private().is_some_and(|key| key.exportable().is_some());
                match (clear && wrong.is_none()).then(|| check.compute(job)) {
                    Some(Err(error @ DeviceError::Fault { .. })) => (result, by) = (Err(error), Run::CPU),
                    _ => wrong = Some("it computed a result that its public key refutes"),
                }
            }
            let latency_ns = ns(serviced.waiting.submitted.elapsed());
            let the_devices = by != Run::CPU && result.as_ref().is_err_and(DeviceError::is_the_devices);
            counted.push((serviced.waiting.job.work.operation(), latency_ns, the_devices));
            match result {
                Err(error) if the_devices => failed.push((serviced.waiting, error)),
                result => {
                    scheduler.unload(&mut serviced.waiting);
                    let (sink, answer) = serviced.waiting.answered(result, by);
                    answers.push((sink, Answer { service_ns: service.map_or(each_ns, ns), ..answer }));
                }
            }
        }
        {
            let mut meters = locked(&meters);
            let call_ns = if service_ns > 0 { service_ns } else { call.call_ns };
            meters.ended(wall_ms(), call_ns, counted.len());
            meters.call(call.shape, call_ns, counted.into_iter());
            meters.cpu_ns += call.cpu_ns;
            meters.modelled_cpu_ns += if call.modelled { call.cpu_ns } else { 0 };
        }
        let well = failed.is_empty();
        let computed = |answer: &Answer| matches!(answer.result, Ok(_) | Err(DeviceError::BadSignature));
        // How soon it fails says nothing about how quick it is. A call that was taken for hung counts if its
        // jobs stayed with it, as a token's do: it is the device that is slow, and the next call is to be expected so.
        let measured = well && answers.iter().any(|(_, answer)| computed(answer));
        let (late, tired) = self.place_again(scheduler, call, measured, failed, wrong);
        deliver(answers.into_iter());
        let rescue_ns = late.map_or(0, |late| late.carry_out(scheduler));
        (if well { None } else { tired }, rescue_ns)
    }

    /// The jobs that came to an end, with their results. Those that the device did not answer have failed.
    fn take_answered(&self, scheduler: &Scheduler, call: &Call, done: &mut Vec<Finished>) -> Option<Ended> {
        let now = Instant::now();
        let mut inner = scheduler.lock();
        let found = inner.devices.iter_mut().find(|device| device.id == self.id);
        let Some(device) = found else {
            // It was removed, and its jobs were given to others.
            done.clear();
            return None;
        };
        let late = device.generation == self.generation && device.heard_of(self.number);
        let mut jobs: Vec<(InService, Finished)> =
            done.drain(..).filter_map(|finished| Some((device.answered(finished.id)?, finished))).collect();
        if jobs.len() < call.keys.len() {
            let error = call.gone.clone().unwrap_or_else(|| DeviceError::Away { device: self.name.to_string() });
            for key in &call.keys {
                if let Some(serviced) = device.answered(*key) {
                    jobs.push((serviced, Finished::new(*key, Err(error.clone()))));
                }
            }
        }
        let meters = device.meters.clone();
        if late {
            // Jobs of its keys may wait for it.
            scheduler.ring(&mut inner, now);
        }
        Some(Ended { jobs, meters })
    }

    fn place_again(
        &self,
        scheduler: &Scheduler,
        call: &Call,
        measured: bool,
        failed: Vec<(Waiting, DeviceError)>,
        wrong: Option<&str>,
    ) -> (Option<Late>, Option<DeviceError>) {
        let mut inner = scheduler.lock();
        let mut moved = Vec::new();
        let mut tired = None;
        let found = inner.devices.iter_mut().find(|device| device.id == self.id);
        if let Some(device) = found.filter(|device| device.generation == self.generation) {
            if failed.is_empty() {
                device.succeeded();
            }
            if measured {
                device.took(call.shape, call.call_ns);
            }
            for (waiting, error) in &failed {
                let refused = matches!(error, DeviceError::Refused { .. }).then(|| waiting.job.key.id());
                if device.failed(why(error), refused) {
                    tired = Some(error.clone());
                }
            }
            if let Some(why) = wrong {
                moved = device.stop(State::Failed { why: why.to_owned() });
            }
        }
        if failed.is_empty() && moved.is_empty() {
            return (None, None);
        }
        let mut late = scheduler.move_on(&mut inner, moved);
        for (waiting, error) in failed {
            late.merge(scheduler.try_again(&mut inner, waiting, error, self.run_of_device()));
        }
        (Some(late), tired)
    }
}

/// One call of a device.
struct Call {
    /// The numbers that its jobs have inside the device.
    keys: Vec<u64>,
    shape: Shape,
    /// Processor time of a device on the cores, else elapsed time.
    call_ns: u64,
    cpu_ns: u64,
    modelled: bool,
    /// Why the device is gone, if it is.
    gone: Option<DeviceError>,
}

/// What came of a call.
struct Ended {
    jobs: Vec<(InService, Finished)>,
    meters: Arc<Mutex<Meters>>,
}

/// A device's error without its name, which the reader of the error has already.
fn why(error: &DeviceError) -> String {
    match error {
        DeviceError::Offline { why, .. } | DeviceError::Refused { why, .. } => why.clone(),
        DeviceError::Away { .. } => "it does not answer".to_owned(),
        DeviceError::Fault { .. } => "it computed a result that its public key refutes".to_owned(),
        error => error.to_string(),
    }
}
