//! Sign-in by token as it is set up: what ALTER QMGR says, and the keys in [`FILE`], which is read again when it
//! changed.

use super::key_set::{self, KeySet, KeySetError};
use super::token::{self, Expected, Grant, TokenError};
use crate::catalog::QueueManager;
use crate::users::Stamp;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The file's name in the data directory: the keys of those who issue tokens, a JWK Set.
pub const FILE: &str = "jwks.json";

/// Checks tokens for one queue manager.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    expected: RwLock<Option<Arc<Expected>>>,
    read: Mutex<Snapshot>,
}

/// What the file said when it was last read.
#[derive(Debug, Default)]
struct Snapshot {
    /// None before the first look, and while there is no file.
    stamp: Option<Stamp>,
    keys: Arc<KeySet>,
}

/// Why the keys are not taken. The administrator's turn.
#[derive(Debug)]
enum KeysError {
    File(io::Error),
    /// Others than the owner may write it: they could sign in as any user.
    Exposed {
        mode: u32,
    },
    Set(KeySetError),
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Exposed { mode } => write!(f, "others may write it (mode {mode:03o}); chmod go-w"),
            Self::Set(error) => error.fmt(f),
        }
    }
}

impl Tokens {
    /// For the queue manager with that data directory. No token is taken before [`Tokens::follow`] has said which.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self { path: data.join(FILE), expected: RwLock::default(), read: Mutex::default() }
    }

    /// Takes over what the queue manager's attributes say. To be called when they change.
    pub fn follow(&self, manager: &QueueManager) {
        let expected = manager.token_issuer.as_ref().map(|issuer| {
            Arc::new(Expected {
                issuer: issuer.clone(),
                audience: manager.token_audience.clone().unwrap_or_else(|| manager.name.clone()),
                user_claim: manager.token_user_claim.clone(),
            })
        });
        *self.expected.write().unwrap_or_else(PoisonError::into_inner) = expected;
    }

    /// Whether tokens are taken at all.
    pub fn are_taken(&self) -> bool {
        self.expected.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Checks a token at `now`, seconds since 1970. Costs a look at the file, and one verification.
    ///
    /// # Errors
    /// It is refused, or none is taken ([`TokenError::NoKeys`]).
    pub fn check(&self, token: &str, now: u64) -> Result<Grant, TokenError> {
        let expected = self.expected.read().unwrap_or_else(PoisonError::into_inner).clone();
        let expected = expected.ok_or(TokenError::NoKeys)?;
        token::check(token, &self.keys(), &expected, now)
    }

    /// The keys as the file has them now. While it cannot be read or makes no sense, what it said last holds, and the
    /// log says so; a file that is gone means that there are no keys.
    fn keys(&self) -> Arc<KeySet> {
        let mut snapshot = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // The stamp is older than the text: a change in between is read again, never missed.
        let stamp = Stamp::of(&self.path);
        if stamp != snapshot.stamp {
            match read(&self.path) {
                Ok(keys) => {
                    crate::note!("{FILE}: {} keys to check tokens with", keys.len());
                    snapshot.keys = Arc::new(keys);
                }
                Err(error) => {
                    if stamp.is_none() {
                        snapshot.keys = Arc::default();
                    }
                    crate::warning!("{}: not read again: {error}", self.path.display());
                }
            }
            snapshot.stamp = stamp; // said once for each state of the file
        }
        snapshot.keys.clone()
    }
}

fn read(path: &Path) -> Result<KeySet, KeysError> {
    let file = File::open(path).map_err(KeysError::File)?;
    let mode = file.metadata().map_err(KeysError::File)?.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(KeysError::Exposed { mode });
    }
    let mut text = Vec::new();
    // One byte more than is taken, so that the one who counts sees that it is too long.
    file.take(key_set::BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(KeysError::File)?;
    KeySet::parse(&text).map_err(KeysError::Set)
}

#[cfg(test)]
mod tests {
    use super::super::test_tokens::Issuer;
    use super::*;
    use crate::catalog::Definitions;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const NOW: u64 = 1_795_296_295;

    fn replace(data: &Path, text: &str) {
        let aside = data.join("aside");
        fs::write(&aside, text).unwrap();
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(aside, data.join(FILE)).unwrap();
    }

    #[test]
    fn keys_are_read_again_when_the_file_changes_and_kept_while_it_is_bad() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let (first, second) = (Issuer::p256("first"), Issuer::ed25519("second"));
        let tokens = Tokens::new(data);
        assert!(!tokens.are_taken());
        let (old, new) = (first.token(&first.claims(NOW)), second.token(&second.claims(NOW)));
        assert_eq!(tokens.check(&old, NOW), Err(TokenError::NoKeys), "it is not configured whose tokens are accepted");
        let mut manager = Definitions::initial("QM1").queue_manager;
        manager.token_issuer = Some(first.name());
        manager.token_audience = Some("queues".into());
        tokens.follow(&manager);
        assert!(tokens.are_taken());
        assert_eq!(tokens.check(&old, NOW), Err(TokenError::NoKeys), "there is no file");

        replace(data, &first.key_set());
        assert_eq!(tokens.check(&old, NOW).map(|grant| grant.user), Ok("orders".into()));
        assert_eq!(tokens.check(&new, NOW), Err(TokenError::Key));
        replace(data, "not a set of keys");
        assert!(tokens.check(&old, NOW).is_ok(), "what was known holds");
        replace(data, &second.key_set());
        assert_eq!(tokens.check(&old, NOW), Err(TokenError::Key), "a key that is taken away is gone");
        assert!(tokens.check(&new, NOW).is_ok());

        replace(data, &first.key_set());
        fs::set_permissions(data.join(FILE), fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(tokens.check(&old, NOW), Err(TokenError::Key), "a file that others may write is not read");
        fs::set_permissions(data.join(FILE), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(tokens.check(&old, NOW).is_ok(), "it is read when others may not any more");
        fs::remove_file(data.join(FILE)).unwrap();
        assert_eq!(tokens.check(&new, NOW), Err(TokenError::NoKeys));
        replace(data, &second.key_set());
        manager.token_issuer = None;
        tokens.follow(&manager);
        assert_eq!((tokens.are_taken(), tokens.check(&new, NOW)), (false, Err(TokenError::NoKeys)));
    }

    #[test]
    fn without_an_audience_the_queue_manager_is_it() {
        let directory = tempfile::tempdir().unwrap();
        let issuer = Issuer::p256("key");
        replace(directory.path(), &issuer.key_set());
        let tokens = Tokens::new(directory.path());
        let mut manager = Definitions::initial("QM1").queue_manager;
        manager.token_issuer = Some(issuer.name());
        tokens.follow(&manager);
        let mut claims = issuer.claims(NOW);
        assert_eq!(tokens.check(&issuer.token(&claims), NOW), Err(TokenError::Audience));
        claims["aud"] = "QM1".into();
        assert!(tokens.check(&issuer.token(&claims), NOW).is_ok());
    }
}
