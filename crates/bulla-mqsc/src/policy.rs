//! Policies as text, for clients that seal and open by themselves.

use super::parse::{self, Statement, SyntaxError};
use super::run;
use super::table::{Act, Defining};
use crate::nouns;
use bulla_catalog::{Change, Definitions, Object, Sort};
use bulla_seal::Policy;
use std::sync::Arc;

/// The policy as one command on one line, every attribute written out: how a client that seals for itself is told.
pub fn text(policy: &Arc<Policy>) -> String {
    nouns::policy::text(policy)
}

/// What the policy protects, as it is shown: `PRIVACY`.
#[must_use]
pub fn quality(policy: &Policy) -> String {
    nouns::policy::quality(policy)
}

/// Reads [`text`]'s form: one `SET POLICY` command.
///
/// # Errors
/// One lower-case line with its place: something else stands there, or a policy that makes no sense.
pub fn from_text(text: &str) -> Result<Policy, String> {
    let [policy] = <[Policy; 1]>::try_from(all_from_text(text)?)
        .map_err(|policies| format!("{} policies where one was expected", policies.len()))?;
    Ok(policy)
}

/// Reads policies: `SET POLICY` commands and nothing else.
///
/// # Errors
/// One lower-case line with its place: something else stands there, or a policy that makes no sense.
pub fn all_from_text(text: &str) -> Result<Vec<Policy>, String> {
    let none = Definitions::initial("NONE"); // whatever a policy would be added to is not here
    let read = |statement: Result<Statement, SyntaxError>| {
        let statement = statement.map_err(|error| (error.at, error.to_string()))?;
        if statement.command.act != Act::Defines(Defining::Set(Sort::Policy)) {
            return Err((statement.at, format!("{statement} where SET POLICY was expected")));
        }
        match run::plan(&statement, &none) {
            Ok(Change::Define { object: Object::Policy(policy), .. }) => match policy.check_signers() {
                Ok(()) => Ok(Arc::unwrap_or_clone(policy)),
                Err(error) => Err((statement.at, error.to_string())),
            },
            Ok(_) => Err((statement.at, format!("{statement} sets no policy"))),
            Err(failure) => Err((statement.at, failure.message)),
        }
    };
    let statements = parse::statements(text).into_iter();
    statements
        .map(|statement| read(statement).map_err(|(at, message)| format!("{}:{}: {message}", at.line, at.column)))
        .collect()
}
