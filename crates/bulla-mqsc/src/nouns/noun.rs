//! What the verbs do with any noun of the list.

use super::Field;
use crate::difference::Parts;
use crate::kept::ObjectName;
use crate::objects::{ON_ONE_LINE, WRAPPED, command};
use crate::parse::{Pattern, Setting, Statement, Value};
use crate::reply::{Cell, Failure, FailureKind, Row};
use crate::rows::{Candidate, rows, wanted};
use crate::run::{Administered, EXISTS, free_or_replaced, too_many, unknown};
use crate::table::{self, Act, Attribute, Command, Defining, Doing, Key, NameUse};
use bulla_catalog::system_queues::SYSTEM_PREFIX;
use bulla_catalog::{Change, Definitions, Named, OBJECTS_MAX, Object, Sort};
use std::fmt::{self, Write};

/// A noun whose objects are kept: each is one command in the file and one record, and is compared with another.
pub(crate) trait Kept: Sync {
    /// How it is written.
    fn word(&self) -> &'static str;

    /// Its place among the nouns in `objects.mqsc`: what is named by others comes first.
    fn place(&self) -> usize;

    /// Its objects that are kept, in their order.
    fn objects<'a>(&self, definitions: &'a Definitions) -> Box<dyn Iterator<Item = ObjectName> + 'a>;

    /// Writes the command that defines an object; none where it is not defined.
    fn write(&self, f: &mut dyn Write, definitions: &Definitions, object: &ObjectName) -> Option<fmt::Result>;

    /// Whether an object stays that is not wanted: it is the queue manager's own, or an application's.
    fn stays(&self, definitions: &Definitions, object: &ObjectName) -> bool;

    /// Whether an object has a name that one of another noun is to have, so that it goes first.
    fn is_in_the_way(&self, _object: &ObjectName, _wanted: &Definitions) -> bool {
        false
    }

    /// The command that takes an object away.
    fn removal(&self, object: &Parts) -> String {
        object.head("DELETE")
    }

    /// The command that makes an object of what it is.
    fn change(&self, before: &Parts, after: &Parts) -> String {
        let changed = || std::iter::once(after.head("ALTER")).chain(after.beyond(before).map(str::to_owned));
        match after.verb.as_str() {
            "SET" => after.command(),
            "DEFINE" if after.has_lost(before) => format!("{} REPLACE", after.command()),
            _ => changed().collect::<Vec<_>>().join(" "),
        }
    }
}

/// A noun of the list, whatever the sort of its objects.
pub(crate) trait Noun: Kept {
    /// The sort of its objects.
    #[cfg(test)]
    fn sort(&self) -> Sort;

