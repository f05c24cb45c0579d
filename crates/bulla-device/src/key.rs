//! Private keys, by reference: who holds one can use it, but not print it.

use std::fmt;
use std::sync::Arc;

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroupRef, EcKey, EcKeyRef, EcPoint, EcPointRef, PointConversionForm};
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, PKeyRef, Private, Public};
use openssl::rsa::Rsa;
use zeroize::Zeroizing;

use crate::device::DeviceError;
use crate::digest::Digest;
use crate::ml_dsa::MlDsa;
use crate::ml_kem::MlKem;
use crate::prepared::Prepared;
use crate::random::{RandomError, random_bytes};
use crate::rejection::RejectionSecret;
use crate::work::RsaPadding;

/// Bits of the shortest RSA modulus that is accepted.
pub const RSA_BITS_MIN: u32 = 1024;
/// Bits of the longest RSA modulus that is accepted.
pub const RSA_BITS_MAX: u32 = 4096;

/// The public exponent of nearly all RSA keys.
pub(crate) const COMMON_EXPONENT: u32 = 65537;

/// A key for an operation: the private half with its public one, or the public one alone.
#[derive(Clone, Debug)]
pub enum Key {
    /// Can sign and unwrap.
    Private(PrivateKey),
    /// Can verify and wrap.
    Public(PublicKey),
}

impl Key {
    /// The public half.
    pub fn public(&self) -> &PublicKey {
        match self {
            Key::Private(key) => key.public_key(),
            Key::Public(key) => key,
        }
    }

    /// The private half, if it is one.
    pub fn private(&self) -> Option<&PrivateKey> {
        match self {
            Key::Private(key) => Some(key),
            Key::Public(_) => None,
        }
    }

    /// RSA, which curve, or which parameter set.
    pub fn kind(&self) -> KeyKind {
        self.public().kind()
    }

    /// Bits of the modulus or of the curve's field; the number in the name of an ML-DSA or ML-KEM parameter set.
    pub fn bits(&self) -> u32 {
        self.public().bits()
    }

    /// SHA-256 of the public key's `SubjectPublicKeyInfo`.
    pub fn id(&self) -> [u8; 32] {
        self.public().id()
    }

    /// Whether private operations have an RSA key's primes to work with. It is not known of a token's
    /// key; it counts as one that has them.
    pub fn has_primes(&self) -> bool {
        self.private().is_some_and(|key| key.rsa().is_none_or(|rsa| rsa.p().is_some() && rsa.q().is_some()))
    }
}

impl From<PrivateKey> for Key {
    fn from(key: PrivateKey) -> Key {
        Key::Private(key)
    }
}

impl From<PublicKey> for Key {
    fn from(key: PublicKey) -> Key {
        Key::Public(key)
    }
}

/// A public key, shared by reference.
#[derive(Clone)]
pub struct PublicKey(Arc<PublicInner>);

struct PublicInner {
    id: [u8; 32],
    kind: KeyKind,
    bits: u32,
    key: PKey<Public>,
    ec: Option<EcKey<Public>>,
    has_common_exponent: bool,
    prepared: Prepared,
}

impl PublicKey {
    /// Takes a public key.
    ///
    /// # Errors
    /// [`DeviceError::UnsupportedKey`] for a kind, curve or size outside the profile. [`DeviceError::Library`] for the
    /// point at infinity: OpenSSL reads it from a certificate (one byte 00), but does not hand it out as a key.
    pub fn new<T: openssl::pkey::HasPublic>(key: &PKeyRef<T>) -> Result<PublicKey, DeviceError> {
        let kind = KeyKind::of(key)?;
        let bits = match kind {
            KeyKind::Rsa | KeyKind::Ec(_) => key.bits(),
            KeyKind::MlDsa(set) => set.number(),
            KeyKind::MlKem(set) => set.number(),
        };
        let spki = key.public_key_to_der()?;
        let mut id = [0; 32];
        id.copy_from_slice(&Digest::Sha256.hash(&spki));
        let key = PKey::public_key_from_der(&spki)?;
        let ec = match kind {
            KeyKind::Ec(_) => Some(key.ec_key()?),
            KeyKind::Rsa | KeyKind::MlDsa(_) | KeyKind::MlKem(_) => None,
        };
        let has_common_exponent = kind == KeyKind::Rsa && *key.rsa()?.e() == *BigNum::from_u32(COMMON_EXPONENT)?;
        Ok(PublicKey(Arc::new(PublicInner {
            id,
            kind,
            bits,
            key,
            ec,
            has_common_exponent,
            prepared: Prepared::default(),
        })))
    }

