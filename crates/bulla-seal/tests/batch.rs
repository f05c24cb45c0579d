//! One signature for many messages: each opens by itself, and whatever is changed, swapped or used a second time does
//! not.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use bulla_device::{CpuDevice, Digest, SystemRandom};
use bulla_seal::certificate::KeyUse;
use bulla_seal::policy::{Bind, ContentCipher, KeyTransport};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Batch, Content, Expect, Moments, Opener, Packing, Policy, Tally, drive, inspect};
use bytes::Bytes;
use common::batches::{leaf, together, together_counting};
use common::tree::Node;
use common::*;

const SHA256: Option<Digest> = Some(Digest::Sha256);

/// Where the fields of a `BatchSigned` lie in its `ContentInfo`.
const FIELDS: [usize; 2] = [1, 0];
const ATTRIBUTES: usize = 1;
const CONTENT: usize = 2;
const SALT: usize = 3;
const INDEX: usize = 4;
const PATH: usize = 5;
const ROOT: usize = 6;

fn batch_policy(sign: Option<Digest>, encrypt: Option<ContentCipher>, to: &[&Person], most: u32) -> Arc<Policy> {
    let policy = Policy { sign_batch: most, ..policy_of(sign, encrypt, to) };
    policy.check().unwrap();
    Arc::new(policy)
}

fn numbered(number: usize) -> Content {
    let bytes = Bytes::from(format!("message {number} of the batch").into_bytes());
    Content { packing: Packing::Data, content_type: None, bytes }
}

fn batch_of(policy: &Arc<Policy>, ring: &Arc<Ring>, count: usize) -> Vec<Bytes> {
    batch_from(0, policy, ring, count)
}

fn batch_from(first: usize, policy: &Arc<Policy>, ring: &Arc<Ring>, count: usize) -> Vec<Bytes> {
    let contents = (first..first + count).map(numbered).collect();
    together(policy, ring, contents).into_iter().map(|sealed| sealed.der).collect()
}

fn cause(policy: &Arc<Policy>, ring: &Arc<Ring>, der: impl Into<Bytes>) -> &'static str {
    open(policy, ring, der).map_or_else(|error| error.cause(), |_| "opened")
}

/// A message with one of its fields changed.
fn with(der: &Bytes, field: usize, change: impl FnOnce(&mut Node)) -> Vec<u8> {
    let mut message = Node::read(der);
    change(&mut message.at(&FIELDS).children[field]);
    message.write()
}

fn field(der: &Bytes, field: usize) -> Node {
    Node::read(der).at(&FIELDS).children[field].clone()
}

/// Someone whose key signs, and their ring, which trusts the authority.
fn alone(world: &World, spec: bulla_seal::certificate::KeySpec) -> (Person, Arc<Ring>) {
    let alice = world.person("alice", spec);
    let ring = world.ring("alice", &[&alice], &[]);
    (alice, ring)
}

#[test]
fn every_message_of_a_batch_opens_by_itself_and_is_no_longer_than_predicted() {
    let world = World::new();
    for (spec, exact) in [(RSA, true), (P256, false)] {
        let alice = world.person(&format!("alice {spec}"), spec);
        let bob = world.person(&format!("bob {spec}"), spec);
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[&bob]);
        let reader = world.ring(&format!("bob-{spec}"), &[&bob], &[]);
        for (digest, encrypt) in [
            (Digest::Sha256, None),
            (Digest::Sha384, None),
            (Digest::Sha512, Some(ContentCipher::Aes128Gcm)),
            (Digest::Sha256, Some(ContentCipher::Aes256Gcm)),
        ] {
            let to: &[&Person] = if encrypt.is_some() { &[&bob] } else { &[] };
            for size in [2, 3, 64] {
                let policy = batch_policy(Some(digest), encrypt, to, 64);
                let contents: Vec<_> = (0..size).map(|_| payload()).collect();
                let tally = Tally::new();
                let sealed = together_counting(&policy, &ring, contents, &tally);
                assert_eq!(tally.effort().signs, 1, "one signature for all of them");
                let predicted = sealer(&policy, &ring).sealed_len(&payload(), &bound());
                let lens: Vec<usize> = sealed.iter().map(|sealed| sealed.der.len()).collect();
                assert!(lens.iter().all(|len| *len <= predicted), "{spec} {lens:?} {predicted}");
                if size == 64 && exact {
                    assert_eq!(*lens.last().unwrap(), predicted, "{spec} {digest} {encrypt:?}");
                }
                for sealed in &sealed {
                    let opened = open(&policy, &reader, sealed.der.clone()).unwrap();
                    assert_eq!(opened.content, payload());
                    assert_eq!((opened.seal.signer.as_ref(), opened.seal.bound), (Some(&alice.dn), true));
                    assert_eq!(opened.seal.quality, policy.quality());
                    assert_eq!(opened.seal.signing_time, Some(now()));
                    if encrypt.is_none() {
                        assert_eq!(sealed.smime_type, "x-bulla-batch-signed");
                    }
                }
            }
        }
    }
}

