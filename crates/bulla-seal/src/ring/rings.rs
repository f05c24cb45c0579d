//! The rings of all users of a queue manager, kept up with their files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::load::{self, Files, Keys};
use super::{Ring, RingError};
use crate::certificate::Passphrase;

/// The time between two looks at a ring's files.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Files of `people` that one look takes in: some 2 ms. More than that are looked at in turns; files that
/// come, go or are renamed into place show in their directory at once.
pub const PEOPLE_CHECKED_MAX: usize = 1000;
/// The longest name of a user, in bytes.
pub const USER_BYTES_MAX: usize = 128;

/// Rings by user, below one directory.
pub struct Rings {
    pub(super) root: PathBuf,
    users: Mutex<HashMap<String, Arc<Mutex<Entry>>>>,
    on_change: Option<OnChange>,
}

/// Called when a ring was read, or can't be read any more, with the user, and the ring or why there is none. The ring's
/// lock is held meanwhile: no other ring may be asked for.
pub type OnChange = Box<dyn Fn(&str, Result<&Ring, &RingError>) + Send + Sync>;

#[derive(Default)]
struct Entry {
    passphrase: Option<Passphrase>,
    ring: Option<Arc<Ring>>,
    /// The files of the ring, as they were when it was read.
    files: Files,
    /// Why there is no ring, until the next look.
    error: Option<RingError>,
    checked: Option<Instant>,
    /// Where the next look at `people` begins.
    turn: usize,
}

impl Rings {
    /// The rings below `root`, which need not exist yet. Nothing is read.
    pub fn new(root: PathBuf) -> Rings {
        Rings { root, users: Mutex::new(HashMap::new()), on_change: None }
    }

    /// The same, and `tell` hears of each ring that is read for the first time, or anew because its files have changed,
    /// and of each that can't be read any more.
    #[must_use]
    pub fn telling(self, tell: OnChange) -> Rings {
        Rings { on_change: Some(tell), ..self }
    }

    /// The directory of a user's ring.
    ///
    /// # Errors
    /// [`RingError::UserName`] for a name that would lead elsewhere.
    pub fn path(&self, user: &str) -> Result<PathBuf, RingError> {
        if !is_plain_name(user) {
            return Err(RingError::UserName { user: user.to_owned() });
        }
        Ok(self.root.join(user))
    }

    /// Users who have a ring, by name: the directories below the root with names that a user can have.
    pub fn users(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().filter_map(Result::ok);
        let names =
            entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok());
        let mut users: Vec<String> = names.filter(|name| is_plain_name(name)).collect();
        users.sort_unstable();
        users
    }

    /// The ring of a user as it is on disk, or was at most [`CHECK_INTERVAL`] ago. Costs two locks and a compare
    /// between looks, one `stat` a file at a look, and reads the files that changed.
    ///
    /// # Errors
    /// [`RingError`]. A ring that can no longer be read is no longer given out, in its old state neither.
    pub fn get(&self, user: &str, now: Instant) -> Result<Arc<Ring>, RingError> {
        let path = self.path(user)?;
        let entry = self.entry(user, &path)?;
        let mut entry = lock(&entry);
        let due = entry
            .checked
            .is_none_or(|checked| now.saturating_duration_since(checked) >= CHECK_INTERVAL || now < checked);
        if due {
            let changed = entry.refresh(&path);
            entry.checked = Some(now);
            if let (true, Some(tell)) = (changed, &self.on_change) {
                match (&entry.ring, &entry.error) {
                    (_, Some(error)) => tell(user, Err(error)),
                    (Some(ring), None) => tell(user, Ok(ring)),
                    (None, None) => {}
                }
            }
        }
        match (&entry.ring, &entry.error) {
            (Some(ring), None) => Ok(ring.clone()),
            (_, Some(error)) => Err(error.clone()),
            (None, None) => Err(RingError::Missing { path }),
        }
    }

    /// The next [`Rings::get`] of each user looks at the files, however short ago the last look was.
    pub fn look_again(&self) {
        // No ring is read under the lock of all.
        let entries: Vec<_> = lock(&self.users).values().cloned().collect();
        entries.iter().for_each(|entry| lock(entry).checked = None);
    }

    /// Keeps the passphrase of a user's keys in memory for this and later readings. The next [`Rings::get`] tells
    /// whether it fits.
    ///
    /// # Errors
    /// [`RingError::UserName`], [`RingError::Missing`].
    pub fn unlock(&self, user: &str, passphrase: Passphrase) -> Result<(), RingError> {
        let path = self.path(user)?;
        let entry = self.entry(user, &path)?;
        let mut entry = lock(&entry);
        entry.passphrase = Some(passphrase);
        // Read from the files again, so that a wrong passphrase shows now and not at the next change.
        entry.ring = None;
        entry.files = Files::default();
        entry.error = None;
        entry.checked = None;
        Ok(())
    }

    /// Names that have no directory take no memory: who may ask is not decided here.
    fn entry(&self, user: &str, path: &Path) -> Result<Arc<Mutex<Entry>>, RingError> {
        let mut users = lock(&self.users);
        if let Some(entry) = users.get(user) {
            return Ok(entry.clone());
        }
        if !path.is_dir() {
            return Err(RingError::Missing { path: path.to_owned() });
        }
        Ok(users.entry(user.to_owned()).or_default().clone())
    }
}

impl Entry {
    /// Whether another ring is there than before, or another reason why there is none.
    fn refresh(&mut self, path: &Path) -> bool {
        if self.error.is_none() && self.ring.is_some() && is_current(&self.files, self.turn) {
            self.turn = self.turn.wrapping_add(PEOPLE_CHECKED_MAX);
            return false;
        }
        self.turn = 0;
        match load::load(path, Keys::Open(self.passphrase.as_ref()), &self.files) {
            Ok((ring, files)) => {
                // Files that were touched but say the same are no reason to forget keys and verdicts.
                let changed = files.changed || self.ring.is_none();
                if changed {
                    self.ring = Some(Arc::new(ring));
                }
                self.files = files;
                self.error.take().is_some() || changed
            }
            // The old snapshot stays for the case that all is as before again, but is not given out.
            Err(error) => {
                let changed = self.error.as_ref() != Some(&error);
                self.error = Some(error);
                changed
            }
        }
    }
}

/// Whether the directories, all small places, and some people look as they did.
fn is_current(files: &Files, turn: usize) -> bool {
    let same = |path: &PathBuf| files.files.get(path).is_some_and(|file| file.is_current(path));
    let count = files.people.len().min(PEOPLE_CHECKED_MAX);
    let start = turn.checked_rem(files.people.len()).unwrap_or(0);
    files.are_listed() && files.others.iter().all(same) && files.people.iter().cycle().skip(start).take(count).all(same)
}

/// Letters, digits and `._@-`, not beginning with a dot: a name that stays in its directory.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= USER_BYTES_MAX
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@-".contains(&b))
}

/// A panic elsewhere while the lock was held cannot leave these values half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
