//! `bulla reseal`: the messages of a queue are sealed anew under the policy in force, some at a time.
//!
//! The queue manager does it, by RESEAL commands, each of which is durable when it is answered. Here is the pace, and
//! what is looked at again. Ended in the middle, nothing is half done: the same command goes on.

use super::{CliError, DATA_DEFAULT, EXIT_REFUSED, EXIT_UNREACHABLE};
use crate::admin;
use crate::mqsc::RESEAL_MESSAGES_MAX;
use crate::mqsc::reply::{Outcome, Row};
use clap::Args;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Messages a second, unless `--rate` says otherwise.
const RATE_DEFAULT: u32 = 500;
/// Highest `--rate`.
const RATE_MAX: u32 = 1_000_000;
/// Parts of a second's messages that one command takes.
const PARTS_OF_SECOND: u64 = 10;
/// How often messages that were in use are looked at again, and after how long.
const ROUNDS_MAX: usize = 5;
const NEXT_ROUND_AFTER: Duration = Duration::from_millis(500);

/// Open the messages of a queue with keys that are here, and seal them anew under the policy in force
#[derive(Args, Debug)]
pub struct ResealArgs {
    /// The local queue
    queue: String,
    /// Which messages: `not-current`, which other keys open than those of the policy's recipients; `needs=KEY`, which
    /// the key with that serial number opens; or `all` that are sealed
    #[arg(long, value_name = "WHAT", default_value = "not-current", value_parser = Where::read)]
    r#where: Where,
    /// Open them with the ring of this user; without it with any ring here that has the key
    #[arg(long, value_name = "USER")]
    reader: Option<String>,
    /// Open them by this policy, where that in force has other algorithms or signers than they were sealed with
    #[arg(long, value_name = "POLICY")]
    former: Option<String>,
    /// Messages a second, at most
    #[arg(long, value_name = "N", default_value_t = RATE_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(RATE_MAX)))]
    rate: u32,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

/// Which messages.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Where {
    NotCurrent,
    Needs(String),
    All,
}

impl Where {
    fn read(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "not-current" => Ok(Self::NotCurrent),
            None if text == "all" => Ok(Self::All),
            Some(("needs", key)) if !key.is_empty() => Ok(Self::Needs(key.to_owned())),
            _ => Err("expected not-current, needs=KEY or all".to_owned()),
        }
    }
}

/// Has messages sealed anew until the end of the queue is reached.
///
/// # Errors
/// The queue manager is not reached or refused, or messages stay as they are.
pub fn run(args: &ResealArgs) -> Result<(), CliError> {
    let mut all = Totals::default();
    let ended = rounds(args, &mut all);
    // What was done before it was refused is done.
    if ended.is_ok() || all.sealed > 0 {
        println!("{}", all.text());
    }
    all.warnings.iter().for_each(|warning| eprintln!("bulla: warning: {warning}"));
    ended?;
    if all.left.busy == 0 && all.left.failed.is_empty() {
        return Ok(());
    }
    let error = CliError::new(EXIT_REFUSED, all.left.text());
    Err(error.hint("those in use can be sealed anew later; `bulla policy check` says of the others what is wrong"))
}

/// Round after round, while messages are in use.
fn rounds(args: &ResealArgs, all: &mut Totals) -> Result<(), CliError> {
    let began = Instant::now();
    for round in 1..=ROUNDS_MAX {
        let before = all.sealed;
        all.left = Left::default();
        one_round(args, began, all)?;
        // With `all` those that are done would be done again.
        if all.left.busy == 0 || args.r#where == Where::All || round == ROUNDS_MAX {
            break;
        }
        if all.sealed == before {
            thread::sleep(NEXT_ROUND_AFTER);
        }
    }
    Ok(())
}

/// From the front of the queue to its end.
fn one_round(args: &ResealArgs, began: Instant, all: &mut Totals) -> Result<(), CliError> {
    let mut after = String::new();
    loop {
        let row = ask(args, &after, all)?;
        all.add(&row);
        after = row.get("AFTER").and_then(Value::as_str).unwrap_or_default().to_owned();
        if after.is_empty() {
            return Ok(());
        }
        // What does not open takes time, too.
        let paced = Duration::from_secs_f64((all.sealed + all.tried) as f64 / f64::from(args.rate));
        thread::sleep(paced.saturating_sub(began.elapsed()));
    }
}

/// One command, and its row.
fn ask(args: &ResealArgs, after: &str, all: &mut Totals) -> Result<Map<String, Value>, CliError> {
    let replies = admin::request(&args.data, &command(args, after))
        .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?;
    let unclear = || CliError::failed("the queue manager's answer is of another version");
    let [reply] = replies.as_slice() else { return Err(unclear()) };
    all.warnings.extend(reply.warnings.iter().cloned());
    match &reply.outcome {
        Outcome::Rows(rows) => rows.first().map(Row::to_map).ok_or_else(unclear),
        Outcome::Failed(failure) => {
            Err(CliError { code: reply.exit_code(), message: failure.to_string(), hint: failure.hint.clone() })
        }
        _ => Err(unclear()),
    }
}

