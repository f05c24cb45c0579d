//! Messages from a thread that puts, through one queue manager or two, to a thread that gets.

use crate::error::{Error, Result};
use crate::load::client::{Client, Link, not_taken};
use crate::load::messages::Messages;
use crate::load::{APPLICATION, Counts, Load, Seat};
use bulla_amqp::{DeliveryState, Event, Value};
use bulla_device::Histogram;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Messages on the queue beyond which a putter without a rate waits for the getter, in windows.
const BACKLOG_WINDOWS: u64 = 4;
/// How long the putter sleeps when it is ahead of its schedule or of the getter.
const NAP: Duration = Duration::from_millis(1);
/// Part of the window that must be free before the putter fills it up again: so many messages share a write.
const REFILL_PART: u64 = 8;
/// How long a putter waits before it puts a message again that found the queue full (2053).
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// How long a getter with a rate works before it looks whether the stream ends.
const WORK_NAP: Duration = Duration::from_millis(50);
/// The reason code of a full queue.
const Q_FULL: i64 = 2053;
/// Of so many messages one has its time taken.
const TIMED_EVERY: u64 = 8;
/// So many of them at least may be under way and have the moment known at which they were put.
const TIMED_MIN: u64 = 16_384;
/// A message that is put later than this after its schedule was held back, and its time counts from the schedule. Less
/// is the putter's own naps.
const LATE: Duration = Duration::from_millis(2);

/// How fast to put.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as it goes.
    Flat,
    /// So many a second, whatever becomes of them.
    Rate(f64),
}

/// What flows, and how.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Payload of a message, bytes.
    pub bytes: usize,
    /// Whether messages are persistent.
    pub persistent: bool,
    /// How fast.
    pub pace: Pace,
    /// Messages put and not yet confirmed, and the credit of the getter; 1 at least.
    pub window: u32,
    /// Messages a second that the getter takes; none for as fast as they come.
    pub getter_rate: Option<f64>,
    /// The longest message that the getter takes, bytes; 0 for any.
    pub receiver_bytes: u64,
}

/// What both threads and their observer see.
struct Gauge {
    sent: AtomicU64,
    confirmed: AtomicU64,
    refused: AtomicU64,
    got: AtomicU64,
    /// No more is put; what is there is got.
    stop: AtomicBool,
    /// Everything put is confirmed.
    done: AtomicBool,
    /// One of the two has failed, so the other need not wait for it.
    failed: AtomicBool,
    begun: Instant,
    /// When every [`TIMED_EVERY`]th message was put, or was due where it was held back; nanoseconds since `begun`, in
    /// turns.
    put_at: Box<[AtomicU64]>,
    pace: Pace,
    /// When the schedule began, nanoseconds since `begun`.
    schedule_at: AtomicU64,
    latencies: Mutex<Histogram>,
    /// Messages that came so late, or out of their turn, that nothing tells when they were put.
    untimed: AtomicU64,
}

/// A stream that flows.
#[derive(Debug)]
pub struct Stream {
    gauge: Arc<Gauge>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// How many were untimed when it was asked last.
    untimed: u64,
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauge").field("sent", &self.sent).field("got", &self.got).finish_non_exhaustive()
    }
}

impl Gauge {
    fn new(pace: Pace, window: u32) -> Gauge {
        // Without a rate no more than these are ahead of the getter.
        let ahead = BACKLOG_WINDOWS * u64::from(window) / TIMED_EVERY + 1;
        Gauge {
            sent: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            got: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            done: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            begun: Instant::now(),
            put_at: (0..ahead.max(TIMED_MIN)).map(|_| AtomicU64::new(0)).collect(),
            pace,
            schedule_at: AtomicU64::new(0),
            latencies: Mutex::new(Histogram::new()),
            untimed: AtomicU64::new(0),
        }
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.put_at[(number / TIMED_EVERY) as usize % self.put_at.len()]
    }

    /// The time of message `number`, which is put now, counts from that many nanoseconds after `begun`.
    fn put(&self, number: u64, at_ns: u64) {
        // A message found at an earlier one's number shows also that the earlier one was taken.
        self.sent.store(number + 1, Ordering::Relaxed);
        self.place(number).store(at_ns, Ordering::Release);
    }

