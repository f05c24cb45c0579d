//! Bytes of messages that are still arriving, on all connections together: how many there may be, and who is read
//! beyond that.
//!
//! A connection holds what its engine has of messages whose last frame has not come, and the beginning of a frame.
//! While all of them hold more than they may, connections that hold little are read on, in small reads, and of the
//! others one by dispatcher at a time, which has its turn until it has brought a message to its end. One that does not
//! in time is closed; so is one that holds much, could be read, and brings nothing. So the sum is bounded, and each
//! connection that goes on sending comes to an end.

use crate::reason::{self, Refusal};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of messages that may be arriving on all connections together, unless `bulla start --arriving` says otherwise.
pub const ARRIVING_BYTES_MAX: u64 = 512 << 20;
/// Who holds no more than this is read whatever the others hold.
pub const HELD_BYTES_SMALL: u64 = 64 << 10;
/// Bytes of one read meanwhile.
pub const READ_BYTES_SMALL: usize = 16 << 10;
/// How long a turn may take until a message has come to its end, and how long a connection that holds much may bring
/// nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may bring nothing while it has its turn and others wait for theirs.
const TURN_SILENCE: Duration = Duration::from_secs(5);
/// Sub-reason of the refusal.
const TOO_SLOW: &str = "arriving-bytes";

/// Bytes of messages that are arriving on all connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ArrivingCounts {
    /// Bytes now.
    pub bytes: u64,
    /// How many there may be.
    pub bytes_max: u64,
    /// How often a connection was not read any more because of that.
    pub stopped: u64,
    /// Connections closed because they held much and brought no message to its end.
    pub closed: u64,
}

/// What all dispatchers share of it.
#[derive(Debug)]
pub struct Arriving {
    bytes: AtomicU64,
    bytes_max: u64,
    stopped: AtomicU64,
    closed: AtomicU64,
}

/// What one connection has to do with it.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    held: u64,
    /// Messages that have come to their end.
    ended: u64,
    /// It waits in its dispatcher's line, and is not read.
    pub stopped: bool,
    /// When it brought something last, or could have begun to.
    heard_at: Instant,
}

/// Those of a dispatcher's connections that are not read, in the order in which they have their turns.
#[derive(Debug, Default)]
pub struct Line {
    waiting: VecDeque<Place>,
    turn: Option<Turn>,
}

/// A connection: its place in the dispatcher, and which one it was that had that place.
pub type Place = (usize, u64);

#[derive(Debug)]
struct Turn {
    place: Place,
    since: Instant,
    /// Messages that had come to their end before.
    ended: u64,
    /// What it held then.
    held: u64,
}

impl Turn {
    /// Whether it has not come to its end: with more than it had when it began, whole messages beside those that grow
    /// do not count.
    fn goes_on(&self, share: &Share) -> bool {
        share.held > HELD_BYTES_SMALL && (share.ended == self.ended || share.held > self.held)
    }
}

impl Arriving {
    /// Nothing arrives yet; together there may be so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max, stopped: AtomicU64::new(0), closed: AtomicU64::new(0) }
    }

    /// Whether all connections together hold as much as they may.
    pub fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bytes_max
    }

    /// What is arriving now, and what was done about it since the start.
    pub fn counts(&self) -> ArrivingCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (stopped, closed) = (read(&self.stopped), read(&self.closed));
        ArrivingCounts { bytes: read(&self.bytes), bytes_max: self.bytes_max, stopped, closed }
    }
}

impl Share {
    /// A new connection's.
    pub fn new(now: Instant) -> Self {
        Self { held: 0, ended: 0, stopped: false, heard_at: now }
    }

    /// It holds so much now, and so many of its messages have come to their end. Two compares where that is as it was.
    pub fn holds(&mut self, held: u64, ended: u64, all: &Arriving) {
        self.ended = ended;
        if held > self.held {
            all.bytes.fetch_add(held - self.held, Ordering::Relaxed);
        } else if held < self.held {
            all.bytes.fetch_sub(self.held - held, Ordering::Relaxed);
        }
        self.held = held;
    }

    /// It has brought something.
    pub fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// It is read again.
    pub fn resume(&mut self, now: Instant) {
        (self.stopped, self.heard_at) = (false, now);
    }

    /// Whether it holds much and has brought nothing for too long, although it was read.
    fn is_idle(&self, now: Instant) -> bool {
        let silence = now.saturating_duration_since(self.heard_at);
        !self.stopped && self.held > HELD_BYTES_SMALL && silence >= PATIENCE
    }
}

impl Line {
    /// Whether a connection that has something to read is read now, and then how many bytes at most; none for as many
    /// as it likes. Where it is not, it has joined the line.
    pub fn may_read(&mut self, place: Place, share: &mut Share, all: &Arriving) -> Option<Option<usize>> {
        if !all.is_full() || self.turn.as_ref().is_some_and(|turn| turn.place == place) {
            return Some(None);
        }
        if share.held <= HELD_BYTES_SMALL {
            return Some(Some(READ_BYTES_SMALL));
        }
        share.stopped = true;
        self.waiting.push_back(place);
        all.stopped.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Whether nothing has to be decided.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.turn.is_none()
    }

