//! `bulla journal check`: reads every record of a journal that no process has open.

use super::{CliError, EXIT_DAMAGED};
use crate::folders::JOURNAL;
use bulla_queue::CheckReport;
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
    let report =
        bulla_queue::check(&folder).map_err(|error| CliError::failed(format!("{}: {error}", folder.display())))?;
    print(&report);
    if report.damages_count == 0 {
        return Ok(());
    }
    Err(CliError::new(EXIT_DAMAGED, format!("{} damaged places", report.damages_count)))
}

fn print(report: &CheckReport) {
    println!("segments  {}", report.segments);
    println!("batches   {}", report.batches);
    println!("records   {}", report.records);
    println!(
        "bodies    {} with {} bytes, those of messages and definitions that are gone included",
        report.bodies, report.body_bytes
    );
    println!("queues    {}", report.queues);
    println!("messages  {}", report.messages);
    println!("notes     {}", report.notes);
    println!("objects   {}", report.objects);
    if let Some((start, end)) = report.extent {
        println!("extent    {start} to {end}");
    }
    println!("closed    {}", if report.clean { "in order" } else { "not in order: it runs, or it was killed" });
    if report.cut {
        println!("cut       a batch at the end was never confirmed; the next start drops it");
    }
    for damage in &report.damages {
        println!("damage    {damage}");
    }
}
