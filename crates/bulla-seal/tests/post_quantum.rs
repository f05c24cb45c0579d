//! ML-DSA signers and ML-KEM recipients, alone and beside RSA and elliptic curves, as PQC allows them.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use bulla_device::{Digest, MlDsa, MlKem};
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::bundle::{Bundle, to_pkcs12};
use bulla_seal::certificate::create::{self, CreateError, Profile};
use bulla_seal::certificate::{Certificate, KeyKind, KeySpec, KeyUse, Passphrase, read_private_key};
use bulla_seal::policy::{Bind, ContentCipher, KeyReuse, KeyTransport, PolicyError, Pqc};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Opener, Policy, Sealer, inspect};
use bytes::Bytes;
use common::batches::together;
use common::tree::Node;
use common::*;
use openssl::x509::X509Crl;

const SIGNERS: [KeySpec; 5] =
    [RSA, P256, KeySpec::MlDsa(MlDsa::MlDsa44), KeySpec::MlDsa(MlDsa::MlDsa65), KeySpec::MlDsa(MlDsa::MlDsa87)];
const READERS: [KeySpec; 5] =
    [RSA, P256, KeySpec::MlKem(MlKem::MlKem512), KeySpec::MlKem(MlKem::MlKem768), KeySpec::MlKem(MlKem::MlKem1024)];
const ML_DSA: KeySpec = KeySpec::MlDsa(MlDsa::MlDsa65);
const ML_KEM: KeySpec = KeySpec::MlKem(MlKem::MlKem768);
const GCM: Option<ContentCipher> = Some(ContentCipher::Aes256Gcm);
const SHA512: Option<Digest> = Some(Digest::Sha512);

fn allowed(sign: Option<Digest>, encrypt: Option<ContentCipher>, signer: &Person, to: &[&Person]) -> Policy {
    let mut policy = policy_of(sign, encrypt, to);
    if sign.is_some() {
        policy.signers = vec![signer.dn.clone()];
    }
    Policy { pqc: Pqc::Allowed, ..policy }
}

fn cause(policy: &Arc<Policy>, ring: &Arc<Ring>, der: impl Into<Bytes>) -> &'static str {
    open(policy, ring, der).map_or_else(|error| error.cause(), |_| "opened")
}

#[test]
fn every_signer_and_reader_of_every_quality_opens_and_is_no_longer_than_predicted() {
    let world = World::new();
    for signer in SIGNERS {
        for reader in READERS {
            let alice = world.person(&format!("alice {signer} {reader}"), signer);
            let bob = world.person(&format!("bob {signer} {reader}"), reader);
            let ring = world.ring(&format!("a-{signer}-{reader}"), &[&alice], &[&bob]);
            let reading = world.ring(&format!("b-{signer}-{reader}"), &[&bob], &[&alice]);
            let exact = !matches!(signer, KeySpec::Ec(_));
            for (sign, encrypt) in [
                (SHA512, None),
                (SHA512, GCM),
                (None, GCM),
                (SHA512, Some(ContentCipher::Aes256Cbc)),
                (None, Some(ContentCipher::Aes256Cbc)),
            ] {
                let to: &[&Person] = if encrypt.is_some() { &[&bob] } else { &[] };
                let policy = Arc::new(allowed(sign, encrypt, &alice, to));
                let mut sealer = sealer(&policy, &ring);
                let predicted = sealer.sealed_len(&payload(), &bound());
                let der = seal_with(&mut sealer, payload()).unwrap().der;
                assert!(der.len() <= predicted, "{signer} {reader} {sign:?} {encrypt:?}");
                if exact || sign.is_none() {
                    assert_eq!(der.len(), predicted, "{signer} {reader} {sign:?} {encrypt:?}");
                }
                let opened = open(&policy, &reading, der.clone()).unwrap();
                assert_eq!(opened.content, payload());
                assert_eq!(opened.seal.signer.is_some(), sign.is_some());
                inspect(&der).unwrap();
                if sign.is_none() || encrypt == Some(ContentCipher::Aes256Cbc) {
                    continue;
                }
                let many = Arc::new(Policy { sign_batch: 64, ..(*policy).clone() });
                let sealed = together(&many, &ring, vec![payload(); 3]);
                let longest = Sealer::new(Arc::clone(&many), Arc::clone(&ring), None, now()).unwrap();
                let opener = Opener::new();
                for sealed in sealed {
                    assert!(sealed.der.len() <= longest.sealed_len(&payload(), &bound()));
                    assert_eq!(open_with(&opener, &many, &reading, sealed.der).unwrap().content, payload());
                }
            }
        }
    }
}

