//! The scheduler with devices that are slow, hang, die, refuse and lie.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use bulla_device::scheduler::{Answer, CPU_NAME, Open, Report, SetupError, Sink, State, TRIES_MAX};
use bulla_device::{
    Asker, CpuDevice, Curve, Device, DeviceError, Digest, Driver, Finished, Hash, Inline, Job, Key, Kind, Operation,
    Operations, Output, PrivateKey, RsaScheme, SILENCE_FACTOR, SILENCE_MIN, Scheduler, Shape, Work,
};
use fastrand::Rng;
use openssl::ec::{EcGroup, EcKey};
use openssl::pkey::PKey;
use openssl::rsa::Rsa;

/// No condition takes longer to come true.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the token's key is.
const TOKEN: &str = "pkcs11:token=tests;object=signer";

// ---- keys and jobs -----------------------------------------------------------------------------

fn ec(curve: Curve) -> PrivateKey {
    let group = EcGroup::from_curve_name(curve.nid()).unwrap();
    PrivateKey::clear(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()).unwrap()
}

static P256: LazyLock<PrivateKey> = LazyLock::new(|| ec(Curve::P256));
static P192: LazyLock<PrivateKey> = LazyLock::new(|| ec(Curve::P192));
static RSA_1024: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::clear(PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap()).unwrap());
static TOKEN_KEY: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::on_token(P256.public_key().clone(), TOKEN.to_owned()));

fn hash() -> Hash {
    Digest::Sha256.hash(b"content")
}

fn compute(job: Job) -> Result<Output, DeviceError> {
    let mut cpu = CpuDevice::new("tests");
    cpu.submit(&mut vec![job])?;
    let mut done = Vec::new();
    cpu.poll(&mut done)?;
    done.remove(0).result
}

/// An ECDSA signature with P-256, and who asks is `id`, so that devices can tell.
fn sign(id: u64) -> Job {
    Job { id, asker: Asker::new(id), ..Job::new(P256.clone(), Work::EcdsaSign { hash: hash() }) }
}

fn sign_rsa(id: u64) -> Job {
    let work = Work::RsaSign { scheme: RsaScheme::Pkcs1, digest: Digest::Sha256, hash: hash() };
    Job { id, asker: Asker::new(id), ..Job::new(RSA_1024.clone(), work) }
}

fn sign_on_token(id: u64, deadline: Option<Duration>) -> Job {
    let deadline = deadline.map(|after| Instant::now() + after);
    Job { id, asker: Asker::new(id), deadline, ..Job::new(TOKEN_KEY.clone(), Work::EcdsaSign { hash: hash() }) }
}

static SIGNATURE: LazyLock<Vec<u8>> = LazyLock::new(|| compute(sign(0)).unwrap().to_vec());

fn verify_with(key: &PrivateKey, id: u64, signature: &[u8]) -> Job {
    let work = Work::EcdsaVerify { hash: hash(), signature: signature.to_vec() };
    Job { id, asker: Asker::new(id), ..Job::new(key.public_key().clone(), work) }
}

fn verify(id: u64) -> Job {
    verify_with(&P256, id, &SIGNATURE)
}

fn verify_wrong(id: u64) -> Job {
    let mut signature = SIGNATURE.clone();
    *signature.last_mut().unwrap() ^= 1;
    verify_with(&P256, id, &signature)
}

/// Whether it is the signature that was asked for.
fn is_signed(output: &Output) -> bool {
    compute(verify_with(&P256, 0, output)).is_ok()
}

// ---- a device that does what a test tells it ---------------------------------------------------

/// What the device does with one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    Compute,
    Refuse,
    /// The opposite of the truth, of a verification.
    Lie,
    Fault,
    /// The device is gone before it has answered.
    Die,
    Panic,
    /// No answer, but one to a job that it was not given.
    Mistake,
    /// Two answers.
    Twice,
    /// An answer when the gate is open, not before.
    Hang,
}

struct Fake {
    name: String,
    kind: Kind,
    engines: usize,
    lanes: usize,
    waiting_max: usize,
    expected: Duration,
    on_the_cores: bool,
    /// Its calls end by themselves: it must not be taken for hung.
    patient: bool,
    takes: fn(&Job) -> bool,
    /// What it does with a job of this asker.
    deed: Box<dyn Fn(u64) -> Deed + Send + Sync>,
    /// First so many engines start,
    good_starts: AtomicUsize,
    /// then so many don't, and then all do.
    bad_starts: AtomicUsize,
    closed: Mutex<bool>,
    opened: Condvar,
    /// Calls that have begun: the shape and the asker of each job.
    calls: Mutex<Vec<Vec<(Shape, u64)>>>,
    /// Processor time of its engine's thread, nanoseconds, from its start to its last answer.
    cpu_ns: AtomicU64,
}

impl Fake {
    fn new(name: &str) -> Fake {
        Fake {
            name: name.to_owned(),
            kind: Kind::Accelerator,
            engines: 1,
            lanes: 1,
            waiting_max: 16,
            // Long enough not to be taken for stalled while a test holds it.
            expected: PATIENCE,
            on_the_cores: false,
            patient: false,
            takes: |job| job.key.private().is_none_or(|key| key.exportable().is_some()),
            deed: Box::new(|_| Deed::Compute),
            good_starts: AtomicUsize::new(0),
            bad_starts: AtomicUsize::new(0),
            closed: Mutex::new(false),
            opened: Condvar::new(),
            calls: Mutex::default(),
            cpu_ns: AtomicU64::new(0),
        }
    }

    fn token(name: &str) -> Fake {
        Fake {
            kind: Kind::Coprocessor,
            takes: |job| job.key.private().is_some_and(|k| k.token_uri() == Some(TOKEN)),
            ..Fake::new(name)
        }
    }

    fn does(self, deed: impl Fn(u64) -> Deed + Send + Sync + 'static) -> Fake {
        Fake { deed: Box::new(deed), ..self }
    }

    fn hanging(self) -> Fake {
        self.hold();
        self.does(|_| Deed::Hang)
    }

    fn hold(&self) {
        *self.closed.lock().unwrap() = true;
    }

    fn release(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn calls(&self) -> Vec<Vec<(Shape, u64)>> {
        self.calls.lock().unwrap().clone()
    }

    /// The askers whose jobs it was given, in order.
    fn seen(&self) -> Vec<u64> {
        self.calls().into_iter().flatten().map(|(_, asker)| asker).collect()
    }

    fn away(&self) -> DeviceError {
        DeviceError::Away { device: self.name.clone() }
    }
}

/// The driver that the scheduler sees.
struct Shared(Arc<Fake>);

struct Engine {
    fake: Arc<Fake>,
    jobs: Vec<Job>,
    began_ns: u64,
}

fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

impl Driver for Shared {
    fn kind(&self) -> Kind {
        self.0.kind
    }

    fn engines(&self) -> usize {
        self.0.engines
    }

    fn lanes(&self) -> usize {
        self.0.lanes
    }

    fn takes(&self, job: &Job) -> bool {
        (self.0.takes)(job)
    }

    fn expected(&self, _: Shape) -> Duration {
        self.0.expected
    }

    fn is_on_the_cores(&self) -> bool {
        self.0.on_the_cores
    }

    fn silence(&self, call: Duration) -> Option<Duration> {
        (!self.0.patient).then(|| SILENCE_MIN.max(call * SILENCE_FACTOR))
    }

    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
        let one_of = |left: &AtomicUsize| {
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        };
        if !one_of(&self.0.good_starts) && one_of(&self.0.bad_starts) {
            return Err(DeviceError::Offline { device: self.0.name.clone(), why: "no token in the slot".to_owned() });
        }
        Ok(Box::new(Engine { fake: self.0.clone(), jobs: Vec::new(), began_ns: thread_cpu_ns() }))
    }
}

