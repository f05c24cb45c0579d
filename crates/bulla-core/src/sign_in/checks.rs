//! Checks of passwords and tokens wait here for a thread that carries them out.
//!
//! A check of a password takes a large part of a second on purpose, so wrong ones come in faster than they can be
//! looked at. Whose turn it is decides who gets in:
//!
//! - users who have signed in before from the address where they are now;
//! - then the networks from which the fewest attempts were wrong, or found no time, lately. A right one makes up for
//!   [`ATTEMPTS_FOR_ONE_RIGHT`] of them;
//! - within a network the first that came.
//!
//! Every [`OLDEST_EVERY`]th check is the oldest of all, so none waits for ever. Where [`WAITING_MAX`] wait, the last
//! one of the worst network makes room, or the newcomer is that one. Such an attempt, and one that has waited
//! [`WAIT_MAX`], is answered "busy" and never "wrong".

use hashbrown::HashMap;
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Most checks that wait.
pub const WAITING_MAX: usize = 128;
/// Longest time that a check waits; a connection has 30 s in all to sign in.
pub const WAIT_MAX: Duration = Duration::from_secs(20);
/// One check in so many is the oldest that waits, whatever its network.
pub const OLDEST_EVERY: u32 = 4;
/// For at least so long, and at most twice as long, an attempt that was not right counts against its network.
pub const COUNTED_FOR: Duration = Duration::from_mins(10);
/// Attempts that a right one makes up for.
pub const ATTEMPTS_FOR_ONE_RIGHT: i64 = 4;
/// The most attempts that may be made up for in advance.
const ADVANCE_MAX: i64 = 100;
/// Networks that are counted, some 50 bytes each, before the older half of the counts is forgotten.
const NETWORKS_MAX: usize = 16_384;

/// A part of the addresses: the address with what follows the prefix cut off, and the prefix' length.
type Network = (IpAddr, u8);

/// What a check that had waited is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// Its time has come.
    Check,
    /// There is no time for it.
    Busy,
}

/// A check to be carried out, told whether there is time for it. It says whether what was given was right.
pub type Check = Box<dyn FnOnce(Turn) -> bool + Send>;

/// One who wants to sign in.
pub struct Applicant {
    /// Where it comes from.
    pub address: IpAddr,
    /// The user has signed in from there before.
    pub is_known: bool,
    /// Its connection, as long as that is there.
    pub connection: Weak<()>,
}

/// The checks that wait.
#[derive(Default)]
pub struct Checks {
    inbox: Mutex<Inbox>,
    wake: Condvar,
}

#[derive(Default)]
struct Inbox {
    line: Line<Check>,
    is_stopping: bool,
}

impl Checks {
    /// Takes a check, or tells it, or another one, at once that there is no time for it.
    pub fn submit(&self, applicant: Applicant, check: Check, now: Instant) {
        let surplus = self.lock().line.push(applicant, check, now);
        self.wake.notify_one();
        if let Some(check) = surplus {
            check(Turn::Busy);
        }
    }

    /// A thread's life: carries out checks until [`stop`](Self::stop).
    pub fn run(&self) {
        let mut inbox = self.lock();
        while !inbox.is_stopping {
            let Some((address, turn, check)) = inbox.line.pop(Instant::now()) else {
                inbox = self.wake.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(inbox);
            let is_right = check(turn);
            inbox = self.lock();
            inbox.line.judged(networks(address), is_right, Instant::now());
        }
    }

    /// A client signed in from there without a check.
    pub fn was_right(&self, address: IpAddr, now: Instant) {
        self.lock().line.judged(networks(address), true, now);
    }

    /// Ends the threads. What still waits is dropped with its connections.
    pub fn stop(&self) {
        self.lock().is_stopping = true;
        self.wake.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // Nothing foreign runs under the lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits, in the order in which it came, and what came of earlier attempts from each network.
struct Line<T> {
    waiting: Vec<Waiting<T>>,
    attempts: Counts,
    taken: u32,
}

struct Waiting<T> {
    applicant: Applicant,
    networks: [Network; 3],
    since: Instant,
    what: T,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), attempts: Counts::default(), taken: 0 }
    }
}

