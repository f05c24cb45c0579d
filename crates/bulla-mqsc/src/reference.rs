//! The table in words: `HELP`, and the reference page `docs/reference/mqsc.md`.

use super::parse::nearest;
use super::reply::{self, Failure, FailureKind};
use super::table::{self, Attribute, Command, Kind, NameUse, VERBS};
use bulla_catalog::names::NAME_CHARS_MAX;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What `HELP` says about `topic`, upper-case words: nothing, a verb, a noun, a command, an attribute.
///
/// # Errors
/// There is no such thing.
pub(super) fn help(topic: &[String]) -> Result<String, Failure> {
    let words: Vec<&str> = topic.iter().map(String::as_str).collect();
    let verb = words.first().and_then(|word| table::verb(word));
    let last_noun = words.last().and_then(|word| table::noun(word));
    match (words.as_slice(), verb, last_noun) {
        ([], ..) => Ok(commands(table::commands())),
        ([_], Some(verb), _) => Ok(commands(table::commands().filter(|command| command.verb == verb))),
        ([_], None, Some(noun)) => Ok(commands(table::commands().filter(|command| command.noun == noun))),
        ([_, _], Some(verb), Some(noun)) if let Some(command) = table::command(verb, noun) => Ok(explained(command)),
        ([word], None, None) => attributes(word),
        _ => Err(nothing(&words.join(" "), None)),
    }
}

/// The reference page.
pub fn page() -> String {
    let mut page = String::from(PREFACE);
    for command in table::commands() {
        write_command(&mut page, command);
    }
    page.push_str("## Attributes\n\n| attribute | takes | default | meaning |\n| --- | --- | --- | --- |\n");
    for (keyword, uses) in by_keyword() {
        for (attribute, commands) in &uses {
            let of = if uses.len() > 1 { format!(" ({})", nouns(commands)) } else { String::new() };
            let synonyms = match attribute.synonyms {
                [] => String::new(),
                synonyms => format!(", also {}", synonyms.join(", ")),
            };
            let default = match attribute.default {
                "" => "".into(),
                default => format!("`{default}`"),
            };
            let takes = takes(attribute).replace('|', "\\|");
            let _ = writeln!(page, "| `{keyword}`{synonyms}{of} | {takes} | {default} | {} |", attribute.doc);
        }
    }
    page
}

const PREFACE: &str = "\
# The admin language, MQSC

Look up here what a command does and what an attribute takes. Written by `bulla mqsc --reference` from the table in
`crates/bulla-mqsc/src/table.rs`; a test compares.

`bulla mqsc -c 'COMMAND'` gives one command to the running queue manager, `bulla mqsc FILE` the commands in a file,
`bulla mqsc -` those on the standard input; `--json` answers in JSON ([names](json.md)).

The exit code is 0 when every command was carried out, 2 when one was not understood, 4 when one was understood and
refused, 6 when the queue manager was not reached.

## How commands are written

- A command ends with its line or with `;`. A line that ends in `+` goes on at the next line's first character that is
  not blank, one that ends in `-` at the next line's beginning. A line that begins with `*` is a comment.
- Text outside quotes is folded to upper case: `orders` names the queue `ORDERS`, `'orders'` the queue `orders`.
  Text stands in single quotes; a quote inside it is doubled: `DESCR('Bo''s queue')`.
- A name has 1 to 48 letters, digits and `.`, `_`, `/`, `%`, a channel's up to 20. `DISPLAY` takes a generic name,
  `OR*` or `*`.
- `DISPLAY` shows what is asked for by attribute, everything with `ALL` or when nothing is asked for. A generic name of
  queues shows names and types unless something is asked for.
- `WHERE(attribute operator value)` shows what fits. `LT` `GT` `EQ` `NE` `LE` `GE` compare numbers, words and text; `LK`
  and `NL`, like and not like, take a value that ends in `*`; `CT` and `EX` say whether a list contains or excludes it.
- Nothing is changed by a command that fails. A failure carries MQ's reason code where MQ has one.

";

/// Longest line of the page in characters, tables aside.
const LINE_CHARS_MAX: usize = 120;
/// What ends a line of a command that goes on, and what begins the next one.
const GOES_ON: &str = " +";
const INDENT: &str = "    ";

/// The text in lines of at most [`LINE_CHARS_MAX`] characters.
fn paragraph(text: &str) -> String {
    wrapped("", text.split(' '), "", "")
}

/// A command in such lines, as the language has a command in several; what stands in quotes is not broken.
fn command_lines(text: &str) -> String {
    let mut is_quoted = false;
    let words = text.split(|char| {
        is_quoted ^= char == '\'';
        char == ' ' && !is_quoted
    });
    wrapped("", words, GOES_ON, INDENT)
}

