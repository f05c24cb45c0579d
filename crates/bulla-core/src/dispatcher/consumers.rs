//! The links that get from one queue, and which of them are looked at when it is served.
//!
//! A look at a link costs time under the queues' lock, and one user may have thousands of links. So a link is looked at
//! only after something has changed for it: its own credit, or its queue. Links that take whatever comes next are not
//! even asked in turn where one of them has found nothing: there is nothing for the others either.

use crate::front::LinkId;
use crate::maps::HashMap;
use std::collections::VecDeque;

/// Entries of links that are gone, beyond twice those that are there, before the lists are tidied.
const STALE_MAX: usize = 64;

/// A link of a connection of this dispatcher. No other link ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    /// The connection's place.
    pub key: usize,
    /// Which of the connections that had this place.
    pub generation: u64,
    pub(crate) link: LinkId,
}

/// What a look at a link came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// A message is on its way.
    Sent,
    /// It has no credit.
    NoCredit,
    /// It takes nothing, until its queue is served again for another reason than credit.
    Blocked,
    /// The queue has nothing for this link.
    Nothing,
    /// The queue has nothing for any link that takes whatever comes next, as this one does.
    Empty,
    /// It is gone.
    Gone,
}

/// What came of serving a queue once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// Messages sent.
    pub sent: usize,
    /// The queue has nothing for links that take whatever comes next.
    pub is_empty: bool,
}

/// On which lists a link is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lists {
    /// In `takers` or `choosers`.
    ready: bool,
    idle: bool,
    draining: bool,
}

impl Lists {
    /// Of a link that has just come.
    fn of_new() -> Self {
        Self { ready: true, ..Self::default() }
    }

    /// A link that was looked at is not looked at again before something changes for it.
    fn take_off(&mut self, looked: Looked) {
        self.ready = false;
        self.idle |= looked != Looked::NoCredit;
    }
}

/// The links that get from one queue on this dispatcher. Most queues have one. That lies in place, because where
/// thousands of queues are served in turn, the memory of each is waited for.
#[derive(Debug, Default)]
pub enum Consumers {
    /// No link.
    #[default]
    None,
    /// A link, the lists on which it would be, and whether that of those to look at is the one of `takers`.
    One {
        /// The link.
        seat: Seat,
        /// Its lists.
        lists: Lists,
        /// It took whatever came next when it was listed.
        is_taker: bool,
    },
    /// More, now or before.
    Several(Box<Several>),
}

impl Consumers {
    /// A link comes. It is looked at once, because its credit may have come before.
    pub fn add(&mut self, seat: Seat) {
        match self {
            Self::None => *self = Self::One { seat, lists: Lists::of_new(), is_taker: false },
            Self::One { seat: first, lists, is_taker } => {
                let mut several = Several::of_one(*first, *lists, *is_taker);
                several.add(seat);
                *self = Self::Several(Box::new(several));
            }
            Self::Several(several) => several.add(seat),
        }
    }

