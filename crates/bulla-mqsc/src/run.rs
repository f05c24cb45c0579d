//! Carries commands out on whatever is administered.
//!
//! [`plan`] compares a statement with the definitions and says what is to change; [`Administered::apply`] changes it,
//! the queue manager's or a test's. Nothing is changed by a command that fails.

pub use super::administered::{AdminError, Administered, Applied, Replay, Replayed};
use super::parse::{self, Statement, SyntaxError};
use super::reply::{Failure, FailureKind, Outcome, Reply};
use super::table::{Act, Defining, Doing, Key};
use super::{
    algorithm_use, channel, connection, dead_letters, diagnosis, enrolment, key_rotation, key_use, lockout, log_in,
    policy_check, reference, reseal, status, topic_status, unit,
};
use crate::nouns::{self, authority, channel_rule, noun, queue_manager, queues};
use bulla_catalog::system_queues::ERROR_QUEUE;
use bulla_catalog::{Change, Definitions, Sort};
use std::fmt::Display;

/// `queue ORDERS altered`, for logs.
#[must_use]
pub fn told(change: &Change) -> String {
    done(change, false)
}

/// Carries out every command in `text`, in order. A failed one does not stop the next.
pub fn execute(text: &str, target: &mut dyn Administered) -> Vec<Reply> {
    execute_apart(text, |command| command(target))
}

/// Like [`execute`], for a target that others wait for: `hold` is called once for each command, and gives the target to
/// what it is given, so that it can let go in between.
pub fn execute_apart(text: &str, hold: impl FnMut(&mut dyn FnMut(&mut dyn Administered))) -> Vec<Reply> {
    execute_overseen(text, &mut Unseen, SHOWN_BYTES_MAX, hold)
}

/// Who is asked before commands are carried out, and told what came of them.
pub trait Oversight {
    /// These commands are about to be carried out, together where there are several.
    ///
    /// # Errors
    /// None of them may be.
    fn before(&mut self, statements: &[&Statement]) -> Result<(), AdminError>;

    /// What came of commands that [`before`](Self::before) let pass or not, in their order. An answer without a
    /// command, for a text that is none, is left out.
    fn after(&mut self, replies: &[&Reply]);

    /// Whether what comes after those is looked at, or is not even answered.
    fn goes_on(&self) -> bool {
        true
    }
}

/// Bytes that may be shown of one text over an admin socket.
pub const SHOWN_BYTES_MAX: usize = 128 << 20;

/// An overseer that refuses nothing.
struct Unseen;

impl Oversight for Unseen {
    fn before(&mut self, _: &[&Statement]) -> Result<(), AdminError> {
        Ok(())
    }

    fn after(&mut self, _: &[&Reply]) {}
}

/// Like [`execute_apart`], with an overseer that is asked before each command, and of a unit before all of it. The
/// target is not held meanwhile. Once more than `bytes_max` are to be shown, in memory and roughly, no further command
/// is carried out that shows something: the next one begins as long as there is room.
pub fn execute_overseen(
    text: &str,
    overseer: &mut dyn Oversight,
    bytes_max: usize,
    mut hold: impl FnMut(&mut dyn FnMut(&mut dyn Administered)),
) -> Vec<Reply> {
    let statements = parse::statements(text);
    if unit::is_unit(&statements) {
        let understood: Vec<&Statement> = statements.iter().flatten().collect();
        let mut replies = Vec::new();
        match overseer.before(&understood) {
            Ok(()) => hold(&mut |target| replies = unit::carry_out(&statements, target)),
            Err(error) => replies = unit::not_carried_out(&statements, &error),
        }
        let of_commands: Vec<&Reply> = replies.iter().filter(|reply| !reply.command.is_empty()).collect();
        overseer.after(&of_commands);
        return replies;
    }
    let mut bytes = 0;
    let mut answered = |statement: Result<Statement, SyntaxError>| {
        let reply = match statement {
            Ok(statement) if bytes > bytes_max && ["DISPLAY", "HELP", "CHECK"].contains(&statement.command.verb) => {
                let message = "not carried out: what was to be shown before it is too long already".to_owned();
                let failure = Failure { kind: FailureKind::Refused, reason: Some(2102), message, hint: None };
                Reply {
                    at: statement.at,
                    command: statement.to_string(),
                    outcome: Outcome::Failed(failure),
                    warnings: Vec::new(),
                }
            }
            Ok(statement) => {
                let mut outcome = None;
                match overseer.before(&[&statement]) {
                    Ok(()) => hold(&mut |target| {
                        outcome = Some(perform_or_explain(&statement, target).unwrap_or_else(Outcome::Failed))
                    }),
                    Err(error) => outcome = Some(Outcome::Failed(failure(&error))),
                }
                let outcome = outcome.unwrap_or_else(|| {
                    Outcome::Failed(failure(&AdminError::Failed {
                        reason: 2162,
                        detail: "the queue manager did not take the command".into(),
                    }))
                });
                let reply = Reply { at: statement.at, command: statement.to_string(), outcome, warnings: Vec::new() };
                overseer.after(&[&reply]);
                bytes += reply.shown_bytes();
                reply
            }
            Err(error) => Reply {
                at: error.at,
                command: String::new(),
                outcome: Outcome::Failed(syntax_failure(&error)),
                warnings: Vec::new(),
            },
        };
        (reply, overseer.goes_on())
    };
    let mut replies = Vec::new();
    for statement in statements {
        let (reply, goes_on) = answered(statement);
        replies.push(reply);
        if !goes_on {
            break;
        }
    }
    replies
}

