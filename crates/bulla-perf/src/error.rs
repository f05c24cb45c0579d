//! What ends a command before it has a result.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What may end a command.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The user's turn: what was asked for makes no sense, or contradicts itself.
    Usage(String),
    /// The user's turn: a file can't be read or written.
    File(PathBuf, io::Error),
    /// The user's turn: a file holds something else than it should. Where it is a file of lines, which line.
    Content {
        /// The file.
        path: PathBuf,
        /// Its line, from 1; 0 for the file as a whole.
        line: usize,
        /// What is wrong with it.
        wrong: String,
    },
    /// The broker's turn: it was not reached, refused, or broke what was open.
    Broker(String),
    /// A queue manager of our own did not start, or ended before its time.
    Manager(String),
    /// The device's turn: it gave no result.
    Device(String),
    /// A channel's turn: it can't be defined, or does not run.
    Channel(String),
    /// A message came that is not the one that was put.
    Wrong(String),
    /// The user ended it before it was complete. What `bulla perf` had measured until then is written and shown; a
    /// calibration or a check leaves nothing.
    Interrupted,
    /// The system refused a thread, a directory or a clock.
    System(io::Error),
}

impl Error {
    /// A file that can't be read or written.
    #[must_use]
    pub fn file(path: &Path, error: io::Error) -> Self {
        Self::File(path.to_owned(), error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message)
            | Self::Broker(message)
            | Self::Manager(message)
            | Self::Device(message)
            | Self::Channel(message)
            | Self::Wrong(message) => f.write_str(message),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Content { path, line: 0, wrong } => write!(f, "{}: {wrong}", path.display()),
            Self::Content { path, line, wrong } => write!(f, "{}:{line}: {wrong}", path.display()),
            Self::Interrupted => f.write_str("interrupted before all of it was measured"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// How a command that reached its end turned out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// What was asked for was done, and every goal that was stated was held.
    Done,
    /// A stated goal was not held.
    Missed,
}
