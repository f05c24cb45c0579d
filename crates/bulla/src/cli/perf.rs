//! `bulla perf` and `bulla plan`, from the side of the program: what the measuring crate needs of it.

use super::own_seal::{OwnSeal, OwnSealArgs};
use super::{CliError, EXIT_MISSED};
use crate::admin;
use crate::mqsc::Reply;
use crate::mqsc::reply::{Outcome, Row as Shown};
use bulla_amqp::{Payload, Symbol, Value};
use bulla_perf::error::{Error, Verdict};
use bulla_perf::host::{ClientSeal, Host, Row, Sealing};
pub use bulla_perf::perf::PerfArgs;
pub use bulla_perf::plan::PlanArgs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

    fn sealing(&self, ring: &Path) -> Result<Arc<dyn Sealing>, Error> {
        Ok(Arc::new(OwnRing(ring.to_owned())))
    }
}

/// A key ring of the one who measures.
struct OwnRing(PathBuf);

impl Sealing for OwnRing {
    fn link(&self, queue: &str, properties: &[(Symbol, Value)]) -> Result<Box<dyn ClientSeal>, Error> {
        // A slash tells a folder from a user's name.
        let ring = std::path::absolute(&self.0).unwrap_or_else(|_| self.0.clone());
        let args = OwnSealArgs {
            ring: Some(ring.display().to_string()),
            data: PathBuf::new(),
            passphrase_file: None,
            served_policy: Some(queue.to_owned()),
        };
        let seal = OwnSeal::open(&args, queue, properties);
        match seal.map_err(|error| Error::Broker(error.to_string()))? {
            Some(seal) => Ok(Box::new(LinkSeal(seal))),
            None => Err(Error::Broker(format!("{queue}: no key ring"))),
        }
    }
}

/// What one link's messages are sealed and opened with.
struct LinkSeal(OwnSeal);

impl ClientSeal for LinkSeal {
    fn seal(&mut self, message: &Payload) -> Result<Payload, Error> {
        self.0.seal(message).map_err(|error| Error::Wrong(error.to_string()))
    }

    fn open(&mut self, message: &Payload) -> Result<Payload, Error> {
        self.0.open_message(message).map_err(|unopened| Error::Wrong(unopened.error.to_string()))
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

/// Exit code of a measurement that a signal ended before it was complete, as shells have it for SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// Does what the arguments say.
///
/// # Errors
/// [`CliError`] with [`EXIT_MISSED`] where a goal was not held, and with its own code whatever ended the command.
pub fn run(args: &PerfArgs) -> Result<(), CliError> {
    ended(bulla_perf::perf::run(args, &this_program()?))
}

/// The same of `bulla plan`; a goal is a target rate.
///
/// # Errors
/// As [`run`].
pub fn plan(args: &PlanArgs) -> Result<(), CliError> {
    ended(bulla_perf::plan::run(args, &this_program()?))
}

fn this_program() -> Result<Program, CliError> {
    let program = std::env::current_exe().map_err(|error| CliError::failed(format!("this program: {error}")))?;
    Ok(Program(program))
}

fn ended(result: Result<Verdict, Error>) -> Result<(), CliError> {
    match result {
        Ok(Verdict::Done) => Ok(()),
        Ok(Verdict::Missed) => Err(CliError::new(EXIT_MISSED, "a goal was not held".to_owned())),
        Err(error @ Error::Interrupted) => Err(CliError::new(EXIT_INTERRUPTED, error.to_string())),
        Err(error @ Error::Usage(_)) => Err(CliError::usage(error.to_string())),
        Err(error) => Err(CliError::failed(error.to_string())),
    }
}
