//! The `openssl` command opens what is sealed here, and what it makes opens here where the policy
//! allows foreign messages.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use bulla_device::Digest;
use bulla_seal::certificate::KeySpec;
use bulla_seal::policy::{Bind, ContentCipher, KeyTransport, SignatureScheme};
use bulla_seal::{OpenError, Policy};
use common::*;
use openssl::cms::CmsContentInfo;
use openssl::pkey::PKey;
use openssl::x509::X509;

/// Files that the command line needs.
struct Files {
    dir: PathBuf,
}

impl Files {
    fn new(world: &World) -> Files {
        let files = Files { dir: world.dir.path().join("files") };
        std::fs::create_dir_all(&files.dir).unwrap();
        files.put("ca.pem", &world.authority.root().to_pem());
        files
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name.replace([' ', '/'], "-"))
    }

    fn person(&self, person: &Person, name: &str) -> (PathBuf, PathBuf) {
        (
            self.put(&format!("{name}.pem"), &person.certificate.to_pem()),
            self.put(&format!("{name}-key.pem"), person.key.as_bytes()),
        )
    }

    fn cms(&self, input: &[u8], arguments: &[&str]) -> Vec<u8> {
        let (input, output) = (self.put("in", input), self.path("out"));
        let _absent_is_fine = std::fs::remove_file(&output);
        let ran = Command::new("openssl")
            .arg("cms")
            .args(arguments)
            .args(["-binary", "-attime", "1795000000", "-in"])
            .arg(&input)
            .arg("-out")
            .arg(&output)
            .output()
            .expect("the openssl command");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "openssl cms {arguments:?}: {said}");
        std::fs::read(output).unwrap()
    }

    fn verify(&self, der: &[u8]) -> Vec<u8> {
        self.cms(der, &["-verify", "-inform", "DER", "-CAfile", text(&self.path("ca.pem"))])
    }

    fn decrypt(&self, der: &[u8], (certificate, key): &(PathBuf, PathBuf)) -> Vec<u8> {
        self.cms(der, &["-decrypt", "-inform", "DER", "-recip", text(certificate), "-inkey", text(key)])
    }

    /// The plaintext of an envelope with authAttrs: by the library where the program is too old for them.
    fn decrypt_with_attributes(&self, der: &[u8], person: &(PathBuf, PathBuf)) -> Vec<u8> {
        if program_opens_confidential() {
            self.decrypt(der, person)
        } else {
            decrypt_with_library(der, &person.0, &person.1)
        }
    }
}

/// Whether the installed program reads authenticated attributes under the right tag; `tests/prerequisites.sh` says
/// where not.
fn program_opens_confidential() -> bool {
    static OPENS: OnceLock<bool> = OnceLock::new();
    *OPENS.get_or_init(|| {
        let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/openssl-probe.sh");
        Command::new(probe).output().expect("the probe").status.success()
    })
}

/// What `openssl cms -decrypt` does, by the OpenSSL that is linked.
fn decrypt_with_library(der: &[u8], certificate: &Path, key: &Path) -> Vec<u8> {
    let certificate = X509::from_pem(&std::fs::read(certificate).unwrap()).unwrap();
    let key = PKey::private_key_from_pem(&std::fs::read(key).unwrap()).unwrap();
    CmsContentInfo::from_der(der).unwrap().decrypt(&key, &certificate).unwrap()
}

#[test]
fn the_linked_library_opens_a_confidential_message() {
    let world = World::new();
    let bob = world.person("bob", RSA);
    let ring = world.ring("bob", &[&bob], &[&bob]);
    let (certificate, key) = Files::new(&world).person(&bob, "bob");
    let der = seal(&policy(None, Some(ContentCipher::Aes256Gcm), &[&bob]), &ring);
    assert_eq!(decrypt_with_library(&der, &certificate, &key), payload().bytes);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn openssl_verifies_every_signature_made_here() {
    let world = World::new();
    let files = Files::new(&world);
    for spec in KeySpec::classical() {
        let alice = world.person(&format!("alice {spec}"), spec);
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[]);
        for digest in Digest::ALL.iter().copied() {
            for scheme in SignatureScheme::ALL.iter().copied() {
                let is_rsa = matches!(spec, KeySpec::Rsa(_));
                let too_long = spec == RSA_SMALL && digest == Digest::Sha512;
                if scheme == SignatureScheme::Pss && (!is_rsa || too_long) {
                    continue;
                }
                let mut policy = policy_of(Some(digest), None, &[]);
                policy.signature_scheme = scheme;
                let der = seal(&Arc::new(policy), &ring);
                assert_eq!(files.verify(&der), payload().bytes, "{spec} {digest} {scheme}");
            }
        }
    }
}

