//! How a shared log is reached and kept, and the limits of its parts.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a batch that goes as one message; a larger one goes in parts. The server's limit on a message is 1 MiB
/// where its configuration names none.
pub const WHOLE_BYTES_MAX: usize = 512 << 10;
/// Bytes of a part.
pub const PART_BYTES: usize = 512 << 10;
/// Bytes that a message may have besides its frame: headers.
pub const MESSAGE_HEADERS_BYTES_MAX: usize = 4 << 10;
/// Parts of one batch that are under way at once.
pub const PARTS_IN_FLIGHT_MAX: usize = 8;
/// Characters of a group's name.
pub const GROUP_NAME_MAX: usize = 48;
/// Reads under way at once.
pub const READS_IN_FLIGHT_MAX: usize = 256;
/// Bytes of messages kept after a read, since neighbours are read next.
pub const READ_CACHE_BYTES_MAX: usize = 8 << 20;
/// Bytes that one request for messages brings, at most, and the last message.
pub const REPLAY_BYTES_MAX: usize = 8 << 20;
/// Messages that one request brings.
pub const REPLAY_MESSAGES_MAX: usize = 1_024;

/// How long the engine remembers the identity of a message, so that sending it again does no harm.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// How long an append is sent again under its identity: well below the window. Then the end of the log is read.
pub const RETRY_WITHIN: Duration = Duration::from_secs(60);
/// How long an answer to one request is waited for.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long a claim, a replay or a read goes on trying: longer than two elections of the engine, 4 to 9 s each.
pub const ENGINE_WITHIN: Duration = Duration::from_secs(30);
/// How long the stream's leader may answer nothing before it is asked by way of another server: about as long as an
/// election. A server that is cut off from the others keeps its clients, and does not reach the leader.
pub const UNHEARD_MAX: Duration = Duration::from_secs(6);
/// How long an owner may be silent before it counts as gone. It is asked again and again meanwhile.
pub const OWNER_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long the engine has to say that the owner does not listen before it counts as gone: an owner whose server died
/// finds another one sooner.
pub const OWNER_ABSENT_FOR: Duration = Duration::from_millis(750);
/// How long an owner that the engine does not find, and whose process answers, has to turn to another server of the
/// engine: longer than [`UNHEARD_MAX`].
pub const OWNER_FINDS_ENGINE_WITHIN: Duration = Duration::from_secs(10);
/// How long an owner's process has to answer.
pub const PROCESS_ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// How often an owner is asked.
pub const OWNER_ASKED_EVERY: Duration = Duration::from_millis(250);
/// How long what is in the log may be sent after the beginning of the last append or look that succeeded.
pub const OWNED_FOR: Duration = Duration::from_millis(800);
/// How long a claimant sends nothing: longer than that, so that what the former owner sent last is on its way.
pub const SENDS_AFTER: Duration = Duration::from_secs(1);
/// How often an owner looks whether it is one still, where no append shows it.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a look has. One may have no answer, and the next still come in time.
pub const LOOK_WITHIN: Duration = Duration::from_millis(500);
/// How long the log must lack what its owner wrote before that is so for certain: longer than a leader that is cut off
/// from the others takes to hear of it. It tells who reads what it has.
pub const BEHIND_FOR: Duration = Duration::from_secs(20);
/// Messages of looks that gather in the stream, about, before they are removed.
pub const BEATS_KEPT: u32 = 16;
/// How long an end waits for what was submitted.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(15);
/// How long the first connection may take, all servers together.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Questions to owners that are under way at once; further ones wait, as many again.
pub const QUESTIONS_MAX: usize = 256;
/// Bytes of a question.
pub const QUESTION_BYTES_MAX: usize = 1_024;
/// How long a server's monitoring address has to answer.
pub const MONITOR_WITHIN: Duration = Duration::from_secs(2);
/// The first pause before a request is repeated; each further one is twice as long.
pub const PAUSE_FIRST: Duration = Duration::from_millis(20);
/// The longest pause before a request is repeated.
pub const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often the connection is tried when nothing comes.
pub const PING_EVERY: Duration = Duration::from_secs(2);
/// How often the stream's bytes are asked for; between, the owner counts them.
pub const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Bytes of the stream that no batch gets: room for claims.
pub const CLAIM_RESERVE_BYTES: u64 = 64 << 10;
/// The smallest batch takes this many times its bytes in the stream, with its subject, headers and checksum there. So
/// many times what a store reserves must be free for that reserve to hold.
pub const SMALL_BATCH_FACTOR: u64 = 8;
/// Bytes of a stream below which a group is refused: what is left of less is nothing.
pub const STREAM_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a stream where nothing is said.
pub const STREAM_BYTES_DEFAULT: u64 = 8 << 30;
/// Servers that keep a copy each where nothing is said.
pub const REPLICAS_DEFAULT: usize = 3;

