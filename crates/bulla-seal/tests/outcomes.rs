//! The table of outcomes: what is refused when a message is put, what becomes of one that does not
//! open, and which word says why.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::SystemTime;

use bulla_device::{CpuDevice, DeviceError, Digest, Output, Random, RandomError, SystemRandom};
use bulla_seal::certificate::KeyUse;
use bulla_seal::policy::{Bind, ContentCipher, KeyReuse, KeyTransport, Quality, SealedAt, SignatureScheme, Toleration};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{
    Bound, Content, Expect, OpenError, Opener, Outcome, Packing, Policy, SealError, Sealer, Step, drive, inspect,
    looks_sealed,
};
use bytes::Bytes;
use common::*;

const SHA256: Option<Digest> = Some(Digest::Sha256);
const GCM: Option<ContentCipher> = Some(ContentCipher::Aes256Gcm);

fn refused_put(policy: Policy, ring: &Arc<Ring>, at: SystemTime) -> SealError {
    Sealer::new(Arc::new(policy), Arc::clone(ring), None, at).unwrap_err()
}

#[test]
fn a_policy_that_cannot_be_satisfied_refuses_the_put() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", P256), world.person("bob", P256));
    let keyless = world.ring("keyless", &[], &[&bob]);
    let ring = world.ring("alice", &[&alice], &[&bob]);
    let far = later(400 * DAY);
    let unknown = Policy { recipients: vec![dn("CN=unknown")], ..policy_of(None, GCM, &[&bob]) };
    let oaep = Policy { key_transport: KeyTransport::Oaep, ..policy_of(None, GCM, &[&bob]) };
    for (error, cause) in [
        (refused_put(policy_of(SHA256, None, &[]), &keyless, now()), "no-key"),
        (refused_put(unknown, &ring, now()), "unknown-dn"),
        (refused_put(oaep, &ring, now()), "recipient-key"),
        (refused_put(policy_of(None, GCM, &[&bob]), &ring, far), "certificate-expired"),
        (refused_put(policy_of(SHA256, None, &[]), &ring, far), "certificate-expired"),
        (refused_put(Policy::new("Q"), &ring, now()), "policy"),
        (refused_put(Policy { encrypt: GCM, ..Policy::new("Q") }, &ring, now()), "policy"),
    ] {
        assert_eq!((error.cause(), error.reason_code()), (cause, 2063), "{error}");
    }
}

#[test]
fn a_usage_that_a_certificate_does_not_allow_refuses_the_put() {
    let world = World::new();
    let signer = world.person_for("signer", RSA, vec![KeyUse::DocSign], 365, now());
    let reader = world.person_for("reader", RSA, vec![KeyUse::DataEncrypt], 365, now());
    let ring = world.ring("both", &[&signer], &[&reader]);
    assert_eq!(refused_put(policy_of(None, GCM, &[&signer]), &ring, now()).cause(), "certificate-usage");
    let ring = world.ring("reader", &[&reader], &[]);
    assert_eq!(refused_put(policy_of(SHA256, None, &[]), &ring, now()).cause(), "certificate-usage");
    // keyEncipherment without dataEncipherment, as ordinary S/MIME certificates have it.
    let ordinary = world.person_for("ordinary", RSA, vec![KeyUse::Handshake], 365, now());
    let ring = world.ring("ordinary", &[&ordinary], &[]);
    let confidential = policy(None, GCM, &[&ordinary]);
    assert_eq!(open(&confidential, &ring, seal(&confidential, &ring)).unwrap().content, payload());
}

#[test]
fn pkcs1_key_transport_needs_a_certificate_that_is_for_nothing_else() {
    let world = World::new();
    let (dual, single) =
        (world.person("dual", RSA), world.person_for("single", RSA, vec![KeyUse::DataEncrypt], 365, now()));
    let ring = world.ring("ring", &[&dual], &[&single]);
    let pkcs1 = |person| Policy { key_transport: KeyTransport::Pkcs1, ..policy_of(None, GCM, &[person]) };
    assert_eq!(refused_put(pkcs1(&dual), &ring, now()).cause(), "recipient-key");
    let policy = Arc::new(pkcs1(&single));
    assert!(Sealer::new(policy, ring, None, now()).is_ok());
}

