//! OpenSSL contexts: made from the files when a handshake needs one, kept until the files change.

use super::files::{self, Authorities, Believed, OWN_LABEL, Shown};
use super::refusal::{self, TlsRefusal, name_text};
use super::{TlsSettings, proof, server_name, staple};
use crate::catalog::cipher_spec::{CipherSpec, Protocols, listener_lists};
use crate::catalog::tls_group::{self, TlsGroup};
use crate::folders::ENROLMENT;
use bulla_device::PrivateKey;
use bulla_device::tls::{client_hello_server_name, client_hello_speaks_only, handshake_key, set_groups};
use openssl::error::ErrorStack;
use openssl::ssl::{
    AlpnError, ClientHelloResponse, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef,
    SslSessionCacheMode, SslVerifyMode, SslVersion, select_next_proto,
};
use openssl::x509::{X509StoreContext, X509StoreContextRef, X509VerifyResult};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most contexts kept; with more kinds of channels than that, those are made anew.
const CONTEXTS_MAX: usize = 256;
/// How long tickets are sealed under one key: who steals it reads at most the sessions of TLS 1.2 of that time.
const TICKET_KEYS_FOR: Duration = Duration::from_hours(12);
/// Tickets that a caller gets by TLS 1.3: one for each of two connections that it may open next.
const TICKETS: usize = 2;
/// The name of HTTP/1.1 in a hello (RFC 7301, section 6), with its length before it.
const HTTP_1_1: &[u8] = b"\x08http/1.1";

/// What all sessions share. Callbacks of contexts hold it weakly: it holds the contexts.
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) asked: RwLock<Asked>,
    /// Whether sessions over HTTPS are resumed.
    resumes: bool,
    cache: Mutex<Cache>,
}

/// What the definitions ask for.
#[derive(Default)]
pub(super) struct Asked {
    /// Of each channel.
    pub(super) channels: HashMap<String, TlsSettings>,
    /// CERTLABL of the queue manager.
    pub(super) label: Option<String>,
    /// SSLGROUPS of the queue manager.
    pub(super) groups: Vec<&'static TlsGroup>,
}

#[derive(Default)]
struct Cache {
    looked_at: Option<Instant>,
    files: u64,
    contexts: HashMap<Key, Entry>,
}

struct Entry {
    /// The files' fingerprint that it was made from, or last tried to be.
    files: u64,
    made_at: Instant,
    context: SslContext,
}

/// What tells one context from another.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    side: Side,
    /// CERTLABL; none for `server.pem`.
    label: Option<String>,
    /// MQ's name of the CipherSpec; none for what the listener offers.
    spec: Option<&'static str>,
    /// OpenSSL's list of the groups.
    groups: String,
}

/// Which end of a connection a context is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Side {
    /// It is called, by a client or a channel of AMQP.
    Server,
    /// It is called by a client of HTTP.
    Web,
    /// It calls.
    Client,
}

impl Key {
    fn spec(&self) -> Option<&'static CipherSpec> {
        self.spec.and_then(crate::catalog::cipher_spec::find)
    }
}

impl Shared {
    pub(super) fn new(dir: PathBuf, resumes: bool) -> Self {
        Self { dir, asked: RwLock::default(), resumes, cache: Mutex::default() }
    }

    /// The key of a context of the listener.
    pub(super) fn key(&self, side: Side) -> Key {
        self.channel_key(side, &TlsSettings::default())
    }

    /// The key of a context of a channel: without CERTLABL and SSLGROUPS it has the queue manager's.
    pub(super) fn channel_key(&self, side: Side, settings: &TlsSettings) -> Key {
        let asked = self.asked();
        let groups = if settings.groups.is_empty() { &asked.groups } else { &settings.groups };
        Key {
            side,
            label: settings.certificate_label.clone().or_else(|| asked.label.clone()),
            spec: settings.cipher_spec.map(|spec| spec.ibm),
            groups: tls_group::list(groups),
        }
    }

