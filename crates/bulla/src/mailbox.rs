//! What other threads tell a dispatcher: a queue of letters and a bell.

use crate::adapter::Finished;
use crate::catalog::DISPATCHERS_MAX;
use crate::channel::ChannelLetter;
use crate::connections::Question;
use crate::sign_in::verdict::Verdict;
use crate::tls::Tls;
use bulla_queue::QueueId;
use mio::net::TcpStream;
use mio::{Poll, Token};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// One thing to do on a dispatcher's own thread.
pub(crate) enum Letter {
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
    /// A connection that the first dispatcher accepted for this one.
    Adopt(TcpStream, Option<Arc<Tls>>),
    /// Something became available on a queue that it has consumers of.
    Ready(QueueId),
    /// A queue got room that it has waiting producers for.
    Freed(QueueId),
    /// Devices are done with the private keys of handshakes.
    Signed(Vec<bulla_device::scheduler::Answer>),
    /// Something about a channel on one of its connections.
    Channel(ChannelLetter),
}

/// A dispatcher's mailbox. The bell is rung once until the dispatcher has looked.
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    rung: AtomicBool,
    bell: mio::Waker,
}

#[derive(Default)]
struct Inside {
    letters: Vec<Letter>,
    /// The dispatcher has ended: what comes is for connections that are gone.
    is_closed: bool,
}

impl Mailbox {
    /// A mailbox whose bell is `bell`.
    pub(crate) fn new(bell: mio::Waker) -> Self {
        Self { inside: Mutex::default(), rung: AtomicBool::new(false), bell }
    }

    /// Leaves a letter and rings.
    pub(crate) fn post(&self, letter: Letter) {
        self.post_all(std::iter::once(letter));
    }

    /// Leaves several letters and rings once. One that has ended gets none: they are about connections, and it had none left.
    pub(crate) fn post_all(&self, letters: impl ExactSizeIterator<Item = Letter>) {
        if letters.len() == 0 {
            return;
        }
        {
            let mut inside = lock(&self.inside);
            if inside.is_closed {
                return;
            }
            inside.letters.extend(letters);
        }
        self.ring();
    }

    /// Leaves a letter that brings a connection along.
    ///
    /// # Errors
    /// The letter comes back where the dispatcher has ended.
    pub(crate) fn bring(&self, letter: Letter) -> Result<(), Letter> {
        {
            let mut inside = lock(&self.inside);
            if inside.is_closed {
                return Err(letter);
            }
            inside.letters.push(letter);
        }
        self.ring();
        Ok(())
    }

    /// Rings without a letter: the journal has synced, or the program stops.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // A bell that fails to ring belongs to a dispatcher whose poll is gone: it has ended.
            let _: io::Result<()> = self.bell.wake();
        }
    }

    /// Takes what is there; afterwards the bell rings again.
    pub(crate) fn take(&self, into: &mut Vec<Letter>) {
        self.rung.store(false, Ordering::Release);
        std::mem::swap(into, &mut lock(&self.inside).letters);
    }

    /// Takes no more letters, where none is there and `is_surplus` still holds. True when the dispatcher may end.
    pub(crate) fn close_if(&self, is_surplus: impl FnOnce() -> bool) -> bool {
        let mut inside = lock(&self.inside);
        inside.is_closed = inside.letters.is_empty() && is_surplus();
        inside.is_closed
    }

    /// Takes no more letters; nobody reads those that are there.
    pub(crate) fn close(&self) {
        *lock(&self.inside) = Inside { letters: Vec::new(), is_closed: true };
    }

    /// Whether the dispatcher has ended.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.inside).is_closed
    }

    /// Takes letters again, where it did not; true then: a new dispatcher is needed for it.
    pub(crate) fn reopen(&self) -> bool {
        std::mem::take(&mut lock(&self.inside).is_closed)
    }
}

/// The mailboxes of all dispatchers that there ever were, by their index: places are filled from the front and never
/// given up, so that looking one up costs one load.
pub(crate) struct Mailboxes {
    places: Box<[OnceLock<Arc<Mailbox>>]>,
    /// Dispatchers below this index are handed connections; the others end with their last one.
    wanted: AtomicUsize,
    turn: AtomicUsize,
}

