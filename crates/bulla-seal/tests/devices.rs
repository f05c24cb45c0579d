//! Which jobs sealing and opening hand to devices, what becomes of wrong and missing answers, and messages
//! that are on their way side by side.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use bulla_device::{
    CpuDevice, Device, DeviceError, Digest, Finished, Job, Kind, MlDsa, MlKem, Operation, Output, Stage, SystemRandom,
    Tamper,
};
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::{ContentCipher, KeyReuse, Pqc};
use bulla_seal::ring::Ring;
use bulla_seal::{
    Content, OpenError, Opened, Opener, Outcome, POOLED_CONTENT_KEYS_MAX, Packing, Policy, SealError, Sealed, Sealer,
    Step, Verified, drive,
};
use bytes::Bytes;
use common::*;
use proptest::prelude::*;

const SHA256: Option<Digest> = Some(Digest::Sha256);
const GCM: Option<ContentCipher> = Some(ContentCipher::Aes256Gcm);
const CBC: Option<ContentCipher> = Some(ContentCipher::Aes256Cbc);

/// What an answer becomes on its way back.
type Bend = Box<dyn FnMut(Operation, Result<Output, DeviceError>) -> Result<Output, DeviceError> + Send>;

/// The processor, with every job noted and every answer bent.
struct Bent {
    cpu: CpuDevice,
    done: Vec<Operation>,
    bend: Bend,
}

impl Bent {
    fn new(
        bend: impl FnMut(Operation, Result<Output, DeviceError>) -> Result<Output, DeviceError> + Send + 'static,
    ) -> Bent {
        Bent { cpu: CpuDevice::new("cpu"), done: Vec::new(), bend: Box::new(bend) }
    }

    fn honest() -> Bent {
        Bent::new(|_, answer| answer)
    }

    /// Fails the job at `at`, counted from 0.
    fn failing(at: usize, error: DeviceError) -> Bent {
        let mut count = 0;
        Bent::new(move |_, answer| {
            count += 1;
            if count == at + 1 { Err(error.clone()) } else { answer }
        })
    }

    /// Wrong about one operation, once.
    fn lying(about: Operation) -> Bent {
        let mut lied = false;
        Bent::new(move |operation, answer| {
            if operation != about || std::mem::replace(&mut lied, true) {
                return answer;
            }
            match answer {
                Ok(output) if output.is_empty() => Err(DeviceError::BadSignature),
                Ok(output) => Ok(Output::new(output.iter().map(|byte| byte ^ 0x55).collect())),
                Err(error) => Err(error),
            }
        })
    }
}

impl Device for Bent {
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError> {
        self.done.extend(jobs.iter().map(|job| job.work.operation()));
        self.cpu.submit(jobs)
    }

    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError> {
        self.cpu.poll(done)?;
        for (finished, operation) in done.iter_mut().zip(self.done.iter().rev()) {
            let answer = std::mem::replace(&mut finished.result, Err(DeviceError::Cancelled));
            finished.result = (self.bend)(*operation, answer);
        }
        Ok(())
    }

    fn name(&self) -> &str {
        "BENT"
    }

    fn kind(&self) -> Kind {
        Kind::Accelerator
    }
}

fn open_on(
    device: &mut dyn Device,
    opener: &Opener,
    policy: &Arc<Policy>,
    ring: &Arc<Ring>,
    der: &Bytes,
) -> Result<Opened, OpenError> {
    let step = opener.open(policy, ring, der.clone(), expect(), now(), now())?;
    drive(step, device).map(Verified::into_inner)
}

fn seal_on(device: &mut dyn Device, policy: &Arc<Policy>, ring: &Arc<Ring>) -> Result<Sealed, SealError> {
    drive(sealer(policy, ring).seal(payload(), &bound(), now(), &mut SystemRandom)?, device)
}

fn all_errors() -> Vec<DeviceError> {
    let device = || "CARD".to_owned();
    vec![
        DeviceError::Away { device: device() },
        DeviceError::Fault { device: device() },
        DeviceError::Offline { device: device(), why: "no token in the slot".into() },
        DeviceError::Refused { device: device(), why: "busy".into() },
        DeviceError::Cancelled,
        DeviceError::Deadline,
    ]
}

