//! A client of HTTP/1.1 over TLS: one request after another, and a new connection after so many of them.

use crate::error::{Error, Result};
use bulla_device::tls::{ClientSession, ClientSessions};
use openssl::error::ErrorStack;
use openssl::ssl::{SslConnector, SslMethod, SslSessionCacheMode, SslStream, SslVersion};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take for any step: one that answers later is given up.
const WITHIN: Duration = Duration::from_secs(30);
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Header lines that an answer may have, and bytes of them.
const HEADERS_MAX: usize = 32;
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes that the body of an answer may have.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Whom to ask, as whom, and how TLS is spoken.
#[derive(Clone, Debug)]
pub struct Visit {
    /// `HOST:PORT`; the name is compared with the certificate.
    pub address: String,
    /// The authorities to believe, PEM.
    pub authorities: Vec<u8>,
    /// User and password, for `Authorization: Basic`.
    pub credentials: (String, String),
    /// TLS 1.3; else TLS 1.2.
    pub tls13: bool,
    /// The cipher suites of TLS 1.2, as OpenSSL names them.
    pub ciphers: String,
    /// Sessions of earlier connections are resumed, where the server lets it.
    pub resumes: bool,
}

/// What clients of one server share.
pub struct Site {
    connector: SslConnector,
    sessions: Option<ClientSessions>,
    address: SocketAddr,
    host: String,
    authorization: String,
}

impl Site {
    /// Reads the authorities, and looks the address up. Nothing is connected yet.
    ///
    /// # Errors
    /// [`Error::Broker`]: no such address; authorities that are none.
    pub fn new(visit: &Visit) -> Result<Arc<Site>> {
        let failed = |why: &dyn fmt::Display| Error::Broker(format!("{}: {why}", visit.address));
        let mut addresses = visit.address.to_socket_addrs().map_err(|error| failed(&error))?;
        // A queue manager of our own listens at 127.0.0.1, which `localhost` need not stand for alone.
        let address = addresses.find(SocketAddr::is_ipv4).ok_or_else(|| failed(&"no such address"))?;
        let host = visit.address.rsplit_once(':').map_or(visit.address.as_str(), |(host, _)| host).to_owned();
        let (connector, sessions) = connector(visit).map_err(|error| failed(&error))?;
        let (user, password) = &visit.credentials;
        let basic = openssl::base64::encode_block(format!("{user}:{password}").as_bytes());
        Ok(Arc::new(Site { connector, sessions, address, host, authorization: format!("Basic {basic}") }))
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password is in what every request says.
        f.debug_struct("Site").field("address", &self.address).finish_non_exhaustive()
    }
}

fn connector(visit: &Visit) -> std::result::Result<(SslConnector, Option<ClientSessions>), ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    // These authorities and no others: the system's are not asked.
    let mut store = X509StoreBuilder::new()?;
    for authority in X509::stack_from_pem(&visit.authorities)? {
        store.add_cert(authority)?;
    }
    builder.set_cert_store(store.build());
    let version = if visit.tls13 { SslVersion::TLS1_3 } else { SslVersion::TLS1_2 };
    builder.set_min_proto_version(Some(version))?;
    builder.set_max_proto_version(Some(version))?;
    if !visit.tls13 {
        builder.set_cipher_list(&visit.ciphers)?;
    }
    let sessions = if visit.resumes {
        Some(ClientSessions::of(&mut builder)?)
    } else {
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        None
    };
    Ok((builder.build(), sessions))
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Header lines beside those that every request has, each with its end of line.
    pub headers: &'a str,
    /// The body; none where it is empty.
    pub body: &'a [u8],
}

/// An answer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

/// What a client has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Done {
    /// Requests that were answered.
    pub requests: u64,
    /// Connections that were made, each with a handshake.
    pub connections: u64,
    /// Of them, those that went on with an earlier session.
    pub resumed: u64,
}

/// One client, with one connection at a time.
pub struct Client {
    site: Arc<Site>,
    /// Requests of a connection.
    each: u32,
    open: Option<Open>,
    session: Option<ClientSession>,
    done: Done,
}

struct Open {
    stream: SslStream<TcpStream>,
    /// Requests that it may still have.
    left: u32,
}

impl Client {
    /// A client that makes a new connection after `each` requests; 1 at least.
    #[must_use]
    pub fn new(site: &Arc<Site>, each: u32) -> Client {
        let session = site.sessions.as_ref().map(ClientSessions::one);
        Client { site: Arc::clone(site), each: each.max(1), open: None, session, done: Done::default() }
    }

    /// What it has done so far.
    #[must_use]
    pub fn done(&self) -> Done {
        self.done
    }

