//! A selector as it is evaluated: three-valued logic over what a message shows (JMS 3.1, section 3.8.1.2).

use super::fields::{Fields, steps_of};

/// A condition or a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Text(Box<str>),
    Long(i64),
    Double(f64),
    Boolean(bool),
    /// A field by its number in [`super::fields::Wanted`].
    Field(usize),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Compare(Comparison, Box<(Expression, Expression)>),
    Between(Box<(Expression, Expression, Expression)>),
    In(usize, Vec<Box<str>>),
    Like(usize, Pattern),
    IsNull(usize),
    Minus(Box<Expression>),
    Arithmetic(Operation, Box<(Expression, Expression)>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operation {
    Plus,
    Minus,
    Times,
    Over,
}

/// What a field or an expression comes to. Text is UTF-8 as the message has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// Not there, of a type that selectors do not know, or not to be computed.
    Null,
    Boolean(bool),
    Long(i64),
    Double(f64),
    Text(&'a [u8]),
}

/// `None` is unknown.
pub(super) type Truth = Option<bool>;

impl Expression {
    /// What the condition comes to.
    pub(super) fn truth(&self, fields: &Fields<'_>) -> Truth {
        match self {
            Expression::And(terms) => {
                let mut all = Some(true);
                for term in terms {
                    match term.truth(fields) {
                        Some(false) => return Some(false),
                        Some(true) => {}
                        None => all = None,
                    }
                }
                all
            }
            Expression::Or(terms) => {
                let mut any = Some(false);
                for term in terms {
                    match term.truth(fields) {
                        Some(true) => return Some(true),
                        Some(false) => {}
                        None => any = None,
                    }
                }
                any
            }
            Expression::Not(term) => term.truth(fields).map(|is| !is),
            Expression::Compare(how, both) => compare(*how, both.0.value(fields), both.1.value(fields), fields),
            Expression::Between(three) => {
                let (value, low, high) = &**three;
                let value = value.value(fields);
                let above = compare(Comparison::GreaterOrEqual, value, low.value(fields), fields);
                let below = compare(Comparison::LessOrEqual, value, high.value(fields), fields);
                match (above, below) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }
            }
            Expression::In(field, texts) => match fields.value(*field) {
                Value::Null => None,
                Value::Text(text) => {
                    for known in texts {
                        if is_same(text, known.as_bytes(), fields)? {
                            return Some(true);
                        }
                    }
                    Some(false)
                }
                _ => Some(false),
            },
            Expression::Like(field, pattern) => match fields.value(*field) {
                Value::Null => None,
                Value::Text(text) => pattern.matches(text, fields),
                _ => Some(false),
            },
            Expression::IsNull(field) => Some(fields.value(*field) == Value::Null),
            Expression::Boolean(is) => Some(*is),
            Expression::Field(field) => match fields.value(*field) {
                Value::Boolean(is) => Some(is),
                _ => None,
            },
            // The parser lets none of these stand where a condition has to.
            Expression::Text(_)
            | Expression::Long(_)
            | Expression::Double(_)
            | Expression::Minus(_)
            | Expression::Arithmetic(..) => None,
        }
    }

    fn value<'a>(&'a self, fields: &Fields<'a>) -> Value<'a> {
        match self {
            Expression::Text(text) => Value::Text(text.as_bytes()),
            Expression::Long(number) => Value::Long(*number),
            Expression::Double(number) => Value::Double(*number),
            Expression::Boolean(is) => Value::Boolean(*is),
            Expression::Field(field) => fields.value(*field),
            Expression::Minus(term) => match term.value(fields) {
                Value::Long(number) => Value::Long(number.wrapping_neg()),
                Value::Double(number) => Value::Double(-number),
                _ => Value::Null,
            },
            Expression::Arithmetic(how, both) => arithmetic(*how, both.0.value(fields), both.1.value(fields)),
            condition => condition.truth(fields).map_or(Value::Null, Value::Boolean),
        }
    }
}

/// Compares as section 3.8.1.3 says: numbers of either kind with each other, strings and booleans for equality alone;
/// values of unlike types are neither equal nor unequal, which is false.
fn compare(how: Comparison, left: Value<'_>, right: Value<'_>, fields: &Fields<'_>) -> Truth {
    let order = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return None,
        (Value::Long(left), Value::Long(right)) => Some(left.cmp(&right)),
        (Value::Long(left), Value::Double(right)) => (left as f64).partial_cmp(&right),
        (Value::Double(left), Value::Long(right)) => left.partial_cmp(&(right as f64)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(&right),
        (Value::Text(left), Value::Text(right)) => return equality(how, is_same(left, right, fields)?),
        (Value::Boolean(left), Value::Boolean(right)) => return equality(how, left == right),
        _ => return Some(false),
    };
    // Of numbers, only one that is none has no order: it equals nothing, itself included.
    let Some(order) = order else { return Some(how == Comparison::NotEqual) };
    Some(match how {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    })
}

