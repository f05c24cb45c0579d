//! Passwords that were right before, as keyed hashes: a user who signs in again by PLAIN costs no derivation.
//!
//! The key is random and of this process; nothing of it is written to disk. A hash covers the user's verifier, so that
//! it means nothing any more once the password is changed or the user is removed.

use crate::users::Crypto;
use bulla_amqp::ScramCrypto;
use bulla_amqp::scram::ScramVerifier;
use hashbrown::HashMap;
use openssl::memcmp;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zeroize::Zeroizing;

/// Most users whose passwords are remembered, some 100 bytes each. Half of them are forgotten when there would be more.
pub const REMEMBERED_MAX: usize = 16_384;

/// The passwords that were right.
pub struct Remembered {
    key: Zeroizing<[u8; 32]>,
    tags: Mutex<Tags>,
}

#[derive(Default)]
struct Tags {
    recent: HashMap<String, [u8; 32]>,
    older: HashMap<String, [u8; 32]>,
}

impl Remembered {
    /// Nothing yet. `key` is random.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key: Zeroizing::new(key), tags: Mutex::default() }
    }

    /// Whether `password` is known to be the one that `verifier` is for. False says nothing.
    pub fn has(&self, user: &str, password: &str, verifier: &ScramVerifier) -> bool {
        let tag = self.tag(user, password, verifier);
        let kept = self.tags().get(user);
        // Computed and compared for every name: the time says nothing about the user.
        memcmp::eq(&kept.unwrap_or_default(), &tag) & kept.is_some()
    }

    /// Keeps that `password` is the one.
    pub fn keep(&self, user: &str, password: &str, verifier: &ScramVerifier) {
        let tag = self.tag(user, password, verifier);
        let mut tags = self.tags();
        if tags.recent.len() >= REMEMBERED_MAX / 2 && !tags.recent.contains_key(user) {
            tags.older = std::mem::take(&mut tags.recent);
        }
        tags.older.remove(user);
        tags.recent.insert(user.to_owned(), tag);
    }

    fn tag(&self, user: &str, password: &str, verifier: &ScramVerifier) -> [u8; 32] {
        let mut text = Zeroizing::new(Vec::with_capacity(verifier.stored_key.len() + user.len() + 1 + password.len()));
        text.extend_from_slice(&verifier.stored_key);
        text.extend_from_slice(user.as_bytes());
        text.push(0); // which no user's name has
        text.extend_from_slice(password.as_bytes());
        Crypto.hmac(&*self.key, &text)
    }

    fn tags(&self) -> MutexGuard<'_, Tags> {
        // Each tag stands for itself: a panic elsewhere breaks none.
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Secrets stay out of logs.
impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered").finish_non_exhaustive()
    }
}

impl Tags {
    fn get(&self, user: &str) -> Option<[u8; 32]> {
        self.recent.get(user).or_else(|| self.older.get(user)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier(number: u8) -> ScramVerifier {
        ScramVerifier { salt: vec![number], iterations: 4096, stored_key: [number; 32], server_key: [number; 32] }
    }

    #[test]
    fn a_password_is_known_after_it_was_right_and_until_it_is_changed() {
        let remembered = Remembered::new([7; 32]);
        let (old, new) = (verifier(1), verifier(2));
        assert!(!remembered.has("orders", "secret", &old));
        remembered.keep("orders", "secret", &old);
        assert!(remembered.has("orders", "secret", &old));
        for (user, password, verifier) in
            [("orders", "secret2", &old), ("orders", "", &old), ("billing", "secret", &old), ("orders", "secret", &new)]
        {
            assert!(!remembered.has(user, password, verifier), "{user} {password}");
        }
        assert!(!format!("{remembered:?}").contains('7'));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let remembered = Remembered::new([7; 32]);
        let of = |number: usize| format!("user-{number}");
        (0..=REMEMBERED_MAX).for_each(|number| remembered.keep(&of(number), "secret", &verifier(1)));
        assert!(!remembered.has(&of(0), "secret", &verifier(1)));
        assert!(remembered.has(&of(REMEMBERED_MAX), "secret", &verifier(1)));
        let tags = remembered.tags();
        assert!(tags.recent.len() + tags.older.len() <= REMEMBERED_MAX);
    }
}
