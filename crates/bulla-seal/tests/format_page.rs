//! The examples of `docs/formats/sealed-message.md` are messages that open, and what the page says of
//! them is what they say.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulla_device::Digest;
use bulla_seal::certificate::KeyUse;
use bulla_seal::policy::ContentCipher;
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Content, Policy, inspect};
use bytes::Bytes;
use common::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/formats/sealed-message.md")).unwrap()
}

/// The ring of `testdata/seal` or `testdata/seal/former`, where its files may be private: a checkout makes them
/// readable.
fn billing(dir: &Path, data: &str) -> Arc<Ring> {
    let user = dir.join("billing");
    ring::create(&user).unwrap();
    for place in ["own/billing.pem", "trust/ca.pem"] {
        let copy = user.join(place);
        std::fs::copy(repository().join(data).join("billing").join(place), &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    Arc::new(Ring::load(&user, None).unwrap())
}

/// The three policies of the page.
fn policies() -> [(&'static str, Arc<Policy>); 3] {
    let of = |sign, encrypt| {
        let mut policy = Policy::new("ORDERS");
        policy.sign = sign;
        policy.encrypt = encrypt;
        if encrypt.is_some() {
            policy.recipients = vec![dn("CN=billing,O=Example")];
        }
        policy.check().unwrap();
        Arc::new(policy)
    };
    let (sha256, gcm) = (Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm));
    [("integrity", of(sha256, None)), ("confidentiality", of(None, gcm)), ("privacy", of(sha256, gcm))]
}

/// The name of the example that shares its signature, and its policy.
fn batch_policy() -> (&'static str, Arc<Policy>) {
    let [(_, integrity), ..] = policies();
    ("one of a batch", Arc::new(Policy { sign_batch: 8, ..(*integrity).clone() }))
}

/// The block of hexadecimal digits after the heading of that name.
fn example(page: &str, name: &str) -> Bytes {
    let after = page.split(&format!("### Example: {name}\n")).nth(1).unwrap_or_else(|| panic!("no example {name}"));
    let block = after.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    unhex(block)
}

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u32> = text.chars().filter_map(|char| char.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

#[test]
fn messages_of_the_former_profile_open() {
    let dir = tempfile::tempdir().unwrap();
    let ring = billing(dir.path(), "testdata/seal/former");
    for (name, policy) in policies() {
        let text = std::fs::read_to_string(repository().join(format!("testdata/seal/former/{name}.hex"))).unwrap();
        let der = unhex(&text);
        // Privacy had the attributes outside too.
        assert_eq!(inspect(&der).unwrap().binding.unwrap().destination, "ORDERS@QM1", "{name}");
        assert_eq!(open(&policy, &ring, der.clone()).unwrap().content, payload(), "{name}");
        let elsewhere = bulla_seal::Expect { destinations: vec!["OTHER@QM1".into()], ..expect() };
        let moved = bulla_seal::Opener::new().check_form(&policy, &der, &elsewhere, now()).unwrap_err();
        assert_eq!(moved.cause(), "moved", "{name}");
    }
}

#[test]
fn every_example_of_the_page_opens() {
    let dir = tempfile::tempdir().unwrap();
    let ring = billing(dir.path(), "testdata/seal");
    let page = page();
    for (name, policy) in policies().into_iter().chain([batch_policy()]) {
        let der = example(&page, name);
        let opened = open(&policy, &ring, der.clone()).unwrap();
        assert_eq!(opened.content, payload(), "{name}");
        assert!(opened.seal.bound);
        let shown = inspect(&der).unwrap();
        if name == "one of a batch" {
            let batch = shown.batch.unwrap();
            assert_eq!((shown.quality, batch.index, batch.size, batch.fits), ("integrity", 1, 3, true));
        } else if name == "privacy" {
            assert_eq!((shown.quality, shown.binding), ("privacy or confidentiality", None));
        } else {
            assert_eq!(shown.quality, name);
            assert_eq!(shown.binding.unwrap().destination, "ORDERS@QM1");
        }
        assert!(page.contains(&format!("{} bytes", der.len())), "the page gives the length of {name}");
    }
}

#[test]
fn the_page_names_every_limit_as_the_code_has_it() {
    let page = page();
    for (name, value) in [
        ("RECIPIENTS_MAX", bulla_seal::policy::RECIPIENTS_MAX),
        ("CONTENT_KEY_MESSAGES_MAX", bulla_seal::CONTENT_KEY_MESSAGES_MAX as usize),
        ("POOLED_CONTENT_KEYS_MAX", bulla_seal::POOLED_CONTENT_KEYS_MAX),
        ("CACHED_KEYS_MAX", bulla_seal::CACHED_KEYS_MAX),
        ("CACHED_ROOTS_MAX", bulla_seal::CACHED_ROOTS_MAX),
        ("SIGN_BATCH_MAX", bulla_seal::policy::SIGN_BATCH_MAX as usize),
        ("DESTINATION_BYTES_MAX", bulla_seal::DESTINATION_BYTES_MAX),
        ("MESSAGE_ID_BYTES_MAX", bulla_seal::MESSAGE_ID_BYTES_MAX),
        ("CONTENT_TYPE_BYTES_MAX", bulla_seal::CONTENT_TYPE_BYTES_MAX),
    ] {
        assert!(page.contains(&format!("| `{name}` | {value} |")), "{name} = {value}");
    }
}

/// Makes `testdata/seal`, the seeds of the fuzz target and the page's examples again, with new keys.
#[test]
#[ignore = "rewrites test data and the page"]
fn make_the_examples_again() {
    let world = World::new();
    let person = |name: &str, uses| {
        let request = bulla_seal::certificate::authority::Request {
            dn: dn(&format!("CN={name},O=Example")),
            key: P256,
            uses,
            days: 3650,
            alternative_names: Vec::new(),
            passphrase: None,
        };
        let (certificate, key) = world.authority.issue(&request, now()).unwrap();
        Person { dn: request.dn, certificate, chain: world.authority.chain(), key }
    };
    let orders = person("orders", vec![KeyUse::DocSign]);
    let billing = person("billing", vec![KeyUse::KeyAgree]);
    let sender = world.ring("orders", &[&orders], &[&billing]);
    let data = repository().join("testdata/seal/billing");
    std::fs::create_dir_all(data.join("own")).unwrap();
    std::fs::create_dir_all(data.join("trust")).unwrap();
    let mut own = billing.certificate.to_pem();
    own.extend_from_slice(billing.key.as_bytes());
    std::fs::write(data.join("own/billing.pem"), own).unwrap();
    std::fs::write(data.join("trust/ca.pem"), world.authority.root().to_pem()).unwrap();
    let corpus = repository().join("fuzz/corpus/cms");
    std::fs::create_dir_all(&corpus).unwrap();
    let mut page = page();
    for (at, (name, policy)) in policies().into_iter().chain([batch_policy()]).enumerate() {
        let der = if policy.sign_batch > 1 {
            let others = Content { bytes: Bytes::from_static(b"another message"), ..payload() };
            let contents = vec![others.clone(), payload(), others];
            common::batches::together(&policy, &sender, contents).swap_remove(1).der
        } else {
            seal(&policy, &sender)
        };
        let mut seed = vec![at as u8];
        seed.extend_from_slice(&der);
        std::fs::write(corpus.join(name.replace(' ', "_")), seed).unwrap();
        let heading = format!("### Example: {name}\n");
        let start = page.find(&heading).unwrap() + heading.len();
        let open = page[start..].find("```hex\n").map(|at| start + at + 7).unwrap();
        let end = page[open..].find("```").map(|at| open + at).unwrap();
        let lines: Vec<String> =
            der.chunks(48).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        page.replace_range(start..end, &format!("\n{} bytes.\n\n```hex\n{}\n", der.len(), lines.join("\n")));
    }
    std::fs::write(repository().join("docs/formats/sealed-message.md"), page).unwrap();
}
