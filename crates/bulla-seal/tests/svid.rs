//! X.509-SVIDs of SPIFFE: they sign by their SPIFFE ID, below the authorities of their trust domain, and go by no other
//! name.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bulla_seal::certificate::{Certificate, CertificateError, PrivateKeyPem, Usage};
use bulla_seal::policy::{ContentCipher, Revocation};
use bulla_seal::ring::{self, Ring, SingleFiles};
use bulla_seal::{Dn, OpenError, Opener, Policy, Sealer, inspect};
use bytes::Bytes;
use common::*;
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name};

const SIGNED: Option<bulla_device::Digest> = Some(bulla_device::Digest::Sha256);
const DOMAIN: &str = "example.org";
const ID: &str = "spiffe://example.org/orders";
/// The subject of every SVID of SPIRE.
const SUBJECT: &[(&str, &str)] = &[("C", "US"), ("O", "SPIRE")];
const HOUR: u64 = 3600;

/// A certificate and its key.
struct Pair {
    x509: X509,
    key: PKey<Private>,
}

/// What a certificate says.
struct Leaf<'a> {
    subject: &'a [(&'a str, &'a str)],
    uris: &'a [&'a str],
    /// Its key usage, of which there may be none: digitalSignature, keyAgreement.
    usage: Option<(bool, bool)>,
    is_authority: bool,
    /// From which second after [`now`] to which.
    valid: (u64, u64),
}

const SVID: Leaf<'_> =
    Leaf { subject: SUBJECT, uris: &[ID], usage: Some((true, false)), is_authority: false, valid: (0, HOUR) };

impl Pair {
    fn authority(name: &str, valid: (u64, u64)) -> Pair {
        let leaf = Leaf { subject: &[("CN", name)], uris: &[], usage: None, is_authority: true, valid };
        made(&leaf, None)
    }

    fn issue(&self, leaf: &Leaf<'_>) -> Pair {
        made(leaf, Some(self))
    }

    fn certificate(&self) -> Certificate {
        Certificate::from_x509(&self.x509).unwrap()
    }

    fn key(&self) -> PrivateKeyPem {
        PrivateKeyPem::write(&self.key, None).unwrap()
    }
}

fn made(leaf: &Leaf<'_>, issuer: Option<&Pair>) -> Pair {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut name = X509Name::builder().unwrap();
    leaf.subject.iter().for_each(|(of, text)| name.append_entry_by_text(of, text).unwrap());
    let name = name.build();
    let at = |seconds| {
        let since = later(seconds).duration_since(UNIX_EPOCH).unwrap().as_secs();
        Asn1Time::from_unix(i64::try_from(since).unwrap()).unwrap()
    };
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(2).unwrap();
    let mut serial = [0; 8];
    openssl::rand::rand_bytes(&mut serial).unwrap();
    serial[0] &= 0x7f;
    builder.set_serial_number(&BigNum::from_slice(&serial).unwrap().to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(issuer.map_or(&name, |issuer| issuer.x509.subject_name())).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.set_not_before(&at(leaf.valid.0)).unwrap();
    builder.set_not_after(&at(leaf.valid.1)).unwrap();
    let mut constraints = BasicConstraints::new();
    if leaf.is_authority {
        constraints.ca();
    }
    builder.append_extension(constraints.critical().build().unwrap()).unwrap();
    if let Some((signs, agrees)) = leaf.usage {
        let mut usage = KeyUsage::new();
        if signs {
            usage.digital_signature();
        }
        if agrees {
            usage.key_agreement();
        }
        if leaf.is_authority {
            usage.key_cert_sign();
        }
        builder.append_extension(usage.critical().build().unwrap()).unwrap();
    }
    if !leaf.uris.is_empty() {
        let purposes = ExtendedKeyUsage::new().server_auth().client_auth().build().unwrap();
        builder.append_extension(purposes).unwrap();
        let mut names = SubjectAlternativeName::new();
        for uri in leaf.uris {
            names.uri(uri);
        }
        let names = names.build(&builder.x509v3_context(None, None)).unwrap();
        builder.append_extension(names).unwrap();
    }
    builder.sign(issuer.map_or(&key, |issuer| &issuer.key), MessageDigest::sha256()).unwrap();
    Pair { x509: builder.build(), key }
}

fn id(text: &str) -> Dn {
    Dn::of_signer(text).unwrap()
}

fn signed_by(names: &[&str]) -> Arc<Policy> {
    let mut policy = policy_of(SIGNED, None, &[]);
    policy.signers = names.iter().map(|name| id(name)).collect();
    policy.check().unwrap();
    Arc::new(policy)
}

fn cause(result: Result<bulla_seal::Opened, OpenError>) -> &'static str {
    result.map_or_else(|error| error.cause(), |_| "opened")
}

