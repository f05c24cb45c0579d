//! Carries commands out on whatever is administered.
//!
//! [`plan`] compares a statement with the definitions and says what is to change; [`Administered::apply`] changes it,
//! the queue manager's or a test's. Nothing is changed by a command that fails.

use super::objects::{
    AliasQueue, DEAD_LETTER_QUEUE, Definitions, ERROR_QUEUE, LocalQueue, OBJECTS_MAX, QueueManager, SYSTEM_PREFIX,
};
use super::parse::{self, Filter, Operator, Statement, SyntaxError, Value};
use super::reply::{Cell, Failure, FailureKind, Outcome, Reply, Row};
use super::table::{self, Act, Attribute, Key, Kind};
use super::{policy, reference};
use bulla_seal::Policy;
use std::fmt::{self, Display};
use std::sync::Arc;

/// What the admin language works on.
pub trait Administered {
    /// What is defined now.
    fn definitions(&self) -> &Definitions;

    /// Makes `change` true: in the definitions ([`Definitions::apply`]), on disk, and in what is running. It is durable on return.
    ///
    /// # Errors
    /// Nothing is changed.
    fn apply(&mut self, change: Change) -> Result<Applied, AdminError>;

    /// Puts messages of an error or dead-letter queue back where they came from, each in one unit of work.
    ///
    /// # Errors
    /// Messages that were put back until then stay there.
    fn replay(&mut self, replay: &Replay) -> Result<Replayed, AdminError>;

    /// What goes on at a local queue; none when there is no such queue.
    fn queue_status(&self, name: &str) -> Option<QueueStatus>;
}

/// What is to become true. Objects are whole: as they shall be, not what is different.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new queue, or, where one has the name, its replacement that keeps the messages.
    DefineLocal {
        /// Its name.
        name: String,
        /// As it shall be.
        queue: LocalQueue,
    },
    /// An existing queue.
    AlterLocal {
        /// Its name.
        name: String,
        /// As it shall be.
        queue: LocalQueue,
    },
    /// Refused with [`AdminError::InUse`] while somebody has it open, with [`AdminError::NotEmpty`] unless `purge`.
    DeleteLocal {
        /// Its name.
        name: String,
        /// Its messages go too.
        purge: bool,
    },
    /// Its messages go. Refused with [`AdminError::InUse`] while somebody has it open.
    ClearLocal {
        /// Its name.
        name: String,
    },
    /// A new alias, or a replacement.
    DefineAlias {
        /// Its name.
        name: String,
        /// As it shall be.
        alias: AliasQueue,
    },
    /// An existing alias.
    AlterAlias {
        /// Its name.
        name: String,
        /// As it shall be.
        alias: AliasQueue,
    },
    /// Refused with [`AdminError::InUse`] while somebody has it open.
    DeleteAlias {
        /// Its name.
        name: String,
    },
    /// A new policy, or a replacement; it has been checked.
    SetPolicy(Arc<Policy>),
    /// No policy any more.
    DeletePolicy {
        /// Its name.
        name: String,
    },
    /// The queue manager.
    AlterManager(QueueManager),
}

/// `queue ORDERS altered`, for logs.
impl Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&done(self, false))
    }
}

/// Which messages are to be put back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replay {
    /// The local queue that they lie on; it exists.
    pub from: String,
    /// Only those that came from this queue.
    pub origin: Option<String>,
    /// At most so many.
    pub count: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Replayed {
    /// Messages that were put back.
    pub moved: u64,
    /// Messages that were asked for and stay: their queue is gone, full, or not named.
    pub left: u64,
    /// Why they stay, one lower-case line each or for several.
    pub warnings: Vec<String>,
}

/// What [`Administered::apply`] has to say beside that it is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// What should be seen to, one lower-case line each: a policy that names somebody whose certificate is nowhere, …
    pub warnings: Vec<String>,
}

/// Why a change was refused. The administrator's turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AdminError {
    /// Applications have it open: 2042.
    InUse {
        /// The queue or alias.
        name: String,
        /// Links that are attached to it.
        links: usize,
    },
    /// It holds messages: 2055.
    NotEmpty {
        /// The queue.
        name: String,
        /// How many.
        depth: u64,
    },
    /// It went away meanwhile: 2085.
    Unknown {
        /// What was named.
        name: String,
    },
    /// The disk, the journal, a stopping queue manager: whatever has a reason code.
    Failed {
        /// MQ's reason code.
        reason: u32,
        /// One lower-case line.
        detail: String,
    },
}