    /// Asks, on a new connection where the last one has had its requests, and reads the whole answer.
    ///
    /// # Errors
    /// [`Error::Broker`]: not reached, or the connection broke; [`Error::Wrong`]: the answer is none of HTTP, or longer
    /// than this client takes.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<Answer> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.connect()?,
        };
        let text = self.written(request, open.left == 1);
        open.stream.write_all(&text).map_err(|error| self.failed(&error))?;
        let (answer, closes) = self.read(&mut open.stream)?;
        self.done.requests += 1;
        open.left -= 1;
        if open.left == 0 || closes {
            self.end(open);
        } else {
            self.open = Some(open);
        }
        Ok(answer)
    }

    /// Ends the connection in order, where there is one.
    pub fn leave(&mut self) {
        if let Some(open) = self.open.take() {
            self.end(open);
        }
    }

    fn failed(&self, why: &dyn fmt::Display) -> Error {
        Error::Broker(format!("{}: {why}", self.site.address))
    }

    fn connect(&mut self) -> Result<Open> {
        let stream = TcpStream::connect_timeout(&self.site.address, WITHIN).map_err(|error| self.failed(&error))?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(WITHIN)));
        set.and_then(|()| stream.set_write_timeout(Some(WITHIN))).map_err(|error| self.failed(&error))?;
        let ssl = self.site.connector.configure().and_then(|configured| configured.into_ssl(&self.site.host));
        let mut ssl = ssl.map_err(|error| self.failed(&error))?;
        if let Some(session) = &self.session {
            session.resume(&mut ssl).map_err(|error| self.failed(&error))?;
        }
        let mut stream = SslStream::new(ssl, stream).map_err(|error| self.failed(&error))?;
        stream.connect().map_err(|error| self.failed(&error))?;
        self.done.connections += 1;
        self.done.resumed += u64::from(stream.ssl().session_reused());
        Ok(Open { stream, left: self.each })
    }

    fn end(&mut self, mut open: Open) {
        // What the server says to it is of no interest: it may be gone already.
        let _ = open.stream.shutdown();
    }

    fn written(&self, request: &Request<'_>, is_last: bool) -> Vec<u8> {
        let Site { host, authorization, .. } = &*self.site;
        let connection = if is_last { "connection: close\r\n" } else { "" };
        let mut text = format!(
            "{} {} HTTP/1.1\r\nhost: {host}\r\nauthorization: {authorization}\r\n{connection}{}",
            request.method, request.target, request.headers
        );
        if !request.body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", request.body.len()));
        }
        text.push_str("\r\n");
        [text.as_bytes(), request.body].concat()
    }

    /// Reads an answer, and whether its connection ends with it.
    fn read(&self, stream: &mut impl Read) -> Result<(Answer, bool)> {
        let wrong = |why: String| Error::Wrong(format!("{}: {why}", self.site.address));
        let (mut come, mut room) = (Vec::new(), [0; READ_BYTES]);
        loop {
            if let Some((head, mut answer)) = head(&come).map_err(wrong)? {
                answer.body = come.split_off(head.bytes);
                while answer.body.len() < head.body_bytes {
                    let read = self.read_once(stream, &mut room)?;
                    answer.body.extend_from_slice(read);
                }
                if answer.body.len() > head.body_bytes {
                    return Err(wrong("more came than the answer that was asked for".to_owned()));
                }
                return Ok((answer, head.closes));
            }
            if come.len() > HEAD_BYTES_MAX {
                return Err(wrong(format!("the head of an answer has more than {HEAD_BYTES_MAX} bytes")));
            }
            let read = self.read_once(stream, &mut room)?;
            come.extend_from_slice(read);
        }
    }

    fn read_once<'a>(&self, stream: &mut impl Read, room: &'a mut [u8]) -> Result<&'a [u8]> {
        match stream.read(room) {
            Ok(0) => Err(self.failed(&"the connection ended in the middle of an answer")),
            Ok(count) => Ok(room.get(..count).unwrap_or_default()),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("site", &self.site).field("done", &self.done).finish_non_exhaustive()
    }
}

/// What the head of an answer says of the answer.
#[derive(Debug, Eq, PartialEq)]
struct Head {
    /// Its own length.
    bytes: usize,
    body_bytes: usize,
    /// The server closes the connection behind it.
    closes: bool,
}

/// The head of an answer; none where more of it has to come.
fn head(come: &[u8]) -> std::result::Result<Option<(Head, Answer)>, String> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut lines);
    let bytes = match parsed.parse(come).map_err(|error| format!("no answer of HTTP: {error}"))? {
        httparse::Status::Complete(bytes) => bytes,
        httparse::Status::Partial => return Ok(None),
    };
    let status = parsed.code.unwrap_or(0);
    let value = |name: &str| {
        let line = parsed.headers.iter().find(|line| line.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(line.value).ok()
    };
    let body_bytes = match value("content-length") {
        Some(length) => length.parse().map_err(|_| format!("{length} is no length"))?,
        None if status == 204 => 0,
        None => return Err("an answer does not say how long it is".to_owned()),
    };
    if body_bytes > BODY_BYTES_MAX {
        return Err(format!("an answer of {body_bytes} bytes, and {BODY_BYTES_MAX} are taken"));
    }
    let closes = value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(Some((Head { bytes, body_bytes, closes }, Answer { status, body: Vec::new() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_long_it_is() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: Close\r\n\r\nhe";
        for cut in 0..text.len() - 2 {
            assert_eq!(head(&text[..cut]), Ok(None), "{cut}");
        }
        let (found, answer) = head(text).unwrap().unwrap();
        assert_eq!(found, Head { bytes: text.len() - 2, body_bytes: 5, closes: true });
        assert_eq!(answer.status, 200);
        let (found, _) = head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();
        assert_eq!((found.body_bytes, found.closes), (0, false));
    }

    #[test]
    fn an_answer_that_is_none_or_too_long_is_refused() {
        for (text, why) in [
            ("SSH-2.0-OpenSSH\r\n\r\n", "no answer of HTTP"),
            ("HTTP/1.1 200 OK\r\n\r\n", "does not say how long"),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "is no length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", "are taken"),
        ] {
            let error = head(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
