//! The steps of `bulla init`. Each leaves alone what it made before, so that all of them can be done again.

use super::super::{CliError, EXIT_START};
use super::plan::{Identity, Origin, Plan};
use super::record::Record;
use crate::catalog::Definitions;
use crate::folders::{AUTHORITIES, RINGS, TLS};
use crate::objects_file::DefinitionsFile;
use crate::random::Random;
use crate::serve::first_start::{LOCAL, SERVER_DAYS};
use crate::serve::{self, StartError};
use crate::users::{ITERATIONS, Users};
use crate::whole_file;
use bulla_seal::certificate::authority::{Authority, AuthorityError, Founding, Request};
use bulla_seal::certificate::bundle::to_trust_store;
use bulla_seal::certificate::{Certificate, KeyUse};
use bulla_seal::ring;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use zeroize::Zeroizing;

/// The folder of what clients need, in the data directory.
const CLIENTS: &str = "clients";

/// Something that is made, once.
type Step<'a> = fn(&mut Building<'a>) -> Result<(), CliError>;
/// How many steps there are.
pub(super) const STEPS: usize = 7;

/// In this order; the definitions, whose file says that all is there, come last.
fn all_steps<'a>() -> [Step<'a>; STEPS] {
    [
        Building::authority,
        Building::rings,
        Building::recipients,
        Building::for_clients,
        Building::passwords,
        Building::server_certificate,
        Building::definitions,
    ]
}

/// A data directory that is being made.
struct Building<'a> {
    data: &'a Path,
    plan: &'a Plan,
    rounds: u32,
    now: SystemTime,
    authority: Option<Authority>,
    /// The certificates of users.
    certificates: BTreeMap<&'a str, Certificate>,
}

/// Makes all of it.
///
/// # Errors
/// What could not be made. What was made before stays, and the next run goes on from there.
pub(super) fn build(data: &Path, record: &Record, plan: &Plan, now: SystemTime) -> Result<(), CliError> {
    steps(data, record, plan, ITERATIONS, STEPS, now)
}

/// Makes the first `count` steps; `rounds` are those of passwords.
pub(super) fn steps(
    data: &Path,
    record: &Record,
    plan: &Plan,
    rounds: u32,
    count: usize,
    now: SystemTime,
) -> Result<(), CliError> {
    make_folder(data)?;
    let turn = fs::File::open(data).map_err(|error| CliError::file(data, error))?;
    turn.try_lock()
        .map_err(|_| CliError::failed(format!("{} is being made by another `bulla init`", data.display())))?;
    record.write(data)?;
    serve::make_directories(data).map_err(not_started)?;
    let mut building = Building { data, plan, rounds, now, authority: None, certificates: BTreeMap::new() };
    all_steps().iter().take(count).try_for_each(|step| step(&mut building))
}

/// The file of a password that was made.
pub(super) fn password_file(data: &Path, user: &str) -> PathBuf {
    data.join(CLIENTS).join(format!("{user}.password"))
}

/// The authority in PEM, for clients.
pub(super) fn authority_file(data: &Path) -> PathBuf {
    data.join(CLIENTS).join("ca.pem")
}

/// The same for Java.
pub(super) fn trust_store(data: &Path) -> PathBuf {
    data.join(CLIENTS).join("truststore.p12")
}

impl<'a> Building<'a> {
    fn authority(&mut self) -> Result<(), CliError> {
        let dir = self.data.join(AUTHORITIES).join(LOCAL);
        let passphrase = self.plan.authority.passphrase.as_ref();
        let known = match &self.plan.authority.origin {
            // A run that goes on.
            Origin::Imported { key, .. } if key.uri().is_some() => Authority::open_elsewhere(&dir, key.clone()),
            _ => Authority::unlock(&dir, passphrase),
        };
        let unlocked = match known {
            Err(AuthorityError::Missing { .. }) => match &self.plan.authority.origin {
                Origin::Founded { dn, key, days } => {
                    let founding = Founding { dn, key: *key, days: *days, passphrase, parent: None };
                    Authority::found(&dir, &founding, self.now)
                }
                Origin::Imported { certificates, key } => {
                    Authority::adopt(&dir, certificates, key.clone(), passphrase, self.now)
                }
            },
            known => known,
        };
        self.authority = Some(unlocked.map_err(failed)?);
        Ok(())
    }

