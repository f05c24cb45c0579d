//! What can be wrong with a command, in words.

use super::{COMMAND_BYTES_MAX, COMMANDS_MAX, Operator, Position, TEXT_BYTES_MAX};
use bulla_catalog::names::{self, NAME_CHARS_MAX};
use bulla_catalog::{addresses, authority};
use std::fmt::{self, Display};

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
                "a profile has 1 to 48 letters, digits and . _ / %, with ? and * in qualifiers and at most one ** as \
                 one"
                .into(),
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
                "a user's name has 1 to {} letters, digits and . _ - @, a letter or digit first; in quotes it keeps \
                 its lower case",
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
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
