//! A device under the scheduler: its waiting line, what it has in service, and how it is.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use super::rules::{self, AtWork, Candidate};
use super::{DeviceId, Estimates, Open, Report, State, Waiting, locked, ns};
use crate::coprocessor::Uri;
use crate::device::{Driver, Kind, SILENCE_MIN};
use crate::meter::Meters;
use crate::operations::Operations;
use crate::transit::TransitUri;
use crate::work::{Job, Shape};

/// Failures in a row, each key that it refuses being one, after which a device is given a rest.
const FAILURES_MAX: usize = 8;
/// No call is expected to take longer, nanoseconds: an hour, so that sums of many do not overflow.
const CALL_NS_MAX: u64 = 3_600_000_000_000;
/// A job without a deadline waits so long for a token that does not answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);

pub(super) struct Managed {
    pub(super) id: DeviceId,
    pub(super) name: String,
    kind: Kind,
    waiting_max: usize,
    /// What it may do, of what it can.
    pub(super) operations: Operations,
    pub(super) open: Open,
    /// There from the first successful opening on.
    pub(super) driver: Option<Arc<dyn Driver>>,
    pub(super) state: State,
    /// Its threads are there, or on their way.
    pub(super) wanted: bool,
    /// Engines that have not answered for long. If all have not, the device gets nothing until one does.
    hung: Vec<usize>,
    /// Threads of an earlier start end when they see another number.
    pub(super) generation: u64,
    pub(super) engines_up: usize,
    queue: VecDeque<Waiting>,
    in_service: Vec<InService>,
    estimates: Estimates,
    pub(super) meters: Arc<Mutex<Meters>>,
    /// Rung when there is something to compute.
    pub(super) wake_up: Arc<Condvar>,
    /// Notified when engines that wait for their next start are to end. `wake_up` must not wake those: it wakes
    /// one engine a job.
    pub(super) end: Arc<Condvar>,
    /// In a row, refusals not among them.
    failures: usize,
    /// The keys of the jobs that it refused since it did one well.
    refused: Vec<[u8; 32]>,
    pub(super) last_error: Option<String>,
    since: SystemTime,
    pub(super) utilisation: f64,
}

/// A job that an engine has.
pub(super) struct InService {
    /// The number it has inside the device.
    key: u64,
    generation: u64,
    engine: usize,
    began: Instant,
    pub(super) waiting: Waiting,
}

impl Managed {
    pub(super) fn new(id: DeviceId, name: &str, kind: Kind, waiting_max: usize, open: Open) -> Managed {
        Managed {
            id,
            name: name.to_owned(),
            kind,
            waiting_max: waiting_max.max(1),
            operations: Operations::ALL,
            open,
            driver: None,
            state: State::Stopped,
            wanted: false,
            hung: Vec::new(),
            generation: 0,
            engines_up: 0,
            queue: VecDeque::new(),
            in_service: Vec::new(),
            estimates: Estimates::default(),
            meters: Arc::default(),
            wake_up: Arc::default(),
            end: Arc::default(),
            failures: 0,
            refused: Vec::new(),
            last_error: None,
            since: SystemTime::now(),
            utilisation: 0.0,
        }
    }

    /// Another device under the same name, from the next start on.
    pub(super) fn redefine(&mut self, kind: Kind, waiting_max: usize, open: Open) {
        (self.kind, self.waiting_max, self.open) = (kind, waiting_max.max(1), open);
    }

    /// Whether it was started, opens or has opened, and was not stopped.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether that start is its last one, and nothing has stopped it since.
    pub(super) fn is_in_run(&self, start: u64) -> bool {
        self.wanted && self.generation == start
    }

    /// Whether it takes jobs now.
    pub(super) fn is_usable(&self) -> bool {
        self.state == State::Running && !self.is_stalled()
    }

    fn is_stalled(&self) -> bool {
        !self.hung.is_empty() && self.hung.len() >= self.engines_up
    }

