//! A hook for tests: a place to break a result of a lane, or of the processor, before it is checked.

use std::sync::Arc;

use super::library::EC_BYTES_MAX;
use super::limbs::{from_bytes, to_bytes};

/// What a [`Tamper`] gets into its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The raw result of an RSA private operation, on the lanes still blinded: big-endian, as long as the modulus.
    RsaPrivate,
    /// A whole signature, as the processor made it.
    Signature,
    /// The result of an RSA public operation (verification or wrap): big-endian, as long as the modulus.
    RsaPublic,
    /// X and Y of a nonce's point, big-endian: what the lanes give to an ECDSA signature.
    EcdsaPoint,
    /// `r` of a signature, big-endian.
    EcdsaR,
    /// `s` of a signature, big-endian.
    EcdsaS,
    /// One byte: 1 where a signature that was to be verified is good, else 0.
    EcdsaVerdict,
    /// One byte: 1 where the lane found a signature good that another lane made, else 0.
    EcdsaCheck,
    /// X and Y of a new key's point, big-endian.
    EcdhPoint,
    /// A shared secret.
    EcdhShared,
    /// The X coordinate that a shared secret of another lane is checked with.
    EcdhSum,
}

/// Changes what the lanes, or the processor, computed, as a broken unit might. For tests alone: a device without one
/// has no way to reach into results.
pub trait Tamper: Send + Sync {
    /// May change the result of this lane; the processor has lane 0 alone.
    fn touch(&self, stage: Stage, lane: usize, bytes: &mut [u8]);
}

/// A tamper, or none.
#[derive(Clone, Copy)]
pub(crate) struct Tampering<'a>(pub(crate) Option<&'a Arc<dyn Tamper>>);

impl Tampering<'_> {
    pub(crate) fn touch(self, stage: Stage, lane: usize, bytes: &mut [u8]) {
        if let Some(tamper) = self.0 {
            tamper.touch(stage, lane, bytes);
        }
    }

    /// The same for a point, whose coordinates have `len` bytes each.
    pub(super) fn touch_point(self, stage: Stage, lane: usize, x: &mut [u64], y: &mut [u64], len: usize) {
        if self.0.is_some() {
            let mut bytes = [0; 2 * EC_BYTES_MAX];
            to_bytes(&mut bytes[..len], x);
            to_bytes(&mut bytes[len..2 * len], y);
            self.touch(stage, lane, &mut bytes[..2 * len]);
            from_bytes(x, &bytes[..len]);
            from_bytes(y, &bytes[len..2 * len]);
        }
    }
}
