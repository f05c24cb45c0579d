//! The machine: one connection of a server.

use crate::event::{Event, RequestId};
use crate::head::{self, BodyLen, Head, Method, Persistence};
use crate::limits::{LINGER_BYTES_MAX, Limits, OUTPUT_PROGRESS_BYTES};
use crate::lines::{Found, Scan};
use crate::output::Output;
use crate::reading::{BodyReading, Gate, Progress, Reading};
use crate::refusal::{self, Refusal};
use crate::response::{self, Asked, CONTINUE, HeaderLines, Response};
use crate::timer::{Timer, Wait};
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

/// One HTTP/1.1 connection of a server. The host feeds [`Server::receive`], takes [`Server::poll_event`], answers with
/// [`Server::go_on`] and [`Server::respond`], and writes [`Server::output_slices`].
///
/// Invariant: no answer goes out before those to the requests in front of it, and nothing is read behind a request
/// whose framing is in doubt.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    always: HeaderLines,
    /// Bytes that can't be used yet: the beginning of a head, or what comes behind something that must be answered
    /// first.
    waiting: BytesMut,
    reading: Reading,
    /// Requests whose answers are not in the output yet, in order.
    exchanges: VecDeque<Exchange>,
    /// Answers that are not written whole, and where in the output they end.
    unwritten: VecDeque<(u64, RequestId)>,
    output: Output,
    events: VecDeque<Event>,
    /// Requests so far.
    requests: u64,
    life: Life,
    /// Why the machine itself ended the connection.
    refused: Option<Refusal>,
    /// What is waited for on the way in.
    input_timer: Timer<InputWait>,
    /// The client takes output.
    output_timer: Timer<()>,
    /// The last time that was told.
    now: Instant,
}

/// A request, until its answer is in the output.
#[derive(Debug)]
struct Exchange {
    /// None where the machine itself refused it, and the host never saw it or was told that it is aborted.
    id: Option<RequestId>,
    is_head: bool,
    persistence: Persistence,
    /// The connection closes behind its answer.
    closes: bool,
    /// `100 Continue` is to be sent as soon as the answers before it are out.
    owes_continue: bool,
    answer: Option<Box<Response>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// The last answer is in the output.
    Ending {
        /// The client may still be sending: it gets time to read the answer.
        lingers: bool,
    },
    /// The last answer is written; so many bytes may still come, and are thrown away.
    Lingering {
        left: u64,
    },
    Closed,
}

/// What a client is waited for on the way in. The number is the request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputWait {
    Head(u64),
    Idle(u64),
    Body(u64),
    HangUp,
}

impl Server {
    /// A new connection.
    pub fn new(limits: Limits, now: Instant) -> Self {
        let mut new = Self {
            limits,
            always: HeaderLines::default(),
            waiting: BytesMut::new(),
            reading: Reading::Head(Scan::default()),
            exchanges: VecDeque::new(),
            unwritten: VecDeque::new(),
            output: Output::default(),
            events: VecDeque::new(),
            requests: 0,
            life: Life::Open,
            refused: None,
            input_timer: Timer::default(),
            output_timer: Timer::default(),
            now,
        };
        new.set_timers(Some(now));
        new
    }

    /// Sets the header lines of every answer, the machine's own refusals included.
    pub fn set_always(&mut self, lines: HeaderLines) {
        self.always = lines;
    }

    // --- bytes in ---

