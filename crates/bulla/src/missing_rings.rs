//! Key rings that members of groups of shared queues lack: the owner of a group says in its log whose rings it uses,
//! and each member looks whether it could use them, too. So what a takeover would not do for a user is known
//! beforehand.

use crate::catalog::status::MissingRing;
use crate::events::Event;
use crate::group_rings::{self, GroupRings, RINGS_MAX, RingKey, Ways};
use crate::manager::{Manager, State};
use crate::wall_clock::wall_ms;
use bulla_queue::StoreNumber;
use bulla_seal::Dn;
use bulla_seal::ring::{KeyFiles, RingError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How often rings that are told of are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often an owner looks at all rings, where neither keys nor definitions have changed.
const WHOLE_LOOK_EVERY: Duration = Duration::from_secs(60);
/// Whole looks after a change. A ring that others have just asked for is read again only a second later.
const LOOKS_AFTER_CHANGE: u32 = 2;
/// Rights that are asked for while the queues' lock is held once: some microseconds each.
const RIGHTS_AT_ONCE: usize = 200;
/// How long the lock is let go in between.
const LET_GO: Duration = Duration::from_micros(100);
/// Notes that are changed in one commit.
const NOTES_AT_ONCE: usize = 50;

/// What was found, and told already.
#[derive(Default)]
pub(crate) struct Watch {
    groups: BTreeMap<String, OfGroup>,
    key_files: KeyFiles,
    looked: Option<Instant>,
}

#[derive(Default)]
struct OfGroup {
    /// The rings that are missing, and why.
    told: BTreeMap<String, String>,
    owned: Option<Owned>,
    /// What was said in the log, and is so still.
    said: Option<String>,
}

/// What is known of a group that is owned here.
struct Owned {
    store: StoreNumber,
    /// The numbers of what is defined and of who has rights, as they were at the last whole look.
    generations: (u64, u64),
    looked: Instant,
    /// Whole looks that are due because something has changed.
    due: u32,
    /// Users whose rings were used here.
    had: BTreeSet<String>,
}

/// What the owner of a group says.
enum Said {
    /// That is this queue manager: by the notes in its store.
    Here(StoreNumber, Vec<(String, Vec<u8>)>),
    Elsewhere(Arc<GroupRings>),
}

impl Said {
    /// None where nothing is known of the group.
    fn of(state: &State, group: &str) -> Option<Self> {
        if let Some(number) = state.store.store_named(group) {
            // They are read when the queues' lock is let go.
            let notes = state.store.store(number)?.notes(group_rings::PREFIX).take(RINGS_MAX);
            return Some(Self::Here(number, notes.map(|(name, value)| (name.to_owned(), value.to_vec())).collect()));
        }
        Some(Self::Elsewhere(state.groups_elsewhere.named(group)?.rings.clone()))
    }
}

impl Watch {
    /// Looks where it is time to. Where there is no group that is one look at what is defined.
    pub(crate) fn watch(&mut self, manager: &Manager, now: Instant, wall: SystemTime) {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        let groups: BTreeSet<String> = manager.lock().definitions.shared_groups.keys().cloned().collect();
        self.groups.retain(|group, _| groups.contains(group));
        manager.rings_missing().retain(|group, _| groups.contains(group));
        if groups.is_empty() {
            return;
        }
        let keys_changed = self.key_files.have_changed(&manager.sealing.rings, wall);
        for group in groups {
            let of_group = self.groups.entry(group.clone()).or_default();
            of_group.look(&group, keys_changed, manager, (now, wall));
        }
    }
}

impl OfGroup {
    fn look(&mut self, group: &str, keys_changed: bool, manager: &Manager, (now, wall): (Instant, SystemTime)) {
        let (said, generations) = {
            let state = manager.lock();
            // While its log is away, what was found last is what is known.
            let Some(said) = Said::of(&state, group) else { return };
            (said, (state.generations.definitions, state.generations.authority))
        };
        let rings = match said {
            Said::Elsewhere(rings) => {
                self.owned = None;
                rings
            }
            Said::Here(store, notes) => {
                let notes = notes.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
                let rings = group_rings::read(notes);
                match self.whole_look((group, &rings), store, generations, keys_changed, (manager, now)) {
                    Some(needed) => {
                        self.tell_members(group, store, (&rings, &needed), manager);
                        Arc::new(needed)
                    }
                    None => Arc::new(rings),
                }
            }
        };
        let missing = rings.iter().filter_map(|(user, keys)| {
            Some(MissingRing { user: user.clone(), why: why_missing(user, keys, manager, (now, wall))? })
        });
        let missing: Vec<MissingRing> = missing.collect();
        let events = self.tell(group, &missing);
        manager.rings_missing().insert(group.to_owned(), missing);
        manager.raise(&events, wall_ms(wall));
    }

    /// At the owner, the rings that the group needs; none where that can't have changed.
    fn whole_look(
        &mut self,
        (group, said): (&str, &GroupRings),
        store: StoreNumber,
        generations: (u64, u64),
        keys_changed: bool,
        (manager, now): (&Manager, Instant),
    ) -> Option<GroupRings> {
        let owned = match &mut self.owned {
            Some(owned) if owned.store == store => owned,
            slot => slot.insert(Owned { store, generations, looked: now, due: 1, had: BTreeSet::new() }),
        };
        if keys_changed || owned.generations != generations {
            owned.due = LOOKS_AFTER_CHANGE;
        }
        if owned.due == 0 && now.saturating_duration_since(owned.looked) < WHOLE_LOOK_EVERY {
            return None;
        }
        (owned.generations, owned.looked, owned.due) = (generations, now, owned.due.saturating_sub(1));
        let mut needed = needed((group, said), &mut owned.had, (manager, now));
        let beyond = needed.len().saturating_sub(RINGS_MAX);
        if let Some(user) = needed.keys().nth(RINGS_MAX).cloned() {
            needed.split_off(&user);
        }
        let why = (beyond > 0)
            .then(|| format!("{beyond} users' key rings are beyond {RINGS_MAX}: members don't look for them"));
        self.say(group, why);
        Some(needed)
    }

    /// Other members hear of the rings by notes in the group's log.
    fn tell_members(
        &mut self,
        group: &str,
        store: StoreNumber,
        (said, needed): (&GroupRings, &GroupRings),
        manager: &Manager,
    ) {
        let new = needed.iter().filter(|(user, keys)| said.get(*user) != Some(*keys));
        let new = new.map(|(user, keys)| (group_rings::note_name(user), Some(group_rings::note(keys))));
        let gone = said.keys().filter(|user| !needed.contains_key(*user));
        let changes: Vec<(String, Option<Vec<u8>>)> =
            new.chain(gone.map(|user| (group_rings::note_name(user), None))).collect();
        for changes in changes.chunks(NOTES_AT_ONCE) {
            let changes: Vec<(&str, Option<&[u8]>)> =
                changes.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
            let state = &mut *manager.lock();
            // In the meantime another store may have the number.
            if state.store.store_named(group) != Some(store) {
                return;
            }
            if let Err(error) = state.store.commit_notes(store, &changes) {
                if let Some(owned) = &mut self.owned {
                    owned.due = owned.due.max(1);
                }
                return self.say(group, Some(format!("members don't hear whose key rings are used: {error}")));
            }
        }
    }

    /// A line of the log, once while it is so.
    fn say(&mut self, group: &str, why: Option<String>) {
        if let Some(why) = why.as_ref().filter(|_| why != self.said) {
            crate::warning!("shared group {group}: {why}");
        }
        self.said = why;
    }

    /// Events of what has changed: at most two.
    fn tell(&mut self, group: &str, missing: &[MissingRing]) -> Vec<Event> {
        let now: BTreeMap<String, String> = missing.iter().map(|ring| (ring.user.clone(), ring.why.clone())).collect();
        let new = missing.iter().filter(|ring| !self.told.contains_key(&ring.user)).cloned();
        let new: Vec<MissingRing> = new.collect();
        let users: Vec<String> = self.told.keys().filter(|user| !now.contains_key(*user)).cloned().collect();
        self.told = now;
        let (group, count) = (group.to_owned(), missing.len());
        let found = (!users.is_empty()).then(|| Event::RingsFound { group: group.clone(), users, missing: count });
        let new = (!new.is_empty()).then_some(Event::RingsMissing { group, rings: new, missing: count });
        found.into_iter().chain(new).collect()
    }
}

/// The rings that a group needs that is owned here: of users whose messages are sealed or opened with them. Those that
/// an owner before this one said and that can't be used here are kept for as long as the group needs them by what is
/// defined now. `had` are users whose rings were used here: one that is taken away is not needed any more.
fn needed(
    (group, said): (&str, &GroupRings),
    had: &mut BTreeSet<String>,
    (manager, now): (&Manager, Instant),
) -> GroupRings {
    let ways = Ways::of(&manager.lock().definitions, group);
    if ways.count() == 0 {
        return GroupRings::new();
    }
    let users: BTreeSet<String> = manager.sealing.rings.users().into_iter().chain(said.keys().cloned()).collect();
    let users: Vec<String> = users.into_iter().collect();
    let mut needed = GroupRings::new();
    for users in users.chunks((RIGHTS_AT_ONCE / ways.count()).max(1)) {
        let asked: Vec<Asked<'_>> =
            users.iter().filter_map(|user| Asked::of(user, said.get(user), had, (manager, now))).collect();
        if !needed.is_empty() {
            // A waiting thread needs time to wake up: a lock that is taken again at once is never handed over.
            std::thread::sleep(LET_GO);
        }
        let state = manager.lock();
        let needs = |user: &str, subjects: &[Dn], by_name| ways.need(&state.definitions, user, subjects, by_name);
        for Asked { user, is_here, mut keys, mut others } in asked {
            let is_needed = needs(user, &group_rings::subjects_of(&keys), false);
            others.retain(|key| needs(user, &group_rings::subjects_of(std::slice::from_ref(key)), true));
            if !is_needed && others.is_empty() {
                continue;
            }
            if is_here && is_needed {
                had.insert(user.to_owned());
            }
            keys.append(&mut others);
            keys.sort_unstable();
            needed.insert(user.to_owned(), keys);
        }
    }
    needed
}

/// A user whose ring may be needed.
struct Asked<'a> {
    user: &'a str,
    is_here: bool,
    /// The keys of the ring; of one that can't be used here, those that were said.
    keys: Vec<RingKey>,
    /// Keys that were said, under names that the ring here has no key of.
    others: Vec<RingKey>,
}

