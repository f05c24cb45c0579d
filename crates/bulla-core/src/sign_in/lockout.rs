//! Guessing is slow: after too many wrong attempts a client is refused for a time, without a look at its proof, and for
//! longer each time.
//!
//! Three things are counted, each from the moments it is told of:
//!
//! - **A user from one address.** After [`PAIR_FAILURES_MAX`] wrong attempts within [`WINDOW`] further ones are
//!   refused, and after that each wrong one is enough.
//! - **An address**, whatever users it names: [`ADDRESS_FAILURES_MAX`], and [`ADDRESS_FAILURES_AGAIN`] afterwards.
//!   Users who have signed in from there within [`KNOWN_FOR`] are not refused for what others do at their address.
//! - **A user from everywhere.** After [`USER_FAILURES_MAX`] the user is guarded: an address from which it has not
//!   signed in lately has one attempt. No user is refused for that alone, so an attacker cannot keep a user out who
//!   comes from another address.
//!
//! A refused attempt is not counted: a lockout ends at its time, however many attempts come meanwhile. Everything is
//! forgotten at a restart, and what is forgotten early is what is oldest.

use crate::catalog::lockouts::{InForce, Whose};
use crate::users;
use hashbrown::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Time within which wrong attempts add up.
pub const WINDOW: Duration = Duration::from_hours(1);
/// Wrong attempts as one user from one address that begin a lockout.
pub const PAIR_FAILURES_MAX: u32 = 10;
/// Wrong attempts from one address that begin a lockout of users who have not signed in from there.
pub const ADDRESS_FAILURES_MAX: u32 = 50;
/// As many as begin the next one.
pub const ADDRESS_FAILURES_AGAIN: u32 = 10;
/// Wrong attempts as one user, from any addresses, that have it guarded.
pub const USER_FAILURES_MAX: u32 = 100;
/// How long a user is guarded after the last wrong attempt.
pub const GUARDED_FOR: Duration = Duration::from_mins(15);
/// The first lockout. Each next one is twice as long.
pub const LOCKED_FOR_FIRST: Duration = Duration::from_secs(10);
/// The longest lockout.
pub const LOCKED_FOR_MAX: Duration = Duration::from_mins(15);
/// Time without a wrong attempt, counted from the end of the last lockout, after which lockouts are short again.
pub const FORGOTTEN_AFTER: Duration = Duration::from_hours(1);
/// How long an address stands for a user who has signed in from there.
pub const KNOWN_FOR: Duration = Duration::from_hours(24);
/// Most users, addresses and pairs of both that are remembered, some 100 bytes each.
pub const RECORDS_MAX: usize = 65_536;

/// Wrong attempts, and who has to wait for that. What it is told of has happened `now`, in any order.
pub struct Lockouts {
    records: HashMap<Key, Record>,
    /// Names are kept as hashes: an attempt costs the same memory whatever it calls itself.
    hasher: RandomState,
    /// The names behind the hashes of users who have been locked out, for administrators to see.
    names: HashMap<u64, Box<str>>,
}

/// A lockout that begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Begun {
    /// Who is locked out.
    pub whose: Whose,
    /// After how many wrong attempts.
    pub failures: u32,
    /// For how long.
    pub lasts: Duration,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Key {
    Pair(u64, IpAddr),
    Address(IpAddr),
    User(u64),
}

impl Key {
    fn user(&self) -> Option<u64> {
        match self {
            Self::Pair(user, _) | Self::User(user) => Some(*user),
            Self::Address(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// Wrong attempts since `since`.
    failures: u32,
    since: Instant,
    /// The last thing that happened.
    last: Instant,
    /// Lockouts that began, and when the last one ends.
    lockouts: u32,
    locked_until: Instant,
    /// Until when the address stands for the user.
    known_until: Instant,
}

impl Default for Lockouts {
    fn default() -> Self {
        Self { records: HashMap::new(), hasher: RandomState::new(), names: HashMap::new() }
    }
}

impl std::fmt::Debug for Lockouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lockouts").field("records", &self.records.len()).finish_non_exhaustive()
    }
}

impl Lockouts {
    /// Whether an attempt as `user` from `address` is to be refused without a look at it.
    pub fn is_locked(&self, user: &str, address: IpAddr, now: Instant) -> bool {
        let address = network(address);
        let pair = self.records.get(&self.pair(user, address));
        if pair.is_some_and(|pair| pair.locked_until > now) {
            return true;
        }
        let address = self.records.get(&Key::Address(address));
        address.is_some_and(|address| address.locked_until > now) && pair.is_none_or(|pair| pair.known_until <= now)
    }