/// What a command that changes definitions comes to, and what is to be said of it.
pub(super) struct Planned {
    pub(super) change: Change,
    pub(super) message: String,
    pub(super) warnings: Vec<String>,
}

impl Planned {
    /// Against `definitions`, which are the target's own or those that it will have by then.
    ///
    /// # Errors
    /// It contradicts what is defined, itself, or what is running.
    pub(super) fn new(
        statement: &Statement,
        definitions: &Definitions,
        target: &dyn Administered,
    ) -> Result<Self, Failure> {
        let change = plan(statement, definitions)?;
        let running = match change.object() {
            Some((sort, _)) => {
                noun(sort).check_command(&change, definitions)?;
                noun(sort).running(&change, target)?
            }
            None => {
                authority::check_command(&change, definitions)?;
                None
            }
        };
        let existed = existed(&change, definitions);
        let message = done(&change, existed);
        let mut warnings = forewarnings(&change, definitions);
        warnings.extend(running);
        Ok(Self { change, message, warnings })
    }
}

/// Whether a change takes the error queue away, or the alias that stands for it.
pub(super) fn takes_error_queue(change: &Change) -> bool {
    matches!(change, Change::Delete { name, sort: Sort::Local | Sort::Alias, .. } if name == ERROR_QUEUE)
}

/// Defective messages need somewhere to go.
pub(super) fn no_error_queue() -> Failure {
    let message = format!("{ERROR_QUEUE} is used by the queue manager itself");
    let hint = Some("it goes in a unit that defines a queue or an alias of that name: BEGIN UNIT".into());
    Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint }
}

/// Reason codes of an object that does not exist: of queues and others, of channels, of subscriptions, of users and
/// groups.
const UNKNOWN_OBJECT: [u32; 4] = [2085, 4032, 2428, 2292];

/// As [`perform`]. Where an object does not exist whose name was typed in lower case without quotes, the hint says that
/// it was folded to upper case.
fn perform_or_explain(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    perform(statement, target).map_err(|mut failure| {
        if let Some(typed) = &statement.typed_name
            && failure.hint.is_none()
            && failure.reason.is_some_and(|reason| UNKNOWN_OBJECT.contains(&reason))
        {
            failure.hint =
                Some(format!("without quotes {typed} means {}; '{typed}' keeps its lower case", statement.name));
        }
        failure
    })
}