/// Someone with a key of each kind, for signing and for reading, under one name.
struct Both {
    old: Person,
    signs: Person,
    reads: Person,
}

impl Both {
    fn new(world: &World, name: &str) -> Both {
        let of = |key: KeySpec, at| world.person_for(name, key, KeyUse::usual(key.kind()), 365, at);
        // The old key is newer, so that it would be taken if nothing else decided.
        Both { signs: of(ML_DSA, now()), reads: of(ML_KEM, now()), old: of(P256, later(10)) }
    }

    fn all(&self) -> [&Person; 3] {
        [&self.old, &self.signs, &self.reads]
    }
}

#[test]
fn pqc_decides_which_key_of_a_user_signs_and_is_written_to() {
    let world = World::new();
    let (alice, bob) = (Both::new(&world, "alice"), Both::new(&world, "bob"));
    let ring = world.ring("alice", &alice.all(), &bob.all());
    let reading = world.ring("bob", &bob.all(), &alice.all());
    let of = |pqc| Arc::new(Policy { pqc, ..allowed(SHA512, GCM, &alice.old, &[&bob.old]) });
    let sealed = |pqc| {
        let policy = of(pqc);
        let mut sealer = Sealer::new(policy, Arc::clone(&ring), None, later(60)).unwrap();
        let step = sealer.seal(payload(), &bound(), later(60), &mut bulla_device::SystemRandom).unwrap();
        bulla_seal::drive(step, &mut bulla_device::CpuDevice::new("cpu")).unwrap().der
    };
    let opened = |pqc, der: &Bytes| {
        let (opener, policy) = (Opener::new(), of(pqc));
        open_at(&opener, &policy, &reading, der.clone(), expect(), later(60), later(60))
    };
    let recipient = |der: &Bytes| inspect(der).unwrap().recipients[0].algorithm.clone();
    let classical = sealed(Pqc::None);
    assert_eq!(recipient(&classical), "ephemeral ECDH with SHA256, AES-256 key wrap");
    let signer = opened(Pqc::None, &classical).unwrap().seal.signer_certificate;
    assert_eq!(signer.as_ref(), Some(alice.old.certificate.fingerprint()));
    for pqc in [Pqc::Allowed, Pqc::Required] {
        let der = sealed(pqc);
        assert_eq!(recipient(&der), "ML-KEM-768 with HKDF and SHA256, AES-256 key wrap");
        let seal = opened(pqc, &der).unwrap().seal;
        assert_eq!(seal.signer_certificate.as_ref(), Some(alice.signs.certificate.fingerprint()));
        assert_eq!(opened(Pqc::None, &der).unwrap_err().cause(), "weaker-than-policy");
    }
    opened(Pqc::Allowed, &classical).unwrap();
    assert_eq!(opened(Pqc::Required, &classical).unwrap_err().cause(), "weaker-than-policy");
}

