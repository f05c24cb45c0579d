//! Limits of users in the admin language: SET, DELETE and DISPLAY LIMIT, and DISPLAY LIMITSTATUS.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Row};
use super::run::{fits, too_many, unknown, wanted};
use super::table::Key;
use bulla_catalog::limits::{LIMITS_MAX, Limit, UserStatus};
use bulla_catalog::{Change, Definitions};

const NS_PER_MS: u64 = 1_000_000;

/// What SET LIMIT comes to.
///
/// # Errors
/// There are as many limits as there may be.
pub(super) fn set(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let user = statement.name.stem.clone();
    let known = definitions.user_limits.get(&user);
    if known.is_none() && definitions.user_limits.len() >= LIMITS_MAX {
        return Err(too_many(LIMITS_MAX, "limits of users"));
    }
    let limit = changed(known.copied().unwrap_or_default(), statement);
    Ok(Change::SetLimit { user, limit })
}

/// What DELETE LIMIT comes to.
///
/// # Errors
/// There is no such limit.
pub(super) fn delete(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let user = statement.name.stem.clone();
    definitions.user_limits.get(&user).ok_or_else(|| unknown("limit", &user))?;
    Ok(Change::DeleteLimit { user })
}

/// What is not given stays.
fn changed(mut limit: Limit, statement: &Statement) -> Limit {
    let number = |key| match statement.value(key) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let count = |key| number(key).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    limit.connections = count(Key::UserConnections).unwrap_or(limit.connections);
    limit.links = count(Key::UserLinks).unwrap_or(limit.links);
    limit.unacknowledged_bytes = number(Key::UserUnacknowledged).unwrap_or(limit.unacknowledged_bytes);
    limit.messages_a_second = count(Key::UserRate).unwrap_or(limit.messages_a_second);
    limit.subscriptions = count(Key::UserSubscriptions).unwrap_or(limit.subscriptions);
    limit.dynamic_queues = count(Key::UserDynamicQueues).unwrap_or(limit.dynamic_queues);
    limit.temporary_queues = count(Key::UserTemporaryQueues).unwrap_or(limit.temporary_queues);
    limit.non_durable_subscriptions = count(Key::UserNonDurable).unwrap_or(limit.non_durable_subscriptions);
    limit.key_ms_a_second = count(Key::UserKeyTime).unwrap_or(limit.key_ms_a_second);
    limit
}

/// What came of a change, for messages; none for changes of others.
pub(super) fn done(change: &Change) -> Option<String> {
    match change {
        Change::SetLimit { user, .. } => Some(format!("limit of user {user} set")),
        Change::DeleteLimit { user } => Some(format!("limit of user {user} deleted")),
        _ => None,
    }
}

/// A limit's attributes as SET LIMIT takes them.
pub(super) fn cell(limit: &Limit, key: Key) -> Option<Cell> {
    Some(Cell::Number(match key {
        Key::UserConnections => limit.connections.into(),
        Key::UserLinks => limit.links.into(),
        Key::UserUnacknowledged => limit.unacknowledged_bytes,
        Key::UserRate => limit.messages_a_second.into(),
        Key::UserSubscriptions => limit.subscriptions.into(),
        Key::UserDynamicQueues => limit.dynamic_queues.into(),
        Key::UserTemporaryQueues => limit.temporary_queues.into(),
        Key::UserNonDurable => limit.non_durable_subscriptions.into(),
        Key::UserKeyTime => limit.key_ms_a_second.into(),
        _ => return None,
    }))
}

fn status_cell(status: &UserStatus, key: Key) -> Option<Cell> {
    Some(match key {
        Key::UserLimit => Cell::Text(status.pattern.clone()),
        Key::UserConnectionsNow => Cell::Number(status.connections.into()),
        Key::UserLinksNow => Cell::Number(status.links.into()),
        Key::UserUnacknowledgedNow => Cell::Number(status.unacknowledged_bytes),
        Key::UserHeldBack => Cell::Number(status.held_back),
        Key::UserRefused => Cell::Number(status.refused),
        Key::UserSubscriptionsNow => Cell::Number(status.subscriptions.into()),
        Key::UserDynamicQueuesNow => Cell::Number(status.dynamic_queues.into()),
        Key::UserTemporaryQueuesNow => Cell::Number(status.temporary_queues.into()),
        Key::UserNonDurableNow => Cell::Number(status.non_durable_subscriptions.into()),
        Key::UserKeyTimeTaken => Cell::Number(status.key_ns / NS_PER_MS),
        Key::UserKeyTimeUsedUp => Cell::Number(status.key_used_up),
        _ => return None,
    })
}

/// Whether what was asked for names it: itself, or by its beginning with a `*`. `*` alone is every user.
pub(super) fn is_asked_for(asked: &str, name: &str) -> bool {
    asked == name || asked.strip_suffix('*').is_some_and(|beginning| name.starts_with(beginning))
}

