//! What other threads tell a dispatcher: an inbox of messages and a wake-up.

use crate::adapter::Finished;
use crate::catalog::DISPATCHERS_MAX;
use crate::channel::ChannelNotice;
use crate::connections::Question;
use crate::sign_in::verdict::Verdict;
use bulla_queue::QueueId;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// One thing to do on a dispatcher's own thread.
pub enum Notice {
    /// An adapter is done with a message of one of its connections.
    Finished(Box<Finished>),
    /// What a connection gave to sign in was looked at.
    SignedIn {
        /// The connection's place.
        peer: usize,
        /// Which connection it was that had that place.
        generation: u64,
        /// What came of it.
        verdict: Verdict,
    },
    /// An administrator asks for all its connections.
    Survey(Question),
    /// An administrator ends one of its connections, and is told which it was.
    Stop {
        /// Which connection of the dispatcher it is.
        generation: u64,
        /// Where the answer goes.
        question: Question,
    },
    /// One of its connections ends, because a new one is to be the only one of its container.
    Displaced {
        /// Which connection of the dispatcher it is.
        generation: u64,
    },
    /// One of its connections, which waited for that, is the only one of its container.
    Sole {
        /// Which connection of the dispatcher it is.
        generation: u64,
    },
    /// A connection that another thread hands to this one. What it is, those know that own connections.
    Arrived(Box<dyn Any + Send>),
    /// Something became available on a queue that it has consumers of.
    Ready(QueueId),
    /// A queue got room that it has waiting producers for.
    Freed(QueueId),
    /// Devices are done with the private keys of handshakes.
    Signed(Vec<bulla_device::scheduler::Answer>),
    /// Something about a channel on one of its connections.
    Channel(ChannelNotice),
}

/// A dispatcher's mailbox. The dispatcher is woken once until it has looked.
pub struct Mailbox {
    inside: Mutex<Inside>,
    notified: AtomicBool,
    waker: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Inside {
    notices: Vec<Notice>,
    /// The dispatcher has ended: what comes is for connections that are gone.
    is_closed: bool,
}

impl Mailbox {
    /// A mailbox. `waker` wakes its dispatcher from any thread, and does nothing once that has ended.
    pub fn new(waker: impl Fn() + Send + Sync + 'static) -> Self {
        Self { inside: Mutex::default(), notified: AtomicBool::new(false), waker: Box::new(waker) }
    }

    /// Leaves a notice and rings.
    pub fn post(&self, notice: Notice) {
        self.post_all(std::iter::once(notice));
    }

    /// Leaves several notices and rings once. One that has ended gets none: they are about connections, and it had none
    /// left.
    pub fn post_all(&self, notices: impl ExactSizeIterator<Item = Notice>) {
        if notices.len() == 0 {
            return;
        }
        {
            let mut inside = lock(&self.inside);
            if inside.is_closed {
                return;
            }
            inside.notices.extend(notices);
        }
        self.wake();
    }

    /// Leaves a notice that brings a connection along.
    ///
    /// # Errors
    /// The notice comes back where the dispatcher has ended.
    pub fn bring(&self, notice: Notice) -> Result<(), Notice> {
        {
            let mut inside = lock(&self.inside);
            if inside.is_closed {
                return Err(notice);
            }
            inside.notices.push(notice);
        }
        self.wake();
        Ok(())
    }

    /// Rings without a notice: the journal has synced, or the program stops.
    pub fn wake(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            (self.waker)();
        }
    }

    /// Takes what is there; afterwards a post wakes the dispatcher again.
    pub fn take(&self, into: &mut Vec<Notice>) {
        self.notified.store(false, Ordering::Release);
        std::mem::swap(into, &mut lock(&self.inside).notices);
    }

    /// Takes no more notices, where none is there and `is_surplus` still holds. True when the dispatcher may end.
    pub fn close_if(&self, is_surplus: impl FnOnce() -> bool) -> bool {
        let mut inside = lock(&self.inside);
        inside.is_closed = inside.notices.is_empty() && is_surplus();
        inside.is_closed
    }