    /// Whether `user` has signed in from `address` within [`KNOWN_FOR`].
    pub fn is_known(&self, user: &str, address: IpAddr, now: Instant) -> bool {
        let pair = self.records.get(&self.pair(user, network(address)));
        pair.is_some_and(|pair| pair.known_until > now)
    }

    /// An attempt was wrong. Says what lockouts that begins.
    pub fn failed(&mut self, user: &str, address: IpAddr, now: Instant) -> Vec<Begun> {
        self.make_room(now);
        let address = network(address);
        let mut begun = Vec::new();
        let everywhere = self.record(Key::User(self.hash(user)), now);
        if everywhere.locked_until > now {
            everywhere.locked_until = now + GUARDED_FOR;
        } else {
            everywhere.failures = everywhere.failures.saturating_add(1);
            if everywhere.failures >= USER_FAILURES_MAX {
                begun.push(Begun { whose: Whose::User, failures: everywhere.failures, lasts: GUARDED_FOR });
                everywhere.lockouts = everywhere.lockouts.saturating_add(1);
                (everywhere.failures, everywhere.since, everywhere.locked_until) = (0, now, now + GUARDED_FOR);
            }
        }
        let is_guarded = everywhere.locked_until > now;
        let pair = self.record(self.pair(user, address), now);
        let once = pair.lockouts > 0 || (is_guarded && pair.known_until <= now);
        let most = if once { 1 } else { PAIR_FAILURES_MAX };
        begun.extend(pair.failed(Whose::Pair, most, now));
        if !begun.is_empty() && users::is_valid_name(user) {
            self.names.insert(self.hash(user), user.into());
        }
        let record = self.record(Key::Address(address), now);
        let most = if record.lockouts > 0 { ADDRESS_FAILURES_AGAIN } else { ADDRESS_FAILURES_MAX };
        begun.extend(record.failed(Whose::Address, most, now));
        begun
    }

    /// `user` has signed in from `address`: what was wrong before were slips.
    pub fn succeeded(&mut self, user: &str, address: IpAddr, now: Instant) {
        self.make_room(now);
        let pair = self.record(self.pair(user, network(address)), now);
        *pair = Record { known_until: now + KNOWN_FOR, ..Record::new(now) };
    }

    /// The lockouts that are in force, and the users who are guarded.
    pub fn in_force(&self, now: Instant) -> Vec<InForce> {
        let mut all: Vec<InForce> = self.keys_in_force(now).map(|(key, record)| self.shown(key, record, now)).collect();
        all.sort();
        all
    }

    /// Ends the lockouts that `ends` says yes to; how many that were. A locked-out user has as many attempts again as
    /// one of whom nothing is known.
    pub fn end(&mut self, now: Instant, ends: impl Fn(&InForce) -> bool) -> usize {
        let ended: Vec<Key> = self
            .keys_in_force(now)
            .filter(|(key, record)| ends(&self.shown(key, record, now)))
            .map(|(key, _)| *key)
            .collect();
        for key in &ended {
            if let Some(record) = self.records.get_mut(key) {
                *record = Record { known_until: record.known_until, ..Record::new(now) };
            }
        }
        ended.len()
    }

    fn keys_in_force(&self, now: Instant) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.iter().filter(move |(_, record)| record.locked_until > now)
    }

    fn shown(&self, key: &Key, record: &Record, now: Instant) -> InForce {
        let (whose, user, address) = match *key {
            Key::Pair(user, address) => (Whose::Pair, Some(user), Some(address)),
            Key::Address(address) => (Whose::Address, None, Some(address)),
            Key::User(user) => (Whose::User, Some(user), None),
        };
        InForce {
            whose,
            user: user.and_then(|user| self.names.get(&user)).map(ToString::to_string),
            address,
            left: record.locked_until.saturating_duration_since(now),
            lockouts: record.lockouts,
        }
    }

