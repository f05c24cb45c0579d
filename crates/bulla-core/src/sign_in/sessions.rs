//! Sessions: a user who has signed in by a password goes on by a token, which a program keeps as a cookie.
//!
//! A token is 32 random bytes. Only its digest is kept, and nothing is written to disk: a restart ends all sessions. A
//! session ends with its time, when it is signed out of or stopped, and when its user is removed or gets another
//! password. Where a user has as many as it may, its oldest one ends; another user's never does. The audit log has the
//! begin and the end of each.

use crate::audit::{Audit, Who};
use crate::catalog::log_ins::{LogInCounts, LoggedIn};
use crate::catalog::{LOG_IN_IDLE_SECONDS, LOG_IN_LIFE_SECONDS, QueueManager};
use crate::users::Users;
use crate::wall_clock::wall_ms;
use hashbrown::HashMap;
use openssl::sha::sha256;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Most sessions, some 200 bytes each.
pub const SESSIONS_MAX: usize = 16_384;
/// Most sessions of one user: browsers, and programs that sign in each time they run.
pub const SESSIONS_OF_USER_MAX: usize = 32;
/// How often sessions are looked for that are over.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Why a session ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// There was no request for LOGINIDLE.
    Idle,
    /// It was as old as LOGINLIFE.
    Lifetime,
    /// Its user signed out.
    LoggedOut,
    /// Its user signed in anew with its cookie.
    Replaced,
    /// Its user had as many as it may, and began another one.
    TooMany,
    /// Its user has another password, or is gone.
    Password,
    /// Its user is locked out where it was used.
    LockedOut,
    /// Its user is not let in any more.
    KeptOut,
    /// An administrator stopped it.
    Stopped,
}

impl Ended {
    /// Every cause, in the order of the counts.
    const ALL: [Ended; 9] = [
        Ended::Idle,
        Ended::Lifetime,
        Ended::LoggedOut,
        Ended::Replaced,
        Ended::TooMany,
        Ended::Password,
        Ended::LockedOut,
        Ended::KeptOut,
        Ended::Stopped,
    ];

    /// As metrics and the audit log have it.
    fn word(self) -> &'static str {
        match self {
            Ended::Idle => "idle",
            Ended::Lifetime => "lifetime",
            Ended::LoggedOut => "logged-out",
            Ended::Replaced => "replaced",
            Ended::TooMany => "too-many",
            Ended::Password => "password",
            Ended::LockedOut => "locked-out",
            Ended::KeptOut => "kept-out",
            Ended::Stopped => "stopped",
        }
    }
}

/// How long sessions last.
#[derive(Clone, Copy)]
struct Times {
    idle: Duration,
    lifetime: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Self { idle: seconds(LOG_IN_IDLE_SECONDS), lifetime: seconds(LOG_IN_LIFE_SECONDS) }
    }
}

/// Which session: the digest of its token.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct LoginId([u8; 32]);

impl LoginId {
    /// The session of that token. A token can't be guessed, so how long the look-up of its digest takes tells nothing.
    #[must_use]
    pub fn of(token: &[u8; 32]) -> Self {
        Self(sha256(token))
    }
}

/// Nothing of a credential comes into a log.
impl fmt::Debug for LoginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginId")
    }
}

/// What of a user's password a session hangs on: another password, or another user of that name, is not the same.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Password([u8; 32]);

impl Password {
    /// As `user` has it now.
    #[must_use]
    pub fn of(user: &str, users: &Users) -> Self {
        Self(users.verifier(user).stored_key)
    }
}

struct Session {
    /// They are numbered from the start on.
    number: u64,
    user: String,
    password: Password,
    /// It was begun over TLS, and is taken over TLS alone; otherwise over none.
    tls: bool,
    begun: Instant,
    used: Instant,
    /// From where it was used last.
    address: Option<IpAddr>,
}

impl Session {
    /// Why it is over, where it is.
    fn over(&self, times: Times, now: Instant) -> Option<Ended> {
        let since = |then: Instant| now.saturating_duration_since(then);
        let is_old = (since(self.begun) >= times.lifetime).then_some(Ended::Lifetime);
        is_old.or((since(self.used) >= times.idle).then_some(Ended::Idle))
    }
}

