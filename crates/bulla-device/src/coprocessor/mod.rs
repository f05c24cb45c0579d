//! The device `COPROCESSOR`: keys that never leave a token, through the token's PKCS#11 module.
//!
//! The module is loaded by a helper process ([`helper`]), never by this one: a crash in it is a failed device.
//! Requests and answers go over a socket for each engine ([`protocol`]). The helper's answers are checked here
//! with the public key before anyone sees them.

mod engine;
pub mod helper;
mod pin;
mod process;
pub mod protocol;
mod token;
pub mod uri;

use std::collections::HashMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use openssl::bn::BigNum;
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;

use self::engine::{Engine, Link};
pub use self::pin::PIN_BYTES_MAX;
use self::pin::Pin;
use self::process::Helper;
pub use self::process::HelperCommand;
pub use self::protocol::NewKey;
use self::protocol::{Cause, Request, Response};
pub use self::uri::{ObjectClass, TokenIdentity, Uri, UriError};
use crate::device::{Device, DeviceError, Driver, Kind};
use crate::key::PublicKey;
use crate::random::{Random, SystemRandom};
use crate::work::{Form, Job, Shape};

/// How long an engine waits for one answer where nothing else is said.
pub const JOB_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// How long the module may take to load, find the token and log in.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a token may take to make a key: small ones search primes of 4096-bit keys for minutes.
pub const GENERATE_TIMEOUT: Duration = Duration::from_secs(300);
/// Sessions that one device may have.
pub const ENGINES_MAX: u16 = 64;
/// The longest label of a new key, in bytes.
pub const LABEL_BYTES_MAX: usize = 128;
/// Random bytes of a new key's `CKA_ID`.
const NEW_ID_BYTES: usize = 16;
/// URIs of keys whose token is remembered.
const URIS_MAX: usize = 4096;

/// A coprocessor's definition.
#[derive(Debug, Clone)]
pub struct CoprocessorSettings {
    /// The name in commands and reports.
    pub name: String,
    /// The PKCS#11 module, a shared library.
    pub module: PathBuf,
    /// Which token of it.
    pub token: Uri,
    /// A file of mode 0600 whose first line is the user PIN; the token's URI may name one too (`pin-source`).
    /// Without either there is no login.
    pub pin_file: Option<PathBuf>,
    /// Sessions that work side by side, 1 to [`ENGINES_MAX`].
    pub engines: u16,
    /// How long one request may take before the helper process is given up.
    pub job_timeout: Duration,
}

/// A token behind its PKCS#11 module. A clone is the same device.
#[derive(Clone)]
pub struct Coprocessor(Arc<Inner>);

struct Inner {
    settings: CoprocessorSettings,
    command: HelperCommand,
    state: Mutex<State>,
    /// What the token said of itself, and for URIs of keys whether they can be on it.
    identity: RwLock<Known>,
}

#[derive(Default)]
struct State {
    helper: Option<Arc<Helper>>,
    /// The PIN of the last login.
    pin: Option<Pin>,
    /// The one that the token refused.
    refused_pin: Option<(Pin, String)>,
}

#[derive(Default)]
struct Known {
    identity: Option<TokenIdentity>,
    uris: HashMap<String, bool>,
}

impl Coprocessor {
    /// A device of this definition. Nothing is loaded or started before the first engine.
    pub fn new(settings: CoprocessorSettings, command: HelperCommand) -> Coprocessor {
        let (state, identity) = (Mutex::default(), RwLock::default());
        Coprocessor(Arc::new(Inner { settings, command, state, identity }))
    }

    /// Lets a PIN that was refused be tried once more: the operator says that it is right now.
    pub fn forget_failed_pin(&self) {
        self.0.state().refused_pin = None;
    }

    /// Loads the module, finds the token and logs in, and says what the token says of itself.
    ///
    /// # Errors
    /// [`DeviceError::Offline`] or [`DeviceError::Away`].
    pub fn check(&self) -> Result<TokenIdentity, DeviceError> {
        self.0.open().map(|(_, identity)| identity)
    }

