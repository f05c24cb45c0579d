//! AUTHREC: who may do what with which objects.
//!
//! A record is known by the profile, the type of object and the user or group. SET differs from DEFINE: AUTHADD and
//! AUTHRMV say what changes, not what is, and one command sets or deletes the records of several users and groups.

use super::noun::verb;
use super::{Field, Keyed, KeyedNoun, Said, attributes, joined};
use crate::difference::Parts;
use crate::kept::ObjectName;
use crate::objects::ON_ONE_LINE;
use crate::parse::Statement;
use crate::reply::{Cell, Failure, FailureKind, Row};
use crate::run::{invalid, too_many, unknown};
use crate::table::{Act, Attribute, Command, DISPLAY_OPTIONS, Defining, Doing, Key, Kind, NameUse, attribute, words};
use bulla_catalog::authority::{
    Entity, Group, NOT_OFFERED, ObjectType, Profile, RECORDS_MAX, RecordKey, Rights, SIGNED_IN, WORDS,
};
use bulla_catalog::{Change, Definitions};
use std::collections::BTreeMap;

const WORD: &str = "AUTHREC";
const OBJECT: &str = "authority record";

/// MQ's reason code for a group that is not defined.
const UNKNOWN_ENTITY: u32 = 2292;
/// MQ's reason code for a record that is not there.
const NONE_FOUND: u32 = 3200;

const PROFILE: &str = "PROFILE";
const OBJTYPE: &str = "OBJTYPE";
const PRINCIPAL: &str = "PRINCIPAL";
const GROUP: &str = "GROUP";
const AUTHADD: &str = "AUTHADD";
const AUTHRMV: &str = "AUTHRMV";

/// A record as the language has it. A command may name several users and groups; a record that is defined has one.
#[derive(Default)]
pub(crate) struct Record {
    profile: Option<Profile>,
    object: Option<ObjectType>,
    principals: Vec<String>,
    groups: Vec<String>,
    /// AUTHADD's words; of a record that is defined, its rights.
    added: Vec<String>,
    /// AUTHRMV's words.
    removed: Vec<String>,
}

/// What a record is known by.
static KNOWN_BY: &[Field<Record>] = &[
    Field::new(
        PROFILE,
        Kind::Profile,
        "",
        "The object's name as it is opened, or a pattern: ? for one character, * for any within a qualifier, ** for any \
     qualifiers. OBJTYPE(QMGR) takes none.",
        |of| Cell::word(of.profile.as_ref().map(Profile::as_str).unwrap_or_default()),
        |of, value| of.profile = Profile::parse(&value.text()),
    ),
    Field::new(
        OBJTYPE,
        words(&["QUEUE", "QMGR", "CHANNEL", "TOPIC"]),
        "",
        "What the rights are on. QUEUE: every name that can be opened, aliases, remote and model queues included. TOPIC: \
     the names of topic objects, not topic strings. Needed.",
        |of| Cell::word(of.object.map(ObjectType::word).unwrap_or_default()),
        |of, value| of.object = ObjectType::of(value.word()),
    ),
    Field::new(
        PRINCIPAL,
        Kind::Users { special: true, blank: false },
        "",
        "Users, by the names they sign in with. '*' stands for every signed-in user, '*ANONYMOUS' for all clients that \
     have not signed in.",
        |of| Cell::List(of.principals.clone()),
        |of, value| of.principals = value.list().to_vec(),
    ),
    Field::new(
        GROUP,
        Kind::Names,
        "",
        "Groups that are defined.",
        |of| Cell::List(of.groups.clone()),
        |of, value| of.groups = value.list().to_vec(),
    ),
];

/// What SET says beside that.
static SAYS: &[Field<Record>] = &[
    Field::new(
        AUTHADD,
        Kind::Words { choices: WORDS, refused: NOT_OFFERED },
        "",
        "Rights to give. CONNECT and ALTUSR are on the queue manager; INQ, SET, PUT, GET, BROWSE, SETID, DSP and DLT on \
     queues; CTRL on channels; PUB and SUB on topics. ALL, ALLMQI, ALLADM: all that the object has, those to use it, those to \
     administer it. NONE: a record that gives nothing, for names that a more general one would allow.",
        |of| Cell::List(of.added.clone()),
        |of, value| of.added = value.list().to_vec(),
    ),
    Field::new(
        AUTHRMV,
        Kind::Words { choices: WORDS, refused: NOT_OFFERED },
        "",
        "Rights to take away. The record stays, also one without any right: DELETE AUTHREC deletes it.",
        |of| Cell::List(of.removed.clone()),
        |of, value| of.removed = value.list().to_vec(),
    ),
];

