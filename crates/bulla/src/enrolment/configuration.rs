//! `enrolment.toml` of the data directory: which certificates come and renew by themselves, and from where.
//! `docs/operating/enrolment.md` describes each key.
//!
//! It names programs that are run as the user of the queue manager. So it is a file that its owner alone may change,
//! and no definition: who may only give commands of the admin language must not be able to run a program.

use super::EnrolError;
use super::cmp::Cmp;
use super::command::Program;
use super::http::Url;
use super::safe_file::check_safe;
use super::source::Source;
use crate::catalog::names::is_label;
use crate::key_rotation::span;
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::{KeySpec, KeyUse};
use bulla_seal::dn::Dn;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Its name.
pub const FILE: &str = "enrolment.toml";
/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Seconds that an authority has for an answer, unless it is said.
const SECONDS: u64 = 60;
/// Most seconds that may be said.
const SECONDS_MAX: u64 = 600;

/// What `enrolment.toml` says.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// Where certificates come from, by name.
    pub authorities: BTreeMap<String, AuthorityTable>,
    /// Key rings whose keys are renewed, by user.
    pub rings: BTreeMap<String, RingTable>,
    /// Certificates under `tls/` that are renewed, by label.
    pub certificates: BTreeMap<String, CertificateTable>,
}

/// Where certificates come from.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AuthorityTable {
    /// A program and its arguments.
    pub command: Option<Vec<String>>,
    /// Where an authority is that speaks CMP.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub cmp: Option<Url>,
    /// Under which reference that authority knows the secret.
    pub reference: Option<String>,
    /// A file whose first line is the secret, for first certificates.
    pub secret_file: Option<PathBuf>,
    /// The authority's name in messages.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub recipient: Option<Dn>,
    /// How long an answer may take, in seconds.
    pub seconds: Option<u64>,
    /// A file of authorities, PEM. What comes must be issued below one of them.
    pub trust: PathBuf,
}

/// A key ring.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RingTable {
    /// The authority's name.
    pub authority: String,
    /// The subject of a first certificate.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub dn: Option<Dn>,
    /// The kind of new keys; without it that of the one before, and P-256 for a first one.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub key: Option<KeySpec>,
    /// What a first key may do; without it sign and encrypt.
    #[serde(default, deserialize_with = "all_parsed")]
    pub usage: Vec<KeyUse>,
    /// How long an old key is kept at least; without it seven days.
    #[serde(default, deserialize_with = "span_where_given")]
    pub overlap: Option<Duration>,
    /// Users whose rings get the first certificate. Later ones go where the former one is.
    #[serde(default)]
    pub share: Vec<String>,
}

/// A certificate of TLS.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CertificateTable {
    /// The authority's name.
    pub authority: String,
    /// The subject; without it that of the certificate before.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub dn: Option<Dn>,
    /// Alternative names; without them those of the certificate before.
    #[serde(default, deserialize_with = "all_parsed")]
    pub names: Vec<AlternativeName>,
    /// The kind of new keys; without it P-256.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub key: Option<KeySpec>,
}

