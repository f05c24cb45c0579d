//! Elliptic curves on the lanes: keys made ready, nonces, and what is checked of a result.

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcGroupRef, EcPointRef};
use openssl::error::ErrorStack;
use zeroize::Zeroizing;

use super::library::{
    EC_BYTES_MAX, LANES, LaneCurve, Lanes, Library, Points, STACK_BYTES_GENERATOR, STACK_BYTES_MAX, ScalarBytes,
    Scalars, Status, clear, clear_stack,
};
use super::limbs::{EC_LIMBS_MAX, Modulus, equal, from_bytes, to_bytes, words_of};
use super::rsa::Unfit;
use super::sum::Sums;
use super::tamper::{Stage, Tampering};
use crate::device::DeviceError;
use crate::key::{Curve, PrivateKey, PublicKey};
use crate::random::{Random, SystemRandom};

/// One scalar or coordinate.
pub(super) type Scalar = [u64; EC_LIMBS_MAX];

/// A curve's constants, made once an engine.
pub(super) struct CurveData {
    pub(super) lane_curve: LaneCurve,
    order: Modulus,
    field: Modulus,
    /// The curve's b, times R⁻¹.
    b: Vec<u64>,
    /// The prime less 3: adding it is subtracting 3.
    minus_3: Vec<u64>,
    /// The generator.
    generator: PublicEc,
    sums: Sums,
}

impl LaneCurve {
    pub(super) fn of(curve: Curve) -> Option<LaneCurve> {
        match curve {
            Curve::P256 => Some(LaneCurve::P256),
            Curve::P384 => Some(LaneCurve::P384),
            Curve::P521 => Some(LaneCurve::P521),
            Curve::P192 | Curve::P224 => None,
        }
    }

    pub(super) fn curve(self) -> Curve {
        match self {
            LaneCurve::P256 => Curve::P256,
            LaneCurve::P384 => Curve::P384,
            LaneCurve::P521 => Curve::P521,
        }
    }
}

impl CurveData {
    pub(super) fn new(lane_curve: LaneCurve) -> Result<CurveData, Unfit> {
        let curve = lane_curve.curve();
        let group = EcGroup::from_curve_name(curve.nid())?;
        let mut context = BigNumContext::new()?;
        let (mut p, mut a, mut b, mut n) = (BigNum::new()?, BigNum::new()?, BigNum::new()?, BigNum::new()?);
        group.components_gfp(&mut p, &mut a, &mut b, &mut context)?;
        group.order(&mut n, &mut context)?;
        let limbs = lane_curve.limbs();
        let (order, field) = (Modulus::new(&n, limbs)?, Modulus::new(&p, limbs)?);
        let mut formed = vec![0; limbs];
        field.multiply(&mut formed, &words_of(&b, limbs)?, &words_of(&*BigNum::from_u32(1)?, limbs)?);
        let sums = Sums::new(&group, limbs)?;
        let generator = group.generator_opt().ok_or(Unfit::No("its curve has no generator"))?;
        let generator = PublicEc::of_point(&group, generator, limbs)?;
        p.sub_word(3)?;
        let minus_3 = words_of(&p, limbs)?;
        Ok(CurveData { lane_curve, order, field, b: formed, minus_3, generator, sums })
    }

    fn limbs(&self) -> usize {
        self.lane_curve.limbs()
    }

    /// Bytes of a scalar or coordinate.
    pub(super) fn bytes(&self) -> usize {
        self.lane_curve.bytes()
    }

