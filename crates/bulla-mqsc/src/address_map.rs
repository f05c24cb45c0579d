//! Addresses of clients in the admin language: SET and DISPLAY ADDRMAP.

use super::limit::is_asked_for;
use super::parse::{Statement, Value};
use super::reply::{Cell, Failure, FailureKind, Row};
use super::run::{fits, invalid, too_many, unknown, wanted};
use super::table::Key;
use bulla_catalog::addresses::{ADDRESS_MAPS_MAX, AddressMaps, MappedTo, is_queue_for, is_topic_for};
use bulla_catalog::{Change, Definitions};

/// MQ's reason code for an object that is there already: another pattern has the same addresses.
const ALREADY_EXISTS: u32 = 4001;

/// What SET ADDRMAP comes to.
///
/// # Errors
/// It contradicts what is defined, or itself.
pub(super) fn set(statement: &Statement, maps: &AddressMaps) -> Result<Change, Failure> {
    let address = statement.name.stem.clone();
    let is_known = maps.get(&address).is_some();
    if statement.says(Key::Action, "REMOVE") {
        return if is_known { Ok(Change::DeleteAddressMap { address }) } else { Err(unknown("address map", &address)) };
    }
    let given = |key| match statement.value(key) {
        Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let to = match (given(Key::MappedQueue), given(Key::MappedTopic)) {
        (Some(queue), None) if is_queue_for(&queue, &address) => MappedTo::Queue(queue),
        (None, Some(topic)) if is_topic_for(&topic, &address) => MappedTo::Topic(topic),
        (Some(name), None) | (None, Some(name)) => {
            let hint = "a * stands for what the address's * stands for; a topic has no wildcards";
            return Err(invalid(format_args!("{address} can't stand for {name:?}"), Some(hint)));
        }
        _ => return Err(invalid("SET ADDRMAP needs one of QUEUE and TOPIC", None)),
    };
    if let Some(other) = maps.ambiguous_with(&address) {
        return Err(Failure {
            kind: FailureKind::Refused,
            reason: Some(ALREADY_EXISTS),
            message: format!("{address} and {other} are of the same length and fit the same addresses"),
            hint: Some("the longest pattern comes first: make one of them longer".into()),
        });
    }
    if !is_known && maps.len() >= ADDRESS_MAPS_MAX {
        return Err(too_many(ADDRESS_MAPS_MAX, "address maps"));
    }
    Ok(Change::SetAddressMap { address, to })
}

/// What came of a change, for messages; none for changes of others.
pub(super) fn done(change: &Change) -> Option<String> {
    match change {
        Change::SetAddressMap { address, .. } => Some(format!("address map {address} set")),
        Change::DeleteAddressMap { address } => Some(format!("address map {address} removed")),
        _ => None,
    }
}

/// An entry's attributes as SET ADDRMAP takes them.
pub(super) fn cell(to: &MappedTo, key: Key) -> Option<Cell> {
    match (key, to) {
        (Key::MappedQueue, MappedTo::Queue(name)) | (Key::MappedTopic, MappedTo::Topic(name)) => {
            Some(Cell::Text(name.clone()))
        }
        _ => None,
    }
}

/// DISPLAY ADDRMAP.
///
/// # Errors
/// There is none of that address; WHERE compares what can't be compared.
pub(super) fn display(statement: &Statement, definitions: &Definitions) -> Result<Vec<Row>, Failure> {
    let asked = statement.name.stem.as_str();
    let mut rows = Vec::new();
    for (address, to) in definitions.address_maps.iter().filter(|(address, _)| is_asked_for(asked, address)) {
        if let Some(filter) = &statement.filter
            && !fits(filter, cell(to, filter.attribute.key))?
        {
            continue;
        }
        let mut row = Row::default();
        row.push("ADDRMAP", Cell::word(address));
        for attribute in wanted(statement, false) {
            if let Some(cell) = cell(to, attribute.key) {
                row.push(attribute.keyword, cell);
            }
        }
        rows.push(row);
    }
    if rows.is_empty() && !asked.ends_with('*') {
        return Err(unknown("address map", asked));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use crate::difference;
    use crate::execute;
    use crate::objects::AsText;
    use crate::reply::{Outcome, Reply};
    use crate::run::Administered;
    use crate::transcripts::Paper;
    use bulla_catalog::Definitions;
    use std::path::Path;

    fn answers(commands: &str, paper: &mut Paper) -> String {
        execute(commands, paper).iter().map(Reply::text).collect()
    }

    #[test]
    fn address_maps_are_set_shown_kept_and_removed() {
        let mut paper = Paper::new();
        answers("SET ADDRMAP('test-queue') QUEUE('TEST.QUEUE'); SET ADDRMAP('queue://*') QUEUE('*')", &mut paper);
        answers("SET ADDRMAP('prices/*') TOPIC('market/*'); SET ADDRMAP('test-queue') QUEUE('OTHER')", &mut paper);
        let kept = paper.definitions().text();
        assert!(kept.contains("SET ADDRMAP('test-queue') QUEUE('OTHER')"), "{kept}");
        let read = Definitions::from_commands(&kept, Path::new("x"), Definitions::bare(paper.definitions())).unwrap();
        assert_eq!(&read, paper.definitions());
        let shown = answers("DISPLAY ADDRMAP('*')", &mut paper);
        assert!(shown.contains("ADDRMAP(prices/*)") && shown.contains("TOPIC(market/*)"), "{shown}");
        let shown = answers("DIS ADDRMAP('*') WHERE(QUEUE EQ 'OTHER')", &mut paper);
        assert!(shown.contains("ADDRMAP(test-queue)") && !shown.contains("prices"), "{shown}");
        let steps = difference::steps(paper.definitions(), &Definitions::bare(paper.definitions()));
        let removed = |step: &difference::Step| step.command == "SET ADDRMAP('queue://*') ACTION(REMOVE)";
        assert!(steps.iter().any(removed), "{steps:?}");
        answers("SET ADDRMAP('test-queue') ACTION(REMOVE)", &mut paper);
        assert!(paper.definitions().address_maps.get("test-queue").is_none());
    }

    #[test]
    fn what_can_not_be_an_address_map_is_refused() {
        let mut paper = Paper::new();
        answers("SET ADDRMAP('a*z') QUEUE('A')", &mut paper);
        for (command, why) in [
            ("SET ADDRMAP('az*') QUEUE('B')", "fit the same addresses"),
            ("SET ADDRMAP('x')", "needs one of QUEUE and TOPIC"),
            ("SET ADDRMAP('x') QUEUE('A') TOPIC('a')", "needs one of QUEUE and TOPIC"),
            ("SET ADDRMAP('x') QUEUE('A.*')", "can't stand for"),
            ("SET ADDRMAP('x*') TOPIC('a/#')", "can't stand for"),
            ("SET ADDRMAP('x@QM') QUEUE('A')", "is not an address"),
            ("SET ADDRMAP('x') ACTION(REMOVE)", "does not exist"),
        ] {
            let replies = execute(command, &mut paper);
            let [Reply { outcome: Outcome::Failed(failure), .. }] = replies.as_slice() else { panic!("{replies:?}") };
            assert!(failure.message.contains(why), "{command}: {failure}");
        }
    }
}
