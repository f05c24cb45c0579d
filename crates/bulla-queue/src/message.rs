//! Messages as the store sees them: an opaque body in chunks, and what the queues need to know about it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Stores that one program may have open side by side.
pub const STORES_MAX: usize = 16;
/// Bits of a message id and of a ticket below the store's number.
const STORE_SHIFT_BITS: u32 = 60;
/// Bits of a queue's id below the store's number.
const QUEUE_STORE_SHIFT_BITS: u32 = 32;
/// The largest number that a store gives to a message.
pub(crate) const MESSAGE_NUMBER_MAX: u64 = (1 << STORE_SHIFT_BITS) - 1;

const _: () = assert!(STORES_MAX <= 1 << (u64::BITS - STORE_SHIFT_BITS));

/// Tells the stores of one program apart. It is part of every id and ticket that a store gives out and is not in its
/// journal, so that a store may have another number after a restart.
#[derive(Clone, Copy, Eq, PartialEq, Hash, Ord, PartialOrd, Debug, Default)]
pub struct StoreNumber(u8);

impl StoreNumber {
    /// The number of a program's only store, or of its first.
    pub const LOCAL: StoreNumber = StoreNumber(0);

    /// The store at that place; none from [`STORES_MAX`] on.
    #[must_use]
    pub const fn new(place: usize) -> Option<Self> {
        if place < STORES_MAX { Some(Self(place as u8)) } else { None }
    }

    /// Its place among the stores.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }

    /// What message ids and tickets of this store begin with.
    pub(crate) const fn base(self) -> u64 {
        (self.0 as u64) << STORE_SHIFT_BITS
    }
}

/// Names a queue for as long as its store is open; the journal gives the same queue the same number after a restart.
#[derive(Clone, Copy, Eq, PartialEq, Hash, Ord, PartialOrd)]
pub struct QueueId(u64);

impl QueueId {
    /// The queue that has this number in that store.
    #[must_use]
    pub const fn new(store: StoreNumber, number: u32) -> Self {
        Self((store.0 as u64) << QUEUE_STORE_SHIFT_BITS | number as u64)
    }

    /// The store that the queue is in.
    #[must_use]
    pub const fn store(self) -> StoreNumber {
        StoreNumber((self.0 >> QUEUE_STORE_SHIFT_BITS) as u8)
    }

    /// Its number there.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueId({}, {})", self.store().0, self.number())
    }
}

/// Names a message. Unique in the life of its store, restarts included, and grows with every put there.
#[derive(Clone, Copy, Eq, PartialEq, Hash, Ord, PartialOrd, Debug)]
pub struct MessageId(pub u64);

impl MessageId {
    /// The message that has this number in that store.
    #[must_use]
    pub const fn new(store: StoreNumber, number: u64) -> Self {
        Self(store.base() | number & MESSAGE_NUMBER_MAX)
    }

    /// The store that the message is in.
    #[must_use]
    pub const fn store(self) -> StoreNumber {
        StoreNumber((self.0 >> STORE_SHIFT_BITS) as u8)
    }

    /// Its number there.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & MESSAGE_NUMBER_MAX
    }
}

/// When something is durable: see [`Store::is_synced`](crate::Store::is_synced). Tickets of two stores have no order.
#[derive(Clone, Copy, Eq, PartialEq, Hash, Debug)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Needs no waiting: what it stands for was never meant to reach the disk, or is there already.
    pub const NOW: Ticket = Ticket(0);

    /// The store that it is of.
    #[must_use]
    pub const fn store(self) -> StoreNumber {
        StoreNumber((self.0 >> STORE_SHIFT_BITS) as u8)
    }

    /// The later one of two of the same store.
    #[must_use]
    pub(crate) fn max(self, other: Ticket) -> Ticket {
        Ticket(self.0.max(other.0))
    }
}

/// A place in a queue's delivery order, stable while messages before and after it come and go.
#[derive(Clone, Copy, Eq, PartialEq, Hash, Ord, PartialOrd, Debug)]
pub struct Place {
    pub(crate) lane: u8,
    pub(crate) id: u64,
}

impl Place {
    /// Lane and message, by which [`Place::of_parts`] makes it again.
    #[must_use]
    pub fn parts(self) -> (u8, u64) {
        (self.lane, self.id)
    }

    /// The place of these parts; none where no queue has such a lane.
    #[must_use]
    pub fn of_parts(lane: u8, id: u64) -> Option<Self> {
        (usize::from(lane) < crate::queue::LANES).then_some(Self { lane, id })
    }

    /// The place right before this one: what is looked for behind it begins with this message again.
    #[must_use]
    pub fn before(self) -> Self {
        Self { id: self.id.saturating_sub(1), ..self }
    }
}

/// The name of the user who put a message. One pointer, so that a connection makes it once and each message shares it.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct User(Arc<Box<str>>);

