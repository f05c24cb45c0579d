//! How fast this machine is at the moment: the same signatures, again and again on every core, beside what is measured.
//!
//! A virtual machine shares its cores with others, and what the same work takes there changes by half within seconds,
//! on each core by itself. A measurement says more when it says how fast the cores were meanwhile. A signature stays
//! within the innermost caches, is made once before its time is taken, and processor time counts: so it tells about the
//! cores, and little about what runs beside it.
//!
//! There are two, because not all code slows down alike while a neighbour has the other half of a core: P-224, P-384
//! and P-521, the compiled arithmetic of curves that OpenSSL has no code of their own for, kept to P-192 within 0.5 to
//! 1.1 % from one half second to the next (standard deviation, 12 s), and to RSA 1024 within 2.1 to 2.6 %; RSA 2048 and
//! P-256 kept to RSA within 1.2 and 1.6 %, and to P-192 within 2.6 %.

use super::profile::Pace;
use super::service_times::median;
use super::teller::Teller;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::result::Sample;
use crate::run::measure::{Running, Timing, measure};
use bulla_device::thread_cpu_ns;
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
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
/// So many of them for one at the curve, which takes some 0.9 ms.
const LOOKS_A_CURVE: u64 = 4;
/// Signatures of which one reading between other measurements takes the median.
const SIGNATURES: usize = 5;
/// A sample with fewer looks at each core has no pace.
const LOOKS_MIN: u64 = 8;
/// What a sample's findings call it.
const FOUND: [&str; 2] = ["pace-us", "curve-pace-us"];

/// The reference signatures. Their keys are made for this and thrown away: they protect nothing.
pub(crate) struct Reference {
    rsa: Rsa<Private>,
    signature: Vec<u8>,
    curve: EcKey<Private>,
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reference")
    }
}

impl Reference {
    /// With keys of its own.
    ///
    /// # Errors
    /// [`Error::Device`]: no key could be made.
    pub(crate) fn new() -> Result<Reference> {
        let rsa = Rsa::generate(KEY_BITS).map_err(failed)?;
        let signature = vec![0; rsa.size() as usize];
        let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME192V1).and_then(|group| EcKey::generate(&group));
        Ok(Reference { rsa, signature, curve: curve.map_err(failed)? })
    }

    fn sign(&mut self) -> Result<f64> {
        let begun = thread_cpu_ns();
        self.rsa.private_encrypt(&SIGNED, &mut self.signature, Padding::PKCS1).map_err(failed)?;
        Ok(thread_cpu_ns().saturating_sub(begun) as f64 / 1e3)
    }

    fn sign_on_curve(&mut self) -> Result<f64> {
        let begun = thread_cpu_ns();
        EcdsaSig::sign(&SIGNED, &self.curve).map_err(failed)?;
        Ok(thread_cpu_ns().saturating_sub(begun) as f64 / 1e3)
    }

    /// What they take now, between two other measurements.
    ///
    /// # Errors
    /// [`Error::Device`]: one failed.
    pub(crate) fn pace(&mut self) -> Result<Pace> {
        let rsa = (0..SIGNATURES).map(|_| self.sign()).collect::<Result<Vec<f64>>>()?;
        let curve = (0..SIGNATURES).map(|_| self.sign_on_curve()).collect::<Result<Vec<f64>>>()?;
        Ok(Pace { rsa_us: median(rsa), curve_us: median(curve) })
    }

    /// The same beside other work: once for the caches, then the one that counts.
    fn look(&mut self) -> Result<f64> {
        self.sign()?;
        self.sign()
    }

    fn look_at_curve(&mut self) -> Result<f64> {
        self.sign_on_curve()?;
        self.sign_on_curve()
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
    threads: Vec<JoinHandle<Result<[Looks; 2]>>>,
}

