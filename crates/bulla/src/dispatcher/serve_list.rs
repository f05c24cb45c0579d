//! The queues that are to be served in this turn, each once, in the order in which they were asked for.

use bulla_queue::QueueId;
use hashbrown::HashSet;

/// Up to so many a look at all of them costs less than a hash.
const SCANNED_MAX: usize = 16;

/// The queues to serve.
#[derive(Debug, Default)]
pub(super) struct ServeList {
    order: Vec<QueueId>,
    /// All of them, once they are more than are looked at one by one.
    known: HashSet<QueueId>,
}

impl ServeList {
    /// Has `queue` served, too. Hot path, several times a message.
    pub(super) fn add(&mut self, queue: QueueId) {
        let is_new = if self.order.len() < SCANNED_MAX {
            !self.order.contains(&queue)
        } else {
            if self.known.is_empty() {
                self.known.extend(self.order.iter().copied());
            }
            self.known.insert(queue)
        };
        if is_new {
            self.order.push(queue);
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Those there are; from then on there are none.
    pub(super) fn take(&mut self) -> Vec<QueueId> {
        self.known.clear();
        std::mem::take(&mut self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_is_there_once_in_the_order_of_asking_however_many_there_are() {
        let mut list = ServeList::default();
        for count in [3, SCANNED_MAX, SCANNED_MAX + 1, 1_000] {
            let numbers = (0..count).rev().map(|number| QueueId(number as u32));
            let wanted: Vec<QueueId> = numbers.clone().collect();
            numbers.clone().chain(numbers).for_each(|queue| list.add(queue));
            assert_eq!(list.take(), wanted);
            assert!(list.is_empty());
        }
    }
}
