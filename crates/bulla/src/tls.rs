//! TLS for the AMQP listener: the server's certificate and the authorities whose clients it believes.

use openssl::ssl::{Ssl, SslAcceptor, SslFiletype, SslMethod, SslVerifyMode, SslVersion};
use openssl::x509::{X509NameRef, X509Ref};
use std::io;
use std::path::Path;

/// The server's side of TLS, as the files under `tls/` of the data directory say.
pub(crate) struct Tls {
    acceptor: SslAcceptor,
}

impl Tls {
    /// Reads `server.pem` (certificate and chain), `server.key` and, where it is there, `clients.pem`
    /// (authorities of client certificates).
    pub(crate) fn load(dir: &Path) -> io::Result<Self> {
        let named = |name: &str, error: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {error}", dir.join(name).display()))
        };
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
        builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
        let certificate = dir.join("server.pem");
        builder.set_certificate_chain_file(&certificate).map_err(|error| named("server.pem", &error))?;
        builder
            .set_private_key_file(dir.join("server.key"), SslFiletype::PEM)
            .map_err(|error| named("server.key", &error))?;
        builder.check_private_key().map_err(|error| named("server.key", &error))?;
        let clients = dir.join("clients.pem");
        if clients.exists() {
            builder.set_ca_file(&clients).map_err(|error| named("clients.pem", &error))?;
            // A client may stay without a certificate and prove itself by SASL.
            builder.set_verify(SslVerifyMode::PEER);
            builder.set_session_id_context(b"bulla")?;
        }
        Ok(Self { acceptor: builder.build() })
    }

    /// A session that is yet to shake hands.
    pub(crate) fn session(&self) -> io::Result<Ssl> {
        Ok(Ssl::new(self.acceptor.context())?)
    }
}

/// The user that a verified client certificate stands for: the common name of its subject.
pub(crate) fn user_of(certificate: &X509Ref) -> Option<String> {
    common_name(certificate.subject_name()).filter(|name| crate::users::is_valid_name(name))
}

fn common_name(name: &X509NameRef) -> Option<String> {
    let mut names = name.entries_by_nid(openssl::nid::Nid::COMMONNAME);
    let only = names.next()?;
    // Two common names could mean two users: none is believed.
    if names.next().is_some() {
        return None;
    }
    only.data().to_string().ok()
}