impl AdminError {
    /// MQ's reason code.
    pub fn reason(&self) -> u32 {
        match self {
            AdminError::InUse { .. } => 2042,
            AdminError::NotEmpty { .. } => 2055,
            AdminError::Unknown { .. } => 2085,
            AdminError::Failed { reason, .. } => *reason,
        }
    }
}

impl std::error::Error for AdminError {}

impl Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminError::InUse { name, links: 1 } => write!(f, "{name} is open on 1 link"),
            AdminError::InUse { name, links } => write!(f, "{name} is open on {links} links"),
            AdminError::NotEmpty { name, depth } => write!(f, "{name} holds {}", messages(*depth)),
            AdminError::Unknown { name } => write!(f, "{name} does not exist"),
            AdminError::Failed { detail, .. } => f.write_str(detail),
        }
    }
}

/// What goes on at a local queue. Counters run from the queue manager's start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QueueStatus {
    /// Messages, those under delivery included.
    pub depth: u64,
    /// Links that get.
    pub open_input: u64,
    /// Links that put.
    pub open_output: u64,
    /// Messages put or got and not settled.
    pub uncommitted: u64,
    /// Age of the oldest message in seconds; none on an empty queue.
    pub oldest_seconds: Option<u64>,
    /// Last put, milliseconds since 1970, UTC.
    pub last_put_ms: Option<u64>,
    /// Last get, milliseconds since 1970, UTC.
    pub last_get_ms: Option<u64>,
    /// Bytes of all messages as stored.
    pub bytes: u64,
    /// Messages put.
    pub puts: u64,
    /// Messages got.
    pub gets: u64,
    /// Messages expired.
    pub expired: u64,
    /// Sealed messages passed over because they are addressed to somebody else.
    pub not_mine: u64,
}

/// Carries out every command in `text`, in order. A failed one does not stop the next.
pub fn execute(text: &str, target: &mut dyn Administered) -> Vec<Reply> {
    execute_apart(text, |command| command(target))
}

/// Like [`execute`], for a target that others wait for: `hold` is called once for each command, and gives the target to
/// what it is given, so that it can let go in between.
pub fn execute_apart(text: &str, mut hold: impl FnMut(&mut dyn FnMut(&mut dyn Administered))) -> Vec<Reply> {
    let answered = |statement: Result<Statement, SyntaxError>| match statement {
        Ok(statement) => {
            let mut outcome = None;
            hold(&mut |target| outcome = Some(perform(&statement, target).unwrap_or_else(Outcome::Failed)));
            let outcome = outcome.unwrap_or_else(|| {
                Outcome::Failed(failure(&AdminError::Failed {
                    reason: 2162,
                    detail: "the queue manager did not take the command".into(),
                }))
            });
            Reply { at: statement.at, command: statement.to_string(), outcome }
        }
        Err(error) => {
            let hint = error.hint();
            let failure = Failure { kind: FailureKind::Invalid, reason: None, message: error.to_string(), hint };
            Reply { at: error.at, command: String::new(), outcome: Outcome::Failed(failure) }
        }
    };
    parse::statements(text).into_iter().map(answered).collect()
}

fn perform(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    match statement.command.act {
        Act::Help => reference::help(&statement.topic).map(Outcome::Help),
        Act::DisplayManager => Ok(Outcome::Rows(vec![manager_row(statement, &target.definitions().queue_manager)])),
        Act::DisplayLocal | Act::DisplayAlias | Act::DisplayQueue | Act::DisplayQueueStatus | Act::DisplayPolicy => {
            display(statement, target).map(Outcome::Rows)
        }
        Act::ReplayLocal => {
            let from = statement.name.stem.clone();
            local(&from, target.definitions())?;
            let origin = match statement.value(Key::Origin) {
                Some(Value::Text(name)) => Some(name.clone()),
                _ => None,
            };
            let count = match statement.value(Key::Count) {
                Some(Value::Number(count)) => Some(*count),
                _ => None,
            };
            let Replayed { moved, left, warnings } =
                target.replay(&Replay { from, origin, count }).map_err(|error| failure(&error))?;
            let left = if left > 0 { format!(", {left} left") } else { String::new() };
            Ok(Outcome::Done { message: format!("{} replayed{left}", messages(moved)), warnings })
        }
        _ => {
            let change = plan(statement, target.definitions())?;
            let existed = existed(&change, target.definitions());
            let message = done(&change, existed);
            let mut warnings = forewarnings(&change, target.definitions());
            let applied = target.apply(change).map_err(|error| failure(&error))?;
            warnings.extend(applied.warnings);
            Ok(Outcome::Done { message, warnings })
        }
    }
}