#[test]
fn openssl_decrypts_every_envelope_made_here_and_verifies_what_is_inside() {
    let world = World::new();
    let files = Files::new(&world);
    let alice = world.person("alice", RSA);
    for spec in KeySpec::classical() {
        let bob = world.person(&format!("bob {spec}"), spec);
        let bob_files = files.person(&bob, "bob");
        let sender = world.ring(&format!("alice-{spec}"), &[&alice], &[&bob]);
        for cipher in ContentCipher::ALL.iter().copied() {
            let confidential = seal(&policy(None, Some(cipher), &[&bob]), &sender);
            let plaintext = match cipher.is_authenticated() {
                true => files.decrypt_with_attributes(&confidential, &bob_files),
                false => files.decrypt(&confidential, &bob_files),
            };
            assert_eq!(plaintext, payload().bytes, "{spec} {cipher}");
            let private = seal(&policy(Some(Digest::Sha256), Some(cipher), &[&bob]), &sender);
            let inner = files.decrypt(&private, &bob_files);
            assert_eq!(files.verify(&inner), payload().bytes, "{spec} {cipher}");
        }
    }
}

#[test]
fn openssl_decrypts_pkcs1_key_transport_made_here() {
    let world = World::new();
    let files = Files::new(&world);
    let bob = world.person_for("bob", RSA, vec![bulla_seal::certificate::KeyUse::DataEncrypt], 365, now());
    let ring = world.ring("bob", &[&bob], &[]);
    let mut policy = policy_of(None, Some(ContentCipher::Aes256Gcm), &[&bob]);
    policy.key_transport = KeyTransport::Pkcs1;
    let policy = Arc::new(policy);
    let der = seal(&policy, &ring);
    assert_eq!(files.decrypt_with_attributes(&der, &files.person(&bob, "bob")), payload().bytes);
    assert_eq!(open(&policy, &ring, der).unwrap().content, payload());
}

fn foreign(policy: Policy) -> (Arc<Policy>, Arc<Policy>) {
    let loose = Policy { bind: Bind::None, ..policy.clone() };
    (Arc::new(policy), Arc::new(loose))
}

/// What is opened has no attributes of ours: raw bytes, no content-type.
fn opens_only_unbound(policy: Policy, ring: &Arc<bulla_seal::ring::Ring>, der: &[u8], case: &str) {
    let (strict, loose) = foreign(policy);
    let opened = open(&loose, ring, der.to_vec()).unwrap_or_else(|error| panic!("{case}: {error:?}"));
    assert_eq!(opened.content.bytes, payload().bytes, "{case}");
    assert_eq!((opened.content.content_type, opened.seal.bound), (None, false), "{case}");
    let refused = open(&strict, ring, der.to_vec()).unwrap_err();
    assert_eq!(refused.cause(), "unbound", "{case}: {refused:?}");
}

#[test]
fn foreign_signatures_open_under_bind_none_and_are_refused_under_required() {
    let world = World::new();
    let files = Files::new(&world);
    for spec in KeySpec::classical() {
        let alice = world.person(&format!("alice {spec}"), spec);
        let (certificate, key) = files.person(&alice, "alice");
        let ring = world.ring(&format!("alice-{spec}"), &[&alice], &[]);
        for (md, digest) in [("sha256", Digest::Sha256), ("sha384", Digest::Sha384), ("sha512", Digest::Sha512)] {
            let mut options = vec![vec![], vec!["-keyid"], vec!["-cades"]];
            if matches!(spec, KeySpec::Rsa(_)) && !(spec == RSA_SMALL && md == "sha512") {
                options.push(vec!["-keyopt", "rsa_padding_mode:pss", "-keyopt", "rsa_pss_saltlen:digest"]);
            }
            for extra in options {
                let mut arguments = vec![
                    "-sign",
                    "-nodetach",
                    "-outform",
                    "DER",
                    "-md",
                    md,
                    "-signer",
                    text(&certificate),
                    "-inkey",
                    text(&key),
                ];
                arguments.extend(&extra);
                let der = files.cms(&payload().bytes, &arguments);
                let case = format!("{spec} {md} {extra:?}");
                opens_only_unbound(policy_of(Some(digest), None, &[]), &ring, &der, &case);
            }
        }
    }
}

