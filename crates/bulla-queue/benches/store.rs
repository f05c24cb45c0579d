//! What the store costs: nanoseconds a message in memory, durable messages a second beside the same bytes written by
//! hand, and the time to open a million messages.
//!
//! `cargo bench -p bulla-queue` runs all; a word as argument (`memory`, `durable`, `open`) one. Files go to `TMPDIR`,
//! which must be a real disk for the figures to mean anything.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bulla_queue::{
    Chunks, DirStorage, Driver, FileLog, FileLogOptions, FileSpill, Keys, Limits, Message, QueueAttributes, Store,
    Ticket,
};
use bytes::Bytes;

const BODY_BYTES: usize = 2_048;
const ROUNDS: usize = 5;
const DURABLE_ROUNDS: usize = 15;
/// Batches in one round of the durable part.
const BATCHES: usize = 100;
const OPEN_MESSAGES: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if wanted("memory") {
        memory()?;
    }
    if wanted("durable") {
        durable()?;
    }
    if wanted("open") {
        open_a_million()?;
    }
    Ok(())
}

fn message(body: &Bytes, persistent: bool) -> Message {
    let body = Chunks::from(body.clone());
    Message {
        priority: 4,
        persistent,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: 1,
        user: None,
        keys: Keys::None,
        body,
    }
}

fn open(dir: &Path, driver: Driver) -> Result<(Store, Receiver<()>), Box<dyn Error>> {
    std::fs::create_dir_all(dir.join("journal"))?;
    std::fs::create_dir_all(dir.join("scratch"))?;
    let (woken, wakes) = channel();
    let woken = std::sync::Mutex::new(woken);
    let waker = Arc::new(move || drop(woken.lock().map(|woken| woken.send(()))));
    let options = FileLogOptions { driver, waker, ..FileLogOptions::default() };
    let log = FileLog::open(DirStorage::new(dir.join("journal")), options)?;
    let spill = FileSpill::open(DirStorage::new(dir.join("scratch")), 1 << 34)?;
    let limits = Limits { memory_bytes_max: 4 << 30, ..Limits::default() };
    Ok((Store::open(Box::new(log), Box::new(spill), limits, Instant::now())?, wakes))
}

fn attributes() -> QueueAttributes {
    QueueAttributes { max_depth: 10_000_000, ..QueueAttributes::default() }
}

fn memory() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (mut store, _wakes) = open(dir.path(), Driver::Inline)?;
    let queue = store.define("BENCH", attributes())?;
    let body = Bytes::from(vec![7; BODY_BYTES]);
    let mut queues = Vec::new();
    println!("in memory, non-persistent, {BODY_BYTES} bytes, ns a message (best of {ROUNDS})");
    for depth in [0_u64, 100, 10_000, 1_000_000] {
        let mut best = [f64::MAX; 3];
        let count = 500_000_u64.max(depth);
        for _ in 0..ROUNDS {
            // What stands before: locked by others, so that each lock has to get past it.
            let mut locked = Vec::new();
            for _ in 0..depth {
                store.put(queue, message(&body, false))?;
            }
            while let Some(found) = store.lock_next(queue, None, 0) {
                locked.push(found.id);
            }
            let started = Instant::now();
            for _ in 0..count {
                store.put(queue, message(&body, false))?;
                let found = store.lock_next(queue, None, 0).ok_or("nothing there")?;
                let body = store.body(found.id)?;
                store.acknowledge(found.id)?;
                std::hint::black_box(body);
                store.take_ready(&mut queues);
                queues.clear();
            }
            best[0] = best[0].min(started.elapsed().as_nanos() as f64 / count as f64);
            for id in locked.drain(..) {
                store.release(id, false);
            }
            let started = Instant::now();
            while let Some(found) = store.lock_next(queue, None, 0) {
                store.acknowledge(found.id)?;
            }
            best[1] = best[1].min(started.elapsed().as_nanos() as f64 / depth.max(1) as f64);
        }
        println!(
            "  {depth:>9} locked before it: put+lock+body+acknowledge {:6.0}   lock+acknowledge of those {:6.0}",
            best[0], best[1]
        );
    }
    Ok(())
}

/// Short rounds in turn, so that all four see the same disk whatever else it does.
fn durable() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let body = Bytes::from((0..BODY_BYTES).map(|byte| byte as u8).collect::<Vec<_>>());
    println!("durable, {BODY_BYTES} bytes, messages a second (median of {DURABLE_ROUNDS} alternating rounds)");
    let mut inline = open(&dir.path().join("inline"), Driver::Inline)?;
    let mut thread = open(&dir.path().join("thread"), Driver::Thread)?;
    for (store, _) in [&mut inline, &mut thread] {
        store.define("BENCH", attributes())?;
        store.sync(Instant::now())?;
    }
    for batch in [1_usize, 32, 256] {
        let mut rates: [Vec<f64>; 4] = Default::default();
        for _ in 0..DURABLE_ROUNDS {
            rates[0].push(by_hand(dir.path(), batch)?);
            rates[1].push(one_at_a_time(&mut inline, &body, batch)?);
            rates[2].push(one_at_a_time(&mut thread, &body, batch)?);
            rates[3].push(pipelined(&mut thread, &body, batch)?);
        }
        let [hand, inline, thread, pipelined] = rates.map(median);
        println!("  batch {batch:>4}: by hand {hand:>8.0}");
        for (name, rate) in [("inline", inline), ("thread", thread), ("thread, next batch gathers", pipelined)] {
            println!("              {name} {rate:.0} ({:.2} of by hand)", rate / hand);
        }
    }
    Ok(())
}

