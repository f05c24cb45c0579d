//! Who is let in: mutual TLS with the right certificates, and a user of the group's own account by a credentials file.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use base64ct::{Base64UrlUnpadded, Encoding};
use bulla_queue::Log;
use bulla_queue::log::{Batch, Claim, LogError};
use bulla_shared::frame::FRAME_HEADER_BYTES;
use bulla_shared::{JetStreamLog, Options, Tls};
use nkeys::KeyPair;
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use serde_json::{Value, json};

use servers::{Cluster, Setup, tried, until};

/// Claims a log and appends to it.
fn work(options: Options) -> Result<(), LogError> {
    let mut log = JetStreamLog::open(options)?;
    let (_, end) = log.claim(Instant::now(), Claim::Force)?;
    let batch = Batch { at: end.0, head: vec![0; FRAME_HEADER_BYTES], body: vec![1; 1_000], patient: false };
    let end = batch.end();
    log.submit(batch).map_err(|(_, error)| error)?;
    let mut events = Vec::new();
    until("the batch is in", || {
        log.poll(Instant::now(), &mut events, &mut Vec::new()).unwrap();
        events.pop()
    });
    assert_eq!(log.replay(None, &mut |_| {})?, end);
    log.release(end)
}

// ---- TLS

struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

fn key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn certificate(name: &str, key: &PKey<Private>, by: Option<&Authority>) -> X509 {
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_text("CN", name).unwrap();
    let subject = subject.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let serial = BigNum::from_u32(fastrand::u32(1..)).unwrap().to_asn1_integer().unwrap();
    builder.set_serial_number(&serial).unwrap();
    builder.set_subject_name(&subject).unwrap();
    builder.set_issuer_name(by.map_or(&*subject, |by| by.certificate.subject_name())).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    if by.is_none() {
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
    } else {
        let context = builder.x509v3_context(None, None);
        let names = SubjectAlternativeName::new().ip("127.0.0.1").dns("localhost").build(&context).unwrap();
        builder.append_extension(names).unwrap();
    }
    builder.sign(by.map_or(key, |by| &by.key), MessageDigest::sha256()).unwrap();
    builder.build()
}

fn authority(name: &str) -> Authority {
    let key = key();
    Authority { certificate: certificate(name, &key, None), key }
}

fn write(path: PathBuf, contents: Vec<u8>) -> PathBuf {
    fs::write(&path, contents).unwrap();
    path
}

/// The files of one that an authority vouches for, who trusts another authority or the same.
fn files(dir: &Path, name: &str, by: &Authority, trusted: &Authority) -> Tls {
    let key = key();
    let certificate = certificate(name, &key, Some(by)).to_pem().unwrap();
    Tls {
        authorities: write(dir.join(format!("{name}-ca.pem")), trusted.certificate.to_pem().unwrap()),
        certificate: write(dir.join(format!("{name}.pem")), certificate),
        key: write(dir.join(format!("{name}-key.pem")), key.private_key_to_pem_pkcs8().unwrap()),
    }
}

#[test]
fn only_the_right_certificates_are_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, others) = (authority("ours"), authority("others"));
    let server = files(dir.path(), "server", &ours, &ours);
    let more = format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        server.certificate, server.key, server.authorities
    );
    let cluster = Cluster::start(Setup { servers: 1, more, ..Setup::default() });
    let with = |tls: Option<Tls>| {
        let mut options = cluster.options("TLS", "QM1");
        options.tls = tls;
        work(options)
    };
    let right = files(dir.path(), "qm1", &ours, &ours);
    tried("the right certificate", || with(Some(right.clone())));
    let other = with(Some(files(dir.path(), "stranger", &others, &ours)));
    assert!(matches!(other, Err(LogError::Unavailable(_))), "a certificate of another authority: {other:?}");
    let wary = with(Some(files(dir.path(), "wary", &ours, &others)));
    let said = wary.unwrap_err().to_string();
    assert!(said.contains("certificate") || said.contains("UnknownIssuer"), "a server of another authority: {said}");
    let bare = with(None);
    assert!(matches!(bare, Err(LogError::Unavailable(_))), "no certificate: {bare:?}");
    let mut mixed = files(dir.path(), "mixed", &ours, &ours);
    mixed.key = server.key.clone();
    assert!(with(Some(mixed)).is_err(), "a key of another certificate");
    let mut absent = files(dir.path(), "absent", &ours, &ours);
    absent.authorities = dir.path().join("nothing.pem");
    assert!(with(Some(absent)).is_err(), "no file of authorities");
}

