//! One session with a token: what the helper process does with the module. Nothing here trusts the module's
//! results; the other process checks them with the public key.

mod generate;
mod post_quantum;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Function, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::elliptic_curve::{EcKdf, Ecdh1DeriveParams};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsOaepParams, PkcsOaepSource, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, SessionState, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::RawAuthPin;
use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::rsa::Padding;
use zeroize::Zeroizing;

use super::ecdsa_der;
use super::protocol::{Cause, KeyId, Request, Response};
use super::uri::{TokenIdentity, Uri};
use crate::code_file::checked_code_file;
use crate::cpu;
use crate::device::DeviceError;
use crate::digest::Digest;
use crate::key::{Curve, KeyKind, PublicKey};
use crate::random::{Random, SystemRandom};
use crate::work::{Job, Output, RsaPadding, RsaScheme, Work};

/// Keys that one session knows at a time; one more, and all of them are found again as they are asked for.
const KEYS_MAX: usize = 1024;
/// Objects that may fit one URI.
const OBJECTS_MAX: usize = 64;
/// Bytes of the content key that a token unwraps to show that it can.
const PROBE_BYTES: usize = 32;
/// The token answers, but not what the public key says.
const WRONG_RESULT: &str = "it gives a wrong result";

/// A failure on its way to the other process.
#[derive(Debug)]
pub(super) struct Failure {
    cause: Cause,
    why: String,
}

type Outcome<T> = Result<T, Failure>;

fn gone(why: impl Into<String>) -> Failure {
    Failure { cause: Cause::Gone, why: why.into() }
}

fn refused(why: impl Into<String>) -> Failure {
    Failure { cause: Cause::Refused, why: why.into() }
}

impl From<Failure> for Response {
    fn from(failure: Failure) -> Response {
        Response::failed(failure.cause, failure.why)
    }
}

/// Loads and initializes a module.
pub(super) fn load_module(path: &Path) -> Outcome<Pkcs11> {
    let fails = |error: String| gone(format!("module {} can't be loaded: {error}", path.display()));
    let file = checked_code_file(path).map_err(|error| fails(error.to_string()))?;
    let module = Pkcs11::new(file).map_err(|error| fails(text(&error)))?;
    module
        .initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))
        .map_err(|error| gone(format!("module {} did not start: {}", path.display(), text(&error))))?;
    Ok(module)
}

/// Logins of this process, one at a time. After a refused PIN there is no other try in this process: each would
/// bring the token nearer to locking it.
#[derive(Clone, Default)]
pub(super) struct Logins(Arc<Mutex<Option<String>>>);

/// A session that is logged in, and the keys that were found with it.
pub(super) struct Token {
    module: Pkcs11,
    logins: Logins,
    wanted: Uri,
    pin: Option<RawAuthPin>,
    identity: TokenIdentity,
    slot: Slot,
    session: Session,
    keys: HashMap<KeyId, TokenKey>,
}

/// A private key on the token, and what was found out about it.
struct TokenKey {
    object: ObjectHandle,
    public: PublicKey,
    unwrap: HashMap<RsaPadding, Unwrap>,
    point: Option<PointForm>,
}

/// How a key's padding comes off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unwrap {
    /// By the token.
    Oaep,
    /// By the other process, from the raw result.
    Raw,
}

/// How the token wants a peer's point: as it is, or as a DER octet string (PKCS#11 3.0, 2.3.5 allows both).
#[derive(Clone, Copy)]
enum PointForm {
    Plain,
    OctetString,
}

impl Token {
    /// Finds the token, opens a session and logs in, once for all sessions of this process.
    pub(super) fn open(
        module: Pkcs11,
        logins: &Logins,
        wanted: Uri,
        pin: Option<Zeroizing<Vec<u8>>>,
    ) -> Outcome<Token> {
        let pin = pin.map(|mut pin| RawAuthPin::new(Box::new(std::mem::take(&mut *pin))));
        let (slot, identity) = find_token(&module, &wanted)?;
        let session = open_session(&module, logins, slot, &identity, pin.as_ref())?;
        Ok(Token { module, logins: logins.clone(), wanted, pin, identity, slot, session, keys: HashMap::new() })
    }

    pub(super) fn identity(&self) -> &TokenIdentity {
        &self.identity
    }

