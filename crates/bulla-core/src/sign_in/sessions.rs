//! Sessions: a user who has signed in by a password goes on by a token, which a program keeps as a cookie.
//!
//! A token is 32 random bytes. Only its digest is kept, and nothing is written to disk: a restart ends all sessions. A
//! session ends with its time, when it is signed out of, and when its user is removed or gets another password. Where a
//! user has as many as it may, its oldest one ends; another user's never does.

use crate::users::Users;
use hashbrown::HashMap;
use openssl::sha::sha256;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most sessions, some 200 bytes each.
pub const SESSIONS_MAX: usize = 16_384;
/// Most sessions of one user: browsers, and programs that sign in each time they run.
pub const SESSIONS_OF_USER_MAX: usize = 32;
/// Time without a request after which a session is over.
pub const IDLE_MAX: Duration = Duration::from_mins(30);
/// Time after which a session is over, however much it is used.
pub const LIFETIME_MAX: Duration = Duration::from_hours(8);
/// How often sessions are looked for that are over.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

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
    user: String,
    password: Password,
    /// It was begun over TLS, and is taken over TLS alone; otherwise over none.
    tls: bool,
    begun: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= IDLE_MAX
            || now.saturating_duration_since(self.begun) >= LIFETIME_MAX
    }
}

/// All sessions.
#[derive(Default)]
pub struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    all: HashMap<LoginId, Session>,
    /// Those of each user, the oldest first.
    of_user: HashMap<String, Vec<LoginId>>,
    swept: Option<Instant>,
}

impl Sessions {
    /// Begins a session of a user whose password was right. `password` is what it hangs on, as it was before the
    /// password was checked. False where there are [`SESSIONS_MAX`] and none of them is the user's.
    pub fn begin(&self, id: LoginId, user: &str, password: Password, tls: bool, now: Instant) -> bool {
        let mut table = self.table();
        if table.all.len() >= SESSIONS_MAX {
            table.end_where(|session| session.is_over(now));
        }
        let own = table.of_user.get(user).map_or(0, Vec::len);
        let is_full = table.all.len() >= SESSIONS_MAX;
        if is_full && own == 0 {
            return false;
        }
        if is_full || own >= SESSIONS_OF_USER_MAX {
            let oldest = table.of_user.get(user).and_then(|own| own.first()).copied();
            oldest.into_iter().for_each(|oldest| drop(table.end(oldest)));
        }
        table.of_user.entry(user.to_owned()).or_default().push(id);
        table.all.insert(id, Session { user: user.to_owned(), password, tls, begun: now, used: now });
        true
    }

    /// The user of a session that is used now. None where there is no such session, or no longer, or it is used
    /// otherwise than it was begun.
    pub fn uses(&self, id: LoginId, tls: bool, users: &Users, now: Instant) -> Option<String> {
        let (user, password) = {
            let table = self.table();
            let session = table.all.get(&id).filter(|session| session.tls == tls && !session.is_over(now))?;
            (session.user.clone(), session.password)
        };
        let is_current = Password::of(&user, users) == password;
        let mut table = self.table();
        if !is_current {
            table.end(id);
            return None;
        }
        // It may have been ended meanwhile.
        table.all.get_mut(&id)?.used = now;
        Some(user)
    }

    /// Whether a session goes on, without using it.
    pub fn goes_on(&self, id: LoginId, now: Instant) -> bool {
        self.table().all.get(&id).is_some_and(|session| !session.is_over(now))
    }

    /// Ends a session. False where it had ended.
    pub fn end(&self, id: LoginId) -> bool {
        self.table().end(id).is_some()
    }

