//! What the admin language defines, and the text that keeps it.
//!
//! `objects.mqsc` in the data directory is MQSC itself: a header line, then one command for each object, an
//! attribute a line, so that it can be read, compared and versioned. It is read back by the parser that reads every
//! other command.

use super::kept;
use super::parse::{self, Statement};
use super::reply::Cell;
use super::run;
use super::table::{self, Act, Attribute, Command, Defining, Key, Kind, NameUse};
use crate::nouns;
use bulla_catalog::names::{NAME_RULE, is_name};
use bulla_catalog::{Change, Definitions, Object, Sort};
use std::fmt::{self, Display, Write};
use std::io;
use std::path::{Path, PathBuf};

/// The file's name in the data directory.
pub const FILE: &str = "objects.mqsc";
/// The version that is written. A reader takes this and every earlier one, and refuses a later one.
pub const FORMAT: u32 = 4;
/// The last version that knew no devices: such a file is read as if it had those of a new queue manager.
const FORMAT_WITHOUT_DEVICES: u32 = 1;
/// The last version that knew no event queues: such a file is read as if it had those of a new queue manager.
const FORMAT_WITHOUT_EVENTS: u32 = 3;

const HEADER: &str = "* bulla objects, format ";
const HEADER_MANAGER: &str = ", queue manager ";
/// A comment at the end of files of older versions: up to which number the changes noted in the journal are in them.
const THROUGH: &str = "* with the changes noted in the journal up to ";

/// Definitions as MQSC text, the form of `objects.mqsc`.
pub trait AsText: Sized {
    /// The text of everything.
    fn text(&self) -> String;

    /// The text of everything, to be read back.
    ///
    /// # Errors
    /// It is more than [`from_text`](Self::from_text) reads.
    fn readable_text(&self) -> Result<String, String>;

    /// Reads the form that [`text`](Self::text) writes; `path` is for messages.
    ///
    /// # Errors
    /// What is wrong, with file and line.
    fn from_text(text: &str, path: &Path) -> Result<Self, LoadError>;

    /// What `text`, of commands that define, alter, set and delete, makes of `base`; `path` is for messages.
    ///
    /// # Errors
    /// What is wrong, with file and line.
    fn from_commands(text: &str, path: &Path, base: Self) -> Result<Self, LoadError>;

    /// The commands that make changes which clients cause, as older versions noted them in the journal; none where
    /// another sort of change is among them.
    fn commands(changes: &[Change]) -> Option<String>;

    /// Carries out what [`commands`](Self::commands) has written, also where that was done already.
    ///
    /// # Errors
    /// What is wrong, with the line of the text; `path` is for the message.
    fn redo(&mut self, text: &str, path: &Path) -> Result<(), LoadError>;
}

impl AsText for Definitions {
    fn text(&self) -> String {
        Written(self).to_string()
    }

    fn readable_text(&self) -> Result<String, String> {
        let text = self.text();
        readable(&text)?;
        Ok(text)
    }

    fn from_text(text: &str, path: &Path) -> Result<Self, LoadError> {
        let (mut definitions, format) = begun(text.lines().next().unwrap_or_default(), path)?;
        read(&mut definitions, text, path, is_of_the_file)?;
        finish(&mut definitions, format);
        Ok(definitions)
    }

    fn from_commands(text: &str, path: &Path, base: Self) -> Result<Self, LoadError> {
        let mut definitions = base;
        read(&mut definitions, text, path, |command| command.act.is_definition())?;
        Ok(definitions)
    }

    fn commands(changes: &[Change]) -> Option<String> {
        let mut text = String::new();
        let f = &mut text;
        for change in changes {
            let written = match change {
                Change::Alter { name, object: object @ Object::Local(_) } => {
                    nouns::noun(Sort::Local).write_object(f, name, object)
                }
                Change::Define { name, object } if NOTED.contains(&object.sort()) => {
                    nouns::noun(object.sort()).write_object(f, name, object)
                }
                Change::Delete { name, sort, .. } if NOTED.contains(sort) => {
                    writeln!(f, "DELETE {}({})", nouns::noun(*sort).word(), Quoted(name))
                }
                _ => return None,
            };
            written.ok()?;
        }
        Some(text)
    }

