//! Nothing that was changed opens: every byte of every envelope, and each trick that other CMS
//! implementations are known to let through.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use bulla_device::{CpuDevice, Digest, Operation};
use bulla_seal::certificate::KeyUse;
use bulla_seal::certificate::authority::{Authority, Founding};
use bulla_seal::policy::{Bind, ContentCipher, KeyTransport};
use bulla_seal::ring::Ring;
use bulla_seal::{OpenError, Opener, Outcome, Policy, Step, drive};
use bytes::Bytes;
use common::tree::Node;
use common::*;
use openssl::encrypt::Decrypter;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Padding;
use openssl::sign::Signer;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};

fn loose(policy: &Policy) -> Arc<Policy> {
    Arc::new(Policy { bind: Bind::None, ..policy.clone() })
}

fn cause(policy: &Arc<Policy>, ring: &Arc<Ring>, der: Vec<u8>) -> &'static str {
    match open(policy, ring, der) {
        Ok(_) => "opened",
        Err(error) => error.cause(),
    }
}

/// Every byte, three ways, with an empty and with a warm cache, under both bindings.
fn no_flip_opens(policy: &Arc<Policy>, ring: &Arc<Ring>, der: &Bytes) {
    let unbound = loose(policy);
    let warm = Opener::new();
    open_with(&warm, policy, ring, der.clone()).unwrap();
    for at in 0..der.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bent = der.to_vec();
            bent[at] ^= mask;
            let bent = Bytes::from(bent);
            assert!(open_with(&warm, policy, ring, bent.clone()).is_err(), "byte {at} ^ {mask:02x}, warm");
            if mask == 0x01 {
                assert!(open(policy, ring, bent.clone()).is_err(), "byte {at}, cold");
                assert!(open(&unbound, ring, bent.clone()).is_err(), "byte {at}, BIND(NONE)");
            }
            let _any_answer_but_a_panic = bulla_seal::inspect(&bent);
            let _any_answer_but_a_panic = warm
                .check_arrived(policy, ring, &bent, &expect(), now())
                .and_then(|step| bulla_seal::drive(step, &mut bulla_device::CpuDevice::new("cpu")));
        }
    }
    open_with(&warm, policy, ring, der.clone()).unwrap();
}

#[test]
fn no_flipped_byte_opens_under_integrity() {
    let world = World::new();
    for spec in [RSA_SMALL, P256] {
        let alice = world.person(&format!("alice {spec}"), spec);
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[]);
        let policy = policy(Some(Digest::Sha256), None, &[]);
        no_flip_opens(&policy, &ring, &seal(&policy, &ring));
    }
}

#[test]
fn no_flipped_byte_of_an_intermediate_certificate_opens() {
    let world = World::new();
    let founding = Founding {
        dn: &dn("CN=Issuing CA,O=Bulla"),
        key: P256,
        days: 3650,
        passphrase: None,
        parent: Some(&world.authority),
    };
    let issuing = Authority::found(&world.dir.path().join("issuing"), &founding, now()).unwrap();
    let below = World { dir: tempfile::tempdir().unwrap(), authority: issuing };
    let alice = below.person("alice", P256);
    let ring = below.ring("alice", &[&alice], &[]);
    let policy = policy(Some(Digest::Sha256), None, &[]);
    let der = seal(&policy, &ring);
    assert_eq!(Node::read(&der).at(&[1, 0, 3]).children.len(), 2, "the chain travels along");
    no_flip_opens(&policy, &ring, &der);
}

#[test]
fn no_flipped_byte_opens_under_confidentiality() {
    let world = World::new();
    for spec in [RSA_SMALL, P256] {
        let alice = world.person(&format!("alice {spec}"), spec);
        let bob = world.person(&format!("bob {spec}"), RSA_SMALL);
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[&bob]);
        // Two recipients: what is flipped in the other one's part does not open here either.
        let policy = policy(None, Some(ContentCipher::Aes256Gcm), &[&alice, &bob]);
        no_flip_opens(&policy, &ring, &seal(&policy, &ring));
    }
}

#[test]
fn no_flipped_byte_opens_under_privacy() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    for cipher in [ContentCipher::Aes128Gcm, ContentCipher::Aes256Cbc] {
        let policy = policy(Some(Digest::Sha256), Some(cipher), &[&alice]);
        no_flip_opens(&policy, &ring, &seal(&policy, &ring));
    }
}

#[test]
fn no_truncated_or_extended_message_opens() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    for (sign, encrypt) in [
        (Some(Digest::Sha256), None),
        (None, Some(ContentCipher::Aes256Gcm)),
        (None, Some(ContentCipher::Aes256Cbc)),
        (Some(Digest::Sha256), Some(ContentCipher::Aes256Cbc)),
    ] {
        let to: &[&Person] = if encrypt.is_some() { &[&alice] } else { &[] };
        let policy = policy(sign, encrypt, to);
        let der = seal(&policy, &ring);
        for len in 0..der.len() {
            assert!(open(&policy, &ring, der.slice(..len)).is_err());
        }
        let mut longer = der.to_vec();
        longer.push(0);
        assert_eq!(cause(&policy, &ring, longer), "malformed");
    }
}