#[test]
fn a_message_alone_is_what_it_was_and_a_reader_verifies_once_for_all() {
    let world = World::new();
    let (_, ring) = alone(&world, RSA);
    let policy = batch_policy(SHA256, None, &[], 64);
    let plain = seal(&policy, &ring);
    assert_eq!(inspect(&plain).unwrap().container, "signed-data");
    assert_eq!(plain.len(), seal(&batch_policy(SHA256, None, &[], 1), &ring).len());
    open(&batch_policy(SHA256, None, &[], 1), &ring, plain).unwrap();

    let opener = Opener::new();
    let tally = Tally::new();
    for (at, der) in batch_of(&policy, &ring, 5).into_iter().enumerate() {
        let shown = inspect(&der).unwrap();
        let batch = shown.batch.clone().unwrap();
        assert_eq!((shown.container, batch.index, batch.size, batch.fits), ("batch-signed", at as u32, 5, true));
        assert!(shown.to_string().contains(&format!("batch         {} of 5 messages under one signature", at + 1)));
        let moments = Moments { put_at: now(), now: now() };
        let step = opener.open_counting(&policy, &ring, der, expect(), moments, tally.clone()).unwrap();
        let opened = drive(step, &mut CpuDevice::new("cpu")).unwrap().into_inner();
        assert_eq!(opened.content, numbered(at));
    }
    assert_eq!(tally.effort().verifies, 1);
}

#[test]
fn no_flipped_byte_of_a_message_of_a_batch_opens() {
    let world = World::new();
    let (alice, ring) = alone(&world, P256);
    for (encrypt, to) in [(None, &[][..]), (Some(ContentCipher::Aes256Gcm), &[&alice][..])] {
        let policy = batch_policy(SHA256, encrypt, to, 8);
        let loose = Arc::new(Policy { bind: Bind::None, ..(*policy).clone() });
        let batch = batch_of(&policy, &ring, 5);
        let der = batch[2].clone();
        // What it keeps of a batch it keeps from the second message on. The last one shares its whole way up.
        let warm = Opener::new();
        for message in [&batch[0], &batch[2], &batch[3]] {
            open_with(&warm, &policy, &ring, message.clone()).unwrap();
        }
        for at in 0..der.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bent = der.to_vec();
                bent[at] ^= mask;
                let bent = Bytes::from(bent);
                assert!(open_with(&warm, &policy, &ring, bent.clone()).is_err(), "byte {at} ^ {mask:02x}, warm");
                if mask == 0x01 {
                    assert!(open(&policy, &ring, bent.clone()).is_err(), "byte {at}, cold");
                    assert!(open(&loose, &ring, bent.clone()).is_err(), "byte {at}, BIND(NONE)");
                }
                let _any_answer_but_a_panic = inspect(&bent);
                let _any_answer_but_a_panic = warm.check_form(&policy, &bent, &expect(), now());
            }
        }
        for len in 0..der.len() {
            assert!(open_with(&warm, &policy, &ring, der.slice(..len)).is_err());
        }
        open_with(&warm, &policy, &ring, der).unwrap();
    }
}