    fn redo(&mut self, text: &str, path: &Path) -> Result<(), LoadError> {
        for statement in parse::each(text) {
            let at = |at: parse::Position, message: String| LoadError::Command { path: path.into(), at, message };
            let statement = statement.map_err(|error| at(error.at, error.to_string()))?;
            let name = &statement.name.stem;
            match statement.command.act {
                Act::Defines(Defining::Define(Sort::Local)) => drop(self.queues.remove(name)),
                Act::Defines(Defining::Define(Sort::Subscription)) => drop(self.subscriptions.remove(name)),
                Act::Defines(Defining::Delete(sort)) if NOTED.contains(&sort) => {
                    self.apply(&Change::delete(name, sort));
                    continue;
                }
                _ => return Err(at(statement.at, format!("{} does not belong here", statement.command))),
            }
            let change = run::plan(&statement, self).map_err(|failure| at(statement.at, failure.message))?;
            self.apply(&change);
        }
        Ok(())
    }
}

/// What clients cause changes of, which older versions noted in the journal.
const NOTED: [Sort; 2] = [Sort::Local, Sort::Subscription];

/// What is there before the commands behind that header are read, and the header's format.
fn begun(header: &str, path: &Path) -> Result<(Definitions, u32), LoadError> {
    let no_header = || LoadError::NoHeader { path: path.into() };
    let (format, rest) = {
        let rest = header.strip_prefix(HEADER).ok_or_else(no_header)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let format: u32 = rest.get(..digits).and_then(|digits| digits.parse().ok()).ok_or_else(no_header)?;
        (format, rest.get(digits..).unwrap_or_default())
    };
    if format > FORMAT {
        return Err(LoadError::Newer { path: path.into(), format });
    }
    let name = match rest.strip_prefix(HEADER_MANAGER) {
        Some(name) => name.trim_end(),
        // Editors cut the space before an empty name.
        None if rest.trim_end() == HEADER_MANAGER.trim_end() => "",
        None => return Err(no_header()),
    };
    if !is_name(name) {
        return Err(LoadError::ManagerName { path: path.into(), name: name.to_owned() });
    }
    let mut definitions = Definitions::empty(name);
    if format <= FORMAT_WITHOUT_DEVICES {
        definitions.add_initial_devices();
    }
    Ok((definitions, format))
}

/// Adds what a file of an older format does not say.
fn finish(definitions: &mut Definitions, format: u32) {
    if format <= FORMAT_WITHOUT_EVENTS {
        definitions.add_event_queues();
    }
}

/// Reads a header and commands, each a text of its own. Most objects differ from the one before in their names alone:
/// such a command is not parsed again. None where anything is wrong: [`AsText::from_text`] says what.
pub(super) fn from_pieces(header: &str, pieces: &[&str], path: &Path) -> Option<Definitions> {
    let bytes = pieces.iter().map(|text| text.len()).sum::<usize>();
    if bytes + header.len() > parse::TEXT_BYTES_MAX || pieces.len() > parse::COMMANDS_MAX {
        return None;
    }
    let (mut definitions, format) = begun(header.lines().next().unwrap_or_default(), path).ok()?;
    let mut before: Option<(&str, Statement)> = None;
    for text in pieces {
        let statement = match before.take().and_then(|(before, statement)| alike(before, text, statement)) {
            Some(statement) => statement,
            None => {
                let mut statements = parse::each(text);
                let statement = statements.next()?.ok()?;
                if statements.next().is_some() {
                    return None;
                }
                statement
            }
        };
        if !is_of_the_file(statement.command) {
            return None;
        }
        let change = run::plan(&statement, &definitions).ok()?;
        definitions.apply(&change);
        before = Some((text, statement));
    }
    finish(&mut definitions, format);
    Some(definitions)
}

