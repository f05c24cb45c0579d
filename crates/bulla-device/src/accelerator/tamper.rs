//! A hook for tests: a place to break a lane's result before it is checked.

use std::sync::Arc;

/// What a [`Tamper`] gets into its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The raw result of an RSA private operation, still blinded: big-endian, as long as the modulus.
    RsaPrivate,
    /// The result of an RSA public operation (verification or wrap): big-endian, as long as the modulus.
    RsaPublic,
    /// X of a nonce's point, big-endian: what the lanes give to an ECDSA signature.
    EcdsaX,
    /// `r` of a signature, big-endian.
    EcdsaR,
    /// `s` of a signature, big-endian.
    EcdsaS,
    /// One byte: 1 where a signature was found good, else 0.
    EcdsaVerdict,
    /// A new key's X coordinate, big-endian.
    EcdhPoint,
    /// A shared secret.
    EcdhShared,
}

/// Changes what the lanes computed, as a broken unit might. For tests alone: an accelerator without one has no
/// way to reach into results.
pub trait Tamper: Send + Sync {
    /// May change the result of this lane.
    fn touch(&self, stage: Stage, lane: usize, bytes: &mut [u8]);
}

/// A tamper, or none.
#[derive(Clone, Copy)]
pub(super) struct Tampering<'a>(pub(super) Option<&'a Arc<dyn Tamper>>);

impl Tampering<'_> {
    pub(super) fn touch(self, stage: Stage, lane: usize, bytes: &mut [u8]) {
        if let Some(tamper) = self.0 {
            tamper.touch(stage, lane, bytes);
        }
    }
}
