//! Refusals by authority: what the log, the audit and events say of them.

use crate::audit::{self, Refused};
use crate::authority::{ANONYMOUS, Right};
use crate::events::Event;
use crate::manager::{Manager, State};
use crate::reason::{self, Refusal};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What stands before the address of a partner whom a rule with WARN(YES) lets in.
pub const LETS_IN: &str = "WARN(YES) lets in ";

/// Tells the operator of a refusal by authority; a flood of them is a few lines and a number. Each is in the audit log.
pub fn tell(manager: &Manager, now: Instant, from: &str, user: Option<&str>, refusal: &Refusal) {
    if refusal.reason != reason::NOT_AUTHORIZED {
        return;
    }
    let (action, object) = asked_for(refusal);
    // A rule that only warns says so before the address.
    let (let_in, address) = from.strip_prefix(LETS_IN).map_or((false, from), |address| (true, address));
    let connection = audit::Who::Connection { user: user.map(str::to_owned), address: address.to_owned() };
    let (reason, detail) = (refusal.reason.code, refusal.detail.clone());
    manager.told.audit.refused(now, connection, &Refused { action, object: &object, reason, detail, let_in });
    let mut refusals = manager.told.refusals.lock().unwrap_or_else(PoisonError::into_inner);
    if refusals.may_write(now) {
        crate::warning!(
            user,
            address,
            action,
            object,
            reason = refusal.reason.code,
            "{from} user {}: {refusal}",
            user.unwrap_or(ANONYMOUS)
        );
        let (user, address) = (user.map(str::to_owned), address.to_owned());
        refusals.raise(Event::NotAuthorised { user, address, action, object });
        manager.told.refused.store(true, Ordering::Release);
    }
}

/// Raises what was refused in this turn, on any dispatcher. One look at a flag where nothing was.
pub fn raise_refused(manager: &Manager, state: &mut State, wall_ms: u64) {
    if !manager.told.refused.load(Ordering::Relaxed) || !manager.told.refused.swap(false, Ordering::Acquire) {
        return;
    }
    let refused = manager.told.refusals.lock().unwrap_or_else(PoisonError::into_inner).take_raised();
    for event in refused {
        state.raise(&event, wall_ms);
    }
}

/// What was asked for, and of what: a refusal for want of a right says both.
pub fn asked_for(refusal: &Refusal) -> (&'static str, String) {
    // The last one: what stands before it is a name that a client has given.
    let said = refusal.detail.rsplit_once(": no ").and_then(|(object, rest)| {
        let word = rest.split(|letter: char| !letter.is_ascii_alphabetic()).next()?;
        let right = Right::EVERY.iter().find(|right| right.word() == word)?;
        Some((right.action(), object.to_owned()))
    });
    said.unwrap_or((Right::Connect.action(), String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_sounds_like_a_refusal_does_not_stand_for_what_was_asked() {
        let refusal = Refusal::new(reason::NOT_AUTHORIZED, "ORDERS: no GET x: no PUT");
        assert_eq!(asked_for(&refusal), (Right::Put.action(), "ORDERS: no GET x".to_owned()));
        let other = Refusal::new(reason::NOT_AUTHORIZED, "the certificate names no user");
        assert_eq!(asked_for(&other), (Right::Connect.action(), String::new()));
        // One right's word begins another one's.
        for right in [Right::Set, Right::SetIdentity] {
            let refusal = Refusal::new(reason::NOT_AUTHORIZED, format!("ORDERS: no {right}, and more"));
            assert_eq!(asked_for(&refusal).0, right.action());
        }
    }
}
