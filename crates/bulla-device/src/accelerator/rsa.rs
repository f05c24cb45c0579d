//! RSA on the lanes: keys made ready, and private operations that are blinded and checked.

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::error::ErrorStack;
use openssl::pkey::Public;
use openssl::rsa::Rsa;
use zeroize::Zeroizing;

use super::library::{
    CrtKeys, LANES, Lanes, Library, Numbers, RSA_BYTES_MAX, RsaSize, STACK_BYTES_MAX, Scratch, clear, clear_stack,
};
use super::limbs::{LIMBS_MAX, Modulus, from_bytes, to_bytes, words_of};
use super::tamper::{Stage, Tampering};
use crate::device::DeviceError;
use crate::key::{COMMON_EXPONENT, PrivateKey, PublicKey};
use crate::random::{Random, SystemRandom};

/// How often a pair of blinding factors is squared before a new one is made. A pair costs an inversion, 15 to 25
/// times what a squaring of both costs, so that after 128 uses its share is small beside the squarings. What
/// bounds it: who learns one pair knows all that follow from it.
pub(super) const BLINDING_USES_MAX: u32 = 128;

/// An RSA public key in the lanes' form.
pub(super) struct PublicRsa {
    pub(super) size: RsaSize,
    pub(super) modulus: Modulus,
    /// The library's own form, for paddings.
    pub(super) rsa: Rsa<Public>,
}

impl PublicRsa {
    pub(super) fn new(key: &PublicKey) -> Result<PublicRsa, Unfit> {
        let rsa = key.key().rsa()?;
        let size = RsaSize::from_bits(key.bits()).ok_or(NOT_FOR_LANES)?;
        let modulus = Modulus::new(rsa.n(), size.limbs())?;
        Ok(PublicRsa { size, modulus, rsa })
    }

    /// Whether the bytes are as long as the modulus and below it.
    pub(super) fn is_input(&self, bytes: &[u8]) -> bool {
        let mut words = [0; LIMBS_MAX];
        let words = &mut words[..self.size.limbs()];
        from_bytes(words, bytes);
        bytes.len() == self.size.bytes() && self.modulus.is_above(words)
    }
}

/// An RSA private key in the lanes' form. All that is secret in it is zeroized when it is dropped.
pub(super) struct PrivateRsa {
    pub(super) public: PublicRsa,
    secret: Secret,
    blinding: Option<Blinding>,
}

enum Secret {
    Crt { p: Words, q: Words, dp: Words, dq: Words, iq: Words },
    Me { d: Words },
}

type Words = Zeroizing<Vec<u64>>;

/// r^e and r⁻¹ in Montgomery's form, for a random r.
struct Blinding {
    blind: Words,
    unblind: Words,
    uses: u32,
}

/// Why a key can't be made ready.
#[derive(Debug)]
pub(super) enum Unfit {
    /// The lanes can't work with it; another device may.
    No(&'static str),
    /// The library failed.
    Library(ErrorStack),
}

impl From<ErrorStack> for Unfit {
    fn from(errors: ErrorStack) -> Unfit {
        Unfit::Library(errors)
    }
}

impl Unfit {
    /// The answer to a job with such a private key, or to a request for an engine.
    pub(super) fn private(self, device: &str) -> DeviceError {
        match self {
            Unfit::No(why) => DeviceError::Refused { device: device.to_owned(), why: why.to_owned() },
            Unfit::Library(errors) => errors.into(),
        }
    }

