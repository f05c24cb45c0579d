//! Asks the agent of a SPIFFE trust domain, by the Workload API over a local socket, for this process's X.509-SVIDs:
//! certificates with their keys, and the authorities of the trust domain.
//!
//! The API is gRPC, so HTTP/2, and the libraries for that are asynchronous. This crate keeps them to itself: [`fetch`]
//! blocks, and its runtime is one of the calling thread that ends with it. Nothing that came is looked into here beyond
//! the protocol; whoever asked judges it. The key is wiped where it is kept; the room of the HTTP/2 library is not.

mod message;

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request, StatusCode};
use message::Response;
use prost::Message;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use zeroize::Zeroizing;

/// Most bytes of an answer: all SVIDs of this process, with their bundles and those of other trust domains.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Room for an answer as it usually is: one that grows leaves what it was behind.
const ANSWER_BYTES: usize = 64 << 10;
/// Most SVIDs of an answer.
pub const SVIDS_MAX: usize = 64;
/// Most bytes of the fields of an answer.
const FIELDS_BYTES_MAX: u32 = 16 << 10;
/// Bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// How often it is looked whether to give up.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The method (SPIFFE Workload API, section 5.1).
const METHOD: &str = "http://localhost/SpiffeWorkloadAPI/FetchX509SVID";
/// A request says by this field that no browser was led to make it (section 4.1).
const SECURITY: &str = "workload.spiffe.io";

/// A certificate of this process and its key.
pub struct Svid {
    /// Its name, as `spiffe://example.org/mq`.
    pub id: String,
    /// The certificate and those above it, DER one after the other.
    pub certificates: Vec<u8>,
    /// The key, PKCS#8.
    pub key: Zeroizing<Vec<u8>>,
    /// The authorities of its trust domain, DER one after the other.
    pub bundle: Vec<u8>,
}

impl fmt::Debug for Svid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Svid").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why no answer came.
#[derive(Debug)]
#[non_exhaustive]
pub enum FetchError {
    /// No runtime, or the socket can't be used.
    Io(io::Error),
    /// There is no answer yet, and its time is over.
    Late,
    /// Whoever asked gives up.
    GivenUp,
    /// The answer is longer than [`ANSWER_BYTES_MAX`].
    TooLong,
    /// The agent refused, with a status of gRPC.
    Status {
        /// The number, as 7 for a permission that is missing.
        code: u32,
        /// What it said.
        said: String,
    },
    /// It is no answer of the Workload API.
    Protocol(String),
}

impl Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Late => f.write_str("no answer in time"),
            Self::GivenUp => f.write_str("given up"),
            Self::TooLong => write!(f, "the answer has more than {ANSWER_BYTES_MAX} bytes"),
            Self::Status { code, said } => write!(f, "status {code}: {said}"),
            Self::Protocol(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for FetchError {}

impl From<io::Error> for FetchError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<h2::Error> for FetchError {
    fn from(error: h2::Error) -> Self {
        if error.is_io() {
            return Self::Io(error.into_io().unwrap_or_else(|| io::ErrorKind::Other.into()));
        }
        Self::Protocol(error.to_string())
    }
}

/// The SVIDs that the agent behind the socket at `path` has for this process now, the one meant without a name first.
///
/// # Errors
/// None came within the time and the limits.
pub fn fetch(path: &Path, within: Duration, is_stopping: &dyn Fn() -> bool) -> Result<Vec<Svid>, FetchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let ends = Instant::now() + within;
    runtime.block_on(async {
        let mut answer = pin!(ask(path));
        loop {
            let left = ends.saturating_duration_since(Instant::now());
            match tokio::time::timeout(LOOK_EVERY.min(left), answer.as_mut()).await {
                Ok(answer) => return answer,
                Err(_) if is_stopping() => return Err(FetchError::GivenUp),
                Err(_) if Instant::now() >= ends => return Err(FetchError::Late),
                Err(_) => {}
            }
        }
    })
}

async fn ask(path: &Path) -> Result<Vec<Svid>, FetchError> {
    let socket = UnixStream::connect(path).await?;
    let mut builder = h2::client::Builder::new();
    builder.enable_push(false).max_header_list_size(FIELDS_BYTES_MAX);
    let (sender, connection) = builder.handshake::<_, Bytes>(socket).await?;
    // It ends with the runtime, at the latest.
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::post(METHOD).header("content-type", "application/grpc").header("te", "trailers");
    let request = request.header(SECURITY, "true").body(());
    let request = request.map_err(|error| FetchError::Protocol(error.to_string()))?;
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    // An empty message: nothing is asked but who this is, and that the agent sees by the socket.
    body.send_data(Bytes::from_static(&[0; PREFIX_BYTES]), true)?;
    let (head, body) = response.await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(FetchError::Protocol(format!("HTTP status {}", head.status.as_u16())));
    }
    status(&head.headers)?;
    first_message(body).await
}

/// The first message of the stream, which the agent sends at once. What would follow is asked for another time.
async fn first_message(mut body: RecvStream) -> Result<Vec<Svid>, FetchError> {
    let mut came = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES));
    loop {
        if let Some(([flag, length @ ..], message)) = came.split_first_chunk::<PREFIX_BYTES>() {
            if *flag != 0 {
                return Err(FetchError::Protocol("the answer is compressed, which was not asked for".to_owned()));
            }
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if length > ANSWER_BYTES_MAX {
                return Err(FetchError::TooLong);
            }
            if let Some(message) = message.get(..length) {
                return svids(message);
            }
        }
        let Some(data) = body.data().await else { break };
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        came.extend_from_slice(&data);
    }
    if let Some(trailers) = body.trailers().await? {
        status(&trailers)?;
    }
    Err(FetchError::Protocol("the answer ends before its message does".to_owned()))
}

fn svids(message: &[u8]) -> Result<Vec<Svid>, FetchError> {
    let response = Response::decode(message).map_err(|error| FetchError::Protocol(error.to_string()))?;
    if response.svids.len() > SVIDS_MAX {
        return Err(FetchError::Protocol(format!("more than {SVIDS_MAX} SVIDs")));
    }
    let svid = |one: message::Svid| Svid {
        id: one.spiffe_id,
        certificates: one.x509_svid,
        key: Zeroizing::new(one.x509_svid_key),
        bundle: one.bundle,
    };
    Ok(response.svids.into_iter().map(svid).collect())
}

/// A status of gRPC other than 0 is a refusal.
fn status(fields: &HeaderMap) -> Result<(), FetchError> {
    let text = |name: &str| fields.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let Some(code) = text("grpc-status") else { return Ok(()) };
    let code: u32 = code.parse().map_err(|_| FetchError::Protocol("a status that is no number".to_owned()))?;
    if code == 0 {
        return Ok(());
    }
    let said = text("grpc-message").unwrap_or_default();
    let said = percent_encoding::percent_decode_str(&said).decode_utf8_lossy().into_owned();
    Err(FetchError::Status { code, said })
}
