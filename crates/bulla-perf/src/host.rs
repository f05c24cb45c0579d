//! What the program offers to this crate: its executable, and its admin language.

use crate::error::{Error, Result};
use bulla_amqp::{Payload, Symbol, Value};
use serde_json::{Map, Value as Json};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// One object that DISPLAY shows: values by keyword.
pub type Row = Map<String, Json>;

/// The program that queue managers are started with, and spoken to.
pub trait Host: Sync {
    /// The executable.
    fn program(&self) -> &Path;

    /// Carries out one DISPLAY command at the queue manager of that data directory; a row for each object.
    ///
    /// # Errors
    /// [`Error::Manager`](crate::error::Error::Manager): it was not reached, or refused; the reason is in the message.
    fn display(&self, data: &Path, command: &str) -> Result<Vec<Row>>;

    /// Carries out other commands, one a line.
    ///
    /// # Errors
    /// [`Error::Manager`](crate::error::Error::Manager): it was not reached, or refused one; the reason is in the
    /// message.
    fn command(&self, data: &Path, commands: &str) -> Result<()>;

    /// Sealing with a key ring, on the client's own side.
    ///
    /// # Errors
    /// [`Error::Usage`]: this program has none.
    fn sealing(&self, _ring: &Path) -> Result<Arc<dyn Sealing>> {
        Err(Error::Usage("this program can't seal on the client's side".to_owned()))
    }
}

/// A key ring to seal and open with.
pub trait Sealing: Send + Sync {
    /// A sealer and opener for a link to that queue, of which the broker said these properties. The policy is the one
    /// that the queue manager serves.
    ///
    /// # Errors
    /// [`Error::Broker`]: it serves no policy, or one that the ring can't satisfy.
    fn link(&self, queue: &str, properties: &[(Symbol, Value)]) -> Result<Box<dyn ClientSeal>>;
}

impl fmt::Debug for dyn Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

/// Seals and opens the messages of one link.
pub trait ClientSeal: Send {
    /// The message as it goes to the broker.
    ///
    /// # Errors
    /// [`Error::Wrong`]: the policy can't be satisfied.
    fn seal(&mut self, message: &Payload) -> Result<Payload>;

    /// The message as the application reads it.
    ///
    /// # Errors
    /// [`Error::Wrong`]: the seal is not good.
    fn open(&mut self, message: &Payload) -> Result<Payload>;
}
