//! Starting and stopping a queue manager: its data directory, its threads, its listeners.

mod administrator;
pub(crate) mod first_start;
mod overseer;
mod ping;
mod pools;
mod readiness_watch;
mod requests;
mod timed_spill;

pub use crate::catalog::{ADAPTERS_MAX, DISPATCHERS_MAX};
pub(crate) use first_start::{install_server_certificate, make_directories, write_private};

use self::timed_spill::TimedSpill;
use crate::arriving::{ARRIVING_BYTES_MAX, Arriving};
use crate::audit::{Entry, Kind, Who};
use crate::catalog::names::{NAME_RULE, is_name};
use crate::catalog::objects::device::CPU;
use crate::catalog::status::TaskKind;
use crate::catalog::{Definitions, DeviceDefinition};
use crate::channel::supervisor;
pub use crate::connections::IDLE_TIMEOUT;
use crate::devices::Devices;
use crate::enrolment::{Enroller, enroller, tls_certificate};
pub use crate::folders::{JOURNAL, RINGS, TLS};
use crate::front::http::Common;
use crate::front::http::commands::{Asked, CommandLine};
use crate::front::http::kept_answers::{self, KeptAnswers};
use crate::front::offered;
use crate::key_rotation::keeper::{self, Keeper};
use crate::mailbox::Mailboxes;
use crate::manager::{Manager, Parts, attributes};
use crate::noted::{Noted, Origin, Synced};
use crate::objects_file::copy;
use crate::objects_file::start::{Failed, Loaded};
use crate::random::Random;
use crate::shared_groups::GroupError;
use crate::stores::Stores;
use crate::task::Tasks;
use crate::tls::Tls;
use crate::turn::Listeners;
use crate::users::Users;
use crate::{admin, audit_log, expiring_certificates, metrics, missing_rings, mqsc, objects_file, stranded, topics};
use administrator::Administrator;
use bulla_device::Scheduler;
use bulla_device::role::{self, Role};
use bulla_queue::log::LogError;
use bulla_queue::{
    DirStorage, Driver, FileLog, FileLogOptions, FileSpill, JournalError, Limits, OpenError, SPILL_BYTES_MAX_DEFAULT,
    Store,
};
use bulla_seal::certificate::Passphrase;
use bulla_seal::ring::Rings;
use mio::net::TcpListener;
use overseer::Overseer;
pub use pools::Threads;
use readiness_watch::ReadinessWatch;
use serde_json::json;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Scratch space of non-persistent messages.
const SPILL: &str = "spill";

/// How a queue manager is to be started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data directory; made where it is missing.
    pub data: PathBuf,
    /// The queue manager's name; a new data directory gets one of its own where none is given.
    pub name: Option<String>,
    /// Where it listens.
    pub listen: Listen,
    /// Threads that own sockets, unless CHIDISPS says otherwise.
    pub dispatchers: usize,
    /// Threads that seal and open, unless CHIADAPS says otherwise.
    pub adapters: usize,
    /// Bytes of message bodies held in memory, all queues together.
    pub memory_bytes_max: usize,
    /// Bytes of messages that may be arriving on all connections together, before those that hold much take turns.
    pub arriving_bytes_max: u64,
    /// What partners are told to be heard of within; one that is silent for twice as long is given up.
    pub idle_timeout: Duration,
    /// Lone puts up to this many bytes are written and synced on the dispatcher itself.
    pub sync_inline_bytes_max: u64,
    /// A file with the passphrase of the rings' private keys.
    pub passphrase: Option<PathBuf>,
    /// The shared object with the accelerators' code.
    pub lanes: PathBuf,
    /// PKCS#11 modules that a device may name, or directories of them, besides the system's library directories.
    pub modules: Vec<PathBuf>,
    /// A directory for an admin socket that administrators with a role can reach.
    pub admin_directory: Option<PathBuf>,
}

