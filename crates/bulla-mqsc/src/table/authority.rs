//! The table's attributes of authority: records, and rules for connections.

use super::{ALL, Attribute, DESCR, Key, Kind, WHERE, attribute, shown, words};
use bulla_catalog::authority;

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
    words(&["QUEUE", "QMGR", "CHANNEL", "TOPIC"]),
    "",
    "What the rights are on. QUEUE: every name that can be opened, aliases, remote and model queues included. TOPIC: the names of topic objects, not topic strings. Needed.",
);
static PRINCIPAL: Attribute = attribute(
    Key::Principal,
    "PRINCIPAL",
    Kind::Users { special: true, blank: false },
    "",
    "Users, by the names they sign in with. '*' stands for every signed-in user, '*ANONYMOUS' for all clients that have not signed in.",
);
static GROUP: Attribute = attribute(Key::Group, "GROUP", Kind::Names, "", "Groups that are defined.");
static AUTHADD: Attribute = attribute(
    Key::AuthorityAdd,
    "AUTHADD",
    Kind::Words { choices: authority::WORDS, refused: authority::NOT_OFFERED },
    "",
    "Rights to give. CONNECT and ALTUSR are on the queue manager; INQ, PUT, GET, BROWSE, SETID, DSP and DLT on queues; CTRL on channels; PUB and SUB on topics. ALL, ALLMQI, ALLADM: all that the object has, those to use it, those to administer it. NONE: a record that gives nothing, for names that a more general one would allow.",
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

/// SET AUTHREC.
pub(super) const RECORD: &[&Attribute] = &[&PROFILE, &OBJTYPE, &PRINCIPAL, &GROUP, &AUTHADD, &AUTHRMV];
/// DELETE AUTHREC.
pub(super) const RECORD_KEY: &[&Attribute] = &[&PROFILE, &OBJTYPE, &PRINCIPAL, &GROUP];
/// DISPLAY AUTHREC: what steers it.
pub(super) const RECORD_OPTIONS: &[&Attribute] = &[&PROFILE, &OBJTYPE, &PRINCIPAL, &GROUP, &MATCH, &WHERE, &ALL];
/// DISPLAY AUTHREC: what it shows beside profile and type.
pub(super) const RECORD_SHOWN: &[&Attribute] = &[&ENTITY, &ENTTYPE, &AUTHLIST];

/// Longest CLNTUSER and MCAUSER in characters.
const USER_CHARS_MAX: usize = bulla_catalog::names::USER_NAME_BYTES_MAX;

static RULE_TYPE: Attribute = attribute(
    Key::RuleType,
    "TYPE",
    words(&["ADDRESSMAP", "USERMAP", "SSLPEERMAP", "BLOCKUSER", "BLOCKADDR"]),
    "",
    "How a partner is recognised. ADDRESSMAP: its address. USERMAP: the user who has signed in. SSLPEERMAP: its verified certificate. BLOCKUSER: users who may not use the channel, after the other rules gave the user. BLOCKADDR: addresses whose connections are closed without an answer.",
);
static ADDRESS: Attribute = attribute(
    Key::RuleAddress,
    "ADDRESS",
    Kind::Address,
    "",
    "Where the partner comes from: four parts with '.', or eight with ':', each a number, a range like 5-9, or *; * alone for everywhere. ADDRESSMAP needs it; USERMAP and SSLPEERMAP ask for it too where it is given.",
);
static ADDRLIST: Attribute =
    attribute(Key::AddressList, "ADDRLIST", Kind::Addresses, "", "The addresses of BLOCKADDR, written like ADDRESS.");
static CLNTUSER: Attribute = attribute(
    Key::ClientUser,
    "CLNTUSER",
    Kind::Text { chars_max: USER_CHARS_MAX },
    "",
    "The user who has signed in, by name. USERMAP needs it.",
);
static SSLPEER: Attribute = attribute(
    Key::PeerPattern,
    "SSLPEER",
    Kind::Text { chars_max: super::DN_CHARS_MAX },
    "",
    "A pattern for the subject of the partner's certificate, as in DEFINE CHANNEL. SSLPEERMAP needs it.",
);
static SSLCERTI: Attribute = attribute(
    Key::PeerIssuerPattern,
    "SSLCERTI",
    Kind::Text { chars_max: super::DN_CHARS_MAX },
    "",
    "A pattern for who has signed that certificate.",
);
static USERLIST: Attribute = attribute(
    Key::UserList,
    "USERLIST",
    Kind::Users { special: true, blank: false },
    "",
    "The users of BLOCKUSER. '*' stands for every user, '*ANONYMOUS' for all clients that have not signed in.",
);
static USERSRC: Attribute = attribute(
    Key::UserSource,
    "USERSRC",
    words(&["MAP", "CHANNEL", "NOACCESS"]),
    "MAP",
    "The user that the partner becomes. MAP: MCAUSER. CHANNEL: its own user, and for a channel's messages the channel's own MCAUSER. NOACCESS: none, it is refused.",
);
static RULE_MCAUSER: Attribute =
    attribute(Key::ChannelUser, "MCAUSER", Kind::Text { chars_max: USER_CHARS_MAX }, "", "The user of USERSRC(MAP).");
static WARN: Attribute = attribute(
    Key::Warn,
    "WARN",
    words(&["NO", "YES"]),
    "NO",
    "YES: a partner that the rule would refuse is let in, and the log says so.",
);
static RULE_CHCKCLNT: Attribute = attribute(
    Key::CheckClient,
    "CHCKCLNT",
    words(&["ASQMGR", "REQUIRED"]),
    "ASQMGR",
    "REQUIRED: only who has signed in is let in by this rule. ASQMGR: as the queue manager's CHCKCLNT says.",
);
/// What SET CHLAUTH does with the rule.
pub(super) static RULE_ACTION: Attribute = attribute(
    Key::Action,
    "ACTION",
    words(&["ADD", "REPLACE", "REMOVE", "REMOVEALL"]),
    "ADD",
    "ADD: a new rule, or more entries of a list. REPLACE: written anew. REMOVE: the rule goes, or those entries of a list. REMOVEALL: the whole list.",
);
static RULE_MATCH: Attribute = attribute(
    Key::Match,
    "MATCH",
    words(&["GENERIC", "EXACT", "ALL", "RUNCHECK"]),
    "GENERIC",
    "Which rules. GENERIC: those whose channel name fits the one given. EXACT: of that very name. ALL: those too that the name given fits. RUNCHECK: those that would apply to a partner at ADDRESS, with CLNTUSER, SSLPEER and SSLCERTI where it has them.",
);

/// SET CHLAUTH.
pub(super) const RULE: &[&Attribute] = &[
    &RULE_TYPE,
    &DESCR,
    &ADDRESS,
    &CLNTUSER,
    &SSLPEER,
    &SSLCERTI,
    &ADDRLIST,
    &USERLIST,
    &USERSRC,
    &RULE_MCAUSER,
    &RULE_CHCKCLNT,
    &WARN,
];
/// DISPLAY CHLAUTH: what steers it.
pub(super) const RULE_OPTIONS: &[&Attribute] =
    &[&RULE_TYPE, &RULE_MATCH, &ADDRESS, &CLNTUSER, &SSLPEER, &SSLCERTI, &WHERE, &ALL];
/// DISPLAY CHLAUTH: what it shows beside what a rule is known by.
pub(super) const RULE_SHOWN: &[&Attribute] =
    &[&DESCR, &ADDRLIST, &USERLIST, &USERSRC, &RULE_MCAUSER, &RULE_CHCKCLNT, &WARN];
