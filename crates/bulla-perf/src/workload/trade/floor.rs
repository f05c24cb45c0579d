//! Customers and staff at work: a load.

use super::customer::Customer;
use super::mix::Act;
use super::pace::{LOOKS_EVERY, Pace};
use super::staff::Staff;
use crate::error::Result;
use crate::load::client::Broker;
use crate::load::https::Done;
use crate::load::{APPLICATION, Counts, Load};
use bulla_device::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Handshakes, of them those that went on with an earlier session, and requests: a transaction.
pub(super) const HANDSHAKES: &str = "handshakes";
const RESUMED: &str = "resumed-handshakes";
const REQUESTS: &str = "requests";

/// Customers and staff.
#[derive(Debug)]
pub(super) struct Floor {
    gauge: Arc<Gauge>,
    customers: Vec<JoinHandle<Result<()>>>,
    staff: Staff,
    /// What there was when it was last asked what was found.
    found: Totals,
}

#[derive(Debug, Default)]
struct Gauge {
    stop: AtomicBool,
    transactions: AtomicU64,
    totals: Mutex<Totals>,
    latencies: Mutex<Histogram>,
}

/// What all customers have done together.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    done: Done,
    /// Of each kind of act: how many, and how long they took together, nanoseconds.
    acts: [(u64, u64); Act::MIX.len()],
}

impl Totals {
    /// Counts an act, and what the client had done before and after it.
    fn add(&mut self, act: Act, took: u64, before: Done, after: Done) {
        self.done.requests += after.requests - before.requests;
        self.done.connections += after.connections - before.connections;
        self.done.resumed += after.resumed - before.resumed;
        if let Some((count, time)) = self.acts.get_mut(act.number()) {
            (*count, *time) = (*count + 1, *time + took);
        }
    }

    /// What was done since then, a transaction; and how long each kind of act took, microseconds on average.
    fn since(&self, before: &Totals) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        let (mut transactions, pairs) = (0, Act::MIX.iter().zip(self.acts.iter().zip(&before.acts)));
        for ((act, _), (now, then)) in pairs {
            let (count, time) = (now.0 - then.0, now.1 - then.1);
            transactions += count;
            if count > 0 {
                found.insert(format!("{}-us", act.word()), time as f64 / 1e3 / count as f64);
            }
        }
        if transactions > 0 {
            let each = |now: u64, then: u64| (now - then) as f64 / transactions as f64;
            found.insert(HANDSHAKES.to_owned(), each(self.done.connections, before.done.connections));
            found.insert(RESUMED.to_owned(), each(self.done.resumed, before.done.resumed));
            found.insert(REQUESTS.to_owned(), each(self.done.requests, before.done.requests));
        }
        found
    }
}

impl Floor {
    /// Opens the floor: the staff signs in, and the customers come.
    ///
    /// # Errors
    /// [`Error::Broker`](crate::error::Error::Broker): the staff was not let in.
    pub(super) fn open(broker: &Broker, customers: Vec<Customer>, pace: Pace) -> Result<Floor> {
        let staff = Staff::start(broker)?;
        let gauge = Arc::new(Gauge::default());
        let mut floor = Floor { gauge, customers: Vec::new(), staff, found: Totals::default() };
        for (number, customer) in customers.into_iter().enumerate() {
            let gauge = Arc::clone(&floor.gauge);
            let thread = std::thread::Builder::new().name(format!("{APPLICATION}trade-{number}"));
            floor.customers.push(thread.spawn(move || serve(customer, pace, &gauge))?);
        }
        Ok(floor)
    }
}

/// The thread of a customer. A transaction that is due while another one goes on begins later, and its time counts from
/// when it was due.
fn serve(mut customer: Customer, pace: Pace, gauge: &Gauge) -> Result<()> {
    let mut due = Instant::now();
    while !gauge.stop.load(Ordering::Acquire) {
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait.min(LOOKS_EVERY));
            continue;
        }
        let (act, before) = (customer.next(), customer.done());
        customer.act(act)?;
        let took = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
        due = pace.next(due, Instant::now(), customer.random());
        gauge.totals.lock().unwrap_or_else(PoisonError::into_inner).add(act, took, before, customer.done());
        gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner).record(took);
        gauge.transactions.fetch_add(1, Ordering::AcqRel);
    }
    customer.leave();
    Ok(())
}

impl Load for Floor {
    fn counts(&self) -> Counts {
        let ledger = &self.staff.ledger;
        let (orders, forms) = (ledger.orders.load(Ordering::Acquire), ledger.forms.load(Ordering::Acquire));
        let publications = ledger.publications.load(Ordering::Acquire);
        // An order is one message, and its confirmation another one.
        let messages = 2 * orders + forms + publications;
        Counts { transactions: self.gauge.transactions.load(Ordering::Acquire), messages, ..Counts::default() }
    }

    fn latencies(&self) -> Histogram {
        self.gauge.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn goes_on(&self) -> bool {
        !self.customers.iter().any(JoinHandle::is_finished) && self.staff.goes_on()
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        let now = *self.gauge.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let found = now.since(&self.found);
        self.found = now;
        found
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.gauge.stop.store(true, Ordering::Release);
        let ends: Vec<Result<()>> = self.customers.into_iter().map(crate::load::ended).collect();
        let served: Result<()> = ends.into_iter().collect();
        // A broker that failed is the reason why a customer got no confirmation.
        self.staff.stop().and(served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_of_the_sample_alone() {
        let done = |requests, connections| Done { requests, connections, resumed: 0 };
        let mut totals = Totals::default();
        totals.add(Act::Quote, 5_000_000, done(0, 0), done(1, 1));
        let before = totals;
        totals.add(Act::Buy, 3_000_000, done(1, 1), done(3, 3));
        totals.add(Act::Buy, 1_000_000, done(3, 3), done(5, 3));
        let found = totals.since(&before);
        assert_eq!((found[HANDSHAKES], found[REQUESTS], found[RESUMED]), (1.0, 2.0, 0.0));
        assert_eq!((found["buy-us"], found.get("quote-us")), (2000.0, None));
        assert!(totals.since(&totals).is_empty());
    }
}