#[test]
fn foreign_envelopes_open_under_bind_none_and_are_refused_under_required() {
    let world = World::new();
    let files = Files::new(&world);
    let alice = world.person("alice", P256);
    let (alice_certificate, alice_key) = files.person(&alice, "alice");
    let signed = files.cms(
        &payload().bytes,
        &[
            "-sign",
            "-nodetach",
            "-outform",
            "DER",
            "-md",
            "sha256",
            "-signer",
            text(&alice_certificate),
            "-inkey",
            text(&alice_key),
        ],
    );
    for spec in KeySpec::classical() {
        let bob = world.person(&format!("bob {spec}"), spec);
        let (certificate, _) = files.person(&bob, "bob");
        let ring = world.ring(&format!("bob-{spec}"), &[&bob], &[&alice]);
        for (name, cipher) in [
            ("-aes-128-gcm", ContentCipher::Aes128Gcm),
            ("-aes-256-gcm", ContentCipher::Aes256Gcm),
            ("-aes-128-cbc", ContentCipher::Aes128Cbc),
            ("-aes-256-cbc", ContentCipher::Aes256Cbc),
        ] {
            let options: &[&str] = match spec {
                KeySpec::Rsa(_) => &["-keyopt", "rsa_padding_mode:oaep", "-keyopt", "rsa_oaep_md:sha256"],
                _ => &["-keyopt", "ecdh_kdf_md:sha256"],
            };
            let encrypt = |input: &[u8]| {
                let mut arguments = vec!["-encrypt", "-outform", "DER", name, "-recip", text(&certificate)];
                arguments.extend(options);
                files.cms(input, &arguments)
            };
            let case = format!("{spec} {name}");
            let confidential = policy_of(None, Some(cipher), &[&bob]);
            if cipher.is_authenticated() {
                opens_only_unbound(confidential, &ring, &encrypt(&payload().bytes), &case);
            } else {
                // Nothing could bind it, which is what WEAK(YES) says.
                let opened = open(&Arc::new(confidential), &ring, encrypt(&payload().bytes)).unwrap();
                assert_eq!(opened.content.bytes, payload().bytes, "{case}");
            }
            let private = policy_of(Some(Digest::Sha256), Some(cipher), &[&bob]);
            let private = Policy { signers: vec![alice.dn.clone()], ..private };
            opens_only_unbound(private, &ring, &encrypt(&signed), &case);
        }
    }
}

#[test]
fn openssl_defaults_that_are_weaker_than_the_profile_are_refused_before_any_key_is_used() {
    let world = World::new();
    let files = Files::new(&world);
    for (spec, name) in [(RSA, "-aes-256-gcm"), (P256, "-aes-256-gcm"), (RSA, "-des3"), (RSA, "-aes-192-cbc")] {
        let bob = world.person(&format!("bob {spec}"), spec);
        let (certificate, _) = files.person(&bob, "bob");
        let ring = world.ring(&format!("bob{name}-{spec}"), &[&bob], &[]);
        let der = files.cms(&payload().bytes, &["-encrypt", "-outform", "DER", name, "-recip", text(&certificate)]);
        let (_, loose) = foreign(policy_of(None, Some(ContentCipher::Aes256Gcm), &[&bob]));
        let refused = bulla_seal::Opener::new().open(&loose, &ring, der.into(), expect(), now(), now()).err();
        assert_eq!(refused.as_ref().map(OpenError::cause), Some("weaker-than-policy"), "{spec} {name}: {refused:?}");
    }
}

#[test]
fn an_envelope_streamed_as_indefinite_ber_is_refused() {
    let world = World::new();
    let files = Files::new(&world);
    let alice = world.person("alice", RSA);
    let (certificate, key) = files.person(&alice, "alice");
    let ring = world.ring("alice", &[&alice], &[]);
    let der = files.cms(
        &payload().bytes,
        &["-sign", "-nodetach", "-stream", "-outform", "DER", "-signer", text(&certificate), "-inkey", text(&key)],
    );
    assert_eq!(der.get(1), Some(&0x80), "openssl wrote indefinite lengths");
    assert!(bulla_seal::looks_sealed(&der));
    let (_, loose) = foreign(policy_of(Some(Digest::Sha256), None, &[]));
    assert_eq!(open(&loose, &ring, der).unwrap_err().cause(), "malformed");
}

#[test]
fn two_signers_open_only_when_both_are_good() {
    let world = World::new();
    let other_world = World::new();
    let files = Files::new(&world);
    let (alice, bob) = (world.person("alice", RSA), world.person("bob", P256));
    let eve = other_world.person("eve", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let (a, a_key) = files.person(&alice, "alice");
    let (_, loose) = foreign(policy_of(Some(Digest::Sha256), None, &[]));
    for (second, cause) in [(&bob, None), (&eve, Some("untrusted"))] {
        let (s, s_key) = files.person(second, "second");
        let der = files.cms(
            &payload().bytes,
            &[
                "-sign",
                "-nodetach",
                "-outform",
                "DER",
                "-md",
                "sha256",
                "-signer",
                text(&a),
                "-inkey",
                text(&a_key),
                "-signer",
                text(&s),
                "-inkey",
                text(&s_key),
            ],
        );
        let opened = open(&loose, &ring, der);
        assert_eq!(opened.as_ref().err().map(OpenError::cause), cause, "{opened:?}");
    }
}