    /// From when the time of message `number` counts, which has come; nanoseconds since `begun`. None where nothing
    /// tells.
    fn counts_from(&self, number: u64) -> Option<u64> {
        let put_at = self.place(number).load(Ordering::Acquire);
        if self.sent.load(Ordering::Acquire) <= number + TIMED_EVERY * self.put_at.len() as u64 {
            return Some(put_at);
        }
        // So many came after it that its place was taken. When it was due its number says; it may have been put up to
        // LATE afterwards, which is little of the time that so many messages take.
        let Pace::Rate(rate) = self.pace else { return None };
        Some(self.schedule_at.load(Ordering::Relaxed) + due_after(number, rate).as_nanos() as u64)
    }
}

impl Stream {
    /// Connects both, and starts their threads; `number` tells streams apart.
    ///
    /// # Errors
    /// [`Error::Broker`]: one of them was not let in.
    pub fn start(putter: &Seat, getter: &Seat, flow: Flow, number: usize) -> Result<Stream> {
        let window = flow.window.max(1);
        let gauge = Arc::new(Gauge::new(flow.pace, window));
        let messages = Messages::of(flow.bytes, flow.persistent);
        let mut gets = Client::connect(&getter.broker, &format!("get-{number}"))?;
        let from = gets.receiver_of(&getter.gets, window, flow.receiver_bytes)?;
        let mut puts = Client::connect(&putter.broker, &format!("put-{number}"))?;
        let to = puts.sender(&putter.puts)?;
        let mut stream = Stream { gauge: Arc::clone(&gauge), threads: Vec::new(), untimed: 0 };
        let (shared, expected) = (Arc::clone(&gauge), messages.clone());
        stream.spawn(format!("{APPLICATION}get-{number}"), move || {
            let getter = Getter { credit: window, rate: flow.getter_rate };
            let got = get(gets, from, getter, &expected, &shared);
            shared.failed.fetch_or(got.is_err(), Ordering::AcqRel);
            got
        })?;
        stream.spawn(format!("{APPLICATION}put-{number}"), move || {
            let put = Putter::new(puts, to, messages, u64::from(window), &gauge).run();
            gauge.failed.fetch_or(put.is_err(), Ordering::AcqRel);
            put
        })?;
        Ok(stream)
    }

    fn spawn(&mut self, name: String, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }
}

impl Load for Stream {
    fn counts(&self) -> Counts {
        // In this order, so that what is confirmed between the two counts as depth.
        let got = self.gauge.got.load(Ordering::Acquire);
        let depth = self.gauge.confirmed.load(Ordering::Acquire).saturating_sub(got);
        let refused = self.gauge.refused.load(Ordering::Relaxed);
        Counts { transactions: got, messages: got, refused, depth: Some(depth) }
    }

    fn latencies(&self) -> Histogram {
        self.gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        let before = std::mem::replace(&mut self.untimed, self.gauge.untimed.load(Ordering::Relaxed));
        let untimed = self.untimed.saturating_sub(before);
        if untimed > 0 { BTreeMap::from([("untimed-messages".to_owned(), untimed as f64)]) } else { BTreeMap::new() }
    }

    fn goes_on(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.gauge.stop.store(true, Ordering::Release);
        let ends: Vec<Result<()>> = self.threads.into_iter().map(super::ended).collect();
        ends.into_iter().collect()
    }
}

/// The thread that puts. A message costs it a reference count, a frame head and its part of a write and of a read.
struct Putter<'a> {
    client: Client,
    link: Link,
    messages: Messages,
    window: u64,
    gauge: &'a Gauge,
    /// Messages put for the first time; their numbers.
    sent: u64,
    confirmed: u64,
    /// Numbers of messages that found the queue full, to be put again.
    again: VecDeque<u64>,
    /// Not before this time.
    again_at: Instant,
}

impl<'a> Putter<'a> {
    fn new(client: Client, link: Link, messages: Messages, window: u64, gauge: &'a Gauge) -> Self {
        let (again, again_at) = (VecDeque::new(), gauge.begun);
        Putter { client, link, messages, window, gauge, sent: 0, confirmed: 0, again, again_at }
    }

