//! What `dmpmqcfg` of IBM MQ writes, as commands of this language.
//!
//! The text is MQSC there as well: commands in whole words, `*` in column 1 for comments, also between the lines of a
//! command, `+` and `-` for lines that go on. What differs is the vocabulary, so a command is read without the table
//! first, and then each attribute is tried by it.

use super::policies::imported_policy;
use super::reasons::{self, CHANNEL_TYPES, HARMLESS, NOUNS};
use super::setmqspl::{ForeignPolicy, take_attribute};
use super::{Entry, IMPORT_BYTES_MAX, Imported, Paper, quoted};
use crate::parse::{self, Token, TokenKind};
use crate::table::{self, Command, Kind};
use bulla_catalog::Definitions;
use std::collections::HashSet;

/// A command as its words are.
struct Foreign {
    line: usize,
    verb: String,
    noun: String,
    name: Option<Vec<TokenKind>>,
    attributes: Vec<Attribute>,
}

struct Attribute {
    word: String,
    /// What stands in the parentheses; none where there are none.
    values: Option<Vec<TokenKind>>,
}

/// Most words and signs of one command. A record of a thousand users has fewer.
const TOKENS_MAX: usize = 5_000;
/// Names that MQ gives its own objects.
const SYSTEM: &str = "SYSTEM.";
/// The administrators' user and group of IBM MQ.
const ADMINISTRATORS: &str = "mqm";
const RIGHTS: [&str; 2] = ["AUTHADD", "AUTHRMV"];

/// Reads what `dmpmqcfg` of IBM MQ writes; with `raise` broken algorithms of policies are raised.
pub fn definitions(text: &str, raise: bool) -> Imported {
    let mut imported = Imported::default();
    if text.len() > IMPORT_BYTES_MAX {
        let why = format!("{} bytes of text are more than {IMPORT_BYTES_MAX}", text.len());
        imported.push(Entry::left_out(1, "everything", why));
        return imported;
    }
    let mut reader = Reader { raise, paper: Paper(Definitions::initial("IMPORT")), client_channels: HashSet::new() };
    for tokens in parse::tokens_of_each(text) {
        let entry = match tokens {
            Ok(tokens) if tokens.is_empty() => continue,
            Ok(tokens) if tokens.len() > TOKENS_MAX => {
                let line = tokens.first().map_or(0, |token| line_of(token.at));
                Entry::left_out(line, "a command", format!("it has more than {TOKENS_MAX} words and signs"))
            }
            Ok(tokens) => match foreign(&tokens) {
                Ok(command) => reader.entry(&command),
                Err(entry) => *entry,
            },
            Err(error) => Entry::left_out(line_of(error.at), "a command", error.to_string()),
        };
        if !imported.push(entry) {
            break;
        }
    }
    imported
}

fn line_of(at: parse::Position) -> usize {
    usize::try_from(at.line).unwrap_or(usize::MAX)
}

/// Reads words without asking what they mean.
///
/// # Errors
/// What becomes of a text that is no command.
fn foreign(tokens: &[Token]) -> Result<Foreign, Box<Entry>> {
    let line = tokens.first().map_or(0, |token| line_of(token.at));
    let mut rest = tokens.iter().peekable();
    let mut word = || match rest.next_if(|token| matches!(token.kind, TokenKind::Word(_))).map(|token| &token.kind) {
        Some(TokenKind::Word(word)) => Some(word.clone()),
        _ => None,
    };
    let not_one = |what: String| Box::new(Entry::left_out(line, what, "it is no command of MQSC"));
    let verb = word().ok_or_else(|| not_one("a text".into()))?;
    let noun = word().unwrap_or_default();
    let verb = table::verb(&verb).map_or(verb, str::to_owned);
    let noun = table::noun(&noun).map_or(noun, str::to_owned);
    let mut command = Foreign { line, verb, noun, name: None, attributes: Vec::new() };
    if rest.peek().is_some_and(|token| token.kind == TokenKind::Open) {
        command.name = in_parentheses(&mut rest);
    }
    while let Some(token) = rest.next() {
        match &token.kind {
            TokenKind::Comma => {}
            TokenKind::Word(word) => {
                let is_open = rest.peek().is_some_and(|token| token.kind == TokenKind::Open);
                let values = if is_open { in_parentheses(&mut rest) } else { None };
                command.attributes.push(Attribute { word: word.clone(), values });
            }
            other => {
                let mut entry = Entry::left_out(line, command.to_string(), "it is no command of MQSC");
                entry.lose(Some(other.to_string()), "not understood");
                return Err(Box::new(entry));
            }
        }
    }
    Ok(command)
}