// ---- accounts

fn token(claims: &Value, by: &KeyPair) -> String {
    let encoded = |value: &Value| Base64UrlUnpadded::encode_string(value.to_string().as_bytes());
    let signed = format!("{}.{}", encoded(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), encoded(claims));
    let signature = by.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", Base64UrlUnpadded::encode_string(&signature))
}

fn claims(name: &str, of: &KeyPair, by: &KeyPair, nats: Value) -> Value {
    let (of, by) = (of.public_key(), by.public_key());
    json!({ "jti": name, "iat": 1_700_000_000, "iss": by, "sub": of, "name": name, "nats": nats })
}

fn account(name: &str, of: &KeyPair, by: &KeyPair, disk: i64) -> String {
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": 0, "disk_storage": disk, "streams": disk, "consumer": 0,
    });
    token(&claims(name, of, by, json!({ "type": "account", "version": 2, "limits": limits })), by)
}

fn credentials(file: PathBuf, account: &KeyPair, publish: &[&str], subscribe: &[&str]) -> PathBuf {
    let user = KeyPair::new_user();
    let nats = json!({
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        "pub": { "allow": publish }, "sub": { "allow": subscribe },
    });
    let token = token(&claims("QM1", &user, account, nats), account);
    let seed = user.seed().unwrap();
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    write(file, text.into())
}

/// What a queue manager needs of its account; `docs/formats/shared-log.md` lists the same.
const PUBLISH: [&str; 9] = [
    "OWN.epoch",
    "OWN.log",
    "OWN.part.>",
    "OWN.ask",
    "_INBOX.>",
    "$JS.API.STREAM.*.OWN",
    "$JS.API.STREAM.MSG.GET.OWN",
    "$JS.API.DIRECT.GET.OWN",
    "$JS.API.INFO",
];
const SUBSCRIBE: [&str; 2] = ["OWN.ask", "_INBOX.>"];

#[test]
fn a_user_of_the_groups_account_is_let_in_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (operator, system, queues, other) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account(), KeyPair::new_account());
    let nats = json!({ "type": "operator", "version": 2, "system_account": system.public_key() });
    let preload: Vec<_> = [("SYS", &system, 0), ("QUEUES", &queues, -1), ("OTHER", &other, 0)]
        .map(|(name, of, disk)| format!("{}: {}", of.public_key(), account(name, of, &operator, disk)))
        .into();
    let more = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}\n}}",
        token(&claims("OP", &operator, &operator, nats), &operator),
        system.public_key(),
        preload.join("\n")
    );
    let cluster = Cluster::start(Setup { servers: 1, more, ..Setup::default() });
    let with = |file: Option<PathBuf>| {
        let mut options = cluster.options("OWN", "QM1");
        options.credentials = file;
        work(options)
    };
    let right = credentials(dir.path().join("qm1.creds"), &queues, &PUBLISH, &SUBSCRIBE);
    tried("the right user", || with(Some(right.clone())));
    let unknown = KeyPair::new_account();
    let forged = credentials(dir.path().join("forged.creds"), &unknown, &PUBLISH, &SUBSCRIBE);
    assert!(matches!(with(Some(forged)), Err(LogError::Unavailable(_))), "an account that no operator knows");
    assert!(matches!(with(None), Err(LogError::Unavailable(_))), "no credentials");
    assert!(matches!(with(Some(dir.path().join("none"))), Err(LogError::Unavailable(_))), "no such file");
    // An account without storage of its own has no stream, and does not see that of another.
    let poor = credentials(dir.path().join("poor.creds"), &other, &PUBLISH, &SUBSCRIBE);
    assert!(with(Some(poor)).is_err());
}
