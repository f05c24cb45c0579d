//! Who a client is: what it proves that by, and the verdict.

use super::authority;
use super::local::Local;
use super::peer::{Exchange, Peer};
use crate::catalog::lockouts::Whose;
use crate::events::Event;
use crate::front::client::{Proof, TokenRefused};
use crate::mailbox::Notice;
use crate::manager::Manager;
use crate::sign_in::checks::{Applicant, Turn};
use crate::sign_in::lockout::Begun;
use crate::sign_in::sessions::LoginId;
use crate::sign_in::tickets::Holder;
use crate::sign_in::token::TokenError;
use crate::sign_in::verdict::{Identity, Verdict};
use crate::users;
use bulla_amqp::scram::{ScramError, ScramServer};
use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A client begins to prove who it is.
pub fn init(peer: &mut Peer, local: &Local, proof: Proof) {
    match proof {
        Proof::Nothing => done(peer, Identity::default()),
        Proof::Password { user, password, act_as } => by_password(peer, local, user, password, &act_as),
        Proof::Certificate { act_as } => by_certificate(peer, local, &act_as),
        Proof::Token { token, act_as } => by_token(peer, local, token, act_as),
        Proof::Session(session) => by_session(peer, local, session),
        Proof::Ticket(ticket) => by_ticket(peer, local, &ticket),
        Proof::UnreadablePassword => refuse(peer, local, None, &"a malformed response"),
        Proof::UnreadableToken => refuse_token(peer, local, &"a malformed response", TokenRefused::Unreadable),
        Proof::Scram(first) => match ScramServer::start(&first) {
            Ok(mut exchange) => {
                let users = &local.manager.sign_ins.users;
                let challenge = exchange.challenge(users.verifier(exchange.user()), users.crypto());
                peer.login.sign_in.exchange = Some(Exchange::Challenged(Box::new(exchange)));
                peer.front.challenge(challenge);
            }
            Err(error) => refuse(peer, local, None, &error),
        },
    }
}

/// A client answers a challenge.
pub fn response(peer: &mut Peer, local: &Local, response: &[u8]) {
    match peer.login.sign_in.exchange.take() {
        Some(Exchange::Challenged(exchange)) => {
            let finish = || exchange.finish(response, local.manager.sign_ins.users.crypto());
            match judge(&local.manager, exchange.user(), ip(peer), finish, |error| *error == ScramError::NotAuthentic) {
                Ok(Ok(proof)) => {
                    let user = Some(exchange.user().to_owned());
                    let identity = Identity { user, ring: true, ..Identity::default() };
                    peer.login.sign_in.exchange = Some(Exchange::Proved(identity));
                    peer.front.challenge(proof);
                }
                Ok(Err(error)) => refuse(peer, local, Some(exchange.user()), &error),
                Err(LockedOut) => refuse(peer, local, Some(exchange.user()), &LockedOut),
            }
        }
        Some(Exchange::Proved(identity)) => done(peer, identity),
        None => refuse(peer, local, None, &"a response without a challenge"),
    }
}

fn by_password(peer: &mut Peer, local: &Local, user: String, password: Zeroizing<String>, other: &str) {
    let Some(act_as) = other_user(other, &user) else {
        return refuse(peer, local, Some(&user), &NO_USER);
    };
    let ring = peer.transport.is_tls();
    let identity = Identity { user: Some(user.clone()), ring, act_as, ..Identity::default() };
    let (manager, address) = (local.manager.clone(), ip(peer));
    // Asked first: who is locked out takes no place from others.
    if manager.lockouts().is_locked(&user, address, manager.clock.now()) {
        return refuse(peer, local, Some(&user), &LockedOut);
    }
    if manager.sign_ins.users.is_remembered(&user, &password) {
        manager.lockouts().succeeded(&user, address, manager.clock.now());
        manager.sign_ins.checks.was_right(address, manager.clock.now());
        return done(peer, identity);
    }
    let is_known = manager.lockouts().is_known(&user, address, manager.clock.now());
    // Deriving a key from a password takes a part of a second on purpose: not on this thread.
    check(peer, local, is_known, move |manager| {
        // Asked again: those who wait at the same time are counted one by one.
        let look = || if manager.sign_ins.users.is_password(&user, &password) { Ok(()) } else { Err(()) };
        match judge(manager, &user, address, look, |()| true) {
            Ok(Ok(())) => Verdict::Right(identity),
            Ok(Err(())) => Verdict::Wrong { user },
            Err(LockedOut) => Verdict::LockedOut { user },
        }
    });
}