#[test]
fn a_signature_whose_attributes_became_the_payload_is_refused() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(Some(Digest::Sha256), None, &[]);
    let mut message = Node::read(&seal(&policy, &ring));
    let signer = message.at(&[1, 0, 4, 0]);
    let attributes = signer.children.remove(3);
    let as_payload = Node { tag: 0x31, ..attributes }.write();
    *message.at(&[1, 0, 2, 1, 0]) = Node::leaf(0x04, &as_payload);
    // The signature fits the payload now: openssl's verification would pass.
    for policy in [policy.clone(), loose(&policy)] {
        assert_eq!(cause(&policy, &ring, message.write()), "malformed");
    }
}

/// An integrity message of alice's, with what a test needs to sign a changed one again.
struct Signed {
    ring: Arc<Ring>,
    policy: Arc<Policy>,
    message: Node,
    key: PKey<Private>,
}

impl Signed {
    fn new(world: &World) -> Signed {
        let alice = world.person("alice", RSA);
        let ring = world.ring("alice", &[&alice], &[]);
        let policy = policy(Some(Digest::Sha256), None, &[]);
        let message = Node::read(&seal(&policy, &ring));
        let key = PKey::private_key_from_pem(alice.key.as_bytes()).unwrap();
        Signed { ring, policy, message, key }
    }

    fn attributes(&mut self) -> &mut Vec<Node> {
        &mut self.message.at(&[1, 0, 4, 0, 3]).children
    }

    /// The attribute with this identifier.
    fn attribute(&mut self, oid: &[u8]) -> &mut Node {
        self.attributes().iter_mut().find(|node| node.children[0].bytes == oid).unwrap()
    }

    /// Signs the attributes as they now are and in the order in which they now stand.
    fn cause_as_it_stands(mut self) -> &'static str {
        let mut set = self.message.at(&[1, 0, 4, 0, 3]).clone();
        set.tag = 0x31;
        let mut signer = Signer::new(openssl::hash::MessageDigest::sha256(), &self.key).unwrap();
        let signature = signer.sign_oneshot_to_vec(&set.write()).unwrap();
        *self.message.at(&[1, 0, 4, 0, 5]) = Node::leaf(0x04, &signature);
        cause(&self.policy, &self.ring, self.message.write())
    }

    fn cause(mut self) -> &'static str {
        self.attributes().sort_by_key(Node::write);
        self.cause_as_it_stands()
    }
}

const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x03];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];
const PROTECTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x34];
const SIGNING_CERTIFICATE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x10, 0x02, 0x2f];
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];

#[test]
fn a_good_signature_does_not_excuse_bad_attributes() {
    let world = World::new();
    let made = |change: &dyn Fn(&mut Signed)| {
        let world = World::new();
        let mut signed = Signed::new(&world);
        change(&mut signed);
        signed.cause()
    };
    assert_eq!(Signed::new(&world).cause(), "opened", "signing again changes nothing");
    type Change = dyn Fn(&mut Signed);
    let cases: [(&str, &Change); 9] = [
        ("malformed", &|s| s.attribute(CONTENT_TYPE).children[1].children[0] = Node::leaf(0x06, SIGNED_DATA)),
        ("tampered", &|s| s.attribute(MESSAGE_DIGEST).children[1].children[0].bytes[0] ^= 1),
        ("malformed", &|s| {
            let twice = s.attribute(MESSAGE_DIGEST).clone();
            let mut other = twice.clone();
            other.children[1].children[0].bytes[0] ^= 1;
            s.attributes().push(other);
        }),
        ("malformed", &|s| s.attribute(MESSAGE_DIGEST).children[1].children.clear()),
        ("malformed", &|s| {
            let value = s.attribute(MESSAGE_DIGEST).children[1].children[0].clone();
            s.attribute(MESSAGE_DIGEST).children[1].children.push(value);
        }),
        ("tampered", &|s| {
            s.attribute(SIGNING_CERTIFICATE).at(&[1, 0, 0, 0, 0]).bytes[0] ^= 1;
        }),
        ("tampered", &|s| {
            // The digest that the protection names, not the one that is used.
            *s.attribute(PROTECTION).at(&[1, 0, 0, 0]).bytes.last_mut().unwrap() = 2;
        }),
        ("malformed", &|s| s.attributes().retain(|node| node.children[0].bytes != PROTECTION)),
        ("malformed", &|s| s.attributes().retain(|node| node.children[0].bytes != SIGNING_CERTIFICATE)),
    ];
    for (at, (expected, change)) in cases.into_iter().enumerate() {
        assert_eq!(made(change), expected, "case {at}");
    }
}

