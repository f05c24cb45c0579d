//! `bulla seal inspect`: what an envelope says without opening it.

use super::CliError;
use clap::{Args, Subcommand};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Look at sealed messages
#[derive(Args, Debug)]
pub struct SealArgs {
    #[command(subcommand)]
    command: SealCommand,
}

#[derive(Subcommand, Debug)]
enum SealCommand {
    /// Say what an envelope says of itself: quality, algorithms, signer, recipients, binding, sizes
    Inspect {
        /// The sealed message, DER; `-` is standard input
        file: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Inspects.
///
/// # Errors
/// The file can't be read or holds no sealed message.
pub fn run(args: &SealArgs) -> Result<(), CliError> {
    let SealCommand::Inspect { file, json } = &args.command;
    let bytes = read(file).map_err(|error| CliError::file(file, error))?;
    let inspection = bulla_seal::inspect(&bytes)
        .map_err(|error| CliError::failed(format!("{}: {}: {error}", file.display(), error.cause())))?;
    if *json {
        println!("{}", inspection.to_json());
    } else {
        println!("{inspection}");
    }
    Ok(())
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(file)
}
