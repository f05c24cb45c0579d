//! Two queue managers, QM1 and QM2, with what lies between them: channels, certificates for TLS, people who know each
//! other.

use super::island::{At, Person};
use super::route::{Listener, Route};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::load::Seat;
use crate::load::starts::{Call, Starts};
use crate::run::meters::{Watched, number, text};
use crate::site::listener::{read, utf8, wait_until_seen, write};
use crate::site::{Manager, Settings, keys};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What channels may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked whether something has come about; each question costs a queue manager some microseconds.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// Channels that each of the two may have.
const CHANNELS_MAX: u32 = 9_999;

/// The two queue managers.
#[derive(Debug)]
pub(crate) struct Partners<'h> {
    /// QM1.
    pub(crate) one: Manager<'h>,
    /// QM2.
    pub(crate) two: Manager<'h>,
    /// Who has a ring.
    people: BTreeSet<Person>,
    /// Authorities that have been made.
    authorities: BTreeSet<&'static str>,
}

impl<'h> Partners<'h> {
    /// Starts both alike; their names are QM1 and QM2, whatever the settings say.
    ///
    /// # Errors
    /// What [`Manager::start`] refuses.
    pub(crate) fn start(host: &'h dyn Host, settings: &Settings) -> Result<Partners<'h>> {
        if settings.client_seal {
            return Err(Error::Usage("between two queue managers it is they who seal: no --client-seal".to_owned()));
        }
        let start = |name: &str| {
            let manager = Manager::start(host, &Settings { name: name.to_owned(), ..settings.clone() })?;
            manager.mqsc(&format!("ALTER QMGR MAXCHL({CHANNELS_MAX}) ACTCHL({CHANNELS_MAX})"))?;
            Ok::<_, Error>(manager)
        };
        let (one, two) = (start("QM1")?, start("QM2")?);
        Ok(Partners { one, two, people: BTreeSet::new(), authorities: BTreeSet::new() })
    }

    /// What a sample looks at.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        vec![self.one.watched(), self.two.watched()]
    }