#[test]
fn signed_attributes_out_of_order_are_refused_even_when_they_were_signed_so() {
    let mut signed = Signed::new(&World::new());
    signed.attributes().reverse();
    assert_eq!(signed.cause_as_it_stands(), "malformed");
}

#[test]
fn an_unknown_attribute_of_others_is_passed_over_and_one_of_ours_is_refused() {
    let with = |oid: &[u8]| {
        let mut signed = Signed::new(&World::new());
        let attribute =
            Node::around(0x30, vec![Node::leaf(0x06, oid), Node::around(0x31, vec![Node::leaf(0x0c, b"x")])]);
        signed.attributes().push(attribute);
        signed.cause()
    };
    assert_eq!(with(&[0x2a, 0x03, 0x04]), "opened");
    let mut signed = Signed::new(&World::new());
    let binding = signed.attributes().iter().map(|node| node.children[0].bytes.clone()).find(|oid| oid[0] == 0x69);
    let mut newer = binding.unwrap();
    *newer.last_mut().unwrap() = 0x7f;
    assert_eq!(with(&newer), "malformed");
}

#[test]
fn surplus_and_second_forms_in_a_signed_message_are_refused() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(Some(Digest::Sha256), None, &[]);
    let good = Node::read(&seal(&policy, &ring));
    let with = |change: &dyn Fn(&mut Node)| {
        let mut message = good.clone();
        change(&mut message);
        cause(&policy, &ring, message.write())
    };
    let null = || Node::leaf(0x05, &[]);
    let cases: [&dyn Fn(&mut Node); 11] = [
        &|m| m.children.push(null()),
        &|m| m.at(&[1]).children.push(null()),
        &|m| m.at(&[1, 0]).children.push(null()),
        &|m| m.at(&[1, 0, 0]).bytes = vec![3],
        &|m| m.at(&[1, 0, 0]).bytes = vec![0, 1],
        &|m| m.at(&[1, 0, 2]).children.push(null()),
        // The payload as a constructed string.
        &|m| {
            let payload = m.at(&[1, 0, 2, 1, 0]).clone();
            *m.at(&[1, 0, 2, 1, 0]) = Node::around(0x24, vec![payload]);
        },
        // Unsigned attributes.
        &|m| m.at(&[1, 0, 4, 0]).children.push(Node::around(0xa1, vec![])),
        // Another digest announced than used, and one too many.
        &|m| *m.at(&[1, 0, 1, 0, 0]).bytes.last_mut().unwrap() = 2,
        &|m| {
            let mut more = m.at(&[1, 0, 1, 0]).clone();
            *more.at(&[0]).bytes.last_mut().unwrap() = 3;
            m.at(&[1, 0, 1]).children.push(more);
        },
        // A revocation list inside.
        &|m| m.at(&[1, 0]).children.insert(4, Node::around(0xa1, vec![Node::around(0x30, vec![])])),
    ];
    for (at, change) in cases.into_iter().enumerate() {
        assert_eq!(with(change), "malformed", "case {at}");
    }
    assert_eq!(with(&|m| m.at(&[1, 0, 4]).children.clear()), "unsigned");
    // A second form of one length: 0x81 in front of what fits into seven bits.
    let mut long_form = good.clone().write();
    let digests = good.clone().at(&[1, 0, 1]).write();
    let at = long_form.windows(digests.len()).position(|window| window == digests).unwrap();
    long_form.insert(at + 1, 0x81);
    assert_eq!(cause(&policy, &ring, long_form), "malformed");
}

/// A confidential message to alice, with what a test needs to encrypt a changed one again.
struct Envelope {
    ring: Arc<Ring>,
    policy: Arc<Policy>,
    message: Node,
    key: PKey<Private>,
}

impl Envelope {
    fn new() -> Envelope {
        let world = World::new();
        let alice = world.person("alice", RSA);
        let ring = world.ring("alice", &[&alice], &[]);
        let policy = policy(None, Some(ContentCipher::Aes256Gcm), &[&alice]);
        let message = Node::read(&seal(&policy, &ring));
        let key = PKey::private_key_from_pem(alice.key.as_bytes()).unwrap();
        Envelope { ring, policy, message, key }
    }

    fn content_key(&mut self) -> Vec<u8> {
        let wrapped = self.message.at(&[1, 0, 1, 0, 3]).bytes.clone();
        let mut decrypter = Decrypter::new(&self.key).unwrap();
        decrypter.set_rsa_padding(Padding::PKCS1_OAEP).unwrap();
        decrypter.set_rsa_oaep_md(openssl::hash::MessageDigest::sha256()).unwrap();
        decrypter.set_rsa_mgf1_md(openssl::hash::MessageDigest::sha256()).unwrap();
        let mut key = vec![0; decrypter.decrypt_len(&wrapped).unwrap()];
        let len = decrypter.decrypt(&wrapped, &mut key).unwrap();
        key.truncate(len);
        key
    }

