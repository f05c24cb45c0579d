//! Rows of DISPLAY: which objects are shown, and what of them.

use super::parse::{Filter, Operator, Statement};
use super::reply::{Cell, Failure, Row};
use super::run::invalid;
use super::table::{Attribute, Key, Kind};

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
