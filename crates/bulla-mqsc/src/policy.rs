//! Policies in the admin language: attributes to [`Policy`] and back.

use super::objects;
use super::parse::{self, Statement, SyntaxError, Value};
use super::reply::Cell;
use super::run;
use super::table::{Act, DN_CHARS_MAX, Defining, Key};
use bulla_catalog::{Change, Definitions};
use bulla_seal::policy::{KeyReuse, Quality, RECIPIENTS_MAX, SIGNERS_MAX, SignatureDigest};
use bulla_seal::{Dn, Policy, PolicyError};
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

/// The policy as one command on one line, every attribute written out: how a client that seals for itself is told.
pub fn text(policy: &Policy) -> String {
    objects::policy_command(policy)
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
        if statement.command.act != Act::Defines(Defining::SetPolicy) {
            return Err((statement.at, format!("{statement} where SET POLICY was expected")));
        }
        match run::plan(&statement, &none) {
            Ok(Change::SetPolicy(policy)) => match policy.check_signers() {
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

/// Why a policy cannot be set. The turn is with the author of the command.
#[derive(Debug)]
pub(super) enum Refused {
    /// A distinguished name that is not one.
    Dn { keyword: &'static str, text: String, why: String },
    /// The policy makes no sense.
    Policy(PolicyError),
    /// ACTION(REMOVE) names an entry that is not there.
    NotListed { keyword: &'static str, dn: String },
    /// ACTION(ADD) or ACTION(REMOVE) with something besides lists.
    NotAList { keyword: &'static str },
}

impl Refused {
    /// True when the same command may be good another time.
    pub(super) fn by_state(&self) -> bool {
        matches!(self, Refused::NotListed { .. })
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Dn { keyword, text, why } => write!(f, "{keyword}('{text}') is not a distinguished name: {why}"),
            Refused::Policy(error) => write!(f, "{error}"),
            Refused::NotListed { keyword, dn } => write!(f, "the policy has no {keyword}('{dn}')"),
            Refused::NotAList { keyword } => {
                write!(f, "ACTION(ADD) and ACTION(REMOVE) change SIGNER and RECIP only, not {keyword}")
            }
        }
    }
}

/// `SET POLICY … ACTION(REPLACE)`: a new policy, whatever was there.
pub(super) fn replaced(statement: &Statement) -> Result<Policy, Refused> {
    let mut policy = Policy::new(statement.name.stem.clone());
    for setting in &statement.settings {
        set(&mut policy, setting.attribute.key, &setting.value)?;
    }
    policy.check().map_err(Refused::Policy)?;
    Ok(policy)
}

/// `SET POLICY … ACTION(ADD | REMOVE)`: `policy` with more or fewer signers and recipients.
pub(super) fn changed(mut policy: Policy, statement: &Statement, add: bool) -> Result<Policy, Refused> {
    for setting in &statement.settings {
        let keyword = setting.attribute.keyword;
        let (list, names) = match (setting.attribute.key, &setting.value) {
            (Key::Signer, Value::List(names)) => (&mut policy.signers, names),
            (Key::Recipient, Value::List(names)) => (&mut policy.recipients, names),
            (Key::Action, _) => continue,
            _ => return Err(Refused::NotAList { keyword }),
        };
        for dn in distinguished_names(keyword, names)? {
            // Beyond its limit the list is refused anyway; comparing with each entry would go on for long.
            if list.len() > RECIPIENTS_MAX.max(SIGNERS_MAX) {
                break;
            }
            match (list.iter().position(|listed| *listed == dn), add) {
                (None, true) => list.push(dn),
                (Some(index), false) => drop(list.remove(index)),
                (Some(_), true) => {} // as often as one likes: the outcome is what was asked for
                (None, false) => return Err(Refused::NotListed { keyword, dn: dn.to_string() }),
            }
        }
    }
    policy.check().map_err(Refused::Policy)?;
    Ok(policy)
}

fn set(policy: &mut Policy, key: Key, value: &Value) -> Result<(), Refused> {
    match (key, value) {
        (Key::SignatureDigest, Value::Word(word)) => policy.sign = unless_none(word, digest)?,
        (Key::ContentCipher, Value::Word(word)) => policy.encrypt = unless_none(word, FromStr::from_str)?,
        (Key::Signer, Value::List(names)) => policy.signers = distinguished_names("SIGNER", names)?,
        (Key::Recipient, Value::List(names)) => policy.recipients = distinguished_names("RECIP", names)?,
        (Key::KeyReuse, Value::Number(0)) => policy.key_reuse = KeyReuse::Never,
        (Key::KeyReuse, Value::Number(count)) => {
            policy.key_reuse = KeyReuse::Count(u32::try_from(*count).unwrap_or(u32::MAX))
        }
        (Key::KeyReuse, Value::Word(_)) => policy.key_reuse = KeyReuse::Unlimited,
        (Key::Toleration, Value::Word(word)) => policy.toleration = known(word)?,
        (Key::BindName, Value::List(names)) => policy.bind_names = names.clone(),
        (Key::Bind, Value::Word(word)) => policy.bind = known(word)?,
        (Key::Weak, Value::Word(word)) => policy.weak = *word == "YES",
        (Key::OnDefect, Value::Word(word)) => policy.on_defect = known(word)?,
        (Key::SealedAt, Value::Word(word)) => policy.sealed_at = known(word)?,
        (Key::SignaturePadding, Value::Word(word)) => policy.signature_scheme = known(word)?,
        (Key::KeyWrap, Value::Word(word)) => policy.key_transport = known(word)?,
        (Key::Revocation, Value::Word(word)) => policy.revocation = known(word)?,
        _ => {}
    }
    Ok(())
}

fn known<T: FromStr<Err = PolicyError>>(word: &str) -> Result<T, Refused> {
    word.parse().map_err(Refused::Policy)
}

fn unless_none<T>(word: &str, parse: impl FnOnce(&str) -> Result<T, PolicyError>) -> Result<Option<T>, Refused> {
    if word == "NONE" { Ok(None) } else { parse(word).map(Some).map_err(Refused::Policy) }
}

const DIGESTS: [(&str, SignatureDigest); 3] =
    [("SHA256", SignatureDigest::Sha256), ("SHA384", SignatureDigest::Sha384), ("SHA512", SignatureDigest::Sha512)];

fn digest(word: &str) -> Result<SignatureDigest, PolicyError> {
    let found = DIGESTS.iter().find(|(known, _)| *known == word);
    found.map(|(_, digest)| *digest).ok_or_else(|| PolicyError::Keyword { keyword: "SIGNALG", value: word.into() })
}

fn distinguished_names(keyword: &'static str, names: &[String]) -> Result<Vec<Dn>, Refused> {
    let parse = |text: &String| {
        let refused = |why| Refused::Dn { keyword, text: text.clone(), why };
        let dn = text.parse::<Dn>().map_err(|error| refused(error.to_string()))?;
        // It is kept in its canonical form, which may be longer than what was typed and must be read back.
        let canonical = dn.to_string();
        if canonical.chars().count() > DN_CHARS_MAX {
            return Err(refused(format!("written out it has more than {DN_CHARS_MAX} characters")));
        }
        if canonical.chars().any(char::is_control) {
            return Err(refused("it holds control characters".into()));
        }
        Ok(dn)
    };
    names.iter().map(parse).collect()
}

/// What DISPLAY shows, and what the definitions file says.
pub(super) fn cell(policy: &Policy, key: Key) -> Option<Cell> {
    let yes_or_no = |yes| Cell::word(if yes { "YES" } else { "NO" });
    let names = |list: &[Dn]| Cell::List(list.iter().map(ToString::to_string).collect());
    Some(match key {
        Key::SignatureDigest => {
            let word = policy.sign.and_then(|sign| DIGESTS.iter().find(|(_, digest)| *digest == sign));
            Cell::word(word.map_or("NONE", |(word, _)| word))
        }
        Key::ContentCipher => Cell::word(policy.encrypt.map_or("NONE", |cipher| cipher.as_str())),
        Key::Signer => names(&policy.signers),
        Key::Recipient => names(&policy.recipients),
        Key::KeyReuse => match policy.key_reuse {
            KeyReuse::Never => Cell::word("DISABLED"),
            KeyReuse::Count(count) => Cell::Number(u64::from(count)),
            KeyReuse::Unlimited => Cell::word("UNLIMITED"),
        },
        Key::Toleration => Cell::word(policy.toleration.as_str()),
        Key::BindName => Cell::List(policy.bind_names.clone()),
        Key::Bind => Cell::word(policy.bind.as_str()),
        Key::Weak => yes_or_no(policy.weak),
        Key::OnDefect => Cell::word(policy.on_defect.as_str()),
        Key::SealedAt => Cell::word(policy.sealed_at.as_str()),
        Key::SignaturePadding => Cell::word(policy.signature_scheme.as_str()),
        Key::KeyWrap => Cell::word(policy.key_transport.as_str()),
        Key::Revocation => Cell::word(policy.revocation.as_str()),
        Key::Quality => {
            let quality = match policy.quality() {
                Quality::None => "NONE",
                Quality::Integrity => "INTEGRITY",
                Quality::Privacy => "PRIVACY",
                Quality::Confidentiality => "CONFIDENTIALITY",
            };
            let unbound = policy.encrypt.is_some() && !policy.can_bind();
            Cell::Text(if unbound { format!("{quality} UNBOUND") } else { quality.into() })
        }
        _ => return None,
    })
}
