//! `bulla policy`: what a policy would do, before a message finds out; policies of IBM MQ.

mod import;

use super::{CliError, DATA_DEFAULT, EXIT_FAILED, EXIT_UNREACHABLE};
use crate::admin;
use crate::mqsc::parse;
use crate::mqsc::reply::Outcome;
use bulla_perf::configuration::{Configuration, Quality, Reuse};
use bulla_perf::plan::{self, Prediction, Profile, command, text};
use bulla_perf::report::number::number;
use bulla_seal::certificate::{KeySpec, Strength};
use bulla_table::{Column, Table};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// Look after protection policies
#[derive(Args, Debug)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Subcommand, Debug)]
enum PolicyCommand {
    /// Try a policy and change nothing: keys, certificates, lengths, cost, and what becomes of the messages now on the
    /// queue
    Check(CheckArgs),
    /// Take over policies of IBM MQ, from what `dspmqspl -export`, `dspmqspl` or DISPLAY POLICY wrote; without --apply
    /// write the commands alone
    Import(import::ImportArgs),
}

/// What is tried.
#[derive(Args, Debug)]
struct CheckArgs {
    /// The queue or alias whose policy it is
    queue: String,
    /// Try such a policy instead of the one that is set: attributes as SET POLICY takes them
    #[arg(long, value_name = "ATTRIBUTES")]
    with: Option<String>,
    /// Look at so many messages of the queue; each encrypted one takes a private-key operation for each reader
    #[arg(long, value_name = "N", default_value_t = crate::catalog::findings::MESSAGES_DEFAULT as u64)]
    messages: u64,
    /// Payload of the messages whose cost is predicted, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    bytes: u64,
    /// The profile that costs come from; without it that of this machine, which `bulla plan calibrate` makes
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// As JSON: the rows of CHECK POLICY, and the prediction
    #[arg(long)]
    json: bool,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

/// Messages under way at once in the stream whose cost is predicted: enough to keep the cores busy.
const IN_FLIGHT: u32 = 64;

type Fields = Map<String, Value>;

/// Does what the arguments say.
///
/// # Errors
/// The queue manager is not there or refused; [`EXIT_FAILED`] where something would not work.
pub fn run(args: &PolicyArgs) -> Result<(), CliError> {
    match &args.command {
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::Import(args) => import::run(args),
    }
}

fn check(args: &CheckArgs) -> Result<(), CliError> {
    let rows = ask(args)?;
    let profile = command::read(args.profile.as_deref()).map_err(|error| error.to_string());
    let cost = profile.as_ref().map_err(Clone::clone).and_then(|profile| cost(args, profile, &rows));
    let sharing = Sharing::of(profile.as_ref().ok(), &rows);
    let shown = match args.json {
        true => {
            let (prediction, why) = match &cost {
                Ok(prediction) => (json!(prediction), Value::Null),
                Err(why) => (Value::Null, json!(why)),
            };
            let rows: Vec<Value> = rows.iter().map(in_lower_case).collect();
            format!("{:#}\n", json!({ "check": rows, "cost": prediction, "no_cost": why, "sign_batch": sharing }))
        }
        false => page(&rows, &cost, sharing.as_ref()),
    };
    // A reader that goes away (`| head`) is no failure.
    let _ = std::io::stdout().lock().write_all(shown.as_bytes());
    match of(&rows, "PROBLEM").count() {
        0 => Ok(()),
        1 => Err(CliError::new(EXIT_FAILED, format!("{}: 1 problem", args.queue))),
        count => Err(CliError::new(EXIT_FAILED, format!("{}: {count} problems", args.queue))),
    }
}

fn ask(args: &CheckArgs) -> Result<Vec<Fields>, CliError> {
    let quoted = args.queue.replace('\'', "''");
    let with = args.with.as_deref().unwrap_or_default();
    let command = format!("CHECK POLICY('{quoted}') MESSAGES({}) {with}", args.messages);
    // It is this command alone that changes nothing.
    let only_one = || CliError::usage("--with takes the attributes of one SET POLICY, and no further command");
    if parse::statements(&command).len() != 1 {
        return Err(only_one());
    }
    let replies = admin::request(&args.data, &command)
        .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?;
    let [reply] = replies.as_slice() else { return Err(only_one()) };
    match &reply.outcome {
        Outcome::Rows(rows) => Ok(rows.iter().map(crate::mqsc::reply::Row::to_map).collect()),
        Outcome::Failed(failure) => {
            Err(CliError { code: reply.exit_code(), message: failure.to_string(), hint: failure.hint.clone() })
        }
        _ => Err(CliError::usage("--with takes the attributes of SET POLICY")),
    }
}

/// A row as JSON spells it.
fn in_lower_case(row: &Fields) -> Value {
    row.iter().map(|(keyword, value)| (keyword.to_ascii_lowercase(), value.clone())).collect()
}

/// The rows that are about one kind of thing.
fn of<'a>(rows: &'a [Fields], what: &'a str) -> impl Iterator<Item = &'a Fields> {
    rows.iter().filter(move |row| text_of(row, "CHECK") == what)
}

fn text_of<'a>(row: &'a Fields, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number_of(row: &Fields, key: &str) -> u64 {
    row.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn list_of<'a>(row: &'a Fields, key: &str) -> Vec<&'a str> {
    row.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a message costs, or why that can't be said.
fn cost(args: &CheckArgs, profile: &Profile, rows: &[Fields]) -> Result<Prediction, String> {
    let policy = of(rows, "POLICY").next().ok_or("there is no policy")?;
    let quality = quality(policy);
    let signing = of(rows, "USER").map(|row| text_of(row, "SEALKEY"));
    let wrapping = of(rows, "RECIP").map(|row| text_of(row, "KEY"));
    let key = wrapping.chain(signing).find(|key| !key.is_empty()).unwrap_or_default();
    if quality != Quality::None && key.is_empty() {
        return Err("no user here has a key that fits".to_owned());
    }
    let reuse = match policy.get("KEYREUSE") {
        Some(Value::Number(count)) => {
            Reuse::Times(count.as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0))
        }
        Some(Value::String(word)) if word == "UNLIMITED" => Reuse::Unlimited,
        _ => Reuse::Times(0),
    };
    let configuration = Configuration {
        quality,
        key: key.to_owned(),
        reuse,
        sign_batch: if quality.signs() { sign_batch(policy) } else { 1 },
        recipients: u32::try_from(number_of(policy, "RECIPS")).unwrap_or(u32::MAX).max(1),
        bytes: args.bytes,
        in_flight: IN_FLIGHT,
        ..Configuration::default()
    };
    plan::predict(profile, &configuration).map_err(|error| error.to_string())
}

