//! Carries commands out on whatever is administered.
//!
//! [`plan`] compares a statement with the definitions and says what is to change; [`Administered::apply`] changes it,
//! the queue manager's or a test's. Nothing is changed by a command that fails.

pub use super::administered::{AdminError, Administered, Applied, Replay, Replayed};
use super::channel;
use super::costs;
use super::parse::{self, Filter, Operator, Pattern, Statement, SyntaxError, Value};
use super::policy_check;
use super::reply::{Cell, Failure, FailureKind, Outcome, Reply, Row};
use super::table::{self, Act, Attribute, Defining, Doing, Key, Kind};
use super::topic_status;
use super::{connection, lockout, reference, unit};
use super::{meters, tasks};
use crate::attributes::{Cells, Set};
use crate::nouns::queues::{self, local, no_transmission_queue};
use crate::nouns::{self, authority, channel_rule, noun};
use bulla_catalog::calendar::{date, moment_ms, time};
use bulla_catalog::status::{ChannelState, ChannelStatus, InitiatorStatus, PolicyStatus, QueueStatus, StopChannel};
use bulla_catalog::system_queues::ERROR_QUEUE;
use bulla_catalog::{Change, ChannelDefinition, DeadLetter, Definitions, QueueManager, Sort};
use std::fmt::Display;

/// `queue ORDERS altered`, for logs.
#[must_use]
pub fn told(change: &Change) -> String {
    done(change, false)
}

impl Cells for PolicyStatus {
    fn cell(&self, key: Key) -> Option<Cell> {
        match key {
            Key::Since => Some(Cell::Number(self.since_ms)),
            Key::Taken => Some(Cell::Number(self.taken_ms)),
            key => self.meters.cell(key),
        }
    }
}

/// Carries out every command in `text`, in order. A failed one does not stop the next.
pub fn execute(text: &str, target: &mut dyn Administered) -> Vec<Reply> {
    execute_apart(text, |command| command(target))
}

