//! `BatchSigned`: a message that shares its signature with others, and `BatchRoot`, which is what they share. See
//! `docs/formats/sealed-message.md`.

use bulla_device::{Digest, Hash};

use super::algorithm::{digest_identifier, read_digest};
use super::attributes::Attributes;
use super::reader::{Malformed, Reader, is_integer};
use super::signed::SignedData;
use super::writer::{INTEGER, OCTET_STRING, OID, SEQUENCE, SET, Writer, context, element, element_len};
use crate::error::OpenError;
use crate::hash_tree::{self, Ascent, LEAVES_MAX, LEAVES_MIN, SALT_BYTES, TREE_BYTES};
use crate::oid;

/// Of both types.
const VERSION: u8 = 1;
/// Hashes that a path may have: those of the largest tree.
const PATH_MAX: usize = LEAVES_MAX.ilog2() as usize;
/// Bytes of a root as a message carries it: as many as sixteen certificates with the largest keys may need.
const ROOT_BYTES_MAX: usize = 64 << 10;

/// A message that shares its signature, as it arrived.
pub(crate) struct BatchSigned<'a> {
    /// What the attributes say.
    pub(crate) attributes: Attributes<'a>,
    /// The attributes as they stand there, header and all.
    pub(crate) attributes_whole: &'a [u8],
    /// The payload.
    pub(crate) payload: &'a [u8],
    /// The leaf's salt.
    pub(crate) salt: &'a [u8; SALT_BYTES],
    /// The leaf's place.
    pub(crate) index: u32,
    /// The hashes beside it on its way up.
    pub(crate) path: Vec<&'a [u8]>,
    /// The `ContentInfo` of the root, byte for byte as in each message of the batch.
    pub(crate) root_whole: &'a [u8],
    /// The signature over the root.
    pub(crate) signed: SignedData<'a>,
    /// The root.
    pub(crate) root: BatchRoot<'a>,
}

/// What one signature covers.
pub(crate) struct BatchRoot<'a> {
    /// The one digest of messages, tree and signature.
    pub(crate) digest: Digest,
    /// The tree's number.
    pub(crate) tree: &'a [u8; TREE_BYTES],
    /// How many messages there are.
    pub(crate) size: u32,
    /// The top of the tree.
    pub(crate) hash: &'a [u8],
}

