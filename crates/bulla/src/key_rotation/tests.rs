//! The steps on a data directory without a queue manager, ended at every change of a file.

use super::super::record::Done;
use super::*;
use bulla_seal::certificate::authority::Request;
use bulla_seal::certificate::{Curve, Usage};
use bulla_seal::dn::Dn;

const P256: KeySpec = KeySpec::Ec(Curve::P256);

/// Two users who know each other, and their authority.
struct Site {
    dir: tempfile::TempDir,
    now: SystemTime,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_219_200);
        let site = Site { dir, now };
        let dn = "CN=Demo authority".parse().unwrap();
        Authority::create(&site.data().join(AUTHORITIES).join("demo"), &dn, P256, 3650, now).unwrap();
        for (user, other) in [("orders", "billing"), ("billing", "orders")] {
            site.add_key(user, user, other);
        }
        // The folder of the records is made with the first turn.
        drop(site.keys().rotations.turn(Duration::ZERO).unwrap());
        site
    }

    fn data(&self) -> &Path {
        self.dir.path()
    }

    fn ring(&self, user: &str) -> PathBuf {
        self.data().join(RINGS).join(user)
    }

    fn authority(&self) -> Box<Authority> {
        Box::new(Authority::open(&self.data().join(AUTHORITIES).join("demo")).unwrap())
    }

    /// A key of the user, shared with one other.
    fn add_key(&self, user: &str, label: &str, other: &str) -> Certificate {
        let authority = self.authority();
        let request = Request {
            dn: dn(user),
            key: P256,
            uses: vec![KeyUse::DocSign, KeyUse::KeyAgree],
            days: 365,
            alternative_names: Vec::new(),
            passphrase: None,
        };
        let (certificate, key) = authority.issue(&request, self.now).unwrap();
        ring::install_own(&self.ring(user), label, &certificate, &[], &key).unwrap();
        ring::install_person(&self.ring(other), label, &certificate, &[]).unwrap();
        for dir in [self.ring(user), self.ring(other)] {
            ring::install_trust(&dir, "demo", authority.root()).unwrap();
        }
        certificate
    }

    fn keys(&self) -> Keys<'_> {
        Keys::new(self.data(), None, self.now)
    }

    /// All steps, as `bulla key rotate` and then the queue manager do them; none that is done is done again.
    fn go_on(&self, user: &str, pace: Pace<'_>) -> Result<Rotation, RotationError> {
        let keys = self.keys();
        let over = keys.rotations.of(user)?.into_iter().find(|rotation| !rotation.is_being_made());
        let mut rotation = match over {
            Some(rotation) => rotation,
            None => keys.begin(user, &Wish { overlap: Some(Duration::ZERO), ..Wish::default() })?,
        };
        pace()?;
        if rotation.step() < Step::Installed {
            keys.make_key(&mut rotation, pace)?;
            pace()?;
            keys.install(&mut rotation, Signed::Here(self.authority(), 365), pace)?;
        }
        pace()?;
        if rotation.step() < Step::Shared {
            keys.share(&mut rotation, pace)?;
        }
        pace()?;
        if rotation.step() < Step::Withdrawn {
            keys.withdraw(&mut rotation, pace)?;
        }
        pace()?;
        match rotation.step() {
            Step::Withdrawn => keys.end(&mut rotation, Some(&Needed::default()), pace)?,
            _ => keys.take_out(&rotation)?,
        }
        Ok(rotation)
    }

    /// Whatever anyone would seal now, its reader has the key for, and who signed it is believed.
    #[track_caller]
    fn check_everyone_can_read(&self) {
        let soon = self.now + Duration::from_secs(2);
        let rings = ["orders", "billing"].map(|user| Ring::load(&self.ring(user), None).unwrap());
        for sealer in &rings {
            for reader in &rings {
                let found = sealer.recipient(&dn(reader.user()), Usage::KeyAgreement, Revocation::None, soon).unwrap();
                assert!(
                    reader.find_own(found.issuer_and_serial()).is_some(),
                    "{} for {}",
                    sealer.user(),
                    reader.user()
                );
                let signs = sealer.signing(Revocation::None, soon).unwrap();
                reader.verify(&signs.certificate, &signs.chain, Usage::Sign, soon, soon).unwrap();
            }
        }
    }

    fn own(&self, user: &str) -> Vec<String> {
        let mut serials: Vec<_> =
            ring::survey(&self.ring(user)).unwrap().own.iter().map(|own| own.certificate.serial_hex()).collect();
        serials.sort();
        serials
    }

    fn own_certificate(&self, user: &str) -> Certificate {
        ring::survey(&self.ring(user)).unwrap().own[0].certificate.clone()
    }

    fn known(&self, user: &str) -> Vec<String> {
        let survey = ring::survey(&self.ring(user)).unwrap();
        survey.ring.people().iter().map(|person| person.certificate.serial_hex()).collect()
    }

    fn retired(&self, user: &str) -> usize {
        fs::read_dir(self.ring(user).join(RETIRED)).map_or(0, Iterator::count)
    }
}

