//! A disk that is full: clients are sent elsewhere as long as puts would fail, and come back when they would not.

use super::node::Node;
use super::web::{ORDERS, Web, advance, settle, started};
use crate::clock::Clock;
use std::time::Duration;

const PERSISTENT: &str = "ibm-mq-md-persistence: persistent\r\n";
/// Messages are refused before so many are there.
const PUTS_MAX: usize = 10_000;
/// Room on the disk is found within so long.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// The answer to a question, after a tick.
fn asked(web: &mut Web, node: &mut Node, clock: &Clock, method: &str, path: &str, headers: &str) -> String {
    settle(node, &[web], clock);
    clock.advance(Duration::from_millis(250));
    settle(node, &[web], clock);
    web.ask(method, path, headers, "");
    web.answer_of(node, clock)
}

#[test]
fn while_puts_fail_for_want_of_space_the_queue_manager_is_not_ready() {
    let clock = Clock::simulated();
    let mut node = started(&clock);
    let mut web = Web::connect(&mut node, 1);
    let ready = |web: &mut Web, node: &mut Node, headers: &str| asked(web, node, &clock, "GET", "/readyz", headers);
    assert!(ready(&mut web, &mut node, "").ends_with("\r\n\r\nok\n"));
    node.disk().set_full(true);
    let body = "x".repeat(1_000);
    let mut put = 0;
    let refused = loop {
        web.ask("POST", ORDERS, PERSISTENT, &body);
        let answer = web.answer_of(&mut node, &clock);
        if !answer.starts_with("HTTP/1.1 201 ") {
            break answer;
        }
        put += 1;
        assert!(put < PUTS_MAX, "the disk is never full");
    };
    assert!(put > 0 && refused.starts_with("HTTP/1.1 503 "), "{refused}");
    let answer = ready(&mut web, &mut node, "");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"cause\":\"journal-full\""), "{answer}");
    let text = ready(&mut web, &mut node, "Accept: text/plain\r\n");
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("\r\n\r\njournal-full: the journal takes no"), "{text}");
    let alive = asked(&mut web, &mut node, &clock, "GET", "/livez", "");
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
    while put > 0 {
        web.ask("DELETE", ORDERS, "", "");
        let answer = web.answer_of(&mut node, &clock);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        put -= 1;
    }
    web.ask("POST", ORDERS, PERSISTENT, &body);
    let takes = web.answer_of(&mut node, &clock).starts_with("HTTP/1.1 201 ");
    let is_ready = ready(&mut web, &mut node, "").starts_with("HTTP/1.1 200 ");
    assert_eq!(takes, is_ready, "it is ready where it takes a message, and only there");
    // Room on the disk is found by itself.
    node.disk().set_full(false);
    let mut waited = Duration::ZERO;
    while !ready(&mut web, &mut node, "").starts_with("HTTP/1.1 200 ") {
        waited += advance(&mut node, &clock);
        assert!(waited < FOUND_WITHIN, "it is not ready again");
    }
    web.ask("POST", ORDERS, PERSISTENT, &body);
    let answer = web.answer_of(&mut node, &clock);
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}