/// Where a queue manager listens: nowhere, unless something is said.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// Where AMQP is spoken in clear.
    pub amqp: Option<SocketAddr>,
    /// Where AMQP is spoken over TLS.
    pub amqps: Option<SocketAddr>,
    /// Where HTTP is spoken in clear: an address of this machine's own.
    pub http: Option<SocketAddr>,
    /// Where HTTP is spoken over TLS.
    pub https: Option<SocketAddr>,
    /// Whether clients may resume TLS sessions there.
    pub https_resumes: bool,
    /// Where Prometheus gets what the devices counted.
    pub metrics: Option<SocketAddr>,
}

impl Settings {
    /// The defaults, for a data directory.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            data,
            name: None,
            listen: Listen {
                amqp: Some(SocketAddr::from(([127, 0, 0, 1], 5672))),
                amqps: Some(SocketAddr::from(([127, 0, 0, 1], 5671))),
                ..Listen::default()
            },
            // One thread spares a wake-up between producer and consumer until sockets alone fill a core.
            dispatchers: (cores / 4).clamp(1, DISPATCHERS_MAX),
            adapters: cores,
            memory_bytes_max: Limits::default().memory_bytes_max,
            arriving_bytes_max: ARRIVING_BYTES_MAX,
            idle_timeout: IDLE_TIMEOUT,
            sync_inline_bytes_max: 64 << 10,
            passphrase: None,
            lanes: bulla_device::library_of(&std::env::current_exe().unwrap_or_default()),
            modules: Vec::new(),
            admin_directory: None,
        }
    }
}

/// A queue manager that runs.
pub struct Running {
    manager: Arc<Manager>,
    threads: Arc<Threads>,
    commands: Option<JoinHandle<()>>,
    definitions_writer: Option<JoinHandle<()>>,
    statistics: Option<JoinHandle<()>>,
    watches: Vec<Watch>,
    admin: Option<admin::Server>,
    admin_of_roles: Option<admin::Server>,
    metrics: Option<metrics::Server>,
    /// Where AMQP is spoken in clear.
    pub amqp: Option<SocketAddr>,
    /// Where AMQP is spoken over TLS.
    pub amqps: Option<SocketAddr>,
    /// Where HTTP is spoken in clear.
    pub http: Option<SocketAddr>,
    /// Where HTTP is spoken over TLS.
    pub https: Option<SocketAddr>,
    /// Where Prometheus gets what the devices counted.
    pub metrics_address: Option<SocketAddr>,
}

/// Why a queue manager did not start. The operator's turn.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Another process listens there.
    PortInUse {
        /// The address.
        address: SocketAddr,
    },
    /// An address can't be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// HTTP in clear was to be spoken where others can read along.
    ClearHttp {
        /// The address.
        address: SocketAddr,
    },
    /// Another queue manager has the data directory.
    DataInUse {
        /// The directory.
        data: PathBuf,
    },
    /// The journal does not open: damaged, of a newer version, unreadable.
    Journal(OpenError),
    /// The definitions do not load.
    Definitions(mqsc::objects::LoadError),
    /// What it was to be called is not a name.
    Name {
        /// What was given.
        name: String,
    },
    /// The data directory belongs to a queue manager with another name.
    OtherName {
        /// The directory.
        data: PathBuf,
        /// Its queue manager's name.
        name: String,
        /// The name that was given.
        asked: String,
    },
    /// A file or folder of the data directory.
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl StartError {
    /// What the operator can do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::PortInUse { address } => Some(format!(
                "stop what listens on port {}, or choose another one with --amqp, --amqps, --http or --https",
                address.port()
            )),
            Self::DataInUse { .. } => {
                Some("one queue manager owns a data directory; name another one with --data".into())
            }
            Self::ClearHttp { .. } => Some("use --https there, or give --http an address as 127.0.0.1:8080".into()),
            Self::Name { .. } => Some(format!("a name has {NAME_RULE}")),
            Self::OtherName { .. } => Some("leave --name out, or name another data directory with --data".into()),
            Self::Definitions(error) => error.hint(),
            Self::Journal(OpenError::Log(LogError::Full)) => {
                Some("free space on the disk of the data directory, or move the directory to one with more".into())
            }
            Self::Journal(OpenError::Damaged { .. } | OpenError::Log(LogError::Damaged { .. })) => {
                Some("`bulla journal check` says what is damaged and where".into())
            }
            _ => None,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortInUse { address } => write!(f, "{address} is in use"),
            Self::Listen { address, error } => write!(f, "{address}: {error}"),
            Self::ClearHttp { address } => {
                write!(f, "{address}: HTTP without TLS is for clients on this machine alone")
            }
            Self::DataInUse { data } => write!(f, "{} is in use by another queue manager", data.display()),
            Self::Journal(error) => write!(f, "journal: {error}"),
            Self::Definitions(error) => error.fmt(f),
            Self::Name { name } => write!(f, "'{name}' is not a name for a queue manager"),
            Self::OtherName { data, name, asked } => {
                write!(f, "{} is the data directory of queue manager {name}, not of {asked}", data.display())
            }
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StartError {}

