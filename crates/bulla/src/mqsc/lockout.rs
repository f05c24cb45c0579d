//! Lockouts in the admin language: DISPLAY and RESET LOCKOUT.

use super::limit::is_asked_for;
use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Outcome, Row};
use super::run::{Administered, fits, invalid, wanted};
use super::table::Key;
use crate::catalog::lockouts::{InForce, Whose};
use std::net::IpAddr;

/// Stands in the place of the user where it is about everybody at an address.
const EVERYBODY: &str = "*";

/// DISPLAY LOCKOUT.
///
/// # Errors
/// WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, lockouts: &[InForce]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for lockout in lockouts.iter().filter(|lockout| is_meant(statement, None, lockout)) {
        if let Some(filter) = &statement.filter
            && !fits(filter, cell(lockout, filter.attribute.key))?
        {
            continue;
        }
        let mut row = Row::default();
        row.push("LOCKOUT", Cell::word(name(lockout)));
        for attribute in wanted(statement, false) {
            if let Some(cell) = cell(lockout, attribute.key) {
                row.push(attribute.keyword, cell);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// RESET LOCKOUT.
///
/// # Errors
/// What is given as an address is none.
pub(super) fn reset(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let address = match statement.value(Key::FromAddress) {
        Some(Value::Text(text)) => Some(text.parse::<IpAddr>().map_err(|_| {
            invalid(format_args!("{text} is not an address"), Some("as DISPLAY LOCKOUT shows it, without *"))
        })?),
        _ => None,
    };
    let ended = target.end_lockouts(&|lockout| is_meant(statement, address, lockout));
    let noun = if ended == 1 { "lockout" } else { "lockouts" };
    Ok(Outcome::Done { message: format!("{ended} {noun} ended"), warnings: Vec::new() })
}

fn is_meant(statement: &Statement, address: Option<IpAddr>, lockout: &InForce) -> bool {
    is_asked_for(&statement.name.stem, name(lockout)) && (address.is_none() || address == lockout.address)
}

fn name(lockout: &InForce) -> &str {
    match lockout.whose {
        Whose::Address => EVERYBODY,
        Whose::Pair | Whose::User => lockout.user.as_deref().unwrap_or_default(),
    }
}

fn cell(lockout: &InForce, key: Key) -> Option<Cell> {
    Some(match key {
        Key::LockoutKind => Cell::word(match lockout.whose {
            Whose::Pair => "USER",
            Whose::Address => "ADDRESS",
            Whose::User => "GUARD",
        }),
        Key::LockoutAddress => Cell::Text(lockout.address.map(|address| address.to_string()).unwrap_or_default()),
        Key::LockoutSeconds => Cell::Number(lockout.left.as_secs_f64().ceil() as u64),
        Key::LockoutCount => Cell::Number(lockout.lockouts.into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::execute;
    use crate::mqsc::metered::Metered;
    use crate::mqsc::reply::Reply;
    use crate::sign_in::lockout::{Lockouts, PAIR_FAILURES_MAX};
    use std::net::Ipv4Addr;
    use std::time::Instant;

    const DESK: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn world(locked: &[(&str, IpAddr)]) -> Metered {
        let (mut lockouts, now) = (Lockouts::default(), Instant::now());
        for (user, address) in locked {
            for _ in 0..PAIR_FAILURES_MAX {
                lockouts.failed(user, *address, now);
            }
        }
        Metered { lockouts, ..Metered::default() }
    }

    fn answer(world: &mut Metered, command: &str) -> String {
        execute(command, world).iter().map(Reply::text).collect()
    }

    #[test]
    fn who_is_locked_out_is_shown_and_let_in_again() {
        let mut world = world(&[("orders", DESK), ("orders", HOME), ("cards", HOME)]);
        let rows = world.rows("DISPLAY LOCKOUT('orders')");
        assert_eq!(rows.len(), 2, "{rows:?}");
        let shown = answer(&mut world, "DIS LOCKOUT('*') WHERE(ADDRESS EQ '192.0.2.1')");
        for part in ["LOCKOUT(orders)", "TYPE(USER)", "ADDRESS(192.0.2.1)", "SECONDS(10)", "COUNT(1)"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let done = answer(&mut world, "RESET LOCKOUT('orders') ADDRESS('192.0.2.1')");
        assert!(done.contains("1 lockout ended"), "{done}");
        assert!(!world.lockouts.is_locked("orders", DESK, Instant::now()));
        assert!(world.lockouts.is_locked("orders", HOME, Instant::now()));
        assert!(answer(&mut world, "RESET LOCKOUT('*')").contains("2 lockouts ended"));
        assert!(world.rows("DISPLAY LOCKOUT('*')").is_empty());
        assert!(answer(&mut world, "RESET LOCKOUT('*')").contains("0 lockouts ended"));
    }

    #[test]
    fn what_is_about_an_address_is_for_everybody() {
        let users: Vec<String> = (0..5).map(|number| format!("u{number}")).collect();
        let mut world = world(&users.iter().map(|user| (user.as_str(), DESK)).collect::<Vec<_>>());
        let shown = answer(&mut world, "DISPLAY LOCKOUT('*') WHERE(TYPE EQ ADDRESS)");
        assert!(shown.contains("LOCKOUT(*)"), "{shown}");
        let refused = execute("RESET LOCKOUT('*') ADDRESS('desk')", &mut world);
        let [Reply { outcome: Outcome::Failed(failure), .. }] = refused.as_slice() else { panic!("{refused:?}") };
        assert_eq!(failure.message, "desk is not an address");
        assert!(world.lockouts.is_locked("new", DESK, Instant::now()));
        answer(&mut world, "RESET LOCKOUT('*') ADDRESS('192.0.2.1')");
        assert!(!world.lockouts.is_locked("new", DESK, Instant::now()));
    }

    #[test]
    fn what_can_be_no_name_may_be_a_password_and_is_not_shown() {
        let mut world = world(&[("my secret/1", DESK)]);
        let shown = answer(&mut world, "DISPLAY LOCKOUT('*')");
        assert!(shown.contains("TYPE(USER)") && !shown.contains("secret"), "{shown}");
    }
}
