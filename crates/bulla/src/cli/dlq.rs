//! `bulla dlq`: deals with dead letters by the rules of a file, over the admin socket. What is done with a message is
//! one unit of work of the queue manager: nothing is lost, and nothing comes twice.

use super::{CliError, DATA_DEFAULT, EXIT_UNREACHABLE};
use crate::admin;
use crate::catalog::DeadLetter;
use crate::catalog::system_queues::DEAD_LETTER_QUEUE;
use crate::dead_letters::rules::{Action, Rule, Rules, TEXT_BYTES_MAX};
use crate::mqsc::dead_letters::DEAD_LETTERS_MAX;
use crate::mqsc::reply::{Cell, Outcome, Reply, Row};
use clap::Args;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a handler that waits looks whether something has come.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Deal with dead letters by the rules of a file
#[derive(Args, Debug)]
pub struct DlqArgs {
    /// The rules
    #[arg(long, value_name = "FILE")]
    pub rules: PathBuf,
    /// The queue, whatever INPUTQ says; without either the queue manager's DEADQ
    #[arg(long)]
    pub queue: Option<String>,
    /// Say what would be done with what is there, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Look once, whatever WAIT says
    #[arg(long)]
    pub once: bool,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// What was tried with one message.
#[derive(Debug, Default)]
struct Tried {
    /// Attempts, by the rule's line.
    attempts: HashMap<usize, u32>,
    /// Not before then again.
    again_at: Option<Instant>,
    /// What is not to be said twice.
    said: Option<usize>,
}

/// Reads the rules and carries them out.
///
/// # Errors
/// The rules are wrong, the queue manager is not there, or it refused.
pub fn run(args: &DlqArgs) -> Result<(), CliError> {
    let rules = read(&args.rules)?;
    let queue = match args.queue.clone().or_else(|| rules.queue.clone()) {
        Some(queue) => queue,
        None => dead_letter_queue(&args.data)?,
    };
    let mut tried: BTreeMap<u64, Tried> = BTreeMap::new();
    // One look sees so many; the next one goes on behind them, so that none waits behind those that stay.
    let mut after = 0;
    loop {
        let letters = dead_letters(&args.data, &queue, after)?;
        let next = match letters.last() {
            Some(last) if letters.len() >= DEAD_LETTERS_MAX => last.number,
            _ => u64::MAX,
        };
        let there: HashSet<u64> = letters.iter().map(|letter| letter.number).collect();
        tried.retain(|number, _| !(after < *number && *number <= next) || there.contains(number));
        after = if next == u64::MAX { 0 } else { next };
        for letter in &letters {
            let known = tried.entry(letter.number).or_default();
            if args.dry_run {
                println!("{}", would(letter, rules.decide(letter, |_| 0)));
            } else {
                deal(args, &queue, &rules, letter, known)?;
            }
        }
        if args.dry_run || args.once || rules.once {
            if after == 0 {
                return Ok(());
            }
            continue;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn read(path: &Path) -> Result<Rules, CliError> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| CliError::file(path, error))?;
    // One byte beyond the limit is enough for the parser to refuse it.
    file.take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(|error| CliError::file(path, error))?;
    Rules::parse(&text)
        .map_err(|error| CliError::usage(format!("{}:{}: {}", path.display(), error.line, error.message)))
}

/// Does what the first rule says that has something left to do.
fn deal(args: &DlqArgs, queue: &str, rules: &Rules, letter: &DeadLetter, known: &mut Tried) -> Result<(), CliError> {
    let now = Instant::now();
    if known.again_at.is_some_and(|at| now < at) {
        return Ok(());
    }
    let attempts = |line| known.attempts.get(&line).copied().unwrap_or(0);
    let Some(rule) = rules.decide(letter, attempts) else { return Ok(()) };
    let (what, options) = match &rule.action {
        Action::Ignore => {
            if known.said.replace(rule.line) != Some(rule.line) {
                crate::note!("{}: ignored, line {}", said(letter), rule.line);
            }
            return Ok(());
        }
        Action::Discard => ("discarded".to_owned(), "DISCARD".to_owned()),
        Action::Forward { to, label } => {
            (format!("moved to {to}"), format!("TO('{to}') HEADER({})", if *label { "YES" } else { "NO" }))
        }
        Action::Retry { .. } => (format!("put back on {}", letter.queue), String::new()),
    };
    let command = format!("REPLAY QLOCAL('{queue}') MSGNUM({}) {options}", letter.number);
    let reply = answer(&args.data, &command)?;
    let why = match &reply.outcome {
        Outcome::Done { message, .. } if message.starts_with("1 ") => {
            crate::note!("{}: {what}, line {}", said(letter), rule.line);
            return Ok(());
        }
        Outcome::Done { warnings, .. } => warnings.join("; "),
        // A queue that is not there, say: an attempt like any other, and the letters behind it are dealt with.
        Outcome::Failed(failure) => failure.to_string(),
        Outcome::Rows(_) | Outcome::Help(_) => String::new(),
    };
    *known.attempts.entry(rule.line).or_default() += 1;
    known.again_at = Some(now + Duration::from_secs(rules.retry_seconds.into()));
    crate::warning!("{}: not {what}, line {}: {}", said(letter), rule.line, why);
    Ok(())
}

/// A line of the dry run.
fn would(letter: &DeadLetter, rule: Option<&Rule>) -> String {
    let what = match rule.map(|rule| (&rule.action, rule.line)) {
        None => "no rule fits: it stays".to_owned(),
        Some((Action::Ignore, line)) => format!("line {line}: it stays"),
        Some((Action::Discard, line)) => format!("line {line}: it is discarded"),
        Some((Action::Forward { to, .. }, line)) => format!("line {line}: it goes to {to}"),
        Some((Action::Retry { times }, line)) => format!("line {line}: it is put back, up to {times} attempts"),
    };
    format!("{}: {what}", said(letter))
}

fn said(letter: &DeadLetter) -> String {
    let reason = letter.reason.map(|reason| format!(" {reason}")).unwrap_or_default();
    format!("message {} of {}{reason} cause={}", letter.number, letter.queue, letter.cause)
}

fn dead_letter_queue(data: &Path) -> Result<String, CliError> {
    let rows = rows(ask(data, "DISPLAY QMGR DEADQ")?)?;
    let queue = rows.first().map(|row| text(row, "DEADQ")).unwrap_or_default();
    if queue.is_empty() {
        let hint = format!("name a queue by --queue, or ALTER QMGR DEADQ({DEAD_LETTER_QUEUE})");
        return Err(CliError::failed("the queue manager has no dead-letter queue").hint(hint));
    }
    Ok(queue)
}

fn dead_letters(data: &Path, queue: &str, after: u64) -> Result<Vec<DeadLetter>, CliError> {
    let after = if after == 0 { String::new() } else { format!("AFTER({after})") };
    let rows = rows(ask(data, &format!("DISPLAY DEADMSG('{queue}') ALL {after}"))?)?;
    let letter = |row: &Row| DeadLetter {
        number: number(row, "MSGNUM").unwrap_or_default(),
        reason: number(row, "REASON").and_then(|code| u16::try_from(code).ok()),
        cause: text(row, "CAUSE"),
        details: text(row, "DETAILS"),
        queue: text(row, "DESTQ"),
        manager: text(row, "DESTQM"),
        user: text(row, "USERID"),
        persistent: text(row, "PERSIST") == "YES",
        bytes: number(row, "BYTES").unwrap_or_default(),
        put_ms: 0,
    };
    Ok(rows.iter().map(letter).collect())
}

/// The answer to a command that has to be carried out.
fn ask(data: &Path, command: &str) -> Result<Reply, CliError> {
    let reply = answer(data, command)?;
    match &reply.outcome {
        Outcome::Failed(failure) => {
            Err(CliError { hint: failure.hint.clone(), ..CliError::new(reply.exit_code(), failure.to_string()) })
        }
        _ => Ok(reply),
    }
}

fn answer(data: &Path, command: &str) -> Result<Reply, CliError> {
    let replies = admin::request(data, command)
        .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?;
    replies.into_iter().next().ok_or_else(|| CliError::failed("the queue manager did not answer"))
}

fn rows(reply: Reply) -> Result<Vec<Row>, CliError> {
    match reply.outcome {
        Outcome::Rows(rows) => Ok(rows),
        _ => Err(CliError::failed("the queue manager answered something else")),
    }
}

fn cell<'a>(row: &'a Row, keyword: &str) -> Option<&'a Cell> {
    row.cells.iter().find(|(known, _)| known == keyword).map(|(_, cell)| cell)
}

fn text(row: &Row, keyword: &str) -> String {
    match cell(row, keyword) {
        Some(Cell::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

fn number(row: &Row, keyword: &str) -> Option<u64> {
    match cell(row, keyword) {
        Some(Cell::Number(number)) => Some(*number),
        _ => None,
    }
}