#[test]
fn required_refuses_each_key_that_is_not_post_quantum_at_both_ends() {
    let world = World::new();
    let (old, new) = (world.person("alice", P256), world.person("alma", ML_DSA));
    let (bob, bert) = (world.person("bob", RSA), world.person("bert", ML_KEM));
    let sender = world.ring("both", &[&old, &new], &[&bob, &bert]);
    let of = |pqc, signer: &Person, to: &[&Person]| Arc::new(Policy { pqc, ..allowed(SHA512, GCM, signer, to) });
    let refused = |policy: Arc<Policy>, ring: &Arc<Ring>| {
        Sealer::new(policy, Arc::clone(ring), None, now()).unwrap_err().to_string()
    };
    assert_eq!(
        refused(of(Pqc::Required, &new, &[&bert, &bob]), &sender),
        "recipient dn=\"CN=bob,O=Bulla\": PQC(REQUIRED) needs an ML-KEM key"
    );
    assert_eq!(
        refused(of(Pqc::None, &old, &[&bert]), &sender),
        "recipient dn=\"CN=bert,O=Bulla\": PQC(NONE) needs an RSA or EC key; PQC(ALLOWED) takes this one"
    );
    let classical = world.ring("old", &[&old], &[&bert]);
    assert_eq!(
        refused(of(Pqc::Required, &old, &[&bert]), &classical),
        "no key of dn=\"CN=alice,O=Bulla\" signs under PQC(REQUIRED): it takes an ML-DSA key"
    );
    let modern = world.ring("new", &[&new], &[&bob]);
    assert_eq!(
        refused(of(Pqc::None, &new, &[&bob]), &modern),
        "no key of dn=\"CN=alma,O=Bulla\" signs under PQC(NONE): it takes an RSA or EC key, or PQC(ALLOWED)"
    );
    // What others sealed with a way for RSA beside, or an RSA or EC signer: the reader refuses it as well.
    let reading = world.ring("bert", &[&bert], &[]);
    let required = of(Pqc::Required, &new, &[&bert]);
    for (signer, to) in [(&new, vec![&bert, &bob]), (&old, vec![&bert])] {
        let policy = of(Pqc::Allowed, signer, &to);
        let der = seal(&policy, &sender);
        open(&policy, &reading, der.clone()).unwrap();
        let reader = Arc::new(Policy { signers: Vec::new(), ..(*required).clone() });
        assert_eq!(cause(&reader, &reading, der), "weaker-than-policy");
    }
    open(&required, &reading, seal(&required, &sender)).unwrap();
}

#[test]
fn no_weaker_digest_or_cipher_stands_beside_them() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", ML_DSA), world.person("bob", ML_KEM));
    let ring = world.ring("alice", &[&alice], &[&bob]);
    let refused =
        |policy: Policy| Sealer::new(Arc::new(policy), Arc::clone(&ring), None, now()).unwrap_err().to_string();
    assert_eq!(
        refused(allowed(Some(Digest::Sha256), None, &alice, &[])),
        "SIGNALG(SHA256) is weaker than a signature with ML-DSA-65; it takes SHA384 or SHA512"
    );
    seal(&Arc::new(allowed(Some(Digest::Sha384), None, &alice, &[])), &ring);
    let aes128 = allowed(None, Some(ContentCipher::Aes128Gcm), &alice, &[&bob]);
    let why = "recipient dn=\"CN=bob,O=Bulla\": an ML-KEM key needs ENCALG(AES256) or ENCALG(AES256CBC)";
    assert_eq!(refused(aes128.clone()), why);
    let required = Policy { pqc: Pqc::Required, ..aes128 };
    assert_eq!(required.check(), Err(PolicyError::PqcCipher { cipher: ContentCipher::Aes128Gcm }));
    let oaep = Policy { key_transport: KeyTransport::Oaep, ..allowed(None, GCM, &alice, &[&bob]) };
    assert_eq!(refused(oaep), "recipient dn=\"CN=bob,O=Bulla\": KEYWRAP(OAEP) needs an RSA key, this one is ML-KEM");
}

