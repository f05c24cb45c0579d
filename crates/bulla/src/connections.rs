//! Connections and their links as an administrator sees them: what DISPLAY CONN shows and STOP CONN ends.
//!
//! Dispatchers own their connections. An administrator asks each of them by its mailbox and waits for the answers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an administrator waits for dispatchers to answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Bits of a connection's number that count the connections of one dispatcher; the bits above hold the dispatcher's
/// index.
const GENERATION_BITS: u32 = 48;

/// Names one connection of this run of the queue manager. A number is not used twice.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// The connection of a dispatcher that is its `generation`th.
    pub(crate) fn new(dispatcher: usize, generation: u64) -> Self {
        Self((dispatcher as u64) << GENERATION_BITS | generation)
    }

    /// Reads what `Display` writes; none for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_hex).map(Self)
    }

    /// The index of the dispatcher that owns it.
    pub(crate) fn dispatcher(self) -> usize {
        usize::try_from(self.0 >> GENERATION_BITS).unwrap_or(usize::MAX)
    }

    /// Which connection of its dispatcher it is.
    pub(crate) fn generation(self) -> u64 {
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
    /// When it was accepted, milliseconds since 1970.
    pub since_ms: u64,
    /// Its links, in no order.
    pub handles: Vec<Handle>,
}

/// The answers of all dispatchers that were asked.
#[derive(Default)]
pub(crate) struct Survey {
    answers: Mutex<Answers>,
    told: Condvar,
}

#[derive(Default)]
struct Answers {
    connections: Vec<Connected>,
    waiting: usize,
}

impl Survey {
    /// One more question of this survey. A question that is dropped counts as answered.
    pub(crate) fn ask(self: &Arc<Self>) -> Question {
        self.lock().waiting += 1;
        Question(self.clone())
    }

    /// Waits until all questions are answered. None where that takes longer than `within`.
    pub(crate) fn wait(&self, within: Duration) -> Option<Vec<Connected>> {
        let waited = self.told.wait_timeout_while(self.lock(), within, |answers| answers.waiting > 0);
        let (mut answers, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (!timeout.timed_out()).then(|| std::mem::take(&mut answers.connections))
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one dispatcher is asked.
pub(crate) struct Question(Arc<Survey>);

impl Question {
    /// Adds what this dispatcher has to say.
    pub(crate) fn answer(self, connections: impl IntoIterator<Item = Connected>) {
        self.0.lock().connections.extend(connections);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
        self.0.told.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connections_number_is_read_back_and_nothing_else_is() {
        let id = ConnectionId::new(3, 77);
        assert_eq!(ConnectionId::parse(&id.to_string()), Some(id));
        assert_eq!((id.dispatcher(), id.generation()), (3, 77));
        for bad in ["", "77", "+003000000000004D", "000300000000004G", "0003000000000004D0"] {
            assert_eq!(ConnectionId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_dispatcher_that_has_ended_keeps_nobody_waiting_and_a_busy_one_is_reported() {
        let survey = Arc::new(Survey::default());
        let (ended, answering, busy) = (survey.ask(), survey.ask(), survey.ask());
        drop(ended);
        answering.answer([]);
        assert_eq!(survey.wait(Duration::ZERO), None, "one has not answered");
        drop(busy);
        assert_eq!(survey.wait(Duration::ZERO), Some(Vec::new()));
    }
}
