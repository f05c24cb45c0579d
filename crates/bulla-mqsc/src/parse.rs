//! MQSC text to statements.
//!
//! The rules are MQSC's: `*` in column 1 makes a comment; `+` at the end of a line continues the command at the
//! next line's first character that is not blank, `-` at the next line's beginning; `;` ends a command before
//! its line does; text stands in single quotes, a quote in it is doubled; outside quotes letters are folded to upper
//! case.
//!
//! Text comes from people, files and sockets: whatever it holds, the answer is a [`SyntaxError`] with a place
//! and, where there is one, a hint. One bad command does not stop the next.

mod fault;
mod parser;
mod source;

use super::table::{Attribute, Command, Key, Kind, NameUse};
use bulla_catalog::authority;
pub(super) use fault::nearest;
pub use fault::{Fault, SyntaxError};
use parser::Parser;
use source::{Sources, tokens};
pub(super) use source::{Token, TokenKind};
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
            commands.map(|tokens| Parser::new(tokens).statement()).collect()
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

/// The tokens of each command, whatever it says: for commands of another product.
pub(super) fn tokens_of_each(text: &str) -> impl Iterator<Item = Result<Vec<Token>, SyntaxError>> {
    Sources::new(text).flat_map(|source| match source.and_then(|source| tokens(&source)) {
        Ok(tokens) => {
            let mut commands: Vec<Result<Vec<Token>, SyntaxError>> = vec![Ok(Vec::new())];
            for token in tokens {
                match (token.kind == TokenKind::Semicolon, commands.last_mut()) {
                    (false, Some(Ok(command))) => command.push(token),
                    _ => commands.push(Ok(Vec::new())),
                }
            }
            commands
        }
        Err(error) => vec![Err(error)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::commands;
    use bulla_catalog::names::NAME_CHARS_MAX;

    #[test]
    fn another_word_is_named_where_it_is_likely_to_be_meant() {
        let types = ["CPU", "SOFTWARE", "ACCELERATOR", "COPROCESSOR", "TRANSIT", "MODELLED"];
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
