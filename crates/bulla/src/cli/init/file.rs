//! The file that `bulla init` reads. `docs/formats/init.md` describes each key.

use super::super::{CliError, EXIT_USAGE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A file to start from.
pub(super) const EXAMPLE: &str = include_str!("example.toml");

/// What a queue manager is to have.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SiteFile {
    /// The queue manager's name.
    pub(super) name: Option<String>,
    /// The O in the names of certificates.
    pub(super) organisation: Option<String>,
    /// Host names and addresses that clients use, besides those that the machine knows.
    pub(super) hosts: Vec<String>,
    /// The user who administers; none where it is empty.
    pub(super) administrator: Option<String>,
    /// A file of further definitions.
    pub(super) mqsc: Option<PathBuf>,
    pub(super) listen: ListenTable,
    pub(super) authority: AuthorityTable,
    /// By name.
    pub(super) users: BTreeMap<String, UserTable>,
    /// By name.
    pub(super) queues: BTreeMap<String, QueueTable>,
}

/// Where it listens; `none` for nowhere.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ListenTable {
    pub(super) amqp: Option<String>,
    pub(super) amqps: Option<String>,
    pub(super) https: Option<String>,
}

/// The authority that signs all certificates.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthorityTable {
    pub(super) dn: Option<String>,
    pub(super) key: Option<String>,
    pub(super) days: Option<u32>,
    /// A file with its certificate, those above it and its key.
    pub(super) import: Option<PathBuf>,
    /// Its key, where that is in a file of its own; or the URI of a key on a token.
    pub(super) key_file: Option<PathBuf>,
    /// The PKCS#11 module of the token with its key.
    pub(super) module: Option<PathBuf>,
    /// The token's PIN, first line of a file.
    pub(super) pin_file: Option<PathBuf>,
    /// Opens what is imported, and encrypts the key in the data directory.
    pub(super) passphrase_file: Option<PathBuf>,
}

/// A user with a key ring.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UserTable {
    pub(super) dn: Option<String>,
    pub(super) key: Option<String>,
    pub(super) days: Option<u32>,
    /// Its first line is the password; without it, one is made.
    pub(super) password_file: Option<PathBuf>,
}

/// A queue, and who uses it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QueueTable {
    pub(super) protection: Protection,
    pub(super) put: Vec<String>,
    pub(super) get: Vec<String>,
    pub(super) browse: Vec<String>,
}

/// The quality of protection.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Protection {
    None,
    Integrity,
    /// Signed by who puts, for who gets.
    #[default]
    Privacy,
    Confidentiality,
}

impl SiteFile {
    /// Reads it. Relative paths in it are those from its folder.
    ///
    /// # Errors
    /// It can't be read, or has a key or value that is not understood, with the line.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let usage = |error: &io::Error| CliError::usage(format!("{}: {error}", path.display()));
        let folder = std::env::current_dir().map_err(|error| usage(&error))?;
        if path == Path::new("-") {
            let text = text_of(io::stdin().lock()).map_err(|error| usage(&error))?;
            return Self::parse(&text, path, &folder);
        }
        let text = File::open(path).and_then(text_of).map_err(|error| usage(&error))?;
        let folder = folder.join(path.parent().unwrap_or(Path::new("")));
        Self::parse(&text, path, &folder)
    }

    /// As [`read`](Self::read); `path` is for messages.
    pub(super) fn parse(text: &str, path: &Path, folder: &Path) -> Result<Self, CliError> {
        let mut file: Self = toml::from_str(text).map_err(|error| not_understood(text, path, &error))?;
        let users = file.users.values_mut().map(|user| &mut user.password_file);
        let authority = &mut file.authority;
        let others = [
            &mut file.mqsc,
            &mut authority.import,
            &mut authority.key_file,
            &mut authority.module,
            &mut authority.pin_file,
            &mut authority.passphrase_file,
        ];
        for named in users.chain(others).flatten() {
            *named = folder.join(&*named);
        }
        Ok(file)
    }
}

fn text_of(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

/// The parser's message in one line; what it would have taken is the hint.
fn not_understood(text: &str, path: &Path, error: &toml::de::Error) -> CliError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let said = error.message().replace('\n', ": ").replace("unknown field", "unknown key");
    let (message, expected) = match said.split_once(", expected ") {
        Some((message, expected)) => (message, Some(format!("expected {expected}"))),
        None => (said.as_str(), None),
    };
    let hint = expected.unwrap_or_else(|| "`bulla init --example` writes a file to start from".into());
    CliError::new(EXIT_USAGE, format!("{}:{line}: {message}", path.display())).hint(hint)
}