/// The statement of a text that is the one `before`, of which `statement` was made, but for the object's name.
fn alike(before: &str, text: &str, mut statement: Statement) -> Option<Statement> {
    let ((head_before, name_before, tail_before), (head, name, tail)) = (around_name(before)?, around_name(text)?);
    let is_alike = statement.command.name == NameUse::One
        && statement.name.stem == name_before
        && statement.command.takes_name(name, false)
        && (head, tail) == (head_before, tail_before);
    statement.name.stem = name.to_owned();
    is_alike.then_some(statement)
}

/// Whether `text` is the text `before` of an object but for its name, which is that one.
pub(super) fn are_alike(before: &str, text: &str, named: &str) -> bool {
    let (Some((head_before, _, tail_before)), Some((head, name, tail))) = (around_name(before), around_name(text))
    else {
        return false;
    };
    (head, name, tail) == (head_before, named, tail_before)
}

/// What stands before the object's name, the name without its quotes, and what stands behind it; none where that is no
/// plain name.
fn around_name(text: &str) -> Option<(&str, &str, &str)> {
    let (head, rest) = text.split_once("('")?;
    let (name, tail) = rest.split_once('\'')?;
    is_name(name).then_some((head, name, tail))
}

/// Whether a command is one of those that the file is made of.
fn is_of_the_file(command: &Command) -> bool {
    match command.verb {
        "DEFINE" | "SET" => true,
        // What is there before the file is read, so that the file alters it.
        _ => match command.act {
            Act::Defines(Defining::Alter(sort)) => nouns::noun(sort).is_altered_by_the_file(),
            act => act == Act::Defines(Defining::AlterManager),
        },
    }
}

fn read(
    definitions: &mut Definitions,
    text: &str,
    path: &Path,
    belongs: impl Fn(&Command) -> bool,
) -> Result<(), LoadError> {
    for statement in parse::each(text) {
        let at = |at: parse::Position, message: String| LoadError::Command { path: path.into(), at, message };
        let statement = statement.map_err(|error| at(error.at, error.to_string()))?;
        if !belongs(statement.command) {
            return Err(at(statement.at, format!("{} does not belong here", statement.command)));
        }
        let change = run::plan(&statement, definitions).map_err(|failure| at(statement.at, failure.message))?;
        definitions.apply(&change);
    }
    Ok(())
}