/// What DISPLAY shows beside profile and type.
static SHOWN: &[Field<Record>] = &[
    Field::shown("ENTITY", "Whose rights: the name of a user or group.", |of| {
        Cell::word(of.entities().next().as_ref().map(Entity::name).unwrap_or_default())
    }),
    Field::shown("ENTTYPE", "PRINCIPAL or GROUP.", |of| {
        Cell::word(of.entities().next().as_ref().map(Entity::word).unwrap_or_default())
    }),
    Field::new(
        "AUTHLIST",
        Kind::Words { choices: WORDS, refused: &[] },
        "",
        "The rights; NONE for a record without any.",
        |of| Cell::List(of.added.clone()),
        |_, _| {},
    ),
];

static MATCH: Attribute = attribute(
    Key::Match,
    "MATCH",
    words(&["PROFILE", "EXACT", "MEMBER"]),
    "PROFILE",
    "Which records. PROFILE: a name in full shows every profile that fits it. EXACT: that very profile. MEMBER: as \
     PROFILE, and of a user those of its groups and of every signed-in user too.",
);
/// DELETE AUTHREC: which record.
static OF_KEY: &[&Attribute] = attributes!(KNOWN_BY);
/// SET AUTHREC.
static RECORD: &[&Attribute] = joined![OF_KEY, attributes!(SAYS)];
/// DISPLAY AUTHREC: what steers it.
static OPTIONS: &[&Attribute] = joined![OF_KEY, &[&MATCH], DISPLAY_OPTIONS];

pub(crate) static COMMANDS: [Command; 3] = [
    verb(
        ("SET", WORD, OBJECT),
        Act::Defines(Defining::SetAuthority),
        NameUse::None,
        &[],
        RECORD,
        Said {
            summary: "Give users and groups rights on objects, or take rights away from them. Without a record that \
             matches, nothing is allowed. Of the profiles of one user or group that match a name, the most specific \
             one counts.",
            examples: &[
                "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders', 'billing') AUTHADD(CONNECT)",
                "SET AUTHREC PROFILE(ORDERS.**) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT, INQ)",
                "SET AUTHREC PROFILE(ORDERS.SECRET) OBJTYPE(QUEUE) GROUP(CLERKS) AUTHRMV(ALL)",
            ],
        },
    ),
    verb(
        ("DELETE", WORD, OBJECT),
        Act::Defines(Defining::DeleteAuthority),
        NameUse::None,
        OF_KEY,
        &[],
        Said {
            summary: "Delete an authority record: from then on a more general profile counts, where one fits.",
            examples: &["DELETE AUTHREC PROFILE(ORDERS.SECRET) OBJTYPE(QUEUE) GROUP(CLERKS)"],
        },
    ),
    verb(
        ("DISPLAY", WORD, OBJECT),
        Act::Does(Doing::DisplayAuthority),
        NameUse::None,
        OPTIONS,
        attributes!(SHOWN),
        Said {
            summary: "Show authority records: all, or those of a profile, a type of object, a user or a group.",
            examples: &[
                "DISPLAY AUTHREC",
                "DIS AUTHREC PROFILE(ORDERS.EU) OBJTYPE(QUEUE) PRINCIPAL('orders') MATCH(MEMBER)",
                "DIS AUTHREC WHERE(AUTHLIST CT PUT)",
            ],
        },
    ),
];

/// AUTHREC.
pub(crate) static AUTHORITY_RECORD: KeyedNoun<Record> =
    KeyedNoun { word: WORD, place: 14, between: ON_ONE_LINE, known_by: KNOWN_BY, says: SAYS, shown: SHOWN };