    /// The next one that is to be read again ([`Share::resume`]), if one is; `find` knows the connections that are
    /// still there. Also below the bound they come back one after the other, so that those behind them keep their
    /// places when it is reached again.
    pub fn resume(&mut self, all: &Arriving, now: Instant, find: impl Fn(Place) -> Option<Share>) -> Option<Place> {
        let is_full = all.is_full();
        if let Some(turn) = &self.turn {
            let goes_on = find(turn.place).is_some_and(|share| turn.goes_on(&share));
            if is_full && goes_on {
                return None;
            }
            self.turn = None;
        }
        while let Some(place) = self.waiting.pop_front() {
            let Some(share) = find(place) else { continue };
            if is_full {
                self.turn = Some(Turn { place, since: now, ended: share.ended, held: share.held });
            }
            return Some(place);
        }
        None
    }

    /// Whether a connection is to be closed, and with what; asked at each tick.
    pub fn gives_up(&self, place: Place, share: &Share, all: &Arriving, now: Instant) -> Option<Refusal> {
        if !all.is_full() {
            return None;
        }
        let had_its_turn = self.turn.as_ref().is_some_and(|turn| {
            let is_over = now.saturating_duration_since(turn.since) >= PATIENCE
                || now.saturating_duration_since(share.heard_at) >= TURN_SILENCE;
            turn.place == place && turn.goes_on(share) && is_over
        });
        (had_its_turn || share.is_idle(now)).then(|| {
            all.closed.fetch_add(1, Ordering::Relaxed);
            let detail = format!(
                "{} bytes of messages are arriving on all connections, {} of them here, where none comes to its end",
                all.bytes.load(Ordering::Relaxed),
                share.held
            );
            Refusal { cause: Some(TOO_SLOW), ..Refusal::new(reason::STORAGE_NOT_AVAILABLE, detail) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Connections of one dispatcher, each of which sends messages of so many bytes, or of none that ever ends.
    struct World {
        all: Arriving,
        line: Line,
        shares: Vec<Share>,
        /// Bytes of each one's message, and what of it has come.
        sends: Vec<(Option<u64>, u64)>,
        gone: Vec<bool>,
        now: Instant,
        most: u64,
    }

    impl World {
        fn new(bytes_max: u64, sends: &[Option<u64>]) -> Self {
            let now = Instant::now();
            Self {
                all: Arriving::new(bytes_max),
                line: Line::default(),
                shares: sends.iter().map(|_| Share::new(now)).collect(),
                sends: sends.iter().map(|message| (*message, 0)).collect(),
                gone: vec![false; sends.len()],
                now,
                most: 0,
            }
        }

        fn resume(&mut self) {
            let Self { line, all, shares, gone, now, .. } = self;
            if let Some((key, _)) = line.resume(all, *now, |(key, _)| (!gone[key]).then_some(shares[key])) {
                shares[key].resume(*now);
            }
        }

        /// Every connection that is read brings so many bytes, in steps of a millisecond; who is to be closed is.
        fn turn(&mut self, bytes: u64) {
            self.now += Duration::from_millis(1);
            self.resume();
            for key in 0..self.shares.len() {
                if self.gone[key] || self.shares[key].stopped {
                    continue;
                }
                let Some(room) = self.line.may_read((key, 0), &mut self.shares[key], &self.all) else { continue };
                let brought = room.map_or(bytes, |room| bytes.min(room as u64));
                let (message, come) = &mut self.sends[key];
                *come += brought;
                let mut ended = self.shares[key].ended;
                while let Some(message) = message.filter(|message| *come >= *message) {
                    (*come, ended) = (*come - message, ended + 1);
                }
                let held = *come;
                self.shares[key].heard(self.now);
                self.shares[key].holds(held, ended, &self.all);
                self.most = self.most.max(self.all.counts().bytes);
            }
            self.resume();
        }

        fn tick(&mut self) -> usize {
            let mut closed = 0;
            for key in 0..self.shares.len() {
                if !self.gone[key] && self.line.gives_up((key, 0), &self.shares[key], &self.all, self.now).is_some() {
                    self.gone[key] = true;
                    self.shares[key].holds(0, 0, &self.all);
                    closed += 1;
                }
            }
            closed
        }
    }

    #[test]
    fn below_the_bound_everybody_is_read_as_it_likes() {
        let mut world = World::new(MIB, &[Some(300_000), Some(300_000)]);
        for _ in 0..100 {
            world.turn(100_000);
        }
        assert_eq!(world.all.counts().stopped, 0);
        assert!(world.shares.iter().all(|share| share.ended > 30));
    }

    #[test]
    fn all_large_messages_come_to_their_end_one_after_the_other_and_the_sum_stays_bounded() {
        let large = 3 * MIB;
        let mut world = World::new(4 * MIB, &[Some(large); 20]);
        for _ in 0..3_000 {
            world.turn(100_000);
        }
        assert!(world.shares.iter().all(|share| share.ended >= 2), "{:?}", world.shares);
        // The bound, what each may hold beyond it, and one message that has its turn.
        let most = 4 * MIB + 20 * (HELD_BYTES_SMALL + 100_000) + large;
        assert!(world.most <= most, "{} of {most}", world.most);
        assert_eq!(world.tick(), 0, "no connection is to blame");
    }

    #[test]
    fn small_messages_pass_while_others_hold_all_there_is_to_hold() {
        let mut world = World::new(MIB, &[None, None, Some(10_000)]);
        for _ in 0..50 {
            world.turn(100_000);
        }
        assert!(world.all.is_full());
        let before = world.shares[2].ended;
        for _ in 0..50 {
            world.turn(10_000);
        }
        assert_eq!(world.shares[2].ended - before, 50);
    }

    #[test]
    fn who_holds_the_turn_and_never_ends_is_closed_and_the_others_have_theirs() {
        let mut world = World::new(MIB, &[None, None, None, Some(2 * MIB)]);
        let mut closed = 0;
        for _ in 0..200 {
            for _ in 0..40 {
                world.turn(10_000);
            }
            world.now += Duration::from_secs(1);
            closed += world.tick();
        }
        assert!(closed >= 2, "{closed} of the three that never end");
        assert!(!world.gone[3] && world.shares[3].ended > 0, "{:?}", world.shares[3]);
    }

    #[test]
    fn who_has_the_turn_and_brings_nothing_is_closed_soon() {
        let mut world = World::new(MIB, &[None, None]);
        for _ in 0..20 {
            world.turn(100_000);
        }
        let holder = world.line.turn.as_ref().unwrap().place.0;
        world.now += TURN_SILENCE;
        assert_eq!(world.tick(), 1);
        assert!(world.gone[holder] && !world.gone[1 - holder]);
    }

    #[test]
    fn who_holds_much_and_brings_nothing_is_closed_but_nobody_who_waits_in_the_line() {
        let mut world = World::new(MIB, &[None, Some(2 * MIB), None]);
        for _ in 0..20 {
            world.turn(100_000);
        }
        assert!(world.all.is_full() && world.shares.iter().filter(|share| share.stopped).count() >= 1);
        world.now += PATIENCE;
        let closed = world.tick();
        assert!(closed >= 1);
        assert!(world.shares.iter().zip(&world.gone).all(|(share, gone)| !(share.stopped && *gone)));
        // Below the bound no connection is closed, whatever it brings.
        let idle = World::new(MIB, &[None]);
        assert!(idle.line.gives_up((0, 0), &idle.shares[0], &idle.all, idle.now + 10 * PATIENCE).is_none());
    }

    #[test]
    fn a_connection_that_went_keeps_nobody_waiting() {
        let mut world = World::new(MIB, &[None, None, Some(2 * MIB)]);
        for _ in 0..20 {
            world.turn(100_000);
        }
        for key in [0, 1] {
            world.gone[key] = true;
            world.shares[key].holds(0, 0, &world.all);
        }
        for _ in 0..50 {
            world.turn(100_000);
        }
        assert!(world.shares[2].ended >= 1);
        assert!(!world.shares[2].stopped);
    }

    #[test]
    fn small_messages_beside_one_that_only_grows_do_not_end_a_turn() {
        let now = Instant::now();
        let (all, mut line) = (Arriving::new(MIB), Line::default());
        let mut shares = [Share::new(now), Share::new(now)];
        for (key, share) in shares.iter_mut().enumerate() {
            share.holds(2 * MIB, 0, &all);
            assert_eq!(line.may_read((key, 0), share, &all), None);
        }
        let find = |shares: [Share; 2]| move |(key, _): Place| Some(shares[key]);
        assert_eq!(line.resume(&all, now, find(shares)), Some((0, 0)));
        shares[0].resume(now);
        assert_eq!(line.may_read((0, 0), &mut shares[0], &all), Some(None));
        shares[0].holds(3 * MIB, 1, &all);
        assert_eq!(line.resume(&all, now, find(shares)), None, "it holds more than before");
        let late = now + PATIENCE;
        shares[0].heard(late);
        assert!(line.gives_up((0, 0), &shares[0], &all, late).is_some());
        shares[0].holds(MIB, 2, &all);
        assert!(line.gives_up((0, 0), &shares[0], &all, late).is_none());
        assert_eq!(line.resume(&all, late, find(shares)), Some((1, 0)), "the next one's turn");
    }
}