    /// It is the first step.
    fn signer(&self) -> Result<&Authority, CliError> {
        self.authority.as_ref().ok_or_else(|| CliError::failed("there is no authority yet"))
    }

    fn rings(&mut self) -> Result<(), CliError> {
        for (user, identity) in identities(self.plan) {
            let dir = self.ring(user);
            ring::create(&dir).map_err(failed)?;
            let survey = ring::survey(&dir).map_err(failed)?;
            let own = survey.own.into_iter().find(|own| own.label == user);
            let certificate = match own {
                Some(own) => own.certificate,
                None => self.issue(&dir, user, identity)?,
            };
            // No revocation list: an old one would stop every seal, and there is nothing to revoke yet.
            ring::install_trust(&dir, LOCAL, self.signer()?.root()).map_err(failed)?;
            self.certificates.insert(user, certificate);
        }
        Ok(())
    }

    fn issue(&self, dir: &Path, user: &str, identity: &Identity) -> Result<Certificate, CliError> {
        let authority = self.signer()?;
        let uses = KeyUse::usual(identity.key.kind());
        let request = Request {
            dn: identity.dn.clone(),
            key: identity.key,
            uses,
            days: identity.days.min(authority.days_left(self.now)),
            alternative_names: Vec::new(),
            passphrase: None,
        };
        let (certificate, key) = authority.issue(&request, self.now).map_err(failed)?;
        ring::install_own(dir, user, &certificate, &authority.chain(), &key).map_err(failed)?;
        Ok(certificate)
    }

    fn recipients(&mut self) -> Result<(), CliError> {
        let chain = self.signer()?.chain();
        for user in self.certificates.keys() {
            for other in self.plan.recipients_of(user) {
                if let Some(certificate) = self.certificates.get(other) {
                    ring::install_person(&self.ring(user), other, certificate, &chain).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    fn for_clients(&mut self) -> Result<(), CliError> {
        let root = self.signer()?.root();
        make_folder(&self.data.join(CLIENTS))?;
        write(&authority_file(self.data), &root.to_pem())?;
        write(&trust_store(self.data), &to_trust_store("bulla", std::slice::from_ref(root)))
    }

    fn passwords(&mut self) -> Result<(), CliError> {
        let users = Users::open(self.data).map_err(failed)?;
        for (name, user) in &self.plan.users {
            let password = match &user.password {
                Some(password) => password.clone(),
                None => made_password(&password_file(self.data, name))?,
            };
            if !users.exists(name) {
                users.add(name, &password, self.rounds).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn server_certificate(&mut self) -> Result<(), CliError> {
        if self.data.join(TLS).join("server.pem").exists() {
            return Ok(());
        }
        let authority = self.signer()?;
        let days = SERVER_DAYS.min(authority.days_left(self.now));
        let names = self.plan.outline.names.clone();
        serve::install_server_certificate(self.data, authority, names, days, self.now).map_err(not_started)
    }

    fn definitions(&mut self) -> Result<(), CliError> {
        let definitions: &Definitions = &self.plan.definitions;
        definitions.save(self.data).map_err(|error| CliError::file(self.data, error))
    }

    fn ring(&self, user: &str) -> PathBuf {
        self.data.join(RINGS).join(user)
    }
}

fn identities(plan: &Plan) -> impl Iterator<Item = (&str, &Identity)> {
    plan.users.iter().filter_map(|(name, user)| Some((name.as_str(), user.identity.as_ref()?)))
}

/// The password in the file, which is made first where it is not there.
fn made_password(path: &Path) -> Result<Zeroizing<String>, CliError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let password = Zeroizing::new(Random::system().name::<12>());
            write(path, Zeroizing::new(format!("{}\n", *password)).as_bytes())?;
            Ok(password)
        }
        Err(error) => Err(CliError::file(path, error)),
    }
}

fn make_folder(path: &Path) -> Result<(), CliError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| CliError::file(path, error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    whole_file::replace(path, bytes, 0o600).map_err(|error| CliError::file(path, error))
}

fn failed(error: impl Display) -> CliError {
    CliError::failed(error.to_string())
}

fn not_started(error: StartError) -> CliError {
    CliError { code: EXIT_START, message: error.to_string(), hint: error.hint() }
}
