//! The test that an accelerator passes before it is used: known answers first, then random ones compared with
//! OpenSSL, for every operation and size.

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Padding, Rsa};

use super::LANES;
use super::ec::{CurveData, EcUnit, PrivateEc, PublicEc, Scalar};
use super::encode;
use super::library::{EC_BYTES_MAX, LaneCurve, Library, Points, RsaSize};
use super::limbs::{EC_LIMBS_MAX, to_bytes};
use super::rsa::{Keys, PrivateRsa, RsaUnit, Unfit};
use super::tamper::Tampering;
use crate::device::DeviceError;
use crate::digest::{Digest, Hash};
use crate::key::PrivateKey;
use crate::random::{Random, SystemRandom};
use crate::work::RsaScheme;

/// Keys for this test alone; they are public. The signatures are of the word "sample" with SHA-256, by
/// `openssl dgst -sha256 -sign`.
struct KnownRsa {
    key: &'static [u8],
    signature: &'static [u8],
}

const KNOWN_RSA: [KnownRsa; 4] = [
    KnownRsa { key: include_bytes!("known/rsa-1024.der"), signature: include_bytes!("known/rsa-1024.sig") },
    KnownRsa { key: include_bytes!("known/rsa-2048.der"), signature: include_bytes!("known/rsa-2048.sig") },
    KnownRsa { key: include_bytes!("known/rsa-3072.der"), signature: include_bytes!("known/rsa-3072.sig") },
    KnownRsa { key: include_bytes!("known/rsa-4096.der"), signature: include_bytes!("known/rsa-4096.sig") },
];

/// Key, nonce and signature of "sample" with SHA-256: RFC 6979, A.2.5 to A.2.7. The nonce's point and the secret that
/// it shares with the key were computed from the curve's equations with plain integers.
struct KnownCurve {
    curve: LaneCurve,
    d: &'static str,
    x: &'static str,
    y: &'static str,
    k: &'static str,
    r: &'static str,
    s: &'static str,
    point_y: &'static str,
    shared: &'static str,
}

const KNOWN_CURVES: [KnownCurve; 3] = [
    KnownCurve {
        curve: LaneCurve::P256,
        d: "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
        x: "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
        y: "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
        k: "a6e3c57dd01abe90086538398355dd4c3b17aa873382b0f24d6129493d8aad60",
        r: "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
        s: "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
        point_y: "34a7e72c423213443152c82df94fe0f6851bf894fd91c64b19555346093ff492",
        shared: "3ffbbd4fe496a30ea456822f31c21e76482462fca119bece403abf00bed50fbb",
    },
    KnownCurve {
        curve: LaneCurve::P384,
        d: "6b9d3dad2e1b8c1c05b19875b6659f4de23c3b667bf297ba9aa47740787137d896d5724e4c70a825f872c9ea60d2edf5",
        x: "ec3a4e415b4e19a4568618029f427fa5da9a8bc4ae92e02e06aae5286b300c64def8f0ea9055866064a254515480bc13",
        y: "8015d9b72d7d57244ea8ef9ac0c621896708a59367f9dfb9f54ca84b3f1c9db1288b231c3ae0d4fe7344fd2533264720",
        k: "180ae9f9aec5438a44bc159a1fcb277c7be54fa20e7cf404b490650a8acc414e375572342863c899f9f2edf9747a9b60",
        r: "21b13d1e013c7fa1392d03c5f99af8b30c570c6f98d4ea8e354b63a21d3daa33bde1e888e63355d92fa2b3c36d8fb2cd",
        s: "f3aa443fb107745bf4bd77cb3891674632068a10ca67e3d45db2266fa7d1feebefdc63eccd1ac42ec0cb8668a4fa0ab0",
        point_y: "2a2ac4fa0d6b8d68fd4f20a95f16fca6bb76cba7ad3f1fe2cdb6d72752dce0f227f67e006fc798325bc53bbd0b661929",
        shared: "32b0764f10ada6e54defd9ede57be1f30d5395460fc4a62533e352a6e8d890ff5441006efd53ec4e2a622444672843dc",
    },
    KnownCurve {
        curve: LaneCurve::P521,
        d: "00fad06daa62ba3b25d2fb40133da757205de67f5bb0018fee8c86e1b68c7e75caa896eb32f1f47c70855836a6d16fcc1466f6d8fbec67db89ec0c08b0e996b83538",
        x: "01894550d0785932e00eaa23b694f213f8c3121f86dc97a04e5a7167db4e5bcd371123d46e45db6b5d5370a7f20fb633155d38ffa16d2bd761dcac474b9a2f5023a4",
        y: "00493101c962cd4d2fddf782285e64584139c2f91b47f87ff82354d6630f746a28a0db25741b5b34a828008b22acc23f924faafbd4d33f81ea66956dfeaa2bfdfcf5",
        k: "00edf38afcaaecab4383358b34d67c9f2216c8382aaea44a3dad5fdc9c32575761793fef24eb0fc276dfc4f6e3ec476752f043cf01415387470bcbd8678ed2c7e1a0",
        r: "01511bb4d675114fe266fc4372b87682baecc01d3cc62cf2303c92b3526012659d16876e25c7c1e57648f23b73564d67f61c6f14d527d54972810421e7d87589e1a7",
        s: "004a171143a83163d6df460aaf61522695f207a58b95c0644d87e52aa1a347916e4f7a72930b1bc06dbe22ce3f58264afd23704cbb63b29b931f7de6c9d949a7ecfc",
        point_y: "007ef9039bab4517490bd279c61fd70ea7b4266d9b455e09cb2eb976708089f0d7c5dce0950ec0fb416ed1554c19003c2bc61f766bd78784a6d906111d281a63f3c3",
        shared: "0041b37f9abc347014336352e57fdcb2fe6bf67b7b453c5b7b15e81ee9b42b78b35bcc2735a62ac4c569d34179bf1c932be15d922d12b7d608026e4b9e795f362104",
    },
];

