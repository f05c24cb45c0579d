//! The log as its owner sees it: nothing here waits for the network but what is for a start or an end.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use bulla_queue::Log;
use bulla_queue::log::{Batch, Claim, Epoch, Event, LogError, LogLimits, Position, Read, ReadDone, Replayed, Survives};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::append::Appender;
use crate::asker::{Asker, Question, carry};
use crate::control::{Answer, Command, Control, Reader, count_on, release};
use crate::engine::{Engine, Pause, Refusal, StreamInfo};
use crate::monitor::survives;
use crate::options::{
    CLAIM_RESERVE_BYTES, CONNECT_WITHIN, Durability, ENGINE_WITHIN, Options, READS_IN_FLIGHT_MAX, SMALL_BATCH_FACTOR,
    WHOLE_BYTES_MAX,
};
use crate::shared::{MESSAGE_OVERHEAD_BYTES, Shared, Told, Trouble, hold, uptime};

/// Batches under way at once: the fence allows one.
const BATCHES_IN_FLIGHT_MAX: usize = 1;
/// Events that wait to be polled: of one batch there is one.
const TOLD_MAX: usize = 4;
/// Batches found at a replay that wait to be handed on.
const FOUND_MAX: usize = 64;

/// A log in a stream of NATS JetStream.
///
/// A thread of its own, `shared-GROUP`, has the connection; two bounded channels lead there and two back.
pub struct JetStreamLog {
    shared: Arc<Shared>,
    commands: Option<mpsc::Sender<Command>>,
    batches: Option<mpsc::Sender<Batch>>,
    told: mpsc::Receiver<Told>,
    reads: Option<mpsc::Sender<Read>>,
    done: mpsc::Receiver<ReadDone>,
    reads_in_flight: usize,
    state: State,
    survives: Survives,
    asker: Asker,
    /// Bytes of large batches that room is kept for.
    reserved: u64,
    thread: Option<JoinHandle<()>>,
}

/// Whether batches are taken.
#[derive(Debug)]
enum State {
    Unclaimed,
    Owner { epoch: Epoch, in_flight: usize },
    Deposed { by: Epoch },
    Failed { reason: String },
}

/// What the thread needs besides the connection.
struct Ends {
    commands: mpsc::Receiver<Command>,
    batches: mpsc::Receiver<Batch>,
    told: mpsc::Sender<Told>,
    reads: mpsc::Receiver<Read>,
    done: mpsc::Sender<ReadDone>,
}

impl JetStreamLog {
    /// Connects, makes the group's stream if there is none, and looks whether it is as a log needs it.
    ///
    /// Waits for all of that; [`Log::claim`] comes afterwards, or [`Log::replay`] for who follows another owner.
    ///
    /// # Errors
    /// [`LogError::Unavailable`]: no server, a certificate that one side does not trust, a stream of another kind, or
    /// durability that is required and not known.
    pub fn open(options: Options) -> Result<Self, LogError> {
        if let Some(fault) = options.fault() {
            return Err(invalid(fault));
        }
        let shared = Arc::new(Shared::new());
        let (commands, commands_end) = mpsc::channel(1);
        let (batches, batches_end) = mpsc::channel(BATCHES_IN_FLIGHT_MAX);
        let (told_end, told) = mpsc::channel(TOLD_MAX);
        let (reads, reads_end) = mpsc::channel(READS_IN_FLIGHT_MAX);
        let (done_end, done) = mpsc::channel(READS_IN_FLIGHT_MAX);
        let ends =
            Ends { commands: commands_end, batches: batches_end, told: told_end, reads: reads_end, done: done_end };
        let (asker, questions) = Asker::new();
        let (opened_end, mut opened) = mpsc::channel(1);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(LogError::Unavailable)?;
        let thread = std::thread::Builder::new().name(format!("shared-{}", options.group));
        let known = shared.clone();
        let thread = thread.spawn(move || {
            (options.thread_begins)();
            serve(&runtime, options, &known, ends, questions, &opened_end);
            // A name that is being looked up is not waited for: who drops the log may hold what others need.
            runtime.shutdown_background();
        });
        let thread = thread.map_err(LogError::Unavailable)?;
        let survives = match opened.blocking_recv() {
            Some(Ok(survives)) => survives,
            Some(Err(error)) => {
                // The thread has said why, and ends.
                let _ = thread.join();
                return Err(error);
            }
            None => return Err(gone()),
        };
        Ok(JetStreamLog {
            shared,
            commands: Some(commands),
            batches: Some(batches),
            told,
            reads: Some(reads),
            done,
            reads_in_flight: 0,
            state: State::Unclaimed,
            survives,
            asker,
            reserved: 0,
            thread: Some(thread),
        })
    }

