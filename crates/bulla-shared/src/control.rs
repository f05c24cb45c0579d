//! Claims, replays, reads and releases: what the log's thread does besides writing.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_nats::Subscriber;
use bulla_queue::log::{Claim, Epoch, LogError, Position, Read, ReadDone};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::engine::{Engine, Expect, Fetched, Pause, Refusal, Stored};
use crate::frame::{FRAME_HEADER_BYTES, Frame, FrameError, Kind, Part};
use crate::options::{
    Answers, COUNT_EVERY, ENGINE_WITHIN, OWNER_ABSENT_FOR, OWNER_ANSWERS_WITHIN, OWNER_ASKED_EVERY,
    OWNER_FINDS_ENGINE_WITHIN, Options, PART_BYTES, READ_CACHE_BYTES_MAX, SENDS_AFTER, SETTLE_WITHIN,
};
use crate::process::process_answers;
use crate::shared::{Ownership, Shared, damaged, hold, uptime};
use crate::table::{Entry, Misfit, Table};

/// What the owner's thread waits for.
#[derive(Debug)]
pub(crate) enum Command {
    Claim(Claim, mpsc::Sender<Answer>),
    Replay(Option<Position>, mpsc::Sender<Answer>),
    Read(Read, mpsc::Sender<Answer>),
    Settle(mpsc::Sender<Answer>),
}

/// What comes of a [`Command`].
#[derive(Debug)]
pub(crate) enum Answer {
    Claimed(Result<(Epoch, Position), LogError>),
    Found(Head),
    Stopped(Result<Position, LogError>),
    Read(Result<Vec<u8>, LogError>),
    Settled,
}

/// A batch found: its record headers, and where its bodies lie.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) at: u64,
    /// Without the frame's header.
    pub(crate) head: Vec<u8>,
    pub(crate) bodies_at: u64,
    pub(crate) bodies_bytes: u64,
}

/// An owner's answer to who asks whether it is there: its epoch and its instance.
const PRESENCE_BYTES: usize = 16;

/// Where the owner's process can be asked.
pub(crate) type OwnerAt = Arc<dyn Fn() -> Option<String> + Send + Sync>;

pub(crate) struct Control {
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reader: Reader,
    pub(crate) owner: String,
    pub(crate) instance: u64,
    owner_at: OwnerAt,
    answers: Arc<Answers>,
    /// The epoch of an owner that does not answer over the engine, and since when.
    unheard: Option<(u64, Instant)>,
    /// Batches that were read and not handed on, from the oldest on.
    kept: VecDeque<Head>,
}

impl Control {
    pub(crate) fn new(engine: Engine, shared: Arc<Shared>, reader: Reader, options: &Options) -> Self {
        let (owner, instance, owner_at) = (options.owner.clone(), options.instance, options.owner_at.clone());
        let (answers, kept) = (options.answers.clone(), VecDeque::new());
        Control { engine, shared, reader, owner, instance, owner_at, answers, unheard: None, kept }
    }

