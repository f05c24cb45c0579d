//! Nouns whose objects no name alone finds: several attributes together say which one is meant.
//!
//! Their attributes are rows like those of any noun, and what is kept, compared and shown follows from the rows. What
//! SET comes to is each noun's own: its attributes say which object is meant and also what is to happen to it.

use super::{Field, Kept};
use crate::difference::Parts;
use crate::kept::ObjectName;
use crate::objects::command;
use crate::parse::Statement;
use crate::reply::{Cell, Failure, Row};
use crate::rows::{fits, wanted};
use crate::table::Key;
use bulla_catalog::Definitions;
use std::fmt::{self, Write};

/// A noun whose objects are `T`.
pub(crate) struct KeyedNoun<T: 'static> {
    /// How it is written.
    pub(crate) word: &'static str,
    /// Its place among the nouns in `objects.mqsc`.
    pub(crate) place: usize,
    /// What stands between two attributes in the file.
    pub(crate) between: &'static str,
    /// The attributes that say which object is meant.
    pub(crate) known_by: &'static [Field<T>],
    /// What SET says of it beside those.
    pub(crate) says: &'static [Field<T>],
    /// What is only shown.
    pub(crate) shown: &'static [Field<T>],
}

/// What is peculiar to such a sort of object beyond its attributes.
pub(crate) trait Keyed: Sized {
    /// All that are defined.
    fn all(definitions: &Definitions) -> Box<dyn Iterator<Item = ObjectName> + '_>;

    /// One that is defined.
    fn find(object: &ObjectName, definitions: &Definitions) -> Option<Self>;

    /// What stands in the parentheses after the noun, if anything does.
    fn name(&self) -> Option<&str>;

    /// Whether it has the attribute, and a value of it.
    fn has(&self, key: Key) -> bool;

    /// Whether DISPLAY shows the attribute, of those that it is known by, before what was asked for.
    fn is_always_shown(&self, key: Key) -> bool {
        self.has(key)
    }

    /// The command that takes away an object; `is_known_by` says which attributes it is known by.
    fn removal(object: &Parts, is_known_by: impl Fn(&str) -> bool) -> String;

    /// The command that makes an object of what it is; `is_known_by` says which attributes it is known by.
    fn change(before: &Parts, after: &Parts, is_known_by: impl Fn(&str) -> bool) -> String;
}

impl<T: Keyed> KeyedNoun<T> {
    fn field(&self, key: Key) -> Option<&'static Field<T>> {
        let fields = self.known_by.iter().chain(self.says).chain(self.shown);
        fields.into_iter().find(|field| field.attribute().key == key)
    }

    /// Takes over the values that the command gives, each by its row.
    pub(super) fn take_over(&self, object: &mut T, statement: &Statement) {
        for setting in &statement.settings {
            if let Some(field) = self.field(setting.attribute.key) {
                (field.set)(object, &setting.value);
            }
        }
    }

    fn cell(&self, object: &T, key: Key) -> Option<Cell> {
        self.field(key).filter(|_| object.has(key)).map(|field| (field.get)(object))
    }

    fn is_known_by(&self, word: &str) -> bool {
        self.known_by.iter().any(|field| field.attribute().keyword == word)
    }

    /// What DISPLAY shows of objects.
    ///
    /// # Errors
    /// WHERE compares what can't be compared.
    pub(super) fn rows(
        &self,
        statement: &Statement,
        objects: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        let wanted = wanted(statement, false);
        for object in objects {
            if let Some(filter) = &statement.filter
                && !fits(filter, self.cell(&object, filter.attribute.key))?
            {
                continue;
            }
            let mut row = Row::default();
            if let Some(name) = object.name() {
                row.push(self.word, Cell::word(name));
            }
            for field in self.known_by.iter().filter(|field| object.is_always_shown(field.attribute().key)) {
                row.push(field.attribute().keyword, (field.get)(&object));
            }
            for attribute in &wanted {
                if let Some(cell) = self.cell(&object, attribute.key) {
                    row.push(attribute.keyword, cell);
                }
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

impl<T: Keyed> Kept for KeyedNoun<T> {
    fn word(&self) -> &'static str {
        self.word
    }

    fn place(&self) -> usize {
        self.place
    }

    fn objects<'a>(&self, definitions: &'a Definitions) -> Box<dyn Iterator<Item = ObjectName> + 'a> {
        T::all(definitions)
    }

    fn write(&self, f: &mut dyn Write, definitions: &Definitions, object: &ObjectName) -> Option<fmt::Result> {
        let object = T::find(object, definitions)?;
        Some(command(f, self.between, "SET", self.word, object.name(), |key| self.cell(&object, key)))
    }

    /// None is the queue manager's own.
    fn stays(&self, _definitions: &Definitions, _object: &ObjectName) -> bool {
        false
    }

    fn removal(&self, object: &Parts) -> String {
        T::removal(object, |word| self.is_known_by(word))
    }

    fn change(&self, before: &Parts, after: &Parts) -> String {
        T::change(before, after, |word| self.is_known_by(word))
    }
}