/// Has `look` called on another thread when its turn comes; the verdict comes to this dispatcher.
fn check(peer: &mut Peer, local: &Local, is_known: bool, look: impl FnOnce(&Manager) -> Verdict + Send + 'static) {
    let applicant = Applicant { address: ip(peer), is_known, connection: Arc::downgrade(&peer.login.sign_in.alive) };
    let (manager, index, key, generation) = (local.manager.clone(), local.index, peer.place.key, peer.place.generation);
    let carried_out = move |turn| {
        let verdict = match turn {
            Turn::Check => look(&manager),
            Turn::Busy => Verdict::Busy,
        };
        let is_right = matches!(verdict, Verdict::Right(_));
        if let Some(mailbox) = manager.workers.mailboxes.get(index) {
            mailbox.post(Notice::SignedIn { peer: key, generation, verdict });
        }
        is_right
    };
    local.manager.sign_ins.checks.submit(applicant, Box::new(carried_out), local.manager.clock.now());
}

fn by_token(peer: &mut Peer, local: &Local, token: Zeroizing<String>, authorization: String) {
    let now = local.wall_ms / 1000;
    // A token cannot be guessed, so there is no lockout. A look at the file of keys and a signature to verify: not on
    // this thread.
    check(peer, local, false, move |manager| {
        match manager.sign_ins.tokens.check(&token, now) {
            Ok(grant) => match other_user(&authorization, &grant.user) {
                // Its ring stays closed: a ring is for who has proved by a key or a password of its own to be its
                // owner.
                Some(act_as) => {
                    let (user, until) = (Some(grant.user), Some(grant.until));
                    Verdict::Right(Identity { user, ring: false, act_as, until, vouched_in: None })
                }
                None => Verdict::Token(TokenError::User),
            },
            Err(error) => Verdict::Token(error),
        }
    });
}

/// What a client gave was looked at.
pub fn signed_in(peer: &mut Peer, local: &Local, verdict: Verdict) {
    match verdict {
        Verdict::Right(identity) => done(peer, identity),
        Verdict::Wrong { user } => refuse(peer, local, Some(&user), &"wrong user or password"),
        Verdict::Token(error) => refuse_token(peer, local, &error, TokenRefused::Invalid),
        Verdict::LockedOut { user } => refuse(peer, local, Some(&user), &LockedOut),
        Verdict::Busy => {
            // No refusal: nothing was found against the client.
            if local.manager.told.peer_lines.may_write(local.now) {
                crate::warning!("{}: sign-in answered as busy: too many are to be checked", ip(peer));
            }
            peer.front.sign_in_busy();
        }
    }
}

/// Too much was wrong before.
struct LockedOut;

impl Display for LockedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not looked at, because too many attempts were wrong")
    }
}

/// Looks at what was given, unless too much was wrong before, and counts it where `is_guess` says of the error that it
/// may have been a try.
fn judge<T, E>(
    manager: &Manager,
    user: &str,
    address: IpAddr,
    look: impl FnOnce() -> Result<T, E>,
    is_guess: impl FnOnce(&E) -> bool,
) -> Result<Result<T, E>, LockedOut> {
    if manager.lockouts().is_locked(user, address, manager.clock.now()) {
        return Err(LockedOut);
    }
    let seen = look();
    match &seen {
        Ok(_) => manager.lockouts().succeeded(user, address, manager.clock.now()),
        Err(error) if is_guess(error) => {
            let begun = manager.lockouts().failed(user, address, manager.clock.now());
            for begun in begun {
                authority::raise(manager, locked_out(begun, user, address));
            }
        }
        Err(_) => {}
    }
    Ok(seen)
}

