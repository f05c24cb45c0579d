//! The helper process, seen from the one that starts it.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// This very program, also when its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// The hidden subcommand.
const SUBCOMMAND: &str = "token-helper";

/// How the helper process is started: a program that calls [`run`](super::helper::run) with its standard input.
#[derive(Debug, Clone)]
pub struct HelperCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables beside those of this process.
    pub variables: Vec<(OsString, OsString)>,
}

impl HelperCommand {
    /// This program with the subcommand `token-helper`.
    pub fn this_program() -> HelperCommand {
        HelperCommand {
            program: PathBuf::from(THIS_PROGRAM),
            arguments: vec![OsString::from(SUBCOMMAND)],
            variables: Vec::new(),
        }
    }
}

/// A helper process that runs, or ran. Ended when dropped.
pub(super) struct Helper {
    child: Mutex<Child>,
    control: UnixStream,
}

impl Helper {
    pub(super) fn start(command: &HelperCommand) -> io::Result<Helper> {
        let (control, theirs) = UnixStream::pair()?;
        let child = Command::new(&command.program)
            .arg0("bulla")
            .args(&command.arguments)
            .envs(command.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // A group of its own: what is typed at this process's terminal is not for the helper, which
            // has to finish what it was asked for.
            .process_group(0)
            .spawn()?;
        Ok(Helper { child: Mutex::new(child), control })
    }

    /// A new socket whose other end a thread of the helper answers on.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let sockets = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::Error::other("no room for a socket in a message"));
        }
        sendmsg(&self.control, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(ours)
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.lock().try_wait(), Ok(None))
    }

    /// Ends it at once: it may hang in the module.
    pub(super) fn end(&self) {
        let mut child = self.lock();
        // Both fail only when it has ended and was waited for.
        let _ = child.kill();
        let _ = child.wait();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}
