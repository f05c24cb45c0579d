//! What `bulla init` is going to make, checked as a whole before anything is written.

use super::super::{CliError, EXIT_USAGE, token};
use super::file::{AuthorityTable, ListenTable, Protection, QueueTable, SiteFile, UserTable};
use super::record::Record;
use crate::catalog::Definitions;
use crate::catalog::names::{NAME_RULE, is_name};
use crate::mqsc::objects::AsText;
use crate::mqsc::parse::TEXT_BYTES_MAX;
use crate::serve::first_start::AUTHORITY_DAYS;
use bulla_device::{KeyUri, PublicKey};
use bulla_seal::certificate::authority::Authority;
use bulla_seal::certificate::bundle::Bundle;
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::signing_key::SigningKey;
use bulla_seal::certificate::{Certificate, Curve, KeySource, KeySpec, Passphrase, read_key_source};
use bulla_seal::dn::Dn;
use bulla_seal::ring::Rings;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use zeroize::Zeroizing;

/// The user who administers, where the file names none.
const ADMINISTRATOR: &str = "admin";
/// Days for which a user's certificate is good.
const USER_DAYS: u32 = 365;
/// What a content key is used for with confidentiality.
const KEY_REUSE: u32 = 32;
/// The largest file of an authority, of a key, a password or definitions.
const INPUT_BYTES_MAX: u64 = TEXT_BYTES_MAX as u64;

/// Most certificates in the file of an authority.
const IMPORTED_CERTIFICATES_MAX: usize = 8;

/// What can be told from the file alone.
pub(super) struct Outline {
    pub(super) name: String,
    /// What the listener's certificate is for.
    pub(super) names: Vec<AlternativeName>,
    /// What clients call the machine.
    pub(super) host: String,
    pub(super) listen: Listen,
    pub(super) administrator: Option<String>,
    /// Every user, with the file of the password where one was given.
    pub(super) passwords: BTreeMap<String, Option<PathBuf>>,
    /// The queue, who puts and who gets, for the examples.
    pub(super) shown: Option<[String; 3]>,
}

/// What is going to be made.
pub(super) struct Plan {
    pub(super) outline: Outline,
    pub(super) authority: AuthorityPlan,
    pub(super) users: BTreeMap<String, UserPlan>,
    pub(super) definitions: Definitions,
}

/// Where it listens.
pub(super) struct Listen {
    pub(super) amqp: Option<SocketAddr>,
    pub(super) amqps: SocketAddr,
    pub(super) https: Option<SocketAddr>,
}

/// Where the authority comes from.
pub(super) struct AuthorityPlan {
    pub(super) origin: Origin,
    pub(super) passphrase: Option<Passphrase>,
}

/// How it comes to be.
pub(super) enum Origin {
    /// It is made.
    Founded { dn: Dn, key: KeySpec, days: u32 },
    /// It comes with its path and its key.
    Imported { certificates: Vec<Certificate>, key: SigningKey },
}

/// A user.
pub(super) struct UserPlan {
    /// What the key ring is made for; none where the user has none.
    pub(super) identity: Option<Identity>,
    /// The password, where one was given.
    pub(super) password: Option<Zeroizing<String>>,
}

/// A certificate to make.
pub(super) struct Identity {
    pub(super) dn: Dn,
    pub(super) key: KeySpec,
    pub(super) days: u32,
}

impl Outline {
    /// Checks what stands in the file itself.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(record: &Record) -> Result<Self, CliError> {
        let file = &record.file;
        if !is_name(&record.name) {
            return Err(usage(format!("name: '{}' is not a name for a queue manager", record.name))
                .hint(format!("a name has {NAME_RULE}")));
        }
        let administrator = match file.administrator.as_deref() {
            Some("") => None,
            named => Some(named.unwrap_or(ADMINISTRATOR).to_owned()),
        };
        let mut passwords: BTreeMap<_, _> =
            file.users.iter().map(|(name, user)| (name.clone(), user.password_file.clone())).collect();
        if let Some(name) = &administrator {
            passwords.entry(name.clone()).or_default();
        }
        passwords.keys().try_for_each(|name| check_user(name))?;
        let listen = Listen::of(&file.listen)?;
        Ok(Self {
            name: record.name.clone(),
            names: record.names.iter().map(|name| alternative_name(name)).collect::<Result<_, _>>()?,
            host: host(&listen, file, record),
            listen,
            administrator,
            passwords,
            shown: shown(file),
        })
    }
}

