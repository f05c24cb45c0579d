//! A link on which a client puts: what it has of its own, and its messages on the way to their queues.

use super::publishing::{Publishing, Subscriber};
use super::sealing::{Sealing, SealingLine};
use super::unit_of_work::units::Units;
use crate::adapter::{Held, SEALING_BYTES_MAX};
use crate::channel::transmission::TransmissionHeader;
use crate::dynamic::Deletes;
use crate::front::link::Attach;
use crate::front::{DeliveryId, LinkId, SessionId, UnitId};
use crate::idempotency::Claim;
use crate::limits::{BeingSealed, UserId};
use crate::manager::{Route, State};
use crate::reason::{self, Refusal};
use crate::resumable::Resumable;
use bulla_queue::QueueId;
use bulla_seal::Policy;
use std::sync::Arc;

/// Credit of a link whose messages are put as they come.
pub const CREDIT_CLEAR: u32 = 1000;
/// Credit of a link whose messages are sealed or checked first: they wait in memory for that.
pub const CREDIT_PROTECTED: u32 = 256;
/// The same where messages share signatures, in batches of the policy, where that is more: a link gets new credit when
/// it has used a half, and then a batch is being signed and another one comes. No more than
/// [`PENDING_BYTES_FOR_CREDIT`] of messages as long as the longest of late, so that no client is refused for using it.
const CREDIT_SIGN_BATCHES: u32 = 4;
/// Of what the longest message of late had, that part is taken off for each one that is shorter.
const LONGEST_FADES_PART: usize = 64;
/// Messages of one link that may be with the adapters: its credit of publications, with copies for 256 subscriptions.
/// One that comes beyond it is refused.
const PENDING_MESSAGES_MAX: usize = CREDIT_PROTECTED as usize * 256;
/// Bytes of them: what the adapters' memory takes of one link alone, with the sealed forms.
const PENDING_BYTES_MAX: usize = SEALING_BYTES_MAX / 2;
/// A link with so many bytes there gets no more credit.
const PENDING_BYTES_FOR_CREDIT: usize = 64 << 20;
/// Ticks after which credit that a link does not use is room for others who wait: two seconds.
const PROMISE_LAPSES_AFTER_TICKS: u8 = 8;

/// A link on which a client puts.
pub struct Producer {
    pub(crate) session: SessionId,
    /// The name the client opened; none for an anonymous relay, whose messages name their queue.
    pub opened: Option<String>,
    pub(crate) route: Option<Arc<Route>>,
    /// The client seals for itself.
    pub sealed_by_client: bool,
    /// What it may send.
    pub credit: Credit,
    /// Bytes of the longest of the last messages that had to be sealed or checked; none has come with 0.
    pub(crate) longest: usize,
    /// Messages with the adapters, in the order of their arrival.
    pub pending: SealingLine<Pending>,
    pub(crate) sealing: Option<Sealing>,
    /// The user whose messages these are.
    pub putter: Putter,
    /// The dynamic queue that ends with this link.
    pub dynamic: Option<QueueId>,
    /// What closing it does to its permanent dynamic queue.
    pub deletes: Option<Deletes>,
    /// The client can be told that a message is rejected.
    pub takes_rejected: bool,
    /// Its messages may name any user (SETID on the queue, or, on a relay, on that of the last message).
    pub any_user: bool,
    /// What is needed to publish: of a link to a topic, and of a relay.
    pub publishing: Option<Box<Publishing>>,
    /// Of a relay: where the last message was allowed to go.
    pub relayed: Option<Relayed>,
    /// Its place among the links that may be resumed.
    pub resumable: Option<Box<Resumable>>,
}

/// What a link that puts may send.
#[derive(Debug, Default)]
pub struct Credit {
    /// Credit that is out on the link and counted in its queue's `granted`, unless that has lapsed.
    pub granted: u32,
    /// Ticks for which others waited for room while the link used none of its credit. A message that comes after
    /// [`PROMISE_LAPSES_AFTER_TICKS`] is put if there is room then.
    pub unused_ticks: u8,
}

