//! A device that this machine does not have.
//!
//! It gives out real results, computed by the processor, no earlier than a profile says: each engine has
//! a calendar of its own, on which a job begins when the one before it ends. What the real result costs
//! is processor time that the modelled device would not take; meters report it apart. Tables and charts
//! that contain such a device say *modelled*.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use crate::cpu::CpuDevice;
use crate::device::{Device, DeviceError, Driver, Kind};
use crate::work::{Finished, Form, Job, Shape};

/// How long an engine takes for one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTime {
    /// The operation's arithmetic and size.
    pub shape: Shape,
    /// The time.
    pub time: Duration,
}

/// What a modelled device can do, and how fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    name: String,
    times: BTreeMap<Shape, Duration>,
}

/// The commander's turn: a service time that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    /// What stands there.
    pub text: String,
}

impl std::error::Error for ProfileError {}

impl fmt::Display for ProfileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is not OPERATION-BITS=MICROSECONDS, as in RSA-CRT-2048=507", self.text)
    }
}

/// Longest service time that a profile takes.
const SERVICE_TIME_MAX: Duration = Duration::from_secs(60);
/// The words for forms in service times.
const FORMS: [(&str, Form); 7] = [
    ("RSA-CRT", Form::RsaCrt),
    ("RSA-ME", Form::RsaMe),
    ("RSA-MEPRIV", Form::RsaMePrivate),
    ("ECDSA-SIGN", Form::EcdsaSign),
    ("ECDSA-VERIFY", Form::EcdsaVerify),
    ("ECDH", Form::Ecdh),
    ("ECDH-EPHEMERAL", Form::EcdhEphemeral),
];
const RSA_BITS: [u32; 4] = [1024, 2048, 3072, 4096];
const EC_BITS: [u32; 5] = [192, 224, 256, 384, 521];

impl Profile {
    /// A secure-key coprocessor: 0.596 ms for every private-key operation, RSA or elliptic, whatever the
    /// size: the published figure is of the request, and none is published for other sizes.
    pub fn coprocessor() -> Profile {
        let time = Duration::from_micros(596);
        let rsa = [Form::RsaCrt, Form::RsaMePrivate].into_iter().flat_map(|form| RSA_BITS.map(|bits| (form, bits)));
        let ec = [Form::EcdsaSign, Form::Ecdh].into_iter().flat_map(|form| EC_BITS.map(|bits| (form, bits)));
        let times = rsa.chain(ec).map(|(form, bits)| (Shape { form, bits }, time)).collect();
        Profile { name: "coprocessor".to_owned(), times }
    }

    /// A clear-key RSA accelerator: 0.046 ms for ME and 0.507 ms for CRT with 2048 bits.
    /// Other sizes are scaled, as the arithmetic is: ME by the square and CRT by the cube of the length;
    /// no elliptic curves.
    pub fn accelerator() -> Profile {
        let scaled = |at_2048: u64, bits: u32, power: u32| {
            let (ratio, base) = (u64::from(bits / 1024).pow(power), 2_u64.pow(power));
            Duration::from_nanos(at_2048 * ratio / base)
        };
        let me = RSA_BITS.map(|bits| (Shape { form: Form::RsaMe, bits }, scaled(46_000, bits, 2)));
        let crt = RSA_BITS.map(|bits| (Shape { form: Form::RsaCrt, bits }, scaled(507_000, bits, 3)));
        Profile { name: "accelerator".to_owned(), times: me.into_iter().chain(crt).collect() }
    }

    /// A profile with other, or more, service times: `RSA-CRT-2048=507,ECDSA-SIGN-256=80`, microseconds.
    ///
    /// # Errors
    /// [`ProfileError`] with the part that can't be read.
    pub fn with_times(mut self, text: &str) -> Result<Profile, ProfileError> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let time = read_time(part).ok_or_else(|| ProfileError { text: part.to_owned() })?;
            self.times.insert(time.shape, time.time);
        }
        Ok(self)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every operation it has, with its time.
    pub fn times(&self) -> impl Iterator<Item = ServiceTime> + '_ {
        self.times.iter().map(|(shape, time)| ServiceTime { shape: *shape, time: *time })
    }
}