    /// Takes no more messages; those that are there are never read.
    pub fn close(&self) {
        *lock(&self.inside) = Inside { notices: Vec::new(), is_closed: true };
    }

    /// Whether the dispatcher has ended.
    pub fn is_closed(&self) -> bool {
        lock(&self.inside).is_closed
    }

    /// Takes notices again, where it did not; true then: a new dispatcher is needed for it.
    pub fn reopen(&self) -> bool {
        std::mem::take(&mut lock(&self.inside).is_closed)
    }
}

/// The mailboxes of all dispatchers that there ever were, by their index: places are filled from the front and never
/// given up, so that looking one up costs one load.
pub struct Mailboxes {
    places: Box<[OnceLock<Arc<Mailbox>>]>,
    /// Dispatchers below this index are handed connections; the others end with their last one.
    wanted: AtomicUsize,
    turn: AtomicUsize,
}

impl Default for Mailboxes {
    /// No place is taken yet; one dispatcher is wanted.
    fn default() -> Self {
        let places = std::iter::repeat_with(OnceLock::new).take(DISPATCHERS_MAX).collect();
        Self { places, wanted: AtomicUsize::new(1), turn: AtomicUsize::new(0) }
    }
}

impl Mailboxes {
    /// A dispatcher's, where there is or was one with that index.
    pub fn get(&self, index: usize) -> Option<&Arc<Mailbox>> {
        self.places.get(index)?.get()
    }

    /// All that there are, in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Mailbox>> {
        self.places.iter().map_while(OnceLock::get)
    }

    /// Takes the next place. False when all are taken.
    pub fn add(&self, mailbox: Arc<Mailbox>) -> bool {
        self.places.iter().find(|place| place.get().is_none()).is_some_and(|place| place.set(mailbox).is_ok())
    }

    /// How many dispatchers are to be handed connections.
    pub fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Says how many; those whose mailboxes are not there yet come soon.
    pub fn want(&self, count: usize) {
        self.wanted.store(count.max(1), Ordering::Release);
    }

    /// The dispatcher whose turn it is to get a connection. It may not be there yet, or not any more
    /// ([`Mailbox::bring`] tells): then the connection is the first one's, which always is.
    pub fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.wanted()
    }
}

/// Locks, also after a panic elsewhere: a mailbox holds no invariant that a panic could break.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new(|| ()))
    }

    fn ready() -> Notice {
        Notice::SignedIn { peer: 0, generation: 0, verdict: Verdict::LockedOut { user: String::new() } }
    }

    #[test]
    fn a_mailbox_with_a_letter_in_it_is_not_closed_and_a_closed_one_brings_no_connection() {
        let mailbox = mailbox();
        mailbox.post(ready());
        assert!(!mailbox.close_if(|| true), "that message has to be read");
        let mut notices = Vec::new();
        mailbox.take(&mut notices);
        assert_eq!(notices.len(), 1);
        assert!(!mailbox.close_if(|| false), "it is wanted again");
        assert!(mailbox.bring(ready()).is_ok());
        notices.clear();
        mailbox.take(&mut notices);

        assert!(mailbox.close_if(|| true));
        assert!(mailbox.bring(ready()).is_err(), "the connection goes elsewhere");
        mailbox.post(ready());
        assert!(mailbox.reopen() && !mailbox.reopen());
        notices.clear();
        mailbox.take(&mut notices);
        assert!(notices.is_empty(), "what was posted meanwhile had no reader");
    }

    #[test]
    fn turns_go_round_those_that_are_wanted() {
        let mailboxes = Mailboxes::default();
        (0..3).for_each(|_| assert!(mailboxes.add(mailbox())));
        assert_eq!(mailboxes.iter().count(), 3);
        assert!(mailboxes.get(2).is_some() && mailboxes.get(3).is_none() && mailboxes.get(DISPATCHERS_MAX).is_none());
        mailboxes.want(3);
        let mut turns: Vec<usize> = (0..6).map(|_| mailboxes.next()).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 0, 1, 1, 2, 2]);
        mailboxes.want(0);
        assert_eq!((mailboxes.wanted(), mailboxes.next()), (1, 0));
    }
}