#[test]
fn no_part_of_another_message_batch_or_identity_fits() {
    let world = World::new();
    let (_, ring) = alone(&world, P256);
    let mallory = world.person("mallory", P256);
    let other_ring = world.ring("mallory", &[&mallory], &[]);
    let policy = batch_policy(SHA256, None, &[], 8);
    let batch = batch_of(&policy, &ring, 5);
    let again = batch_from(10, &policy, &ring, 5);
    let theirs = batch_from(20, &policy, &other_ring, 5);
    let mine = &batch[2];
    for (who, other) in [("a sibling", &batch[3]), ("another batch", &again[2]), ("another identity", &theirs[2])] {
        for part in [ATTRIBUTES, CONTENT, SALT, PATH, ROOT] {
            let taken = field(other, part);
            if taken == field(mine, part) {
                assert_eq!((who, part), ("a sibling", ROOT), "one root for all");
                continue;
            }
            let swapped = with(mine, part, |node| *node = taken);
            assert_eq!(cause(&policy, &ring, swapped), "tampered", "{who}, field {part}");
        }
        // The whole proof of another message.
        let mut message = Node::read(mine);
        for part in [SALT, INDEX, PATH, ROOT] {
            message.at(&FIELDS).children[part] = field(other, part);
        }
        assert_eq!(cause(&policy, &ring, message.write()), "tampered", "{who}");
    }
    // The authorised signer alone.
    let named = Arc::new(Policy { signers: vec![dn("CN=alice,O=Bulla")], ..(*policy).clone() });
    assert_eq!(cause(&named, &ring, theirs[0].clone()), "signer-not-authorised");
    // Another queue.
    let elsewhere = Expect { destinations: vec!["INVOICES@QM1".into()], ..expect() };
    let moved = open_at(&Opener::new(), &policy, &ring, mine.clone(), elsewhere, now(), now());
    assert_eq!(moved.unwrap_err().cause(), "moved");
}

#[test]
fn a_place_a_size_or_a_path_of_another_batch_is_refused() {
    let world = World::new();
    let (_, ring) = alone(&world, P256);
    let policy = batch_policy(SHA256, None, &[], 8);
    let batch = batch_of(&policy, &ring, 5);
    let refused = |what: &str, bent: Vec<u8>, wanted: &str| assert_eq!(cause(&policy, &ring, bent), wanted, "{what}");
    for index in [0_u8, 1, 3] {
        refused("another place", with(&batch[2], INDEX, |node| node.bytes = vec![index]), "tampered");
    }
    // The last one of five has a path of one hash: it went up alone twice.
    refused("a place with a shorter path", with(&batch[2], INDEX, |node| node.bytes = vec![4]), "malformed");
    for index in [vec![5], vec![0x80], vec![0, 2], vec![0xff], vec![], vec![1, 0, 2]] {
        refused("a place outside", with(&batch[2], INDEX, |node| node.bytes = index), "malformed");
    }
    refused("a hash fewer", with(&batch[2], PATH, |node| drop(node.children.pop())), "malformed");
    refused("a hash more", with(&batch[2], PATH, |node| node.children.push(node.children[0].clone())), "malformed");
    let siblings = vec![Node::leaf(4, &[7; 32]); 10_000];
    refused("ten thousand siblings", with(&batch[2], PATH, |node| node.children = siblings), "malformed");
    refused("a short hash", with(&batch[2], PATH, |node| node.children[0].bytes.truncate(31)), "malformed");
    refused("no salt", with(&batch[2], SALT, |node| node.bytes.clear()), "malformed");
    refused("a short salt", with(&batch[2], SALT, |node| node.bytes.truncate(15)), "malformed");
    let without_salt = |message: &Bytes| {
        let mut message = Node::read(message);
        message.at(&FIELDS).children.remove(SALT);
        message.write()
    };
    refused("the salt left out", without_salt(&batch[2]), "malformed");
    let mut more = Node::read(&batch[2]);
    more.at(&FIELDS).children.push(Node::leaf(5, &[]));
    refused("a surplus field", more.write(), "malformed");
    let mut version = Node::read(&batch[2]);
    version.at(&FIELDS).children[0].bytes = vec![2];
    refused("another version", version.write(), "malformed");
    // A sibling's attributes stay those of a sibling: the leaf knows its place.
    let mut doubled = Node::read(&batch[2]);
    doubled.at(&FIELDS).children[ATTRIBUTES] = field(&batch[0], ATTRIBUTES);
    doubled.at(&FIELDS).children[CONTENT] = field(&batch[0], CONTENT);
    doubled.at(&FIELDS).children[SALT] = field(&batch[0], SALT);
    refused("a sibling at another place", doubled.write(), "tampered");
    // The two nodes below a root of four: their hash is what the leaves' path begins with, and no leaf's.
    let four = batch_of(&policy, &ring, 4);
    let inner = field(&four[0], PATH).children[1].clone();
    refused(
        "a node where a sibling belongs",
        with(&four[0], PATH, |node| node.children = vec![inner.clone(), inner]),
        "tampered",
    );
}

