//! One entry: a line of JSON that names the hash of the one before it, and ends with its own. `docs/formats/audit.md`
//! is the page.

use crate::calendar;
use openssl::sha::sha256;
use serde_json::{Map, Value as Json, json};
use std::fmt::{self, Display, Write as _};

/// Longest line in bytes: a command of a megabyte whose every character takes six.
pub const LINE_BYTES_MAX: usize = 8 << 20;
/// Longest text from outside in a field, in bytes.
pub const TEXT_BYTES_MAX: usize = 512;

/// What stands between an entry and its hash.
const HASH: &str = ",\"hash\":\"";
/// What stands behind it.
const END: &str = "\"}";
/// Hexadecimal digits of a hash.
const HASH_DIGITS: usize = 64;

/// SHA-256 of an entry, in hexadecimal digits, lower case.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct EntryHash(String);

impl EntryHash {
    /// What the first entry of a log names as the one before it.
    #[must_use]
    pub fn none() -> Self {
        Self("0".repeat(HASH_DIGITS))
    }

    /// Reads 64 digits; upper and lower case are the same. None for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::exactly(&text.to_ascii_lowercase())
    }

    fn exactly(text: &str) -> Option<Self> {
        let fits = text.len() == HASH_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }

    /// The hash of an entry whose bytes before it these are.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(base16ct::lower::encode_string(&sha256(bytes)))
    }
}

impl Display for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The queue manager started.
    Start,
    /// The queue manager stopped in order.
    Stop,
    /// A command that changes something, before it is carried out.
    Command,
    /// The same, where it is about a policy.
    Policy,
    /// What became of a command.
    Result,
    /// A user asked for what it may not do, or could not sign in.
    Refusal,
    /// More of these in one second, counted.
    Refusals,
    /// Too many attempts to sign in were wrong: further ones are refused for a time.
    Lockout,
    /// A user logged in over HTTP, or a log-in was over.
    LogIn,
    /// How often a private key of a ring was used.
    KeyUse,
    /// A step of the change of a key was done.
    KeyRotation,
    /// A certificate of TLS that renews by itself was replaced.
    Certificate,
    /// A key ring was read again because its files have changed, or can't be read any more.
    Ring,
    /// A message was moved to the error queue.
    Quarantine,
    /// Entries were lost.
    Gap,
    /// What a crash left behind of an unfinished entry was cut off.
    Recovered,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 16] = [
        Kind::Start,
        Kind::Stop,
        Kind::Command,
        Kind::Policy,
        Kind::Result,
        Kind::Refusal,
        Kind::Refusals,
        Kind::Lockout,
        Kind::LogIn,
        Kind::KeyUse,
        Kind::KeyRotation,
        Kind::Certificate,
        Kind::Ring,
        Kind::Quarantine,
        Kind::Gap,
        Kind::Recovered,
    ];

    /// As it stands in an entry.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Start => "start",
            Kind::Stop => "stop",
            Kind::Command => "command",
            Kind::Policy => "policy",
            Kind::Result => "result",
            Kind::Refusal => "refusal",
            Kind::Refusals => "refusals",
            Kind::Lockout => "lockout",
            Kind::LogIn => "log-in",
            Kind::KeyUse => "key-use",
            Kind::KeyRotation => "key-rotation",
            Kind::Certificate => "certificate",
            Kind::Ring => "ring",
            Kind::Quarantine => "quarantine",
            Kind::Gap => "gap",
            Kind::Recovered => "recovered",
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Who did it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Who {
    /// The queue manager itself.
    QueueManager,
    /// A user on the admin socket, as the kernel identifies it.
    Administrator {
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
        /// Process number.
        pid: u32,
    },
    /// A connection.
    Connection {
        /// The user, in force or claimed; none for a client that gave no name.
        user: Option<String>,
        /// Where it comes from.
        address: String,
    },
    /// The user whose key ring it is, wherever connected.
    User(String),
}

impl Who {
    fn to_json(&self) -> Json {
        match self {
            Who::QueueManager => json!({ "qmgr": true }),
            Who::Administrator { uid, gid, pid } => json!({ "uid": uid, "gid": gid, "pid": pid }),
            Who::Connection { user, address } => {
                json!({ "user": user.as_deref().map(cut), "address": cut(address) })
            }
            Who::User(user) => json!({ "user": cut(user) }),
        }
    }
}

/// What is to be written down, before it has its place in the chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What it is about.
    pub kind: Kind,
    /// Who did it.
    pub who: Who,
    /// The fields that this kind has.
    pub what: Map<String, Json>,
}

impl Entry {
    /// An entry; `what` is an object.
    pub fn new(kind: Kind, who: Who, what: Json) -> Self {
        let what = match what {
            Json::Object(fields) => fields,
            other => Map::from_iter([("text".to_owned(), other)]),
        };
        Self { kind, who, what }
    }

    /// The line, with its newline, and the entry's hash. `wall_ms` is when it happened, milliseconds since 1970, UTC.
    #[must_use]
    pub fn line(&self, sequence: u64, wall_ms: u64, previous: &EntryHash) -> (String, EntryHash) {
        let Self { kind, who, what } = self;
        let (time, who) = (time(wall_ms), who.to_json());
        let what = Json::Object(what.clone());
        let mut line = format!(
            "{{\"seq\":{sequence},\"time\":\"{time}\",\"kind\":\"{kind}\",\"who\":{who},\"what\":{what},\"prev\":\"{previous}\""
        );
        let hash = EntryHash::of(line.as_bytes());
        line.push_str(HASH);
        line.push_str(&hash.0);
        line.push_str(END);
        line.push('\n');
        (line, hash)
    }
}

