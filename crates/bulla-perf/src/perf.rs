//! `bulla perf`: measure, and show what was measured.

use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::result::Machine;
use clap::{Args, Subcommand};
use std::io::Write;

/// Measure what protection costs
#[derive(Args, Debug)]
pub struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

#[derive(Subcommand, Debug)]
enum PerfCommand {
    /// Describe this machine as results do, in JSON
    Machine,
}

/// Does what the arguments say.
///
/// # Errors
/// [`Error`], each kind.
pub fn run(args: &PerfArgs, _host: &dyn Host) -> Result<Verdict> {
    match &args.command {
        PerfCommand::Machine => {
            let text =
                serde_json::to_string_pretty(&Machine::this_one()).map_err(|error| Error::System(error.into()))?;
            // A reader that goes away (`| head`) is no failure.
            let _ = writeln!(std::io::stdout().lock(), "{text}");
        }
    }
    Ok(Verdict::Done)
}
