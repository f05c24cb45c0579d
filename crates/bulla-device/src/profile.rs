//! Profiles of devices that this machine does not have: what they can do, and how long each operation takes.
//!
//! The built-in ones are crypto cards of a mainframe as performance studies of message protection describe them. Few of
//! their times were published; the others follow from published rates, and every time carries its [`Mark`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::ml_dsa::MlDsa;
use crate::ml_kem::MlKem;
use crate::work::{Form, Shape};

/// Where a service time is from; said wherever it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It was published.
    Published,
    /// It follows from what was published.
    Derived,
    /// The definition of the device gives it.
    Given,
}

impl Mark {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mark::Published => "published",
            Mark::Derived => "derived",
            Mark::Given => "given",
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// How long an engine takes for one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTime {
    /// The operation's arithmetic and size.
    pub shape: Shape,
    /// The time.
    pub time: Duration,
    /// Where it is from.
    pub mark: Mark,
}

/// As SERVICE takes it, with its mark: `RSA-CRT-2048=596 published`, in microseconds.
impl fmt::Display for ServiceTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = FORMS.iter().find(|(_, form)| *form == self.shape.form).map_or("", |(word, _)| word);
        let micros = self.time.as_nanos() as f64 / 1e3;
        write!(out, "{form}-{}={micros} {}", self.shape.bits, self.mark)
    }
}

/// What a modelled device can do, and how fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    name: String,
    times: BTreeMap<Shape, (Duration, Mark)>,
}

/// The commander's turn: a service time that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    /// What stands there.
    pub text: String,
}

impl std::error::Error for ProfileError {}

impl fmt::Display for ProfileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is not OPERATION-BITS=MICROSECONDS, as in RSA-CRT-2048=507", self.text)
    }
}

/// Longest service time that a profile takes.
pub(crate) const SERVICE_TIME_MAX: Duration = Duration::from_secs(60);
/// The words for forms in service times.
const FORMS: [(&str, Form); 11] = [
    ("RSA-CRT", Form::RsaCrt),
    ("RSA-ME", Form::RsaMe),
    ("RSA-MEPRIV", Form::RsaMePrivate),
    ("ECDSA-SIGN", Form::EcdsaSign),
    ("ECDSA-VERIFY", Form::EcdsaVerify),
    ("ECDH", Form::Ecdh),
    ("ECDH-EPHEMERAL", Form::EcdhEphemeral),
    ("ML-DSA-SIGN", Form::MlDsaSign),
    ("ML-DSA-VERIFY", Form::MlDsaVerify),
    ("ML-KEM-ENCAPSULATE", Form::MlKemEncapsulate),
    ("ML-KEM-DECAPSULATE", Form::MlKemDecapsulate),
];
const RSA_BITS: [u32; 4] = [1024, 2048, 3072, 4096];
const EC_BITS: [u32; 5] = [192, 224, 256, 384, 521];

/// Published transactions a second with integrity and 2 KB: one requester and one server, so that nothing is done at
/// the same time as something else, and each transaction has two messages that are signed and checked.
const TRANSACTIONS: Transactions = Transactions { rsa1024: 1342, rsa4096: 122, p192: 804, p521: 149 };

struct Transactions {
    rsa1024: u64,
    rsa4096: u64,
    p192: u64,
    p521: u64,
}

/// Nanoseconds of a message, of two in a transaction, at so many transactions a second.
const fn message_ns(transactions: u64) -> u64 {
    1_000_000_000 / transactions / 2
}

/// A secure-key coprocessor's RSA with 2048 bits, nanoseconds: published.
const COPROCESSOR_RSA2048_NS: u64 = 596_000;
/// An accelerator's RSA with 2048 bits, nanoseconds: published.
const ACCELERATOR_ME2048_NS: u64 = 46_000;
const ACCELERATOR_CRT2048_NS: u64 = 507_000;
/// What it takes to check a signature with RSA 1024 there, as [`Profile::accelerator`] scales it.
const ACCELERATOR_ME1024_NS: u64 = ACCELERATOR_ME2048_NS / 4;
/// RSA 1024 has no published time. This is the most that a message leaves for the signature beside the check.
const COPROCESSOR_RSA1024_NS: u64 = message_ns(TRANSACTIONS.rsa1024) - ACCELERATOR_ME1024_NS;
/// What a message takes longer with RSA 4096 than with RSA 1024, 3.73 ms, is its signature.
const COPROCESSOR_RSA4096_NS: u64 =
    COPROCESSOR_RSA1024_NS + message_ns(TRANSACTIONS.rsa4096) - message_ns(TRANSACTIONS.rsa1024);
/// Signature and check with a curve: all that a message leaves. How they share it was not published: equally here.
const COPROCESSOR_P192_NS: u64 = message_ns(TRANSACTIONS.p192) / 2;
const COPROCESSOR_P521_NS: u64 = message_ns(TRANSACTIONS.p521) / 2;

