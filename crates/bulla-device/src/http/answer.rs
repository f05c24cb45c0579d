//! The machine that reads an answer of HTTP/1.1 (RFC 9112): bytes in, an answer out. What an answer may be is bounded,
//! and the buffers are wiped: a content key may be in them.

use std::fmt;

use zeroize::Zeroizing;

use super::READ_BYTES;

/// The longest head of an answer, and of the lines behind a body in chunks.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header lines of an answer.
const HEADERS_MAX: usize = 64;
/// The longest line that says how long a chunk is.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// An answer.
#[derive(PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its header fields, in their order: names in lower case, values without what is not printable.
    pub fields: Vec<(String, String)>,
    /// Its body.
    pub body: Zeroizing<Vec<u8>>,
    /// The server closes the connection behind it.
    pub closes: bool,
}

impl Answer {
    /// The value of a header field, by its name in lower case; the first one where there are several.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Shows the length of the body only: there may be a secret in it.
impl fmt::Debug for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Answer({}, {} bytes)", self.status, self.body.len())
    }
}

/// Which answers are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// The longest body, in bytes.
    pub body_bytes_max: usize,
    /// One that does not say how long it is ends with its connection. Whoever takes it has to see by the body itself
    /// whether all of it came.
    pub to_the_end: bool,
}

/// Why what a server sent is no answer: the server's turn, or that of what stands between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadAnswer {
    /// It is none of HTTP/1.1, or not what was asked for.
    Malformed {
        /// One lower-case line.
        why: &'static str,
    },
    /// Its body is longer than is taken.
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
}

impl std::error::Error for BadAnswer {}

impl fmt::Display for BadAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadAnswer::Malformed { why } => out.write_str(why),
            BadAnswer::TooLong { bytes_max } => write!(out, "it has more than {bytes_max} bytes"),
        }
    }
}

fn bad<T>(why: &'static str) -> Result<T, BadAnswer> {
    Err(BadAnswer::Malformed { why })
}

/// Bytes that are wiped wherever they have been.
#[derive(Default)]
struct Wiped(Zeroizing<Vec<u8>>);

impl Wiped {
    /// Appends; where there is no room, all goes into a longer buffer and the old one is wiped.
    fn push(&mut self, bytes: &[u8]) {
        let len = self.0.len() + bytes.len();
        if len > self.0.capacity() {
            let mut longer = Zeroizing::new(Vec::with_capacity(len.next_power_of_two().max(READ_BYTES)));
            longer.extend_from_slice(&self.0);
            self.0 = longer;
        }
        self.0.extend_from_slice(bytes);
    }
}

/// What is read next.
#[derive(Clone, Copy)]
enum Part {
    Head,
    /// So many bytes of a body that has its length in the head.
    Body(usize),
    /// A body that ends with the connection.
    BodyToEnd,
    ChunkSize,
    /// So many bytes of a chunk.
    Chunk(usize),
    ChunkEnd,
    Trailer,
    Done,
}

/// Reads one answer.
pub struct AnswerReader {
    come: Wiped,
    /// So much of it is read.
    at: usize,
    part: Part,
    status: u16,
    closes: bool,
    fields: Vec<(String, String)>,
    body: Wiped,
    takes: Takes,
    trailer_bytes: usize,
}

impl AnswerReader {
    /// One that has read nothing yet.
    pub fn new(takes: Takes) -> AnswerReader {
        AnswerReader {
            come: Wiped::default(),
            at: 0,
            part: Part::Head,
            status: 0,
            closes: false,
            fields: Vec::new(),
            body: Wiped::default(),
            takes,
            trailer_bytes: 0,
        }
    }

