//! Certificates that renew by themselves: how each stands, and whether what its renewal needs is there. Authorities are
//! connected to and asked nothing: a question could have them issue something.

use super::{TOLD_MAX, mend, user};
use crate::catalog::diagnosis::{Condition, Diagnoses, Diagnosis, ENROLMENT};
use crate::catalog::status::{EnrolmentPlace, EnrolmentState, EnrolmentStatus};
use crate::enrolment::configuration::{AuthorityTable, FILE};
use crate::enrolment::ring_certificate::Site;
use crate::enrolment::safe_file::{check_safe, check_safe_socket, secret, secret_line};
use crate::enrolment::web::Web;
use crate::enrolment::{Configuration, EnrolError, answer, due, signer_certificate, spiffe, tls_certificate};
use crate::folders::{RINGS, TLS};
use bulla_device::http::Url;
use bulla_device::role::{self, Role};
use bulla_seal::certificate::{Certificate, utc};
use rustix::fs::{Access, access};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long servers of authorities have to take a connection, all of them together.
const REACH_MAX: Duration = Duration::from_secs(1);

/// One certificate that is configured.
struct One<'a> {
    /// `user orders`, `tls/server.pem`.
    about: String,
    authority: &'a str,
    certificate: Option<Certificate>,
    /// What a running queue manager knows of it.
    status: Option<&'a EnrolmentStatus>,
    /// The command that asks for it.
    ask: String,
}

/// Looks at all of it, or of the rings at one user's alone. `running` is what the queue manager knows, where one runs.
pub(crate) fn look(
    data: &Path,
    found: &mut Diagnoses,
    running: Option<&[EnrolmentStatus]>,
    user: Option<&str>,
    now: SystemTime,
) {
    let configuration = match Configuration::read(data) {
        Ok(Some(configuration)) => configuration,
        Ok(None) => return found.well(&ENROLMENT, "", format!("nothing renews by itself: there is no {FILE}")),
        Err(error) => {
            let mend = mend_file(data, &error);
            return ill(found, Condition::Broken, FILE, ("", error.to_string()), mend);
        }
    };
    let all = certificates(data, &configuration, running, user, now, found);
    let mut needed: BTreeMap<&str, bool> = BTreeMap::new();
    for one in &all {
        *needed.entry(one.authority).or_default() |= is_over(one.certificate.as_ref(), now);
    }
    authorities(data, &configuration, &needed, found);
    for one in &all {
        stands(one, running.is_some(), now, found);
    }
    if !found.has(&ENROLMENT) {
        found.well(&ENROLMENT, "", format!("{FILE} names no certificate"));
    }
}

fn ill(
    found: &mut Diagnoses,
    condition: Condition,
    about: impl Into<String>,
    (cause, details): (&str, String),
    mend: Vec<String>,
) {
    let (about, cause) = (about.into(), cause.to_owned());
    found.push(Diagnosis { check: &ENROLMENT, condition, about, cause, details, mend });
}

