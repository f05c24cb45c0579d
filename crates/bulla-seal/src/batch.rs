//! One signature for many messages: those that wait when the device is free are the leaves of one tree, and its root is
//! signed. A message that waits alone has a signature of its own, and is the same as without SIGNBATCH.
//!
//! Who carries steps out gathers leaves of one [`BatchKey`], and makes a [`Batch`] of them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use bulla_device::{DeviceError, Job, Output, Random};
use bytes::Bytes;

use crate::cms::attributes::{self, AttributeWriter};
use crate::cms::batch::{BatchLayout, BatchRoot, Branch};
use crate::cms::writer::{SET, Writer};
use crate::error::SealError;
use crate::hash_tree::{self, HashTree, LEAVES_MAX, LEAVES_MIN, SALT_BYTES, TREE_BYTES};
use crate::oid;
use crate::policy::Policy;
use crate::signer::Signer;

/// What messages of one batch have in common: one identity with one state of its key ring, and one state of one policy.
#[derive(Clone)]
pub struct BatchKey {
    policy: Arc<Policy>,
    generation: u64,
    certificate: [u8; 32],
}

impl PartialEq for BatchKey {
    fn eq(&self, other: &BatchKey) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy)
            && self.generation == other.generation
            && self.certificate == other.certificate
    }
}

impl Eq for BatchKey {}

impl Hash for BatchKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.generation.hash(state);
        self.policy.name.hash(state);
    }
}

impl BatchKey {
    pub(crate) fn new(policy: &Arc<Policy>, generation: u64, signer: &Signer) -> BatchKey {
        BatchKey { policy: Arc::clone(policy), generation, certificate: *signer.certificate.fingerprint() }
    }

    /// How many messages one signature may prove.
    pub fn most(&self) -> usize {
        (self.policy.sign_batch as usize).clamp(1, LEAVES_MAX)
    }
}

/// A message that waits to be signed, alone or with others of the same key.
pub struct Leaf {
    key: BatchKey,
    signer: Arc<Signer>,
    /// What is said of the message, without what signed.
    set: AttributeWriter,
    /// When it was sealed.
    at: SystemTime,
}

impl Leaf {
    pub(crate) fn new(key: BatchKey, signer: Arc<Signer>, set: AttributeWriter, at: SystemTime) -> Leaf {
        Leaf { key, signer, set, at }
    }

    /// With which others it may share a signature.
    pub fn key(&self) -> &BatchKey {
        &self.key
    }

    /// The job of a signature of its own, and what its answer comes to.
    pub fn alone(self) -> (Job, impl FnOnce(Result<Output, DeviceError>) -> Result<Proof, DeviceError> + Send + use<>) {
        own_signature(&self.signer, self.set)
    }
}

/// A signature of a message's own: the job, and what its answer comes to.
pub(crate) fn own_signature(
    signer: &Signer,
    mut set: AttributeWriter,
) -> (Job, impl FnOnce(Result<Output, DeviceError>) -> Result<Proof, DeviceError> + Send + use<>) {
    signer.write_credentials(&mut set);
    let attributes = set.sorted();
    let job = signer.job(&attributes);
    let prove = move |signature: Result<Output, DeviceError>| {
        Ok(Proof { attributes, by: By::Signature(signature?), is_paid: true })
    };
    (job, prove)
}

/// What proves a message, to be written into it.
pub struct Proof {
    /// The message's attributes, without the header around them.
    pub(crate) attributes: Vec<u8>,
    pub(crate) by: By,
    /// Whether the signature counts as this message's: of a batch, the first one's.
    pub(crate) is_paid: bool,
}

pub(crate) enum By {
    /// A signature of its own.
    Signature(Output),
    /// The way to a root that is signed.
    Branch(Branch),
}

/// Messages whose one signature is being made.
pub struct Batch {
    signer: Arc<Signer>,
    leaves: Vec<Planted>,
    tree: HashTree,
    root: Vec<u8>,
    root_attributes: Vec<u8>,
}

struct Planted {
    leaf: Leaf,
    attributes: Vec<u8>,
    salt: [u8; SALT_BYTES],
}

