//! The rules file of `bulla dlq`: what is done with which dead letter. `docs/operating/dead-letters.md` is the page.
//!
//! ```text
//! * what comes first, counts
//! RETRYINT(30) WAIT(YES)
//! REASON(2053) DESTQ(ORDERS.*) ACTION(RETRY) RETRY(5)
//! CAUSE(rejected) ACTION(FWD) FWDQ(ORDERS.REJECTED)
//! REASON(2030) ACTION(DISCARD)
//! ```

use crate::catalog::DeadLetter;
use crate::catalog::names::is_name;
use crate::reason;
use std::fmt;

/// Most bytes of a rules file.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most rules.
pub const RULES_MAX: usize = 1_000;
/// Longest word between parentheses, in bytes.
const WORD_BYTES_MAX: usize = 256;
/// Most attempts of one rule.
const RETRIES_MAX: u32 = 999_999_999;
/// Longest pause between two attempts, in seconds.
const RETRY_SECONDS_MAX: u32 = 999_999_999;
/// Seconds between two attempts where nothing is said, as runmqdlq has it.
const RETRY_SECONDS_DEFAULT: u32 = 60;

/// The rules, in their order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rules {
    /// INPUTQ: the queue that is dealt with; none for the queue manager's DEADQ.
    pub queue: Option<String>,
    /// RETRYINT in seconds.
    pub retry_seconds: u32,
    /// WAIT(NO): one look at all there is, and no more.
    pub once: bool,
    /// What counts for a message is the first that fits.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Its line, from 1.
    pub line: usize,
    /// REASON
    reason: Option<u16>,
    /// CAUSE, DESTQ, DESTQM, USERID: patterns that may end in `*`.
    cause: Option<String>,
    queue: Option<String>,
    manager: Option<String>,
    user: Option<String>,
    /// PERSIST
    persistent: Option<bool>,
    /// ACTION
    pub action: Action,
}

/// What is done with a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// It is deleted.
    Discard,
    /// It goes on another queue of this queue manager.
    Forward {
        /// FWDQ
        to: String,
        /// HEADER(YES): its label stays on.
        label: bool,
    },
    /// It stays.
    Ignore,
    /// It is put back where it came from, without its label.
    Retry {
        /// RETRY: so often; then later rules count.
        times: u32,
    },
}

/// Why a file holds no rules. The turn is with its author.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RulesError {
    /// The line, from 1; a rule over several lines counts where it begins.
    pub line: usize,
    /// What is wrong, one lower-case line.
    pub message: String,
}

impl std::error::Error for RulesError {}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl Rules {
    /// Reads a rules file.
    ///
    /// # Errors
    /// What is wrong, and in which line; nothing of the file counts then.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(wrong(1, format!("the file has {} bytes, which are more than {TEXT_BYTES_MAX}", text.len())));
        }
        let mut found = Self { queue: None, retry_seconds: RETRY_SECONDS_DEFAULT, once: false, rules: Vec::new() };
        for (index, (line, text)) in logical_lines(text)?.into_iter().enumerate() {
            let words = words(line, &text)?;
            let is_rule = words.iter().any(|(keyword, _)| keyword == "ACTION");
            if index == 0 && !is_rule {
                found.control(line, &words)?;
                continue;
            }
            if found.rules.len() >= RULES_MAX {
                return Err(wrong(line, format!("there are more than {RULES_MAX} rules")));
            }
            found.rules.push(Rule::read(line, &words)?);
        }
        if found.rules.is_empty() {
            return Err(wrong(1, "there is no rule".to_owned()));
        }
        Ok(found)
    }

    fn control(&mut self, line: usize, words: &[(String, String)]) -> Result<(), RulesError> {
        for (keyword, value) in words {
            match keyword.as_str() {
                "INPUTQ" => self.queue = Some(name(line, keyword, value)?),
                "RETRYINT" => self.retry_seconds = number(line, keyword, value, 1, RETRY_SECONDS_MAX)?,
                "WAIT" => self.once = !yes(line, keyword, value)?,
                _ => return Err(wrong(line, format!("{keyword} is no word of the first line, and ACTION is missing"))),
            }
        }
        Ok(())
    }

    /// What is to be done with a message for which attempts were made under these rules, by line: the first rule that
    /// fits and has something left to do. None where no rule has.
    pub fn decide(&self, letter: &DeadLetter, attempts: impl Fn(usize) -> u32) -> Option<&Rule> {
        let has_more = |rule: &&Rule| match rule.action {
            Action::Retry { times } => attempts(rule.line) < times,
            _ => true,
        };
        self.rules.iter().filter(|rule| rule.fits(letter)).find(has_more)
    }
}