/// What is configured and can be read.
fn certificates<'a>(
    data: &'a Path,
    configuration: &'a Configuration,
    running: Option<&'a [EnrolmentStatus]>,
    asked: Option<&str>,
    now: SystemTime,
    found: &mut Diagnoses,
) -> Vec<One<'a>> {
    // Of several of one name, that of the certificate.
    let status = |name: &str, place: EnrolmentPlace, serial: Option<&str>| {
        let is_it = |status: &&EnrolmentStatus| {
            status.name == name && status.place == place && serial.is_none_or(|serial| status.serial == serial)
        };
        running.into_iter().flatten().find(is_it)
    };
    let clock = || now;
    let site = Site {
        data,
        passphrase: None,
        configuration,
        by_hand: false,
        patience: Duration::ZERO,
        clock: &clock,
        is_stopping: &|| false,
    };
    let mut all = Vec::new();
    for (name, table) in configuration.rings.iter().filter(|(name, _)| asked.is_none_or(|asked| asked == *name)) {
        match site.renewals(name) {
            Ok(renewals) if renewals.is_empty() => all.push(One {
                about: user(name),
                authority: &table.authority,
                certificate: None,
                status: status(name, EnrolmentPlace::Ring, None),
                ask: format!("bulla key enrol {}", mend::shell(name)),
            }),
            Ok(renewals) => {
                let is_alone = renewals.len() == 1;
                for certificate in renewals.into_iter().map(|renewal| renewal.certificate) {
                    let serial = certificate.serial_hex();
                    let (about, ask) = (user(name), format!("bulla key enrol {}", mend::shell(name)));
                    let (about, ask) = match is_alone {
                        true => (about, ask),
                        false => (format!("{about}, key {serial}"), format!("{ask} --serial {serial}")),
                    };
                    let status = status(name, EnrolmentPlace::Ring, (!is_alone).then_some(serial.as_str()));
                    let authority = &table.authority;
                    all.push(One { about, authority, certificate: Some(certificate), status, ask });
                }
            }
            Err(error) => {
                let mend = vec![format!("bulla cert list --ring {}", mend::shell(name))];
                ill(found, Condition::Broken, user(name), ("no-ring", error.to_string()), mend);
            }
        }
    }
    for (name, table) in configuration.signers.iter().filter(|(name, _)| asked.is_none_or(|asked| asked == *name)) {
        match signer_certificate::present(data, name) {
            Ok(certificate) => all.push(One {
                about: format!("{RINGS}/{name}/own/{}.pem", signer_certificate::LABEL),
                authority: &table.authority,
                certificate,
                status: status(name, EnrolmentPlace::Signer, None),
                ask: format!("bulla key enrol {}", mend::shell(name)),
            }),
            Err(error) => {
                let mend = vec![format!("bulla cert list --ring {}", mend::shell(name))];
                ill(found, Condition::Broken, user(name), ("no-ring", error.to_string()), mend);
            }
        }
    }
    for (label, table) in &configuration.certificates {
        let about = format!("{TLS}/{label}.pem");
        match tls_certificate::present(data, label) {
            Ok(present) => all.push(One {
                about,
                authority: &table.authority,
                certificate: present.map(|(certificate, _)| certificate),
                status: status(label, EnrolmentPlace::Tls, None),
                ask: format!("bulla cert renew {}", mend::shell(label)),
            }),
            Err(error) => {
                let mend = vec![format!("ls -l {}", in_shell(&data.join(TLS)))];
                ill(found, Condition::Broken, about, ("", error.to_string()), mend);
            }
        }
    }
    all
}

fn is_over(certificate: Option<&Certificate>, now: SystemTime) -> bool {
    certificate.is_none_or(|certificate| certificate.not_after() <= now)
}