impl<T> Line<T> {
    /// Takes one more; what there is no room for comes back.
    fn push(&mut self, applicant: Applicant, what: T, now: Instant) -> Option<T> {
        let networks = networks(applicant.address);
        let newcomer = Waiting { applicant, networks, since: now, what };
        self.waiting.retain(|one| one.applicant.connection.strong_count() > 0);
        self.waiting.push(newcomer);
        if self.waiting.len() <= WAITING_MAX {
            return None;
        }
        // Of the worst, the last one that came.
        let worst = (0..self.waiting.len()).max_by_key(|&index| self.rank(&self.waiting[index]))?;
        let surplus = self.waiting.remove(worst);
        self.judged(surplus.networks, false, now);
        Some(surplus.what)
    }

    /// Whose turn it is, and whether there is time for it. Those whose connections have gone are passed over.
    fn pop(&mut self, now: Instant) -> Option<(IpAddr, Turn, T)> {
        loop {
            let oldest = self.waiting.first()?;
            let is_late = now.saturating_duration_since(oldest.since) >= WAIT_MAX;
            let index = if is_late || (self.taken + 1).is_multiple_of(OLDEST_EVERY) {
                0
            } else {
                (0..self.waiting.len()).min_by_key(|&index| self.rank(&self.waiting[index]))?
            };
            let one = self.waiting.remove(index);
            if one.applicant.connection.strong_count() == 0 {
                continue;
            }
            if is_late {
                return Some((one.applicant.address, Turn::Busy, one.what));
            }
            self.taken = self.taken.wrapping_add(1);
            return Some((one.applicant.address, Turn::Check, one.what));
        }
    }

    /// One was right, or it was wrong or found no time.
    fn judged(&mut self, networks: [Network; 3], is_right: bool, now: Instant) {
        let change = if is_right { -ATTEMPTS_FOR_ONE_RIGHT } else { 1 };
        networks.into_iter().for_each(|network| self.attempts.add(network, change, now));
    }

    /// The lowest is the first.
    fn rank(&self, one: &Waiting<T>) -> (Reverse<bool>, i64) {
        let attempts = one.networks.iter().map(|network| self.attempts.of(network)).sum();
        (Reverse(one.applicant.is_known), attempts)
    }
}

/// Attempts by network that were wrong or found no time, in two halves of which the older one is forgotten from time to
/// time.
#[derive(Default)]
struct Counts {
    recent: HashMap<Network, i64>,
    older: HashMap<Network, i64>,
    since: Option<Instant>,
}

impl Counts {
    fn add(&mut self, network: Network, change: i64, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if self.recent.len() >= NETWORKS_MAX / 2 || now.saturating_duration_since(since) >= COUNTED_FOR {
            self.older = std::mem::take(&mut self.recent);
            self.since = Some(now);
        }
        let count = self.recent.entry(network).or_default();
        *count = count.saturating_add(change).max(-ADVANCE_MAX);
    }

    fn of(&self, network: &Network) -> i64 {
        let of = |counts: &HashMap<Network, i64>| counts.get(network).copied().unwrap_or_default();
        of(&self.recent).saturating_add(of(&self.older))
    }
}