    /// Makes a key pair on the token: sensitive, not extractable, for everything that its kind can do. Returns
    /// its public half and the URI that finds it again.
    ///
    /// # Errors
    /// [`DeviceError::Offline`] or [`DeviceError::Away`] as at the start of an engine; [`DeviceError::Refused`]
    /// when the token does not make such a key; [`DeviceError::UnsupportedKey`] when it made another.
    pub fn generate(&self, kind: NewKey, label: &str) -> Result<(PublicKey, Uri), DeviceError> {
        if label.is_empty() || label.len() > LABEL_BYTES_MAX {
            return Err(self.0.refused(format!("a key's label has 1 to {LABEL_BYTES_MAX} bytes")));
        }
        let mut id = vec![0; NEW_ID_BYTES];
        SystemRandom.fill(&mut id).map_err(|error| DeviceError::Library { text: error.to_string() })?;
        let (mut link, identity) = self.0.open()?;
        let request = Request::Generate { kind, label: label.to_owned(), id: id.clone() };
        match link.exchange(&request, GENERATE_TIMEOUT)? {
            Response::Bytes(public) => {
                let public = PKey::public_key_from_der(&public)?;
                let public = PublicKey::new(&public)?;
                let uri = Uri {
                    token: Some(identity.token),
                    serial: self.0.settings.token.serial.clone(),
                    object: Some(label.to_owned()),
                    id: Some(id),
                    class: Some(ObjectClass::Private),
                    ..Uri::default()
                };
                Ok((public, uri))
            }
            Response::Failed { why, .. } => Err(self.0.refused(why)),
            _ => Err(link.end()),
        }
    }
}

impl Driver for Coprocessor {
    fn kind(&self) -> Kind {
        Kind::Coprocessor
    }

    fn engines(&self) -> usize {
        usize::from(self.0.settings.engines.clamp(1, ENGINES_MAX))
    }

    fn lanes(&self) -> usize {
        1
    }

    /// A private operation with a key that is on a token, if that can be this one. A read lock and a look-up by the
    /// URI; a URI is parsed when it is first seen.
    fn takes(&self, job: &Job) -> bool {
        let uri = job.key.private().and_then(|key| key.token_uri());
        uri.is_some_and(|uri| job.work.needs_private_key() && self.0.can_hold(uri))
    }

    /// A guess: 0.6 ms for RSA 2048, as published for a coprocessor, and the cube of the length; 1 ms for a curve.
    fn expected(&self, shape: Shape) -> Duration {
        match shape.form {
            Form::RsaCrt | Form::RsaMePrivate => {
                let ratio = f64::from(shape.bits) / 2048.0;
                Duration::from_micros(600).mul_f64(ratio * ratio * ratio)
            }
            _ => Duration::from_millis(1),
        }
    }

    fn is_on_the_cores(&self) -> bool {
        false
    }

    /// No other device has its keys, and how long a token takes is not known: [`CoprocessorSettings::job_timeout`] says
    /// when it has hung, and then its helper process is ended.
    fn silence(&self, _: Duration) -> Option<Duration> {
        None
    }

    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
        let (link, _) = self.0.open()?;
        Ok(Box::new(Engine::new(self.0.clone(), link)))
    }
}

