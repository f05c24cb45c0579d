//! Answers: how they look, in which order they go out, and what becomes of the connection.

use super::{Host, statuses};
use crate::{Event, HeaderLines, HeaderValue, Limits, RequestId, Response};
use bytes::Bytes;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn answer_to(request: &str, response: Response) -> String {
    let mut host = Host::new();
    let (id, _) = host.request(request);
    host.server.respond(id, response, false);
    host.output()
}

#[test]
fn an_answer_has_its_length() {
    let text = || HeaderValue::from_static("text/plain");
    for (response, want) in [
        (Response::new(200), "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        (Response::new(200).body("abc"), "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"),
        (
            Response::new(201).with("content-type", text()).with("x", 17.into()).body(String::from("é")),
            "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\nx: 17\r\ncontent-length: 2\r\n\r\né",
        ),
        (
            Response::new(404).body(vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")]),
            "HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nabc",
        ),
        // No body can be where none may be.
        (Response::new(204).body("abc"), "HTTP/1.1 204 No Content\r\n\r\n"),
        (Response::new(304).body("abc"), "HTTP/1.1 304 Not Modified\r\n\r\n"),
        (Response::new(599), "HTTP/1.1 599 \r\ncontent-length: 0\r\n\r\n"),
        // What is no final status would never end.
        (Response::new(100), "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"),
        // The machine's own headers are left out.
        (
            Response::new(200)
                .with("Content-Length", 9.into())
                .with("connection", text())
                .with("Transfer-Encoding", text()),
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        assert_eq!(answer_to(GET, response), want);
    }
}

#[test]
fn head_has_the_length_and_no_body() {
    let request = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(answer_to(request, Response::new(200).body("abc")), "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n");
}

#[test]
fn lines_of_every_answer_are_in_refusals_too() {
    let lines = HeaderLines::new(&[("strict-transport-security", HeaderValue::from_static("max-age=1"))]);
    for (request, status) in [(GET, 204), ("nonsense\r\n\r\n", 400)] {
        let mut host = Host::new();
        host.server.set_always(lines.clone());
        for event in host.feed(request.as_bytes()) {
            if let Event::End { id } = event {
                host.server.respond(id, Response::new(204), false);
            }
        }
        let output = host.output();
        assert_eq!(statuses(&output), [status]);
        assert!(output.contains("\r\nstrict-transport-security: max-age=1\r\n"), "{output}");
    }
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let mut host = Host::new();
    host.feed(b"GET / HTTP/1.1\nHost: a\r\n\r\n");
    assert_eq!(
        host.output(),
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 63\r\n\
         connection: close\r\n\r\n400 Bad Request: a line feed without a carriage return\n"
            .replace("length: 63", "length: 55")
    );
}

#[test]
fn answers_go_out_in_the_order_of_requests() {
    let mut host = Host::new();
    host.feed(GET.repeat(4).as_bytes());
    let answer = |host: &mut Host, number: u64| {
        host.server.respond(RequestId(number), Response::new(200 + number as u16), false);
        statuses(&host.output())
    };
    assert_eq!(answer(&mut host, 2), []);
    assert_eq!(answer(&mut host, 1), []);
    assert_eq!(answer(&mut host, 0), [200, 201, 202]);
    let written: Vec<_> = (0..3).map(|number| Event::Written { id: RequestId(number) }).collect();
    assert_eq!(host.events(), written);
    // A second answer is none.
    assert_eq!(answer(&mut host, 0), []);
    assert_eq!(answer(&mut host, 3), [203]);
}

#[test]
fn written_is_told_when_the_last_byte_went_out() {
    let mut host = Host::new();
    host.feed(GET.repeat(2).as_bytes());
    for id in [RequestId(0), RequestId(1)] {
        host.server.respond(id, Response::new(200).body("abc"), false);
    }
    host.events();
    let each = host.server.output_len() / 2;
    host.write(each - 1);
    assert_eq!(host.events(), []);
    host.write(1);
    assert_eq!(host.events(), [Event::Written { id: RequestId(0) }]);
    host.write(usize::MAX);
    assert_eq!(host.events(), [Event::Written { id: RequestId(1) }]);
}

#[test]
fn what_is_pipelined_beyond_the_bound_waits() {
    let mut host = Host::with(Limits { pipelined_max: 2, ..Limits::default() });
    let requests = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Request { .. })).count();
    assert_eq!(requests(&host.feed(GET.repeat(5).as_bytes())), 2);
    assert!(!host.server.wants_input());
    assert_eq!(host.server.in_progress(), 3 * GET.len() as u64);
    for (number, left) in [(0, 2), (1, 1), (2, 0)] {
        host.server.respond(RequestId(number), Response::new(204), false);
        assert_eq!(requests(&host.events()), 1);
        assert_eq!(host.server.in_progress(), left * GET.len() as u64);
    }
    // Nothing waits: a client that hangs up is noticed.
    assert!(host.server.wants_input());
    assert_eq!(requests(&host.feed(GET.as_bytes())), 0);
    assert!(!host.server.wants_input());
}

#[test]
fn nothing_is_read_while_answers_pile_up() {
    let mut host = Host::with(Limits { output_bytes_max: 1_000, ..Limits::default() });
    let (id, _) = host.request(GET);
    host.server.respond(id, Response::new(200).body("a".repeat(2_000)), false);
    assert!(!host.server.wants_input());
    assert_eq!(host.feed(GET.as_bytes()), []);
    host.write(1_500);
    let events = host.events();
    assert!(matches!(events[..], [Event::Request { .. }, Event::End { .. }]), "{events:?}");
}

#[test]
fn who_wants_the_connection_closed_has_it_closed() {
    for (request, closes, keeps) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, None),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, Some("close")),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false, Some("close")),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n", false, Some("close")),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n\r\n", false, Some("close")),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", false, None),
        ("GET / HTTP/1.0\r\n\r\n", false, Some("close")),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", false, Some("keep-alive")),
        ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false, Some("close")),
    ] {
        let mut host = Host::new();
        let (id, _) = host.request(request);
        host.server.respond(id, Response::new(204), closes);
        let line = keeps.map(|word| format!("connection: {word}\r\n")).unwrap_or_default();
        assert_eq!(host.output(), format!("HTTP/1.1 204 No Content\r\n{line}\r\n"), "{request}");
        assert_eq!(host.server.is_closed(), keeps == Some("close"), "{request}");
        let mut want = vec![Event::End { id }, Event::Written { id }];
        want.extend(host.server.is_closed().then_some(Event::Closed));
        let events = host.events();
        assert!(want.ends_with(&events), "{request} {events:?}");
    }
}