    /// Whether the affine point is on the curve: y² = x³ - 3x + b, both below the prime. The point at infinity has
    /// no such form; all curves here have prime order, so there are no small subgroups. The time does not depend
    /// on the point, which is public.
    pub(super) fn has_point(&self, x: &[u64], y: &[u64]) -> bool {
        let (field, limbs) = (&self.field, self.limbs());
        let (x, y) = (&x[..limbs], &y[..limbs]);
        if !field.is_above(x) || !field.is_above(y) {
            return false;
        }
        let product = |a: &[u64], b: &[u64]| {
            let mut out = [0; EC_LIMBS_MAX];
            field.multiply(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let sum = |a: &[u64], b: &[u64]| {
            let mut out = [0; EC_LIMBS_MAX];
            field.add(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        // Both sides are short of one factor R: (x·x - 3)·x + b = y·y.
        let square = product(x, &product(x, field.square()));
        let right = sum(&product(&sum(&square, &self.minus_3), x), &self.b);
        equal(&product(y, y), &right)
    }

    /// The sum of the generator G and an affine point P in Jacobian coordinates. P is neither G nor -G.
    fn with_generator(&self, point: &PublicEc) -> [Scalar; 3] {
        let (field, limbs) = (&self.field, self.limbs());
        let product = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            field.multiply(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let difference = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            field.subtract(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let (to_form, from_form) = (|a: &Scalar| self.formed(a), |a: &Scalar| self.unformed(a));
        let (x, y) = (to_form(&self.generator.x), to_form(&self.generator.y));
        // z = x2 - x, slope = y2 - y: X = slope² - z³ - 2·x·z², Y = slope·(x·z² - X) - y·z³, Z = z.
        let z = difference(&to_form(&point.x), &x);
        let slope = difference(&to_form(&point.y), &y);
        let square = product(&z, &z);
        let cube = product(&square, &z);
        let base = product(&x, &square);
        let sum_x = difference(&difference(&difference(&product(&slope, &slope), &cube), &base), &base);
        let sum_y = difference(&product(&slope, &difference(&base, &sum_x)), &product(&y, &cube));
        [from_form(&sum_x), from_form(&sum_y), from_form(&z)]
    }

    /// A coordinate in Montgomery's form.
    fn formed(&self, number: &Scalar) -> Scalar {
        let mut out = [0; EC_LIMBS_MAX];
        let limbs = self.limbs();
        self.field.multiply(&mut out[..limbs], &number[..limbs], self.field.square());
        out
    }

    /// The coordinate whose Montgomery's form this is.
    fn unformed(&self, number: &Scalar) -> Scalar {
        let (mut out, mut one) = ([0; EC_LIMBS_MAX], [0; EC_LIMBS_MAX]);
        one[0] = 1;
        let limbs = self.limbs();
        self.field.multiply(&mut out[..limbs], &number[..limbs], &one[..limbs]);
        out
    }

    /// The hash as a number below the order: its leftmost bits, as many as the order has (FIPS 186-5, 6.4.1). All
    /// three orders but P-521's have whole bytes, and no hash is longer than that one.
    pub(super) fn truncated(&self, hash: &[u8]) -> Scalar {
        let (limbs, bytes) = (self.limbs(), self.bytes());
        let mut z = [0; EC_LIMBS_MAX];
        from_bytes(&mut z[..limbs], &hash[..hash.len().min(bytes)]);
        self.order.reduce_once(&mut z[..limbs], 0);
        z
    }

    /// Random scalars from 1 to the order less 1, uniform, by drawing again what is outside (FIPS 186-5, A.2.2).
    /// One call of the system for all lanes.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when the system has no randomness.
    pub(super) fn draw(&self, scalars: &mut [Scalar]) -> Result<(), DeviceError> {
        let (limbs, bytes) = (self.limbs(), self.bytes());
        let mut random = Zeroizing::new([0; EC_BYTES_MAX * (LANES + 2)]);
        let random = &mut random[..bytes * scalars.len()];
        SystemRandom.fill(random)?;
        for (scalar, drawn) in scalars.iter_mut().zip(random.chunks_exact_mut(bytes)) {
            loop {
                if self.lane_curve == LaneCurve::P521 {
                    drawn[0] &= 1;
                }
                from_bytes(&mut scalar[..limbs], drawn);
                if self.order.is_above(&scalar[..limbs]) && !is_zero(&scalar[..limbs]) {
                    break;
                }
                SystemRandom.fill(drawn)?;
            }
        }
        Ok(())
    }

    /// Whether bytes are a number from 1 to the order less 1.
    pub(super) fn is_scalar(&self, bytes: &[u8]) -> bool {
        let mut words = [0; EC_LIMBS_MAX];
        let words = &mut words[..self.limbs()];
        from_bytes(words, bytes);
        self.order.is_above(words) && !is_zero(words)
    }

    /// Inverts numbers that are not 0 modulo `modulus`, all by one inversion; the results are in Montgomery's form.
    /// What is inverted is their product with a random mask, so that its time tells nothing of them.
    fn invert_all(&self, modulus: &Modulus, numbers: &Scalars, mask: &Scalar, inverses: &mut Scalars) -> bool {
        let limbs = self.limbs();
        let product = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            modulus.multiply(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        // Each product is Montgomery's, and so short of a factor R; inverses[i] is here what lies before lane i.
        let mut all = numbers[0];
        for lane in 1..LANES {
            inverses[lane] = all;
            all = product(&all, &numbers[lane]);
        }
        let masked = product(&all, mask);
        let mut inverse = [0; EC_LIMBS_MAX];
        if !modulus.invert(&mut inverse[..limbs], &masked[..limbs]) {
            return false;
        }
        let mut square = [0; EC_LIMBS_MAX];
        square[..limbs].copy_from_slice(modulus.square());
        // R/(all·mask), times the mask, times R²: R·(1/all) in the sense that multiplying by `all` gives 1.
        let mut rest = product(&product(&inverse, mask), &square);
        for lane in (1..LANES).rev() {
            inverses[lane] = product(&rest, &inverses[lane]);
            rest = product(&rest, &numbers[lane]);
        }
        inverses[0] = rest;
        true
    }

    /// The affine coordinates of Jacobian ones, `z` being 1/Z in Montgomery's form.
    fn affine(&self, x: &mut Scalar, y: &mut Scalar, z: &Scalar) {
        let (field, limbs) = (&self.field, self.limbs());
        let product = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            field.multiply(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let square = product(z, z);
        let cube = product(&square, z);
        *x = product(x, &square);
        *y = product(y, &cube);
    }

    /// s = (z + r·d)/k modulo the order, `inverse` being 1/k and `d` in Montgomery's form.
    fn complete(&self, r: &Scalar, z: &Scalar, inverse: &Scalar, d: &Scalar) -> Scalar {
        let (order, limbs) = (&self.order, self.limbs());
        let (mut product, mut sum, mut s) = ([0; EC_LIMBS_MAX], [0; EC_LIMBS_MAX], [0; EC_LIMBS_MAX]);
        order.multiply(&mut product[..limbs], &r[..limbs], &d[..limbs]);
        order.add(&mut sum[..limbs], &product[..limbs], &z[..limbs]);
        order.multiply(&mut s[..limbs], &sum[..limbs], &inverse[..limbs]);
        s
    }

    /// Whether s·k = z + r·d modulo the order, and both r and s are in range.
    pub(super) fn is_signature_with(&self, r: &[u8], s: &[u8], z: &Scalar, k: &Scalar, key: &PrivateEc) -> bool {
        let (order, limbs) = (&self.order, self.limbs());
        let (mut r_words, mut s_words) = ([0; EC_LIMBS_MAX], [0; EC_LIMBS_MAX]);
        from_bytes(&mut r_words[..limbs], r);
        from_bytes(&mut s_words[..limbs], s);
        let in_range = |scalar: &[u64]| order.is_above(scalar) && !is_zero(scalar);
        if !in_range(&r_words[..limbs]) || !in_range(&s_words[..limbs]) {
            return false;
        }
        // Each of the three products is short of one factor R.
        let product = |a: &Scalar, b: &Scalar| {
            let mut out = [0; EC_LIMBS_MAX];
            order.multiply(&mut out[..limbs], &a[..limbs], &b[..limbs]);
            out
        };
        let mut one = [0; EC_LIMBS_MAX];
        one[0] = 1;
        let (left, product, hash) = (product(&s_words, k), product(&r_words, &key.d), product(z, &one));
        let mut right = [0; EC_LIMBS_MAX];
        order.add(&mut right[..limbs], &product[..limbs], &hash[..limbs]);
        equal(&left[..limbs], &right[..limbs])
    }
}

fn is_zero(words: &[u64]) -> bool {
    words.iter().fold(0, |all, word| all | word) == 0
}

/// An EC private key in the lanes' form, twice: a memory cell that flips in either is noticed by the check of the
/// next signature, because one of them makes the signature and the other checks it.
pub(super) struct PrivateEc {
    pub(super) d: Zeroizing<Scalar>,
    /// In Montgomery's form.
    formed: Zeroizing<Scalar>,
    /// What results are checked with.
    public: PublicEc,
}

impl PrivateEc {
    /// The key, after a look at whether its private and its public half belong together.
    pub(super) fn new(key: &PrivateKey, data: &CurveData) -> Result<PrivateEc, Unfit> {
        let ec = key.ec().ok_or(Unfit::No("the key is in another device"))?;
        ec.check_key()?;
        let mut d = Zeroizing::new([0; EC_LIMBS_MAX]);
        let limbs = data.limbs();
        d[..limbs].copy_from_slice(&Zeroizing::new(words_of(ec.private_key(), limbs)?));
        Ok(PrivateEc::of_scalar(&d, PublicEc::new(key.public_key(), data)?, data))
    }

    /// A memory cell that goes wrong in one of the two forms.
    #[cfg(test)]
    pub(super) fn flip_bit(&mut self, formed: bool) {
        let copy = if formed { &mut self.formed } else { &mut self.d };
        copy[1] ^= 1 << 17;
    }

    /// The key with this scalar, from 1 to the order less 1.
    pub(super) fn of_scalar(d: &Scalar, public: PublicEc, data: &CurveData) -> PrivateEc {
        let limbs = data.limbs();
        let mut formed = Zeroizing::new([0; EC_LIMBS_MAX]);
        data.order.multiply(&mut formed[..limbs], &d[..limbs], data.order.square());
        PrivateEc { d: Zeroizing::new(*d), formed, public }
    }
}

/// An EC public key in the lanes' form: its affine point.
#[derive(Clone, Copy)]
pub(super) struct PublicEc {
    pub(super) x: Scalar,
    pub(super) y: Scalar,
}

impl PublicEc {
    pub(super) fn new(key: &PublicKey, data: &CurveData) -> Result<PublicEc, Unfit> {
        let ec = key.ec().ok_or(Unfit::No("not an EC key"))?;
        Ok(PublicEc::of_point(ec.group(), ec.public_key(), data.limbs())?)
    }

    fn of_point(group: &EcGroupRef, point: &EcPointRef, limbs: usize) -> Result<PublicEc, ErrorStack> {
        let mut context = BigNumContext::new()?;
        let (mut x, mut y) = (BigNum::new()?, BigNum::new()?);
        point.affine_coordinates(group, &mut x, &mut y, &mut context)?;
        let mut point = PublicEc { x: [0; EC_LIMBS_MAX], y: [0; EC_LIMBS_MAX] };
        point.x[..limbs].copy_from_slice(&words_of(&x, limbs)?);
        point.y[..limbs].copy_from_slice(&words_of(&y, limbs)?);
        Ok(point)
    }

    /// A peer's point in its uncompressed form (SEC 1, 2.3.3); `None` where it is none of this curve's.
    pub(super) fn read(bytes: &[u8], data: &CurveData) -> Option<PublicEc> {
        let (len, limbs) = (data.bytes(), data.limbs());
        let (&first, coordinates) = bytes.split_first()?;
        if first != UNCOMPRESSED || coordinates.len() != 2 * len {
            return None;
        }
        let (x, y) = coordinates.split_at(len);
        let mut point = PublicEc { x: [0; EC_LIMBS_MAX], y: [0; EC_LIMBS_MAX] };
        from_bytes(&mut point.x[..limbs], x);
        from_bytes(&mut point.y[..limbs], y);
        data.has_point(&point.x, &point.y).then_some(point)
    }
}

/// The first byte of an uncompressed point (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Memory for calls on curves, and the calls. Unused lanes repeat the first.
pub(super) struct EcUnit {
    library: &'static Library,
    words: Box<Words>,
    pub(super) bytes: Box<Bytes>,
}

struct Words {
    k: Scalars,
    points: Points,
    /// Of Jacobian Z.
    inverses: Scalars,
}

/// Lanes' inputs and results as bytes, each at the front of its array.
pub(super) struct Bytes {
    pub(super) hash: ScalarBytes,
    pub(super) r: ScalarBytes,
    pub(super) s: ScalarBytes,
    pub(super) shared: ScalarBytes,
    /// What the shared secrets are checked with.
    sums: ScalarBytes,
}

impl EcUnit {
    pub(super) fn new(library: &'static Library) -> EcUnit {
        let words = || [[0; EC_LIMBS_MAX]; LANES];
        let bytes = || [[0; EC_BYTES_MAX]; LANES];
        EcUnit {
            library,
            words: Box::new(Words {
                k: words(),
                points: Points { x: words(), y: words(), z: words() },
                inverses: words(),
            }),
            bytes: Box::new(Bytes { hash: bytes(), r: bytes(), s: bytes(), shared: bytes(), sums: bytes() }),
        }
    }

    /// Signs `hashes[i]` with `keys[i]`, with fresh nonces, and verifies each signature with the public key. Signatures
    /// that fail a check are destroyed, the others are in `bytes.r` and `bytes.s`.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when there is no randomness for nonces.
    pub(super) fn sign(
        &mut self,
        data: &CurveData,
        keys: &[&PrivateEc],
        hashes: &[&[u8]],
        tampering: Tampering<'_>,
    ) -> Result<Lanes<bool>, DeviceError> {
        let mut masks = self.draw_with_masks(data, keys.len())?;
        let mut stands = self.sign_with(data, keys, hashes, &masks, tampering);
        clear(&mut masks);
        clear_stack::<STACK_BYTES_GENERATOR>();
        self.clear_secrets();
        let verified = self.verify_own(data, keys, hashes, tampering);
        for (lane, stands) in stands.iter_mut().enumerate().take(keys.len()) {
            *stands &= verified[lane];
            if !*stands {
                clear(&mut self.bytes.s[lane]);
            }
        }
        Ok(stands)
    }

    /// Whether the signatures in `bytes.r` and `bytes.s` are those of `hashes[i]` by `keys[i]`. Each is verified in the
    /// lane after the one that made it: a broken lane does not judge its own signature.
    fn verify_own(
        &mut self,
        data: &CurveData,
        keys: &[&PrivateEc],
        hashes: &[&[u8]],
        tampering: Tampering<'_>,
    ) -> Lanes<bool> {
        let (count, len, limbs) = (keys.len(), data.bytes(), data.limbs());
        let (points, bytes) = (&mut self.words.points, &mut *self.bytes);
        let (mut r, mut s) = ([[0; EC_BYTES_MAX]; LANES], [[0; EC_BYTES_MAX]; LANES]);
        for lane in 0..LANES {
            let (to, used) = (lane_after(lane), if lane < count { lane } else { 0 });
            (points.x[to], points.y[to]) = (keys[used].public.x, keys[used].public.y);
            to_bytes(&mut bytes.hash[to][..len], &data.truncated(hashes[used])[..limbs]);
            (r[to], s[to]) = (bytes.r[used], bytes.s[used]);
        }
        let status = self.library.ecdsa_verify(data.lane_curve, &r, &s, &bytes.hash, &points.x, &points.y);
        std::array::from_fn(|lane| {
            let mut verdict = [u8::from(status.is_good(lane_after(lane)))];
            if lane < count {
                tampering.touch(Stage::EcdsaCheck, lane_after(lane), &mut verdict);
            }
            verdict == [1]
        })
    }

    /// The same with the nonces that are in `words.k`. The lanes do k·G, which is nearly all of the time; what follows
    /// is shared inversions and a few products a signature, less than the lanes' own inversions cost.
    fn sign_with(
        &mut self,
        data: &CurveData,
        keys: &[&PrivateEc],
        hashes: &[&[u8]],
        masks: &[Scalar; 2],
        tampering: Tampering<'_>,
    ) -> Lanes<bool> {
        let (len, limbs) = (data.bytes(), data.limbs());
        let made = self.multiply_generator(data, &masks[0]);
        let (words, bytes) = (&mut *self.words, &mut *self.bytes);
        let inverted = data.invert_all(&data.order, &words.k, &masks[1], &mut words.inverses);
        let points = &mut words.points;
        let mut stands = [false; LANES];
        for (lane, key) in keys.iter().enumerate() {
            let (r, s) = (&mut bytes.r[lane][..len], &mut bytes.s[lane][..len]);
            let (x, y) = (&mut points.x[lane], &mut points.y[lane]);
            tampering.touch_point(Stage::EcdsaPoint, lane, &mut x[..limbs], &mut y[..limbs], len);
            let (mut x, on_curve) = (*x, data.has_point(x, y));
            // The prime is less than twice the order.
            data.order.reduce_once(&mut x[..limbs], 0);
            to_bytes(r, &x[..limbs]);
            let z = data.truncated(hashes[lane]);
            to_bytes(s, &data.complete(&x, &z, &words.inverses[lane], &key.formed)[..limbs]);
            tampering.touch(Stage::EcdsaR, lane, r);
            tampering.touch(Stage::EcdsaS, lane, s);
            stands[lane] = made.is_some_and(|status| status.is_good(lane))
                && inverted
                && on_curve
                && data.is_signature_with(r, s, &z, &words.k[lane], key);
            if !stands[lane] {
                clear(s);
            }
        }
        stands
    }

    /// For the self-test: eight signatures with one key and one nonce, both known.
    pub(super) fn sign_known(
        &mut self,
        data: &CurveData,
        key: &PrivateEc,
        hash: &[u8],
        nonce: &Scalar,
    ) -> Result<Lanes<bool>, DeviceError> {
        let masks = self.draw_with_masks(data, 1)?;
        self.words.k = [*nonce; LANES];
        Ok(self.sign_with(data, &[key; LANES], &[hash; LANES], &masks, Tampering(None)))
    }

    /// For the self-test: signatures of eight keys, and the nonces that they have.
    pub(super) fn sign_and_tell(
        &mut self,
        data: &CurveData,
        keys: &[&PrivateEc],
        hashes: &[&[u8]],
    ) -> Result<(Lanes<bool>, Scalars), DeviceError> {
        let masks = self.draw_with_masks(data, LANES)?;
        Ok((self.sign_with(data, keys, hashes, &masks, Tampering(None)), self.words.k))
    }

    /// For the self-test: the affine point of a lane's nonce.
    pub(super) fn point(&self, lane: usize) -> (Scalar, Scalar) {
        (self.words.points.x[lane], self.words.points.y[lane])
    }

    /// Fresh scalars for the first `count` lanes in `words.k`, repeated in the others, and two masks.
    fn draw_with_masks(&mut self, data: &CurveData, count: usize) -> Result<[Scalar; 2], DeviceError> {
        let mut drawn = Zeroizing::new([[0; EC_LIMBS_MAX]; LANES + 2]);
        data.draw(&mut drawn[..count + 2])?;
        let (masks, nonces) = drawn[..count + 2].split_at(2);
        self.words.k[..count].copy_from_slice(nonces);
        for lane in count..LANES {
            self.words.k[lane] = nonces[0];
        }
        Ok([masks[0], masks[1]])
    }

    /// k·G in affine coordinates; `None` when the inversion failed, which a point at infinity would cause.
    fn multiply_generator(&mut self, data: &CurveData, mask: &Scalar) -> Option<Status> {
        let Words { k, points, inverses } = &mut *self.words;
        let curve = data.lane_curve;
        let status = self.library.ec_public_key(curve, k, &mut points.x, &mut points.y, &mut points.z);
        let inverted = data.invert_all(&data.field, &points.z, mask, inverses);
        for ((x, y), z) in points.x.iter_mut().zip(&mut points.y).zip(&*inverses) {
            data.affine(x, y, z);
        }
        inverted.then_some(status)
    }

    /// Whether `bytes.r` and `bytes.s` are signatures of `hashes[i]` by `keys[i]`; r and s are in range.
    pub(super) fn verify(
        &mut self,
        data: &CurveData,
        keys: &[&PublicEc],
        hashes: &[&[u8]],
        tampering: Tampering<'_>,
    ) -> Lanes<bool> {
        let (count, len, limbs) = (keys.len(), data.bytes(), data.limbs());
        let (points, bytes) = (&mut self.words.points, &mut *self.bytes);
        for lane in 0..LANES {
            let used = if lane < count { lane } else { 0 };
            (points.x[lane], points.y[lane]) = (keys[used].x, keys[used].y);
            to_bytes(&mut bytes.hash[lane][..len], &data.truncated(hashes[used])[..limbs]);
            (bytes.r[lane], bytes.s[lane]) = (bytes.r[used], bytes.s[used]);
        }
        let curve = data.lane_curve;
        let status = self.library.ecdsa_verify(curve, &bytes.r, &bytes.s, &bytes.hash, &points.x, &points.y);
        let mut good = [false; LANES];
        for (lane, good) in good.iter_mut().enumerate().take(count) {
            let mut verdict = [u8::from(status.is_good(lane))];
            tampering.touch(Stage::EcdsaVerdict, lane, &mut verdict);
            *good = verdict == [1];
        }
        good
    }

    /// The shared secrets of `keys[i]` and `peers[i]`, in `bytes.shared`, where the public key confirms them.
    pub(super) fn derive(
        &mut self,
        data: &CurveData,
        keys: &[&PrivateEc],
        peers: &[&PublicEc],
        tampering: Tampering<'_>,
    ) -> Lanes<bool> {
        for (k, key) in self.words.k.iter_mut().zip(keys) {
            *k = *key.d;
        }
        let own: Lanes<Scalar> = std::array::from_fn(|lane| keys.get(lane).unwrap_or(&keys[0]).public.x);
        let stands = self.agree(data, &own, peers, tampering);
        clear_stack::<STACK_BYTES_MAX>();
        self.clear_secrets();
        stands
    }

    /// New key pairs, and their shared secrets with `peers[i]`: the points in `bytes.r` and `bytes.s`, the secrets
    /// in `bytes.shared`. A new point that is not on the curve does not stand, nor does one that disagrees with its
    /// shared secret.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when there is no randomness for the keys.
    pub(super) fn agree_once(
        &mut self,
        data: &CurveData,
        peers: &[&PublicEc],
        tampering: Tampering<'_>,
    ) -> Result<Lanes<bool>, DeviceError> {
        let (count, len, limbs) = (peers.len(), data.bytes(), data.limbs());
        let mut masks = self.draw_with_masks(data, count)?;
        let made = self.multiply_generator(data, &masks[0]);
        clear(&mut masks);
        let points = &mut self.words.points;
        let mut stands = [false; LANES];
        for (lane, stands) in stands.iter_mut().enumerate().take(count) {
            let (x, y) = (&mut points.x[lane], &mut points.y[lane]);
            tampering.touch_point(Stage::EcdhPoint, lane, &mut x[..limbs], &mut y[..limbs], len);
            to_bytes(&mut self.bytes.r[lane][..len], &x[..limbs]);
            to_bytes(&mut self.bytes.s[lane][..len], &y[..limbs]);
            *stands = made.is_some_and(|status| status.is_good(lane)) && data.has_point(x, y);
        }
        let own = points.x;
        let agreed = self.agree(data, &own, peers, tampering);
        clear_stack::<STACK_BYTES_MAX>();
        self.clear_secrets();
        Ok(std::array::from_fn(|lane| stands[lane] && agreed[lane]))
    }

    /// The X coordinates of k·P in `bytes.shared`, k being in `words.k` and P in `peers`; and whether they are right.
    ///
    /// Of each k·P the lanes compute a second product, k·(G + P), in another lane, and the two must fit k·G, whose X
    /// coordinate is `own`. That point is the public key, or it was made by the lanes' other function, that for
    /// multiples of the generator. A single wrong one among the three does not fit.
    fn agree(
        &mut self,
        data: &CurveData,
        own: &Lanes<Scalar>,
        peers: &[&PublicEc],
        tampering: Tampering<'_>,
    ) -> Lanes<bool> {
        let (count, len, limbs) = (peers.len(), data.bytes(), data.limbs());
        let Words { k, points, .. } = &mut *self.words;
        let bytes = &mut *self.bytes;
        let mut one = [0; EC_LIMBS_MAX];
        one[0] = 1;
        // With the half of the lanes free the second product is in the same call.
        let in_one_call = 2 * count <= LANES;
        let checked_in = |lane| if in_one_call { lane + count } else { lane_after(lane) };
        // G + P is no point of its own where P is G or -G; k·P has k·G's X coordinate then.
        let is_generator: Lanes<bool> =
            std::array::from_fn(|lane| peers.get(lane).is_some_and(|peer| peer.x == data.generator.x));
        let sum = |lane: usize| match is_generator[lane] {
            true => [data.generator.x, data.generator.y, one],
            false => data.with_generator(peers[lane]),
        };
        let mut put = |lane: usize, [x, y, z]: [Scalar; 3]| {
            (points.x[lane], points.y[lane], points.z[lane]) = (x, y, z);
        };
        for lane in 0..LANES {
            let used = if lane < count { lane } else { 0 };
            k[lane] = k[used];
            put(lane, [peers[used].x, peers[used].y, one]);
        }
        if in_one_call {
            for lane in 0..count {
                k[checked_in(lane)] = k[lane];
                put(checked_in(lane), sum(lane));
            }
        }
        let shared = self.library.ecdh(data.lane_curve, k, points, &mut bytes.shared);
        let mut summed = shared;
        if in_one_call {
            bytes.sums = bytes.shared;
        } else {
            k.rotate_right(1);
            for lane in 0..LANES {
                let used = if lane < count { lane } else { 0 };
                let [x, y, z] = sum(used);
                let to = lane_after(lane);
                (points.x[to], points.y[to], points.z[to]) = (x, y, z);
            }
            summed = self.library.ecdh(data.lane_curve, k, points, &mut bytes.sums);
        }
        let mut stands = [false; LANES];
        for (lane, stands) in stands.iter_mut().enumerate().take(count) {
            let by = checked_in(lane);
            let (secret, sum) = (&mut bytes.shared[lane][..len], &mut bytes.sums[by][..len]);
            tampering.touch(Stage::EcdhShared, lane, secret);
            tampering.touch(Stage::EcdhSum, by, sum);
            let (mut secret_x, mut sum_x) = (Zeroizing::new([0; EC_LIMBS_MAX]), Zeroizing::new([0; EC_LIMBS_MAX]));
            from_bytes(&mut secret_x[..limbs], secret);
            from_bytes(&mut sum_x[..limbs], sum);
            let fits = match is_generator[lane] {
                true => equal(&secret_x[..limbs], &own[lane][..limbs]),
                false => data.sums.is_sum(&own[lane], &secret_x, &sum_x),
            };
            *stands = fits && shared.is_good(lane) && summed.is_good(by);
        }
        stands
    }

    fn clear_secrets(&mut self) {
        clear(&mut self.words.k);
        clear(&mut self.words.points.z);
        clear(&mut self.words.inverses);
    }

    /// The secrets of this call are overwritten; its caller has taken what it wanted.
    pub(super) fn clear_results(&mut self) {
        clear(&mut self.bytes.shared);
        clear(&mut self.bytes.sums);
    }

    /// Whether no secret of any call is left.
    #[cfg(test)]
    pub(super) fn is_clear(&self) -> bool {
        let words = [&self.words.k, &self.words.points.z, &self.words.inverses];
        let is_clear = words.iter().all(|words| words.as_flattened().iter().all(|word| *word == 0));
        let bytes = [&self.bytes.shared, &self.bytes.sums];
        is_clear && bytes.iter().all(|bytes| bytes.as_flattened().iter().all(|byte| *byte == 0))
    }
}

impl Drop for EcUnit {
    fn drop(&mut self) {
        self.clear_secrets();
        self.clear_results();
    }
}

/// The lane that checks what this one computed.
fn lane_after(lane: usize) -> usize {
    (lane + 1) % LANES
}

/// The DER of `ECDSA-Sig-Value` (RFC 3279, 2.2.3) from two numbers.
pub(super) fn write_signature(r: &[u8], s: &[u8]) -> Vec<u8> {
    let (r, s) = (significant(r), significant(s));
    let sign = |number: &[u8]| usize::from(number.first().is_none_or(|first| *first >= 0x80));
    let len = |number: &[u8]| number.len() + sign(number);
    let content = 4 + len(r) + len(s);
    let mut der = Vec::with_capacity(3 + content);
    der.push(0x30);
    // Two numbers of 66 bytes at most: the content is 139 bytes at most, so one byte or two for the length.
    if content >= 0x80 {
        der.push(0x81);
    }
    der.push(content as u8);
    for number in [r, s] {
        der.push(0x02);
        der.push(len(number) as u8);
        der.extend(std::iter::repeat_n(0, sign(number)));
        der.extend_from_slice(number);
    }
    der
}

/// The two numbers of an `ECDSA-Sig-Value`, each `len` bytes; `None` unless it is the one DER that there is of them.
/// It is read once, written again, and compared.
pub(super) fn read_signature(der: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let content = match der {
        [0x30, 0x81, _, content @ ..] | [0x30, _, content @ ..] => content,
        _ => return None,
    };
    let (r, rest) = read_integer(content)?;
    let (s, rest) = read_integer(rest)?;
    let fits = rest.is_empty() && r.len() <= len && s.len() <= len;
    (fits && write_signature(r, s) == der).then_some((r, s))
}

fn read_integer(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [0x02, len, rest @ ..] = der else { return None };
    let (number, rest) = rest.split_at_checked(usize::from(*len))?;
    // A negative number is none of a signature.
    number.first().filter(|first| **first < 0x80)?;
    Some((significant(number), rest))
}

/// Without leading zeros.
fn significant(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}