/// Up to which number `text`, the file of an older version, has the changes that are noted in the journal.
#[must_use]
pub fn through_of(text: &str) -> u64 {
    let said = text.lines().rev().find_map(|line| line.strip_prefix(THROUGH));
    said.and_then(|number| u64::from_str_radix(number.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a text of definitions is within what the reader takes; what is wrong otherwise.
fn readable(text: &str) -> Result<(), String> {
    if text.len() > parse::TEXT_BYTES_MAX {
        return Err(format!("all definitions have {} bytes, and may have {}", text.len(), parse::TEXT_BYTES_MAX));
    }
    let mut bytes = 0;
    for line in text.lines() {
        bytes += line.len();
        if bytes > parse::COMMAND_BYTES_MAX {
            return Err(format!("a definition is longer than {} bytes", parse::COMMAND_BYTES_MAX));
        }
        if !line.ends_with('+') {
            bytes = 0;
        }
    }
    Ok(())
}

/// Writes the text of definitions.
struct Written<'a>(&'a Definitions);

impl Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&header(self.0))?;
        for object in kept::all(self.0) {
            object.write(f, self.0).unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

/// The first line: the format, and the queue manager's name.
pub(super) fn header(definitions: &Definitions) -> String {
    format!("{HEADER}{FORMAT}{HEADER_MANAGER}{}\n", definitions.queue_manager.name)
}

/// One attribute a line.
pub(super) const WRAPPED: &str = " +\n       ";
/// All attributes on one line.
pub(super) const ON_ONE_LINE: &str = " ";

/// Writes one command with every attribute that the table has for it, `between` before each.
pub(super) fn command(
    f: &mut dyn Write,
    between: &str,
    verb: &str,
    noun: &str,
    name: Option<&str>,
    value: impl Fn(Key) -> Option<Cell>,
) -> fmt::Result {
    write!(f, "{verb} {noun}")?;
    if let Some(name) = name {
        write!(f, "({})", Quoted(name))?;
    }
    let attributes = table::command(verb, noun).map_or(&[][..], |command| command.attributes);
    for attribute in attributes {
        for text in value(attribute.key).map(|cell| written(attribute, &cell)).unwrap_or_default() {
            write!(f, "{between}{text}")?;
        }
    }
    f.write_char('\n')
}

/// The attribute as one would type it; a list of distinguished names gives one text for each.
fn written(attribute: &Attribute, cell: &Cell) -> Vec<String> {
    let keyword = attribute.keyword;
    match (&attribute.kind, cell) {
        (Kind::Switch(_), Cell::Text(word)) => vec![word.clone()],
        (Kind::DistinguishedNames, Cell::List(list)) => {
            list.iter().map(|name| format!("{keyword}({})", Quoted(name))).collect()
        }
        (_, Cell::List(list)) if list.is_empty() => Vec::new(),
        (Kind::Words { .. }, Cell::List(list)) => vec![format!("{keyword}({})", list.join(", "))],
        (_, Cell::List(list)) => {
            let list: Vec<_> = list.iter().map(|entry| Quoted(entry).to_string()).collect();
            vec![format!("{keyword}({})", list.join(", "))]
        }
        (Kind::Text { .. } | Kind::Name { .. } | Kind::Profile | Kind::Address, Cell::Text(text)) => {
            vec![format!("{keyword}({})", Quoted(text))]
        }
        (_, Cell::Text(word)) => vec![format!("{keyword}({word})")],
        (_, Cell::Number(number)) => vec![format!("{keyword}({number})")],
        (_, Cell::Pair(..)) => Vec::new(), // an average is never kept
    }
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', "''"))
    }
}

/// Why the definitions cannot be read. The turn is with the one who changed the file, or installed an older program.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The file system's say.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The first line is not ours.
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// The first line names a queue manager by what is not a name. Programs before the check wrote such files.
    ManagerName {
        /// The file.
        path: PathBuf,
        /// What stands there.
        name: String,
    },
    /// Written by a later program, which may mean other things by the same words.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        format: u32,
    },
    /// A command that is wrong, or does not belong here.
    Command {
        /// The file.
        path: PathBuf,
        /// Where in it.
        at: parse::Position,
        /// What is wrong.
        message: String,
    },
}

impl LoadError {
    /// What the operator can do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            LoadError::ManagerName { .. } => Some(format!(
                "a name has {}; write another name in its place, and start again: queues and messages stay",
                NAME_RULE
            )),
            _ => None,
        }
    }
}

impl std::error::Error for LoadError {}

impl Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
            LoadError::NoHeader { path } => {
                write!(f, "{}:1: expected '{HEADER}{FORMAT}{HEADER_MANAGER}NAME'", path.display())
            }
            LoadError::ManagerName { path, name } => {
                write!(f, "{}:1: '{name}' is not a name for a queue manager", path.display())
            }
            LoadError::Newer { path, format } => {
                write!(f, "{}:1: format {format} is newer than this program, which knows {FORMAT}", path.display())
            }
            LoadError::Command { path, at, message } => {
                write!(f, "{}:{}:{}: {message}", path.display(), at.line, at.column)
            }
        }
    }
}

#[cfg(test)]
mod tests;