impl Mailboxes {
    /// No place is taken yet; one dispatcher is wanted.
    pub(crate) fn new() -> Self {
        let places = std::iter::repeat_with(OnceLock::new).take(DISPATCHERS_MAX).collect();
        Self { places, wanted: AtomicUsize::new(1), turn: AtomicUsize::new(0) }
    }

    /// A dispatcher's, where there is or was one with that index.
    pub(crate) fn get(&self, index: usize) -> Option<&Arc<Mailbox>> {
        self.places.get(index)?.get()
    }

    /// All that there are, in the order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Mailbox>> {
        self.places.iter().map_while(OnceLock::get)
    }

    /// Takes the next place. False when all are taken.
    pub(crate) fn add(&self, mailbox: Arc<Mailbox>) -> bool {
        self.places.iter().find(|place| place.get().is_none()).is_some_and(|place| place.set(mailbox).is_ok())
    }

    /// How many dispatchers are to be handed connections.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Says how many; those whose mailboxes are not there yet come soon.
    pub(crate) fn want(&self, count: usize) {
        self.wanted.store(count.max(1), Ordering::Release);
    }

    /// The dispatcher whose turn it is to get a connection. It may not be there yet, or not any more
    /// ([`Mailbox::bring`] tells): then the connection is the first one's, which always is.
    pub(crate) fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.wanted()
    }
}

/// Locks, also after a panic elsewhere: a mailbox holds no invariant that a panic could break.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) const BELL: Token = Token(usize::MAX);

/// What a dispatcher leaves to the next one of its index.
pub(crate) struct Left {
    pub(crate) poll: Poll,
    /// Goes on, because a message of an old connection may still be with the adapters.
    pub(crate) generation: u64,
}

impl Left {
    /// What a first dispatcher starts with, and its mailbox.
    pub(crate) fn fresh() -> io::Result<(Self, Arc<Mailbox>)> {
        let poll = Poll::new()?;
        let mailbox = Arc::new(Mailbox::new(mio::Waker::new(poll.registry(), BELL)?));
        Ok((Self { poll, generation: 0 }, mailbox))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> (mio::Poll, Arc<Mailbox>) {
        let poll = mio::Poll::new().unwrap();
        let bell = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        (poll, Arc::new(Mailbox::new(bell)))
    }

    fn ready() -> Letter {
        Letter::SignedIn { peer: 0, generation: 0, verdict: Verdict::LockedOut { user: String::new() } }
    }

    #[test]
    fn a_mailbox_with_a_letter_in_it_is_not_closed_and_a_closed_one_brings_no_connection() {
        let (_poll, mailbox) = mailbox();
        mailbox.post(ready());
        assert!(!mailbox.close_if(|| true), "somebody has to read that letter");
        let mut letters = Vec::new();
        mailbox.take(&mut letters);
        assert_eq!(letters.len(), 1);
        assert!(!mailbox.close_if(|| false), "it is wanted again");
        assert!(mailbox.bring(ready()).is_ok());
        letters.clear();
        mailbox.take(&mut letters);

        assert!(mailbox.close_if(|| true));
        assert!(mailbox.bring(ready()).is_err(), "the connection goes elsewhere");
        mailbox.post(ready());
        assert!(mailbox.reopen() && !mailbox.reopen());
        letters.clear();
        mailbox.take(&mut letters);
        assert!(letters.is_empty(), "what was posted meanwhile was for nobody");
    }

    #[test]
    fn turns_go_round_those_that_are_wanted() {
        let mailboxes = Mailboxes::new();
        let polls: Vec<_> = (0..3)
            .map(|_| {
                let (poll, mailbox) = mailbox();
                assert!(mailboxes.add(mailbox));
                poll
            })
            .collect();
        assert_eq!(mailboxes.iter().count(), polls.len());
        assert!(mailboxes.get(2).is_some() && mailboxes.get(3).is_none() && mailboxes.get(DISPATCHERS_MAX).is_none());
        mailboxes.want(3);
        let mut turns: Vec<usize> = (0..6).map(|_| mailboxes.next()).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 0, 1, 1, 2, 2]);
        mailboxes.want(0);
        assert_eq!((mailboxes.wanted(), mailboxes.next()), (1, 0));
    }
}
