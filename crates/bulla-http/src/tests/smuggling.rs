//! Requests that two servers could read in two ways, with the status of each answer. RFC 9112, section 11.2.

use super::{Host, statuses};
use crate::{Event, Limits};

/// Behind each case stands a request that must never be seen: what is refused ends the connection.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Header lines of a POST, what follows its head, and the status; 200 is one that is taken.
const FRAMING: &[(&str, &str, u16)] = &[
    // One length or one coding is what there may be.
    ("Content-Length: 3\r\n", "abc", 200),
    ("Content-Length: 0\r\n", "", 200),
    ("content-length:3\r\n", "abc", 200),
    ("CONTENT-LENGTH: \t3\t \r\n", "abc", 200),
    ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", 200),
    ("transfer-encoding:CHUNKED\r\n", "0\r\n\r\n", 200),
    // Both, in either order and whatever they say.
    ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: identity\r\nContent-Length: 3\r\n", "abc", 400),
    ("Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n", "abc", 400),
    ("Transfer-Encoding:\r\nContent-Length: 3\r\n", "abc", 400),
    ("Content-Length:\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400),
    // Several lengths, alike or not.
    ("Content-Length: 3\r\nContent-Length: 3\r\n", "abc", 400),
    ("Content-Length: 3\r\nContent-Length: 4\r\n", "abc", 400),
    ("Content-Length: 3\r\ncontent-length: 0\r\n", "abc", 400),
    ("Content-Length: 3, 3\r\n", "abc", 400),
    ("Content-Length: 3,4\r\n", "abc", 400),
    ("Content-Length: 3,\r\n", "abc", 400),
    ("Content-Length: ,3\r\n", "abc", 400),
    // Lengths that are none.
    ("Content-Length: +3\r\n", "abc", 400),
    ("Content-Length: -3\r\n", "abc", 400),
    ("Content-Length: -0\r\n", "", 400),
    ("Content-Length: 0x3\r\n", "abc", 400),
    ("Content-Length: 3 3\r\n", "abc", 400),
    ("Content-Length: 3.0\r\n", "abc", 400),
    ("Content-Length: 3e0\r\n", "abc", 400),
    ("Content-Length: 03\r\n", "abc", 400),
    ("Content-Length: 00\r\n", "", 400),
    ("Content-Length: 1_0\r\n", "abc", 400),
    ("Content-Length: \"3\"\r\n", "abc", 400),
    ("Content-Length: 3;\r\n", "abc", 400),
    ("Content-Length: abc\r\n", "abc", 400),
    ("Content-Length: \r\n", "", 400),
    ("Content-Length: ３\r\n", "abc", 400),
    ("Content-Length: 3\u{a0}\r\n", "abc", 400),
    ("Content-Length: 99999999999\r\n", "abc", 413),
    ("Content-Length: 18446744073709551615\r\n", "abc", 413),
    ("Content-Length: 18446744073709551619\r\n", "abc", 413),
    ("Content-Length: 99999999999999999999999999\r\n", "abc", 413),
    // Codings that are not exactly `chunked`.
    ("Transfer-Encoding: gzip\r\n", "", 501),
    ("Transfer-Encoding: identity\r\n", "", 501),
    ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n", 501),
    ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n", 501),
    ("Transfer-Encoding: identity, chunked\r\n", "0\r\n\r\n", 501),
    ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked,\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: ,chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: , chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: 'chunked'\r\n", "0\r\n\r\n", 501),
    ("Transfer-Encoding: chun ked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: \r\n", "", 400),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: \u{b}chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\u{c}\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\u{a0}\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\0\r\n", "0\r\n\r\n", 400),
    // Disguised names.
    ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n", 400),
    ("Content-Length : 3\r\n", "abc", 400),
    ("Content-Length\t: 3\r\n", "abc", 400),
    (" Content-Length: 3\r\n", "abc", 400),
    ("\tTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400),
    ("Content Length: 3\r\n", "abc", 400),
    ("Content-Length\0: 3\r\n", "abc", 400),
    ("Transfer-Encoding\u{b}: chunked\r\n", "0\r\n\r\n", 400),
    ("\u{b}Transfer-Encoding: chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encodıng: chunked\r\n", "0\r\n\r\n", 400),
    (": 3\r\n", "abc", 400),
    ("Content-Length\r\n", "abc", 400),
    ("Content-Length 3\r\n", "abc", 400),
    ("Content-Length: 3\r\n Transfer-Encoding: chunked\r\n", "abc", 400),
    // Folded lines.
    ("X: a\r\n b\r\nContent-Length: 3\r\n", "abc", 400),
    ("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\r\n\t, identity\r\n", "0\r\n\r\n", 400),
    ("Content-Length: 3\r\n 4\r\n", "abc", 400),
    // Line ends.
    ("X: a\nContent-Length: 3\r\n", "abc", 400),
    ("X: a\rContent-Length: 3\r\n", "abc", 400),
    ("X: a\n\r\nContent-Length: 3\r\n", "abc", 400),
    ("X: a\r\r\nContent-Length: 3\r\n", "abc", 400),
    ("Content-Length: 3\n", "abc", 400),
    ("Content-Length: 3\r\n\n", "abc", 400),
    ("X: a\0b\r\nContent-Length: 3\r\n", "abc", 400),
    ("X: a\u{7f}\r\nContent-Length: 3\r\n", "abc", 400),
    ("X: a\u{1b}[2J\r\nContent-Length: 3\r\n", "abc", 400),
    // Expectations.
    ("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc", 200),
    ("Expect: 100-Continue\r\nContent-Length: 3\r\n", "abc", 200),
    ("Expect: 200-ok\r\nContent-Length: 3\r\n", "abc", 417),
    ("Expect: 100-continue, x\r\nContent-Length: 3\r\n", "abc", 417),
    ("Expect: \r\nContent-Length: 3\r\n", "abc", 417),
    // Hosts, beside the one that each case has.
    ("Host: a\r\nContent-Length: 3\r\n", "abc", 400),
    ("Host: b\r\nContent-Length: 3\r\n", "abc", 400),
    ("HOST:\r\nContent-Length: 3\r\n", "abc", 400),
];

/// Bodies in chunks, and the status.
const CHUNKS: &[(&str, u16)] = &[
    ("3\r\nabc\r\n0\r\n\r\n", 200),
    ("A\r\n0123456789\r\n0\r\n\r\n", 200),
    ("a\r\n0123456789\r\n00\r\n\r\n", 200),
    ("003\r\nabc\r\n000\r\n\r\n", 200),
    ("3;name=value\r\nabc\r\n0;last\r\n\r\n", 200),
    ("3;a=\"b c\";d\r\nabc\r\n0\r\n\r\n", 200),
    ("0\r\nTrailer: x\r\nContent-Length: 5\r\n\r\n", 200),
    // Sizes.
    ("\r\nabc\r\n0\r\n\r\n", 400),
    (" 3\r\nabc\r\n0\r\n\r\n", 400),
    ("3 \r\nabc\r\n0\r\n\r\n", 400),
    ("3\t\r\nabc\r\n0\r\n\r\n", 400),
    ("3 ;a\r\nabc\r\n0\r\n\r\n", 400),
    ("+3\r\nabc\r\n0\r\n\r\n", 400),
    ("-3\r\nabc\r\n0\r\n\r\n", 400),
    ("0x3\r\nabc\r\n0\r\n\r\n", 400),
    ("3h\r\nabc\r\n0\r\n\r\n", 400),
    ("3_0\r\nabc\r\n0\r\n\r\n", 400),
    ("3,3\r\nabc\r\n0\r\n\r\n", 400),
    ("g\r\nabc\r\n0\r\n\r\n", 400),
    (";a\r\nabc\r\n0\r\n\r\n", 400),
    ("３\r\nabc\r\n0\r\n\r\n", 400),
    ("10000000000000003\r\nabc\r\n0\r\n\r\n", 400),
    ("FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n", 400),
    ("FFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n", 413),
    ("8000000000000000\r\nabc\r\n0\r\n\r\n", 413),
    // Line ends.
    ("3\nabc\r\n0\r\n\r\n", 400),
    ("3\rabc\r\n0\r\n\r\n", 400),
    ("3\r\r\nabc\r\n0\r\n\r\n", 400),
    ("3;a\nabc\r\n0\r\n\r\n", 400),
    ("3;a\rb\r\nabc\r\n0\r\n\r\n", 400),
    ("3;a\0\r\nabc\r\n0\r\n\r\n", 400),
    ("3\r\nabc\n0\r\n\r\n", 400),
    ("3\r\nabc\r0\r\n\r\n", 400),
    ("3\r\nabc0\r\n\r\n", 400),
    ("3\r\nabcd\r\n0\r\n\r\n", 400),
    ("2\r\nabc\r\n0\r\n\r\n", 400),
    ("3\r\nabc\r\n\r\n0\r\n\r\n", 400),
    ("0\r\n\n", 400),
    ("0\r\n\rx", 400),
    ("0\n\r\n", 400),
    // Trailers.
    ("0\r\n Folded: a\r\n\r\n", 400),
    ("0\r\nA: b\r\n c\r\n\r\n", 400),
    ("0\r\nA : b\r\n\r\n", 400),
    ("0\r\nno colon\r\n\r\n", 400),
    ("0\r\n: b\r\n\r\n", 400),
    ("0\r\nA: b\nC: d\r\n\r\n", 400),
    ("0\r\nA: b\rC: d\r\n\r\n", 400),
    ("0\r\nA: \0\r\n\r\n", 400),
    ("0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
];

/// Whole heads, and the status.
const HEADS: &[(&str, u16)] = &[
    ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: a:80\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
    ("GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n", 200),
    ("GET /a%20b?c=%2F HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    // In front of the request line.
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\0GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\u{feff}GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    // The request line.
    ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
    ("GET / a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /\r\nHost: a\r\n\r\n", 400),
    ("GET\r\nHost: a\r\n\r\n", 400),
    ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    // Versions.
    ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
    ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/01.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1\r\nHost: a\r\n\r\n", 400),
    ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTPS/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / ICY/1.1\r\nHost: a\r\n\r\n", 400),
    // Targets.
    ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /#part HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /% HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /%2 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    // Hosts.
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a#b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    // What an older version can't have.
    ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
    ("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    // Other protocols.
    ("AMQP\0\u{1}\0\0", 400),
    ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}", 400),
    ("SSH-2.0-x\r\n\r\n", 400),
];

/// A refused case ends the connection behind its answer, and what follows is never seen; what is taken is followed by
/// the request behind it.
fn check(case: &str, status: u16) {
    let mut host = Host::answering(Limits::default());
    let mut events = host.feed(format!("{case}{SMUGGLED}").as_bytes());
    events.extend(host.feed(SMUGGLED.as_bytes()));
    let output = host.output();
    let smuggled = events.iter().any(|event| match event {
        Event::Request { head, .. } => head.target.as_str() == "/smuggled",
        _ => false,
    });
    if status == 200 {
        assert_eq!((statuses(&output), smuggled), (vec![200, 200, 200], true), "{case:?}: {output}");
        assert_eq!(host.server.refused(), None, "{case:?}");
        return;
    }
    assert_eq!((statuses(&output), smuggled), (vec![status], false), "{case:?}: {output}");
    assert!(output.contains("\r\nconnection: close\r\n"), "{case:?}: {output}");
    assert_eq!(host.server.refused().map(|refusal| refusal.status), Some(status), "{case:?}");
    assert!(host.server.is_ending(), "{case:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::End { .. })), "{case:?}");
    host.advance(Limits::default().linger_within);
    host.advance(Limits::default().linger_within);
    assert!(host.server.is_closed(), "{case:?}");
}

#[test]
fn a_body_has_one_length_that_all_servers_agree_on() {
    for (lines, body, status) in FRAMING {
        check(&format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}"), *status);
    }
}

#[test]
fn a_chunk_is_as_long_as_its_size_says() {
    for (body, status) in CHUNKS {
        check(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"), *status);
    }
}

#[test]
fn a_head_is_what_the_standard_says() {
    for (head, status) in HEADS {
        check(head, *status);
    }
}

#[test]
fn no_case_stands_twice_and_each_status_is_met() {
    let heads = HEADS.iter().map(|(head, status)| (format!("{head:?}"), *status));
    let chunks = CHUNKS.iter().map(|(body, status)| (format!("chunks {body:?}"), *status));
    let framing = FRAMING.iter().map(|(lines, body, status)| (format!("{lines:?} {body:?}"), *status));
    let all: Vec<_> = heads.chain(chunks).chain(framing).collect();
    let names: std::collections::BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), all.len());
    for status in [200, 400, 413, 417, 501, 505] {
        assert!(all.iter().any(|(_, found)| *found == status), "{status}");
    }
}
