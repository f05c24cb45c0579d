//! A queue manager of the benchmark's own: its process, its data directory, and what is defined in it.

use super::cases::{Case, dn};
use super::{Failure, Result};
use bulla::mqsc::reply::{Cell, Outcome, Row};
use bulla::mqsc::{DeviceMeters, DeviceState, Snapshot, admin};
use bulla_device::Kind;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Everybody's password: the queue manager listens on the loopback interface for as long as the run takes.
pub(crate) const PASSWORD: &str = "a password for a benchmark";
/// What starting, stopping and a device's self-test may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Messages a queue holds; the modes keep it far below.
const DEPTH_MAX: u32 = 1_000_000;

/// Which crypto devices the queue manager has beside the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Devices {
    /// How many accelerators.
    pub(crate) accelerators: usize,
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let accelerators = match text {
            "none" => Some(0),
            text => {
                text.strip_prefix("accel").and_then(|count| count.parse().ok()).filter(|count| (1..=8).contains(count))
            }
        };
        accelerators.map(|accelerators| Devices { accelerators }).ok_or_else(|| "none, or accel1 to accel8".to_owned())
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.accelerators {
            0 => f.write_str("none"),
            count => write!(f, "accel{count}"),
        }
    }
}

/// A running queue manager. Dropped, it is killed; its data directory goes with it.
pub(crate) struct Manager {
    program: PathBuf,
    data: tempfile::TempDir,
    process: Child,
    /// Where AMQP is spoken.
    pub(crate) address: String,
    /// Where it is spoken over TLS; empty for nowhere.
    pub(crate) tls_address: String,
    /// Its devices.
    pub(crate) devices: Devices,
}

/// How a queue manager is started.
pub(crate) struct Settings<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Further options of `bulla start`.
    pub(crate) options: &'a [String],
    /// Its devices.
    pub(crate) devices: Devices,
    /// Whether AMQP is spoken over TLS, too.
    pub(crate) tls: bool,
}

