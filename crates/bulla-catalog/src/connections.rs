//! Connections and their links as an administrator sees them.

/// Bits of a connection's number that count the connections of one dispatcher; the bits above hold the dispatcher's
/// index.
const GENERATION_BITS: u32 = 48;

/// Names one connection of this run of the queue manager. A number is not used twice.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// The connection of a dispatcher that is its `generation`th.
    pub fn new(dispatcher: usize, generation: u64) -> Self {
        Self((dispatcher as u64) << GENERATION_BITS | generation)
    }

    /// Reads what `Display` writes; none for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_hex).map(Self)
    }

    /// The index of the dispatcher that owns it.
    pub fn dispatcher(self) -> usize {
        usize::try_from(self.0 >> GENERATION_BITS).unwrap_or(usize::MAX)
    }

    /// Which connection of its dispatcher it is.
    pub fn generation(self) -> u64 {
        self.0 & ((1 << GENERATION_BITS) - 1)
    }
}

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

/// What a link was opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// It gets.
    Input,
    /// It gets, and no other link may.
    InputExclusive,
    /// It browses.
    Browse,
    /// It puts.
    Output,
    /// It publishes.
    Publish,
    /// It gets publications of a subscription.
    Subscribe,
    /// It begins and ends units of work.
    Units,
    /// A channel's.
    Channel,
}

impl Purpose {
    /// As DISPLAY CONN shows it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::InputExclusive => "INPUT_EXCL",
            Self::Browse => "BROWSE",
            Self::Output => "OUTPUT",
            Self::Publish => "PUBLISH",
            Self::Subscribe => "SUBSCRIBE",
            Self::Units => "UNITS",
            Self::Channel => "CHANNEL",
        }
    }
}

/// One open link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Handle {
    /// The queue, topic or channel by the name that was opened; empty for a link to no object in particular.
    pub object: String,
    /// What it was opened for.
    pub purpose: Purpose,
    /// Messages delivered to it and not settled.
    pub unsettled: u64,
}

/// One connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Connected {
    /// Its number.
    pub id: ConnectionId,
    /// The user in force; none where the client has not signed in.
    pub user: Option<String>,
    /// The container id that the client gave.
    pub application: String,
    /// The client's product and version, where it gave them.
    pub product: String,
    /// Where it comes from.
    pub address: String,
    /// The cipher suite; empty without TLS.
    pub cipher: String,
    /// The group by which its keys were agreed on; empty without TLS.
    pub key_group: String,
    /// When it was accepted, milliseconds since 1970.
    pub since_ms: u64,
    /// Its links, in no order.
    pub handles: Vec<Handle>,
}

/// All connections at one moment.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    /// When that was, milliseconds since 1970.
    pub taken_ms: u64,
    /// The connections, in the order of their numbers.
    pub connections: Vec<Connected>,
}