    /// Short forms that are taken.
    fn short(&self) -> &'static [&'static str];

    /// DEFINE, ALTER, DELETE and DISPLAY; or SET, and what there is beside it. The first one makes objects.
    fn commands(&self) -> &'static [Command];

    /// What DEFINE comes to.
    ///
    /// # Errors
    /// It contradicts what is defined.
    fn define(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure>;

    /// What ALTER comes to.
    ///
    /// # Errors
    /// It contradicts what is defined.
    fn alter(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure>;

    /// What SET comes to.
    ///
    /// # Errors
    /// It contradicts what is defined.
    fn set(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure>;

    /// What DELETE comes to.
    ///
    /// # Errors
    /// There is no such object.
    fn delete(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure>;

    /// DISPLAY.
    ///
    /// # Errors
    /// There is no such object, or WHERE compares what can't be compared.
    fn display(&'static self, statement: &Statement, target: &dyn Administered) -> Result<Vec<Row>, Failure>;

    /// Its objects whose names fit, to be shown.
    fn candidates<'a>(&'static self, name: &Pattern, target: &'a dyn Administered) -> Vec<Candidate<'a>>;

    /// Refuses of a command what is read where it is kept: an older version may have written it.
    ///
    /// # Errors
    /// It is refused.
    fn check_command(&self, change: &Change, definitions: &Definitions) -> Result<(), Failure>;

    /// What a change means to what runs: it is refused, or comes later, as a warning says.
    ///
    /// # Errors
    /// It is refused.
    fn running(&self, change: &Change, target: &dyn Administered) -> Result<Option<String>, Failure>;

    /// Whether one of its objects is there before the file is read.
    fn is_altered_by_the_file(&self) -> bool;

    /// Writes the command that defines such an object, which is one of its own.
    ///
    /// # Errors
    /// As those of `f`.
    fn write_object(&self, f: &mut dyn Write, name: &str, object: &Object) -> fmt::Result;

    /// What is allowed and will not work yet; none for an object of another sort.
    fn forewarnings(&self, name: &str, object: &Object, definitions: &Definitions) -> Vec<String>;

    /// Warnings of DELETE: what goes with the object.
    fn forewarnings_of_delete(&self, name: &str, definitions: &Definitions) -> Vec<String>;

    /// What came of a change of one of its objects, which `existed` before, for messages.
    fn done(&self, change: &Change, existed: bool) -> String;

    /// The value of an attribute that is not given.
    #[cfg(test)]
    fn default_cell(&self, key: Key) -> Option<Cell>;
}

/// What is peculiar to a sort of object beyond its attributes.
pub(crate) trait Rules: Named {
    /// The one that is always there: the file alters it.
    const ALWAYS_THERE: Option<&str> = None;

    /// The sorts that share one set of names: none of their objects has another's.
    const FAMILY: Option<&Family> = None;

    /// MQ's reason code where there is none of that name.
    const UNKNOWN: u32 = 2085;

    /// MQ's reason code where DEFINE finds one of that name, and what to do.
    const EXISTS: (u32, &str) = EXISTS;

    /// Most that there may be, where they are not counted with others.
    const MAX: usize = OBJECTS_MAX;

    /// What stands between two attributes in the file.
    const BETWEEN: &str = WRAPPED;

    /// What is said of one that is new, takes the place of one, or is gone.
    const DONE: [&str; 3] = ["defined", "replaced", "deleted"];

    /// What one of them is called in messages of what was done.
    fn called() -> String {
        Self::SORT.to_string()
    }

    /// Whether SET takes the object away.
    fn is_removed_by(_statement: &Statement) -> bool {
        false
    }

    /// What DEFINE begins with: LIKE's object, or the defaults. For SET `like` is the object as it is.
    ///
    /// # Errors
    /// There are no defaults for what the command says.
    fn begin(statement: &Statement, like: Option<&Self>) -> Result<Self, Failure>;

    /// Whether it has the attribute.
    fn has(&self, _key: Key) -> bool {
        true
    }

    /// Refuses a whole command, before any of its values is taken over.
    ///
    /// # Errors
    /// The object can't become what the command says.
    fn check_statement(&self, _statement: &Statement) -> Result<(), Failure> {
        Ok(())
    }

    /// Refuses a value of an attribute, before it is taken over.
    ///
    /// # Errors
    /// The object can't have it.
    fn check_setting(&self, _setting: &Setting) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes over what the command gives in a way of its own; false where each value is taken over by its row.
    ///
    /// # Errors
    /// The object can't become what the command says.
    fn take_over(&mut self, _statement: &Statement) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Takes over what depends on several attributes, after the others are.
    ///
    /// # Errors
    /// It makes no sense.
    fn complete(&mut self, _statement: &Statement) -> Result<(), Failure> {
        Ok(())
    }

    /// The value of an attribute that is in none of its fields.
    fn cell(&self, _key: Key) -> Option<Cell> {
        None
    }

    /// Takes over the value of an attribute that is in none of its fields.
    fn set(&mut self, _key: Key, _value: &Value) {}

    /// Whether the value of an attribute follows from others, so that the file leaves it out.
    fn follows(&self, _key: Key) -> bool {
        false
    }

    /// Whether the file does not name it while it is like this.
    fn is_left_out(&self, _name: &str) -> bool {
        false
    }

    /// Whether it stays though it is not wanted: it is the queue manager's own, or an application's.
    fn stays(&self, name: &str) -> bool {
        name.starts_with(SYSTEM_PREFIX)
    }

    /// Attributes that contradict each other, or what else is defined.
    ///
    /// # Errors
    /// They do.
    fn check(&self, _name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        Ok(())
    }

    /// Refuses of a command what is read where it is kept: an older version may have written it.
    ///
    /// # Errors
    /// It is refused.
    fn check_command(&self, _definitions: &Definitions) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether it may go.
    ///
    /// # Errors
    /// It may not.
    fn check_delete(_name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        Ok(())
    }

    /// What is allowed and will not work yet.
    fn forewarnings(&self, _name: &str, _definitions: &Definitions) -> Vec<String> {
        Vec::new()
    }

    /// Warnings of DELETE: what goes with the object.
    fn forewarnings_of_delete(_name: &str, _definitions: &Definitions) -> Vec<String> {
        Vec::new()
    }

    /// What a change means to what runs: it is refused, or comes later, as a warning says.
    ///
    /// # Errors
    /// It is refused.
    fn running(_name: &str, _change: Running<'_, Self>, _target: &dyn Administered) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    /// The attributes that DISPLAY shows.
    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        wanted(statement, true)
    }

    /// Values that DISPLAY shows of an object that runs, beside those that are defined.
    fn status<'a>(_name: &'a str, _target: &'a dyn Administered) -> Box<dyn Fn(Key) -> Option<Cell> + 'a> {
        Box::new(|_| None)
    }
}

/// A change of an object of one sort.
pub(crate) enum Running<'a, T> {
    /// It is new, or takes the place of one.
    Defined(&'a T),
    /// It becomes this.
    Altered(&'a T),
    /// It goes.
    Deleted,
}

/// Sorts that share one set of names.
pub(crate) struct Family {
    /// The noun at the head of what DISPLAY shows of them; their own is shown as TYPE.
    pub(crate) head: &'static str,
    /// Each sort, and what one of it is called.
    pub(crate) members: &'static [(Sort, &'static str)],
    /// Whether there may be one more of them.
    pub(crate) has_room: fn(&Definitions) -> bool,
}

impl Family {
    /// The sort that has an object of the name, and what one of it is called.
    pub(super) fn member_of(&self, name: &str, definitions: &Definitions) -> Option<(Sort, &'static str)> {
        self.members.iter().copied().find(|(sort, _)| definitions.has(*sort, name))
    }

    fn called(&self, sort: Sort) -> &'static str {
        self.members.iter().find(|(member, _)| *member == sort).map_or("", |(_, called)| called)
    }
}

/// An object of that name is of another sort of the family.
pub(super) fn wrong_type(name: &str, what: &str) -> Failure {
    Failure { kind: FailureKind::Refused, reason: Some(2043), message: format!("{name} is {what}"), hint: None }
}

/// A noun whose objects are `T`.
pub(crate) struct ObjectNoun<T: 'static> {
    /// How it is written.
    pub(crate) word: &'static str,
    /// Short forms that are taken.
    pub(crate) short: &'static [&'static str],
    /// What many of its objects are called in messages.
    pub(crate) many: &'static str,
    /// Its place among the nouns in `objects.mqsc`.
    pub(crate) place: usize,
    /// Its attributes, in groups.
    pub(crate) fields: &'static [&'static [Field<T>]],
    /// Its commands, of [`commands`].
    pub(crate) commands: &'static [Command],
}

