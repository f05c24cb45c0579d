//! What a store promises, over real servers, while owners, servers and the network between them fail at random.
//!
//! `BULLA_SEED=n` makes the same choices again, `BULLA_FAULTS=n` so many of them.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

#[path = "../../bulla-queue/tests/promises/mod.rs"]
mod promises;
mod servers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bulla_queue::log::Claim;
use bulla_queue::sim::SimDisk;
use bulla_queue::{FileSpill, Standby, Store};
use bulla_shared::JetStreamLog;
use fastrand::Rng;

use promises::{Model, Stopped, Workload, contents};
use servers::network::{Fault, Network};
use servers::{Cluster, Setup, tried, until};

const GROUP: &str = "FAULTS";
/// Faults of a short run: half a minute, most of which is elections.
const FAULTS: usize = 16;
/// Things done between two faults, at most.
const OPERATIONS_MAX: usize = 120;
/// How long the network fails at most.
const FAILS_MAX_MS: u64 = 3_000;
/// Bytes that wait for the log, from which on nothing new is done.
const BACKLOG_BYTES_MAX: u64 = 20_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Another queue manager becomes the owner, whatever the last one does.
fn take_over(cluster: &Cluster, network: &Network, owner: u64, random: &mut Rng) -> Store {
    let mut options = cluster.options(GROUP, &format!("QM{owner}"));
    options.servers.clone_from(&network.addresses);
    if random.bool() {
        // What has no answer is looked for in the log at once, and not sent again for a minute before.
        options.retry_within = Duration::ZERO;
    }
    let spill = Box::new(FileSpill::open(SimDisk::default(), 1 << 20).unwrap());
    let standby = tried("the log is claimed", || {
        let mut standby = Standby::new(Box::new(JetStreamLog::open(options.clone())?));
        standby.claim(Instant::now(), Claim::Force).map(|()| standby)
    });
    standby.into_store(spill, promises::limits(), Instant::now()).unwrap()
}

/// Does some things, as quickly as the log takes them.
fn work(workload: &mut Workload<'_>, operations: usize) {
    for _ in 0..operations {
        match workload.operation() {
            // A body can't be read for now.
            Ok(()) | Err(Stopped::Read) => {}
            Err(error) => panic!("{error:?}"),
        }
        until("the log takes what waits", || {
            workload.store.poll(Instant::now()).unwrap();
            (workload.store.store_status().backlog_bytes <= BACKLOG_BYTES_MAX).then_some(())
        });
    }
}

#[test]
fn whatever_fails_the_promises_hold() {
    let seed = number("BULLA_SEED").unwrap_or(1);
    let faults = number("BULLA_FAULTS").map_or(FAULTS, |faults| faults as usize);
    let mut random = Rng::with_seed(seed);
    let cluster = Cluster::start(Setup { can_be_cut: true, ..Setup::default() });
    let network = Network::before(&cluster.servers());
    let mut model = Model::default();
    let mut counts = BTreeMap::<&str, usize>::new();
    let (mut done, mut owner, mut confirmed) = (0, 0, 0);
    while done < faults {
        owner += 1;
        let mut store = take_over(&cluster, &network, owner, &mut random);
        confirmed += check(&mut model, &mut store, seed, owner);
        let mut workload = Workload::begin(&mut store, &mut model, random.u64(..400)).unwrap().unwrap();
        loop {
            work(&mut workload, random.usize(..OPERATIONS_MAX));
            done += 1;
            let time = Duration::from_millis(random.u64(..FAILS_MAX_MS));
            let server = random.usize(..3);
            let what = match random.u8(..20) {
                0..=3 => {
                    network.cut();
                    "connections cut"
                }
                4..=6 => {
                    network.fails(Fault::Refuses, time);
                    "all connections refused"
                }
                7..=10 => {
                    network.fails(Fault::Mute, time);
                    "answers lost"
                }
                11 | 12 => {
                    cluster.kill_server(server);
                    work(&mut workload, random.usize(..OPERATIONS_MAX));
                    cluster.start_server(server);
                    "a server killed"
                }
                13 => {
                    cluster.end_server(server);
                    work(&mut workload, random.usize(..OPERATIONS_MAX));
                    cluster.start_server(server);
                    "a server ended"
                }
                14 => {
                    cluster.isolate(server);
                    work(&mut workload, random.usize(..OPERATIONS_MAX));
                    cluster.rejoin();
                    "a server cut off from the others"
                }
                15 => {
                    (0..3).for_each(|server| cluster.kill_server(server));
                    (0..3).for_each(|server| cluster.start_server(server));
                    "all servers killed"
                }
                _ => break,
            };
            *counts.entry(what).or_default() += 1;
        }
        if random.bool() {
            *counts.entry("an owner gone").or_default() += 1;
        } else {
            // It does not know that it is none, and goes on trying.
            std::mem::forget(store);
            *counts.entry("an owner deposed").or_default() += 1;
        }
    }
    let mut store = take_over(&cluster, &network, owner + 1, &mut random);
    confirmed += check(&mut model, &mut store, seed, owner + 1);
    println!("seed {seed}: {counts:?}, {confirmed} units of work, {} bytes of answers lost", network.lost());
    assert!(confirmed > 10 * faults, "{confirmed} units of work");
}

/// What an owner finds is what it must find. Returns how many units of work were confirmed since the last one.
fn check(model: &mut Model, store: &mut Store, seed: u64, owner: u64) -> usize {
    let since = model.units.len().min(model.confirmed);
    match model.explain(&contents(store)) {
        Ok(units) => model.restart(units),
        Err(broken) => panic!("seed {seed}, owner {owner}: {broken}"),
    }
    since
}
