//! Who may administer beside the owner of the queue manager's process, and how much: roles of the operating system's
//! users and groups, and of users who sign in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

/// Most ADMIN objects.
pub const ADMINISTRATORS_MAX: usize = 1_000;
/// Most users, and most groups, of one of them.
pub const ADMINISTRATOR_NAMES_MAX: usize = 1_000;

/// What a user may do over an admin socket. A later one may do all that those before it may.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// Show things.
    #[default]
    Look,
    /// Start, stop, reset, clear what is defined, too.
    Operate,
    /// Everything.
    All,
}

impl Role {
    /// Every role, the least first.
    pub const EVERY: [Role; 3] = [Role::Look, Role::Operate, Role::All];

    /// As the admin language has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Look => "LOOK",
            Role::Operate => "OPERATE",
            Role::All => "ALL",
        }
    }
}

impl Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Users and groups with a role: ADMIN.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Administrators {
    /// DESCR
    pub description: String,
    /// OSUSER: names, or numbers in digits.
    pub users: BTreeSet<String>,
    /// OSGROUP: names, or numbers in digits.
    pub groups: BTreeSet<String>,
    /// PRINCIPAL: users, by the names that they sign in with.
    pub principals: BTreeSet<String>,
    /// ROLE
    pub role: Role,
}

/// The greatest role that any of the objects gives a user who has signed in; none where none knows that user.
#[must_use]
pub fn role_of_user(user: &str, administrators: &AllAdministrators) -> Option<Role> {
    let fits = |object: &&Administrators| object.principals.contains(user);
    administrators.values().filter(fits).map(|object| object.role).max()
}

/// All ADMIN objects, by name.
pub type AllAdministrators = BTreeMap<String, Administrators>;

/// A user on the admin socket, with every name and number that ADMIN objects may know it by.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OsIdentity {
    /// Names and the number of the user.
    users: BTreeSet<String>,
    /// Names and numbers of its groups.
    groups: BTreeSet<String>,
}

impl OsIdentity {
    /// A process's user and group, with what the texts of `/etc/passwd` and `/etc/group` say of them (passwd(5),
    /// group(5)): the user's names, and the groups that have them as members. Lines that are none are passed over.
    #[must_use]
    pub fn new(uid: u32, gid: u32, passwd: &str, group: &str) -> Self {
        let (uid, gid) = (uid.to_string(), gid.to_string());
        let mut found = Self { users: BTreeSet::from([uid.clone()]), groups: BTreeSet::from([gid.clone()]) };
        for line in passwd.lines() {
            let mut fields = line.split(':');
            if let (Some(name), Some(_), Some(number)) = (fields.next(), fields.next(), fields.next())
                && number == uid
                && is_name(name)
            {
                found.users.insert(name.to_owned());
            }
        }
        for line in group.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, number, members] = fields[..] else { continue };
            if number == gid || members.split(',').any(|member| found.is_called(member)) {
                if is_name(name) {
                    found.groups.insert(name.to_owned());
                }
                found.groups.insert(number.to_owned());
            }
        }
        found
    }

    fn is_called(&self, member: &str) -> bool {
        is_name(member) && self.users.contains(member)
    }

    /// The greatest role that any of the objects gives; none where none knows it.
    #[must_use]
    pub fn role(&self, administrators: &AllAdministrators) -> Option<Role> {
        let fits = |object: &&Administrators| {
            !object.users.is_disjoint(&self.users) || !object.groups.is_disjoint(&self.groups)
        };
        administrators.values().filter(fits).map(|object| object.role).max()
    }
}

/// A name of digits alone is a number: no user gets a role by having such a name.
fn is_name(text: &str) -> bool {
    text.bytes().any(|byte| !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nalice:x:1001:1001::/home/alice:/bin/sh\nbob:x:1002:1002\n\nnonsense\n";
    const GROUP: &str =
        "root:x:0:\nalice:x:1001:\nops:x:2000:bob,carol\nwatch:x:2001:alice,bob\nodd:x:2002:1001\nnonsense:x\n";

    fn role(uid: u32, gid: u32, objects: &[(&[&str], &[&str], Role)]) -> Option<Role> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let objects = objects.iter().enumerate().map(|(number, (users, groups, role))| {
            let object =
                Administrators { users: set(users), groups: set(groups), role: *role, ..Administrators::default() };
            (format!("A{number}"), object)
        });
        OsIdentity::new(uid, gid, PASSWD, GROUP).role(&objects.collect())
    }

    #[test]
    fn users_and_groups_are_known_by_name_and_number() {
        for (users, groups) in
            [(&["alice"][..], &[][..]), (&["1001"], &[]), (&[], &["watch"]), (&[], &["2001"]), (&[], &["alice"])]
        {
            assert_eq!(role(1001, 1001, &[(users, groups, Role::Look)]), Some(Role::Look), "{users:?} {groups:?}");
            assert_eq!(role(1003, 1003, &[(users, groups, Role::Look)]), None, "{users:?} {groups:?}");
        }
        assert_eq!(role(1003, 2000, &[(&[], &["ops"], Role::All)]), Some(Role::All), "the group of the process");
        assert_eq!(
            role(1001, 1001, &[(&[], &["odd"], Role::All)]),
            None,
            "a member called like a number is not that user"
        );
        assert_eq!(
            role(4711, 4711, &[(&["4711"], &[], Role::Operate)]),
            Some(Role::Operate),
            "a user that no file knows"
        );
    }

    #[test]
    fn whoever_is_called_like_a_number_is_not_that_user_or_group() {
        let known = OsIdentity::new(2000, 3000, "1001:x:2000:3000::/:/bin/sh\n", "2001:x:3000:\n");
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        let role = |users: &[&str], groups: &[&str]| {
            let (users, groups) = (users.iter().flat_map(|name| set(name)), groups.iter().flat_map(|name| set(name)));
            let all = Administrators { users: users.collect(), groups: groups.collect(), ..Administrators::default() };
            known.role(&BTreeMap::from([("A".to_owned(), all)])).is_some()
        };
        assert!(role(&["2000"], &[]) && role(&[], &["3000"]));
        assert!(!role(&["1001"], &[]) && !role(&[], &["2001"]));
    }

    #[test]
    fn of_several_roles_the_greatest_counts_and_without_any_there_is_none() {
        let objects: &[(&[&str], &[&str], Role)] =
            &[(&["bob"], &[], Role::Look), (&[], &["ops"], Role::Operate), (&["carol"], &[], Role::All)];
        assert_eq!(role(1002, 1002, objects), Some(Role::Operate));
        assert_eq!(role(1001, 1001, objects), None);
        assert_eq!(role(1001, 1001, &[]), None);
        assert!(Role::EVERY.is_sorted());
    }
}
