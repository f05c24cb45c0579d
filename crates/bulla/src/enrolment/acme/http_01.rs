//! The proof `http-01` (RFC 8555, section 8.3): a text that the authority reads over HTTP, from a listener that is
//! there for so long and answers nothing else.

use super::order::Proof;
use crate::enrolment::EnrolError;
use bulla_device::role::{self, Role};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Where an authority looks.
const PATH: &str = "/.well-known/acme-challenge/";
/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most header lines of a request.
const HEADERS_MAX: usize = 64;
/// Most connections at once; the oldest one makes room.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may take.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The texts that are shown, by token.
type Texts = Mutex<BTreeMap<String, String>>;

/// The listener. It ends with it.
#[derive(Debug)]
pub struct Http01 {
    texts: Arc<Texts>,
    is_over: Arc<AtomicBool>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Http01 {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there ended the listener, and nothing else.
            let _ = thread.join();
        }
    }
}

impl Http01 {
    /// Listens.
    ///
    /// # Errors
    /// [`EnrolError::Listen`].
    pub fn listen(address: SocketAddr) -> Result<Http01, EnrolError> {
        let failed = |error: io::Error| EnrolError::Listen { address, error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let (texts, is_over) = (Arc::<Texts>::default(), Arc::<AtomicBool>::default());
        let thread = thread::Builder::new().name("proof".to_owned()).spawn({
            let (texts, is_over) = (texts.clone(), is_over.clone());
            move || {
                role::begin(Role::Administration);
                serve(&listener, &texts, &is_over);
            }
        });
        Ok(Http01 { texts, is_over, address: bound, thread: Some(thread.map_err(failed)?) })
    }

    /// Shows a proof from now on.
    pub fn show(&self, proof: &Proof) {
        lock(&self.texts).insert(proof.token.clone(), proof.text.clone());
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn lock(texts: &Texts) -> MutexGuard<'_, BTreeMap<String, String>> {
    // What is shown holds no invariant that a panic could break.
    texts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Someone who asks.
struct Caller {
    stream: TcpStream,
    until: Instant,
    asked: Vec<u8>,
    /// The answer, and how much of it went out; empty while the request comes.
    answer: Vec<u8>,
    sent: usize,
}

impl Caller {
    /// Goes on with it. Whether there is more to come.
    fn go_on(&mut self, texts: &Texts) -> io::Result<bool> {
        let mut piece = [0; 1024];
        while self.answer.is_empty() {
            match self.stream.read(&mut piece)? {
                0 => return Ok(false),
                len => self.asked.extend_from_slice(&piece[..len]),
            }
            if let Some(answer) = answer(&self.asked, &lock(texts)) {
                self.answer = answer;
            }
        }
        while self.sent < self.answer.len() {
            self.sent += self.stream.write(self.answer.get(self.sent..).unwrap_or_default())?;
        }
        Ok(false)
    }
}

fn serve(listener: &TcpListener, texts: &Texts, is_over: &AtomicBool) {
    let mut callers: Vec<Caller> = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        wait(listener, &callers);
        while let Ok((stream, _)) = listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if callers.len() == CONNECTIONS_MAX {
                callers.remove(0);
            }
            let until = Instant::now() + CONNECTION_WITHIN;
            callers.push(Caller { stream, until, asked: Vec::new(), answer: Vec::new(), sent: 0 });
        }
        let now = Instant::now();
        callers.retain_mut(|caller| match caller.go_on(texts) {
            Ok(goes_on) => goes_on,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) && now < caller.until,
        });
    }
}

/// Until something can be done, or it is time for a look.
fn wait(listener: &TcpListener, callers: &[Caller]) {
    let mut waited = vec![PollFd::new(listener, PollFlags::IN)];
    waited.extend(callers.iter().map(|caller| {
        PollFd::new(&caller.stream, if caller.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT })
    }));
    let timeout = Timespec::try_from(LOOK_EVERY).ok();
    if poll(&mut waited, timeout.as_ref()).is_err() {
        // The system could not wait for sockets: without a pause this would go round and round.
        thread::sleep(LOOK_EVERY);
    }
}

/// The answer to a request; none while more of it has to come.
pub fn answer(asked: &[u8], texts: &BTreeMap<String, String>) -> Option<Vec<u8>> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut lines);
    let text = match request.parse(asked) {
        Ok(httparse::Status::Partial) if asked.len() <= REQUEST_BYTES_MAX => return None,
        Ok(httparse::Status::Complete(_)) if request.method == Some("GET") => {
            request.path.and_then(|path| path.strip_prefix(PATH)).and_then(|token| texts.get(token))
        }
        _ => None,
    };
    let (status, body) = text.map_or(("404 Not Found", ""), |text| ("200 OK", text.as_str()));
    let head = "content-type: application/octet-stream\r\nconnection: close";
    Some(format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}
