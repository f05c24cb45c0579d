//! RESEAL in the admin language: what is asked, and the row that says what was done.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Outcome, Row};
use super::run::{Administered, failure, invalid, unknown};
use super::table::Key;
use crate::nouns::queues::local;
use bulla_catalog::Usage;
use bulla_catalog::system_queues::ERROR_QUEUE;
use bulla_catalog::topic_names::MANAGED_PREFIX;
use std::collections::BTreeMap;

/// Messages that one command seals anew, at most: a part of a second, after which others have their turn.
pub const RESEAL_MESSAGES_MAX: u64 = 2_000;
/// The same where a command does not say.
const RESEAL_MESSAGES: u64 = 100;
/// Longest name of a user, and longest identifier of a key, in characters.
pub(super) const TEXT_CHARS_MAX: usize = 255;

/// What is asked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResealQuestion {
    /// The local queue; it exists.
    pub queue: String,
    /// Which of its messages.
    pub select: Select,
    /// The user whose keys open them; none for any ring here that has the key.
    pub reader: Option<String>,
    /// The name of the policy by which they are opened; none for the one in force.
    pub former: Option<String>,
    /// At most so many.
    pub count: usize,
    /// Those behind the place that the last answer named.
    pub after: Option<String>,
}

/// Which messages are sealed anew.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Select {
    /// Those that other keys open than those of the policy's recipients.
    #[default]
    NotCurrent,
    /// Those that the key of that serial number opens, or of that key identifier; hexadecimal digits.
    Needs(String),
    /// Every sealed one.
    All,
}

/// What was done.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resealed {
    /// Messages that are sealed anew, for good.
    pub sealed: u64,
    /// Messages that were looked at.
    pub looked: u64,
    /// Messages that are locked, or put and not synced yet: they are to be looked at again.
    pub busy: u64,
    /// Messages that were got, or expired, meanwhile.
    pub gone: u64,
    /// Messages that are not sealed.
    pub clear: u64,
    /// Messages that stay as they are, by cause.
    pub failed: BTreeMap<String, u64>,
    /// The keys that opened what is sealed anew: issuer and serial number of each.
    pub old_keys: Vec<String>,
    /// The keys that open it now.
    pub new_keys: Vec<String>,
    /// Who signs; none where nothing is signed.
    pub signer: Option<String>,
    /// Where the next command goes on; none at the end of the queue.
    pub after: Option<String>,
}

/// RESEAL.
///
/// # Errors
/// It contradicts itself or what is defined, or the target refuses.
pub(super) fn reseal(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let text = |key: Key| match statement.value(key) {
        Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let definitions = target.definitions();
    let queue = &statement.name.stem;
    let found = local(queue, definitions)?;
    let dead_letters = definitions.queue_manager.dead_letter_queue.as_deref();
    if found.usage == Usage::Transmission || queue == ERROR_QUEUE || Some(queue.as_str()) == dead_letters {
        return Err(invalid(format_args!("what lies on {queue} is sealed for other queues"), None));
    }
    // A queue that was made for a subscription has the policy of its model, which the queue manager knows.
    if !definitions.policies.contains_key(queue) && !queue.starts_with(MANAGED_PREFIX) {
        return Err(unknown("policy", queue));
    }
    let needs = text(Key::Own("NEEDS"));
    let all = statement.says(Key::Own("SELECT"), "ALL");
    let select = match needs {
        Some(_) if all => return Err(invalid("SELECT(ALL) and NEEDS name different messages", None)),
        Some(key) => Select::Needs(hexadecimal(&key)?),
        None if all => Select::All,
        None => Select::NotCurrent,
    };
    let former = text(Key::Own("FORMER"));
    if let Some(former) = former.as_deref().filter(|name| !definitions.policies.contains_key(*name)) {
        return Err(unknown("policy", former));
    }
    let count = match statement.value(Key::Count) {
        Some(Value::Number(count)) => *count,
        _ => RESEAL_MESSAGES,
    };
    let question = ResealQuestion {
        queue: queue.clone(),
        select,
        reader: text(Key::Own("READER")),
        former,
        count: usize::try_from(count).unwrap_or(usize::MAX),
        after: text(Key::Own("AFTER")),
    };
    let done = target.reseal(&question).map_err(|error| failure(&error))?;
    Ok(Outcome::Rows(vec![row(&question.queue, &done)]))
}

/// A serial number or key identifier, as other commands show it.
fn hexadecimal(key: &str) -> Result<String, Failure> {
    if key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(key.to_ascii_lowercase());
    }
    Err(invalid(
        format_args!("{key} is no serial number in hexadecimal digits"),
        Some("DISPLAY KEYUSE shows serial numbers and key identifiers"),
    ))
}

fn row(queue: &str, done: &Resealed) -> Row {
    let mut row = Row::default();
    row.push("RESEAL", Cell::word(queue));
    for (word, number) in [
        ("SEALED", done.sealed),
        ("LOOKED", done.looked),
        ("BUSY", done.busy),
        ("GONE", done.gone),
        ("CLEAR", done.clear),
        ("FAILED", done.failed.values().sum()),
    ] {
        row.push(word, Cell::Number(number));
    }
    row.push("CAUSES", Cell::List(done.failed.iter().map(|(cause, count)| format!("{cause} {count}")).collect()));
    row.push("OLDKEYS", Cell::List(done.old_keys.clone()));
    row.push("NEWKEYS", Cell::List(done.new_keys.clone()));
    row.push("SIGNER", Cell::Text(done.signer.clone().unwrap_or_default()));
    row.push("AFTER", Cell::Text(done.after.clone().unwrap_or_default()));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::execute;
    use crate::transcripts::Paper;

    #[test]
    fn what_contradicts_itself_or_names_what_is_not_there_is_refused() {
        let mut paper = Paper::new();
        let said = |paper: &mut Paper, text: &str| match &execute(text, paper)[0].outcome {
            Outcome::Failed(failure) => failure.message.clone(),
            other => panic!("{text}: {other:?}"),
        };
        let setup = "DEFINE QLOCAL(Q); DEFINE QLOCAL(X) USAGE(XMITQ); DEFINE QLOCAL(NONE)
            SET POLICY(Q) SIGNALG(SHA256); SET POLICY(X) SIGNALG(SHA256)";
        assert!(execute(setup, &mut paper).iter().all(|reply| reply.exit_code() == 0));
        for (text, expected) in [
            ("RESEAL QLOCAL(GONE)", "queue GONE does not exist"),
            ("RESEAL QLOCAL(NONE)", "policy NONE does not exist"),
            ("RESEAL QLOCAL(X)", "what lies on X is sealed for other queues"),
            ("RESEAL QLOCAL(Q) SELECT(ALL) NEEDS('0a')", "SELECT(ALL) and NEEDS name different messages"),
            ("RESEAL QLOCAL(Q) NEEDS('x y')", "x y is no serial number in hexadecimal digits"),
            ("RESEAL QLOCAL(Q) FORMER(GONE)", "policy GONE does not exist"),
            ("RESEAL QLOCAL(Q)", "there are no key rings here"),
        ] {
            assert!(said(&mut paper, text).contains(expected), "{text}: {}", said(&mut paper, text));
        }
    }
}