/// A ring that signs with a certificate and believes whatever issued it, as a forger's does.
fn forger(world: &World, user: &str, leaf: &Pair, root: &Pair) -> Arc<Ring> {
    let folder = world.dir.path().join(user);
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path
    };
    let key = write("key.pem", leaf.key().as_bytes());
    let certificate = write("certificate.pem", &leaf.x509.to_pem().unwrap());
    let trust = [write("root.pem", &root.x509.to_pem().unwrap())];
    let files = SingleFiles { own: Some((&key, &certificate)), trust: &trust, ..SingleFiles::default() };
    Arc::new(Ring::from_files(&files, None).unwrap())
}

/// A ring that believes the authorities of two trust domains, and a company's for all other names.
struct Reader {
    world: World,
    domain: Pair,
    other: Pair,
    company: Pair,
    ring: Arc<Ring>,
}

impl Reader {
    fn new() -> Reader {
        let world = World::new();
        let long = (0, 400 * DAY);
        let [domain, other, company] = ["A", "B", "Company"].map(|name| Pair::authority(name, long));
        let dir = world.ring_dir("reader");
        ring::create(&dir).unwrap();
        believe(&dir, DOMAIN, &[&domain], now());
        believe(&dir, "other.example", &[&other], now());
        ring::install_trust(&dir, "company", &company.certificate()).unwrap();
        let ring = world.load("reader");
        Reader { world, domain, other, company, ring }
    }

    /// A message that such a certificate signed.
    fn forged(&self, user: &str, leaf: &Leaf<'_>, root: &Pair) -> Bytes {
        seal(&policy(SIGNED, None, &[]), &forger(&self.world, user, &root.issue(leaf), root))
    }
}

fn believe(dir: &Path, domain: &str, all: &[&Pair], at: SystemTime) {
    let all: Vec<Certificate> = all.iter().map(|one| one.certificate()).collect();
    ring::install_domain(dir, domain, &all, at).unwrap();
}

#[test]
fn an_svid_signs_as_its_spiffe_id_and_under_no_other_name() {
    let reader = Reader::new();
    let dir = reader.world.ring_dir("orders");
    let svid = reader.domain.issue(&SVID);
    ring::install_own(&dir, "svid", &svid.certificate(), &[], &svid.key()).unwrap();
    believe(&dir, DOMAIN, &[&reader.domain], now());
    let sender = reader.world.load("orders");
    assert_eq!((sender.own()[0].certificate.dn().as_str(), sender.trust().len()), (ID, 0));
    assert_eq!(sender.own()[0].certificate.subject().as_str(), "C=US,O=SPIRE");
    let message = seal(&signed_by(&[ID]), &sender);
    for policy in [signed_by(&[ID]), signed_by(&["CN=else", ID]), signed_by(&[])] {
        let opened = open(&policy, &reader.ring, message.clone()).unwrap();
        assert_eq!(opened.seal.signer, Some(id(ID)));
    }
    for name in [
        "C=US,O=SPIRE",
        "CN=spiffe://example.org/orders",
        "spiffe://example.org/orders/more",
        "spiffe://example.org/order",
        "spiffe://example.org/Orders",
        "spiffe://other.example/orders",
    ] {
        assert_eq!(cause(open(&signed_by(&[name]), &reader.ring, message.clone())), "signer-not-authorised", "{name}");
    }
    let inspection = inspect(&message).unwrap();
    assert!(format!("{inspection:?}").contains(ID), "{inspection:?}");
    // A ring that does not know the trust domain, whatever else it trusts.
    let stranger = reader.world.ring("stranger", &[], &[]);
    assert_eq!(cause(open(&signed_by(&[ID]), &stranger, message)), "untrusted");
}