impl From<Failed> for StartError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Definitions(error) => Self::Definitions(error),
            Failed::Journal(error) => Self::Journal(error),
            Failed::File { path, error } => Self::File { path, error },
        }
    }
}

/// Starts a queue manager: recovers its queues, then listens.
///
/// # Errors
/// [`StartError`]; nothing runs then.
pub fn start(settings: &Settings) -> Result<Running, StartError> {
    role::begin(Role::Administration);
    if let Some(name) = settings.name.as_ref().filter(|name| !is_name(name)) {
        return Err(StartError::Name { name: name.clone() });
    }
    let data = &settings.data;
    first_start::make_directories(data)?;
    let mailboxes = Arc::new(Mailboxes::default());

    // The journal is claimed first: the process that has it owns the directory.
    let tasks = Arc::new(Tasks::default());
    let synced = Arc::<Synced>::default();
    let mut store = Stores::from(open_store(settings, &mailboxes, &tasks, &synced)?);
    let Loaded { definitions, last, written } = load_definitions(settings, &mut store)?;
    let noted = Noted::after(last);
    let audit = Arc::new(audit_log::open(data).map_err(|error| file(&data.join(audit_log::FOLDER), error))?);
    let rings = overseer::tell_of_rings(Rings::new(data.join(RINGS)), audit.clone());
    let passphrase = match &settings.passphrase {
        Some(path) => Some(Passphrase::from_file(path).map_err(|error| file(path, io::Error::other(error)))?),
        None => None,
    };
    let users = Users::open(data).map_err(|error| file(data, io::Error::other(error)))?;
    // Before the ports: a client that reaches one of them finds the admin socket there, too, and waits at both for the
    // same moment.
    let admin = AdminSocket::bind(data, admin::listen(data))?;
    let admin_of_roles = settings.admin_directory.as_ref().map(|directory| listen_for_roles(data, directory));
    let admin_of_roles = admin_of_roles.transpose()?;
    let (commands, asked) = CommandLine::new();
    let kept_answers = KeptAnswers::default();
    let web = Some(Common { commands, kept_answers: kept_answers.clone() });
    let ports = Listeners { web, ..listen_to_clients(settings)? };
    let metrics = settings.listen.metrics.map(listen_for_metrics).transpose()?;
    let address = |listener: &Option<TcpListener>| listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let [amqp, amqps, http, https] = [&ports.clear, &ports.tls, &ports.http, &ports.https].map(address);

    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpu = definitions.devices.get(CPU).map_or(bulla_device::Kind::Cpu, DeviceDefinition::kind);
    let devices = Devices::new(Scheduler::new(cpu, cores), settings.lanes.clone(), &settings.modules);
    devices.set_up(&definitions).map_err(|error| file(data, io::Error::other(error)))?;
    let name = definitions.queue_manager.name.clone();
    let arriving = Arriving::new(settings.arriving_bytes_max);
    let parts = Parts { mailboxes, tasks, devices, audit: audit.clone(), arriving };
    let manager = Manager::new(data.clone(), rings, passphrase, users, store, (definitions, noted), parts);
    manager.definitions_writer.has(written);
    let manager = Arc::new(manager.with_idle_timeout(settings.idle_timeout).with_synced(synced));
    // No client is accepted whose actions could not be audited.
    let started = json!({ "qmgr": name, "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id() });
    let started = audit.record(vec![Entry::new(Kind::Start, Who::QueueManager, started)]);
    started.map_err(|error| file(&data.join(audit_log::FOLDER), io::Error::other(error)))?;
    let tls = if settings.listen.https_resumes { Tls::resuming(data.join(TLS)) } else { Tls::new(data.join(TLS)) };
    tls.follow(&manager.lock().definitions);
    let threads = Arc::new(Threads::new(manager.clone(), Arc::new(tls)));
    define_queues(&manager, data)?;
    manager.follow_blocked_addresses(&manager.lock().definitions);
    if manager.lock().definitions.authorities.records.is_empty() {
        crate::warning!(
            "there is no authority record: clients can't connect, and every queue, topic and channel is closed to them. \
             To let one user put on and get from one queue: {} (docs/operating/authority.md)",
            crate::authority::FOR_ONE_USER.join("; ")
        );
    }
    let addresses = [("amqp", amqp), ("amqps", amqps), ("http", http), ("https", https)];
    let listeners = addresses.iter().filter_map(|(scheme, address)| Some(format!("{scheme}://{}", (*address)?)));
    manager.listening.addresses.get_or_init(|| listeners.collect());
    // Before a client can ask.
    let mut readiness = ReadinessWatch::default();
    readiness.look(&manager, Instant::now());
    let definition = manager.lock().definitions.queue_manager.clone();
    threads.make_checkers(cores).map_err(|error| file(data, error))?;
    let made = threads.make_pools(&definition, (settings.dispatchers, settings.adapters), ports);
    made.map_err(|error| file(data, error))?;
    let admin = start_admin(&threads, admin)?;
    let admin_of_roles = admin_of_roles.map(|socket| start_admin_of_roles(&threads, socket)).transpose()?;
    let commands = Some(start_commands(&threads, asked, kept_answers).map_err(|error| file(data, error))?);
    let definitions_writer = Some(start_definitions_writer(&manager).map_err(|error| file(data, error))?);
    let statistics = start_statistics(&threads).map_err(|error| file(data, error))?;
    let watches = [
        watch_certificates(&threads),
        watch_keys(&manager),
        watch_enrolment(&threads),
        watch_readiness(&manager, readiness),
    ];
    let watches = watches.into_iter().collect::<io::Result<_>>().map_err(|error| file(data, error))?;
    let metrics = metrics.map(|listener| start_metrics(&threads, listener)).transpose();
    let metrics = metrics.map_err(|error| file(data, error))?;
    let metrics_address = metrics.as_ref().map(metrics::Server::address);
    let (statistics, admin) = (Some(statistics), Some(admin));
    start_groups(&threads).map_err(|error| file(data, io::Error::other(error)))?;
    Ok(Running {
        manager,
        threads,
        commands,
        definitions_writer,
        statistics,
        watches,
        admin,
        admin_of_roles,
        metrics,
        amqp,
        amqps,
        http,
        https,
        metrics_address,
    })
}

impl Running {
    /// What the threads share.
    #[must_use]
    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// The threads that work for clients and channels.
    #[must_use]
    pub fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// Says goodbye to every connection, writes what is open, and ends.
    ///
    /// # Errors
    /// The journal could not be closed cleanly; the next start recovers.
    pub fn stop(mut self) -> io::Result<()> {
        self.manager.stop();
        self.join()
    }

    /// Waits until [`Manager::stop`] is called, then ends as [`stop`](Self::stop) does.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        self.threads.join_dispatchers()?;
        // At once, and before what takes longer: another member waits for them.
        let groups = self.threads.groups.stop_all().map_err(io::Error::other);
        self.threads.end_checkers()?;
        if let Some(thread) = self.commands.take() {
            thread.join().map_err(|_| io::Error::other("the thread that carries out commands died"))?;
        }
        for admin in [self.admin.take(), self.admin_of_roles.take()].into_iter().flatten() {
            admin.stop();
        }
        if let Some(metrics) = self.metrics.take() {
            metrics.stop();
        }
        self.watches.clear();
        self.manager.workers.adapters.stop();
        self.manager.workers.devices.scheduler().shut_down();
        self.threads.join_adapters()?;
        self.manager.workers.tasks.stop();
        if let Some(thread) = self.statistics.take() {
            thread.join().map_err(|_| io::Error::other("the thread for statistics died"))?;
        }
        self.manager.definitions_writer.stop();
        if let Some(thread) = self.definitions_writer.take() {
            thread.join().map_err(|_| io::Error::other("the thread that writes definitions died"))?;
        }
        let closed = self.manager.lock().store.shut_down(Instant::now()).map_err(io::Error::other);
        let how = json!({ "journal": if closed.is_ok() { "closed" } else { "not closed" } });
        self.manager.told.audit.close_with(Entry::new(Kind::Stop, Who::QueueManager, how));
        closed.and(groups)
    }
}

/// Takes part in the groups of shared queues that say so.
fn start_groups(threads: &Threads) -> Result<(), GroupError> {
    let defined = threads.manager.lock().definitions.shared_groups.clone();
    let starting = defined.iter().filter(|(_, group)| group.autostart);
    let scratch = threads.manager.data.join(SPILL);
    let mut starting = starting.map(|(name, group)| threads.groups.start(&threads.manager, name, group, &scratch));
    starting.try_for_each(|started| started)
}

fn open_store(
    settings: &Settings,
    mailboxes: &Arc<Mailboxes>,
    tasks: &Tasks,
    synced: &Arc<Synced>,
) -> Result<Store, StartError> {
    let (mailboxes_to_wake, synced) = (mailboxes.clone(), synced.clone());
    let meter = tasks.meter(TaskKind::Journal, 0);
    let begins = meter.clone();
    let options = FileLogOptions {
        driver: Driver::Adaptive { bytes: settings.sync_inline_bytes_max },
        waker: Arc::new(move || {
            mailboxes_to_wake.iter().for_each(|mailbox| mailbox.wake());
            synced.ring();
        }),
        around_batch: Arc::new(move |write| {
            let begun = meter.begin_exactly();
            write();
            meter.request(meter.end(begun));
        }),
        around_inline: Arc::new(|write| role::exactly(Role::Journal, write)),
        thread_begins: Arc::new(move || {
            role::begin(Role::Journal);
            // The thread that keeps space is no task of its own.
            if std::thread::current().name() == Some(bulla_queue::JOURNAL_THREAD) {
                begins.begin_thread();
            }
        }),
        ..FileLogOptions::default()
    };
    let in_use = |error| match error {
        bulla_queue::OpenError::Log(LogError::Owned { .. }) => StartError::DataInUse { data: settings.data.clone() },
        error => StartError::Journal(error),
    };
    let storage = |folder: &str| {
        let path = settings.data.join(folder);
        std::fs::create_dir_all(&path).map_err(|error| file(&path, error))?;
        Ok::<_, StartError>(DirStorage::new(path))
    };
    let log = FileLog::open(storage(JOURNAL)?, options).map_err(|error| in_use(error.into()))?;
    let spill = FileSpill::open(storage(SPILL)?, SPILL_BYTES_MAX_DEFAULT)
        .map_err(|error| in_use(bulla_queue::OpenError::Spill(error)))?;
    let limits = Limits { memory_bytes_max: settings.memory_bytes_max, ..Limits::default() };
    let mut store =
        Store::open(Box::new(log), Box::new(TimedSpill::new(spill)), limits, Instant::now()).map_err(in_use)?;
    match store.ensure_identity(Random::system().bytes(), Instant::now()) {
        // A full disk keeps no consumer from getting what is there; the first start that finds room gives the identity.
        Ok(_) | Err(JournalError::Full | JournalError::Unavailable { .. }) => Ok(store),
        Err(error) => Err(StartError::Journal(LogError::Failed { reason: error.to_string() }.into())),
    }
}

/// What is defined: by the journal, or by the file of an older directory, or as in a new queue manager.
fn load_definitions(settings: &Settings, store: &mut Stores) -> Result<Loaded, StartError> {
    let data = &settings.data;
    let initial = || {
        Definitions::initial(&match &settings.name {
            Some(name) => name.clone(),
            None => first_start::name_of_its_own(rustix::system::uname().nodename(), &mut Random::system()),
        })
    };
    let accept = |definitions: &Definitions| {
        let name = &definitions.queue_manager.name;
        match settings.name.as_ref().filter(|asked| *asked != name) {
            Some(asked) => Err(StartError::OtherName { data: data.clone(), name: name.clone(), asked: asked.clone() }),
            None => Ok(()),
        }
    };
    objects_file::start::load(store, data, initial, accept)
}

/// Brings the store's queues in line with the definitions, which are what the operator reads.
pub(crate) fn define_queues(manager: &Manager, data: &Path) -> Result<(), StartError> {
    let state = &mut *manager.lock();
    for (name, queue) in &state.definitions.queues {
        let attributes = attributes(name, queue, &state.definitions);
        state.store.define(name, attributes).map_err(|error| file(data, io::Error::other(error)))?;
    }
    let orphans: Vec<String> = state
        .store
        .queues()
        .filter(|(_, name)| !state.definitions.queues.contains_key(*name))
        .map(|(_, name)| name.to_owned())
        .collect();
    for name in orphans {
        // No command can define that again: a crash came between a subscription's end and that of its queue.
        if topics::is_managed(&name)
            && let Some(queue) = state.store.queue(&name)
        {
            state.delete_undefined(&name, queue);
            continue;
        }
        crate::warning!("{name}: in the journal but not defined; its messages stay until it is defined again");
    }
    state.topics.follow(&state.definitions);
    supervisor::recover(state);
    Ok(())
}

/// An admin socket that is there and not answered yet. It is taken away where the start fails.
struct AdminSocket {
    directory: PathBuf,
    listener: Option<UnixListener>,
}

impl AdminSocket {
    fn bind(directory: &Path, listener: io::Result<UnixListener>) -> Result<Self, StartError> {
        let listener = Some(listener.map_err(|error| file(directory, error))?);
        Ok(Self { directory: directory.to_owned(), listener })
    }

    /// Has requests answered, those that wait already included.
    fn serve(
        mut self,
        serve: impl FnOnce(&Path, UnixListener) -> io::Result<admin::Server>,
    ) -> Result<admin::Server, StartError> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let listener = self.listener.take().ok_or_else(gone).map_err(|error| file(&self.directory, error))?;
        serve(&self.directory, listener).map_err(|error| file(&self.directory, error))
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        if self.listener.take().is_some() {
            admin::remove(&self.directory);
        }
    }
}