    fn associated(&mut self) -> Vec<u8> {
        let mut attributes = self.message.at(&[1, 0, 3]).clone();
        attributes.tag = 0x31;
        attributes.write()
    }

    /// Changes the attributes and computes the tag that fits them.
    fn with_attributes(mut self, change: impl FnOnce(&mut Vec<Node>)) -> &'static str {
        let key = self.content_key();
        let nonce = self.message.at(&[1, 0, 2, 1, 1, 0]).bytes.clone();
        let ciphertext = self.message.at(&[1, 0, 2, 2]).bytes.clone();
        let tag = self.message.at(&[1, 0, 4]).bytes.clone();
        let associated = self.associated();
        let plaintext =
            decrypt_aead(Cipher::aes_256_gcm(), &key, Some(&nonce), &associated, &ciphertext, &tag).unwrap();
        change(&mut self.message.at(&[1, 0, 3]).children);
        let associated = self.associated();
        let mut tag = [0; 16];
        encrypt_aead(Cipher::aes_256_gcm(), &key, Some(&nonce), &associated, &plaintext, &mut tag).unwrap();
        *self.message.at(&[1, 0, 4]) = Node::leaf(0x04, &tag);
        self.cause()
    }

    /// What a private message holds; it has no attributes outside.
    fn inside(&mut self) -> Vec<u8> {
        let key = self.content_key();
        let nonce = self.message.at(&[1, 0, 2, 1, 1, 0]).bytes.clone();
        let ciphertext = self.message.at(&[1, 0, 2, 2]).bytes.clone();
        let tag = self.message.at(&[1, 0, 3]).bytes.clone();
        decrypt_aead(Cipher::aes_256_gcm(), &key, Some(&nonce), &[], &ciphertext, &tag).unwrap()
    }

    /// Encrypts again: this content of this type, with these attributes outside.
    fn around(mut self, content_type: &[u8], content: &[u8], attributes: Option<Vec<Node>>) -> &'static str {
        let key = self.content_key();
        let nonce = self.message.at(&[1, 0, 2, 1, 1, 0]).bytes.clone();
        let set = attributes.map(|children| Node::around(0xa1, children));
        let associated = set.clone().map(|set| Node { tag: 0x31, ..set }.write()).unwrap_or_default();
        let mut tag = [0; 16];
        let ciphertext =
            encrypt_aead(Cipher::aes_256_gcm(), &key, Some(&nonce), &associated, content, &mut tag).unwrap();
        *self.message.at(&[1, 0, 2, 0]) = Node::leaf(0x06, content_type);
        *self.message.at(&[1, 0, 2, 2]) = Node::leaf(0x80, &ciphertext);
        self.message.at(&[1, 0]).children.truncate(3);
        self.message.at(&[1, 0]).children.extend(set.into_iter().chain([Node::leaf(0x04, &tag)]));
        self.cause()
    }

    fn with(mut self, change: impl FnOnce(&mut Node)) -> &'static str {
        change(&mut self.message);
        self.cause()
    }

    fn cause(self) -> &'static str {
        cause(&self.policy, &self.ring, self.message.write())
    }
}

/// A private message of alice's to herself.
fn private() -> Envelope {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), &[&alice]);
    let message = Node::read(&seal(&policy, &ring));
    let key = PKey::private_key_from_pem(alice.key.as_bytes()).unwrap();
    Envelope { ring, policy, message, key }
}

const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];

/// The attribute that says which content type an envelope has.
fn content_type_attribute(content_type: &[u8]) -> Node {
    Node::around(0x30, vec![Node::leaf(0x06, CONTENT_TYPE), Node::around(0x31, vec![Node::leaf(0x06, content_type)])])
}

/// Our attributes of the message inside, as the former profile had them outside too.
fn ours_inside(inside: &[u8]) -> Vec<Node> {
    let mut signed = Node::read(inside);
    let attributes = &signed.at(&[1, 0, 4, 0, 3]).children;
    attributes.iter().filter(|one| one.children[0].bytes[0] == 0x69).cloned().collect()
}

fn sorted(mut attributes: Vec<Node>) -> Option<Vec<Node>> {
    attributes.sort_by_key(Node::write);
    Some(attributes)
}

