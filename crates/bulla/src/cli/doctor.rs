//! `bulla doctor`: what is broken on the way from a put to its get, or on this machine; why, and the command that mends
//! it. Nothing is changed by asking.

use super::{CliError, DATA_DEFAULT, EXIT_FAILED, EXIT_UNREACHABLE, EXIT_WARNED};
use crate::admin::{self, RequestError};
use crate::catalog::diagnosis::{CHECKS, Check, Condition, DAYS_DEFAULT, DAYS_MAX, Diagnoses, Diagnosis, RUNS};
use crate::doctor::{enrolment, files, machine};
use crate::mqsc::reply::{Cell, Outcome, Row};
use crate::serve::Settings;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Say what is broken between a put and its get, or on this machine, and the command that mends it
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The queue, alias or remote queue whose messages are followed; without it, the machine and the queue manager
    queue: Option<String>,
    /// Follow the messages of this user alone
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Whether a payload of so many bytes fits, once it is sealed
    #[arg(long, value_name = "BYTES", requires = "queue")]
    bytes: Option<u64>,
    /// Tell of certificates and revocation lists that end within so many days
    #[arg(long, value_name = "DAYS", default_value_t = DAYS_DEFAULT, value_parser = clap::value_parser!(u64).range(..=DAYS_MAX))]
    days: u64,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

/// Does what the arguments say.
///
/// # Errors
/// [`EXIT_FAILED`] where something is broken, [`EXIT_WARNED`] where something should be seen to, [`EXIT_UNREACHABLE`]
/// where the queue manager could not be asked, its own code where it refused.
pub fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let (found, unasked) = match ask(args) {
        Ok(found) => (found, None),
        // Files and machine can be looked at all the same.
        Err(Unasked::Away(error)) if args.queue.is_none() => (alone(args, &error), Some(error)),
        Err(Unasked::Away(error)) => return Err(unreachable(&error)),
        Err(Unasked::Refused(error)) => return Err(error),
    };
    let shown = if args.json { format!("{:#}\n", in_json(args, &found)) } else { page(args, &found) };
    // A reader that goes away (`| head`) is no failure.
    let _ = std::io::stdout().lock().write_all(shown.as_bytes());
    let count = |condition| found.iter().filter(|found| found.condition == condition).count();
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    match (count(Condition::Broken), count(Condition::Warning), unasked) {
        (broken @ 1.., ..) => Err(CliError::new(EXIT_FAILED, format!("{} broken", counted(broken, "thing")))),
        (0, _, Some(error)) => Err(unreachable(&error)),
        (0, warnings @ 1.., None) => Err(CliError::new(EXIT_WARNED, counted(warnings, "warning"))),
        (0, 0, None) => Ok(()),
    }
}

/// Why the queue manager has not answered.
enum Unasked {
    /// It was not reached.
    Away(RequestError),
    /// It did not do what it was asked.
    Refused(CliError),
}

fn unreachable(error: &RequestError) -> CliError {
    CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) }
}

/// Asks the queue manager that runs.
fn ask(args: &DoctorArgs) -> Result<Vec<Diagnosis>, Unasked> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let mut command = match &args.queue {
        Some(queue) => format!("CHECK QUEUE({})", quoted(queue)),
        None => "CHECK QMGR".to_owned(),
    };
    let _ = write!(command, " DAYS({})", args.days);
    if let Some(user) = &args.user {
        let _ = write!(command, " USER({})", quoted(user));
    }
    if let Some(bytes) = args.bytes {
        let _ = write!(command, " BYTES({bytes})");
    }
    let replies = admin::request(&args.data, &command).map_err(Unasked::Away)?;
    let not_understood = || Unasked::Refused(CliError::failed("the queue manager's answer is of another version"));
    let [reply] = replies.as_slice() else { return Err(not_understood()) };
    match &reply.outcome {
        Outcome::Rows(rows) => {
            let mut found = rows.iter().map(of_row).collect::<Option<Vec<_>>>().ok_or_else(not_understood)?;
            found.iter_mut().filter(|found| *found.check == RUNS).for_each(compare_versions);
            Ok(found)
        }
        Outcome::Failed(failure) => Err(Unasked::Refused(CliError {
            code: reply.exit_code(),
            message: failure.to_string(),
            hint: failure.hint.clone(),
        })),
        _ => Err(not_understood()),
    }
}

