//! An order, and the proofs that it takes (RFC 8555, sections 7.1.3 to 7.1.6).

use super::jws;
use super::problem::Problem;
use crate::enrolment::EnrolError;
use bulla_seal::certificate::create::AlternativeName;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest token of a challenge, in characters. Those that are used have 43.
const TOKEN_LETTERS_MAX: usize = 256;

/// How something stands.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It waits for proofs.
    #[default]
    Pending,
    /// All is proved.
    Ready,
    /// The authority is at it.
    Processing,
    /// It is good.
    Valid,
    /// It failed.
    Invalid,
    /// It was taken back by whoever asked for it.
    Deactivated,
    /// Its time is over.
    Expired,
    /// The authority took it back.
    Revoked,
}

impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Pending => "pending",
            Status::Ready => "ready",
            Status::Processing => "processing",
            Status::Valid => "valid",
            Status::Invalid => "invalid",
            Status::Deactivated => "deactivated",
            Status::Expired => "expired",
            Status::Revoked => "revoked",
        })
    }
}

/// What is certified.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Identifier {
    /// `dns`, or `ip` (RFC 8738).
    #[serde(rename = "type")]
    pub kind: String,
    /// The name or address.
    pub value: String,
}

impl Identifier {
    /// That of a name.
    ///
    /// # Errors
    /// [`EnrolError::NotConfigured`] for a name that no challenge here can prove.
    pub fn of(name: &AlternativeName) -> Result<Identifier, EnrolError> {
        let of = |kind: &str, value: String| Ok(Identifier { kind: kind.to_owned(), value });
        match name {
            AlternativeName::Dns(host) if !host.starts_with('*') => of("dns", host.to_ascii_lowercase()),
            AlternativeName::Ip(address) => of("ip", address.to_string()),
            _ => Err(EnrolError::NotConfigured {
                what: format!("names that ACME can prove: {name} is no name of one host and no address"),
            }),
        }
    }
}

/// An order.
#[derive(Clone, Debug, Deserialize)]
pub struct Order {
    /// How it stands.
    pub status: Status,
    /// Where the proofs are that it takes.
    #[serde(default)]
    pub authorizations: Vec<String>,
    /// Where the request goes when all is proved.
    pub finalize: String,
    /// Where the certificate is.
    pub certificate: Option<String>,
    /// Why it failed.
    pub error: Option<Problem>,
}

impl Order {
    /// Why it failed.
    pub fn why(&self) -> Option<&Problem> {
        self.error.as_ref()
    }
}

/// A proof that is wanted.
#[derive(Clone, Debug, Deserialize)]
pub struct Authorization {
    /// Of what.
    pub identifier: Identifier,
    /// How it stands.
    pub status: Status,
    /// The ways to prove it.
    #[serde(default)]
    pub challenges: Vec<Way>,
    /// Of all names below that one.
    #[serde(default)]
    pub wildcard: bool,
}

impl Authorization {
    /// Why it failed.
    pub fn why(&self) -> Option<&Problem> {
        self.challenges.iter().find_map(|challenge| challenge.error.as_ref())
    }
}

/// One way to prove it.
#[derive(Clone, Debug, Deserialize)]
pub struct Way {
    /// Its name, as `http-01`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where the authority is told to look.
    #[serde(default)]
    pub url: String,
    /// What tells this one from others.
    #[serde(default)]
    pub token: String,
    /// How it stands.
    #[serde(default)]
    pub status: Status,
    /// Why it failed.
    pub error: Option<Problem>,
}

/// What is shown to prove a name (RFC 8555, section 8.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proof {
    /// The name.
    pub identifier: Identifier,
    /// The token of the challenge: characters of base64url alone.
    pub token: String,
    /// The key authorization.
    pub text: String,
}

impl Proof {
    /// Of a name, by the account with that thumbprint.
    ///
    /// # Errors
    /// [`EnrolError::Protocol`]: the token is none.
    pub fn new(identifier: &Identifier, token: &str, thumbprint: &str) -> Result<Proof, EnrolError> {
        if !jws::is_base64url(token) || token.len() > TOKEN_LETTERS_MAX {
            return Err(EnrolError::Protocol { why: "the challenge has no good token".to_owned() });
        }
        let text = format!("{token}.{thumbprint}");
        Ok(Proof { identifier: identifier.clone(), token: token.to_owned(), text })
    }

    /// By which name a TLS listener is asked for the proof: of an address the one of reverse look-ups (RFC 8738,
    /// section 6).
    pub fn server_name(&self) -> String {
        match self.identifier.value.parse() {
            Ok(IpAddr::V4(address)) => of_v4(address),
            Ok(IpAddr::V6(address)) => of_v6(address),
            Err(_) => self.identifier.value.clone(),
        }
    }
}

fn of_v4(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("{d}.{c}.{b}.{a}.in-addr.arpa")
}

fn of_v6(address: Ipv6Addr) -> String {
    let halves = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
    halves.map(|half| format!("{half:x}.")).collect::<String>() + "ip6.arpa"
}
