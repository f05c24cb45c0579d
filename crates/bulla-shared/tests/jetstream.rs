//! The shared log on real servers of the engine: three of them, on loopback, each write synced.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod servers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bulla_queue::log::{Batch, Claim, Epoch, Event, LogError, Position, Read, Survives};
use bulla_queue::{Log, OpenError};
use bulla_shared::frame::{FRAME_HEADER_BYTES, Frame, Kind};
use bulla_shared::{BEATS_KEPT, Durability, JetStreamLog, OWNED_FOR, Options, SENDS_AFTER};
use fastrand::Rng;

use servers::network::{Fault, Network};
use servers::{Cluster, Setup, answered, claim, open, refused, tried, until};

/// A batch with some bytes of record headers and of bodies.
fn batch(at: Position, head: usize, body: usize, seed: u64) -> Batch {
    let mut rng = Rng::with_seed(seed);
    let mut bytes = |count: usize| (0..count).map(|_| rng.u8(..)).collect::<Vec<u8>>();
    let head = [vec![0; FRAME_HEADER_BYTES], bytes(head)].concat();
    Batch { at: at.0, head, body: bytes(body), patient: false }
}

/// The next event that is not nothing.
fn event(log: &mut JetStreamLog) -> Event {
    let mut events = Vec::new();
    until("an event", || {
        // What is wrong for now is told as well.
        match log.poll(Instant::now(), &mut events, &mut Vec::new()) {
            Ok(()) | Err(LogError::Unavailable(_) | LogError::Full) => events.pop(),
            Err(error) => panic!("{error}"),
        }
    })
}

/// Submits a batch and waits until it is in.
fn append(log: &mut JetStreamLog, batch: Batch) -> Position {
    let end = batch.end();
    log.submit(batch).unwrap();
    assert_eq!(event(log), Event::Synced(end));
    end
}

/// Batches as they are found: where they begin, their record headers, where their bodies lie.
type Found = (Position, Vec<u8>, Position, u64);

fn replay(log: &mut JetStreamLog, from: Option<Position>) -> (Position, Vec<Found>) {
    tried("a log is replayed", || {
        let mut found = Vec::new();
        let end = log.replay(from, &mut |one| found.push((one.at, one.head.to_vec(), one.bodies_at, one.bodies_bytes)));
        end.map(|end| (end, found))
    })
}

fn expected(batches: &[Batch]) -> Vec<Found> {
    let found = |batch: &Batch| {
        let bodies_at = Position(batch.at + batch.head.len() as u64);
        (Position(batch.at), batch.head[FRAME_HEADER_BYTES..].to_vec(), bodies_at, batch.body.len() as u64)
    };
    batches.iter().map(found).collect()
}

fn copy(batch: &Batch) -> Batch {
    Batch { at: batch.at, head: batch.head.clone(), body: batch.body.clone(), patient: false }
}

fn read_late(log: &mut JetStreamLog, at: Position, bytes: usize) -> Vec<u8> {
    assert!(log.read(Read { number: 7, at, bytes }).unwrap().is_none());
    let mut done = Vec::new();
    until("a read", || {
        log.poll_reads(Instant::now(), &mut done);
        done.pop()
    })
    .bytes
    .unwrap()
}

#[test]
fn what_is_appended_is_replayed_and_read() {
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("REPLAY", "QM1"));
    assert_eq!(owner.limits().survives, Survives::MinorityPower);
    let (epoch, mut end) = claim(&mut owner, Claim::IfFree);
    assert!(epoch > Epoch(0));
    assert_eq!(end, Position(0));
    assert_eq!(replay(&mut owner, None), (Position(0), Vec::new()));
    let mut follower = open(cluster.options("REPLAY", "QM2"));
    let mut batches = Vec::new();
    let mut seen = Vec::new();
    let mut at = None;
    for (seed, body) in [8, 0, 2_048, 100_000, 520_000, 64].into_iter().enumerate() {
        let next = batch(end, 24, body, seed as u64);
        end = append(&mut owner, copy(&next));
        batches.push(next);
        // It follows, as far as the server that it asks has come.
        until("the follower sees the batch", || {
            let (stopped, found) = replay(&mut follower, at);
            at = Some(stopped);
            seen.extend(found);
            (stopped == end).then_some(())
        });
    }
    assert_eq!(seen, expected(&batches));
    for batch in &batches {
        let bodies_at = Position(batch.at + batch.head.len() as u64);
        let (from, to) = (batch.body.len() / 3, batch.body.len());
        if to > 0 {
            let at = Position(bodies_at.0 + from as u64);
            assert_eq!(read_late(&mut owner, at, to - from), &batch.body[from..]);
            let mut now = Vec::new();
            tried("a body is read", || follower.read_now(bodies_at, to, &mut now));
            assert_eq!(now, batch.body);
        }
    }
    // Again, from the beginning and from the middle, by who has handed it on before and by who has not.
    assert_eq!(replay(&mut follower, None), (end, expected(&batches)));
    assert_eq!(replay(&mut follower, Some(Position(batches[3].at))), (end, expected(&batches[3..])));
    assert_eq!(replay(&mut owner, None), (end, expected(&batches)));
    let mut third = open(cluster.options("REPLAY", "QM3"));
    let claimed = claim(&mut third, Claim::Force);
    assert!(claimed.0 > epoch);
    assert_eq!(claimed.1, end);
    assert_eq!(replay(&mut third, None), (end, expected(&batches)));
    assert_eq!(third.owner().unwrap().0, "QM3");
    let past = third.replay(Some(Position(end.0 + 8)), &mut |_| {});
    assert!(matches!(past, Err(LogError::Released { .. })), "{past:?}");
    let mut into = Vec::new();
    assert!(matches!(third.read_now(end, 8, &mut into), Err(LogError::Damaged { .. })));
}