    /// Bytes of the stream, as they are counted here, and how many it may have.
    #[must_use]
    pub fn stream_bytes(&self) -> (u64, u64) {
        self.shared.bytes()
    }

    /// Asks the owner, as long as this log is open.
    #[must_use]
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    fn command(
        &self,
        command: impl FnOnce(mpsc::Sender<Answer>) -> Command,
    ) -> Result<mpsc::Receiver<Answer>, LogError> {
        let (to, answers) = mpsc::channel(FOUND_MAX);
        let sent = self.commands.as_ref().map(|commands| commands.blocking_send(command(to)));
        match sent {
            Some(Ok(())) => Ok(answers),
            Some(Err(_)) | None => Err(gone()),
        }
    }

    fn hear(&mut self, told: Told, events: &mut Vec<Event>, spare: &mut Vec<Batch>) {
        match told {
            Told::Synced(end, batch) => {
                if let State::Owner { in_flight, .. } = &mut self.state {
                    *in_flight = 0;
                }
                events.push(Event::Synced(end));
                spare.push(batch);
            }
            // It was told of a claim before its own last one.
            Told::Deposed(by) if matches!(self.state, State::Owner { epoch, .. } if by < epoch) => {}
            Told::Deposed(by) => {
                self.state = State::Deposed { by };
                events.push(Event::Deposed { by });
            }
            Told::Failed(reason) => self.state = State::Failed { reason },
        }
    }

    fn is_large(bytes: u64) -> bool {
        bytes > WHOLE_BYTES_MAX as u64
    }

    /// What a large batch takes in the stream, and what is in no message of a stream for longer than that.
    fn large_cost(bytes: u64) -> u64 {
        let parts = bytes.div_ceil(crate::options::PART_BYTES as u64) + 1;
        bytes.saturating_add(parts.saturating_mul(2 * MESSAGE_OVERHEAD_BYTES))
    }
}

impl Log for JetStreamLog {
    fn claim(&mut self, _now: Instant, how: Claim) -> Result<(Epoch, Position), LogError> {
        let mut answers = self.command(|to| Command::Claim(how, to))?;
        match answers.blocking_recv() {
            Some(Answer::Claimed(claimed)) => {
                let claimed = claimed?;
                self.state = State::Owner { epoch: claimed.0, in_flight: 0 };
                self.reserved = 0;
                Ok(claimed)
            }
            _ => Err(gone()),
        }
    }

