//! Finds the end of a head, and looks at each of its bytes once, however it comes.
//!
//! `httparse` takes a bare line feed for the end of a line. Where one server does so and the one before it does not,
//! requests are smuggled (RFC 9112, section 2.2): what this scan lets through has lines that end in CRLF and no other
//! control character than the tab.

use crate::limits::Limits;
use crate::refusal::{self, Refusal};

/// Bytes of a request line beside its target: the method, two blanks and the version.
const LINE_REST_BYTES_MAX: usize = 32;

/// How far a head was looked at.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Bytes of the head that were looked at.
    looked: usize,
    /// Bytes of the line that they end in.
    line: usize,
    /// Lines before it.
    lines: usize,
    /// Whether the last byte was a carriage return.
    after_cr: bool,
    /// An empty line before the request was skipped. One is allowed: some clients end a body with it (RFC 9112, section
    /// 2.2).
    pub(crate) skipped: bool,
}

/// What a head looks like so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It ends before this byte.
    Whole(usize),
    /// More of it must come.
    Partial,
    /// It is refused.
    Wrong(Refusal),
}

impl Scan {
    /// Looks at what has come since the last call; `bytes` begin with the head.
    pub(crate) fn go_on(&mut self, bytes: &[u8], limits: &Limits) -> Found {
        for &byte in bytes.get(self.looked..).unwrap_or_default() {
            if self.looked >= limits.head_bytes_max {
                return Found::Wrong(self.too_long());
            }
            self.looked += 1;
            match byte {
                b'\n' if self.after_cr => {
                    self.after_cr = false;
                    match (self.line, self.lines) {
                        (0, 0) => return Found::Wrong(refusal::EMPTY_LINE),
                        (0, _) => return Found::Whole(self.looked),
                        _ => (self.line, self.lines) = (0, self.lines + 1),
                    }
                }
                b'\n' => return Found::Wrong(refusal::BARE_LF),
                _ if self.after_cr => return Found::Wrong(refusal::BARE_CR),
                b'\r' => self.after_cr = true,
                b' ' | b'\t' if self.line == 0 => return Found::Wrong(refusal::FOLDED_LINE),
                b'\t' | b' '..=b'~' | 0x80.. => self.line += 1,
                _ => return Found::Wrong(refusal::CONTROL_CHARACTER),
            }
            if self.lines == 0 && self.line > limits.target_bytes_max + LINE_REST_BYTES_MAX {
                return Found::Wrong(refusal::TARGET_TOO_LONG);
            }
        }
        Found::Partial
    }

    /// Whether a byte of it was looked at.
    pub(crate) fn has_begun(&self) -> bool {
        self.looked > 0 || self.skipped
    }

    fn too_long(&self) -> Refusal {
        if self.lines == 0 { refusal::TARGET_TOO_LONG } else { refusal::HEAD_TOO_LARGE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_at_the_first_empty_line() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut more = head.to_vec();
        more.extend_from_slice(b"GET");
        assert_eq!(Scan::default().go_on(&more, &Limits::default()), Found::Whole(head.len()));
        let mut scan = Scan::default();
        for end in 0..head.len() {
            assert_eq!(scan.go_on(&head[..end], &Limits::default()), Found::Partial, "{end}");
        }
        assert_eq!(scan.go_on(head, &Limits::default()), Found::Whole(head.len()));
    }

    #[test]
    fn a_head_that_is_one_byte_too_long_is_refused() {
        let limits = Limits { head_bytes_max: 27, ..Limits::default() };
        assert_eq!(Scan::default().go_on(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &limits), Found::Whole(27));
        let longer = b"GET / HTTP/1.1\r\nHost: ab\r\n\r\n";
        assert_eq!(Scan::default().go_on(longer, &limits), Found::Wrong(refusal::HEAD_TOO_LARGE));
    }
}
