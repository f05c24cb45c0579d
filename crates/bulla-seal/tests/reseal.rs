//! What is sealed anew opens, says on whose behalf, and is judged by when it was sealed anew.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bulla_device::{CpuDevice, Digest, SystemRandom};
use bulla_seal::certificate::KeyUse;
use bulla_seal::policy::{ContentCipher, Quality};
use bulla_seal::ring::Ring;
use bulla_seal::{OnBehalfOf, Opened, Opener, Policy, Sealer, Tally, drive, inspect};
use bytes::Bytes;
use common::*;

/// An authority and a signer of a month ago, a reader, and a queue manager that is a day old when `now` is.
struct Site {
    _world: World,
    orders: Person,
    manager: Person,
    billing: Person,
    sender: Arc<Ring>,
    own: Arc<Ring>,
    reader: Arc<Ring>,
}

fn ago(days: u64) -> SystemTime {
    now() - Duration::from_secs(days * DAY)
}

impl Site {
    fn new() -> Site {
        let world = World::at(ago(30));
        let person =
            |name, days, since| world.person_for(name, P256, vec![KeyUse::DocSign, KeyUse::KeyAgree], days, since);
        let orders = person("orders", 365, ago(30));
        let (manager, billing) = (person("QM1", 10, ago(1)), person("billing", 365, ago(30)));
        let sender = world.ring("orders", &[&orders], &[&billing]);
        let own = world.ring("QM1", &[&manager], &[&billing]);
        let reader = world.ring("billing", &[&billing], &[&orders, &manager]);
        Site { _world: world, orders, manager, billing, sender, own, reader }
    }

    fn policy(&self, sign: Option<Digest>, encrypt: Option<ContentCipher>) -> Arc<Policy> {
        let to: &[&Person] = if encrypt.is_some() { &[&self.billing] } else { &[] };
        let mut policy = policy_of(sign, encrypt, to);
        if sign.is_some() {
            policy.signers = vec![self.orders.dn.clone(), self.manager.dn.clone()];
        }
        Arc::new(policy)
    }

    /// Seals by the sender twenty days ago.
    fn before(&self, policy: &Arc<Policy>) -> Opened {
        let mut sealer = Sealer::new(policy.clone(), self.sender.clone(), None, ago(20)).unwrap();
        let step = sealer.seal(payload(), &bound(), ago(20), &mut SystemRandom).unwrap();
        let sealed = drive(step, &mut CpuDevice::new("cpu")).unwrap();
        self.open(policy, sealed.der, ago(20), now()).unwrap()
    }

    fn anew(&self, policy: &Arc<Policy>, said: &OnBehalfOf) -> Bytes {
        let mut sealer = Sealer::new(policy.clone(), self.own.clone(), Some("QM1".into()), now()).unwrap();
        let (tally, random) = (Tally::default(), &mut SystemRandom);
        let step = sealer.reseal_counting(payload(), &bound(), said, now(), random, &tally).unwrap();
        drive(step, &mut CpuDevice::new("cpu")).unwrap().der
    }

    fn open(
        &self,
        policy: &Arc<Policy>,
        der: Bytes,
        put_at: SystemTime,
        at: SystemTime,
    ) -> Result<Opened, bulla_seal::OpenError> {
        open_at(&Opener::new(), policy, &self.reader, der, expect(), put_at, at)
    }
}

fn qualities(site: &Site) -> Vec<Arc<Policy>> {
    let (sha, gcm, cbc) = (Some(Digest::Sha256), Some(ContentCipher::Aes256Gcm), Some(ContentCipher::Aes256Cbc));
    [(sha, None), (sha, gcm), (sha, cbc), (None, gcm), (None, cbc)]
        .map(|(sign, encrypt)| site.policy(sign, encrypt))
        .to_vec()
}