    /// Takes what has come. True when the answer is whole.
    ///
    /// # Errors
    /// [`BadAnswer`]: it is none of HTTP/1.1, longer than is taken, or more came than was asked for.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<bool, BadAnswer> {
        self.come.push(bytes);
        while self.step()? {}
        match self.part {
            Part::Done if self.at < self.come.0.len() => bad("more came than the answer that was asked for"),
            Part::Done => Ok(true),
            _ => Ok(false),
        }
    }

    /// The answer, once it is whole.
    pub fn finish(self) -> Option<Answer> {
        let whole = matches!(self.part, Part::Done);
        whole.then_some(self.answer())
    }

    /// The answer, where the connection has ended: also one that says nothing of its length.
    pub fn finish_at_end(self) -> Option<Answer> {
        let whole = matches!(self.part, Part::Done | Part::BodyToEnd);
        whole.then_some(self.answer())
    }

    fn answer(self) -> Answer {
        Answer { status: self.status, fields: self.fields, body: self.body.0, closes: self.closes }
    }

    /// Reads the next part; false where more of it has to come.
    fn step(&mut self) -> Result<bool, BadAnswer> {
        match self.part {
            Part::Head => self.head(),
            Part::Body(0) => Ok(self.goes_on(Part::Done)),
            Part::Body(left) => self.content(left, Part::Body),
            Part::BodyToEnd => {
                if self.body.0.len() + self.rest().len() > self.takes.body_bytes_max {
                    return Err(BadAnswer::TooLong { bytes_max: self.takes.body_bytes_max });
                }
                self.content(usize::MAX, |_| Part::BodyToEnd)
            }
            Part::ChunkSize => self.chunk_size(),
            Part::Chunk(0) => Ok(self.goes_on(Part::ChunkEnd)),
            Part::Chunk(left) => self.content(left, Part::Chunk),
            Part::ChunkEnd => match self.rest() {
                [b'\r', b'\n', ..] => {
                    self.at += 2;
                    Ok(self.goes_on(Part::ChunkSize))
                }
                [] | [b'\r'] => Ok(false),
                _ => bad("a chunk is longer than it says"),
            },
            Part::Trailer => self.trailer(),
            Part::Done => Ok(false),
        }
    }

    fn rest(&self) -> &[u8] {
        self.come.0.get(self.at..).unwrap_or_default()
    }

    fn goes_on(&mut self, part: Part) -> bool {
        self.part = part;
        true
    }

    fn head(&mut self) -> Result<bool, BadAnswer> {
        let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut lines);
        let len = match parsed.parse(&self.come.0) {
            Ok(httparse::Status::Complete(len)) if len <= HEAD_BYTES_MAX => len,
            Ok(httparse::Status::Partial) if self.come.0.len() <= HEAD_BYTES_MAX => return Ok(false),
            Ok(_) => return bad("the head of the answer is too long"),
            Err(_) => return bad("it is no answer of HTTP/1.1"),
        };
        let (status, version) = (parsed.code.unwrap_or(0), parsed.version);
        let framing = Framing::of(parsed.headers)?;
        self.part = match framing {
            _ if status < 200 => return bad("it is an interim answer, which was not asked for"),
            _ if matches!(status, 204 | 304) => Part::Done,
            Framing::Length(len) if len > self.takes.body_bytes_max => {
                return Err(BadAnswer::TooLong { bytes_max: self.takes.body_bytes_max });
            }
            Framing::Length(len) => Part::Body(len),
            Framing::Chunks => Part::ChunkSize,
            Framing::None if self.takes.to_the_end => Part::BodyToEnd,
            Framing::None => return bad("the answer does not say how long it is"),
        };
        let says_close = parsed.headers.iter().any(|line| {
            line.name.eq_ignore_ascii_case("connection") && line.value.trim_ascii().eq_ignore_ascii_case(b"close")
        });
        self.closes = says_close || version == Some(0) || matches!(self.part, Part::BodyToEnd);
        self.fields = parsed.headers.iter().map(|line| (line.name.to_ascii_lowercase(), shown(line.value))).collect();
        (self.at, self.status) = (len, status);
        Ok(true)
    }

    fn content(&mut self, left: usize, part: fn(usize) -> Part) -> Result<bool, BadAnswer> {
        let come = self.come.0.get(self.at..).unwrap_or_default();
        let taken = come.get(..left.min(come.len())).unwrap_or_default();
        if taken.is_empty() {
            return Ok(false);
        }
        self.body.push(taken);
        self.at += taken.len();
        self.part = part(left - taken.len());
        Ok(true)
    }

    fn chunk_size(&mut self) -> Result<bool, BadAnswer> {
        match httparse::parse_chunk_size(self.rest()) {
            Ok(httparse::Status::Complete((len, size))) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                if size > self.takes.body_bytes_max - self.body.0.len().min(self.takes.body_bytes_max) {
                    return Err(BadAnswer::TooLong { bytes_max: self.takes.body_bytes_max });
                }
                self.at += len;
                Ok(self.goes_on(if size == 0 { Part::Trailer } else { Part::Chunk(size) }))
            }
            Ok(httparse::Status::Partial) if self.rest().len() <= CHUNK_LINE_BYTES_MAX => Ok(false),
            _ => bad("a chunk does not say how long it is"),
        }
    }

    /// Lines behind the last chunk are passed over, to the empty one.
    fn trailer(&mut self) -> Result<bool, BadAnswer> {
        let line = self.rest().iter().position(|byte| *byte == b'\n');
        let Some(end) = line else {
            let too_long = self.trailer_bytes + self.rest().len() > HEAD_BYTES_MAX;
            return if too_long { bad("the lines behind the answer are too long") } else { Ok(false) };
        };
        let is_empty = matches!(self.rest(), [b'\r', b'\n', ..] | [b'\n', ..]);
        self.at += end + 1;
        self.trailer_bytes += end + 1;
        if self.trailer_bytes > HEAD_BYTES_MAX {
            return bad("the lines behind the answer are too long");
        }
        Ok(self.goes_on(if is_empty { Part::Done } else { Part::Trailer }))
    }
}

