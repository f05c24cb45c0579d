//! Message groups in order: the messages of a group (`group-id`, which is JMSXGroupID) go to one link at a time.
//!
//! Groups are told apart by buckets, so that what a queue remembers is bounded, whatever clients call their groups: two
//! groups of one bucket have the same link, and are in order all the same.

use crate::front::LinkId;
use crate::maps::HashMap;

/// Groups of a queue that are told apart.
const BUCKETS: u64 = 4_096;

/// The bucket of a group, by the number of its name.
pub fn bucket_of(group: u64) -> u16 {
    u16::try_from(group % BUCKETS).unwrap_or_default()
}

/// A link that gets: its dispatcher, which of the connections there, and which of its links.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner {
    pub(crate) dispatcher: usize,
    pub(crate) generation: u64,
    pub(crate) link: LinkId,
}

/// Whose the groups of one queue are.
#[derive(Debug)]
pub struct Groups<O = Owner> {
    owners: HashMap<u16, O>,
    /// Grows when groups become free: what others passed over may be theirs now.
    freed: u64,
}

impl<O> Default for Groups<O> {
    fn default() -> Self {
        Self { owners: HashMap::default(), freed: 0 }
    }
}

impl<O: Copy + PartialEq> Groups<O> {
    /// Whether a message of that group, by the number of its name, is this link's: no other link has had one since it
    /// came.
    pub fn claim(&mut self, group: u64, owner: O) -> bool {
        *self.owners.entry(bucket_of(group)).or_insert(owner) == owner
    }

    /// A link has no message of that bucket, and could not take the one that there was: it is the next one's.
    pub fn give_up(&mut self, bucket: u16, owner: O) {
        if self.owners.get(&bucket) == Some(&owner) {
            self.owners.remove(&bucket);
            self.freed += 1;
        }
    }

    /// A link goes, and its groups are the next one's.
    pub fn leave(&mut self, owner: O) {
        let before = self.owners.len();
        self.owners.retain(|_, known| *known != owner);
        self.freed += u64::from(self.owners.len() != before);
    }

    /// How often groups have become free.
    pub fn freed(&self) -> u64 {
        self.freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_the_first_one_s_until_that_goes() {
        let mut groups = Groups::<u8>::default();
        assert!(groups.claim(1, 1) && groups.claim(2, 2) && groups.claim(1, 1));
        assert!(!groups.claim(1, 2) && !groups.claim(2, 1));
        assert!(!groups.claim(1 + BUCKETS, 2), "of one bucket");
        groups.leave(3);
        assert_eq!(groups.freed(), 0);
        groups.leave(1);
        assert_eq!(groups.freed(), 1);
        assert!(groups.claim(1, 2) && !groups.claim(1, 1));
        groups.give_up(bucket_of(1), 1);
        assert!(!groups.claim(1, 1), "it was not its own to give up");
        groups.give_up(bucket_of(1), 2);
        assert_eq!(groups.freed(), 2);
        assert!(groups.claim(1, 1));
    }
}