    fn run(mut self) -> Result<()> {
        let begun = Instant::now();
        let schedule_at = begun.duration_since(self.gauge.begun).as_nanos() as u64;
        self.gauge.schedule_at.store(schedule_at, Ordering::Relaxed);
        loop {
            let stop = self.gauge.stop.load(Ordering::Acquire);
            if (stop && self.sent == self.confirmed) || self.gauge.failed.load(Ordering::Acquire) {
                break;
            }
            let idle = if self.again.is_empty() { stop || !self.put_what_is_due(begun)? } else { !self.put_again()? };
            self.client.flush()?;
            // A thread that waits for a schedule, for the getter or for room hears nothing from the socket.
            let outstanding = self.sent - self.confirmed - self.again.len() as u64;
            let nap = matches!(self.gauge.pace, Pace::Rate(_)) || (idle && outstanding == 0);
            self.client.read(nap.then(|| Instant::now() + NAP))?;
            self.settle()?;
            if self.sent == self.confirmed || outstanding == 0 {
                self.client.nothing_owed();
            }
            self.client.check_alive()?;
        }
        self.gauge.done.store(true, Ordering::Release);
        self.client.close()
    }

    /// Puts what the schedule or the getter leaves room for; whether there was any.
    fn put_what_is_due(&mut self, begun: Instant) -> Result<bool> {
        let free = self.window - (self.sent - self.confirmed);
        let (refill, due) = match self.gauge.pace {
            Pace::Flat => {
                // A broker may deliver more than was put: the getter says so.
                let ahead = self.sent.saturating_sub(self.gauge.got.load(Ordering::Acquire));
                (free >= self.window.div_ceil(REFILL_PART), (BACKLOG_WINDOWS * self.window).saturating_sub(ahead))
            }
            Pace::Rate(rate) => (true, ((begun.elapsed().as_secs_f64() * rate) as u64).saturating_sub(self.sent)),
        };
        let mut count = if refill { free.min(due) } else { 0 };
        while count > 0 && self.client.engine.can_send(self.link.id) {
            if self.sent.is_multiple_of(TIMED_EVERY) {
                let from = counts_from(self.gauge.pace, self.sent, begun, Instant::now());
                self.gauge.put(self.sent, from.duration_since(self.gauge.begun).as_nanos() as u64);
            }
            let message = self.link.out(self.messages.put(self.sent))?;
            self.client.engine.send(self.link.id, self.sent, message, false);
            (self.sent, count) = (self.sent + 1, count - 1);
        }
        self.gauge.sent.store(self.sent, Ordering::Release);
        Ok(due > 0)
    }

    /// Puts messages again that found the queue full, once it is time; whether there were any.
    fn put_again(&mut self) -> Result<bool> {
        if Instant::now() < self.again_at {
            return Ok(false);
        }
        let mut any = false;
        while let Some(number) = self.again.front().copied()
            && self.client.engine.can_send(self.link.id)
        {
            let message = self.link.out(self.messages.put(number))?;
            self.client.engine.send(self.link.id, number, message, false);
            self.again.pop_front();
            any = true;
        }
        Ok(any)
    }

    /// Takes note of what became of messages.
    fn settle(&mut self) -> Result<()> {
        while let Some(event) = self.client.event()? {
            match event {
                Event::Outcome { state: Some(DeliveryState::Accepted), .. } => self.confirmed += 1,
                Event::Outcome { state, token, .. } => {
                    if !found_the_queue_full(&state) {
                        return Err(not_taken(token, &state));
                    }
                    self.gauge.refused.fetch_add(1, Ordering::AcqRel);
                    self.again.push_back(token);
                    self.again_at = Instant::now() + RETRY_AFTER;
                }
                _ => {}
            }
        }
        self.gauge.confirmed.store(self.confirmed, Ordering::Release);
        Ok(())
    }
}

/// From when a message's time counts that is put now: where the schedule had it due before, from then, however long it
/// was held back. Else a client that waits for a slow system would see only the messages that it lets through.
fn counts_from(pace: Pace, number: u64, begun: Instant, now: Instant) -> Instant {
    let Pace::Rate(rate) = pace else { return now };
    let due = begun + due_after(number, rate);
    if now.saturating_duration_since(due) > LATE { due } else { now }
}

/// How long after its begin the schedule has a message due.
fn due_after(number: u64, rate: f64) -> Duration {
    Duration::from_secs_f64((number + 1) as f64 / rate)
}

/// Whether a put came to 2053: from Bulla with the number, from another broker by the condition of AMQP alone.
fn found_the_queue_full(state: &Option<DeliveryState>) -> bool {
    let Some(DeliveryState::Rejected(Some(error))) = state else { return false };
    let reason = error.info.iter().find(|(key, _)| key.as_str() == "reason").map(|(_, value)| value);
    match reason {
        Some(Value::Uint(code)) => i64::from(*code) == Q_FULL,
        Some(Value::Int(code)) => i64::from(*code) == Q_FULL,
        _ => error.condition.as_str() == "amqp:resource-limit-exceeded",
    }
}