/// The words in such lines: `first` begins the first one, `end` ends one that goes on, `next` begins the one behind it.
fn wrapped<'a>(first: &str, words: impl Iterator<Item = &'a str>, end: &str, next: &str) -> String {
    let (mut lines, mut width) = (first.to_owned(), first.len());
    for (at, word) in words.enumerate() {
        let chars = word.chars().count();
        if at > 0 && width + 1 + chars + end.len() > LINE_CHARS_MAX {
            lines.extend([end, "\n", next]);
            width = next.len();
        } else if at > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += chars;
    }
    lines
}

fn write_command(page: &mut String, command: &Command) {
    let _ = writeln!(page, "## {command}\n\n{}\n", paragraph(command.summary));
    let short = short_forms(command);
    if !short.is_empty() {
        let _ = writeln!(page, "Short: {short}. Since {}.\n", command.since);
    } else {
        let _ = writeln!(page, "Since {}.\n", command.since);
    }
    let _ = writeln!(page, "```text\n{}```\n", syntax_lines(command));
    let examples: Vec<String> = command.examples.iter().map(|example| command_lines(example)).collect();
    let _ = writeln!(page, "```mqsc\n{}\n```\n", examples.join("\n"));
}

fn commands<'a>(commands: impl Iterator<Item = &'a Command>) -> String {
    let mut text = String::new();
    for command in commands {
        let _ = writeln!(text, "{:<18}{}", command.to_string(), command.summary);
    }
    text.push_str("HELP VERB NOUN shows a command's attributes, HELP ATTRIBUTE explains one\n");
    text
}

fn explained(command: &Command) -> String {
    let mut text = format!("{}\n\n{}", command.summary, syntax(command));
    for attribute in command.options.iter().chain(command.attributes) {
        let _ = write!(text, "\n{}\n  {}\n", usage(command, attribute), attribute.doc);
        if !attribute.default.is_empty() && !command.is_display() {
            let _ = writeln!(text, "  default: {}", attribute.default);
        }
    }
    text.push_str("\nexamples:\n");
    for example in command.examples {
        let _ = writeln!(text, "  {example}");
    }
    text
}

fn attributes(word: &str) -> Result<String, Failure> {
    let known = by_keyword();
    let found: Vec<_> = known.values().flatten().filter(|(attribute, _)| attribute.answers_to(word)).collect();
    if found.is_empty() {
        let words = VERBS.iter().copied().chain(table::nouns()).map(|(word, _)| word).chain(known.keys().copied());
        return Err(nothing(word, nearest(word, words)));
    }
    let mut text = String::new();
    for (attribute, commands) in found {
        let _ = writeln!(text, "{}: {}\n  {}", attribute.keyword, takes(attribute), attribute.doc);
        if !attribute.default.is_empty() {
            let _ = writeln!(text, "  default: {}", attribute.default);
        }
        let commands: Vec<_> = commands.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  in: {}", commands.join(", "));
    }
    Ok(text)
}

fn nothing(about: &str, nearest: Option<&str>) -> Failure {
    let hint = nearest.map_or("HELP lists the commands".into(), |nearest| format!("did you mean {nearest}?"));
    Failure {
        kind: FailureKind::Invalid,
        reason: None,
        message: format!("there is no help for {about}"),
        hint: Some(hint),
    }
}

/// Attributes by keyword, each with the commands that take it; one keyword may mean two things.
fn by_keyword() -> BTreeMap<&'static str, Vec<(&'static Attribute, Vec<&'static Command>)>> {
    let mut known: BTreeMap<&str, Vec<(&'static Attribute, Vec<&'static Command>)>> = BTreeMap::new();
    for command in table::commands() {
        for attribute in command.options.iter().chain(command.attributes) {
            let uses = known.entry(attribute.keyword).or_default();
            match uses.iter_mut().find(|(used, _)| used == attribute) {
                Some((_, commands)) => commands.push(command),
                None => uses.push((attribute, vec![command])),
            }
        }
    }
    known
}

fn nouns(commands: &[&Command]) -> String {
    let mut nouns: Vec<&str> = Vec::new();
    for command in commands {
        if !nouns.contains(&command.noun) {
            nouns.push(command.noun);
        }
    }
    nouns.join(", ")
}

fn short_forms(command: &Command) -> String {
    let verb = VERBS.iter().find(|(long, _)| *long == command.verb).and_then(|(_, short)| short.first().copied());
    let noun = table::nouns().find(|(long, _)| *long == command.noun).and_then(|(_, short)| short.first().copied());
    match (verb, noun) {
        (None, None) => String::new(),
        _ => format!("`{} {}`", verb.unwrap_or(command.verb), noun.unwrap_or(command.noun)),
    }
}