fn start_admin(threads: &Arc<Threads>, socket: AdminSocket) -> Result<admin::Server, StartError> {
    let threads = threads.clone();
    socket.serve(|data, listener| admin::serve(data, listener, move |peer, text| carried_out(&threads, peer, text)))
}

/// The socket for administrators with a role, in a directory that they can reach.
fn listen_for_roles(data: &Path, directory: &Path) -> Result<AdminSocket, StartError> {
    let listen = || {
        std::fs::create_dir_all(directory)?;
        if directory.canonicalize()? == data.canonicalize()? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the data directory is its owner's alone: name another one",
            ));
        }
        admin::listen_to_all(directory)
    };
    AdminSocket::bind(directory, listen())
}

fn start_admin_of_roles(threads: &Arc<Threads>, socket: AdminSocket) -> Result<admin::Server, StartError> {
    let (threads, asked) = (threads.clone(), threads.manager.clone());
    let known = move |peer| overseer::role_of(&asked, peer).is_some();
    socket.serve(|directory, listener| {
        admin::serve_some(directory, listener, known, move |peer, text| carried_out(&threads, peer, text))
    })
}

fn carried_out(threads: &Threads, peer: admin::Peer, text: &str) -> Vec<mqsc::Reply> {
    overseen(threads, Overseer::new(&threads.manager, peer), mqsc::SHOWN_BYTES_MAX, text)
}

