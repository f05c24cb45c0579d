//! Queues: room and length, and the two that messages go to when something is wrong.

use super::{Doctor, mend, messages};
use crate::catalog::diagnosis::{Check, Condition, DEAD_LETTERS, DEPTH, DISK, ERROR_QUEUE, LIMITS, SIZE};
use crate::manager::{ERROR_QUEUE as ERROR_QUEUE_NAME, Route, State};
use crate::reason;
use bulla_queue::{Backlog, Chunks, JournalError, Message, PutError};
use bytes::Bytes;

/// Part of MAXDEPTH from which on a queue is said to be nearly full, in percent.
const NEARLY_FULL_PERCENT: u64 = 90;

/// Whether a short message would be taken on the queue of a route, and whether the queue's links are used up.
pub(super) fn room(doctor: &mut Doctor<'_>, state: &State, route: &Route) {
    let (queue, name) = (route.queue, route.queue_name.as_str());
    let about = format!("queue {name}");
    let has_room = tried(doctor, state, &DEPTH, route);
    if let (true, Some(status), Some(attributes)) = (has_room, state.store.status(queue), state.store.attributes(queue))
    {
        let (depth, max) = (u64::from(status.depth), u64::from(attributes.max_depth));
        let said = format!("{} of MAXDEPTH({max})", messages(depth));
        match depth * 100 >= max * NEARLY_FULL_PERCENT {
            true => {
                let mend = vec![alter(name, &format!("MAXDEPTH({})", max.saturating_mul(2)))];
                doctor.ill(&DEPTH, Condition::Warning, about.clone(), ("2053", said), mend);
            }
            false => doctor.found.well(&DEPTH, about.clone(), said),
        }
    }
    if state.store.backlog(Some(queue)) == Backlog::TooMuch {
        let details = "so much waits for the disk that no client gets credit";
        doctor.found.say(&DISK, Condition::Warning, about.clone(), details.to_owned());
    }
    let Some(usage) = state.uses.get(&queue) else { return };
    let (links, max) = (usage.putters.saturating_add(usage.getters), route.limit.links);
    if max > 0 && links >= max {
        let mend = vec![alter(name, &format!("MAXHANDS({})", u64::from(max) * 2))];
        doctor.ill(
            &LIMITS,
            Condition::Broken,
            about.clone(),
            ("2017", format!("has {links} links: MAXHANDS({max})")),
            mend,
        );
    }
    let too_long = u32::from(reason::MSG_TOO_BIG_FOR_Q.code);
    let refused = usage.traffic.rejects().into_iter().find(|(code, _)| u32::from(*code) == too_long);
    if let Some((_, count)) = refused {
        let details = format!("{} too long for it since the start", messages(count));
        doctor.found.say(&SIZE, Condition::Warning, about, details);
    }
}

/// Whether a short message would be taken. Nothing is put.
fn tried(doctor: &mut Doctor<'_>, state: &State, check: &'static Check, route: &Route) -> bool {
    let name = route.queue_name.as_str();
    let message = Message::new(false, Chunks::from(Bytes::from_static(b"probe")));
    let Err(error) = state.store.admits(route.queue, &message, 0) else { return true };
    let mend = match &error {
        PutError::QueueFull { max_depth } => vec![alter(name, &format!("MAXDEPTH({})", u64::from(*max_depth) * 2))],
        PutError::PutInhibited => vec![alter(name, "PUT(ENABLED)")],
        PutError::Journal(JournalError::Full) | PutError::Spill { .. } => vec!["df -h .".to_owned()],
        _ => Vec::new(),
    };
    let cause = error.reason_code().to_string();
    doctor.ill(check, Condition::Broken, format!("queue {name}"), (cause, error.to_string()), mend);
    false
}

fn alter(queue: &str, attribute: &str) -> String {
    mend::mqsc(format!("ALTER QLOCAL({}) {attribute}", mend::quoted(queue)))
}

/// The queue that defective messages go to.
pub(super) fn error_queue(doctor: &mut Doctor<'_>, state: &State) {
    let list = "bulla error list".to_owned();
    a_last_resort(doctor, state, &ERROR_QUEUE, ERROR_QUEUE_NAME, list);
}

/// The queue that messages go to which can't be delivered.
pub(super) fn dead_letter_queue(doctor: &mut Doctor<'_>, state: &State) {
    match state.definitions.queue_manager.dead_letter_queue.clone() {
        Some(name) => {
            let list = mend::mqsc(format!("DISPLAY DEADMSG({})", mend::quoted(&name)));
            a_last_resort(doctor, state, &DEAD_LETTERS, &name, list);
        }
        None => {
            let mend = vec![mend::mqsc("ALTER QMGR DEADQ(SYSTEM.DEAD.LETTER.QUEUE)")];
            let details = "there is no dead-letter queue: a channel stops at a message that it can't deliver";
            doctor.ill(&DEAD_LETTERS, Condition::Warning, "", ("", details), mend);
        }
    }
}

fn a_last_resort(doctor: &mut Doctor<'_>, state: &State, check: &'static Check, name: &str, list: String) {
    let about = format!("queue {name}");
    let route = match state.route(name) {
        Ok(route) => route,
        Err(refusal) => {
            let mend = vec![mend::mqsc(format!("DEFINE QLOCAL({})", mend::quoted(name)))];
            return doctor.ill(
                check,
                Condition::Broken,
                about,
                (refusal.reason.code.to_string(), refusal.detail),
                mend,
            );
        }
    };
    if !route.put_enabled {
        let mend = vec![alter(&route.queue_name, "PUT(ENABLED)")];
        return doctor.ill(check, Condition::Broken, about, ("2051", "puts are disabled on the way to it"), mend);
    }
    if !tried(doctor, state, check, &route) {
        return;
    }
    let depth = state.store.status(route.queue).map_or(0, |status| u64::from(status.depth));
    match depth {
        0 => doctor.found.well(check, about, "is empty, and takes messages"),
        _ => {
            let are = if depth == 1 { "lies" } else { "lie" };
            doctor.ill(check, Condition::Warning, about, ("", format!("{} {are} there", messages(depth))), vec![list]);
        }
    }
}