/// The root's `SignedData`, changed; not signed again.
fn with_root(der: &Bytes, change: impl FnOnce(&mut Node)) -> Vec<u8> {
    with(der, ROOT, |node| {
        let mut root = Node::read(&node.bytes);
        change(&mut root);
        node.bytes = root.write();
    })
}

#[test]
fn a_root_that_is_none_is_refused_before_its_signature_is_looked_at() {
    let world = World::new();
    let (_, ring) = alone(&world, P256);
    let policy = batch_policy(SHA256, None, &[], 8);
    let loose = Arc::new(Policy { bind: Bind::None, ..(*policy).clone() });
    let der = batch_of(&policy, &ring, 5).swap_remove(2);
    // ContentInfo, SignedData, EncapsulatedContentInfo, its content.
    const SIGNED: [usize; 2] = [1, 0];
    const PAYLOAD: [usize; 5] = [1, 0, 2, 1, 0];
    let root = |change: &dyn Fn(&mut Node)| {
        with_root(&der, |node| {
            let mut root = Node::read(&node.at(&PAYLOAD).bytes);
            change(&mut root);
            node.at(&PAYLOAD).bytes = root.write();
        })
    };
    let refused = |what: &str, bent: Vec<u8>| {
        assert_eq!(cause(&policy, &ring, bent.clone()), "malformed", "{what}");
        assert_eq!(cause(&loose, &ring, bent), "malformed", "{what}, BIND(NONE)");
    };
    for (what, size) in [("none", vec![0]), ("one", vec![1]), ("too many", vec![4, 1]), ("three", vec![3])] {
        // Of three the third has a path of one hash.
        refused(what, root(&|node| node.children[3].bytes = size.clone()));
    }
    refused("a short number", root(&|node| node.children[2].bytes.truncate(15)));
    refused("a short hash", root(&|node| node.children[4].bytes.truncate(31)));
    refused("another version", root(&|node| node.children[0].bytes = vec![2]));
    refused("a NULL behind the digest", root(&|node| node.children[1].children.push(Node::leaf(5, &[]))));
    refused("a surplus field", root(&|node| node.children.push(Node::leaf(5, &[]))));
    refused("another version of SignedData", with_root(&der, |node| node.at(&[1, 0, 0]).bytes = vec![1]));
    refused(
        "data instead of a root",
        with_root(&der, |node| node.at(&[1, 0, 2, 0]).bytes = vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1]),
    );
    refused(
        "two signers",
        with_root(&der, |node| {
            let signers = node.at(&SIGNED).children.last_mut().unwrap();
            let mut second = signers.children[0].clone();
            second.children.last_mut().unwrap().bytes[10] ^= 1;
            signers.children.push(second);
            signers.children.sort_by_key(Node::write);
        }),
    );
    refused(
        "unsigned attributes",
        with_root(&der, |node| {
            let signer = &mut node.at(&SIGNED).children.last_mut().unwrap().children[0];
            signer.children.push(Node::around(0xa1, vec![]));
        }),
    );
    refused("no SignedData", with(&der, ROOT, |node| node.bytes = vec![0x30, 0]));
    refused("a root inside a root", with(&der, ROOT, |node| node.bytes = der.to_vec()));
    // 70 KiB of certificates and signature.
    refused("a long root", with(&der, ROOT, |node| node.bytes.extend(vec![0; 70_000])));
    // Another digest inside than outside.
    let sha384 = batch_of(&batch_policy(Some(Digest::Sha384), None, &[], 8), &ring, 5).swap_remove(2);
    let foreign = Node::read(&field(&sha384, ROOT).bytes).at(&PAYLOAD).bytes.clone();
    refused("a root of another digest", with_root(&der, |node| node.at(&PAYLOAD).bytes = foreign));
}