impl Batch {
    /// Two to 1,024 leaves of one key, and the job that signs their root; none for fewer and for more. The time that
    /// the root says is that of the last of them.
    ///
    /// # Errors
    /// [`SealError::Random`].
    pub fn of(leaves: Vec<Leaf>, rng: &mut dyn Random) -> Result<Option<(Batch, Job)>, SealError> {
        let now = leaves.iter().map(|leaf| leaf.at).max().unwrap_or(SystemTime::UNIX_EPOCH);
        let fits = (LEAVES_MIN..=LEAVES_MAX).contains(&leaves.len());
        let Some(signer) = leaves.first().filter(|_| fits).map(|leaf| Arc::clone(&leaf.signer)) else {
            return Ok(None);
        };
        let digest = signer.digest;
        let mut number = [0; TREE_BYTES];
        rng.fill(&mut number)?;
        let mut salts = vec![0; leaves.len() * SALT_BYTES];
        rng.fill(&mut salts)?;
        let mut planted = Vec::with_capacity(leaves.len());
        let mut hashes = Vec::with_capacity(leaves.len());
        let (salts, _) = salts.as_chunks::<SALT_BYTES>();
        for ((index, leaf), salt) in (0..).zip(leaves).zip(salts) {
            let attributes = leaf.set.sorted();
            let mut header = Writer::with_capacity(8);
            header.header(SET, attributes.len());
            hashes.push(hash_tree::leaf(digest, &number, index, salt, [header.as_slice(), &attributes]));
            planted.push(Planted { leaf, attributes, salt: *salt });
        }
        let size = planted.len() as u32;
        let tree = HashTree::over(digest, hashes);
        let Some(hash) = tree.root() else { return Ok(None) };
        let root = BatchRoot { digest, tree: &number, size, hash }.write();
        let mut set = AttributeWriter::new();
        attributes::write_content_type_of(&mut set, oid::BATCH_ROOT);
        attributes::write_message_digest(&mut set, &digest.hash(&root));
        attributes::write_signing_time(&mut set, now);
        signer.write_credentials(&mut set);
        let root_attributes = set.sorted();
        let job = signer.job(&root_attributes);
        Ok(Some((Batch { signer, leaves: planted, tree, root, root_attributes }, job)))
    }

    /// The leaves again, where no signature came.
    pub fn into_leaves(self) -> Vec<Leaf> {
        self.leaves.into_iter().map(|planted| planted.leaf).collect()
    }

    /// The proof of each message, in the order of the leaves, from the signature over their root.
    pub fn proofs(self, signature: &Output) -> Vec<Proof> {
        let layout = self.signer.layout(oid::BATCH_ROOT, self.root_attributes.len(), signature.len(), self.root.len());
        let mut out = Writer::with_capacity(layout.len());
        layout.write(&mut out, &self.root, &self.root_attributes, signature);
        let root = Bytes::from(out.finish());
        let tree = &self.tree;
        let prove = |(at, Planted { attributes, salt, .. }): (usize, Planted)| {
            let path = tree.path(at).copied().collect();
            let branch = Branch { salt, index: at as u32, path, root: root.clone() };
            Proof { attributes, by: By::Branch(branch), is_paid: at == 0 }
        };
        self.leaves.into_iter().enumerate().map(prove).collect()
    }
}

/// Bytes that a message of a full batch has, at most: `attributes_len` are those of its own attributes.
pub(crate) fn longest(signer: &Signer, most: u32, attributes_len: usize, payload_len: usize, now: SystemTime) -> usize {
    let root_attributes = signer.statement_len(oid::BATCH_ROOT, now) + signer.credentials_len();
    let root = BatchRoot::len(signer.digest, most);
    BatchLayout {
        attributes_len,
        payload_len,
        index: most - 1,
        hash_len: signer.digest.hash_len(),
        path_len: hash_tree::path_len_max(most as usize),
        root_len: signer.layout(oid::BATCH_ROOT, root_attributes, signer.signature_len, root).len(),
    }
    .len()
}
