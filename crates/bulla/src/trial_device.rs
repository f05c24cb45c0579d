//! The device that trials use: the processor for clear keys, the queue manager's own devices for keys on tokens; and
//! what is written down of it. A trial uses private keys as a message does.

use crate::audit::{Audit, Purpose};
use bulla_device::scheduler::{Answer, Sink};
use bulla_device::{Asker, CpuDevice, Device, DeviceError, Finished, Inline, Job, Kind, Scheduler};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How long a trial waits for a token. One that has kept it waiting once is not asked again by the same trials.
pub(crate) const TOKEN_WAIT: Duration = Duration::from_millis(500);

/// The number with which trials ask for devices: no user's, and no connection's.
const ASKER: u64 = u64::MAX;

/// One trial's, or those of one question.
pub(crate) struct TrialDevice {
    cpu: CpuDevice,
    /// Where keys on tokens are asked for; none where no policy in force uses them.
    tokens: Option<Arc<Scheduler>>,
    /// A token did not answer in time.
    is_away: bool,
    answered: Vec<Finished>,
    audit: Arc<Audit>,
    operations: u64,
}

impl TrialDevice {
    /// Without `tokens`, keys on tokens are not used.
    pub(crate) fn new(audit: &Arc<Audit>, tokens: Option<&Arc<Scheduler>>) -> Self {
        Self {
            cpu: CpuDevice::new("cpu"),
            tokens: tokens.cloned(),
            is_away: false,
            answered: Vec::new(),
            audit: audit.clone(),
            operations: 0,
        }
    }

    /// What was done since the last time was for one message, with a key of that user: the audit log says so.
    pub(crate) fn note(&mut self, user: &str, purpose: Purpose) {
        let operations = std::mem::take(&mut self.operations);
        if operations > 0 {
            self.audit.key(user, None, purpose).add(1, operations);
        }
    }

    /// Asks the devices, and waits for the answer.
    fn ask(&mut self, scheduler: &Arc<Scheduler>, job: Job) -> Finished {
        let id = job.id;
        if self.is_away {
            return Finished::new(id, Err(DeviceError::Deadline));
        }
        let (answers, answered) = mpsc::channel();
        let sink: Arc<dyn Sink> = Arc::new(ToTrial(answers));
        let deadline = Some(Instant::now() + TOKEN_WAIT);
        // A message that does not open is not to be the token's doing.
        let job = Job { deadline, asker: Asker::new(ASKER), is_in_doubt: true, ..job };
        let asker = job.asker.clone();
        // The job of a key on a token is never left to its asker.
        scheduler.place(&mut vec![job], &sink, &mut Inline::new());
        let answer = answered.recv_timeout(TOKEN_WAIT);
        asker.leave();
        let result = answer.map_or(Err(DeviceError::Deadline), |answer| answer.result);
        self.is_away = matches!(result, Err(DeviceError::Deadline | DeviceError::Away { .. }));
        Finished::new(id, result)
    }
}

/// Answers of devices go to the trial that waits for them.
struct ToTrial(mpsc::Sender<Answer>);

impl Sink for ToTrial {
    fn finished(&self, answers: Vec<Answer>) {
        for answer in answers {
            // A trial that has waited long enough is gone.
            let _ = self.0.send(answer);
        }
    }
}

fn uses_private_key(job: &Job) -> bool {
    job.work.needs_private_key()
}

fn is_on_token(job: &Job) -> bool {
    uses_private_key(job) && job.key.private().is_some_and(|key| key.token_uri().is_some())
}

impl Device for TrialDevice {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        if let (Some(scheduler), Some(true)) = (self.tokens.clone(), jobs.first().map(is_on_token)) {
            let job = jobs.remove(0);
            let finished = self.ask(&scheduler, job);
            self.operations += u64::from(finished.result.is_ok());
            self.answered.push(finished);
            return Ok(1);
        }
        let of_jobs: Vec<bool> = jobs.iter().map(uses_private_key).collect();
        let taken = self.cpu.submit(jobs)?;
        self.operations += of_jobs.into_iter().take(taken).map(u64::from).sum::<u64>();
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        if self.answered.is_empty() {
            return self.cpu.poll(done);
        }
        done.append(&mut self.answered);
        Ok(())
    }

    fn name(&self) -> &str {
        self.cpu.name()
    }

    fn kind(&self) -> Kind {
        self.cpu.kind()
    }
}