/// How many parts of batches are in a stream.
fn parts(subjects: &serde_json::Value) -> usize {
    let is_part = |subject: &&String| subject.contains(".part.") && !subject.ends_with(".beat");
    subjects.as_object().unwrap().keys().filter(is_part).count()
}

#[test]
fn a_large_batch_goes_in_parts() {
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("PARTS", "QM1"));
    let (_, mut end) = claim(&mut owner, Claim::IfFree);
    let mut batches = Vec::new();
    for (seed, (head, body)) in [(24, 100), (64, 4 << 20), (600 << 10, 8), (24, 512 << 10)].into_iter().enumerate() {
        let next = batch(end, head, body, seed as u64);
        if next.bytes() > owner.limits().batch_bytes_max {
            owner.reserve(next.bytes(), 0).unwrap();
        }
        end = append(&mut owner, copy(&next));
        batches.push(next);
    }
    let subjects = cluster.raw().subjects("PARTS");
    assert_eq!(parts(&subjects), 9 + 2 + 2, "{subjects}");
    let mut other = open(cluster.options("PARTS", "QM2"));
    claim(&mut other, Claim::Force);
    assert_eq!(replay(&mut other, None), (end, expected(&batches)));
    let large = &batches[1];
    let bodies_at = large.at + large.head.len() as u64;
    let mut read = Vec::new();
    tried("a body is read", || other.read_now(Position(bodies_at), large.body.len(), &mut read));
    assert_eq!(read, large.body);
    // Over the border of two parts.
    let over = read_late(&mut other, Position(bodies_at + (512 << 10) - 80), 100);
    assert_eq!(over, &large.body[(512 << 10) - 80..(512 << 10) + 20]);
    // Parts go with their batch, and not before it.
    other.release(Position(large.at)).unwrap();
    let first = until("the first batch is let go", || {
        let subjects = cluster.raw().subjects("PARTS");
        (subjects["PARTS.log"] == 3).then_some(subjects)
    });
    assert_eq!(parts(&first), 13);
    tried("a body is read", || other.read_now(Position(bodies_at), large.body.len(), &mut read));
    other.release(Position(batches[3].at)).unwrap();
    until("parts are swept", || {
        let subjects = cluster.raw().subjects("PARTS");
        (parts(&subjects) == 2 && subjects["PARTS.log"] == 1).then_some(())
    });
    assert_eq!(replay(&mut other, None), (end, expected(&batches[3..])));
}

#[test]
fn nothing_of_a_deposed_owner_enters() {
    const ROUNDS: u64 = 20;
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("DEPOSE", "QM0"));
    let (_, mut end) = claim(&mut owner, Claim::IfFree);
    let (mut confirmed, mut entered) = (0, 0);
    for round in 0..ROUNDS {
        let mut next = open(cluster.options("DEPOSE", &format!("QM{}", round + 1)));
        replay(&mut next, None);
        // The owner goes on, always with a batch under way, until it hears that it is none.
        let (synced, under_way, deposed, claimed) = std::thread::scope(|scope| {
            let claiming = scope.spawn(|| claim(&mut next, Claim::Force));
            let mut synced = end;
            loop {
                let under_way = batch(synced, 24, 8 * (round as usize % 7), round);
                let under_way_end = under_way.end();
                owner.submit(under_way).unwrap();
                match event(&mut owner) {
                    Event::Synced(at) => (synced, confirmed) = (at, confirmed + 1),
                    deposed => break (synced, under_way_end, deposed, claiming.join().unwrap()),
                }
            }
        });
        assert!(matches!(deposed, Event::Deposed { by } if by <= claimed.0), "{deposed:?} by {claimed:?}");
        assert!(claimed.1 == synced || claimed.1 == under_way, "the claim knows all that was confirmed");
        entered += usize::from(claimed.1 == under_way);
        let (given_back, refused) = owner.submit(batch(claimed.1, 24, 8, 7)).unwrap_err();
        assert_eq!(given_back.at, claimed.1.0);
        assert!(matches!(refused, LogError::Owned { epoch: Some(epoch) } if epoch <= claimed.0), "{refused}");
        end = claimed.1;
        drop(owner);
        assert_eq!(replay(&mut next, Some(end)), (end, Vec::new()), "nothing came after the claim");
        end = append(&mut next, batch(end, 24, 8, round));
        owner = next;
    }
    println!(
        "{ROUNDS} owners were deposed with a batch under way after {confirmed} confirmed; {entered} of them entered"
    );
}