#[test]
fn a_message_over_the_queues_length_is_refused_before_any_key_is_used() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let mut sealer = sealer(&policy(SHA256, GCM, &[&alice]), &ring);
    let len = sealer.sealed_len(&payload(), &bound());
    assert_eq!(sealer.check_len(&payload(), &bound(), len), Ok(()));
    let error = sealer.check_len(&payload(), &bound(), len - 1).unwrap_err();
    assert_eq!((error.reason_code(), error.cause()), (2030, "too-long"));
    assert_eq!(seal_with(&mut sealer, payload()).unwrap().der.len(), len);
}

#[test]
fn what_is_too_long_to_be_bound_is_refused() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let mut sealer = sealer(&policy(SHA256, None, &[]), &ring);
    let mut try_with = |content: Content, bound: Bound| {
        sealer.seal(content, &bound, now(), &mut SystemRandom).err().map(|error| error.cause())
    };
    let long = "x".repeat(2000);
    assert_eq!(try_with(payload(), Bound { destination: long.clone(), ..bound() }), Some("binding-too-long"));
    let id = Bytes::from(long.clone());
    assert_eq!(try_with(payload(), Bound { message_id: id, ..bound() }), Some("binding-too-long"));
    let content = Content { content_type: Some(long.clone()), ..payload() };
    assert_eq!(try_with(content, bound()), Some("binding-too-long"));
    let policy = policy(SHA256, None, &[]);
    let error = Sealer::new(policy, Arc::clone(&ring), Some(long), now()).unwrap_err();
    assert_eq!(error.cause(), "binding-too-long");
}

#[test]
fn sealed_at_client_keeps_the_queue_manager_from_sealing() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = Arc::new(Policy { sealed_at: SealedAt::Client, ..policy_of(SHA256, None, &[]) });
    let error = Sealer::new(Arc::clone(&policy), Arc::clone(&ring), Some("QM1".into()), now()).unwrap_err();
    assert_eq!(error, SealError::ClientMustSeal);
    assert!(Sealer::new(policy, ring, None, now()).is_ok());
}

#[test]
fn a_sealer_whose_certificate_expires_meanwhile_stops() {
    let world = World::new();
    let alice = world.person_for("alice", P256, vec![KeyUse::DocSign, KeyUse::KeyAgree], 1, now());
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = Policy { key_reuse: KeyReuse::Unlimited, ..policy_of(None, GCM, &[&alice]) };
    let mut sealer = sealer(&Arc::new(policy), &ring);
    let mut at = |now| sealer.seal(payload(), &bound(), now, &mut SystemRandom).err().map(|error| error.cause());
    assert_eq!(at(later(DAY - 10)), None);
    assert_eq!(at(later(DAY + 10)), Some("certificate-expired"));
    assert_eq!(at(later(DAY - 5)), None);
}

#[test]
fn no_randomness_and_no_device_refuse_the_put() {
    struct Dry;
    impl Random for Dry {
        fn fill(&mut self, _: &mut [u8]) -> Result<(), RandomError> {
            Err(RandomError)
        }
    }
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let mut confidential = sealer(&policy(None, GCM, &[&alice]), &ring);
    let error = confidential.seal(payload(), &bound(), now(), &mut Dry).err().unwrap();
    assert_eq!(error.cause(), "key-unavailable");
    let mut signing = sealer(&policy(SHA256, None, &[]), &ring);
    let Step::Device(_, go_on) = signing.seal(payload(), &bound(), now(), &mut SystemRandom).unwrap() else {
        panic!("a signature needs a device");
    };
    let error = go_on(Err(DeviceError::Away { device: "CARD".into() })).err().unwrap();
    assert_eq!((error.cause(), error.to_string().as_str()), ("key-unavailable", "device CARD does not answer"));
}