/// The networks that an address is in, the widest first: /16, /24 and the address itself; of IPv6 /32, /48 and /64.
fn networks(address: IpAddr) -> [Network; 3] {
    match address.to_canonical() {
        IpAddr::V4(address) => [16, 24, 32].map(|prefix| {
            let mask = u32::MAX << (32 - u32::from(prefix));
            (IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask)), prefix)
        }),
        IpAddr::V6(address) => [32, 48, 64].map(|prefix| {
            let mask = u128::MAX << (128 - u32::from(prefix));
            (IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask)), prefix)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A line whose connections stay.
    struct Bench {
        line: Line<u32>,
        connection: Arc<()>,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self { line: Line::default(), connection: Arc::default(), now: Instant::now() }
        }

        fn push(&mut self, address: &str, what: u32) -> Option<u32> {
            self.push_as(address, false, what)
        }

        fn push_as(&mut self, address: &str, is_known: bool, what: u32) -> Option<u32> {
            let connection = Arc::downgrade(&self.connection);
            self.line.push(Applicant { address: address.parse().unwrap(), is_known, connection }, what, self.now)
        }

        /// Attempts that came and went.
        fn attempts(&mut self, address: &str, count: u32) {
            let networks = networks(address.parse().unwrap());
            (0..count).for_each(|_| networks.iter().for_each(|network| self.line.attempts.add(*network, 1, self.now)));
        }

        fn all(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.line.pop(self.now)).map(|(_, _, what)| what).collect()
        }
    }

    #[test]
    fn of_one_network_the_first_that_came_is_the_first() {
        let mut bench = Bench::new();
        (0..10).for_each(|number| assert_eq!(bench.push("192.0.2.1", number), None));
        assert_eq!(bench.all(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_network_with_few_attempts_goes_before_one_with_many_and_a_known_user_before_all() {
        let mut bench = Bench::new();
        bench.attempts("198.51.100.1", 5);
        bench.push("198.51.100.1", 1);
        bench.push("198.51.7.7", 2); // of the same /16
        bench.push("192.0.2.1", 3);
        bench.push_as("198.51.100.1", true, 4);
        assert_eq!(bench.all(), [4, 3, 2, 1]);
    }

    #[test]
    fn right_passwords_do_not_count_against_their_network() {
        let mut bench = Bench::new();
        (0..50).for_each(|number| assert_eq!(bench.push("192.0.2.1", number), None));
        bench.all();
        let home = networks("192.0.2.1".parse().unwrap());
        (0..50).for_each(|_| bench.line.judged(home, true, bench.now));
        bench.push("198.51.100.1", 1);
        (2..5).for_each(|number| assert_eq!(bench.push("192.0.2.1", number), None));
        assert_eq!(bench.all()[0], 2, "and let others from there come at once");
    }

    #[test]
    fn each_fourth_turn_is_that_of_the_oldest() {
        let mut bench = Bench::new();
        bench.attempts("198.51.100.1", 100);
        (0..20).for_each(|number| assert_eq!(bench.push("198.51.100.1", number), None));
        (100..104).for_each(|number| assert_eq!(bench.push("192.0.2.1", number), None));
        assert_eq!(bench.all()[..5], [100, 101, 102, 0, 103]);
    }

    #[test]
    fn a_full_line_gives_up_the_last_of_the_worst_network() {
        let mut bench = Bench::new();
        let count = u32::try_from(WAITING_MAX).unwrap();
        (0..count).for_each(|number| assert_eq!(bench.push("10.0.0.1", number), None));
        assert_eq!(bench.push("10.0.0.1", 1000), Some(1000), "a newcomer of the worst network");
        assert_eq!(bench.push("192.0.2.1", 1001), Some(count - 1));
        assert_eq!(bench.all()[0], 1001);
    }

    #[test]
    fn one_that_has_waited_too_long_is_told_so_and_one_that_has_gone_is_dropped() {
        let mut bench = Bench::new();
        bench.push("192.0.2.1", 1);
        let gone = Applicant { address: "192.0.2.2".parse().unwrap(), is_known: true, connection: Weak::new() };
        assert_eq!(bench.line.push(gone, 2, bench.now), None);
        let later = bench.now + WAIT_MAX;
        assert_eq!(bench.line.pop(later).map(|(_, turn, what)| (turn, what)), Some((Turn::Busy, 1)));
        assert!(bench.line.pop(later).is_none());
    }

    #[test]
    fn attempts_are_forgotten_and_never_more_networks_than_there_is_room_for() {
        let mut bench = Bench::new();
        for number in 0..20_000u32 {
            let network = networks(IpAddr::V4(Ipv4Addr::from_bits(number << 12)))[2];
            bench.line.attempts.add(network, 1, bench.now);
        }
        let Counts { recent, older, .. } = &bench.line.attempts;
        assert!(recent.len() + older.len() <= NETWORKS_MAX);
        for _ in 0..2 {
            bench.now += COUNTED_FOR;
            bench.attempts("2001:db8::1", 1);
        }
        assert_eq!(bench.line.attempts.of(&networks("0.0.0.1".parse().unwrap())[0]), 0);
        assert_eq!(bench.line.attempts.of(&networks("2001:db8:0:0:9::9".parse().unwrap())[2]), 2);
    }

    #[test]
    fn checks_are_carried_out_and_the_thread_ends() {
        let (checks, connection) = (Arc::new(Checks::default()), Arc::new(()));
        let (tell, told) = std::sync::mpsc::channel();
        let runner = checks.clone();
        let thread = std::thread::spawn(move || runner.run());
        let applicant =
            Applicant { address: Ipv4Addr::LOCALHOST.into(), is_known: false, connection: Arc::downgrade(&connection) };
        let check = Box::new(move |turn| tell.send(turn).is_err());
        checks.submit(applicant, check, Instant::now());
        assert_eq!(told.recv(), Ok(Turn::Check));
        checks.stop();
        thread.join().unwrap();
    }
}