    fn start(&self) -> Position {
        Position(hold(&self.shared.table).start())
    }

    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        let mut answers = self.command(|to| Command::Replay(from, to))?;
        loop {
            match answers.blocking_recv() {
                Some(Answer::Found(found)) => each(Replayed {
                    at: Position(found.at),
                    head: &found.head,
                    bodies_at: Position(found.bodies_at),
                    bodies_bytes: found.bodies_bytes,
                }),
                Some(Answer::Stopped(stopped)) => return stopped,
                _ => return Err(gone()),
            }
        }
    }

    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)> {
        let in_flight = match &mut self.state {
            State::Owner { in_flight, .. } => in_flight,
            State::Unclaimed => return Err((batch, LogError::Owned { epoch: None })),
            State::Deposed { by } => return Err((batch, LogError::Owned { epoch: Some(*by) })),
            State::Failed { reason } => {
                let reason = reason.clone();
                return Err((batch, LogError::Failed { reason }));
            }
        };
        if *in_flight >= BATCHES_IN_FLIGHT_MAX {
            return Err((batch, LogError::Busy));
        }
        let bytes = batch.bytes();
        self.shared.busy.send_replace(true);
        match self.batches.as_ref().map(|batches| batches.try_send(batch)) {
            Some(Ok(())) => {
                *in_flight += 1;
                if Self::is_large(bytes) {
                    self.reserved = self.reserved.saturating_sub(Self::large_cost(bytes));
                }
                Ok(())
            }
            Some(Err(TrySendError::Full(batch))) => Err((batch, LogError::Busy)),
            Some(Err(TrySendError::Closed(batch))) => Err((batch, gone())),
            None => Err((Batch::default(), gone())),
        }
    }

    fn poll(&mut self, _now: Instant, events: &mut Vec<Event>, spare: &mut Vec<Batch>) -> Result<(), LogError> {
        while let Ok(told) = self.told.try_recv() {
            self.hear(told, events, spare);
        }
        if let State::Failed { reason } = &self.state {
            return Err(LogError::Failed { reason: reason.clone() });
        }
        match &*hold(&self.shared.trouble) {
            None => Ok(()),
            Some(Trouble::Full) => Err(LogError::Full),
            Some(Trouble::Unavailable(reason)) => Err(LogError::Unavailable(io::Error::other(reason.clone()))),
        }
    }

    fn settle(&mut self) {
        if let Ok(mut answers) = self.command(Command::Settle) {
            // It is over when the answer comes or the thread is gone.
            let _ = answers.blocking_recv();
        }
    }

    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        if self.reads_in_flight >= READS_IN_FLIGHT_MAX {
            return Err(LogError::Busy);
        }
        match self.reads.as_ref().map(|reads| reads.try_send(read)) {
            Some(Ok(())) => {
                self.reads_in_flight += 1;
                Ok(None)
            }
            Some(Err(TrySendError::Full(_))) => Err(LogError::Busy),
            Some(Err(TrySendError::Closed(_))) | None => Err(gone()),
        }
    }

    fn poll_reads(&mut self, _now: Instant, done: &mut Vec<ReadDone>) {
        while let Ok(one) = self.done.try_recv() {
            self.reads_in_flight = self.reads_in_flight.saturating_sub(1);
            done.push(one);
        }
    }

    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        let mut answers = self.command(|to| Command::Read(Read { number: 0, at, bytes }, to))?;
        match answers.blocking_recv() {
            Some(Answer::Read(read)) => {
                *into = read?;
                Ok(())
            }
            _ => Err(gone()),
        }
    }

    fn release(&mut self, before: Position) -> Result<(), LogError> {
        let mut release = hold(&self.shared.release);
        *release = Some(release.map_or(before, |earlier| earlier.max(before)));
        drop(release);
        self.shared.release_changed.notify_one();
        Ok(())
    }

    /// An eighth of the bytes that are free: if all of it came in the smallest batches, it would take them all.
    fn space(&self) -> u64 {
        self.shared.space().saturating_sub(self.reserved)
    }

    fn reserve(&mut self, batch_bytes: u64, besides: u64) -> Result<(), LogError> {
        if !Self::is_large(batch_bytes) {
            return Err(LogError::Full); // `space` tells all there is
        }
        let (bytes, bytes_max) = self.shared.bytes();
        let cost = Self::large_cost(batch_bytes);
        let others = besides.saturating_mul(SMALL_BATCH_FACTOR).saturating_add(self.reserved);
        let needed = cost.saturating_add(others).saturating_add(CLAIM_RESERVE_BYTES);
        if bytes.saturating_add(needed) > bytes_max {
            return Err(LogError::Full);
        }
        self.reserved += cost;
        Ok(())
    }

    fn limits(&self) -> LogLimits {
        LogLimits {
            batches_in_flight_max: BATCHES_IN_FLIGHT_MAX,
            batch_bytes_max: WHOLE_BYTES_MAX as u64,
            survives: self.survives,
        }
    }

    fn owner(&self) -> Option<(String, Epoch)> {
        let table = hold(&self.shared.table);
        (table.epoch > 0).then(|| (table.owner.clone(), Epoch(table.epoch)))
    }

    fn is_surely_owned(&self) -> bool {
        let is_owner = matches!(self.state, State::Owner { .. });
        is_owner && hold(&self.shared.ownership).is_some_and(|ownership| ownership.is_sure(uptime()))
    }
}

