//! What protection did under a policy or at a channel. All numbers are cumulative; two copies are subtracted to see
//! what happened in between.

use bulla_seal::Effort;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Time that messages were with devices.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceWait {
    /// Jobs: for each one a message was set aside until its answer came.
    pub jobs: u64,
    /// Nanoseconds from handing a job over to its answer, all jobs together.
    pub ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
}

impl DeviceWait {
    /// One more job.
    pub fn note(&mut self, ns: u64) {
        self.add(&DeviceWait { jobs: 1, ns, longest_ns: ns });
    }

    fn add(&mut self, other: &DeviceWait) {
        self.jobs += other.jobs;
        self.ns = self.ns.saturating_add(other.ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deed {
    /// It was sealed.
    Sealed,
    /// It was opened for a reader.
    Opened,
    /// It arrived sealed, and was looked at.
    Checked,
    /// It was clear, and let through under TOLERATE.
    Tolerated,
    /// It was passed over for a reader who is not a recipient.
    NotMine,
    /// It went to the error queue.
    Quarantined,
    /// It could not be sealed, opened or checked; why is counted where it is refused.
    FailedToSeal,
    /// The same of opening and checking.
    FailedToOpen,
}

/// What protection did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProtectionMeters {
    /// Messages sealed.
    pub sealed: u64,
    /// Messages opened, browsed ones included.
    pub opened: u64,
    /// Messages that arrived sealed and were found good.
    pub checked: u64,
    /// Clear messages let through under TOLERATE.
    pub tolerated: u64,
    /// Times that a message was passed over for a reader who is not a recipient.
    pub not_mine: u64,
    /// Messages moved to the error queue.
    pub quarantined: u64,
    /// What sealing took, failures included; bytes in are payload, bytes out sealed messages.
    pub sealing: Effort,
    /// What opening and checking took, failures included; bytes in are sealed messages, bytes out payload.
    pub opening: Effort,
    /// How long messages were with devices.
    pub wait: DeviceWait,
    /// Messages refused, set aside or not opened, by cause.
    pub failures: BTreeMap<Cow<'static, str>, u64>,
}

impl ProtectionMeters {
    /// Counts a message, and what it took.
    pub fn note(&mut self, deed: Deed, effort: &Effort, wait: &DeviceWait) {
        match deed {
            Deed::Sealed => self.sealed += 1,
            Deed::Opened => self.opened += 1,
            Deed::Checked => self.checked += 1,
            Deed::Tolerated => self.tolerated += 1,
            Deed::NotMine => self.not_mine += 1,
            Deed::Quarantined => self.quarantined += 1,
            Deed::FailedToSeal | Deed::FailedToOpen => {}
        }
        let side = match deed {
            Deed::Sealed | Deed::FailedToSeal => &mut self.sealing,
            _ => &mut self.opening,
        };
        *side += effort;
        self.wait.add(wait);
    }

    /// Counts a failure under its cause.
    pub fn fail(&mut self, cause: &'static str) {
        *self.failures.entry(Cow::Borrowed(cause)).or_default() += 1;
    }

    /// Takes in what was counted elsewhere.
    pub fn add(&mut self, other: &ProtectionMeters) {
        self.sealed += other.sealed;
        self.opened += other.opened;
        self.checked += other.checked;
        self.tolerated += other.tolerated;
        self.not_mine += other.not_mine;
        self.quarantined += other.quarantined;
        self.sealing += &other.sealing;
        self.opening += &other.opening;
        self.wait.add(&other.wait);
        for (cause, count) in &other.failures {
            *self.failures.entry(cause.clone()).or_default() += count;
        }
    }

    /// Messages that something was done with.
    pub fn messages(&self) -> u64 {
        self.sealed + self.opened + self.checked
    }

    /// Failures of every cause.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// What was done after `earlier`, an older copy. The longest wait is that of both times together.
    #[must_use]
    pub fn since(&self, earlier: &ProtectionMeters) -> ProtectionMeters {
        let failures = self.failures.iter().filter_map(|(cause, count)| {
            let more = count.saturating_sub(earlier.failures.get(cause).copied().unwrap_or(0));
            (more > 0).then(|| (cause.clone(), more))
        });
        ProtectionMeters {
            sealed: self.sealed.saturating_sub(earlier.sealed),
            opened: self.opened.saturating_sub(earlier.opened),
            checked: self.checked.saturating_sub(earlier.checked),
            tolerated: self.tolerated.saturating_sub(earlier.tolerated),
            not_mine: self.not_mine.saturating_sub(earlier.not_mine),
            quarantined: self.quarantined.saturating_sub(earlier.quarantined),
            sealing: difference(&self.sealing, &earlier.sealing),
            opening: difference(&self.opening, &earlier.opening),
            wait: DeviceWait {
                jobs: self.wait.jobs.saturating_sub(earlier.wait.jobs),
                ns: self.wait.ns.saturating_sub(earlier.wait.ns),
                longest_ns: self.wait.longest_ns,
            },
            failures: failures.collect(),
        }
    }
}

fn difference(now: &Effort, before: &Effort) -> Effort {
    Effort {
        content_keys: now.content_keys.saturating_sub(before.content_keys),
        wraps: now.wraps.saturating_sub(before.wraps),
        unwraps: now.unwraps.saturating_sub(before.unwraps),
        signs: now.signs.saturating_sub(before.signs),
        verifies: now.verifies.saturating_sub(before.verifies),
        cache_hits: now.cache_hits.saturating_sub(before.cache_hits),
        bytes_in: now.bytes_in.saturating_sub(before.bytes_in),
        bytes_out: now.bytes_out.saturating_sub(before.bytes_out),
    }
}
