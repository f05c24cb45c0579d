//! Whether three X coordinates are those of two points and of their sum or difference.

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::ec::EcGroupRef;
use openssl::error::ErrorStack;
use zeroize::Zeroizing;

use super::ec::Scalar;
use super::limbs::{EC_LIMBS_MAX, Modulus, equal, from_bytes, words_of};
use super::rsa::Unfit;

/// The constants of one of NIST's curves, y² = x³ - 3x + b, that the question takes.
pub(crate) struct Sums {
    field: Modulus,
    limbs: usize,
    /// 3 and the curve's b in Montgomery's form.
    formed_3: Scalar,
    formed_b: Scalar,
}

impl Sums {
    /// For a group whose field has so many words of 64 bits.
    pub(super) fn new(group: &EcGroupRef, limbs: usize) -> Result<Sums, Unfit> {
        let mut context = BigNumContext::new()?;
        let (mut p, mut a, mut b) = (BigNum::new()?, BigNum::new()?, BigNum::new()?);
        group.components_gfp(&mut p, &mut a, &mut b, &mut context)?;
        let field = Modulus::new(&p, limbs)?;
        let in_form = |number: &BigNumRef| -> Result<Scalar, ErrorStack> {
            let mut formed = [0; EC_LIMBS_MAX];
            field.multiply(&mut formed[..limbs], &words_of(number, limbs)?, field.square());
            Ok(formed)
        };
        let (formed_3, formed_b) = (in_form(&*BigNum::from_u32(3)?)?, in_form(&b)?);
        Ok(Sums { field, limbs, formed_3, formed_b })
    }

    /// For any of the curves; nothing where it can't be worked with. P-192 is computed in the four words of P-256.
    pub(crate) fn of(group: &EcGroupRef) -> Option<Sums> {
        Sums::new(group, (group.degree() as usize).div_ceil(64).max(4)).ok()
    }

    /// As [`is_sum`](Self::is_sum), of big-endian coordinates.
    pub(crate) fn fit(&self, own: &[u8], shared: &[u8], sum: &[u8]) -> bool {
        let words = |bytes: &[u8]| {
            let mut words = Zeroizing::new([0; EC_LIMBS_MAX]);
            from_bytes(&mut words[..self.limbs], bytes);
            words
        };
        self.is_sum(&words(own), &words(shared), &words(sum))
    }

    /// Whether `sum` is the X coordinate of A + B or A - B, where `own` is A's and `shared` is B's. For two points of
    /// the curve y² = x³ - 3x + c with the X coordinates a and b, those of their sum and their difference are the two
    /// roots t of (a - b)²·t² - 2·((a·b - 3)·(a + b) + 2·c)·t + (a·b + 3)² - 4·c·(a + b) (Brier and Joye, 2002).
    /// The time does not depend on the numbers.
    pub(super) fn is_sum(&self, own: &Scalar, shared: &Scalar, sum: &Scalar) -> bool {
        let (field, limbs) = (&self.field, self.limbs);
        if [own, shared, sum].into_iter().any(|x| !field.is_above(&x[..limbs])) {
            return false;
        }
        let product = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            field.multiply(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let add = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            field.add(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let less = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            field.subtract(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let formed = |number: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            field.multiply(&mut out[..limbs], &number[..limbs], field.square());
            out
        };
        let twice = |a: &Scalar| add(a, a);
        let (a, b, t) = (formed(own), formed(shared), formed(sum));
        let (difference, both, each) = (less(&a, &b), add(&a, &b), product(&a, &b));
        let distance = product(&difference, &t);
        let plus_3 = add(&each, &self.formed_3);
        let left = add(&product(&distance, &distance), &product(&plus_3, &plus_3));
        let twice_b = twice(&self.formed_b);
        let middle = add(&product(&less(&each, &self.formed_3), &both), &twice_b);
        let right = twice(&add(&product(&middle, &t), &product(&twice_b, &both)));
        equal(&left[..limbs], &right[..limbs])
    }
}
