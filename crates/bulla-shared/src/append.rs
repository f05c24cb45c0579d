//! Batches into the stream, one at a time.
//!
//! Each append names the owner's epoch record as the last one of its subject, so that none of a deposed owner enters;
//! that allows one append under way (a second one is refused while the first is carried out).
//!
//! The epoch record is no fence against the past: servers that were restored from a backup may have the same one, and
//! less behind it. So after each request without an answer the owner looks whether the log has all that it wrote.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bulla_queue::log::{Batch, Epoch};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::engine::{Engine, Expect, Pause, Refusal, Stored};
use crate::frame::{FRAME_HEADER_BYTES, Frame, Kind, Part, encode_parts};
use crate::options::{BEATS_KEPT, BEHIND_FOR, LOOK_EVERY, PART_BYTES, PARTS_IN_FLIGHT_MAX, WHOLE_BYTES_MAX};
use crate::shared::{Ownership, Shared, Told, Trouble, hold, uptime};
use crate::table::Entry;

/// Writes batches.
pub(crate) struct Appender {
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<Shared>,
    pub(crate) told: mpsc::Sender<Told>,
    pub(crate) waker: Arc<dyn Fn() + Send + Sync>,
    pub(crate) retry_within: Duration,
}

/// What is known of looks.
#[derive(Default)]
struct Looks {
    /// When the last one began.
    last: Duration,
    beats: u32,
    /// Whether who delivers was told that it may, after a time when it might not.
    was_told: bool,
    /// The last one had no answer: the log may be another one by now.
    is_doubtful: bool,
    doubt: Doubt,
}

/// Whether the log is the one that was written to.
#[derive(Default)]
struct Doubt {
    /// Since when it lacks what was written. A leader that is cut off from the others says so for a while.
    behind_since: Option<Instant>,
}

/// Why a batch is not in the log and will not be.
enum End {
    Deposed { by: u64 },
    Failed(String),
}

impl Appender {
    /// Writes batches as they come, until their sender is gone. While none comes it looks whether it is the owner
    /// still.
    pub(crate) async fn run(self, mut batches: mpsc::Receiver<Batch>) {
        // Who took the log, for batches that are on their way while this is found out.
        let mut deposed = None;
        let mut looks = Looks::default();
        loop {
            let told = match timeout(self.next_look(&looks), batches.recv()).await {
                Ok(Some(batch)) => self.write(batch, deposed, std::mem::take(&mut looks.is_doubtful)).await,
                Ok(None) => return,
                Err(_) => match self.look(&mut looks).await {
                    Some(End::Deposed { by }) => Told::Deposed(Epoch(by)),
                    Some(End::Failed(reason)) => Told::Failed(reason),
                    None => continue,
                },
            };
            if !matches!(told, Told::Synced(..)) {
                self.shared.disown();
            }
            if let Told::Deposed(by) = &told {
                deposed = Some(*by);
            }
            *hold(&self.shared.trouble) = None;
            let is_heard = self.told.send(told).await.is_ok();
            self.shared.busy.send_replace(false);
            (self.waker)();
            if !is_heard {
                return;
            }
        }
    }

    async fn write(&self, batch: Batch, deposed: Option<Epoch>, is_doubtful: bool) -> Told {
        let ownership = *hold(&self.shared.ownership);
        let end = batch.end();
        let appended = match (&ownership, deposed) {
            (Some(ownership), _) => self.append(ownership, &batch, is_doubtful).await,
            (None, Some(by)) => Err(End::Deposed { by: by.0 }),
            (None, None) => Err(End::Failed("the log was not claimed".to_owned())),
        };
        match appended {
            Ok(entry) => {
                if let Some(ownership) = hold(&self.shared.ownership).as_mut() {
                    ownership.last = entry.sequence;
                }
                hold(&self.shared.table).append(entry);
                Told::Synced(end, batch)
            }
            Err(End::Deposed { by }) => Told::Deposed(Epoch(by)),
            Err(End::Failed(reason)) => Told::Failed(reason),
        }
    }

