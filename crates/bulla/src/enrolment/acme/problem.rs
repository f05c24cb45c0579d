//! What an authority says went wrong: a problem document (RFC 7807), with ACME's types (RFC 8555, section 6.7).

use crate::enrolment::EnrolError;
use crate::enrolment::web::plain;
use bulla_device::http::Answer;
use serde::Deserialize;

/// What ACME's types begin with.
const TYPES: &str = "urn:ietf:params:acme:error:";
/// Most parts of a problem that are shown.
const PARTS_MAX: usize = 3;

/// A problem.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Its type, a URI.
    #[serde(rename = "type")]
    kind: String,
    /// What happened, for people.
    detail: String,
    /// What it is made of, where several names are concerned.
    subproblems: Vec<Part>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    detail: String,
    identifier: Named,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    value: String,
}

impl Problem {
    /// What an answer that is no good one says.
    pub fn of(answer: &Answer) -> Problem {
        let read: Problem = serde_json::from_slice(&answer.body).unwrap_or_default();
        match read.kind.as_str() {
            "" | "about:blank" => Problem { kind: format!("HTTP status {}", answer.status), ..read },
            _ => read,
        }
    }

    /// Its type, in a word where it is one of ACME's.
    pub fn kind(&self) -> String {
        plain(self.kind.strip_prefix(TYPES).unwrap_or(&self.kind))
    }

    /// What it says, in a line.
    pub fn said(&self) -> String {
        let parts = self.subproblems.iter().take(PARTS_MAX);
        let parts = parts.map(|part| format!("; {}: {}", part.identifier.value, part.detail));
        plain(&format!("{}{}", self.detail, parts.collect::<String>()))
    }

    /// As an error.
    pub fn refused(&self) -> EnrolError {
        EnrolError::Refused { how: self.kind(), said: self.said() }
    }
}