    /// SHA-256 of the `SubjectPublicKeyInfo`.
    pub fn id(&self) -> [u8; 32] {
        self.0.id
    }

    /// RSA, which curve, or which parameter set.
    pub fn kind(&self) -> KeyKind {
        self.0.kind
    }

    /// Bits of the modulus or of the curve's field; the number in the name of an ML-DSA or ML-KEM parameter set.
    pub fn bits(&self) -> u32 {
        self.0.bits
    }

    /// The library's form of it.
    pub fn key(&self) -> &PKeyRef<Public> {
        &self.0.key
    }

    pub(crate) fn ec(&self) -> Option<&EcKey<Public>> {
        self.0.ec.as_ref()
    }

    /// Whether it is an RSA key with the public exponent that nearly all have: 65537.
    pub fn has_common_exponent(&self) -> bool {
        self.0.has_common_exponent
    }

    /// Contexts to work with it, shared by all clones.
    pub(crate) fn prepared(&self) -> &Prepared {
        &self.0.prepared
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PublicKey({}, {} bits, ", self.0.kind, self.0.bits)?;
        self.0.id.iter().take(8).try_for_each(|byte| write!(out, "{byte:02x}"))?;
        out.write_str("…)")
    }
}

/// A private key, shared by reference. `Debug` shows its kind, size and id.
#[derive(Clone)]
pub struct PrivateKey(Arc<Inner>);

struct Inner {
    public: PublicKey,
    origin: Origin,
    /// Of RSA keys.
    rejection: Option<RejectionSecret>,
}

/// Where the key material is.
enum Origin {
    /// In this process.
    Clear { key: PKey<Private>, rsa: Option<Rsa<Private>>, ec: Option<EcKey<Private>> },
    /// On a token or in a transit engine, under this URI ([`KeyUri`](crate::KeyUri)).
    Token { uri: String },
}

impl PrivateKey {
    /// Takes a key whose material is in this process.
    ///
    /// # Errors
    /// [`DeviceError::UnsupportedKey`] for a kind, curve or size outside the profile.
    pub fn clear(key: PKey<Private>) -> Result<PrivateKey, DeviceError> {
        let public = PublicKey::new(&key)?;
        let (rsa, ec) = match public.kind() {
            KeyKind::Rsa => (Some(key.rsa()?), None),
            KeyKind::Ec(_) => (None, Some(key.ec_key()?)),
            KeyKind::MlDsa(_) | KeyKind::MlKem(_) => (None, None),
        };
        let rejection = rsa.as_ref().map(RejectionSecret::of_rsa).transpose()?;
        let origin = Origin::Clear { key, rsa, ec };
        Ok(PrivateKey(Arc::new(Inner { public, origin, rejection })))
    }

    /// A key that stays on its token, or in its transit engine: its public half, and the URI
    /// ([`KeyUri`](crate::KeyUri)) that a device finds it by. What takes the place of a key that it does not unwrap is
    /// the same as long as this process lives.
    pub fn on_token(public: PublicKey, uri: impl Into<String>) -> PrivateKey {
        PrivateKey::token(public, uri.into(), RejectionSecret::of_this_process().ok())
    }

    /// As [`on_token`](Self::on_token), with a secret that is kept: what takes the place of a key that it does not
    /// unwrap is the same as long as the secret is.
    pub fn on_token_with(public: PublicKey, uri: impl Into<String>, secret: &RejectionSecret) -> PrivateKey {
        PrivateKey::token(public, uri.into(), Some(secret.clone()))
    }

    fn token(public: PublicKey, uri: String, secret: Option<RejectionSecret>) -> PrivateKey {
        let rejection = secret.map(|secret| secret.of_key(&public.id()));
        PrivateKey(Arc::new(Inner { public, origin: Origin::Token { uri }, rejection }))
    }