    fn hash(&self, user: &str) -> u64 {
        self.hasher.hash_one(user)
    }

    fn pair(&self, user: &str, address: IpAddr) -> Key {
        Key::Pair(self.hash(user), address)
    }

    fn record(&mut self, key: Key, now: Instant) -> &mut Record {
        let record = self.records.entry(key).or_insert_with(|| Record::new(now));
        record.refresh(now);
        record
    }

    /// Before one attempt adds its records. A full table loses what is over, and where nothing is, the quarter that was
    /// heard of longest ago.
    fn make_room(&mut self, now: Instant) {
        const PER_ATTEMPT: usize = 3;
        if self.records.len() + PER_ATTEMPT <= RECORDS_MAX {
            return;
        }
        self.records.retain(|_, record| !record.is_over(now));
        if self.records.len() > RECORDS_MAX / 4 * 3 {
            let mut heard: Vec<Instant> = self.records.values().map(|record| record.last).collect();
            let (_, limit, _) = heard.select_nth_unstable(RECORDS_MAX / 4);
            let (limit, mut surplus) = (*limit, RECORDS_MAX / 4);
            self.records.retain(|_, record| {
                let goes = surplus > 0 && record.last <= limit;
                surplus -= usize::from(goes);
                !goes
            });
        }
        let Self { records, names, .. } = self;
        let known: HashSet<u64> = records.keys().filter_map(Key::user).collect();
        names.retain(|user, _| known.contains(user));
    }
}

impl Record {
    fn new(now: Instant) -> Self {
        Self { failures: 0, since: now, last: now, lockouts: 0, locked_until: now, known_until: now }
    }

    fn refresh(&mut self, now: Instant) {
        if now >= self.since + WINDOW {
            (self.failures, self.since) = (0, now);
        }
        if now >= self.locked_until + FORGOTTEN_AFTER && now >= self.last + FORGOTTEN_AFTER {
            self.lockouts = 0;
        }
        self.last = now;
    }