#[test]
fn what_does_not_fit_is_told_of_and_where_another_key_does_that_one_is_taken() {
    let world = World::new();
    let both = |name: &str, one, other| [world.person(name, one), world.person(name, other)];
    let [signs, reads] = both("alice", ML_DSA, ML_KEM);
    let [rsa, kem] = both("bob", RSA, ML_KEM);
    let ring = world.ring("alice", &[&signs, &reads], &[&rsa, &kem]);
    let refused = |policy: Policy, ring: &Arc<Ring>| {
        Sealer::new(Arc::new(policy), Arc::clone(ring), None, now()).unwrap_err().to_string()
    };
    assert_eq!(
        refused(allowed(Some(Digest::Sha256), None, &signs, &[]), &ring),
        "SIGNALG(SHA256) is weaker than a signature with ML-DSA-65; it takes SHA384 or SHA512"
    );
    let other = world.ring("bob", &[&rsa, &kem], &[]);
    let required = Policy { pqc: Pqc::Required, ..allowed(SHA512, None, &rsa, &[]) };
    assert_eq!(
        refused(required, &other),
        "no key of dn=\"CN=bob,O=Bulla\" signs under PQC(REQUIRED): it takes an ML-DSA key"
    );
    // With an RSA key beside it is the ML-DSA key that counts, and it is there.
    let twice = world.ring("bob", &[&world.person("bob", ML_DSA), &rsa], &[]);
    let required = Policy { pqc: Pqc::Required, ..allowed(Some(Digest::Sha256), None, &rsa, &[]) };
    assert_eq!(
        refused(required, &twice),
        "SIGNALG(SHA256) is weaker than a signature with ML-DSA-65; it takes SHA384 or SHA512"
    );
    // RSA-OAEP and AES-128 are not ML-KEM's, and bob has an RSA key, too.
    let oaep = Policy { key_transport: KeyTransport::Oaep, ..allowed(SHA512, GCM, &signs, &[&rsa]) };
    let aes128 = allowed(SHA512, Some(ContentCipher::Aes128Gcm), &signs, &[&rsa]);
    for policy in [oaep.clone(), aes128] {
        let policy = Arc::new(policy);
        let der = seal(&policy, &ring);
        assert!(inspect(&der).unwrap().recipients[0].algorithm.starts_with("RSA-OAEP"), "{policy:?}");
        open(&policy, &other, der).unwrap();
    }
    assert_eq!(Policy { pqc: Pqc::Required, ..oaep }.check(), Err(PolicyError::PqcKeyWrap));
    let neither = Policy { pqc: Pqc::Required, ..allowed(None, None, &signs, &[]) };
    assert_eq!(neither.check(), Err(PolicyError::PqcWithoutProtection));
    assert_eq!(Policy { pqc: Pqc::Allowed, ..neither }.check(), Ok(()));
    // Who has a key to sign alone is not written to.
    let signer = world.person("carl", ML_DSA);
    let old = world.person("carl", RSA);
    let sender = world.ring("dora", &[&world.person("dora", ML_DSA)], &[&signer, &old]);
    let required = Policy { pqc: Pqc::Required, ..allowed(None, GCM, &signer, &[&signer]) };
    assert_eq!(
        refused(required.clone(), &sender),
        "recipient dn=\"CN=carl,O=Bulla\": PQC(REQUIRED) needs an ML-KEM key"
    );
    let without = world.ring("emma", &[], &[&signer]);
    assert_eq!(
        refused(required.clone(), &without),
        "recipient dn=\"CN=carl,O=Bulla\": PQC(REQUIRED) needs an ML-KEM key beside the ML-DSA key, which signs alone"
    );
    assert_eq!(
        refused(Policy { pqc: Pqc::Allowed, ..required }, &without),
        "recipient dn=\"CN=carl,O=Bulla\": an ML-DSA key signs alone: it takes another key beside it"
    );
}

#[test]
fn no_flipped_byte_opens() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", KeySpec::MlDsa(MlDsa::MlDsa44)), world.person("bob", ML_KEM));
    let ring = world.ring("alice", &[&alice], &[&bob]);
    let reading = world.ring("bob", &[&bob], &[&alice]);
    for (sign, encrypt) in [(SHA512, None), (None, GCM), (SHA512, GCM), (SHA512, Some(ContentCipher::Aes256Cbc))] {
        let to: &[&Person] = if encrypt.is_some() { &[&bob] } else { &[] };
        let policy = Arc::new(allowed(sign, encrypt, &alice, to));
        let loose = Arc::new(Policy { bind: Bind::None, ..(*policy).clone() });
        let der = seal(&policy, &ring);
        for at in 0..der.len() {
            let mut bent = der.to_vec();
            bent[at] ^= 1 << (at % 8);
            assert!(open(&policy, &reading, bent.clone()).is_err(), "{sign:?} {encrypt:?} byte {at}");
            let _any_answer_but_a_panic = inspect(&bent);
            if at % 7 == 0 {
                assert!(open(&loose, &reading, bent).is_err(), "{sign:?} {encrypt:?} byte {at}, BIND(NONE)");
            }
        }
    }
}