/// What HELP and the reference page say of one verb.
pub(crate) struct Said {
    /// One sentence.
    pub(crate) summary: &'static str,
    /// At least one that works as it stands.
    pub(crate) examples: &'static [&'static str],
}

/// One command: its words and what it is about, what stands in the parentheses, options and attributes, and what is
/// said of it.
pub(super) const fn verb(
    (verb, noun, object): (&'static str, &'static str, &'static str),
    act: Act,
    name: NameUse,
    options: &'static [&'static Attribute],
    attributes: &'static [&'static Attribute],
    Said { summary, examples }: Said,
) -> Command {
    Command { act, verb, noun, name, object, summary, options, attributes, examples, since: table::V1 }
}

/// The commands of a noun: which attributes DEFINE and ALTER take, which DISPLAY shows, and what is said of each verb.
pub(super) const fn commands(
    sort: Sort,
    object: &'static str,
    noun: &'static str,
    attributes: &'static [&'static Attribute],
    displayed: &'static [&'static Attribute],
    [define, alter, delete, display]: [Said; 4],
) -> [Command; 4] {
    let (one, many) = (NameUse::One, NameUse::Generic);
    [
        verb(
            ("DEFINE", noun, object),
            Act::Defines(Defining::Define(sort)),
            one,
            table::DEFINE_OPTIONS,
            attributes,
            define,
        ),
        verb(("ALTER", noun, object), Act::Defines(Defining::Alter(sort)), one, &[], attributes, alter),
        verb(("DELETE", noun, object), Act::Defines(Defining::Delete(sort)), one, &[], &[], delete),
        verb(
            ("DISPLAY", noun, object),
            Act::Does(Doing::Display(sort)),
            many,
            table::DISPLAY_OPTIONS,
            displayed,
            display,
        ),
    ]
}

