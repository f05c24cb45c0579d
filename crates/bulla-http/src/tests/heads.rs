//! Heads: what is read of them, and their limits.

use super::{Host, statuses};
use crate::{BodyLen, Limits, Method, Version};

#[test]
fn a_head_is_taken_apart() {
    let (_, head) = Host::new().request(
        "PUT /a%2Fb/c?x=1&y HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nx-two: two  \r\nX-ONE:\t11\r\nEmpty:\r\nContent-Length: 7\r\n\r\n",
    );
    assert_eq!((head.method, head.version, head.body), (Method::Put, Version::Http11, BodyLen::Counted(7)));
    assert_eq!((head.target.path(), head.target.query()), ("/a%2Fb/c", Some("x=1&y")));
    assert_eq!(head.target.as_str(), "/a%2Fb/c?x=1&y");
    assert_eq!(head.headers.all("x-one").collect::<Vec<_>>(), [b"1".as_slice(), b"11"]);
    assert_eq!((head.headers.get("X-TWO"), head.headers.text("x-two")), (Some(&b"two"[..]), Some("two")));
    assert_eq!((head.headers.get("empty"), head.headers.get("x-three")), (Some(&b""[..]), None));
    assert_eq!(head.headers.count("X-One"), 2);
    let names: Vec<_> = head.headers.iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["Host", "X-One", "x-two", "X-ONE", "Empty", "Content-Length"]);
}

#[test]
fn a_head_in_a_log_shows_no_values() {
    let (_, head) = Host::new().request("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic c2VjcmV0\r\n\r\n");
    let shown = format!("{head:?}");
    assert!(shown.contains("Authorization") && !shown.contains("c2VjcmV0"), "{shown}");
}

#[test]
fn methods_that_are_not_known_are_handed_out() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("DELETE", Method::Delete),
        ("PATCH", Method::Patch),
        ("OPTIONS", Method::Options),
        ("get", Method::Other("get".into())),
        ("PURGE", Method::Other("PURGE".into())),
    ] {
        let (_, head) = Host::new().request(&format!("{name} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((head.method.as_str(), &head.method), (name, &method));
    }
}

#[test]
fn a_value_may_have_bytes_beyond_ascii() {
    let mut host = Host::new();
    let events = host.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\r\nY: \xc3\xa9\r\n\r\n");
    let Some(crate::Event::Request { head, .. }) = events.first() else { panic!("{events:?}") };
    assert_eq!((head.headers.get("x"), head.headers.text("x")), (Some(&b"\xe9"[..]), None));
    assert_eq!(head.headers.text("y"), Some("é"));
}

#[test]
fn what_is_too_long_or_too_many_is_refused() {
    let limits = || Limits { head_bytes_max: 2_000, target_bytes_max: 100, headers_max: 5, ..Limits::default() };
    let target = |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(bytes - 1));
    let value = |bytes: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(bytes));
    let headers = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: a\r\n".repeat(count - 1));
    // The line, Host, and what stands around the value.
    let rest = value(0).len();
    for (request, status) in [
        (target(100), 200),
        (target(101), 414),
        (target(1_000), 414),
        (format!("GET /{}", "a".repeat(10_000)), 414),
        (format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(1_000)), 414),
        (value(2_000 - rest), 200),
        (value(2_001 - rest), 431),
        (format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(10_000)), 431),
        (headers(5), 200),
        (headers(6), 431),
    ] {
        let mut host = Host::answering(limits());
        host.feed(request.as_bytes());
        assert_eq!(statuses(&host.output()), [status], "{request}");
        assert_eq!(host.server.is_ending(), status != 200, "{request}");
    }
}