    /// Does one request. After a lost session, or a handle that is none any more, there is a new session, and
    /// the answer is that the key is to be loaded again.
    pub(super) fn answer(&mut self, request: Request) -> Response {
        let key = match &request {
            Request::Open { .. } => return Response::failed(Cause::Protocol, "the session is open already"),
            Request::Load { key, uri, public } => {
                let loaded = self.load(*key, uri, public);
                return self.respond(loaded.map(|()| Response::Done));
            }
            Request::Generate { kind, label, id } => {
                let made = self.generate(*kind, label, id);
                return self.respond(made.map(|public| Response::Bytes(Zeroizing::new(public))));
            }
            Request::RsaSign { key, .. }
            | Request::EcdsaSign { key, .. }
            | Request::RsaUnwrap { key, .. }
            | Request::EcdhDerive { key, .. }
            | Request::MlDsaSign { key, .. }
            | Request::MlKemDecapsulate { key, .. } => *key,
        };
        let Some(key) = self.keys.get_mut(&key) else { return Response::UnknownKey };
        let session = Link { session: &self.session, token: &self.identity.token };
        let outcome = match &request {
            Request::RsaSign { scheme, digest, hash, .. } => {
                session.rsa_sign(key.object, *scheme, *digest, hash).map(Response::Bytes).map_err(Stop::from)
            }
            Request::EcdsaSign { hash, .. } => {
                session.ecdsa_sign(key.object, key.public.kind(), hash).map(Response::Bytes).map_err(Stop::from)
            }
            Request::RsaUnwrap { padding, wrapped, .. } => session.unwrap(key, *padding, wrapped),
            Request::EcdhDerive { peer, .. } => session.derive_any_form(key, peer).map(Response::Bytes),
            Request::MlDsaSign { message, .. } => session.ml_dsa_sign(key.object, message).map(Response::Bytes),
            Request::MlKemDecapsulate { ciphertext, .. } => session.ml_kem_decapsulate(key, ciphertext),
            Request::Open { .. } | Request::Load { .. } | Request::Generate { .. } => Ok(Response::UnknownKey),
        };
        self.respond(outcome)
    }

    fn respond(&mut self, outcome: Result<Response, Stop>) -> Response {
        match outcome {
            Ok(response) => response,
            Err(Stop::Told(failure)) => failure.into(),
            Err(Stop::Module(error)) if is_lost(&error) => match self.reopen() {
                Ok(()) => Response::UnknownKey,
                Err(failure) => failure.into(),
            },
            Err(Stop::Module(error)) => told(&error).into(),
        }
    }

    fn reopen(&mut self) -> Outcome<()> {
        self.keys.clear();
        let (slot, identity) = find_token(&self.module, &self.wanted)?;
        self.session = open_session(&self.module, &self.logins, slot, &identity, self.pin.as_ref())?;
        (self.slot, self.identity) = (slot, identity);
        Ok(())
    }

    fn load(&mut self, id: KeyId, uri: &str, public: &[u8]) -> Result<(), Stop> {
        let uri: Uri = uri.parse().map_err(|error| refused(format!("{error}")))?;
        let public = PKey::public_key_from_der(public)
            .map_err(DeviceError::from)
            .and_then(|public| PublicKey::new(&public))
            .map_err(|error| refused(error.to_string()))?;
        if !uri.fits(&self.identity, Some(self.slot.id())) {
            return Err(refused(format!("{} is not on token {:?}", uri.without_query(), self.identity.token)).into());
        }
        if !matches!(uri.class, None | Some(super::uri::ObjectClass::Private)) {
            return Err(refused(format!("{} does not name a private key", uri.without_query())).into());
        }
        let mut template = vec![Attribute::Class(ObjectClass::PRIVATE_KEY)];
        template.extend(uri.object.iter().map(|label| Attribute::Label(label.as_bytes().to_vec())));
        template.extend(uri.id.iter().map(|id| Attribute::Id(id.clone())));
        let mut objects = Vec::new();
        for object in self.session.iter_objects(&template)? {
            objects.push(object?);
            if objects.len() > OBJECTS_MAX {
                return Err(refused(format!("more than {OBJECTS_MAX} keys fit {}", uri.without_query())).into());
            }
        }
        if objects.is_empty() {
            let token = &self.identity.token;
            if let Some(lacking) = post_quantum::lacks_mechanism(&self.module, self.slot, token, public.kind()) {
                return Err(lacking.into());
            }
            let hint = if self.pin.is_none() { "; without a PIN file, private keys may be hidden" } else { "" };
            let why = format!("no private key on token {:?} fits {}{hint}", self.identity.token, uri.without_query());
            return Err(refused(why).into());
        }
        let session = Link { session: &self.session, token: &self.identity.token };
        let mut doubt = None;
        for object in objects {
            let mut key = TokenKey { object, public: public.clone(), unwrap: HashMap::new(), point: None };
            match session.is_the_key(&mut key) {
                Ok(true) => {
                    if self.keys.len() >= KEYS_MAX {
                        self.keys.clear();
                    }
                    self.keys.insert(id, key);
                    return Ok(());
                }
                Ok(false) => {}
                Err(Stop::Module(error)) if !is_lost(&error) && told(&error).cause == Cause::Refused => {
                    doubt = Some(text(&error));
                }
                Err(stop) => return Err(stop),
            }
        }
        Err(refused(match doubt {
            Some(why) => format!("the key {} can't be used: {why}", uri.without_query()),
            None => format!("the private key {} is not the one of the certificate", uri.without_query()),
        })
        .into())
    }
}

