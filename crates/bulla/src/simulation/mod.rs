//! A whole queue manager in a test, on a simulated clock, network and disk.
//!
//! One thread calls the turns of a real dispatcher over a real store. Its disk is [`bulla_queue::sim::SimDisk`], its
//! connections are bytes in memory, and time goes by when the simulation says so. Clients speak AMQP by the engine of
//! this project. All that happens follows from a seed: what clients do, how slow the network and the disk are, where
//! connections break, when the disk is full, and at which of its steps the power goes. [`checker::Checker`] knows what
//! clients were promised.
//!
//! A failure names the seed. `BULLA_SEED=n` runs that seed alone, `BULLA_STEPS=n` so many steps, and `BULLA_TRACE=1`
//! writes each event on standard error. `BULLA_SECONDS=n` runs new seeds for so long: `make simulate`.
//!
//! Two queues are protected. What adapters do is done by the same thread, in the order in which it came. OpenSSL's
//! randomness is its own, so nothing of a sealed message but its length is part of what happens.
//!
//! [`pair::Pair`] joins two queue managers by channels; [`group::Group`] has three that are members of a group.
//!
//! What is not simulated: `objects.mqsc`, the audit log and the file of users, TLS, and the meters of processor time.

mod away;
mod body;
mod checker;
mod client;
mod events;
mod full_journal;
#[cfg(feature = "shared")]
mod group;
mod late_log;
mod liar;
mod look;
mod node;
mod pair;
mod patience;
mod plain;
mod protection;
#[cfg(feature = "shared")]
mod shared_log;
mod two_stores;
mod waiting_get;
mod web;
mod world;

use crate::log::EXIT_UNWINDS;
use crate::wall_clock::wall_ms;
use crate::whole::harness::seeds_and_steps;
use events::Run;
use pair::Pair;
use std::time::{Duration, Instant, SystemTime};
use world::World;

/// Half a minute without optimisation, and less than a minute with it: most of the time is RSA's.
const SEEDS: u64 = if cfg!(debug_assertions) { 10 } else { 40 };
const STEPS: u64 = 20_000;
/// Of two queue managers.
const PAIR_SEEDS: u64 = if cfg!(debug_assertions) { 4 } else { 16 };
const PAIR_STEPS: u64 = 20_000;
/// Of three members of a group.
#[cfg(feature = "shared")]
const GROUP_SEEDS: u64 = if cfg!(debug_assertions) { 3 } else { 8 };
#[cfg(feature = "shared")]
const GROUP_STEPS: u64 = 20_000;

/// What follows from a seed, in so many steps.
type Simulated = fn(u64, u64) -> Result<Run, String>;

/// Runs a seed of a simulation, and says which it was where that fails.
fn run(simulated: Simulated, seed: u64, steps: u64) -> Run {
    /// Says the seed also where something panics.
    struct Says(u64);
    impl Drop for Says {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the simulation failed: BULLA_SEED={} runs this one alone", self.0);
            }
        }
    }
    let says = Says(seed);
    EXIT_UNWINDS.set(true);
    let run = simulated(seed, steps);
    EXIT_UNWINDS.set(false);
    let run = run.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    drop(says);
    run
}

/// Runs the seeds that are asked for, or new ones for the time that is asked for.
fn run_all(simulated: Simulated, usual_seeds: u64, usual_steps: u64) {
    let (seeds, steps) = seeds_and_steps(usual_seeds, usual_steps);
    let seconds = std::env::var("BULLA_SECONDS").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    // Each longer run has seeds of its own.
    let first = if seconds.is_some() && seeds.start == 0 { wall_ms(SystemTime::now()) } else { seeds.start };
    let began = Instant::now();
    let (mut simulated_time, mut last) = (Duration::ZERO, first);
    while seconds.map_or(last < seeds.end, |seconds| began.elapsed() < seconds) {
        let run = run(simulated, last, steps);
        println!("seed {last}: {:.0?} {:?}", run.simulated, run.counts);
        (simulated_time, last) = (simulated_time + run.simulated, last + 1);
    }
    let real = began.elapsed();
    println!(
        "seeds {first} to {last} of {steps} steps: {simulated_time:.0?} simulated in {real:.1?}, {:.0} times as fast",
        simulated_time.as_secs_f64() / real.as_secs_f64()
    );
}

#[test]
fn whatever_happens_clients_find_what_they_were_promised() {
    run_all(World::run, SEEDS, STEPS);
}

#[test]
fn whatever_happens_channels_bring_each_message_once() {
    run_all(Pair::run, PAIR_SEEDS, PAIR_STEPS);
}

#[test]
#[cfg(feature = "shared")]
fn whatever_happens_a_group_has_one_owner_and_keeps_what_was_promised() {
    run_all(group::Group::run, GROUP_SEEDS, GROUP_STEPS);
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    let (seeds, _) = seeds_and_steps(3, STEPS);
    let mut all: Vec<Simulated> = vec![World::run, Pair::run];
    #[cfg(feature = "shared")]
    all.push(group::Group::run);
    for seed in seeds {
        for &simulated in &all {
            assert_eq!(run(simulated, seed, STEPS / 4).digest, run(simulated, seed, STEPS / 4).digest, "seed {seed}");
        }
    }
}
