//! Tests of the machine as a whole, and what they share.

mod answers;
mod bodies;
mod costs;
mod heads;
mod smuggling;
mod splits;
mod timeouts;

use crate::{Event, Head, Limits, RequestId, Response, Server};
use std::time::{Duration, Instant};

/// A machine, with a clock of its own and what it has written.
pub(crate) struct Host {
    pub(crate) server: Server,
    pub(crate) now: Instant,
    /// All that was written.
    pub(crate) written: Vec<u8>,
    /// Whether requests are let go on and answered with 200 and their target as soon as they have come.
    answers: bool,
    targets: Vec<(RequestId, String)>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let now = Instant::now();
        Self { server: Server::new(limits, now), now, written: Vec::new(), answers: false, targets: Vec::new() }
    }

    /// One that answers each request with its target.
    pub(crate) fn answering(limits: Limits) -> Self {
        Self { answers: true, ..Self::with(limits) }
    }

    /// Feeds bytes, as far as they are wanted; gathers events.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.server.receive(self.now, bytes);
        self.events()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        let mut found = Vec::new();
        loop {
            while let Some(event) = self.server.poll_event() {
                if self.answers {
                    self.answer(&event);
                }
                found.push(event);
            }
            if !self.answers || self.write(usize::MAX) == 0 {
                return found;
            }
        }
    }

    fn answer(&mut self, event: &Event) {
        match event {
            Event::Request { id, head } => {
                self.targets.push((*id, head.target.as_str().to_owned()));
                self.server.go_on(*id);
            }
            Event::End { id } => {
                let at = self.targets.iter().position(|(other, _)| other == id).unwrap();
                self.server.respond(*id, Response::new(200).body(self.targets.remove(at).1), false);
            }
            _ => {}
        }
    }

    /// Writes up to so many bytes; says how many.
    pub(crate) fn write(&mut self, most: usize) -> usize {
        let mut slices = Vec::new();
        self.server.output_slices(&mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).take(most).collect();
        drop(slices);
        self.written.extend_from_slice(&bytes);
        self.server.output_written(bytes.len());
        bytes.len()
    }

    /// Writes all there is, and returns it.
    pub(crate) fn output(&mut self) -> String {
        while self.write(usize::MAX) > 0 {}
        String::from_utf8(std::mem::take(&mut self.written)).unwrap()
    }

    pub(crate) fn advance(&mut self, time: Duration) -> Vec<Event> {
        self.now += time;
        // As a host does it: only where something is due.
        if self.server.poll_timeout().is_some_and(|due| due <= self.now) {
            self.server.handle_timeout(self.now);
        }
        self.events()
    }

    /// The request that these bytes are.
    pub(crate) fn request(&mut self, bytes: &str) -> (RequestId, Head) {
        match self.feed(bytes.as_bytes()).into_iter().next() {
            Some(Event::Request { id, head }) => (id, *head),
            other => panic!("{other:?} in place of a request"),
        }
    }
}

/// The statuses of all final answers in an output whose bodies hold no line that looks like one.
pub(crate) fn statuses(output: &str) -> Vec<u16> {
    let lines = output.split("HTTP/1.1 ").skip(1);
    lines.map(|rest| rest[..3].parse().unwrap()).filter(|status| *status != 100).collect()
}