/// Like [`execute`], for a target that others wait for: `hold` is called once for each command, and gives the target to
/// what it is given, so that it can let go in between.
pub fn execute_apart(text: &str, hold: impl FnMut(&mut dyn FnMut(&mut dyn Administered))) -> Vec<Reply> {
    execute_overseen(text, &mut Unseen, hold)
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

/// An overseer that refuses nothing.
struct Unseen;

impl Oversight for Unseen {
    fn before(&mut self, _: &[&Statement]) -> Result<(), AdminError> {
        Ok(())
    }

    fn after(&mut self, _: &[&Reply]) {}
}

/// Like [`execute_apart`], with an overseer that is asked before each command, and of a unit before all of it. The
/// target is not held meanwhile.
pub fn execute_overseen(
    text: &str,
    overseer: &mut dyn Oversight,
    hold: impl FnMut(&mut dyn FnMut(&mut dyn Administered)),
) -> Vec<Reply> {
    execute_within(text, overseer, hold, SHOWN_BYTES_MAX)
}

/// Bytes that may be shown of one text, in memory and roughly, before no further command is carried out that shows
/// something: the next one begins as long as there is room.
const SHOWN_BYTES_MAX: usize = 128 << 20;

fn execute_within(
    text: &str,
    overseer: &mut dyn Oversight,
    mut hold: impl FnMut(&mut dyn FnMut(&mut dyn Administered)),
    bytes_max: usize,
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
                Reply { at: statement.at, command: statement.to_string(), outcome: Outcome::Failed(failure) }
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
                let reply = Reply { at: statement.at, command: statement.to_string(), outcome };
                overseer.after(&[&reply]);
                bytes += reply.shown_bytes();
                reply
            }
            Err(error) => {
                Reply { at: error.at, command: String::new(), outcome: Outcome::Failed(syntax_failure(&error)) }
            }
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
            None => None,
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
        Doing::DisplayManager => Ok(Outcome::Rows(vec![manager_row(statement, &target.definitions().queue_manager)])),
        Doing::DisplayQueue => queues::display(statement, target).map(Outcome::Rows),
        Doing::DisplayQueueStatus | Doing::DisplayPolicyStatus => {
            let shown = match at_ms(statement)? {
                Some(at_ms) => display_kept(statement, doing, at_ms, target),
                None => display(statement, doing, target),
            };
            shown.map(Outcome::Rows)
        }
        Doing::ReplayLocal => replay(statement, target),
        Doing::CheckPolicy => {
            let question = policy_check::question(statement, target.definitions())?;
            let findings = target.check_policy(&question).map_err(|error| failure(&error))?;
            Ok(Outcome::Rows(policy_check::rows(&findings)))
        }
        Doing::DisplayDeadLetters => display_dead_letters(statement, target).map(Outcome::Rows),
        Doing::StartDevice | Doing::StopDevice => {
            nouns::device::start_or_stop(statement, doing == Doing::StartDevice, target)
        }
        Doing::DisplayDeviceStatus => display_device_status(statement, target).map(Outcome::Rows),
        Doing::StartChannel | Doing::StopChannel | Doing::PingChannel | Doing::ResetChannel | Doing::ResolveChannel => {
            command_channel(statement, doing, target)
        }
        Doing::DisplayChannelStatus => display_channel_status(statement, target).map(Outcome::Rows),
        Doing::DisplayTaskStatus => display_task_status(statement, target).map(Outcome::Rows),
        Doing::DisplayCostStatus => display_cost_status(statement, target).map(Outcome::Rows),
        Doing::DisplayAuthority => authority::display(statement, target.definitions()).map(Outcome::Rows),
        Doing::DisplayChannelRule => channel_rule::display(statement, target.definitions()).map(Outcome::Rows),
        Doing::DisplayLimitStatus => nouns::limit::display_status(statement, &target.users()).map(Outcome::Rows),
        Doing::DisplayLockout => lockout::display(statement, &target.lockouts()).map(Outcome::Rows),
        Doing::ResetLockout => lockout::reset(statement, target),
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
        Doing::DisplayInitiator => Ok(Outcome::Rows(vec![initiator_row(statement, &target.initiator_status())])),
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

fn replay(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let from = labelled_queue(&statement.name.stem, target.definitions())?;
    let origin = match statement.value(Key::Origin) {
        Some(Value::Text(name)) => Some(name.clone()),
        _ => None,
    };
    let count = match statement.value(Key::Count) {
        Some(Value::Number(count)) => Some(*count),
        _ => None,
    };
    let replay = Replay { from, origin, count, ..one_message(statement, target.definitions())? };
    let Replayed { moved, left, warnings } = target.replay(&replay).map_err(|error| failure(&error))?;
    let left = if left > 0 { format!(", {left} left") } else { String::new() };
    let done = if replay.discards { "discarded" } else { "replayed" };
    Ok(Outcome::Done { message: format!("{} {done}{left}", messages(moved)), warnings })
}

fn clear(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let name = statement.name.stem.clone();
    local(&name, target.definitions())?;
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
        Defining::AlterManager => alter_manager(statement, definitions),
        Defining::SetAuthority => authority::set(statement, definitions),
        Defining::DeleteAuthority => authority::delete(statement, definitions),
        Defining::SetChannelRule => channel_rule::set(statement, &definitions.channel_rules),
    }
}

fn alter_manager(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let mut manager = definitions.queue_manager.clone();
    manager.set(statement);
    let label = manager.certificate_label.as_deref().unwrap_or_default();
    nouns::channel::check_label(label)?;
    if manager.active_channels_max > manager.channels_max {
        let QueueManager { active_channels_max, channels_max, .. } = manager;
        let message = format!("ACTCHL({active_channels_max}) is more than MAXCHL({channels_max})");
        return Err(invalid(message, None));
    }
    Ok(Change::AlterManager(manager))
}

/// Of REPLAY, what is about one message.
fn one_message(statement: &Statement, definitions: &Definitions) -> Result<Replay, Failure> {
    let number = match statement.value(Key::MessageNumber) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let to = match statement.value(Key::To) {
        Some(Value::Text(name)) => Some(name.clone()),
        _ => None,
    };
    let (keeps_label, discards) = (statement.says(Key::KeepLabel, "YES"), statement.says(Key::Discard, "DISCARD"));
    if number.is_none() && (to.is_some() || keeps_label || discards) {
        return Err(invalid("TO, HEADER and DISCARD are for one message: MSGNUM says which", None));
    }
    if number.is_some() && (statement.value(Key::Origin).is_some() || statement.value(Key::Count).is_some()) {
        return Err(invalid("QUEUE and COUNT are for many messages: MSGNUM is one", None));
    }
    if discards && to.is_some() || keeps_label && to.is_none() {
        return Err(invalid("DISCARD goes without TO, and HEADER with it", None));
    }
    if let Some(to) = &to {
        local(to, definitions)?;
    }
    Ok(Replay { number, to, keeps_label, discards, ..Replay::default() })
}

