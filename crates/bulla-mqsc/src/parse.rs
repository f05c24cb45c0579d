//! MQSC text to statements.
//!
//! The rules are MQSC's: `*` in column 1 makes a comment; `+` at the end of a line continues the command at the
//! next line's first character that is not blank, `-` at the next line's beginning; `;` ends a command before
//! its line does; text stands in single quotes, a quote in it is doubled; outside quotes letters are folded to upper
//! case.
//!
//! Text comes from people, files and sockets: whatever it holds, the answer is a [`SyntaxError`] with a place
//! and, where there is one, a hint. One bad command does not stop the next.

use super::table::{self, Attribute, Command, DN_CHARS_MAX, Key, Kind, NameUse};
use bulla_catalog::names::{NAME_CHARS_MAX, is_name};
use bulla_catalog::{addresses, authority, limits, names, topic_names};
use std::collections::HashSet;
use std::fmt::{self, Display, Write};

/// Most bytes of one piece of text: a file, or a request over the socket. As many queues as there may be
/// ([`OBJECTS_MAX`](bulla_catalog::OBJECTS_MAX)), each with every attribute, take 71 MB.
pub const TEXT_BYTES_MAX: usize = 256 << 20;
/// Most bytes of one command, its continued lines together.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Most commands of one piece of text.
pub const COMMANDS_MAX: usize = 1_000_000;

/// A place in the text, counted from 1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Character in the line.
    pub column: u32,
}

/// One command, understood as far as the table goes.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Where it begins.
    pub at: Position,
    /// What it is.
    pub command: &'static Command,
    /// What stood in the parentheses after the noun; empty where the command takes none.
    pub name: Pattern,
    /// The same as it was typed, where letters of it were folded to upper case because it stood without quotes.
    pub typed_name: Option<String>,
    /// Attributes with values, and options; each at most once.
    pub settings: Vec<Setting>,
    /// DISPLAY: what to show, in the order given.
    pub requested: Vec<&'static Attribute>,
    /// DISPLAY: what must fit.
    pub filter: Option<Filter>,
    /// HELP: about what; upper case.
    pub topic: Vec<String>,
}

impl Statement {
    /// The value of an attribute or option, when it was given.
    pub fn value(&self, key: Key) -> Option<&Value> {
        self.settings.iter().find(|setting| setting.attribute.key == key).map(|setting| &setting.value)
    }

    /// The role that it takes: its command's. A policy that is only proposed would open messages as no policy that is
    /// set does, so trying it takes all that setting it does.
    pub fn role(&self) -> authority::Role {
        if super::policy_check::proposes(self) { authority::Role::All } else { self.command.role() }
    }

    /// True when a switch or word was given as `word`.
    pub fn says(&self, key: Key, word: &str) -> bool {
        matches!(self.value(key), Some(Value::Word(given)) if *given == word)
    }
}

/// `DEFINE QLOCAL(ORDERS)`: how replies call the command.
impl Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.command)?;
        if self.command.name != NameUse::None {
            write!(f, "({})", self.name)?;
        }
        for word in &self.topic {
            write!(f, " {word}")?;
        }
        Ok(())
    }
}

impl Statement {
    /// The whole command as one could give it, but for its secrets: `DEFINE QLOCAL(ORDERS) MAXDEPTH(5000)`. For the
    /// audit log.
    pub fn without_secrets(&self) -> String {
        let mut text = self.to_string();
        for Setting { attribute, value, .. } in &self.settings {
            let keyword = attribute.keyword;
            // A string takes everything.
            let _ = match value {
                Value::Word(word) if matches!(attribute.kind, Kind::Switch(_)) => write!(text, " {word}"),
                Value::Word(word) if *word == keyword => write!(text, " {word}"),
                Value::Word(word) => write!(text, " {keyword}({word})"),
                Value::Number(number) => write!(text, " {keyword}({number})"),
                Value::Text(value) => write!(text, " {keyword}({})", in_quotes(&struck_out(value))),
                Value::List(values) => {
                    let values: Vec<String> = values.iter().map(|value| in_quotes(&struck_out(value))).collect();
                    write!(text, " {keyword}({})", values.join(","))
                }
            };
        }
        text
    }
}

fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The attributes of a PKCS#11 URI that hold or lead to a PIN (RFC 7512, section 2.4). Other secrets are given in
/// files.
const SECRETS: [&str; 2] = ["pin-value=", "pin-source="];

/// A text without the PIN of a PKCS#11 URI in it: such a command is refused, but it was given.
fn struck_out(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = lower.get(at..) {
        let found = SECRETS.iter().filter_map(|secret| rest.find(secret).map(|place| place + secret.len())).min();
        let Some(begin) = found.map(|place| at + place) else { break };
        let end =
            lower.get(begin..).and_then(|rest| rest.find([';', '&', '?'])).map_or(lower.len(), |length| begin + length);
        kept.push_str(text.get(at..begin).unwrap_or_default());
        kept.push_str("***");
        at = end;
    }
    kept.push_str(text.get(at..).unwrap_or_default());
    kept
}

/// An object name, or the beginning of many.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pattern {
    /// The name, or what the names begin with.
    pub stem: String,
    /// True when a `*` followed.
    pub generic: bool,
}

impl Pattern {
    /// True when `name` fits.
    pub fn fits(&self, name: &str) -> bool {
        if self.generic { name.starts_with(&self.stem) } else { name == self.stem }
    }

    fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(stem) => Self { stem: stem.into(), generic: true },
            None => Self { stem: text.into(), generic: false },
        }
    }

    /// Of objects whose names are patterns themselves: a `*` at the end is a part of the name that a command defines,
    /// and stands for any end where it shows or works on what there is.
    fn of_patterns(text: &str, command: &Command) -> Self {
        match command.act.is_definition() {
            true => Self { stem: text.into(), generic: false },
            false => Self::new(text),
        }
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stem)?;
        if self.generic { f.write_char('*') } else { Ok(()) }
    }
}

/// An attribute that was given.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Which.
    pub attribute: &'static Attribute,
    /// Its value, already within the table's bounds.
    pub value: Value,
    /// Where the attribute stands.
    pub at: Position,
}

/// A value within the table's bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// One of the table's words.
    Word(&'static str),
    /// A name or text; a blank one is empty.
    Text(String),
    /// Several names or texts.
    List(Vec<String>),
}

/// `WHERE(attribute operator value)`.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Which attribute.
    pub attribute: &'static Attribute,
    /// How it is compared.
    pub operator: Operator,
    /// With what; upper case unless quoted.
    pub value: String,
}

/// How WHERE compares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// Less than.
    Lt,
    /// Greater than.
    Gt,
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less or equal.
    Le,
    /// Greater or equal.
    Ge,
    /// Like: a value that ends in `*` fits whatever begins so.
    Lk,
    /// Not like.
    Nl,
    /// The list contains the value.
    Ct,
    /// The list does not contain the value.
    Ex,
}

