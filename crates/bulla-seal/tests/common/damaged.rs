//! Signed and encrypted messages that fail in different ways, for what asks whether their failing tells which.

use std::sync::Arc;

use bulla_device::{CpuDevice, Operation, Output, SystemRandom};
use bulla_seal::policy::ContentCipher;
use bulla_seal::ring::Ring;
use bulla_seal::{Bound, Content, OpenError, Packing, Policy, Sealer, Step, drive};
use bytes::Bytes;

use super::tree::Node;
use super::{now, sealer};

/// Bytes of a payload.
pub const PAYLOAD_BYTES: usize = 2048;

/// A way to fail.
#[derive(Clone, Copy)]
pub struct Way {
    pub name: &'static str,
    /// Whether its time must not tell it from the first way.
    pub alike: bool,
    damage: Damage,
}

#[derive(Clone, Copy)]
enum Damage {
    /// A bit of the byte at a place of this node.
    Byte { path: &'static [usize], at: fn(usize) -> usize },
    /// A signature that is not the signer's, over so many bytes.
    Signature { payload_bytes: usize },
}

const CIPHERTEXT: &[usize] = &[1, 0, 2, 2];
const VECTOR: &[usize] = &[1, 0, 2, 1, 1];

/// The ways to fail under this cipher. The second one is the first once more: where it is told apart, the measurement
/// is at fault.
pub fn ways(cipher: ContentCipher) -> Vec<Way> {
    let byte = |name, path, at| Way { name, alike: true, damage: Damage::Byte { path, at } };
    let signature = |name, alike, payload_bytes| Way { name, alike, damage: Damage::Signature { payload_bytes } };
    if cipher.is_authenticated() {
        return vec![
            byte("first byte", CIPHERTEXT, |_| 0),
            byte("the same again", CIPHERTEXT, |_| 0),
            byte("last byte", CIPHERTEXT, |len| len - 1),
        ];
    }
    // The last byte of the block before the last: the padding's own last byte is another.
    let padding = |len| len - 17;
    vec![
        byte("bad padding", CIPHERTEXT, padding),
        byte("the same again", CIPHERTEXT, padding),
        byte("rubbish inside", VECTOR, |_| 0),
        byte("changed payload", CIPHERTEXT, |_| 512),
        signature("wrong signature", true, PAYLOAD_BYTES),
        signature("control: longer", false, 64 * PAYLOAD_BYTES),
    ]
}

/// Makes messages of one sender.
pub struct Maker {
    sealer: Sealer,
    bound: Bound,
}

impl Maker {
    pub fn new(policy: &Arc<Policy>, sender: &Arc<Ring>, bound: Bound) -> Maker {
        Maker { sealer: sealer(policy, sender), bound }
    }

    /// A message that fails in this way.
    pub fn damaged(&mut self, way: &Way) -> Bytes {
        match way.damage {
            Damage::Byte { path, at } => {
                let mut message = Node::read(&self.message(PAYLOAD_BYTES, false));
                let bytes = &mut message.at(path).bytes;
                let at = at(bytes.len());
                bytes[at] ^= 1;
                message.write().into()
            }
            Damage::Signature { payload_bytes } => self.message(payload_bytes, true),
        }
    }

    /// A message that opens.
    pub fn good(&mut self) -> Bytes {
        self.message(PAYLOAD_BYTES, false)
    }

    /// A message, signed rightly or not.
    fn message(&mut self, len: usize, wrong: bool) -> Bytes {
        let content = Content { packing: Packing::Data, content_type: None, bytes: Bytes::from(vec![b'x'; len]) };
        let mut step = self.sealer.seal(content, &self.bound, now(), &mut SystemRandom).unwrap();
        loop {
            match step {
                Step::Done(sealed) => return sealed.der,
                leaf @ Step::Leaf(..) => step = leaf.alone(),
                Step::Device(job, go_on) => {
                    use Operation::{EcdsaSign, MlDsaSign, RsaSign};
                    let signs = matches!(job.work.operation(), RsaSign | EcdsaSign | MlDsaSign);
                    let mut cpu = CpuDevice::new("cpu");
                    let answer =
                        drive(Step::Device(job, Box::new(|answer| Ok::<_, OpenError>(Step::Done(answer)))), &mut cpu);
                    let answer = answer.unwrap().map(|output| {
                        let mut bytes = output.to_vec();
                        // In the middle of a number.
                        let at = if bytes.len() > 128 { 100 } else { 16 };
                        if signs && wrong {
                            bytes[at] ^= 1;
                        }
                        Output::new(bytes)
                    });
                    step = go_on(answer).unwrap();
                }
            }
        }
    }
}