#[test]
fn a_signed_payload_that_looks_like_a_root_is_none_and_a_root_is_no_message() {
    let world = World::new();
    let (_, ring) = alone(&world, P256);
    let policy = batch_policy(SHA256, None, &[], 8);
    let loose = Arc::new(Policy { bind: Bind::None, ..(*policy).clone() });
    let der = batch_of(&policy, &ring, 2).swap_remove(0);
    let root = field(&der, ROOT).bytes;
    let payload = Node::read(&root).at(&[1, 0, 2, 1, 0]).bytes.clone();
    // The victim signs what an attacker wrote: exactly a root.
    let content = Content { packing: Packing::Data, content_type: None, bytes: Bytes::from(payload) };
    let signed = seal_with(&mut sealer(&policy, &ring), content).unwrap().der;
    open(&policy, &ring, signed.clone()).unwrap();
    for policy in [&policy, &loose] {
        let forged = with(&der, ROOT, |node| node.bytes = signed.to_vec());
        assert_eq!(cause(policy, &ring, forged), "malformed", "{:?}", policy.bind);
        // And the other way round.
        assert_eq!(cause(policy, &ring, root.clone()), "malformed", "{:?}", policy.bind);
    }
}

#[test]
fn a_reader_who_wants_a_signature_each_or_another_digest_gets_no_batch() {
    let world = World::new();
    let (alice, ring) = alone(&world, P256);
    for (encrypt, to) in [(None, &[][..]), (Some(ContentCipher::Aes256Gcm), &[&alice][..])] {
        let policy = batch_policy(SHA256, encrypt, to, 8);
        let der = batch_of(&policy, &ring, 3).swap_remove(1);
        for (what, reader) in [
            ("a signature each", batch_policy(SHA256, encrypt, to, 1)),
            ("a longer digest", batch_policy(Some(Digest::Sha384), encrypt, to, 8)),
        ] {
            assert_eq!(cause(&reader, &ring, der.clone()), "weaker-than-policy", "{what}");
            let form = Opener::new().check_form(&reader, &der, &expect(), now());
            assert_eq!(form.is_err(), encrypt.is_none(), "{what}: inside an envelope only the reader can look");
        }
        // Fewer messages a signature than these have: the number says how many are made, not how many are believed.
        open(&batch_policy(SHA256, encrypt, to, 2), &ring, der.clone()).unwrap();
        Opener::new().check_form(&policy, &der, &expect(), now()).unwrap();
        let elsewhere = Expect { destinations: vec!["INVOICES@QM1".into()], ..expect() };
        let form = Opener::new().check_form(&policy, &der, &elsewhere, now());
        assert_eq!(form.err().map(|error| error.cause()), encrypt.is_none().then_some("moved"));
    }
}

#[test]
fn of_a_remembered_root_nothing_is_known_but_its_signature() {
    let world = World::new();
    let (alice, ring) = alone(&world, P256);
    let policy = batch_policy(SHA256, None, &[], 8);
    let batch = batch_of(&policy, &ring, 4);
    let opener = Opener::new();
    open_with(&opener, &policy, &ring, batch[0].clone()).unwrap();
    let judged = |ring: &Arc<Ring>, put_at, at| {
        let opened = open_at(&opener, &policy, ring, batch[1].clone(), expect(), put_at, at);
        opened.map_or_else(|error| error.cause(), |_| "opened")
    };
    assert_eq!(judged(&ring, now(), now()), "opened");
    assert_eq!(judged(&ring, later(366 * DAY), later(366 * DAY)), "certificate-expired");
    // Another reader, who trusts another authority.
    let other = World::new();
    let bob = other.person("bob", P256);
    assert_eq!(judged(&other.ring("bob", &[&bob], &[]), now(), now()), "untrusted");
    // A signer that is not on the list.
    let named = Arc::new(Policy { signers: vec![dn("CN=carol,O=Bulla")], ..(*policy).clone() });
    let refused = open_with(&opener, &named, &ring, batch[1].clone()).unwrap_err();
    assert_eq!(refused.cause(), "signer-not-authorised");
    // Taken back since.
    world.authority.revoke(&alice.certificate.serial_hex(), later(60)).unwrap();
    ring::install_crl(&world.ring_dir("alice"), "ca", &world.authority.crl().unwrap()).unwrap();
    assert_eq!(judged(&world.load("alice"), now(), later(120)), "certificate-revoked");

    // A root that was found bad is asked again, each time.
    let mut bad = Node::read(&batch[1]);
    let root = &mut bad.at(&FIELDS).children[ROOT].bytes;
    let last = root.len() - 1;
    root[last] ^= 1;
    let bad = Bytes::from(bad.write());
    let tally = Tally::new();
    for _ in 0..2 {
        let moments = Moments { put_at: now(), now: now() };
        let step = opener.open_counting(&policy, &ring, bad.clone(), expect(), moments, tally.clone()).unwrap();
        assert_eq!(drive(step, &mut CpuDevice::new("cpu")).unwrap_err().cause(), "tampered");
    }
    assert_eq!(tally.effort().verifies, 2);
}

