//! Topic objects.

/// The topic object of the root: it is always there, and what it leaves to a parent is what the standard behaviour is.
pub const BASE_TOPIC: &str = "SYSTEM.BASE.TOPIC";

/// A topic object.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Topic {
    /// DESCR
    pub description: String,
    /// TOPICSTR; empty for the root's alone.
    pub string: String,
    /// PUB(ENABLED); none for the parent's.
    pub publish: Option<bool>,
    /// SUB(ENABLED); none for the parent's.
    pub subscribe: Option<bool>,
    /// DURSUB(YES); none for the parent's.
    pub durable: Option<bool>,
    /// DEFPRTY; none for the parent's.
    pub default_priority: Option<u8>,
    /// DEFPSIST(YES); none for the parent's.
    pub default_persistent: Option<bool>,
    /// PMSGDLV; none for the parent's.
    pub persistent_delivery: Option<Needed>,
    /// NPMSGDLV; none for the parent's.
    pub non_persistent_delivery: Option<Needed>,
    /// MDURMDL; none for the parent's.
    pub durable_model: Option<String>,
    /// MNDURMDL; none for the parent's.
    pub non_durable_model: Option<String>,
}

/// PMSGDLV and NPMSGDLV: which subscriptions must take a publication.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needed {
    /// ALL
    All,
    /// ALLDUR: those that are durable.
    Durable,
    /// ALLAVAIL: none.
    None,
}

impl Needed {
    /// As it is written: ALL, ALLDUR, ALLAVAIL.
    pub fn word(self) -> &'static str {
        match self {
            Needed::All => "ALL",
            Needed::Durable => "ALLDUR",
            Needed::None => "ALLAVAIL",
        }
    }

    /// What the word says; none for any other word.
    pub fn of(word: &str) -> Option<Self> {
        [Needed::All, Needed::Durable, Needed::None].into_iter().find(|known| known.word() == word)
    }

    /// Whether a subscription must take a publication.
    #[must_use]
    pub fn needs(self, durable: bool) -> bool {
        match self {
            Needed::All => true,
            Needed::Durable => durable,
            Needed::None => false,
        }
    }
}