    /// The context for `key`, made from the files as they are now. Files that do not load leave the one there was: they
    /// may be half written, and connections are better made with the certificate of a moment ago than not at all.
    pub(super) fn context(self: &Arc<Self>, key: &Key) -> Result<SslContext, TlsRefusal> {
        let mut cache = self.lock();
        let now = Instant::now();
        if cache.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_EVERY) {
            cache.looked_at = Some(now);
            cache.files = files::fingerprint(&self.dir);
        }
        let files = cache.files;
        if let Some(entry) = cache.contexts.get_mut(key) {
            let is_old = key.side == Side::Web && now.saturating_duration_since(entry.made_at) >= TICKET_KEYS_FOR;
            if entry.files != files || is_old {
                (entry.files, entry.made_at) = (files, now);
                match self.make(key) {
                    Ok(context) => entry.context = context,
                    Err(error) => crate::warning!("tls: {error}; what was read before stays in use"),
                }
            }
            return Ok(entry.context.clone());
        }
        let context = self.make(key)?;
        if cache.contexts.len() >= CONTEXTS_MAX {
            cache.contexts.clear();
        }
        cache.contexts.insert(key.clone(), Entry { files, made_at: now, context: context.clone() });
        Ok(context)
    }

    fn make(self: &Arc<Self>, key: &Key) -> Result<SslContext, TlsRefusal> {
        let mut builder = begin(key)?;
        let label = key.label.as_deref().unwrap_or(OWN_LABEL);
        let own = match (key.side, &key.label) {
            // The caller may have no certificate to show, and learns from the partner whether it needs one.
            (Side::Client, None) if !self.dir.join(format!("{OWN_LABEL}.pem")).exists() => None,
            _ => Some(files::shown(&self.dir, label)?),
        };
        if let Some(own) = &own {
            show(&mut builder, own, key.spec().is_some_and(|spec| spec.weak))?;
        }
        let which = if key.side == Side::Client { Authorities::Partners } else { Authorities::Clients };
        let believed = files::believed(&self.dir, which)?;
        let asks = files::authorities_file(&self.dir, which).is_some() || key.spec.is_some();
        match key.side {
            Side::Server => {
                look_at_hello(&mut builder, Arc::downgrade(self), Side::Server);
                serve(&mut builder, own, believed, asks)?;
            }
            Side::Web => {
                look_at_hello(&mut builder, Arc::downgrade(self), Side::Web);
                speak_http(&mut builder);
                // A session that is resumed brings its certificate with it, which may be revoked by now.
                if self.resumes && !asks {
                    give_tickets(&mut builder)?;
                }
                serve(&mut builder, own, believed, asks)?;
            }
            Side::Client => call(&mut builder, believed)?,
        }
        Ok(builder.build())
    }

    /// Gives a session that is called the settings of the channel that the caller names.
    fn choose(self: &Arc<Self>, ssl: &mut SslRef) -> Result<(), TlsRefusal> {
        let Some(channel) = client_hello_server_name(ssl).and_then(|name| server_name::to_channel(&name)) else {
            return Ok(());
        };
        let settings = self.asked().channels.get(&channel).cloned();
        // A channel without a CipherSpec has nothing to say about TLS; an unknown one is refused when it opens.
        let Some(settings) = settings else { return Ok(()) };
        let Some(spec) = settings.cipher_spec else { return Ok(()) };
        let key = self.channel_key(Side::Server, &settings);
        let context = self.context(&key)?;
        ssl.set_ssl_context(&context)?;
        // These a session takes over from its first context alone.
        set_groups(ssl, &key.groups)?;
        ssl.set_min_proto_version(Some(oldest(spec.protocols)))?;
        ssl.set_max_proto_version(Some(newest(spec.protocols)))?;
        let required = if settings.client_certificate_required {
            SslVerifyMode::FAIL_IF_NO_PEER_CERT
        } else {
            SslVerifyMode::NONE
        };
        ssl.set_verify(SslVerifyMode::PEER | required);
        Ok(())
    }

    /// Shows an authority what it looks for, where that is what the caller asks for. Whether it is.
    fn prove(&self, ssl: &mut SslRef) -> Result<bool, TlsRefusal> {
        if !client_hello_speaks_only(ssl, proof::PROTOCOL) {
            return Ok(false);
        }
        let folder = self.dir.with_file_name(ENROLMENT).join(proof::FOLDER);
        let name = client_hello_server_name(ssl).and_then(|name| String::from_utf8(name).ok());
        let Some((certificate, key)) = name.and_then(|name| proof::shown(&folder, &name)) else { return Ok(false) };
        let mut builder = begin(&self.key(Side::Web))?;
        builder.set_certificate(&certificate)?;
        builder.set_private_key(&key)?;
        builder.set_alpn_select_callback(|_, offered| {
            select_next_proto(proof::PROTOCOLS, offered).ok_or(AlpnError::ALERT_FATAL)
        });
        ssl.set_ssl_context(&builder.build())?;
        ssl.set_verify(SslVerifyMode::NONE);
        Ok(true)
    }

    /// Has the files looked at by the next handshake, as if a second had passed.
    #[cfg(test)]
    pub(super) fn look_again(&self) {
        self.lock().looked_at = None;
    }

    fn asked(&self) -> RwLockReadGuard<'_, Asked> {
        self.asked.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A context with the protocols and suites of its CipherSpec. No sessions are resumed: a certificate that was revoked
