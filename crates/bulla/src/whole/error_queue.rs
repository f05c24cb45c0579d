//! An error queue that is an alias.

use super::caused::{client, harness, message};
use crate::admin;
use crate::authority::Right;
use crate::catalog::system_queues::ERROR_QUEUE;
use crate::mqsc::reply::{Cell, Outcome, Reply, Row};
use crate::whole::harness::{Harness, PATIENCE};
use bulla_amqp::types::Error;
use bulla_amqp::{DeliveryState, Symbol};

fn command(harness: &Harness, text: &str) -> Outcome {
    admin::request(harness.path(), text).unwrap().remove(0).outcome
}

#[track_caller]
fn done(harness: &Harness, text: &str) -> String {
    match command(harness, text) {
        Outcome::Done { message, .. } => message,
        other => panic!("{text}: {other:?}"),
    }
}

#[track_caller]
fn rows(harness: &Harness, text: &str) -> Vec<Row> {
    match command(harness, text) {
        Outcome::Rows(rows) => rows,
        other => panic!("{text}: {other:?}"),
    }
}

fn cell<'a>(row: &'a Row, keyword: &str) -> &'a Cell {
    &row.cells.iter().find(|(known, _)| known == keyword).unwrap().1
}

fn texts(row: &Row, keyword: &str) -> Vec<String> {
    match cell(row, keyword) {
        Cell::Text(text) => vec![text.clone()],
        Cell::List(list) => list.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_error_queue_may_be_an_alias() {
    let records = [("alice", "A", Right::Put), ("bob", "A", Right::Get)];
    let harness = harness(&["A", "MY.ERRORS"], &["alice", "bob"], &records);
    let delete = format!("DELETE QLOCAL({ERROR_QUEUE})");
    for alone in [delete.clone(), format!("BEGIN UNIT; {delete}; DEFINE QLOCAL(OTHER)")] {
        let replies = admin::request(harness.path(), &alone).unwrap();
        let refused =
            |reply: &Reply| matches!(&reply.outcome, Outcome::Failed(failure) if failure.reason == Some(2042));
        assert!(replies.iter().any(refused), "{alone}: {replies:?}");
    }
    let unit = format!("BEGIN UNIT; {delete}; DEFINE QALIAS({ERROR_QUEUE}) TARGET(MY.ERRORS)");
    let replies = admin::request(harness.path(), &unit).unwrap();
    assert!(replies.iter().all(|reply| reply.exit_code() == 0), "{replies:?}");
    let (mut alice, mut bob) = (client(&harness, "alice"), client(&harness, "bob"));
    let to = alice.sender("A", false).unwrap().link;
    alice.put(to, message("", &[], &[]), PATIENCE).unwrap();
    let from = bob.receiver("A", false, false).unwrap().link;
    let delivery = bob.get(from, Some(PATIENCE)).unwrap().unwrap();
    let condition = Symbol::from_static("bulla:defective");
    let defective = Error { condition, description: Some("tampered".into()), info: Vec::new() };
    bob.settle(&delivery, DeliveryState::Rejected(Some(Box::new(defective)))).unwrap();
    // It counts as soon as it is put, and is shown when the journal has synced it.
    let display = format!("DISPLAY DEADMSG({ERROR_QUEUE}) DESTQ CAUSE");
    harness.until("it is quarantined", |harness| !rows(harness, &display).is_empty());
    let shown = rows(&harness, &display);
    assert_eq!(
        (texts(&shown[0], "DESTQ"), texts(&shown[0], "CAUSE")),
        (vec!["A".into()], vec!["reported-by-client".into()])
    );
    assert!(done(&harness, &format!("REPLAY QLOCAL({ERROR_QUEUE})")).starts_with("1 "));
    assert_eq!((harness.depth("A"), harness.depth("MY.ERRORS")), (1, 0));
}
