//! An engine: the thread that has one end of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::managed::Managed;
use super::{Answer, DeviceId, InService, Inner, Late, Scheduler, Sink, State, Waiting, deliver, locked, ns};
use crate::clock::thread_cpu_ns;
use crate::cpu::CpuDevice;
use crate::device::{Device, DeviceError, Driver};
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
    device.generation += 1;
    let engine = Engine { id: device.id, generation: device.generation, number: 0 };
    let (open, thread_name) = (device.open.clone(), thread_name(name));
    let scheduler_there = scheduler.clone();
    spawn(inner, thread_name, move || {
        match open() {
            Ok(driver) => {
                let Some(driver) = engine.opened(&scheduler_there, driver) else { return };
                engine.run(&scheduler_there, &*driver);
            }
            Err(error) => engine.goes_offline(&scheduler_there, &error),
        };
    });
}

fn spawn(inner: &mut Inner, name: String, run: impl FnOnce() + Send + 'static) {
    inner.threads.retain(|thread| !thread.is_finished());
    // A machine that has no thread left for this has none for anything else either.
    if let Ok(thread) = std::thread::Builder::new().name(name).spawn(run) {
        inner.threads.push(thread);
    }
}

fn thread_name(device: &str) -> String {
    format!("device-{device}").chars().take(THREAD_NAME_CHARS_MAX).collect()
}

#[derive(Clone, Copy)]
struct Engine {
    id: DeviceId,
    generation: u64,
    number: usize,
}

/// What an engine is to do next.
enum Next {
    Compute(Vec<Job>, Shape),
    End,
}