    pub(super) fn is_on_the_cores(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.is_on_the_cores())
    }

    pub(super) fn takes(&self, job: &Job) -> bool {
        self.may(job) && self.driver.as_ref().is_some_and(|driver| driver.takes(job))
    }

    /// Whether its OPERATIONS let it do the job.
    pub(super) fn may(&self, job: &Job) -> bool {
        self.operations.contains(job.work.operation())
    }

    /// Whether it would do the job, were it there.
    pub(super) fn would_take(&self, job: &Job) -> bool {
        self.may(job) && self.could_take(job)
    }

    /// Whether it could do the job, were it there and did its OPERATIONS let it.
    pub(super) fn could_take(&self, job: &Job) -> bool {
        match &self.driver {
            Some(driver) => driver.takes(job),
            None => {
                let uri = job.key.private().and_then(|key| key.token_uri());
                match self.kind {
                    Kind::Coprocessor => uri.is_some_and(Uri::looks_like_one),
                    Kind::Transit => uri.is_some_and(TransitUri::looks_like_one),
                    _ => false,
                }
            }
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < self.waiting_max
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_serving(&self) -> bool {
        !self.in_service.is_empty()
    }

    pub(super) fn engines(&self) -> usize {
        self.driver.as_ref().map_or(1, |driver| driver.engines()).max(1)
    }

    fn lanes(&self) -> usize {
        self.driver.as_ref().map_or(1, |driver| driver.lanes()).max(1)
    }

    fn call_ns(&self, shape: Shape) -> u64 {
        let expected = || self.driver.as_ref().map_or(0, |driver| ns(driver.expected(shape)));
        self.estimates.call_ns(shape, expected).min(CALL_NS_MAX)
    }

    fn engines_at_work(&self) -> usize {
        self.engines_up.saturating_sub(self.hung.len()).max(1)
    }

    /// What it is for a job of this shape, in its `place` among the devices.
    pub(super) fn candidate(&self, place: usize, waiting: &Waiting, now: Instant) -> Candidate {
        let (shape, own_ns) = (waiting.shape, self.call_ns(waiting.shape));
        let mut counts: Vec<(Shape, usize)> = vec![(shape, 1)];
        for waiting in &self.queue {
            match counts.iter_mut().find(|(known, _)| *known == waiting.shape) {
                Some((_, count)) => *count += 1,
                None => counts.push((waiting.shape, 1)),
            }
        }
        let at_work = self.at_work(now);
        let line = counts.into_iter().map(|(shape, count)| (count, self.call_ns(shape)));
        Candidate {
            place,
            has_failed: waiting.avoid.contains(&self.id),
            finish_ns: at_work.finish_ns(line, own_ns),
            share_ns: at_work.share_ns(own_ns),
            has_room: self.has_room(),
        }
    }

    fn at_work(&self, now: Instant) -> AtWork {
        let mut at_work = AtWork { engines: self.engines_at_work(), lanes: self.lanes(), running: 0, left_ns: 0 };
        let mut seen = 0_u64;
        let current =
            |serviced: &&InService| serviced.generation == self.generation && !self.hung.contains(&serviced.engine);
        for serviced in self.in_service.iter().filter(current) {
            if seen & (1 << (serviced.engine % 64)) == 0 {
                seen |= 1 << (serviced.engine % 64);
                at_work.running += 1;
                let spent = ns(now.saturating_duration_since(serviced.began));
                let left = self.call_ns(serviced.waiting.shape).saturating_sub(spent);
                at_work.left_ns = at_work.left_ns.saturating_add(left);
            }
        }
        at_work
    }

    pub(super) fn enqueue(&mut self, waiting: Waiting) {
        locked(&self.meters).waited(self.queue.len());
        self.queue.push_back(waiting);
        self.wake_up.notify_one();
    }

    /// Takes what one call is to compute: jobs of one shape, by [`rules::next_shape`].
    pub(super) fn take_batch(&mut self, engine: usize, keys: &mut u64, now: Instant) -> Vec<Job> {
        let lanes = self.lanes();
        let Some(oldest) = self.queue.front() else { return Vec::new() };
        let waited_ns = ns(now.saturating_duration_since(oldest.submitted));
        let waiting = self.queue.iter().map(|waiting| waiting.shape);
        let Some(shape) = rules::next_shape(waiting, lanes, waited_ns, |shape| self.call_ns(shape)) else {
            return Vec::new();
        };
        let jobs_max = self.jobs_of_a_call(lanes, now);
        let mut jobs = Vec::with_capacity(jobs_max);
        let mut place = 0;
        while jobs.len() < jobs_max {
            let Some(next) = self.queue.get(place) else { break };
            if next.shape != shape {
                place += 1;
                continue;
            }
            let Some(waiting) = self.queue.remove(place) else { break };
            *keys += 1;
            jobs.push(Job { id: *keys, ..waiting.job.clone() });
            let generation = self.generation;
            self.in_service.push(InService { key: *keys, generation, engine, began: now, waiting });
        }
        jobs
    }

    /// How many jobs a call gets: as many as there are lanes, or an idle engine's part of what waits.
    fn jobs_of_a_call(&self, lanes: usize, now: Instant) -> usize {
        if !self.driver.as_ref().is_some_and(|driver| driver.shares_its_line()) {
            return lanes;
        }
        let idle = self.engines_at_work().saturating_sub(self.at_work(now).running).max(1);
        self.queue.len().div_ceil(idle).clamp(1, lanes)
    }

    /// A job that is answered; none where it was answered meanwhile.
    pub(super) fn answered(&mut self, key: u64) -> Option<InService> {
        let place = self.in_service.iter().position(|serviced| serviced.key == key)?;
        Some(self.in_service.swap_remove(place))
    }

    /// An engine's call has ended. Whether it had been taken for hung.
    pub(super) fn heard_of(&mut self, engine: usize) -> bool {
        let before = self.hung.len();
        self.hung.retain(|hung| *hung != engine);
        self.hung.len() < before
    }

    /// What it has in service and fits.
    pub(super) fn take_in_service(&mut self, fits: impl Fn(&InService) -> bool) -> Vec<Waiting> {
        let (taken, left) = std::mem::take(&mut self.in_service).into_iter().partition(|serviced| fits(serviced));
        self.in_service = left;
        taken.into_iter().map(|serviced: InService| serviced.waiting).collect()
    }

    /// A call took so long.
    pub(super) fn took(&mut self, shape: Shape, call_ns: u64) {
        self.estimates.took(shape, call_ns);
    }

    /// Idle for long: see [`Estimates::relax`].
    pub(super) fn relax(&mut self) {
        if let Some(driver) = &self.driver {
            self.estimates.relax(|shape| ns(driver.expected(shape)));
        }
    }

    /// A call went well.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.refused.clear();
    }

    /// A job failed by the device's fault, or it refused one that has this key. True when it is time to give
    /// the device a rest. What it refuses may be the key's doing: each key counts once.
    pub(super) fn failed(&mut self, why: String, refused: Option<[u8; 32]>) -> bool {
        self.last_error = Some(why);
        match refused {
            Some(key) if self.refused.contains(&key) => {}
            Some(key) => self.refused.push(key),
            None => self.failures += 1,
        }
        if self.failures + self.refused.len() < FAILURES_MAX {
            return false;
        }
        self.failures = 0;
        self.refused.clear();
        true
    }

    /// Takes no more jobs; returns those that wait, and those of engines that may never answer.
    pub(super) fn stop(&mut self, state: State) -> Vec<Waiting> {
        if let Some(why) = state.why() {
            self.last_error = Some(why.to_owned());
        }
        self.state = state;
        self.wanted = false;
        let (hung, generation) = (std::mem::take(&mut self.hung), self.generation);
        self.generation += 1;
        self.engines_up = 0;
        self.wake_up.notify_all();
        self.end.notify_all();
        let mut left: Vec<Waiting> = self.queue.drain(..).collect();
        left.extend(
            self.take_in_service(|serviced| serviced.generation == generation && hung.contains(&serviced.engine)),
        );
        left
    }

    /// Out of use for now; its engines go on trying. Returns the jobs that wait.
    pub(super) fn rest(&mut self, why: String) -> Vec<Waiting> {
        self.last_error = Some(why.clone());
        self.state = State::Offline { why };
        self.queue.drain(..).collect()
    }

    /// Takes out the jobs whose askers are gone or whose deadline has passed.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<Waiting> {
        if !self.queue.iter().any(|waiting| waiting.job.is_over(now).is_some()) {
            return Vec::new();
        }
        let (over, left): (Vec<_>, VecDeque<_>) = std::mem::take(&mut self.queue).into_iter().fold(
            (Vec::new(), VecDeque::new()),
            |(mut over, mut left), w| {
                if w.job.is_over(now).is_some() {
                    over.push(w);
                } else {
                    left.push_back(w);
                }
                (over, left)
            },
        );
        self.queue = left;
        over
    }

    /// Looks for calls that have hung, as the driver sees it. What is in service there with a key that others
    /// can use is given back, and what waits, if no engine answers any more; the late answer is dropped. A
    /// token's job stays until its deadline, or [`SILENCE_MAX`] if it has none, whether its call has hung or
    /// the driver says nothing about that.
    pub(super) fn check_for_stall(&mut self, now: Instant) -> Vec<Waiting> {
        if self.in_service.is_empty() || self.is_on_the_cores() {
            return Vec::new();
        }
        let Some(driver) = self.driver.clone() else { return Vec::new() };
        let (mut late, mut out_of_patience) = (Vec::new(), Vec::new());
        for serviced in &self.in_service {
            let job = &serviced.waiting.job;
            let spent = now.saturating_duration_since(serviced.began);
            let silence = driver.silence(Duration::from_nanos(self.call_ns(serviced.waiting.shape)));
            if silence.is_some_and(|silence| spent > silence) {
                late.push(serviced.key);
            }
            let long = spent > silence.unwrap_or(SILENCE_MIN);
            if long && (spent > SILENCE_MAX || job.is_over(now).is_some()) {
                out_of_patience.push(serviced.key);
            }
        }
        if late.is_empty() && out_of_patience.is_empty() {
            return Vec::new();
        }
        let was_stalled = self.is_stalled();
        for serviced in self.in_service.iter().filter(|serviced| late.contains(&serviced.key)) {
            if serviced.generation == self.generation && !self.hung.contains(&serviced.engine) {
                self.hung.push(serviced.engine);
                let seconds = now.saturating_duration_since(serviced.began).as_secs_f64();
                let operation = serviced.waiting.job.work.operation();
                self.last_error = Some(format!("no answer to a {operation} for {seconds:.1} s"));
            }
        }
        let mut given_back = if was_stalled { Vec::new() } else { self.drain_if_stalled() };
        given_back.extend(self.take_in_service(|serviced| {
            let job = &serviced.waiting.job;
            let clear = job.key.private().is_none_or(|key| key.exportable().is_some());
            let others_can = clear || !job.work.needs_private_key();
            (late.contains(&serviced.key) && others_can) || out_of_patience.contains(&serviced.key)
        }));
        for waiting in &mut given_back {
            if !waiting.avoid.contains(&self.id) {
                waiting.avoid.push(self.id);
            }
        }
        given_back
    }

    /// What waits here, once no engine answers any more. What was measured is forgotten: when one does
    /// answer, the device gets another chance.
    pub(super) fn drain_if_stalled(&mut self) -> Vec<Waiting> {
        if !self.is_stalled() {
            return Vec::new();
        }
        self.estimates.forget();
        self.queue.drain(..).collect()
    }

    /// What it is doing, as commands show it.
    pub(super) fn state(&self) -> State {
        if self.state == State::Running && self.is_stalled() {
            return State::Offline { why: self.last_error.clone().unwrap_or_else(|| "no answer".to_owned()) };
        }
        self.state.clone()
    }

    pub(super) fn report(&self) -> Report {
        Report {
            name: self.name.clone(),
            kind: self.kind,
            engines: self.engines(),
            lanes: self.lanes(),
            waiting_max: self.waiting_max,
            state: self.state(),
            utilisation: self.utilisation,
            last_error: self.last_error.clone(),
            waiting: self.queue.len(),
            in_service: self.in_service.len(),
            since: self.since,
            meters: locked(&self.meters).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use openssl::ec::{EcGroup, EcKey};
    use openssl::pkey::PKey;

    use super::*;
    use crate::device::{Device, DeviceError};
    use crate::scheduler::{Answer, Sink};
    use crate::{Curve, Digest, PrivateKey, Work};

    const CALL: Duration = Duration::from_millis(1);

    struct Lanes(usize, bool);

    impl Driver for Lanes {
        fn kind(&self) -> Kind {
            Kind::Accelerator
        }

        fn engines(&self) -> usize {
            2
        }

        fn lanes(&self) -> usize {
            self.0
        }

        fn shares_its_line(&self) -> bool {
            self.1
        }

        fn takes(&self, _: &Job) -> bool {
            true
        }

        fn expected(&self, _: Shape) -> Duration {
            CALL
        }

        fn is_on_the_cores(&self) -> bool {
            false
        }

        fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
            Err(DeviceError::Away { device: "CARD".to_owned() })
        }
    }

    struct Ignored;

    impl Sink for Ignored {
        fn finished(&self, _: Vec<Answer>) {}
    }

    fn device(lanes: usize, engines_up: usize) -> Managed {
        let open: Open = Arc::new(move || Ok(Arc::new(Lanes(lanes, false)) as Arc<dyn Driver>));
        let mut device = Managed::new(DeviceId(1), "CARD", Kind::Accelerator, 64, open);
        device.driver = Some(Arc::new(Lanes(lanes, false)));
        (device.state, device.engines_up) = (State::Running, engines_up);
        device
    }

    fn key(curve: Curve) -> PrivateKey {
        let group = EcGroup::from_curve_name(curve.nid()).unwrap();
        PrivateKey::clear(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()).unwrap()
    }

    fn waiting(id: u64, key: &PrivateKey, now: Instant) -> Waiting {
        let job = Job { id, ..Job::new(key.clone(), Work::EcdsaSign { hash: Digest::Sha256.hash(b"content") }) };
        let (shape, sink) = (job.shape(), Arc::new(Ignored));
        Waiting { job, sink, submitted: now, shape, cost_ns: 0, avoid: Vec::new(), tries: 0, not_before: now }
    }

    fn bits(jobs: &[Job]) -> (usize, u32) {
        (jobs.len(), jobs[0].key.bits())
    }

    #[test]
    fn full_lanes_go_first_but_the_oldest_job_is_passed_over_for_two_calls_at_most() {
        let (odd, usual) = (key(Curve::P384), key(Curve::P256));
        let (mut device, mut keys, now) = (device(8, 1), 0, Instant::now());
        device.enqueue(waiting(0, &odd, now));
        (1..=28).for_each(|id| device.enqueue(waiting(id, &usual, now)));
        assert_eq!(bits(&device.take_batch(0, &mut keys, now)), (8, 256));
        assert_eq!(bits(&device.take_batch(0, &mut keys, now + CALL)), (8, 256));
        assert_eq!(bits(&device.take_batch(0, &mut keys, now + 2 * CALL)), (1, 384));
        assert_eq!(bits(&device.take_batch(0, &mut keys, now + 3 * CALL)), (8, 256));
        assert_eq!(bits(&device.take_batch(0, &mut keys, now + 4 * CALL)), (4, 256), "it does not wait for more");
        assert_eq!((device.waiting(), keys), (0, 29));
    }

    #[test]
    fn a_server_s_line_is_shared_out_among_its_idle_engines() {
        let usual = key(Curve::P256);
        let (mut device, mut keys, now) = (device(64, 4), 0, Instant::now());
        device.driver = Some(Arc::new(Lanes(64, true)));
        (0..10).for_each(|id| device.enqueue(waiting(id, &usual, now)));
        let taken = [0, 1, 2, 3].map(|engine| device.take_batch(engine, &mut keys, now).len());
        assert_eq!(taken, [3, 3, 2, 2]);
        (0..200).for_each(|id| device.enqueue(waiting(id, &usual, now)));
        device.take_in_service(|_| true);
        assert_eq!(device.take_batch(0, &mut keys, now).len(), 50);
        (0..200).for_each(|id| device.enqueue(waiting(id, &usual, now)));
        assert_eq!(device.take_batch(1, &mut keys, now).len(), 64, "the most that go into one request");
    }

    #[test]
    fn a_finish_time_has_what_is_in_service_and_what_waits_and_free_lanes_cost_nothing() {
        let usual = key(Curve::P256);
        let (mut device, mut keys, now) = (device(8, 1), 0, Instant::now());
        let job = waiting(0, &usual, now);
        let call = ns(CALL);
        let finish_ns = |device: &Managed, now| device.candidate(0, &job, now).finish_ns;
        assert_eq!(finish_ns(&device, now), call);
        (0..7).for_each(|id| device.enqueue(waiting(id, &usual, now)));
        assert_eq!(finish_ns(&device, now), call, "the eighth shares their call");
        device.take_batch(0, &mut keys, now);
        assert_eq!(finish_ns(&device, now), 2 * call);
        assert_eq!(finish_ns(&device, now + CALL / 2), 2 * call - call / 2);
        (0..8).for_each(|id| device.enqueue(waiting(id, &usual, now)));
        assert_eq!(finish_ns(&device, now), 3 * call);
        device.engines_up = 2;
        assert_eq!(finish_ns(&device, now), 3 * call / 2);
        assert_eq!(device.candidate(0, &job, now).share_ns, call / 16);
    }

    #[test]
    fn a_token_job_without_a_deadline_is_given_back_after_a_long_silence() {
        let clear = key(Curve::P256);
        let on_token = PrivateKey::on_token(clear.public_key().clone(), "pkcs11:token=tests");
        let (mut device, mut keys, now) = (device(1, 2), 0, Instant::now());
        for (engine, key) in [&clear, &on_token].into_iter().enumerate() {
            device.enqueue(waiting(engine as u64, key, now));
            device.take_batch(engine, &mut keys, now);
        }
        device.enqueue(waiting(9, &clear, now));
        let ids = |given: Vec<Waiting>| given.iter().map(|waiting| waiting.job.id).collect::<Vec<_>>();
        assert!(ids(device.check_for_stall(now + SILENCE_MIN)).is_empty());
        assert!(device.is_usable());
        let late = now + SILENCE_MIN + CALL;
        assert_eq!(ids(device.check_for_stall(late)), [9, 0], "what waits, and what others can do");
        assert!(!device.is_usable());
        assert!(ids(device.check_for_stall(now + SILENCE_MAX)).is_empty());
        assert_eq!(ids(device.check_for_stall(now + SILENCE_MAX + CALL)), [1]);
        assert!(device.answered(1).is_none() && device.heard_of(0) && !device.heard_of(0));
        assert!(device.is_usable(), "one engine answers again");
    }

    #[test]
    fn an_engine_of_an_earlier_start_that_is_late_says_nothing_about_its_successor() {
        let clear = key(Curve::P256);
        let (mut device, mut keys, now) = (device(1, 1), 0, Instant::now());
        device.enqueue(waiting(0, &clear, now));
        device.take_batch(0, &mut keys, now);
        assert!(device.stop(State::Stopped).is_empty(), "it may still answer");
        (device.state, device.engines_up) = (State::Running, 1);
        assert_eq!(device.check_for_stall(now + 2 * SILENCE_MIN).len(), 1);
        assert!(device.is_usable());
    }
}