#[test]
fn a_device_that_is_away_leaves_the_message_where_it_is() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(None, GCM, &[&alice]);
    let der = seal(&policy, &ring);
    for error in [
        DeviceError::Away { device: "CARD".into() },
        DeviceError::Fault { device: "CARD".into() },
        DeviceError::Deadline,
    ] {
        let step = Opener::new().open(&policy, &ring, der.clone(), expect(), now(), now()).unwrap();
        let Step::Device(_, go_on) = step else { panic!("an unwrap needs a device") };
        let error = go_on(Err(error)).err().unwrap();
        assert_eq!((error.cause(), error.outcome()), ("key-unavailable", Outcome::Retry));
    }
}

#[test]
fn an_answer_of_the_wrong_length_from_a_device_is_cannot_decrypt() {
    let world = World::new();
    let (alice, carol) = (world.person("alice", RSA), world.person("carol", P256));
    let ring = world.ring("ring", &[&alice, &carol], &[]);
    for person in [&alice, &carol] {
        let policy = policy(None, GCM, &[person]);
        let der = seal(&policy, &ring);
        for len in [0, 1, 16, 31, 33, 64] {
            let step = Opener::new().open(&policy, &ring, der.clone(), expect(), now(), now()).unwrap();
            let Step::Device(_, go_on) = step else { panic!("an unwrap needs a device") };
            assert_eq!(go_on(Ok(Output::new(vec![7; len]))).err(), Some(OpenError::CannotDecrypt));
        }
    }
}

fn refused_get(policy: &Arc<Policy>, ring: &Arc<Ring>, der: &Bytes, expect: Expect) -> (&'static str, Outcome) {
    let error = open_at(&Opener::new(), policy, ring, der.clone(), expect, now(), now()).unwrap_err();
    assert_eq!(error.reason_code(), 2063);
    assert!(!error.to_string().is_empty());
    (error.cause(), error.outcome())
}

#[test]
fn a_message_that_was_moved_or_whose_properties_changed_does_not_open() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    for policy in [policy(SHA256, None, &[]), policy(None, GCM, &[&alice]), policy(SHA256, GCM, &[&alice])] {
        let der = seal(&policy, &ring);
        let other = Bytes::from_static(b"other");
        for (expect, cause) in [
            (Expect { destinations: vec!["OTHER@QM1".into()], ..expect() }, "moved"),
            (Expect { destinations: vec![], ..expect() }, "moved"),
            (Expect { message_id: other.clone(), ..expect() }, "tampered"),
            (Expect { properties: other.clone(), ..expect() }, "tampered"),
            (Expect { annotations: other.clone(), ..expect() }, "tampered"),
            (Expect { application_properties: other, ..expect() }, "tampered"),
        ] {
            assert_eq!(refused_get(&policy, &ring, &der, expect.clone()), (cause, Outcome::Defective));
            // Where attributes are, they must fit, even where none are needed.
            let loose = Arc::new(Policy { bind: Bind::None, ..(*policy).clone() });
            assert_eq!(refused_get(&loose, &ring, &der, expect).0, cause);
        }
        let listed = Arc::new(Policy { bind_names: vec!["ORDERS@QM1".into()], ..(*policy).clone() });
        let elsewhere = Expect { destinations: vec!["OTHER@QM1".into()], ..expect() };
        open_at(&Opener::new(), &listed, &ring, der, elsewhere, now(), now()).unwrap();
    }
}