impl Value {
    /// A number; 0 for anything else.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            _ => 0,
        }
    }

    /// One of the table's words; blank for anything else.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Value::Word(word) => word,
            _ => "",
        }
    }

    /// The entries of a list; none for anything else.
    pub(crate) fn list(&self) -> &[String] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }

    /// A name or text; blank for anything else.
    pub(crate) fn text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            _ => String::new(),
        }
    }
}

impl Operator {
    const ALL: [(&'static str, Operator); 10] = [
        ("LT", Operator::Lt),
        ("GT", Operator::Gt),
        ("EQ", Operator::Eq),
        ("NE", Operator::Ne),
        ("LE", Operator::Le),
        ("GE", Operator::Ge),
        ("LK", Operator::Lk),
        ("NL", Operator::Nl),
        ("CT", Operator::Ct),
        ("EX", Operator::Ex),
    ];
}

/// Understands `text`: each command in turn, or what is wrong with it.
pub fn statements(text: &str) -> Vec<Result<Statement, SyntaxError>> {
    each(text).collect()
}

/// Like [`statements`], one command understood at a time: a text of many takes no more memory than its longest one.
pub fn each(text: &str) -> impl Iterator<Item = Result<Statement, SyntaxError>> {
    let too_long = (text.len() > TEXT_BYTES_MAX).then(|| {
        let at = Position { line: 1, column: 1 };
        Err(SyntaxError { at, what: Fault::TextTooLong { bytes: text.len() } })
    });
    let text = if too_long.is_some() { "" } else { text };
    let understood = Sources::new(text).flat_map(|source| match source.and_then(|source| tokens(&source)) {
        Ok(tokens) => {
            let commands = tokens.split(|token| token.kind == TokenKind::Semicolon);
            let commands = commands.filter(|tokens| !tokens.is_empty());
            commands.map(|tokens| Parser { tokens, next: 0, likely: 0 }.statement()).collect()
        }
        Err(error) => vec![Err(error)],
    });
    let counted = understood.enumerate().map(|(place, found)| match (place, found) {
        (COMMANDS_MAX.., Ok(Statement { at, .. }) | Err(SyntaxError { at, .. })) => {
            Err(SyntaxError { at, what: Fault::TooManyCommands })
        }
        (_, found) => found,
    });
    too_long.into_iter().chain(counted.take(COMMANDS_MAX + 1))
}

/// What is wrong with a command, and where. The turn is with its author.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError {
    /// Where.
    pub at: Position,
    /// What.
    pub what: Fault,
}

/// What can be wrong with a command.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// More than [`TEXT_BYTES_MAX`].
    TextTooLong {
        /// How much there is.
        bytes: usize,
    },
    /// More than [`COMMANDS_MAX`]; none from there on is understood.
    TooManyCommands,
    /// More than [`COMMAND_BYTES_MAX`].
    CommandTooLong,
    /// The last line ends in `+` or `-`.
    NothingContinues,
    /// A quote was opened and not closed before the command ended.
    OpenQuote,
    /// A character that MQSC has no use for, or not there.
    Character {
        /// It.
        found: char,
    },
    /// No such command.
    Command {
        /// The words, as understood.
        found: String,
        /// The nearest command.
        nearest: Option<String>,
        /// What the verb goes with, if the verb is known.
        nouns: Vec<&'static str>,
    },
    /// The command needs a name in parentheses.
    NameMissing {
        /// The command.
        command: String,
    },
    /// Not a name.
    Name {
        /// What stands there.
        found: String,
    },
    /// A generic name where one object is meant.
    Generic {
        /// The command.
        command: String,
    },
    /// Something else was expected.
    Expected {
        /// What.
        wanted: String,
        /// After what.
        after: String,
    },
    /// The command has no such attribute.
    Attribute {
        /// The command.
        command: String,
        /// The word.
        found: String,
        /// The nearest one.
        nearest: Option<&'static str>,
    },
    /// Given twice.
    Twice {
        /// The attribute.
        keyword: &'static str,
    },
    /// Shown by DISPLAY, never set.
    ShownOnly {
        /// The attribute.
        keyword: &'static str,
    },
    /// The value is none of the words.
    Word {
        /// The attribute.
        keyword: &'static str,
        /// What was given.
        found: String,
        /// What may be given.
        choices: &'static [&'static str],
        /// The nearest.
        nearest: Option<&'static str>,
    },
    /// The value is known and refused.
    Refused {
        /// The attribute.
        keyword: &'static str,
        /// What was given.
        found: &'static str,
        /// Why it is refused.
        why: &'static str,
        /// What may be given.
        choices: &'static [&'static str],
    },
    /// The value is no number, or out of range.
    Number {
        /// The attribute.
        keyword: &'static str,
        /// What was given.
        found: String,
        /// Lowest.
        min: u64,
        /// Highest.
        max: u64,
    },
    /// The value is neither a number in range nor the word.
    NumberOr {
        /// The attribute.
        keyword: &'static str,
        /// What was given.
        found: String,
        /// Lowest.
        min: u64,
        /// Highest.
        max: u64,
        /// The word.
        word: &'static str,
    },
    /// The value is too long.
    Long {
        /// The attribute.
        keyword: &'static str,
        /// Characters given.
        chars: usize,
        /// Characters taken.
        chars_max: usize,
    },
    /// Text without quotes.
    Unquoted {
        /// The attribute.
        keyword: &'static str,
    },
    /// Empty where something must be.
    Empty {
        /// The attribute.
        keyword: &'static str,
    },
    /// Not a profile.
    Profile {
        /// What stands there.
        found: String,
    },
    /// Not a name for channels.
    Channels {
        /// What stands there.
        found: String,
    },
    /// Not a pattern for addresses.
    Address {
        /// What stands there.
        found: String,
        /// Why.
        why: authority::AddressError,
    },
    /// Not a topic.
    Topic {
        /// What stands there.
        found: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not a client's address.
    ClientAddress {
        /// What stands there.
        found: String,
    },
    /// Not a user's name.
    User {
        /// What stands there.
        found: String,
    },
    /// Not `QUEUE@QMGR`.
    Destination {
        /// What was given.
        found: String,
    },
    /// The operator of WHERE is none.
    Operator {
        /// What was given.
        found: String,
    },
    /// The operator of WHERE does not go with the attribute.
    Comparison {
        /// Why.
        why: &'static str,
    },
}