    /// One of the two.
    pub(crate) fn manager(&self, at: At) -> &Manager<'h> {
        if at == At::One { &self.one } else { &self.two }
    }

    /// Where that user sits who puts and gets there.
    pub(crate) fn seat(&self, at: At, user: &str, puts: &str, gets: &str) -> Seat {
        Seat { broker: self.manager(at).broker(user), puts: puts.to_owned(), gets: gets.to_owned() }
    }

    /// Signs users up who have no keys; once for each name.
    ///
    /// # Errors
    /// [`Error::Manager`].
    pub(crate) fn sign_up(&mut self, one: &str, two: &str) -> Result<()> {
        self.one.add_user(one, "")?;
        self.two.add_user(two, "")
    }

    /// Signs people up, with a ring and a certificate each; those of one authority know each other. Who is there
    /// already is passed over, so people of one authority come together.
    ///
    /// # Errors
    /// [`Error::Manager`]: the key is none that certificates are made for.
    pub(crate) fn introduce<'p>(&mut self, people: impl Iterator<Item = &'p Person>) -> Result<()> {
        let new: Vec<&Person> = people.filter(|person| !self.people.contains(*person)).collect();
        for person in &new {
            if self.authorities.insert(person.authority) {
                let (name, dn) = (person.authority, format!("CN=Authority,O={}", person.authority));
                self.one.bulla(&["cert", "create", "--ca", name, "--dn", &dn, "--key", "p256"], "")?;
            }
            let manager = if person.at_one { &mut self.one } else { &mut self.two };
            manager.add_user(&person.name, "")?;
        }
        let ring = |person: &Person| self.manager(if person.at_one { At::One } else { At::Two }).ring(&person.name);
        for person in &new {
            let (own, dn) = (ring(person), person.dn());
            let others: Vec<PathBuf> = new
                .iter()
                .filter(|other| other.authority == person.authority && *other != person)
                .map(|other| ring(other))
                .collect();
            for (key, usage) in keys(&person.key) {
                let mut arguments = vec!["cert", "create", "--ring", utf8(&own)?, "--dn", &dn, "--key", &key];
                arguments.extend(["--signer", person.authority]);
                if let Some(usage) = usage {
                    arguments.extend(["--usage", usage]);
                }
                for other in &others {
                    arguments.extend(["--share", utf8(other)?]);
                }
                self.one.bulla(&arguments, "")?;
            }
        }
        self.people.extend(new.into_iter().cloned());
        Ok(())
    }

    /// Gives both certificates for TLS, one of each key, under that key as their label. The first is also what they
    /// show where nothing is said: QM1; QM2 shows the last one. Then waits until both have seen them.
    ///
    /// # Errors
    /// [`Error::Manager`]: a key is none that certificates are made for.
    pub(crate) fn certify(&self, keys: &[String]) -> Result<()> {
        self.one.make_tls_authority()?;
        for manager in [&self.one, &self.two] {
            let tls = manager.data().join("tls");
            for key in keys {
                let shown = self.one.sign_listener(manager, key)?;
                write(&tls.join(format!("{key}.key")), &shown.own)?;
                write(&tls.join(format!("{key}.pem")), &shown.own)?;
                // The one file is for those who call, the other for clients that believe their queue manager.
                write(&tls.join("clients.pem"), &shown.authorities)?;
                write(&tls.join("ca.pem"), &shown.authorities)?;
            }
        }
        for (manager, key) in [(&self.one, keys.first()), (&self.two, keys.last())] {
            let Some(key) = key else { continue };
            let tls = manager.data().join("tls");
            for ending in ["key", "pem"] {
                write(&tls.join(format!("server.{ending}")), &read(&tls.join(format!("{key}.{ending}")))?)?;
            }
        }
        wait_until_seen();
        Ok(())
    }

    /// How a client calls one of the two over TLS, with the certificate of that label or without one.
    pub(crate) fn call(&self, at: At, label: Option<&str>, tls13: bool) -> Call {
        let manager = self.manager(at);
        let tls = manager.data().join("tls");
        Call {
            address: manager.tls_address.clone(),
            authorities: tls.join("clients.pem"),
            certificate: label.map(|label| (tls.join(format!("{label}.pem")), tls.join(format!("{label}.key")))),
            tls13,
        }
    }

    /// From now on channels that call without CERTLABL have no certificate to show. The listeners go on with what they
    /// had: certificates that can't be read do not replace those in use, so each is called once before.
    ///
    /// # Errors
    /// [`Error::Broker`]: a listener does not speak TLS.
    pub(crate) fn take_certificates_away(&self) -> Result<()> {
        for at in [At::One, At::Two] {
            Starts::try_once(&self.call(at, None, true))?;
            for ending in ["key", "pem"] {
                let path = self.manager(at).data().join(format!("tls/server.{ending}"));
                fs::remove_file(&path).map_err(|error| Error::file(&path, error))?;
            }
        }
        Ok(())
    }

    /// Defines routes to QM2 and routes back, and whatever else is to be defined at QM1 and at QM2, in one request
    /// each.
    ///
    /// # Errors
    /// [`Error::Manager`]: one was refused.
    pub(crate) fn define(&self, forth: &[Route], back: &[Route], at_one: &str, at_two: &str) -> Result<()> {
        let (mut one, mut two) = (String::new(), String::new());
        for route in forth {
            let _ = write!(one, "{}", route.at_sender(listener(&self.two)));
            let _ = write!(two, "{}", route.at_receiver());
        }
        for route in back {
            let _ = write!(two, "{}", route.at_sender(listener(&self.one)));
            let _ = write!(one, "{}", route.at_receiver());
        }
        self.one.mqsc(&format!("{one}{at_one}"))?;
        self.two.mqsc(&format!("{two}{at_two}"))
    }

    /// Starts channels, those that send at QM1 and those that send at QM2, and waits until all run.
    ///
    /// # Errors
    /// [`Error::Manager`]: one does not, with its reason.
    pub(crate) fn run(&self, forth: &[Route], back: &[Route]) -> Result<()> {
        let both = [(&self.one, forth), (&self.two, back)];
        for (manager, routes) in both {
            start(manager, routes)?;
        }
        let running = both.into_iter().try_for_each(|(manager, routes)| wait_until_running(manager, routes));
        if running.is_err() {
            // They would go on trying beside what is measured then. What they could not be stopped for is said already.
            for (manager, routes) in both {
                let _ = stop(manager, routes, "MODE(FORCE)");
            }
        }
        running
    }

    /// Stops channels and waits until they have.
    ///
    /// # Errors
    /// [`Error::Manager`]: one does not end.
    pub(crate) fn halt(&self, forth: &[Route], back: &[Route]) -> Result<()> {
        for (manager, routes) in [(&self.one, forth), (&self.two, back)] {
            stop(manager, routes, "MODE(QUIESCE)")?;
        }
        for (manager, routes) in [(&self.one, forth), (&self.two, back)] {
            wait_until_gone(manager, routes)?;
        }
        Ok(())
    }

    /// CHIDISPS and CHIADAPS of both, from now on; 0 for as many as the queue manager takes by itself. A connection
    /// stays on its dispatcher, so channels and clients connect again afterwards.
    ///
    /// # Errors
    /// [`Error::Manager`]: it is refused, or does not come about.
    pub(crate) fn set_tasks(&self, dispatchers: u32, adapters: u32) -> Result<()> {
        let count = |count: u32| if count == 0 { "AUTO".to_owned() } else { count.to_string() };
        let command = format!("ALTER QMGR CHIDISPS({}) CHIADAPS({})", count(dispatchers), count(adapters));
        for manager in [&self.one, &self.two] {
            manager.mqsc(&command)?;
        }
        for manager in [&self.one, &self.two] {
            wait(|| {
                let rows = manager.rows("DISPLAY CHINIT ALL")?;
                let Some(row) = rows.first() else { return Ok(false) };
                // Surplus dispatchers stay for the connections that they have.
                let enough = number(row, "DISPS") >= number(row, "DISPSREQ");
                Ok(enough && number(row, "ADAPS") == number(row, "ADAPSREQ"))
            })
            .map_err(|error| named(&format!("{}: {command}", manager.name()), error))?;
        }
        Ok(())
    }

    /// Ends both in order.
    ///
    /// # Errors
    /// [`Error::Manager`]: one did not end well.
    pub(crate) fn stop(self) -> Result<()> {
        let ends = [self.one.stop(), self.two.stop()];
        ends.into_iter().collect()
    }
}

