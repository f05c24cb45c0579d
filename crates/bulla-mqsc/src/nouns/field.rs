//! One attribute of a sort of object.

use crate::parse::Value;
use crate::reply::Cell;
use crate::table::{Attribute, Key, Kind, attribute};

/// One attribute of a sort of object: its words in the table, and how its value is read and written.
///
/// Everything that the language does with it follows.
pub(crate) struct Field<T: 'static> {
    words: Words,
    /// The value as it is shown and written down.
    pub(crate) get: fn(&T) -> Cell,
    /// Takes over a value, which the parser has found to be of the attribute's kind.
    pub(crate) set: fn(&mut T, &Value),
}

enum Words {
    Own(Attribute),
    /// The same words for several nouns.
    Shared(&'static Attribute),
}

impl<T> Field<T> {
    /// An attribute of this sort of object alone: its word, what it takes, its default as one would write it, one or
    /// two sentences, and how its value is read and written.
    pub(crate) const fn new(
        word: &'static str,
        kind: Kind,
        default: &'static str,
        doc: &'static str,
        get: fn(&T) -> Cell,
        set: fn(&mut T, &Value),
    ) -> Self {
        Self { words: Words::Own(attribute(Key::Own(word), word, kind, default, doc)), get, set }
    }

    /// What is only shown: its word, one or two sentences, and how it is read.
    pub(crate) const fn shown(word: &'static str, doc: &'static str, get: fn(&T) -> Cell) -> Self {
        Self::new(word, Kind::Shown, "", doc, get, |_, _| {})
    }

    /// An attribute that means the same for other nouns.
    pub(crate) const fn shared(attribute: &'static Attribute, get: fn(&T) -> Cell, set: fn(&mut T, &Value)) -> Self {
        Self { words: Words::Shared(attribute), get, set }
    }

    /// Its words in the table.
    pub(crate) const fn attribute(&'static self) -> &'static Attribute {
        match &self.words {
            Words::Own(attribute) => attribute,
            Words::Shared(attribute) => attribute,
        }
    }
}

/// The words of all fields, for the table: `attributes!` says how many.
pub(crate) const fn words_of<T, const COUNT: usize>(fields: &'static [Field<T>]) -> [&'static Attribute; COUNT] {
    let mut all = [fields[0].attribute(); COUNT];
    let mut at = 0;
    while at < COUNT {
        all[at] = fields[at].attribute();
        at += 1;
    }
    all
}

/// Lists of attributes as one: `joined!` says how many there are.
pub(crate) const fn one_list<const COUNT: usize>(lists: &[&[&'static Attribute]]) -> [&'static Attribute; COUNT] {
    let mut all = [lists[0][0]; COUNT];
    let (mut filled, mut list) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[filled] = lists[list][at];
            filled += 1;
            at += 1;
        }
        list += 1;
    }
    all
}

/// How many attributes all lists have together.
pub(crate) const fn count(lists: &[&[&'static Attribute]]) -> usize {
    let (mut sum, mut list) = (0, 0);
    while list < lists.len() {
        sum += lists[list].len();
        list += 1;
    }
    sum
}

/// The words of all fields, as a list for the table.
macro_rules! attributes {
    ($fields:expr) => {{
        const ALL: [&$crate::table::Attribute; $fields.len()] = $crate::nouns::field::words_of($fields);
        &ALL
    }};
}

/// Lists of attributes as one list.
macro_rules! joined {
    ($($list:expr),+ $(,)?) => {{
        const LISTS: &[&[&$crate::table::Attribute]] = &[$($list),+];
        const ALL: [&$crate::table::Attribute; $crate::nouns::field::count(LISTS)] =
            $crate::nouns::field::one_list(LISTS);
        &ALL
    }};
}

pub(crate) use {attributes, joined};