/// A ring for each kind of key, with its owner's policies: integrity, privacy by GCM and CBC, confidentiality.
fn settings(world: &World) -> Vec<(KeySpec, Arc<Ring>, Vec<Arc<Policy>>)> {
    let specs = [(RSA, RSA), (P256, P256), (KeySpec::MlDsa(MlDsa::MlDsa44), KeySpec::MlKem(MlKem::MlKem768))];
    let rings = specs.into_iter().map(|(spec, reads)| {
        let alice = world.person(&format!("alice {spec}"), spec);
        let reads = if reads == spec { alice.clone() } else { world.person(&format!("alice {spec}"), reads) };
        let ring = world.ring(&format!("alice-{spec}"), &[&alice, &reads], &[]);
        let policies = [(SHA256, None), (SHA256, GCM), (SHA256, CBC), (None, GCM)].map(|(sign, encrypt)| {
            let to: &[&Person] = if encrypt.is_some() { &[&alice] } else { &[] };
            Arc::new(Policy { pqc: Pqc::Allowed, ..policy_of(sign, encrypt, to) })
        });
        (spec, ring, policies.to_vec())
    });
    rings.collect()
}

#[test]
fn every_operation_with_a_key_is_a_job() {
    use Operation::*;
    let world = World::new();
    for (spec, ring, policies) in settings(&world) {
        let [sign, verify, wrap, unwrap] = match spec {
            KeySpec::Rsa(_) => [RsaSign, RsaVerify, RsaWrap, RsaUnwrap],
            KeySpec::Ec(_) => [EcdsaSign, EcdsaVerify, EcdhEphemeral, EcdhDerive],
            _ => [MlDsaSign, MlDsaVerify, MlKemEncapsulate, MlKemDecapsulate],
        };
        let jobs: [(&[Operation], &[Operation]); 4] = [
            (&[sign], &[verify]),
            (&[wrap, sign], &[unwrap, verify]),
            (&[wrap, sign], &[unwrap, verify]),
            (&[wrap], &[unwrap]),
        ];
        for (policy, (sealing, opening)) in policies.iter().zip(jobs) {
            let mut device = Bent::honest();
            let sealed = seal_on(&mut device, policy, &ring).unwrap();
            assert_eq!(device.done, sealing);
            let mut device = Bent::honest();
            open_on(&mut device, &Opener::new(), policy, &ring, &sealed.der).unwrap();
            assert_eq!(device.done, opening);
            let mut device = Bent::honest();
            let check = Opener::new().check_arrived(policy, &ring, &sealed.der, &expect(), now()).unwrap();
            drive(check, &mut device).unwrap();
            assert_eq!(device.done, if policy.encrypt.is_none() { opening } else { &[] });
        }
    }
}

#[test]
fn each_recipient_is_a_job_and_each_opens() {
    use Operation::*;
    let world = World::new();
    let people: Vec<Person> =
        [RSA, P256, RSA_SMALL].iter().map(|spec| world.person(&format!("r {spec}"), *spec)).collect();
    let to: Vec<&Person> = people.iter().collect();
    let alice = world.person("alice", P256);
    let sender = world.ring("alice", &[&alice], &to);
    let policy = policy(SHA256, GCM, &to);
    let mut device = Bent::honest();
    let sealed = seal_on(&mut device, &policy, &sender).unwrap();
    assert_eq!(device.done, [RsaWrap, EcdhEphemeral, RsaWrap, EcdsaSign]);
    for (at, person) in people.iter().enumerate() {
        let ring = world.ring(&format!("r{at}"), &[person], &[]);
        assert_eq!(open(&policy, &ring, sealed.der.clone()).unwrap().content, payload());
    }
}

