//! Limits of one queue, beside MAXDEPTH and MAXMSGL, and what its links have of what they limit.

use super::{Bucket, MESSAGE, look_again_after};
use crate::catalog::limits::QueueLimit;
use crate::reason::{self, Refusal};
use std::time::Instant;

/// Sub-reasons of refusals.
const TOO_MANY_LINKS: &str = "queue-links";
const TOO_FAST: &str = "queue-rate";

/// What they have.
#[derive(Debug, Default)]
pub struct QueueUses {
    /// Bytes delivered and not settled, counted where UNACKED limits them.
    pub unacknowledged_bytes: u64,
    /// How often MSGRATE left a link less credit than it could have had.
    pub held_back: u64,
    /// Links refused, and messages of links to no queue in particular.
    pub refused: u64,
    /// What the rate, which is kept beside it, has saved up; none without a rate.
    bucket: Option<Box<(u32, Bucket)>>,
    /// The operator has been told that it is at its limit of links; again once it was down to half of it.
    told: bool,
}

impl QueueUses {
    /// Whether a queue with so many links may have one more.
    ///
    /// # Errors
    /// 2017: it has as many as it may.
    pub fn may_open(&mut self, limit: QueueLimit, queue: &str, links: u32) -> Result<(), Refusal> {
        let max = limit.links;
        self.told &= links > max / 2;
        if max == 0 || links < max {
            return Ok(());
        }
        self.refused += 1;
        let detail = format!("{queue} has {links} links, and MAXHANDS allows {max}");
        let refusal = Refusal { cause: Some(TOO_MANY_LINKS), ..Refusal::new(reason::HANDLE_NOT_AVAILABLE, detail) };
        if !std::mem::replace(&mut self.told, true) {
            crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}");
        }
        Err(refusal)
    }

    /// How much of the credit `wanted` for one more link may go out now, where `promised` messages are to come already.
    /// A link that has none gets one where anything is saved up, so that idle links with credit keep no other link from
    /// putting.
    pub fn allowed(&mut self, limit: QueueLimit, wanted: u32, has_none: bool, promised: u32, now: Instant) -> u32 {
        let Some(bucket) = self.filled(limit, now) else { return wanted };
        let allowed = bucket.allowed(wanted, has_none, promised);
        self.held_back += u64::from(allowed < wanted);
        allowed
    }

    /// Whether a message may come that needed no credit for this queue: on a link to no queue in particular.
    ///
    /// # Errors
    /// 2053: nothing is saved up. There is no credit to hold back.
    pub fn admit(&mut self, limit: QueueLimit, queue: &str, now: Instant) -> Result<(), Refusal> {
        if self.filled(limit, now).is_none_or(|bucket| bucket.messages() > 0) {
            self.put();
            return Ok(());
        }
        self.refused += 1;
        let detail =
            format!("{queue}: more than MSGRATE({}) on a link to no queue in particular", limit.messages_a_second);
        Err(Refusal { cause: Some(TOO_FAST), ..Refusal::new(reason::Q_FULL, detail) })
    }

    /// When a user who was allowed nothing is to ask again.
    pub fn look_again_at(limit: QueueLimit, links: u32, now: Instant) -> Instant {
        now + look_again_after(limit.messages_a_second, links)
    }

    /// Hot path, once per message put: a compare where there is no rate.
    pub fn put(&mut self) {
        if let Some(kept) = &mut self.bucket {
            kept.1.level = kept.1.level.saturating_sub(MESSAGE);
        }
    }

    /// Whether as much of it is unsettled as may be. A compare where nothing limits that.
    pub fn is_full(&self, limit: QueueLimit) -> bool {
        limit.unacknowledged_bytes > 0 && self.unacknowledged_bytes >= limit.unacknowledged_bytes
    }

    /// So many bytes were delivered.
    pub fn delivered(&mut self, bytes: u64) {
        self.unacknowledged_bytes = self.unacknowledged_bytes.saturating_add(bytes);
    }

    /// So many of them are settled. True where more may be delivered again.
    pub fn settled(&mut self, limit: QueueLimit, bytes: u64) -> bool {
        let was_full = self.is_full(limit);
        self.unacknowledged_bytes = self.unacknowledged_bytes.saturating_sub(bytes);
        was_full && !self.is_full(limit)
    }

    /// What is saved up now; none without a rate. Another rate begins anew.
    fn filled(&mut self, limit: QueueLimit, now: Instant) -> Option<&mut Bucket> {
        let rate = limit.messages_a_second;
        if rate == 0 {
            self.bucket = None;
            return None;
        }
        if self.bucket.as_ref().is_none_or(|kept| kept.0 != rate) {
            self.bucket = Some(Box::new((rate, Bucket::new(rate, now))));
        }
        let bucket = &mut self.bucket.as_deref_mut()?.1;
        bucket.fill(rate, now);
        Some(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(messages_a_second: u32) -> QueueLimit {
        QueueLimit { messages_a_second, ..QueueLimit::default() }
    }

    #[test]
    fn one_link_too_many_is_refused_and_counted_and_there_is_room_again() {
        let limit = QueueLimit { links: 2, ..QueueLimit::default() };
        let mut uses = QueueUses::default();
        uses.may_open(limit, "Q", 1).unwrap();
        let refusal = uses.may_open(limit, "Q", 2).unwrap_err();
        assert_eq!((refusal.reason.code, refusal.cause), (2017, Some(TOO_MANY_LINKS)));
        assert!(refusal.detail.contains('Q') && uses.told, "{refusal}");
        uses.may_open(limit, "Q", 1).unwrap();
        assert_eq!((uses.refused, uses.told), (1, false));
        uses.may_open(QueueLimit::default(), "Q", u32::MAX).expect("0 is no limit");
    }

    #[test]
    fn idle_links_with_credit_keep_nobody_from_putting() {
        let (mut uses, now) = (QueueUses::default(), Instant::now());
        let mut promised = 0;
        for _ in 0..8 {
            promised += uses.allowed(rate(4), 1000, true, promised, now);
        }
        assert!(promised >= 8, "each has one at least: {promised}");
        assert_eq!(uses.allowed(rate(4), 1000, false, promised, now), 0, "who has some waits");
        assert_eq!(uses.held_back, 9);
    }

    #[test]
    fn what_was_put_too_much_is_paid_back_before_more_may_come() {
        let (mut uses, now) = (QueueUses::default(), Instant::now());
        assert_eq!(uses.allowed(rate(4), 1, true, 0, now), 1);
        (0..8).for_each(|_| uses.put());
        assert_eq!(uses.allowed(rate(4), 1, true, 0, now + SECOND), 0, "four of eight");
        assert_eq!(uses.allowed(rate(4), 1, true, 0, now + 2 * SECOND), 1);
    }

    #[test]
    fn a_message_that_needed_no_credit_is_refused_beyond_the_rate() {
        let (mut uses, now) = (QueueUses::default(), Instant::now());
        uses.admit(rate(2), "Q", now).unwrap();
        uses.admit(rate(2), "Q", now).unwrap();
        let refusal = uses.admit(rate(2), "Q", now).unwrap_err();
        assert_eq!((refusal.reason.code, refusal.cause), (2053, Some(TOO_FAST)));
        uses.admit(rate(2), "Q", now + SECOND).unwrap();
        uses.admit(QueueLimit::default(), "Q", now).expect("without a rate everything may come");
    }

    #[test]
    fn what_is_unsettled_fills_up_and_makes_room_again() {
        let limit = QueueLimit { unacknowledged_bytes: 100, ..QueueLimit::default() };
        let mut uses = QueueUses::default();
        uses.delivered(150);
        assert!(uses.is_full(limit) && !uses.is_full(QueueLimit::default()));
        assert!(!uses.settled(limit, 50), "it is full still");
        assert!(uses.settled(limit, 1));
        assert!(!uses.settled(limit, 99), "it was not full before");
    }
}