#[test]
fn attributes_outside_a_private_message_are_absent_or_those_inside() {
    let mut first = private();
    assert_eq!(first.message.at(&[1, 0]).children.len(), 4, "version, recipients, content, tag");
    let inside = first.inside();
    assert_eq!(first.around(DATA, &inside, None), "opened", "encrypting again changes nothing");
    type Change = dyn Fn(Vec<Node>) -> Vec<Node>;
    let cases: [(&str, &Change); 4] = [
        ("opened", &|ours| ours),
        ("tampered", &|_| Vec::new()),
        ("tampered", &|mut ours| {
            ours.pop();
            ours
        }),
        ("tampered", &|mut ours| {
            // Another destination; the digits are those of ORDERS@QM1.
            let binding = ours.iter_mut().find(|one| one.children[0].bytes.ends_with(&[1, 1])).unwrap();
            binding.at(&[1, 0, 2]).bytes[0] ^= 1;
            ours
        }),
    ];
    for (at, (expected, change)) in cases.into_iter().enumerate() {
        let mut envelope = private();
        let inside = envelope.inside();
        let mut outside = change(ours_inside(&inside));
        outside.push(content_type_attribute(DATA));
        assert_eq!(envelope.around(DATA, &inside, sorted(outside)), expected, "case {at}");
    }
}

#[test]
fn a_bare_signed_message_in_an_envelope_needs_attributes_outside() {
    let bare = |outside: bool| {
        let mut envelope = private();
        let inside = envelope.inside();
        let mut attributes = ours_inside(&inside);
        attributes.push(content_type_attribute(SIGNED_DATA));
        let bare = Node::read(&inside).at(&[1, 0]).write();
        envelope.around(SIGNED_DATA, &bare, if outside { sorted(attributes) } else { None })
    };
    assert_eq!(bare(true), "opened");
    assert_eq!(bare(false), "malformed");
}

#[test]
fn a_fitting_tag_does_not_excuse_bad_attributes() {
    assert_eq!(Envelope::new().with_attributes(|_| {}), "opened", "encrypting again changes nothing");
    assert_eq!(Envelope::new().with_attributes(|set| set.reverse()), "malformed");
    assert_eq!(
        Envelope::new().with_attributes(|set| {
            let again = set[0].clone();
            set.insert(0, again);
        }),
        "malformed"
    );
    assert_eq!(Envelope::new().with_attributes(|set| set[0].children[1].children.clear()), "malformed");
    assert_eq!(Envelope::new().with_attributes(|set| set.clear()), "malformed");
    assert_eq!(
        Envelope::new().with_attributes(|set| set.retain(|one| one.children[0].bytes != CONTENT_TYPE)),
        "malformed"
    );
    // Each of ours is needed.
    for last in 1..=3 {
        let cause = Envelope::new().with_attributes(|set| {
            set.retain(|one| one.children[0].bytes[0] != 0x69 || one.children[0].bytes.last() != Some(&last));
        });
        assert_eq!(cause, "unbound", "attribute {last}");
    }
}

#[test]
fn a_short_tag_is_refused_before_any_key_is_used() {
    let short = |len: usize, icv: u8| {
        let mut envelope = Envelope::new();
        envelope.message.at(&[1, 0, 4]).bytes.truncate(len);
        envelope.message.at(&[1, 0, 2, 1, 1, 1]).bytes = vec![icv];
        let der = envelope.message.write();
        let step = Opener::new().open(&envelope.policy, &envelope.ring, der.into(), expect(), now(), now());
        step.err().map(|error| error.cause())
    };
    for (len, icv) in [(4, 4), (12, 12), (4, 16), (16, 12), (0, 16)] {
        assert_eq!(short(len, icv), Some("malformed"), "{len} {icv}");
    }
    // Without ICVlen the default is 12.
    let absent = Envelope::new().with(|m| {
        m.at(&[1, 0, 2, 1, 1]).children.pop();
    });
    assert_eq!(absent, "malformed");
}

#[test]
fn a_key_of_another_length_than_its_label_does_not_open() {
    // AES-256-GCM labelled AES-128-GCM: openssl would take the key as it comes.
    let mut envelope = Envelope::new();
    let mut policy = (*envelope.policy).clone();
    policy.encrypt = Some(ContentCipher::Aes128Gcm);
    envelope.policy = Arc::new(policy);
    let cause = envelope.with(|m| *m.at(&[1, 0, 2, 1, 0]).bytes.last_mut().unwrap() = 6);
    assert_eq!(cause, "cannot-decrypt");
}

