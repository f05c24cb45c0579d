//! When the queue manager asks, what it does with the answer, and what it says where none comes.

use super::*;
use crate::enrolment::tls_certificate;
use bulla_seal::certificate::bundle::Bundle;
use bulla_seal::ring;

const BILLING: &str =
    "[rings.billing]\nauthority = \"away\"\ndn = \"CN=billing\"\nshare = [\"orders\"]\noverlap = \"0s\"\n";
const SERVER: &str = "[certificates.server]\nauthority = \"away\"\ndn = \"CN=mq\"\nnames = [\"dns:mq.example\"]\n";

#[test]
fn a_first_key_is_made_and_shared_and_renewed_at_two_thirds_of_its_life() {
    let site = Site::new(BILLING);
    site.looks(2);
    let [first] = site.own("billing").try_into().unwrap();
    assert_eq!((site.asked.get(), first.dn()), (1, &dn("billing")));
    let others = ring::survey(&site.ring("orders")).unwrap();
    assert_eq!(others.ring.people()[0].certificate, first);
    let row = site.row("billing");
    assert_eq!((row.state, row.failures, row.place), (EnrolmentState::Valid, 0, EnrolmentPlace::Ring));
    let due = due::due(&first);
    let (earliest, latest) = (first.not_before() + DAY * 57, first.not_before() + DAY * 60);
    assert!((earliest..=latest).contains(&due), "{:?}", due.duration_since(first.not_before()));
    assert_eq!(row.next_ms, Some(crate::wall_clock::wall_ms(due)));
    // Nothing a minute before; the new key in its ring alone until it is read, then in the others.
    site.pass(due.duration_since(site.now.get()).unwrap() - Duration::from_secs(60));
    site.looks(1);
    assert_eq!(site.asked.get(), 1);
    site.has_read.set(false);
    site.pass(Duration::from_secs(120));
    site.looks(3);
    assert_eq!((site.asked.get(), site.own("billing").len()), (2, 2));
    assert_eq!(site.row("billing").state, EnrolmentState::Sharing);
    let known = || ring::survey(&site.ring("orders")).unwrap().ring.people().len();
    assert_eq!(known(), 1);
    site.has_read.set(true);
    site.looks(2);
    assert_eq!((known(), site.row("billing").state), (2, EnrolmentState::Valid));
    assert_eq!(site.events.borrow().len(), 0);
}

#[test]
fn after_a_failure_it_waits_longer_each_time_and_asks_with_the_same_key() {
    let site = Site::new(BILLING);
    site.looks(1);
    site.pass(DAY * 61);
    site.does.set(Does::Refuses);
    let begun = site.asked.get();
    for _ in 0..300 {
        site.looks(1);
        site.pass(Duration::from_secs(59));
    }
    // Five hours: at 0, 1, 3, 7, 15, 31, 63, 127, 255 minutes, each wait up to a quarter longer.
    let failures = site.failures();
    assert!((8..=9).contains(&failures.len()), "{failures:?}");
    assert_eq!(site.asked.get() - begun, failures.len());
    for (at, (why, failed, wait, is_pressing)) in failures.iter().enumerate() {
        assert_eq!(
            (why.as_str(), *failed as usize, *is_pressing),
            ("refused: exit status 1: not today", at + 1, false)
        );
        let least = 60 << at;
        assert!((least..=least + least / 4 + 1).contains(wait), "{failures:?}");
    }
    let row = site.row("billing");
    assert_eq!((row.state, row.failures as usize), (EnrolmentState::Failing, failures.len()));
    let pending = || fs::read_dir(site.ring("billing").join("pending")).unwrap().count();
    assert_eq!(pending(), 1);
    // It tries again, late in its life ever more often, and what came at last is kept.
    site.pass(DAY * 26);
    site.looks(1);
    assert!(site.failures().last().unwrap().3, "a tenth of the lifetime is left");
    site.does.set(Does::Signs);
    site.pass(due::RETRY_MAX * 2);
    site.looks(3);
    assert_eq!((site.own("billing").len(), pending(), site.row("billing").failures), (2, 0, 0));
}

#[test]
fn an_authority_that_has_not_decided_is_asked_again_without_an_alarm() {
    let site = Site::new(BILLING);
    site.looks(1);
    site.pass(DAY * 61);
    site.does.set(Does::HasNotDecided);
    site.looks(1);
    assert_eq!((site.row("billing").state, site.events.borrow().len()), (EnrolmentState::Undecided, 0));
    site.does.set(Does::Signs);
    site.pass(Duration::from_secs(90));
    site.looks(3);
    assert_eq!((site.row("billing").state, site.own("billing").len()), (EnrolmentState::Valid, 2));
}

#[test]
fn what_does_not_fit_is_not_kept() {
    let site = Site::new(&format!("{BILLING}{SERVER}"));
    site.does.set(Does::SignsAnotherKey);
    // One attempt a look with one authority.
    site.looks(2);
    let failures = site.failures();
    assert_eq!(failures.len(), 2);
    assert!(failures.iter().all(|(why, ..)| why.contains("none of its 1 certificates is for the key")), "{failures:?}");
    assert!(failures.iter().all(|(.., is_pressing)| *is_pressing), "there is none yet");
    assert_eq!((site.own("billing").len(), fs::read_dir(site.dir.path().join(TLS)).unwrap().count()), (0, 0));
}

