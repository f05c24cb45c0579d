//! What is sealed opens again, for each quality, key and cipher, and is as long as was predicted.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use bulla_device::Digest;
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::{ContentCipher, KeyReuse, Quality, SignatureScheme};
use bulla_seal::{Content, Opener, Packing};
use bytes::Bytes;
use common::*;

#[test]
fn every_signing_key_and_digest_gives_integrity_and_the_predicted_length() {
    let world = World::new();
    for spec in KeySpec::classical() {
        let alice = world.person(&format!("alice {spec}"), spec);
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[]);
        for digest in Digest::ALL.iter().copied() {
            for scheme in SignatureScheme::ALL.iter().copied() {
                let mut policy = policy_of(Some(digest), None, &[]);
                policy.signature_scheme = scheme;
                let policy = Arc::new(policy);
                if spec == RSA_SMALL && digest == Digest::Sha512 && scheme == SignatureScheme::Pss {
                    let refused = bulla_seal::Sealer::new(policy, Arc::clone(&ring), None, now()).unwrap_err();
                    assert_eq!(refused.cause(), "signature-does-not-fit");
                    continue;
                }
                let mut sealer = sealer(&policy, &ring);
                let predicted = sealer.sealed_len(&payload(), &bound());
                let sealed = seal_with(&mut sealer, payload()).unwrap();
                match spec {
                    KeySpec::Rsa(_) => assert_eq!(sealed.der.len(), predicted, "{spec} {digest} {scheme}"),
                    _ => {
                        assert!(sealed.der.len() <= predicted && sealed.der.len() + 8 > predicted);
                    }
                }
                let opened = open(&policy, &ring, sealed.der).unwrap();
                assert_eq!(opened.content, payload());
                assert_eq!(opened.seal.signer.as_ref(), Some(&alice.dn));
                assert_eq!((opened.seal.quality, opened.seal.bound), (Quality::Integrity, true));
                assert_eq!(opened.seal.signing_time, Some(now()));
            }
        }
    }
}

#[test]
fn every_recipient_key_and_cipher_opens_with_and_without_a_signature() {
    let world = World::new();
    let alice = world.person("alice", P256);
    for spec in KeySpec::classical() {
        let bob = world.person(&format!("bob {spec}"), spec);
        let sender = world.ring(&format!("alice-{spec}"), &[&alice], &[&bob]);
        let receiver = world.ring(&format!("bob-{spec}"), &[&bob], &[&alice]);
        for cipher in ContentCipher::ALL.iter().copied() {
            for sign in [None, Some(Digest::Sha256)] {
                let mut policy = policy_of(sign, Some(cipher), &[&bob]);
                if sign.is_some() {
                    policy.signers = vec![alice.dn.clone()]; // CBC asks for it
                }
                let policy = Arc::new(policy);
                let mut sealer = sealer(&policy, &sender);
                let predicted = sealer.sealed_len(&payload(), &bound());
                let sealed = seal_with(&mut sealer, payload()).unwrap();
                if sign.is_none() {
                    assert_eq!(sealed.der.len(), predicted, "{spec} {cipher}");
                } else {
                    assert!(sealed.der.len() <= predicted && sealed.der.len() + 24 > predicted);
                }
                let opened = open(&policy, &receiver, sealed.der).unwrap();
                assert_eq!(opened.content, payload(), "{spec} {cipher} {sign:?}");
                assert_eq!(opened.seal.quality, policy.quality());
                assert_eq!(opened.seal.bound, policy.can_bind());
                assert_eq!(opened.seal.recipients, [bob.certificate.issuer_and_serial()]);
                assert_eq!(opened.seal.signer.is_some(), sign.is_some());
            }
        }
    }
}

#[test]
fn every_recipient_opens_and_nobody_else() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let people: Vec<_> = [RSA, P256, RSA_SMALL].iter().map(|spec| world.person(&format!("r {spec}"), *spec)).collect();
    let eve = world.person("eve", RSA);
    let sender = world.ring("alice", &[&alice], &people.iter().collect::<Vec<_>>());
    let policy = policy(Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), &people.iter().collect::<Vec<_>>());
    let der = seal(&policy, &sender);
    for (at, person) in people.iter().enumerate() {
        let ring = world.ring(&format!("r{at}"), &[person], &[]);
        let opened = open(&policy, &ring, der.clone()).unwrap();
        assert_eq!((opened.content, opened.seal.recipients.len()), (payload(), 3));
    }
    let stranger = world.ring("eve", &[&eve], &[]);
    assert_eq!(open(&policy, &stranger, der).unwrap_err().cause(), "not-a-recipient");
}

#[test]
fn payloads_of_every_length_and_packing_come_back() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    for (sign, encrypt) in [
        (Some(Digest::Sha256), None),
        (Some(Digest::Sha384), Some(ContentCipher::Aes128Gcm)),
        (None, Some(ContentCipher::Aes256Gcm)),
        (Some(Digest::Sha256), Some(ContentCipher::Aes128Cbc)),
        (None, Some(ContentCipher::Aes256Cbc)),
    ] {
        let to: &[&Person] = if encrypt.is_some() { &[&alice] } else { &[] };
        let policy = policy(sign, encrypt, to);
        let mut sealer = sealer(&policy, &ring);
        for len in [0, 1, 15, 16, 127, 128, 255, 256, 65_535, 65_536, 3_000_000] {
            for packing in [Packing::Data, Packing::Sections] {
                let content = Content { packing, content_type: None, bytes: Bytes::from(vec![len as u8; len]) };
                let predicted = sealer.sealed_len(&content, &bound());
                let sealed = seal_with(&mut sealer, content.clone()).unwrap();
                assert!(sealed.der.len() <= predicted && sealed.der.len() + 24 > predicted);
                assert_eq!(open(&policy, &ring, sealed.der).unwrap().content, content);
            }
        }
    }
}