fn locked_out(Begun { whose, failures, lasts }: Begun, user: &str, address: IpAddr) -> Event {
    Event::LockedOut {
        user: (whose != Whose::Address).then(|| named(user)).flatten(),
        address: (whose != Whose::User).then(|| address.to_string()),
        failures,
        seconds: lasts.as_secs(),
    }
}

/// A name that was given without a proof: told only where it could be a user's, for a password may stand in its place.
fn named(user: &str) -> Option<String> {
    users::is_valid_name(user).then(|| user.to_owned())
}

/// Where the client comes from. One that is gone already comes from nowhere, which is a place like another.
fn ip(peer: &mut Peer) -> IpAddr {
    peer.from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
}

/// A token of a session cannot be guessed, so nothing is counted. A session is as good as the password that began it,
/// but for users who are locked out where they are now.
fn by_session(peer: &mut Peer, local: &Local, session: LoginId) {
    let (tls, address) = (peer.transport.is_tls(), ip(peer));
    match local.manager.session(session, tls, address) {
        Some(user) => done(peer, Identity { user: Some(user), ring: tls, ..Identity::default() }),
        None => refuse(peer, local, None, &"the session is over"),
    }
}

/// A ticket cannot be guessed, so nothing is counted.
fn by_ticket(peer: &mut Peer, local: &Local, ticket: &[u8]) {
    match local.manager.sign_ins.tickets.take(ticket, local.now) {
        Some(Holder { group, user, ring }) => {
            done(peer, Identity { user, ring, vouched_in: Some(group), ..Identity::default() });
        }
        None => refuse(peer, local, None, &"no such ticket"),
    }
}

fn by_certificate(peer: &mut Peer, local: &Local, other: &str) {
    match peer.transport.certificate().and_then(|shown| shown.user) {
        Some(user) => match other_user(other, &user) {
            Some(act_as) => done(peer, Identity { user: Some(user), ring: true, act_as, ..Identity::default() }),
            None => refuse(peer, local, Some(&user), &NO_USER),
        },
        None => refuse(peer, local, None, &"the certificate names no user"),
    }
}

const NO_USER: &str = "the user to act as cannot be one";

/// The user that a client asks to act as, where it is another one; whether it may is asked at open. None where no user
/// can have the name.
fn other_user(authorization: &str, user: &str) -> Option<Option<String>> {
    let is_other = !authorization.is_empty() && authorization != user;
    (!is_other || users::is_valid_name(authorization)).then(|| is_other.then(|| authorization.to_owned()))
}

fn done(peer: &mut Peer, identity: Identity) {
    peer.login.sign_in.identity = identity;
    peer.front.signed_in(true);
}

fn refuse(peer: &mut Peer, local: &Local, user: Option<&str>, why: &dyn Display) {
    tell(peer, local, user, why);
    peer.front.signed_in(false);
}

fn refuse_token(peer: &mut Peer, local: &Local, why: &dyn Display, told: TokenRefused) {
    tell(peer, local, None, why);
    peer.front.token_refused(told);
}

fn tell(peer: &mut Peer, local: &Local, user: Option<&str>, why: &dyn Display) {
    let address = peer.from.map_or_else(|| "unknown".into(), |address| address.to_string());
    authority::tell_of_sign_in(&local.manager, local.now, address, user.and_then(named), why);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_a_password_is_not_told() {
        assert_eq!(named("orders").as_deref(), Some("orders"));
        for odd in ["", "correct horse", "p\u{e4}ss", "$ecret!", &"x".repeat(65)] {
            assert_eq!(named(odd), None, "{odd}");
        }
    }
}