#[test]
fn an_unlisted_or_untrusted_signer_does_not_pass() {
    let (world, elsewhere) = (World::new(), World::new());
    let (alice, bob) = (world.person("alice", P256), world.person("bob", P256));
    let ring = world.ring("alice", &[&alice], &[&bob]);
    for encrypt in [None, GCM, Some(ContentCipher::Aes256Cbc)] {
        let to: &[&Person] = if encrypt.is_some() { &[&alice] } else { &[] };
        let plain = policy_of(SHA256, encrypt, to);
        let der = seal(&Arc::new(plain.clone()), &ring);
        let signers = |dns: Vec<_>| Arc::new(Policy { signers: dns, ..plain.clone() });
        let listed = signers(vec![bob.dn.clone(), alice.dn.clone()]);
        open(&listed, &ring, der.clone()).unwrap();
        let unlisted = signers(vec![bob.dn.clone()]);
        let cause = if plain.is_signed_cbc() { "cannot-decrypt" } else { "signer-not-authorised" };
        assert_eq!(refused_get(&unlisted, &ring, &der, expect()), (cause, Outcome::Defective));
        // The same name from an authority that is not trusted here, in a letter to bob.
        let user = format!("impostor-{}", encrypt.map_or("none", ContentCipher::as_str));
        let impostor = elsewhere.person("alice", P256);
        elsewhere.ring(&user, &[&impostor], &[&bob]);
        ring::install_trust(&elsewhere.ring_dir(&user), "other", world.authority.root()).unwrap();
        let to_bob: &[&Person] = if encrypt.is_some() { &[&bob] } else { &[] };
        let policy = Arc::new(Policy { signers: vec![alice.dn.clone()], ..policy_of(SHA256, encrypt, to_bob) });
        let der = seal(&policy, &elsewhere.load(&user));
        let reader = world.ring(&user, &[&bob], &[&alice]);
        // After CBC only the signers of the ring are known at all.
        let cause = if plain.encrypt == Some(ContentCipher::Aes256Cbc) { "cannot-decrypt" } else { "untrusted" };
        assert_eq!(refused_get(&policy, &reader, &der, expect()).0, cause);
        // Not even when the ring holds the impostor's certificate: it has no path.
        let knowing = world.ring(&format!("{user}-knowing"), &[&bob], &[&impostor]);
        assert_eq!(refused_get(&policy, &knowing, &der, expect()).0, "untrusted");
    }
}

#[test]
fn a_signed_cbc_policy_names_signers_of_one_kind_of_key_that_the_ring_knows() {
    let world = World::new();
    let (alice, bob, carol) = (world.person("alice", RSA), world.person("bob", RSA), world.person("carol", P256));
    let ring = world.ring("alice", &[&alice], &[&bob, &carol]);
    let named = |signers: &[&Person]| Policy {
        signers: signers.iter().map(|person| person.dn.clone()).collect(),
        ..policy_of(SHA256, Some(ContentCipher::Aes256Cbc), &[&alice])
    };
    let good = Arc::new(named(&[&alice, &bob]));
    let der = seal(&good, &ring);
    open(&good, &ring, der.clone()).unwrap();
    // What an older version wrote down is loaded, and then neither seals nor opens.
    let unnamed = named(&[]);
    unnamed.check().unwrap();
    let error = unnamed.check_signers().unwrap_err().to_string();
    assert!(error.contains("SIGNALG with a CBC cipher needs SIGNER"), "{error}");
    assert_eq!(refused_put(unnamed.clone(), &ring, now()).cause(), "policy");
    for (policy, says) in [
        (unnamed, "needs SIGNER"),
        (named(&[&alice, &carol]), "CN=alice,O=Bulla has RSA 2048, CN=carol,O=Bulla has NISTECC 256"),
        (Policy { signers: vec![dn("CN=dave")], ..named(&[]) }, "ring of alice: CN=dave has none there"),
    ] {
        let policy = Arc::new(policy);
        let error = open(&policy, &ring, der.clone()).unwrap_err();
        assert_eq!((error.cause(), error.outcome()), ("policy", Outcome::Retry));
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn another_protection_than_the_policys_does_not_open() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let policies = [
        policy(SHA256, None, &[]),
        policy(Some(Digest::Sha384), None, &[]),
        policy(None, GCM, &[&alice]),
        policy(None, Some(ContentCipher::Aes128Gcm), &[&alice]),
        policy(None, Some(ContentCipher::Aes256Cbc), &[&alice]),
        policy(SHA256, GCM, &[&alice]),
        policy(SHA256, Some(ContentCipher::Aes256Cbc), &[&alice]),
        policy(Some(Digest::Sha512), GCM, &[&alice]),
    ];
    for (made, sealing) in policies.iter().enumerate() {
        let der = seal(sealing, &ring);
        for (asked, opening) in policies.iter().enumerate() {
            let result = open(opening, &ring, der.clone());
            if made == asked {
                result.unwrap();
                continue;
            }
            // WEAK(YES) takes a signed CBC envelope for an unsigned one: both are the same container.
            if opening.sign.is_none() && opening.encrypt == sealing.encrypt && !opening.can_bind() {
                continue;
            }
            let error = result.unwrap_err();
            let expected: &[&str] = match (sealing.encrypt == opening.encrypt, opening.can_bind()) {
                (true, true) => &["weaker-than-policy", "unsigned", "cannot-decrypt"],
                _ => &["weaker-than-policy"],
            };
            assert!(expected.contains(&error.cause()), "made {made}, asked {asked}: {error:?}");
        }
        let nothing = Arc::new(Policy::new("ORDERS"));
        assert_eq!(refused_get(&nothing, &ring, &der, expect()).0, "weaker-than-policy");
    }
}

#[test]
fn a_weak_envelope_opens_as_raw_bytes_and_says_that_it_is_unbound() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(None, Some(ContentCipher::Aes256Cbc), &[&alice]);
    let der = seal(&policy, &ring);
    // Anywhere: nothing says where it belongs.
    let opened = open_at(&Opener::new(), &policy, &ring, der, Expect::default(), now(), now()).unwrap();
    assert_eq!((opened.content, opened.seal.bound), (payload(), false));
}

