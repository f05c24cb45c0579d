//! What a client can make this side do and hold: in line with the bytes that it sends. Were one of these quadratic,
//! its test would not end.

use super::Host;
use crate::{Event, Limits, RequestId, Response};
use std::collections::VecDeque;

const ID: RequestId = RequestId(0);

#[test]
fn a_head_that_comes_byte_by_byte_is_looked_at_once() {
    let limits = Limits { head_bytes_max: 2 << 20, ..Limits::default() };
    let mut host = Host::with(limits);
    host.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
    for _ in 0..1 << 20 {
        host.feed(b"a");
    }
    assert_eq!(host.feed(b"\r\n\r\n").len(), 2);
    assert_eq!(host.server.in_progress(), 0);
}

#[test]
fn a_body_in_chunks_of_a_byte_is_held_in_large_pieces() {
    let chunks = (1 << 20, b"1\r\na\r\n");
    for at_once in [false, true] {
        let mut host = Host::new();
        host.request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        host.server.go_on(ID);
        let mut events = Vec::new();
        if at_once {
            events = host.feed(&chunks.1.repeat(chunks.0));
        } else {
            for _ in 0..chunks.0 {
                events.extend(chunks.1.iter().flat_map(|byte| host.feed(&[*byte])));
            }
        }
        events.extend(host.feed(b"0\r\n\r\n"));
        let length = |event: &Event| if let Event::Body { bytes, .. } = event { bytes.len() } else { 0 };
        assert_eq!(events.iter().map(length).sum::<usize>(), chunks.0);
        assert!(events.len() <= chunks.0 / (16 << 10) + 2, "{}", events.len());
    }
}

#[test]
fn pipelined_requests_are_held_as_bytes_and_handed_out_by_the_bound() {
    let (get, count) = ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200_000);
    let mut host = Host::new();
    let mut events = VecDeque::from(host.feed(get.repeat(count).as_bytes()));
    let mut answered = 0;
    while let Some(event) = events.pop_front() {
        if let Event::End { id } = event {
            host.server.respond(id, Response::new(204), false);
            host.write(usize::MAX);
            host.written.clear();
            events.extend(host.events());
            answered += 1;
        }
        assert!(events.len() <= 4 * Limits::default().pipelined_max, "{}", events.len());
    }
    assert_eq!((answered, host.server.in_progress()), (count, 0));
}

#[test]
fn answers_that_no_one_reads_stop_the_reading() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10_000);
    let mut host = Host::with(Limits { output_bytes_max: 10_000, ..Limits::default() });
    let mut events = host.feed(get.as_bytes());
    let mut answered = 0;
    while !events.is_empty() {
        for event in std::mem::take(&mut events) {
            if let Event::End { id } = event {
                host.server.respond(id, Response::new(200).body("a".repeat(100)), false);
                answered += 1;
            }
        }
        events = host.events();
    }
    assert!(answered < 200, "{answered}");
    assert!(host.server.output_len() < 12_000 && !host.server.wants_input());
    assert!(host.server.in_progress() <= get.len() as u64);
}

#[test]
fn an_idle_connection_holds_next_to_nothing() {
    let mut host = Host::answering(Limits::default());
    for _ in 0..10 {
        host.feed(b"GET /");
        host.feed(b" HTTP/1.1\r\nHost: a\r\n\r\n");
        let body = "a".repeat(100_000);
        host.feed(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }
    assert!(host.server.held_bytes() <= 8 << 10, "{}", host.server.held_bytes());
}