/// Whether two texts are equal; unknown where too much was compared already.
fn is_same(left: &[u8], right: &[u8], fields: &Fields<'_>) -> Truth {
    if left.len() != right.len() {
        return Some(false);
    }
    fields.spend(steps_of(left.len())).then(|| left == right)
}

fn equality(how: Comparison, is_equal: bool) -> Truth {
    Some(match how {
        Comparison::Equal => is_equal,
        Comparison::NotEqual => !is_equal,
        _ => false,
    })
}

/// Java's arithmetic: whole numbers wrap, and one that is not whole makes the result so. Dividing a whole number by
/// zero gives nothing.
fn arithmetic<'a>(how: Operation, left: Value<'a>, right: Value<'a>) -> Value<'a> {
    let (left, right) = match (left, right) {
        (Value::Long(left), Value::Long(right)) => {
            return match how {
                Operation::Plus => Value::Long(left.wrapping_add(right)),
                Operation::Minus => Value::Long(left.wrapping_sub(right)),
                Operation::Times => Value::Long(left.wrapping_mul(right)),
                Operation::Over if right == 0 => Value::Null,
                Operation::Over => Value::Long(left.wrapping_div(right)),
            };
        }
        (Value::Long(left), Value::Double(right)) => (left as f64, right),
        (Value::Double(left), Value::Long(right)) => (left, right as f64),
        (Value::Double(left), Value::Double(right)) => (left, right),
        _ => return Value::Null,
    };
    Value::Double(match how {
        Operation::Plus => left + right,
        Operation::Minus => left - right,
        Operation::Times => left * right,
        Operation::Over => left / right,
    })
}

/// The pattern of LIKE: `_` is one character, `%` any number of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Exactly(u8),
    One,
    Any,
}

impl Pattern {
    /// `None` where the escape character stands before something that needs none.
    pub(super) fn new(text: &str, escape: Option<char>) -> Option<Self> {
        let mut pieces = Vec::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(next) = rest.next() {
            let literal = if Some(next) == escape {
                Some(rest.next().filter(|next| matches!(next, '%' | '_') || Some(*next) == escape)?)
            } else {
                None
            };
            match (literal, next) {
                (None, '_') => pieces.push(Piece::One),
                (None, '%') if pieces.last() == Some(&Piece::Any) => {}
                (None, '%') => pieces.push(Piece::Any),
                (literal, next) => {
                    let mut bytes = [0; 4];
                    let encoded = literal.unwrap_or(next).encode_utf8(&mut bytes);
                    pieces.extend(encoded.bytes().map(Piece::Exactly));
                }
            }
        }
        Some(Self(pieces))
    }

    /// Walks the text once, and back to the last `%` where that has to take one character more: at most text times
    /// pattern steps. Unknown where that is more than may be spent on a message.
    fn matches(&self, text: &[u8], fields: &Fields<'_>) -> Truth {
        let (mut at, mut piece) = (0, 0);
        let mut again: Option<(usize, usize)> = None;
        loop {
            if !fields.spend(1) {
                return None;
            }
            match self.0.get(piece) {
                Some(Piece::Any) if piece + 1 == self.0.len() => return Some(true),
                Some(Piece::Any) => {
                    again = Some((at, piece + 1));
                    piece += 1;
                    continue;
                }
                Some(Piece::Exactly(byte)) if text.get(at) == Some(byte) => {
                    (at, piece) = (at + 1, piece + 1);
                    continue;
                }
                Some(Piece::One) if at < text.len() => {
                    (at, piece) = (at + character(&text[at..]), piece + 1);
                    continue;
                }
                None if at == text.len() => return Some(true),
                _ => {}
            }
            match &mut again {
                Some((from, behind)) if *from < text.len() => {
                    *from += character(&text[*from..]);
                    (at, piece) = (*from, *behind);
                }
                _ => return Some(false),
            }
        }
    }
}

/// Bytes of the character that `text` begins with.
fn character(text: &[u8]) -> usize {
    1 + text[1..].iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()
}