fn read_time(part: &str) -> Option<ServiceTime> {
    let (operation, micros) = part.split_once('=')?;
    let (form, bits) = operation.trim().rsplit_once('-')?;
    let bits = bits.parse().ok()?;
    let form = FORMS.iter().find(|(word, _)| word.eq_ignore_ascii_case(form)).map(|(_, form)| *form)?;
    let rsa = matches!(form, Form::RsaCrt | Form::RsaMe | Form::RsaMePrivate);
    let known = if rsa { RSA_BITS.contains(&bits) } else { EC_BITS.contains(&bits) };
    let micros: f64 = micros.trim().parse().ok().filter(|micros: &f64| micros.is_finite() && *micros > 0.0)?;
    let time = Duration::try_from_secs_f64(micros / 1e6).ok().filter(|time| *time <= SERVICE_TIME_MAX)?;
    known.then_some(ServiceTime { shape: Shape { form, bits }, time })
}

/// A modelled device.
#[derive(Debug, Clone)]
pub struct Modelled {
    name: String,
    profile: Profile,
    engines: usize,
}

impl Modelled {
    /// A device with this profile.
    pub fn new(name: impl Into<String>, profile: Profile, engines: usize) -> Modelled {
        Modelled { name: name.into(), profile, engines: engines.max(1) }
    }
}

impl Driver for Modelled {
    fn kind(&self) -> Kind {
        Kind::Modelled
    }

    fn engines(&self) -> usize {
        self.engines
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, job: &Job) -> bool {
        let clear = job.key.private().is_none_or(|key| key.exportable().is_some());
        clear && self.profile.times.contains_key(&job.shape())
    }

    fn expected(&self, shape: Shape) -> Duration {
        self.profile.times.get(&shape).copied().unwrap_or(SERVICE_TIME_MAX)
    }

    fn is_on_the_cores(&self) -> bool {
        false
    }

    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
        // Short sleeps are rounded up by 50 µs unless the thread says that it means them.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        Ok(Box::new(Engine::new(&self.name, self.profile.clone(), SystemClock)))
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
    /// When the engine will have done what it was given.
    free_at: Option<Instant>,
    clock: C,
}

impl<C: Clock> Engine<C> {
    fn new(name: &str, profile: Profile, clock: C) -> Engine<C> {
        Engine {
            name: name.to_owned(),
            profile,
            cpu: CpuDevice::new(name),
            waiting: VecDeque::new(),
            free_at: None,
            clock,
        }
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
        let Some(service) = self.profile.times.get(&job.shape()).copied() else {
            done.push(Finished::new(job.id, Err(DeviceError::WrongKey { why: "the profile has no such operation" })));
            return Ok(());
        };
        // It began when it came, or when the one before was done: a thread that wakes up late does not
        // make the engine slower than its profile.
        let began = self.free_at.map_or(submitted, |free| free.max(submitted));
        let ends = began + service;
        let result = self.cpu.compute(&job);
        self.clock.sleep_until(ends);
        self.free_at = Some(ends);
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
        let mut engine = Engine::new("CARD", Profile::accelerator(), clock.clone());
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
    fn profiles_have_the_published_times_and_take_others() {
        let time = |profile: &Profile, form, bits| profile.times.get(&Shape { form, bits }).copied();
        let accelerator = Profile::accelerator();
        assert_eq!(time(&accelerator, Form::RsaMe, 2048), Some(Duration::from_micros(46)));
        assert_eq!(time(&accelerator, Form::RsaCrt, 4096), Some(Duration::from_micros(507 * 8)));
        assert_eq!(time(&accelerator, Form::EcdsaSign, 256), None);
        let coprocessor = Profile::coprocessor().with_times("rsa-crt-2048 = 1000, ECDSA-VERIFY-521=12.5").unwrap();
        assert_eq!(time(&coprocessor, Form::EcdsaSign, 521), Some(Duration::from_micros(596)));
        assert_eq!(time(&coprocessor, Form::RsaCrt, 2048), Some(Duration::from_millis(1)));
        assert_eq!(time(&coprocessor, Form::EcdsaVerify, 521), Some(Duration::from_nanos(12_500)));
        for wrong in
            ["RSA-CRT-2047=5", "RSA-CRT-2048", "RSA-CRT-2048=-1", "AES-256=1", "RSA-CRT-2048=1e99", "ECDH-256=nan"]
        {
            assert_eq!(Profile::accelerator().with_times(wrong), Err(ProfileError { text: wrong.to_owned() }));
        }
    }
}