    /// Carries out commands until their sender is gone.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.recv().await {
            // Who asked may be gone.
            match command {
                Command::Claim(how, to) => {
                    self.shared.claims.store(true, Ordering::Relaxed); // both are tasks of one thread
                    let claimed = self.claim(how).await;
                    self.shared.claims.store(false, Ordering::Relaxed);
                    let _ = to.send(Answer::Claimed(claimed)).await;
                }
                Command::Replay(from, to) => {
                    let stopped = self.replay(from, &to).await;
                    let _ = to.send(Answer::Stopped(stopped)).await;
                }
                Command::Read(read, to) => {
                    let read = self.reader.read(&read).await;
                    let _ = to.send(Answer::Read(read)).await;
                }
                Command::Settle(to) => {
                    let mut busy = self.shared.busy.subscribe();
                    let _ = timeout(SETTLE_WITHIN, busy.wait_for(|busy| !busy)).await;
                    let _ = to.send(Answer::Settled).await;
                }
            }
        }
    }

    // ---- claims

    async fn claim(&mut self, how: Claim) -> Result<(Epoch, Position), LogError> {
        let claimed = self.claim_until(how, Instant::now() + ENGINE_WITHIN).await;
        match &claimed {
            // It may have been deposed of an earlier claim meanwhile.
            Ok(_) => self.listen().await?,
            Err(_) if hold(&self.shared.ownership).is_none() => self.shared.listen(None),
            Err(_) => {}
        }
        claimed
    }

    async fn claim_until(&mut self, how: Claim, deadline: Instant) -> Result<(Epoch, Position), LogError> {
        // What is damaged is not taken from an owner that may still serve from memory.
        self.read_up(0, deadline).await?;
        let mut pause = Pause::new();
        loop {
            match self.try_claim(how, deadline).await? {
                Some(claimed) => return Ok(claimed),
                None if Instant::now() >= deadline => return Err(late("the claim was overtaken again and again")),
                None => pause.wait().await,
            }
        }
    }

    /// Writes one epoch record. `None`: the log went on meanwhile.
    async fn try_claim(&mut self, how: Claim, deadline: Instant) -> Result<Option<(Epoch, Position)>, LogError> {
        let last = self.until(deadline, async |engine| engine.last_of(engine.epoch()).await).await?;
        let last_epoch = match &last {
            Some(record) => self.epoch_of(record)?,
            None => 0,
        };
        let known = hold(&self.shared.table).epoch;
        let latest = last_epoch.max(known);
        let asks = match how {
            Claim::IfFree => true,
            Claim::After(Epoch(gone)) => gone != latest,
            Claim::Force => false,
        };
        if asks && self.is_present(latest).await {
            return Err(LogError::Owned { epoch: Some(Epoch(latest)) });
        }
        self.is_read(deadline).await?;
        let epoch = latest.saturating_add(1);
        let info = self.until(deadline, async |engine| engine.info().await).await?;
        self.shared.counted(info.bytes, info.bytes_max);
        let at = hold(&self.shared.table).end;
        let payload_crc = crc32c::crc32c(self.owner.as_bytes());
        let body_bytes = self.owner.len() as u32; // at most OWNER_BYTES_MAX
        let frame = Frame { kind: Kind::Epoch, epoch, at, head_bytes: 0, body_bytes, payload_crc };
        let message: Bytes = [&frame.encode(&self.engine.group)[..], self.owner.as_bytes()].concat().into();
        // Two who claim the same epoch are two: with one identity the second would be told that it is in.
        let id = format!("epoch.{epoch}.{:016x}", self.instance);
        // Not the stream's last sequence: an owner that goes on writing would be ahead of every claim.
        let expect = Expect::Epoch(last.as_ref().map_or(0, |record| record.sequence));
        let mut pause = Pause::new();
        // The engine has this before the claim: an owner listens from its first moment on.
        self.listen().await?;
        let began = uptime();
        let mut asked = Instant::now();
        let fence = loop {
            match self.engine.publish(self.engine.epoch(), &id, expect, message.clone()).await {
                Ok(sequence) => break sequence,
                Err(Refusal::WrongLast) => return Ok(None),
                Err(Refusal::Full) => return Err(LogError::Full),
                Err(refusal) if Instant::now() >= deadline => return Err(LogError::Unavailable(refusal.into_io())),
                Err(_) => pause.wait().await,
            }
            // It may have been this one that did not reach the engine, and the owner is well.
            if asks && asked.elapsed() >= OWNER_ANSWERS_WITHIN {
                if self.is_present(latest).await {
                    return Err(LogError::Owned { epoch: Some(Epoch(latest)) });
                }
                asked = Instant::now();
            }
        };
        // A server that has the record has all that came before it: the end is certain when that was read.
        self.read_up(fence, Instant::now() + ENGINE_WITHIN).await?;
        let table = hold(&self.shared.table);
        if table.epoch != epoch || table.epoch_sequence != fence {
            // Another claim was not seen before, which has this number, too; or one came after it already.
            return Ok(None);
        }
        let end = table.end;
        drop(table);
        // The first owner follows no one, and another one has said that it has sent its last.
        let follows_none = last.is_none() || how == Claim::After(Epoch(latest));
        let sends_from = if follows_none { began } else { uptime() + SENDS_AFTER };
        *hold(&self.shared.ownership) = Some(Ownership { epoch, fence, last: fence, sends_from, shown: began });
        Ok(Some((Epoch(epoch), Position(end))))
    }

    /// Reads on until the message `until` was seen, and keeps what it finds for a replay.
    async fn read_up(&mut self, until: u64, deadline: Instant) -> Result<(), LogError> {
        loop {
            match self.walk(until, deadline, &mut Keep::All).await {
                Err(Walk::Gap(at)) if Instant::now() < deadline && self.was_released(at).await? => self.forget(),
                walked => return walked.map_err(|walk| walk.into_error(&hold(&self.shared.table))),
            }
        }
    }

    /// Whether the log has the last batch that was read here. Servers that were restored from a backup may not, and a
    /// claim says how far its claimer has read: it would leave a hole.
    async fn is_read(&self, deadline: Instant) -> Result<(), LogError> {
        let Some(read) = hold(&self.shared.table).entries.back().map(|entry| entry.sequence) else { return Ok(()) };
        let last = self.until(deadline, async |engine| engine.last_of(engine.log()).await).await?;
        let last = last.map_or(0, |last| last.sequence);
        if last < read {
            let what = format!("the log has gone back: what was read at {read} is not there, and {last} is the last");
            return Err(LogError::Unavailable(io::Error::other(what)));
        }
        Ok(())
    }

    fn epoch_of(&self, record: &Stored) -> Result<u64, LogError> {
        let at = hold(&self.shared.table).end;
        let decoded = Frame::decode(&record.payload, &self.engine.group);
        decoded.map(|(frame, _)| frame.epoch).map_err(|error| misfit(at, record.sequence, Misfit::Frame(error)))
    }

    /// Answers who asks for the owner, from now on.
    async fn listen(&self) -> Result<(), LogError> {
        if self.shared.listens() {
            return Ok(());
        }
        let asked = self.engine.client.subscribe(self.engine.ask()).await;
        let asked = asked.map_err(|error| LogError::Unavailable(io::Error::other(error)))?;
        let presence = tokio::spawn(be_present(
            asked,
            self.engine.clone(),
            self.shared.clone(),
            self.instance,
            self.answers.clone(),
        ));
        self.shared.listen(Some(presence.abort_handle()));
        Ok(())
    }

    /// Whether an owner with that epoch, or a later one, is there.
    ///
    /// One whose process answers while the engine does not find it is cut off from some of the engine's servers, or
    /// from all of them: it has time to turn to another server. Members that don't reach each other would else take the
    /// log from one another again and again.
    async fn is_present(&mut self, epoch: u64) -> bool {
        if epoch == 0 {
            return false;
        }
        let begun = Instant::now();
        let mut process = None;
        if self.is_heard(epoch, &mut process).await {
            self.unheard = None;
            return true;
        }
        let since = self.unheard.filter(|(unheard, _)| *unheard == epoch).map_or(begun, |(_, since)| since);
        self.unheard = Some((epoch, since));
        let Some(process) = process else { return false };
        since.elapsed() < OWNER_FINDS_ENGINE_WITHIN && process.await.unwrap_or(false)
    }

    /// Whether an owner with that epoch, or a later one, answers over the engine. Where it does not at once, its
    /// process is asked as well.
    async fn is_heard(&self, epoch: u64, process: &mut Option<JoinHandle<bool>>) -> bool {
        let begun = Instant::now();
        let inbox = self.engine.client.new_inbox();
        let Ok(mut answers) = self.engine.client.subscribe(inbox.clone()).await else { return false };
        // Since when the engine says of each question that there is none to answer it. Not of the one that was on its
        // way when the owner went.
        let mut absent_since = None;
        loop {
            let asked_at = Instant::now();
            let asked = self.engine.client.publish_with_reply(self.engine.ask(), inbox.clone(), Bytes::new()).await;
            if asked.is_err() {
                return false;
            }
            let next = Instant::now() + OWNER_ASKED_EVERY;
            let mut was_unheard = false;
            while let Ok(answer) = timeout_at(next, answers.next()).await {
                match answer {
                    None => return false,
                    Some(message) if message.status == Some(async_nats::StatusCode::NO_RESPONDERS) => {
                        was_unheard = true
                    }
                    Some(message) if self.is_of_owner(&message.payload, epoch) => return true,
                    Some(_) => {}
                }
            }
            if process.is_none() {
                *process = (self.owner_at)().map(|address| tokio::spawn(process_answers(address)));
            }
            absent_since = absent_since.or(Some(asked_at)).filter(|_| was_unheard);
            let is_absent = absent_since.is_some_and(|since: Instant| since.elapsed() >= OWNER_ABSENT_FOR);
            if is_absent || begun.elapsed() >= OWNER_ANSWERS_WITHIN {
                return false;
            }
        }
    }

    /// Whether an answer is that of another owner with that epoch, or a later one.
    fn is_of_owner(&self, answer: &[u8], epoch: u64) -> bool {
        let Some(presence) = answer.first_chunk::<PRESENCE_BYTES>() else { return false };
        let number = |at: usize| presence[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        number(0) >= epoch && number(8) != self.instance
    }

    // ---- replay

    async fn replay(&mut self, from: Option<Position>, to: &mpsc::Sender<Answer>) -> Result<Position, LogError> {
        let (start, end) = {
            let table = hold(&self.shared.table);
            (table.start(), table.end)
        };
        if let Some(from) = from
            && (from.0 < start || from.0 > end)
        {
            return Err(LogError::Released { from });
        }
        let from = from.map(|from| from.0);
        let kept_at = self.kept.front().map_or(end, |head| head.at);
        if from.unwrap_or(start) < kept_at {
            // Handed on before: it is read again.
            self.forget();
        }
        let last = hold(&self.shared.ownership).map_or(0, |ownership| ownership.last);
        let mut keep = Keep::Hand { from, to };
        for head in std::mem::take(&mut self.kept) {
            keep.head(head, &mut self.kept).await;
        }
        let walked = self.walk(last, Instant::now() + ENGINE_WITHIN, &mut keep).await;
        match walked {
            Ok(()) => Ok(Position(hold(&self.shared.table).end)),
            Err(Walk::Gap(at)) if self.was_released(at).await? => {
                self.forget();
                Err(LogError::Released { from: Position(from.unwrap_or(start)) })
            }
            Err(walk) => Err(walk.into_error(&hold(&self.shared.table))),
        }
    }

    /// All is to be read again.
    fn forget(&mut self) {
        self.kept.clear();
        *hold(&self.shared.table) = Table::default();
    }

    /// Whether there is nothing before a position any more because an owner let it go, and not because it is missing.
    async fn was_released(&self, at: u64) -> Result<bool, LogError> {
        let deadline = Instant::now() + ENGINE_WITHIN;
        let first = self.until(deadline, async |engine| engine.first_of(engine.log()).await).await?;
        let decoded = first.map(|first| Frame::decode(&first.payload, &self.engine.group).map(|(frame, _)| frame.at));
        Ok(decoded.and_then(Result::ok).is_some_and(|first| first >= at))
    }

    /// Reads on until the message `until` was seen, and all that follows it there.
    async fn walk(&mut self, until: u64, deadline: Instant, keep: &mut Keep<'_>) -> Result<(), Walk> {
        let mut pause = Pause::new();
        loop {
            let from = hold(&self.shared.table).next_sequence;
            let problem = match self.walk_once(from, keep).await {
                Ok(0) if until == 0 || hold(&self.shared.table).next_sequence > until => return Ok(()),
                Ok(0) => "a server does not have all messages yet".to_owned(),
                Ok(_) => {
                    pause = Pause::new();
                    continue;
                }
                Err(Walk::Refused(refusal)) => refusal.text(),
                Err(other) => return Err(other),
            };
            if hold(&self.shared.table).next_sequence > from {
                pause = Pause::new();
            } else if Instant::now() >= deadline {
                return Err(Walk::Refused(Refusal::Unanswered(problem)));
            }
            pause.wait().await;
        }
    }

    /// One request's messages. Returns how many more there are.
    async fn walk_once(&mut self, from: u64, keep: &mut Keep<'_>) -> Result<u64, Walk> {
        let mut fetch = self.engine.fetch(from).await.map_err(Walk::Refused)?;
        loop {
            match fetch.next().await.map_err(Walk::Refused)? {
                Fetched::End { pending } => return Ok(pending),
                Fetched::Message(message) => self.take(&message, keep).await?,
            }
        }
    }

    async fn take(&mut self, message: &Stored, keep: &mut Keep<'_>) -> Result<(), Walk> {
        let (taken, end) = {
            let mut table = hold(&self.shared.table);
            if message.sequence < table.next_sequence {
                return Ok(());
            }
            let end = table.end;
            let is_epoch = message.subject == self.engine.epoch();
            (table.take(message.sequence, is_epoch, &message.payload, &self.engine.group), end)
        };
        let entry = match taken {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(()),
            Err(Misfit::Gap(at)) => return Err(Walk::Gap(at)),
            Err(other) => return Err(Walk::Bad(misfit(end, message.sequence, other))),
        };
        let head_bytes = entry.head_bytes as usize;
        let head = if entry.parts.is_empty() {
            message.payload.get(FRAME_HEADER_BYTES..head_bytes).unwrap_or_default().to_vec()
        } else {
            self.reader.bytes(&entry, FRAME_HEADER_BYTES, head_bytes).await.map_err(Walk::Bad)?
        };
        let bodies_at = entry.at + u64::from(entry.head_bytes);
        let head = Head { at: entry.at, head, bodies_at, bodies_bytes: u64::from(entry.body_bytes) };
        keep.head(head, &mut self.kept).await;
        Ok(())
    }

    /// Asks until there is an answer.
    async fn until<T>(
        &self,
        deadline: Instant,
        ask: impl AsyncFn(&Engine) -> Result<T, Refusal>,
    ) -> Result<T, LogError> {
        let mut pause = Pause::new();
        loop {
            match ask(&self.engine).await {
                Ok(answer) => return Ok(answer),
                Err(refusal) if Instant::now() >= deadline => return Err(LogError::Unavailable(refusal.into_io())),
                Err(_) => pause.wait().await,
            }
        }
    }
}

