//! One adapter's turn: tasks begin, go on with the answers of devices, and hand over jobs.

use super::{
    Adapters, Again, Aside, Asker, Away, Finished, HOLD_MAX, HOLD_SIGNATURES, Held, KEY_SERVICE_WAIT, New, Outcome,
    Progress, SHARED_MIN, SLICE, TASKS_PER_TURN, Taken, Task, Work, question,
};
use crate::accounting::Cost;
use crate::catalog::status::DeviceWait;
use crate::limits::KeyWork;
use crate::mailbox::{Mailboxes, Notice};
use crate::task::TaskMeter;
use bulla_device::role::{self, Role};
use bulla_device::scheduler::{Answer, Run, Sink};
use bulla_device::{DeviceError, Inline, Job, Operation, Output, SystemRandom, ticks};
use bulla_seal::{Batch, BatchKey, Leaf, OpenError, Opened, Proof, SealError, Sealed, Step, Tally, Verified};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One adapter's turn.
pub(super) struct Turn<'a> {
    adapters: &'a Adapters,
    mailboxes: &'a Mailboxes,
    meter: &'a TaskMeter,
    sink: Arc<dyn Sink>,
    inline: Inline,
    /// Jobs that this turn hands over, each with its task.
    jobs: Vec<(Job, Task)>,
    /// Messages to be signed.
    leaves: Vec<(Leaf, Task)>,
    /// Kinds of messages of which a signature was made, one entry a signature; and how long the next one may wait.
    made: Vec<(BatchKey, Duration)>,
    /// Kinds whose messages are to be signed now.
    due: Vec<BatchKey>,
    /// Signatures for several messages, or for one that might have shared its own, that this turn has handed over.
    signatures: usize,
    outcomes: Vec<Finished>,
    /// Askers of tasks that are done, one entry a task, and what it took of the asker's share.
    done: Vec<(u64, KeyWork)>,
}

