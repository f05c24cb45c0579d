//! CHECK QUEUE and CHECK QMGR in the admin language: what is asked, and the rows that say what was found.

use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, Row};
use super::run::invalid;
use super::table::{Act, Doing, Key};
use bulla_catalog::diagnosis::{DAYS_DEFAULT, Diagnosis};
use bulla_catalog::names::is_user_name;
use std::time::Duration;

/// What is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DoctorQuestion {
    /// The name whose messages are followed; none for the machine and the queue manager as a whole.
    pub queue: Option<String>,
    /// The user whose way it is; none for all users.
    pub user: Option<String>,
    /// Bytes of a payload that should fit; none for any.
    pub bytes: Option<u64>,
    /// What ends within that time is told of.
    pub ahead: Duration,
}

/// Reads the command.
///
/// # Errors
/// No user can have that name.
pub(super) fn question(statement: &Statement) -> Result<DoctorQuestion, Failure> {
    let user = match statement.value(Key::Own("CHECKED USER")) {
        Some(Value::Text(user)) if !is_user_name(user) => {
            return Err(invalid(format_args!("no user can be called '{user}'"), None));
        }
        Some(Value::Text(user)) => Some(user.clone()),
        _ => None,
    };
    let days = match statement.value(Key::Own("CHECKED DAYS")) {
        Some(Value::Number(days)) => *days,
        _ => DAYS_DEFAULT,
    };
    let bytes = match statement.value(Key::Own("CHECKED BYTES")) {
        Some(Value::Number(bytes)) => Some(*bytes),
        _ => None,
    };
    let of_queue = statement.command.act == Act::Does(Doing::CheckQueue);
    let queue = of_queue.then(|| statement.name.stem.clone());
    Ok(DoctorQuestion { queue, user, bytes, ahead: Duration::from_secs(days * 24 * 3600) })
}

/// One row for each thing found.
pub(super) fn rows(found: &[Diagnosis]) -> Vec<Row> {
    found.iter().map(row).collect()
}

fn row(found: &Diagnosis) -> Row {
    let mut row = Row::default();
    row.push("CHECK", Cell::word(found.check.name));
    row.push("RESULT", Cell::word(found.condition.word()));
    for (keyword, text) in [("ABOUT", &found.about), ("CAUSE", &found.cause), ("DETAILS", &found.details)] {
        if !text.is_empty() {
            row.push(keyword, Cell::Text(text.clone()));
        }
    }
    if !found.mend.is_empty() {
        row.push("MEND", Cell::List(found.mend.clone()));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::statements;

    fn asked(text: &str) -> DoctorQuestion {
        question(statements(text)[0].as_ref().unwrap()).unwrap()
    }

    #[test]
    fn a_queue_or_the_machine_is_asked_about_for_one_user_or_for_all() {
        let day = Duration::from_secs(86_400);
        let of = |queue: Option<&str>, user: Option<&str>, days: u32| DoctorQuestion {
            queue: queue.map(str::to_owned),
            user: user.map(str::to_owned),
            bytes: None,
            ahead: day * days,
        };
        assert_eq!(asked("CHECK QUEUE(ORDERS)"), of(Some("ORDERS"), None, 30));
        assert_eq!(asked("CHECK QUEUE(ORDERS) USER('billing') DAYS(7)"), of(Some("ORDERS"), Some("billing"), 7));
        assert_eq!(asked("CHECK QUEUE(ORDERS) BYTES(2048)").bytes, Some(2048));
        assert_eq!(asked("CHECK QMGR"), of(None, None, 30));
        let wrong = question(statements("CHECK QMGR USER('../rings')")[0].as_ref().unwrap()).unwrap_err();
        assert_eq!(wrong.message, "no user can be called '../rings'");
    }
}