#[test]
fn of_two_claims_at_once_one_is_the_owner() {
    const ROUNDS: u64 = 100;
    let cluster = Cluster::shared();
    let mut logs = [open(cluster.options("TWO", "QM1")), open(cluster.options("TWO", "QM2"))];
    let mut end = Position(0);
    let mut wins = [0, 0];
    for round in 0..ROUNDS {
        let barrier = Barrier::new(2);
        let claims: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = logs
                .iter_mut()
                .map(|log| {
                    scope.spawn(|| {
                        barrier.wait();
                        claim(log, Claim::Force)
                    })
                })
                .collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_ne!(claims[0].0, claims[1].0, "no epoch is there twice");
        assert_eq!((claims[0].1, claims[1].1), (end, end));
        for log in &mut logs {
            log.submit(batch(end, 24, 64, round)).unwrap();
        }
        let events = [event(&mut logs[0]), event(&mut logs[1])];
        let winner = usize::from(claims[1].0 > claims[0].0);
        let by = claims[winner].0;
        end = Position(end.0 + 40 + 24 + 64);
        assert_eq!(events[winner], Event::Synced(end), "round {round}");
        assert_eq!(events[1 - winner], Event::Deposed { by }, "round {round}");
        wins[winner] += 1;
    }
    println!("of {ROUNDS} pairs of claims the first won {}, the second {}", wins[0], wins[1]);
    let mut reader = open(cluster.options("TWO", "QM3"));
    claim(&mut reader, Claim::Force);
    let (stopped, found) = replay(&mut reader, None);
    assert_eq!((stopped, found.len()), (end, ROUNDS as usize));
}

#[test]
fn an_owner_that_writes_nothing_hears_of_another() {
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("IDLE", "QM1"));
    let (_, end) = claim(&mut owner, Claim::IfFree);
    let mut other = open(cluster.options("IDLE", "QM2"));
    let (by, _) = claim(&mut other, Claim::Force);
    let deposed = event(&mut owner);
    assert!(matches!(deposed, Event::Deposed { by: first } if first <= by), "{deposed:?} by {by:?}");
    let (_, refused) = owner.submit(batch(end, 24, 8, 1)).unwrap_err();
    assert!(matches!(refused, LogError::Owned { epoch: Some(epoch) } if epoch <= by), "{refused:?}");
    // It may claim again.
    claim(&mut owner, Claim::Force);
    append(&mut owner, batch(end, 24, 8, 2));
    assert!(matches!(event(&mut other), Event::Deposed { .. }));
}

// Members hear from the engine that no owner is there, and don't wait for one that is gone.
#[test]
fn only_an_owner_listens_to_who_asks_for_it() {
    let cluster = Cluster::shared();
    let raw = cluster.raw();
    let asked = || {
        let request = async_nats::Request::new().timeout(Some(ASKED_WITHIN));
        raw.runtime.block_on(raw.client.send_request("PRESENT.ask", request))
    };
    let is_silent = || asked().is_err_and(|error| error.kind() == async_nats::RequestErrorKind::NoResponders);
    let answers = |epoch: Epoch| asked().is_ok_and(|answer| answer.payload.starts_with(&epoch.0.to_le_bytes()));
    let mut logs: Vec<_> = (1..4).map(|number| open(cluster.options("PRESENT", &format!("QM{number}")))).collect();
    until("no member listens", || is_silent().then_some(()));
    let (first, _) = claim(&mut logs[0], Claim::IfFree);
    until("the owner answers", || answers(first).then_some(()));
    let (second, _) = claim(&mut logs[1], Claim::Force);
    assert!(matches!(event(&mut logs[0]), Event::Deposed { .. }));
    until("the next owner answers", || answers(second).then_some(()));
    drop(logs.remove(1));
    until("the former owner does not listen", || is_silent().then_some(()));
    // It may own the log again.
    let (third, _) = claim(&mut logs[0], Claim::IfFree);
    until("it answers", || answers(third).then_some(()));
    // What comes to nothing leaves no one listening.
    let refused = answered(|| logs[1].claim(Instant::now(), Claim::IfFree));
    drop(logs.remove(0));
    if matches!(refused, Err(OpenError::Log(LogError::Owned { .. }))) {
        until("a claimant that was refused does not listen", || is_silent().then_some(()));
    }
}

/// How long who is asked over the engine has to answer, so that the next try is not far.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// What takes connections and reads: it answers, or says nothing.
fn process(answer: Option<&'static [u8]>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            match answer {
                // Who asked may be gone.
                Some(answer) => drop(std::io::Write::write_all(&mut stream, answer)),
                None => silent.push(stream),
            }
        }
    });
    address
}

