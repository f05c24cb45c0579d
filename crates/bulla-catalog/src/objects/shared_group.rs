//! Groups of shared queues: how their log is reached.

use std::path::PathBuf;

/// Characters of a group's name: it is that of a stream, and part of the names of its own queues.
pub const SHARED_GROUP_NAME_CHARS_MAX: usize = 32;
/// Groups that a queue manager is a member of.
pub const SHARED_GROUPS_MAX: usize = 15;
/// MAXBYTES of a new group.
pub const SHARED_LOG_BYTES_DEFAULT: u64 = 8 << 30;
/// Copies of a new group's log.
pub const SHARED_LOG_COPIES_DEFAULT: u32 = 3;

/// A group of shared queues that this queue manager is a member of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedGroup {
    /// DESCR
    pub description: String,
    /// SERVERS: addresses of the engine's servers.
    pub servers: Vec<String>,
    /// MONITORS: addresses where these tell how they run.
    pub monitors: Vec<String>,
    /// CREDS: a file with the credentials of a user there.
    pub credentials: Option<PathBuf>,
    /// CAFILE: who vouches for the servers; none for connections in clear.
    pub authorities: Option<PathBuf>,
    /// CERTFILE
    pub certificate: Option<PathBuf>,
    /// KEYFILE
    pub key: Option<PathBuf>,
    /// REPLICAS: servers that keep a copy each, when the log is made.
    pub copies: u32,
    /// MAXBYTES: bytes of the log, when it is made.
    pub log_bytes: u64,
    /// DURABLE(REQUIRED): the log is not used where it is not known that a confirmed batch survives a power cut.
    pub durable_required: bool,
    /// CONNAME: where clients of the group reach this queue manager.
    pub address: Option<String>,
    /// REDIRECT
    pub redirect: Redirect,
    /// SSLCIPH: what protects a connection to the owner that links are forwarded on; none for clear.
    pub cipher_spec: Option<String>,
    /// AUTOSTART(YES)
    pub autostart: bool,
}

/// REDIRECT: what becomes of a client that opens a queue of a group which another member owns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Redirect {
    /// Nothing: its link is forwarded to the owner.
    Forward,
    /// Its link is sent there.
    Link,
    /// Its connection is.
    Connection,
    /// Its link is refused.
    No,
}

impl Default for SharedGroup {
    fn default() -> Self {
        Self {
            description: String::new(),
            servers: Vec::new(),
            monitors: Vec::new(),
            credentials: None,
            authorities: None,
            certificate: None,
            key: None,
            copies: SHARED_LOG_COPIES_DEFAULT,
            log_bytes: SHARED_LOG_BYTES_DEFAULT,
            durable_required: true,
            address: None,
            redirect: Redirect::Forward,
            cipher_spec: None,
            autostart: true,
        }
    }
}

/// Whether it can be the name of a group: 1 to [`SHARED_GROUP_NAME_CHARS_MAX`] letters, digits, `-` and `_`.
pub fn is_shared_group_name(name: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    (1..=SHARED_GROUP_NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_word)
}
