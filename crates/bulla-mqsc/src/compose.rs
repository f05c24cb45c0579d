//! A command in pieces, as programs give it, to its text.
//!
//! Words are those of the table, and every value stands in quotes: whatever is in it, it stays that value. Whether the
//! value fits is the parser's to say.

use super::parse::nearest;
use super::table::{self, Attribute, Command, Kind, NameUse};
use std::fmt::{self, Display, Write};

/// A command in pieces.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pieces {
    /// `DISPLAY`, in any case, or its short form.
    pub verb: String,
    /// `QLOCAL`, in the same way.
    pub noun: String,
    /// What stands in the parentheses behind them, as it is: lower case stays lower case.
    pub name: Option<String>,
    /// Attributes and options, each with what it is given.
    pub given: Vec<(String, Given)>,
    /// DISPLAY: what to show.
    pub shown: Vec<String>,
}

/// What an attribute or option is given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Given {
    /// A number, word, name or text.
    One(String),
    /// Several of them.
    Several(Vec<String>),
}

/// Why pieces are no command. Their writer's turn.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ComposeError {
    /// There is no such command.
    Command {
        /// The words, as they were given.
        found: String,
    },
    /// The command has a name in parentheses, and none was given, or the other way round.
    Name {
        /// The command.
        command: String,
        /// Whether it takes one.
        takes: bool,
    },
    /// The command has no such attribute.
    Attribute {
        /// The command.
        command: String,
        /// The word, as it was given.
        found: String,
        /// The one that may be meant.
        nearest: Option<&'static str>,
    },
    /// An attribute takes something else.
    Value {
        /// The attribute.
        keyword: &'static str,
        /// What it takes.
        takes: String,
    },
    /// A control character, as a line end: none can stand in a command.
    Character {
        /// In what it stands.
        place: String,
    },
}

impl std::error::Error for ComposeError {}

impl Display for ComposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { found } => write!(f, "there is no command {}", found.escape_debug()),
            Self::Name { command, takes: true } => write!(f, "{command} takes a name"),
            Self::Name { command, takes: false } => write!(f, "{command} takes no name"),
            Self::Attribute { command, found, nearest } => {
                write!(f, "{command} has no attribute {}", found.escape_debug())?;
                nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
            }
            Self::Value { keyword, takes } => write!(f, "{keyword} takes {takes}"),
            Self::Character { place } => write!(f, "{place} has a control character in it"),
        }
    }
}

impl Pieces {
    /// The command as one text of one line, which the parser takes for one command.
    ///
    /// # Errors
    /// [`ComposeError`].
    pub fn text(&self) -> Result<String, ComposeError> {
        let unknown = || ComposeError::Command { found: format!("{} {}", self.verb, self.noun).trim_end().to_owned() };
        let [verb, noun] = [&self.verb, &self.noun].map(|word| word.to_ascii_uppercase());
        let (verb, noun) = table::verb(&verb).zip(table::noun(&noun)).ok_or_else(unknown)?;
        let command = table::command(verb, noun).ok_or_else(unknown)?;
        let mut text = command.to_string();
        match (self.name.as_deref().unwrap_or_default(), command.name) {
            ("", NameUse::None) => {}
            (name, takes) if name.is_empty() || takes == NameUse::None => {
                return Err(ComposeError::Name { command: command.to_string(), takes: takes != NameUse::None });
            }
            (name, _) => in_parentheses(&mut text, "the name", [name])?,
        }
        for (word, given) in &self.given {
            let (attribute, word) = known(command, word)?;
            if command.is_display() && !is_option(command, attribute) {
                let takes = "no value here: it is shown where it is asked for".to_owned();
                return Err(ComposeError::Value { keyword: attribute.keyword, takes });
            }
            write(&mut text, attribute, &word, given)?;
        }
        for word in &self.shown {
            let (attribute, word) = known(command, word)?;
            let takes_value = !matches!(attribute.kind, Kind::Switch(_)) && is_option(command, attribute);
            if takes_value || !command.is_display() {
                return Err(ComposeError::Value { keyword: attribute.keyword, takes: "a value".to_owned() });
            }
            text.push(' ');
            text.push_str(&word);
        }
        Ok(text)
    }
}

fn is_option(command: &Command, attribute: &Attribute) -> bool {
    command.options.iter().any(|option| option.key == attribute.key)
}

/// The attribute of a word, and the word as the table spells it.
fn known(command: &'static Command, word: &str) -> Result<(&'static Attribute, String), ComposeError> {
    let upper = word.to_ascii_uppercase();
    match command.attribute(&upper) {
        Some(attribute) => Ok((attribute, upper)),
        None => {
            let nearest = nearest(&upper, command.words());
            Err(ComposeError::Attribute { command: command.to_string(), found: word.to_owned(), nearest })
        }
    }
}