// Its servers don't reach each other, and both reach the one that leads the stream.
#[test]
fn an_owner_whose_process_answers_has_time_to_find_another_server() {
    let cluster = Cluster::start(Setup { can_be_cut: true, ..Setup::default() });
    let servers = cluster.servers();
    let mut first = open(cluster.options("PAIR", "QM1"));
    claim(&mut first, Claim::IfFree);
    let leader = cluster.leader("PAIR");
    let mut others = (0..3).filter(|server| *server != leader);
    let (here, there) = (others.next().unwrap(), others.next().unwrap());
    let mut options = cluster.options("PAIR", "QM2");
    options.servers = vec![servers[here].clone()];
    let mut owner = open(options);
    let (epoch, end) = claim(&mut owner, Claim::Force);
    let member = |owner_at: Option<String>| {
        let mut options = cluster.options("PAIR", "QM3");
        options.servers = vec![servers[there].clone()];
        options.owner_at = Arc::new(move || owner_at.clone());
        open(options)
    };
    let (mut answers, mut silent) = (member(Some(process(Some(b"AMQP")))), member(Some(process(None))));
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut refused = member(Some(refused));
    cluster.cut(here, there);
    let left_alone = answered(|| answers.claim(Instant::now(), Claim::IfFree));
    assert!(matches!(left_alone, Err(OpenError::Log(LogError::Owned { .. }))), "{left_alone:?}");
    append(&mut owner, batch(end, 24, 8, 1));
    // Who is gone for the engine and by itself is gone.
    let (second, _) = claim(&mut silent, Claim::IfFree);
    assert!(second > epoch);
    let (third, _) = claim(&mut owner, Claim::Force);
    let (fourth, _) = claim(&mut refused, Claim::IfFree);
    assert!(fourth > third);
    let (fifth, _) = claim(&mut owner, Claim::Force);
    // An owner that no server finds is not waited for forever.
    let sixth = until("an owner that is not found loses the log", || claim_if_free(&mut answers));
    assert!(sixth > fifth);
}

/// The epoch of a claim, unless an owner is there.
fn claim_if_free(log: &mut JetStreamLog) -> Option<Epoch> {
    match answered(|| log.claim(Instant::now(), Claim::IfFree)) {
        Ok((epoch, _)) => Some(epoch),
        Err(OpenError::Log(LogError::Owned { .. })) => None,
        Err(error) => panic!("{error}"),
    }
}

/// How often something is tried that a machine without time for it may spoil.
const SLOW_TRIES: usize = 5;

#[test]
fn an_owner_that_answers_is_left_alone() {
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("FREE", "QM1"));
    let mut other = open(cluster.options("FREE", "QM2"));
    // An owner that gets no turn of a processor for two seconds does not answer.
    let is_left_alone = (0..SLOW_TRIES).any(|_| {
        let (epoch, _) = claim(&mut owner, Claim::Force);
        match answered(|| other.claim(Instant::now(), Claim::IfFree)) {
            Err(OpenError::Log(LogError::Owned { epoch: Some(found) })) => found == epoch,
            Ok(_) => false,
            Err(error) => panic!("{error}"),
        }
    });
    assert!(is_left_alone);
    let (own, _) = claim(&mut owner, Claim::IfFree); // its own claim is no other owner's
    drop(owner);
    let (epoch, _) = claim(&mut other, Claim::IfFree);
    assert!(epoch > own);
}

/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(3_600);

/// Options with which `count` tells how often the owner was woken.
fn woken(mut options: Options) -> (Options, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let woken = count.clone();
    options.waker = Arc::new(move || _ = woken.fetch_add(1, Ordering::Relaxed));
    (options, count)
}

#[test]
fn an_owner_without_answers_sends_nothing_after_a_while_and_is_told_when_it_may_again() {
    let cluster = Cluster::shared();
    let network = Network::before(&cluster.servers());
    let (mut options, count) = woken(cluster.options("LEASE", "QM1"));
    options.servers.clone_from(&network.addresses);
    let mut owner = open(options);
    assert!(!owner.is_surely_owned(), "it has not claimed");
    let (_, end) = claim(&mut owner, Claim::IfFree);
    until("the first owner, which follows no one, may send", || owner.is_surely_owned().then_some(()));
    // It writes nothing, and looks. What that leaves in the stream is removed.
    let raw = cluster.raw();
    until("looks go on, and few of them stay", || {
        let state = raw.api("STREAM.INFO.LEASE", serde_json::json!({}))?["state"].clone();
        let left = state["messages"].as_u64()?;
        let is_late = state["last_seq"].as_u64()? > u64::from(2 * BEATS_KEPT);
        // A removal may take its time.
        (is_late && left <= u64::from(BEATS_KEPT) + 4).then_some(())
    });
    until("looks keep it so", || owner.is_surely_owned().then_some(()));
    network.fails(Fault::Mute, LONG);
    let muted = Instant::now();
    let mut was_sure_at = muted;
    until("it can't know any more", || {
        let at = Instant::now();
        if owner.is_surely_owned() {
            was_sure_at = at;
        }
        (at > was_sure_at + OWNED_FOR).then_some(())
    });
    assert!(was_sure_at - muted <= OWNED_FOR, "{:?}", was_sure_at - muted);
    network.recovers();
    let before = count.load(Ordering::Relaxed);
    until("answers come again", || owner.is_surely_owned().then_some(()));
    until("it is told", || (count.load(Ordering::Relaxed) > before).then_some(()));
    append(&mut owner, batch(end, 24, 8, 1));
}

