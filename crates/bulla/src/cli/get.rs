//! `bulla get`: messages to standard output or into files.

use super::connection::ConnectionArgs;
use super::own_seal::{OwnSeal, OwnSealArgs, Unopened};
use super::{CliError, EXIT_EMPTY};
use bulla_amqp::{BodyForm, Delivery, DeliveryState, Error, Payload, Sections, Symbol};
use bulla_client::Client;
use bulla_seal::Outcome;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How long `--wait` waits without a number of seconds: as good as for ever.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long the end of a unit of work may wait for its confirmation.
const COMMIT_WITHIN: Duration = Duration::from_secs(60);

/// Get messages from a queue
#[derive(Args, Debug)]
pub struct GetArgs {
    /// The queue, or an alias of one
    pub queue: String,
    /// Wait for a message, this many seconds or until one comes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "0")]
    pub wait: Option<u64>,
    /// Look, and leave the messages where they are
    #[arg(long)]
    pub browse: bool,
    /// How many messages; all that are there with --browse or --out, one otherwise
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Write each message into a file of its own in this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Get in units of work of so many messages: one that fails midway leaves all of its messages on the queue
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "browse")]
    pub syncpoint: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) own_seal: OwnSealArgs,
}

/// Gets or browses.
///
/// # Errors
/// No message is there, a message did not open, or the queue manager refused.
pub fn run(args: &GetArgs) -> Result<(), CliError> {
    let mut client = Client::connect(&args.connection.endpoint()?)?;
    let attached = client.receiver(&args.queue, args.browse, args.own_seal.ring.is_some())?;
    let mut seal = OwnSeal::open(&args.own_seal, &args.queue, &attached.properties)?;
    let wanted = args.count.unwrap_or(if args.browse || args.out.is_some() { u64::MAX } else { 1 });
    let wait =
        args.wait.map(|seconds| if seconds == 0 { WAIT_MAX } else { Duration::from_secs(seconds).min(WAIT_MAX) });
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|error| CliError::file(out, error))?;
    }
    let mut got = 0;
    let mut unit = None;
    while got < wanted {
        let Some(delivery) = client.get(attached.link, wait)? else { break };
        let payload = match &mut seal {
            Some(seal) => match seal.open_message(&delivery.payload) {
                Ok(payload) => payload,
                Err(Unopened { error, outcome }) => {
                    client.settle(&delivery, verdict(&error, outcome))?;
                    return Err(error);
                }
            },
            None => delivery.payload.clone(),
        };
        write(args, got, &payload)?;
        got += 1;
        let Some(length) = args.syncpoint else {
            accept(&mut client, &delivery)?;
            continue;
        };
        let begun = match unit.take() {
            Some(unit) => unit,
            None => client.begin()?,
        };
        client.settle_in(&begun, &delivery, DeliveryState::Accepted)?;
        match got % length {
            0 => client.end(begun, true, COMMIT_WITHIN)?,
            _ => unit = Some(begun),
        }
    }
    if let Some(unit) = unit {
        client.end(unit, true, COMMIT_WITHIN)?;
    }
    client.close()?;
    if got == 0 {
        return Err(CliError::new(EXIT_EMPTY, "2033 MQRC_NO_MSG_AVAILABLE nothing is there for you".to_owned()));
    }
    Ok(())
}

/// A defective message is moved to the error queue by the queue manager; another one stays for whom it is for, or for
/// later.
fn verdict(error: &CliError, outcome: Outcome) -> DeliveryState {
    match outcome {
        Outcome::Defective => DeliveryState::Rejected(Some(Box::new(Error {
            condition: Symbol::from_static("bulla:defective"),
            description: Some(error.to_string()),
            info: Vec::new(),
        }))),
        Outcome::NotMine | Outcome::Retry => DeliveryState::Released,
    }
}

fn accept(client: &mut Client, delivery: &Delivery) -> Result<(), CliError> {
    if !delivery.settled {
        client.settle(delivery, DeliveryState::Accepted)?;
    }
    Ok(())
}

/// A message's payload: the bytes of a data section, or the encoded body where it is something else.
fn write(args: &GetArgs, number: u64, message: &Payload) -> Result<(), CliError> {
    let sections = Sections::scan(message).map_err(|error| CliError::failed(format!("malformed message: {error}")))?;
    let body = match &sections.body {
        BodyForm::Data(range) => message.slice(range.clone()),
        _ => message.slice(sections.body_range.clone()),
    };
    let (mut file, path): (Box<dyn Write>, PathBuf) = match &args.out {
        Some(out) => {
            let path = out.join(format!("message-{number:06}"));
            let file = std::fs::File::create(&path).map_err(|error| CliError::file(&path, error))?;
            (Box::new(file), path)
        }
        None => (Box::new(std::io::stdout().lock()), PathBuf::from("-")),
    };
    for chunk in body.chunks() {
        file.write_all(chunk).map_err(|error| CliError::file(&path, error))?;
    }
    file.flush().map_err(|error| CliError::file(&path, error))
}