impl Device for Engine {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        let count = jobs.len();
        self.fake.calls.lock().unwrap().push(jobs.iter().map(|job| (job.shape(), job.asker.number())).collect());
        self.jobs.append(jobs);
        Ok(count)
    }

    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        for job in self.jobs.drain(..) {
            let id = job.id;
            let deed = (self.fake.deed)(job.asker.number());
            let clear = match job.key.private().and_then(|key| key.token_uri()) {
                Some(_) => Key::from(P256.clone()),
                None => job.key.clone(),
            };
            let result = compute(Job { key: clear, ..job });
            let device = self.fake.name.clone();
            let result = match deed {
                Deed::Compute | Deed::Twice => result,
                Deed::Hang => {
                    let closed = self.fake.closed.lock().unwrap();
                    drop(self.fake.opened.wait_while(closed, |closed| *closed).unwrap());
                    result
                }
                Deed::Refuse => Err(DeviceError::Refused { device, why: "CKR_FUNCTION_FAILED".to_owned() }),
                Deed::Lie if result.is_ok() => Err(DeviceError::BadSignature),
                Deed::Lie => result,
                Deed::Fault => Err(DeviceError::Fault { device }),
                Deed::Die => return Err(self.fake.away()),
                Deed::Panic => panic!("a driver that panics, as the test wants it"),
                Deed::Mistake => {
                    done.push(Finished::new(u64::MAX, Ok(Output::none())));
                    continue;
                }
            };
            if deed == Deed::Twice {
                done.push(Finished::new(id, result.clone()));
            }
            done.push(Finished::new(id, result));
        }
        self.fake.cpu_ns.store(thread_cpu_ns() - self.began_ns, Ordering::SeqCst);
        Ok(())
    }

    fn name(&self) -> &str {
        &self.fake.name
    }

    fn kind(&self) -> Kind {
        self.fake.kind
    }
}

// ---- a scheduler with what tests need around it ------------------------------------------------

#[derive(Default)]
struct Answers {
    all: Mutex<Vec<Answer>>,
    came: Condvar,
    /// Who brought some.
    threads: Mutex<HashSet<ThreadId>>,
}

impl Sink for Answers {
    fn finished(&self, answers: Vec<Answer>) {
        if !answers.is_empty() {
            self.threads.lock().unwrap().insert(std::thread::current().id());
        }
        self.all.lock().unwrap().extend(answers);
        self.came.notify_all();
    }
}

struct Bench {
    scheduler: Arc<Scheduler>,
    answers: Arc<Answers>,
    fakes: Vec<Arc<Fake>>,
}

impl Deref for Bench {
    type Target = Arc<Scheduler>;

    fn deref(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.fakes.iter().for_each(|fake| fake.release());
        self.scheduler.shut_down();
    }
}

impl Bench {
    fn new() -> Bench {
        Bench { scheduler: Scheduler::new(Kind::Cpu, 1), answers: Arc::default(), fakes: Vec::new() }
    }

    /// Without the processor, so that private jobs are the devices'.
    fn without_cpu() -> Bench {
        let bench = Bench::new();
        bench.stop(CPU_NAME).unwrap();
        bench
    }

    fn defined(&mut self, fake: Fake) -> Arc<Fake> {
        let fake = Arc::new(fake);
        self.scheduler.define(&fake.name, fake.kind, fake.waiting_max, open(&fake)).unwrap();
        self.fakes.push(fake.clone());
        fake
    }

    /// A device that runs.
    fn device(&mut self, fake: Fake) -> Arc<Fake> {
        let fake = self.defined(fake);
        self.scheduler.start(&fake.name).unwrap();
        until("the device runs", || self.report_of(&fake).state == State::Running);
        fake
    }

    fn report_of(&self, fake: &Fake) -> Report {
        self.scheduler.report_of(&fake.name).unwrap()
    }

    /// Places the jobs and computes those that are to be computed inline; returns how many these were.
    fn put(&self, jobs: impl IntoIterator<Item = Job>) -> usize {
        let mut inline = Inline::new();
        let sink: Arc<dyn Sink> = self.answers.clone();
        self.place(&mut jobs.into_iter().collect(), &sink, &mut inline);
        let answers = inline.run(self);
        let count = answers.len();
        self.answers.finished(answers);
        count
    }

    /// The answers to all jobs up to now, by number; none is answered twice.
    fn wait_for(&self, count: usize) -> HashMap<u64, Answer> {
        let all = self.answers.all.lock().unwrap();
        let (mut all, timeout) = self.answers.came.wait_timeout_while(all, PATIENCE, |all| all.len() < count).unwrap();
        assert!(!timeout.timed_out(), "{} answers to {count} jobs; {:#?}", all.len(), self.report());
        assert_eq!(all.len(), count, "more answers than jobs");
        let by_id: HashMap<u64, Answer> = all.drain(..).map(|answer| (answer.id, answer)).collect();
        assert_eq!(by_id.len(), count, "a job was answered twice");
        by_id
    }

    fn one(&self) -> Answer {
        self.wait_for(1).into_values().next().unwrap()
    }

    fn device_of(&self, answer: &Answer) -> String {
        self.name_of(answer.by.device).unwrap_or_default()
    }
}

fn open(fake: &Arc<Fake>) -> Open {
    let fake = fake.clone();
    Arc::new(move || Ok(Arc::new(Shared(fake.clone())) as Arc<dyn Driver>))
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::yield_now();
    }
}

// ---- where jobs go -----------------------------------------------------------------------------

#[test]
fn a_lonely_job_is_computed_by_whoever_has_it() {
    let mut bench = Bench::new();
    let device =
        bench.device(Fake { lanes: 8, on_the_cores: true, expected: Duration::from_millis(1), ..Fake::new("ACC") });
    for id in 0..20 {
        assert_eq!(bench.put([sign(id)]), 1);
    }
    let answers = bench.wait_for(20);
    assert!(answers.values().all(|answer| is_signed(answer.result.as_ref().unwrap())));
    assert!(device.calls().is_empty());
}

#[test]
fn half_of_what_a_thread_is_to_compute_can_be_given_to_another() {
    let bench = Bench::new();
    let sink: Arc<dyn Sink> = bench.answers.clone();
    let (mut first, mut second) = (Inline::new(), Inline::new());
    bench.place(&mut (0..8).map(sign_rsa).collect(), &sink, &mut first);
    assert!(first.give_half(Duration::from_secs(60)).is_empty(), "eight signatures are not worth it");
    second.take_over(first.give_half(Duration::ZERO));
    let slice = first.run_for(&bench, Duration::from_nanos(1));
    assert_eq!(slice.iter().map(|answer| answer.id).collect::<Vec<_>>(), [0], "one at least");
    let [mut kept, given] = [&mut first, &mut second].map(|inline| inline.run(&bench));
    kept.extend(slice);
    assert_eq!((kept.len(), given.len()), (4, 4));
    assert!(given.iter().all(|answer| answer.id >= 4), "the last ones");
    bench.answers.finished(kept);
    bench.answers.finished(given);
    assert!(bench.wait_for(8).values().all(|answer| answer.result.is_ok()));
    bench.place(&mut vec![sign_rsa(8)], &sink, &mut first);
    assert!(first.give_half(Duration::ZERO).is_empty(), "who has one job computes it");
}