/// Where the one `KEMRecipientInfo` of an envelope lies.
const KEM: [usize; 5] = [1, 0, 1, 0, 1];

#[test]
fn each_part_of_a_recipient_info_is_as_the_profile_has_it() {
    let world = World::new();
    let (alice, bob) = (world.person("alice", P256), world.person("bob", ML_KEM));
    let ring = world.ring("alice", &[&alice], &[&bob]);
    let reading = world.ring("bob", &[&bob], &[&alice]);
    let policy = Arc::new(allowed(None, GCM, &alice, &[&bob]));
    let der = seal(&policy, &ring);
    let with = |field: usize, change: &dyn Fn(&mut Node)| {
        let mut message = Node::read(&der);
        change(&mut message.at(&KEM).children[field]);
        message.write()
    };
    let content = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        move |node: &mut Node| node.bytes = bytes.clone()
    };
    assert_eq!(cause(&policy, &reading, with(0, &|_| ())), "opened", "nothing changed");
    // version, kem, kemct, kdf, kekLength, wrap, encryptedKey
    assert_eq!(cause(&policy, &reading, with(0, &content(&[1]))), "malformed");
    assert_eq!(cause(&policy, &reading, with(2, &|node| node.children[0].bytes[8] = 9)), "weaker-than-policy");
    assert_eq!(cause(&policy, &reading, with(2, &|node| node.children[0].bytes[8] = 3)), "malformed", "its length");
    assert_eq!(cause(&policy, &reading, with(3, &|node| node.bytes.truncate(node.bytes.len() - 1))), "malformed");
    assert_eq!(cause(&policy, &reading, with(3, &|node| node.bytes[9] ^= 1)), "cannot-decrypt");
    assert_eq!(cause(&policy, &reading, with(4, &|node| node.children[0].bytes[10] = 0x1d)), "weaker-than-policy");
    assert_eq!(cause(&policy, &reading, with(5, &content(&[16]))), "malformed");
    assert_eq!(cause(&policy, &reading, with(6, &|node| node.children[0].bytes[8] = 5)), "malformed");
    assert_eq!(cause(&policy, &reading, with(7, &|node| node.bytes[0] ^= 1)), "cannot-decrypt");
    assert_eq!(cause(&policy, &reading, with(7, &|node| node.bytes.truncate(node.bytes.len() - 1))), "cannot-decrypt");
    // Both lengths of the wrapping key the same, and too short.
    let mut message = Node::read(&der);
    message.at(&KEM).children[5].bytes = vec![16];
    message.at(&KEM).children[6].children[0].bytes[8] = 5;
    assert_eq!(cause(&policy, &reading, message.write()), "weaker-than-policy");
    // Another kind of recipient info in the same place.
    let mut message = Node::read(&der);
    message.at(&KEM[..4]).children[0].bytes[10] = 4;
    assert_eq!(cause(&policy, &reading, message.write()), "weaker-than-policy");
}

#[test]
fn a_content_key_is_used_again_and_both_kinds_of_readers_open_alone() {
    let world = World::new();
    let (alice, bob, carl) = (world.person("alice", P256), world.person("bob", ML_KEM), world.person("carl", RSA));
    let ring = world.ring("alice", &[&alice], &[&bob, &carl]);
    let policy = Policy { key_reuse: KeyReuse::Count(9), ..allowed(None, GCM, &alice, &[&bob, &carl]) };
    let policy = Arc::new(policy);
    let mut sealer = sealer(&policy, &ring);
    let sealed: Vec<_> = (0..3).map(|_| seal_with(&mut sealer, payload()).unwrap().der).collect();
    for person in [&bob, &carl] {
        let reading = world.ring(&format!("r {}", person.dn), &[person], &[]);
        let opener = Opener::new();
        for der in &sealed {
            assert_eq!(open_with(&opener, &policy, &reading, der.clone()).unwrap().content, payload());
        }
    }
}