impl<'a> BatchSigned<'a> {
    /// Reads the `BatchSigned` inside a `ContentInfo`, and the root in it. Nothing is verified.
    pub(crate) fn read(encoded: &'a [u8]) -> Result<BatchSigned<'a>, OpenError> {
        const WHAT: &str = "a BatchSigned is unreadable";
        let mut fields = Reader::only(encoded, SEQUENCE, WHAT)?;
        if fields.small_integer(WHAT)? != VERSION {
            return Err(Malformed("a BatchSigned of another version").into());
        }
        let attributes_whole = fields.whole(SET, WHAT)?;
        let attributes = Attributes::read(Reader::new(attributes_whole).value(SET, WHAT)?)?;
        let payload = fields.value(OCTET_STRING, WHAT)?;
        let salt = fields.value(OCTET_STRING, WHAT)?;
        let salt = salt.try_into().map_err(|_| Malformed("the salt of a BatchSigned has not 16 bytes"))?;
        let index = read_number(fields.value(INTEGER, WHAT)?, WHAT)?;
        let path = read_path(fields.enter(SEQUENCE, WHAT)?)?;
        let root_whole = fields.value(OCTET_STRING, WHAT)?;
        fields.end("a BatchSigned has surplus fields")?;
        if root_whole.len() > ROOT_BYTES_MAX {
            return Err(Malformed("the root of a batch has more than 64 KiB").into());
        }
        let signed = super::read_root(root_whole)?;
        let root = BatchRoot::read(signed.payload)?;
        let [signer] = signed.signers.as_slice() else {
            return Err(Malformed("the root of a batch has more than one signer").into());
        };
        if signer.attributes.ours.any() {
            return Err(Malformed("the root of a batch has attributes of a message").into());
        }
        if signer.digest != root.digest {
            return Err(Malformed("the root of a batch is signed with another digest than its own").into());
        }
        if index >= root.size {
            return Err(Malformed("a place outside its batch").into());
        }
        let hash_len = root.digest.hash_len();
        if path.len() != hash_tree::path_len(index, root.size) || path.iter().any(|hash| hash.len() != hash_len) {
            return Err(Malformed("a path of another length than its place in the batch asks for").into());
        }
        Ok(BatchSigned { attributes, attributes_whole, payload, salt, index, path, root_whole, signed, root })
    }

    /// Whether the path leads from the attributes to what was signed. `seen` has the nodes of
    /// another message's path, and afterwards those of this one's.
    pub(crate) fn is_in_tree(&self, seen: &mut Ascent) -> bool {
        let BatchRoot { digest, tree, size, hash } = self.root;
        let leaf = hash_tree::leaf(digest, tree, self.index, self.salt, [self.attributes_whole, &[]]);
        seen.root_of(digest, leaf, self.index, size, &self.path).is_some_and(|top| *top == *hash)
    }
}

fn read_path(mut hashes: Reader<'_>) -> Result<Vec<&[u8]>, Malformed> {
    let mut path: Vec<&[u8]> = Vec::with_capacity(PATH_MAX);
    while !hashes.is_empty() {
        if path.len() == PATH_MAX {
            return Err(Malformed("a path of more than 10 hashes"));
        }
        path.push(hashes.value(OCTET_STRING, "a path of something other than hashes")?);
    }
    Ok(path)
}

/// An INTEGER from 0 to 32767, which is all that places and sizes need.
fn read_number(contents: &[u8], what: &'static str) -> Result<u32, Malformed> {
    match contents {
        _ if !is_integer(contents) => Err(Malformed(what)),
        [low] if *low < 0x80 => Ok(u32::from(*low)),
        [high, low] if *high < 0x80 => Ok(u32::from(u16::from_be_bytes([*high, *low]))),
        _ => Err(Malformed(what)),
    }
}

impl<'a> BatchRoot<'a> {
    /// Reads what a root's signature covers.
    fn read(encoded: &'a [u8]) -> Result<BatchRoot<'a>, OpenError> {
        const WHAT: &str = "the root of a batch is unreadable";
        let mut fields = Reader::only(encoded, SEQUENCE, WHAT)?;
        if fields.small_integer(WHAT)? != VERSION {
            return Err(Malformed("the root of a batch is of another version").into());
        }
        let identifier = fields.whole(SEQUENCE, WHAT)?;
        let digest = read_digest(identifier)?;
        if identifier != digest_identifier(digest) {
            return Err(Malformed(WHAT).into()); // a NULL behind it is a second form
        }
        let tree = fields.value(OCTET_STRING, WHAT)?;
        let tree = tree.try_into().map_err(|_| Malformed("the number of a batch has not 16 bytes"))?;
        let size = read_number(fields.value(INTEGER, WHAT)?, WHAT)?;
        let hash = fields.value(OCTET_STRING, WHAT)?;
        fields.end("the root of a batch has surplus fields")?;
        if !(LEAVES_MIN..=LEAVES_MAX).contains(&(size as usize)) {
            return Err(Malformed("a batch of fewer than 2 or more than 1024 messages").into());
        }
        if hash.len() != digest.hash_len() {
            return Err(Malformed("the hash of a batch has another length than its digest's").into());
        }
        Ok(BatchRoot { digest, tree, size, hash })
    }

    /// The root as it is signed.
    pub(crate) fn write(&self) -> Vec<u8> {
        let version = element(INTEGER, &[&[VERSION]]);
        let identifier = digest_identifier(self.digest);
        let tree = element(OCTET_STRING, &[self.tree]);
        let mut size = Writer::default();
        write_number(&mut size, self.size);
        let hash = element(OCTET_STRING, &[self.hash]);
        element(SEQUENCE, &[&version, &identifier, &tree, size.as_slice(), &hash])
    }

    /// Bytes of a root as it is signed.
    pub(crate) fn len(digest: Digest, size: u32) -> usize {
        let identifier = digest_identifier(digest).len();
        let hash = element_len(digest.hash_len());
        element_len(3 + identifier + element_len(TREE_BYTES) + number_len(size) + hash)
    }
}

fn write_number(out: &mut Writer, number: u32) {
    match number {
        0..0x80 => out.small_integer(number as u8),
        _ => out.element(INTEGER, &(number as u16).to_be_bytes()),
    }
}

fn number_len(number: u32) -> usize {
    if number < 0x80 { 3 } else { 4 }
}

/// Everything of a `BatchSigned` but the payload, ready to be written.
pub(crate) struct BatchLayout {
    /// Bytes of the message's attributes, without the header around them.
    pub(crate) attributes_len: usize,
    /// Bytes of the payload.
    pub(crate) payload_len: usize,
    /// The message's place.
    pub(crate) index: u32,
    /// Bytes of one hash.
    pub(crate) hash_len: usize,
    /// Hashes in the path.
    pub(crate) path_len: usize,
    /// Bytes of the root's `ContentInfo`.
    pub(crate) root_len: usize,
}

impl BatchLayout {
    fn path_bytes(&self) -> usize {
        self.path_len * element_len(self.hash_len)
    }

    fn fields_len(&self) -> usize {
        3 + element_len(self.attributes_len)
            + element_len(self.payload_len)
            + element_len(SALT_BYTES)
            + number_len(self.index)
            + element_len(self.path_bytes())
            + element_len(self.root_len)
    }

    fn body_len(&self) -> usize {
        element_len(oid::BATCH_SIGNED.len()) + element_len(element_len(self.fields_len()))
    }

    /// Bytes of the whole `ContentInfo`.
    pub(crate) fn len(&self) -> usize {
        element_len(self.body_len())
    }

    /// Writes the whole `ContentInfo`.
    pub(crate) fn write(&self, out: &mut Writer, attributes: &[u8], payload: &[u8], proof: &Branch) {
        out.header(SEQUENCE, self.body_len());
        out.element(OID, oid::BATCH_SIGNED);
        out.header(context(0), element_len(self.fields_len()));
        out.header(SEQUENCE, self.fields_len());
        out.small_integer(VERSION);
        out.element(SET, attributes);
        out.element(OCTET_STRING, payload);
        out.element(OCTET_STRING, &proof.salt);
        write_number(out, self.index);
        out.header(SEQUENCE, self.path_bytes());
        proof.path.iter().for_each(|hash| out.element(OCTET_STRING, hash));
        out.element(OCTET_STRING, &proof.root);
    }
}

/// What proves one message of a batch.
pub(crate) struct Branch {
    /// The leaf's salt.
    pub(crate) salt: [u8; SALT_BYTES],
    /// The leaf's place.
    pub(crate) index: u32,
    /// The hashes beside it on its way up.
    pub(crate) path: Vec<Hash>,
    /// The root's `ContentInfo`.
    pub(crate) root: bytes::Bytes,
}
