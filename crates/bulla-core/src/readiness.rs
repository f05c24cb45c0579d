//! Whether clients should come: what load balancers and orchestrators ask before they send some.
//!
//! A front end answers it without looking at a store or a file. Whoever knows one of the causes says so here: the core
//! at its tick for the journals, a thread of the program for the disk and the key rings.

use std::sync::atomic::{AtomicU8, Ordering};

/// Why clients should not come now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Unready {
    /// A journal takes no persistent message: its disk is full, and no more is left than what gets and deletes need; or
    /// it can't be written.
    Journal = 1,
    /// The disk of the data directory has next to no room.
    Disk = 2,
    /// There are policies, and no key ring can be used: the passphrase is missing or wrong, or files are damaged.
    KeyRings = 4,
}

impl Unready {
    /// Every cause.
    pub const ALL: [Self; 3] = [Self::Journal, Self::Disk, Self::KeyRings];

    /// The sub-reason that a refusal carries.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::Journal => "journal-full",
            Self::Disk => "disk-low",
            Self::KeyRings => "key-rings-unusable",
        }
    }

    /// The same for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Journal => "the journal takes no persistent message: get messages, or make room on its disk",
            Self::Disk => "the disk of the data directory is all but full",
            Self::KeyRings => "no key ring can be used: messages of protected queues are neither sealed nor opened",
        }
    }
}

/// The causes that there are now.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// Says whether there is a cause.
    pub fn set(&self, cause: Unready, is_there: bool) {
        if is_there {
            self.0.fetch_or(cause as u8, Ordering::Release);
        } else {
            self.0.fetch_and(!(cause as u8), Ordering::Release);
        }
    }

    /// The causes that there are; none where clients may come.
    pub fn causes(&self) -> impl Iterator<Item = Unready> {
        let causes = self.0.load(Ordering::Acquire);
        Unready::ALL.into_iter().filter(move |cause| causes & *cause as u8 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_comes_and_goes_by_itself() {
        let readiness = Readiness::default();
        let causes = || readiness.causes().collect::<Vec<_>>();
        assert_eq!(causes(), []);
        for cause in Unready::ALL {
            readiness.set(cause, true);
            readiness.set(cause, true);
        }
        assert_eq!(causes(), Unready::ALL);
        readiness.set(Unready::Disk, false);
        assert_eq!(causes(), [Unready::Journal, Unready::KeyRings]);
        let mut words = Unready::ALL.map(Unready::cause);
        words.sort_unstable();
        assert!(words.is_sorted_by(|one, next| one < next), "each has a cause of its own");
    }
}