#[test]
fn what_waits_while_a_device_computes_goes_into_its_next_call() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { lanes: 8, ..Fake::new("ACC") }.hanging());
    bench.put([sign(0)]);
    until("the first call", || device.calls().len() == 1);
    for id in 1..=8 {
        bench.put([sign(id)]);
    }
    assert_eq!(bench.report_of(&device).waiting, 8);
    device.release();
    let answers = bench.wait_for(9);
    assert!(answers.values().all(|answer| is_signed(answer.result.as_ref().unwrap())));
    assert_eq!(device.calls().iter().map(Vec::len).collect::<Vec<_>>(), [1, 8]);
}

#[test]
fn lanes_are_full_under_load() {
    let mut bench = Bench::new();
    let device =
        bench.device(Fake { lanes: 8, on_the_cores: true, expected: Duration::from_micros(200), ..Fake::new("ACC") });
    // One inline is as quick; from then on a call with eight lanes is quicker than eight signatures.
    let inline = bench.put((0..100).map(sign_rsa));
    bench.wait_for(100);
    assert_eq!(inline, 1);
    let calls: Vec<usize> = device.calls().iter().map(Vec::len).collect();
    assert_eq!(calls, [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 3]);
}

#[test]
fn a_call_has_jobs_of_one_shape_only() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { lanes: 8, waiting_max: 64, ..Fake::new("ACC") }.hanging());
    bench.put([sign(1000)]);
    until("the first call", || device.calls().len() == 1);
    bench.put((0..60).map(|id| match id % 3 {
        0 => sign(id),
        1 => sign_rsa(id),
        _ => verify(id),
    }));
    device.release();
    bench.wait_for(61);
    for call in device.calls() {
        assert!(call.iter().all(|(shape, _)| *shape == call[0].0), "{call:?}");
    }
    assert_eq!(device.seen().len(), 61);
}

#[test]
fn an_asker_with_much_in_the_backlog_does_not_keep_others_waiting() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { waiting_max: 2, ..Fake::new("CARD") }.hanging());
    let asker = Asker::new(1);
    bench.put((0..100).map(|id| Job { id, asker: asker.clone(), ..sign(id) }));
    bench.put([Job { id: 100, ..sign(2) }]);
    assert!(bench.backlog() > 90);
    device.release();
    bench.wait_for(101);
    // One in service, two in line, and then each asker's turn.
    let place = device.seen().iter().position(|asker| *asker == 2).unwrap();
    assert!(place <= 5, "{place}");
}

#[test]
fn what_comes_later_does_not_pass_the_backlog() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { waiting_max: 1, ..Fake::new("CARD") }.hanging());
    let asker = Asker::new(7);
    bench.put((0..40).map(|id| Job { id, asker: asker.clone(), ..sign(id) }));
    until("the first call", || device.calls().len() == 1);
    bench.put((40..80).map(|id| Job { id, asker: asker.clone(), ..sign_rsa(id) }));
    device.release();
    bench.wait_for(80);
    let shapes: Vec<u32> = device.calls().iter().flatten().map(|(shape, _)| shape.bits).collect();
    let first_late = shapes.iter().position(|bits| *bits == 1024).unwrap();
    assert_eq!(first_late, 40, "in the order of their coming");
}

#[test]
fn a_backlog_goes_to_whoever_can_do_it_once_its_device_is_gone() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { waiting_max: 1, ..Fake::new("CARD") }.hanging());
    bench.put((0..40).map(sign));
    assert!(bench.backlog() > 30);
    until("the first call", || device.calls().len() == 1);
    bench.start(CPU_NAME).unwrap();
    bench.stop("CARD").unwrap();
    until("all but the one in service", || bench.answers.all.lock().unwrap().len() == 39);
    device.release();
    let answers = bench.wait_for(40);
    assert!(answers.values().all(|answer| is_signed(answer.result.as_ref().unwrap())));
}

#[test]
fn the_processor_helps_a_slow_card_with_its_backlog() {
    let mut bench = Bench::new();
    bench.device(Fake { waiting_max: 1, expected: Duration::from_millis(1), ..Fake::new("CARD") }.hanging());
    let inline = bench.put((0..500).map(sign_rsa));
    assert!(inline > 250, "{inline}");
    assert!(inline < 500);
    bench.fakes[0].release();
    bench.wait_for(500);
}

#[test]
fn with_the_processor_stopped_private_jobs_are_the_devices_and_public_ones_somebodys() {
    let mut bench = Bench::without_cpu();
    assert_eq!(bench.put([verify(0)]), 1, "no other device is there");
    assert!(bench.one().result.is_ok());
    bench.put([sign(1)]);
    let stopped = DeviceError::Offline { device: CPU_NAME.to_owned(), why: "stopped".to_owned() };
    assert_eq!(bench.one().result, Err(stopped));
    let device = bench.device(Fake::new("CARD"));
    assert_eq!(bench.put([sign(2), verify(3)]), 0);
    let answers = bench.wait_for(2);
    assert!(answers.values().all(|answer| bench.device_of(answer) == "CARD" && answer.result.is_ok()));
    assert_eq!(device.seen().len(), 2);
}

#[test]
fn a_job_that_waited_for_the_processor_is_done_when_it_is_started() {
    let bench = Bench::without_cpu();
    bench.put([Job { deadline: Some(Instant::now() + PATIENCE), ..sign(1) }]);
    assert_eq!(bench.backlog(), 1);
    bench.start(CPU_NAME).unwrap();
    assert!(is_signed(&bench.one().result.unwrap()));
}

// ---- who does not want it any more -------------------------------------------------------------

#[test]
fn a_deadline_is_kept_in_line_and_in_the_backlog_while_the_device_is_busy() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { waiting_max: 1, ..Fake::new("CARD") }.hanging());
    let past = Instant::now().checked_sub(Duration::from_secs(1));
    bench.put([Job { deadline: past, ..sign(0) }]);
    assert_eq!(bench.one().result, Err(DeviceError::Deadline));
    bench.put([sign(1)]);
    until("the first call", || device.calls().len() == 1);
    let deadline = Some(Instant::now() + Duration::from_millis(30));
    bench.put((2..5).map(|id| Job { deadline, ..sign(id) }));
    assert_eq!((bench.report_of(&device).waiting, bench.backlog()), (1, 2));
    let answers = bench.wait_for(3);
    assert!(answers.values().all(|answer| answer.result == Err(DeviceError::Deadline)));
    device.release();
    assert!(bench.one().result.is_ok());
    assert_eq!(device.seen(), [1]);
}

#[test]
fn jobs_of_an_asker_that_left_are_cancelled_in_line_in_the_backlog_and_stranded() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { waiting_max: 1, ..Fake::new("CARD") }.hanging());
    bench.put([sign(1)]);
    until("the first call", || device.calls().len() == 1);
    let asker = Asker::new(9);
    bench.put((2..5).map(|id| Job { asker: asker.clone(), ..sign(id) }));
    bench.put([Job { asker: asker.clone(), ..sign_on_token(5, Some(PATIENCE)) }]);
    assert_eq!((bench.report_of(&device).waiting, bench.backlog()), (1, 3));
    asker.leave();
    let answers = bench.wait_for(4);
    assert!(answers.values().all(|answer| answer.result == Err(DeviceError::Cancelled)), "{answers:?}");
    bench.put([Job { asker, ..sign(6) }]);
    assert_eq!(bench.one().result, Err(DeviceError::Cancelled));
    device.release();
    assert!(bench.one().result.is_ok());
}

