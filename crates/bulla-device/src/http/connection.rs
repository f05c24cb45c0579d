//! A client: its connection to a server, which is made anew when it has to be, and what becomes of a request.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use openssl::ssl::{HandshakeError, MidHandshakeSslStream, SslConnector, SslStream};
use openssl::x509::X509VerifyResult;
use zeroize::Zeroizing;

use super::READ_BYTES;
use super::address::{Address, Scheme};
use super::answer::{Answer, AnswerReader, BadAnswer, Takes};

/// Longest wait between two looks at a reason to give up.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoAnswer {
    /// Its time was over. What was going on, in a lower-case line.
    Late(String),
    /// Whoever asked does not wait any more.
    GivenUp,
    /// The server can't be reached, or broke off. One lower-case line.
    Broken(String),
    /// What came is no answer.
    Unreadable(BadAnswer),
}

impl std::error::Error for NoAnswer {}

impl fmt::Display for NoAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Late(why) | NoAnswer::Broken(why) => out.write_str(why),
            NoAnswer::GivenUp => out.write_str("given up"),
            NoAnswer::Unreadable(why) => write!(out, "the server's answer can't be read: {why}"),
        }
    }
}

/// Asks one server, over one connection at a time.
pub struct Client {
    address: Address,
    /// How its certificate is judged; none for a server that is spoken to in clear.
    connector: Option<SslConnector>,
    takes: Takes,
    connection: Option<Stream>,
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Client({})", self.address)
    }
}

impl Client {
    /// One of a server. Nothing is connected before the first request. Without a connector a server that is to be
    /// spoken to over TLS is not spoken to at all.
    pub fn new(address: Address, connector: Option<SslConnector>, takes: Takes) -> Client {
        Client { address, connector, takes, connection: None }
    }

    /// Sends a request and reads the whole answer, until `end` at the latest. A connection that the server has closed
    /// since the request before is made anew, once.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn ask(&mut self, request: &[u8], end: Instant, gives_up: &dyn Fn() -> bool) -> Result<Answer, NoAnswer> {
        let patience = Patience { end, gives_up };
        loop {
            let (mut stream, is_new) = match self.connection.take() {
                Some(stream) => (stream, false),
                None => (self.connect(&patience)?, true),
            };
            match stream.ask(request, &patience, self.takes) {
                Ok(answer) => {
                    if !answer.closes {
                        self.connection = Some(stream);
                    }
                    return Ok(answer);
                }
                Err(failure) if failure.is_unanswered && !is_new => {}
                Err(failure) => return Err(failure.why),
            }
        }
    }

    /// Connects and says nothing: whether the server is there, and over TLS whether it is the one of that name.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn reach(&self, end: Instant, gives_up: &dyn Fn() -> bool) -> Result<(), NoAnswer> {
        self.connect(&Patience { end, gives_up }).map(drop)
    }

    /// Ends the connection. Who asks what must not be asked twice does so after each answer: then none is asked again
    /// because the server has closed an idle connection.
    pub fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Connects; over TLS the server has to prove that it is the one of that name.
    fn connect(&self, patience: &Patience<'_>) -> Result<Stream, NoAnswer> {
        let address = &self.address;
        let failed = |error: io::Error| NoAnswer::Broken(format!("can't connect to {address}: {error}"));
        let socket = connected(address, patience)?;
        socket.set_nodelay(true).map_err(failed)?;
        let timed = Timed { socket, end: patience.end };
        let Some(connector) = &self.connector else {
            return match address.scheme {
                Scheme::Http => Ok(Stream::Clear(timed)),
                Scheme::Https => {
                    Err(NoAnswer::Broken(format!("no TLS with {address}: it is not said whom to believe")))
                }
            };
        };
        let mut step = connector.connect(&address.host, timed);
        loop {
            let under_way = match step {
                Ok(stream) => return Ok(Stream::Tls(stream)),
                Err(HandshakeError::WouldBlock(under_way)) => under_way,
                Err(HandshakeError::Failure(failed)) => return Err(no_handshake(address, &failed)),
                Err(HandshakeError::SetupFailure(errors)) => {
                    return Err(NoAnswer::Broken(format!("no TLS with {address}: {errors}")));
                }
            };
            patience.check()?;
            step = under_way.handshake();
        }
    }
}

