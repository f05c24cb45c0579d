//! Whoever has said who it is goes before whoever has not: how much of a dispatcher's time strangers have.
//!
//! A stranger is a connection that has not signed in: a handshake that is under way, or ANONYMOUS. As long as nobody else wants
//! to be read, strangers have all the time, in turns that are short where there is anybody who could come to want it. In turns
//! in which others do, they have one part in [`PARTS`]: each turn gives them credit for what the others took of it, and what they
//! take beyond their credit is taken from their next turns. So a flood of strangers, however many connections it has, costs those
//! whom the queue manager knows a bounded part of the time, and strangers still come in.

use std::time::{Duration, Instant};

/// For so many parts of the time that others take, strangers have one.
const PARTS: i64 = 16;
/// What strangers' reading takes of one turn where somebody else may come to want it: nobody waits much longer for them.
const TURN: Duration = Duration::from_millis(1);
/// Connections accepted in one turn at each door.
const ACCEPTS_MAX: usize = 16;
/// Strangers who may have said something that was not read yet: while there are so many, hardly anybody is accepted, and who knocks
/// waits where the system keeps them.
const WAITING_MAX: usize = 128;
/// How often somebody is accepted all the same: it could be that all those strangers mean it well, and always have something to say.
const ACCEPT_EVERY: Duration = Duration::from_millis(10);
/// Bytes of one read of a stranger in a turn in which nobody else wants to be read, and could come to want it.
const READ_BYTES_ALONE: usize = 64 << 10;
/// And where others want to be read in the same turn: so little that all strangers soon have theirs, and somebody new comes in.
const READ_BYTES_SHARED: usize = 4 << 10;
/// The most that strangers save up while they want little.
const CREDIT_MAX: Duration = Duration::from_millis(10);
/// The most that they can owe, so that one costly piece of work does not shut them out for long.
const DEBT_MAX: Duration = Duration::from_millis(20);

/// What strangers may have of a dispatcher's turn.
#[derive(Debug, Default)]
pub(super) struct Precedence {
    /// Nanoseconds that strangers may still have; below zero, what they owe.
    credit: i64,
    turn: Turn,
    /// What strangers have had of this turn.
    took: Duration,
    /// Somebody who has signed in is connected.
    somebody_known: bool,
    /// When somebody was accepted last.
    accepted_at: Option<Instant>,
}

/// What kind of turn it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Turn {
    /// Strangers alone want something.
    #[default]
    Theirs,
    /// Others do, too, and strangers have credit.
    Shared,
    /// Others do, and strangers have had their part.
    Others,
}

impl Precedence {
    /// Whether anybody is connected who has signed in; to be said now and then.
    pub(super) fn set_somebody_known(&mut self, known: bool) {
        self.somebody_known = known;
    }

    /// Whether there is anybody whom strangers may have to wait for.
    pub(super) fn is_somebody_known(&self) -> bool {
        self.somebody_known
    }

    /// How many of those who knock are accepted at each door, where so many strangers wait to be read.
    pub(super) fn accepts(&self, waiting: usize, now: Instant) -> usize {
        let crowded = waiting >= WAITING_MAX && self.somebody_known;
        let is_due = || self.accepted_at.is_none_or(|at| now.saturating_duration_since(at) >= ACCEPT_EVERY);
        if crowded { usize::from(is_due()) } else { ACCEPTS_MAX }
    }

    /// Some of those who knocked were accepted.
    pub(super) fn accepted(&mut self, now: Instant) {
        self.accepted_at = Some(now);
    }

    /// A turn begins; whether somebody who is known wants to be read in it, whether a stranger does, and whether there may be others
    /// who do, of whom only the next turn will hear.
    pub(super) fn begin(&mut self, known: bool, strangers: bool, others: bool) {
        self.took = Duration::ZERO;
        self.somebody_known |= known;
        let others_wait = known || (others && self.somebody_known);
        self.turn = match others_wait && strangers {
            false => Turn::Theirs,
            true if self.credit >= 0 => Turn::Shared,
            true => Turn::Others,
        };
    }

    /// Whether it is to be told what strangers take of this turn.
    pub(super) fn is_shared(&self) -> bool {
        self.turn == Turn::Shared
    }

    /// Whether strangers do anything in this turn.
    pub(super) fn admits_strangers(&self) -> bool {
        self.turn != Turn::Others
    }

    /// Whether one more stranger is read in this turn, where reading them has taken so much of it; asks only where that counts.
    pub(super) fn reads_another(&self, reading: impl FnOnce() -> Duration) -> bool {
        match self.turn {
            Turn::Theirs => !self.somebody_known || reading() < TURN,
            Turn::Shared => nanoseconds(reading()) <= self.credit.min(nanoseconds(TURN)),
            Turn::Others => false,
        }
    }

    /// Bytes of one read of a stranger; none for as many as it likes.
    pub(super) fn read_bytes_max(&self) -> Option<usize> {
        match self.turn {
            Turn::Theirs => self.somebody_known.then_some(READ_BYTES_ALONE),
            Turn::Shared | Turn::Others => Some(READ_BYTES_SHARED),
        }
    }