/// Two queue managers for each set of devices, started when they are first asked for.
pub(crate) struct Sites<'h> {
    host: &'h dyn Host,
    settings: Settings,
    /// Keys of certificates for TLS; none where none is spoken.
    keys: Vec<String>,
    sites: Vec<(String, Partners<'h>)>,
}

impl<'h> Sites<'h> {
    /// Nothing is started yet. Names and devices of the settings are passed over.
    pub(crate) fn new(host: &'h dyn Host, settings: Settings, keys: Vec<String>) -> Self {
        Sites { host, settings, keys, sites: Vec::new() }
    }

    /// Those with such devices.
    ///
    /// # Errors
    /// [`Error::Usage`]: they are none; [`Error::Device`]: this machine has no such device; and what ends a start.
    pub(crate) fn site(&mut self, devices: &str) -> Result<&mut Partners<'h>> {
        let at = match self.sites.iter().position(|(known, _)| known == devices) {
            Some(at) => at,
            None => {
                let parsed = devices.parse().map_err(Error::Usage)?;
                let partners = Partners::start(self.host, &Settings { devices: parsed, ..self.settings.clone() })?;
                if !self.keys.is_empty() {
                    partners.certify(&self.keys)?;
                }
                self.sites.push((devices.to_owned(), partners));
                self.sites.len() - 1
            }
        };
        Ok(&mut self.sites[at].1)
    }

    /// Ends all of them in order.
    ///
    /// # Errors
    /// [`Error::Manager`]: one did not end well.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let ends: Vec<Result<()>> = self.sites.drain(..).map(|(_, partners)| partners.stop()).collect();
        ends.into_iter().collect()
    }
}

