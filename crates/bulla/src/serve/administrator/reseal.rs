//! RESEAL: messages of a running queue manager are sealed anew.

use super::Administrator;
use crate::mqsc::run::AdminError;
use crate::mqsc::{ResealQuestion, Resealed};
use crate::reseal::Reseal;
use bulla_queue::ReadError;
use std::time::SystemTime;

impl Administrator<'_> {
    /// One command's messages. Others have the queues while rings are read, bodies are read back, and messages are
    /// opened and sealed.
    pub(super) fn seal_anew(&mut self, question: &ResealQuestion) -> Result<Resealed, AdminError> {
        let mut reseal = Reseal::new(self.manager, &self.state, question)?;
        let now = SystemTime::now();
        let mut keys = self.apart(|_| reseal.find_keys(now))?;
        for found in reseal.choose(&self.state, &keys, now)? {
            match self.body(found.id) {
                Ok(body) => {
                    if !reseal.take(found, &body, &keys) {
                        break;
                    }
                }
                Err(ReadError::Unknown { .. }) => reseal.went(),
                Err(_) => reseal.is_unreadable(),
            }
        }
        let anew = self.apart(|_| reseal.seal_anew(&mut keys, now))?;
        reseal.put_back(&mut self.state, anew)?;
        self.sync()?;
        self.manager.ring_all();
        Ok(reseal.done(&keys))
    }
}
