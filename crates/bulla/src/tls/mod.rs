//! TLS of the listener and of channels: CipherSpecs, certificates, and who a partner is.
//!
//! The files under `tls/` of the data directory (`files.rs` lists them) are read when a handshake needs them, and again
//! when they have changed; connections that are there go on. A channel that begins names itself in the server name, so
//! that the end that is called can use that channel's CipherSpec, certificate and SSLCAUTH. Whether the partner is the
//! right one is settled after the handshake, by [`check_channel`].

mod context;
mod files;
pub mod proof;
mod refusal;
mod server_name;
mod staple;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::catalog::cipher_spec::{ALL, CipherSpec, Protocols, find, negotiated, page};
pub use crate::catalog::peer_name::{PATTERN_BYTES_MAX, PatternError, PeerPattern};
pub use refusal::TlsRefusal;
pub(crate) use refusal::of_failure;

use crate::catalog::tls_group::{self, TlsGroup};
use crate::catalog::{ChannelDefinition, Definitions};
use bulla_seal::dn::Dn;
use context::{Asked, Key, Shared, Side};
use openssl::nid::Nid;
use openssl::ssl::{Ssl, SslRef, StatusType};
use openssl::x509::{X509NameRef, X509Ref, X509VerifyResult};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// TLS of a queue manager: its certificates, whom it believes, and what its channels ask for.
pub struct Tls {
    shared: Arc<Shared>,
}

/// What a channel's definition says of TLS.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsSettings {
    /// SSLCIPH; none for no TLS.
    pub cipher_spec: Option<&'static CipherSpec>,
    /// SSLGROUPS; none for the queue manager's.
    pub groups: Vec<&'static TlsGroup>,
    /// CERTLABL; none for the queue manager's certificate.
    pub certificate_label: Option<String>,
    /// SSLCAUTH(REQUIRED)
    pub client_certificate_required: bool,
}

impl TlsSettings {
    /// Those of a channel.
    ///
    /// # Errors
    /// [`TlsRefusal::UnknownCipherSpec`].
    pub fn of(definition: &ChannelDefinition) -> Result<Self, TlsRefusal> {
        Ok(Self {
            cipher_spec: definition.cipher_spec.as_deref().map(known).transpose()?,
            groups: definition.key_groups.clone(),
            certificate_label: definition.certificate_label.clone(),
            client_certificate_required: definition.client_certificate_required,
        })
    }
}

/// Who showed a certificate, and who vouches for it. The text is that of policies: `CN=QM2,O=Example,C=DE`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerCertificate {
    /// SSLPEER of a channel's status.
    pub subject: String,
    /// SSLCERTI of a channel's status.
    pub issuer: String,
}

impl Tls {
    /// TLS with the files in `dir`, which are read when they are needed.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { shared: Arc::new(Shared::new(dir, false)) }
    }

    /// The same, where clients of HTTP may resume sessions: for two hours, as long as the listener asks nobody for a
    /// certificate.
    #[must_use]
    pub fn resuming(dir: PathBuf) -> Self {
        Self { shared: Arc::new(Shared::new(dir, true)) }
    }

    /// A session of the listener for AMQP that is yet to shake hands.
    ///
    /// # Errors
    /// [`TlsRefusal::File`] where the listener's certificate, key or authorities do not load.
    pub fn session(&self) -> Result<Ssl, TlsRefusal> {
        self.accept(Side::Server)
    }

    /// A session of the listener for HTTP that is yet to shake hands. No server name gives it a channel's settings.
    ///
    /// # Errors
    /// As of [`session`](Self::session).
    pub fn web_session(&self) -> Result<Ssl, TlsRefusal> {
        self.accept(Side::Web)
    }

    fn accept(&self, side: Side) -> Result<Ssl, TlsRefusal> {
        let context = self.shared.context(&self.shared.key(side))?;
        let mut ssl = Ssl::new(&context)?;
        refusal::make_note(&mut ssl, None);
        ssl.set_accept_state();
        Ok(ssl)
    }

    /// Takes over what the definitions say of TLS: the channels' settings and the queue manager's CERTLABL. To be
    /// called whenever they change. A channel whose SSLCIPH is unknown is left out: its caller gets what the listener
    /// offers, and is refused afterwards.
    pub fn follow(&self, definitions: &Definitions) {
        let channels = definitions.channels.iter();
        let channels = channels.filter_map(|(name, channel)| Some((name.clone(), TlsSettings::of(channel).ok()?)));
        let manager = &definitions.queue_manager;
        let asked = Asked {
            channels: channels.collect(),
            label: manager.certificate_label.clone(),
            groups: manager.key_groups.clone(),
        };
        *self.shared.asked.write().unwrap_or_else(PoisonError::into_inner) = asked;
    }
}