fn perform(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let doing = match statement.command.act {
        Act::Defines(_) => return define(statement, target),
        Act::Does(doing) => doing,
    };
    match doing {
        Doing::Display(sort) => noun(sort).display(statement, target).map(Outcome::Rows),
        Doing::Help => reference::help(&statement.topic).map(Outcome::Help),
        Doing::DisplayManager => {
            Ok(Outcome::Rows(vec![queue_manager::row(statement, &target.definitions().queue_manager)]))
        }
        Doing::DisplayQueue => queues::display(statement, target).map(Outcome::Rows),
        Doing::DisplayQueueStatus | Doing::DisplayPolicyStatus => {
            let shown = match status::at_ms(statement)? {
                Some(at_ms) => status::display_kept(statement, doing, at_ms, target),
                None => status::display(statement, doing, target),
            };
            shown.map(Outcome::Rows)
        }
        Doing::ReplayLocal => dead_letters::replay(statement, target),
        Doing::ResealLocal => reseal::reseal(statement, target),
        Doing::CheckPolicy => {
            let question = policy_check::question(statement, target.definitions())?;
            let findings = target.check_policy(&question).map_err(|error| failure(&error))?;
            Ok(Outcome::Rows(policy_check::rows(&findings)))
        }
        Doing::CheckQueue | Doing::CheckManager => {
            let found = target.diagnose(&diagnosis::question(statement)?).map_err(|error| failure(&error))?;
            Ok(Outcome::Rows(diagnosis::rows(&found)))
        }
        Doing::DisplayDeadLetters => dead_letters::display(statement, target).map(Outcome::Rows),
        Doing::StartDevice | Doing::StopDevice => {
            nouns::device::start_or_stop(statement, doing == Doing::StartDevice, target)
        }
        Doing::StartGroup | Doing::StopGroup | Doing::TakeGroup => {
            nouns::shared_group::carry_out(statement, doing, target)
        }
        Doing::DisplayGroupStatus => nouns::shared_group::display_status(statement, target).map(Outcome::Rows),
        Doing::DisplayDeviceStatus => status::display_devices(statement, target).map(Outcome::Rows),
        Doing::StartChannel | Doing::StopChannel | Doing::PingChannel | Doing::ResetChannel | Doing::ResolveChannel => {
            channel::command(statement, doing, target)
        }
        Doing::DisplayChannelStatus => channel::display(statement, target).map(Outcome::Rows),
        Doing::DisplayTaskStatus => status::display_tasks(statement, target).map(Outcome::Rows),
        Doing::DisplayCostStatus => status::display_costs(statement, target).map(Outcome::Rows),
        Doing::DisplayAuthority => authority::display(statement, target.definitions()).map(Outcome::Rows),
        Doing::DisplayChannelRule => channel_rule::display(statement, target.definitions()).map(Outcome::Rows),
        Doing::DisplayLimitStatus => nouns::limit::display_status(statement, &target.users()).map(Outcome::Rows),
        Doing::DisplayAlgorithmUse => algorithm_use::display(statement, target).map(Outcome::Rows),
        Doing::DisplayKeyUse => key_use::display(statement, target).map(Outcome::Rows),
        Doing::DisplayEnrolment => enrolment::display(statement, target).map(Outcome::Rows),
        Doing::DisplayKeyRotation => key_rotation::display(statement, target).map(Outcome::Rows),
        Doing::DisplayLockout => lockout::display(statement, &target.lockouts()).map(Outcome::Rows),
        Doing::ResetLockout => lockout::reset(statement, target),
        Doing::DisplayLogIn => log_in::display(statement, &target.log_ins()).map(Outcome::Rows),
        Doing::StopLogIn => log_in::stop(statement, target),
        Doing::DisplayConnection => connection::display(statement, target).map(Outcome::Rows),
        Doing::StopConnection => connection::stop(statement, target),
        Doing::PingManager => ping(target),
        Doing::DisplaySubscriptionStatus => {
            topic_status::display_subscriptions(statement, &target.subscription_status()).map(Outcome::Rows)
        }
        Doing::DisplayTopicStatus => {
            topic_status::display_topics(statement, &target.topic_status(&statement.name.stem)).map(Outcome::Rows)
        }
        Doing::BeginUnit => Err(invalid("BEGIN UNIT is the first command of its text", None)),
        Doing::DisplayInitiator => {
            Ok(Outcome::Rows(vec![channel::initiator_row(statement, &target.initiator_status())]))
        }
        Doing::ClearLocal => clear(statement, target),
    }
}

/// What changes what is defined.
fn define(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let Planned { change, message, mut warnings } = Planned::new(statement, target.definitions(), target)?;
    if takes_error_queue(&change) {
        return Err(no_error_queue());
    }
    let applied = target.apply(change).map_err(|error| failure(&error))?;
    warnings.extend(applied.warnings);
    Ok(Outcome::Done { message, warnings })
}

fn ping(target: &mut dyn Administered) -> Result<Outcome, Failure> {
    target.write_definitions().map_err(|error| failure(&error))?;
    let message = format!("queue manager {} responds", target.definitions().queue_manager.name);
    Ok(Outcome::Done { message, warnings: Vec::new() })
}