fn failure(error: &AdminError) -> Failure {
    let hint = match error {
        AdminError::NotEmpty { .. } => Some("PURGE deletes the messages too".into()),
        AdminError::InUse { .. } => Some("DISPLAY QSTATUS shows how many links have it open".into()),
        _ => None,
    };
    Failure { kind: FailureKind::Refused, reason: Some(error.reason()), message: error.to_string(), hint }
}

fn messages(count: u64) -> String {
    if count == 1 { "1 message".into() } else { format!("{count} messages") }
}

/// What `statement`, one that changes something, comes to.
///
/// # Errors
/// It contradicts what is defined, or itself.
pub(super) fn plan(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let name = statement.name.stem.clone();
    match statement.command.act {
        Act::DefineLocal => {
            if definitions.aliases.contains_key(&name) {
                return Err(wrong_type(&name, "an alias"));
            }
            let mut queue = like(statement, definitions, &definitions.queues, "a local queue")?;
            free_or_replaced(statement, definitions.queues.contains_key(&name))?;
            room_for(&name, definitions)?;
            queue.set(statement);
            Ok(Change::DefineLocal { name, queue })
        }
        Act::AlterLocal => {
            let mut queue = local(&name, definitions)?.clone();
            queue.set(statement);
            Ok(Change::AlterLocal { name, queue })
        }
        Act::DeleteLocal => {
            local(&name, definitions)?;
            if name == ERROR_QUEUE || name == DEAD_LETTER_QUEUE {
                let message = format!("{name} is used by the queue manager itself");
                return Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint: None });
            }
            Ok(Change::DeleteLocal { name, purge: statement.says(Key::Purge, "PURGE") })
        }
        Act::ClearLocal => {
            local(&name, definitions)?;
            Ok(Change::ClearLocal { name })
        }
        Act::DefineAlias => {
            if definitions.queues.contains_key(&name) {
                return Err(wrong_type(&name, "a local queue"));
            }
            let mut alias = like(statement, definitions, &definitions.aliases, "an alias")?;
            free_or_replaced(statement, definitions.aliases.contains_key(&name))?;
            room_for(&name, definitions)?;
            alias.set(statement);
            if alias.target.is_empty() {
                return Err(invalid("DEFINE QALIAS needs TARGET or LIKE", None));
            }
            Ok(Change::DefineAlias { name, alias })
        }
        Act::AlterAlias => {
            let mut alias = alias(&name, definitions)?.clone();
            alias.set(statement);
            Ok(Change::AlterAlias { name, alias })
        }
        Act::DeleteAlias => {
            alias(&name, definitions)?;
            Ok(Change::DeleteAlias { name })
        }
        Act::AlterManager => {
            let mut manager = definitions.queue_manager.clone();
            manager.set(statement);
            Ok(Change::AlterManager(manager))
        }
        Act::SetPolicy => {
            if name.starts_with(SYSTEM_PREFIX) {
                return Err(invalid(
                    "the queue manager's own queues carry no policy",
                    Some("an alias of another name can have one"),
                ));
            }
            let add = statement.says(Key::Action, "ADD");
            let policy = if add || statement.says(Key::Action, "REMOVE") {
                policy::changed(Policy::clone(existing_policy(&name, definitions)?), statement, add)
            } else {
                if !definitions.policies.contains_key(&name) && definitions.policies.len() >= OBJECTS_MAX {
                    return Err(too_many("policies"));
                }
                policy::replaced(statement)
            };
            policy.map(|policy| Change::SetPolicy(Arc::new(policy))).map_err(|refused| {
                let kind = if refused.by_state() { FailureKind::Refused } else { FailureKind::Invalid };
                Failure { kind, reason: None, message: refused.to_string(), hint: None }
            })
        }
        Act::DeletePolicy => {
            existing_policy(&name, definitions)?;
            Ok(Change::DeletePolicy { name })
        }
        Act::Help
        | Act::ReplayLocal
        | Act::DisplayLocal
        | Act::DisplayAlias
        | Act::DisplayQueue
        | Act::DisplayQueueStatus
        | Act::DisplayManager
        | Act::DisplayPolicy => Err(invalid(format_args!("{} defines nothing", statement.command), None)),
    }
}

/// The object to begin with: LIKE's, or the defaults.
fn like<T: Clone + Default>(
    statement: &Statement,
    definitions: &Definitions,
    kind: &std::collections::BTreeMap<String, T>,
    wanted: &str,
) -> Result<T, Failure> {
    let Some(Value::Text(model)) = statement.value(Key::Like) else { return Ok(T::default()) };
    if let Some(object) = kind.get(model) {
        return Ok(object.clone());
    }
    let exists = definitions.queues.contains_key(model) || definitions.aliases.contains_key(model);
    if exists { Err(wrong_type(model, &format!("not {wanted}"))) } else { Err(unknown("queue", model)) }
}

