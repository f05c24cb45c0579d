//! Arithmetic with numbers of a fixed length, in time that depends on the length alone.
//!
//! It blinds RSA operations and checks ECDSA signatures; the operations themselves are the lanes'. The
//! multiplication is Montgomery's: with R = 2^(64·limbs) it gives a·b·R⁻¹ mod n.

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::error::ErrorStack;

/// Words of the longest modulus.
pub(super) const LIMBS_MAX: usize = 64;
/// Words of the longest scalar.
pub(super) const EC_LIMBS_MAX: usize = 9;

/// An odd modulus, ready for multiplications.
pub(super) struct Modulus {
    n: Vec<u64>,
    n0: u64,
    square: Vec<u64>,
}

impl Modulus {
    /// The modulus that is `limbs` words long. It is public.
    ///
    /// # Errors
    /// The library's, when it has no memory or the number is even or too long.
    pub(super) fn new(n: &BigNumRef, limbs: usize) -> Result<Modulus, ErrorStack> {
        let words = words_of(n, limbs)?;
        let mut power = BigNum::new()?;
        power.set_bit(i32::try_from(128 * limbs).unwrap_or(i32::MAX))?;
        let mut rest = BigNum::new()?;
        rest.checked_rem(&power, n, &mut *BigNumContext::new()?)?;
        let square = words_of(&rest, limbs)?;
        // Newton: each step doubles the number of right bits of -1/n mod 2^64.
        let low = words.first().copied().unwrap_or(1);
        let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(low.wrapping_mul(x))));
        Ok(Modulus { n: words, n0: inverse.wrapping_neg(), square })
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.n
    }

    /// R² mod n: multiplying by it brings a number into Montgomery's form.
    pub(super) fn square(&self) -> &[u64] {
        &self.square
    }

    /// `out = a·b·R⁻¹ mod n`, where one of `a` and `b` is below `n` and the other fits the length.
    pub(super) fn multiply(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        match self.n.len() {
            4 => self.multiply_fixed::<4>(out, a, b),
            6 => self.multiply_fixed::<6>(out, a, b),
            9 => self.multiply_fixed::<9>(out, a, b),
            16 => self.multiply_fixed::<16>(out, a, b),
            32 => self.multiply_fixed::<32>(out, a, b),
            48 => self.multiply_fixed::<48>(out, a, b),
            _ => self.multiply_fixed::<64>(out, a, b),
        }
    }

    /// The lengths as constants, so that the compiler drops the bounds checks and unrolls.
    #[inline(always)]
    fn multiply_fixed<const L: usize>(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        let (n, a, b) = (fixed::<L>(&self.n), fixed::<L>(a), fixed::<L>(b));
        let mut t = [0u64; L];
        let mut top = 0u64;
        for &b in b {
            let product = wide(a[0], b).wrapping_add(u128::from(t[0]));
            let factor = (product as u64).wrapping_mul(self.n0);
            let reduced = wide(factor, n[0]).wrapping_add(u128::from(product as u64));
            let (mut carry_a, mut carry_n) = ((product >> 64) as u64, (reduced >> 64) as u64);
            for j in 1..L {
                let product = wide(a[j], b).wrapping_add(u128::from(t[j])).wrapping_add(u128::from(carry_a));
                carry_a = (product >> 64) as u64;
                let reduced =
                    wide(factor, n[j]).wrapping_add(u128::from(product as u64)).wrapping_add(u128::from(carry_n));
                carry_n = (reduced >> 64) as u64;
                t[j - 1] = reduced as u64;
            }
            let sum = u128::from(top) + u128::from(carry_a) + u128::from(carry_n);
            t[L - 1] = sum as u64;
            top = (sum >> 64) as u64;
        }
        subtract_once::<L>(out, &t, top, n);
        zeroize::Zeroize::zeroize(&mut t);
    }

    /// `out = a + b mod n`; both are below `n`.
    pub(super) fn add(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        let mut carry = 0u64;
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            let sum = u128::from(*a) + u128::from(*b) + u128::from(carry);
            *out = sum as u64;
            carry = (sum >> 64) as u64;
        }
        self.reduce_once(out, carry);
    }

    /// Takes `n` away from `top·R + number` where that is not less; it is below `2·n`.
    pub(super) fn reduce_once(&self, number: &mut [u64], top: u64) {
        let mut borrow = 0u64;
        for (number, n) in number.iter().zip(&self.n) {
            borrow = subtract(*number, *n, borrow).1;
        }
        // Below n: the whole subtraction borrows more than the top has.
        let keep = mask(top < borrow);
        borrow = 0;
        for (number, n) in number.iter_mut().zip(&self.n) {
            (*number, borrow) = subtract(*number, *n & !keep, borrow);
        }
    }

    /// Whether `number` is below the modulus.
    pub(super) fn is_above(&self, number: &[u64]) -> bool {
        number.iter().zip(&self.n).fold(0, |borrow, (number, n)| subtract(*number, *n, borrow).1) == 1
    }
}

#[inline(always)]
fn subtract_once<const L: usize>(out: &mut [u64], t: &[u64; L], top: u64, n: &[u64; L]) {
    let mut less = [0u64; L];
    let mut borrow = 0;
    for j in 0..L {
        (less[j], borrow) = subtract(t[j], n[j], borrow);
    }
    let keep = mask(top < borrow);
    for ((out, t), less) in out.iter_mut().zip(t).zip(&less) {
        *out = (*t & keep) | (*less & !keep);
    }
    zeroize::Zeroize::zeroize(&mut less);
}

#[inline(always)]
fn wide(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

#[inline(always)]
fn subtract(a: u64, b: u64, borrow: u64) -> (u64, u64) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(borrow);
    (difference, u64::from(first) | u64::from(second))
}

#[inline(always)]
fn mask(yes: bool) -> u64 {
    std::hint::black_box(u64::from(yes)).wrapping_neg()
}

/// Invariant of the accelerator: every number is as long as its modulus.
#[inline(always)]
fn fixed<const L: usize>(words: &[u64]) -> &[u64; L] {
    words.first_chunk().expect("a number has its modulus's length")
}

/// Big-endian bytes into words; bytes beyond the words are left out.
pub(super) fn from_bytes(words: &mut [u64], bytes: &[u8]) {
    words.fill(0);
    for (word, chunk) in words.iter_mut().zip(bytes.rchunks(8)) {
        *word = match chunk.first_chunk() {
            Some(whole) => u64::from_be_bytes(*whole),
            None => chunk.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte)),
        };
    }
}

/// Words into big-endian bytes; words beyond the bytes are left out.
pub(super) fn to_bytes(bytes: &mut [u8], words: &[u64]) {
    for (chunk, word) in bytes.rchunks_mut(8).zip(words) {
        let whole = word.to_be_bytes();
        let skip = 8 - chunk.len();
        chunk.copy_from_slice(&whole[skip..]);
    }
}

/// Whether two numbers are equal, in time that does not depend on them.
pub(super) fn equal<T: Copy + Into<u64>>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | ((*a).into() ^ (*b).into())) == 0
}

/// A library's number in `limbs` words.
///
/// # Errors
/// The library's, when the number is longer.
pub(super) fn words_of(number: &BigNumRef, limbs: usize) -> Result<Vec<u64>, ErrorStack> {
    let bytes = zeroize::Zeroizing::new(number.to_vec_padded(i32::try_from(8 * limbs).unwrap_or(i32::MAX))?);
    let mut words = vec![0; limbs];
    from_bytes(&mut words, &bytes);
    Ok(words)
}