/// An entry as it was read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Its number; the first of a log is 1.
    pub sequence: u64,
    /// When it was written down: `2026-11-22T10:12:01.123Z`.
    pub time: String,
    /// What it is about.
    pub kind: String,
    /// Who did it.
    pub who: Json,
    /// The fields that this kind has.
    pub what: Json,
    /// The hash of the entry before it.
    pub previous: EntryHash,
    /// Its own hash, which fits.
    pub hash: EntryHash,
}

/// What is wrong with a line. The operator's turn: the file was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LineError {
    /// It does not end with a hash.
    NoHash,
    /// Its hash is another one.
    Hash,
    /// The hash fits, and what stands there is no entry.
    NoEntry,
}

impl Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LineError::NoHash => "the line ends with no hash: it is cut, or no entry",
            LineError::Hash => "the line was changed: its hash is another one",
            LineError::NoEntry => "the line is no entry",
        })
    }
}

impl Written {
    /// Reads a line, without its newline.
    ///
    /// # Errors
    /// [`LineError`].
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let rest = line.strip_suffix(END.as_bytes()).ok_or(LineError::NoHash)?;
        let (rest, digits) =
            rest.len().checked_sub(HASH_DIGITS).and_then(|at| rest.split_at_checked(at)).ok_or(LineError::NoHash)?;
        let hash = std::str::from_utf8(digits).ok().and_then(EntryHash::exactly).ok_or(LineError::NoHash)?;
        let hashed = rest.strip_suffix(HASH.as_bytes()).ok_or(LineError::NoHash)?;
        if EntryHash::of(hashed) != hash {
            return Err(LineError::Hash);
        }
        let json: Json = serde_json::from_slice(line).map_err(|_| LineError::NoEntry)?;
        let Json::Object(mut fields) = json else { return Err(LineError::NoEntry) };
        if fields.len() != FIELDS {
            return Err(LineError::NoEntry);
        }
        let mut text = |name: &str| match fields.remove(name) {
            Some(Json::String(text)) => Ok(text),
            _ => Err(LineError::NoEntry),
        };
        let (time, kind, previous) = (text("time")?, text("kind")?, text("prev")?);
        let previous = EntryHash::exactly(&previous).ok_or(LineError::NoEntry)?;
        let sequence = fields.remove("seq").and_then(|number| number.as_u64()).ok_or(LineError::NoEntry)?;
        let mut object = |name: &str| fields.remove(name).filter(Json::is_object).ok_or(LineError::NoEntry);
        let (who, what) = (object("who")?, object("what")?);
        Ok(Self { sequence, time, kind, who, what, previous, hash })
    }
}

/// Fields of a line: seq, time, kind, who, what, prev, hash.
const FIELDS: usize = 7;

/// A moment as entries have it, from milliseconds since 1970: `2026-11-22T10:12:01.123Z`. Texts of moments compare as
/// the moments do.
#[must_use]
pub fn time(wall_ms: u64) -> String {
    let mut text = calendar::rfc3339(wall_ms / 1000);
    text.pop();
    let _ = write!(text, ".{:03}Z", wall_ms % 1000); // a string takes everything
    text
}

/// A text from outside, no longer than [`TEXT_BYTES_MAX`].
pub fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let who = Who::Connection { user: Some("orders".into()), address: "192.0.2.7:50122".into() };
        let what = json!({ "action": "put", "object": "SECRET", "reason": 2035, "detail": "SECRET: no PUT" });
        Entry::new(Kind::Refusal, who, what)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let (line, hash) = entry().line(7, 1_795_342_321_123, &EntryHash::none());
        let written = Written::parse(line.trim_end_matches('\n').as_bytes()).unwrap();
        assert_eq!((written.sequence, written.time.as_str()), (7, "2026-11-22T10:12:01.123Z"));
        assert_eq!((written.kind.as_str(), &written.previous, &written.hash), ("refusal", &EntryHash::none(), &hash));
        assert_eq!(written.who, json!({ "user": "orders", "address": "192.0.2.7:50122" }));
        assert_eq!(written.what["object"], "SECRET");
    }

    /// The very line of `docs/formats/audit.md`.
    #[test]
    fn the_page_shows_an_entry_as_it_is() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/audit.md");
        let page = std::fs::read_to_string(page).unwrap();
        let shown = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let (line, _) = entry().line(7, 1_795_342_321_123, &EntryHash::none());
        assert_eq!(shown, line);
        for kind in Kind::ALL {
            assert!(page.contains(&format!("| `{kind}` |")), "{kind} is not on the page");
        }
    }

    #[test]
    fn what_a_client_says_stays_on_its_line_and_is_cut() {
        let who = Who::Connection { user: Some("a\"}\n{\"seq\":8".into()), address: "x".repeat(10_000) };
        let (line, _) = Entry::new(Kind::Refusal, who, json!({})).line(7, 0, &EntryHash::none());
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.len() < 2 * TEXT_BYTES_MAX);
        let written = Written::parse(line.trim_end_matches('\n').as_bytes()).unwrap();
        assert_eq!(written.who["user"], "a\"}\n{\"seq\":8");
    }

    #[test]
    fn a_hash_that_fits_does_not_make_an_entry_of_any_text() {
        let hashed = |text: &str| format!("{text}{HASH}{}{END}", EntryHash::of(text.as_bytes()));
        for text in ["", "{\"seq\":1", "{\"seq\":1,\"time\":2", "[1"] {
            assert_eq!(Written::parse(hashed(text).as_bytes()), Err(LineError::NoEntry), "{text}");
        }
        assert_eq!(Written::parse(b""), Err(LineError::NoHash));
        assert_eq!(Written::parse(END.as_bytes()), Err(LineError::NoHash));
    }
}