/// How one stands.
fn stands(one: &One<'_>, runs: bool, now: SystemTime, found: &mut Diagnoses) {
    let One { about, authority, certificate, status, ask } = one;
    let ask = || vec![ask.clone()];
    let (condition, cause) = match certificate {
        Some(_) if is_over(certificate.as_ref(), now) => (Condition::Broken, "certificate-expired"),
        Some(_) => (Condition::Warning, ""),
        None => (Condition::Broken, ""),
    };
    let valid = certificate.as_ref().map_or_else(
        || "there is none".to_owned(),
        |certificate| match is_over(Some(certificate), now) {
            true => format!("the one there is ended at {}", utc(certificate.not_after())),
            false => format!("the one there is ends at {}", utc(certificate.not_after())),
        },
    );
    let tried = status.and_then(|status| status.tried_ms).map_or_else(String::new, |ms| format!(" at {}", at(ms)));
    let again = status.and_then(|status| status.next_ms).map_or_else(String::new, |ms| format!(", next at {}", at(ms)));
    match status {
        Some(EnrolmentStatus { state: EnrolmentState::Undecided, why, .. }) => {
            let details = format!("{authority} was asked{tried}{again}: {why}; {valid}");
            return ill(found, condition, about, (cause, details), ask());
        }
        Some(EnrolmentStatus { failures, why, .. }) if *failures > 0 => {
            let times = if *failures == 1 { "once".to_owned() } else { format!("{failures} times in a row") };
            let details = format!("{authority} was asked {times} for nothing, last{tried}{again}: {why}; {valid}");
            return ill(found, condition, about, (cause, details), ask());
        }
        _ => {}
    }
    let Some(certificate) = certificate else {
        let who = if runs { "the queue manager has not asked yet" } else { "no queue manager runs that would ask" };
        return ill(
            found,
            Condition::Warning,
            about,
            ("", format!("{authority} is to give one: {who}; {valid}")),
            ask(),
        );
    };
    let due = due::due(certificate);
    let is_sharing = status.is_some_and(|status| status.state == EnrolmentState::Sharing);
    if due > now || is_sharing {
        let next = match is_sharing {
            true => "its next key is there, and about to be shared".to_owned(),
            false => format!("{authority} is asked for the next at {}", utc(due)),
        };
        let details =
            format!("is of {}, ends at {}; {next}", utc(certificate.not_before()), utc(certificate.not_after()));
        return found.well(&ENROLMENT, about, details);
    }
    let who = if runs { "the queue manager has not done it yet" } else { "no queue manager runs that would" };
    let details = format!("was to be renewed from {}, by {authority}: {who}; {valid}", utc(due));
    ill(found, condition, about, (cause, details), ask());
}

fn at(ms: u64) -> String {
    utc(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
}

/// Whether what the authorities need is there. For some of them a certificate is missing or has ended.
fn authorities(data: &Path, configuration: &Configuration, needed: &BTreeMap<&str, bool>, found: &mut Diagnoses) {
    let mut asked = Vec::new();
    for (&name, &is_pressing) in needed {
        let Some(table) = configuration.authorities.get(name) else { continue };
        let condition = if is_pressing { Condition::Broken } else { Condition::Warning };
        let about = format!("authorities.{name}");
        let amiss = files(table);
        for error in &amiss {
            ill(found, condition, about.as_str(), ("", error.to_string()), mend_file(data, error));
        }
        // Whom to believe is in those files.
        if amiss.is_empty()
            && asked.len() < TOLD_MAX
            && let Some((place, answer)) = reached(table)
        {
            asked.push((condition, about, place, answer));
        }
    }
    let end = Instant::now() + REACH_MAX;
    for (condition, about, place, answer) in asked {
        let look = || {
            vec![match place.strip_prefix(UNIX) {
                Some(path) => format!("ls -l {}", mend::shell(path)),
                None => format!("curl --verbose --max-time 10 --output /dev/null {}", mend::shell(&place)),
            }]
        };
        match answer.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => found.well(&ENROLMENT, about, format!("{place} takes connections")),
            Ok(Err(error @ (EnrolError::Unsafe { .. } | EnrolError::File { .. }))) => {
                let mend = mend_file(data, &error);
                ill(found, condition, about, ("", error.to_string()), mend);
            }
            Ok(Err(error)) => ill(found, condition, about, ("", error.to_string()), look()),
            Err(RecvTimeoutError::Timeout) => {
                let details = format!("{place}: no connection within {} s", REACH_MAX.as_secs());
                ill(found, condition, about, ("", details), look());
            }
            Err(RecvTimeoutError::Disconnected) => {
                found.say(&ENROLMENT, Condition::Unknown, about, format!("{place}: not tried"));
            }
        }
    }
}

/// What is amiss with the files of an authority.
fn files(table: &AuthorityTable) -> Vec<EnrolError> {
    let mut all = Vec::new();
    let mut tell = |result: Result<(), EnrolError>| all.extend(result.err());
    if let Some(path) = table.command.as_deref().and_then(<[String]>::first) {
        tell(program(Path::new(path)));
    }
    let trust = [Some(&table.trust), table.https_trust.as_ref()].into_iter().flatten();
    for file in trust.filter(|file| !file.as_os_str().is_empty()) {
        tell(authorities_of(file));
    }
    for file in [&table.secret_file, &table.binding_key_file].into_iter().flatten() {
        tell(secret_line(file).map(drop));
    }
    // It is made where it is missing.
    for file in table.account_key.iter().filter(|file| file.exists()) {
        tell(secret(file).map(drop));
    }
    all
}