#[test]
fn a_claimant_sends_when_the_former_owner_does_no_more() {
    let cluster = Cluster::shared();
    let network = Network::before(&cluster.servers());
    let mut options = cluster.options("AFTER", "QM1");
    options.servers.clone_from(&network.addresses);
    let mut former = open(options);
    claim(&mut former, Claim::IfFree);
    let (options, count) = woken(cluster.options("AFTER", "QM2"));
    let mut next = open(options);
    until("the former one may send", || former.is_surely_owned().then_some(()));
    // It does not hear of the claim.
    network.fails(Fault::Mute, LONG);
    let before = Instant::now();
    claim(&mut next, Claim::Force);
    let (claimed, began) = (Instant::now(), count.load(Ordering::Relaxed));
    until("the claimant may send", || {
        let does_next = next.is_surely_owned();
        let does_former = former.is_surely_owned();
        assert!(!does_former || !does_next, "both {:?} after the claim", claimed.elapsed());
        does_next.then_some(())
    });
    assert!(before.elapsed() >= SENDS_AFTER);
    until("it is told", || (count.load(Ordering::Relaxed) > began).then_some(()));
    assert!(matches!(next.owner(), Some((name, Epoch(2..))) if name == "QM2"));
}

#[test]
fn a_leader_that_is_cut_off_makes_no_owner_sure() {
    let cluster = Cluster::start(Setup { can_be_cut: true, ..Setup::default() });
    claim(&mut open(cluster.options("STALE", "QM0")), Claim::IfFree);
    let leader = cluster.leader("STALE");
    let servers = cluster.servers();
    let mut options = cluster.options("STALE", "QM1");
    options.servers = vec![servers[leader].clone()];
    let mut former = open(options);
    claim(&mut former, Claim::Force);
    let mut options = cluster.options("STALE", "QM2");
    options.servers = (0..3).filter(|server| *server != leader).map(|server| servers[server].clone()).collect();
    let mut next = open(options);
    until("the owner may send", || former.is_surely_owned().then_some(()));
    cluster.isolate(leader);
    let cut = Instant::now();
    claim(&mut next, Claim::Force);
    println!("the others have another owner {:.1} s after the cut", cut.elapsed().as_secs_f64());
    until("the claimant may send", || {
        let does_next = next.is_surely_owned();
        let does_former = former.is_surely_owned();
        assert!(!does_former || !does_next, "both {:?} after the cut", cut.elapsed());
        does_next.then_some(())
    });
}

#[test]
fn what_is_let_go_takes_no_claim_with_it() {
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("RELEASE", "QM1"));
    let (_, mut end) = claim(&mut owner, Claim::IfFree);
    let mut batches = Vec::new();
    for seed in 0..10 {
        let next = batch(end, 24, 1_000, seed);
        end = append(&mut owner, copy(&next));
        batches.push(next);
    }
    let mut slow = open(cluster.options("RELEASE", "QM2"));
    let (at, _) = replay(&mut slow, None);
    for (before, left) in [(Position(batches[4].at + 8), 6), (end, 1), (Position(u64::MAX), 1)] {
        owner.release(before).unwrap();
        until("batches are let go", || (cluster.raw().subjects("RELEASE")["RELEASE.log"] == left).then_some(()));
        let subjects = cluster.raw().subjects("RELEASE");
        assert!(subjects["RELEASE.epoch"].as_u64() >= Some(1), "{subjects}");
    }
    assert_eq!(owner.start(), Position(batches[9].at));
    let next = batch(end, 24, 8, 99);
    end = append(&mut owner, copy(&next));
    batches.push(next);
    // The fence holds: the record is still what an append expects.
    let mut other = open(cluster.options("RELEASE", "QM3"));
    let claimed = claim(&mut other, Claim::Force);
    assert_eq!(claimed.1, end);
    assert_eq!(replay(&mut other, None), (end, expected(&batches[9..])));
    // It may have heard of the claim by itself.
    let submitted = owner.submit(batch(end, 24, 8, 1));
    assert!(matches!(submitted, Ok(()) | Err((_, LogError::Owned { .. }))), "{submitted:?}");
    let deposed = event(&mut owner);
    assert!(matches!(deposed, Event::Deposed { by } if by <= claimed.0), "{deposed:?} by {claimed:?}");
    // Records of owners go once nothing before them is left.
    end = append(&mut other, batch(end, 24, 8, 100));
    other.release(end).unwrap();
    until("the first owner's record is let go", || {
        (cluster.raw().subjects("RELEASE")["RELEASE.epoch"] == 1).then_some(())
    });
    // One that follows goes on where it is, or is told to begin again.
    let again = answered(|| slow.replay(Some(at), &mut |_| {}));
    assert!(matches!(again, Err(OpenError::Log(LogError::Released { .. }))), "{again:?}");
    let (stopped, found) = replay(&mut slow, None);
    assert_eq!((stopped, found.len()), (end, 1));
}