/// What stands between the parenthesis that comes next and its end.
fn in_parentheses<'a>(rest: &mut std::iter::Peekable<impl Iterator<Item = &'a Token>>) -> Option<Vec<TokenKind>> {
    let mut values = Vec::new();
    let mut depth = 0_usize;
    for token in rest.by_ref() {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close if depth == 1 => break,
            TokenKind::Close => depth -= 1,
            TokenKind::Comma => {}
            _ => values.push(token.kind.clone()),
        }
    }
    Some(values)
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.noun)?;
        match &self.name {
            Some(name) => write!(f, "({})", written(name)),
            None => Ok(()),
        }
    }
}

impl Attribute {
    /// As a command has it.
    fn text(&self) -> String {
        match &self.values {
            Some(values) => format!("{}({})", self.word, written(values)),
            None => self.word.clone(),
        }
    }

    /// Its first value, without quotes.
    fn value(&self) -> &str {
        match self.values.as_deref() {
            Some([TokenKind::Word(text) | TokenKind::Quoted(text), ..]) => text.trim(),
            _ => "",
        }
    }

    fn is_blank(&self) -> bool {
        self.values.as_ref().is_some_and(|values| values.len() <= 1) && self.value().is_empty()
    }
}

fn written(values: &[TokenKind]) -> String {
    let text = |value: &TokenKind| match value {
        TokenKind::Quoted(text) => quoted(text),
        TokenKind::Word(word) => word.clone(),
        other => other.to_string(),
    };
    values.iter().map(text).collect::<Vec<_>>().join(", ")
}

impl Foreign {
    fn name(&self) -> &str {
        match self.name.as_deref() {
            Some([TokenKind::Word(text) | TokenKind::Quoted(text)]) => text.trim_end(),
            _ => "",
        }
    }

    fn attribute(&self, word: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.word == word)
    }

    fn value(&self, word: &str) -> &str {
        self.attribute(word).map_or("", Attribute::value)
    }
}

/// What is known of the text so far.
struct Reader {
    raise: bool,
    paper: Paper,
    /// Channels of clients that the text defines.
    client_channels: HashSet<String>,
}

impl Reader {
    fn entry(&mut self, command: &Foreign) -> Entry {
        let left_out = |why: &str| Entry::left_out(command.line, command.to_string(), why);
        if let Some((_, why)) = NOUNS.iter().find(|(nouns, _)| nouns.contains(&command.noun.as_str())) {
            return left_out(why);
        }
        if !matches!(command.verb.as_str(), "DEFINE" | "ALTER" | "SET") {
            return left_out("only definitions are taken over");
        }
        let Some(known) = table::command(&command.verb, &command.noun) else {
            return left_out("there is no such command");
        };
        match command.noun.as_str() {
            "POLICY" => self.policy(command),
            "AUTHREC" => self.record(command, known),
            "CHLAUTH" => self.rule(command, known),
            _ if command.name().starts_with(SYSTEM) => {
                left_out("an object of the queue manager's own: Bulla makes those that it needs")
            }
            "CHANNEL" => self.channel(command, known),
            _ => self.carried_out(command, known, Entry::default(), &[]),
        }
    }

    fn policy(&mut self, command: &Foreign) -> Entry {
        let mut policy = ForeignPolicy { line: command.line, from: "SET POLICY", ..ForeignPolicy::default() };
        command.name().clone_into(&mut policy.name);
        for attribute in &command.attributes {
            match &attribute.values {
                None => take_attribute(&mut policy, &attribute.word, None),
                Some(_) if attribute.word == "ACTION" && attribute.value() == "REPLACE" => {}
                Some(values) => values.iter().for_each(|value| {
                    let (TokenKind::Word(text) | TokenKind::Quoted(text)) = value else { return };
                    take_attribute(&mut policy, &attribute.word, Some(text.clone()));
                }),
            }
        }
        imported_policy(&policy, self.raise, None, &mut self.paper)
    }