impl Plan {
    /// Checks all that can be checked without writing, the definitions by the rules of MQSC.
    ///
    /// # Errors
    /// What is wrong with the file, or with one that it names.
    pub(super) fn of(outline: Outline, file: &SiteFile, now: SystemTime) -> Result<Self, CliError> {
        let mut users = BTreeMap::new();
        for name in outline.passwords.keys() {
            let user = match file.users.get(name) {
                Some(table) => UserPlan::of(name, table, file.organisation.as_deref())?,
                None => UserPlan { identity: None, password: None },
            };
            users.insert(name.clone(), user);
        }
        refuse_equal_names(&users)?;
        Ok(Self {
            authority: AuthorityPlan::of(&file.authority, file.organisation.as_deref(), now)?,
            definitions: definitions(&outline, file, &users)?,
            outline,
            users,
        })
    }

    /// The users whose certificates `user` needs to seal for them: recipients of the policies under which it may sign.
    pub(super) fn recipients_of(&self, user: &str) -> BTreeSet<&str> {
        let dn = |name: &str| self.users.get(name).and_then(|user| user.identity.as_ref()).map(|identity| &identity.dn);
        let Some(own) = dn(user) else { return BTreeSet::new() };
        let policies = self.definitions.policies.values();
        let signs = policies.filter(|policy| policy.signers.is_empty() || policy.signers.contains(own));
        let wanted: Vec<&Dn> = signs.flat_map(|policy| &policy.recipients).collect();
        let others = self.users.keys().filter(|name| *name != user);
        others.filter(|name| dn(name).is_some_and(|dn| wanted.contains(&dn))).map(String::as_str).collect()
    }
}

impl Listen {
    fn of(table: &ListenTable) -> Result<Self, CliError> {
        let address = |key: &str, given: &Option<String>, default: &str| {
            let text = given.as_deref().unwrap_or(default);
            if text == "none" {
                return Ok(None);
            }
            let wrong = |_| usage(format!("listen.{key}: '{text}' is no address")).hint("as 127.0.0.1:5671, or none");
            text.parse::<SocketAddr>().map(Some).map_err(wrong)
        };
        let amqps = address("amqps", &table.amqps, "127.0.0.1:5671")?;
        Ok(Self {
            amqp: address("amqp", &table.amqp, "127.0.0.1:5672")?,
            amqps: amqps.ok_or_else(|| usage("listen.amqps: clients connect over TLS; it can't be none"))?,
            https: address("https", &table.https, "127.0.0.1:9443")?,
        })
    }
}

impl AuthorityPlan {
    fn of(table: &AuthorityTable, organisation: Option<&str>, now: SystemTime) -> Result<Self, CliError> {
        let passphrase = match &table.passphrase_file {
            Some(file) => Some(Passphrase::from_file(file).map_err(|error| usage(error.to_string()))?),
            None => None,
        };
        let origin = match &table.import {
            Some(file) => {
                if table.dn.is_some() || table.key.is_some() || table.days.is_some() {
                    return Err(usage("authority: dn, key and days are those of what is imported"));
                }
                imported(file, table, passphrase.as_ref(), now)?
            }
            None if table.key_file.is_some() || table.module.is_some() || table.pin_file.is_some() => {
                let message =
                    "authority.key_file, module and pin_file need authority.import, the file of its certificate";
                return Err(usage(message));
            }
            None => {
                let dn = match &table.dn {
                    Some(dn) => parsed("authority.dn", dn)?,
                    None => named("Authority", organisation)?,
                };
                let days = table.days.unwrap_or(AUTHORITY_DAYS);
                Origin::Founded {
                    dn,
                    key: key_spec("authority.key", table.key.as_deref())?,
                    days: days_of("authority", days)?,
                }
            }
        };
        Ok(Self { origin, passphrase })
    }
}

