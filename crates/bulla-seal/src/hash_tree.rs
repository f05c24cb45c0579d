//! The tree of hashes under one signature (the Merkle tree of RFC 9162, section 2.1, with salted leaves that know
//! their tree and their place).
//!
//! A leaf's hash begins with another byte than a node's, so that no node passes for a leaf. It covers the tree's number
//! and the leaf's place, so that a proof is good for one message of one batch. And it covers 16 random bytes of its
//! own: a neighbour, who learns the hash from its path, cannot try out what the message may have said.

use bulla_device::{Digest, Hash};

/// Messages of one batch, at least: a message alone has a signature of its own.
pub(crate) const LEAVES_MIN: usize = 2;
/// Messages of one batch, at most.
pub(crate) const LEAVES_MAX: usize = 1024;
/// Bytes of a leaf's salt.
pub(crate) const SALT_BYTES: usize = 16;
/// Bytes of a tree's number.
pub(crate) const TREE_BYTES: usize = 16;

const LEAF: u8 = 0;
const NODE: u8 = 1;

/// The hash of a leaf. `attributes` is the whole `SET OF`, in two parts: its header, or all of it, and what is left.
pub(crate) fn leaf(
    digest: Digest,
    tree: &[u8; TREE_BYTES],
    index: u32,
    salt: &[u8; SALT_BYTES],
    attributes: [&[u8]; 2],
) -> Hash {
    let [header, contents] = attributes;
    digest.hash_parts(&[&[LEAF], tree, &index.to_be_bytes(), salt, header, contents])
}

fn node(digest: Digest, left: &[u8], right: &[u8]) -> Hash {
    digest.hash_parts(&[&[NODE], left, right])
}

/// A tree: every level, the leaves first.
pub(crate) struct HashTree {
    levels: Vec<Vec<Hash>>,
}

impl HashTree {
    /// Over leaves in their order; at least one.
    pub(crate) fn over(digest: Digest, leaves: Vec<Hash>) -> HashTree {
        let mut levels = vec![leaves];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let above = last.chunks(2).map(|pair| match pair {
                [left, right] => node(digest, left, right),
                // The last one of an odd number goes up as it is.
                [alone, ..] => *alone,
                [] => digest.hash(&[]),
            });
            levels.push(above.collect());
        }
        HashTree { levels }
    }

    /// What is signed.
    pub(crate) fn root(&self) -> Option<&Hash> {
        self.levels.last().and_then(|top| top.first())
    }

    /// What stands beside a leaf on its way up.
    pub(crate) fn path(&self, index: usize) -> impl Iterator<Item = &Hash> {
        self.levels.iter().enumerate().filter_map(move |(height, level)| level.get((index >> height) ^ 1))
    }
}

/// How many hashes the path of a leaf has.
pub(crate) fn path_len(index: u32, size: u32) -> usize {
    levels(index, size).filter(|level| level.beside != Beside::Nothing).count()
}

/// The longest path in a tree of that size.
pub(crate) fn path_len_max(size: usize) -> usize {
    size.next_power_of_two().ilog2() as usize
}

/// The nodes on the last path from a leaf to the root, each with its two inputs and their hash. The next leaf of the
/// same tree shares most of them, and to compare two inputs is faster than to hash them. It says nothing of who signed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ascent {
    nodes: Vec<Node>,
}

/// No two digests have hashes of one length, so the lengths tell which it was.
#[derive(Debug, Clone)]
struct Node {
    left: Hash,
    right: Hash,
    hash: Hash,
}

impl Ascent {
    /// The root that a leaf and its path come to; nothing where the path has another length than the leaf's place asks
    /// for. Afterwards this holds the nodes of that path.
    pub(crate) fn root_of(
        &mut self,
        digest: Digest,
        leaf: Hash,
        index: u32,
        size: u32,
        path: &[&[u8]],
    ) -> Option<Hash> {
        let mut path = path.iter();
        let mut hash = leaf;
        let mut at = 0;
        for level in levels(index, size) {
            let (left, right): (&[u8], &[u8]) = match level.beside {
                Beside::Left => (path.next()?, &hash),
                Beside::Right => (&hash, path.next()?),
                Beside::Nothing => continue,
            };
            hash = self.node(digest, at, left, right);
            at += 1;
        }
        path.next().is_none().then_some(hash)
    }

    fn node(&mut self, digest: Digest, at: usize, left: &[u8], right: &[u8]) -> Hash {
        if let Some(known) = self.nodes.get(at).filter(|known| *known.left == *left && *known.right == *right) {
            return known.hash;
        }
        let hash = node(digest, left, right);
        if let (Some(left), Some(right)) = (Hash::from_bytes(left), Hash::from_bytes(right)) {
            let node = Node { left, right, hash };
            match self.nodes.get_mut(at) {
                Some(known) => *known = node,
                None => self.nodes.push(node),
            }
        }
        hash
    }
}

#[derive(PartialEq, Eq)]
enum Beside {
    Left,
    Right,
    Nothing,
}

struct Level {
    beside: Beside,
}

