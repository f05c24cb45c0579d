//! Who may do what: authority records, groups, and the rules for connections.
//!
//! An authority record gives a user or a group rights on the objects that a profile names. Of the profiles of one user
//! or group that fit a name, the most particular one counts; what a user may do is what it, its groups and *every
//! signed-in user* have together. Where no record fits there is no right: nothing is allowed by default.
//!
//! Everything here is definitions and answers: no sockets, no clock. Where it is asked is in `rights.rs`,
//! `dispatcher/authority.rs` and, for what channels bring, in `dispatcher/receiving/delivery.rs`. The page is
//! `docs/operating/authority.md`.

mod address;
mod administrator;
mod channel_rule;
mod group;
mod profile;
mod record;
mod right;

pub use address::{ADDRESS_BYTES_MAX, AddressError, AddressPattern};
pub use administrator::{
    ADMINISTRATOR_NAMES_MAX, ADMINISTRATORS_MAX, Administrators, AllAdministrators, OsIdentity, Role, role_of_user,
};
pub use channel_rule::fits as channel_profile_fits;
pub use channel_rule::{
    CHANNEL_PROFILE_CHARS_MAX, CHANNEL_RULES_MAX, CLIENT_CHANNEL, Caller, ChannelRules, Rule, RuleKey, RuleKind,
    UserSource, is_channel_profile,
};
pub use group::{GROUPS_MAX, Group, Groups, MEMBERS_MAX};
pub use profile::{PROFILE_CHARS_MAX, Profile, is_profile};
pub use record::{ANONYMOUS, Entity, RECORDS_MAX, RecordKey, Records, SIGNED_IN};
pub use right::{ALL, ALL_ADMINISTRATION, ALL_MQI, NONE, NOT_OFFERED, ObjectType, Right, Rights, WORDS};

/// The commands by which all users may do everything, as it was before there was authority; each is one command.
pub const AS_BEFORE: [&str; 3] = [
    "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)",
    "SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(ALL)",
    "SET AUTHREC PROFILE(**) OBJTYPE(CHANNEL) PRINCIPAL('*') AUTHADD(ALL)",
];

/// The commands by which one user may connect, and put on and get from one queue: what a new queue manager says at its
/// start.
pub const FOR_ONE_USER: [&str; 2] = [
    "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('user') AUTHADD(CONNECT)",
    "SET AUTHREC PROFILE(QUEUE) OBJTYPE(QUEUE) PRINCIPAL('user') AUTHADD(PUT, GET)",
];

/// Everything that says who may do what.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Authorities {
    /// Who has which rights.
    pub records: Records,
    /// Who is in which group.
    pub groups: Groups,
    /// Who may administer beside the process's owner.
    pub administrators: AllAdministrators,
}

impl Authorities {
    /// What [`AS_BEFORE`] comes to, for programs that have a queue manager inside them.
    #[must_use]
    pub fn open_to_all() -> Self {
        let mut authorities = Self::default();
        let mut allow = |object: ObjectType, users: &[&str], rights: Rights| {
            let profile = Profile::parse("**").filter(|_| object != ObjectType::QueueManager);
            for user in users {
                let profile = profile.clone().unwrap_or_else(Profile::of_queue_manager);
                authorities.records.set(RecordKey { object, profile, entity: Entity::principal(user) }, rights);
            }
        };
        allow(ObjectType::QueueManager, &[SIGNED_IN, ANONYMOUS], Right::Connect.alone());
        allow(ObjectType::Queue, &[SIGNED_IN, ANONYMOUS], ObjectType::Queue.rights());
        allow(ObjectType::Channel, &[SIGNED_IN], ObjectType::Channel.rights());
        authorities
    }

    /// What a user may do with an object; `user` is none for a client that has not signed in. One look at the records
    /// of the user, of each of its groups, and of every signed-in user: some microseconds, once for each link.
    #[must_use]
    pub fn rights(&self, user: Option<&str>, object: ObjectType, name: &str) -> Rights {
        let rights = self.entities(user).map(|entity| self.records.rights(&entity, object, name));
        rights.fold(Rights::NONE, Rights::with)
    }

    /// Whose records count for a user: `user` is none for a client that has not signed in.
    pub fn entities(&self, user: Option<&str>) -> impl Iterator<Item = Entity> {
        let groups = user.map(|user| self.groups.of(user).map(|group| Entity::Group(group.to_owned())));
        let own = match user {
            None => [Some(Entity::principal(ANONYMOUS)), None],
            Some(user) => [Some(Entity::principal(user)), Some(Entity::principal(SIGNED_IN))],
        };
        groups.into_iter().flatten().chain(own.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorities(records: &[(&str, &str, Rights)]) -> Authorities {
        let mut authorities = Authorities::default();
        for (entity, profile, rights) in records {
            let entity = match entity.strip_prefix("group ") {
                Some(group) => Entity::Group(group.to_owned()),
                None => Entity::principal(entity),
            };
            let profile = Profile::parse(profile).unwrap();
            authorities.records.set(RecordKey { entity, object: ObjectType::Queue, profile }, *rights);
        }
        authorities
    }

    #[test]
    fn nobody_may_do_anything_by_default() {
        let nothing = Authorities::default();
        for user in [None, Some("orders"), Some("*"), Some("*ANONYMOUS")] {
            for object in [ObjectType::QueueManager, ObjectType::Queue, ObjectType::Channel] {
                assert_eq!(nothing.rights(user, object, "X"), Rights::NONE);
            }
        }
    }

    #[test]
    fn a_user_has_its_own_rights_and_those_of_its_groups_together() {
        let put = Rights::of(&[Right::Put]);
        let get = Rights::of(&[Right::Get]);
        let browse = Rights::of(&[Right::Browse]);
        let mut authorities =
            authorities(&[("orders", "A.**", put), ("group CLERKS", "A.*", get), ("*", "**", browse)]);
        authorities.groups.insert("CLERKS".into(), Group { members: ["orders".to_owned()].into(), ..Group::default() });
        let of = |user| authorities.rights(user, ObjectType::Queue, "A.B");
        assert_eq!(of(Some("orders")), put.with(get).with(browse));
        assert_eq!(of(Some("billing")), browse, "every signed-in user");
        assert_eq!(of(None), Rights::NONE, "who has not signed in is no signed-in user");
        assert_eq!(authorities.rights(Some("orders"), ObjectType::Channel, "A.B"), Rights::NONE);
    }

    #[test]
    fn a_more_particular_profile_takes_a_right_away_from_the_same_entity_only() {
        let put = Rights::of(&[Right::Put]);
        let records =
            [("orders", "**", put), ("orders", "SECRET.*", Rights::NONE), ("*", "**", Rights::of(&[Right::Get]))];
        let authorities = authorities(&records);
        assert_eq!(authorities.rights(Some("orders"), ObjectType::Queue, "OPEN"), put.with(Rights::of(&[Right::Get])));
        assert_eq!(authorities.rights(Some("orders"), ObjectType::Queue, "SECRET.X"), Rights::of(&[Right::Get]));
    }
}