/// Reads an authority: its certificate, those above it, and its key, or where that is.
fn imported(
    file: &Path,
    table: &AuthorityTable,
    passphrase: Option<&Passphrase>,
    now: SystemTime,
) -> Result<Origin, CliError> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| CliError::failed(format!("{}: {error}", path.display()));
    let bytes = Zeroizing::new(input(file)?);
    let (certificates, source) = match read_key_source(&bytes, passphrase) {
        // PKCS#12 and DER are no text, so that a line of it can't be a URI.
        Ok(KeySource::Elsewhere(uri)) => {
            let certificates = Certificate::all_from_pem(&bytes, IMPORTED_CERTIFICATES_MAX);
            (certificates.map_err(|error| failed(file, &error))?, Some(KeySource::Elsewhere(uri)))
        }
        _ => {
            let hint = "authority.passphrase_file names its passphrase";
            let bundle = Bundle::read(&bytes, passphrase).map_err(|error| failed(file, &error).hint(hint))?;
            (bundle.certificates, bundle.key.map(KeySource::Clear))
        }
    };
    let source = match (&table.key_file, source) {
        (Some(path), _) => {
            let bytes = Zeroizing::new(input(path)?);
            read_key_source(&bytes, passphrase).map_err(|error| failed(path, &error))?
        }
        (None, Some(source)) => source,
        (None, None) => {
            return Err(failed(file, &"no private key").hint("authority.key_file names the file that holds it"));
        }
    };
    let key = match source {
        KeySource::Clear(_) if table.module.is_some() || table.pin_file.is_some() => {
            return Err(usage("authority.module and pin_file are for a key on a token, and this one is in a file"));
        }
        KeySource::Clear(key) => SigningKey::clear(key),
        KeySource::Elsewhere(uri) => on_token(&certificates, uri, table)?,
    };
    Authority::check(&certificates, &key, now).map_err(|error| failed(file, &error))?;
    Ok(Origin::Imported { certificates, key })
}

/// The first certificate is that of the key.
fn on_token(certificates: &[Certificate], uri: KeyUri, table: &AuthorityTable) -> Result<SigningKey, CliError> {
    let Some(module) = &table.module else {
        return Err(CliError::failed(format!("the key of the authority is elsewhere: {uri}"))
            .hint("authority.module and authority.pin_file name the token's PKCS#11 module and PIN"));
    };
    let own = certificates.first().ok_or_else(|| CliError::failed("the authority has no certificate"))?;
    let public = PublicKey::new(own.public_key()).map_err(|error| CliError::failed(error.to_string()))?;
    Ok(token::on_module(module, table.pin_file.as_deref(), &uri)?.key(public, uri))
}

impl UserPlan {
    fn of(name: &str, table: &UserTable, organisation: Option<&str>) -> Result<Self, CliError> {
        let dn = match &table.dn {
            Some(dn) => parsed(&format!("users.{name}.dn"), dn)?,
            None => named(name, organisation)?,
        };
        let days = days_of(&format!("users.{name}"), table.days.unwrap_or(USER_DAYS))?;
        let key = key_spec(&format!("users.{name}.key"), table.key.as_deref())?;
        let password = match &table.password_file {
            Some(file) => {
                let bytes = Zeroizing::new(input(file)?);
                let text = String::from_utf8_lossy(&bytes);
                let line = text.lines().next().unwrap_or_default();
                if line.is_empty() || line.len() > crate::users::PASSWORD_BYTES_MAX {
                    return Err(usage(format!("{}: the first line is no password", file.display())));
                }
                Some(Zeroizing::new(line.to_owned()))
            }
            None => None,
        };
        Ok(Self { identity: Some(Identity { dn, key, days }), password })
    }
}

/// A key ring is a folder of the user's name, and so is a password a file.
fn check_user(name: &str) -> Result<(), CliError> {
    let is_ring = Rings::new(PathBuf::new()).path(name).is_ok();
    match is_ring {
        true => Ok(()),
        false => {
            Err(usage(format!("'{name}' is not a name for a user")).hint("a name has letters, digits and . _ - @"))
        }
    }
}

/// Policies and rings know users by the names in their certificates.
fn refuse_equal_names(users: &BTreeMap<String, UserPlan>) -> Result<(), CliError> {
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    for (name, user) in users {
        let Some(identity) = &user.identity else { continue };
        if let Some(other) = known.insert(identity.dn.to_string(), name) {
            return Err(usage(format!("the users {other} and {name} have the same dn, {}", identity.dn)));
        }
    }
    Ok(())
}