/// What becomes of batches that are read.
enum Keep<'a> {
    /// They wait for a replay.
    All,
    /// They are handed on, those before a position excepted.
    Hand { from: Option<u64>, to: &'a mpsc::Sender<Answer> },
}

impl Keep<'_> {
    async fn head(&mut self, head: Head, kept: &mut VecDeque<Head>) {
        match self {
            Keep::All => kept.push_back(head),
            Keep::Hand { from, .. } if from.is_some_and(|from| head.at < from) => {}
            Keep::Hand { to, .. } => {
                // Who asked may be gone.
                let _ = to.send(Answer::Found(head)).await;
            }
        }
    }
}

/// Why reading on ended early.
enum Walk {
    /// Batches before this position are not there.
    Gap(u64),
    Bad(LogError),
    Refused(Refusal),
}

impl Walk {
    fn into_error(self, table: &Table) -> LogError {
        match self {
            Walk::Gap(at) => {
                let reason = format!("the next batch begins at {at:#x}: those between are missing");
                LogError::Damaged { at: Position(table.end), reason }
            }
            Walk::Bad(error) => error,
            Walk::Refused(refusal) => LogError::Unavailable(refusal.into_io()),
        }
    }
}

fn misfit(at: u64, sequence: u64, misfit: Misfit) -> LogError {
    match misfit {
        Misfit::Frame(FrameError::Newer { version }) => LogError::Newer { version },
        Misfit::Frame(error) => damaged(at, sequence, &error),
        Misfit::Subject => damaged(at, sequence, &"it has another subject than its kind has"),
        Misfit::Gap(next) => damaged(at, sequence, &format!("it begins at {next:#x}")),
    }
}

