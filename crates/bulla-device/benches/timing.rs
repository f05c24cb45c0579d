//! Whether the time of an unwrap tells a wrapped key with bad padding from one with good padding around a wrong key.
//!
//! `cargo bench -p bulla-device --bench timing` unwraps both kinds in random order, thousands of times, on the CPU and
//! on the accelerator, for OAEP and PKCS#1 v1.5, and compares the two sets of times (`leak/mod.rs` says how). Neither
//! kind may give an error, and both give a key of the asked length. A control that must be told apart, a wrapped key of
//! a wrong length (which is visible to any observer, so it may be answered at once), shows that the measurement sees a
//! difference where there is one. Arguments: samples of each kind (20,000 by default) and bits of the key (1024). The
//! exit code is 1 if a verdict is not the expected one.

#![allow(missing_docs, clippy::unwrap_used)]

mod leak;

use std::time::Instant;

use bulla_device::{
    Accelerator, CpuDevice, Device, Digest, Finished, Job, LIBRARY_FILE, PrivateKey, Random, RsaPadding, SystemRandom,
    Work,
};
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};

/// The first unwraps, which warm the caches and are not counted.
const WARM_UP: usize = 128;
const KEY_BYTES: usize = 32;

/// Makes the wrapped key of this number.
type Make<'a> = dyn Fn(usize) -> Vec<u8> + 'a;

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
    println!("RSA {bits}, {samples} unwraps of each kind in random order; the greatest |t| of {:?}", leak::PERCENTILES);
    println!("{:<12} {:<8} {:<26} {:>10} {:>10} {:>8}  verdict", "", "", "", "good, µs", "other, µs", "|t|");
    let mut as_expected = true;
    for (name, device) in &mut devices {
        for (padding_name, padding) in
            [("OAEP", RsaPadding::Oaep { digest: Digest::Sha256 }), ("PKCS1", RsaPadding::Pkcs1)]
        {
            let job = |wrapped| Job::new(key.clone(), Work::RsaUnwrap { padding, wrapped, expected_len: KEY_BYTES });
            let short = |_| vec![1; rsa.size() as usize - 1];
            let bad = |turn| bad(&rsa, padding, turn);
            let others: [(&str, &Make, bool); 3] = [
                ("the same again", &|_| good(&rsa, padding), true),
                ("bad padding", &bad, true),
                ("control: a wrong length", &short, false),
            ];
            for (what, other, alike) in others {
                let samples = if alike { samples } else { samples / 10 };
                // Each wrapped key is unwrapped once.
                let kinds = [&|_| good(&rsa, padding), other]
                    .map(|make: &Make| (0..samples).map(|turn| job(make(turn))).collect::<Vec<Job>>());
                let [times, other_times] = measure(&mut **device, &kinds);
                let t = leak::greatest_t(&times, &other_times);
                let (expected, said) = leak::verdict(t, alike);
                as_expected &= expected;
                println!(
                    "{name:<12} {padding_name:<8} {what:<26} {:>10.2} {:>10.2} {t:>8.2}  {said}",
                    leak::median(&times),
                    leak::median(&other_times),
                );
            }
        }
    }
    if !as_expected {
        std::process::exit(1);
    }
}

/// Microseconds of each unwrap, by kind, in random order.
fn measure(device: &mut dyn Device, kinds: &[Vec<Job>; 2]) -> [Vec<f64>; 2] {
    let mut times: [Vec<f64>; 2] = Default::default();
    let mut jobs = Vec::with_capacity(1);
    let mut done: Vec<Finished> = Vec::with_capacity(1);
    for (turn, (kind, member)) in leak::shuffled(&kinds.each_ref().map(Vec::len)).into_iter().enumerate() {
        jobs.push(kinds[kind][member].clone());
        let start = Instant::now();
        device.submit(&mut jobs).unwrap();
        device.poll(&mut done).unwrap();
        let time = start.elapsed();
        let result = done.remove(0).result.expect("an unwrap is never an error");
        assert_eq!(result.len(), KEY_BYTES);
        if turn >= WARM_UP {
            times[kind].push(time.as_nanos() as f64 / 1000.0);
        }
    }
    times
}

/// Good padding around a key: a random one, so it belongs to no user.
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
