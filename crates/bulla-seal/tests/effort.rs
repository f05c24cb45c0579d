//! Known sequences of messages, and the effort that was counted for each: exactly theirs.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use bulla_device::{CpuDevice, DeviceError, Digest, Operation, SystemRandom};
use bulla_seal::policy::{ContentCipher, KeyReuse};
use bulla_seal::ring::Ring;
use bulla_seal::{Effort, Moments, OpenError, Opener, Policy, Sealed, Sealer, Step, Tally, drive};
use bytes::Bytes;
use common::*;

const SHA256: Option<Digest> = Some(Digest::Sha256);
const GCM: Option<ContentCipher> = Some(ContentCipher::Aes256Gcm);

/// Bytes of the payload of these tests.
const PAYLOAD: u64 = 31;

fn seal_counted(sealer: &mut Sealer, tally: &Tally) -> Sealed {
    let step = sealer.seal_counting(payload(), &bound(), now(), &mut SystemRandom, tally).unwrap();
    drive(step, &mut CpuDevice::new("cpu")).unwrap()
}

fn open_counted(
    opener: &Opener,
    policy: &Arc<Policy>,
    ring: &Arc<Ring>,
    der: Bytes,
    tally: &Tally,
) -> Result<(), OpenError> {
    let step =
        opener.open_counting(policy, ring, der, expect(), Moments { put_at: now(), now: now() }, tally.clone())?;
    drive(step, &mut CpuDevice::new("cpu")).map(drop)
}

/// Ten messages sealed one after the other and opened in the same order, and what each half took.
fn ten(policy: Policy, ring: &Arc<Ring>) -> (Effort, Effort) {
    let policy = Arc::new(policy);
    let mut sealer = sealer(&policy, ring);
    let (sealing, opening, opener) = (Tally::new(), Tally::new(), Opener::new());
    let sealed: Vec<Sealed> = (0..10).map(|_| seal_counted(&mut sealer, &sealing)).collect();
    let bytes: u64 = sealed.iter().map(|sealed| sealed.der.len() as u64).sum();
    for sealed in sealed {
        open_counted(&opener, &policy, ring, sealed.der, &opening).unwrap();
    }
    let (sealing, opening) = (sealing.effort(), opening.effort());
    assert_eq!((sealing.bytes_in, sealing.bytes_out), (10 * PAYLOAD, bytes));
    assert_eq!((opening.bytes_in, opening.bytes_out), (bytes, 10 * PAYLOAD));
    let without_bytes = |effort| Effort { bytes_in: 0, bytes_out: 0, ..effort };
    (without_bytes(sealing), without_bytes(opening))
}

#[test]
fn ten_messages_of_each_quality_take_exactly_their_operations() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", RSA_SMALL), world.person("bob", P256));
    let ring = world.ring("alice", &[&alice], &[&bob]);
    let none = Effort::default();

    let (sealing, opening) = ten(policy_of(SHA256, None, &[]), &ring);
    assert_eq!(sealing, Effort { signs: 10, ..none });
    assert_eq!(opening, Effort { verifies: 10, ..none });

    // One recipient's key is wrapped with RSA, the other's by an ephemeral agreement.
    let (sealing, opening) = ten(policy_of(SHA256, GCM, &[&alice, &bob]), &ring);
    assert_eq!(sealing, Effort { content_keys: 10, wraps: 20, signs: 10, ..none });
    assert_eq!(opening, Effort { unwraps: 10, verifies: 10, ..none });

    let reused = Policy { key_reuse: KeyReuse::Count(4), ..policy_of(None, GCM, &[&alice]) };
    let (sealing, opening) = ten(reused, &ring);
    assert_eq!(sealing, Effort { content_keys: 2, wraps: 2, ..none });
    assert_eq!(opening, Effort { unwraps: 2, cache_hits: 8, ..none });

    let (sealing, opening) = ten(policy_of(None, GCM, &[&alice]), &ring);
    assert_eq!(sealing, Effort { content_keys: 10, wraps: 10, ..none });
    assert_eq!(opening, Effort { unwraps: 10, ..none });
}

#[test]
fn a_derivation_counts_as_an_unwrap() {
    let world = World::new();
    let bob = world.person("bob", P256);
    let ring = world.ring("bob", &[&bob], &[]);
    let (sealing, opening) = ten(policy_of(None, GCM, &[&bob]), &ring);
    assert_eq!(sealing, Effort { content_keys: 10, wraps: 10, ..Effort::default() });
    assert_eq!(opening, Effort { unwraps: 10, ..Effort::default() });
}

