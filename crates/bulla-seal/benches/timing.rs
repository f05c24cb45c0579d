//! Whether the time until a message is refused tells what was wrong inside its envelope.
//!
//! `cargo bench -p bulla-seal --bench timing` opens signed and encrypted messages that fail in different ways, in
//! random order, and compares the times of each way with those of the first by Welch's t-test, whole and with the
//! slowest cut off at several percentiles (as dudect does: interruptions hide small differences). AES-CBC: bad padding;
//! rubbish inside; a changed payload; a wrong signature. AES-GCM: a changed first and last byte, a changed tag. The
//! signer has an RSA or an EC key, the reader the other kind; the signer was seen before or not. Where the greatest |t|
//! stays below 4.5 two ways can't be told apart by it. A control, a payload 64 times as long, must be told apart.
//! Argument: samples of each way (10,000 by default). The exit code is 1 if a verdict is not the expected one.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Instant;

use bulla_device::{CpuDevice, Digest, Operation, Output, Random, SystemRandom};
use bulla_seal::policy::ContentCipher;
use bulla_seal::ring::Ring;
use bulla_seal::{Content, OpenError, Opener, Packing, Policy, Step, drive};
use bytes::Bytes;
use common::tree::Node;
use common::*;

/// The customary limit of leakage tests: |t| above it is no accident.
const T_MAX: f64 = 4.5;
/// Different messages of each way to fail.
const POOL: usize = 32;
const PERCENTILES: [f64; 6] = [1.0, 0.99, 0.95, 0.9, 0.75, 0.5];
const PAYLOAD_BYTES: usize = 2048;

struct Way {
    name: &'static str,
    alike: bool,
    messages: Vec<Bytes>,
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench").map(|word| word.parse().unwrap());
    let samples: usize = arguments.next().unwrap_or(10_000);
    println!("{samples} refused messages of each way in random order; the greatest |t| of {PERCENTILES:?}");
    println!("{:<14} {:<8} {:<18} {:>10} {:>8}  verdict", "cipher", "signer", "", "median, µs", "|t|");
    let mut as_expected = true;
    for cipher in [ContentCipher::Aes256Gcm, ContentCipher::Aes256Cbc] {
        for (spec, other) in [(RSA, P256), (P256, RSA)] {
            let world = World::new();
            let (alice, bob) = (world.person("alice", spec), world.person("bob", other));
            let sender = world.ring("alice", &[&alice], &[&bob]);
            let reader = world.ring("bob", &[&bob], &[&alice]);
            let policy = policy_of(Some(Digest::Sha256), Some(cipher), &[&bob]);
            let policy = Arc::new(Policy { signers: vec![alice.dn.clone()], ..policy });
            let ways = ways(cipher, &policy, &sender);
            for known in [true, false] {
                let opener = Opener::new();
                if known {
                    let good = message(&policy, &sender, PAYLOAD_BYTES, false).write();
                    open_with(&opener, &policy, &reader, good.into()).unwrap();
                }
                let times = measure(&opener, &policy, &reader, &ways, samples);
                let seen = if known { "seen" } else { "new" };
                for (way, measured) in ways.iter().zip(&times) {
                    let t = greatest_t(&times[0], measured);
                    let told_apart = t >= T_MAX;
                    as_expected &= told_apart != way.alike;
                    println!(
                        "{cipher:<14} {:<8} {:<18} {:>10.2} {t:>8.2}  {}",
                        format!("{} {seen}", if spec == RSA { "RSA" } else { "EC" }),
                        way.name,
                        median(measured),
                        match (told_apart, way.alike) {
                            (false, true) => "can't be told apart",
                            (true, false) => "told apart, as it must be",
                            (true, true) => "TOLD APART",
                            (false, false) => "NOT TOLD APART: the measurement is blind",
                        }
                    );
                }
            }
        }
    }
    if !as_expected {
        std::process::exit(1);
    }
}