#[test]
fn nobody_but_the_trust_domain_s_own_authorities_says_who_is_who() {
    let reader = Reader::new();
    let listed = signed_by(&[ID, "CN=orders,O=Demo"]);
    let get = |message: Bytes| cause(open(&listed, &reader.ring, message));
    assert_eq!(get(reader.forged("good", &SVID, &reader.domain)), "opened");
    // The same SPIFFE ID of another trust domain's authority, of the company's, and of one that nobody knows.
    assert_eq!(get(reader.forged("other", &SVID, &reader.other)), "untrusted");
    assert_eq!(get(reader.forged("company", &SVID, &reader.company)), "untrusted");
    assert_eq!(get(reader.forged("unknown", &SVID, &Pair::authority("A", (0, DAY)))), "untrusted");
    let theirs = Leaf { uris: &["spiffe://other.example/orders"], ..SVID };
    assert_eq!(get(reader.forged("theirs", &theirs, &reader.other)), "signer-not-authorised");
    assert_eq!(get(reader.forged("theirs-here", &theirs, &reader.domain)), "untrusted");
    // A subject that spells a SPIFFE ID, and a subject of somebody's, below the authority of a trust domain.
    let spelt = Leaf { subject: &[("CN", ID)], uris: &[], ..SVID };
    assert_eq!(get(reader.forged("spelt", &spelt, &reader.company)), "signer-not-authorised");
    assert_eq!(get(reader.forged("spelt-there", &spelt, &reader.domain)), "untrusted");
    let orders = Leaf { subject: &[("CN", "orders"), ("O", "Demo")], uris: &[], ..SVID };
    assert_eq!(get(reader.forged("subject", &orders, &reader.company)), "opened");
    assert_eq!(get(reader.forged("subject-there", &orders, &reader.domain)), "untrusted");
    // The same as an authority, which goes by its subject whatever else it says.
    let above = Leaf { is_authority: true, usage: Some((true, false)), ..orders };
    assert_eq!(get(reader.forged("above", &above, &reader.domain)), "untrusted");
    let above = Leaf { is_authority: true, uris: &[ID], subject: SUBJECT, ..orders };
    let above = reader.domain.issue(&above).certificate();
    assert_eq!(above.dn().as_str(), "C=US,O=SPIRE");
    assert!(reader.ring.verify(&above, &[], Usage::Sign, now(), now()).is_err());
    // A subject that the policy lists, and a SPIFFE ID beside it: it goes by that alone.
    let both = Leaf { subject: &[("CN", "orders"), ("O", "Demo")], uris: &["spiffe://example.org/else"], ..SVID };
    assert_eq!(get(reader.forged("both", &both, &reader.company)), "untrusted");
    assert_eq!(get(reader.forged("both-there", &both, &reader.domain)), "signer-not-authorised");
}

#[test]
fn several_uris_are_nobody_s() {
    let reader = Reader::new();
    let uris: [&[&str]; 6] = [
        &[ID, "spiffe://example.org/else"],
        &["spiffe://example.org/else", ID],
        &[ID, ID],
        &[ID, "https://example.org/orders"],
        &["spiffe://example.org"],
        &["SPIFFE://example.org/orders"],
    ];
    for (at, uris) in uris.into_iter().enumerate() {
        let orders = Leaf { subject: &[("CN", "orders"), ("O", "Demo")], uris, ..SVID };
        for (name, root) in [("domain", &reader.domain), ("company", &reader.company)] {
            let message = reader.forged(&format!("{name}{at}"), &orders, root);
            for policy in [signed_by(&[ID, "CN=orders,O=Demo"]), signed_by(&[])] {
                assert_eq!(cause(open(&policy, &reader.ring, message.clone())), "untrusted", "{uris:?} {name}");
            }
        }
    }
}

#[test]
fn a_key_usage_without_digital_signature_signs_nothing() {
    let reader = Reader::new();
    let verify = |leaf: &Pair| reader.ring.verify(&leaf.certificate(), &[], Usage::Sign, now(), now());
    verify(&reader.domain.issue(&SVID)).unwrap();
    for usage in [None, Some((false, true))] {
        let leaf = reader.domain.issue(&Leaf { usage, ..SVID });
        assert!(matches!(verify(&leaf), Err(CertificateError::Usage { .. })), "{usage:?}");
    }
    // What has no SPIFFE ID does not sign with the purposes of TLS.
    let of_tls = Leaf { uris: &["https://example.org"], subject: &[("CN", "orders")], ..SVID };
    assert!(matches!(verify(&reader.company.issue(&of_tls)), Err(CertificateError::Usage { .. })));
}

#[test]
fn expiry_is_judged_by_the_put_and_an_authority_s_end_too() {
    let reader = Reader::new();
    let message = reader.forged("orders", &SVID, &reader.domain);
    let policy = signed_by(&[ID]);
    let get = |ring: &Arc<Ring>, put_at, now| {
        cause(open_at(&Opener::new(), &policy, ring, message.clone(), expect(), put_at, now))
    };
    assert_eq!(get(&reader.ring, now(), now()), "opened");
    assert_eq!(get(&reader.ring, now(), later(30 * DAY)), "opened", "it was good when the message was put");
    assert_eq!(get(&reader.ring, later(2 * HOUR), later(2 * HOUR)), "certificate-expired");
    // The next authority comes while this one is valid, and this one is taken out: it is not believed any more.
    let dir = reader.world.ring_dir("reader");
    let next = Pair::authority("A", (0, 800 * DAY));
    believe(&dir, DOMAIN, &[&next, &reader.domain], later(DAY));
    assert_eq!(get(&reader.world.load("reader"), now(), later(DAY)), "opened");
    believe(&dir, DOMAIN, &[&next], later(2 * DAY));
    assert_eq!(get(&reader.world.load("reader"), now(), later(2 * DAY)), "untrusted");
    // One that is taken out because it has ended still opens what was put in its time, and nothing later.
    believe(&dir, DOMAIN, &[&reader.domain], later(3 * DAY));
    believe(&dir, DOMAIN, &[&next], later(500 * DAY));
    let ring = reader.world.load("reader");
    assert_eq!(ring.domains()[DOMAIN].len(), 2);
    assert_eq!(get(&ring, now(), later(500 * DAY)), "opened");
    assert_eq!(get(&ring, later(450 * DAY), later(500 * DAY)), "certificate-expired");
}

