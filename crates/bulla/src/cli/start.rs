//! `bulla start`: the queue manager in the foreground.

use super::{CliError, EXIT_START, service_manager};
use crate::catalog::Definitions;
use crate::catalog::names::{NAME_RULE, is_name};
use crate::catalog::objects::device::CPU;
use crate::log_lines::{Format, Level};
use crate::manager::Manager;
use crate::objects_file::DefinitionsFile;
use crate::serve::{self, Settings, StartError};
use bulla_device::role::{self, Role};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::disable_transparent_huge_pages;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Start a queue manager in the foreground
#[derive(Args, Debug)]
pub struct StartArgs {
    /// The data directory; made where it is missing
    #[arg(long, value_name = "DIR", default_value = super::DATA_DEFAULT)]
    pub data: PathBuf,
    /// The queue manager's name; a new data directory gets one of its own unless it is given
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Where it listens.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Threads that own sockets, unless CHIDISPS of ALTER QMGR says otherwise
    #[arg(long, value_name = "N")]
    pub dispatchers: Option<usize>,
    /// Threads that seal and open, unless CHIADAPS of ALTER QMGR says otherwise
    #[arg(long, value_name = "N")]
    pub adapters: Option<usize>,
    /// Mebibytes of message bodies held in memory; more goes to disk
    #[arg(long, value_name = "MIB")]
    pub memory: Option<usize>,
    /// Mebibytes of messages that may be arriving on all connections together; beyond it those that hold much take
    /// turns
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub arriving: Option<u64>,
    /// Seconds within which clients and partners are asked to be heard of; who is silent for twice as long is
    /// disconnected
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub idle_timeout: Option<u64>,
    /// The passphrase of the private keys in the key rings, the first line of this file
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// What it writes to the log.
    #[command(flatten)]
    pub lines: LogArgs,
    /// The shared object with the code of accelerators; beside the program, or in ../lib/bulla, unless given
    #[arg(long, value_name = "FILE")]
    pub lanes: Option<PathBuf>,
    /// A PKCS#11 module that DEFINE DEVICE may name, or a directory of them, besides the system's libraries; may be
    /// repeated
    #[arg(long, value_name = "PATH")]
    pub modules: Vec<PathBuf>,
    /// A directory for a second admin socket, for administrators with a role (DEFINE ADMIN): `bulla mqsc --data DIR`
    #[arg(long, value_name = "DIR")]
    pub admin_directory: Option<PathBuf>,
    /// Keep all memory of this process out of swap, not the private keys alone; needs an unlimited RLIMIT_MEMLOCK
    #[arg(long)]
    pub lock_memory: bool,
    /// Stop when standard input ends: with the process that holds the other end of the pipe, whatever ends it
    #[arg(long)]
    pub until_stdin_closes: bool,
}

/// Where it listens.
#[derive(Args, Debug)]
pub struct ListenArgs {
    /// Where AMQP is spoken in clear; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5672", value_parser = address)]
    pub amqp: Address,
    /// Where AMQP is spoken over TLS; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5671", value_parser = address)]
    pub amqps: Address,
    /// Where messages are put and got over HTTPS, as 0.0.0.0:9443; nowhere, unless it is given
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address)]
    pub https: Address,
    /// The same without TLS, on an address of this machine alone, as 127.0.0.1:9080; nowhere, unless it is given
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address)]
    pub http: Address,
    /// Let clients of --https resume TLS sessions, for two hours; not where the listener asks for client certificates
    #[arg(long)]
    pub https_resume: bool,
    /// Where Prometheus gets what the queue manager counts, as 127.0.0.1:9464; nowhere, unless it is given
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address)]
    pub metrics: Address,
}

/// What it writes to the log.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// How the lines of the log are written, to standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub log: Format,
    /// The least urgent lines that the log has
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Level::Note)]
    pub log_level: Level,
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

fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("a queue manager's name has {NAME_RULE}")),
    }
}

impl StartArgs {
    fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.data.clone());
        settings.name.clone_from(&self.name);
        settings.listen.amqp = self.listen.amqp.0;
        settings.listen.amqps = self.listen.amqps.0;
        settings.listen.https = self.listen.https.0;
        settings.listen.https_resumes = self.listen.https_resume;
        settings.listen.http = self.listen.http.0;
        settings.listen.metrics = self.listen.metrics.0;
        settings.dispatchers = self.dispatchers.unwrap_or(settings.dispatchers);
        settings.adapters = self.adapters.unwrap_or(settings.adapters);
        settings.memory_bytes_max = self.memory.map_or(settings.memory_bytes_max, |mib| mib.saturating_mul(1 << 20));
        settings.arriving_bytes_max = self.arriving.map_or(settings.arriving_bytes_max, |mib| mib << 20);
        settings.idle_timeout = self.idle_timeout.map_or(settings.idle_timeout, Duration::from_secs);
        settings.passphrase.clone_from(&self.passphrase_file);
        settings.modules.clone_from(&self.modules);
        settings.admin_directory.clone_from(&self.admin_directory);
        if let Some(lanes) = &self.lanes {
            settings.lanes.clone_from(lanes);
        }
        settings
    }
}