    /// The answer to a job with such a public key. It may come from an unauthenticated client, so what OpenSSL says
    /// about it here is for another device to judge: the processor's verdict on a signature is the one that counts.
    pub(super) fn public(self, device: &str) -> DeviceError {
        let why = match self {
            Unfit::No(why) => why.to_owned(),
            Unfit::Library(errors) => errors.to_string(),
        };
        DeviceError::Refused { device: device.to_owned(), why }
    }
}

/// Another device may work with the primes' exponents of the same key, which have not been looked at.
const ANOTHER_EXPONENT: Unfit = Unfit::No("the key's private exponent is not that of its public one");
const NOT_FOR_LANES: Unfit = Unfit::No("the lanes do not do keys of this size or exponent");

/// Whether the lanes have this key's size, exponent and primes.
pub(super) fn fits(key: &PrivateKey) -> bool {
    let Some(rsa) = key.rsa() else { return false };
    let half = (key.bits() / 2) as i32;
    let equal = |prime: &BigNumRef| prime.num_bits() == half;
    RsaSize::from_bits(key.bits()).is_some()
        && key.public_key().has_common_exponent()
        && match (rsa.p(), rsa.q()) {
            (Some(p), Some(q)) => equal(p) && equal(q),
            _ => true,
        }
}

impl PrivateRsa {
    /// The key, with its primes in the order that the lanes want.
    ///
    /// # Errors
    /// [`Unfit`] for a key that [`fits`] refuses, or whose parts are not of one key: the public half would refute each
    /// of its results, as if the lanes had failed.
    pub(super) fn new(key: &PrivateKey) -> Result<PrivateRsa, Unfit> {
        let rsa = key.rsa().ok_or(NOT_FOR_LANES)?;
        if !fits(key) {
            return Err(NOT_FOR_LANES);
        }
        let public = PublicRsa::new(key.public_key())?;
        let limbs = public.size.limbs();
        let words = |number: &BigNumRef, limbs| words_of(number, limbs).map(Zeroizing::new);
        let secret = match (rsa.p(), rsa.q()) {
            (Some(p), Some(q)) => {
                let (p, q) = if p > q { (p, q) } else { (q, p) };
                let mut context = BigNumContext::new_secure()?;
                let mut product = BigNum::new()?;
                product.checked_mul(p, q, &mut context)?;
                if product != *rsa.n() {
                    return Err(Unfit::No("the modulus is not the product of two primes"));
                }
                // Computed anew, so that a key that comes with damaged parts works or fails as a whole.
                let mut d = BigNum::new_secure()?;
                d.copy_from_slice(&Zeroizing::new(rsa.d().to_vec()))?;
                d.set_const_time();
                let mut exponent = |prime: &BigNumRef| -> Result<Words, Unfit> {
                    let mut less = secret_copy(prime)?;
                    less.sub_word(1)?;
                    less.set_const_time();
                    let mut rest = BigNum::new_secure()?;
                    rest.checked_rem(&d, &less, &mut context)?;
                    let mut one = BigNum::new_secure()?;
                    one.mod_mul(&rest, rsa.e(), &less, &mut context)?;
                    if one != *BigNum::from_u32(1)? {
                        return Err(ANOTHER_EXPONENT);
                    }
                    Ok(words(&rest, limbs / 2)?)
                };
                let (dp, dq) = (exponent(p)?, exponent(q)?);
                let mut inverse = BigNum::new_secure()?;
                let (mut p_secret, mut q_secret) = (secret_copy(p)?, secret_copy(q)?);
                p_secret.set_const_time();
                q_secret.set_const_time();
                inverse.mod_inverse(&q_secret, &p_secret, &mut context)?;
                Secret::Crt {
                    p: words(p, limbs / 2)?,
                    q: words(q, limbs / 2)?,
                    dp,
                    dq,
                    iq: words(&inverse, limbs / 2)?,
                }
            }
            _ => {
                if !undoes(rsa.d(), rsa.e(), rsa.n())? {
                    return Err(ANOTHER_EXPONENT);
                }
                Secret::Me { d: words(rsa.d(), limbs)? }
            }
        };
        Ok(PrivateRsa { public, secret, blinding: None })
    }

