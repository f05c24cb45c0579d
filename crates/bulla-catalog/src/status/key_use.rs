//! Which keys the messages of a queue need.

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