fn free_or_replaced(statement: &Statement, exists: bool) -> Result<(), Failure> {
    if !exists || statement.says(Key::Replace, "REPLACE") {
        return Ok(());
    }
    Err(Failure {
        kind: FailureKind::Refused,
        reason: Some(4001),
        message: format!("queue {} exists already", statement.name),
        hint: Some("ALTER changes it, REPLACE defines it anew and keeps its messages".into()),
    })
}

fn room_for(name: &str, definitions: &Definitions) -> Result<(), Failure> {
    let exists = definitions.queues.contains_key(name) || definitions.aliases.contains_key(name);
    if !exists && definitions.queues.len() + definitions.aliases.len() >= OBJECTS_MAX {
        return Err(too_many("queues and aliases"));
    }
    Ok(())
}

fn local<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a LocalQueue, Failure> {
    match definitions.queues.get(name) {
        Some(queue) => Ok(queue),
        None if definitions.aliases.contains_key(name) => Err(wrong_type(name, "an alias")),
        None => Err(unknown("queue", name)),
    }
}

fn alias<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a AliasQueue, Failure> {
    match definitions.aliases.get(name) {
        Some(alias) => Ok(alias),
        None if definitions.queues.contains_key(name) => Err(wrong_type(name, "a local queue")),
        None => Err(unknown("queue", name)),
    }
}

fn existing_policy<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a Policy, Failure> {
    definitions.policies.get(name).map(AsRef::as_ref).ok_or_else(|| unknown("policy", name))
}

fn unknown(object: &str, name: &str) -> Failure {
    // The classical trap: an unquoted name was folded to upper case, or a quoted one was not.
    let folded = name.bytes().any(|byte| byte.is_ascii_lowercase());
    Failure {
        kind: FailureKind::Refused,
        reason: Some(2085),
        message: format!("{object} {name} does not exist"),
        hint: folded.then(|| "names in quotes keep their lower case".into()),
    }
}

fn wrong_type(name: &str, what: &str) -> Failure {
    Failure { kind: FailureKind::Refused, reason: Some(2043), message: format!("{name} is {what}"), hint: None }
}

fn too_many(what: &str) -> Failure {
    let message = format!("there are {OBJECTS_MAX} {what}, which is the limit");
    Failure { kind: FailureKind::Refused, reason: Some(2102), message, hint: None }
}

fn invalid(message: impl Display, hint: Option<&str>) -> Failure {
    let hint = hint.map(String::from);
    Failure { kind: FailureKind::Invalid, reason: None, message: message.to_string(), hint }
}

fn existed(change: &Change, definitions: &Definitions) -> bool {
    match change {
        Change::DefineLocal { name, .. } => definitions.queues.contains_key(name),
        Change::DefineAlias { name, .. } => definitions.aliases.contains_key(name),
        Change::SetPolicy(policy) => definitions.policies.contains_key(&policy.name),
        _ => true,
    }
}

fn done(change: &Change, existed: bool) -> String {
    match change {
        Change::DefineLocal { name, .. } | Change::DefineAlias { name, .. } if existed => {
            format!("queue {name} replaced")
        }
        Change::DefineLocal { name, .. } | Change::DefineAlias { name, .. } => format!("queue {name} defined"),
        Change::AlterLocal { name, .. } | Change::AlterAlias { name, .. } => format!("queue {name} altered"),
        Change::DeleteLocal { name, .. } | Change::DeleteAlias { name } => format!("queue {name} deleted"),
        Change::ClearLocal { name } => format!("queue {name} cleared"),
        Change::SetPolicy(policy) if existed => format!("policy {} replaced", policy.name),
        Change::SetPolicy(policy) => format!("policy {} set", policy.name),
        Change::DeletePolicy { name } => format!("policy {name} deleted"),
        Change::AlterManager(manager) => format!("queue manager {} altered", manager.name),
    }
}