/// or exchanged in the meantime would not be looked at. [`give_tickets`] makes an exception.
fn begin(key: &Key) -> Result<SslContextBuilder, TlsRefusal> {
    let method = if key.side == Side::Client { SslMethod::tls_client() } else { SslMethod::tls_server() };
    let mut builder = SslContextBuilder::new(method)?;
    builder.set_options(
        SslOptions::NO_COMPRESSION
            | SslOptions::NO_TICKET
            | SslOptions::NO_RENEGOTIATION
            | SslOptions::CIPHER_SERVER_PREFERENCE,
    );
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder.set_num_tickets(0)?;
    builder.set_session_id_context(b"bulla")?;
    builder.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER | SslMode::RELEASE_BUFFERS);
    // One call of the system for several records, where it would be two for each.
    builder.set_read_ahead(true);
    builder.set_groups_list(&key.groups)?;
    let spec = key.spec();
    let (min, max) =
        spec.map_or((SslVersion::TLS1_2, SslVersion::TLS1_3), |spec| (oldest(spec.protocols), newest(spec.protocols)));
    builder.set_min_proto_version(Some(min))?;
    builder.set_max_proto_version(Some(max))?;
    let (tls12, tls13) = spec.map_or_else(listener_lists, |spec| (spec.tls12_list(), spec.tls13_list()));
    builder.set_ciphersuites(&tls13)?;
    if !tls12.is_empty() {
        builder.set_cipher_list(&tls12)?;
    }
    Ok(builder)
}

/// `decrypts` says that the key opens the partner's secret instead of signing (TLS_RSA): that stays with OpenSSL, which
/// does it without telling by the clock what was in it.
fn show(builder: &mut SslContextBuilder, own: &Shown, decrypts: bool) -> Result<(), ErrorStack> {
    builder.set_certificate(&own.certificate)?;
    for above in &own.chain {
        builder.add_extra_chain_cert(above.clone())?;
    }
    // A key outside the devices' profile (Ed25519, RSA of 8192 bits) is OpenSSL's alone.
    match PrivateKey::clear(own.key.clone()) {
        Ok(key) if !decrypts => builder.set_private_key(&*handshake_key(&key)?),
        _ => builder.set_private_key(&own.key),
    }
}

/// The side that is called by a channel has that channel's settings; one that is called by an authority for a proof
/// shows that, on whichever port.
fn look_at_hello(builder: &mut SslContextBuilder, shared: Weak<Shared>, side: Side) {
    builder.set_client_hello_callback(move |ssl, _alert| {
        let looked = |shared: &Arc<Shared>, ssl: &mut SslRef| -> Result<(), TlsRefusal> {
            if !shared.prove(ssl)? && side == Side::Server {
                shared.choose(ssl)?;
            }
            Ok(())
        };
        if refusal::is_first_hello(ssl)
            && let Some(shared) = shared.upgrade()
            && let Err(refusal) = looked(&shared, ssl)
        {
            crate::warning!(reason = refusal.reason().code, cause = refusal.cause(), "tls: {refusal}");
            refusal::leave(ssl, refusal);
            return Err(ErrorStack::get());
        }
        Ok(ClientHelloResponse::SUCCESS)
    });
}

