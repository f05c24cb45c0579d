//! ML-DSA and ML-KEM with keys on the token (PKCS#11 3.2).

use cryptoki::context::Pkcs11;
use cryptoki::error::Error;
use cryptoki::mechanism::dsa::{HedgeType, SignAdditionalContext};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, ObjectHandle, ParameterSetType};
use cryptoki::slot::Slot;
use zeroize::Zeroizing;

use super::generate::{ml_dsa_set, ml_kem_set};
use super::{Failure, Link, Stop, TokenKey, is_lost, of_mechanism, refused, secret_to_read, told};
use crate::coprocessor::protocol::{Cause, Response};
use crate::cpu;
use crate::key::KeyKind;
use crate::random::{Random, SystemRandom};

/// The mechanism that signs with ML-DSA.
const CKM_ML_DSA: &str = "CKM_ML_DSA";
/// The mechanism that encapsulates and decapsulates.
pub(super) const CKM_ML_KEM: &str = "CKM_ML_KEM";
/// A module of before PKCS#11 3.2.
pub(super) const NO_DECAPSULATION: &str = "its module has no C_DecapsulateKey, a function of PKCS#11 3.2";
/// Bytes that a token signs to show that it has the key.
const PROBE_BYTES: usize = 32;

impl Link<'_> {
    /// Over the whole message with an empty context, as CMS has it (RFC 9882). Without parameters the token hedges
    /// where it can, as the processor does.
    pub(super) fn ml_dsa_sign(&self, key: ObjectHandle, message: &[u8]) -> Result<Zeroizing<Vec<u8>>, Stop> {
        let mechanism = Mechanism::MlDsa(SignAdditionalContext::new(HedgeType::Preferred, None));
        let signature = self.session.sign(&mechanism, key, message);
        signature.map(Zeroizing::new).map_err(|error| of_mechanism(self.token, CKM_ML_DSA, error))
    }

    /// The secret in a ciphertext. A token that refuses one is asked for the secret in a good one, and then again for
    /// this one, before it is believed: any ciphertext of the right length has a secret (FIPS 203, algorithm 21), so
    /// one that a module refuses would otherwise lie at the head of its queue for ever. An error that passes is no
    /// refusal.
    pub(super) fn ml_kem_decapsulate(&self, key: &TokenKey, ciphertext: &[u8]) -> Result<Response, Stop> {
        let passes = |stop: &Stop| match stop {
            Stop::Module(error) => !is_lost(error) && told(error).cause != Cause::Gone,
            Stop::Told(_) => false,
        };
        let first = match self.decapsulated(key.object, ciphertext) {
            Ok(secret) => return Ok(Response::Bytes(secret)),
            Err(stop) if passes(&stop) => stop,
            Err(stop) => return Err(stop),
        };
        if !self.gives_the_secret(key)? {
            return Err(first);
        }
        match self.decapsulated(key.object, ciphertext) {
            Ok(secret) => Ok(Response::Bytes(secret)),
            Err(stop) if passes(&stop) => Ok(Response::NotDecrypted),
            Err(stop) => Err(stop),
        }
    }

    /// Whether the token signs with the private half of the public key.
    pub(super) fn signs_for(&self, key: &TokenKey) -> Result<bool, Stop> {
        if self.shows_another_set(key)? {
            return Ok(false);
        }
        let mut message = [0; PROBE_BYTES];
        SystemRandom.fill(&mut message).map_err(|error| refused(error.to_string()))?;
        let signature = self.ml_dsa_sign(key.object, &message)?;
        Ok(cpu::ml_dsa_verify(&key.public, &message, &signature).is_ok())
    }

    /// Whether the token gives the secret that was encapsulated for the public key. A token's secrets can't be checked
    /// in any other way.
    pub(super) fn gives_the_secret(&self, key: &TokenKey) -> Result<bool, Stop> {
        let KeyKind::MlKem(set) = key.public.kind() else {
            return Err(refused("an encapsulated secret needs an ML-KEM key").into());
        };
        if self.shows_another_set(key)? {
            return Ok(false);
        }
        let made = cpu::ml_kem_encapsulate(&key.public).map_err(|error| refused(error.to_string()))?;
        let (ciphertext, secret) = made.split_at_checked(set.ciphertext_len()).unwrap_or_default();
        Ok(*self.decapsulated(key.object, ciphertext)? == *secret)
    }

    /// Whether the token says that its key is of another parameter set than the public key. One that does not show it
    /// says nothing.
    fn shows_another_set(&self, key: &TokenKey) -> Result<bool, Error> {
        let wanted: ParameterSetType = match key.public.kind() {
            KeyKind::MlDsa(set) => ml_dsa_set(set).into(),
            KeyKind::MlKem(set) => ml_kem_set(set).into(),
            KeyKind::Rsa | KeyKind::Ec(_) => return Ok(true),
        };
        let shown = self.session.get_attributes(key.object, &[AttributeType::ParameterSet])?;
        Ok(matches!(shown.first(), Some(Attribute::ParameterSet(set)) if *set != wanted))
    }

    /// The token keeps the secret for as long as it takes to read it.
    fn decapsulated(&self, key: ObjectHandle, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, Stop> {
        let secret = match self.session.decapsulate_key(&Mechanism::MlKem, key, &secret_to_read(), ciphertext) {
            Ok(secret) => secret,
            Err(Error::NullFunctionPointer) => {
                return Err(refused(format!("token {:?} has no {CKM_ML_KEM} ({NO_DECAPSULATION})", self.token)).into());
            }
            Err(error) => return Err(of_mechanism(self.token, CKM_ML_KEM, error)),
        };
        self.read_and_destroyed(secret)?.ok_or_else(|| refused("the token does not show the secret it found").into())
    }
}

/// Why no key of this kind can be on the token: it has not the mechanism. Nothing where it has, or does not say.
pub(super) fn lacks_mechanism(module: &Pkcs11, slot: Slot, token: &str, kind: KeyKind) -> Option<Failure> {
    let (mechanism, name) = match kind {
        KeyKind::MlDsa(_) => (MechanismType::ML_DSA, CKM_ML_DSA),
        KeyKind::MlKem(_) => (MechanismType::ML_KEM, CKM_ML_KEM),
        KeyKind::Rsa | KeyKind::Ec(_) => return None,
    };
    let has = module.get_mechanism_list(slot).map_or(true, |list| list.contains(&mechanism));
    (!has).then(|| refused(format!("token {token:?} has no {name}, and so no key of this kind")))
}
