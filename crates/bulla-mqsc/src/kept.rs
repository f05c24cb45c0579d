//! Definitions as the journal keeps them: one command an object, under a name that says which object it is.

use super::objects::{self, AsText, LoadError};
use crate::nouns::authority::AUTHORITY_RECORD;
use crate::nouns::channel_rule::CHANNEL_RULE;
use crate::nouns::queue_manager::QUEUE_MANAGER;
use crate::nouns::{self, Kept};
use bulla_catalog::authority::{Entity, ObjectType, RecordKey, RuleKey};
use bulla_catalog::{Change, Definitions, LocalQueue, Sort};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write};
use std::path::Path;

/// The name of the record with the first line of the file: the format, and the queue manager's name.
const HEADER_RECORD: &str = "FORMAT";

/// One defined object.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum ObjectName {
    Object(Sort, String),
    Manager,
    Authority(RecordKey),
    Rule(RuleKey),
}

/// The queue that a definition is about, by the name of its record: one that defines a queue, its policy, or who may do
/// what with it. What stands there may also be a pattern, or the name of something else than a queue.
#[must_use]
pub fn queue_of(record: &str) -> Option<&str> {
    let (word, rest) = record.split_once(' ')?;
    match word {
        _ if word == nouns::noun(Sort::Local).word() || word == nouns::noun(Sort::Policy).word() => Some(rest),
        _ if word == AUTHORITY_RECORD.word() => {
            let profile = rest.strip_prefix(ObjectType::Queue.word())?.trim_start().strip_prefix('"')?;
            profile.split_once('"').map(|(profile, _)| profile)
        }
        _ => None,
    }
}

/// The queue that a record gives rights on, by its name alone, and whom. None for any other record.
pub fn record_of(record: &str) -> Option<(&str, Entity)> {
    let queue = queue_of(record).filter(|_| record.starts_with(AUTHORITY_RECORD.word()))?;
    let (_, entity) = record.rsplit_once('"')?;
    let (word, name) = entity.trim_start().split_once(' ')?;
    [Entity::principal(name), Entity::Group(name.to_owned())]
        .into_iter()
        .find(|entity| entity.word() == word)
        .map(|entity| (queue, entity))
}

/// The place of a noun in the file; none for what this program does not know.
fn place(noun: &str) -> Option<usize> {
    nouns::kept().find(|known| known.word() == noun).map(|known| known.place())
}

/// The name in the journal: `QLOCAL ORDERS`. No two objects have the same.
impl Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.noun().word())?;
        match self {
            ObjectName::Manager => Ok(()),
            ObjectName::Object(_, name) => write!(f, " {name}"),
            ObjectName::Authority(RecordKey { object, profile, entity }) => {
                write!(f, " {} {:?} {} {}", object.word(), profile.as_str(), entity.word(), entity.name())
            }
            ObjectName::Rule(RuleKey { profile, kind, address, user, peer, issuer }) => {
                write!(f, " {profile:?} {} {address:?} {user:?} {peer:?} {issuer:?}", kind.word())
            }
        }
    }
}

impl ObjectName {
    /// The noun whose object it is.
    pub(super) fn noun(&self) -> &'static dyn Kept {
        match self {
            ObjectName::Object(sort, _) => nouns::noun(*sort),
            ObjectName::Manager => &QUEUE_MANAGER,
            ObjectName::Authority(_) => &AUTHORITY_RECORD,
            ObjectName::Rule(_) => &CHANNEL_RULE,
        }
    }

    /// The name, if it is an object of the sort.
    pub(super) fn of(&self, sort: Sort) -> Option<&String> {
        match self {
            ObjectName::Object(of, name) if *of == sort => Some(name),
            _ => None,
        }
    }

    /// Writes the command that defines the object; none where it is not defined.
    pub(super) fn write(&self, f: &mut dyn Write, definitions: &Definitions) -> Option<fmt::Result> {
        self.noun().write(f, definitions, self)
    }
}

/// Every object that is defined, in the order of the file.
pub(super) fn all(definitions: &Definitions) -> impl Iterator<Item = ObjectName> + '_ {
    let mut nouns: Vec<_> = nouns::kept().collect();
    nouns.sort_by_key(|noun| noun.place());
    nouns.into_iter().flat_map(|noun| noun.objects(definitions))
}