/// The time for `bits` on the curve `time = a × bits^b` through two known ones, nanoseconds.
fn between(bits: u32, (low_bits, low_ns): (u32, u64), (high_bits, high_ns): (u32, u64)) -> u64 {
    let ratio = |high: f64, low: f64| (high / low).ln();
    let power = ratio(high_ns as f64, low_ns as f64) / ratio(f64::from(high_bits), f64::from(low_bits));
    (low_ns as f64 * (f64::from(bits) / f64::from(low_bits)).powf(power)).round() as u64
}

impl Profile {
    /// A secure-key coprocessor. RSA 2048 is published; the times of RSA 1024 and 4096 and of P-192 and P-521 follow
    /// from published rates, and the others lie between those.
    ///
    /// It signs, checks signatures by curves, and unwraps. The time of a key agreement is taken for that of a
    /// signature.
    pub fn coprocessor() -> Profile {
        let rsa = |bits| match bits {
            1024 => (COPROCESSOR_RSA1024_NS, Mark::Derived),
            2048 => (COPROCESSOR_RSA2048_NS, Mark::Published),
            4096 => (COPROCESSOR_RSA4096_NS, Mark::Derived),
            bits => (between(bits, (2048, COPROCESSOR_RSA2048_NS), (4096, COPROCESSOR_RSA4096_NS)), Mark::Derived),
        };
        let curve = |bits| match bits {
            192 => (COPROCESSOR_P192_NS, Mark::Derived),
            521 => (COPROCESSOR_P521_NS, Mark::Derived),
            bits => (between(bits, (192, COPROCESSOR_P192_NS), (521, COPROCESSOR_P521_NS)), Mark::Derived),
        };
        let of_rsa = [Form::RsaCrt, Form::RsaMePrivate]
            .into_iter()
            .flat_map(|form| RSA_BITS.map(|bits| (Shape { form, bits }, rsa(bits))));
        let of_curves = [Form::EcdsaSign, Form::EcdsaVerify, Form::Ecdh]
            .into_iter()
            .flat_map(|form| EC_BITS.map(|bits| (Shape { form, bits }, curve(bits))));
        Profile::new("coprocessor", of_rsa.chain(of_curves))
    }

    /// A clear-key RSA accelerator: 0.046 ms for ME and 0.507 ms for CRT with 2048 bits, both published.
    /// Other sizes are derived, as the arithmetic grows: ME by the square and CRT by the cube of the length;
    /// no elliptic curves.
    pub fn accelerator() -> Profile {
        let scaled = |at_2048: u64, bits: u32, power: u32| {
            let (ratio, base) = (u64::from(bits / 1024).pow(power), 2_u64.pow(power));
            (at_2048 * ratio / base, if bits == 2048 { Mark::Published } else { Mark::Derived })
        };
        let me = RSA_BITS.map(|bits| (Shape { form: Form::RsaMe, bits }, scaled(ACCELERATOR_ME2048_NS, bits, 2)));
        let crt = RSA_BITS.map(|bits| (Shape { form: Form::RsaCrt, bits }, scaled(ACCELERATOR_CRT2048_NS, bits, 3)));
        Profile::new("accelerator", me.into_iter().chain(crt))
    }

    fn new(name: &str, times: impl Iterator<Item = (Shape, (u64, Mark))>) -> Profile {
        let times = times.map(|(shape, (ns, mark))| (shape, (Duration::from_nanos(ns), mark))).collect();
        Profile { name: name.to_owned(), times }
    }
    /// A profile with other, or more, service times: `RSA-CRT-2048=507,ECDSA-SIGN-256=80`, microseconds.
    ///
    /// # Errors
    /// [`ProfileError`] with the part that can't be read.
    pub fn with_times(mut self, text: &str) -> Result<Profile, ProfileError> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let time = read_time(part).ok_or_else(|| ProfileError { text: part.to_owned() })?;
            self.times.insert(time.shape, (time.time, time.mark));
        }
        Ok(self)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every operation it has, with its time.
    pub fn times(&self) -> impl Iterator<Item = ServiceTime> + '_ {
        self.times.iter().map(|(shape, (time, mark))| ServiceTime { shape: *shape, time: *time, mark: *mark })
    }

    /// How long an operation takes; none where it has none.
    pub fn time(&self, shape: Shape) -> Option<Duration> {
        self.times.get(&shape).map(|(time, _)| *time)
    }
}