#[test]
fn a_wrong_answer_leads_to_a_verdict_that_may_be_the_devices_and_leaves_no_trace() {
    let world = World::new();
    let mut lies = 0;
    for (_, ring, policies) in settings(&world) {
        for policy in policies {
            let der = seal(&policy, &ring);
            let mut honest = Bent::honest();
            open_on(&mut honest, &Opener::new(), &policy, &ring, &der).unwrap();
            for about in honest.done {
                let opener = Opener::new();
                let error = open_on(&mut Bent::lying(about), &opener, &policy, &ring, &der).unwrap_err();
                assert!(error.may_be_the_device(), "{about}: {error}");
                assert_eq!(error.outcome(), Outcome::Defective);
                let again = open_on(&mut CpuDevice::new("cpu"), &opener, &policy, &ring, &der).unwrap();
                assert_eq!(again.content, payload());
                lies += 1;
            }
        }
    }
    assert_eq!(lies, 18);
}

#[test]
fn a_content_key_that_nothing_proved_is_not_believed_twice() {
    let world = World::new();
    let alice = world.person("alice", RSA_SMALL);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = Arc::new(Policy { key_reuse: KeyReuse::Unlimited, ..policy_of(None, CBC, &[&alice]) });
    let mut sealer = sealer(&policy, &ring);
    let opener = Opener::new();
    let first = seal_with(&mut sealer, payload()).unwrap().der;
    // Without a tag or a signature one wrong key of 256 leads to a good padding, and to rubbish.
    let rubbish = (0..100_000_u32).find_map(|attempt| {
        let step = opener.open(&policy, &ring, first.clone(), expect(), now(), now()).unwrap();
        let Step::Device(_, go_on) = step else { panic!("nothing is known yet") };
        let key = Digest::Sha256.hash(&attempt.to_be_bytes()).to_vec();
        go_on(Ok(Output::new(key))).ok()
    });
    assert_ne!(rubbish.unwrap().done().unwrap().into_inner().content, payload());
    // The next messages have the same content key. One of them shows that the remembered one is wrong.
    let last =
        (0..8).map(|_| open_with(&opener, &policy, &ring, seal_with(&mut sealer, payload()).unwrap().der)).last();
    assert_eq!(last.unwrap().unwrap().content, payload());
}

#[test]
fn a_device_that_gives_no_answer_leaves_the_message_where_it_is() {
    let world = World::new();
    for (_, ring, policies) in settings(&world) {
        for policy in policies {
            let der = seal(&policy, &ring);
            let jobs = if policy.sign.is_some() && policy.encrypt.is_some() { 2 } else { 1 };
            for error in all_errors() {
                for at in 0..jobs {
                    let opener = Opener::new();
                    let mut device = Bent::failing(at, error.clone());
                    let refused = open_on(&mut device, &opener, &policy, &ring, &der).unwrap_err();
                    assert_eq!(refused, OpenError::Key(error.clone()));
                    assert_eq!((refused.outcome(), refused.may_be_the_device()), (Outcome::Retry, false));
                    assert_eq!(open_with(&opener, &policy, &ring, der.clone()).unwrap().content, payload());
                    let mut device = Bent::failing(at, error.clone());
                    let refused = seal_on(&mut device, &policy, &ring).unwrap_err();
                    assert_eq!(refused, SealError::Key(error.clone()));
                }
            }
        }
    }
}

#[test]
fn an_arrived_signature_that_no_device_verifies_is_not_called_bad() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(SHA256, None, &[]);
    let der = seal(&policy, &ring);
    for error in all_errors() {
        let step = Opener::new().check_arrived(&policy, &ring, &der, &expect(), now()).unwrap();
        let refused = drive(step, &mut Bent::failing(0, error.clone())).unwrap_err();
        assert_eq!((refused.outcome(), refused), (Outcome::Retry, OpenError::Key(error)));
    }
}

#[test]
fn a_wrap_of_the_wrong_length_is_refused() {
    let world = World::new();
    for (_, ring, policies) in settings(&world) {
        for len in [0, 1, 31, 127, 255, 257, 4096] {
            let policy = &policies[3];
            let mut device = Bent::new(move |_, _| Ok(Output::new(vec![4; len])));
            let error = seal_on(&mut device, policy, &ring).unwrap_err();
            assert_eq!((error.cause(), &error), ("key-unavailable", &SealError::AnswerLength { len }));
        }
    }
}

