//! Connections and their links as an administrator sees them: what DISPLAY CONN shows and STOP CONN ends.
//!
//! Dispatchers own their connections. An administrator asks each of them by its mailbox and waits for the answers.

use crate::catalog::connections::Connected;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What partners are told to be heard of within, unless `bulla start --idle-timeout` says otherwise.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an administrator waits for dispatchers to answer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The answers of all dispatchers that were asked.
#[derive(Default)]
pub struct Survey {
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
    pub fn ask(self: &Arc<Self>) -> Question {
        self.lock().waiting += 1;
        Question(self.clone())
    }

    /// Waits until all questions are answered. None where that takes longer than `within`.
    pub fn wait(&self, within: Duration) -> Option<Vec<Connected>> {
        let waited = self.told.wait_timeout_while(self.lock(), within, |answers| answers.waiting > 0);
        let (mut answers, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (!timeout.timed_out()).then(|| std::mem::take(&mut answers.connections))
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one dispatcher is asked.
pub struct Question(Arc<Survey>);

impl Question {
    /// Adds what this dispatcher has to say.
    pub fn answer(self, connections: impl IntoIterator<Item = Connected>) {
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
    use crate::catalog::connections::ConnectionId;

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
