//! Two queue managers, QM1 and QM2, with certificates of one authority for TLS between them.

use crate::common::Result;
use crate::common::cases::Case;
use crate::common::manager::{Manager, Settings, number, word};
use crate::common::processor;
use crate::{Options, common};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Mebibytes of message bodies that each holds in memory: what is drained stays there.
const MEMORY_MIB: u32 = 4096;
/// Messages a queue holds.
const DEPTH_MAX: u32 = 10_000_000;
/// What a channel may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a queue manager believes that files of keys and certificates have not changed, and a little more.
pub(crate) const FILES_SEEN: Duration = Duration::from_millis(1_200);

/// Two queue managers. Names of channels, queues and transmission queues are up to each part.
pub(crate) struct Site {
    pub(crate) one: Manager,
    pub(crate) two: Manager,
}

/// A sender at one queue manager and its receiver at the other.
#[derive(Clone, Copy)]
pub(crate) struct Channel<'a> {
    /// The channel, and its transmission queue.
    pub(crate) name: &'a str,
    /// From QM1 to QM2, or the other way.
    pub(crate) forth: bool,
    /// SSLCIPH; none for no TLS.
    pub(crate) cipher: Option<&'a str>,
    /// Further attributes of the sender, and of the receiver.
    pub(crate) sender: &'a str,
    pub(crate) receiver: &'a str,
}

impl Site {
    /// Starts both, with users and certificates for all cases on each.
    pub(crate) fn start(options: &Options, cases: &[Case]) -> Result<Site> {
        let mut further = vec![format!("--memory={MEMORY_MIB}")];
        further.extend(options.start.iter().cloned());
        let start = |name| {
            let settings = Settings { name, options: &further, devices: options.devices, tls: true };
            Manager::start(&settings, cases)
        };
        let site = Site { one: start("QM1")?, two: start("QM2")? };
        site.one.bulla(&["cert", "create", "--ca", "tls", "--dn", "CN=TLS,O=Bench", "--key", "rsa2048"], "")?;
        for (manager, name) in [(&site.one, "QM1"), (&site.two, "QM2")] {
            site.certify(manager, name)?;
            manager.mqsc("ALTER QMGR MAXCHL(9999) ACTCHL(9999)")?;
        }
        std::thread::sleep(FILES_SEEN);
        Ok(site)
    }

    /// Gives a queue manager an RSA 2048 certificate for both ends of TLS.
    fn certify(&self, manager: &Manager, name: &str) -> Result<()> {
        let ring = self.one.data().join(format!("certificate-{name}"));
        let ring_text = ring.to_str().ok_or("a folder's name is not UTF-8")?;
        let dn = format!("CN={name},O=Bench");
        self.one.bulla(
            &[
                "cert",
                "create",
                "--ring",
                ring_text,
                "--dn",
                &dn,
                "--key",
                "rsa2048",
                "--signer",
                "tls",
                "--san",
                "ip:127.0.0.1",
                "--label",
                "server",
                "--usage",
                "handshake",
            ],
            "",
        )?;
        let tls = manager.data().join("tls");
        let own = read(&ring.join("own/server.pem"))?;
        fs::write(tls.join("server.pem"), &own)?;
        fs::write(tls.join("server.key"), &own)?;
        let mut authorities = Vec::new();
        for entry in fs::read_dir(ring.join("trust"))? {
            authorities.extend(read(&entry?.path())?);
        }
        fs::write(tls.join("clients.pem"), &authorities)?;
        Ok(())
    }

    /// From now on whoever calls has no certificate to show. Whoever is called goes on with the one it had: certificates
    /// that can't be read do not replace those in use, so every CipherSpec must have been used by then.
    pub(crate) fn take_certificates_away(&self) -> Result<()> {
        for manager in [&self.one, &self.two] {
            fs::remove_file(manager.data().join("tls/server.pem"))?;
            fs::remove_file(manager.data().join("tls/server.key"))?;
        }
        std::thread::sleep(FILES_SEEN);
        Ok(())
    }

    /// Gives QM2 a user's key ring as QM1 has it.
    pub(crate) fn share_ring(&self, user: &str) -> Result<()> {
        let (from, to) = (self.one.ring(user), self.two.ring(user));
        fs::remove_dir_all(&to)?;
        copy(&from, &to)
    }

    /// The end that sends, and the end that receives.
    pub(crate) fn ends(&self, forth: bool) -> (&Manager, &Manager) {
        if forth { (&self.one, &self.two) } else { (&self.two, &self.one) }
    }