    fn failed(&mut self, whose: Whose, most: u32, now: Instant) -> Option<Begun> {
        if self.locked_until > now {
            return None; // it was being looked at when the lockout began
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < most {
            return None;
        }
        let lasts = LOCKED_FOR_FIRST.saturating_mul(1 << self.lockouts.min(16)).min(LOCKED_FOR_MAX);
        let begun = Begun { whose, failures: self.failures, lasts };
        (self.failures, self.since) = (0, now);
        self.lockouts = self.lockouts.saturating_add(1);
        self.locked_until = now + lasts;
        Some(begun)
    }

    /// Whether forgetting it changes nothing.
    fn is_over(&self, now: Instant) -> bool {
        now >= self.since + WINDOW
            && self.known_until <= now
            && (now >= self.locked_until + FORGOTTEN_AFTER && now >= self.last + FORGOTTEN_AFTER)
    }
}

/// The address as it is counted: IPv4 whole, also where it comes as IPv6, and of IPv6 the first 64 bits, since the
/// owner of one has the rest.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
    }

    /// Fails until a lockout of that kind begins; how often that was, and the lockout.
    fn guess(lockouts: &mut Lockouts, user: &str, from: IpAddr, now: Instant, whose: Whose) -> (u32, Begun) {
        for count in 1..=USER_FAILURES_MAX {
            let begun = lockouts.failed(user, from, now);
            if let Some(begun) = begun.into_iter().find(|begun| begun.whose == whose) {
                return (count, begun);
            }
        }
        panic!("no lockout of {whose:?}");
    }

    #[test]
    fn a_user_is_locked_out_at_one_address_and_for_twice_as_long_each_time() {
        let mut lockouts = Lockouts::default();
        let mut now = Instant::now();
        let (count, first) = guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
        assert_eq!((count, first.failures, first.lasts), (PAIR_FAILURES_MAX, PAIR_FAILURES_MAX, LOCKED_FOR_FIRST));
        assert!(lockouts.is_locked("orders", HOME, now));
        assert!(!lockouts.is_locked("orders", address(1), now), "another address");
        assert!(!lockouts.is_locked("billing", HOME, now), "another user");

        let mut lasts = first.lasts;
        for _ in 0..12 {
            assert!(lockouts.is_locked("orders", HOME, now + lasts - Duration::from_nanos(1)));
            now += lasts;
            assert!(!lockouts.is_locked("orders", HOME, now));
            let (count, next) = guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
            assert_eq!((count, next.lasts), (1, (lasts * 2).min(LOCKED_FOR_MAX)), "one wrong attempt is enough now");
            lasts = next.lasts;
        }
        now += lasts + FORGOTTEN_AFTER;
        let (count, again) = guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
        assert_eq!(
            (count, again.lasts),
            (PAIR_FAILURES_MAX, LOCKED_FOR_FIRST),
            "after a quiet time all is as at first"
        );
    }

    #[test]
    fn an_attempt_that_was_under_way_does_not_make_a_lockout_longer() {
        let mut lockouts = Lockouts::default();
        let now = Instant::now();
        guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
        assert_eq!(lockouts.failed("orders", HOME, now + Duration::from_secs(1)), []);
        assert!(!lockouts.is_locked("orders", HOME, now + LOCKED_FOR_FIRST));
    }

    #[test]
    fn slips_end_with_a_right_password_and_with_the_window() {
        let mut lockouts = Lockouts::default();
        let mut now = Instant::now();
        for _ in 0..5 {
            for _ in 1..PAIR_FAILURES_MAX {
                assert_eq!(lockouts.failed("orders", HOME, now), []);
            }
            lockouts.succeeded("orders", HOME, now);
        }
        for _ in 0..5 {
            now += WINDOW;
            for _ in 1..PAIR_FAILURES_MAX {
                assert_eq!(lockouts.failed("orders", HOME, now), []);
            }
        }
    }

    #[test]
    fn an_address_that_tries_many_users_is_locked_out_save_for_those_known_there() {
        let mut lockouts = Lockouts::default();
        let now = Instant::now();
        lockouts.succeeded("orders", HOME, now);
        let mut begun = Vec::new();
        for number in 0..ADDRESS_FAILURES_MAX {
            begun.extend(lockouts.failed(&format!("user{number}"), HOME, now));
        }
        let expected = Begun { whose: Whose::Address, failures: ADDRESS_FAILURES_MAX, lasts: LOCKED_FOR_FIRST };
        assert_eq!(begun, [expected]);
        assert!(lockouts.is_locked("never-tried", HOME, now));
        assert!(!lockouts.is_locked("orders", HOME, now), "who is known there is not kept out by others");
        assert!(!lockouts.is_locked("never-tried", address(1), now));
        let later = now + LOCKED_FOR_FIRST;
        let next: Vec<Begun> =
            (0..ADDRESS_FAILURES_AGAIN).flat_map(|n| lockouts.failed(&format!("again{n}"), HOME, later)).collect();
        let expected = Begun { whose: Whose::Address, failures: ADDRESS_FAILURES_AGAIN, lasts: LOCKED_FOR_FIRST * 2 };
        assert_eq!(next, [expected]);
        guess(&mut lockouts, "orders", HOME, later, Whose::Pair);
        assert!(lockouts.is_locked("orders", HOME, later), "guessing that very user's password is another matter");
        let stale = now + KNOWN_FOR;
        assert!(!lockouts.is_locked("never-tried", HOME, stale));
        for number in 0..ADDRESS_FAILURES_MAX {
            lockouts.failed(&format!("user{number}"), HOME, stale);
        }
        assert!(lockouts.is_locked("orders", HOME, stale), "no user is known for ever");
    }

    #[test]
    fn a_user_whom_many_addresses_attack_is_guarded_and_never_kept_out() {
        let mut lockouts = Lockouts::default();
        let now = Instant::now();
        lockouts.succeeded("orders", HOME, now);
        let mut begun = Vec::new();
        for number in 0..USER_FAILURES_MAX {
            begun.extend(lockouts.failed("orders", address(number), now));
        }
        let guarded = Begun { whose: Whose::User, failures: USER_FAILURES_MAX, lasts: GUARDED_FOR };
        assert_eq!(begun[0], guarded);
        assert_eq!(begun[1].whose, Whose::Pair, "the hundredth address has had its one attempt");

        let unknown = address(1_000);
        assert!(!lockouts.is_locked("orders", unknown, now), "a new address has an attempt");
        assert_eq!(guess(&mut lockouts, "orders", unknown, now, Whose::Pair).0, 1, "and no second one");
        assert_eq!(lockouts.failed("orders", HOME, now), [], "where the user is known there are as many as ever");
        for number in 2_000..12_000 {
            lockouts.failed("orders", address(number), now);
        }
        assert!(!lockouts.is_locked("orders", HOME, now) && !lockouts.is_locked("orders", address(50_000), now));

        let later = now + GUARDED_FOR;
        assert_eq!(lockouts.failed("orders", address(60_000), later), [], "the guard is over");
    }

    #[test]
    fn an_ipv6_address_counts_as_its_network_and_a_mapped_one_as_ipv4() {
        let mut lockouts = Lockouts::default();
        let now = Instant::now();
        let [one, same, other, mapped] =
            ["2001:db8:0:1::1", "2001:db8:0:1:ffff::9", "2001:db8:0:2::1", "::ffff:192.0.2.1"]
                .map(|text| text.parse::<IpAddr>().unwrap());
        guess(&mut lockouts, "orders", one, now, Whose::Pair);
        assert!(lockouts.is_locked("orders", same, now) && !lockouts.is_locked("orders", other, now));
        guess(&mut lockouts, "orders", mapped, now, Whose::Pair);
        assert!(lockouts.is_locked("orders", HOME, now));
    }

    #[test]
    fn a_flood_of_names_and_addresses_takes_no_more_than_its_room_and_the_newest_lockouts_stay() {
        let mut lockouts = Lockouts::default();
        let start = Instant::now();
        let mut now = start;
        for number in 0..100_000 {
            now = start + Duration::from_millis(number.into());
            lockouts.failed(&format!("user{number}"), address(number), now);
            assert!(lockouts.records.len() <= RECORDS_MAX);
        }
        guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
        for number in 0..10_000 {
            lockouts.failed(&format!("other{number}"), address(number), now);
        }
        assert!(lockouts.is_locked("orders", HOME, now));
        let much_later = now + KNOWN_FOR;
        lockouts.records.retain(|_, record| !record.is_over(much_later));
        assert!(lockouts.records.is_empty(), "{lockouts:?}");
    }

    #[test]
    fn a_lockout_that_is_ended_leaves_nothing_behind_but_that_the_user_is_known() {
        let mut lockouts = Lockouts::default();
        let now = Instant::now();
        lockouts.succeeded("orders", HOME, now);
        guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
        let in_force = lockouts.in_force(now);
        let [one] = in_force.as_slice() else { panic!("{in_force:?}") };
        assert_eq!((one.whose, one.user.as_deref(), one.address), (Whose::Pair, Some("orders"), Some(HOME)));
        assert_eq!((one.left, one.lockouts), (LOCKED_FOR_FIRST, 1));
        assert_eq!(lockouts.end(now, |_| false), 0);
        assert_eq!(lockouts.end(now, |lockout| lockout.user.as_deref() == Some("orders")), 1);
        assert!(!lockouts.is_locked("orders", HOME, now) && lockouts.in_force(now).is_empty());
        let (count, again) = guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
        assert_eq!((count, again.lasts), (PAIR_FAILURES_MAX, LOCKED_FOR_FIRST));
    }

    #[test]
    fn names_are_forgotten_with_what_is_known_of_them() {
        let mut lockouts = Lockouts::default();
        let now = Instant::now();
        guess(&mut lockouts, "orders", HOME, now, Whose::Pair);
        assert_eq!(lockouts.names.len(), 1);
        let later = now + FORGOTTEN_AFTER + LOCKED_FOR_MAX + WINDOW;
        for number in 0..u32::try_from(RECORDS_MAX).unwrap() {
            lockouts.failed(&format!("u{number}"), address(number), later);
        }
        assert!(lockouts.names.is_empty());
        assert!(lockouts.records.len() <= RECORDS_MAX);
    }
}