impl SyntaxError {
    /// What to try, where there is something.
    pub fn hint(&self) -> Option<String> {
        match &self.what {
            Fault::Attribute { nearest: Some(nearest), .. } | Fault::Word { nearest: Some(nearest), .. } => {
                Some(format!("did you mean {nearest}?"))
            }
            Fault::Command { nearest: Some(nearest), .. } => Some(format!("did you mean {nearest}?")),
            Fault::Command { found, nouns, .. } if !nouns.is_empty() => {
                let verb = found.split(' ').next().unwrap_or_default();
                Some(format!("{verb} goes with {}", nouns.join(", ")))
            }
            Fault::Command { .. } => Some("HELP lists the commands".into()),
            Fault::Attribute { command, .. } => Some(format!("HELP {command} lists its attributes")),
            Fault::Word { keyword, choices, .. } | Fault::Refused { keyword, choices, .. } => {
                Some(format!("{keyword} takes {}", choices.join(", ")))
            }
            Fault::Name { .. } => Some(format!("a name has 1 to {NAME_CHARS_MAX} letters, digits and . _ / %")),
            Fault::Profile { .. } => Some(
                "a profile has 1 to 48 letters, digits and . _ / %, with ? and * in qualifiers and at most one ** as one".into(),
            ),
            Fault::Channels { .. } => Some(format!(
                "1 to {} letters, digits and . _ / %, with * for any characters",
                authority::CHANNEL_PROFILE_CHARS_MAX
            )),
            Fault::ClientAddress { .. } => Some(format!(
                "an address has 1 to {} bytes, one * at most, no @ and no control characters",
                addresses::ADDRESS_BYTES_MAX
            )),
            Fault::User { .. } => Some(format!(
                "a user's name has 1 to {} letters, digits and . _ - @, a letter or digit first; in quotes it keeps its lower case",
                names::USER_NAME_BYTES_MAX
            )),
            Fault::Unquoted { keyword } => Some(format!("write {keyword}('…'), and double each quote inside")),
            Fault::OpenQuote => Some("a quote inside text is written twice: 'Bo''s queue'".into()),
            Fault::Character { found: '"' | '‘' | '’' | '“' | '”' } => {
                Some("text stands in single quotes: '…'".into())
            }
            Fault::Destination { .. } => Some("write QUEUE@QMGR".into()),
            Fault::Operator { .. } => Some(format!("operators are {}", Operator::ALL.map(|(word, _)| word).join(", "))),
            Fault::Generic { .. } => Some("a * is for DISPLAY".into()),
            Fault::NameMissing { command } => Some(format!("write {command}(NAME)")),
            _ => None,
        }
    }
}

impl std::error::Error for SyntaxError {}

/// One lower-case line, without the place: replies carry that beside it.
impl Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Fault::TextTooLong { bytes } => write!(f, "{bytes} bytes of text are more than {TEXT_BYTES_MAX}"),
            Fault::TooManyCommands => {
                write!(f, "there are more than {COMMANDS_MAX} commands: this and later ones are left out")
            }
            Fault::CommandTooLong => write!(f, "the command is longer than {COMMAND_BYTES_MAX} bytes"),
            Fault::NothingContinues => f.write_str("the text ends in a continued line"),
            Fault::OpenQuote => f.write_str("a quote is opened and not closed"),
            Fault::Character { found } => write!(f, "unexpected character {found:?}"),
            Fault::Command { found, .. } => write!(f, "there is no command {found}"),
            Fault::NameMissing { command } => write!(f, "{command} needs a name"),
            Fault::Name { found } => write!(f, "{found:?} is not a name"),
            Fault::Generic { command } => write!(f, "{command} takes one name, not a generic one"),
            Fault::Expected { wanted, after } => write!(f, "expected {wanted} after {after}"),
            Fault::Attribute { command, found, .. } => write!(f, "{command} has no attribute {found}"),
            Fault::Twice { keyword } => write!(f, "{keyword} is given twice"),
            Fault::ShownOnly { keyword } => write!(f, "{keyword} can be shown, not set"),
            Fault::Word { keyword, found, .. } => write!(f, "{keyword} cannot be {found}"),
            Fault::Refused { keyword, found, why, .. } => write!(f, "{keyword}({found}) is not offered: {why}"),
            Fault::Number { keyword, found, min, max } => {
                write!(f, "{keyword} takes a number from {min} to {max}, not {found}")
            }
            Fault::NumberOr { keyword, found, min, max, word } => {
                write!(f, "{keyword} takes a number from {min} to {max} or {word}, not {found}")
            }
            Fault::Long { keyword, chars, chars_max } => {
                write!(f, "{keyword} takes {chars_max} characters, not {chars}")
            }
            Fault::Unquoted { keyword } => write!(f, "{keyword} takes text in quotes"),
            Fault::Empty { keyword } => write!(f, "{keyword} cannot be empty"),
            Fault::Profile { found } => write!(f, "{found:?} is not a profile"),
            Fault::Channels { found } => write!(f, "{found:?} does not name channels"),
            Fault::Address { found, why } => write!(f, "{found:?} is not an address: {why}"),
            Fault::User { found } => write!(f, "{found:?} is not a user's name"),
            Fault::ClientAddress { found } => write!(f, "{found:?} is not an address"),
            Fault::Topic { found, why } => write!(f, "the topic {found:?} {why}"),
            Fault::Destination { found } => write!(f, "{found:?} is not a destination"),
            Fault::Operator { found } => write!(f, "WHERE has no operator {found}"),
            Fault::Comparison { why } => f.write_str(why),
        }
    }
}

/// The nearest of `known` to `word`, if it is near enough to have been meant.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const WORD_CHARS_MAX: usize = 32; // the comparison is quadratic; nothing in the table is longer
    /// Words of three letters are one edit from too many others: GPU is no misspelt CPU.
    const WORD_CHARS_MIN: usize = 4;
    let count = word.chars().count();
    if !(WORD_CHARS_MIN..=WORD_CHARS_MAX).contains(&count) {
        return None;
    }
    let near = |candidate: &&str| distance(word, candidate);
    let best = known.into_iter().min_by_key(near)?;
    (distance(word, best) <= 1 + count / 4).then_some(best)
}

/// Edits between two words: insert, delete, replace, and swap two neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut rows = vec![0usize; (a.len() + 1) * width];
    let at = |row: usize, column: usize| row * width + column;
    for row in 0..=a.len() {
        for column in 0..=b.len() {
            let edits = if row == 0 || column == 0 {
                row + column
            } else {
                let same = a[row - 1] == b[column - 1];
                let mut edits = (rows[at(row - 1, column)] + 1)
                    .min(rows[at(row, column - 1)] + 1)
                    .min(rows[at(row - 1, column - 1)] + usize::from(!same));
                if row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1] {
                    edits = edits.min(rows[at(row - 2, column - 2)] + 1);
                }
                edits
            };
            rows[at(row, column)] = edits;
        }
    }
    rows[at(a.len(), b.len())]
}

/// A command's characters, continued lines joined, and where each piece came from.
struct Source {
    text: String,
    /// (offset in `text`, place of the character there); at least one, offsets grow.
    pieces: Vec<(usize, Position)>,
}

impl Source {
    fn at(&self, offset: usize) -> Position {
        let index = self.pieces.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
        let Some((start, place)) = self.pieces.get(index) else { return Position::default() };
        let chars = self.text.get(*start..offset).map_or(0, |text| text.chars().count());
        Position { line: place.line, column: place.column.saturating_add(u32::try_from(chars).unwrap_or(u32::MAX)) }
    }
}

/// Joins continued lines and leaves out comments and blank lines.
/// The commands of a text, their continued lines joined.
struct Sources<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    open: Option<Source>,
    /// The line before ended in `+`, or is none of this command's.
    skip_blanks: bool,
}

impl<'a> Sources<'a> {
    fn new(text: &'a str) -> Self {
        Self { lines: text.lines().enumerate(), open: None, skip_blanks: true }
    }
}

