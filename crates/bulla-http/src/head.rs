//! The head of a request: its line and its headers (RFC 9112, sections 3 and 5).

use crate::framing;
use crate::limits::{HEADERS_MAX, Limits};
use crate::refusal::{self, Refusal};
use std::mem::MaybeUninit;
use std::ops::Range;

/// A method (RFC 9110, section 9; RFC 5789 for PATCH).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD: its answer has the headers of GET's and no body.
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// PATCH
    Patch,
    /// OPTIONS
    Options,
    /// Another one, as the client wrote it.
    Other(Box<str>),
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "PATCH" => Self::Patch,
            "OPTIONS" => Self::Options,
            other => Self::Other(other.into()),
        }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Patch => "PATCH",
            Self::Options => "OPTIONS",
            Self::Other(name) => name,
        }
    }
}

/// Versions that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// The target of a request in origin-form (RFC 9112, section 3.2.1): visible ASCII, percent-encoded, without a
/// fragment. `*` for OPTIONS of the whole server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    text: Box<str>,
    /// Where the question mark stands; the text's length where there is none.
    query_at: usize,
}

impl Target {
    fn of(text: &str, method: &Method, limits: &Limits) -> Result<Self, Refusal> {
        if text.len() > limits.target_bytes_max {
            return Err(refusal::TARGET_TOO_LONG);
        }
        if !text.starts_with('/') && (text != "*" || *method != Method::Options) {
            return Err(refusal::TARGET_FORM);
        }
        let bytes = text.as_bytes();
        if !bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
            return Err(refusal::TARGET_CHARACTER);
        }
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !(is_digit(at + 1) && is_digit(at + 2))) {
            return Err(refusal::TARGET_PERCENT);
        }
        Ok(Self { text: text.into(), query_at: text.find('?').unwrap_or(text.len()) })
    }

    /// Path and query as the client wrote them.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path, still percent-encoded.
    pub fn path(&self) -> &str {
        self.text.get(..self.query_at).unwrap_or_default()
    }

    /// The query behind the question mark, still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        self.text.get(self.query_at + 1..)
    }
}

/// Headers in the order in which they came. Names are looked up without case.
#[derive(Clone, PartialEq, Eq)]
pub struct Headers {
    text: Box<[u8]>,
    fields: Box<[Field]>,
}

/// Where a header lies in the text.
#[derive(Clone, PartialEq, Eq)]
struct Field {
    name: Range<u32>,
    value: Range<u32>,
}

impl Headers {
    fn of(parsed: &[httparse::Header<'_>]) -> Self {
        let bytes = parsed.iter().map(|header| header.name.len() + header.value.len()).sum();
        let mut text = Vec::with_capacity(bytes);
        let mut add = |bytes: &[u8]| {
            let from = at(text.len());
            text.extend_from_slice(bytes);
            from..at(text.len())
        };
        let fields =
            parsed.iter().map(|header| Field { name: add(header.name.as_bytes()), value: add(header.value) }).collect();
        Self { text: text.into_boxed_slice(), fields }
    }

    fn slice(&self, range: &Range<u32>) -> &[u8] {
        self.text.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// All of them: names as the client wrote them, values without white space around them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let name = |field| std::str::from_utf8(self.slice(field)).unwrap_or_default();
        self.fields.iter().map(move |field| (name(&field.name), self.slice(&field.value)))
    }

    /// The values of all headers of a name.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let is_it = move |field: &&'a Field| self.slice(&field.name).eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter().filter(is_it).map(|field| self.slice(&field.value))
    }

    /// The value of the first header of a name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The same as text; none where it is not UTF-8 either.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Headers of a name.
    pub fn count(&self, name: &str) -> usize {
        self.all(name).count()
    }

    /// Whether a header that is a list has that entry (RFC 9110, section 5.6.1), without case.
    pub(crate) fn lists(&self, name: &str, entry: &str) -> bool {
        let mut entries = self.all(name).flat_map(|value| value.split(|byte| *byte == b','));
        entries.any(|found| found.trim_ascii().eq_ignore_ascii_case(entry.as_bytes()))
    }
}

/// Names alone: values hold passwords and tokens, and a head may be shown in a log.
impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// A place in a head, whose length is bounded far below 4 GiB.
fn at(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// How long the body of a request is (RFC 9112, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLen {
    /// There is none.
    None,
    /// So many bytes.
    Counted(u64),
    /// Known when it ends.
    Chunked,
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What is to be done.
    pub method: Method,
    /// With what.
    pub target: Target,
    /// The version that the client speaks.
    pub version: Version,
    /// All headers.
    pub headers: Headers,
    /// The body that follows.
    pub body: BodyLen,
    /// The client waits for `100 Continue` before it sends the body. [`Server::go_on`](crate::Server::go_on) sends it.
    pub expects_continue: bool,
}

/// What the client wants of the connection after this request (RFC 9112, section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It ends.
    Close,
    /// It stays.
    Keep,
    /// It stays, and the answer must say so: HTTP/1.0.
    KeepIfSaid,
}

/// Reads a head that [`Scan`](crate::lines::Scan) has found whole.
pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<(Head, Persistence), Refusal> {
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let room = room.get_mut(..limits.headers_max.min(HEADERS_MAX)).unwrap_or_default();
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, room) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        // The scan found its end elsewhere: nothing that two readers see differently is taken.
        Ok(_) => return Err(refusal::REQUEST_LINE),
        Err(error) => return Err(refused(error, bytes)),
    }
    let version = if request.version == Some(0) { Version::Http10 } else { Version::Http11 };
    let method = Method::of(request.method.unwrap_or_default());
    let target = Target::of(request.path.unwrap_or_default(), &method, limits)?;
    let headers = Headers::of(request.headers);
    framing::check_host(&headers, version)?;
    let body = framing::body_len(&headers, version, limits)?;
    let expects_continue = framing::expects_continue(&headers, version)? && !matches!(body, BodyLen::None);
    let persistence = match version {
        _ if headers.lists("connection", "close") => Persistence::Close,
        Version::Http11 => Persistence::Keep,
        Version::Http10 if headers.lists("connection", "keep-alive") => Persistence::KeepIfSaid,
        Version::Http10 => Persistence::Close,
    };
    Ok((Head { method, target, version, headers, body, expects_continue }, persistence))
}

fn refused(error: httparse::Error, bytes: &[u8]) -> Refusal {
    match error {
        httparse::Error::HeaderName => refusal::HEADER_NAME,
        httparse::Error::HeaderValue => refusal::HEADER_VALUE,
        httparse::Error::TooManyHeaders => refusal::TOO_MANY_HEADERS,
        httparse::Error::Version if names_another_version(bytes) => refusal::VERSION,
        _ => refusal::REQUEST_LINE,
    }
}

/// Whether the request line is one of another version, with single blanks between its three words.
fn names_another_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_version = matches!(version, Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
        if major.is_ascii_digit() && minor.is_ascii_digit());
    let has_words = [method, target].into_iter().flatten().filter(|word| !word.is_empty()).count() == 2;
    is_version && has_words && words.next().is_none()
}