/// All that is to be defined, by the language and its rules.
fn definitions(
    outline: &Outline,
    file: &SiteFile,
    users: &BTreeMap<String, UserPlan>,
) -> Result<Definitions, CliError> {
    let text = commands(file, users, outline.administrator.as_deref())?;
    let initial = Definitions::initial(&outline.name);
    let made = Definitions::from_commands(&text, Path::new("what init defines"), initial);
    let made = made.map_err(|error| CliError::new(EXIT_USAGE, error.to_string()))?;
    let Some(path) = &file.mqsc else { return Ok(made) };
    let bytes = input(path)?;
    let text = String::from_utf8(bytes).map_err(|_| usage(format!("{}: not UTF-8", path.display())))?;
    Definitions::from_commands(&text, path, made).map_err(|error| {
        let hint =
            error.hint().unwrap_or_else(|| "only commands that define, alter, set or delete belong there".into());
        CliError::new(EXIT_USAGE, error.to_string()).hint(hint)
    })
}

/// The commands that make the users' rights, the queues and the policies.
fn commands(
    file: &SiteFile,
    users: &BTreeMap<String, UserPlan>,
    administrator: Option<&str>,
) -> Result<String, CliError> {
    let mut text = String::new();
    for name in users.keys() {
        put_line(&mut text, format_args!("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL({}) AUTHADD(CONNECT)", quoted(name)));
    }
    if let Some(name) = administrator {
        put_line(&mut text, format_args!("DEFINE ADMIN(ADMINISTRATOR) PRINCIPAL({}) ROLE(ALL)", quoted(name)));
    }
    let mut getters = BTreeSet::new();
    for (name, queue) in &file.queues {
        if !is_name(name) {
            return Err(usage(format!("'{name}' is not a name for a queue")).hint(format!("a name has {NAME_RULE}")));
        }
        put_line(&mut text, format_args!("DEFINE QLOCAL({})", quoted(name)));
        if let Some(protection) = protection(name, queue, users)? {
            put_line(&mut text, format_args!("SET POLICY({}) {protection}", quoted(name)));
        }
        for (whom, rights) in
            [(&queue.put, "PUT, INQ"), (&queue.get, "GET, BROWSE, INQ"), (&queue.browse, "BROWSE, INQ")]
        {
            for user in whom {
                let (name, user) = (quoted(name), quoted(user));
                put_line(
                    &mut text,
                    format_args!("SET AUTHREC PROFILE({name}) OBJTYPE(QUEUE) PRINCIPAL({user}) AUTHADD({rights})"),
                );
            }
        }
        getters.extend(queue.get.iter().filter(|_| queue.protection != Protection::None));
    }
    // Who gets sees what did not open, too.
    for user in getters {
        let (queue, user) = (crate::catalog::system_queues::ERROR_QUEUE, quoted(user));
        put_line(
            &mut text,
            format_args!("SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL({user}) AUTHADD(BROWSE)"),
        );
    }
    Ok(text)
}

/// The attributes of a queue's policy: who puts signs, and who gets can read. None where nothing protects it.
fn protection(name: &str, queue: &QueueTable, users: &BTreeMap<String, UserPlan>) -> Result<Option<String>, CliError> {
    let place = |key: &str| format!("queues.{name}.{key}");
    let names = |key: &str, whom: &[String]| {
        let dn = |user: &String| {
            let known = users.get(user).and_then(|user| user.identity.as_ref());
            let missing = || {
                usage(format!("{}: there is no user '{user}' with a key ring", place(key)))
                    .hint(format!("add it to [users]: {user} = {{}}"))
            };
            known.map(|identity| quoted(&identity.dn.to_string())).ok_or_else(missing)
        };
        whom.iter().map(dn).collect::<Result<Vec<_>, _>>().map(|names| names.join(", "))
    };
    // Every user is looked up, whatever protects the queue.
    let (signers, recipients) = (names("put", &queue.put)?, names("get", &queue.get)?);
    names("browse", &queue.browse)?;
    let encrypts = matches!(queue.protection, Protection::Privacy | Protection::Confidentiality);
    if encrypts && queue.get.is_empty() {
        return Err(usage(format!("{} names no user, and what is put has to be encrypted for one", place("get"))));
    }
    let signs = matches!(queue.protection, Protection::Integrity | Protection::Privacy);
    if signs && queue.put.is_empty() {
        return Err(usage(format!("{} names no user, and one has to sign", place("put"))));
    }
    if encrypts && let Some(user) = queue.browse.iter().find(|user| !queue.get.contains(user)) {
        return Err(usage(format!("{}: '{user}' can't read what is encrypted for others", place("browse")))
            .hint("name the user in get"));
    }
    Ok(match queue.protection {
        Protection::None => None,
        Protection::Integrity => Some(format!("SIGNALG(SHA256) SIGNER({signers})")),
        Protection::Privacy => Some(format!("SIGNALG(SHA256) ENCALG(AES256) SIGNER({signers}) RECIP({recipients})")),
        Protection::Confidentiality => Some(format!("ENCALG(AES256) RECIP({recipients}) KEYREUSE({KEY_REUSE})")),
    })
}