/// How the getter gets.
#[derive(Clone, Copy, Debug)]
struct Getter {
    credit: u32,
    /// Messages a second that it takes at most, until the stream ends: then it takes what is left as it comes.
    rate: Option<f64>,
}

impl Getter {
    /// Works on so many messages, which takes their time; when the last work was over comes in and out. The rest of a
    /// stream that ends is taken as it comes.
    fn work(self, count: u64, over_at: &mut Instant, gauge: &Gauge) {
        let Some(rate) = self.rate else { return };
        *over_at = Instant::now().max(*over_at) + Duration::from_secs_f64(count as f64 / rate);
        while let Some(left) = over_at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            && !gauge.stop.load(Ordering::Acquire)
        {
            std::thread::sleep(left.min(WORK_NAP));
        }
    }
}

/// The thread that gets: compares each message with the one that was put, and accepts it.
fn get(mut client: Client, mut link: Link, getter: Getter, messages: &Messages, gauge: &Gauge) -> Result<()> {
    let (mut got, mut check) = (0u64, Order::default());
    let (credit, mut over_at) = (getter.credit, Instant::now());
    loop {
        client.read(None)?;
        let before = got;
        while let Some(event) = client.event()? {
            if let Event::Delivery(delivery) = event {
                if !link.opened(&delivery.payload, |message| check.takes(messages, message))? {
                    return Err(Error::Wrong(format!("message {got} is not the one that was put")));
                }
                if got.is_multiple_of(TIMED_EVERY) {
                    // Out of its turn it has another number.
                    take_time(gauge, check.strict().then_some(got));
                }
                client.engine.dispose(link.id, delivery.id, DeliveryState::Accepted);
                got += 1;
            }
        }
        if got > gauge.sent.load(Ordering::Acquire) {
            return Err(Error::Wrong(format!("{got} messages came, more than were put: the queue was not empty")));
        }
        gauge.got.store(got, Ordering::Release);
        getter.work(got - before, &mut over_at, gauge);
        if client.engine.credit(link.id) <= credit / 2 {
            client.engine.set_credit(link.id, credit);
        }
        client.flush()?;
        let done = gauge.done.load(Ordering::Acquire);
        if got == gauge.sent.load(Ordering::Acquire) {
            client.nothing_owed();
            if done {
                check.settle(got, gauge.refused.load(Ordering::Acquire))?;
                return client.close();
            }
        }
        if gauge.failed.load(Ordering::Acquire) {
            return client.close();
        }
        client.check_alive()?;
    }
}

/// Takes note of how long the message was under way that has just come, if it is known which one that is.
fn take_time(gauge: &Gauge, number: Option<u64>) {
    let Some(put_at) = number.and_then(|number| gauge.counts_from(number)) else {
        gauge.untimed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let now = gauge.begun.elapsed().as_nanos() as u64;
    let mut latencies = gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner);
    latencies.record(now.saturating_sub(put_at));
}

/// Whether each message comes once, whole, and in its turn. What found the queue full and was put again comes later
/// than its turn: then each kind of message must have come as often as it was put.
#[derive(Debug, Default)]
struct Order {
    count: u64,
    out_of_turn: u64,
    /// By kind of message: how many more came than their turn said.
    surplus: BTreeMap<u64, i64>,
}

impl Order {
    fn takes(&mut self, messages: &Messages, payload: &bulla_amqp::Payload) -> bool {
        let turn = self.count;
        self.count += 1;
        if messages.is(turn, payload) {
            return true;
        }
        let Some(which) = messages.which(payload) else { return false };
        self.out_of_turn += 1;
        *self.surplus.entry(which).or_default() += 1;
        *self.surplus.entry(turn % messages.kinds()).or_default() -= 1;
        true
    }

    fn strict(&self) -> bool {
        self.out_of_turn == 0
    }