fn clear(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let name = statement.name.stem.clone();
    queues::local(&name, target.definitions())?;
    let change = Change::ClearLocal { name };
    let message = told(&change);
    let Applied { warnings } = target.apply(change).map_err(|error| failure(&error))?;
    Ok(Outcome::Done { message, warnings })
}

/// A text that is no command.
pub(super) fn syntax_failure(error: &SyntaxError) -> Failure {
    Failure { kind: FailureKind::Invalid, reason: None, message: error.to_string(), hint: error.hint() }
}

/// What the target says no to, with what to try.
pub(super) fn refused(error: &AdminError) -> Failure {
    failure(error)
}

pub(super) fn failure(error: &AdminError) -> Failure {
    let hint = match error {
        AdminError::NotEmpty { .. } => Some("PURGE deletes the messages too".into()),
        AdminError::Running { name, .. } => Some(format!("STOP DEVICE({name}) first")),
        AdminError::ChannelInUse { name, .. } => Some(format!("STOP CHANNEL({name}) first")),
        AdminError::ChannelInDoubt { name } => {
            Some(format!("START CHANNEL({name}) settles them with the partner, RESOLVE CHANNEL without it"))
        }
        AdminError::InUse { .. } => Some("DISPLAY QSTATUS shows how many links have it open".into()),
        _ => None,
    };
    Failure { kind: FailureKind::Refused, reason: Some(error.reason()), message: error.to_string(), hint }
}

pub(super) fn messages(count: u64) -> String {
    if count == 1 { "1 message".into() } else { format!("{count} messages") }
}

/// What `statement`, one that changes what is defined, comes to.
///
/// # Errors
/// It contradicts what is defined, or itself.
pub(super) fn plan(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let Act::Defines(defining) = statement.command.act else {
        return Err(invalid(format_args!("{} defines nothing", statement.command), None));
    };
    match defining {
        Defining::Define(sort) => noun(sort).define(statement, definitions),
        Defining::Alter(sort) => noun(sort).alter(statement, definitions),
        Defining::Delete(sort) => noun(sort).delete(statement, definitions),
        Defining::Set(sort) => noun(sort).set(statement, definitions),
        Defining::AlterManager => queue_manager::alter(statement, definitions),
        Defining::SetAuthority => authority::set(statement, definitions),
        Defining::DeleteAuthority => authority::delete(statement, definitions),
        Defining::SetChannelRule => channel_rule::set(statement, &definitions.channel_rules),
    }
}

/// MQ's reason code where DEFINE finds what it defines, and what to do.
pub(super) const EXISTS: (u32, &str) = (4001, "ALTER changes it, REPLACE defines it anew");

/// Refuses DEFINE without REPLACE where the object exists.
pub(super) fn free_or_replaced(
    statement: &Statement,
    exists: bool,
    (reason, hint): (u32, &str),
) -> Result<(), Failure> {
    if !exists || statement.says(Key::Replace, "REPLACE") {
        return Ok(());
    }
    Err(Failure {
        kind: FailureKind::Refused,
        reason: Some(reason),
        message: format!("{} {} exists already", statement.command.object, statement.name),
        hint: Some(hint.into()),
    })
}

pub(super) fn unknown(object: &str, name: &str) -> Failure {
    // The classical trap: an unquoted name was folded to upper case, or a quoted one was not.
    let folded = name.bytes().any(|byte| byte.is_ascii_lowercase());
    Failure {
        kind: FailureKind::Refused,
        reason: Some(2085),
        message: format!("{object} {name} does not exist"),
        hint: folded.then(|| "names in quotes keep their lower case".into()),
    }
}

pub(super) fn too_many(limit: usize, what: &str) -> Failure {
    let message = format!("there are {limit} {what}, which is the limit");
    Failure { kind: FailureKind::Refused, reason: Some(2102), message, hint: None }
}

pub(super) fn invalid(message: impl Display, hint: Option<&str>) -> Failure {
    let hint = hint.map(String::from);
    Failure { kind: FailureKind::Invalid, reason: None, message: message.to_string(), hint }
}

fn existed(change: &Change, definitions: &Definitions) -> bool {
    match change {
        Change::Define { name, object } => definitions.has(object.sort(), name),
        _ => true,
    }
}

