//! What the program offers to this crate: its executable, and its admin language.

use crate::error::Result;
use serde_json::{Map, Value as Json};
use std::path::Path;

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
    /// [`Error::Manager`](crate::error::Error::Manager): it was not reached, or refused one; the reason is in the message.
    fn command(&self, data: &Path, commands: &str) -> Result<()>;
}
