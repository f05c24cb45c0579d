//! Selectors: which messages of a queue a consumer wants (JMS 3.1, section 3.8).
//!
//! A selector is parsed once, at attach, into an expression and the list of fields it looks at. A message is judged on
//! the bytes that the queue has: a walk over the sections before the body notes where the wanted fields are, and the
//! expression reads them there. Nothing is decoded that is not asked for, the body is never looked at, and after the
//! first few messages nothing is allocated.
//!
//! Everything that a client may send has a limit: the text, how deep it nests, how many operations it has, and what
//! judging one message may cost.

mod expression;
mod fields;
mod id;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;

pub use fields::{Facts, Scratch};
pub use fields::{each_number, value_len};
pub use id::{group_of, keys_of};

use expression::{Comparison, Expression};
use fields::Wanted;

/// Bytes of a selector.
pub const SELECTOR_BYTES_MAX: usize = 10_240;
/// Levels of parentheses, NOTs and signs.
pub const DEPTH_MAX: usize = 64;
/// Comparisons, tests and arithmetic operations of one selector: as deep as an expression can come to be beside
/// [`DEPTH_MAX`].
pub const CHAIN_MAX: usize = 1_000;
/// Names, literals and tests of one selector.
pub const TERMS_MAX: usize = 4_096;

/// Why a selector is none: the application's turn (2067 MQRC_SELECTOR_ERROR).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelectorError {
    /// Which character it is about, from 1.
    pub position: usize,
    /// What is wrong.
    pub what: String,
}

impl SelectorError {
    fn new(text: &str, at: usize, what: impl Into<String>) -> Self {
        let before = text.get(..at).unwrap_or(text);
        Self { position: before.chars().count() + 1, what: what.into() }
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the selector at character {}: {}", self.position, self.what)
    }
}

impl std::error::Error for SelectorError {}

/// A selector, ready to judge messages.
#[derive(Clone, Debug)]
pub struct Selector {
    expression: Expression,
    wanted: Wanted,
    key: Option<Key>,
}

/// What every message that a selector takes has in common, as the index of a queue knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Key {
    /// 0: the message id; 1: the correlation id.
    pub kind: usize,
    /// The number that [`keys_of`] gives for it.
    pub value: u64,
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// What is wrong, and at which character.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            let what = format!("{} bytes are more than the {SELECTOR_BYTES_MAX} that a selector may have", text.len());
            return Err(SelectorError { position: 1, what });
        }
        let (expression, mut wanted) = parser::parse(text)?;
        wanted.prepare();
        let key = key(&expression, &wanted);
        Ok(Self { expression, wanted, key })
    }

    /// The id that the selector asks for, alone or as one term of an AND.
    pub fn key(&self) -> Option<Key> {
        self.key
    }

    /// Whether a message is wanted: hot path, once a message. `body` is the message as the queue has it, or the front
    /// of it if not `is_whole`; `None` says that the front is not enough. One walk over the sections before the body,
    /// and one over the expression; `scratch` keeps what that needs from message to message.
    pub fn matches(&self, scratch: &mut Scratch, facts: Facts, body: &[Bytes], is_whole: bool) -> Option<bool> {
        let fields = scratch.find(&self.wanted, facts, body, is_whole)?;
        let is_wanted = self.expression.truth(&fields) == Some(true);
        scratch.spent = fields.spent();
        Some(is_wanted)
    }
}

/// Looks for `id = 'literal'` where nothing can be wanted without it.
fn key(expression: &Expression, wanted: &Wanted) -> Option<Key> {
    match expression {
        Expression::And(terms) => terms.iter().find_map(|term| key(term, wanted)),
        Expression::Compare(Comparison::Equal, both) => match &**both {
            (Expression::Field(field), Expression::Text(text)) | (Expression::Text(text), Expression::Field(field)) => {
                wanted.key(*field, text)
            }
            _ => None,
        },
        _ => None,
    }
}