/// A session for a channel that begins: to `host`, the one in CONNAME, with the CipherSpec and certificate of its
/// definition. Without SSLPEER the partner's certificate must be one of `host`.
///
/// # Errors
/// [`TlsRefusal`]: an unknown CipherSpec, a pattern that is none, files that do not load.
pub fn channel_client(
    tls: &Tls,
    definition: &ChannelDefinition,
    channel_name: &str,
    host: &str,
) -> Result<Ssl, TlsRefusal> {
    let settings = TlsSettings::of(definition)?;
    let pattern = definition.peer_pattern.as_deref().map(PeerPattern::parse).transpose();
    let pattern = pattern.map_err(TlsRefusal::Pattern)?;
    let key: Key = tls.shared.channel_key(Side::Client, &settings);
    let context = tls.shared.context(&key)?;
    let mut ssl = Ssl::new(&context)?;
    refusal::make_note(&mut ssl, Some(host.to_owned()));
    ssl.set_hostname(&server_name::of_channel(channel_name))?;
    ssl.set_status_type(StatusType::OCSP)?;
    if pattern.is_none() {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) => ssl.param_mut().set_ip(address)?,
            Err(_) => ssl.param_mut().set_host(host)?,
        }
    }
    ssl.set_connect_state();
    Ok(ssl)
}

/// Whether the partner at the other end of a connection may run this channel: the cipher suite is what SSLCIPH allows,
/// there is a certificate where SSLCAUTH or SSLPEER asks for one, and SSLPEER matches. `ssl` is the session after its
/// handshake, nothing where the connection has no TLS. The answer is who the partner is, where it said so.
///
/// # Errors
/// [`TlsRefusal`], with the reason.
pub fn check_channel(
    ssl: Option<&SslRef>,
    definition: &ChannelDefinition,
) -> Result<Option<PeerCertificate>, TlsRefusal> {
    let spec = definition.cipher_spec.as_deref().map(known).transpose()?;
    let agreed = ssl.and_then(|ssl| ssl.current_cipher()).and_then(|cipher| cipher.standard_name());
    if let Some(spec) = spec
        && !agreed.is_some_and(|agreed| spec.allows(agreed))
    {
        let (agreed, wanted) = (agreed.map(str::to_owned), Some(spec.ibm.to_owned()));
        return Err(TlsRefusal::CipherMismatch { agreed, wanted });
    }
    let group = ssl.and_then(key_group);
    let is_wanted = |wanted: &&TlsGroup| group.is_some_and(|group| wanted.name.eq_ignore_ascii_case(group));
    if spec.is_some() && !definition.key_groups.is_empty() && !definition.key_groups.iter().any(is_wanted) {
        let wanted = Some(tls_group::text(&definition.key_groups));
        return Err(TlsRefusal::GroupMismatch { agreed: group.map(str::to_owned), wanted });
    }
    let pattern = definition.peer_pattern.as_deref().map(PeerPattern::parse).transpose();
    let pattern = pattern.map_err(TlsRefusal::Pattern)?;
    // Without SSLCIPH the other attributes say nothing, save a pattern, which was not written to be ignored.
    let caller_must_show = spec.is_some() && definition.client_certificate_required;
    let certificate = ssl.and_then(|ssl| ssl.peer_certificate());
    let Some((ssl, certificate)) = ssl.zip(certificate) else {
        let is_missed = pattern.is_some() || (caller_must_show && ssl.is_some_and(SslRef::is_server));
        return if is_missed { Err(TlsRefusal::NoCertificate) } else { Ok(None) };
    };
    let peer = PeerCertificate {
        subject: refusal::name_text(certificate.subject_name()),
        issuer: refusal::name_text(certificate.issuer_name()),
    };
    if ssl.verify_result() != X509VerifyResult::OK {
        return Err(refusal::of_chain(ssl, ssl.verify_result(), peer.subject));
    }
    if let Some(pattern) = pattern {
        let fits = Dn::from_x509_name(certificate.subject_name()).is_ok_and(|subject| pattern.matches(&subject));
        if !fits {
            let wanted = definition.peer_pattern.clone().unwrap_or_default();
            return Err(TlsRefusal::WrongName { subject: peer.subject, wanted });
        }
    }
    Ok(Some(peer))
}

/// What was agreed on, for a channel's status: SECPROT and SSLCIPH.
#[must_use]
pub fn agreed(ssl: Option<&SslRef>) -> (&'static str, String) {
    let Some(ssl) = ssl else { return ("NONE", String::new()) };
    let protocol = if ssl.version_str() == "TLSv1.3" { "TLSV13" } else { "TLSV12" };
    let suite = ssl.current_cipher().and_then(|cipher| cipher.standard_name()).unwrap_or_default();
    (protocol, negotiated(suite).map_or(suite, |spec| spec.ibm).to_owned())
}

/// The group by which the keys were agreed on, as the table has it; none without TLS, and where an RSA key opened them.
#[must_use]
pub fn key_group(ssl: &SslRef) -> Option<&str> {
    let name = bulla_device::tls::key_group(ssl)?;
    Some(tls_group::find(name).map_or(name, |group| group.name))
}

/// The user that a verified client certificate stands for: the common name of its subject.
pub(crate) fn user_of(certificate: &X509Ref) -> Option<String> {
    common_name(certificate.subject_name()).filter(|name| crate::catalog::names::is_user_name(name))
}

fn known(name: &str) -> Result<&'static CipherSpec, TlsRefusal> {
    find(name).ok_or_else(|| TlsRefusal::UnknownCipherSpec { name: name.to_owned() })
}

fn common_name(name: &X509NameRef) -> Option<String> {
    let mut names = name.entries_by_nid(Nid::COMMONNAME);
    let only = names.next()?;
    // Two common names could mean two users: none is believed.
    if names.next().is_some() {
        return None;
    }
    only.data().to_string().ok()
}