impl Iterator for Sources<'_> {
    type Item = Result<Source, SyntaxError>;

    fn next(&mut self) -> Option<Self::Item> {
        for (index, line) in self.lines.by_ref() {
            let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
            let body = line.trim_end();
            if line.starts_with('*') || body.is_empty() {
                continue;
            }
            let (body, continues, keep_next) = match body.as_bytes().last() {
                Some(b'+') => (&body[..body.len() - 1], true, false),
                Some(b'-') => (&body[..body.len() - 1], true, true),
                _ => (body, false, false),
            };
            let part = if self.skip_blanks { body.trim_start() } else { body };
            let blanks = body.chars().count() - part.chars().count();
            let source = self.open.get_or_insert_with(|| Source { text: String::new(), pieces: Vec::new() });
            let column = u32::try_from(blanks).unwrap_or(u32::MAX).saturating_add(1);
            source.pieces.push((source.text.len(), Position { line: number, column }));
            // Beyond the limit the rest is not kept, and the error is given at the command's end.
            if source.text.len() <= COMMAND_BYTES_MAX {
                source.text.push_str(part);
            }
            self.skip_blanks = !keep_next;
            if !continues {
                self.skip_blanks = true;
                return self.open.take().map(finished);
            }
        }
        let source = self.open.take()?;
        let at = source.at(source.text.len());
        Some(Err(SyntaxError { at, what: Fault::NothingContinues }))
    }
}

fn finished(source: Source) -> Result<Source, SyntaxError> {
    if source.text.len() > COMMAND_BYTES_MAX {
        return Err(SyntaxError { at: source.at(0), what: Fault::CommandTooLong });
    }
    Ok(source)
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum TokenKind {
    /// Folded to upper case.
    Word(String),
    /// As it stands, quotes removed.
    Quoted(String),
    Open,
    Close,
    Comma,
    Semicolon,
}

#[derive(Debug)]
struct Token {
    kind: TokenKind,
    at: Position,
    /// The word as it was typed, where letters of it were folded to upper case.
    typed: Option<String>,
}

/// For messages.
impl Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenKind::Word(word) => f.write_str(&shortened(word)),
            TokenKind::Quoted(text) => write!(f, "'{}'", shortened(text)),
            TokenKind::Open => f.write_str("'('"),
            TokenKind::Close => f.write_str("')'"),
            TokenKind::Comma => f.write_str("','"),
            TokenKind::Semicolon => f.write_str("';'"),
        }
    }
}

/// A word or text is shown in a message up to here.
const SHOWN_CHARS_MAX: usize = 64;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

fn tokens(source: &Source) -> Result<Vec<Token>, SyntaxError> {
    let mut found = Vec::new();
    let mut rest = source.text.char_indices().peekable();
    let mut columns = Columns::new(source);
    while let Some((offset, first)) = rest.next() {
        let at = columns.at(offset);
        let error = |what| Err(SyntaxError { at, what });
        let mut typed = None;
        let kind = match first {
            ' ' | '\t' => continue,
            '(' => TokenKind::Open,
            ')' => TokenKind::Close,
            ',' => TokenKind::Comma,
            ';' => TokenKind::Semicolon,
            '\'' => {
                let mut text = String::new();
                loop {
                    match rest.next() {
                        Some((_, '\'')) if rest.next_if(|(_, next)| *next == '\'').is_some() => text.push('\''),
                        Some((_, '\'')) => break,
                        Some((_, found)) if found.is_control() => return error(Fault::Character { found }),
                        Some((_, found)) => text.push(found),
                        None => return error(Fault::OpenQuote),
                    }
                }
                TokenKind::Quoted(text)
            }
            first if is_word(first) => {
                let mut word = String::from(first);
                while let Some((_, next)) = rest.next_if(|(_, next)| is_word(*next)) {
                    word.push(next);
                }
                let folded = word.to_ascii_uppercase();
                typed = (folded != word).then_some(word);
                TokenKind::Word(folded)
            }
            found => return error(Fault::Character { found }),
        };
        found.push(Token { kind, at, typed });
    }
    Ok(found)
}

/// Printable ASCII that has no meaning of its own; what a value makes of it is the table's business.
fn is_word(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '(' | ')' | ',' | ';' | '\'' | '"')
}

/// Places of growing offsets, each character counted once.
struct Columns<'a> {
    source: &'a Source,
    piece: usize,
    offset: usize,
    place: Position,
}

impl<'a> Columns<'a> {
    fn new(source: &'a Source) -> Self {
        Self { source, piece: 0, offset: 0, place: source.at(0) }
    }

    fn at(&mut self, offset: usize) -> Position {
        while let Some((start, place)) = self.source.pieces.get(self.piece + 1)
            && *start <= offset
        {
            self.piece += 1;
            self.offset = *start;
            self.place = *place;
        }
        let chars = self.source.text.get(self.offset..offset).map_or(0, |text| text.chars().count());
        self.place.column = self.place.column.saturating_add(u32::try_from(chars).unwrap_or(u32::MAX));
        self.offset = offset;
        self.place
    }
}

/// Attributes behind the last one that are looked at before all.
const LOOK_AHEAD: usize = 4;

/// Reads the tokens of one command; there is at least one.
struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    /// Which of the command's attributes is likely to come: the one behind the last.
    likely: usize,
}

impl<'a> Parser<'a> {
    fn statement(mut self) -> Result<Statement, SyntaxError> {
        let at = self.here();
        let command = self.command()?;
        let mut statement = Statement {
            at,
            command,
            name: Pattern::default(),
            typed_name: None,
            settings: Vec::new(),
            requested: Vec::new(),
            filter: None,
            topic: Vec::new(),
        };
        if command.act == table::Act::Does(table::Doing::Help) {
            while self.next < self.tokens.len() {
                let Some(TokenKind::Word(word)) = self.peek_kind() else { return Err(self.expected("a word")) };
                statement.topic.push(word.clone());
                self.next += 1;
            }
            return Ok(statement);
        }
        if command.name != NameUse::None {
            let typed = self.tokens.get(self.next + 1).and_then(|token| token.typed.clone());
            statement.name = self.name(command)?;
            statement.typed_name = typed;
        }
        while self.next < self.tokens.len() {
            self.attribute(&mut statement)?;
        }
        Ok(statement)
    }

