//! BEGIN UNIT: the commands of a text carried out together, or none of them.

use super::parse::{Statement, SyntaxError};
use super::reply::{Failure, FailureKind, Outcome, Reply};
use super::run::{
    AdminError, Administered, Planned, invalid, no_error_queue, refused, syntax_failure, takes_error_queue,
};
use super::table::{Act, Doing};
use bulla_catalog::Change;
use bulla_catalog::system_queues::ERROR_QUEUE;

/// MQ's reason code for what was undone with the rest of its unit.
const BACKED_OUT: u32 = 2003;

/// True when a text says that its commands belong together.
pub(super) fn is_unit(statements: &[Result<Statement, SyntaxError>]) -> bool {
    matches!(statements.first(), Some(Ok(first)) if first.command.act == Act::Does(Doing::BeginUnit))
}

/// Understands every command against what the ones before it would make, then makes all of it true. The first command
/// is BEGIN UNIT. The target stays as it is where one of them can't be carried out.
pub(super) fn carry_out(statements: &[Result<Statement, SyntaxError>], target: &mut dyn Administered) -> Vec<Reply> {
    let Some((Ok(begin), rest)) = statements.split_first() else { return Vec::new() };
    let planned = plans(rest, target);
    let failed = planned.iter().filter(|planned| planned.is_err()).count();
    let outcomes = match failed {
        0 => applied(planned.into_iter().flatten().collect(), target),
        _ => Err(planned.into_iter().map(Result::err).collect()),
    };
    let count = rest.len();
    let (first, outcomes) = match outcomes {
        Ok(done) => {
            (Outcome::Done { message: format!("{} made together", changes(count)), warnings: Vec::new() }, done)
        }
        Err(failures) => {
            let message = format!("nothing was changed: {}", changes(count) + " belong together");
            (Outcome::Failed(backed_out(message)), failures.into_iter().map(left_undone).collect())
        }
    };
    let replies = rest.iter().zip(outcomes).map(|(statement, outcome)| match statement {
        Ok(statement) => Reply { at: statement.at, command: statement.to_string(), outcome, warnings: Vec::new() },
        Err(error) => Reply { at: error.at, command: String::new(), outcome, warnings: Vec::new() },
    });
    std::iter::once(Reply { at: begin.at, command: begin.to_string(), outcome: first, warnings: Vec::new() })
        .chain(replies)
        .collect()
}

/// The answers of a unit that was refused as a whole.
pub(super) fn not_carried_out(statements: &[Result<Statement, SyntaxError>], error: &AdminError) -> Vec<Reply> {
    let answer = |(place, statement): (usize, &Result<Statement, SyntaxError>)| match statement {
        Ok(statement) => {
            let outcome = if place == 0 { Outcome::Failed(refused(error)) } else { left_undone(None) };
            Reply { at: statement.at, command: statement.to_string(), outcome, warnings: Vec::new() }
        }
        Err(error) => Reply {
            at: error.at,
            command: String::new(),
            outcome: Outcome::Failed(syntax_failure(error)),
            warnings: Vec::new(),
        },
    };
    statements.iter().enumerate().map(answer).collect()
}

/// What each command comes to, or why it can't be carried out.
fn plans(rest: &[Result<Statement, SyntaxError>], target: &dyn Administered) -> Vec<Result<Planned, Failure>> {
    let mut definitions = target.definitions().clone();
    let planned = |statement: &Result<Statement, SyntaxError>| {
        let statement = statement.as_ref().map_err(syntax_failure)?;
        if !statement.command.act.is_definition() {
            return Err(invalid(format_args!("{} is no part of a unit: it defines nothing", statement.command), None));
        }
        let planned = Planned::new(statement, &definitions, target)?;
        definitions.apply(&planned.change);
        Ok(planned)
    };
    let mut plans: Vec<Result<Planned, Failure>> = rest.iter().map(planned).collect();
    let has_errors = definitions.queues.contains_key(ERROR_QUEUE) || definitions.aliases.contains_key(ERROR_QUEUE);
    for plan in plans.iter_mut().filter(|_| !has_errors) {
        if plan.as_ref().is_ok_and(|planned| takes_error_queue(&planned.change)) {
            *plan = Err(no_error_queue());
        }
    }
    plans
}

/// Makes all changes true; else why each of them is not.
fn applied(planned: Vec<Planned>, target: &mut dyn Administered) -> Result<Vec<Outcome>, Vec<Option<Failure>>> {
    let count = planned.len();
    let (changes, told): (Vec<Change>, Vec<_>) =
        planned.into_iter().map(|planned| (planned.change, (planned.message, planned.warnings))).unzip();
    match target.apply_all(changes) {
        Ok(applied) => {
            let mut done: Vec<Outcome> =
                told.into_iter().map(|(message, warnings)| Outcome::Done { message, warnings }).collect();
            if let Some(Outcome::Done { warnings, .. }) = done.last_mut() {
                warnings.extend(applied.warnings);
            }
            Ok(done)
        }
        Err((at, error)) => Err((0..count).map(|place| (place == at).then(|| refused(&error))).collect()),
    }
}

fn left_undone(failure: Option<Failure>) -> Outcome {
    Outcome::Failed(
        failure.unwrap_or_else(|| backed_out("not carried out: another command of its unit can't be".into())),
    )
}

fn backed_out(message: String) -> Failure {
    Failure { kind: FailureKind::Refused, reason: Some(BACKED_OUT), message, hint: None }
}

fn changes(count: usize) -> String {
    if count == 1 { "1 change".into() } else { format!("{count} changes") }
}

#[cfg(test)]
mod tests {
    use crate::objects::AsText;
    use crate::reply::Outcome;
    use crate::run::{Administered, execute};
    use crate::transcripts::Paper;

    #[test]
    fn a_unit_is_made_whole_and_what_it_defines_first_can_be_named_after() {
        let mut paper = Paper::new();
        let replies =
            execute("BEGIN UNIT\nDEFINE QLOCAL(U1)\nDEFINE QLOCAL(U2) LIKE(U1)\nDELETE QLOCAL(U1)", &mut paper);
        assert!(replies.iter().all(|reply| matches!(reply.outcome, Outcome::Done { .. })), "{replies:?}");
        assert_eq!(replies.len(), 4);
        assert!(paper.definitions().queues.contains_key("U2"));
        assert!(!paper.definitions().queues.contains_key("U1"));
    }

    #[test]
    fn one_command_that_is_wrong_or_refused_undoes_all_of_its_unit() {
        for bad in ["DEFINE QLOCAL(U2) OOPS", "ALTER QLOCAL(NOT.THERE) PUT(DISABLED)", "CLEAR QLOCAL(U1)", "BEGIN UNIT"]
        {
            let mut paper = Paper::new();
            let before = paper.definitions().clone();
            let replies = execute(&format!("BEGIN UNIT\nDEFINE QLOCAL(U1)\n{bad}\nDEFINE QLOCAL(U3)"), &mut paper);
            assert_eq!(replies.len(), 4, "{bad}");
            assert!(replies.iter().all(|reply| matches!(reply.outcome, Outcome::Failed(_))), "{bad}: {replies:?}");
            assert_eq!(paper.definitions().text(), before.text(), "{bad}");
        }
    }

    #[test]
    fn begin_unit_in_the_middle_of_a_text_is_refused() {
        let replies = execute("DEFINE QLOCAL(U1)\nBEGIN UNIT", &mut Paper::new());
        assert!(matches!(replies[1].outcome, Outcome::Failed(_)));
    }
}
