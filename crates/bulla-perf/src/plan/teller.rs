//! What calibration and its check say while they measure, and that they stop when the user has had enough.

use crate::error::Result;
use crate::interrupt::Interrupt;
use std::io::Write;

/// Says on standard error what is being done.
#[derive(Debug)]
pub(super) struct Teller {
    quiet: bool,
    interrupt: Interrupt,
}

impl Teller {
    /// Notes Ctrl-C from now on.
    ///
    /// # Errors
    /// [`Error::System`](crate::error::Error::System): a signal can't be handled.
    pub(super) fn new(quiet: bool) -> Result<Teller> {
        Ok(Teller { quiet, interrupt: Interrupt::watch()? })
    }

    /// What is begun now.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(super) fn begin(&self, text: &str) -> Result<()> {
        self.check()?;
        self.say(text);
        Ok(())
    }

    /// What a user may want to know.
    pub(super) fn say(&self, text: &str) {
        if !self.quiet {
            // The reader of standard error may be gone.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::error::Error::Interrupted): the user ended it.
    pub(super) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }
}