fn no_handshake(address: &Address, failed: &MidHandshakeSslStream<Timed>) -> NoAnswer {
    let verdict = failed.ssl().verify_result();
    if verdict != X509VerifyResult::OK {
        return NoAnswer::Broken(format!("no TLS with {address}: its certificate is not believed: {verdict}"));
    }
    match failed.error().io_error() {
        Some(error) if error.kind() == ErrorKind::TimedOut => {
            NoAnswer::Late(format!("no TLS with {address}: timed out"))
        }
        Some(error) => NoAnswer::Broken(format!("no TLS with {address}: {error}")),
        None => NoAnswer::Broken(format!("no TLS with {address}: {}", failed.error())),
    }
}

/// The first of the host's addresses that takes a connection.
fn connected(address: &Address, patience: &Patience<'_>) -> Result<TcpStream, NoAnswer> {
    let failed = |why: &dyn fmt::Display| format!("can't connect to {address}: {why}");
    let found = (address.host.as_str(), address.port).to_socket_addrs();
    let mut last = NoAnswer::Broken(failed(&"no such host"));
    for socket_address in found.map_err(|error| NoAnswer::Broken(failed(&error)))? {
        patience.check()?;
        match TcpStream::connect_timeout(&socket_address, patience.left()) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == ErrorKind::TimedOut => last = NoAnswer::Late(failed(&"timed out")),
            Err(error) => last = NoAnswer::Broken(failed(&error)),
        }
    }
    Err(last)
}

/// How long a request may take, and who may end it before.
struct Patience<'a> {
    end: Instant,
    gives_up: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    fn check(&self) -> Result<(), NoAnswer> {
        if (self.gives_up)() {
            return Err(NoAnswer::GivenUp);
        }
        if self.end <= Instant::now() { Err(NoAnswer::Late("no answer in time".to_owned())) } else { Ok(()) }
    }
}

/// A socket that waits a moment only, and says when its time is over.
struct Timed {
    socket: TcpStream,
    end: Instant,
}

impl Timed {
    fn moment(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left.min(LOOK_EVERY))) }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.moment()?)?;
        self.socket.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.moment()?)?;
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// What becomes of a request on one connection.
struct Failure {
    why: NoAnswer,
    /// The connection had ended before a byte of the answer came: on one that was idle, the server has closed it.
    is_unanswered: bool,
}

enum Stream {
    Clear(Timed),
    Tls(SslStream<Timed>),
}

impl Stream {
    fn timed(&mut self) -> &mut Timed {
        match self {
            Stream::Clear(timed) => timed,
            Stream::Tls(stream) => stream.get_mut(),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Clear(timed) => timed.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Clear(timed) => timed.write(from),
            Stream::Tls(stream) => stream.write(from),
        }
    }

    /// After a failure, or an answer that says so, the connection is of no use.
    fn ask(&mut self, request: &[u8], patience: &Patience<'_>, takes: Takes) -> Result<Answer, Failure> {
        self.timed().end = patience.end;
        let mut left = request;
        while !left.is_empty() {
            match self.write(left) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(error) => go_on(&error, patience, true)?,
            }
        }
        let mut reader = AnswerReader::new(takes);
        let mut room = Zeroizing::new(vec![0; READ_BYTES]);
        let mut before_any = true;
        loop {
            let len = match self.read(&mut room) {
                Ok(len) => len,
                // The server did not take leave, which TLS says in a long word.
                Err(error) if error.to_string().contains("unexpected eof") => 0,
                Err(error) => {
                    go_on(&error, patience, before_any)?;
                    continue;
                }
            };
            if len == 0 {
                let why = NoAnswer::Broken("the server ended the connection".to_owned());
                return reader.finish_at_end().ok_or(Failure { why, is_unanswered: before_any });
            }
            before_any = false;
            let unreadable = |why| Failure { why: NoAnswer::Unreadable(why), is_unanswered: false };
            if reader.receive(room.get(..len).unwrap_or_default()).map_err(unreadable)? {
                let none = unreadable(BadAnswer::Malformed { why: "it is not whole" });
                return reader.finish().ok_or(none);
            }
        }
    }
}

/// After an error that only ends a moment's wait.
fn go_on(error: &io::Error, patience: &Patience<'_>, before_any: bool) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => {
            patience.check().map_err(|why| Failure { why, is_unanswered: false })
        }
        ErrorKind::TimedOut => {
            Err(Failure { why: NoAnswer::Late("no answer in time".to_owned()), is_unanswered: false })
        }
        _ => {
            let why = NoAnswer::Broken(format!("the connection broke: {error}"));
            Err(Failure { why, is_unanswered: before_any })
        }
    }
}