/// The user whose messages a link puts.
pub struct Putter {
    /// The user whose limits apply to the link.
    pub user: Option<UserId>,
    /// Its name in the log; none for a client that has not signed in.
    pub name: Option<String>,
    /// As whom it asks for devices.
    pub asks_as: bulla_device::Asker,
}

/// A message that waits for its adapter, or for those before it.
pub struct Pending {
    pub(crate) receipt: Receipt,
    pub(crate) queue: QueueId,
    pub(crate) policy: Option<Arc<Policy>>,
    /// Where it goes from there, from a transmission queue.
    pub transmission: Option<Arc<TransmissionHeader>>,
    /// It is one of the copies of a publication.
    pub copy: Option<CopyOf>,
    /// The idempotency key that it is put under; of the copies of a publication the first one has it.
    pub claim: Option<Box<Claim>>,
    /// Its memory, given back when it is put.
    pub _held: Option<Held>,
    pub(crate) _counted: Option<BeingSealed>,
}

/// Which of the copies of a publication, which lie one after the other.
pub struct CopyOf {
    pub(crate) is_last: bool,
    /// The publication is to survive a restart.
    pub(crate) persistent: bool,
    pub(crate) whose: Subscriber,
}

/// Where the answer to a delivery goes.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    pub(crate) key: usize,
    pub(crate) generation: u64,
    pub(crate) link: LinkId,
    pub(crate) id: DeliveryId,
    /// The client has settled already: nothing is answered.
    pub settled: bool,
    /// It came on a link to no queue in particular.
    pub is_single: bool,
    /// It asks to be told what becomes of it.
    pub asks: bool,
    /// The unit of work that it is part of.
    pub unit: Option<UnitId>,
    /// Whose it is, as one who is limited.
    pub user: Option<UserId>,
}

/// Credit of a link whose policy has batches of that size, and whose longest message of late has so many bytes.
fn credit_for_batches(sign_batch: u32, longest: usize) -> u32 {
    let fit = PENDING_BYTES_FOR_CREDIT.checked_div(longest).unwrap_or(0);
    let fit = u32::try_from(fit).unwrap_or(u32::MAX);
    CREDIT_PROTECTED.max(sign_batch.saturating_mul(CREDIT_SIGN_BATCHES).min(fit))
}

impl Producer {
    /// A link that puts, before it is known where and how.
    pub fn new(attach: &Attach, putter: Putter) -> Self {
        Self {
            session: attach.session,
            opened: None,
            route: None,
            sealed_by_client: false,
            credit: Credit::default(),
            longest: 0,
            pending: pending_line(),
            sealing: None,
            putter,
            dynamic: None,
            deletes: None,
            takes_rejected: attach.takes_rejected,
            any_user: false,
            publishing: None,
            relayed: None,
            resumable: None,
        }
    }

    /// Full credit of this link. An anonymous relay's messages may each be for a protected queue.
    #[inline]
    pub fn credit_full(&self) -> u32 {
        let Some(route) = &self.route else { return CREDIT_PROTECTED };
        match &route.policy {
            None => CREDIT_CLEAR,
            // There may be many copies of each with the adapters.
            Some(_) if self.publishing.is_some() => CREDIT_PROTECTED,
            Some(policy) => credit_for_batches(policy.sign_batch, self.longest),
        }
    }

    /// A message of so many bytes is to be sealed or checked.
    pub(crate) fn note_length(&mut self, bytes: usize) {
        self.longest = bytes.max(self.longest - self.longest / LONGEST_FADES_PART);
    }

    /// What is missing of its full credit; 0 where it has enough, or where as much is with the adapters as may be.
    #[inline]
    pub fn credit_wanted(&self) -> u32 {
        let full = self.credit_full();
        let outstanding = self.credit.granted + u32::try_from(self.pending.len()).unwrap_or(u32::MAX);
        let has_enough = outstanding > full / 2 || self.pending.bytes() >= PENDING_BYTES_FOR_CREDIT;
        if has_enough { 0 } else { full - outstanding }
    }