/// How a session is begun or used: over TLS or not, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Over TLS.
    pub tls: bool,
    /// The client's address, where it is known.
    pub address: Option<IpAddr>,
}

/// All sessions.
pub struct Sessions {
    table: Mutex<Table>,
    audit: Arc<Audit>,
}

#[derive(Default)]
struct Table {
    all: HashMap<LoginId, Session>,
    /// Those of each user, the oldest first.
    of_user: HashMap<String, Vec<LoginId>>,
    times: Times,
    swept: Option<Instant>,
    /// How many there were.
    begun: u64,
    /// How many of them ended, in the order of [`Ended::ALL`].
    ended: [u64; Ended::ALL.len()],
}

impl Sessions {
    /// None yet. `audit` hears of each.
    pub fn new(audit: Arc<Audit>) -> Self {
        Self { table: Mutex::default(), audit }
    }

    /// Takes over how long they last; those that are older or have been idle for longer are over. What was over before
    /// stays so.
    pub fn follow(&self, manager: &QueueManager, now: Instant) {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let (idle, lifetime) = (seconds(manager.log_in_idle_seconds), seconds(manager.log_in_life_seconds));
        let mut table = self.table();
        let times = table.times;
        self.end_where(&mut table, now, |session| session.over(times, now));
        table.times = Times { idle, lifetime };
    }

    /// Begins a session of a user whose password was right. `password` is what it hangs on, as it was before the
    /// password was checked. False where there are [`SESSIONS_MAX`] and none of them is the user's.
    pub fn begin(&self, id: LoginId, user: &str, password: Password, way: Way, now: Instant) -> bool {
        let mut table = self.table();
        if table.all.len() >= SESSIONS_MAX {
            let times = table.times;
            self.end_where(&mut table, now, |session| session.over(times, now));
        }
        let own = table.of_user.get(user).map_or(0, Vec::len);
        let is_full = table.all.len() >= SESSIONS_MAX;
        if is_full && own == 0 {
            return false;
        }
        if is_full || own >= SESSIONS_OF_USER_MAX {
            let oldest = table.of_user.get(user).and_then(|own| own.first()).copied();
            oldest.into_iter().for_each(|oldest| _ = self.end_one(&mut table, oldest, Ended::TooMany, now));
        }
        table.of_user.entry(user.to_owned()).or_default().push(id);
        table.begun += 1;
        let (number, Way { tls, address }) = (table.begun, way);
        let session = Session { number, user: user.to_owned(), password, tls, begun: now, used: now, address };
        table.all.insert(id, session);
        drop(table);
        self.audit.logged_in(now, user, shown(address), number, tls);
        true
    }

    /// The user of a session that is used now. None where there is no such session, or no longer, or it is used
    /// otherwise than it was begun.
    pub fn uses(&self, id: LoginId, way: Way, users: &Users, now: Instant) -> Option<String> {
        let (user, password) = {
            let table = self.table();
            let is_there = |session: &&Session| session.tls == way.tls && session.over(table.times, now).is_none();
            let session = table.all.get(&id).filter(is_there)?;
            (session.user.clone(), session.password)
        };
        let is_current = Password::of(&user, users) == password;
        let mut table = self.table();
        if !is_current {
            self.end_one(&mut table, id, Ended::Password, now);
            return None;
        }
        // It may have been ended meanwhile.
        let session = table.all.get_mut(&id)?;
        (session.used, session.address) = (now, way.address);
        Some(user)
    }

    /// Whether a session goes on, without using it.
    pub fn goes_on(&self, id: LoginId, now: Instant) -> bool {
        let table = self.table();
        table.all.get(&id).is_some_and(|session| session.over(table.times, now).is_none())
    }

    /// Ends a session; one whose time is over, because of that. False where it had ended.
    pub fn end(&self, id: LoginId, cause: Ended, now: Instant) -> bool {
        let mut table = self.table();
        let over = table.all.get(&id).and_then(|session| session.over(table.times, now));
        self.end_one(&mut table, id, over.unwrap_or(cause), now)
    }

    /// Ends those whose user and number it is told yes for; how many that were.
    pub fn stop(&self, is_meant: &dyn Fn(&str, u64) -> bool, now: Instant) -> usize {
        let stops = |session: &Session| is_meant(&session.user, session.number).then_some(Ended::Stopped);
        self.end_where(&mut self.table(), now, stops)
    }

