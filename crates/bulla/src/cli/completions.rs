//! `bulla completions`: what a shell completes after `bulla`.

use super::CliError;
use clap::Args;
use clap_complete::Shell;
use std::io::Write;

/// Print a script that teaches a shell to complete commands and options
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script. `program` is the whole command line, every subcommand included.
///
/// # Errors
/// Standard output can't be written.
pub fn run(args: &CompletionsArgs, mut program: clap::Command) -> Result<(), CliError> {
    // Into memory first: the generator takes a reader that goes away for a defect of its own.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "bulla", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(CliError::failed(error.to_string())),
        _ => Ok(()),
    }
}