impl<'a> Turn<'a> {
    /// Turns of one adapter.
    pub(super) fn new(adapters: &'a Arc<Adapters>, mailboxes: &'a Mailboxes, meter: &'a TaskMeter) -> Self {
        Self {
            adapters,
            mailboxes,
            meter,
            sink: adapters.clone(),
            inline: Inline::new(),
            jobs: Vec::new(),
            leaves: Vec::new(),
            made: Vec::new(),
            due: Vec::new(),
            signatures: 0,
            outcomes: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Hot path: answers first, because their tasks have waited longest.
    pub(super) fn carry_out(&mut self, taken: Taken) {
        self.signatures = 0;
        self.go_on(taken.answers, 0);
        self.due.extend(taken.due);
        let deadline = Instant::now() + KEY_SERVICE_WAIT;
        for New { asker, who, work, tally, keys, held } in taken.tasks {
            if who.is_gone() {
                self.done.push((who.number(), keys));
                continue;
            }
            let begun = ticks();
            let _part = role::enter(part(matches!(work, Work::Open(_) | Work::GoOnOpening(..))));
            let stage = match work {
                Work::Seal(start, _) => Stage::Seal(start()),
                Work::Open(again) => Stage::Open(again(), again),
                Work::GoOnOpening(step, again) => Stage::Open(Ok(step), again),
                Work::Check(again) => Stage::Check(again(), again),
            };
            let spent = ticks().saturating_sub(begun);
            let (devices, wait) = (Vec::new(), DeviceWait::default());
            let (checking, looked_again) = (false, false);
            self.advance(
                Standing { asker, who, deadline, devices, checking, looked_again, spent, tally, keys, wait, held },
                stage,
            );
        }
        self.inline.take_over(taken.shared);
        while self.has_jobs() || !self.inline.is_empty() {
            if self.has_jobs() {
                self.place();
            }
            if self.inline.is_empty() {
                continue;
            }
            self.adapters.share(&mut self.inline);
            let begun = ticks();
            let answers = self.inline.run_for(&self.adapters.scheduler, SLICE);
            let ran = ticks().saturating_sub(begun);
            let each = ran / (answers.len() as u64).max(1);
            let is_long = answers.iter().any(|answer| u128::from(answer.service_ns) >= SHARED_MIN.as_nanos());
            self.go_on(answers, each);
            // The next signature of a kind is a new job: who waits for the one before hears of it first.
            if !self.inline.is_empty() || is_long && self.has_jobs() {
                // What is done does not wait for the rest, nor what waits for its asker to have fewer tasks under way.
                self.tell_all();
                self.adapters.wake_for_tasks();
            }
        }
        if let Some(run) = taken.aside {
            let begun = ticks();
            // A partner's name: nothing that protects a message.
            role::exactly(Role::QueueManager, run);
            self.meter.request(ticks().saturating_sub(begun));
        }
    }

    fn has_jobs(&self) -> bool {
        !(self.jobs.is_empty() && self.leaves.is_empty() && self.made.is_empty() && self.due.is_empty())
    }

    /// Sets the tasks aside and hands their jobs to the scheduler.
    fn place(&mut self) {
        let mut placed: Vec<Job> = Vec::with_capacity(self.jobs.len());
        let (mut known, mut held) = (Vec::new(), Vec::new());
        let now = Instant::now();
        {
            let adapters = self.adapters;
            let mut away = adapters.away();
            let mut due = std::mem::take(&mut self.due);
            for (key, hold) in self.made.drain(..) {
                away.unsigned.made(&key);
                if hold.is_zero() || !away.unsigned.may_grow(&key) {
                    due.push(key)
                } else {
                    held.push((key, Some(now + hold)))
                }
            }
            for (leaf, mut task) in self.leaves.drain(..) {
                task.placed_at = now;
                due.extend(away.unsigned.add(leaf, task));
            }
            for key in due {
                loop {
                    // As many as messages that are signed alone: then others have their turn.
                    if self.signatures >= TASKS_PER_TURN && away.unsigned.is_ready(&key) {
                        held.push((key, None));
                        break;
                    }
                    let Some(waiting) = away.unsigned.next(&key) else { break };
                    self.signatures += 1;
                    self.sign(&mut away, &key, waiting, now, &mut placed);
                }
            }
            for (mut job, mut task) in self.jobs.drain(..) {
                job.asker = task.who.clone();
                job.deadline = Some(task.deadline);
                task.placed_at = now;
                task.is_private = job.work.needs_private_key();
                task.unproved = matches!(
                    &*job.work,
                    bulla_device::Work::RsaUnwrap { .. }
                        | bulla_device::Work::EcdhDerive { .. }
                        | bulla_device::Work::MlKemDecapsulate { .. }
                );
                job.is_in_doubt = task.checking;
                task.shared = if task.checking { None } else { question(&job) };
                if let Some(question) = task.shared {
                    if let Some(others) = away.shared.get_mut(&question) {
                        others.push((job, task));
                        continue;
                    }
                    if let Progress::Open(_, again) = &task.progress
                        && !task.looked_again
                        && away.answered.has(&question)
                    {
                        known.push((again.clone(), task));
                        continue;
                    }
                    away.shared.insert(question, Vec::new());
                }
                // In doubt the processor has the last word; a token's key is asked once more.
                let here = task.checking && job.key.private().is_none_or(|key| key.exportable().is_some());
                job.id = away.tasks.insert(Aside::Task(Box::new(task))) as u64;
                if here { self.inline.push_here(job) } else { placed.push(job) }
            }
        }
        self.adapters.hold_signatures(held);
        self.adapters.scheduler.place(&mut placed, &self.sink, &mut self.inline);
        for (again, task) in known {
            self.look_again(&again, task);
        }
    }

    /// Signs these messages of one kind: all of them together, or the one that there is.
    fn sign(
        &mut self,
        away: &mut Away,
        key: &BatchKey,
        mut waiting: Vec<(Leaf, Task)>,
        now: Instant,
        placed: &mut Vec<Job>,
    ) {
        for (_, gone) in waiting.extract_if(.., |(_, task)| task.who.is_gone()) {
            self.done.push((gone.who.number(), gone.keys));
        }
        for (_, late) in waiting.extract_if(.., |(_, task)| task.deadline <= now) {
            self.prove(late, Err(DeviceError::Deadline));
        }
        let deadline = waiting.iter().map(|(_, task)| task.deadline).min();
        let signature = match waiting.len() {
            0 => None,
            1 => waiting.pop().and_then(|(leaf, task)| Self::sign_alone(key, leaf, task)),
            _ => self.sign_together(key, waiting),
        };
        let Some((mut job, aside)) = signature else { return away.unsigned.made(key) };
        job.deadline = deadline;
        job.id = away.tasks.insert(aside) as u64;
        placed.push(job);
    }

    fn sign_alone(key: &BatchKey, leaf: Leaf, mut task: Task) -> Option<(Job, Aside)> {
        let Progress::Sign(go_on) = task.progress else { return None };
        let (mut job, prove) = leaf.alone();
        job.asker = task.who.clone();
        task.is_private = true;
        task.progress = Progress::Seal(Box::new(move |signature| go_on(prove(signature))));
        Some((job, Aside::Alone(key.clone(), Box::new(task))))
    }

    fn sign_together(&mut self, key: &BatchKey, waiting: Vec<(Leaf, Task)>) -> Option<(Job, Aside)> {
        let (leaves, tasks): (Vec<Leaf>, Vec<Task>) = waiting.into_iter().unzip();
        let number = tasks.first().map_or(0, |task| task.who.number());
        // There are two leaves at least, and no more than a batch has.
        match Batch::of(leaves, &mut SystemRandom).and_then(|batch| batch.ok_or(SealError::NothingToSeal)) {
            Ok((batch, mut job)) => {
                // One of the askers may leave; the others still want to hear.
                job.asker = bulla_device::Asker::new(number);
                Some((job, Aside::Batch(key.clone(), Box::new(batch), tasks)))
            }
            Err(error) => {
                for task in tasks {
                    self.refuse_to_seal(task, error.clone());
                }
                None
            }
        }
    }

    fn refuse_to_seal(&mut self, task: Task, error: SealError) {
        let (standing, _) = task.stand();
        self.tell(&standing, Outcome::Sealed(Err(error)));
    }

    /// A message's signature is there, or will not be.
    fn prove(&mut self, task: Task, proof: Result<Proof, DeviceError>) {
        let (mut standing, progress) = task.stand();
        let Progress::Sign(go_on) = progress else { return };
        let begun = ticks();
        let _part = role::enter(Role::Sealing);
        let stage = Stage::Seal(go_on(proof));
        standing.spent = standing.spent.saturating_add(ticks().saturating_sub(begun));
        self.advance(standing, stage);
    }

    /// A batch's signature is there, or will not be. What it took is its messages', in equal parts.
    fn signed(&mut self, batch: Batch, mut tasks: Vec<Task>, answer: Answer, each: u64, now: Instant) {
        let count = (tasks.len() as u64).max(1);
        for task in &mut tasks {
            task.spent = task.spent.saturating_add(each / count);
            task.keys.taken_ns = task.keys.taken_ns.saturating_add(answer.service_ns / count);
        }
        match answer.result {
            Ok(signature) => {
                for (mut task, proof) in tasks.into_iter().zip(batch.proofs(&signature)) {
                    task.waited(now);
                    self.prove(task, Ok(proof));
                }
            }
            // The time of the first of them is up; the others have some left.
            Err(DeviceError::Deadline) => {
                for (task, leaf) in tasks.into_iter().zip(batch.into_leaves()) {
                    if task.deadline <= now {
                        self.prove(task, Err(DeviceError::Deadline));
                    } else {
                        self.leaves.push((leaf, task));
                    }
                }
            }
            Err(error) => tasks.into_iter().for_each(|task| self.prove(task, Err(error.clone()))),
        }
    }

    /// Between its look for the content key and now, that was unwrapped for another message: the task begins anew, and
    /// finds it. Where the opener has forgotten it by now the task asks after all.
    fn look_again(&mut self, again: &Again<Verified<Opened>, OpenError>, task: Task) {
        let Task { asker, who, deadline, devices, checking, spent, tally, keys, wait, held, .. } = task;
        let begun = ticks();
        let _part = role::enter(Role::Opening);
        tally.begin_again();
        let stage = Stage::Open(again(), again.clone());
        let spent = spent.saturating_add(ticks().saturating_sub(begun));
        let looked_again = true;
        self.advance(
            Standing { asker, who, deadline, devices, checking, looked_again, spent, tally, keys, wait, held },
            stage,
        );
    }

    /// Goes on with the tasks whose answers came; to compute one here took `each` ticks.
    fn go_on(&mut self, answers: Vec<Answer>, each: u64) {
        if answers.is_empty() {
            return;
        }
        let mut resumed = Vec::with_capacity(answers.len());
        let mut signed = Vec::new();
        {
            let mut away = self.adapters.away();
            for answer in answers {
                match usize::try_from(answer.id).ok().and_then(|key| away.tasks.try_remove(key)) {
                    None => {}
                    Some(Aside::Task(task)) => resumed.push((*task, answer)),
                    Some(Aside::Alone(key, task)) => {
                        self.made.push((key, hold_after(&answer)));
                        resumed.push((*task, answer));
                    }
                    Some(Aside::Batch(key, batch, tasks)) => {
                        self.made.push((key, hold_after(&answer)));
                        signed.push((batch, tasks, answer));
                    }
                }
            }
        }
        let now = Instant::now();
        for (batch, tasks, answer) in signed {
            self.signed(*batch, tasks, answer, each, now);
        }
        let mut answered = Vec::new();
        for (mut task, answer) in resumed {
            task.spent = task.spent.saturating_add(each);
            if task.is_private {
                // A task that shares the answer has taken nothing.
                task.keys.taken_ns = task.keys.taken_ns.saturating_add(answer.service_ns);
            }
            task.waited(now);
            if let Some(question) = task.shared {
                answered.push((question, answer.result.clone(), answer.by));
            }
            self.resume(task, answer.result, answer.by, None);
        }
        if answered.is_empty() {
            return;
        }
        // The first asker has used the answer, so the opener knows the key before the question is closed: from then on
        // no task joins those who wait, and a new one looks for the key again.
        let mut shared = Vec::new();
        {
            let mut away = self.adapters.away();
            for (question, result, by) in answered {
                if result.is_ok() {
                    away.answered.note(question);
                }
                let others = away.shared.remove(&question).unwrap_or_default();
                shared.extend(others.into_iter().map(|(job, other)| (job, other, result.clone(), by)));
            }
        }
        let now = Instant::now();
        for (job, mut other, result, by) in shared {
            other.waited(now);
            match result {
                // The first one's asker has gone, or its time is up: the next one asks for all.
                Err(DeviceError::Cancelled | DeviceError::Deadline) => self.jobs.push((job, other)),
                result => self.resume(other, result, by, Some(job.work.operation())),
            }
        }
    }

    /// `shared`: the answer was another task's, which asked for the same operation.
    fn resume(&mut self, task: Task, result: Result<Output, DeviceError>, by: Run, shared: Option<Operation>) {
        let Task {
            asker,
            who,
            deadline,
            progress,
            mut devices,
            checking,
            unproved,
            spent,
            looked_again,
            tally,
            keys,
            wait,
            held,
            ..
        } = task;
        // What has no answer was not counted.
        let shared = shared.filter(|_| matches!(result, Ok(_) | Err(DeviceError::BadSignature)));
        let begun = ticks();
        // What proves right at the second try is held against the first one's device alone.
        if unproved && !checking && by != Run::CPU && !devices.contains(&by) {
            devices.push(by);
        }
        let _part = role::enter(part(matches!(progress, Progress::Open(..))));
        let stage = match progress {
            // It waits for no answer of its own: see `prove`.
            Progress::Sign(go_on) => Stage::Seal(go_on(Err(result.err().unwrap_or(DeviceError::Cancelled)))),
            Progress::Seal(go_on) => Stage::Seal(go_on(result)),
            Progress::Open(go_on, again) => Stage::Open(go_on(result), again),
            Progress::Check(go_on, again) => Stage::Check(go_on(result), again),
        };
        if let Some(operation) = shared {
            tally.was_shared(operation);
        }
        let spent = spent.saturating_add(ticks().saturating_sub(begun));
        self.advance(
            Standing { asker, who, deadline, devices, checking, looked_again, spent, tally, keys, wait, held },
            stage,
        );
    }

    /// Sets a task aside with its next job, or tells its outcome.
    fn advance(&mut self, standing: Standing, stage: Stage) {
        match stage {
            Stage::Seal(Ok(Step::Device(job, go_on))) => self.jobs.push((job, standing.task(Progress::Seal(go_on)))),
            Stage::Seal(Ok(Step::Leaf(leaf, go_on))) => {
                self.leaves.push((*leaf, standing.task(Progress::Sign(go_on))));
            }
            // Nothing that opens signs.
            Stage::Open(Ok(leaf @ Step::Leaf(..)), again) => {
                self.advance(standing, Stage::Open(Ok(leaf.alone()), again));
            }
            Stage::Check(Ok(leaf @ Step::Leaf(..)), again) => {
                self.advance(standing, Stage::Check(Ok(leaf.alone()), again));
            }
            Stage::Open(Ok(Step::Device(job, go_on)), again) => {
                self.jobs.push((job, standing.task(Progress::Open(go_on, again))));
            }
            Stage::Check(Ok(Step::Device(job, go_on)), again) => {
                self.jobs.push((job, standing.task(Progress::Check(go_on, again))));
            }
            Stage::Open(Err(error), again) if standing.is_in_doubt(&error) => {
                self.advance(standing.once_more(), Stage::Open(again(), again));
            }
            Stage::Check(Err(error), again) if standing.is_in_doubt(&error) => {
                self.advance(standing.once_more(), Stage::Check(again(), again));
            }
            Stage::Seal(Ok(Step::Done(sealed))) => self.tell(&standing, Outcome::Sealed(Ok(sealed))),
            Stage::Seal(Err(error)) => self.tell(&standing, Outcome::Sealed(Err(error))),
            Stage::Open(Ok(Step::Done(opened)), _) => {
                // A message that opens with any key says nothing.
                if opened.get().seal.proved {
                    self.blame(&standing);
                }
                self.tell(&standing, Outcome::Opened(Ok(opened)));
            }
            Stage::Open(Err(error), _) => self.tell(&standing, Outcome::Opened(Err(error))),
            Stage::Check(Ok(Step::Done(())), _) => {
                self.blame(&standing);
                self.tell(&standing, Outcome::Checked(Ok(())));
            }
            Stage::Check(Err(error), _) => self.tell(&standing, Outcome::Checked(Err(error))),
        }
    }

    /// The processor opened what a device could not: that device is not used any more.
    fn blame(&self, standing: &Standing) {
        if standing.checking {
            for run in &standing.devices {
                let scheduler = &self.adapters.scheduler;
                // The first of many messages says it for all.
                if scheduler.distrust(*run, "it gave a wrong result; the processor's is right") {
                    let name = scheduler.name_of(run.device).unwrap_or_default();
                    crate::alarm!("device {name}: a message that it could not open is good; the device is out of use");
                }
            }
        }
    }

    fn tell(&mut self, standing: &Standing, outcome: Outcome) {
        self.meter.request(standing.spent);
        let cost = Cost { effort: standing.tally.effort(), wait: standing.wait };
        self.outcomes.push(Finished { asker: standing.asker, outcome, cost });
        self.done.push((standing.who.number(), standing.keys));
    }

    /// Says what is finished to those who asked, and that their tasks are not under way any more.
    pub(super) fn tell_all(&mut self) {
        self.post();
        self.adapters.done(&mut self.done);
    }

    /// Sends what is finished to those who asked, a notice each and one ring a dispatcher.
    fn post(&mut self) {
        for (index, mailbox) in self.mailboxes.iter().enumerate() {
            let mine = |finished: &Finished| finished.asker.dispatcher == index;
            if !self.outcomes.iter().any(mine) {
                continue;
            }
            let (mine, others) = std::mem::take(&mut self.outcomes).into_iter().partition(mine);
            self.outcomes = others;
            mailbox.post_all(mine.into_iter().map(|finished: Finished| Notice::Finished(Box::new(finished))));
        }
        self.outcomes.clear();
    }
}

/// How long the next signature of a kind may wait for more messages after this one. The processor's other work brings
/// those messages, and signing two halves of a batch takes it twice as long as signing the whole. It waits four times
/// as long as one signature takes: so signing takes a fifth of one core at most while the others are busy. Any other
/// device is free now, so nothing waits for it.
fn hold_after(answer: &Answer) -> Duration {
    if answer.by != Run::CPU {
        return Duration::ZERO;
    }
    Duration::from_nanos(answer.service_ns).saturating_mul(HOLD_SIGNATURES).min(HOLD_MAX)
}

/// Whose a task's processor time is.
fn part(opens: bool) -> Role {
    if opens { Role::Opening } else { Role::Sealing }
}

/// Where a task stands.
enum Stage {
    Seal(Result<Step<Sealed, SealError>, SealError>),
    Open(Result<Step<Verified<Opened>, OpenError>, OpenError>, Again<Verified<Opened>, OpenError>),
    Check(Result<Step<(), OpenError>, OpenError>, Again<(), OpenError>),
}

/// A task, but for its progress.
struct Standing {
    asker: Asker,
    who: bulla_device::Asker,
    deadline: Instant,
    devices: Vec<Run>,
    checking: bool,
    looked_again: bool,
    spent: u64,
    tally: Tally,
    keys: KeyWork,
    wait: DeviceWait,
    held: Option<Held>,
}

impl Task {
    /// The task, and its progress apart.
    fn stand(self) -> (Standing, Progress) {
        let Self {
            asker,
            who,
            deadline,
            progress,
            devices,
            checking,
            spent,
            looked_again,
            tally,
            keys,
            wait,
            held,
            ..
        } = self;
        (Standing { asker, who, deadline, devices, checking, looked_again, spent, tally, keys, wait, held }, progress)
    }

    /// Its answer is there.
    fn waited(&mut self, now: Instant) {
        let waited = now.saturating_duration_since(self.placed_at).as_nanos();
        self.wait.note(u64::try_from(waited).unwrap_or(u64::MAX));
    }
}

impl Standing {
    fn task(self, progress: Progress) -> Task {
        let Self { asker, who, deadline, devices, checking, looked_again, spent, tally, keys, wait, held } = self;
        Task {
            asker,
            who,
            deadline,
            progress,
            devices,
            checking,
            unproved: false,
            spent,
            shared: None,
            looked_again,
            tally,
            keys,
            is_private: false,
            placed_at: deadline,
            wait,
            held,
        }
    }

    /// Whether a verdict against the message came from a device that may be wrong.
    fn is_in_doubt(&self, error: &OpenError) -> bool {
        !self.checking && !self.devices.is_empty() && error.may_be_the_device()
    }

    fn once_more(self) -> Self {
        Self { checking: true, ..self }
    }
}
