//! `bulla report`: what a capacity planner asks a running queue manager, and who answers for its algorithms.

mod algorithms;

use super::{CliError, DATA_DEFAULT, EXIT_REFUSED, EXIT_UNREACHABLE};
use crate::activity::{Activity, held_until};
use crate::admin;
use crate::calendar::moment_ms;
use crate::catalog::status::{CostSnapshot, PolicySnapshot, QueueSnapshot, Snapshot, TaskSnapshot};
use crate::cost_activity::CostActivity;
use crate::mqsc::meters::{FromRows, NotMeters};
use crate::mqsc::reply::{Cell, EXIT_DONE, Outcome, Row};
use crate::task_activity::TaskActivity;
use crate::traffic_activity::{PolicyActivity, QueueActivity};
use clap::{Args, Subcommand};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shortest `--interval`: below it the ends, which cut through calls, weigh too much.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Longest `--interval`; what is longer ago is asked for with `--from`.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Report what the queue manager did
#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(subcommand)]
    command: ReportCommand,
}

#[derive(Subcommand, Debug)]
enum ReportCommand {
    /// Rates, execution times and utilisation of the crypto devices, and whether another one is due
    ///
    /// Over the next ten seconds, unless another interval, two times of the last day, or everything since the start is
    /// asked for.
    Crypto(SpanArgs),
    /// How busy dispatchers, adapters, TLS, the journal and devices are, and what a request costs them
    ///
    /// Over the next ten seconds, unless another interval, two times of the last day, or everything since the start is
    /// asked for.
    Chinit(SpanArgs),
    /// Processor time of each role of the queue manager, what a message costs by role, and how far it adds up to the
    /// process
    ///
    /// Over the next ten seconds, unless another interval, two times of the last day, or everything since the start is
    /// asked for.
    Costs(SpanArgs),
    /// Rates, depths and times of the local queues, and puts that were refused
    ///
    /// Over the next ten seconds, unless another interval, two times of the last day, or everything since the start is
    /// asked for.
    Queues(SpanArgs),
    /// What protection does: rates, operations a message, hits of the key cache, time with devices, failures by cause
    ///
    /// Over the next ten seconds, unless another interval, two times of the last day, or everything since the start is
    /// asked for.
    Policies(SpanArgs),
    /// Which queues, messages, certificates and channels use what, and what of it is due by which date of CNSA 2.0 and
    /// NIST IR 8547
    ///
    /// Nothing is opened, and no private key is used.
    Algorithms(algorithms::AlgorithmsArgs),
}