/// Runs until SIGTERM or SIGINT, or until standard input ends where that is asked for.
///
/// # Errors
/// It did not start, or did not stop cleanly.
pub fn run(args: &StartArgs) -> Result<(), CliError> {
    super::init::refuse_unfinished(&args.data)?;
    mask_instructions(&args.data)?;
    super::secrecy::keep_in_memory(args.lock_memory)?;
    raise_open_files();
    serve_until_signalled(&args.settings(), |running| match args.until_stdin_closes {
        true => stop_when_stdin_closes(running.manager().clone()),
        false => Ok(()),
    })
}

/// A connection is an open file: as many as the system allows, where a session's customary limit is 1,024.
fn raise_open_files() {
    let allowed = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: allowed.maximum, maximum: allowed.maximum };
    if allowed.current != allowed.maximum
        && let Err(error) = setrlimit(Resource::Nofile, wanted)
    {
        crate::warning!("the limit of open files stays at {:?}: {error}", allowed.current);
    }
}

/// The kernel closes a pipe when no process holds its other end any more, also after SIGKILL: a parent needs nothing
/// else to take its queue managers with it.
fn stop_when_stdin_closes(manager: Arc<Manager>) -> Result<(), CliError> {
    let read = move || {
        role::begin(Role::Administration);
        // What is written there means nothing, and what can't be read has ended, too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        crate::note!("standard input has ended: stopping");
        service_manager::stopping();
        manager.stop();
    };
    let thread = std::thread::Builder::new().name("stdin".into()).spawn(read);
    thread.map(drop).map_err(|error| CliError::failed(error.to_string()))
}

/// OpenSSL's variable for the processor's features, read when the library is loaded (OPENSSL_ia32cap(3)).
const OPENSSL_FEATURES: &str = "OPENSSL_ia32cap";
/// Everything for cryptography taken away: of the first word AES-NI and PCLMULQDQ; of the second SHA, AVX-512 IFMA,
/// VAES and VPCLMULQDQ; of the third AVX-IFMA.
const WITHOUT_CRYPTOGRAPHY: &str = "~0x200000200000000:~0x60020200000:~0x800000";

/// With the device CPU of TYPE(SOFTWARE) the program begins once more, with the instructions masked off: OpenSSL looks
/// at them once, before it could be told.
fn mask_instructions(data: &Path) -> Result<(), CliError> {
    if !Definitions::may_mention(data, "SOFTWARE") {
        // To understand all definitions takes a second where there are very many, and the start does it anyway.
        return Ok(());
    }
    // A file that can't be read is told of by the start.
    let definitions = Definitions::load(data).ok().flatten();
    let cpu = definitions.as_ref().and_then(|definitions| definitions.devices.get(CPU));
    let software = cpu.is_some_and(|cpu| cpu.kind() == bulla_device::Kind::Software);
    let masked = std::env::var_os(OPENSSL_FEATURES).is_some_and(|mask| mask == WITHOUT_CRYPTOGRAPHY);
    if !software || masked {
        return Ok(());
    }
    let mut again = std::process::Command::new("/proc/self/exe");
    again.args(std::env::args_os().skip(1)).env(OPENSSL_FEATURES, WITHOUT_CRYPTOGRAPHY);
    again.arg0(std::env::args_os().next().unwrap_or_default());
    // Only comes back where it fails.
    Err(CliError::failed(format!("begin again without instructions for cryptography: {}", again.exec())))
}

/// Starts, calls `started`, and runs until SIGTERM or SIGINT.
pub(crate) fn serve_until_signalled(
    settings: &Settings,
    started: impl FnOnce(&serve::Running) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(|error| CliError::failed(error.to_string()))?;
    // Dropped last, so that what the end has to say is written.
    let _log = crate::log_lines::Background::start().map_err(|error| CliError::failed(error.to_string()))?;
    let running = without_huge_pages(|| serve::start(settings)).map_err(|error| refused(&error))?;
    let manager = running.manager().clone();
    let addresses = [
        ("amqp", running.amqp),
        ("amqps", running.amqps),
        ("http", running.http),
        ("https", running.https),
        ("metrics", running.metrics_address),
    ];
    for (what, address) in addresses {
        if let Some(address) = address {
            crate::note!("{}: {what} on {address}", manager.name);
        }
    }
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            role::begin(Role::Administration);
            if signals.forever().next().is_some() {
                crate::note!("stopping");
                service_manager::stopping();
                manager.stop();
            }
        })
        .map_err(|error| CliError::failed(error.to_string()))?;
    started(&running)?;
    service_manager::ready(&running.manager().name);
    running.wait().map_err(|error| CliError::failed(error.to_string()))
}

/// The allocator's threads begin far apart, so that the mebibyte which a start needs would take seven huge pages of two
/// each. Messages get theirs: without them a stream of small ones is a quarter slower.
fn without_huge_pages<T>(start: impl FnOnce() -> T) -> T {
    // Where the kernel does not do it, a start takes more memory, and that is all.
    let _ = disable_transparent_huge_pages(true);
    let started = start();
    let _ = disable_transparent_huge_pages(false);
    started
}

fn refused(error: &StartError) -> CliError {
    CliError { code: EXIT_START, message: error.to_string(), hint: error.hint() }
}
