//! How fast this machine is at the moment: the same signature, again and again on every core, beside what is measured.
//!
//! A virtual machine shares its cores with others, and what the same work takes there changes by half within seconds, on each core by
//! itself. A measurement says more when it says how fast the cores were meanwhile. A signature stays within the innermost caches, is made
//! once before its time is taken, and processor time counts: so it tells about the cores, and little about what runs beside it.

use super::service_times::median;
use crate::error::{Error, Result};
use crate::result::Sample;
use bulla_device::thread_cpu_ns;
use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bits of the key of the reference signature.
const KEY_BITS: u32 = 1024;
/// What is signed: as long as a SHA-256 digest.
const SIGNED: [u8; 32] = [7; 32];
/// Between two looks at a core, which take some 0.25 ms of it.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Signatures of which one reading between other measurements takes the median.
const SIGNATURES: usize = 5;
/// A sample with fewer looks at each core has no pace.
const LOOKS_MIN: u64 = 8;
/// What a sample's findings call it.
const FOUND: &str = "pace-us";

/// The reference signature. Its key is made for this and thrown away: it protects nothing.
pub(crate) struct Reference {
    key: Rsa<Private>,
    signature: Vec<u8>,
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reference")
    }
}

impl Reference {
    /// With a key of its own.
    ///
    /// # Errors
    /// [`Error::Device`]: no key could be made.
    pub(crate) fn new() -> Result<Reference> {
        let key = Rsa::generate(KEY_BITS).map_err(failed)?;
        let signature = vec![0; key.size() as usize];
        Ok(Reference { key, signature })
    }

    fn sign(&mut self) -> Result<f64> {
        let begun = thread_cpu_ns();
        self.key.private_encrypt(&SIGNED, &mut self.signature, Padding::PKCS1).map_err(failed)?;
        Ok(thread_cpu_ns().saturating_sub(begun) as f64 / 1e3)
    }

    /// What it takes now, microseconds: between two other measurements.
    ///
    /// # Errors
    /// [`Error::Device`]: it failed.
    pub(crate) fn us(&mut self) -> Result<f64> {
        let signatures = (0..SIGNATURES).map(|_| self.sign()).collect::<Result<Vec<f64>>>()?;
        Ok(median(signatures))
    }

    /// The same beside other work: once for the caches, then the one that counts.
    fn look(&mut self) -> Result<f64> {
        self.sign()?;
        self.sign()
    }
}

fn failed(error: openssl::error::ErrorStack) -> Error {
    Error::Device(format!("the reference signature failed: {error}"))
}

/// Looks at every core until it is ended.
#[derive(Debug)]
pub(crate) struct Watch {
    counts: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Looks>>>,
}

/// Of one core: how many looks, and the sum of how many signatures would be made in a microsecond. Such a mean is right for rates: a
/// core that is twice as fast half of the time does half as much again.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: u64,
    speed: f64,
}

impl Watch {
    /// A thread on every core that this process may use. What they see counts from [`count`](Self::count) on.
    ///
    /// # Errors
    /// [`Error::System`]: no thread.
    pub(crate) fn start() -> Result<Watch> {
        let mut watch = Watch { counts: Arc::default(), over: Arc::default(), threads: Vec::new() };
        let allowed = sched_getaffinity(None).map_err(std::io::Error::from)?;
        for core in (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)) {
            let (counts, over) = (Arc::clone(&watch.counts), Arc::clone(&watch.over));
            let name = format!("pace-{core}");
            watch.threads.push(thread::Builder::new().name(name).spawn(move || looks(core, &counts, &over))?);
        }
        Ok(watch)
    }

    /// From now on.
    pub(crate) fn count(&self) {
        self.counts.store(true, Ordering::Release);
    }

    /// Until now: what a signature took, microseconds. None where too little was seen.
    ///
    /// # Errors
    /// As [`Reference::new`], and what ended a thread.
    pub(crate) fn end(mut self) -> Result<Option<f64>> {
        self.over.store(true, Ordering::Release);
        let mut cores = Vec::new();
        for thread in self.threads.drain(..) {
            cores.push(
                thread.join().map_err(|_| Error::Device("a thread that watched a core ended early".to_owned()))??,
            );
        }
        Ok(mean(&cores))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Cores count alike.
fn mean(cores: &[Looks]) -> Option<f64> {
    if cores.is_empty() || cores.iter().any(|looks| looks.count < LOOKS_MIN) {
        return None;
    }
    let speed: f64 = cores.iter().map(|looks| looks.speed / looks.count as f64).sum();
    Some(cores.len() as f64 / speed)
}

/// The life of a thread that looks at one core.
fn looks(core: usize, counts: &AtomicBool, over: &AtomicBool) -> Result<Looks> {
    let mut reference = Reference::new()?;
    let mut here = CpuSet::new();
    here.set(core);
    // Where the system won't have it so, the thread looks at whichever core it is on.
    let _ = sched_setaffinity(None, &here);
    let mut looks = Looks::default();
    while !over.load(Ordering::Acquire) {
        let us = reference.look()?;
        if counts.load(Ordering::Acquire) && us > 0.0 {
            looks.count += 1;
            looks.speed += 1.0 / us;
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(looks)
}

/// Writes it down with a sample.
pub(crate) fn note(sample: &mut Sample, pace_us: f64) {
    sample.found.insert(FOUND.to_owned(), pace_us);
}

/// That of a sample, microseconds; 0 where it was not looked at.
pub(crate) fn of(sample: &Sample) -> f64 {
    sample.found.get(FOUND).copied().unwrap_or_default()
}

/// The one in the middle; 0 where one is not known.
pub(crate) fn middle(paces: &[f64]) -> f64 {
    match paces.is_empty() || paces.iter().any(|pace| *pace <= 0.0) {
        true => 0.0,
        false => median(paces.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_twice_as_fast_half_of_the_time_does_half_as_much_again() {
        let slow = Looks { count: 10, speed: 10.0 / 100.0 };
        let mixed = Looks { count: 10, speed: 5.0 / 100.0 + 5.0 / 50.0 };
        assert!((mean(&[mixed]).unwrap() - 100.0 / 1.5).abs() < 1e-9);
        assert!((mean(&[slow, mixed]).unwrap() - 100.0 / 1.25).abs() < 1e-9);
        assert_eq!(mean(&[slow, Looks { count: 1, ..mixed }]), None, "of a core that was hardly seen nothing is known");
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn a_signature_takes_time_and_every_core_is_watched() {
        assert!(Reference::new().unwrap().us().unwrap() > 0.0);
        let watch = Watch::start().unwrap();
        assert_eq!(watch.threads.len(), sched_getaffinity(None).unwrap().count() as usize);
        assert_eq!(watch.end().unwrap(), None, "nothing counted yet");
    }

    #[test]
    fn a_sample_keeps_its_pace() {
        let mut sample = Sample::default();
        assert_eq!(of(&sample), 0.0);
        note(&mut sample, 101.5);
        assert_eq!(of(&sample), 101.5);
        assert_eq!(middle(&[101.5, 99.0, 120.0]), 101.5);
        assert_eq!(middle(&[101.5, 0.0]), 0.0);
    }
}