    /// Ends those that are over, and those of users who are gone or have another password; [`SWEEP_EVERY`] at most.
    pub fn sweep(&self, users: &Users, now: Instant) {
        let mut table = self.table();
        let is_due = table.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP_EVERY);
        if table.all.is_empty() || !is_due {
            return;
        }
        table.swept = Some(now);
        let times = table.times;
        users.look(|key_of| {
            let is_current = |session: &Session| key_of(&session.user) == Some(session.password.0);
            self.end_where(&mut table, now, |session| {
                session.over(times, now).or((!is_current(session)).then_some(Ended::Password))
            });
        });
    }

    /// Those that go on, by user and number. `now` and `wall` are the same moment.
    pub fn known(&self, now: Instant, wall: SystemTime) -> Vec<LoggedIn> {
        let table = self.table();
        let wall = wall_ms(wall);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let moment = |then: Instant| wall.saturating_sub(ms(now.saturating_duration_since(then)));
        let going_on = table.all.values().filter(|session| session.over(table.times, now).is_none());
        let mut known: Vec<LoggedIn> = going_on
            .map(|session| {
                let (since_ms, used_ms) = (moment(session.begun), moment(session.used));
                let until_ms = (used_ms + ms(table.times.idle)).min(since_ms + ms(table.times.lifetime));
                let Session { number, address, tls, .. } = *session;
                LoggedIn { user: session.user.clone(), number, since_ms, used_ms, until_ms, address, tls }
            })
            .collect();
        drop(table);
        known.sort_unstable();
        known
    }

    /// How many there are and were.
    pub fn counts(&self) -> LogInCounts {
        let table = self.table();
        let ended = Ended::ALL.iter().zip(table.ended).map(|(cause, count)| (cause.word(), count)).collect();
        LogInCounts { now: table.all.len(), begun: table.begun, ended }
    }

    fn end_one(&self, table: &mut Table, id: LoginId, cause: Ended, now: Instant) -> bool {
        let Some(session) = table.take(id, cause) else { return false };
        let who = match cause {
            Ended::LoggedOut => Who::Connection { user: Some(session.user.clone()), address: shown(session.address) },
            _ => Who::QueueManager,
        };
        let lasted = now.saturating_duration_since(session.begun);
        self.audit.logged_out(now, who, &session.user, session.number, cause.word(), lasted);
        true
    }

    /// Ends those that `cause` has a cause for; how many that were.
    fn end_where(&self, table: &mut Table, now: Instant, cause: impl Fn(&Session) -> Option<Ended>) -> usize {
        let ends = table.all.iter().filter_map(|(id, session)| Some((*id, cause(session)?)));
        let ends: Vec<(LoginId, Ended)> = ends.collect();
        ends.into_iter().filter(|(id, cause)| self.end_one(table, *id, *cause, now)).count()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic elsewhere breaks nothing here: both maps change together, and nothing foreign runs in between.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shown(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
}

/// Without users and digests.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Table {
    fn take(&mut self, id: LoginId, cause: Ended) -> Option<Session> {
        let ended = self.all.remove(&id)?;
        if let Some(own) = self.of_user.get_mut(&ended.user) {
            own.retain(|other| *other != id);
            if own.is_empty() {
                self.of_user.remove(&ended.user);
            }
        }
        let place = Ended::ALL.iter().position(|known| *known == cause);
        if let Some(count) = place.and_then(|place| self.ended.get_mut(place)) {
            *count += 1;
        }
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::users::ITERATIONS_MIN;

    struct Bench {
        _directory: tempfile::TempDir,
        users: Users,
        sessions: Sessions,
        clock: Clock,
    }

    const IDLE: Duration = Duration::from_secs(LOG_IN_IDLE_SECONDS as u64);
    const LIFETIME: Duration = Duration::from_secs(LOG_IN_LIFE_SECONDS as u64);
    const TLS: Way = Way { tls: true, address: Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))) };

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let users = Users::open(directory.path()).unwrap();
            users.add("orders", "secret", ITERATIONS_MIN).unwrap();
            Self {
                _directory: directory,
                users,
                sessions: Sessions::new(Arc::new(Audit::nowhere())),
                clock: Clock::simulated(),
            }
        }

        fn begin(&self, number: usize, user: &str) -> bool {
            let password = Password::of(user, &self.users);
            self.sessions.begin(id(number), user, password, TLS, self.clock.now())
        }

        fn user(&self, number: usize) -> Option<String> {
            self.sessions.uses(id(number), TLS, &self.users, self.clock.now())
        }
    }

    fn id(number: usize) -> LoginId {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&number.to_be_bytes());
        LoginId::of(&token)
    }

    #[test]
    fn a_session_is_over_after_idle_time_and_after_its_lifetime() {
        let bench = Bench::new();
        assert!(bench.begin(1, "orders") && bench.user(2).is_none());
        let step = IDLE.checked_sub(Duration::from_secs(1)).unwrap();
        let mut age = Duration::ZERO;
        while age + step < LIFETIME {
            assert_eq!(bench.user(1).as_deref(), Some("orders"), "used in time");
            bench.clock.advance(step);
            age += step;
        }
        assert_eq!(bench.user(1).as_deref(), Some("orders"));
        bench.clock.advance(LIFETIME.checked_sub(age).unwrap());
        assert_eq!(bench.user(1), None, "used in time, and too old");
        assert!(bench.begin(2, "orders"));
        bench.clock.advance(step);
        assert!(bench.sessions.goes_on(id(2), bench.clock.now()), "to look is not to use");
        bench.clock.advance(Duration::from_secs(1));
        assert!(!bench.sessions.goes_on(id(2), bench.clock.now()) && bench.user(2).is_none());
    }

    #[test]
    fn another_password_and_the_removal_of_the_user_end_a_session() {
        let bench = Bench::new();
        for (number, change) in [
            &(|users: &Users| users.set_password("orders", "new", ITERATIONS_MIN).unwrap()) as &dyn Fn(&Users),
            // The same password again is another one, as far as anyone can tell.
            &|users| users.set_password("orders", "new", ITERATIONS_MIN).unwrap(),
            &|users| users.remove("orders").unwrap(),
        ]
        .into_iter()
        .enumerate()
        {
            assert!(bench.begin(2 * number, "orders") && bench.begin(2 * number + 1, "orders"));
            change(&bench.users);
            assert_eq!(bench.user(2 * number), None, "{number}: with the next use");
            bench.sessions.sweep(&bench.users, bench.clock.now());
            assert!(!bench.sessions.goes_on(id(2 * number + 1), bench.clock.now()), "{number}: and by itself");
            bench.clock.advance(SWEEP_EVERY);
        }
        bench.users.add("orders", "new", ITERATIONS_MIN).unwrap();
        assert_eq!(bench.user(0), None, "a user of the same name is another one");
    }

    #[test]
    fn a_password_that_changed_while_it_was_checked_begins_no_session() {
        let bench = Bench::new();
        let before = Password::of("orders", &bench.users);
        bench.users.set_password("orders", "new", ITERATIONS_MIN).unwrap();
        assert!(bench.sessions.begin(id(1), "orders", before, TLS, bench.clock.now()));
        assert_eq!(bench.user(1), None);
    }

    #[test]
    fn what_was_begun_over_tls_is_taken_over_tls_alone() {
        let bench = Bench::new();
        assert!(bench.begin(1, "orders"));
        assert_eq!(bench.sessions.uses(id(1), Way { tls: false, ..TLS }, &bench.users, bench.clock.now()), None);
        assert_eq!(bench.user(1).as_deref(), Some("orders"), "and asking otherwise does not end it");
    }

    #[test]
    fn a_user_with_many_sessions_loses_its_oldest_and_others_lose_none() {
        let bench = Bench::new();
        bench.users.add("billing", "secret", ITERATIONS_MIN).unwrap();
        assert!(bench.begin(1_000_000, "billing"));
        assert!((0..=SESSIONS_OF_USER_MAX).all(|number| bench.begin(number, "orders")));
        assert_eq!(bench.user(0), None);
        assert!((1..=SESSIONS_OF_USER_MAX).all(|number| bench.user(number).is_some()));
        assert_eq!(bench.user(1_000_000).as_deref(), Some("billing"));
        let end = || bench.sessions.end(id(5), Ended::LoggedOut, bench.clock.now());
        assert!(end() && !end());
        assert!(bench.begin(2_000, "orders"));
        assert!(bench.user(1).is_some(), "there was room");
    }

    #[test]
    fn a_full_table_takes_nothing_from_others_and_gets_room_with_time() {
        let bench = Bench::new();
        let password = Password::of("orders", &bench.users);
        let begin =
            |number: usize, user: &str| bench.sessions.begin(id(number), user, password, TLS, bench.clock.now());
        assert!((0..SESSIONS_MAX).all(|number| begin(number, &format!("user-{}", number / 2))));
        assert!(!begin(SESSIONS_MAX, "late"), "it has none to give up");
        assert!(begin(SESSIONS_MAX, "user-0"), "its oldest makes room");
        let now = bench.clock.now();
        assert!(!bench.sessions.goes_on(id(0), now) && (1..=SESSIONS_MAX).all(|n| bench.sessions.goes_on(id(n), now)));
        bench.clock.advance(IDLE);
        assert!(begin(SESSIONS_MAX + 1, "late"));
        let table = bench.sessions.table();
        assert_eq!((table.all.len(), table.of_user.len()), (1, 1));
    }

    #[test]
    fn other_times_hold_for_those_that_are_there() {
        let bench = Bench::new();
        assert!(bench.begin(1, "orders") && bench.begin(2, "orders"));
        let mut manager = crate::catalog::Definitions::initial("QM1").queue_manager;
        (manager.log_in_idle_seconds, manager.log_in_life_seconds) = (10, 15);
        bench.sessions.follow(&manager, bench.clock.now());
        bench.clock.advance(Duration::from_secs(9));
        assert!(bench.user(1).is_some());
        bench.clock.advance(Duration::from_secs(1));
        assert!(bench.user(2).is_none(), "it was idle");
        bench.sessions.sweep(&bench.users, bench.clock.now());
        bench.clock.advance(Duration::from_secs(5));
        assert!(bench.user(1).is_none(), "it is too old");
        (manager.log_in_idle_seconds, manager.log_in_life_seconds) = (600, 600);
        bench.sessions.follow(&manager, bench.clock.now());
        assert!(bench.user(1).is_none() && bench.user(2).is_none(), "more time brings none back");
        let LogInCounts { now, begun, ended } = bench.sessions.counts();
        let ended: Vec<_> = ended.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!((now, begun, ended), (0, 2, vec![("idle", 1), ("lifetime", 1)]));
    }

    #[test]
    fn an_administrator_sees_who_is_there_and_ends_one_or_all_of_a_user() {
        let bench = Bench::new();
        bench.users.add("billing", "secret", ITERATIONS_MIN).unwrap();
        assert!(bench.begin(1, "orders") && bench.begin(2, "orders") && bench.begin(3, "billing"));
        bench.clock.advance(Duration::from_secs(60));
        assert!(bench.user(2).is_some());
        let known = || bench.sessions.known(bench.clock.now(), SystemTime::UNIX_EPOCH + Duration::from_secs(100));
        let shown: Vec<_> = known().into_iter().map(|one| (one.user, one.number, one.since_ms, one.used_ms)).collect();
        let row = |user: &str, number, used_ms| (user.to_owned(), number, 40_000, used_ms);
        assert_eq!(shown, [row("billing", 3, 40_000), row("orders", 1, 40_000), row("orders", 2, 100_000)]);
        assert_eq!(known()[2].until_ms, 100_000 + 1_800_000);
        let stop = |user: &str, number: Option<u64>| {
            let is_meant = |of: &str, known: u64| of == user && number.is_none_or(|number| number == known);
            bench.sessions.stop(&is_meant, bench.clock.now())
        };
        assert_eq!((stop("billing", Some(1)), stop("orders", Some(1)), stop("orders", None)), (0, 1, 1));
        assert_eq!((bench.user(1), bench.user(2), bench.user(3).as_deref()), (None, None, Some("billing")));
    }

    #[test]
    fn nothing_of_a_token_is_shown() {
        assert_eq!(format!("{:?}", id(7)), "LoginId");
        let bench = Bench::new();
        bench.begin(7, "orders");
        assert_eq!(format!("{:?}", bench.sessions), "Sessions { .. }");
    }
}