impl Rule {
    fn read(line: usize, words: &[(String, String)]) -> Result<Self, RulesError> {
        let mut rule = Self {
            line,
            reason: None,
            cause: None,
            queue: None,
            manager: None,
            user: None,
            persistent: None,
            action: Action::Ignore,
        };
        let (mut action, mut forward, mut label, mut times) = (None, None, None, None);
        for (keyword, value) in words {
            let pattern = || (value != "*").then(|| value.clone());
            match keyword.as_str() {
                "REASON" => rule.reason = reason_code(line, value)?,
                "CAUSE" => rule.cause = pattern(),
                "DESTQ" => rule.queue = pattern(),
                "DESTQM" => rule.manager = pattern(),
                "USERID" => rule.user = pattern(),
                "PERSIST" => rule.persistent = if value == "*" { None } else { Some(yes(line, keyword, value)?) },
                "ACTION" => action = Some(value.to_ascii_uppercase()),
                "FWDQ" => forward = Some(name(line, keyword, value)?),
                "HEADER" => label = Some(yes(line, keyword, value)?),
                "RETRY" => times = Some(number(line, keyword, value, 1, RETRIES_MAX)?),
                _ => return Err(wrong(line, format!("{keyword} is no word of a rule"))),
            }
        }
        let action = action.ok_or_else(|| wrong(line, "a rule needs ACTION".to_owned()))?;
        for (given, keyword, wanted) in [
            (forward.is_some(), "FWDQ", "FWD"),
            (label.is_some(), "HEADER", "FWD"),
            (times.is_some(), "RETRY", "RETRY"),
        ] {
            if given && action != wanted {
                return Err(wrong(line, format!("{keyword} goes with ACTION({wanted})")));
            }
        }
        rule.action = match action.as_str() {
            "DISCARD" => Action::Discard,
            "IGNORE" => Action::Ignore,
            "RETRY" => Action::Retry { times: times.unwrap_or(1) },
            "FWD" => Action::Forward {
                to: forward.ok_or_else(|| wrong(line, "ACTION(FWD) needs FWDQ".to_owned()))?,
                label: label.unwrap_or(true),
            },
            _ => return Err(wrong(line, format!("ACTION cannot be {action}: DISCARD, FWD, IGNORE or RETRY"))),
        };
        Ok(rule)
    }

    /// Whether the rule is for this message.
    pub fn fits(&self, letter: &DeadLetter) -> bool {
        let like = |pattern: &Option<String>, text: &str| match pattern.as_deref() {
            None => true,
            Some(pattern) => match pattern.strip_suffix('*') {
                Some(stem) => text.starts_with(stem),
                None => text == pattern,
            },
        };
        self.reason.is_none_or(|reason| letter.reason == Some(reason))
            && self.persistent.is_none_or(|persistent| letter.persistent == persistent)
            && like(&self.cause, &letter.cause)
            && like(&self.queue, &letter.queue)
            && like(&self.manager, &letter.manager)
            && like(&self.user, &letter.user)
    }
}

/// Lines that are no comment and not blank, each with where it begins; a `+` at the end goes on with the next one.
fn logical_lines(text: &str) -> Result<Vec<(usize, String)>, RulesError> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if !open && (line_text.is_empty() || line_text.starts_with('*')) {
            continue;
        }
        let (kept, goes_on) = match line_text.strip_suffix('+') {
            Some(kept) => (kept, true),
            None => (line_text, false),
        };
        match found.last_mut().filter(|_| open) {
            Some((_, whole)) => {
                whole.push(' ');
                whole.push_str(kept);
            }
            None => found.push((index + 1, kept.to_owned())),
        }
        open = goes_on;
    }
    match found.last() {
        Some((line, _)) if open => Err(wrong(*line, "the file ends where '+' says that the rule goes on".to_owned())),
        _ => Ok(found),
    }
}