    fn channel(&mut self, command: &Foreign, known: &'static Command) -> Entry {
        let kind = command.value("CHLTYPE");
        if kind == "SVRCONN" {
            self.client_channels.insert(command.name().to_owned());
        }
        if let Some((_, why)) = CHANNEL_TYPES.iter().find(|(word, _)| *word == kind) {
            let was = format!("{command} CHLTYPE({kind})");
            return Entry::left_out(command.line, was, *why);
        }
        let mut entry = Entry::default();
        entry.tell(None, "the partner must speak AMQP: this is no channel to a queue manager of IBM MQ");
        if !command.value("CONNAME").is_empty() {
            entry.tell(
                Some("CONNAME".into()),
                "its port was that of a listener of IBM MQ: name the partner's AMQP port",
            );
        }
        self.carried_out(command, known, entry, &[])
    }

    fn rule(&mut self, command: &Foreign, known: &'static Command) -> Entry {
        let left_out = |why: &str| Entry::left_out(command.line, command.to_string(), why);
        if self.client_channels.contains(command.name()) {
            return left_out(
                "a rule for clients of one channel: here all clients are on SYSTEM.DEF.SVRCONN, so decide whom it may \
                 let in or keep out",
            );
        }
        if command.name().starts_with(SYSTEM) && command.name() != bulla_catalog::authority::CLIENT_CHANNEL {
            return left_out("a rule for a channel of the queue manager's own that is not here");
        }
        if command.value("USERLIST").to_ascii_lowercase().starts_with("*mqadmin") {
            return left_out("it keeps administrators out: here no user is one by signing in, see DEFINE ADMIN");
        }
        self.carried_out(command, known, Entry::default(), &[])
    }

    fn record(&mut self, command: &Foreign, known: &'static Command) -> Entry {
        let left_out = |why: &str| {
            let profile = command.value("PROFILE");
            let profile = if profile.is_empty() { String::new() } else { format!(" PROFILE({})", quoted(profile)) };
            let kind = command.value("OBJTYPE");
            Entry::left_out(command.line, format!("{command}{profile} OBJTYPE({kind})"), why)
        };
        const TYPES: [&str; 4] = ["QUEUE", "QMGR", "CHANNEL", "TOPIC"];
        if !TYPES.contains(&command.value("OBJTYPE")) {
            return left_out("there are no rights on such objects");
        }
        for entity in ["PRINCIPAL", "GROUP"] {
            if command.value(entity).split('@').next() == Some(ADMINISTRATORS) {
                return left_out("mqm may do everything there: administrators here use the socket, or DEFINE ADMIN");
            }
        }
        let profile = command.value("PROFILE");
        let is_ours =
            |name: &str| self.paper.0.queues.contains_key(name) || name == bulla_catalog::authority::CLIENT_CHANNEL;
        if profile.starts_with(SYSTEM) && !is_ours(profile) {
            return left_out("a right on objects of the queue manager's own, which are not here");
        }
        let mut entry = Entry::default();
        let mut before = Vec::new();
        let group = command.value("GROUP");
        if !group.is_empty() && !self.paper.0.authorities.groups.contains_key(group) {
            before.push(format!("DEFINE GROUP({})", quoted(group)));
            entry.tell(
                Some(quoted(group)),
                "groups there are those of the system: add its members with ALTER GROUP(…) MEMBERS(…)",
            );
        }
        self.carried_out(command, known, entry, &before)
    }