#[test]
fn jobs_that_are_over_are_no_load_any_more() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { on_the_cores: true, waiting_max: 4, ..Fake::new("ACC") }.hanging());
    for round in 0..20 {
        *device.closed.lock().unwrap() = true;
        let asker = Asker::new(round);
        bench.put([sign(0)]);
        until("the call", || device.calls().len() == round as usize + 1);
        bench.put((1..9).map(|id| Job { asker: asker.clone(), ..sign(id) }));
        asker.leave();
        // Now the engine and the monitor both look for what is over.
        device.release();
        let answers = bench.wait_for(9);
        assert_eq!(answers.values().filter(|answer| answer.result == Err(DeviceError::Cancelled)).count(), 8);
    }
    bench.remove("ACC").unwrap();
    bench.start(CPU_NAME).unwrap();
    no_load_is_left(&mut bench);
}

#[test]
fn a_key_that_cannot_do_the_work_is_refused_at_once() {
    let bench = Bench::new();
    bench.put([Job::new(P256.public_key().clone(), Work::EcdsaSign { hash: hash() })]);
    assert!(matches!(bench.one().result, Err(DeviceError::WrongKey { .. })));
}

// ---- devices that fail -------------------------------------------------------------------------

#[test]
fn what_a_dead_device_had_is_done_by_others() {
    for deed in [Deed::Die, Deed::Panic, Deed::Refuse, Deed::Mistake] {
        let mut bench = Bench::without_cpu();
        let quick = Duration::from_micros(1);
        let bad = bench.device(Fake { lanes: 8, expected: quick, ..Fake::new("BAD") }.does(move |_| deed));
        bench.device(Fake { expected: Duration::from_millis(500), waiting_max: 1000, ..Fake::new("GOOD") });
        bench.put((0..40).map(sign));
        let answers = bench.wait_for(40);
        for answer in answers.values() {
            assert!(is_signed(answer.result.as_ref().unwrap()));
            assert_eq!(bench.device_of(answer), "GOOD", "{deed:?}");
        }
        let report = bench.report_of(&bad);
        assert!(!bad.seen().is_empty() && report.meters.errors() > 0 && report.last_error.is_some(), "{deed:?}");
    }
}

#[test]
fn the_processor_does_what_its_devices_fail_at() {
    for deed in [Deed::Die, Deed::Panic, Deed::Refuse, Deed::Mistake, Deed::Fault] {
        let mut bench = Bench::new();
        let device = bench.device(Fake { expected: Duration::from_nanos(1), ..Fake::new("BAD") }.does(move |_| deed));
        bench.put((0..40).map(sign_rsa));
        let answers = bench.wait_for(40);
        assert!(answers.values().all(|answer| answer.result.is_ok() && bench.device_of(answer) == CPU_NAME));
        assert!(!device.seen().is_empty());
    }
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let mut bench = Bench::without_cpu();
    bench.device(Fake { lanes: 4, waiting_max: 100, ..Fake::new("CARD") }.does(|_| Deed::Twice));
    bench.put((0..40).map(sign));
    let answers = bench.wait_for(40);
    assert!(answers.values().all(|answer| is_signed(answer.result.as_ref().unwrap())));
}

#[test]
fn a_token_that_comes_back_does_what_waited_for_it() {
    let mut bench = Bench::new();
    let fake = Fake { bad_starts: AtomicUsize::new(2), ..Fake::token("HSM") };
    let token = bench.defined(fake);
    bench.start("HSM").unwrap();
    bench.put((0..5).map(|id| sign_on_token(id, Some(PATIENCE))));
    until("no token", || matches!(bench.report_of(&token).state, State::Offline { .. }));
    assert_eq!(bench.report_of(&token).state.why(), Some("no token in the slot"));
    let answers = bench.wait_for(5);
    for answer in answers.values() {
        assert!(is_signed(answer.result.as_ref().unwrap()));
        assert_eq!(bench.device_of(answer), "HSM");
    }
    assert_eq!(bench.report_of(&token).state, State::Running);
}

#[test]
fn without_a_deadline_nobody_waits_for_a_token_that_is_away() {
    let mut bench = Bench::new();
    let token = bench.defined(Fake::token("HSM"));
    bench.put([sign_on_token(1, None)]);
    let offline = |why: &str| DeviceError::Offline { device: "HSM".to_owned(), why: why.to_owned() };
    assert_eq!(bench.one().result, Err(offline("stopped")));
    bench.put([sign_on_token(2, Some(Duration::from_millis(30)))]);
    assert_eq!(bench.one().result, Err(offline("stopped")), "the device's state says more than the clock");
    bench.put([sign_on_token(3, Some(PATIENCE))]);
    assert_eq!(bench.backlog(), 1);
    bench.start("HSM").unwrap();
    assert!(is_signed(&bench.one().result.unwrap()));
    assert_eq!(token.seen(), [3]);
}

#[test]
fn a_job_that_its_token_refuses_is_tried_a_few_times_and_then_given_up() {
    let mut bench = Bench::new();
    let token = bench.device(Fake::token("HSM").does(|_| Deed::Refuse));
    bench.put([sign_on_token(1, Some(PATIENCE))]);
    assert!(matches!(bench.one().result, Err(DeviceError::Refused { .. })));
    assert_eq!(token.seen().len(), TRIES_MAX as usize);
    assert_eq!(bench.report_of(&token).meters.errors(), u64::from(TRIES_MAX));
}

#[test]
fn one_key_that_a_token_refuses_does_not_cost_the_others_their_token() {
    let mut bench = Bench::new();
    // It would not start a second time.
    let starts = (AtomicUsize::new(1), AtomicUsize::new(usize::MAX));
    let fake = Fake { good_starts: starts.0, bad_starts: starts.1, ..Fake::token("HSM") };
    let token = bench.device(fake.does(|asker| if asker < 4 { Deed::Refuse } else { Deed::Compute }));
    bench.put((0..4).map(|id| sign_on_token(id, None)));
    let answers = bench.wait_for(4);
    assert!(answers.values().all(|answer| matches!(answer.result, Err(DeviceError::Refused { .. }))));
    bench.put([sign_on_token(4, None)]);
    assert!(is_signed(&bench.one().result.unwrap()));
    let report = bench.report_of(&token);
    assert_eq!((report.state, report.meters.errors()), (State::Running, 4 * u64::from(TRIES_MAX)));
}

#[test]
fn a_token_that_refuses_many_keys_in_a_row_is_given_a_rest() {
    let mut bench = Bench::new();
    let starts = (AtomicUsize::new(1), AtomicUsize::new(usize::MAX));
    let fake = Fake { good_starts: starts.0, bad_starts: starts.1, ..Fake::token("HSM") };
    let token = bench.device(fake.does(|_| Deed::Refuse));
    bench.put((0..8).map(|id| {
        let key = PrivateKey::on_token(ec(Curve::P256).public_key().clone(), TOKEN);
        Job { id, asker: Asker::new(id), ..Job::new(key, Work::EcdsaSign { hash: hash() }) }
    }));
    let answers = bench.wait_for(8);
    assert!(answers.values().all(|answer| answer.result.as_ref().is_err_and(DeviceError::is_the_devices)));
    until("it rests", || matches!(bench.report_of(&token).state, State::Offline { .. }));
}

#[test]
fn a_job_that_its_token_refuses_once_is_done_the_next_time() {
    let mut bench = Bench::new();
    let first = AtomicBool::new(true);
    let deed = move |_| if first.swap(false, Ordering::SeqCst) { Deed::Refuse } else { Deed::Compute };
    bench.device(Fake::token("HSM").does(deed));
    bench.put([sign_on_token(1, None)]);
    assert!(is_signed(&bench.one().result.unwrap()));
}