    /// The factors for one operation: `blind` goes to the number, `unblind` is written out for its result. Two
    /// multiplications; a new pair now and then.
    fn next_factors(&mut self, unblind: &mut [u64]) -> Result<Words, DeviceError> {
        let modulus = &self.public.modulus;
        let pair = match &mut self.blinding {
            Some(pair) if pair.uses < BLINDING_USES_MAX => pair,
            slot => slot.insert(Blinding::new(&self.public)?),
        };
        unblind.copy_from_slice(&pair.unblind);
        let limbs = pair.blind.len();
        let mut squared = Zeroizing::new(vec![0; limbs]);
        modulus.multiply(&mut squared, &pair.blind, &pair.blind);
        let blind = std::mem::replace(&mut pair.blind, squared);
        modulus.multiply(&mut pair.unblind, unblind, unblind);
        pair.uses += 1;
        Ok(blind)
    }
}

impl Blinding {
    fn new(public: &PublicRsa) -> Result<Blinding, DeviceError> {
        let modulus = &public.modulus;
        let r = below(public)?;
        let mask = below(public)?;
        // The inversion takes a time that depends on its number: it sees r times a random mask, not r.
        let masked = Zeroizing::new(product(modulus, &r, &mask));
        let mut inverse = Zeroizing::new(vec![0; r.len()]);
        if !modulus.invert(&mut inverse, &masked) {
            return Err(DeviceError::Library { text: "a random number shares a factor with the modulus".to_owned() });
        }
        // All the products here are Montgomery's, each one short of a factor R: r·mask·R⁻¹ was inverted to
        // R/(r·mask), and with the mask and R² (twice) that becomes R/r.
        let unmasked = Zeroizing::new(product(modulus, &inverse, &mask));
        let unblind = Zeroizing::new(product(modulus, &unmasked, modulus.square()));
        let formed = Zeroizing::new(product(modulus, &r, modulus.square()));
        let mut power = Zeroizing::new(formed.to_vec());
        for _ in 0..COMMON_EXPONENT.ilog2() {
            power = Zeroizing::new(product(modulus, &power, &power));
        }
        let blind = Zeroizing::new(product(modulus, &power, &formed));
        Ok(Blinding { blind, unblind, uses: 0 })
    }
}

/// Whether the private exponent takes back what the public one does, by one trial: without the primes nothing else
/// tells. It costs as much as one private operation on the processor.
fn undoes(d: &BigNumRef, e: &BigNumRef, n: &BigNumRef) -> Result<bool, ErrorStack> {
    let mut context = BigNumContext::new_secure()?;
    let mut d = secret_copy(d)?;
    d.set_const_time();
    let base = BigNum::from_u32(2)?;
    let (mut power, mut again) = (BigNum::new_secure()?, BigNum::new()?);
    power.mod_exp(&base, &d, n, &mut context)?;
    again.mod_exp(&power, e, n, &mut context)?;
    Ok(again == base)
}

/// A random number below the modulus, not 0.
fn below(public: &PublicRsa) -> Result<Words, DeviceError> {
    let mut bytes = Zeroizing::new([0; RSA_BYTES_MAX]);
    let bytes = &mut bytes[..public.size.bytes()];
    let mut words = Zeroizing::new(vec![0; public.size.limbs()]);
    loop {
        SystemRandom.fill(bytes)?;
        from_bytes(&mut words, bytes);
        if public.modulus.is_above(&words) && words.iter().any(|word| *word != 0) {
            return Ok(words);
        }
    }
}

fn product(modulus: &Modulus, a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut out = vec![0; a.len()];
    modulus.multiply(&mut out, a, b);
    out
}

fn secret_copy(number: &BigNumRef) -> Result<BigNum, ErrorStack> {
    let mut copy = BigNum::new_secure()?;
    copy.copy_from_slice(&Zeroizing::new(number.to_vec()))?;
    Ok(copy)
}

/// Memory for calls of one size, and the calls. Lane `i` reads `input[i]` and leaves its result in `output[i]`.
pub(super) struct RsaUnit {
    library: &'static Library,
    scratch: Scratch,
    pub(super) input: Box<Numbers>,
    pub(super) output: Box<Numbers>,
    blinded: Box<Numbers>,
    again: Box<Numbers>,
    unblind: Box<Lanes<[u64; LIMBS_MAX]>>,
}

impl RsaUnit {
    pub(super) fn new(library: &'static Library) -> RsaUnit {
        let numbers = || Box::new([[0; RSA_BYTES_MAX]; LANES]);
        RsaUnit {
            library,
            scratch: library.scratch(),
            input: numbers(),
            output: numbers(),
            blinded: numbers(),
            again: numbers(),
            unblind: Box::new([[0; LIMBS_MAX]; LANES]),
        }
    }

