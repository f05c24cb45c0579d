//! Key agreements on the processor and on tokens: each secret is computed a second way before it is used.
//!
//! Beside the secret k·P a second product is computed, k·(G + P), with another point, and k·(G + P) = k·G + k·P must
//! hold. k·G is the public key, or the point of a key that is made for one agreement, which comes from another function
//! than the two products. One wrong value among the three does not fit the other two, but with a chance of two in the
//! order of the curve; a damaged k, which makes both products wrong, does not fit k·G. What is compared are the bytes
//! of the X coordinates as they leave, so a token, which gives out nothing else, is checked alike.
//!
//! To compute the same product twice and compare would find neither a damaged k nor a fault that comes each time.

use std::sync::LazyLock;

use openssl::bn::BigNumContext;
use openssl::ec::{EcGroup, EcGroupRef, EcKeyRef, EcPoint, EcPointRef, PointConversionForm};
use openssl::error::ErrorStack;
use openssl::memcmp;
use openssl::pkey::Private;
use zeroize::Zeroizing;

use crate::accelerator::{Stage, Sums, Tampering};
use crate::device::DeviceError;
use crate::key::Curve;

/// In the order of [`Curve::ALL`].
static SUMS: LazyLock<Vec<Option<Sums>>> = LazyLock::new(|| {
    let of = |curve: &Curve| EcGroup::from_curve_name(curve.nid()).ok().and_then(|group| Sums::of(&group));
    Curve::ALL.iter().map(of).collect()
});

/// G + P; nothing where that is the point at infinity.
fn with_generator(group: &EcGroupRef, peer: &EcPointRef) -> Result<Option<EcPoint>, ErrorStack> {
    let generator = group.generator_opt().ok_or_else(ErrorStack::get)?; // each of these curves has one
    let mut context = BigNumContext::new()?;
    let mut sum = EcPoint::new(group)?;
    sum.add(group, generator, peer, &mut context)?;
    Ok((!sum.is_infinity(group)).then_some(sum))
}

/// G + P, uncompressed, for a device that is asked for bytes; nothing where that is the point at infinity.
pub(crate) fn second_point(group: &EcGroupRef, peer: &EcPointRef) -> Result<Option<Vec<u8>>, ErrorStack> {
    let Some(sum) = with_generator(group, peer)? else { return Ok(None) };
    let mut context = BigNumContext::new()?;
    sum.to_bytes(group, PointConversionForm::UNCOMPRESSED, &mut context).map(Some)
}

/// Whether a secret, the X coordinate of k·P, fits that of k·(G + P) and the public point k·G. Where G + P is the point
/// at infinity, P is -G, and the secret has the public point's X coordinate.
///
/// # Errors
/// [`DeviceError::Library`] where the curve's constants could not be had.
pub(crate) fn fits(curve: Curve, public: &[u8], secret: &[u8], second: Option<&[u8]>) -> Result<bool, DeviceError> {
    let own = public.get(1..=curve.coordinate_len()).unwrap_or_default();
    let Some(second) = second else { return Ok(own.len() == secret.len() && memcmp::eq(own, secret)) };
    let place = Curve::ALL.iter().position(|known| *known == curve);
    let sums = place.and_then(|place| SUMS.get(place)).and_then(Option::as_ref);
    let sums = sums.ok_or_else(|| DeviceError::Library { text: format!("it has no {curve}") })?;
    Ok(sums.fit(own, secret, second))
}

/// The shared secret of a private key and a point, computed by the processor; nothing where it does not fit `public`,
/// the key's own point.
///
/// # Errors
/// [`DeviceError::Library`].
pub(crate) fn agree(
    curve: Curve,
    private: &EcKeyRef<Private>,
    public: &[u8],
    peer: &EcPointRef,
    tampering: Tampering<'_>,
) -> Result<Option<Zeroizing<Vec<u8>>>, DeviceError> {
    let mut secret = curve.agree(private, peer)?;
    tampering.touch(Stage::EcdhShared, 0, &mut secret);
    let second = match with_generator(private.group(), peer)? {
        Some(sum) => {
            let mut second = curve.agree(private, &sum)?;
            tampering.touch(Stage::EcdhSum, 0, &mut second);
            Some(second)
        }
        None => None,
    };
    let good = fits(curve, public, &secret, second.as_ref().map(|second| second.as_slice()))?;
    Ok(good.then_some(secret))
}