/// Starts channels of a queue manager, and does not wait.
fn start(manager: &Manager<'_>, routes: &[Route]) -> Result<()> {
    each(manager, routes, |route| format!("START CHANNEL('{}')", route.channel))
}

/// Stops channels of a queue manager, and does not wait.
fn stop(manager: &Manager<'_>, routes: &[Route], how: &str) -> Result<()> {
    each(manager, routes, |route| format!("STOP CHANNEL('{}') {how} STATUS(INACTIVE)", route.channel))
}

fn each(manager: &Manager<'_>, routes: &[Route], command: impl Fn(&Route) -> String) -> Result<()> {
    let commands: Vec<String> = routes.iter().map(command).collect();
    if commands.is_empty() { Ok(()) } else { manager.mqsc(&commands.join("\n")) }
}

/// Waits until these channels run.
fn wait_until_running(manager: &Manager<'_>, routes: &[Route]) -> Result<()> {
    let mut missing = Vec::new();
    wait(|| {
        missing = channels(manager, routes, |status| status != "RUNNING")?;
        Ok(missing.is_empty())
    })
    .map_err(|error| {
        let why: Vec<String> = missing.iter().take(3).map(|name| reason(manager, name)).collect();
        named(&format!("{} channels of {} do not run: {}", missing.len(), manager.name(), why.join("; ")), error)
    })
}

/// Waits until these channels are inactive.
fn wait_until_gone(manager: &Manager<'_>, routes: &[Route]) -> Result<()> {
    wait(|| Ok(channels(manager, routes, |status| !matches!(status, "INACTIVE" | ""))?.is_empty()))
        .map_err(|error| named(&format!("channels of {} do not end", manager.name()), error))
}

/// Those of the channels that have such a status; one of which there is nothing to say has an empty one.
fn channels(manager: &Manager<'_>, routes: &[Route], such: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    // With a single one there is no need to look at all.
    let which = if let [route] = routes { &route.channel } else { "*" };
    let rows = manager.rows(&format!("DISPLAY CHSTATUS('{which}') STATUS"))?;
    let status = |name: &str| {
        let row = rows.iter().find(|row| text(row, "CHANNEL") == name);
        row.map_or("", |row| text(row, "STATUS"))
    };
    let names = routes.iter().map(|route| &route.channel);
    Ok(names.filter(|name| such(status(name))).cloned().collect())
}

fn reason(manager: &Manager<'_>, channel: &str) -> String {
    let rows = manager.rows(&format!("DISPLAY CHSTATUS('{channel}') ALL")).unwrap_or_default();
    let found = rows.first().map(|row| format!("{} {}", text(row, "STATUS"), text(row, "REASON")));
    format!("{channel} {}", found.unwrap_or_default().trim())
}

fn named(what: &str, error: Error) -> Error {
    Error::Manager(format!("{what}: {error}"))
}

/// Asks again and again until it is so.
pub(crate) fn wait(mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !condition()? {
        if Instant::now() > deadline {
            return Err(Error::Manager(format!("not so after {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(ASK_EVERY);
    }
    Ok(())
}

fn listener<'m>(manager: &'m Manager<'_>) -> Listener<'m> {
    Listener { manager: manager.name(), address: &manager.address, tls_address: &manager.tls_address }
}
