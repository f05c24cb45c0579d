//! `init.toml` in the data directory: what `bulla init` was told, so that one that was interrupted goes on, and another
//! file is not mixed with it.

use super::super::CliError;
use super::file::SiteFile;
use super::plan::alternative_name;
use crate::folders::{AUTHORITIES, JOURNAL, RINGS, TLS};
use crate::mqsc::objects::FILE as OBJECTS;
use crate::random::Random;
use crate::serve::first_start::name_of_its_own;
use crate::whole_file;
use bulla_seal::certificate::create::ALTERNATIVE_NAMES_MAX;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// Its name in the data directory.
const FILE: &str = "init.toml";

/// What it was told, and what it found for itself.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// The queue manager's name.
    pub(super) name: String,
    /// This machine's own name.
    pub(super) machine: String,
    /// What the listener's certificate is for.
    pub(super) names: Vec<String>,
    /// As it was given.
    pub(super) file: SiteFile,
}

/// How far a data directory is.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing of a queue manager is there.
    Nothing,
    /// `bulla init` was interrupted there.
    Begun(Record),
    /// `bulla init` has made it.
    Made(Record),
}

impl Found {
    /// Looks into a data directory.
    ///
    /// # Errors
    /// There is a queue manager that `bulla init` did not make, or a file can't be read.
    pub(super) fn at(data: &Path) -> Result<Self, CliError> {
        let there = |name: &str| data.join(name).exists();
        let path = data.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match [OBJECTS, JOURNAL, RINGS, TLS, AUTHORITIES, crate::users::FILE]
                    .into_iter()
                    .find(|name| there(name))
                {
                    Some(name) => Err(CliError::failed(format!(
                        "{} holds a queue manager that `bulla init` did not make: {name} is there",
                        data.display()
                    ))
                    .hint("name a directory that is empty or not there")),
                    None => Ok(Self::Nothing),
                };
            }
            Err(error) => return Err(CliError::file(&path, error)),
        };
        let record = toml::from_str(&text)
            .map_err(|error| CliError::failed(format!("{}: {}", path.display(), error.message())))?;
        // The definitions come last.
        Ok(if there(OBJECTS) || there(JOURNAL) { Self::Made(record) } else { Self::Begun(record) })
    }

    /// What was given before.
    pub(super) fn file(&self) -> Option<&SiteFile> {
        match self {
            Self::Nothing => None,
            Self::Begun(record) | Self::Made(record) => Some(&record.file),
        }
    }
}

impl Record {
    /// Adds to a file what this machine and chance know.
    pub(super) fn new(file: SiteFile) -> Self {
        let system = rustix::system::uname();
        let machine = system.nodename().to_string_lossy().into_owned();
        let name = file.name.clone().unwrap_or_else(|| name_of_its_own(system.nodename(), &mut Random::system()));
        let mut names = file.hosts.clone();
        let own = std::iter::once(machine.clone()).chain(addresses());
        for found in ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into_iter().chain(own) {
            // A machine may have a name that no certificate can hold.
            if !names.contains(&found) && names.len() < ALTERNATIVE_NAMES_MAX && alternative_name(&found).is_ok() {
                names.push(found);
            }
        }
        Self { name, machine, names, file }
    }

    /// Writes it into the data directory, for its owner alone.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(super) fn write(&self, data: &Path) -> Result<(), CliError> {
        let path = data.join(FILE);
        let text = toml::to_string(self).map_err(|error| CliError::failed(format!("{}: {error}", path.display())))?;
        whole_file::replace(&path, text.as_bytes(), 0o600).map_err(|error| CliError::file(&path, error))
    }
}

/// Addresses by which other machines reach this one. Where the system does not say, the file has to.
fn addresses() -> Vec<String> {
    let found = if_addrs::get_if_addrs().unwrap_or_default();
    let reach = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    found.iter().map(if_addrs::Interface::ip).filter(reach).map(|address| address.to_string()).collect()
}

/// Whether `bulla init` was interrupted in this data directory: a queue manager that started there would have neither
/// queues nor rights.
pub(super) fn is_unfinished(data: &Path) -> bool {
    data.join(FILE).exists() && !data.join(OBJECTS).exists() && !data.join(JOURNAL).exists()
}
