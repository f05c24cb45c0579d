//! Gets over HTTP that wait: a put ends them at once, and their time when it is over.

use super::web::{ORDERS, Web, settle, started};
use crate::clock::Clock;
use std::time::Duration;

/// A time at which no tick is.
const WAIT: Duration = Duration::from_millis(1010);

#[test]
fn a_put_ends_the_wait_of_a_get_before_any_time_goes_by() {
    for method in ["DELETE", "GET"] {
        let clock = Clock::simulated();
        let mut node = started(&clock);
        let (mut gets, mut puts) = (Web::connect(&mut node, 1), Web::connect(&mut node, 2));
        gets.ask(method, &format!("{ORDERS}?wait=60000"), "", "");
        settle(&mut node, &[&gets, &puts], &clock);
        assert_eq!(gets.answer(), "", "{method}: there is nothing to get");
        let before = clock.now();
        puts.ask("POST", ORDERS, "", "an order");
        settle(&mut node, &[&gets, &puts], &clock);
        assert!(puts.answer().starts_with("HTTP/1.1 201 "), "{method}");
        let answer = gets.answer();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("an order"), "{method}: {answer}");
        assert_eq!(clock.now(), before);
    }
}

#[test]
fn a_wait_for_nothing_ends_at_its_time_and_not_at_the_next_tick() {
    let clock = Clock::simulated();
    let mut node = started(&clock);
    let (mut gets, mut puts) = (Web::connect(&mut node, 1), Web::connect(&mut node, 2));
    // One that ended early leaves nothing behind that ends the next one on its connection.
    gets.ask("DELETE", &format!("{ORDERS}?wait=500"), "", "");
    settle(&mut node, &[&gets, &puts], &clock);
    puts.ask("POST", ORDERS, "", "an order");
    settle(&mut node, &[&gets, &puts], &clock);
    assert!(gets.answer().ends_with("an order"));
    let began = clock.now();
    gets.ask("DELETE", &format!("{ORDERS}?wait={}", WAIT.as_millis()), "", "");
    let answer = gets.answer_of(&mut node, &clock);
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert_eq!(clock.since(began), WAIT);
}