fn done(change: &Change, existed: bool) -> String {
    match change {
        Change::Define { object, .. } | Change::Alter { object, .. } => noun(object.sort()).done(change, existed),
        Change::Delete { sort, .. } => noun(*sort).done(change, existed),
        Change::ClearLocal { name } => format!("queue {name} cleared"),
        Change::AlterManager(manager) => format!("queue manager {} altered", manager.name),
        Change::SetChannelRule(..) | Change::DeleteChannelRule(_) => channel_rule::done(change).unwrap_or_default(),
        Change::SetAuthority(_) | Change::DeleteAuthority(_) => authority::done(change).unwrap_or_default(),
    }
}

/// What is allowed and will not work yet.
fn forewarnings(change: &Change, definitions: &Definitions) -> Vec<String> {
    match change {
        Change::Define { name, object } | Change::Alter { name, object } => {
            noun(object.sort()).forewarnings(name, object, definitions)
        }
        Change::AlterManager(manager) => queue_manager::forewarnings(manager, definitions),
        Change::Delete { name, sort, .. } => noun(*sort).forewarnings_of_delete(name, definitions),
        change => authority::forewarnings(change),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_catalog::authority::Role;

    #[test]
    fn a_target_is_held_for_one_command_at_a_time() {
        let mut paper = crate::transcripts::Paper::new();
        let mut held = 0;
        let replies = execute_apart("DEF QL(A); DEF QL(B) OOPS\nDIS QL(A)", |command| {
            held += 1;
            command(&mut paper);
        });
        assert_eq!((held, replies.len()), (2, 3));
        assert_eq!(replies.iter().map(Reply::exit_code).collect::<Vec<_>>(), [0, 2, 0]);
        let refused = execute_apart("DIS QMGR", |_| ());
        assert!(matches!(&refused[0].outcome, Outcome::Failed(Failure { reason: Some(2162), .. })));
    }

    #[test]
    fn a_name_that_was_folded_and_does_not_exist_is_shown_as_it_was_typed() {
        let mut paper = crate::transcripts::Paper::new();
        let hint = |paper: &mut crate::transcripts::Paper, command: &str| match &execute(command, paper)[0].outcome {
            Outcome::Failed(failure) => failure.hint.clone(),
            outcome => panic!("{command}: {outcome:?}"),
        };
        execute("DEF QL('orders')", &mut paper);
        for command in ["DIS QL(orders)", "DELETE QLOCAL(orders)", "ALTER QLOCAL(orders) MAXDEPTH(7)"] {
            let hint = hint(&mut paper, command).expect(command);
            assert_eq!(hint, "without quotes orders means ORDERS; 'orders' keeps its lower case");
        }
        assert_eq!(hint(&mut paper, "DELETE QLOCAL(ORDERS)"), None);
    }

    #[test]
    fn where_too_much_is_shown_the_rest_is_not_and_what_changes_something_is_carried_out() {
        let mut paper = crate::transcripts::Paper::new();
        let text = "HELP; DIS QMGR; HELP; CHECK POLICY(A); DEF QLOCAL(NEW.ONE)";
        let replies = execute_overseen(text, &mut Unseen, 1, |command| command(&mut paper));
        let shown: Vec<bool> = replies.iter().map(|reply| reply.exit_code() == 0).collect();
        assert_eq!(shown, [true, false, false, false, true]);
        assert!(replies[1].diagnostics(None)[0].contains("too long"), "{:?}", replies[1]);
        assert!(paper.definitions().queues.contains_key("NEW.ONE"));
    }

    #[test]
    fn whoever_is_refused_for_good_is_refused_once() {
        struct Unknown(usize);
        impl Oversight for Unknown {
            fn before(&mut self, _: &[&Statement]) -> Result<(), AdminError> {
                self.0 += 1;
                Err(AdminError::NotAuthorised { command: "HELP".into(), needs: Role::Look })
            }
            fn after(&mut self, _: &[&Reply]) {}
            fn goes_on(&self) -> bool {
                false
            }
        }
        let mut unknown = Unknown(0);
        let replies = execute_overseen(&"HELP;".repeat(1000), &mut unknown, SHOWN_BYTES_MAX, |_| {
            unreachable!("nothing is carried out")
        });
        assert_eq!((replies.len(), unknown.0), (1, 1));
    }
}
