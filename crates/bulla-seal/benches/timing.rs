//! Whether the time until a message is refused tells what was wrong inside its envelope.
//!
//! `cargo bench -p bulla-seal --bench timing` opens signed and encrypted messages that fail in different ways, in
//! random order, and compares the times of each way with those of the first (`leak/mod.rs` says how). AES-CBC: bad
//! padding; rubbish inside; a changed payload; a wrong signature. AES-GCM: a changed first byte, a changed last byte.
//! The signer has an RSA or an EC key and the reader the other kind, or ML-DSA and RSA; the signer was seen before or
//! not. The first way is there twice and must not be told from itself. A control, a payload 64 times as long, must be
//! told apart. Arguments: samples of each way (10,000 by default), different messages of each way (by default as many,
//! so that each is opened once), and a word that the name of a row must contain. The exit code is 1 if a verdict is not
//! the expected one.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../../bulla-device/benches/leak/mod.rs"]
mod leak;

use std::sync::Arc;
use std::time::Instant;

use bulla_device::{CpuDevice, Digest, MlDsa};
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::{ContentCipher, Pqc};
use bulla_seal::ring::Ring;
use bulla_seal::{OpenError, Opener, Policy, drive};
use bytes::Bytes;
use common::damaged::{Maker, ways};
use common::*;

const ML_DSA: KeySpec = KeySpec::MlDsa(MlDsa::MlDsa65);
/// Different messages of a control, which are long.
const CONTROL_MESSAGES: usize = 32;
/// The first openings, which warm the caches and are not counted.
const WARM_UP: usize = 128;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let samples: usize = arguments.next().map_or(10_000, |word| word.parse().unwrap());
    let different: usize = arguments.next().map_or(samples, |word| word.parse().unwrap());
    let wanted = arguments.next().unwrap_or_default();
    println!("{samples} refused messages of each way in random order, {different} different ones;");
    println!("the greatest |t| of {:?} against the first way", leak::PERCENTILES);
    println!("{:<14} {:<11} {:<18} {:>10} {:>8}  verdict", "cipher", "signer", "", "median, µs", "|t|");
    let mut as_expected = true;
    for cipher in [ContentCipher::Aes256Gcm, ContentCipher::Aes256Cbc] {
        for (spec, other) in [(RSA, P256), (P256, RSA), (ML_DSA, RSA)] {
            let world = World::new();
            let (alice, bob) = (world.person("alice", spec), world.person("bob", other));
            let sender = world.ring("alice", &[&alice], &[&bob]);
            let reader = world.ring("bob", &[&bob], &[&alice]);
            // ML-DSA takes SHA-512 alone (RFC 9882).
            let (digest, pqc, kind) = match spec {
                ML_DSA => (Digest::Sha512, Pqc::Allowed, "ML-DSA"),
                RSA => (Digest::Sha256, Pqc::None, "RSA"),
                _ => (Digest::Sha256, Pqc::None, "EC"),
            };
            let policy = policy_of(Some(digest), Some(cipher), &[&bob]);
            let policy = Arc::new(Policy { signers: vec![alice.dn.clone()], pqc, ..policy });
            let mut maker = Maker::new(&policy, &sender, bound());
            for known in [true, false] {
                let seen = if known { "seen" } else { "new" };
                let signer = format!("{kind} {seen}");
                if !format!("{cipher} {signer}").contains(&wanted) {
                    continue;
                }
                let opener = Opener::new();
                if known {
                    open_with(&opener, &policy, &reader, maker.good()).unwrap();
                }
                let ways = ways(cipher);
                let pools: Vec<Vec<Bytes>> = ways
                    .iter()
                    .map(|way| {
                        let count = if way.alike { different } else { CONTROL_MESSAGES };
                        (0..count).map(|_| maker.damaged(way)).collect()
                    })
                    .collect();
                let times = measure(&opener, &policy, &reader, &pools, samples);
                for (way, measured) in ways.iter().zip(&times) {
                    let t = leak::greatest_t(&times[0], measured);
                    let (expected, said) = leak::verdict(t, way.alike);
                    as_expected &= expected;
                    let median = leak::median(measured);
                    println!("{cipher:<14} {signer:<11} {:<18} {median:>10.2} {t:>8.2}  {said}", way.name);
                }
            }
        }
    }
    if !as_expected {
        std::process::exit(1);
    }
}

fn measure(
    opener: &Opener,
    policy: &Arc<Policy>,
    ring: &Arc<Ring>,
    pools: &[Vec<Bytes>],
    samples: usize,
) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(samples); pools.len()];
    let mut cpu = CpuDevice::new("cpu");
    for (turn, (way, member)) in leak::shuffled(&vec![samples; pools.len()]).into_iter().enumerate() {
        let der = pools[way][member % pools[way].len()].clone();
        let start = Instant::now();
        let result = opener.open(policy, ring, der, expect(), now(), now()).and_then(|step| drive(step, &mut cpu));
        let time = start.elapsed();
        assert_eq!(result.err(), Some(OpenError::CannotDecrypt));
        if turn >= WARM_UP {
            times[way].push(time.as_nanos() as f64 / 1000.0);
        }
    }
    times
}