#[test]
fn another_cipher_than_the_policys_is_refused_before_any_key_is_used() {
    let mut envelope = Envelope::new();
    let mut policy = (*envelope.policy).clone();
    policy.encrypt = Some(ContentCipher::Aes128Gcm);
    let policy = Arc::new(policy);
    let der = envelope.message.write();
    let refused = Opener::new().open(&policy, &envelope.ring, der.into(), expect(), now(), now()).err();
    assert_eq!(refused.map(|error| error.cause()), Some("weaker-than-policy"));
    // A GCM recipient info in a CBC envelope, which would make the opener an oracle for its key.
    let recipients = envelope.message.at(&[1, 0, 1]).clone();
    let cbc_identifier = Node::around(
        0x30,
        vec![Node::leaf(0x06, &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01, 0x2a]), Node::leaf(0x04, &[0; 16])],
    );
    let content = Node::around(
        0x30,
        vec![
            Node::leaf(0x06, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01]),
            cbc_identifier,
            Node::leaf(0x80, &[0; 32]),
        ],
    );
    let enveloped = Node::around(0x30, vec![Node::leaf(2, &[0]), recipients, content]);
    let pasted = Node::around(
        0x30,
        vec![
            Node::leaf(0x06, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x03]),
            Node::around(0xa0, vec![enveloped]),
        ],
    );
    let refused =
        Opener::new().open(&envelope.policy, &envelope.ring, pasted.write().into(), expect(), now(), now()).err();
    assert_eq!(refused.map(|error| error.cause()), Some("weaker-than-policy"));
}

#[test]
fn another_key_transport_than_the_policys_is_refused_before_any_key_is_used() {
    let envelope = Envelope::new();
    let mut policy = (*envelope.policy).clone();
    policy.key_transport = KeyTransport::Pkcs1;
    let envelope = Envelope { policy: Arc::new(policy), ..envelope };
    assert_eq!(envelope.cause(), "weaker-than-policy");
}

#[test]
fn surplus_and_second_forms_in_an_envelope_are_refused() {
    let null = || Node::leaf(0x05, &[]);
    let cases: [fn(&mut Node, Node); 9] = [
        |m, null| m.children.push(null),
        |m, null| m.at(&[1, 0]).children.push(null),
        |m, _| m.at(&[1, 0, 0]).bytes = vec![2],
        |m, _| m.at(&[1, 0, 1]).children.clear(),
        |m, _| {
            let again = m.at(&[1, 0, 1, 0]).clone();
            m.at(&[1, 0, 1]).children.push(again);
        },
        |m, null| m.at(&[1, 0, 1, 0]).children.push(null),
        |m, null| m.at(&[1, 0, 2]).children.push(null),
        // The ciphertext in pieces.
        |m, _| {
            let pieces = Node::leaf(0x04, &m.at(&[1, 0, 2, 2]).bytes.clone());
            *m.at(&[1, 0, 2, 2]) = Node::around(0xa0, vec![pieces]);
        },
        // Unauthenticated attributes.
        |m, _| m.at(&[1, 0]).children.push(Node::around(0xa2, vec![])),
    ];
    for (at, change) in cases.into_iter().enumerate() {
        assert_eq!(Envelope::new().with(|m| change(m, null())), "malformed", "case {at}");
    }
}

#[test]
fn ten_thousand_recipients_or_signers_in_a_message_are_refused_at_once() {
    let crowd = Envelope::new().with(|m| {
        let one = m.at(&[1, 0, 1, 0]).clone();
        m.at(&[1, 0, 1]).children = (0..10_000_u32)
            .map(|number| {
                let mut copy = one.clone();
                copy.at(&[3]).bytes = number.to_be_bytes().to_vec();
                copy
            })
            .collect();
    });
    assert_eq!(crowd, "malformed");
    let mut signed = Signed::new(&World::new());
    let one = signed.message.at(&[1, 0, 4, 0]).clone();
    signed.message.at(&[1, 0, 4]).children = (0..10_000_u32)
        .map(|number| {
            let mut copy = one.clone();
            copy.at(&[5]).bytes = number.to_be_bytes().to_vec();
            copy
        })
        .collect();
    assert_eq!(cause(&signed.policy, &signed.ring, signed.message.write()), "malformed");
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(Some(Digest::Sha256), None, &[]);
    let mut der = seal(&policy, &ring).to_vec();
    for _ in 0..10_000 {
        der = Node::leaf(0x24, &der).bytes;
        let mut outer = vec![0x30, 0x84];
        outer.extend((der.len() as u32).to_be_bytes());
        outer.extend(&der);
        if outer.len() > 100_000 {
            break;
        }
        der = outer;
    }
    assert!(open(&policy, &ring, der).is_err());
}

