//! What the messages of queues are sealed with.

/// How messages of a queue are protected, as far as it shows without opening them. The order is that in which it is
/// shown.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum SealedAs {
    /// Not sealed.
    Clear,
    /// Sealed.
    Sealed {
        /// MQSC's word for the quality of protection: `INTEGRITY`, `CONFIDENTIALITY`; `ENCRYPTED` where whether it is
        /// signed inside the envelope does not show.
        quality: &'static str,
        /// Kinds of keys that signed, with their digest, as `rsa2048 SHA256`.
        signers: Vec<String>,
        /// Kinds of keys that open, as `rsa2048 OAEP`.
        recipients: Vec<String>,
        /// ENCALG's word for the content cipher; empty where there is none.
        cipher: &'static str,
    },
    /// Sealed in more ways than are told apart.
    Other,
    /// It claims to be sealed, and is damaged.
    Defective {
        /// Why, as a refusal has it.
        cause: &'static str,
    },
    /// Its bytes can't be read.
    Unreadable,
    /// It was not looked at.
    NotLookedAt,
}

impl SealedAs {
    /// MQSC's word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Clear => "CLEAR",
            Self::Sealed { quality, .. } => quality,
            Self::Other => "OTHER",
            Self::Defective { .. } => "DEFECTIVE",
            Self::Unreadable => "UNREADABLE",
            Self::NotLookedAt => "NOTLOOKED",
        }
    }
}

/// How many messages of one queue are protected in one way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AlgorithmUse {
    /// The queue.
    pub queue: String,
    /// How they are protected.
    pub sealed: SealedAs,
    /// How many there are.
    pub messages: u64,
}

/// Messages of each queue that are looked at where no number is given.
pub const MESSAGES_DEFAULT: u64 = 1_000;