impl Configuration {
    /// Reads the file of a data directory; none where there is no such file.
    ///
    /// # Errors
    /// It can't be read or understood, or others may write it.
    pub fn read(data: &Path) -> Result<Option<Configuration>, EnrolError> {
        let path = data.join(FILE);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            _ => check_safe(&path)?,
        }
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
        read.map_err(EnrolError::file(&path))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(EnrolError::Configuration { path, why: format!("longer than {FILE_BYTES_MAX} bytes") });
        }
        Self::parse(&text, &path).map(Some)
    }

    /// Reads the text of a file. Relative paths in it are those from its folder.
    ///
    /// # Errors
    /// [`EnrolError::Configuration`], with the line where there is one.
    pub fn parse(text: &str, path: &Path) -> Result<Configuration, EnrolError> {
        let bad = |why: String| EnrolError::Configuration { path: path.to_owned(), why };
        let mut read: Configuration = toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
            bad(format!("line {line}: {}", error.message().replace('\n', ": ")))
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for (name, authority) in &mut read.authorities {
            authority.trust = folder.join(&authority.trust);
            authority.secret_file = authority.secret_file.as_ref().map(|path| folder.join(path));
            authority.check().map_err(|why| bad(format!("authorities.{name}: {why}")))?;
        }
        let rings = read.rings.iter().map(|(name, ring)| (format!("rings.{name}"), &ring.authority));
        let certificates = read.certificates.iter();
        let certificates = certificates.map(|(name, one)| (format!("certificates.{name}"), &one.authority));
        for (of, authority) in rings.chain(certificates) {
            if !read.authorities.contains_key(authority) {
                return Err(bad(format!("{of}: there is no authorities.{authority}")));
            }
        }
        match read.certificates.keys().find(|label| !is_label(label)) {
            Some(label) => Err(bad(format!("certificates.{label}: not a label of a certificate"))),
            None => Ok(read),
        }
    }

    /// What is said of a user's ring.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`].
    pub fn ring(&self, user: &str) -> Result<&RingTable, EnrolError> {
        self.rings.get(user).ok_or_else(|| EnrolError::NotConfigured { what: format!("rings.{user}") })
    }

    /// What is said of a certificate of TLS.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`].
    pub fn certificate(&self, label: &str) -> Result<&CertificateTable, EnrolError> {
        self.certificates.get(label).ok_or_else(|| EnrolError::NotConfigured { what: format!("certificates.{label}") })
    }

    /// An authority.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`].
    pub fn authority(&self, name: &str) -> Result<&AuthorityTable, EnrolError> {
        self.authorities.get(name).ok_or_else(|| EnrolError::NotConfigured { what: format!("authorities.{name}") })
    }
}

impl AuthorityTable {
    /// Who is asked.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`].
    pub fn source(&self) -> Result<Box<dyn Source>, EnrolError> {
        if let Some(url) = &self.cmp {
            return Ok(Box::new(Cmp {
                url: url.clone(),
                reference: self.reference.clone(),
                secret_file: self.secret_file.clone(),
                recipient: self.recipient.clone(),
                trust: self.trust.clone(),
                within: self.within(),
            }));
        }
        let Some([path, arguments @ ..]) = self.command.as_deref() else {
            return Err(EnrolError::NotConfigured { what: "command".to_owned() });
        };
        Ok(Box::new(Program { path: path.into(), arguments: arguments.to_vec(), within: self.within() }))
    }

    /// How it is asked, in a word.
    pub fn method(&self) -> &'static str {
        if self.cmp.is_some() { "CMP" } else { "COMMAND" }
    }

    fn within(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(SECONDS))
    }

    fn check(&self) -> Result<(), String> {
        match (self.command.as_deref(), &self.cmp) {
            (Some(_), Some(_)) => return Err("it has both command and cmp".to_owned()),
            (Some([path, ..]), None) if Path::new(path).is_absolute() => {}
            (Some([path, ..]), None) => return Err(format!("{path:?} is no absolute path")),
            (Some([]), None) => return Err("command has no program".to_owned()),
            (None, Some(_)) => {}
            (None, None) => return Err("it has neither command nor cmp".to_owned()),
        }
        let of_cmp = [self.reference.is_some(), self.secret_file.is_some(), self.recipient.is_some()];
        if self.cmp.is_none() && of_cmp.contains(&true) {
            return Err("reference, secret_file and recipient are of cmp".to_owned());
        }
        if self.reference.is_some() != self.secret_file.is_some() {
            return Err("reference and secret_file go together".to_owned());
        }
        match self.seconds {
            Some(seconds) if !(1..=SECONDS_MAX).contains(&seconds) => {
                Err(format!("seconds is {seconds}, and not from 1 to {SECONDS_MAX}"))
            }
            _ => Ok(()),
        }
    }
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(text: &str) -> Result<T, D::Error> {
    text.parse().map_err(serde::de::Error::custom)
}

fn parsed_where_given<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    Option::<String>::deserialize(from)?.map(|text| parsed::<D, T>(&text)).transpose()
}

fn all_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Vec<T>, D::Error> {
    Vec::<String>::deserialize(from)?.iter().map(|text| parsed::<D, T>(text)).collect()
}

fn span_where_given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Option::<String>::deserialize(from)?.map(|text| span(&text).map_err(serde::de::Error::custom)).transpose()
}
