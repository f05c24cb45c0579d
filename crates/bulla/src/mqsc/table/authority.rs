//! The table's attributes of authority: records, and groups.

use super::{ALL, Attribute, DESCR, Key, Kind, WHERE, attribute, shown, words};
use crate::authority;

static PROFILE: Attribute = attribute(
    Key::AuthorityProfile,
    "PROFILE",
    Kind::Profile,
    "",
    "The object's name as it is opened, or a pattern: ? for one character, * for any within a qualifier, ** for any qualifiers. OBJTYPE(QMGR) takes none.",
);
static OBJTYPE: Attribute = attribute(
    Key::AuthorityObject,
    "OBJTYPE",
    words(&["QUEUE", "QMGR", "CHANNEL"]),
    "",
    "What the rights are on. QUEUE: every name that can be opened, aliases, remote and model queues included. Needed.",
);
static PRINCIPAL: Attribute = attribute(
    Key::Principal,
    "PRINCIPAL",
    Kind::Users { special: true, blank: false },
    "",
    "Users, by the names they sign in with. '*' stands for every signed-in user, '*ANONYMOUS' for whoever has not signed in.",
);
static GROUP: Attribute = attribute(Key::Group, "GROUP", Kind::Names, "", "Groups that are defined.");
static AUTHADD: Attribute = attribute(
    Key::AuthorityAdd,
    "AUTHADD",
    Kind::Words { choices: authority::WORDS, refused: authority::NOT_OFFERED },
    "",
    "Rights to give. CONNECT and ALTUSR are on the queue manager; INQ, PUT, GET, BROWSE, SETID and DSP on queues; CTRL on channels. ALL, ALLMQI, ALLADM: all that the object has, those to use it, those to administer it. NONE: a record that gives nothing, for names that a more general one would allow.",
);
static AUTHRMV: Attribute = attribute(
    Key::AuthorityRemove,
    "AUTHRMV",
    Kind::Words { choices: authority::WORDS, refused: authority::NOT_OFFERED },
    "",
    "Rights to take away. The record stays, also one without any right: DELETE AUTHREC deletes it.",
);
static MATCH: Attribute = attribute(
    Key::Match,
    "MATCH",
    words(&["PROFILE", "EXACT", "MEMBER"]),
    "PROFILE",
    "Which records. PROFILE: a name in full shows every profile that fits it. EXACT: that very profile. MEMBER: as PROFILE, and of a user those of its groups and of every signed-in user too.",
);
static ENTITY: Attribute = shown(Key::Entity, "ENTITY", "Whose rights: the name of a user or group.");
static ENTTYPE: Attribute = shown(Key::EntityType, "ENTTYPE", "PRINCIPAL or GROUP.");
static AUTHLIST: Attribute = attribute(
    Key::AuthorityList,
    "AUTHLIST",
    Kind::Words { choices: authority::WORDS, refused: &[] },
    "",
    "The rights; NONE for a record without any.",
);
static MEMBERS: Attribute = attribute(
    Key::Members,
    "MEMBERS",
    Kind::Users { special: false, blank: true },
    "' '",
    "Users in the group, by the names they sign in with; blank for nobody.",
);

/// SET AUTHREC.
pub(super) const RECORD: &[&Attribute] = &[&PROFILE, &OBJTYPE, &PRINCIPAL, &GROUP, &AUTHADD, &AUTHRMV];
/// DELETE AUTHREC.
pub(super) const RECORD_KEY: &[&Attribute] = &[&PROFILE, &OBJTYPE, &PRINCIPAL, &GROUP];
/// DISPLAY AUTHREC: what steers it.
pub(super) const RECORD_OPTIONS: &[&Attribute] = &[&PROFILE, &OBJTYPE, &PRINCIPAL, &GROUP, &MATCH, &WHERE, &ALL];
/// DISPLAY AUTHREC: what it shows beside profile and type.
pub(super) const RECORD_SHOWN: &[&Attribute] = &[&ENTITY, &ENTTYPE, &AUTHLIST];
/// Groups.
pub(super) const GROUP_OBJECT: &[&Attribute] = &[&DESCR, &MEMBERS];
