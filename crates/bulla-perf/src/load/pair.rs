//! A request and its reply: one who asks and one who answers, through one queue manager or two.

use crate::error::{Error, Result};
use crate::load::client::{Client, Link, not_taken};
use crate::load::messages::Messages;
use crate::load::{APPLICATION, Counts, Load, Seat};
use bulla_amqp::{DeliveryState, Event, LinkId};
use bulla_device::Histogram;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Credit of the receiving ends.
const CREDIT: u32 = 64;

/// What flows.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Payload of a request, and of its reply, bytes.
    pub bytes: usize,
    /// Whether messages are persistent.
    pub persistent: bool,
    /// Requests that may be under way at once; 1 at least.
    pub in_flight: u32,
}

/// A requester and its server at work.
#[derive(Debug)]
pub struct Pair {
    gauge: Arc<Gauge>,
    requester: JoinHandle<Result<()>>,
    server: JoinHandle<Result<()>>,
}

#[derive(Debug, Default)]
struct Gauge {
    /// Requests that were answered.
    answered: AtomicU64,
    /// Requests that have reached the server.
    asked: AtomicU64,
    stop_asking: AtomicBool,
    stop_answering: AtomicBool,
    latencies: Mutex<Histogram>,
}

impl Pair {
    /// Connects both, and starts their threads; `number` tells pairs apart.
    ///
    /// # Errors
    /// [`Error::Broker`]: one of them was not let in.
    pub fn start(asks: &Seat, answers: &Seat, exchange: Exchange, number: usize) -> Result<Pair> {
        let messages = Messages::of(exchange.bytes, exchange.persistent);
        let gauge = Arc::new(Gauge::default());
        let mut server = Client::connect(&answers.broker, &format!("answer-{number}"))?;
        let from = server.receiver(&answers.gets, CREDIT)?;
        let to = server.sender(&answers.puts)?;
        let mut requester = Client::connect(&asks.broker, &format!("ask-{number}"))?;
        let replies = requester.receiver(&asks.gets, CREDIT.max(exchange.in_flight))?;
        let requests = requester.sender(&asks.puts)?;
        let (shared, sent) = (Arc::clone(&gauge), messages.clone());
        let server = std::thread::Builder::new()
            .name(format!("{APPLICATION}answer-{number}"))
            .spawn(move || answer(server, from, to, &sent, &shared))?;
        let shared = Arc::clone(&gauge);
        let requester = std::thread::Builder::new()
            .name(format!("{APPLICATION}ask-{number}"))
            .spawn(move || ask(requester, requests, replies, &messages, exchange.in_flight.max(1), &shared))?;
        Ok(Pair { gauge, requester, server })
    }
}

impl Load for Pair {
    fn counts(&self) -> Counts {
        let answered = self.gauge.answered.load(Ordering::Acquire);
        let asked = self.gauge.asked.load(Ordering::Acquire);
        Counts { transactions: answered, messages: answered + asked, refused: 0, depth: None }
    }

    fn latencies(&self) -> Histogram {
        self.gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn goes_on(&self) -> bool {
        !self.requester.is_finished() && !self.server.is_finished()
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.gauge.stop_asking.store(true, Ordering::Release);
        let asked = super::ended(self.requester);
        self.gauge.stop_answering.store(true, Ordering::Release);
        // A server that failed is the reason why a requester got no answer.
        super::ended(self.server).and(asked)
    }
}

/// The thread that asks. Its requests are answered in their order.
fn ask(
    mut client: Client,
    mut to: Link,
    mut from: Link,
    messages: &Messages,
    in_flight: u32,
    gauge: &Gauge,
) -> Result<()> {
    let mut under_way: VecDeque<Instant> = VecDeque::with_capacity(in_flight as usize);
    let (mut sent, mut answered) = (0u64, 0u64);
    loop {
        let stop = gauge.stop_asking.load(Ordering::Acquire);
        if stop && under_way.is_empty() {
            return client.close();
        }
        if under_way.is_empty() {
            client.nothing_owed();
        }
        while !stop && under_way.len() < in_flight as usize && client.engine.can_send(to.id) {
            under_way.push_back(Instant::now());
            let message = to.out(messages.put(sent))?;
            client.engine.send(to.id, sent, message, false);
            sent += 1;
        }
        client.flush()?;
        client.read(None)?;
        client.check_alive()?;
        while let Some(event) = client.event()? {
            match event {
                Event::Delivery(delivery) => {
                    let asked_at = under_way.pop_front();
                    let right = from.opened(&delivery.payload, |message| messages.is(answered, message))?;
                    let Some(asked_at) = asked_at.filter(|_| right) else {
                        return Err(Error::Wrong(format!("reply {answered} is not its request")));
                    };
                    let took = asked_at.elapsed().as_nanos() as u64;
                    gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner).record(took);
                    client.engine.dispose(from.id, delivery.id, DeliveryState::Accepted);
                    answered += 1;
                    gauge.answered.store(answered, Ordering::Release);
                }
                Event::Outcome { state: Some(DeliveryState::Accepted), .. } => {}
                Event::Outcome { state, token, .. } => return Err(not_taken(token, &state)),
                _ => {}
            }
        }
        top_up(&mut client, from.id, CREDIT.max(in_flight));
    }
}

fn top_up(client: &mut Client, link: LinkId, credit: u32) {
    if client.engine.credit(link) <= credit / 2 {
        client.engine.set_credit(link, credit);
    }
}

/// The thread that answers each request with the same payload.
fn answer(mut client: Client, mut from: Link, mut to: Link, messages: &Messages, gauge: &Gauge) -> Result<()> {
    let mut count = 0u64;
    while !gauge.stop_answering.load(Ordering::Acquire) {
        client.read(None)?;
        while let Some(event) = client.event()? {
            match event {
                Event::Delivery(delivery) => {
                    if !from.opened(&delivery.payload, |message| messages.is(count, message))? {
                        return Err(Error::Wrong(format!("request {count} is not the one that was put")));
                    }
                    let message = to.out(messages.put(count))?;
                    client.engine.send(to.id, count, message, false);
                    client.engine.dispose(from.id, delivery.id, DeliveryState::Accepted);
                    count += 1;
                }
                Event::Outcome { state: Some(DeliveryState::Accepted), .. } => {}
                Event::Outcome { state, token, .. } => return Err(not_taken(token, &state)),
                _ => {}
            }
        }
        gauge.asked.store(count, Ordering::Release);
        top_up(&mut client, from.id, CREDIT);
        client.flush()?;
    }
    client.close()
}