#[test]
fn a_file_of_a_trust_domain_is_not_written_without_a_change_and_has_an_end() {
    let reader = Reader::new();
    let dir = reader.world.ring_dir("reader");
    let path = dir.join("trust/spiffe.example.org.pem");
    let facts = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
    let before = facts();
    believe(&dir, DOMAIN, &[&reader.domain], now());
    assert_eq!(facts(), before);
    let all: Vec<Certificate> = vec![reader.domain.certificate(); ring::DOMAIN_CERTIFICATES_MAX + 1];
    ring::install_domain(&dir, DOMAIN, &all, now()).unwrap();
    let ring = reader.world.load("reader");
    assert_eq!(ring.domains()[DOMAIN].len(), ring::DOMAIN_CERTIFICATES_MAX);
    for wrong in ["", "../own", "Example.org", "a b", "a/b"] {
        let refused = ring::install_domain(&dir, wrong, &[reader.domain.certificate()], now());
        assert!(matches!(refused, Err(ring::RingError::Label { .. })), "{wrong}");
    }
    assert!(ring::install_domain(&dir, DOMAIN, &[], now()).is_err());
}

#[test]
fn an_svid_is_no_recipient() {
    let reader = Reader::new();
    let svid = reader.domain.issue(&Leaf { usage: Some((true, true)), ..SVID });
    let dir = reader.world.ring_dir("reader");
    ring::install_own(&dir, "svid", &svid.certificate(), &[], &svid.key()).unwrap();
    let ring = reader.world.load("reader");
    for usage in [Usage::KeyAgreement, Usage::KeyTransport, Usage::DataEncipherment] {
        let refused = svid.certificate().check_usage(usage);
        assert!(matches!(refused, Err(CertificateError::ShortLived { .. })), "{refused:?}");
    }
    let found = |name: &Dn| ring.recipient(name, Usage::KeyAgreement, Revocation::None, now()).map(drop);
    assert!(matches!(found(&id(ID)), Err(CertificateError::ShortLived { .. })));
    assert!(matches!(found(&dn("C=US,O=SPIRE")), Err(CertificateError::Unknown { .. })));
    let mut policy = Policy::new("ORDERS");
    (policy.sign, policy.encrypt) = (SIGNED, Some(ContentCipher::Aes256Gcm));
    policy.recipients = vec![id(ID)];
    let refused = policy.check().unwrap_err().to_string();
    assert!(refused.contains("a certificate of an hour can't be a recipient of stored messages"), "{refused}");
}

#[test]
fn of_several_keys_the_one_that_the_policy_lists_signs() {
    let reader = Reader::new();
    let world = &reader.world;
    let alice = world.person("alice", P256);
    world.ring("alice", &[&alice], &[]);
    let dir = world.ring_dir("alice");
    let svid = reader.domain.issue(&SVID);
    ring::install_own(&dir, "svid", &svid.certificate(), &[], &svid.key()).unwrap();
    believe(&dir, DOMAIN, &[&reader.domain], now());
    let ring = world.load("alice");
    let signer = |names: &[&str]| sealer(&signed_by(names), &ring).signer().unwrap().dn().to_string();
    assert_eq!(signer(&[ID]), ID);
    assert_eq!(signer(&["CN=alice,O=Bulla"]), "CN=alice,O=Bulla");
    // When it has ended no other key signs in its place: a reader would not believe that.
    let late = Sealer::new(signed_by(&[ID]), ring.clone(), None, later(2 * HOUR)).unwrap_err();
    assert!(late.to_string().contains("expired"), "{late}");
    assert!(Sealer::new(signed_by(&[]), ring.clone(), None, later(2 * HOUR)).is_ok());
    // What is sealed for her opens with her other key.
    let mut private = policy_of(SIGNED, Some(ContentCipher::Aes256Gcm), &[&alice]);
    private.signers = vec![id(ID)];
    let private = Arc::new(private);
    let opened = open(&private, &ring, seal(&private, &ring)).unwrap();
    assert_eq!(opened.seal.signer, Some(id(ID)));
}
