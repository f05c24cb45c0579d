//! The device `TRANSIT`: keys that stay in the transit engine of a HashiCorp Vault or OpenBao server, over HTTPS.
//!
//! A ring names a key by name and version ([`uri`]); where the server is, the device's definition says alone. Each
//! engine of the device has a connection of its own, and asks for up to [`LANES`] results in one request
//! ([`protocol`]). What comes back is checked here with the public key before anyone sees it.
//!
//! A transit engine signs, and opens what was wrapped with RSA-OAEP and SHA-256. It agrees on no keys, so a curve's key
//! there only signs. PKCS#1 v1.5 is not asked for, although newer servers take its padding off: whether that was right
//! would show in the length of their answers.

mod engine;
pub mod protocol;
pub mod uri;

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::SslConnector;
use openssl::x509::X509;
use zeroize::Zeroizing;

use self::engine::Engine;
pub use self::uri::{AddressError, TransitUri, TransitUriError, is_key_name, is_path};
use crate::device::{Device, DeviceError, Driver, Kind};
use crate::http;
pub use crate::http::Address;
use crate::key::{KeyKind, PublicKey};
use crate::secret_file;
use crate::work::{Form, Job, Shape};

/// How long a request may take where nothing else is said.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Connections that one device may have.
pub const ENGINES_MAX: u16 = 64;
/// Jobs that go into one request.
pub const LANES: usize = 64;
/// The longest token of a server, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;
/// A token that the server refused is tried again after so long, although the file has no other.
const REFUSED_TOKEN_AGAIN: Duration = Duration::from_secs(30);
/// The longest answer of a server, in bytes: a key with a thousand versions has less.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// URIs of keys that are remembered.
const URIS_MAX: usize = 4096;

/// A transit device's definition.
#[derive(Debug, Clone)]
pub struct TransitSettings {
    /// The name in commands and reports.
    pub name: String,
    /// Where the server is.
    pub address: Address,
    /// The authorities (PEM) of which one must have issued the server's certificate. The system's are not asked.
    pub authorities: PathBuf,
    /// A certificate with its private key (PEM, mode 0600) for a server that asks its clients for one.
    pub client_certificate: Option<PathBuf>,
    /// Where the engine is mounted, [`is_path`].
    pub mount: String,
    /// The namespace, [`is_path`].
    pub namespace: Option<String>,
    /// A file of mode 0600 whose first line is the token. It is read at the start, and when the server refuses one.
    pub token_file: PathBuf,
    /// Connections, 1 to [`ENGINES_MAX`].
    pub engines: u16,
    /// How long one request may take, connecting included where there is no connection yet.
    pub request_timeout: Duration,
}

/// What happened to the token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TokenNews {
    /// The server refused it, and the file has another one, which is used from now on: a line for the operator.
    Replaced(String),
    /// The server refused it, and the file has no other: a line for the operator. Told once of each token.
    Refused(String),
    /// The one that is used now is not one that the server has refused, or the server takes it again.
    Taken,
}

impl TokenNews {
    /// What the operator should read.
    pub fn line(&self) -> Option<&str> {
        match self {
            TokenNews::Replaced(line) | TokenNews::Refused(line) => Some(line),
            TokenNews::Taken => None,
        }
    }
}

/// Hears of the token. Called from the engines' threads.
pub type Notice = Arc<dyn Fn(&TokenNews) + Send + Sync>;

/// A transit engine of a server. A clone is the same device.
#[derive(Clone)]
pub struct Transit(Arc<Inner>);

struct Inner {
    settings: TransitSettings,
    notice: Notice,
    token: Mutex<Tokens>,
    /// URIs of keys that were seen; none for what is no URI of a key that this device can have.
    uris: RwLock<HashMap<String, Option<Arc<TransitUri>>>>,
}

#[derive(Default)]
struct Tokens {
    /// The one in use.
    current: Option<Token>,
    /// The one that the server refused, its words, and when.
    refused: Option<(Token, String, Instant)>,
}

/// What the server knows this program by. Wiped when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
struct Token(Arc<Zeroizing<Vec<u8>>>);

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(..)")
    }
}

/// A key of the engine, one version of it.
#[derive(Debug, Clone)]
pub struct TransitKey {
    /// Its public half.
    pub public: PublicKey,
    /// What names it in a ring.
    pub uri: TransitUri,
}

impl Transit {
    /// A device of this definition. Nothing is connected before the first engine.
    pub fn new(settings: TransitSettings, notice: Notice) -> Transit {
        Transit(Arc::new(Inner { settings, notice, token: Mutex::default(), uris: RwLock::default() }))
    }

