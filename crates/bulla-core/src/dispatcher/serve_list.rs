//! The queues that are to be served in this turn, each once, in the order in which they were asked for.

use crate::maps::HashMap;
use bulla_queue::QueueId;

/// Up to so many a look at all of them costs less than a hash.
const SCANNED_MAX: usize = 16;

/// A queue to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub(crate) queue: QueueId,
    /// The queue has changed, or something that its links wait for. Otherwise only those with new credit are looked at.
    pub has_changed: bool,
}

/// The queues to serve.
#[derive(Debug, Default)]
pub struct ServeList {
    order: Vec<Asked>,
    /// Where each of them is, once they are more than are looked at one by one.
    known: HashMap<QueueId, usize>,
}

impl ServeList {
    /// Has `queue` served, too, for all its links that may take something. Hot path, several times a message.
    pub fn add(&mut self, queue: QueueId) {
        self.ask(Asked { queue, has_changed: true });
    }

    /// Has `queue` served, too, for links with new credit.
    pub fn add_for_credit(&mut self, queue: QueueId) {
        self.ask(Asked { queue, has_changed: false });
    }

    fn ask(&mut self, asked: Asked) {
        let found = if self.order.len() < SCANNED_MAX {
            self.order.iter().position(|known| known.queue == asked.queue)
        } else {
            if self.known.is_empty() {
                self.known.extend(self.order.iter().enumerate().map(|(at, known)| (known.queue, at)));
            }
            let at = *self.known.entry(asked.queue).or_insert(self.order.len());
            (at < self.order.len()).then_some(at)
        };
        match found {
            Some(at) => self.order[at].has_changed |= asked.has_changed,
            None => self.order.push(asked),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Moves those there are to `into`, whose memory the list takes for the next turn; from then on there are none.
    pub fn take(&mut self, into: &mut Vec<Asked>) {
        self.known.clear();
        into.clear();
        std::mem::swap(&mut self.order, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_is_there_once_in_the_order_of_asking_however_many_there_are() {
        let (mut list, mut taken) = (ServeList::default(), Vec::new());
        for count in [3, SCANNED_MAX, SCANNED_MAX + 1, 1_000] {
            let queues = (0..count).rev().map(|number| QueueId::new(bulla_queue::StoreNumber::LOCAL, number as u32));
            // Every other one is asked for by credit alone.
            let has_changed = |queue: QueueId| queue.number().is_multiple_of(2);
            let wanted = queues.clone().map(|queue| Asked { queue, has_changed: has_changed(queue) });
            let wanted: Vec<Asked> = wanted.collect();
            queues.clone().for_each(|queue| list.add_for_credit(queue));
            queues.clone().filter(|queue| has_changed(*queue)).for_each(|queue| list.add(queue));
            queues.for_each(|queue| list.add_for_credit(queue));
            list.take(&mut taken);
            assert_eq!(taken, wanted);
            assert!(list.is_empty());
        }
    }
}