impl<T: Rules> ObjectNoun<T> {
    fn existing<'a>(&self, name: &str, definitions: &'a Definitions) -> Result<&'a T, Failure> {
        T::all(definitions).get(name).ok_or_else(|| Self::missing(name, definitions))
    }

    /// There is none of that name, or it is of another sort.
    fn missing(name: &str, definitions: &Definitions) -> Failure {
        match Self::other(name, definitions) {
            Some(what) => wrong_type(name, what),
            None => Failure { reason: Some(T::UNKNOWN), ..unknown(&T::SORT.to_string(), name) },
        }
    }

    /// What an object of that name is called that is of another sort of the family.
    fn other(name: &str, definitions: &Definitions) -> Option<&'static str> {
        let (sort, what) = T::FAMILY?.member_of(name, definitions)?;
        (sort != T::SORT).then_some(what)
    }

    /// LIKE's object, if there is LIKE.
    fn like<'a>(&self, statement: &Statement, definitions: &'a Definitions) -> Result<Option<&'a T>, Failure> {
        let Some(Value::Text(model)) = statement.value(Key::Like) else { return Ok(None) };
        match (T::all(definitions).get(model), T::FAMILY) {
            (None, Some(family)) if Self::other(model, definitions).is_some() => {
                Err(wrong_type(model, &format!("not {}", family.called(T::SORT))))
            }
            (None, _) => Err(Self::missing(model, definitions)),
            (found, _) => Ok(found),
        }
    }

    fn has_room(definitions: &Definitions) -> bool {
        T::FAMILY.map_or(T::all(definitions).len() < T::MAX, |family| (family.has_room)(definitions))
    }

    /// Takes over the values that the command gives.
    ///
    /// # Errors
    /// The object can't become what the command says.
    pub(super) fn take_over(&self, object: &mut T, statement: &Statement) -> Result<(), Failure> {
        object.check_statement(statement)?;
        if object.take_over(statement)? {
            return Ok(());
        }
        for setting in &statement.settings {
            object.check_setting(setting)?;
            let key = setting.attribute.key;
            match self.field(key) {
                Some(field) => (field.set)(object, &setting.value),
                None => object.set(key, &setting.value),
            }
        }
        object.complete(statement)
    }

    /// Writes the command that defines an object.
    fn written(&self, f: &mut dyn Write, name: &str, object: &T) -> fmt::Result {
        let verb = if T::ALWAYS_THERE == Some(name) { "ALTER" } else { self.commands[0].verb };
        command(f, T::BETWEEN, verb, self.word, Some(name), |key| self.kept(object, key))
    }

    /// The value of an attribute as it is kept.
    pub(crate) fn kept(&self, object: &T, key: Key) -> Option<Cell> {
        if object.follows(key) { None } else { self.cell(object, key) }
    }

    /// The command that defines an object, on one line.
    pub(super) fn line(&self, name: &str, object: &T) -> String {
        let mut text = String::new();
        // Into a string: cannot fail.
        let _ =
            command(&mut text, ON_ONE_LINE, self.commands[0].verb, self.word, Some(name), |key| self.cell(object, key));
        text.truncate(text.trim_end().len());
        text
    }

    fn cell(&self, object: &T, key: Key) -> Option<Cell> {
        match self.field(key) {
            Some(_) if !object.has(key) => None,
            Some(field) => Some((field.get)(object)),
            None if key == Key::Type && T::FAMILY.is_some() => Some(Cell::word(self.word)),
            None => object.cell(key),
        }
    }

    pub(super) fn field(&self, key: Key) -> Option<&'static Field<T>> {
        self.fields.iter().copied().flatten().find(|field| field.attribute().key == key)
    }
}

