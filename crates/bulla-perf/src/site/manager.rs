//! A queue manager of our own: its process, its data directory, and what is defined in it.

use super::{Card, Devices, Place, dn, policy, queue_name};
use crate::configuration::{Configuration, Quality};
use crate::error::{Error, Result};
use crate::host::{Host, Row};
use crate::load::client::Broker;
use crate::run::meters::Watched;
use bulla_amqp::SaslClient;
use bulla_client::Endpoint;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// All users' password: the queue manager listens on the loopback interface for as long as the run takes.
pub const PASSWORD: &str = "a password for a measurement";
/// Rounds of PBKDF2 of that password: sign-ins are not what is measured.
const FEW_ROUNDS: &str = "4096";
/// Every user who signs in may do everything, and so may channels: authority costs the same whatever the records say.
const GRANTS: &str = "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)\n\
    SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(ALL)\n";
/// What starting, stopping and a device's self-test may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked whether something has come about.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Messages a queue holds, unless the settings say otherwise.
const DEPTH_MAX: u32 = 1_000_000;
/// Longest message that a queue takes, in bytes: as long as there are.
const MESSAGE_BYTES_MAX: u32 = 100 << 20;
/// Where Linux distributions put SoftHSM's module.
const SOFTHSM_MODULES: [&str; 4] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib64/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
];

/// How a queue manager is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Its devices.
    pub devices: Devices,
    /// CHIDISPS; 0 for the default.
    pub dispatchers: u32,
    /// CHIADAPS; 0 for the default.
    pub adapters: u32,
    /// Whether places are reached over TLS.
    pub tls: bool,
    /// Whether clients seal and open for themselves.
    pub client_seal: bool,
    /// Whether keys on curves are to be used beside modelled accelerators, which can do nothing with them: the
    /// processor then goes on with private keys' work, and with RSA's, too.
    pub curves: bool,
    /// Whether modelled accelerators and coprocessors share the work as the published ones do: signatures and curves on
    /// coprocessors, all else of RSA on accelerators.
    pub split: bool,
    /// Messages a queue holds.
    pub depth_max: u32,
    /// Whether HTTPS is spoken, too.
    pub https: bool,
    /// Further options of `bulla start`.
    pub options: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            name: "PERF".to_owned(),
            devices: Devices::default(),
            dispatchers: 0,
            adapters: 0,
            tls: false,
            client_seal: false,
            curves: false,
            split: false,
            depth_max: DEPTH_MAX,
            https: false,
            options: Vec::new(),
        }
    }
}

/// A running queue manager. Dropped, it is killed; its data directory goes with it.
pub struct Manager<'h> {
    host: &'h dyn Host,
    process: Child,
    data: tempfile::TempDir,
    settings: Settings,
    /// Where AMQP is spoken in clear.
    pub address: String,
    /// Where it is spoken over TLS.
    pub tls_address: String,
    /// Where HTTPS is spoken; empty where it is not.
    pub https_address: String,
    /// Who may connect.
    signed_up: BTreeSet<String>,
    /// Of them, those who have all that they need.
    users: BTreeSet<String>,
    /// What has been defined.
    queues: BTreeSet<String>,
    /// SoftHSM's configuration for this process and its tokens, where there are any.
    tokens: Option<PathBuf>,
}

