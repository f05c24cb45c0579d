//! A log with room for so many bytes: what is full takes puts again once its messages are got.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod work;

use bulla_queue::log::{Batch, Claim, Epoch, Event, LogError, LogLimits, Position, Read, ReadDone, Replayed};
use bulla_queue::sim::{Manner, SimEngine, SimLog};
use bulla_queue::{JournalError, Limits, Log, Message, PutError, QueueAttributes, Store};
use std::time::Instant;
use work::spill;

const LOG_BYTES: u64 = 4 << 20;
const BODY_BYTES: usize = 256 << 10;

/// A log that has room for [`LOG_BYTES`].
struct Bounded {
    log: SimLog,
    end: u64,
}

impl Log for Bounded {
    fn claim(&mut self, now: Instant, how: Claim) -> Result<(Epoch, Position), LogError> {
        let claimed = self.log.claim(now, how)?;
        self.end = claimed.1.0;
        Ok(claimed)
    }
    fn start(&self) -> Position {
        self.log.start()
    }
    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        self.log.replay(from, each)
    }
    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)> {
        self.end = batch.end().0;
        self.log.submit(batch)
    }
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>, spare: &mut Vec<Batch>) -> Result<(), LogError> {
        self.log.poll(now, events, spare)
    }
    fn settle(&mut self) {
        self.log.settle();
    }
    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        self.log.read(read)
    }
    fn poll_reads(&mut self, now: Instant, done: &mut Vec<ReadDone>) {
        self.log.poll_reads(now, done);
    }
    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        self.log.read_now(at, bytes, into)
    }
    fn release(&mut self, before: Position) -> Result<(), LogError> {
        self.log.release(before)
    }
    fn space(&self) -> u64 {
        (self.log.start().0 + LOG_BYTES).saturating_sub(self.end)
    }
    fn reserve(&mut self, _batch_bytes: u64, _besides: u64) -> Result<(), LogError> {
        Err(LogError::Full)
    }
    fn limits(&self) -> LogLimits {
        self.log.limits()
    }
}

#[test]
fn a_full_log_takes_puts_again_once_its_few_messages_are_got() {
    let log = Bounded { log: SimEngine::default().log(Manner::Prompt), end: 0 };
    let limits = Limits {
        batch_bytes_max: 64 << 10,
        reserve_bytes: 512 << 10,
        checkpoint_bytes: 256 << 10,
        log_bytes_min: 1 << 20,
        ..Limits::default()
    };
    let mut store = Store::open(Box::new(log), spill(), limits, Instant::now()).unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    store.sync(Instant::now()).unwrap();
    // In the last rounds no put is refused before the messages are got.
    for (round, puts_max) in [None, None, None, Some(10), None, Some(11), None].into_iter().enumerate() {
        let mut put = 0;
        loop {
            match store.put(queue, Message::new(true, vec![7; BODY_BYTES].into())) {
                Ok(_) if puts_max == Some(put + 1) => break,
                Ok(_) => put += 1,
                Err(PutError::Journal(JournalError::Full)) => break,
                Err(error) => panic!("{error}"),
            }
            store.sync(Instant::now()).unwrap();
        }
        assert!(put > 7, "round {round}: {put} messages were put");
        // All of them in one commit: some hundred bytes of log.
        let mut found = Vec::new();
        while let Some(one) = store.lock_next(queue, None, 0) {
            found.push(one.id);
        }
        store.commit(Vec::new(), &found, &[]).unwrap();
        // The checkpoint that lets them go is a batch of its own, and comes at the latest when a put is refused.
        (0..3).for_each(|_| store.sync(Instant::now()).unwrap());
        if let Err(error) = store.put(queue, Message::new(true, vec![7; BODY_BYTES].into())) {
            assert!(matches!(error, PutError::Journal(JournalError::Full)), "round {round}: {error}");
            for _ in 0..3 {
                store.poll(Instant::now()).unwrap();
                store.sync(Instant::now()).unwrap();
            }
        }
    }
}
