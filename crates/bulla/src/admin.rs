//! The admin language over a Unix socket: both ends.
//!
//! The socket is `admin.sock` in the data directory, mode 0600: who may use it may read the queues' files anyway.
//! A connection carries one request and one answer, each a frame:
//!
//! | offset | size | field | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 4 | magic | `BMQ1`; the digit is the version, and a reader refuses any other |
//! | 4 | 4 | length | bytes that follow, little-endian |
//! | 8 | length | body | request: MQSC text; answer: a JSON array of [`Reply::to_json`]; both UTF-8 |
//!
//! Another one, for administrators with a role, may be in a directory of its own (`bulla start --admin-directory`),
//! mode 0666: who is at the other end is known from the kernel, and asked for a role at each command.
//!
//! The queue manager takes one connection after another, and gives each so long to send its request and to take its
//! answer, so that a silent one delays no other for long.

use crate::mqsc::Reply;
use crate::mqsc::parse::TEXT_BYTES_MAX;
use bulla_device::role::{self, Role};
use serde_json::Value as Json;
use std::fmt::{self, Display};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The socket's name in the data directory.
pub const SOCKET: &str = "admin.sock";
/// How long a request may take to arrive, and an answer to be taken.
pub const TRANSFER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a request of a user without a role may take to arrive, and its refusal to be taken.
pub const STRANGER_TIME_MAX: Duration = Duration::from_secs(1);
/// Most bytes of such a request.
pub const STRANGER_BYTES_MAX: usize = 64 << 10;
/// How long the asking side waits for an answer: clearing a deep queue takes its time.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(600);
/// Most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Who is at the other end of the socket, as the kernel says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Process number.
    pub pid: u32,
}

impl Peer {
    /// As it was when the connection was made (SO_PEERCRED, unix(7)).
    fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = rustix::net::sockopt::socket_peercred(stream)?;
        Ok(Self {
            uid: peer.uid.as_raw(),
            gid: peer.gid.as_raw(),
            pid: u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default(),
        })
    }
}

/// How long to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const MAGIC: [u8; 4] = *b"BMQ1";

/// Listens in the data directory, mode 0600 before a client can connect. The caller owns the directory: a socket
/// that is there already is a dead one's.
///
/// # Errors
/// Whatever the file system says.
pub fn listen(directory: &Path) -> io::Result<UnixListener> {
    listen_for(directory, 0o600)
}

/// The same, for every user who can reach the directory: the listener asks each client for its role.
///
/// # Errors
/// Whatever the file system says.
pub fn listen_to_all(directory: &Path) -> io::Result<UnixListener> {
    if short_path(directory, |path| UnixStream::connect(path)).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another queue manager has its admin socket there"));
    }
    listen_for(directory, 0o666)
}

fn listen_for(directory: &Path, mode: u32) -> io::Result<UnixListener> {
    // Binding makes the socket with the process's umask; in a directory of its own no other user can reach it until
    // it has its permissions and its name.
    let private = directory.join("admin.new");
    match fs::remove_dir_all(&private) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&private)?;
    let listener = short_path(&private, |path| UnixListener::bind(path))?;
    let unnamed = private.join(SOCKET);
    fs::set_permissions(&unnamed, Permissions::from_mode(mode))?;
    fs::rename(&unnamed, directory.join(SOCKET))?;
    fs::remove_dir(&private)?;
    Ok(listener)
}

/// Takes the socket of a directory away, where there is one.
pub fn remove(directory: &Path) {
    // One that stays is a dead one's, which the next start replaces.
    let _ = fs::remove_file(directory.join(SOCKET));
}

/// Answers requests on a thread named `admin` until [`Server::stop`].
///
/// # Errors
/// No thread could be started.
pub fn serve(
    directory: &Path,
    listener: UnixListener,
    handler: impl FnMut(Peer, &str) -> Vec<Reply> + Send + 'static,
) -> io::Result<Server> {
    serve_some(directory, listener, |_| true, handler)
}

