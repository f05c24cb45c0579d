//! Authority records: rights of a user or a group on the objects of a profile.

use super::{ObjectType, Profile, Rights};
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// The principal that stands for every user who has signed in, and for those in whose name channels put.
pub const SIGNED_IN: &str = "*";
/// The principal that stands for clients that have not signed in. No user can have the name.
pub const ANONYMOUS: &str = "*ANONYMOUS";
/// Most records.
pub const RECORDS_MAX: usize = 100_000;

/// Who has rights.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Entity {
    /// PRINCIPAL: a user by its name, [`SIGNED_IN`] or [`ANONYMOUS`].
    Principal(String),
    /// GROUP: a group by its name.
    Group(String),
}

impl Entity {
    /// A user, or one of the two names that stand for several.
    #[must_use]
    pub fn principal(name: &str) -> Self {
        Entity::Principal(name.to_owned())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Entity::Principal(name) | Entity::Group(name) => name,
        }
    }

    /// MQSC's word for what it is.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Entity::Principal(_) => "PRINCIPAL",
            Entity::Group(_) => "GROUP",
        }
    }
}

/// Which record.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RecordKey {
    /// On what sort of object.
    pub object: ObjectType,
    /// On which of them.
    pub profile: Profile,
    /// Whose.
    pub entity: Entity,
}

/// `orders on QUEUE ORDERS.*`, for messages.
impl Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, profile, entity } = self;
        let group = if matches!(entity, Entity::Group(_)) { "group " } else { "" };
        write!(f, "{group}{} on {object}", entity.name())?;
        if profile.as_str().is_empty() { Ok(()) } else { write!(f, " {profile}") }
    }
}

/// All records.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Records {
    of: BTreeMap<Entity, Entries>,
    count: usize,
}

/// The records of one user or group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Entries {
    /// By one name: found by looking it up.
    exact: BTreeMap<(ObjectType, String), Rights>,
    /// The most particular first: the first that fits counts.
    generic: BTreeMap<(ObjectType, Profile), Rights>,
}

impl Entries {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.generic.is_empty()
    }
}

impl Records {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is none: no user may do anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The rights of one record; none when there is no such record.
    #[must_use]
    pub fn get(&self, key: &RecordKey) -> Option<Rights> {
        let entries = self.of.get(&key.entity)?;
        match key.profile.is_generic() {
            true => entries.generic.get(&(key.object, key.profile.clone())).copied(),
            false => entries.exact.get(&(key.object, key.profile.as_str().to_owned())).copied(),
        }
    }

    /// What the records of one user or group say of an object: the most particular one that fits, or nothing.
    #[must_use]
    pub fn rights(&self, entity: &Entity, object: ObjectType, name: &str) -> Rights {
        let Some(entries) = self.of.get(entity) else { return Rights::NONE };
        // The queue manager's record has no name in it.
        let name = if object == ObjectType::QueueManager { "" } else { name };
        if let Some(rights) = entries.exact.get(&(object, name.to_owned())) {
            return *rights;
        }
        let generic = entries.generic.iter().filter(|((of, _), _)| *of == object);
        generic.into_iter().find(|((_, profile), _)| profile.fits(name)).map_or(Rights::NONE, |(_, rights)| *rights)
    }

    /// Writes a record: a new one, or over the old one.
    pub fn set(&mut self, key: RecordKey, rights: Rights) {
        let RecordKey { object, profile, entity } = key;
        let entries = self.of.entry(entity).or_default();
        let old = match profile.is_generic() {
            true => entries.generic.insert((object, profile), rights),
            false => entries.exact.insert((object, profile.as_str().to_owned()), rights),
        };
        self.count += usize::from(old.is_none());
    }

    /// Takes a record away, if it is there.
    pub fn remove(&mut self, key: &RecordKey) {
        let Some(entries) = self.of.get_mut(&key.entity) else { return };
        let old = match key.profile.is_generic() {
            true => entries.generic.remove(&(key.object, key.profile.clone())),
            false => entries.exact.remove(&(key.object, key.profile.as_str().to_owned())),
        };
        self.count -= usize::from(old.is_some());
        if entries.is_empty() {
            self.of.remove(&key.entity);
        }
    }