#[test]
fn a_weak_envelope_opens_with_no_key_but_those_of_its_policy() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", RSA), world.person("bob", RSA));
    let ring = world.ring("both", &[&alice, &bob], &[]);
    let weak = |to: &Person| policy(None, Some(ContentCipher::Aes256Cbc), &[to]);
    let der = seal(&weak(&bob), &ring);
    // Bob's key opens what is sealed with GCM elsewhere: asked through CBC it would tell of that.
    assert_eq!(refused_get(&weak(&alice), &ring, &der, expect()).0, "weaker-than-policy");
    assert_eq!(refused_get(&weak(&alice), &world.ring("alice", &[&alice], &[]), &der, expect()).0, "not-a-recipient");
    open(&weak(&bob), &ring, der).unwrap();
    // One key under two names is one key.
    let ring = world.ring("twice", &[&bob, &world.again("carol", &bob)], &[]);
    assert_eq!(refused_get(&weak(&bob), &ring, &seal(&weak(&bob), &ring), expect()).0, "weaker-than-policy");
}

#[test]
fn expiry_is_judged_by_the_time_of_put_and_revocation_by_the_present() {
    let world = World::new();
    let alice = world.person_for("alice", P256, vec![KeyUse::DocSign], 1, now());
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(SHA256, None, &[]);
    let der = seal(&policy, &ring);
    let opener = Opener::new();
    let open = |ring: &Arc<Ring>, put_at, now| {
        let result = open_at(&opener, &policy, ring, der.clone(), expect(), put_at, now);
        result.err().map(|error| (error.cause(), error.outcome()))
    };
    assert_eq!(open(&ring, now(), now()), None);
    assert_eq!(open(&ring, now(), later(30 * DAY)), None, "expired since, but good when it was put");
    assert_eq!(open(&ring, later(30 * DAY), later(30 * DAY)), Some(("certificate-expired", Outcome::Defective)));
    let early = now() - std::time::Duration::from_secs(30 * DAY);
    assert_eq!(open(&ring, early, now()), Some(("certificate-not-yet-valid", Outcome::Defective)));
    // Revoked after it was put: it does not open any more.
    world.authority.revoke(&alice.certificate.serial_hex(), later(60)).unwrap();
    ring::install_crl(&world.ring_dir("alice"), "ca", &world.authority.crl().unwrap()).unwrap();
    let ring = world.load("alice");
    assert_eq!(open(&ring, now(), later(120)), Some(("certificate-revoked", Outcome::Defective)));
    // A list past its date: nothing is known, so the message stays.
    assert_eq!(open(&ring, now(), later(400 * DAY)), Some(("crl-stale", Outcome::Retry)));
}

