//! `bulla report`: what a capacity planner asks a running queue manager.

use super::{CliError, DATA_DEFAULT, EXIT_REFUSED, EXIT_UNREACHABLE};
use crate::activity::{Activity, holds_until};
use crate::mqsc::meters::Snapshot;
use crate::mqsc::reply::{EXIT_DONE, Outcome};
use crate::mqsc::{admin, run::moment_ms};
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
    /// Over the next ten seconds, unless another interval, two times of the last day, or everything since the start is asked for.
    Crypto(CryptoArgs),
}

#[derive(Args, Debug)]
struct CryptoArgs {
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
    /// Everything since the devices count
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
    let ReportCommand::Crypto(args) = &args.command;
    let activity = crypto(args)?;
    let text = if args.json { format!("{:#}\n", activity.to_json()) } else { activity.table() };
    // A reader that goes away (`| head`) is no failure.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn crypto(args: &CryptoArgs) -> Result<Activity, CliError> {
    if args.since_start {
        return Ok(Activity::since_start(&snapshot(&args.data, None)?));
    }
    let (earlier, later) = match &args.from {
        Some(from) => {
            let mut earlier = snapshot(&args.data, Some(from))?;
            holds_until(&mut earlier, from.unix_ms);
            let mut later = snapshot(&args.data, args.to.as_ref())?;
            if let Some(to) = &args.to {
                holds_until(&mut later, to.unix_ms);
            }
            (earlier, later)
        }
        None => {
            let earlier = snapshot(&args.data, None)?;
            std::thread::sleep(args.interval);
            (earlier, snapshot(&args.data, None)?)
        }
    };
    Activity::between(&earlier, &later)
        .ok_or_else(|| CliError::failed("the end of the report is not later than its beginning"))
}

/// Asks the running queue manager.
fn snapshot(data: &Path, at: Option<&Moment>) -> Result<Snapshot, CliError> {
    let at = at.map(|at| format!(" AT('{}')", at.text)).unwrap_or_default();
    let replies = admin::request(data, &format!("DISPLAY DEVSTATUS(*){at} ALL"))
        .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?;
    match replies.first().map(|reply| (&reply.outcome, reply.exit_code())) {
        Some((Outcome::Rows(rows), EXIT_DONE)) => {
            Snapshot::from_rows(rows).map_err(|error| CliError::failed(error.to_string()))
        }
        Some((Outcome::Failed(failure), _)) => {
            Err(CliError { hint: failure.hint.clone(), ..CliError::new(EXIT_REFUSED, failure.to_string()) })
        }
        _ => Err(CliError::failed("the queue manager's answer is of another version")),
    }
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

    fn parse(arguments: &[&str]) -> Result<CryptoArgs, clap::Error> {
        let line = Line::try_parse_from(["report", "crypto"].iter().chain(arguments))?;
        let ReportCommand::Crypto(args) = line.report.command;
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
    }
}
