//! `bulla start`: the queue manager in the foreground.

use super::{CliError, EXIT_START};
use crate::serve::{self, Settings, StartError};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Start a queue manager in the foreground
#[derive(Args, Debug)]
pub struct StartArgs {
    /// The data directory; made where it is missing
    #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
    pub data: PathBuf,
    /// The queue manager's name, for a new data directory
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where AMQP is spoken in clear; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5672", value_parser = address)]
    pub amqp: Address,
    /// Where AMQP is spoken over TLS; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5671", value_parser = address)]
    pub amqps: Address,
    /// Threads that own sockets
    #[arg(long, value_name = "N")]
    pub dispatchers: Option<usize>,
    /// Threads that seal and open
    #[arg(long, value_name = "N")]
    pub adapters: Option<usize>,
    /// Mebibytes of message bodies held in memory; more goes to disk
    #[arg(long, value_name = "MIB")]
    pub memory: Option<usize>,
    /// The passphrase of the private keys in the key rings, the first line of this file
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub Option<SocketAddr>);

fn address(text: &str) -> Result<Address, String> {
    if text == "none" {
        return Ok(Address(None));
    }
    text.parse()
        .map(|address| Address(Some(address)))
        .map_err(|_| "expected ADDRESS:PORT, as 127.0.0.1:5672".to_owned())
}

impl StartArgs {
    fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.data.clone());
        settings.name.clone_from(&self.name);
        settings.amqp = self.amqp.0;
        settings.amqps = self.amqps.0;
        settings.dispatchers = self.dispatchers.unwrap_or(settings.dispatchers);
        settings.adapters = self.adapters.unwrap_or(settings.adapters);
        settings.memory_bytes_max = self.memory.map_or(settings.memory_bytes_max, |mib| mib << 20);
        settings.passphrase.clone_from(&self.passphrase_file);
        settings
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// It did not start, or did not stop cleanly.
pub fn run(args: &StartArgs) -> Result<(), CliError> {
    serve_until_signalled(&args.settings(), |_| Ok(()))
}

/// Starts, calls `started`, and runs until SIGTERM or SIGINT.
pub(crate) fn serve_until_signalled(
    settings: &Settings,
    started: impl FnOnce(&serve::Running) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(|error| CliError::failed(error.to_string()))?;
    let running = serve::start(settings).map_err(|error| refused(&error))?;
    let manager = running.manager().clone();
    for (what, address) in [("amqp", running.amqp), ("amqps", running.amqps)] {
        if let Some(address) = address {
            crate::note!("{}: {what} on {address}", manager.name);
        }
    }
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                crate::note!("stopping");
                manager.stop();
            }
        })
        .map_err(|error| CliError::failed(error.to_string()))?;
    started(&running)?;
    running.wait().map_err(|error| CliError::failed(error.to_string()))
}

fn refused(error: &StartError) -> CliError {
    CliError { code: EXIT_START, message: error.to_string(), hint: error.hint() }
}
