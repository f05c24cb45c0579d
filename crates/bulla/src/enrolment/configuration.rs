//! `enrolment.toml` of the data directory: which certificates come and renew by themselves, and from where.
//! `docs/operating/enrolment.md` describes each key.
//!
//! It names programs that are run as the user of the queue manager. So it is a file that its owner alone may change,
//! and no definition: who may only give commands of the admin language must not be able to run a program.

use super::EnrolError;
use super::acme::account::{Account, Binding};
use super::acme::order::Identifier;
use super::acme::{Acme, Challenge};
use super::cmp::Cmp;
use super::command::Program;
use super::safe_file::check_safe;
use super::source::Source;
use super::spiffe::{self, Agent};
use crate::catalog::names::is_label;
use crate::folders::ENROLMENT;
use crate::key_rotation::span;
use crate::tls::proof;
use bulla_device::http::{Scheme, Url};
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::{KeySpec, KeyUse};
use bulla_seal::dn::Dn;
use bulla_seal::spiffe_id::is_of_process;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
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

/// Most alternative names of one certificate.
const NAMES_MAX: usize = 100;
/// Where an authority looks for `http-01` (RFC 8555, section 8.3), unless another address is said.
const HTTP01: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 80);

/// What `enrolment.toml` says.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// Where certificates come from, by name.
    pub authorities: BTreeMap<String, AuthorityTable>,
    /// Key rings whose keys are renewed, by user.
    pub rings: BTreeMap<String, RingTable>,
    /// Key rings whose keys for signatures alone an agent has, by user.
    pub signers: BTreeMap<String, SignerTable>,
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
    /// Where the directory of an authority is that speaks ACME.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub acme: Option<Url>,
    /// Where the socket of the agent of a SPIFFE trust domain is.
    pub spiffe: Option<String>,
    /// Which files of `tls/` are to hold the authorities of that trust domain.
    #[serde(default)]
    pub believe: Vec<Believers>,
    /// Under which reference that authority knows the secret.
    pub reference: Option<String>,
    /// A file whose first line is the secret, for first certificates.
    pub secret_file: Option<PathBuf>,
    /// The authority's name in messages.
    #[serde(default, deserialize_with = "parsed_where_given")]
    pub recipient: Option<Dn>,
    /// Where the holder of an account is reached, as `mailto:mq@example.com`.
    #[serde(default)]
    pub contact: Vec<String>,
    /// The holder of an account agrees to the authority's terms.
    #[serde(default)]
    pub terms_agreed: bool,
    /// A file with the account's private key, made where it is missing.
    pub account_key: Option<PathBuf>,
    /// The name of the key by which an authority knows the holder of an account.
    pub binding_id: Option<String>,
    /// A file whose first line is that key.
    pub binding_key_file: Option<PathBuf>,
    /// How names are proved: `http-01`, `tls-alpn-01`.
    pub challenge: Option<ChallengeWord>,
    /// Where it is listened for the proof of `http-01`.
    pub http01_listen: Option<SocketAddr>,
    /// A file of authorities, PEM. The server's own certificate, over `https`, must be issued below one of them.
    pub https_trust: Option<PathBuf>,
    /// The authority's name here, and the data directory.
    #[serde(skip)]
    pub place: (String, PathBuf),
    /// How long an answer may take, in seconds.
    pub seconds: Option<u64>,
    /// A file of authorities, PEM. What comes must be issued below one of them. Empty where the agent says who they
    /// are.
    #[serde(default)]
    pub trust: PathBuf,
}

/// Who believes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Believers {
    /// The listeners, of clients and channels that call.
    Clients,
    /// The channels, of the queue managers that they call.
    Partners,
}

impl Believers {
    /// Its name under `tls/`.
    pub fn file(self) -> &'static str {
        match self {
            Believers::Clients => "clients.pem",
            Believers::Partners => "partners.pem",
        }
    }
}

/// How names are proved.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum ChallengeWord {
    /// A text that is read over HTTP.
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate that the TLS listeners show.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
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

/// A key ring that signs with what an agent of SPIFFE has.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SignerTable {
    /// The authority's name.
    pub authority: String,
    /// The name of the certificate that is taken, of several that the agent has; without it the first.
    pub spiffe_id: Option<String>,
    /// Users whose rings are to believe the trust domain too.
    #[serde(default)]
    pub share: Vec<String>,
}

