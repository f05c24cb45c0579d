//! Questions of members to the owner of a group, beside the log: over the engine, and not kept there.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use crate::engine::Engine;
use crate::options::{QUESTION_BYTES_MAX, QUESTIONS_MAX};

/// Who waits for an answer.
type Then = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;
pub(crate) type Question = (Vec<u8>, Waiting);

/// Who waits for an answer hears that there is none, where its log ends before.
pub(crate) struct Waiting(Option<Then>);

impl Waiting {
    fn hear(mut self, answer: Option<Vec<u8>>) {
        if let Some(then) = self.0.take() {
            then(answer);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then(None);
        }
    }
}

/// Asks the owner of a group. Its questions end with the log that it was made by.
#[derive(Clone)]
pub struct Asker(mpsc::Sender<Question>);

impl Asker {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Question>) {
        let (to, asked) = mpsc::channel(QUESTIONS_MAX);
        (Self(to), asked)
    }

    /// Asks the owner, and hands `then` its answer on the log's thread, or none: there was none in time, there is no
    /// owner, or too much is asked. A question has 1 to [`QUESTION_BYTES_MAX`] bytes. Does not wait.
    pub fn ask(&self, question: Vec<u8>, then: Then) {
        let waiting = Waiting(Some(then));
        if (1..=QUESTION_BYTES_MAX).contains(&question.len()) {
            // One that is not sent is dropped, and hears so.
            let _ = self.0.try_send((question, waiting));
        }
    }
}

/// Carries questions to the owner until there are no more.
pub(crate) async fn carry(engine: Engine, mut asked: mpsc::Receiver<Question>) {
    let places = Arc::new(Semaphore::new(QUESTIONS_MAX));
    while let Some((question, waiting)) = asked.recv().await {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let engine = engine.clone();
        tokio::spawn(async move {
            let answer = engine.client.request(engine.ask(), question.into()).await;
            let answer = answer.ok().map(|answer| answer.payload.to_vec());
            waiting.hear(answer.filter(|answer| !answer.is_empty()));
            drop(place);
        });
    }
}