/// Names are as they were given: quoted they are neither folded to upper case nor read as anything else.
fn command(args: &ResealArgs, after: &str) -> String {
    let option = |word: &str, value: Option<&str>| {
        value.map_or_else(String::new, |value| format!(" {word}('{}')", value.replace('\'', "''")))
    };
    let select = match &args.r#where {
        Where::NotCurrent => String::new(),
        Where::All => " SELECT(ALL)".to_owned(),
        Where::Needs(key) => option("NEEDS", Some(key)),
    };
    let count = (u64::from(args.rate) / PARTS_OF_SECOND).clamp(1, RESEAL_MESSAGES_MAX);
    let queue = args.queue.replace('\'', "''");
    let reader = option("READER", args.reader.as_deref());
    let former = option("FORMER", args.former.as_deref());
    let after = option("AFTER", Some(after).filter(|after| !after.is_empty()));
    format!("RESEAL QLOCAL('{queue}') COUNT({count}){select}{reader}{former}{after}")
}

/// What was done by all commands.
#[derive(Debug, Default)]
struct Totals {
    sealed: u64,
    /// Messages that failed, in all rounds.
    tried: u64,
    old_keys: Vec<String>,
    new_keys: Vec<String>,
    signer: String,
    /// What the answers warn of, each once.
    warnings: BTreeSet<String>,
    left: Left,
}

/// What stays, of one round.
#[derive(Debug, Default)]
struct Left {
    busy: u64,
    clear: u64,
    failed: BTreeMap<String, u64>,
}

impl Totals {
    fn add(&mut self, row: &Map<String, Value>) {
        let number = |word: &str| row.get(word).and_then(Value::as_u64).unwrap_or_default();
        let list = |word: &str| -> Vec<String> {
            let values = row.get(word).and_then(Value::as_array).into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        self.sealed += number("SEALED");
        self.left.clear += number("CLEAR");
        self.tried += number("FAILED");
        self.left.busy += number("BUSY");
        for cause in list("CAUSES") {
            if let Some((cause, count)) = cause.rsplit_once(' ') {
                *self.left.failed.entry(cause.to_owned()).or_default() += count.parse::<u64>().unwrap_or_default();
            }
        }
        for key in list("OLDKEYS") {
            if !self.old_keys.contains(&key) {
                self.old_keys.push(key);
            }
        }
        self.new_keys = list("NEWKEYS");
        self.signer = row.get("SIGNER").and_then(Value::as_str).unwrap_or_default().to_owned();
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("{} sealed anew", messages(self.sealed))];
        if self.sealed > 0 {
            lines.extend(self.old_keys.iter().map(|key| format!("  opened before by {key}")));
            lines.extend(self.new_keys.iter().map(|key| format!("  opened now by    {key}")));
            if !self.signer.is_empty() {
                lines.push(format!("  signed by        {}, on behalf of those who had signed them", self.signer));
            }
        }
        if self.left.clear > 0 {
            lines.push(format!("  not sealed, and left so: {}", messages(self.left.clear)));
        }
        lines.join("\n")
    }
}

impl Left {
    fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.busy > 0 {
            parts.push(format!("{} in use", messages(self.busy)));
        }
        parts.extend(self.failed.iter().map(|(cause, count)| format!("{}: {cause}", messages(*count))));
        format!("these stay as they are: {}", parts.join(", "))
    }
}

fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::parse;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ResealArgs,
    }

    fn args(words: &[&str]) -> Result<ResealArgs, String> {
        let words = std::iter::once(&"reseal").chain(words);
        Cli::try_parse_from(words).map(|cli| cli.args).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_given_is_one_command_and_a_name_keeps_its_letters() {
        let name = "X'); CLEAR QLOCAL('KEEP";
        let args = args(&["orders", "--reader", name, "--where", "needs=0a", "--rate", "5"]).unwrap();
        let text = command(&args, "4.17");
        assert_eq!(
            text,
            "RESEAL QLOCAL('orders') COUNT(1) NEEDS('0a') READER('X''); CLEAR QLOCAL(''KEEP') AFTER('4.17')"
        );
        let read = parse::statements(&text);
        let [Ok(statement)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((statement.command.verb, statement.name.stem.as_str()), ("RESEAL", "orders"));
    }

    #[test]
    fn one_of_three_kinds_of_messages_is_meant() {
        for (text, expected) in
            [("not-current", Where::NotCurrent), ("all", Where::All), ("needs=0a", Where::Needs("0a".into()))]
        {
            assert_eq!(args(&["Q", "--where", text]).unwrap().r#where, expected);
        }
        for bad in ["", "needs", "needs=", "All", "key=0a"] {
            assert!(args(&["Q", "--where", bad]).is_err(), "{bad}");
        }
        assert!(args(&["Q", "--rate", "0"]).is_err());
    }
}
