//! Signed-in clients go before unauthenticated ones: how much of a dispatcher's time the latter have.
//!
//! An unauthenticated client is a connection that has not signed in: a handshake under way, or ANONYMOUS. While no
//! other wants to be read, unauthenticated clients have all the time, in turns that are short where a user is
//! connected. In turns in which others do, they have one part in [`PARTS`]: each turn gives them credit for what the
//! others took of it, and what they take beyond their credit is taken from their next turns. So a flood of
//! unauthenticated clients, of any size, costs users a bounded part of the time, and unauthenticated clients are still
//! served.

use std::time::{Duration, Instant};

/// For so many parts of the time that users take, unauthenticated clients have one.
const PARTS: i64 = 16;
/// What reading unauthenticated clients takes of one turn where a user may come to want it: users wait little longer.
const TURN: Duration = Duration::from_millis(1);
/// Connections accepted in one turn at each listener.
const ACCEPTS_MAX: usize = 16;
/// Unauthenticated clients that may have sent something not read yet: while there are so many, few are accepted, and
/// new ones wait in the system's accept queue.
const WAITING_MAX: usize = 128;
/// How often a connection is accepted all the same: all those clients may be honest, and always have something to send.
const ACCEPT_EVERY: Duration = Duration::from_millis(10);
/// Bytes of one read of an unauthenticated client in a turn in which no user wants to be read, but could come to.
const READ_BYTES_ALONE: usize = 64 << 10;
/// And where others want to be read in the same turn: so little that each unauthenticated client soon has its turn, and
/// new ones come in.
const READ_BYTES_SHARED: usize = 4 << 10;
/// The most that unauthenticated clients save up while they want little.
const CREDIT_MAX: Duration = Duration::from_millis(10);
/// The most that they can owe, so that one costly piece of work does not shut them out for long.
const DEBT_MAX: Duration = Duration::from_millis(20);

/// What unauthenticated clients may have of a dispatcher's turn.
#[derive(Debug, Default)]
pub(super) struct Precedence {
    /// Nanoseconds that unauthenticated clients may still have; below zero, what they owe.
    credit: i64,
    turn: Turn,
    /// What unauthenticated clients have had of this turn.
    took: Duration,
    /// A user who has signed in is connected.
    any_known: bool,
    /// When a connection was accepted last.
    accepted_at: Option<Instant>,
}

/// What kind of turn it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Turn {
    /// Only unauthenticated clients want something.
    #[default]
    Theirs,
    /// Users do, too, and unauthenticated clients have credit.
    Shared,
    /// Users do, and unauthenticated clients have had their part.
    Others,
}

impl Precedence {
    /// Whether a signed-in user is connected; to be said now and then.
    pub(super) fn set_any_known(&mut self, known: bool) {
        self.any_known = known;
    }

    /// Whether there is a user whom unauthenticated clients may have to wait for.
    pub(super) fn is_any_known(&self) -> bool {
        self.any_known
    }

    /// How many pending connections are accepted at each listener, where so many unauthenticated clients wait to be
    /// read.
    pub(super) fn accepts(&self, waiting: usize, now: Instant) -> usize {
        let crowded = waiting >= WAITING_MAX && self.any_known;
        let is_due = || self.accepted_at.is_none_or(|at| now.saturating_duration_since(at) >= ACCEPT_EVERY);
        if crowded { usize::from(is_due()) } else { ACCEPTS_MAX }
    }

    /// Some of those who pending were accepted.
    pub(super) fn accepted(&mut self, now: Instant) {
        self.accepted_at = Some(now);
    }

    /// A turn begins; whether a user wants to be read in it, whether an unauthenticated client does, and whether there
    /// may be others who do, of whom only the next turn will hear.
    pub(super) fn begin(&mut self, known: bool, unauthenticated: bool, others: bool) {
        self.took = Duration::ZERO;
        self.any_known |= known;
        let others_wait = known || (others && self.any_known);
        self.turn = match others_wait && unauthenticated {
            false => Turn::Theirs,
            true if self.credit >= 0 => Turn::Shared,
            true => Turn::Others,
        };
    }

    /// Whether it is to be told what unauthenticated clients take of this turn.
    pub(super) fn is_shared(&self) -> bool {
        self.turn == Turn::Shared
    }

    /// Whether unauthenticated clients do anything in this turn.
    pub(super) fn admits_unauthenticated(&self) -> bool {
        self.turn != Turn::Others
    }

