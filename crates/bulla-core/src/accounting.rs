//! What protection did, by policy, and what goes on at a queue: the counts that DISPLAY POLSTATUS and QSTATUS show.
//! They begin with the queue manager's start and end with it; nothing of them is kept on disk.
//!
//! A message is counted in two steps, where each is known: what sealing or opening it took ([`Accounts::note`]), and
//! why it was refused or set aside ([`Accounts::fail`]).

use crate::average::Averages;
use crate::catalog::status::{Deed, DeviceWait, ProtectionMeters};
use bulla_queue::MessageId;
use bulla_seal::Effort;
use hashbrown::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts of refused puts that a queue keeps: of so many reason codes less one, and of all others together.
const REJECT_REASONS_MAX: usize = 32;
/// What the others are counted under: MQRC_NONE, which no refusal has.
const OTHER_REASONS: u16 = 0;
/// After so many puts the message whose time is watched may be gone some other way, and is looked for.
const PUTS_PER_WATCH: u32 = 64;
/// From the begin of one watch to that of the next, at least: a busy queue's messages would each cost two readings of
/// the clock.
const WATCH_EVERY: Duration = Duration::from_millis(1);

/// What protecting one message took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// What was done.
    pub effort: Effort,
    /// How long it was with devices.
    pub wait: DeviceWait,
}

impl From<Effort> for Cost {
    /// Of what no device had to do with.
    fn from(effort: Effort) -> Self {
        Self { effort, wait: DeviceWait::default() }
    }
}

/// The meters of all policies, under a lock of their own that is held for a few additions.
#[derive(Debug, Default)]
pub struct Accounts {
    policies: Mutex<HashMap<String, ProtectionMeters>>,
}

impl Accounts {
    /// Something was done with a message under a policy. One lock, one look-up, some additions.
    pub fn note(&self, policy: &str, deed: Deed, cost: &Cost) {
        self.with(policy, |meters| meters.note(deed, &cost.effort, &cost.wait));
    }

    /// A message was refused, or could not be opened, for this cause.
    pub fn fail(&self, policy: &str, cause: &'static str) {
        self.with(policy, |meters| meters.fail(cause));
    }

    /// What was counted under a policy.
    pub fn of(&self, policy: &str) -> ProtectionMeters {
        self.lock().get(policy).cloned().unwrap_or_default()
    }

    /// Forgets the policies that were deleted or are new, whose names `stays` does not know. What was under way when a
    /// policy was deleted is counted under its name once more: no policy of that name begins with it.
    pub fn keep(&self, stays: impl Fn(&str) -> bool) {
        self.lock().retain(|policy, _| stays(policy));
    }

    fn with(&self, policy: &str, change: impl FnOnce(&mut ProtectionMeters)) {
        let mut policies = self.lock();
        if let Some(meters) = policies.get_mut(policy) {
            return change(meters);
        }
        change(policies.entry(policy.to_owned()).or_default());
    }

    /// Numbers stay good whatever became of the thread that held them.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ProtectionMeters>> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What went on at a queue beside what the store counts itself.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Times that it was opened to put.
    pub opens_to_put: u64,
    /// Times that it was opened to get or browse.
    pub opens_to_get: u64,
    /// Messages that came on a link to no queue in particular (MQPUT1's counterpart).
    pub single_puts: u64,
    /// Messages sent to browsers.
    pub browses: u64,
    /// Refused puts by reason code.
    rejects: Vec<(u16, u64)>,
    /// Microseconds between put and get, of the messages watched.
    pub time: Averages,
    /// The longest that a message lay on the queue before it was got, milliseconds.
    pub longest_ms: u64,
    /// The message whose time is being watched, and when it was put.
    watched: Option<(MessageId, Instant)>,
    watched_last: Option<Instant>,
    puts_since: u32,
}

impl Traffic {
    /// A put was refused.
    pub fn reject(&mut self, reason: u16) {
        let place = |reason| self.rejects.iter().position(|(known, _)| *known == reason);
        let found = match place(reason) {
            None if self.rejects.len() + 1 < REJECT_REASONS_MAX => Err(reason),
            None => place(OTHER_REASONS).ok_or(OTHER_REASONS),
            Some(place) => Ok(place),
        };
        match found {
            Ok(place) => self.rejects[place].1 += 1,
            Err(reason) => self.rejects.push((reason, 1)),
        }
    }

    /// Refused puts by reason code, in its order; under 0 those of all reasons that came when there were enough.
    pub fn rejects(&self) -> Vec<(u16, u64)> {
        let mut rejects = self.rejects.clone();
        rejects.sort_unstable();
        rejects
    }