/// A session for the length of a call.
struct Link<'a> {
    session: &'a Session,
    token: &'a str,
}

/// Why a call came to nothing.
enum Stop {
    /// The module said so; perhaps a new session helps.
    Module(Error),
    /// Final.
    Told(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Module(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Told(failure)
    }
}

impl Link<'_> {
    fn rsa_sign(
        &self,
        key: ObjectHandle,
        scheme: RsaScheme,
        digest: Digest,
        hash: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let signature = match scheme {
            RsaScheme::Pkcs1 => {
                let info = [digest.info(), hash].concat();
                self.session.sign(&Mechanism::RsaPkcs, key, &info)?
            }
            RsaScheme::Pss => {
                let parameters = PkcsPssParams {
                    hash_alg: mechanism_of(digest),
                    mgf: mgf_of(digest),
                    s_len: digest.hash_len().try_into()?,
                };
                self.session.sign(&Mechanism::RsaPkcsPss(parameters), key, hash)?
            }
        };
        Ok(Zeroizing::new(signature))
    }

    /// The hash is cut to the length of the group's order, as ECDSA does anyway (FIPS 186-5, 6.4.1): some tokens
    /// refuse a longer one. Those curves whose order is no whole number of bytes are longer than any hash.
    fn ecdsa_sign(&self, key: ObjectHandle, kind: KeyKind, hash: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let len = match kind {
            KeyKind::Ec(curve) => curve.coordinate_len().min(hash.len()),
            KeyKind::Rsa | KeyKind::MlDsa(_) | KeyKind::MlKem(_) => hash.len(),
        };
        let hash = hash.get(..len).unwrap_or(hash);
        self.session.sign(&Mechanism::Ecdsa, key, hash).map(Zeroizing::new)
    }

    fn unwrap(&self, key: &mut TokenKey, padding: RsaPadding, wrapped: &[u8]) -> Result<Response, Stop> {
        let way = match key.unwrap.get(&padding) {
            Some(way) => *way,
            None => {
                let way = self.probe_unwrap(key, padding)?;
                key.unwrap.insert(padding, way);
                way
            }
        };
        match (way, padding) {
            (Unwrap::Oaep, RsaPadding::Oaep { digest }) => match self.decrypt_oaep(key.object, digest, wrapped) {
                Ok(content) => Ok(Response::Bytes(content)),
                Err(error) if is_lost(&error) || told(&error).cause == Cause::Gone => Err(error.into()),
                // Its words tell little: an envelope that doesn't open and a token that fails can look
                // alike. A good envelope tells them apart.
                Err(error) => match self.probe_oaep(key, digest) {
                    Ok(true) => Ok(Response::NotDecrypted),
                    Ok(false) => Err(error.into()),
                    Err(stop) => Err(stop),
                },
            },
            _ => Ok(Response::Raw(self.decrypt_raw(key, wrapped)?)),
        }
    }

