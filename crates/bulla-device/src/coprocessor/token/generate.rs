//! Keys that are made on the token, and stay there.

use cryptoki::context::Function;
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, MlDsaParameterSetType, MlKemParameterSetType, ObjectHandle};
use cryptoki::session::Session;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{KeyType, PKey};
use openssl::rsa::Rsa;

use super::post_quantum::{CKM_ML_KEM, NO_DECAPSULATION};
use super::{Stop, Token, library, octet_string_head, of_mechanism, refused};
use crate::coprocessor::protocol::NewKey;
use crate::key::Curve;
use crate::ml_dsa::MlDsa;
use crate::ml_kem::MlKem;

/// e of the keys that are made, big-endian.
const PUBLIC_EXPONENT: [u8; 3] = [1, 0, 1];
/// The token made a key, and not what it was asked for.
const NO_PUBLIC_KEY: &str = "the token does not show the public key it made";

impl Token {
    /// Makes a key pair that stays on the token and can do what its kind can. Returns its `SubjectPublicKeyInfo`.
    pub(super) fn generate(&mut self, kind: NewKey, label: &str, id: &[u8]) -> Result<Vec<u8>, Stop> {
        let session = self.module.open_rw_session(self.slot)?;
        let both = [Attribute::Token(true), Attribute::Label(label.as_bytes().to_vec()), Attribute::Id(id.to_vec())];
        let mut public = both.to_vec();
        public.push(Attribute::Private(false));
        let mut private = both.to_vec();
        private.extend([Attribute::Private(true), Attribute::Sensitive(true), Attribute::Extractable(false)]);
        let (mechanism, name) = match kind {
            NewKey::Rsa(bits) => {
                public.extend([
                    Attribute::Verify(true),
                    Attribute::Encrypt(true),
                    Attribute::ModulusBits(u64::from(bits).into()),
                    Attribute::PublicExponent(PUBLIC_EXPONENT.to_vec()),
                ]);
                private.extend([Attribute::Sign(true), Attribute::Decrypt(true)]);
                (Mechanism::RsaPkcsKeyPairGen, "CKM_RSA_PKCS_KEY_PAIR_GEN")
            }
            NewKey::Ec(curve) => {
                let parameters = curve_oid(curve.nid()).map_err(library)?;
                public.extend([Attribute::Verify(true), Attribute::EcParams(parameters)]);
                private.extend([Attribute::Sign(true), Attribute::Derive(true)]);
                (Mechanism::EccKeyPairGen, "CKM_EC_KEY_PAIR_GEN")
            }
            NewKey::MlDsa(set) => {
                public.extend([Attribute::Verify(true), Attribute::ParameterSet(ml_dsa_set(set).into())]);
                private.push(Attribute::Sign(true));
                (Mechanism::MlDsaKeyPairGen, "CKM_ML_DSA_KEY_PAIR_GEN")
            }
            NewKey::MlKem(set) => {
                // A key that could not be used is not made.
                if !self.module.is_fn_supported(Function::DecapsulateKey) {
                    let token = &self.identity.token;
                    return Err(refused(format!("token {token:?} has no {CKM_ML_KEM} ({NO_DECAPSULATION})")).into());
                }
                public.extend([Attribute::Encapsulate(true), Attribute::ParameterSet(ml_kem_set(set).into())]);
                private.push(Attribute::Decapsulate(true));
                (Mechanism::MlKemKeyPairGen, "CKM_ML_KEM_KEY_PAIR_GEN")
            }
        };
        let (public, _) = session
            .generate_key_pair(&mechanism, &public, &private)
            .map_err(|error| of_mechanism(&self.identity.token, name, error))?;
        public_key(&session, public, kind)
    }
}

