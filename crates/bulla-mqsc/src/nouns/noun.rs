//! What the verbs do with any noun of the list.

use super::Field;
use crate::objects::{WRAPPED, command};
use crate::parse::{Statement, Value};
use crate::reply::{Cell, Failure, Row};
use crate::run::{Candidate, free_or_replaced, rows, too_many, unknown, wanted};
use crate::table::{self, Act, Attribute, Command, Defining, Doing, Key, NameUse};
use bulla_catalog::{Change, Definitions, Named, OBJECTS_MAX, Object, Sort};
use std::fmt::{self, Write};

/// A noun of the list, whatever the sort of its objects.
pub(crate) trait Noun: Sync {
    /// The sort of its objects.
    fn sort(&self) -> Sort;

    /// How it is written.
    fn word(&self) -> &'static str;

    /// Short forms that are taken.
    fn short(&self) -> &'static [&'static str];

    /// Its place among the nouns in `objects.mqsc`.
    fn place(&self) -> usize;

    /// DEFINE, ALTER, DELETE and DISPLAY.
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

    /// What DELETE comes to.
    ///
    /// # Errors
    /// There is no such object.
    fn delete(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure>;

    /// DISPLAY.
    ///
    /// # Errors
    /// There is no such object, or WHERE compares what can't be compared.
    fn display(&self, statement: &Statement, definitions: &Definitions) -> Result<Vec<Row>, Failure>;

    /// The names of the objects that are kept.
    fn names<'a>(&self, definitions: &'a Definitions) -> Box<dyn Iterator<Item = &'a String> + 'a>;

    /// Whether one of its objects is there before the file is read.
    fn is_altered_by_the_file(&self) -> bool;

    /// Writes the command that defines an object; none where it is not defined.
    fn write(&self, f: &mut dyn Write, definitions: &Definitions, name: &str) -> Option<fmt::Result>;

    /// Writes the command that defines such an object, which is one of its own.
    ///
    /// # Errors
    /// As those of `f`.
    fn write_object(&self, f: &mut dyn Write, name: &str, object: &Object) -> fmt::Result;

    /// What is allowed and will not work yet; none for an object of another sort.
    fn forewarnings(&self, name: &str, object: &Object, definitions: &Definitions) -> Vec<String>;

    /// The value of an attribute that is not given.
    #[cfg(test)]
    fn default_cell(&self, key: Key) -> Option<Cell>;
}

/// What is peculiar to a sort of object beyond its attributes.
pub(crate) trait Rules: Default + Named {
    /// The one that is always there: the file alters it, and does not name it while it is as it was.
    const ALWAYS_THERE: Option<&str> = None;

    /// MQ's reason code where there is none of that name.
    const UNKNOWN: u32 = 2085;

    /// What LIKE takes over.
    fn like(&self) -> Self {
        self.clone()
    }

    /// Attributes that contradict each other, or what else is defined.
    ///
    /// # Errors
    /// They do.
    fn check(&self, _name: &str, _definitions: &Definitions) -> Result<(), Failure> {
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
}

/// A noun whose objects are `T`.
pub(crate) struct ObjectNoun<T: 'static> {
    /// How it is written.
    pub(crate) word: &'static str,
    /// Short forms that are taken.
    pub(crate) short: &'static [&'static str],
    /// What many of its objects are called in messages.
    pub(crate) many: &'static str,
    /// Its place among the nouns in `objects.mqsc`: what is named by others comes first.
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

/// The commands of a noun, with what is said of DEFINE, ALTER, DELETE and DISPLAY.
pub(super) const fn commands(
    sort: Sort,
    object: &'static str,
    noun: &'static str,
    attributes: &'static [&'static Attribute],
    [define, alter, delete, display]: [Said; 4],
) -> [Command; 4] {
    const fn command(
        (verb, noun, object): (&'static str, &'static str, &'static str),
        act: Act,
        name: NameUse,
        options: &'static [&'static Attribute],
        attributes: &'static [&'static Attribute],
        said: Said,
    ) -> Command {
        let Said { summary, examples } = said;
        Command { act, verb, noun, name, object, summary, options, attributes, examples, since: table::V1 }
    }
    let (one, many) = (NameUse::One, NameUse::Generic);
    [
        command(
            ("DEFINE", noun, object),
            Act::Defines(Defining::Define(sort)),
            one,
            table::DEFINE_OPTIONS,
            attributes,
            define,
        ),
        command(("ALTER", noun, object), Act::Defines(Defining::Alter(sort)), one, &[], attributes, alter),
        command(("DELETE", noun, object), Act::Defines(Defining::Delete(sort)), one, &[], &[], delete),
        command(
            ("DISPLAY", noun, object),
            Act::Does(Doing::Display(sort)),
            many,
            table::DISPLAY_OPTIONS,
            attributes,
            display,
        ),
    ]
}