#[derive(Args, Debug)]
struct SpanArgs {
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Wait so long between two looks: 10s, 5m, 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    interval: Duration,
    /// From this time on, 'YYYY-MM-DD HH:MM:SS', UTC
    #[arg(long, value_name = "TIME", conflicts_with_all = ["interval", "since_start"], value_parser = moment)]
    from: Option<Moment>,
    /// Until this time; now, if it is not given
    #[arg(long, value_name = "TIME", requires = "from", value_parser = moment)]
    to: Option<Moment>,
    /// Everything since it is counted
    #[arg(long, conflicts_with = "interval")]
    since_start: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// A time as AT takes it.
#[derive(Clone, Debug)]
struct Moment {
    text: String,
    unix_ms: u64,
}

fn moment(text: &str) -> Result<Moment, String> {
    let unix_ms = moment_ms(text).ok_or("expected 'YYYY-MM-DD HH:MM:SS', UTC")?;
    Ok(Moment { text: text.to_owned(), unix_ms })
}

fn interval(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit = match text.get(digits.len()..) {
        Some("" | "s") => 1,
        Some("m") => 60,
        Some("h") => 3600,
        _ => 0,
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).map(Duration::from_secs);
    seconds.filter(|time| (INTERVAL_MIN..=INTERVAL_MAX).contains(time)).ok_or_else(|| {
        format!("expected a time from {} s to {} s, as 10s or 5m", INTERVAL_MIN.as_secs(), INTERVAL_MAX.as_secs())
    })
}

/// Does what the arguments say.
///
/// # Errors
/// The queue manager was not reached, or keeps nothing of the time asked for.
pub fn run(args: &ReportArgs) -> Result<(), CliError> {
    let (json, table, is_json) = match &args.command {
        ReportCommand::Crypto(args) => {
            let activity = crypto(args)?;
            (activity.to_json(), activity.table(), args.json)
        }
        ReportCommand::Chinit(args) => {
            let activity = chinit(args)?;
            let name = queue_manager(&args.data)?;
            (activity.to_json(&name), activity.table(&name), args.json)
        }
        ReportCommand::Costs(args) => {
            let activity = costs(args)?;
            let name = queue_manager(&args.data)?;
            (activity.to_json(&name), activity.table(&name), args.json)
        }
        ReportCommand::Queues(args) => {
            let activity = queues(args)?;
            let name = queue_manager(&args.data)?;
            (activity.to_json(&name), activity.table(&name), args.json)
        }
        ReportCommand::Policies(args) => {
            let activity = policies(args)?;
            let name = queue_manager(&args.data)?;
            (activity.to_json(&name), activity.table(&name), args.json)
        }
        ReportCommand::Algorithms(args) => return algorithms::run(args),
    };
    let text = if is_json { format!("{json:#}\n") } else { table };
    // A reader that goes away (`| head`) is no failure.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn crypto(args: &SpanArgs) -> Result<Activity, CliError> {
    let take = |at: Option<&Moment>| snapshot(&args.data, "DISPLAY DEVSTATUS(*)", at, Snapshot::from_rows);
    match ends(args, take, |snapshot, asked_ms| snapshot.taken_ms = held_until(snapshot.taken_ms, asked_ms))? {
        (None, later) => Ok(Activity::since_start(&later)),
        (Some(earlier), later) => Activity::between(&earlier, &later).ok_or_else(no_interval),
    }
}

fn chinit(args: &SpanArgs) -> Result<TaskActivity, CliError> {
    let take = |at: Option<&Moment>| snapshot(&args.data, "DISPLAY TASKSTATUS", at, TaskSnapshot::from_rows);
    match ends(args, take, |snapshot, asked_ms| snapshot.taken_ms = held_until(snapshot.taken_ms, asked_ms))? {
        (None, later) => Ok(TaskActivity::since_start(&later)),
        (Some(earlier), later) => TaskActivity::between(&earlier, &later).ok_or_else(no_interval),
    }
}

fn costs(args: &SpanArgs) -> Result<CostActivity, CliError> {
    let take = |at: Option<&Moment>| snapshot(&args.data, "DISPLAY COSTSTATUS(*)", at, CostSnapshot::from_rows);
    match ends(args, take, |snapshot, asked_ms| snapshot.taken_ms = held_until(snapshot.taken_ms, asked_ms))? {
        (None, later) => Ok(CostActivity::since_start(&later)),
        (Some(earlier), later) => CostActivity::between(&earlier, &later).ok_or_else(no_interval),
    }
}

fn queues(args: &SpanArgs) -> Result<QueueActivity, CliError> {
    let take = |at: Option<&Moment>| snapshot(&args.data, "DISPLAY QSTATUS(*)", at, QueueSnapshot::from_rows);
    // Each minute is kept, whatever was done in it: it is the time that it says.
    match ends(args, take, |_, _| ())? {
        (None, later) => Ok(QueueActivity::since_start(&later)),
        (Some(earlier), later) => QueueActivity::between(&earlier, &later).ok_or_else(no_interval),
    }
}

fn policies(args: &SpanArgs) -> Result<PolicyActivity, CliError> {
    let take = |at: Option<&Moment>| snapshot(&args.data, "DISPLAY POLSTATUS(*)", at, PolicySnapshot::from_rows);
    // Where there were no policies, no row says when that was.
    let holds = |snapshot: &mut PolicySnapshot, asked_ms| snapshot.taken_ms = held_until(snapshot.taken_ms, asked_ms);
    let (earlier, later) = ends(args, take, holds)?;
    if later.policies.is_empty() {
        let hint = Some("SET POLICY gives a queue one".to_owned());
        return Err(CliError { hint, ..CliError::failed("there is no policy") });
    }
    match earlier {
        None => Ok(PolicyActivity::since_start(&later)),
        // The first policy was set in between.
        Some(earlier) if earlier.policies.is_empty() && earlier.taken_ms == 0 => {
            Ok(PolicyActivity::since_start(&later))
        }
        Some(earlier) => PolicyActivity::between(&earlier, &later).ok_or_else(no_interval),
    }
}

fn no_interval() -> CliError {
    CliError::failed("the end of the report is not later than its beginning")
}

/// The snapshots at both ends of what is asked for; no first one where that is the start. What was kept `holds` until a
/// time.
fn ends<T>(
    args: &SpanArgs,
    take: impl Fn(Option<&Moment>) -> Result<T, CliError>,
    holds: impl Fn(&mut T, u64),
) -> Result<(Option<T>, T), CliError> {
    if args.since_start {
        return Ok((None, take(None)?));
    }
    let Some(from) = &args.from else {
        let earlier = take(None)?;
        std::thread::sleep(args.interval);
        return Ok((Some(earlier), take(None)?));
    };
    let mut earlier = take(Some(from))?;
    holds(&mut earlier, from.unix_ms);
    let mut later = take(args.to.as_ref())?;
    if let Some(to) = &args.to {
        holds(&mut later, to.unix_ms);
    }
    Ok((Some(earlier), later))
}

/// Asks the running queue manager for what it counted, now or at a time.
fn snapshot<T>(
    data: &Path,
    command: &str,
    at: Option<&Moment>,
    read: fn(&[Row]) -> Result<T, NotMeters>,
) -> Result<T, CliError> {
    let at = at.map(|at| format!(" AT('{}')", at.text)).unwrap_or_default();
    read(&rows(data, &format!("{command}{at} ALL"))?).map_err(|error| CliError::failed(error.to_string()))
}

/// The running queue manager's name.
fn queue_manager(data: &Path) -> Result<String, CliError> {
    let rows = rows(data, "DISPLAY QMGR DESCR")?;
    let name = rows.first().and_then(|row| row.cells.iter().find(|(keyword, _)| keyword == "QMNAME"));
    match name {
        Some((_, Cell::Text(name))) => Ok(name.clone()),
        _ => Err(other_version()),
    }
}

/// Asks the running queue manager.
fn rows(data: &Path, command: &str) -> Result<Vec<Row>, CliError> {
    let replies = admin::request(data, command)
        .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?;
    match replies.into_iter().next().map(|reply| (reply.exit_code(), reply.outcome)) {
        Some((EXIT_DONE, Outcome::Rows(rows))) => Ok(rows),
        Some((_, Outcome::Failed(failure))) => {
            Err(CliError { hint: failure.hint.clone(), ..CliError::new(EXIT_REFUSED, failure.to_string()) })
        }
        _ => Err(other_version()),
    }
}

fn other_version() -> CliError {
    CliError::failed("the queue manager's answer is of another version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        report: ReportArgs,
    }

    fn parse(arguments: &[&str]) -> Result<SpanArgs, clap::Error> {
        let line = Line::try_parse_from(["report", "crypto"].iter().chain(arguments))?;
        let ReportCommand::Crypto(args) = line.report.command else { panic!("crypto was asked for") };
        Ok(args)
    }

    #[test]
    fn an_interval_is_a_number_with_a_unit() {
        for (text, seconds) in [("10s", 10), ("1", 1), ("5m", 300), ("1h", 3600)] {
            assert_eq!(interval(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0s", "500ms", "2h", "-1s", "s", "1 s", "99999999999999999999s", "1é"] {
            assert!(interval(text).is_err(), "{text}");
        }
        assert_eq!(parse(&[]).unwrap().interval, Duration::from_secs(10));
    }

    #[test]
    fn one_way_to_say_the_time_is_enough() {
        let time = "2026-11-22 06:30:00";
        assert!(parse(&["--from", time, "--to", time]).is_ok());
        assert!(parse(&["--since-start", "--json"]).is_ok());
        for arguments in [
            &["--to", time][..],
            &["--from", time, "--interval", "10s"],
            &["--from", time, "--since-start"],
            &["--since-start", "--interval", "10s"],
            &["--from", "yesterday"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn without_a_queue_manager_the_report_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let args = parse(&["--since-start", "--data", directory.path().to_str().unwrap()]).unwrap();
        assert_eq!(crypto(&args).unwrap_err().code, EXIT_UNREACHABLE);
        assert_eq!(chinit(&args).unwrap_err().code, EXIT_UNREACHABLE);
        assert_eq!(costs(&args).unwrap_err().code, EXIT_UNREACHABLE);
        let line = |what| ["report", what, "--since-start", "--data", directory.path().to_str().unwrap()];
        for what in ["queues", "policies"] {
            let report = Line::try_parse_from(line(what)).unwrap().report;
            assert_eq!(run(&report).unwrap_err().code, EXIT_UNREACHABLE, "{what}");
        }
    }

    #[test]
    fn every_report_takes_the_same_options() {
        for what in ["crypto", "chinit", "costs", "queues", "policies"] {
            assert!(Line::try_parse_from(["report", what, "--interval", "1s", "--json"]).is_ok());
            assert!(Line::try_parse_from(["report", what, "--from", "2026-11-22 06:30:00"]).is_ok());
            assert!(Line::try_parse_from(["report", what, "--since-start", "--interval", "1s"]).is_err());
        }
    }
}
