//! How strong a key is: RSA beside NIST's curves of like strength (NIST SP 800-57 part 1, revision 5, table 2), and the
//! classes that the categories of ML-DSA and ML-KEM say they reach (FIPS 203 and 204).

use std::fmt;

use bulla_device::{MlDsa, MlKem};

use super::KeyKind;

/// A class of strength.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Strength {
    /// Bits of security: an attacker needs some 2 to the power of them.
    pub bits: u32,
    /// The shortest RSA key of the class, in bits of the modulus.
    pub rsa_bits: u32,
    /// The smallest NIST curve of the class, in bits of its field.
    pub curve_bits: u32,
}

impl Strength {
    /// Every class, the weakest first. The first one is *at most* 80 bits, and disallowed for new signatures.
    pub const TABLE: [Strength; 5] = [
        Strength { bits: 80, rsa_bits: 1024, curve_bits: 192 },
        Strength { bits: 112, rsa_bits: 2048, curve_bits: 224 },
        Strength { bits: 128, rsa_bits: 3072, curve_bits: 256 },
        Strength { bits: 192, rsa_bits: 7680, curve_bits: 384 },
        Strength { bits: 256, rsa_bits: 15360, curve_bits: 521 },
    ];

    /// The class of a key; none for one that is shorter than any here.
    pub fn of(kind: KeyKind, key_bits: u32) -> Option<Strength> {
        let least = |class: &Strength| if kind == KeyKind::Rsa { class.rsa_bits } else { class.curve_bits };
        let reached = |class: &Strength| match kind {
            // The categories of FIPS 203 and 204: like AES-128 (1) or SHA-256 (2), AES-192 (3), AES-256 (5).
            KeyKind::MlDsa(MlDsa::MlDsa44) | KeyKind::MlKem(MlKem::MlKem512) => class.bits <= 128,
            KeyKind::MlDsa(MlDsa::MlDsa65) | KeyKind::MlKem(MlKem::MlKem768) => class.bits <= 192,
            KeyKind::MlDsa(MlDsa::MlDsa87) | KeyKind::MlKem(MlKem::MlKem1024) => true,
            KeyKind::Rsa | KeyKind::Ec(_) | KeyKind::Other => key_bits >= least(class),
        };
        Strength::TABLE.into_iter().rev().find(reached)
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bits, as RSA {} and P-{}", self.bits, self.rsa_bits, self.curve_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Curve;

    #[test]
    fn a_key_has_the_strength_of_the_class_that_it_reaches() {
        let bits = |kind, key| Strength::of(kind, key).map(|class| class.bits);
        for class in Strength::TABLE {
            assert_eq!(bits(KeyKind::Rsa, class.rsa_bits), Some(class.bits));
            assert_eq!(bits(KeyKind::Ec(Curve::P256), class.curve_bits), Some(class.bits));
        }
        assert_eq!(bits(KeyKind::MlDsa(MlDsa::MlDsa44), 44), Some(128));
        assert_eq!(bits(KeyKind::MlKem(MlKem::MlKem768), 768), Some(192));
        assert_eq!(bits(KeyKind::MlDsa(MlDsa::MlDsa87), 87), Some(256));
        assert_eq!((bits(KeyKind::Rsa, 4096), bits(KeyKind::Rsa, 512)), (Some(128), None));
        assert_eq!(Strength::TABLE[1].to_string(), "112 bits, as RSA 2048 and P-224");
    }
}
