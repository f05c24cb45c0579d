//! Ctrl-C and SIGTERM: the first one ends a measurement in order, the second one at once.

use crate::error::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code at the second signal, as shells have it for SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Whether the user has ended what this process does.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Signals are noted from now on. The caller looks again and again whether one [`came`](Self::came).
    ///
    /// # Errors
    /// [`Error::System`]: a signal can't be handled.
    pub(crate) fn watch() -> Result<Interrupt> {
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(&came))?;
            signal_hook::flag::register(signal, Arc::clone(&came))?;
        }
        Ok(Interrupt(came))
    }

    /// Whether one came.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For what has nothing to keep of a beginning.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: one came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.came() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