    /// A link goes.
    pub fn remove(&mut self, seat: Seat) {
        match self {
            Self::One { seat: only, .. } if *only == seat => *self = Self::None,
            Self::None | Self::One { .. } => {}
            Self::Several(several) => {
                several.remove(seat);
                if several.all.is_empty() {
                    *self = Self::None;
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One { .. } => false,
            Self::Several(several) => several.all.is_empty(),
        }
    }

    /// All links, in no order.
    pub fn seats(&self) -> impl Iterator<Item = Seat> + '_ {
        let (one, several) = match self {
            Self::None => (None, None),
            Self::One { seat, .. } => (Some(*seat), None),
            Self::Several(several) => (None, Some(several.all.keys().copied())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// A link has credit. `takes_next`: it takes whatever comes next. `drains`: it wants to hear when there is nothing.
    pub fn has_credit(&mut self, seat: Seat, takes_next: bool, drains: bool) {
        match self {
            Self::One { seat: only, lists, is_taker } if *only == seat => {
                if !std::mem::replace(&mut lists.ready, true) {
                    *is_taker = takes_next;
                }
                lists.draining |= drains && takes_next;
            }
            Self::None | Self::One { .. } => {}
            Self::Several(several) => several.has_credit(seat, takes_next, drains),
        }
    }

    /// Something has changed for all links: each is looked at.
    pub fn look_at_all(&mut self) {
        match self {
            Self::None => {}
            Self::One { lists, is_taker, .. } => {
                if !std::mem::replace(&mut lists.ready, true) {
                    *is_taker = false;
                }
            }
            Self::Several(several) => several.look_at_all(),
        }
    }

    /// The queue has changed: links that had no use for their credit may have some now.
    pub fn look_at_idle(&mut self) {
        match self {
            Self::None => {}
            Self::One { lists, is_taker, .. } => {
                if std::mem::replace(&mut lists.idle, false) && !std::mem::replace(&mut lists.ready, true) {
                    *is_taker = false;
                }
            }
            Self::Several(several) => several.look_at_idle(),
        }
    }

    /// Gives one message to each link in turn, until they take nothing more or `most` are sent. Hot path: for a message
    /// one look, and two moves in a list where there are several links.
    pub fn serve(&mut self, most: usize, mut look: impl FnMut(Seat) -> Looked) -> Round {
        let (seat, lists, is_taker) = match self {
            Self::None => return Round::default(),
            Self::One { seat, lists, is_taker } => (*seat, lists, is_taker),
            Self::Several(several) => return several.serve(most, look),
        };
        let mut round = Round::default();
        while lists.ready && round.sent < most {
            match look(seat) {
                Looked::Sent => round.sent += 1,
                Looked::Empty => {
                    (round.is_empty, *is_taker) = (true, true);
                    break;
                }
                Looked::Gone => {
                    *self = Self::None;
                    break;
                }
                looked => lists.take_off(looked),
            }
        }
        round
    }

    /// The queue has nothing: has each link told that wants to hear of it. `tell` says whether it is to be told again.
    pub fn tell_draining(&mut self, mut tell: impl FnMut(Seat) -> bool) {
        match self {
            Self::None => {}
            Self::One { seat, lists, .. } => lists.draining = lists.draining && tell(*seat),
            Self::Several(several) => several.tell_draining(tell),
        }
    }
}

/// The links of a queue that has had more than one.
#[derive(Debug, Default)]
pub struct Several {
    all: HashMap<Seat, Lists>,
    /// Links to look at that take whatever comes next, in turn.
    takers: VecDeque<Seat>,
    /// The other links to look at, in turn: those that browse or select, or pass messages over.
    choosers: VecDeque<Seat>,
    /// Links that have credit and had no use for it when they were looked at.
    idle: Vec<Seat>,
    /// Links that take whatever comes next and are to be told when there is nothing.
    draining: Vec<Seat>,
    /// The choosers are next.
    choosers_next: bool,
}

impl Several {
    /// The first link, with the lists on which it is.
    fn of_one(seat: Seat, lists: Lists, is_taker: bool) -> Self {
        let mut several = Self::default();
        several.all.insert(seat, lists);
        if lists.ready {
            if is_taker { &mut several.takers } else { &mut several.choosers }.push_back(seat);
        }
        several.idle.extend(lists.idle.then_some(seat));
        several.draining.extend(lists.draining.then_some(seat));
        several
    }

    fn add(&mut self, seat: Seat) {
        self.all.insert(seat, Lists::of_new());
        self.choosers.push_back(seat);
    }

    fn remove(&mut self, seat: Seat) {
        self.all.remove(&seat);
        let listed = self.takers.len() + self.choosers.len() + self.idle.len() + self.draining.len();
        if listed > 2 * self.all.len() + STALE_MAX {
            let Self { all, takers, choosers, idle, draining, .. } = self;
            takers.retain(|seat| all.contains_key(seat));
            choosers.retain(|seat| all.contains_key(seat));
            idle.retain(|seat| all.contains_key(seat));
            draining.retain(|seat| all.contains_key(seat));
        }
    }

    fn has_credit(&mut self, seat: Seat, takes_next: bool, drains: bool) {
        let Some(lists) = self.all.get_mut(&seat) else { return };
        if !std::mem::replace(&mut lists.ready, true) {
            if takes_next { &mut self.takers } else { &mut self.choosers }.push_back(seat);
        }
        if drains && takes_next && !std::mem::replace(&mut lists.draining, true) {
            self.draining.push(seat);
        }
    }

    fn look_at_all(&mut self) {
        for (seat, lists) in &mut self.all {
            if !std::mem::replace(&mut lists.ready, true) {
                self.choosers.push_back(*seat);
            }
        }
    }

    fn look_at_idle(&mut self) {
        for seat in self.idle.drain(..) {
            let Some(lists) = self.all.get_mut(&seat) else { continue };
            lists.idle = false;
            if !std::mem::replace(&mut lists.ready, true) {
                self.choosers.push_back(seat);
            }
        }
    }

    fn serve(&mut self, most: usize, mut look: impl FnMut(Seat) -> Looked) -> Round {
        let (mut round, mut without) = (Round::default(), 0);
        if self.choosers.is_empty() {
            // The usual case: nothing to take turns with, so one loop is enough.
            self.choosers_next = false;
            while round.sent < most
                && let Some(seat) = self.takers.pop_front()
            {
                match look(seat) {
                    Looked::Sent => {
                        round.sent += 1;
                        self.takers.push_back(seat);
                    }
                    Looked::Empty => {
                        round.is_empty = true;
                        self.takers.push_front(seat);
                        break;
                    }
                    looked => self.take_off(seat, looked),
                }
            }
            return round;
        }
        while without < 2 && round.sent < most {
            let before = round.sent;
            for _ in 0..if self.choosers_next { self.choosers.len() } else { self.takers.len() } {
                if round.sent >= most || round.is_empty && !self.choosers_next {
                    break;
                }
                let list = if self.choosers_next { &mut self.choosers } else { &mut self.takers };
                let Some(seat) = list.pop_front() else { break };
                match look(seat) {
                    Looked::Sent => {
                        round.sent += 1;
                        list.push_back(seat);
                    }
                    Looked::Empty => {
                        round.is_empty = true;
                        // It is the first to get something when there is.
                        self.takers.push_front(seat);
                    }
                    looked => self.take_off(seat, looked),
                }
            }
            // Those that were cut short are the first when the queue is served again.
            self.choosers_next ^= round.sent < most;
            without = if round.sent > before { 0 } else { without + 1 };
        }
        round
    }

    fn tell_draining(&mut self, mut tell: impl FnMut(Seat) -> bool) {
        let all = &mut self.all;
        self.draining.retain(|seat| {
            let Some(lists) = all.get_mut(seat) else { return false };
            lists.draining = tell(*seat);
            lists.draining
        });
    }

    /// A link that was looked at is not looked at again before something changes for it.
    fn take_off(&mut self, seat: Seat, looked: Looked) {
        if looked == Looked::Gone {
            self.all.remove(&seat);
            return;
        }
        let Some(lists) = self.all.get_mut(&seat) else { return };
        let was_idle = lists.idle;
        lists.take_off(looked);
        if lists.idle && !was_idle {
            self.idle.push(seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 1_000;
    const MOST: usize = 512;

    /// A queue with links, each with its credit, and how many looks they were given.
    struct Queue {
        consumers: Consumers,
        link: LinkId,
        messages: usize,
        credit: Vec<usize>,
        got: Vec<usize>,
        /// Those that never take what comes next.
        choosers: usize,
        looks: usize,
        told: Vec<usize>,
    }

    impl Queue {
        fn new(links: usize, choosers: usize) -> Self {
            let link = LinkId(1);
            let (credit, got, told) = (vec![0; links], vec![0; links], Vec::new());
            let consumers = Consumers::default();
            let mut queue = Self { consumers, link, messages: 0, credit, got, choosers, looks: 0, told };
            (0..links).for_each(|key| queue.consumers.add(queue.seat(key)));
            queue.serve();
            queue
        }

        fn seat(&self, key: usize) -> Seat {
            Seat { key, generation: 0, link: self.link }
        }

        fn give(&mut self, key: usize, credit: usize, drains: bool) {
            self.credit[key] = credit;
            self.consumers.has_credit(self.seat(key), key >= self.choosers, drains);
        }

        /// Serves the queue, and says how many looks that took.
        fn serve(&mut self) -> usize {
            let Self { consumers, messages, credit, got, choosers, looks, told, .. } = self;
            *looks = 0;
            let round = consumers.serve(MOST, |seat| {
                *looks += 1;
                match (credit[seat.key], *messages) {
                    (0, _) => Looked::NoCredit,
                    (_, 0) if seat.key < *choosers => Looked::Nothing,
                    (_, 0) => Looked::Empty,
                    _ => {
                        (*messages, credit[seat.key]) = (*messages - 1, credit[seat.key] - 1);
                        got[seat.key] += 1;
                        Looked::Sent
                    }
                }
            });
            assert!(round.sent <= MOST);
            if round.is_empty {
                consumers.tell_draining(|seat| {
                    told.push(seat.key);
                    credit[seat.key] = 0;
                    false
                });
            }
            *looks
        }
    }

    #[test]
    fn of_many_links_only_those_with_new_credit_are_looked_at() {
        let mut queue = Queue::new(MANY, 0);
        queue.give(7, 1, false);
        assert_eq!(queue.serve(), 1, "the others have no credit");
        (0..MANY).for_each(|key| queue.give(key, 1, false));
        assert!(queue.serve() <= 2, "where one finds nothing, there is nothing for the others");
        let mut looks = 0;
        for key in 0..10 {
            queue.give(key, 1, true);
            looks += queue.serve();
            queue.consumers.look_at_idle();
            looks += queue.serve();
        }
        assert!(looks <= 3 * 10, "{looks}");
        assert_eq!(queue.told, (0..10).collect::<Vec<_>>());
        queue.messages = 20;
        assert!(queue.serve() <= 10 + 20 + 1, "those that have drained have no credit");
        assert_eq!(queue.got.iter().sum::<usize>(), 20);
    }

    #[test]
    fn links_that_choose_are_looked_at_for_their_credit_and_when_the_queue_changes() {
        let mut queue = Queue::new(MANY, MANY);
        (0..MANY).for_each(|key| queue.give(key, 1, false));
        assert_eq!(queue.serve(), MANY);
        for _ in 0..10 {
            queue.give(7, 1, false);
            assert_eq!(queue.serve(), 1);
        }
        assert_eq!(queue.serve(), 0);
        queue.consumers.look_at_idle();
        assert_eq!(queue.serve(), MANY, "each once, however often it had credit meanwhile");
        queue.credit[7] = 0;
        queue.consumers.look_at_all();
        assert_eq!(queue.serve(), MANY);
        queue.consumers.look_at_idle();
        queue.serve();
        queue.consumers.look_at_idle();
        assert_eq!(queue.serve(), MANY - 1, "what has no credit waits for it");
    }

    #[test]
    fn each_link_gets_as_much_as_another_over_many_turns() {
        let mut queue = Queue::new(MANY, MANY / 2);
        (0..MANY).for_each(|key| queue.give(key, usize::MAX, false));
        queue.messages = 10 * MANY;
        while queue.messages > 0 {
            queue.consumers.look_at_idle();
            queue.serve();
        }
        let (least, most) = (queue.got.iter().min(), queue.got.iter().max());
        assert!(least >= Some(&8) && most <= Some(&12), "{least:?} to {most:?}");
    }

    #[test]
    fn links_that_come_and_go_leave_nothing() {
        let mut queue = Queue::new(1, 0);
        for generation in 1..10_000 {
            let seat = Seat { generation, ..queue.seat(0) };
            queue.consumers.add(seat);
            queue.consumers.has_credit(seat, true, true);
            queue.consumers.remove(seat);
        }
        let Consumers::Several(consumers) = &queue.consumers else { panic!("{:?}", queue.consumers) };
        let listed = consumers.takers.len() + consumers.choosers.len() + consumers.idle.len();
        assert!(listed + consumers.draining.len() <= STALE_MAX + 2 + 2, "{consumers:?}");
        queue.consumers.remove(queue.seat(0));
        assert!(queue.consumers.is_empty());
    }

    #[test]
    fn one_link_is_looked_at_as_the_only_one_of_several() {
        let mut random = fastrand::Rng::with_seed(11);
        let seat = Seat { key: 3, generation: 7, link: LinkId(1) };
        let mut ways = [Consumers::None, Consumers::Several(Box::default())];
        ways.iter_mut().for_each(|way| way.add(seat));
        let mut sent = 0;
        for _ in 0..20_000 {
            let act = random.u8(..5);
            let (takes_next, drains, credit, messages) = (random.bool(), random.bool(), random.u8(..3), random.u8(..3));
            let seen = ways.each_mut().map(|way| {
                let (mut looks, mut told, mut left) = (0, 0, (credit, messages));
                match act {
                    0 => way.has_credit(seat, takes_next, drains),
                    1 => way.look_at_all(),
                    2 => way.look_at_idle(),
                    _ => {}
                }
                let round = way.serve(2, |found| {
                    assert_eq!(found, seat);
                    looks += 1;
                    match left {
                        (0, _) => Looked::NoCredit,
                        (_, 0) if takes_next => Looked::Empty,
                        (_, 0) => {
                            if drains {
                                Looked::Nothing
                            } else {
                                Looked::Blocked
                            }
                        }
                        _ => {
                            left = (left.0 - 1, left.1 - 1);
                            Looked::Sent
                        }
                    }
                });
                if round.is_empty {
                    way.tell_draining(|_| {
                        told += 1;
                        drains
                    });
                }
                (looks, told, round.sent, round.is_empty)
            });
            assert_eq!(seen[0], seen[1]);
            sent += seen[0].2;
        }
        assert!(sent > 1_000, "{sent}");
        assert!(matches!(ways, [Consumers::One { .. }, Consumers::Several(_)]));
    }
}
