//! Which keys the messages of a queue need.

/// Messages of one queue that no key ring here can open, when it was looked for last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stranded {
    /// No ring here has a private key that opens them.
    pub no_key: u64,
    /// A ring here has one, and can't be read.
    pub locked: u64,
    /// Age of the oldest of them in seconds.
    pub oldest_seconds: u64,
}

impl Stranded {
    /// All of them.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.no_key + self.locked
    }

    /// How many for which cause.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, u64); 2] {
        [("no-key", self.no_key), ("locked", self.locked)]
    }
}

/// A private key that a key ring here had, that messages need, and that is in no ring any more.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MissingKey {
    /// Users whose rings had it.
    pub users: Vec<String>,
    /// The subject of its certificate.
    pub subject: String,
    /// The serial number, hexadecimal.
    pub serial: String,
    /// How messages name it: DER of issuer and serial number, and the key identifier.
    pub names: Vec<Vec<u8>>,
    /// Messages that need it.
    pub messages: u64,
    /// The first queues that they are on.
    pub queues: Vec<String>,
    /// How many queues they are on.
    pub queue_count: usize,
}

impl MissingKey {
    /// Whether a message that names its recipient so needs it.
    #[must_use]
    pub fn is_named(&self, name: &[u8]) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// A key that messages need, on whatever queues they are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NeededKey {
    /// The subject of its certificate; empty where no ring here has that.
    pub subject: String,
    /// The certificate's serial number, hexadecimal; empty where messages name the key by its identifier alone.
    pub serial: String,
    /// The key identifier, hexadecimal, where messages name the key by that.
    pub key_id: String,
    /// Messages on queues that it opens.
    pub messages: u64,
    /// Whether a ring here has the private key and can be read.
    pub is_here: bool,
    /// When its certificate ends, seconds since 1970, where a ring here has it.
    pub not_after: Option<u64>,
}

/// What the messages of one queue need of one key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyUseStatus {
    /// The queue.
    pub queue: String,
    /// Whether it is known what opens the messages; where not, all that names a key is empty.
    pub is_known: bool,
    /// Messages on the queue that the key opens, those under delivery included.
    pub messages: u64,
    /// Messages in units of work that are not committed.
    pub staged: u64,
    /// Bytes of the messages on the queue, as stored.
    pub bytes: u64,
    /// Age of the oldest of them in seconds; none where none is on the queue.
    pub oldest_seconds: Option<u64>,
    /// Users here whose rings have the private key.
    pub users: Vec<String>,
    /// Users here who have it in a ring that can't be read.
    pub locked: Vec<String>,
    /// The subject of the key's certificate; empty where no ring here has that.
    pub subject: String,
    /// Who issued the certificate; empty where messages name the key alone.
    pub issuer: String,
    /// The certificate's serial number, hexadecimal.
    pub serial: String,
    /// The key identifier, hexadecimal, where messages name the key by that.
    pub key_id: String,
    /// Until when the certificate is valid, milliseconds since 1970, UTC, where a ring here has it.
    pub valid_to_ms: Option<u64>,
}