impl<T: Rules> Kept for ObjectNoun<T> {
    fn word(&self) -> &'static str {
        self.word
    }

    fn place(&self) -> usize {
        self.place
    }

    fn objects<'a>(&self, definitions: &'a Definitions) -> Box<dyn Iterator<Item = ObjectName> + 'a> {
        let kept = T::all(definitions).iter().filter(|(name, object)| !object.is_left_out(name));
        Box::new(kept.map(|(name, _)| ObjectName::Object(T::SORT, name.clone())))
    }

    fn write(&self, f: &mut dyn Write, definitions: &Definitions, object: &ObjectName) -> Option<fmt::Result> {
        let name = object.of(T::SORT)?;
        Some(self.written(f, name, T::all(definitions).get(name)?))
    }

    fn stays(&self, definitions: &Definitions, object: &ObjectName) -> bool {
        let Some(name) = object.of(T::SORT) else { return false };
        T::all(definitions).get(name).is_some_and(|object| object.stays(name))
    }

    fn is_in_the_way(&self, object: &ObjectName, wanted: &Definitions) -> bool {
        object.of(T::SORT).is_some_and(|name| Self::other(name, wanted).is_some())
    }

    fn removal(&self, object: &Parts) -> String {
        match self.commands.iter().any(|command| (command.verb, command.noun) == ("DELETE", self.word)) {
            true => object.head("DELETE"),
            false => format!("{} ACTION(REMOVE)", object.head("SET")),
        }
    }
}

impl<T: Rules> Noun for ObjectNoun<T> {
    #[cfg(test)]
    fn sort(&self) -> Sort {
        T::SORT
    }