    /// Makes a key in the engine. One of that name that is there already stays as it is, and is an error.
    ///
    /// # Errors
    /// [`DeviceError::Offline`] as at the start of an engine; [`DeviceError::Refused`] when the name is none or taken,
    /// or the server does not make such a key, [`DeviceError::UnsupportedKey`] when a transit engine has none of its
    /// kind.
    pub fn create_key(&self, kind: KeyKind, bits: u32, name: &str) -> Result<TransitKey, DeviceError> {
        let Some(word) = protocol::key_type(kind, bits) else {
            let what = format!(
                "{kind} with {bits} bits: a transit engine has RSA of 2048, 3072 and 4096 bits, P-256, P-384 and P-521"
            );
            return Err(DeviceError::UnsupportedKey { what });
        };
        self.0.check_key_name(name)?;
        let mut engine = Engine::start(self.0.clone())?;
        if let Some(facts) = engine.key_facts(name)? {
            let why = format!("there is a key {name} already, of type {}", facts.kind);
            return Err(self.0.refused(why));
        }
        engine.create_key(name, word)?;
        let key = engine.key(name, None)?;
        if (key.public.kind(), key.public.bits()) != (kind, bits) {
            return Err(self.0.refused(format!("it made another key than was asked for: {}", key.public.kind())));
        }
        Ok(key)
    }

    /// A key that is there, the newest version where none is named.
    ///
    /// # Errors
    /// [`DeviceError::Offline`] as at the start of an engine; [`DeviceError::Refused`] when there is no such key or the
    /// token may not read it; [`DeviceError::UnsupportedKey`] for one that neither signs nor opens here.
    pub fn key(&self, name: &str, version: Option<u32>) -> Result<TransitKey, DeviceError> {
        self.0.check_key_name(name)?;
        Engine::start(self.0.clone())?.key(name, version)
    }
}

impl Driver for Transit {
    fn kind(&self) -> Kind {
        Kind::Transit
    }

    fn engines(&self) -> usize {
        usize::from(self.0.settings.engines.clamp(1, ENGINES_MAX))
    }

    fn lanes(&self) -> usize {
        LANES
    }

    /// A server computes the results of one request one after another.
    fn shares_its_line(&self) -> bool {
        true
    }

    /// A private operation with a key that is in a transit engine, if that can be this one; also one that the engine is
    /// going to refuse, because it says why. A read lock and a look-up; a URI is parsed when it is first seen.
    fn takes(&self, job: &Job) -> bool {
        let uri = job.key.private().and_then(|key| key.token_uri());
        uri.is_some_and(|uri| job.work.needs_private_key() && self.0.key_of(uri).is_some())
    }

    /// A guess: 2 ms for the way and the server, and what the arithmetic takes in Go.
    fn expected(&self, shape: Shape) -> Duration {
        let arithmetic = match shape.form {
            Form::RsaCrt | Form::RsaMePrivate => {
                let ratio = f64::from(shape.bits) / 2048.0;
                Duration::from_millis(1).mul_f64(ratio * ratio * ratio)
            }
            _ => Duration::from_micros(100),
        };
        Duration::from_millis(2) + arithmetic
    }

    fn is_on_the_cores(&self) -> bool {
        false
    }

    /// No other device has its keys, and [`TransitSettings::request_timeout`] says when a request has hung.
    fn silence(&self, _: Duration) -> Option<Duration> {
        None
    }

    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(Engine::start(self.0.clone())?))
    }
}

impl Inner {
    /// The key that a URI names, if this device can have it.
    fn key_of(&self, uri: &str) -> Option<Arc<TransitUri>> {
        {
            let known = self.uris.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = known.get(uri) {
                return known.clone();
            }
        }
        let parsed = uri.parse::<TransitUri>().ok().filter(|uri| uri.can_be_at(&self.settings.name)).map(Arc::new);
        let mut known = self.uris.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= URIS_MAX {
            known.clear();
        }
        known.insert(uri.to_owned(), parsed.clone());
        parsed
    }

