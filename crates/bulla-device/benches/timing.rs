//! Whether the time of an unwrap tells a wrapped key with bad padding from one with good padding around a wrong key.
//!
//! `cargo bench -p bulla-device --bench timing` unwraps both kinds in random order, thousands of times, on the CPU and on
//! the accelerator, for OAEP and PKCS#1 v1.5, and compares the two sets of times by Welch's t-test, whole and with
//! the slowest cut off at several percentiles (as dudect does: interruptions hide small differences). Neither kind may
//! give an error, and both give a key of the asked length. Where the greatest |t| stays below 4.5 they can't be told
//! apart by it. A control that must be told apart, a wrapped key of a wrong length (which anybody can see, so it may be
//! answered at once), shows that the measurement sees a difference where there is one. Arguments: samples of each
//! kind (20,000 by default) and bits of the key (1024). The exit code is 1 if a verdict is not the expected one.

#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Instant;

use bulla_device::{
    Accelerator, CpuDevice, Device, Digest, Finished, Job, LIBRARY_FILE, PrivateKey, Random, RsaPadding, SystemRandom,
    Work,
};
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};

/// The customary limit of leakage tests: |t| above it is no accident.
const T_MAX: f64 = 4.5;
/// Different wrapped keys of each kind, so that no single number's time decides.
const POOL: usize = 64;
const PERCENTILES: [f64; 6] = [1.0, 0.99, 0.95, 0.9, 0.75, 0.5];
const KEY_BYTES: usize = 32;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench").map(|word| word.parse().unwrap());
    let samples: usize = arguments.next().unwrap_or(20_000);
    let bits = arguments.next().unwrap_or(1024) as u32;
    let rsa = Rsa::generate(bits).unwrap();
    let key = PrivateKey::clear(PKey::from_rsa(rsa.clone()).unwrap()).unwrap();
    let mut devices: Vec<(&str, Box<dyn Device>)> = vec![("CPU", Box::new(CpuDevice::new("cpu")))];
    let library = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join(LIBRARY_FILE);
    match Accelerator::open("lanes", &library) {
        Ok(accelerator) => devices.push(("ACCELERATOR", Box::new(accelerator.engine().unwrap()))),
        Err(error) => eprintln!("skipped: the accelerator's timing: {error}"),
    }
    println!("RSA {bits}, {samples} unwraps of each kind in random order; the greatest |t| of {PERCENTILES:?}");
    println!("{:<12} {:<8} {:<26} {:>10} {:>10} {:>8}  verdict", "", "", "", "good, µs", "other, µs", "|t|");
    let mut as_expected = true;
    for (name, device) in &mut devices {
        for (padding_name, padding) in
            [("OAEP", RsaPadding::Oaep { digest: Digest::Sha256 }), ("PKCS1", RsaPadding::Pkcs1)]
        {
            let job = |wrapped| Job::new(key.clone(), Work::RsaUnwrap { padding, wrapped, expected_len: KEY_BYTES });
            let good: Vec<Job> = (0..POOL).map(|_| job(good(&rsa, padding))).collect();
            let bad: Vec<Job> = (0..POOL).map(|turn| job(bad(&rsa, padding, turn))).collect();
            let short: Vec<Job> = (0..POOL).map(|_| job(vec![1; rsa.size() as usize - 1])).collect();
            for (what, other, alike) in [("bad padding", &bad, true), ("control: a wrong length", &short, false)] {
                let samples = if alike { samples } else { samples / 10 };
                let [times, other_times] = measure(&mut **device, [&good, other], samples);
                let t = greatest_t(&times, &other_times);
                let told_apart = t >= T_MAX;
                as_expected &= told_apart != alike;
                println!(
                    "{name:<12} {padding_name:<8} {what:<26} {:>10.2} {:>10.2} {t:>8.2}  {}",
                    median(&times),
                    median(&other_times),
                    match (told_apart, alike) {
                        (false, true) => "can't be told apart",
                        (true, false) => "told apart, as it must be",
                        (true, true) => "TOLD APART",
                        (false, false) => "NOT TOLD APART: the measurement is blind",
                    }
                );
            }
        }
    }
    if !as_expected {
        std::process::exit(1);
    }
}