    /// When it looks the next time.
    fn next_look(&self, looks: &Looks) -> Duration {
        let Some(Ownership { shown, sends_from, .. }) = *hold(&self.shared.ownership) else { return LOOK_EVERY };
        let now = uptime();
        let next = looks.last.max(shown) + LOOK_EVERY;
        // From then on deliveries wait for it.
        if now < sends_from { next.min(sends_from) } else { next }.saturating_sub(now)
    }

    /// Whether another owner has the log, or it is another log. No answer leaves it open.
    async fn look(&self, looks: &mut Looks) -> Option<End> {
        let ownership = (*hold(&self.shared.ownership))?;
        let now = uptime();
        looks.last = now;
        if looks.is_doubtful {
            let is_whole = self.is_whole(&ownership, &mut looks.doubt).await;
            looks.was_told &= self.is_sure();
            match is_whole {
                Ok(true) => looks.is_doubtful = false,
                Ok(false) => return None,
                Err(reason) => return Some(End::Failed(reason)),
            }
        }
        let answered = self.engine.beat(ownership.epoch, ownership.fence, now.as_nanos()).await;
        looks.was_told &= self.is_sure();
        match answered {
            // What was put in the place of the log is shorter.
            Ok(sequence) if sequence <= ownership.last => {
                looks.is_doubtful = true;
                None
            }
            Ok(sequence) => {
                looks.beats += 1;
                if looks.beats.is_multiple_of(BEATS_KEPT) {
                    let engine = self.engine.clone();
                    // The next time takes away what this one leaves.
                    tokio::spawn(async move { _ = engine.purge(engine.all_beats(), sequence).await });
                }
                self.show(&ownership, now);
                if !looks.was_told && self.is_sure() {
                    looks.was_told = true;
                    (self.waker)();
                }
                None
            }
            Err(Refusal::WrongLast) => {
                let record = self.engine.last_of(self.engine.epoch()).await.ok()?;
                let is_same = hold(&self.shared.ownership).is_some_and(|now| now.fence == ownership.fence);
                if !is_same || self.shared.claims.load(Ordering::Relaxed) {
                    return None;
                }
                let by = record.and_then(|record| self.other_owner(&ownership, &record));
                looks.is_doubtful = by.is_none();
                by.map(|by| End::Deposed { by })
            }
            Err(_) => {
                looks.is_doubtful = true;
                None
            }
        }
    }

    /// Whether it is known that the log has what this owner has written to it.
    ///
    /// # Errors
    /// It is another one, and why that is so.
    async fn is_whole(&self, ownership: &Ownership, doubt: &mut Doubt) -> Result<bool, String> {
        let behind = async || -> Result<bool, Refusal> {
            let sequence = |last: Option<Stored>| last.map_or(0, |last| last.sequence);
            let epoch = sequence(self.engine.last_of(self.engine.epoch()).await?);
            let log = sequence(self.engine.last_of(self.engine.log()).await?);
            // A new owner has written nothing but its claim.
            Ok(epoch < ownership.fence || (ownership.last > ownership.fence && log < ownership.last))
        };
        match behind().await {
            Ok(false) => {
                *doubt = Doubt::default();
                Ok(true)
            }
            Ok(true) if doubt.behind_since.get_or_insert_with(Instant::now).elapsed() >= BEHIND_FOR => {
                let (fence, last) = (ownership.fence, ownership.last);
                Err(format!("the log has gone back: what was written at {fence} or {last} is not there any more"))
            }
            Ok(true) | Err(_) => Ok(false),
        }
    }

    fn is_sure(&self) -> bool {
        hold(&self.shared.ownership).is_some_and(|ownership| ownership.is_sure(uptime()))
    }

    /// At `since` there was no other owner yet.
    fn show(&self, ownership: &Ownership, since: Duration) {
        if let Some(now) = hold(&self.shared.ownership).as_mut().filter(|now| now.fence == ownership.fence) {
            now.shown = now.shown.max(since);
        }
    }