/// The levels below the root, from the leaf up.
fn levels(index: u32, size: u32) -> impl Iterator<Item = Level> {
    std::iter::successors(Some((index, size)), |(index, size)| Some((index / 2, size.div_ceil(2))))
        .take_while(|(_, size)| *size > 1)
        .map(|(index, size)| {
            let beside = match index % 2 {
                1 => Beside::Left,
                _ if index + 1 < size => Beside::Right,
                _ => Beside::Nothing,
            };
            Level { beside }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: Digest = Digest::Sha256;

    fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|at| leaf(DIGEST, &[7; 16], at as u32, &[at as u8; 16], [&[0x31, 1], &[at as u8]])).collect()
    }

    fn root_of(digest: Digest, leaf: Hash, index: u32, size: u32, path: &[&[u8]]) -> Option<Hash> {
        Ascent::default().root_of(digest, leaf, index, size, path)
    }

    /// RFC 9162, 2.1.1, word for word.
    fn defined(leaves: &[Hash]) -> Hash {
        match leaves {
            [alone] => *alone,
            _ => {
                let k = leaves.len().next_power_of_two() / 2;
                node(DIGEST, &defined(&leaves[..k]), &defined(&leaves[k..]))
            }
        }
    }

    #[test]
    fn every_leaf_of_every_size_comes_to_the_root_by_its_path_and_by_no_other() {
        for size in (2..70).chain([127, 128, 129, 1023, 1024]) {
            let leaves = leaves(size);
            let tree = HashTree::over(DIGEST, leaves.clone());
            let root = *tree.root().unwrap();
            assert_eq!(root, defined(&leaves), "{size}");
            for (at, leaf) in leaves.iter().enumerate().step_by(if size > 100 { 37 } else { 1 }) {
                let path: Vec<&[u8]> = tree.path(at).map(|hash| &**hash).collect();
                let (index, count) = (at as u32, size as u32);
                assert_eq!(path.len(), path_len(index, count));
                assert!(path.len() <= path_len_max(size));
                assert_eq!(root_of(DIGEST, *leaf, index, count, &path), Some(root), "{at} of {size}");
                // Another place, one hash fewer, one more.
                assert_ne!(root_of(DIGEST, *leaf, index ^ 1, count, &path), Some(root));
                assert_eq!(root_of(DIGEST, *leaf, index, count, &path[1..]), None);
                let longer = [&path[..], &[&root]].concat();
                assert_eq!(root_of(DIGEST, *leaf, index, count, &longer), None);
            }
        }
    }

    #[test]
    fn an_ascent_that_saw_other_leaves_and_changed_paths_comes_to_the_same() {
        let (leaves_a, leaves_b) = (leaves(37), leaves(64));
        let trees = [HashTree::over(DIGEST, leaves_a.clone()), HashTree::over(DIGEST, leaves_b.clone())];
        let mut seen = Ascent::default();
        for round in 0..200_u32 {
            let which = (round / 7 % 2) as usize;
            let leaves = [&leaves_a, &leaves_b][which];
            let at = (round * 5) as usize % leaves.len();
            let mut path: Vec<Vec<u8>> = trees[which].path(at).map(|hash| hash.to_vec()).collect();
            // Every third has one bit of its path changed, each place in its turn.
            let changed = round % 3 == 0;
            if changed {
                let height = round as usize % path.len();
                path[height][round as usize % 32] ^= 1 << (round % 8);
            }
            let path: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
            let (index, size) = (at as u32, leaves.len() as u32);
            let fresh = root_of(DIGEST, leaves[at], index, size, &path);
            assert_eq!(seen.root_of(DIGEST, leaves[at], index, size, &path), fresh, "{round}");
            assert_eq!(fresh.as_ref() == trees[which].root(), !changed, "{round}");
        }
    }

    #[test]
    fn a_node_that_was_met_is_not_hashed_again() {
        let leaves = leaves(1024);
        let tree = HashTree::over(DIGEST, leaves.clone());
        let mut seen = Ascent::default();
        let mut hashed = 0;
        for (at, leaf) in leaves.iter().enumerate() {
            let path: Vec<&[u8]> = tree.path(at).map(|hash| &**hash).collect();
            let before = seen.clone();
            assert_eq!(seen.root_of(DIGEST, *leaf, at as u32, 1024, &path), tree.root().copied());
            let same = |(new, old): (&Node, &Node)| new.left == old.left && new.right == old.right;
            hashed += 10 - seen.nodes.iter().zip(&before.nodes).filter(|pair| same(*pair)).count();
        }
        // Of 10,240: one for each leaf but for the pairs, which share theirs.
        assert_eq!(hashed, 1023);
    }

    #[test]
    fn a_node_is_no_leaf() {
        let leaves = leaves(4);
        let tree = HashTree::over(DIGEST, leaves.clone());
        let root = *tree.root().unwrap();
        let inner = node(DIGEST, &leaves[0], &leaves[1]);
        // The node over two leaves, as a leaf of a tree of two, comes to the root; so only what a leaf's hash covers
        // keeps it from being one: no attributes hash to it, because a leaf begins with another byte.
        let right = node(DIGEST, &leaves[2], &leaves[3]);
        assert_eq!(root_of(DIGEST, inner, 0, 2, &[&right]), Some(root));
        let forged: Vec<u8> = [&leaves[0][..], &leaves[1][..]].concat();
        // The first bytes of the two hashes as tree, place and salt, the rest as attributes.
        let (tree, rest) = forged.split_first_chunk::<16>().unwrap();
        let (index, rest) = rest.split_first_chunk::<4>().unwrap();
        let (salt, rest) = rest.split_first_chunk::<16>().unwrap();
        assert_ne!(leaf(DIGEST, tree, u32::from_be_bytes(*index), salt, [rest, &[]]), inner);
    }
}