#[test]
fn it_opens_with_what_was_in_it_and_says_who_signs_and_for_whom() {
    let site = Site::new();
    for policy in qualities(&site) {
        let before = site.before(&policy);
        let said = OnBehalfOf::after(&before.seal, Some(&site.manager.dn), now()).unwrap();
        let der = site.anew(&policy, &said);
        let opened = site.open(&policy, der.clone(), ago(20), now()).unwrap();
        assert_eq!((&opened.content, opened.seal.quality), (&payload(), policy.quality()));
        let told = opened.seal.on_behalf_of.as_deref();
        if !policy.can_bind() {
            assert_eq!(told, None, "nothing vouches for anything");
            continue;
        }
        assert_eq!(told, Some(&said));
        assert_eq!(opened.seal.sealed_by.as_deref(), Some("QM1"));
        if policy.sign.is_none() {
            assert_eq!((said.verdict(), opened.seal.signer), ("unsigned", None));
            continue;
        }
        assert_eq!(opened.seal.signer.as_ref(), Some(&site.manager.dn));
        assert_eq!(opened.seal.signer_certificate.as_ref(), Some(site.manager.certificate.fingerprint()));
        assert_eq!((said.verdict(), said.signers.len()), ("verified", 1));
        assert_eq!(said.signers[0].dn, site.orders.dn);
        assert_eq!(said.signers[0].certificate, *site.orders.certificate.fingerprint());
        assert_eq!(said.signers[0].signing_time, Some(ago(20)));
        if policy.quality() == Quality::Integrity {
            let inspected = inspect(&der).unwrap();
            assert_eq!(inspected.on_behalf_of.as_ref(), Some(&said));
            let (text, json) = (inspected.to_string(), inspected.to_json());
            assert!(text.contains("on behalf of  CN=orders,O=Bulla"), "{text}");
            assert_eq!(json["on_behalf_of"]["signers"][0]["dn"], "CN=orders,O=Bulla");
        }
    }
}

#[test]
fn the_signer_s_dates_are_judged_by_when_it_was_sealed_anew_and_by_no_time_that_it_could_choose() {
    let site = Site::new();
    for policy in qualities(&site).into_iter().filter(|policy| policy.sign.is_some()) {
        let before = site.before(&policy);
        let at = |resealed_at| OnBehalfOf { resealed_at, ..OnBehalfOf::after(&before.seal, None, now()).unwrap() };
        let cause = |said: &OnBehalfOf, put_at, now| {
            let opened = site.open(&policy, site.anew(&policy, said), put_at, now);
            opened.map_or_else(|error| error.cause(), |_| "opens")
        };
        let in_days = |days| now() + Duration::from_secs(days * DAY);
        // Put before the queue manager had its certificate, and got after that has expired.
        assert_eq!(cause(&at(now()), ago(20), now()), "opens");
        assert_eq!(cause(&at(now()), ago(20), in_days(100)), "opens");
        // As a message of now would be that says nothing of it.
        let plain = {
            let mut sealer = Sealer::new(policy.clone(), site.own.clone(), None, now()).unwrap();
            seal_with(&mut sealer, payload()).unwrap().der
        };
        let unsaid = site.open(&policy, plain, ago(20), now()).unwrap_err();
        assert_eq!(unsaid.cause(), "certificate-not-yet-valid");
        // A key that has expired does not get older messages by a date of before.
        assert_eq!(cause(&at(now()), in_days(20), in_days(20)), "certificate-expired");
        assert_eq!(cause(&at(in_days(5)), ago(20), in_days(20)), "opens");
        // A date to come counts as the present.
        assert_eq!(cause(&at(in_days(5)), ago(20), ago(10)), "certificate-not-yet-valid");
    }
}

#[test]
fn what_is_said_of_former_signers_can_t_be_changed_or_taken_away() {
    let site = Site::new();
    for policy in qualities(&site).into_iter().filter(|policy| policy.can_bind()) {
        let said = OnBehalfOf::after(&site.before(&policy).seal, None, now()).unwrap();
        let der = site.anew(&policy, &said);
        let step = if der.len() > 600 { 7 } else { 3 };
        for at in (0..der.len()).step_by(step) {
            let mut changed = der.to_vec();
            changed[at] ^= 1;
            if let Ok(opened) = site.open(&policy, changed.into(), ago(20), now()) {
                assert_eq!(opened.seal.on_behalf_of.as_deref(), Some(&said), "byte {at}");
            }
        }
    }
}