/// What is allowed and will not work yet.
fn forewarnings(change: &Change, definitions: &Definitions) -> Vec<String> {
    let missing = |name: &str| !definitions.queues.contains_key(name);
    match change {
        Change::DefineAlias { alias, .. } | Change::AlterAlias { alias, .. } if missing(&alias.target) => {
            let is_alias = definitions.aliases.contains_key(&alias.target);
            let why = if is_alias { "is an alias itself: opening fails with 2001" } else { "does not exist yet" };
            vec![format!("target {} {why}", alias.target)]
        }
        Change::AlterManager(QueueManager { dead_letter_queue: Some(name), .. }) if missing(name) => {
            vec![format!("dead-letter queue {name} does not exist yet")]
        }
        Change::SetPolicy(policy) if missing(&policy.name) && !definitions.aliases.contains_key(&policy.name) => {
            vec![format!("there is no queue {} yet", policy.name)]
        }
        _ => Vec::new(),
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
fn wanted(statement: &Statement, brief: bool) -> Vec<&'static Attribute> {
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
type Candidate<'a> = (&'a str, Option<&'static str>, Box<dyn Fn(Key) -> Option<Cell> + 'a>);

fn display(statement: &Statement, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
    let definitions = target.definitions();
    let act = statement.command.act;
    let typed = |word: &str| !matches!(statement.value(Key::OfType), Some(Value::Word(only)) if *only != "ALL" && *only != word);
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    if matches!(act, Act::DisplayLocal | Act::DisplayQueue) && typed("QLOCAL") {
        candidates.extend(definitions.queues.iter().map(|(name, queue)| -> Candidate<'_> {
            let depth = move || target.queue_status(name).map(|status| Cell::Number(status.depth));
            let value = move |key| if key == Key::CurrentDepth { depth() } else { queue.cell(key) };
            (name, Some("QLOCAL"), Box::new(value))
        }));
    }
    if matches!(act, Act::DisplayAlias | Act::DisplayQueue) && typed("QALIAS") {
        candidates.extend(
            definitions
                .aliases
                .iter()
                .map(|(name, alias)| -> Candidate<'_> { (name, Some("QALIAS"), Box::new(|key| alias.cell(key))) }),
        );
    }
    if act == Act::DisplayQueueStatus {
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
    if act == Act::DisplayPolicy {
        candidates.extend(
            definitions
                .policies
                .iter()
                .map(|(name, policy)| -> Candidate<'_> { (name, None, Box::new(|key| policy::cell(policy, key))) }),
        );
    }
    candidates.retain(|(name, ..)| statement.name.fits(name));
    if candidates.is_empty() && !statement.name.generic {
        let name = &statement.name.stem;
        return Err(match act {
            Act::DisplayLocal | Act::DisplayQueueStatus if definitions.aliases.contains_key(name) => {
                wrong_type(name, "an alias")
            }
            Act::DisplayAlias if definitions.queues.contains_key(name) => wrong_type(name, "a local queue"),
            Act::DisplayPolicy => unknown("policy", name),
            _ => unknown("queue", name),
        });
    }
    candidates.sort_by_key(|(name, ..)| *name);

    let brief = matches!(act, Act::DisplayLocal | Act::DisplayAlias | Act::DisplayQueue);
    let wanted = wanted(statement, brief);
    let head = if act == Act::DisplayPolicy { "POLICY" } else { "QUEUE" };
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
        _ => return None,
    })
}

/// True when the object stays. An attribute that the object has not, or that is blank, is unequal to everything.
fn fits(filter: &Filter, cell: Option<Cell>) -> Result<bool, Failure> {
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
            // KEYREUSE is a number or a word.
            Err(_) if matches!(filter.attribute.kind, Kind::Reuse { .. }) => negative,
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

const SECONDS_A_DAY: u64 = 86_400;

/// `2026-11-21`, as QSTATUS writes it.
fn date(unix_ms: u64) -> String {
    // Days are counted in eras of 400 years that begin with March, so that the leap day comes last.
    let days = unix_ms / 1000 / SECONDS_A_DAY + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `14.05.09`, as QSTATUS writes it.
fn time(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % SECONDS_A_DAY;
    format!("{:02}.{:02}.{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_held_for_one_command_at_a_time() {
        let mut paper = crate::mqsc::transcripts::Paper::new();
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
    fn dates_and_times_are_utc_in_the_form_of_qstatus() {
        for (unix_ms, expected) in [
            (0, "1970-01-01 00.00.00"),
            (951_782_399_999, "2000-02-28 23.59.59"),
            (951_782_400_000, "2000-02-29 00.00.00"),
            (1_709_251_200_000, "2024-03-01 00.00.00"),
            (4_107_542_399_000, "2100-02-28 23.59.59"),
            (4_107_542_400_000, "2100-03-01 00.00.00"),
        ] {
            assert_eq!(format!("{} {}", date(unix_ms), time(unix_ms)), expected);
        }
    }
}
