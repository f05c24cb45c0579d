//! The helper process: the only one that loads PKCS#11 modules, so that a crash in one is a device's failure and
//! not the queue manager's. It ends when the process that started it has gone.
//!
//! Its standard input is a socket over which the other process passes one end of a new socket for each engine; a
//! thread answers on each, with a session of its own.

use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cryptoki::context::Pkcs11;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::DumpableBehavior;

use super::protocol::{Cause, Request, Response, read_frame, write_frame};
use super::token::{Logins, Token, load_module};

/// The name that process lists show.
const PROCESS_NAME: &std::ffi::CStr = c"bulla-token";
/// Sockets that one message brings.
const SOCKETS_PER_MESSAGE: usize = 1;

/// Serves until the other process closes its end of `control`.
///
/// # Errors
/// What the operating system says about `control`.
pub fn run(control: impl AsFd) -> std::io::Result<()> {
    // A PIN and secrets are in this memory: no core dumps, and no debugger of the same user.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // A process without its name serves as well.
    let _ = rustix::thread::set_name(PROCESS_NAME);
    let (module, logins) = (Module::default(), Logins::default());
    while let Some(socket) = receive(control.as_fd())? {
        let (module, logins) = (module.clone(), logins.clone());
        let serve = move || serve(UnixStream::from(socket), &module, &logins);
        std::thread::Builder::new().name("session".to_owned()).spawn(serve)?;
    }
    Ok(())
}

fn receive(control: std::os::fd::BorrowedFd<'_>) -> std::io::Result<Option<OwnedFd>> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut into = [IoSliceMut::new(&mut byte)];
        let received = match recvmsg(control, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            received => received?,
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let sockets = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        if let Some(socket) = sockets.flatten().next() {
            return Ok(Some(socket));
        }
    }
}

/// The one module of this process, once it is loaded.
#[derive(Clone, Default)]
struct Module(Arc<Mutex<Option<(PathBuf, Pkcs11)>>>);

impl Module {
    fn get(&self, path: &Path) -> Result<Pkcs11, Response> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*loaded {
            Some((known, module)) if known == path => Ok(module.clone()),
            Some(_) => Err(Response::failed(Cause::Protocol, "this process has loaded another module")),
            None => {
                let module = load_module(path)?;
                *loaded = Some((path.to_owned(), module.clone()));
                Ok(module)
            }
        }
    }
}

/// Answers one engine until it goes, or sends what is no request.
fn serve(mut socket: UnixStream, module: &Module, logins: &Logins) {
    let mut token: Option<Token> = None;
    while let Ok(body) = read_frame(&mut socket) {
        let Ok(request) = Request::decode(&body) else { return };
        drop(body);
        let response = match (&mut token, request) {
            (None, Request::Open { module: path, token: uri, pin }) => {
                let path = Path::new(OsStr::from_bytes(&path));
                let uri = uri.parse().map_err(|error| Response::failed(Cause::Protocol, format!("{error}")));
                let opened = uri.and_then(|uri| {
                    let module = module.get(path)?;
                    Token::open(module, logins, uri, pin).map_err(Response::from)
                });
                match opened {
                    Ok(opened) => Response::Opened(token.insert(opened).identity().clone()),
                    Err(response) => response,
                }
            }
            (None, _) => Response::failed(Cause::Protocol, "the session is not open"),
            (Some(token), request) => token.answer(request),
        };
        if write_frame(&mut socket, &response.encode()).is_err() {
            return;
        }
    }
}