    fn other_owner(&self, ownership: &Ownership, record: &Stored) -> Option<u64> {
        let decoded = Frame::decode(&record.payload, &self.engine.group);
        (record.sequence > ownership.fence).then(|| decoded.map_or(ownership.epoch + 1, |(frame, _)| frame.epoch))
    }

    async fn append(&self, ownership: &Ownership, batch: &Batch, is_doubtful: bool) -> Result<Entry, End> {
        let end = hold(&self.shared.table).end;
        if batch.at != end || batch.head.len() < FRAME_HEADER_BYTES {
            return Err(End::Failed(format!("a batch for {:#x} came where {end:#x} is the end", batch.at)));
        }
        let fits = |bytes: usize| u32::try_from(bytes).map_err(|_| End::Failed("a batch of over 4 GiB".to_owned()));
        let (head_bytes, body_bytes) = (fits(batch.head.len())?, fits(batch.body.len())?);
        let (kind, payload, parts) = if batch.bytes() <= WHOLE_BYTES_MAX as u64 {
            (Kind::Whole, None, Vec::new())
        } else {
            let parts = self.send_parts(ownership, batch).await?;
            (Kind::Parts, Some(encode_parts(&parts)), parts)
        };
        let payload_crc = match &payload {
            Some(list) => crc32c::crc32c(list),
            None => crc32c::crc32c_append(crc32c::crc32c(&batch.head[FRAME_HEADER_BYTES..]), &batch.body),
        };
        let frame = Frame { kind, epoch: ownership.epoch, at: batch.at, head_bytes, body_bytes, payload_crc };
        let header = frame.encode(&self.engine.group);
        let message: Bytes = match payload {
            Some(list) => [&header[..], &list].concat().into(),
            None => [&header[..], &batch.head[FRAME_HEADER_BYTES..], &batch.body].concat().into(),
        };
        self.shared.sent(message.len());
        let sequence = self.commit(ownership, batch.at, message, is_doubtful).await?;
        Ok(Entry { at: batch.at, sequence, head_bytes, body_bytes, parts: parts.into() })
    }

    /// Sends the frame of a batch until it is known to be in the log, or known never to be.
    async fn commit(&self, ownership: &Ownership, at: u64, message: Bytes, mut is_doubtful: bool) -> Result<u64, End> {
        let id = format!("{}.{at}", ownership.epoch);
        let expect = Expect::Epoch(ownership.fence);
        let (mut pause, mut doubt) = (Pause::new(), Doubt::default());
        let mut began = Instant::now();
        // A later copy is confirmed though another owner may have claimed since the first one.
        let first = uptime();
        loop {
            while is_doubtful && !self.is_whole(ownership, &mut doubt).await.map_err(End::Failed)? {
                self.note(Refusal::Unanswered("whether the log is the same as before is not known".to_owned()));
                pause.wait().await;
            }
            if began.elapsed() > self.retry_within {
                // The engine may forget the identity soon: from here on only the log itself can tell.
                if let Some(sequence) = self.find(ownership, at).await? {
                    return Ok(sequence);
                }
                began = Instant::now();
                pause = Pause::new();
            }
            let refusal = match self.engine.publish(self.engine.log(), &id, expect, message.clone()).await {
                Ok(sequence) if sequence <= ownership.last => {
                    return Err(End::Failed(format!("the log has gone back: {sequence} follows {}", ownership.last)));
                }
                Ok(sequence) => {
                    self.show(ownership, first);
                    return Ok(sequence);
                }
                Err(refusal) => refusal,
            };
            self.is_owned_still(ownership, &refusal).await?;
            is_doubtful = !matches!(refusal, Refusal::Full);
            self.note(refusal);
            pause.wait().await;
        }
    }

    /// Whether the last batch of the log is the one that was sent: asks until the leader answers.
    async fn find(&self, ownership: &Ownership, at: u64) -> Result<Option<u64>, End> {
        let mut pause = Pause::new();
        loop {
            match self.engine.last_of(self.engine.log()).await {
                Ok(last) => {
                    return Ok(last.filter(|last| self.is_batch(last, ownership, at)).map(|last| last.sequence));
                }
                Err(refusal) => {
                    self.is_owned_still(ownership, &refusal).await?;
                    self.note(refusal);
                }
            }
            pause.wait().await;
        }
    }