#[test]
fn what_failed_is_counted_as_far_as_it_went() {
    let world = World::new();
    let alice = world.person("alice", RSA_SMALL);
    let ring = world.ring("alice", &[&alice], &[]);
    let integrity = policy(SHA256, None, &[]);
    let mut der = seal(&integrity, &ring).to_vec();
    let len = der.len() as u64;
    // The last byte is the signature's.
    *der.last_mut().unwrap() ^= 1;
    let tally = Tally::new();
    let error = open_counted(&Opener::new(), &integrity, &ring, der.into(), &tally).unwrap_err();
    assert_eq!(error.cause(), "tampered");
    assert_eq!(tally.effort(), Effort { verifies: 1, bytes_in: len, ..Effort::default() });

    let confidential = policy(None, GCM, &[&alice]);
    let mut der = seal(&confidential, &ring).to_vec();
    let len = der.len() as u64;
    *der.last_mut().unwrap() ^= 1;
    let tally = Tally::new();
    open_counted(&Opener::new(), &confidential, &ring, der.into(), &tally).unwrap_err();
    assert_eq!(tally.effort(), Effort { unwraps: 1, bytes_in: len, ..Effort::default() });
}

#[test]
fn an_operation_that_no_device_did_is_not_counted() {
    let world = World::new();
    let alice = world.person("alice", RSA_SMALL);
    let ring = world.ring("alice", &[&alice], &[]);
    let mut sealer = sealer(&policy(SHA256, GCM, &[&alice]), &ring);
    let tally = Tally::new();
    let step = sealer.seal_counting(payload(), &bound(), now(), &mut SystemRandom, &tally).unwrap();
    let Step::Device(_, go_on) = step else { panic!("a key is wrapped first") };
    assert!(go_on(Err(DeviceError::Deadline)).is_err());
    assert_eq!(tally.effort(), Effort { content_keys: 1, bytes_in: PAYLOAD, ..Effort::default() });
}

#[test]
fn an_unwrap_for_two_messages_is_one_unwrap_and_one_hit() {
    let world = World::new();
    let alice = world.person("alice", RSA_SMALL);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = Policy { key_reuse: KeyReuse::Unlimited, ..policy_of(None, GCM, &[&alice]) };
    let policy = Arc::new(policy);
    let mut sealer = sealer(&policy, &ring);
    let (opener, tallies) = (Opener::new(), [Tally::new(), Tally::new()]);
    let both = tallies.each_ref().map(|tally| {
        let der = seal_counted(&mut sealer, &Tally::default()).der;
        opener
            .open_counting(&policy, &ring, der, expect(), Moments { put_at: now(), now: now() }, tally.clone())
            .unwrap()
    });
    for (step, tally) in both.into_iter().zip(&tallies) {
        drive(step, &mut CpuDevice::new("cpu")).unwrap();
        assert_eq!((tally.effort().unwraps, tally.effort().cache_hits), (1, 0));
    }
    tallies[1].was_shared(Operation::EcdhDerive);
    assert_eq!((tallies[1].effort().unwraps, tallies[1].effort().cache_hits), (0, 1));
}

#[test]
fn a_message_that_arrives_sealed_takes_one_verification() {
    let world = World::new();
    let alice = world.person("alice", RSA_SMALL);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(SHA256, None, &[]);
    let der = seal(&policy, &ring);
    let tally = Tally::new();
    let step = Opener::new().check_arrived_counting(&policy, &ring, &der, &expect(), now(), tally.clone()).unwrap();
    drive(step, &mut CpuDevice::new("cpu")).unwrap();
    let effort = tally.effort();
    assert_eq!((effort.verifies, effort.bytes_in), (1, der.len() as u64));
    let tally = Tally::new();
    Opener::new().check_form_counting(&policy, &der, &expect(), now(), tally.clone()).unwrap();
    assert_eq!(tally.effort(), Effort { bytes_in: der.len() as u64, ..Effort::default() });
}

#[test]
fn efforts_add_up_and_a_tally_that_is_none_counts_nothing() {
    let mut sum = Effort { signs: 1, bytes_in: 5, ..Effort::default() };
    sum += &Effort { signs: 2, verifies: 3, bytes_in: 6, ..Effort::default() };
    assert_eq!(sum, Effort { signs: 3, verifies: 3, bytes_in: 11, ..Effort::default() });
    let none = Tally::default();
    none.was_shared(Operation::EcdhDerive);
    assert_eq!(none.effort(), Effort::default());
}
