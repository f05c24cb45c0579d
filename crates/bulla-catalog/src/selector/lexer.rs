//! The words of a selector (JMS 3.1, section 3.8.1.1).

use super::SelectorError;

/// A word and where it begins, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) at: usize,
    pub(super) kind: Kind<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'a> {
    Identifier(&'a str),
    Keyword(Keyword),
    /// A string, its doubled quotes made one.
    Text(Box<str>),
    /// A whole number without its sign: up to 2^63, which only a negative one may be.
    Whole(u64),
    Approximate(f64),
    Sign(Sign),
    End,
}

/// Words that are not identifiers, in whatever case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keyword {
    And,
    Between,
    Escape,
    False,
    In,
    Is,
    Like,
    Not,
    Null,
    Or,
    True,
}

const KEYWORDS: [(&str, Keyword); 11] = [
    ("AND", Keyword::And),
    ("BETWEEN", Keyword::Between),
    ("ESCAPE", Keyword::Escape),
    ("FALSE", Keyword::False),
    ("IN", Keyword::In),
    ("IS", Keyword::Is),
    ("LIKE", Keyword::Like),
    ("NOT", Keyword::Not),
    ("NULL", Keyword::Null),
    ("OR", Keyword::Or),
    ("TRUE", Keyword::True),
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sign {
    Open,
    Close,
    Comma,
    Plus,
    Minus,
    Times,
    Over,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Kind<'_> {
    /// What it is, for an error.
    pub(super) fn describe(&self) -> String {
        match self {
            Kind::Identifier(name) => format!("'{name}'"),
            Kind::Keyword(word) => {
                let (name, _) = KEYWORDS.iter().find(|(_, known)| known == word).unwrap_or(&KEYWORDS[0]);
                (*name).to_owned()
            }
            Kind::Text(_) => "a string".to_owned(),
            Kind::Whole(_) | Kind::Approximate(_) => "a number".to_owned(),
            Kind::Sign(sign) => format!("'{}'", sign.text()),
            Kind::End => "the end".to_owned(),
        }
    }
}

impl Sign {
    pub(super) fn text(self) -> &'static str {
        match self {
            Sign::Open => "(",
            Sign::Close => ")",
            Sign::Comma => ",",
            Sign::Plus => "+",
            Sign::Minus => "-",
            Sign::Times => "*",
            Sign::Over => "/",
            Sign::Equal => "=",
            Sign::NotEqual => "<>",
            Sign::Less => "<",
            Sign::LessOrEqual => "<=",
            Sign::Greater => ">",
            Sign::GreaterOrEqual => ">=",
        }
    }
}

/// Cuts a selector into words; the last one is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, SelectorError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start_matches([' ', '\t', '\r', '\n', '\x0c']).len();
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            tokens.push(Token { at, kind: Kind::End });
            return Ok(tokens);
        };
        let (kind, bytes) = match first {
            '\'' => string(text, at)?,
            '0'..='9' => number(text, at)?,
            '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => number(text, at)?,
            _ if begins_identifier(first) => word(rest),
            _ => sign(text, at)?,
        };
        tokens.push(Token { at, kind });
        at += bytes;
    }
}

/// Java's letters, digits, `_` and `$`; and a dot, by which the fields of an AMQP message are named.
fn begins_identifier(first: char) -> bool {
    first.is_alphabetic() || matches!(first, '_' | '$')
}

fn word(rest: &str) -> (Kind<'_>, usize) {
    let goes_on = |next: char| begins_identifier(next) || next.is_numeric() || next == '.';
    let bytes = rest.find(|next| !goes_on(next)).unwrap_or(rest.len());
    let name = &rest[..bytes];
    let keyword = KEYWORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
    (keyword.map_or(Kind::Identifier(name), |(_, keyword)| Kind::Keyword(*keyword)), bytes)
}

fn string(text: &str, at: usize) -> Result<(Kind<'_>, usize), SelectorError> {
    let mut value = String::new();
    let mut from = at + 1;
    loop {
        let Some(quote) = text[from..].find('\'') else {
            return Err(SelectorError::new(text, at, "a string without its closing quote"));
        };
        value.push_str(&text[from..from + quote]);
        from += quote + 1;
        if !text[from..].starts_with('\'') {
            return Ok((Kind::Text(value.into()), from - at));
        }
        value.push('\'');
        from += 1;
    }
}

/// Java's literals: decimal, hexadecimal and octal whole numbers with or without `L`, and approximate ones with a
/// point, an exponent or a suffix.
fn number(text: &str, at: usize) -> Result<(Kind<'_>, usize), SelectorError> {
    let rest = &text[at..];
    let wrong = |what: &str| SelectorError::new(text, at, what);
    let digits = |from: usize| rest[from..].find(|next: char| !next.is_ascii_digit()).map_or(rest.len(), |n| from + n);
    let (kind, mut end) = if rest.starts_with("0x") || rest.starts_with("0X") {
        let end = rest[2..].find(|next: char| !next.is_ascii_hexdigit()).map_or(rest.len(), |n| 2 + n);
        let bits = u64::from_str_radix(&rest[2..end], 16).map_err(|_| wrong("a number that is none, or too large"))?;
        if bits > i64::MAX as u64 {
            return Err(wrong("a number that is too large"));
        }
        (Kind::Whole(bits), end)
    } else {
        let whole = digits(0);
        let mut end = whole;
        if rest[end..].starts_with('.') {
            end = digits(end + 1);
        }
        let mut is_approximate = end > whole;
        if rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            let exponent = digits(end + 1 + sign);
            if exponent == end + 1 + sign {
                return Err(wrong("an exponent without digits"));
            }
            (end, is_approximate) = (exponent, true);
        }
        let has_suffix = rest[end..].starts_with(['f', 'F', 'd', 'D']);
        if is_approximate || has_suffix {
            let value = rest[..end].parse::<f64>().map_err(|_| wrong("a number that is none"))?;
            (Kind::Approximate(value), end + usize::from(has_suffix))
        } else {
            let is_octal = whole > 1 && rest.starts_with('0');
            let value = u64::from_str_radix(&rest[..whole], if is_octal { 8 } else { 10 });
            let value = value.ok().filter(|value| *value <= 1 << 63);
            (Kind::Whole(value.ok_or_else(|| wrong("a number that is too large, or no octal one"))?), end)
        }
    };
    if matches!(kind, Kind::Whole(_)) && rest[end..].starts_with(['l', 'L']) {
        end += 1;
    }
    if rest[end..].starts_with(|next: char| begins_identifier(next) || next.is_numeric() || next == '.') {
        return Err(SelectorError::new(text, at + end, "a number that does not end there"));
    }
    Ok((kind, end))
}

fn sign(text: &str, at: usize) -> Result<(Kind<'_>, usize), SelectorError> {
    const SIGNS: [Sign; 13] = [
        Sign::NotEqual,
        Sign::LessOrEqual,
        Sign::GreaterOrEqual,
        Sign::Open,
        Sign::Close,
        Sign::Comma,
        Sign::Plus,
        Sign::Minus,
        Sign::Times,
        Sign::Over,
        Sign::Equal,
        Sign::Less,
        Sign::Greater,
    ];
    let found = SIGNS.into_iter().find(|sign| text[at..].starts_with(sign.text()));
    let found = found.ok_or_else(|| SelectorError::new(text, at, "a character that no selector has"))?;
    Ok((Kind::Sign(found), found.text().len()))
}