const SAMPLE: &[u8] = b"sample";

/// Runs it all: some 100 ms, most of it OpenSSL's own RSA with 4096 bits.
///
/// # Errors
/// One line that names what went wrong.
pub(super) fn run(library: &'static Library) -> Result<(), String> {
    for known in &KNOWN_RSA {
        rsa(library, known)?;
    }
    for known in &KNOWN_CURVES {
        known_curve(library, known)?;
        random_curve(library, known.curve)?;
    }
    Ok(())
}

/// A failure of OpenSSL or of the system on the way is a failed test.
fn told<E: Into<DeviceError>>(error: E) -> String {
    error.into().to_string()
}

/// The same for a key that can't be made ready.
fn unfit(unfit: Unfit) -> String {
    unfit.private("lanes").to_string()
}

/// One key in all lanes.
struct OneKey(PrivateRsa);

impl Keys for OneKey {
    fn key(&self, _: usize) -> &PrivateRsa {
        &self.0
    }

    fn key_mut(&mut self, _: usize) -> &mut PrivateRsa {
        &mut self.0
    }
}

fn rsa(library: &'static Library, known: &KnownRsa) -> Result<(), String> {
    let crt = Rsa::private_key_from_der(known.key).map_err(told)?;
    let copy = |number: &openssl::bn::BigNumRef| number.to_owned().map_err(told);
    let without_primes =
        openssl::rsa::RsaPrivateKeyBuilder::new(copy(crt.n())?, copy(crt.e())?, copy(crt.d())?).map_err(told)?.build();
    let bits = crt.size() * 8;
    let size = RsaSize::from_bits(bits).ok_or("a known key has an unknown size")?;
    for (form, key) in [("CRT", crt.clone()), ("ME", without_primes)] {
        let what = format!("RSA {bits} {form}");
        let clear = PrivateKey::clear(PKey::from_rsa(key).map_err(told)?).map_err(told)?;
        let mut keys = OneKey(PrivateRsa::new(&clear).map_err(unfit)?);
        let mut unit = RsaUnit::new(library);
        let bytes = size.bytes();
        // The known answer is in lane 0, random ones in all others.
        let hash = Digest::Sha256.hash(SAMPLE);
        let public = &keys.0.public;
        encode::for_signature(&mut unit.input[0][..bytes], &public.rsa, RsaScheme::Pkcs1, Digest::Sha256, &hash)
            .map_err(told)?;
        for lane in 1..LANES {
            let input = &mut unit.input[lane][..bytes];
            SystemRandom.fill(input).map_err(|error| error.to_string())?;
            input[0] &= 0x7f;
        }
        let input = unit.input.clone();
        let stands = unit.private(size, &mut keys, LANES, Tampering(None)).map_err(told)?;
        if unit.output[0][..bytes] != *known.signature {
            return Err(format!("{what}: not the known signature"));
        }
        for lane in 0..LANES {
            let mut expected = vec![0; bytes];
            crt.private_encrypt(&input[lane][..bytes], &mut expected, Padding::NONE).map_err(told)?;
            if !stands[lane] || unit.output[lane][..bytes] != *expected {
                return Err(format!("{what}: another result than OpenSSL's"));
            }
        }
        // And the public operation back.
        unit.input.copy_from_slice(&unit.output.clone()[..]);
        let moduli = [keys.0.public.modulus.words(); LANES];
        let computed = unit.public(size, &moduli, LANES, Tampering(None));
        for lane in 0..LANES {
            if !computed[lane] || unit.output[lane][..bytes] != input[lane][..bytes] {
                return Err(format!("RSA {bits} public: another result than OpenSSL's"));
            }
        }
    }
    Ok(())
}