fn program(path: &Path) -> Result<(), EnrolError> {
    let real = path.canonicalize().map_err(EnrolError::file(path))?;
    check_safe(&real)?;
    access(&real, Access::EXEC_OK).map_err(|error| EnrolError::file(&real)(error.into()))
}

fn authorities_of(file: &Path) -> Result<(), EnrolError> {
    match answer::trusted(file)?.is_empty() {
        true => Err(EnrolError::Unsafe { path: file.to_owned(), why: "it has no authority".to_owned() }),
        false => Ok(()),
    }
}

/// What an address of a socket begins with.
const UNIX: &str = "unix:";

/// Where an authority is, and what comes of connecting to it: by a thread, because nothing else ends the look-up of a
/// name in time.
fn reached(table: &AuthorityTable) -> Option<(String, Receiver<Result<(), EnrolError>>)> {
    let (sender, answer) = channel();
    let (place, reach): (String, Box<dyn FnOnce() -> Result<(), EnrolError> + Send>) = match (&table.spiffe, &table.cmp)
    {
        (Some(address), _) => {
            let socket = spiffe::socket(address).ok()?;
            (format!("{UNIX}{}", socket.display()), Box::new(move || agent(&socket)))
        }
        (None, cmp) => {
            let url = cmp.as_ref().or(table.acme.as_ref())?.clone();
            let trust = table.https_trust.clone().unwrap_or_else(|| table.trust.clone());
            (url.to_string(), Box::new(move || server(&url, &trust)))
        }
    };
    let begun = thread::Builder::new().name("doctor".to_owned()).spawn(move || {
        role::begin(Role::Administration);
        // No thread waits for it any more where that fails.
        let _ = sender.send(reach());
    });
    // Without a thread the sender is gone, and that is told.
    drop(begun);
    Some((place, answer))
}

fn server(url: &Url, trust: &Path) -> Result<(), EnrolError> {
    Web::new(url, trust, REACH_MAX, &|| false)?.reach()
}

fn agent(socket: &Path) -> Result<(), EnrolError> {
    let real = socket.canonicalize().map_err(EnrolError::file(socket))?;
    check_safe_socket(&real)?;
    UnixStream::connect(&real).map(drop).map_err(EnrolError::file(&real))
}

fn in_shell(path: &Path) -> String {
    mend::shell(&path.display().to_string())
}

/// What mends a file that is amiss, as far as its owner and mode say.
fn mend_file(data: &Path, error: &EnrolError) -> Vec<String> {
    let edit = || vec![format!("vi {}", in_shell(&data.join(FILE)))];
    let path = match error {
        EnrolError::Unsafe { path, .. } | EnrolError::File { path, .. } => path,
        _ => return edit(),
    };
    let own = rustix::process::geteuid().as_raw();
    let name = in_shell(path);
    vec![match (fs::symlink_metadata(path), error) {
        (Err(_), _) => return edit(),
        (Ok(facts), EnrolError::Unsafe { .. }) if !facts.is_symlink() && facts.mode() & 0o022 != 0 => {
            format!("chmod go-w {name}")
        }
        (Ok(facts), EnrolError::Unsafe { .. }) if ![0, own].contains(&facts.uid()) => format!("chown {own} {name}"),
        (Ok(facts), EnrolError::Unsafe { .. }) if facts.is_file() && facts.mode() & 0o077 != 0 => {
            format!("chmod 600 {name}")
        }
        (Ok(facts), EnrolError::File { error, .. })
            if error.kind() == std::io::ErrorKind::PermissionDenied && facts.is_file() && facts.mode() & 0o100 == 0 =>
        {
            format!("chmod u+x {name}")
        }
        (Ok(_), _) => format!("ls -l {name}"),
    }]
}
