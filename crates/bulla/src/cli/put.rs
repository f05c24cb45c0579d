//! `bulla put`: each file is a message.

use super::CliError;
use super::connection::ConnectionArgs;
use super::own_seal::{OwnSeal, OwnSealArgs};
use crate::envelope::data_section_head;
use bulla_amqp::message::encode_map_section;
use bulla_amqp::{Header, LinkId, MessageId, Payload, Properties, Symbol, Value};
use bulla_client::Client;
use bytes::Bytes;
use clap::Args;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What stands for standard input.
const STDIN: &str = "-";
/// How long a put waits for room before it says so.
const SILENT_FOR: Duration = Duration::from_secs(1);
/// Most that `--timeout` takes: a day, in seconds.
const WAIT_SECONDS_MAX: u64 = 24 * 3600;

/// Put messages on a queue
#[derive(Args, Debug)]
pub struct PutArgs {
    /// The queue, or an alias of one
    pub queue: String,
    /// Files to put, a message each; standard input where none is named
    pub files: Vec<PathBuf>,
    /// Not to be lost when the queue manager restarts (the default)
    #[arg(long, conflicts_with = "no_persistent")]
    pub persistent: bool,
    /// May be lost when the queue manager restarts
    #[arg(long)]
    pub no_persistent: bool,
    /// 0 to 9; higher ones are got first
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: u8,
    /// Gone after this many seconds if it was not got
    #[arg(long, value_name = "SECONDS")]
    pub expiry: Option<u32>,
    /// What the payload is, as a media type
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// An application property
    #[arg(long = "property", value_name = "KEY=VALUE")]
    pub properties: Vec<String>,
    /// Put in units of work of so many messages: all of one are put, or none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub syncpoint: Option<u32>,
    /// How long each message may wait for room on the queue, and for its confirmation
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=WAIT_SECONDS_MAX))]
    pub timeout: u64,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) own_seal: OwnSealArgs,
}

/// Puts the files.
///
/// # Errors
/// Nothing could be read, or the queue manager refused.
pub fn run(args: &PutArgs) -> Result<(), CliError> {
    // Before there is a connection: it would be silent for as long as its user takes to type.
    let mut typed = if args.files.is_empty() { Some(read(Path::new(STDIN))?) } else { None };
    let mut client = Client::connect(&args.connection.endpoint()?)?;
    let seals = args.own_seal.ring.is_some();
    let attached = client.sender(&args.queue, seals)?;
    let mut seal = OwnSeal::open(&args.own_seal, &args.queue, &attached.properties)?;
    let stdin = [PathBuf::from(STDIN)];
    let files = if args.files.is_empty() { &stdin[..] } else { &args.files };
    let (mut unit, within) = (None, Duration::from_secs(args.timeout));
    for (number, path) in files.iter().enumerate() {
        let body = match typed.take() {
            Some(body) => body,
            None => read(path)?,
        };
        let mut message = message(args, body)?;
        if let Some(seal) = &mut seal {
            message = seal.seal(&message)?;
        }
        wait_for_room(&mut client, args, attached.link)?;
        let Some(length) = args.syncpoint else {
            client.put(attached.link, message, within)?;
            continue;
        };
        let begun = match unit.take() {
            Some(unit) => unit,
            None => client.begin()?,
        };
        client.put_in(&begun, attached.link, message, within)?;
        match (number + 1) % length as usize == 0 || number + 1 == files.len() {
            true => client.end(begun, true, within)?,
            false => unit = Some(begun),
        }
    }
    client.close()?;
    eprintln!("put {} {} on {}", files.len(), if files.len() == 1 { "message" } else { "messages" }, args.queue);
    Ok(())
}

/// A queue with FULL(WAIT) gives no credit while it is full: says so where that takes long.
fn wait_for_room(client: &mut Client, args: &PutArgs, link: LinkId) -> Result<(), CliError> {
    let (within, queue) = (Duration::from_secs(args.timeout), &args.queue);
    if client.takes_a_message(link, SILENT_FOR.min(within))? {
        return Ok(());
    }
    if within > SILENT_FOR {
        eprintln!("{queue} takes no message: it is probably full; waiting for up to {} s (--timeout)", args.timeout);
        if client.takes_a_message(link, within - SILENT_FOR)? {
            return Ok(());
        }
    }
    let message = format!("{queue} took no message within {} s: it is probably full", args.timeout);
    Err(CliError::failed(message).hint("get messages from it, raise its MAXDEPTH, or wait longer with --timeout"))
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    if path == Path::new(STDIN) {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|error| CliError::file(path, error))?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(|error| CliError::file(path, error))
}

fn message(args: &PutArgs, body: Vec<u8>) -> Result<Payload, CliError> {
    let header = Header {
        durable: !args.no_persistent,
        priority: args.priority,
        ttl_ms: args.expiry.map(|seconds| seconds.saturating_mul(1000)),
        ..Header::default()
    };
    let content_type = match &args.content_type {
        Some(text) => Some(Symbol::new(text).ok_or_else(|| CliError::usage(format!("{text:?} is no media type")))?),
        None => None,
    };
    let properties = Properties {
        message_id: Some(MessageId::Uuid(crate::random::Random::system().bytes())),
        content_type,
        ..Properties::default()
    };
    let mut head = Vec::new();
    header.encode_section(&mut head);
    properties.encode_section(&mut head);
    if !args.properties.is_empty() {
        let pairs: Result<Vec<(Value, Value)>, CliError> = args.properties.iter().map(|text| property(text)).collect();
        encode_map_section(0x74, &pairs?, &mut head);
    }
    data_section_head(body.len(), &mut head);
    Ok(Payload::from(vec![Bytes::from(head), Bytes::from(body)]))
}

fn property(text: &str) -> Result<(Value, Value), CliError> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| CliError::usage(format!("--property {text}: expected KEY=VALUE")))?;
    Ok((Value::from(key), Value::from(value)))
}