#[test]
fn a_device_that_condemns_a_good_signature_is_not_used_again() {
    let mut bench = Bench::without_cpu();
    let liar = bench.device(Fake::new("LIAR").does(|_| Deed::Lie));
    assert_eq!(bench.put([verify(1)]), 0);
    assert_eq!(bench.one().result, Ok(Output::none()));
    until("it is condemned itself", || matches!(bench.report_of(&liar).state, State::Failed { .. }));
    assert_eq!(bench.put([verify(2)]), 1);
    assert_eq!(bench.one().result, Ok(Output::none()));
    bench.start("LIAR").unwrap();
    until("it was started", || bench.report_of(&liar).state == State::Running);
}

#[test]
fn a_signature_that_is_bad_stays_bad_and_its_device_is_not_to_blame() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake::new("CARD"));
    assert_eq!(bench.put([verify_wrong(1)]), 0);
    assert_eq!(bench.one().result, Err(DeviceError::BadSignature));
    let report = bench.report_of(&device);
    assert_eq!((report.state, report.meters.errors()), (State::Running, 0));
}

#[test]
fn a_device_that_computes_wrongly_is_not_used_again_and_its_jobs_are_done_elsewhere() {
    let mut bench = Bench::without_cpu();
    let quick = Duration::from_micros(1);
    let bad = bench.device(Fake { expected: quick, ..Fake::new("BAD") }.does(|_| Deed::Fault));
    bench.device(Fake { expected: Duration::from_millis(500), ..Fake::new("GOOD") });
    bench.put((0..10).map(sign));
    let answers = bench.wait_for(10);
    assert!(answers.values().all(|answer| answer.result.is_ok() && bench.device_of(answer) == "GOOD"));
    assert!(matches!(bench.report_of(&bad).state, State::Failed { .. }));
    assert_eq!(bad.seen().len(), 1);
}

#[test]
fn a_damaged_key_does_not_put_a_device_out_of_use() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake::new("CARD"));
    let (one, other) = (P256.exportable().unwrap().ec_key().unwrap(), ec(Curve::P256));
    let other = other.exportable().unwrap().ec_key().unwrap();
    let mixed = EcKey::from_private_components(one.group(), one.private_key(), other.public_key()).unwrap();
    let damaged = PrivateKey::clear(PKey::from_ec_key(mixed).unwrap()).unwrap();
    bench.put([Job { id: 1, ..Job::new(damaged, Work::EcdsaSign { hash: hash() }) }]);
    let answer = bench.one();
    assert_eq!(answer.result, Err(DeviceError::Fault { device: CPU_NAME.to_owned() }));
    let report = bench.report_of(&device);
    assert_eq!((device.seen().len(), report.state, report.meters.errors()), (1, State::Running, 0));
    bench.put([sign(2)]);
    assert_eq!(bench.device_of(&bench.one()), "CARD");
}

#[test]
fn an_engine_that_does_not_start_takes_nothing_from_the_others() {
    let mut bench = Bench::without_cpu();
    let fake = Fake { engines: 3, bad_starts: AtomicUsize::new(5), ..Fake::new("CARD") };
    let device = bench.device(fake);
    // One engine or more is up; others go on failing until all bad starts are used up.
    until("all starts were tried", || {
        assert_eq!(bench.report_of(&device).state, State::Running);
        device.bad_starts.load(Ordering::SeqCst) == 0
    });
    bench.put((0..30).map(sign));
    assert!(bench.wait_for(30).values().all(|answer| answer.result.is_ok()));
}

#[test]
fn engines_that_wait_for_their_next_start_do_not_sleep_through_the_bell_of_others() {
    let mut bench = Bench::without_cpu();
    let starts = (AtomicUsize::new(1), AtomicUsize::new(usize::MAX));
    let fake = Fake { engines: 4, good_starts: starts.0, bad_starts: starts.1, ..Fake::new("CARD") };
    let device = bench.device(fake);
    until("three engines failed", || device.bad_starts.load(Ordering::SeqCst) <= usize::MAX - 3);
    for id in 0..300 {
        bench.put([sign(id)]);
        assert!(bench.one().result.is_ok());
    }
    let report = bench.report_of(&device);
    assert_eq!((report.state, report.last_error.as_deref()), (State::Running, Some("no token in the slot")));
}

#[test]
fn a_job_that_its_token_failed_with_until_the_deadline_ends_with_the_tokens_words() {
    let mut bench = Bench::new();
    bench.device(Fake::token("HSM").does(|_| Deed::Mistake));
    bench.put([sign_on_token(1, Some(Duration::from_millis(400)))]);
    let offline = DeviceError::Offline { device: "HSM".to_owned(), why: "it does not answer".to_owned() };
    assert_eq!(bench.one().result, Err(offline));
}

#[test]
fn a_device_that_cannot_be_opened_says_why_and_can_be_started_again() {
    let bench = Bench::without_cpu();
    let good = Arc::new(Fake::new("CARD"));
    let tries = Arc::new(AtomicUsize::new(0));
    let (counter, inside) = (tries.clone(), open(&good));
    let open: Open = Arc::new(move || match counter.fetch_add(1, Ordering::SeqCst) {
        0 => Err(DeviceError::Offline { device: "CARD".to_owned(), why: "no such processor".to_owned() }),
        2 => panic!("an opening that panics, as the test wants it"),
        3 => Err(DeviceError::Away { device: "CARD".to_owned() }),
        _ => inside(),
    });
    bench.define("CARD", Kind::Accelerator, 16, open).unwrap();
    for expected in ["OFFLINE", "RUNNING", "OFFLINE", "OFFLINE", "RUNNING"] {
        bench.start("CARD").unwrap();
        until(expected, || bench.report_of(&good).state.as_str() == expected);
        if expected == "RUNNING" {
            bench.put([sign(1)]);
            assert!(bench.one().result.is_ok());
            bench.stop("CARD").unwrap();
        }
    }
    assert_eq!(tries.load(Ordering::SeqCst), 5);
}

// ---- devices that hang -------------------------------------------------------------------------

#[test]
fn what_a_hanging_device_has_is_done_by_others_and_it_is_used_again_when_it_answers() {
    let mut bench = Bench::without_cpu();
    let hanging = bench.device(Fake { expected: Duration::from_micros(1), ..Fake::new("HANGING") }.hanging());
    bench.device(Fake { expected: Duration::from_secs(1), waiting_max: 100, ..Fake::new("OTHER") });
    bench.put((0..10).map(sign));
    until("the call", || hanging.calls().len() == 1);
    let answers = bench.wait_for(10);
    assert!(answers.values().all(|answer| answer.result.is_ok() && bench.device_of(answer) == "OTHER"));
    let report = bench.report_of(&hanging);
    assert!(matches!(report.state, State::Offline { .. }), "{report:?}");
    assert!(report.last_error.unwrap().starts_with("no answer to a ECDSA-SIGN for "));
    hanging.release();
    until("it is back", || bench.report_of(&hanging).state == State::Running);
    bench.put([sign(10)]);
    let answer = bench.one();
    assert_eq!(bench.device_of(&answer), "HANGING");
    assert!(answer.result.is_ok());
}

#[test]
fn a_token_job_stays_with_a_token_that_hangs_until_its_deadline() {
    for patient in [false, true] {
        let mut bench = Bench::new();
        let fake = Fake { expected: Duration::from_micros(1), patient, ..Fake::token("HSM") };
        let token = bench.device(fake.hanging());
        bench.put([sign_on_token(1, Some(Duration::from_millis(300)))]);
        assert_eq!(bench.one().result, Err(DeviceError::Deadline));
        bench.put([sign_on_token(2, Some(PATIENCE))]);
        token.release();
        assert!(is_signed(&bench.one().result.unwrap()));
        assert_eq!(token.seen(), [1, 2]);
    }
}