/// DISPLAY LIMIT.
///
/// # Errors
/// There is none; WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, definitions: &Definitions) -> Result<Vec<Row>, Failure> {
    rows(statement, "LIMIT", definitions.user_limits.iter(), cell)
}

/// DISPLAY LIMITSTATUS.
///
/// # Errors
/// There is none; WHERE compares what can't be compared.
pub(super) fn display_status(statement: &Statement, users: &[UserStatus]) -> Result<Vec<Row>, Failure> {
    rows(statement, "USER", users.iter().map(|status| (status.name.as_str(), status)), status_cell)
}

fn rows<'a, T: 'a>(
    statement: &Statement,
    title: &'static str,
    all: impl Iterator<Item = (&'a str, &'a T)>,
    cell: impl Fn(&T, Key) -> Option<Cell>,
) -> Result<Vec<Row>, Failure> {
    let asked = statement.name.stem.as_str();
    let mut rows = Vec::new();
    for (name, what) in all.filter(|(name, _)| is_asked_for(asked, name)) {
        if let Some(filter) = &statement.filter
            && !fits(filter, cell(what, filter.attribute.key))?
        {
            continue;
        }
        let mut row = Row::default();
        row.push(title, Cell::word(name));
        for attribute in wanted(statement, false) {
            if let Some(cell) = cell(what, attribute.key) {
                row.push(attribute.keyword, cell);
            }
        }
        rows.push(row);
    }
    if rows.is_empty() && !asked.ends_with('*') {
        return Err(unknown(if title == "LIMIT" { "limit" } else { "connected user" }, asked));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use crate::execute;
    use crate::objects::AsText;
    use crate::reply::{Outcome, Reply};
    use crate::run::Administered;
    use crate::transcripts::Paper;
    use bulla_catalog::Definitions;
    use bulla_catalog::limits::KEPT_OBJECTS_DEFAULT;

    fn answers(commands: &str, paper: &mut Paper) -> String {
        execute(commands, paper).iter().map(Reply::text).collect()
    }

    fn failure(command: &str, paper: &mut Paper) -> String {
        let replies = execute(command, paper);
        let [Reply { outcome: Outcome::Failed(failure), .. }] = replies.as_slice() else { panic!("{replies:?}") };
        failure.message.clone()
    }

    #[test]
    fn limits_are_read_back_as_they_were_written() {
        let mut paper = Paper::new();
        let set = "SET LIMIT('app*') MAXCONNS(5) MSGRATE(1000); SET LIMIT('*ANONYMOUS') MAXHANDS(3) UNACKED(65536) SEALTIME(250) MAXDYNQ(0)";
        answers(set, &mut paper);
        answers("SET LIMIT('app*') MAXCONNS(6)", &mut paper);
        let definitions = paper.definitions();
        let app = definitions.user_limits.get("app*").unwrap();
        assert_eq!((app.connections, app.messages_a_second), (6, 1000), "what is not given stays");
        assert_eq!((app.subscriptions, app.dynamic_queues), (KEPT_OBJECTS_DEFAULT, KEPT_OBJECTS_DEFAULT));
        assert_eq!(definitions.user_limits.get("*ANONYMOUS").unwrap().dynamic_queues, 0);
        let read = Definitions::from_text(&definitions.text(), "objects.mqsc".as_ref()).unwrap();
        assert_eq!(&read, definitions, "{}", definitions.text());
    }

    #[test]
    fn a_limit_is_shown_and_goes() {
        let mut paper = Paper::new();
        answers("SET LIMIT('app*') MAXCONNS(5); SET LIMIT('bob') UNACKED(7)", &mut paper);
        let shown = answers("DISPLAY LIMIT('*') MAXCONNS", &mut paper);
        assert!(shown.contains("LIMIT(app*)") && shown.contains("MAXCONNS(5)"), "{shown}");
        assert!(shown.contains("LIMIT(bob)") && !shown.contains("UNACKED"), "{shown}");
        let shown = answers("DIS LIMIT('*') WHERE(UNACKED GT 0)", &mut paper);
        assert!(shown.contains("bob") && !shown.contains("app*"), "{shown}");
        answers("DELETE LIMIT('bob')", &mut paper);
        for gone in ["DISPLAY LIMIT('bob')", "DELETE LIMIT('bob')"] {
            assert!(failure(gone, &mut paper).contains("does not exist"), "{gone}");
        }
    }

    #[test]
    fn names_that_no_user_can_have_are_refused() {
        for bad in ["'a*b'", "''", "'.x'", "'*bob'"] {
            let why = failure(&format!("SET LIMIT({bad}) MAXCONNS(1)"), &mut Paper::new());
            assert!(why.contains("is not a user's name"), "{bad}: {why}");
        }
    }
}