#[test]
fn an_authority_with_ml_dsa_issues_lists_and_signs_requests() {
    let dir = tempfile::tempdir().unwrap();
    let root = KeySpec::MlDsa(MlDsa::MlDsa87);
    let authority = Authority::create(&dir.path().join("ca"), &dn("CN=PQ CA,O=Bulla"), root, 3650, now()).unwrap();
    for key in KeySpec::ALL {
        let dn = dn(&format!("CN={key},O=Bulla"));
        let uses = KeyUse::usual(key.kind());
        let request = Request { dn, key, uses, days: 30, alternative_names: Vec::new(), passphrase: None };
        let (certificate, private) = authority.issue(&request, now()).unwrap();
        assert_eq!(certificate.key_kind(), key.kind());
        assert_eq!(certificate.key_bits(), key.bits());
        assert_eq!(Certificate::from_der(certificate.der()).unwrap(), certificate);
        let private = read_private_key(private.as_bytes(), None).unwrap();
        assert!(certificate.public_key().public_eq(&private));
        let passphrase = Passphrase::new("correct horse".into());
        let archive = to_pkcs12("all", &certificate, &authority.chain(), Some(&private), &passphrase).unwrap();
        let back = Bundle::read(&archive, Some(&passphrase)).unwrap();
        assert!(back.key.unwrap().public_eq(&private), "{key}");
        assert_eq!(back.certificates[0], certificate);
        let profile =
            Profile { dn: request.dn.clone(), uses: request.uses.clone(), days: 30, alternative_names: Vec::new() };
        let asked = create::request(&profile, &private, key.kind());
        if matches!(key, KeySpec::MlKem(_)) {
            assert_eq!(asked, Err(CreateError::CannotAsk { kind: key.kind() }));
            continue;
        }
        let asked = asked.unwrap();
        assert_eq!(create::request_key_kind(&asked).unwrap(), key.kind());
        let signed = authority.sign_request(&asked, &profile.uses, 30, &[], now()).unwrap();
        assert!(signed.public_key().public_eq(&private));
    }
    // Its list says who is revoked, and is believed.
    let serial = authority.records().unwrap()[0].serial.clone();
    authority.revoke(&serial, now()).unwrap();
    authority.write_crl(30, now()).unwrap();
    let list = X509Crl::from_pem(&authority.crl().unwrap()).unwrap();
    assert!(list.verify(authority.certificate().public_key()).unwrap());
    assert_eq!(list.get_revoked().unwrap().len(), 1);
}

#[test]
fn keys_are_for_what_their_kind_can_do() {
    let bits = |usage, kind| KeyUse::bits(&[usage], kind).map_err(|error| error.to_string());
    let (dsa, kem) = (KeyKind::MlDsa(MlDsa::MlDsa65), KeyKind::MlKem(MlKem::MlKem768));
    for usage in [KeyUse::DocSign, KeyUse::Handshake, KeyUse::CertSign] {
        assert!(bits(usage, dsa).is_ok());
        assert_eq!(
            bits(usage, kem).unwrap_err(),
            format!(
                "key usage {usage} is incompatible with a key of type ML-KEM; an ML-KEM key encrypts and nothing else: \
                 an ML-DSA key signs"
            )
        );
    }
    for usage in [KeyUse::DataEncrypt, KeyUse::KeyAgree] {
        assert!(
            bits(usage, dsa).unwrap_err().ends_with("an ML-DSA key signs and nothing else: an ML-KEM key encrypts")
        );
    }
    assert!(bits(KeyUse::DataEncrypt, kem).is_ok());
    assert!(bits(KeyUse::KeyAgree, kem).unwrap_err().ends_with("an ML-KEM key encrypts with DATAENCRYPT"));
}

