//! `bulla perf`, from the side of the program: what the measuring crate needs of it.

use super::{CliError, EXIT_MISSED};
use crate::mqsc::reply::{Outcome, Row as Shown};
use crate::mqsc::{Reply, admin};
use bulla_perf::error::{Error, Verdict};
use bulla_perf::host::{Host, Row};
pub use bulla_perf::perf::PerfArgs;
use std::path::{Path, PathBuf};

/// This program.
struct Program(PathBuf);

impl Host for Program {
    fn program(&self) -> &Path {
        &self.0
    }

    fn display(&self, data: &Path, command: &str) -> Result<Vec<Row>, Error> {
        match carry_out(data, command)?.into_iter().next().map(|reply| reply.outcome) {
            Some(Outcome::Rows(rows)) => Ok(rows.iter().map(Shown::to_map).collect()),
            _ => Err(Error::Manager(format!("{command} gave no rows"))),
        }
    }

    fn command(&self, data: &Path, commands: &str) -> Result<(), Error> {
        carry_out(data, commands).map(drop)
    }
}

/// The answers, unless one is a refusal.
fn carry_out(data: &Path, commands: &str) -> Result<Vec<Reply>, Error> {
    let replies = admin::request(data, commands).map_err(|error| Error::Manager(error.to_string()))?;
    match replies.iter().find(|reply| matches!(reply.outcome, Outcome::Failed(_))) {
        Some(failed) => Err(Error::Manager(failed.diagnostics(None).join("; "))),
        None => Ok(replies),
    }
}

/// Does what the arguments say.
///
/// # Errors
/// [`CliError`] with [`EXIT_MISSED`] where a goal was not held, and with its own code whatever ended the command.
pub fn run(args: &PerfArgs) -> Result<(), CliError> {
    ended(bulla_perf::perf::run(args, &this_program()?))
}

fn this_program() -> Result<Program, CliError> {
    let program = std::env::current_exe().map_err(|error| CliError::failed(format!("this program: {error}")))?;
    Ok(Program(program))
}

fn ended(result: Result<Verdict, Error>) -> Result<(), CliError> {
    match result {
        Ok(Verdict::Done) => Ok(()),
        Ok(Verdict::Missed) => Err(CliError::new(EXIT_MISSED, "a goal was not held".to_owned())),
        Err(error @ Error::Usage(_)) => Err(CliError::usage(error.to_string())),
        Err(error) => Err(CliError::failed(error.to_string())),
    }
}