/// The whole command with everything it takes, a line each.
fn syntax(command: &Command) -> String {
    let mut text = command.to_string();
    match command.name {
        NameUse::None => {}
        NameUse::One => text.push_str("(NAME)"),
        NameUse::Generic => text.push_str("(NAME | STEM*)"),
        NameUse::Channels => text.push_str("(NAME, with * for any characters)"),
        NameUse::Users => text.push_str("(USER | STEM*)"),
        NameUse::Addresses => text.push_str("(ADDRESS, with * for any characters)"),
        NameUse::Topics => text.push_str("(TOPIC, with + and # for levels)"),
    }
    if command.verb == "HELP" {
        text.push_str(" [VERB | NOUN | VERB NOUN | ATTRIBUTE]");
    }
    text.push('\n');
    for attribute in command.options.iter().chain(command.attributes) {
        let _ = writeln!(text, "    [{}]", usage(command, attribute));
    }
    text
}

/// The same in lines of the page.
fn syntax_lines(command: &Command) -> String {
    let line = |line: &str| match line.strip_prefix(INDENT) {
        Some(usage) => wrapped(INDENT, usage.split(' '), "", "        ") + "\n",
        None => format!("{line}\n"),
    };
    syntax(command).lines().map(line).collect()
}

/// `MAXDEPTH(0..999999999)`, or the bare word in DISPLAY.
fn usage(command: &Command, attribute: &'static Attribute) -> String {
    let is_option = command.options.iter().any(|option| option.key == attribute.key);
    match &attribute.kind {
        _ if command.is_display() && !is_option => attribute.keyword.into(),
        Kind::Switch(_) => takes(attribute),
        _ => format!("{}({})", attribute.keyword, takes(attribute)),
    }
}

fn takes(attribute: &Attribute) -> String {
    match &attribute.kind {
        Kind::Number { min, max } => format!("{min}..{max}"),
        Kind::NumberOr { min, max, word } => format!("{word} | {min}..{max}"),
        Kind::Word { choices, .. } => choices.join(" | "),
        Kind::Reuse { max } => format!("DISABLED | 0..{max} | UNLIMITED | *"),
        Kind::Name { optional: true } => "name or ' '".into(),
        Kind::Name { optional: false } => "name".into(),
        Kind::Destinations => "QUEUE@QMGR, …".into(),
        Kind::Text { chars_max } => format!("'text', {chars_max} characters"),
        Kind::DistinguishedNames => "'distinguished name', …".into(),
        Kind::Words { choices, .. } => format!("{}, …", choices.join(" | ")),
        Kind::Names => "name, …".into(),
        Kind::Address => "'address'".into(),
        Kind::Addresses => "'address', …".into(),
        Kind::Profile => "name, or pattern with ?, * and **".into(),
        Kind::Users { special: true, .. } => "'user' | '*' | '*ANONYMOUS', …".into(),
        Kind::Users { .. } => "'user', …".into(),
        Kind::Switch(states) => states.join(" | "),
        Kind::Filter => "attribute operator value".into(),
        Kind::Shown => "shown only".into(),
    }
}

const _: () = assert!(NAME_CHARS_MAX == 48, "the preface says so");
const _: () = assert!(
    reply::EXIT_INVALID == 2 && reply::EXIT_REFUSED == 4 && bulla_catalog::exit_codes::EXIT_UNREACHABLE == 6,
    "so too"
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_reference_page_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/mqsc.md");
        if std::env::var_os("BULLA_REWRITE").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == page(), "docs/reference/mqsc.md is old: bulla mqsc --reference > docs/reference/mqsc.md");
    }

    #[test]
    fn no_line_is_too_long_but_in_tables_and_an_example_in_several_lines_is_the_same_command() {
        let page = page();
        let long: Vec<&str> =
            page.lines().filter(|line| !line.starts_with('|') && line.chars().count() > LINE_CHARS_MAX).collect();
        assert!(long.is_empty(), "{long:#?}");
        let read = |text: &str| -> Vec<String> {
            let understood = |read: Result<crate::parse::Statement, _>| read.map(|one| one.without_secrets());
            crate::parse::statements(text).into_iter().map(|one| understood(one).unwrap()).collect()
        };
        for example in table::commands().flat_map(|command| command.examples) {
            assert_eq!(read(&command_lines(example)), read(example));
        }
    }

    #[test]
    fn help_knows_each_command_and_each_attribute() {
        let topic = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        for command in table::commands() {
            help(&topic(&command.to_string())).unwrap();
            for word in command.words() {
                help(&topic(word)).unwrap();
            }
        }
        let failure = help(&topic("MAXDEPHT")).unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("did you mean MAXDEPTH?"));
        assert!(help(&topic("CLEAR POLICY")).is_err());
    }
}