impl<T: Rules> ObjectNoun<T> {
    fn existing<'a>(&self, name: &str, definitions: &'a Definitions) -> Result<&'a T, Failure> {
        T::all(definitions).get(name).ok_or_else(|| Self::unknown(name))
    }

    fn unknown(name: &str) -> Failure {
        Failure { reason: Some(T::UNKNOWN), ..unknown(&T::SORT.to_string(), name) }
    }

    /// Takes over the values that the command gives.
    fn set(&self, object: &mut T, statement: &Statement) {
        for setting in &statement.settings {
            if let Some(field) = self.field(setting.attribute.key) {
                (field.set)(object, &setting.value);
            }
        }
    }

    /// Writes the command that defines an object.
    fn written(&self, f: &mut dyn Write, name: &str, object: &T) -> fmt::Result {
        let verb = if T::ALWAYS_THERE == Some(name) { "ALTER" } else { "DEFINE" };
        command(f, WRAPPED, verb, self.word, Some(name), |key| self.cell(object, key))
    }

    fn cell(&self, object: &T, key: Key) -> Option<Cell> {
        self.field(key).map(|field| (field.get)(object))
    }

    fn field(&self, key: Key) -> Option<&'static Field<T>> {
        self.fields.iter().copied().flatten().find(|field| field.attribute().key == key)
    }
}

impl<T: Rules> Noun for ObjectNoun<T> {
    fn sort(&self) -> Sort {
        T::SORT
    }

    fn word(&self) -> &'static str {
        self.word
    }

    fn short(&self) -> &'static [&'static str] {
        self.short
    }

    fn place(&self) -> usize {
        self.place
    }

    fn commands(&self) -> &'static [Command] {
        self.commands
    }

    fn define(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
        let name = statement.name.stem.clone();
        let mut object = match statement.value(Key::Like) {
            Some(Value::Text(model)) => self.existing(model, definitions)?.like(),
            _ => T::default(),
        };
        let all = T::all(definitions);
        let exists = all.contains_key(&name);
        free_or_replaced(statement, exists)?;
        if !exists && all.len() >= OBJECTS_MAX {
            return Err(too_many(OBJECTS_MAX, self.many));
        }
        self.set(&mut object, statement);
        object.check(&name, definitions)?;
        Ok(Change::Define { name, object: object.into() })
    }

    fn alter(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
        let name = statement.name.stem.clone();
        let mut object = self.existing(&name, definitions)?.clone();
        self.set(&mut object, statement);
        object.check(&name, definitions)?;
        Ok(Change::Alter { name, object: object.into() })
    }

    fn delete(&self, statement: &Statement, definitions: &Definitions) -> Result<Change, Failure> {
        let name = statement.name.stem.clone();
        self.existing(&name, definitions)?;
        T::check_delete(&name, definitions)?;
        Ok(Change::Delete { name, sort: T::SORT })
    }

    fn display(&self, statement: &Statement, definitions: &Definitions) -> Result<Vec<Row>, Failure> {
        let found = T::all(definitions).iter().filter(|(name, _)| statement.name.fits(name));
        let candidates: Vec<Candidate<'_>> = found
            .map(|(name, object)| -> Candidate<'_> { (name, None, Box::new(|key| self.cell(object, key))) })
            .collect();
        if candidates.is_empty() && !statement.name.generic {
            return Err(Self::unknown(&statement.name.stem));
        }
        rows(statement, self.word, candidates, &wanted(statement, true))
    }

    fn names<'a>(&self, definitions: &'a Definitions) -> Box<dyn Iterator<Item = &'a String> + 'a> {
        let is_as_ever = |name: &str, object: &T| T::ALWAYS_THERE == Some(name) && *object == T::default();
        let all = T::all(definitions).iter();
        Box::new(all.filter(move |(name, object)| !is_as_ever(name, object)).map(|(name, _)| name))
    }

    fn is_altered_by_the_file(&self) -> bool {
        T::ALWAYS_THERE.is_some()
    }

    fn write(&self, f: &mut dyn Write, definitions: &Definitions, name: &str) -> Option<fmt::Result> {
        Some(self.written(f, name, T::all(definitions).get(name)?))
    }

    fn write_object(&self, f: &mut dyn Write, name: &str, object: &Object) -> fmt::Result {
        T::of(object).map_or(Ok(()), |object| self.written(f, name, object))
    }

    fn forewarnings(&self, name: &str, object: &Object, definitions: &Definitions) -> Vec<String> {
        T::of(object).map(|object| object.forewarnings(name, definitions)).unwrap_or_default()
    }

    #[cfg(test)]
    fn default_cell(&self, key: Key) -> Option<Cell> {
        self.cell(&T::default(), key)
    }
}