/// A caller that says which protocols it speaks has to know HTTP/1.1: one that means another protocol is refused.
fn speak_http(builder: &mut SslContextBuilder) {
    builder.set_alpn_select_callback(|_, offered| select_next_proto(HTTP_1_1, offered).ok_or(AlpnError::ALERT_FATAL));
}

/// Lets callers resume sessions by tickets, which this side does not keep. They are good for two hours, OpenSSL's
/// default, or until the context is made anew.
fn give_tickets(builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    builder.clear_options(SslOptions::NO_TICKET);
    builder.set_num_tickets(TICKETS)
}

/// The side that is called: it staples its OCSP answer, and looks at the caller's certificate where there is an
/// authority that could vouch for one.
fn serve(
    builder: &mut SslContextBuilder,
    own: Option<Shown>,
    believed: Believed,
    asks: bool,
) -> Result<(), TlsRefusal> {
    if let Some(Shown { certificate, chain, staple: Some(answer), .. }) = own {
        builder.set_status_callback(move |ssl| {
            if !staple::is_fresh(&answer, &certificate, &chain) {
                return Ok(false);
            }
            ssl.set_ocsp_status(&answer)?;
            Ok(true)
        })?;
    }
    builder.set_cert_store(believed.store);
    // A client may stay without a certificate and prove itself by SASL; a channel's settings may ask for one.
    let mode = if asks { SslVerifyMode::PEER } else { SslVerifyMode::NONE };
    look_at_certificates(builder, mode, believed.listed);
    Ok(())
}

/// The side that calls: it always looks at the server's certificate, and at what is stapled to it.
fn call(builder: &mut SslContextBuilder, believed: Believed) -> Result<(), TlsRefusal> {
    let authorities = believed.authorities;
    builder.set_status_callback(move |ssl| {
        let verdict = staple::judge(ssl, &authorities);
        // What the judging left in the library's list of errors is not the session's.
        drop(ErrorStack::get());
        match verdict {
            Ok(()) => Ok(true),
            Err(refusal) => {
                refusal::leave(ssl, refusal);
                Ok(false)
            }
        }
    })?;
    builder.set_cert_store(believed.store);
    look_at_certificates(builder, SslVerifyMode::PEER, believed.listed);
    Ok(())
}

/// `listed` are the issuers that there is a revocation list of: certificates of others are not checked for revocation.
fn look_at_certificates(builder: &mut SslContextBuilder, mode: SslVerifyMode, listed: Vec<Vec<u8>>) {
    builder.set_verify_callback(mode, move |good, chain| good || judge(chain, &listed));
}

/// X509_V_ERR_UNABLE_TO_GET_CRL of x509_vfy.h.
const NO_LIST: i32 = 3;

fn judge(chain: &mut X509StoreContextRef, listed: &[Vec<u8>]) -> bool {
    let error = chain.error();
    let certificate = chain.current_cert();
    if error.as_raw() == NO_LIST {
        let issuer = certificate.and_then(|certificate| certificate.issuer_name().to_der().ok());
        if issuer.is_some_and(|issuer| !listed.contains(&issuer)) {
            chain.set_error(X509VerifyResult::OK);
            return true;
        }
    }
    let subject = certificate.map_or_else(|| "the partner".into(), |found| name_text(found.subject_name()));
    if let Some(ssl) = X509StoreContext::ssl_idx().ok().and_then(|index| chain.ex_data(index)) {
        refusal::leave(ssl, refusal::of_chain(ssl, error, subject));
    }
    false
}

/// The oldest version.
fn oldest(protocols: Protocols) -> SslVersion {
    match protocols {
        Protocols::Tls12 | Protocols::Both => SslVersion::TLS1_2,
        Protocols::Tls13 => SslVersion::TLS1_3,
    }
}

/// The newest version.
fn newest(protocols: Protocols) -> SslVersion {
    match protocols {
        Protocols::Tls12 => SslVersion::TLS1_2,
        Protocols::Tls13 | Protocols::Both => SslVersion::TLS1_3,
    }
}