/// Most messages that DISPLAY DEADMSG shows at once; the answer has to fit the socket's frame.
pub const DEAD_LETTERS_MAX: usize = 1_000;

/// The local queue that is named; the error queue may be an alias of one.
fn labelled_queue(name: &str, definitions: &Definitions) -> Result<String, Failure> {
    let alias = definitions.aliases.get(name).filter(|_| name == ERROR_QUEUE);
    let name = alias.map_or(name, |alias| &alias.target);
    local(name, definitions).map(|_| name.to_owned())
}

fn display_dead_letters(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let name = &labelled_queue(&statement.name.stem, target.definitions())?;
    let max = match statement.value(Key::Count) {
        Some(Value::Number(count)) => usize::try_from(*count).unwrap_or(usize::MAX).min(DEAD_LETTERS_MAX),
        _ => DEAD_LETTERS_MAX,
    };
    let after = match statement.value(Key::After) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let letters = target.dead_letters(name, after, max).map_err(|error| failure(&error))?;
    let candidates: Vec<Candidate<'_>> = letters
        .iter()
        .map(|letter| -> Candidate<'_> { (name, None, Box::new(|key| dead_letter_cell(letter, key))) })
        .collect();
    rows(statement, "QUEUE", candidates, &wanted(statement, false))
}

fn dead_letter_cell(letter: &DeadLetter, key: Key) -> Option<Cell> {
    Some(match key {
        Key::MessageNumber => Cell::Number(letter.number),
        Key::Reason => letter.reason.map_or(Cell::word(""), |reason| Cell::Number(reason.into())),
        Key::Cause => Cell::Text(letter.cause.clone()),
        Key::Details => Cell::Text(letter.details.clone()),
        Key::Origin => Cell::Text(letter.queue.clone()),
        Key::OriginManager => Cell::Text(letter.manager.clone()),
        Key::PutUser => Cell::Text(letter.user.clone()),
        Key::Persistence => Cell::word(if letter.persistent { "YES" } else { "NO" }),
        Key::Bytes => Cell::Number(letter.bytes),
        Key::PutDate => Cell::Text(date(letter.put_ms)),
        Key::PutTime => Cell::Text(time(letter.put_ms)),
        _ => return None,
    })
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

fn existing_channel<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a ChannelDefinition, Failure> {
    definitions.channels.get(name).ok_or_else(|| unknown_channel(name))
}

fn unknown_channel(name: &str) -> Failure {
    Failure { reason: Some(4032), ..unknown("channel", name) }
}

/// START, STOP, PING, RESET and RESOLVE.
fn command_channel(statement: &Statement, doing: Doing, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let name = &statement.name.stem;
    let kind = existing_channel(name, target.definitions())?.kind;
    if matches!(doing, Doing::PingChannel | Doing::ResolveChannel) && !kind.sends() {
        let message = format!("channel {name} is of CHLTYPE({kind}), {} is for SDR and SVR", statement.command.verb);
        return Err(Failure { kind: FailureKind::Refused, reason: Some(4041), message, hint: None });
    }
    let states: Vec<ChannelState> = target.channel_status(name).iter().map(|status| status.state).collect();
    let active = states.iter().copied().find(|state| state.is_active());
    let done = |message: String| Ok(Outcome::Done { message, warnings: Vec::new() });
    let refused = |error: AdminError| failure(&error);
    match (doing, active) {
        (Doing::StartChannel, Some(state)) if !states.contains(&ChannelState::Stopped) => {
            done(format!("channel {name} is {state} already"))
        }
        (Doing::StartChannel, _) => {
            target.start_channel(name).map_err(refused)?;
            let failed = target.channel_status(name).into_iter().find(|status| status.state == ChannelState::Retrying);
            let warnings = failed.map(|status| format!("channel {name} is {}: {}", status.state, status.reason));
            Ok(Outcome::Done {
                message: format!("start of channel {name} accepted"),
                warnings: warnings.into_iter().collect(),
            })
        }
        (Doing::StopChannel, _) => {
            let how = StopChannel {
                force: statement.says(Key::StopMode, "FORCE"),
                inactive: statement.says(Key::StopStatus, "INACTIVE"),
            };
            let is_stopped = !states.is_empty() && states.iter().all(|state| *state == ChannelState::Stopped);
            if is_stopped && !how.inactive {
                return done(format!("channel {name} is STOPPED already"));
            }
            target.stop_channel(name, how).map_err(refused)?;
            done(format!("stop of channel {name} accepted"))
        }
        (_, Some(state)) => Err(failure(&AdminError::ChannelInUse { name: name.clone(), state })),
        (Doing::PingChannel, None) => target.ping_channel(name).map_err(refused).and_then(done),
        (Doing::ResetChannel, None) => {
            let sequence = match statement.value(Key::SequenceNumber) {
                Some(Value::Number(number)) => *number,
                _ => 1,
            };
            target.reset_channel(name, sequence).map_err(refused).and_then(done)
        }
        (_, None) => {
            let commit = match statement.value(Key::Action) {
                Some(Value::Word(word)) => *word == "COMMIT",
                _ => {
                    return Err(invalid(
                        "RESOLVE CHANNEL needs ACTION",
                        Some("write ACTION(COMMIT) or ACTION(BACKOUT)"),
                    ));
                }
            };
            target.resolve_channel(name, commit).map_err(refused)?;
            let how = if commit { "removed: the partner has them" } else { "sent again: the partner has them not" };
            done(format!("channel {name} resolved, what was in doubt is {how}"))
        }
    }
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
    let missing = |name: &str| !definitions.queues.contains_key(name);
    match change {
        Change::Define { name, object } | Change::Alter { name, object } => {
            noun(object.sort()).forewarnings(name, object, definitions)
        }
        Change::AlterManager(manager) => {
            let mut warnings = Vec::new();
            if let Some(name) = manager.dead_letter_queue.as_ref().filter(|name| missing(name)) {
                warnings.push(format!("dead-letter queue {name} does not exist yet"));
            }
            if let Some(name) = &manager.default_transmission_queue {
                warnings.extend(no_transmission_queue(name, definitions));
            }
            warnings
        }
        Change::Delete { name, sort, .. } => noun(*sort).forewarnings_of_delete(name, definitions),
        change => authority::forewarnings(change),
    }
}

fn manager_row(statement: &Statement, manager: &QueueManager) -> Row {
    let mut row = Row::default();
    row.push(table::NAME_OF_MANAGER.keyword, Cell::Text(manager.name.clone()));
    for attribute in wanted(statement, false) {
        if let Some(cell) = manager.cell(attribute.key) {
            row.push(attribute.keyword, cell);
        }
    }
    row
}

/// What DISPLAY shows: what was asked for; or everything, unless `brief` and the name is generic.
pub(super) fn wanted(statement: &Statement, brief: bool) -> Vec<&'static Attribute> {
    let all = statement.says(Key::All, "ALL") || statement.requested.is_empty() && !(brief && statement.name.generic);
    if all {
        return statement.command.attributes.to_vec();
    }
    let mut wanted = statement.requested.clone();
    // What decides is shown too, as runmqsc does.
    if let Some(filter) = &statement.filter
        && !wanted.iter().any(|attribute| attribute.key == filter.attribute.key)
    {
        wanted.push(filter.attribute);
    }
    wanted
}

/// An object to show: its name, its type where the noun has several, and its attributes' values.
pub(super) type Candidate<'a> = (&'a str, Option<&'static str>, Box<dyn Fn(Key) -> Option<Cell> + 'a>);