/// One batch after the other, as a single busy client would cause: the worst case of a batch of its size.
fn one_at_a_time(
    (store, wakes): &mut (Store, Receiver<()>),
    body: &Bytes,
    batch: usize,
) -> Result<f64, Box<dyn Error>> {
    let queue = store.queue("BENCH").ok_or("no queue")?;
    let started = Instant::now();
    for _ in 0..BATCHES {
        let mut ticket = Ticket::NOW;
        for _ in 0..batch {
            ticket = store.put(queue, message(body, true))?;
        }
        store.flush(Instant::now())?;
        while !store.is_synced(ticket) {
            wakes.recv_timeout(Duration::from_secs(10))?;
            store.poll(Instant::now())?;
        }
    }
    let rate = (BATCHES * batch) as f64 / started.elapsed().as_secs_f64();
    drain(store)?;
    Ok(rate)
}

/// Puts go on while a batch is synced: `batch` times two are unconfirmed at most.
fn pipelined((store, wakes): &mut (Store, Receiver<()>), body: &Bytes, batch: usize) -> Result<f64, Box<dyn Error>> {
    let queue = store.queue("BENCH").ok_or("no queue")?;
    let started = Instant::now();
    let mut tickets = std::collections::VecDeque::new();
    for _ in 0..BATCHES * batch {
        tickets.push_back(store.put(queue, message(body, true))?);
        if tickets.len() == 2 * batch {
            store.flush(Instant::now())?;
            while tickets.front().is_some_and(|ticket| !store.is_synced(*ticket)) {
                wakes.recv_timeout(Duration::from_secs(10))?;
                store.poll(Instant::now())?;
            }
            while tickets.front().is_some_and(|ticket| store.is_synced(*ticket)) {
                tickets.pop_front();
            }
        }
    }
    store.sync(Instant::now())?;
    let rate = (BATCHES * batch) as f64 / started.elapsed().as_secs_f64();
    drain(store)?;
    Ok(rate)
}

fn drain(store: &mut Store) -> Result<(), Box<dyn Error>> {
    let queue = store.queue("BENCH").ok_or("no queue")?;
    store.sync(Instant::now())?;
    while let Some(found) = store.lock_next(queue, None, 0) {
        store.acknowledge(found.id)?;
    }
    Ok(store.sync(Instant::now())?)
}

/// The same bytes, written into a file of zeros and synced, by the shortest program there is.
fn by_hand(dir: &Path, batch: usize) -> Result<f64, Box<dyn Error>> {
    let bytes = vec![9; batch * (BODY_BYTES + 48) + 40];
    let path = dir.join("by-hand");
    let is_new = !path.exists();
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    if is_new {
        let zeros = vec![0; 1 << 20];
        for at in (0..64 << 20).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
    }
    let started = Instant::now();
    for index in 0..BATCHES {
        file.write_all_at(&bytes, (index * bytes.len()) as u64)?;
        file.sync_data()?;
    }
    Ok((BATCHES * batch) as f64 / started.elapsed().as_secs_f64())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn open_a_million() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let body = Bytes::from(vec![5; BODY_BYTES]);
    {
        let (mut store, wakes) = open(dir.path(), Driver::Thread)?;
        let queue = store.define("BENCH", attributes())?;
        let started = Instant::now();
        for number in 0..OPEN_MESSAGES {
            store.put(queue, message(&body, true))?;
            if number % 64 == 0 {
                store.flush(Instant::now())?;
                while store.store_status().backlog_bytes > 16 << 20 {
                    wakes.recv_timeout(Duration::from_secs(10))?;
                    store.poll(Instant::now())?;
                }
            }
        }
        store.sync(Instant::now())?;
        println!("open, {OPEN_MESSAGES} messages of {BODY_BYTES} bytes (put in {:.1?})", started.elapsed());
    }
    for _ in 0..3 {
        let started = Instant::now();
        let (store, _wakes) = open(dir.path(), Driver::Thread)?;
        println!("  {:.0?}, {} messages", started.elapsed(), store.store_status().messages);
    }
    let empty = tempfile::tempdir()?;
    let started = Instant::now();
    let (_store, _wakes) = open(empty.path(), Driver::Thread)?;
    println!("  {:.0?}, a new store", started.elapsed());
    Ok(())
}