fn late(what: &str) -> LogError {
    LogError::Unavailable(io::Error::new(io::ErrorKind::TimedOut, what.to_owned()))
}

// ---- reads

/// Reads parts of batches back, and keeps the messages that it read last.
pub(crate) struct Reader {
    engine: Engine,
    shared: Arc<Shared>,
    cache: VecDeque<Stored>,
    cached_bytes: usize,
}

impl Reader {
    pub(crate) fn new(engine: Engine, shared: Arc<Shared>) -> Self {
        Reader { engine, shared, cache: VecDeque::new(), cached_bytes: 0 }
    }

    /// Answers reads in their order until their sender is gone.
    pub(crate) async fn run(
        mut self,
        mut reads: mpsc::Receiver<Read>,
        done: mpsc::Sender<ReadDone>,
        waker: Arc<dyn Fn() + Send + Sync>,
    ) {
        while let Some(read) = reads.recv().await {
            let bytes = self.read(&read).await;
            if done.send(ReadDone { number: read.number, bytes }).await.is_err() {
                return;
            }
            waker();
        }
    }

    pub(crate) async fn read(&mut self, read: &Read) -> Result<Vec<u8>, LogError> {
        let entry = hold(&self.shared.table).find(read.at, read.bytes);
        let reason = || "no batch has this position".to_owned();
        let entry = entry.ok_or_else(|| LogError::Damaged { at: read.at, reason: reason() })?;
        let offset = usize::try_from(read.at.0 - entry.at);
        let offset = offset.map_err(|_| LogError::Damaged { at: read.at, reason: reason() })?;
        self.bytes(&entry, offset, offset + read.bytes).await
    }

