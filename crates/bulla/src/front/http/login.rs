//! Users log in, are told who they are, and log out: sessions that a program goes on by with a cookie.
//!
//! A log-in is a sign-in of its connection, by the password in its body: the core judges it as any other. What is new
//! is the session behind it. Each request with its cookie is asked about by itself, and so is a connection that waits.

use super::answers::Refused;
use super::credentials::{self, Fingerprint, NO_COOKIE};
use super::exchange::{BodyOf, Exchange, Stage};
use super::{Event, Http, Session};
use crate::front::client::Proof;
use crate::front::outcome::Failure;
use crate::reason;
use crate::sign_in::sessions::{Ended, LoginId, Password, Way};
use bulla_http::{Head, HeaderValue, Response};
use zeroize::Zeroizing;

/// Longest body of a log-in, in bytes: a user and a password, however they are escaped.
pub(super) const BODY_BYTES_MAX: u64 = 8 << 10;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A log-in that the core looks at.
pub(super) struct LoggingIn {
    user: String,
    /// What the session will hang on, as it was before the password was looked at.
    password: Password,
    /// The session whose cookie came with it: it ends.
    replaced: Option<LoginId>,
}

impl Http {
    /// A log-in has come. Its body is read first.
    pub(super) fn read_log_in(&mut self, head: &Head) {
        let asked = (|| {
            if head.headers.get("authorization").is_some() {
                let why = "there is a header Authorization beside the log-in";
                return Err(Refused::new(400, "ambiguous-credentials", why));
            }
            self.replaced = credentials::cookie(head)?;
            self.read(head, BodyOf::LogIn)
        })();
        match asked {
            Ok(stage) => self.set_stage(stage),
            Err(refused) => self.refuse_all(refused),
        }
    }

    /// The body of a log-in is whole.
    pub(super) fn log_in(&mut self, body: &[u8]) {
        let (user, password) = match credentials::log_in(body) {
            Ok(said) => said,
            Err(refused) => return self.refuse_all(refused),
        };
        let hangs_on = Password::of(&user, &self.manager.sign_ins.users);
        let replaced = self.replaced.take();
        self.set_stage(Stage::LoggingIn(Box::new(LoggingIn { user: user.clone(), password: hangs_on, replaced })));
        self.sign_in(Fingerprint::LogIn, Proof::Password { user, password, act_as: String::new() });
    }

    /// Has the core look at credentials; where it has looked at others before, anew.
    pub(super) fn sign_in(&mut self, print: Fingerprint, proof: Proof) {
        // The core ends its links.
        self.kept.clear();
        self.retire_owners();
        self.session = Session::Asked(print);
        self.events.push_back(Event::SignIn(proof));
    }

    /// The password was right, and the user may use the queue manager: a session begins.
    pub(super) fn begin_session(&mut self, login: LoggingIn) {
        let LoggingIn { user, password, replaced } = login;
        let token: Zeroizing<[u8; 32]> = Zeroizing::new(self.random.bytes());
        let (id, sessions) = (LoginId::of(&token), &self.manager.sign_ins.sessions);
        if let Some(replaced) = replaced {
            sessions.end(replaced, Ended::Replaced, self.manager.clock.now());
        }
        let way = Way { tls: self.tls, address: self.commands.acts.ip };
        if !sessions.begin(id, &user, password, way, self.manager.clock.now()) {
            return self.refuse_all(Refused::new(503, "sessions", "too many users are logged in: try again"));
        }
        self.session = Session::Open(Fingerprint::Session(id));
        let done = Response::new(204).with("set-cookie", credentials::set_cookie(&token));
        self.respond(done.with("cache-control", NO_STORE), None, false);
    }

    /// Ends the session of the request that is being carried out, and its connection.
    pub(super) fn log_out(&mut self) {
        let Some(login) = self.login() else {
            return self.refuse(Refused::new(401, "no-session", "there is no cookie of a log-in"));
        };
        self.manager.sign_ins.sessions.end(login, Ended::LoggedOut, self.manager.clock.now());
        let done = Response::new(204).with("set-cookie", NO_COOKIE).with("cache-control", NO_STORE);
        self.session = Session::Over;
        self.respond(done, None, true);
        self.server.close();
    }

    /// The session by which the connection is, or is to be, signed in.
    pub(super) fn login(&self) -> Option<LoginId> {
        match &self.session {
            Session::Asked(Fingerprint::Session(login)) | Session::Open(Fingerprint::Session(login)) => Some(*login),
            _ => None,
        }
    }

    /// Whether the session goes on by which the connection has signed in; it is used now.
    pub(super) fn uses(&self, login: LoginId) -> bool {
        let address = self.commands.acts.ip;
        address.is_some_and(|address| self.manager.session(login, self.tls, address).is_some())
    }

    /// Refuses the request because its session is over, and tells the client to forget the cookie.
    pub(super) fn refuse_session(&mut self) {
        let refused = Refused::new(401, "session-over", "the session is over, or there is none: log in");
        self.session = Session::Over;
        let is_open = |exchange: &Exchange| !matches!(exchange.stage, Stage::Answered(Some(_)));
        if self.exchange.as_ref().is_some_and(is_open) {
            self.respond(refused.response().with("set-cookie", NO_COOKIE), None, true);
        }
        self.server.close();
    }

    /// The core ends the connection. Whom it would not let in any more has no session any more.
    pub(super) fn ends_session(&self, why: Option<&Failure>) -> bool {
        let is_kept_out = matches!(why, Some(Failure::Refused(refusal)) if refusal.reason == reason::NOT_AUTHORIZED);
        let Some(login) = self.login().filter(|_| is_kept_out) else { return false };
        let now = self.manager.clock.now();
        let was_over = !self.manager.sign_ins.sessions.goes_on(login, now);
        self.manager.sign_ins.sessions.end(login, Ended::KeptOut, now);
        was_over
    }
}