    /// The private operation on the first `places.len()` lanes: blinded, unblinded, and checked with the public
    /// key. Returns which lanes' results stand; those of the others are destroyed. All keys are of one size, and
    /// all have their primes or none has.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when there is no randomness for the blinding.
    pub(super) fn private(
        &mut self,
        size: RsaSize,
        keys: &mut impl Keys,
        count: usize,
        tampering: Tampering<'_>,
    ) -> Result<Lanes<bool>, DeviceError> {
        let (bytes, limbs) = (size.bytes(), size.limbs());
        let mut words = [0; LIMBS_MAX];
        let mut product = [0; LIMBS_MAX];
        let blinded = (0..count).try_for_each(|lane| {
            let key = keys.key_mut(lane);
            let blind = key.next_factors(&mut self.unblind[lane][..limbs])?;
            from_bytes(&mut words[..limbs], &self.input[lane][..bytes]);
            key.public.modulus.multiply(&mut product[..limbs], &words[..limbs], &blind);
            to_bytes(&mut self.blinded[lane][..bytes], &product[..limbs]);
            Ok(())
        });
        if let Err(error) = blinded {
            // Factors of earlier lanes may be there, and their keys go on using what follows from them.
            self.clear_secrets();
            clear(&mut words);
            clear(&mut product);
            return Err(error);
        }
        // Unused lanes repeat the first: a lane must hold something that belongs to its key.
        for lane in count..LANES {
            let (first, rest) = self.blinded.split_at_mut(lane);
            rest[0][..bytes].copy_from_slice(&first[0][..bytes]);
        }
        let lanes: Lanes<&PrivateRsa> = std::array::from_fn(|lane| keys.key(if lane < count { lane } else { 0 }));
        let n = lanes.map(|key| key.public.modulus.words());
        let raw = match &lanes[0].secret {
            Secret::Crt { .. } => {
                let keys = crt_keys(&lanes);
                self.library.rsa_private_crt(size, &self.blinded, &mut self.output, &keys, &mut self.scratch)
            }
            Secret::Me { .. } => {
                let d = lanes.map(|key| match &key.secret {
                    Secret::Me { d } => d.as_slice(),
                    Secret::Crt { .. } => &[],
                });
                self.library.rsa_private(size, &self.blinded, &mut self.output, &d, &n, &mut self.scratch)
            }
        };
        for (lane, key) in lanes.iter().enumerate().take(count) {
            tampering.touch(Stage::RsaPrivate, lane, &mut self.output[lane][..bytes]);
            from_bytes(&mut words[..limbs], &self.output[lane][..bytes]);
            let unblind = &self.unblind[lane][..limbs];
            key.public.modulus.multiply(&mut product[..limbs], &words[..limbs], unblind);
            to_bytes(&mut self.output[lane][..bytes], &product[..limbs]);
        }
        for lane in count..LANES {
            let (first, rest) = self.output.split_at_mut(lane);
            rest[0][..bytes].copy_from_slice(&first[0][..bytes]);
        }
        let checked = self.library.rsa_public(size, &self.output, &mut self.again, &n, &mut self.scratch);
        let stands = std::array::from_fn(|lane| {
            let good = lane < count
                && raw.is_good(lane)
                && checked.is_good(lane)
                && self.again[lane][..bytes] == self.input[lane][..bytes];
            if !good {
                clear(&mut self.output[lane]);
            }
            good
        });
        self.clear_secrets();
        clear(&mut words);
        clear(&mut product);
        Ok(stands)
    }

    /// The public operation on the first `count` lanes.
    pub(super) fn public(
        &mut self,
        size: RsaSize,
        moduli: &Lanes<&[u64]>,
        count: usize,
        tampering: Tampering<'_>,
    ) -> Lanes<bool> {
        let bytes = size.bytes();
        for lane in count..LANES {
            let (first, rest) = self.input.split_at_mut(lane);
            rest[0][..bytes].copy_from_slice(&first[0][..bytes]);
        }
        let status = self.library.rsa_public(size, &self.input, &mut self.output, moduli, &mut self.scratch);
        for lane in 0..count {
            tampering.touch(Stage::RsaPublic, lane, &mut self.output[lane][..bytes]);
        }
        std::array::from_fn(|lane| status.is_good(lane))
    }

    /// Input and output of this call are overwritten; its caller has taken what it wanted.
    pub(super) fn clear_results(&mut self) {
        clear(&mut *self.input);
        clear(&mut *self.output);
    }

    /// What a call worked in is overwritten, its input and output excepted. [`private`](RsaUnit::private) does it
    /// itself; after [`public`](RsaUnit::public) it is for its caller, who knows whether the input was secret.
    pub(super) fn clear_secrets(&mut self) {
        clear_stack::<STACK_BYTES_MAX>();
        self.scratch.clear();
        clear(&mut *self.blinded);
        clear(&mut *self.again);
        clear(&mut *self.unblind);
    }

    /// Whether nothing of any call is left.
    #[cfg(test)]
    pub(super) fn is_clear(&self) -> bool {
        let numbers = [&self.input, &self.output, &self.blinded, &self.again];
        let is_clear = numbers.iter().all(|numbers| numbers.as_flattened().iter().all(|byte| *byte == 0));
        is_clear && self.unblind.as_flattened().iter().all(|word| *word == 0) && self.scratch.is_clear()
    }
}

impl Drop for RsaUnit {
    fn drop(&mut self) {
        self.clear_results();
        self.clear_secrets();
    }
}

/// The key of each lane.
pub(super) trait Keys {
    fn key(&self, lane: usize) -> &PrivateRsa;
    fn key_mut(&mut self, lane: usize) -> &mut PrivateRsa;
}

fn crt_keys<'a>(lanes: &Lanes<&'a PrivateRsa>) -> CrtKeys<'a> {
    // The shape of a job says whether its key has primes, and a call has jobs of one shape.
    let part = |pick: fn(&'a Secret) -> &'a [u64]| lanes.map(|key| pick(&key.secret));
    macro_rules! pick {
        ($part:ident) => {
            part(|secret| match secret {
                Secret::Crt { $part, .. } => $part,
                Secret::Me { .. } => &[],
            })
        };
    }
    CrtKeys { p: pick!(p), q: pick!(q), dp: pick!(dp), dq: pick!(dq), iq: pick!(iq) }
}
