//! Arithmetic with numbers of a fixed length, in time that depends on the length alone.
//!
//! It blinds RSA operations and checks signatures and key agreements; the operations themselves are the lanes'. The
//! multiplication is Montgomery's: with R = 2^(64·limbs) it gives a·b·R⁻¹ mod n. What it leaves on the stack is cleared
//! once a call of the lanes, by `library::clear_stack`.

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::error::ErrorStack;

use super::rsa::Unfit;

/// Words of the longest modulus.
pub(super) const LIMBS_MAX: usize = 64;
/// Words of the longest scalar.
pub(super) const EC_LIMBS_MAX: usize = 9;

/// An odd modulus, ready for multiplications.
pub(super) struct Modulus {
    n: Vec<u64>,
    n0: u64,
    square: Vec<u64>,
    bits: usize,
}

impl Modulus {
    /// The modulus that is `limbs` words long. It is public.
    ///
    /// # Errors
    /// [`Unfit::No`] for an even number, which a certificate from outside may hold: Montgomery's products would be
    /// rubbish. The library's, when it has no memory or the number is too long.
    pub(super) fn new(n: &BigNumRef, limbs: usize) -> Result<Modulus, Unfit> {
        let words = words_of(n, limbs)?;
        let low = words.first().copied().unwrap_or(0);
        if low & 1 == 0 {
            return Err(Unfit::No("its modulus is even"));
        }
        let mut power = BigNum::new()?;
        power.set_bit(i32::try_from(128 * limbs).unwrap_or(i32::MAX))?;
        let mut rest = BigNum::new()?;
        rest.checked_rem(&power, n, &mut *BigNumContext::new()?)?;
        let square = words_of(&rest, limbs)?;
        // Newton: each step doubles the number of right bits of -1/n mod 2^64.
        let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(low.wrapping_mul(x))));
        Ok(Modulus { n: words, n0: inverse.wrapping_neg(), square, bits: n.num_bits() as usize })
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
    }

    /// `out = 1/y mod n`, or `false` where there is none; `y` is below `n`. The time depends on `y`: secrets are masked
    /// before. It is Pornin's binary GCD (IACR ePrint 2020/972): 31 steps at a time on the two ends of both
    /// numbers, then once on the whole.
    pub(super) fn invert(&self, out: &mut [u64], y: &[u64]) -> bool {
        match self.n.len() {
            4 => self.invert_fixed::<4>(out, y),
            6 => self.invert_fixed::<6>(out, y),
            9 => self.invert_fixed::<9>(out, y),
            16 => self.invert_fixed::<16>(out, y),
            32 => self.invert_fixed::<32>(out, y),
            48 => self.invert_fixed::<48>(out, y),
            _ => self.invert_fixed::<64>(out, y),
        }
    }

    #[inline(always)]
    fn invert_fixed<const L: usize>(&self, out: &mut [u64], y: &[u64]) -> bool {
        let n = fixed::<L>(&self.n);
        // Invariant: a = u·y and b = v·y modulo n. At the end a is 0 and b the greatest common divisor.
        let (mut a, mut b) = (*fixed::<L>(y), *n);
        let (mut u, mut v) = ([0; L], [0; L]);
        u[0] = 1;
        for _ in 0..(2 * self.bits - 1).div_ceil(STEPS as usize) {
            // Three quarters of the greatest number of rounds are the usual one.
            if a.iter().fold(0, |all, word| all | word) == 0 {
                break;
            }
            let (end_a, end_b) = ends(&a, &b);
            let [f0, g0, f1, g1] = steps(end_a, end_b);
            let (next_a, sign_a) = combine(&a, &b, f0, g0);
            let (next_b, sign_b) = combine(&a, &b, f1, g1);
            (a, b) = (next_a, next_b);
            let next_u = self.combine_modulo(&u, &v, f0 * sign_a, g0 * sign_a);
            v = self.combine_modulo(&u, &v, f1 * sign_b, g1 * sign_b);
            u = next_u;
        }
        out.copy_from_slice(&v);
        b[0] == 1 && b[1..].iter().all(|word| *word == 0)
    }

    /// (u·f + v·g) / 2^31 mod n.
    #[inline(always)]
    fn combine_modulo<const L: usize>(&self, u: &[u64; L], v: &[u64; L], f: i64, g: i64) -> [u64; L] {
        let n = fixed::<L>(&self.n);
        let low = u[0].wrapping_mul(f as u64).wrapping_add(v[0].wrapping_mul(g as u64));
        // So much of n makes the lowest bits zero.
        let add = (low.wrapping_mul(self.n0) & STEPS_MASK) as i64;
        let mut words = [0; L];
        let mut carry = 0i128;
        for j in 0..L {
            let sum = signed(u[j], f).wrapping_add(signed(v[j], g)).wrapping_add(signed(n[j], add));
            let sum = sum.wrapping_add(carry);
            words[j] = sum as u64;
            carry = sum >> 64;
        }
        shift_right(&mut words, carry as u64);
        // Now it is above -n and below 2·n.
        let top = (carry as i64) >> STEPS;
        let negative = (top >> 63) as u64;
        let mut over = 0u64;
        for (word, n) in words.iter_mut().zip(n) {
            let sum = u128::from(*word) + u128::from(*n & negative) + u128::from(over);
            *word = sum as u64;
            over = (sum >> 64) as u64;
        }
        self.reduce_once(&mut words, (top as u64).wrapping_add(over));
        words
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

    /// `out = a - b mod n`; both are below `n`.
    pub(super) fn subtract(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        let mut borrow = 0u64;
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            (*out, borrow) = subtract(*a, *b, borrow);
        }
        let below = mask(borrow == 1);
        let mut carry = 0u64;
        for (out, n) in out.iter_mut().zip(&self.n) {
            let sum = u128::from(*out) + u128::from(*n & below) + u128::from(carry);
            *out = sum as u64;
            carry = (sum >> 64) as u64;
        }
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

/// Steps of the binary GCD between two looks at whole numbers.
const STEPS: u32 = 31;
const STEPS_MASK: u64 = (1 << STEPS) - 1;

/// The 31 lowest bits of both numbers and, above them, the 33 highest ones of the longer and the same ones of the
/// other.
#[inline(always)]
fn ends<const L: usize>(a: &[u64; L], b: &[u64; L]) -> (u64, u64) {
    let [mut high_a, mut next_a, mut high_b, mut next_b] = [0; 4];
    for j in 1..L {
        let used = ((a[j] | b[j]) != 0) as u64;
        let used = used.wrapping_neg();
        high_a = (a[j] & used) | (high_a & !used);
        next_a = (a[j - 1] & used) | (next_a & !used);
        high_b = (b[j] & used) | (high_b & !used);
        next_b = (b[j - 1] & used) | (next_b & !used);
    }
    if high_a | high_b == 0 {
        return (a[0], b[0]);
    }
    let shift = (high_a | high_b).leading_zeros();
    let top = |high: u64, next: u64| ((high << shift) | ((next >> 1) >> (63 - shift))) >> STEPS << STEPS;
    ((a[0] & STEPS_MASK) | top(high_a, next_a), (b[0] & STEPS_MASK) | top(high_b, next_b))
}

/// 31 steps on the ends: with the factors f0, g0, f1, g1 the whole numbers become (a·f0 + b·g0) / 2^31 and
/// (a·f1 + b·g1) / 2^31.
#[inline(always)]
fn steps(mut a: u64, mut b: u64) -> [i64; 4] {
    let [mut f0, mut g0, mut f1, mut g1] = [1u64, 0, 0, 1];
    for _ in 0..STEPS {
        let odd = (a & 1).wrapping_neg();
        let swap = u64::from(a < b).wrapping_neg() & odd;
        let difference = (a ^ b) & swap;
        (a, b) = (a ^ difference, b ^ difference);
        let difference = (f0 ^ f1) & swap;
        (f0, f1) = (f0 ^ difference, f1 ^ difference);
        let difference = (g0 ^ g1) & swap;
        (g0, g1) = (g0 ^ difference, g1 ^ difference);
        a = a.wrapping_sub(b & odd) >> 1;
        f0 = f0.wrapping_sub(f1 & odd);
        g0 = g0.wrapping_sub(g1 & odd);
        (f1, g1) = (f1 << 1, g1 << 1);
    }
    [f0 as i64, g0 as i64, f1 as i64, g1 as i64]
}

/// |a·f + b·g| / 2^31, which is a whole number, and the sign that it had.
#[inline(always)]
fn combine<const L: usize>(a: &[u64; L], b: &[u64; L], f: i64, g: i64) -> ([u64; L], i64) {
    let mut words = [0; L];
    let mut carry = 0i128;
    for j in 0..L {
        let sum = signed(a[j], f).wrapping_add(signed(b[j], g)).wrapping_add(carry);
        words[j] = sum as u64;
        carry = sum >> 64;
    }
    shift_right(&mut words, carry as u64);
    let negative = ((carry as i64) >> 63) as u64;
    let mut more = negative & 1;
    for word in &mut words {
        let (sum, over) = (*word ^ negative).overflowing_add(more);
        *word = sum;
        more = u64::from(over);
    }
    (words, 1 | negative as i64)
}

/// 31 bits to the right; those of `top` come in.
#[inline(always)]
fn shift_right<const L: usize>(words: &mut [u64; L], top: u64) {
    for j in 0..L {
        let above = if j + 1 < L { words[j + 1] } else { top };
        words[j] = (words[j] >> STEPS) | (above << (64 - STEPS));
    }
}

#[inline(always)]
fn signed(word: u64, factor: i64) -> i128 {
    i128::from(word).wrapping_mul(i128::from(factor))
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

#[cfg(test)]
mod tests {
    use openssl::ec::EcGroup;
    use openssl::nid::Nid;

    use super::*;

    fn moduli() -> Vec<(BigNum, usize)> {
        let mut moduli = Vec::new();
        for (nid, limbs) in [(Nid::X9_62_PRIME256V1, 4), (Nid::SECP384R1, 6), (Nid::SECP521R1, 9)] {
            let group = EcGroup::from_curve_name(nid).unwrap();
            let mut context = BigNumContext::new().unwrap();
            let (mut p, mut a, mut b, mut n) =
                (BigNum::new().unwrap(), BigNum::new().unwrap(), BigNum::new().unwrap(), BigNum::new().unwrap());
            group.components_gfp(&mut p, &mut a, &mut b, &mut context).unwrap();
            group.order(&mut n, &mut context).unwrap();
            moduli.extend([(p, limbs), (n, limbs)]);
        }
        for bits in [1024, 2048, 3072, 4096] {
            let mut n = BigNum::new().unwrap();
            n.rand(bits, openssl::bn::MsbOption::TWO_ONES, true).unwrap();
            moduli.push((n, bits as usize / 64));
        }
        moduli
    }

    fn number(words: &[u64]) -> BigNum {
        let mut bytes = vec![0; 8 * words.len()];
        to_bytes(&mut bytes, words);
        BigNum::from_slice(&bytes).unwrap()
    }

    /// 0, 1, 2, n - 1, n - 2 and random ones.
    fn samples(n: &BigNumRef, limbs: usize) -> Vec<Vec<u64>> {
        let mut samples: Vec<BigNum> = (0..3).map(|small| BigNum::from_u32(small).unwrap()).collect();
        for less in 1..3 {
            let mut sample = n.to_owned().unwrap();
            sample.sub_word(less).unwrap();
            samples.push(sample);
        }
        for _ in 0..20 {
            let mut sample = BigNum::new().unwrap();
            n.rand_range(&mut sample).unwrap();
            samples.push(sample);
        }
        samples.iter().map(|sample| words_of(sample, limbs).unwrap()).collect()
    }

    #[test]
    fn products_sums_differences_and_comparisons_are_those_of_big_numbers() {
        let mut context = BigNumContext::new().unwrap();
        for (n, limbs) in moduli() {
            let modulus = Modulus::new(&n, limbs).unwrap();
            let samples = samples(&n, limbs);
            assert!(!modulus.is_above(modulus.words()));
            for a in &samples {
                assert!(modulus.is_above(a));
                for b in &samples {
                    let (mut out, mut product) = (vec![0; limbs], vec![0; limbs]);
                    modulus.multiply(&mut out, a, b);
                    modulus.multiply(&mut product, &out, modulus.square());
                    let mut expected = BigNum::new().unwrap();
                    expected.mod_mul(&number(a), &number(b), &n, &mut context).unwrap();
                    assert_eq!(number(&product), expected);
                    modulus.add(&mut out, a, b);
                    expected.mod_add(&number(a), &number(b), &n, &mut context).unwrap();
                    assert_eq!(number(&out), expected);
                    modulus.subtract(&mut out, a, b);
                    expected.mod_sub(&number(a), &number(b), &n, &mut context).unwrap();
                    assert_eq!(number(&out), expected);
                }
            }
        }
    }

    #[test]
    fn inverses_are_those_of_big_numbers_and_there_is_none_of_what_shares_a_factor() {
        let mut context = BigNumContext::new().unwrap();
        for (n, limbs) in moduli() {
            let modulus = Modulus::new(&n, limbs).unwrap();
            for y in samples(&n, limbs) {
                let mut out = vec![0; limbs];
                let there_is = modulus.invert(&mut out, &y);
                let mut expected = BigNum::new().unwrap();
                match expected.mod_inverse(&number(&y), &n, &mut context) {
                    Ok(()) => assert!(there_is && number(&out) == expected, "1/{} mod {n}", number(&y)),
                    Err(_) => assert!(!there_is, "{} mod {n}", number(&y)),
                }
            }
        }
        let square = BigNum::from_dec_str("170141183460469231731687303715884105727").unwrap();
        let mut n = BigNum::new().unwrap();
        n.sqr(&square, &mut context).unwrap();
        let modulus = Modulus::new(&n, 4).unwrap();
        assert!(!modulus.invert(&mut [0; 4], &words_of(&square, 4).unwrap()));
    }

    #[test]
    fn an_even_number_is_no_modulus() {
        for (n, limbs) in moduli() {
            let mut even = n;
            even.sub_word(1).unwrap();
            assert!(matches!(Modulus::new(&even, limbs), Err(Unfit::No("its modulus is even"))), "{even}");
        }
        assert!(matches!(Modulus::new(&BigNum::new().unwrap(), 4), Err(Unfit::No(_) | Unfit::Library(_))));
    }

    #[test]
    fn bytes_and_words_are_the_same_number_whatever_their_lengths() {
        let mut words = [9; 3];
        from_bytes(&mut words, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(words, [0x0203_0405_0607_0809, 1, 0]);
        let mut bytes = [9; 10];
        to_bytes(&mut bytes, &words);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