fn display(statement: &Statement, doing: Doing, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
    let definitions = target.definitions();
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    if doing == Doing::DisplayQueueStatus {
        candidates.extend(definitions.queues.keys().map(|name| -> Candidate<'_> {
            // Asked once for the row; counters that belong together come from one moment.
            let status = std::cell::OnceCell::new();
            (
                name,
                None,
                Box::new(move |key| {
                    status
                        .get_or_init(|| target.queue_status(name))
                        .as_ref()
                        .and_then(|status| status_cell(status, key))
                }),
            )
        }));
    }
    if doing == Doing::DisplayPolicyStatus {
        candidates.extend(definitions.policies.keys().map(|name| -> Candidate<'_> {
            let status = std::cell::OnceCell::new();
            (name, None, Box::new(move |key| status.get_or_init(|| target.policy_status(name)).cell(key)))
        }));
    }
    candidates.retain(|(name, ..)| statement.name.fits(name));
    if candidates.is_empty() && !statement.name.generic {
        let name = &statement.name.stem;
        return Err(match doing {
            Doing::DisplayPolicyStatus => unknown("policy", name),
            _ => queues::none_such(name, definitions),
        });
    }
    candidates.sort_by_key(|(name, ..)| *name);

    let head = match doing {
        Doing::DisplayPolicyStatus => "POLICY",
        _ => "QUEUE",
    };
    rows(statement, head, candidates, &wanted(statement, false))
}