fn dn(user: &str) -> Dn {
    format!("CN={user}").parse().unwrap()
}

fn never() -> impl FnMut() -> Result<(), RotationError> {
    || Ok(())
}

#[track_caller]
fn refused<T>(result: Result<T, RotationError>, says: &str) {
    let Err(error) = result else { panic!("not refused: {says}") };
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn the_new_key_seals_and_the_old_one_is_kept_aside() {
    let site = Site::new();
    let [old] = site.own("billing").try_into().unwrap();
    let rotation = site.go_on("billing", &mut never()).unwrap();
    let new = rotation.new.clone().unwrap().serial;
    assert_eq!((site.own("billing"), site.known("orders")), (vec![new.clone()], vec![new.clone()]));
    assert_eq!((site.retired("billing"), site.retired("orders")), (1, 1));
    assert_ne!(old, new);
    let steps: Vec<Step> = rotation.steps.iter().map(|Done { step, .. }| *step).collect();
    let all = [Step::Begun, Step::Keyed, Step::Installed, Step::Shared, Step::Withdrawn, Step::Retired];
    assert_eq!(steps, all);
    assert_eq!(site.keys().rotations.of("billing").unwrap(), [rotation]);
    site.check_everyone_can_read();
    let mode = fs::metadata(site.ring("billing").join(RETIRED)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn ended_at_any_change_of_a_file_it_goes_on_and_nothing_is_sealed_for_a_key_that_is_not_there() {
    let mut stops = 0;
    for stop in 0.. {
        let site = Site::new();
        let mut count = 0;
        let ended = site.go_on("billing", &mut || {
            site.check_everyone_can_read();
            count += 1;
            if count > stop { Err(RotationError::Stopped) } else { Ok(()) }
        });
        site.check_everyone_can_read();
        if ended.is_ok() {
            break;
        }
        stops += 1;
        let rotation = site.go_on("billing", &mut never()).unwrap_or_else(|error| panic!("after {stop}: {error}"));
        let new = rotation.new.unwrap().serial;
        assert_eq!((site.own("billing"), site.known("orders")), (vec![new.clone()], vec![new]), "after {stop}");
        assert_eq!((site.retired("billing"), site.retired("orders")), (1, 1), "after {stop}");
        let left = fs::read_dir(site.ring("billing").join(PENDING)).map_or(0, Iterator::count);
        assert_eq!(left, 0, "after {stop}");
        site.check_everyone_can_read();
    }
    assert!(stops >= 12, "{stops}");
}

#[test]
fn a_user_may_change_keys_again_while_an_old_one_is_needed() {
    let mut site = Site::new();
    let wish = Wish { kind: Some(KeySpec::Rsa(2048)), ..Wish::default() };
    for _ in 0..2 {
        let keys = site.keys();
        let mut rotation = keys.begin("billing", &wish).unwrap();
        keys.make_key(&mut rotation, &mut never()).unwrap();
        keys.install(&mut rotation, Signed::Here(site.authority(), 365), &mut never()).unwrap();
        keys.share(&mut rotation, &mut never()).unwrap();
        assert_eq!(rotation.overlap_until_ms(), Some(rotation.since_ms() + 7 * 86_400_000));
        site.now += Duration::from_secs(2);
        site.check_everyone_can_read();
    }
    assert_eq!(site.own("billing").len(), 3);
    let all = site.keys().rotations.of("billing").unwrap();
    assert_eq!(all.len(), 2);
    assert_ne!(all[0].old, all[1].old);
    let newest = site.keys().begin("billing", &wish).unwrap();
    assert!(all.iter().any(|one| one.new == Some(newest.old.clone())), "the one that seals is replaced");
}

#[test]
fn within_one_second_the_new_key_still_is_the_newer_one() {
    let site = Site::new();
    for _ in 0..3 {
        let keys = site.keys();
        let mut rotation = keys.begin("orders", &Wish::default()).unwrap();
        keys.make_key(&mut rotation, &mut never()).unwrap();
        let installed = keys.install(&mut rotation, Signed::Here(site.authority(), 365), &mut never());
        installed.unwrap();
        keys.share(&mut rotation, &mut never()).unwrap();
        let much_later = site.now + Duration::from_secs(10);
        let ring = Ring::load(&site.ring("orders"), None).unwrap();
        let signs = &ring.signing(Revocation::None, much_later).unwrap().certificate;
        assert!(rotation.new.unwrap().is(signs));
        // The next change is of the key that seals then.
        let later = Keys::new(site.data(), None, much_later);
        let next = later.begin("orders", &Wish::default()).unwrap();
        assert!(next.old.is(signs));
        later.cancel("orders", None).unwrap();
        later.rotations.remove(&next).unwrap();
    }
}

#[test]
fn a_change_that_is_under_way_is_gone_on_with_or_called_off() {
    let site = Site::new();
    let keys = site.keys();
    let wish = Wish { kind: Some(P256), overlap: Some(Duration::from_secs(60)), ..Wish::default() };
    let mut rotation = keys.begin("billing", &wish).unwrap();
    let key = keys.make_key(&mut rotation, &mut never()).unwrap();
    assert_eq!(keys.begin("billing", &wish).unwrap(), rotation);
    assert_eq!(keys.begin("billing", &Wish::default()).unwrap(), rotation);
    let other = Wish { overlap: Some(Duration::from_secs(61)), ..Wish::default() };
    refused(keys.begin("billing", &other), "under way, of");
    let again = keys.make_key(&mut rotation, &mut never()).unwrap();
    assert!(again.public_eq(&key), "the key is made once");
    keys.cancel("billing", None).unwrap();
    refused(keys.cancel("billing", None), "no change of the key of billing is under way");
    assert_eq!(site.own("billing").len(), 1);
    // The audit log has not heard of it yet, and the next change goes on behind it.
    let next = keys.begin("billing", &Wish::default()).unwrap();
    let steps: Vec<Step> = next.steps.iter().map(|done| done.step).collect();
    assert_eq!(steps, [Step::Begun, Step::Keyed, Step::Cancelled, Step::Begun]);
    assert_ne!(next.label, rotation.label);
    let mut next = next;
    keys.make_key(&mut next, &mut never()).unwrap();
    keys.install(&mut next, Signed::Here(site.authority(), 365), &mut never()).unwrap();
    refused(keys.cancel("billing", None), "has the new key already");
}

#[test]
fn a_certificate_signed_elsewhere_must_be_the_keys_and_at_least_as_good() {
    let mut site = Site::new();
    site.now += Duration::from_secs(5);
    let keys = site.keys();
    let mut rotation = keys.begin("billing", &Wish::default()).unwrap();
    let key = keys.make_key(&mut rotation, &mut never()).unwrap();
    let request = keys.request(&rotation, &key).unwrap();
    let both = [KeyUse::DocSign, KeyUse::KeyAgree];
    let sign = |authority: &Authority, request: &[u8], uses: &[KeyUse], now| {
        authority.sign_request(request, uses, 100, &[], now).unwrap().to_pem()
    };
    let mut install = |pem: &[u8]| keys.install(&mut rotation, Signed::Elsewhere(pem), &mut never());
    let demo = site.authority();
    refused(install(&fs::read(site.data().join("authorities/demo/ca.pem")).unwrap()), "none of the file's");
    refused(install(&sign(&demo, &request, &both[..1], site.now)), "not good for encrypt");
    refused(install(&sign(&demo, &request, &both, site.now - Duration::from_secs(5))), "begins no later");
    refused(install(&sign(&demo, &request, &both, site.now + Duration::from_secs(301))), "not valid yet");
    let name = "CN=Other authority".parse().unwrap();
    let other = Authority::create(&site.data().join("authorities/other"), &name, P256, 3650, site.now).unwrap();
    refused(install(&sign(&other, &request, &both, site.now)), "would not believe the new certificate");
    ring::install_trust(&site.ring("billing"), "other", other.root()).unwrap();
    refused(install(&sign(&other, &request, &both, site.now)), "the ring of orders would not believe");
    assert_eq!(site.own("billing").len(), 1, "nothing was put into the ring");
    install(&sign(&demo, &request, &both, site.now)).unwrap();
    keys.share(&mut rotation, &mut never()).unwrap();
    site.check_everyone_can_read();
}

#[test]
fn keys_that_can_t_be_replaced_are_refused() {
    let site = Site::new();
    let keys = site.keys();
    refused(keys.begin("nobody", &Wish::default()), "nobody has no key");
    refused(keys.begin("../orders", &Wish::default()), "cannot have a key ring");
    ring::create(&site.ring("empty")).unwrap();
    refused(keys.begin("empty", &Wish::default()), "empty has no key");
    let unknown = Wish { serial: Some("4711".to_owned()), ..Wish::default() };
    refused(keys.begin("orders", &unknown), "no key with serial number 4711");
    let copy = fs::read(site.ring("orders").join("own/orders.pem")).unwrap();
    ring::create(&site.ring("twin")).unwrap();
    whole_file::replace(&site.ring("twin").join("own/copy.pem"), &copy, 0o600).unwrap();
    refused(keys.begin("orders", &Wish::default()), "the ring of twin has the private key");
    fs::remove_dir_all(site.ring("twin")).unwrap();
    let given = Passphrase::new("a passphrase".to_owned());
    let with = Keys::new(site.data(), Some(&given), site.now);
    refused(with.begin("orders", &Wish::default()), "the keys of orders have no passphrase");
    fs::set_permissions(site.ring("billing"), fs::Permissions::from_mode(0o755)).unwrap();
    refused(keys.begin("billing", &Wish::default()), "others must not have access");
    assert!(keys.rotations.all().unwrap().is_empty(), "nothing was begun");
}

#[test]
fn of_a_key_that_signs_and_one_that_opens_the_serial_number_says_which() {
    let mut site = Site::new();
    let first = site.own("billing");
    site.now += Duration::from_secs(5);
    let authority = site.authority();
    let request = Request {
        dn: dn("billing"),
        key: P256,
        uses: vec![KeyUse::DocSign],
        days: 30,
        alternative_names: Vec::new(),
        passphrase: None,
    };
    let (signs, key) = authority.issue(&request, site.now).unwrap();
    ring::install_own(&site.ring("billing"), "signs", &signs, &[], &key).unwrap();
    let keys = site.keys();
    refused(keys.begin("billing", &Wish::default()), "signs with the key");
    let of = |serial: &str| Wish { serial: Some(serial.to_owned()), ..Wish::default() };
    let rotation = keys.begin("billing", &of(&signs.serial_hex().to_uppercase())).unwrap();
    let key = keys.make_key(&mut rotation.clone(), &mut never()).unwrap();
    let asked = keys.request(&rotation, &key).unwrap();
    let new = authority.sign_request(&asked, &uses(&signs, P256.kind()), 9, &[], site.now).unwrap();
    assert_eq!(new.roles(), [Role::Sign]);
    // The other one may be changed at the same time, and then it must be said which is meant.
    let other = keys.begin("billing", &of(&first[0])).unwrap();
    refused(keys.begin("billing", &Wish::default()), "changes of several keys of billing are under way");
    refused(keys.cancel("billing", None), "changes of several keys of billing are under way");
    assert_eq!(keys.begin("billing", &of(&first[0])).unwrap(), other);
    assert_eq!(keys.cancel("billing", Some(&first[0])).unwrap().old, other.old);
    assert_eq!(keys.under_way("billing", None).unwrap().map(|change| change.old), Some(rotation.old.clone()));
    keys.cancel("billing", None).unwrap();
    assert_eq!(keys.begin("billing", &of(&first[0])).unwrap().old.serial, first[0]);
}

#[test]
fn links_are_not_followed_when_a_key_is_taken_out() {
    let site = Site::new();
    let elsewhere = site.data().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, site.ring("billing").join(RETIRED)).unwrap();
    refused(site.go_on("billing", &mut never()), "retired is a link");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    site.check_everyone_can_read();
    fs::remove_file(site.ring("billing").join(RETIRED)).unwrap();
    let own = site.ring("billing").join("own/billing.pem");
    fs::rename(&own, elsewhere.join("billing.pem")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("billing.pem"), &own).unwrap();
    refused(site.go_on("billing", &mut never()), "own/billing.pem is a link");
    fs::remove_file(&own).unwrap();
    fs::rename(elsewhere.join("billing.pem"), &own).unwrap();
    assert_eq!(site.go_on("billing", &mut never()).unwrap().step(), Step::Retired);
    assert_eq!(site.own("billing").len(), 1);
}

#[test]
fn old_keys_are_all_but_the_one_that_seals() {
    let mut site = Site::new();
    let [old] = site.own("billing").try_into().unwrap();
    let one = |serial: &str| Some(serial.to_owned());
    refused(site.keys().old_keys("billing", Some(&old)), "seals and opens with the key");
    assert_eq!(site.keys().old_keys("billing", None).unwrap(), []);
    site.now += Duration::from_secs(5);
    let new = site.add_key("billing", "by-hand", "billing");
    refused(site.keys().old_keys("billing", None), "the ring of orders would have no certificate");
    ring::install_person(&site.ring("orders"), "by-hand", &new, &[]).unwrap();
    let found = site.keys().old_keys("billing", one(&old).as_deref()).unwrap();
    assert_eq!(found.iter().map(|rotation| &rotation.old.serial).collect::<Vec<_>>(), [&old]);
    assert!(found[0].steps.is_empty() && found[0].new.as_ref().unwrap().is(&new));
    refused(site.keys().old_keys("billing", Some("4711")), "no key with serial number 4711");
    refused(site.keys().old_keys("billing", Some(&new.serial_hex())), "seals and opens");
}

#[test]
fn a_record_that_is_none_is_refused_and_named() {
    let site = Site::new();
    let keys = site.keys();
    let rotation = keys.begin("billing", &Wish::default()).unwrap();
    let folder = site.data().join("rotations");
    let path = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&path).unwrap();
    for damaged in ["", "{}", &text.replace("\"begun\"", "\"unheard\""), &text.replace("billing", "orders"), &text[1..]]
    {
        fs::write(&path, damaged).unwrap();
        let error = keys.rotations.of("billing").unwrap_err().to_string();
        assert!(error.contains(path.file_name().unwrap().to_str().unwrap()), "{error}");
    }
    fs::write(&path, &text).unwrap();
    fs::write(folder.join("half.json.new"), "half").unwrap();
    assert_eq!(keys.rotations.of("billing").unwrap(), [rotation]);
    let turn = keys.rotations.turn(Duration::ZERO).unwrap();
    refused(keys.rotations.turn(Duration::ZERO), "another command changes keys here");
    drop(turn);
    keys.rotations.turn(Duration::ZERO).unwrap();
}

#[test]
fn a_ring_that_can_t_be_read_stops_its_own_user_s_change_alone() {
    let site = Site::new();
    let audit = site.ring("audit");
    for damage in ["people/damaged.pem", "crl/damaged.pem"] {
        let old = site.add_key("audit", "audit", "orders");
        ring::install_person(&audit, "billing", &site.own_certificate("billing"), &[]).unwrap();
        fs::write(audit.join(damage), "no certificate").unwrap();
        fs::set_permissions(&audit, fs::Permissions::from_mode(0o755)).unwrap();
        let [(user, _)] = site.keys().unusable_rings().try_into().unwrap();
        assert_eq!(user, "audit");
        let rotation = site.go_on("billing", &mut never()).unwrap();
        let new = rotation.new.clone().unwrap().serial;
        // Once it is mended it seals for the new key: it has that one, and no other.
        refused(site.go_on("audit", &mut never()), "audit has mode 0755");
        fs::set_permissions(&audit, fs::Permissions::from_mode(0o700)).unwrap();
        refused(site.go_on("audit", &mut never()), damage);
        fs::remove_file(audit.join(damage)).unwrap();
        assert_eq!(site.known("audit"), [new], "{damage}");
        site.keys().rotations.remove(&rotation).unwrap();
        fs::remove_dir_all(&audit).unwrap();
        let shared = ring::survey(&site.ring("orders")).unwrap();
        let label = shared.ring.people().iter().find(|person| person.certificate == old).unwrap().label.clone();
        fs::remove_file(site.ring("orders").join(format!("people/{label}.pem"))).unwrap();
    }
}

#[test]
fn a_ring_that_can_t_even_be_listed_gets_the_new_certificate_before_the_old_key_goes() {
    let site = Site::new();
    let audit = site.ring("audit");
    ring::install_person(&audit, "billing", &site.own_certificate("billing"), &[]).unwrap();
    let (people, away) = (audit.join("people"), audit.join("away"));
    fs::rename(&people, &away).unwrap();
    fs::write(&people, "no folder").unwrap();
    let wish = Wish { overlap: Some(Duration::ZERO), ..Wish::default() };
    let keys = site.keys();
    let mut rotation = keys.begin("billing", &wish).unwrap();
    keys.make_key(&mut rotation, &mut never()).unwrap();
    keys.install(&mut rotation, Signed::Here(site.authority(), 365), &mut never()).unwrap();
    keys.share(&mut rotation, &mut never()).unwrap();
    refused(keys.withdraw(&mut rotation, &mut never()), "audit/people");
    assert_eq!(rotation.step(), Step::Shared);
    fs::remove_file(&people).unwrap();
    fs::rename(&away, &people).unwrap();
    keys.withdraw(&mut rotation, &mut never()).unwrap();
    assert_eq!(site.known("audit"), [rotation.new.unwrap().serial]);
}

#[test]
fn a_record_that_is_none_stops_its_own_user_s_change_alone() {
    let site = Site::new();
    let keys = site.keys();
    keys.begin("billing", &Wish::default()).unwrap();
    let folder = site.data().join("rotations");
    fs::write(folder.join("orders+00.json"), "{}").unwrap();
    refused(keys.rotations.of("orders"), "orders+00.json");
    assert_eq!(keys.rotations.of("billing").unwrap().len(), 1);
    assert_eq!(keys.rotations.of_users(&|user| user.starts_with('b')).unwrap().len(), 1);
    refused(keys.rotations.of_users(&|_| true), "orders+00.json");
}