    /// Takes all records of a user or group away.
    pub fn remove_all_of(&mut self, entity: &Entity) {
        if let Some(entries) = self.of.remove(entity) {
            self.count -= entries.exact.len() + entries.generic.len();
        }
    }

    /// How many records a user or group has.
    #[must_use]
    pub fn count_of(&self, entity: &Entity) -> usize {
        self.of.get(entity).map_or(0, |entries| entries.exact.len() + entries.generic.len())
    }

    /// Every record, by user or group.
    pub fn iter(&self) -> impl Iterator<Item = (RecordKey, Rights)> + '_ {
        self.of.iter().flat_map(|(entity, entries)| {
            let key = |object: ObjectType, profile: Profile| RecordKey { object, profile, entity: entity.clone() };
            let exact = entries.exact.iter().map(move |((object, name), rights)| {
                let profile = Profile::parse(name).unwrap_or_else(Profile::of_queue_manager);
                (key(*object, profile), *rights)
            });
            let key = |object: ObjectType, profile: Profile| RecordKey { object, profile, entity: entity.clone() };
            let generic = entries.generic.iter();
            exact.chain(generic.map(move |((object, profile), rights)| (key(*object, profile.clone()), *rights)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Right;

    fn key(profile: &str, user: &str) -> RecordKey {
        let profile = Profile::parse(profile).unwrap_or_else(Profile::of_queue_manager);
        let object = if profile.as_str().is_empty() { ObjectType::QueueManager } else { ObjectType::Queue };
        RecordKey { object, profile, entity: Entity::principal(user) }
    }

    #[test]
    fn what_was_set_is_there_until_it_is_removed() {
        let mut records = Records::default();
        let rights = Rights::of(&[Right::Put]);
        let keys = [key("A", "u"), key("A.**", "u"), key("A.**", "v"), key("", "u")];
        for wanted in &keys {
            records.set(wanted.clone(), rights);
            records.set(wanted.clone(), rights.with(Right::Get.alone()));
        }
        assert_eq!(records.len(), keys.len());
        let mut found: Vec<RecordKey> = records.iter().map(|(key, _)| key).collect();
        found.sort();
        let mut wanted = keys.to_vec();
        wanted.sort();
        assert_eq!(found, wanted);
        for key in &keys {
            assert_eq!(records.get(key), Some(rights.with(Right::Get.alone())));
            records.remove(key);
            records.remove(key);
            assert_eq!(records.get(key), None);
        }
        assert!(records.is_empty() && records == Records::default());
    }

    #[test]
    fn a_name_in_full_counts_before_any_pattern() {
        let mut records = Records::default();
        records.set(key("A.B", "u"), Rights::NONE);
        records.set(key("A.*", "u"), Right::Put.alone());
        records.set(key("**", "u"), Right::Get.alone());
        let of = |name| records.rights(&Entity::principal("u"), ObjectType::Queue, name);
        assert_eq!((of("A.B"), of("A.C"), of("B")), (Rights::NONE, Right::Put.alone(), Right::Get.alone()));
        assert_eq!(records.rights(&Entity::Group("u".into()), ObjectType::Queue, "B"), Rights::NONE);
    }

    #[test]
    fn a_group_goes_with_all_its_records() {
        let mut records = Records::default();
        let group = Entity::Group("G".into());
        for profile in ["A", "B.*", "**"] {
            records.set(RecordKey { entity: group.clone(), ..key(profile, "") }, Right::Put.alone());
        }
        records.set(key("A", "u"), Right::Put.alone());
        assert_eq!(records.count_of(&group), 3);
        records.remove_all_of(&group);
        assert_eq!((records.len(), records.count_of(&group)), (1, 0));
    }
}