impl std::fmt::Debug for Manager<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager")
            .field("settings", &self.settings)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl<'h> Manager<'h> {
    /// Starts one, with its devices at work.
    ///
    /// # Errors
    /// [`Error::Manager`]: it did not start; [`Error::Device`]: this machine has no such device.
    pub fn start(host: &'h dyn Host, settings: &Settings) -> Result<Manager<'h>> {
        let data = tempfile::Builder::new().prefix("bulla-perf-").tempdir()?;
        let tokens = if settings.devices.keeps_keys() { Some(make_tokens(data.path(), settings)?) } else { None };
        let (process, listens) = launch(host, data.path(), settings, tokens.as_deref())?;
        let Listens { amqp: address, amqps: tls_address, https: https_address } = listens;
        let mut manager = Manager {
            host,
            process,
            data,
            settings: settings.clone(),
            address,
            tls_address,
            https_address,
            signed_up: BTreeSet::new(),
            users: BTreeSet::new(),
            queues: BTreeSet::new(),
            tokens,
        };
        manager.bulla(&["cert", "create", "--ca", "perf", "--dn", "CN=Authority,O=Perf", "--key", "p256"], "")?;
        manager.set_up_devices()?;
        manager.mqsc(GRANTS)?;
        Ok(manager)
    }

    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What a sample looks at.
    #[must_use]
    pub fn watched(&self) -> Watched {
        Watched { name: self.settings.name.clone(), pid: Some(self.pid()), data: Some(self.data().to_owned()) }
    }

    /// The key ring of a user.
    #[must_use]
    pub fn ring(&self, user: &str) -> PathBuf {
        self.data().join("rings").join(user)
    }

    /// How that user connects: by SCRAM, because the queue manager uses a key ring only for a user it knows.
    #[must_use]
    pub fn broker(&self, user: &str) -> Broker {
        let sasl = SaslClient::Scram { user: user.to_owned(), password: PASSWORD.to_owned() };
        let (address, authorities) = match self.settings.tls {
            // The certificate that a new queue manager makes for itself is for this name.
            true => {
                let port = self.tls_address.rsplit_once(':').map_or("", |(_, port)| port);
                (format!("localhost:{port}"), Some(self.data().join("tls/ca.pem")))
            }
            false => (self.address.clone(), None),
        };
        Broker { endpoint: Endpoint { address, authorities, certificate: None, sasl }, sealing: None }
    }

    /// As [`broker`](Self::broker), with the user's own ring where clients seal for themselves.
    ///
    /// # Errors
    /// What [`Host::sealing`] refuses.
    pub fn seat(&self, user: &str) -> Result<Broker> {
        let ring = self.settings.client_seal.then(|| self.ring(user));
        let sealing = ring.map(|ring| self.host.sealing(&ring)).transpose()?;
        Ok(Broker { sealing, ..self.broker(user) })
    }

    /// Carries commands out, one a line.
    ///
    /// # Errors
    /// [`Error::Manager`]: it refused one.
    pub fn mqsc(&self, commands: &str) -> Result<()> {
        self.host.command(self.data(), commands)
    }

    /// Carries a DISPLAY command out.
    ///
    /// # Errors
    /// [`Error::Manager`]: it refused.
    pub fn rows(&self, command: &str) -> Result<Vec<Row>> {
        self.host.display(self.data(), command)
    }

    /// How many messages are on a queue.
    ///
    /// # Errors
    /// [`Error::Manager`]: there is no such queue.
    pub fn depth(&self, queue: &str) -> Result<u64> {
        let rows = self.rows(&format!("DISPLAY QSTATUS('{queue}')"))?;
        let depth = rows.first().and_then(|row| row.get("CURDEPTH")).and_then(serde_json::Value::as_u64);
        depth.ok_or_else(|| Error::Manager(format!("{queue} has no depth")))
    }

    /// A user of that name with a password, an empty ring, and a certificate where a key is asked for; once for each
    /// name.
    ///
    /// # Errors
    /// [`Error::Device`]: the key is none that certificates are made for, or that the token makes.
    pub fn add_user(&mut self, user: &str, key: &str) -> Result<()> {
        if self.users.contains(user) {
            return Ok(());
        }
        if !self.signed_up.contains(user) {
            self.bulla(&["user", "add", user, "--rounds", FEW_ROUNDS], &format!("{PASSWORD}\n"))?;
            self.signed_up.insert(user.to_owned());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.ring(user))?;
        if !key.is_empty() {
            let dn = dn(user);
            for (key, usage) in super::keys(key) {
                let mut arguments =
                    vec!["cert", "create", "--ring", user, "--dn", &dn, "--key", &key, "--signer", "perf"];
                if let Some(usage) = usage {
                    arguments.extend(["--usage", usage]);
                }
                if self.settings.devices.keeps_keys() {
                    arguments.extend(["--device", "COPROC1"]);
                }
                // A key that no certificate is made for can't be had here, whatever else can.
                self.bulla(&arguments, "").map_err(|error| match error {
                    Error::Manager(why) => Error::Device(format!("{key}: {why}")),
                    error => error,
                })?;
            }
        }
        self.users.insert(user.to_owned());
        Ok(())
    }

    /// Makes a user's certificate known to another.
    ///
    /// # Errors
    /// [`Error::File`]: a ring that can't be read or written.
    pub fn introduce(&self, user: &str, to: &str) -> Result<()> {
        let (own, people) = (self.ring(user).join("own"), self.ring(to).join("people"));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&people)
            .map_err(|error| Error::file(&people, error))?;
        for (at, entry) in fs::read_dir(&own).map_err(|error| Error::file(&own, error))?.enumerate() {
            let path = entry?.path();
            let text = fs::read_to_string(&path).map_err(|error| Error::file(&path, error))?;
            let Some(certificate) = certificate(&text) else { continue };
            let target = people.join(format!("{user}-{at}.pem"));
            let mut file = fs::OpenOptions::new();
            let written = file
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&target)
                .and_then(|mut file| file.write_all(certificate.as_bytes()));
            written.map_err(|error| Error::file(&target, error))?;
        }
        Ok(())
    }

    /// Those who put and get with keys of that kind, who know each other: the putter, and so many recipients, of whom
    /// the first is the getter.
    ///
    /// # Errors
    /// As [`add_user`](Self::add_user).
    pub fn people(&mut self, key: &str, recipients: u32) -> Result<(String, Vec<String>)> {
        let called = if key.is_empty() { "any".to_owned() } else { key.replace(super::BOTH, "-") };
        let putter = format!("putter-{called}");
        let mut names = vec![format!("getter-{called}")];
        names.extend((2..=recipients).map(|number| format!("getter-{called}-{number}")));
        for (at, user) in [&putter].into_iter().chain(&names).enumerate() {
            if self.users.contains(user.as_str()) {
                continue;
            }
            self.add_user(user, key)?;
            if !key.is_empty() && at > 0 {
                self.introduce(user, &putter)?;
                self.introduce(&putter, user)?;
            }
        }
        Ok((putter, names))
    }

    /// A queue for the configuration, with users, certificates and policy, and the users that put and get there.
    /// `number` tells queues of one configuration apart; one that is there stays as it is.
    ///
    /// # Errors
    /// [`Error::Manager`]: the queue manager refuses the key or the policy.
    pub fn define(&mut self, configuration: &Configuration, number: u32) -> Result<Place> {
        let queue = queue_name(configuration, number);
        let key = if configuration.quality == Quality::None { "" } else { &configuration.key };
        let (putter, recipients) = self.people(key, configuration.recipients.max(1))?;
        self.define_queue(configuration, &queue, &putter, &recipients)?;
        let getter = recipients.first().ok_or_else(|| Error::Usage("a message without a recipient".to_owned()))?;
        let seat = |user: &str| match configuration.quality {
            Quality::None => Ok(self.broker(user)),
            _ => self.seat(user),
        };
        let (putter, getter) = (seat(&putter)?, seat(getter)?);
        Ok(Place { queue, putter, getter, watched: self.watched() })
    }

    /// A queue of this name on which `putter` puts for the recipients under the configuration's policy.
    ///
    /// # Errors
    /// [`Error::Manager`]: the queue manager refuses it.
    pub fn define_queue(
        &mut self,
        configuration: &Configuration,
        queue: &str,
        putter: &str,
        recipients: &[String],
    ) -> Result<()> {
        if self.queues.contains(queue) {
            return Ok(());
        }
        let depth_max = self.settings.depth_max;
        let mut commands = format!(
            "DEFINE QLOCAL('{queue}') MAXDEPTH({depth_max}) MAXMSGL({MESSAGE_BYTES_MAX}) FULL(REJECT) REPLACE\n"
        );
        commands.extend(policy(configuration, queue, putter, recipients));
        self.mqsc(&commands)?;
        self.queues.insert(queue.to_owned());
        Ok(())
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// [`Error::Manager`]: it did not end, or not well.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| Error::System(error.into()))?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(Error::Manager(format!("queue manager {} ended with {status}", self.settings.name)))
                };
            }
            std::thread::sleep(ASK_EVERY);
        }
        Err(Error::Manager(format!("queue manager {} does not stop", self.settings.name)))
    }

    /// Ends it and starts it again on the same data, with what only a start brings about.
    fn restart(&mut self) -> Result<()> {
        self.end()?;
        let (process, listens) = launch(self.host, self.data.path(), &self.settings, self.tokens.as_deref())?;
        self.process = process;
        (self.address, self.tls_address, self.https_address) = (listens.amqp, listens.amqps, listens.https);
        Ok(())
    }

    /// Runs the program on its data directory, with so much on its standard input.
    ///
    /// # Errors
    /// [`Error::Manager`] with what the program said.
    pub fn bulla(&self, arguments: &[&str], input: &str) -> Result<()> {
        let mut command = Command::new(self.host.program());
        command.args(arguments).arg("--data").arg(self.data());
        if let Some(tokens) = &self.tokens {
            command.env("SOFTHSM2_CONF", tokens);
        }
        run(&mut command, input)
    }

    /// A new queue manager has one accelerator, ACCEL1; here there are those that were asked for, and each must run.
    fn set_up_devices(&mut self) -> Result<()> {
        let devices = self.settings.devices.clone();
        if devices.software {
            self.mqsc("ALTER DEVICE(CPU) TYPE(SOFTWARE)")?;
            self.restart()?;
        }
        if devices.modelled || devices.accelerators == 0 {
            // Away for good: it must not come back with the next start.
            self.mqsc("STOP DEVICE(ACCEL1)\nDELETE DEVICE(ACCEL1)")?;
        }
        let mut commands = String::new();
        for (name, card) in devices.cards() {
            let kind = match (devices.modelled, card) {
                (true, Card::Accelerator) => "TYPE(MODELLED) PROFILE(ACCELERATOR)".to_owned(),
                (true, Card::Coprocessor) => "TYPE(MODELLED) PROFILE(COPROCESSOR)".to_owned(),
                // That one is there.
                (false, Card::Accelerator) if name == "ACCEL1" => continue,
                (false, Card::Accelerator) => "TYPE(ACCELERATOR)".to_owned(),
                (false, Card::Coprocessor) => token_of(self.data(), &name)?,
            };
            let share = match card {
                _ if !self.settings.split || !devices.is_mixed() => "",
                Card::Accelerator => " OPERATIONS(RSAVERIFY, RSAWRAP, RSAUNWRAP)",
                Card::Coprocessor => " OPERATIONS(SIGN, ECVERIFY, ECWRAP, ECUNWRAP)",
            };
            commands.push_str(&format!("DEFINE DEVICE('{name}') {kind}{share}\nSTART DEVICE('{name}')\n"));
        }
        if !commands.is_empty() {
            self.mqsc(&commands)?;
        }
        self.wait_for_devices(&devices)?;
        if devices.modelled && (devices.coprocessors > 0 || !self.settings.curves) {
            // What the cards could do, the processor would do sooner: it is kept away, because the processor that cards
            // spare is what is asked for.
            self.mqsc("STOP DEVICE(CPU)")?;
        }
        Ok(())
    }

    /// Gives its modelled accelerators other service times, as `SERVICE` has them.
    ///
    /// # Errors
    /// [`Error::Manager`]: they are none; [`Error::Device`]: one does not come back.
    pub(crate) fn set_service_times(&self, devices: &Devices, times: &str) -> Result<()> {
        let mut commands = String::new();
        for (name, _) in devices.cards().filter(|(_, card)| *card == Card::Accelerator) {
            commands.push_str(&format!(
                "STOP DEVICE('{name}')\nALTER DEVICE('{name}') SERVICE('{times}')\nSTART DEVICE('{name}')\n"
            ));
        }
        self.mqsc(&commands)?;
        self.wait_for_devices(devices)
    }

    fn wait_for_devices(&self, devices: &Devices) -> Result<()> {
        let wanted: BTreeSet<String> = devices.cards().map(|(name, _)| name).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rows = self.rows("DISPLAY DEVICE(*) ALL")?;
            let text = |row: &Row, keyword: &str| -> String {
                row.get(keyword).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
            };
            let waiting: Vec<&Row> = rows
                .iter()
                .filter(|row| wanted.contains(&text(row, "DEVICE")) && text(row, "STATUS") != "RUNNING")
                .collect();
            if waiting.is_empty() {
                return Ok(());
            }
            let gave_up = waiting.iter().any(|row| matches!(text(row, "STATUS").as_str(), "OFFLINE" | "FAILED"));
            if gave_up || Instant::now() > deadline {
                let reasons: Vec<String> =
                    waiting.iter().map(|row| format!("{} {}", text(row, "DEVICE"), text(row, "REASON"))).collect();
                return Err(Error::Device(format!("{devices} is not to be had here: {}", reasons.join("; "))));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

impl Drop for Manager<'_> {
    fn drop(&mut self) {
        // Ended in order it is gone already, and this does nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The first certificate of a PEM file, without what else is in it.
fn certificate(text: &str) -> Option<&str> {
    /// The last line of one.
    const END: &str = "-----END CERTIFICATE-----\n";
    let begin = text.find("-----BEGIN CERTIFICATE-----")?;
    let end = begin + text.get(begin..)?.find(END)? + END.len();
    text.get(begin..end)
}

/// Where a queue manager listens.
#[derive(Debug, Default)]
struct Listens {
    amqp: String,
    amqps: String,
    https: String,
}

/// Starts the process: itself, and where it listens.
fn launch(host: &dyn Host, data: &Path, settings: &Settings, tokens: Option<&Path>) -> Result<(Child, Listens)> {
    let mut command = Command::new(host.program());
    command.args(["start", "--name", &settings.name, "--amqp", "127.0.0.1:0", "--amqps", "127.0.0.1:0", "--data"]);
    command.arg(data);
    for (option, count) in [("--dispatchers", settings.dispatchers), ("--adapters", settings.adapters)] {
        if count > 0 {
            command.arg(option).arg(count.to_string());
        }
    }
    if settings.https {
        command.args(["--https", "127.0.0.1:0"]);
    }
    command.args(&settings.options);
    if let Some(tokens) = tokens {
        command.env("SOFTHSM2_CONF", tokens);
    }
    // A group of its own: Ctrl-C at the terminal is for the one who measures, who then ends it in order. Whatever ends
    // the one who measures closes this pipe, of which `process` holds the other end.
    command.arg("--until-stdin-closes");
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process =
        command.spawn().map_err(|error| Error::Manager(format!("{}: {error}", host.program().display())))?;
    let found = match process.stderr.take() {
        Some(log) => addresses(log, settings.https),
        None => Err(Error::Manager("the queue manager has no log".to_owned())),
    };
    match found {
        Ok(listens) => Ok((process, listens)),
        Err(error) => {
            let _ = process.kill();
            let _ = process.wait();
            Err(error)
        }
    }
}

/// Waits for the lines that say where AMQP is spoken, in clear and over TLS, and HTTPS where it is to be; goes on
/// reading what follows.
fn addresses(log: ChildStderr, https: bool) -> Result<Listens> {
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new().name("log".into()).spawn(move || {
        let mut log = BufReader::new(log);
        let mut lines = String::new();
        while log.read_line(&mut lines).is_ok_and(|bytes| bytes > 0) {
            let find = |word: &str| lines.lines().find_map(|line| Some(line.split_once(word)?.1.to_owned()));
            let third = if https { find(" https on ") } else { Some(String::new()) };
            if let (Some(amqp), Some(amqps), Some(https)) = (find(" amqp on "), find(" amqps on "), third) {
                let _ = send.send(Ok(Listens { amqp, amqps, https }));
                // What is said later is of no interest, but it must be read.
                let _ = std::io::copy(&mut log.by_ref(), &mut std::io::sink());
                return;
            }
        }
        let _ = send.send(Err(lines));
    })?;
    let said = receive.recv_timeout(PATIENCE).map_err(|_| Error::Manager("the queue manager does not start".into()))?;
    said.map_err(|log| Error::Manager(format!("the queue manager did not start: {}", log.trim())))
}

/// Runs a program to its end.
fn run(command: &mut Command, input: &str) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let program = command.get_program().to_owned();
    let mut child = command.spawn().map_err(|error| Error::Manager(format!("{}: {error}", program.display())))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that reads nothing says why, if it matters.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().next().unwrap_or_default();
    Err(Error::Manager(said.strip_prefix("bulla: error: ").unwrap_or(said).to_owned()))
}

/// SoftHSM's tokens of a queue manager, in a folder of its data directory; its configuration file. All coprocessors are
/// the same token, so that each can use every key, like cards of one master key.
fn make_tokens(data: &Path, settings: &Settings) -> Result<PathBuf> {
    if module().is_none() {
        let devices = &settings.devices;
        return Err(Error::Device(format!(
            "{devices} is not to be had here: no PKCS#11 token; SoftHSM2 is one in software"
        )));
    }
    let folder = data.join("tokens");
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| Error::file(&folder, error))?;
    let configuration = data.join("softhsm2.conf");
    let text = format!("directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n", folder.display());
    fs::write(&configuration, text).map_err(|error| Error::file(&configuration, error))?;
    let pin = data.join("token.pin");
    let mut file = fs::OpenOptions::new();
    let written =
        file.create_new(true).write(true).mode(0o600).open(&pin).and_then(|mut file| file.write_all(b"1234\n"));
    written.map_err(|error| Error::file(&pin, error))?;
    let mut command = Command::new("softhsm2-util");
    command.args(["--init-token", "--free", "--label", "perf", "--pin", "1234", "--so-pin", "1234"].map(OsStr::new));
    run(command.env("SOFTHSM2_CONF", &configuration), "")?;
    Ok(configuration)
}

fn module() -> Option<&'static Path> {
    SOFTHSM_MODULES.iter().map(Path::new).find(|path| path.exists())
}

/// The definition of a coprocessor that is SoftHSM's token.
fn token_of(data: &Path, name: &str) -> Result<String> {
    let module = module().ok_or_else(|| Error::Device(format!("{name}: no PKCS#11 module")))?;
    Ok(format!(
        "TYPE(COPROCESSOR) MODULE('{}') TOKEN('pkcs11:token=perf') PINFILE('{}') ENGINES(2)",
        module.display(),
        data.join("token.pin").display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_taken_without_the_key_beside_it() {
        let one = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n";
        let text = format!("-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n{one}{one}");
        assert_eq!(certificate(&text), Some(one));
        assert_eq!(certificate("nothing"), None);
    }
}