fn overseen(threads: &Threads, mut overseer: Overseer<'_>, shown_bytes_max: usize, text: &str) -> Vec<mqsc::Reply> {
    let is_logged = !overseer.is_for_holder();
    let mut replies = mqsc::execute_overseen(text, &mut overseer, shown_bytes_max, |command| {
        let administrator = Administrator::new(threads);
        command(&mut if is_logged { administrator } else { administrator.unlogged() })
    });
    overseer.finish(&mut replies);
    replies
}

/// The thread that does what comes over HTTP and no dispatcher does, and forgets answers that were kept long enough. It
/// ends with the last connection that could bring some.
fn start_commands(
    threads: &Arc<Threads>,
    asked: mpsc::Receiver<Asked>,
    kept_answers: KeptAnswers,
) -> io::Result<JoinHandle<()>> {
    let threads = threads.clone();
    std::thread::Builder::new().name("commands".into()).spawn(move || {
        role::begin(Role::Administration);
        loop {
            match asked.recv_timeout(kept_answers::LOOK_EVERY) {
                Ok(mut asked) => {
                    let answer = requests::carry_out(&threads, &mut asked);
                    asked.answer(answer);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            kept_answers.expire(threads.manager.clock.now());
        }
    })
}

fn start_definitions_writer(manager: &Arc<Manager>) -> io::Result<JoinHandle<()>> {
    let manager = manager.clone();
    std::thread::Builder::new().name("definitions".into()).spawn(move || {
        role::begin(Role::Administration);
        let write = |definitions: &Definitions, origin: &Origin| copy::write(&manager.data, definitions, origin);
        manager.definitions_writer.run(&manager, write);
    })
}

fn start_statistics(threads: &Arc<Threads>) -> io::Result<JoinHandle<()>> {
    let threads = threads.clone();
    std::thread::Builder::new().name("statistics".into()).spawn(move || {
        role::begin(Role::Administration);
        let manager = &threads.manager;
        let messages = || manager.lock().store.totals();
        let (busy_adapters, devices) = (|| manager.workers.adapters.busy_peak(), || manager.workers.devices.snapshot());
        let keep = |now| administrator::keep_traffic(&threads, now);
        manager.workers.tasks.look_until_stopped(busy_adapters, devices, messages, keep);
    })
}

/// A thread that looks at something again and again; it ends when this is dropped.
struct Watch {
    ends: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.ends.take());
        // What it died of stands in the log; nothing depends on it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Watch {
    fn begin(name: &str, every: Duration, mut look: impl FnMut() + Send + 'static) -> io::Result<Watch> {
        let (ends, ended) = mpsc::channel::<()>();
        let watch = move || {
            role::begin(Role::Administration);
            loop {
                look();
                if ended.recv_timeout(every) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(watch)?;
        Ok(Watch { ends: Some(ends), thread: Some(thread) })
    }
}

/// Looks when certificates and revocation lists end.
fn watch_certificates(threads: &Threads) -> io::Result<Watch> {
    let (manager, ends) = (threads.manager.clone(), threads.ends.clone());
    let mut watch = expiring_certificates::Watch::new(ends);
    Watch::begin("certificates", expiring_certificates::LOOK_EVERY, move || {
        watch.look(&manager, Instant::now(), SystemTime::now());
    })
}

/// Goes on with changes of keys, and looks for messages that no key opens.
fn watch_keys(manager: &Arc<Manager>) -> io::Result<Watch> {
    let (manager, mut keeper, mut stranded) = (manager.clone(), Keeper::default(), stranded::Watch::of(&manager.data));
    let mut missing_rings = missing_rings::Watch::default();
    Watch::begin("keys", keeper::LOOK_EVERY, move || {
        let (now, wall) = (Instant::now(), SystemTime::now());
        keeper.look(&manager, now, wall);
        stranded.watch(&manager, now, wall);
        missing_rings.watch(&manager, now, wall);
    })
}

/// Renews certificates.
fn watch_enrolment(threads: &Threads) -> io::Result<Watch> {
    let (manager, mut enroller) = (threads.manager.clone(), Enroller::new(threads.enrolments.clone()));
    Watch::begin("enrolment", enroller::LOOK_EVERY, move || enroller.look(manager.as_ref(), Instant::now()))
}

/// Goes on looking at what clients are kept away for.
fn watch_readiness(manager: &Arc<Manager>, mut readiness: ReadinessWatch) -> io::Result<Watch> {
    let manager = manager.clone();
    Watch::begin("readiness", readiness_watch::LOOK_EVERY, move || readiness.look(&manager, Instant::now()))
}

fn start_metrics(threads: &Arc<Threads>, listener: std::net::TcpListener) -> io::Result<metrics::Server> {
    let threads = threads.clone();
    metrics::serve(listener, move || counts(&threads))
}

/// What was counted, for Prometheus.
fn counts(threads: &Threads) -> metrics::Counts {
    let manager = &threads.manager;
    // In a statement of its own: the lock is taken again for what follows.
    let units = manager.lock().unit_totals.counts;
    let stranded = manager.stranded();
    let keys = metrics::KeySnapshot::new(stranded.missing.len(), &stranded.needed);
    drop(stranded);
    let ends = threads.ends.now().clone();
    let devices = manager.workers.devices.snapshot();
    let transits = devices.devices.iter().filter(|device| device.kind == bulla_device::Kind::Transit);
    let refused = manager.workers.devices.refused_tokens();
    let tokens = transits.map(|device| (device.name.clone(), refused.has(&device.name))).collect();
    let mut traffic = administrator::traffic(threads);
    traffic.without_series.certificates = ends.certificates_without_series;
    traffic.without_series.lists = ends.lists_without_series;
    traffic.without_series.keys = keys.needed_without_series;
    metrics::Counts {
        devices,
        tasks: manager.task_snapshot(),
        costs: manager.cost_snapshot(),
        traffic,
        units,
        audit: manager.told.audit.counts(),
        limits: administrator::limits(manager),
        enrolments: threads.enrolments.known(),
        ends,
        keys,
        log_ins: manager.sign_ins.sessions.counts(),
        health: metrics::HealthSnapshot { unready: manager.listening.readiness.causes().collect(), tokens },
    }
}

/// Opens the ports of clients and partners.
fn listen_to_clients(settings: &Settings) -> Result<Listeners, StartError> {
    if let Some(address) = settings.listen.http.filter(|address| !offered::is_private(address.ip())) {
        return Err(StartError::ClearHttp { address });
    }
    if settings.listen.amqps.or(settings.listen.https).is_some() {
        let directory = settings.data.join(TLS);
        // A certificate that came and was not put in place whole.
        tls_certificate::finish(&settings.data).map_err(|error| file(&directory, io::Error::other(error)))?;
        first_start::make_server_certificate(&settings.data)?;
        // A certificate that does not load shows here, and not at the first client.
        Tls::new(directory.clone()).session().map_err(|error| file(&directory, io::Error::other(error)))?;
    }
    Ok(Listeners {
        clear: settings.listen.amqp.map(listen).transpose()?,
        tls: settings.listen.amqps.map(listen).transpose()?,
        http: settings.listen.http.map(listen).transpose()?,
        https: settings.listen.https.map(listen).transpose()?,
        web: None,
    })
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).map_err(|error| not_listening(address, error))
}

fn listen_for_metrics(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(address).map_err(|error| not_listening(address, error))
}

fn not_listening(address: SocketAddr, error: io::Error) -> StartError {
    match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortInUse { address },
        _ => StartError::Listen { address, error },
    }
}

fn file(path: &Path, error: io::Error) -> StartError {
    StartError::File { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::{LogError, OpenError, StartError};

    #[test]
    fn a_full_disk_is_not_called_damage() {
        let hint = StartError::Journal(OpenError::Log(LogError::Full)).hint().unwrap();
        assert!(hint.contains("free space") && !hint.contains("damaged"), "{hint}");
    }
}