#[test]
fn a_damaged_message_is_found() {
    let cluster = Cluster::shared();
    let raw = cluster.raw();
    // A frame whose contents were changed; one that is none; one that leaves a gap; a claim that knows more than there
    // is.
    let frame = |epoch: Epoch, kind: Kind, at: u64, payload: &[u8]| {
        let (head_bytes, payload_crc) = (if kind == Kind::Epoch { 0 } else { 40 }, crc32c::crc32c(payload));
        Frame { kind, epoch: epoch.0, at, head_bytes, body_bytes: payload.len() as u32, payload_crc }
    };
    for (index, what) in ["checksum", "frame", "gap", "claim"].into_iter().enumerate() {
        let group = format!("DAMAGE{index}");
        let mut owner = open(cluster.options(&group, "QM1"));
        let (epoch, start) = claim(&mut owner, Claim::IfFree);
        let end = append(&mut owner, batch(start, 24, 100, 1));
        drop(owner);
        let payload = [5; 64];
        let whole = |at: u64| [&frame(epoch, Kind::Whole, at, &payload).encode(&group)[..], &payload].concat();
        let (subject, message) = match what {
            "checksum" => ("log", [&whole(end.0)[..100], &[6; 4]].concat()),
            "frame" => ("log", b"hello".to_vec()),
            "gap" => ("log", whole(end.0 + 104)),
            _ => ("epoch", [&frame(epoch, Kind::Epoch, end.0 + 8, b"QM").encode(&group)[..], b"QM"].concat()),
        };
        raw.publish(&format!("{group}.{subject}"), &message);
        let claims = raw.subjects(&group)[format!("{group}.epoch")].clone();
        let mut reader = open(cluster.options(&group, "QM2"));
        let is_damaged = |found: &Result<(), OpenError>| matches!(found, Err(OpenError::Log(LogError::Damaged { at, .. })) if *at == end);
        // The server that is asked may not have the message yet.
        until(what, || {
            let replayed = answered(|| reader.replay(None, &mut |_| {})).map(drop);
            assert!(replayed.is_ok() || is_damaged(&replayed), "{what}: {replayed:?}");
            is_damaged(&replayed).then_some(())
        });
        let claimed = answered(|| reader.claim(Instant::now(), Claim::Force)).map(drop);
        assert!(is_damaged(&claimed), "{what}: {claimed:?}");
        assert_eq!(raw.subjects(&group)[format!("{group}.epoch")], claims, "nothing was claimed");
    }
}

#[test]
fn a_damaged_part_is_found_when_it_is_read() {
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("BADPART", "QM1"));
    let (epoch, start) = claim(&mut owner, Claim::IfFree);
    owner.reserve(2 << 20, 0).unwrap();
    let large = batch(start, 24, 2 << 20, 1);
    append(&mut owner, copy(&large));
    // The last part goes.
    let raw = cluster.raw();
    let part = format!("BADPART.part.{}.{}.4", epoch.0, start.0);
    assert_eq!(raw.subjects("BADPART")[&part], 1);
    raw.purge("BADPART", &part);
    let mut other = open(cluster.options("BADPART", "QM2"));
    claim(&mut other, Claim::Force);
    replay(&mut other, None);
    let bodies_at = Position(large.at + large.head.len() as u64);
    let mut into = Vec::new();
    tried("a body is read", || other.read_now(bodies_at, 1_000, &mut into));
    let damaged = answered(|| other.read_now(bodies_at, large.body.len(), &mut into));
    assert!(matches!(damaged, Err(OpenError::Log(LogError::Damaged { .. }))), "{damaged:?}");
}

#[test]
fn second_copies_and_late_frames_of_others_do_not_count() {
    let cluster = Cluster::shared();
    let raw = cluster.raw();
    let mut owner = open(cluster.options("COPIES", "QM1"));
    let (first, mut end) = claim(&mut owner, Claim::IfFree);
    let mut batches = vec![batch(end, 24, 100, 1)];
    end = append(&mut owner, copy(&batches[0]));
    let mut other = open(cluster.options("COPIES", "QM2"));
    claim(&mut other, Claim::Force);
    // As if the fence had let them in: the first batch again, and one that the first owner sends after the claim.
    let whole = |batch: &Batch| {
        let payload = [&batch.head[FRAME_HEADER_BYTES..], &batch.body].concat();
        let (head_bytes, body_bytes) = (batch.head.len() as u32, batch.body.len() as u32);
        let payload_crc = crc32c::crc32c(&payload);
        let frame = Frame { kind: Kind::Whole, epoch: first.0, at: batch.at, head_bytes, body_bytes, payload_crc };
        [&frame.encode("COPIES")[..], &payload].concat()
    };
    for message in [whole(&batches[0]), whole(&batch(end, 24, 100, 2))] {
        raw.publish("COPIES.log", &message);
    }
    batches.push(batch(end, 24, 100, 3));
    end = append(&mut other, copy(&batches[1]));
    let mut reader = open(cluster.options("COPIES", "QM3"));
    assert_eq!(claim(&mut reader, Claim::Force).1, end);
    assert_eq!(replay(&mut reader, None), (end, expected(&batches)));
}

#[test]
fn a_stream_that_is_not_as_a_log_needs_it_is_refused() {
    let cluster = Cluster::shared();
    let raw = cluster.raw();
    let other = serde_json::json!({
        "name": "OTHER", "subjects": ["OTHER.epoch", "OTHER.log", "OTHER.part.>"],
        "num_replicas": 3, "max_bytes": 1 << 20, "discard": "old", "allow_direct": true,
    });
    until("the stream is made", || raw.api("STREAM.CREATE.OTHER", other.clone())?["error"].is_null().then_some(()));
    refused(&cluster.options("OTHER", "QM1"), "another discard");
    for group in ["", "A.B", "A*", "A B", "ÄRGER"] {
        assert!(JetStreamLog::open(cluster.options(group, "QM1")).is_err(), "{group}");
    }
}