/// `KEYWORD(value)` one after the other; a value may stand in quotes, with `''` for one.
fn words(line: usize, text: &str) -> Result<Vec<(String, String)>, RulesError> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (keyword, after) = rest.split_at(end);
        let keyword = keyword.to_ascii_uppercase();
        if keyword.is_empty() {
            return Err(wrong(line, format!("expected KEYWORD(value) at {:?}", shown(rest))));
        }
        let inside = after.trim_start().strip_prefix('(');
        let inside = inside.ok_or_else(|| wrong(line, format!("expected '(' after {keyword}")))?.trim_start();
        let (value, after) = match inside.strip_prefix('\'') {
            Some(quoted) => quoted_value(line, &keyword, quoted)?,
            None => {
                let end = inside.find(')').ok_or_else(|| wrong(line, format!("expected ')' after {keyword}")))?;
                (inside[..end].trim_end().to_owned(), &inside[end..])
            }
        };
        let after = after.trim_start().strip_prefix(')');
        rest = after.ok_or_else(|| wrong(line, format!("expected ')' after {keyword}")))?.trim_start();
        if value.is_empty() || value.len() > WORD_BYTES_MAX {
            return Err(wrong(line, format!("{keyword} needs a value of at most {WORD_BYTES_MAX} bytes")));
        }
        if found.iter().any(|(known, _)| *known == keyword) {
            return Err(wrong(line, format!("{keyword} is given twice")));
        }
        found.push((keyword, value));
    }
    Ok(found)
}

fn quoted_value<'a>(line: usize, keyword: &str, text: &'a str) -> Result<(String, &'a str), RulesError> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('\'').ok_or_else(|| wrong(line, format!("the quote in {keyword} is not closed")))?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Ok((value, rest)),
        }
    }
}

/// A reason code by number or by MQ's name, with or without `MQRC_`; none for `*`.
fn reason_code(line: usize, value: &str) -> Result<Option<u16>, RulesError> {
    if value == "*" {
        return Ok(None);
    }
    if let Ok(code) = value.parse() {
        return Ok(Some(code));
    }
    let wanted = value.to_ascii_uppercase();
    let wanted = wanted.strip_prefix("MQRC_").unwrap_or(&wanted);
    let found = reason::ALL.iter().find(|reason| reason.name == wanted);
    found.map(|reason| Some(reason.code)).ok_or_else(|| wrong(line, format!("REASON({value}) is no reason code")))
}

fn name(line: usize, keyword: &str, value: &str) -> Result<String, RulesError> {
    is_name(value)
        .then(|| value.to_owned())
        .ok_or_else(|| wrong(line, format!("{keyword}({value}) is no queue's name")))
}

fn number(line: usize, keyword: &str, value: &str, min: u32, max: u32) -> Result<u32, RulesError> {
    let number = value.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| wrong(line, format!("{keyword} is a number from {min} to {max}, not {value}")))
}

fn yes(line: usize, keyword: &str, value: &str) -> Result<bool, RulesError> {
    match value.to_ascii_uppercase().as_str() {
        "YES" => Ok(true),
        "NO" => Ok(false),
        _ => Err(wrong(line, format!("{keyword} is YES or NO, not {value}"))),
    }
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(20)]
}

