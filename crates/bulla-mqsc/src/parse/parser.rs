//! Tokens to a statement, by the words of the table.

use super::source::{Token, TokenKind, shortened};
use super::{Fault, Filter, Operator, Pattern, Position, Setting, Statement, SyntaxError, Value, nearest};
use crate::table::{self, Attribute, Command, DN_CHARS_MAX, Key, Kind, NameUse};
use bulla_catalog::names::is_name;
use bulla_catalog::{addresses, authority, limits, names, topic_names};
use std::collections::HashSet;

/// Attributes behind the last one that are looked at before all.
const LOOK_AHEAD: usize = 4;

/// Reads the tokens of one command; there is at least one.
pub(super) struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    /// Which of the command's attributes is likely to come: the one behind the last.
    likely: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(tokens: &'a [Token]) -> Self {
        Self { tokens, next: 0, likely: 0 }
    }

    pub(super) fn statement(mut self) -> Result<Statement, SyntaxError> {
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