    fn command(&mut self) -> Result<&'static Command, SyntaxError> {
        let at = self.here();
        let Some(TokenKind::Word(first)) = self.peek_kind() else { return Err(self.expected("a command")) };
        self.next += 1;
        let verb = table::verb(first);
        if let Some(command) = verb.and_then(|verb| table::command(verb, "")) {
            return Ok(command);
        }
        let second = match self.peek_kind() {
            Some(TokenKind::Word(word)) => word.clone(),
            _ => String::new(),
        };
        let noun = table::noun(&second);
        if let (Some(verb), Some(noun)) = (verb, noun)
            && let Some(command) = table::command(verb, noun)
        {
            self.next += 1;
            return Ok(command);
        }
        let nouns = verb.map(nouns_of).unwrap_or_default();
        let found = shortened(format!("{} {}", verb.unwrap_or(first), noun.unwrap_or(&second)).trim_end());
        let nearest = match (verb, noun) {
            (None, _) => nearest_verb(first).and_then(|verb| match noun {
                Some(noun) => table::command(verb, noun).map(ToString::to_string),
                None => Some(verb.into()),
            }),
            (Some(verb), None) => nearest(&second, nouns.iter().copied()).map(|noun| format!("{verb} {noun}")),
            (Some(_), Some(_)) => None,
        };
        Err(SyntaxError { at, what: Fault::Command { found, nearest, nouns } })
    }

    /// `(NAME)` or `(STEM*)`.
    fn name(&mut self, command: &'static Command) -> Result<Pattern, SyntaxError> {
        if self.peek_kind() != Some(&TokenKind::Open) {
            return Err(SyntaxError { at: self.here(), what: Fault::NameMissing { command: command.to_string() } });
        }
        self.next += 1;
        let (text, at) = self.text("a name")?;
        if command.name == NameUse::Channels {
            if !authority::is_channel_profile(text.trim_end()) {
                return Err(SyntaxError { at, what: Fault::Channels { found: shortened(&text) } });
            }
            self.close()?;
            return Ok(Pattern { stem: text.trim_end().into(), generic: false });
        }
        if command.name == NameUse::Users {
            if !limits::is_user_pattern(text.trim_end()) {
                return Err(SyntaxError { at, what: Fault::User { found: shortened(&text) } });
            }
            self.close()?;
            return Ok(Pattern::of_patterns(text.trim_end(), command));
        }
        if command.name == NameUse::Addresses {
            if !addresses::is_address_pattern(text.trim_end()) {
                return Err(SyntaxError { at, what: Fault::ClientAddress { found: shortened(&text) } });
            }
            self.close()?;
            return Ok(Pattern::of_patterns(text.trim_end(), command));
        }
        if command.name == NameUse::Topics {
            if let Err(why) = topic_names::check_pattern(text.trim_end()) {
                return Err(SyntaxError { at, what: Fault::Topic { found: shortened(&text), why } });
            }
            self.close()?;
            return Ok(Pattern { stem: text.trim_end().into(), generic: false });
        }
        let pattern = Pattern::new(text.trim_end());
        if pattern.generic && command.name != NameUse::Generic {
            return Err(SyntaxError { at, what: Fault::Generic { command: command.to_string() } });
        }
        let everything = pattern.generic && pattern.stem.is_empty();
        if !(everything || command.takes_name(&pattern.stem, pattern.generic)) {
            return Err(SyntaxError { at, what: Fault::Name { found: shortened(&text) } });
        }
        self.close()?;
        Ok(pattern)
    }

    fn attribute(&mut self, statement: &mut Statement) -> Result<(), SyntaxError> {
        let command = statement.command;
        let at = self.here();
        let Some(TokenKind::Word(word)) = self.peek_kind() else { return Err(self.expected("an attribute")) };
        self.next += 1;
        let Some(attribute) = self.known(command, word) else {
            let nearest = nearest(word, command.words());
            let what = Fault::Attribute { command: command.to_string(), found: shortened(word), nearest };
            return Err(SyntaxError { at, what });
        };
        if command.is_display() && attribute.key == Key::Where {
            if statement.filter.is_some() {
                return Err(SyntaxError { at, what: Fault::Twice { keyword: attribute.keyword } });
            }
            statement.filter = Some(self.filter(command)?);
            return Ok(());
        }
        let is_option = command.options.iter().any(|option| option.key == attribute.key);
        if command.is_display() && !is_option {
            if !statement.requested.iter().any(|requested| requested.key == attribute.key) {
                statement.requested.push(attribute);
            }
            return Ok(());
        }
        let value = self.value(attribute, word, at)?;
        match statement.settings.iter_mut().find(|setting| setting.attribute.key == attribute.key) {
            None => statement.settings.push(Setting { attribute, value, at }),
            Some(Setting { value: Value::List(list), .. }) if matches!(attribute.kind, Kind::DistinguishedNames) => {
                if let Value::List(more) = value {
                    list.extend(more);
                }
            }
            Some(_) => return Err(SyntaxError { at, what: Fault::Twice { keyword: attribute.keyword } }),
        }
        Ok(())
    }

    /// The option or attribute of that word. Texts of the program have attributes in the table's order, and a start
    /// reads a hundred thousand definitions: those that come next are looked at first.
    fn known(&mut self, command: &Command, word: &str) -> Option<&'static Attribute> {
        let mut next = command.attributes.iter().copied().enumerate().skip(self.likely).take(LOOK_AHEAD);
        match next.find(|(_, attribute)| attribute.keyword == word) {
            Some((at, attribute)) => {
                self.likely = at + 1;
                Some(attribute)
            }
            None => command.attribute(word),
        }
    }

    /// What follows the attribute's word, which is `word` and stands at `at`.
    fn value(&mut self, attribute: &'static Attribute, word: &str, at: Position) -> Result<Value, SyntaxError> {
        let keyword = attribute.keyword;
        let wrong = |at, what| Err(SyntaxError { at, what });
        if let Kind::Switch(states) = &attribute.kind {
            return match states.iter().find(|state| **state == word) {
                Some(state) => Ok(Value::Word(state)),
                None => wrong(at, Fault::Expected { wanted: states.join(" or "), after: "the command".into() }),
            };
        }
        if matches!(attribute.kind, Kind::Shown) {
            return wrong(at, Fault::ShownOnly { keyword });
        }
        if self.peek_kind() != Some(&TokenKind::Open) {
            return Err(self.expected("'('"));
        }
        self.next += 1;
        let value = match &attribute.kind {
            Kind::Number { min, max } => {
                let (text, at) = self.text("a number")?;
                match number(&text) {
                    Some(value) if (*min..=*max).contains(&value) => Value::Number(value),
                    _ => return wrong(at, Fault::Number { keyword, found: shortened(&text), min: *min, max: *max }),
                }
            }
            Kind::Reuse { max } => {
                let (text, at) = self.text("a number")?;
                match (text.as_str(), number(&text)) {
                    ("DISABLED", _) => Value::Number(0),
                    ("UNLIMITED" | "*", _) => Value::Word("UNLIMITED"),
                    (_, Some(value)) if value <= *max => Value::Number(value),
                    _ => return wrong(at, Fault::Number { keyword, found: shortened(&text), min: 0, max: *max }),
                }
            }
            Kind::NumberOr { min, max, word } => {
                let (text, at) = self.text("a number")?;
                match number(&text) {
                    Some(value) if (*min..=*max).contains(&value) => Value::Number(value),
                    _ if text == *word => Value::Word(word),
                    _ => {
                        let found = shortened(&text);
                        return wrong(at, Fault::NumberOr { keyword, found, min: *min, max: *max, word });
                    }
                }
            }
            Kind::Word { choices, refused } => Value::Word(self.word(keyword, choices, refused)?),
            Kind::Words { choices, refused } => {
                Value::List(self.list(|parser| parser.word(keyword, choices, refused).map(str::to_owned))?)
            }
            Kind::Names => Value::List(self.list(|parser| {
                let (text, at) = parser.text("a name")?;
                let name = text.trim_end();
                if is_name(name) {
                    return Ok(name.to_owned());
                }
                Err(SyntaxError { at, what: Fault::Name { found: shortened(name) } })
            })?),
            Kind::Profile => {
                let (text, at) = self.text("a profile")?;
                if !authority::is_profile(text.trim_end()) {
                    return wrong(at, Fault::Profile { found: shortened(&text) });
                }
                Value::Text(text.trim_end().into())
            }
            Kind::Address => Value::Text(self.address()?),
            Kind::Addresses => Value::List(self.list(Self::address)?),
            Kind::Users { blank: true, .. } if self.is_blank() => {
                self.next += 1;
                Value::List(Vec::new())
            }
            Kind::Users { special, .. } => Value::List(self.list(|parser| {
                let (text, at) = parser.text("a user's name")?;
                let is_special = *special && [authority::SIGNED_IN, authority::ANONYMOUS].contains(&text.as_str());
                if is_special || names::is_user_name(&text) {
                    return Ok(text);
                }
                Err(SyntaxError { at, what: Fault::User { found: shortened(&text) } })
            })?),
            Kind::Name { optional } => {
                let (text, at) = self.text("a name")?;
                let name = text.trim_end();
                if !(is_name(name) || *optional && name.is_empty()) {
                    return wrong(at, Fault::Name { found: shortened(name) });
                }
                Value::Text(name.into())
            }
            Kind::Text { chars_max } => {
                let (text, at) = self.quoted(keyword)?;
                // MQ pads descriptions with blanks: those at the end mean nothing.
                let text = text.trim_end();
                let chars = text.chars().count();
                if chars > *chars_max {
                    return wrong(at, Fault::Long { keyword, chars, chars_max: *chars_max });
                }
                Value::Text(text.into())
            }
            Kind::Destinations => {
                let mut list = Vec::new();
                loop {
                    let (text, at) = self.text("QUEUE@QMGR")?;
                    match text.split_once('@') {
                        Some((queue, manager)) if is_name(queue) && is_name(manager) => list.push(text),
                        _ => return wrong(at, Fault::Destination { found: shortened(&text) }),
                    }
                    if !self.comma() {
                        break Value::List(list);
                    }
                }
            }
            Kind::DistinguishedNames => {
                let mut list = Vec::new();
                loop {
                    let (text, at) = self.quoted(keyword)?;
                    let chars = text.chars().count();
                    if chars > DN_CHARS_MAX {
                        return wrong(at, Fault::Long { keyword, chars, chars_max: DN_CHARS_MAX });
                    }
                    if text.is_empty() {
                        return wrong(at, Fault::Empty { keyword });
                    }
                    list.push(text);
                    if !self.comma() {
                        break Value::List(list);
                    }
                }
            }
            Kind::Switch(_) | Kind::Shown | Kind::Filter => return wrong(at, Fault::ShownOnly { keyword }),
        };
        self.close()?;
        Ok(value)
    }

    /// A pattern for addresses.
    fn address(&mut self) -> Result<String, SyntaxError> {
        let (text, at) = self.text("an address")?;
        match authority::AddressPattern::parse(&text) {
            Ok(_) => Ok(text),
            Err(why) => Err(SyntaxError { at, what: Fault::Address { found: shortened(&text), why } }),
        }
    }

    /// One of the table's words.
    fn word(
        &mut self,
        keyword: &'static str,
        choices: &'static [&'static str],
        refused: &'static [(&'static str, &'static str)],
    ) -> Result<&'static str, SyntaxError> {
        let (text, at) = self.text(&choices.join(" or "))?;
        if let Some(choice) = choices.iter().find(|choice| **choice == text) {
            return Ok(choice);
        }
        if let Some((found, why)) = refused.iter().find(|(word, _)| *word == text) {
            return Err(SyntaxError { at, what: Fault::Refused { keyword, found, why, choices } });
        }
        let nearest = nearest(&text, choices.iter().copied());
        Err(SyntaxError { at, what: Fault::Word { keyword, found: shortened(&text), choices, nearest } })
    }

    /// At least one, with commas between; what is given twice stands once.
    fn list(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<String, SyntaxError>,
    ) -> Result<Vec<String>, SyntaxError> {
        let (mut list, mut seen) = (Vec::new(), HashSet::new());
        loop {
            let entry = one(self)?;
            if seen.insert(entry.clone()) {
                list.push(entry);
            }
            if !self.comma() {
                return Ok(list);
            }
        }
    }

    /// Whether the next token is `' '`.
    fn is_blank(&self) -> bool {
        matches!(self.peek_kind(), Some(TokenKind::Quoted(text)) if text.trim().is_empty())
    }

    /// What follows `WHERE`.
    fn filter(&mut self, command: &'static Command) -> Result<Filter, SyntaxError> {
        if self.peek_kind() != Some(&TokenKind::Open) {
            return Err(self.expected("'('"));
        }
        self.next += 1;
        let (word, at) = self.text("an attribute")?;
        let Some(attribute) = command.attributes.iter().copied().find(|attribute| attribute.answers_to(&word)) else {
            let known = command.attributes.iter().map(|attribute| attribute.keyword);
            let nearest = nearest(&word, known);
            return Err(SyntaxError {
                at,
                what: Fault::Attribute { command: command.to_string(), found: shortened(&word), nearest },
            });
        };
        let (word, at) = self.text("an operator")?;
        let Some((_, operator)) = Operator::ALL.into_iter().find(|(known, _)| *known == word) else {
            return Err(SyntaxError { at, what: Fault::Operator { found: shortened(&word) } });
        };
        let (value, _) = self.text("a value")?;
        self.close()?;
        let list = matches!(
            attribute.kind,
            Kind::DistinguishedNames
                | Kind::Destinations
                | Kind::Words { .. }
                | Kind::Users { .. }
                | Kind::Names
                | Kind::Addresses
        );
        let why = match operator {
            Operator::Ct | Operator::Ex if !list => Some("CT and EX are for lists"),
            Operator::Ct | Operator::Ex => None,
            _ if list => Some("a list is compared with CT or EX"),
            Operator::Lk | Operator::Nl if matches!(attribute.kind, Kind::Number { .. }) => {
                Some("LK and NL are for names and text")
            }
            _ => None,
        };
        match why {
            Some(why) => Err(SyntaxError { at, what: Fault::Comparison { why } }),
            None => Ok(Filter { attribute, operator, value }),
        }
    }

    /// A word or quoted text.
    fn text(&mut self, wanted: &str) -> Result<(String, Position), SyntaxError> {
        let at = self.here();
        match self.peek_kind() {
            Some(TokenKind::Word(text) | TokenKind::Quoted(text)) => {
                self.next += 1;
                Ok((text.clone(), at))
            }
            _ => Err(self.expected(wanted)),
        }
    }

    fn quoted(&mut self, keyword: &'static str) -> Result<(String, Position), SyntaxError> {
        let at = self.here();
        match self.peek_kind() {
            Some(TokenKind::Quoted(text)) => {
                self.next += 1;
                Ok((text.clone(), at))
            }
            // A single word needs no quotes in MQSC; it is folded like any other.
            Some(TokenKind::Word(text)) if keyword == "DESCR" && self.kind_after_next() == Some(&TokenKind::Close) => {
                self.next += 1;
                Ok((text.clone(), at))
            }
            Some(TokenKind::Word(_)) => Err(SyntaxError { at, what: Fault::Unquoted { keyword } }),
            _ => Err(self.expected("text in quotes")),
        }
    }

    fn comma(&mut self) -> bool {
        let found = self.peek_kind() == Some(&TokenKind::Comma);
        self.next += usize::from(found);
        found
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        if self.peek_kind() != Some(&TokenKind::Close) {
            return Err(self.expected("')'"));
        }
        self.next += 1;
        Ok(())
    }

    fn peek_kind(&self) -> Option<&'a TokenKind> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    fn kind_after_next(&self) -> Option<&'a TokenKind> {
        self.tokens.get(self.next + 1).map(|token| &token.kind)
    }

    /// Place of the next token, or of the last one at the end.
    fn here(&self) -> Position {
        self.tokens.get(self.next).or(self.tokens.last()).map(|token| token.at).unwrap_or_default()
    }

    /// The next token is not `wanted`; says after what.
    fn expected(&self, wanted: &str) -> SyntaxError {
        let before = self.next.checked_sub(1).and_then(|index| self.tokens.get(index));
        let after = before.map_or_else(|| "the beginning".into(), |token| token.kind.to_string());
        SyntaxError { at: self.here(), what: Fault::Expected { wanted: wanted.into(), after } }
    }
}

