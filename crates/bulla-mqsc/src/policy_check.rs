//! CHECK POLICY in the admin language: which policy is asked about, and the rows that say what was found.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Row};
use super::run::unknown;
use super::table::{Act, Doing, Key};
use crate::nouns::policy;
use bulla_catalog::Definitions;
use bulla_catalog::findings::{
    Fate, Findings, MESSAGES_DEFAULT, MessagesFinding, NameFinding, Trial, Used, UserFinding, Why,
};
use bulla_seal::Policy;
use bulla_seal::policy::{Pqc, Quality};
use std::sync::Arc;

/// What is asked.
#[derive(Clone, Debug)]
pub struct PolicyQuestion {
    /// The policy: the one that is set, or the one that the command proposes.
    pub policy: Arc<Policy>,
    /// It is the one that is set.
    pub in_force: bool,
    /// Look at so many messages of the queue.
    pub messages_max: usize,
}

/// Whether the command is CHECK POLICY, and about a policy of its own.
pub(super) fn proposes(statement: &Statement) -> bool {
    let is_option = |key: Key| matches!(key, Key::Looked);
    statement.command.act == Act::Does(Doing::CheckPolicy)
        && statement.settings.iter().any(|setting| !is_option(setting.attribute.key))
}

/// Reads the command: with attributes it is about such a policy, without about the one that is set.
///
/// # Errors
/// There is no policy of that name, or the proposed one makes no sense.
pub(super) fn question(statement: &Statement, definitions: &Definitions) -> Result<PolicyQuestion, Failure> {
    let name = &statement.name.stem;
    let proposes = proposes(statement);
    let policy = match (proposes, definitions.policies.get(name)) {
        (true, _) => policy::proposed(statement)?,
        (false, Some(policy)) => policy.clone(),
        (false, None) => {
            let hint = "with SIGNALG, ENCALG, RECIP, … it says what such a policy would do";
            return Err(Failure { hint: Some(hint.into()), ..unknown("policy", name) });
        }
    };
    let messages_max = match statement.value(Key::Looked) {
        Some(Value::Number(count)) => usize::try_from(*count).unwrap_or(usize::MAX),
        _ => MESSAGES_DEFAULT,
    };
    Ok(PolicyQuestion { policy, in_force: !proposes, messages_max })
}

/// One row for the policy, one for each user, name, trial, length and kind of message, one for each problem. The first
/// cell says what a row is about.
pub(super) fn rows(findings: &Findings) -> Vec<Row> {
    let mut rows = vec![policy_row(findings)];
    rows.extend(findings.users.iter().map(|user| user_row(user, findings.policy.quality())));
    rows.extend(findings.names.iter().map(name_row));
    rows.extend(findings.trials.iter().map(trial_row));
    rows.extend(findings.sizes.iter().map(|(payload, sealed)| {
        let mut row = about("SIZE");
        row.push("PAYLOAD", number(*payload));
        row.push("SEALED", number(*sealed));
        row
    }));
    rows.extend(findings.messages.iter().map(messages_row));
    rows.extend(findings.problems().into_iter().map(|problem| {
        let mut row = about("PROBLEM");
        row.push("DETAILS", Cell::Text(problem));
        row
    }));
    rows
}

fn about(what: &str) -> Row {
    let mut row = Row::default();
    row.push("CHECK", Cell::word(what));
    row
}

fn number(number: usize) -> Cell {
    Cell::Number(number as u64)
}

fn yes_or_no(yes: bool) -> Cell {
    Cell::word(if yes { "YES" } else { "NO" })
}

