//! The operator's log: its events, and how the process ends where it can't go on.
//!
//! Events are those of `tracing`; the program that has subscribed to them writes the lines.

use std::sync::OnceLock;

#[doc(hidden)]
pub use tracing;

/// What is done before the process ends: the last lines are written.
static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();

/// Has this done before [`exit`] ends the process. The first call counts.
pub fn before_exit(what: fn()) {
    let _ = BEFORE_EXIT.set(what);
}

/// What a simulated queue manager ends by, instead of the process.
#[cfg(any(test, feature = "simulation"))]
#[derive(Debug, Eq, PartialEq)]
pub struct Exit(pub i32);

#[cfg(any(test, feature = "simulation"))]
thread_local! {
    /// Whether queue managers of this thread are simulated.
    pub static EXIT_UNWINDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Ends the process with that code, once the last lines of the log are written.
pub fn exit(code: i32) -> ! {
    #[cfg(any(test, feature = "simulation"))]
    if EXIT_UNWINDS.get() {
        std::panic::resume_unwind(Box::new(Exit(code)));
    }
    if let Some(before_exit) = BEFORE_EXIT.get() {
        before_exit();
    }
    std::process::exit(code)
}

/// `note!("…")`: an operator may want to know. Fields stand before the message: `note!(queue = name, "…")`.
#[macro_export]
macro_rules! note { ($($arg:tt)*) => { $crate::log::tracing::info!($($arg)*) } }
/// `warning!("…")`: something went wrong for a user.
#[macro_export]
macro_rules! warning { ($($arg:tt)*) => { $crate::log::tracing::warn!($($arg)*) } }
/// `alarm!("…")`: an operator is needed now.
#[macro_export]
macro_rules! alarm { ($($arg:tt)*) => { $crate::log::tracing::error!($($arg)*) } }