/// What an attacker sees of a failed opening: its error, and the jobs that it took.
fn seen(policy: &Arc<Policy>, ring: &Arc<Ring>, message: tree::Node) -> (OpenError, Vec<Operation>) {
    let mut device = Bent::honest();
    let error = open_on(&mut device, &Opener::new(), policy, ring, &message.write().into()).unwrap_err();
    (error, device.done)
}

#[test]
fn after_cbc_every_failure_takes_the_same_jobs() {
    let world = World::new();
    for (spec, ring, policies) in settings(&world) {
        let policy = &policies[2];
        let message = tree::Node::read(&seal(policy, &ring));
        let jobs = match spec {
            KeySpec::Rsa(_) => [Operation::RsaUnwrap, Operation::RsaVerify],
            KeySpec::Ec(_) => [Operation::EcdhDerive, Operation::EcdsaVerify],
            _ => [Operation::MlKemDecapsulate, Operation::MlDsaVerify],
        };
        let blocks = message.clone().at(&[1, 0, 2, 2]).bytes.len() / 16;
        for block in 0..blocks {
            let mut bent = message.clone();
            bent.at(&[1, 0, 2, 2]).bytes[block * 16] ^= 1;
            assert_eq!(seen(policy, &ring, bent), (OpenError::CannotDecrypt, jobs.to_vec()), "block {block}");
        }
        let mut vector = message.clone();
        vector.at(&[1, 0, 2, 1, 1]).bytes[3] ^= 1;
        assert_eq!(seen(policy, &ring, vector), (OpenError::CannotDecrypt, jobs.to_vec()));
        // A device that fails at the verification spent for nothing fails as at a real one.
        let mut bent = message.clone();
        *bent.at(&[1, 0, 2, 2]).bytes.last_mut().unwrap() ^= 1;
        let mut device = Bent::failing(1, DeviceError::Deadline);
        let error = open_on(&mut device, &Opener::new(), policy, &ring, &bent.write().into()).unwrap_err();
        assert_eq!(error, OpenError::Key(DeviceError::Deadline));
    }
}

#[test]
fn a_bad_padding_and_a_wrong_key_look_the_same() {
    let world = World::new();
    for (_, ring, policies) in settings(&world) {
        for policy in policies.iter().filter(|policy| policy.encrypt.is_some()) {
            let message = tree::Node::read(&seal(policy, &ring));
            // Another message's recipient info: it unwraps well, to another key.
            let other = tree::Node::read(&seal(policy, &ring)).at(&[1, 0, 1]).clone();
            let mut wrong_key = message.clone();
            *wrong_key.at(&[1, 0, 1]) = other;
            let mut bad_padding = message.clone();
            let wrapped: &[usize] = match bad_padding.at(&[1, 0, 1, 0]).tag {
                0x30 => &[1, 0, 1, 0, 3],
                0xa1 => &[1, 0, 1, 0, 3, 0, 1],
                _ => &[1, 0, 1, 0, 1, 3],
            };
            bad_padding.at(wrapped).bytes[7] ^= 1;
            let (first, second) = (seen(policy, &ring, wrong_key), seen(policy, &ring, bad_padding));
            assert_eq!(first, second);
            assert_eq!(first.0, OpenError::CannotDecrypt);
        }
    }
}

fn numbered(number: usize) -> Content {
    Content { packing: Packing::Data, content_type: None, bytes: Bytes::from(number.to_be_bytes().to_vec()) }
}

/// Answers all jobs in turns, last come first served, until each message is done.
fn side_by_side<T: 'static>(steps: Vec<Step<T, impl std::fmt::Debug + 'static>>) -> Vec<T> {
    let mut device = CpuDevice::new("cpu");
    let mut results: Vec<Option<T>> = steps.iter().map(|_| None).collect();
    let mut waiting: Vec<_> = steps.into_iter().enumerate().collect();
    while !waiting.is_empty() {
        let mut jobs = Vec::new();
        let mut paused = HashMap::new();
        for (at, step) in waiting.drain(..) {
            match step.alone() {
                Step::Leaf(..) => unreachable!("it was made a job"),
                Step::Done(value) => results[at] = Some(value),
                Step::Device(job, go_on) => {
                    jobs.push(Job { id: at as u64, ..job });
                    paused.insert(at as u64, go_on);
                }
            }
        }
        jobs.reverse();
        device.submit(&mut jobs).unwrap();
        assert!(jobs.is_empty());
        let mut done = Vec::new();
        device.poll(&mut done).unwrap();
        for finished in done {
            let go_on = paused.remove(&finished.id).unwrap();
            waiting.push((finished.id as usize, go_on(finished.result).unwrap()));
        }
    }
    results.into_iter().map(Option::unwrap).collect()
}

