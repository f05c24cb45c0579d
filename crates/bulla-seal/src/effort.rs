//! What sealing and opening did: keys made, operations with them, bytes, counted where each happens.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bulla_device::{DeviceError, Job, Operation, Output};

use crate::step::Step;

/// What was done for one message, or for many together. An operation of a device counts when its answer is there: one
/// that failed, was cancelled or came too late does not, a signature that was found bad does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Content keys made.
    pub content_keys: u64,
    /// Content keys wrapped, once for each recipient; ephemeral keys agreed on included.
    pub wraps: u64,
    /// Content keys unwrapped, derivations (ECDH) included.
    pub unwraps: u64,
    /// Signatures made.
    pub signs: u64,
    /// Signatures verified, good and bad ones.
    pub verifies: u64,
    /// Content keys that were known already when a message was opened: out of the key cache, or unwrapped at that
    /// moment for another message under the same key.
    pub cache_hits: u64,
    /// Bytes given: payloads to seal, sealed messages to open or check.
    pub bytes_in: u64,
    /// Bytes that came out: sealed messages, opened payloads.
    pub bytes_out: u64,
}

impl AddAssign<&Effort> for Effort {
    fn add_assign(&mut self, other: &Effort) {
        self.content_keys += other.content_keys;
        self.wraps += other.wraps;
        self.unwraps += other.unwraps;
        self.signs += other.signs;
        self.verifies += other.verifies;
        self.cache_hits += other.cache_hits;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// Counts the effort of one message while it is under way, wherever its steps are carried out; clones count together.
/// The default one counts nothing and costs nothing; a real one costs an allocation, and a few nanoseconds for each
/// operation.
#[derive(Clone, Debug, Default)]
pub struct Tally(Option<Arc<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    content_keys: AtomicU64,
    wraps: AtomicU64,
    unwraps: AtomicU64,
    signs: AtomicU64,
    verifies: AtomicU64,
    cache_hits: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Tally {
    /// One that counts.
    pub fn new() -> Tally {
        Tally(Some(Arc::default()))
    }

    /// What was counted until now; nothing, of one that does not count.
    pub fn effort(&self) -> Effort {
        let Some(counts) = &self.0 else { return Effort::default() };
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Effort {
            content_keys: count(&counts.content_keys),
            wraps: count(&counts.wraps),
            unwraps: count(&counts.unwraps),
            signs: count(&counts.signs),
            verifies: count(&counts.verifies),
            cache_hits: count(&counts.cache_hits),
            bytes_in: count(&counts.bytes_in),
            bytes_out: count(&counts.bytes_out),
        }
    }

    /// The answer that was just given to this message's step was another message's: both wait for the same operation,
    /// and the one that carries the steps out had it done once.
    pub fn was_shared(&self, operation: Operation) {
        let Some(counts) = &self.0 else { return };
        // It was counted on this thread a moment ago.
        match operation {
            Operation::RsaVerify | Operation::EcdsaVerify | Operation::MlDsaVerify => {
                counts.verifies.fetch_sub(1, Ordering::Relaxed)
            }
            _ => {
                counts.unwraps.fetch_sub(1, Ordering::Relaxed);
                counts.cache_hits.fetch_add(1, Ordering::Relaxed)
            }
        };
    }

    /// The message's opening begins anew and no operation was done for it yet: what was counted of it, its bytes, will
    /// be again.
    pub fn begin_again(&self) {
        if let Some(counts) = &self.0 {
            counts.bytes_in.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn content_key(&self) {
        self.add(|counts| &counts.content_keys, 1);
    }

    pub(crate) fn cache_hit(&self) {
        self.add(|counts| &counts.cache_hits, 1);
    }

    pub(crate) fn sign(&self) {
        self.add(|counts| &counts.signs, 1);
    }

    pub(crate) fn verify(&self) {
        self.add(|counts| &counts.verifies, 1);
    }

    pub(crate) fn bytes_in(&self, bytes: usize) {
        self.add(|counts| &counts.bytes_in, bytes as u64);
    }

    pub(crate) fn bytes_out(&self, bytes: usize) {
        self.add(|counts| &counts.bytes_out, bytes as u64);
    }

    fn add(&self, count: impl Fn(&Counts) -> &AtomicU64, more: u64) {
        if let Some(counts) = &self.0 {
            count(counts).fetch_add(more, Ordering::Relaxed);
        }
    }

    /// A step that waits for a device, which is counted when it has answered.
    pub(crate) fn ask<T, E>(
        &self,
        job: Job,
        go_on: impl FnOnce(Result<Output, DeviceError>) -> Result<Step<T, E>, E> + Send + 'static,
    ) -> Step<T, E> {
        let (tally, operation) = (self.clone(), job.work.operation());
        let counted = move |result: Result<Output, DeviceError>| {
            if matches!(result, Ok(_) | Err(DeviceError::BadSignature)) {
                tally.operation(operation);
            }
            go_on(result)
        };
        Step::Device(job, Box::new(counted))
    }

    fn operation(&self, operation: Operation) {
        let Some(counts) = &self.0 else { return };
        let count = match operation {
            Operation::RsaSign | Operation::EcdsaSign | Operation::MlDsaSign => &counts.signs,
            Operation::RsaVerify | Operation::EcdsaVerify | Operation::MlDsaVerify => &counts.verifies,
            Operation::RsaWrap | Operation::EcdhEphemeral | Operation::MlKemEncapsulate => &counts.wraps,
            Operation::RsaUnwrap | Operation::EcdhDerive | Operation::MlKemDecapsulate => &counts.unwraps,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