/// What the token shows of the key it made.
fn public_key(session: &Session, public: ObjectHandle, kind: NewKey) -> Result<Vec<u8>, Stop> {
    match kind {
        NewKey::Rsa(_) => {
            let attributes =
                session.get_attributes(public, &[AttributeType::Modulus, AttributeType::PublicExponent])?;
            let (n, e) = attributes.iter().fold((None, None), |found, attribute| match attribute {
                Attribute::Modulus(n) => (BigNum::from_slice(n).ok(), found.1),
                Attribute::PublicExponent(e) => (found.0, BigNum::from_slice(e).ok()),
                _ => found,
            });
            let (n, e) = n.zip(e).ok_or_else(|| refused(NO_PUBLIC_KEY))?;
            let key = Rsa::from_public_components(n, e).and_then(PKey::from_rsa);
            Ok(key.and_then(|key| key.public_key_to_der()).map_err(library)?)
        }
        NewKey::Ec(curve) => {
            let attributes = session.get_attributes(public, &[AttributeType::EcPoint])?;
            let Some(Attribute::EcPoint(point)) = attributes.first() else { return Err(refused(NO_PUBLIC_KEY).into()) };
            // An octet string around the point, by the letter of the standard; some leave it out.
            let point = [octet_string_head(curve), Vec::new()]
                .iter()
                .find_map(|head| point.strip_prefix(&head[..]).filter(|point| point.len() == curve.point_len()))
                .ok_or_else(|| refused("the token shows a public key that is no point"))?;
            Ok(spki(curve, point).map_err(library)?)
        }
        NewKey::MlDsa(set) => raw_public_key(session, public, set.key_type()),
        NewKey::MlKem(set) => raw_public_key(session, public, set.key_type()),
    }
}

/// `CKA_VALUE` of a public key of ML-DSA or ML-KEM is the key as FIPS 204 and FIPS 203 write it.
fn raw_public_key(session: &Session, public: ObjectHandle, key_type: KeyType) -> Result<Vec<u8>, Stop> {
    let attributes = session.get_attributes(public, &[AttributeType::Value])?;
    let Some(Attribute::Value(value)) = attributes.first() else { return Err(refused(NO_PUBLIC_KEY).into()) };
    let key = PKey::public_key_from_raw_bytes_ex(None, key_type, None, value);
    Ok(key.and_then(|key| key.public_key_to_der()).map_err(library)?)
}

pub(super) fn ml_dsa_set(set: MlDsa) -> MlDsaParameterSetType {
    match set {
        MlDsa::MlDsa44 => MlDsaParameterSetType::ML_DSA_44,
        MlDsa::MlDsa65 => MlDsaParameterSetType::ML_DSA_65,
        MlDsa::MlDsa87 => MlDsaParameterSetType::ML_DSA_87,
    }
}

pub(super) fn ml_kem_set(set: MlKem) -> MlKemParameterSetType {
    match set {
        MlKem::MlKem512 => MlKemParameterSetType::ML_KEM_512,
        MlKem::MlKem768 => MlKemParameterSetType::ML_KEM_768,
        MlKem::MlKem1024 => MlKemParameterSetType::ML_KEM_1024,
    }
}

/// The DER of a curve's object identifier: `CKA_EC_PARAMS`.
fn curve_oid(nid: Nid) -> Result<Vec<u8>, ErrorStack> {
    let group = EcGroup::from_curve_name(nid)?;
    let generator = group.generator_opt().ok_or_else(ErrorStack::get)?; // each of these curves has one
    let key = EcKey::from_public_key(&group, generator)?;
    let spki = PKey::from_ec_key(key)?.public_key_to_der()?;
    // SEQUENCE { SEQUENCE { OID id-ecPublicKey (9 bytes with its head), OID of the curve }, … }
    let head = if spki.get(1) == Some(&0x81) { 3 } else { 2 };
    let at = head + 2 + 9;
    let len = spki.get(at + 1).map_or(0, |len| usize::from(*len) + 2);
    Ok(spki.get(at..at + len).unwrap_or_default().to_vec())
}

fn spki(curve: Curve, point: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let group = EcGroup::from_curve_name(curve.nid())?;
    let mut context = openssl::bn::BigNumContext::new()?;
    let point = EcPoint::from_bytes(&group, point, &mut context)?;
    PKey::from_ec_key(EcKey::from_public_key(&group, &point)?)?.public_key_to_der()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_named_by_its_object_identifier() {
        assert_eq!(curve_oid(Nid::X9_62_PRIME256V1).expect("a curve"), b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07");
        assert_eq!(curve_oid(Nid::SECP521R1).expect("a curve"), b"\x06\x05\x2b\x81\x04\x00\x23");
    }
}
