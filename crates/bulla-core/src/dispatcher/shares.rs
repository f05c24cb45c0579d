//! Shares a dispatcher's processor time fairly between the users who have signed in.
//!
//! Time is counted, not messages or bytes, because a few bytes can ask for a link, a queue or a subscription. It is
//! measured while at least two users were read within [`RECENT`]. A turn reads a user whose time is at most
//! [`AHEAD_MAX`] above that of the waiting user with the least time. The other users are read when that user has caught
//! up, or when no other user waits. A user who wants little saves up at most [`SAVED_MAX`]. Links that come and go
//! count [`LINK_WEIGHT`] times. A turn reads from a user about what takes [`TURN`], estimated from the turns before, so
//! that a user who arrives meanwhile does not wait long.
//!
//! The users who put persistent messages pay for what the journal takes for them, on this thread and on its own: each
//! pays the part that it has of the bytes that were put lately.

use crate::limits::UserId;
use crate::maps::HashMap;
use std::time::{Duration, Instant};

/// A user who was read within this time may want something again at any moment.
const RECENT: Duration = Duration::from_secs(1);
/// What a user may have had beyond another one, and still be read in the same turn.
const AHEAD_MAX: Duration = Duration::from_micros(500);
/// The most that a user who wants little saves up: so long it goes before others when it wants something.
const SAVED_MAX: Duration = Duration::from_millis(10);
/// Connections, sessions and links that come and go count so many times what they take: messages go before them.
const LINK_WEIGHT: u32 = 8;
/// What one user may take of one turn.
const TURN: Duration = Duration::from_millis(1);
/// The most that a user can be ahead, so that one costly piece of work does not shut it out for long.
const DEBT_MAX: Duration = Duration::from_millis(20);
/// The least that is read of a user in a turn, bytes, however costly it is.
const READ_BYTES_MIN: usize = 16 << 10;
/// What is read of a user in its first turn, bytes: what they cost is not known yet.
const READ_BYTES_FIRST: f64 = 65_536.0;
/// How often users who were not read for long are forgotten.
const FORGET_EVERY: Duration = Duration::from_millis(100);
/// A new measurement counts so much of what a byte costs.
const MEASURED_PART: f64 = 0.5;
/// What is left of the bytes that were put, each time that the journal has done something: it writes them some turns
/// later.
const PUT_KEPT_PART: f64 = 0.9;

/// What users have had of a dispatcher's time.
#[derive(Debug, Default)]
pub struct Shares {
    accounts: HashMap<UserId, Account>,
    is_shared: bool,
    /// What the one who wants something, and has had the least, has had.
    least: i64,
    forget_at: Option<Instant>,
    /// Bytes of persistent messages that all users together have put, and how many lately.
    put_bytes: u64,
    put_lately: f64,
}

#[derive(Debug)]
struct Account {
    /// Nanoseconds, as far as they tell users apart.
    had: i64,
    wanted_at: Instant,
    /// Nanoseconds for a byte that was read.
    cost: f64,
    /// Bytes that may still be read in this turn.
    left: usize,
    /// Of this turn.
    read_bytes: usize,
    took: Duration,
    /// Bytes of persistent messages that it has put, as was said last, and how many lately.
    put_bytes: Option<u64>,
    put_lately: f64,
}

impl Account {
    fn new(had: i64, now: Instant) -> Self {
        Self {
            had,
            wanted_at: now,
            cost: TURN.as_nanos() as f64 / READ_BYTES_FIRST,
            left: 0,
            read_bytes: 0,
            took: Duration::ZERO,
            put_bytes: None,
            put_lately: 0.0,
        }
    }

    /// Closes the turn before.
    fn begin(&mut self) {
        if self.read_bytes > 0 {
            let measured = self.took.as_nanos() as f64 / self.read_bytes as f64;
            self.cost += (measured - self.cost) * MEASURED_PART;
        }
        (self.read_bytes, self.took) = (0, Duration::ZERO);
        // A cost of 0 gives all that a usize can hold.
        self.left = ((TURN.as_nanos() as f64 / self.cost) as usize).max(READ_BYTES_MIN);
    }
}

impl Shares {
    /// A turn begins in which connections of these users want to be read.
    pub fn begin(&mut self, now: Instant, wanting: impl Iterator<Item = UserId> + Clone) {
        let had = self.least;
        for user in wanting.clone() {
            self.accounts.entry(user).or_insert_with(|| Account::new(had, now)).wanted_at = now;
        }
        if self.forget_at.is_none_or(|at| at <= now) {
            self.accounts.retain(|_, account| now.saturating_duration_since(account.wanted_at) < RECENT);
            self.forget_at = Some(now + FORGET_EVERY);
        }
        self.is_shared = self.accounts.len() > 1;
        if !self.is_shared {
            return;
        }
        let wants = |account: &&Account| account.wanted_at == now;
        self.least = self.accounts.values().filter(wants).map(|account| account.had).min().unwrap_or(self.least);
        for account in self.accounts.values_mut() {
            let least = self.least - nanoseconds(SAVED_MAX);
            account.had = account.had.clamp(least, self.least + nanoseconds(DEBT_MAX));
            account.begin();
        }
    }