#[test]
fn many_messages_are_sealed_and_opened_side_by_side() {
    let world = World::new();
    for (_, ring, policies) in settings(&world) {
        for policy in &policies {
            let mut sealer = sealer(policy, &ring);
            let seals = (0..40).map(|at| sealer.seal(numbered(at), &bound(), now(), &mut SystemRandom).unwrap());
            let sealed = side_by_side(seals.collect());
            let opener = Opener::new();
            let opens = sealed
                .into_iter()
                .map(|sealed| opener.open(policy, &ring, sealed.der, expect(), now(), now()).unwrap());
            for (at, opened) in side_by_side(opens.collect()).into_iter().enumerate() {
                assert_eq!(opened.into_inner().content, numbered(at));
            }
        }
    }
}

/// One recipient, for the tests of the pool.
struct Pooled {
    _world: World,
    ring: Arc<Ring>,
    policy: Policy,
}

static POOLED: LazyLock<Pooled> = LazyLock::new(|| {
    let world = World::new();
    let alice = world.person("alice", RSA_SMALL);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy_of(None, GCM, &[&alice]);
    Pooled { _world: world, ring, policy }
});

fn pooled_sealer(key_reuse: KeyReuse) -> Sealer {
    sealer(&Arc::new(Policy { key_reuse, ..POOLED.policy.clone() }), &POOLED.ring)
}

fn start(sealer: &mut Sealer, at: std::time::SystemTime) -> Step<Sealed, SealError> {
    sealer.seal(payload(), &bound(), at, &mut SystemRandom).unwrap()
}

fn finish(step: Step<Sealed, SealError>) -> Sealed {
    drive(step, &mut CpuDevice::new("cpu")).unwrap()
}

