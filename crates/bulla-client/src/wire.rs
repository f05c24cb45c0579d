//! The socket of a connection, in clear or with TLS, and what opens a connection and its links.

use crate::ClientError;
use crate::error::of_handshake;
use bulla_amqp::{AttachRequest, Config, Connection, Error, SaslClient, ScramCrypto, SenderSettleMode, Source, Symbol};
use openssl::ssl::{HandshakeError, SslConnector, SslFiletype, SslMethod, SslStream};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long connecting, opening and attaching may take together.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The capability by which Bulla knows a client that seals and opens for itself.
pub const SEALED: &str = "bulla:sealed";
/// Bytes that are handed to TLS at once: four of its records.
const TLS_WRITE_BYTES: usize = 64 << 10;

/// Where to connect and how to prove who connects.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `HOST:PORT`.
    pub address: String,
    /// The authorities to believe (PEM); TLS is spoken where they are given.
    pub authorities: Option<PathBuf>,
    /// Certificate and key of a client that proves itself by them (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The SASL mechanism and its secrets.
    pub sasl: SaslClient,
}

impl Endpoint {
    /// A broker that needs no sign-in, in clear.
    #[must_use]
    pub fn anonymous(address: &str) -> Self {
        let sasl = SaslClient::Anonymous;
        Self { address: address.to_owned(), authorities: None, certificate: None, sasl }
    }

    /// The host of the address.
    fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host)
    }
}

/// The protocol of a new connection, which opens itself and signs in.
#[must_use]
pub fn engine(endpoint: &Endpoint, container: String, crypto: Box<dyn ScramCrypto>, now: Instant) -> Connection {
    let hostname = endpoint.address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let config = Config { hostname, ..Config::new(container) };
    Connection::client(config, endpoint.sasl.clone(), crypto, now)
}

/// A link to put on `address`; `sealed` says that this side seals for itself.
#[must_use]
pub fn to_put(address: &str, settles: SenderSettleMode, sealed: bool) -> AttachRequest {
    AttachRequest {
        snd_settle_mode: settles,
        desired_capabilities: capability(sealed),
        ..AttachRequest::sender(format!("put-{address}"), address)
    }
}

/// A link to get from `address`, or to browse it; `sealed` says that this side opens for itself.
#[must_use]
pub fn to_get(address: &str, browse: bool, sealed: bool) -> AttachRequest {
    let distribution_mode = browse.then(|| Symbol::from_static("copy"));
    AttachRequest {
        source: Some(Source { distribution_mode, ..Source::at(address) }),
        snd_settle_mode: SenderSettleMode::Unsettled,
        desired_capabilities: capability(sealed),
        ..AttachRequest::receiver(format!("get-{address}"), address)
    }
}

fn capability(sealed: bool) -> Vec<Symbol> {
    if sealed { vec![Symbol::from_static(SEALED)] } else { Vec::new() }
}

/// What a broker says in an error: its description, or the condition where it gives none.
#[must_use]
pub fn refused(error: &Error) -> &str {
    error.description.as_deref().unwrap_or_else(|| error.condition.as_str())
}

/// The socket of a connection, in clear or with TLS.
pub struct Wire(Stream);

enum Stream {
    Clear(TcpStream),
    /// With room to gather what goes into a record.
    Tls(Box<SslStream<TcpStream>>, Vec<u8>),
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("tls", &!self.is_clear()).finish_non_exhaustive()
    }
}

