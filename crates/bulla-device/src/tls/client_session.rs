//! Sessions that a TLS client takes up again (RFC 5077; RFC 8446, section 2.2).
//!
//! The `openssl` crate leaves it to its caller that a session is used in the context alone that it was made in. Here a
//! session is kept together with its context, and compared.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use foreign_types::{ForeignType as _, ForeignTypeRef as _};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslRef, SslSession, SslSessionCacheMode};

/// A session, and the context that it was made in.
type Kept = Arc<Mutex<Option<(SslContext, SslSession)>>>;

/// Where a connection has its client's [`Kept`].
fn kept_index() -> Result<Index<Ssl, Kept>, ErrorStack> {
    static INDEX: OnceLock<Index<Ssl, Kept>> = OnceLock::new();
    match INDEX.get() {
        Some(index) => Ok(*index),
        None => Ssl::new_ex_index().map(|index| *INDEX.get_or_init(|| index)),
    }
}

/// A context that keeps the sessions of its clients.
#[derive(Clone, Copy)]
pub struct ClientSessions(Index<Ssl, Kept>);

impl ClientSessions {
    /// Has a client's context keep sessions from now on. OpenSSL's own cache is not used.
    ///
    /// # Errors
    /// The library's.
    pub fn of(context: &mut SslContextBuilder) -> Result<ClientSessions, ErrorStack> {
        let index = kept_index()?;
        context.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        context.set_new_session_callback(move |ssl, session| {
            let context = ssl.ssl_context().to_owned();
            if let Some(kept) = ssl.ex_data(index) {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((context, session));
            }
        });
        Ok(ClientSessions(index))
    }

    /// A client without a session.
    pub fn one(&self) -> ClientSession {
        ClientSession { index: self.0, kept: Kept::default() }
    }
}

impl fmt::Debug for ClientSessions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ClientSessions")
    }
}

/// The last session of one client.
#[derive(Clone)]
pub struct ClientSession {
    index: Index<Ssl, Kept>,
    kept: Kept,
}

impl ClientSession {
    /// Has a connection that has not begun go on with the session, where there is one, and keep its own. A session of
    /// another context is not offered. The server may want a whole handshake all the same.
    ///
    /// # Errors
    /// The library's.
    pub fn resume(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        ssl.set_ex_data(self.index, Arc::clone(&self.kept));
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((context, session)) = &*kept else { return Ok(()) };
        if context.as_ptr() != ssl.ssl_context().as_ptr() {
            return Ok(());
        }
        // SAFETY: the session was made in this connection's context, which was just compared, and which is alive
        // because it is kept beside the session.
        unsafe { ssl.set_session(session) }
    }

    /// Whether there is a session to go on with.
    pub fn is_there(&self) -> bool {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl fmt::Debug for ClientSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientSession").field("is_there", &self.is_there()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::asn1::Asn1Time;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::PKey;
    use openssl::ssl::{SslAcceptor, SslConnector, SslMethod, SslVerifyMode, SslVersion};
    use openssl::x509::{X509Builder, X509NameBuilder};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// A server that says one byte to each who comes, and the port that it listens on.
    fn server(connections: usize) -> (u16, std::thread::JoinHandle<()>) {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let name = X509NameBuilder::new().unwrap().build();
        let mut certificate = X509Builder::new().unwrap();
        certificate.set_version(2).unwrap();
        certificate.set_subject_name(&name).unwrap();
        certificate.set_issuer_name(&name).unwrap();
        certificate.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        certificate.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        certificate.set_pubkey(&key).unwrap();
        certificate.sign(&key, MessageDigest::sha256()).unwrap();
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        acceptor.set_private_key(&key).unwrap();
        acceptor.set_certificate(&certificate.build()).unwrap();
        let acceptor = acceptor.build();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            for _ in 0..connections {
                let mut stream = acceptor.accept(listener.accept().unwrap().0).unwrap();
                stream.write_all(b"!").unwrap();
                let _ = stream.read(&mut [0]);
            }
        };
        (port, std::thread::spawn(serve))
    }

    fn context(version: SslVersion) -> (SslConnector, ClientSessions) {
        let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
        builder.set_verify(SslVerifyMode::NONE);
        builder.set_max_proto_version(Some(version)).unwrap();
        let sessions = ClientSessions::of(&mut builder).unwrap();
        (builder.build(), sessions)
    }

    fn is_resumed(port: u16, connector: &SslConnector, session: &ClientSession) -> bool {
        let mut ssl = connector.configure().unwrap().verify_hostname(false).into_ssl("localhost").unwrap();
        session.resume(&mut ssl).unwrap();
        let mut stream = openssl::ssl::SslStream::new(ssl, TcpStream::connect(("127.0.0.1", port)).unwrap()).unwrap();
        stream.connect().unwrap();
        // Tickets of TLS 1.3 come with the first bytes.
        stream.read_exact(&mut [0]).unwrap();
        let is_resumed = stream.ssl().session_reused();
        let _ = stream.shutdown();
        is_resumed
    }

    #[test]
    fn a_client_goes_on_with_its_own_session_and_no_other() {
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            let (port, server) = server(6);
            let (connector, sessions) = context(version);
            let (one, other) = (sessions.one(), sessions.one());
            assert!(!one.is_there());
            assert!(!is_resumed(port, &connector, &one));
            assert!(is_resumed(port, &connector, &one) && is_resumed(port, &connector, &one), "{version:?}");
            assert!(!is_resumed(port, &connector, &other));
            // A context of its own: the session is not offered.
            let (elsewhere, _) = context(version);
            assert!(!is_resumed(port, &elsewhere, &other));
            assert!(is_resumed(port, &connector, &one));
            server.join().unwrap();
        }
    }
}