fn ways(cipher: ContentCipher, policy: &Arc<Policy>, sender: &Arc<Ring>) -> Vec<Way> {
    let bent = |path: &'static [usize], at: &'static dyn Fn(usize) -> usize| -> Vec<Bytes> {
        let mut pool = Vec::new();
        for _ in 0..POOL {
            let mut message = message(policy, sender, PAYLOAD_BYTES, false);
            let bytes = &mut message.at(path).bytes;
            let at = at(bytes.len());
            bytes[at] ^= 1;
            pool.push(message.write().into());
        }
        pool
    };
    let way = |name, alike, messages| Way { name, alike, messages };
    let long = |len| (0..POOL).map(|_| message(policy, sender, len, true).write().into()).collect();
    const CIPHERTEXT: &[usize] = &[1, 0, 2, 2];
    if cipher.is_authenticated() {
        return vec![
            way("first byte", true, bent(CIPHERTEXT, &|_| 0)),
            way("last byte", true, bent(CIPHERTEXT, &|len| len - 1)),
        ];
    }
    const VECTOR: &[usize] = &[1, 0, 2, 1, 1];
    vec![
        // The last byte of the block before the last: the padding's own last byte is another.
        way("bad padding", true, bent(CIPHERTEXT, &|len| len - 17)),
        way("rubbish inside", true, bent(VECTOR, &|_| 0)),
        way("changed payload", true, bent(CIPHERTEXT, &|_| 512)),
        way("wrong signature", true, long(PAYLOAD_BYTES)),
        way("control: longer", false, long(64 * PAYLOAD_BYTES)),
    ]
}

/// A message, signed rightly or not.
fn message(policy: &Arc<Policy>, sender: &Arc<Ring>, len: usize, wrong: bool) -> Node {
    let content = Content { packing: Packing::Data, content_type: None, bytes: Bytes::from(vec![b'x'; len]) };
    let mut step = sealer(policy, sender).seal(content, &bound(), now(), &mut SystemRandom).unwrap();
    loop {
        match step {
            Step::Done(sealed) => return Node::read(&sealed.der),
            Step::Device(job, go_on) => {
                let signs = matches!(job.work.operation(), Operation::RsaSign | Operation::EcdsaSign);
                let mut cpu = CpuDevice::new("cpu");
                let answer =
                    drive(Step::Device(job, Box::new(|answer| Ok::<_, OpenError>(Step::Done(answer)))), &mut cpu);
                let answer = answer.unwrap().map(|output| {
                    let mut bytes = output.to_vec();
                    // In the middle of a number.
                    let at = if bytes.len() > 128 { 100 } else { 16 };
                    if signs && wrong {
                        bytes[at] ^= 1;
                    }
                    Output::new(bytes)
                });
                step = go_on(answer).unwrap();
            }
        }
    }
}

fn measure(opener: &Opener, policy: &Arc<Policy>, ring: &Arc<Ring>, ways: &[Way], samples: usize) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(samples); ways.len()];
    let mut draws = vec![[0u8; 2]; ways.len() * samples];
    SystemRandom.fill(draws.as_flattened_mut()).unwrap();
    let mut cpu = CpuDevice::new("cpu");
    for (turn, [way, member]) in draws.into_iter().enumerate() {
        let way = usize::from(way) % ways.len();
        let der = ways[way].messages[usize::from(member) % POOL].clone();
        let start = Instant::now();
        let result = opener.open(policy, ring, der, expect(), now(), now()).and_then(|step| drive(step, &mut cpu));
        let time = start.elapsed();
        assert_eq!(result.err(), Some(OpenError::CannotDecrypt));
        // The first ones warm the caches.
        if turn >= 4 * POOL {
            times[way].push(time.as_nanos() as f64 / 1000.0);
        }
    }
    times
}

fn greatest_t(a: &[f64], b: &[f64]) -> f64 {
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    let at = |percentile: f64| all[((all.len() - 1) as f64 * percentile) as usize];
    PERCENTILES.into_iter().map(|percentile| welch(a, b, at(percentile))).fold(0.0, f64::max)
}

/// Welch's t of the times up to the limit.
fn welch(a: &[f64], b: &[f64], limit: f64) -> f64 {
    let moments = |times: &[f64]| {
        let kept: Vec<f64> = times.iter().copied().filter(|time| *time <= limit).collect();
        let count = kept.len().max(2) as f64;
        let mean = kept.iter().sum::<f64>() / count;
        let variance = kept.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    };
    let ((mean_a, error_a), (mean_b, error_b)) = (moments(a), moments(b));
    if error_a + error_b == 0.0 { 0.0 } else { (mean_a - mean_b).abs() / (error_a + error_b).sqrt() }
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