impl Engine {
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
        let name = thread_name(&device.name);
        for number in 1..driver.engines() {
            let (scheduler, driver) = (scheduler.clone(), driver.clone());
            let other = Engine { number, ..*self };
            spawn(&mut inner, name.clone(), move || other.run(&scheduler, &*driver));
        }
        Some(driver)
    }

    /// An engine's life: it starts its end of the device, computes until that fails or somebody stops the
    /// device, and starts again.
    fn run(&self, scheduler: &Arc<Scheduler>, driver: &dyn Driver) {
        let mut pause = RESTART_AFTER_MIN;
        loop {
            match driver.start_engine() {
                Ok(mut device) => {
                    if !self.up(scheduler) {
                        return;
                    }
                    match self.compute_until_failure(scheduler, driver, &mut *device, &mut pause) {
                        Some(error) => self.goes_offline(scheduler, &error),
                        None => return,
                    }
                }
                Err(error) => self.goes_offline(scheduler, &error),
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
        scheduler.monitor.notify_one();
        true
    }

    /// This end of the device is gone; the device with it, unless another engine is up.
    fn goes_offline(&self, scheduler: &Arc<Scheduler>, error: &DeviceError) {
        let mut inner = scheduler.lock();
        let Some(device) = self.of(&mut inner) else { return };
        let why = why(error);
        device.engines_up = device.engines_up.saturating_sub(1);
        if device.engines_up > 0 {
            device.last_error = Some(why);
            return;
        }
        let moved = device.rest(why);
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
            let bell = device.bell.clone();
            inner = bell.wait_timeout(inner, left).map_or_else(|e| e.into_inner().0, |(inner, _)| inner);
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
            let (mut jobs, shape) = match self.next(scheduler) {
                Next::Compute(jobs, shape) => (jobs, shape),
                Next::End => return None,
            };
            let count = jobs.len();
            let began = Instant::now();
            let mut gone = None;
            while done.len() < count && gone.is_none() {
                let taken = if jobs.is_empty() { Ok(0) } else { device.submit(&mut jobs) };
                gone = taken.and_then(|_| device.poll(&mut done)).err();
            }
            let wall_ns = ns(began.elapsed());
            let cpu_now = thread_cpu_ns();
            let cpu_ns = cpu_now.saturating_sub(std::mem::replace(&mut cpu_mark, cpu_now));
            // What a device on the cores takes is processor time, its thread's bookkeeping included.
            let call_ns = if driver.is_on_the_cores() { cpu_ns } else { wall_ns };
            let call = Call { shape, call_ns, cpu_ns, modelled: driver.kind() == crate::Kind::Modelled };
            let tired = self.settle(scheduler, &call, &mut done, gone.as_ref(), &mut check);
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
            if device.is_usable() {
                // What comes out of the backlog was counted as load when it went in.
                while device.has_room() {
                    let Some(waiting) = backlog.pop_if(|waiting| device.takes(&waiting.job)) else { break };
                    device.enqueue(waiting);
                }
            }
            let over = device.take_over(now);
            let jobs = if over.is_empty() { device.take_batch(self.number, next_key, now) } else { Vec::new() };
            if !over.is_empty() {
                drop(inner);
                deliver(over.into_iter().map(|mut waiting| {
                    scheduler.unload(&mut waiting);
                    let error = waiting.job.is_over(now).unwrap_or(DeviceError::Deadline);
                    waiting.answered(Err(error), DeviceId::CPU)
                }));
                inner = scheduler.lock();
                continue;
            }
            if let Some(job) = jobs.first() {
                let shape = job.shape();
                if device.waiting() > 0 {
                    // There is more: another engine may be asleep.
                    device.bell.notify_one();
                }
                return Next::Compute(jobs, shape);
            }
            let bell = device.bell.clone();
            inner = bell.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Gives the results to those who asked, and finds other places for what failed by the device's fault.
    /// Returns an error when the device needs a rest.
    fn settle(
        &self,
        scheduler: &Arc<Scheduler>,
        call: &Call,
        done: &mut Vec<Finished>,
        gone: Option<&DeviceError>,
        check: &mut CpuDevice,
    ) -> Option<DeviceError> {
        let (ended, meters) = self.take_answered(scheduler, done, gone)?;
        let mut wrong = None;
        let mut answers: Vec<(Arc<dyn Sink>, Answer)> = Vec::with_capacity(ended.len());
        let mut failed: Vec<(Waiting, DeviceError)> = Vec::new();
        let mut counted: Vec<(Operation, u64, bool)> = Vec::with_capacity(ended.len());
        let mut service_ns = 0;
        for (mut serviced, finished) in ended {
            let Finished { mut result, service, .. } = finished;
            service_ns += service.map_or(0, ns);
            if result == Err(DeviceError::BadSignature) {
                // A verdict against somebody: the processor says whether it is right.
                result = check.compute(&serviced.waiting.job);
                if result.is_ok() {
                    wrong = Some("it refused a signature that is good");
                }
            }
            if matches!(result, Err(DeviceError::Fault { .. })) {
                wrong = Some("it computed a result that its public key refutes");
            }
            let latency_ns = ns(serviced.waiting.submitted.elapsed());
            let the_devices = result.as_ref().is_err_and(DeviceError::is_the_devices);
            counted.push((serviced.waiting.job.work.operation(), latency_ns, the_devices));
            match result {
                Err(error) if the_devices => failed.push((serviced.waiting, error)),
                result => {
                    scheduler.unload(&mut serviced.waiting);
                    answers.push(serviced.waiting.answered(result, self.id));
                }
            }
        }
        {
            let mut meters = locked(&meters);
            let call_ns = if service_ns > 0 { service_ns } else { call.call_ns };
            meters.call(call.shape, call_ns, counted.into_iter());
            meters.cpu_ns += call.cpu_ns;
            meters.modelled_cpu_ns += if call.modelled { call.cpu_ns } else { 0 };
        }
        let well = failed.is_empty();
        let (late, tired) = self.place_again(scheduler, call, failed, wrong);
        deliver(answers.into_iter());
        if let Some(late) = late {
            late.carry_out(scheduler);
        }
        if well { None } else { tired }
    }

    /// The jobs that came to an end, with their results.
    #[allow(clippy::type_complexity, reason = "used once, right above")]
    fn take_answered(
        &self,
        scheduler: &Scheduler,
        done: &mut Vec<Finished>,
        gone: Option<&DeviceError>,
    ) -> Option<(Vec<(InService, Finished)>, Arc<std::sync::Mutex<crate::meter::Meters>>)> {
        let mut inner = scheduler.lock();
        let device = inner.devices.iter_mut().find(|device| device.id == self.id)?;
        let mut ended: Vec<(InService, Finished)> =
            done.drain(..).filter_map(|finished| Some((device.answered(finished.id)?, finished))).collect();
        if let Some(error) = gone {
            let keys: Vec<u64> = device.keys_of(self.number);
            for key in keys {
                if let Some(serviced) = device.answered(key) {
                    ended.push((serviced, Finished::new(key, Err(error.clone()))));
                }
            }
        }
        Some((ended, device.meters.clone()))
    }

    fn place_again(
        &self,
        scheduler: &Arc<Scheduler>,
        call: &Call,
        failed: Vec<(Waiting, DeviceError)>,
        wrong: Option<&str>,
    ) -> (Option<Late>, Option<DeviceError>) {
        let mut inner = scheduler.lock();
        let mut moved = Vec::new();
        let mut tired = None;
        if let Some(device) = inner.devices.iter_mut().find(|device| device.id == self.id) {
            device.took(call.shape, call.call_ns);
            if failed.is_empty() {
                device.succeeded();
            }
            for (_, error) in &failed {
                if device.failed(why(error)) {
                    tired = Some(error.clone());
                }
            }
            if let Some(why) = wrong
                && device.generation == self.generation
            {
                moved = device.stop(State::Failed { why: why.to_owned() });
            }
        }
        if failed.is_empty() && moved.is_empty() {
            return (None, None);
        }
        let mut late = scheduler.move_on(&mut inner, moved);
        for (waiting, error) in failed {
            late.merge(scheduler.try_again(&mut inner, waiting, error, self.id));
        }
        (Some(late), tired)
    }
}

/// One call of a device.
struct Call {
    shape: Shape,
    /// Processor time of a device on the cores, else elapsed time.
    call_ns: u64,
    cpu_ns: u64,
    modelled: bool,
}

/// A device's error without its name, which whoever reads it has already.
fn why(error: &DeviceError) -> String {
    match error {
        DeviceError::Offline { why, .. } | DeviceError::Refused { why, .. } => why.clone(),
        DeviceError::Away { .. } => "it does not answer".to_owned(),
        DeviceError::Fault { .. } => "it computed a result that its public key refutes".to_owned(),
        error => error.to_string(),
    }
}