    /// What this token can do with this key: OAEP by itself, or raw RSA.
    fn probe_unwrap(&self, key: &TokenKey, padding: RsaPadding) -> Result<Unwrap, Stop> {
        let mut why = Vec::new();
        if let RsaPadding::Oaep { digest } = padding {
            match self.probe_oaep(key, digest) {
                Ok(true) => return Ok(Unwrap::Oaep),
                Ok(false) => why.push(format!("CKM_RSA_PKCS_OAEP: {WRONG_RESULT}")),
                Err(Stop::Module(error)) if !is_lost(&error) && told(&error).cause != Cause::Gone => {
                    why.push(format!("CKM_RSA_PKCS_OAEP: {}", text(&error)));
                }
                Err(stop) => return Err(stop),
            }
        }
        let (_, wrapped) = probe(&key.public, RsaPadding::Pkcs1)?;
        match self.decrypt_raw(key, &wrapped) {
            Ok(raw) => {
                let rsa = key.public.key().rsa().map_err(library)?;
                let mut again = vec![0; wrapped.len()];
                if rsa.public_encrypt(&raw, &mut again, Padding::NONE).is_ok() && again == *wrapped {
                    return Ok(Unwrap::Raw);
                }
                drop(ErrorStack::get());
                why.push(format!("CKM_RSA_X_509: {WRONG_RESULT}"));
            }
            Err(Stop::Module(error)) if !is_lost(&error) && told(&error).cause != Cause::Gone => {
                why.push(format!("CKM_RSA_X_509: {}", text(&error)));
            }
            Err(stop) => return Err(stop),
        }
        Err(refused(format!("token {:?} cannot unwrap with this key ({})", self.token, why.join("; "))).into())
    }

    /// Whether the token takes the padding off an envelope that is good.
    fn probe_oaep(&self, key: &TokenKey, digest: Digest) -> Result<bool, Stop> {
        let (content, wrapped) = probe(&key.public, RsaPadding::Oaep { digest })?;
        Ok(self.decrypt_oaep(key.object, digest, &wrapped)? == content)
    }

    fn decrypt_oaep(&self, key: ObjectHandle, digest: Digest, wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let parameters = PkcsOaepParams::new(mechanism_of(digest), mgf_of(digest), PkcsOaepSource::empty());
        self.session.decrypt(&Mechanism::RsaPkcsOaep(parameters), key, wrapped).map(Zeroizing::new)
    }