/// A queue on which one user puts and one gets: the best protected one.
fn shown(file: &SiteFile) -> Option<[String; 3]> {
    let rank = |protection| match protection {
        Protection::Privacy => 0,
        Protection::Confidentiality => 1,
        Protection::Integrity => 2,
        Protection::None => 3,
    };
    let used = file.queues.iter().filter_map(|(name, queue)| {
        Some((rank(queue.protection), [name.clone(), queue.put.first()?.clone(), queue.get.first()?.clone()]))
    });
    used.min_by_key(|(rank, _)| *rank).map(|(_, shown)| shown)
}

/// What clients call the machine: by the address it listens on, and what the file says.
fn host(listen: &Listen, file: &SiteFile, record: &Record) -> String {
    let ip = listen.amqps.ip();
    match (file.hosts.first(), ip) {
        (Some(host), _) => host.clone(),
        (None, ip) if ip.is_loopback() => "localhost".to_owned(),
        (None, ip) if ip.is_unspecified() => record.machine.clone(),
        (None, ip) => ip.to_string(),
    }
}

/// A host or an address, as an alternative name of a certificate.
pub(super) fn alternative_name(text: &str) -> Result<AlternativeName, CliError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(AlternativeName::Ip(address));
    }
    let is_host = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._*".contains(&b));
    let name = if is_host { format!("dns:{text}").parse().ok() } else { None };
    name.ok_or_else(|| usage(format!("hosts: '{text}' is neither a host's name nor an address")))
}

fn named(name: &str, organisation: Option<&str>) -> Result<Dn, CliError> {
    let text = match organisation.filter(|organisation| !organisation.is_empty()) {
        Some(organisation) => format!("CN={},O={}", escaped(name), escaped(organisation)),
        None => format!("CN={}", escaped(name)),
    };
    parsed("organisation", &text)
}

/// RFC 4514, section 2.4: what has a meaning in the text of a name.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for (at, char) in value.chars().enumerate() {
        let edge = at == 0 || at + 1 == value.chars().count();
        if ",+\"\\<>;=".contains(char) || (char == '#' && at == 0) || (char == ' ' && edge) {
            text.push('\\');
        }
        text.push(char);
    }
    text
}

fn parsed(key: &str, dn: &str) -> Result<Dn, CliError> {
    dn.parse().map_err(|error| usage(format!("{key}: {error}")))
}

fn key_spec(key: &str, given: Option<&str>) -> Result<KeySpec, CliError> {
    match given {
        Some(text) => match text.parse::<KeySpec>() {
            // A user needs two of those, and policies that say so.
            Ok(spec) if spec.counterpart().is_some() => Err(usage(format!(
                "{key}: users begin with RSA or EC keys; `bulla cert create --key {spec}` gives one such a key beside"
            ))),
            Ok(spec) => Ok(spec),
            Err(error) => Err(usage(format!("{key}: {error}"))),
        },
        None => Ok(KeySpec::Ec(Curve::P256)),
    }
}

fn days_of(key: &str, days: u32) -> Result<u32, CliError> {
    use bulla_seal::certificate::create::VALIDITY_DAYS_MAX;
    match (1..=VALIDITY_DAYS_MAX).contains(&days) {
        true => Ok(days),
        false => Err(usage(format!("{key}.days: {days} is not between 1 and {VALIDITY_DAYS_MAX}"))),
    }
}

fn input(path: &Path) -> Result<Vec<u8>, CliError> {
    use std::io::Read;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| usage(format!("{}: {error}", path.display())))?;
    match bytes.len() as u64 > INPUT_BYTES_MAX {
        true => Err(usage(format!("{}: longer than {INPUT_BYTES_MAX} bytes", path.display()))),
        false => Ok(bytes),
    }
}

/// Text in MQSC: an apostrophe in it is doubled.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn put_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Into a string: cannot fail.
    let _ = writeln!(text, "{line}");
}

fn usage(message: impl Into<String>) -> CliError {
    CliError::usage(message)
}