    /// How the server is connected to: its authorities and no others. The files are read anew at each start.
    fn connector(&self) -> Result<SslConnector, DeviceError> {
        let path = &self.settings.authorities;
        let believing = http::believing(path);
        let mut builder = believing.map_err(|why| self.offline(format!("CAFILE {}: {why}", path.display())))?;
        let Some(path) = &self.settings.client_certificate else { return Ok(builder.build()) };
        let shown = path.display();
        let file = secret_file::open("CERTFILE", path).map_err(|why| self.offline(why))?;
        let mut pem = Zeroizing::new(Vec::with_capacity(usize::try_from(http::CERTIFICATES_BYTES_MAX).unwrap_or(0)));
        let read = file.take(http::CERTIFICATES_BYTES_MAX).read_to_end(&mut pem);
        read.map_err(|error| self.offline(format!("CERTFILE {shown}: {error}")))?;
        let unreadable =
            |_: ErrorStack| self.offline(format!("CERTFILE {shown} has no certificate with its key in PEM"));
        let mut chain = X509::stack_from_pem(&pem).map_err(unreadable)?.into_iter();
        // Without this an encrypted key would be asked for at the terminal.
        let key = PKey::private_key_from_pem_passphrase(&pem, b"").map_err(unreadable)?;
        let own = chain.next().ok_or_else(|| unreadable(ErrorStack::get()))?;
        builder.set_certificate(&own).map_err(unreadable)?;
        builder.set_private_key(&key).and_then(|()| builder.check_private_key()).map_err(unreadable)?;
        for authority in chain {
            builder.add_extra_chain_cert(authority).map_err(unreadable)?;
        }
        Ok(builder.build())
    }

    /// The token in the file.
    fn read_token(&self) -> Result<Token, DeviceError> {
        let path = &self.settings.token_file;
        let bytes = secret_file::first_line("TOKENFILE", path, TOKEN_BYTES_MAX).map_err(|why| self.offline(why))?;
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(self.offline(format!("TOKENFILE {}: its first line is no token", path.display())));
        }
        Ok(Token(Arc::new(bytes)))
    }

    /// The token to begin with, and whether the server has refused it before. One that was refused a moment ago is not
    /// tried again.
    fn first_token(&self) -> Result<(Token, bool), DeviceError> {
        let token = self.read_token()?;
        let mut tokens = self.tokens();
        let refused = tokens.refused.as_ref().filter(|(refused, ..)| *refused == token);
        if let Some((_, why, at)) = refused.filter(|(.., at)| at.elapsed() < REFUSED_TOKEN_AGAIN) {
            let (path, left) = (self.settings.token_file.display(), REFUSED_TOKEN_AGAIN.saturating_sub(at.elapsed()));
            let why = format!("{why}; {path} has no other, and it is tried again in {} s", left.as_secs() + 1);
            return Err(self.offline(why));
        }
        let was_refused = refused.is_some();
        tokens.current = Some(token.clone());
        let is_another = !was_refused && tokens.refused.take().is_some();
        drop(tokens);
        if is_another {
            self.say(&TokenNews::Taken);
        }
        Ok((token, was_refused))
    }

    fn current_token(&self) -> Result<Token, DeviceError> {
        if let Some(token) = self.tokens().current.clone() {
            return Ok(token);
        }
        self.first_token().map(|(token, _)| token)
    }

    /// The server answered 403: another token, where the file has one by now, or another engine has read it.
    fn newer_token(&self, refused: &Token) -> Option<Token> {
        let in_use = self.tokens().current.clone().filter(|current| current != refused);
        if in_use.is_some() {
            return in_use;
        }
        let newer = self.read_token().ok().filter(|token| token != refused)?;
        self.tokens().current = Some(newer.clone());
        let path = self.settings.token_file.display();
        let line = format!("the server refused the token (403), and {path} has another one, which is used from now on");
        self.say(&TokenNews::Replaced(line));
        Some(newer)
    }

    /// No use may be made of a token any more. Returns what is said of it.
    fn token_was_refused(&self, token: &Token, words: &str) -> String {
        let words = if words.is_empty() { "permission denied" } else { words };
        let why = format!("the server refused the token (403): {words}");
        let mut tokens = self.tokens();
        let is_news = tokens.refused.as_ref().is_none_or(|(known, ..)| known != token);
        tokens.refused = Some((token.clone(), why.clone(), Instant::now()));
        if tokens.current.as_ref() == Some(token) {
            tokens.current = None;
        }
        drop(tokens);
        if is_news {
            let line = format!("{why}; write a good one into {}", self.settings.token_file.display());
            self.say(&TokenNews::Refused(line));
        }
        why
    }

    /// The server takes the token that it refused before.
    fn token_is_good(&self) {
        if self.tokens().refused.take().is_some() {
            self.say(&TokenNews::Taken);
        }
    }

    fn say(&self, news: &TokenNews) {
        (self.notice)(news);
    }

    fn check_key_name(&self, name: &str) -> Result<(), DeviceError> {
        let why = "a key's name in a transit engine has letters, digits, _, and within them - and .";
        if is_key_name(name) { Ok(()) } else { Err(self.refused(why)) }
    }

    fn offline(&self, why: impl Into<String>) -> DeviceError {
        DeviceError::Offline { device: self.settings.name.clone(), why: why.into() }
    }

    fn refused(&self, why: impl Into<String>) -> DeviceError {
        DeviceError::Refused { device: self.settings.name.clone(), why: why.into() }
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Transit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Transit({:?})", self.0.settings)
    }
}