#[test]
fn a_certificate_of_tls_is_replaced_with_its_key_and_the_audit_log_hears_of_it() {
    let site = Site::new(SERVER);
    site.looks(1);
    let present = || tls_certificate::present(site.dir.path(), "server").unwrap().unwrap().0;
    let first = present();
    assert_eq!(site.row("server").state, EnrolmentState::Valid);
    site.pass(DAY * 60);
    site.looks(1);
    let second = present();
    assert_ne!(first.public_key().public_key_to_der().unwrap(), second.public_key().public_key_to_der().unwrap());
    let key = fs::read(site.dir.path().join("tls/server.key")).unwrap();
    let key = Bundle::read(&[key, second.to_pem()].concat(), None).unwrap().key.unwrap();
    assert!(second.public_key().public_eq(&key));
    let audited = site.audited.borrow();
    assert_eq!(audited.len(), 1);
    assert_eq!(audited[0].what["serial"], second.serial_hex());
    assert_eq!(fs::read_dir(site.dir.path().join("enrolment")).unwrap().count(), 0);
}

#[test]
fn a_certificate_that_was_interrupted_on_its_way_is_put_in_place_whole() {
    let site = Site::new(SERVER);
    site.looks(1);
    // Both files of another pair as one, and of the pair the key alone in place.
    let before = tls_certificate::present(site.dir.path(), "server").unwrap().unwrap().0;
    let request = Request {
        dn: dn("mq"),
        key: P256,
        uses: vec![KeyUse::Handshake],
        days: 9,
        alternative_names: vec![AlternativeName::Dns("mq.example".into())],
        passphrase: None,
    };
    let (new, key) = site.authority().issue(&request, site.now.get()).unwrap();
    let folder = site.dir.path().join("enrolment");
    fs::write(folder.join("server.ready"), [new.to_pem(), key.as_bytes().to_vec()].concat()).unwrap();
    fs::write(folder.join("server.pending"), key.as_bytes()).unwrap();
    fs::write(site.dir.path().join("tls/server.key"), key.as_bytes()).unwrap();
    assert_ne!(before, new);
    tls_certificate::finish(site.dir.path()).unwrap();
    assert_eq!(tls_certificate::present(site.dir.path(), "server").unwrap().unwrap().0, new);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    tls_certificate::finish(site.dir.path()).unwrap();
}

#[test]
fn a_change_of_a_key_by_hand_is_left_to_whoever_began_it() {
    let site = Site::new(BILLING);
    site.looks(1);
    let keys = crate::key_rotation::steps::Keys::new(site.dir.path(), None, site.now.get());
    let turn = keys.rotations.turn(Duration::ZERO).unwrap();
    let begun = keys.begin("billing", &crate::key_rotation::steps::Wish::default()).unwrap();
    drop(turn);
    site.pass(DAY * 61);
    let asked = site.asked.get();
    site.looks(1);
    assert!(site.failures()[0].0.contains("its certificate is to come by a command"), "{:?}", site.failures());
    assert_eq!((site.asked.get(), keys.rotations.of("billing").unwrap()), (asked, vec![begun]));
}

/// How many of billing's keys are classical, and how many post-quantum.
fn kinds(site: &Site) -> [usize; 2] {
    let own = site.own("billing");
    let post_quantum = own.iter().filter(|certificate| certificate.key_kind().is_post_quantum()).count();
    [own.len() - post_quantum, post_quantum]
}

#[test]
fn the_kind_of_new_keys_is_for_those_whose_place_it_can_take() {
    let site = Site::new(&format!("{BILLING}key = \"p384\"\n"));
    site.looks(2);
    site.add_key("signs", KeySpec::MlDsa(MlDsa::MlDsa65), &[KeyUse::DocSign], 80);
    site.pass(DAY * 61);
    site.looks(6);
    assert_eq!(site.failures(), []);
    let bits = |own: &Certificate| (!own.key_kind().is_post_quantum()).then_some(own.key_bits());
    assert_eq!((kinds(&site), site.own("billing").iter().filter_map(bits).max()), ([2, 2], Some(384)));
}

#[test]
fn a_key_that_can_t_be_renewed_holds_up_no_other_of_the_ring() {
    let site = Site::new(BILLING);
    site.looks(2);
    // The ML-DSA key is due first.
    let refused = site.add_key("signs", KeySpec::MlDsa(MlDsa::MlDsa65), &[KeyUse::DocSign], 80);
    site.pass(DAY * 61);
    site.does.set(Does::KnowsNoPostQuantum);
    site.looks(6);
    let failures = site.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(kinds(&site), [2, 1]);
    let rows = site.shown.rows().unwrap();
    let states: Vec<_> = rows.iter().map(|row| (row.serial == refused.serial_hex(), row.state)).collect();
    assert_eq!(states, [(true, EnrolmentState::Failing), (false, EnrolmentState::Valid)]);
    // It is asked for again, and comes when the authority has learnt it.
    site.does.set(Does::Signs);
    site.pass(Duration::from_secs(90));
    site.looks(4);
    assert_eq!(kinds(&site), [2, 2]);
    assert!(site.shown.rows().unwrap().iter().all(|row| row.state == EnrolmentState::Valid));
}

#[test]
fn what_others_may_write_is_not_run_and_a_new_text_is_tried_at_once() {
    let site = Site::new(BILLING);
    let path = site.dir.path().join(FILE);
    let mode = |mode| fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o620);
    site.looks(1);
    assert!(site.shown.rows().unwrap_err().contains("others may write it (mode 620)"));
    mode(0o600);
    site.does.set(Does::Refuses);
    site.looks(3);
    assert_eq!((site.asked.get(), site.row("billing").failures), (1, 1));
    site.configure(&BILLING.replace("0s", "1h"));
    site.looks(1);
    assert_eq!(site.asked.get(), 2);
}