/// A certificate of TLS.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CertificateTable {
    /// The authority's name.
    pub authority: String,
    /// The name of the certificate that is taken, of several that an agent has; without it the first.
    pub spiffe_id: Option<String>,
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
            if !authority.trust.as_os_str().is_empty() {
                authority.trust = folder.join(&authority.trust);
            }
            for path in [
                &mut authority.secret_file,
                &mut authority.account_key,
                &mut authority.binding_key_file,
                &mut authority.https_trust,
            ] {
                *path = path.as_ref().map(|path| folder.join(path));
            }
            authority.place = (name.clone(), folder.to_owned());
            authority.check().map_err(|why| bad(format!("authorities.{name}: {why}")))?;
        }
        let rings = read.rings.iter().map(|(name, ring)| (format!("rings.{name}"), &ring.authority));
        let certificates = read.certificates.iter();
        let certificates = certificates.map(|(name, one)| (format!("certificates.{name}"), &one.authority));
        let signers = read.signers.iter().map(|(name, signer)| (format!("signers.{name}"), &signer.authority));
        for (of, authority) in rings.chain(signers).chain(certificates) {
            if !read.authorities.contains_key(authority) {
                return Err(bad(format!("{of}: there is no authorities.{authority}")));
            }
        }
        // The account's file has its name.
        let mut acme = read.authorities.iter().filter(|(_, authority)| authority.acme.is_some());
        if let Some((name, _)) = acme.find(|(name, _)| !is_label(name)) {
            return Err(bad(format!("authorities.{name}: with acme a name has letters, digits, ., - and _")));
        }
        if let Some(label) = read.certificates.keys().find(|label| !is_label(label)) {
            return Err(bad(format!("certificates.{label}: not a label of a certificate")));
        }
        for who in [Believers::Clients, Believers::Partners] {
            let mut of = read.authorities.iter().filter(|(_, authority)| authority.believe.contains(&who));
            if let (Some((one, _)), Some((other, _))) = (of.next(), of.next()) {
                return Err(bad(format!("authorities.{one} and .{other}: one of them alone may say {}", who.file())));
            }
        }
        if let Some(user) = read.rings.iter().find_map(|(user, ring)| {
            let authority = read.authorities.get(&ring.authority)?;
            authority.spiffe.is_some().then_some(user)
        }) {
            return Err(EnrolError::ShortLived { path: path.to_owned(), user: user.clone() });
        }
        for (user, signer) in &read.signers {
            if read.authority(&signer.authority)?.spiffe.is_none() {
                return Err(bad(format!(
                    "signers.{user}: it needs an authority with spiffe; others are for rings.{user}"
                )));
            }
            if let Some(id) = signer.spiffe_id.as_ref().filter(|id| !is_of_process(id)) {
                return Err(bad(format!("signers.{user}: {id:?} is not the SPIFFE ID of a process")));
            }
        }
        for (user, ring) in &read.rings {
            if read.authority(&ring.authority)?.acme.is_some() {
                return Err(bad(format!("rings.{user}: acme has certificates of TLS alone")));
            }
        }
        for (label, one) in &read.certificates {
            let names = &one.names;
            if names.len() > NAMES_MAX {
                return Err(bad(format!("certificates.{label}: it has more than {NAMES_MAX} names")));
            }
            let authority = read.authority(&one.authority)?;
            one.check(authority.spiffe.is_some()).map_err(|why| bad(format!("certificates.{label}: {why}")))?;
            let is_acme = authority.acme.is_some();
            if let Some(name) = names.iter().find(|name| is_acme && Identifier::of(name).is_err()) {
                return Err(bad(format!(
                    "certificates.{label}: acme can't prove {name}: it is neither host nor address"
                )));
            }
        }
        Ok(read)
    }

    /// What is said of a user's ring.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`].
    pub fn ring(&self, user: &str) -> Result<&RingTable, EnrolError> {
        self.rings.get(user).ok_or_else(|| EnrolError::NotConfigured { what: format!("rings.{user}") })
    }

    /// What is said of a user's key for signatures alone.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`].
    pub fn signer(&self, user: &str) -> Result<&SignerTable, EnrolError> {
        self.signers.get(user).ok_or_else(|| EnrolError::NotConfigured { what: format!("signers.{user}") })
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

impl CertificateTable {
    /// Whether each key that is given says something, and is understood, where the certificate comes with its key.
    fn check(&self, is_spiffe: bool) -> Result<(), String> {
        match &self.spiffe_id {
            Some(_) if !is_spiffe => return Err("spiffe_id is of spiffe".to_owned()),
            Some(id) if !id.starts_with(spiffe::ID) => return Err(format!("{id:?} is no SPIFFE ID")),
            _ => {}
        }
        if is_spiffe && (self.dn.is_some() || self.key.is_some()) {
            return Err("with spiffe subject and key are the agent's matter: no dn, no key".to_owned());
        }
        Ok(())
    }
}

impl AuthorityTable {
    /// Who is asked.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`].
    pub fn source(&self) -> Result<Box<dyn Source>, EnrolError> {
        let https_trust = self.https_trust.clone().unwrap_or_else(|| self.trust.clone());
        if let Some(directory) = &self.acme {
            let (name, data) = &self.place;
            let enrolment = data.join(ENROLMENT);
            let account_key = self.account_key.clone().unwrap_or_else(|| enrolment.join(format!("{name}.account")));
            let binding = self.binding_id.clone().zip(self.binding_key_file.clone());
            return Ok(Box::new(Acme {
                directory: directory.clone(),
                https_trust,
                account: Account {
                    key_file: account_key,
                    contact: self.contact.clone(),
                    terms_agreed: self.terms_agreed,
                    binding: binding.map(|(id, key_file)| Binding { id, key_file }),
                },
                challenge: match self.challenge {
                    None | Some(ChallengeWord::Http01) => Challenge::Http01(self.http01_listen.unwrap_or(HTTP01)),
                    Some(ChallengeWord::TlsAlpn01) => Challenge::TlsAlpn01(enrolment.join(proof::FOLDER)),
                },
                within: self.within(),
            }));
        }
        if let Some(url) = &self.cmp {
            return Ok(Box::new(Cmp {
                url: url.clone(),
                reference: self.reference.clone(),
                secret_file: self.secret_file.clone(),
                recipient: self.recipient.clone(),
                trust: self.trust.clone(),
                https_trust,
                within: self.within(),
            }));
        }
        if let Some(address) = &self.spiffe {
            let socket = spiffe::socket(address).map_err(|what| EnrolError::NotConfigured { what })?;
            return Ok(Box::new(Agent { socket, within: self.within() }));
        }
        let Some([path, arguments @ ..]) = self.command.as_deref() else {
            return Err(EnrolError::NotConfigured { what: "command".to_owned() });
        };
        Ok(Box::new(Program { path: path.into(), arguments: arguments.to_vec(), within: self.within() }))
    }

    /// How it is asked, in a word.
    pub fn method(&self) -> &'static str {
        match (&self.acme, &self.cmp, &self.spiffe) {
            (Some(_), ..) => "ACME",
            (None, Some(_), _) => "CMP",
            (None, None, Some(_)) => "SPIFFE",
            (None, None, None) => "COMMAND",
        }
    }

    fn within(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(SECONDS))
    }

    fn check(&self) -> Result<(), String> {
        let ways = [
            ("command", self.command.is_some()),
            ("cmp", self.cmp.is_some()),
            ("acme", self.acme.is_some()),
            ("spiffe", self.spiffe.is_some()),
        ];
        let mut ways = ways.into_iter().filter(|(_, is_there)| *is_there).map(|(word, _)| word);
        match (ways.next(), ways.next()) {
            (None, _) => return Err("it has neither command nor cmp nor acme nor spiffe".to_owned()),
            (Some(one), Some(other)) => return Err(format!("it has both {one} and {other}")),
            (Some(way), None) => self.check_keys(way)?,
        }
        match &self.spiffe {
            Some(address) => drop(spiffe::socket(address)?),
            None if self.trust.as_os_str().is_empty() => return Err("missing field `trust`".to_owned()),
            None => {}
        }
        match self.command.as_deref() {
            Some([path, ..]) if !Path::new(path).is_absolute() => return Err(format!("{path:?} is no absolute path")),
            Some([]) => return Err("command has no program".to_owned()),
            _ => {}
        }
        // What is signed there is signed whole, but who answers is known by TLS alone (RFC 8555, section 6.1).
        if self.acme.as_ref().is_some_and(|url| url.address.scheme == Scheme::Http) {
            return Err("acme is spoken over https alone".to_owned());
        }
        if self.contact.iter().any(|contact| !contact.contains(':') || contact.contains(char::is_control)) {
            return Err("contact has URIs, as mailto:mq@example.com".to_owned());
        }
        for (one, other, is_half) in [
            ("reference", "secret_file", self.reference.is_some() != self.secret_file.is_some()),
            ("binding_id", "binding_key_file", self.binding_id.is_some() != self.binding_key_file.is_some()),
        ] {
            if is_half {
                return Err(format!("{one} and {other} go together"));
            }
        }
        if self.challenge == Some(ChallengeWord::TlsAlpn01) && self.http01_listen.is_some() {
            return Err("http01_listen is of the challenge http-01".to_owned());
        }
        match self.seconds {
            Some(seconds) if !(1..=SECONDS_MAX).contains(&seconds) => {
                Err(format!("seconds is {seconds}, and not from 1 to {SECONDS_MAX}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether each key that is given says something of the way in which this authority is asked.
    fn check_keys(&self, way: &str) -> Result<(), String> {
        for (key, of, is_given) in [
            ("reference", "cmp", self.reference.is_some()),
            ("secret_file", "cmp", self.secret_file.is_some()),
            ("recipient", "cmp", self.recipient.is_some()),
            ("contact", "acme", !self.contact.is_empty()),
            ("terms_agreed", "acme", self.terms_agreed),
            ("account_key", "acme", self.account_key.is_some()),
            ("binding_id", "acme", self.binding_id.is_some()),
            ("binding_key_file", "acme", self.binding_key_file.is_some()),
            ("challenge", "acme", self.challenge.is_some()),
            ("http01_listen", "acme", self.http01_listen.is_some()),
            ("believe", "spiffe", !self.believe.is_empty()),
        ] {
            if is_given && way != of {
                return Err(format!("{key} is of {of}"));
            }
        }
        if self.https_trust.is_some() && matches!(way, "command" | "spiffe") {
            return Err("https_trust is of cmp and acme".to_owned());
        }
        Ok(())
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