#[test]
fn requests_behind_the_last_one_are_not_read() {
    let mut host = Host::with(Limits { requests_max: 2, ..Limits::default() });
    let events = host.feed(GET.repeat(4).as_bytes());
    assert_eq!(events.len(), 4);
    for number in 0..2 {
        host.server.respond(RequestId(number), Response::new(204), false);
    }
    let output = host.output();
    assert_eq!(output.matches("connection: close").count(), 1);
    assert!(output.ends_with("connection: close\r\n\r\n"));
    // What came behind it would reset the connection: the client has time to read.
    assert!(!host.server.is_closed() && host.server.wants_input());
}

#[test]
fn closing_aborts_what_is_not_answered() {
    let mut host = Host::new();
    host.feed(GET.repeat(3).as_bytes());
    host.server.respond(RequestId(0), Response::new(204), false);
    host.server.close();
    assert_eq!(host.events(), [Event::Aborted { id: RequestId(1) }, Event::Aborted { id: RequestId(2) }]);
    assert!(host.server.is_ending() && !host.server.is_closed() && !host.server.wants_input());
    assert_eq!(statuses(&host.output()), [204]);
    assert_eq!(host.events(), [Event::Written { id: RequestId(0) }, Event::Closed]);
    assert!(host.server.is_closed());
    host.server.close();
    assert_eq!(host.events(), []);
}

#[test]
fn an_answer_that_closes_aborts_what_is_behind_it() {
    let mut host = Host::new();
    host.feed(GET.repeat(3).as_bytes());
    host.server.respond(RequestId(1), Response::new(204), true);
    assert_eq!(host.events(), []);
    host.server.respond(RequestId(0), Response::new(204), false);
    assert_eq!(host.events(), [Event::Aborted { id: RequestId(2) }]);
    assert_eq!(statuses(&host.output()), [204, 204]);
    assert!(host.server.is_closed());
}
