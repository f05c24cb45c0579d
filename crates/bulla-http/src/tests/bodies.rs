//! Bodies: counted, in chunks, awaited, answered early.

use super::{Host, statuses};
use crate::limits::{CHUNK_EXTENSION_BYTES_MAX, CHUNK_LINE_BYTES_MAX, DROPPED_BYTES_MAX, LINGER_BYTES_MAX};
use crate::{BodyLen, Event, Limits, RequestId, Response};

const ID: RequestId = RequestId(0);
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

fn post(lines: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}")
}

/// The body in these events, which end with the end of its request.
fn body(events: &[Event]) -> Vec<u8> {
    assert_eq!(events.last(), Some(&Event::End { id: ID }));
    let pieces = events.iter().filter_map(|event| match event {
        Event::Body { id: ID, bytes } => Some(bytes),
        _ => None,
    });
    pieces.flatten().copied().collect()
}

#[test]
fn a_body_comes_when_it_is_wanted() {
    let mut host = Host::new();
    let (id, head) = host.request(&post("Content-Length: 5\r\n", "abc"));
    assert_eq!((id, head.body), (ID, BodyLen::Counted(5)));
    assert!(!host.server.wants_input());
    assert_eq!((host.events(), host.server.in_progress()), (vec![], 3));
    host.server.go_on(ID);
    assert!(host.server.wants_input());
    assert_eq!((host.events(), host.server.in_progress()), (vec![], 3));
    assert_eq!(body(&host.feed(b"de")), b"abcde");
    assert_eq!((host.server.in_progress(), host.output()), (0, String::new()));
}

#[test]
fn chunks_become_one_body() {
    let mut host = Host::new();
    host.request(&post("Transfer-Encoding: chunked\r\n", "3;x=y\r\nabc\r\n"));
    host.server.go_on(ID);
    assert_eq!(host.events(), []);
    assert_eq!(body(&host.feed(b"2\r\nde\r\n0\r\nChecksum: 1\r\n\r\n")), b"abcde");
}

#[test]
fn an_empty_body_is_none() {
    for lines in ["", "Content-Length: 0\r\n"] {
        let mut host = Host::new();
        let events = host.feed(post(lines, "").as_bytes());
        assert!(matches!(events[..], [Event::Request { .. }, Event::End { id: ID }]), "{events:?}");
    }
}

#[test]
fn large_bodies_come_in_large_pieces() {
    let mut host = Host::new();
    host.request(&post("Content-Length: 1000000\r\n", ""));
    host.server.go_on(ID);
    let mut events = Vec::new();
    for _ in 0..100_000 {
        events.extend(host.feed(b"0123456789"));
    }
    assert_eq!(body(&events).len(), 1_000_000);
    assert!(events.len() < 64, "{}", events.len());
    for event in &events[..events.len() - 2] {
        assert!(matches!(event, Event::Body { bytes, .. } if bytes.len() >= 16 << 10));
    }
}

