//! What DISPLAY shows of queues, policies, tasks, roles and devices as they run, now or as it was.

use super::parse::{Pattern, Statement, Value};
use super::reply::{Cell, Failure, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{Administered, failure, invalid, unknown};
use super::table::{self, Attribute, Doing, Key};
use super::{costs, meters, tasks};
use crate::attributes::Cells;
use crate::nouns::queues;
use bulla_catalog::calendar::{date, moment_ms, time};
use bulla_catalog::status::{PolicyStatus, QueueStatus};

impl Cells for PolicyStatus {
    fn cell(&self, key: Key) -> Option<Cell> {
        match key {
            Key::Since => Some(Cell::Number(self.since_ms)),
            Key::Taken => Some(Cell::Number(self.taken_ms)),
            key => self.meters.cell(key),
        }
    }
}

/// QSTATUS and POLSTATUS as they are.
///
/// # Errors
/// There is none of that name; WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, doing: Doing, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
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
pub(super) fn display_kept(
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

/// The moment that AT gives, milliseconds since 1970, UTC; none for now.
pub(super) fn at_ms(statement: &Statement) -> Result<Option<u64>, Failure> {
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

pub(super) fn display_tasks(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let snapshot = target.task_meters(at_ms(statement)?).map_err(|error| failure(&error))?;
    let tasks = snapshot.tasks.iter();
    let candidates = tasks
        .map(|task| -> Candidate<'_> { (&task.name, None, Box::new(|key| tasks::cell(&snapshot, task, key))) })
        .collect();
    rows(statement, "TASK", candidates, &wanted_of_meters(statement))
}

pub(super) fn display_costs(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
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

pub(super) fn display_devices(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
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
        Key::Own("STRANDED") => Cell::Number(status.stranded.messages()),
        Key::Own("STRANDBY") => {
            let by_cause = status.stranded.by_cause().into_iter().filter(|(_, count)| *count > 0);
            Cell::List(by_cause.map(|(cause, count)| format!("{cause}={count}")).collect())
        }
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