#[test]
fn a_remembered_verdict_ends_when_the_list_it_rests_on_does() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let dir = world.ring_dir("alice");
    world.ring("alice", &[&alice], &[]);
    world.authority.write_crl(1, now()).unwrap();
    ring::install_crl(&dir, "ca", &world.authority.crl().unwrap()).unwrap();
    let ring = world.load("alice");
    let policy = policy(SHA256, None, &[]);
    let der = seal(&policy, &ring);
    let opener = Opener::new();
    let at = |now| {
        let result = open_at(&opener, &policy, &ring, der.clone(), expect(), later(60), now);
        result.err().map(|error| error.cause())
    };
    assert_eq!((at(later(100)), at(later(200))), (None, None));
    assert_eq!(at(later(2 * DAY)), Some("crl-stale"));
    assert_eq!(at(later(300)), None);
}

#[test]
fn a_clear_message_passes_only_where_it_is_tolerated() {
    let enforce = policy_of(SHA256, None, &[]);
    let tolerate = Policy { toleration: Toleration::Tolerate, ..enforce.clone() };
    let error = Opener::tolerate(&enforce, payload()).unwrap_err();
    assert_eq!((error.cause(), error.outcome()), ("not-sealed", Outcome::Defective));
    assert_eq!(Opener::tolerate(&tolerate, payload()).unwrap().into_inner().content, payload());
    // A defective seal is never tolerated.
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let mut broken = seal(&Arc::new(tolerate.clone()), &ring).to_vec();
    broken.truncate(100);
    assert!(looks_sealed(&broken));
    let content = Content { packing: Packing::Data, content_type: None, bytes: broken.clone().into() };
    assert_eq!(Opener::tolerate(&tolerate, content).unwrap_err().cause(), "malformed");
    assert_eq!(open(&Arc::new(tolerate), &ring, broken).unwrap_err().cause(), "malformed");
    for clear in
        [&b""[..], b"0", b"hello", &[0x30], &[0x30, 0x80], &[0x30, 0x03, 0x02, 0x01, 0x00], &[0x30, 0xff, 0, 0]]
    {
        assert!(!looks_sealed(clear));
        assert_eq!(open(&policy(SHA256, None, &[]), &ring, clear.to_vec()).unwrap_err().cause(), "not-sealed");
    }
}

#[test]
fn arriving_sealed_means_the_policys_quality_recipients_place_and_a_good_signature() {
    let world = World::new();
    let (alice, bob, carol) = (world.person("alice", P256), world.person("bob", RSA), world.person("carol", P256));
    // The checking side knows everyone but has no private key.
    let checker = world.ring("checker", &[], &[&alice, &bob, &carol]);
    let sender = world.ring("alice", &[&alice], &[&bob, &carol]);
    let opener = Opener::new();
    let check = |policy: &Arc<Policy>, der: &Bytes, expect: Expect| {
        let checked = opener.check_arrived(policy, &checker, der, &expect, now());
        checked.and_then(|step| drive(step, &mut CpuDevice::new("cpu"))).err().map(|error| error.cause())
    };
    let elsewhere = || Expect { destinations: vec!["OTHER@QM1".into()], ..expect() };
    let integrity = policy(SHA256, None, &[]);
    let der = seal(&integrity, &sender);
    assert_eq!(check(&integrity, &der, expect()), None);
    assert_eq!(check(&integrity, &der, elsewhere()), Some("moved"));
    let mut bent = der.to_vec();
    *bent.last_mut().unwrap() ^= 1;
    assert_eq!(check(&integrity, &bent.into(), expect()), Some("tampered"));
    let unlisted = Arc::new(Policy { signers: vec![bob.dn.clone()], ..(*integrity).clone() });
    assert_eq!(check(&unlisted, &der, expect()), Some("signer-not-authorised"));
    for sign in [None, SHA256] {
        let policy_to = |to: &[&Person]| policy(sign, GCM, to);
        let both = policy_to(&[&bob, &carol]);
        let der = seal(&both, &sender);
        assert_eq!(check(&both, &der, expect()), None);
        // With privacy the binding is inside: only the reader sees that the message was moved.
        let moved = if sign.is_some() { None } else { Some("moved") };
        assert_eq!(check(&both, &der, elsewhere()), moved);
        for other in [policy_to(&[&bob]), policy_to(&[&bob, &carol, &alice]), policy_to(&[&bob, &alice])] {
            assert_eq!(check(&other, &der, expect()), Some("weaker-than-policy"));
        }
        let quality = policy(if sign.is_some() { None } else { SHA256 }, GCM, &[&bob, &carol]);
        let other = if sign.is_some() { "unbound" } else { "weaker-than-policy" };
        assert_eq!(check(&quality, &der, expect()), Some(other));
    }
    assert_eq!(check(&integrity, &Bytes::from_static(b"clear"), expect()), Some("not-sealed"));
}

