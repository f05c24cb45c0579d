//! Messages from a thread that puts, through one queue manager or two, to a thread that gets.

use super::Result;
use super::client::{Client, Messages};
use super::manager::Manager;
use super::processor::{self, Roles};
use bulla::mqsc::Snapshot;
use bulla_amqp::{DeliveryState, Event, LinkId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the depth of the queue is looked at.
const SAMPLE: Duration = Duration::from_millis(20);
/// Messages on the queue beyond which the putter waits for the getter, in windows.
const BACKLOG_WINDOWS: u64 = 4;
/// How long the putter sleeps when it is ahead of its schedule or of the getter.
const NAP: Duration = Duration::from_millis(1);
/// Part of the window that must be free before the putter fills it up again: so many messages share a write.
const REFILL_PART: u64 = 8;

/// What both threads and their observer see.
#[derive(Default)]
struct Gauge {
    sent: AtomicU64,
    confirmed: AtomicU64,
    got: AtomicU64,
    /// No more is put; what is there is got.
    stop: AtomicBool,
    /// Everything put is confirmed.
    done: AtomicBool,
}

/// Where messages are put or got.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) manager: &'a Manager,
    pub(crate) queue: &'a str,
    pub(crate) user: &'a str,
}

/// A stream that flows.
pub(crate) struct Stream<'a> {
    from: &'a Manager,
    to: &'a Manager,
    gauge: Arc<Gauge>,
    threads: Vec<JoinHandle<Result<()>>>,
}

/// How fast to put.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// As fast as it goes.
    Flat,
    /// So many a second, whatever becomes of them.
    Rate(u64),
}

/// What happened between two looks.
#[derive(Clone)]
pub(crate) struct Window {
    /// How long it was.
    pub(crate) time: Duration,
    /// Messages got.
    pub(crate) messages: u64,
    /// Messages on the queue or on their way from it, as the client sees it: least, mean and most.
    pub(crate) depth: (u64, f64, u64),
    /// Processor time of the queue manager, nanoseconds by role; where there are two, that of the one on which messages are
    /// put is under `partner`.
    pub(crate) manager: Roles,
    /// Processor time of the client, nanoseconds by role.
    pub(crate) client: Roles,
    /// Cores that everybody else used.
    pub(crate) elsewhere: f64,
    /// Cores that were busy, with whatever: where it is all of them, nobody waited for anything but a core.
    pub(crate) busy: f64,
    /// What the devices did, of the queue manager from which messages are got.
    pub(crate) devices: Snapshot,
}

impl Window {
    /// Messages a second.
    pub(crate) fn rate(&self) -> f64 {
        self.messages as f64 / self.time.as_secs_f64()
    }

    /// Microseconds of processor time for a message: client, and queue manager.
    pub(crate) fn costs(&self) -> (f64, f64) {
        let each = |roles: &Roles| roles.values().sum::<u64>() as f64 / 1000.0 / self.messages.max(1) as f64;
        (each(&self.client), each(&self.manager))
    }
}

/// One look at all counters.
struct Look {
    at: Instant,
    got: u64,
    manager: Roles,
    client: Roles,
    everybody: u64,
    devices: Snapshot,
}