/// How long a call of a slow token takes: longer than [`SILENCE_MIN`].
const SLOW_CALL: Duration = Duration::from_millis(300);

#[test]
fn a_token_that_is_slow_is_not_offline_and_what_waits_for_it_stays() {
    let mut bench = Bench::new();
    let fake = Fake { expected: Duration::from_micros(1), patient: true, ..Fake::token("HSM") };
    let token = bench.device(fake.hanging());
    for call in 1..=3 {
        token.hold();
        bench.put((0..3).map(|id| sign_on_token(id, None)));
        until("the call", || token.calls().len() > 3 * (call - 1));
        let began = Instant::now();
        until("a slow call's time is over", || {
            let report = bench.report_of(&token);
            assert_eq!((report.state, report.waiting, report.in_service), (State::Running, 2, 1));
            began.elapsed() > SLOW_CALL
        });
        token.release();
        assert!(bench.wait_for(3).values().all(|answer| is_signed(answer.result.as_ref().unwrap())));
    }
    assert_eq!(bench.report_of(&token).last_error, None);
}

#[test]
fn a_token_that_was_taken_for_hung_and_answers_is_known_to_be_slow() {
    let mut bench = Bench::new();
    let token = bench.device(Fake { expected: Duration::from_micros(1), ..Fake::token("HSM") }.hanging());
    bench.put([sign_on_token(1, None)]);
    let began = Instant::now();
    until("it is missed", || {
        matches!(bench.report_of(&token).state, State::Offline { .. }) && began.elapsed() > SLOW_CALL
    });
    token.release();
    assert!(is_signed(&bench.one().result.unwrap()));
    token.hold();
    bench.put([sign_on_token(2, None)]);
    until("the second call", || token.calls().len() == 2);
    let began = Instant::now();
    // Long enough for a look of the monitor, which was idle.
    until("three slow calls' time is over", || {
        assert_eq!(bench.report_of(&token).state, State::Running);
        began.elapsed() > 3 * SLOW_CALL
    });
    token.release();
    assert!(is_signed(&bench.one().result.unwrap()));
}

#[test]
fn what_waits_goes_elsewhere_when_one_engine_hangs_and_the_other_goes() {
    let mut bench = Bench::without_cpu();
    // Neither engine starts again.
    let starts = (AtomicUsize::new(2), AtomicUsize::new(usize::MAX));
    let fake = Fake { engines: 2, good_starts: starts.0, bad_starts: starts.1, ..Fake::new("CARD") };
    fake.hold();
    let fake = Fake { expected: Duration::from_micros(1), ..fake };
    let device = bench.device(fake.does(|asker| if asker == 0 { Deed::Hang } else { Deed::Die }));
    until("both engines are up", || device.good_starts.load(Ordering::SeqCst) == 0);
    bench.device(Fake { expected: Duration::from_secs(1), waiting_max: 100, ..Fake::new("OTHER") });
    bench.put([sign(0)]);
    until("one hangs, and the monitor has noticed", || bench.report_of(&device).last_error.is_some());
    assert_eq!(bench.report_of(&device).state, State::Running);
    bench.put((1..4).map(sign));
    let answers = bench.wait_for(4);
    assert!(answers.values().all(|answer| answer.result.is_ok() && bench.device_of(answer) == "OTHER"));
    device.release();
}

#[test]
fn one_engine_that_hangs_does_not_stop_the_others() {
    let mut bench = Bench::without_cpu();
    let fake = Fake { engines: 2, expected: Duration::from_micros(1), waiting_max: 100, ..Fake::token("HSM") };
    *fake.closed.lock().unwrap() = true;
    let token = bench.device(fake.does(|asker| if asker == 0 { Deed::Hang } else { Deed::Compute }));
    until("both engines are up", || token.calls().is_empty());
    bench.put([sign_on_token(0, Some(PATIENCE))]);
    until("it hangs, and the monitor has noticed", || bench.report_of(&token).last_error.is_some());
    for id in 1..50 {
        bench.put([sign_on_token(id, None)]);
        assert!(is_signed(&bench.one().result.unwrap()), "{id}");
    }
    assert_eq!(bench.report_of(&token).state, State::Running);
    token.release();
    assert!(is_signed(&bench.one().result.unwrap()));
}

#[test]
fn a_hanging_device_that_is_stopped_or_removed_gives_its_jobs_back() {
    for remove in [false, true] {
        let mut bench = Bench::new();
        let token = bench.device(Fake { expected: Duration::from_micros(1), ..Fake::token("HSM") }.hanging());
        bench.put([sign_on_token(1, None), sign_on_token(2, None)]);
        until("it hangs", || matches!(bench.report_of(&token).state, State::Offline { .. }));
        if remove {
            bench.remove("HSM").unwrap()
        } else {
            bench.stop("HSM").unwrap()
        }
        let answers = bench.wait_for(2);
        assert!(answers.values().all(|answer| answer.result.as_ref().is_err_and(DeviceError::is_the_devices)));
        token.release();
    }
}

// ---- setups ------------------------------------------------------------------------------------

#[test]
fn a_stopped_device_finishes_its_call_and_gives_the_rest_away() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake::new("CARD").hanging());
    bench.put((0..5).map(sign));
    until("the call", || device.calls().len() == 1);
    let other = bench.device(Fake::new("OTHER"));
    bench.stop("CARD").unwrap();
    let answers = bench.wait_for(4);
    assert!(answers.values().all(|answer| bench.device_of(answer) == "OTHER"));
    bench.start("CARD").unwrap();
    device.release();
    let answer = bench.one();
    assert_eq!((answer.id, bench.device_of(&answer).as_str()), (0, "CARD"));
    until("it runs", || bench.report_of(&device).state == State::Running);
    assert_eq!(other.seen().len(), 4);
}

#[test]
fn who_stops_or_removes_a_device_computes_nothing() {
    for remove in [false, true] {
        let mut bench = Bench::without_cpu();
        let device = bench.device(Fake::new("CARD").hanging());
        bench.put((0..10).map(sign));
        until("the call", || device.calls().len() == 1);
        bench.start(CPU_NAME).unwrap();
        if remove {
            bench.remove("CARD").unwrap();
        } else {
            bench.stop("CARD").unwrap();
        }
        until("all that waited", || bench.answers.all.lock().unwrap().len() >= 9);
        device.release();
        let answers = bench.wait_for(10);
        assert!(answers.values().all(|answer| is_signed(answer.result.as_ref().unwrap())));
        let by_cpu = answers.values().filter(|answer| bench.device_of(answer) == CPU_NAME).count();
        assert_eq!(by_cpu, if remove { 10 } else { 9 });
        assert!(!bench.answers.threads.lock().unwrap().contains(&std::thread::current().id()));
    }
}