    /// Whether one more unauthenticated client is read in this turn, where reading them has taken so much of it; asks
    /// only where that counts.
    pub(super) fn reads_another(&self, reading: impl FnOnce() -> Duration) -> bool {
        match self.turn {
            Turn::Theirs => !self.any_known || reading() < TURN,
            Turn::Shared => nanoseconds(reading()) <= self.credit.min(nanoseconds(TURN)),
            Turn::Others => false,
        }
    }

    /// Bytes of one read of an unauthenticated client; none for no limit.
    pub(super) fn read_bytes_max(&self) -> Option<usize> {
        match self.turn {
            Turn::Theirs => self.any_known.then_some(READ_BYTES_ALONE),
            Turn::Shared | Turn::Others => Some(READ_BYTES_SHARED),
        }
    }

    /// Unauthenticated clients had so much of this turn.
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

    /// What a user has in a turn, and what one read of an unauthenticated client comes to.
    const OTHERS: Duration = Duration::from_micros(200);
    const READ: Duration = Duration::from_micros(50);

    /// Turns in which a user wants so much and so many unauthenticated clients are always to be read, each for so long,
    /// of which the reading itself is a third; what those clients had, and the longest they had in a turn.
    fn turns(count: usize, others: Duration, unauthenticated: usize, each: Duration) -> (Duration, Duration) {
        let mut precedence = Precedence::default();
        let (mut had, mut longest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            precedence.begin(!others.is_zero(), unauthenticated > 0, false);
            let mut read = 0;
            while read < unauthenticated && precedence.reads_another(|| each / 3 * u32::try_from(read).unwrap()) {
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
    fn unauthenticated_clients_alone_have_all_the_time() {
        let (had, _) = turns(100, Duration::ZERO, 1_000, READ);
        assert_eq!(had, 100_000 * READ);
    }

    #[test]
    fn a_thousand_unauthenticated_clients_have_their_part_and_no_more_beside_one_user() {
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
            if precedence.admits_unauthenticated() {
                break;
            }
            precedence.end(|| OTHERS);
            waited += OTHERS;
        }
        assert!(waited > 15 * DEBT_MAX && waited < 17 * DEBT_MAX, "{waited:?}");
        // And where no user wants anything, not at all.
        precedence.begin(true, true, false);
        precedence.took(costly);
        precedence.end(|| costly);
        precedence.begin(false, true, false);
        assert!(precedence.admits_unauthenticated() && precedence.reads_another(|| Duration::ZERO));
    }

    #[test]
    fn unauthenticated_clients_wait_for_users_of_whom_the_next_turn_will_hear() {
        let mut precedence = Precedence::default();
        precedence.begin(false, true, true);
        assert!(precedence.read_bytes_max().is_none(), "no user is connected");
        precedence.set_any_known(true);
        precedence.begin(false, true, true);
        assert!(precedence.is_shared());
        precedence.took(READ);
        precedence.end(|| READ);
        precedence.begin(false, true, true);
        assert!(!precedence.admits_unauthenticated());
        precedence.begin(false, true, false);
        assert!(precedence.admits_unauthenticated());
    }

    #[test]
    fn connections_are_accepted_now_and_then_however_many_unauthenticated_clients_wait() {
        let mut precedence = Precedence::default();
        let now = Instant::now();
        assert_eq!(precedence.accepts(10 * WAITING_MAX, now), ACCEPTS_MAX, "no user is connected");
        precedence.set_any_known(true);
        assert_eq!(precedence.accepts(WAITING_MAX - 1, now), ACCEPTS_MAX);
        precedence.accepted(now);
        assert_eq!(precedence.accepts(WAITING_MAX, now), 0);
        assert_eq!(precedence.accepts(WAITING_MAX, now + ACCEPT_EVERY), 1);
    }

    #[test]
    fn beside_an_idle_user_unauthenticated_clients_have_short_turns_of_small_reads() {
        let mut precedence = Precedence::default();
        precedence.begin(false, true, false);
        assert!(precedence.reads_another(|| 10 * TURN) && precedence.read_bytes_max().is_none());
        precedence.set_any_known(true);
        precedence.begin(false, true, false);
        assert!(!precedence.reads_another(|| TURN) && precedence.reads_another(|| TURN / 2));
        assert_eq!(precedence.read_bytes_max(), Some(READ_BYTES_ALONE));
    }
}