    /// Takes bytes that have come. What is kept of them is copied: bodies once, out of this slice.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.now = now;
        match &mut self.life {
            Life::Open if self.waiting.is_empty() => {
                let used = self.take(bytes);
                self.wait(bytes.get(used..).unwrap_or_default());
            }
            Life::Open => {
                self.waiting.extend_from_slice(bytes);
                self.take_waiting();
            }
            Life::Ending { lingers } => *lingers = true,
            Life::Lingering { left } => match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                None => self.end_at_once(),
            },
            Life::Closed => {}
        }
        self.set_timers(Some(now));
    }

    /// Whether more is to be read. A client that hangs up is noticed by reading, so one whose request is being answered
    /// is read until it sends something else.
    pub fn wants_input(&self) -> bool {
        match self.life {
            Life::Open => self.output.len() < self.limits.output_bytes_max && (self.may_take() || !self.has_unread()),
            Life::Lingering { .. } => true,
            Life::Ending { .. } | Life::Closed => false,
        }
    }

    /// Bytes of a body that is still arriving, as far as they have come, and bytes that were not looked at.
    pub fn in_progress(&self) -> u64 {
        let body = match &self.reading {
            Reading::Body(BodyReading { gate: Gate::Open, bytes, .. }) => *bytes,
            _ => 0,
        };
        body + self.waiting.len() as u64
    }

    /// Whether what comes next may be read now.
    fn may_take(&self) -> bool {
        match &self.reading {
            Reading::Head(_) => {
                self.exchanges.len() < self.limits.pipelined_max.max(1)
                    && self.output.len() < self.limits.output_bytes_max
            }
            Reading::Body(body) => !matches!(body.gate, Gate::Shut { .. }),
            Reading::Nothing { .. } => false,
        }
    }

    /// Whether bytes have come that were not read.
    fn has_unread(&self) -> bool {
        !self.waiting.is_empty() || matches!(self.reading, Reading::Nothing { unread: true })
    }

    /// Keeps bytes that can't be used yet.
    fn wait(&mut self, bytes: &[u8]) {
        match (&mut self.reading, self.life) {
            (_, Life::Closed) => {}
            (_, Life::Ending { .. } | Life::Lingering { .. }) | (Reading::Nothing { .. }, _) => {
                self.note_unread(!bytes.is_empty());
            }
            _ => self.waiting.extend_from_slice(bytes),
        }
    }

    /// Bytes came that nobody will read.
    fn note_unread(&mut self, any: bool) {
        match (&mut self.reading, &mut self.life) {
            (_, Life::Ending { lingers }) => *lingers |= any,
            (Reading::Nothing { unread }, _) => *unread |= any,
            _ => {}
        }
    }

    /// Goes on with what was kept, as far as may be now.
    fn take_waiting(&mut self) {
        if self.waiting.is_empty() || self.life != Life::Open || !self.may_take() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let used = self.take(&waiting);
        waiting.advance(used);
        if waiting.is_empty() {
            return;
        }
        if matches!(self.reading, Reading::Nothing { .. }) || self.life != Life::Open {
            return self.note_unread(true);
        }
        self.waiting = waiting;
    }

    /// Takes what may be taken of bytes; says how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.life == Life::Open && self.may_take() {
            let rest = bytes.get(at..).unwrap_or_default();
            let used = match &self.reading {
                _ if rest.is_empty() => break,
                Reading::Head(_) => self.take_head(rest),
                Reading::Body(_) => self.take_body(rest),
                Reading::Nothing { .. } => None,
            };
            match used {
                Some(used) => at += used,
                None => break,
            }
        }
        at
    }

    /// Takes the head of a request; none where more of it must come, or it is refused.
    fn take_head(&mut self, bytes: &[u8]) -> Option<usize> {
        let Reading::Head(scan) = &mut self.reading else { return None };
        if !scan.has_begun() {
            match bytes {
                b"\r" => return None,
                [b'\r', b'\n', ..] => {
                    scan.skipped = true;
                    return Some(2);
                }
                _ => {}
            }
        }
        let found = match scan.go_on(bytes, &self.limits) {
            Found::Partial => return None,
            Found::Wrong(refusal) => Err(refusal),
            Found::Whole(length) => {
                head::parse(bytes.get(..length).unwrap_or_default(), &self.limits).map(|parsed| (length, parsed))
            }
        };
        match found {
            Ok((length, (head, persistence))) => {
                self.begin(head, persistence);
                Some(length)
            }
            Err(refusal) => {
                self.refuse(refusal);
                None
            }
        }
    }

    /// Hands out a request.
    fn begin(&mut self, head: Head, persistence: Persistence) {
        let id = RequestId(self.requests);
        self.requests += 1;
        let is_last = persistence == Persistence::Close || self.requests >= self.limits.requests_max;
        let gate = Gate::Shut { expects_continue: head.expects_continue };
        let body = match head.body {
            BodyLen::None | BodyLen::Counted(0) => None,
            BodyLen::Counted(bytes) => Some(BodyReading::counted(id, bytes, gate)),
            BodyLen::Chunked => Some(BodyReading::chunked(id, gate)),
        };
        self.exchanges.push_back(Exchange {
            id: Some(id),
            is_head: head.method == Method::Head,
            persistence,
            closes: is_last,
            owes_continue: false,
            answer: None,
        });
        self.events.push_back(Event::Request { id, head: Box::new(head) });
        match body {
            Some(body) => self.reading = Reading::Body(body),
            None => {
                self.events.push_back(Event::End { id });
                self.read_next();
            }
        }
    }

    /// A request has come whole.
    fn read_next(&mut self) {
        let closes = self.exchanges.back().is_some_and(|exchange| exchange.closes);
        self.reading = if closes { Reading::Nothing { unread: false } } else { Reading::Head(Scan::default()) };
    }

    /// Takes bytes of a body; none where all were taken, or the body is refused.
    fn take_body(&mut self, bytes: &[u8]) -> Option<usize> {
        let Reading::Body(body) = &mut self.reading else { return None };
        let (id, is_dropped) = (body.id, matches!(body.gate, Gate::Dropped { .. }));
        match body.take(bytes, &self.limits, &mut self.events) {
            Ok(Progress::Ended(used)) => {
                if !is_dropped {
                    self.events.push_back(Event::End { id });
                }
                self.read_next();
                Some(used)
            }
            Ok(Progress::NeedsMore) => Some(bytes.len()),
            Ok(Progress::TooMuchDropped) => {
                self.stop_reading(true);
                self.close_behind_last();
                None
            }
            Err(refusal) => {
                self.refuse(refusal);
                None
            }
        }
    }

    /// The client did something that ends the connection: it is told, behind the answers that come first.
    fn refuse(&mut self, refusal: Refusal) {
        self.refused.get_or_insert(refusal);
        let of = match &self.reading {
            Reading::Body(body) => Some(body.id),
            Reading::Head(_) | Reading::Nothing { .. } => None,
        };
        self.stop_reading(true);
        match (of, self.exchanges.back_mut().filter(|last| last.answer.is_none() && of.is_some() && last.id == of)) {
            // The host has seen its head.
            (Some(id), Some(exchange)) => {
                exchange.id = None;
                exchange.answer = Some(Box::new(Response::refused(refusal)));
                exchange.closes = true;
                self.events.push_back(Event::Aborted { id });
            }
            // It is answered.
            (Some(_), None) => return self.close_behind_last(),
            (None, _) => self.exchanges.push_back(Exchange {
                id: None,
                is_head: false,
                persistence: Persistence::Close,
                closes: true,
                owes_continue: false,
                answer: Some(Box::new(Response::refused(refusal))),
            }),
        }
        self.send_answers();
    }

    /// Reads no request any more.
    fn stop_reading(&mut self, unread: bool) {
        let unread = unread || self.has_unread();
        self.reading = Reading::Nothing { unread };
        self.waiting = BytesMut::new();
    }

    /// The connection closes behind the last answer, which may be in the output already.
    fn close_behind_last(&mut self) {
        match self.exchanges.back_mut() {
            Some(last) => last.closes = true,
            None => self.end(),
        }
    }

    // --- events and answers ---

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Lets the body of a request come, and sends `100 Continue` where the client waits for it.
    pub fn go_on(&mut self, id: RequestId) {
        let Reading::Body(body) = &mut self.reading else { return };
        let Gate::Shut { expects_continue } = body.gate else { return };
        if body.id != id {
            return;
        }
        body.gate = Gate::Open;
        // One that did not wait needs no word (RFC 9110, section 10.1.1).
        if expects_continue
            && self.waiting.is_empty()
            && let Some(last) = self.exchanges.back_mut()
        {
            last.owes_continue = true;
            self.send_continue();
        }
        self.take_waiting();
        self.set_timers(None);
    }

    /// Answers a request. Answers go out in the order of the requests, whatever the order of these calls; the
    /// connection closes behind one that `closes`, and behind one whose request came only in part and has much to come.
    /// A second answer, and one to a request that is aborted, does nothing.
    pub fn respond(&mut self, id: RequestId, response: Response, closes: bool) {
        let Some(exchange) = self.exchanges.iter_mut().find(|exchange| exchange.id == Some(id)) else { return };
        if exchange.answer.is_some() {
            return;
        }
        exchange.answer = Some(Box::new(response));
        exchange.owes_continue = false;
        exchange.closes |= closes;
        if let Reading::Body(body) = &mut self.reading
            && body.id == id
        {
            exchange.closes |= !body.drop_rest();
            if exchange.closes {
                self.stop_reading(true);
            }
        } else if closes && matches!(self.reading, Reading::Head(_)) && self.is_last(id) {
            self.stop_reading(false);
        }
        self.send_answers();
        self.take_waiting();
        self.set_timers(None);
    }

    fn is_last(&self, id: RequestId) -> bool {
        self.exchanges.back().is_some_and(|last| last.id == Some(id))
    }

    /// Puts answers into the output, as far as they are there without a gap.
    fn send_answers(&mut self) {
        while let Some(exchange) = self.exchanges.pop_front_if(|first| first.answer.is_some()) {
            let Exchange { id, is_head, persistence, closes, answer, .. } = exchange;
            let Some(answer) = answer else { return };
            response::write(&mut self.output, *answer, &Asked { is_head, persistence, closes, always: &self.always });
            self.unwritten.extend(id.map(|id| (self.output.end(), id)));
            if closes {
                return self.end();
            }
        }
        self.send_continue();
    }

    /// Sends `100 Continue` where the request that waits for it is the first one.
    fn send_continue(&mut self) {
        if let Some(first) = self.exchanges.front_mut()
            && std::mem::take(&mut first.owes_continue)
        {
            self.output.add(|out| out.extend_from_slice(CONTINUE));
        }
    }

    // --- the end ---

    /// Ends the connection: what is in the output goes out, requests that are not answered are aborted.
    pub fn close(&mut self) {
        if self.life == Life::Open {
            let is_arriving = matches!(self.reading, Reading::Body(_));
            self.stop_reading(is_arriving);
            self.end();
            self.set_timers(None);
        }
    }

    /// The last answer is in the output.
    fn end(&mut self) {
        // Closing on a client that sends resets the connection, and the answer could be lost.
        let lingers = self.has_unread() || matches!(self.reading, Reading::Body(_));
        let gone = self.exchanges.drain(..).filter_map(|exchange| exchange.id);
        self.events.extend(gone.map(|id| Event::Aborted { id }));
        self.reading = Reading::Nothing { unread: lingers };
        self.waiting = BytesMut::new();
        self.life = Life::Ending { lingers };
        self.end_if_written();
    }

    fn end_if_written(&mut self) {
        match self.life {
            Life::Ending { lingers: true } if self.output.len() == 0 => {
                self.life = Life::Lingering { left: LINGER_BYTES_MAX };
            }
            Life::Ending { lingers: false } if self.output.len() == 0 => self.end_at_once(),
            _ => {}
        }
    }

    /// The connection is over, whatever has not gone out.
    fn end_at_once(&mut self) {
        if self.life == Life::Closed {
            return;
        }
        self.life = Life::Closed;
        self.output.clear();
        let unanswered = self.exchanges.drain(..).filter_map(|exchange| exchange.id);
        let gone = self.unwritten.drain(..).map(|(_, id)| id).chain(unanswered);
        self.events.extend(gone.map(|id| Event::Aborted { id }));
        self.events.push_back(Event::Closed);
        self.reading = Reading::Nothing { unread: false };
        self.waiting = BytesMut::new();
    }

    /// Whether the connection is over, and everything written.
    pub fn is_closed(&self) -> bool {
        self.life == Life::Closed
    }

    /// Whether no further request is read.
    pub fn is_ending(&self) -> bool {
        self.life != Life::Open || matches!(self.reading, Reading::Nothing { .. })
    }

    /// Why the machine itself refused a request and ended the connection.
    pub fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    // --- bytes out ---

    /// Bytes that wait to be written.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Those bytes, the first of them where they are many.
    pub fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.output.slices(slices);
    }

    /// So many of them are written.
    pub fn output_written(&mut self, count: usize) {
        self.output.take(count);
        let written = self.output.written_bytes();
        while let Some((_, id)) = self.unwritten.pop_front_if(|(end, _)| *end <= written) {
            self.events.push_back(Event::Written { id });
        }
        self.end_if_written();
        self.take_waiting();
        self.set_timers(None);
    }

    /// Bytes of memory that this connection holds, as a test wants to know.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        let queues = self.events.capacity() * size_of::<Event>() + self.exchanges.capacity() * size_of::<Exchange>();
        size_of::<Self>() + self.waiting.capacity() + self.output.capacity() + queues
    }

    // --- time ---

    /// When [`Server::handle_timeout`] wants to be called: it may be in the past, where something began at a time that
    /// no one has told.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.input_timer.due(self.now), self.output_timer.due(self.now)];
        due.into_iter().flatten().min()
    }

    /// Does what is due by then.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.output_timer.look(now).is_some() {
            self.end_at_once();
        } else if let Some(what) = self.input_timer.look(now) {
            match what {
                InputWait::Head(_) if self.has_begun() => self.refuse(refusal::HEAD_TOO_SLOW),
                InputWait::Body(_) => self.refuse(refusal::BODY_TOO_SLOW),
                InputWait::Head(_) | InputWait::Idle(_) | InputWait::HangUp => self.end_at_once(),
            }
        }
        self.set_timers(Some(now));
    }

    /// Nothing was read by this side's own choice: what did not come is not the client's fault.
    pub fn not_read(&mut self, now: Instant) {
        self.now = now;
        self.input_timer.restart(now);
    }

    /// Whether a byte of the next head has come.
    fn has_begun(&self) -> bool {
        matches!(&self.reading, Reading::Head(scan) if scan.has_begun() || !self.waiting.is_empty())
    }

    fn set_timers(&mut self, now: Option<Instant>) {
        let limits = &self.limits;
        let is_idle = || self.exchanges.is_empty() && self.output.len() == 0;
        let (what, within) = match (self.life, &self.reading) {
            (Life::Lingering { .. }, _) => (Some(InputWait::HangUp), limits.linger_within),
            (Life::Open, Reading::Body(body)) if self.may_take() => {
                (Some(InputWait::Body(body.id.0)), limits.body_stalls_within)
            }
            (Life::Open, Reading::Head(_)) if self.may_take() && (self.requests == 0 || self.has_begun()) => {
                (Some(InputWait::Head(self.requests)), limits.head_within)
            }
            (Life::Open, Reading::Head(_)) if is_idle() => (Some(InputWait::Idle(self.requests)), limits.idle_within),
            _ => (None, limits.idle_within),
        };
        let (progress, progress_min) = match &self.reading {
            Reading::Body(body) => (body.bytes, limits.body_progress_bytes.max(1)),
            _ => (0, u64::MAX),
        };
        self.input_timer.set(what.map(|what| Wait { what, within, progress, progress_min }), now);
        let writes = (self.output.len() > 0).then(|| Wait {
            what: (),
            within: limits.output_stalls_within,
            progress: self.output.written_bytes(),
            progress_min: OUTPUT_PROGRESS_BYTES,
        });
        self.output_timer.set(writes, now);
    }
}
