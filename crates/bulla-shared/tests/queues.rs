//! A store of queues on a shared log: the same work as on a file log and on a simulated one, on real servers.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod servers;
#[path = "../../bulla-queue/tests/work/mod.rs"]
mod work;

use std::time::Instant;

use bulla_queue::log::Claim;
use bulla_queue::{JournalError, Limits, Message, PutError, QueueAttributes, Standby, Store};
use bulla_shared::JetStreamLog;

use servers::{Cluster, open, tried, until};
use work::{contents, follow, limits, settle, spill};

fn log(cluster: &Cluster, group: &str, owner: &str) -> Box<JetStreamLog> {
    Box::new(open(cluster.options(group, owner)))
}

/// A store on a log, which is claimed whatever its owner does.
fn taken(log: Box<JetStreamLog>, limits: Limits) -> Store {
    let mut standby = Standby::new(log);
    tried("a log is claimed", || standby.claim(Instant::now(), Claim::Force));
    standby.into_store(spill(), limits, Instant::now()).unwrap()
}

#[test]
fn a_standby_follows_and_takes_over() {
    let cluster = Cluster::shared();
    for seed in 0..3 {
        for every in [7, 200] {
            let group = format!("FOLLOW-{seed}-{every}");
            let (owner, reader) = (log(&cluster, &group, "QM1"), log(&cluster, &group, "QM2"));
            let left = follow(seed, every, owner, reader, drop);
            let mut again = taken(log(&cluster, &group, "QM3"), limits());
            assert_eq!(contents(&mut again), left, "seed {seed}");
        }
    }
}

#[test]
fn a_deposed_owner_with_a_thousand_puts_under_way_adds_none_after_the_claim() {
    const PUTS: usize = 1_000;
    const CONFIRMED_BEFORE: u64 = 5_000;
    let cluster = Cluster::shared();
    let limits = || Limits { batch_bytes_max: 64 << 10, ..Limits::default() };
    // Room for a hundred thousand puts: who goes on writing for so long has kept the claim out.
    let log = |owner: &str| {
        let mut options = cluster.options("THOUSAND", owner);
        options.stream_bytes = 2 << 30;
        Box::new(open(options))
    };
    let mut owner = taken(log("QM1"), limits());
    let attributes = QueueAttributes { max_depth: 1_000_000, ..QueueAttributes::default() };
    let queue = owner.define("ORDERS", attributes).unwrap();
    settle(&mut owner);
    let mut next = Standby::new(log("QM2"));
    tried("a log is followed", || next.follow());
    // The owner goes on putting, a thousand under way, until it hears that it is none.
    let (confirmed, claimed) = std::thread::scope(|scope| {
        let (confirmed_some, may_claim) = std::sync::mpsc::channel();
        let claiming = scope.spawn(move || {
            may_claim.recv().unwrap();
            tried("a log is claimed", || next.claim(Instant::now(), Claim::Force));
            next
        });
        let mut under_way = std::collections::VecDeque::new();
        let mut confirmed = 0_u64;
        let mut number = 0_u64;
        'owner: loop {
            while under_way.len() < PUTS {
                let mut body = number.to_le_bytes().to_vec();
                body.resize(2_048, 0);
                match owner.put(queue, Message::new(true, body.into())) {
                    Ok(ticket) => under_way.push_back(ticket),
                    // A claim that waits for a processor lets the owner fill the log.
                    Err(PutError::Journal(JournalError::Full)) => break,
                    Err(PutError::Journal(error)) => {
                        assert!(matches!(error, JournalError::Deposed { .. }), "{number} puts later: {error}");
                        break 'owner;
                    }
                    Err(error) => panic!("{error}"),
                }
                number += 1;
            }
            if let Err(error) = owner.poll(Instant::now()) {
                assert!(matches!(error, JournalError::Deposed { .. }), "{error}");
                break;
            }
            while under_way.front().is_some_and(|ticket| owner.is_synced(*ticket)) {
                under_way.pop_front();
                confirmed += 1;
                if confirmed == CONFIRMED_BEFORE {
                    confirmed_some.send(()).unwrap();
                }
            }
        }
        (confirmed, claiming.join().unwrap())
    });
    let claimed_messages = claimed.messages();
    let mut store = claimed.into_store(spill(), limits(), Instant::now()).unwrap();
    let found = contents(&mut store).messages;
    // What is there is the first so many, in order, and at least what was confirmed.
    for (index, (_, _, _, body)) in found.iter().enumerate() {
        assert_eq!(body[..8], (index as u64).to_le_bytes());
    }
    println!("{confirmed} puts were confirmed, {} are in the log", found.len());
    assert!(found.len() as u64 >= confirmed, "{} of {confirmed}", found.len());
    assert_eq!(found.len(), claimed_messages, "none came after the claim");
    drop(store);
    let mut again = taken(log("QM3"), limits());
    assert_eq!(contents(&mut again).messages.len(), found.len(), "nor later");
}

#[test]
fn a_full_stream_refuses_puts_and_takes_removals() {
    let cluster = Cluster::shared();
    let limits = || Limits {
        batch_bytes_max: 64 << 10,
        reserve_bytes: 128 << 10,
        checkpoint_bytes: 256 << 10,
        log_bytes_min: 512 << 10,
        ..Limits::default()
    };
    let owned = |owner: &str| {
        let mut options = cluster.options("STUFFED", owner);
        options.stream_bytes = 8 << 20;
        taken(Box::new(open(options)), limits())
    };
    let mut store = owned("QM1");
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    settle(&mut store);
    let mut rounds = 0;
    while rounds < 2 {
        // Puts until there is no room for more.
        let mut put = 0;
        loop {
            match store.put(queue, Message::new(true, vec![7; 4_000].into())) {
                Ok(_) => put += 1,
                Err(PutError::Journal(JournalError::Full)) => break,
                Err(error) => panic!("{error}"),
            }
            settle(&mut store);
        }
        println!("round {rounds}: {put} messages were put");
        assert!(rounds > 0 || put > 1_000, "{put}");
        // All of them are removed one by one, each in a batch of its own; another owner finds what is left.
        for _ in 0..store.store_status().messages / 2 {
            let found = store.lock_next(queue, None, 0).unwrap();
            store.acknowledge(found.id).unwrap();
            settle(&mut store);
        }
        let left = store.store_status().messages;
        drop(store);
        store = owned("QM2");
        assert_eq!(store.store_status().messages, left);
        let queue = store.queue("ORDERS").unwrap();
        while let Some(found) = store.lock_next(queue, None, 0) {
            store.acknowledge(found.id).unwrap();
            settle(&mut store);
        }
        // Then there is room again, once a checkpoint let go what was removed.
        until("puts are taken again", || {
            store.poll(Instant::now()).unwrap();
            store.put(queue, Message::new(true, vec![7; 4_000].into())).ok()
        });
        rounds += 1;
    }
}
