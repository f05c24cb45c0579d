//! Authority in the admin language: SET, DELETE and DISPLAY AUTHREC.

use super::Kept;
use crate::difference::Parts;
use crate::kept::ObjectName;
use crate::objects::{ON_ONE_LINE, command};
use crate::parse::{Statement, Value};
use crate::reply::{Cell, Failure, FailureKind, Row};
use crate::run::{fits, invalid, too_many, unknown, wanted};
use crate::table::Key;
use bulla_catalog::authority::{Entity, Group, ObjectType, Profile, RECORDS_MAX, RecordKey, Rights, SIGNED_IN};
use bulla_catalog::{Change, Definitions};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// MQ's reason code for a group that is not defined.
const UNKNOWN_ENTITY: u32 = 2292;
/// MQ's reason code for a record that is not there.
const NONE_FOUND: u32 = 3200;

/// The attribute that says what is allowed; the others say who, and what for.
const RIGHTS: &str = "AUTHADD";

/// AUTHREC.
pub(crate) struct AuthorityNoun;

pub(crate) static AUTHORITY_RECORD: AuthorityNoun = AuthorityNoun;

impl Kept for AuthorityNoun {
    fn word(&self) -> &'static str {
        "AUTHREC"
    }

    fn place(&self) -> usize {
        13
    }

    fn objects<'a>(&self, definitions: &'a Definitions) -> Box<dyn Iterator<Item = ObjectName> + 'a> {
        Box::new(definitions.authorities.records.iter().map(|(key, _)| ObjectName::Authority(key)))
    }

    fn write(&self, f: &mut dyn Write, definitions: &Definitions, object: &ObjectName) -> Option<fmt::Result> {
        let ObjectName::Authority(record) = object else { return None };
        let rights = definitions.authorities.records.get(record)?;
        Some(command(f, ON_ONE_LINE, "SET", self.word(), None, |key| record_cell(record, rights, key)))
    }

    fn stays(&self, _definitions: &Definitions, _object: &ObjectName) -> bool {
        false
    }

    fn removal(&self, object: &Parts) -> String {
        object.with_those("DELETE", |word| word != RIGHTS)
    }

    /// SET AUTHREC with what comes and what goes.
    fn change(&self, before: &Parts, after: &Parts) -> String {
        let (now, then) = (words(after), words(before));
        let listed = |word: &str, rights: Vec<&str>| match rights.is_empty() {
            true => String::new(),
            false => format!(" {word}({})", rights.join(", ")),
        };
        let added = listed("AUTHADD", now.iter().copied().filter(|right| !then.contains(right)).collect());
        let removed = listed("AUTHRMV", then.iter().copied().filter(|right| !now.contains(right)).collect());
        format!("{}{added}{removed}", after.with_those("SET", |word| word != RIGHTS))
    }
}

/// The words in the parentheses of AUTHADD; NONE is none of them.
fn words(record: &Parts) -> Vec<&str> {
    let mut attributes = record.attributes.iter();
    let list = attributes.find_map(|text| text.strip_prefix(RIGHTS)?.strip_prefix('(')?.strip_suffix(')'));
    list.unwrap_or_default().split(',').map(str::trim).filter(|word| !matches!(*word, "" | "NONE")).collect()
}

pub(crate) fn set(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let keys = keys(statement, definitions)?;
    let object = object(statement)?;
    let (add, remove) =
        (rights(statement, Key::AuthorityAdd, object)?, rights(statement, Key::AuthorityRemove, object)?);
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

pub(crate) fn delete(statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
    let keys = keys(statement, definitions)?;
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

/// The records that a command is about: one for each user and group.
fn keys(statement: &Statement, definitions: &Definitions) -> Result<Vec<RecordKey>, Failure> {
    let object = object(statement)?;
    let profile = match (object, profile(statement)) {
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
    let entities = entities(statement);
    if entities.is_empty() {
        return Err(invalid(format_args!("{} needs PRINCIPAL or GROUP", statement.command), None));
    }
    for entity in &entities {
        if let Entity::Group(name) = entity {
            group(name, definitions)?;
        }
    }
    Ok(entities.into_iter().map(|entity| RecordKey { object, profile: profile.clone(), entity }).collect())
}

fn object(statement: &Statement) -> Result<ObjectType, Failure> {
    match statement.value(Key::AuthorityObject) {
        Some(Value::Word(word)) => ObjectType::of(word).ok_or_else(|| invalid("no such OBJTYPE", None)),
        _ => Err(invalid(format_args!("{} needs OBJTYPE", statement.command), None)),
    }
}

fn profile(statement: &Statement) -> Option<Profile> {
    match statement.value(Key::AuthorityProfile) {
        Some(Value::Text(text)) => Profile::parse(text),
        _ => None,
    }
}

fn entities(statement: &Statement) -> Vec<Entity> {
    let names = |key| match statement.value(key) {
        Some(Value::List(names)) => names.as_slice(),
        _ => &[],
    };
    let principals = names(Key::Principal).iter().map(|name| Entity::principal(name));
    principals.chain(names(Key::Group).iter().cloned().map(Entity::Group)).collect()
}

/// The rights that AUTHADD or AUTHRMV names; none where it is not given.
fn rights(statement: &Statement, key: Key, object: ObjectType) -> Result<Option<Rights>, Failure> {
    let Some(Value::List(words)) = statement.value(key) else { return Ok(None) };
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

/// A record's attributes as SET AUTHREC takes them.
pub(crate) fn record_cell(record: &RecordKey, rights: Rights, key: Key) -> Option<Cell> {
    let RecordKey { object, profile, entity } = record;
    Some(match (key, entity) {
        (Key::AuthorityProfile, _) if *object == ObjectType::QueueManager => return None,
        (Key::AuthorityProfile, _) => Cell::word(profile.as_str()),
        (Key::AuthorityObject, _) => Cell::word(object.word()),
        (Key::Principal, Entity::Principal(name)) | (Key::Group, Entity::Group(name)) => Cell::List(vec![name.clone()]),
        (Key::AuthorityAdd | Key::AuthorityList, _) => {
            Cell::List(rights.words().into_iter().map(str::to_owned).collect())
        }
        (Key::Entity, entity) => Cell::word(entity.name()),
        (Key::EntityType, entity) => Cell::word(entity.word()),
        _ => return None,
    })
}

/// DISPLAY AUTHREC.
///
/// # Errors
/// WHERE compares what can't be compared.
pub(crate) fn display(statement: &Statement, definitions: &Definitions) -> Result<Vec<Row>, Failure> {
    let authorities = &definitions.authorities;
    let is_member = statement.says(Key::Match, "MEMBER");
    let mut entities = entities(statement);
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
    let object = object(statement).ok();
    let profile = profile(statement);
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
    let mut rows = Vec::new();
    for (key, rights) in &found {
        if let Some(filter) = &statement.filter
            && !fits(filter, record_cell(key, *rights, filter.attribute.key))?
        {
            continue;
        }
        let mut row = Row::default();
        row.push("PROFILE", Cell::word(key.profile.as_str()));
        row.push("OBJTYPE", Cell::word(key.object.word()));
        for attribute in wanted(statement, false) {
            if let Some(cell) = record_cell(key, *rights, attribute.key) {
                row.push(attribute.keyword, cell);
            }
        }
        rows.push(row);
    }
    Ok(rows)
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
            ("AUTHADD(ALLMQI) AUTHRMV(NONE)", vec!["INQ", "PUT", "GET", "BROWSE", "SETID"]),
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
