//! `bulla error`: what could not be opened, why, and back to its queue once that is mended.

use super::connection::ConnectionArgs;
use super::{CliError, EXIT_EMPTY, EXIT_UNREACHABLE};
use crate::manager::ERROR_QUEUE;
use crate::mqsc::reply::Outcome;
use crate::{admin, calendar, envelope, log_lines};
use bulla_amqp::{BodyForm, Payload, Sections, Value};
use bulla_client::Client;
use clap::{Args, Subcommand};
use std::io::Write;
use std::path::PathBuf;

/// Look at messages that could not be opened, and put them back
#[derive(Args, Debug)]
pub struct ErrorArgs {
    #[command(subcommand)]
    command: ErrorCommand,
}

#[derive(Subcommand, Debug)]
enum ErrorCommand {
    /// List the messages on the error queue: number, time, queue, cause
    List {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Another queue with labelled messages, as SYSTEM.DEAD.LETTER.QUEUE
        #[arg(long, default_value = ERROR_QUEUE)]
        from: String,
    },
    /// Show one message: its label on standard error, its body on standard output
    Show {
        /// Its number in the list
        number: u64,
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Another queue with labelled messages, as SYSTEM.DEAD.LETTER.QUEUE
        #[arg(long, default_value = ERROR_QUEUE)]
        from: String,
    },
    /// Put messages back on the queues they came from, each in one unit of work
    Replay {
        /// Only those that came from this queue
        #[arg(long, value_name = "QUEUE")]
        queue: Option<String>,
        /// At most this many
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// Another queue with labelled messages, as SYSTEM.DEAD.LETTER.QUEUE
        #[arg(long, default_value = ERROR_QUEUE)]
        from: String,
        /// The data directory of the queue manager
        #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
        data: PathBuf,
    },
}

/// Lists, shows or replays.
///
/// # Errors
/// Nothing is there, or the queue manager refused.
pub fn run(args: &ErrorArgs) -> Result<(), CliError> {
    match &args.command {
        ErrorCommand::List { connection, from } => list(connection, from),
        ErrorCommand::Show { number, connection, from } => show(*number, connection, from),
        ErrorCommand::Replay { queue, count, from, data } => replay(queue.as_deref(), *count, from, data),
    }
}

fn list(connection: &ConnectionArgs, from: &str) -> Result<(), CliError> {
    let mut number = 0;
    browse(connection, from, |message| {
        number += 1;
        let label = Label::of(message);
        println!("{number:>6}  {}  {}  cause={}  {}", label.time, label.queue, label.cause, label.details);
        true
    })?;
    if number == 0 {
        eprintln!("{from} is empty");
    }
    Ok(())
}

fn show(number: u64, connection: &ConnectionArgs, from: &str) -> Result<(), CliError> {
    let (mut at, mut found) = (0, None);
    browse(connection, from, |message| {
        at += 1;
        if at == number {
            found = Some(message.clone());
        }
        at < number
    })?;
    let message = found.ok_or_else(|| CliError::new(EXIT_EMPTY, format!("{from} has no message {number}")))?;
    let label = Label::of(&message);
    eprintln!(
        "queue    {}\ntime     {}\nreason   {}\ncause    {}\ndetails  {}",
        label.queue, label.time, label.reason, label.cause, label.details
    );
    let sections = Sections::scan(&message).map_err(|error| CliError::failed(error.to_string()))?;
    let body = match &sections.body {
        BodyForm::Data(range) => message.slice(range.clone()),
        _ => message.slice(sections.body_range.clone()),
    };
    let mut out = std::io::stdout().lock();
    body.chunks().iter().try_for_each(|chunk| out.write_all(chunk)).map_err(|error| CliError::failed(error.to_string()))
}

fn replay(queue: Option<&str>, count: Option<u64>, from: &str, data: &std::path::Path) -> Result<(), CliError> {
    let replies = admin::request(data, &replay_command(queue, count, from))
        .map_err(|error| CliError { hint: error.hint(), ..CliError::new(EXIT_UNREACHABLE, error.to_string()) })?;
    for reply in &replies {
        if let Outcome::Failed(failure) = &reply.outcome {
            return Err(CliError {
                hint: failure.hint.clone(),
                ..CliError::new(reply.exit_code(), failure.to_string())
            });
        }
        print!("{}", reply.text());
        // Why messages stayed.
        reply.diagnostics(None).iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(())
}

/// Names are as they were given: quoted they are neither folded to upper case nor read as anything else.
fn replay_command(queue: Option<&str>, count: Option<u64>, from: &str) -> String {
    let quoted = |name: &str| format!("('{}')", name.replace('\'', "''"));
    let queue = queue.map(|queue| format!(" QUEUE{}", quoted(queue))).unwrap_or_default();
    let count = count.map(|count| format!(" COUNT({count})")).unwrap_or_default();
    format!("REPLAY QLOCAL{}{queue}{count}", quoted(from))
}

/// Hands each message of a queue to `each` until that has seen enough.
fn browse(connection: &ConnectionArgs, queue: &str, mut each: impl FnMut(&Payload) -> bool) -> Result<(), CliError> {
    let mut client = Client::connect(&connection.endpoint()?)?;
    let link = client.receiver(queue, true, false)?.link;
    while let Some(delivery) = client.get(link, None)? {
        client.settle(&delivery, bulla_amqp::DeliveryState::Accepted)?;
        if !each(&delivery.payload) {
            break;
        }
    }
    client.close()?;
    Ok(())
}

/// What the error queue says about a message.
struct Label {
    queue: String,
    time: String,
    reason: String,
    cause: String,
    details: String,
}

impl Label {
    fn of(message: &Payload) -> Self {
        let annotations =
            Sections::scan(message).map(|sections| envelope::annotations(message, &sections)).unwrap_or_default();
        let find = |name: &str| annotations.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value);
        // Any user who may put on the queue may have written the label, and not for this terminal.
        let text = |name: &str| log_lines::one_line(find(name).and_then(Value::as_str).unwrap_or("-"));
        Self {
            queue: text("x-opt-bulla-queue"),
            time: match find("x-opt-bulla-time") {
                Some(Value::Timestamp(ms)) => calendar::rfc3339(u64::try_from(ms / 1000).unwrap_or(0)),
                _ => "-".to_owned(),
            },
            reason: find("x-opt-bulla-reason")
                .and_then(Value::as_u64)
                .map_or_else(|| "-".to_owned(), |code| code.to_string()),
            cause: text("x-opt-bulla-cause"),
            details: text("x-opt-bulla-details"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::parse;

    #[test]
    fn a_name_is_no_command_and_keeps_its_letters() {
        let read = |name| parse::statements(&replay_command(Some(name), Some(3), name));
        let [Ok(statement)] = &read("orders")[..] else { panic!("{:?}", read("orders")) };
        assert_eq!((statement.command.to_string().as_str(), statement.name.stem.as_str()), ("REPLAY QLOCAL", "orders"));
        let [Err(_)] = &read("X'); CLEAR QLOCAL('KEEP")[..] else { panic!("it is one command, with a wrong name") };
    }
}