#[test]
fn a_signed_letter_put_into_another_envelope_does_not_open() {
    let world = World::new();
    let (alice, bob, carol) = (world.person("alice", RSA), world.person("bob", RSA), world.person("carol", RSA));
    let sender = world.ring("alice", &[&alice], &[&bob]);
    let to_bob = policy(Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), &[&bob]);
    let letter = seal(&to_bob, &sender);
    // Bob opens the envelope and sends the letter on to Carol, as if Alice had written to her.
    let bob_key = PKey::private_key_from_pem(bob.key.as_bytes()).unwrap();
    let ring = world.ring("bob", &[&bob], &[&carol]);
    let mut opened =
        Envelope { ring: Arc::clone(&ring), policy: Arc::clone(&to_bob), message: Node::read(&letter), key: bob_key };
    let inner = opened.inside();
    // To Carol, by Bob's own sealer: a confidential envelope around Alice's letter …
    let to_carol = policy(None, Some(ContentCipher::Aes256Gcm), &[&carol]);
    let content = bulla_seal::Content { bytes: inner.into(), ..payload() };
    let passed_on = seal_with(&mut sealer(&to_carol, &ring), content).unwrap().der;
    let carol_ring = world.ring("carol", &[&carol], &[&alice]);
    let carols_policy = Arc::new(Policy { recipients: vec![carol.dn.clone()], ..(*to_bob).clone() });
    let refused = open(&carols_policy, &carol_ring, passed_on.clone()).unwrap_err();
    assert_eq!(refused.cause(), "tampered", "{refused}");
    // … and one without any attributes outside.
    let refused = open(&loose(&carols_policy), &carol_ring, passed_on).unwrap_err();
    assert_eq!(refused.cause(), "tampered", "{refused}");
}

#[test]
fn the_signed_inside_of_a_private_message_does_not_pass_for_an_integrity_message() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let private = policy(Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), &[&alice]);
    let message = Node::read(&seal(&private, &ring));
    let mut envelope = Envelope {
        ring: Arc::clone(&ring),
        policy: Arc::clone(&private),
        key: PKey::private_key_from_pem(alice.key.as_bytes()).unwrap(),
        message,
    };
    let inner = envelope.inside();
    let integrity = policy(Some(Digest::Sha256), None, &[]);
    assert_eq!(cause(&integrity, &ring, inner), "weaker-than-policy");
}

#[test]
fn every_failure_after_cbc_is_one_cause() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(Some(Digest::Sha256), Some(ContentCipher::Aes256Cbc), &[&alice]);
    let message = Node::read(&seal(&policy, &ring));
    let blocks = message.clone().at(&[1, 0, 2, 2]).bytes.len() / 16;
    // Any block of the ciphertext, the vector and the wrapped key: padding, structure, digest, signature.
    for block in 0..blocks {
        let mut bent = message.clone();
        bent.at(&[1, 0, 2, 2]).bytes[block * 16] ^= 1;
        let refused = open(&policy, &ring, bent.write()).unwrap_err();
        assert_eq!(refused, OpenError::CannotDecrypt, "block {block}");
    }
    for path in [&[1, 0, 2, 1, 1][..], &[1, 0, 1, 0, 3]] {
        let mut bent = message.clone();
        bent.at(path).bytes[3] ^= 1;
        let refused = open(&policy, &ring, bent.write()).unwrap_err();
        assert_eq!((refused.cause(), refused.outcome()), ("cannot-decrypt", Outcome::Defective));
    }
    // A ciphertext cut to a whole number of blocks.
    let mut cut = message.clone();
    cut.at(&[1, 0, 2, 2]).bytes.truncate(32);
    assert_eq!(cause(&policy, &ring, cut.write()), "cannot-decrypt");
}

/// The string of one attribute in pieces, as BER allows: the same characters, another encoding.
fn in_pieces(string: &mut Node) {
    let piece = Node::leaf(string.tag, &string.bytes);
    *string = Node::around(string.tag | 0x20, vec![piece]);
}

#[test]
fn what_is_not_der_inside_names_attributes_and_algorithms_is_malformed() {
    // The issuer's name of a recipient: it would look like another recipient's.
    assert_eq!(Envelope::new().with(|m| in_pieces(m.at(&[1, 0, 1, 0, 1, 0, 0, 0, 1]))), "malformed");
    // … of a signer: it would look like a certificate that is not there.
    let mut signed = Signed::new(&World::new());
    in_pieces(signed.message.at(&[1, 0, 4, 0, 1, 0, 0, 0, 1]));
    assert_eq!(cause(&signed.policy, &signed.ring, signed.message.write()), "malformed");
    // A hash inside the signing certificate attribute, signed so.
    let mut signed = Signed::new(&World::new());
    in_pieces(signed.attribute(SIGNING_CERTIFICATE).at(&[1, 0, 0, 0, 0]));
    assert_eq!(signed.cause(), "malformed");
    // A long integer in the algorithms that an attribute names, signed so.
    let mut signed = Signed::new(&World::new());
    signed.attribute(PROTECTION).at(&[1, 0, 0]).children.push(Node::leaf(0x02, &[0, 1]));
    assert_eq!(signed.cause(), "malformed");
    // The parameters of the key transport.
    let padded = Envelope::new().with(|m| {
        let parameters = m.at(&[1, 0, 1, 0, 2, 1]);
        parameters.children.push(Node::around(0xa2, vec![Node::leaf(0x02, &[0, 1])]));
    });
    assert_eq!(padded, "malformed");
}