/// Writes an attribute with its value; `word` is how it was named.
fn write(text: &mut String, attribute: &Attribute, word: &str, given: &Given) -> Result<(), ComposeError> {
    let keyword = attribute.keyword;
    let value = |takes: &str| ComposeError::Value { keyword, takes: takes.to_owned() };
    let upper = |given: &str| given.to_ascii_uppercase();
    match (&attribute.kind, given) {
        (Kind::Switch(states), Given::One(said)) => {
            let takes = || value(&format!("yes, no or one of {}", states.join(", ")));
            let _ = write!(text, " {}", state(states, word, &upper(said)).ok_or_else(takes)?);
            return Ok(());
        }
        (Kind::Switch(_), Given::Several(_)) => return Err(value("one word")),
        (Kind::Shown, _) => return Err(value("no value: it is only shown")),
        (Kind::Filter, Given::Several(words)) if words.len() == 3 => {
            let _ = write!(text, " {keyword}(");
            for (place, word) in words.iter().enumerate() {
                quoted(text, keyword, &if place < 2 { upper(word) } else { word.clone() })?;
                text.push(if place < 2 { ' ' } else { ')' });
            }
            return Ok(());
        }
        (Kind::Filter, _) => return Err(value("a list of three: an attribute, an operator and a value")),
        _ => {}
    }
    let words = match given {
        Given::One(word) => std::slice::from_ref(word),
        Given::Several(words) => words.as_slice(),
    };
    let is_word = matches!(
        attribute.kind,
        Kind::Word { .. } | Kind::Words { .. } | Kind::NumberOr { .. } | Kind::Reuse { .. } | Kind::Number { .. }
    );
    let words: Vec<String> = words.iter().map(|word| if is_word { upper(word) } else { word.clone() }).collect();
    let blank = [String::new()];
    let words = if words.is_empty() { &blank[..] } else { &words };
    text.push(' ');
    text.push_str(keyword);
    in_parentheses(text, keyword, words.iter().map(String::as_str))
}

/// The word of a switch that stands for what is said of `word`, which is one of its states or what it is called.
fn state(states: &'static [&'static str], word: &str, said: &str) -> Option<&'static str> {
    let wanted = match said {
        "YES" | "TRUE" => word,
        "NO" | "FALSE" => return states.iter().copied().find(|state| states.len() == 2 && *state != word),
        said => said,
    };
    states.iter().copied().find(|state| *state == wanted)
}

fn in_parentheses<'a>(
    text: &mut String,
    place: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Result<(), ComposeError> {
    text.push('(');
    for (number, word) in words.into_iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        quoted(text, place, word)?;
    }
    text.push(')');
    Ok(())
}