/// The command that defines an object, with its line end; none where it is not defined.
fn text(definitions: &Definitions, object: &ObjectName) -> Option<String> {
    let mut text = String::new();
    // Into a string: cannot fail.
    let _ = object.write(&mut text, definitions)?;
    Some(text)
}

/// What the journal keeps for all definitions: names and commands, in the order of the file, each made when it is
/// asked for.
pub fn records(definitions: &Definitions) -> impl Iterator<Item = (String, String)> + '_ {
    let objects = all(definitions).filter_map(|object| Some((object.to_string(), text(definitions, &object)?)));
    let header = (HEADER_RECORD.to_owned(), objects::header(definitions));
    std::iter::once(header).chain(objects)
}

/// Records of definitions that are not what `kept` has: names and texts. Of `kept` it leaves what nothing is defined
/// for.
///
/// Most queues differ from the one before in their names alone, and so do their records: then the text is not made.
pub fn differing(definitions: &Definitions, kept: &mut BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut differs = vec![(HEADER_RECORD.to_owned(), objects::header(definitions))];
    differs.retain(|(name, text)| kept.remove(name).as_ref() != Some(text));
    let mut before: Option<(&LocalQueue, String)> = None;
    for object in all(definitions) {
        let record = object.to_string();
        let queue = match &object {
            ObjectName::Object(Sort::Local, name) => definitions.queues.get_key_value(name),
            _ => None,
        };
        if let (Some((name, queue)), Some((queue_before, text_before))) = (queue, &before)
            && queue == *queue_before
            && kept.get(&record).is_some_and(|text| objects::are_alike(text_before, text, name))
        {
            kept.remove(&record);
            continue;
        }
        let Some(text) = text(definitions, &object) else { continue };
        before = queue.map(|(_, queue)| (queue, text.clone()));
        if kept.remove(&record).as_ref() != Some(&text) {
            differs.push((record, text));
        }
    }
    differs
}

/// What changes make of the objects that they touch: names and commands, none for an object that goes.
#[must_use]
pub fn changed(definitions: &Definitions, changes: &[Change]) -> Vec<(String, Option<String>)> {
    let mut after = Definitions::empty(&definitions.queue_manager.name);
    let mut objects = BTreeSet::new();
    for change in changes {
        touch(definitions, change, &mut objects);
        touch(&after, change, &mut objects);
        after.apply(change);
        if let Change::Delete { name, sort, .. } = change
            && let Some(queue) = definitions.queue_of(*sort, name)
        {
            after.queues.remove(queue);
        }
    }
    let mut objects: Vec<ObjectName> = objects.into_iter().collect();
    objects.sort_by_key(|object| object.noun().place());
    objects.iter().map(|object| (object.to_string(), text(&after, object))).collect()
}

/// Adds the objects that a change defines, alters or deletes.
fn touch(definitions: &Definitions, change: &Change, objects: &mut BTreeSet<ObjectName>) {
    let object = match change {
        Change::ClearLocal { .. } => return,
        Change::Define { name, object } | Change::Alter { name, object } => {
            ObjectName::Object(object.sort(), name.clone())
        }
        Change::Delete { name, sort, .. } => {
            let queue = definitions.queue_of(*sort, name);
            objects.extend(queue.map(|queue| ObjectName::Object(Sort::Local, queue.to_owned())));
            if *sort == Sort::Group {
                let entity = Entity::Group(name.clone());
                let records = definitions.authorities.records.iter().map(|(key, _)| key);
                objects.extend(records.filter(|key| key.entity == entity).map(ObjectName::Authority));
            }
            ObjectName::Object(*sort, name.clone())
        }
        Change::AlterManager(_) => ObjectName::Manager,
        Change::SetAuthority(records) => {
            return objects.extend(records.iter().map(|(key, _)| ObjectName::Authority(key.clone())));
        }
        Change::DeleteAuthority(keys) => return objects.extend(keys.iter().cloned().map(ObjectName::Authority)),
        Change::SetChannelRule(key, _) | Change::DeleteChannelRule(key) => ObjectName::Rule(key.clone()),
    };
    objects.insert(object);
}