/// Recipient infos, which differ from key to key, and the nonce.
fn key_and_nonce(sealed: &Sealed) -> (Vec<u8>, Vec<u8>) {
    let mut message = tree::Node::read(&sealed.der);
    (message.at(&[1, 0, 1]).write(), message.at(&[1, 0, 2, 1, 1, 0]).bytes.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// `Some(n)` finishes the n-th of the messages on their way, `None` starts another one.
    #[test]
    fn no_content_key_is_used_more_often_than_the_policy_says(
        reuse in 1_u32..6,
        turns in prop::collection::vec(prop::option::of(0_usize..8), 1..80),
    ) {
        let mut sealer = pooled_sealer(KeyReuse::Count(reuse));
        let mut pending = Vec::new();
        let mut sealed = Vec::new();
        for turn in turns {
            match turn {
                Some(which) if !pending.is_empty() => {
                    let which = which % pending.len();
                    sealed.push(finish(pending.remove(which)));
                }
                _ => {
                    let live = sealer.has_live_key(now());
                    match start(&mut sealer, now()) {
                        Step::Done(done) => {
                            prop_assert!(live);
                            sealed.push(done);
                        }
                        step => {
                            prop_assert!(!live);
                            pending.push(step);
                        }
                    }
                }
            }
        }
        sealed.extend(pending.into_iter().map(finish));
        let mut uses: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut nonces = HashSet::new();
        for message in &sealed {
            let (key, nonce) = key_and_nonce(message);
            *uses.entry(key.clone()).or_default() += 1;
            prop_assert!(nonces.insert((key, nonce)));
        }
        prop_assert!(uses.values().all(|count| *count <= reuse + 1));
    }
}

#[test]
fn keys_that_were_made_side_by_side_are_all_used_up_to_a_limit() {
    let count = POOLED_CONTENT_KEYS_MAX + 6;
    let mut sealer = pooled_sealer(KeyReuse::Count(1));
    let first: Vec<_> = (0..count).map(|_| start(&mut sealer, now())).collect();
    assert!(first.iter().all(|step| matches!(step, Step::Device(..))));
    let first: HashSet<_> = first.into_iter().map(|step| key_and_nonce(&finish(step)).0).collect();
    assert_eq!(first.len(), count);
    let (done, waiting): (Vec<_>, Vec<_>) =
        (0..count).map(|_| start(&mut sealer, now())).partition(|step| matches!(step, Step::Done(_)));
    assert_eq!((done.len(), waiting.len()), (POOLED_CONTENT_KEYS_MAX, 6));
    assert!(done.into_iter().all(|step| first.contains(&key_and_nonce(&finish(step)).0)));
}

#[test]
fn a_key_that_comes_back_after_the_recipients_were_looked_up_again_is_not_used() {
    let mut sealer = pooled_sealer(KeyReuse::Unlimited);
    let early = start(&mut sealer, now());
    let late = start(&mut sealer, later(61));
    let early = key_and_nonce(&finish(early)).0;
    assert!(!sealer.has_live_key(later(61)));
    let late = key_and_nonce(&finish(late)).0;
    assert!(sealer.has_live_key(later(61)));
    let next = start(&mut sealer, later(62)).done().unwrap();
    assert_eq!(key_and_nonce(&next).0, late);
    assert_ne!(early, late);
}

#[test]
fn a_message_handed_in_a_little_earlier_leaves_the_live_keys_alone() {
    let mut sealer = pooled_sealer(KeyReuse::Unlimited);
    let key = key_and_nonce(&finish(start(&mut sealer, later(1)))).0;
    assert!(matches!(start(&mut sealer, now()), Step::Device(..)), "a key from the future is not for it");
    assert_eq!(key_and_nonce(&start(&mut sealer, later(1)).done().unwrap()).0, key);
}

/// Breaks one stage of the processor's results.
struct Broken(Stage);

impl Tamper for Broken {
    fn touch(&self, stage: Stage, _: usize, bytes: &mut [u8]) {
        if stage == self.0 {
            bytes.iter_mut().skip(9).step_by(11).for_each(|byte| *byte ^= 1);
        }
    }
}

#[test]
fn with_a_faulty_processor_nothing_is_sealed_and_nothing_opened() {
    let broken = |stage| CpuDevice::new("cpu").tampered(Arc::new(Broken(stage)));
    let fault = DeviceError::Fault { device: "cpu".to_owned() };
    for (spec, sealing, opening) in [
        (RSA, vec![Stage::Signature], vec![Stage::RsaPrivate]),
        (
            P256,
            vec![Stage::Signature, Stage::EcdhPoint, Stage::EcdhShared, Stage::EcdhSum],
            vec![Stage::EcdhShared, Stage::EcdhSum],
        ),
    ] {
        let world = World::new();
        let (alice, bob) = (world.person("alice", spec), world.person("bob", spec));
        let (sender, reader) = (world.ring("alice", &[&alice], &[&bob]), world.ring("bob", &[&bob], &[&alice]));
        let policy = policy(SHA256, GCM, &[&bob]);
        for stage in sealing {
            let step = sealer(&policy, &sender).seal(payload(), &bound(), now(), &mut SystemRandom).unwrap();
            let error = drive(step, &mut broken(stage)).unwrap_err();
            assert_eq!(error, SealError::Key(fault.clone()), "{stage:?}: the put is refused");
        }
        let der = seal(&policy, &sender);
        for stage in opening {
            let step = Opener::new().open(&policy, &reader, der.clone(), expect(), now(), now()).unwrap();
            let error = drive(step, &mut broken(stage)).map(Verified::into_inner).unwrap_err();
            assert_eq!(error, OpenError::Key(fault.clone()), "{stage:?}");
            assert_eq!(error.outcome(), Outcome::Retry, "the message stays");
        }
        assert!(open(&policy, &reader, der).is_ok());
    }
}