#[test]
fn a_content_key_is_reused_as_often_as_the_policy_says() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    for (reuse, keys) in [(KeyReuse::Never, 9), (KeyReuse::Count(2), 3), (KeyReuse::Unlimited, 1)] {
        let mut policy = policy_of(None, Some(ContentCipher::Aes256Gcm), &[&alice]);
        policy.key_reuse = reuse;
        let policy = Arc::new(policy);
        let mut sealer = sealer(&policy, &ring);
        let opener = Opener::new();
        let mut wrapped = std::collections::HashSet::new();
        let mut nonces = std::collections::HashSet::new();
        let mut unwraps = 0;
        for _ in 0..9 {
            let der = seal_with(&mut sealer, payload()).unwrap().der;
            let mut message = tree::Node::read(&der);
            wrapped.insert(message.at(&[1, 0, 1]).write());
            assert!(nonces.insert(message.at(&[1, 0, 2, 1, 1, 0]).bytes.clone()));
            let step = opener.open(&policy, &ring, der, expect(), now(), now()).unwrap();
            unwraps += usize::from(matches!(step, bulla_seal::Step::Device(..)));
            bulla_seal::drive(step, &mut bulla_device::CpuDevice::new("cpu")).unwrap();
        }
        assert_eq!((wrapped.len(), unwraps), (keys, keys), "{reuse}");
    }
}

#[test]
fn a_content_key_ends_after_an_hour_and_when_the_clock_is_set_back() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let mut policy = policy_of(None, Some(ContentCipher::Aes256Gcm), &[&alice]);
    policy.key_reuse = KeyReuse::Unlimited;
    let mut sealer = sealer(&Arc::new(policy), &ring);
    let mut key_at = |now| {
        let step = sealer.seal(payload(), &bound(), now, &mut bulla_device::SystemRandom).unwrap();
        let sealed = bulla_seal::drive(step, &mut bulla_device::CpuDevice::new("cpu")).unwrap();
        tree::Node::read(&sealed.der).at(&[1, 0, 1]).write()
    };
    let first = key_at(later(10));
    assert_eq!(key_at(later(20)), first);
    assert_ne!(key_at(later(3700)), first);
    let second = key_at(later(3701));
    assert_ne!(key_at(later(5)), second);
}

#[test]
fn the_cache_forgets_when_ring_or_policy_change_and_after_an_hour() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(None, Some(ContentCipher::Aes256Gcm), &[&alice]);
    let opener = Opener::new();
    let der = seal(&policy, &ring);
    let unwraps = |policy: &Arc<_>, ring: &Arc<_>, at| {
        let step = opener.open(policy, ring, der.clone(), expect(), at, at).unwrap();
        let device = matches!(step, bulla_seal::Step::Device(..));
        bulla_seal::drive(step, &mut bulla_device::CpuDevice::new("cpu")).unwrap();
        device
    };
    assert!(unwraps(&policy, &ring, now()), "nothing is known yet");
    assert!(!unwraps(&policy, &ring, now()), "the key is known");
    let reloaded = world.load("alice");
    assert!(unwraps(&policy, &reloaded, now()), "another ring");
    let same_words = Arc::new((*policy).clone());
    assert!(unwraps(&same_words, &reloaded, now()), "another policy");
    assert!(!unwraps(&same_words, &reloaded, now()));
    assert!(unwraps(&same_words, &reloaded, later(3601)), "an hour later");
    opener.flush();
    assert!(unwraps(&same_words, &reloaded, later(3601)), "flushed");
}

#[test]
fn who_sealed_for_an_application_is_told_to_the_reader() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), &[&alice]);
    let mut sealer =
        bulla_seal::Sealer::new(Arc::clone(&policy), Arc::clone(&ring), Some("QM1".into()), now()).unwrap();
    let der = seal_with(&mut sealer, payload()).unwrap().der;
    assert_eq!(open(&policy, &ring, der).unwrap().seal.sealed_by.as_deref(), Some("QM1"));
}

#[test]
fn the_newest_key_seals_and_old_ones_still_open() {
    let world = World::new();
    let old = world.person_for("alice", RSA, both(), 365, now());
    let new = world.person_for("alice", RSA, both(), 365, later(DAY));
    let policy = policy(Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), &[&old]);
    let before = world.ring("before", &[&old], &[]);
    let der = seal(&policy, &before);
    let after = world.ring("after", &[&old, &new], &[]);
    assert_eq!(open(&policy, &after, der).unwrap().content, payload());
    let mut sealer = bulla_seal::Sealer::new(Arc::clone(&policy), Arc::clone(&after), None, later(2 * DAY)).unwrap();
    let step = sealer.seal(payload(), &bound(), later(2 * DAY), &mut bulla_device::SystemRandom).unwrap();
    let sealed = bulla_seal::drive(step, &mut bulla_device::CpuDevice::new("cpu")).unwrap();
    let opened =
        open_at(&Opener::new(), &policy, &after, sealed.der, expect(), later(2 * DAY), later(2 * DAY)).unwrap();
    assert_eq!(opened.seal.recipients, [new.certificate.issuer_and_serial()]);
}

fn both() -> Vec<bulla_seal::certificate::KeyUse> {
    use bulla_seal::certificate::KeyUse::{DataEncrypt, DocSign};
    vec![DocSign, DataEncrypt]
}
