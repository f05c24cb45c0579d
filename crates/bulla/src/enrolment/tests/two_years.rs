//! Two years on a virtual clock: certificates renew, expire, and revocation lists go stale, while messages lie on a
//! queue for as long as half a year. Whatever must open does.

use super::*;
use crate::key_rotation::steps::Keys;
use crate::key_rotation::{KeyFacts, Needed, Step};
use bulla_device::CpuDevice;
use bulla_seal::policy::{ContentCipher, Revocation, SignatureDigest};
use bulla_seal::ring::{self, Ring};
use bulla_seal::{Bound, Content, Expect, Opener, Packing, Policy, Sealer, drive};
use bytes::Bytes;

const USERS: &str = "[rings.billing]\nauthority = \"away\"\ndn = \"CN=billing\"\nshare = [\"orders\"]\noverlap = \"2d\"\n\
                     [rings.orders]\nauthority = \"away\"\ndn = \"CN=orders\"\nshare = [\"billing\"]\noverlap = \"2d\"\n";
const STEP: Duration = Duration::from_secs(12 * 3_600);
const STEPS: usize = 2 * 365 * 2;
/// A revocation list is good for so many days.
const LIST_DAYS: u32 = 20;

/// A message on the queue.
struct Lying {
    id: Bytes,
    der: Bytes,
    put_at: SystemTime,
    got_from: SystemTime,
    key: KeyFacts,
}

/// What was counted.
#[derive(Debug, Default)]
struct Counts {
    put: usize,
    put_refused: usize,
    got: usize,
    /// Looks at messages that could not be opened yet because of the list.
    stale: usize,
    /// Messages that were opened when the certificate of their key, or of their signer, had expired.
    after_expiry: usize,
    retired: usize,
}

struct World {
    site: Site,
    policy: Arc<Policy>,
    device: CpuDevice,
    messages: Vec<Lying>,
    counts: Counts,
}

impl World {
    fn now(&self) -> SystemTime {
        self.site.now.get()
    }

    fn load(&self, user: &str) -> Arc<Ring> {
        Arc::new(Ring::load(&self.site.ring(user), None).unwrap())
    }

    fn put(&mut self, days: u32) {
        let (ring, now) = (self.load("orders"), self.now());
        let number = Bytes::from(self.counts.put.to_string());
        let bound = Bound {
            destination: "Q@QM1".into(),
            message_id: number.clone(),
            properties: Bytes::new(),
            application_properties: Bytes::new(),
            annotations: Bytes::new(),
        };
        let content = Content { packing: Packing::Data, content_type: None, bytes: number };
        let sealed = Sealer::new(self.policy.clone(), ring.clone(), None, now).and_then(|mut sealer| {
            let step = sealer.seal(content, &bound, now, &mut bulla_device::SystemRandom)?;
            drive(step, &mut self.device)
        });
        match sealed {
            Ok(sealed) => {
                let usage = bulla_seal::certificate::Usage::KeyAgreement;
                let key = ring.recipient(&dn("billing"), usage, Revocation::None, now).unwrap();
                self.messages.push(Lying {
                    id: bound.message_id,
                    der: sealed.der,
                    put_at: now,
                    got_from: now + DAY * days,
                    key: KeyFacts::of(key),
                });
                self.counts.put += 1;
            }
            // A policy that can't be satisfied refuses the put: nothing lies there unreadable.
            Err(error) => {
                assert_eq!(error.cause(), "crl-stale", "{error}");
                self.counts.put_refused += 1;
            }
        }
    }