    /// Whether its credit no longer counts as room that is taken.
    #[inline]
    pub fn has_lapsed(&self) -> bool {
        self.credit.unused_ticks >= PROMISE_LAPSES_AFTER_TICKS
    }

    /// Credit of this link that is counted in its queue's `granted`.
    #[inline]
    pub fn promised(&self) -> u32 {
        if self.has_lapsed() { 0 } else { self.credit.granted }
    }

    /// Gives up the messages with the adapters, because the link ends: their memory is given back, and answers for them
    /// are ignored. Those that their sender has settled will not be sent again, so they stay, and are put once their
    /// adapters are done. Says whether units of work have lost a message.
    fn cancel(&mut self, units: &mut Units) -> bool {
        let mut any = false;
        for Pending { receipt, .. } in self.pending.cancel_where(|pending| !pending.receipt.settled) {
            if let Some(unit) = receipt.unit {
                units.ended(unit);
                let gone = Refusal::new(reason::CONNECTION_BROKEN, "a link ended while its message was being sealed");
                units.doom(unit, &gone);
                any = true;
            }
        }
        any
    }

    /// The link uses its credit: it counts as room that is taken, also where it had lapsed.
    #[inline]
    pub fn promise_again(&mut self, state: &mut State) {
        if self.has_lapsed()
            && let (Some(route), Some(_)) = (&self.route, &self.opened)
            && let Some(usage) = state.uses.get_mut(&route.queue)
        {
            usage.granted = usage.granted.saturating_add(self.credit.granted);
        }
        self.credit.unused_ticks = 0;
    }

    /// Gives back what the link was promised, when it ends, and gives up its messages that are being sealed. Says
    /// whether units of work have lost one.
    pub fn leave(&mut self, units: &mut Units, state: &mut State) -> bool {
        if let Some(topic) = self.publishing.as_deref().and_then(Publishing::topic) {
            state.topics.publisher_left(topic);
        }
        if let (Some(route), Some(_)) = (&self.route, &self.opened)
            && let Some(usage) = state.uses.get_mut(&route.queue)
        {
            usage.granted = usage.granted.saturating_sub(self.promised());
            usage.putters = usage.putters.saturating_sub(1);
        }
        for pending in self.pending.items() {
            if let Some(usage) = state.uses.get_mut(&pending.queue) {
                usage.granted = usage.granted.saturating_sub(1);
            }
        }
        let has_lost = self.cancel(units);
        if self.pending.is_empty() {
            self.putter.asks_as.leave();
        }
        has_lost
    }
}

/// The line of a link that puts.
pub fn pending_line() -> SealingLine<Pending> {
    SealingLine::bounded(PENDING_MESSAGES_MAX, PENDING_BYTES_MAX)
}

/// The queue that the last message of a relay link named, and when it was allowed.
#[derive(Debug)]
pub struct Relayed {
    pub(crate) name: String,
    /// The queue of that name itself: another one of that name may be another's.
    pub queue: Option<QueueId>,
    pub(crate) generation: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_seal::policy::SIGN_BATCH_MAX;

    #[test]
    fn credit_for_large_batches_is_for_messages_that_there_is_memory_for() {
        let credit = |longest| credit_for_batches(SIGN_BATCH_MAX, longest);
        let cases = [(0, 256), (1, 4096), (2 << 10, 4096), (16 << 10, 4096), (64 << 10, 1024), (256 << 10, 256)];
        assert!(cases.iter().all(|(longest, expected)| credit(*longest) == *expected));
        assert_eq!(credit(4 << 20), CREDIT_PROTECTED, "as without shared signatures");
        assert_eq!(credit_for_batches(1, 2 << 10), CREDIT_PROTECTED);
        // What came on more credit than its messages get now fits, too.
        assert!((1..=20).all(|shift| credit(1 << shift) as usize * (1 << shift) <= PENDING_BYTES_MAX));
    }
}
