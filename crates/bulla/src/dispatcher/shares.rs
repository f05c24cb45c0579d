//! Whose turn it is: a dispatcher's time is shared by users, however many connections each of them has.
//!
//! As long as one user alone wants something, it has all the time. Where several do, each has [`QUANTUM`] of a turn for its
//! connections together, and what it took beyond that is taken from its next turns (deficit round robin: Shreedhar and
//! Varghese, 1995). Whoever has not been let in yet is of one party with all others who have not.

use crate::limits::UserId;
use hashbrown::HashMap;
use std::time::Duration;

/// What one party may have of a turn in which others want something, too: some hundreds of small messages, so that what a turn
/// costs by itself, a few microseconds, is little beside it.
const QUANTUM: Duration = Duration::from_millis(1);
/// The most that a party can owe: no single piece of work keeps it waiting for longer than a hundred turns.
const DEBT_MAX: Duration = Duration::from_millis(100);

/// Who shares a turn with others.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Party {
    /// A user with all its connections.
    User(UserId),
    /// Whoever has not been let in yet.
    Stranger,
    /// A channel, by its connection's place: channels take turns among themselves as users do.
    Channel(usize),
}

/// What each party has had.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Of this turn, and of the time before beyond its share. Who has had nothing is not here.
    had: HashMap<Party, Duration>,
    /// Several parties want something in this turn.
    contested: bool,
}

impl Shares {
    /// A turn begins in which these want something. Costs a look at each, and nothing is counted where all are of one party.
    pub(super) fn begin(&mut self, mut parties: impl Iterator<Item = Party>) {
        let first = parties.next();
        self.contested = parties.any(|party| Some(party) != first);
        if self.contested {
            self.had.retain(|_, had| {
                *had = had.saturating_sub(QUANTUM);
                !had.is_zero()
            });
        } else {
            self.had.clear();
        }
    }

    /// Whether anybody has to wait for others in this turn, so that time has to be taken.
    pub(super) fn is_contested(&self) -> bool {
        self.contested
    }

    /// Whether it has had its share: the next turn is the earliest for it.
    pub(super) fn has_had_enough(&self, party: Party) -> bool {
        self.contested && self.had.get(&party).is_some_and(|had| *had >= QUANTUM)
    }

    /// It has had so much of the turn.
    pub(super) fn took(&mut self, party: Party, time: Duration) {
        let had = self.had.entry(party).or_default();
        *had = (*had + time).min(DEBT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(100);

    /// Turns in which each of `parties` wants as many steps as there are; how many each had.
    fn turns(parties: &[(Party, Duration)], turns: usize) -> Vec<Duration> {
        let mut shares = Shares::default();
        let mut had = vec![Duration::ZERO; parties.len()];
        for _ in 0..turns {
            shares.begin(parties.iter().map(|(party, _)| *party));
            for ((party, step), had) in parties.iter().zip(&mut had) {
                if !shares.has_had_enough(*party) {
                    shares.took(*party, *step);
                    *had += *step;
                }
            }
        }
        had
    }

    #[test]
    fn whoever_is_alone_never_waits() {
        let alone = [(Party::Stranger, 10 * QUANTUM), (Party::Stranger, 10 * QUANTUM)];
        assert_eq!(turns(&alone, 100), [1_000 * QUANTUM; 2]);
    }

    #[test]
    fn a_thousand_connections_of_one_party_have_as_much_as_one_of_another() {
        let mut parties = vec![(Party::Stranger, STEP); 1_000];
        parties.push((Party::Channel(7), QUANTUM));
        let had = turns(&parties, 300);
        let (one, many) = (had[1_000], had[..1_000].iter().sum::<Duration>());
        assert_eq!(one, 300 * QUANTUM);
        assert!(many <= one + 10 * STEP && many * 2 > one, "{many:?} {one:?}");
    }

    #[test]
    fn what_one_takes_beyond_its_share_is_taken_from_its_next_turns() {
        let had = turns(&[(Party::Stranger, 50 * QUANTUM), (Party::Channel(1), QUANTUM)], 500);
        assert!(had[0] <= had[1] + 50 * QUANTUM, "{had:?}");
        assert!(had[0] * 2 > had[1], "{had:?}");
    }

    #[test]
    fn a_debt_ends_where_nobody_else_wants_anything() {
        let mut shares = Shares::default();
        shares.begin([Party::Stranger, Party::Channel(1)].into_iter());
        shares.took(Party::Stranger, Duration::from_secs(10));
        shares.begin([Party::Stranger, Party::Channel(1)].into_iter());
        assert!(shares.has_had_enough(Party::Stranger) && !shares.has_had_enough(Party::Channel(1)));
        shares.begin([Party::Stranger].into_iter());
        assert!(!shares.has_had_enough(Party::Stranger));
        shares.begin(std::iter::empty());
        assert!(!shares.is_contested());
    }
}