/// The value of a header field.
fn shown(value: &[u8]) -> String {
    String::from_utf8_lossy(value.trim_ascii()).chars().filter(|letter| !letter.is_control()).collect()
}

/// How an answer says where it ends.
enum Framing {
    None,
    Length(usize),
    Chunks,
}

impl Framing {
    /// Two lines that could say different things are refused (RFC 9112, 6.3).
    fn of(lines: &[httparse::Header<'_>]) -> Result<Framing, BadAnswer> {
        let mut framing = Framing::None;
        for line in lines {
            let value = line.value.trim_ascii();
            let said = if line.name.eq_ignore_ascii_case("content-length") {
                let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                let len = digits.and_then(|digits| digits.parse().ok());
                Framing::Length(len.ok_or(BadAnswer::Malformed { why: "the length of the answer is no number" })?)
            } else if line.name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return bad("the answer is encoded in a way that was not asked for");
                }
                Framing::Chunks
            } else {
                continue;
            };
            if !matches!(framing, Framing::None) {
                return bad("the answer says twice how long it is");
            }
            framing = said;
        }
        Ok(framing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY_BYTES_MAX: usize = 1 << 20;
    const TAKES: Takes = Takes { body_bytes_max: BODY_BYTES_MAX, to_the_end: false };

    /// The answer, however it is cut into pieces.
    fn read(text: &str) -> Result<Option<Answer>, BadAnswer> {
        let mut whole = AnswerReader::new(TAKES);
        let all = whole.receive(text.as_bytes()).map(|done| done.then(|| whole.finish()).flatten());
        let mut bytewise = AnswerReader::new(TAKES);
        let mut done = Ok(false);
        for byte in text.as_bytes().chunks(1) {
            done = bytewise.receive(byte);
            if done.is_err() {
                break;
            }
        }
        let again = done.map(|done| done.then(|| bytewise.finish()).flatten());
        assert_eq!(all, again, "{text:?}");
        all
    }

    #[test]
    fn an_answer_has_its_length_or_comes_in_chunks() {
        let body = |text: &str| {
            let answer = read(text).expect(text).expect(text);
            (answer.status, String::from_utf8(answer.body.to_vec()).expect("text"), answer.closes)
        };
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(body(text), (200, "hello".to_owned(), false));
        let text = "HTTP/1.1 503 Sealed\r\nconnection: Close\r\nTransfer-Encoding: chunked\r\n\r\n\
                    5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nx-trailer: 1\r\n\r\n";
        assert_eq!(body(text), (503, "hello!".to_owned(), true));
        assert_eq!(body("HTTP/1.1 204 No Content\r\n\r\n"), (204, String::new(), false));
        assert_eq!(body("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"), (200, String::new(), true));
        let head = "HTTP/1.1 200 OK\r\nReplay-Nonce:  abc \r\nLink: <a>\r\nlink: <b>\r\n";
        let answer = read(&format!("{head}Content-Length: 0\r\n\r\n")).expect("an answer").expect("whole");
        assert_eq!((answer.field("replay-nonce"), answer.field("link")), (Some("abc"), Some("<a>")));
        assert_eq!(answer.field("location"), None);
        for cut in ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\n", ""] {
            assert_eq!(read(cut), Ok(None), "{cut:?}");
        }
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let ended = |text: &str, bytes_max| {
            let mut reader = AnswerReader::new(Takes { body_bytes_max: bytes_max, to_the_end: true });
            let whole = reader.receive(text.as_bytes())?;
            assert!(!whole, "{text:?}");
            Ok(reader.finish_at_end().map(|answer| (answer.body.to_vec(), answer.closes)))
        };
        assert_eq!(ended("HTTP/1.0 200 OK\r\n\r\nabc", 3), Ok(Some((b"abc".to_vec(), true))));
        assert_eq!(ended("HTTP/1.0 200 OK\r\n\r\nabcd", 3), Err(BadAnswer::TooLong { bytes_max: 3 }));
        for cut in ["HTTP/1.0 200 OK\r\n", "HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nabc", ""] {
            assert_eq!(ended(cut, 9), Ok(None), "{cut:?}");
        }
    }