#[test]
fn a_body_of_chunks_has_the_same_limit_as_a_counted_one() {
    let limits = || Limits { body_bytes_max: 10, ..Limits::default() };
    for (request, status) in [
        (post("Content-Length: 10\r\n", "0123456789"), 200),
        (post("Content-Length: 11\r\n", "0123456789a"), 413),
        (post("Transfer-Encoding: chunked\r\n", "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), 200),
        (post("Transfer-Encoding: chunked\r\n", "5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n"), 413),
    ] {
        let mut host = Host::answering(limits());
        host.feed(request.as_bytes());
        assert_eq!(statuses(&host.output()), [status], "{request}");
    }
}

#[test]
fn chunk_lines_and_trailers_are_bounded() {
    let line = |bytes: usize| format!("1;{}\r\na\r\n", "x".repeat(bytes - 2));
    let many = line(CHUNK_LINE_BYTES_MAX);
    let per_line = CHUNK_LINE_BYTES_MAX - 2;
    let fits = CHUNK_EXTENSION_BYTES_MAX / per_line;
    let zeros = |count: usize| format!("{}\r\na\r\n0\r\n\r\n", "0".repeat(count - 1) + "1");
    let trailer = |bytes: usize| format!("0\r\nX:{}\r\n\r\n", "a".repeat(bytes - 6));
    for (chunks, status) in [
        (format!("{many}0\r\n\r\n"), 200),
        (format!("{}0\r\n\r\n", line(CHUNK_LINE_BYTES_MAX + 1)), 400),
        (format!("{}0\r\n\r\n", many.repeat(fits)), 200),
        (format!("{}0\r\n\r\n", many.repeat(fits + 1)), 400),
        (zeros(CHUNK_LINE_BYTES_MAX), 200),
        (zeros(CHUNK_LINE_BYTES_MAX + 1), 400),
        (trailer(500), 200),
        (trailer(501), 431),
    ] {
        let mut host = Host::answering(Limits { head_bytes_max: 500, ..Limits::default() });
        host.feed(post("Transfer-Encoding: chunked\r\n", &chunks).as_bytes());
        assert_eq!(statuses(&host.output()), [status], "{chunks}");
    }
}

#[test]
fn a_client_that_waits_is_told_to_go_on() {
    let mut host = Host::new();
    let (_, head) = host.request(&post("Expect: 100-continue\r\nContent-Length: 3\r\n", ""));
    assert!(head.expects_continue);
    assert_eq!(host.output(), "");
    host.server.go_on(ID);
    assert_eq!(host.output(), "HTTP/1.1 100 Continue\r\n\r\n");
    host.server.go_on(ID);
    assert_eq!(host.output(), "");
    assert_eq!(body(&host.feed(b"abc")), b"abc");
}

#[test]
fn a_client_that_did_not_wait_is_not_told() {
    let mut host = Host::new();
    host.request(&post("Expect: 100-continue\r\nContent-Length: 3\r\n", "a"));
    host.server.go_on(ID);
    assert_eq!(host.output(), "");
    // Nor is one that has nothing to send, or does not know the word.
    let (_, head) = Host::new().request(&post("Expect: 100-continue\r\n", ""));
    assert!(!head.expects_continue);
    let (_, head) = Host::new().request("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert!(!head.expects_continue);
}

#[test]
fn going_on_comes_behind_the_answers_before_it() {
    let mut host = Host::new();
    host.feed(format!("{NEXT}{}", post("Expect: 100-continue\r\nContent-Length: 3\r\n", "")).as_bytes());
    host.server.go_on(RequestId(1));
    assert_eq!(host.output(), "");
    host.server.respond(ID, Response::new(204), false);
    assert_eq!(host.output(), "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
}

#[test]
fn a_waiting_client_that_is_refused_need_not_send_its_body() {
    let mut host = Host::new();
    host.request(&post("Expect: 100-continue\r\nContent-Length: 3\r\n", ""));
    host.server.respond(ID, Response::new(401), false);
    // It may send the body or another request: no one can know.
    let output = host.output();
    assert!(output.starts_with("HTTP/1.1 401 ") && output.contains("connection: close"), "{output}");
    assert_eq!(host.feed(NEXT.as_bytes()), [Event::Written { id: ID }]);
}

#[test]
fn the_rest_of_a_small_body_is_thrown_away() {
    for (lines, rest) in [("Content-Length: 5\r\n", "cde"), ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n")]
    {
        for goes_on in [false, true] {
            let mut host = Host::new();
            host.request(&post(lines, if rest == "cde" { "ab" } else { "" }));
            if goes_on {
                host.server.go_on(ID);
            }
            host.server.respond(ID, Response::new(403), false);
            assert!(host.server.wants_input());
            let output = host.output();
            assert!(output.starts_with("HTTP/1.1 403 ") && !output.contains("close"), "{output}");
            let events = host.feed(format!("{rest}{NEXT}").as_bytes());
            assert!(
                matches!(&events[..], [Event::Written { id: ID }, Event::Request { head, .. }, Event::End { .. }]
                    if head.target.as_str() == "/next"),
                "{events:?}"
            );
        }
    }
}

#[test]
fn the_rest_of_a_large_body_closes_the_connection() {
    let mut host = Host::new();
    host.request(&post(&format!("Content-Length: {}\r\n", DROPPED_BYTES_MAX + 1), ""));
    host.server.respond(ID, Response::new(403), false);
    assert!(host.output().contains("connection: close"));
    assert!(host.server.is_ending() && !host.server.is_closed() && host.server.wants_input());
    // In chunks it shows later.
    let mut host = Host::new();
    host.request(&post("Transfer-Encoding: chunked\r\n", ""));
    host.server.respond(ID, Response::new(403), false);
    assert!(!host.output().contains("connection: close"));
    let size = DROPPED_BYTES_MAX as usize + 1;
    host.feed(format!("{size:x}\r\n{}", "a".repeat(size)).as_bytes());
    assert!(host.server.is_ending() && !host.server.is_closed());
    assert_eq!(host.feed(NEXT.as_bytes()), []);
}

#[test]
fn a_client_that_still_sends_may_read_its_answer_first() {
    let mut host = Host::new();
    host.request(&post("Content-Length: 3000000\r\n", ""));
    host.server.respond(ID, Response::new(413), true);
    host.output();
    assert_eq!(host.events(), [Event::Written { id: ID }]);
    let mut sent = 0;
    while !host.server.is_closed() {
        assert!(host.server.wants_input());
        host.feed(&[b'a'; 1000]);
        sent += 1000;
        assert_eq!(host.server.in_progress(), 0);
    }
    assert!((LINGER_BYTES_MAX..LINGER_BYTES_MAX + 2000).contains(&sent), "{sent}");
    // One that sends nothing has its time.
    let mut host = Host::new();
    host.request(&post("Content-Length: 3000000\r\n", ""));
    host.server.respond(ID, Response::new(413), true);
    host.output();
    let within = Limits::default().linger_within;
    assert_eq!(host.advance(within / 2), [Event::Written { id: ID }]);
    assert_eq!(host.advance(within / 2), []);
    assert_eq!(host.advance(within), [Event::Closed]);
}

#[test]
fn a_body_whose_framing_breaks_is_aborted_and_refused() {
    let mut host = Host::new();
    host.request(&post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n"));
    host.server.go_on(ID);
    assert_eq!(host.feed(b"zz\r\n"), [Event::Aborted { id: ID }]);
    // Its answer comes too late.
    host.server.respond(ID, Response::new(201), false);
    assert_eq!(statuses(&host.output()), [400]);
    assert_eq!(host.events(), []);
    // One that was answered before has its answer.
    let mut host = Host::new();
    host.request(&post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n"));
    host.server.respond(ID, Response::new(403), false);
    host.feed(b"zz\r\n");
    assert_eq!(statuses(&host.output()), [403]);
    assert_eq!(host.events(), [Event::Written { id: ID }]);
    assert!(host.server.is_ending());
}
