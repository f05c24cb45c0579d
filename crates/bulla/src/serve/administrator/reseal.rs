//! RESEAL: messages of a running queue manager are sealed anew.

use super::{Administrator, failed};
use crate::mqsc::run::AdminError;
use crate::mqsc::{ResealQuestion, Resealed};
use crate::reseal::{Anew, OpenStep, Opening, Reseal, ResealKeys};
use crate::serve::pools::ADAPTER_NICENESS;
use bulla_device::role::{self, Role};
use bulla_queue::ReadError;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};

impl Administrator<'_> {
    /// One command's messages. Others have the queues while rings are read, bodies are read back, and messages are
    /// opened and sealed.
    pub(super) fn seal_anew(&mut self, question: &ResealQuestion) -> Result<Resealed, AdminError> {
        let mut reseal = Reseal::new(self.manager, &self.state, question, Instant::now())?;
        let now = SystemTime::now();
        let mut keys = self.apart(|_| reseal.find_keys(now))?;
        let mut open: Option<OpenStep> = None;
        loop {
            let next = reseal.goes_on(Instant::now()).then(|| self.next_step(&mut reseal, &keys, now));
            if open.is_none() && next.is_none() {
                break;
            }
            let from = open.as_ref().and_then(OpenStep::from);
            let (anew, opened) = self.apart(|_| advance(&mut reseal, &mut keys, open.take(), next, now));
            match anew.and_then(|anew| reseal.put_back(&mut self.state, anew)) {
                Ok(()) => open = opened,
                Err(error) => reseal.fails(error, from)?,
            }
            // The journal writes it while the next one is sealed.
            self.state.store.flush(Instant::now(), |_| true).map_err(failed)?;
        }
        self.sync()?;
        self.manager.ring_all();
        Ok(reseal.done(&keys))
    }

    fn next_step(&mut self, reseal: &mut Reseal, keys: &ResealKeys, now: SystemTime) -> Opening {
        let from = reseal.place();
        for found in reseal.choose(&self.state, keys, now) {
            match self.body(found.id) {
                Ok(body) => {
                    if !reseal.take(found, &body, keys) {
                        break;
                    }
                }
                Err(ReadError::Unknown { .. }) => reseal.went(),
                Err(_) => reseal.is_unreadable(),
            }
        }
        reseal.step(keys, from, now)
    }
}

/// Seals a step anew, and opens the next one beside it. Neither is needed.
fn advance(
    reseal: &mut Reseal,
    keys: &mut ResealKeys,
    step: Option<OpenStep>,
    next: Option<Opening>,
    now: SystemTime,
) -> (Result<Vec<Anew>, AdminError>, Option<OpenStep>) {
    let Some(step) = step else { return (Ok(Vec::new()), next.map(Opening::open)) };
    let next = Mutex::new(next);
    let opened = || next.lock().unwrap_or_else(PoisonError::into_inner).take().map(Opening::open);
    let is_next = || next.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    thread::scope(|scope| {
        let beside = is_next().then(|| {
            thread::Builder::new().name("reseal".to_owned()).spawn_scoped(scope, || {
                role::begin(Role::Opening);
                // Of this thread alone, as of adapters.
                let _ = rustix::process::nice(ADAPTER_NICENESS);
                opened()
            })
        });
        let anew = reseal.seal_anew(keys, step, now);
        let opened = match beside {
            Some(Ok(thread)) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The system gives no more threads.
            Some(Err(_)) | None => opened(),
        };
        (anew, opened)
    })
}