    fn short(&self) -> &'static [&'static str] {
        self.short
    }

    fn commands(&self) -> &'static [Command] {
        self.commands
    }

    fn define(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
        let name = statement.name.stem.clone();
        if let Some(what) = Self::other(&name, definitions) {
            return Err(wrong_type(&name, what));
        }
        let like = self.like(statement, definitions)?;
        let exists = T::all(definitions).contains_key(&name);
        free_or_replaced(statement, exists, T::EXISTS)?;
        if !exists && !Self::has_room(definitions) {
            return Err(too_many(T::MAX, self.many));
        }
        let mut object = T::begin(statement, like)?;
        self.take_over(&mut object, statement)?;
        object.check(&name, definitions)?;
        Ok(Change::Define { name, object: object.into() })
    }

    fn alter(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
        let name = statement.name.stem.clone();
        let mut object = self.existing(&name, definitions)?.clone();
        self.take_over(&mut object, statement)?;
        object.check(&name, definitions)?;
        Ok(Change::Alter { name, object: object.into() })
    }

    fn set(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
        if T::is_removed_by(statement) {
            return self.delete(statement, definitions);
        }
        let name = statement.name.stem.clone();
        let known = T::all(definitions).get(&name);
        let mut object = T::begin(statement, known)?;
        if known.is_none() && !Self::has_room(definitions) {
            return Err(too_many(T::MAX, self.many));
        }
        self.take_over(&mut object, statement)?;
        object.check(&name, definitions)?;
        Ok(Change::Define { name, object: object.into() })
    }

    fn delete(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
        let name = statement.name.stem.clone();
        self.existing(&name, definitions)?;
        T::check_delete(&name, definitions)?;
        Ok(Change::Delete { name, sort: T::SORT, purge: statement.says(Key::Purge, "PURGE") })
    }

    fn display(&'static self, statement: &Statement, target: &dyn Administered) -> Result<Vec<Row>, Failure> {
        let candidates = self.candidates(&statement.name, target);
        if candidates.is_empty() && !statement.name.generic {
            return Err(Self::missing(&statement.name.stem, target.definitions()));
        }
        let head = T::FAMILY.map_or(self.word, |family| family.head);
        rows(statement, head, candidates, &T::wanted(statement))
    }

    fn candidates<'a>(&'static self, name: &Pattern, target: &'a dyn Administered) -> Vec<Candidate<'a>> {
        let found = T::all(target.definitions()).iter().filter(|(known, _)| name.fits(known));
        found
            .map(|(name, object)| -> Candidate<'a> {
                let status = T::status(name, target);
                let cell = move |key| self.cell(object, key).or_else(|| status(key));
                (name, T::FAMILY.map(|_| self.word), Box::new(cell))
            })
            .collect()
    }

    fn check_command(&self, change: &Change, definitions: &Definitions) -> Result<(), Failure> {
        match change {
            Change::Define { object, .. } | Change::Alter { object, .. } => {
                T::of(object).map_or(Ok(()), |object| object.check_command(definitions))
            }
            _ => Ok(()),
        }
    }

    fn running(&self, change: &Change, target: &dyn Administered) -> Result<Option<String>, Failure> {
        let (name, running) = match change {
            Change::Define { name, object } => (name, T::of(object).map(Running::Defined)),
            Change::Alter { name, object } => (name, T::of(object).map(Running::Altered)),
            Change::Delete { name, sort, .. } => (name, (*sort == T::SORT).then_some(Running::Deleted)),
            _ => return Ok(None),
        };
        running.map_or(Ok(None), |running| T::running(name, running, target))
    }

    fn is_altered_by_the_file(&self) -> bool {
        T::ALWAYS_THERE.is_some()
    }

    fn write_object(&self, f: &mut dyn Write, name: &str, object: &Object) -> fmt::Result {
        T::of(object).map_or(Ok(()), |object| self.written(f, name, object))
    }

    fn forewarnings(&self, name: &str, object: &Object, definitions: &Definitions) -> Vec<String> {
        T::of(object).map(|object| object.forewarnings(name, definitions)).unwrap_or_default()
    }

    fn forewarnings_of_delete(&self, name: &str, definitions: &Definitions) -> Vec<String> {
        T::forewarnings_of_delete(name, definitions)
    }

    fn done(&self, change: &Change, existed: bool) -> String {
        let [new, replaced, gone] = T::DONE;
        let (name, done) = match change {
            Change::Define { name, .. } => (name, if existed { replaced } else { new }),
            Change::Alter { name, .. } => (name, "altered"),
            Change::Delete { name, .. } => (name, gone),
            _ => return String::new(),
        };
        format!("{} {name} {done}", T::called())
    }

    #[cfg(test)]
    fn default_cell(&self, key: Key) -> Option<Cell> {
        let statement = crate::parse::statements(self.commands[0].examples[0]).remove(0).ok()?;
        self.cell(&T::begin(&statement, None).ok()?, key)
    }
}
