//! A server of HTTP fed with anything: bodies are let come, requests are answered, and the output is taken. The first
//! byte says how the input is cut, and with its highest bit that requests are answered before they are whole.
#![no_main]

use bulla_http::{Event, Limits, Response, Server};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::time::{Duration, Instant};

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let (cut, at_once) = (usize::from(first & 0x7f).max(1), first & 0x80 != 0);
    let mut now = Instant::now();
    let limits = Limits { body_bytes_max: 1 << 16, pipelined_max: 1 + cut % 3, ..Limits::default() };
    let mut server = Server::new(limits, now);
    let (mut seen, mut open) = (BTreeSet::new(), BTreeSet::new());
    for part in bytes.chunks(if cut == 127 { bytes.len().max(1) } else { cut }) {
        if server.wants_input() {
            server.receive(now, part);
        }
        while let Some(event) = server.poll_event() {
            match event {
                Event::Request { id, head } => {
                    assert!(seen.insert(id) && open.insert(id), "a request is handed out once");
                    assert!(head.target.as_str().is_ascii());
                    if at_once {
                        server.respond(id, Response::new(404).body("no"), false);
                    } else {
                        server.go_on(id);
                    }
                }
                Event::Body { id, bytes } => assert!(open.contains(&id) && !bytes.is_empty()),
                Event::End { id } => {
                    assert!(open.contains(&id));
                    let body = Bytes::from(vec![b'x'; 100 * cut]);
                    server.respond(id, Response::new(200).body(body), cut % 5 == 0);
                }
                Event::Aborted { id } | Event::Written { id } => assert!(open.remove(&id), "it was there, and ends once"),
                Event::Closed => {}
            }
        }
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        server.output_slices(&mut slices);
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        drop(slices);
        assert!(len <= server.output_len());
        server.output_written(len / 2 + len % 2);
        now += Duration::from_millis(100);
        if server.poll_timeout().is_some_and(|at| at <= now) {
            server.handle_timeout(now);
        }
    }
});