fn policy_row(findings: &Findings) -> Row {
    let policy = &findings.policy;
    let mut row = about("POLICY");
    row.push("POLICY", Cell::Text(policy.name.clone()));
    row.push("QUALITY", Cell::Text(policy::quality(policy)));
    row.push("INFORCE", yes_or_no(findings.in_force));
    row.push("DEST", Cell::Text(findings.destination.clone()));
    row.push("KEYREUSE", policy::key_reuse(policy));
    row.push("SIGNBATCH", Cell::Number(policy.sign_batch.into()));
    if let Some(bytes) = findings.batch_bytes {
        row.push("BATCHBYTES", number(bytes));
    }
    row.push("RECIPS", number(policy.recipients.len()));
    row.push("PQC", Cell::word(policy.pqc.as_str()));
    if policy.pqc != Pqc::None && policy.encrypt.is_some() {
        let (modern, classical) = findings.post_quantum();
        row.push("PQRECIPS", number(modern));
        if let Some(used) = classical {
            row.push("WEAKEST", Cell::Text(format!("{} of {}", used.key, used.dn)));
        }
    }
    if let Some(max) = findings.payload_max {
        row.push("MAXPAYLOAD", number(max));
    }
    row.push("LOOKED", Cell::Number(findings.looked_at));
    row.push("LEFT", Cell::Number(findings.left));
    row.push("PROBLEMS", number(findings.problems().len()));
    if !findings.left_out.is_empty() {
        row.push("LEFTOUT", Cell::List(findings.left_out.clone()));
    }
    row.push("COMMAND", Cell::Text(policy::text(policy)));
    row
}

fn user_row(user: &UserFinding, quality: Quality) -> Row {
    let mut row = about("USER");
    row.push("USER", Cell::Text(user.user.clone()));
    row.push("PUT", yes_or_no(user.may_put));
    row.push("GET", yes_or_no(user.may_get));
    if let Err(why) = &user.ring {
        row.push("RING", Cell::word("NO"));
        push_why(&mut row, why);
        return row;
    }
    row.push("RING", Cell::word("YES"));
    if quality == Quality::None {
        return row;
    }
    for (verb, outcome) in [("SEAL", &user.seals), ("OPEN", &user.opens)] {
        row.push(&format!("{verb}S"), yes_or_no(outcome.is_ok()));
        match outcome {
            Ok(used) => used.iter().for_each(|used| push_used(&mut row, verb, used)),
            Err(Why { cause, details }) => {
                row.push(&format!("{verb}CAUSE"), Cell::Text(cause.clone()));
                row.push(&format!("{verb}DETAILS"), Cell::Text(details.clone()));
            }
        }
    }
    row
}

fn name_row(name: &NameFinding) -> Row {
    let mut row = about(if name.signs { "SIGNER" } else { "RECIP" });
    row.push("DN", Cell::Text(name.dn.clone()));
    row.push("FOUND", yes_or_no(name.found.is_some()));
    if let Some((used, whose)) = &name.found {
        row.push("KEY", Cell::Text(used.key.clone()));
        row.push("NOTAFTER", Cell::Text(used.not_after.clone()));
        row.push("RINGS", Cell::List(whose.clone()));
    }
    let missing = name.missing.iter().map(|(user, why)| format!("{user}: {}: {}", why.cause, why.details));
    row.push("MISSING", Cell::List(missing.collect()));
    row
}

fn trial_row(trial: &Trial) -> Row {
    let mut row = about("TRIAL");
    row.push("BY", Cell::Text(trial.by.clone()));
    row.push("FOR", Cell::Text(trial.for_whom.clone()));
    row.push("RESULT", Cell::word(if trial.result.is_ok() { "OPENS" } else { "FAILS" }));
    if let Err(why) = &trial.result {
        push_why(&mut row, why);
    }
    row
}

fn messages_row(found: &MessagesFinding) -> Row {
    let mut row = about("MESSAGES");
    row.push("USER", Cell::Text(found.user.clone().unwrap_or_default()));
    row.push("MSGS", Cell::Number(found.count));
    row.push("FIRST", Cell::Number(found.first));
    let (result, why) = match &found.fate {
        Fate::Opens => ("OPENS", None),
        Fate::Clear => ("CLEAR", None),
        Fate::Defective(why) => ("ERRORQ", Some(why)),
        Fate::NotMine => ("NOTMINE", None),
        Fate::Stays(why) => ("STAYS", Some(why)),
        Fate::Form => ("FORM", None),
    };
    row.push("RESULT", Cell::word(result));
    if let Some(why) = why {
        push_why(&mut row, why);
    }
    row
}

fn push_used(row: &mut Row, verb: &str, used: &Used) {
    row.push(&format!("{verb}DN"), Cell::Text(used.dn.clone()));
    row.push(&format!("{verb}KEY"), Cell::Text(used.key.clone()));
    row.push(&format!("{verb}UNTIL"), Cell::Text(used.not_after.clone()));
}

fn push_why(row: &mut Row, why: &Why) {
    row.push("CAUSE", Cell::Text(why.cause.clone()));
    row.push("DETAILS", Cell::Text(why.details.clone()));
}
