//! `bulla journal check`: reads every record of a journal that nobody has open.

use super::{CliError, EXIT_DAMAGED};
use crate::serve::JOURNAL;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Look after the journal
#[derive(Args, Debug)]
pub struct JournalArgs {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Subcommand, Debug)]
enum JournalCommand {
    /// Check every record, header and body, and change nothing
    Check {
        /// The data directory
        #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
        data: PathBuf,
    },
}

/// Checks.
///
/// # Errors
/// The journal is damaged or can't be read.
pub fn run(args: &JournalArgs) -> Result<(), CliError> {
    let JournalCommand::Check { data } = &args.command;
    let folder = data.join(JOURNAL);
    let report = bulla_queue::check(&folder).map_err(|error| CliError::failed(format!("{}: {error}", folder.display())))?;
    println!("{report}");
    if report.is_sound() {
        return Ok(());
    }
    Err(CliError::new(EXIT_DAMAGED, "the journal is damaged".to_owned()))
}
