//! A queue whose messages have left memory, over a log that takes five seconds to read one: others keep their rate.

use super::node::{Node, open_to_all};
use super::protection::sign_in;
use crate::catalog::{Change, LocalQueue};
use crate::clock::Clock;
use crate::turn::pipe::{Pipe, PipeEnd};
use crate::turn::socket::Moved;
use crate::whole::harness::{message, number};
use bulla_amqp::{AttachRequest, Config, Connection, DeliveryState, Event, LinkId, SessionId};
use bulla_client::Crypto;
use bulla_queue::sim::Fate;
use bytes::BytesMut;
use std::collections::HashMap;
use std::io::IoSlice;
use std::time::Duration;

const READ_TAKES: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);
/// Messages that lie in the journal after a restart, and not in memory.
const AWAY: u64 = 100;
/// Messages that a link gets without answering.
const CREDIT: u32 = 8;
/// Steps of a round trip: two turns and what is under way between them.
const ROUND_TRIP_STEPS: u64 = 10;
const STEPS_MAX: u64 = 200_000;

/// A client that does what it is told, over a connection that takes no time.
struct Plain {
    end: PipeEnd,
    pipe: Pipe,
    engine: Connection,
    session: SessionId,
    /// What came, by link, accepted at once.
    got: HashMap<LinkId, Vec<u64>>,
    answered: u64,
    token: u64,
}

impl Plain {
    fn connect(node: &mut Node, clock: &Clock) -> Self {
        let (pipe, end, accepts) = Pipe::connect(1);
        node.running().unwrap().dispatcher.accept_pipe(accepts);
        let mut engine = Connection::client(Config::new("plain"), sign_in(), Box::new(Crypto), clock.now());
        let session = engine.begin();
        Self { end, pipe, engine, session, got: HashMap::new(), answered: 0, token: 0 }
    }

    fn attach(&mut self, request: AttachRequest, credit: u32) -> LinkId {
        let link = self.engine.attach(self.session, request);
        if credit > 0 {
            self.engine.set_credit(link, credit);
        }
        link
    }

    fn put(&mut self, link: LinkId, number: u64, persistent: bool) {
        self.token += 1;
        assert!(self.engine.can_send(link));
        self.engine.send(link, self.token, message(number, 4, persistent), false);
    }

    fn exchange(&mut self, clock: &Clock) {
        let waiting = self.pipe.waiting();
        (0..2).for_each(|way| self.pipe.carry(way, waiting[way]));
        let mut room = [0; 16 << 10];
        while let Ok(Moved::Bytes(n)) = self.end.read(&mut room) {
            self.engine.receive_copied(clock.now(), &BytesMut::from(&room[..n]).split());
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= clock.now()) {
            self.engine.handle_timeout(clock.now());
        }
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Delivery(delivery) => {
                    self.got.entry(delivery.link).or_default().push(number(&delivery.payload));
                    self.engine.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
                    self.engine.set_credit(delivery.link, CREDIT);
                }
                Event::Outcome { state, .. } => {
                    assert_eq!(state, Some(DeliveryState::Accepted));
                    self.answered += 1;
                }
                Event::Detached { error, .. } => panic!("a link ended: {error:?}"),
                Event::Closed(error) => panic!("the connection ended: {error:?}"),
                _ => {}
            }
        }
        while self.engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.engine.output_slices(&mut slices);
            let Ok(Moved::Bytes(n)) = self.end.write(&slices) else { return };
            drop(slices);
            self.engine.output_written(n);
        }
    }

    fn got(&self, link: LinkId) -> &[u64] {
        self.got.get(&link).map_or(&[], Vec::as_slice)
    }
}

/// One step: a turn, which takes no time, and a millisecond.
fn step(node: &mut Node, client: &mut Plain, clock: &Clock) {
    client.exchange(clock);
    let before = clock.now();
    node.turn().unwrap();
    assert_eq!(clock.now(), before, "a turn waits for the log");
    client.exchange(clock);
    clock.advance(STEP);
}

#[test]
fn while_a_read_takes_five_seconds_other_queues_keep_their_rate() {
    let clock = Clock::simulated();
    let mut node = Node::new("QM1", &clock).with_reads_that_take(READ_TAKES);
    let mut changes = open_to_all();
    changes.extend(["AWAY", "NEAR"].map(|name| Change::define(name.to_owned(), LocalQueue::default())));
    node.start(1, &changes).unwrap();
    let mut client = Plain::connect(&mut node, &clock);
    let [to_away, to_near] = ["AWAY", "NEAR"].map(|name| client.attach(AttachRequest::sender(name, name), 0));
    while !client.engine.can_send(to_away) || !client.engine.can_send(to_near) {
        step(&mut node, &mut client, &clock);
    }
    let mut put = 0;
    while client.answered < AWAY {
        if put < AWAY && client.engine.can_send(to_away) {
            client.put(to_away, put, true);
            put += 1;
        }
        step(&mut node, &mut client, &clock);
    }
    node.crash(Fate::Lost);
    node.start(2, &[]).unwrap();
    let mut client = Plain::connect(&mut node, &clock);
    let to_near = client.attach(AttachRequest::sender("NEAR", "NEAR"), 0);
    while !client.engine.can_send(to_near) {
        step(&mut node, &mut client, &clock);
    }
    let from_near = client.attach(AttachRequest::receiver("from near", "NEAR"), CREDIT);
    let from_away = client.attach(AttachRequest::receiver("from away", "AWAY"), CREDIT);
    let (began, mut steps, mut slowest) = (clock.now(), 0, 0);
    while client.got(from_away).len() < AWAY as usize {
        assert!(steps < STEPS_MAX, "{} of {AWAY} came", client.got(from_away).len());
        let sent_at = steps;
        client.put(to_near, steps, false);
        while client.got(from_near).last() != Some(&sent_at) {
            step(&mut node, &mut client, &clock);
            steps += 1;
        }
        slowest = slowest.max(steps - sent_at);
    }
    let took = clock.since(began);
    assert_eq!(client.got(from_away), (0..AWAY).collect::<Vec<_>>(), "in their order");
    assert!(took >= READ_TAKES, "they were not away");
    assert!(slowest <= ROUND_TRIP_STEPS, "a message of the other queue took {slowest} ms");
    // Several are asked for at a time.
    assert!(took < READ_TAKES * u32::try_from(AWAY / 8).unwrap(), "{AWAY} messages took {took:?}");
}
