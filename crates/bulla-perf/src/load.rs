//! The load: a client that costs little, and what it does all day.
//!
//! Threads that play the application are named [`APPLICATION`]…, and their processor time is the role `application`;
//! whatever else this process does, looking at meters for one thing, is not counted.

pub mod client;
pub mod flow;
pub mod https;
pub mod messages;
pub mod pair;
pub mod starts;

use crate::error::{Error, Result};
use bulla_device::Histogram;
use client::Broker;
use std::collections::BTreeMap;
use std::thread::JoinHandle;

/// How the names of all threads begin that play the application.
pub const APPLICATION: &str = "app-";

/// What a load has counted since it started.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Transactions that were done.
    pub transactions: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Puts that were refused because the queue was full (2053), and done again.
    pub refused: u64,
    /// Messages on queues or on their way from them, as the client sees it; none where nothing queues.
    pub depth: Option<u64>,
}

/// Something that goes on by itself, in threads of its own, and is looked at from outside.
pub trait Load: Send {
    /// What it has counted so far. Asked many times a second: some loads of atomics.
    fn counts(&self) -> Counts;

    /// How long transactions took so far; empty where that is not watched.
    fn latencies(&self) -> Histogram {
        Histogram::new()
    }

    /// All of its threads are at work. When it is not, [`stop`](Self::stop) says why.
    fn goes_on(&self) -> bool;

    /// The sample begins: its counters have been looked at. For a load that waits for this moment.
    fn begin(&mut self) {}

    /// How many transactions it counts at once. A load that counts more than one has samples of whole such lumps.
    fn lump(&self) -> u64 {
        1
    }

    /// It has done all that it had to do: the sample ends here.
    fn is_over(&self) -> bool {
        false
    }

    /// XQTIME of its channel at this moment, microseconds; asked at every moment of a course.
    fn xqtime_us(&mut self) -> Option<f64> {
        None
    }

    /// QTIME of its queue at this moment, microseconds; asked at every moment of a course.
    fn qtime_us(&mut self) -> Option<f64> {
        None
    }

    /// Bytes of messages that lie in scratch files at this moment; asked at every moment of a course.
    fn scratch_used_bytes(&mut self) -> Option<f64> {
        None
    }

    /// What else it found in the sample that ends now, for [`Sample::found`](crate::result::Sample::found). Asked at
    /// the begin of a sample, too, so that it can count from there.
    fn found(&mut self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Ends it in order: every message that was put has then been got.
    ///
    /// # Errors
    /// What went wrong in any of its threads.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Where a client puts, gets, or both.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The broker, and as whom to sign in.
    pub broker: Broker,
    /// The queue to put on.
    pub puts: String,
    /// The queue to get from.
    pub gets: String,
}

impl Seat {
    /// One who only puts, or only gets.
    #[must_use]
    pub fn at(broker: &Broker, queue: &str) -> Seat {
        Seat { broker: broker.clone(), puts: queue.to_owned(), gets: queue.to_owned() }
    }
}

/// Several of a kind that count together.
#[derive(Debug)]
pub struct Loads<L>(pub Vec<L>);

impl<L: Load> Load for Loads<L> {
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for counts in self.0.iter().map(Load::counts) {
            sum.transactions += counts.transactions;
            sum.messages += counts.messages;
            sum.refused += counts.refused;
            sum.depth = counts.depth.map(|depth| depth + sum.depth.unwrap_or(0)).or(sum.depth);
        }
        sum
    }

    fn latencies(&self) -> Histogram {
        let mut sum = Histogram::new();
        for load in &self.0 {
            sum.merge(&load.latencies());
        }
        sum
    }

    fn goes_on(&self) -> bool {
        self.0.iter().all(Load::goes_on)
    }

    fn xqtime_us(&mut self) -> Option<f64> {
        let times: Vec<f64> = self.0.iter_mut().filter_map(Load::xqtime_us).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        let mut sum = BTreeMap::new();
        for (name, value) in self.0.iter_mut().flat_map(Load::found) {
            *sum.entry(name).or_default() += value;
        }
        sum
    }

    fn stop(self: Box<Self>) -> Result<()> {
        // All of them are ended, whatever became of the first, and side by side: each looks around for a moment before
        // it sees that it is to end.
        let ends: Vec<Result<()>> = std::thread::scope(|scope| {
            let ends: Vec<_> = self.0.into_iter().map(|load| scope.spawn(move || Box::new(load).stop())).collect();
            let panicked = |_| Err(Error::Wrong("a thread of the load panicked".to_owned()));
            ends.into_iter().map(|end| end.join().unwrap_or_else(panicked)).collect()
        });
        ends.into_iter().collect()
    }
}

/// How a thread of a load ended.
pub(crate) fn ended(thread: JoinHandle<Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| Err(Error::Wrong("a thread of the load panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    /// Ends when the others end, and not well where it is to fail.
    struct Together(Arc<Barrier>, bool);

    impl Load for Together {
        fn counts(&self) -> Counts {
            Counts { transactions: 1, ..Counts::default() }
        }

        fn goes_on(&self) -> bool {
            true
        }

        fn stop(self: Box<Self>) -> Result<()> {
            self.0.wait();
            if self.1 { Err(Error::Wrong("one failed".to_owned())) } else { Ok(()) }
        }
    }

    #[test]
    fn loads_end_side_by_side_and_all_of_them() {
        let barrier = Arc::new(Barrier::new(3));
        let loads = Loads([true, false, false].map(|fails| Together(Arc::clone(&barrier), fails)).into());
        assert_eq!(loads.counts().transactions, 3);
        assert!(matches!(Box::new(loads).stop(), Err(Error::Wrong(_))));
    }
}