impl Drop for JetStreamLog {
    fn drop(&mut self) {
        // The thread ends when its commands do, in the middle of whatever it does.
        (self.commands, self.batches, self.reads) = (None, None, None);
        self.told.close();
        self.done.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on stderr; there is nothing left to save here.
            let _ = thread.join();
        }
    }
}

fn gone() -> LogError {
    LogError::Failed { reason: "the log's thread has ended".to_owned() }
}

fn invalid(what: String) -> LogError {
    LogError::Unavailable(io::Error::new(io::ErrorKind::InvalidInput, what))
}

// ---- the thread

fn serve(
    runtime: &Runtime,
    options: Options,
    shared: &Arc<Shared>,
    ends: Ends,
    questions: mpsc::Receiver<Question>,
    opened: &mpsc::Sender<Result<Survives, LogError>>,
) {
    runtime.block_on(async {
        let (engine, info) = match connect(&options).await {
            Ok(connected) => connected,
            Err(error) => {
                let _ = opened.send(Err(error)).await;
                return;
            }
        };
        shared.counted(info.bytes, info.bytes_max);
        let survives = survives(&options.monitors, &info).await;
        if options.durability == Durability::Required && !matches!(survives, Survives::Power | Survives::MinorityPower)
        {
            let what = match survives {
                Survives::Process => "a server of the stream does not sync each write: set sync_interval: always",
                _ => "whether the stream's servers sync each write is not known: name their monitoring addresses",
            };
            let _ = opened.send(Err(invalid(what.to_owned()))).await;
            return;
        }
        let reader = Reader::new(engine.clone(), shared.clone());
        let control = Control::new(engine.clone(), shared.clone(), reader, &options);
        let (told, waker, retry_within) = (ends.told, options.waker.clone(), options.retry_within);
        let appender = Appender { engine: engine.clone(), shared: shared.clone(), told, waker, retry_within };
        let reader = Reader::new(engine.clone(), shared.clone());
        tokio::spawn(appender.run(ends.batches));
        tokio::spawn(reader.run(ends.reads, ends.done, options.waker.clone()));
        tokio::spawn(release(engine.clone(), shared.clone()));
        tokio::spawn(count_on(engine.clone(), shared.clone()));
        tokio::spawn(carry(engine, questions));
        if opened.send(Ok(survives)).await.is_ok() {
            control.run(ends.commands).await;
        }
        // The runtime goes, and with it everything else.
    });
}

async fn connect(options: &Options) -> Result<(Engine, StreamInfo), LogError> {
    let engine = Engine::connect(options).await.map_err(LogError::Unavailable)?;
    let deadline = tokio::time::Instant::now() + ENGINE_WITHIN.max(CONNECT_WITHIN);
    let mut pause = Pause::new();
    loop {
        let refusal = match engine.info().await {
            Ok(info) => match check(options, &info) {
                Some(fault) => return Err(invalid(fault)),
                None => return Ok((engine, info)),
            },
            Err(Refusal::Missing) => match engine.make_stream(options).await {
                Ok(()) => continue,
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        if matches!(refusal, Refusal::Impossible(_)) || tokio::time::Instant::now() >= deadline {
            return Err(LogError::Unavailable(refusal.into_io()));
        }
        pause.wait().await;
    }
}

/// What is wrong with a stream that is there.
fn check(options: &Options, info: &StreamInfo) -> Option<String> {
    let fewer = info.replicas < options.replicas;
    let text = format!("stream {} has {} copies, fewer than {}", options.group, info.replicas, options.replicas);
    info.fault.clone().or(fewer.then_some(text))
}
