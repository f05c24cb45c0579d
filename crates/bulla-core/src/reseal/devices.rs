//! Many messages at devices at the same time, for one thread that waits for all of them.

use crate::adapter::{KEY_SERVICE_WAIT, Question, question};
use crate::maps::HashMap;
use bulla_device::scheduler::{Answer, Sink};
use bulla_device::{Asker, DeviceError, Inline, Job, Output, Scheduler};
use bulla_seal::{Continuation, Step};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The number with which this asks for devices: no user's, and no connection's.
pub(super) const ASKER: u64 = u64::MAX - 1;
/// What the processor computes before it is looked whether other devices have answered.
const SLICE: Duration = Duration::from_millis(1);
/// Tasks that are begun before their jobs are placed: devices compute while the others are begun.
const BEGUN_AT_ONCE: usize = 16;

/// Takes `count` tasks to their ends, `window` of them at the same time, and waits for that. Tasks that ask a private
/// key the same share one answer.
pub(super) fn carry_out<T: 'static, E: 'static>(
    scheduler: &Arc<Scheduler>,
    count: usize,
    window: usize,
    mut start: impl FnMut(usize) -> Result<Step<T, E>, E>,
) -> Vec<Result<T, E>> {
    let (answers, answered) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(ToThread(answers));
    let (asker, until) = (Asker::new(ASKER), Instant::now() + KEY_SERVICE_WAIT);
    let mut work = Work {
        results: (0..count).map(|_| None).collect(),
        jobs: Vec::new(),
        waiting: HashMap::default(),
        shared: HashMap::default(),
        under_way: 0,
    };
    let (mut inline, mut next) = (Inline::new(), 0);
    while next < count || work.under_way > 0 {
        let begin_until = count.min(next + BEGUN_AT_ONCE);
        while next < begin_until && work.under_way < window {
            work.under_way += 1;
            let stage = start(next);
            work.advance(next, stage);
            next += 1;
        }
        let others_begin = next < count && work.under_way < window;
        let mut jobs = std::mem::take(&mut work.jobs);
        for job in &mut jobs {
            (job.asker, job.deadline) = (asker.clone(), Some(until));
        }
        scheduler.place(&mut jobs, &sink, &mut inline);
        let mut came = inline.run_for(scheduler, SLICE);
        came.extend(answered.try_iter());
        if came.is_empty() && work.under_way > 0 && !others_begin {
            match answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(answer) => came.push(answer),
                Err(_) => work.give_up(),
            }
        }
        came.into_iter().for_each(|answer| work.answered(answer));
    }
    asker.leave();
    work.results.into_iter().flatten().collect()
}

/// Tasks under way. Each has its place among the results, which is the number of its job.
struct Work<T, E> {
    results: Vec<Option<Result<T, E>>>,
    /// Jobs that are to be placed.
    jobs: Vec<Job>,
    waiting: HashMap<u64, Waiting<T, E>>,
    /// Tasks that wait for the answer to another one's job.
    shared: HashMap<Question, Vec<Sharing<T, E>>>,
    under_way: usize,
}

/// A task that waits for another one's answer: its place, and how it goes on.
type Sharing<T, E> = (usize, Continuation<T, E>);

struct Waiting<T, E> {
    go_on: Continuation<T, E>,
    question: Option<Question>,
}

impl<T: 'static, E: 'static> Work<T, E> {
    fn advance(&mut self, place: usize, stage: Result<Step<T, E>, E>) {
        let result = match stage {
            // The messages are few, and sealed once.
            Ok(leaf @ Step::Leaf(..)) => return self.advance(place, Ok(leaf.alone())),
            Ok(Step::Device(mut job, go_on)) => {
                let question = question(&job);
                if let Some(others) = question.as_ref().and_then(|question| self.shared.get_mut(question)) {
                    others.push((place, go_on));
                    return;
                }
                if let Some(question) = question {
                    self.shared.insert(question, Vec::new());
                }
                job.id = place as u64;
                self.waiting.insert(job.id, Waiting { go_on, question });
                self.jobs.push(job);
                return;
            }
            Ok(Step::Done(done)) => Ok(done),
            Err(error) => Err(error),
        };
        if let Some(slot) = self.results.get_mut(place) {
            *slot = Some(result);
        }
        self.under_way -= 1;
    }

    fn answered(&mut self, answer: Answer) {
        if let Some(waiting) = self.waiting.remove(&answer.id) {
            self.resume(answer.id, waiting, answer.result);
        }
    }

    fn resume(&mut self, id: u64, waiting: Waiting<T, E>, result: Result<Output, DeviceError>) {
        let others = waiting.question.and_then(|question| self.shared.remove(&question)).unwrap_or_default();
        if let Ok(place) = usize::try_from(id) {
            self.advance(place, (waiting.go_on)(result.clone()));
        }
        for (place, go_on) in others {
            self.advance(place, go_on(result.clone()));
        }
    }

    /// No device answers any more.
    fn give_up(&mut self) {
        for (id, waiting) in std::mem::take(&mut self.waiting) {
            self.resume(id, waiting, Err(DeviceError::Deadline));
        }
    }
}

/// Answers of devices go to the thread that waits for them.
struct ToThread(mpsc::Sender<Answer>);

impl Sink for ToThread {
    fn finished(&self, answers: Vec<Answer>) {
        for answer in answers {
            // A thread that has waited long enough is gone.
            let _ = self.0.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_device::{Curve, Kind, PrivateKey};
    use openssl::ec::{EcGroup, EcKey};
    use openssl::nid::Nid;
    use openssl::pkey::PKey;

    fn key() -> PKey<openssl::pkey::Private> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
    }

    #[test]
    fn tasks_end_in_their_places_and_those_that_ask_the_same_share_an_answer() {
        let scheduler = Scheduler::without_monitor(Kind::Cpu, 1);
        let peer = Curve::point(&key()).unwrap();
        let key = PrivateKey::clear(key()).unwrap();
        let derive = |place: usize| -> Result<Step<(usize, Vec<u8>), DeviceError>, DeviceError> {
            if place == 3 {
                return Err(DeviceError::Cancelled);
            }
            let job = Job::new(key.clone(), bulla_device::Work::EcdhDerive { peer: peer.clone() });
            Ok(Step::Device(job, Box::new(move |result| Ok(Step::Done((place, result?.to_vec()))))))
        };
        for window in [1, 2, 100] {
            let results = carry_out(&scheduler, 5, window, derive);
            let places: Vec<_> = results.iter().map(|result| result.as_ref().ok().map(|(place, _)| *place)).collect();
            assert_eq!(places, [Some(0), Some(1), Some(2), None, Some(4)]);
            let secrets: Vec<_> = results.into_iter().flatten().map(|(_, secret)| secret).collect();
            assert!(secrets.iter().all(|secret| *secret == secrets[0]));
        }
        // More than are begun at once.
        let results = carry_out(&scheduler, 3 * BEGUN_AT_ONCE + 1, usize::MAX, derive);
        let places = results.iter().map(|result| result.as_ref().ok().map(|(place, _)| *place));
        assert!(places.enumerate().all(|(at, place)| place == (at != 3).then_some(at)));
    }
}
