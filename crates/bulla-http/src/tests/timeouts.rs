//! Time-outs, on a clock of their own.

use super::{Host, statuses};
use crate::{Event, Limits, RequestId, Response};
use std::time::Duration;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const ID: RequestId = RequestId(0);
const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits {
        head_within: 10 * SECOND,
        idle_within: 60 * SECOND,
        body_stalls_within: 20 * SECOND,
        body_progress_bytes: 100,
        output_stalls_within: 30 * SECOND,
        ..Limits::default()
    }
}

#[test]
fn a_connection_without_a_request_closes_without_a_word() {
    let mut host = Host::with(limits());
    assert_eq!(host.advance(9 * SECOND), []);
    assert_eq!(host.advance(SECOND), [Event::Closed]);
    assert_eq!(host.output(), "");
    assert_eq!(host.server.poll_timeout(), None);
}

#[test]
fn a_slow_head_is_refused_however_it_trickles() {
    let mut host = Host::with(limits());
    for byte in GET.bytes().take(9) {
        host.feed(&[byte]);
        host.advance(SECOND);
    }
    assert!(!host.server.is_ending());
    host.feed(b"H");
    host.advance(SECOND);
    assert_eq!(statuses(&host.output()), [408]);
    assert!(host.server.is_ending());
}

#[test]
fn a_kept_connection_has_its_own_time() {
    let mut host = Host::answering(limits());
    host.feed(GET.as_bytes());
    // Stamped at the next look at the clock.
    assert_eq!(host.advance(5 * SECOND), []);
    assert_eq!(host.advance(59 * SECOND), []);
    host.feed(b"G");
    assert_eq!(host.advance(9 * SECOND), []);
    host.feed(&GET.as_bytes()[1..]);
    assert_eq!(host.advance(SECOND), []);
    assert_eq!(host.advance(60 * SECOND), [Event::Closed]);
    assert_eq!(statuses(&host.output()), [200, 200]);
}

#[test]
fn who_waits_for_an_answer_is_not_silent() {
    let mut host = Host::with(limits());
    let (id, _) = host.request(GET);
    for _ in 0..100 {
        host.advance(60 * SECOND);
    }
    assert_eq!(host.server.poll_timeout(), None);
    host.server.respond(id, Response::new(204), false);
    assert_eq!(statuses(&host.output()), [204]);
}

#[test]
fn a_body_must_make_progress() {
    let mut host = Host::with(limits());
    host.request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    // Not before it is wanted.
    assert_eq!(host.advance(100 * SECOND), []);
    host.server.go_on(ID);
    host.advance(SECOND);
    for _ in 0..4 {
        host.feed(&[b'a'; 100]);
        assert_eq!(host.advance(19 * SECOND), []);
    }
    // A byte now and then is none.
    for _ in 0..99 {
        host.feed(b"a");
        host.advance(SECOND / 100);
    }
    assert_eq!(host.advance(SECOND), [Event::Aborted { id: ID }]);
    assert_eq!(statuses(&host.output()), [408]);
}

#[test]
fn what_is_not_read_is_not_the_clients_fault() {
    let mut host = Host::with(limits());
    host.request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    host.server.go_on(ID);
    for _ in 0..100 {
        assert_eq!(host.advance(15 * SECOND), []);
        host.server.not_read(host.now);
    }
    assert_eq!(host.advance(20 * SECOND), [Event::Aborted { id: ID }]);
}

#[test]
fn a_client_that_does_not_read_loses_the_connection() {
    let mut host = Host::with(limits());
    let (id, _) = host.request(GET);
    host.server.respond(id, Response::new(200).body("a".repeat(1 << 20)), false);
    host.advance(SECOND);
    for _ in 0..10 {
        host.write(4 << 10);
        assert_eq!(host.advance(29 * SECOND), []);
    }
    // A byte now and then is not reading.
    for _ in 0..100 {
        host.write(1);
        host.advance(SECOND / 100);
    }
    assert_eq!(host.advance(30 * SECOND), [Event::Aborted { id }, Event::Closed]);
    assert_eq!((host.server.output_len(), host.server.is_closed()), (0, true));
}

#[test]
fn a_dropped_body_that_stalls_closes_the_connection() {
    let mut host = Host::with(limits());
    host.request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    host.server.respond(ID, Response::new(403), false);
    assert_eq!(statuses(&host.output()), [403]);
    host.advance(SECOND);
    assert_eq!(host.advance(20 * SECOND), []);
    assert!(host.server.is_ending());
    host.advance(SECOND);
    assert_eq!(host.advance(2 * SECOND), [Event::Closed]);
    assert_eq!(host.output(), "");
}