    /// Gets every message that someone wants by now. What stays is what SEAL's rule on stale lists keeps.
    fn get(&mut self, list_until: SystemTime) {
        let (ring, now) = (self.load("billing"), self.now());
        // A new one: no key that is gone may still be known to it.
        let opener = Opener::new();
        for message in std::mem::take(&mut self.messages) {
            if message.got_from > now {
                self.messages.push(message);
                continue;
            }
            let destinations = vec!["Q@QM1".to_owned()];
            let expect = Expect { destinations, message_id: message.id.clone(), ..Expect::default() };
            let opened = opener.open(&self.policy, &ring, message.der.clone(), expect, message.put_at, now);
            match opened.and_then(|step| drive(step, &mut self.device)) {
                Ok(_) => {
                    self.counts.got += 1;
                    self.counts.after_expiry += usize::from(message.put_at + DAY * DAYS < now);
                }
                Err(error) => {
                    let why = format!("put {:?} ago: {error}", now.duration_since(message.put_at));
                    assert!(error.cause() == "crl-stale" && list_until <= now, "{why}");
                    self.counts.stale += 1;
                    self.messages.push(message);
                }
            }
        }
    }

    /// What the keeper of a queue manager does, with what it counts: old keys go when no message needs them.
    fn keep(&mut self) {
        let keys = Keys::of_queue_manager(self.site.dir.path(), None, self.now());
        let wall = crate::wall_clock::wall_ms(self.now());
        for mut rotation in keys.rotations.all().unwrap().into_iter().map(Result::unwrap) {
            if rotation.step() == Step::Shared && rotation.overlap_until_ms().is_some_and(|until| until <= wall) {
                keys.withdraw(&mut rotation, &mut || Ok(())).unwrap();
            }
            let needed = self.messages.iter().filter(|message| message.key == rotation.old).count();
            if rotation.step() == Step::Withdrawn && needed == 0 {
                keys.end(&mut rotation, Some(&Needed::default()), &mut || Ok(())).unwrap();
                keys.rotations.remove(&rotation).unwrap();
                self.counts.retired += 1;
            }
        }
    }
}

#[test]
fn what_must_open_opens_while_certificates_renew_expire_and_lists_go_stale() {
    let encrypt = Some(ContentCipher::Aes256Gcm);
    let recipients = vec![dn("billing")];
    let sign = Some(SignatureDigest::Sha256);
    let mut world = World {
        site: Site::new(USERS),
        policy: Arc::new(Policy { sign, encrypt, recipients, ..Policy::new("Q") }),
        device: CpuDevice::new("test"),
        messages: Vec::new(),
        counts: Counts::default(),
    };
    let authority = world.site.authority();
    let mut list_until = world.now();
    // Numbers that look like chance and are the same each time.
    let mut dice = fastrand::Rng::with_seed(7);
    for step in 0..STEPS {
        // The list is renewed late now and then, by up to three days.
        if list_until + Duration::from_secs(dice.u64(0..3) * 86_400) <= world.now() || step == 0 {
            authority.write_crl(LIST_DAYS, world.now()).unwrap();
            for user in ["orders", "billing"] {
                ring::install_crl(&world.site.ring(user), "away", &authority.crl().unwrap()).unwrap();
            }
            list_until = world.now() + DAY * LIST_DAYS;
        }
        // For ten days of the year the authority is away.
        world.site.does.set(if step % 730 < 20 && step > 20 { Does::Refuses } else { Does::Signs });
        world.site.looks(3);
        world.keep();
        if step > 0 {
            world.put(dice.u32(0..180));
        }
        world.get(list_until);
        world.site.pass(STEP);
    }
    // Whoever still wants a message has a current list, and a year to come for it.
    world.site.pass(DAY * 200);
    authority.write_crl(LIST_DAYS, world.now()).unwrap();
    ring::install_crl(&world.site.ring("billing"), "away", &authority.crl().unwrap()).unwrap();
    world.get(world.now() + DAY);
    world.keep();
    let counts = &world.counts;
    assert_eq!((world.messages.len(), counts.got), (0, counts.put), "{counts:?}");
    // All of that has happened, or the test shows nothing.
    assert!(counts.put > 1_300 && counts.put_refused > 10 && counts.stale > 10, "{counts:?}");
    assert!(counts.after_expiry > 100 && counts.retired >= 20, "{counts:?}");
    let kept: Vec<usize> = ["orders", "billing"].iter().map(|user| world.site.own(user).len()).collect();
    assert!(kept.iter().all(|keys| (1..=2).contains(keys)), "{kept:?}");
}
