//! `bulla manual`: the pages that `man` shows.

use super::CliError;
use clap::Args;
use std::path::PathBuf;

/// Write a manual page for each command into a directory, for `man`
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// The directory; made where it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the pages. `program` is the whole command line, every subcommand included.
///
/// # Errors
/// A page can't be written.
pub fn run(args: &ManualArgs, program: clap::Command) -> Result<(), CliError> {
    let directory = &args.directory;
    let written = std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(program, directory));
    written.map_err(|error| CliError::file(directory, error))
}