#[test]
fn names_are_checked() {
    let mut bench = Bench::new();
    bench.defined(Fake::new("CARD"));
    let again = Arc::new(Fake::new("CARD"));
    let define = |name: &str| bench.scheduler.define(name, Kind::Accelerator, 16, open(&again));
    assert_eq!(define("CARD"), Err(SetupError::Exists("CARD".to_owned())));
    assert_eq!(define(CPU_NAME), Err(SetupError::Exists(CPU_NAME.to_owned())));
    let unknown = Err(SetupError::Unknown("NOBODY".to_owned()));
    assert_eq!((bench.start("NOBODY"), bench.stop("NOBODY")), (unknown.clone(), unknown.clone()));
    assert_eq!(
        (bench.remove("NOBODY"), bench.remove(CPU_NAME)),
        (unknown, Err(SetupError::Unknown(CPU_NAME.to_owned())))
    );
    bench.remove("CARD").unwrap();
    assert_eq!(define("CARD"), Ok(()));
    for n in 1..bulla_device::scheduler::DEVICES_MAX {
        define(&format!("CARD{n}")).unwrap();
    }
    assert_eq!(define("ONE.MORE"), Err(SetupError::TooMany));
}

#[test]
fn a_device_does_what_it_may_and_the_processor_the_rest() {
    let mut bench = Bench::new();
    let card = bench.device(Fake { expected: Duration::from_nanos(1), ..Fake::new("CARD") });
    bench.allow(&card.name, Operations::of_words(["VERIFY", "WRAP", "UNWRAP"])).unwrap();
    assert_eq!(bench.put([sign_rsa(1)]), 1, "the card may not sign");
    assert_eq!(bench.device_of(&bench.one()), CPU_NAME);
    bench.allow(&card.name, Operations::ALL).unwrap();
    bench.allow(CPU_NAME, Operations::of_words(["NONE"])).unwrap();
    assert_eq!(bench.put([sign_rsa(2)]), 0);
    assert_eq!(bench.device_of(&bench.one()), "CARD");
}

#[test]
fn a_job_that_no_device_may_do_is_refused_at_once_and_says_so() {
    let mut bench = Bench::new();
    let card = bench.device(Fake::new("CARD"));
    for name in [CPU_NAME, &card.name] {
        bench.allow(name, Operations::of_words(["VERIFY"])).unwrap();
    }
    // With a deadline and without one.
    let job = sign_rsa(1);
    let late = Job { deadline: Some(Instant::now() + PATIENCE), ..job.clone() };
    for job in [job, late] {
        assert_eq!(bench.put([job]), 0);
        let error = bench.one().result.unwrap_err();
        assert_eq!(error, DeviceError::NotAllowed { operation: Operation::RsaSign });
        assert!(error.to_string().contains("RSA-SIGN") && error.to_string().contains("OPERATIONS"), "{error}");
    }
    let unknown = Err(SetupError::Unknown("NOBODY".to_owned()));
    assert_eq!(bench.allow("NOBODY", Operations::ALL), unknown);
}

#[test]
fn a_device_that_is_stopped_while_it_is_opened_does_not_run() {
    let bench = Bench::without_cpu();
    let fake = Arc::new(Fake::new("CARD").hanging());
    let (inside, gate) = (open(&fake), fake.clone());
    let openings = Arc::new(AtomicUsize::new(0));
    let counter = openings.clone();
    let open: Open = Arc::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        let closed = gate.closed.lock().unwrap();
        drop(gate.opened.wait_while(closed, |closed| *closed).unwrap());
        inside()
    });
    bench.define("CARD", Kind::Accelerator, 16, open).unwrap();
    bench.start("CARD").unwrap();
    bench.start("CARD").unwrap();
    until("it is opened", || openings.load(Ordering::SeqCst) == 1);
    assert_eq!(bench.report_of(&fake).state, State::Starting);
    bench.stop("CARD").unwrap();
    bench.start("CARD").unwrap();
    until("it is opened again", || openings.load(Ordering::SeqCst) == 2);
    bench.stop("CARD").unwrap();
    fake.release();
    bench.shut_down();
    assert_eq!(bench.report_of(&fake).state, State::Stopped);
}

#[test]
fn shutting_down_answers_everything_and_ends_all_threads() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { waiting_max: 2, engines: 2, ..Fake::new("CARD") }.hanging());
    bench.defined(Fake { bad_starts: AtomicUsize::new(usize::MAX), ..Fake::token("HSM") });
    bench.start("HSM").unwrap();
    bench.put((0..20).map(sign));
    bench.put([sign_on_token(20, Some(PATIENCE))]);
    until("two calls", || device.calls().len() == 2);
    std::thread::scope(|threads| {
        threads.spawn(|| bench.scheduler.shut_down());
        until("what waits is answered", || bench.answers.all.lock().unwrap().len() == 19);
        device.release();
    });
    let answers = bench.wait_for(21);
    assert_eq!(answers.values().filter(|answer| answer.result.is_ok()).count(), 2);
    assert!(answers.values().filter_map(|answer| answer.result.as_ref().err()).all(DeviceError::is_the_devices));
    bench.put([sign_on_token(21, Some(PATIENCE))]);
    assert!(matches!(bench.one().result, Err(DeviceError::Away { .. })), "the asker has gone");
    let weak = Arc::downgrade(&bench.scheduler);
    drop(bench);
    assert!(weak.upgrade().is_none(), "no thread has it any more");
}

#[test]
fn a_device_that_hangs_does_not_keep_the_program_from_ending() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake::new("CARD").hanging());
    bench.put([sign(0), sign(1)]);
    until("the call", || device.calls().len() == 1);
    bench.shut_down();
    let answers = bench.wait_for(2);
    assert!(answers.values().all(|answer| matches!(answer.result, Err(DeviceError::Away { .. }))));
    device.release();
}

// ---- meters ------------------------------------------------------------------------------------

#[test]
fn meters_count_every_job_once() {
    let mut bench = Bench::new();
    let device =
        bench.device(Fake { lanes: 8, on_the_cores: true, expected: Duration::from_micros(100), ..Fake::new("ACC") });
    let mut jobs = 0;
    for round in 0..20 {
        bench.put((0..round).map(|n| if n % 2 == 0 { sign_rsa(1000 * round + n) } else { sign(1000 * round + n) }));
        jobs += round;
        bench.wait_for(round as usize);
    }
    let reports = bench.report();
    assert_eq!(reports.iter().map(|report| report.meters.count()).sum::<u64>(), jobs);
    let meters = &bench.report_of(&device).meters;
    let calls = device.calls();
    assert!(!calls.is_empty());
    for (operation, bits) in [(Operation::RsaSign, 1024), (Operation::EcdsaSign, 256)] {
        let of_it: Vec<usize> = calls.iter().filter(|call| call[0].0.bits == bits).map(Vec::len).collect();
        let row = meters.operations.iter().find(|row| row.operation == operation).unwrap();
        let shape = meters.shapes.iter().find(|meter| meter.shape.bits == bits).unwrap();
        let (count, lanes) = (of_it.iter().sum::<usize>() as u64, of_it.len() as u64);
        assert_eq!((row.count, row.errors, row.execution.count(), row.latency.count()), (count, 0, count, count));
        assert_eq!((shape.lanes_filled, shape.calls), (count, lanes));
    }
    assert_eq!(meters.waiting.iter().sum::<u64>(), meters.count(), "each job saw a line when it came");
}

#[test]
fn the_utilisation_of_a_device_on_the_cores_is_its_threads_processor_time() {
    let mut bench = Bench::without_cpu();
    let device = bench.device(Fake { lanes: 8, on_the_cores: true, waiting_max: 64, ..Fake::new("ACC") });
    for round in 0..40 {
        bench.put((0..50).map(|n| sign_rsa(1000 * round + n)));
        bench.wait_for(50);
    }
    let busy = bench.report_of(&device).meters.busy_ns() as f64;
    let cpu = device.cpu_ns.load(Ordering::SeqCst) as f64;
    assert!((busy / cpu - 1.0).abs() < 0.02, "busy {busy} ns of {cpu} ns");
}

