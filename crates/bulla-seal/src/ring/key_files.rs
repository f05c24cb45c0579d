//! Notices that files of private keys come and go, without reading a ring.

use std::path::PathBuf;
use std::time::SystemTime;

use super::Rings;
use super::load::{Place, Stamp};

/// Rings that one look takes in: some 2 ms. More than that are looked at in turns.
pub const RINGS_WATCHED_MAX: usize = 1_000;

/// The folders of private keys as they were at the last look.
#[derive(Default)]
pub struct KeyFiles {
    root: Option<Stamp>,
    folders: Vec<(PathBuf, Option<Stamp>)>,
    /// Where the next look begins.
    turn: usize,
}

impl KeyFiles {
    /// Whether a ring came or went, or a file of some ring's `own` came, went or was renamed, since the last look; to
    /// the first one all rings are new. Costs a `stat` a ring. What is written into a file that stays is not noticed.
    pub fn have_changed(&mut self, rings: &Rings, now: SystemTime) -> bool {
        // Changes within one tick of the kernel's clock have one stamp: a folder that is not at rest counts as unknown.
        let stamp = |path: &PathBuf| Stamp::of(path).ok().filter(|stamp| stamp.is_settled(now));
        let root = stamp(&rings.root);
        if root.is_none() || root != self.root {
            let users = rings.users();
            let folders: Vec<PathBuf> =
                users.iter().map(|user| rings.root.join(user).join(Place::Own.name())).collect();
            let same = folders.iter().eq(self.folders.iter().map(|(path, _)| path));
            self.root = root;
            if !same {
                self.folders = folders.into_iter().map(|path| (path.clone(), stamp(&path))).collect();
                return true;
            }
        }
        let count = self.folders.len().min(RINGS_WATCHED_MAX);
        let mut changed = false;
        for step in 0..count {
            let at = (self.turn + step) % self.folders.len();
            let Some((path, known)) = self.folders.get_mut(at) else { continue };
            let found = stamp(path);
            // A folder that is not there has no stamp either, and stays as it is.
            if found != *known || found.is_none() && path.exists() {
                *known = found;
                changed = true;
            }
        }
        self.turn = (self.turn + count).checked_rem(self.folders.len()).unwrap_or(0);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    /// Long after each change: stamps are settled.
    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(60)
    }

    /// Does something to a folder, in another tick of the kernel's clock than what was done before.
    fn change(folder: &Path, what: impl FnOnce(&Path)) {
        let before = Stamp::of(folder).unwrap();
        what(folder);
        while Stamp::of(folder).is_ok_and(|stamp| stamp == before) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn a_key_file_that_comes_or_goes_is_noticed_once() {
        let data = tempfile::tempdir().unwrap();
        let rings = Rings::new(data.path().to_owned());
        let mut files = KeyFiles::default();
        let mut twice = || [0, 1].map(|_| files.have_changed(&rings, later()));
        assert_eq!(twice(), [false, false], "there is no ring");
        let (ring, own) = (data.path().join("billing"), data.path().join("billing/own"));
        change(data.path(), |_| fs::create_dir_all(&own).unwrap());
        assert_eq!(twice(), [true, false], "a ring came");
        change(&own, |own| fs::write(own.join("key.pem"), "a key").unwrap());
        assert_eq!(twice(), [true, false], "a key came");
        change(&own, |own| fs::rename(own.join("key.pem"), own.join("new.pem")).unwrap());
        assert_eq!(twice(), [true, false], "it has another name");
        change(&ring, |ring| fs::create_dir(ring.join("people")).unwrap());
        assert_eq!(twice(), [false, false], "that is no key");
        change(&own, |own| fs::remove_file(own.join("new.pem")).unwrap());
        assert_eq!(twice(), [true, false], "the key went");
        change(&ring, |_| fs::remove_dir_all(&own).unwrap());
        assert_eq!(twice(), [true, false], "its folder went");
        change(data.path(), |_| fs::remove_dir_all(&ring).unwrap());
        assert_eq!(twice(), [true, false], "the ring went");
    }

    #[test]
    fn a_folder_that_is_not_at_rest_is_looked_at_again() {
        let data = tempfile::tempdir().unwrap();
        let own = data.path().join("billing/own");
        fs::create_dir_all(&own).unwrap();
        let rings = Rings::new(data.path().to_owned());
        let mut files = KeyFiles::default();
        let facts = fs::metadata(&own).unwrap();
        let changed = Duration::new(facts.ctime() as u64, facts.ctime_nsec() as u32);
        let soon = UNIX_EPOCH + changed + Duration::from_millis(1);
        assert_eq!([0, 1, 2].map(|_| files.have_changed(&rings, soon)), [true; 3]);
        assert_eq!([0, 1, 2].map(|_| files.have_changed(&rings, later())), [true, false, false]);
    }

    #[test]
    fn of_many_rings_each_is_looked_at_in_its_turn() {
        let data = tempfile::tempdir().unwrap();
        let own = |number: usize| data.path().join(format!("user{number:05}/own"));
        let count = RINGS_WATCHED_MAX + 500;
        (0..count).for_each(|number| fs::create_dir_all(own(number)).unwrap());
        let rings = Rings::new(data.path().to_owned());
        let mut files = KeyFiles::default();
        assert!(files.have_changed(&rings, later()));
        change(&own(count - 1), |own| fs::write(own.join("key.pem"), "a key").unwrap());
        let found: Vec<bool> = (0..4).map(|_| files.have_changed(&rings, later())).collect();
        assert_eq!(found, [false, true, false, false]);
    }
}