fn nouns_of(verb: &'static str) -> Vec<&'static str> {
    table::commands().filter(|command| command.verb == verb).map(|command| command.noun).collect()
}

fn nearest_verb(word: &str) -> Option<&'static str> {
    nearest(word, table::VERBS.iter().map(|(verb, _)| *verb))
}

/// Digits only: MQSC knows no signs.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::commands;

    #[test]
    fn another_word_is_named_where_it_is_likely_to_be_meant() {
        let types = ["CPU", "SOFTWARE", "ACCELERATOR", "COPROCESSOR", "MODELLED"];
        for (word, meant) in [
            ("GPU", None),
            ("CPUS", Some("CPU")),
            ("SOFTWRE", Some("SOFTWARE")),
            ("ACELERATOR", Some("ACCELERATOR")),
            ("CRYPTO", None),
        ] {
            assert_eq!(nearest(word, types), meant, "{word}");
        }
        let hint = format!("TYPE takes {}", types.join(", "));
        check("DEFINE DEVICE(A) TYPE(GPU)", "1:23", "TYPE cannot be GPU", &hint);
    }

    fn one(text: &str) -> Result<Statement, SyntaxError> {
        let mut found = statements(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        found.pop().unwrap()
    }

    /// `text` is refused at `line:column` with this message, and this hint unless empty.
    fn check(text: &str, place: &str, message: &str, hint: &str) {
        let error = one(text).unwrap_err();
        assert_eq!(format!("{}:{}", error.at.line, error.at.column), place, "{text}");
        assert_eq!(error.to_string(), message, "{text}");
        assert_eq!(error.hint().unwrap_or_default(), hint, "{text}");
    }

    fn text(statement: &Statement, key: Key) -> String {
        match statement.value(key) {
            Some(Value::Text(text)) => text.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_example_parses() {
        for command in commands() {
            for example in command.examples {
                let statement = one(example).unwrap_or_else(|error| panic!("{example}: {error}"));
                assert_eq!(statement.command.act, command.act);
            }
        }
    }

    #[test]
    fn letters_fold_outside_quotes_only() {
        let statement = one("define qlocal(orders) descr('Bo''s') get(disabled)").unwrap();
        assert_eq!(statement.to_string(), "DEFINE QLOCAL(ORDERS)");
        assert_eq!(text(&statement, Key::Description), "Bo's");
        assert!(statement.says(Key::Get, "DISABLED"));
        assert_eq!(one("dis ql('orders.eu')").unwrap().name.stem, "orders.eu");
        assert_eq!(one("DIS Q('orders*')").unwrap().name, Pattern { stem: "orders".into(), generic: true });
    }

    #[test]
    fn plus_skips_blanks_and_minus_keeps_them() {
        let statement = one("DEFINE QLOCAL(A) DESCR('one+\n   two-\n   three')").unwrap();
        assert_eq!(text(&statement, Key::Description), "onetwo   three");
        let statement = one("DEFINE QL(ORD+\n* a comment between\n\n  ERS) +\n  MAXDEPTH(7)").unwrap();
        assert_eq!(statement.name.stem, "ORDERS");
        assert_eq!(statement.value(Key::Own("MAXDEPTH")), Some(&Value::Number(7)));
    }

    #[test]
    fn commands_end_with_their_line_or_a_semicolon() {
        let found = statements("* first\r\nDIS QMGR; DIS Q(*) ;\r\n\r\n  CLEAR QL(A);DESCR\nDIS QMGR");
        let found: Vec<_> =
            found.iter().map(|found| found.as_ref().map(ToString::to_string).map_err(|error| error.at)).collect();
        let wrong = Position { line: 4, column: 15 };
        let right = |text: &str| Ok(text.to_string());
        assert_eq!(
            found,
            [
                right("DISPLAY QMGR"),
                right("DISPLAY QUEUE(*)"),
                right("CLEAR QLOCAL(A)"),
                Err(wrong),
                right("DISPLAY QMGR")
            ]
        );
        assert!(statements(" ;; \n*").is_empty());
        assert_eq!(text(&one("DEF QL(A) DESCR('a; b')").unwrap(), Key::Description), "a; b");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_a_hint() {
        check(
            "DEFINE QLOCAL(ORDERS) MAXDEPHT(5000)",
            "1:23",
            "DEFINE QLOCAL has no attribute MAXDEPHT",
            "did you mean MAXDEPTH?",
        );
        check("DEFINE QLOCAL(A B)", "1:17", "expected ')' after A", "");
        check("DEFINE QLOCAL(A", "1:15", "expected ')' after A", "");
        check("DEFINE QLOCAL", "1:8", "DEFINE QLOCAL needs a name", "write DEFINE QLOCAL(NAME)");
        check("DEFINE QLOCAL()", "1:15", "expected a name after '('", "");
        check("DEFINE QLOCAL(A-B)", "1:15", "\"A-B\" is not a name", "a name has 1 to 48 letters, digits and . _ / %");
        check("DEFINE QLOCAL(A*)", "1:15", "DEFINE QLOCAL takes one name, not a generic one", "a * is for DISPLAY");
        check("DEFINE QLOKAL(A)", "1:1", "there is no command DEFINE QLOKAL", "did you mean DEFINE QLOCAL?");
        check("DEFNE QLOCAL(A)", "1:1", "there is no command DEFNE QLOCAL", "did you mean DEFINE QLOCAL?");
        check(
            "SET QLOCAL(A)",
            "1:1",
            "there is no command SET QLOCAL",
            "SET goes with POLICY, AUTHREC, CHLAUTH, ADDRMAP, LIMIT",
        );
        check("STRMQM", "1:1", "there is no command STRMQM", "HELP lists the commands");
        check("PING QLOCAL(A)", "1:1", "there is no command PING QLOCAL", "PING goes with CHANNEL, QMGR");
        check(
            "DEFINE QLOCAL(A) MAXDEPTH(1000000000)",
            "1:27",
            "MAXDEPTH takes a number from 0 to 999999999, not 1000000000",
            "",
        );
        check("DEFINE QLOCAL(A) MAXDEPTH(-1)", "1:27", "MAXDEPTH takes a number from 0 to 999999999, not -1", "");
        check("DEFINE QLOCAL(A) MAXDEPTH(1) MAXDEPTH(2)", "1:30", "MAXDEPTH is given twice", "");
        check("DEFINE QLOCAL(A) MAXDEPTH", "1:18", "expected '(' after MAXDEPTH", "");
        check("DEFINE QLOCAL(A) GET(DISABLE)", "1:22", "GET cannot be DISABLE", "did you mean DISABLED?");
        check(
            "DEFINE QLOCAL(A) MSGDLVSQ(RANDOM)",
            "1:27",
            "MSGDLVSQ cannot be RANDOM",
            "MSGDLVSQ takes PRIORITY, FIFO",
        );
        check(
            "DEFINE QLOCAL(A) DESCR(two words)",
            "1:24",
            "DESCR takes text in quotes",
            "write DESCR('…'), and double each quote inside",
        );
        check(
            "DEFINE QLOCAL(A) DESCR('open",
            "1:24",
            "a quote is opened and not closed",
            "a quote inside text is written twice: 'Bo''s queue'",
        );
        check(
            "DEFINE QLOCAL(A) DESCR(\"x\")",
            "1:24",
            "unexpected character '\"'",
            "text stands in single quotes: '…'",
        );
        check(
            "DEFINE QLOCAL(A) CURDEPTH(3)",
            "1:18",
            "DEFINE QLOCAL has no attribute CURDEPTH",
            "did you mean MAXDEPTH?",
        );
        check("DEFINE QLOCAL(A) +", "1:18", "the text ends in a continued line", "");
        check(
            "SET POLICY(A) SIGNALG(SHA1)",
            "1:23",
            "SIGNALG(SHA1) is not offered: its collisions are practical: a signature over it proves nothing",
            "SIGNALG takes NONE, SHA256, SHA384, SHA512",
        );
        check("SET POLICY(A) BINDNAME(ORDERS)", "1:24", "\"ORDERS\" is not a destination", "write QUEUE@QMGR");
        check(
            "SET POLICY(A) RECIP(CN=a)",
            "1:21",
            "RECIP takes text in quotes",
            "write RECIP('…'), and double each quote inside",
        );
        check("SET POLICY(A) RECIP('')", "1:21", "RECIP cannot be empty", "");
        check(
            "DIS QL(*) WHERE(CURDEPTH OVER 3)",
            "1:26",
            "WHERE has no operator OVER",
            "operators are LT, GT, EQ, NE, LE, GE, LK, NL, CT, EX",
        );
        check("DIS QL(*) WHERE(DESCR CT x)", "1:23", "CT and EX are for lists", "");
        check("DIS POLICY(*) WHERE(RECIP EQ x)", "1:27", "a list is compared with CT or EX", "");
    }

    #[test]
    fn places_are_those_of_the_line_that_was_typed() {
        check(
            "*\nDEFINE QLOCAL(A) +\n   DESCR('ä') OOPS",
            "3:15",
            "DEFINE QLOCAL has no attribute OOPS",
            "HELP DEFINE QLOCAL lists its attributes",
        );
    }

    #[test]
    fn every_deprecated_algorithm_is_refused_by_name() {
        for word in ["SIGNALG(MD5)", "SIGNALG(SHA1)", "ENCALG(RC2)", "ENCALG(DES)", "ENCALG(3DES)"] {
            let error = one(&format!("SET POLICY(A) {word}")).unwrap_err();
            assert!(matches!(error.what, Fault::Refused { .. }), "{word}");
        }
    }

    #[test]
    fn limits_are_errors() {
        let name = "N".repeat(NAME_CHARS_MAX);
        assert!(one(&format!("DIS QL({name})")).is_ok());
        assert!(one(&format!("DIS QL({name}N)")).is_err());
        let long = |chars| one(&format!("DEF QL(A) DESCR('{}')", "é".repeat(chars)));
        assert!(long(64).is_ok());
        assert!(matches!(long(65).unwrap_err().what, Fault::Long { chars: 65, .. }));
        let huge = format!("DIS QMGR {}", "X ".repeat(COMMAND_BYTES_MAX));
        assert_eq!(one(&huge).unwrap_err().what, Fault::CommandTooLong);
        let many = "DIS QMGR +\n".repeat(COMMAND_BYTES_MAX / 9 + 1) + "ALL";
        assert_eq!(one(&many).unwrap_err().what, Fault::CommandTooLong);
        let found = statements(&"X;".repeat(COMMANDS_MAX / 2 + 1).replace(';', "\n").repeat(2));
        assert_eq!(found.len(), COMMANDS_MAX + 1);
        assert!(matches!(found.last(), Some(Err(SyntaxError { what: Fault::TooManyCommands, .. }))));
        let text = " ".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(one(&text).unwrap_err().what, Fault::TextTooLong { bytes: TEXT_BYTES_MAX + 1 });
    }

    #[test]
    fn random_text_is_an_error_and_no_panic() {
        // Pieces of the language in any order find more than random bytes do; both are tried.
        const PIECES: [&str; 32] = [
            "DEFINE",
            "QLOCAL",
            "(",
            ")",
            "'",
            "''",
            ",",
            ";",
            "+\n",
            "-\n",
            "\n*",
            " ",
            "MAXDEPTH",
            "A",
            "99999999999999999999999",
            "SET POLICY(",
            "SIGNER('CN=a')",
            "WHERE(",
            "CURDEPTH",
            "GT",
            "*",
            "HELP",
            "\u{0}",
            "é",
            "ALL",
            "DISPLAY",
            "QUEUE",
            "KEYREUSE(*",
            "\r\n",
            "\t",
            "\u{2028}",
            "TOLERATE",
        ];
        let mut random = fastrand::Rng::with_seed(1);
        let mut next = move || random.u64(..);
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..next() % 24 {
                match next() % 8 {
                    0 => text.push(char::from_u32((next() % 0x300) as u32).unwrap_or('x')),
                    _ => text.push_str(PIECES[(next() % 32) as usize]),
                }
            }
            for error in statements(&text).into_iter().filter_map(Result::err) {
                assert!(!error.to_string().contains('\n') && error.at.line > 0, "{text:?}: {error}");
                error.hint();
            }
        }
    }
}