#[test]
fn two_rings_that_take_turns_each_know_their_own_recipients() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", P256), world.person("bob", RSA));
    let sender = world.ring("alice", &[&alice], &[&bob]);
    let rings = [world.ring("knows", &[], &[&bob]), world.ring("knows-not", &[], &[&alice])];
    let policy = policy(None, GCM, &[&bob]);
    let der = seal(&policy, &sender);
    let opener = Opener::new();
    for _ in 0..3 {
        let causes = rings.each_ref().map(|ring| {
            let checked = opener.check_arrived(&policy, ring, &der, &expect(), now());
            checked.err().map(|error| error.cause())
        });
        assert_eq!(causes, [None, Some("weaker-than-policy")]);
    }
}

#[test]
fn without_a_ring_a_seal_is_checked_by_its_form() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", P256), world.person("bob", RSA));
    let sender = world.ring("alice", &[&alice], &[&bob]);
    let opener = Opener::new();
    let check = |policy: &Arc<Policy>, der: &Bytes, expect: Expect| {
        opener.check_form(policy, der, &expect, now()).err().map(|error| error.cause())
    };
    let elsewhere = || Expect { destinations: vec!["OTHER@QM1".into()], ..expect() };
    for (sign, encrypt) in [(SHA256, None), (SHA256, GCM), (None, GCM)] {
        let readers = [&bob];
        let policy = policy(sign, encrypt, if encrypt.is_some() { &readers[..] } else { &[] });
        let der = seal(&policy, &sender);
        assert_eq!(check(&policy, &der, expect()), None);
        let moved = if policy.quality() == Quality::Privacy { None } else { Some("moved") };
        assert_eq!(check(&policy, &der, elsewhere()), moved);
        assert_eq!(check(&policy, &Bytes::from_static(b"clear"), expect()), Some("not-sealed"));
    }
    let integrity = policy(SHA256, None, &[]);
    let stronger = policy(SHA256, GCM, &[&bob]);
    assert_eq!(check(&stronger, &seal(&integrity, &sender), expect()), Some("weaker-than-policy"));
}

#[test]
fn two_certificates_of_one_name_are_told_apart_by_their_serial_numbers() {
    let world = World::new();
    let (first, second) = (world.person("bob", RSA), world.person("bob", RSA));
    let sender = world.ring("sender", &[], &[&first, &second]);
    let policy = policy(None, GCM, &[&first]);
    let der = seal(&policy, &sender);
    let rings = [world.ring("first", &[&first], &[]), world.ring("second", &[&second], &[])];
    let opened = rings.iter().filter(|ring| open(&policy, ring, der.clone()).is_ok()).count();
    assert_eq!(opened, 1, "one of the two was chosen, by a rule");
    let not_mine = rings.iter().filter_map(|ring| open(&policy, ring, der.clone()).err()).next().unwrap();
    assert_eq!(not_mine.outcome(), Outcome::NotMine);
}

#[test]
fn many_threads_open_under_one_content_key() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = Arc::new(Policy { key_reuse: KeyReuse::Unlimited, ..policy_of(None, GCM, &[&alice]) });
    let mut sealer = sealer(&policy, &ring);
    let messages: Vec<Bytes> = (0..64).map(|_| seal_with(&mut sealer, payload()).unwrap().der).collect();
    let opener = Opener::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for der in &messages {
                    assert_eq!(open_with(&opener, &policy, &ring, der.clone()).unwrap().content, payload());
                }
            });
        }
    });
}