impl<'a> Stream<'a> {
    /// Starts both threads.
    pub(crate) fn start(put_on: Place<'a>, get_from: Place<'a>, window: u64, pace: Pace) -> Result<Stream<'a>> {
        let gauge = Arc::new(Gauge::default());
        let mut getter = Client::connect(&get_from.manager.address, get_from.user)?;
        let from = getter.receiver(get_from.queue, u32::try_from(window)?)?;
        let mut putter = Client::connect(&put_on.manager.address, put_on.user)?;
        let to = putter.sender(put_on.queue)?;
        let shared = Arc::clone(&gauge);
        let gets = std::thread::Builder::new()
            .name("getter".into())
            .spawn(move || get(getter, from, u32::try_from(window)?, &shared))?;
        let shared = Arc::clone(&gauge);
        let puts =
            std::thread::Builder::new().name("putter".into()).spawn(move || put(putter, to, window, pace, &shared))?;
        Ok(Stream { from: put_on.manager, to: get_from.manager, gauge, threads: vec![puts, gets] })
    }

    /// Lets it flow for a while and says what happened.
    pub(crate) fn watch(&self, time: Duration) -> Result<Window> {
        let before = self.look()?;
        let end = before.at + time;
        let (mut least, mut sum, mut most, mut count) = (u64::MAX, 0, 0, 0);
        while Instant::now() < end && self.flows() {
            std::thread::sleep(SAMPLE.min(end.saturating_duration_since(Instant::now())));
            // In this order, so that what is confirmed between the two counts as depth.
            let got = self.gauge.got.load(Ordering::Acquire);
            let depth = self.gauge.confirmed.load(Ordering::Acquire).saturating_sub(got);
            (least, sum, most, count) = (least.min(depth), sum + depth, most.max(depth), count + 1);
        }
        let after = self.look()?;
        let (manager_used, client_used) =
            (processor::since(&after.manager, &before.manager), processor::since(&after.client, &before.client));
        let ours = manager_used.values().sum::<u64>() + client_used.values().sum::<u64>();
        let time = after.at - before.at;
        let busy = after.everybody.saturating_sub(before.everybody);
        let cores = |ns: u64| ns as f64 / time.as_nanos().max(1) as f64;
        let devices = after.devices.devices.iter().map(|device| {
            let earlier = before.devices.devices.iter().find(|earlier| earlier.name == device.name);
            earlier.map_or_else(|| device.clone(), |earlier| device.since(earlier))
        });
        Ok(Window {
            time,
            messages: after.got - before.got,
            depth: (if count == 0 { 0 } else { least }, sum as f64 / f64::from(count.max(1)), most),
            manager: manager_used,
            client: client_used,
            elsewhere: cores(busy.saturating_sub(ours)),
            busy: cores(busy),
            devices: Snapshot { taken_ms: after.devices.taken_ms, devices: devices.collect() },
        })
    }

    /// Both threads are at work.
    pub(crate) fn flows(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends it; every message that was put has then been got. What went wrong in either thread is the error.
    pub(crate) fn stop(self) -> Result<()> {
        self.gauge.stop.store(true, Ordering::Release);
        let ends =
            self.threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ends.collect::<Vec<_>>().into_iter().collect()
    }

    fn look(&self) -> Result<Look> {
        let mut client = processor::by_role(std::process::id())?;
        client.retain(|role, _| matches!(role.as_str(), "putter" | "getter"));
        let mut manager = processor::by_role(self.to.pid())?;
        if self.from.pid() != self.to.pid() {
            manager.extend(
                processor::by_role(self.from.pid())?.into_iter().map(|(role, ns)| (format!("partner {role}"), ns)),
            );
        }
        Ok(Look {
            devices: self.to.meters()?,
            client,
            manager,
            everybody: processor::of_everybody()?,
            got: self.gauge.got.load(Ordering::Acquire),
            at: Instant::now(),
        })
    }
}

/// The thread that puts. A message costs it a reference count, a frame head and its part of a write and of a read.
fn put(mut client: Client, link: LinkId, window: u64, pace: Pace, gauge: &Gauge) -> Result<()> {
    let messages = Messages::new();
    let begun = Instant::now();
    let (mut sent, mut confirmed) = (0u64, 0u64);
    loop {
        let stop = gauge.stop.load(Ordering::Acquire);
        if stop && sent == confirmed {
            break;
        }
        let free = window - (sent - confirmed);
        let ahead = sent - gauge.got.load(Ordering::Acquire);
        let mut held_back = stop;
        if !stop {
            let (refill, due) = match pace {
                Pace::Flat => (free >= window.div_ceil(REFILL_PART), (BACKLOG_WINDOWS * window).saturating_sub(ahead)),
                Pace::Rate(rate) => {
                    let due = begun.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000;
                    (true, u64::try_from(due)?.saturating_sub(sent))
                }
            };
            held_back = due == 0;
            let mut count = if refill { free.min(due) } else { 0 };
            while count > 0 && client.engine.can_send(link) {
                client.engine.send(link, sent, messages.put(sent), false);
                (sent, count) = (sent + 1, count - 1);
            }
            gauge.sent.store(sent, Ordering::Release);
        }
        client.flush()?;
        // Whoever waits for a schedule or for the getter hears nothing from the socket.
        let nap = matches!(pace, Pace::Rate(_)) || (held_back && sent == confirmed);
        client.read(nap.then(|| Instant::now() + NAP))?;
        while let Some(event) = client.event()? {
            match event {
                Event::Outcome { state: Some(DeliveryState::Accepted), .. } => confirmed += 1,
                Event::Outcome { state, .. } => return Err(format!("a put came to {state:?}").into()),
                _ => {}
            }
        }
        gauge.confirmed.store(confirmed, Ordering::Release);
        if sent == confirmed {
            client.nothing_owed();
        }
        client.check_alive()?;
    }
    gauge.done.store(true, Ordering::Release);
    client.close()
}

/// The thread that gets: compares each message with the one that was put, and accepts it.
fn get(mut client: Client, link: LinkId, credit: u32, gauge: &Gauge) -> Result<()> {
    let messages = Messages::new();
    let mut got = 0u64;
    loop {
        client.read(None)?;
        while let Some(event) = client.event()? {
            if let Event::Delivery(delivery) = event {
                if !messages.is(got, &delivery.payload) {
                    return Err(format!("message {got} is not the one that was put").into());
                }
                client.engine.dispose(link, delivery.id, DeliveryState::Accepted);
                got += 1;
            }
        }
        gauge.got.store(got, Ordering::Release);
        if client.engine.credit(link) <= credit / 2 {
            client.engine.set_credit(link, credit);
        }
        client.flush()?;
        if got == gauge.sent.load(Ordering::Acquire) {
            client.nothing_owed();
            if gauge.done.load(Ordering::Acquire) {
                return client.close();
            }
        }
        client.check_alive()?;
    }
}
