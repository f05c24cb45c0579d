//! A queue in which everyone who asks has a turn.

use std::collections::{HashMap, VecDeque};

/// What waits, by asker. Askers are served in turn, each one's items in their order: who has a thousand
/// waiting keeps no other asker from the next place.
#[derive(Debug)]
pub struct FairQueue<T> {
    lines: HashMap<u64, VecDeque<T>>,
    turns: VecDeque<u64>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { lines: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Items of all askers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item at the end of its asker's line.
    pub fn push(&mut self, asker: u64, item: T) {
        let line = self.lines.entry(asker).or_default();
        if line.is_empty() {
            self.turns.push_back(asker);
        }
        line.push_back(item);
        self.len += 1;
    }

    /// The next item: the first one of the asker whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// The next item that fits, among the first ones of all lines. An asker that is passed over keeps its turn.
    pub fn pop_if(&mut self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let first = |asker: &u64| self.lines.get(asker).and_then(VecDeque::front).is_some_and(&fits);
        let place = self.turns.iter().position(first)?;
        let asker = self.turns.remove(place)?;
        let line = self.lines.get_mut(&asker)?;
        let item = line.pop_front();
        self.len -= usize::from(item.is_some());
        if line.is_empty() {
            self.lines.remove(&asker);
        } else {
            self.turns.push_back(asker);
        }
        item
    }

    /// Takes out everything that fits, wherever it stands.
    pub fn take_if(&mut self, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for line in self.lines.values_mut() {
            for item in std::mem::take(line) {
                if fits(&item) {
                    taken.push(item);
                } else {
                    line.push_back(item);
                }
            }
        }
        self.len -= taken.len();
        self.lines.retain(|_, line| !line.is_empty());
        self.turns.retain(|asker| self.lines.contains_key(asker));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_with_much_does_not_keep_others_waiting() {
        let mut queue = FairQueue::default();
        for n in 0..100 {
            queue.push(1, (1, n));
        }
        queue.push(2, (2, 0));
        queue.push(3, (3, 0));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).take(5).collect();
        assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (1, 2)]);
        assert_eq!(queue.len(), 97);
    }

    #[test]
    fn what_does_not_fit_keeps_its_turn() {
        let mut queue = FairQueue::default();
        queue.push(1, 'a');
        queue.push(2, 'b');
        queue.push(2, 'c');
        assert_eq!(queue.pop_if(|item| *item != 'a'), Some('b'));
        assert_eq!(queue.pop(), Some('a'));
        assert_eq!(queue.pop_if(|item| *item == 'x'), None);
        queue.push(5, 'd');
        assert_eq!(queue.take_if(|item| *item == 'd'), ['d']);
        assert_eq!((queue.len(), queue.pop(), queue.pop()), (1, Some('c'), None));
        assert!(queue.is_empty());
    }
}