    /// A message was put, in a turn that began at `now`: its time on the queue is watched, unless another one's is or
    /// was a moment ago. `is_there` says whether that one is still on the queue; it is asked once in
    /// [`PUTS_PER_WATCH`].
    pub fn put(&mut self, id: MessageId, now: Instant, is_there: impl FnOnce(MessageId) -> bool) {
        if let Some((watched, _)) = self.watched {
            self.puts_since += 1;
            if self.puts_since < PUTS_PER_WATCH || is_there(watched) {
                self.puts_since %= PUTS_PER_WATCH;
                return;
            }
        }
        if self.watched_last.is_some_and(|last| now.saturating_duration_since(last) < WATCH_EVERY) {
            return;
        }
        // The clock of the turn would show nothing of what is got in the same turn.
        (self.watched, self.watched_last, self.puts_since) = (Some((id, Instant::now())), Some(now), 0);
    }

    /// A message was got that was put so many milliseconds ago.
    pub fn got(&mut self, id: MessageId, age_ms: u64) {
        self.longest_ms = self.longest_ms.max(age_ms);
        if let Some((_, since)) = self.watched.take_if(|(watched, _)| *watched == id) {
            self.time.note(since.elapsed().as_secs_f64() * 1e6);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_s_counts_are_its_own_and_go_with_it() {
        let accounts = Accounts::default();
        let effort = Effort { signs: 1, bytes_in: 10, bytes_out: 500, ..Effort::default() };
        let wait = DeviceWait { jobs: 1, ns: 3_000, longest_ns: 3_000 };
        accounts.note("A", Deed::Sealed, &Cost { effort, wait });
        accounts.note("A", Deed::Sealed, &effort.into());
        accounts.fail("A", "tampered");
        accounts.note("B", Deed::NotMine, &Cost::default());
        let a = accounts.of("A");
        assert_eq!((a.sealed, a.sealing.signs, a.sealing.bytes_out, a.wait), (2, 2, 1000, wait));
        assert_eq!(
            a.failures.iter().map(|(cause, count)| (cause.as_ref(), *count)).collect::<Vec<_>>(),
            [("tampered", 1)]
        );
        assert_eq!((accounts.of("B").not_mine, accounts.of("B").failures.len()), (1, 0));
        accounts.keep(|policy| policy != "A");
        assert_eq!((accounts.of("A"), accounts.of("B").not_mine), (ProtectionMeters::default(), 1));
    }

    #[test]
    fn one_message_at_a_time_is_watched_until_it_is_got_or_gone() {
        let (mut traffic, begin) = (Traffic::default(), Instant::now());
        traffic.put(MessageId(1), begin, |_| unreachable!("none is watched"));
        traffic.put(MessageId(2), begin + WATCH_EVERY, |_| unreachable!("asked once in many"));
        traffic.got(MessageId(2), 7);
        assert_eq!((traffic.time.samples(), traffic.longest_ms), (0, 7));
        traffic.got(MessageId(1), 3);
        assert_eq!((traffic.time.samples(), traffic.longest_ms), (1, 7));
        traffic.put(MessageId(3), begin + WATCH_EVERY / 2, |_| unreachable!("none is watched"));
        assert_eq!(traffic.watched, None, "one was watched a moment ago");
        traffic.put(MessageId(3), begin + WATCH_EVERY, |_| unreachable!("none is watched"));
        let mut asked = 0;
        for id in 4..4 + u64::from(PUTS_PER_WATCH) {
            traffic.put(MessageId(id), begin + 2 * WATCH_EVERY, |watched| {
                asked += 1;
                assert_eq!(watched, MessageId(3));
                false
            });
        }
        // The one before the last took its place.
        assert_eq!((asked, traffic.watched.map(|(id, _)| id)), (1, Some(MessageId(3 + u64::from(PUTS_PER_WATCH)))));
    }

    #[test]
    fn refusals_are_told_apart_by_their_reason_and_their_number_is_bounded() {
        let mut traffic = Traffic::default();
        [2053, 2030, 2053].into_iter().for_each(|reason| traffic.reject(reason));
        assert_eq!(traffic.rejects(), [(2030, 1), (2053, 2)]);
        (1..=100).for_each(|reason| traffic.reject(reason));
        assert_eq!(traffic.rejects().len(), REJECT_REASONS_MAX);
        // Two reasons were known, 29 more are; 71 came too late.
        assert_eq!(traffic.rejects()[..2], [(OTHER_REASONS, 71), (1, 1)]);
        assert!(traffic.rejects().ends_with(&[(29, 1), (2030, 1), (2053, 2)]));
        assert_eq!(traffic.rejects().iter().map(|(_, count)| count).sum::<u64>(), 103);
    }
}