#[test]
fn a_message_digest_among_the_attributes_of_an_envelope_is_refused() {
    let cause = Envelope::new().with_attributes(|set| {
        let digest = Node::around(0x31, vec![Node::leaf(0x04, &[7; 32])]);
        set.push(Node::around(0x30, vec![Node::leaf(0x06, MESSAGE_DIGEST), digest]));
        set.sort_by_key(Node::write);
    });
    assert_eq!(cause, "malformed");
}

#[test]
fn pkcs1_key_transport_opens_only_with_a_certificate_that_is_for_nothing_else() {
    const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    let world = World::new();
    let (dual, single) =
        (world.person("dual", RSA), world.person_for("single", RSA, vec![KeyUse::DataEncrypt], 365, now()));
    for (person, expected) in [(&dual, "weaker-than-policy"), (&single, "opened")] {
        let ring = world.ring(person.dn.to_string().trim_start_matches("CN="), &[person], &[]);
        let policy = policy_of(None, Some(ContentCipher::Aes256Gcm), &[person]);
        let message = Node::read(&seal(&Arc::new(policy.clone()), &ring));
        let key = PKey::private_key_from_pem(person.key.as_bytes()).unwrap();
        let mut envelope =
            Envelope { ring, policy: Arc::new(Policy { key_transport: KeyTransport::Pkcs1, ..policy }), message, key };
        // The same content key by PKCS#1, and no attributes of ours: foreign CMS.
        let content_key = envelope.content_key();
        let mut encrypter = openssl::encrypt::Encrypter::new(&envelope.key).unwrap();
        encrypter.set_rsa_padding(Padding::PKCS1).unwrap();
        let mut wrapped = vec![0; encrypter.encrypt_len(&content_key).unwrap()];
        let len = encrypter.encrypt(&content_key, &mut wrapped).unwrap();
        wrapped.truncate(len);
        drop(encrypter);
        envelope.message.at(&[1, 0, 1, 0, 3]).bytes = wrapped;
        let algorithm = Node::around(0x30, vec![Node::leaf(0x06, RSA_ENCRYPTION), Node::leaf(0x05, &[])]);
        let nonce = envelope.message.at(&[1, 0, 2, 1, 1, 0]).bytes.clone();
        let mut tag = [0; 16];
        let ciphertext =
            encrypt_aead(Cipher::aes_256_gcm(), &content_key, Some(&nonce), &[], b"foreign", &mut tag).unwrap();
        *envelope.message.at(&[1, 0, 1, 0, 2]) = algorithm;
        *envelope.message.at(&[1, 0, 2, 2]) = Node::leaf(0x80, &ciphertext);
        envelope.message.at(&[1, 0]).children.truncate(3);
        envelope.message.at(&[1, 0]).children.push(Node::leaf(0x04, &tag));
        envelope.policy = loose(&envelope.policy);
        assert_eq!(envelope.cause(), expected, "{}", person.dn);
    }
}

#[test]
fn every_failure_after_cbc_spends_one_verification_with_a_key_like_the_signers() {
    let world = World::new();
    // The reader's key is of another kind.
    let (alice, bob) = (world.person("alice", P256), world.person("bob", RSA));
    let sender = world.ring("alice", &[&alice], &[&bob]);
    let reader = world.ring("bob", &[&bob], &[&alice]);
    let policy = Arc::new(Policy {
        signers: vec![alice.dn.clone()],
        ..policy_of(Some(Digest::Sha256), Some(ContentCipher::Aes256Cbc), &[&bob])
    });
    let message = Node::read(&seal(&policy, &sender));
    let blocks = message.clone().at(&[1, 0, 2, 2]).bytes.len() / 16;
    let opener = Opener::new();
    for known in [false, true] {
        for block in 0..blocks {
            let mut bent = message.clone();
            bent.at(&[1, 0, 2, 2]).bytes[block * 16] ^= 1;
            let mut step = opener.open(&policy, &reader, bent.write().into(), expect(), now(), now()).unwrap();
            let mut jobs = Vec::new();
            let error = loop {
                let Step::Device(job, go_on) = step else { panic!("block {block} opened") };
                jobs.push((job.work.operation(), job.key.kind()));
                let answer = drive(
                    Step::Device(job, Box::new(|answer| Ok::<_, OpenError>(Step::Done(answer)))),
                    &mut CpuDevice::new("cpu"),
                );
                match go_on(answer.unwrap()) {
                    Ok(next) => step = next,
                    Err(error) => break error,
                }
            };
            assert_eq!(error, OpenError::CannotDecrypt, "block {block}");
            let verify = (Operation::EcdsaVerify, bulla_device::KeyKind::Ec(bulla_device::Curve::P256));
            // Where the content key is known there is no unwrap before it.
            jobs.retain(|(operation, _)| *operation != Operation::RsaUnwrap);
            assert_eq!(jobs, [verify], "known {known}, block {block}");
        }
        open_with(&opener, &policy, &reader, message.write().into()).unwrap();
    }
}
