//! Lockouts in the admin language: DISPLAY and RESET LOCKOUT.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Outcome, Row};
use super::rows::{fits, wanted};
use super::run::{Administered, invalid};
use super::table::Key;
use bulla_catalog::lockouts::{InForce, Whose};
use std::net::IpAddr;

/// Stands in the place of the user where the lockout is about all users at an address.
const ALL_USERS: &str = "*";

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
    statement.name.fits(name(lockout)) && (address.is_none() || address == lockout.address)
}

fn name(lockout: &InForce) -> &str {
    match lockout.whose {
        Whose::Address => ALL_USERS,
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