    /// The end: nothing is owed any more.
    fn settle(&self, got: u64, refused: u64) -> Result<()> {
        if self.out_of_turn > 0 && refused == 0 {
            return Err(Error::Wrong(format!("{} of {got} messages came out of their turn", self.out_of_turn)));
        }
        if self.surplus.values().any(|surplus| *surplus != 0) {
            return Err(Error::Wrong(format!("of {got} messages some came twice, and others never")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(numbers: &[u64]) -> (Order, bool) {
        let messages = Messages::of(100, false);
        let mut order = Order::default();
        let taken = numbers.iter().all(|number| order.takes(&messages, &messages.put(*number)));
        (order, taken)
    }

    #[test]
    fn messages_out_of_their_turn_are_forgiven_only_where_one_was_put_again() {
        let (good, taken) = order(&[0, 1, 2, 3]);
        assert!(taken && good.strict() && good.settle(4, 0).is_ok());
        let (swapped, taken) = order(&[0, 2, 3, 1]);
        assert!(taken && !swapped.strict());
        assert!(swapped.settle(4, 0).is_err());
        assert!(swapped.settle(4, 1).is_ok());
    }

    #[test]
    fn a_message_that_was_held_back_counts_from_its_schedule() {
        let begun = Instant::now();
        let after = |ms: u64| begun + Duration::from_millis(ms);
        // At 1000 a second message 9 is due after 10 ms.
        let from = |ms| counts_from(Pace::Rate(1000.0), 9, begun, after(ms));
        assert_eq!((from(10), from(11), from(500)), (after(10), after(11), after(10)));
        assert_eq!(counts_from(Pace::Flat, 9, begun, after(500)), after(500));
    }

    #[test]
    fn a_message_that_is_far_behind_counts_from_its_schedule_and_none_is_left_out() {
        const MS: u64 = 1_000_000;
        let gauge = Gauge::new(Pace::Rate(1000.0), 512);
        gauge.schedule_at.store(5 * MS, Ordering::Relaxed);
        // Each is put a millisecond after it was due; message 0 after 1 ms.
        let due = |number: u64| (5 + number + 1) * MS;
        let put_until = |end: u64| (0..end).step_by(TIMED_EVERY as usize).for_each(|n| gauge.put(n, due(n) + MS));
        put_until(TIMED_EVERY * TIMED_MIN);
        assert_eq!(gauge.counts_from(0), Some(due(0) + MS), "all places are taken once");
        put_until(TIMED_EVERY * (TIMED_MIN + 1));
        assert_eq!(gauge.counts_from(0), Some(due(0)), "its place was taken by a later one");
        assert_eq!(gauge.counts_from(TIMED_EVERY), Some(due(TIMED_EVERY) + MS));
        let begun_ns = gauge.begun.elapsed().as_nanos() as u64;
        take_time(&gauge, Some(0));
        let latencies = gauge.latencies.lock().unwrap();
        assert_eq!((latencies.count(), gauge.untimed.load(Ordering::Relaxed)), (1, 0));
        assert!(latencies.max() >= begun_ns.saturating_sub(due(0)));
    }

    #[test]
    fn without_a_rate_every_message_that_may_be_under_way_has_its_place() {
        for window in [1, 512, 65_536] {
            let gauge = Gauge::new(Pace::Flat, window);
            let ahead = BACKLOG_WINDOWS * u64::from(window);
            (0..ahead).step_by(TIMED_EVERY as usize).for_each(|number| gauge.put(number, number));
            assert_eq!((gauge.counts_from(0), gauge.counts_from(8)), (Some(0), Some(if ahead > 8 { 8 } else { 0 })));
        }
    }

    #[test]
    fn what_is_not_known_by_its_number_is_counted_as_untimed() {
        let gauge = Gauge::new(Pace::Flat, 1);
        gauge.put(0, 0);
        gauge.put(TIMED_EVERY * TIMED_MIN, 7);
        [None, Some(0)].into_iter().for_each(|number| take_time(&gauge, number));
        let mut stream = Stream { gauge: Arc::new(gauge), threads: Vec::new(), untimed: 0 };
        assert_eq!(stream.latencies().count(), 0);
        assert_eq!(stream.found(), BTreeMap::from([("untimed-messages".to_owned(), 2.0)]));
        assert_eq!(stream.found(), BTreeMap::new(), "since it was asked last");
    }

    #[test]
    fn a_message_that_comes_twice_for_another_is_found() {
        let (twice, _) = order(&[0, 1, 1, 3]);
        assert!(twice.settle(4, 1).is_err());
        let messages = Messages::of(100, false);
        let other = Messages::of(100, true).put(0).slice(0..50);
        assert!(!Order::default().takes(&messages, &other));
    }
}