/// A queue manager that goes on with an older program than this one is to be started again.
fn compare_versions(runs: &mut Diagnosis) {
    let own = env!("CARGO_PKG_VERSION");
    if !runs.details.ends_with(&format!("version {own}")) {
        runs.condition = Condition::Warning;
        let _ = write!(runs.details, ", and this program is version {own}");
    }
}

/// A row of the answer; none where its check is of another version.
fn of_row(row: &Row) -> Option<Diagnosis> {
    let cell = |keyword: &str| row.cells.iter().find(|(name, _)| name == keyword).map(|(_, cell)| cell);
    let text = |keyword: &str| match cell(keyword) {
        Some(Cell::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let mend = match cell("MEND") {
        Some(Cell::List(list)) => list.clone(),
        Some(Cell::Text(one)) => vec![one.clone()],
        _ => Vec::new(),
    };
    Some(Diagnosis {
        check: CHECKS.iter().copied().find(|check| check.name == text("CHECK"))?,
        condition: Condition::ALL.into_iter().find(|condition| condition.word() == text("RESULT"))?,
        about: text("ABOUT"),
        cause: text("CAUSE"),
        details: text("DETAILS"),
        mend,
    })
}

/// What can be seen without a queue manager.
fn alone(args: &DoctorArgs, error: &RequestError) -> Vec<Diagnosis> {
    let mut found = Diagnoses::default();
    let now = SystemTime::now();
    found.push(Diagnosis {
        check: &RUNS,
        condition: Condition::Warning,
        about: String::new(),
        cause: String::new(),
        details: format!("{error}: what follows is of this program and of the files there"),
        mend: error.hint().filter(|_| matches!(error, RequestError::NotRunning { .. })).into_iter().collect(),
    });
    machine::process(&mut found);
    machine::lanes(&Settings::new(args.data.clone()).lanes, &mut found);
    files::look(&args.data, &mut found, now, Duration::from_secs(args.days * 24 * 3600), false);
    enrolment::look(&args.data, &mut found, None, args.user.as_deref(), now);
    let mut found = found.sorted();
    // What could not be asked is the first thing to know.
    found.sort_by_key(|found| *found.check != RUNS);
    found
}

/// Commands as they are typed here: the data directory is named where it is not the usual one.
fn mend(args: &DoctorArgs, command: &str) -> String {
    let is_default = args.data.as_os_str() == DATA_DEFAULT;
    match command.starts_with("bulla ") && !is_default && !command.contains(" --data ") && takes_data(command) {
        true => format!("{command} --data {}", crate::doctor::shell(&args.data.display().to_string())),
        false => command.to_owned(),
    }
}

/// Whether a command is about a data directory: those of clients are not.
fn takes_data(command: &str) -> bool {
    let verb = command.split(' ').nth(1).unwrap_or_default();
    ["mqsc", "cert", "key", "user", "start"].contains(&verb)
}

fn in_json(args: &DoctorArgs, found: &[Diagnosis]) -> Value {
    let rows = found.iter().map(|found| {
        let mend: Vec<String> = found.mend.iter().map(|command| mend(args, command)).collect();
        json!({
            "check": found.check.name,
            "looks_at": found.check.looks_at,
            "condition": found.condition.word(),
            "about": found.about,
            "cause": found.cause,
            "details": found.details,
            "mend": mend,
        })
    });
    let worst = found.iter().map(|found| found.condition).min().unwrap_or(Condition::Well);
    // What can't be seen from here is no fault.
    let worst = if worst == Condition::Unknown { Condition::Well } else { worst };
    json!({ "queue": args.queue, "user": args.user, "condition": worst.word(), "found": rows.collect::<Vec<_>>() })
}

/// A text of certificates and files, without what would steer a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

fn page(args: &DoctorArgs, found: &[Diagnosis]) -> String {
    let mut page = String::new();
    for (condition, head) in
        [(Condition::Broken, "broken"), (Condition::Warning, "warnings"), (Condition::Unknown, "not seen from here")]
    {
        let mut all = found.iter().filter(|found| found.condition == condition).peekable();
        if all.peek().is_some() {
            let _ = writeln!(page, "{head}");
        }
        for found in all {
            let _ = writeln!(page, "  {}", plain(&line(found)));
            for command in &found.mend {
                let _ = writeln!(page, "      {}", plain(&mend(args, command)));
            }
        }
    }
    let _ = writeln!(page, "well");
    for check in CHECKS.iter().copied().filter(|check| is_well(check, found)) {
        for found in found.iter().filter(|found| *found.check == *check && found.condition == Condition::Well) {
            let _ = writeln!(page, "  {}", plain(&line(found)));
        }
    }
    page
}

fn is_well(check: &Check, found: &[Diagnosis]) -> bool {
    found.iter().any(|found| found.check == check && found.condition == Condition::Well)
}

/// `SIGNER user orders: certificate-expired: …`
fn line(found: &Diagnosis) -> String {
    let about = if found.about.is_empty() { String::new() } else { format!(" {}", found.about) };
    let cause = if found.cause.is_empty() { String::new() } else { format!("{}: ", found.cause) };
    format!("{}{about}: {cause}{}", found.check.name, found.details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::diagnosis::{MODES, SIGNER};

    fn args(data: &str) -> DoctorArgs {
        DoctorArgs { queue: None, user: None, bytes: None, days: 30, json: false, data: data.into() }
    }

    #[test]
    fn a_command_names_the_data_directory_where_it_is_not_the_usual_one() {
        assert_eq!(mend(&args(DATA_DEFAULT), "bulla mqsc -c HELP"), "bulla mqsc -c HELP");
        assert_eq!(mend(&args("/a b"), "bulla mqsc -c HELP"), "bulla mqsc -c HELP --data \"/a b\"");
        assert_eq!(mend(&args("/a"), "bulla start --data /a"), "bulla start --data /a");
        assert_eq!(mend(&args("/a"), "chmod 600 /a/users"), "chmod 600 /a/users");
        assert_eq!(mend(&args("/a"), "bulla error list"), "bulla error list");
    }

    #[test]
    fn the_page_has_a_row_for_each_check() {
        let page = include_str!("../../../../docs/operating/doctor.md");
        let (of_queue, of_machine) = page.split_once("## Checks on the machine").unwrap();
        for check in CHECKS {
            let row = format!("| `{}` | {} |", check.name, check.looks_at);
            assert_eq!(of_queue.contains(&row), check.of_queue, "{row}");
            assert_eq!(of_machine.contains(&row), check.of_machine, "{row}");
        }
    }

    #[test]
    fn what_is_broken_is_read_first_with_its_command_and_steers_no_terminal() {
        let mut found = Diagnoses::default();
        found.well(&MODES, "bulla-data", "its owner's alone");
        found.push(Diagnosis {
            check: &SIGNER,
            condition: Condition::Broken,
            about: "user orders".into(),
            cause: "untrusted".into(),
            details: "no path for CN=\u{1b}[2J".into(),
            mend: vec!["bulla cert import \"<file>\" --ring orders --as trust".into()],
        });
        let page = page(&args(DATA_DEFAULT), &found.sorted());
        assert_eq!(
            page,
            "broken\n  SIGNER user orders: untrusted: no path for CN=?[2J\n      bulla cert import \"<file>\" --ring \
             orders --as trust\nwell\n  MODES bulla-data: its owner's alone\n"
        );
    }
}
