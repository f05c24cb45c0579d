//! Changes of keys that are under way.

/// A key, as messages name it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyOfRotation {
    /// Who issued its certificate.
    pub issuer: String,
    /// The certificate's serial number, hexadecimal.
    pub serial: String,
    /// The key identifier, hexadecimal; empty without one.
    pub key_id: String,
}

/// A change of a key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyRotationStatus {
    /// Whose key.
    pub user: String,
    /// The subject of its certificate.
    pub subject: String,
    /// The key that is replaced.
    pub old: KeyOfRotation,
    /// The new one, once it has a certificate.
    pub new: Option<KeyOfRotation>,
    /// The last step that was done, in lower case.
    pub step: &'static str,
    /// When that was, milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// Until when the old key is kept in any case, milliseconds since 1970, UTC; none while the new one is not shared.
    pub overlap_until_ms: Option<u64>,
    /// Messages on queues that the old key opens.
    pub messages: u64,
    /// Messages for it in units of work that are not committed.
    pub staged: u64,
    /// Messages of which it is not known what opens them.
    pub unknown: u64,
    /// Bytes of the messages on queues, as stored.
    pub bytes: u64,
    /// The queues with all of these.
    pub queues: Vec<String>,
    /// How many needed the old key when that was first counted.
    pub began_messages: Option<u64>,
    /// Whether the queue manager gives out no ring any more that lacks the new key.
    pub is_read: bool,
}
