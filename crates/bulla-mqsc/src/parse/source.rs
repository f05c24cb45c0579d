//! Text to tokens: continued lines, comments, quotes, and where each character stood.

use super::{COMMAND_BYTES_MAX, Fault, Position, SyntaxError};
use std::fmt::{self, Display};

/// A command's characters, continued lines joined, and where each piece came from.
pub(super) struct Source {
    text: String,
    /// (offset in `text`, place of the character there); at least one, offsets grow.
    pieces: Vec<(usize, Position)>,
}

impl Source {
    fn at(&self, offset: usize) -> Position {
        let index = self.pieces.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
        let Some((start, place)) = self.pieces.get(index) else { return Position::default() };
        let chars = self.text.get(*start..offset).map_or(0, |text| text.chars().count());
        Position { line: place.line, column: place.column.saturating_add(u32::try_from(chars).unwrap_or(u32::MAX)) }
    }
}

/// The commands of a text: their continued lines joined, without comments and blank lines.
pub(super) struct Sources<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    open: Option<Source>,
    /// The line before ended in `+`, or is none of this command's.
    skip_blanks: bool,
}

impl<'a> Sources<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { lines: text.lines().enumerate(), open: None, skip_blanks: true }
    }
}

impl Iterator for Sources<'_> {
    type Item = Result<Source, SyntaxError>;

    fn next(&mut self) -> Option<Self::Item> {
        for (index, line) in self.lines.by_ref() {
            let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
            let body = line.trim_end();
            if line.starts_with('*') || body.is_empty() {
                continue;
            }
            let (body, continues, keep_next) = match body.as_bytes().last() {
                Some(b'+') => (&body[..body.len() - 1], true, false),
                Some(b'-') => (&body[..body.len() - 1], true, true),
                _ => (body, false, false),
            };
            let part = if self.skip_blanks { body.trim_start() } else { body };
            let blanks = body.chars().count() - part.chars().count();
            let source = self.open.get_or_insert_with(|| Source { text: String::new(), pieces: Vec::new() });
            let column = u32::try_from(blanks).unwrap_or(u32::MAX).saturating_add(1);
            source.pieces.push((source.text.len(), Position { line: number, column }));
            // Beyond the limit the rest is not kept, and the error is given at the command's end.
            if source.text.len() <= COMMAND_BYTES_MAX {
                source.text.push_str(part);
            }
            self.skip_blanks = !keep_next;
            if !continues {
                self.skip_blanks = true;
                return self.open.take().map(finished);
            }
        }
        let source = self.open.take()?;
        let at = source.at(source.text.len());
        Some(Err(SyntaxError { at, what: Fault::NothingContinues }))
    }
}

fn finished(source: Source) -> Result<Source, SyntaxError> {
    if source.text.len() > COMMAND_BYTES_MAX {
        return Err(SyntaxError { at: source.at(0), what: Fault::CommandTooLong });
    }
    Ok(source)
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum TokenKind {
    /// Folded to upper case.
    Word(String),
    /// As it stands, quotes removed.
    Quoted(String),
    Open,
    Close,
    Comma,
    Semicolon,
}

#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) at: Position,
    /// The word as it was typed, where letters of it were folded to upper case.
    pub(crate) typed: Option<String>,
}

/// For messages.
impl Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenKind::Word(word) => f.write_str(&shortened(word)),
            TokenKind::Quoted(text) => write!(f, "'{}'", shortened(text)),
            TokenKind::Open => f.write_str("'('"),
            TokenKind::Close => f.write_str("')'"),
            TokenKind::Comma => f.write_str("','"),
            TokenKind::Semicolon => f.write_str("';'"),
        }
    }
}

/// A word or text is shown in a message up to here.
const SHOWN_CHARS_MAX: usize = 64;

pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

pub(super) fn tokens(source: &Source) -> Result<Vec<Token>, SyntaxError> {
    let mut found = Vec::new();
    let mut rest = source.text.char_indices().peekable();
    let mut columns = Columns::new(source);
    while let Some((offset, first)) = rest.next() {
        let at = columns.at(offset);
        let error = |what| Err(SyntaxError { at, what });
        let mut typed = None;
        let kind = match first {
            ' ' | '\t' => continue,
            '(' => TokenKind::Open,
            ')' => TokenKind::Close,
            ',' => TokenKind::Comma,
            ';' => TokenKind::Semicolon,
            '\'' => {
                let mut text = String::new();
                loop {
                    match rest.next() {
                        Some((_, '\'')) if rest.next_if(|(_, next)| *next == '\'').is_some() => text.push('\''),
                        Some((_, '\'')) => break,
                        Some((_, found)) if found.is_control() => return error(Fault::Character { found }),
                        Some((_, found)) => text.push(found),
                        None => return error(Fault::OpenQuote),
                    }
                }
                TokenKind::Quoted(text)
            }
            first if is_word(first) => {
                let mut word = String::from(first);
                while let Some((_, next)) = rest.next_if(|(_, next)| is_word(*next)) {
                    word.push(next);
                }
                let folded = word.to_ascii_uppercase();
                typed = (folded != word).then_some(word);
                TokenKind::Word(folded)
            }
            found => return error(Fault::Character { found }),
        };
        found.push(Token { kind, at, typed });
    }
    Ok(found)
}

/// Printable ASCII that has no meaning of its own; what a value makes of it is the table's business.
fn is_word(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '(' | ')' | ',' | ';' | '\'' | '"')
}

/// Places of growing offsets, each character counted once.
struct Columns<'a> {
    source: &'a Source,
    piece: usize,
    offset: usize,
    place: Position,
}

impl<'a> Columns<'a> {
    fn new(source: &'a Source) -> Self {
        Self { source, piece: 0, offset: 0, place: source.at(0) }
    }

    fn at(&mut self, offset: usize) -> Position {
        while let Some((start, place)) = self.source.pieces.get(self.piece + 1)
            && *start <= offset
        {
            self.piece += 1;
            self.offset = *start;
            self.place = *place;
        }
        let chars = self.source.text.get(self.offset..offset).map_or(0, |text| text.chars().count());
        self.place.column = self.place.column.saturating_add(u32::try_from(chars).unwrap_or(u32::MAX));
        self.offset = offset;
        self.place
    }
}
