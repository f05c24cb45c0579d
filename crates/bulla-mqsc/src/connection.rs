//! Connections in the admin language: DISPLAY CONN and STOP CONN.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, FailureKind, Outcome, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::{Administered, failure, invalid, unknown};
use super::table::Key;
use bulla_catalog::connections::{Connected, ConnectionId, Handle};

const MS_PER_SECOND: u64 = 1_000;

/// DISPLAY CONN.
///
/// # Errors
/// There is no such connection, a dispatcher did not answer, or WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, target: &mut dyn Administered) -> Result<Vec<Row>, Failure> {
    let all = target.connections().map_err(|error| failure(&error))?;
    let found: Vec<(String, Connected)> = all
        .connections
        .into_iter()
        .map(|connection| (connection.id.to_string(), connection))
        .filter(|(id, _)| statement.name.fits(id))
        .collect();
    if found.is_empty() && !statement.name.generic {
        return Err(unknown("connection", &statement.name.stem));
    }
    let kind = match statement.value(Key::ConnectionType) {
        Some(Value::Word(word)) => word,
        _ => "CONN",
    };
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for (id, connection) in &found {
        if kind != "HANDLE" {
            candidates.push((id, Some("CONN"), Box::new(move |key| connection_cell(connection, all.taken_ms, key))));
        }
        if kind != "CONN" {
            for handle in &connection.handles {
                candidates.push((id, Some("HANDLE"), Box::new(move |key| handle_cell(connection, handle, key))));
            }
        }
    }
    rows(statement, "CONN", candidates, &wanted(statement, false))
}

/// What both kinds of rows have.
fn common_cell(connection: &Connected, key: Key) -> Option<Cell> {
    Some(match key {
        Key::ConnectionUser => Cell::Text(connection.user.clone().unwrap_or_default()),
        Key::ConnectionApplication => Cell::Text(connection.application.clone()),
        Key::ConnectionAddress => Cell::Text(connection.address.clone()),
        _ => return None,
    })
}

fn connection_cell(connection: &Connected, taken_ms: u64, key: Key) -> Option<Cell> {
    Some(match key {
        Key::ConnectionProduct => Cell::Text(connection.product.clone()),
        Key::ConnectionCipher => Cell::Text(connection.cipher.clone()),
        Key::ConnectionKeyGroup => Cell::Text(connection.key_group.clone()),
        Key::ConnectionSeconds => Cell::Number(taken_ms.saturating_sub(connection.since_ms) / MS_PER_SECOND),
        Key::ConnectionHandles => Cell::Number(connection.handles.len() as u64),
        _ => return common_cell(connection, key),
    })
}

fn handle_cell(connection: &Connected, handle: &Handle, key: Key) -> Option<Cell> {
    Some(match key {
        Key::HandleObject => Cell::Text(handle.object.clone()),
        Key::HandlePurpose => Cell::word(handle.purpose.word()),
        Key::HandleUnsettled => Cell::Number(handle.unsettled),
        _ => return common_cell(connection, key),
    })
}

/// STOP CONN.
///
/// # Errors
/// There is no such connection, or its dispatcher did not answer.
pub(super) fn stop(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let name = &statement.name.stem;
    let id = ConnectionId::parse(name).ok_or_else(|| {
        invalid(format_args!("{name} is not a connection's number"), Some("DISPLAY CONN(*) shows them"))
    })?;
    match target.stop_connection(id).map_err(|error| failure(&error))? {
        Some(Connected { user, address, .. }) => {
            let user = user.map_or_else(|| "a client that has not signed in".to_owned(), |user| format!("user {user}"));
            Ok(Outcome::Done {
                message: format!("connection {id} of {user} at {address} stopped"),
                warnings: Vec::new(),
            })
        }
        None => {
            let message = format!("connection {id} does not exist");
            Err(Failure { kind: FailureKind::Refused, reason: Some(2085), message, hint: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::execute;
    use crate::metered::Metered;
    use crate::reply::{Outcome, Reply};
    use bulla_catalog::connections::{Connected, ConnectionId, Handle, Purpose};

    fn connected(generation: u64, user: Option<&str>, handles: &[(&str, Purpose)]) -> Connected {
        let handles = handles.iter().map(|(object, purpose)| Handle {
            object: (*object).to_owned(),
            purpose: *purpose,
            unsettled: 2,
        });
        Connected {
            id: ConnectionId::new(0, generation),
            user: user.map(str::to_owned),
            application: "app".into(),
            product: "client 1.0".into(),
            address: "192.0.2.1:40000".into(),
            cipher: String::new(),
            key_group: String::new(),
            since_ms: 1_000,
            handles: handles.collect(),
        }
    }

    fn world() -> Metered {
        let one = connected(1, Some("orders"), &[("ORDERS", Purpose::Output), ("REPLIES", Purpose::Input)]);
        let two = connected(2, None, &[("ORDERS", Purpose::Browse)]);
        Metered { connections: vec![one, two], ..Metered::default() }
    }

    fn answer(world: &mut Metered, command: &str) -> String {
        execute(command, world).iter().map(Reply::text).collect()
    }

    fn refusal(world: &mut Metered, command: &str) -> String {
        let replies = execute(command, world);
        let [Reply { outcome: Outcome::Failed(failure), .. }] = replies.as_slice() else { panic!("{replies:?}") };
        failure.message.clone()
    }

    #[test]
    fn connections_are_shown_and_their_handles_where_they_are_asked_for() {
        let mut world = world();
        assert_eq!(world.rows("DISPLAY CONN(*)").len(), 2);
        assert_eq!(world.rows("DISPLAY CONN(*) TYPE(HANDLE)").len(), 3);
        assert_eq!(world.rows("DISPLAY CONN(*) TYPE(ALL)").len(), 5);
        let shown = answer(&mut world, "DISPLAY CONN(0000000000000001)");
        for part in ["CONN(0000000000000001)", "USERID(orders)", "APPLTAG(app)", "HANDLES(2)", "SECONDS("] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let shown = answer(&mut world, "DIS CONN(*) TYPE(HANDLE) WHERE(OBJNAME EQ ORDERS)");
        assert!(shown.contains("OUTPUT") && shown.contains("BROWSE") && !shown.contains("REPLIES"), "{shown}");
        assert!(refusal(&mut world, "DISPLAY CONN(0000000000000009)").contains("does not exist"));
    }

    #[test]
    fn a_connection_is_stopped_by_its_number() {
        let mut world = world();
        let done = answer(&mut world, "STOP CONN(0000000000000001)");
        assert!(done.contains("connection 0000000000000001 of user orders at 192.0.2.1:40000 stopped"), "{done}");
        assert!(refusal(&mut world, "STOP CONN(0000000000000001)").contains("does not exist"));
        assert!(refusal(&mut world, "STOP CONN(ORDERS)").contains("is not a connection's number"));
        assert_eq!(world.rows("DISPLAY CONN(*)").len(), 1);
    }
}