fn known_curve(library: &'static Library, known: &KnownCurve) -> Result<(), String> {
    let what = known.curve.curve();
    let data = CurveData::new(known.curve).map_err(unfit)?;
    let (d, k) = (scalar(known.d), scalar(known.k));
    let (x, y) = (scalar(known.x), scalar(known.y));
    let hash = Digest::Sha256.hash(SAMPLE);
    let len = data.bytes();
    let private = PrivateEc::of_scalar(&d, PublicEc { x, y }, &data);
    let mut unit = EcUnit::new(library);
    let stands = unit.sign_known(&data, &private, &hash, &k).map_err(told)?;
    let point = unit.point(0);
    let mut hashes = [[0; EC_BYTES_MAX]; LANES];
    hashes.iter_mut().for_each(|to| to_bytes(&mut to[..len], &data.truncated(&hash)));
    let mut shared = [[0; EC_BYTES_MAX]; LANES];
    let curve = known.curve;
    let verified = library.ecdsa_verify(curve, &unit.bytes.r, &unit.bytes.s, &hashes, &[x; LANES], &[y; LANES]);
    let mut one = [0; EC_LIMBS_MAX];
    one[0] = 1;
    let points = Points { x: [point.0; LANES], y: [point.1; LANES], z: [one; LANES] };
    let agreed = library.ecdh(curve, &[d; LANES], &points, &mut shared);
    let expected = [known.r, known.s, known.shared].map(|hex| scalar_bytes(&scalar(hex), len));
    for lane in 0..LANES {
        if !stands[lane] || !verified.is_good(lane) || !agreed.is_good(lane) {
            return Err(format!("{what}: a known operation is refused"));
        }
        if [unit.bytes.r[lane], unit.bytes.s[lane], shared[lane]] != expected {
            return Err(format!("{what}: not the known answer"));
        }
        if unit.point(lane).1 != scalar(known.point_y) {
            return Err(format!("{what}: not the known point"));
        }
    }
    Ok(())
}