/// What a list of recipients of both kinds amounts to.
fn post_quantum(policy: &Fields) -> Option<String> {
    let (all, modern) = (number_of(policy, "RECIPS"), number_of(policy, "PQRECIPS"));
    policy.get("PQRECIPS")?;
    Some(match text_of(policy, "WEAKEST") {
        "" => format!("PQC({}): {modern} of {all} recipients by ML-KEM", text_of(policy, "PQC")),
        weakest => format!(
            "PQC({}): {modern} of {all} recipients by ML-KEM; each opens a message alone, so it is as strong as \
             {weakest}",
            text_of(policy, "PQC")
        ),
    })
}

fn quality(policy: &Fields) -> Quality {
    match text_of(policy, "QUALITY").split(' ').next() {
        Some("INTEGRITY") => Quality::Integrity,
        Some("PRIVACY") => Quality::Privacy,
        Some("CONFIDENTIALITY") => Quality::Confidentiality,
        _ => Quality::None,
    }
}

fn sign_batch(policy: &Fields) -> u32 {
    u32::try_from(number_of(policy, "SIGNBATCH")).unwrap_or(u32::MAX).max(1)
}

/// What SIGNBATCH saves and costs.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sharing {
    /// Messages that one signature proves, at most.
    messages: u32,
    /// Processor time of a signature, microseconds: of the slowest key that signs here; none where no profile knows it.
    private_key_us: Option<f64>,
    /// A message's part of it in a full batch.
    full_batch_us: Option<f64>,
    /// Bytes by which a message that shares its signature is longer, at most.
    more_bytes: u64,
}

impl Sharing {
    /// None where nothing is signed.
    fn of(profile: Option<&Profile>, rows: &[Fields]) -> Option<Sharing> {
        let policy = of(rows, "POLICY").next().filter(|policy| quality(policy).signs())?;
        let signs = |row: &&Fields| text_of(row, "PUT") == "YES" && text_of(row, "SEALS") == "YES";
        let keys = of(rows, "USER").filter(signs).map(|row| text_of(row, "SEALKEY"));
        let times = keys.filter_map(|key| Some(profile?.cpu.get(key)?.sign?.alone));
        let private_key_us = times.max_by(f64::total_cmp);
        let messages = sign_batch(policy);
        Some(Sharing {
            messages,
            private_key_us,
            full_batch_us: private_key_us.map(|us| us / f64::from(messages)),
            more_bytes: number_of(policy, "BATCHBYTES"),
        })
    }