// ---- a storm -----------------------------------------------------------------------------------

const STORM_JOBS: u64 = 2000;
const STORM_PUTTERS: u64 = 3;

/// A device of some sort that misbehaves in its own way now and then, while the weather is bad.
fn stormy(name: &str, dice: &mut Rng, bad_weather: &Arc<AtomicBool>) -> Fake {
    let (rarely, seed, weather) = (dice.u64(..40) + 10, dice.u64(..), bad_weather.clone());
    let state = Mutex::new(Rng::with_seed(seed));
    let fake = if name == "HSM" { Fake::token(name) } else { Fake::new(name) };
    let fake = Fake {
        engines: 1 + dice.u64(..3) as usize,
        lanes: [1, 2, 8][dice.u64(..3) as usize],
        waiting_max: 1 + dice.u64(..20) as usize,
        expected: Duration::from_micros(1 + dice.u64(..200)),
        on_the_cores: dice.u64(..2) == 0,
        bad_starts: AtomicUsize::new(dice.u64(..3) as usize),
        closed: Mutex::new(true),
        ..fake
    };
    fake.does(move |_| {
        let mut dice = state.lock().unwrap();
        if !weather.load(Ordering::SeqCst) || dice.u64(..rarely) > 0 {
            return Deed::Compute;
        }
        let deeds = [
            Deed::Refuse,
            Deed::Die,
            Deed::Mistake,
            Deed::Twice,
            Deed::Fault,
            Deed::Lie,
            Deed::Panic,
            Deed::Hang,
            Deed::Hang,
        ];
        deeds[dice.u64(..deeds.len() as u64) as usize]
    })
}

#[test]
fn every_job_is_answered_once_whatever_happens_to_the_devices() {
    // The weather of the threads is no seed's: more runs see more of it.
    let more = std::env::var("BULLA_STORM_SEEDS").ok().and_then(|more| more.parse().ok()).unwrap_or(0);
    for seed in [1, 20_261_122].into_iter().chain(2..2 + more) {
        eprintln!("seed {seed}");
        storm(seed);
    }
}

fn storm(seed: u64) {
    const NAMES: [&str; 4] = ["HSM", "CARD1", "CARD2", "ACC"];
    let mut bench = Bench::new();
    let bad_weather = Arc::new(AtomicBool::new(true));
    let calm = AtomicUsize::new(0);
    let made: Mutex<Vec<Arc<Fake>>> = Mutex::default();
    std::thread::scope(|threads| {
        for putter in 0..STORM_PUTTERS {
            let (bench, calm) = (&bench, &calm);
            threads.spawn(move || {
                let mut dice = Rng::with_seed(seed * 31 + putter + 1);
                let mut id = putter * STORM_JOBS;
                while id < (putter + 1) * STORM_JOBS {
                    let count = (1 + dice.u64(..30)).min((putter + 1) * STORM_JOBS - id);
                    let asker = Asker::new(dice.u64(..10));
                    let jobs: Vec<Job> = (id..id + count)
                        .map(|id| {
                            let job = match dice.u64(..6) {
                                0 => sign_rsa(id),
                                1 => verify(id),
                                2 => verify_wrong(id),
                                3 => sign_on_token(id, None),
                                4 => sign_on_token(id, Some(PATIENCE * 10)),
                                _ => sign(id),
                            };
                            let short = Some(Instant::now() + Duration::from_millis(dice.u64(..50)));
                            let deadline = if dice.u64(..20) == 0 { short } else { job.deadline };
                            Job { asker: asker.clone(), deadline, ..job }
                        })
                        .collect();
                    bench.put(jobs);
                    if dice.u64(..10) == 0 {
                        asker.leave();
                    }
                    id += count;
                }
                calm.fetch_add(1, Ordering::SeqCst);
            });
        }
        for thread in 0..2 {
            let (scheduler, calm, weather, made) = (&bench.scheduler, &calm, &bad_weather, &made);
            threads.spawn(move || {
                let mut dice = Rng::with_seed(seed * 77 + thread + 1);
                while calm.load(Ordering::SeqCst) < STORM_PUTTERS as usize {
                    let name = NAMES[dice.u64(..4) as usize];
                    // Some of these meet a device that is not there, or there already.
                    match dice.u64(..13) {
                        0 => drop(scheduler.remove(name)),
                        1 => drop(scheduler.stop(name)),
                        2 => drop(scheduler.stop(CPU_NAME)),
                        3 | 4 => drop(scheduler.start(CPU_NAME)),
                        5 => drop(scheduler.report()),
                        6..=8 => {
                            let fake = Arc::new(stormy(name, &mut dice, weather));
                            made.lock().unwrap().push(fake.clone());
                            drop(scheduler.define(name, fake.kind, fake.waiting_max, open(&fake)));
                        }
                        9 => {
                            let made = made.lock().unwrap();
                            let place = dice.u64(..made.len().max(1) as u64) as usize;
                            made.iter().skip(place).step_by(2).for_each(|fake| fake.release());
                        }
                        _ => drop(scheduler.start(name)),
                    }
                    (0..dice.u64(..200)).for_each(|_| std::thread::yield_now());
                }
            });
        }
    });
    bad_weather.store(false, Ordering::SeqCst);
    bench.fakes.extend(made.into_inner().unwrap());
    bench.fakes.iter().for_each(|fake| fake.release());
    for name in NAMES {
        let _ = bench.remove(name);
    }
    bench.start(CPU_NAME).unwrap();
    bench.device(Fake { expected: Duration::from_micros(1), ..Fake::token("HSM") });
    let answers = bench.wait_for((STORM_PUTTERS * STORM_JOBS) as usize);
    let mut good = 0;
    for answer in answers.values() {
        match &answer.result {
            // A verification has no output; RSA's are checked by the device itself.
            Ok(output) if output.is_empty() || output.len() == 128 => good += 1,
            Ok(output) => {
                assert!(answer.id % 8 != 0 || is_signed(output), "job {}", answer.id);
                good += 1;
            }
            Err(error) => {
                let known = matches!(error, DeviceError::BadSignature | DeviceError::Cancelled | DeviceError::Deadline);
                assert!(known || error.is_the_devices(), "job {}: {error}", answer.id);
            }
        }
    }
    assert!(good > STORM_JOBS / 4, "{good} good answers");
    let report = bench.report();
    assert!(report.iter().all(|device| device.waiting == 0 && device.in_service == 0), "{report:#?}");
    assert_eq!(bench.backlog(), 0);
    no_load_is_left(&mut bench);
}

/// A job that the processor does 5 µs sooner than a device is done inline only if no load of jobs that are
/// long gone is left, nor less than none.
fn no_load_is_left(bench: &mut Bench) {
    let signature = compute(Job::new(P192.clone(), Work::EcdsaSign { hash: hash() })).unwrap();
    let takes = |job: &Job| job.shape().bits == 192;
    let probe = bench.device(Fake { takes, expected: Duration::from_micros(70), ..Fake::new("PROBE") });
    let job = verify_with(&P192, 1, &signature);
    assert_eq!(bench.put([job.clone()]), 1, "load is left behind");
    bench.wait_for(1);
    // The probe would have noticed: with one more on its way it gets the job.
    let mut inline = Inline::new();
    let sink: Arc<dyn Sink> = bench.answers.clone();
    bench.place(&mut vec![sign_rsa(2)], &sink, &mut inline);
    assert_eq!(bench.put([Job { id: 3, ..job }]), 0);
    bench.answers.finished(inline.run(bench));
    bench.wait_for(2);
    assert_eq!(probe.seen().len(), 1);
}