    #[test]
    fn an_answer_that_is_none_too_long_or_ambiguous_is_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(HEAD_BYTES_MAX));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(HEADERS_MAX + 1));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let trailers = format!("{chunked}0\r\n{}", "x: yyyyyyyyyyyyy\r\n".repeat(HEAD_BYTES_MAX / 16));
        for (text, why) in [
            ("SSH-2.0-OpenSSH\r\n\r\n", "no answer of HTTP/1.1"),
            (&long, "head of the answer is too long"),
            (&many, "no answer of HTTP/1.1"),
            ("HTTP/1.1 100 Continue\r\n\r\n", "interim"),
            ("HTTP/1.1 200 OK\r\n\r\n", "does not say how long"),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "is no number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\na", "is no number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", "is no number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1048577\r\n\r\n", "more than 1048576 bytes"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na", "says twice"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\na", "says twice"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "not asked for"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab", "more came than the answer"),
            (&format!("{chunked}x\r\n"), "a chunk does not say"),
            (&format!("{chunked}100001\r\n"), "more than 1048576 bytes"),
            (&format!("{chunked}fffffffffffffffff\r\n"), "a chunk does not say"),
            (&format!("{chunked}1;{}", "a".repeat(CHUNK_LINE_BYTES_MAX)), "a chunk does not say"),
            (&format!("{chunked}1\r\nab\r\n"), "longer than it says"),
            (&trailers, "lines behind the answer are too long"),
        ] {
            let error = read(text).expect_err(why);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn chunks_together_are_no_longer_than_a_body_may_be() {
        let mut reader = AnswerReader::new(TAKES);
        assert_eq!(reader.receive(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), Ok(false));
        let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
        for _ in 0..BODY_BYTES_MAX / 0x10000 {
            assert_eq!(reader.receive(chunk.as_bytes()), Ok(false));
        }
        assert!(reader.receive(b"1\r\na\r\n").expect_err("too long").to_string().contains("more than 1048576 bytes"));
    }
}