    /// In a line.
    fn line(&self) -> String {
        let Sharing { messages, private_key_us, full_batch_us, more_bytes } = *self;
        let mut line = match (messages, private_key_us, full_batch_us) {
            (1, Some(us), _) => {
                return format!(
                    "SIGNBATCH(1): a signature for each message; private-key time {} µs on this processor",
                    number(us)
                );
            }
            (1, ..) => return "SIGNBATCH(1): a signature for each message".to_owned(),
            (_, Some(alone), Some(full)) => format!(
                "SIGNBATCH({messages}): one signature for up to {messages} messages; private-key time a message {} µs \
                 alone, {} µs in a full batch, on this processor",
                number(alone),
                number(full)
            ),
            _ => format!("SIGNBATCH({messages}): one signature for up to {messages} messages"),
        };
        if more_bytes > 0 {
            let _ = write!(line, "; each carries up to {} bytes more", number(more_bytes as f64));
        }
        line
    }
}

fn page(rows: &[Fields], cost: &Result<Prediction, String>, sharing: Option<&Sharing>) -> String {
    let mut page = String::new();
    for policy in of(rows, "POLICY") {
        let state = if text_of(policy, "INFORCE") == "YES" { "as it is set" } else { "proposed" };
        let _ = writeln!(page, "{} for {}, {state}", text_of(policy, "QUALITY"), text_of(policy, "DEST"));
        let _ = writeln!(page, "  {}", text_of(policy, "COMMAND"));
        if let Some(line) = post_quantum(policy) {
            let _ = writeln!(page, "  {line}");
        }
        for left_out in list_of(policy, "LEFTOUT") {
            let _ = writeln!(page, "  left out: {left_out}");
        }
    }
    section(&mut page, "users", &["user", "put", "get", "seals with", "opens with"], of(rows, "USER").map(user));
    let names = of(rows, "RECIP").chain(of(rows, "SIGNER")).map(|row| {
        let missing = list_of(row, "MISSING");
        let missing = if missing.is_empty() { String::new() } else { format!("not with {}", missing.join("; ")) };
        let words = [text_of(row, "CHECK"), text_of(row, "DN"), text_of(row, "KEY")];
        let mut line: Vec<String> = words.map(str::to_owned).into();
        line.extend([strength(text_of(row, "KEY")), text_of(row, "NOTAFTER").to_owned()]);
        line.extend([list_of(row, "RINGS").join(", "), missing]);
        line
    });
    section(&mut page, "names of the policy", &["", "name", "key", "strength", "until", "with", ""], names);
    let trials = of(rows, "TRIAL").map(|row| {
        let words = [text_of(row, "BY"), text_of(row, "FOR"), text_of(row, "RESULT")];
        let mut line: Vec<String> = words.map(str::to_owned).into();
        line.push(why(row, "CAUSE", "DETAILS"));
        line
    });
    section(&mut page, "sealed and opened to see", &["sealed by", "opened for", "", ""], trials);
    let sizes = of(rows, "SIZE").map(|row| {
        let (payload, sealed) = (number_of(row, "PAYLOAD"), number_of(row, "SEALED"));
        vec![payload.to_string(), sealed.to_string(), format!("+{}", sealed.saturating_sub(payload))]
    });
    section(&mut page, "bytes", &["payload", "sealed", ""], sizes);
    for policy in of(rows, "POLICY").filter(|policy| policy.contains_key("MAXPAYLOAD")) {
        let _ = writeln!(page, "  the longest payload within MAXMSGL: {}", number_of(policy, "MAXPAYLOAD"));
    }
    page.push_str("\ncost\n");
    match cost {
        Ok(prediction) => text::prediction(prediction).lines().for_each(|line| {
            let _ = writeln!(page, "  {line}");
        }),
        Err(why) => {
            let _ = writeln!(page, "  not predicted: {why}");
        }
    }
    if let Some(sharing) = sharing {
        let _ = writeln!(page, "  {}", sharing.line());
    }
    for policy in of(rows, "POLICY") {
        let (looked, left) = (number_of(policy, "LOOKED"), number_of(policy, "LEFT"));
        let _ = write!(page, "\nmessages on the queue: {looked} looked at");
        page.push_str(&if left > 0 { format!(", {left} not\n") } else { "\n".to_owned() });
    }
    let fates = of(rows, "MESSAGES").map(|row| {
        let user = text_of(row, "USER");
        let user = if user.is_empty() { "(no user may get)" } else { user };
        let what = match text_of(row, "RESULT") {
            "OPENS" => "open",
            "CLEAR" => "are clear, and let through",
            "ERRORQ" => "go to the error queue",
            "NOTMINE" => "are for other readers",
            "FORM" => "have the right form",
            _ => "can't be opened now",
        };
        let first = format!("first: {}", number_of(row, "FIRST"));
        vec![user.to_owned(), number_of(row, "MSGS").to_string(), what.to_owned(), first, why(row, "CAUSE", "DETAILS")]
    });
    lines(&mut page, &["for", "messages", "", "", ""], fates.collect());
    let problems: Vec<Vec<String>> = of(rows, "PROBLEM").map(|row| vec![text_of(row, "DETAILS").to_owned()]).collect();
    if problems.is_empty() {
        page.push_str("\nno problem found\n");
    }
    section(&mut page, "problems", &[], problems.into_iter());
    page
}