impl User {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for User {
    fn from(name: &str) -> Self {
        Self(Arc::new(name.into()))
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Bytes in one piece or in many, in the pieces in which they arrived. A clone shares them.
#[derive(Clone)]
pub enum Chunks {
    /// The common case: the whole body in one frame.
    One(Bytes),
    /// A body that came over several frames.
    Many(Arc<[Bytes]>),
}

impl Chunks {
    /// The pieces, in order.
    #[must_use]
    pub fn chunks(&self) -> &[Bytes] {
        match self {
            Chunks::One(bytes) => std::slice::from_ref(bytes),
            Chunks::Many(chunks) => chunks,
        }
    }

    /// Bytes in all pieces together. Walks the pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Chunks::One(bytes) => bytes.len(),
            Chunks::Many(chunks) => chunks.iter().map(Bytes::len).sum(),
        }
    }

    /// Whether there is not one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks().iter().all(Bytes::is_empty)
    }

    /// CRC-32C over all pieces, as the journal keeps it.
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.chunks().iter().fold(0, |crc, chunk| crc32c::crc32c_append(crc, chunk))
    }

    /// The body in one piece: shared where it is one already, copied otherwise.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Chunks::One(bytes) => bytes.clone(),
            Chunks::Many(chunks) => {
                let mut whole = Vec::with_capacity(self.len());
                for chunk in chunks.iter() {
                    whole.extend_from_slice(chunk);
                }
                whole.into()
            }
        }
    }
}

impl From<Bytes> for Chunks {
    fn from(bytes: Bytes) -> Self {
        Chunks::One(bytes)
    }
}

impl From<Vec<Bytes>> for Chunks {
    fn from(mut chunks: Vec<Bytes>) -> Self {
        match chunks.len() {
            1 => Chunks::One(chunks.swap_remove(0)),
            _ => Chunks::Many(chunks.into()),
        }
    }
}

impl From<Vec<u8>> for Chunks {
    fn from(bytes: Vec<u8>) -> Self {
        Chunks::One(bytes.into())
    }
}

/// Equal when the bytes are, however they are cut.
impl PartialEq for Chunks {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Chunks {}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunks({} bytes in {})", self.len(), self.chunks().len())
    }
}

/// The highest priority of a message; the lowest is 0.
pub const PRIORITY_MAX: u8 = 9;
/// The priority of a message that says nothing of it (AMQP 1.0, 3.2.1).
pub const PRIORITY_DEFAULT: u8 = 4;

/// Names of keys, each of which opens a message. The store compares their bytes and knows no more of them. Messages
/// that share them are counted without looking at a byte.
pub type KeyNames = Arc<[Bytes]>;

/// Which keys open a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Keys {
    /// It needs no key: it is in clear, or signed and no more.
    #[default]
    None,
    /// It is not known.
    Unknown,
    /// Any of these opens it.
    OneOf(KeyNames),
}

/// A message on its way into a queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// 0 to [`PRIORITY_MAX`]; higher values count as the highest.
    pub priority: u8,
    /// Whether it must survive the end of the process. On a temporary queue nothing does.
    pub persistent: bool,
    /// When it stops being deliverable: milliseconds of wall time since 1970, or never.
    pub expires_at_ms: Option<u64>,
    /// Before when it is not deliverable: milliseconds of wall time since 1970, or at once. It counts on its queue
    /// meanwhile.
    pub available_at_ms: Option<u64>,
    /// When it was put: milliseconds of wall time since 1970.
    pub put_at_ms: u64,
    /// Who put it, where that is known. At most [`USER_BYTES_MAX`](crate::USER_BYTES_MAX); a longer name is cut.
    pub user: Option<User>,
    /// Which keys open it; [`Store::key_use`](crate::Store::key_use) counts by them.
    pub keys: Keys,
    /// What it carries. The store never looks inside.
    pub body: Chunks,
}

impl Message {
    /// A message with nothing but a body: of the default priority, without an expiry or a user, put at the time 0.
    pub fn new(persistent: bool, body: Chunks) -> Message {
        Message {
            priority: PRIORITY_DEFAULT,
            persistent,
            expires_at_ms: None,
            available_at_ms: None,
            put_at_ms: 0,
            user: None,
            keys: Keys::None,
            body,
        }
    }
}

/// A message found on a queue: all but its body, which [`Store::body`](crate::Store::body) fetches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// Its name.
    pub id: MessageId,
    /// Where it lies, to go on from.
    pub place: Place,
    /// How often a delivery failed before.
    pub delivery_count: u32,
    /// When it was put: milliseconds of wall time since 1970.
    pub put_at_ms: u64,
    /// When it stops being deliverable: milliseconds of wall time since 1970.
    pub expires_at_ms: Option<u64>,
    /// 0 to 9.
    pub priority: u8,
    /// Whether it survives the end of the process.
    pub persistent: bool,
    /// Bytes of its body.
    pub body_bytes: u32,
    /// Who put it.
    pub user: Option<User>,
}