/// A value in quotes, each quote in it doubled. An empty one is a blank, as MQSC has it.
fn quoted(text: &mut String, place: &str, value: &str) -> Result<(), ComposeError> {
    if value.chars().any(char::is_control) {
        return Err(ComposeError::Character { place: place.to_owned() });
    }
    text.push('\'');
    text.push_str(&if value.is_empty() { " ".to_owned() } else { value.replace('\'', "''") });
    text.push('\'');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Statement, statements};
    use crate::table::commands;

    fn pieces(verb: &str, noun: &str, name: &str, given: &[(&str, &str)], shown: &[&str]) -> Pieces {
        Pieces {
            verb: verb.into(),
            noun: noun.into(),
            name: (!name.is_empty()).then(|| name.to_owned()),
            given: given.iter().map(|(word, value)| ((*word).into(), Given::One((*value).into()))).collect(),
            shown: shown.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    fn one(pieces: &Pieces) -> Result<Statement, String> {
        let text = pieces.text().map_err(|error| error.to_string())?;
        let mut found = statements(&text);
        assert_eq!(found.len(), 1, "{text}");
        found.pop().unwrap().map_err(|error| error.to_string())
    }

    #[test]
    fn pieces_are_the_command_that_they_name() {
        for (pieces, text) in [
            (pieces("display", "ql", "A*", &[], &["all"]), "DISPLAY QLOCAL('A*') ALL"),
            (
                pieces("DIS", "queue", "A", &[("type", "qlocal")], &["curdepth"]),
                "DISPLAY QUEUE('A') TYPE('QLOCAL') CURDEPTH",
            ),
            (
                pieces("define", "qlocal", "orders", &[("descr", "Bo's"), ("maxdepth", "7"), ("replace", "yes")], &[]),
                "DEFINE QLOCAL('orders') DESCR('Bo''s') MAXDEPTH('7') REPLACE",
            ),
            (pieces("define", "ql", "A", &[("replace", "no")], &[]), "DEFINE QLOCAL('A') NOREPLACE"),
            (pieces("alter", "ql", "A", &[("trigger", "notrigger")], &[]), "ALTER QLOCAL('A') NOTRIGGER"),
            (pieces("alter", "ql", "A", &[("initq", "")], &[]), "ALTER QLOCAL('A') INITQ(' ')"),
            (pieces("ping", "qmgr", "", &[], &[]), "PING QMGR"),
        ] {
            assert_eq!(pieces.text().as_deref(), Ok(text));
            one(&pieces).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        let several = |words: &[&str]| Given::Several(words.iter().map(|word| (*word).to_owned()).collect());
        let policy = Pieces {
            given: vec![
                ("signalg".into(), Given::One("sha256".into())),
                ("signer".into(), several(&["CN=a,O=x", "CN=b"])),
            ],
            ..pieces("set", "policy", "A", &[], &[])
        };
        assert_eq!(one(&policy).unwrap().without_secrets(), "SET POLICY(A) SIGNALG(SHA256) SIGNER('CN=a,O=x','CN=b')");
        let filter = Pieces {
            given: vec![("where".into(), several(&["curdepth", "gt", "0"]))],
            ..pieces("display", "ql", "*", &[], &[])
        };
        assert_eq!(one(&filter).unwrap().filter.unwrap().value, "0");
    }

    #[test]
    fn no_piece_becomes_another_command() {
        let nasty = [
            "A') DESCR('x'); DELETE QLOCAL(B",
            "A'; DELETE QLOCAL(B)",
            "A\nDELETE QLOCAL(B)",
            "A\r\nDELETE QLOCAL(B)",
            "A' +\nDELETE QLOCAL(B)",
            "A) REPLACE",
            "* A",
            "A+",
            "A-",
            "''",
            "'",
            "\0",
            "A\u{2028}DELETE QLOCAL(B)",
        ];
        for word in nasty {
            for pieces in [
                pieces("define", "qlocal", word, &[], &[]),
                pieces("define", "qlocal", "A", &[("descr", word)], &[]),
                pieces("define", "qlocal", "A", &[("maxdepth", word)], &[]),
                pieces("define", "qlocal", "A", &[("put", word)], &[]),
                pieces("define", "qlocal", "A", &[("trigger", word)], &[]),
                pieces("define", "qlocal", "A", &[(word, "1")], &[]),
                pieces(word, "qlocal", "A", &[], &[]),
                pieces("define", word, "A", &[], &[]),
                pieces("display", "qlocal", "A", &[], &[word]),
                pieces("display", "qlocal", "A", &[("where", word)], &[]),
            ] {
                let Ok(statement) = one(&pieces) else { continue };
                // Where it is a command at all, its text is where that word stands.
                assert_eq!((statement.command.verb, statement.name.stem.as_str()), ("DEFINE", "A"), "{pieces:?}");
                let [only] = statement.settings.as_slice() else { panic!("{pieces:?}") };
                assert_eq!((only.attribute.keyword, only.value.text().as_str()), ("DESCR", word), "{pieces:?}");
            }
        }
    }

    #[test]
    fn what_is_no_command_is_refused_with_what_is_wrong() {
        for (pieces, why) in [
            (pieces("destroy", "qlocal", "A", &[], &[]), "there is no command destroy qlocal"),
            (pieces("clear", "channel", "A", &[], &[]), "there is no command clear channel"),
            (pieces("define", "qlocal", "", &[], &[]), "DEFINE QLOCAL takes a name"),
            (pieces("display", "qmgr", "A", &[], &[]), "DISPLAY QMGR takes no name"),
            (
                pieces("define", "qlocal", "A", &[("maxdepht", "1")], &[]),
                "DEFINE QLOCAL has no attribute maxdepht; did you mean MAXDEPTH?",
            ),
            (pieces("define", "qlocal", "A", &[], &["maxdepth"]), "MAXDEPTH takes a value"),
            (
                pieces("define", "qlocal", "A", &[("trigger", "maybe")], &[]),
                "TRIGGER takes yes, no or one of NOTRIGGER, TRIGGER",
            ),
            (pieces("define", "qlocal", "A\n", &[], &[]), "the name has a control character in it"),
        ] {
            assert_eq!(pieces.text().map_err(|error| error.to_string()), Err(why.to_owned()));
        }
        let shown = pieces("display", "qlocal", "A", &[("maxdepth", "1")], &[]);
        assert!(shown.text().unwrap_err().to_string().starts_with("MAXDEPTH takes no value here"));
    }

    #[test]
    fn every_command_of_the_table_can_be_composed() {
        for command in commands().filter(|command| command.verb != "HELP") {
            let name = if command.name == NameUse::None { "" } else { "A" };
            let text = pieces(command.verb, command.noun, name, &[], &[]).text();
            assert!(text.is_ok_and(|text| text.starts_with(&command.to_string())), "{command}");
        }
    }
}