impl Manager {
    /// Starts one with users and certificates for all cases.
    pub(crate) fn start(settings: &Settings<'_>, cases: &[Case]) -> Result<Manager> {
        let program = std::env::var_os("BULLA").map_or_else(|| env!("CARGO_BIN_EXE_bulla").into(), PathBuf::from);
        let data = tempfile::tempdir()?;
        let mut command = Command::new(&program);
        let amqps = if settings.tls { "127.0.0.1:0" } else { "none" };
        command.args(["start", "--name", settings.name, "--amqp", "127.0.0.1:0", "--amqps", amqps, "--data"]);
        command.arg(data.path()).args(settings.options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let process = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let (address, tls_address) = (String::new(), String::new());
        let mut manager = Manager { program, data, process, address, tls_address, devices: settings.devices };
        let log = manager.process.stderr.take().ok_or("the queue manager has no log")?;
        (manager.address, manager.tls_address) = addresses(log, settings.tls)?;
        manager.add_people(cases)?;
        manager.set_up_devices()?;
        Ok(manager)
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The library that its accelerators open: it lies beside the program.
    pub(crate) fn lanes(&self) -> PathBuf {
        self.program.with_file_name(bulla_device::LIBRARY_FILE)
    }

    /// The key ring of a user.
    pub(crate) fn ring(&self, user: &str) -> PathBuf {
        self.data.path().join("rings").join(user)
    }

    /// A queue for the case, with its policy.
    pub(crate) fn define(&self, case: &Case) -> Result<String> {
        let queue = case.queue();
        let (putter, getter) = case.users();
        self.define_queue(case, &queue, &putter, &getter)?;
        Ok(queue)
    }

    /// A queue of this name on which `putter` puts for `getter` under the case's policy.
    pub(crate) fn define_queue(&self, case: &Case, queue: &str, putter: &str, getter: &str) -> Result<()> {
        self.mqsc(&format!("DEFINE QLOCAL('{queue}') MAXDEPTH({DEPTH_MAX}) REPLACE"))?;
        if let Some(policy) = case.policy(&format!("'{queue}'"), putter, getter) {
            self.mqsc(&policy)?;
        }
        Ok(())
    }

    /// Carries commands out.
    pub(crate) fn mqsc(&self, text: &str) -> Result<Vec<bulla::mqsc::Reply>> {
        let replies = admin::request(self.data.path(), text)?;
        match replies.iter().find(|reply| matches!(reply.outcome, Outcome::Failed(_))) {
            Some(failed) => Err(format!("{text}: {}", failed.diagnostics(None).join("; ")).into()),
            None => Ok(replies),
        }
    }

    /// Carries a DISPLAY command out: its rows.
    pub(crate) fn rows(&self, text: &str) -> Result<Vec<Row>> {
        match self.mqsc(text)?.into_iter().next().map(|reply| reply.outcome) {
            Some(Outcome::Rows(rows)) => Ok(rows),
            _ => Err(format!("{text} gave no rows").into()),
        }
    }

    /// How many messages are on a queue.
    pub(crate) fn depth(&self, queue: &str) -> Result<u64> {
        let rows = self.rows(&format!("DISPLAY QSTATUS('{queue}')"))?;
        rows.first().and_then(|row| number(row, "CURDEPTH")).ok_or_else(|| format!("{queue} has no depth").into())
    }

    /// What the devices did so far.
    pub(crate) fn meters(&self) -> Result<Snapshot> {
        let replies = self.mqsc("DISPLAY DEVSTATUS(*) ALL")?;
        match replies.first().map(|reply| &reply.outcome) {
            Some(Outcome::Rows(rows)) => Snapshot::from_rows(rows).map_err(|error| error.to_string().into()),
            _ => Err("DISPLAY DEVSTATUS gave no rows".into()),
        }
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(format!("the queue manager ended with {status}").into())
                };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the queue manager does not stop".into())
    }

    /// Runs the program on its data directory.
    pub(crate) fn bulla(&self, arguments: &[&str], input: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--data").arg(self.data.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("bulla {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
    }

    /// For each key two users who know each other. Their names exist without a key, too.
    fn add_people(&self, cases: &[Case]) -> Result<()> {
        self.bulla(&["cert", "create", "--ca", "bench", "--dn", "CN=Authority,O=Bench", "--key", "p256"], "")?;
        let unprotected = Case::unprotected();
        let mut seen = BTreeSet::new();
        for case in cases.iter().chain([&unprotected]) {
            if !seen.insert(&case.key) {
                continue;
            }
            let (putter, getter) = case.users();
            for user in [&putter, &getter] {
                self.bulla(&["user", "add", user], &format!("{PASSWORD}\n"))?;
                let mut folder = std::fs::DirBuilder::new();
                folder.recursive(true).mode(0o700).create(self.ring(user))?;
            }
            if case.key.is_empty() {
                continue;
            }
            for (user, other) in [(&putter, &getter), (&getter, &putter)] {
                let (dn, key) = (dn(user), case.key.as_str());
                let what = ["--key", key, "--signer", "bench", "--share", other];
                self.bulla(&[&["cert", "create", "--ring", user, "--dn", &dn][..], &what].concat(), "")?;
            }
        }
        Ok(())
    }

    /// A new queue manager has one accelerator; here there are as many as asked for, and each must run.
    fn set_up_devices(&self) -> Result<()> {
        for number in 2..=self.devices.accelerators {
            self.mqsc(&format!("DEFINE DEVICE(ACCEL{number}) TYPE(ACCELERATOR)"))?;
            self.mqsc(&format!("START DEVICE(ACCEL{number})"))?;
        }
        if self.devices.accelerators == 0 {
            return if self.accelerators()?.is_empty() { Ok(()) } else { self.mqsc("STOP DEVICE(ACCEL1)").map(drop) };
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let accelerators = self.accelerators()?;
            let running = accelerators.iter().filter(|device| device.state == DeviceState::Running).count();
            if running == self.devices.accelerators {
                return Ok(());
            }
            if Instant::now() > deadline {
                let reasons: Vec<String> = accelerators.into_iter().filter_map(|device| device.reason).collect();
                return Err(format!("skipped: {running} accelerators run: {}", reasons.join("; ")).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The accelerators that are not stopped.
    fn accelerators(&self) -> Result<Vec<DeviceMeters>> {
        let mut devices = self.meters()?.devices;
        devices.retain(|device| device.kind == Kind::Accelerator && device.state != DeviceState::Stopped);
        Ok(devices)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Ended in order it is gone already, and this does nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A number in a row.
pub(crate) fn number(row: &Row, keyword: &str) -> Option<u64> {
    row.cells.iter().find(|(name, _)| name == keyword).and_then(|(_, cell)| match cell {
        Cell::Number(number) | Cell::Pair(number, _) => Some(*number),
        _ => None,
    })
}

/// A word in a row.
pub(crate) fn word<'a>(row: &'a Row, keyword: &str) -> Option<&'a str> {
    row.cells.iter().find(|(name, _)| name == keyword).and_then(|(_, cell)| match cell {
        Cell::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

/// Waits for the lines that say where AMQP is spoken, in clear and over TLS, and goes on reading what follows.
fn addresses(log: ChildStderr, tls: bool) -> Result<(String, String)> {
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new().name("log".into()).spawn(move || {
        let mut log = BufReader::new(log);
        let mut lines = String::new();
        while log.read_line(&mut lines).is_ok_and(|bytes| bytes > 0) {
            let find = |word: &str| lines.lines().find_map(|line| Some(line.split_once(word)?.1.to_owned()));
            if let (Some(clear), Some(tls)) = (find(" amqp on "), find(" amqps on ").or((!tls).then(String::new))) {
                let _ = send.send(Ok((clear, tls)));
                // What is said later is of no interest, but somebody must read it.
                let _ = std::io::copy(&mut log.by_ref(), &mut std::io::sink());
                return;
            }
        }
        let _ = send.send(Err(lines));
    })?;
    let said = receive.recv_timeout(PATIENCE).map_err(|_| "the queue manager does not start")?;
    said.map_err(|log| Failure::from(format!("the queue manager did not start:\n{log}")))
}

/// A ring of the queue manager's, read by this process.
pub(crate) fn load_ring(path: &Path) -> Result<std::sync::Arc<bulla_seal::ring::Ring>> {
    Ok(std::sync::Arc::new(bulla_seal::ring::Ring::load(path, None)?))
}