impl Keyed for Record {
    fn all(definitions: &Definitions) -> Box<dyn Iterator<Item = ObjectName> + '_> {
        Box::new(definitions.authorities.records.iter().map(|(key, _)| ObjectName::Authority(key)))
    }

    fn find(object: &ObjectName, definitions: &Definitions) -> Option<Self> {
        let ObjectName::Authority(key) = object else { return None };
        Some(Record::new(key.clone(), definitions.authorities.records.get(key)?))
    }

    fn name(&self) -> Option<&str> {
        None
    }

    fn has(&self, key: Key) -> bool {
        key != Key::Own(PROFILE) || self.object != Some(ObjectType::QueueManager)
    }

    /// ENTITY and ENTTYPE stand for PRINCIPAL and GROUP.
    fn is_always_shown(&self, key: Key) -> bool {
        [Key::Own(PROFILE), Key::Own(OBJTYPE)].contains(&key)
    }

    fn removal(object: &Parts, is_known_by: impl Fn(&str) -> bool) -> String {
        object.with_those("DELETE", is_known_by)
    }

    /// SET AUTHREC with what comes and what goes.
    fn change(before: &Parts, after: &Parts, is_known_by: impl Fn(&str) -> bool) -> String {
        let (now, then) = (rights_of(after), rights_of(before));
        let listed = |word: &str, rights: Vec<&str>| match rights.is_empty() {
            true => String::new(),
            false => format!(" {word}({})", rights.join(", ")),
        };
        let added = listed(AUTHADD, now.iter().copied().filter(|right| !then.contains(right)).collect());
        let removed = listed(AUTHRMV, then.iter().copied().filter(|right| !now.contains(right)).collect());
        format!("{}{added}{removed}", after.with_those("SET", is_known_by))
    }
}

impl Record {
    fn new(RecordKey { object, profile, entity }: RecordKey, rights: Rights) -> Self {
        let (principals, groups) = match entity {
            Entity::Principal(name) => (vec![name], Vec::new()),
            Entity::Group(name) => (Vec::new(), vec![name]),
        };
        let added = rights.words().into_iter().map(str::to_owned).collect();
        Self { profile: Some(profile), object: Some(object), principals, groups, added, removed: Vec::new() }
    }

    /// What a command says.
    fn given(statement: &Statement) -> Self {
        let mut given = Self::default();
        AUTHORITY_RECORD.take_over(&mut given, statement);
        given
    }

    fn entities(&self) -> impl Iterator<Item = Entity> {
        let principals = self.principals.iter().map(|name| Entity::principal(name));
        principals.chain(self.groups.iter().cloned().map(Entity::Group))
    }
}

/// The words in the parentheses of AUTHADD; NONE is none of them.
fn rights_of(record: &Parts) -> Vec<&str> {
    let mut attributes = record.attributes.iter();
    let list = attributes.find_map(|text| text.strip_prefix(AUTHADD)?.strip_prefix('(')?.strip_suffix(')'));
    list.unwrap_or_default().split(',').map(str::trim).filter(|word| !matches!(*word, "" | "NONE")).collect()
}

/// What SET AUTHREC comes to.
///
/// # Errors
/// It contradicts what is defined, or itself.
pub(crate) fn set(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let given = Record::given(statement);
    let (object, keys) = keys(statement, &given)?;
    let (add, remove) = (rights(&given.added, object)?, rights(&given.removed, object)?);
    if add.is_none() && remove.is_none() {
        return Err(invalid("SET AUTHREC needs AUTHADD or AUTHRMV", None));
    }
    let (add, remove) = (add.unwrap_or_default(), remove.unwrap_or_default());
    if add.without(remove) != add {
        return Err(invalid("AUTHADD and AUTHRMV name the same right", None));
    }
    let records = &definitions.authorities.records;
    let set: Vec<(RecordKey, Rights)> = keys
        .into_iter()
        .map(|key| {
            let rights = records.get(&key).unwrap_or_default().without(remove).with(add);
            (key, rights)
        })
        .collect();
    let new = set.iter().filter(|(key, _)| records.get(key).is_none()).count();
    if records.len() + new > RECORDS_MAX {
        return Err(too_many(RECORDS_MAX, "authority records"));
    }
    Ok(Change::SetAuthority(set))
}

/// What DELETE AUTHREC comes to.
///
/// # Errors
/// There is no such record.
pub(crate) fn delete(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let (_, keys) = keys(statement, &Record::given(statement))?;
    match keys.iter().find(|key| definitions.authorities.records.get(key).is_none()) {
        None => Ok(Change::DeleteAuthority(keys)),
        Some(missing) => Err(Failure {
            kind: FailureKind::Refused,
            reason: Some(NONE_FOUND),
            message: format!("there is no authority record of {missing}"),
            hint: Some("DISPLAY AUTHREC shows those that there are".into()),
        }),
    }
}

