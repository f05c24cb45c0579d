//! Messages under one signature.

use std::sync::Arc;

use bulla_device::{CpuDevice, SystemRandom};
use bulla_seal::ring::Ring;
use bulla_seal::{Batch, Content, Leaf, OpenError, Policy, SealError, Sealed, Sealer, Step, Tally, WithProof, drive};

use super::*;

/// As far as a message gets before it is signed.
pub fn leaf(sealer: &mut Sealer, content: Content, tally: &Tally) -> (Leaf, WithProof<Sealed, SealError>) {
    let mut step = sealer.seal_counting(content, &bound(), now(), &mut SystemRandom, tally).unwrap();
    loop {
        match step {
            Step::Leaf(leaf, go_on) => return (*leaf, go_on),
            Step::Done(_) => panic!("sealed without a signature"),
            Step::Device(job, go_on) => {
                let answer = Step::Device(job, Box::new(|answer| Ok::<_, OpenError>(Step::Done(answer))));
                step = go_on(drive(answer, &mut CpuDevice::new("cpu")).unwrap()).unwrap();
            }
        }
    }
}

/// Seals messages under one signature.
pub fn together(policy: &Arc<Policy>, ring: &Arc<Ring>, contents: Vec<Content>) -> Vec<Sealed> {
    together_counting(policy, ring, contents, &Tally::default())
}

pub fn together_counting(policy: &Arc<Policy>, ring: &Arc<Ring>, contents: Vec<Content>, tally: &Tally) -> Vec<Sealed> {
    // From two links: what they have in common is the identity and the policy.
    let mut sealers = [sealer(policy, ring), sealer(policy, ring)];
    let begun = contents.into_iter().enumerate().map(|(at, content)| leaf(&mut sealers[at % 2], content, tally));
    let (leaves, go_on): (Vec<_>, Vec<_>) = begun.unzip();
    assert!(leaves.iter().all(|leaf| leaf.key() == leaves[0].key()));
    let (batch, job) = Batch::of(leaves, &mut SystemRandom).unwrap().unwrap();
    let answer = Step::Device(job, Box::new(|answer| Ok::<_, OpenError>(Step::Done(answer))));
    let signature = drive(answer, &mut CpuDevice::new("cpu")).unwrap().unwrap();
    let proofs = batch.proofs(&signature);
    assert_eq!(proofs.len(), go_on.len());
    go_on.into_iter().zip(proofs).map(|(go_on, proof)| go_on(Ok(proof)).unwrap().done().unwrap()).collect()
}
