//! What messages are sealed with is read without opening them, of every kind of keys, alone and in a batch; and a
//! damaged message ends in an error value.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use bulla_device::{Digest, MlDsa, MlKem};
use bulla_seal::certificate::{Curve, KeySpec};
use bulla_seal::policy::{ContentCipher, KeyTransport, Pqc, Quality, SignatureScheme};
use bulla_seal::{Policy, sealed_with};
use common::batches::together;
use common::*;

const GCM: Option<ContentCipher> = Some(ContentCipher::Aes256Gcm);

fn allowed(sign: Option<Digest>, encrypt: Option<ContentCipher>, to: &[&Person]) -> Policy {
    Policy { pqc: Pqc::Allowed, ..policy_of(sign, encrypt, to) }
}

#[test]
fn each_signer_shows_with_its_kind_and_digest_alone_and_in_a_batch() {
    let world = World::new();
    for (key, scheme, shown) in [
        (KeySpec::Rsa(1024), SignatureScheme::Pkcs1, "rsa1024 SHA512"),
        (KeySpec::Rsa(2048), SignatureScheme::Pss, "rsa2048 PSS SHA512"),
        (KeySpec::Ec(Curve::P256), SignatureScheme::Pkcs1, "p256 SHA512"),
        (KeySpec::Ec(Curve::P521), SignatureScheme::Pkcs1, "p521 SHA512"),
        (KeySpec::MlDsa(MlDsa::MlDsa44), SignatureScheme::Pkcs1, "ml-dsa-44 SHA512"),
        (KeySpec::MlDsa(MlDsa::MlDsa87), SignatureScheme::Pss, "ml-dsa-87 SHA512"),
    ] {
        let alice = world.person(&format!("alice {key}"), key);
        let ring = world.ring(&format!("a-{key}"), &[&alice], &[]);
        let policy = Policy { signature_scheme: scheme, ..allowed(Some(Digest::Sha512), None, &[]) };
        let many = Arc::new(Policy { sign_batch: 64, ..policy.clone() });
        let alone = seal(&Arc::new(policy), &ring);
        let batch = together(&many, &ring, vec![payload(), payload()]).into_iter().map(|sealed| sealed.der);
        for der in std::iter::once(alone).chain(batch) {
            let found = sealed_with(&der).unwrap();
            assert_eq!((found.signers, found.quality), (vec![shown.to_owned()], Some(Quality::Integrity)), "{key}");
            assert!(found.recipients.is_empty() && found.cipher.is_none());
        }
    }
}

#[test]
fn each_recipient_shows_and_a_signature_inside_an_envelope_does_not() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let specs = [
        (KeySpec::Rsa(2048), "rsa2048 OAEP"),
        (KeySpec::Ec(Curve::P384), "p384"),
        (KeySpec::MlKem(MlKem::MlKem512), "ml-kem-512"),
        (KeySpec::MlKem(MlKem::MlKem1024), "ml-kem-1024"),
    ];
    let readers: Vec<Person> = specs.iter().map(|(key, _)| world.person(&format!("bob {key}"), *key)).collect();
    let ring = world.ring("alice", &[&alice], &readers.iter().collect::<Vec<_>>());
    for (reader, (_, shown)) in readers.iter().zip(specs) {
        let found = sealed_with(&seal(&Arc::new(allowed(None, GCM, &[reader])), &ring)).unwrap();
        assert_eq!((found.recipients, found.cipher), (vec![shown.to_owned()], GCM));
        assert_eq!((found.quality, found.signers), (Some(Quality::Confidentiality), vec![]));
    }
    let all: Vec<&Person> = readers.iter().collect();
    let found = sealed_with(&seal(&Arc::new(allowed(Some(Digest::Sha256), GCM, &all)), &ring)).unwrap();
    assert_eq!(found.recipients, ["ml-kem-1024", "ml-kem-512", "p384", "rsa2048 OAEP"]);
    assert_eq!((found.quality, found.signers), (None, vec![]), "privacy");
    let auto = allowed(None, Some(ContentCipher::Aes128Gcm), &[&readers[0]]);
    assert_eq!(auto.key_transport, KeyTransport::Auto);
    assert_eq!(sealed_with(&seal(&Arc::new(auto), &ring)).unwrap().cipher, Some(ContentCipher::Aes128Gcm));
}

#[test]
fn whatever_is_cut_off_or_changed_ends_in_a_value() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", P256), world.person("bob", RSA));
    let ring = world.ring("alice", &[&alice], &[&bob]);
    let signed = seal(&Arc::new(allowed(Some(Digest::Sha256), None, &[])), &ring);
    let sealed = seal(&Arc::new(allowed(None, GCM, &[&bob])), &ring);
    for der in [signed, sealed] {
        assert!((0..der.len()).all(|length| sealed_with(&der[..length]).is_err()), "a part is no message");
        let mut changed = der.to_vec();
        for at in 0..changed.len() {
            for bit in [0x01, 0x80] {
                changed[at] ^= bit;
                // Some bytes, of a signature or a ciphertext, say nothing about algorithms.
                let _ = sealed_with(&changed).is_ok();
                changed[at] ^= bit;
            }
        }
    }
    assert!(sealed_with(b"").is_err() && sealed_with(b"clear").is_err());
}