    fn is_batch(&self, stored: &Stored, ownership: &Ownership, at: u64) -> bool {
        let decoded = Frame::decode(&stored.payload, &self.engine.group);
        decoded.is_ok_and(|(frame, _)| frame.epoch == ownership.epoch && frame.at == at)
    }

    /// After a refusal: whether the last epoch record is still the owner's. A refusal that does not speak of it, and
    /// one because the same append is still being carried out, leave it the owner.
    async fn is_owned_still(&self, ownership: &Ownership, refusal: &Refusal) -> Result<(), End> {
        if let Refusal::Impossible(reason) = refusal {
            return Err(End::Failed(reason.clone()));
        }
        if !matches!(refusal, Refusal::WrongLast | Refusal::Full) {
            return Ok(());
        }
        let record = match self.engine.last_of(self.engine.epoch()).await {
            Ok(Some(record)) => record,
            Ok(None) => return Err(End::Failed("the epoch record is gone from the stream".to_owned())),
            // No answer leaves it open: the append is sent again, and refused again if it must be.
            Err(_) => return Ok(()),
        };
        self.other_owner(ownership, &record).map_or(Ok(()), |by| Err(End::Deposed { by }))
    }

    fn note(&self, refusal: Refusal) {
        let trouble = match refusal {
            Refusal::Full => Trouble::Full,
            other => Trouble::Unavailable(other.text()),
        };
        *hold(&self.shared.trouble) = Some(trouble);
        (self.waker)();
    }

    // ---- parts

    /// Sends the bytes of a large batch. Nothing fences them: what no commit names is swept with what lies around it.
    async fn send_parts(&self, ownership: &Ownership, batch: &Batch) -> Result<Vec<Part>, End> {
        let bytes = [&batch.head[FRAME_HEADER_BYTES..], &batch.body].concat();
        let bytes = Bytes::from(bytes);
        let count = bytes.len().div_ceil(PART_BYTES);
        let mut found: Vec<Option<Part>> = vec![None; count];
        let mut sending = JoinSet::new();
        let mut next = 0;
        loop {
            while next < count && sending.len() < PARTS_IN_FLIGHT_MAX {
                let payload = bytes.slice(next * PART_BYTES..bytes.len().min((next + 1) * PART_BYTES));
                self.shared.sent(payload.len());
                sending.spawn(self.clone_for_part().send_part(*ownership, batch.at, next, payload));
                next += 1;
            }
            match sending.join_next().await {
                None => break,
                Some(Ok(Ok((number, part)))) => found[number] = Some(part),
                Some(Ok(Err(end))) => return Err(end),
                Some(Err(error)) => return Err(End::Failed(format!("sending a part: {error}"))),
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn clone_for_part(&self) -> Self {
        let (engine, shared) = (self.engine.clone(), self.shared.clone());
        Appender { engine, shared, told: self.told.clone(), waker: self.waker.clone(), retry_within: self.retry_within }
    }

    /// Sends one part until it is in. A second copy of it is harmless: the commit names the sequence of one.
    async fn send_part(
        self,
        ownership: Ownership,
        at: u64,
        number: usize,
        payload: Bytes,
    ) -> Result<(usize, Part), End> {
        let (subject, id) =
            (self.engine.part(ownership.epoch, at, number), format!("{}.{at}.{number}", ownership.epoch));
        let crc = crc32c::crc32c(&payload);
        let bytes = payload.len() as u32; // at most PART_BYTES
        let mut pause = Pause::new();
        loop {
            match self.engine.publish(subject.clone(), &id, Expect::Nothing, payload.clone()).await {
                Ok(sequence) => return Ok((number, Part { sequence, bytes, crc })),
                Err(refusal) => {
                    self.is_owned_still(&ownership, &refusal).await?;
                    self.note(refusal);
                }
            }
            pause.wait().await;
        }
    }
}