fn user(row: &Fields) -> Vec<String> {
    let side = |verb: &str, may: &str| {
        let says = |what: &str| text_of(row, &format!("{verb}{what}")).to_owned();
        match (says("S").as_str(), says("DN").as_str()) {
            ("YES", "") => "yes".to_owned(),
            ("YES", dn) => {
                let key = says("KEY");
                let strength = match strength(&key).as_str() {
                    "" => String::new(),
                    strength => format!(" ({strength})"),
                };
                format!("{dn}, {key}{strength}, until {}", says("UNTIL"))
            }
            ("NO", _) if text_of(row, may) == "YES" => format!("no: {}", says("CAUSE")),
            _ => "-".to_owned(),
        }
    };
    let sides = match text_of(row, "RING") {
        "NO" => [format!("no: {}", text_of(row, "CAUSE")), String::new()],
        _ => [side("SEAL", "PUT"), side("OPEN", "GET")],
    };
    let words = [text_of(row, "USER"), text_of(row, "PUT"), text_of(row, "GET")];
    words.map(str::to_owned).into_iter().chain(sides).collect()
}

/// How strong a key is, and which keys are alike (NIST SP 800-57 part 1).
fn strength(key: &str) -> String {
    let known = key.parse::<KeySpec>().ok().and_then(|spec| Strength::of(spec.kind(), spec.bits()));
    known.map_or_else(String::new, |strength| strength.to_string())
}

fn why(row: &Fields, cause: &str, details: &str) -> String {
    match text_of(row, cause) {
        "" => String::new(),
        cause => format!("{cause}: {}", text_of(row, details)),
    }
}

/// A heading and a table; nothing where there are no lines.
fn section(page: &mut String, name: &str, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        let _ = writeln!(page, "\n{name}");
        lines(page, heads, rows);
    }
}

/// A table below its heading.
fn lines(page: &mut String, heads: &[&str], rows: Vec<Vec<String>>) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    if columns == 0 {
        return;
    }
    let mut table = Table::new(vec![Column::left(); columns]).indented();
    if !heads.is_empty() {
        table.row(heads);
    }
    rows.iter().for_each(|row| table.row(row));
    page.push_str(&table.text());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(quality: &str, sign_batch: u32, more: &[u64]) -> Vec<Fields> {
        let mut policy = json!({ "CHECK": "POLICY", "QUALITY": quality, "SIGNBATCH": sign_batch });
        if let [bytes] = more {
            policy["BATCHBYTES"] = json!(bytes);
        }
        let user =
            |name, put, key| json!({ "CHECK": "USER", "USER": name, "PUT": put, "SEALS": "YES", "SEALKEY": key });
        let users = [user("quick", "YES", "p256"), user("slow", "YES", "rsa4096"), user("other", "NO", "rsa1024")];
        let rows = [policy].into_iter().chain(users);
        rows.filter_map(|row| if let Value::Object(row) = row { Some(row) } else { None }).collect()
    }

    fn line(profile: Option<&Profile>, rows: &[Fields]) -> Option<String> {
        Sharing::of(profile, rows).map(|sharing| sharing.line())
    }

    #[test]
    fn what_a_shared_signature_saves_is_that_of_the_slowest_key_that_signs() {
        let mut profile = Profile::empty("test", "a test");
        for (key, us) in [("p256", 20.0), ("rsa4096", 3300.0), ("rsa1024", 100_000.0)] {
            profile.cpu.entry(key.into()).or_default().sign = Some(us.into());
        }
        assert_eq!(
            line(Some(&profile), &rows("INTEGRITY", 64, &[540])).unwrap(),
            "SIGNBATCH(64): one signature for up to 64 messages; private-key time a message 3,300 µs alone, 51.6 µs in \
             a full batch, on this processor; each carries up to 540 bytes more"
        );
        assert_eq!(
            line(Some(&profile), &rows("PRIVACY (AES256)", 1, &[])).unwrap(),
            "SIGNBATCH(1): a signature for each message; private-key time 3,300 µs on this processor"
        );
        assert_eq!(
            line(None, &rows("INTEGRITY", 8, &[1024])).unwrap(),
            "SIGNBATCH(8): one signature for up to 8 messages; each carries up to 1,024 bytes more"
        );
        assert_eq!(line(Some(&profile), &rows("CONFIDENTIALITY", 1, &[])), None, "nothing is signed");
        assert_eq!(line(Some(&profile), &[]), None);
    }
}