    /// As long as the modulus, whatever the token did with zeros in front.
    fn decrypt_raw(&self, key: &TokenKey, wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, Stop> {
        let raw = self.session.decrypt(&Mechanism::RsaX509, key.object, wrapped).map(Zeroizing::new)?;
        let len = key.public.key().size();
        padded(&raw, len).ok_or_else(|| refused("the token's raw RSA result is longer than the modulus").into())
    }

    fn derive_any_form(&self, key: &mut TokenKey, peer: &[u8]) -> Result<Zeroizing<Vec<u8>>, Stop> {
        let form = match key.point {
            Some(form) => form,
            None => self.probe_derive(key)?,
        };
        key.point = Some(form);
        self.derive(key, form, peer)
    }

    /// How this token wants a point: an agreement with a key pair of ours shows it.
    fn probe_derive(&self, key: &TokenKey) -> Result<PointForm, Stop> {
        self.try_derive(key)?.map_err(|why| {
            refused(format!("token {:?} cannot derive with this key (CKM_ECDH1_DERIVE: {why})", self.token)).into()
        })
    }

    /// As [`probe_derive`](Self::probe_derive), with the reason why it can't where it can't.
    fn try_derive(&self, key: &TokenKey) -> Result<Result<PointForm, String>, Stop> {
        let job = Job::new(key.public.clone(), Work::EcdhEphemeral);
        let out = cpu::CpuDevice::new("CPU").compute(&job).map_err(|error| refused(error.to_string()))?;
        let KeyKind::Ec(curve) = key.public.kind() else {
            return Err(refused("a key agreement needs an EC key").into());
        };
        let (point, secret) = out.split_at_checked(curve.point_len()).unwrap_or_default();
        let mut why = String::new();
        // A plain point begins with the tag of an octet string: one point in 256 reads as either, and SoftHSM2 2.6
        // takes it for the wrong one. So the octet string is tried first.
        for form in [PointForm::OctetString, PointForm::Plain] {
            match self.derive(key, form, point) {
                Ok(derived) if *derived == *secret => return Ok(Ok(form)),
                Ok(_) => return Ok(Err(WRONG_RESULT.to_owned())),
                Err(Stop::Module(error)) if !is_lost(&error) && told(&error).cause != Cause::Gone => {
                    why = text(&error);
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(Err(why))
    }

    fn derive(&self, key: &TokenKey, form: PointForm, peer: &[u8]) -> Result<Zeroizing<Vec<u8>>, Stop> {
        let KeyKind::Ec(curve) = key.public.kind() else {
            return Err(refused("a key agreement needs an EC key").into());
        };
        let peer = match form {
            PointForm::Plain => peer.to_vec(),
            PointForm::OctetString => [octet_string_head(curve).as_slice(), peer].concat(),
        };
        let len = curve.coordinate_len();
        let mut template = secret_to_read();
        template.push(Attribute::ValueLen(len.try_into().map_err(Stop::Module)?));
        let mechanism = Mechanism::Ecdh1Derive(Ecdh1DeriveParams::new(EcKdf::null(), &peer));
        let secret = self.session.derive_key(&mechanism, key.object, &template)?;
        let value = self.read_and_destroyed(secret)?;
        let value = value.ok_or_else(|| refused("the token does not show the secret it derived"))?;
        padded(&value, len).ok_or_else(|| refused("the token's shared secret is too long").into())
    }

    /// The value of a secret that was made for this, where the token shows it.
    fn read_and_destroyed(&self, secret: ObjectHandle) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let value = self.session.get_attributes(secret, &[AttributeType::Value]);
        // Also when its value could not be read.
        let destroyed = self.session.destroy_object(secret);
        let value = value?.into_iter().find_map(|attribute| match attribute {
            Attribute::Value(value) => Some(Zeroizing::new(value)),
            _ => None,
        });
        destroyed.map(|()| value)
    }

    /// Whether the object is the private half of the public key. RSA keys show their modulus; another one has to sign,
    /// or to agree on a secret or find one, to prove it.
    fn is_the_key(&self, key: &mut TokenKey) -> Result<bool, Stop> {
        let attributes = self.session.get_attributes(key.object, &[AttributeType::KeyType])?;
        let Some(Attribute::KeyType(kind)) = attributes.first() else { return Ok(false) };
        match key.public.kind() {
            KeyKind::MlDsa(_) if *kind == KeyType::ML_DSA => self.signs_for(key),
            KeyKind::MlKem(_) if *kind == KeyType::ML_KEM => self.gives_the_secret(key),
            KeyKind::Rsa if *kind == KeyType::RSA => {
                let rsa = key.public.key().rsa().map_err(library)?;
                let attributes = self.session.get_attributes(key.object, &[AttributeType::Modulus])?;
                let Some(Attribute::Modulus(modulus)) = attributes.first() else {
                    return Err(refused("the token does not show the modulus of a private key").into());
                };
                Ok(BigNum::from_slice(modulus).map_err(library)?.as_ref() == rsa.n())
            }
            KeyKind::Ec(_) if *kind == KeyType::EC => {
                let mut hash = [0; 32];
                SystemRandom.fill(&mut hash).map_err(|error| refused(error.to_string()))?;
                match self.ecdsa_sign(key.object, key.public.kind(), &hash) {
                    Ok(signature) => {
                        let der = ecdsa_der(&signature).map_err(library)?;
                        Ok(cpu::ecdsa_verify(&key.public, &hash, &der).is_ok())
                    }
                    Err(error) if is_lost(&error) || told(&error).cause == Cause::Gone => Err(error.into()),
                    Err(error) => match self.try_derive(key)? {
                        Ok(form) => {
                            key.point = Some(form);
                            Ok(true)
                        }
                        Err(why) if why == WRONG_RESULT => Ok(false),
                        Err(_) => Err(error.into()),
                    },
                }
            }
            _ => Ok(false),
        }
    }
}

fn find_token(module: &Pkcs11, wanted: &Uri) -> Outcome<(Slot, TokenIdentity)> {
    let shown = wanted.without_query();
    let slots = module.get_slots_with_token().map_err(|error| gone(format!("no token: {}", text(&error))))?;
    let mut found = Vec::new();
    for slot in slots {
        // A slot that was emptied meanwhile is no reason not to look at the next.
        let Ok(info) = module.get_token_info(slot) else { continue };
        let identity = TokenIdentity {
            token: info.label().to_owned(),
            manufacturer: info.manufacturer_id().to_owned(),
            serial: info.serial_number().to_owned(),
            model: info.model().to_owned(),
        };
        if info.token_initialized() && wanted.fits(&identity, Some(slot.id())) {
            found.push((slot, identity));
        }
    }
    match found.len() {
        0 => Err(gone(format!("no token fits {shown}"))),
        1 => found.pop().ok_or_else(|| gone(format!("no token fits {shown}"))),
        count => Err(gone(format!("{count} tokens fit {shown}: name a serial number"))),
    }
}

fn open_session(
    module: &Pkcs11,
    logins: &Logins,
    slot: Slot,
    identity: &TokenIdentity,
    pin: Option<&RawAuthPin>,
) -> Outcome<Session> {
    let name = &identity.token;
    let session = module
        .open_ro_session(slot)
        .map_err(|error| gone(format!("no session with token {name:?}: {}", text(&error))))?;
    let Some(pin) = pin else { return Ok(session) };
    let mut refused = logins.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = &*refused {
        return Err(Failure { cause: Cause::Pin, why: why.clone() });
    }
    let logged_in = log_in(module, slot, name, &session, pin);
    if let Err(Failure { cause: Cause::Pin, why }) = &logged_in {
        *refused = Some(why.clone());
    }
    logged_in.map(|()| session)
}

fn log_in(module: &Pkcs11, slot: Slot, name: &str, session: &Session, pin: &RawAuthPin) -> Outcome<()> {
    let info = session.get_session_info().map_err(|error| gone(format!("token {name:?}: {}", text(&error))))?;
    if matches!(info.session_state(), SessionState::RoUser | SessionState::RwUser) {
        return Ok(());
    }
    let flags = module.get_token_info(slot).map_err(|error| gone(format!("token {name:?}: {}", text(&error))))?;
    if flags.user_pin_locked() {
        return Err(gone(format!("the PIN of token {name:?} is locked: its security officer can set a new one")));
    }
    if flags.user_pin_final_try() {
        return Err(gone(format!(
            "token {name:?} locks its PIN after one more wrong one: log in once with another program first"
        )));
    }
    let wrong = |why: &str| Failure { cause: Cause::Pin, why: format!("token {name:?} refused the PIN{why}") };
    match session.login_with_raw(UserType::User, pin) {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        Err(Error::Pkcs11(RvError::PinIncorrect, _)) => Err(wrong("")),
        Err(Error::Pkcs11(RvError::PinInvalid | RvError::PinLenRange, _)) => {
            Err(wrong(": it has a wrong length or form"))
        }
        Err(Error::Pkcs11(RvError::PinLocked, _)) => Err(Failure {
            cause: Cause::Pin,
            why: format!("the PIN of token {name:?} is locked: its security officer can set a new one"),
        }),
        Err(Error::Pkcs11(RvError::PinExpired, _)) => Err(gone(format!("the PIN of token {name:?} has expired"))),
        Err(Error::Pkcs11(RvError::UserPinNotInitialized, _)) => {
            Err(gone(format!("token {name:?} has no user PIN yet")))
        }
        Err(error) => Err(gone(format!("no login to token {name:?}: {}", text(&error)))),
    }
}

/// A random content key and its envelope.
fn probe(public: &PublicKey, padding: RsaPadding) -> Outcome<(Zeroizing<Vec<u8>>, Output)> {
    // The smallest modulus takes no more with the longest digest, and need not.
    let room = match padding {
        RsaPadding::Pkcs1 => public.key().size().saturating_sub(11),
        RsaPadding::Oaep { digest } => public.key().size().saturating_sub(2 * digest.hash_len() + 2),
    };
    let mut content = Zeroizing::new(vec![0; PROBE_BYTES.min(room)]);
    SystemRandom.fill(&mut content).map_err(|error| refused(error.to_string()))?;
    let wrapped = cpu::rsa_wrap(public, padding, &content).map_err(|error| refused(error.to_string()))?;
    Ok((content, wrapped))
}

/// A secret that the token makes for one message: it is shown, and goes with the session.
fn secret_to_read() -> Vec<Attribute> {
    vec![
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::GENERIC_SECRET),
        Attribute::Token(false),
        Attribute::Sensitive(false),
        Attribute::Extractable(true),
    ]
}

/// With zeros in front up to `len`; none if it is longer.
fn padded(value: &[u8], len: usize) -> Option<Zeroizing<Vec<u8>>> {
    let front = len.checked_sub(value.len())?;
    let mut padded = Zeroizing::new(vec![0; len]);
    padded.get_mut(front..)?.copy_from_slice(value);
    Some(padded)
}

fn mechanism_of(digest: Digest) -> MechanismType {
    match digest {
        Digest::Sha256 => MechanismType::SHA256,
        Digest::Sha384 => MechanismType::SHA384,
        Digest::Sha512 => MechanismType::SHA512,
    }
}

fn mgf_of(digest: Digest) -> PkcsMgfType {
    match digest {
        Digest::Sha256 => PkcsMgfType::MGF1_SHA256,
        Digest::Sha384 => PkcsMgfType::MGF1_SHA384,
        Digest::Sha512 => PkcsMgfType::MGF1_SHA512,
    }
}

/// Tag and length of an octet string with one of the curve's points in it.
fn octet_string_head(curve: Curve) -> Vec<u8> {
    match u8::try_from(curve.point_len()) {
        Ok(len) if len < 0x80 => vec![0x04, len],
        Ok(len) => vec![0x04, 0x81, len],
        Err(_) => Vec::new(), // the longest point has 133 bytes
    }
}

fn library(errors: ErrorStack) -> Failure {
    refused(format!("cryptographic library: {errors}"))
}

/// Whether a new session may help: the session or a handle is none any more, or something was left begun.
fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::Pkcs11(
            RvError::SessionClosed
                | RvError::SessionHandleInvalid
                | RvError::KeyHandleInvalid
                | RvError::ObjectHandleInvalid
                | RvError::OperationActive
                | RvError::UserNotLoggedIn
                | RvError::DeviceRemoved,
            _
        )
    )
}