/// Messages that were sealed once, and the ring of their reader: later versions open them.
fn stored() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/seal/modern")
}

/// What is stored, by name, and the policy that each opens under.
fn stored_policies(alice: &str, bob: &str) -> Vec<(&'static str, Arc<Policy>)> {
    let of = |sign: Option<Digest>, encrypt, most| {
        let mut policy = Policy::new("ORDERS");
        policy.sign = sign;
        policy.encrypt = encrypt;
        policy.weak = sign.is_none();
        policy.pqc = Pqc::Required;
        policy.sign_batch = most;
        policy.signers = sign.map(|_| dn(alice)).into_iter().collect();
        policy.recipients = encrypt.map(|_: ContentCipher| dn(bob)).into_iter().collect();
        Arc::new(policy)
    };
    let cbc = Some(ContentCipher::Aes256Cbc);
    vec![
        ("integrity", of(SHA512, None, 1)),
        ("confidentiality", of(None, GCM, 1)),
        ("privacy", of(SHA512, GCM, 1)),
        ("privacy_cbc", of(SHA512, cbc, 1)),
        ("one_of_a_batch", of(SHA512, GCM, 8)),
    ]
}

const ALICE: &str = "CN=orders,O=Example";
const BOB: &str = "CN=billing,O=Example";

#[test]
fn stored_messages_open() {
    let world = World::new();
    let dir = world.ring_dir("billing");
    ring::create(&dir).unwrap();
    for place in ["own/billing.pem", "people/orders.pem", "trust/ca.pem"] {
        let path = dir.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, fs::read(stored().join(place)).unwrap()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    let ring = world.load("billing");
    for (name, policy) in stored_policies(ALICE, BOB) {
        let der = fs::read(stored().join(format!("{name}.der"))).unwrap();
        assert_eq!(open(&policy, &ring, der).unwrap().content, payload(), "{name}");
    }
}

/// Writes what [`stored_messages_open`] opens, and the seeds of the fuzz target `kem_recipients`, with new keys.
#[test]
#[ignore = "it changes the test data"]
fn make_the_stored_messages_again() {
    let world = World::new();
    let of = |name: &str, key: KeySpec| {
        let (dn, uses) = (dn(name), KeyUse::usual(key.kind()));
        let request =
            Request { dn: dn.clone(), key, uses, days: 3000, alternative_names: Vec::new(), passphrase: None };
        let (certificate, key) = world.authority.issue(&request, now()).unwrap();
        Person { dn, certificate, chain: world.authority.chain(), key }
    };
    let (alice, bob) = (of(ALICE, KeySpec::MlDsa(MlDsa::MlDsa44)), of(BOB, KeySpec::MlKem(MlKem::MlKem512)));
    let sender = world.ring("orders", &[&alice], &[&bob]);
    let write = |place: &str, parts: &[&[u8]]| {
        let path = stored().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, parts.concat()).unwrap();
    };
    write("own/billing.pem", &[&bob.certificate.to_pem(), bob.key.as_bytes()]);
    write("people/orders.pem", &[&alice.certificate.to_pem()]);
    write("trust/ca.pem", &[&world.authority.root().to_pem()]);
    for (at, (name, policy)) in stored_policies(ALICE, BOB).into_iter().enumerate() {
        let der = match policy.sign_batch {
            1 => seal(&policy, &sender),
            _ => together(&policy, &sender, vec![payload(); 3]).swap_remove(1).der,
        };
        write(&format!("{name}.der"), &[&der]);
        let seeds = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/kem_recipients");
        fs::create_dir_all(&seeds).unwrap();
        fs::write(seeds.join(name), [&[at as u8 * 2], &der[..]].concat()).unwrap();
        if policy.encrypt.is_some() {
            // The recipient info alone, which goes into a good envelope.
            let info = Node::read(&der).at(&KEM[..4]).write();
            fs::write(seeds.join(format!("{name}_recipient")), [&[at as u8 * 2 + 1], &info[..]].concat()).unwrap();
        }
    }
}