    /// Bytes of a batch, counted from its beginning; those of the frame's header are no one's to read.
    async fn bytes(&mut self, entry: &Entry, from: usize, to: usize) -> Result<Vec<u8>, LogError> {
        let missing = || damaged(entry.at, entry.sequence, &"it is shorter than it was");
        if entry.parts.is_empty() {
            let message = self.message(entry, entry.sequence, None).await?;
            return message.get(from..to).map(<[u8]>::to_vec).ok_or_else(missing);
        }
        let (from, to) = (from.saturating_sub(FRAME_HEADER_BYTES), to.saturating_sub(FRAME_HEADER_BYTES));
        let mut out = Vec::with_capacity(to - from);
        let mut part_at = 0;
        for part in entry.parts.iter() {
            let part_end = part_at + part.bytes as usize;
            if part_end > from && part_at < to {
                let message = self.message(entry, part.sequence, Some(part)).await?;
                let wanted = from.saturating_sub(part_at)..to.min(part_end) - part_at;
                out.extend_from_slice(message.get(wanted).ok_or_else(missing)?);
            }
            part_at = part_end;
        }
        if out.len() == to - from { Ok(out) } else { Err(missing()) }
    }

    /// A message of the stream, checked.
    async fn message(&mut self, entry: &Entry, sequence: u64, part: Option<&Part>) -> Result<Bytes, LogError> {
        if let Some(found) = self.cache.iter().find(|found| found.sequence == sequence) {
            return Ok(found.payload.clone());
        }
        let deadline = Instant::now() + ENGINE_WITHIN;
        let mut pause = Pause::new();
        let found = loop {
            match self.engine.message(sequence).await {
                Ok(Some(found)) => break found,
                Ok(None) => return Err(damaged(entry.at, sequence, &"it is not there")),
                Err(refusal) if Instant::now() >= deadline => return Err(LogError::Unavailable(refusal.into_io())),
                Err(_) => pause.wait().await,
            }
        };
        match part {
            Some(part) if found.payload.len() != part.bytes as usize || crc32c::crc32c(&found.payload) != part.crc => {
                return Err(damaged(entry.at, sequence, &"the checksum of this part is wrong"));
            }
            Some(_) => {}
            None => {
                let decoded = Frame::decode(&found.payload, &self.engine.group);
                decoded.map_err(|error| misfit(entry.at, sequence, Misfit::Frame(error)))?;
            }
        }
        let payload = found.payload.clone();
        self.cached_bytes += payload.len();
        self.cache.push_back(found);
        while self.cached_bytes > READ_CACHE_BYTES_MAX.max(PART_BYTES)
            && let Some(oldest) = self.cache.pop_front()
        {
            self.cached_bytes -= oldest.payload.len();
        }
        Ok(payload)
    }
}