impl<'a> Asked<'a> {
    fn of(
        user: &'a str,
        said: Option<&Vec<RingKey>>,
        had: &mut BTreeSet<String>,
        (manager, now): (&Manager, Instant),
    ) -> Option<Self> {
        match manager.ring(user, now) {
            Ok(ring) => {
                let keys = group_rings::keys_of(&ring);
                let is_new = |key: &&RingKey| keys.iter().all(|own| own.subject != key.subject);
                // One that was used here with other names before has been given them here.
                let said = said.filter(|_| !had.contains(user));
                let others = said.into_iter().flatten().filter(is_new).cloned().collect();
                Some(Self { user, is_here: true, keys, others })
            }
            // It was taken away here.
            Err(RingError::Missing { .. }) if had.remove(user) => None,
            Err(_) => Some(Self { user, is_here: false, keys: said?.clone(), others: Vec::new() }),
        }
    }
}

/// Why a user's ring would not do here what it does at the owner; none where it would.
fn why_missing(user: &str, keys: &[RingKey], manager: &Manager, (now, wall): (Instant, SystemTime)) -> Option<String> {
    match manager.ring(user, now) {
        Ok(ring) => group_rings::lacking(&ring, keys, wall),
        Err(RingError::Missing { .. }) => Some("no key ring".to_owned()),
        Err(error) => Some(error.without_directories().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(users: &[&str]) -> Vec<MissingRing> {
        users.iter().map(|user| MissingRing { user: (*user).to_owned(), why: "no key ring".to_owned() }).collect()
    }

    #[test]
    fn a_ring_is_told_of_when_it_goes_and_when_it_is_back() {
        let mut of_group = OfGroup::default();
        let mut told = |users: &[&str]| -> Vec<(&str, Vec<String>, usize)> {
            let events = of_group.tell("G", &missing(users)).into_iter();
            let shown = events.map(|event| match event {
                Event::RingsMissing { rings, missing, .. } => {
                    ("missing", rings.into_iter().map(|ring| ring.user).collect(), missing)
                }
                Event::RingsFound { users, missing, .. } => ("found", users, missing),
                other => panic!("{other:?}"),
            });
            shown.collect()
        };
        let names = |users: &[&str]| users.iter().map(|user| (*user).to_owned()).collect::<Vec<_>>();
        assert_eq!(told(&[]), []);
        assert_eq!(told(&["a", "b"]), [("missing", names(&["a", "b"]), 2)]);
        assert_eq!(told(&["a", "b"]), [], "it is so still");
        assert_eq!(told(&["b", "c"]), [("found", names(&["a"]), 2), ("missing", names(&["c"]), 2)]);
        assert_eq!(told(&[]), [("found", names(&["b", "c"]), 0)]);
        assert_eq!(told(&["a"]), [("missing", names(&["a"]), 1)]);
    }
}