    /// Strangers had so much of this turn.
    pub(super) fn took(&mut self, time: Duration) {
        self.took += time;
    }

    /// The turn is over, and was so long; asks only where that counts.
    pub(super) fn end(&mut self, turn: impl FnOnce() -> Duration) {
        if self.turn != Turn::Theirs {
            let others = nanoseconds(turn().saturating_sub(self.took));
            let credit = self.credit + others / PARTS - nanoseconds(self.took);
            self.credit = credit.clamp(-nanoseconds(DEBT_MAX), nanoseconds(CREDIT_MAX));
        }
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What somebody known has in a turn, and what one read of a stranger comes to.
    const OTHERS: Duration = Duration::from_micros(200);
    const READ: Duration = Duration::from_micros(50);

    /// Turns in which somebody known wants so much and so many strangers are always to be read, each for so long, of which
    /// the reading itself is a third; what strangers had, and the longest they had in a turn.
    fn turns(count: usize, others: Duration, strangers: usize, each: Duration) -> (Duration, Duration) {
        let mut precedence = Precedence::default();
        let (mut had, mut longest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            precedence.begin(!others.is_zero(), strangers > 0, false);
            let mut read = 0;
            while read < strangers && precedence.reads_another(|| each / 3 * u32::try_from(read).unwrap()) {
                read += 1;
            }
            let theirs = each * u32::try_from(read).unwrap();
            precedence.took(theirs);
            precedence.end(|| others + theirs);
            had += theirs;
            longest = longest.max(theirs);
        }
        (had, longest)
    }

    #[test]
    fn strangers_alone_have_all_there_is() {
        let (had, _) = turns(100, Duration::ZERO, 1_000, READ);
        assert_eq!(had, 100_000 * READ);
    }

    #[test]
    fn a_thousand_strangers_have_their_part_and_no_more_beside_one_whom_the_queue_manager_knows() {
        let (had, longest) = turns(10_000, OTHERS, 1_000, READ);
        let part = 10_000 * OTHERS / u32::try_from(PARTS).unwrap();
        assert!(had <= part + DEBT_MAX && had >= part - DEBT_MAX, "{had:?} of {part:?}");
        assert!(longest < 4 * TURN, "{longest:?}");
    }

    #[test]
    fn one_costly_piece_of_work_is_paid_for_and_shuts_nobody_out_for_long() {
        let costly = Duration::from_secs(1);
        let mut precedence = Precedence::default();
        precedence.begin(true, true, false);
        precedence.took(costly);
        precedence.end(|| costly + OTHERS);
        let mut waited = Duration::ZERO;
        loop {
            precedence.begin(true, true, false);
            if precedence.admits_strangers() {
                break;
            }
            precedence.end(|| OTHERS);
            waited += OTHERS;
        }
        assert!(waited > 15 * DEBT_MAX && waited < 17 * DEBT_MAX, "{waited:?}");
        // And where nobody else wants anything, not at all.
        precedence.begin(true, true, false);
        precedence.took(costly);
        precedence.end(|| costly);
        precedence.begin(false, true, false);
        assert!(precedence.admits_strangers() && precedence.reads_another(|| Duration::ZERO));
    }

    #[test]
    fn strangers_wait_for_those_of_whom_the_next_turn_will_hear() {
        let mut precedence = Precedence::default();
        precedence.begin(false, true, true);
        assert!(precedence.read_bytes_max().is_none(), "nobody is known");
        precedence.set_somebody_known(true);
        precedence.begin(false, true, true);
        assert!(precedence.is_shared());
        precedence.took(READ);
        precedence.end(|| READ);
        precedence.begin(false, true, true);
        assert!(!precedence.admits_strangers());
        precedence.begin(false, true, false);
        assert!(precedence.admits_strangers());
    }

    #[test]
    fn nobody_waits_at_the_door_for_ever_however_many_strangers_have_something_to_say() {
        let mut precedence = Precedence::default();
        let now = Instant::now();
        assert_eq!(precedence.accepts(10 * WAITING_MAX, now), ACCEPTS_MAX, "nobody is known");
        precedence.set_somebody_known(true);
        assert_eq!(precedence.accepts(WAITING_MAX - 1, now), ACCEPTS_MAX);
        precedence.accepted(now);
        assert_eq!(precedence.accepts(WAITING_MAX, now), 0);
        assert_eq!(precedence.accepts(WAITING_MAX, now + ACCEPT_EVERY), 1);
    }

    #[test]
    fn where_somebody_is_known_strangers_alone_have_short_turns_of_small_reads() {
        let mut precedence = Precedence::default();
        precedence.begin(false, true, false);
        assert!(precedence.reads_another(|| 10 * TURN) && precedence.read_bytes_max().is_none());
        precedence.set_somebody_known(true);
        precedence.begin(false, true, false);
        assert!(!precedence.reads_another(|| TURN) && precedence.reads_another(|| TURN / 2));
        assert_eq!(precedence.read_bytes_max(), Some(READ_BYTES_ALONE));
    }
}