    /// Ends those that are over, and those of users who are gone or have another password; [`SWEEP_EVERY`] at most.
    pub fn sweep(&self, users: &Users, now: Instant) {
        let mut table = self.table();
        let is_due = table.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP_EVERY);
        if table.all.is_empty() || !is_due {
            return;
        }
        table.swept = Some(now);
        users.look(|key_of| {
            let is_current = |session: &Session| key_of(&session.user) == Some(session.password.0);
            table.end_where(|session| session.is_over(now) || !is_current(session));
        });
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic elsewhere breaks nothing here: both maps change together, and nothing foreign runs in between.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without users and digests.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Table {
    fn end(&mut self, id: LoginId) -> Option<Session> {
        let ended = self.all.remove(&id)?;
        if let Some(own) = self.of_user.get_mut(&ended.user) {
            own.retain(|other| *other != id);
            if own.is_empty() {
                self.of_user.remove(&ended.user);
            }
        }
        Some(ended)
    }

    fn end_where(&mut self, is_to_end: impl Fn(&Session) -> bool) {
        let ended: Vec<LoginId> =
            self.all.iter().filter(|(_, session)| is_to_end(session)).map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| drop(self.end(id)));
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

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let users = Users::open(directory.path()).unwrap();
            users.add("orders", "secret", ITERATIONS_MIN).unwrap();
            Self { _directory: directory, users, sessions: Sessions::default(), clock: Clock::simulated() }
        }

        fn begin(&self, number: usize, user: &str) -> bool {
            let password = Password::of(user, &self.users);
            self.sessions.begin(id(number), user, password, true, self.clock.now())
        }

        fn user(&self, number: usize) -> Option<String> {
            self.sessions.uses(id(number), true, &self.users, self.clock.now())
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
        let step = IDLE_MAX.checked_sub(Duration::from_secs(1)).unwrap();
        let mut age = Duration::ZERO;
        while age + step < LIFETIME_MAX {
            assert_eq!(bench.user(1).as_deref(), Some("orders"), "used in time");
            bench.clock.advance(step);
            age += step;
        }
        assert_eq!(bench.user(1).as_deref(), Some("orders"));
        bench.clock.advance(LIFETIME_MAX.checked_sub(age).unwrap());
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
        assert!(bench.sessions.begin(id(1), "orders", before, true, bench.clock.now()));
        assert_eq!(bench.user(1), None);
    }

    #[test]
    fn what_was_begun_over_tls_is_taken_over_tls_alone() {
        let bench = Bench::new();
        assert!(bench.begin(1, "orders"));
        assert_eq!(bench.sessions.uses(id(1), false, &bench.users, bench.clock.now()), None);
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
        assert!(bench.sessions.end(id(5)) && !bench.sessions.end(id(5)));
        assert!(bench.begin(2_000, "orders"));
        assert!(bench.user(1).is_some(), "there was room");
    }

    #[test]
    fn a_full_table_takes_nothing_from_others_and_gets_room_with_time() {
        let bench = Bench::new();
        let password = Password::of("orders", &bench.users);
        let begin =
            |number: usize, user: &str| bench.sessions.begin(id(number), user, password, true, bench.clock.now());
        assert!((0..SESSIONS_MAX).all(|number| begin(number, &format!("user-{}", number / 2))));
        assert!(!begin(SESSIONS_MAX, "late"), "it has none to give up");
        assert!(begin(SESSIONS_MAX, "user-0"), "its oldest makes room");
        let now = bench.clock.now();
        assert!(!bench.sessions.goes_on(id(0), now) && (1..=SESSIONS_MAX).all(|n| bench.sessions.goes_on(id(n), now)));
        bench.clock.advance(IDLE_MAX);
        assert!(begin(SESSIONS_MAX + 1, "late"));
        let table = bench.sessions.table();
        assert_eq!((table.all.len(), table.of_user.len()), (1, 1));
    }

    #[test]
    fn nothing_of_a_token_is_shown() {
        assert_eq!(format!("{:?}", id(7)), "LoginId");
        let bench = Bench::new();
        bench.begin(7, "orders");
        assert_eq!(format!("{:?}", bench.sessions), "Sessions { .. }");
    }
}