/// The files of mutual TLS, in PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tls {
    /// Who may vouch for the servers. No others are trusted, those of the system included.
    pub authorities: PathBuf,
    /// The queue manager's certificate, with those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What to do where it is not known that a confirmed batch survives a power cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// The log is not opened.
    Required,
    /// The log is opened, and [`LogLimits::survives`](bulla_queue::log::LogLimits::survives) says what is known.
    AsFound,
}

/// How a shared log is reached and kept.
#[derive(Clone)]
pub struct Options {
    /// The group's name: 1 to [`GROUP_NAME_MAX`] letters, digits, `-` and `_`. Also the name of the stream.
    pub group: String,
    /// Who claims, for others to see.
    pub owner: String,
    /// A number that no other opener has: random.
    pub instance: u64,
    /// Addresses of the engine's servers, `host:port` or `tls://host:port`.
    pub servers: Vec<String>,
    /// Mutual TLS; without it everything goes in the clear.
    pub tls: Option<Tls>,
    /// The file with the credentials of a user of the group's account.
    pub credentials: Option<PathBuf>,
    /// Servers that keep a copy each, when the stream is made.
    pub replicas: usize,
    /// Bytes of the stream, when it is made.
    pub stream_bytes: u64,
    /// Addresses where servers tell how they run, `host:port`; there alone it can be seen whether they sync each write.
    pub monitors: Vec<String>,
    /// What to do where that is not known.
    pub durability: Durability,
    /// How long an append is sent again under its identity before the end of the log is read: [`RETRY_WITHIN`]. Less is
    /// for tests.
    pub retry_within: Duration,
    /// Where the process of the log's owner takes connections, `host:port`, if that is known and is not this one's own.
    /// Asked on the log's thread when the owner does not answer over the engine. Must not block.
    pub owner_at: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// Called from the log's thread when there is something to poll. Must not block.
    pub waker: Arc<dyn Fn() + Send + Sync>,
    /// Called at the beginning of the log's thread, on it.
    pub thread_begins: Arc<dyn Fn() + Send + Sync>,
    /// The owner's answer to another member's question ([`Asker`](crate::Asker)), called on the log's thread where this
    /// one is the owner. Must not block.
    pub answers: Arc<Answers>,
}

/// What an owner answers a member; none for nothing.
pub type Answers = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

impl Options {
    /// What is usual, for a group on these servers.
    #[must_use]
    pub fn new(group: &str, owner: &str, instance: u64, servers: Vec<String>) -> Self {
        Options {
            group: group.to_owned(),
            owner: owner.to_owned(),
            instance,
            servers,
            tls: None,
            credentials: None,
            replicas: REPLICAS_DEFAULT,
            stream_bytes: STREAM_BYTES_DEFAULT,
            monitors: Vec::new(),
            durability: Durability::Required,
            retry_within: RETRY_WITHIN,
            owner_at: Arc::new(|| None),
            waker: Arc::new(|| {}),
            thread_begins: Arc::new(|| {}),
            answers: Arc::new(|_| None),
        }
    }

    /// What is wrong with them, if something is.
    pub(crate) fn fault(&self) -> Option<String> {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if !(1..=GROUP_NAME_MAX).contains(&self.group.len()) || !self.group.chars().all(is_word) {
            return Some(format!("a group's name has 1 to {GROUP_NAME_MAX} letters, digits, - and _"));
        }
        if self.owner.len() > crate::frame::OWNER_BYTES_MAX {
            return Some(format!("an owner's name has at most {} bytes", crate::frame::OWNER_BYTES_MAX));
        }
        if self.servers.is_empty() {
            return Some("no server is named".to_owned());
        }
        if self.stream_bytes < STREAM_BYTES_MIN {
            return Some(format!("a stream has at least {STREAM_BYTES_MIN} bytes"));
        }
        None
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Options({} of {} at {:?})", self.group, self.owner, self.servers)
    }
}