/// The records that a command is about: one for each user and group; and the type of object.
fn keys(statement: &Statement, given: &Record) -> Result<(ObjectType, Vec<RecordKey>), Failure> {
    let object = given.object.ok_or_else(|| invalid(format_args!("{} needs OBJTYPE", statement.command), None))?;
    let profile = match (object, given.profile.clone()) {
        (ObjectType::QueueManager, None) => Profile::of_queue_manager(),
        (ObjectType::QueueManager, Some(_)) => {
            return Err(invalid("OBJTYPE(QMGR) takes no PROFILE: there is one queue manager", None));
        }
        (_, Some(profile)) => profile,
        (_, None) => {
            let hint = "write PROFILE(NAME), or PROFILE(**) for every name";
            return Err(invalid(format_args!("OBJTYPE({object}) needs PROFILE"), Some(hint)));
        }
    };
    if given.entities().next().is_none() {
        return Err(invalid(format_args!("{} needs PRINCIPAL or GROUP", statement.command), None));
    }
    let keys = given.entities().map(|entity| RecordKey { object, profile: profile.clone(), entity });
    Ok((object, keys.collect()))
}

/// Refuses of a command what is read where it is kept: a shared queue's records come from a member that knows other
/// groups of users.
///
/// # Errors
/// A group does not exist.
pub(crate) fn check_command(change: &Change, definitions: &Definitions) -> Result<(), Failure> {
    let keys: Vec<&RecordKey> = match change {
        Change::SetAuthority(records) => records.iter().map(|(key, _)| key).collect(),
        Change::DeleteAuthority(keys) => keys.iter().collect(),
        _ => return Ok(()),
    };
    keys.into_iter().try_for_each(|key| match &key.entity {
        Entity::Group(name) => self::group(name, definitions).map(drop),
        Entity::Principal(_) => Ok(()),
    })
}

/// The rights that words of AUTHADD or AUTHRMV name; none where it is not given.
fn rights(words: &[String], object: ObjectType) -> Result<Option<Rights>, Failure> {
    if words.is_empty() {
        return Ok(None);
    }
    words
        .iter()
        .try_fold(Rights::NONE, |all, word| {
            let meant = Rights::meant_by(word, object);
            let hint = || format!("there are {}", object.rights().words().join(", "));
            meant
                .map(|meant| all.with(meant))
                .ok_or_else(|| invalid(format_args!("OBJTYPE({object}) has no right {word}"), Some(&hint())))
        })
        .map(Some)
}

fn group<'a>(name: &str, definitions: &'a Definitions) -> Result<&'a Group, Failure> {
    let found = definitions.authorities.groups.get(name);
    found.ok_or_else(|| Failure { reason: Some(UNKNOWN_ENTITY), ..unknown("group", name) })
}

/// What came of a change, for messages; none for changes of others.
pub(crate) fn done(change: &Change) -> Option<String> {
    Some(match change {
        Change::SetAuthority(records) => {
            let set =
                records.iter().map(|(key, rights)| format!("authority of {key} set: {}", rights.words().join(" ")));
            listed(set)
        }
        Change::DeleteAuthority(keys) => listed(keys.iter().map(|key| format!("authority record of {key} deleted"))),
        _ => return None,
    })
}

/// Each, and of many how many there are beside the first ones.
fn listed(mut each: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN_MAX: usize = 8;
    let shown: Vec<String> = each.by_ref().take(SHOWN_MAX).collect();
    let more = each.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", shown.join("; "))
}