impl Inner {
    /// A session with the token, logged in. One at a time: a wrong PIN is tried once, whatever the number of engines.
    fn open(&self) -> Result<(Link, TokenIdentity), DeviceError> {
        let mut state = self.state();
        let pin = self.pin(&state)?;
        let helper = match state.helper.take().filter(|helper| helper.is_alive()) {
            Some(helper) => helper,
            None => {
                let started = Helper::start(&self.command);
                Arc::new(started.map_err(|error| self.offline(format!("no helper process: {error}")))?)
            }
        };
        state.pin.clone_from(&pin);
        let request = Request::Open {
            module: self.settings.module.as_os_str().as_bytes().to_vec(),
            token: self.settings.token.without_query().to_string(),
            pin: pin.as_ref().map(Pin::bytes),
        };
        let mut link = Link::new(&self.settings.name, helper.clone())
            .map_err(|error| self.offline(format!("no socket to the helper process: {error}")))?;
        let module = self.settings.module.display();
        let response = link
            .exchange(&request, OPEN_TIMEOUT)
            .map_err(|_| self.offline(format!("its helper process ended or hung while it opened {module}")))?;
        match response {
            Response::Opened(identity) => {
                state.helper = Some(helper);
                self.learn(&identity);
                Ok((link, identity))
            }
            Response::Failed { cause, why } => {
                if cause == Cause::Pin {
                    state.refused_pin = pin.map(|pin| (pin, why.clone()));
                }
                drop(link);
                // Other engines may still be at work; without them the next try is with a new process, because some
                // modules find a token that comes back only when they start anew.
                if Arc::strong_count(&helper) > 1 && cause != Cause::Pin {
                    state.helper = Some(helper);
                }
                Err(self.offline(why))
            }
            _ => Err(link.end()),
        }
    }

    fn pin(&self, state: &State) -> Result<Option<Pin>, DeviceError> {
        let source = self.settings.token.pin_source.as_deref();
        let source = source.map(|source| PathBuf::from(source.strip_prefix("file:").unwrap_or(source)));
        let Some(path) = self.settings.pin_file.clone().or(source) else { return Ok(None) };
        let pin = Pin::read(&path).map_err(|why| self.offline(why))?;
        match &state.refused_pin {
            Some((refused, why)) if *refused == pin => {
                let path = path.display();
                Err(self.offline(format!("{why}; it is not tried again until {path} changes or the device is started")))
            }
            _ => Ok(Some(pin)),
        }
    }

    /// A session that was lost could not log in again with the PIN that opened it.
    fn pin_was_refused(&self) {
        let mut state = self.state();
        let why = "the token refused the PIN that it took before".to_owned();
        state.refused_pin = state.pin.take().map(|pin| (pin, why));
    }

    fn learn(&self, identity: &TokenIdentity) {
        let mut known = self.identity.write().unwrap_or_else(PoisonError::into_inner);
        if known.identity.as_ref() != Some(identity) {
            *known = Known { identity: Some(identity.clone()), uris: HashMap::new() };
        }
    }

    fn can_hold(&self, uri: &str) -> bool {
        {
            let known = self.identity.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(can) = known.uris.get(uri) {
                return *can;
            }
        }
        let mut known = self.identity.write().unwrap_or_else(PoisonError::into_inner);
        let can = uri.parse::<Uri>().is_ok_and(|uri| {
            self.settings.token.can_be_the_token_of(&uri)
                && known.identity.as_ref().is_none_or(|identity| uri.fits(identity, None))
        });
        if known.uris.len() >= URIS_MAX {
            known.uris.clear();
        }
        known.uris.insert(uri.to_owned(), can);
        can
    }

    fn offline(&self, why: impl Into<String>) -> DeviceError {
        DeviceError::Offline { device: self.settings.name.clone(), why: why.into() }
    }

    fn refused(&self, why: impl Into<String>) -> DeviceError {
        DeviceError::Refused { device: self.settings.name.clone(), why: why.into() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Coprocessor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Coprocessor({:?})", self.0.settings)
    }
}

/// `ECDSA-Sig-Value` from *r* and *s*, each half of the bytes (PKCS#11 3.0, 2.3.1).
fn ecdsa_der(raw: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let (r, s) = raw.split_at(raw.len() / 2);
    EcdsaSig::from_private_components(BigNum::from_slice(r)?, BigNum::from_slice(s)?)?.to_der()
}