#[test]
fn messages_of_another_policy_ring_or_key_have_another_batch() {
    let world = World::new();
    let (alice, ring) = alone(&world, P256);
    let bob = world.person("bob", P256);
    let bobs = world.ring("bob", &[&bob], &[]);
    let policy = batch_policy(SHA256, None, &[], 8);
    let key = |policy: &Arc<Policy>, ring: &Arc<Ring>| {
        leaf(&mut sealer(policy, ring), payload(), &Tally::default()).0.key().clone()
    };
    let mine = key(&policy, &ring);
    assert!(mine == key(&policy, &ring) && mine.most() == 8);
    assert!(mine != key(&batch_policy(SHA256, None, &[], 8), &ring), "the same words, set anew");
    assert!(mine != key(&policy, &bobs));
    // The same ring, read again.
    assert!(mine != key(&policy, &world.load("alice")));
    let one = || vec![leaf(&mut sealer(&policy, &ring), payload(), &Tally::default()).0];
    assert!(Batch::of(one(), &mut SystemRandom).unwrap().is_none(), "one is signed alone");
    assert!(Batch::of(Vec::new(), &mut SystemRandom).unwrap().is_none());
    drop(alice);
}

#[test]
fn a_batch_inside_a_cbc_envelope_is_none() {
    let world = World::new();
    let (alice, ring) = alone(&world, P256);
    let mut refused = policy_of(SHA256, Some(ContentCipher::Aes256Cbc), &[&alice]);
    refused.sign_batch = 8;
    let text = refused.check().unwrap_err().to_string();
    assert!(text.starts_with("SIGNBATCH above 1 is for AES128 and AES256"), "{text}");
    // Encrypted by others: it is as unreadable as rubbish.
    let inner = batch_of(&batch_policy(SHA256, None, &[], 8), &ring, 2).swap_remove(0);
    let bob = world.person_for("bob", RSA, vec![KeyUse::DataEncrypt], 365, now());
    let mut cbc = policy_of(SHA256, Some(ContentCipher::Aes256Cbc), &[&bob]);
    (cbc.signers, cbc.key_transport) = (vec![alice.dn.clone()], KeyTransport::Pkcs1);
    let reader = world.ring("bob", &[&bob], &[&alice]);
    let mut to = openssl::stack::Stack::new().unwrap();
    to.push(openssl::x509::X509::from_der(bob.certificate.der()).unwrap()).unwrap();
    let envelope = |inside: &[u8]| {
        let cipher = openssl::symm::Cipher::aes_256_cbc();
        openssl::cms::CmsContentInfo::encrypt(&to, inside, cipher, openssl::cms::CMSOptions::BINARY)
            .and_then(|cms| cms.to_der())
            .unwrap()
    };
    let cbc = Arc::new(cbc);
    let loose = Arc::new(Policy { bind: Bind::None, ..(*cbc).clone() });
    let certificate = openssl::x509::X509::from_der(alice.certificate.der()).unwrap();
    let key = openssl::pkey::PKey::private_key_from_pem(alice.key.as_bytes()).unwrap();
    let options = openssl::cms::CMSOptions::BINARY | openssl::cms::CMSOptions::NOSMIMECAP;
    let signed = openssl::cms::CmsContentInfo::sign(Some(&certificate), Some(&key), None, Some(b"moo"), options);
    let signed = signed.and_then(|cms| cms.to_der()).unwrap();
    assert_eq!(cause(&loose, &reader, envelope(&signed)), "opened", "a signature of the message's own is read");
    for policy in [&cbc, &loose] {
        assert_eq!(cause(policy, &reader, envelope(&inner)), "cannot-decrypt");
    }
}