    /// Defines both ends of a channel, and the transmission queue of its name.
    pub(crate) fn define(&self, channel: &Channel<'_>) -> Result<()> {
        let (from, to) = self.ends(channel.forth);
        let name = channel.name;
        let (cipher, address) = match channel.cipher {
            Some(cipher) => (format!("SSLCIPH('{cipher}')"), &to.tls_address),
            None => (String::new(), &to.address),
        };
        let (host, port) = address.rsplit_once(':').ok_or("an address without a port")?;
        from.mqsc(&format!("DEFINE QLOCAL('{name}') USAGE(XMITQ) MAXDEPTH({DEPTH_MAX})"))?;
        from.mqsc(&format!(
            "DEFINE CHANNEL('{name}') CHLTYPE(SDR) CONNAME('{host}({port})') XMITQ('{name}') {cipher} {}",
            channel.sender
        ))?;
        to.mqsc(&format!("DEFINE CHANNEL('{name}') CHLTYPE(RCVR) {cipher} {}", channel.receiver))?;
        Ok(())
    }

    /// Defines the queue at the receiving end, and its remote queue at the sending end; both have that name.
    pub(crate) fn define_queue(&self, channel: &Channel<'_>, queue: &str) -> Result<()> {
        let (from, to) = self.ends(channel.forth);
        let manager = if channel.forth { "QM2" } else { "QM1" };
        to.mqsc(&format!("DEFINE QLOCAL('{queue}') MAXDEPTH({DEPTH_MAX})"))?;
        let name = channel.name;
        from.mqsc(&format!("DEFINE QREMOTE('{queue}') RNAME('{queue}') RQMNAME({manager}) XMITQ('{name}')"))?;
        Ok(())
    }

    /// Starts a channel and waits until it runs.
    pub(crate) fn run(&self, channel: &Channel<'_>) -> Result<()> {
        let (from, _) = self.ends(channel.forth);
        from.mqsc(&format!("START CHANNEL('{}')", channel.name))?;
        wait(|| Ok(status(from, channel.name)?.is_some_and(|row| word(&row, "STATUS") == Some("RUNNING"))))
            .map_err(|failure| format!("{} does not run: {failure}: {}", channel.name, why(from, channel.name)).into())
    }

    /// Stops a channel and waits until it has.
    pub(crate) fn halt(&self, channel: &Channel<'_>) -> Result<()> {
        let (from, _) = self.ends(channel.forth);
        from.mqsc(&format!("STOP CHANNEL('{}') STATUS(INACTIVE)", channel.name))?;
        wait(|| Ok(status(from, channel.name)?.is_none_or(|row| word(&row, "STATUS") == Some("INACTIVE"))))
    }

    /// A number of the sending end's status.
    pub(crate) fn number(&self, channel: &Channel<'_>, keyword: &str) -> Result<u64> {
        let row = status(self.ends(channel.forth).0, channel.name)?.ok_or("a channel without a status")?;
        number(&row, keyword).ok_or_else(|| format!("{}: no {keyword}", channel.name).into())
    }

    /// Processor time of both so far, in nanoseconds.
    pub(crate) fn used(&self) -> Result<u64> {
        Ok(processor::of_process(self.one.pid())? + processor::of_process(self.two.pid())?)
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.one.stop()?;
        self.two.stop()
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn status(manager: &Manager, channel: &str) -> Result<Option<bulla::mqsc::reply::Row>> {
    Ok(manager.rows(&format!("DISPLAY CHSTATUS('{channel}') ALL"))?.into_iter().next())
}

fn why(manager: &Manager, channel: &str) -> String {
    let row = status(manager, channel).ok().flatten();
    row.and_then(|row| word(&row, "REASON").map(str::to_owned)).unwrap_or_default()
}

/// Asks again and again until it is so.
pub(crate) fn wait(mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    /// Between two questions, each of which costs the queue manager some microseconds.
    const ASK_EVERY: Duration = Duration::from_millis(2);
    let deadline = Instant::now() + PATIENCE;
    while !condition()? {
        if Instant::now() > deadline {
            return Err(format!("not so after {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(ASK_EVERY);
    }
    Ok(())
}

/// Cores that neither these queue managers nor this process used, over some time.
pub(crate) struct Elsewhere {
    at: Instant,
    everybody: u64,
    ours: u64,
}

impl Elsewhere {
    /// Begins to count.
    pub(crate) fn begin(site: &Site) -> Result<Elsewhere> {
        Ok(Elsewhere { at: Instant::now(), everybody: processor::of_everybody()?, ours: ours(site)? })
    }

    /// How many there were since.
    pub(crate) fn end(&self, site: &Site) -> Result<f64> {
        let everybody = processor::of_everybody()?.saturating_sub(self.everybody);
        let others = everybody.saturating_sub(ours(site)?.saturating_sub(self.ours));
        Ok(others as f64 / self.at.elapsed().as_nanos().max(1) as f64)
    }
}

fn ours(site: &Site) -> Result<u64> {
    Ok(site.used()? + common::processor::of_process(std::process::id())?)
}