#[test]
fn durability_that_is_not_known_is_refused_or_told() {
    let cluster = Cluster::shared();
    let blind = |durability| {
        let mut options = cluster.options("BLIND", "QM1");
        options.monitors.truncate(2);
        options.durability = durability;
        options
    };
    refused(&blind(Durability::Required), "not known");
    assert_eq!(open(blind(Durability::AsFound)).limits().survives, Survives::Unknown);
    let lazy = Cluster::start(Setup { servers: 1, sync_interval: None, ..Setup::default() });
    refused(&lazy.options("LAZY", "QM1"), "set sync_interval: always");
    let mut options = lazy.options("LAZY", "QM1");
    options.durability = Durability::AsFound;
    // The server may be slow to say it.
    let survives = || open(options.clone()).limits().survives;
    until("it is known", || (survives() == Survives::Process).then_some(()));
    let one = Cluster::start(Setup { servers: 1, ..Setup::default() });
    assert_eq!(open(one.options("ONE", "QM1")).limits().survives, Survives::Power);
}

/// How long a server has to bring its copy up to date before it is started again.
const COPIED_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_killed_leader_loses_nothing_and_doubles_nothing() {
    let cluster = Cluster::start(Setup::default());
    let mut owner = open(cluster.options("KILL", "QM1"));
    let (_, mut end) = claim(&mut owner, Claim::IfFree);
    let mut batches = Vec::new();
    for round in 0..3 {
        for seed in 0..20 {
            let next = batch(end, 24, 2_048, round * 100 + seed);
            end = append(&mut owner, copy(&next));
            batches.push(next);
        }
        let leader = cluster.leader("KILL");
        // Its answer may be lost: the batch is under way when the leader dies.
        let next = batch(end, 24, 200_000, round * 100 + 99);
        let began = Instant::now();
        owner.submit(copy(&next)).unwrap();
        cluster.kill_server(leader);
        end = next.end();
        batches.push(next);
        assert_eq!(event(&mut owner), Event::Synced(end));
        let next = batch(end, 24, 8, round);
        end = append(&mut owner, copy(&next));
        batches.push(next);
        println!("appends go on {:.1} s after the kill of leader n{leader}", began.elapsed().as_secs_f64());
        cluster.start_server(leader);
        let mut looked = Instant::now();
        until("all copies are there again", || {
            let info = cluster.raw().api("STREAM.INFO.KILL", serde_json::json!({}))?;
            let copies = info["cluster"]["replicas"].as_array()?.clone();
            let are_there = copies.len() == 2 && copies.iter().all(|one| one["current"] == true);
            if !are_there && looked.elapsed() > COPIED_WITHIN {
                // Seen once on a busy machine, for three minutes: an administrator would start that server again.
                println!("not all copies are there: {}", info["cluster"]);
                cluster.kill_server(leader);
                cluster.start_server(leader);
                looked = Instant::now();
            }
            are_there.then_some(())
        });
    }
    let mut other = open(cluster.options("KILL", "QM2"));
    let leader = cluster.leader("KILL");
    cluster.kill_server(leader);
    let began = Instant::now();
    let claimed = claim(&mut other, Claim::Force);
    println!("a claim during the election took {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(claimed.1, end);
    assert_eq!(replay(&mut other, None), (end, expected(&batches)));
    append(&mut other, batch(end, 24, 8, 1));
}

// It has no majority, and goes on talking with its client.
#[test]
fn a_leader_that_is_cut_off_confirms_nothing_and_its_client_leaves_it() {
    let cluster = Cluster::start(Setup { can_be_cut: true, ..Setup::default() });
    let mut first = open(cluster.options("CUT", "QM1"));
    let (_, mut end) = claim(&mut first, Claim::IfFree);
    let mut batches = vec![batch(end, 24, 2_048, 0)];
    end = append(&mut first, copy(&batches[0]));
    let leader = cluster.leader("CUT");
    // The owner reaches all servers, but for now the leader alone.
    let ways: Vec<Network> = cluster.servers().chunks(1).map(Network::before).collect();
    let others = || ways.iter().enumerate().filter(|(server, _)| *server != leader).map(|(_, way)| way);
    others().for_each(|way| way.breaks(0));
    let mut options = cluster.options("CUT", "QM2");
    options.servers = ways.iter().map(|way| way.addresses[0].clone()).collect();
    let mut owner = open(options);
    claim(&mut owner, Claim::Force);
    others().for_each(Network::heals);
    cluster.isolate(leader);
    let began = Instant::now();
    for seed in 1..4 {
        let next = batch(end, 24, 2_048, seed);
        end = append(&mut owner, copy(&next));
        batches.push(next);
    }
    println!("appends go on {:.1} s after the leader n{leader} was cut off", began.elapsed().as_secs_f64());
    until("the others lead", || (cluster.leader_by_others("CUT", leader) != leader).then_some(()));
    cluster.rejoin();
    let mut third = open(cluster.options("CUT", "QM3"));
    assert_eq!(claim(&mut third, Claim::Force).1, end);
    assert_eq!(replay(&mut third, None), (end, expected(&batches)));
}

#[test]
fn a_full_stream_takes_removals_and_claims() {
    let cluster = Cluster::shared();
    let mut options = cluster.options("FULL", "QM1");
    options.stream_bytes = 4 << 20;
    let mut owner = open(options.clone());
    let (_, mut end) = claim(&mut owner, Claim::IfFree);
    let first = end;
    // As a store does: a reserve is kept when it puts.
    const RESERVE: u64 = 64 << 10;
    let mut count = 0;
    while owner.space() >= 32_864 + RESERVE {
        end = append(&mut owner, batch(end, 24, 32_800, count));
        count += 1;
    }
    assert!(count > 20, "{count}");
    assert!(matches!(owner.reserve(owner.limits().batch_bytes_max, 0), Err(LogError::Full)));
    assert!(matches!(owner.reserve(4 << 20, 0), Err(LogError::Full)));
    // The reserve lasts for small batches of as many bytes, and a claim still finds room.
    let small = 64;
    for _ in 0..RESERVE / small {
        end = append(&mut owner, batch(end, 24, 0, 1));
    }
    let mut other = open(options);
    let claimed = claim(&mut other, Claim::Force);
    assert_eq!(claimed.1, end);
    let space = other.space();
    assert_eq!(replay(&mut other, None).0, end);
    // What is let go is free again.
    other.release(Position(end.0 - small)).unwrap();
    until("space comes back", || (other.space() > space + (256 << 10)).then_some(()));
    let end = append(&mut other, batch(end, 24, 100_000, 2));
    assert!(end > first);
}

#[test]
fn a_batch_refused_as_too_much_enters_when_there_is_room() {
    let cluster = Cluster::shared();
    let raw = cluster.raw();
    let mut options = cluster.options("BRIM", "QM1");
    options.stream_bytes = 1 << 20;
    let mut owner = open(options);
    let (_, mut end) = claim(&mut owner, Claim::IfFree);
    end = append(&mut owner, batch(end, 24, 400_000, 1));
    // Rubbish of someone else fills what its owner counted on.
    raw.publish("BRIM.part.9.9.9", &vec![0; 600_000]);
    let next = batch(end, 24, 100_000, 2);
    end = next.end();
    owner.submit(next).unwrap();
    let mut events = Vec::new();
    until("the log says that it is full", || {
        matches!(owner.poll(Instant::now(), &mut events, &mut Vec::new()), Err(LogError::Full)).then_some(())
    });
    assert_eq!(events, Vec::new());
    raw.purge("BRIM", "BRIM.part.>");
    assert_eq!(event(&mut owner), Event::Synced(end));
}

// The same epoch record is there, so that the fence keeps nothing out.
#[test]
fn nothing_is_written_behind_the_end_of_a_log_that_was_restored_under_its_owner() {
    let cluster = Cluster::start(Setup { servers: 1, ..Setup::default() });
    let mut owners = ["IDLE", "BUSY"].map(|group| open(cluster.options(group, "QM1")));
    let saved = owners.each_mut().map(|owner| {
        let (_, end) = claim(owner, Claim::IfFree);
        append(owner, batch(end, 24, 2_048, 1))
    });
    cluster.end_server(0);
    cluster.copy_store(0, false);
    cluster.start_server(0);
    let mut ends = saved;
    for (owner, end) in owners.iter_mut().zip(&mut ends) {
        for seed in 2..5 {
            *end = append(owner, batch(*end, 24, 2_048, seed));
        }
    }
    let mut standby = open(cluster.options("IDLE", "QM2"));
    assert_eq!(replay(&mut standby, None).0, ends[0]);
    cluster.end_server(0);
    cluster.copy_store(0, true);
    // While no server is there, and after it: what was sent meanwhile may enter when there is one.
    owners[1].submit(batch(ends[1], 24, 2_048, 5)).unwrap();
    cluster.start_server(0);
    for owner in &mut owners {
        let reason =
            until("the owner has failed", || match owner.poll(Instant::now(), &mut Vec::new(), &mut Vec::new()) {
                Ok(()) | Err(LogError::Unavailable(_)) => None,
                Err(error) => Some(error.to_string()),
            });
        assert!(reason.contains("gone back"), "{reason}");
    }
    // A claim says how far its claimer has read.
    until("the claim is refused", || {
        let refused = standby.claim(Instant::now(), Claim::Force).expect_err("it has read what is not there");
        refused.to_string().contains("gone back").then_some(())
    });
    for (group, end) in ["IDLE", "BUSY"].into_iter().zip(saved) {
        let mut next = open(cluster.options(group, "QM3"));
        assert_eq!(claim(&mut next, Claim::Force).1, end);
        assert_eq!(replay(&mut next, None).0, end);
        append(&mut next, batch(end, 24, 8, 6));
    }
}

#[test]
fn an_end_waits_for_what_is_under_way() {
    let cluster = Cluster::shared();
    let mut owner = open(cluster.options("SETTLE", "QM1"));
    let (_, end) = claim(&mut owner, Claim::IfFree);
    let next = batch(end, 24, 100_000, 1);
    let end = next.end();
    owner.submit(next).unwrap();
    let (_, busy) = owner.submit(batch(end, 24, 8, 2)).unwrap_err();
    assert!(matches!(busy, LogError::Busy));
    let mut events = Vec::new();
    // It waits for some time, and then the log says what is wrong.
    tried("the end", || {
        owner.settle();
        owner.poll(Instant::now(), &mut events, &mut Vec::new())
    });
    assert_eq!(events, [Event::Synced(end)]);
}
