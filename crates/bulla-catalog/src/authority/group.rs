//! Groups of users, as the admin language defines them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// Most members of one group: each has at most [`USER_NAME_BYTES_MAX`](crate::names::USER_NAME_BYTES_MAX) bytes, and
/// one command defines the group.
pub const MEMBERS_MAX: usize = 10_000;
/// Most groups.
pub const GROUPS_MAX: usize = 10_000;

/// A group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Group {
    /// DESCR
    pub description: String,
    /// MEMBERS: names of users. They need not have signed up.
    pub members: BTreeSet<String>,
}

/// All groups, found by their names and by their members'.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Groups {
    by_name: BTreeMap<String, Group>,
    by_member: BTreeMap<String, BTreeSet<String>>,
}

/// The groups by their names.
impl Deref for Groups {
    type Target = BTreeMap<String, Group>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl Groups {
    /// The groups of a user.
    pub fn of(&self, user: &str) -> impl Iterator<Item = &str> {
        self.by_member.get(user).into_iter().flatten().map(String::as_str)
    }

    /// Defines a group, or writes over it.
    pub fn insert(&mut self, name: String, group: Group) {
        self.remove(&name);
        for member in &group.members {
            self.by_member.entry(member.clone()).or_default().insert(name.clone());
        }
        self.by_name.insert(name, group);
    }

    /// Takes a group away, if it is there.
    pub fn remove(&mut self, name: &str) {
        let Some(group) = self.by_name.remove(name) else { return };
        for member in &group.members {
            if let Some(groups) = self.by_member.get_mut(member) {
                groups.remove(name);
                if groups.is_empty() {
                    self.by_member.remove(member);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_whatever_became_of_the_groups_before() {
        let group = |members: &[&str]| Group {
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            ..Group::default()
        };
        let mut groups = Groups::default();
        groups.insert("A".into(), group(&["x", "y"]));
        groups.insert("B".into(), group(&["y"]));
        assert_eq!(groups.of("y").collect::<Vec<_>>(), ["A", "B"]);
        groups.insert("A".into(), group(&["z"]));
        assert_eq!(groups.of("y").collect::<Vec<_>>(), ["B"]);
        assert_eq!((groups.of("x").count(), groups.of("z").count(), groups.len()), (0, 1, 2));
        groups.remove("A");
        groups.remove("B");
        assert_eq!(groups, Groups::default());
    }
}