/// Which mechanism a token has not, where that is why a call with it failed.
fn of_mechanism(token: &str, mechanism: &str, error: Error) -> Stop {
    match error {
        Error::Pkcs11(RvError::MechanismInvalid | RvError::FunctionNotSupported, _) => {
            refused(format!("token {token:?} has no {mechanism} ({})", text(&error))).into()
        }
        error => error.into(),
    }
}

fn told(error: &Error) -> Failure {
    let why = text(error);
    match error {
        Error::Pkcs11(
            RvError::TokenNotPresent
            | RvError::TokenNotRecognized
            | RvError::DeviceRemoved
            | RvError::SlotIdInvalid
            | RvError::CryptokiNotInitialized
            | RvError::SessionClosed
            | RvError::SessionHandleInvalid
            | RvError::UserNotLoggedIn,
            _,
        ) => gone(format!("the token is gone: {why}")),
        _ => refused(why),
    }
}

/// `C_Sign: CKR_FUNCTION_FAILED`: the names of the standard, which a module's manual uses too.
fn text(error: &Error) -> String {
    match error {
        Error::Pkcs11(code, function) => format!("{}: {}", function_name(*function), code_name(*code)),
        Error::LibraryLoading(error) => error.to_string(),
        Error::MissingSymbol(symbol) => format!("it has no {symbol}"),
        error => error.to_string().to_lowercase(),
    }
}

fn function_name(function: Function) -> String {
    format!("C_{function:?}")
}

fn code_name(code: RvError) -> String {
    match code {
        RvError::VendorDefined(code) | RvError::UnknownErrorCode(code) => format!("0x{code:08X}"),
        code => {
            let mut name = "CKR".to_owned();
            for letter in format!("{code:?}").chars() {
                if letter.is_ascii_uppercase() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_of_the_standard() {
        let error = Error::Pkcs11(RvError::EncryptedDataLenRange, Function::DecryptInit);
        assert_eq!(text(&error), "C_DecryptInit: CKR_ENCRYPTED_DATA_LEN_RANGE");
        let error = Error::Pkcs11(RvError::VendorDefined(0x8000_0012), Function::Sign);
        assert_eq!(text(&error), "C_Sign: 0x80000012");
    }

    #[test]
    fn a_short_number_gets_its_zeros_back() {
        assert_eq!(*padded(&[1, 2], 4).expect("it fits"), [0, 0, 1, 2]);
        assert!(padded(&[1, 2], 1).is_none());
    }
}