fn wrong(line: usize, message: String) -> RulesError {
    RulesError { line, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(reason: u16, queue: &str) -> DeadLetter {
        DeadLetter { reason: Some(reason), queue: queue.into(), cause: "undelivered".into(), ..DeadLetter::default() }
    }

    #[test]
    fn the_first_rule_that_fits_counts_and_retries_run_out() {
        let text = "* comment\n\n RETRYINT(5) WAIT(NO) INPUTQ('dead')\n\
                    REASON(MQRC_Q_FULL) DESTQ(ORDERS.*) ACTION(RETRY) RETRY(2)\n\
                    REASON(2053) ACTION(FWD) FWDQ(FULL) HEADER(NO)\n\
                    CAUSE(undelivered) +\n   PERSIST(NO) action(discard)\n\
                    ACTION(IGNORE)\n";
        let rules = Rules::parse(text).unwrap();
        assert_eq!((rules.queue.as_deref(), rules.retry_seconds, rules.once), (Some("dead"), 5, true));
        let orders = letter(2053, "ORDERS.EU");
        let decided = |letter: &DeadLetter, attempts: u32| rules.decide(letter, |_| attempts).map(|rule| rule.line);
        assert_eq!([0, 1, 2].map(|attempts| decided(&orders, attempts)), [Some(4), Some(4), Some(5)]);
        assert_eq!(rules.rules[1].action, Action::Forward { to: "FULL".into(), label: false });
        assert_eq!(decided(&letter(2053, "BILLS"), 0), Some(5));
        assert_eq!(decided(&letter(2030, "ORDERS.EU"), 0), Some(6));
        assert_eq!(decided(&DeadLetter { persistent: true, ..letter(2030, "Q") }, 0), Some(8));
        assert_eq!(decided(&DeadLetter { reason: None, cause: "rejected".into(), ..letter(0, "Q") }, 0), Some(8));
        let only = Rules::parse("DESTQ(A) ACTION(RETRY)").unwrap();
        assert!(only.decide(&letter(1, "B"), |_| 0).is_none() && only.decide(&letter(1, "A"), |_| 1).is_none());
        assert_eq!((only.retry_seconds, only.once), (60, false));
    }

    #[test]
    fn quotes_keep_what_is_in_them() {
        let rules = Rules::parse("DESTQ('a''b)c') ACTION( RETRY )").unwrap();
        assert!(rules.rules[0].fits(&letter(1, "a'b)c")) && !rules.rules[0].fits(&letter(1, "a")));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, what) in [
            ("", 1, "there is no rule"),
            ("* only\n", 1, "there is no rule"),
            ("WAIT(NO)", 1, "there is no rule"),
            ("WAIT(NO)\nWAIT(NO)", 2, "WAIT is no word of a rule"),
            ("REASON(2053)\nACTION(IGNORE)", 1, "REASON is no word of the first line, and ACTION is missing"),
            ("ACTION(IGNORE)\n\nREASON(2053)", 3, "a rule needs ACTION"),
            ("ACTION(BURN)", 1, "ACTION cannot be BURN: DISCARD, FWD, IGNORE or RETRY"),
            ("ACTION(FWD)", 1, "ACTION(FWD) needs FWDQ"),
            ("ACTION(DISCARD) FWDQ(A)", 1, "FWDQ goes with ACTION(FWD)"),
            ("ACTION(FWD) FWDQ(A) RETRY(3)", 1, "RETRY goes with ACTION(RETRY)"),
            ("ACTION(FWD) FWDQ('A B')", 1, "FWDQ(A B) is no queue's name"),
            ("ACTION(RETRY) RETRY(0)", 1, "RETRY is a number from 1 to 999999999, not 0"),
            ("ACTION(IGNORE) ACTION(IGNORE)", 1, "ACTION is given twice"),
            ("REASON(NONSENSE) ACTION(IGNORE)", 1, "REASON(NONSENSE) is no reason code"),
            ("PERSIST(MAYBE) ACTION(IGNORE)", 1, "PERSIST is YES or NO, not MAYBE"),
            ("ACTION IGNORE", 1, "expected '(' after ACTION"),
            ("ACTION(IGNORE", 1, "expected ')' after ACTION"),
            ("ACTION()", 1, "ACTION needs a value of at most 256 bytes"),
            ("DESTQ('A) ACTION(IGNORE)", 1, "the quote in DESTQ is not closed"),
            ("DESTQ('A'x) ACTION(IGNORE)", 1, "expected ')' after DESTQ"),
            ("ACTION(IGNORE) é", 1, "expected KEYWORD(value) at \"é\""),
            ("ACTION(IGNORE)\nDESTQ(A) +", 2, "the file ends where '+' says that the rule goes on"),
        ] {
            assert_eq!(Rules::parse(text), Err(wrong(line, what.to_owned())), "{text}");
        }
        let many = "ACTION(IGNORE)\n".repeat(RULES_MAX + 1);
        assert_eq!(Rules::parse(&many).unwrap_err().line, RULES_MAX + 1);
        assert!(Rules::parse(&" ".repeat(TEXT_BYTES_MAX + 1)).is_err());
    }
}
