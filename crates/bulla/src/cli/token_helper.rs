//! `bulla token-helper`: the process that loads a PKCS#11 module. Only the program itself starts it.

use crate::cli::CliError;

/// Serves the process that started this one, until that has gone.
///
/// # Errors
/// When standard input is not that process's socket.
pub fn run() -> Result<(), CliError> {
    bulla_device::coprocessor::helper::run(std::io::stdin()).map_err(|error| {
        CliError::usage(format!("standard input: {error}"))
            .hint("the program starts this by itself, for a device of type COPROCESSOR")
    })?;
    // Threads may still wait for a token whose askers are gone.
    std::process::exit(0);
}
