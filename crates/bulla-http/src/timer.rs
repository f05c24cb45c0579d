//! What a client is waited for, and until when.
//!
//! Answers are given without a time. A timer that begins then is stamped at the next call that brings one: until it is,
//! it is due at once, so that the host makes that call.

use std::time::{Duration, Instant};

/// A time-out of the client.
#[derive(Debug)]
pub(crate) struct Timer<K> {
    /// What is waited for.
    waits: Option<Wait<K>>,
    due: Option<Instant>,
}

/// Something that a client is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait<K> {
    /// What. Another one begins anew.
    pub(crate) what: K,
    /// The time for it.
    pub(crate) within: Duration,
    /// What has come of it, in bytes: so many more begin anew.
    pub(crate) progress: u64,
    /// How many.
    pub(crate) progress_min: u64,
}

impl<K> Default for Timer<K> {
    fn default() -> Self {
        Self { waits: None, due: None }
    }
}

impl<K: Copy + PartialEq> Timer<K> {
    /// Says what is waited for now. `now` is none where no one knows the time.
    pub(crate) fn set(&mut self, wait: Option<Wait<K>>, now: Option<Instant>) {
        let goes_on = match (&self.waits, &wait) {
            (Some(old), Some(new)) => {
                old.what == new.what && new.progress.saturating_sub(old.progress) < new.progress_min
            }
            (None, None) => true,
            _ => false,
        };
        if !goes_on {
            self.waits = wait;
            self.due = wait.and_then(|wait| now.map(|now| now + wait.within));
        }
    }

    /// Begins anew: what was waited for could not come.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.due = self.waits.as_ref().map(|wait| now + wait.within);
    }

    /// When it is due; `known` where it is not stamped yet.
    pub(crate) fn due(&self, known: Instant) -> Option<Instant> {
        self.waits.as_ref().map(|_| self.due.unwrap_or(known))
    }

    /// What did not come in time. Stamps what is not stamped yet.
    pub(crate) fn look(&mut self, now: Instant) -> Option<K> {
        let wait = self.waits.as_ref()?;
        match self.due {
            Some(due) if due <= now => Some(wait.what),
            Some(_) => None,
            None => {
                self.due = Some(now + wait.within);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_goes_on_until_enough_has_come() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let wait = |what, progress| Some(Wait { what, within: Duration::from_secs(10), progress, progress_min: 4 });
        let mut timer = Timer::default();
        timer.set(wait('a', 0), Some(begun));
        timer.set(wait('a', 3), Some(after(5)));
        assert_eq!((timer.due(begun), timer.look(after(9))), (Some(after(10)), None));
        timer.set(wait('a', 4), Some(after(9)));
        assert_eq!((timer.due(begun), timer.look(after(19))), (Some(after(19)), Some('a')));
        timer.set(wait('b', 4), None);
        assert_eq!((timer.due(begun), timer.look(after(20))), (Some(begun), None));
        assert_eq!(timer.due(begun), Some(after(30)));
        timer.set(None, None);
        assert_eq!((timer.due(begun), timer.look(after(90))), (None, None));
    }
}