    /// The command with the attributes that are taken, tried; `before` are commands that it needs.
    fn carried_out(
        &mut self,
        command: &Foreign,
        known: &'static Command,
        mut entry: Entry,
        before: &[String],
    ) -> Entry {
        entry.line = command.line;
        entry.was = command.to_string();
        if command.noun == "AUTHREC" {
            entry.was = format!("{command} {}", described(command));
        }
        let Some((head, mut attributes)) = self.tried(command, known, &mut entry) else { return entry };
        for command in before {
            if let Err(why) = self.paper.carry_out(command) {
                entry.lose(None, format!("{command}: {why}"));
                return entry;
            }
        }
        let whole = |attributes: &[String]| {
            format!("{head}{}", attributes.iter().map(|it| format!(" {it}")).collect::<String>())
        };
        match self.paper.carry_out(&whole(&attributes)) {
            Ok(warnings) => warnings.into_iter().for_each(|warning| entry.tell(None, warning)),
            // One of the attributes may be to blame alone.
            Err(why) => {
                let to_blame = (0..attributes.len()).find(|&place| {
                    let word = attributes.get(place).map_or("", |text| text.split('(').next().unwrap_or(text));
                    let mut others = attributes.clone();
                    others.remove(place);
                    !reasons::is_essential(&command.noun, word) && self.paper.carry_out(&whole(&others)).is_ok()
                });
                let Some(place) = to_blame else {
                    entry.lose(None, why);
                    // The next record of the group is to have it.
                    before.iter().for_each(|it| drop(self.paper.carry_out(&it.replacen("DEFINE", "DELETE", 1))));
                    return entry;
                };
                entry.lose(Some(attributes.remove(place)), why);
            }
        }
        entry.commands = before.to_vec();
        entry.commands.push(whole(&attributes));
        entry
    }

    /// The beginning of the command, and the attributes that the table takes; none where it can't be without one that
    /// it does not take.
    fn tried(&self, command: &Foreign, known: &'static Command, entry: &mut Entry) -> Option<(String, Vec<String>)> {
        let head = command.to_string();
        let mut attributes = Vec::new();
        let mut is_whole = true;
        for attribute in &command.attributes {
            let text = attribute.text();
            let why = match known.attribute(&attribute.word) {
                Some(at) if !matches!(at.kind, Kind::Shown | Kind::Filter) => {
                    let attribute = if RIGHTS.contains(&attribute.word.as_str()) {
                        rights(attribute, &head, entry)
                    } else {
                        Some(text.clone())
                    };
                    match attribute.map(|text| (parse::statements(&format!("{head} {text}")), text)) {
                        None => Some("no right is left of it".to_owned()),
                        Some((read, text)) => match read.into_iter().next() {
                            Some(Ok(_)) => {
                                attributes.push(text);
                                None
                            }
                            Some(Err(error)) => Some(error.to_string()),
                            None => Some("it is no attribute".to_owned()),
                        },
                    }
                }
                _ if attribute.is_blank() => Some("blank, so nothing is lost".to_owned()),
                _ => Some(reasons::of_attribute(&attribute.word).to_owned()),
            };
            let Some(why) = why else { continue };
            let harmless = (command.noun.as_str(), attribute.word.as_str(), attribute.value());
            let is_needed = reasons::is_essential(&command.noun, &attribute.word)
                && !HARMLESS.contains(&harmless)
                && !(known.attribute(&attribute.word).is_none() && attribute.is_blank());
            if is_needed {
                entry.lose(Some(text), format!("{why}; it is left out, because without this it would be another"));
            } else if attribute.is_blank() || HARMLESS.contains(&harmless) {
                entry.tell(Some(attribute.word.clone()), why);
            } else {
                entry.lose(Some(text), why);
            }
            is_whole &= !is_needed;
        }
        is_whole.then_some((head, attributes))
    }
}

/// `PROFILE('ORDERS') OBJTYPE(QUEUE) GROUP('clerks')`: what tells records apart.
fn described(command: &Foreign) -> String {
    let words = ["PROFILE", "OBJTYPE", "PRINCIPAL", "GROUP"];
    let texts: Vec<String> = words.iter().filter_map(|word| command.attribute(word)).map(Attribute::text).collect();
    texts.join(" ")
}

/// The rights of AUTHADD or AUTHRMV that are here; none where none is left.
fn rights(attribute: &Attribute, head: &str, entry: &mut Entry) -> Option<String> {
    let values = attribute.values.as_deref().unwrap_or_default();
    let (mut taken, mut left) = (Vec::new(), 0);
    for value in values {
        let one = format!("{}({})", attribute.word, written(std::slice::from_ref(value)));
        match parse::statements(&format!("{head} {one}")).into_iter().next() {
            Some(Ok(_)) => taken.push(value.clone()),
            Some(Err(error)) => {
                left += 1;
                entry.lose(None, error.to_string());
            }
            None => left += 1,
        }
    }
    // A record of nothing stays one: it takes away what a more general one gives.
    match (taken.is_empty(), left) {
        (true, _) => None,
        (false, _) => Some(format!("{}({})", attribute.word, written(&taken))),
    }
}