/// Of one core: how many looks, and the sum of how many signatures would be made in a microsecond. Such a mean is right
/// for rates: a core that is twice as fast half of the time does half as much again.
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

    /// Until now: what the signatures took. None where too little was seen.
    ///
    /// # Errors
    /// As [`Reference::new`], and what ended a thread.
    pub(crate) fn end(mut self) -> Result<Option<Pace>> {
        self.over.store(true, Ordering::Release);
        let (mut rsa, mut curve) = (Vec::new(), Vec::new());
        for thread in self.threads.drain(..) {
            let [of_rsa, of_curve] =
                thread.join().map_err(|_| Error::Device("a thread that watched a core ended early".to_owned()))??;
            rsa.push(of_rsa);
            curve.push(of_curve);
        }
        let pace = mean(&rsa, LOOKS_MIN).zip(mean(&curve, LOOKS_MIN / LOOKS_A_CURVE));
        Ok(pace.map(|(rsa_us, curve_us)| Pace { rsa_us, curve_us }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Cores count alike.
fn mean(cores: &[Looks], least: u64) -> Option<f64> {
    if cores.is_empty() || cores.iter().any(|looks| looks.count < least) {
        return None;
    }
    let speed: f64 = cores.iter().map(|looks| looks.speed / looks.count as f64).sum();
    Some(cores.len() as f64 / speed)
}

/// The life of a thread that looks at one core.
fn looks(core: usize, counts: &AtomicBool, over: &AtomicBool) -> Result<[Looks; 2]> {
    let mut reference = Reference::new()?;
    let mut here = CpuSet::new();
    here.set(core);
    // Where the system won't have it so, the thread looks at whichever core it is on.
    let _ = sched_setaffinity(None, &here);
    let (mut rsa, mut curve) = (Looks::default(), Looks::default());
    for number in 0_u64.. {
        if over.load(Ordering::Acquire) {
            break;
        }
        let on_curve = number.is_multiple_of(LOOKS_A_CURVE);
        let us = reference.look()?;
        let curve_us = if on_curve { reference.look_at_curve()? } else { 0.0 };
        if counts.load(Ordering::Acquire) {
            rsa.add(us);
            curve.add(curve_us);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok([rsa, curve])
}

impl Looks {
    fn add(&mut self, us: f64) {
        if us > 0.0 {
            self.count += 1;
            self.speed += 1.0 / us;
        }
    }
}

/// Takes a sample, and notes how fast the cores were meanwhile.
///
/// # Errors
/// What ended a load; whatever the teller says.
pub(super) fn watched(
    host: &dyn Host,
    running: Running,
    configuration: &Configuration,
    timing: Timing,
    teller: &Teller,
) -> Result<Sample> {
    let watch = Watch::start()?;
    let warm = timing.warm_up.as_secs_f64() / (timing.warm_up + timing.measured).as_secs_f64();
    let mut sample = measure(host, running, configuration, timing, &mut |live| {
        if live.done >= warm {
            watch.count();
        }
        teller.check().is_ok()
    })?;
    teller.check()?;
    if let Some(pace) = watch.end()? {
        note(&mut sample, pace);
    }
    Ok(sample)
}

/// Writes it down with a sample.
pub(crate) fn note(sample: &mut Sample, pace: Pace) {
    for (name, us) in FOUND.into_iter().zip([pace.rsa_us, pace.curve_us]) {
        sample.found.insert(name.to_owned(), us);
    }
}

/// That of a sample; 0 where it was not looked at.
pub(crate) fn of(sample: &Sample) -> Pace {
    let [rsa_us, curve_us] = FOUND.map(|name| sample.found.get(name).copied().unwrap_or_default());
    Pace { rsa_us, curve_us }
}

/// The one in the middle, of each signature by itself; 0 where one is not known.
pub(crate) fn middle(paces: &[Pace]) -> Pace {
    let middle = |of: fn(&Pace) -> f64| {
        let paces: Vec<f64> = paces.iter().map(of).collect();
        if paces.is_empty() || paces.iter().any(|pace| *pace <= 0.0) { 0.0 } else { median(paces) }
    };
    Pace { rsa_us: middle(|pace| pace.rsa_us), curve_us: middle(|pace| pace.curve_us) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_twice_as_fast_half_of_the_time_does_half_as_much_again() {
        let slow = Looks { count: 10, speed: 10.0 / 100.0 };
        let mixed = Looks { count: 10, speed: 5.0 / 100.0 + 5.0 / 50.0 };
        assert!((mean(&[mixed], LOOKS_MIN).unwrap() - 100.0 / 1.5).abs() < 1e-9);
        assert!((mean(&[slow, mixed], LOOKS_MIN).unwrap() - 100.0 / 1.25).abs() < 1e-9);
        let hardly = Looks { count: 1, ..mixed };
        assert_eq!(mean(&[slow, hardly], LOOKS_MIN), None, "of a core that was hardly seen nothing is known");
        assert_eq!(mean(&[], LOOKS_MIN), None);
    }

    #[test]
    fn a_signature_takes_time_and_every_core_is_watched() {
        let pace = Reference::new().unwrap().pace().unwrap();
        assert!(pace.rsa_us > 0.0 && pace.curve_us > 0.0, "{pace:?}");
        let watch = Watch::start().unwrap();
        assert_eq!(watch.threads.len(), sched_getaffinity(None).unwrap().count() as usize);
        assert_eq!(watch.end().unwrap(), None, "nothing counted yet");
    }

    #[test]
    fn a_sample_keeps_its_pace() {
        let mut sample = Sample::default();
        assert_eq!(of(&sample), Pace::default());
        let pace = |rsa_us, curve_us| Pace { rsa_us, curve_us };
        note(&mut sample, pace(101.5, 380.0));
        assert_eq!(of(&sample), pace(101.5, 380.0));
        assert_eq!(middle(&[pace(101.5, 380.0), pace(99.0, 400.0), pace(120.0, 390.0)]), pace(101.5, 390.0));
        assert_eq!(middle(&[pace(101.5, 380.0), pace(0.0, 390.0)]), pace(0.0, 380.0 + 10.0));
    }
}
