//! Which certificates a path is built from, and that the answer is the same whatever was read before.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use bulla_device::Digest;
use bulla_seal::certificate::authority::{Authority, Founding, Request};
use bulla_seal::certificate::{Certificate, KeyUse};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{OpenError, Opener, Policy};
use bytes::Bytes;
use common::*;

const SIGNED: Option<Digest> = Some(Digest::Sha256);

/// A root, an authority below it, and Alice, whose certificate the lower one issued.
struct TwoLevels {
    world: World,
    issuing: Authority,
    alice: Person,
}

impl TwoLevels {
    fn new() -> TwoLevels {
        let world = World::new();
        let founding = Founding {
            dn: &dn("CN=Issuing,O=Bulla"),
            key: P256,
            days: 900,
            passphrase: None,
            parent: Some(&world.authority),
        };
        let issuing = Authority::found(&world.dir.path().join("issuing"), &founding, now()).unwrap();
        let alice = issued(&issuing, "alice");
        TwoLevels { world, issuing, alice }
    }

    fn intermediate(&self) -> Certificate {
        self.issuing.certificate().clone()
    }

    /// A message of Alice's, with the intermediate in it or without.
    fn message(&self, with_chain: bool, policy: &Arc<Policy>) -> Bytes {
        let user = if with_chain { "alice-whole" } else { "alice-bare" };
        let dir = self.world.ring_dir(user);
        let chain = if with_chain { vec![self.intermediate()] } else { Vec::new() };
        ring::install_own(&dir, "alice", &self.alice.certificate, &chain, &self.alice.key).unwrap();
        ring::install_trust(&dir, "ca", self.world.authority.root()).unwrap();
        // In `trust` OpenSSL finds it for the path, and it is not put into messages.
        ring::install_trust(&dir, "issuing", &self.intermediate()).unwrap();
        seal(policy, &self.world.load(user))
    }

    /// A ring that trusts the root.
    fn reader(&self, user: &str, fill: impl FnOnce(&std::path::Path)) -> Arc<Ring> {
        let dir = self.world.ring_dir(user);
        ring::create(&dir).unwrap();
        ring::install_trust(&dir, "ca", self.world.authority.root()).unwrap();
        fill(&dir);
        self.world.load(user)
    }
}

fn issued(authority: &Authority, name: &str) -> Person {
    let uses = vec![KeyUse::DocSign, KeyUse::KeyAgree];
    let dn = dn(&format!("CN={name},O=Bulla"));
    let request =
        Request { dn: dn.clone(), key: P256, uses, days: 365, alternative_names: Vec::new(), passphrase: None };
    let (certificate, key) = authority.issue(&request, now()).unwrap();
    Person { dn, certificate, chain: Vec::new(), key }
}

fn cause(result: Result<bulla_seal::Opened, OpenError>) -> &'static str {
    result.map_or_else(|error| error.cause(), |_| "opened")
}

#[test]
fn a_path_leads_over_chains_that_the_ring_holds() {
    let levels = TwoLevels::new();
    let policy = policy(SIGNED, None, &[]);
    let message = levels.message(false, &policy);
    let nothing = levels.reader("nothing", |_| {});
    assert_eq!(cause(open(&policy, &nothing, message.clone())), "untrusted");
    let of_the_signer = levels.reader("signer", |dir| {
        ring::install_person(dir, "alice", &levels.alice.certificate, &[levels.intermediate()]).unwrap();
    });
    assert_eq!(cause(open(&policy, &of_the_signer, message.clone())), "opened");
    let carol = issued(&levels.issuing, "carol");
    let of_another = levels.reader("other", |dir| {
        ring::install_person(dir, "carol", &carol.certificate, &[levels.intermediate()]).unwrap();
    });
    assert_eq!(cause(open(&policy, &of_another, message.clone())), "opened");
    let of_my_own_key = levels.reader("carol", |dir| {
        ring::install_own(dir, "carol", &carol.certificate, &[levels.intermediate()], &carol.key).unwrap();
    });
    assert_eq!(cause(open(&policy, &of_my_own_key, message.clone())), "opened");
    let as_a_person = levels.reader("person", |dir| {
        ring::install_person(dir, "issuing", &levels.intermediate(), &[]).unwrap();
    });
    assert_eq!(cause(open(&policy, &as_a_person, message)), "opened");
    // Without the keys too, as an administrator of a ring reads it.
    let ring = Ring::load_without_keys(&levels.world.ring_dir("carol")).unwrap();
    ring.verify(&levels.alice.certificate, &[], bulla_seal::certificate::Usage::Sign, now(), now()).unwrap();
}

#[test]
fn a_verdict_does_not_depend_on_what_was_read_before() {
    let levels = TwoLevels::new();
    let policy = policy(SIGNED, None, &[]);
    let (whole, bare) = (levels.message(true, &policy), levels.message(false, &policy));
    let ring = levels.reader("reader", |_| {});
    let opener = Opener::new();
    assert_eq!(cause(open_with(&opener, &policy, &ring, bare.clone())), "untrusted");
    for _ in 0..2 {
        assert_eq!(cause(open_with(&opener, &policy, &ring, whole.clone())), "opened");
        assert_eq!(cause(open_with(&opener, &policy, &ring, bare.clone())), "untrusted");
    }
}

#[test]
fn a_signer_that_only_another_message_carried_is_not_known() {
    let world = World::new();
    let alice = world.person("alice", P256);
    let policy = Arc::new(Policy { bind: bulla_seal::policy::Bind::None, ..policy_of(SIGNED, None, &[]) });
    let whole = seal(&policy, &world.ring("alice", &[&alice], &[]));
    // The certificates are no part of what is signed: [0] of the SignedData, taken out.
    let mut tree = tree::Node::read(&whole);
    let certificates = tree.at(&[1, 0]).children.iter().position(|node| node.tag == 0xa0).unwrap();
    tree.at(&[1, 0]).children.remove(certificates);
    let bare = Bytes::from(tree.write());
    let knowing = world.ring("knowing", &[], &[&alice]);
    let ring = world.ring("reader", &[], &[]);
    let opener = Opener::new();
    let before = cause(open_with(&opener, &policy, &ring, bare.clone()));
    assert_ne!(before, "opened");
    assert_eq!(cause(open_with(&opener, &policy, &ring, whole)), "opened");
    assert_eq!(cause(open_with(&opener, &policy, &ring, bare.clone())), before);
    assert_eq!(cause(open_with(&opener, &policy, &knowing, bare)), "opened");
}