    /// Whether it is to be told what users take of this turn.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// How many bytes of that user may still be read in this turn; none for as many as there are.
    pub fn may_read(&self, user: UserId) -> Option<usize> {
        let account = self.accounts.get(&user).filter(|_| self.is_shared)?;
        let is_ahead = account.had > self.least + nanoseconds(AHEAD_MAX);
        Some(if is_ahead { 0 } else { account.left })
    }

    /// So many bytes of that user were read.
    pub fn read(&mut self, user: UserId, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Some(account) = self.accounts.get_mut(&user) {
            account.read_bytes = account.read_bytes.saturating_add(bytes);
            account.left = account.left.saturating_sub(bytes);
        }
    }

    /// That user's connections took so much of this turn.
    pub fn took(&mut self, user: UserId, time: Duration) {
        self.took_weighted(user, time, 1);
    }

    /// That user's connections took so much of this turn, and connections, sessions or links came and went in it.
    pub fn took_for_links(&mut self, user: UserId, time: Duration) {
        self.took_weighted(user, time, LINK_WEIGHT);
    }

    /// The journal took so much time to hand over and write what was put. `put_by` says how many bytes of persistent
    /// messages a user has put since it came, `put_by_all` how many all users have.
    pub fn journal_took(&mut self, time: Duration, put_by_all: u64, put_by: impl Fn(UserId) -> u64) {
        let lately = |before: f64, more: u64| before * PUT_KEPT_PART + more as f64;
        self.put_lately = lately(self.put_lately, put_by_all.saturating_sub(self.put_bytes));
        self.put_bytes = put_by_all;
        for (user, account) in &mut self.accounts {
            let bytes = put_by(*user);
            let more = bytes.saturating_sub(account.put_bytes.replace(bytes).unwrap_or(bytes));
            account.put_lately = lately(account.put_lately, more);
            // At least one byte: where none were put lately each part is 0.
            let part = account.put_lately / self.put_lately.max(1.0);
            account.had = account.had.saturating_add(nanoseconds(time.mul_f64(part.min(1.0))));
        }
    }

