//! What tools of IBM MQ write, as commands of this language: what can be taken over, what can't, and why.
//!
//! [`policies`] reads `dspmqspl`, `dspmqspl -export` (its `setmqspl` lines) and DISPLAY POLICY; [`definitions`] reads
//! `dmpmqcfg`. Every command that comes out has been carried out on a queue manager that is nothing but its definitions
//! ([`Paper`]), so that one which would be refused is a note and no command. Nothing of the text is left out silently:
//! each thing is in a command or in a note.

mod definitions;
mod policies;
mod reasons;
mod setmqspl;
#[cfg(test)]
mod tests;

pub use definitions::definitions;
pub use policies::{Certificate, PolicyOptions, policies};

use super::reply::Outcome;
use super::run::{AdminError, Administered, Applied, Replay, Replayed, execute};
use bulla_catalog::status::QueueStatus;
use bulla_catalog::{Change, Definitions};
use std::fmt::{self, Write};

/// Most bytes of a text that is imported.
pub const IMPORT_BYTES_MAX: usize = 64 << 20;

/// Most things of a text that are looked at: commands, policies, and lines that are neither.
pub const ENTRIES_MAX: usize = 100_000;

/// What became of a text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Imported {
    /// Each thing of the text, in its order.
    pub entries: Vec<Entry>,
}

/// One thing of the text, and what became of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Entry {
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// What it is, as the text has it: `DEFINE QLOCAL('ORDERS')`.
    pub was: String,
    /// The commands that it becomes, each on one line; none where it is left out.
    pub commands: Vec<String>,
    /// What is not taken over, or not as it was.
    pub notes: Vec<Note>,
}

/// Why something is not taken over, or not as it was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// Attributes or values; empty where it is about the whole.
    pub about: Vec<String>,
    /// The reason, in one lower-case line.
    pub why: String,
    /// Whether something of it is missing in the commands.
    pub is_loss: bool,
}

/// How an entry came through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Everything is in its commands.
    Whole,
    /// It is in its commands, without what the notes say.
    InPart,
    /// It has no commands.
    LeftOut,
}

impl Entry {
    /// How it came through.
    pub fn fate(&self) -> Fate {
        match (self.commands.is_empty(), self.notes.iter().any(|note| note.is_loss)) {
            (true, _) => Fate::LeftOut,
            (false, true) => Fate::InPart,
            (false, false) => Fate::Whole,
        }
    }

    fn left_out(line: usize, was: impl Into<String>, why: impl Into<String>) -> Self {
        let mut entry = Self { line, was: was.into(), ..Self::default() };
        entry.lose(None, why);
        entry
    }

    /// Notes that something is missing; what has one reason is one note.
    fn lose(&mut self, about: Option<String>, why: impl Into<String>) {
        self.note(about, why.into(), true);
    }

    /// Notes something that is worth knowing and takes nothing away.
    fn tell(&mut self, about: Option<String>, why: impl Into<String>) {
        self.note(about, why.into(), false);
    }

    fn note(&mut self, about: Option<String>, why: String, is_loss: bool) {
        match self.notes.iter_mut().find(|note| note.why == why && note.is_loss == is_loss) {
            Some(note) => note.about.extend(about),
            None => self.notes.push(Note { about: about.into_iter().collect(), why, is_loss }),
        }
    }

    fn write(&self, f: &mut dyn Write) -> fmt::Result {
        let words = match self.fate() {
            Fate::LeftOut => "left out: ",
            Fate::InPart => "in part: ",
            Fate::Whole => "",
        };
        writeln!(f, "* line {}: {words}{}", self.line, self.was)?;
        for Note { about, why, .. } in &self.notes {
            wrapped(f, &if about.is_empty() { why.clone() } else { format!("{}: {why}", about.join(", ")) })?;
        }
        self.commands.iter().try_for_each(|command| writeln!(f, "{command}"))
    }
}

impl Imported {
    /// How many entries came through so.
    pub fn count(&self, fate: Fate) -> usize {
        self.entries.iter().filter(|entry| entry.fate() == fate).count()
    }

    /// The commands alone.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().flat_map(|entry| &entry.commands).map(String::as_str)
    }

    /// How much of it came through, in one line.
    pub fn summary(&self) -> String {
        let [whole, in_part, left_out] = [Fate::Whole, Fate::InPart, Fate::LeftOut].map(|fate| self.count(fate));
        format!("{} read: {whole} taken over, {in_part} in part, {left_out} left out", self.entries.len())
    }

    fn push(&mut self, entry: Entry) -> bool {
        let has_room = self.entries.len() < ENTRIES_MAX;
        self.entries.push(if has_room {
            entry
        } else {
            Entry::left_out(entry.line, "the rest", format!("there are more than {ENTRIES_MAX} things in the text"))
        });
        has_room
    }
}

/// Commands that can be given as they stand; what became of each thing is a comment before them.
impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "* {}", self.summary())?;
        self.entries.iter().try_for_each(|entry| entry.write(f))
    }
}

/// Most characters of a line of a comment, unless one word is longer.
const COMMENT_CHARS_MAX: usize = 120;

/// A note as comment lines. A line that begins with `*` is a comment whatever it ends in.
fn wrapped(f: &mut dyn Write, text: &str) -> fmt::Result {
    const BEGIN: &str = "*  ";
    let mut column = BEGIN.len();
    f.write_str(BEGIN)?;
    for word in text.split_whitespace() {
        let chars = word.chars().count() + 1;
        if column > BEGIN.len() && column + chars > COMMENT_CHARS_MAX {
            write!(f, "\n{BEGIN}  ")?;
            column = BEGIN.len() + 2;
        }
        write!(f, " {word}")?;
        column += chars;
    }
    writeln!(f)
}

/// A text as MQSC writes it in quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A queue manager that is nothing but its definitions: commands are tried on it.
struct Paper(Definitions);

impl Administered for Paper {
    fn definitions(&self) -> &Definitions {
        &self.0
    }

    fn apply(&mut self, change: Change) -> Result<Applied, AdminError> {
        self.0.apply(&change);
        Ok(Applied::default())
    }

    fn replay(&mut self, _replay: &Replay) -> Result<Replayed, AdminError> {
        Ok(Replayed::default())
    }

    fn queue_status(&self, name: &str) -> Option<QueueStatus> {
        self.0.queues.get(name).map(|_| QueueStatus::default())
    }
}

impl Paper {
    /// Carries one command out.
    ///
    /// # Errors
    /// Why it is refused; nothing is changed.
    fn carry_out(&mut self, command: &str) -> Result<Vec<String>, String> {
        match execute(command, self).into_iter().next().map(|reply| reply.outcome) {
            Some(Outcome::Done { warnings, .. }) => Ok(warnings),
            Some(Outcome::Failed(failure)) => Err(failure.message),
            _ => Err("it is no command".into()),
        }
    }
}