/// What is allowed and may not be what was meant.
pub(crate) fn forewarnings(change: &Change) -> Vec<String> {
    match change {
        Change::SetAuthority(records) => {
            let star = records.iter().any(|(key, _)| key.profile.as_str() == "*");
            star.then(|| "PROFILE(*) fits names without a full stop; ** fits every name".to_owned())
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// DISPLAY AUTHREC.
///
/// # Errors
/// WHERE compares what can't be compared.
pub(crate) fn display(statement: &Statement, definitions: &Definitions) -> Result<Vec<Row>, Failure> {
    let authorities = &definitions.authorities;
    let is_member = statement.says(Key::Match, "MEMBER");
    let given = Record::given(statement);
    let mut entities: Vec<Entity> = given.entities().collect();
    if is_member {
        let of: Vec<Entity> = entities
            .iter()
            .filter_map(|entity| match entity {
                Entity::Principal(name) => {
                    Some(authorities.groups.of(name).map(|group| Entity::Group(group.to_owned())))
                }
                Entity::Group(_) => None,
            })
            .flatten()
            .collect();
        let users = entities.iter().any(|entity| bulla_catalog::names::is_user_name(entity.name()));
        entities.extend(of);
        entities.extend(users.then(|| Entity::principal(SIGNED_IN)));
    }
    let Record { object, profile, .. } = given;
    let exact = statement.says(Key::Match, "EXACT");
    let is_wanted = |key: &RecordKey| {
        object.is_none_or(|object| key.object == object)
            && (entities.is_empty() || entities.contains(&key.entity))
            && profile.as_ref().is_none_or(|wanted| match exact || wanted.is_generic() {
                true => key.profile == *wanted,
                false => key.object != ObjectType::QueueManager && key.profile.fits(wanted.as_str()),
            })
    };
    let found: BTreeMap<RecordKey, Rights> = authorities.records.iter().filter(|(key, _)| is_wanted(key)).collect();
    AUTHORITY_RECORD.rows(statement, found.into_iter().map(|(key, rights)| Record::new(key, rights)))
}

#[cfg(test)]
mod tests {
    use crate::execute;
    use crate::reply::Reply;
    use crate::run::Administered;
    use crate::transcripts::Paper;
    use bulla_catalog::authority::{AS_BEFORE, Authorities, ObjectType, Right, Rights};

    fn answers(commands: &str, paper: &mut Paper) -> Vec<String> {
        execute(commands, paper).iter().map(Reply::text).collect()
    }

    fn rights(paper: &Paper, user: &str, name: &str) -> Rights {
        paper.definitions().authorities.rights(Some(user), ObjectType::Queue, name)
    }

    #[test]
    fn rights_are_added_and_taken_away_one_by_one() {
        let mut paper = Paper::new();
        let set = "SET AUTHREC PROFILE(A.**) OBJTYPE(QUEUE) PRINCIPAL('u', 'v')";
        for (change, words) in [
            ("AUTHADD(PUT, GET)", vec!["PUT", "GET"]),
            ("AUTHADD(BROWSE) AUTHRMV(PUT)", vec!["GET", "BROWSE"]),
            ("AUTHRMV(ALL)", vec!["NONE"]),
            ("AUTHADD(ALLMQI) AUTHRMV(NONE)", vec!["INQ", "SET", "PUT", "GET", "BROWSE", "SETID"]),
        ] {
            answers(&format!("{set} {change}"), &mut paper);
            for user in ["u", "v"] {
                assert_eq!(rights(&paper, user, "A.B").words(), words, "{change}");
            }
        }
        answers("DELETE AUTHREC PROFILE(A.**) OBJTYPE(QUEUE) PRINCIPAL('u')", &mut paper);
        assert_eq!(rights(&paper, "u", "A.B"), Rights::NONE);
        assert_eq!(paper.definitions().authorities.records.len(), 1);
    }

    #[test]
    fn a_group_that_is_deleted_leaves_no_record_to_a_later_one_of_its_name() {
        let mut paper = Paper::new();
        answers("DEF GROUP(G) MEMBERS('u'); SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) GROUP(G) AUTHADD(PUT)", &mut paper);
        assert_eq!(rights(&paper, "u", "A").words(), ["PUT"]);
        answers("DELETE GROUP(G); DEF GROUP(G) MEMBERS('u')", &mut paper);
        assert_eq!(rights(&paper, "u", "A"), Rights::NONE);
    }

    #[test]
    fn what_was_allowed_before_is_three_commands() {
        let mut paper = Paper::new();
        let replies = execute(&AS_BEFORE.join("; "), &mut paper);
        assert!(replies.iter().all(|reply| reply.exit_code() == 0));
        let authorities = &paper.definitions().authorities;
        assert_eq!(*authorities, Authorities::open_to_all());
        for user in [None, Some("orders")] {
            assert_eq!(authorities.rights(user, ObjectType::Queue, "A.B"), ObjectType::Queue.rights());
            assert!(authorities.rights(user, ObjectType::QueueManager, "").has(Right::Connect));
        }
        assert!(authorities.rights(Some("QM1"), ObjectType::Channel, "A.B").has(Right::Control));
    }
}