    /// What takes the place of a content key that does not come out of this ciphertext. It is computed for every
    /// unwrap, whatever becomes of it.
    ///
    /// # Errors
    /// [`DeviceError::Library`] without randomness, [`DeviceError::WrongKey`] for a longer key than there is.
    pub fn rejected(
        &self,
        padding: RsaPadding,
        ciphertext: &[u8],
        len: usize,
    ) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        match (padding, &self.0.rejection) {
            (RsaPadding::Oaep { .. }, _) => Ok(random_bytes(len)?),
            (RsaPadding::Pkcs1, Some(secret)) => secret.content_key(ciphertext, len),
            (RsaPadding::Pkcs1, None) => Err(RandomError.into()),
        }
    }

    /// SHA-256 of the public key's `SubjectPublicKeyInfo`.
    pub fn id(&self) -> [u8; 32] {
        self.0.public.id()
    }

    /// RSA, which curve, or which parameter set.
    pub fn kind(&self) -> KeyKind {
        self.0.public.kind()
    }

    /// Bits of the modulus or of the curve's field; the number in the name of an ML-DSA or ML-KEM parameter set.
    pub fn bits(&self) -> u32 {
        self.0.public.bits()
    }

    /// The public half, as the library has it.
    pub fn public(&self) -> &PKeyRef<Public> {
        self.0.public.key()
    }

    /// The public half.
    pub fn public_key(&self) -> &PublicKey {
        &self.0.public
    }

    /// The key itself where it is in this process; `None` for a key that never leaves its token.
    pub fn exportable(&self) -> Option<&PKeyRef<Private>> {
        match &self.0.origin {
            Origin::Clear { key, .. } => Some(key),
            Origin::Token { .. } => None,
        }
    }

    /// The URI of a key that never leaves its token or its transit engine.
    pub fn token_uri(&self) -> Option<&str> {
        match &self.0.origin {
            Origin::Clear { .. } => None,
            Origin::Token { uri } => Some(uri),
        }
    }

    pub(crate) fn rsa(&self) -> Option<&Rsa<Private>> {
        match &self.0.origin {
            Origin::Clear { rsa, .. } => rsa.as_ref(),
            Origin::Token { .. } => None,
        }
    }

    pub(crate) fn ec(&self) -> Option<&EcKey<Private>> {
        match &self.0.origin {
            Origin::Clear { ec, .. } => ec.as_ref(),
            Origin::Token { .. } => None,
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PrivateKey({}, {} bits, ", self.kind(), self.bits())?;
        self.id().iter().take(8).try_for_each(|byte| write!(out, "{byte:02x}"))?;
        out.write_str("…)")
    }
}

/// The kinds of keys in the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA, 1024 to 4096 bits.
    Rsa,
    /// A NIST curve over a prime field.
    Ec(Curve),
    /// ML-DSA, which signs.
    MlDsa(MlDsa),
    /// ML-KEM, which gives secrets to its owner.
    MlKem(MlKem),
}

impl KeyKind {
    /// The kind of a private or public key.
    ///
    /// # Errors
    /// [`DeviceError::UnsupportedKey`] for a kind, curve or size outside the profile.
    pub fn of<T: openssl::pkey::HasPublic>(key: &PKeyRef<T>) -> Result<KeyKind, DeviceError> {
        let unsupported = |what: String| Err(DeviceError::UnsupportedKey { what });
        if let Some(set) = MlDsa::of(key) {
            return Ok(KeyKind::MlDsa(set));
        }
        if let Some(set) = MlKem::of(key) {
            return Ok(KeyKind::MlKem(set));
        }
        match key.id() {
            Id::RSA => match key.bits() {
                RSA_BITS_MIN..=RSA_BITS_MAX => Ok(KeyKind::Rsa),
                bits => unsupported(format!("RSA with {bits} bits")),
            },
            Id::EC => {
                let nid = key.ec_key()?.group().curve_name();
                match nid.and_then(Curve::from_nid) {
                    Some(curve) => Ok(KeyKind::Ec(curve)),
                    None => unsupported("an unknown elliptic curve".to_owned()),
                }
            }
            id => unsupported(format!("key type {}", id.as_raw())),
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::Rsa => out.write_str("RSA"),
            KeyKind::Ec(curve) => write!(out, "{curve}"),
            KeyKind::MlDsa(set) => write!(out, "{set}"),
            KeyKind::MlKem(set) => write!(out, "{set}"),
        }
    }
}

/// NIST's curves over prime fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Curve {
    /// P-192, `prime192v1`.
    P192,
    /// P-224, `secp224r1`.
    P224,
    /// P-256, `prime256v1`.
    P256,
    /// P-384, `secp384r1`.
    P384,
    /// P-521, `secp521r1`.
    P521,
}