/// The same; of a client that is not `known` no more is read than a refusal takes.
///
/// # Errors
/// No thread could be started.
pub fn serve_some(
    directory: &Path,
    listener: UnixListener,
    known: impl Fn(Peer) -> bool + Send + 'static,
    mut handler: impl FnMut(Peer, &str) -> Vec<Reply> + Send + 'static,
) -> io::Result<Server> {
    let stopping = Arc::new(AtomicBool::new(false));
    let stop = stopping.clone();
    let thread = thread::Builder::new().name("admin".into()).spawn(move || {
        role::begin(Role::Administration);
        for stream in listener.incoming() {
            if stop.load(Ordering::Acquire) {
                break;
            }
            match stream {
                // A connection that fails is its own misfortune: the other end sees it close.
                Ok(stream) => drop(answer(stream, TRANSFER_TIME_MAX, &known, &mut handler)),
                // Out of descriptors, most likely: asking again at once would only burn the processor.
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    })?;
    Ok(Server { directory: directory.into(), stopping, thread })
}

/// The answering side, while it runs.
#[derive(Debug)]
pub struct Server {
    directory: PathBuf,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Ends after the request in hand, and takes the socket away.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        // The thread waits for a connection: this is it. When the listener has ended there is nothing to wake.
        let woken = short_path(&self.directory, |path| UnixStream::connect(path)).is_ok();
        remove(&self.directory);
        if woken {
            let _ = self.thread.join();
        }
    }
}

/// Sends `text` to the queue manager of a data directory and waits for its answer.
///
/// # Errors
/// It was not reached, or did not answer.
pub fn request(directory: &Path, text: &str) -> Result<Vec<Reply>, RequestError> {
    let mut stream = short_path(directory, |path| UnixStream::connect(path)).map_err(|error| {
        let directory = directory.to_path_buf();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => RequestError::NotRunning { directory },
            io::ErrorKind::PermissionDenied => RequestError::NotAllowed { directory },
            _ => RequestError::Broken(error),
        }
    })?;
    let exchange = |stream: &mut UnixStream| {
        write_frame(stream, text.as_bytes(), TEXT_BYTES_MAX, Instant::now() + TRANSFER_TIME_MAX)?;
        read_frame(stream, ANSWER_BYTES_MAX, Instant::now() + ANSWER_TIME_MAX)
    };
    let body = exchange(&mut stream).map_err(RequestError::Broken)?;
    let json: Json = serde_json::from_slice(&body).map_err(|_| RequestError::NotUnderstood)?;
    let replies = json.as_array().ok_or(RequestError::NotUnderstood)?.iter();
    replies.map(Reply::from_json).collect::<Option<_>>().ok_or(RequestError::NotUnderstood)
}

/// Why there is no answer. The administrator's turn.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// Nothing listens there.
    NotRunning {
        /// The data directory.
        directory: PathBuf,
    },
    /// The directory or the socket belongs to another user.
    NotAllowed {
        /// The data directory.
        directory: PathBuf,
    },
    /// The connection broke, or took too long.
    Broken(io::Error),
    /// An answer came that is none: another version, or another program.
    NotUnderstood,
}

impl RequestError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            RequestError::NotRunning { directory } => Some(format!("bulla start --data {}", directory.display())),
            RequestError::NotAllowed { .. } => Some("run as the user that runs the queue manager".into()),
            _ => None,
        }
    }
}

impl std::error::Error for RequestError {}

impl Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::NotRunning { directory } => {
                write!(f, "no queue manager is running on {}", directory.display())
            }
            RequestError::NotAllowed { directory } => {
                write!(f, "no permission to administer the queue manager on {}", directory.display())
            }
            RequestError::Broken(error) => write!(f, "the queue manager did not answer: {error}"),
            RequestError::NotUnderstood => f.write_str("the queue manager's answer is of another version"),
        }
    }
}

fn answer(
    mut stream: UnixStream,
    time: Duration,
    known: &dyn Fn(Peer) -> bool,
    handler: &mut dyn FnMut(Peer, &str) -> Vec<Reply>,
) -> io::Result<()> {
    let peer = Peer::of(&stream)?;
    let (bytes, time) =
        if known(peer) { (TEXT_BYTES_MAX, time) } else { (STRANGER_BYTES_MAX, time.min(STRANGER_TIME_MAX)) };
    let body = read_frame(&mut stream, bytes, Instant::now() + time)?;
    let text = String::from_utf8(body).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let mut body = String::from("[");
    // One after the other: what is written is let go.
    for (index, reply) in handler(peer, &text).into_iter().enumerate() {
        body.push_str(if index == 0 { "" } else { "," });
        body.push_str(&reply.to_json().to_string());
    }
    body.push(']');
    write_frame(&mut stream, body.as_bytes(), ANSWER_BYTES_MAX, Instant::now() + time)
}