fn read_time(part: &str) -> Option<ServiceTime> {
    let (operation, micros) = part.split_once('=')?;
    let (form, bits) = operation.trim().rsplit_once('-')?;
    let bits = bits.parse().ok()?;
    let form = FORMS.iter().find(|(word, _)| word.eq_ignore_ascii_case(form)).map(|(_, form)| *form)?;
    let known = match form {
        Form::RsaCrt | Form::RsaMe | Form::RsaMePrivate => RSA_BITS.contains(&bits),
        Form::EcdsaSign | Form::EcdsaVerify | Form::Ecdh | Form::EcdhEphemeral => EC_BITS.contains(&bits),
        Form::MlDsaSign | Form::MlDsaVerify => MlDsa::ALL.iter().any(|set| set.number() == bits),
        Form::MlKemEncapsulate | Form::MlKemDecapsulate => MlKem::ALL.iter().any(|set| set.number() == bits),
    };
    let micros: f64 = micros.trim().parse().ok().filter(|micros: &f64| micros.is_finite() && *micros > 0.0)?;
    let time = Duration::try_from_secs_f64(micros / 1e6).ok().filter(|time| *time <= SERVICE_TIME_MAX)?;
    known.then_some(ServiceTime { shape: Shape { form, bits }, time, mark: Mark::Given })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(profile: &Profile, form: Form, bits: u32) -> Option<(f64, Mark)> {
        let found = profile.times().find(|time| time.shape == Shape { form, bits })?;
        Some((found.time.as_nanos() as f64 / 1e3, found.mark))
    }

    #[test]
    fn profiles_have_the_published_times_and_take_others() {
        let accelerator = Profile::accelerator();
        assert_eq!(time(&accelerator, Form::RsaMe, 2048), Some((46.0, Mark::Published)));
        assert_eq!(time(&accelerator, Form::RsaCrt, 4096), Some((507.0 * 8.0, Mark::Derived)));
        assert_eq!(time(&accelerator, Form::EcdsaSign, 256), None);
        let coprocessor = Profile::coprocessor().with_times("rsa-crt-2048 = 1000, ECDSA-VERIFY-521=12.5").unwrap();
        assert_eq!(time(&coprocessor, Form::RsaCrt, 2048), Some((1000.0, Mark::Given)));
        assert_eq!(time(&coprocessor, Form::EcdsaVerify, 521), Some((12.5, Mark::Given)));
        let post_quantum = Profile::accelerator().with_times("ML-DSA-SIGN-65=300,ML-KEM-DECAPSULATE-768=25").unwrap();
        assert_eq!(time(&post_quantum, Form::MlDsaSign, 65), Some((300.0, Mark::Given)));
        assert_eq!(time(&post_quantum, Form::MlKemDecapsulate, 768), Some((25.0, Mark::Given)));
        for wrong in [
            "RSA-CRT-2047=5",
            "RSA-CRT-2048",
            "RSA-CRT-2048=-1",
            "AES-256=1",
            "ML-DSA-SIGN-66=1",
            "RSA-CRT-2048=1e99",
            "ECDH-256=nan",
        ] {
            assert_eq!(Profile::accelerator().with_times(wrong), Err(ProfileError { text: wrong.to_owned() }));
        }
    }

    /// Transactions a second of two messages, where nothing but devices takes time.
    fn transactions(us_a_message: f64) -> f64 {
        1e6 / (2.0 * us_a_message)
    }

    #[test]
    fn a_coprocessor_beside_an_accelerator_comes_to_the_published_rates() {
        let (c, a) = (Profile::coprocessor(), Profile::accelerator());
        let us = |profile: &Profile, form, bits| time(profile, form, bits).unwrap().0;
        assert_eq!(time(&c, Form::RsaCrt, 2048), Some((596.0, Mark::Published)));
        let rsa1024 = us(&c, Form::RsaCrt, 1024);
        assert!((us(&c, Form::RsaCrt, 4096) - rsa1024 - 3_730.0).abs() < 10.0, "3.73 ms more than RSA 1024");
        assert!((transactions(rsa1024 + us(&a, Form::RsaMe, 1024)) - 1342.0).abs() < 1.0);
        for (bits, published) in [(192, 804.0), (521, 149.0)] {
            let message = us(&c, Form::EcdsaSign, bits) + us(&c, Form::EcdsaVerify, bits);
            assert!((transactions(message) - published).abs() < 1.0, "P-{bits}");
            assert_eq!(time(&c, Form::EcdsaSign, bits).unwrap().1, Mark::Derived);
        }
    }

    #[test]
    fn a_longer_key_takes_longer() {
        let profile = Profile::coprocessor();
        for (form, lengths) in [(Form::RsaCrt, RSA_BITS.as_slice()), (Form::EcdsaSign, EC_BITS.as_slice())] {
            let times = lengths.iter().map(|bits| time(&profile, form, *bits).unwrap().0);
            assert!(times.clone().zip(times.skip(1)).all(|(shorter, longer)| shorter < longer), "{form}");
        }
    }

    #[test]
    fn a_time_is_shown_as_it_is_given_and_with_its_mark() {
        let shown: Vec<String> = Profile::coprocessor().times().map(|time| time.to_string()).collect();
        assert!(shown.contains(&"RSA-CRT-2048=596 published".to_owned()), "{shown:?}");
        assert!(shown.iter().all(|time| time.ends_with(" published") || time.ends_with(" derived")), "{shown:?}");
    }
}