// ---- what goes on beside

/// Lets go what is not needed any more.
pub(crate) async fn release(engine: Engine, shared: Arc<Shared>) {
    loop {
        shared.release_changed.notified().await;
        let Some(before) = hold(&shared.release).take() else { continue };
        let first = hold(&shared.table).release(before);
        let epoch_sequence = hold(&shared.table).epoch_sequence;
        let Some(first) = first else { continue };
        // The epoch record is the fence, and stays; so does every record behind the oldest batch.
        let purges = [
            (engine.log(), first.sequence),
            (engine.epoch(), first.sequence.min(epoch_sequence)),
            (engine.all_parts(), first.first_sequence()),
        ];
        for (subject, below) in purges {
            let mut pause = Pause::new();
            // Sequence 1 has nothing below it, and 0 would be everything.
            while below > 1 && engine.purge(subject.clone(), below).await.is_err() {
                pause.wait().await;
            }
        }
        count(&engine, &shared).await;
    }
}

/// Asks for the stream's bytes now and then.
pub(crate) async fn count_on(engine: Engine, shared: Arc<Shared>) {
    loop {
        sleep(COUNT_EVERY).await;
        count(&engine, &shared).await;
    }
}

/// What the engine says replaces what was counted, unless a batch is under way that it may or may not have.
async fn count(engine: &Engine, shared: &Shared) {
    let before = shared.bytes();
    if let Ok(info) = engine.info().await
        && !*shared.busy.borrow()
        && shared.bytes() == before
    {
        shared.counted(info.bytes, info.bytes_max);
    }
}

/// Says that the owner is there, to who asks. Who does not own the log does not listen: so the engine says it when no
/// owner is there.
async fn be_present(mut asked: Subscriber, engine: Engine, shared: Arc<Shared>, instance: u64, answers: Arc<Answers>) {
    while let Some(message) = asked.next().await {
        let ownership = *hold(&shared.ownership);
        if let (Some(to), Some(ownership)) = (message.reply, ownership) {
            let answer = match message.payload.is_empty() {
                true => [ownership.epoch.to_le_bytes(), instance.to_le_bytes()].concat(),
                false if ownership.is_sure(uptime()) => answers(&message.payload).unwrap_or_default(),
                false => Vec::new(),
            };
            // Who gets no answer asks again.
            let _ = engine.client.publish(to, answer.into()).await;
        }
    }
}