#[test]
fn a_sealer_knows_when_policy_or_ring_changed() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = Arc::new(Policy { key_reuse: KeyReuse::Unlimited, ..policy_of(None, GCM, &[&alice]) });
    let mut sealer = sealer(&policy, &ring);
    assert!(sealer.is_for(&policy, &ring) && !sealer.has_live_key(now()));
    seal_with(&mut sealer, payload()).unwrap();
    assert!(sealer.has_live_key(now()) && !sealer.has_live_key(later(4000)));
    assert!(!sealer.is_for(&Arc::new((*policy).clone()), &ring));
    assert!(!sealer.is_for(&policy, &world.load("alice")));
}

#[test]
fn a_signature_scheme_other_than_the_policys_is_accepted_and_another_digest_is_not() {
    let world = World::new();
    let alice = world.person("alice", RSA);
    let ring = world.ring("alice", &[&alice], &[]);
    let pss = Arc::new(Policy { signature_scheme: SignatureScheme::Pss, ..policy_of(SHA256, None, &[]) });
    let pkcs1 = policy(SHA256, None, &[]);
    open(&pkcs1, &ring, seal(&pss, &ring)).unwrap();
    open(&pss, &ring, seal(&pkcs1, &ring)).unwrap();
}

#[test]
fn an_inspection_says_what_the_envelope_shows() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", RSA), world.person("bob", P256));
    let ring = world.ring("alice", &[&alice], &[&bob]);
    let signed = inspect(&seal(&policy(SHA256, None, &[]), &ring)).unwrap();
    assert_eq!((signed.container, signed.quality), ("signed-data", "integrity"));
    assert_eq!(signed.signers[0].dn.as_deref(), Some("CN=alice,O=Bulla"));
    assert_eq!(signed.signers[0].algorithm, "RSA PKCS#1 v1.5 with SHA256");
    assert_eq!(signed.binding.as_ref().unwrap().destination, "ORDERS@QM1");
    assert_eq!(signed.content_type.as_deref(), Some("text/plain"));
    let der = seal(&policy(SHA256, GCM, &[&alice, &bob]), &ring);
    let private = inspect(&der).unwrap();
    assert_eq!((private.quality, private.cipher), ("privacy or confidentiality", Some("AES256")));
    assert_eq!((private.binding.as_ref(), private.sizes.attributes), (None, 0), "the binding is inside");
    let algorithms: Vec<_> = private.recipients.iter().map(|recipient| recipient.algorithm.as_str()).collect();
    assert!(algorithms.contains(&"RSA-OAEP with SHA256, 2048 bits"));
    assert!(algorithms.contains(&"ephemeral ECDH with SHA256, AES-256 key wrap"));
    assert!(private.signers.is_empty(), "the signature is inside");
    let sizes = private.sizes;
    assert_eq!(sizes.total, der.len());
    assert_eq!(
        sizes.content + sizes.certificates + sizes.recipients + sizes.attributes + sizes.proof + sizes.structure,
        sizes.total
    );
    assert!(private.to_string().contains("issuer=\"CN=Test CA,O=Bulla\""));
    let confidential = inspect(&seal(&policy(None, GCM, &[&bob]), &ring)).unwrap();
    assert_eq!(confidential.quality, "confidentiality");
    assert_eq!(confidential.to_json()["binding"]["destination"], "ORDERS@QM1");
    assert_eq!(inspect(b"clear").unwrap_err(), OpenError::NotSealed);
}

#[test]
fn no_secret_is_shown_by_debug() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let ring = world.ring("alice", &[&alice], &[]);
    let policy = policy(None, GCM, &[&alice]);
    let mut sealer = sealer(&policy, &ring);
    let der = seal_with(&mut sealer, payload()).unwrap().der;
    let opener = Opener::new();
    let step = opener.open(&policy, &ring, der, expect(), now(), now()).unwrap();
    drive(step, &mut CpuDevice::new("cpu")).unwrap();
    assert_eq!(format!("{opener:?} {sealer:?}"), "Opener Sealer(ORDERS, alice)");
}