impl Wire {
    /// Connects, and shakes hands where TLS is spoken. Each may take as long as `within`.
    ///
    /// # Errors
    /// Nothing answers there, or TLS did not come about.
    pub fn connect(endpoint: &Endpoint, within: Duration) -> Result<Self, ClientError> {
        let unreachable = |error| ClientError::Unreachable { address: endpoint.address.clone(), error };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "has no address");
        for address in endpoint.address.to_socket_addrs().map_err(unreachable)? {
            match TcpStream::connect_timeout(&address, within) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return match &endpoint.authorities {
                        Some(authorities) => secure(endpoint, authorities, stream, within),
                        None => Ok(Self(Stream::Clear(stream))),
                    };
                }
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }

    /// The socket below TLS.
    #[must_use]
    pub fn tcp(&self) -> &TcpStream {
        match &self.0 {
            Stream::Clear(stream) => stream,
            Stream::Tls(stream, _) => stream.get_ref(),
        }
    }

    /// Whether no TLS is spoken.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        matches!(self.0, Stream::Clear(_))
    }

    /// Bytes that TLS has taken off the socket already, of which `poll` knows nothing.
    #[inline]
    #[must_use]
    pub fn has_read_ahead(&self) -> bool {
        matches!(&self.0, Stream::Tls(stream, _) if stream.ssl().pending() > 0)
    }

    /// Reads once.
    ///
    /// # Errors
    /// What the system or TLS says.
    #[inline]
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Stream::Clear(stream) => stream.read(room),
            Stream::Tls(stream, _) => stream.read(room),
        }
    }

    /// Writes all that the engine has for the other side: in clear with as many pieces as there are in one call, over
    /// TLS with whole records.
    ///
    /// # Errors
    /// What the system or TLS says.
    #[inline]
    pub fn write(&mut self, engine: &mut Connection) -> io::Result<()> {
        while engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            engine.output_slices(&mut slices);
            let written = match &mut self.0 {
                Stream::Clear(stream) => stream.write_vectored(&slices),
                Stream::Tls(stream, gathered) => {
                    gathered.clear();
                    for slice in &slices {
                        let room = TLS_WRITE_BYTES - gathered.len();
                        gathered.extend_from_slice(&slice[..slice.len().min(room)]);
                        if gathered.len() == TLS_WRITE_BYTES {
                            break;
                        }
                    }
                    stream.write(gathered)
                }
            };
            drop(slices);
            engine.output_written(written?);
        }
        Ok(())
    }
}

fn secure(endpoint: &Endpoint, authorities: &Path, tcp: TcpStream, within: Duration) -> Result<Wire, ClientError> {
    let tls = |error: &dyn fmt::Display| ClientError::Tls(error.to_string());
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(|error| tls(&error))?;
    // These authorities and no others: the system's are not asked.
    let pem =
        std::fs::read(authorities).map_err(|error| ClientError::Authorities { path: authorities.to_owned(), error })?;
    let mut store = X509StoreBuilder::new().map_err(|error| tls(&error))?;
    for authority in X509::stack_from_pem(&pem).map_err(|error| tls(&error))? {
        store.add_cert(authority).map_err(|error| tls(&error))?;
    }
    builder.set_cert_store(store.build());
    if let Some((certificate, key)) = &endpoint.certificate {
        builder.set_certificate_chain_file(certificate).map_err(|error| tls(&error))?;
        builder.set_private_key_file(key, SslFiletype::PEM).map_err(|error| tls(&error))?;
    }
    let host = endpoint.host().trim_start_matches('[').trim_end_matches(']');
    // The other side may accept and then say nothing.
    tcp.set_read_timeout(Some(within))?;
    match builder.build().connect(host, tcp) {
        Ok(stream) => {
            stream.get_ref().set_read_timeout(None)?;
            Ok(Wire(Stream::Tls(Box::new(stream), Vec::with_capacity(TLS_WRITE_BYTES))))
        }
        Err(HandshakeError::WouldBlock(_)) => Err(ClientError::TimedOut(within)),
        Err(HandshakeError::Failure(failed)) => Err(of_handshake(&failed, &endpoint.address, host, authorities)),
        Err(error) => Err(tls(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;
    use openssl::x509::X509Builder;
    use std::net::TcpListener;

    #[test]
    fn an_endpoint_is_shown_without_its_password() {
        let sasl = SaslClient::Plain { user: "orders".into(), password: "opensesame".into() };
        let shown = format!("{:?}", Endpoint { sasl, ..Endpoint::anonymous("broker:5671") });
        assert!(shown.contains("broker:5671") && !shown.contains("opensesame"), "{shown}");
    }

    #[test]
    fn a_server_that_accepts_and_says_nothing_is_given_up() {
        let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
        let mut builder = X509Builder::new().unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        let authorities = std::env::temp_dir().join(format!("bulla-client-silent-{}.pem", std::process::id()));
        std::fs::write(&authorities, builder.build().to_pem().unwrap()).unwrap();

        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let endpoint = Endpoint { authorities: Some(authorities.clone()), ..Endpoint::anonymous(&address) };
        let within = Duration::from_millis(20);
        let answer = Wire::connect(&endpoint, within);
        std::fs::remove_file(authorities).unwrap();
        assert!(matches!(answer, Err(ClientError::TimedOut(after)) if after == within), "{answer:?}");
    }
}