fn write_frame(stream: &mut UnixStream, body: &[u8], bytes_max: usize, deadline: Instant) -> io::Result<()> {
    let too_long =
        || io::Error::new(io::ErrorKind::InvalidInput, format!("{} bytes are more than {bytes_max}", body.len()));
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= bytes_max).ok_or_else(too_long)?;
    let mut head = [0; 8];
    let (magic, size) = head.split_at_mut(4);
    magic.copy_from_slice(&MAGIC);
    size.copy_from_slice(&length.to_le_bytes());
    for mut part in [&head[..], body] {
        while !part.is_empty() {
            stream.set_write_timeout(Some(left(deadline)?))?;
            match stream.write(part) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => part = part.get(written..).unwrap_or_default(),
                Err(error) => retry(error)?,
            }
        }
    }
    Ok(())
}

fn read_frame(stream: &mut UnixStream, bytes_max: usize, deadline: Instant) -> io::Result<Vec<u8>> {
    let head = read_bytes(stream, 8, deadline)?;
    let (magic, size) = head.split_first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
    let size = size.first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
    let bytes = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
    if *magic != MAGIC || bytes > bytes_max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    read_bytes(stream, bytes, deadline)
}

/// Memory grows with what arrives, not with what is announced.
fn read_bytes(stream: &mut UnixStream, bytes: usize, deadline: Instant) -> io::Result<Vec<u8>> {
    const STEP_BYTES: usize = 64 << 10;
    let mut step = vec![0; STEP_BYTES.min(bytes)];
    let mut found = Vec::new();
    while found.len() < bytes {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let room = STEP_BYTES.min(bytes - found.len());
        match stream.read(step.get_mut(..room).unwrap_or_default()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => found.extend_from_slice(step.get(..read).unwrap_or_default()),
            Err(error) => retry(error)?,
        }
    }
    Ok(found)
}

/// Time left; a socket takes no timeout of zero.
fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

fn retry(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        _ => Err(error),
    }
}

/// A socket's path may have 107 bytes, a data directory's more: the way over the open directory is always short.
fn short_path<T>(directory: &Path, use_path: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let handle = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", handle.as_raw_fd());
    use_path(Path::new(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::parse::Position;
    use crate::mqsc::reply::Outcome;

    fn echo(peer: Peer, text: &str) -> Vec<Reply> {
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
        assert_eq!(peer.pid, std::process::id());
        let outcome = Outcome::Done { message: text.into(), warnings: Vec::new() };
        vec![Reply { at: Position { line: 1, column: 1 }, command: "ECHO".into(), outcome, warnings: Vec::new() }]
    }

    fn own() -> Peer {
        Peer {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            pid: std::process::id(),
        }
    }

    #[test]
    fn a_request_is_answered_over_a_socket_that_only_its_owner_may_use() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120)); // deeper than a socket's path may be
        fs::create_dir(&deep).unwrap();
        let server = serve(&deep, listen(&deep).unwrap(), echo).unwrap();
        let mode = fs::metadata(deep.join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for text in ["DISPLAY QMGR", "", &"x".repeat(300_000)] {
            assert_eq!(request(&deep, text).unwrap(), echo(own(), text));
        }
        server.stop();
        assert!(!deep.join(SOCKET).exists() && !deep.join("admin.new").exists());
        assert!(matches!(request(&deep, "HELP"), Err(RequestError::NotRunning { .. })));
    }

    #[test]
    fn a_dead_one_s_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        drop(listen(directory.path()).unwrap());
        let refused = request(directory.path(), "HELP").unwrap_err();
        assert!(matches!(refused, RequestError::NotRunning { .. }), "{refused}");
        let server = serve(directory.path(), listen(directory.path()).unwrap(), echo).unwrap();
        assert_eq!(request(directory.path(), "HELP").unwrap(), echo(own(), "HELP"));
        server.stop();
    }

    #[test]
    fn what_is_no_frame_is_refused_before_it_is_read() {
        let refused = |bytes: &[u8], kind| {
            let (mut asking, mut answering) = UnixStream::pair().unwrap();
            asking.write_all(bytes).unwrap();
            drop(asking);
            let deadline = Instant::now() + TRANSFER_TIME_MAX;
            assert_eq!(read_frame(&mut answering, 1000, deadline).unwrap_err().kind(), kind);
        };
        refused(b"BMQ2\x01\0\0\0x", io::ErrorKind::InvalidData);
        refused(b"BMQ1\xff\xff\xff\xff", io::ErrorKind::InvalidData);
        refused(b"BMQ1\x02\0\0\0x", io::ErrorKind::UnexpectedEof);
        refused(b"BMQ", io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn one_that_says_nothing_is_left_at_the_deadline() {
        let (_silent, answering) = UnixStream::pair().unwrap();
        let error = answer(answering, Duration::ZERO, &|_| true, &mut echo).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
