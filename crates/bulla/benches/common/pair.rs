//! One outstanding request and its reply, through one queue manager or two.

use super::Result;
use super::client::{Client, Messages};
use bulla_amqp::{DeliveryState, Event, LinkId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Credit of the receiving ends.
const CREDIT: u32 = 64;

/// Where one of the two sits.
#[derive(Clone, Copy)]
pub(crate) struct Seat<'a> {
    /// Address of its queue manager.
    pub(crate) address: &'a str,
    /// As whom it signs in.
    pub(crate) user: &'a str,
    /// The queue on which it puts.
    pub(crate) puts: &'a str,
    /// The queue from which it gets.
    pub(crate) gets: &'a str,
}

/// A requester and its server at work.
pub(crate) struct Pair {
    requester: Client,
    requests: LinkId,
    replies: LinkId,
    messages: Messages,
    count: u64,
    stop: Arc<AtomicBool>,
    server: JoinHandle<Result<()>>,
}

impl Pair {
    /// Connects both, and starts the server's thread.
    pub(crate) fn start(asks: Seat<'_>, answers: Seat<'_>, messages: &Messages) -> Result<Pair> {
        let mut server = Client::connect(answers.address, answers.user)?;
        let from = server.receiver(answers.gets, CREDIT)?;
        let to = server.sender(answers.puts)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, replies) = (Arc::clone(&stop), messages.clone());
        let server = std::thread::Builder::new()
            .name("server".into())
            .spawn(move || serve(server, from, to, &replies, &stopping))?;
        let mut requester = Client::connect(asks.address, asks.user)?;
        let replies = requester.receiver(asks.gets, CREDIT)?;
        let requests = requester.sender(asks.puts)?;
        Ok(Pair { requester, requests, replies, messages: messages.clone(), count: 0, stop, server })
    }

    /// Transactions so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Asks, and waits for the answer.
    pub(crate) fn transaction(&mut self) -> Result<()> {
        let client = &mut self.requester;
        client.nothing_owed();
        client.engine.send(self.requests, self.count, self.messages.put(self.count), false);
        client.flush()?;
        loop {
            client.read(None)?;
            client.check_alive()?;
            let mut answered = false;
            while let Some(event) = client.event()? {
                match event {
                    Event::Delivery(delivery) => {
                        if !self.messages.is(self.count, &delivery.payload) {
                            return Err(format!("reply {} is not its request", self.count).into());
                        }
                        client.engine.dispose(self.replies, delivery.id, DeliveryState::Accepted);
                        answered = true;
                    }
                    Event::Outcome { state: Some(DeliveryState::Accepted), .. } => {}
                    Event::Outcome { state, .. } => return Err(format!("a request came to {state:?}").into()),
                    _ => {}
                }
            }
            if answered {
                top_up(client, self.replies);
                self.count += 1;
                return Ok(());
            }
        }
    }

    /// Microseconds of a transaction in one round.
    pub(crate) fn round(&mut self, time: Duration) -> Result<f64> {
        let begun = Instant::now();
        let mut count = 0u32;
        while begun.elapsed() < time {
            self.transaction()?;
            count += 1;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }

    /// Ends both in order.
    pub(crate) fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.requester.close()?;
        self.server.join().unwrap_or_else(|_| Err("the server panicked".into()))
    }
}

fn top_up(client: &mut Client, link: LinkId) {
    if client.engine.credit(link) <= CREDIT / 2 {
        client.engine.set_credit(link, CREDIT);
    }
}

/// The thread that answers each request with the same payload.
fn serve(mut client: Client, from: LinkId, to: LinkId, messages: &Messages, stop: &AtomicBool) -> Result<()> {
    let mut count = 0u64;
    while !stop.load(Ordering::Acquire) {
        client.read(None)?;
        while let Some(event) = client.event()? {
            match event {
                Event::Delivery(delivery) => {
                    client.engine.send(to, count, messages.put(count), false);
                    client.engine.dispose(from, delivery.id, DeliveryState::Accepted);
                    count += 1;
                }
                Event::Outcome { state: Some(DeliveryState::Accepted), .. } => {}
                Event::Outcome { state, .. } => return Err(format!("a reply came to {state:?}").into()),
                _ => {}
            }
        }
        top_up(&mut client, from);
        client.flush()?;
    }
    client.close()
}
