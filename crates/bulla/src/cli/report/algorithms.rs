//! `bulla report algorithms`: which queues, messages, certificates and channels use what, and what is due by when.

use super::{CliError, DATA_DEFAULT, EXIT_UNREACHABLE, other_version};
use crate::admin::{self, RequestError};
use crate::algorithms::certificates::Certificates;
use crate::algorithms::dates::Rules;
use crate::algorithms::{Fields, Report, Shown};
use crate::catalog::status::ALGORITHM_MESSAGES_DEFAULT;
use crate::cli::{EXIT_FAILED, EXIT_REFUSED, EXIT_WARNED};
use crate::mqsc::reply::{Outcome, Row};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

/// Whose dates count.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum By {
    /// NSA's Commercial National Security Algorithm Suite 2.0
    Cnsa,
    /// NIST IR 8547 and SP 800-131A
    Nist,
}

/// What is asked.
#[derive(Args, Debug)]
pub(super) struct AlgorithmsArgs {
    /// Exit with 9 where something is due in this year or before, and with 1 where not all of it could be seen
    #[arg(long, value_name = "YEAR", value_parser = clap::value_parser!(u16).range(2000..=2099))]
    due: Option<u16>,
    /// Count the dates of these rules alone
    #[arg(long, value_enum, requires = "due")]
    by: Option<By>,
    /// Look at so many messages of each queue; none is opened
    #[arg(long, value_name = "N", default_value_t = ALGORITHM_MESSAGES_DEFAULT)]
    messages: u64,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

/// Does what the arguments say.
///
/// # Errors
/// [`EXIT_WARNED`] where something is due, [`EXIT_FAILED`] where not all of it could be seen, both with `--due` alone;
/// [`EXIT_UNREACHABLE`] where the queue manager could not be asked, its own code where it refused.
pub(super) fn run(args: &AlgorithmsArgs) -> Result<(), CliError> {
    if !args.data.is_dir() {
        return Err(CliError::failed(format!("{}: there is no such data directory", args.data.display())));
    }
    let (shown, unasked) = match ask(args) {
        Ok(shown) => (Some(shown), None),
        // The certificates can be looked at all the same.
        Err(Unasked::Away(error)) => (None, Some(error)),
        Err(Unasked::Refused(error)) => return Err(error),
    };
    let report = Report::new(shown.as_ref(), Certificates::read(&args.data), SystemTime::now());
    let text = if args.json { format!("{:#}\n", report.to_json()) } else { report.page() };
    // A reader that goes away (`| head`) is no failure.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if let Some(error) = unasked {
        return Err(CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) });
    }
    let Some(year) = args.due else { return Ok(()) };
    let rules: &[Rules] = match args.by {
        Some(By::Cnsa) => &[Rules::Cnsa],
        Some(By::Nist) => &[Rules::Nist],
        None => &Rules::ALL,
    };
    match (report.due_by(year, rules), report.gaps()) {
        (0, 0) => Ok(()),
        (0, gaps) => {
            let gaps = if gaps == 1 { "1 thing was".to_owned() } else { format!("{gaps} things were") };
            let message = format!("nothing that was seen is due by {year}, and {gaps} not seen");
            let hint = "what is `not in the report` says why; --messages takes more of each queue";
            Err(CliError::new(EXIT_FAILED, message).hint(hint))
        }
        (1, _) => Err(CliError::new(EXIT_WARNED, format!("1 row is due by {year}"))),
        (due, _) => Err(CliError::new(EXIT_WARNED, format!("{due} rows are due by {year}"))),
    }
}

/// Why the queue manager has not answered.
enum Unasked {
    /// It was not reached.
    Away(RequestError),
    /// It did not do what it was asked.
    Refused(CliError),
}

/// Asks the queue manager that runs.
fn ask(args: &AlgorithmsArgs) -> Result<Shown, Unasked> {
    let (connections, no_connections) = match rows(args, "DISPLAY CONN(*) ALL") {
        Ok(rows) => (rows, None),
        // One thread that does not answer in time is no reason to say nothing.
        Err(Unasked::Refused(error)) => (Vec::new(), Some(error.message)),
        Err(away) => return Err(away),
    };
    let one = |command: &str| rows(args, command).map(|rows| rows.into_iter().next().unwrap_or_default());
    Ok(Shown {
        manager: one("DISPLAY QMGR ALL")?,
        initiator: one("DISPLAY CHINIT ALL")?,
        policies: rows(args, "DISPLAY POLICY(*) ALL")?,
        queues: rows(args, "DISPLAY QLOCAL(*)")?,
        channels: rows(args, "DISPLAY CHANNEL(*) ALL")?,
        messages: rows(args, &format!("DISPLAY ALGUSE(*) MESSAGES({}) ALL", args.messages))?,
        running: rows(args, "DISPLAY CHSTATUS(*) ALL")?,
        connections,
        no_connections,
    })
}

fn rows(args: &AlgorithmsArgs, command: &str) -> Result<Vec<Fields>, Unasked> {
    let replies = admin::request(&args.data, command).map_err(Unasked::Away)?;
    let [reply] = replies.as_slice() else { return Err(Unasked::Refused(other_version())) };
    match &reply.outcome {
        Outcome::Rows(rows) => Ok(rows.iter().map(Row::to_map).collect()),
        Outcome::Failed(failure) => Err(Unasked::Refused(CliError {
            hint: failure.hint.clone(),
            ..CliError::new(EXIT_REFUSED, failure.to_string())
        })),
        _ => Err(Unasked::Refused(other_version())),
    }
}