/// Microseconds of each unwrap, by kind; which kind is next, and which of its pool, is drawn.
fn measure(device: &mut dyn Device, kinds: [&[Job]; 2], samples: usize) -> [Vec<f64>; 2] {
    let mut times: [Vec<f64>; 2] = Default::default();
    let mut draws = vec![[0u8; 2]; 2 * samples];
    SystemRandom.fill(draws.as_flattened_mut()).unwrap();
    let mut jobs = Vec::with_capacity(1);
    let mut done: Vec<Finished> = Vec::with_capacity(1);
    for (turn, [kind, member]) in draws.into_iter().enumerate() {
        let kind = usize::from(kind & 1);
        jobs.push(kinds[kind][usize::from(member) % POOL].clone());
        let start = Instant::now();
        device.submit(&mut jobs).unwrap();
        device.poll(&mut done).unwrap();
        let time = start.elapsed();
        let result = done.remove(0).result.expect("an unwrap is never an error");
        assert_eq!(result.len(), KEY_BYTES);
        // The first ones warm the caches.
        if turn >= POOL {
            times[kind].push(time.as_nanos() as f64 / 1000.0);
        }
    }
    times
}

/// Good padding around a key: a random one, so it is nobody's.
fn good(rsa: &Rsa<Private>, padding: RsaPadding) -> Vec<u8> {
    let mut key = [0; KEY_BYTES];
    SystemRandom.fill(&mut key).unwrap();
    let public = PKey::from_rsa(rsa.clone()).unwrap();
    let mut context = PkeyCtx::new(&public).unwrap();
    context.encrypt_init().unwrap();
    match padding {
        RsaPadding::Oaep { digest } => {
            context.set_rsa_padding(Padding::PKCS1_OAEP).unwrap();
            context.set_rsa_oaep_md(digest.md()).unwrap();
            context.set_rsa_mgf1_md(digest.md()).unwrap();
        }
        RsaPadding::Pkcs1 => context.set_rsa_padding(Padding::PKCS1).unwrap(),
    }
    let mut wrapped = Vec::new();
    context.encrypt_to_vec(&key, &mut wrapped).unwrap();
    wrapped
}

/// Padding that is broken early, late or altogether, in turn.
fn bad(rsa: &Rsa<Private>, padding: RsaPadding, turn: usize) -> Vec<u8> {
    let len = rsa.size() as usize;
    let mut block = vec![0; len];
    rsa.private_decrypt(&good(rsa, padding), &mut block, Padding::NONE).unwrap();
    match turn % 4 {
        0 => block[0] ^= 1,
        1 => block[1] ^= 3,
        // The separator, or what hides it.
        2 => block[len - 1 - KEY_BYTES] ^= 1,
        _ => {
            SystemRandom.fill(&mut block).unwrap();
            block[0] = 0;
        }
    }
    let mut wrapped = vec![0; len];
    // A first byte of 1 can be too much for the modulus only where that begins with 1 as well, and it has all its bits.
    rsa.public_encrypt(&block, &mut wrapped, Padding::NONE).unwrap();
    wrapped
}

fn greatest_t(a: &[f64], b: &[f64]) -> f64 {
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    PERCENTILES
        .into_iter()
        .map(|percentile| {
            let limit = all[((all.len() - 1) as f64 * percentile) as usize];
            welch(a, b, limit)
        })
        .fold(0.0, f64::max)
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
    // How many fall below the limit tells kinds apart as well, where one of them has none there at all.
    if error_a + error_b == 0.0 { 0.0 } else { (mean_a - mean_b).abs() / (error_a + error_b).sqrt() }
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