    fn took_weighted(&mut self, user: UserId, time: Duration, weight: u32) {
        if let Some(account) = self.accounts.get_mut(&user) {
            account.took += time;
            account.had = account.had.saturating_add(nanoseconds(time.saturating_mul(weight)));
        }
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTLY: usize = 1;
    const CHEAP: usize = 2;
    const PUTTING: usize = 3;
    const STEP: Duration = Duration::from_micros(100);

    /// Users, and what a kilobyte of theirs takes and how many they want read in each turn.
    struct Turns {
        shares: Shares,
        now: Instant,
        had: HashMap<usize, Duration>,
        longest: Duration,
    }

    impl Turns {
        fn new() -> Self {
            Self { shares: Shares::default(), now: Instant::now(), had: HashMap::default(), longest: Duration::ZERO }
        }

        fn turn(&mut self, wanting: &[(usize, Duration, usize)]) {
            self.now += STEP;
            let users = wanting.iter().map(|(user, ..)| UserId::test(*user));
            self.shares.begin(self.now, users);
            let mut lasted = Duration::ZERO;
            for (number, kilobyte, wanted) in wanting {
                let user = UserId::test(*number);
                let may = self.shares.may_read(user).map_or(*wanted, |left| (left >> 10).min(*wanted));
                let took = *kilobyte * u32::try_from(may).unwrap();
                self.shares.read(user, (may as u64) << 10);
                self.shares.took(user, took);
                *self.had.entry(*number).or_default() += took;
                lasted += took;
            }
            self.longest = self.longest.max(lasted);
        }
    }

    #[test]
    fn one_user_alone_has_all_there_is() {
        let mut turns = Turns::new();
        (0..100).for_each(|_| turns.turn(&[(COSTLY, Duration::from_micros(50), 1_000)]));
        assert_eq!(turns.had[&COSTLY], Duration::from_millis(5_000));
    }

    #[test]
    fn a_user_whose_bytes_cost_much_has_no_more_of_the_time_than_another() {
        let mut turns = Turns::new();
        let wanting = [(COSTLY, Duration::from_micros(50), 1_000), (CHEAP, Duration::from_micros(1), 200)];
        (0..20).for_each(|_| turns.turn(&wanting));
        (turns.longest, turns.had) = (Duration::ZERO, HashMap::default());
        (0..10_000).for_each(|_| turns.turn(&wanting));
        let (costly, cheap) = (turns.had[&COSTLY], turns.had[&CHEAP]);
        assert!(costly <= cheap + 2 * DEBT_MAX && cheap <= costly + 2 * DEBT_MAX, "{costly:?} and {cheap:?}");
        // Of links that come and go it has less.
        turns.had = HashMap::default();
        for _ in 0..10_000 {
            let before = turns.had.get(&COSTLY).copied().unwrap_or_default();
            turns.turn(&wanting);
            let links = turns.had[&COSTLY] - before;
            turns.shares.took_weighted(UserId::test(COSTLY), links, LINK_WEIGHT - 1);
        }
        let (links, cheap) = (turns.had[&COSTLY], turns.had[&CHEAP]);
        assert!(links * (LINK_WEIGHT - 1) < cheap, "{links:?} and {cheap:?}");
        assert!(cheap >= Duration::from_micros(200) * 4_000, "{cheap:?}");
        assert!(turns.longest <= 3 * TURN, "{:?}", turns.longest);
    }

    #[test]
    fn a_user_pays_for_what_the_journal_does_with_its_messages() {
        const JOURNAL: Duration = Duration::from_micros(300);
        const MESSAGE_BYTES: u64 = 64 << 10;
        let mut turns = Turns::new();
        let wanting = [(PUTTING, Duration::from_micros(1), 1_000), (CHEAP, Duration::from_micros(1), 1_000)];
        let (mut put, mut journal) = (0, Duration::ZERO);
        for number in 0..10_000 {
            if number == 20 {
                (journal, turns.had) = (Duration::ZERO, HashMap::default());
            }
            turns.turn(&wanting);
            put += MESSAGE_BYTES;
            let by = |user| if user == UserId::test(PUTTING) { put } else { 0 };
            turns.shares.journal_took(JOURNAL, put, by);
            journal += JOURNAL;
        }
        let (putting, cheap) = (turns.had[&PUTTING] + journal, turns.had[&CHEAP]);
        assert!(putting <= cheap + 2 * DEBT_MAX && cheap <= putting + 2 * DEBT_MAX, "{putting:?} and {cheap:?}");
        // Of what others have put, users who are not here, a user pays nothing.
        let before = turns.had.clone();
        for _ in 0..1_000 {
            turns.turn(&wanting);
            put += MESSAGE_BYTES;
            turns.shares.journal_took(JOURNAL, put, |_| 0);
        }
        let [putting, cheap] = [PUTTING, CHEAP].map(|user| turns.had[&user] - before[&user]);
        assert!(putting <= cheap + 2 * DEBT_MAX && cheap <= putting + 2 * DEBT_MAX, "{putting:?} and {cheap:?}");
    }

    #[test]
    fn what_nobody_else_wants_is_a_user_s_to_have_in_short_turns() {
        let mut turns = Turns::new();
        for number in 0..10_000 {
            let costly = (COSTLY, Duration::from_micros(50), 1_000);
            let cheap = (CHEAP, Duration::from_micros(1), 200);
            let wanting = [costly, cheap];
            turns.turn(&wanting[..if number % 10 == 0 { 2 } else { 1 }]);
            if number == 20 {
                turns.longest = Duration::ZERO;
            }
        }
        // The other one is read whenever it wants to be, and waits for a turn at most.
        assert!(turns.had[&CHEAP] >= Duration::from_micros(200) * 990, "{:?}", turns.had[&CHEAP]);
        assert!(turns.had[&COSTLY] > Duration::from_millis(800) * 8, "{:?}", turns.had[&COSTLY]);
        assert!(turns.longest <= 3 * TURN, "{:?}", turns.longest);
    }

    #[test]
    fn nobody_saves_up_by_wanting_nothing_and_a_debt_is_bounded() {
        let mut turns = Turns::new();
        let (one, other) = (UserId::test(COSTLY), UserId::test(CHEAP));
        turns.turn(&[(COSTLY, Duration::ZERO, 1), (CHEAP, Duration::ZERO, 1)]);
        turns.shares.took(one, Duration::from_secs(10));
        let mut waited = Duration::ZERO;
        loop {
            turns.turn(&[(COSTLY, Duration::ZERO, 0), (CHEAP, Duration::ZERO, 0)]);
            if turns.shares.may_read(one) != Some(0) {
                break;
            }
            turns.shares.took(other, STEP);
            waited += STEP;
        }
        assert!(waited <= DEBT_MAX, "{waited:?}");
        turns.shares.took(one, Duration::from_secs(10));
        turns.turn(&[(COSTLY, Duration::ZERO, 0)]);
        assert_ne!(turns.shares.may_read(one), Some(0), "no other user wants anything");
        turns.turn(&[(COSTLY, Duration::ZERO, 0), (CHEAP, Duration::ZERO, 0)]);
        turns.shares.took(other, SAVED_MAX + 2 * AHEAD_MAX);
        turns.turn(&[(COSTLY, Duration::ZERO, 0), (CHEAP, Duration::ZERO, 0)]);
        assert_eq!(turns.shares.may_read(other), Some(0));
    }
}
