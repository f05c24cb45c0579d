//! A queue whose messages have left memory, over a log that takes five seconds to read one: others keep their rate.

use super::node::{Node, open_to_all};
use super::plain::{CREDIT, Plain, step};
use crate::catalog::{Change, LocalQueue};
use crate::clock::Clock;
use bulla_amqp::AttachRequest;
use bulla_queue::sim::Fate;
use std::time::Duration;

const READ_TAKES: Duration = Duration::from_secs(5);
/// Messages that lie in the journal after a restart, and not in memory.
const AWAY: u64 = 100;
/// Steps of a round trip: two turns and what is under way between them.
const ROUND_TRIP_STEPS: u64 = 10;
const STEPS_MAX: u64 = 200_000;

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