impl Curve {
    /// Every curve, smallest first.
    pub const ALL: &'static [Curve] = &[Curve::P192, Curve::P224, Curve::P256, Curve::P384, Curve::P521];

    /// Bits of the field.
    pub const fn bits(self) -> u32 {
        match self {
            Curve::P192 => 192,
            Curve::P224 => 224,
            Curve::P256 => 256,
            Curve::P384 => 384,
            Curve::P521 => 521,
        }
    }

    /// Bytes of one coordinate, and of a shared secret.
    pub const fn coordinate_len(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    /// Bytes of an uncompressed point.
    pub const fn point_len(self) -> usize {
        1 + 2 * self.coordinate_len()
    }

    /// OpenSSL's number for the curve.
    pub fn nid(self) -> Nid {
        match self {
            Curve::P192 => Nid::X9_62_PRIME192V1,
            Curve::P224 => Nid::SECP224R1,
            Curve::P256 => Nid::X9_62_PRIME256V1,
            Curve::P384 => Nid::SECP384R1,
            Curve::P521 => Nid::SECP521R1,
        }
    }

    /// The curve of that number, if it is one of these.
    pub fn from_nid(nid: Nid) -> Option<Curve> {
        Curve::ALL.iter().copied().find(|curve| curve.nid() == nid)
    }

    /// A point from its uncompressed form; one off the curve, or at infinity, is refused.
    pub(crate) fn read_point(self, group: &EcGroupRef, bytes: &[u8]) -> Result<EcPoint, DeviceError> {
        if bytes.len() != self.point_len() || bytes.first() != Some(&UNCOMPRESSED) {
            return Err(DeviceError::WrongKey { why: "not an uncompressed point of its curve" });
        }
        let mut context = BigNumContext::new()?;
        // This checks the curve's equation; all curves here have prime order.
        Ok(EcPoint::from_bytes(group, bytes, &mut context)?)
    }

    /// The shared secret of a private key and a point: the X coordinate (SEC 1, 3.3.1). The same
    /// multiplication as OpenSSL's own ECDH, without moving both keys into its provider first, which
    /// costs more than the multiplication. Nothing checks it here: devices compute it a second way.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when the result is at infinity or the library fails.
    pub fn agree(self, private: &EcKeyRef<Private>, peer: &EcPointRef) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        let group = private.group();
        let mut context = BigNumContext::new_secure()?;
        let mut shared = EcPoint::new(group)?;
        shared.mul2(group, peer, private.private_key(), &mut context)?;
        let (mut x, mut y) = (BigNum::new_secure()?, BigNum::new_secure()?);
        shared.affine_coordinates(group, &mut x, &mut y, &mut context)?;
        let len = i32::try_from(self.coordinate_len()).unwrap_or(i32::MAX);
        Ok(Zeroizing::new(x.to_vec_padded(len)?))
    }

    /// The uncompressed point of a key on this curve.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when the key is no EC key.
    pub fn point<T: openssl::pkey::HasPublic>(key: &PKeyRef<T>) -> Result<Vec<u8>, DeviceError> {
        let key = key.ec_key()?;
        Curve::point_of(&key)
    }

    /// The uncompressed point of a key on this curve.
    ///
    /// # Errors
    /// [`DeviceError::Library`] when the library fails.
    pub fn point_of<T: openssl::pkey::HasPublic>(key: &EcKeyRef<T>) -> Result<Vec<u8>, DeviceError> {
        let mut context = BigNumContext::new()?;
        Ok(key.public_key().to_bytes(key.group(), PointConversionForm::UNCOMPRESSED, &mut context)?)
    }
}

/// The first byte of an uncompressed point (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 4;

impl fmt::Display for Curve {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "P-{}", self.bits())
    }
}