/// Eight random keys, each with its own hash: signatures compared with ones made of big numbers, verdicts on good and
/// on bad ones, new keys and shared secrets with OpenSSL's.
fn random_curve(library: &'static Library, curve: LaneCurve) -> Result<(), String> {
    let what = curve.curve();
    let differs = |part: &str| Err(format!("{what}: another {part} than OpenSSL's"));
    let data = CurveData::new(curve).map_err(unfit)?;
    let group = EcGroup::from_curve_name(curve.curve().nid()).map_err(told)?;
    let mut context = BigNumContext::new().map_err(told)?;
    let mut order = BigNum::new().map_err(told)?;
    group.order(&mut order, &mut context).map_err(told)?;
    let len = data.bytes();
    let mut keys = Vec::with_capacity(LANES);
    let (mut d, mut x, mut y) = ([[0; EC_LIMBS_MAX]; LANES], [[0; EC_LIMBS_MAX]; LANES], [[0; EC_LIMBS_MAX]; LANES]);
    let mut hashes = [[0; EC_BYTES_MAX]; LANES];
    for lane in 0..LANES {
        let key: EcKey<Private> = EcKey::generate(&group).map_err(told)?;
        let clear = PrivateKey::clear(PKey::from_ec_key(key.clone()).map_err(told)?).map_err(told)?;
        d[lane] = *PrivateEc::new(&clear, &data).map_err(unfit)?.d;
        let public = PublicEc::new(clear.public_key(), &data).map_err(unfit)?;
        (x[lane], y[lane]) = (public.x, public.y);
        let hash = Digest::Sha512.hash(&[lane as u8]);
        to_bytes(&mut hashes[lane][..len], &data.truncated(&hash));
        keys.push(key);
    }
    let public = |lane: usize| PublicEc { x: x[lane], y: y[lane] };
    let prepared: Vec<PrivateEc> =
        d.iter().enumerate().map(|(lane, d)| PrivateEc::of_scalar(d, public(lane), &data)).collect();
    let lanes: Vec<&PrivateEc> = prepared.iter().collect();
    let messages: Vec<Hash> = (0..LANES).map(|lane| Digest::Sha512.hash(&[lane as u8])).collect();
    let messages: Vec<&[u8]> = messages.iter().map(|hash| &**hash).collect();
    let mut unit = EcUnit::new(library);
    let (stands, k) = unit.sign_and_tell(&data, &lanes, &messages).map_err(told)?;
    let mut points =
        Points { x: [[0; EC_LIMBS_MAX]; LANES], y: [[0; EC_LIMBS_MAX]; LANES], z: [[0; EC_LIMBS_MAX]; LANES] };
    for lane in 0..LANES {
        (points.x[lane], points.y[lane]) = unit.point(lane);
        points.z[lane][0] = 1;
    }
    let mut shared = [[0; EC_BYTES_MAX]; LANES];
    let agreed = library.ecdh(curve, &d, &points, &mut shared);
    let (r, s) = (&mut unit.bytes.r, &mut unit.bytes.s);
    for lane in 0..LANES {
        if !stands[lane] || !agreed.is_good(lane) {
            return Err(format!("{what}: a random operation is refused"));
        }
        let number = |words: &Scalar| BigNum::from_slice(&scalar_bytes(words, len)[..len]).map_err(told);
        let nonce = number(&k[lane])?;
        let mut point = EcPoint::new(&group).map_err(told)?;
        point.mul_generator2(&group, &nonce, &mut context).map_err(told)?;
        let (mut px, mut py) = (BigNum::new().map_err(told)?, BigNum::new().map_err(told)?);
        point.affine_coordinates(&group, &mut px, &mut py, &mut context).map_err(told)?;
        if number(&points.x[lane])? != px || number(&points.y[lane])? != py {
            return differs("point");
        }
        let mut expected_r = BigNum::new().map_err(told)?;
        expected_r.nnmod(&px, &order, &mut context).map_err(told)?;
        let z = BigNum::from_slice(&hashes[lane][..len]).map_err(told)?;
        let mut sum = BigNum::new().map_err(told)?;
        sum.mod_mul(&expected_r, keys[lane].private_key(), &order, &mut context).map_err(told)?;
        let mut total = BigNum::new().map_err(told)?;
        total.mod_add(&sum, &z, &order, &mut context).map_err(told)?;
        let mut inverse = BigNum::new().map_err(told)?;
        inverse.mod_inverse(&nonce, &order, &mut context).map_err(told)?;
        let mut expected_s = BigNum::new().map_err(told)?;
        expected_s.mod_mul(&total, &inverse, &order, &mut context).map_err(told)?;
        let from = |bytes: &[u8]| BigNum::from_slice(bytes).map_err(told);
        if from(&r[lane][..len])? != expected_r || from(&s[lane][..len])? != expected_s {
            return differs("signature");
        }
        let secret = curve.curve().agree(&keys[lane], &point).map_err(told)?;
        if shared[lane][..len] != **secret {
            return differs("shared secret");
        }
    }
    // Every other signature is broken, one bit each, in its s or in its hash.
    for lane in (1..LANES).step_by(2) {
        let broken = if lane % 4 == 1 { &mut s[lane] } else { &mut hashes[lane] };
        broken[len - 1 - lane] ^= 1 << lane;
    }
    let verified = library.ecdsa_verify(curve, r, s, &hashes, &x, &y);
    for lane in 0..LANES {
        if verified.is_good(lane) != (lane % 2 == 0) {
            return Err(format!("{what}: another verdict than the right one"));
        }
    }
    Ok(())
}

/// The words of a hexadecimal number; a digit that is none counts as 0.
fn scalar(hex: &str) -> Scalar {
    let mut words = [0; EC_LIMBS_MAX];
    for (place, digit) in hex.bytes().rev().enumerate() {
        let value = char::from(digit).to_digit(16).unwrap_or(0);
        words[place / 16] |= u64::from(value) << (4 * (place % 16));
    }
    words
}

fn scalar_bytes(words: &Scalar, len: usize) -> [u8; EC_BYTES_MAX] {
    let mut bytes = [0; EC_BYTES_MAX];
    to_bytes(&mut bytes[..len], words);
    bytes
}