/// Queues or policies as they were.
fn display_kept(
    statement: &Statement,
    doing: Doing,
    at_ms: u64,
    target: &mut dyn Administered,
) -> Result<Vec<Row>, Failure> {
    let (name, wanted) = (&statement.name, wanted(statement, false));
    let of_queues = doing == Doing::DisplayQueueStatus;
    let (queues, policies);
    let candidates: Vec<Candidate<'_>> = if of_queues {
        queues = target.queues_at(at_ms).map_err(|error| failure(&error))?;
        let found = queues.iter().filter(|(queue, _)| name.fits(queue));
        found.map(|(queue, of)| -> Candidate<'_> { (queue, None, Box::new(|key| status_cell(of, key))) }).collect()
    } else {
        policies = target.policies_at(at_ms).map_err(|error| failure(&error))?;
        let found = policies.iter().filter(|(policy, _)| name.fits(policy));
        found.map(|(policy, of)| -> Candidate<'_> { (policy, None, Box::new(|key| of.cell(key))) }).collect()
    };
    match candidates.is_empty() && !name.generic {
        true => Err(unknown(statement.command.object, &name.stem)),
        false => rows(statement, if of_queues { "QUEUE" } else { "POLICY" }, candidates, &wanted),
    }
}

/// Those that fit, with what is wanted of them.
pub(super) fn rows(
    statement: &Statement,
    head: &str,
    candidates: Vec<Candidate<'_>>,
    wanted: &[&'static Attribute],
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (name, of_type, value) in candidates {
        if let Some(filter) = &statement.filter
            && !fits(filter, value(filter.attribute.key))?
        {
            continue;
        }
        let mut row = Row::default();
        row.push(head, Cell::word(name));
        if let Some(of_type) = of_type {
            row.push("TYPE", Cell::word(of_type));
        }
        for attribute in wanted.iter().filter(|attribute| attribute.key != Key::Type) {
            if let Some(cell) = value(attribute.key) {
                row.push(attribute.keyword, cell);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

fn display_channel_status(statement: &Statement, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
    let channels = target.definitions().channels.iter().filter(|(name, _)| statement.name.fits(name));
    let mut instances = Vec::new();
    for (name, channel) in channels {
        let mut statuses = target.channel_status(name);
        if statement.name.generic {
            statuses.retain(ChannelStatus::is_worth_showing);
        } else if statuses.is_empty() {
            statuses.push(ChannelStatus::default());
        }
        instances.extend(statuses.into_iter().map(|status| (name, channel, status)));
    }
    if instances.is_empty() && !statement.name.generic {
        return Err(unknown_channel(&statement.name.stem));
    }
    let candidates = instances
        .iter()
        .map(|(name, channel, status)| -> Candidate<'_> {
            (name, None, Box::new(|key| channel::status_cell(status, channel, key)))
        })
        .collect();
    let all = statement.says(Key::All, "ALL");
    if statement.requested.is_empty() && !all {
        let mut brief = table::CHANNEL_STATUS_BRIEF.to_vec();
        let of_filter = statement.filter.iter().map(|filter| filter.attribute);
        brief.extend(of_filter.filter(|of| table::CHANNEL_STATUS_BRIEF.iter().all(|shown| shown.key != of.key)));
        return rows(statement, "CHANNEL", candidates, &brief);
    }
    rows(statement, "CHANNEL", candidates, &wanted(statement, false))
}

fn initiator_row(statement: &Statement, status: &InitiatorStatus) -> Row {
    let mut row = Row::default();
    for attribute in wanted(statement, false) {
        if let Some(cell) = status.cell(attribute.key) {
            row.push(attribute.keyword, cell);
        }
    }
    row
}

/// The moment that AT gives, milliseconds since 1970, UTC; none for now.
fn at_ms(statement: &Statement) -> Result<Option<u64>, Failure> {
    let Some(Value::Text(text)) = statement.value(Key::At) else { return Ok(None) };
    let invalid = || invalid(format_args!("AT('{text}') is no time"), Some("write AT('YYYY-MM-DD HH:MM:SS'), UTC"));
    moment_ms(text).ok_or_else(invalid).map(Some)
}

/// What to show of meters: lists for programs only to those that ask for them, or for everything.
fn wanted_of_meters(statement: &Statement) -> Vec<&'static Attribute> {
    let mut wanted = wanted(statement, false);
    if statement.requested.is_empty() && !statement.says(Key::All, "ALL") {
        wanted.retain(|attribute| !table::FOR_PROGRAMS.contains(&attribute.key));
    }
    wanted
}

fn display_task_status(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let snapshot = target.task_meters(at_ms(statement)?).map_err(|error| failure(&error))?;
    let tasks = snapshot.tasks.iter();
    let candidates = tasks
        .map(|task| -> Candidate<'_> { (&task.name, None, Box::new(|key| tasks::cell(&snapshot, task, key))) })
        .collect();
    rows(statement, "TASK", candidates, &wanted_of_meters(statement))
}

fn display_cost_status(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let snapshot = target.cost_meters(at_ms(statement)?).map_err(|error| failure(&error))?;
    // Shown in lower case, and found in either.
    let pattern = Pattern { stem: statement.name.stem.to_lowercase(), ..statement.name.clone() };
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for (name, cpu_ns) in snapshot.rows().filter(|(name, _)| pattern.fits(name)) {
        let snapshot = &snapshot;
        candidates.push((name, None, Box::new(move |key| costs::cell(snapshot, name, cpu_ns, key))));
    }
    if candidates.is_empty() && !pattern.generic {
        return Err(unknown("role", &statement.name.stem));
    }
    rows(statement, costs::HEAD, candidates, &wanted_of_meters(statement))
}

fn display_device_status(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let snapshot = target.device_meters(at_ms(statement)?).map_err(|error| failure(&error))?;
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for device in snapshot.devices.iter().filter(|device| statement.name.fits(&device.name)) {
        candidates.push((&device.name, None, Box::new(|key| meters::device_cell(device, snapshot.taken_ms, key))));
        candidates.extend(device.meters.operations.iter().map(|row| -> Candidate<'_> {
            (&device.name, None, Box::new(|key| meters::operation_cell(device, row, key)))
        }));
    }
    if candidates.is_empty() && !statement.name.generic {
        return Err(unknown("device", &statement.name.stem));
    }
    rows(statement, "DEVICE", candidates, &wanted_of_meters(statement))
}

fn status_cell(status: &QueueStatus, key: Key) -> Option<Cell> {
    let optional = |number: Option<u64>| number.map_or(Cell::word(""), Cell::Number);
    Some(match key {
        Key::CurrentDepth => Cell::Number(status.depth),
        Key::OpenInput => Cell::Number(status.open_input),
        Key::OpenOutput => Cell::Number(status.open_output),
        Key::Uncommitted => Cell::Number(status.uncommitted),
        Key::MessageAge => optional(status.oldest_seconds),
        Key::LastPutDate => Cell::Text(status.last_put_ms.map(date).unwrap_or_default()),
        Key::LastPutTime => Cell::Text(status.last_put_ms.map(time).unwrap_or_default()),
        Key::LastGetDate => Cell::Text(status.last_get_ms.map(date).unwrap_or_default()),
        Key::LastGetTime => Cell::Text(status.last_get_ms.map(time).unwrap_or_default()),
        Key::Bytes => Cell::Number(status.bytes),
        Key::Puts => Cell::Number(status.puts),
        Key::Gets => Cell::Number(status.gets),
        Key::Expired => Cell::Number(status.expired),
        Key::NotMine => Cell::Number(status.not_mine),
        Key::Since => Cell::Number(status.since_ms),
        Key::Taken => Cell::Number(status.taken_ms),
        Key::OutputOpens => Cell::Number(status.output_opens),
        Key::InputOpens => Cell::Number(status.input_opens),
        Key::SinglePuts => Cell::Number(status.single_puts),
        Key::PersistentPuts => Cell::Number(status.persistent_puts),
        Key::PersistentGets => Cell::Number(status.persistent_gets),
        Key::Browses => Cell::Number(status.browses),
        Key::BytesPut => Cell::Number(status.bytes_put),
        Key::BytesGot => Cell::Number(status.bytes_got),
        Key::ShortestMessage => optional(status.shortest_bytes),
        Key::LongestMessage => optional(status.longest_bytes),
        Key::TimeOnQueue => Cell::Pair(status.time_us.short, status.time_us.long),
        Key::LongestTimeOnQueue => Cell::Number(status.longest_time_us),
        Key::QueueUnacknowledgedNow => Cell::Number(status.unacknowledged_bytes),
        Key::QueueHeldBack => Cell::Number(status.held_back),
        Key::QueueRefused => Cell::Number(status.limit_refused),
        Key::Rejects => Cell::Number(status.rejects.iter().map(|(_, count)| count).sum()),
        Key::RejectsByReason => {
            Cell::List(status.rejects.iter().map(|(reason, count)| format!("{reason}={count}")).collect())
        }
        _ => return None,
    })
}

/// True when the object stays. An attribute that the object has not, or that is blank, is unequal to everything.
pub(super) fn fits(filter: &Filter, cell: Option<Cell>) -> Result<bool, Failure> {
    let negative = matches!(filter.operator, Operator::Ne | Operator::Nl | Operator::Ex);
    let cell = match cell {
        None => return Ok(false),
        Some(Cell::Text(text)) if text.is_empty() && !filter.value.trim().is_empty() => return Ok(negative),
        Some(cell) => cell,
    };
    let ordered = |order: std::cmp::Ordering| match filter.operator {
        Operator::Lt => order.is_lt(),
        Operator::Gt => order.is_gt(),
        Operator::Le => order.is_le(),
        Operator::Ge => order.is_ge(),
        Operator::Ne => order.is_ne(),
        _ => order.is_eq(),
    };
    let like = |text: &str| match filter.value.strip_suffix('*') {
        Some(stem) => text.starts_with(stem),
        None => text == filter.value,
    };
    Ok(match (&cell, filter.operator) {
        (Cell::Number(number), _) => match filter.value.parse::<u64>() {
            Ok(value) => ordered(number.cmp(&value)),
            // KEYREUSE and CHIADAPS are a number or a word.
            Err(_) if matches!(filter.attribute.kind, Kind::Reuse { .. } | Kind::NumberOr { .. }) => negative,
            Err(_) => {
                let message = format!("{} is compared with a number, not {}", filter.attribute.keyword, filter.value);
                return Err(invalid(message, None));
            }
        },
        (Cell::Pair(short, _), _) => match filter.value.parse::<u64>() {
            Ok(value) => ordered(short.cmp(&value)),
            Err(_) => {
                let message = format!("{} is compared with a number, not {}", filter.attribute.keyword, filter.value);
                return Err(invalid(message, None));
            }
        },
        (Cell::Text(text), Operator::Lk) => like(text),
        (Cell::Text(text), Operator::Nl) => !like(text),
        (Cell::Text(text), _) => ordered(text.as_str().cmp(filter.value.trim_end())),
        (Cell::List(list), Operator::Ex) => !list.contains(&filter.value),
        (Cell::List(list), _) => list.contains(&filter.value),
    })
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
        let replies = execute_within(text, &mut Unseen, |command| command(&mut paper), 1);
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
        let replies = execute_overseen(&"HELP;".repeat(1000), &mut unknown, |_| unreachable!("nothing is carried out"));
        assert_eq!((replies.len(), unknown.0), (1, 1));
    }
}
