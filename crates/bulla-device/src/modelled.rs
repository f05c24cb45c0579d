//! A device that this machine does not have.
//!
//! It gives out real results, computed by the processor, no earlier than a profile says: each engine has
//! a calendar of its own, on which a job begins when the one before it ends. What the real result costs
//! is processor time that the modelled device would not take; meters report it apart. Tables and charts
//! that contain such a device say *modelled*.
//!
//! A card may be quicker than a core of this machine. So several threads compute for an engine where there are cores
//! for them; its calendar is one all the same.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cpu::CpuDevice;
use crate::device::{Device, DeviceError, Driver, Kind};
use crate::profile::{Profile, SERVICE_TIME_MAX};
use crate::work::{Finished, Job, Shape};

/// Most threads that compute for one engine.
const THREADS_OF_AN_ENGINE_MAX: usize = 4;

/// A modelled device.
#[derive(Debug, Clone)]
pub struct Modelled {
    name: String,
    profile: Profile,
    engines: usize,
    threads: usize,
    calendars: Calendars,
}

impl Modelled {
    /// A device with this profile.
    pub fn new(name: impl Into<String>, profile: Profile, engines: usize) -> Modelled {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let engines = engines.max(1);
        // One core is left to those who ask.
        let each = (cores.saturating_sub(1) / engines).clamp(1, THREADS_OF_AN_ENGINE_MAX);
        let threads = engines.saturating_mul(each);
        Modelled { name: name.into(), profile, engines, threads, calendars: Calendars::new(engines) }
    }
}

impl Driver for Modelled {
    fn kind(&self) -> Kind {
        Kind::Modelled
    }

    fn engines(&self) -> usize {
        self.engines
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, job: &Job) -> bool {
        let clear = job.key.private().is_none_or(|key| key.exportable().is_some());
        clear && self.profile.time(job.shape()).is_some()
    }

    fn expected(&self, shape: Shape) -> Duration {
        self.profile.time(shape).unwrap_or(SERVICE_TIME_MAX)
    }

    fn is_on_the_cores(&self) -> bool {
        false
    }

    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
        // Short sleeps are rounded up by 50 µs unless the thread says that it means them.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        Ok(Box::new(Engine::new(&self.name, self.profile.clone(), self.calendars.clone(), SystemClock)))
    }
}

/// When each engine will have done what it was given.
#[derive(Debug, Clone)]
struct Calendars(Arc<Mutex<Vec<Option<Instant>>>>);

impl Calendars {
    fn new(engines: usize) -> Calendars {
        Calendars(Arc::new(Mutex::new(vec![None; engines])))
    }

    /// When the engine that is free first has done a job that came at `submitted`. It began when it came, or when the
    /// one before was done: a thread that wakes up late does not make the engine slower than its profile.
    fn enter(&self, submitted: Instant, service: Duration) -> Instant {
        let mut engines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = engines.iter_mut().min_by_key(|free_at| **free_at);
        let began = first.as_deref().copied().flatten().map_or(submitted, |free: Instant| free.max(submitted));
        let ends = began + service;
        if let Some(free_at) = first {
            *free_at = Some(ends);
        }
        ends
    }
}

/// Where an engine has the time from.
trait Clock: Send {
    fn now(&self) -> Instant;
    fn sleep_until(&mut self, at: Instant);
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&mut self, at: Instant) {
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left);
        }
    }
}

struct Engine<C> {
    name: String,
    profile: Profile,
    cpu: CpuDevice,
    waiting: VecDeque<(Instant, Job)>,
    calendars: Calendars,
    clock: C,
}

impl<C: Clock> Engine<C> {
    fn new(name: &str, profile: Profile, calendars: Calendars, clock: C) -> Engine<C> {
        Engine { name: name.to_owned(), profile, cpu: CpuDevice::new(name), waiting: VecDeque::new(), calendars, clock }
    }
}

impl<C: Clock> Device for Engine<C> {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        let (now, count) = (self.clock.now(), jobs.len());
        self.waiting.extend(jobs.drain(..).map(|job| (now, job)));
        Ok(count)
    }

    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        let Some((submitted, job)) = self.waiting.pop_front() else { return Ok(()) };
        let Some(service) = self.profile.time(job.shape()) else {
            done.push(Finished::new(job.id, Err(DeviceError::WrongKey { why: "the profile has no such operation" })));
            return Ok(());
        };
        let ends = self.calendars.enter(submitted, service);
        let result = self.cpu.compute(&job);
        self.clock.sleep_until(ends);
        done.push(Finished { id: job.id, result, service: Some(service) });
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Modelled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;

    use super::*;
    use crate::digest::Digest;
    use crate::key::PrivateKey;
    use crate::work::{RsaScheme, Work};

    /// A clock that is moved by the thread that sleeps.
    #[derive(Clone)]
    struct Still(Arc<Mutex<Instant>>);

    impl Clock for Still {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        fn sleep_until(&mut self, at: Instant) {
            let mut now = self.0.lock().unwrap();
            *now = (*now).max(at);
        }
    }

    fn signature() -> Job {
        let key = PrivateKey::clear(PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap()).unwrap();
        let hash = Digest::Sha256.hash(b"content");
        Job::new(key, Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash })
    }

    #[test]
    fn a_real_result_comes_no_earlier_than_the_profile_says_and_queues_on_the_engine() {
        let clock = Still(Arc::new(Mutex::new(Instant::now())));
        let began = clock.now();
        let mut engine = Engine::new("CARD", Profile::accelerator(), Calendars::new(1), clock.clone());
        let job = signature();
        let mut jobs = vec![job.clone(), Job { id: 1, ..job.clone() }];
        assert_eq!(engine.submit(&mut jobs).unwrap(), 2);
        let mut done = Vec::new();
        engine.poll(&mut done).unwrap();
        assert_eq!(clock.now() - began, Duration::from_micros(507));
        engine.poll(&mut done).unwrap();
        assert_eq!(clock.now() - began, Duration::from_micros(1014));
        for finished in &done {
            assert_eq!(finished.service, Some(Duration::from_micros(507)));
            let Work::RsaSign { hash, scheme, digest } = &*job.work else { unreachable!() };
            let signature = finished.result.as_ref().unwrap().to_vec();
            let verify = Work::RsaVerify { scheme: *scheme, digest: *digest, hash: *hash, signature };
            assert!(CpuDevice::new("cpu").compute(&Job::new(job.key.clone(), verify)).is_ok());
        }
    }

    #[test]
    fn threads_of_one_engine_have_one_calendar_and_each_engine_its_own() {
        let (clock, service) = (Instant::now(), Duration::from_micros(500));
        let one = Calendars::new(1);
        assert_eq!(one.enter(clock, service), clock + service);
        assert_eq!(one.clone().enter(clock, service), clock + 2 * service);
        let later = clock + 5 * service;
        assert_eq!(one.enter(later, service), later + service);
        let two = Calendars::new(2);
        let ends: Vec<Instant> = (0..4).map(|_| two.enter(clock, service)).collect();
        assert_eq!(ends, [clock + service, clock + service, clock + 2 * service, clock + 2 * service]);
    }

    #[test]
    fn an_engine_is_one_in_reports_however_many_threads_compute_for_it() {
        let card = Modelled::new("CARD", Profile::accelerator(), 2);
        assert_eq!(card.engines(), 2);
        assert!((2..=2 * THREADS_OF_AN_ENGINE_MAX).contains(&card.threads()) && card.threads().is_multiple_of(2));
    }
}