/// The names of the records in which two sets of definitions differ.
#[must_use]
pub fn not_alike(before: &Definitions, after: &Definitions) -> Vec<String> {
    let [before, after]: [BTreeMap<String, String>; 2] = [before, after].map(|of| records(of).collect());
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

/// What deletes the objects that `goes` names, by the names of their records.
#[must_use]
pub fn removals(definitions: &Definitions, goes: impl Fn(&str) -> bool) -> Vec<Change> {
    let going = all(definitions).filter(|object| goes(&object.to_string()));
    let removal = |object: ObjectName| match object {
        ObjectName::Object(sort, name) => Some(Change::delete(name, sort)),
        ObjectName::Authority(key) => Some(Change::DeleteAuthority(vec![key])),
        ObjectName::Rule(key) => Some(Change::DeleteChannelRule(key)),
        ObjectName::Manager => None,
    };
    going.filter_map(removal).collect()
}

/// What the journal keeps, read back; `path` is for messages.
///
/// # Errors
/// What is wrong, with the line of the text that the records make.
pub fn from_records(records: &BTreeMap<String, String>, path: &Path) -> Result<Definitions, LoadError> {
    let texts = in_order(records);
    let read = texts.split_first().and_then(|(header, commands)| objects::from_pieces(header, commands, path));
    match read {
        Some(definitions) => Ok(definitions),
        // What is wrong is said with its line.
        None => Definitions::from_text(&texts.concat(), path),
    }
}

/// Whether records are of a queue manager, and not only of some of its objects.
#[must_use]
pub fn are_whole(records: &BTreeMap<String, String>) -> bool {
    records.contains_key(HEADER_RECORD)
}

/// What `base` and records of further objects define together.
///
/// # Errors
/// A record is not what this program writes.
pub fn add(base: Definitions, records: &BTreeMap<String, String>, path: &Path) -> Result<Definitions, LoadError> {
    Definitions::from_commands(&in_order(records).concat(), path, base)
}

/// The texts of records, in the order of the file.
fn in_order(records: &BTreeMap<String, String>) -> Vec<&str> {
    let mut records: Vec<(usize, &str)> = records
        .iter()
        .map(|(name, text)| {
            let noun = name.split(' ').next().unwrap_or_default();
            // The header has no place among the nouns, and comes first; what this program does not know comes last.
            let place = if noun == HEADER_RECORD { 0 } else { place(noun).map_or(usize::MAX, |place| place + 1) };
            (place, text.as_str())
        })
        .collect();
    // The sort is stable: within a noun the order is that of the names.
    records.sort_by_key(|(place, _)| *place);
    records.into_iter().map(|(_, text)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, run};

    /// A command for each noun, and for each way in which an object changes.
    const SCRIPT: &str =
        "DEFINE QLOCAL(A) MAXDEPTH(3); DEFINE QALIAS(B) TARGET(A); DEFINE QREMOTE(C) RNAME(X) RQMNAME(QM2)
        DEFINE QMODEL(M); DEFINE PROCESS(P) APPLICID('run'); DEFINE TOPIC(T) TOPICSTR('t'); ALTER QMGR DESCR('it''s')
        DEFINE SUB(S.P) TOPICSTR('t') DEST(A); DEFINE DEVICE(SPARE) TYPE(MODELLED) PROFILE(ACCELERATOR)
        DEFINE CHANNEL(TO.QM2) CHLTYPE(SDR) CONNAME('h(1)') XMITQ(A); DEFINE GROUP(G) MEMBERS('a', 'b')
        DEFINE ADMIN(OPS) OSUSER('ops') ROLE(OPERATE); SET AUTHREC PROFILE(A.**) OBJTYPE(QUEUE) GROUP('G') AUTHADD(PUT)
        SET AUTHREC PROFILE(A.**) OBJTYPE(QUEUE) PRINCIPAL('G') AUTHADD(GET); SET ADDRMAP('x') QUEUE('A')
        SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('10.0.0.1'); SET LIMIT(U) MAXCONNS(3); ALTER QLOCAL(A) MAXDEPTH(4)
        DEFINE QLOCAL(GONE); DELETE QLOCAL(GONE); DELETE GROUP(G); DELETE SUB(S.P); DELETE LIMIT(U); DELETE QALIAS(B)";

    #[test]
    fn records_follow_every_change_and_read_back_as_what_is_defined() {
        let mut definitions = Definitions::initial("QM1");
        let mut kept: BTreeMap<String, String> = records(&definitions).collect();
        let mut done = 0;
        for statement in parse::each(SCRIPT) {
            let statement = statement.unwrap_or_else(|error| panic!("{error}"));
            let change = run::plan(&statement, &definitions).unwrap_or_else(|error| panic!("{}", error.message));
            for (name, text) in changed(&definitions, std::slice::from_ref(&change)) {
                match text {
                    Some(text) => kept.insert(name, text),
                    None => kept.remove(&name),
                };
            }
            definitions.apply(&change);
            assert_eq!(kept, records(&definitions).collect(), "{statement}");
            let read = from_records(&kept, Path::new("journal")).unwrap();
            assert_eq!(read, definitions, "{statement}");
            done += 1;
        }
        assert!(done > 20, "{done} commands");
    }

    #[test]
    fn records_that_are_alike_but_for_the_name_are_read_as_each_would_be_by_itself() {
        let mut definitions = Definitions::initial("QM1");
        let script: String = (0..40)
            .map(|number| {
                let depth = [7, 7, 7, 8][number % 4];
                format!(
                    "DEFINE QLOCAL(A{number}) MAXDEPTH({depth}) DESCR('it''s (''A'')')\nDEFINE PROCESS(P{number})\n"
                )
            })
            .collect();
        for statement in parse::each(&script) {
            let change =
                run::plan(&statement.unwrap(), &definitions).unwrap_or_else(|error| panic!("{}", error.message));
            definitions.apply(&change);
        }
        let mut kept: BTreeMap<String, String> = records(&definitions).collect();
        assert_eq!(from_records(&kept, Path::new("journal")).unwrap(), definitions);
        let mut left = kept.clone();
        left.insert("QLOCAL GONE".into(), "DEFINE QLOCAL('GONE')\n".into());
        assert_eq!(differing(&definitions, &mut left), []);
        assert_eq!(left.into_keys().collect::<Vec<_>>(), ["QLOCAL GONE"]);
        for record in ["FORMAT", "QLOCAL A1", "QLOCAL A2", "QLOCAL A3", "PROCESS P1"] {
            let places: [fn(&str) -> usize; 3] = [|_| 0, |text| text.len() / 2, str::len];
            for place in places {
                let mut left = kept.clone();
                let text = left.get_mut(record).unwrap();
                let right = text.clone();
                text.insert(place(&right), ' ');
                assert_eq!(differing(&definitions, &mut left), [(record.to_owned(), right)]);
            }
            let mut left = kept.clone();
            let gone = left.remove(record).unwrap();
            assert_eq!(differing(&definitions, &mut left), [(record.to_owned(), gone)]);
        }
        // A queue that is not what its record says, which is like the one before.
        definitions.queues.get_mut("A1").unwrap().max_depth = 9;
        let found = differing(&definitions, &mut kept.clone());
        assert!(found.len() == 1 && found[0].1.contains("MAXDEPTH(9)"), "{found:?}");
        definitions.queues.get_mut("A1").unwrap().max_depth = 7;
        // What is wrong is refused, also where all but the name is alike.
        for (record, name) in [("QLOCAL A1", "A1"), ("PROCESS P1", "P1")] {
            let right = kept[record].clone();
            for other in ["A-1", "", "lower case", &"A".repeat(49), "A''", "A0", "P0", "ANOTHER"] {
                let changed = right.replacen(&format!("('{name}')"), &format!("('{other}')"), 1);
                kept.insert(record.to_owned(), changed);
                let text: String = records(&definitions).map(|(known, _)| kept[&known].clone()).collect();
                let path = Path::new("journal");
                assert_eq!(from_records(&kept, path).ok(), Definitions::from_text(&text, path).ok(), "{other:?}");
            }
            kept.insert(record.to_owned(), right);
        }
    }

    #[test]
    fn a_unit_makes_of_each_object_what_its_last_command_says() {
        let mut definitions = Definitions::initial("QM1");
        let mut changes = Vec::new();
        let base = definitions.clone();
        for statement in
            parse::each("DEFINE QLOCAL(A); ALTER QLOCAL(A) MAXDEPTH(7); DEFINE QLOCAL(B); DELETE QLOCAL(B)")
        {
            let change =
                run::plan(&statement.unwrap(), &definitions).unwrap_or_else(|error| panic!("{}", error.message));
            definitions.apply(&change);
            changes.push(change);
        }
        let made = changed(&base, &changes);
        assert_eq!(made.len(), 2);
        assert!(made[0].0 == "QLOCAL A" && made[0].1.as_ref().unwrap().contains("MAXDEPTH(7)"), "{made:?}");
        assert_eq!(made[1], ("QLOCAL B".to_owned(), None));
    }
}
