//! Log-ins over HTTP in the admin language: DISPLAY and STOP LOGIN.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, FailureKind, Outcome, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::Administered;
use super::table::Key;
use bulla_catalog::calendar;
use bulla_catalog::log_ins::LoggedIn;

/// DISPLAY LOGIN.
///
/// # Errors
/// WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, log_ins: &[LoggedIn]) -> Result<Vec<Row>, Failure> {
    let wanted_ones = log_ins.iter().filter(|one| statement.name.fits(&one.user));
    let candidates = wanted_ones.map(|one| -> Candidate<'_> { (&one.user, None, Box::new(|key| cell(one, key))) });
    rows(statement, "LOGIN", candidates.collect(), &wanted(statement, false))
}

fn cell(one: &LoggedIn, key: Key) -> Option<Cell> {
    let moment = |ms: u64| Cell::Text(calendar::moment(ms));
    Some(match key {
        Key::Own("NUMBER") => Cell::Number(one.number),
        Key::Own("SINCE") => moment(one.since_ms),
        Key::Own("USED") => moment(one.used_ms),
        Key::Own("UNTIL") => moment(one.until_ms),
        Key::ConnectionAddress => Cell::Text(one.address.map(|address| address.to_string()).unwrap_or_default()),
        Key::Own("TLS") => Cell::word(if one.tls { "YES" } else { "NO" }),
        _ => return None,
    })
}

/// STOP LOGIN.
///
/// # Errors
/// There is no log-in of that number.
pub(super) fn stop(statement: &Statement, target: &mut dyn Administered) -> Result<Outcome, Failure> {
    let number = match statement.value(Key::Own("NUMBER")) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    let is_meant = |user: &str, of: u64| statement.name.fits(user) && number.is_none_or(|number| number == of);
    let ended = target.end_log_ins(&is_meant);
    if let (0, Some(number)) = (ended, number) {
        let message = format!("log-in {number} of {} does not exist", statement.name);
        let hint = Some("DISPLAY LOGIN('*') shows them".into());
        return Err(Failure { kind: FailureKind::Refused, reason: Some(2085), message, hint });
    }
    let noun = if ended == 1 { "log-in" } else { "log-ins" };
    Ok(Outcome::Done { message: format!("{ended} {noun} ended"), warnings: Vec::new() })
}

#[cfg(test)]
mod tests {
    use crate::execute;
    use crate::metered::Metered;
    use crate::reply::{Outcome, Reply};
    use bulla_catalog::log_ins::LoggedIn;
    use std::net::{IpAddr, Ipv4Addr};

    fn world() -> Metered {
        let one = |user: &str, number: u64| LoggedIn {
            user: user.into(),
            number,
            since_ms: 0,
            used_ms: 61_000,
            until_ms: 1_861_000,
            address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
            tls: true,
        };
        Metered { log_ins: vec![one("billing", 3), one("orders", 1), one("orders", 2)], ..Metered::default() }
    }

    fn answer(world: &mut Metered, command: &str) -> String {
        execute(command, world).iter().map(Reply::text).collect()
    }

    #[test]
    fn log_ins_are_shown_by_user() {
        let mut world = world();
        assert_eq!(world.rows("DISPLAY LOGIN('*')").len(), 3);
        let shown = answer(&mut world, "DISPLAY LOGIN('orders') WHERE(NUMBER EQ 2)");
        for part in ["LOGIN(orders)", "NUMBER(2)", "USED(1970-01-01 00:01:01", "CONNAME(192.0.2.1)", "TLS(YES)"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(world.rows("DISPLAY LOGIN('nobody')").len(), 0);
    }

    #[test]
    fn one_log_in_or_all_of_a_user_are_ended() {
        let mut world = world();
        assert!(answer(&mut world, "STOP LOGIN('orders') NUMBER(2)").contains("1 log-in ended"));
        let replies = execute("STOP LOGIN('orders') NUMBER(3)", &mut world);
        let [Reply { outcome: Outcome::Failed(failure), .. }] = replies.as_slice() else { panic!("{replies:?}") };
        assert!(failure.message.contains("log-in 3 of orders does not exist"), "it is another user's");
        assert!(answer(&mut world, "STOP LOGIN('orders')").contains("1 log-in ended"));
        assert!(answer(&mut world, "STOP LOGIN('orders')").contains("0 log-ins ended"));
        assert_eq!(world.rows("DISPLAY LOGIN('*')").len(), 1);
    }
}
